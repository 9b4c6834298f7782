/* SPDX-License-Identifier: BSD-2-Clause */
/* QP numbers and the ports that they hold. */
#include "tests/t.h"

#include "dev/fake_datagrams.h"
#include "dev/qpn.h"

#include <netinet/in.h>
#include <sys/socket.h>

enum { PER_PORT = 256 };

static uint32_t get(const void *owner)
{
	uint32_t qpn = 0;

	CHECK_EQ(qpn_get(owner, &qpn), 0);
	CHECK(qpn > 1 && qpn < 0xffffff);
	return qpn;
}

/* Any addresses. */
static const char owners[4];

static void indices_are_reused_oldest_first(void)
{
	uint32_t a = get(&owners[0]), b = get(&owners[0]), next;

	CHECK_EQ(qpn_port(a), qpn_port(b));
	qpn_put(a);
	qpn_put(b);
	for (int i = 0; i < PER_PORT - 2; i++) {
		next = get(&owners[0]);
		CHECK_EQ(qpn_port(next), qpn_port(a));
		CHECK(next != a && next != b);
		qpn_put(next);
	}
	CHECK_EQ(get(&owners[0]), a);
	CHECK_EQ(get(&owners[0]), b);
	qpn_put(a);
	qpn_put(b);
}

static void a_port_has_256_numbers(void)
{
	static uint32_t all[PER_PORT + 1];

	for (int i = 0; i <= PER_PORT; i++) {
		all[i] = get(&owners[0]);
		for (int j = 0; j < i; j++)
			CHECK(all[i] != all[j]);
	}
	for (int i = 0; i < PER_PORT; i++)
		CHECK_EQ(qpn_port(all[i]), qpn_port(all[0]));
	CHECK(qpn_port(all[PER_PORT]) != qpn_port(all[0]));
	for (int i = 0; i <= PER_PORT; i++)
		qpn_put(all[i]);
}

/* Numbers come and go; at each step those of one port have one owner. */
static void owners_do_not_share_ports(void)
{
	enum { LIVE = 700, STEPS = 20000 };
	static struct {
		uint32_t qpn;
		const void *owner;
	} live[LIVE];
	static const void *owner_of[1 << 16];
	static int numbers_of[1 << 16];
	uint32_t seed = 1;

	for (int step = 0; step < STEPS; step++) {
		int i;
		uint16_t port;

		seed = seed * 1664525 + 1013904223;
		i = (int)((seed >> 8) % LIVE);
		if (live[i].qpn) {
			qpn_put(live[i].qpn);
			numbers_of[qpn_port(live[i].qpn)]--;
			live[i].qpn = 0;
			continue;
		}
		/* One of them is NULL: the owner of connected QPs' ports. */
		live[i].owner = seed >> 30 ? &owners[seed >> 30] : NULL;
		live[i].qpn = get(live[i].owner);
		port = qpn_port(live[i].qpn);
		if (numbers_of[port]++)
			REQUIRE(owner_of[port] == live[i].owner);
		owner_of[port] = live[i].owner;
	}
	for (int i = 0; i < LIVE; i++)
		if (live[i].qpn)
			qpn_put(live[i].qpn);
}

/* A port whose numbers are all free is anybody's: a process whose CQs come and go needs no
 * more ports than it uses at once. */
static void a_port_changes_hands(void)
{
	const void *who[] = { NULL, &owners[0], &owners[1], &owners[2] };
	uint32_t a, b;
	uint16_t pa, pb;

	a = get(who[0]);
	b = get(who[1]);
	pa = qpn_port(a);
	pb = qpn_port(b);
	CHECK(pa != pb);
	for (int i = 0; i < 100; i++) {
		qpn_put(a);
		qpn_put(b);
		a = get(who[i % 4]);
		b = get(who[(i + 1) % 4]);
		CHECK(qpn_port(a) == pa || qpn_port(a) == pb);
		CHECK(qpn_port(b) == pa || qpn_port(b) == pb);
		CHECK(qpn_port(a) != qpn_port(b));
	}
	qpn_put(a);
	qpn_put(b);
}

static void the_udp_socket_of_a_number(void)
{
	struct sockaddr_in6 a = { 0 };
	socklen_t len = sizeof(a);
	uint32_t qpn = get(&owners[0]);
	int type = 0, fd = qpn_udp(qpn);

	REQUIRE(fd >= 0);
	CHECK_EQ(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	CHECK_EQ(ntohs(a.sin6_port), qpn_port(qpn));
	len = sizeof(type);
	CHECK_EQ(getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len), 0);
	CHECK_EQ(type, SOCK_DGRAM);
	CHECK(fcntl(fd, F_GETFL) & O_NONBLOCK);
	CHECK(qpn_port_ours(qpn_port(qpn)));
	qpn_put(qpn);
	CHECK_EQ(qpn_udp(qpn), fd); /* to the end of the process */
	CHECK_EQ(qpn_udp(1), -1);
	CHECK(!qpn_port_ours(0));
}

/* UD QPs are their receive CQ's; connected ones nobody's. */
static void whose_the_numbers_of_qps_are(void)
{
	struct ibv_qp_init_attr a = { .cap = { 1, 1, 1, 1, 0 } };
	struct ibv_qp *ud, *ud_same, *ud_other, *rc;
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	rc = r.qp;
	a.send_cq = r.scq;
	a.recv_cq = r.rcq;
	a.qp_type = IBV_QPT_UD;
	ud = ibv_create_qp(r.pd, &a);
	ud_same = ibv_create_qp(r.pd, &a);
	a.recv_cq = r.scq;
	ud_other = ibv_create_qp(r.pd, &a);
	REQUIRE(ud && ud_same && ud_other);
	CHECK_EQ(qpn_port(ud->qp_num), qpn_port(ud_same->qp_num));
	CHECK(qpn_port(ud->qp_num) != qpn_port(ud_other->qp_num));
	CHECK(qpn_port(ud->qp_num) != qpn_port(rc->qp_num));
	CHECK(qpn_port(ud_other->qp_num) != qpn_port(rc->qp_num));
	CHECK_EQ(ibv_destroy_qp(ud), 0);
	CHECK_EQ(ibv_destroy_qp(ud_same), 0);
	CHECK_EQ(ibv_destroy_qp(ud_other), 0);
	rig_down(&r);
}

static void who_answers(void)
{
	uint32_t qpn = get(NULL);

	CHECK(qpn_answers(qpn));
	qpn_set_error(qpn, true);
	CHECK(!qpn_answers(qpn));
	qpn_set_error(qpn, false);
	CHECK(qpn_answers(qpn));
	qpn_put(qpn);
	CHECK(!qpn_answers(qpn));
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(a_port_changes_hands);
	T_RUN(indices_are_reused_oldest_first);
	T_RUN(a_port_has_256_numbers);
	T_RUN(owners_do_not_share_ports);
	T_RUN(the_udp_socket_of_a_number);
	T_RUN(whose_the_numbers_of_qps_are);
	T_RUN(who_answers);
	return t_done();
}
