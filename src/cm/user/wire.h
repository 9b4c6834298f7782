/* SPDX-License-Identifier: BSD-2-Clause */
/* A wire carries the messages of a connection until its stream is open, and opens the
 * stream: MPA frames (tcp/mpa.h) over a TCP connection (wire_tcp.c) or over the memory
 * that two processes of one host share (wire_shm.c). A wire of datagrams carries the
 * exchange of UD ids (sidr.h) over UDP (wire_udp.c), and opens no stream. choose.c has the
 * list of the wires and is the only file that names them. A wire knows no other wire.
 *
 * Rules for every member:
 *  - It never blocks.
 *  - The id's lock is held, in the thread of the application or in the loop thread.
 *    Exceptions are named at the member.
 *  - It may call the functions at the end of this file, and the device. It calls no
 *    function that takes the lock of an id or of a listener.
 *  - Frames and other arguments belong to the caller and are valid during the call.
 *
 * An id has at most one wire at a time: id->wire, allocated by the wire in connect() or
 * attach(). The wire ends, and id->wire is NULL, after open(), accept(), reject() and
 * close(), with or without success. Callbacks of the wire that are on their way then
 * find, under the id's lock, that id->wire is not theirs any more. */
#ifndef ANYRDMA_CM_USER_WIRE_H
#define ANYRDMA_CM_USER_WIRE_H

#include "base/lock.h"
#include "cm/user/sidr.h"
#include "tcp/mpa.h"

#include <stdbool.h>
#include <sys/socket.h>

struct user_id;
struct user_wire_ops;

/* First member of the struct that a wire has per id. */
struct user_wire {
	const struct user_wire_ops *ops;
	struct user_id *id; /* counted by the wire while callbacks may come */
};

/* First member of the struct that a wire has per listener. */
struct user_wire_listener {
	const struct user_wire_ops *ops;
	struct user_id *id; /* counted by the wire until its last callback */
};

/* What a listener has to do about a child after the child's lock is released. */
enum user_todo {
	TODO_NOTHING,
	TODO_DELIVER, /* the child may be delivered now */
	TODO_DROP,    /* the child has ended: destroy it if it was not delivered */
};

struct user_wire_ops {
	const char *name;
	bool datagram; /* for ids of type UD, and for them alone */

	/* ---- active side ----------------------------------------------------------------- */

	/* Whether this wire may reach the id's destination at all. */
	bool (*can_connect)(const struct user_id *id);
	/* Brings the request id->req to the peer. The result is reported during the call
	 * or later, by one of: user_req_sent() and then user_got_reply();
	 * user_wire_failed(); user_connect_failed(); user_unreachable();
	 * user_foreign(). Datagrams: user_sidr_sent() and then user_sidr_reply(),
	 * user_sidr_refused() or user_unreachable(). */
	void (*connect)(struct user_id *id);
	/* The reply has come. Opens the stream: 0 and id->stream, or -errno. Streams
	 * alone. */
	int (*open)(struct user_id *id);
	/* Sends the request again; reports as connect() does. Datagrams alone. */
	void (*repeat)(struct user_id *id);

	/* ---- passive side ---------------------------------------------------------------- */

	/* The child takes over what its request came on (user_incoming.from). 0; or
	 * -errno, and `from` is still the caller's. The listener's lock is held too. */
	int (*attach)(struct user_id *child, void *from);
	/* The receipt of the request is acknowledged, because the application is slow
	 * (the MRA of the InfiniBand CM). May be called several times. 0 or -errno. */
	int (*ack_request)(struct user_id *id);
	/* Opens the stream, and sends the reply as its first bytes: 0 and id->stream; or
	 * -errno, and the peer was rejected. Datagrams: sends the reply, also to those
	 * who repeat the request later: 0. */
	int (*accept)(struct user_id *id, const uint8_t *rep, size_t len);
	/* Sends a reject. len 0: there is none, the peer sees the end of the wire. */
	void (*reject)(struct user_id *id, const uint8_t *rej, size_t len);

	/* ---- both sides ------------------------------------------------------------------ */

	/* Ends the wire without a message. */
	void (*close)(struct user_id *id);
	/* Before a timeout counts: handles what has arrived and was not handled yet, or
	 * sets the id's timer so that it is handled first. */
	enum user_todo (*poll)(struct user_id *id);

