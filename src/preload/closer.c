/* SPDX-License-Identifier: BSD-2-Clause */
#include "preload/closer.h"
#include "preload/move.h"
#include "preload/real.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>

static struct {
	pthread_mutex_t lock; /* all below */
	pthread_cond_t more, done;
	struct rail *first, **last;
	unsigned left;
	bool running;
} closer = { PTHREAD_MUTEX_INITIALIZER,
	     PTHREAD_COND_INITIALIZER,
	     PTHREAD_COND_INITIALIZER,
	     NULL,
	     NULL,
	     0,
	     false };

static void rail_close(struct rail *r)
{
	if (r->rs >= 0)
		rs.rclose(r->rs);
	if (r->ctl >= 0)
		real.close(r->ctl);
	free(r->left);
	free(r->kept);
	free(r);
}

static void *closer_run(void *arg)
{
	struct rail *r;

	(void)arg;
	pthread_mutex_lock(&closer.lock);
	for (;;) {
		while (!closer.first)
			pthread_cond_wait(&closer.more, &closer.lock);
		r = closer.first;
		closer.first = r->next;
		pthread_mutex_unlock(&closer.lock);
		rail_close(r);
		pthread_mutex_lock(&closer.lock);
		if (!--closer.left)
			pthread_cond_broadcast(&closer.done);
	}
	return NULL;
}

static bool start_locked(void)
{
	sigset_t all, old;
	pthread_t thread;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&thread, NULL, closer_run, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err)
		return false;
	pthread_setname_np(thread, "anyrdma-closer");
	pthread_detach(thread);
	return true;
}

void closer_take(struct rail *r)
{
	/* Without an rsocket nothing waits. */
	if (r->rs < 0) {
		rail_close(r);
		return;
	}
	r->next = NULL;
	pthread_mutex_lock(&closer.lock);
	if (!closer.running)
		closer.running = start_locked();
	if (closer.first)
		*closer.last = r;
	else
		closer.first = r;
	closer.last = &r->next;
	closer.left++;
	pthread_cond_signal(&closer.more);
	pthread_mutex_unlock(&closer.lock);
}

void closer_wait(int ms)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += ms % 1000 * 1000000L;
	until.tv_sec += ms / 1000 + until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&closer.lock);
	while (closer.left && closer.running &&
	       !pthread_cond_timedwait(&closer.done, &closer.lock, &until))
		;
	pthread_mutex_unlock(&closer.lock);
}

void closer_child(void)
{
	pthread_mutex_init(&closer.lock, NULL);
	pthread_cond_init(&closer.more, NULL);
	pthread_cond_init(&closer.done, NULL);
	closer.first = NULL;
	closer.left = 0;
	closer.running = false;
}
