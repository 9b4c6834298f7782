/* SPDX-License-Identifier: BSD-2-Clause */
/* Objects of the user-space device. Each begins with the public verbs struct,
 * so that a downcast is one static inline. The public struct's layout is the
 * distribution header's; nothing here is visible to applications.
 *
 * Lock order, outer first; in brackets the locks of other layers:
 *	qp->build.lock, cq->ex_lock	from ibv_wr_start or ibv_start_poll to the end
 *	qp->modify_lock			one ibv_modify_qp() at a time
 *	[match.lock			rc/match.c]
 *	[setups.lock			shm/setup.h]
 *	[udp.lock; mcast.lock		udp/carrier.c; udp/mcast.c]
 *	poll_group.lock			poll.c
 *	[link.rx_lock			shm/link.h]
 *	[the transport's: stream.lock	rc/stream.h; or, of datagrams:
 *	 ud_qp.tx_lock, and inside that of another QP:
 *	 ud_qp.rx_lock			ud/ud.h]
 *	qp->lock
 *	[link.tx_lock			shm/link.h]
 *	xrc.lock			xrc.c
 *	srq->lock
 *	cq->lock
 *	evq.lock			of a completion channel, or a context's events
 *	leases.lock			poll.c
 *	loop.lock			base/loop.c
 * Inside qp->lock, and otherwise alone: bind_lock (mw.c) > table_lock (mr.c) > share.lock
 * (share.c); gid_lock (gid.c). Outside of evq.lock, and otherwise alone: device_lock
 * (device.c). Alone: qpns.lock (qpn.c), null_lock (null.c). Inside modify_lock, and otherwise
 * alone: groups.lock (mcast.c).
 *
 * Of datagrams: udp.lock and mcast.lock are outside of poll_group.lock, as a source is added and
 * removed with them. What a poller runs with poll_group.lock or link.rx_lock only tries tx_lock:
 * it is waited for with modify_lock alone (ud/transport.c). Inside tx_lock, and otherwise alone:
 * udp_port.lock (also inside poll_group.lock). Inside tx_lock and link.rx_lock, and otherwise
 * alone: routes.lock (shm/dgram_route.c). Innermost: the locks of ud/table.c, groups.lock of
 * ud/group.c, ud_qp.answers_lock.
 *
 * No lock is held while another thread is waited for, but for two waits that are bounded
 * (mr.c; mw.c holds bind_lock meanwhile). There are no callbacks of the application. */
#ifndef ANYRDMA_DEV_DEV_H
#define ANYRDMA_DEV_DEV_H

#include "base/evq.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/loop.h"
#include "dev/object.h"

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct dev_av; /* av.h */
struct dev_transport;

/* What the device promises (query_device); checks use the same names. */
enum {
	DEV_MAX_QP = 65536,
	DEV_MAX_QP_WR = 32768,
	DEV_MAX_SGE = 32,
	DEV_MAX_CQ = 65536,
	DEV_MAX_CQE = 4194303,
	DEV_MAX_MR = 1 << 20,
	DEV_MAX_MW = 1 << 20,
	DEV_MAX_PD = 65536,
	DEV_MAX_SRQ = 65536,
	DEV_MAX_SRQ_WR = 32768,
	DEV_MAX_INLINE = 1024,
	DEV_MAX_RD_ATOM = 16,
	DEV_MAX_AH = 65536,
	DEV_MAX_GROUPS = 8192,	   /* multicast groups of the process */
	DEV_MAX_GROUP_QPS = 65536, /* QPs attached to one */
	DEV_GIDS = 256,
	DEV_DEVICES = 8, /* ANYRDMA_DEVICES */
};
#define DEV_MAX_MSG (1u << 31) /* bytes of one message */

/* ---- context, async events -------------------------------------------- */

struct dev_ctx {
	struct verbs_context v; /* v.context is what applications hold */
	unsigned device;	/* number of its device: 0 ... device_count() - 1 */
	uint32_t generation;	/* of the process, when it was opened (base/state.h) */
	atomic_bool failed;	/* it is old for this reason (dev/fatal.c) */
	struct evq async;	/* its fd is v.context.async_fd; also guards the ack counters */
	struct list link;	/* all open contexts, device.c */
	atomic_int refs;	/* one for the opener, one for each object made on it */
};

static inline struct dev_ctx *to_ctx(struct ibv_context *c)
{
	return container_of(c, struct dev_ctx, v.context);
}

