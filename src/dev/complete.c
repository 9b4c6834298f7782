/* SPDX-License-Identifier: BSD-2-Clause */
/* Turning work requests into completions, one by one and wholesale (flush). */
#include "dev/complete.h"
#include "dev/transport.h"
#include "dev/verbs.h"
#include "dev/wqe.h"
#include "dev/xrc.h"

#include <errno.h>

const char *complete_status_str(enum ibv_wc_status status)
{
	static const char *const names[] = {
		"SUCCESS",	     "LOC_LEN_ERR",
		"LOC_QP_OP_ERR",     "LOC_EEC_OP_ERR",
		"LOC_PROT_ERR",	     "WR_FLUSH_ERR",
		"MW_BIND_ERR",	     "BAD_RESP_ERR",
		"LOC_ACCESS_ERR",    "REM_INV_REQ_ERR",
		"REM_ACCESS_ERR",    "REM_OP_ERR",
		"RETRY_EXC_ERR",     "RNR_RETRY_EXC_ERR",
		"LOC_RDD_VIOL_ERR",  "REM_INV_RD_REQ_ERR",
		"REM_ABORT_ERR",     "INV_EECN_ERR",
		"INV_EEC_STATE_ERR", "FATAL_ERR",
		"RESP_TIMEOUT_ERR",  "GENERAL_ERR",
	};

	return (unsigned)status < sizeof(names) / sizeof(names[0]) ? names[status] : "?";
}

static enum ibv_wc_opcode wc_opcode(uint8_t op)
{
	switch (op) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return IBV_WC_RDMA_WRITE;
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return IBV_WC_COMP_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return IBV_WC_FETCH_ADD;
	case IBV_WR_ATOMIC_WRITE:
		return IBV_WC_ATOMIC_WRITE;
	case IBV_WR_BIND_MW:
		return IBV_WC_BIND_MW;
	case IBV_WR_LOCAL_INV:
		return IBV_WC_LOCAL_INV;
	default:
		return IBV_WC_SEND;
	}
}

int sq_complete_locked(struct dev_qp *qp, enum ibv_wc_status status)
{
	struct dev_sq *sq = &qp->sq;
	struct wqe *w = sq_at(sq, sq->done);
	struct cqe e = {
		.wc = { .wr_id = w->wr_id,
			.status = status,
			.opcode = wc_opcode(w->opcode),
			.byte_len = w->length,
			.qp_num = qp->qp.qp_num },
		.qp = qp,
		.frees = CQE_FREES_SQ,
		.sq_upto = sq->done + 1,
	};

	lock_assert_held(&qp->lock);
	wqe_release(qp, w);
	if (sq->begun == sq->done) /* it is never behind done, as indices wrap */
		sq->begun++;
	sq->done++;
	if (status == IBV_WC_SUCCESS && !(w->send_flags & IBV_SEND_SIGNALED))
		return 0;
	return cq_push(qp->send_cq, &e, false);
}

/* The completion names the QP by number alone: it stays in the CQ, which is the SRQ's,
 * when the QP is destroyed. */
static int xrc_complete_locked(struct dev_qp *qp, struct cqe *e, bool solicited)
	REQUIRES(qp->lock)
{
	struct dev_srq *srq = qp->xrc->srq;
	int ret;

	e->qp = NULL;
	e->srq = srq;
	e->frees = CQE_FREES_SRQ;
	ret = cq_push(srq->cq, e, solicited);
	if (ret) {
		atomic_fetch_sub(&srq->rq.outstanding, 1);
		if (qp->qp.state != IBV_QPS_ERR)
			async_qp(qp, IBV_EVENT_QP_FATAL);
	}
	xrc_recv_done_locked(qp);
	return ret;
}

