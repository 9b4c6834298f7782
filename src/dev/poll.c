/* SPDX-License-Identifier: BSD-2-Clause */
/* Design notes. A source is in exactly one group, that of its QP's receive CQ
 * (dev_qp.poll_cq), so that changing one descriptor moves all sources of a CQ between the
 * loop thread and a poller. A send CQ that differs from the receive CQ has no sources:
 * its group links to those that have.
 *
 * Locks (order: dev.h). The loop thread, and all that change a group, wait for its lock.
 * Pollers only try it, so that polls of two CQs that link to each other cannot deadlock.
 * leases.lock is inside of the groups' locks. */
#include "dev/poll.h"

#include "base/fdset.h"
#include "base/job.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/state.h"
#include "base/sys.h"
#include "dev/verbs.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

enum {
	DIRECT_MAX = 4, /* up to so many descriptors are read without asking epoll */
	LEASE_AFTER = 8, /* polls in a row: an event-driven program has one or two */
	EVENTS = 32,
	/* A poller that spins may keep the peer from running. After so many idle polls it
	 * yields the processor, once in so many polls. */
	YIELD_AFTER = 256,
	YIELD_EACH = 16,
	/* While rings bring what comes, a poller asks the kernel for descriptors, which is a
	 * system call each, once in so many polls: microseconds. A poll that has received
	 * from a ring takes longer, and counts as several. */
	FDS_REST = 256,
	FDS_REST_MOVED = 16,
};

/* A program that spins on memory between polls may wait for milliseconds until its lease
 * ends. So a lease that ends with something to receive forbids the next one for a time.
 * The time doubles each time this happens, and halves after a lease that was renewed. It
 * is a time, not a number of polls: a program whose peer waits in the same way polls any
 * number of times. */
#define FORBID_MIN (16 * MSEC)
#define FORBID_MAX (4 * SEC)
#define LINGER (MSEC / 50)
#define LINGER_MAX (MSEC / 2) /* other groups wait so long */
#define EXIT_WAIT (20 * MSEC)
/* The timer runs so often: an acknowledgement that a poller has left to its next poll
 * leaves in this time. Who polls it asks less often, up to: */
#define LEASE_TICK (2 * MSEC)
#define LEASE_CHECK_MAX (8 * MSEC)

struct poll_link {
	struct poll_group *group;
	unsigned count; /* QPs */
};

struct poll_group {
	struct lock lock;
	struct dev_cq *cq;
	struct list sources; /* sources with a descriptor, n of them */
	_Atomic unsigned n;
	struct list rings; /* sources without, nrings of them */
	_Atomic unsigned nrings;
	struct list again; /* sources of either kind with poll_source.again set */
	int epfd;	   /* -1 until the first source with a descriptor */
	struct loop_fd lf; /* epfd in the loop */
	bool in_loop;	   /* lf was added (leases.lock) */
	struct poll_link *to, *from; /* groups that polls of this one run; the reverse */
	unsigned nto, nfrom;
	atomic_int refs; /* the CQ's, the loop's */

	_Atomic bool leased;  /* written under leases.lock */
	_Atomic bool left;    /* `again` was not empty after the last poll (lock) */
	_Atomic uint32_t polls;
	uint32_t unleased_polls; /* polls in a row without a lease (lock) */
	uint32_t idle_polls;  /* polls in a row that received and sent nothing (lock) */
	uint32_t fds_rest;    /* polls until descriptors are read again (lock) */
	bool rings_last;      /* the last that moved was a ring (lock) */
	uint64_t forbid;      /* no lease was allowed for so long, the last time (lock) */
	uint64_t forbid_until; /* (lock) */
	_Atomic uint32_t renewed; /* times that leases_check() let the lease go on */
	uint32_t polls_checked; /* leases.lock: `polls` at the last leases_check() */
	struct list lease;    /* leases.lock: checked by the timer, as it is leased, or
			       * as a poller has left sources to be run again */
	struct list back;     /* for leases_check() and run_left() alone: the loop thread */
};

static void leases_check(struct loop_timer *t);

