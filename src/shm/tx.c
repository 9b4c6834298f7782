/* SPDX-License-Identifier: BSD-2-Clause */
/* Sending. Frames are written into the ring as they are built, so no frame is ever sent
 * in part. An acknowledgement travels in the record of the next frame, if there is
 * one. */
#include "base/conf.h"
#include "rc/build.h"
#include "rc/execute.h"
#include "rc/pages.h"
#include "rc/requester.h"
#include "rc/tap.h"
#include "rc/tx.h"
#include "shm/link.h"
#include "shm/pull.h"
#include "shm/small.h"

#include <errno.h>

/* One pass of rc_build() into the ring. */
struct ring_build {
	struct rc_build b;
	size_t bytes;
	bool any;		/* `after` is valid: */
	struct rc_cursor after; /* state after the last frame */
	bool ack;		/* an acknowledgement waits for the next record: */
	uint32_t ack_number;
};

/* Also true while messages of the link are queued: frames must not overtake the message
 * that opens their stream. */
static bool lacks_room(struct stream *s)
{
	struct link *l = to_shm(s)->l;
	bool no = !list_empty(&l->queued) || !ring_reserve(&l->tx, RING_RECORD_MAX);

	to_shm(s)->lacked_room |= no;
	return no;
}

static struct ring_build *to_ring_build(struct rc_build *b)
{
	return container_of(b, struct ring_build, b);
}

static bool ring_full(struct rc_build *b, struct stream *s)
{
	return to_ring_build(b)->bytes >= RC_TURN || lacks_room(s);
}

static void added(struct ring_build *r, uint32_t bytes, const struct rc_cursor *after)
{
	r->b.nframes++;
	r->bytes += bytes;
	r->after = *after;
	r->any = true;
}

/* rc_build.add: one record. */
static int ring_add(struct rc_build *b, struct stream *s, const struct rc_frame *h,
		    const struct rc_payload *p, const struct rc_cursor *after)
{
	struct ring_build *r = to_ring_build(b);
	struct ring_tx *tx = &to_shm(s)->l->tx;
	uint32_t head = rec_head(h), room = p->by_reference ? PULL_ROOM : h->payload;
	uint8_t *at;
	int ret = 0;

	lock_assert_held(&s->lock);
	if (h->op == RC_CTL && h->ctl.type == CTL_ACK && !r->ack) {
		r->ack = r->any = true;
		r->ack_number = h->ctl.number;
		r->after = *after;
		return 0;
	}
	at = ring_reserve(tx, head + room); /* succeeds: ring_full() was false */
	if (!at)
		return -ENOBUFS;
	if (room && !p->by_reference)
		ret = tx_copy(s, p, at + head, room);
	if (ret)
		return ret;
	rec_put(at, to_shm(s)->peer_slot, h);
	if (p->by_reference)
		room = pull_put(at, sq_at(&s->qp->sq, p->idx), p->off, h->payload);
	if (r->ack) {
		rec_put_ack(at, r->ack_number);
		rc_ack_out(s, r->ack_number);
	}
	r->ack = false;
	ring_publish(tx, head + room, REC_STREAM);
	stream_count(s, TRAFFIC_XMIT, h->payload);
	rc_frame_out(s, h, p->by_reference ? RC_BY_REFERENCE : RC_BY_FRAME);
	added(r, head + room, after);
	return 0;
}

/* There was no frame that could carry the acknowledgement: sends it in a record of its
 * own. */
static void ack_alone(struct stream *s, struct ring_build *r)
{
	struct rc_frame h = { .op = RC_CTL, .last = true };
	struct ring_tx *tx = &to_shm(s)->l->tx;
	uint8_t *at = ring_reserve(tx, rec_head(&h));

	if (!at) {
		to_shm(s)->lacked_room = true;
		r->after.ack = true; /* still to be sent */
		return;
	}
	h.ctl.type = CTL_ACK;
	h.ctl.number = r->ack_number;
	rec_put(at, to_shm(s)->peer_slot, &h);
	ring_publish(tx, rec_head(&h), REC_STREAM);
	stream_count(s, TRAFFIC_XMIT, 0);
	rc_frame_out(s, &h, RC_BY_FRAME);
	r->b.nframes++;
	r->bytes += rec_head(&h);
}

/* rc_build() stops when the turn is over, and at local work, which req_local_locked()
 * does once all requests before it were sent. */
NO_TSA static bool more_to_build(struct dev_qp *qp, const struct ring_build *r)
{
	struct dev_sq *sq = &qp->sq;

	return r->bytes >= RC_TURN || (r->b.nframes && sq->next != sq->tail &&
				       wqe_is_local(sq_at(sq, sq->next)));
}

/* Builds frames into the ring. The locks of the stream and its QP, and tx_lock, are
 * held. */
static void build_locked(struct stream *s, struct ring_build *r)
{
	r->b = (struct rc_build){ .add = ring_add, .full = ring_full };
	r->bytes = 0;
	r->any = r->ack = false;
	rc_build(s, &r->b);
	if (r->ack)
		ack_alone(s, r);
	if (r->any)
		rc_cursor_store(s, &r->after);
}

