/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the TCP wire share: wire_tcp.c the wire of one id,
 * wire_tcp_listener.c the accept queue and connections without a whole request,
 * wire_tcp_linger.c sockets after a reject. Nobody else includes this. */
#ifndef ANYRDMA_CM_USER_WIRE_TCP_H
#define ANYRDMA_CM_USER_WIRE_TCP_H

#include "cm/user/user.h"

/* An accepted socket, non-blocking and in the set of our descriptors. */
struct tcp_socket {
	int fd;
	bool reserve; /* it was accepted with the reserve descriptor */
};

/* user_incoming.from is a struct tcp_socket. */
extern const struct user_wire_ops user_wire_tcp;

/* A frame that is being read. */
struct tcp_frame {
	size_t len;
	uint8_t data[MPA_FRAME_MAX];
};

/* Reads no byte past the frame: what follows a reply belongs to the stream. Length of
 * the frame, and *f, which points into in->data; -EAGAIN; -EPROTO; -ENOTCONN for the
 * end; -errno. */
int tcp_frame_read(int fd, struct tcp_frame *in, struct mpa_frame *f);

/* Closes a socket. The reserve descriptor is kept as the reserve. */
void tcp_socket_close(struct tcp_socket s);

/* After a reject was sent and the socket was shut down: reads to the end of the stream,
 * for a second at most, so that no reset destroys the reject. False: it could not start,
 * the socket is still the caller's. */
bool tcp_linger(struct tcp_socket s);

/* user_wire_ops.listen and .unlisten */
int tcp_listen(struct user_id *u, struct user_wire_listener **out);
void tcp_unlisten(struct user_wire_listener *l);

#endif