static struct {
	struct lock lock;
	struct list list;
	struct loop_timer timer;
	uint64_t interval; /* from one check of who polls to the next, */
	uint64_t ticks;	   /* of which so many are left */
} leases PROCESS_STATE = { .lock = LOCK_INIT,
	     .list = LIST_INIT(leases.list),
	     .timer = { .fire = leases_check } };

static void group_put(struct poll_group *g)
{
	if (atomic_fetch_sub(&g->refs, 1) != 1)
		return;
	lock_fini(&g->lock);
	free(g->to);
	free(g->from);
	free(g);
}

static bool run_source(struct poll_group *g, struct poll_source *s, bool by_thread)
{
	bool moved = s->progress(s, by_thread);

	if (s->again && !list_linked(&s->again_link))
		list_add_tail(&g->again, &s->again_link);
	else if (!s->again)
		list_del(&s->again_link);
	return moved;
}

/* Runs sources whose descriptors are ready. True if one is in the middle of much data. */
static bool run_ready(struct poll_group *g, bool by_thread)
{
	struct epoll_event ev[EVENTS];
	int n = sys_epoll_wait(g->epfd, ev, EVENTS, 0);
	bool bulk = false;

	for (int i = 0; i < n; i++) {
		struct poll_source *s = ev[i].data.ptr;

		run_source(g, s, by_thread);
		bulk |= s->bulk;
	}
	return bulk;
}

static void run_again(struct poll_group *g, bool by_thread)
{
	struct poll_source *s, *tmp;

	list_for_each_safe(s, tmp, &g->again, again_link)
		run_source(g, s, by_thread);
}

static bool run_rings(struct poll_group *g, bool by_thread)
{
	struct poll_source *s, *tmp;
	bool moved = false;

	list_for_each_safe(s, tmp, &g->rings, link)
		moved |= run_source(g, s, by_thread);
	return moved;
}

static bool run_fds(struct poll_group *g, bool by_thread)
{
	struct poll_source *s, *tmp;
	bool moved = false;

	list_for_each_safe(s, tmp, &g->sources, link)
		moved |= run_source(g, s, by_thread);
	return moved;
}

static bool run_all(struct poll_group *g, bool by_thread)
{
	bool moved = run_rings(g, by_thread);

	return run_fds(g, by_thread) || moved;
}

/* What descriptors have left. Rings were run already. */
static void run_again_fds(struct poll_group *g)
{
	struct poll_source *s, *tmp;

	list_for_each_safe(s, tmp, &g->again, again_link)
		if (s->fd >= 0)
			run_source(g, s, false);
}

static void lease_rings(struct poll_group *g, bool leased)
{
	struct poll_source *s;

	lock_assert_held(&g->lock);
	list_for_each(s, &g->rings, link)
		s->lease(s, leased);
}

/* A large message arrives in pieces, microseconds apart. If the thread slept in between,
 * each piece would cost the sender a wake-up (an interrupt to another core), a quarter of
 * its time in a virtual machine. */
static void linger(struct poll_group *g)
{
	uint64_t now = loop_now(), stop = now + LINGER_MAX, until = now + LINGER;

	for (; now < until && now < stop; now = loop_now())
		if (run_ready(g, true))
			until = now + LINGER;
}

static void lf_ready(struct loop_fd *lf, uint32_t revents)
{
	struct poll_group *g = container_of(lf, struct poll_group, lf);

	(void)revents;
	lock_get(&g->lock);
	if (g->epfd >= 0) {
		run_again(g, true);
		if (run_ready(g, true))
			linger(g);
	}
	lock_put(&g->lock);
}

/* ---- leases ---------------------------------------------------------------- */

static bool any_armed(const struct poll_group *g)
{
	if (g->cq->armed != CQ_IDLE)
		return true;
	for (unsigned i = 0; i < g->nfrom; i++)
		if (g->from[i].group->cq->armed != CQ_IDLE)
			return true;
	return false;
}

/* The timer will check g. */
static void lease_watch(struct poll_group *g)
{
	lock_assert_held(&leases.lock);
	if (list_linked(&g->lease))
		return;
	g->polls_checked = g->polls - 1;
	if (list_empty(&leases.list)) {
		leases.interval = MSEC;
		leases.ticks = 1;
		loop_timer_set(&leases.timer, loop_now() + MSEC);
	}
	list_add_tail(&leases.list, &g->lease);
}

