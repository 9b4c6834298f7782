/* SPDX-License-Identifier: BSD-2-Clause */
#include "shm/small.h"

#include "base/guard.h"
#include "dev/complete.h"
#include "rc/requester.h"
#include "rc/responder.h"
#include "dev/sge.h"
#include "rc/tap.h"
#include "shm/link.h"

#include <arpa/inet.h>
#include <string.h>

/* ---- sending -------------------------------------------------------------------- */

/* As want_ack() in rc/build.c. */
static bool wants_ack(struct stream *s, const struct wqe *w)
{
	struct dev_sq *sq = &s->qp->sq;
	uint32_t out = sq->next + 1 - s->tx.acked;
	bool wants;

	s->tx.sig_since_req |= !!(w->send_flags & IBV_SEND_SIGNALED);
	wants = (sq->next + 1 == sq->tail && s->tx.sig_since_req) ||
		(out >= sq->max_wr / 2 && (out & 7) == 0) || out >= sq->max_wr;
	s->tx.sig_since_req &= !wants;
	return wants;
}

/* 0 or -errno: rc_build() will report what is wrong. */
static int payload_copy_in(const struct dev_qp *qp, struct wqe *w, uint8_t *to)
{
	struct mr_range r;
	struct mr_ref from;
	int ret;

	if (w->is_inline) {
		memcpy(to, wqe_inline(w), w->length);
		return 0;
	}
	if (!w->length)
		return 0;
	r = (struct mr_range){ w->sge[0].lkey, w->sge[0].addr, w->length };
	ret = mr_get(qp->pd, &r, MR_LOCAL_READ, &from);
	if (ret)
		return ret;
	ret = guard_copy_from(to, from.ptr, w->length) ? 0 : -1;
	mr_put(from.slot);
	return ret;
}

static void header_put(struct stream *s, struct rec_stream *r, const struct wqe *w)
{
	bool write = w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	uint8_t flags = REC_LAST;

	lock_assert_held(&s->lock);
	if (wants_ack(s, w))
		flags |= REC_ACK_REQ;
	r->slot = to_shm(s)->peer_slot;
	r->op = write ? RC_WRITE :
		w->send_flags & IBV_SEND_SOLICITED ? RC_SEND_SE : RC_SEND;
	r->body = 0;
	r->stag = write ? w->rkey : 0;
	r->msn = write ? 0 : s->tx.msn0++;
	r->to = write ? w->raddr : 0;
	r->ack = 0;
	if (s->rx.ack_owed) {
		flags |= REC_ACK;
		r->ack = (s->rx.expected - 1) & 0xffffff;
		resp_acked(s);
	}
	r->flags = flags;
}

/* Passes the frame of a record, and the acknowledgement that it carries, to rc/tap.h. */
static void tap(const struct stream *s, const struct rec_stream *r, uint32_t payload,
		bool out)
{
	struct rc_frame f;

	if (!rc_tapped())
		return;
	if (r->flags & REC_ACK)
		rc_tap_ack(s, r->ack, out);
	rc_frame_clear(&f);
	f.op = (enum rc_op)r->op;
	f.last = true;
	f.ack_req = r->flags & REC_ACK_REQ;
	f.payload = payload;
	f.msn = r->msn;
	f.stag = r->stag;
	f.to = r->to;
	if (out)
		rc_frame_out(s, &f, RC_BY_FRAME);
	else
		rc_frame_in(s, &f, RC_BY_FRAME);
}

