/* SPDX-License-Identifier: BSD-2-Clause */
/* The TCP transport: one stream is one TCP connection past its MPA exchange.
 *
 * Files: conn.c stream life, attach, closing, progress; tcp.c the descriptor;
 * match.c which stream belongs to which QP; rendezvous.c streams for raw QPs; tx.c what is sent;
 * rx.c what arrives; requester.c acks, NAKs, repeats and timers of our
 * requests; responder.c what a peer's request does here; term.c Terminate;
 * sge.c scatter/gather lists; ops.c the dev_transport table.
 *
 * A stream is *extended* (the peer is one of ours: acks, NAK, control) or
 * *plain* (any iWARP peer). On a plain one no control frame is sent; sends and
 * writes are finished when TCP has taken them, reads by their response; what
 * cannot be accepted is answered with Terminate and ends the stream; and as a QP
 * in ERR has no connection in iWARP, the stream *ends* (stream_end) with its QP
 * or its user, whichever lets go first: TCP's close is the disconnect.
 *
 * An extended stream may be *unreliable*, for QPs of type UC (uc.c).
 *
 * Two holders, the CM ("user") and the QP; the stream closes when both have let
 * go. All fields are guarded by stream.lock unless they say otherwise. */
#ifndef ANYRDMA_IWARP_IWARP_H
#define ANYRDMA_IWARP_IWARP_H

#include "base/list.h"
#include "base/lock.h"
#include "base/loop.h"
#include "dev/interface.h"
#include "dev/poll.h"
#include "dev/transport.h"
#include "tcp/rdmap.h"
#include "shm/stream.h"

#include <sys/uio.h>

enum {
	RC_TURN = 256 * 1024,  /* bytes a QP may move before others get a turn */
	TCP_STAGING = 64 * 1024,
	TCP_IN_PLACE_MIN = 8192,  /* payload rest from here on goes straight to its place */
	RC_ACK_MSGS = 64,      /* owed acks are sent at the latest after so many messages */
	RC_ACK_BYTES = 256 * 1024, /* or bytes */
	TCP_TAIL = 64,	       /* write order: last bytes in an iovec of their own */
	TCP_COPY_MAX = 512,     /* payload up to here is copied beside its header */
	TCP_YIELD_MS = 100,     /* a peer has surely read our MPA reply by then */
	/* Waiting for a peer is counted in ticks. Not one long wait: a machine that stood
	 * still, or has no time for us, is no silent peer. */
	RC_TICK_MS = 100,
	UC_TICKS = 20,	       /* so many unreliable work waits for the carrier, */
	UC_TICKS_HOST = 300,   /* ... of this host: who takes nothing there is slow, or stopped,
				* and gets what was sent */
	RC_EXECUTE_TURN = 1024 * 1024, /* bytes carried out directly before others get the
				       * stream's lock */
	RC_EXECUTE_LOCKED = 32 * 1024, /* of one request: with qp->lock held */
	RC_EXECUTE_WAIT = 8192, /* a request from here on waits until it can be direct */
	RC_REFERENCE_MIN = 64 * 1024, /* a send, or the rest of it, that the peer fetches: below,
				  * two copies at the same time are faster */
	RC_REFERENCE_MAX = 1024 * 1024, /* of one frame */
	RC_REFERENCE_REFUSALS = 8,  /* in a row: it is not offered any more */
	RC_UP_MAX = 32,	       /* control messages that wait for the user: more is an attack */
	RC_CTL_MAX = 32,       /* ... to be sent: so is asking for answers and reading none */
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

/* The rest of an FPDU of which a part is in the socket: it must be finished
 * before anything else, whatever happens to its QP. */
struct tx_part {
	uint8_t head[RDMAP_HDR_MAX + DEV_MAX_INLINE + RDMAP_TRAILER_MAX];
	uint32_t head_len, head_pos;
	uint8_t trailer[RDMAP_TRAILER_MAX + 1];
	uint32_t trailer_len, trailer_pos;
	/* payload: either named by a WQE or response, or owned (copied) */
	enum { PART_NONE, PART_WQE, PART_RESP, PART_OWNED } kind;
	uint32_t idx;	      /* PART_WQE: SQ index */
	uint32_t off;	      /* PART_WQE: offset in the message */
	uint32_t key;	      /* PART_RESP, as the next two */
	struct dev_pd *pd;
	uint64_t addr;
	uint8_t *owned;
	uint32_t payload_len, payload_pos;
};

struct rc_tx {
	struct list ctl;	/* struct ctl_msg, nctl of them */
	struct tx_part *part;	/* or NULL */
	uint8_t *first;		/* bytes before the first FPDU (MPA reply) */
	uint32_t first_len, first_pos;
	bool blocked;		/* the socket is full, or the turn is over */
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
	uint32_t timer_acked;	/* `acked` when the retry timer was last looked at */
	uint32_t rd_out;	/* reads and atomics without their response */
	bool sig_since_req;	/* a signalled WQE went out after the last ACK_REQ */
	/* Requests wait: RNR and NOT_READY until hold_until or RECV_POSTED; LOST
	 * (no QP there) fails at hold_until; FAIL fails the WQE at sq.next with
	 * fail_status once all before it are acknowledged. */
	enum { HOLD_NONE, HOLD_RNR, HOLD_NOT_READY, HOLD_LOST, HOLD_FAIL } hold;
	uint64_t hold_until;
	enum ibv_wc_status fail_status;
	bool silent;		/* plain: the peer has to speak first */
	bool resync;		/* RESYNC goes out before the next request */
	uint32_t srqn;		/* XRC: the SRQ that the peer was told last, or NO_SRQ */
	bool idle;		/* nothing waited to be sent but an acknowledgement, when
				 * the last frame had been taken: set by the carrier */
	bool suspect;		/* the kernel met memory that is not there: look before
				 * the next batch */
	/* carrier.direct: bytes done of the WQE at direct_idx, or it is to be sent */
	uint32_t direct_idx, direct_off;
	bool direct_not;
	bool more;		/* the turn was over: there is more to do directly */
	bool drain;		/* ... when what was sent before is answered */
	uint32_t ring_idx;	/* carrier.pulls: this WQE was refused, and is sent */
	uint8_t pull_refused;	/* so many in a row */
	uint8_t rnr_seen;	/* RNR NAKs since the last progress */
	uint64_t not_ready_at;	/* first NAK of this kind, or 0 */

