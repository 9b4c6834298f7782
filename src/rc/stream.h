/* SPDX-License-Identifier: BSD-2-Clause */
/* A stream: one end of a connection between two QPs, whatever carries its frames.
 *
 * Files: stream.c life, attaching, progress; match.c which stream belongs to which QP; tx.c
 * when something is sent, build.c what; rx.c what arrives; requester.c acknowledgements,
 * NAKs, repeats and timers of our requests; execute.c requests that the carrier carries out
 * itself; responder.c what a peer's request does here; uc.c what is different on unreliable
 * connections; sge.c scatter/gather lists; tap.h the point that every frame passes;
 * transport.c the table for the device. carrier.h is the contract with what is below.
 *
 * A stream is *extended* (the peer is one of ours: acknowledgements, NAK, control messages)
 * or *plain* (any iWARP peer). On a plain one no control message is sent; sends and writes
 * are finished when the carrier has taken them, reads by their response; what cannot be
 * accepted is refused by the carrier (rc_carrier.refuse) and ends the stream; and as a QP
 * in ERR has no connection in iWARP, the stream *ends* (stream_end()) with its QP or its
 * user, whichever lets go first.
 *
 * An extended stream may be *unreliable*, for QPs of type UC (uc.c).
 *
 * Two holders, the CM ("user") and the QP; the stream closes when both have let go. All
 * fields are guarded by stream.lock unless they say otherwise. */
#ifndef ANYRDMA_RC_STREAM_H
#define ANYRDMA_RC_STREAM_H

#include "base/job.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/loop.h"
#include "dev/interface.h"
#include "dev/traffic.h"
#include "dev/transport.h"
#include "rc/carrier.h"
#include "rc/frame.h"

enum {
	RC_TURN = 256 * 1024, /* bytes a QP may move before others get a turn */
	RC_ACK_MSGS = 64,     /* owed acks are sent at the latest after so many messages */
	RC_ACK_BYTES = 256 * 1024, /* or bytes */
	/* Waiting for a peer is counted in ticks. Not one long wait: a machine that stood
	 * still, or has no time for us, is no silent peer. */
	RC_TICK_MS = 100,
	UC_TICKS = 20,	    /* so many unreliable work waits for the carrier, */
	UC_TICKS_HOST = 300, /* ... to a process of this host: one that takes nothing is slow,
			      * or stopped, and gets what was sent */
	RC_REFERENCE_MIN = 64 * 1024, /* a send, or the rest of it, that the peer fetches:
				       * below, two copies at the same time are faster */
	RC_REFERENCE_MAX = 1024 * 1024, /* of one frame */
	RC_REFERENCE_REFUSALS = 8, /* in a row: it is not offered any more */
	RC_UP_MAX = 32,	 /* control messages that wait for the user: more is an attack */
	RC_CTL_MAX = 32, /* ... to be sent: so is asking for answers and reading none */
};

/* A message of the user or of the protocol, waiting to be sent. */
struct ctl_msg {
	struct list link;
	struct rc_frame h;
};

/* A response owed to the peer: at most max_dest_rd_atomic of them. */
struct response {
	bool atomic;
	uint32_t number;     /* request it answers */
	uint32_t stag, id;   /* read: sink STag; atomic: request id */
	uint64_t to;	     /* read: sink offset of the next byte */
	uint32_t key;	     /* read: source */
	struct dev_pd *pd;
	uint64_t addr;
	uint32_t len, done;  /* read: bytes, and those sent */
	uint64_t value;	     /* atomic: result */
};

#define NO_SRQ UINT32_MAX /* their numbers have 24 bits */

enum { RESPONSES = 32 }; /* ring size, a power of two >= DEV_MAX_RD_ATOM */
_Static_assert((int)RESPONSES >= (int)DEV_MAX_RD_ATOM, "ring holds all responses");

/* Pages of payload that is to be sent (rc/pages.h). */
struct paging {
	bool waits; /* a job has them come: nothing of this kind is sent */
	/* They were asked for up to here: of this WQE or response, and its offset. */
	uint32_t idx, end;
};

struct rc_tx {
	struct list ctl;	/* struct ctl_msg, nctl of them */
	bool blocked;		/* the carrier has no room, or the turn is over */
	bool cut;		/* the carrier has to send the rest of a frame first, or
				 * bytes of its own */
	uint32_t blocked_polls;
	bool requests;		/* whole requests have left since the last look */
	bool resp_turn;		/* responses and requests alternate */
	uint16_t nctl;		/* about RC_CTL_MAX at most: stream_control() */
	uint32_t msn0, msn1, msn3;

