/* SPDX-License-Identifier: BSD-2-Clause */
/* Design notes
 *
 * One round of the thread: sleep in epoll, call ready() of what woke it, fire the timers
 * that are due, run the posted work, call done() of the fds that were deleted. Nothing
 * frees a loop_fd before its done(), and done() runs at the end of a round: the pointers
 * that epoll_wait returned are valid for the whole round.
 *
 * Before it sleeps, the thread stores under the lock that it sleeps and until when. A
 * caller that gives it something to do earlier clears that mark and writes to the
 * eventfd: at most one write per sleep, none while it works.
 *
 * Timers are a pairing heap. A timer that moves to a later time keeps its place in the
 * heap, and gets the right one when that place is reached: so re-arming a timeout for
 * every message costs a store. */
#include "base/loop.h"
#include "base/fdset.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/state.h"
#include "base/sys.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define EVENTS_PER_ROUND 64
#define NEVER UINT64_MAX
#define EXIT_TRIES 10000 /* the lock is held for less, unless by the thread that exits */

static struct {
	struct lock lock; /* leaf: nothing is called with it held */
	bool running GUARDED_BY(lock);
	bool lost GUARDED_BY(lock);	/* its descriptors were closed */
	bool all_lost GUARDED_BY(lock); /* not only the epoll set */
	bool waits GUARDED_BY(lock);	/* the thread is in epoll, or has ended */
	int epfd, wakefd; /* set before the thread starts */
	bool asleep GUARDED_BY(lock);
	uint64_t until GUARDED_BY(lock); /* when the sleep ends by itself */
	struct loop_timer *timers GUARDED_BY(lock);
	unsigned ntimers GUARDED_BY(lock);
	struct loop_work *work, **work_tail GUARDED_BY(lock);
	struct list dead GUARDED_BY(lock); /* loop_fds that wait for done() */
} loop PROCESS_STATE = {
	.lock = LOCK_INIT,
	.epfd = -1,
	.wakefd = -1,
	.work_tail = &loop.work,
	.dead = LIST_INIT(loop.dead),
};

static _Thread_local bool in_loop __attribute__((tls_model("initial-exec")));
static void (*on_lost)(void); /* set before the loop is started */

/* Returns whether the caller is the first to notice, and has to tell_lost(). */
static bool lost_locked(void) REQUIRES(loop.lock)
{
	if (loop.lost || !loop.running)
		return false;
	loop.lost = true;
	loop.all_lost = fcntl(loop.epfd, F_GETFD) < 0 && fcntl(loop.wakefd, F_GETFD) < 0;
	return true;
}

static void *lost_main(void *arg)
{
	(void)arg;
	if (on_lost)
		on_lost();
	return NULL;
}

/* After lost_locked(). In another thread, as the caller may hold any lock but the
 * loop's. */
static void tell_lost(void)
{
	int err;

	log_error("the descriptors of the progress thread were closed: the device fails");
	err = thread_start("anyrdma-lost", lost_main, NULL);
	if (err)
		log_error("no thread to tell of it: %s", strerror(-err));
}

static void lost(void)
{
	bool first;

	lock_get(&loop.lock);
	first = lost_locked();
	lock_put(&loop.lock);
	if (first)
		tell_lost();
}

bool loop_here(void)
{
	return in_loop;
}

/* True if the thread sleeps past `when`: then the caller calls wake(), after unlocking,
 * as else the thread would wake up only to wait for the lock. */
static bool must_wake_locked(uint64_t when) REQUIRES(loop.lock)
{
	if (!loop.asleep || when >= loop.until)
		return false;
	loop.asleep = false;
	return true;
}

static void wake(void)
{
	uint64_t one = 1;

	if (sys_write(loop.wakefd, &one, sizeof(one)) < 0 && errno != EAGAIN)
		lost();
}

/* ---- timers ---- */

static struct loop_timer *heap_meld(struct loop_timer *a, struct loop_timer *b)
{
	struct loop_timer *t;

	if (!a || !b)
		return a ? a : b;
	if (b->key < a->key) {
		t = a;
		a = b;
		b = t;
	}
	b->prev = a;
	b->next = a->child;
	if (b->next)
		b->next->prev = b;
	a->child = b;
	return a;
}

/* Melds a list of siblings into one heap: pairs left to right, then the pairs
 * right to left. The pairs are kept as a stack through next. */
static struct loop_timer *heap_merge_pairs(struct loop_timer *t)
{
	struct loop_timer *pairs = NULL, *root = NULL, *a, *b;

