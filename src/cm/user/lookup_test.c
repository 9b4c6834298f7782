/* SPDX-License-Identifier: BSD-2-Clause */
/* UD ids: the backend against itself over loopback UDP, and against raw peers that lose,
 * repeat and break. */
#include "tests/t.h"

#include "cm/user/lookup_test.h"
#include "cm/user/wire_udp.h"

#include <dirent.h>
#include <sys/wait.h>

/* How many descriptors the process has. */
static int fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

/* ---- both ends ours -------------------------------------------------------------- */

static void accepts(void)
{
	struct cm_addrs a, b;
	struct ibv_path_data path;
	struct cm_event *ev;
	uint8_t tos = 0x20;
	struct pair p;

	REQUIRE(ud_request(&p));
	CHECK_EQ(be->set_option(p.id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1), 0);
	be->query_addr(p.id, &a);
	be->query_addr(p.child, &b);
	CHECK(b.bound);
	CHECK_EQ(be->query_path(p.id, &path, 1), 1);
	CHECK_EQ(be->query_path(p.child, &path, 1), 0);
	CHECK(memcmp(&a.src, &b.dst, sizeof(struct sockaddr_in)) == 0);
	CHECK(memcmp(&a.dst, &b.src, sizeof(struct sockaddr_in)) == 0);
	CHECK_EQ(be->accept(p.child, &give), 0);
	ev = want_for(p.cc, RDMA_CM_EVENT_ESTABLISHED, 0, 5000);
	REQUIRE(ev);
	CHECK_EQ(ev->pub.param.ud.qp_num, 0x4321);
	CHECK_EQ(ev->pub.param.ud.ah_attr.grh.traffic_class, 0x20);
	CHECK(memcmp(&ev->pub.param.ud.ah_attr.grh.dgid, &a.dgid, 16) == 0);
	cm_event_free(ev);
	CHECK(silent(p.cs)); /* the passive side hears nothing */
	CHECK_EQ(be->accept(p.child, &give), -EINVAL);
	CHECK_EQ(be->reject(p.child, 0, NULL, 0), -EINVAL);
	CHECK_EQ(be->connect(p.id, &ask), -EINVAL);
	CHECK_EQ(be->establish(p.id), -EINVAL);
	CHECK_EQ(be->disconnect(p.id), 0);
	CHECK_EQ(be->disconnect(p.child), 0);
	CHECK(silent(p.cs) && silent(p.cc));
	pair_end(&p);
}

static void rejects(void)
{
	uint8_t big[136];
	struct pair p;

	memset(big, 0x5a, sizeof(big));
	REQUIRE(ud_request(&p));
	CHECK_EQ(be->reject(p.id, 0, NULL, 0), -EINVAL);
	CHECK_EQ(be->reject(p.child, 0, big, 137), -EINVAL);
	CHECK_EQ(be->reject(p.child, 0, "why", 4), 0);
	CHECK(refused_with(p.cc, 2, "why"));
	CHECK_EQ(be->accept(p.child, &give), -EINVAL);
	CHECK_EQ(be->connect(p.id, &ask), -EINVAL);
	CHECK_EQ(be->disconnect(p.id), 0);
	pair_end(&p);
}

static void limits_of_private_data(void)
{
	struct cm_conn_param big = { .qp_num = 1 };
	struct cm_event *ev;
	struct pair p;

	memset(big.private_data, 0x5a, sizeof(big.private_data));
	REQUIRE(ud_request(&p));
	big.private_data_len = 137;
	CHECK_EQ(be->accept(p.child, &big), -EINVAL);
	CHECK(refused_with(p.cc, 2, "")); /* a failed accept rejects */
	id_free(p.id);
	id_free(p.child);
	p.id = ud_routed4(p.cc, src_port(p.lis));
	big.private_data_len = 181;
	CHECK_EQ(be->connect(p.id, &big), -EINVAL);
	big.private_data_len = 180;
	CHECK_EQ(be->connect(p.id, &big), 0);
	ev = want_for(p.cs, RDMA_CM_EVENT_CONNECT_REQUEST, 0, 5000);
	REQUIRE(ev);
	CHECK(memcmp(ev->pub.param.ud.private_data, big.private_data, 180) == 0);
	p.child = ud_new(p.cs, ev->be_child);
	cm_event_free(ev);
	big.private_data_len = 136;
	CHECK_EQ(be->accept(p.child, &big), 0);
	ev = want_for(p.cc, RDMA_CM_EVENT_ESTABLISHED, 0, 5000);
	REQUIRE(ev);
	CHECK(memcmp(ev->pub.param.ud.private_data, big.private_data, 136) == 0);
	cm_event_free(ev);
	pair_end(&p);
}

