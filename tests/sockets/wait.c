/* SPDX-License-Identifier: BSD-2-Clause */
/* Waiting: poll, select, epoll, signals. */
#include "sock.h"

static short now(int fd, short events, int ms)
{
	struct pollfd pfd = { fd, events, 0 };

	CHECK(poll(&pfd, 1, ms) >= 0);
	return pfd.revents;
}

static void polling(void)
{
	struct pair p;
	char c;

	REQUIRE(pair_make(&p));
	CHECK_EQ(now(p.a, POLLIN | POLLOUT, 0), POLLOUT);
	CHECK_EQ(now(p.a, POLLIN, 0), 0);
	REQUIRE(put(p.b, "x", 1));
	CHECK_EQ(now(p.a, POLLIN, 5000), POLLIN);
	CHECK_EQ(now(p.a, POLLIN | POLLOUT, 0), POLLIN | POLLOUT);
	REQUIRE(get(p.a, &c, 1));
	CHECK_EQ(now(p.a, POLLIN, 10), 0);
	CHECK_EQ(shutdown(p.b, SHUT_WR), 0);
	CHECK_EQ(now(p.a, POLLIN | POLLRDHUP, 5000), POLLIN | POLLRDHUP);
	CHECK_EQ(recv(p.a, &c, 1, 0), 0);
	CHECK_EQ(now(p.a, POLLIN | POLLRDHUP, 5000), POLLIN | POLLRDHUP);
	CHECK_EQ(shutdown(p.a, SHUT_WR), 0);
	CHECK(now(p.a, POLLIN, 5000) & POLLHUP);
	pair_close(&p);
}

static void *put_later(void *arg)
{
	poll(NULL, 0, 30); /* the other thread sleeps by then, or gets it at once */
	put(*(int *)arg, "late", 4);
	return NULL;
}

static void poll_wakes(void)
{
	struct pair p, q;
	struct pollfd pfd[3];
	pthread_t t;
	char buf[4];
	int fd[2];

	REQUIRE(pair_make(&p) && pair_make(&q) && pipe(fd) == 0);
	for (int i = 0; i < 3; i++) {
		int from[3] = { p.b, q.b, fd[1] };

		pfd[0] = (struct pollfd){ p.a, POLLIN, 0 };
		pfd[1] = (struct pollfd){ q.a, POLLIN, 0 };
		pfd[2] = (struct pollfd){ fd[0], POLLIN, 0 };
		if (i < 2) {
			pthread_create(&t, NULL, put_later, &from[i]);
			CHECK_EQ(poll(pfd, 3, 5000), 1);
			pthread_join(t, NULL);
			REQUIRE(get(pfd[i].fd, buf, 4));
		} else {
			REQUIRE(write(from[i], "pipe", 4) == 4);
			CHECK_EQ(poll(pfd, 3, 5000), 1);
			REQUIRE(read(fd[0], buf, 4) == 4);
		}
		CHECK_EQ(pfd[i].revents, POLLIN);
	}
	pair_close(&p);
	pair_close(&q);
	close(fd[0]);
	close(fd[1]);
}

static void poll_time(void)
{
	struct timespec ts = { 0, 30000000 };
	uint64_t from = t_now_ms();
	struct pollfd pfd;
	struct pair p;

	REQUIRE(pair_make(&p));
	pfd = (struct pollfd){ p.a, POLLIN, 0 };
	from = t_now_ms();
	CHECK_EQ(poll(&pfd, 1, 30), 0);
	CHECK_EQ(ppoll(&pfd, 1, &ts, NULL), 0);
	CHECK(t_now_ms() - from >= 59);
	CHECK(t_now_ms() - from < t_scaled(2000));
	pair_close(&p);
}

