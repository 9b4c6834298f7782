/* SPDX-License-Identifier: BSD-2-Clause */
/* The progress thread: one per process, started by the first thing that needs
 * it, all signals blocked. It lives in libibverbs; librdmacm reaches it through
 * dev/interface.h.
 *
 * Callbacks run in that thread with no lock held. They must not block.
 * A forked child has none until it needs one (base/state.h).
 *
 * Lifetimes. An object that embeds a loop_fd, loop_timer or loop_work needs a reference
 * count: a registered fd, a pending timer and a queued work hold one reference each, as
 * the functions below say. */
#ifndef ANYRDMA_BASE_LOOP_H
#define ANYRDMA_BASE_LOOP_H

#include "base/list.h"

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

struct loop_fd {
	int fd;
	uint32_t events; /* EPOLLIN | EPOLLOUT wanted now; level-triggered */
	void (*ready)(struct loop_fd *lf, uint32_t revents);
	/* private to loop.c */
	void (*done)(struct loop_fd *lf);
	bool gone;
	struct list link;
};

/* Starts the thread if there is none. 0 or -errno (EMFILE, ENOMEM, EAGAIN). */
int loop_fd_add(struct loop_fd *lf);

/* Changes the wanted events. events == 0 takes the fd out of the set without
 * forgetting it (so that not even EPOLLHUP is reported). A ready() already on
 * its way may still run once after this returns. */
int loop_fd_mod(struct loop_fd *lf, uint32_t events);

/* Takes the fd out; done(lf) then runs in the loop thread once no ready() can
 * run any more. The caller closes the fd in done() or later, never before
 * calling this. done may be NULL only if lf is never freed. */
void loop_fd_del(struct loop_fd *lf, void (*done)(struct loop_fd *lf));

/* A zeroed timer is not pending. */
struct loop_timer {
	void (*fire)(struct loop_timer *t);
	/* private to loop.c: a node of its pairing heap, so that arming a timer
	 * allocates nothing and cannot fail */
	uint64_t when; /* the time asked for last */
	uint64_t key;  /* place in the heap; <= when, moved up when it is reached */
	struct loop_timer *child, *next, *prev;
	bool pending;
};

/* (Re)arms t to fire at monotonic time `when` (ns). Returns true if it was not
 * pending before (take a reference), false if it only moved, or if there is no
 * loop (the thread could not be started, which is logged). */
bool loop_timer_set(struct loop_timer *t, uint64_t when);

/* Returns true if t was pending and will not fire (drop the reference); false
 * if it was not pending, or fire() is about to run or running. */
bool loop_timer_stop(struct loop_timer *t);

struct loop_work {
	void (*run)(struct loop_work *w);
	/* private to loop.c */
	struct loop_work *next;
	bool queued;
};

/* Runs w->run in the loop thread, soon, in order of posting. Returns true if w
 * was not queued yet (take a reference), false if it already is or if there is
 * no loop; a work may queue itself again from inside run(). */
bool loop_post(struct loop_work *w);

/* For destructors: has the loop thread call run() soon, and waits for its end, at most so
 * many ns. exit() may have been called by a signal handler that has interrupted any
 * function of the library: so no lock of others is waited for. Called once. */
void loop_run_at_exit(void (*run)(void), uint64_t ns);

/* A program may close descriptors that are not its own (closefrom(3), as daemons do).
 * Without its epoll set the loop has ended, and with it the device: fn runs once in a
 * thread of its own, without locks, as soon as it is noticed: by loop_check(), by the
 * thread, or by whoever gives it something to do. From then on the functions above return
 * -ENODEV or do nothing. */
void loop_on_lost(void (*fn)(void));
/* Looks whether the descriptors are there. False: fn has run, or will. */
bool loop_check(void);
/* After fn: true if no callback runs any more, and none will. *all: more than the epoll
 * set was closed. */
bool loop_lost(bool *all);

/* True in the loop thread. */
bool loop_here(void);

/* In a forked child, from the one atfork handler, beside state_renew(): the thread that
 * forked is not the loop thread. */
void loop_child(void);

/* Monotonic time in ns (CLOCK_MONOTONIC). */
static inline uint64_t loop_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

#define MSEC 1000000ull
#define SEC 1000000000ull

#endif