static void nobody_listens(void)
{
	struct cm_channel *ch = ch_new();
	struct cm_id *id = ud_routed4(ch, NOBODY);

	CHECK_EQ(be->connect(id, &ask), 0);
	CHECK(refused_with(ch, 1, ""));
	id_free(id);
	id = ud_routed4(ch, 64999); /* has no UDP port */
	CHECK_EQ(be->connect(id, &ask), 0);
	CHECK(refused_with(ch, 1, ""));
	id_free(id);
	cm_channel_free(ch);
}

/* A port that is bound, and has no listener. */
static void bound_alone(void)
{
	struct cm_channel *cs = ch_new(), *cc = ch_new();
	struct sockaddr_in a = loop_addr(0);
	struct cm_id *bound = ud_new(cs, NULL), *id;

	CHECK_EQ(be->bind(bound, (struct sockaddr *)&a), 0);
	id = ud_routed4(cc, src_port(bound));
	CHECK_EQ(be->connect(id, &ask), 0);
	CHECK(refused_with(cc, 1, ""));
	CHECK_EQ(be->disconnect(bound), -EINVAL);
	CHECK_EQ(be->listen(bound, 1), 0);
	CHECK_EQ(be->disconnect(bound), 0);
	id_free(id);
	id_free(bound);
	cm_channel_free(cs);
	cm_channel_free(cc);
}

static void destroyed_before_accept(void)
{
	struct pair p;

	REQUIRE(ud_request(&p));
	id_free(p.child);
	p.child = NULL;
	CHECK(refused_with(p.cc, 2, ""));
	pair_end(&p);

	/* The active side's end is not told. */
	REQUIRE(ud_request(&p));
	id_free(p.id);
	p.id = NULL;
	CHECK_EQ(be->accept(p.child, &give), 0);
	pair_end(&p);
}

/* Its queued requests die with it; a fetched one does not, and its port is free at once. */
static void listener_destroyed(void)
{
	struct sockaddr_in a = loop_addr(0);
	struct cm_id *second;
	struct pair p;

	REQUIRE(ud_request(&p));
	second = ud_routed4(p.cc, src_port(p.lis));
	a = loop_addr(src_port(p.lis));
	CHECK_EQ(be->connect(second, &ask), 0);
	CHECK(T_WAIT(!silent(p.cs), 5000));
	id_free(p.lis);
	CHECK(refused_with(p.cc, 2, ""));
	p.lis = ud_listener(p.cs, (struct sockaddr *)&a, 10);
	CHECK_EQ(be->accept(p.child, &give), 0);
	CHECK(got_established(p.cc));
	CHECK(silent(p.cs));
	id_free(second);
	pair_end(&p);
}

/* Above the backlog requests are refused; what was fetched does not count. */
static void backlog(void)
{
	struct sockaddr_in a = loop_addr(0);
	struct cm_channel *cs = ch_new(), *cc = ch_new();
	struct cm_id *lis = ud_listener(cs, (struct sockaddr *)&a, 2), *id[4], *child[3];

	for (int i = 0; i < 4; i++)
		id[i] = ud_routed4(cc, src_port(lis));
	for (int i = 0; i < 3; i++)
		CHECK_EQ(be->connect(id[i], &ask), 0);
	CHECK(refused_with(cc, 2, ""));
	child[0] = child_of(cs);
	CHECK_EQ(be->connect(id[3], &ask), 0);
	for (int i = 1; i < 3; i++)
		child[i] = child_of(cs);
	CHECK(silent(cs) && silent(cc));
	for (int i = 0; i < 3; i++) {
		REQUIRE(child[i]);
		CHECK_EQ(be->accept(child[i], &give), 0);
		CHECK(got_established(cc));
		id_free(child[i]);
	}
	for (int i = 0; i < 4; i++)
		id_free(id[i]);
	id_free(lis);
	cm_channel_free(cs);
	cm_channel_free(cc);
}

