/* SPDX-License-Identifier: BSD-2-Clause */
/* Uses RDMA ports 20000..20099 of this network namespace. */
#include "base/fdset.h"
#include "cm/user/dev.h"
#include "cm/user/port.h"
#include "tests/t.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/wait.h>

union addr {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

static const struct anyrdma_interface fake = {
	.fd_take = fdset_take,
	.fd_close = fdset_close,
};

static union addr v4(const char *text, uint16_t port)
{
	union addr a = { .in = { .sin_family = AF_INET, .sin_port = htons(port) } };

	inet_pton(AF_INET, text, &a.in.sin_addr);
	return a;
}

static union addr v6(const char *text, uint16_t port)
{
	union addr a = { .in6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) } };

	inet_pton(AF_INET6, text, &a.in6.sin6_addr);
	return a;
}

static void mapping_is_one_to_one(void)
{
	static uint8_t seen[65536];
	int t;

	for (unsigned p = 0; p < PORT_LIMIT; p++) {
		t = port_to_tcp((uint16_t)p, false);
		REQUIRE(t >= 1024 && t <= 65535);
		REQUIRE(!seen[t]++);
	}
	for (unsigned p = PORT_LIMIT; p < 65536; p++)
		CHECK_EQ(port_to_tcp((uint16_t)p, false), -EADDRNOTAVAIL);
	CHECK_EQ(port_to_tcp(6379, false), 17410);
	CHECK_EQ(port_to_tcp(7471, false), 18502);
	CHECK_EQ(port_to_tcp(18515, false), 29546);
	for (unsigned p = 0; p <= 21736; p++)
		CHECK(port_to_tcp((uint16_t)p, false) < 32768);
	CHECK_EQ(port_to_tcp(21737, false), 32768);
	CHECK_EQ(port_to_tcp(7471, true), 7471);
	CHECK_EQ(port_to_tcp(65535, true), 65535);
}

static int take(union addr a, bool only, bool reuse, struct user_port *p)
{
	p->name_fd = p->tcp_fd = -1;
	return port_bind(RDMA_PS_TCP, &a.sa, only, reuse, p);
}

/* What the second gets while the first holds its port. */
static int second(union addr a, bool a_only, union addr b, bool b_only, bool reuse)
{
	struct user_port pa, pb;
	int ret;

	if (take(a, a_only, reuse, &pa))
		return 1;
	ret = take(b, b_only, reuse, &pb);
	if (!ret)
		port_release(&pb);
	port_release(&pa);
	return ret;
}

static void one_owner(void)
{
	union addr x = v4("10.1.2.3", 20001), y = v4("10.1.2.4", 20001);
	union addr any = v4("0.0.0.0", 20001), lo = v4("127.0.0.1", 20001);

	CHECK_EQ(second(x, true, x, true, false), -EADDRINUSE);
	CHECK_EQ(second(x, true, y, true, false), 0);
	CHECK_EQ(second(any, true, any, true, false), -EADDRNOTAVAIL);
	CHECK_EQ(second(any, true, x, true, false), -EADDRNOTAVAIL);
	CHECK_EQ(second(x, true, any, true, false), -EADDRNOTAVAIL);
	/* loopback means every device, as the wildcard does */
	CHECK_EQ(second(lo, true, x, true, false), -EADDRNOTAVAIL);
	CHECK_EQ(second(lo, true, lo, true, false), -EADDRNOTAVAIL);
	CHECK_EQ(second(x, true, v4("10.1.2.3", 20002), true, false), 0);
}

static void families(void)
{
	union addr any4 = v4("0.0.0.0", 20003), any6 = v6("::", 20003);
	union addr x6 = v6("2001:db8::1", 20003);

	CHECK_EQ(second(any4, true, any6, false, false), -EADDRNOTAVAIL);
	CHECK_EQ(second(any6, false, any4, true, false), -EADDRNOTAVAIL);
	CHECK_EQ(second(any4, true, any6, true, false), 0);
	CHECK_EQ(second(any6, true, any6, false, false), -EADDRNOTAVAIL);
	CHECK_EQ(second(any6, true, x6, true, false), -EADDRNOTAVAIL);
	CHECK_EQ(second(x6, true, x6, true, false), -EADDRINUSE);
	CHECK_EQ(second(v4("10.1.2.3", 20003), true, x6, true, false), 0);
}