static void lease_end(struct poll_group *g)
{
	lock_assert_held(&leases.lock);
	list_del(&g->lease);
	if (!g->leased)
		return;
	g->leased = false;
	if (g->in_loop)
		loop_fd_mod(&g->lf, EPOLLIN);
}

/* A poller that computes between two polls, or polls rarely, keeps its lease: what it has
 * left, others wait for. */
static void run_owed(struct list *owed)
{
	struct poll_group *g;
	struct list *n;

	while ((n = list_pop(owed))) {
		g = list_entry(n, struct poll_group, back);
		lock_get(&g->lock);
		run_again(g, true);
		g->left = !list_empty(&g->again);
		lock_put(&g->lock);
		group_put(g);
	}
}

/* Was it polled since the last check? */
static bool lease_renew(struct poll_group *g)
{
	uint32_t polls = atomic_load_explicit(&g->polls, memory_order_relaxed);

	lock_assert_held(&leases.lock);
	if (polls == g->polls_checked)
		return false;
	g->polls_checked = polls;
	g->renewed++;
	return true;
}

/* Divides the groups that are watched into those whose lease has ended now, and those that
 * owe something. */
static void leases_sort(struct list *back, struct list *owed)
{
	struct poll_group *g, *tmp;
	bool check;

	lock_get(&leases.lock);
	check = !--leases.ticks;
	list_for_each_safe(g, tmp, &leases.list, lease) {
		bool ends = check && !lease_renew(g);

		if (!ends && !atomic_load_explicit(&g->left, memory_order_relaxed))
			continue;
		if (ends)
			lease_end(g);
		atomic_fetch_add(&g->refs, 1);
		list_add_tail(ends ? back : owed, &g->back);
	}
	if (check && leases.interval < LEASE_CHECK_MAX)
		leases.interval *= 2;
	if (check)
		leases.ticks = leases.interval / LEASE_TICK;
	if (!list_empty(&leases.list))
		loop_timer_set(&leases.timer, loop_now() + LEASE_TICK);
	lock_put(&leases.lock);
}

/* The timer: groups that were not polled since the last check go back to the loop
 * thread. */
static void leases_check(struct loop_timer *t)
{
	struct list back = LIST_INIT(back), owed = LIST_INIT(owed), *n;
	struct poll_group *g;

	(void)t;
	leases_sort(&back, &owed);
	run_owed(&owed);
	while ((n = list_pop(&back))) { /* does what the poller has left */
		g = list_entry(n, struct poll_group, back);
		lock_get(&g->lock);
		if (!g->leased)
			lease_rings(g, false);
		if (run_all(g, true)) {
			g->forbid = g->forbid < FORBID_MIN	   ? FORBID_MIN :
				    g->forbid < FORBID_MAX / 2 ? 2 * g->forbid :
								     FORBID_MAX;
			g->forbid_until = loop_now() + g->forbid;
		}
		g->unleased_polls = 0;
		lock_put(&g->lock);
		group_put(g);
	}
}

static void lease_begin(struct poll_group *g)
{
	lock_assert_held(&g->lock);
	if (any_armed(g))
		return;
	lock_get(&leases.lock);
	if (!g->leased) {
		g->leased = true;
		if (g->renewed > 4)
			g->forbid /= 2;
		g->renewed = 0;
		if (g->in_loop)
			loop_fd_mod(&g->lf, 0);
		lease_watch(g);
	}
	lock_put(&leases.lock);
	lease_rings(g, true);
}

/* A poller leaves sources to be run again, and may never poll again. */
static void watch_again(struct poll_group *g)
{
	lock_assert_held(&g->lock);
	if (any_armed(g)) {
		run_again(g, true);
		return;
	}
	lock_get(&leases.lock);
	lease_watch(g);
	lock_put(&leases.lock);
}

