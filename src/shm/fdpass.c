/* SPDX-License-Identifier: BSD-2-Clause */
#include "shm/fdpass.h"

#include "base/fdset.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/state.h"
#include "base/thread.h"
#include "shm/greeting.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	KERNEL_MAX = 253, /* descriptors of one message: SCM_MAX_FD */
	DRAIN_TURNS = 64,
};

union control {
	struct cmsghdr h;
	char buf[CMSG_SPACE(KERNEL_MAX * sizeof(int))];
};

static struct {
	struct lock lock; /* innermost */
	unsigned threads;
	unsigned waiting;
	int fd[FDPASS_WAITING_MAX];
} closer PROCESS_STATE = { .lock = LOCK_INIT };

/* ---- closing --------------------------------------------------------------------- */

static void *close_all(void *arg)
{
	int fd = -1;

	(void)arg;
	for (;;) {
		if (fd >= 0)
			close(fd);
		lock_get(&closer.lock);
		fd = closer.waiting ? closer.fd[--closer.waiting] : -1;
		closer.threads -= fd < 0;
		lock_put(&closer.lock);
		if (fd < 0)
			return NULL;
	}
}

/* If no thread can be started, the descriptor waits for the next one. */
static void close_by_thread(int fd)
{
	bool start, kept;

	lock_get(&closer.lock);
	kept = closer.waiting < FDPASS_WAITING_MAX;
	if (kept)
		closer.fd[closer.waiting++] = fd;
	start = closer.threads < FDPASS_STUCK_MAX;
	closer.threads += start;
	lock_put(&closer.lock);
	if (!kept)
		log_warn("descriptor %d stays open: too many that cannot be closed", fd);
	if (!start || !thread_start("anyrdma-close", close_all, NULL))
		return;
	log_warn("no thread to close descriptors of other processes");
	lock_get(&closer.lock);
	closer.threads--;
	lock_put(&closer.lock);
}

bool fdpass_busy(void)
{
	bool busy;

	lock_get(&closer.lock);
	busy = closer.threads >= FDPASS_STUCK_MAX;
	lock_put(&closer.lock);
	return busy;
}

bool fdpass_full(void)
{
	bool full;

	lock_get(&closer.lock);
	/* The other half is for descriptors and sockets that were received before. */
	full = closer.waiting > FDPASS_WAITING_MAX / 2;
	lock_put(&closer.lock);
	return full;
}

/* Memory and eventfds: closing them cannot block. Neither check calls into the file's own
 * file system. Closing a pipe can block: its lock may be held by a process that writes to
 * it from memory whose pages cannot be loaded. */
static bool closes_at_once(int fd)
{
	int wake;

	if (fcntl(fd, F_GET_SEALS) >= 0)
		return true;
	wake = greeting_wake_accept(fd);
	if (wake >= 0)
		close(wake);
	return wake >= 0;
}

void fdpass_discard(int fd)
{
	if (fd < 0)
		return;
	if (closes_at_once(fd)) {
		close(fd);
		return;
	}
	log_info("another process has passed a descriptor that is no memory and no "
		 "eventfd");
	close_by_thread(fd);
}

/* Does the next message have descriptors? MSG_PEEK without a control buffer receives
 * none. */
static bool descriptors_next(int sock, char *junk, size_t len, ssize_t *got)
{
	struct iovec iov = { junk, len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	*got = recvmsg(sock, &msg, MSG_PEEK | MSG_DONTWAIT);
	return *got > 0 && msg.msg_flags & MSG_CTRUNC;
}

/* Receives messages without descriptors until one has some. */
static bool has_descriptors(int sock)
{
	char junk[4096];
	ssize_t got;

	for (int i = 0; i < DRAIN_TURNS; i++) {
		if (descriptors_next(sock, junk, sizeof(junk), &got))
			return true;
		if (got <= 0)
			return false;
		recv(sock, junk, (size_t)got, MSG_DONTWAIT);
	}
	return true;
}

/* After the shutdown no more messages come, and the other side sees the end. */
void fdpass_close(int sock)
{
	if (sock < 0)
		return;
	shutdown(sock, SHUT_RDWR);
	if (!has_descriptors(sock)) {
		fdset_close(sock);
		return;
	}
	fdset_forget(sock);
	close_by_thread(sock);
}

/* ---- messages -------------------------------------------------------------------- */

int fdpass_send(int sock, const void *data, size_t len, const int *fds, unsigned n)
{
	struct iovec iov = { (void *)(uintptr_t)data, len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	union control c;
	ssize_t sent;

	if (n > FDPASS_MAX)
		return -EINVAL;
	if (n) {
		memset(&c, 0, sizeof(c));
		msg.msg_control = c.buf;
		msg.msg_controllen = CMSG_SPACE(n * sizeof(int));
		c.h.cmsg_level = SOL_SOCKET;
		c.h.cmsg_type = SCM_RIGHTS;
		c.h.cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(&c.h), fds, n * sizeof(int));
	}
	sent = sendmsg(sock, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (sent < 0)
		return -errno;
	return (size_t)sent == len ? 0 : -EIO; /* a message that fits is never split */
}

static unsigned collect_fds(struct msghdr *msg, int *fds)
{
	unsigned n = 0;

	for (struct cmsghdr *h = CMSG_FIRSTHDR(msg); h; h = CMSG_NXTHDR(msg, h)) {
		size_t bytes = h->cmsg_len - CMSG_LEN(0);

		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		memcpy(fds + n, CMSG_DATA(h), bytes); /* union control holds no more */
		n += (unsigned)(bytes / sizeof(int));
	}
	return n;
}

static void discard_all(const int *fds, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		fdpass_discard(fds[i]);
}

/* Descriptors that do not fit the control buffer would be closed by the kernel in this
 * thread, which may block. So the buffer has room for as many as one message can have. */
int fdpass_recv(int sock, void *data, size_t len, int *fds, unsigned max)
{
	struct iovec iov = { data, len };
	union control c;
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = c.buf,
			      .msg_controllen = sizeof(c.buf) };
	int all[KERNEL_MAX + 1]; /* as many as fit the rounded size of the buffer */
	unsigned n;
	ssize_t got;
	char byte;

	if (fdpass_busy() && descriptors_next(sock, &byte, 1, &got))
		return -EPROTO;
	got = recvmsg(sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (got < 0)
		return errno == EINTR ? -EAGAIN : -errno;
	n = collect_fds(&msg, all);
	if ((size_t)got != len || msg.msg_flags & MSG_CTRUNC || n > max) {
		discard_all(all, n);
		return !got			      ? -ECONNRESET :
		       (size_t)got == len && n <= max ? -ENOBUFS :
							-EPROTO;
	}
	memcpy(fds, all, n * sizeof(int));
	return (int)n;
}
