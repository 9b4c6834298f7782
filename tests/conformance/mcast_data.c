/* SPDX-License-Identifier: BSD-2-Clause */
/* What is sent to a multicast group: who receives it, and how it looks. */
#include "ud_side.h"

enum { PUBLIC_QKEY = 0x01234567, GROUP_QPN = 0xffffff, NOT_A_MEMBER = 99 };

/* An id with a QP and memory, joined to a group. */
struct member {
	struct rdma_cm_id *id;
	struct conf_buf b;
	struct ibv_ah_attr attr; /* of the group */
	struct ibv_ah *ah;
};

static struct rdma_event_channel *ch;
static unsigned salt;

/* Other runs on this host have groups of their own. */
static conf_sa group(unsigned i)
{
	char text[32];

	if (!salt)
		salt = (unsigned)getpid();
	snprintf(text, sizeof(text), "239.72.%u.%u", salt % 250,
		 salt / 250 % 25 * 10 + i);
	return conf_parse(text, 0);
}

static int join_as(struct rdma_cm_id *id, conf_sa g, uint32_t flags)
{
	struct rdma_cm_join_mc_attr_ex attr = {
		.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS |
			     RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
		.join_flags = flags,
		.addr = SA(g),
	};

	return rdma_join_multicast_ex(id, &attr, NULL);
}

static void join_group(struct member *m, conf_sa g, uint32_t flags)
{
	struct rdma_cm_event *ev;

	OK(join_as(m->id, g, flags));
	ev = conf_get(ch, m->id, RDMA_CM_EVENT_MULTICAST_JOIN);
	m->attr = ev->param.ud.ah_attr;
	OK(rdma_ack_cm_event(ev));
	if (!m->ah)
		MUST(m->ah = ibv_create_ah(m->id->pd, &m->attr));
}

static struct member member(unsigned g, uint32_t flags)
{
	struct ibv_qp_init_attr attr = { .cap = CONF_CAP(16, 16, 1),
					 .qp_type = IBV_QPT_UD };
	conf_sa addr = conf_addr(AF_INET, 7000);
	struct member m = { 0 };

	if (conf_iwarp())
		SKIP("iWARP has no datagrams");
	if (!ch)
		ch = conf_channel();
	OK(rdma_create_id(ch, &m.id, NULL, RDMA_PS_UDP));
	OK(rdma_resolve_addr(m.id, NULL, SA(addr), 2000));
	conf_expect(ch, m.id, RDMA_CM_EVENT_ADDR_RESOLVED);
	OK(rdma_create_qp(m.id, NULL, &attr));
	m.b = conf_buf(m.id->pd, 1 << 16, CONF_RW);
	if (flags != NOT_A_MEMBER)
		join_group(&m, group(g), flags);
	return m;
}

static struct member full(unsigned g)
{
	return member(g, RDMA_MC_JOIN_FLAG_FULLMEMBER);
}

static void member_free(struct member *m)
{
	if (m->ah)
		OK(ibv_destroy_ah(m->ah));
	rdma_destroy_qp(m->id);
	conf_buf_free(&m->b);
	OK(rdma_destroy_id(m->id));
}

static void end(void)
{
	conf_quiet(ch, 0);
	rdma_destroy_event_channel(ch);
}

static void receive(struct member *m, uint64_t wr_id)
{
	OK(conf_recv(m->id->qp, wr_id, &m->b, 4096 * wr_id, 2048));
}

static void put(struct member *m, struct ibv_ah *to, uint32_t len, uint32_t seed)
{
	struct ibv_sge sge = conf_sge(&m->b, 0, len);
	struct ibv_send_wr wr = ud_wr(1, IBV_WR_SEND, &sge, 1, to, GROUP_QPN);

	wr.wr.ud.remote_qkey = PUBLIC_QKEY;
	conf_pattern(m->b.p, len, seed);
	OK(conf_post(m->id->qp, &wr));
	conf_wc_ok(m->id->send_cq, 1);
}

