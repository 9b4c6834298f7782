/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/log.h"
#include "base/state.h"
#include "dev/poll.h"
#include "dev/transport.h"
#include "dev/verbs.h"
#include "dev/xrc.h"

#include <errno.h>
#include <stdlib.h>

static atomic_int count PROCESS_STATE;

static int size_check(const char *call, uint32_t max_wr)
{
	if (!max_wr || max_wr > DEV_MAX_SRQ_WR)
		return log_refuse(EINVAL, "%s: %u work requests, 1 to %d are allowed", call,
				  max_wr, DEV_MAX_SRQ_WR);
	return 0;
}

static int create_check(const struct ibv_srq_attr *a)
{
	int ret = size_check("ibv_create_srq", a->max_wr);

	if (ret)
		return ret;
	if (a->max_sge > DEV_MAX_SGE)
		return log_refuse(EINVAL,
				  "ibv_create_srq: %u SGEs, at most %d are allowed",
				  a->max_sge, DEV_MAX_SGE);
	if (atomic_load(&count) >= DEV_MAX_SRQ)
		return log_refuse(ENOMEM,
				  "ibv_create_srq: %d SRQs exist, no more are "
				  "allowed",
				  DEV_MAX_SRQ);
	return 0;
}

int srq_create(struct dev_pd *pd, struct ibv_srq_init_attr *attr, struct dev_srq **out)
{
	struct dev_srq *srq;
	int ret = create_check(&attr->attr);

	if (ret)
		return ret;
	srq = calloc(1, sizeof(*srq));
	if (!srq)
		return -ENOMEM;
	srq->rq.max_wr = attr->attr.max_wr;
	srq->rq.max_sge = attr->attr.max_sge;
	srq->rq.stride =
		(uint32_t)(sizeof(struct rqe) + srq->rq.max_sge * sizeof(struct ibv_sge));
	srq->rq.mem = wq_alloc(srq->rq.max_wr, srq->rq.stride, &srq->rq.mask);
	if (!srq->rq.mem) {
		free(srq);
		return -ENOMEM;
	}
	object_init(&srq->object, pd->object.context);
	srq->srq.context = srq->object.context;
	srq->srq.srq_context = attr->srq_context;
	srq->srq.pd = &pd->pd;
	srq->srq.handle = srq->object.handle;
	srq->pd = pd_root(pd);
	pthread_mutex_init(&srq->srq.mutex, NULL);
	pthread_cond_init(&srq->srq.cond, NULL);
	cond_init(&srq->unpinned);
	lock_init(&srq->lock);
	list_init(&srq->waiting);
	atomic_fetch_add(&pd->refs, 1);
	ctx_get(to_ctx(srq->object.context));
	atomic_fetch_add(&count, 1);
	*out = srq;
	return 0;
}

static int xrc_check(struct dev_ctx *ctx, const struct ibv_srq_init_attr_ex *a)
{
	const uint32_t need = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;

	if ((a->comp_mask & need) != need || !a->xrcd || !a->cq)
		return log_refuse(EINVAL, "ibv_create_srq_ex: an XRC SRQ needs a domain "
					  "and a CQ");
	if (!xrcd_intact(a->xrcd) || a->xrcd->context != &ctx->v.context ||
	    !cq_intact(a->cq) || a->cq->context != &ctx->v.context)
		return log_refuse(EINVAL,
				  "ibv_create_srq_ex: the domain or the CQ is another "
				  "context's");
	return 0;
}

