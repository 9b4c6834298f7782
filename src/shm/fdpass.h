/* SPDX-License-Identifier: BSD-2-Clause */
/* Descriptors that go from process to process over a unix socket (SCM_RIGHTS). The only
 * place where one that another process has made comes in. */
#ifndef ANYRDMA_SHM_FDPASS_H
#define ANYRDMA_SHM_FDPASS_H

#include <stddef.h>

enum {
	FDPASS_MAX = 2, /* descriptors of one message */
	/* Closings that do not return. With so many no descriptor is received any more. */
	FDPASS_STUCK_MAX = 8,
};

/* One message with n descriptors, which stay the caller's. Never blocks. 0 or -errno. */
int fdpass_send(int sock, const void *msg, size_t len, const int *fds, unsigned n);

/* One message of exactly len bytes with at most max descriptors, into fds; those are the
 * caller's, to be dropped by fdpass_discard() once used. What comes beyond max is closed by
 * the kernel, before this process sees it. Never blocks.
 *
 * The number of descriptors; -EAGAIN: nothing has come; -ECONNRESET: the other side has
 * closed; -EPROTO: another length; -ENOBUFS: msg has it, but descriptors are missing, because
 * there were more than max or there is no number for them here. */
int fdpass_recv(int sock, void *msg, size_t len, int *fds, unsigned max);

/* Closes a descriptor that was received. close() of a file of a file system in user space,
 * or of a socket that lingers, waits for others, so unknown ones are closed by a thread of
 * their own. */
void fdpass_discard(int fd);

#endif
