/* SPDX-License-Identifier: BSD-2-Clause */
/* What carries the messages of a connection until its stream is open, and opens that.
 * conn.c says what a connection does; a wire moves frames (tcp/mpa.h) and tells what
 * it hears by the functions of conn.c (user.h).
 *
 * Everything here is called with the id's lock held, in both directions. */
#ifndef ANYRDMA_CM_USER_WIRE_H
#define ANYRDMA_CM_USER_WIRE_H

#include "base/lock.h"
#include "tcp/mpa.h"

struct user_id;

/* What is to be done at the listener once the child's lock is dropped. */
enum user_after { AFTER_NONE, AFTER_OFFER, AFTER_FORGET, AFTER_LISTENER };

struct user_wire {
	/* Active: brings the request (nego->out) to the peer. May be called again
	 * after user_failed() with ECONNREFUSED. */
	void (*call)(struct user_id *u);
	/* Active: the reply has been heard. Opens the stream. 0 or -errno. */
	int (*open)(struct user_id *u);
	/* Passive: opens the stream, whose first word is the reply. 0, or -errno: the
	 * peer was told that it is rejected. */
	int (*accept)(struct user_id *u, const uint8_t *rep, size_t len);
	/* Passive: the answer is this frame, a reject, and no more. The wire ends by
	 * itself, with the id's timer if it needs one. */
	void (*reject)(struct user_id *u, const uint8_t *rej, size_t len);
	/* Passive: the application is slow. Tells the peer that its request is being
	 * looked at by one of ours. 0 or -errno. */
	int (*hold)(struct user_id *u);
	/* Lets go without a word, but for what reject() has begun. */
	void (*close)(struct user_id *u);
	/* The id's timer was reject()'s. */
	void (*expire)(struct user_id *u);
	/* Hears what is there and was not told yet. */
	enum user_after (*look)(struct user_id *u);
};

extern const struct user_wire user_wire_tcp, user_wire_link;

#endif
