/* SPDX-License-Identifier: BSD-2-Clause */
#include "rc/execute.h"

#include "rc/tap.h"

void execute_begin(struct stream *s)
{
	struct rc_tx *tx = &s->tx;

	lock_assert_held(&s->lock);
	tx->execute_idx = s->qp->sq.next;
	tx->execute_off = 0;
	tx->execute_not = tx->more = tx->drain = false;
}

static bool one_sided(const struct wqe *w)
{
	return w->opcode == IBV_WR_RDMA_WRITE || w->opcode == IBV_WR_RDMA_READ;
}

/* Of a write with immediate data the data can be placed, before the rest is sent; worth
 * it if it is much. */
static bool placeable(const struct wqe *w)
{
	return one_sided(w) ||
	       (w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM && w->length >= RC_EXECUTE_WAIT);
}

/* May the work at sq.next be done without a word to the peer, once everything before it
 * is answered? So it does not overtake, and nothing will be repeated. */
static bool may_execute(const struct stream *s, const struct wqe *w)
{
	const struct rc_tx *tx = &s->tx;
	const struct dev_qp *qp = s->qp;

	return placeable(w) && w->length && !tx->execute_not && tx->hold == HOLD_NONE &&
	       !tx->off && !tx->imm_sent && !tx->probe_sent &&
	       (w->opcode != IBV_WR_RDMA_READ || qp->attr.max_rd_atomic) &&
	       qp_may_send_locked(qp);
}

/* Much data is worth the wait for the answers to what was sent before. So is any request
 * behind writes and reads alone: if each were sent because the one before it was, none would
 * be executed again. */
static bool worth_draining(struct stream *s, const struct wqe *w)
{
	struct dev_sq *sq = &s->qp->sq;

	if (!s->carrier->executor->likely(s, w))
		return false;
	if (w->length >= RC_EXECUTE_WAIT)
		return true;
	for (uint32_t i = s->tx.acked; i != sq->next; i++)
		if (!one_sided(sq_at(sq, i)))
			return false;
	return true;
}

bool execute_drains_before(struct stream *s, uint32_t idx)
{
	struct dev_sq *sq = &s->qp->sq;
	const struct wqe *w = sq_at(sq, idx);

	lock_assert_held(&s->lock);
	return s->carrier->executor && idx != sq->tail && placeable(w) &&
	       w->length >= RC_EXECUTE_WAIT && s->carrier->executor->likely(s, w);
}

/* Without locks, which others need: a page of the memory may be slow to come. Who flushes
 * the WQE waits (qp_copy_begin_locked()), who detaches the QP, too (stream_quiesce()), and
 * others find it begun. */
NO_TSA static int run_unlocked(struct stream *s, struct wqe *w, uint32_t len)
{
	struct dev_qp *qp = s->qp;
	uint32_t off = s->tx.execute_off;
	int ret;

	lock_assert_held(&s->lock);
	s->tx.executing = true;
	qp_copy_begin_locked(qp);
	lock_put(&qp->lock);
	stream_unlock(s);
	ret = s->carrier->executor->run(s, w, off, len);
	stream_lock(s);
	lock_get(&qp->lock);
	qp_copy_end_locked(qp);
	s->tx.executing = false;
	cond_broadcast(&s->copied);
	return ret;
}

/* Some bytes of the WQE at sq.next. */
static int run(struct stream *s, struct wqe *w, uint32_t len)
{
	lock_assert_held(&s->lock);
	w->begun = 1;
	if (w->length <= RC_EXECUTE_LOCKED)
		return s->carrier->executor->run(s, w, s->tx.execute_off, len);
	if (!s->carrier->executor->likely(s, w))
		return -ENOENT;
	return run_unlocked(s, w, len);
}

/* The target's process hears nothing of it: so both ways of the device are counted here, as
 * they are on a device that talks to itself. */
static void count(struct stream *s, const struct wqe *w)
{
	lock_assert_held(&s->lock);
	stream_count(s, TRAFFIC_XMIT, w->length);
	stream_count(s, TRAFFIC_RCV, w->length);
}

