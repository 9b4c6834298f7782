/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/fdset.h"
#include "base/lock.h"
#include "base/loop.h"
#include "base/state.h"
#include "tests/t.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* One fd of a socket pair in the loop. */
struct end {
	struct loop_fd lf;
	int peer;
	_Atomic int reads, done, here, hups;
};

static void end_ready(struct loop_fd *lf, uint32_t revents)
{
	struct end *e = container_of(lf, struct end, lf);
	char c;

	if (!loop_here())
		atomic_fetch_add(&e->here, 1000);
	if (revents & EPOLLHUP)
		atomic_fetch_add(&e->hups, 1);
	if (read(lf->fd, &c, 1) == 1)
		atomic_fetch_add(&e->reads, 1);
}

static void end_done(struct loop_fd *lf)
{
	struct end *e = container_of(lf, struct end, lf);

	fdset_close(lf->fd);
	if (loop_here())
		atomic_store(&e->done, 1);
}

static bool end_open(struct end *e)
{
	int sv[2];

	memset(e, 0, sizeof(*e));
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sv))
		return false;
	e->peer = sv[1];
	e->lf.fd = fdset_take(sv[0]);
	e->lf.events = EPOLLIN;
	e->lf.ready = end_ready;
	return true;
}

static bool end_put(struct end *e)
{
	return write(e->peer, "x", 1) == 1;
}

static atomic_int passes;

static void pass_run(struct loop_work *w)
{
	(void)w;
	atomic_fetch_add(&passes, 1);
}

/* The loop has taken up all that was there before, by post or by epoll. */
static void loop_passed(void)
{
	static struct loop_work w = { .run = pass_run };

	/* One round may run what is posted twice: the third is of another. */
	for (int i = 0; i < 3; i++) {
		int before = atomic_load(&passes);

		CHECK(loop_post(&w));
		CHECK(T_WAIT(atomic_load(&passes) == before + 1, 5000));
	}
}

static void fd_life(void)
{
	static struct end e;

	REQUIRE(end_open(&e));
	REQUIRE(loop_fd_add(&e.lf) == 0);
	CHECK(!loop_here());
	REQUIRE(end_put(&e));
	CHECK(T_WAIT(e.reads == 1, 5000));
	CHECK_EQ(e.here, 0);

	/* Out of the set not even a hang-up is reported, and then it is. */
	CHECK_EQ(loop_fd_mod(&e.lf, 0), 0);
	REQUIRE(end_put(&e));
	close(e.peer);
	loop_passed();
	CHECK(e.reads <= 1 && e.hups == 0);
	CHECK_EQ(loop_fd_mod(&e.lf, EPOLLIN), 0);
	CHECK(T_WAIT(e.reads == 2 && e.hups > 0, 5000));

	loop_fd_del(&e.lf, end_done);
	CHECK(T_WAIT(e.done, 5000));
	CHECK(fcntl(e.lf.fd, F_GETFD) < 0);
}

static void fd_refused(void)
{
	static struct end e;
	int file = open("/proc/self/exe", O_RDONLY);

	e.lf.fd = file;
	e.lf.events = EPOLLIN;
	CHECK_EQ(loop_fd_add(&e.lf), -EPERM);
	close(file);
	CHECK_EQ(loop_fd_add(&e.lf), -EBADF);
}

/* An fd deleted from inside another's ready(): its ready() must not run once
 * it was reported gone, whatever epoll returned in the same round. */
static struct end pair[2];
static _Atomic int after_done;

static void cross_ready(struct loop_fd *lf, uint32_t revents)
{
	struct end *e = container_of(lf, struct end, lf);
	struct end *other = e == &pair[0] ? &pair[1] : &pair[0];

	(void)revents;
	if (e->done)
		atomic_fetch_add(&after_done, 1);
	atomic_fetch_add(&e->reads, 1);
	loop_fd_del(&other->lf, end_done);
	loop_fd_del(lf, end_done);
}

