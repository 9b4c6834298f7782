/* SPDX-License-Identifier: BSD-2-Clause */
/* Design notes. References: meet.c's table of links has one, each stream one, each
 * registered descriptor one, the queued work one. A dead link stays until its last
 * stream is gone.
 *
 * Room in the ring is taken by whoever comes first; who finds none leaves itself on
 * `blocked` (or its message on `later`) and sets the ring's `full`. The peer's
 * consumer wakes us when it has made room, and every pass of link_run() looks. */
#include "shm/link.h"

#include "base/fdset.h"
#include "base/log.h"
#include "iwarp/iwarp.h"
#include "shm/call.h"
#include "shm/shm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ROOM_LINES = RING_LINES / 4 };
#define LINGER (MSEC / 50) /* the thread looks so long before it sleeps again */
#define LINGER_MAX (MSEC / 2) /* so long others wait */

struct link_request {
	struct list node;
	struct rec_link m;
};

struct link_later {
	struct list node;
	enum rec_kind kind;
	uint32_t bytes;
	uint8_t rec[];
};

/* ---- life --------------------------------------------------------------------- */

void link_get(struct link *l)
{
	atomic_fetch_add_explicit(&l->refs, 1, memory_order_relaxed);
}

static void free_list(struct list *head)
{
	struct list *n;

	while ((n = list_pop(head)))
		free(list_entry(n, struct link_request, node));
}
_Static_assert(offsetof(struct link_request, node) == offsetof(struct link_later, node),
	       "free_list() frees both");

void link_put(struct link *l)
{
	if (atomic_fetch_sub_explicit(&l->refs, 1, memory_order_acq_rel) != 1)
		return;
	free_list(&l->requests);
	free_list(&l->later);
	free_list(&l->calls);
	fdset_close(l->peer_wake);
	direct_free(l->direct);
	if (l->seg && l->sock.fd >= 0)
		munmap(l->seg, sizeof(*l->seg));
	lock_fini(&l->rx_lock);
	lock_fini(&l->tx_lock);
	free(l->slot);
	free(l->vacant);
	free(l);
}

static void wake_ready(struct loop_fd *lf, uint32_t revents);
static void sock_ready(struct loop_fd *lf, uint32_t revents);
static void requests_run(struct loop_work *w);
static bool link_run_thread(struct link *l);
static void wake_self(struct link *l);
static bool whole(struct link *l, struct stream *s);

int link_new(struct link_segment *seg, int side, const struct link_id *peer, int wake,
	     int peer_wake, int sock, struct link **out)
{
	struct link *l = calloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	atomic_init(&l->refs, 1);
	lock_init(&l->rx_lock);
	lock_init(&l->tx_lock);
	list_init(&l->owing);
	list_init(&l->members);
	for (int i = 0; i < LINK_CQ_BUCKETS; i++)
		list_init(&l->by_cq[i]);
	list_init(&l->requests);
	list_init(&l->calls);
	list_init(&l->blocked);
	list_init(&l->going);
	list_init(&l->later);
	list_init(&l->all);
	l->peer = *peer;
	l->seg = seg;
	l->tx = (struct ring_tx){ .sh = &seg->ring[side], .limit = RING_LINES };
	l->rx = (struct ring_rx){ .sh = &seg->ring[!side] };
	atomic_init(&l->next, ring_word(l->rx.sh, 0));
	l->peer_wake = peer_wake;
	l->work.run = requests_run;
	l->wake = (struct loop_fd){ .fd = wake, .events = EPOLLIN, .ready = wake_ready };
	l->sock = (struct loop_fd){ .fd = sock, .events = EPOLLIN, .ready = sock_ready };
	*out = l;
	return 0;
}

static void wake_forgotten(struct loop_fd *lf)
{
	fdset_close(lf->fd);
	link_put(container_of(lf, struct link, wake));
}

static void sock_forgotten(struct loop_fd *lf)
{
	fdset_close(lf->fd);
	link_put(container_of(lf, struct link, sock));
}