static void selecting(void)
{
	struct timeval tv = { 5, 0 };
	struct pair p;
	fd_set r, w;
	int n;

	REQUIRE(pair_make(&p));
	n = (p.a > p.b ? p.a : p.b) + 1;
	FD_ZERO(&r);
	FD_ZERO(&w);
	FD_SET(p.a, &r);
	FD_SET(p.b, &r);
	FD_SET(p.a, &w);
	REQUIRE(put(p.a, "x", 1));
	REQUIRE(now(p.b, POLLIN, 5000) == POLLIN);
	CHECK_EQ(select(n, &r, &w, NULL, &tv), 2);
	CHECK(!FD_ISSET(p.a, &r) && FD_ISSET(p.b, &r) && FD_ISSET(p.a, &w));
	CHECK(tv.tv_sec >= 4);
	FD_ZERO(&r);
	FD_SET(p.a, &r);
	tv = (struct timeval){ 0, 20000 };
	CHECK_EQ(select(n, &r, NULL, NULL, &tv), 0);
	CHECK_EQ(tv.tv_usec, 0);
	CHECK(!FD_ISSET(p.a, &r));
	pair_close(&p);
}

static void watch(int ep, int op, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event ev = { .events = events, .data.u64 = data };

	CHECK_EQ(epoll_ctl(ep, op, fd, &ev), 0);
}

/* Exactly this one event, or none (events 0). */
static void expect(int ep, uint32_t events, uint64_t data, int ms)
{
	struct epoll_event ev[4] = { 0 };
	int n = epoll_wait(ep, ev, 4, ms);

	CHECK_EQ(n, events ? 1 : 0);
	CHECK_EQ(ev[0].events, events);
	if (n == 1)
		CHECK_EQ(ev[0].data.u64, data);
}

static void epoll_level(void)
{
	struct pair p;
	int ep = epoll_create1(0);
	char c;

	REQUIRE(pair_make(&p));
	watch(ep, EPOLL_CTL_ADD, p.a, EPOLLIN, 7);
	expect(ep, 0, 0, 10);
	REQUIRE(put(p.b, "xy", 2));
	expect(ep, EPOLLIN, 7, 5000);
	REQUIRE(get(p.a, &c, 1));
	expect(ep, EPOLLIN, 7, 5000);
	REQUIRE(get(p.a, &c, 1));
	expect(ep, 0, 0, 10);
	watch(ep, EPOLL_CTL_MOD, p.a, EPOLLIN | EPOLLOUT, 8);
	expect(ep, EPOLLOUT, 8, 5000);
	CHECK_EQ(epoll_ctl(ep, EPOLL_CTL_DEL, p.a, NULL), 0);
	expect(ep, 0, 0, 10);
	CHECK_ERRNO(epoll_ctl(ep, EPOLL_CTL_DEL, p.a, NULL), ENOENT);
	watch(ep, EPOLL_CTL_ADD, p.a, EPOLLIN | EPOLLRDHUP, 9);
	CHECK_EQ(shutdown(p.b, SHUT_WR), 0);
	expect(ep, EPOLLIN | EPOLLRDHUP, 9, 5000);
	CHECK_EQ(recv(p.a, &c, 1, 0), 0);
	expect(ep, EPOLLIN | EPOLLRDHUP, 9, 5000);
	CHECK_EQ(shutdown(p.a, SHUT_WR), 0);
	expect(ep, EPOLLIN | EPOLLRDHUP | EPOLLHUP, 9, 5000);
	pair_close(&p);
	expect(ep, 0, 0, 10);
	close(ep);
}

static void epoll_edge(void)
{
	struct pair p;
	int ep = epoll_create1(0);
	char buf[10];

	REQUIRE(pair_make(&p));
	watch(ep, EPOLL_CTL_ADD, p.a, EPOLLIN | EPOLLET, 1);
	expect(ep, 0, 0, 10);
	REQUIRE(put(p.b, "xy", 2));
	expect(ep, EPOLLIN, 1, 5000);
	expect(ep, 0, 0, 10);
	REQUIRE(put(p.b, "z", 1));
	expect(ep, EPOLLIN, 1, 5000);
	REQUIRE(get(p.a, buf, 3));
	expect(ep, 0, 0, 10);
	watch(ep, EPOLL_CTL_MOD, p.a, EPOLLIN | EPOLLOUT | EPOLLET, 2);
	expect(ep, EPOLLOUT, 2, 5000);
	expect(ep, 0, 0, 10);
	pair_close(&p);
	close(ep);
}

