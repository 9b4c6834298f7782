/* SPDX-License-Identifier: BSD-2-Clause */
/* Passing descriptors over a unix socket (SCM_RIGHTS). Only here does this process
 * receive descriptors that another process has made. */
#ifndef ANYRDMA_SHM_FDPASS_H
#define ANYRDMA_SHM_FDPASS_H

#include <stdbool.h>
#include <stddef.h>

enum {
	FDPASS_MAX = 2,	      /* descriptors of one message */
	FDPASS_STUCK_MAX = 8, /* threads that close descriptors: see fdpass_busy() */
	FDPASS_WAITING_MAX = 2048, /* descriptors that wait for such a thread */
};

/* Sends one message with n descriptors, which stay the caller's. Never blocks. 0 or
 * -errno. */
int fdpass_send(int sock, const void *msg, size_t len, const int *fds, unsigned n);

/* Receives one message of exactly `len` bytes with at most `max` descriptors. The caller
 * owns the descriptors in fds and gives them to fdpass_discard() after use. Never blocks.
 *
 * Returns the number of descriptors. -EAGAIN: no message has come. -ECONNRESET: the other
 * side has closed. -EPROTO: the message has another length or more descriptors. -ENOBUFS:
 * msg is filled, but this process has no free number for a descriptor. After all errors
 * but -EAGAIN and -ENOBUFS the caller closes the socket by fdpass_close(), as messages
 * may be left in it. */
int fdpass_recv(int sock, void *msg, size_t len, int *fds, unsigned max);

/* Closes a descriptor that was received. close() of a file of a file system in user
 * space, or of a socket with SO_LINGER, may block; so files of unknown kinds are closed
 * by a thread of their own. */
void fdpass_discard(int fd);
/* Shuts down and closes a socket of fdset.h. Descriptors in messages that were not
 * received are closed with it, which may block as well; then a thread closes the
 * socket. */
void fdpass_close(int sock);
/* All FDPASS_STUCK_MAX threads are in use: a message with a descriptor is -EPROTO now. */
bool fdpass_busy(void);
/* No more sockets should be accepted: it may not be possible to close them. */
bool fdpass_full(void);

#endif