int link_start(struct link *l)
{
	int ret;

	link_get(l);
	ret = loop_fd_add(&l->wake);
	l->wake_in = !ret;
	if (ret)
		link_put(l);
	/* From here on the peer wakes us; what it has sent before is seen now. */
	atomic_store(&l->rx.sh->doze, 1);
	if (!ret && l->sock.fd >= 0) {
		link_get(l);
		ret = loop_fd_add(&l->sock);
		l->sock_in = !ret;
		if (ret)
			link_put(l);
	}
	if (!ret)
		link_run(l, true);
	return ret;
}

/* Not more than a ring holds has been left by a peer that is gone; others go on. */
static bool within_ring(struct link *l, uint32_t start)
{
	bool within;

	lock_get(&l->rx_lock);
	within = l->rx.head - start <= RING_LINES;
	lock_put(&l->rx_lock);
	return within;
}

/* Takes what the peer had still to say, then breaks every stream. */
void link_break(struct link *l, const char *why)
{
	uint32_t start;

	lock_get(&l->rx_lock);
	start = l->rx.head;
	if (l->dead) {
		lock_put(&l->rx_lock);
		return;
	}
	lock_put(&l->rx_lock);
	while (link_run_thread(l) && within_ring(l, start))
		;
	lock_get(&l->rx_lock);
	l->dead = true;
	direct_break(l->direct);
	log_info("link to another process: %s", why);
	for (uint32_t i = 0; i < l->slots; i++)
		if (l->slot[i] && l->slot[i] != LINK_TOMB) {
			whole(l, l->slot[i]);
			shm_broken(l->slot[i], why);
		}
	lock_put(&l->rx_lock);
	meet_forget(l);
	shm_open_link_gone(l);
	call_forget(l);
	if (l->wake_in)
		loop_fd_del(&l->wake, wake_forgotten);
	else
		fdset_close(l->wake.fd);
	if (l->sock_in)
		loop_fd_del(&l->sock, sock_forgotten);
	else if (l->sock.fd >= 0)
		fdset_close(l->sock.fd);
}

/* Nothing is ever said on the socket after the greeting. */
static void sock_ready(struct loop_fd *lf, uint32_t revents)
{
	struct link *l = container_of(lf, struct link, sock);

	(void)revents;
	link_break(l, "the other process has ended");
}

/* ---- slots --------------------------------------------------------------------- */

static int slots_grow(struct link *l)
{
	uint32_t n = l->slots ? 2 * l->slots : 16;
	struct stream **slot;
	uint32_t *vacant;

	if (n > LINK_SLOTS_MAX)
		return -EMFILE;
	slot = realloc(l->slot, n * sizeof(*slot));
	if (!slot)
		return -ENOMEM;
	l->slot = slot;
	vacant = realloc(l->vacant, n * sizeof(*vacant));
	if (!vacant)
		return -ENOMEM;
	l->vacant = vacant;
	for (uint32_t i = n; i-- > l->slots;) {
		l->slot[i] = NULL;
		l->vacant[l->nvacant++] = i;
	}
	l->slots = n;
	return 0;
}

int link_slot_take(struct link *l, struct stream *s)
{
	struct shm_part *p = &s->shm;
	int ret = 0;

	lock_get(&l->rx_lock);
	if (l->dead)
		ret = -EPIPE;
	else if (p->half && l->halves == LINK_HALF_MAX)
		ret = -EMFILE;
	else if (!l->nvacant)
		ret = slots_grow(l);
	if (!ret) {
		l->halves += p->half;
		p->l = l;
		p->slot = l->vacant[--l->nvacant];
		l->slot[p->slot] = s;
		link_get(l);
	}
	lock_put(&l->rx_lock);
	return ret;
}

void link_slot_drop(struct link *l, uint32_t slot, bool tomb)
{
	struct shm_part *p;

	lock_get(&l->rx_lock);
	p = &l->slot[slot]->shm;
	list_del(&p->owing);
	lock_get(&l->tx_lock);
	list_del(&p->blocked);
	lock_put(&l->tx_lock);
	l->slot[slot] = tomb ? LINK_TOMB : NULL;
	if (!tomb)
		l->vacant[l->nvacant++] = slot;
	lock_put(&l->rx_lock);
}