static void epoll_once(void)
{
	struct pair p;
	int ep = epoll_create1(0);

	REQUIRE(pair_make(&p));
	watch(ep, EPOLL_CTL_ADD, p.a, EPOLLIN | EPOLLONESHOT, 1);
	REQUIRE(put(p.b, "xy", 2));
	expect(ep, EPOLLIN, 1, 5000);
	expect(ep, 0, 0, 10);
	REQUIRE(put(p.b, "xy", 2));
	expect(ep, 0, 0, 10);
	watch(ep, EPOLL_CTL_MOD, p.a, EPOLLIN | EPOLLONESHOT, 2);
	expect(ep, EPOLLIN, 2, 5000);
	expect(ep, 0, 0, 10);
	pair_close(&p);
	close(ep);
}

static void epoll_mixed(void)
{
	struct itimerspec soon = { .it_value.tv_nsec = 20000000 };
	int ep = epoll_create1(0), fd[2], ev = eventfd(0, 0);
	int timer = timerfd_create(CLOCK_MONOTONIC, 0);
	struct epoll_event got[8];
	struct pair p, q;
	pthread_t t;
	uint64_t n = 1;
	char buf[4];

	REQUIRE(pair_make(&p) && pair_make(&q) && pipe(fd) == 0);
	watch(ep, EPOLL_CTL_ADD, p.a, EPOLLIN, 1);
	watch(ep, EPOLL_CTL_ADD, q.a, EPOLLIN, 2);
	watch(ep, EPOLL_CTL_ADD, fd[0], EPOLLIN, 3);
	watch(ep, EPOLL_CTL_ADD, ev, EPOLLIN, 4);
	watch(ep, EPOLL_CTL_ADD, timer, EPOLLIN, 5);
	expect(ep, 0, 0, 10);
	pthread_create(&t, NULL, put_later, &q.b);
	expect(ep, EPOLLIN, 2, 5000);
	pthread_join(t, NULL);
	REQUIRE(get(q.a, buf, 4));
	REQUIRE(write(fd[1], "x", 1) == 1);
	expect(ep, EPOLLIN, 3, 5000);
	REQUIRE(read(fd[0], buf, 1) == 1);
	timerfd_settime(timer, 0, &soon, NULL);
	expect(ep, EPOLLIN, 5, 5000);
	REQUIRE(read(timer, &n, 8) == 8);
	n = 1;
	REQUIRE(write(ev, &n, 8) == 8);
	REQUIRE(put(p.b, "x", 1) && put(q.b, "x", 1));
	REQUIRE(now(p.a, POLLIN, 5000) && now(q.a, POLLIN, 5000));
	CHECK_EQ(epoll_wait(ep, got, 8, 5000), 3);
	CHECK_EQ(epoll_wait(ep, got, 2, 5000), 2);
	pair_close(&p);
	pair_close(&q);
	close(fd[0]);
	close(fd[1]);
	close(ev);
	close(timer);
	close(ep);
}

static void epoll_nested(void)
{
	struct pair p;
	int in = epoll_create1(0), out = epoll_create1(0);
	struct epoll_event ev = { .events = EPOLLIN | EPOLLEXCLUSIVE, .data.u64 = 3 };
	int other = epoll_create1(0);
	char c;

	REQUIRE(pair_make(&p));
	watch(in, EPOLL_CTL_ADD, p.a, EPOLLIN, 1);
	watch(out, EPOLL_CTL_ADD, in, EPOLLIN, 2);
	CHECK_EQ(epoll_ctl(other, EPOLL_CTL_ADD, p.a, &ev), 0);
	expect(out, 0, 0, 10);
	REQUIRE(put(p.b, "x", 1));
	expect(out, EPOLLIN, 2, 5000);
	expect(in, EPOLLIN, 1, 5000);
	expect(other, EPOLLIN, 3, 5000);
	REQUIRE(get(p.a, &c, 1));
	expect(out, 0, 0, 10);
	pair_close(&p);
	close(in);
	close(out);
	close(other);
}

