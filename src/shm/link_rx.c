/* SPDX-License-Identifier: BSD-2-Clause */
/* The receiving half of a link: one pass over the ring, in the loop thread or in a
 * poller, and whether the peer has to wake this process for the next record. */
#include "shm/link_rx.h"

#include "base/log.h"
#include "shm/cm.h"
#include "shm/dgram_rec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM_CHECK_LINES = RING_LINES / 4 };
#define POLL_ON (MSEC / 50)    /* the loop thread polls so long after bulk data, */
#define POLL_ON_MAX (MSEC / 2) /* and at most so long: its other work waits */

void link_post_msgs(struct link *l)
{
	link_get(l);
	if (!loop_post(&l->msgs_work))
		link_put(l);
}

static void open_queue(struct link *l, const struct rec_link *m)
{
	struct link_open_msg *r = l->nopens < LINK_OPENS_MAX ? malloc(sizeof(*r)) : NULL;
	struct rec_link refused = { .type = LINK_REFUSED, .slot = m->from };

	lock_assert_held(&l->rx_lock);
	if (!r) {
		link_send(l, &refused);
		return;
	}
	r->m = *m;
	list_add_tail(&l->opens, &r->node);
	l->nopens++;
	link_post_msgs(l);
}

void link_msgs_run(struct loop_work *w)
{
	struct link *l = container_of(w, struct link, msgs_work);
	struct list *n;

	lock_get(&l->rx_lock);
	/* Of a dead link they are dropped: shm_open_request() might keep them, and so the
	 * link, for a QP. */
	while (!l->dead && (n = list_pop(&l->opens))) {
		struct link_open_msg *r = list_entry(n, struct link_open_msg, node);

		l->nopens--;
		lock_put(&l->rx_lock);
		shm_open_request(l, &r->m);
		free(r);
		lock_get(&l->rx_lock);
	}
	lock_put(&l->rx_lock);
	shm_cm_run(l);
	dgram_asks_run(l);
	link_put(l);
}

bool link_half_open_end(struct link *l, struct stream *s)
{
	bool was = to_shm(s)->half_open;

	lock_assert_held(&l->rx_lock);
	l->nhalf_open -= was;
	to_shm(s)->half_open = false;
	return was;
}

/* ---- messages of the link --------------------------------------------------------- */

static int msg_open(struct link *l, struct stream *s, const struct rec_link *m)
{
	(void)s;
	open_queue(l, m);
	return 0;
}

static int msg_opened(struct link *l, struct stream *s, const struct rec_link *m)
{
	(void)l;
	shm_opened(s, m);
	return 0;
}

static int msg_refused(struct link *l, struct stream *s, const struct rec_link *m)
{
	(void)l;
	(void)m;
	shm_refused(s);
	return 0;
}

static int msg_close(struct link *l, struct stream *s, const struct rec_link *m)
{
	if (s == LINK_SLOT_CLOSING)
		link_slot_closed(l, m->slot);
	if (!link_is_stream(s))
		return 0;
	link_half_open_end(l, s);
	shm_close_received(s, m->err);
	return 0;
}

static int msg_ready(struct link *l, struct stream *s, const struct rec_link *m)
{
	(void)m;
	if (!link_half_open_end(l, s))
		return -EPROTO;
	l->starting = s;
	return 0;
}

static int msg_announce(struct link *l, struct stream *s, const struct rec_link *m)
{
	(void)l;
	(void)m;
	shm_announced(s);
	return 0;
}

static int msg_dgrams(struct link *l, struct stream *s, const struct rec_link *m)
{
	(void)s;
	dgram_ask_queue(l, m);
	return 0;
}

static int msg_dgrams_answer(struct link *l, struct stream *s, const struct rec_link *m)
{
	(void)s;
	dgram_answered(l, m);
	return 0;
}