static struct stream *slot_find(struct link *l, uint32_t slot)
{
	return slot < l->slots ? l->slot[slot] : NULL;
}

/* ---- sending -------------------------------------------------------------------- */

/* The record was published before; the fence orders it against reading doze: either
 * we see that the consumer dozes, or it sees the record when it looks once more. */
void link_wake(struct link *l)
{
	static const uint64_t one = 1;

	atomic_thread_fence(memory_order_seq_cst);
	if (!atomic_load_explicit(&l->tx.sh->doze, memory_order_relaxed) ||
	    !atomic_exchange(&l->tx.sh->doze, 0))
		return;
	if (write(l->peer_wake, &one, sizeof(one)) < 0 && errno != EAGAIN)
		log_debug("waking a peer: %s", strerror(errno));
}

static bool link_put_record(struct link *l, const void *rec, uint32_t bytes,
			    enum rec_kind kind)
{
	const uint32_t word = sizeof(uint32_t); /* the ring's own, stored last */
	uint8_t *at = ring_reserve(&l->tx, bytes);

	lock_assert_held(&l->tx_lock);
	if (!at)
		return false;
	memcpy(at + word, (const uint8_t *)rec + word, bytes - word);
	ring_publish(&l->tx, bytes, (uint8_t)kind);
	return true;
}

/* A peer that takes nothing and has us answer more and more is none. */
static int put_later(struct link *l, const void *rec, uint32_t bytes, enum rec_kind kind)
{
	struct link_later *later;

	lock_assert_held(&l->tx_lock);
	if (l->later_bytes + bytes > LINK_LATER_BYTES)
		return -ENOBUFS;
	later = malloc(sizeof(*later) + bytes);
	if (!later)
		return -ENOMEM;
	later->kind = kind;
	later->bytes = bytes;
	memcpy(later->rec, rec, bytes);
	list_add_tail(&l->later, &later->node);
	l->later_bytes += bytes;
	atomic_store(&l->waits, true);
	atomic_store(&l->tx.sh->full, 1);
	return 0;
}

int link_send_record(struct link *l, const void *rec, uint32_t bytes, enum rec_kind kind)
{
	bool flooded = false;
	int ret = 0;

	lock_get(&l->tx_lock);
	if (!list_empty(&l->later) || !link_put_record(l, rec, bytes, kind)) {
		ret = put_later(l, rec, bytes, kind);
		flooded = ret == -ENOBUFS && !l->flooded;
		l->flooded |= flooded;
	}
	lock_put(&l->tx_lock);
	if (flooded)
		wake_self(l); /* the thread ends it: see wake_ready() */
	link_wake(l);
	return ret;
}

int link_send(struct link *l, const struct rec_link *m)
{
	return link_send_record(l, m, sizeof(*m), REC_LINK);
}

static void send_later(struct link *l)
{
	struct link_later *later, *tmp;

	lock_assert_held(&l->tx_lock);
	list_for_each_safe(later, tmp, &l->later, node) {
		if (!link_put_record(l, later->rec, later->bytes, later->kind))
			return;
		list_del(&later->node);
		l->later_bytes -= later->bytes;
		free(later);
	}
}

/* There may be room again: those who wait try. */
static void unblock(struct link *l)
{
	struct list *n;
	bool wake;

	lock_assert_held(&l->rx_lock);
	if (!atomic_load_explicit(&l->waits, memory_order_relaxed))
		return;
	lock_get(&l->tx_lock);
	wake = !list_empty(&l->later);
	send_later(l);
	if (ring_reserve(&l->tx, RING_RECORD_MAX))
		while ((n = list_pop(&l->blocked)))
			list_add_tail(&l->going, n);
	atomic_store(&l->waits, !list_empty(&l->blocked) || !list_empty(&l->later));
	if (atomic_load(&l->waits))
		atomic_store(&l->tx.sh->full, 1); /* the peer has cleared it */
	while ((n = list_pop(&l->going))) {
		lock_put(&l->tx_lock);
		shm_unblocked(container_of(n, struct stream, shm.blocked));
		lock_get(&l->tx_lock);
	}
	lock_put(&l->tx_lock);
	if (wake)
		link_wake(l);
}

