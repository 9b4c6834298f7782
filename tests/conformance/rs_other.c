/* SPDX-License-Identifier: BSD-2-Clause */
/* Options, mapped memory, datagrams, fork. */
#include "rs.h"

#include <netinet/tcp.h>

static int get(int fd, int level, int name)
{
	int v = -1;
	socklen_t len = sizeof(v);

	OK(rgetsockopt(fd, level, name, &v, &len));
	EQ(len, sizeof(v));
	return v;
}

static void set(int fd, int level, int name, int v)
{
	OK(rsetsockopt(fd, level, name, &v, sizeof(v)));
}

static void options(void)
{
	int fd = FD(rsocket(AF_INET, SOCK_STREAM, 0)), v = 1;
	static const int flags[][2] = {
		{ SOL_SOCKET, SO_REUSEADDR }, { SOL_SOCKET, SO_KEEPALIVE },
		{ SOL_SOCKET, SO_OOBINLINE }, { SOL_SOCKET, SO_BROADCAST },
		{ IPPROTO_TCP, TCP_NODELAY },
	};
	struct linger l = { 1, 5 };
	struct tcp_info info;
	socklen_t len = sizeof(l);

	for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++) {
		set(fd, flags[i][0], flags[i][1], 7);
		EQ(get(fd, flags[i][0], flags[i][1]), 1);
		set(fd, flags[i][0], flags[i][1], 0);
		EQ(get(fd, flags[i][0], flags[i][1]), 0);
	}
	set(fd, SOL_SOCKET, SO_RCVBUF, 50000);
	EQ(get(fd, SOL_SOCKET, SO_RCVBUF), 100000);
	set(fd, SOL_SOCKET, SO_SNDBUF, 1);
	EQ(get(fd, SOL_SOCKET, SO_SNDBUF), 4096);
	set(fd, SOL_RDMA, RDMA_SQSIZE, 100);
	EQ(get(fd, SOL_RDMA, RDMA_SQSIZE), 100);
	set(fd, SOL_RDMA, RDMA_RQSIZE, 1 << 20);
	EQ(get(fd, SOL_RDMA, RDMA_RQSIZE), 0xfffe);
	set(fd, SOL_RDMA, RDMA_IOMAPSIZE, 300);
	EQ(get(fd, SOL_RDMA, RDMA_IOMAPSIZE), 256);
	set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 30);
	EQ(get(fd, IPPROTO_TCP, TCP_KEEPIDLE), 30);
	v = 0;
	ERR(rsetsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &v, sizeof(v)), EINVAL);
	set(fd, IPPROTO_IP, IP_TOS, 16);
	EQ(get(fd, IPPROTO_IP, IP_TOS), 16);
	OK(rsetsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l)));
	l = (struct linger){ 0 };
	OK(rgetsockopt(fd, SOL_SOCKET, SO_LINGER, &l, &len));
	EQ(l.l_linger, 5);
	EQ(get(fd, SOL_SOCKET, SO_TYPE), SOCK_STREAM);
	EQ(get(fd, SOL_SOCKET, SO_ACCEPTCONN), 0);
	len = sizeof(info);
	OK(rgetsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len));
	EQ(info.tcpi_state, TCP_CLOSE);
	ERR(rsetsockopt(fd, SOL_SOCKET, SO_MARK, &v, sizeof(v)), ENOTSUP);
	len = sizeof(v);
	ERR(rgetsockopt(fd, SOL_SOCKET, SO_MARK, &v, &len), ENOTSUP);
	ERR(rsetsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &v, 1), EINVAL);
	OK(rclose(fd));
}

static void options_connected(void)
{
	struct rs_pair p = rs_pair();
	struct tcp_info info;
	socklen_t len = sizeof(info);
	int v = 64;

	OK(rgetsockopt(p.p, IPPROTO_TCP, TCP_INFO, &info, &len));
	EQ(info.tcpi_state, TCP_ESTABLISHED);
	EQ(get(p.l, SOL_SOCKET, SO_ACCEPTCONN), 1);
	ERR(rsetsockopt(p.a, SOL_RDMA, RDMA_SQSIZE, &v, sizeof(v)), EINVAL);
	CHECK(get(p.a, IPPROTO_TCP, TCP_MAXSEG) >= 256);
	set(p.a, SOL_SOCKET, SO_KEEPALIVE, 1);
	set(p.a, IPPROTO_TCP, TCP_KEEPIDLE, 1);
	usleep(1200000); /* a probe */
	BYTES(rsend(p.a, "x", 1, 0), 1);
	rs_ready(p.p, POLLIN);
	rs_pair_close(&p);
}

