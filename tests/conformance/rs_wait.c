/* SPDX-License-Identifier: BSD-2-Clause */
/* rpoll, rselect, repoll: who is ready, when, and what ends a wait. */
#include "rs.h"

static void *send_later(void *arg)
{
	usleep(50000);
	BYTES(rsend(*(int *)arg, "x", 1, 0), 1);
	return NULL;
}

static uint64_t ms_since(uint64_t at)
{
	return (conf_now() - at) / 1000000;
}

static void poll_basics(void)
{
	struct rs_pair p = rs_pair();
	struct pollfd f[3] = { { p.a, POLLIN, 0 }, { p.p, POLLIN | POLLOUT, 0 },
			       { -1, POLLIN, 0 } };
	uint64_t at = conf_now();
	char c;

	EQ(rpoll(f, 3, 0), 1);
	EQ(f[0].revents, 0);
	EQ(f[1].revents, POLLOUT);
	EQ(f[2].revents, 0);
	f[1].events = POLLIN;
	EQ(rpoll(f, 3, 100), 0);
	CHECK(ms_since(at) >= 100);
	BYTES(rsend(p.a, "x", 1, 0), 1);
	EQ(rpoll(f, 2, conf_ms(CONF_WAIT)), 1);
	EQ(f[1].revents, POLLIN);
	EQ(rpoll(f, 2, 0), 1); /* still */
	BYTES(rread(p.p, &c, 1), 1);
	EQ(rpoll(f, 2, 0), 0);
	f[0].fd = 1022;
	EQ(rpoll(f, 1, 0), 1);
	EQ(f[0].revents, POLLNVAL);
	rs_pair_close(&p);
}

/* Not before its time, and not long after. */
static void poll_timeout(void)
{
	struct rs_pair p = rs_pair();
	struct pollfd f = { p.a, POLLIN, 0 };

	for (int ms = 1; ms < 300; ms *= 3) {
		uint64_t at = conf_now();

		EQ(rpoll(&f, 1, ms), 0);
		CHECK(conf_now() - at >= (uint64_t)ms * 1000000);
	}
	rs_pair_close(&p);
}

static void poll_mixed(void)
{
	struct rs_pair p = rs_pair();
	int fd[2];
	struct pollfd f[3];
	pthread_t t;
	char c;

	OK(pipe(fd));
	f[0] = (struct pollfd){ fd[0], POLLIN, 0 };
	f[1] = (struct pollfd){ p.p, POLLIN, 0 };
	f[2] = (struct pollfd){ fd[1], POLLOUT, 0 };
	EQ(rpoll(f, 3, 0), 1);
	EQ(f[2].revents, POLLOUT);
	BYTES(write(fd[1], "x", 1), 1);
	EQ(rpoll(f, 2, conf_ms(CONF_WAIT)), 1);
	EQ(f[0].revents, POLLIN);
	BYTES(read(fd[0], &c, 1), 1);
	t = conf_thread(send_later, &p.a);
	EQ(rpoll(f, 2, -1), 1);
	EQ(f[1].revents, POLLIN);
	conf_join(t);
	rs_pair_close(&p);
}

static void *connect_later(void *arg)
{
	int a = FD(rsocket(AF_INET, SOCK_STREAM, 0));

	usleep(50000);
	OK(rconnect(a, arg, rs_len(AF_INET)));
	OK(rclose(a));
	return NULL;
}

static void poll_listener(void)
{
	conf_sa addr;
	int l = rs_listener(AF_INET, 4, &addr);
	struct pollfd f = { l, POLLIN, 0 };
	pthread_t t = conf_thread(connect_later, &addr);

	EQ(rpoll(&f, 1, conf_ms(CONF_WAIT)), 1);
	EQ(f.revents, POLLIN);
	OK(rclose(FD(raccept(l, NULL, NULL))));
	EQ(rpoll(&f, 1, 0), 0);
	conf_join(t);
	OK(rclose(l));
}

/* Many threads wait for a socket each, and no other. */
enum { THREADS = 8 };

static void *wait_one(void *arg)
{
	struct pollfd f = { *(int *)arg, POLLIN, 0 };
	char c;

	for (int i = 0; i < 50; i++) {
		EQ(rpoll(&f, 1, conf_ms(CONF_WAIT)), 1);
		BYTES(rrecv(f.fd, &c, 1, 0), 1);
		EQ(c, (char)i);
		BYTES(rsend(f.fd, &c, 1, 0), 1);
	}
	return NULL;
}

