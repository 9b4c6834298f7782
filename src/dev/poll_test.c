/* SPDX-License-Identifier: BSD-2-Clause */
/* Poll groups and their leases, with streams that exist in this file alone. The loop of
 * base/loop.c is replaced by one without a thread and without a clock: it does something
 * only when a case says so (loop_turn(), timer_fire()), in the case's own thread. */
#include "tests/t.h"

#include "dev/fake_transport.h"
#include "dev/poll.h"

#include "base/loop.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/* ---- the loop --------------------------------------------------------------------- */

static struct {
	struct loop_fd *fd[16];
	struct loop_timer *timer; /* pending, or NULL */
	bool running;
} loop;

int loop_fd_add(struct loop_fd *lf)
{
	for (int i = 0; i < 16; i++)
		if (!loop.fd[i]) {
			lf->gone = false;
			loop.fd[i] = lf;
			return 0;
		}
	return -ENOMEM;
}

int loop_fd_mod(struct loop_fd *lf, uint32_t events)
{
	lf->events = events;
	return 0;
}

void loop_fd_del(struct loop_fd *lf, void (*done)(struct loop_fd *lf))
{
	lf->gone = true;
	lf->done = done;
}

bool loop_timer_set(struct loop_timer *t, uint64_t when)
{
	bool was = t->pending;

	CHECK(!loop.timer || loop.timer == t);
	loop.timer = t;
	t->when = when;
	t->pending = true;
	return !was;
}

bool loop_timer_stop(struct loop_timer *t)
{
	bool was = t->pending;

	t->pending = false;
	if (loop.timer == t)
		loop.timer = NULL;
	return was;
}

bool loop_post(struct loop_work *w)
{
	(void)w;
	CHECK(!"work for the loop");
	return false;
}

void loop_on_lost(void (*fn)(void))
{
	(void)fn;
}

bool loop_check(void)
{
	return true;
}

bool loop_lost(bool *all)
{
	*all = false;
	return false;
}

void loop_run_at_exit(void (*run)(void), uint64_t ns)
{
	(void)run;
	(void)ns;
}

bool loop_here(void)
{
	return loop.running;
}

void loop_child(void)
{
}

/* Calls those whose descriptors are ready and which want to know, once; and ends those
 * that were deleted. */
static void loop_turn(void)
{
	loop.running = true;
	for (int i = 0; i < 16; i++) {
		struct loop_fd *lf = loop.fd[i];
		struct pollfd p = { .fd = lf ? lf->fd : -1, .events = POLLIN };

		if (lf && lf->gone) {
			loop.fd[i] = NULL;
			if (lf->done)
				lf->done(lf);
		} else if (lf && lf->events && poll(&p, 1, 0) == 1) {
			lf->ready(lf, EPOLLIN);
		}
	}
	loop.running = false;
}

/* The time of the pending timer has come. */
static void timer_fire(void)
{
	struct loop_timer *t = loop.timer;

	if (!CHECK(t))
		return;
	loop.timer = NULL;
	t->pending = false;
	loop.running = true;
	t->fire(t);
	loop.running = false;
}

/* ---- streams ---------------------------------------------------------------------- */

/* A stream on the receive CQ of r: every message that it progresses becomes a
 * completion. */
struct stream {
	struct poll_source src;
	struct rig *r;
	int peer;	/* the other end of its socket: a byte is a message; -1: a ring */
	int waiting;	/* messages in its ring */
	bool idle;	/* what idle() answers */
	int owed;	/* so many calls of progress() leave something owed */
	int follow;	/* so many messages come while progress() handles one */
	bool late;	/* a message comes while the lease is taken back */
	/* what has been seen */
	int by_poller, by_thread, asked, given, taken;
	bool leased;
};

static void message(struct stream *s)
{
	if (s->peer < 0)
		s->waiting++;
	else
		CHECK_EQ(write(s->peer, "m", 1), 1);
}

static bool receive(struct stream *s)
{
	char byte;

	if (s->peer >= 0)
		return recv(s->src.fd, &byte, 1, MSG_DONTWAIT) == 1;
	return s->waiting && s->waiting--;
}

