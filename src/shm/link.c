/* SPDX-License-Identifier: BSD-2-Clause */
/* Design notes. References: meet.c's table of links has one, each stream one, each
 * registered descriptor one, the queued work one. A dead link stays until its last
 * stream is gone.
 *
 * Room in the ring is taken by whoever comes first; who finds none leaves itself on
 * `blocked` (or its message on `later`) and sets the ring's `full`. The peer's
 * consumer wakes us when it has made room, and every pass of link_run() looks. */
#include "shm/link_rx.h"

#include "base/fdset.h"
#include "base/log.h"
#include "base/sys.h"
#include "shm/cm.h"
#include "shm/fdpass.h"
#include "shm/greeting.h"
#include "shm/setup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

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

bool link_try_get(struct link *l)
{
	int n = atomic_load_explicit(&l->refs, memory_order_relaxed);

	while (n && !atomic_compare_exchange_weak_explicit(&l->refs, &n, n + 1,
							   memory_order_relaxed,
							   memory_order_relaxed))
		;
	return n;
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
	grant_fini(l);
	if (l->seg && l->sock.fd >= 0)
		munmap(l->seg, sizeof(*l->seg));
	lock_fini(&l->rx_lock);
	lock_fini(&l->tx_lock);
	free(l->slot);
	free(l->vacant);
	free(l);
}

static void sock_ready(struct loop_fd *lf, uint32_t revents);

int link_new(struct link_segment *seg, int side, const struct link_id *peer,
	     const struct link_fds *fds, struct link **out)
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
	l->grant.memory = -1;
	l->peer = *peer;
	l->seg = seg;
	l->tx = (struct ring_tx){ .sh = &seg->ring[side], .limit = RING_LINES };
	l->rx = (struct ring_rx){ .sh = &seg->ring[!side] };
	atomic_init(&l->next, ring_word(l->rx.sh, 0));
	l->peer_wake = fds->peer_wake;
	l->work.run = link_requests_run;
	l->self_work.run = link_self_run;
	l->wake = (struct loop_fd){ .fd = fds->wake, .events = EPOLLIN | EPOLLET,
				    .ready = link_wake_ready };
	l->sock = (struct loop_fd){ .fd = fds->sock, .events = EPOLLIN, .ready = sock_ready };
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
	fdpass_close(lf->fd);
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
	lock_get(&l->tx_lock);
	l->dead = true;
	free_list(&l->later); /* streams may keep the link for long */
	l->later_bytes = 0;
	lock_put(&l->tx_lock);
	direct_break(l->direct);
	log_info("link to another process: %s", why);
	for (uint32_t i = 0; i < l->slots; i++)
		if (l->slot[i] && l->slot[i] != LINK_TOMB) {
			link_half_end(l, l->slot[i]);
			shm_broken(l->slot[i], why);
		}
	lock_put(&l->rx_lock);
	link_forget(l);
	shm_open_link_gone(l);
	shm_cm_forget(l);
	if (l->wake_in)
		loop_fd_del(&l->wake, wake_forgotten);
	else
		fdset_close(l->wake.fd);
	if (l->sock_in)
		loop_fd_del(&l->sock, sock_forgotten);
	else
		fdpass_close(l->sock.fd);
}

/* What the peer sends from now on stays in the ring, so it knows that nobody has it. */
bool link_retire(struct link *l)
{
	bool idle;

	lock_get(&l->rx_lock);
	idle = !l->dead && !l->bad && l->nvacant == l->slots && !l->nrequests &&
	       !l->ncm && !ring_has(&l->rx);
	if (idle) {
		l->bad = l->retired = true;
		link_wake_self(l);
	}
	lock_put(&l->rx_lock);
	return idle;
}