/* The stream waits for room. tx_lock is held. */
static void block(struct shm_stream *t)
{
	struct link *l = t->l;

	lock_assert_held(&l->tx_lock);
	list_add_tail(&l->blocked, &t->blocked);
	atomic_store(&l->tx_waiting, true);
	atomic_store(&l->tx.sh->producer_waits, 1);
	/* The peer may have made room before it could see producer_waits. */
	atomic_thread_fence(memory_order_seq_cst);
	if (lacks_room(&t->s))
		return;
	list_del(&t->blocked);
	t->s.tx.blocked = false;
	link_tx_waiting_update(l);
}

/* Carries out and builds what can be sent now. True: there may be more to do. */
NO_TSA static bool send_once(struct stream *s, size_t *moved, uint32_t *left)
{
	struct shm_stream *t = to_shm(s);
	struct dev_qp *qp = s->qp;
	struct ring_build r;
	bool failed, more;

	if (qp)
		lock_get(&qp->lock);
	do
		failed = req_local_locked(s);
	while (!failed && execute_next_locked(s, left));
	t->lacked_room = false;
	lock_get(&t->l->tx_lock);
	build_locked(s, &r);
	if (qp && stream_unacked(s))
		req_carried_locked(s);
	s->tx.blocked = lacks_room(s);
	if (s->tx.blocked && !list_linked(&t->blocked))
		block(t);
	lock_put(&t->l->tx_lock);
	more = qp ? more_to_build(qp, &r) : r.bytes >= RC_TURN;
	if (qp)
		lock_put(&qp->lock);
	*moved += r.bytes;
	if (r.b.fail && !s->tx.blocked)
		tx_build_failed(s, r.b.fail);
	if (failed)
		req_hold_over(s);
	/* lacked_room: there may be room since. */
	return (more || r.b.fail || t->lacked_room) && !s->tx.blocked;
}

/* The QP of this side, which sent OPEN, has the stream: the peer's QP may have it,
 * too. */
static bool send_ready(struct stream *s)
{
	struct rec_link m = { .type = LINK_READY, .slot = to_shm(s)->peer_slot };

	if (!to_shm(s)->connector || !to_shm(s)->started || !s->qp ||
	    link_send(to_shm(s)->l, &m))
		return false;
	to_shm(s)->opened = true;
	return true;
}

void shm_send(struct stream *s)
{
	uint32_t left = RC_EXECUTE_TURN;
	size_t moved = 0;

	lock_assert_held(&s->lock);
	if (to_shm(s)->closed_out || (!to_shm(s)->opened && !send_ready(s)))
		return;
	s->tx.more = s->tx.executing;
	s->tx.drain = false;
	while (send_once(s, &moved, &left) && s->state != STREAM_BROKEN &&
	       s->state != STREAM_CLOSED)
		;
	if (s->qp && conf_get()->strict_timeout && (s->tx.requests || s->tx.off))
		req_sent(s);
	s->tx.requests = false;
	if (moved)
		link_wake_peer(to_shm(s)->l);
	stream_execute_later(s);
	stream_want_output(s);
}

/* All requests that are to be sent are sends. */
static bool sends_only(struct dev_sq *sq)
{
	for (uint32_t i = sq->next; i != sq->tail; i++)
		if (!wqe_is_send(sq_at(sq, i)))
			return false;
	return true;
}

/* Requests can be sent by writing them into the ring, and nothing else has to be done.
 * Else shm_send() sends them. */
static bool ring_only(struct stream *s)
{
	return s->state == STREAM_OPEN && to_shm(s)->opened && !to_shm(s)->closed_out &&
	       !s->shut && !s->tx.blocked && !s->tx.drain && !s->tx.more &&
	       !s->p.unreliable && !s->ending && s->rx.resp_head == s->rx.resp_tail &&
	       !conf_get()->strict_timeout &&
	       !atomic_load_explicit(&to_shm(s)->l->tx.sh->consumer_sleeps,
				     memory_order_relaxed);
}

/* Only tries locks, as it takes them against their order. */
NO_TSA bool shm_post_locked(struct stream *s)
{
	struct link *l = to_shm(s)->l;
	bool all = false;
	struct dev_qp *qp;
	struct ring_build r;

	if (!lock_try(&s->lock))
		return false;
	qp = s->qp;
	if (qp && ring_only(s) && lock_try(&l->tx_lock)) {
		all = small_send(s);
		if (!all && sends_only(&qp->sq)) {
			build_locked(s, &r);
			s->tx.requests = s->tx.ack_only = false;
			all = !r.b.fail && qp->sq.next == qp->sq.tail;
		}
		lock_put(&l->tx_lock);
		link_wake_peer(l);
	}
	return !stream_put_lock(s) && all;
}

void shm_unblocked(struct stream *s)
{
	stream_lock(s);
	if (s->state != STREAM_CLOSED)
		tx_run(s);
	stream_unlock(s);
}
