/* SPDX-License-Identifier: BSD-2-Clause */
/* Stream rsockets: data, ends, errors. */
#include "rs.h"

static void not_a_socket(void)
{
	struct iovec v = { .iov_len = 0 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
	struct sockaddr_in a = { .sin_family = AF_INET };
	socklen_t len = sizeof(a);
	char c = 0;
	int bad[] = { -1, 0, 1023, 1 << 20, INT32_MAX };

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		int fd = bad[i];

		ERR(rbind(fd, (void *)&a, len), EBADF);
		ERR(rlisten(fd, 1), EBADF);
		ERR(raccept(fd, NULL, NULL), EBADF);
		ERR(rconnect(fd, (void *)&a, len), EBADF);
		ERR(rshutdown(fd, SHUT_RDWR), EBADF);
		ERR(rclose(fd), EBADF);
		ERR((int)rrecv(fd, &c, 1, 0), EBADF);
		ERR((int)rrecvfrom(fd, &c, 1, 0, NULL, NULL), EBADF);
		ERR((int)rrecvmsg(fd, &m, 0), EBADF);
		ERR((int)rsend(fd, &c, 1, 0), EBADF);
		ERR((int)rsendto(fd, &c, 1, 0, NULL, 0), EBADF);
		ERR((int)rsendmsg(fd, &m, 0), EBADF);
		ERR((int)rread(fd, &c, 1), EBADF);
		ERR((int)rreadv(fd, &v, 1), EBADF);
		ERR((int)rwrite(fd, &c, 1), EBADF);
		ERR((int)rwritev(fd, &v, 1), EBADF);
		ERR(rgetpeername(fd, (void *)&a, &len), EBADF);
		ERR(rgetsockname(fd, (void *)&a, &len), EBADF);
		ERR(rsetsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &len, sizeof(len)), EBADF);
		ERR(rgetsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &c, &len), EBADF);
		ERR(rfcntl(fd, F_GETFL), EBADF);
		ERR((int)riomap(fd, &c, 1, PROT_WRITE, 0, 0), EBADF);
		ERR(riounmap(fd, &c, 1), EBADF);
		ERR((int)riowrite(fd, &c, 1, 0, 0), EBADF);
	}
}

static void not_connected(void)
{
	int fd = FD(rsocket(AF_INET, SOCK_STREAM, 0));
	struct sockaddr_in a;
	socklen_t len = sizeof(a);
	char c = 0;

	ERR((int)rsend(fd, &c, 1, 0), ENOTCONN);
	ERR((int)rrecv(fd, &c, 1, 0), ENOTCONN);
	ERR(rshutdown(fd, SHUT_WR), ENOTCONN);
	ERR(rgetpeername(fd, (void *)&a, &len), ENOTCONN);
	ERR(raccept(fd, NULL, NULL), EINVAL);
	OK(rgetsockname(fd, (void *)&a, &len));
	EQ(len, sizeof(a));
	EQ(a.sin_family, AF_INET);
	OK(rclose(fd));
	ERR(rclose(fd), EBADF);
	ERR((int)rsend(fd, &c, 1, 0), EBADF);
}

static void refused_kinds(void)
{
	ERR(rsocket(AF_UNIX, SOCK_STREAM, 0), ENOTSUP);
	ERR(rsocket(AF_INET, SOCK_RAW, 0), ENOTSUP);
	ERR(rsocket(AF_INET, SOCK_STREAM, IPPROTO_UDP), ENOTSUP);
	ERR(rsocket(AF_INET, SOCK_SEQPACKET, 0), ENOTSUP);
}

static void kind_flags(void)
{
	int fd = FD(rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));

	CHECK(rfcntl(fd, F_GETFL) & O_NONBLOCK);
	EQ(rfcntl(fd, F_GETFD), FD_CLOEXEC);
	OK(rfcntl(fd, F_SETFL, 0));
	CHECK(!(rfcntl(fd, F_GETFL) & O_NONBLOCK));
	OK(rclose(fd));
	fd = FD(rsocket(AF_INET, SOCK_STREAM, IPPROTO_TCP));
	EQ(rfcntl(fd, F_GETFD), 0);
	EQ(rfcntl(fd, F_GETFL), O_RDWR);
	ERR(rfcntl(fd, F_GETOWN), ENOTSUP);
	OK(rclose(fd));
}

