/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared memory as the carrier of a stream. Frames are written into the ring as they
 * are built, so there is no cut frame and nothing to take back; the acknowledgement
 * that is owed rides on the next frame. */
#include "shm/link.h"

#include "base/conf.h"
#include "base/log.h"
#include "dev/share.h"
#include "tcp/batch.h"
#include "rc/stream.h"
#include "shm/cm.h"
#include "shm/direct.h"
#include "shm/small.h"
#include "shm/pull.h"
#include "shm/shm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	SHM_PAYLOAD = 16 * 1024, /* of one record: both ends copy at the same time */
	SHM_KEPT_MAX = 1024 * 1024, /* behind a message that waits for a receive */
	MAX_ERRNO = 4096,
};

/* ---- sending ------------------------------------------------------------------- */

/* What a stream sends may not overtake a message of the link that announces it. */
static bool no_room(struct stream *s)
{
	struct link *l = s->shm.l;
	bool no = !list_empty(&l->later) || !ring_reserve(&l->tx, RING_RECORD_MAX);

	s->shm.starved |= no;
	return no;
}

static int emit(struct batch *b, struct stream *s, const struct rc_frame *h,
		struct frame *f, const struct cursor *c)
{
	struct ring_tx *tx = &s->shm.l->tx;
	uint32_t head = rec_head(h), room = f->pull ? PULL_ROOM : h->payload;
	uint8_t *at;
	int ret = 0;

	if (h->op == RC_CTL && h->ctl.type == CTL_ACK && !b->ack) {
		b->ack = true;
		b->ack_number = h->ctl.number;
		b->after = *c;
		return 0;
	}
	at = ring_reserve(tx, head + room); /* batch_full() has seen the room */
	if (!at)
		return -ENOBUFS;
	if (room && !f->pull)
		ret = batch_gather(s->qp, f, at + head, room);
	if (ret)
		return ret;
	rec_put(at, s->shm.peer, h);
	if (f->pull)
		room = pull_put(at, sq_at(&s->qp->sq, f->idx), f->off, h->payload);
	if (b->ack)
		rec_put_ack(at, b->ack_number);
	b->ack = false;
	ring_publish(tx, head + room, REC_STREAM);
	b->nframes++;
	b->bytes += head + room;
	b->after = *c;
	return 0;
}

/* No frame came that could carry it. */
static void ack_alone(struct stream *s, struct batch *b)
{
	struct rc_frame h = { .op = RC_CTL, .last = true };
	uint8_t *at = ring_reserve(&s->shm.l->tx, rec_head(&h));

	if (!at) {
		s->shm.starved = true;
		b->after.ack = true; /* still owed */
		return;
	}
	h.ctl.type = CTL_ACK;
	h.ctl.number = b->ack_number;
	rec_put(at, s->shm.peer, &h);
	ring_publish(&s->shm.l->tx, rec_head(&h), REC_STREAM);
	b->nframes++;
	b->bytes += rec_head(&h);
}

/* batch_build() stops at local work, which req_local_locked() does once all before it
 * has left, and when the turn is over. */
NO_TSA static bool more_to_build(struct dev_qp *qp, const struct batch *b)
{
	struct dev_sq *sq = &qp->sq;

	return b->bytes >= RC_TURN ||
	       (b->nframes && sq->next != sq->tail && wqe_is_local(sq_at(sq, sq->next)));
}

static void batch_begin(struct batch *b)
{
	b->bytes = 0;
	b->niov = b->nrefs = b->nframes = b->used = 0;
	b->fail = 0;
	b->ack = false;
	b->emit = emit;
	b->no_room = no_room;
	b->after.ctl = UINT32_MAX; /* nothing was built */
}

/* Fills the ring. With the locks of the stream, its QP and the link. */
static void build_locked(struct stream *s, struct batch *b)
{
	batch_begin(b);
	batch_build(s, b);
	if (b->ack)
		ack_alone(s, b);
	if (b->after.ctl != UINT32_MAX)
		cursor_store(s, &b->after);
}