/* In the loop thread: runs what pollers have left to be run again. */
static void run_left(void)
{
	struct list left = LIST_INIT(left), *n;
	struct poll_group *g;

	lock_get(&leases.lock);
	list_for_each(g, &leases.list, lease) {
		atomic_fetch_add(&g->refs, 1);
		list_add_tail(&left, &g->back);
	}
	lock_put(&leases.lock);
	while ((n = list_pop(&left))) {
		g = list_entry(n, struct poll_group, back);
		lock_get(&g->lock);
		run_again(g, true);
		lock_put(&g->lock);
		group_put(g);
	}
}

/* exit() waits for no peer, but acknowledgements that can be sent at once are sent: the
 * peer should learn that its last message was received. A signal handler may have called
 * exit() in a thread that holds any of our locks. So the loop thread sends them, and is
 * waited for a moment: it may need such a lock. */
__attribute__((destructor)) static void run_at_exit(void)
{
	bool some = true;

	if (lock_try(&leases.lock)) {
		some = !list_empty(&leases.list);
		lock_put(&leases.lock);
	}
	if (some)
		loop_run_at_exit(run_left, EXIT_WAIT);
}

/* ---- polling ---------------------------------------------------------------- */

/* A leased group that has rings alone, or whose descriptors are not asked now, and no ring
 * has anything to do. */
static inline bool all_idle(struct poll_group *g)
{
	struct poll_source *s;

	if (!atomic_load_explicit(&g->leased, memory_order_relaxed) ||
	    (atomic_load_explicit(&g->n, memory_order_relaxed) && !g->fds_rest) ||
	    !list_empty(&g->again))
		return false;
	list_for_each(s, &g->rings, link)
		if (!s->idle || !s->idle(s))
			return false;
	return true;
}

/* Descriptors are to be asked again after some polls if rings bring what comes. */
static void fds_rest_after(struct poll_group *g, bool rings_moved, bool fds_moved)
{
	lock_assert_held(&g->lock);
	if (rings_moved || fds_moved)
		g->rings_last = !fds_moved;
	if (!g->rings_last || !g->leased)
		g->fds_rest = 0;
	else if (!g->fds_rest)
		g->fds_rest = FDS_REST;
	else if (rings_moved)
		g->fds_rest -= g->fds_rest < FDS_REST_MOVED ? g->fds_rest : FDS_REST_MOVED;
}

/* One pass over the sources. */
static bool run_sources(struct poll_group *g)
{
	unsigned n = atomic_load_explicit(&g->n, memory_order_relaxed);
	bool rings = run_rings(g, false), fds = false;

	lock_assert_held(&g->lock);
	if (g->leased && g->fds_rest) {
		run_again_fds(g);
	} else if (n <= DIRECT_MAX) {
		fds = run_fds(g, false);
	} else {
		run_again(g, false);
		run_ready(g, false);
		fds = true;
	}
	fds_rest_after(g, rings, fds);
	return rings || fds;
}

__attribute__((noinline)) static void run_group(struct poll_group *g)
{
	bool moved, left;

	/* A program that has armed a CQ polls it once more before it sleeps. If this poll
	 * received what has come since, the program would find it and be woken for it all
	 * the same. That is allowed, as on hardware, but should be as rare as there. */
	if (!g->leased && ++g->unleased_polls < LEASE_AFTER && any_armed(g))
		return;
	if (!g->leased && g->unleased_polls >= LEASE_AFTER &&
	    (!g->forbid || loop_now() >= g->forbid_until))
		lease_begin(g);
	job_collect_begin(g->cq);
	moved = run_sources(g);
	job_collect_end();
	g->idle_polls = moved ? 0 : g->idle_polls + 1;
	left = !list_empty(&g->again);
	atomic_store_explicit(&g->left, left, memory_order_relaxed);
	if (left && !g->leased)
		watch_again(g);
}

static inline void poll_group(struct poll_group *g)
{
	if (!atomic_load_explicit(&g->n, memory_order_relaxed) &&
	    !atomic_load_explicit(&g->nrings, memory_order_relaxed))
		return;
	atomic_store_explicit(&g->polls,
			      atomic_load_explicit(&g->polls, memory_order_relaxed) + 1,
			      memory_order_relaxed);
	g->fds_rest -= g->fds_rest > 0;
	if (all_idle(g)) {
		g->idle_polls++;
		cpu_relax(); /* for the sibling of this core, which may run the peer */
	} else {
		run_group(g);
	}
}