/* The number of the device that an object was made on. */
static inline unsigned object_device(const struct dev_object *o)
{
	return to_ctx(o->context)->device;
}

/* ---- protection domain ------------------------------------------------- */

/* The application promises that one thread at a time uses what is made under a thread
 * domain. Nothing is gained from that here, as the loop thread is another one. */
struct dev_td {
	struct ibv_td td;
	struct dev_object object;
	atomic_int refs; /* parent domains: EBUSY while > 0 */
};

static inline struct dev_td *to_td(struct ibv_td *t)
{
	return container_of(t, struct dev_td, td);
}

/* As the device has made it: dev/object.h. */
static inline bool td_intact(struct ibv_td *o)
{
	return object_is(&to_td(o)->object, o->context, to_td(o)->object.handle);
}

/* A PD, or a parent domain, which stands for a PD. An object is counted at the one it was
 * made with; access checks compare pd_root()s. */
struct dev_pd {
	struct ibv_pd pd;
	struct dev_object object;
	atomic_int refs;   /* MRs, QPs, SRQs, AHs, windows, and parent domains and CQs on
			    * it: EBUSY while > 0 */
	struct dev_pd *of; /* parent domain: its PD; else NULL */
	struct dev_td *td; /* parent domain: its thread domain, or NULL */
};

static inline struct dev_pd *to_pd(struct ibv_pd *p)
{
	return container_of(p, struct dev_pd, pd);
}

static inline bool pd_intact(struct ibv_pd *o)
{
	return object_is(&to_pd(o)->object, o->context, o->handle);
}

static inline struct dev_pd *pd_root(struct dev_pd *p)
{
	return p->of ? p->of : p;
}

/* ---- memory: mr.c holds the only access check --------------------------- */

struct dev_qp;

struct mr_slot; /* one key of the key table; never freed, see mr.c */

struct dev_mr {
	struct ibv_mr mr; /* lkey == rkey == key of slot */
	struct dev_object object;
	struct mr_slot *slot;
	uint64_t iova;
	unsigned access;
};

static inline struct dev_mr *to_mr(struct ibv_mr *m)
{
	return container_of(m, struct dev_mr, mr);
}

static inline bool mr_intact(struct ibv_mr *o)
{
	return object_is(&to_mr(o)->object, o->context, o->handle);
}

/* Access that is only read locally needs no flag. */
#define MR_LOCAL_READ 0u

/* Bytes that a work request or a peer names. */
struct mr_range {
	uint32_t key;
	uint64_t addr, len;
};

/* The memory of a range, and the slot of its key, which is held in use. */
struct mr_ref {
	struct mr_slot *slot;
	void *ptr;
};

/* Checks that the range lies in the region named by its local key, that the region
 * belongs to pd and grants all of `access` (IBV_ACCESS_* flags, or
 * MR_LOCAL_READ). On success ref->ptr is the memory and ref->slot is held in use:
 * a deregistration waits until mr_put(). Hold it only around a copy or one
 * non-blocking system call, never while waiting for a peer.
 * -ENOENT no such key, -EPERM other PD, -EACCES flag missing, -ERANGE bounds.
 * The key is checked for len == 0 too. Lock-free; callable under any lock. */
int mr_get(struct dev_pd *pd, const struct mr_range *r, unsigned access,
	   struct mr_ref *ref);
/* The same for the remote key of a region or of a bound window, used by the peer
 * of qp; pd is recv_pd()'s. -EPERM also: a type 2 window of another QP. */
int mr_get_remote(struct dev_pd *pd, const struct dev_qp *qp, const struct mr_range *r,
		  unsigned access, struct mr_ref *ref);
void mr_put(struct mr_slot *s);

/* ---- memory windows: mw.c ------------------------------------------------- */

struct dev_mw {
	struct ibv_mw mw;
	struct dev_object object;
	struct mr_slot *slot; /* its key is published while the window is bound */
};

static inline struct dev_mw *to_mw(struct ibv_mw *m)
{
	return container_of(m, struct dev_mw, mw);
}

static inline bool mw_intact(struct ibv_mw *o)
{
	return object_is(&to_mw(o)->object, o->context, o->handle);
}

/* Unbinds the type 2 window that key names; for sends with invalidate and local
 * invalidates. -EINVAL if it names none that is bound through qp, on its PD. */
int mw_invalidate(const struct dev_qp *qp, uint32_t key);

/* ---- completion queue --------------------------------------------------- */

