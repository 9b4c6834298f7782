/* SPDX-License-Identifier: BSD-2-Clause */
/* Queue pairs: creating, destroying, asking. Transitions are in modify.c and qp_state.c,
 * work requests in post.c, completions in complete.c. */
#include "base/log.h"
#include "base/state.h"
#include "dev/complete.h"
#include "dev/mcast.h"
#include "dev/poll.h"
#include "dev/qpn.h"
#include "dev/transport.h"
#include "dev/verbs.h"
#include "dev/wqe.h"
#include "dev/xrc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static atomic_int count PROCESS_STATE;

static int type_check(enum ibv_qp_type type)
{
	switch (type) {
	case IBV_QPT_RC:
	case IBV_QPT_UC:
	case IBV_QPT_UD:
	case IBV_QPT_XRC_SEND:
	case IBV_QPT_RAW_PACKET:
	case IBV_QPT_DRIVER:
		break;
	case IBV_QPT_XRC_RECV:
		return log_refuse(EINVAL, "ibv_create_qp: an XRC receive QP has a domain "
					  "instead of a PD: ibv_create_qp_ex");
	default:
		return log_refuse(EINVAL, "ibv_create_qp: there is no QP type %d",
				  (int)type);
	}
	if (!transport_choose(type))
		return log_refuse(EOPNOTSUPP,
				  "ibv_create_qp: the device has no QPs of type %d (enum "
				  "ibv_qp_type)",
				  (int)type);
	return 0;
}

static int cap_check(const char *name, uint32_t v, uint32_t max)
{
	if (v > max)
		return log_refuse(EINVAL, "ibv_create_qp: %s is %u, the device has %u",
				  name, v, max);
	return 0;
}

/* Counts one QP more, unless there are as many as the device has. */
static int count_add(void)
{
	int n = atomic_fetch_add(&count, 1), max;

	if (n < query_promised_qp())
		return 0;
	max = query_max_qp();
	if (n < max)
		return 0;
	atomic_fetch_sub(&count, 1);
	return log_refuse(ENOMEM,
			  "ibv_create_qp: %d QPs exist, no more are allowed (max_qp, which "
			  "follows from the limit of descriptors)",
			  max);
}

/* An XRC send QP has no receive side: attributes of it are ignored. */
static bool has_recv(enum ibv_qp_type type)
{
	return type != IBV_QPT_XRC_SEND && type != IBV_QPT_XRC_RECV;
}

static bool part_cq(const struct dev_pd *pd, struct ibv_cq *cq)
{
	return cq_intact(cq) && cq->context == pd->object.context;
}

static bool part_srq(const struct dev_pd *pd, struct ibv_srq *srq)
{
	return srq_intact(srq) && srq->context == pd->object.context;
}

static int parts_check(const struct dev_pd *pd, const struct ibv_qp_init_attr *a)
{
	bool recv = has_recv(a->qp_type);

	if (!a->send_cq || (recv && !a->recv_cq))
		return log_refuse(EINVAL, "ibv_create_qp: no %s CQ",
				  a->send_cq ? "receive" : "send");
	if (!part_cq(pd, a->send_cq) || (recv && !part_cq(pd, a->recv_cq)) ||
	    (recv && a->srq && !part_srq(pd, a->srq)))
		return log_refuse(EINVAL,
				  "ibv_create_qp: a CQ or the SRQ is another context's");
	if (recv && a->srq && to_srq(a->srq)->xrcd)
		return log_refuse(EINVAL, "ibv_create_qp: an XRC SRQ serves XRC receive "
					  "QPs of its domain alone");
	return 0;
}

static int create_check(const struct dev_pd *pd, const struct ibv_qp_init_attr *a)
{
	const struct ibv_qp_cap *cap = &a->cap;
	int ret = type_check(a->qp_type);

	if (!ret)
		ret = parts_check(pd, a);
	if (ret)
		return ret;
	ret = cap_check("max_send_wr", cap->max_send_wr, DEV_MAX_QP_WR);
	ret = ret ? ret : cap_check("max_send_sge", cap->max_send_sge, DEV_MAX_SGE);
	ret = ret ? ret :
		    cap_check("max_inline_data", cap->max_inline_data, DEV_MAX_INLINE);
	if (!ret && !a->srq && has_recv(a->qp_type)) {
		ret = cap_check("max_recv_wr", cap->max_recv_wr, DEV_MAX_QP_WR);
		ret = ret ? ret :
			    cap_check("max_recv_sge", cap->max_recv_sge, DEV_MAX_SGE);
	}
	return ret;
}

