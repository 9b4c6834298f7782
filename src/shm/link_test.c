/* SPDX-License-Identifier: BSD-2-Clause */
/* A full ring: streams and messages that wait for room get it, though nothing else is
 * sent. The test has both ends of the link and runs them itself; the loop thread runs
 * them only when the link posts work to it. */
#include "shm/link_rx.h"
#include "shm/greeting.h"
#include "rc/tx.h"
#include "shm/setup.h"
#include "tests/t.h"

#include <sys/epoll.h>
#include <sys/mman.h>

enum { ROUNDS = 500, PATIENCE_MS = 10000, CTLS = 3000 };

static struct link_segment *seg;
static struct link *from, *to; /* producer and consumer */
static int from_set, to_set;   /* epoll sets with their eventfds, as the loop has them */

static int set_of(const struct link *l)
{
	struct epoll_event ev = { .events = l->wake.events };
	int set = epoll_create1(EPOLL_CLOEXEC);

	/* The first event comes from being added. */
	if (epoll_ctl(set, EPOLL_CTL_ADD, l->wake.fd, &ev) ||
	    epoll_wait(set, &ev, 1, 0) != 1)
		abort();
	return set;
}

static void up(void)
{
	struct link_id id = { { 1, 2 } };
	struct link_fds fds[2];

	seg = link_segment_map(-1);
	for (int i = 0; i < 2; i++) {
		fds[i].wake = greeting_wake_new(&fds[!i].peer_wake);
		fds[i].sock = -1;
	}
	if (!seg || link_new(seg, 0, &id, &fds[0], &from) ||
	    link_new(seg, 1, &id, &fds[1], &to))
		abort();
	from_set = set_of(from);
	to_set = set_of(to);
}

/* After the work that was posted to the loop thread is done. */
static void down(void)
{
	CHECK(T_WAIT(atomic_load(&from->refs) == 1 && atomic_load(&to->refs) == 1,
		     PATIENCE_MS));
	close(from_set);
	close(to_set);
	close(from->wake.fd);
	close(to->wake.fd);
	link_put(from);
	link_put(to);
	munmap(seg, sizeof(*seg));
}

/* For a slot without a stream: it is received and ignored. */
static const struct rec_link announce = { .type = LINK_ANNOUNCE, .slot = 7 };

/* The loop thread would have been woken since the last call, or since up(). */
static bool woken(struct link *l, int ms)
{
	struct epoll_event ev;

	return epoll_wait(l == from ? from_set : to_set, &ev, 1, ms) == 1;
}

static void update_sleep(struct link *l)
{
	lock_get(&l->rx_lock);
	link_update_sleep(l);
	lock_put(&l->rx_lock);
}

static void consume_all(void)
{
	while (link_run(to, true))
		;
}

static void send_until_some_wait(void)
{
	while (!atomic_load(&from->tx_waiting))
		CHECK_EQ(link_send(from, &announce), 0);
}

/* As a stream does that finds room: it does not know that others wait. */
static void fill_the_ring(void)
{
	void *at;

	lock_get(&from->tx_lock);
	while ((at = ring_reserve(&from->tx, sizeof(announce)))) {
		memcpy(at, &announce, sizeof(announce));
		ring_publish(&from->tx, sizeof(announce), REC_LINK);
	}
	lock_put(&from->tx_lock);
}

static void a_waiting_producer_is_woken(void)
{
	up();
	update_sleep(from);
	send_until_some_wait();
	CHECK(!woken(from, 0));
	consume_all();
	CHECK(woken(from, 0));
	link_run(from, true);
	CHECK(!atomic_load(&from->tx_waiting));
	down();
}

/* The consumer clears producer_waits while the producer's thread is awake, and another
 * has used the room when that thread checks once more before it sleeps. */
static void another_uses_the_room(void)
{
	up();
	send_until_some_wait();
	while (atomic_load(&from->tx.sh->producer_waits))
		CHECK(link_run(to, true));
	CHECK(!woken(from, 0)); /* it is awake */
	fill_the_ring();
	update_sleep(from);
	CHECK(!woken(from, 0)); /* there is no room */
	consume_all();
	CHECK(woken(from, 0));
	link_run(from, true);
	CHECK(!atomic_load(&from->tx_waiting));
	down();
}

static _Atomic bool stop;

/* What the loop thread does for a link. */
static void *loop_thread(void *arg)
{
	struct link *l = arg;

	while (!atomic_load(&stop))
		if (woken(l, 1))
			link_wake_ready(&l->wake, EPOLLIN);
	return NULL;
}

static bool queue_is_sent(void)
{
	uint64_t end = loop_now() + t_scaled(PATIENCE_MS) * MSEC;

	while (atomic_load(&from->tx_waiting) && loop_now() < end)
		;
	return !atomic_load(&from->tx_waiting);
}

/* As often as possible at the same time as the consumer's last check. */
static void no_wakeup_is_lost(void)
{
	pthread_t th[2];
	int i;

	up();
	atomic_store(&stop, false);
	update_sleep(from);
	update_sleep(to);
	pthread_create(&th[0], NULL, loop_thread, from);
	pthread_create(&th[1], NULL, loop_thread, to);
	for (i = 0; i < ROUNDS; i++) {
		/* More than fits: in the end some messages wait, or have waited. */
		for (int k = 0; k < RING_LINES; k++)
			CHECK_EQ(link_send(from, &announce), 0);
		if (!queue_is_sent())
			break;
	}
	CHECK_EQ(i, ROUNDS);
	atomic_store(&stop, true);
	pthread_join(th[0], NULL);
	pthread_join(th[1], NULL);
	down();
}

/* A stream with more to send than fits the ring. */
static struct stream *busy_stream(void)
{
	struct stream_param p = { .extended = true };
	struct rc_frame h = { .op = RC_CTL, .last = true };
	struct shm_stream *t = shm_new(&p);
	struct stream *s = &t->s;

	if (!t || link_slot_alloc(from, s))
		abort();
	to_shm(s)->started = to_shm(s)->opened = true;
	h.ctl.type = CTL_USER;
	h.ctl.len = RC_CTL_DATA;
	lock_get(&s->lock);
	for (int i = 0; i < CTLS; i++)
		tx_ctl(s, &h);
	tx_run(s);
	stream_unlock(s);
	return s;
}

static void busy_stream_end(struct stream *s)
{
	link_slot_free(from, to_shm(s)->slot, false);
	link_put(from);
	shm_drop(s);
}

static uint64_t sent(const struct stream *s)
{
	return CTLS - s->tx.nctl;
}

static void every_stream_has_a_turn(void)
{
	enum { N = 3 };
	uint64_t before[N];
	struct stream *s[N];

	up();
	for (int i = 0; i < N; i++)
		s[i] = busy_stream();
	CHECK(sent(s[0]) && !sent(s[1]) && !sent(s[2]));
	for (int i = 0; i < 2 * N; i++) {
		for (int k = 0; k < N; k++)
			before[k] = sent(s[k]);
		consume_all();
		link_run(from, true);
		for (int k = 0; k < N; k++)
			CHECK_EQ(sent(s[k]) > before[k], k == i % N);
	}
	for (int i = 0; i < N; i++)
		busy_stream_end(s[i]);
	down();
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(a_waiting_producer_is_woken);
	T_RUN(another_uses_the_room);
	T_RUN(no_wakeup_is_lost);
	T_RUN(every_stream_has_a_turn);
	return t_done();
}
