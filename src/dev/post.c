/* SPDX-License-Identifier: BSD-2-Clause */
/* Posting: checks what can be checked without touching memory, copies work
 * requests into the rings, kicks the transport once. Local keys are checked when
 * the transport uses them, as on hardware: a bad one is a completion with
 * LOC_PROT_ERR, not a refused call. */
#include "base/log.h"
#include "dev/transport.h"
#include "dev/verbs.h"
#include "dev/wqe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

uint8_t *wq_alloc(uint32_t max_wr, uint32_t stride, uint32_t *mask)
{
	uint32_t n = 1;

	while (n < max_wr)
		n <<= 1;
	*mask = n - 1;
	return calloc(n, stride);
}

/* ---- send ------------------------------------------------------------------ */

static int fill(const struct dev_qp *qp, struct wqe *w, const struct ibv_send_wr *wr)
{
	unsigned has;
	int ret = wqe_begin(qp, w, wr->wr_id, wr->opcode, wr->send_flags);

	if (ret)
		return ret;
	if (wr->num_sge < 0)
		return log_refuse(EINVAL, "ibv_post_send: QP 0x%x: %d SGEs",
				  qp->qp.qp_num, wr->num_sge);
	has = wqe_rule(qp->qp.qp_type, wr->opcode)->has;
	w->imm_or_rkey = wr->imm_data;
	w->srqn = wr->qp_type.xrc.remote_srqn & 0xffffff;
	if (has & WQE_HAS_REMOTE)
		wqe_set_remote(w, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
	else if (has & WQE_HAS_ATOMIC)
		wqe_set_atomic(w, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr,
			       wr->wr.atomic.compare_add, wr->wr.atomic.swap);
	else if (has & WQE_HAS_WINDOW)
		return mw_wqe_fill(w, IBV_MW_TYPE_2, wr->bind_mw.mw, wr->bind_mw.rkey,
				   &wr->bind_mw.bind_info);
	if (qp->qp.qp_type == IBV_QPT_UD)
		ret = wqe_set_address(qp, w, wr->wr.ud.ah, wr->wr.ud.remote_qpn,
				      wr->wr.ud.remote_qkey);
	if (ret)
		return ret;
	if (wr->send_flags & IBV_SEND_INLINE)
		return wqe_set_inline_sges(qp, w, (size_t)wr->num_sge, wr->sg_list);
	if (has & WQE_HAS_DATA)
		return wqe_set_sges(qp, w, (size_t)wr->num_sge, wr->sg_list);
	return 0;
}

static int send_one_locked(struct dev_qp *qp, const struct ibv_send_wr *wr)
{
	struct dev_sq *sq = &qp->sq;
	struct wqe *w = sq_at(sq, sq->tail);
	int ret = wqe_room(qp, sq->tail);

	lock_assert_held(&qp->lock);
	if (ret)
		return ret;
	ret = fill(qp, w, wr);
	if (!ret)
		ret = wqe_check_locked(qp, w);
	if (ret)
		wqe_release(qp, w);
	else
		sq->tail++;
	return ret;
}

int post_state_locked(struct dev_qp *qp)
{
	enum ibv_qp_state state = qp->qp.state;

	lock_assert_held(&qp->lock);
	if (state >= IBV_QPS_RTS) /* SQD, SQE, ERR */
		return 0;
	return log_refuse(EINVAL, "posting to QP 0x%x: it is in state %s", qp->qp.qp_num,
			  qp_state_str(state));
}

const struct dev_transport *post_submit_locked(struct dev_qp *qp)
{
	lock_assert_held(&qp->lock);
	if ((qp->qp.state == IBV_QPS_ERR && qp->flushed) || qp->qp.state == IBV_QPS_SQE)
		sq_flush_locked(qp);
	else if (qp->qp.state == IBV_QPS_RTS && qp->sq.next != qp->sq.tail &&
		 !(qp->tr->post_locked && qp->tr->post_locked(qp)))
		return qp->tr;
	return NULL;
}

int post_send(struct dev_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	const struct dev_transport *tr = NULL;
	int ret;

	if (qp->qp.qp_type == IBV_QPT_XRC_RECV) {
		*bad = wr;
		return log_refuse(EINVAL, "ibv_post_send: QP 0x%x is an XRC receive QP",
				  qp->qp.qp_num);
	}
	if (qp->is_ex && !qp_ex_enter(qp)) {
		*bad = wr;
		return log_refuse(EINVAL,
				  "ibv_post_send: QP 0x%x: between ibv_wr_start and "
				  "ibv_wr_complete of the same thread",
				  qp->qp.qp_num);
	}
	lock_get(&qp->lock);
	ret = post_state_locked(qp);
	if (ret)
		*bad = wr;
	for (; wr && !ret; wr = wr->next) {
		ret = send_one_locked(qp, wr);
		if (ret)
			*bad = wr;
	}
	tr = post_submit_locked(qp);
	lock_put(&qp->lock);
	if (qp->is_ex)
		qp_ex_leave(qp);
	if (tr)
		tr->kick(qp);
	return ret;
}

/* ---- receive --------------------------------------------------------------- */

int rqe_fill(struct rqe *r, const struct ibv_recv_wr *wr, uint32_t max_sge)
{
	uint64_t length = 0;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > max_sge)
		return log_refuse(EINVAL, "posting a receive: %d SGEs, the queue has %u",
				  wr->num_sge, max_sge);
	if (wr->num_sge && !wr->sg_list)
		return log_refuse(EINVAL, "posting a receive: no list for %d SGEs",
				  wr->num_sge);
	for (int i = 0; i < wr->num_sge; i++) {
		r->sge[i] = wr->sg_list[i];
		length += wr->sg_list[i].length;
	}
	r->wr_id = wr->wr_id;
	r->num_sge = (uint32_t)wr->num_sge;
	r->length = length > DEV_MAX_MSG ? DEV_MAX_MSG : (uint32_t)length;
	return 0;
}

