/* SPDX-License-Identifier: BSD-2-Clause */
#include "files/dir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What replaces a file is made under this name first. */
#define FRESH ".new"

static int dir_one(int at, const char *name)
{
	int fd;

	if (mkdirat(at, name, 0755) && errno != EEXIST)
		return -errno;
	fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int dir_make(int at, const char *path)
{
	int fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), next;

	if (fd >= 0 || errno != ENOENT)
		return fd < 0 ? -errno : fd;
	while (*path) {
		size_t len = strcspn(path, "/");
		char name[NAME_MAX + 1];

		if (len > NAME_MAX)
			return -ENAMETOOLONG;
		memcpy(name, path, len);
		name[len] = 0;
		next = dir_one(fd < 0 ? at : fd, name);
		if (fd >= 0)
			close(fd);
		if (next < 0)
			return next;
		fd = next;
		path += len + (path[len] == '/');
	}
	return fd;
}

int file_get(int dir, const char *path, char *text, size_t size)
{
	int fd = openat(dir, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, text, size - 1);
	if (n < 0)
		n = -errno;
	else
		text[n] = 0;
	close(fd);
	return (int)n;
}

static int file_new(int dir, const char *name, const char *text)
{
	size_t len = strlen(text);
	int ret = 0, fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);

	if (fd < 0)
		return -errno;
	/* Whatever the umask is, which is the application's. */
	if (fchmod(fd, 0444))
		ret = -errno;
	else if (write(fd, text, len) != (ssize_t)len)
		ret = -ENOSPC;
	close(fd);
	return ret;
}

static int put_in_place(int dir, const char *name)
{
	if (!renameat(dir, FRESH, dir, name)) {
		/* Two names of one file: rename() has done nothing. */
		unlinkat(dir, FRESH, 0);
		return 0;
	}
	return -errno;
}

int file_put(int dir, const char *name, const char *text)
{
	char old[512];
	int ret = file_new(dir, name, text);

	if (ret != -EEXIST)
		return ret;
	if (file_get(dir, name, old, sizeof(old)) >= 0 && !strcmp(old, text))
		return 0;
	unlinkat(dir, FRESH, 0);
	ret = file_new(dir, FRESH, text);
	return ret ? ret : put_in_place(dir, name);
}

int file_printf(int dir, const char *name, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return file_put(dir, name, text);
}

int symlink_put(int dir, const char *name, const char *target)
{
	char old[PATH_MAX];
	ssize_t n;

	if (!symlinkat(target, dir, name))
		return 0;
	if (errno != EEXIST)
		return -errno;
	n = readlinkat(dir, name, old, sizeof(old));
	if (n == (ssize_t)strlen(target) && !memcmp(old, target, (size_t)n))
		return 0;
	unlinkat(dir, FRESH, 0);
	return symlinkat(target, dir, FRESH) ? -errno : put_in_place(dir, name);
}

int file_share(int from, const char *old, int dir, const char *name)
{
	struct stat a, b;

	if (!linkat(from, old, dir, name, 0))
		return 0;
	if (errno != EEXIST)
		return -errno;
	if (!fstatat(from, old, &a, 0) && !fstatat(dir, name, &b, AT_SYMLINK_NOFOLLOW) &&
	    a.st_ino == b.st_ino)
		return 0;
	unlinkat(dir, FRESH, 0);
	return linkat(from, old, dir, FRESH, 0) ? -errno : put_in_place(dir, name);
}