	/* requester; indices are SQ indices of the QP, sq.next is being sent */
	uint32_t off;		/* bytes of the WQE at sq.next already sent */
	bool imm_sent;		/* its immediate prefix went out */
	bool probe_sent;	/* the responder was told where its write ends */
	uint32_t acked;		/* WQEs before it are acknowledged, or were local;
				 * sq.done may be ahead of it after SQE */
	uint32_t acked_nr;	/* requests among these: local work has no number */
	uint32_t rd_scan;	/* no unanswered read before this index */
	uint32_t timer_acked;	/* `acked` when the silence timer last fired */
	uint32_t rd_out;	/* reads and atomics without their response */
	bool sig_since_req;	/* a signalled WQE went out after the last ACK_REQ */
	/* Requests wait: RNR and NOT_READY until hold_until or RECV_POSTED; LOST
	 * (no QP there) fails at hold_until; FAIL fails the WQE at sq.next with
	 * fail_status once all before it are acknowledged. */
	enum { HOLD_NONE, HOLD_RNR, HOLD_NOT_READY, HOLD_LOST, HOLD_FAIL } hold;
	uint64_t hold_until;
	enum ibv_wc_status fail_status;
	bool muted;		/* plain: no request may be sent before the peer's first
				 * frame; set and cleared by the carrier */
	bool resync;		/* RESYNC goes out before the next request */
	uint32_t srqn;		/* XRC: the SRQ that the peer was told last, or NO_SRQ */
	bool ack_only;		/* nothing but an acknowledgement waited to be sent when the
				 * last frame had been received, and tx_run() was not called
				 * since: set by the carrier */
	/* execute.c: bytes done of the WQE at execute_idx, or it is to be sent */
	uint32_t execute_idx, execute_off;
	bool execute_not;
	bool executing;		/* a thread carries out the WQE at sq.next without locks */
	bool more;		/* that is so, or has to be done: requests wait */
	bool drain;		/* ... when what was sent before is answered */
	struct paging paging_request, paging_response;
	/* rc_carrier.by_reference: the payload of this WQE was refused, and is sent */
	uint32_t copy_idx;
	uint8_t references_refused; /* so many in a row */
	uint8_t rnr_seen;	/* RNR NAKs since the last progress */
	uint64_t not_ready_at;	/* first NAK of this kind, or 0 */

	/* unreliable: consumed() when the carrier was found full, ticks since then
	 * and the next one; after rc_carrier.patience work is given up */
	uint64_t stall_consumed, stall_tick;
	unsigned stall_ticks;
};

/* A failure of our QP that waits for the answers before it. */
struct resp_failure {
	bool due;
	enum ibv_wc_status status;
	int event;
	char why[160];
};

struct rc_rx {
	struct rc_frame h;	/* the frame being received */
	uint32_t off;		/* payload of this frame already placed */
	bool fetching;		/* its payload is being fetched without locks: what comes
				 * behind it waits in the carrier */
	bool paging;		/* the pages that it goes to come without locks (rc/pages.h):
				 * likewise */
	uint32_t paged;		/* they were asked for up to this offset of the frame */
	enum { PLACE_SCRATCH, PLACE_RECV, PLACE_WRITE, PLACE_READ } place;
	enum rc_reason reason;	/* why the frame is refused, see rc_carrier.refuse */

	/* requests of the peer */
	unsigned rights;	/* qp_access_flags when the request came, */
	uint8_t rnr_timer;	/* and min_rnr_timer */
	uint32_t srqn;		/* XRC: the SRQ they are for, or NO_SRQ */
	struct dev_pd *pd;	/* the one that this frame is checked against */
	bool drop;		/* NAK sent: discard requests until RESYNC */
	bool skip;		/* unreliable: the rest of the message is discarded */
	/* unreliable: a message waits for its receive, at the beginning of a frame or
	 * at its end; the carrier keeps what comes behind it */
	enum { WAIT_NONE, WAIT_BEGIN, WAIT_END } wait;
	uint64_t wait_until;
	bool no_wait;		/* one has waited in vain: the next ones do not */
	bool rnr_sent;		/* RECV_POSTED is wanted when a receive comes */
	bool not_ready_sent;	/* likewise when a QP claims the stream */
	bool recv_posted;	/* RECV_POSTED is to be sent */
	uint32_t expected;	/* number of the request being received */
	bool begun;		/* a request was accepted: numbers agree */
	bool resync;		/* RESYNC came, for: */
	uint32_t resync_number;
	uint32_t msn0, msn1;
	uint32_t msg_off;	/* bytes of the current Send */
	uint32_t write_len;	/* bytes of the current Write, at most DEV_MAX_MSG, and if
				 * there are any: */
	uint32_t write_stag;	/* its key */
	uint64_t write_end;	/* where it goes on */
	bool imm_have, imm_se;
	uint32_t imm;
	bool ack_owed;		/* accepted requests are not acknowledged yet */
	bool ack_asked;		/* ... and the requester wants to know at once */
	bool ack_now;		/* ... or we should wait no longer */
	uint32_t ack_msgs, ack_bytes, ack_idle;
	bool nak;		/* a NAK is to be sent, after all responses: */
	uint8_t nak_code, nak_timer;
	uint32_t nak_number;