static int ex_check(struct dev_ctx *ctx, const struct ibv_srq_init_attr_ex *a)
{
	enum ibv_srq_type type = a->comp_mask & IBV_SRQ_INIT_ATTR_TYPE ? a->srq_type :
									 IBV_SRQT_BASIC;

	if (a->comp_mask >= IBV_SRQ_INIT_ATTR_RESERVED || type == IBV_SRQT_TM)
		return log_refuse(EOPNOTSUPP,
				  "ibv_create_srq_ex: mask 0x%x, type %d: there is no "
				  "tag matching and nothing newer",
				  a->comp_mask, (int)type);
	if (type != IBV_SRQT_BASIC && type != IBV_SRQT_XRC)
		return log_refuse(EINVAL, "ibv_create_srq_ex: there is no SRQ type %d",
				  (int)type);
	if (!(a->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !a->pd || !pd_intact(a->pd) ||
	    a->pd->context != &ctx->v.context)
		return log_refuse(EINVAL, "ibv_create_srq_ex: no PD of this context");
	return type == IBV_SRQT_XRC ? xrc_check(ctx, a) : 0;
}

static int xrc_join(struct dev_srq *srq, struct dev_xrcd *xrcd, struct dev_cq *cq)
{
	struct dev_cq *poll_cq;
	int ret = xrc_poll_cq(&poll_cq);

	if (!ret)
		ret = poll_link(cq, poll_cq);
	if (ret)
		return ret;
	srq->xrcd = xrcd;
	srq->cq = cq;
	atomic_fetch_add(&cq->refs, 1);
	atomic_fetch_add(&xrcd->refs, 1);
	xrc_srq_add(srq);
	return 0;
}

/* After return no message is received into it, and its completions are removed, as mlx5
 * does. */
static void xrc_leave(struct dev_srq *srq)
{
	struct dev_cq *poll_cq;

	xrc_srq_del(srq);
	xrc_poll_cq(&poll_cq);
	poll_unlink(srq->cq, poll_cq);
	cq_forget_srq(srq->cq, srq);
	atomic_fetch_sub(&srq->cq->refs, 1);
}

int srq_create_ex(struct dev_ctx *ctx, struct ibv_srq_init_attr_ex *a,
		  struct dev_srq **out)
{
	struct ibv_srq_init_attr attr = { .srq_context = a->srq_context, .attr = a->attr };
	struct dev_srq *srq = NULL;
	int ret = ex_check(ctx, a);

	if (!ret)
		ret = srq_create(to_pd(a->pd), &attr, &srq);
	if (ret)
		return ret;
	if ((a->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) && a->srq_type == IBV_SRQT_XRC)
		ret = xrc_join(srq, to_xrcd(a->xrcd), to_cq(a->cq));
	if (ret) {
		srq_destroy(srq);
		return ret;
	}
	a->attr = attr.attr;
	*out = srq;
	return 0;
}

int srq_number(const struct dev_srq *srq, uint32_t *number)
{
	if (!srq->xrcd)
		return log_refuse(EINVAL, "ibv_get_srq_num: SRQ %u is no XRC SRQ, others "
					  "have no number",
				  srq->object.handle);
	*number = srq->number;
	return 0;
}

int srq_destroy(struct dev_srq *srq)
{
	int refs = atomic_load(&srq->refs);

	if (refs)
		return log_refuse(EBUSY, "ibv_destroy_srq: %d QPs still use SRQ %u", refs,
				  srq->object.handle);
	if (srq->xrcd) {
		xrc_leave(srq);
		atomic_fetch_sub(&srq->xrcd->refs, 1);
	}
	async_drain_srq(srq);
	atomic_fetch_sub(&to_pd(srq->srq.pd)->refs, 1);
	ctx_put(to_ctx(srq->object.context));
	atomic_fetch_sub(&count, 1);
	pthread_mutex_destroy(&srq->srq.mutex);
	pthread_cond_destroy(&srq->srq.cond);
	lock_fini(&srq->lock);
	free(srq->rq.mem);
	free(srq);
	return 0;
}

/* InfiniBand 11.2.3.3: an SRQ may be made as small as the work in it allows. */
static int modify_check_locked(struct dev_srq *srq, const struct ibv_srq_attr *attr,
			       int mask) REQUIRES(srq->lock)
{
	uint32_t max_wr = mask & IBV_SRQ_MAX_WR ? attr->max_wr : srq->rq.max_wr;
	uint32_t limit = mask & IBV_SRQ_LIMIT ? attr->srq_limit : srq->limit;
	uint32_t has = atomic_load(&srq->rq.outstanding);

	lock_assert_held(&srq->lock);
	if (limit > max_wr)
		return log_refuse(EINVAL, "ibv_modify_srq: limit %u of %u work requests",
				  limit, max_wr);
	if (max_wr < has)
		return log_refuse(EINVAL,
				  "ibv_modify_srq: SRQ %u cannot have %u work requests: %u "
				  "are posted, or completed and not polled",
				  srq->srq.handle, max_wr, has);
	return 0;
}

/* The posted receives move to the ring of `to`. What is left there is the old ring. */
static void ring_swap_locked(struct dev_srq *srq, struct dev_rq *to) REQUIRES(srq->lock)
{
	struct dev_rq *rq = &srq->rq;
	uint8_t *old = rq->mem;

	lock_assert_held(&srq->lock);
	for (uint32_t i = rq->head; i != rq->tail; i++)
		rqe_copy(rq_at(to, i), rq_at(rq, i));
	rq->mem = to->mem;
	rq->mask = to->mask;
	rq->max_wr = to->max_wr;
	to->mem = old;
}

int srq_modify(struct dev_srq *srq, const struct ibv_srq_attr *attr, int mask)
{
	struct dev_rq to = { .max_wr = attr->max_wr, .stride = srq->rq.stride };
	int ret;

	if (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT))
		return log_refuse(EINVAL, "ibv_modify_srq: unknown mask 0x%x", mask);
	if (mask & IBV_SRQ_MAX_WR) {
		ret = size_check("ibv_modify_srq", attr->max_wr);
		if (ret)
			return ret;
		to.mem = wq_alloc(to.max_wr, to.stride, &to.mask);
		if (!to.mem)
			return -ENOMEM;
	}
	lock_get(&srq->lock);
	ret = modify_check_locked(srq, attr, mask);
	if (!ret && (mask & IBV_SRQ_MAX_WR))
		ring_swap_locked(srq, &to);
	if (!ret && (mask & IBV_SRQ_LIMIT))
		srq->limit = attr->srq_limit;
	lock_put(&srq->lock);
	free(to.mem);
	return ret;
}

