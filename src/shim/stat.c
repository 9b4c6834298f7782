/* SPDX-License-Identifier: BSD-2-Clause */
#include "shim/shim.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

/* Of programs that were linked before glibc 2.33. */
EXPORT int __xstat(int ver, const char *path, struct stat *st);
EXPORT int __lxstat(int ver, const char *path, struct stat *st);
EXPORT int __fxstatat(int ver, int dir, const char *path, struct stat *st, int flags);
EXPORT int __xstat64(int ver, const char *path, struct stat64 *st);
EXPORT int __lxstat64(int ver, const char *path, struct stat64 *st);
EXPORT int __fxstatat64(int ver, int dir, const char *path, struct stat64 *st, int flags);

#define STAT(name, type) \
	EXPORT int name(const char *path, type *st) \
	{ \
		struct shim_path buf; \
\
		return SHIM_NEXT(name)(shim_path(path, SHIM_FILE, &buf), st); \
	}
#define FSTATAT(name, type) \
	EXPORT int name(int dir, const char *path, type *st, int flags) \
	{ \
		struct shim_path buf; \
\
		return SHIM_NEXT(name)(dir, shim_path_at(dir, path, SHIM_FILE, &buf), st, \
				       flags); \
	}
STAT(stat, struct stat)
STAT(stat64, struct stat64)
STAT(lstat, struct stat)
STAT(lstat64, struct stat64)
STAT(statfs, struct statfs)
STAT(statfs64, struct statfs64)
FSTATAT(fstatat, struct stat)
FSTATAT(fstatat64, struct stat64)

/* libc keeps these under old versions alone, which dlsym() does not find. Of the structs
 * there is one version on the processors that we know. */
#define XSTAT(name, to, type) \
	EXPORT int name(int ver, const char *path, type *st) \
	{ \
		(void)ver; \
		return to(path, st); \
	}
#define FXSTATAT(name, to, type) \
	EXPORT int name(int ver, int dir, const char *path, type *st, int flags) \
	{ \
		(void)ver; \
		return to(dir, path, st, flags); \
	}
XSTAT(__xstat, stat, struct stat)
XSTAT(__xstat64, stat64, struct stat64)
XSTAT(__lxstat, lstat, struct stat)
XSTAT(__lxstat64, lstat64, struct stat64)
FXSTATAT(__fxstatat, fstatat, struct stat)
FXSTATAT(__fxstatat64, fstatat64, struct stat64)

EXPORT int statx(int dir, const char *path, int flags, unsigned mask, struct statx *st)
{
	struct shim_path buf;

	return SHIM_NEXT(statx)(dir, shim_path_at(dir, path, SHIM_FILE, &buf), flags, mask,
				st);
}

#define ACCESS(name) \
	EXPORT int name(const char *path, int mode) \
	{ \
		struct shim_path buf; \
\
		return SHIM_NEXT(name)(shim_path(path, SHIM_FILE, &buf), mode); \
	}
ACCESS(access)
ACCESS(eaccess)
ACCESS(euidaccess)

EXPORT int faccessat(int dir, const char *path, int mode, int flags)
{
	struct shim_path buf;

	return SHIM_NEXT(faccessat)(dir, shim_path_at(dir, path, SHIM_FILE, &buf), mode,
				    flags);
}

/* ls -l asks for these. */
#define GETXATTR(name) \
	EXPORT ssize_t name(const char *path, const char *attr, void *value, size_t size) \
	{ \
		struct shim_path buf; \
\
		return SHIM_NEXT(name)(shim_path(path, SHIM_FILE, &buf), attr, value, size); \
	}
#define LISTXATTR(name) \
	EXPORT ssize_t name(const char *path, char *list, size_t size) \
	{ \
		struct shim_path buf; \
\
		return SHIM_NEXT(name)(shim_path(path, SHIM_FILE, &buf), list, size); \
	}
GETXATTR(getxattr)
GETXATTR(lgetxattr)
LISTXATTR(listxattr)
LISTXATTR(llistxattr)
