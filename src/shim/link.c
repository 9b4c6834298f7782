/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls that tell where a path leads. */
#include "shim/shim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

EXPORT ssize_t __readlink_chk(const char *path, char *out, size_t size, size_t room);
EXPORT ssize_t __readlinkat_chk(int dir, const char *path, char *out, size_t size,
				size_t room);
EXPORT char *__realpath_chk(const char *path, char *out, size_t room);

/* Where a link leads may be in the tree: /proc/self/fd, /proc/self/cwd. */
static ssize_t named(const char *target, size_t n, char *out, size_t size)
{
	char text[PATH_MAX + 1];

	memcpy(text, target, n);
	text[n] = 0;
	n = shim_name(text);
	if (n > size)
		n = size;
	memcpy(out, text, n);
	return (ssize_t)n;
}

EXPORT ssize_t readlink(const char *path, char *out, size_t size)
{
	struct shim_path buf;
	char target[PATH_MAX];
	ssize_t n;

	if (size > PATH_MAX)
		size = PATH_MAX;
	n = SHIM_NEXT(readlink)(shim_path(path, SHIM_FILE, &buf), target, sizeof(target));
	return n < 0 || !size ? SHIM_NEXT(readlink)(shim_path(path, SHIM_FILE, &buf), out,
						    size) :
				named(target, (size_t)n, out, size);
}

EXPORT ssize_t readlinkat(int dir, const char *path, char *out, size_t size)
{
	struct shim_path buf;
	char target[PATH_MAX];
	ssize_t n;

	if (size > PATH_MAX)
		size = PATH_MAX;
	path = shim_path_at(dir, path, SHIM_FILE, &buf);
	n = SHIM_NEXT(readlinkat)(dir, path, target, sizeof(target));
	return n < 0 || !size ? SHIM_NEXT(readlinkat)(dir, path, out, size) :
				named(target, (size_t)n, out, size);
}

EXPORT ssize_t __readlink_chk(const char *path, char *out, size_t size, size_t room)
{
	if (size > room)
		return SHIM_NEXT(__readlink_chk)(path, out, size, room);
	return readlink(path, out, size);
}

EXPORT ssize_t __readlinkat_chk(int dir, const char *path, char *out, size_t size,
				size_t room)
{
	if (size > room)
		return SHIM_NEXT(__readlinkat_chk)(dir, path, out, size, room);
	return readlinkat(dir, path, out, size);
}

EXPORT char *realpath(const char *path, char *out)
{
	struct shim_path buf;
	char found[PATH_MAX];

	/* A node is no link, though /dev/null stands for it. */
	if (shim_is_node(path)) {
		strcpy(found, path);
	} else {
		if (!SHIM_NEXT(realpath)(shim_path(path, SHIM_FILE, &buf), found))
			return NULL;
		shim_name(found);
	}
	return out ? strcpy(out, found) : strdup(found);
}

EXPORT char *__realpath_chk(const char *path, char *out, size_t room)
{
	if (room < PATH_MAX)
		return SHIM_NEXT(__realpath_chk)(path, out, room);
	return realpath(path, out);
}

EXPORT char *canonicalize_file_name(const char *path)
{
	return realpath(path, NULL);
}
