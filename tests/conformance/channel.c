/* SPDX-License-Identifier: BSD-2-Clause */
/* Event channels: the file descriptor under poll, select and epoll, rdma_get_cm_event()
 * with signals and several threads, rdma_ack_cm_event(), and ids that migrate
 * meanwhile. */
#include "conf.h"

#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>

typedef int (*write_event_fn)(struct rdma_cm_id *id, int event, int status, uint64_t arg);

/* Something that gives exactly one event on the id, soon. */
static void cause(struct rdma_cm_id *id)
{
	conf_sa dst = conf_addr(AF_INET, 7000);

	OK(rdma_resolve_addr(id, NULL, SA(dst), 2000));
}

static void wait_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	AT("waiting for POLLIN");
	if (poll(&p, 1, conf_ms(CONF_WAIT)) != 1)
		FAIL("the channel does not become readable");
	CHECK(p.revents == POLLIN);
}

static void create_destroy(void)
{
	struct rdma_event_channel *ch = conf_channel();
	int fd = ch->fd;

	CHECK(fd >= 0);
	CHECK(fcntl(fd, F_GETFL) >= 0);
	rdma_destroy_event_channel(ch);
	ERR(fcntl(fd, F_GETFL), EBADF);
}

static void many_channels(void)
{
	struct rdma_event_channel *ch[64];

	for (int i = 0; i < 64; i++) {
		ch[i] = conf_channel();
		for (int j = 0; j < i; j++)
			CHECK(ch[j]->fd != ch[i]->fd);
	}
	for (int i = 0; i < 64; i++)
		rdma_destroy_event_channel(ch[i]);
}

static void fd_is_close_on_exec(void)
{
	struct rdma_event_channel *ch = conf_channel();

	CHECK(fcntl(ch->fd, F_GETFD) & FD_CLOEXEC);
	rdma_destroy_event_channel(ch);
}

static void fd_starts_blocking(void)
{
	struct rdma_event_channel *ch = conf_channel();

	CHECK(!(fcntl(ch->fd, F_GETFL) & O_NONBLOCK));
	rdma_destroy_event_channel(ch);
}

static void get_null_event_pointer(void)
{
	struct rdma_event_channel *ch = conf_channel();

	ERR(rdma_get_cm_event(ch, NULL), EINVAL);
	rdma_destroy_event_channel(ch);
}

static void get_null_channel(void)
{
	struct rdma_cm_event *ev;

	if (conf_original())
		SKIP("crashes the original");
	ERR(rdma_get_cm_event(NULL, &ev), EINVAL);
}

static void ack_null(void)
{
	ERR(rdma_ack_cm_event(NULL), EINVAL);
}

static void destroy_null(void)
{
	if (conf_original())
		SKIP("crashes the original");
	rdma_destroy_event_channel(NULL);
}

static void nonblocking_empty_is_eagain(void)
{
	struct rdma_event_channel *ch = conf_channel();
	struct rdma_cm_event *ev;

	conf_nonblock(ch->fd, true);
	ERR(rdma_get_cm_event(ch, &ev), EAGAIN);
	ERR(rdma_get_cm_event(ch, &ev), EAGAIN);
	rdma_destroy_event_channel(ch);
}

