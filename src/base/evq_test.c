/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/evq.h"
#include "tests/asleep.h"
#include "tests/t.h"

#include <fcntl.h>
#include <poll.h>

struct ev {
	struct list link;
	int n;
};

static bool readable(int fd)
{
	struct pollfd p = { fd, POLLIN, 0 };

	return poll(&p, 1, 0) == 1;
}

static void nonblock(int fd)
{
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

/* Pops one without waiting; -errno or its number. */
NO_TSA static int get(struct evq *q)
{
	struct list *node;
	int err = evq_get(q, &node);

	if (err)
		return err;
	lock_put(&q->lock);
	return list_entry(node, struct ev, link)->n;
}

static void order_and_readability(void)
{
	struct ev ev[5] = { 0 };
	struct evq q;

	REQUIRE(evq_init(&q) == 0);
	CHECK_EQ(fcntl(q.fd, F_GETFD), FD_CLOEXEC);
	CHECK_EQ(fcntl(q.fd, F_GETFL) & O_NONBLOCK, 0);
	CHECK(!readable(q.fd));
	nonblock(q.fd);
	CHECK_EQ(get(&q), -EAGAIN);
	for (int i = 0; i < 5; i++) {
		ev[i].n = i;
		evq_push(&q, &ev[i].link);
	}
	for (int i = 0; i < 5; i++) {
		CHECK(readable(q.fd));
		CHECK_EQ(get(&q), i);
	}
	CHECK(!readable(q.fd));
	CHECK_EQ(get(&q), -EAGAIN);
	evq_fini(&q);
}

static void forgets_tokens(void)
{
	struct ev ev[3] = { { .n = 0 }, { .n = 1 }, { .n = 2 } };
	struct evq q;

	REQUIRE(evq_init(&q) == 0);
	for (int i = 0; i < 3; i++)
		evq_push(&q, &ev[i].link);
	/* The fd is blocking: taking tokens back must not block all the same. */
	lock_get(&q.lock);
	list_del(&ev[0].link);
	list_del(&ev[2].link);
	evq_forget_locked(&q, 2);
	lock_put(&q.lock);
	CHECK_EQ(get(&q), 1);
	CHECK(!readable(q.fd));
	evq_fini(&q);
}

static void on_signal(int sig)
{
	(void)sig;
}

struct target {
	pthread_t thread;
	pid_t tid;
	atomic_bool back;
};

static void *interrupt(void *arg)
{
	struct target *t = arg;

	CHECK(T_WAIT(asleep(getpid(), t->tid), 5000));
	/* Again, if it was asleep elsewhere. */
	CHECK(T_WAIT(!pthread_kill(t->thread, SIGUSR1) && atomic_load(&t->back), 5000));
	return NULL;
}

static void interrupted(void)
{
	struct sigaction sa = { .sa_handler = on_signal };
	struct target me = { .thread = pthread_self(), .tid = gettid() };
	pthread_t th;
	struct evq q;

	REQUIRE(evq_init(&q) == 0);
	sigaction(SIGUSR1, &sa, NULL);
	REQUIRE(pthread_create(&th, NULL, interrupt, &me) == 0);
	CHECK_EQ(get(&q), -EINTR);
	atomic_store(&me.back, true);
	pthread_join(th, NULL);
	evq_fini(&q);
}

/* A getter holds the token of an event that is removed under it, and meets a
 * later event: that one's own token must not stay. */
NO_TSA static void token_of_a_removed_event(void)
{
	struct ev ev[2] = { { .n = 0 }, { .n = 1 } };
	uint64_t token;
	struct list *node;
	struct evq q;

	REQUIRE(evq_init(&q) == 0);
	evq_push(&q, &ev[0].link);
	CHECK(read(q.fd, &token, sizeof(token)) == sizeof(token)); /* in flight */
	lock_get(&q.lock);
	list_del(&ev[0].link);
	evq_forget_locked(&q, 1);
	evq_push_locked(&q, &ev[1].link);
	lock_put(&q.lock);
	/* The getter in flight goes on as evq_get() does after its read: give it
	 * a token to read, which is the one it holds. */
	token = 1;
	CHECK(write(q.fd, &token, sizeof(token)) == sizeof(token));
	REQUIRE(evq_get(&q, &node) == 0);
	lock_put(&q.lock);
	CHECK(node == &ev[1].link);
	CHECK(!readable(q.fd));
	nonblock(q.fd);
	CHECK_EQ(get(&q), -EAGAIN);
	evq_push(&q, &ev[0].link);
	CHECK_EQ(get(&q), 0);
	evq_fini(&q);
}

/* Pushers, getters and removers at once. Every event is either got or removed,
 * exactly once, and nothing is left in the descriptor. */
#define PUSHERS 2
#define GETTERS 4
#define REMOVERS 2
#define EVENTS 2000
#define ROUNDS 30

static struct race {
	struct evq q;
	struct ev *ev;
	_Atomic int pushed, got, removed, stop;
	_Atomic unsigned char *seen;
} race;

static int total_removed;

static void account(struct ev *e, _Atomic int *counter)
{
	if (atomic_fetch_add(&race.seen[e->n], 1))
		CHECK(!"an event came twice");
	atomic_fetch_add(counter, 1);
}

static void *pusher(void *arg)
{
	int i;

	(void)arg;
	while ((i = atomic_fetch_add(&race.pushed, 1)) < EVENTS) {
		race.ev[i].n = i;
		evq_push(&race.q, &race.ev[i].link);
	}
	return NULL;
}

NO_TSA static void *getter(void *arg)
{
	struct list *node;
	struct ev *e;

	(void)arg;
	for (;;) {
		if (!CHECK(evq_get(&race.q, &node) == 0))
			return NULL;
		lock_put(&race.q.lock);
		e = list_entry(node, struct ev, link);
		if (e->n == EVENTS) /* the last word, one for each getter */
			return NULL;
		account(e, &race.got);
	}
}

static void *remover(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg, k;
	struct list *node, *pick[8];

	while (!atomic_load(&race.stop)) {
		unsigned max = 1 + (unsigned)rand_r(&seed) % 8;

		lock_get(&race.q.lock);
		for (k = 0; k < max && (node = list_pop(&race.q.head)); k++)
			pick[k] = node;
		evq_forget_locked(&race.q, k);
		lock_put(&race.q.lock);
		for (unsigned i = 0; i < k; i++)
			account(list_entry(pick[i], struct ev, link), &race.removed);
		sched_yield();
	}
	return NULL;
}

static void race_once(void)
{
	pthread_t p[PUSHERS], g[GETTERS], r[REMOVERS];
	struct ev last[GETTERS] = { 0 };
	int missing = 0;

	memset(&race, 0, sizeof(race));
	REQUIRE(evq_init(&race.q) == 0);
	race.ev = calloc(EVENTS, sizeof(*race.ev));
	race.seen = calloc(EVENTS, 1);
	REQUIRE(race.ev && race.seen);
	for (int i = 0; i < GETTERS; i++)
		pthread_create(&g[i], NULL, getter, NULL);
	for (int i = 0; i < REMOVERS; i++)
		pthread_create(&r[i], NULL, remover, (void *)(uintptr_t)(i + 1));
	for (int i = 0; i < PUSHERS; i++)
		pthread_create(&p[i], NULL, pusher, NULL);
	for (int i = 0; i < PUSHERS; i++)
		pthread_join(p[i], NULL);
	CHECK(T_WAIT(race.got + race.removed == EVENTS, 20000));
	atomic_store(&race.stop, 1);
	for (int i = 0; i < REMOVERS; i++)
		pthread_join(r[i], NULL);
	for (int i = 0; i < GETTERS; i++) {
		last[i].n = EVENTS;
		evq_push(&race.q, &last[i].link);
	}
	for (int i = 0; i < GETTERS; i++)
		pthread_join(g[i], NULL);
	for (int i = 0; i < EVENTS; i++)
		missing += race.seen[i] != 1;
	CHECK_EQ(missing, 0);
	CHECK(list_empty(&race.q.head));
	CHECK(!readable(race.q.fd));
	total_removed += race.removed;
	evq_fini(&race.q);
	free(race.ev);
	free((void *)race.seen);
}

static void race_all(void)
{
	for (int i = 0; i < ROUNDS; i++)
		race_once();
	diag("%d events, %d of them removed", ROUNDS * EVENTS, total_removed);
}

static void push_later(struct evq *q, struct ev *ev, int n)
{
	lock_get(&q->lock);
	for (int i = 0; i < n; i++) {
		ev[i].n = i;
		evq_push_later_locked(q, &ev[i].link);
	}
	lock_put(&q->lock);
}

/* Tokens that come later: none before the flush, one for each afterwards. */
static void later(void)
{
	struct ev ev[4] = { 0 }, now = { .n = 9 };
	struct evq q, other;

	REQUIRE(evq_init(&q) == 0);
	REQUIRE(evq_init(&other) == 0);
	nonblock(q.fd);
	nonblock(other.fd);
	push_later(&q, ev, 3);
	CHECK(!readable(q.fd));
	CHECK_EQ(get(&q), -EAGAIN);
	evq_flush();
	evq_flush(); /* nothing twice */
	CHECK(!readable(other.fd));
	for (int i = 0; i < 3; i++)
		CHECK_EQ(get(&q), i);
	CHECK_EQ(get(&q), -EAGAIN);

	/* The order is that of pushing, whoever has a token. */
	push_later(&q, ev, 1);
	evq_push(&q, &now.link);
	CHECK_EQ(get(&q), 0);
	CHECK_EQ(get(&q), -EAGAIN);
	evq_flush();
	CHECK_EQ(get(&q), 9);
	CHECK(!readable(q.fd));

	/* Who owes nothing any more adds nothing. */
	push_later(&q, ev, 4);
	lock_get(&q.lock);
	list_del(&ev[1].link);
	list_del(&ev[2].link);
	evq_forget_locked(&q, 2);
	lock_put(&q.lock);
	evq_flush();
	CHECK_EQ(get(&q), 0);
	CHECK_EQ(get(&q), 3);
	CHECK(!readable(q.fd));
	CHECK_EQ(q.debt, 0);

	push_later(&q, ev, 1);
	evq_fini(&q); /* forgotten before the flush */
	evq_flush();
	evq_fini(&other);
}

static void *flusher(void *stop)
{
	while (!atomic_load((_Atomic bool *)stop))
		evq_flush();
	return NULL;
}

/* Who removes an event whose token is just being added leaves nothing in the
 * descriptor: a program that polls it would be told of an event for ever. */
static void removed_in_a_flush(void)
{
	struct ev ev = { .n = 0 };
	_Atomic bool stop = false;
	int stayed = 0;
	pthread_t th;
	struct evq q;

	REQUIRE(evq_init(&q) == 0);
	REQUIRE(pthread_create(&th, NULL, flusher, &stop) == 0);
	for (int i = 0; i < 100000; i++) {
		push_later(&q, &ev, 1);
		for (volatile int k = 0; k < i % 200; k++)
			;
		lock_get(&q.lock);
		list_del(&ev.link);
		evq_forget_locked(&q, 1);
		lock_put(&q.lock);
		stayed += readable(q.fd);
	}
	CHECK_EQ(stayed, 0);
	atomic_store(&stop, true);
	pthread_join(th, NULL);
	CHECK_EQ(q.debt, 0);
	evq_fini(&q);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(order_and_readability);
	T_RUN(later);
	T_RUN(removed_in_a_flush);
	T_RUN(forgets_tokens);
	T_RUN(token_of_a_removed_event);
	T_RUN(interrupted);
	T_RUN(race_all);
	return t_done();
}
