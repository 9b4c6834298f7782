/* SPDX-License-Identifier: BSD-2-Clause */
/* For fuzz targets whose peer passes descriptors over a unix socket. */
#ifndef ANYRDMA_FUZZ_PASSING_H
#define ANYRDMA_FUZZ_PASSING_H

#include "must.h"
#include "shm/greeting.h"

#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { PASS_MAX = 3 }; /* descriptors of a message: more than is ever expected */

/* Of the process behind a rendezvous port. */
static inline socklen_t pass_name_of(unsigned port, struct sockaddr_un *un)
{
	int n;

	*un = (struct sockaddr_un){ .sun_family = AF_UNIX };
	n = snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1, "anyrdma/1/qp/%u", port);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* A socket that the library has closed is no fault. */
static void pass_message(int sock, const void *msg, size_t len, const int *fds, unsigned n)
{
	struct iovec iov = { (void *)(uintptr_t)msg, len };
	union {
		struct cmsghdr h;
		char buf[CMSG_SPACE(PASS_MAX * sizeof(int))];
	} c = { .buf = { 0 } };
	struct msghdr out = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (n) {
		out.msg_control = c.buf;
		out.msg_controllen = CMSG_SPACE(n * sizeof(int));
		c.h.cmsg_level = SOL_SOCKET;
		c.h.cmsg_type = SCM_RIGHTS;
		c.h.cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(&c.h), fds, n * sizeof(int));
	}
	if (sendmsg(sock, &out, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		MUST(errno == EPIPE || errno == ECONNRESET || errno == EAGAIN);
}

/* `good`, the process's memory, memory without seals, a pipe, an eventfd, a socket, a
 * device, a directory. */
static int pass_fd_of_kind(uint8_t kind, int good)
{
	static int end[2] = { -1, -1 }, ends[2], fd[7];

	if (end[0] < 0) {
		MUST(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, end));
		fd[0] = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
		fd[1] = memfd_create("fuzz", MFD_CLOEXEC);
		MUST(!pipe(ends));
		fd[2] = ends[1];
		fd[3] = eventfd(1, EFD_CLOEXEC);
		fd[4] = end[0];
		fd[5] = open("/dev/null", O_RDWR | O_CLOEXEC);
		fd[6] = open("/", O_PATH | O_CLOEXEC);
	}
	return kind % 8 ? fd[kind % 8 - 1] : good;
}

#endif