struct dev_channel {
	struct ibv_comp_channel ch; /* ch.fd == q.fd */
	struct dev_object object;
	struct evq q;		    /* dev_cq.ev_link nodes; its lock guards ev_* of its
				     * CQs and ch.refcnt */
};

static inline struct dev_channel *to_channel(struct ibv_comp_channel *c)
{
	return container_of(c, struct dev_channel, ch);
}

static inline bool channel_intact(struct ibv_comp_channel *o)
{
	return object_is(&to_channel(o)->object, o->context, to_channel(o)->object.handle);
}

/* Which queue has a free slot again when the completion is polled. */
enum cqe_frees { CQE_FREES_NONE, CQE_FREES_SQ, CQE_FREES_RQ, CQE_FREES_SRQ };

struct cqe {
	struct ibv_wc wc;
	struct dev_qp *qp;   /* NULL after the QP was destroyed */
	enum cqe_frees frees;
	uint32_t sq_upto;    /* CQE_FREES_SQ: SQ slots before this index are free */
	struct dev_srq *srq; /* CQE_FREES_SRQ */
	uint64_t stamp;	     /* when it was pushed, if the CQ wants to know: ns of
			      * DEV_CLOCK */
};

/* Completion timestamps and ibv_query_rt_values_ex; one tick is a nanosecond. */
#define DEV_CLOCK CLOCK_MONOTONIC_RAW

enum cq_armed { CQ_IDLE, CQ_ARMED_SOLICITED, CQ_ARMED_ANY };

/* ibv_modify_cq; moderate.c. Guarded by the CQ's lock. */
struct cq_moderation {
	uint32_t count;	      /* completions that make an event; below 2: no moderation */
	uint32_t period;      /* us after which fewer make one */
	uint32_t pending;     /* completions since the CQ was armed */
	unsigned timers;      /* references of the timer */
	struct cond idle;  /* timers became 0 */
	struct loop_timer timer;
};

struct dev_cq {
	union {
		struct ibv_cq cq;
		struct ibv_cq_ex ex;
	};
	struct lock lock; /* guards ring, head, tail, armed, overrun */
	struct cqe *ring;
	uint32_t mask;	/* ring size - 1 */
	uint32_t limit; /* cqe granted: more is an overrun */
	uint32_t head;	/* next to poll */
	_Atomic uint32_t tail; /* written under lock; read without for the emptiness test */
	_Atomic uint32_t head_seen; /* copy of head for the same test */
	_Atomic int armed; /* enum cq_armed; written under lock, read without by poll.c */
	uint32_t told;	    /* behind the last completion that an event told of */
	_Atomic bool answered; /* polled since the last event; written under lock */
	uint32_t solicited; /* behind the last solicited completion */
	bool overrun; /* CQ_ERR was raised; nothing more is stored */
	bool stamped;	     /* cqe.stamp is filled in */
	bool ignore_overrun; /* a completion too many replaces the oldest */
	bool single;	     /* polled by one thread at a time: ex_lock is not used */
	struct cq_moderation mod;
	struct dev_pd *parent; /* parent domain that it was made on, or NULL */
	atomic_int refs; /* QPs and SRQs that complete here: EBUSY while > 0 */

	/* completion events; guarded by channel->q.lock */
	struct list ev_link;   /* on channel->q while ev_pending > 0 */
	uint32_t ev_pending;   /* events queued, not yet fetched */
	uint32_t ev_got;       /* events fetched; destroy waits for acks == got */

	uint32_t async_got;    /* async events fetched (ctx->async.lock) */
	struct poll_group *group; /* dev/poll.h */

	/* ibv_start_poll ... ibv_end_poll; held from one to the other */
	pthread_mutex_t ex_lock;
	struct ibv_wc ex_wc; /* the completion that ibv_wc_read_*() reads */
	uint64_t ex_stamp;   /* its stamp */

	struct dev_object object;
};

static inline struct dev_cq *to_cq(struct ibv_cq *c)
{
	return container_of(c, struct dev_cq, cq);
}

static inline bool cq_intact(struct ibv_cq *o)
{
	return object_is(&to_cq(o)->object, o->context, o->handle);
}

/* Appends a completion; fires the completion channel if armed for it.
 * solicited: the receive was solicited, or wc is an error (counts as such).
 * On a full CQ: CQ_ERR async event once, QP_FATAL for qp, nothing overwritten;
 * returns -EOVERFLOW and the caller moves the QP to ERR without a completion.
 * Called with qp->lock held. */
int cq_push(struct dev_cq *cq, const struct cqe *e, bool solicited);