void poll_run(struct dev_cq *cq)
{
	struct poll_group *g = cq->group;
	bool yield;

	if (!lock_try(&g->lock))
		return;
	poll_group(g);
	for (unsigned i = 0; i < g->nto; i++) {
		struct poll_group *l = g->to[i].group;

		if (lock_try(&l->lock)) {
			poll_group(l);
			lock_put(&l->lock);
		}
	}
	yield = g->idle_polls > YIELD_AFTER && g->idle_polls % YIELD_EACH == 0;
	lock_put(&g->lock);
	if (job_collected())
		job_run_collected(); /* copies that a message needs */
	else if (yield)
		sched_yield();
}

/* Ends a lease, as a CQ was armed. What pollers have left to be run again is run, since
 * the application is about to sleep. */
static void give_back(struct poll_group *g)
{
	lock_assert_held(&g->lock);
	g->unleased_polls = 0;
	if (g->leased) {
		lock_get(&leases.lock);
		if (g->leased)
			lease_end(g);
		lock_put(&leases.lock);
		lease_rings(g, false);
		run_all(g, true);
	} else {
		lease_rings(g, false);
		run_again(g, true);
	}
}

/* Runs all sources that may have something to do. */
static void run_pending(struct poll_group *g)
{
	lock_assert_held(&g->lock);
	if (g->n <= DIRECT_MAX) {
		run_all(g, true);
		return;
	}
	run_rings(g, true);
	run_ready(g, true);
	run_again(g, true);
}

/* Calls run() for each group that g links to. */
static void each_linked(struct poll_group *g, void (*run)(struct poll_group *g))
{
	for (unsigned i = 0;; i++) {
		struct poll_group *l;

		lock_get(&g->lock);
		l = i < g->nto ? g->to[i].group : NULL;
		if (l)
			atomic_fetch_add(&l->refs, 1);
		lock_put(&g->lock);
		if (!l)
			return;
		lock_get(&l->lock);
		run(l);
		lock_put(&l->lock);
		group_put(l);
	}
}

/* The CQ is armed with its group's lock held, so that the loop thread does not receive
 * anything between that and the end of the call. */
void poll_arm(struct dev_cq *cq, bool solicited_only)
{
	struct poll_group *g = cq->group;

	each_linked(g, run_pending);
	lock_get(&g->lock);
	run_pending(g);
	cq_arm(cq, solicited_only);
	give_back(g);
	lock_put(&g->lock);
	each_linked(g, give_back);
}

/* ---- members ---------------------------------------------------------------- */

static int group_open(struct poll_group *g)
{
	int ret;

	if (g->epfd >= 0)
		return 0;
	g->epfd = fdset_take(epoll_create1(EPOLL_CLOEXEC));
	if (g->epfd < 0)
		return -errno;
	g->lf = (struct loop_fd){ .fd = g->epfd, .events = EPOLLIN, .ready = lf_ready };
	ret = loop_fd_add(&g->lf);
	if (ret) {
		fdset_close(g->epfd);
		g->epfd = -1;
		return ret;
	}
	lock_get(&leases.lock);
	g->in_loop = true;
	if (g->leased) /* for its rings */
		loop_fd_mod(&g->lf, 0);
	lock_put(&leases.lock);
	return 0;
}

int poll_add(struct dev_cq *cq, struct poll_source *s)
{
	struct poll_group *g = cq->group;
	int ret = 0;

	lock_get(&g->lock);
	if (s->fd < 0) {
		s->group = g;
		list_add_tail(&g->rings, &s->link);
		list_init(&s->again_link);
		g->nrings++;
		if (g->leased)
			s->lease(s, true);
		lock_put(&g->lock);
		return 0;
	}
	ret = group_open(g);
	if (!ret) {
		s->group = g;
		s->events = 0;
		list_add_tail(&g->sources, &s->link);
		list_init(&s->again_link);
		g->n++;
	}
	lock_put(&g->lock);
	return ret;
}

