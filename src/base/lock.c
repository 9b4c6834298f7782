/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/lock.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

_Static_assert(sizeof(time_t) == sizeof(long), "the call takes the kernel's own timespec");

/* 0, or -errno: -EAGAIN if *word is not `seen`. until: absolute, CLOCK_MONOTONIC, or
 * NULL. Does not change errno: callers lock between a call and reading its errno. */
static int futex(_Atomic uint32_t *word, int op, uint32_t n, const struct timespec *until)
{
	int before = errno, ret = 0;

	if (syscall(SYS_futex, word, op, n, until, NULL, FUTEX_BITSET_MATCH_ANY) < 0)
		ret = -errno;
	errno = before;
	return ret;
}

static int futex_wait(_Atomic uint32_t *word, uint32_t seen, const struct timespec *until)
{
	return futex(word, FUTEX_WAIT_BITSET_PRIVATE, seen, until);
}

static void futex_wake(_Atomic uint32_t *word, uint32_t n)
{
	futex(word, FUTEX_WAKE_PRIVATE, n, NULL);
}

#ifndef LOCK_PTHREAD
enum { SPINS = 64 }; /* most locks are free again before a system call could begin */

/* After a sleep the word is set to 2 (somebody may sleep): the thread that woke us does
 * not know whether others sleep, too. */
void lock_sleep_(struct lock *l)
{
	for (int i = 0; i < SPINS; i++) {
		if (!atomic_load_explicit(&l->word, memory_order_relaxed) && lock_raw_try_(l))
			return;
		cpu_relax();
	}
	while (atomic_exchange_explicit(&l->word, 2, memory_order_acquire))
		futex_wait(&l->word, 2, NULL);
}

void lock_wake_(struct lock *l)
{
	futex_wake(&l->word, 1);
}
#endif

void cond_broadcast(struct cond *c)
{
	atomic_fetch_add(&c->seq, 1);
	/* A thread that saw the state before the change has raised `waiting` before it
	 * unlocked. */
	if (atomic_load(&c->waiting))
		futex_wake(&c->seq, INT_MAX);
}

/* A broadcast between the unlock and the sleep changes seq, which the kernel compares. */
NO_TSA static int wait_until(struct lock *l, struct cond *c, const struct timespec *until)
{
	uint32_t seen = atomic_load(&c->seq);
	int ret;

	atomic_fetch_add(&c->waiting, 1);
	lock_put(l);
	ret = futex_wait(&c->seq, seen, until);
	lock_get(l);
	atomic_fetch_sub(&c->waiting, 1);
	return ret == -ETIMEDOUT ? ret : 0;
}

void lock_wait(struct lock *l, struct cond *c)
{
	wait_until(l, c, NULL);
}

int lock_timedwait(struct lock *l, struct cond *c, const struct timespec *until)
{
	return wait_until(l, c, until);
}
