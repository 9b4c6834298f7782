/* SPDX-License-Identifier: BSD-2-Clause */
/* Receiving the records of one stream. A message of an unreliable stream may wait for a
 * receive. The records that come after it are copied and kept, so that other streams can
 * use the ring meanwhile. */
#include "rc/requester.h"
#include "rc/responder.h"
#include "rc/rx.h"
#include "shm/link_rx.h"
#include "shm/pull.h"
#include "shm/small.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	/* Bytes of records that are kept for one stream: while a message waits for a
	 * receive, which it may do in vain; */
	KEPT_MAX = 1024 * 1024,
	/* while its memory is slow: then the link stops, and all streams with it. */
	KEPT_SLOW_MAX = 16 * 1024 * 1024,
};

/* A copy of a record. */
struct shm_kept {
	struct list node; /* shm_stream.kept */
	uint32_t bytes;
	int head; /* in shm_stream.waiting: bytes before its payload */
	_Alignas(struct rec_stream) uint8_t data[]; /* the record */
};

static struct shm_kept *keep(struct stream *s, const struct rec_stream *r,
			     const volatile void *rec, uint32_t bytes, int head)
{
	struct shm_kept *k = malloc(sizeof(*k) + bytes);

	lock_assert_held(&s->lock);
	if (!k)
		return NULL;
	k->bytes = bytes;
	k->head = head;
	memcpy(k->data, r, sizeof(*r));
	memcpy(k->data + sizeof(*r), ring_payload(rec, sizeof(*r)), bytes - sizeof(*r));
	to_shm(s)->kept_bytes += bytes;
	return k;
}

static void kept_free(struct stream *s, struct shm_kept *k)
{
	to_shm(s)->kept_bytes -= k->bytes;
	free(k);
}

void shm_kept_drop(struct shm_stream *t)
{
	struct list *n;

	free(t->fetch);
	t->fetch = NULL;
	free(t->waiting);
	t->waiting = NULL;
	while ((n = list_pop(&t->kept)))
		free(list_entry(n, struct shm_kept, node));
	t->kept_bytes = 0;
}

/* The head of the record is in rx.h, and rx_frame_begin() has succeeded. -EINPROGRESS: pages
 * are not there (rx.paging), it is to be kept. */
static int receive_payload(struct stream *s, const volatile void *rec, int head)
{
	lock_assert_held(&s->lock);
	if (s->rx.h.payload &&
	    rx_copy(s, ring_payload(rec, (size_t)head), s->rx.h.payload))
		return -EINPROGRESS;
	return rx_frame_end(s, RC_BY_FRAME);
}

static int receive_record(struct stream *s, const struct rec_stream *r,
			  const volatile void *rec, uint32_t bytes)
{
	int head, ret;

	lock_assert_held(&s->lock);
	if (small_receive(s, r, rec, bytes))
		return 0;
	s->tx.ack_only = false;
	head = rec_get(rec, bytes, r, &s->rx.h);
	if (head < 0)
		return head;
	if (r->flags & REC_ACK) {
		rc_ack_in(s, r->ack & 0xffffff);
		req_ack(s, r->ack & 0xffffff);
	}
	if (r->flags & REC_PULL)
		return pull_receive(s, rec, r);
	ret = rx_frame_begin(s);
	if (ret)
		return ret;
	if (s->rx.h.op == RC_WRITE && r->msn && (ret = resp_placed(s, r->msn)))
		return ret;
	if (!s->rx.wait) {
		ret = receive_payload(s, rec, head);
		if (ret != -EINPROGRESS)
			return ret;
	}
	to_shm(s)->waiting = keep(s, r, rec, bytes, head);
	return to_shm(s)->waiting ? 0 : -ENOMEM;
}

static int receive_kept(struct stream *s)
{
	struct shm_kept *k;
	struct list *n;
	int ret = 0;

	lock_assert_held(&s->lock);
	while (!ret && !stream_stands(s) && (n = list_pop(&to_shm(s)->kept))) {
		k = list_entry(n, struct shm_kept, node);
		ret = receive_record(s, (const void *)k->data, k->data, k->bytes);
		kept_free(s, k);
	}
	return ret;
}

/* Tries again to receive the message that waits, or goes on with it, then receives the
 * records that were kept. */
static int resume(struct stream *s)
{
	struct shm_kept *k;
	int ret;

	lock_assert_held(&s->lock);
	ret = s->rx.wait ? rx_resume(s) : 0;
	k = to_shm(s)->waiting;
	if (!ret && !stream_stands(s) && k) {
		ret = receive_payload(s, k->data, k->head);
		if (ret == -EINPROGRESS)
			return 0;
		to_shm(s)->waiting = NULL;
		kept_free(s, k);
	}
	return ret ? ret : receive_kept(s);
}

void shm_input_ended(struct stream *s, int err)
{
	lock_assert_held(&s->lock);
	if (stream_stands(s) && s->state == STREAM_OPEN) {
		to_shm(s)->end_pending = true;
		to_shm(s)->end_err = err;
		return;
	}
	to_shm(s)->end_pending = false;
	to_shm(s)->closed_in = true;
	stream_peer_closed(s, err);
}