	struct resp_failure failure;
	struct response *resp;	/* ring of RESPONSES, made when first needed */
	uint32_t resp_head, resp_tail;
};

enum stream_state {
	STREAM_OPEN,	/* may also be: */
	STREAM_BROKEN,	/* EOF or error: no more I/O; holders are told */
	STREAM_CLOSING, /* both holders gone: flush, shutdown, read to EOF */
	STREAM_CLOSED,	/* the carrier gives back what it holds */
};

/* The reply to stream_connect(), on its way to the user. */
struct stream_reply {
	uint32_t len;
	uint8_t data[];
};

/* A carrier's own struct begins with it. */
struct stream {
	struct lock lock;
	const struct rc_carrier *carrier;
	atomic_int refs;
	atomic_int want;     /* somebody failed to get the lock: run tx again */
	atomic_int waiting;  /* so many sleep on the lock: stream_lock() */
	enum stream_state state; /* set by stream_set_state() only */
	int err;	     /* why BROKEN: 0 EOF, -errno */
	uint32_t id;	     /* for the log */
	struct stream_param p;
	struct dev_qp *qp;
	struct traffic traffic;
	bool qp_was;	     /* a QP was attached once */
	struct rc_tx tx;
	struct rc_rx rx;

	/* user */
	const struct stream_user *ops;
	void *user;	     /* NULL after stream_user.released */
	struct list up;	     /* struct ctl_msg for the user, up_count of them */
	unsigned up_count;
	uint32_t payload_max; /* of one frame */
	struct stream_reply *reply; /* to stream_connect(), for the user; or NULL */
	bool up_delivered;   /* the user is to be told that its request is delivered */
	bool up_closed, up_closed_told, up_released, user_gone;
	bool connecting;     /* of stream_connect() or its peer: not open yet */
	struct loop_work up_work;

	struct cond copied;  /* tx.executing, rx.fetching or rx.paging has become
			      * false */
	struct job execute;  /* posted (execute_posted): for tx.more */
	bool execute_posted;
	bool execute_here;   /* the thread that runs tx will see to tx.more itself */
	bool grouped;	     /* pollers of its QP's CQ watch it, not the thread alone */
	bool joined;	     /* in a poll group, or on the way in or out: must not close */
	bool input_held;     /* plain, no QP yet: what comes waits in the carrier */
	bool peer_ended;     /* ... and behind it is the end */
	bool ending;	     /* plain: as if both holders had gone */
	bool shut;	     /* rc_carrier.shut was called: what comes is discarded */
	struct loop_timer timer; /* hold, silence, closing: the earliest */
	uint64_t timer_at;
	uint64_t close_by;

	struct list unclaimed; /* match.lock */
	uint64_t serial;     /* the only wait that it is for (match_serial_locked()); 0: any.
			      * Set before it is started */
	uint64_t share_id;   /* dev/share.h: speaks for the QP that has this stream; 0: none.
			      * Set before it is started */
};

/* Nothing is to be sent before the next request, or beside it, but perhaps an
 * acknowledgement. */
static inline bool stream_settled(const struct stream *s)
{
	const struct rc_tx *tx = &s->tx;
	const struct rc_rx *rx = &s->rx;

	return tx->hold == HOLD_NONE && !tx->off && !tx->imm_sent && !tx->resync &&
	       !tx->muted && !tx->blocked && !tx->cut && !tx->drain && !tx->more &&
	       list_empty(&tx->ctl) && !rx->nak && !rx->recv_posted && !rx->failure.due &&
	       rx->resp_head == rx->resp_tail;
}

/* What comes behind the frame in rx.h has to wait in the carrier. */
static inline bool stream_stands(const struct stream *s)
{
	return s->rx.wait || s->rx.fetching || s->rx.paging;
}

/* Nobody acknowledges: work completes when the carrier has taken it. */
static inline bool stream_unacked(const struct stream *s)
{
	return !s->p.extended || s->p.unreliable;
}

