/* SPDX-License-Identifier: BSD-2-Clause */
/* The way without namespaces: the tree is a folder of this user's, which a library in
 * front of libc (src/shim) puts in the place of the real ones. Runs with the same settings
 * share a folder. */
#include "base/log.h"
#include "files/dir.h"
#include "files/slots.h"
#include "files/tree.h"
#include "show.h"
#include "tool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIBRARY "libanyrdma-files.so"

/* Trees of a user: of so many settings and network namespaces. */
enum { TREES = 32 };

/* ---- the folder of this user --------------------------------------------------------- */

/* Nobody else can have made it, nor write to it. */
static int own_folder(const char *base, char *path, size_t size)
{
	struct stat st;
	int fd;

	if ((size_t)snprintf(path, size, "%s/anyrdma-%u", base, geteuid()) >= size)
		return -ENAMETOOLONG;
	if (mkdir(path, 0700) && errno != EEXIST)
		return -errno;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) || st.st_uid != geteuid() || st.st_mode & 077) {
		close(fd);
		return -EPERM;
	}
	return fd;
}

static int remove_all(int at, const char *name)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return unlinkat(at, name, 0) ? -errno : 0;
	}
	while ((e = readdir(dir))) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (unlinkat(dirfd(dir), e->d_name, 0))
			remove_all(dirfd(dir), e->d_name);
	}
	closedir(dir);
	return unlinkat(at, name, AT_REMOVEDIR) ? -errno : 0;
}