/* By enum link_type. */
static const struct {
	const char *name;
	/* The message is ignored if its slot has no stream: it was sent before the peer
	 * received LINK_CLOSE. */
	bool for_stream;
	/* s: what link_slot_find() gave for m->slot. rx_lock is held. 0 or -EPROTO. */
	int (*handle)(struct link *l, struct stream *s, const struct rec_link *m);
} messages[] = {
	[LINK_OPEN] = { "OPEN", false, msg_open },
	[LINK_OPENED] = { "OPENED", true, msg_opened },
	[LINK_REFUSED] = { "REFUSED", true, msg_refused },
	[LINK_CLOSE] = { "CLOSE", false, msg_close },
	[LINK_READY] = { "READY", true, msg_ready },
	[LINK_ANNOUNCE] = { "ANNOUNCE", true, msg_announce },
	[LINK_DGRAMS] = { "DGRAMS", false, msg_dgrams },
	[LINK_DGRAMS_ANSWER] = { "DGRAMS_ANSWER", false, msg_dgrams_answer },
};

static int receive_link(struct link *l, const volatile void *rec, uint32_t bytes,
			bool by_thread)
{
	struct rec_link m;
	struct stream *s;
	int ret;

	(void)by_thread;
	lock_assert_held(&l->rx_lock);
	if (bytes != sizeof(m))
		return -EPROTO;
	ring_read(&m, rec, sizeof(m));
	m.unreliable = !!m.unreliable;
	if (m.type >= sizeof(messages) / sizeof(messages[0]) || !messages[m.type].handle)
		return -EPROTO;
	s = link_slot_find(l, m.slot);
	if (messages[m.type].for_stream && !link_is_stream(s))
		return 0;
	ret = messages[m.type].handle(l, s, &m);
	if (ret)
		log_info("LINK_%s for slot %u is out of order", messages[m.type].name,
			 m.slot);
	return ret;
}

/* ---- records ---------------------------------------------------------------------- */

/* Inlined into receive(), though the table has its address. */
__attribute__((always_inline)) static inline int
receive_stream(struct link *l, const volatile void *rec, uint32_t bytes, bool by_thread)
{
	struct shm_stream *p;
	struct rec_stream r;
	struct stream *s;
	int ret;

	lock_assert_held(&l->rx_lock);
	rec_read(&r, rec);
	s = link_slot_find(l, r.slot);
	if (!link_is_stream(s))
		return 0; /* sent before the peer received LINK_CLOSE */
	ret = shm_receive(s, &r, rec, bytes, by_thread);
	p = to_shm(s);
	if (ret != -EAGAIN && ret != -EBUSY && !list_linked(&p->after_rx))
		list_add_tail(&l->after_rx, &p->after_rx);
	return ret;
}

/* By enum rec_kind. */
static const struct link_kind kinds[] = {
	[REC_STREAM] = { "stream", sizeof(struct rec_stream), receive_stream },
	[REC_LINK] = { "link", sizeof(struct rec_link), receive_link },
	[REC_CM] = { "CM", sizeof(struct rec_cm), shm_cm_receive },
	[REC_DGRAM] = { "datagram", sizeof(struct rec_dgram), dgram_receive },
};

/* Receives a record by its row of the table. */
__attribute__((noinline)) static int
receive_other(struct link *l, uint8_t kind, const volatile void *rec, uint32_t bytes,
	      bool by_thread)
{
	const struct link_kind *k =
		kind < sizeof(kinds) / sizeof(kinds[0]) ? &kinds[kind] : &kinds[0];
	int ret = -EPROTO;

	if (k->receive && bytes >= k->bytes_min)
		ret = k->receive(l, rec, bytes, by_thread);
	if (ret == -EPROTO)
		log_info("process %d sent an invalid record of kind %u (%s)",
			 (int)l->peer_pid, kind, k->name ? k->name : "unknown");
	return ret;
}