static void nonblocking_gets_event(void)
{
	struct rdma_event_channel *ch = conf_channel();
	struct rdma_cm_id *id = conf_id(ch);
	struct rdma_cm_event *ev;

	conf_nonblock(ch->fd, true);
	cause(id);
	wait_readable(ch->fd);
	OK(rdma_get_cm_event(ch, &ev));
	EQ(ev->event, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(ev->id == id && !ev->listen_id);
	OK(rdma_ack_cm_event(ev));
	ERR(rdma_get_cm_event(ch, &ev), EAGAIN);
	conf_id_close(id);
}

static void poll_level(void)
{
	struct rdma_event_channel *ch = conf_channel();
	struct rdma_cm_id *id = conf_id(ch);
	struct rdma_cm_event *ev;

	CHECK(!conf_readable(ch->fd));
	cause(id);
	wait_readable(ch->fd);
	CHECK(conf_readable(ch->fd)); /* level: still */
	OK(rdma_get_cm_event(ch, &ev));
	CHECK(!conf_readable(ch->fd)); /* fetched, not yet acked */
	OK(rdma_ack_cm_event(ev));
	CHECK(!conf_readable(ch->fd));
	conf_id_close(id);
}

static int polled(int events)
{
	struct rdma_event_channel *ch = conf_channel();
	struct pollfd p = { .fd = ch->fd, .events = events };

	poll(&p, 1, 0);
	rdma_destroy_event_channel(ch);
	return p.revents;
}

static void never_hangs_up(void)
{
	EQ(polled(POLLIN | POLLPRI), 0);
}

static void never_writable(void)
{
	if (conf_user_device())
		SKIP("the fd is an eventfd, always writable (differences.md)");
	EQ(polled(POLLOUT), 0);
}

static void select_readable(void)
{
	struct rdma_event_channel *ch = conf_channel();
	struct rdma_cm_id *id = conf_id(ch);
	struct timeval tv = { .tv_sec = conf_ms(CONF_WAIT) / 1000 };
	struct timeval zero = { 0 };
	fd_set set;

	CHECK(ch->fd < FD_SETSIZE);
	FD_ZERO(&set);
	FD_SET(ch->fd, &set);
	EQ(select(ch->fd + 1, &set, NULL, NULL, &zero), 0);
	cause(id);
	FD_SET(ch->fd, &set);
	EQ(select(ch->fd + 1, &set, NULL, NULL, &tv), 1);
	CHECK(FD_ISSET(ch->fd, &set));
	conf_expect(ch, id, RDMA_CM_EVENT_ADDR_RESOLVED);
	conf_id_close(id);
}

static void epoll_level(void)
{
	struct rdma_event_channel *ch = conf_channel();
	struct rdma_cm_id *id = conf_id(ch);
	struct epoll_event e = { .events = EPOLLIN }, got;
	int ep = epoll_create1(0);

	OK(epoll_ctl(ep, EPOLL_CTL_ADD, ch->fd, &e));
	EQ(epoll_wait(ep, &got, 1, 0), 0);
	cause(id);
	EQ(epoll_wait(ep, &got, 1, conf_ms(CONF_WAIT)), 1);
	EQ(got.events, EPOLLIN);
	EQ(epoll_wait(ep, &got, 1, 0), 1);
	conf_expect(ch, id, RDMA_CM_EVENT_ADDR_RESOLVED);
	EQ(epoll_wait(ep, &got, 1, 0), 0);
	conf_id_close(id);
	close(ep);
}

/* Each new event is an edge, also while older ones are unfetched. */
static void epoll_edge(void)
{
	struct rdma_event_channel *ch = conf_channel();
	struct rdma_cm_id *a = conf_id(ch), *b = conf_id(ch);
	struct epoll_event e = { .events = EPOLLIN | EPOLLET }, got;
	struct rdma_cm_event *ev;
	int ep = epoll_create1(0);

	OK(epoll_ctl(ep, EPOLL_CTL_ADD, ch->fd, &e));
	EQ(epoll_wait(ep, &got, 1, 0), 0);
	cause(a);
	EQ(epoll_wait(ep, &got, 1, conf_ms(CONF_WAIT)), 1);
	EQ(epoll_wait(ep, &got, 1, 50), 0);
	cause(b);
	EQ(epoll_wait(ep, &got, 1, conf_ms(CONF_WAIT)), 1);
	EQ(epoll_wait(ep, &got, 1, 50), 0);
	conf_nonblock(ch->fd, true);
	for (int i = 0; i < 2; i++) {
		OK(rdma_get_cm_event(ch, &ev));
		OK(rdma_ack_cm_event(ev));
	}
	ERR(rdma_get_cm_event(ch, &ev), EAGAIN);
	OK(rdma_destroy_id(a));
	conf_id_close(b);
	close(ep);
}

static atomic_int in_get, got_events;
static atomic_int signals;

static void on_signal(int sig)
{
	(void)sig;
	signals++;
}

static void install(int flags)
{
	struct sigaction sa = { .sa_handler = on_signal, .sa_flags = flags };

	OK(sigaction(SIGUSR1, &sa, NULL));
}

struct getter {
	struct rdma_event_channel *ch;
	int ret, err;
	struct rdma_cm_event *ev;
};

static void *get_one(void *arg)
{
	struct getter *g = arg;

	atomic_fetch_add(&in_get, 1);
	errno = 0;
	g->ret = rdma_get_cm_event(g->ch, &g->ev);
	g->err = errno;
	atomic_fetch_add(&got_events, 1);
	return NULL;
}

/* Each time it is in the call. */
static void signal_it(pthread_t t, int times)
{
	WAIT_FOR(in_get);
	for (int i = 0; i < times; i++) {
		int before = signals;

		conf_blocked(t);
		EQ(pthread_kill(t, SIGUSR1), 0);
#ifdef CONF_TSAN
		(void)before; /* it keeps signals until the call returns */
#else
		WAIT_FOR(signals > before);
#endif
	}
}

static void signal_gives_eintr(void)
{
	struct getter g = { .ch = conf_channel() };
	pthread_t t;

	install(0);
	t = conf_thread(get_one, &g);
	signal_it(t, 1);
	while (!got_events) { /* the first may have met it asleep on its way to the call */
		conf_blocked(t);
		EQ(pthread_kill(t, SIGUSR1), 0);
	}
	conf_join(t);
	EQ(g.ret, -1);
	EQ(g.err, EINTR);
	rdma_destroy_event_channel(g.ch);
}

static void signal_with_sa_restart_goes_on(void)
{
	struct getter g = { .ch = conf_channel() };
	struct rdma_cm_id *id = conf_id(g.ch);
	pthread_t t;

	install(SA_RESTART);
	t = conf_thread(get_one, &g);
	signal_it(t, 20);
	conf_blocked(t);
	EQ(got_events, 0);
	cause(id);
	conf_join(t);
	CHECK(signals > 0);
	EQ(g.ret, 0);
	EQ(g.ev->event, RDMA_CM_EVENT_ADDR_RESOLVED);
	OK(rdma_ack_cm_event(g.ev));
	conf_id_close(id);
}

static void get_blocks_until_event(void)
{
	struct getter g = { .ch = conf_channel() };
	struct rdma_cm_id *id = conf_id(g.ch);
	pthread_t t = conf_thread(get_one, &g);

	WAIT_FOR(in_get);
	conf_blocked(t);
	EQ(got_events, 0);
	cause(id);
	conf_join(t);
	EQ(g.ret, 0);
	CHECK(g.ev->id == id);
	OK(rdma_ack_cm_event(g.ev));
	conf_id_close(id);
}

static void several_getters_one_event_each(void)
{
	struct rdma_event_channel *ch = conf_channel();
	struct getter g[4];
	struct rdma_cm_id *id[4];
	pthread_t t[4];

	for (int i = 0; i < 4; i++) {
		g[i] = (struct getter){ .ch = ch };
		t[i] = conf_thread(get_one, &g[i]);
	}
	WAIT_FOR(in_get == 4);
	for (int i = 0; i < 4; i++) {
		id[i] = conf_id(ch);
		cause(id[i]);
	}
	for (int i = 0; i < 4; i++) {
		conf_join(t[i]);
		EQ(g[i].ret, 0);
		for (int j = 0; j < i; j++)
			CHECK(g[j].ev->id != g[i].ev->id);
	}
	CHECK(!conf_readable(ch->fd));
	for (int i = 0; i < 4; i++)
		OK(rdma_ack_cm_event(g[i].ev));
	for (int i = 0; i < 4; i++)
		OK(rdma_destroy_id(id[i]));
	rdma_destroy_event_channel(ch);
}

static void fifo_across_ids(void)
{
	write_event_fn write_event = conf_original() ? NULL : conf_new("rdma_write_cm_event");
	struct rdma_event_channel *ch = conf_channel();
	struct rdma_cm_id *id[10];
	struct rdma_cm_event *ev;

	for (int i = 0; i < 10; i++) {
		id[i] = conf_id(ch);
		if (write_event)
			OK(write_event(id[i], CONF_EVENT_USER, 0, i));
		else
			cause(id[i]);
	}
	for (int i = 0; i < 10; i++) {
		MUST(ev = conf_next(ch, conf_ms(CONF_WAIT)));
		CHECK(ev->id == id[i]);
		OK(rdma_ack_cm_event(ev));
	}
	for (int i = 0; i < 10; i++)
		OK(rdma_destroy_id(id[i]));
	rdma_destroy_event_channel(ch);
}

static void ack_in_any_order(void)
{
	struct rdma_event_channel *ch = conf_channel();
	struct rdma_cm_id *id[4];
	struct rdma_cm_event *ev[4];

	for (int i = 0; i < 4; i++) {
		id[i] = conf_id(ch);
		cause(id[i]);
	}
	for (int i = 0; i < 4; i++)
		MUST(ev[i] = conf_next(ch, conf_ms(CONF_WAIT)));
	for (int i = 3; i >= 0; i--)
		OK(rdma_ack_cm_event(ev[i]));
	for (int i = 0; i < 4; i++)
		OK(rdma_destroy_id(id[i]));
	rdma_destroy_event_channel(ch);
}

static void *ack_thread(void *arg)
{
	OK(rdma_ack_cm_event(arg));
	return NULL;
}

static void ack_from_another_thread(void)
{
	struct rdma_event_channel *ch = conf_channel();
	struct rdma_cm_id *id = conf_id(ch);

	cause(id);
	conf_join(conf_thread(ack_thread,
			      conf_get(ch, id, RDMA_CM_EVENT_ADDR_RESOLVED)));
	conf_id_close(id);
}

/* Events do not leak to another channel. */
static void channels_are_separate(void)
{
	struct rdma_event_channel *a = conf_channel(), *b = conf_channel();
	struct rdma_cm_id *ida = conf_id(a), *idb = conf_id(b);

	cause(ida);
	wait_readable(a->fd);
	CHECK(!conf_readable(b->fd));
	cause(idb);
	conf_expect(b, idb, RDMA_CM_EVENT_ADDR_RESOLVED);
	conf_expect(a, ida, RDMA_CM_EVENT_ADDR_RESOLVED);
	OK(rdma_destroy_id(ida));
	OK(rdma_destroy_id(idb));
	rdma_destroy_event_channel(a);
	rdma_destroy_event_channel(b);
}

/* The race tests: 4 getters on 2 channels, 2 threads that migrate ids between
 * them while events are made. Each event must come out exactly once. */
enum { RACE_IDS = 4, RACE_STOP = 0x7fffffff };

static struct race {
	write_event_fn write_event;
	struct rdma_event_channel *ch[2];
	struct rdma_cm_id *id[RACE_IDS];
	pthread_mutex_t lock[RACE_IDS]; /* calls on one id are the application's to order */
	atomic_uchar *seen;
	unsigned total;
	atomic_uint fetched, migrations;
	atomic_bool stop;
} race;

static uint64_t event_arg(const struct rdma_cm_event *ev)
{
	uint64_t arg;

	memcpy(&arg, &ev->param, sizeof(arg));
	return arg;
}

static void *race_getter(void *arg)
{
	struct rdma_event_channel *ch = arg;
	struct rdma_cm_event *ev;
	uint64_t n;

	for (;;) {
		if (rdma_get_cm_event(ch, &ev))
			FAIL("rdma_get_cm_event: %s", strerror(errno));
		n = event_arg(ev);
		if ((int)ev->event != CONF_EVENT_USER || (n >= race.total && n != RACE_STOP))
			FAIL("unexpected %s, argument %llu", conf_event_name(ev->event),
			     (unsigned long long)n);
		if (rdma_ack_cm_event(ev))
			FAIL("rdma_ack_cm_event: %s", strerror(errno));
		if (n == RACE_STOP)
			return NULL;
		if (atomic_fetch_add(&race.seen[n], 1))
			FAIL("event %llu came twice", (unsigned long long)n);
		atomic_fetch_add(&race.fetched, 1);
	}
}

static void *race_migrator(void *arg)
{
	unsigned first = (uintptr_t)arg, to = 0;

	while (!race.stop) {
		to ^= 1;
		for (unsigned i = first; i < first + RACE_IDS / 2; i++) {
			pthread_mutex_lock(&race.lock[i]);
			if (rdma_migrate_id(race.id[i], race.ch[to]))
				FAIL("rdma_migrate_id: %s", strerror(errno));
			pthread_mutex_unlock(&race.lock[i]);
			atomic_fetch_add(&race.migrations, 1);
			sched_yield();
		}
	}
	return NULL;
}

/* Writes events first..last-1 to one id. */
static void race_write(unsigned i, uint64_t first, uint64_t last)
{
	pthread_mutex_lock(&race.lock[i]);
	for (; first < last; first++)
		if (race.write_event(race.id[i], CONF_EVENT_USER, 0, first))
			FAIL("rdma_write_cm_event: %s", strerror(errno));
	pthread_mutex_unlock(&race.lock[i]);
}

/* In bursts: the migrators hold the locks most of the time. They keep pace, also where the
 * processors are busy: 200 moves, spread over all events. */
static void race_produce(void)
{
	unsigned n = 0, last;

	for (unsigned i = 0; n < race.total; i++, n = last) {
		last = n + 1 + i % 64;
		if (last > race.total)
			last = race.total;
		race_write(i % RACE_IDS, n, last);
		while (n > race.fetched + 2000 ||
		       (uint64_t)race.migrations * race.total < 200ull * n)
			sched_yield();
	}
}

static void race_finish(pthread_t *getter, pthread_t *migrator)
{
	AT("waiting for the last of the events");
	WAIT_FOR(race.fetched == race.total);
	race.stop = true;
	for (int i = 0; i < 2; i++)
		conf_join(migrator[i]);
	for (int c = 0; c < 2; c++) {
		OK(rdma_migrate_id(race.id[c], race.ch[c]));
		race_write(c, RACE_STOP, RACE_STOP + 1ull);
		race_write(c, RACE_STOP, RACE_STOP + 1ull);
	}
	for (int i = 0; i < 4; i++)
		conf_join(getter[i]);
}

static void race_migrate_user_events(void)
{
	struct rdma_cm_event *ev;
	pthread_t getter[4], migrator[2];
	unsigned def = conf_rounds(100000, 1000000);

#ifdef CONF_SANITIZER
	def = 100000;
#endif
	race.write_event = conf_new("rdma_write_cm_event");
	race.total = conf_env("CONF_EVENTS", def);
	MUST(race.seen = calloc(race.total, 1));
	race.ch[0] = conf_channel();
	race.ch[1] = conf_channel();
	for (int i = 0; i < RACE_IDS; i++) {
		pthread_mutex_init(&race.lock[i], NULL);
		race.id[i] = conf_id(race.ch[i % 2]);
	}
	if (race.write_event(race.id[0], CONF_EVENT_USER, 0, 0))
		SKIP("this kernel cannot write events: %s", strerror(errno));
	conf_expect(race.ch[0], race.id[0], CONF_EVENT_USER);
	for (int i = 0; i < 4; i++)
		getter[i] = conf_thread(race_getter, race.ch[i % 2]);
	for (int i = 0; i < 2; i++)
		migrator[i] = conf_thread(race_migrator,
					  (void *)(uintptr_t)(i * RACE_IDS / 2));
	race_produce();
	race_finish(getter, migrator);
	CHECK(race.migrations > 100);
	for (int c = 0; c < 2; c++) {
		CHECK(!conf_readable(race.ch[c]->fd));
		conf_nonblock(race.ch[c]->fd, true);
		ERR(rdma_get_cm_event(race.ch[c], &ev), EAGAIN);
	}
	for (int i = 0; i < RACE_IDS; i++)
		OK(rdma_destroy_id(race.id[i]));
	rdma_destroy_event_channel(race.ch[0]);
	rdma_destroy_event_channel(race.ch[1]);
	free(race.seen);
}

/* The same with real events: an id resolves, moves, is destroyed. */
static void *resolve_getter(void *arg)
{
	struct rdma_event_channel *ch = arg;
	struct rdma_cm_event *ev;

	while (!race.stop) {
		struct pollfd p = { .fd = ch->fd, .events = POLLIN };

		if (poll(&p, 1, 20) != 1)
			continue;
		if (rdma_get_cm_event(ch, &ev)) {
			if (errno == EAGAIN)
				continue;
			FAIL("rdma_get_cm_event: %s", strerror(errno));
		}
		if (ev->event != RDMA_CM_EVENT_ADDR_RESOLVED)
			FAIL("got %s, status %d", conf_event_name(ev->event), ev->status);
		if (atomic_fetch_add((atomic_uint *)ev->id->context, 1))
			FAIL("an ADDR_RESOLVED came twice");
		OK(rdma_ack_cm_event(ev));
	}
	return NULL;
}

static void *resolve_migrator(void *arg)
{
	unsigned n = race.total / 2;
	atomic_uint done;
	struct rdma_cm_id *id;
	conf_sa dst = conf_addr(AF_INET, 7000);

	(void)arg;
	for (unsigned i = 0; i < n; i++) {
		done = 0;
		OK(rdma_create_id(race.ch[i % 2], &id, &done, RDMA_PS_TCP));
		OK(rdma_resolve_addr(id, NULL, SA(dst), 2000));
		OK(rdma_migrate_id(id, race.ch[(i + 1) % 2]));
		if (i % 4 != 3) /* every fourth is destroyed with its event on the way */
			WAIT_FOR(done);
		OK(rdma_destroy_id(id));
	}
	atomic_fetch_add(&race.migrations, 1);
	return NULL;
}

static void race_migrate_resolving_ids(void)
{
	pthread_t getter[4], migrator[2];

	race.total = conf_env("CONF_EVENTS", 2000);
	if (race.total > 2000)
		race.total = 2000;
	for (int i = 0; i < 2; i++) {
		race.ch[i] = conf_channel();
		conf_nonblock(race.ch[i]->fd, true);
	}
	for (int i = 0; i < 4; i++)
		getter[i] = conf_thread(resolve_getter, race.ch[i % 2]);
	for (int i = 0; i < 2; i++)
		migrator[i] = conf_thread(resolve_migrator, NULL);
	for (int i = 0; i < 2; i++)
		conf_join_(__FILE__, __LINE__, migrator[i], 30000);
	race.stop = true;
	for (int i = 0; i < 4; i++)
		conf_join(getter[i]);
	for (int i = 0; i < 2; i++) {
		CHECK(!conf_readable(race.ch[i]->fd));
		rdma_destroy_event_channel(race.ch[i]);
	}
}

static const struct conf_case cases[] = {
	CASE(create_destroy),
	CASE(many_channels),
	CASE(fd_is_close_on_exec),
	CASE(fd_starts_blocking),
	CASE(get_null_event_pointer),
	CASE(get_null_channel),
	CASE(ack_null),
	CASE(destroy_null),
	CASE(nonblocking_empty_is_eagain),
	CASE(nonblocking_gets_event),
	CASE(poll_level),
	CASE(never_hangs_up),
	CASE(never_writable),
	CASE(select_readable),
	CASE(epoll_level),
	CASE(epoll_edge),
	CASE(signal_gives_eintr),
	CASE(signal_with_sa_restart_goes_on),
	CASE(get_blocks_until_event),
	CASE(several_getters_one_event_each),
	CASE(fifo_across_ids),
	CASE(ack_in_any_order),
	CASE(ack_from_another_thread),
	CASE(channels_are_separate),
	LONG_CASE(race_migrate_user_events, 90),
	LONG_CASE(race_migrate_resolving_ids, 40),
};

CONF_MAIN(cases)
