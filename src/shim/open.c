/* SPDX-License-Identifier: BSD-2-Clause */
#include "shim/shim.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

/* For programs built with _FORTIFY_SOURCE. */
EXPORT int __open_2(const char *path, int flags);
EXPORT int __open64_2(const char *path, int flags);
EXPORT int __openat_2(int dir, const char *path, int flags);
EXPORT int __openat64_2(int dir, const char *path, int flags);

/* Who opens a folder may list it. */
static enum shim_use use_of(int flags)
{
	return flags & O_CREAT ? SHIM_FILE : SHIM_LIST;
}

static mode_t mode_of(int flags, va_list ap)
{
	return flags & (O_CREAT | __O_TMPFILE) ? va_arg(ap, mode_t) : 0;
}

#define OPEN(name) \
	EXPORT int name(const char *path, int flags, ...) \
	{ \
		struct shim_path buf; \
		mode_t mode; \
		va_list ap; \
\
		va_start(ap, flags); \
		mode = mode_of(flags, ap); \
		va_end(ap); \
		return SHIM_NEXT(name)(shim_path(path, use_of(flags), &buf), flags, mode); \
	}
#define OPENAT(name) \
	EXPORT int name(int dir, const char *path, int flags, ...) \
	{ \
		struct shim_path buf; \
		mode_t mode; \
		va_list ap; \
\
		va_start(ap, flags); \
		mode = mode_of(flags, ap); \
		va_end(ap); \
		return SHIM_NEXT(name)(dir, shim_path_at(dir, path, use_of(flags), &buf), \
				       flags, mode); \
	}
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

#define OPEN_2(name) \
	EXPORT int name(const char *path, int flags) \
	{ \
		struct shim_path buf; \
\
		return SHIM_NEXT(name)(shim_path(path, use_of(flags), &buf), flags); \
	}
#define OPENAT_2(name) \
	EXPORT int name(int dir, const char *path, int flags) \
	{ \
		struct shim_path buf; \
\
		return SHIM_NEXT(name)(dir, shim_path_at(dir, path, use_of(flags), &buf), \
				       flags); \
	}
OPEN_2(__open_2)
OPEN_2(__open64_2)
OPENAT_2(__openat_2)
OPENAT_2(__openat64_2)

#define FOPEN(name) \
	EXPORT FILE *name(const char *path, const char *mode) \
	{ \
		struct shim_path buf; \
\
		return SHIM_NEXT(name)(shim_path(path, SHIM_FILE, &buf), mode); \
	}
#define FREOPEN(name) \
	EXPORT FILE *name(const char *path, const char *mode, FILE *file) \
	{ \
		struct shim_path buf; \
\
		return SHIM_NEXT(name)(shim_path(path, SHIM_FILE, &buf), mode, file); \
	}
FOPEN(fopen)
FOPEN(fopen64)
FREOPEN(freopen)
FREOPEN(freopen64)
