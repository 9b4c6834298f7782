/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages with descriptors over the unix sockets by which processes that share memory
 * find each other, for tests that stand in for such a process. */
#ifndef ANYRDMA_TESTS_FDPASSING_H
#define ANYRDMA_TESTS_FDPASSING_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { FDPASSING_MAX = 4 }; /* descriptors of a message: more than is ever expected */

/* The abstract name under which the process of a rendezvous port listens; returns its
 * length. */
static inline socklen_t fdpassing_name(unsigned port, struct sockaddr_un *un)
{
	int n;

	*un = (struct sockaddr_un){ .sun_family = AF_UNIX };
	n = snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1, "anyrdma/1/qp/%u", port);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* sendmsg() with n descriptors, at most FDPASSING_MAX. */
static inline ssize_t fdpassing_send(int sock, const void *msg, size_t len, const int *fds,
				     unsigned n, int flags)
{
	struct iovec iov = { (void *)(uintptr_t)msg, len };
	union {
		struct cmsghdr h;
		char buf[CMSG_SPACE(FDPASSING_MAX * sizeof(int))];
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
	return sendmsg(sock, &out, MSG_NOSIGNAL | flags);
}

#endif
