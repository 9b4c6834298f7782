/* SPDX-License-Identifier: BSD-2-Clause */
/* Our requests: what answers them, what repeats them, what ends them.
 *
 * Timers (all on stream.timer, see stream_timer()):
 *	hold	an RNR wait, or the wait for a QP that is not there yet
 *	silence	while requests are out: is the peer's *host* still there? Nothing is sent
 *		again by time: the carrier is reliable. */
#include "rc/requester.h"

#include "base/conf.h"
#include "base/log.h"
#include "rc/execute.h"
#include "rc/rx.h"
#include "rc/tx.h"
#include "rc/uc.h"

#include <errno.h>
#include <stdio.h>

/* InfiniBand RNR NAK timer field, in units of 10 us. */
static const uint32_t rnr_timer[32] = {
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768,
	1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
};

/* Index of the request with this number: before tx.acked for one that was
 * answered, behind sq.next for one that was not even begun. */
static uint32_t idx_of(const struct stream *s, uint32_t number)
{
	uint32_t d = (number - req_number(s, s->tx.acked_nr)) & 0xffffff;
	struct dev_sq *sq = &s->qp->sq;
	uint32_t i;

	if (d & 0x800000)
		return s->tx.acked - 1;
	for (i = s->tx.acked; i != sq->next; i++)
		if (!wqe_is_local(sq_at(sq, i)) && d-- == 0)
			break;
	return i == sq->next && d ? i + 1 : i;
}

void req_begin(struct stream *s)
{
	struct rc_tx *tx = &s->tx;

	tx->off = 0;
	tx->imm_sent = tx->probe_sent = false;
	tx->acked = tx->rd_scan = s->qp->sq.next;
	tx->acked_nr = 0; /* without a stream only local work was done */
	tx->rd_out = 0;
	tx->sig_since_req = false;
	tx->hold = HOLD_NONE;
	execute_begin(s);
	tx->copy_idx = s->qp->sq.next - 1;
	tx->references_refused = 0;
	/* So that the responder knows the number of the first request. */
	tx->resync = s->p.extended && !s->p.unreliable;
	tx->srqn = NO_SRQ;
	tx->rnr_seen = 0;
	tx->not_ready_at = 0;
}

uint64_t req_budget(const struct dev_qp *qp)
{
	if (!qp->attr.timeout)
		return UINT64_MAX;
	return (4096ull << qp->attr.timeout) * (qp->attr.retry_cnt + 1u);
}

uint64_t req_lost_budget(uint64_t budget, bool ended)
{
	return (ended || budget == UINT64_MAX) && budget > SEC ? SEC : budget;
}

/* At least two seconds before a silent host counts as dead. */
static uint64_t silence_budget(const struct dev_qp *qp)
{
	uint64_t b = req_budget(qp);

	return b < 2 * SEC ? 2 * SEC : b;
}

/* What is before sq.done is not looked at any more. Not by sign: sends alone may have
 * left it behind by more than half of all indices. */
static void rd_scan_follow(struct stream *s)
{
	const struct dev_sq *sq = &s->qp->sq;

	if (s->tx.rd_scan - sq->done > sq->next - sq->done)
		s->tx.rd_scan = sq->done;
}

/* What was flushed in SQE was not answered, and will not be. */
static void pass_flushed(struct stream *s)
{
	rd_scan_follow(s);
	if ((int32_t)(s->qp->sq.done - s->tx.acked) > 0)
		s->tx.acked = s->qp->sq.done;
}

/* Requests that are out and not answered. */
static bool outstanding(struct stream *s)
{
	bool out;

	lock_get(&s->qp->lock);
	pass_flushed(s);
	out = s->tx.acked != s->qp->sq.next || s->tx.rd_out;
	lock_put(&s->qp->lock);
	return out;
}

void req_sent(struct stream *s)
{
	uint64_t budget = silence_budget(s->qp);

	if (!s->timer_at && budget != UINT64_MAX)
		stream_timer(s, loop_now() + budget);
}

void req_fail(struct stream *s, uint32_t idx, enum ibv_wc_status st, const char *why)
{
	if (!s->qp)
		return;
	tx_own_payload(s);
	s->tx.hold = HOLD_NONE;
	if (s->p.unreliable)
		uc_cut(s); /* and the QP goes on receiving */
	else
		s->rx.place = PLACE_SCRATCH;
	qp_fail_send(s->qp, idx, st, why);
	stream_end(s);
}

static void hold(struct stream *s, int kind, uint64_t ns)
{
	lock_assert_held(&s->lock);
	s->tx.hold = (__typeof__(s->tx.hold))kind;
	s->tx.hold_until = ns == UINT64_MAX ? ns : loop_now() + ns;
	if (ns != UINT64_MAX)
		stream_timer(s, s->tx.hold_until);
}

