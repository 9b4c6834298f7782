/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared memory as the carrier of a stream: the frames of all streams between two processes
 * of one host go through the rings of one link (shm/link.h).
 *
 * Files: carrier.c life of a stream, the table; tx.c sending; rx.c receiving; small.c small
 * sends; pull.c large sends, which the receiver fetches; direct.c access to the peer's memory
 * without the ring; rendezvous.c streams for QPs known by GID and number; cm.c connections of
 * the CM. link.h lists the files of the link itself. */
#ifndef ANYRDMA_SHM_SHM_H
#define ANYRDMA_SHM_SHM_H

#include "rc/stream.h"

struct link;
struct link_cq;
struct rec_link;
struct shm_attempt;
struct shm_kept;

/* How far a connection of the CM is. */
enum shm_cm {
	SHM_CM_NONE,	 /* the stream is not the CM's, or is open */
	SHM_CM_LOOKUP,	 /* active: no link yet */
	SHM_CM_REQ_SENT, /* active: waits for the reply */
	SHM_CM_REQ_RCVD, /* passive: has to reply */
};

/* Fields are guarded by the stream's lock unless they say otherwise. */
struct shm_stream {
	struct stream s;
	struct link *l;	    /* NULL: not on a link yet */
	struct link_cq *cq; /* while its QP's pollers may receive; match.lock */
	uint32_t slot;	    /* ours */
	uint32_t peer;	    /* the peer's; valid once known */
	uint64_t peer_share_id; /* stream.share_id of the peer's end; valid once known */
	enum shm_cm cm;
	bool req_put;	    /* active: the request is in the ring, */
	uint32_t req_end;   /* which has this position behind it */
	bool cached;	    /* cm.c: an earlier connection by this name led to this link */
	bool asks;	    /* ours is the side that sends OPEN and READY */
	bool answered;	    /* OPEN has been answered */
	bool half;	    /* OPENED was sent, READY has not come (rx_lock) */
	bool known;	    /* there is a slot of the peer's to close */
	bool started;	    /* both sides want it */
	bool opened;	    /* what we send is for the peer's QP */
	bool announced;	    /* the peer's QP has heard of us, or will: LINK_ANNOUNCE */
	bool closed_in;	    /* the peer has closed */
	bool closed_out;    /* we have */
	bool over;	    /* the peer will have closed when what waits is received, with: */
	int over_err;
	bool starved;	    /* something was not sent for want of room */
	bool asked;	    /* an ack was asked for before this pass */
	bool moved;	    /* something came in this pass */
	bool fresh;	    /* in this pass a poller received sends alone (rx_lock) */
	struct list owing;  /* link.owing (rx_lock) */
	struct list blocked; /* link.blocked (tx_lock) */
	/* Unreliable, while rx.wait: the record of the frame that waits to begin, or
	 * NULL, and those behind it. */
	struct shm_kept *held;
	struct list kept;
	size_t kept_bytes;
	struct shm_attempt *attempt; /* rendezvous.c: waits for it to be opened (match.lock) */
	int open_err;		     /* rendezvous.c: what came back */
	struct loop_work open_work, end_work;
};

static inline struct shm_stream *to_shm(struct stream *s)
{
	return container_of(s, struct shm_stream, s);
}

extern const struct rc_carrier shm_carrier;
extern const struct rc_rendezvous shm_rendezvous;

/* ---- carrier.c ---- */

/* A stream without a slot, and with an entry of its own in the shared table; or NULL. */
struct shm_stream *shm_new(const struct stream_param *p);
/* Drops a stream that nobody else knows and that has no slot. */
void shm_drop(struct stream *s);
/* stream_start(); a stream that a QP has, or that the CM has `accepted`, is something of the
 * peer that the application has accepted. */
int shm_start(struct stream *s, bool accepted);
/* A stream that was never started goes, and its slot. Loop thread, no lock. */
void shm_end(struct stream *s);
/* What a link tells a stream; rx_lock is held. */
void shm_closed(struct stream *s, int err);	    /* the peer closed */
void shm_broken(struct stream *s, const char *why); /* the link is dead */
void shm_announced(struct stream *s);

/* ---- tx.c ---- */

void shm_send(struct stream *s) REQUIRES(s->lock);
bool shm_post_locked(struct stream *s);
/* There is room again. No lock but rx_lock. */
void shm_unblocked(struct stream *s);

/* ---- rx.c ---- */

/* One record of the peer's for s; -EPROTO breaks the stream. -EAGAIN: the stream is busy, ask
 * again (pollers only). rx_lock is held. */
int shm_receive(struct stream *s, const void *rec, uint32_t bytes, bool by_thread);
/* Acknowledges, sends; true: look again. rx_lock is held. */
bool shm_after(struct stream *s, bool by_thread);
/* rc_carrier.receive: goes on with a message that waited for a receive. */
bool shm_resume(struct stream *s) REQUIRES(s->lock);
/* The peer has ended, unless something waits that came before. */
void shm_peer_over(struct stream *s, int err) REQUIRES(s->lock);
/* Frees what is kept behind a message that waits. */
void shm_kept_drop(struct shm_stream *t);

/* ---- rendezvous.c ---- */

/* A QP of the peer looks for one of ours. Loop thread, no lock. */
void shm_open_request(struct link *l, const struct rec_link *m);
/* Answers to OPEN; rx_lock is held. */
void shm_opened(struct stream *s, const struct rec_link *m);
void shm_refused(struct stream *s);
/* READY has come. Loop thread, no lock. */
void shm_ready(struct stream *s);
/* The stream of an attempt has been answered, or will not be. */
void shm_open_over(struct stream *s, int err) REQUIRES(s->lock);
/* The link is dead. No lock. */
void shm_open_link_gone(struct link *l);

#endif
