/* SPDX-License-Identifier: BSD-2-Clause */
/* Unreliable connections on a stream.
 *
 * Design notes. The carrier is reliable, the service is not: nobody acknowledges,
 * refuses or repeats. A request is finished when the carrier has taken it. What the
 * responder cannot accept (no receive, a key or bounds that are wrong, no QP) it
 * discards to the end of the message, without a word (InfiniBand 9.9.3, class D).
 *
 * A requester never waits for its peer: where hardware sends into the void, so does
 * this. Work for a stream that has ended completes; so does work that waits for a
 * stream, or for room in it, for UC_TICKS in vain. A process on this host has longer
 * (UC_TICKS_HOST): if nothing is taken it is stopped, or a crowded machine has no time for
 * it, and hardware would have placed the messages meanwhile. That is the one use of RESYNC
 * here: a message that was cut off in the middle, so or by a failed QP, is given
 * up by it, and the next one begins.
 *
 * A carrier holds thousands of messages, and whoever empties it can be faster than
 * an application that reposts its receives, or find it off the CPU. So a message
 * without a receive is late on the wire (ANYRDMA_UC_LATE_MS) before it is lost; if it is,
 * those behind it do not wait until one has found its receive again. */
#include "rc/uc.h"

#include "base/conf.h"
#include "base/log.h"
#include "dev/sge.h"
#include "rc/tx.h"

/* ---- requester --------------------------------------------------------------- */

static enum ibv_wc_status vanish_locked(struct dev_qp *qp) REQUIRES(qp->lock)
{
	struct dev_sq *sq = &qp->sq;

	lock_assert_held(&qp->lock);
	for (uint32_t i = sq->done; i != sq->next; i++)
		sq_at(sq, i)->finished = 1; /* of the last, a rest was to be sent */
	for (;;) {
		enum ibv_wc_status status = sq_run_local_locked(qp, false);
		struct wqe *w = sq_at(sq, sq->next);
		struct sge_list list;

		if (status || sq->next == sq->tail || !qp_may_send_locked(qp))
			return status;
		list = wqe_sge_list(qp, w, MR_LOCAL_READ);
		if (!w->is_inline && sge_check(&list))
			return IBV_WC_LOC_PROT_ERR;
		w->finished = 1;
		sq->next++;
	}
}

void uc_vanish(struct dev_qp *qp)
{
	enum ibv_wc_status status;
	uint32_t idx;

	lock_get(&qp->lock);
	status = vanish_locked(qp);
	idx = qp->sq.next;
	sq_retire_locked(qp);
	lock_put(&qp->lock);
	if (status)
		qp_fail_send(qp, idx, status, "work that would have been for nobody");
}

void uc_cut(struct stream *s)
{
	s->tx.resync |= s->tx.off || s->tx.imm_sent || s->tx.probe_sent;
	s->tx.off = 0;
	s->tx.imm_sent = s->tx.probe_sent = false;
}

void uc_gone(struct stream *s)
{
	lock_assert_held(&s->lock);
	tx_own_payload(s);
	uc_cut(s);
	s->tx.hold = HOLD_NONE;
	uc_vanish(s->qp);
}

void uc_sent(struct stream *s)
{
	struct rc_tx *tx = &s->tx;

	lock_assert_held(&s->lock);
	if (!s->qp || s->state != STREAM_OPEN || !tx->blocked) {
		tx->stall_tick = 0;
	} else if (!tx->stall_tick || s->carrier->consumed(s) != tx->stall_consumed) {
		tx->stall_ticks = 0;
		tx->stall_consumed = s->carrier->consumed(s);
		tx->stall_tick = loop_now() + RC_TICK_MS * MSEC;
		stream_timer(s, tx->stall_tick);
	} else if (tx->stall_ticks >= s->carrier->patience) {
		uc_gone(s);
	}
}

/* tx_run() follows. */
void uc_timer(struct stream *s, uint64_t now)
{
	struct rc_tx *tx = &s->tx;

	lock_assert_held(&s->lock);
	if (!tx->stall_tick || tx->stall_ticks >= s->carrier->patience)
		return;
	if (now >= tx->stall_tick) {
		tx->stall_tick = now + RC_TICK_MS * MSEC;
		if (++tx->stall_ticks == s->carrier->patience)
			log_info("stream %u (QP %06x to QP %06x): the peer takes nothing: "
				 "what is sent vanishes",
				 s->id, s->p.local_qpn, s->p.remote_qpn);
	}
	if (tx->stall_ticks < s->carrier->patience)
		stream_timer(s, tx->stall_tick);
}

/* ---- responder ---------------------------------------------------------------- */

bool uc_late(struct stream *s, int where)
{
	struct rc_rx *rx = &s->rx;
	uint64_t now;

	lock_assert_held(&s->lock);
	if (rx->no_wait)
		return false;
	now = loop_now();
	if (!rx->wait_until)
		rx->wait_until = now + conf_get()->uc_late_ms * MSEC;
	rx->no_wait = now >= rx->wait_until;
	if (rx->no_wait)
		return false;
	rx->wait = (__typeof__(rx->wait))where;
	stream_timer(s, rx->wait_until);
	return true;
}

void uc_drop(struct stream *s)
{
	struct rc_rx *rx = &s->rx;

	rx->skip = true;
	rx->place = PLACE_SCRATCH;
	rx->imm_have = false;
	rx->write_len = rx->msg_off = 0;
}

void uc_refuse(struct stream *s, enum ibv_wc_status st, const char *why)
{
	lock_assert_held(&s->lock);
	uc_drop(s);
	if (!s->qp)
		return;
	if (st == IBV_WC_SUCCESS) {
		log_info("QP 0x%x discards a message: %s", s->qp->qp.qp_num, why);
		return;
	}
	tx_own_payload(s);
	s->tx.hold = HOLD_NONE;
	qp_fail_recv(s->qp, st, -1, why);
}

void uc_frame_end(struct stream *s)
{
	const struct rc_frame *h = &s->rx.h;

	/* An immediate comes before what it belongs to. */
	if (h->last && h->op != RC_IMM && h->op != RC_IMM_SE)
		s->rx.skip = false;
}