	while (t) {
		a = t;
		b = a->next;
		t = b ? b->next : NULL;
		a->next = a->prev = NULL;
		if (b)
			b->next = b->prev = NULL;
		a = heap_meld(a, b);
		a->next = pairs;
		pairs = a;
	}
	while (pairs) {
		a = pairs;
		pairs = a->next;
		a->next = NULL;
		root = heap_meld(root, a);
	}
	return root;
}

static void heap_add_locked(struct loop_timer *t, uint64_t key) REQUIRES(loop.lock)
{
	t->key = key;
	t->child = t->next = t->prev = NULL;
	loop.timers = heap_meld(loop.timers, t);
}

static void heap_del_locked(struct loop_timer *t) REQUIRES(loop.lock)
{
	struct loop_timer *below = heap_merge_pairs(t->child);

	t->child = NULL;
	if (loop.timers == t) {
		loop.timers = below;
		return;
	}
	/* prev is the parent of a first child, else the elder sibling. */
	if (t->prev->child == t)
		t->prev->child = t->next;
	else
		t->prev->next = t->next;
	if (t->next)
		t->next->prev = t->prev;
	loop.timers = heap_meld(loop.timers, below);
}

/* Takes a timer that is due at `now` off the heap, or returns NULL. */
static struct loop_timer *timer_due_locked(uint64_t now) REQUIRES(loop.lock)
{
	struct loop_timer *t;

	while ((t = loop.timers) && t->key <= now) {
		heap_del_locked(t);
		if (t->when > now) {
			heap_add_locked(t, t->when);
			continue;
		}
		t->pending = false;
		loop.ntimers--;
		return t;
	}
	return NULL;
}

static void run_timers(void)
{
	struct loop_timer *t;
	uint64_t now = loop_now();
	unsigned budget;

	lock_get(&loop.lock);
	/* A timer that arms itself for the past must not starve the rest. */
	budget = loop.ntimers;
	while (budget-- && (t = timer_due_locked(now))) {
		lock_put(&loop.lock);
		t->fire(t);
		lock_get(&loop.lock);
	}
	lock_put(&loop.lock);
}

/* ---- the thread ---- */

static void run_queued(void)
{
	struct loop_work *w, *next;

	lock_get(&loop.lock);
	w = loop.work;
	loop.work = NULL;
	loop.work_tail = &loop.work;
	for (; w; w = next) {
		next = w->next;
		w->queued = false;
		lock_put(&loop.lock);
		w->run(w);
		lock_get(&loop.lock);
	}
	lock_put(&loop.lock);
}

/* Twice: what the work of this round has posted need not wait for another. */
static void run_work(void)
{
	run_queued();
	run_queued();
}

static void run_dead(void)
{
	struct list *node;
	struct loop_fd *lf;
	void (*done)(struct loop_fd *lf);

	lock_get(&loop.lock);
	while ((node = list_pop(&loop.dead))) {
		lf = list_entry(node, struct loop_fd, link);
		done = lf->done;
		lock_put(&loop.lock);
		done(lf);
		lock_get(&loop.lock);
	}
	lock_put(&loop.lock);
}

static void run_ready(const struct epoll_event *ev)
{
	struct loop_fd *lf = ev->data.ptr;
	uint32_t revents;
	uint64_t count;

	if (!lf) {
		if (read(loop.wakefd, &count, sizeof(count)) < 0 && errno != EAGAIN)
			log_error("progress thread cannot read its eventfd: %m");
		return;
	}
	lock_get(&loop.lock);
	revents = ev->events & (lf->events | EPOLLERR | EPOLLHUP);
	if (lf->gone || !lf->events)
		revents = 0;
	lock_put(&loop.lock);
	if (revents)
		lf->ready(lf, revents);
}

static int wait_ns(struct epoll_event *ev, uint64_t ns)
{
	static bool no_pwait2; /* kernels before 5.11 and strict sandboxes */
	struct timespec ts = { (time_t)(ns / SEC), (long)(ns % SEC) };
	int n;

	if (!no_pwait2) {
		n = epoll_pwait2(loop.epfd, ev, EVENTS_PER_ROUND,
				 ns == NEVER ? NULL : &ts, NULL);
		if (n >= 0 || (errno != ENOSYS && errno != EPERM))
			return n;
		no_pwait2 = true;
	}
	if (ns != NEVER)
		ns = (ns + MSEC - 1) / MSEC;
	return epoll_wait(loop.epfd, ev, EVENTS_PER_ROUND,
			  ns == NEVER ? -1 : (int)(ns < INT_MAX ? ns : INT_MAX));
}