void req_fail_oldest(struct stream *s, enum ibv_wc_status st, const char *why)
{
	uint32_t idx;
	bool any;

	if (!s->qp)
		return;
	lock_get(&s->qp->lock);
	idx = s->qp->sq.done;
	any = idx != s->qp->sq.tail;
	lock_put(&s->qp->lock);
	if (any && s->tx.executing) /* it may be the oldest: again when its copy has ended */
		hold(s, HOLD_LOST, RC_TICK_MS * MSEC);
	else if (any)
		req_fail(s, idx, st, why);
}

/* Local work waits for no answer. */
static void pass_local(struct stream *s)
{
	struct dev_sq *sq = &s->qp->sq;

	pass_flushed(s);
	while (s->tx.acked != sq->next && wqe_is_local(sq_at(sq, s->tx.acked)))
		s->tx.acked++;
}

/* Everything before idx has been answered. */
static void acked_before(struct stream *s, uint32_t idx)
{
	struct dev_qp *qp = s->qp;

	lock_assert_held(&qp->lock);
	pass_flushed(s);
	for (; s->tx.acked != idx; s->tx.acked++) {
		struct wqe *w = sq_at(&qp->sq, s->tx.acked);

		if (wqe_is_local(w))
			continue;
		s->tx.acked_nr++;
		if (!wqe_is_read(w))
			w->finished = 1;
		if (w->pulled)
			s->tx.references_refused = 0;
	}
	pass_local(s);
	s->tx.rnr_seen = 0;
	sq_retire_locked(qp);
}

/* What a cut frame belongs to is still being sent. */
void req_carried_locked(struct stream *s)
{
	struct dev_qp *qp = s->qp;

	if (!s->tx.cut && s->tx.acked != qp->sq.next && qp_may_receive_locked(qp))
		acked_before(s, qp->sq.next);
}

bool req_local_locked(struct stream *s)
{
	struct rc_tx *tx = &s->tx;
	enum ibv_wc_status status;

	lock_assert_held(&s->lock);
	if (!s->qp || tx->hold != HOLD_NONE || tx->off || tx->imm_sent || tx->probe_sent)
		return false;
	lock_assert_held(&s->qp->lock);
	status = sq_run_local_locked(s->qp, tx->rd_out);
	pass_local(s);
	if (!status)
		return false;
	tx->hold = HOLD_FAIL;
	tx->fail_status = status;
	return true;
}

/* In ERR the queue was flushed: answers to it mean nothing any more. */
static bool answers_count(struct stream *s)
{
	return s->qp && qp_may_receive_locked(s->qp);
}

bool req_ack_locked(struct stream *s, uint32_t number)
{
	uint32_t idx;

	if (!answers_count(s))
		return false;
	idx = idx_of(s, number) + 1;
	if ((int32_t)(idx - s->qp->sq.next) > 0)
		return false;
	if ((int32_t)(idx - s->tx.acked) > 0)
		acked_before(s, idx);
	return true;
}

void req_ack(struct stream *s, uint32_t number)
{
	struct dev_qp *qp = s->qp;
	char why[120];
	bool bad;

	if (!qp || s->p.unreliable)
		return;
	lock_get(&qp->lock);
	bad = answers_count(s) && !req_ack_locked(s, number);
	lock_put(&qp->lock);
	if (bad) {
		snprintf(why, sizeof(why),
			 "the peer acknowledged request %06x which was not sent: sq_psn %06x is "
			 "not the peer's rq_psn?",
			 number, qp->attr.sq_psn);
		req_fail_oldest(s, IBV_WC_RETRY_EXC_ERR, why);
		return;
	}
	if (s->tx.hold == HOLD_FAIL)
		req_hold_over(s);
}

/* Requests from idx on were discarded by the peer: sq.next goes back to idx. Whether they are
 * sent again is the caller's business (nak_no_qp(): never). */
static void step_back_to(struct stream *s, uint32_t idx)
{
	struct dev_qp *qp = s->qp;

	lock_get(&qp->lock);
	for (uint32_t i = idx; i != qp->sq.next; i++) {
		struct wqe *w = sq_at(&qp->sq, i);

		if (wqe_is_read(w)) {
			s->tx.rd_out--;
			w->got = 0;
		}
	}
	sq_step_back(&qp->sq, idx);
	if ((int32_t)(s->tx.rd_scan - idx) > 0)
		s->tx.rd_scan = idx;
	lock_put(&qp->lock);
	/* A begun frame of a discarded request is still finished, from memory. */
	s->tx.off = 0;
	s->tx.imm_sent = s->tx.probe_sent = false;
	s->tx.resync = true;
}

