/* SPDX-License-Identifier: BSD-2-Clause */
/* How the two ends of a connection find each other, and what they say while it moves.
 *
 * The accepting end publishes a unix socket whose name holds the connection's two addresses, in
 * the process that uses it, once it has been used a little. The connecting end, used a little
 * more, connects to that name: refused at once where the peer is not ours. Both look at the uid of
 * the other. The unix socket stays, for control messages. The connecting end listens
 * for rsockets (one listener per process) and says where; the accepting end connects. */
#ifndef ANYRDMA_PRELOAD_MOVE_H
#define ANYRDMA_PRELOAD_MOVE_H

#include "preload/conn.h"

enum rail_step {
	RAIL_PUBLISHED,	 /* passive: the name is there */
	RAIL_ASKING,	 /* active: connected to the name; passive: it has come */
	RAIL_CONNECTING, /* passive: rconnect */
	RAIL_HELLO,	 /* passive: waits for READY */
	RAIL_READY,
	RAIL_BACK, /* coming back to TCP */
	RAIL_OVER, /* nobody's but the service's */
};

/* Made by the thread that begins the move, ended by the service thread, freed by the last who
 * holds it. */
struct rail {
	atomic_int refs;
	_Atomic(enum rail_step) step;
	struct conn *conn; /* held until RAIL_OVER */
	bool passive;
	int listener; /* the published name, or -1 */
	int ctl;      /* SOCK_SEQPACKET to the peer, or -1 */
	int rs;	      /* or -1 */
	uint8_t token[16];
	pthread_mutex_t ctl_lock; /* reading ctl, and what it says: */
	unsigned port;		  /* of the peer's listener of rsockets, or 0 */
	bool ready, agreed;
	atomic_bool asked_back, left_all;
	atomic_bool peer_gone; /* ctl has ended */
	atomic_bool peer_fin;  /* what it has sent cannot be returned */
	_Atomic(uint64_t)
		peer_end; /* bytes that it has sent by the rsocket, or RAIL_OPEN */
	uint8_t *left;	  /* what the peer had not read, for TCP */
	size_t left_len, left_room, left_done;
	/* The service thread's: */
	bool ask_sent, left_sent;
	uint8_t unread[8192]; /* has come and not been read: for the peer */
	size_t unread_len;
	uint8_t *kept; /* what could not be returned */
	size_t kept_len, kept_room;
	int kept_error; /* and what comes after it */
	bool returned;	/* something has been */
	struct rail *next, *prev;
	struct rail *next_taken; /* it may be posted anew meanwhile */
	struct rail *next_posted;
	bool posted, listed; /* service.lock */
	atomic_bool closing;
};

#define RAIL_OPEN UINT64_MAX
#define RAIL_UNSWITCHED (UINT64_MAX - 1)

/* The connection has been used: begin, where it is time to. */
void move_consider(struct conn *c, int fd);

/* Takes connections back to TCP; waits for that, two seconds at most. False: it did not work. */
void move_back_begin(struct conn *c);
bool move_back_wait(struct conn *c);
bool move_back(struct conn *c);

/* Back, and never again. */
void move_pin(struct conn *c);

struct rail *rail_get(struct conn *c);
void rail_put(struct rail *r);

/* The conn's locks are held; it knows nothing of the rail afterwards. */
void rail_leave(struct rail *r);

void rail_say_consent(struct rail *r);
void rail_say_end(struct rail *r, uint64_t bytes);
void rail_say_fin(struct rail *r, uint64_t bytes);

/* Reads what has come over ctl, by any thread. */
void rail_hear(struct rail *r);

/* For move.c, ctl.c and service.c: */
enum ctl_type {
	CTL_ASK = 1, /* value: port of the listener; data: token */
	CTL_READY,   /* the rsocket is there */
	CTL_CONSENT, /* my reader watches the rsocket */
	CTL_END,     /* value: bytes that I have sent by it, or RAIL_UNSWITCHED */
	CTL_BACK,    /* I go back to TCP, go too */
	CTL_LEFT,    /* data: bytes of yours that I have not read */
	CTL_LEFT_ALL,
	CTL_FIN, /* before CTL_END: TCP ends with it, return nothing */
};
#define CTL_DATA 32768

int ctl_send(struct rail *r, enum ctl_type type, uint64_t value, const void *data,
	     size_t len);
void service_post(struct rail *r);
bool service_start(void);
void service_child(void);
void service_flush(void);
void back_begin(struct rail *r);
void back_step(struct rail *r);
int own_fd(int fd);

/* Child of fork(): closes what was the parent's; nothing moves in it until it starts anew. */
void move_child(void);

/* Before the process ends or is replaced: what was written leaves. */
void move_flush(void);

#endif
