/* SPDX-License-Identifier: BSD-2-Clause */
/* Descriptors that go from process to process over a unix socket (SCM_RIGHTS). The only
 * place where one that another process has made comes in. */
#ifndef ANYRDMA_SHM_FDPASS_H
#define ANYRDMA_SHM_FDPASS_H

#include <stdbool.h>
#include <stddef.h>

enum {
	FDPASS_MAX = 2, /* descriptors of one message */
	/* Threads that close some. While all of them are at it, none is received any more, */
	FDPASS_STUCK_MAX = 8,
	FDPASS_WAITING_MAX = 2048, /* and so many can wait for them. */
};

/* One message with n descriptors, which stay the caller's. Never blocks. 0 or -errno. */
int fdpass_send(int sock, const void *msg, size_t len, const int *fds, unsigned n);

/* One message of exactly len bytes with at most max descriptors, into fds; those are the
 * caller's, to be dropped by fdpass_discard() once used. Never blocks.
 *
 * The number of descriptors; -EAGAIN: nothing has come; -ECONNRESET: the other side has
 * closed; -EPROTO: another length, or more descriptors than max; -ENOBUFS: msg has it, but
 * there was no number for a descriptor here. But for -EAGAIN and -ENOBUFS it is the end of the
 * socket, which is for fdpass_close(): what was not taken is still in it. */
int fdpass_recv(int sock, void *msg, size_t len, int *fds, unsigned max);

/* Closes a descriptor that was received. close() of a file of a file system in user space,
 * or of a socket that lingers, waits for others, so unknown ones are closed by a thread of
 * their own. */
void fdpass_discard(int fd);
/* Closes a socket of fdset.h, and for all who have a duplicate. What others have put into it
 * is closed with it, and that may take as long. */
void fdpass_close(int sock);
/* No descriptor can be received now: a message that has one is -EPROTO. */
bool fdpass_busy(void);
/* No more sockets should be accepted: they could not be closed. */
bool fdpass_full(void);

#endif
