/* SPDX-License-Identifier: BSD-2-Clause */
/* Events between the backend and the application: queued, fetched, held.
 *
 * An event on a queue belongs to the queue's lock and is charged to an id whose
 * channel this is; `delivered` of the id grows with the removal, under the same
 * lock, so an event is at any moment either undelivered (a destroy drops it, a
 * migrate moves it) or delivered (both wait for its ack). */
#include "base/log.h"
#include "base/zalloc.h"
#include "cm/backend.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct cm_event *cm_event_alloc(uint16_t room)
{
	struct cm_event *ev = zalloc(sizeof(*ev) + room);

	if (ev)
		ev->room = room;
	return ev;
}

void cm_event_set(struct cm_event *ev, struct cm_id *id, enum rdma_cm_event_type type,
		  int status)
{
	ev->pub.id = &id->pub;
	ev->pub.event = type;
	ev->pub.status = status;
	ev->charge = id;
}

struct cm_event *cm_event_new(struct cm_id *id, enum rdma_cm_event_type type,
			      int status)
{
	struct cm_event *ev = cm_event_alloc(CM_EVENT_PRIV);

	if (ev)
		cm_event_set(ev, id, type, status);
	return ev;
}

void cm_event_private(struct cm_event *ev, const void *data, size_t len,
		      size_t padded_len)
{
	if (len > ev->room)
		len = ev->room;
	if (padded_len > UINT8_MAX)
		padded_len = UINT8_MAX;
	if (padded_len > ev->room)
		padded_len = ev->room;
	if (len)
		memcpy(ev->priv, data, len);
	if (ev->charge->pub.qp_type == IBV_QPT_UD) {
		ev->pub.param.ud.private_data = padded_len ? ev->priv : NULL;
		ev->pub.param.ud.private_data_len = (uint8_t)padded_len;
	} else {
		ev->pub.param.conn.private_data = padded_len ? ev->priv : NULL;
		ev->pub.param.conn.private_data_len = (uint8_t)padded_len;
	}
}

void cm_event_free(struct cm_event *ev)
{
	free(ev);
}

/* The id's channel, its queue locked. id->post keeps a migrate, and so the end
 * of the old channel, away until then. */
static struct cm_channel *lock_channel(struct cm_id *id) NO_TSA
{
	struct cm_channel *ch;

	lock_get(&id->post);
	ch = to_channel(id->pub.channel);
	lock_get(&ch->q.lock);
	return ch;
}

static void unlock_channel(struct cm_id *id, struct cm_channel *ch) NO_TSA
{
	lock_put(&ch->q.lock);
	lock_put(&id->post);
}

static bool post(struct cm_event *ev,
		 void (*push)(struct evq *q, struct list *node)) NO_TSA
{
	struct cm_id *id = ev->charge;
	struct cm_channel *ch = lock_channel(id);
	bool dead = ch->dead;

	if (!dead)
		push(&ch->q, &ev->link);
	if (ch->q.lost && ch->be->suspect)
		ch->be->suspect();
	unlock_channel(id, ch);
	if (dead)
		cm_event_free(ev);
	return !dead;
}

bool cm_event_post(struct cm_event *ev)
{
	return post(ev, evq_push_locked);
}

bool cm_event_post_later(struct cm_event *ev)
{
	return post(ev, evq_push_later_locked);
}

/* Takes what belongs to id (or mc alone) off the queue, onto `out`. */
static unsigned collect_locked(struct cm_channel *ch, struct cm_id *id,
			       struct cm_mcast *mc, struct list *out) NO_TSA
{
	struct cm_event *ev, *tmp;
	unsigned n = 0;

	list_for_each_safe(ev, tmp, &ch->q.head, link) {
		if (mc ? ev->mcast != mc :
			 ev->charge != id && ev->pub.id != &id->pub)
			continue;
		list_del(&ev->link);
		list_add_tail(out, &ev->link);
		n++;
	}
	return n;
}

