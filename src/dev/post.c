/* SPDX-License-Identifier: BSD-2-Clause */
/* Posting: checks what can be checked without touching memory, copies work
 * requests into the rings, kicks the transport once. Local keys are checked when
 * the transport uses them, as on hardware: a bad one is a completion with
 * LOC_PROT_ERR, not a refused call. */
#include "base/log.h"
#include "dev/transport.h"
#include "dev/verbs.h"

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

/* What an opcode of a reliable connection needs and allows. */
enum { OP_OK = 1, OP_INLINE = 2, OP_REMOTE = 4, OP_ATOMIC = 8, OP_RESPONSE = 16 };

static const uint8_t op_rules[] = {
	[IBV_WR_RDMA_WRITE] = OP_OK | OP_INLINE | OP_REMOTE,
	[IBV_WR_RDMA_WRITE_WITH_IMM] = OP_OK | OP_INLINE | OP_REMOTE,
	[IBV_WR_SEND] = OP_OK | OP_INLINE,
	[IBV_WR_SEND_WITH_IMM] = OP_OK | OP_INLINE,
	[IBV_WR_RDMA_READ] = OP_OK | OP_REMOTE | OP_RESPONSE,
	[IBV_WR_ATOMIC_CMP_AND_SWP] = OP_OK | OP_ATOMIC | OP_RESPONSE,
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = OP_OK | OP_ATOMIC | OP_RESPONSE,
	[IBV_WR_SEND_WITH_INV] = OP_OK | OP_INLINE,
};

static unsigned op_rule(enum ibv_wr_opcode op)
{
	return (unsigned)op < sizeof(op_rules) ? op_rules[op] : 0;
}

static int send_check(const struct dev_qp *qp, const struct ibv_send_wr *wr,
		      uint64_t length)
{
	const struct dev_sq *sq = &qp->sq;
	unsigned rule = op_rule(wr->opcode);
	uint32_t qpn = qp->qp.qp_num;

	if (!(rule & OP_OK))
		return log_refuse(EINVAL,
				  "ibv_post_send: QP 0x%x: opcode %d is not supported",
				  qpn, (int)wr->opcode);
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > sq->max_sge)
		return log_refuse(EINVAL,
				  "ibv_post_send: QP 0x%x: %d SGEs, the QP has %u", qpn,
				  wr->num_sge, sq->max_sge);
	if (wr->num_sge && !wr->sg_list)
		return log_refuse(EINVAL, "ibv_post_send: QP 0x%x: no list for %d SGEs",
				  qpn, wr->num_sge);
	if ((wr->send_flags & IBV_SEND_INLINE) && !(rule & OP_INLINE))
		return log_refuse(EINVAL,
				  "ibv_post_send: QP 0x%x: opcode %d cannot be inline",
				  qpn, (int)wr->opcode);
	if ((wr->send_flags & IBV_SEND_INLINE) && length > sq->max_inline)
		return log_refuse(EINVAL,
				  "ibv_post_send: QP 0x%x: %llu inline bytes, the QP "
				  "takes %u",
				  qpn, (unsigned long long)length, sq->max_inline);
	if (length > DEV_MAX_MSG)
		return log_refuse(EINVAL,
				  "ibv_post_send: QP 0x%x: message of %llu bytes, "
				  "2^31 are allowed",
				  qpn, (unsigned long long)length);
	if ((rule & OP_ATOMIC) && (wr->num_sge != 1 || length != 8))
		return log_refuse(EINVAL,
				  "ibv_post_send: QP 0x%x: an atomic needs one SGE of "
				  "8 bytes, not %d of %llu",
				  qpn, wr->num_sge, (unsigned long long)length);
	if ((rule & OP_RESPONSE) && !qp->attr.max_rd_atomic)
		return log_refuse(EINVAL,
				  "ibv_post_send: QP 0x%x: a read or atomic, but "
				  "max_rd_atomic is 0",
				  qpn);
	return 0;
}

