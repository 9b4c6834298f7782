/* SPDX-License-Identifier: BSD-2-Clause */
/* Which process may have a link, the segment, and the messages that pass it on. */
#include "shm/greeting.h"

#include "base/fdset.h"
#include "base/sys.h"
#include "shm/fdpass.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* ---- the user -------------------------------------------------------------------- */

static unsigned overflow_id = 65534; /* the kernel's default */

static void overflow_uid_read(void)
{
	FILE *f = fopen("/proc/sys/kernel/overflowuid", "re");
	unsigned uid;

	if (f && fscanf(f, "%u", &uid) == 1)
		overflow_id = uid;
	if (f)
		fclose(f);
}

/* The kernel shows this id for every user that our user namespace does not know. */
static uid_t overflow_uid(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, overflow_uid_read);
	return overflow_id;
}

bool greeting_same_user(int fd)
{
	struct ucred c;
	socklen_t len = sizeof(c);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &len) && c.uid == geteuid() &&
	       c.uid != overflow_uid();
}

pid_t greeting_pid(int fd)
{
	struct ucred c;
	socklen_t len = sizeof(c);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &len) ? 0 : c.pid;
}

bool greeting_still_same_user(int fd)
{
	unsigned real, effective, saved, fs, me = geteuid();
	struct ucred c = { 0 };
	socklen_t len = sizeof(c);
	char path[64], line[256];
	bool same = false;
	FILE *f;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &len))
		return false;
	if (!c.pid)
		return true;
	snprintf(path, sizeof(path), "/proc/%d/status", c.pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Uid: %u %u %u %u", &real, &effective, &saved, &fs) == 4)
			same = real == me && effective == me && saved == me && fs == me;
	if (f)
		fclose(f);
	return same;
}

/* ---- the segment ----------------------------------------------------------------- */

struct link_segment *link_segment_map(int fd)
{
	struct link_segment *seg = mmap(NULL, sizeof(*seg), PROT_READ | PROT_WRITE,
					fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED,
					fd, 0);

	if (seg == MAP_FAILED)
		return NULL;
	madvise(seg, sizeof(*seg), MADV_DONTFORK);
	return seg;
}

int link_segment_new(struct link_segment **seg)
{
	int fd = memfd_create("anyrdma link", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int ret;

	if (fd < 0)
		return -errno;
	ret = fdset_resize(fd, sizeof(**seg));
	if (!ret && fcntl(fd, F_ADD_SEALS, SEALS))
		ret = -errno;
	if (!ret && !(*seg = link_segment_map(fd)))
		ret = -ENOMEM;
	if (!ret)
		return fd;
	close(fd);
	return ret;
}

struct link_segment *link_segment_accept(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS); /* -1: a file that cannot be sealed */
	struct stat st;

	if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) ||
	    st.st_size != sizeof(struct link_segment))
		return NULL;
	return link_segment_map(fd);
}

/* ---- waking ---------------------------------------------------------------------- */

/* Reading the link cannot block, whatever file it is. The path of a file begins with '/',
 * so none can pass for an eventfd. */
int greeting_wake_accept(int fd)
{
	char path[64], what[64] = { 0 };
	int own;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (readlink(path, what, sizeof(what) - 1) < 0)
		return -errno;
	if (strcmp(what, "anon_inode:[eventfd]"))
		return -EPROTO;
	own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return own < 0 ? -errno : own;
}

int greeting_wake_new(int *give)
{
	int own = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);

	if (own < 0)
		return -errno;
	*give = fcntl(own, F_DUPFD_CLOEXEC, 0);
	if (*give >= 0)
		return own;
	close(own);
	return -EMFILE;
}

int greeting_wake(int fd)
{
	static const uint64_t none;

	return sys_write(fd, &none, sizeof(none)) < 0 ? -errno : 0;
}

/* ---- greetings ------------------------------------------------------------------- */

int greeting_send(int fd, const struct link_id *id, enum greeting_status status,
		  const struct grant_hello *grant, const int *give, unsigned n)
{
	struct greeting g = {
		.magic = GREETING_MAGIC,
		.version = GREETING_VERSION,
		.status = status,
		.size = sizeof(struct link_segment),
		.id = *id,
		.grant = *grant,
	};

	return fdpass_send(fd, &g, sizeof(g), give, n);
}

int greeting_recv(int fd, struct greeting *g, int *fds)
{
	int n = fdpass_recv(fd, g, sizeof(*g), fds, GREETING_FDS);

	if (n < 0 || (g->magic == GREETING_MAGIC && g->version == GREETING_VERSION &&
		      g->size == sizeof(struct link_segment)))
		return n;
	for (int i = 0; i < n; i++)
		fdpass_discard(fds[i]);
	return -EPROTO;
}