static void complete(struct rig *r)
{
	struct dev_qp *qp = to_qp(r->qp);
	struct cqe e = { .wc = { .status = IBV_WC_SUCCESS }, .qp = qp };

	lock_get(&qp->lock);
	CHECK_EQ(cq_push(to_cq(r->rcq), &e, false), 0);
	lock_put(&qp->lock);
}

static bool stream_progress(struct poll_source *src, bool by_thread)
{
	struct stream *s = container_of(src, struct stream, src);
	bool moved = receive(s);

	*(by_thread ? &s->by_thread : &s->by_poller) += 1;
	if (moved)
		complete(s->r);
	if (moved && s->follow) {
		s->follow--;
		message(s);
	}
	src->again = s->owed > 0;
	s->owed -= src->again;
	return moved;
}

static bool stream_idle(struct poll_source *src)
{
	struct stream *s = container_of(src, struct stream, src);

	s->asked++;
	return s->idle;
}

static void stream_lease(struct poll_source *src, bool leased)
{
	struct stream *s = container_of(src, struct stream, src);

	*(leased ? &s->given : &s->taken) += 1;
	s->leased = leased;
	if (!leased && s->late) {
		s->late = false;
		message(s);
	}
}

static void seen_nothing(struct stream *s)
{
	s->by_poller = s->by_thread = s->asked = s->given = s->taken = 0;
}

static void add(struct stream *s, struct rig *r, struct ibv_cq *cq, bool ring)
{
	int sv[2] = { -1, -1 };

	if (!ring)
		CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
	*s = (struct stream){
		.src = { .fd = sv[0], .progress = stream_progress, .idle = stream_idle,
			 .lease = stream_lease },
		.r = r,
		.peer = sv[1],
	};
	CHECK_EQ(poll_add(to_cq(cq), &s->src), 0);
	if (!ring)
		CHECK_EQ(poll_mod(&s->src, EPOLLIN), 0);
}

static void del(struct stream *s)
{
	poll_del(&s->src);
	if (s->peer < 0)
		return;
	close(s->src.fd);
	close(s->peer);
}

/* ---- a group ---------------------------------------------------------------------- */

static struct rig r;
static struct stream ring, sock; /* both on r.rcq */

static bool up(void)
{
	if (!rig_up(&r, (struct rig_opt){ .cqe = 64 }))
		return false;
	add(&ring, &r, r.rcq, true);
	add(&sock, &r, r.rcq, false);
	return true;
}

/* Nothing is left: the timer, if it is pending, finds no lease and is not set again. */
static void end(void)
{
	rig_down(&r);
	loop_turn(); /* ends the groups */
	if (loop.timer)
		timer_fire();
	CHECK(!loop.timer);
}

static void down(void)
{
	del(&ring);
	del(&sock);
	end();
}

/* The loop's view of the group of sock: it watches the group's descriptors. */
static bool watched(void)
{
	struct loop_fd *last = NULL;

	for (int i = 0; i < 16; i++)
		if (loop.fd[i] && !loop.fd[i]->gone)
			last = loop.fd[i];
	return CHECK(last) && last->events & EPOLLIN;
}

/* Completions that a poll finds. */
static int polled(struct ibv_cq *cq)
{
	struct ibv_wc wc[64];

	return ibv_poll_cq(cq, 64, wc);
}

/* Polls until the group is leased; returns how often, -1: it never was. */
static int poll_to_lease(struct ibv_cq *cq)
{
	for (int n = 1; n <= 1000; n++) {
		CHECK_EQ(polled(cq), 0);
		if (ring.leased)
			return n;
	}
	return -1;
}

/* The timer looks twice: once it finds the polls of before, then none. */
static void timer_takes_back(void)
{
	timer_fire();
	CHECK(ring.leased);
	timer_fire();
	CHECK(!ring.leased);
}