	uint64_t moved;		/* bytes that the carrier has taken, ever */
	/* unreliable: what was taken when the carrier was found full, ticks since then
	 * and the next one; after carrier.patience work vanishes */
	uint64_t stall_taken, stall_tick;
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
	uint8_t hdr[RDMAP_HDR_MAX];
	uint32_t have;		/* bytes of a header that came in pieces */
	bool in_frame;		/* header decoded, payload or trailer to come */
	struct rc_frame h;
	uint32_t left;		/* payload to come */
	uint32_t off;		/* payload of this frame already placed */
	uint32_t trailer_left, trailer_have;
	uint8_t trailer[RDMAP_TRAILER_MAX + 1];
	uint32_t crc;
	enum { PLACE_SCRATCH, PLACE_RECV, PLACE_WRITE, PLACE_READ } place;
	bool large;		/* last frame was large: read little ahead */

	bool junk;		/* plain: framing is lost, what comes is thrown away */
	unsigned term;		/* plain: enum term_code that says more than the NAK's */

	/* requests of the peer */
	unsigned rights;	/* qp_access_flags when the request came, */
	uint8_t rnr_timer;	/* and min_rnr_timer */
	uint32_t srqn;		/* XRC: the SRQ they are for, or NO_SRQ */
	struct dev_pd *pd;	/* the one that this frame is checked against */
	bool drop;		/* NAK sent: discard requests until RESYNC */
	bool skip;		/* unreliable: the rest of the message is discarded */
	/* unreliable: a message waits for its receive, at the beginning of a frame or
	 * at its end, and what came behind it in the stash */
	enum { WAIT_NONE, WAIT_BEGIN, WAIT_END } wait;
	uint64_t wait_until;
	bool impatient;		/* one has waited in vain: the next ones do not */
	uint8_t *stash;
	size_t stash_pos, stash_len;
	bool rnr_sent;		/* RECV_POSTED is waiter when a receive comes */
	bool not_ready_sent;	/* likewise when a QP claims the stream */
	bool go_on;		/* RECV_POSTED slot is full */
	uint32_t expected;	/* number of the request being received */
	bool begun;		/* a request was accepted: numbers agree */
	bool resync;		/* RESYNC came, for: */
	uint32_t resync_number;
	uint32_t msn0, msn1;
	uint32_t msg_off;	/* bytes of the current Send */
	uint32_t write_len;	/* bytes of the current Write, and if there are any: */
	uint32_t write_stag;	/* its key */
	uint64_t write_end;	/* where it goes on */
	bool imm_have, imm_se;
	uint32_t imm;
	bool ack_owed;		/* accepted requests are not acknowledged yet */
	bool ack_asked;		/* ... and the requester wants to know at once */
	bool ack_now;		/* ... or we should wait no longer */
	uint32_t ack_msgs, ack_bytes, ack_idle;
	bool nak;		/* NAK slot is full; leaves after all responses */
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
	STREAM_CLOSED,	/* descriptor given back */
};

/* What carries a stream. All are called with the stream's lock but for start,
 * join and leave. */
struct carrier {
	/* The stream may receive from now on (before it has a QP). 0 or -errno. */
	int (*start)(struct stream *s);
	/* Sends what it can; counts it in tx.moved; sets tx.blocked when there is no
	 * room. */
	void (*send)(struct stream *s);
	/* dev_transport.post_locked(): with the QP's lock, without the stream's. May be
	 * NULL. */
	bool (*post)(struct stream *s);
	/* tx.idle: sends the acknowledgement that is owed. False: send() has to. May be
	 * NULL. */
	bool (*ack)(struct stream *s);
	/* Receives what is there, at most a turn; true if anything came. Nothing is
	 * taken while rx.wait is set and its receive is not there. */
	bool (*receive)(struct stream *s);
	/* What the stream waits for has changed: input, output, nothing; or who is
	 * to watch (grouped). 0 or -errno. */
	int (*watch)(struct stream *s);
	/* Its QP's pollers may receive, once it is grouped; and no longer: after
	 * leave() no poller is in the stream or will be. 0 or -errno. */
	int (*join)(struct stream *s, struct dev_cq *cq);
	void (*leave)(struct stream *s);
	/* Nothing more will be sent: tells the peer. */
	void (*shut)(struct stream *s);
	/* After shut: throws away what comes; 0: the peer has closed too, -EAGAIN. */
	int (*drain)(struct stream *s);
	/* The end at once, without goodbye. */
	void (*reset)(struct stream *s);
	/* Gives back what it holds, and the stream's first reference. */
	void (*finish)(struct stream *s);
	/* Nothing has been heard of the peer's host for so long. */
	bool (*silent)(struct stream *s, uint64_t budget);
	/* Carries out `len` bytes from `off` on of a write or read, without a word to
	 * the peer. 0, or -errno: it has to be asked. May be NULL. */
	int (*direct)(struct stream *s, const struct wqe *w, uint32_t off, uint32_t len);
	/* Would it succeed, probably? */
	bool (*near)(struct stream *s, const struct wqe *w);
	/* Can the peer fetch the payload of a send by itself? Frames of up to
	 * RC_REFERENCE_MAX bytes name it then (frame.pull). With qp->lock. May be NULL. */
	bool (*pulls)(struct stream *s, const struct wqe *w);
	/* Unreliable: so many ticks work waits for room while the peer takes nothing. */
	unsigned patience;
	/* A number that changes when the peer takes something, of whichever stream. NULL:
	 * tx.moved. */
	uint64_t (*taken)(struct stream *s);
};

extern const struct carrier tcp_carrier;

struct stream_reply {
	uint32_t len;
	uint8_t data[];
};

struct stream {
	struct lock lock;
	const struct carrier *m;
	atomic_int refs;
	atomic_int want;     /* somebody failed to get the lock: run tx again */
	atomic_int waiting;  /* so many sleep on the lock: stream_lock() */
	enum stream_state state; /* set by stream_set_state() only */
	int err;	     /* why BROKEN: 0 EOF, -errno */
	int fd;
	int out;	     /* written to: fd, but for a QP connected to itself */
	struct stream_param p;
	struct dev_qp *qp;
	bool qp_was;	     /* a QP was attached once */
	struct rc_tx tx;
	struct rc_rx rx;

