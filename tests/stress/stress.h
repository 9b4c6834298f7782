/* SPDX-License-Identifier: BSD-2-Clause */
/* The two sides of the random-operation stress and their endpoints.
 *
 * A side has the objects of one program: a context, CQs, SRQs, memory, a CM
 * channel, threads. Both sides run in one process, or each in its own. An endpoint
 * (struct ep) is a side's end of a link: a QP with a model of its queues that says
 * which completion may come next.
 *
 * Locks, outer first: cq.lock > ep.life > ep.sq.lock, ep.rq.lock, ep.mail_lock,
 * srq.lock. Nobody waits under sq.lock or rq.lock. */
#ifndef ANYRDMA_STRESS_H
#define ANYRDMA_STRESS_H

#include "shared.h"

#include <errno.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdarg.h>

struct ep;
struct side;

/* ---- failing, watching (watch.c) ------------------------------------------ */

/* Prints the endpoint (or NULL) and everything that repeats the run; exits. */
void fail(struct ep *e, const char *fmt, ...)
	__attribute__((noreturn, format(printf, 2, 3)));

enum { TRACES = 64, TRACE_LEN = 120 };

/* The last things that happened; guarded as what it belongs to. */
struct trace {
	unsigned n;
	char line[TRACES][TRACE_LEN];
};
void trace(struct trace *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

uint64_t now_ms(void);
/* The pause of a loop that polls; whether it ends is watch's business (--stall). */
void nap_us(unsigned us);
void watch_start(struct side *s);

/* ---- memory (buf.c) -------------------------------------------------------- */

enum { GUARD = 16 };

/* Given out and taken back first in, first out. */
struct arena {
	uint8_t *p;
	uint32_t size;
	uint64_t head, tail;
	uint32_t key;
};

/* Pieces of memory of one work request, with guards around each. */
struct bufs {
	unsigned n;
	uint8_t *p[MAX_PIECES];
	uint32_t len[MAX_PIECES];
	uint32_t key;
	uint32_t skip; /* buf_check(): bytes before the contents (GRH) */
	bool in_arena;
	uint64_t end; /* arena: head after it is given back */
};

/* Which pieces buf_make() makes. */
struct buf_plan {
	uint8_t *slot; /* memory to use, with this key; NULL: the arena's */
	uint32_t slot_key;
	uint32_t len;	  /* of all pieces together */
	uint32_t content; /* the first so many bytes will be overwritten */
	unsigned n;
	uint64_t split; /* decides how long each piece is */
};

/* False when the arena has no room now. */
bool buf_make(struct bufs *b, struct arena *a, const struct buf_plan *plan);
void buf_free(struct bufs *b, struct arena *a);
void buf_fill(const struct bufs *b, uint64_t key, uint64_t off);
/* The first len bytes are the contents of key from off on, the rest is untouched. */
void buf_check(struct ep *e, const struct bufs *b, uint64_t key, uint64_t off, uint32_t len,
	       const char *what);
int buf_sges(const struct bufs *b, struct ibv_sge *sge);

/* ---- queues ----------------------------------------------------------------- */

enum { HOLDS = 1024, SQ_RECS = 512, RQ_RECS = 256, RQ_AHEAD = 2048, STASH = 256 };

/* wr_id: what << 60 | link << 48 | generation << 32 (16 bits) | number; of an SRQ:
 * what << 60 | SRQ << 24 | slot. */
enum wr_what { WR_SEND = 1, WR_RECV, WR_SRQ };

static inline uint64_t wr_id(enum wr_what what, unsigned link, uint32_t gen, uint32_t n)
{
	return (uint64_t)what << 60 | (uint64_t)link << 48 | (uint64_t)(gen & 0xffff) << 32 | n;
}

struct sq_rec {
	struct op op;
	struct bufs b;
	uint64_t guess;	  /* OP_CAS_SHARED */
	uint32_t inv_key; /* OP_SEND_INV: what it invalidates, or 0 */
};

/* Completions that came before their turn, on a CQ that several threads poll. */
struct stash {
	unsigned n;
	struct ibv_wc wc[STASH];
};
struct ep;
/* Adds wc, then applies all whose turn it is: the number in wr_id is *head, which apply()
 * moves on. */
void stash_add(struct stash *st, struct ep *e, const struct ibv_wc *wc,
	       const uint32_t *head,
	       void (*apply)(struct ep *e, const struct ibv_wc *wc));

/* A place in the ring of the peer that must not be overwritten: a write that the
 * peer has not looked at, or an unanswered read. */
struct hold {
	uint64_t at;
	uint32_t seq;
	bool read;
};

struct sq {
	pthread_mutex_t lock;
	bool open;	   /* posting is allowed */
	bool live;	   /* completions are expected */
	struct plan plan;
	struct op next;	   /* drawn, not yet posted */
	bool have_next;
	uint32_t head, tail; /* requests not known to be over */
	bool err;	   /* one has failed: the rest is flushed */
	bool final, marker, fault_posted;
	int token;	   /* of request token_seq, or -1 */
	uint32_t token_seq;
	bool token_reads;
	struct hold hold[HOLDS];
	uint32_t hold_head, hold_tail;
	uint64_t credit_at; /* UD: ms when it no longer waits for a receive, or 0 */
	const char *waits; /* why nothing was posted last */
	uint64_t guess[CAS_WORDS];
	uint32_t window_shut; /* version of the peer's window that we gave up */
	uint32_t window_used; /* number of the last request through it, + 1 */
	struct sq_rec rec[SQ_RECS];
	struct stash stash;
	struct trace trace;
};

struct rq_rec {
	struct bufs b;
	struct op op; /* the message it is for */
};

struct rq {
	pthread_mutex_t lock;
	bool open, live;
	struct plan plan;    /* of the peer, walked up to the last receive posted */
	struct op next;	     /* message that wants a receive */
	bool have_next;
	const char *waits;
	struct op *ahead;    /* RQ_AHEAD requests walked and not yet seen to be done */
	uint32_t ahead_head, ahead_tail;
	uint32_t head, tail; /* receives */
	bool err, final;
	bool starved;	     /* F_RNR: no more receives */
	struct rq_rec rec[RQ_RECS];
	struct stash stash;
	struct trace trace;
};

/* ---- endpoints (ep.c, raw.c, cm.c) -------------------------------------------- */

enum ep_state {
	EP_IDLE,    /* between two generations */
	EP_CONNECT, /* until both QPs are ready to send */
	EP_RUN,
	EP_DRAIN,   /* in ERR: everything comes back flushed */
	EP_QUIET,   /* the QP is gone; waiting for the peer's */
};

/* Of the window that an endpoint opens for its peer. */
enum mw_state { MW_CLOSED, MW_BINDING, MW_OPEN, MW_CLOSING };

enum { GONE = 256 };

enum cm_step { CM_BEGIN, CM_ADDR, CM_ROUTE, CM_CONNECT, CM_ACCEPT };

/* What the CM's events say, until a step of the endpoint reads it. */
struct mail {
	bool addr, route, established, disconnected;
	int error, status; /* an event that ends the attempt, or -1 */
	struct rdma_cm_id *request;
};

struct ep {
	struct side *side;
	unsigned link;
	pthread_mutex_t life; /* guards all up to mail_lock; changes of the QP */
	enum ep_state state;
	_Atomic uint32_t gen; /* written with both queues' locks and mail_lock, too */
	struct cfg c;	      /* likewise */
	struct ibv_qp *qp;    /* likewise (not mail_lock) */
	struct ibv_qp *rqp;   /* XRC: the one that receives */
	struct ibv_ah *ah;    /* UD: of the peer; sq.lock */
	struct rdma_cm_id *id;
	enum cm_step cm_step;
	bool disconnected;    /* we have called rdma_disconnect */
	_Atomic uint32_t peer_life;
	bool dirty;	      /* the QP went away with completions pending */
	uint64_t react_at;
	uint64_t win_hash;    /* of memory that must not change any more, or 0 */
	struct ibv_mr *win_mr;
	uint32_t stale_key;
	struct ibv_mw *mw;
	uint32_t mw_version, mw_key; /* sq.lock */
	bool paused;	      /* in SQD */
	struct rng r;
	struct trace trace;

	pthread_mutex_t mail_lock;
	struct mail mail;

	_Atomic uint32_t qpn, rqpn; /* that sends, that receives; 0: none */
	_Atomic bool closing;  /* our end was moved to ERR by us */
	_Atomic int mw_state;  /* enum mw_state */
	_Atomic bool sq_idle;  /* SQ_DRAINED has come */
	_Atomic bool used;     /* the QP served a generation that has ended */
	_Atomic bool err_seen; /* a completion with an error was seen */
	_Atomic uint64_t last_wqe; /* side.clock after LAST_WQE_REACHED, or 0 */
	_Atomic uint64_t stamp;	   /* ms: something moved */
	_Atomic uint64_t heard;	   /* ms: UD: a message has come, or nothing can any more */
	/* Of the last generations: side.clock after the end of its QP << 16 | number. */
	_Atomic uint64_t gone[GONE];

	struct sq sq;
	struct rq rq;
	struct arena tx, rx;
	uint8_t *win; /* ring, cell, word: what the peer writes to */
};

/* One look at the endpoint; true if something moved. Any thread. */
bool ep_step(struct ep *e);
void ep_init(struct ep *e, struct side *s, unsigned link);
/* Idle, and told to stay so. */
bool ep_over(struct ep *e);
void ep_moved(struct ep *e);
/* Errors may be seen. */
bool ep_trouble(struct ep *e);
/* A completion of generation gen that came from a poll begun at clock `began`: may
 * it be forgotten, as its QP went away meanwhile? Else fails. */
void ep_late(struct ep *e, uint32_t gen, uint64_t began, const char *what);
const char *ep_state_str(enum ep_state s);

struct sh_end *end_mine(const struct ep *e);
struct sh_end *end_peer(const struct ep *e);
/* The peer's phase if it is in our generation, else -1. */
int peer_phase(const struct ep *e);
/* The peer's process was killed since the generation began. */
bool peer_died(const struct ep *e);

/* raw.c: 0 or an errno, as ibv_modify_qp. */
int raw_create(struct ep *e);
int raw_init(struct ep *e);
int raw_connect(struct ep *e);
int qp_set_state(struct ibv_qp *qp, enum ibv_qp_state st);
void qp_attr_fill(struct ep *e, struct ibv_qp_init_attr *a);
void qp_attr_ex_fill(struct ep *e, struct ibv_qp_init_attr_ex *x);

/* cm.c */
void cm_open(struct side *s);
void cm_start(struct side *s);
void cm_close(struct side *s);
/* True when the connection stands. */
bool cm_step(struct ep *e);
void cm_destroy(struct ep *e);

/* sq.c: true if something was posted. */
bool sq_run(struct ep *e, struct rng *r);
void sq_begin(struct ep *e);
/* In ERR: something that comes back after all else. */
void sq_mark(struct ep *e);
void sq_completed(struct ep *e, const struct ibv_wc *wc, uint64_t began);

/* wr.c: work requests and how they are posted. */
enum { CHAIN = 8, INLINE_MAX = 1024 };
struct chain {
	unsigned n;
	struct ibv_send_wr wr[CHAIN];
	struct ibv_sge sge[CHAIN][MAX_PIECES];
	uint8_t scratch[CHAIN][INLINE_MAX]; /* inline data */
};
void wr_fill(struct ep *e, struct sq_rec *rec, struct ibv_send_wr *wr, struct ibv_sge *sge);
/* 0 or an errno; *done: how many of them were posted. */
int wr_post(struct ep *e, struct chain *c, struct rng *r, unsigned *done);

/* window.c, all but window_taken() with sq.lock */
void window_open(struct ep *e);
void window_close(struct ep *e);
/* OP_BIND, OP_UNBIND: fills wr, or makes something else of the request. */
void window_fill(struct ep *e, struct sq_rec *rec, struct ibv_send_wr *wr);
void window_done(struct ep *e, const struct op *op);
/* The key of the peer's window, or 0: a request through it. */
uint32_t window_use(struct ep *e, const struct op *op);
/* OP_SEND_INV: the key to invalidate, or 0. */
uint32_t window_give_up(struct ep *e, const struct op *op);
void window_tick(struct ep *e);
/* The peer has invalidated it. */
void window_taken(struct ep *e, uint32_t key);

/* rq.c */
bool rq_run(struct ep *e, struct rng *r);
void rq_begin(struct ep *e);
void rq_completed(struct ep *e, const struct ibv_wc *wc, uint64_t began);
/* A message has come into an SRQ's buffer, or was flushed. */
void rq_srq_completed(struct ep *e, const struct ibv_wc *wc, const struct bufs *b);
/* Both ends are quiet: what the peer was told is done must be there. */
void rq_verify_end(struct ep *e);

/* ud.c */
enum { UD_GRH = 40 };
/* The address of the peer: sq.lock, or nobody posts. */
void ud_address_make(struct ep *e);
void ud_address_free(struct ep *e);
/* With another handle from now on; the one before is destroyed. */
void ud_address_renew(struct ep *e);
uint32_t ud_qkey(const struct ep *e);
/* A receive has stayed away for so long that what was to use it may be lost. */
bool ud_impatient(struct sq *q);
/* Which message of the peer this is: not corrupt, not one that has come, none before the
 * last that has come. */
void ud_expect(struct ep *e, struct op *op, const struct ibv_wc *wc, const struct bufs *b);
/* The first 40 bytes and what else tells where it came from. */
void ud_check_origin(struct ep *e, const struct ibv_wc *wc, const struct bufs *b);
/* Nothing more can come: the peer has sent all, and what was lost does not come. */
bool ud_all_heard(struct ep *e);

/* ---- CQs, SRQs, sides ------------------------------------------------------------ */

enum cq_mode { CQ_POLLED, CQ_EVENTS, CQ_RACY };

struct cq {
	struct side *side;
	enum cq_mode mode;
	struct ibv_cq *cq;
	struct ibv_cq_ex *ex; /* or NULL */
	uint64_t stamp;	      /* ex: of the last completion */
	pthread_mutex_t lock; /* held around polling and what follows, but CQ_RACY */
	_Atomic uint64_t empty_at; /* clock at the begin of the last poll that found the end */
	bool solicited; /* CQ_EVENTS: armed for those only */
};

/* True if something came. */
bool cq_run(struct cq *q, struct rng *r);
void cq_open(struct side *s);
void cq_close(struct side *s);
void cq_resize(struct cq *q, struct rng *r);
void *cq_events(void *side);

enum { SRQ_SLOTS = 256 };

struct srq {
	struct side *side;
	struct ibv_srq *srq;
	pthread_mutex_t lock;
	struct bufs buf[SRQ_SLOTS];
	uint8_t *mem;
	struct ibv_mr *mr;
	uint16_t free[SRQ_SLOTS];
	unsigned nfree;
	bool posted[SRQ_SLOTS];
	unsigned armed, events; /* SRQ_LIMIT_REACHED */
};

void srq_open(struct side *s);
void srq_close(struct side *s);
bool srq_run(struct srq *q, struct rng *r);
void srq_completed(struct srq *q, const struct ibv_wc *wc, uint64_t began);

struct side {
	int id;
	unsigned life;
	struct ibv_context *ctx;
	struct ibv_pd *pd, *alien_pd;
	struct ibv_port_attr port;
	int gid_index;
	struct rdma_event_channel *ch;
	struct rdma_cm_id *listener;
	struct ibv_comp_channel *comp;
	struct cq cq[MAX_CQS];
	struct srq srq[MAX_SRQS + 1];
	struct ibv_xrcd *xrcd;
	struct ep *ep;

	uint8_t *ep_mem, *fixed, *slots, *closed, *alien;
	size_t ep_mem_len, slots_len, slot_len;
	_Atomic uint64_t *words;
	struct ibv_mr *ep_mr, *fixed_mr, *slots_mr, *closed_mr, *alien_mr, *words_mr;

	_Atomic uint64_t clock; /* orders polls and the ends of QPs */
	_Atomic bool quit;
	pthread_t *workers, events, cm_thread, async_thread, watch_thread;
};

/* Runs a side to its end; 0 when all is well. */
void side_run(int id);
uint8_t *side_slot(struct side *s, int token, bool receive);
void *async_events(void *side);
/* The words that everybody adds to. */
void atom_local(struct side *s, struct rng *r);
void atom_check(struct side *s);

#define OK(call) \
	do { \
		int ok_ = (call); \
		if (ok_) \
			fail(NULL, "%s: %d (errno %d)", #call, ok_, errno); \
	} while (0)
#define MUST(ptr) \
	do { \
		if (!(ptr)) \
			fail(NULL, "%s: errno %d", #ptr, errno); \
	} while (0)

static inline struct side_cfg *my_cfg(struct ep *e)
{
	return &e->c.s[e->side->id];
}

#endif