static bool fired(void)
{
	struct pollfd p = { .fd = r.ch->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;

	if (poll(&p, 1, 0) != 1)
		return false;
	CHECK_EQ(ibv_get_cq_event(r.ch, &cq, &context), 0);
	ibv_ack_cq_events(cq, 1);
	return true;
}

/* ---- begin and end of a lease ----------------------------------------------------- */

/* An event-driven program polls once or twice before it sleeps: no lease for
 * that. */
static void after_a_few_empty_polls(void)
{
	int n;

	REQUIRE(up());
	CHECK(watched() && !ring.leased);
	n = poll_to_lease(r.rcq);
	CHECK(n > 2 && n <= 32);
	CHECK_EQ(ring.given, 1);
	CHECK(!watched());
	CHECK_EQ(sock.by_poller, n); /* every poll progresses each stream */
	CHECK_EQ(sock.by_thread, 0);
	message(&sock);
	loop_turn(); /* the thread does not look at it */
	CHECK_EQ(sock.by_thread, 0);
	CHECK_EQ(polled(r.rcq), 1);
	down();
}

/* Each look of the timer that finds new polls leaves the lease. It comes every 2 ms for
 * those who owe something, */
static void while_polls_come(void)
{
	uint64_t before;

	REQUIRE(up());
	CHECK(poll_to_lease(r.rcq) > 0);
	for (unsigned i = 0; i < 12; i++) {
		before = loop_now();
		timer_fire();
		REQUIRE(loop.timer);
		CHECK(loop.timer->when >= before + 2 * MSEC);
		CHECK(loop.timer->when <= loop_now() + 2 * MSEC);
		CHECK(ring.leased && !watched());
		CHECK_EQ(polled(r.rcq), 0);
	}
	CHECK_EQ(ring.taken, 0);
	CHECK_EQ(ring.by_thread, 0);
	down();
}

/* ... and looks for polls less and less often, up to every 8 ms: after 1, 3, 7, 15, 23. */
static void as_long_as_a_few_polls_come(void)
{
	static const bool looks[] = { 1, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1 };

	REQUIRE(up());
	CHECK(poll_to_lease(r.rcq) > 0);
	for (unsigned i = 0; i < sizeof(looks); i++) {
		timer_fire();
		CHECK(ring.leased);
		if (looks[i])
			CHECK_EQ(polled(r.rcq), 0);
	}
	for (unsigned i = 0; i < 2 * 4; i++) { /* sees the last poll, then none */
		CHECK(ring.leased);
		timer_fire();
	}
	CHECK(!ring.leased);
	down();
}

/* Whoever waits for an acknowledgement does not wait for the next poll. */
static void owed_by_one_who_polls_rarely(void)
{
	REQUIRE(up());
	CHECK(poll_to_lease(r.rcq) > 0);
	for (int i = 0; i < 12; i++) {
		ring.owed = 1;
		message(&ring);
		CHECK_EQ(polled(r.rcq), 1);
		seen_nothing(&ring);
		timer_fire();
		CHECK_EQ(ring.by_thread, 1);
		CHECK(ring.leased);
		CHECK_EQ(polled(r.rcq), 0);
		timer_fire();
		CHECK_EQ(ring.by_thread, 1); /* nothing is owed any more */
	}
	down();
}

static void until_the_timer_takes_it_back(void)
{
	REQUIRE(up());
	CHECK(poll_to_lease(r.rcq) > 0);
	message(&ring); /* nobody polls for it any more */
	seen_nothing(&ring);
	timer_takes_back();
	CHECK(watched());
	CHECK_EQ(ring.taken, 1);
	CHECK_EQ(ring.by_thread, 1); /* what had come is brought */
	CHECK(!loop.timer);	     /* no lease, no timer */
	CHECK_EQ(polled(r.rcq), 1);
	message(&sock);
	loop_turn();
	CHECK_EQ(sock.by_thread, 2);
	CHECK_EQ(polled(r.rcq), 1);
	down();
}

/* A lease that ran out with something to read cost somebody time: the next one has to
 * wait, for twice as long each time. */
static void not_soon_after_one_that_was_of_no_use(void)
{
	REQUIRE(up());
	CHECK(poll_to_lease(r.rcq) > 0);
	for (uint64_t ms = 16; ms <= 32; ms *= 2) {
		uint64_t from;

		message(&ring);
		from = loop_now();
		timer_takes_back();
		CHECK_EQ(polled(r.rcq), 1);
		while (!ring.leased)
			CHECK_EQ(polled(r.rcq), 0);
		CHECK(loop_now() >= from + ms * MSEC);
	}
	down();
}

/* ---- arming ----------------------------------------------------------------------- */

static void arming_gives_it_back_at_once(void)
{
	REQUIRE(up());
	CHECK(poll_to_lease(r.rcq) > 0);
	message(&ring);
	message(&sock);
	CHECK_EQ(ibv_req_notify_cq(r.rcq, 0), 0);
	CHECK(!ring.leased && watched());
	CHECK(fired()); /* what had come before the call is there */
	CHECK_EQ(polled(r.rcq), 2);
	CHECK_EQ(ibv_req_notify_cq(r.rcq, 0), 0);
	message(&sock);
	loop_turn();
	CHECK(fired());
	CHECK_EQ(polled(r.rcq), 1);
	seen_nothing(&ring);
	timer_fire(); /* of the lease that is over */
	CHECK_EQ(ring.taken + ring.by_thread, 0);
	down();
}

static void armed_group_is_not_leased(void)
{
	REQUIRE(up());
	ibv_req_notify_cq(r.rcq, 0);
	CHECK_EQ(poll_to_lease(r.rcq), -1);
	CHECK(watched());
	message(&sock);
	loop_turn();
	CHECK(fired()); /* it is not armed any more */
	CHECK_EQ(polled(r.rcq), 1);
	CHECK(poll_to_lease(r.rcq) > 0);
	down();
}

/* A message may come at any moment of the call: the application is woken. */
static void no_wake_up_is_lost(void)
{
	REQUIRE(up());
	for (int leased = 0; leased < 2; leased++) {
		/* Between the last poll and the call. */
		if (leased)
			CHECK(poll_to_lease(r.rcq) > 0);
		message(&ring);
		ibv_req_notify_cq(r.rcq, 0);
		CHECK(fired());
		CHECK_EQ(polled(r.rcq), 1);
		ibv_req_notify_cq(r.rcq, 0);
		message(&sock);
		loop_turn();
		CHECK(fired()); /* it is not armed any more */
		CHECK_EQ(polled(r.rcq), 1);
		/* When the call has looked at the stream, and not armed the CQ yet. */
		if (leased)
			CHECK(poll_to_lease(r.rcq) > 0);
		message(&sock);
		sock.follow = 1;
		ibv_req_notify_cq(r.rcq, 0);
		loop_turn();
		CHECK(fired());
		CHECK_EQ(polled(r.rcq), 2);
	}
	/* While the ring is told that pollers do not look at it any more: the CQ is
	 * armed. */
	CHECK(poll_to_lease(r.rcq) > 0);
	ring.late = true;
	ibv_req_notify_cq(r.rcq, 0);
	CHECK(fired());
	CHECK_EQ(polled(r.rcq), 1);
	down();
}

/* ---- members ---------------------------------------------------------------------- */

static void streams_come_and_go(void)
{
	struct stream second, third;

	REQUIRE(up());
	CHECK(poll_to_lease(r.rcq) > 0);
	add(&second, &r, r.rcq, true);
	CHECK(second.leased); /* it hears of the lease that is there */
	add(&third, &r, r.rcq, false);
	message(&second);
	message(&third);
	CHECK_EQ(polled(r.rcq), 2);
	del(&second);
	del(&third);
	seen_nothing(&second);
	seen_nothing(&third);
	CHECK_EQ(polled(r.rcq), 0);
	timer_takes_back();
	CHECK_EQ(second.by_poller + second.by_thread + second.taken, 0);
	CHECK_EQ(third.by_poller + third.by_thread, 0);
	down();
}

/* The CQ goes while its group is leased: the timer finds nothing. */
static void group_goes_with_its_lease(void)
{
	REQUIRE(up());
	CHECK(poll_to_lease(r.rcq) > 0);
	CHECK(loop.timer);
	down();
}

/* ---- groups that are linked ------------------------------------------------------- */

/* A QP's send CQ polls for the group of its receive CQ. */
static void send_cq_polls_for_the_receive_cq(void)
{
	REQUIRE(up());
	CHECK(poll_to_lease(r.scq) > 0);
	CHECK(!watched());
	message(&sock);
	CHECK_EQ(polled(r.scq), 0); /* the completion is the other CQ's */
	CHECK_EQ(polled(r.rcq), 1);
	ibv_req_notify_cq(r.scq, 0);
	CHECK(!ring.leased && watched());
	CHECK_EQ(poll_to_lease(r.rcq), -1); /* one of them is armed */
	down();
}

/* As with XRC: two CQs poll for one group, which is neither's own. */
static void two_cqs_link_to_one_group(void)
{
	struct ibv_cq *cq[2];

	REQUIRE(up());
	for (int i = 0; i < 2; i++) {
		cq[i] = ibv_create_cq(r.ctx, 16, NULL, r.ch, 0);
		REQUIRE(cq[i]);
		CHECK_EQ(poll_link(to_cq(cq[i]), to_cq(r.rcq)), 0);
	}
	CHECK(poll_to_lease(cq[0]) > 0);
	seen_nothing(&ring);
	CHECK_EQ(polled(cq[1]), 0);
	CHECK_EQ(ring.asked + ring.by_poller, 1); /* either's poll looks there */
	timer_fire();
	CHECK_EQ(polled(cq[1]), 0);
	timer_fire(); /* ... and keeps the lease that the other one took */
	CHECK(ring.leased);
	message(&ring);
	ibv_req_notify_cq(cq[1], 0);
	CHECK(!ring.leased && watched());
	CHECK_EQ(polled(r.rcq), 1);
	CHECK_EQ(poll_to_lease(cq[0]), -1); /* while the other one is armed */
	poll_unlink(to_cq(cq[1]), to_cq(r.rcq));
	CHECK(poll_to_lease(cq[0]) > 0);
	poll_unlink(to_cq(cq[0]), to_cq(r.rcq));
	seen_nothing(&ring);
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(polled(cq[i]), 0);
		CHECK_EQ(ibv_destroy_cq(cq[i]), 0);
	}
	CHECK_EQ(ring.asked + ring.by_poller, 0);
	timer_fire();
	timer_fire(); /* nobody polls for it now */
	CHECK(!ring.leased);
	down();
}