void srq_query(struct dev_srq *srq, struct ibv_srq_attr *attr)
{
	lock_get(&srq->lock);
	*attr = (struct ibv_srq_attr){ .max_wr = srq->rq.max_wr,
				       .max_sge = srq->rq.max_sge,
				       .srq_limit = srq->limit };
	lock_put(&srq->lock);
}

/* Calls recv_posted() for as many waiting QPs as there are new receives, in the order of
 * their waiting; the peers of the others try again by their RNR timers. The QP is pinned
 * meanwhile: its destruction waits. */
static void wake_waiting(struct dev_srq *srq, uint32_t n)
{
	const struct dev_transport *tr;
	struct dev_qp *qp;
	struct list *l;

	lock_get(&srq->lock);
	while (n-- && (l = list_pop(&srq->waiting))) {
		qp = list_entry(l, struct dev_qp, srq_wait);
		qp->srq_pins++;
		lock_put(&srq->lock);
		lock_get(&qp->lock);
		tr = qp->tr;
		lock_put(&qp->lock);
		if (tr)
			tr->recv_posted(qp);
		lock_get(&srq->lock);
		if (!--qp->srq_pins)
			cond_broadcast(&srq->unpinned);
	}
	lock_put(&srq->lock);
}

void srq_forget_qp(struct dev_srq *srq, struct dev_qp *qp)
{
	lock_get(&srq->lock);
	list_del(&qp->srq_wait);
	while (qp->srq_pins)
		lock_wait(&srq->lock, &srq->unpinned);
	lock_put(&srq->lock);
}

static int post_one_locked(struct dev_srq *srq, const struct ibv_recv_wr *wr)
{
	struct dev_rq *rq = &srq->rq;
	int ret;

	lock_assert_held(&srq->lock);
	if (atomic_load_explicit(&rq->outstanding, memory_order_acquire) >= rq->max_wr)
		return log_refuse(ENOMEM,
				  "ibv_post_srq_recv: SRQ %u is full with %u work "
				  "requests",
				  srq->object.handle, rq->max_wr);
	ret = rqe_fill(rq_at(rq, rq->tail), wr, rq->max_sge);
	if (ret)
		return ret;
	rq->tail++;
	atomic_fetch_add_explicit(&rq->outstanding, 1, memory_order_relaxed);
	return 0;
}

int srq_post(struct dev_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	uint32_t n = 0;
	bool wake;
	int ret = 0;

	lock_get(&srq->lock);
	for (; wr; wr = wr->next, n++) {
		ret = post_one_locked(srq, wr);
		if (ret) {
			*bad = wr;
			break;
		}
	}
	wake = n && !list_empty(&srq->waiting);
	lock_put(&srq->lock);
	if (wake && srq->xrcd)
		xrc_srq_posted(srq, n);
	else if (wake)
		wake_waiting(srq, n);
	return ret;
}

int srq_take_locked(struct dev_srq *srq, struct dev_qp *qp)
{
	struct dev_rq *rq = &srq->rq;
	bool low = false;
	int ret = 0;

	lock_assert_held(&qp->lock);
	lock_get(&srq->lock);
	if (rq->head == rq->tail) {
		if (!list_linked(&qp->srq_wait) && qp_waits_for_recv(qp))
			list_add_tail(&srq->waiting, &qp->srq_wait);
		ret = -ENOENT;
	} else {
		/* It does not wait any more: the next new receive is for another QP. */
		list_del(&qp->srq_wait);
		rqe_copy(qp->cur, rq_at(rq, rq->head++));
		low = rq->tail - rq->head < srq->limit;
		if (low)
			srq->limit = 0;
	}
	lock_put(&srq->lock);
	if (low)
		async_srq(srq, IBV_EVENT_SRQ_LIMIT_REACHED);
	return ret;
}