/* Carried out whole: the tap hears of it as of the frame that would have been sent. */
static void tell(struct stream *s, const struct wqe *w)
{
	struct rc_frame f;

	count(s, w);
	if (!rc_tapped())
		return;
	rc_frame_clear(&f);
	if (w->opcode == IBV_WR_RDMA_READ) {
		f.op = RC_READ_REQ;
		f.last = true;
		memset(&f.read, 0, sizeof(f.read));
		f.read.size = w->length;
		f.read.src_stag = w->rkey;
		f.read.src_to = w->raddr;
	} else {
		f.op = RC_WRITE;
		f.last = w->opcode == IBV_WR_RDMA_WRITE;
		f.payload = w->length;
		f.stag = w->rkey;
		f.to = w->raddr;
	}
	rc_frame_out(s, &f, RC_EXECUTED);
}

/* All of the work request at sq.next was carried out. False: the immediate data of a write
 * is left to be sent. */
static bool finish_locked(struct stream *s, struct wqe *w)
{
	struct rc_tx *tx = &s->tx;

	lock_assert_held(&s->qp->lock);
	tell(s, w);
	tx->execute_off = 0;
	if (w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
		tx->off = w->length; /* what is left to send has no payload */
		tx->probe_sent = true;
		return false;
	}
	w->finished = WQE_DIRECT;
	s->qp->sq.next++;
	tx->acked++;
	sq_retire_locked(s->qp);
	return true;
}

/* What appears in the peer's memory may tell it that its request was received, and it may
 * disconnect at once: the acknowledgement that it asked for goes first. False: it cannot,
 * tx_run() has to send it. */
static bool ack_first(struct stream *s)
{
	struct rc_rx *rx = &s->rx;

	lock_assert_held(&s->lock);
	if (!rx->ack_asked)
		return true;
	if (!rx->nak && rx->resp_head == rx->resp_tail && s->carrier->send_ack &&
	    s->carrier->send_ack(s))
		return true;
	rx->ack_now = rx->ack_owed;
	return false;
}

/* The request at sq.next, if it may be carried out now; else NULL. */
static struct wqe *next_locked(struct stream *s)
{
	struct dev_qp *qp = s->qp;
	struct rc_tx *tx = &s->tx;
	struct dev_sq *sq;
	struct wqe *w;

	if (!qp || !s->carrier->executor || s->p.unreliable || tx->executing ||
	    qp->sq.next == qp->sq.tail)
		return NULL;
	lock_assert_held(&qp->lock);
	sq = &qp->sq;
	w = sq_at(sq, sq->next);
	if (tx->execute_idx != sq->next) {
		tx->execute_idx = sq->next;
		tx->execute_off = 0;
		tx->execute_not = false;
	}
	if (!may_execute(s, w))
		return NULL;
	if (tx->acked != sq->next || tx->rd_out) {
		tx->drain = worth_draining(s, w);
		return NULL;
	}
	return w;
}

/* A turn of the request. True: it is done. */
static bool step_locked(struct stream *s, struct wqe *w, uint32_t *left)
{
	enum { LEAST = 4096 }; /* what a small one costs, as bytes of a large one */
	struct rc_tx *tx = &s->tx;
	uint32_t len = w->length - tx->execute_off;

	lock_assert_held(&s->lock);
	if (!tx->execute_off && !ack_first(s))
		return false;
	len = len < *left ? len : *left;
	tx->execute_not = run(s, w, len);
	/* It will be flushed, or was, unless it is done. */
	if (!qp_may_receive_locked(s->qp) &&
	    (s->qp->flushed || tx->execute_not || tx->execute_off + len != w->length))
		return false;
	if (tx->execute_not) {
		tx->execute_off = w->begun = 0;
		return false;
	}
	*left -= len > LEAST ? len : *left > LEAST ? LEAST : *left;
	tx->execute_off += len;
	return tx->execute_off == w->length && finish_locked(s, w);
}

bool execute_next_locked(struct stream *s, uint32_t *left)
{
	struct wqe *w = next_locked(s);

	if (!w)
		return false;
	s->tx.more = !*left || w->length > RC_EXECUTE_LOCKED;
	return !s->tx.more && step_locked(s, w, left);
}

void execute_turn(struct stream *s, uint32_t *left)
{
	struct dev_qp *qp = s->qp;
	struct wqe *w;

	lock_assert_held(&s->lock);
	if (!qp || !s->carrier->executor || s->state != STREAM_OPEN)
		return;
	lock_get(&qp->lock);
	do
		w = *left ? next_locked(s) : NULL;
	while (w && w->length > RC_EXECUTE_LOCKED && step_locked(s, w, left));
	lock_put(&qp->lock);
}