/* Drops qp's completions (QP reset or destroyed). Called without qp->lock. */
void cq_forget_qp(struct dev_cq *cq, struct dev_qp *qp);
/* Drops those of an XRC SRQ's receives. */
void cq_forget_srq(struct dev_cq *cq, struct dev_srq *srq);

/* True when nothing is there to poll; a hint without the lock. */
static inline bool cq_looks_empty(struct dev_cq *cq)
{
	return atomic_load_explicit(&cq->tail, memory_order_acquire) ==
	       atomic_load_explicit(&cq->head_seen, memory_order_relaxed);
}

/* ---- work queues --------------------------------------------------------
 *
 *	free        done            next          tail
 *	 |           |               |             |
 *	 v  completed, not polled    v   posted    v
 *	-+-----------+===============+-------------+--   send queue
 *		       sent, or being sent,
 *		       not yet acknowledged
 *
 * All four only grow (mod 2^32); slot = index & mask. `free` moves when a
 * signalled completion is polled, so unsignalled work holds its slot until a
 * later signalled one was polled, as on hardware. `next` belongs to the
 * transport: it is written with the transport's lock and qp->lock held, so either
 * is enough to read it, and it may step back for a repeat (sq_step_back()); only a
 * flush writes it too, after the transport has stopped. `done` moves in
 * sq_retire_locked(). */

struct wqe {
	uint64_t wr_id;
	uint32_t send_flags;	/* IBV_SEND_*; SIGNALED set if sq_sig_all */
	uint8_t opcode;		/* enum ibv_wr_opcode */
	uint8_t finished;	/* transport: acknowledged or answered, or WQE_DIRECT;
				 * sq_retire_locked() may pass it */
	uint8_t is_inline;	/* the payload is in wqe_inline(), there are no SGEs */
	uint8_t num_sge;
	uint32_t length;	/* bytes of payload */
	uint32_t imm_or_rkey;	/* imm_data (network order) or invalidate_rkey; bind:
				 * slot_key_base() of the window */
	uint32_t rkey;
	uint32_t srqn;		/* XRC: the peer's SRQ */
	uint64_t raddr;		/* RDMA and atomic target; bind: where the window begins */
	union {
		struct {
			uint64_t compare_add;
			uint64_t swap; /* atomic write that is_inline: its bytes */
		};
		struct { /* IBV_WR_BIND_MW; rkey is the new key */
			uint64_t bind_len;
			uint32_t bind_lkey; /* of the region; 0: none */
			uint32_t bind_access;
		};
		struct { /* UD */
			struct dev_av *av; /* counted; the device gives it back when the
					    * WQE completes or is flushed */
			uint32_t remote_qpn;  /* 24 bit */
			uint32_t remote_qkey; /* to be sent: the QP's own if the request
					       * had bit 31 set */
		};
	};
	uint8_t begun;		/* transport: at sq.next, and a part of it was sent or
				 * carried out; see sq_begun() */
	uint8_t pulled;		/* transport: the peer fetches payload itself, or did */
	uint32_t got;		/* transport: bytes of a read response placed */
	struct ibv_sge sge[];	/* or inline data */
};

/* wqe.finished: carried out without a message, and so without a number. */
enum { WQE_DIRECT = 2 };

static inline uint8_t *wqe_inline(struct wqe *w)
{
	return (uint8_t *)w->sge;
}

/* Fetch and add, compare and swap. */
static inline bool wqe_is_atomic(const struct wqe *w)
{
	return w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
	       w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
}

/* Answered by a response, not by an acknowledgement: reads and atomics. */
static inline bool wqe_is_read(const struct wqe *w)
{
	return w->opcode == IBV_WR_RDMA_READ || w->opcode == IBV_WR_ATOMIC_WRITE ||
	       wqe_is_atomic(w);
}

static inline bool wqe_is_send(const struct wqe *w)
{
	return w->opcode == IBV_WR_SEND || w->opcode == IBV_WR_SEND_WITH_IMM ||
	       w->opcode == IBV_WR_SEND_WITH_INV;
}

/* Carried out without a message to the peer: by the device (sq_run_local_locked()), or by
 * the transport (WQE_DIRECT). */
static inline bool wqe_is_local(const struct wqe *w)
{
	return w->opcode == IBV_WR_BIND_MW || w->opcode == IBV_WR_LOCAL_INV ||
	       w->finished == WQE_DIRECT;
}

