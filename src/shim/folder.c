/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls that list or enter folders. */
#include "shim/shim.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

EXPORT char *__getcwd_chk(char *out, size_t size, size_t room);

EXPORT DIR *opendir(const char *path)
{
	struct shim_path buf;

	return SHIM_NEXT(opendir)(shim_path(path, SHIM_LIST, &buf));
}

#define SCANDIR(name, at, entry) \
	EXPORT int name(const char *path, struct entry ***list, \
			int (*filter)(const struct entry *), \
			int (*compare)(const struct entry **, const struct entry **)) \
	{ \
		struct shim_path buf; \
\
		return SHIM_NEXT(name)(shim_path(path, SHIM_LIST, &buf), list, filter, \
				       compare); \
	} \
	EXPORT int at(int dir, const char *path, struct entry ***list, \
		      int (*filter)(const struct entry *), \
		      int (*compare)(const struct entry **, const struct entry **)) \
	{ \
		struct shim_path buf; \
\
		return SHIM_NEXT(at)(dir, shim_path_at(dir, path, SHIM_LIST, &buf), list, \
				     filter, compare); \
	}
SCANDIR(scandir, scandirat, dirent)
SCANDIR(scandir64, scandirat64, dirent64)

EXPORT int chdir(const char *path)
{
	struct shim_path buf;
	int ret = SHIM_NEXT(chdir)(shim_path(path, SHIM_LIST, &buf));

	shim_cwd_changed();
	return ret;
}

EXPORT int fchdir(int dir)
{
	int ret = SHIM_NEXT(fchdir)(dir);

	shim_cwd_changed();
	return ret;
}

EXPORT char *getcwd(char *out, size_t size)
{
	char *cwd = SHIM_NEXT(getcwd)(out, size), path[PATH_MAX];

	if (cwd) {
		shim_name(cwd);
		return cwd;
	}
	/* Room for the name, and not for where it is. */
	if (errno != ERANGE || !out || !SHIM_NEXT(getcwd)(path, sizeof(path)))
		return NULL;
	if (shim_name(path) >= size) {
		errno = ERANGE;
		return NULL;
	}
	return strcpy(out, path);
}

EXPORT char *__getcwd_chk(char *out, size_t size, size_t room)
{
	if (size > room)
		return SHIM_NEXT(__getcwd_chk)(out, size, room);
	return getcwd(out, size);
}

EXPORT char *get_current_dir_name(void)
{
	char *cwd = SHIM_NEXT(get_current_dir_name)();

	if (cwd)
		shim_name(cwd);
	return cwd;
}

/* ---- glob: libc's, with our functions ---------------------------------------------- */

static void *glob_opendir(const char *path)
{
	return opendir(path);
}

static void glob_closedir(void *dir)
{
	closedir(dir);
}

#define GLOB(name, type, entry, read, stat_fn, lstat_fn) \
	static struct entry *name##_readdir(void *dir) \
	{ \
		return read(dir); \
	} \
	EXPORT int name(const char *pattern, int flags, int (*fail)(const char *, int), \
			type *g) \
	{ \
		bool own = flags & GLOB_ALTDIRFUNC; \
		int ret; \
\
		if (!own) { \
			flags |= GLOB_ALTDIRFUNC; \
			g->gl_opendir = glob_opendir; \
			g->gl_closedir = glob_closedir; \
			g->gl_readdir = name##_readdir; \
			g->gl_stat = stat_fn; \
			g->gl_lstat = lstat_fn; \
		} \
		ret = SHIM_NEXT(name)(pattern, flags, fail, g); \
		if (!own) \
			g->gl_flags &= ~GLOB_ALTDIRFUNC; \
		return ret; \
	}
GLOB(glob, glob_t, dirent, readdir, stat, lstat)
GLOB(glob64, glob64_t, dirent64, readdir64, stat64, lstat64)