static void port_spaces(void)
{
	union addr x = v4("10.1.2.3", 20004);
	struct user_port a, b;

	REQUIRE_EQ(take(x, true, false, &a), 0);
	b.name_fd = b.tcp_fd = -1;
	CHECK_EQ(port_bind(RDMA_PS_UDP, &x.sa, true, false, &b), 0);
	port_release(&b);
	CHECK_EQ(port_bind(RDMA_PS_IB, &x.sa, true, false, &b), -EADDRINUSE);
	port_release(&a);
}

static void reuse(void)
{
	union addr x = v4("10.1.2.3", 20005), any = v4("0.0.0.0", 20005);
	struct user_port a, b;

	CHECK_EQ(second(x, true, x, true, true), 0);
	CHECK_EQ(second(x, true, any, true, true), 0);
	REQUIRE_EQ(take(x, true, true, &a), 0);
	CHECK_EQ(take(x, true, false, &b), -EADDRINUSE);
	CHECK_EQ(take(any, true, false, &b), -EADDRNOTAVAIL);
	CHECK_EQ(port_unique(RDMA_PS_TCP, &x.sa, true, &a), 0);
	CHECK_EQ(take(x, true, true, &b), -EADDRINUSE); /* a listens */
	port_release(&a);
	REQUIRE_EQ(take(x, true, true, &a), 0);
	REQUIRE_EQ(take(x, true, true, &b), 0);
	CHECK_EQ(port_unique(RDMA_PS_TCP, &x.sa, true, &a), -EADDRINUSE);
	port_release(&a);
	CHECK_EQ(port_unique(RDMA_PS_TCP, &x.sa, true, &b), 0);
	CHECK_EQ(take(x, true, false, &a), -EADDRINUSE);
	port_release(&b);
	REQUIRE_EQ(take(x, true, false, &a), 0);
	CHECK_EQ(take(x, true, true, &b), -EADDRINUSE);
	port_release(&a);
}

static void other_process(void)
{
	union addr x = v4("10.1.2.3", 20006);
	struct user_port p;
	int up[2], down[2], status;
	char c = 0;
	pid_t pid;

	REQUIRE(!pipe(up) && !pipe(down));
	pid = fork();
	if (!pid) {
		int r = take(x, true, false, &p);

		if (write(up[1], r ? "n" : "y", 1) != 1 || read(down[0], &c, 1) != 1)
			_exit(2);
		_exit(r != 0);
	}
	REQUIRE(read(up[0], &c, 1) == 1 && c == 'y');
	CHECK_EQ(take(x, true, false, &p), -EADDRINUSE);
	CHECK(port_owned(RDMA_PS_TCP, &x.sa, 20006));
	CHECK(!port_owned(RDMA_PS_TCP, &x.sa, 20007));
	REQUIRE(write(down[1], "x", 1) == 1);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	/* gone with its process */
	CHECK(!port_owned(RDMA_PS_TCP, &x.sa, 20006));
	CHECK_EQ(take(x, true, false, &p), 0);
	port_release(&p);
	close(up[0]), close(up[1]), close(down[0]), close(down[1]);
}

static void chosen_ports(void)
{
	struct user_port p[20];

	for (int i = 0; i < 20; i++) {
		REQUIRE_EQ(take(v4("127.0.0.1", 0), true, false, &p[i]), 0);
		CHECK(p[i].num >= 32768 && p[i].num < 61000);
		CHECK(p[i].tcp_fd >= 0);
		for (int j = 0; j < i; j++)
			CHECK(p[j].num != p[i].num);
	}
	for (int i = 0; i < 20; i++) {
		port_release(&p[i]);
		CHECK(p[i].name_fd == -1 && p[i].tcp_fd == -1);
	}
}