static void got(struct member *m, uint64_t wr_id, const struct member *from, uint32_t len,
		uint32_t seed)
{
	struct ibv_wc wc;

	conf_wc_get(m->id->recv_cq, wr_id, IBV_WC_SUCCESS, &wc);
	EQ(wc.opcode, IBV_WC_RECV);
	EQ(wc.byte_len, UD_GRH + len);
	EQ(wc.wc_flags, IBV_WC_GRH);
	EQ(wc.qp_num, m->id->qp->qp_num);
	EQ(wc.src_qp, from->id->qp->qp_num);
	CHECK(conf_pattern_ok(m->b.p + 4096 * wr_id + UD_GRH, len, seed));
}

enum { RECEIVES = 4 };

/* The next datagram of another one; its payload is at *data. Some devices give a sender its own
 * as well (own_datagram), so there are several receives, which are posted again. */
static struct ibv_wc next_of_others(struct member *m, const uint8_t **data)
{
	struct ibv_wc wc;

	for (;;) {
		conf_wc(m->id->recv_cq, &wc);
		EQ(wc.status, IBV_WC_SUCCESS);
		*data = m->b.p + 4096 * wc.wr_id + UD_GRH;
		receive(m,
			wc.wr_id % RECEIVES + 1 + (wc.wr_id > RECEIVES ? 0 : RECEIVES));
		if (wc.src_qp != m->id->qp->qp_num)
			return wc;
	}
}

static void nothing(struct member *m)
{
	conf_wc_none(m->id->recv_cq, conf_ms(CONF_QUIET));
}

/* ---- who receives ---------------------------------------------------------------- */

static void members_of_one_process(void)
{
	struct member a = full(1), b = full(1), c = full(1), other = full(2);

	for (uint32_t i = 0; i < 5; i++) {
		receive(&b, 1);
		receive(&c, 1);
		put(&a, a.ah, 200 * i, i);
		got(&b, 1, &a, 200 * i, i);
		got(&c, 1, &a, 200 * i, i);
	}
	receive(&other, 1);
	put(&a, a.ah, 100, 1);
	nothing(&other);
	member_free(&a);
	member_free(&b);
	member_free(&c);
	member_free(&other);
	end();
}

/* One's own datagram does not come back. */
static void own_datagram(void)
{
	struct member a = full(1), b = full(1);

	receive(&a, 1);
	receive(&b, 1);
	put(&a, a.ah, 100, 1);
	got(&b, 1, &a, 100, 1);
	nothing(&a);
	put(&b, b.ah, 50, 2); /* the receive is for this */
	got(&a, 1, &b, 50, 2);
	member_free(&a);
	member_free(&b);
	end();
}

static void sender_that_is_no_member(void)
{
	struct member a = member(1, NOT_A_MEMBER), b = full(1);
	struct ibv_ah *to;

	MUST(to = ibv_create_ah(a.id->pd, &b.attr));
	receive(&b, 1);
	put(&a, to, 100, 1);
	got(&b, 1, &a, 100, 1);
	OK(ibv_destroy_ah(to));
	member_free(&a);
	member_free(&b);
	end();
}

static void send_only_member(void)
{
	struct member a = member(1, RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER), b = full(1);
	struct member c = full(1);

	receive(&a, 1);
	receive(&b, 1);
	put(&a, a.ah, 100, 1);
	got(&b, 1, &a, 100, 1);
	put(&c, c.ah, 100, 2);
	nothing(&a);
	member_free(&a);
	member_free(&b);
	member_free(&c);
	end();
}

static void after_leaving(void)
{
	struct member a = full(1), b = full(1);
	conf_sa g = group(1);

	receive(&b, 1);
	put(&a, a.ah, 100, 1);
	got(&b, 1, &a, 100, 1);
	OK(rdma_leave_multicast(b.id, SA(g)));
	receive(&b, 1);
	put(&a, a.ah, 100, 2);
	nothing(&b);
	join_group(&b, g, RDMA_MC_JOIN_FLAG_FULLMEMBER);
	put(&a, a.ah, 100, 3);
	got(&b, 1, &a, 100, 3);
	member_free(&a);
	member_free(&b);
	end();
}