/* ... and they are sent again, once nothing holds them any more. */
static void repeat_from(struct stream *s, uint32_t idx)
{
	step_back_to(s, idx);
}

/* A QP that went away leaves reads unanswered that it had acknowledged: they are
 * lost without anything to repeat. */
static void nak_no_qp(struct stream *s, uint32_t idx)
{
	if ((int32_t)(idx - s->tx.acked) >= 0)
		step_back_to(s, idx);
	/* As on a wire where nobody answers: the retries run out. */
	hold(s, HOLD_LOST, req_lost_budget(req_budget(s->qp), false));
}

void req_peer_gone(struct stream *s)
{
	uint64_t ns;
	bool any;

	lock_assert_held(&s->lock);
	if (!s->qp)
		return;
	if (s->p.unreliable) {
		uc_gone(s);
		return;
	}
	lock_get(&s->qp->lock);
	any = s->qp->sq.done != s->qp->sq.tail;
	lock_put(&s->qp->lock);
	ns = req_lost_budget(req_budget(s->qp), true);
	if (any && (s->tx.hold != HOLD_LOST || s->tx.hold_until > loop_now() + ns))
		hold(s, HOLD_LOST, ns);
}

static void nak_rnr(struct stream *s, uint32_t idx, uint8_t timer)
{
	uint8_t limit = s->qp->attr.rnr_retry;
	char why[80];

	lock_assert_held(&s->lock);
	if (limit < 7 && s->tx.rnr_seen >= limit) {
		snprintf(why, sizeof(why), "receiver not ready %u times, rnr_retry is %u",
			 s->tx.rnr_seen + 1u, limit);
		req_fail(s, idx, IBV_WC_RNR_RETRY_EXC_ERR, why);
		return;
	}
	if (s->tx.rnr_seen < 255)
		s->tx.rnr_seen++;
	repeat_from(s, idx);
	hold(s, HOLD_RNR, rnr_timer[timer & 31] * 10000ull);
}

/* A QP may be late by as much as a host may be silent. */
static void nak_not_ready(struct stream *s, uint32_t idx)
{
	uint64_t now = loop_now();

	lock_assert_held(&s->lock);
	if (!s->tx.not_ready_at)
		s->tx.not_ready_at = now;
	if (now - s->tx.not_ready_at >= silence_budget(s->qp)) {
		req_fail(s, idx, IBV_WC_RETRY_EXC_ERR,
			 "no QP of the peer has come to RTR for this connection");
		return;
	}
	repeat_from(s, idx);
	hold(s, HOLD_NOT_READY, SEC);
}

/* The peer could not fetch the payload: it is sent, or it turns out here why it cannot
 * be. Never twice for one WQE. */
static void nak_copy(struct stream *s, uint32_t idx)
{
	struct dev_qp *qp = s->qp;
	struct wqe *w = sq_at(&qp->sq, idx);
	bool was;

	lock_assert_held(&s->lock);
	lock_get(&qp->lock);
	was = idx != qp->sq.tail && w->pulled;
	if (was)
		w->pulled = 0;
	lock_put(&qp->lock);
	if (!was) {
		req_fail(s, idx, IBV_WC_REM_OP_ERR,
			 "the responder wants a payload to be sent that was");
		return;
	}
	repeat_from(s, idx);
	s->tx.copy_idx = idx;
	if (++s->tx.references_refused == RC_REFERENCE_REFUSALS)
		log_info("QP %06x: the peer cannot fetch what is sent to it", qp->qp.qp_num);
	if (s->tx.hold != HOLD_LOST)
		s->tx.hold = HOLD_NONE;
}

static void nak_error(struct stream *s, uint32_t idx, enum nak_code code)
{
	lock_assert_held(&s->lock);
	switch (code) {
	case NAK_INV_REQ:
		req_fail(s, idx, IBV_WC_REM_INV_REQ_ERR, "the responder refused the request");
		break;
	case NAK_REM_ACCESS:
		req_fail(s, idx, IBV_WC_REM_ACCESS_ERR,
			 "the responder has no memory to be used so (key, bounds, rights or PD)");
		break;
	default:
		req_fail(s, idx, IBV_WC_REM_OP_ERR, "the responder failed to carry it out");
	}
}

/* A NAK leaves after all responses to what was before it. */
static bool unanswered_before(struct stream *s, uint32_t idx)
{
	uint32_t read;

	return req_oldest_read(s, &read) && (int32_t)(read - idx) < 0;
}