struct rqe {
	uint64_t wr_id;
	uint32_t num_sge;
	uint32_t length; /* sum of the SGEs, at most DEV_MAX_MSG: no message is longer */
	struct ibv_sge sge[];
};

struct dev_sq {
	uint8_t *mem;
	uint32_t stride, mask;
	uint32_t max_wr, max_sge, max_inline;
	_Atomic uint32_t free; /* moved by a poll, under the CQ's lock: a poller may not
				* take qp->lock; the QP outlives it, see cq_forget_qp() */
	uint32_t done, next, tail;
	uint32_t begun; /* WQEs before it were begun once, even if next stepped back */
	bool sig_all;
};

struct dev_rq {
	uint8_t *mem;
	uint32_t stride, mask;
	uint32_t max_wr, max_sge;
	uint32_t head, tail;  /* head: next to be used; tail: next to be posted */
	_Atomic uint32_t outstanding; /* posted, completion not yet polled: limit max_wr;
				       * a poll lowers it under the CQ's lock */
};

static inline struct wqe *sq_at(struct dev_sq *sq, uint32_t idx)
{
	return (struct wqe *)(sq->mem + (size_t)(idx & sq->mask) * sq->stride);
}

static inline struct rqe *rq_at(struct dev_rq *rq, uint32_t idx)
{
	return (struct rqe *)(rq->mem + (size_t)(idx & rq->mask) * rq->stride);
}

/* Index after the last WQE that was begun. */
static inline uint32_t sq_begun(struct dev_sq *sq)
{
	uint32_t upto = sq->next;

	if (upto != sq->tail && sq_at(sq, upto)->begun)
		upto++;
	return sq->begun - upto <= sq->tail - upto ? sq->begun : upto;
}

/* The transport will send again from idx on. Called with qp->lock held. */
static inline void sq_step_back(struct dev_sq *sq, uint32_t idx)
{
	sq->begun = sq_begun(sq);
	if (sq->next != sq->tail)
		sq_at(sq, sq->next)->begun = 0;
	sq->next = idx;
}

struct dev_xrcd; /* xrc.h */
struct xrc_target;

struct dev_srq {
	struct ibv_srq srq;
	struct lock lock; /* guards rq, limit, waiting */
	struct dev_rq rq;
	uint32_t limit;	     /* SRQ_LIMIT_REACHED fires once when fewer remain; 0 = off */
	struct list waiting; /* QPs that found no receive: dev_qp.srq_wait */
	struct cond unpinned; /* some dev_qp.srq_pins became 0 */
	struct dev_pd *pd;   /* pd_root(); srq.pd is what it was made with */
	atomic_int refs;     /* QPs using it */
	uint32_t ev_got;     /* async events fetched (guarded by ctx->async.lock) */

	/* XRC: else all zero. The last three are guarded by xrc.c's lock. */
	struct dev_xrcd *xrcd;
	struct dev_cq *cq;	 /* receives complete here */
	uint32_t number;	 /* 24 bit: what peers name it by */
	struct list number_link;
	struct list targets;	 /* receive QPs that use it: xrc_target.srq_link */

	struct dev_object object;
};

static inline struct dev_srq *to_srq(struct ibv_srq *s)
{
	return container_of(s, struct dev_srq, srq);
}

static inline bool srq_intact(struct ibv_srq *o)
{
	return object_is(&to_srq(o)->object, o->context, o->handle);
}

/* ---- queue pair --------------------------------------------------------- */

/* Requests between ibv_wr_start and ibv_wr_complete, in SQ slots behind the tail
 * (qp_ex.c). */
struct qp_build {
	pthread_mutex_t lock; /* outermost, error checking: held from start to complete;
			       * guards the rest, and keeps other posts out */
	bool open;
	bool has_data;	/* a data setter was called for the last request */
	int err;	/* the first error, positive */
	uint32_t first; /* SQ index of the first request */
	uint32_t n;
};