static void sock_ready(struct loop_fd *lf, uint32_t revents)
{
	struct link *l = container_of(lf, struct link, sock);
	int ret = grant_receive(l);

	(void)revents;
	if (ret && ret != -EAGAIN)
		link_break(l, ret == -EPROTO ? "the other process broke the rules of the socket" :
					       "the other process has ended");
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
	struct shm_stream *p = to_shm(s);
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
	struct shm_stream *p;

	lock_get(&l->rx_lock);
	p = to_shm(l->slot[slot]);
	list_del(&p->owing);
	lock_get(&l->tx_lock);
	list_del(&p->blocked);
	lock_put(&l->tx_lock);
	l->slot[slot] = tomb ? LINK_TOMB : NULL;
	if (!tomb)
		l->vacant[l->nvacant++] = slot;
	lock_put(&l->rx_lock);
}

/* ---- sending -------------------------------------------------------------------- */

/* The record was published before; the fence orders it against reading doze: either
 * we see that the consumer dozes, or it sees the record when it looks once more. */
void link_wake(struct link *l)
{
	int ret;

	atomic_signal_fence(memory_order_seq_cst);
#if !defined(__x86_64__) /* there the lock's release is a full barrier */
	atomic_thread_fence(memory_order_seq_cst);
#endif
	if (!atomic_load_explicit(&l->tx.sh->doze, memory_order_relaxed) ||
	    !atomic_exchange(&l->tx.sh->doze, 0))
		return;
	ret = greeting_wake(l->peer_wake);
	if (ret)
		log_debug("waking a peer: %s", strerror(-ret));
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

void link_still_waits(struct link *l)
{
	lock_assert_held(&l->tx_lock);
	atomic_store(&l->waits, !list_empty(&l->blocked) || !list_empty(&l->later));
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

int link_send_record(struct link *l, const void *rec, uint32_t bytes, enum rec_kind kind)
{
	bool flooded = false;
	int ret = 0;

	lock_get(&l->tx_lock);
	if (l->dead) {
		ret = -EPIPE;
	} else if (!list_empty(&l->later) || !link_put_record(l, rec, bytes, kind)) {
		ret = put_later(l, rec, bytes, kind);
		/* The peer may have made room before it could see the mark. */
		atomic_thread_fence(memory_order_seq_cst);
		send_later(l);
		link_still_waits(l);
		flooded = ret == -ENOBUFS && !l->flooded;
		l->flooded |= flooded;
	}
	if (flooded)
		link_wake_self(l); /* the thread ends it: see link_wake_ready() */
	lock_put(&l->tx_lock);
	link_wake(l);
	return ret;
}

bool link_sent(struct link *l, uint32_t *end)
{
	bool all;

	lock_get(&l->tx_lock);
	all = list_empty(&l->later);
	*end = l->tx.tail;
	lock_put(&l->tx_lock);
	return all;
}

int link_send(struct link *l, const struct rec_link *m)
{
	return link_send_record(l, m, sizeof(*m), REC_LINK);
}

static bool has_turn(struct link *l)
{
	return list_empty(&l->later) && ring_reserve(&l->tx, RING_RECORD_MAX);
}

static void move_all(struct list *from, struct list *to)
{
	struct list *n;

	while ((n = list_pop(from)))
		list_add_tail(to, n);
}

/* Who has filled the ring is behind those who found no room: else it would be the first
 * again, and they wait as long as it has something to send. */
NO_TSA static void take_turns(struct link *l)
{
	struct list *n;

	lock_assert_held(&l->tx_lock);
	move_all(&l->blocked, &l->going);
	while (has_turn(l) && (n = list_pop(&l->going))) {
		lock_put(&l->tx_lock);
		shm_unblocked(&container_of(n, struct shm_stream, blocked)->s);
		lock_get(&l->tx_lock);
	}
	move_all(&l->blocked, &l->going);
	move_all(&l->going, &l->blocked);
}

/* There may be room again: those who wait try. */
void link_unblock(struct link *l)
{
	bool wake;

	lock_assert_held(&l->rx_lock);
	if (!atomic_load_explicit(&l->waits, memory_order_relaxed))
		return;
	lock_get(&l->tx_lock);
	wake = !list_empty(&l->later);
	send_later(l);
	if (has_turn(l))
		take_turns(l);
	link_still_waits(l);
	if (atomic_load(&l->waits))
		atomic_store(&l->tx.sh->full, 1); /* the peer has cleared it */
	lock_put(&l->tx_lock);
	if (wake)
		link_wake(l);
}