/* Unlocks; true if somebody asked meanwhile: stream_kick() is the caller's then. The load
 * of `want` must not be carried out before the lock is seen to be free: else a thread that
 * sets `want` and finds the lock held relies on a holder that has looked already. */
static inline bool stream_put_lock(struct stream *s) RELEASE(s->lock) NO_TSA
{
	lock_put(&s->lock);
	atomic_signal_fence(memory_order_seq_cst);
#if !defined(__x86_64__) /* there the unlock, an exchange, is a full barrier */
	atomic_thread_fence(memory_order_seq_cst);
#endif
	return atomic_load(&s->want);
}

/* Counts a frame. Beside rc_frame_out() and rc_frame_in(): the port's counters need no tap. */
static inline void stream_count(struct stream *s, enum traffic_way way, uint32_t payload)
{
	traffic_count(&s->traffic, way, payload, 1);
}

/* ---- for the CM: dev/interface.h ---- */

int stream_control(struct stream *s, enum stream_ctl type, const uint8_t *data, size_t len);
void stream_release(struct stream *s);
void stream_abort(struct stream *s);
bool stream_has_news(struct stream *s);
void stream_adopt(struct stream *s, const struct stream_user *ops, void *user);

/* ---- for carriers ---- */

/* Fills the stream at the beginning of a carrier's zeroed struct. It has no holders yet. */
void stream_init(struct stream *s, const struct rc_carrier *carrier,
		 const struct stream_param *p);
/* Has it receive, and offers it to its QP. 0 or -errno of rc_carrier.start. */
int stream_start(struct stream *s);
void stream_get(struct stream *s);
/* The last one frees it. */
void stream_put(struct stream *s);
void stream_lock(struct stream *s) ACQUIRE(s->lock);
/* Unlocks, and runs tx again if somebody asked meanwhile. */
void stream_unlock(struct stream *s) RELEASE(s->lock);
/* tx_run() as soon as the lock is free, by whoever holds it. */
void stream_kick(struct stream *s);
/* Receives, acknowledges, sends; true if anything moved. */
bool stream_progress(struct stream *s, bool by_thread) REQUIRES(s->lock);
/* The second half of it. asked: an ack was asked for before this pass. */
void stream_after(struct stream *s, bool by_thread, bool asked, bool moved)
	REQUIRES(s->lock);
/* The carrier has sent, or found no room: tx.blocked may have changed. */
void stream_want_output(struct stream *s) REQUIRES(s->lock);
/* There is something to tell the user. */
void stream_up_post(struct stream *s) REQUIRES(s->lock);
/* Nothing more will come. */
void stream_peer_closed(struct stream *s, int err) REQUIRES(s->lock);
/* The peer ended while input was held. What it had sent is still for the QP; `rest`: there
 * is something. */
void stream_ended_early(struct stream *s, bool rest, int err) REQUIRES(s->lock);

/* ---- for the files of rc, and carriers ---- */

void stream_set_state(struct stream *s, enum stream_state to) REQUIRES(s->lock);
/* The connection is over: err 0 for EOF. The QP's work fails with
 * RETRY_EXC_ERR, the user is told. */
void stream_broken(struct stream *s, int err, const char *why) REQUIRES(s->lock);
void stream_timer(struct stream *s, uint64_t when) REQUIRES(s->lock);
/* A control message has come for the user. */
void stream_up(struct stream *s, const struct rc_frame *h) REQUIRES(s->lock);
/* Joins and separates a stream and a QP; the caller serialises both (match.c).
 * stream_attach() sends nothing: tx_run() or stream_kick() follows, without match.lock.
 * Detaching has three steps. stream_quiesce() waits for copies to end; the QP's state
 * permits no new ones. stream_detach() takes the QP. stream_detached() waits for peers that
 * access memory in the QP's name; until then the stream does not close. */
int stream_attach(struct stream *s, struct dev_qp *qp);
void stream_quiesce(struct stream *s);
void stream_detach(struct stream *s, struct dev_qp *qp);
void stream_detached(struct stream *s);
/* A plain stream ends: what is queued leaves, then the carrier closes. Nothing happens to
 * an extended one. */
void stream_end(struct stream *s) REQUIRES(s->lock);
/* There is a request to carry out (tx.more), and no thread that will: posts a job. */
void stream_execute_later(struct stream *s) REQUIRES(s->lock);
/* The QP's work is over: its memory is not touched after this. No copy is under way. */
void stream_stop(struct stream *s) REQUIRES(s->lock);

#endif