/* The move comes while one thread waits for the instance and another one writes. */
static void epoll_cold(void)
{
	struct pair p;
	int ep = epoll_create1(0);
	struct epoll_event ev;
	char c;

	REQUIRE(pair_open(&p));
	fcntl(p.a, F_SETFL, O_NONBLOCK);
	watch(ep, EPOLL_CTL_ADD, p.a, EPOLLIN, 1);
	for (int i = 0; i < 2000; i++) {
		c = (char)i;
		REQUIRE(put(p.b, &c, 1));
		do
			REQUIRE(epoll_wait(ep, &ev, 1, 5000) == 1);
		while (recv(p.a, &c, 1, 0) != 1);
		REQUIRE_EQ(c, (char)i);
		REQUIRE(put(p.a, &c, 1));
		REQUIRE(get(p.b, &c, 1));
	}
	diag("moved: %d and %d", moved ? moved(p.a) : -1, moved ? moved(p.b) : -1);
	pair_close(&p);
	close(ep);
}

static void on_signal(int sig)
{
	(void)sig;
}

static void *signal_later(void *arg)
{
	poll(NULL, 0, 50);
	pthread_kill(*(pthread_t *)arg, SIGUSR1);
	return NULL;
}

static void interrupted(void)
{
	struct sigaction sa = { .sa_handler = on_signal };
	pthread_t me = pthread_self(), t, u;
	struct pair p;
	char buf[4];

	REQUIRE(pair_make(&p));
	sigaction(SIGUSR1, &sa, NULL);
	pthread_create(&t, NULL, signal_later, &me);
	CHECK_ERRNO(recv(p.a, buf, 1, 0), EINTR);
	pthread_join(t, NULL);
	pthread_create(&t, NULL, signal_later, &me);
	errno = 0;
	CHECK(now(p.a, POLLIN, 0) == 0);
	CHECK_ERRNO(poll(&(struct pollfd){ p.a, POLLIN, 0 }, 1, 5000), EINTR);
	pthread_join(t, NULL);
	sa.sa_flags = SA_RESTART;
	sigaction(SIGUSR1, &sa, NULL);
	signal(SIGALRM, SIG_DFL); /* t.h's has SA_RESTART anyway */
	pthread_create(&t, NULL, signal_later, &me);
	pthread_create(&u, NULL, put_later, &p.b);
	pthread_join(t, NULL);
	CHECK_EQ(recv(p.a, buf, 4, MSG_WAITALL), 4);
	pthread_join(u, NULL);
	pair_close(&p);
}

static void *recv_one(void *arg)
{
	char c;

	return (void *)(intptr_t)recv(*(int *)arg, &c, 1, 0);
}

static void shut_by_other(void)
{
	struct pair p;
	pthread_t t;
	void *n;

	REQUIRE(pair_make(&p));
	pthread_create(&t, NULL, recv_one, &p.a);
	poll(NULL, 0, 20);
	CHECK_EQ(shutdown(p.a, SHUT_RDWR), 0);
	pthread_join(t, &n);
	CHECK_EQ((intptr_t)n, 0);
	pair_close(&p);
}

static void nonblocking(void)
{
	struct sockaddr_in in;
	int l = sock_listen(&in), fd, err, on = 1;
	socklen_t len = sizeof(err);
	struct pair p;
	char c;

	fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	CHECK_ERRNO(connect(fd, (void *)&in, sizeof(in)), EINPROGRESS);
	CHECK_EQ(now(fd, POLLOUT, 5000), POLLOUT);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) == 0 && err == 0);
	close(fd);
	close(l);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK_ERRNO(connect(fd, (void *)&in, sizeof(in)), ECONNREFUSED);
	close(fd);
	REQUIRE(pair_make(&p));
	CHECK_EQ(ioctl(p.a, FIONBIO, &on), 0);
	CHECK_ERRNO(read(p.a, &c, 1), EAGAIN);
	on = 0;
	CHECK_EQ(ioctl(p.a, FIONBIO, &on), 0);
	CHECK_EQ(fcntl(p.a, F_SETFL, fcntl(p.a, F_GETFL) | O_NONBLOCK), 0);
	CHECK_ERRNO(read(p.a, &c, 1), EAGAIN);
	pair_close(&p);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	sock_init();
	T_RUN(polling);
	T_RUN(poll_wakes);
	T_RUN(poll_time);
	T_RUN(selecting);
	T_RUN(epoll_level);
	T_RUN(epoll_edge);
	T_RUN(epoll_once);
	T_RUN(epoll_mixed);
	T_RUN(epoll_nested);
	T_RUN(epoll_cold);
	T_RUN(interrupted);
	T_RUN(shut_by_other);
	T_RUN(nonblocking);
	return t_done();
}