/* -ENODEV: the loop belongs to an earlier generation, and is not to be touched. */
static int loop_sleep(struct epoll_event *ev, uint32_t generation)
{
	uint64_t until, now = 0;
	int n;

	lock_get(&loop.lock);
	until = loop.timers ? loop.timers->key : NEVER;
	if (loop.work || !list_empty(&loop.dead))
		until = 0;
	loop.until = until;
	loop.asleep = until != 0;
	loop.waits = true;
	lock_put(&loop.lock);

	if (until && until != NEVER) {
		now = loop_now();
		until = until > now ? until - now : 0;
	}
	n = wait_ns(ev, until);
	if (n < 0)
		n = -errno;
	if (state_is_old(generation))
		return -ENODEV;
	lock_get(&loop.lock);
	loop.asleep = false;
	if (loop.lost)
		n = -ENODEV;
	else if (n >= 0 || n == -EINTR)
		loop.waits = false;
	lock_put(&loop.lock);
	return n;
}

static void *loop_main(void *arg)
{
	struct epoll_event ev[EVENTS_PER_ROUND];
	int n;

	in_loop = true;
	for (;;) {
		n = loop_sleep(ev, (uint32_t)(uintptr_t)arg);
		if (n < 0 && n != -EINTR) {
			if (n != -ENODEV)
				lost();
			return NULL;
		}
		for (int i = 0; i < n; i++)
			run_ready(&ev[i]);
		run_timers();
		run_work();
		run_dead();
	}
}

static int start_locked(void) REQUIRES(loop.lock)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int err;

	if (loop.lost)
		return -ENODEV;
	if (loop.running)
		return 0;
	loop.epfd = fdset_take(epoll_create1(EPOLL_CLOEXEC));
	err = loop.epfd < 0 ? -errno : 0;
	if (!err) {
		loop.wakefd = fdset_take(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
		err = loop.wakefd < 0 ? -errno : 0;
	}
	if (!err && epoll_ctl(loop.epfd, EPOLL_CTL_ADD, loop.wakefd, &ev))
		err = -errno;
	if (!err)
		err = thread_start("anyrdma", loop_main,
				   (void *)(uintptr_t)state_generation());
	if (err) {
		log_error("cannot start the progress thread: %s", strerror(-err));
		fdset_close(loop.wakefd);
		fdset_close(loop.epfd);
		loop.epfd = loop.wakefd = -1;
		return err;
	}
	loop.running = true;
	return 0;
}

void loop_child(void)
{
	in_loop = false;
}

/* ---- descriptors ---- */

/* Brings the epoll set from lf->events to events. -ENODEV: there is none any more. */
static int fd_change_locked(struct loop_fd *lf, uint32_t events) REQUIRES(loop.lock)
{
	struct epoll_event ev = { .events = events, .data.ptr = lf };
	int op = EPOLL_CTL_MOD;

	if (events == lf->events)
		return 0;
	if (!events)
		op = EPOLL_CTL_DEL;
	else if (!lf->events)
		op = EPOLL_CTL_ADD;
	if (epoll_ctl(loop.epfd, op, lf->fd, &ev)) {
		int err = -errno;

		if (err == -EBADF && fcntl(loop.epfd, F_GETFD) < 0 && lost_locked())
			tell_lost();
		return loop.lost ? -ENODEV : err;
	}
	lf->events = events;
	return 0;
}

int loop_fd_add(struct loop_fd *lf)
{
	uint32_t events = lf->events;
	int err;

	lock_get(&loop.lock);
	err = start_locked();
	if (!err) {
		lf->gone = false;
		lf->events = 0;
		err = fd_change_locked(lf, events);
		if (err)
			lf->events = events;
	}
	lock_put(&loop.lock);
	if (err && err != -ENODEV)
		log_info("descriptor %d cannot be watched: %s", lf->fd, strerror(-err));
	return err;
}

int loop_fd_mod(struct loop_fd *lf, uint32_t events)
{
	int err = -ENODEV;

	lock_get(&loop.lock);
	if (loop.running && !loop.lost && !lf->gone)
		err = fd_change_locked(lf, events);
	lock_put(&loop.lock);
	return err;
}