	/* ---- listener -------------------------------------------------------------------- */

	/* Starts to listen on the id's port. 0 and *out, or 0 and NULL when this wire is
	 * not used, or -errno. Requests go to user_listener_request(). The id's state
	 * becomes LISTEN before its lock is released. */
	int (*listen)(struct user_id *id, struct user_wire_listener **out);
	/* The end of it, from any thread, NO lock held. No request comes after the
	 * return, and the port is free. The wire frees *l. */
	void (*unlisten)(struct user_wire_listener *l);
};

/* ---- choose.c: which wire -------------------------------------------------------- */

enum { USER_WIRES = 3 };

/* Why a wire has not brought the request to a listener. */
enum user_wire_failure {
	WIRE_NO_LISTENER, /* nobody can be reached like this: the next wire is tried */
	WIRE_PEER_ENDED,  /* the peer ended without the request: this wire again */
	WIRE_BUSY,	  /* the listener has too many requests: again in a while */
};

/* Active: tries the wires that may reach the destination, in order of preference. */
void user_wire_connect(struct user_id *u);
/* Active: a wire reports that it failed, in state CONNECTING or AWAIT_REP. */
void user_wire_failed(struct user_id *u, enum user_wire_failure why);
/* Ends the id's wire, if there is one. */
void user_wire_close(struct user_id *u);

/* Listens on all wires. 0, or -errno of the one that has to work. */
int user_wires_listen(struct user_id *u);
/* Ends what user_wires_listen() started. No lock held. */
void user_wires_unlisten(struct user_wire_listener *l[USER_WIRES]);

/* ---- active.c: what a wire reports of a connect(). The id's lock is held --------- */

/* The request has left. acked: it is known that a process of ours has it. */
void user_req_sent(struct user_id *u, bool acked);
/* Later: now it is known. Its reply may take long. */
void user_req_acked(struct user_id *u);
/* The reply. */
void user_got_reply(struct user_id *u, const struct mpa_frame *f);
/* The end, err by its meaning: ECONNREFUSED nobody listens; ECONNRESET, ENOTCONN,
 * EPIPE the peer ended without a reply; others: it cannot be reached. */
void user_connect_failed(struct user_id *u, int err);
void user_unreachable(struct user_id *u, int err);
/* What listens there is no program of ours. */
void user_foreign(struct user_id *u, const char *why);

/* ---- lookup.c: the same for datagrams. The id's lock is held --------------------- */

/* The request has left for the first time. */
void user_sidr_sent(struct user_id *u);
/* A process of ours has it; its answer takes time. */
void user_sidr_wait(struct user_id *u);
/* Its answer. */
void user_sidr_reply(struct user_id *u, const struct sidr_rep *r);
/* Nobody has the port. That may change: another repeat may follow. */
void user_sidr_refused(struct user_id *u);

/* ---- accept.c: the passive side. The id's lock is held --------------------------- */

/* The peer ended before it got a reply. */
enum user_todo user_request_cancelled(struct user_id *u, const char *why);

/* ---- listener.c ------------------------------------------------------------------ */

/* A request, whole, as a wire hands it to the listener. */
struct user_incoming {
	const struct user_wire_ops *wire;
	void *from;			  /* for wire->attach() */
	struct sockaddr_storage src, dst; /* addresses of this host and of the peer */
	const struct mpa_frame *frame;	  /* datagrams: NULL */
	const struct sidr_req *sidr;	  /* datagrams: for this listener's port */
	uint16_t reject;		  /* not 0: reject it with this reason */
};

/* Whether the listener can take one more request: 0, -ENOENT (it does not listen any
 * more), -EBUSY. No lock held. */
int user_listener_room(struct user_id *lis);
/* Makes a child of the request: it becomes a CONNECT_REQUEST now or when the backlog has
 * room, or it is rejected. 0: the child has `from`. -errno: `from` is the caller's, no
 * message was sent (-ENOENT as above, -ENOMEM, or attach()'s). No lock held. */
int user_listener_request(struct user_id *lis, const struct user_incoming *in);
/* Carries out what a function above, or a timeout, asks for. No lock held. */
void user_listener_do(struct user_id *child, enum user_todo todo);

#endif
