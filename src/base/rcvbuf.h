/* SPDX-License-Identifier: BSD-2-Clause */
/* How much of what has come a socket keeps until it is received. */
#ifndef ANYRDMA_BASE_RCVBUF_H
#define ANYRDMA_BASE_RCVBUF_H

#include <sys/socket.h>

/* Asks for so many bytes. Who has CAP_NET_ADMIN gets them; others get at most what
 * net.core.rmem_max says. Linux doubles it, and counts what its buffers take: about 2300 bytes
 * for a datagram of 1024, 8500 for one of 4096. */
static inline void rcvbuf_set(int fd, int bytes)
{
	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)))
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
}

#endif