static void threads(void)
{
	struct rs_pair p[THREADS];
	pthread_t t[THREADS];
	char c;

	for (int i = 0; i < THREADS; i++) {
		p[i] = rs_pair();
		t[i] = conf_thread(wait_one, &p[i].p);
	}
	for (int i = 0; i < 50; i++)
		for (int k = 0; k < THREADS; k++) {
			c = (char)i;
			BYTES(rsend(p[k].a, &c, 1, 0), 1);
			BYTES(rrecv(p[k].a, &c, 1, 0), 1);
		}
	for (int i = 0; i < THREADS; i++) {
		conf_join(t[i]);
		rs_pair_close(&p[i]);
	}
}

static void select_basics(void)
{
	struct rs_pair p = rs_pair();
	struct timeval none = { 0 }, some = { .tv_usec = 50000 };
	int n = (p.a > p.p ? p.a : p.p) + 1;
	fd_set r, w;
	uint64_t at;

	FD_ZERO(&r);
	FD_ZERO(&w);
	FD_SET(p.p, &r);
	FD_SET(p.a, &w);
	EQ(rselect(n, &r, &w, NULL, &none), 1);
	CHECK(!FD_ISSET(p.p, &r) && FD_ISSET(p.a, &w));
	FD_SET(p.p, &r);
	at = conf_now();
	EQ(rselect(n, &r, NULL, NULL, &some), 0);
	CHECK(conf_now() - at >= 50000000);
	BYTES(rsend(p.a, "x", 1, 0), 1);
	FD_SET(p.p, &r);
	FD_SET(p.a, &w);
	EQ(rselect(n, &r, NULL, NULL, NULL), 1);
	CHECK(FD_ISSET(p.p, &r));
	FD_SET(1022, &r);
	ERR(rselect(1023, &r, NULL, NULL, &none), EBADF);
	ERR(rselect(-1, NULL, NULL, NULL, &none), EINVAL);
	rs_pair_close(&p);
}

/* ---- repoll ------------------------------------------------------------------------- */

static int (*ep_create)(int);
static int (*ep_ctl)(int, int, int, struct epoll_event *);
static int (*ep_wait)(int, struct epoll_event *, int, int);

static int epoll_new(void)
{
	ep_create = conf_new("repoll_create");
	ep_ctl = conf_new("repoll_ctl");
	ep_wait = conf_new("repoll_wait");
	return FD(ep_create(0));
}

static void add(int ep, int fd, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.fd = fd };

	OK(ep_ctl(ep, EPOLL_CTL_ADD, fd, &ev));
}

/* One event, of this descriptor. */
static void expect(int ep, int fd, uint32_t events)
{
	struct epoll_event ev[4];

	EQ(ep_wait(ep, ev, 4, conf_ms(CONF_WAIT)), 1);
	EQ(ev[0].data.fd, fd);
	EQ(ev[0].events, events);
}

static void nothing(int ep)
{
	struct epoll_event ev[4];

	EQ(ep_wait(ep, ev, 4, 0), 0);
}

static void epoll_errors(void)
{
	int ep = epoll_new(), fd = FD(rsocket(AF_INET, SOCK_STREAM, 0));
	struct epoll_event ev = { .events = EPOLLIN };

	ERR(ep_ctl(1022, EPOLL_CTL_ADD, fd, &ev), EBADF);
	ERR(ep_ctl(fd, EPOLL_CTL_ADD, ep, &ev), EINVAL);
	ERR(ep_ctl(ep, EPOLL_CTL_ADD, ep, &ev), EINVAL);
	ERR(ep_ctl(ep, EPOLL_CTL_ADD, -1, &ev), EBADF);
	ERR(ep_ctl(ep, EPOLL_CTL_MOD, fd, &ev), ENOENT);
	ERR(ep_ctl(ep, EPOLL_CTL_DEL, fd, NULL), ENOENT);
	OK(ep_ctl(ep, EPOLL_CTL_ADD, fd, &ev));
	ERR(ep_ctl(ep, EPOLL_CTL_ADD, fd, &ev), EEXIST);
	ERR(ep_ctl(ep, 77, fd, &ev), EINVAL);
	ERR(ep_wait(ep, &ev, 0, 0), EINVAL);
	ERR(ep_wait(1022, &ev, 1, 0), EBADF);
	ERR(ep_create(12345678), EINVAL);
	OK(rclose(fd)); /* takes it out */
	EQ(ep_wait(ep, &ev, 1, 0), 0);
	OK(rclose(ep));
	ERR(ep_wait(ep, &ev, 1, 0), EBADF);
}