/* ---- what a stream says of itself ------------------------------------------------- */

/* Of more streams than are read one by one, only those that are ready or owe
 * something. */
static void something_owed_is_paid_by_the_next_pass(void)
{
	struct stream many[6];

	REQUIRE(up());
	for (int i = 0; i < 6; i++)
		add(&many[i], &r, r.rcq, false);
	CHECK_EQ(polled(r.rcq), 0);
	CHECK_EQ(many[1].by_poller, 0); /* nothing to read */
	many[0].owed = 2;
	message(&many[0]);
	CHECK_EQ(polled(r.rcq), 1); /* owes now */
	CHECK_EQ(many[0].by_poller, 1);
	CHECK_EQ(polled(r.rcq), 0); /* ... still */
	CHECK_EQ(many[0].by_poller, 2);
	CHECK_EQ(polled(r.rcq), 0); /* has paid */
	CHECK_EQ(polled(r.rcq), 0);
	CHECK_EQ(many[0].by_poller, 3);
	/* A poller may not come back: the timer has the thread pay. */
	REQUIRE(loop.timer);
	many[0].owed = 1;
	message(&many[0]);
	CHECK_EQ(polled(r.rcq), 1);
	timer_fire();
	CHECK_EQ(many[0].by_thread, 1);
	CHECK_EQ(many[1].by_thread, 0);
	timer_fire(); /* and has all, as nobody polls */
	CHECK_EQ(many[0].by_thread, 2);
	CHECK_EQ(many[1].by_thread, 1);
	/* Nor will one who arms. */
	many[0].owed = 1;
	message(&many[0]);
	CHECK_EQ(polled(r.rcq), 1);
	many[0].by_thread = 0;
	ibv_req_notify_cq(r.rcq, 0);
	CHECK_EQ(many[0].by_thread, 1);
	for (int i = 0; i < 6; i++)
		del(&many[i]);
	down();
}