/* The oldest read that waits for its answer, if it has this number: taken, and
 * found out later not to be answerable. */
static bool taken_read(struct stream *s, uint32_t number, uint32_t *idx)
{
	struct dev_sq *sq = &s->qp->sq;
	uint32_t nr = s->tx.acked_nr;

	if (!req_oldest_read(s, idx) || (int32_t)(*idx - s->tx.acked) >= 0)
		return false;
	for (uint32_t i = *idx; i != s->tx.acked; i++)
		nr -= !wqe_is_local(sq_at(sq, i));
	return req_number(s, nr) == number;
}

/* What is refused; false: nothing that was sent. */
static bool refused_index(struct stream *s, const struct rc_frame *h, uint32_t *idx)
{
	enum nak_code code = (enum nak_code)h->ctl.code;

	/* Not ready: nothing was accepted, the peer knows no number yet. */
	*idx = code == NAK_NOT_READY ? s->tx.acked : idx_of(s, h->ctl.number);
	/* The request may be half sent: index next is fine then. */
	if ((int32_t)(*idx - s->qp->sq.next) > 0)
		return false;
	if (code == NAK_NO_QP)
		return true;
	if ((int32_t)(*idx - s->tx.acked) < 0)
		return code != NAK_RNR && taken_read(s, h->ctl.number, idx);
	return !unanswered_before(s, *idx);
}

void req_nak(struct stream *s, const struct rc_frame *h)
{
	struct dev_qp *qp = s->qp;
	bool count, bad = false;
	uint32_t idx = 0;

	if (!qp || s->p.unreliable)
		return;
	lock_get(&qp->lock);
	count = answers_count(s);
	if (count) {
		bad = !refused_index(s, h, &idx);
		if (!bad && (int32_t)(idx - s->tx.acked) > 0)
			acked_before(s, idx);
	}
	lock_put(&qp->lock);
	if (!count)
		return;
	if (bad) {
		req_fail_oldest(s, IBV_WC_RETRY_EXC_ERR,
				"the peer refused a request that was not sent");
		return;
	}
	switch ((enum nak_code)h->ctl.code) {
	case NAK_RNR:
		nak_rnr(s, idx, h->ctl.timer);
		break;
	case NAK_NOT_READY:
		nak_not_ready(s, idx);
		break;
	case NAK_NO_QP:
		nak_no_qp(s, idx);
		break;
	case NAK_COPY:
		nak_copy(s, idx);
		break;
	default:
		nak_error(s, idx, (enum nak_code)h->ctl.code);
	}
}

void req_recv_posted(struct stream *s)
{
	if (s->tx.hold == HOLD_RNR || s->tx.hold == HOLD_NOT_READY)
		s->tx.hold = HOLD_NONE;
}

static const char *local_failure(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_LOC_QP_OP_ERR:
		return "iWARP has no immediate data, no atomics and no XRC";
	case IBV_WC_LOC_LEN_ERR:
		return "an atomic needs one SGE of 8 bytes";
	case IBV_WC_MW_BIND_ERR:
		return "a window cannot be bound, or a key not be invalidated, so";
	default:
		return "no local access to the memory of a posted send";
	}
}

void req_hold_over(struct stream *s)
{
	switch (s->tx.hold) {
	case HOLD_RNR:
	case HOLD_NOT_READY:
		s->tx.hold = HOLD_NONE;
		break;
	case HOLD_LOST:
		s->tx.hold = HOLD_NONE;
		req_fail_oldest(s, IBV_WC_RETRY_EXC_ERR,
				s->state == STREAM_BROKEN ?
					"the connection has ended" :
					"the peer's QP is gone or in the error state");
		break;
	case HOLD_FAIL:
		/* In order: only when everything before it was answered. */
		if (!outstanding(s))
			req_fail(s, s->tx.acked, s->tx.fail_status,
				 local_failure(s->tx.fail_status));
		break;
	default:
		break;
	}
}

struct wqe *req_oldest_read(struct stream *s, uint32_t *idx)
{
	struct dev_sq *sq = &s->qp->sq;

	rd_scan_follow(s);
	for (; s->tx.rd_scan != sq->next; s->tx.rd_scan++) {
		struct wqe *w = sq_at(sq, s->tx.rd_scan);

		if (wqe_is_read(w) && !w->finished) {
			*idx = s->tx.rd_scan;
			return w;
		}
	}
	return NULL;
}

/* The response to the oldest read or atomic begins: what was before it is done.
 * NULL when the response is not (or no longer) wanted. */
static struct wqe *answered(struct stream *s, uint32_t *idx)
{
	struct wqe *w = NULL;