static void fd_del_in_round(void)
{
	for (int round = 0; round < 200; round++) {
		for (int i = 0; i < 2; i++) {
			REQUIRE(end_open(&pair[i]));
			pair[i].lf.ready = cross_ready;
			REQUIRE(end_put(&pair[i]));
			pair[i].lf.events = 0;
			REQUIRE(loop_fd_add(&pair[i].lf) == 0);
		}
		loop_fd_mod(&pair[0].lf, EPOLLIN);
		loop_fd_mod(&pair[1].lf, EPOLLIN);
		REQUIRE(T_WAIT(pair[0].done && pair[1].done, 5000));
		CHECK_EQ(pair[0].reads + pair[1].reads, 1);
		close(pair[0].peer);
		close(pair[1].peer);
	}
	CHECK_EQ(after_done, 0);
}

struct tm_ {
	struct loop_timer t;
	_Atomic int fired;
	_Atomic uint64_t at;
	int order;
};

static _Atomic int tm_order;

static void tm_fire(struct loop_timer *t)
{
	struct tm_ *x = container_of(t, struct tm_, t);

	x->at = loop_now();
	atomic_fetch_add(&x->fired, 1);
	/* Last, and by this thread alone: who sees the count may read order. */
	x->order = tm_order;
	atomic_fetch_add(&tm_order, 1);
}

/* Runs fn in the loop's thread: no timer fires before it is through. */
static void in_loop(void (*fn)(struct loop_work *w))
{
	static struct loop_work w;

	w.run = fn;
	CHECK(loop_post(&w));
	loop_passed();
}

enum { TIMERS = 500 };
static struct tm_ ordered[TIMERS];
static uint64_t ordered_base;

static void set_in_no_order(struct loop_work *w)
{
	(void)w;
	ordered_base = loop_now() + 30 * MSEC;
	for (int i = 0; i < TIMERS; i++) {
		int slot = i * 211 % TIMERS;

		ordered[slot].t.fire = tm_fire;
		CHECK(loop_timer_set(&ordered[slot].t,
				     ordered_base + (uint64_t)slot * 10000));
	}
}

static void timer_order(void)
{
	int wrong = 0, early = 0;

	tm_order = 0;
	in_loop(set_in_no_order);
	CHECK(T_WAIT(tm_order == TIMERS, 5000));
	for (int i = 0; i < TIMERS; i++) {
		wrong += ordered[i].order != i || ordered[i].fired != 1;
		early += ordered[i].at < ordered_base + (uint64_t)i * 10000;
	}
	CHECK_EQ(wrong, 0);
	CHECK_EQ(early, 0);
}

static struct tm_ late, never;

static void set_and_move(struct loop_work *w)
{
	uint64_t now = loop_now();

	(void)w;
	CHECK(!loop_timer_stop(&never.t));
	CHECK(loop_timer_set(&never.t, now + 5 * MSEC));
	CHECK(loop_timer_set(&late.t, now + 5 * MSEC));
	CHECK(!loop_timer_set(&late.t, now + 60 * MSEC)); /* later: lazily */
	CHECK(loop_timer_stop(&never.t));
	CHECK(!loop_timer_stop(&never.t));
}

static void timer_moves(void)
{
	static struct tm_ soon;
	uint64_t now = loop_now();

	late.t.fire = soon.t.fire = never.t.fire = tm_fire;
	in_loop(set_and_move);
	CHECK(loop_timer_set(&soon.t, now + 3600 * SEC));
	CHECK(!loop_timer_set(&soon.t, now + 1 * MSEC)); /* earlier: wakes */
	CHECK(T_WAIT(soon.fired, 5000));
	CHECK(soon.at >= now + 1 * MSEC);
	CHECK(T_WAIT(late.fired, 5000));
	CHECK(late.at >= now + 60 * MSEC);
	CHECK_EQ(never.fired, 0);
	/* Fired: not pending any more, may be armed again. */
	CHECK(!loop_timer_stop(&late.t));
	CHECK(loop_timer_set(&late.t, 0));
	CHECK(T_WAIT(late.fired == 2, 5000));
}

/* A timer that always asks for the past must leave room for others. */
static struct tm_ greedy;
static _Atomic int greedy_stop;

static void greedy_fire(struct loop_timer *t)
{
	atomic_fetch_add(&greedy.fired, 1);
	if (!greedy_stop)
		loop_timer_set(t, 0);
}