/* Two entries for one group: the QP is a member until both are left. */
static void left_once_of_twice(void)
{
	struct member a = full(1), b = full(1);
	conf_sa g = group(1);

	join_group(&b, g, RDMA_MC_JOIN_FLAG_FULLMEMBER);
	receive(&b, 1);
	put(&a, a.ah, 100, 1);
	got(&b, 1, &a, 100, 1);
	conf_wc_none(b.id->recv_cq, 0);
	OK(rdma_leave_multicast(b.id, SA(g)));
	receive(&b, 1);
	put(&a, a.ah, 100, 2);
	got(&b, 1, &a, 100, 2);
	OK(rdma_leave_multicast(b.id, SA(g)));
	receive(&b, 1);
	put(&a, a.ah, 100, 3);
	nothing(&b);
	member_free(&a);
	member_free(&b);
	end();
}

/* A QP that one of two groups is left by still has the other. */
static void two_groups(void)
{
	struct member a = full(1), b = full(1), c = full(2);
	conf_sa g1 = group(1), g2 = group(2);

	join_group(&b, g2, RDMA_MC_JOIN_FLAG_FULLMEMBER);
	receive(&b, 1);
	receive(&b, 2);
	put(&a, a.ah, 100, 1);
	got(&b, 1, &a, 100, 1);
	put(&c, c.ah, 100, 2);
	got(&b, 2, &c, 100, 2);
	OK(rdma_leave_multicast(b.id, SA(g1)));
	receive(&b, 1);
	put(&a, a.ah, 100, 3);
	put(&c, c.ah, 100, 4);
	got(&b, 1, &c, 100, 4);
	nothing(&b);
	member_free(&a);
	member_free(&b);
	member_free(&c);
	end();
}

/* Another Q_Key than the group's, and no receive: dropped, each at its member. */
static void dropped(void)
{
	struct member a = full(1), b = full(1), c = full(1);
	struct ibv_sge sge = conf_sge(&a.b, 0, 100);
	struct ibv_send_wr wr = ud_wr(1, IBV_WR_SEND, &sge, 1, a.ah, GROUP_QPN);

	receive(&b, 1);
	wr.wr.ud.remote_qkey = PUBLIC_QKEY + 1;
	OK(conf_post(a.id->qp, &wr));
	conf_wc_ok(a.id->send_cq, 1);
	nothing(&b);
	put(&a, a.ah, 100, 1);
	got(&b, 1, &a, 100, 1);
	nothing(&c); /* had no receive */
	receive(&b, 1);
	receive(&c, 1);
	put(&a, a.ah, 100, 2);
	got(&b, 1, &a, 100, 2);
	got(&c, 1, &a, 100, 2);
	member_free(&a);
	member_free(&b);
	member_free(&c);
	end();
}

/* A datagram to the QP itself and one to its group differ by the destination in the GRH. */
static void header(void)
{
	struct member a = full(1), b = full(1);
	struct ibv_ah_attr attr = a.attr;
	struct ibv_sge sge = conf_sge(&a.b, 0, 10);
	struct ibv_send_wr wr;
	struct ibv_ah *ah;
	const uint8_t *grh = b.b.p + 4096;

	receive(&b, 1);
	put(&a, a.ah, 100, 1);
	got(&b, 1, &a, 100, 1);
	CONF_MSG_ZERO(grh, 20);
	EQ(grh[20], 0x45);
	CHECK(!memcmp(grh + 32, a.id->route.addr.addr.ibaddr.sgid.raw + 12, 4));
	CHECK(!memcmp(grh + 36, a.attr.grh.dgid.raw + 12, 4));
	attr.grh.dgid = b.id->route.addr.addr.ibaddr.sgid;
	MUST(ah = ibv_create_ah(a.id->pd, &attr));
	wr = ud_wr(1, IBV_WR_SEND, &sge, 1, ah, b.id->qp->qp_num);
	wr.wr.ud.remote_qkey = PUBLIC_QKEY;
	receive(&b, 1);
	OK(conf_post(a.id->qp, &wr));
	conf_wc_ok(a.id->send_cq, 1);
	conf_wc_ok(b.id->recv_cq, 1);
	CHECK(!memcmp(grh + 36, attr.grh.dgid.raw + 12, 4));
	OK(ibv_destroy_ah(ah));
	member_free(&a);
	member_free(&b);
	end();
}

