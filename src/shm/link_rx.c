/* SPDX-License-Identifier: BSD-2-Clause */
/* The receiving half of a link: one pass over the ring, by the loop thread or by a
 * poller, and who is woken for the next. */
#include "shm/link_rx.h"

#include "base/log.h"
#include "shm/cm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM_LINES = RING_LINES / 4 };
#define LINGER (MSEC / 50) /* the thread looks so long before it sleeps again */
#define LINGER_MAX (MSEC / 2) /* so long others wait */

void link_post(struct link *l)
{
	link_get(l);
	if (!loop_post(&l->work))
		link_put(l);
}

static void request_queue(struct link *l, const struct rec_link *m)
{
	struct link_request *r = l->nrequests < LINK_REQUESTS_MAX ? malloc(sizeof(*r)) : NULL;
	struct rec_link refused = { .type = LINK_REFUSED, .slot = m->from };

	lock_assert_held(&l->rx_lock);
	if (!r) {
		link_send(l, &refused);
		return;
	}
	r->m = *m;
	list_add_tail(&l->requests, &r->node);
	l->nrequests++;
	link_post(l);
}

void link_requests_run(struct loop_work *w)
{
	struct link *l = container_of(w, struct link, work);
	struct list *n;

	lock_get(&l->rx_lock);
	/* What is left of a dead link would be kept for a QP, and the link with it. */
	while (!l->dead && (n = list_pop(&l->requests))) {
		struct link_request *r = list_entry(n, struct link_request, node);

		l->nrequests--;
		lock_put(&l->rx_lock);
		shm_open_request(l, &r->m);
		free(r);
		lock_get(&l->rx_lock);
	}
	lock_put(&l->rx_lock);
	shm_cm_requests(l);
	link_put(l);
}

bool link_half_end(struct link *l, struct stream *s)
{
	bool was = to_shm(s)->half;

	lock_assert_held(&l->rx_lock);
	l->halves -= was;
	to_shm(s)->half = false;
	return was;
}

static int receive_link(struct link *l, const void *rec, uint32_t bytes)
{
	struct rec_link m;
	struct stream *s;

	lock_assert_held(&l->rx_lock);
	if (bytes != sizeof(m))
		return -EPROTO;
	memcpy(&m, rec, sizeof(m));
	m.unreliable = !!m.unreliable;
	if (m.type == LINK_OPEN) {
		request_queue(l, &m);
		return 0;
	}
	s = link_slot_find(l, m.slot);
	if (m.type == LINK_CLOSE && s == LINK_TOMB) {
		l->slot[m.slot] = NULL;
		l->vacant[l->nvacant++] = m.slot;
		return 0;
	}
	if (!s || s == LINK_TOMB)
		return 0;
	switch (m.type) {
	case LINK_OPENED:
		shm_opened(s, &m);
		return 0;
	case LINK_REFUSED:
		shm_refused(s);
		return 0;
	case LINK_ANNOUNCE:
		shm_announced(s);
		return 0;
	case LINK_CLOSE:
		link_half_end(l, s);
		shm_closed(s, m.err);
		return 0;
	case LINK_READY:
		if (!link_half_end(l, s))
			return -EPROTO;
		l->starting = s;
		return 0;
	default:
		return -EPROTO;
	}
}

static int receive_stream(struct link *l, const void *rec, uint32_t bytes, bool by_thread)
{
	uint32_t slot = __atomic_load_n(&((const struct rec_stream *)rec)->slot,
					__ATOMIC_RELAXED);
	struct stream *s = link_slot_find(l, slot);
	struct shm_stream *p;
	int ret;

	lock_assert_held(&l->rx_lock);
	if (bytes < sizeof(struct rec_stream))
		return -EPROTO;
	if (!s || s == LINK_TOMB)
		return 0; /* said before the peer knew that it is closed */
	ret = shm_receive(s, rec, bytes, by_thread);
	p = to_shm(s);
	if (ret != -EAGAIN && !list_linked(&p->owing))
		list_add_tail(&l->owing, &p->owing);
	return ret;
}

/* Up to a turn. -EPROTO: the peer is not to be listened to any more. */
static int receive(struct link *l, bool by_thread, bool *moved)
{
	uint32_t bytes, total = 0;
	const void *rec;
	uint8_t kind;
	int ret = 0;

	lock_assert_held(&l->rx_lock);
	for (int i = 0; i < LINK_TURN && total < LINK_TURN_BYTES && !l->starting; i++) {
		rec = ring_peek(&l->rx, &bytes, &kind);
		if (!rec)
			return bytes ? -EPROTO : 0;
		ret = kind == REC_STREAM ? receive_stream(l, rec, bytes, by_thread) :
		      kind == REC_LINK	 ? receive_link(l, rec, bytes) :
		      kind == REC_CM	 ? shm_cm_receive(l, rec, bytes) :
					   -EPROTO;
		if (ret)
			return ret == -EAGAIN ? 0 : ret;
		ring_consume(&l->rx, bytes);
		l->eaten += ring_lines(bytes);
		total += bytes + l->pulled;
		l->bulk |= bytes + l->pulled >= LINK_BULK;
		l->pulled = 0;
		*moved = true;
	}
	return 0;
}