/* A stream that has ended takes no records: they are dropped. */
void shm_let_link_go_on(struct stream *s)
{
	struct shm_stream *t = to_shm(s);

	lock_assert_held(&s->lock);
	if (!t->link_stopped || (stream_stands(s) && !s->shut &&
				 (s->state == STREAM_OPEN || s->state == STREAM_CLOSING)))
		return;
	t->link_stopped = false;
	link_wake_thread(t->l);
}

void shm_fetched(struct stream *s, int err)
{
	struct shm_stream *t = to_shm(s);

	lock_assert_held(&s->lock);
	if (!err && (s->state == STREAM_OPEN || s->state == STREAM_CLOSING) && !s->shut)
		err = receive_kept(s);
	if (err)
		stream_broken(s, err, "the peer sent an invalid record");
	if (t->end_pending && !stream_stands(s))
		shm_input_ended(s, t->end_err);
	stream_after(s, true, true, true);
	shm_let_link_go_on(s);
}

void shm_go_on(struct stream *s)
{
	int err = 0;

	lock_assert_held(&s->lock);
	if ((s->state == STREAM_OPEN || s->state == STREAM_CLOSING) && !s->shut)
		err = resume(s);
	shm_fetched(s, err);
}

bool shm_resume(struct stream *s)
{
	int ret;

	lock_assert_held(&s->lock);
	if (!s->rx.wait)
		return false;
	ret = resume(s);
	if (ret)
		stream_broken(s, ret, "the peer sent an invalid record");
	if (to_shm(s)->end_pending && !stream_stands(s))
		shm_input_ended(s, to_shm(s)->end_err);
	return true;
}

/* A record that comes after the message that waits: keeps it. If that needs more than
 * KEPT_MAX, unreliable messages before it stop waiting; behind memory that is slow the link
 * stops, later. */
static int receive_behind(struct stream *s, const struct rec_stream *r,
			  const volatile void *rec, uint32_t bytes)
{
	struct shm_kept *k;
	int ret = 0;

	lock_assert_held(&s->lock);
	if (stream_stands(s) && !s->rx.wait &&
	    to_shm(s)->kept_bytes + bytes > KEPT_SLOW_MAX) {
		to_shm(s)->link_stopped = true;
		return -EBUSY;
	}
	while (!ret && s->rx.wait && to_shm(s)->kept_bytes + bytes > KEPT_MAX) {
		s->rx.no_wait = true;
		ret = resume(s);
	}
	if (ret || !stream_stands(s))
		return ret ? ret : receive_record(s, r, rec, bytes);
	k = keep(s, r, rec, bytes, 0);
	if (k)
		list_add_tail(&to_shm(s)->kept, &k->node);
	return k ? 0 : -ENOMEM;
}

/* rx_lock is held. */
static int receive_now(struct stream *s, const struct rec_stream *r,
		       const volatile void *rec, uint32_t bytes)
{
	int ret;

	lock_assert_held(&s->lock);
	if (stream_stands(s))
		return receive_behind(s, r, rec, bytes);
	ret = receive_record(s, r, rec, bytes);
	if (s->rx.fetching)
		to_shm(s)->l->pulled = s->rx.h.payload;
	return ret;
}

int shm_receive(struct stream *s, const struct rec_stream *r, const volatile void *rec,
		uint32_t bytes, bool by_thread)
{
	int ret = 0;

	if (by_thread)
		stream_lock(s);
	else if (!lock_try(&s->lock))
		return -EAGAIN;
	if (!to_shm(s)->started)
		ret = -EPROTO; /* LINK_READY has to come first */
	else if ((s->state == STREAM_OPEN || s->state == STREAM_CLOSING) && !s->shut)
		ret = receive_now(s, r, rec, bytes);
	if (ret == -EBUSY) {
		stream_unlock(s);
		return ret;
	}
	if (ret && to_shm(s)->started)
		stream_broken(s, ret, "the peer sent an invalid record");
	to_shm(s)->received = true;
	/* For one pass, from the first record on: if more and more records come, the
	 * acknowledgement is not deferred further. */
	to_shm(s)->defer_ack =
		s->tx.ack_only && !s->rx.ack_now &&
		(to_shm(s)->defer_ack || !list_linked(&to_shm(s)->after_rx));
	stream_unlock(s);
	return to_shm(s)->started ? 0 : ret;
}

bool shm_after_rx(struct stream *s, bool by_thread)
{
	bool again;

	if (by_thread)
		stream_lock(s);
	else if (!lock_try(&s->lock))
		return true;
	stream_after(s, by_thread, to_shm(s)->ack_asked_before, to_shm(s)->received);
	to_shm(s)->received = false;
	to_shm(s)->ack_asked_before = s->rx.ack_asked;
	again = s->rx.ack_owed && s->state == STREAM_OPEN;
	stream_unlock(s);
	return again;
}