static void longest(void)
{
	struct member a = full(1), b = full(1);
	struct ibv_port_attr port;
	uint32_t mtu;

	OK(ibv_query_port(a.id->verbs, 1, &port));
	mtu = 128u << port.active_mtu;
	OK(conf_recv(b.id->qp, 1, &b.b, 4096, UD_GRH + mtu));
	put(&a, a.ah, mtu, 9);
	got(&b, 1, &a, mtu, 9);
	member_free(&a);
	member_free(&b);
	end();
}

/* Attached by the verb alone, without joining by the connection manager. */
static void attached_by_verbs(void)
{
	conf_sa g = group(3);
	union ibv_gid gid = { .raw = { [10] = 0xff, 0xff } };
	struct side x, y;
	struct ibv_ah *ah, *to;
	struct ibv_ah_attr attr;
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct ibv_wc wc;

	memcpy(gid.raw + 12, &((struct sockaddr_in *)&g)->sin_addr, 4);
	ud_pair(&x, &y, &ah);
	attr = ud_attr(AF_INET);
	attr.grh.dgid = gid;
	to = ud_ah(attr);
	EQ(ibv_attach_mcast(y.qp, &gid, 0), 0);
	ud_recv(&y, 10, 100);
	sge = conf_sge(&x.b, UD_SRC, 60);
	wr = ud_wr(1, IBV_WR_SEND, &sge, 1, to, GROUP_QPN);
	OK(conf_post(x.qp, &wr));
	conf_wc_ok(x.cq, 1);
	conf_wc_get(y.cq, 10, IBV_WC_SUCCESS, &wc);
	EQ(wc.byte_len, UD_GRH + 60);
	EQ(wc.src_qp, x.qp->qp_num);
	EQ(ibv_detach_mcast(y.qp, &gid, 0), 0);
	ud_recv(&y, 11, 100);
	OK(conf_post(x.qp, &wr));
	conf_wc_ok(x.cq, 1);
	ud_nothing(&y);
	OK(ibv_destroy_ah(to));
	ud_pair_free(&x, &y, ah);
}

/* ---- two processes --------------------------------------------------------------- */

enum { ROUNDS = 20 };

static void other_member(int fd)
{
	struct member b = full(1);
	const uint8_t *data;
	struct ibv_wc wc;
	uint32_t qpn;

	for (int i = 1; i <= RECEIVES; i++)
		receive(&b, i);
	ud_tell(fd, "r", 1);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		wc = next_of_others(&b, &data);
		EQ(wc.byte_len, UD_GRH + 10 * i);
		CHECK(conf_pattern_ok(data, 10 * i, i));
		put(&b, b.ah, 500, i);
	}
	qpn = b.id->qp->qp_num;
	ud_tell(fd, &qpn, 4);
	member_free(&b);
	end();
}

static void two_processes(void)
{
	struct member a, c;
	const uint8_t *data;
	struct ibv_wc wc;
	uint32_t qpn;
	char ready;
	int fd;

	group(0); /* chosen for both */
	fd = ud_other(other_member);
	a = full(1);
	c = full(1); /* hears both */
	for (unsigned i = 1; i <= 8; i++)
		receive(&c, i);
	for (int i = 1; i <= RECEIVES; i++)
		receive(&a, i);
	ud_hear(fd, &ready, 1);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		put(&a, a.ah, 10 * i, i);
		wc = next_of_others(&a, &data);
		EQ(wc.byte_len, UD_GRH + 500);
		CHECK(conf_pattern_ok(data, 500, i));
	}
	ud_hear(fd, &qpn, 4);
	EQ(wc.src_qp, qpn);
	ud_other_end(fd);
	for (unsigned i = 1; i <= 8; i++)
		conf_wc_ok(c.id->recv_cq, i);
	conf_wc_none(c.id->recv_cq, 0);
	/* The others' member is gone; this one has stayed. */
	receive(&c, 1);
	put(&a, a.ah, 100, 77);
	got(&c, 1, &a, 100, 77);
	member_free(&a);
	member_free(&c);
	end();
}

static const struct conf_case cases[] = {
	CASE(members_of_one_process),
	CASE(own_datagram),
	CASE(sender_that_is_no_member),
	CASE(send_only_member),
	CASE(after_leaving),
	CASE(left_once_of_twice),
	CASE(two_groups),
	CASE(dropped),
	CASE(header),
	CASE(longest),
	CASE(attached_by_verbs),
	CASE(two_processes),
};

CONF_MAIN(cases)
