/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared memory as the medium of a stream. Frames are written into the ring as they
 * are built, so there is no cut frame and nothing to take back; the acknowledgement
 * that is owed rides on the next frame. */
#include "shm/link.h"

#include "base/conf.h"
#include "base/log.h"
#include "iwarp/batch.h"
#include "iwarp/iwarp.h"
#include "shm/shm.h"

#include <errno.h>
#include <string.h>

enum { SHM_PAYLOAD = 16 * 1024 }; /* of one record: both ends copy at the same time */

/* ---- sending ------------------------------------------------------------------- */

static bool no_room(struct stream *s)
{
	return !ring_reserve(&s->shm.l->tx, RING_RECORD_MAX);
}

static int emit(struct batch *b, struct stream *s, const struct rdmap_hdr *h,
		struct frame *f, const struct cursor *c)
{
	struct ring_tx *tx = &s->shm.l->tx;
	uint32_t head = rec_head(h);
	uint8_t *at;
	int ret = 0;

	if (h->op == RDMAP_CTL && h->ctl.type == CTL_ACK && !b->ack) {
		b->ack = true;
		b->ack_number = h->ctl.number;
		b->after = *c;
		return 0;
	}
	at = ring_reserve(tx, head + h->payload); /* batch_full() has seen the room */
	if (!at)
		return -ENOBUFS;
	if (h->payload)
		ret = batch_gather(s->qp, f, at + head, h->payload);
	if (ret)
		return ret;
	rec_put(at, s->shm.peer, h);
	if (b->ack)
		rec_put_ack(at, b->ack_number);
	b->ack = false;
	ring_publish(tx, head + h->payload, REC_STREAM);
	b->nframes++;
	b->bytes += head + h->payload;
	b->after = *c;
	return 0;
}

/* No frame came that could carry it. */
static void ack_alone(struct stream *s, struct batch *b)
{
	struct rdmap_hdr h = { .op = RDMAP_CTL, .last = true };
	uint8_t *at = ring_reserve(&s->shm.l->tx, rec_head(&h));

	if (!at) {
		b->after.ack = true; /* still owed */
		return;
	}
	h.ctl.type = CTL_ACK;
	h.ctl.number = b->ack_number;
	rec_put(at, s->shm.peer, &h);
	ring_publish(&s->shm.l->tx, rec_head(&h), REC_STREAM);
	b->nframes++;
}

/* Builds into the ring. True if there may be more to do. */
NO_TSA static bool send_once(struct stream *s, size_t *moved)
{
	struct link *l = s->shm.l;
	struct dev_qp *qp = s->qp;
	struct batch b;
	bool failed;

	b.bytes = 0;
	b.niov = b.nrefs = b.nframes = b.used = 0;
	b.fail = 0;
	b.ack = false;
	b.emit = emit;
	b.no_room = no_room;
	if (qp)
		lock_get(&qp->lock);
	failed = req_local_locked(s);
	lock_get(&l->tx_lock);
	b.after.ctl = UINT32_MAX; /* nothing was built */
	batch_build(s, &b);
	if (b.ack)
		ack_alone(s, &b);
	if (b.after.ctl != UINT32_MAX)
		cursor_store(s, &b.after);
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
		}
	}
	lock_put(&l->tx_lock);
	if (qp)
		lock_put(&qp->lock);
	*moved += b.bytes;
	if (b.fail && !s->tx.blocked)
		tx_build_failed(s, b.fail);
	if (failed)
		req_hold_over(s);
	return (b.nframes || b.fail) && !s->tx.blocked;
}

static void shm_send(struct stream *s)
{
	size_t moved = 0;

	if (!s->shm.opened || s->shm.closed_out)
		return;
	while (send_once(s, &moved) && s->state != STREAM_BROKEN && s->state != STREAM_CLOSED)
		;
	if (s->qp && conf_get()->strict_timeout && (s->tx.requests || s->tx.off))
		req_sent(s);
	s->tx.requests = false;
	link_wake(s->shm.l);
	stream_want_output(s);
}