/* ---- data -------------------------------------------------------------------------- */

struct job {
	int fd;
	size_t len;
	uint32_t seed;
};

static void *sender(void *arg)
{
	struct job *j = arg;

	rs_send_all(j->fd, j->len, j->seed);
	return NULL;
}

static void exchange(int from, int to, size_t len, uint32_t seed)
{
	struct job j = { from, len, seed };
	pthread_t t = conf_thread(sender, &j);

	rs_recv_all(to, len, seed);
	conf_join(t);
}

static void sizes(int family)
{
	static const size_t sizes[] = { 1, 63, 64, 65, 100, 2047, 2048, 4095, 4096, 4097,
					65535, 65536, 65537, 1000000, 4 << 20 };
	struct rs_pair p = rs_pair_of(family, NULL);

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		exchange(p.a, p.p, sizes[i], (uint32_t)i);
		exchange(p.p, p.a, sizes[i], (uint32_t)i + 100);
	}
	rs_pair_close(&p);
}

static void sizes_v4(void)
{
	sizes(AF_INET);
}

static void sizes_v6(void)
{
	sizes(AF_INET6);
}

static void both_ways(void)
{
	struct rs_pair p = rs_pair();
	struct job j[2] = { { p.a, 3 << 20, 1 }, { p.p, 3 << 20, 2 } };
	pthread_t t[2] = { conf_thread(sender, &j[0]), conf_thread(sender, &j[1]) };

	rs_recv_all(p.p, 3 << 20, 1);
	rs_recv_all(p.a, 3 << 20, 2);
	conf_join(t[0]);
	conf_join(t[1]);
	rs_pair_close(&p);
}

static void ping_pong(void)
{
	struct rs_pair p = rs_pair();
	char buf[64];

	for (int i = 0; i < 2000; i++) {
		memset(buf, i, sizeof(buf));
		BYTES(rsend(p.a, buf, sizeof(buf), 0), sizeof(buf));
		BYTES(rrecv(p.p, buf, sizeof(buf), MSG_WAITALL), sizeof(buf));
		CHECK(conf_is_fill(buf, i & 255, sizeof(buf)));
		BYTES(rsend(p.p, buf, sizeof(buf), 0), sizeof(buf));
		BYTES(rrecv(p.a, buf, sizeof(buf), MSG_WAITALL), sizeof(buf));
	}
	rs_pair_close(&p);
}

/* A sender without a receiver stops; nothing is lost. */
static void fills_up(void)
{
	struct rs_pair p = rs_pair();
	static uint8_t buf[8192], got[8192];
	size_t sent = 0, off = 0;
	ssize_t n;

	rs_nonblock(p.a);
	conf_pattern(buf, sizeof(buf), 5);
	/* What has arrived makes room in the sender's buffer, up to a point. */
	while (rpoll(&(struct pollfd){ .fd = p.a, .events = POLLOUT }, 1, CONF_QUIET)) {
		n = rsend(p.a, buf + sent % sizeof(buf), sizeof(buf) - sent % sizeof(buf),
			  0);
		if (n < 0)
			EQ(errno, EAGAIN);
		sent += n < 0 ? 0 : (size_t)n;
		CHECK(sent < 64 << 20);
	}
	ERR((int)rsend(p.a, buf, 1, 0), EAGAIN);
	CHECK(sent > 0);
	for (; off < sent; off += (size_t)n) {
		n = rrecv(p.p, got, sizeof(got) - off % sizeof(got), 0);
		CHECK(n > 0);
		CHECK(!memcmp(got, buf + off % sizeof(buf), (size_t)n));
	}
	rs_ready(p.a, POLLOUT);
	ERR((int)rrecv(p.p, got, 1, MSG_DONTWAIT), EAGAIN);
	rs_pair_close(&p);
}

