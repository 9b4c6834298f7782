/* SPDX-License-Identifier: BSD-2-Clause */
/* Extended reliable connections (InfiniBand 1.5, annex A14), inside one process.
 *
 * A domain has XRC SRQs, which have numbers, and receive QPs, called *targets* here. A
 * send QP of a peer is connected to a target. Each of its requests names an SRQ: the
 * receive comes from that SRQ and completes on the SRQ's CQ, and remote access is checked
 * against the SRQ's PD. A target has no PD, no CQ and no queues of its own. Any number of
 * handles (ibv_open_qp) may refer to it; it exists as long as one of them.
 *
 * xrc.lock (xrc.c) guards everything here. */
#ifndef ANYRDMA_DEV_XRC_H
#define ANYRDMA_DEV_XRC_H

#include "dev/dev.h"

struct xrc_domain; /* one per inode, or per call with fd -1 */

/* One ibv_open_xrcd(). */
struct dev_xrcd {
	struct ibv_xrcd xrcd;
	struct dev_object object;
	struct xrc_domain *domain;
	atomic_int refs; /* SRQs and QP handles made with it: EBUSY while > 0 */
};

static inline struct dev_xrcd *to_xrcd(struct ibv_xrcd *x)
{
	return container_of(x, struct dev_xrcd, xrcd);
}

static inline bool xrcd_intact(struct ibv_xrcd *o)
{
	return object_is(&to_xrcd(o)->object, o->context, to_xrcd(o)->object.handle);
}

/* What a receive QP has instead of queues: dev_qp.xrc. All guarded by xrc.c's
 * lock; `srq` does not change while `filling`. */
struct xrc_target {
	struct dev_qp *qp;
	struct xrc_domain *domain;
	struct list link;     /* in the domain */
	struct dev_srq *srq;  /* named by the last request; or NULL */
	struct list srq_link; /* on srq->targets */
	bool filling;	      /* qp->cur is one of srq's receives */
	unsigned pins;	      /* a transport is being called without qp->lock */
	struct list handles;  /* dev_qp.handle_link of ibv_open_qp()s */
	bool disowned;	      /* ibv_destroy_qp() of the creator, handles are left */
};

int xrcd_open(struct dev_ctx *ctx, const struct ibv_xrcd_init_attr *attr,
	      struct dev_xrcd **out);
int xrcd_close(struct dev_xrcd *xrcd);

/* The CQ whose poll group has the sources of all XRC QPs of the process. It gets no
 * completions; the groups of the CQs of XRC SRQs and of XRC send QPs link to its group.
 * It is one for all, as the answer to a message comes on another connection than the
 * message's acknowledgement: a poller that waits for one must not leave the other to the
 * loop thread. It exists as long as the process. */
int xrc_poll_cq(struct dev_cq **out);

/* ---- SRQs: srq.c calls these for those with a domain ---------------------- */

/* Gives it a number. */
void xrc_srq_add(struct dev_srq *srq);
/* Requests do not find it any more. Messages that are being received into it fail. */
void xrc_srq_del(struct dev_srq *srq);
/* n receives were posted: calls recv_posted() for so many targets that wait. */
void xrc_srq_posted(struct dev_srq *srq, uint32_t n);

/* ---- targets --------------------------------------------------------------- */

/* Makes qp->xrc / the QP goes away: returns when no other thread uses it. */
int xrc_target_add(struct dev_qp *qp, struct dev_xrcd *xrcd);
void xrc_target_del(struct dev_qp *qp);

/* recv_take() of a target. -EINVAL: the domain has no such SRQ. */
int xrc_take_locked(struct dev_qp *qp, uint32_t srqn) REQUIRES(qp->lock);
/* qp->cur was completed or dropped: the target does not use the SRQ any more. */
void xrc_recv_done_locked(struct dev_qp *qp) REQUIRES(qp->lock);
/* The target does not wait for a receive any more. */
void xrc_stop_waiting_locked(struct dev_qp *qp) REQUIRES(qp->lock);
/* The PD of an SRQ of the target's domain, or NULL. Only to compare with: the
 * SRQ may be destroyed at any time. */
struct dev_pd *xrc_pd(struct dev_qp *qp, uint32_t srqn);

/* ---- handles --------------------------------------------------------------- */

int xrc_qp_open(struct dev_ctx *ctx, const struct ibv_qp_open_attr *attr,
		struct dev_qp **out);
/* A handle, the creator's included, was given up: the QP to destroy now, or NULL
 * when others are left. */
struct dev_qp *xrc_qp_close(struct dev_qp *handle);
/* Calls fn for every handle that is open. */
void xrc_qp_each(struct dev_qp *qp, void (*fn)(struct dev_qp *handle, int arg), int arg);

#endif