static void purge(struct cm_id *id, struct cm_mcast *mc,
		  void (*drop)(struct cm_event *ev)) NO_TSA
{
	struct cm_channel *ch;
	struct list gone, *node;
	struct cm_event *ev;
	unsigned n;

	list_init(&gone);
	ch = lock_channel(id);
	n = collect_locked(ch, id, mc, &gone);
	if (!ch->dead)
		evq_forget_locked(&ch->q, n);
	unlock_channel(id, ch);

	while ((node = list_pop(&gone))) {
		ev = list_entry(node, struct cm_event, link);
		if (drop)
			drop(ev);
		cm_event_free(ev);
	}
}

void cm_event_purge(struct cm_id *id, void (*drop)(struct cm_event *ev))
{
	purge(id, NULL, drop);
}

void cm_event_purge_mcast(struct cm_mcast *mc)
{
	purge(mc->id, mc, NULL);
}

uint32_t cm_event_delivered(struct cm_id *id) NO_TSA
{
	struct cm_channel *ch = lock_channel(id);
	uint32_t n = id->delivered;

	unlock_channel(id, ch);
	return n;
}

uint32_t cm_event_delivered_mcast(struct cm_mcast *mc) NO_TSA
{
	struct cm_channel *ch = lock_channel(mc->id);
	uint32_t n = mc->delivered;

	unlock_channel(mc->id, ch);
	return n;
}

void cm_event_move(struct cm_id *id, struct cm_channel *to) NO_TSA
{
	struct cm_channel *from;
	struct list moving, *node;
	unsigned n;

	list_init(&moving);
	lock_get(&id->post);
	from = to_channel(id->pub.channel);
	if (from == to) {
		lock_put(&id->post);
		return;
	}
	lock_get(from < to ? &from->q.lock : &to->q.lock);
	lock_get(from < to ? &to->q.lock : &from->q.lock);
	n = collect_locked(from, id, NULL, &moving);
	if (!from->dead)
		evq_forget_locked(&from->q, n);
	while ((node = list_pop(&moving)))
		evq_push_locked(&to->q, node);
	id->pub.channel = &to->pub;
	lock_get(&id->lock);
	id->moved_at = id->fetched;
	lock_put(&id->lock);
	lock_put(&from->q.lock);
	lock_put(&to->q.lock);
	lock_put(&id->post);
}

/* Good enough for the log, and no system call on any machine. */
/* It wraps: differences count. */
static uint32_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	return (uint32_t)((uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000);
}

static int own_tid(void)
{
	static _Thread_local int tid __attribute__((tls_model("initial-exec")));
	static _Thread_local uint32_t generation
		__attribute__((tls_model("initial-exec")));

	if (state_is_old(generation)) {
		generation = state_generation();
		tid = gettid();
	}
	return tid;
}

static void hold(struct cm_event *ev)
{
	struct cm_id *id = ev->charge;

	ev->tid = own_tid();
	ev->fetched_at = now_ms();
	ev->generation = state_generation();
	lock_get(&id->lock);
	ev->nth = ++id->fetched;
	list_add_tail(&id->holders, &ev->link);
	lock_put(&id->lock);
}

static void fetched_locked(struct cm_event *ev)
{
	ev->charge->delivered++;
	if (ev->mcast)
		ev->mcast->delivered++;
	hold(ev);
}

int cm_event_dequeue(struct cm_channel *ch, struct cm_event **out) NO_TSA
{
	struct list *node;
	int r;

	r = evq_get(&ch->q, &node);
	if (r)
		return r;
	*out = list_entry(node, struct cm_event, link);
	fetched_locked(*out);
	lock_put(&ch->q.lock);
	return 0;
}