static void time_limit(void)
{
	struct rs_pair p = rs_pair();
	struct timeval t = { .tv_usec = 50000 };
	uint64_t at = conf_now();
	char c;

	OK(rsetsockopt(p.a, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t)));
	ERR((int)rrecv(p.a, &c, 1, 0), EAGAIN);
	CHECK(conf_now() - at >= 50000000);
	rs_pair_close(&p);
}

/* ---- mapped memory ------------------------------------------------------------------- */

static void with_maps(int fd)
{
	set(fd, SOL_RDMA, RDMA_IOMAPSIZE, 4);
}

static void iomap(void)
{
	struct rs_pair p = rs_pair_of(AF_INET, with_maps);
	static uint8_t mem[2][100000], out[100000];
	char c;

	EQ(riomap(p.p, mem[0], sizeof(mem[0]), PROT_WRITE, 0, 0), 0);
	EQ(riomap(p.p, mem[1], sizeof(mem[1]), PROT_WRITE, 0, 200000), 200000);
	ERR((int)riomap(p.p, out, 10, PROT_WRITE, 0, 50000), EINVAL); /* overlaps */
	ERR((int)riomap(p.p, out, 10, PROT_READ, 0, 500000), EINVAL);
	CHECK(riomap(p.p, out, 10, PROT_NONE, 0, -1) == (off_t)(uintptr_t)out);
	OK(riounmap(p.p, out, 10));
	ERR(riounmap(p.p, out, 10), EINVAL);
	BYTES(rsend(p.p, "m", 1, 0), 1); /* announces the mappings */
	BYTES(rrecv(p.a, &c, 1, 0), 1);
	conf_pattern(out, sizeof(out), 9);
	BYTES(riowrite(p.a, out, sizeof(out), 0, 0), sizeof(out));
	BYTES(riowrite(p.a, out, 20, 200100, 0), 20);
	BYTES(riowrite(p.a, out, 20, 299990, 0), 10); /* up to its end */
	BYTES(riowrite(p.a, out, 20, 300000, 0), 0);  /* there is none */
	BYTES(rsend(p.a, "d", 1, 0), 1);	      /* behind the writes */
	BYTES(rrecv(p.p, &c, 1, 0), 1);
	CHECK(conf_pattern_ok(mem[0], sizeof(mem[0]), 9));
	CHECK(!memcmp(mem[1] + 100, out, 20));
	CHECK(!memcmp(mem[1] + 99990, out, 10));
	OK(riounmap(p.p, mem[1], sizeof(mem[1])));
	BYTES(rsend(p.p, "u", 1, 0), 1);
	BYTES(rrecv(p.a, &c, 1, 0), 1);
	BYTES(riowrite(p.a, out, 20, 200100, 0), 0);
	rs_pair_close(&p);
}

static void iomap_limits(void)
{
	struct rs_pair p = rs_pair();
	char mem[10];

	ERR((int)riomap(p.p, mem, sizeof(mem), PROT_WRITE, 0, 0), ENOMEM);
	ERR((int)riomap(p.l, mem, sizeof(mem), PROT_WRITE, 0, 0), EINVAL);
	ERR((int)riowrite(p.l, mem, 1, 0, 0), ENOTCONN);
	rs_pair_close(&p);
}

/* ---- datagrams ----------------------------------------------------------------------- */

static int dgram(int family, conf_sa *addr)
{
	int fd = FD(rsocket(family, SOCK_DGRAM, 0));
	socklen_t len = sizeof(*addr);

	*addr = conf_addr(family, 0);
	OK(rbind(fd, SA(*addr), rs_len(family)));
	OK(rgetsockname(fd, (struct sockaddr *)addr, &len));
	return fd;
}

