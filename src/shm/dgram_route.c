/* SPDX-License-Identifier: BSD-2-Clause */
/* Routes: which link takes datagrams from a port of ours to a port of another process.
 *
 *	FINDING --> ASKED --> ANSWERED --> GOOD
 *	   |                     |
 *	   +---------------------+-------> NONE, until `until`; then it is forgotten
 *
 * Everything but dgram_route_find() and dgram_answered() runs in the loop thread. */
#include "shm/dgram.h"

#include "base/log.h"
#include "base/state.h"
#include "dev/qpn.h"
#include "shm/link.h"
#include "shm/setup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	BUCKETS = 1024,
	NONE_MS = 10000, /* no process has the port under a name that we may use */
	AGAIN_MS = 1000, /* for want of memory or descriptors, or it was busy */
	ROUTES_MAX = 1 << 16,
	MAX_ERRNO = 4096,
};

enum route_state {
	ROUTE_FINDING, /* link_find_port() */
	ROUTE_ASKED,   /* LINK_DGRAMS was sent by `l` */
	ROUTE_ANSWERED, /* LINK_DGRAMS_ANSWER has come: err; `work` is posted */
	ROUTE_GOOD,	/* datagrams go by `l` */
	ROUTE_NONE,    /* there is no way */
};

struct route {
	struct list node; /* routes.bucket[] */
	uint16_t port, peer_port;
	enum route_state state;
	struct link *l; /* ASKED, ANSWERED, GOOD: counted. NULL: it has ended */
	int err;	/* ANSWERED */
	uint64_t until; /* NONE */
	bool again;	/* NONE: it may be otherwise then */
	struct loop_work work;
	struct link_wait wait;
};

static struct {
	struct lock lock; /* guards all; comes after link.rx_lock */
	struct list bucket[BUCKETS];
	unsigned n;
	bool ready;
	struct loop_timer timer; /* runs while a route is NONE */
	bool timing;
} routes PROCESS_STATE = { .lock = LOCK_INIT };

static void forget_timer(struct loop_timer *t);

static void routes_lock(void) NO_TSA
{
	lock_get(&routes.lock);
	if (routes.ready)
		return;
	for (int i = 0; i < BUCKETS; i++)
		list_init(&routes.bucket[i]);
	routes.timer.fire = forget_timer;
	routes.ready = true;
}

static void routes_unlock(void) NO_TSA
{
	lock_put(&routes.lock);
}

static struct list *bucket(uint16_t port, uint16_t peer_port)
{
	uint32_t key = (uint32_t)port << 16 | peer_port;

	return &routes.bucket[key * 2654435761u >> 22];
}
_Static_assert(BUCKETS == 1 << (32 - 22), "bucket()");

static struct route *find(uint16_t port, uint16_t peer_port)
{
	struct route *r;

	list_for_each(r, bucket(port, peer_port), node)
		if (r->port == port && r->peer_port == peer_port)
			return r;
	return NULL;
}

static void route_free(struct route *r)
{
	list_del(&r->node);
	routes.n--;
	free(r);
}

/* Routes that are NONE no more are as if they had never been. */
static void forget_timer(struct loop_timer *t)
{
	uint64_t now = loop_now(), next = 0;
	struct route *r, *tmp;
	bool again = false;

	routes_lock();
	for (int i = 0; i < BUCKETS; i++)
		list_for_each_safe(r, tmp, &routes.bucket[i], node) {
			if (r->state != ROUTE_NONE)
				continue;
			if (r->until > now) {
				next = next && next < r->until ? next : r->until;
				continue;
			}
			again |= r->again;
			route_free(r);
		}
	routes.timing = next;
	if (next)
		loop_timer_set(t, next);
	routes_unlock();
	if (again)
		ud_paths_changed();
}

static bool is_passing(int err)
{
	return err == -EAGAIN || err == -ENOMEM || err == -EMFILE || err == -ENFILE ||
	       err == -ENOBUFS || err == -EPIPE;
}

/* routes.lock is held. */
static void set_none(struct route *r, int err)
{
	uint64_t ms = is_passing(err) ? AGAIN_MS : NONE_MS;

	log_debug("datagrams from port %u to port %u do not go by shared memory: %s",
		  r->port, r->peer_port, strerror(-err));
	r->state = ROUTE_NONE;
	r->again = is_passing(err);
	r->until = loop_now() + ms * MSEC;
	if (!routes.timing)
		loop_timer_set(&routes.timer, loop_now() + AGAIN_MS * MSEC);
	routes.timing = true;
}