	/* user */
	const struct stream_user *ops;
	void *user;	     /* NULL after stream_release() */
	struct list up;	     /* struct ctl_msg for the user, up_count of them */
	unsigned up_count;
	struct stream_reply *answer; /* to a call, for the user; or NULL */
	bool up_asked;	     /* the user is to be told that its call is out */
	bool up_closed, up_closed_told, up_released, user_gone;
	bool calling;	     /* a call (shm/call.c): not open yet */
	struct loop_work up_work;

	struct loop_fd lf;   /* while no QP is attached */
	struct poll_source src; /* while one is */
	bool kicked;	     /* by stream_kick(), which comes again for tx.more */
	bool grouped;	     /* pollers of its QP's CQ watch it, not the thread alone */
	bool joined;	     /* in a poll group, or on the way in or out: must not close */
	bool input_held;	     /* plain, no QP yet: what comes waits in the socket */
	bool peer_ended;	     /* ... and behind it is the end */
	bool terminated;     /* plain: Terminate was sent or came */
	bool ending;	     /* plain: as if both holders had gone */
	bool shut;	     /* SHUT_WR done: only read to EOF */
	uint32_t fpdu_max;   /* payload of one FPDU */
	uint64_t speak_at;   /* tx.silent ends, if not 0 */
	struct loop_timer timer; /* hold, retry, closing: the earliest */
	uint64_t timer_at;
	uint64_t close_by;