int recv_complete_locked(struct dev_qp *qp, const struct rqe *r, const struct ibv_wc *wc,
			 bool solicited)
{
	struct cqe e = { .wc = *wc,
			 .qp = qp,
			 .frees = qp->srq ? CQE_FREES_SRQ : CQE_FREES_RQ,
			 .srq = qp->srq };
	int ret;

	lock_assert_held(&qp->lock);
	e.wc.wr_id = r->wr_id;
	e.wc.qp_num = qp->qp.qp_num;
	if (qp_type_is_connected(qp->qp.qp_type))
		e.wc.src_qp = qp->attr.dest_qp_num;
	if (qp->xrc)
		return xrc_complete_locked(qp, &e, solicited);
	ret = cq_push(qp->recv_cq, &e, solicited);
	/* The SRQ is still used when the QP has failed: it gets the slot back. */
	if (ret && qp->srq)
		atomic_fetch_sub(&qp->srq->rq.outstanding, 1);
	return ret;
}

/* True if the CQ overran. */
static bool retire_finished_locked(struct dev_qp *qp) REQUIRES(qp->lock);

static bool retire_finished_locked(struct dev_qp *qp)
{
	struct dev_sq *sq = &qp->sq;

	while (sq->done != sq->tail && sq_at(sq, sq->done)->finished)
		if (sq_complete_locked(qp, IBV_WC_SUCCESS))
			return true;
	return false;
}

void sq_drained_check_locked(struct dev_qp *qp)
{
	lock_assert_held(&qp->lock);
	if (qp->qp.state != IBV_QPS_SQD || !qp->sqd_armed || !sq_drained(qp))
		return;
	qp->sqd_armed = false;
	async_qp(qp, IBV_EVENT_SQ_DRAINED);
}

void sq_retire_locked(struct dev_qp *qp)
{
	lock_assert_held(&qp->lock);
	if (retire_finished_locked(qp))
		qp_to_err_locked(qp);
	else
		sq_drained_check_locked(qp);
}

/* ---- flush ------------------------------------------------------------------ */

/* A CQ that has overrun stores nothing more; the loops run to their end all the same. */
void sq_flush_locked(struct dev_qp *qp)
{
	lock_assert_held(&qp->lock);
	while (qp->sq.done != qp->sq.tail)
		sq_complete_locked(qp, IBV_WC_WR_FLUSH_ERR);
	qp->sq.next = qp->sq.tail;
}

void rq_flush_locked(struct dev_qp *qp)
{
	static const struct ibv_wc wc = { .status = IBV_WC_WR_FLUSH_ERR,
					  .opcode = IBV_WC_RECV };
	struct dev_rq *rq = &qp->rq;

	lock_assert_held(&qp->lock);
	if (qp->cur_valid) {
		qp->cur_valid = false;
		recv_complete_locked(qp, qp->cur, &wc, true);
	}
	while (rq->head != rq->tail)
		recv_complete_locked(qp, rq_at(rq, rq->head++), &wc, true);
}

void qp_flush_locked(struct dev_qp *qp)
{
	lock_assert_held(&qp->lock);
	/* Work behind a failure is flushed even if it was carried out. */
	sq_flush_locked(qp);
	rq_flush_locked(qp);
	qp->flushed = true;
	qp->recv_awaited = false;
	if (qp->xrc) {
		xrc_stop_waiting_locked(qp);
	} else if (qp->srq) {
		lock_get(&qp->srq->lock);
		list_del(&qp->srq_wait);
		lock_put(&qp->srq->lock);
	} else {
		return;
	}
	async_qp(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
}

void qp_to_err_locked(struct dev_qp *qp)
{
	lock_assert_held(&qp->lock);
	if (qp->qp.state != IBV_QPS_ERR)
		qp_state_set_locked(qp, IBV_QPS_ERR);
	qp->flush_due = !qp->flushed && qp->copies;
	if (!qp->flushed && !qp->copies)
		qp_flush_locked(qp);
}

void qp_copy_begin_locked(struct dev_qp *qp)
{
	lock_assert_held(&qp->lock);
	qp->copies++;
}

void qp_copy_end_locked(struct dev_qp *qp)
{
	lock_assert_held(&qp->lock);
	qp->copies--;
	if (!qp->flush_due || qp->copies)
		return;
	qp->flush_due = false;
	if (qp->qp.state == IBV_QPS_ERR && !qp->flushed)
		qp_flush_locked(qp);
}