static void datagrams(int family)
{
	conf_sa a_addr, b_addr, from;
	int a = dgram(family, &a_addr), b = dgram(family, &b_addr);
	uint8_t buf[2048], got[2048];
	socklen_t len;

	for (int i = 0; i < 50; i++) {
		size_t n = (size_t)i * 30 + 1;

		conf_pattern(buf, n, (uint32_t)i);
		BYTES(rsendto(a, buf, n, 0, SA(b_addr), rs_len(family)), n);
		CHECK(rs_ready(b, POLLIN) & POLLIN);
		len = sizeof(from);
		BYTES(rrecvfrom(b, got, sizeof(got), 0, SA(from), &len), n);
		EQ(len, rs_len(family));
		EQ(conf_sa_port(&from), conf_sa_port(&a_addr));
		CHECK(conf_pattern_ok(got, n, (uint32_t)i));
		BYTES(rsendto(b, buf, n, 0, SA(from), len), n);
		BYTES(rrecv(a, got, sizeof(got), 0), n);
	}
	ERR((int)rsendto(a, buf, sizeof(buf), 0, SA(b_addr), rs_len(family)), EMSGSIZE);
	ERR((int)rsend(a, buf, 1, 0), EDESTADDRREQ);
	ERR((int)rrecv(a, got, 1, MSG_DONTWAIT), EAGAIN);
	OK(rconnect(a, SA(b_addr), rs_len(family)));
	BYTES(rsend(a, "abc", 3, 0), 3);
	BYTES(rrecv(b, got, 2, MSG_PEEK), 2);
	BYTES(rrecv(b, got, 2, MSG_TRUNC), 3);
	ERR(rlisten(a, 1), EOPNOTSUPP);
	ERR(raccept(a, NULL, NULL), EOPNOTSUPP);
	OK(rclose(a));
	OK(rclose(b));
}

static void datagrams_v4(void)
{
	datagrams(AF_INET);
}

static void datagrams_v6(void)
{
	datagrams(AF_INET6);
}

/* ---- fork ---------------------------------------------------------------------------- */

static void child_of_fork(void)
{
	struct rs_pair p;
	int status;
	pid_t pid;
	char c;

#ifdef CONF_TSAN
	SKIP("TSan does not follow threads after a fork");
#endif
	p = rs_pair();
	pid = fork();
	if (!pid) {
		struct rs_pair q;
		struct pollfd f = { p.a, POLLIN, 0 };

		ERR((int)rsend(p.a, "x", 1, 0), ECONNRESET);
		ERR((int)rrecv(p.a, &c, 1, 0), ECONNRESET);
		EQ(rpoll(&f, 1, 0), 1);
		OK(rclose(p.a));
		ERR(rclose(p.a), EBADF);
		q = rs_pair(); /* it has sockets of its own */
		BYTES(rsend(q.a, "x", 1, 0), 1);
		BYTES(rrecv(q.p, &c, 1, 0), 1);
		rs_pair_close(&q);
		_exit(0);
	}
	CHECK(pid > 0);
	CHECK(waitpid(pid, &status, 0) == pid);
	EQ(status, 0);
	BYTES(rsend(p.a, "x", 1, 0), 1); /* the parent's are as they were */
	BYTES(rrecv(p.p, &c, 1, 0), 1);
	rs_pair_close(&p);
}

/* ---- many ------------------------------------------------------------------------------ */

static size_t open_fds(void)
{
	size_t n = 0;

	for (int fd = 0; fd < 4096; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void open_and_close(void)
{
	conf_sa addr;
	int l = rs_listener(AF_INET, 64, &addr), a, p;
	unsigned rounds = conf_rounds(300, 10000);
	size_t before = 0;

	for (unsigned i = 0; i < rounds; i++) {
		a = FD(rsocket(AF_INET, SOCK_STREAM, 0));
		OK(rconnect(a, SA(addr), rs_len(AF_INET)));
		p = FD(raccept(l, NULL, NULL));
		OK(rclose(i & 1 ? a : p));
		OK(rclose(i & 1 ? p : a));
		if (i == 50)
			before = open_fds();
	}
	WAIT_FOR(open_fds() <= before + 4);
	OK(rclose(l));
}

static const struct conf_case cases[] = {
	CASE(options),
	CASE(options_connected),
	CASE(time_limit),
	CASE(iomap),
	CASE(iomap_limits),
	CASE(datagrams_v4),
	CASE(datagrams_v6),
	CASE(child_of_fork),
	LONG_CASE(open_and_close, 120),
};
CONF_MAIN(cases)