void rqe_copy(struct rqe *to, const struct rqe *from)
{
	memcpy(to, from, sizeof(*from) + from->num_sge * sizeof(from->sge[0]));
}

static int recv_one_locked(struct dev_qp *qp, const struct ibv_recv_wr *wr)
{
	struct dev_rq *rq = &qp->rq;
	int ret;

	lock_assert_held(&qp->lock);
	if (atomic_load_explicit(&rq->outstanding, memory_order_acquire) >= rq->max_wr)
		return log_refuse(ENOMEM,
				  "ibv_post_recv: QP 0x%x: the receive queue of %u is "
				  "full",
				  qp->qp.qp_num, rq->max_wr);
	ret = rqe_fill(rq_at(rq, rq->tail), wr, rq->max_sge);
	if (ret)
		return ret;
	rq->tail++;
	atomic_fetch_add_explicit(&rq->outstanding, 1, memory_order_relaxed);
	return 0;
}

int post_recv(struct dev_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	const struct dev_transport *tr = NULL;
	bool any = false;
	int ret = 0;

	if (qp->qp.qp_type == IBV_QPT_XRC_SEND || qp->qp.qp_type == IBV_QPT_XRC_RECV) {
		*bad = wr;
		return log_refuse(EINVAL, "ibv_post_recv: QP 0x%x is an XRC QP: receives "
					  "are posted to SRQs", qp->qp.qp_num);
	}
	lock_get(&qp->lock);
	if (qp->srq || qp->qp.state == IBV_QPS_RESET) {
		lock_put(&qp->lock);
		*bad = wr;
		return log_refuse(EINVAL, "ibv_post_recv: QP 0x%x %s", qp->qp.qp_num,
				  qp->srq ? "receives through an SRQ" :
					    "is in state RESET");
	}
	for (; wr; wr = wr->next, any = true) {
		ret = recv_one_locked(qp, wr);
		if (ret) {
			*bad = wr;
			break;
		}
	}
	if (qp->qp.state == IBV_QPS_ERR && qp->flushed) {
		rq_flush_locked(qp);
	} else if (any && qp->recv_awaited) {
		qp->recv_awaited = false;
		tr = qp->tr;
	}
	lock_put(&qp->lock);
	if (tr)
		tr->recv_posted(qp);
	return ret;
}