void poll_del(struct poll_source *s)
{
	struct poll_group *g = s->group;

	if (!g)
		return;
	lock_get(&g->lock);
	if (list_linked(&s->link)) {
		list_del(&s->link);
		list_del(&s->again_link);
		if (s->fd < 0)
			g->nrings--;
		else
			g->n--;
	}
	if (s->fd >= 0)
		epoll_ctl(g->epfd, EPOLL_CTL_DEL, s->fd, NULL);
	s->group = NULL;
	lock_put(&g->lock);
}

int poll_mod(struct poll_source *s, uint32_t events)
{
	uint32_t old = atomic_exchange(&s->events, events);
	struct poll_group *g = s->group;
	struct epoll_event ev = { .events = events, .data.ptr = s };

	if (!g || old == events)
		return 0;
	if (!epoll_ctl(g->epfd,
		       !events ? EPOLL_CTL_DEL :
		       old     ? EPOLL_CTL_MOD :
				 EPOLL_CTL_ADD,
		       s->fd, &ev))
		return 0;
	s->events = old;
	return -errno;
}

/* ---- CQs and their links ------------------------------------------------------ */

int poll_cq_init(struct dev_cq *cq)
{
	struct poll_group *g = calloc(1, sizeof(*g));

	if (!g)
		return -ENOMEM;
	lock_init(&g->lock);
	list_init(&g->sources);
	list_init(&g->rings);
	list_init(&g->again);
	list_init(&g->lease);
	atomic_init(&g->refs, 1);
	g->epfd = -1;
	g->cq = cq;
	cq->group = g;
	return 0;
}

static void forgotten(struct loop_fd *lf)
{
	struct poll_group *g = container_of(lf, struct poll_group, lf);

	fdset_close(lf->fd);
	group_put(g);
}

void poll_cq_fini(struct dev_cq *cq)
{
	struct poll_group *g = cq->group;

	lock_get(&leases.lock);
	list_del(&g->lease); /* watched without a lease, too: watch_again() */
	g->leased = false;
	lock_put(&leases.lock);
	lock_get(&g->lock);
	g->epfd = -1;
	lock_put(&g->lock);
	if (g->in_loop)
		loop_fd_del(&g->lf, forgotten);
	else
		group_put(g);
	cq->group = NULL;
}

static int link_add(struct poll_link **list, unsigned *n, struct poll_group *g)
{
	struct poll_link *l;

	for (unsigned i = 0; i < *n; i++) {
		if ((*list)[i].group == g) {
			(*list)[i].count++;
			return 0;
		}
	}
	l = realloc(*list, (*n + 1) * sizeof(*l));
	if (!l)
		return -ENOMEM;
	*list = l;
	l[(*n)++] = (struct poll_link){ g, 1 };
	return 0;
}

static void link_del(struct poll_link *list, unsigned *n, struct poll_group *g)
{
	for (unsigned i = 0; i < *n; i++) {
		if (list[i].group != g)
			continue;
		if (!--list[i].count)
			list[i] = list[--*n];
		return;
	}
}

int poll_link(struct dev_cq *send_cq, struct dev_cq *recv_cq)
{
	struct poll_group *a = send_cq->group, *b = recv_cq->group;
	int ret;

	if (a == b)
		return 0;
	lock_get(&a->lock);
	ret = link_add(&a->to, &a->nto, b);
	lock_put(&a->lock);
	if (ret)
		return ret;
	lock_get(&b->lock);
	ret = link_add(&b->from, &b->nfrom, a);
	lock_put(&b->lock);
	if (ret) {
		lock_get(&a->lock);
		link_del(a->to, &a->nto, b);
		lock_put(&a->lock);
	}
	return ret;
}

void poll_unlink(struct dev_cq *send_cq, struct dev_cq *recv_cq)
{
	struct poll_group *a = send_cq->group, *b = recv_cq->group;

	if (a == b)
		return;
	lock_get(&a->lock);
	link_del(a->to, &a->nto, b);
	lock_put(&a->lock);
	lock_get(&b->lock);
	link_del(b->from, &b->nfrom, a);
	lock_put(&b->lock);
}
