/* SPDX-License-Identifier: BSD-2-Clause */
#include "preload/share.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HOLDERS = 7, PENDING = -1, CHUNK = 4096 };

struct share {
	atomic_int used;	    /* descriptions of processes that point here */
	atomic_int holder[HOLDERS]; /* process ids, 0: none, PENDING: a child to be */
};

/* Memory is never given back: slots are used again. */
static struct chunk {
	struct chunk *next;
	struct share slot[CHUNK];
} * chunks;

/* Told to those who found no slot: somebody else always has it. */
static struct share everybody = { .holder = { 1 } };

/* One thread forks at a time. */
static struct share *share_find(void)
{
	struct chunk *k;
	int none = 0;

	for (k = chunks; k; k = k->next)
		for (int i = 0; i < CHUNK; i++) {
			none = 0;
			if (atomic_compare_exchange_strong(&k->slot[i].used, &none, 1))
				return &k->slot[i];
		}
	k = mmap(NULL, sizeof(*k), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		 0);
	if (k == MAP_FAILED)
		return NULL;
	k->next = chunks;
	chunks = k;
	atomic_store(&k->slot[0].used, 1);
	return &k->slot[0];
}

static bool put(struct share *s, int from, int to)
{
	for (int i = 0; i < HOLDERS; i++) {
		int want = from;

		if (atomic_compare_exchange_strong(&s->holder[i], &want, to))
			return true;
	}
	return false;
}

/* Slots of processes that have ended. */
static void purge(struct share *s)
{
	for (int i = 0; i < HOLDERS; i++) {
		int pid = atomic_load(&s->holder[i]);

		if (pid > 0 && kill(pid, 0) && errno == ESRCH)
			atomic_compare_exchange_strong(&s->holder[i], &pid, 0);
	}
}

void share_fork(struct share **sp)
{
	struct share *s = *sp;

	if (!s) {
		s = share_find();
		if (s)
			atomic_store(&s->holder[0], getpid());
		*sp = s ? s : &everybody;
	}
	if (s && s != &everybody) {
		purge(s);
		atomic_fetch_add(&s->used, 1);
		if (!put(s, 0, PENDING))
			*sp = &everybody;
	}
}

void share_child_is(struct share *s, pid_t child)
{
	if (s && s != &everybody)
		put(s, PENDING, child);
}

void share_no_child(struct share *s)
{
	if (!s || s == &everybody)
		return;
	put(s, PENDING, 0);
	atomic_fetch_sub(&s->used, 1);
}

void share_leave(struct share **sp)
{
	struct share *s = *sp;

	*sp = NULL;
	if (!s || s == &everybody)
		return;
	put(s, getpid(), 0);
	atomic_fetch_sub(&s->used, 1);
}

bool share_sole(struct share **sp)
{
	struct share *s = *sp;
	int me = getpid();

	if (!s)
		return true;
	purge(s);
	for (int i = 0; i < HOLDERS; i++) {
		int pid = atomic_load(&s->holder[i]);

		if (pid && pid != me)
			return false;
	}
	return true;
}