/* An application that takes longer than repeats do, and longer than a process that
 * does not answer is waited for. */
static void slow_accept(void)
{
	struct timespec t = { .tv_nsec = 700 * 1000000 };
	struct pair p;

	REQUIRE(ud_request(&p));
	nanosleep(&t, NULL); /* time is the point */
	CHECK(silent(p.cc) && silent(p.cs));
	CHECK_EQ(be->accept(p.child, &give), 0);
	CHECK(got_established(p.cc));
	pair_end(&p);
}

static void wildcards_and_ipv6(void)
{
	struct sockaddr_in6 any = { .sin6_family = AF_INET6 }, one = any;
	struct sockaddr_in a4 = loop_addr(0);
	struct cm_channel *cs = ch_new(), *cc = ch_new();
	struct cm_id *lis, *id, *child;
	struct cm_addrs a;
	int fd = socket(AF_INET6, SOCK_DGRAM, 0);

	one.sin6_addr = in6addr_loopback;
	SKIP_IF(fd < 0 || bind(fd, (struct sockaddr *)&one, sizeof(one)), "no IPv6");
	close(fd);
	lis = ud_listener(cs, (struct sockaddr *)&any, 2);
	one.sin6_port = htons(src_port(lis));
	a4 = loop_addr(src_port(lis));
	a4.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 4); /* another address of this host */
	for (int i = 0; i < 2; i++) {
		id = ud_routed(cc, i ? (struct sockaddr *)&one : (struct sockaddr *)&a4);
		CHECK_EQ(be->connect(id, &ask), 0);
		child = child_of(cs);
		REQUIRE(child);
		be->query_addr(child, &a);
		CHECK_EQ(a.src.ss_family, i ? AF_INET6 : AF_INET);
		CHECK_EQ(a.dst.ss_family, i ? AF_INET6 : AF_INET);
		if (!i)
			CHECK_EQ(((struct sockaddr_in *)&a.src)->sin_addr.s_addr,
				 a4.sin_addr.s_addr);
		CHECK_EQ(be->accept(child, &give), 0);
		CHECK(got_established(cc));
		id_free(id);
		id_free(child);
	}
	id_free(lis);
	cm_channel_free(cs);
	cm_channel_free(cc);
}