/* In the middle of much data the thread waits for the next piece for some
 * microseconds. */
static void much_data_is_waited_for(void)
{
	for (int bulk = 0; bulk < 2; bulk++) {
		int n;

		REQUIRE(up());
		sock.src.bulk = bulk;
		sock.follow = 2;
		message(&sock);
		loop_turn();
		CHECK(bulk ? sock.by_thread >= 2 : sock.by_thread == 1);
		n = sock.by_thread;
		while (sock.follow || n < 3) { /* the rest comes in later turns */
			loop_turn();
			CHECK(sock.by_thread > n);
			n = sock.by_thread;
		}
		CHECK_EQ(n, 3);
		CHECK_EQ(polled(r.rcq), 3);
		down();
	}
}

/* Rings that say that there is nothing are left alone, by pollers with a lease. */
static void idle_rings_are_left_alone(void)
{
	REQUIRE(rig_up(&r, (struct rig_opt){ .cqe = 64 }));
	add(&ring, &r, r.rcq, true);
	ring.idle = true;
	CHECK(poll_to_lease(r.rcq) > 0);
	CHECK(ring.by_poller > 0);
	CHECK_EQ(ring.asked, 0); /* it counts with a lease alone */
	seen_nothing(&ring);
	CHECK_EQ(polled(r.rcq), 0);
	CHECK_EQ(ring.asked, 1);
	CHECK_EQ(ring.by_poller, 0);
	message(&ring);
	ring.idle = false;
	CHECK_EQ(polled(r.rcq), 1);
	/* What is to be done again is done, even if idle() says that there is nothing. */
	ring.owed = 1;
	message(&ring);
	CHECK_EQ(polled(r.rcq), 1);
	ring.idle = true;
	seen_nothing(&ring);
	CHECK_EQ(polled(r.rcq), 0);
	CHECK_EQ(ring.by_poller, 1);
	CHECK_EQ(polled(r.rcq), 0);
	CHECK_EQ(ring.by_poller, 1);
	timer_takes_back();
	CHECK(ring.by_thread); /* nobody asks then, either */
	del(&ring);
	end();
}