static void peek_and_wait(void)
{
	struct rs_pair p = rs_pair();
	char buf[200] = { 0 };

	BYTES(rsend(p.a, "hello", 5, 0), 5);
	BYTES(rrecv(p.p, buf, 5, MSG_PEEK), 5);
	CHECK(!memcmp(buf, "hello", 5));
	BYTES(rsend(p.a, "world", 5, 0), 5);
	WAIT_FOR(rrecv(p.p, buf, 10, MSG_PEEK) == 10);
	CHECK(!memcmp(buf, "helloworld", 10));
	BYTES(rrecv(p.p, buf, 7, 0), 7);
	BYTES(rrecv(p.p, buf, 200, MSG_PEEK), 3);
	BYTES(rrecv(p.p, buf, 200, 0), 3);
	CHECK(!memcmp(buf, "rld", 3));
	BYTES(rsend(p.a, "end", 3, MSG_NOSIGNAL), 3);
	OK(rshutdown(p.a, SHUT_WR));
	BYTES(rrecv(p.p, buf, 10, MSG_WAITALL), 3);
	BYTES(rrecv(p.p, buf, 10, MSG_WAITALL), 0);
	rs_pair_close(&p);
}

static void vectors(void)
{
	struct rs_pair p = rs_pair();
	char a[3], b[300], c[40];
	struct iovec out[] = { { "ab", 2 }, { NULL, 0 }, { b, sizeof(b) }, { "z", 1 } };
	struct iovec in[] = { { a, 3 }, { NULL, 0 }, { b, 299 }, { c, 1 } };
	struct msghdr m = { .msg_iov = in, .msg_iovlen = 4 };

	memset(b, 'm', sizeof(b));
	BYTES(rwritev(p.a, out, 4), 303);
	memset(b, 0, sizeof(b));
	WAIT_FOR(rrecv(p.p, (char[400]){ 0 }, 400, MSG_PEEK) == 303);
	BYTES(rreadv(p.p, in, 4), 303);
	CHECK(!memcmp(a, "abm", 3) && b[0] == 'm' && b[298] == 'm' && c[0] == 'z');
	out[0].iov_len = 1;
	BYTES(rsendmsg(p.a, &(struct msghdr){ .msg_iov = out, .msg_iovlen = 1 }, 0), 1);
	rs_ready(p.p, POLLIN);
	BYTES(rrecvmsg(p.p, &m, MSG_PEEK), 1);
	BYTES(rrecvmsg(p.p, &m, 0), 1);
	m.msg_control = c;
	m.msg_controllen = sizeof(c);
	ERR((int)rrecvmsg(p.p, &m, 0), ENOTSUP);
	ERR((int)rsendmsg(p.a, &m, 0), ENOTSUP);
	ERR((int)rsendto(p.a, "x", 1, 0, (struct sockaddr *)a, 16), EISCONN);
	rs_pair_close(&p);
}

/* ---- ends -------------------------------------------------------------------------- */

static void shut_write(void)
{
	struct rs_pair p = rs_pair();
	char c = 1;

	BYTES(rsend(p.a, &c, 1, 0), 1);
	OK(rshutdown(p.a, SHUT_WR));
	ERR((int)rsend(p.a, &c, 1, MSG_NOSIGNAL), EPIPE);
	BYTES(rrecv(p.p, &c, 1, 0), 1);
	BYTES(rrecv(p.p, &c, 1, 0), 0);
	CHECK(rs_ready(p.p, POLLIN | POLLRDHUP) & POLLRDHUP);
	exchange(p.p, p.a, 100000, 3); /* the other direction still works */
	OK(rshutdown(p.p, SHUT_WR));
	BYTES(rrecv(p.a, &c, 1, 0), 0);
	CHECK(rs_ready(p.a, 0) & POLLHUP);
	rs_pair_close(&p);
}

static void close_tells(void)
{
	struct rs_pair p = rs_pair();
	char buf[5000];

	memset(buf, 7, sizeof(buf));
	BYTES(rsend(p.a, buf, sizeof(buf), 0), sizeof(buf));
	OK(rclose(p.a));
	p.a = -1;
	memset(buf, 0, sizeof(buf));
	/* What is to be read comes before the end. */
	EQ(rs_ready(p.p, POLLIN), POLLIN);
	BYTES(rrecv(p.p, buf, sizeof(buf), MSG_WAITALL), sizeof(buf));
	CHECK(conf_is_fill(buf, 7, sizeof(buf)));
	BYTES(rrecv(p.p, buf, 1, 0), 0);
	CHECK(rs_ready(p.p, POLLIN) & POLLHUP);
	ERR((int)rsend(p.p, buf, 1, MSG_NOSIGNAL), ECONNRESET);
	rs_pair_close(&p);
}