/* Receives up to a turn. -EPROTO: the link is to be broken. */
static int receive(struct link *l, bool by_thread, bool *moved)
{
	uint32_t bytes, total = 0;
	const volatile void *rec;
	bool rest = false;
	uint8_t kind;
	int ret = 0;

	lock_assert_held(&l->rx_lock);
	for (int i = 0; i < LINK_TURN && total < LINK_TURN_BYTES && !l->starting && !rest;
	     i++) {
		rec = ring_peek(&l->rx, &bytes, &kind);
		if (!rec)
			return bytes ? -EPROTO : 0;
		/* Nearly all records are of this kind: no indirect call for them. */
		if (kind == REC_STREAM && bytes >= sizeof(struct rec_stream))
			ret = receive_stream(l, rec, bytes, by_thread);
		else
			ret = receive_other(l, kind, rec, bytes, by_thread);
		if (kind == REC_DGRAM)
			rest = l->dgrams.rest && !by_thread;
		l->stopped = ret == -EBUSY;
		if (ret)
			return ret == -EAGAIN || ret == -EBUSY ? 0 : ret;
		ring_consume(&l->rx, bytes);
		l->consumed_lines += ring_lines(bytes);
		total += bytes + l->pulled;
		l->bulk |= bytes + l->pulled >= LINK_BULK;
		l->pulled = 0;
		*moved = true;
	}
	return 0;
}

static void run_after_rx(struct link *l, bool by_thread)
{
	struct list *n, *next, *stop = &l->after_rx;

	lock_assert_held(&l->rx_lock);
	for (n = stop->next; n != stop; n = next) {
		struct stream *s = &container_of(n, struct shm_stream, after_rx)->s;

		next = n->next;
		/* If the application replies at once, its frame carries the
		 * acknowledgement. */
		if (to_shm(s)->defer_ack && !by_thread)
			to_shm(s)->defer_ack = to_shm(s)->received = false;
		else if (!shm_after_rx(s, by_thread))
			list_del(n);
	}
}

/* Looks at each CQ that was armed once: the link may have any number of CQs. */
static bool any_armed(struct link *l)
{
	struct link_cq *m, *tmp;

	lock_assert_held(&l->rx_lock);
	list_for_each_safe(m, tmp, &l->armed, armed) {
		if (m->cq->armed != CQ_IDLE)
			return true;
		list_del(&m->armed);
	}
	return false;
}

/* Not through l->wake: the peer has that eventfd, too, and could have made it useless. */
void link_wake_thread(struct link *l)
{
	link_get(l);
	if (!loop_post(&l->run_work))
		link_put(l);
}

/* Streams or messages wait, and there is room for them. If there is none, producer_waits
 * is set: the peer may have cleared it and woken this process before, and others have
 * used the room since without setting it. */
static bool room_for_waiting(struct link *l)
{
	bool room;

	if (!atomic_load_explicit(&l->tx_waiting, memory_order_relaxed))
		return false;
	lock_get(&l->tx_lock);
	room = ring_reserve(&l->tx, RING_RECORD_MAX);
	if (!room) {
		atomic_store(&l->tx.sh->producer_waits, 1);
		/* The peer may have made room before it could see producer_waits. */
		atomic_thread_fence(memory_order_seq_cst);
		room = ring_reserve(&l->tx, RING_RECORD_MAX);
	}
	lock_put(&l->tx_lock);
	return room;
}

/* The store of consumer_sleeps before the last check pairs with the peer's
 * link_wake_peer(), which it calls after a record and after it has made room. */
void link_update_sleep(struct link *l)
{
	bool sleeps = !l->leases || any_armed(l);

	lock_assert_held(&l->rx_lock);
	if (l->dead)
		return;
	atomic_store(&l->rx.sh->consumer_sleeps, sleeps);
	atomic_thread_fence(memory_order_seq_cst);
	if (sleeps && ((ring_has(&l->rx) && !l->stopped) || room_for_waiting(l)))
		link_wake_thread(l);
}

/* A producer that waits for room has most of the ring to be consumed. So of the checks
 * after every quarter of the ring, one comes after the producer has set producer_waits.
 * The fence makes sure that the producer sees the new head, or this process sees
 * producer_waits. */
