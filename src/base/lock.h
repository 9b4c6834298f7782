/* SPDX-License-Identifier: BSD-2-Clause */
/* Mutexes: clang thread-safety annotations, and in builds without NDEBUG the owner is
 * kept so that "is held" can be asserted. */
#ifndef ANYRDMA_BASE_LOCK_H
#define ANYRDMA_BASE_LOCK_H

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#if defined(__clang__)
#define TSA(x) __attribute__((x))
#else
#define TSA(x)
#endif
#define CAPABILITY(x) TSA(capability(x))
/* On members: for readers only. In C, clang 14 cannot name a sibling member. */
#define GUARDED_BY(x)
#define REQUIRES(...) TSA(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) TSA(locks_excluded(__VA_ARGS__))
#define ACQUIRE(...) TSA(acquire_capability(__VA_ARGS__))
#define TRY_ACQUIRE(...) TSA(try_acquire_capability(__VA_ARGS__))
#define RELEASE(...) TSA(release_capability(__VA_ARGS__))
#define ASSERT_HELD(x) TSA(assert_capability(x))
#define NO_TSA TSA(no_thread_safety_analysis)

/* For loops that wait for another thread or process: gives the core to its sibling. */
static inline void cpu_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb" ::: "memory");
#endif
}

/* The thread sanitizer knows the C library's mutexes, and finds locks that are taken in
 * both orders: under it a lock is such a mutex. Else it is one word, as most locks are
 * held for a few nanoseconds. */
#if defined(__SANITIZE_THREAD__)
#define LOCK_PTHREAD 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define LOCK_PTHREAD 1
#endif
#endif

struct CAPABILITY("mutex") lock {
#ifdef LOCK_PTHREAD
	pthread_mutex_t m;
#else
	_Atomic uint32_t word; /* 0 free, 1 held, 2 held and a thread may sleep for it */
#endif
#ifndef NDEBUG
	_Atomic(pthread_t) owner;
#endif
};

/* What lock_wait() waits for. */
struct cond {
	_Atomic uint32_t seq; /* grows with each broadcast */
	_Atomic uint32_t waiting; /* threads; raised under the lock */
};

#ifdef LOCK_PTHREAD
#define LOCK_FREE_ PTHREAD_MUTEX_INITIALIZER
#else
#define LOCK_FREE_ 0
#endif
#ifndef NDEBUG
#define LOCK_OWN_(l, who) atomic_store_explicit(&(l)->owner, (who), memory_order_relaxed)
#define LOCK_INIT { LOCK_FREE_, 0 }
#else
#define LOCK_OWN_(l, who) ((void)0)
#define LOCK_INIT { LOCK_FREE_ }
#endif

#ifdef LOCK_PTHREAD
static inline void lock_raw_init_(struct lock *l)
{
	pthread_mutex_init(&l->m, NULL);
}

static inline void lock_raw_fini_(struct lock *l)
{
	pthread_mutex_destroy(&l->m);
}

static inline void lock_raw_get_(struct lock *l)
{
	pthread_mutex_lock(&l->m);
}

static inline bool lock_raw_try_(struct lock *l)
{
	return !pthread_mutex_trylock(&l->m);
}

static inline void lock_raw_put_(struct lock *l)
{
	pthread_mutex_unlock(&l->m);
}
#else
void lock_sleep_(struct lock *l);
void lock_wake_(struct lock *l);

static inline void lock_raw_init_(struct lock *l)
{
	atomic_init(&l->word, 0);
}

static inline void lock_raw_fini_(struct lock *l)
{
	(void)l;
}

static inline bool lock_raw_try_(struct lock *l)
{
	uint32_t free = 0;

	return atomic_compare_exchange_strong_explicit(&l->word, &free, 1, memory_order_acquire,
						       memory_order_relaxed);
}

static inline void lock_raw_get_(struct lock *l)
{
	if (!lock_raw_try_(l))
		lock_sleep_(l);
}

static inline void lock_raw_put_(struct lock *l)
{
	if (atomic_exchange_explicit(&l->word, 0, memory_order_release) == 2)
		lock_wake_(l);
}
#endif

static inline void lock_init(struct lock *l)
{
	lock_raw_init_(l);
	LOCK_OWN_(l, 0);
}

static inline void lock_fini(struct lock *l)
{
	lock_raw_fini_(l);
}

static inline void lock_get(struct lock *l) ACQUIRE(l) NO_TSA
{
	lock_raw_get_(l);
	LOCK_OWN_(l, pthread_self());
}

static inline bool lock_try(struct lock *l) TRY_ACQUIRE(true, l) NO_TSA
{
	if (!lock_raw_try_(l))
		return false;
	LOCK_OWN_(l, pthread_self());
	return true;
}

static inline void lock_put(struct lock *l) RELEASE(l) NO_TSA
{
	LOCK_OWN_(l, 0);
	lock_raw_put_(l);
}

static inline void cond_init(struct cond *c)
{
	atomic_init(&c->seq, 0);
	atomic_init(&c->waiting, 0);
}

/* Wakes all threads in lock_wait(). The caller has changed what they wait for with the
 * lock held. No system call if none waits. */
void cond_broadcast(struct cond *c);

/* Unlocks, sleeps until a broadcast, locks. May return without one: call it in a loop. */
void lock_wait(struct lock *l, struct cond *c) REQUIRES(l);
/* The same, until this time of CLOCK_MONOTONIC: 0 or -ETIMEDOUT. */
int lock_timedwait(struct lock *l, struct cond *c, const struct timespec *until) REQUIRES(l);

static inline void lock_assert_held(struct lock *l) ASSERT_HELD(l)
{
#ifndef NDEBUG
	assert(atomic_load_explicit(&l->owner, memory_order_relaxed) ==
	       pthread_self());
#else
	(void)l;
#endif
}

#endif
