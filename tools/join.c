/* SPDX-License-Identifier: BSD-2-Clause */
/* The kernel lets two processes of an ordinary user access each other's memory only if they
 * are in one user namespace. So an `anyrdma run` joins the one that another has made, if
 * there is one: its owner, in the namespace around it, may. */
#include "files/tree.h"
#include "show.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/nsfs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* Two that begin at once wait for each other, but never long. */
enum { LOCK_WAIT_MS = 500, SEEN = 64 };

struct search {
	int proc;
	uid_t uid;
	gid_t gid;
	struct stat ours;
	ino_t seen[SEEN]; /* namespaces that are not the right ones */
	unsigned n;
};

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static bool maps_self(int proc, const char *pid, const char *map, unsigned id)
{
	unsigned inside, outside, count;
	char path[NAME_MAX + 64], text[128];
	int fd;
	ssize_t n;

	snprintf(path, sizeof(path), "%s/%s", pid, map);
	fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = 0;
	return sscanf(text, "%u %u %u", &inside, &outside, &count) == 3 && inside == id &&
	       outside == id && count == 1;
}

static bool is_child_of_ours(const struct search *s, int ns)
{
	struct stat st;
	uid_t owner;
	bool is;
	int fd;

	if (ioctl(ns, NS_GET_OWNER_UID, &owner) || owner != s->uid)
		return false;
	fd = ioctl(ns, NS_GET_PARENT);
	if (fd < 0)
		return false;
	is = !fstat(fd, &st) && same_file(&st, &s->ours);
	close(fd);
	return is;
}

/* Was it made for a tree of ours? That of a container is left alone. */
static bool has_tree(int proc, const char *pid)
{
	char path[NAME_MAX + 64];

	snprintf(path, sizeof(path), "%s/root/sys/" FILES_STATE "/stamp", pid);
	return !faccessat(proc, path, F_OK, 0);
}

static bool is_new(struct search *s, const struct stat *st)
{
	for (unsigned i = 0; i < s->n; i++)
		if (s->seen[i] == st->st_ino)
			return false;
	return true;
}

/* A descriptor of the process's user namespace, if it is one to join; or -1. */
static int look_at(struct search *s, const char *pid)
{
	char path[NAME_MAX + 64];
	struct stat st;
	int ns;

	if (fstatat(s->proc, pid, &st, 0) || st.st_uid != s->uid)
		return -1;
	snprintf(path, sizeof(path), "%s/ns/user", pid);
	ns = openat(s->proc, path, O_RDONLY | O_CLOEXEC);
	if (ns < 0)
		return -1;
	if (!fstat(ns, &st) && !same_file(&st, &s->ours) && is_new(s, &st)) {
		if (is_child_of_ours(s, ns) && maps_self(s->proc, pid, "uid_map", s->uid) &&
		    maps_self(s->proc, pid, "gid_map", s->gid)) {
			/* Another process in it may tell more. */
			if (has_tree(s->proc, pid))
				return ns;
		} else if (s->n < SEEN) {
			s->seen[s->n++] = st.st_ino;
		}
	}
	close(ns);
	return -1;
}

int join_find(void)
{
	struct search s = { .uid = geteuid(), .gid = getegid() };
	DIR *dir = opendir("/proc");
	struct dirent *e;
	int ns = -1;

	if (!dir)
		return -1;
	s.proc = dirfd(dir);
	if (!stat("/proc/self/ns/user", &s.ours))
		while (ns < 0 && (e = readdir(dir)))
			if (*e->d_name >= '1' && *e->d_name <= '9')
				ns = look_at(&s, e->d_name);
	closedir(dir);
	return ns;
}

/* Waits for the one that has the name, if it is of this user: it closes its socket. */
static void wait_for(const struct sockaddr_un *sa, socklen_t len)
{
	const struct timeval limit = { .tv_usec = LOCK_WAIT_MS * 1000 };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct ucred peer;
	socklen_t size = sizeof(peer);
	char c;

	if (fd < 0)
		return;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (!connect(fd, (const struct sockaddr *)sa, len) &&
	    !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) && peer.uid == geteuid())
		(void)!read(fd, &c, 1);
	close(fd);
}

int join_lock(void)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len;

	if (fd < 0)
		return -1;
	len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			  (size_t)snprintf(sa.sun_path + 1, sizeof(sa.sun_path) - 1,
					   "anyrdma/1/files/%u", geteuid()));
	for (int tries = 0; tries < 3; tries++) {
		if (!bind(fd, (struct sockaddr *)&sa, len)) {
			listen(fd, 64);
			return fd;
		}
		if (errno != EADDRINUSE)
			break;
		wait_for(&sa, len);
	}
	close(fd);
	return -1;
}