void loop_fd_del(struct loop_fd *lf, void (*done)(struct loop_fd *lf))
{
	bool sleeps = false;

	lock_get(&loop.lock);
	if (loop.running && !loop.lost && !lf->gone) {
		if (fd_change_locked(lf, 0) && !loop.lost)
			log_error("descriptor %d was closed under the progress "
				  "thread: %m", lf->fd);
		lf->events = 0;
		lf->gone = true;
		lf->done = done;
		if (done) {
			list_add_tail(&loop.dead, &lf->link);
			sleeps = must_wake_locked(0);
		}
	}
	lock_put(&loop.lock);
	if (sleeps)
		wake();
}

/* ---- timers and work, the public half ---- */

bool loop_timer_set(struct loop_timer *t, uint64_t when)
{
	bool fresh = false, sleeps = false;

	lock_get(&loop.lock);
	if (!start_locked()) {
		fresh = !t->pending;
		t->when = when;
		if (!fresh && when < t->key)
			heap_del_locked(t);
		if (fresh || when < t->key) {
			heap_add_locked(t, when);
			sleeps = must_wake_locked(when);
		}
		loop.ntimers += fresh;
		t->pending = true;
	}
	lock_put(&loop.lock);
	if (sleeps)
		wake();
	return fresh;
}

bool loop_timer_stop(struct loop_timer *t)
{
	bool was;

	lock_get(&loop.lock);
	was = t->pending && loop.running && !loop.lost;
	if (was) {
		heap_del_locked(t);
		t->pending = false;
		loop.ntimers--;
	}
	lock_put(&loop.lock);
	return was;
}

static void work_add_locked(struct loop_work *w) REQUIRES(loop.lock)
{
	w->queued = true;
	w->next = NULL;
	*loop.work_tail = w;
	loop.work_tail = &w->next;
}

bool loop_post(struct loop_work *w)
{
	bool fresh = false, sleeps = false;

	lock_get(&loop.lock);
	if (!start_locked() && !w->queued) {
		fresh = true;
		work_add_locked(w);
		sleeps = must_wake_locked(0);
	}
	lock_put(&loop.lock);
	if (sleeps)
		wake();
	return fresh;
}

/* ---- the end of a loop whose descriptors were closed ---- */

void loop_on_lost(void (*fn)(void))
{
	on_lost = fn;
}

bool loop_check(void)
{
	bool first = false, fine;

	lock_get(&loop.lock);
	if (loop.running && (fcntl(loop.epfd, F_GETFD) < 0 || fcntl(loop.wakefd, F_GETFD) < 0))
		first = lost_locked();
	fine = !loop.lost;
	lock_put(&loop.lock);
	if (first)
		tell_lost();
	return fine;
}

bool loop_lost(bool *all)
{
	bool over;

	lock_get(&loop.lock);
	*all = loop.all_lost;
	over = loop.lost && loop.waits;
	lock_put(&loop.lock);
	return over;
}

/* ---- exit ---- */

static struct {
	struct lock lock; /* nobody else has it who may be interrupted by exit() */
	struct cond cond;
	bool done GUARDED_BY(lock);
	void (*run)(void);
	struct loop_work work;
} at_exit PROCESS_STATE = { .lock = LOCK_INIT };

static void run_at_exit(struct loop_work *w)
{
	(void)w;
	at_exit.run();
	lock_get(&at_exit.lock);
	at_exit.done = true;
	cond_broadcast(&at_exit.cond);
	lock_put(&at_exit.lock);
}

/* False: the loop does not run, or its lock is not to be had. */
static bool post_at_exit(void)
{
	bool sleeps = false, posted;

	for (int tries = 0; !lock_try(&loop.lock); tries++) {
		if (tries == EXIT_TRIES)
			return false;
		cpu_relax();
	}
	posted = loop.running && !loop.lost && !in_loop;
	if (posted) {
		work_add_locked(&at_exit.work);
		sleeps = must_wake_locked(0);
	}
	lock_put(&loop.lock);
	if (sleeps)
		wake();
	return posted;
}

void loop_run_at_exit(void (*run)(void), uint64_t ns)
{
	uint64_t until = loop_now() + ns;
	struct timespec ts = { (time_t)(until / SEC), (long)(until % SEC) };

	at_exit.run = run;
	at_exit.work.run = run_at_exit;
	if (!post_at_exit())
		return;
	lock_get(&at_exit.lock);
	while (!at_exit.done && !lock_timedwait(&at_exit.lock, &at_exit.cond, &ts))
		;
	lock_put(&at_exit.lock);
}