/* Builds into the ring. True if there may be more to do. */
NO_TSA static bool send_once(struct stream *s, size_t *moved, uint32_t *left)
{
	struct link *l = s->shm.l;
	struct dev_qp *qp = s->qp;
	bool failed, more;
	struct batch b;

	if (qp)
		lock_get(&qp->lock);
	do
		failed = req_local_locked(s);
	while (!failed && req_direct_locked(s, left));
	s->shm.starved = false;
	lock_get(&l->tx_lock);
	build_locked(s, &b);
	if (qp && stream_unacked(s))
		req_carried_locked(s);
	s->tx.blocked = no_room(s);
	if (s->tx.blocked && !list_linked(&s->shm.blocked)) {
		list_add_tail(&l->blocked, &s->shm.blocked);
		atomic_store(&l->waits, true);
		atomic_store(&l->tx.sh->full, 1);
		/* The peer may have made room before it could see the mark. */
		atomic_thread_fence(memory_order_seq_cst);
		if (!no_room(s)) {
			list_del(&s->shm.blocked);
			s->tx.blocked = false;
			link_still_waits(l);
		}
	}
	lock_put(&l->tx_lock);
	more = qp ? more_to_build(qp, &b) : b.bytes >= RC_TURN;
	if (qp)
		lock_put(&qp->lock);
	*moved += b.bytes;
	if (b.fail && !s->tx.blocked)
		tx_build_failed(s, b.fail);
	if (failed)
		req_hold_over(s);
	/* Room may have come since it was looked for in vain. */
	return (more || b.fail || s->shm.starved) && !s->tx.blocked;
}

/* Ours is the QP that asked, and has the stream: the peer's may have it, too. */
static bool say_ready(struct stream *s)
{
	struct rec_link m = { .type = LINK_READY, .slot = s->shm.peer };

	if (!s->shm.asks || !s->shm.started || !s->qp || link_send(s->shm.l, &m))
		return false;
	s->shm.opened = true;
	return true;
}

static void shm_send(struct stream *s)
{
	uint32_t left = RC_EXECUTE_TURN;
	size_t moved = 0;

	lock_assert_held(&s->lock);
	if (s->shm.closed_out || (!s->shm.opened && !say_ready(s)))
		return;
	s->tx.more = s->tx.drain = false;
	while (send_once(s, &moved, &left) && s->state != STREAM_BROKEN &&
	       s->state != STREAM_CLOSED)
		;
	s->tx.moved += moved;
	if (s->qp && conf_get()->strict_timeout && (s->tx.requests || s->tx.off))
		req_sent(s);
	s->tx.requests = false;
	if (moved)
		link_wake(s->shm.l);
	if (s->tx.more && !s->kicked)
		stream_timer(s, loop_now());
	stream_want_output(s);
}

/* The requests posted are sends, and there is nothing to look after but the ring. The
 * rest is shm_send()'s. */
static bool sends_only(struct dev_sq *sq)
{
	for (uint32_t i = sq->next; i != sq->tail; i++)
		if (!wqe_is_send(sq_at(sq, i)))
			return false;
	return true;
}

static bool ring_only(struct stream *s)
{
	return s->state == STREAM_OPEN && s->shm.opened && !s->shm.closed_out && !s->shut &&
	       !s->tx.blocked && !s->tx.drain && !s->tx.more && !s->p.unreliable &&
	       !s->ending && s->rx.resp_head == s->rx.resp_tail &&
	       !conf_get()->strict_timeout &&
	       !atomic_load_explicit(&s->shm.l->tx.sh->doze, memory_order_relaxed);
}

