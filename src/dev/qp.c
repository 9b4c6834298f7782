/* SPDX-License-Identifier: BSD-2-Clause */
/* Queue pairs: life and query. Moves are in modify.c and qp_state.c, work in
 * post.c, its end in complete.c. */
#include "base/log.h"
#include "dev/complete.h"
#include "dev/poll.h"
#include "dev/qpn.h"
#include "dev/transport.h"
#include "dev/verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static atomic_int count;

static int type_check(enum ibv_qp_type type)
{
	switch (type) {
	case IBV_QPT_RC:
	case IBV_QPT_UC:
		return 0;
	case IBV_QPT_UD:
	case IBV_QPT_RAW_PACKET:
	case IBV_QPT_XRC_SEND:
	case IBV_QPT_XRC_RECV:
	case IBV_QPT_DRIVER:
		return log_refuse(EOPNOTSUPP,
				  "ibv_create_qp: the device has no QPs of type "
				  "%d (enum ibv_qp_type), only RC and UC",
				  (int)type);
	default:
		return log_refuse(EINVAL, "ibv_create_qp: there is no QP type %d",
				  (int)type);
	}
}

static int cap_check(const char *name, uint32_t v, uint32_t max)
{
	if (v > max)
		return log_refuse(EINVAL, "ibv_create_qp: %s is %u, the device has %u",
				  name, v, max);
	return 0;
}

static int create_check(const struct dev_pd *pd, const struct ibv_qp_init_attr *a)
{
	const struct ibv_qp_cap *cap = &a->cap;
	int ret = type_check(a->qp_type);

	if (ret)
		return ret;
	if (!a->send_cq || !a->recv_cq)
		return log_refuse(EINVAL, "ibv_create_qp: no %s CQ",
				  a->send_cq ? "receive" : "send");
	if (a->send_cq->context != pd->pd.context ||
	    a->recv_cq->context != pd->pd.context ||
	    (a->srq && a->srq->context != pd->pd.context))
		return log_refuse(EINVAL,
				  "ibv_create_qp: a CQ or the SRQ is another context's");
	ret = cap_check("max_send_wr", cap->max_send_wr, DEV_MAX_QP_WR);
	ret = ret ? ret : cap_check("max_send_sge", cap->max_send_sge, DEV_MAX_SGE);
	ret = ret ? ret :
		    cap_check("max_inline_data", cap->max_inline_data, DEV_MAX_INLINE);
	if (!ret && !a->srq) {
		ret = cap_check("max_recv_wr", cap->max_recv_wr, DEV_MAX_QP_WR);
		ret = ret ? ret :
			    cap_check("max_recv_sge", cap->max_recv_sge, DEV_MAX_SGE);
	}
	if (!ret && atomic_load(&count) >= DEV_MAX_QP)
		return log_refuse(ENOMEM,
				  "ibv_create_qp: %d QPs exist, no more are allowed",
				  DEV_MAX_QP);
	return ret;
}

/* Fills in the granted capabilities and allocates the rings. */
static int queues_alloc(struct dev_qp *qp, struct ibv_qp_cap *cap)
{
	struct dev_sq *sq = &qp->sq;
	struct dev_rq *rq = &qp->rq;
	uint32_t sge_bytes = cap->max_send_sge * (uint32_t)sizeof(struct ibv_sge);
	uint32_t cur_sge;

	/* Room for the SGEs is room for that many inline bytes. */
	if (cap->max_inline_data < sge_bytes)
		cap->max_inline_data = sge_bytes;
	if (qp->srq)
		cap->max_recv_wr = cap->max_recv_sge = 0;
	sq->max_wr = cap->max_send_wr;
	sq->max_sge = cap->max_send_sge;
	sq->max_inline = cap->max_inline_data;
	sq->stride = ((uint32_t)sizeof(struct wqe) + cap->max_inline_data + 7) & ~7u;
	rq->max_wr = cap->max_recv_wr;
	rq->max_sge = cap->max_recv_sge;
	rq->stride =
		(uint32_t)(sizeof(struct rqe) + rq->max_sge * sizeof(struct ibv_sge));
	cur_sge = qp->srq ? qp->srq->rq.max_sge : rq->max_sge;
	sq->mem = wq_alloc(sq->max_wr, sq->stride, &sq->mask);
	rq->mem = wq_alloc(rq->max_wr, rq->stride, &rq->mask);
	qp->cur = calloc(1, sizeof(struct rqe) + cur_sge * sizeof(struct ibv_sge));
	return sq->mem && rq->mem && qp->cur ? 0 : -ENOMEM;
}

static void queues_free(struct dev_qp *qp)
{
	free(qp->sq.mem);
	free(qp->rq.mem);
	free(qp->cur);
}