/* ---- finding the link, asking ----------------------------------------------------- */

static void link_found(struct link_wait *w, struct link *l, int err)
{
	struct route *r = container_of(w, struct route, wait);
	struct rec_link m = { .type = LINK_DGRAMS, .src_qpn = (uint32_t)r->port << 8,
			      .dst_qpn = (uint32_t)r->peer_port << 8 };

	routes_lock();
	if (l) {
		r->l = l; /* the caller's reference */
		r->state = ROUTE_ASKED;
	} else {
		set_none(r, err);
	}
	routes_unlock();
	if (!l)
		return;
	err = link_send(l, &m);
	if (!err)
		return;
	routes_lock();
	r->l = NULL;
	set_none(r, err);
	routes_unlock();
	link_put(l);
}

static void find_run(struct loop_work *w)
{
	struct route *r = container_of(w, struct route, work);

	link_find_port(r->peer_port, &r->wait);
}

/* routes.lock is held. */
static void begin(uint16_t port, uint16_t peer_port)
{
	struct route *r = routes.n < ROUTES_MAX ? calloc(1, sizeof(*r)) : NULL;

	if (!r)
		return;
	r->port = port;
	r->peer_port = peer_port;
	r->work.run = find_run;
	r->wait.done = link_found;
	list_add_head(bucket(port, peer_port), &r->node);
	routes.n++;
	loop_post(&r->work);
}

struct link *dgram_route_find(uint16_t port, uint16_t peer_port)
{
	struct link *l = NULL;
	struct route *r;

	routes_lock();
	r = find(port, peer_port);
	if (r && r->state == ROUTE_GOOD) {
		l = r->l;
		link_get(l);
	} else if (!r) {
		begin(port, peer_port);
	}
	routes_unlock();
	return l;
}

/* ---- the answer ------------------------------------------------------------------- */

/* Pollers of the port's QPs receive from the link before it is used: they run what waits
 * for room in it. */
static void answered_run(struct loop_work *w)
{
	struct route *r = container_of(w, struct route, work);
	struct link *l;

	routes_lock();
	l = r->l;
	if (l)
		link_get(l);
	routes_unlock();
	if (l && !r->err)
		dgram_cq_join(l, r->port);
	routes_lock();
	if (!l) {
		route_free(r); /* the link has ended meanwhile */
	} else if (r->err) {
		r->l = NULL;
		set_none(r, r->err);
		link_put(l);
	} else {
		log_debug("datagrams from port %u to port %u go by shared memory from now on",
			  r->port, r->peer_port);
		r->state = ROUTE_GOOD;
	}
	routes_unlock();
	if (l)
		link_put(l);
	ud_paths_changed();
}

void dgram_answered(struct link *l, const struct rec_link *m)
{
	struct route *r;

	lock_assert_held(&l->rx_lock);
	routes_lock();
	r = find(qpn_port(m->src_qpn), qpn_port(m->dst_qpn));
	if (r && r->state == ROUTE_ASKED && r->l == l) {
		r->state = ROUTE_ANSWERED;
		r->err = m->err < 0 && m->err > -MAX_ERRNO ? m->err :
			 m->err				   ? -EPROTO :
							     0;
		r->work.run = answered_run;
		loop_post(&r->work);
	}
	routes_unlock();
}

/* ---- changes ---------------------------------------------------------------------- */

void dgram_route_known(uint16_t peer_port)
{
	struct route *r, *tmp;
	bool any = false;

	routes_lock();
	for (int i = 0; i < BUCKETS; i++)
		list_for_each_safe(r, tmp, &routes.bucket[i], node)
			if (r->state == ROUTE_NONE && r->peer_port == peer_port) {
				route_free(r);
				any = true;
			}
	routes_unlock();
	if (any)
		ud_paths_changed();
}

void dgram_routes_link_gone(struct link *l)
{
	struct route *r, *tmp;
	bool any = false;

	routes_lock();
	for (int i = 0; i < BUCKETS; i++)
		list_for_each_safe(r, tmp, &routes.bucket[i], node) {
			if (r->l != l)
				continue;
			any = true;
			r->l = NULL;
			link_put(l); /* the caller has another reference */
			if (r->state != ROUTE_ANSWERED)
				route_free(r);
		}
	routes_unlock();
	if (any)
		ud_paths_changed();
}
