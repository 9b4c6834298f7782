/* SPDX-License-Identifier: BSD-2-Clause */
/* The contract between the protocol of connections (src/rc) and what carries its frames:
 * TCP (src/tcp) or shared memory (src/shm).
 *
 * A carrier has a struct of its own that begins with struct stream, and two tables:
 * struct rc_carrier, what it does with one stream, and struct rc_rendezvous, how it finds
 * the stream of a QP that the application has connected by GID and QP number alone. The
 * protocol decides *what* is sent (rc/build.h) and what a frame that has arrived means
 * (rc/rx.h); a carrier decides how the bytes travel.
 *
 * Unless a member says otherwise, it is called with the stream's lock held, without
 * qp->lock, in any thread, and does not block. */
#ifndef ANYRDMA_RC_CARRIER_H
#define ANYRDMA_RC_CARRIER_H

#include "dev/interface.h"
#include "dev/transport.h"
#include "rc/frame.h"

struct stream;

/* Work requests that a carrier can carry out itself, without a frame: RDMA writes and
 * reads of reliable QPs. The requester (rc/execute.c) keeps the order: it asks when every
 * request before this one has been answered. */
struct rc_executor {
	/* Would run() succeed, probably? A hint, which moves nothing. With qp->lock. */
	bool (*likely)(struct stream *s, const struct wqe *w);
	/* Moves `len` bytes from offset `off` of the work request on. With the stream's lock
	 * and qp->lock if the request has at most RC_EXECUTE_LOCKED bytes (rc/execute.h).
	 * Else without both, after likely() has said yes: QP and WQE stay, and it is not
	 * called twice at the same time for one stream. It may wait for pages of the
	 * application's memory. 0; or -errno: some of the bytes may have been moved, but only
	 * if the peer allows the access. The whole request is sent then, and the responder
	 * finds the right status. */
	int (*run)(struct stream *s, const struct wqe *w, uint32_t off, uint32_t len);
};

struct rc_carrier {
	const char *name;

	/* ---- life ---- */

	/* The stream may receive from now on; it has no QP yet. No lock is held. Nobody
	 * but the carrier and the user knows the stream. 0; or -errno: the caller drops
	 * the stream. */
	int (*start)(struct stream *s);
	/* Everything was sent (tx_drained()): tells the peer that nothing more comes. */
	void (*shut)(struct stream *s);
	/* After shut(): discards what arrives. 0: the peer has ended too; -EAGAIN: not
	 * yet. */
	int (*discard)(struct stream *s);
	/* Ends the connection at once, without sending the rest. May be called again. */
	void (*reset)(struct stream *s);
	/* The stream is closed: gives back what the carrier holds outside of memory, then
	 * drops the stream's first reference, later, in the loop thread. */
	void (*finish)(struct stream *s);
	/* The last reference is gone: frees the carrier's memory. No lock is held. The
	 * stream itself is freed by the caller. May be NULL. */
	void (*fini)(struct stream *s);

	/* ---- data ---- */

	/* Sends what rc_build() gives, until there is no more, or no room (tx.blocked). It
	 * may stop after a turn of RC_TURN bytes; tx.blocked is set then, too. Before each
	 * build it calls req_local_locked() and, if it has an executor,
	 * execute_next_locked(); after it req_carried_locked(), req_sent(),
	 * tx_build_failed(), stream_execute_later() and stream_want_output(), each where it
	 * applies. */
	void (*send)(struct stream *s);
	/* Goes on with a message that has waited for a receive (rx.wait); unless it still
	 * waits, receives what is there, at most a turn. True if anything came. A carrier
	 * that receives for many streams at once does that on its own (stream_after()), and
	 * only goes on here. */
	bool (*receive)(struct stream *s);
	/* The frame whose pages were not there (rx.paging) goes on: places its payload and
	 * receives what has come behind it, as far as the state of the stream allows that. By
	 * any thread. NULL: payload is placed whether its pages are there or not. */
	void (*go_on)(struct stream *s);
	/* Of a carrier that receives for many streams at once: receives all that the peer
	 * has sent by now. No lock is held; it may wait for other threads that receive. NULL:
	 * receive() does that. */
	void (*receive_all)(struct stream *s);
	/* Payload of a frame that was begun and not sent whole must not be read from the
	 * QP's memory any more: the carrier copies it. NULL: it sends frames whole. */
	void (*own_payload)(struct stream *s);
	/* A plain stream (extended is false) refuses the frame in rx.h, for the reason in
	 * rx.reason or, if that is RC_REASON_NONE, for `code`. NULL: the carrier has no
	 * plain streams. */
	void (*refuse)(struct stream *s, enum nak_code code);

	/* dev_transport.post_locked: with qp->lock, WITHOUT the stream's lock, which it may
	 * only try. True: all posted work was sent. May be NULL. */
	bool (*post_locked)(struct stream *s);
	/* Nothing but an acknowledgement is to be sent before the next request (the carrier
	 * has set tx.ack_only, and nothing was posted since; or the next request is to be
	 * carried out): sends it. False: send() has to. With or without qp->lock. Only for
	 * carriers that set tx.ack_only or have an executor. */
	bool (*send_ack)(struct stream *s);
	/* The carrier may carry out work requests itself. NULL: it does not. */
	const struct rc_executor *executor;
	/* The carrier may take the payload of this send by reference, in frames of up to
	 * RC_REFERENCE_MAX bytes (rc_payload.by_reference): the peer fetches it. With
	 * qp->lock. May be NULL. */
	bool (*by_reference)(struct stream *s, const struct wqe *w);