static void copy_inline(struct wqe *w, const struct ibv_send_wr *wr)
{
	uint8_t *to = wqe_inline(w);

	for (int i = 0; i < wr->num_sge; i++) {
		memcpy(to, (void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
		to += wr->sg_list[i].length;
	}
	w->is_inline = 1;
}

static void wqe_fill(struct wqe *w, const struct ibv_send_wr *wr, uint64_t length,
		     bool sig_all)
{
	unsigned rule = op_rule(wr->opcode);

	memset(w, 0, sizeof(*w));
	w->wr_id = wr->wr_id;
	w->send_flags = wr->send_flags | (sig_all ? IBV_SEND_SIGNALED : 0);
	w->opcode = (uint8_t)wr->opcode;
	w->length = (uint32_t)length;
	w->imm_or_rkey = wr->imm_data;
	if (rule & OP_REMOTE) {
		w->raddr = wr->wr.rdma.remote_addr;
		w->rkey = wr->wr.rdma.rkey;
	} else if (rule & OP_ATOMIC) {
		w->raddr = wr->wr.atomic.remote_addr;
		w->rkey = wr->wr.atomic.rkey;
		w->compare_add = wr->wr.atomic.compare_add;
		w->swap = wr->wr.atomic.swap;
	}
	if (wr->send_flags & IBV_SEND_INLINE) {
		copy_inline(w, wr);
	} else {
		w->num_sge = (uint8_t)wr->num_sge;
		if (wr->num_sge)
			memcpy(w->sge, wr->sg_list,
			       (size_t)wr->num_sge * sizeof(*wr->sg_list));
	}
}

static int send_one_locked(struct dev_qp *qp, const struct ibv_send_wr *wr)
{
	struct dev_sq *sq = &qp->sq;
	uint64_t length = 0;
	int ret;

	lock_assert_held(&qp->lock);
	if (sq->tail - atomic_load_explicit(&sq->free, memory_order_acquire) >=
	    sq->max_wr)
		return log_refuse(ENOMEM,
				  "ibv_post_send: QP 0x%x: the send queue of %u is "
				  "full (unsignalled work counts until a later signalled "
				  "completion is polled)",
				  qp->qp.qp_num, sq->max_wr);
	for (int i = 0; i < wr->num_sge && i < DEV_MAX_SGE && wr->sg_list; i++)
		length += wr->sg_list[i].length;
	ret = send_check(qp, wr, length);
	if (ret)
		return ret;
	wqe_fill(sq_at(sq, sq->tail), wr, length, sq->sig_all);
	sq->tail++;
	return 0;
}

int post_send(struct dev_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	const struct dev_transport *tr = NULL;
	enum ibv_qp_state state;
	int ret = 0;

	lock_get(&qp->lock);
	state = qp->qp.state;
	if (state != IBV_QPS_RTS && state != IBV_QPS_SQD && state != IBV_QPS_ERR) {
		lock_put(&qp->lock);
		*bad = wr;
		return log_refuse(EINVAL, "ibv_post_send: QP 0x%x is in state %s",
				  qp->qp.qp_num, qp_state_str(state));
	}
	for (; wr; wr = wr->next) {
		ret = send_one_locked(qp, wr);
		if (ret) {
			*bad = wr;
			break;
		}
	}
	if (state == IBV_QPS_ERR && qp->flushed)
		sq_flush_locked(qp);
	else if (state == IBV_QPS_RTS && qp->sq.next != qp->sq.tail)
		tr = qp->tr;
	lock_put(&qp->lock);
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
	r->length = length > UINT32_MAX ? UINT32_MAX : (uint32_t)length;
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
	} else if (any && qp->rnr_told) {
		qp->rnr_told = false;
		tr = qp->tr;
	}
	lock_put(&qp->lock);
	if (tr)
		tr->recv_posted(qp);
	return ret;
}