static void wake_producer(struct link *l)
{
	lock_assert_held(&l->rx_lock);
	if (l->consumed_lines < ROOM_CHECK_LINES)
		return;
	l->consumed_lines = 0;
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&l->rx.sh->producer_waits, memory_order_relaxed) &&
	    atomic_exchange(&l->rx.sh->producer_waits, 0))
		link_wake_peer(l);
}

/* While another thread receives, next_word is old, and the producer may be writing to
 * that line: the value read there is meaningless then, and harmless. */
__attribute__((no_sanitize("thread"))) bool link_seems_idle(struct link *l)
{
	_Atomic uint32_t *next =
		atomic_load_explicit(&l->next_word, memory_order_relaxed);

	return !atomic_load_explicit(next, memory_order_relaxed) &&
	       !atomic_load_explicit(&l->after_rx_due, memory_order_relaxed) &&
	       !atomic_load_explicit(&l->tx_waiting, memory_order_relaxed);
}

bool link_run(struct link *l, bool by_thread)
{
	bool moved = false, dgrams = false;
	int ret = 0;

	if (by_thread)
		lock_get(&l->rx_lock);
	else if (!lock_try(&l->rx_lock))
		return false;
	if (!l->dead && !l->bad) {
		l->bulk = false;
		ret = receive(l, by_thread, &moved);
		l->bad = ret != 0;
		if (!list_empty(&l->after_rx))
			run_after_rx(l, by_thread);
		atomic_store_explicit(&l->after_rx_due, !list_empty(&l->after_rx),
				      memory_order_relaxed);
		ret = ret || (moved && l->starting);
		wake_producer(l);
		link_unblock(l);
		atomic_store_explicit(&l->next_word, ring_word(l->rx.sh, l->rx.head),
				      memory_order_relaxed);
		dgrams = atomic_load_explicit(&l->tx_waiting, memory_order_relaxed);
	}
	if (ret && !l->dead)
		link_wake_thread(l); /* starts the stream, or breaks the link */
	lock_put(&l->rx_lock);
	if (dgrams)
		dgram_unblock(l);
	return moved;
}

bool link_run_thread(struct link *l)
{
	bool moved = link_run(l, true);
	struct stream *s;

	lock_get(&l->rx_lock);
	s = l->starting;
	lock_put(&l->rx_lock);
	if (!s)
		return moved;
	shm_ready(s); /* s stays: only this thread frees slots */
	lock_get(&l->rx_lock);
	l->starting = NULL;
	lock_put(&l->rx_lock);
	return true;
}

/* After bulk data more is likely to come within microseconds. If this process slept, the
 * peer would make a system call for each record. */
static void poll_on(struct link *l)
{
	uint64_t now = loop_now(), stop = now + POLL_ON_MAX, until = now + POLL_ON;

	for (; now < until && now < stop; now = loop_now())
		if (link_run_thread(l))
			until = now + POLL_ON;
}

/* What the loop thread does for a link when it is woken. */
static void thread_run(struct link *l)
{
	bool bad, bulk, retired;

	link_run_thread(l);
	lock_get(&l->rx_lock);
	bulk = l->bulk;
	lock_put(&l->rx_lock);
	if (bulk)
		poll_on(l);
	lock_get(&l->rx_lock);
	link_update_sleep(l);
	lock_get(&l->tx_lock);
	bad = l->bad || l->queue_overflow || !ring_sane(&l->tx);
	retired = l->retired;
	lock_put(&l->tx_lock);
	lock_put(&l->rx_lock);
	if (bad)
		link_break(l, retired ? "it makes room for another" :
					"the other process broke the rules of the ring");
}

void link_wake_ready(struct loop_fd *lf, uint32_t revents)
{
	(void)revents;
	thread_run(container_of(lf, struct link, wake));
}

void link_work_run(struct loop_work *w)
{
	struct link *l = container_of(w, struct link, run_work);

	thread_run(l);
	link_put(l);
}