/* A send without immediate data, from one SGE or inline; or a write with immediate data. */
static bool is_small(const struct wqe *w)
{
	if (w->send_flags & IBV_SEND_FENCE)
		return false;
	if (w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		return w->length && w->length <= SMALL_COMPOSED_MAX &&
		       (w->is_inline || w->num_sge == 1);
	return w->opcode == IBV_WR_SEND && w->length <= SMALL_MAX &&
	       (w->is_inline || w->num_sge == 1 || !w->length);
}

/* The record of immediate data, as rec_put() makes it; a line, for ring_put(). */
struct imm_rec {
	_Alignas(RING_LINE) struct rec_stream r;
	uint32_t imm, kind;
};
_Static_assert(sizeof(struct imm_rec) == RING_LINE, "ring_put() reads a line");
enum { IMM_REC = sizeof(struct rec_stream) + 8 };

static void tap_imm(const struct stream *s, const struct imm_rec *i, bool out)
{
	struct rc_frame f;

	if (!rc_tapped())
		return;
	if (i->r.flags & REC_ACK)
		rc_tap_ack(s, i->r.ack, out);
	rc_frame_clear(&f);
	f.op = (enum rc_op)i->r.op;
	f.last = true;
	f.msn = i->r.msn;
	f.imm.imm = i->imm;
	f.imm.kind = i->kind;
	if (out)
		rc_frame_out(s, &f, RC_BY_FRAME);
	else
		rc_frame_in(s, &f, RC_BY_FRAME);
}

NO_TSA static bool put_imm(struct stream *s, const struct wqe *w)
{
	struct imm_rec i = {
		.r = { .slot = to_shm(s)->peer_slot,
		       .op = w->send_flags & IBV_SEND_SOLICITED ? RC_IMM_SE : RC_IMM,
		       .flags = REC_LAST,
		       .body = IMM_REC - sizeof(struct rec_stream),
		       .msn = s->tx.msn0++ },
		.imm = ntohl(w->imm_or_rkey),
		.kind = IMM_PREFIX,
	};

	tap_imm(s, &i, true);
	return ring_put(&to_shm(s)->l->tx, &i, IMM_REC, REC_STREAM);
}

/* Writes a record into the ring. False: no state has changed. */
NO_TSA static bool put(struct stream *s, struct wqe *w)
{
	uint32_t bytes = (uint32_t)sizeof(struct rec_stream) + w->length;
	struct ring_tx *tx = &to_shm(s)->l->tx;
	struct rec_stream *at = ring_reserve(tx, bytes);
	struct rec_stream r;

	if (!at || payload_copy_in(s->qp, w, (uint8_t *)(at + 1)))
		return false;
	header_put(s, &r, w);
	stream_count(s, TRAFFIC_XMIT, w->length);
	tap(s, &r, w->length, true); /* not from the ring, which the peer can write */
	/* The first word is ring_publish()'s. */
	memcpy(&at->slot, &r.slot, sizeof(r) - offsetof(struct rec_stream, slot));
	ring_publish(tx, bytes, REC_STREAM);
	return true;
}

/* The same for payloads of up to SMALL_COMPOSED_MAX. */
NO_TSA static bool put_composed(struct stream *s, struct wqe *w)
{
	struct {
		_Alignas(RING_LINE) struct rec_stream r;
		uint8_t payload[SMALL_COMPOSED_MAX];
	} rec;
	uint32_t bytes = (uint32_t)sizeof(rec.r) + w->length;
	bool write = w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	struct ring_tx *tx = &to_shm(s)->l->tx;

	/* ring_put() copies the first line whole: nothing of the stack must be in it. */
	memset(rec.payload, 0, RING_LINE - sizeof(rec.r));
	/* Where both records fit in one piece they fit one after the other. */
	if (!ring_reserve(tx, write ? RING_LINE + bytes : bytes) ||
	    payload_copy_in(s->qp, w, rec.payload) || (write && !put_imm(s, w)))
		return false;
	header_put(s, &rec.r, w);
	stream_count(s, TRAFFIC_XMIT, w->length);
	tap(s, &rec.r, w->length, true);
	return ring_put(tx, &rec, bytes, REC_STREAM);
}

NO_TSA bool small_send(struct stream *s)
{
	struct link *l = to_shm(s)->l;
	struct dev_qp *qp = s->qp;
	struct dev_sq *sq = &qp->sq;

	if (!stream_settled(s) || qp->qp.qp_type != IBV_QPT_RC ||
	    atomic_load_explicit(&l->tx_waiting, memory_order_relaxed))
		return false;
	while (sq->next != sq->tail) {
		struct wqe *w = sq_at(sq, sq->next);

		if (!is_small(w) ||
		    !(w->length <= SMALL_COMPOSED_MAX ? put_composed(s, w) : put(s, w)))
			return false;
		sq->next++;
	}
	return true;
}

bool small_ack(struct stream *s)
{
	struct rc_frame h = { .op = RC_CTL, .last = true };
	uint32_t bytes = rec_head(&h);
	struct link *l = to_shm(s)->l;
	void *at = NULL;

	lock_assert_held(&s->lock);
	if (!to_shm(s)->opened || to_shm(s)->closed_out)
		return false;
	h.ctl.type = CTL_ACK;
	h.ctl.number = (s->rx.expected - 1) & 0xffffff;
	lock_get(&l->tx_lock);
	if (!atomic_load_explicit(&l->tx_waiting, memory_order_relaxed))
		at = ring_reserve(&l->tx, bytes);
	if (at) {
		rec_put(at, to_shm(s)->peer_slot, &h);
		ring_publish(&l->tx, bytes, REC_STREAM);
	}
	lock_put(&l->tx_lock);
	if (!at)
		return false;
	stream_count(s, TRAFFIC_XMIT, 0);
	rc_frame_out(s, &h, RC_BY_FRAME);
	resp_acked(s);
	link_wake_peer(l);
	return true;
}

/* ---- receiving -------------------------------------------------------------------- */

/* Nothing is to be known of the stream but that requests come in order. */
static bool is_plain(const struct stream *s)
{
	const struct rc_rx *rx = &s->rx;

	return rx->begun && !rx->drop && !rx->msg_off && rx->srqn == NO_SRQ &&
	       s->tx.hold == HOLD_NONE && !s->tx.muted;
}

/* The record is a whole send, and the next one in order. */
static bool is_next(const struct stream *s, const struct rec_stream *r)
{
	return (r->op == RC_SEND || r->op == RC_SEND_SE) &&
	       (r->flags & ~(REC_ACK | REC_ACK_REQ)) == REC_LAST && !r->body && !r->to &&
	       r->msn == s->rx.msn0 && !s->rx.imm_have && is_plain(s);
}

/* ... or the immediate data of a request; */
static bool is_next_imm(const struct stream *s, const struct rec_stream *r, uint32_t bytes)
{
	return (r->op == RC_IMM || r->op == RC_IMM_SE) && bytes == IMM_REC &&
	       (r->flags & ~REC_ACK) == REC_LAST &&
	       r->body == IMM_REC - sizeof(*r) && r->msn == s->rx.msn0 &&
	       !s->rx.imm_have && is_plain(s);
}

/* ... or a whole write that such data came for. */
static bool is_next_write(struct stream *s, const struct rec_stream *r)
{
	return r->op == RC_WRITE && (r->flags & ~(REC_ACK | REC_ACK_REQ)) == REC_LAST &&
	       !r->body && !r->msn && s->rx.imm_have && to_shm(s)->small_imm &&
	       !s->rx.write_len && is_plain(s);
}

/* Copies the payload to the first receive of the QP. The receive; or NULL: it does not
 * fit. */
static const struct rqe *place_locked(struct dev_qp *qp, const void *from, uint32_t bytes)
{
	struct dev_rq *rq = &qp->rq;
	const struct rqe *e = rq_at(rq, rq->head);
	struct mr_range r;
	struct mr_ref to;
	int ret;

	lock_assert_held(&qp->lock);
	if (!qp_heard_locked(qp) || qp->cur_valid || rq->head == rq->tail ||
	    e->num_sge != 1 || bytes > e->sge[0].length || !bytes)
		return NULL;
	r = (struct mr_range){ e->sge[0].lkey, e->sge[0].addr, bytes };
	if (mr_get(qp->pd, &r, IBV_ACCESS_LOCAL_WRITE, &to))
		return NULL;
	ret = place_bytes(to.ptr, from, bytes);
	mr_put(to.slot);
	if (ret)
		return NULL;
	rq->head++;
	return e;
}

/* The acknowledgement that a record carries. False: its requests have failed the QP, or
 * may have. */
static bool ack_locked(struct stream *s, const struct rec_stream *r)
{
	lock_assert_held(&s->lock);
	lock_assert_held(&s->qp->lock);
	return !(r->flags & REC_ACK) || req_ack_locked(s, r->ack & 0xffffff);
}

static bool may_defer_locked(struct stream *s)
{
	lock_assert_held(&s->qp->lock);
	return s->qp->sq.next == s->qp->sq.tail && stream_settled(s);
}

/* As begin_imm() in rc/responder.c. */
NO_TSA static bool receive_imm(struct stream *s, const struct rec_stream *r,
			       const volatile void *rec)
{
	struct imm_rec i = { .r = *r };
	struct rc_rx *rx = &s->rx;
	struct dev_qp *qp = s->qp;
	bool heard;

	ring_read(&i.imm, (const volatile uint8_t *)rec + sizeof(*r), sizeof(i.imm) * 2);
	lock_get(&qp->lock);
	heard = ack_locked(s, r) && qp_heard_locked(qp);
	s->tx.ack_only = heard && may_defer_locked(s);
	lock_put(&qp->lock);
	if (!heard)
		return false;
	rx->msn0++;
	rx->imm = htonl(i.imm);
	rx->imm_se = r->op == RC_IMM_SE;
	rx->imm_have = to_shm(s)->small_imm = true;
	tap_imm(s, &i, false);
	return true;
}

/* Places the payload and takes a receive. The receive; or NULL: rc/responder.c finds the
 * reason. */
static const struct rqe *write_locked(struct stream *s, const struct rec_stream *r,
				      const void *from, uint32_t bytes)
{
	const struct mr_range range = { r->stag, r->to, bytes };
	struct dev_qp *qp = s->qp;
	struct dev_rq *rq = &qp->rq;
	struct mr_ref to;
	int ret;

	lock_assert_held(&qp->lock);
	if (!qp_heard_locked(qp) || qp->cur_valid || rq->head == rq->tail ||
	    !(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) ||
	    mr_get_remote(qp->pd, qp, &range, IBV_ACCESS_REMOTE_WRITE, &to))
		return NULL;
	ret = place_bytes(to.ptr, from, bytes);
	mr_put(to.slot);
	return ret ? NULL : rq_at(rq, rq->head++);
}

/* As end_write() there. */
NO_TSA static bool receive_write(struct stream *s, const struct rec_stream *r,
				 const void *payload, uint32_t bytes)
{
	struct ibv_wc wc = { .status = IBV_WC_SUCCESS,
			     .opcode = IBV_WC_RECV_RDMA_WITH_IMM,
			     .byte_len = bytes,
			     .imm_data = s->rx.imm,
			     .wc_flags = IBV_WC_WITH_IMM };
	const struct rqe *e = NULL;
	struct dev_qp *qp = s->qp;

	lock_get(&qp->lock);
	if (ack_locked(s, r))
		e = write_locked(s, r, payload, bytes);
	if (e && recv_complete_locked(qp, e, &wc, s->rx.imm_se))
		qp_to_err_locked(qp);
	s->tx.ack_only = e && may_defer_locked(s);
	lock_put(&qp->lock);
	to_shm(s)->small_imm = false;
	if (!e)
		return false;
	s->rx.ack_bytes += bytes;
	s->rx.h.ack_req = r->flags & REC_ACK_REQ;
	tap(s, r, bytes, false);
	resp_accepted(s);
	return true;
}

bool small_receive(struct stream *s, const struct rec_stream *r, const volatile void *rec,
		   uint32_t bytes)
{
	struct ibv_wc wc = { .status = IBV_WC_SUCCESS, .opcode = IBV_WC_RECV };
	const struct rqe *e = NULL;
	struct dev_qp *qp = s->qp;

	lock_assert_held(&s->lock);
	wc.byte_len = bytes - (uint32_t)sizeof(*r);
	if (!qp || wc.byte_len > SMALL_MAX || qp->qp.qp_type != IBV_QPT_RC || qp->srq)
		return false;
	if (is_next_write(s, r) && wc.byte_len)
		return receive_write(s, r, ring_payload(rec, sizeof(*r)), wc.byte_len);
	if (is_next_imm(s, r, bytes))
		return receive_imm(s, r, rec);
	if (!is_next(s, r))
		return false;
	lock_get(&qp->lock);
	/* The acknowledgement first: completing its requests may fail the QP. If the
	 * record is not received here, the slow path finds the acknowledgement
	 * processed. */
	if (ack_locked(s, r))
		e = place_locked(qp, ring_payload(rec, sizeof(*r)), wc.byte_len);
	if (e && recv_complete_locked(qp, e, &wc, r->op == RC_SEND_SE))
		qp_to_err_locked(qp);
	s->tx.ack_only = e && may_defer_locked(s);
	lock_put(&qp->lock);
	if (!e)
		return false;
	s->rx.msn0++;
	s->rx.ack_bytes += wc.byte_len;
	s->rx.h.ack_req = r->flags & REC_ACK_REQ;
	stream_count(s, TRAFFIC_RCV, wc.byte_len);
	tap(s, r, wc.byte_len, false);
	resp_accepted(s);
	return true;
}