	struct list match;    /* match_lock */
	struct shm_part shm; /* of the carrier shm_carrier */
};

/* Nothing is to be sent before the next request, or beside it, but perhaps an
 * acknowledgement. */
static inline bool stream_settled(const struct stream *s)
{
	const struct rc_tx *tx = &s->tx;
	const struct rc_rx *rx = &s->rx;

	return tx->hold == HOLD_NONE && !tx->off && !tx->imm_sent && !tx->resync &&
	       !tx->silent && !tx->blocked && !tx->drain && !tx->more && !tx->part &&
	       !tx->first && list_empty(&tx->ctl) && !rx->nak && !rx->go_on &&
	       !rx->failure.due && rx->resp_head == rx->resp_tail;
}

/* Unlocks; true if somebody asked meanwhile: stream_kick() is the caller's then. */
NO_TSA static inline bool stream_put_lock(struct stream *s)
{
	lock_put(&s->lock);
#if !defined(__x86_64__) /* there the unlock itself is a full barrier */
	atomic_thread_fence(memory_order_seq_cst);
#endif
	return atomic_load(&s->want);
}

/* conn.c */
struct stream *stream_open(int fd, const struct stream_param *p,
			   const uint8_t *first, size_t len,
			   const struct stream_user *ops, void *user);
/* A QP connected to itself: reads from one end of a socket pair what it writes
 * to the other. Requester and responder share no state, so one stream serves. */
int stream_open_self(const struct stream_param *p);
int stream_control(struct stream *s, enum stream_ctl type, const uint8_t *data,
		   size_t len);
void stream_release(struct stream *s);
void stream_abort(struct stream *s);
bool stream_has_news(struct stream *s); /* for its user */
void stream_get(struct stream *s);
void stream_put(struct stream *s);
void stream_lock(struct stream *s) ACQUIRE(s->lock);
/* tx_run() as soon as the lock is free, by whoever holds it. */
void stream_kick(struct stream *s);
/* Unlocks, and runs tx again if somebody asked meanwhile. */
void stream_unlock(struct stream *s) RELEASE(s->lock);
void stream_set_state(struct stream *s, enum stream_state to) REQUIRES(s->lock);
/* The connection is over: err 0 for EOF. The QP's work fails with
 * RETRY_EXC_ERR, the user is told. */
void stream_broken(struct stream *s, int err, const char *why) REQUIRES(s->lock);
void stream_timer(struct stream *s, uint64_t when) REQUIRES(s->lock);
/* There is something to tell the user. */
void stream_up_post(struct stream *s) REQUIRES(s->lock);
void stream_up(struct stream *s, const struct rc_frame *h) REQUIRES(s->lock);
/* tx.blocked may have changed. */
void stream_want_output(struct stream *s) REQUIRES(s->lock);
/* Receives, acknowledges, sends; true if anything moved. */
bool stream_progress(struct stream *s, bool by_thread) REQUIRES(s->lock);
/* The second half of it. asked: an ack was asked for before this pass. */
void stream_after(struct stream *s, bool by_thread, bool asked, bool moved)
	REQUIRES(s->lock);
/* Nothing more will come. */
void stream_peer_closed(struct stream *s, int err) REQUIRES(s->lock);
/* Without holders yet; stream_start() makes it receive and offers it to its QP. */
struct stream *stream_new(const struct carrier *m, const struct stream_param *p);
int stream_start(struct stream *s);
/* epoll's bits of what the stream waits for. */
uint32_t stream_events(const struct stream *s) REQUIRES(s->lock);
/* The peer ended before our QP was there. What it had said is still for that QP;
 * `rest`: there is something. */
void stream_ended_early(struct stream *s, bool rest, int err) REQUIRES(s->lock);
/* Joins and separates a stream and a QP; the caller serialises both (match.c). */
int stream_attach(struct stream *s, struct dev_qp *qp);
void stream_detach(struct stream *s, struct dev_qp *qp);
/* A plain stream ends: what is queued leaves, then TCP closes. Nothing happens to
 * an extended one. */
void stream_end(struct stream *s) REQUIRES(s->lock);
/* The QP's work is over: its memory is not touched after this. */
void stream_stop(struct stream *s) REQUIRES(s->lock);

/* match.c */
int match_attach(struct dev_qp *qp);
void match_detach(struct dev_qp *qp);
void match_kick(struct dev_qp *qp); /* work posted, no stream yet */
void match_offer(struct stream *s); /* offer it; attaches if a QP waits */
void match_withdraw(struct stream *s);
void match_expect(const union ibv_gid *gid, uint32_t qpn);
void match_unexpect(const union ibv_gid *gid, uint32_t qpn);

/* tx.c: sends what it can. */
void tx_run(struct stream *s) REQUIRES(s->lock);
/* carrier.send of TCP. */
void tx_tcp(struct stream *s) REQUIRES(s->lock);
/* The QP's memory must not be used any more: keeps a begun FPDU as a copy. */
void tx_own_part(struct stream *s) REQUIRES(s->lock);
void tx_ctl(struct stream *s, const struct rc_frame *h) REQUIRES(s->lock);
bool tx_drained(const struct stream *s);
/* The WQE at sq.next cannot be sent, by batch.fail (or a response cannot be read). */
void tx_build_failed(struct stream *s, int fail) REQUIRES(s->lock);
void tx_fini(struct stream *s);

/* rx.c: receives what is there, at most a turn; true if anything came. Nothing is
 * taken while rx.wait is set and its receive is not there. */
bool rx_run(struct stream *s) REQUIRES(s->lock);
/* A frame whose header is in rx.h: what is to become of it; its payload, in pieces;
 * its effects. -errno breaks the stream. */
int rx_frame_begin(struct stream *s) REQUIRES(s->lock);
/* The frame that waited for a receive (rx.wait), once more: its beginning or its end. */
int rx_resume(struct stream *s) REQUIRES(s->lock);
void rx_copy(struct stream *s, const uint8_t *p, uint32_t n) REQUIRES(s->lock);
/* The next n bytes of it are brought by fetch(arg, s, where they go). 0: they are in
 * their place, or have none (rx.place); else what fetch() returned. */
typedef int rx_fetch_fn(const void *arg, struct stream *s, const struct iovec *iov, int n);
int rx_fetch(struct stream *s, uint32_t n, rx_fetch_fn *fetch, const void *arg)
	REQUIRES(s->lock);
int rx_frame_end(struct stream *s) REQUIRES(s->lock);

/* requester.c */
/* The number of the n-th request of the QP. */
static inline uint32_t req_number(const struct stream *s, uint32_t n)
{
	return (s->qp->attr.sq_psn + n) & 0xffffff;
}
void req_begin(struct stream *s) REQUIRES(s->lock); /* attached */
void req_sent(struct stream *s) REQUIRES(s->lock); /* a request has left */
/* Plain: TCP has all of what was sent. With qp->lock. */
void req_carried_locked(struct stream *s) REQUIRES(s->lock);
/* Carries out the local work at sq.next. True: it has failed, and req_hold_over()
 * is due when qp->lock, with which it is called, is not held any more. */
bool req_local_locked(struct stream *s) REQUIRES(s->lock);
/* Carries out directly what is at sq.next, if that may be and *left bytes of the turn
 * are; true: look again. Called with qp->lock, which it may let go meanwhile. */
bool req_direct_locked(struct stream *s, uint32_t *left) REQUIRES(s->lock);
/* The WQE at this index waits for those before it to be answered. */
bool req_drains_before(struct stream *s, uint32_t idx) REQUIRES(s->lock);
void req_ack(struct stream *s, uint32_t number) REQUIRES(s->lock);
/* With qp->lock; nothing is held. False: there is something wrong with it, or nothing
 * to be done. */
bool req_ack_locked(struct stream *s, uint32_t number) REQUIRES(s->lock);
void req_nak(struct stream *s, const struct rc_frame *h) REQUIRES(s->lock);
void req_recv_posted(struct stream *s) REQUIRES(s->lock);
void req_hold_over(struct stream *s) REQUIRES(s->lock);
/* Response frames: checks the header, then the end. -EPROTO breaks the stream. */
int req_read_begin(struct stream *s, const struct rc_frame *h) REQUIRES(s->lock);
void req_read_end(struct stream *s) REQUIRES(s->lock);
int req_atomic_resp(struct stream *s, const struct rc_frame *h) REQUIRES(s->lock);
struct wqe *req_oldest_read(struct stream *s, uint32_t *idx);
void req_timer(struct stream *s, uint64_t now) REQUIRES(s->lock);
void req_fail(struct stream *s, uint32_t idx, enum ibv_wc_status st,
	      const char *why) REQUIRES(s->lock);
/* The oldest WQE that is not complete fails; nothing happens if there is none. */
void req_fail_oldest(struct stream *s, enum ibv_wc_status st, const char *why)
	REQUIRES(s->lock);
/* The connection is over. Work that is there, or comes, fails as it does on a
 * wire where nobody answers: when the QP's retries have run out, but after a
 * second at the latest. A peer that is done destroys its QPs while we may still
 * be sending; nobody who stops in time hears of it, as on hardware. */
void req_peer_gone(struct stream *s) REQUIRES(s->lock);
uint64_t req_budget(const struct dev_qp *qp); /* ns; UINT64_MAX: never */

/* responder.c */
int resp_begin(struct stream *s) REQUIRES(s->lock); /* header of a request */
void resp_end(struct stream *s) REQUIRES(s->lock);  /* its payload is placed */
/* The peer says that it has placed the len bytes before the (empty) Write's offset
 * itself. They are checked as if they had come with it. 0 or -EPROTO. */
int resp_placed(struct stream *s, uint32_t len) REQUIRES(s->lock);
/* A whole request was carried out; rx.h.ack_req is its. */
void resp_accepted(struct stream *s) REQUIRES(s->lock);
/* What is owed has been acknowledged. */
void resp_acked(struct stream *s) REQUIRES(s->lock);
void resp_nak(struct stream *s, enum nak_code code) REQUIRES(s->lock);
void resp_fail(struct stream *s, enum nak_code code, enum ibv_wc_status st, int ev,
	       const char *why) REQUIRES(s->lock);
/* Answers have left: a failure that waited for them happens now. */
void resp_settle(struct stream *s) REQUIRES(s->lock);
/* The QP goes away: answers still owed will never come. */
void resp_lost(struct stream *s) REQUIRES(s->lock);
/* The memory of the oldest response is gone: it and what follows are refused. err:
 * -EFAULT, it was unmapped; else what mr_get_remote() says. */
void resp_unreadable(struct stream *s, int err) REQUIRES(s->lock);
void resp_resync(struct stream *s, const struct rc_frame *h) REQUIRES(s->lock);
/* Plain: what came is no valid FPDU, or not the one that had to come. */
void resp_bad_frame(struct stream *s, int err) REQUIRES(s->lock);

/* uc.c: what is different on an unreliable stream. */
/* The carrier is the end of it: work completes when it has been taken. */
static inline bool stream_unacked(const struct stream *s)
{
	return !s->p.extended || s->p.unreliable;
}
/* Completes the work of a QP that nobody will hear, as a wire without a peer does;
 * what cannot be read locally fails all the same. */
void uc_vanish(struct dev_qp *qp);
/* The same, for a stream that is broken or stalled. */
void uc_gone(struct stream *s) REQUIRES(s->lock);
/* After an attempt to send: is the carrier stuck? */
void uc_sent(struct stream *s) REQUIRES(s->lock);
void uc_timer(struct stream *s, uint64_t now) REQUIRES(s->lock);
/* A message ends in the middle: the peer is told before the next one. */
void uc_cut(struct stream *s) REQUIRES(s->lock);
/* No receive is posted: true if the message waits for one a moment (rx.wait). */
bool uc_late(struct stream *s, int where) REQUIRES(s->lock);
/* The message that is being received is discarded to its end. */
void uc_drop(struct stream *s) REQUIRES(s->lock);
/* ... for this reason; the QP fails if st is an error of its own. */
void uc_refuse(struct stream *s, enum ibv_wc_status st, const char *why)
	REQUIRES(s->lock);
/* A frame has ended: a discarded message may end with it. */
void uc_frame_end(struct stream *s) REQUIRES(s->lock);

/* sge.c: scatter/gather lists. */

/* A list, the PD of its keys, and the access that is waiter (as for mr_get()). */
struct sge_list {
	struct dev_pd *pd;
	const struct ibv_sge *sge;
	unsigned n, access;
};

/* The caller's arrays for mapped memory, of max entries each: refs[i] holds the key of
 * iov[i] in use. */
struct sge_mem {
	struct iovec *iov;
	struct mr_slot **refs;
	unsigned max;
};

static inline struct sge_list wqe_sge_list(const struct dev_qp *qp, const struct wqe *w,
					   unsigned access)
{
	return (struct sge_list){ qp->pd, w->sge, w->num_sge, access };
}

/* Maps [off, off+len) of the list to memory. Returns the number of iovecs, or -errno of
 * mr_get(), or -E2BIG when mem->max is too small for the whole range (never with
 * mem->max >= list->n). The caller ends the use with sge_unmap(). */
int sge_map(const struct sge_list *list, uint32_t off, uint32_t len, struct sge_mem *mem);
/* Maps a range of memory that the peer of qp may read or write to one iovec. Returns 1,
 * or -errno of mr_get_remote(). */
int sge_map_remote(struct dev_pd *pd, const struct dev_qp *qp, const struct mr_range *r,
		   unsigned access, struct sge_mem *mem);
void sge_unmap(struct mr_slot **refs, int n);
/* Is all of the list accessible now? Key and address of an empty entry mean
 * nothing. 0 or -errno of mr_get(). */
int sge_check(const struct sge_list *list);
/* Copies into memory that a peer's CPU or an application may be watching: the
 * last aligned word is stored last, in one piece (DESIGN, write order). 0, or
 * -EFAULT: the application has unmapped it. */
int place_bytes(void *dst, const void *src, size_t len);
/* Where src may be unmapped, too. */
int place_bytes_from(void *dst, const void *src, size_t len);
/* The same to all of a list; and from one, without the order. */
int place_iov(const struct iovec *iov, int n, const void *src);
int take_iov(void *dst, const struct iovec *iov, int n);

#endif