static void epoll_level(void)
{
	struct rs_pair p = rs_pair();
	int ep = epoll_new();
	char c;

	add(ep, p.p, EPOLLIN);
	nothing(ep);
	BYTES(rsend(p.a, "xy", 2, 0), 2);
	expect(ep, p.p, EPOLLIN);
	expect(ep, p.p, EPOLLIN);
	BYTES(rread(p.p, &c, 1), 1);
	expect(ep, p.p, EPOLLIN);
	BYTES(rread(p.p, &c, 1), 1);
	nothing(ep);
	OK(ep_ctl(ep, EPOLL_CTL_MOD, p.p, &(struct epoll_event){ .events = EPOLLOUT,
								   .data.fd = 77 }));
	expect(ep, 77, EPOLLOUT);
	OK(ep_ctl(ep, EPOLL_CTL_DEL, p.p, NULL));
	nothing(ep);
	OK(rclose(ep));
	rs_pair_close(&p);
}

static void epoll_edge(void)
{
	struct rs_pair p = rs_pair();
	int ep = epoll_new();

	add(ep, p.p, EPOLLIN | EPOLLET);
	BYTES(rsend(p.a, "x", 1, 0), 1);
	expect(ep, p.p, EPOLLIN);
	nothing(ep);
	BYTES(rsend(p.a, "y", 1, 0), 1);
	expect(ep, p.p, EPOLLIN);
	OK(rclose(ep));
	rs_pair_close(&p);
}

static void epoll_oneshot(void)
{
	struct rs_pair p = rs_pair();
	int ep = epoll_new();
	struct epoll_event ev = { .events = EPOLLIN | EPOLLONESHOT };

	add(ep, p.p, EPOLLIN | EPOLLONESHOT);
	BYTES(rsend(p.a, "x", 1, 0), 1);
	expect(ep, p.p, EPOLLIN);
	BYTES(rsend(p.a, "x", 1, 0), 1);
	usleep(20000); /* nothing may happen */
	nothing(ep);
	ev.data.fd = 5;
	OK(ep_ctl(ep, EPOLL_CTL_MOD, p.p, &ev));
	expect(ep, 5, EPOLLIN);
	OK(rclose(ep));
	rs_pair_close(&p);
}

static void epoll_mixed(void)
{
	struct rs_pair p = rs_pair();
	int ep = epoll_new(), fd[2];
	pthread_t t;
	char c;

	OK(pipe(fd));
	add(ep, p.p, EPOLLIN);
	add(ep, fd[0], EPOLLIN);
	add(ep, p.l, EPOLLIN);
	BYTES(write(fd[1], "x", 1), 1);
	expect(ep, fd[0], EPOLLIN);
	BYTES(read(fd[0], &c, 1), 1);
	t = conf_thread(send_later, &p.a);
	expect(ep, p.p, EPOLLIN);
	conf_join(t);
	BYTES(rread(p.p, &c, 1), 1);
	OK(rclose(p.a));
	p.a = -1;
	expect(ep, p.p, EPOLLIN | EPOLLHUP);
	OK(ep_ctl(ep, EPOLL_CTL_DEL, p.p, NULL));
	p.a = FD(rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
	{
		conf_sa addr;
		socklen_t len = sizeof(addr);

		OK(rgetsockname(p.l, SA(addr), &len));
		rconnect(p.a, SA(addr), len);
	}
	expect(ep, p.l, EPOLLIN);
	OK(rclose(ep));
	rs_pair_close(&p);
}

static const struct conf_case cases[] = {
	CASE(poll_basics),
	CASE(poll_timeout),
	CASE(poll_mixed),
	CASE(poll_listener),
	CASE(threads),
	CASE(select_basics),
	CASE(epoll_errors),
	CASE(epoll_level),
	CASE(epoll_edge),
	CASE(epoll_oneshot),
	CASE(epoll_mixed),
};
CONF_MAIN(cases)
