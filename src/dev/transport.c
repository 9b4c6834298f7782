/* SPDX-License-Identifier: BSD-2-Clause */
/* The device's services for a transport: giving receives, making completions, failing a
 * QP. */
#include "dev/transport.h"
#include "base/log.h"
#include "dev/complete.h"
#include "dev/share.h"
#include "dev/verbs.h"
#include "dev/xrc.h"

#include <errno.h>

bool qp_waits_for_recv(const struct dev_qp *qp)
{
	return qp->tr && qp->tr->recv_posted;
}

bool qp_may_begin_locked(const struct dev_qp *qp, uint32_t idx)
{
	if (qp->qp.state == IBV_QPS_RTS)
		return true;
	return qp->qp.state == IBV_QPS_SQD && (int32_t)(qp->sqd_upto - idx) > 0;
}

bool qp_may_send_locked(const struct dev_qp *qp)
{
	return qp_may_begin_locked(qp, qp->sq.next);
}

bool qp_may_receive_locked(const struct dev_qp *qp)
{
	return qp->qp.state == IBV_QPS_RTR || qp->qp.state == IBV_QPS_RTS ||
	       qp->qp.state == IBV_QPS_SQD || qp->qp.state == IBV_QPS_SQE;
}

enum ibv_wc_status sq_run_local_locked(struct dev_qp *qp, bool reads)
{
	enum ibv_wc_status status = IBV_WC_SUCCESS;
	struct dev_sq *sq = &qp->sq;
	bool any = false;

	lock_assert_held(&qp->lock);
	while (sq->next != sq->tail && qp_may_send_locked(qp)) {
		struct wqe *w = sq_at(sq, sq->next);

		if (!wqe_is_local(w))
			break;
		if (!w->finished) {
			if ((w->send_flags & IBV_SEND_FENCE) && reads)
				break;
			status = mw_execute(qp, w);
			if (status)
				break;
			w->finished = 1;
		}
		sq->next++;
		any = true;
	}
	if (any)
		sq_retire_locked(qp);
	return status;
}

/* InfiniBand 1.5, 11.6.3.2: the first packet that a QP in RTR gets, of whatever
 * kind. It is about a connection: UD has none. */
static void comm_est_locked(struct dev_qp *qp)
{
	lock_assert_held(&qp->lock);
	if (qp->qp.state != IBV_QPS_RTR || qp->comm_est_sent ||
	    !qp_type_is_connected(qp->qp.qp_type))
		return;
	qp->comm_est_sent = true;
	share_qp_update_locked(qp);
	async_qp(qp, IBV_EVENT_COMM_EST);
}

bool qp_heard_locked(struct dev_qp *qp)
{
	lock_assert_held(&qp->lock);
	if (!qp_may_receive_locked(qp))
		return false;
	comm_est_locked(qp);
	return true;
}

struct dev_pd *recv_pd(struct dev_qp *qp, uint32_t srqn)
{
	return qp->xrc ? xrc_pd(qp, srqn) : qp->pd;
}

int recv_take_locked(struct dev_qp *qp, uint32_t srqn)
{
	int ret = 0;

	lock_assert_held(&qp->lock);
	if (qp->cur_valid)
		return 0;
	if (!qp_may_receive_locked(qp)) {
		ret = -ENOENT;
	} else if (qp->xrc) {
		ret = xrc_take_locked(qp, srqn);
	} else if (qp->srq) {
		ret = srq_take_locked(qp->srq, qp);
	} else if (qp->rq.head == qp->rq.tail) {
		qp->recv_awaited = qp_waits_for_recv(qp);
		ret = -ENOENT;
	} else {
		rqe_copy(qp->cur, rq_at(&qp->rq, qp->rq.head++));
	}
	qp->cur_valid = !ret;
	return ret;
}

int recv_take(struct dev_qp *qp, uint32_t srqn)
{
	int ret;

	lock_get(&qp->lock);
	ret = recv_take_locked(qp, srqn);
	lock_put(&qp->lock);
	return ret;
}

void recv_done(struct dev_qp *qp, const struct ibv_wc *wc, bool solicited)
{
	lock_get(&qp->lock);
	if (!qp->cur_valid) {
		lock_put(&qp->lock);
		return;
	}
	comm_est_locked(qp);
	qp->cur_valid = false;
	if (recv_complete_locked(qp, qp->cur, wc, solicited))
		qp_to_err_locked(qp);
	lock_put(&qp->lock);
}

/* ---- failing ---------------------------------------------------------------- */

/* Not in ERR and RESET: the QP has failed before, or the application has moved it there
 * itself and flushes it. */
static bool may_fail_locked(const struct dev_qp *qp)
{
	return qp->qp.state != IBV_QPS_ERR && qp->qp.state != IBV_QPS_RESET;
}

/* InfiniBand 10.3.1.6: an error of its send queue leaves an unreliable QP able to
 * receive. */
static void send_error_locked(struct dev_qp *qp)
{
	lock_assert_held(&qp->lock);
	if (!qp_is_unreliable(qp)) {
		qp_to_err_locked(qp);
		return;
	}
	qp->sqd_armed = false;
	qp_state_set_locked(qp, IBV_QPS_SQE);
	sq_flush_locked(qp);
}

void qp_fail_send(struct dev_qp *qp, uint32_t idx, enum ibv_wc_status status,
		  const char *why)
{
	struct dev_sq *sq = &qp->sq;

	lock_get(&qp->lock);
	if (!may_fail_locked(qp) || qp->qp.state == IBV_QPS_SQE) {
		lock_put(&qp->lock);
		return;
	}
	log_info("QP 0x%x fails: %s: %s", qp->qp.qp_num, complete_status_str(status),
		 why);
	for (uint32_t i = sq->done; i != sq->tail && i != idx; i++)
		sq_at(sq, i)->finished = 1;
	sq_retire_locked(qp);
	if (!may_fail_locked(qp)) {
		lock_put(&qp->lock); /* the CQ has overrun meanwhile */
		return;
	}
	if (sq->done == sq->tail) {
		async_qp(qp, IBV_EVENT_QP_FATAL);
		qp_to_err_locked(qp);
	} else {
		share_qp_close_locked(qp);
		if (sq_complete_locked(qp, status))
			qp_to_err_locked(qp); /* the CQ had no room for it */
		else
			send_error_locked(qp);
	}
	lock_put(&qp->lock);
}

void qp_fail_recv(struct dev_qp *qp, enum ibv_wc_status status, int ev, const char *why)
{
	struct ibv_wc wc = { .status = status, .opcode = IBV_WC_RECV };

	lock_get(&qp->lock);
	if (!may_fail_locked(qp)) {
		lock_put(&qp->lock);
		return;
	}
	log_info("QP 0x%x fails as responder: %s: %s", qp->qp.qp_num,
		 complete_status_str(status), why);
	if (qp->cur_valid) {
		qp->cur_valid = false;
		recv_complete_locked(qp, qp->cur, &wc, true);
	}
	if (ev >= 0)
		async_qp(qp, (enum ibv_event_type)ev);
	qp_to_err_locked(qp);
	lock_put(&qp->lock);
}