void shm_unblocked(struct stream *s)
{
	stream_lock(s);
	if (s->state != STREAM_CLOSED)
		tx_run(s);
	stream_unlock(s);
}

/* ---- receiving ------------------------------------------------------------------- */

static int take(struct stream *s, const void *rec, uint32_t bytes)
{
	struct rec_stream r;
	int head = rec_get(rec, bytes, &r, &s->rx.h), ret;

	lock_assert_held(&s->lock);
	if (head < 0)
		return head;
	if (r.flags & REC_ACK)
		req_ack(s, r.ack & 0xffffff);
	ret = rx_frame_begin(s);
	if (ret)
		return ret;
	if (s->rx.h.payload)
		rx_copy(s, (const uint8_t *)rec + head, s->rx.h.payload);
	return rx_frame_end(s);
}

int shm_receive(struct stream *s, const void *rec, uint32_t bytes, bool by_thread)
{
	int ret = 0;

	if (by_thread)
		lock_get(&s->lock);
	else if (!lock_try(&s->lock))
		return -EAGAIN;
	if ((s->state == STREAM_OPEN || s->state == STREAM_CLOSING) && !s->shut)
		ret = take(s, rec, bytes);
	if (ret)
		stream_broken(s, ret, "the peer sent nonsense");
	s->shm.moved = true;
	stream_unlock(s);
	return 0;
}

bool shm_after(struct stream *s, bool by_thread)
{
	bool again;

	if (by_thread)
		lock_get(&s->lock);
	else if (!lock_try(&s->lock))
		return true;
	stream_after(s, by_thread, s->shm.asked, s->shm.moved);
	s->shm.moved = false;
	s->shm.asked = s->rx.ack_asked;
	again = s->rx.ack_owed && s->state == STREAM_OPEN;
	stream_unlock(s);
	return again;
}

void shm_closed(struct stream *s, int err)
{
	lock_get(&s->lock);
	s->shm.closed_in = true;
	stream_peer_closed(s, err < 0 ? err : 0);
	stream_unlock(s);
}

void shm_broken(struct stream *s, const char *why)
{
	lock_get(&s->lock);
	log_debug("stream in slot %u: %s", s->shm.slot, why);
	s->shm.closed_in = s->shm.closed_out = true;
	if (s->shm.opened)
		stream_peer_closed(s, 0);
	else
		shm_open_over(s, -EPIPE);
	stream_unlock(s);
}

/* ---- the medium's table ----------------------------------------------------------- */

static int start(struct stream *s)
{
	s->fpdu_max = SHM_PAYLOAD;
	return 0;
}

static int watch(struct stream *s)
{
	(void)s; /* every pass of the link looks at everything */
	return 0;
}

static int join(struct stream *s, struct dev_cq *cq)
{
	return link_join(s->shm.l, cq, &s->shm.member);
}

static void leave(struct stream *s)
{
	struct link_member *m = s->shm.member;

	s->shm.member = NULL;
	if (m)
		link_leave(m);
}

static void say_closed(struct stream *s, int err)
{
	struct rec_link m = { .type = LINK_CLOSE, .slot = s->shm.peer, .err = err };

	if (s->shm.opened && !s->shm.closed_out)
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

static void end_run(struct loop_work *w)
{
	struct stream *s = container_of(w, struct stream, shm.end_work);
	struct link *l = s->shm.l;
	bool tomb;

	lock_get(&s->lock);
	say_closed(s, 0);
	tomb = !s->shm.closed_in && s->shm.opened;
	stream_unlock(s);
	link_slot_drop(l, s->shm.slot, tomb);
	stream_put(s);
	link_put(l);
}

static void finish(struct stream *s)
{
	s->shm.end_work.run = end_run;
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

const struct medium shm_medium = {
	.start = start,
	.send = shm_send,
	.watch = watch,
	.join = join,
	.leave = leave,
	.shut = shut,
	.drain = drain,
	.reset = reset,
	.finish = finish,
	.silent = silent,
};