static void refs_add(struct dev_qp *qp, int by)
{
	atomic_fetch_add(&to_pd(qp->qp.pd)->refs, by);
	atomic_fetch_add(&qp->send_cq->refs, by);
	atomic_fetch_add(&qp->recv_cq->refs, by);
	if (qp->srq)
		atomic_fetch_add(&qp->srq->refs, by);
	atomic_fetch_add(&count, by);
}

static void public_fill(struct dev_qp *qp, const struct ibv_qp_init_attr *a)
{
	struct ibv_qp *q = &qp->qp;

	q->context = qp->pd->pd.context;
	q->qp_context = a->qp_context;
	q->send_cq = a->send_cq;
	q->recv_cq = a->recv_cq;
	q->srq = a->srq;
	q->handle = q->qp_num;
	q->qp_type = a->qp_type;
	q->state = IBV_QPS_RESET;
	pthread_mutex_init(&q->mutex, NULL);
	pthread_cond_init(&q->cond, NULL);
}

int qp_create(struct dev_pd *pd, struct ibv_qp_init_attr *attr, struct dev_qp **out)
{
	static _Atomic uint64_t ids;
	struct ibv_qp_cap cap = attr->cap;
	struct dev_qp *qp;
	int ret = create_check(pd, attr);

	if (ret)
		return ret;
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return -ENOMEM;
	qp->id = atomic_fetch_add(&ids, 1);
	qp->pd = pd_root(pd);
	qp->qp.pd = &pd->pd;
	qp->send_cq = to_cq(attr->send_cq);
	qp->recv_cq = to_cq(attr->recv_cq);
	qp->srq = attr->srq ? to_srq(attr->srq) : NULL;
	qp->sq.sig_all = attr->sq_sig_all;
	ret = queues_alloc(qp, &cap);
	if (ret)
		goto free_qp;
	ret = qpn_get(&qp->qp.qp_num);
	if (ret)
		goto free_qp;
	ret = poll_link(qp->send_cq, qp->recv_cq);
	if (ret)
		goto put_qpn;
	lock_init(&qp->lock);
	lock_init(&qp->modify_lock);
	list_init(&qp->srq_wait);
	public_fill(qp, attr);
	attr->cap = cap;
	qp->init = *attr;
	refs_add(qp, 1);
	ctx_get(to_ctx(pd->pd.context));
	*out = qp;
	return 0;

put_qpn:
	qpn_put(qp->qp.qp_num);
free_qp:
	queues_free(qp);
	free(qp);
	return log_refuse(-ret, "ibv_create_qp: %s", strerror(-ret));
}

void qp_clear_locked(struct dev_qp *qp)
{
	lock_assert_held(&qp->lock);
	if (qp->cur_valid && qp->srq)
		atomic_fetch_sub(&qp->srq->rq.outstanding, 1);
	qp->cur_valid = false;
	atomic_store(&qp->sq.free, 0);
	qp->sq.done = qp->sq.next = qp->sq.tail = qp->sq.begun = 0;
	qp->rq.head = qp->rq.tail = 0;
	atomic_store(&qp->rq.outstanding, 0);
	qp->flushed = qp->comm_est_sent = qp->sqd_armed = qp->rnr_told = false;
	memset(&qp->attr, 0, sizeof(qp->attr));
	memset(&qp->local_gid, 0, sizeof(qp->local_gid));
}

int qp_destroy(struct dev_qp *qp)
{
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	struct dev_ctx *ctx = to_ctx(qp->qp.context);

	qp_modify(qp, &reset, IBV_QP_STATE);
	poll_unlink(qp->send_cq, qp->recv_cq);
	async_drain_qp(qp);
	qpn_put(qp->qp.qp_num);
	refs_add(qp, -1);
	pthread_mutex_destroy(&qp->qp.mutex);
	pthread_cond_destroy(&qp->qp.cond);
	lock_fini(&qp->lock);
	lock_fini(&qp->modify_lock);
	if (qp->is_ex)
		pthread_mutex_destroy(&qp->build.lock);
	queues_free(qp);
	free(qp);
	ctx_put(ctx);
	return 0;
}

void qp_query(struct dev_qp *qp, struct ibv_qp_attr *attr, struct ibv_qp_init_attr *init)
{
	lock_get(&qp->lock);
	*attr = qp->attr;
	attr->qp_state = attr->cur_qp_state = qp->qp.state;
	attr->cap = qp->init.cap;
	attr->sq_draining = qp->qp.state == IBV_QPS_SQD && !sq_drained(qp);
	*init = qp->init;
	lock_put(&qp->lock);
}
