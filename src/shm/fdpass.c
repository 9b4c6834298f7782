/* SPDX-License-Identifier: BSD-2-Clause */
#include "shm/fdpass.h"

#include "base/log.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union control {
	struct cmsghdr h;
	char buf[CMSG_SPACE(FDPASS_MAX * sizeof(int))];
};

static atomic_uint stuck; /* threads that close one */

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
	return (size_t)sent == len ? 0 : -EIO; /* a socket that is not full takes it whole */
}

static unsigned take_fds(struct msghdr *msg, int *fds)
{
	unsigned n = 0;

	for (struct cmsghdr *h = CMSG_FIRSTHDR(msg); h; h = CMSG_NXTHDR(msg, h)) {
		size_t bytes = h->cmsg_len - CMSG_LEN(0);

		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		memcpy(fds + n, CMSG_DATA(h), bytes); /* all fit: msg_controllen */
		n += (unsigned)(bytes / sizeof(int));
	}
	return n;
}

/* The buffer for descriptors has room for max exactly: CMSG_SPACE() rounds up, and the kernel
 * fills what it finds. */
int fdpass_recv(int sock, void *data, size_t len, int *fds, unsigned max)
{
	struct iovec iov = { data, len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	union control c;
	unsigned n = 0;
	ssize_t got;

	if (max > FDPASS_MAX)
		return -EINVAL;
	if (max && atomic_load(&stuck) < FDPASS_STUCK_MAX) {
		msg.msg_control = c.buf;
		msg.msg_controllen = CMSG_LEN(max * sizeof(int));
	}
	got = recvmsg(sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (got < 0)
		return errno == EINTR ? -EAGAIN : -errno;
	if (msg.msg_control)
		n = take_fds(&msg, fds);
	if ((size_t)got == len && !(msg.msg_flags & MSG_CTRUNC))
		return (int)n;
	for (unsigned i = 0; i < n; i++)
		fdpass_discard(fds[i]);
	return !got ? -ECONNRESET : (size_t)got == len ? -ENOBUFS : -EPROTO;
}

static void *close_it(void *arg)
{
	close((int)(intptr_t)arg);
	atomic_fetch_sub(&stuck, 1);
	return NULL;
}

/* Memory and pipes: nobody is asked when they are closed. Neither question touches the file. */
static bool is_harmless(int fd)
{
	return fcntl(fd, F_GET_SEALS) >= 0 || fcntl(fd, F_GETPIPE_SZ) >= 0;
}

void fdpass_discard(int fd)
{
	if (fd < 0)
		return;
	if (is_harmless(fd)) {
		close(fd);
		return;
	}
	log_info("another process has handed over a descriptor that is neither memory nor a pipe");
	atomic_fetch_add(&stuck, 1);
	/* Without a thread it stays open, and counts. */
	if (thread_start("anyrdma-close", close_it, (void *)(intptr_t)fd))
		log_warn("no thread to close it");
}