static void timer_greedy(void)
{
	static struct end e;

	greedy.t.fire = greedy_fire;
	CHECK(loop_timer_set(&greedy.t, 0));
	REQUIRE(end_open(&e));
	REQUIRE(loop_fd_add(&e.lf) == 0);
	REQUIRE(end_put(&e));
	CHECK(T_WAIT(e.reads == 1, 5000));
	greedy_stop = 1;
	loop_fd_del(&e.lf, end_done);
	CHECK(T_WAIT(e.done, 5000));
	close(e.peer);
}

/* Many threads arm, move and stop the same timers. References as the header
 * says: +1 for every true of set, -1 for every true of stop and every fire. */
static struct tm_race {
	struct loop_timer t;
	_Atomic int refs, fired;
} tmr[16];

static void tmr_fire(struct loop_timer *t)
{
	struct tm_race *x = container_of(t, struct tm_race, t);

	atomic_fetch_sub(&x->refs, 1);
	atomic_fetch_add(&x->fired, 1);
}

static void *tmr_thread(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;

	for (int i = 0; i < 20000; i++) {
		struct tm_race *x = &tmr[(unsigned)rand_r(&seed) % 16];

		if (rand_r(&seed) % 3 == 0) {
			if (loop_timer_stop(&x->t))
				atomic_fetch_sub(&x->refs, 1);
		} else if (loop_timer_set(&x->t, loop_now() +
					  (unsigned)rand_r(&seed) % 300000)) {
			atomic_fetch_add(&x->refs, 1);
		}
	}
	return NULL;
}

static void timer_race(void)
{
	pthread_t th[4];
	int fired = 0;

	for (int i = 0; i < 16; i++)
		tmr[i].t.fire = tmr_fire;
	for (int i = 0; i < 4; i++)
		pthread_create(&th[i], NULL, tmr_thread, (void *)(uintptr_t)(i + 1));
	for (int i = 0; i < 4; i++)
		pthread_join(th[i], NULL);
	for (int i = 0; i < 16; i++) {
		CHECK(T_WAIT(tmr[i].refs == 0, 5000));
		CHECK(!loop_timer_stop(&tmr[i].t));
		fired += tmr[i].fired;
	}
	CHECK(fired > 0);
}

struct wk {
	struct loop_work w;
	_Atomic int runs, again;
	int order;
};

static _Atomic int wk_order;

static void wk_run(struct loop_work *w)
{
	struct wk *x = container_of(w, struct wk, w);

	if (!loop_here())
		abort();
	atomic_fetch_add(&x->runs, 1);
	if (x->again) {
		x->again--;
		loop_post(w);
	}
	x->order = wk_order;
	atomic_fetch_add(&wk_order, 1);
}

static void work_order(void)
{
	enum { N = 1000 };
	static struct wk x[N];
	int wrong = 0;

	wk_order = 0;
	for (int i = 0; i < N; i++) {
		x[i].w.run = wk_run;
		CHECK(loop_post(&x[i].w));
	}
	CHECK(T_WAIT(wk_order == N, 5000));
	for (int i = 0; i < N; i++)
		wrong += x[i].order != i;
	CHECK_EQ(wrong, 0);
	x[0].again = 3;
	CHECK(loop_post(&x[0].w));
	CHECK(T_WAIT(x[0].runs == 5, 5000));
}

/* Each true of loop_post is one run: none lost, none extra. */
static struct wk shared;
static _Atomic int posted;

static void *post_thread(void *arg)
{
	(void)arg;
	for (int i = 0; i < 50000; i++)
		if (loop_post(&shared.w))
			atomic_fetch_add(&posted, 1);
	return NULL;
}

static void work_race(void)
{
	pthread_t th[3];

	shared.w.run = wk_run;
	for (int i = 0; i < 3; i++)
		pthread_create(&th[i], NULL, post_thread, NULL);
	for (int i = 0; i < 3; i++)
		pthread_join(th[i], NULL);
	CHECK(T_WAIT(shared.runs == posted, 5000));
	loop_passed(); /* one too many would have been before this */
	CHECK_EQ(shared.runs, posted);
}

/* The thread has the name and blocks every signal that can be blocked. */
static struct {
	struct loop_work w;
	char name[16];
	sigset_t mask;
	_Atomic int ready;
} who;