/* ---- receiving ------------------------------------------------------------------- */

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

static void requests_run(struct loop_work *w)
{
	struct link *l = container_of(w, struct link, work);
	struct list *n;

	lock_get(&l->rx_lock);
	while ((n = list_pop(&l->requests))) {
		struct link_request *r = list_entry(n, struct link_request, node);

		l->nrequests--;
		lock_put(&l->rx_lock);
		shm_open_request(l, &r->m);
		free(r);
		lock_get(&l->rx_lock);
	}
	lock_put(&l->rx_lock);
	call_requests(l);
	link_put(l);
}

/* The peer has decided about a stream that was half open. */
static bool whole(struct link *l, struct stream *s)
{
	bool was = s->shm.half;

	lock_assert_held(&l->rx_lock);
	l->halves -= was;
	s->shm.half = false;
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
	s = slot_find(l, m.slot);
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
	case LINK_KNOCK:
		shm_knocked(s);
		return 0;
	case LINK_CLOSE:
		whole(l, s);
		shm_closed(s, m.err);
		return 0;
	case LINK_READY:
		if (!whole(l, s))
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
	struct stream *s = slot_find(l, slot);
	struct shm_part *p;
	int ret;

	lock_assert_held(&l->rx_lock);
	if (bytes < sizeof(struct rec_stream))
		return -EPROTO;
	if (!s || s == LINK_TOMB)
		return 0; /* said before the peer knew that it is closed */
	ret = shm_receive(s, rec, bytes, by_thread);
	p = &s->shm;
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
		      kind == REC_CALL	 ? call_receive(l, rec, bytes) :
					   -EPROTO;
		if (ret)
			return ret == -EAGAIN ? 0 : ret;
		ring_consume(&l->rx, bytes);
		l->eaten += ring_lines(bytes);
		total += bytes;
		l->bulk |= bytes >= LINK_BULK;
		*moved = true;
	}
	return 0;
}

static void look_again(struct link *l, bool by_thread)
{
	struct list *n, *next, *stop = &l->owing;

	lock_assert_held(&l->rx_lock);
	for (n = stop->next; n != stop; n = next) {
		struct stream *s = container_of(n, struct stream, shm.owing);

		next = n->next;
		if (!shm_after(s, by_thread))
			list_del(n);
	}
}

static bool any_armed(struct link *l)
{
	struct link_member *m;
	unsigned n = 0;

	list_for_each(m, &l->members, node)
		if (m->cq->armed != CQ_IDLE || ++n > LINK_MEMBERS_SEEN)
			return true;
	return false;
}