/* Tries locks against their order, which cannot lock up. */
NO_TSA static bool shm_post(struct stream *s)
{
	struct link *l = s->shm.l;
	bool all = false;
	struct dev_qp *qp;
	struct batch b;

	if (!lock_try(&s->lock))
		return false;
	qp = s->qp;
	if (qp && ring_only(s) && lock_try(&l->tx_lock)) {
		all = small_send(s);
		if (!all && sends_only(&qp->sq)) {
			build_locked(s, &b);
			s->tx.moved += b.bytes;
			s->tx.requests = s->tx.idle = false;
			all = !b.fail && qp->sq.next == qp->sq.tail;
		}
		lock_put(&l->tx_lock);
		link_wake(l);
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

/* ---- receiving ------------------------------------------------------------------- */

/* A record of an unreliable stream that is kept while a message before it, or its own,
 * waits for a receive: others use the ring meanwhile. */
struct shm_kept {
	struct list node;
	uint32_t bytes;
	int head; /* of the one that waits itself: bytes before its payload */
	uint8_t data[];
};

static struct shm_kept *keep(struct stream *s, const void *rec, uint32_t bytes, int head)
{
	struct shm_kept *k = malloc(sizeof(*k) + bytes);

	lock_assert_held(&s->lock);
	if (!k)
		return NULL;
	k->bytes = bytes;
	k->head = head;
	memcpy(k->data, rec, bytes);
	s->shm.kept_bytes += bytes;
	return k;
}

static void kept_free(struct stream *s, struct shm_kept *k)
{
	s->shm.kept_bytes -= k->bytes;
	free(k);
}

static void kept_drop(struct stream *s)
{
	struct list *n;

	free(s->shm.held);
	s->shm.held = NULL;
	while ((n = list_pop(&s->shm.kept)))
		free(list_entry(n, struct shm_kept, node));
	s->shm.kept_bytes = 0;
}

/* The header is in rx.h and its frame has begun. */
static int take_payload(struct stream *s, const void *rec, int head)
{
	lock_assert_held(&s->lock);
	if (s->rx.h.payload)
		rx_copy(s, (const uint8_t *)rec + head, s->rx.h.payload);
	return rx_frame_end(s);
}

static int take(struct stream *s, const void *rec, uint32_t bytes)
{
	struct rec_stream r;
	int head, ret;

	lock_assert_held(&s->lock);
	if (small_receive(s, rec, bytes))
		return 0;
	s->tx.idle = false;
	head = rec_get(rec, bytes, &r, &s->rx.h);
	if (head < 0)
		return head;
	if (r.flags & REC_ACK)
		req_ack(s, r.ack & 0xffffff);
	if (r.flags & REC_PULL)
		return pull_take(s, rec, &r);
	ret = rx_frame_begin(s);
	if (ret)
		return ret;
	if (s->rx.h.op == RC_WRITE && r.msn && (ret = resp_placed(s, r.msn)))
		return ret;
	if (!s->rx.wait)
		return take_payload(s, rec, head);
	s->shm.held = keep(s, rec, bytes, head);
	return s->shm.held ? 0 : -ENOMEM;
}

/* The message that waits, once more, and what was kept behind it. */
static int go_on(struct stream *s)
{
	struct shm_kept *k;
	struct list *n;
	int ret;

	lock_assert_held(&s->lock);
	ret = s->rx.wait ? rx_resume(s) : 0;
	k = s->shm.held;
	if (!ret && !s->rx.wait && k) {
		s->shm.held = NULL;
		ret = take_payload(s, k->data, k->head);
		kept_free(s, k);
	}
	while (!ret && !s->rx.wait && (n = list_pop(&s->shm.kept))) {
		k = list_entry(n, struct shm_kept, node);
		ret = take(s, k->data, k->bytes);
		kept_free(s, k);
	}
	return ret;
}

/* The peer's end, unless something waits that came before it. */
static void peer_over(struct stream *s, int err)
{
	lock_assert_held(&s->lock);
	if (s->rx.wait && s->state == STREAM_OPEN) {
		s->shm.over = true;
		s->shm.over_err = err;
		return;
	}
	s->shm.over = false;
	s->shm.closed_in = true;
	stream_peer_closed(s, err);
}

static bool shm_resume(struct stream *s)
{
	int ret;

	lock_assert_held(&s->lock);
	if (!s->rx.wait)
		return false;
	ret = go_on(s);
	if (ret)
		stream_broken(s, ret, "the peer sent nonsense");
	if (s->shm.over && !s->rx.wait)
		peer_over(s, s->shm.over_err);
	return true;
}

/* Room for what is behind a message that waits: it has waited long enough when there
 * is none. */
static int behind(struct stream *s, const void *rec, uint32_t bytes)
{
	struct shm_kept *k;
	int ret = 0;

	lock_assert_held(&s->lock);
	while (!ret && s->rx.wait && s->shm.kept_bytes + bytes > SHM_KEPT_MAX) {
		s->rx.impatient = true;
		ret = go_on(s);
	}
	if (ret || !s->rx.wait)
		return ret ? ret : take(s, rec, bytes);
	k = keep(s, rec, bytes, 0);
	if (k)
		list_add_tail(&s->shm.kept, &k->node);
	return k ? 0 : -ENOMEM;
}

int shm_receive(struct stream *s, const void *rec, uint32_t bytes, bool by_thread)
{
	int ret = 0;

	if (by_thread)
		stream_lock(s);
	else if (!lock_try(&s->lock))
		return -EAGAIN;
	if (!s->shm.started)
		ret = -EPROTO; /* READY comes first */
	else if ((s->state == STREAM_OPEN || s->state == STREAM_CLOSING) && !s->shut)
		ret = s->rx.wait ? behind(s, rec, bytes) : take(s, rec, bytes);
	if (ret && s->shm.started)
		stream_broken(s, ret, "the peer sent nonsense");
	s->shm.moved = true;
	/* One pass long, from the first on: who is sent more and more answers in time. */
	s->shm.fresh = s->tx.idle && !s->rx.ack_now &&
		       (s->shm.fresh || !list_linked(&s->shm.owing));
	stream_unlock(s);
	return s->shm.started ? 0 : ret;
}

bool shm_after(struct stream *s, bool by_thread)
{
	bool again;

	if (by_thread)
		stream_lock(s);
	else if (!lock_try(&s->lock))
		return true;
	stream_after(s, by_thread, s->shm.asked, s->shm.moved);
	s->shm.moved = false;
	s->shm.asked = s->rx.ack_asked;
	again = s->rx.ack_owed && s->state == STREAM_OPEN;
	stream_unlock(s);
	return again;
}

static void end_later(struct stream *s)
{
	bool before = s->shm.closed_in;

	lock_assert_held(&s->lock);
	s->shm.closed_in = true;
	if (s->shm.asks)
		shm_open_over(s, -EAGAIN);
	else if (!before) /* the work frees the stream */
		loop_post(&s->shm.end_work);
}

void shm_announced(struct stream *s)
{
	stream_lock(s);
	if (s->qp && s->state == STREAM_OPEN) {
		lock_get(&s->qp->lock);
		qp_heard_locked(s->qp);
		lock_put(&s->qp->lock);
	}
	stream_unlock(s);
}

void shm_closed(struct stream *s, int err)
{
	stream_lock(s);
	if (s->shm.started || s->shm.call)
		peer_over(s, err < 0 && err > -MAX_ERRNO ? err : 0);
	else
		end_later(s);
	stream_unlock(s);
}

void shm_broken(struct stream *s, const char *why)
{
	stream_lock(s);
	log_debug("stream in slot %u: %s", s->shm.slot, why);
	s->shm.closed_out = true;
	if (s->shm.started || s->shm.call)
		peer_over(s, s->shm.call ? shm_cm_lost(s) : 0);
	else
		end_later(s);
	stream_unlock(s);
}

/* ---- the carrier's table ----------------------------------------------------------- */

static int start(struct stream *s)
{
	s->fpdu_max = SHM_PAYLOAD;
	lock_get(&s->lock);
	s->shm.started = true;
	lock_put(&s->lock);
	return 0;
}

static int watch(struct stream *s)
{
	(void)s; /* every pass of the link looks at everything */
	return 0;
}

static int join(struct stream *s, struct dev_cq *cq)
{
	return link_cq_join(s->shm.l, cq, &s->shm.member);
}

static void leave(struct stream *s)
{
	struct link_cq *m = s->shm.member;

	s->shm.member = NULL;
	if (m)
		link_cq_leave(m);
}

static void say_closed(struct stream *s, int err)
{
	struct rec_link m = { .type = LINK_CLOSE, .slot = s->shm.peer, .err = err };

	if (s->shm.call && !s->shm.closed_out)
		shm_cm_cancel(s);
	else if (s->shm.known && !s->shm.closed_out)
		link_send(s->shm.l, &m);
	s->shm.closed_out = true;
}

static void shut(struct stream *s)
{
	say_closed(s, 0);
}

static int drain(struct stream *s)
{
	return s->shm.closed_in ? 0 : -EAGAIN;
}

static void reset(struct stream *s)
{
	say_closed(s, -ECONNRESET);
}

void shm_end(struct stream *s)
{
	struct link *l = s->shm.l;
	bool tomb;

	lock_get(&s->lock);
	say_closed(s, 0);
	tomb = (s->shm.known || s->shm.call == SHM_CM_REQ_SENT) && !s->shm.closed_in &&
	       !s->shm.over;
	kept_drop(s);
	stream_unlock(s);
	if (l)
		link_slot_drop(l, s->shm.slot, tomb);
	share_qp_free(s->shm.share_id);
	stream_put(s);
	if (l)
		link_put(l);
}

void shm_end_run(struct loop_work *w)
{
	shm_end(container_of(w, struct stream, shm.end_work));
}

static void finish(struct stream *s)
{
	loop_post(&s->shm.end_work);
}

/* A process on this host that does not answer is stopped, not dead: its end would
 * have closed the link. */
static bool silent(struct stream *s, uint64_t budget)
{
	(void)s;
	(void)budget;
	return false;
}

static uint64_t taken(struct stream *s)
{
	return atomic_load_explicit(&s->shm.l->tx.sh->head, memory_order_relaxed);
}

int shm_start(struct stream *s, bool waiter)
{
	struct link *l = s->shm.l;
	int ret;

	link_get(l);
	stream_get(s); /* its QP may be destroyed at once */
	ret = stream_start(s);
	stream_lock(s);
	waiter |= s->qp_was;
	stream_unlock(s);
	stream_put(s);
	if (!ret && waiter)
		grant_accepted(l);
	link_put(l);
	return ret;
}

const struct carrier shm_carrier = {
	.start = start,
	.send = shm_send,
	.post = shm_post,
	.ack = small_ack,
	.receive = shm_resume,
	.watch = watch,
	.join = join,
	.leave = leave,
	.shut = shut,
	.drain = drain,
	.reset = reset,
	.finish = finish,
	.silent = silent,
	.direct = direct_run,
	.near = direct_near,
	.pulls = pull_offers,
	.patience = UC_TICKS_HOST,
	.taken = taken,
};
