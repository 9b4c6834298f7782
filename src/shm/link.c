/* SPDX-License-Identifier: BSD-2-Clause */
/* Design notes. References: setup.c's list of links holds one, each stream one, each
 * descriptor in the loop one, each posted work one. A dead link stays until its last
 * stream is gone.
 *
 * Streams and messages of the link use the ring's room in the order in which they come. A
 * stream that finds no room adds itself to `blocked`, a sender of datagrams to
 * `dgrams.waiting`, a message is added to `queued`, and each sets the ring's
 * producer_waits. The peer wakes this process when it has consumed
 * enough, and every pass of link_run() tries again. */
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

/* A message that waits for room. */
struct link_queued {
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

static void list_free(struct list *head)
{
	struct list *n;

	while ((n = list_pop(head)))
		free(list_entry(n, struct link_open_msg, node));
}
_Static_assert(offsetof(struct link_open_msg, node) == offsetof(struct link_queued, node),
	       "list_free() frees both"); /* and struct cm_msg: cm.c, dgram_ask: dgram_ask.c */

void link_put(struct link *l)
{
	if (atomic_fetch_sub_explicit(&l->refs, 1, memory_order_acq_rel) != 1)
		return;
	list_free(&l->opens);
	list_free(&l->queued);
	list_free(&l->cm_msgs);
	list_free(&l->dgrams.asks);
	dgram_fini(l);
	fdset_close(l->peer_wake);
	direct_free(l->direct);
	grant_fini(l);
	if (l->seg && l->sock.fd >= 0)
		munmap(l->seg, sizeof(*l->seg));
	lock_fini(&l->rx_lock);
	lock_fini(&l->tx_lock);
	free(l->slot);
	free(l->free_slots);
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
	list_init(&l->after_rx);
	list_init(&l->armed);
	for (int i = 0; i < LINK_CQ_BUCKETS; i++)
		list_init(&l->cq_hash[i]);
	for (int i = 0; i < LINK_REQ_BUCKETS; i++)
		list_init(&l->requests[i]);
	list_init(&l->opens);
	list_init(&l->cm_msgs);
	list_init(&l->blocked);
	list_init(&l->retrying);
	list_init(&l->queued);
	list_init(&l->node);
	dgram_init(l);
	l->grant.memory = -1;
	l->peer_id = *peer;
	l->seg = seg;
	l->tx = (struct ring_tx){ .sh = &seg->ring[side], .limit = RING_LINES };
	l->rx = (struct ring_rx){ .sh = &seg->ring[!side] };
	atomic_init(&l->next_word, ring_word(l->rx.sh, 0));
	l->peer_wake = fds->peer_wake;
	l->msgs_work.run = link_msgs_run;
	l->run_work.run = link_work_run;
	l->wake = (struct loop_fd){ .fd = fds->wake, .events = EPOLLIN | EPOLLET,
				    .ready = link_wake_ready };
	l->sock = (struct loop_fd){ .fd = fds->sock,
				    .events = EPOLLIN,
				    .ready = sock_ready };
	*out = l;
	return 0;
}

static void wake_removed(struct loop_fd *lf)
{
	fdset_close(lf->fd);
	link_put(container_of(lf, struct link, wake));
}

static void sock_removed(struct loop_fd *lf)
{
	fdpass_close(lf->fd);
	link_put(container_of(lf, struct link, sock));
}

int link_start(struct link *l)
{
	int ret;

	link_get(l);
	ret = loop_fd_add(&l->wake);
	l->wake_added = !ret;
	if (ret)
		link_put(l);
	/* From here on the peer wakes this process; link_run() receives what came
	 * before. */
	atomic_store(&l->rx.sh->consumer_sleeps, 1);
	if (!ret && l->sock.fd >= 0) {
		link_get(l);
		ret = loop_fd_add(&l->sock);
		l->sock_added = !ret;
		if (ret)
			link_put(l);
	}
	if (!ret)
		link_run(l, true);
	return ret;
}

/* No more than one ring was received since `start`. A peer that has ended cannot have
 * left more; one that lives could send without end. */
static bool within_ring(struct link *l, uint32_t start)
{
	bool within;

	lock_get(&l->rx_lock);
	within = l->rx.head - start <= RING_LINES;
	lock_put(&l->rx_lock);
	return within;
}

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
	list_free(&l->queued); /* streams may hold the link for long */
	l->queued_bytes = 0;
	lock_put(&l->tx_lock);
	direct_break(l->direct);
	log_info("link to another process: %s", why);
	for (uint32_t i = 0; i < l->nslots; i++)
		if (link_is_stream(l->slot[i])) {
			link_half_open_end(l, l->slot[i]);
			shm_link_broken(l->slot[i], why);
		}
	lock_put(&l->rx_lock);
	link_unlist(l);
	shm_open_link_gone(l);
	shm_cm_routes_drop(l);
	dgram_link_gone(l);
	if (l->wake_added)
		loop_fd_del(&l->wake, wake_removed);
	else
		fdset_close(l->wake.fd);
	if (l->sock_added)
		loop_fd_del(&l->sock, sock_removed);
	else
		fdpass_close(l->sock.fd);
}

