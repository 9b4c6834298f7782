/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared memory as the carrier of a stream. The frames of all streams between two
 * processes of one host travel through the rings of one link (shm/link.h).
 *
 * Files of a stream: carrier.c its life and the table; tx.c sending; rx.c receiving;
 * small.c the fast path of small sends; pull.c large sends, which the receiver fetches;
 * direct.c access to the peer's memory without the ring; rendezvous.c streams for QPs
 * known by GID and QP number; cm.c streams for connections of the CM. link.h lists the
 * files of the link itself. */
#ifndef ANYRDMA_SHM_SHM_H
#define ANYRDMA_SHM_SHM_H

#include "rc/stream.h"

struct link;
struct link_cq;
struct rec_link;
struct rec_stream;
struct shm_attempt;
struct shm_fetch;
struct shm_kept;

/* How far a connection of the CM is. */
enum shm_cm {
	SHM_CM_NONE,	 /* the stream is not the CM's, or is open */
	SHM_CM_LOOKUP,	 /* active side: there is no link yet */
	SHM_CM_REQ_SENT, /* active side: waits for the reply */
	SHM_CM_REQ_RCVD, /* passive side: has to reply */
};

/* The stream's lock guards the fields that do not say otherwise. */
struct shm_stream {
	struct stream s;
	struct link *l;		/* NULL: the stream has no link yet */
	struct link_cq *cq;	/* while pollers of its QP's CQ may receive; match.lock */
	uint32_t slot;		/* the stream's own slot */
	uint32_t peer_slot;	/* slot of the peer's stream; valid once received */
	uint64_t peer_share_id; /* stream.share_id of the peer's stream; likewise */

	/* cm.c */
	enum shm_cm cm;
	bool req_in_ring; /* active side: the request is in the ring, */
	uint32_t req_end; /* before this position */
	bool by_route;	  /* the link is that of an earlier connection to this name */
	/* passive side: link.requests, until it is found there with nothing to reply to,
	 * or ends; loop thread only */
	struct list request;

	/* how far both sides have opened and closed the stream */
	bool connector;	 /* this side sends OPEN and READY */
	bool open_done;	 /* OPENED or REFUSED has come, or will not come */
	bool half_open;	 /* OPENED was sent, READY has not come; rx_lock */
	bool peer_known; /* peer_slot is valid and must be sent LINK_CLOSE */
	bool started;	 /* both sides want the stream */
	bool opened;	 /* frames may be sent: the peer's QP has the stream */
	bool announced;	 /* LINK_ANNOUNCE was sent */
	bool closed_in;	 /* the peer has closed */
	bool closed_out; /* this side has closed */
	/* The peer has closed, but a message that came before waits for a receive: the
	 * end is reported, with end_err, after that message. */
	bool end_pending;
	int end_err;

	/* state of one pass over the ring */
	bool lacked_room;	/* a frame was not sent because the ring had no room */
	bool ack_asked_before;	/* an acknowledgement was asked for before this pass */
	bool received;		/* a record came in this pass */
	/* A poller received nothing but sends: the acknowledgement waits one pass for a
	 * frame that carries it; rx_lock. */
	bool small_imm; /* small.c has received the immediate data of the next write */
	bool defer_ack;
	struct list after_rx;	/* link.after_rx; rx_lock */
	struct list blocked;	/* link.blocked; tx_lock */

	/* pull.c: made when first needed. */
	struct shm_fetch *fetch;
	bool link_stopped; /* the next record of the link waits for the fetch, or for pages */

	/* While rx.wait (unreliable streams) or rx.paging is set: the record of the frame that
	 * waits to begin, or to be placed, or NULL. While stream_stands(): records that came
	 * after. */
	struct shm_kept *waiting;
	struct list kept;
	size_t kept_bytes;

	/* rendezvous.c */
	struct shm_attempt *attempt; /* the attempt that waits for OPENED; match.lock */
	int open_err;		     /* 0 or -errno: how OPEN ended */
	struct loop_work open_work, end_work;
};

static inline struct shm_stream *to_shm(struct stream *s)
{
	return container_of(s, struct shm_stream, s);
}

extern const struct rc_carrier shm_carrier;
extern const struct rc_rendezvous shm_rendezvous;

/* ---- carrier.c ---- */

/* A stream without a slot, with an entry of its own in the shared table; or NULL. */
struct shm_stream *shm_new(const struct stream_param *p);
/* Frees a stream that has no slot and no other holder. */
void shm_drop(struct stream *s);
/* stream_start(). If a QP has the stream, or the CM has `accepted` it, the application
 * has accepted something of the peer, and access to memory may be granted (grant.h). */
int shm_start(struct stream *s, bool accepted);
/* Frees the slot and the first reference of a stream that is closed or was never started.
 * Loop thread, no lock. */
void shm_end(struct stream *s);
/* Called by the link with rx_lock held: */
void shm_close_received(struct stream *s, int err);	 /* LINK_CLOSE has come */
void shm_link_broken(struct stream *s, const char *why); /* the link is dead */
void shm_announced(struct stream *s);			 /* LINK_ANNOUNCE has come */

/* ---- tx.c ---- */

void shm_send(struct stream *s) REQUIRES(s->lock);
bool shm_post_locked(struct stream *s);
/* The ring has room again. No lock but rx_lock is held. */
void shm_unblocked(struct stream *s);

/* ---- rx.c ---- */

/* Receives one record for s, whose head is *r. 0; -EPROTO: the link is to be broken;
 * -EAGAIN (pollers only): the stream's lock is not free, the record stays in the ring;
 * -EBUSY: it stays, and the loop thread will be woken to go on. rx_lock is held. */
int shm_receive(struct stream *s, const struct rec_stream *r, const volatile void *rec,
		uint32_t bytes, bool by_thread);
/* Runs after the records of a pass: acknowledges and sends. True: it has to run again in
 * the next pass. rx_lock is held. */
bool shm_after_rx(struct stream *s, bool by_thread);
/* rc_carrier.receive: continues with a message that waited for a receive. */
bool shm_resume(struct stream *s) REQUIRES(s->lock);
/* rc_carrier.go_on */
void shm_go_on(struct stream *s) REQUIRES(s->lock);
/* If the link has stopped at a record of this stream, which is not kept or dropped any more:
 * it is run again. */
void shm_let_link_go_on(struct stream *s) REQUIRES(s->lock);
/* A payload was fetched, and its frame has ended. err breaks the stream. */
void shm_fetched(struct stream *s, int err) REQUIRES(s->lock);
/* Nothing more comes from the peer. Reported to the stream at once, or after the message
 * that waits for a receive. */
void shm_input_ended(struct stream *s, int err) REQUIRES(s->lock);
/* Frees the records that are kept while a message waits. */
void shm_kept_drop(struct shm_stream *t);

/* ---- rendezvous.c ---- */

/* LINK_OPEN has come. Loop thread, no lock. */
void shm_open_request(struct link *l, const struct rec_link *m);
/* LINK_OPENED and LINK_REFUSED have come; rx_lock is held. */
void shm_opened(struct stream *s, const struct rec_link *m);
void shm_refused(struct stream *s);
/* LINK_READY has come. Loop thread, no lock. */
void shm_ready(struct stream *s);
/* The attempt of the stream has ended: OPENED or REFUSED has come, or will not come. */
void shm_open_done(struct stream *s, int err) REQUIRES(s->lock);
/* The link is dead. No lock. */
void shm_open_link_gone(struct link *l);

#endif