/* Fills in the granted capabilities and allocates the rings. */
static int queues_alloc(struct dev_qp *qp, enum ibv_qp_type type, struct ibv_qp_cap *cap)
{
	struct dev_sq *sq = &qp->sq;
	struct dev_rq *rq = &qp->rq;
	uint32_t sge_bytes = cap->max_send_sge * (uint32_t)sizeof(struct ibv_sge);
	uint32_t cur_sge;

	/* Room for the SGEs is room for that many inline bytes. */
	if (cap->max_inline_data < sge_bytes)
		cap->max_inline_data = sge_bytes;
	if (qp->srq || !has_recv(type))
		cap->max_recv_wr = cap->max_recv_sge = 0;
	sq->max_wr = cap->max_send_wr;
	sq->max_sge = cap->max_send_sge;
	sq->max_inline = cap->max_inline_data;
	sq->stride = ((uint32_t)sizeof(struct wqe) + cap->max_inline_data + 7) & ~7u;
	rq->max_wr = cap->max_recv_wr;
	rq->max_sge = cap->max_recv_sge;
	rq->stride =
		(uint32_t)(sizeof(struct rqe) + rq->max_sge * sizeof(struct ibv_sge));
	cur_sge = type == IBV_QPT_XRC_RECV ? DEV_MAX_SGE :
		  qp->srq		   ? qp->srq->rq.max_sge :
					     rq->max_sge;
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
	if (qp->pd)
		atomic_fetch_add(&to_pd(qp->qp.pd)->refs, by);
	if (qp->send_cq)
		atomic_fetch_add(&qp->send_cq->refs, by);
	if (qp->recv_cq)
		atomic_fetch_add(&qp->recv_cq->refs, by);
	if (qp->srq)
		atomic_fetch_add(&qp->srq->refs, by);
}

void qp_handle_init(struct dev_qp *h, struct dev_ctx *ctx, struct dev_xrcd *xrcd)
{
	object_init(&h->object, &ctx->v.context);
	h->qp.context = h->object.context;
	h->qp.handle = h->object.handle;
	h->xrcd = xrcd;
	if (xrcd)
		atomic_fetch_add(&xrcd->refs, 1);
	pthread_mutex_init(&h->qp.mutex, NULL);
	pthread_cond_init(&h->qp.cond, NULL);
	ctx_get(ctx);
}

void qp_handle_fini(struct dev_qp *h)
{
	async_drain_qp(h);
	if (h->xrcd)
		atomic_fetch_sub(&h->xrcd->refs, 1);
	pthread_mutex_destroy(&h->qp.mutex);
	pthread_cond_destroy(&h->qp.cond);
	ctx_put(to_ctx(h->object.context));
}

static void public_fill(struct dev_qp *qp, const struct ibv_qp_init_attr *a)
{
	struct ibv_qp *q = &qp->qp;

	q->qp_context = a->qp_context;
	q->send_cq = a->send_cq;
	q->recv_cq = a->recv_cq;
	q->srq = a->srq;
	q->qp_type = a->qp_type;
	q->state = IBV_QPS_RESET;
}

/* Whose ports its number may be of (qpn_get()). */
static const void *port_owner(const struct dev_qp *qp)
{
	return qp_type_is_connected(qp->qp.qp_type) ? NULL : qp->recv_cq;
}

/* pd, CQs, SRQ and poll_cq of qp are set. */
static int make(struct dev_qp *qp, struct dev_ctx *ctx, struct dev_xrcd *xrcd,
		struct ibv_qp_init_attr *attr)
{
	static _Atomic uint64_t ids;
	struct ibv_qp_cap cap = attr->cap;
	int ret = count_add();

	if (ret)
		return ret;
	ret = queues_alloc(qp, attr->qp_type, &cap);
	if (ret)
		goto free_queues;
	qp->id = atomic_fetch_add(&ids, 1);
	qp->device = ctx->device;
	qp->sq.sig_all = attr->sq_sig_all;
	qp->qp.qp_type = attr->qp_type;
	ret = qpn_get(port_owner(qp), &qp->qp.qp_num);
	if (ret)
		goto free_queues;
	if (qp->send_cq)
		ret = poll_link(qp->send_cq, qp->poll_cq);
	if (ret)
		goto put_qpn;
	lock_init(&qp->lock);
	lock_init(&qp->modify_lock);
	list_init(&qp->srq_wait);
	list_init(&qp->groups);
	public_fill(qp, attr);
	attr->cap = cap;
	qp->init = *attr;
	refs_add(qp, 1);
	qp_handle_init(qp, ctx, xrcd);
	return 0;

put_qpn:
	qpn_put(qp->qp.qp_num);
free_queues:
	queues_free(qp);
	atomic_fetch_sub(&count, 1);
	return log_refuse(-ret, "ibv_create_qp: %s", strerror(-ret));
}

