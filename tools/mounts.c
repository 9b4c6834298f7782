/* SPDX-License-Identifier: BSD-2-Clause */
/* The tree is made in a tmpfs beside what is there: every other folder of /sys/class and
 * /sys/devices is bound into it, and every real RDMA device is linked. Then its parts are
 * bound over /sys/class, /sys/devices and /dev/infiniband. */
#include "files/dir.h"
#include "files/tree.h"
#include "show.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

struct maker {
	int root; /* of our tmpfs */
	int class, devices, dev, infiniband; /* what was there; infiniband: -1: nothing */
	const char *what;
};

static int fail_at(struct maker *m, const char *what, int err)
{
	m->what = what;
	return err;
}

/* What is mounted below goes nowhere else. A mount of our own is made a slave: what
 * the host mounts later still arrives here. */
static int keep_here(const char *path)
{
	char at[PATH_MAX];
	char *slash;

	snprintf(at, sizeof(at), "%s", path);
	while (mount(NULL, *at ? at : "/", NULL, MS_SLAVE, NULL)) {
		if (errno != EINVAL || !*at)
			return -errno;
		slash = strrchr(at, '/');
		*slash = 0;
	}
	return 0;
}

static int bind_at(int from, const char *old, int to, const char *name)
{
	char source[64 + NAME_MAX], target[64 + NAME_MAX];

	snprintf(source, sizeof(source), "/proc/self/fd/%d/%s", from, old);
	snprintf(target, sizeof(target), "/proc/self/fd/%d/%s", to, name);
	return mount(source, target, NULL, MS_BIND | MS_REC, NULL) ? -errno : 0;
}

/* A file or folder to bind something to. */
static int mount_point(int dir, const char *name, mode_t mode)
{
	int fd;

	if (S_ISDIR(mode))
		return mkdirat(dir, name, 0755) && errno != EEXIST ? -errno : 0;
	fd = openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0444);
	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

/* The same thing under the same name. What has gone meanwhile is left out. */
static int keep(int from, int to, const char *name)
{
	char target[PATH_MAX];
	struct stat st;
	ssize_t n;
	int ret;

	if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT ? 0 : -errno;
	if (S_ISLNK(st.st_mode)) {
		n = readlinkat(from, name, target, sizeof(target) - 1);
		if (n < 0)
			return errno == ENOENT ? 0 : -errno;
		target[n] = 0;
		return symlink_put(to, name, target);
	}
	ret = mount_point(to, name, st.st_mode);
	if (!ret)
		ret = bind_at(from, name, to, name);
	return ret == -ENOENT ? 0 : ret;
}

/* Which names of a folder are ours to fill. */
typedef bool name_fn(int dir, const char *name);

static bool ours_in_class(int dir, const char *name)
{
	(void)dir;
	return !strcmp(name, "infiniband") || !strcmp(name, "infiniband_verbs");
}

/* Of an outer `anyrdma run` with other settings. */
static bool ours_in_devices(int dir, const char *name)
{
	(void)dir;
	return !strncmp(name, FILES_PCI, strlen(FILES_PCI));
}

static bool ours_in_rdma_class(int dir, const char *name)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(dir, name, target, sizeof(target) - 1);

	target[n < 0 ? 0 : n] = 0;
	return n < 0 || strstr(target, "/" FILES_PCI);
}

static bool ours_in_dev(int dir, const char *name)
{
	(void)dir;
	return !strcmp(name, "infiniband");
}

static bool ours_in_infiniband(int dir, const char *name)
{
	struct stat st;

	return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) || st.st_rdev == makedev(1, 3);
}

static int keep_others(int from, int to, name_fn *ours)
{
	int ret = 0, fd = openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!dir) {
		ret = -errno;
		if (fd >= 0)
			close(fd);
		return ret;
	}
	while (!ret && (e = readdir(dir)))
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") &&
		    !ours(from, e->d_name))
			ret = keep(from, to, e->d_name);
	closedir(dir);
	return ret;
}

static int keep_others_in(int from, int root, const char *name, name_fn *ours)
{
	int ret, to = dir_make(root, name);

	if (to < 0)
		return to;
	ret = keep_others(from, to, ours);
	close(to);
	return ret;
}

/* Real RDMA devices beside ours. */
static int keep_rdma(struct maker *m, const char *class)
{
	int ret, from = openat(m->class, class, O_PATH | O_DIRECTORY | O_CLOEXEC);
	char name[64];

	if (from < 0)
		return 0;
	snprintf(name, sizeof(name), "class/%s", class);
	ret = keep_others_in(from, m->root, name, ours_in_rdma_class);
	close(from);
	return ret;
}

static int put_node(int dir, const char *name)
{
	int ret = mount_point(dir, name, S_IFREG);
	char target[64 + NAME_MAX];

	if (ret)
		return ret;
	snprintf(target, sizeof(target), "/proc/self/fd/%d/%s", dir, name);
	return mount("/dev/null", target, NULL, MS_BIND, NULL) ? -errno : 0;
}

static int put_nodes(const struct show *s, int dir)
{
	struct stat st;
	char name[32];
	int ret = 0;

	for (unsigned i = 0; i < s->n && !ret; i++) {
		snprintf(name, sizeof(name), "uverbs%u", s->dev[i].uverbs);
		ret = put_node(dir, name);
	}
	/* The kernel's own stays. */
	if (!ret && fstatat(dir, "rdma_cm", &st, AT_SYMLINK_NOFOLLOW))
		ret = put_node(dir, "rdma_cm");
	return ret;
}

