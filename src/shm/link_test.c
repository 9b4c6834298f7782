/* SPDX-License-Identifier: BSD-2-Clause */
/* A full ring: whoever waits for room gets some, though nobody else says anything. Both ends
 * are here, and the loop looks only when they ask for it: else the test decides who looks. */
#include "shm/link_rx.h"
#include "shm/greeting.h"
#include "rc/tx.h"
#include "shm/setup.h"
#include "tests/t.h"

#include <sys/epoll.h>
#include <sys/mman.h>

enum { ROUNDS = 500, PATIENCE_MS = 10000, CTLS = 3000 };

static struct link_segment *seg;
static struct link *from, *to; /* the messages go from here to there */
static int from_set, to_set;   /* what the loop has for them */

static int set_of(const struct link *l)
{
	struct epoll_event ev = { .events = l->wake.events };
	int set = epoll_create1(EPOLL_CLOEXEC);

	/* The first event is that of being added. */
	if (epoll_ctl(set, EPOLL_CTL_ADD, l->wake.fd, &ev) || epoll_wait(set, &ev, 1, 0) != 1)
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

/* What they have posted to the loop thread is done. */
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

/* Nobody has the slot, so nothing comes of it. */
static const struct rec_link announce = { .type = LINK_ANNOUNCE, .slot = 7 };

/* As the loop thread would be: since the last look, or since up(). */
static bool woken(struct link *l, int ms)
{
	struct epoll_event ev;

	return epoll_wait(l == from ? from_set : to_set, &ev, 1, ms) == 1;
}

static void reconsider(struct link *l)
{
	lock_get(&l->rx_lock);
	link_reconsider(l);
	lock_put(&l->rx_lock);
}

static void eat_all(void)
{
	while (link_run(to, true))
		;
}

static void send_until_some_wait(void)
{
	while (!atomic_load(&from->waits))
		CHECK_EQ(link_send(from, &announce), 0);
}

/* As a stream does that has the room for all that it has to say, and does not care who waits. */
static void take_the_room(void)
{
	void *at;

	lock_get(&from->tx_lock);
	while ((at = ring_reserve(&from->tx, sizeof(announce)))) {
		memcpy(at, &announce, sizeof(announce));
		ring_publish(&from->tx, sizeof(announce), REC_LINK);
	}
	lock_put(&from->tx_lock);
}

static void who_waits_is_woken(void)
{
	up();
	reconsider(from);
	send_until_some_wait();
	CHECK(!woken(from, 0));
	eat_all();
	CHECK(woken(from, 0));
	link_run(from, true);
	CHECK(!atomic_load(&from->waits));
	down();
}

/* The consumer's word that there is room comes while the producer's thread is awake, and
 * another has taken the room when that thread looks once more before it sleeps. */
static void the_room_is_taken_by_another(void)
{
	up();
	send_until_some_wait();
	while (atomic_load(&from->tx.sh->full))
		CHECK(link_run(to, true));
	CHECK(!woken(from, 0)); /* it is awake */
	take_the_room();
	reconsider(from);
	CHECK(!woken(from, 0)); /* there is none */
	eat_all();
	CHECK(woken(from, 0));
	link_run(from, true);
	CHECK(!atomic_load(&from->waits));
	down();
}

static _Atomic bool stop;

/* What the loop thread does for a link. */
static void *looks(void *arg)
{
	struct link *l = arg;

	while (!atomic_load(&stop))
		if (woken(l, 1))
			link_wake_ready(&l->wake, EPOLLIN);
	return NULL;
}

static bool waits_no_more(void)
{
	uint64_t end = loop_now() + t_scaled(PATIENCE_MS) * MSEC;

	while (atomic_load(&from->waits) && loop_now() < end)
		;
	return !atomic_load(&from->waits);
}

/* As often as possible at once with the consumer's last look. */
static void nobody_is_forgotten(void)
{
	pthread_t th[2];
	int i;

	up();
	atomic_store(&stop, false);
	reconsider(from);
	reconsider(to);
	pthread_create(&th[0], NULL, looks, from);
	pthread_create(&th[1], NULL, looks, to);
	for (i = 0; i < ROUNDS; i++) {
		/* More than fits: at its end some wait, or have waited. */
		for (int k = 0; k < RING_LINES; k++)
			CHECK_EQ(link_send(from, &announce), 0);
		if (!waits_no_more())
			break;
	}
	CHECK_EQ(i, ROUNDS);
	atomic_store(&stop, true);
	pthread_join(th[0], NULL);
	pthread_join(th[1], NULL);
	down();
}

/* With more to say than fits into the ring. */
static struct stream *talker(void)
{
	struct stream_param p = { .extended = true };
	struct rc_frame h = { .op = RC_CTL, .last = true };
	struct shm_stream *t = shm_new(&p);
	struct stream *s = &t->s;

	if (!t || link_slot_take(from, s))
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

static void talker_end(struct stream *s)
{
	link_slot_drop(from, to_shm(s)->slot, false);
	link_put(from);
	shm_drop(s);
}

static uint64_t sent(const struct stream *s)
{
	return CTLS - s->tx.nctl;
}

static void everybody_has_a_turn(void)
{
	enum { N = 3 };
	uint64_t said[N];
	struct stream *s[N];

	up();
	for (int i = 0; i < N; i++)
		s[i] = talker();
	CHECK(sent(s[0]) && !sent(s[1]) && !sent(s[2]));
	for (int i = 0; i < 2 * N; i++) {
		for (int k = 0; k < N; k++)
			said[k] = sent(s[k]);
		eat_all();
		link_run(from, true);
		for (int k = 0; k < N; k++)
			CHECK_EQ(sent(s[k]) > said[k], k == i % N);
	}
	for (int i = 0; i < N; i++)
		talker_end(s[i]);
	down();
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(who_waits_is_woken);
	T_RUN(the_room_is_taken_by_another);
	T_RUN(nobody_is_forgotten);
	T_RUN(everybody_has_a_turn);
	return t_done();
}
