/* SPDX-License-Identifier: BSD-2-Clause */
/* Mutex wrapper: clang thread-safety annotations, and in builds without
 * NDEBUG the owner is kept so that "is held" can be asserted. */
#ifndef ANYRDMA_BASE_LOCK_H
#define ANYRDMA_BASE_LOCK_H

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

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

struct CAPABILITY("mutex") lock {
	pthread_mutex_t m;
#ifndef NDEBUG
	_Atomic(pthread_t) owner;
#endif
};

#ifndef NDEBUG
#define LOCK_OWN_(l, who) atomic_store_explicit(&(l)->owner, (who), memory_order_relaxed)
#define LOCK_INIT { PTHREAD_MUTEX_INITIALIZER, 0 }
#else
#define LOCK_OWN_(l, who) ((void)0)
#define LOCK_INIT { PTHREAD_MUTEX_INITIALIZER }
#endif

static inline void lock_init(struct lock *l)
{
	pthread_mutex_init(&l->m, NULL);
	LOCK_OWN_(l, 0);
}

static inline void lock_fini(struct lock *l)
{
	pthread_mutex_destroy(&l->m);
}

static inline void lock_get(struct lock *l) ACQUIRE(l) NO_TSA
{
	pthread_mutex_lock(&l->m);
	LOCK_OWN_(l, pthread_self());
}

static inline bool lock_try(struct lock *l) TRY_ACQUIRE(true, l) NO_TSA
{
	if (pthread_mutex_trylock(&l->m))
		return false;
	LOCK_OWN_(l, pthread_self());
	return true;
}

static inline void lock_put(struct lock *l) RELEASE(l) NO_TSA
{
	LOCK_OWN_(l, 0);
	pthread_mutex_unlock(&l->m);
}

/* cond may wake spuriously: loop around it. */
static inline void lock_wait(struct lock *l, pthread_cond_t *c) REQUIRES(l) NO_TSA
{
	LOCK_OWN_(l, 0);
	pthread_cond_wait(c, &l->m);
	LOCK_OWN_(l, pthread_self());
}

static inline int lock_timedwait(struct lock *l, pthread_cond_t *c,
				 const struct timespec *until) REQUIRES(l) NO_TSA
{
	int ret;

	LOCK_OWN_(l, 0);
	ret = pthread_cond_timedwait(c, &l->m, until);
	LOCK_OWN_(l, pthread_self());
	return ret;
}

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