static int make_dev(struct maker *m, const struct show *s)
{
	int ret = 0, dir = dir_make(m->root, "dev/infiniband");

	if (dir < 0)
		return fail_at(m, "a folder for /dev/infiniband", dir);
	if (m->infiniband >= 0)
		ret = keep_others(m->infiniband, dir, ours_in_infiniband);
	else
		ret = keep_others_in(m->dev, m->root, "dev", ours_in_dev);
	if (!ret)
		ret = put_nodes(s, dir);
	close(dir);
	return ret ? fail_at(m, "binding /dev", ret) : 0;
}

static int make_sys(struct maker *m, const struct show *s)
{
	int ret = files_tree_write(m->root, s->dev, s->n);

	if (ret)
		return fail_at(m, "writing the files", ret);
	ret = keep_rdma(m, "infiniband");
	if (!ret)
		ret = keep_rdma(m, "infiniband_verbs");
	if (!ret)
		ret = keep_others_in(m->class, m->root, "class", ours_in_class);
	if (ret)
		return fail_at(m, "binding /sys/class", ret);
	ret = keep_others_in(m->devices, m->root, "devices", ours_in_devices);
	if (ret)
		return fail_at(m, "binding /sys/devices", ret);
	ret = files_tree_stamp(m->root, s->stamp);
	return ret ? fail_at(m, "writing the stamp", ret) : 0;
}

static int cover(struct maker *m, const char *part, const char *path)
{
	char source[64];

	snprintf(source, sizeof(source), "/proc/self/fd/%d/%s", m->root, part);
	return mount(source, path, NULL, MS_BIND | MS_REC, NULL) ?
		       fail_at(m, path, -errno) :
		       0;
}

/* Now the program sees it. */
static int cover_all(struct maker *m)
{
	int ret = cover(m, "devices", "/sys/devices");

	if (!ret && m->infiniband >= 0)
		ret = cover(m, "dev/infiniband", "/dev/infiniband");
	else if (!ret)
		ret = cover(m, "dev", "/dev");
	/* Last: the tmpfs itself is mounted there until now. */
	return ret ? ret : cover(m, "class", "/sys/class");
}

static int mount_tmpfs(void)
{
	return mount("anyrdma", "/sys/class", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
		     "mode=755,size=64m") ?
		       -errno :
		       0;
}

static int folder(const char *path)
{
	return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static int keep_all_here(struct maker *m)
{
	static const char *const path[] = { "/sys/class", "/sys/devices", "/dev",
					    "/dev/infiniband" };
	int ret = 0;

	for (unsigned i = 0; i < 4 && !ret; i++)
		if (i < 3 || m->infiniband >= 0)
			ret = keep_here(path[i]);
	return ret;
}

/* Where /dev has no folder for RDMA devices, it gets one if we may: else all of /dev
 * would have to be covered, and what comes there later were not seen. */
static void open_old(struct maker *m, bool own)
{
	m->class = folder("/sys/class");
	m->devices = folder("/sys/devices");
	m->dev = folder("/dev");
	m->infiniband = folder("/dev/infiniband");
	if (m->infiniband < 0 && !own && !mkdir("/dev/infiniband", 0755))
		m->infiniband = folder("/dev/infiniband");
}

static int make_all(struct maker *m, const struct show *s, bool own)
{
	int ret = own ? 0 : keep_all_here(m);

	if (ret)
		return fail_at(m, "keeping mounts here", ret);
	ret = mount_tmpfs();
	if (ret)
		return fail_at(m, "mounting a tmpfs", ret);
	m->root = folder("/sys/class");
	ret = m->root < 0 ? -errno : make_sys(m, s);
	if (!ret)
		ret = make_dev(m, s);
	if (!ret)
		ret = cover_all(m);
	if (ret) /* whatever is below it goes, too */
		umount2("/sys/class", MNT_DETACH);
	return ret;
}

static void close_all(const struct maker *m)
{
	const int fd[] = { m->root, m->class, m->devices, m->dev, m->infiniband };

	for (unsigned i = 0; i < sizeof(fd) / sizeof(fd[0]); i++)
		if (fd[i] >= 0)
			close(fd[i]);
}

/* The working folder may be covered now: the one of its name takes its place. */
static void enter_again(const char *cwd)
{
	if (*cwd && (!strncmp(cwd, "/sys", 4) || !strncmp(cwd, "/dev", 4)) && chdir(cwd))
		fprintf(stderr, "anyrdma: %s: %s\n", cwd, strerror(errno));
}

int mounts_make(const struct show *s, bool own, const char **what)
{
	struct maker m = { .root = -1 };
	mode_t mask = umask(0);
	char cwd[PATH_MAX];
	int ret;

	if (!getcwd(cwd, sizeof(cwd)) || cwd[0] != '/')
		cwd[0] = 0;
	open_old(&m, own);
	if (m.class < 0 || m.devices < 0 || m.dev < 0)
		ret = fail_at(&m, "/sys/class, /sys/devices and /dev", -ENOENT);
	else
		ret = make_all(&m, s, own);
	close_all(&m);
	umask(mask);
	enter_again(cwd);
	*what = m.what;
	return ret;
}

int mounts_try(const char **what)
{
	*what = "mounting a tmpfs";
	return mount_tmpfs();
}