	if (!s->qp)
		return NULL;
	lock_get(&s->qp->lock);
	if (answers_count(s))
		w = req_oldest_read(s, idx);
	if (w && (int32_t)(*idx - s->tx.acked) > 0) {
		acked_before(s, *idx);
		if (!answers_count(s)) /* the CQ overran: w was flushed */
			w = NULL;
	}
	lock_put(&s->qp->lock);
	return w;
}

static void read_finished(struct stream *s, struct wqe *w, uint32_t idx)
{
	lock_assert_held(&s->lock);
	lock_get(&s->qp->lock);
	w->finished = 1;
	s->tx.rd_out--;
	s->tx.rnr_seen = 0;
	if (s->tx.acked == idx) {
		s->tx.acked++;
		s->tx.acked_nr++;
		pass_local(s);
	}
	sq_retire_locked(s->qp);
	lock_put(&s->qp->lock);
	if (s->tx.hold == HOLD_FAIL)
		req_hold_over(s);
}

int req_read_begin(struct stream *s, const struct rc_frame *h)
{
	uint32_t idx = 0;
	struct wqe *w = answered(s, &idx);

	if (!w)
		return 0; /* the QP failed meanwhile: scratch */
	if (w->opcode != IBV_WR_RDMA_READ || h->stag != idx || h->to != w->got ||
	    h->payload > w->length - w->got) {
		log_info("stream %u: read response for %x+%llu does not fit read %x", s->id,
			 h->stag, (unsigned long long)h->to, idx);
		return -EPROTO;
	}
	s->rx.place = PLACE_READ;
	return 0;
}

void req_read_end(struct stream *s)
{
	uint32_t idx;
	struct wqe *w;

	if (s->rx.place != PLACE_READ)
		return;
	w = req_oldest_read(s, &idx);
	w->got += s->rx.h.payload;
	if (!s->rx.h.last)
		return;
	if (w->got != w->length) {
		stream_broken(s, -EPROTO, "a read response ended early");
		return;
	}
	read_finished(s, w, idx);
}

int req_atomic_resp(struct stream *s, const struct rc_frame *h)
{
	struct mr_slot *refs[DEV_MAX_SGE];
	struct iovec iov[DEV_MAX_SGE];
	struct sge_mem mem = { iov, refs, DEV_MAX_SGE };
	struct sge_list list;
	uint64_t value = h->atomic_resp.value;
	uint32_t idx = 0;
	struct wqe *w = answered(s, &idx);
	int n, ret;

	if (!w)
		return 0;
	if (w->opcode == IBV_WR_RDMA_READ || h->atomic_resp.id != idx)
		return -EPROTO;
	if (w->opcode == IBV_WR_ATOMIC_WRITE) {
		read_finished(s, w, idx);
		return 0;
	}
	list = wqe_sge_list(s->qp, w, IBV_ACCESS_LOCAL_WRITE);
	n = sge_map(&list, 0, 8, &mem);
	if (n < 0) {
		req_fail(s, idx, IBV_WC_LOC_PROT_ERR,
			 "no local access to the memory for an atomic's result");
		return 0;
	}
	ret = place_iov(iov, n, &value);
	sge_unmap(refs, n);
	if (ret)
		req_fail(s, idx, IBV_WC_LOC_PROT_ERR,
			 "the memory for an atomic's result was unmapped");
	else
		read_finished(s, w, idx);
	return 0;
}

static bool silent(struct stream *s, uint64_t budget)
{
	lock_assert_held(&s->lock);
	return conf_get()->strict_timeout || s->carrier->silent(s, budget);
}

void req_timer(struct stream *s, uint64_t now)
{
	uint64_t budget;

	if (!s->qp)
		return;
	if (s->p.unreliable) {
		uc_timer(s, now);
		return;
	}
	if (s->tx.hold == HOLD_RNR || s->tx.hold == HOLD_NOT_READY ||
	    s->tx.hold == HOLD_LOST) {
		if (now >= s->tx.hold_until)
			req_hold_over(s);
		else
			stream_timer(s, s->tx.hold_until);
		return;
	}
	budget = silence_budget(s->qp);
	if ((!outstanding(s) && !s->tx.off) || budget == UINT64_MAX)
		return;
	if (s->tx.acked == s->tx.timer_acked && silent(s, budget)) {
		char why[100];

		snprintf(why, sizeof(why), "no answer from the peer's host for %llu ms",
			 (unsigned long long)(budget / MSEC));
		req_fail_oldest(s, IBV_WC_RETRY_EXC_ERR, why);
		return;
	}
	s->tx.timer_acked = s->tx.acked;
	stream_timer(s, now + budget);
}