static void look_again(struct link *l, bool by_thread)
{
	struct list *n, *next, *stop = &l->owing;

	lock_assert_held(&l->rx_lock);
	for (n = stop->next; n != stop; n = next) {
		struct stream *s = &container_of(n, struct shm_stream, owing)->s;

		next = n->next;
		/* What the application answers at once carries the acknowledgement. */
		if (to_shm(s)->fresh && !by_thread)
			to_shm(s)->fresh = to_shm(s)->moved = false;
		else if (!shm_after(s, by_thread))
			list_del(n);
	}
}

static bool any_armed(struct link *l)
{
	struct link_cq *m;
	unsigned n = 0;

	list_for_each(m, &l->members, node)
		if (m->cq->armed != CQ_IDLE || ++n > LINK_MEMBERS_SEEN)
			return true;
	return false;
}

/* Not by l->wake: the peer may have made that useless. */
void link_wake_self(struct link *l)
{
	link_get(l);
	if (!loop_post(&l->self_work))
		link_put(l);
}

/* Those who wait for room could go on. If not, the mark that tells the peer of them is
 * there: it may have told us before this thread dozed, and others have taken the room since
 * without a mark of their own. */
static bool has_room(struct link *l)
{
	bool room;

	if (!atomic_load_explicit(&l->waits, memory_order_relaxed))
		return false;
	lock_get(&l->tx_lock);
	room = ring_reserve(&l->tx, RING_RECORD_MAX);
	if (!room) {
		atomic_store(&l->tx.sh->full, 1);
		/* The peer may have made room before it could see the mark. */
		atomic_thread_fence(memory_order_seq_cst);
		room = ring_reserve(&l->tx, RING_RECORD_MAX);
	}
	lock_put(&l->tx_lock);
	return room;
}

/* Storing doze before looking once more pairs with link_wake(), which the peer calls
 * for a record and for room. */
void link_reconsider(struct link *l)
{
	bool doze = !l->leases || any_armed(l);

	lock_assert_held(&l->rx_lock);
	if (l->dead)
		return;
	atomic_store(&l->rx.sh->doze, doze);
	atomic_thread_fence(memory_order_seq_cst);
	if (doze && (ring_has(&l->rx) || has_room(l)))
		link_wake_self(l);
}

/* A producer that waits has left most of the ring to be consumed: one of the looks that come
 * with every quarter is after its mark. The fence has it see the head, or us the mark. */
static void tell_room(struct link *l)
{
	lock_assert_held(&l->rx_lock);
	if (l->eaten < ROOM_LINES)
		return;
	l->eaten = 0;
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&l->rx.sh->full, memory_order_relaxed) &&
	    atomic_exchange(&l->rx.sh->full, 0))
		link_wake(l);
}

/* Nothing has come and nothing is owed, as far as can be seen without a lock. While
 * another receives, the hint is old, and its line may be the producer's again: what is
 * read there means nothing then, and does no harm. */
__attribute__((no_sanitize("thread"))) bool link_looks_idle(struct link *l)
{
	_Atomic uint32_t *next = atomic_load_explicit(&l->next, memory_order_relaxed);

	return !atomic_load_explicit(next, memory_order_relaxed) &&
	       !atomic_load_explicit(&l->owes, memory_order_relaxed) &&
	       !atomic_load_explicit(&l->waits, memory_order_relaxed);
}

bool link_run(struct link *l, bool by_thread)
{
	bool moved = false;
	int ret = 0;

	if (by_thread)
		lock_get(&l->rx_lock);
	else if (!lock_try(&l->rx_lock))
		return false;
	if (!l->dead && !l->bad) {
		l->bulk = false;
		ret = receive(l, by_thread, &moved);
		l->bad = ret != 0;
		if (!list_empty(&l->owing))
			look_again(l, by_thread);
		atomic_store_explicit(&l->owes, !list_empty(&l->owing),
				      memory_order_relaxed);
		ret = ret || (moved && l->starting);
		tell_room(l);
		link_unblock(l);
		atomic_store_explicit(&l->next, ring_word(l->rx.sh, l->rx.head),
				      memory_order_relaxed);
	}
	if (ret && !l->dead)
		link_wake_self(l); /* to start a stream, or end all: link_wake_ready() */
	lock_put(&l->rx_lock);
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
	shm_ready(s); /* stays: only this thread drops slots */
	lock_get(&l->rx_lock);
	l->starting = NULL;
	lock_put(&l->rx_lock);
	return true;
}

/* Much data streams in, and more is microseconds away: dozing would cost the peer a
 * system call for each record. */
static void linger(struct link *l)
{
	uint64_t now = loop_now(), stop = now + LINGER_MAX, until = now + LINGER;

	for (; now < until && now < stop; now = loop_now())
		if (link_run_thread(l))
			until = now + LINGER;
}

static void woken(struct link *l)
{
	bool bad, bulk, retired;

	link_run_thread(l);
	lock_get(&l->rx_lock);
	bulk = l->bulk;
	lock_put(&l->rx_lock);
	if (bulk)
		linger(l);
	lock_get(&l->rx_lock);
	link_reconsider(l);
	lock_get(&l->tx_lock);
	bad = l->bad || l->flooded || !ring_sane(&l->tx);
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
	woken(container_of(lf, struct link, wake));
}

void link_self_run(struct loop_work *w)
{
	struct link *l = container_of(w, struct link, self_work);

	woken(l);
	link_put(l);
}