static void who_run(struct loop_work *w)
{
	(void)w;
	prctl(PR_GET_NAME, who.name);
	pthread_sigmask(SIG_SETMASK, NULL, &who.mask);
	who.ready = 1;
}

static void thread_traits(void)
{
	sigset_t mine;

	who.w.run = who_run;
	loop_post(&who.w);
	REQUIRE(T_WAIT(who.ready, 5000));
	CHECK_STR(who.name, "anyrdma");
	CHECK(sigismember(&who.mask, SIGTERM) && sigismember(&who.mask, SIGUSR1));
	CHECK(sigismember(&who.mask, SIGALRM) && sigismember(&who.mask, SIGCHLD));
	pthread_sigmask(SIG_SETMASK, NULL, &mine);
	CHECK(!sigismember(&mine, SIGTERM));
}

static void forked_child(void)
{
	static struct end e;
	static struct tm_ x;
	static struct wk w;
	int status;
	pid_t pid;

	REQUIRE(end_open(&e));
	REQUIRE(loop_fd_add(&e.lf) == 0);
	x.t.fire = tm_fire;
	w.w.run = wk_run;
	CHECK(loop_timer_set(&x.t, loop_now() + 3600 * SEC));
	pid = fork();
	if (!pid) {
		static struct end own;

		fdset_child();
		loop_child();
		state_renew();
#ifdef __SANITIZE_THREAD__
		_exit(0); /* it ends a child that starts threads */
#endif
		if (!end_open(&own) || loop_fd_add(&own.lf) || !end_put(&own))
			_exit(1);
		if (!T_WAIT(own.reads == 1, 5000))
			_exit(2);
		_exit(loop_post(&w.w) && T_WAIT(w.runs == 1, 5000) ? 0 : 3);
	}
	REQUIRE(waitpid(pid, &status, 0) == pid);
	CHECK_EQ(status, 0);
	/* The parent's loop is untouched: closing its copies in the child must
	 * not have taken anything out of the shared epoll set. */
	REQUIRE(end_put(&e));
	CHECK(T_WAIT(e.reads == 1, 5000));
	CHECK(loop_timer_stop(&x.t));
	loop_fd_del(&e.lf, end_done);
	CHECK(T_WAIT(e.done, 5000));
	close(e.peer);
}

/* A process that never used the loop before it forked: the child has its own. */
static void fork_before_use(void)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		static struct wk w;

		w.w.run = wk_run;
		loop_child();
		_exit(loop_post(&w.w) && T_WAIT(w.runs == 1, 5000) ? 0 : 1);
	}
	REQUIRE(waitpid(pid, &status, 0) == pid);
	CHECK_EQ(status, 0);
}

/* Descriptors come and go from several threads while data flows. */
static void *fd_thread(void *arg)
{
	(void)arg;
	for (int i = 0; i < 300; i++) {
		struct end *e = calloc(1, sizeof(*e));

		if (!CHECK(e && end_open(e)) || !CHECK(loop_fd_add(&e->lf) == 0))
			return NULL;
		CHECK(end_put(e));
		if (i % 2)
			CHECK(T_WAIT(e->reads == 1, 5000));
		if (i % 3)
			CHECK(loop_fd_mod(&e->lf, i % 3 == 1 ? 0 : EPOLLIN) == 0);
		loop_fd_del(&e->lf, end_done);
		if (!CHECK(T_WAIT(e->done, 5000)))
			return NULL;
		close(e->peer);
		free(e);
	}
	return NULL;
}

static void fd_race(void)
{
	pthread_t th[4];

	for (int i = 0; i < 4; i++)
		pthread_create(&th[i], NULL, fd_thread, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(th[i], NULL);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(fork_before_use); /* first: needs a process without the thread */
	T_RUN(fd_life);
	T_RUN(fd_refused);
	T_RUN(fd_del_in_round);
	T_RUN(fd_race);
	T_RUN(timer_order);
	T_RUN(timer_moves);
	T_RUN(timer_greedy);
	T_RUN(timer_race);
	T_RUN(work_order);
	T_RUN(work_race);
	T_RUN(thread_traits);
	T_RUN(forked_child);
	return t_done();
}