/* What the peer sends from now on stays in the ring, so it knows that nobody received
 * it. */
bool link_retire(struct link *l)
{
	bool idle;

	lock_get(&l->rx_lock);
	idle = !l->dead && !l->bad && l->nfree == l->nslots && !l->nopens &&
	       !l->ncm_msgs && !l->dgrams.nasks && !ring_has(&l->rx);
	if (idle) {
		l->bad = l->retired = true;
		link_wake_thread(l);
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
		link_break(l, ret == -EPROTO ?
				      "the other process broke the rules of the socket" :
				      "the other process has ended");
}

/* ---- slots --------------------------------------------------------------------- */

static int slots_grow(struct link *l)
{
	uint32_t n = l->nslots ? 2 * l->nslots : 16;
	struct stream **slot;
	uint32_t *vacant;

	if (n > LINK_SLOTS_MAX)
		return -EMFILE;
	slot = realloc(l->slot, n * sizeof(*slot));
	if (!slot)
		return -ENOMEM;
	l->slot = slot;
	vacant = realloc(l->free_slots, n * sizeof(*vacant));
	if (!vacant)
		return -ENOMEM;
	l->free_slots = vacant;
	for (uint32_t i = n; i-- > l->nslots;) {
		l->slot[i] = NULL;
		l->free_slots[l->nfree++] = i;
	}
	l->nslots = n;
	return 0;
}

int link_slot_alloc(struct link *l, struct stream *s)
{
	struct shm_stream *p = to_shm(s);
	int ret = 0;

	lock_get(&l->rx_lock);
	if (l->dead)
		ret = -EPIPE;
	else if (p->half_open && l->nhalf_open == LINK_HALF_OPEN_MAX)
		ret = -EMFILE;
	else if (!l->nfree)
		ret = slots_grow(l);
	if (!ret) {
		l->nhalf_open += p->half_open;
		p->l = l;
		p->slot = l->free_slots[--l->nfree];
		l->slot[p->slot] = s;
		link_get(l);
	}
	lock_put(&l->rx_lock);
	return ret;
}

void link_slot_free(struct link *l, uint32_t slot, bool peer_open)
{
	struct shm_stream *p;

	lock_get(&l->rx_lock);
	p = to_shm(l->slot[slot]);
	list_del(&p->after_rx);
	lock_get(&l->tx_lock);
	list_del(&p->blocked);
	lock_put(&l->tx_lock);
	l->slot[slot] = LINK_SLOT_CLOSING;
	if (!peer_open)
		link_slot_closed(l, slot);
	lock_put(&l->rx_lock);
}

void link_slot_closed(struct link *l, uint32_t slot)
{
	lock_assert_held(&l->rx_lock);
	l->slot[slot] = NULL;
	l->free_slots[l->nfree++] = slot;
}

/* ---- sending -------------------------------------------------------------------- */

/* The caller has published a record. The fence orders it before the load of
 * consumer_sleeps: either this process sees that the peer sleeps, or the peer sees the
 * record in its last check before it sleeps (link_update_sleep()). */
void link_wake_peer(struct link *l)
{
	int ret;

	atomic_signal_fence(memory_order_seq_cst);
#if !defined(__x86_64__) /* there the release of tx_lock is a full barrier */
	atomic_thread_fence(memory_order_seq_cst);
#endif
	if (!atomic_load_explicit(&l->tx.sh->consumer_sleeps, memory_order_relaxed) ||
	    !atomic_exchange(&l->tx.sh->consumer_sleeps, 0))
		return;
	ret = greeting_wake(l->peer_wake);
	if (ret)
		log_debug("waking the other process of a link: %s", strerror(-ret));
}

static bool put_record(struct link *l, const void *rec, uint32_t bytes,
		       enum rec_kind kind)
{
	const uint32_t word = sizeof(uint32_t); /* ring_publish() stores it */
	uint8_t *at = ring_reserve(&l->tx, bytes);

	lock_assert_held(&l->tx_lock);
	if (!at)
		return false;
	memcpy(at + word, (const uint8_t *)rec + word, bytes - word);
	ring_publish(&l->tx, bytes, (uint8_t)kind);
	return true;
}

/* Bounded: a peer may send requests without end and never read the replies. */
static int queue_record(struct link *l, const void *rec, uint32_t bytes,
			enum rec_kind kind)
{
	struct link_queued *q;

	lock_assert_held(&l->tx_lock);
	if (l->queued_bytes + bytes > LINK_QUEUED_BYTES)
		return -ENOBUFS;
	q = malloc(sizeof(*q) + bytes);
	if (!q)
		return -ENOMEM;
	q->kind = kind;
	q->bytes = bytes;
	memcpy(q->rec, rec, bytes);
	list_add_tail(&l->queued, &q->node);
	l->queued_bytes += bytes;
	atomic_store(&l->tx_waiting, true);
	atomic_store(&l->tx.sh->producer_waits, 1);
	return 0;
}

void link_tx_waiting_update(struct link *l)
{
	lock_assert_held(&l->tx_lock);
	atomic_store(&l->tx_waiting, !list_empty(&l->blocked) || !list_empty(&l->queued) ||
					     !list_empty(&l->dgrams.waiting));
}

static void send_queued(struct link *l)
{
	struct link_queued *q, *tmp;

	lock_assert_held(&l->tx_lock);
	list_for_each_safe(q, tmp, &l->queued, node) {
		if (!put_record(l, q->rec, q->bytes, q->kind))
			return;
		list_del(&q->node);
		l->queued_bytes -= q->bytes;
		free(q);
	}
}

int link_send_record(struct link *l, const void *rec, uint32_t bytes, enum rec_kind kind)
{
	bool overflow = false;
	int ret = 0;

	lock_get(&l->tx_lock);
	if (l->dead) {
		ret = -EPIPE;
	} else if (!list_empty(&l->queued) || !put_record(l, rec, bytes, kind)) {
		ret = queue_record(l, rec, bytes, kind);
		/* The peer may have made room before it could see producer_waits. */
		atomic_thread_fence(memory_order_seq_cst);
		send_queued(l);
		link_tx_waiting_update(l);
		overflow = ret == -ENOBUFS && !l->queue_overflow;
		l->queue_overflow |= overflow;
	}
	if (overflow)
		link_wake_thread(l); /* breaks the link */
	lock_put(&l->tx_lock);
	link_wake_peer(l);
	return ret;
}

bool link_tx_position(struct link *l, uint32_t *end)
{
	bool all;

	lock_get(&l->tx_lock);
	all = list_empty(&l->queued);
	*end = l->tx.tail;
	lock_put(&l->tx_lock);
	return all;
}

int link_send(struct link *l, const struct rec_link *m)
{
	return link_send_record(l, m, sizeof(*m), REC_LINK);
}

static bool room_for_streams(struct link *l)
{
	return list_empty(&l->queued) && ring_reserve(&l->tx, RING_RECORD_MAX);
}

static void move_all(struct list *from, struct list *to)
{
	struct list *n;

	while ((n = list_pop(from)))
		list_add_tail(to, n);
}

/* Streams that have filled the ring again go behind those that found no room: else a
 * stream with much to send would always be the first. */
NO_TSA static void run_blocked(struct link *l)
{
	struct list *n;

	lock_assert_held(&l->tx_lock);
	move_all(&l->blocked, &l->retrying);
	while (room_for_streams(l) && (n = list_pop(&l->retrying))) {
		lock_put(&l->tx_lock);
		shm_unblocked(&container_of(n, struct shm_stream, blocked)->s);
		lock_get(&l->tx_lock);
	}
	move_all(&l->blocked, &l->retrying);
	move_all(&l->retrying, &l->blocked);
}

void link_unblock(struct link *l)
{
	bool wake;

	lock_assert_held(&l->rx_lock);
	if (!atomic_load_explicit(&l->tx_waiting, memory_order_relaxed))
		return;
	lock_get(&l->tx_lock);
	wake = !list_empty(&l->queued);
	send_queued(l);
	if ((l->dgrams.streams_next || list_empty(&l->dgrams.waiting)) &&
	    room_for_streams(l))
		run_blocked(l);
	link_tx_waiting_update(l);
	if (atomic_load(&l->tx_waiting))
		atomic_store(&l->tx.sh->producer_waits, 1); /* the peer may clear it */
	lock_put(&l->tx_lock);
	if (wake)
		link_wake_peer(l);
}