	/* ---- who receives ---- */

	/* What the stream waits for has changed (input, output, nothing), or who is to
	 * watch it (s->grouped). 0 or -errno. */
	int (*watch)(struct stream *s);
	/* join(): pollers of the CQ may receive for the stream; not before s->grouped is set
	 * if the carrier has a poll source for each stream. leave(): they do not any more.
	 * If the carrier has one source for many streams, a poller that receives for another
	 * stream may be in this one at any time. No lock is held but match.lock; leave()
	 * waits for pollers of the source that it removes. join(): 0 or -errno. */
	int (*join)(struct stream *s, struct dev_cq *cq);
	void (*leave)(struct stream *s);

	/* ---- time ---- */

	/* Nothing was heard of the peer's host for `budget` ns, and something should have
	 * been. */
	bool (*silent)(struct stream *s, uint64_t budget);
	/* A number that changes whenever the peer takes something, or the kernel does for
	 * it. */
	uint64_t (*consumed)(struct stream *s);
	/* Unreliable streams: work waits for room for so many ticks (RC_TICK_MS) in which
	 * consumed() does not change. */
	unsigned patience;
};

/* ---- streams of QPs known by GID and QP number ------------------------------------- */

/* What a QP in RTR waits for. */
struct stream_key {
	uint32_t local_qpn, remote_qpn;
	union ibv_gid remote_gid;
	bool unreliable; /* a UC QP; it is never the peer of an RC QP */
};

/* The QP waits for itself. */
static inline bool stream_key_is_self(const struct stream_key *k, const struct dev_qp *qp)
{
	return k->local_qpn == k->remote_qpn &&
	       !memcmp(&qp->local_gid, &k->remote_gid, sizeof(k->remote_gid));
}

/* The QPs' side that connects has an attempt, embedded in the carrier's own struct. */
struct rc_attempt {
	const struct rc_rendezvous *via;
};

/* The other side has an arrival: a peer that has named a QP of ours. */
struct rc_arrival {
	const struct rc_rendezvous *via;
};

/* What is known of the process that has the peer's QP. */
enum rc_peer {
	RC_PEER_UNKNOWN,   /* nothing: its host does not answer */
	RC_PEER_SILENT,	   /* it is there and answers nothing: stopped, or very busy */
	RC_PEER_NOT_READY, /* it has answered: the QP is there, and will perhaps come */
	RC_PEER_NO_QP,	   /* it has answered: the QP is gone, or in the error state */
	RC_PEER_GONE,	   /* there is no such process */
};

/* A waiting QP that has work wants to know; embedded in the carrier's own struct. */
struct rc_question {
	const struct rc_rendezvous *via;
	enum rc_peer peer; /* the last answer */
};

/* All but listen() and accept() are called with match.lock (rc/match.h), which guards
 * attempts and arrivals. None blocks. */
struct rc_rendezvous {
	const char *name;
	/* The application has brought the QP to INIT itself: peers may ask for it. Called
	 * without locks. 0 or -errno. */
	int (*listen)(struct dev_qp *qp);
	/* May the peer be reached like this? */
	bool (*reaches)(const struct dev_qp *qp, const struct stream_key *key);
	/* Begins to look for the peer, and goes on, with pauses, until it succeeds
	 * (match_found_locked(), then a stream is started), fails (match_failed_locked()) or
	 * is cancelled. The stream gets this `serial` if the peer's end was made for this
	 * wait alone. pause: not at once. NULL: no memory. */
	struct rc_attempt *(*connect)(struct dev_qp *qp, const struct stream_key *key,
				      uint64_t serial, bool pause);
	/* After this nobody names the attempt. */
	void (*cancel)(struct rc_attempt *a);
	/* The arrival of the peer that this QP waits for, with a reference for accept();
	 * or NULL. */
	struct rc_arrival *(*find)(const struct dev_qp *qp, const struct stream_key *key);
	/* Makes the stream, and offers it to the QP, which may not wait any more; takes
	 * over the reference. Called without locks. 0, also if the peer will ask again;
	 * -errno: nobody will, and the QP is not connected. */
	int (*accept)(struct rc_arrival *in);
	/* Asks the process of the peer's QP how things are, again and again, until it is
	 * forgotten; whichever way the two QPs will find each other. NULL: no memory.
	 * A carrier that cannot ask has neither; the first that can is asked. */
	struct rc_question *(*ask)(struct dev_qp *qp, const struct stream_key *key);
	void (*forget)(struct rc_question *q);
};

/* Every carrier that is linked in, the preferred one first, NULL at the end. Defined by
 * who puts the library together (src/parts/ibverbs.c), or by a unit test. */
extern const struct rc_rendezvous *const rc_rendezvous[];

#endif