bool cm_event_dequeue_waiting(struct cm_channel *ch, struct cm_event **out)
{
	struct list *node;

	lock_get(&ch->q.lock);
	node = list_pop(&ch->q.head);
	if (node) {
		*out = list_entry(node, struct cm_event, link);
		fetched_locked(*out);
	}
	lock_put(&ch->q.lock);
	return node != NULL;
}

void cm_event_fetched(struct cm_event *ev)
{
	struct cm_channel *ch = lock_channel(ev->charge);

	fetched_locked(ev);
	unlock_channel(ev->charge, ch);
}

void cm_event_unhold(struct cm_event *ev)
{
	lock_get(&ev->charge->lock);
	list_del(&ev->link);
	lock_put(&ev->charge->lock);
}

void cm_event_unget(struct cm_channel *ch, struct list *evs)
{
	struct cm_event *ev;

	lock_get(&ch->q.lock);
	while (!list_empty(evs)) {
		ev = list_entry(evs->prev, struct cm_event, link);
		list_del(&ev->link);
		ev->charge->delivered--;
		if (ev->mcast)
			ev->mcast->delivered--;
		evq_push_locked(&ch->q, &ev->link);
		list_del(&ev->link);
		list_add_head(&ch->q.head, &ev->link);
	}
	lock_put(&ch->q.lock);
}

void cm_event_ack(struct cm_event *ev)
{
	struct cm_id *id = ev->charge;

	/* The broadcast is under the lock: the waiter frees the id after it. */
	lock_get(&id->lock);
	list_del(&ev->link);
	id->acked++;
	if (ev->mcast)
		ev->mcast->acked++;
	cond_broadcast(&id->acks);
	lock_put(&id->lock);
	cm_event_free(ev);
}

/* The oldest event that keeps `what` waiting, if it is one we know. */
static struct cm_event *holder_locked(struct cm_id *id, struct cm_mcast *mc,
				      uint32_t fetched) REQUIRES(id->lock)
{
	struct cm_event *ev;

	list_for_each(ev, &id->holders, link)
		if (mc ? ev->mcast == mc : (int32_t)(ev->nth - fetched) <= 0)
			return ev;
	return NULL;
}

static void log_holder(struct cm_id *id, struct cm_event *ev, const char *call)
{
	uint32_t ms;

	if (!ev) {
		log_warn("%s of id %p waits for an event that is being fetched",
			 call, (void *)id);
		return;
	}
	ms = now_ms() - ev->fetched_at;
	log_warn("%s of id %p waits for the acknowledgement of %s (id %p), which "
		 "%sthread %d fetched %u.%u s ago",
		 call, (void *)id, rdma_event_str(ev->pub.event),
		 (void *)ev->pub.id, ev->tid == gettid() ? "this same " : "",
		 ev->tid, ms / 1000, ms % 1000 / 100);
}

static void wait_acks(struct cm_id *id, struct cm_mcast *mc, uint32_t delivered,
		      uint32_t fetched, const char *call)
{
	struct timespec until = { 0 };
	struct cm_event *ev;
	bool late = false;
	uint32_t acked;

	lock_get(&id->lock);
	for (;;) {
		ev = holder_locked(id, mc, fetched);
		acked = mc ? mc->acked : id->acked;
		if (!ev && (int32_t)(delivered - acked) <= 0)
			break;
		if (!until.tv_sec) {
			clock_gettime(CLOCK_MONOTONIC, &until);
			until.tv_sec++;
		}
		if (late) {
			log_holder(id, ev, call);
			until.tv_sec += 10;
		}
		late = lock_timedwait(&id->lock, &id->acks, &until) == -ETIMEDOUT;
	}
	lock_put(&id->lock);
}

void cm_id_wait_acks(struct cm_id *id, uint32_t delivered, uint32_t fetched,
		     const char *call)
{
	wait_acks(id, NULL, delivered, fetched, call);
}

void cm_mcast_wait_acks(struct cm_mcast *mc, uint32_t delivered, const char *call)
{
	wait_acks(mc->id, mc, delivered, 0, call);
}
