/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/lock.h"
#include "tests/t.h"

#include <errno.h>

enum { THREADS = 4, ROUNDS = 50000 };

static struct {
	struct lock lock;
	struct cond cond;
	unsigned count, turn, waiting;
} shared = { .lock = LOCK_INIT };

static void *count_up(void *arg)
{
	bool tries = arg;

	for (int i = 0; i < ROUNDS; i++) {
		if (!tries || !lock_try(&shared.lock))
			lock_get(&shared.lock);
		shared.count++;
		lock_put(&shared.lock);
	}
	return NULL;
}

static void excludes(void)
{
	pthread_t t[THREADS];

	shared.count = 0;
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&t[i], NULL, count_up, i % 2 ? &shared : NULL));
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	CHECK_EQ(shared.count, THREADS * ROUNDS);
}

static void *tries_in_vain(void *arg)
{
	*(bool *)arg = lock_try(&shared.lock);
	return NULL;
}

/* Held for about as long as others spin, so that some go to sleep in vain. */
static void *hold_a_while(void *arg)
{
	for (int i = 0; i < ROUNDS; i++) {
		lock_get(&shared.lock);
		for (int k = 0; k < 60 + i % 16; k++)
			cpu_relax();
		lock_put(&shared.lock);
	}
	return arg;
}

static void errno_stays(void)
{
	unsigned changed = 0;
	pthread_t t;

	CHECK(!pthread_create(&t, NULL, hold_a_while, NULL));
	for (int i = 0; i < ROUNDS; i++) {
		errno = EXDEV;
		lock_get(&shared.lock);
		lock_put(&shared.lock);
		changed += errno != EXDEV;
	}
	pthread_join(t, NULL);
	CHECK_EQ(changed, 0);
}

NO_TSA static void try_does_not_wait(void)
{
	bool got = true;
	pthread_t t;

	lock_get(&shared.lock);
	CHECK(!pthread_create(&t, NULL, tries_in_vain, &got));
	pthread_join(t, NULL);
	lock_put(&shared.lock);
	CHECK(!got);
	CHECK(lock_try(&shared.lock));
	lock_put(&shared.lock);
}

/* Each waits for its turn: a lost broadcast would be the end. */
static void *take_turns(void *arg)
{
	unsigned me = (unsigned)(uintptr_t)arg;

	lock_get(&shared.lock);
	for (int i = 0; i < 2000; i++) {
		while (shared.turn % THREADS != me)
			lock_wait(&shared.lock, &shared.cond);
		shared.turn++;
		cond_broadcast(&shared.cond);
	}
	lock_put(&shared.lock);
	return NULL;
}

static void broadcasts_are_not_lost(void)
{
	pthread_t t[THREADS];

	shared.turn = 0;
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&t[i], NULL, take_turns, (void *)i));
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	CHECK_EQ(shared.turn, THREADS * 2000);
}

static void *wait_long(void *arg)
{
	lock_get(&shared.lock);
	shared.waiting++;
	cond_broadcast(&shared.cond);
	while (shared.turn)
		lock_wait(&shared.lock, &shared.cond);
	lock_put(&shared.lock);
	return arg;
}

static void wakes_all(void)
{
	pthread_t t[THREADS];

	shared.turn = 1;
	shared.waiting = 0;
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&t[i], NULL, wait_long, NULL));
	lock_get(&shared.lock);
	while (shared.waiting != THREADS)
		lock_wait(&shared.lock, &shared.cond);
	shared.turn = 0;
	cond_broadcast(&shared.cond);
	lock_put(&shared.lock);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
}

static void waiting_ends_in_time(void)
{
	struct timespec until, now;
	int ret = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += 20000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	lock_get(&shared.lock);
	while (!ret)
		ret = lock_timedwait(&shared.lock, &shared.cond, &until);
	CHECK_EQ(ret, -ETIMEDOUT);
	lock_put(&shared.lock);
	clock_gettime(CLOCK_MONOTONIC, &now);
	CHECK(now.tv_sec > until.tv_sec ||
	      (now.tv_sec == until.tv_sec && now.tv_nsec >= until.tv_nsec));
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(excludes);
	T_RUN(errno_stays);
	T_RUN(try_does_not_wait);
	T_RUN(broadcasts_are_not_lost);
	T_RUN(wakes_all);
	T_RUN(waiting_ends_in_time);
	return t_done();
}