struct dev_qp {
	union {
		struct ibv_qp qp; /* qp.state is the truth, written by qp_state.c only */
		struct ibv_qp_ex ex;
	};
	struct lock lock; /* guards qp.state, attr, sq, rq, cur, flushed, recv_awaited.
			   * Held while up to 4 KiB of registered memory are copied: a
			   * program that serves page faults there must not use the QP
			   * for that. */
	struct lock modify_lock; /* outermost: one ibv_modify_qp at a time */
	uint64_t id;		 /* unlike qp_num never used again in this process */
	unsigned device;	 /* as dev_ctx.device: the context of an XRC receive QP may
				  * be closed before it is gone */
	struct dev_pd *pd; /* pd_root(); qp.pd is what it was made with. XRC receive:
			    * NULL, as are the CQs */
	struct dev_cq *send_cq, *recv_cq; /* XRC send: the first alone */
	struct dev_cq *poll_cq; /* the transport's poll_source for this QP belongs into
				 * the poll group of this CQ */
	struct dev_srq *srq; /* or NULL */
	struct dev_xrcd *xrcd;	/* XRC receive: of this handle; else NULL */
	struct xrc_target *xrc; /* XRC receive, else NULL */
	struct dev_qp *real;	/* of a handle from ibv_open_qp(), else NULL: all fields
				 * but the public ones and handle_link are unused then */
	struct list handle_link; /* xrc_target.handles (xrc.c's lock) */
	struct dev_sq sq;
	struct dev_rq rq;
	struct ibv_qp_attr attr;    /* last values set by modify */
	struct ibv_qp_init_attr init;
	uint64_t send_ops;	    /* IBV_QP_EX_WITH_* asked for */
	struct qp_build build;
	/* Connected: the route (route.h) of attr.ah_attr at the transition to RTR. */
	union ibv_gid local_gid, remote_gid;
	uint32_t local_ifindex;
	bool made_by_cm;	    /* librdmacm brings it to INIT and brings its
				     * connection: dev_transport.listen */
	bool flushed;		    /* state is ERR and the queues have been flushed */
	uint8_t copies;		    /* copies under way: qp_copy_begin_locked() */
	bool flush_due;		    /* ... and the queues are flushed after the last one */
	bool comm_est_sent;
	bool sqd_armed;		    /* SQ_DRAINED wanted when the SQ is idle */
	bool cur_valid;		    /* cur is in use */
	bool recv_awaited;	    /* recv_take() found the RQ empty: recv_posted() is
				     * to be called for the next receive */
	struct rqe *cur;	    /* receive being filled, copied out of RQ or SRQ; sized
				     * for the larger of both max_sge */
	struct list srq_wait;	    /* on srq->waiting (srq->lock) */
	uint32_t sqd_upto;	    /* SQD: only WQEs before this SQ index may be sent */
	uint32_t srq_pins;	    /* recv_posted() under way from an SRQ post (srq->lock) */
	uint32_t ev_got;	    /* async events fetched (ctx->async.lock) */
	bool is_ex;		    /* made with send_ops_flags: build is in use */

	const struct dev_transport *tr; /* from RTR on, else NULL */
	void *tr_priv;			/* the transport's own: dev/transport.h */
	uint64_t share_id;			/* dev/share.h; 0: none */
	struct list groups; /* multicast groups it is attached to: mcast.c
			     * (modify_lock) */
	struct dev_object object;
};

static inline struct dev_qp *to_qp(struct ibv_qp *q)
{
	return container_of(q, struct dev_qp, qp);
}

static inline bool qp_intact(struct ibv_qp *o)
{
	return object_is(&to_qp(o)->object, o->context, o->handle);
}

/* A QP of this type has one peer, from RTR on. */
static inline bool qp_type_is_connected(enum ibv_qp_type type)
{
	return type == IBV_QPT_RC || type == IBV_QPT_UC || type == IBV_QPT_XRC_SEND ||
	       type == IBV_QPT_XRC_RECV;
}

/* No acknowledgements, no repeats: what is lost is lost. */
static inline bool qp_is_unreliable(const struct dev_qp *qp)
{
	return qp->qp.qp_type == IBV_QPT_UC || qp->qp.qp_type == IBV_QPT_UD;
}

static inline bool psn_before(uint32_t a, uint32_t b) /* 24-bit serial order */
{
	return ((a - b) & 0x800000) != 0;
}

/* ---- async events ------------------------------------------------------- */

/* Queues an event on the context of the object (qp, cq, srq or port: which one
 * follows from the type). Any lock of the order above may be held. */
void async_qp(struct dev_qp *qp, enum ibv_event_type type);
void async_cq(struct dev_cq *cq, enum ibv_event_type type);
void async_srq(struct dev_srq *srq, enum ibv_event_type type);
void async_port(unsigned device, enum ibv_event_type type); /* to its open contexts */
/* Waits until every fetched event of the object was acknowledged and drops
 * unfetched ones; before a destroy. */
void async_drain_qp(struct dev_qp *qp);
void async_drain_cq(struct dev_cq *cq);
void async_drain_srq(struct dev_srq *srq);

#endif