/* While a ring brings what comes, descriptors are asked rarely, and do get their turn. */
static void descriptors_rest_beside_a_busy_ring(void)
{
	REQUIRE(up());
	CHECK(poll_to_lease(r.rcq) > 0);
	message(&ring);
	CHECK_EQ(polled(r.rcq), 1);
	message(&sock);
	CHECK_EQ(polled(r.rcq), 0);
	CHECK(T_WAIT(polled(r.rcq) == 1, 10000));
	message(&sock); /* now it is the one that brings something */
	CHECK_EQ(polled(r.rcq), 1);
	down();
}

static atomic_bool inside, leave;

static bool slow_progress(struct poll_source *s, bool by_thread)
{
	(void)s;
	(void)by_thread;
	atomic_store(&inside, true);
	while (!atomic_load(&leave))
		sched_yield();
	return false;
}

static void *poller(void *arg)
{
	CHECK_EQ(polled(arg), 0);
	return NULL;
}

/* A second poller of a group does not wait for the first: neither of the same CQ nor of
 * one that is linked to it. */
static void pollers_do_not_wait_for_each_other(void)
{
	pthread_t t;

	REQUIRE(up());
	ring.src.progress = slow_progress;
	REQUIRE(!pthread_create(&t, NULL, poller, r.rcq));
	CHECK(T_WAIT(atomic_load(&inside), 10000));
	CHECK_EQ(polled(r.rcq), 0);
	CHECK_EQ(polled(r.scq), 0);
	atomic_store(&leave, true);
	CHECK_EQ(pthread_join(t, NULL), 0);
	ring.src.progress = stream_progress;
	down();
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(after_a_few_empty_polls);
	T_RUN(while_polls_come);
	T_RUN(as_long_as_a_few_polls_come);
	T_RUN(owed_by_one_who_polls_rarely);
	T_RUN(until_the_timer_takes_it_back);
	T_RUN(not_soon_after_one_that_was_of_no_use);
	T_RUN(arming_gives_it_back_at_once);
	T_RUN(armed_group_is_not_leased);
	T_RUN(no_wake_up_is_lost);
	T_RUN(streams_come_and_go);
	T_RUN(group_goes_with_its_lease);
	T_RUN(send_cq_polls_for_the_receive_cq);
	T_RUN(two_cqs_link_to_one_group);
	T_RUN(something_owed_is_paid_by_the_next_pass);
	T_RUN(much_data_is_waited_for);
	T_RUN(idle_rings_are_left_alone);
	T_RUN(descriptors_rest_beside_a_busy_ring);
	T_RUN(pollers_do_not_wait_for_each_other);
	return t_done();
}