int qp_create(struct dev_pd *pd, struct ibv_qp_init_attr *attr, struct dev_qp **out)
{
	struct ibv_qp_init_attr a = *attr;
	struct dev_qp *qp;
	int ret = create_check(pd, attr);

	if (ret)
		return ret;
	if (!has_recv(a.qp_type)) {
		a.recv_cq = NULL;
		a.srq = NULL;
	}
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return -ENOMEM;
	qp->pd = pd_root(pd);
	qp->qp.pd = &pd->pd;
	qp->send_cq = to_cq(a.send_cq);
	qp->recv_cq = a.recv_cq ? to_cq(a.recv_cq) : NULL;
	qp->srq = a.srq ? to_srq(a.srq) : NULL;
	qp->poll_cq = qp->recv_cq;
	ret = qp->poll_cq ? 0 : xrc_poll_cq(&qp->poll_cq);
	if (!ret)
		ret = make(qp, to_ctx(pd->object.context), NULL, &a);
	if (ret) {
		free(qp);
		return ret;
	}
	attr->cap = a.cap;
	*out = qp;
	return 0;
}

int qp_create_xrc_recv(struct ibv_qp_init_attr_ex *attr, struct dev_qp **out)
{
	struct ibv_qp_init_attr a = { .qp_context = attr->qp_context,
				      .qp_type = IBV_QPT_XRC_RECV };
	struct dev_xrcd *xrcd = to_xrcd(attr->xrcd);
	struct dev_qp *qp;
	int ret;

	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return -ENOMEM;
	ret = xrc_poll_cq(&qp->poll_cq);
	if (!ret)
		ret = make(qp, to_ctx(xrcd->object.context), xrcd, &a);
	if (ret) {
		free(qp);
		return ret;
	}
	ret = xrc_target_add(qp, xrcd);
	if (ret) {
		qp_destroy(qp);
		return ret;
	}
	if (attr->comp_mask & IBV_QP_INIT_ATTR_PD)
		qp->qp.pd = attr->pd;
	attr->cap = a.cap;
	*out = qp;
	return 0;
}

void qp_clear_locked(struct dev_qp *qp)
{
	lock_assert_held(&qp->lock);
	for (uint32_t i = qp->sq.done; i != qp->sq.tail; i++)
		wqe_release(qp, sq_at(&qp->sq, i));
	if (qp->cur_valid && (qp->srq || qp->xrc))
		atomic_fetch_sub(&(qp->srq ? qp->srq : qp->xrc->srq)->rq.outstanding, 1);
	if (qp->xrc) {
		xrc_recv_done_locked(qp);
		xrc_stop_waiting_locked(qp);
	}
	qp->cur_valid = false;
	atomic_store(&qp->sq.free, 0);
	qp->sq.done = qp->sq.next = qp->sq.tail = qp->sq.begun = 0;
	qp->rq.head = qp->rq.tail = 0;
	atomic_store(&qp->rq.outstanding, 0);
	qp->flushed = qp->comm_est_sent = qp->sqd_armed = qp->recv_awaited = false;
	memset(&qp->attr, 0, sizeof(qp->attr));
	memset(&qp->local_gid, 0, sizeof(qp->local_gid));
	memset(&qp->remote_gid, 0, sizeof(qp->remote_gid));
}

/* handle_gone: qp_handle_fini() was called before (XRC). */
static void end(struct dev_qp *qp, bool handle_gone)
{
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };

	qp_modify(qp, &reset, IBV_QP_STATE);
	if (qp->send_cq)
		poll_unlink(qp->send_cq, qp->poll_cq);
	if (qp->xrc)
		xrc_target_del(qp);
	if (!handle_gone)
		qp_handle_fini(qp);
	qpn_put(qp->qp.qp_num);
	refs_add(qp, -1);
	atomic_fetch_sub(&count, 1);
	lock_fini(&qp->lock);
	lock_fini(&qp->modify_lock);
	if (qp->is_ex)
		qp_ex_fini(qp);
	queues_free(qp);
	free(qp);
}

int qp_destroy(struct dev_qp *qp)
{
	struct dev_qp *last;
	bool opened = qp->real;

	if (!opened && !qp->xrc) {
		if (mcast_any(qp))
			return log_refuse(EBUSY,
					  "ibv_destroy_qp: QP 0x%x is attached to a "
					  "multicast group",
					  qp->qp.qp_num);
		end(qp, false);
		return 0;
	}
	last = xrc_qp_close(qp);
	qp_handle_fini(qp);
	if (opened)
		free(qp);
	if (last)
		end(last, true);
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