static void *receiver(void *arg)
{
	char c;

	EQ(rrecv(*(int *)arg, &c, 1, 0), -1);
	EQ(errno, EBADF);
	return NULL;
}

static void close_wakes(void)
{
	struct rs_pair p = rs_pair();
	pthread_t t = conf_thread(receiver, &p.a);

	conf_blocked(t);
	OK(rclose(p.a));
	conf_join(t);
	p.a = -1;
	rs_pair_close(&p);
}

static void *acceptor(void *arg)
{
	EQ(raccept(*(int *)arg, NULL, NULL), -1);
	return NULL;
}

static void close_wakes_accept(void)
{
	conf_sa addr;
	int l = rs_listener(AF_INET, 4, &addr);
	pthread_t t = conf_thread(acceptor, &l);

	conf_blocked(t);
	OK(rclose(l));
	conf_join(t);
}

/* A process that connects to the address it is told, sends a byte and does nothing more.
 * It is made before this process uses the device: TSan wants no threads at a fork. */
static pid_t peer_start(int *tell)
{
	int fd[2];
	pid_t pid;

	OK(pipe(fd));
	pid = fork();
	CHECK(pid >= 0);
	*tell = fd[1];
	if (!pid) {
		conf_sa addr;
		int a;

		if (read(fd[0], &addr, sizeof(addr)) != sizeof(addr))
			_exit(1);
		a = rsocket(AF_INET, SOCK_STREAM, 0);
		if (rconnect(a, SA(addr), rs_len(AF_INET)) || rsend(a, "x", 1, 0) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	return pid;
}

static int peer_accept(int tell, int *l)
{
	conf_sa addr;
	char c;
	int p;

	*l = rs_listener(AF_INET, 4, &addr);
	BYTES(write(tell, &addr, sizeof(addr)), sizeof(addr));
	p = FD(raccept(*l, NULL, NULL));
	BYTES(rrecv(p, &c, 1, 0), 1);
	return p;
}

static void peer_killed(void)
{
	int l, p, tell;
	pid_t pid = peer_start(&tell);
	uint64_t at;
	char c;

	p = peer_accept(tell, &l);
	OK(kill(pid, SIGKILL));
	at = conf_now();
	BYTES(rrecv(p, &c, 1, 0), 0);
	CHECK(conf_now() - at < (uint64_t)conf_ms(1000) * 1000000);
	ERR((int)rsend(p, &c, 1, MSG_NOSIGNAL), ECONNRESET);
	CHECK(waitpid(pid, NULL, 0) == pid);
	OK(rclose(p));
	OK(rclose(l));
}

static void peer_stopped(void)
{
	int l, p, tell;
	pid_t pid = peer_start(&tell);
	uint64_t at;

	p = peer_accept(tell, &l);
	OK(kill(pid, SIGSTOP));
	at = conf_now();
	OK(rshutdown(p, SHUT_WR));
	OK(rclose(p));
	CHECK(conf_now() - at < (uint64_t)conf_ms(6000) * 1000000);
	OK(kill(pid, SIGKILL));
	CHECK(waitpid(pid, NULL, 0) == pid);
	OK(rclose(l));
}

/* ---- connecting --------------------------------------------------------------------- */

static void refused(void)
{
	conf_sa addr;
	int l = rs_listener(AF_INET, 4, &addr), a = FD(rsocket(AF_INET, SOCK_STREAM, 0));

	OK(rclose(l));
	ERR(rconnect(a, SA(addr), rs_len(AF_INET)), ECONNREFUSED);
	ERR((int)rsend(a, "x", 1, 0), ENOTCONN);
	ERR(rconnect(a, SA(addr), rs_len(AF_INET)), ENOTCONN);
	OK(rclose(a));
	a = FD(rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
	ERR(rconnect(a, SA(addr), rs_len(AF_INET)), EINPROGRESS);
	CHECK(rs_ready(a, POLLOUT) & POLLERR);
	{
		int err = 0;
		socklen_t len = sizeof(err);

		OK(rgetsockopt(a, SOL_SOCKET, SO_ERROR, &err, &len));
		EQ(err, ECONNREFUSED);
		OK(rgetsockopt(a, SOL_SOCKET, SO_ERROR, &err, &len));
		EQ(err, 0);
	}
	OK(rclose(a));
}

static void nonblocking(void)
{
	conf_sa addr, name;
	int l = rs_listener(AF_INET, 4, &addr), a, p, err = 1;
	socklen_t len = sizeof(err);
	char c;

	rs_nonblock(l);
	ERR(raccept(l, NULL, NULL), EAGAIN);
	a = FD(rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
	if (rconnect(a, SA(addr), rs_len(AF_INET)))
		EQ(errno, EINPROGRESS);
	rs_ready(a, POLLOUT);
	OK(rgetsockopt(a, SOL_SOCKET, SO_ERROR, &err, &len));
	EQ(err, 0);
	CHECK(rs_ready(l, POLLIN) & POLLIN);
	len = sizeof(name);
	p = FD(raccept(l, SA(name), &len));
	EQ(len, sizeof(struct sockaddr_in));
	CHECK(!(rfcntl(p, F_GETFL) & O_NONBLOCK));
	ERR((int)rrecv(a, &c, 1, 0), EAGAIN);
	ERR(rconnect(a, SA(addr), rs_len(AF_INET)), EISCONN);
	len = sizeof(addr);
	OK(rgetsockname(a, SA(addr), &len));
	EQ(conf_sa_port(&addr), conf_sa_port(&name));
	BYTES(rsend(p, "x", 1, 0), 1);
	rs_ready(a, POLLIN);
	BYTES(rrecv(a, &c, 1, 0), 1);
	OK(rclose(a));
	OK(rclose(p));
	OK(rclose(l));
}

/* Connects without anybody in raccept(); the data waits. */
static void backlog(void)
{
	conf_sa addr;
	int l = rs_listener(AF_INET, 8, &addr), a[4], p;
	char c;

	for (int i = 0; i < 4; i++) {
		a[i] = FD(rsocket(AF_INET, SOCK_STREAM, 0));
		OK(rconnect(a[i], SA(addr), rs_len(AF_INET)));
		c = (char)i;
		BYTES(rsend(a[i], &c, 1, 0), 1);
	}
	for (int i = 0; i < 4; i++) {
		p = FD(raccept(l, NULL, NULL));
		BYTES(rrecv(p, &c, 1, 0), 1);
		EQ(c, i);
		OK(rclose(p));
		BYTES(rrecv(a[i], &c, 1, 0), 0);
		OK(rclose(a[i]));
	}
	OK(rclose(l));
}

/* The port is free at once. */
static void listen_again(void)
{
	conf_sa addr;
	int l = rs_listener(AF_INET, 4, &addr);

	for (int i = 0; i < 20; i++) {
		OK(rclose(l));
		l = FD(rsocket(AF_INET, SOCK_STREAM, 0));
		OK(rbind(l, SA(addr), rs_len(AF_INET)));
		OK(rlisten(l, 1));
	}
	OK(rclose(l));
}

static const struct conf_case cases[] = {
	CASE(not_a_socket),
	CASE(not_connected),
	CASE(refused_kinds),
	CASE(kind_flags),
	CASE(sizes_v4),
	CASE(sizes_v6),
	CASE(both_ways),
	CASE(ping_pong),
	CASE(fills_up),
	CASE(peek_and_wait),
	CASE(vectors),
	CASE(shut_write),
	CASE(close_tells),
	CASE(close_wakes),
	CASE(close_wakes_accept),
	CASE(peer_killed),
	CASE(peer_stopped),
	CASE(refused),
	CASE(nonblocking),
	CASE(backlog),
	CASE(listen_again),
};
CONF_MAIN(cases)