/* A process that has the device open keeps a shared lock. */
static bool in_use(int top, const char *name)
{
	char path[NAME_MAX + 64];
	bool used;
	int fd;

	snprintf(path, sizeof(path), "%s/" FILES_STATE "/use", name);
	fd = openat(top, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return false;
	used = flock(fd, LOCK_EX | LOCK_NB) != 0;
	close(fd);
	return used;
}

/* Room for one more: the one that was not used for the longest time goes. */
static int make_room(int top)
{
	char oldest[NAME_MAX + 1] = "";
	int n = 0, fd = openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct timespec when = { 0 };
	struct dirent *e;
	struct stat st;

	if (!dir)
		return -errno;
	while ((e = readdir(dir))) {
		if (e->d_name[0] == '.' || fstatat(top, e->d_name, &st, AT_SYMLINK_NOFOLLOW))
			continue;
		n++;
		if ((!*oldest || st.st_mtim.tv_sec < when.tv_sec) && !in_use(top, e->d_name)) {
			strcpy(oldest, e->d_name);
			when = st.st_mtim;
		}
	}
	closedir(dir);
	if (n < TREES)
		return 0;
	return *oldest ? remove_all(top, oldest) : -ENOSPC;
}

/* ---- the tree ------------------------------------------------------------------------ */

/* A link to each thing of a folder that is not ours to fill. */
static int link_others(int root, const char *name, const char *path)
{
	DIR *dir = opendir(path);
	int to, ret = 0;
	struct dirent *e;

	if (!dir)
		return 0;
	to = dir_make(root, name);
	while (to >= 0 && !ret && (e = readdir(dir))) {
		char target[PATH_MAX], full[PATH_MAX];
		struct stat st;

		if (e->d_name[0] == '.' ||
		    !fstatat(to, e->d_name, &st, AT_SYMLINK_NOFOLLOW))
			continue;
		snprintf(full, sizeof(full), "%s/%s", path, e->d_name);
		if (realpath(full, target))
			ret = symlink_put(to, e->d_name, target);
	}
	closedir(dir);
	if (to < 0)
		return to;
	close(to);
	return ret;
}

static int put_nodes(int root, const struct show *s)
{
	int ret = 0, dir = dir_make(root, "dev/infiniband");
	char name[32];

	if (dir < 0)
		return dir;
	for (unsigned i = 0; i < s->n && !ret; i++) {
		snprintf(name, sizeof(name), "uverbs%u", s->dev[i].uverbs);
		ret = symlink_put(dir, name, "/dev/null");
	}
	if (!ret && access("/dev/infiniband/rdma_cm", F_OK))
		ret = symlink_put(dir, "rdma_cm", "/dev/null");
	close(dir);
	return ret ? ret : link_others(root, "dev/infiniband", "/dev/infiniband");
}

static int write_tree(int root, const struct show *s)
{
	int ret = files_tree_write(root, s->dev, s->n);

	if (!ret)
		ret = put_nodes(root, s);
	if (!ret)
		ret = link_others(root, "class/infiniband", "/sys/class/infiniband");
	if (!ret)
		ret = link_others(root, "class/infiniband_verbs",
				  "/sys/class/infiniband_verbs");
	if (!ret)
		ret = link_others(root, "class", "/sys/class");
	return ret ? ret : files_tree_stamp(root, s->stamp);
}

static uint64_t hash(const char *text)
{
	uint64_t h = 0xcbf29ce484222325ull;

	while (*text)
		h = (h ^ (uint8_t)*text++) * 0x100000001b3ull;
	return h;
}

/* Makes the tree below the folder, or brings it up to date, unless processes that use it
 * do: one run at a time. */
static int tree_in(int top, const struct show *s, char *name, size_t size)
{
	mode_t mask = umask(022);
	int ret = 0, root = -1, lock = -1;

	snprintf(name, size, "%016llx", (unsigned long long)hash(s->stamp));
	if (flock(top, LOCK_EX))
		ret = -errno;
	if (!ret && faccessat(top, name, F_OK, 0))
		ret = make_room(top);
	if (!ret)
		root = dir_make(top, name);
	if (root >= 0 && !in_use(top, name)) {
		/* Not there yet: nobody knows the tree. */
		lock = files_tree_lock(root);
		for (unsigned i = 0; i < s->n; i++)
			files_slots_forget(root, i);
		ret = write_tree(root, s);
	}
	if (root >= 0)
		futimens(root, NULL);
	if (lock >= 0)
		close(lock);
	if (root >= 0)
		close(root);
	umask(mask);
	return !ret && root < 0 ? root : ret;
}

static int tree_below(const char *base, const struct show *s, char *path, size_t size)
{
	char real[PATH_MAX], name[32];
	int ret, top;

	/* The library compares names: there is no link in it. */
	if (!base || *base != '/' || !realpath(base, real))
		return -ENOENT;
	top = own_folder(real, path, size);
	if (top < 0)
		return top;
	ret = tree_in(top, s, name, sizeof(name));
	close(top);
	if (!ret)
		snprintf(path + strlen(path), size - strlen(path), "/%s", name);
	return ret;
}

/* ---- the environment ----------------------------------------------------------------- */

bool preload_put(const char *library)
{
	const char *old = getenv("LD_PRELOAD");
	char *value;
	bool done;

	if (!old || !*old)
		return !setenv("LD_PRELOAD", library, 1);
	if (strstr(old, library))
		return true;
	if (asprintf(&value, "%s:%s", old, library) < 0)
		return false;
	done = !setenv("LD_PRELOAD", value, 1);
	free(value);
	return done;
}

static bool find_library(struct show *s, char *path, size_t size)
{
	char dir[PATH_MAX];

	if (!libs_find(dir, sizeof(dir)))
		return show_why(s, SHOW_PRELOAD, "our libraries are not found");
	if ((size_t)snprintf(path, size, "%s/" LIBRARY, dir) >= size || access(path, R_OK))
		return show_why(s, SHOW_PRELOAD, "%s: %s", path, strerror(errno));
	if (strpbrk(path, ": "))
		return show_why(s, SHOW_PRELOAD,
				"%s: LD_PRELOAD cannot name it: a colon or a space", path);
	return true;
}

bool preload_show(struct show *s)
{
	const char *const bases[] = { getenv("XDG_RUNTIME_DIR"), "/dev/shm", "/tmp" };
	char library[PATH_MAX], path[PATH_MAX];
	int ret = -ENOENT;

	if (!find_library(s, library, sizeof(library)))
		return false;
	for (unsigned i = 0; i < sizeof(bases) / sizeof(bases[0]) && ret; i++) {
		ret = tree_below(bases[i], s, path, sizeof(path) - 64);
		if (ret && bases[i])
			log_info("no files in %s: %s", bases[i], strerror(-ret));
	}
	if (ret)
		return show_why(s, SHOW_PRELOAD, "no folder for the files: %s",
				strerror(-ret));
	if (!preload_put(library) || setenv("ANYRDMA_TREE", path, 1))
		return show_why(s, SHOW_PRELOAD, "environment: %s", strerror(errno));
	return true;
}
