/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the TCP wire share: wire_tcp.c the wire of one id,
 * wire_tcp_listener.c the accept queue and connections without a whole request,
 * wire_tcp_linger.c sockets after a reject. Nobody else includes this. */
#ifndef ANYRDMA_CM_USER_WIRE_TCP_H
#define ANYRDMA_CM_USER_WIRE_TCP_H

#include "cm/user/user.h"

/* A socket, non-blocking and in the set of our descriptors. */
struct tcp_socket {
	int fd;
	bool reserve; /* it was accepted with the reserve descriptor */
};

struct tcp_listener;

/* A wire. One that was accepted is `pending`, without an id, until its request is whole:
 * the lock of the tcp_listener guards it then. From attach() on, and on the active side,
 * it is the lock of the id. Freed by tcp_wire_done(). */
struct tcp_wire {
	struct user_wire head; /* .id: counted while `watched`; NULL while pending. Only
				* the loop thread changes it once lf is in the loop */
	struct tcp_socket s;
	struct loop_fd lf;
	bool watched;	 /* lf is in the loop */
	bool key_sent;	 /* passive: the key of the reply has been sent ahead */
	size_t sent;	 /* active: bytes of the request */
	size_t in_len;	 /* the request or the reply, as far as it has come */
	uint8_t in[MPA_FRAME_MAX];

	/* wire_tcp_listener.c */
	struct tcp_listener *l; /* while pending: counted */
	struct list pending;	/* linked while pending */
	uint8_t origin;
	struct sockaddr_storage peer;
	uint64_t since; /* ns: accepted */
};

/* user_incoming.from is a struct tcp_wire. */
extern const struct user_wire_ops user_wire_tcp;

struct tcp_wire *tcp_wire_new(struct tcp_socket s);
/* The loop has it for these events from now on, or -errno. */
int tcp_wire_watch(struct tcp_wire *w, uint32_t events);
/* Takes it out of the loop and frees it. The caller owns the socket, and may use w in
 * the loop thread until its callback returns if w was watched. */
struct tcp_socket tcp_wire_end(struct tcp_wire *w);
/* Reads no byte past the frame: what follows a reply belongs to the stream. Length of
 * the frame, and *f, which points into w->in; -EAGAIN; -EPROTO; -ENOTCONN for the end;
 * -errno. */
int tcp_wire_read(struct tcp_wire *w, struct mpa_frame *f);

/* Loop thread, no lock held: a wire without an id is readable. */
void tcp_pending_ready(struct tcp_wire *w);
void tcp_listener_put(struct tcp_listener *l);

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