static void port_spaces(void)
{
	struct sockaddr_in a = loop_addr(0);
	struct cm_channel *cs = ch_new(), *cc = ch_new();
	struct cm_id *udp = ud_listener(cs, (struct sockaddr *)&a, 2), *ipoib, *ib, *id;
	struct cm_id *child;
	struct cm_event *ev;

	a = loop_addr(src_port(udp));
	ipoib = id_new_ps(cs, NULL, RDMA_PS_IPOIB, IBV_QPT_UD);
	CHECK_EQ(be->bind(ipoib, (struct sockaddr *)&a), 0); /* a port space of its own */
	CHECK_EQ(be->listen(ipoib, 2), 0);
	id = id_new_ps(cc, NULL, RDMA_PS_IPOIB, IBV_QPT_UD);
	CHECK_EQ(be->resolve_addr(id, NULL, (struct sockaddr *)&a, 1000), 0);
	want(cc, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	CHECK_EQ(be->resolve_route(id, 1000), 0);
	want(cc, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	CHECK_EQ(be->connect(id, &ask), 0);
	ev = want_for(cs, RDMA_CM_EVENT_CONNECT_REQUEST, 0, 5000);
	REQUIRE(ev);
	CHECK(ev->charge == ipoib);
	child = id_new_ps(cs, ev->be_child, RDMA_PS_IPOIB, IBV_QPT_UD);
	cm_event_free(ev);
	CHECK_EQ(be->accept(child, &give), 0);
	CHECK(got_established(cc));
	id_free(child);
	id_free(id);
	id_free(ipoib);

	/* RDMA_PS_IB is what the id's type says. */
	ib = id_new_ps(cs, NULL, RDMA_PS_IB, IBV_QPT_UD);
	a = loop_addr(0);
	CHECK_EQ(be->bind(ib, (struct sockaddr *)&a), 0);
	CHECK_EQ(be->listen(ib, 2), 0);
	id_free(ib);
	id_free(udp);
	cm_channel_free(cs);
	cm_channel_free(cc);
}

/* As many requests as a listener takes at once, by as many descriptors as one id has. */
static void thousands_inside(void)
{
	enum { MANY = 3000 };
	struct sockaddr_in a = loop_addr(0);
	struct cm_channel *cs = ch_new(), *cc = ch_new();
	struct cm_id *lis = ud_listener(cs, (struct sockaddr *)&a, 0);
	struct cm_id **id = calloc(MANY, sizeof(*id)), **child = calloc(MANY, sizeof(*child));
	int before = fds(), asked = 0, n = 0;

	for (int i = 0; i < MANY; i++)
		id[i] = ud_routed4(cc, src_port(lis));
	for (int i = 0; i < MANY; i++) {
		while (asked < MANY && asked < i + USER_BACKLOG_MAX)
			CHECK_EQ(be->connect(id[asked++], &ask), 0);
		child[i] = child_of(cs);
		REQUIRE(child[i]);
	}
	for (int i = 0; i < MANY; i++)
		CHECK_EQ(be->accept(child[i], &give), 0);
	for (int i = 0; i < MANY; i++)
		n += got_established(cc);
	CHECK_EQ(n, MANY);
	CHECK(silent(cs) && silent(cc));
	CHECK(fds() <= before + 2);
	for (int i = 0; i < MANY; i++) {
		id_free(id[i]);
		id_free(child[i]);
	}
	free(id);
	free(child);
	id_free(lis);
	cm_channel_free(cs);
	cm_channel_free(cc);
}

/* In a process with the times that programs have: a busy machine takes seconds for them. */
static void thousands(void)
{
	int status = -1;
	pid_t pid = fork();

	if (!pid) {
		setenv("PATIENT", "1", 1);
		dup2(STDERR_FILENO, STDOUT_FILENO); /* its TAP is not this program's */
		execl("/proc/self/exe", "lookup", "thousands_inside", NULL);
		_exit(9);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
}

/* ---- raw peers ------------------------------------------------------------------- */

/* A socket on the UDP port of an RDMA port, or, with 0, on any. */
static int raw_bound(uint16_t port)
{
	struct sockaddr_in a = loop_addr(0);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	struct timeval patience = { .tv_sec = 20 };

	if (port)
		a.sin_port = htons((uint16_t)port_to_udp(RDMA_PS_UDP, port));
	CHECK(!bind(fd, (struct sockaddr *)&a, sizeof(a)));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	return fd;
}

static int raw_to(uint16_t port)
{
	struct sockaddr_in a = loop_addr((uint16_t)port_to_udp(RDMA_PS_UDP, port));
	int fd = raw_bound(0);

	CHECK(!connect(fd, (struct sockaddr *)&a, sizeof(a)));
	return fd;
}

static struct sidr_req raw_req(uint16_t port, uint64_t id)
{
	return (struct sidr_req){
		.id = id, .ps = RDMA_PS_UDP, .src_port = 9, .dst_port = port,
		.src_addr = { [10] = 0xff, 0xff, 127, 0, 0, 1 },
		.dst_addr = { [10] = 0xff, 0xff, 127, 0, 0, 1 },
	};
}

static void raw_send(int fd, const struct sidr_req *r)
{
	uint8_t buf[SIDR_REQ_LEN];

	sidr_req_encode(buf, r);
	CHECK_EQ(send(fd, buf, sizeof(buf), 0), (ssize_t)sizeof(buf));
}

/* Nothing is left in the receive queue of the socket with this port. */
static bool port_drained(const struct sockaddr_in *a)
{
	char line[512], port[16];
	unsigned rx = 1;
	FILE *f = fopen("/proc/self/net/udp", "re");

	snprintf(port, sizeof(port), ":%04X ", ntohs(a->sin_port));
	while (f && fgets(line, sizeof(line), f))
		if (strstr(line, port) && strstr(line, port) < line + 24)
			sscanf(line, "%*d: %*x:%*x %*x:%*x %*x %*x:%x", &rx);
	if (f)
		fclose(f);
	return !rx;
}

/* The kind of the next message; its reply in *rep. */
static int raw_recv(int fd, struct sidr_rep *rep)
{
	uint8_t buf[SIDR_MAX];
	uint64_t id;
	ssize_t n = recv(fd, buf, sizeof(buf), 0);
	int kind = n < 0 ? -errno : sidr_kind(buf, (size_t)n, &id);

	if (kind == SIDR_REP)
		CHECK_EQ(sidr_rep_decode(buf, (size_t)n, rep), 0);
	return kind;
}

/* What is repeated gets the same answer, and makes no second child. */
static void repeated_requests(void)
{
	struct sockaddr_in a = loop_addr(0);
	struct cm_channel *cs = ch_new();
	struct cm_id *lis = ud_listener(cs, (struct sockaddr *)&a, 5), *child;
	struct sidr_req r = raw_req(src_port(lis), 0x1111);
	struct sidr_rep rep;
	int fd = raw_to(src_port(lis));

	raw_send(fd, &r);
	child = child_of(cs);
	REQUIRE(child);
	raw_send(fd, &r);
	CHECK_EQ(raw_recv(fd, &rep), SIDR_WAIT);
	CHECK_EQ(be->accept(child, &give), 0);
	id_free(child);
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(raw_recv(fd, &rep), SIDR_REP);
		CHECK_EQ(rep.id, 0x1111);
		CHECK_EQ(rep.status, 0);
		CHECK_EQ(rep.qpn, 0x4321);
		CHECK(memcmp(rep.priv, "defg\0", 5) == 0);
		raw_send(fd, &r);
	}
	CHECK_EQ(raw_recv(fd, &rep), SIDR_REP);
	CHECK(silent(cs));
	r.id++;
	raw_send(fd, &r);
	child = child_of(cs);
	CHECK(child);
	id_free(child);
	id_free(lis);
	close(fd);
	cm_channel_free(cs);
}

static void not_for_this_port(void)
{
	struct sockaddr_in a = loop_addr(0);
	struct cm_channel *cs = ch_new();
	struct cm_id *lis = ud_listener(cs, (struct sockaddr *)&a, 5);
	struct sidr_req r = raw_req(src_port(lis), 1);
	uint8_t buf[SIDR_REQ_LEN + 1] = { 0 };
	struct sidr_rep rep;
	int fd = raw_to(src_port(lis));

	r.ps = RDMA_PS_IPOIB;
	raw_send(fd, &r);
	CHECK_EQ(raw_recv(fd, &rep), SIDR_REP);
	CHECK_EQ(rep.status, 1);
	r = raw_req((uint16_t)(src_port(lis) + 1), 2);
	raw_send(fd, &r);
	CHECK_EQ(raw_recv(fd, &rep), SIDR_REP);
	CHECK_EQ(rep.status, 1);
	CHECK_EQ(rep.id, 2);
	r = raw_req(src_port(lis), 3);
	sidr_req_encode(buf, &r);
	buf[4] = 7;
	CHECK_EQ(send(fd, buf, SIDR_REQ_LEN, 0), SIDR_REQ_LEN);
	CHECK_EQ(raw_recv(fd, &rep), SIDR_REP);
	CHECK_EQ(rep.status, 5);
	CHECK_EQ(rep.id, 3);
	/* Every length, and no answer to any but the last, which is whole. */
	sidr_req_encode(buf, &r);
	for (size_t n = 0; n <= sizeof(buf); n++)
		if (n != SIDR_REQ_LEN)
			CHECK_EQ(send(fd, buf, n, 0), (ssize_t)n);
	r.ps = 0;
	r.id = 4;
	raw_send(fd, &r);
	CHECK_EQ(raw_recv(fd, &rep), SIDR_REP);
	CHECK_EQ(rep.id, 4);
	CHECK(silent(cs));
	id_free(lis);
	close(fd);
	cm_channel_free(cs);
}

/* A flood fills the backlog and nothing else; others are refused, and served when there is
 * room again. */
static void flooded(void)
{
	enum { FLOOD = 6000, ROOM = 5 };
	struct sockaddr_in a = loop_addr(0), to;
	struct cm_channel *cs = ch_new(), *cc = ch_new();
	struct cm_id *lis = ud_listener(cs, (struct sockaddr *)&a, ROOM), *id, *child;
	struct sidr_req r = raw_req(src_port(lis), 1);
	int fd = raw_to(src_port(lis)), before = ids();

	to = loop_addr((uint16_t)port_to_udp(RDMA_PS_UDP, src_port(lis)));
	for (r.id = 1; r.id <= FLOOD; r.id++) {
		raw_send(fd, &r);
		if (r.id % 100 == 0) /* a socket buffer holds some hundred */
			CHECK(T_WAIT(port_drained(&to), 5000));
	}
	CHECK_EQ(ids(), before + ROOM);
	id = ud_routed4(cc, src_port(lis));
	CHECK_EQ(be->connect(id, &ask), 0);
	CHECK(refused_with(cc, 2, ""));
	id_free(id);
	for (int i = 0; i < ROOM; i++) {
		child = child_of(cs);
		REQUIRE(child);
		id_free(child);
	}
	id = ud_routed4(cc, src_port(lis));
	CHECK_EQ(be->connect(id, &ask), 0);
	child = child_of(cs);
	REQUIRE(child);
	CHECK_EQ(be->accept(child, &give), 0);
	CHECK(got_established(cc));
	id_free(child);
	id_free(id);
	close(fd);
	id_free(lis);
	cm_channel_free(cs);
	cm_channel_free(cc);
}

/* A peer that loses what comes: the request is repeated until it is answered. */
static void lossy_peer(void)
{
	struct cm_channel *ch = ch_new();
	int fd = raw_bound(NOBODY);
	struct cm_id *id = ud_routed4(ch, NOBODY);
	uint8_t first[SIDR_MAX], buf[SIDR_MAX];
	struct sockaddr_in from;
	socklen_t len = sizeof(from);
	struct sidr_rep rep = { .ps = RDMA_PS_UDP, .qpn = 0x4321, .qkey = 0x01234567,
				.priv = "defg" };

	CHECK_EQ(be->connect(id, &ask), 0);
	CHECK_EQ(recv(fd, first, sizeof(first), 0), SIDR_REQ_LEN);
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(recvfrom(fd, buf, sizeof(buf), 0, (struct sockaddr *)&from, &len),
			 SIDR_REQ_LEN);
		CHECK(memcmp(buf, first, SIDR_REQ_LEN) == 0);
	}
	/* One of another number first. */
	sidr_kind(first, SIDR_REQ_LEN, &rep.id);
	rep.id++;
	sidr_rep_encode(buf, &rep);
	CHECK_EQ(sendto(fd, buf, SIDR_REP_LEN, 0, (struct sockaddr *)&from, len),
		 SIDR_REP_LEN);
	rep.id--;
	sidr_rep_encode(buf, &rep);
	for (int i = 0; i < 2; i++) /* and twice */
		CHECK_EQ(sendto(fd, buf, SIDR_REP_LEN, 0, (struct sockaddr *)&from, len),
			 SIDR_REP_LEN);
	CHECK(got_established(ch));
	CHECK(silent(ch));
	id_free(id);
	close(fd);
	cm_channel_free(ch);
}

/* ... and ICMP errors that quote the request are about other places. */
static void silent_peer(void)
{
	uint16_t port = (uint16_t)port_to_udp(RDMA_PS_UDP, NOBODY);
	struct sockaddr_in other = loop_addr(port), beside = loop_addr((uint16_t)(port ^ 1));
	struct udp_io_packet p = { .len = SIDR_REQ_LEN };
	struct cm_channel *ch = ch_new();
	int fd = raw_bound(NOBODY);
	struct cm_id *id = ud_routed4(ch, NOBODY);
	struct cm_event *ev;

	other.sin_addr.s_addr ^= htonl(2);
	CHECK_EQ(be->connect(id, &ask), 0);
	CHECK_EQ(recv(fd, p.data, sizeof(p.data), 0), SIDR_REQ_LEN);
	memcpy(&p.from, &other, sizeof(other));
	udp_icmp_error(&p, ENETUNREACH);
	memcpy(&p.from, &beside, sizeof(beside));
	udp_icmp_error(&p, EHOSTUNREACH);
	ev = want_for(ch, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, 20000);
	CHECK(ev);
	if (ev)
		cm_event_free(ev);
	id_free(id);
	close(fd);
	cm_channel_free(ch);
}

/* Takes the request, says that it has it, and ends. */
static void peer_ends(void)
{
	struct cm_channel *ch = ch_new();
	int fd = raw_bound(NOBODY);
	struct cm_id *id = ud_routed4(ch, NOBODY);
	uint8_t buf[SIDR_MAX];
	struct sockaddr_in from;
	socklen_t len = sizeof(from);
	uint64_t number;

	CHECK_EQ(be->connect(id, &ask), 0);
	CHECK_EQ(recvfrom(fd, buf, sizeof(buf), 0, (struct sockaddr *)&from, &len),
		 SIDR_REQ_LEN);
	sidr_kind(buf, SIDR_REQ_LEN, &number);
	sidr_wait_encode(buf, RDMA_PS_UDP, number);
	CHECK_EQ(sendto(fd, buf, SIDR_WAIT_LEN, 0, (struct sockaddr *)&from, len),
		 SIDR_WAIT_LEN);
	close(fd);
	CHECK(refused_with(ch, 2, ""));
	id_free(id);
	cm_channel_free(ch);
}

static void qkey_clash(void)
{
	struct cm_channel *ch = ch_new();
	int fd = raw_bound(NOBODY);
	struct cm_id *id = ud_routed4(ch, NOBODY);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT };
	struct sidr_rep rep = { .ps = RDMA_PS_UDP, .qpn = 5, .qkey = 0x99 };
	uint8_t buf[SIDR_MAX];
	struct sockaddr_in from;
	socklen_t len = sizeof(from);
	int mask;

	CHECK_EQ(be->init_qp_attr(id, &a, &mask), 0);
	CHECK_EQ(mask, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
	CHECK_EQ(a.qkey, 0x01234567);
	CHECK_EQ(be->connect(id, &ask), 0);
	CHECK_EQ(recvfrom(fd, buf, sizeof(buf), 0, (struct sockaddr *)&from, &len),
		 SIDR_REQ_LEN);
	sidr_kind(buf, SIDR_REQ_LEN, &rep.id);
	sidr_rep_encode(buf, &rep);
	CHECK_EQ(sendto(fd, buf, SIDR_REP_LEN, 0, (struct sockaddr *)&from, len),
		 SIDR_REP_LEN);
	CHECK(want(ch, RDMA_CM_EVENT_ADDR_ERROR, -EINVAL));
	id_free(id);
	close(fd);
	cm_channel_free(ch);
}

int main(int argc, char **argv)
{
	bool patient = getenv("PATIENT");

	if (!patient) {
		setenv("ANYRDMA_CM_REPLY_MS", "500", 1);
		setenv("ANYRDMA_CM_RETRY_MS", "300", 1);
		setenv("ANYRDMA_CM_RETRIES", "9", 1);
	} else {
		unsetenv("ANYRDMA_CM_REPLY_MS");
		unsetenv("ANYRDMA_CM_RETRY_MS");
		unsetenv("ANYRDMA_CM_RETRIES");
	}
	t_init(argc, argv);
	cm_dev = &device;
	if (be->init())
		return 1;
	T_RUN(accepts);
	T_RUN(rejects);
	T_RUN(limits_of_private_data);
	T_RUN(nobody_listens);
	T_RUN(bound_alone);
	T_RUN(destroyed_before_accept);
	T_RUN(listener_destroyed);
	T_RUN(backlog);
	T_RUN(slow_accept);
	T_RUN(wildcards_and_ipv6);
	T_RUN(port_spaces);
	if (patient)
		T_RUN(thousands_inside);
	else
		T_RUN(thousands);
	T_RUN(repeated_requests);
	T_RUN(not_for_this_port);
	T_RUN(flooded);
	T_RUN(lossy_peer);
	T_RUN(silent_peer);
	T_RUN(peer_ends);
	T_RUN(qkey_clash);
	T_RUN(nothing_left);
	return t_done();
}