static void refused_ports(void)
{
	struct user_port p;
	int status;
	pid_t pid;

	CHECK_EQ(take(v4("127.0.0.1", 64512), true, false, &p), -EADDRNOTAVAIL);
	CHECK_EQ(take(v4("127.0.0.1", 65535), true, false, &p), -EADDRNOTAVAIL);
	pid = fork();
	if (!pid) {
		if (!getuid() && setresuid(65534, 65534, 65534))
			_exit(1);
		_exit(take(v4("127.0.0.1", 1), true, false, &p) == -EACCES ? 0 : 2);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK_EQ(status, 0);
}

static void names(void)
{
	struct port_claim c;
	unsigned port;

	CHECK(port_parse("10.0.0.1/80", &c, &port) && port == 80 && !c.ipv6 && !c.any);
	CHECK(port_parse("::/80", &c, &port) && c.ipv6 && c.any && !c.afonly);
	CHECK(port_parse("::!/80", &c, &port) && c.ipv6 && c.any && c.afonly);
	CHECK(port_parse("fe80::1%3/80/r1.2", &c, &port) && c.reuse);
	CHECK(port_parse("127.1.2.3/9", &c, &port) && c.any);
	CHECK(!port_parse("10.0.0.1", &c, &port));
	CHECK(!port_parse("10.0.0/80", &c, &port));
	CHECK(!port_parse("/80", &c, &port));
	CHECK(!port_parse("::/x", &c, &port));
	CHECK(!port_parse("::/80x", &c, &port));
	CHECK(!port_parse("1234567890123456789012345678901234567890123456789012345678901234/1",
			  &c, &port));
}

/* What other processes look for: doc/security.md has them. */
static void names_of_listeners(void)
{
	static const struct {
		enum rdma_port_space ps;
		const char *addr;
		uint16_t port;
		const char *name[3];
	} rows[] = {
		{ RDMA_PS_TCP, "10.0.200.1", 80,
		  { "anyrdma/1/106/10.0.200.1/80", "anyrdma/1/106/0.0.0.0/80",
		    "anyrdma/1/106/::/80" } },
		{ RDMA_PS_IB, "255.99.100.9", 65535,
		  { "anyrdma/1/106/255.99.100.9/65535", "anyrdma/1/106/0.0.0.0/65535",
		    "anyrdma/1/106/::/65535" } },
		{ RDMA_PS_UDP, "2001:db8::10", 10,
		  { "anyrdma/1/111/2001:db8::10/10", "anyrdma/1/111/::!/10",
		    "anyrdma/1/111/::/10" } },
		{ RDMA_PS_IPOIB, "::ffff:127.0.0.1", 0,
		  { "anyrdma/1/2/127.0.0.1/0", "anyrdma/1/2/0.0.0.0/0",
		    "anyrdma/1/2/::/0" } },
		{ RDMA_PS_TCP, "fe80::1", 9,
		  { "anyrdma/1/106/fe80::1%4294967295/9", "anyrdma/1/106/::!/9",
		    "anyrdma/1/106/::/9" } },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		bool is6 = strchr(rows[i].addr, ':');
		union addr a = is6 ? v6(rows[i].addr, rows[i].port) :
				     v4(rows[i].addr, rows[i].port);
		struct stream_names got;

		if (is6)
			a.in6.sin6_scope_id = UINT32_MAX;
		port_names(rows[i].ps, &a.sa, &got);
		for (int k = 0; k < 3; k++)
			CHECK_STR(got.name[k], rows[i].name[k]);
	}
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	cm_dev = &fake;
	T_RUN(mapping_is_one_to_one);
	T_RUN(names);
	T_RUN(names_of_listeners);
	T_RUN(one_owner);
	T_RUN(families);
	T_RUN(port_spaces);
	T_RUN(reuse);
	T_RUN(other_process);
	T_RUN(chosen_ports);
	T_RUN(refused_ports);
	return t_done();
}