static void wake_self(struct link *l)
{
	static const uint64_t one = 1;

	if (write(l->wake.fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
		log_debug("waking the thread: %s", strerror(errno));
}

/* Those who wait for room could go on. */
static bool has_room(struct link *l)
{
	bool room;

	if (!atomic_load_explicit(&l->waits, memory_order_relaxed))
		return false;
	lock_get(&l->tx_lock);
	room = ring_reserve(&l->tx, RING_RECORD_MAX);
	lock_put(&l->tx_lock);
	return room;
}

/* Sets doze as the header says. Storing it before looking once more pairs with
 * link_wake(), which the peer calls for a record and for room. */
static void reconsider(struct link *l)
{
	bool doze = !l->leases || any_armed(l);

	lock_assert_held(&l->rx_lock);
	if (l->dead)
		return;
	atomic_store(&l->rx.sh->doze, doze);
	atomic_thread_fence(memory_order_seq_cst);
	if (doze && (ring_has(&l->rx) || has_room(l)))
		wake_self(l);
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
__attribute__((no_sanitize("thread"))) static bool quiet(struct link *l)
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
	else if (quiet(l) || !lock_try(&l->rx_lock))
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
		unblock(l);
		atomic_store_explicit(&l->next, ring_word(l->rx.sh, l->rx.head),
				      memory_order_relaxed);
	}
	lock_put(&l->rx_lock);
	if (ret)
		wake_self(l); /* the thread starts a stream, or ends all: see wake_ready() */
	return moved;
}

/* link_run() of the loop thread, which alone may start streams: park.lock is outside
 * of the locks that others hold here. */
static bool link_run_thread(struct link *l)
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

static void wake_ready(struct loop_fd *lf, uint32_t revents)
{
	struct link *l = container_of(lf, struct link, wake);
	uint64_t count;
	bool bad, bulk;

	(void)revents;
	if (read(lf->fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		log_debug("eventfd of a link: %s", strerror(errno));
	link_run_thread(l);
	lock_get(&l->rx_lock);
	bulk = l->bulk;
	lock_put(&l->rx_lock);
	if (bulk)
		linger(l);
	lock_get(&l->rx_lock);
	reconsider(l);
	lock_get(&l->tx_lock);
	bad = l->bad || l->flooded || !ring_sane(&l->tx);
	lock_put(&l->tx_lock);
	lock_put(&l->rx_lock);
	if (bad)
		link_break(l, "the other process broke the rules of the ring");
}

/* ---- members ---------------------------------------------------------------------- */

static bool member_progress(struct poll_source *src, bool by_thread)
{
	struct link_member *m = container_of(src, struct link_member, src);
	bool moved = link_run(m->l, by_thread);

	src->again = atomic_load_explicit(&m->l->owes, memory_order_relaxed);
	return moved;
}

static void member_lease(struct poll_source *src, bool leased)
{
	struct link_member *m = container_of(src, struct link_member, src);

	lock_get(&m->l->rx_lock);
	if (m->leased != leased) {
		m->leased = leased;
		m->l->leases += leased ? 1u : -1u;
	}
	reconsider(m->l);
	lock_put(&m->l->rx_lock);
}

static struct list *cq_bucket(struct link *l, const struct dev_cq *cq)
{
	/* The lowest bits of what malloc gives are always the same. */
	return &l->by_cq[((uintptr_t)cq >> 4) * 2654435761u >> 8 & (LINK_CQ_BUCKETS - 1)];
}

static struct link_member *member_find(struct link *l, struct dev_cq *cq)
{
	struct link_member *m;

	list_for_each(m, cq_bucket(l, cq), by_cq)
		if (m->cq == cq)
			return m;
	return NULL;
}

/* park.lock serialises joining and leaving. */
int link_join(struct link *l, struct dev_cq *cq, struct link_member **out)
{
	struct link_member *m;
	int ret;

	lock_get(&l->rx_lock);
	m = member_find(l, cq);
	if (m)
		m->streams++;
	lock_put(&l->rx_lock);
	*out = m;
	if (m)
		return 0;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->l = l;
	m->cq = cq;
	m->streams = 1;
	m->src.fd = -1;
	m->src.progress = member_progress;
	m->src.lease = member_lease;
	ret = poll_add(cq, &m->src);
	if (ret) {
		free(m);
		return ret;
	}
	link_get(l);
	lock_get(&l->rx_lock);
	list_add_head(&l->members, &m->node);
	list_add_head(cq_bucket(l, cq), &m->by_cq);
	reconsider(l);
	lock_put(&l->rx_lock);
	*out = m;
	return 0;
}

void link_leave(struct link_member *m)
{
	struct link *l = m->l;
	bool last;

	lock_get(&l->rx_lock);
	last = !--m->streams;
	if (last) {
		list_del(&m->node);
		list_del(&m->by_cq);
	}
	lock_put(&l->rx_lock);
	if (!last)
		return;
	poll_del(&m->src); /* pollers may have leased it up to here */
	lock_get(&l->rx_lock);
	if (m->leased)
		l->leases--;
	reconsider(l);
	lock_put(&l->rx_lock);
	free(m);
	link_put(l);
}
