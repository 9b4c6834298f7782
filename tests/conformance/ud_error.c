/* SPDX-License-Identifier: BSD-2-Clause */
/* Datagrams that nobody gets, and requests and addresses that are refused or fail. A sender
 * does not hear what became of a datagram. */
#include "ud_side.h"

static struct side x, y;
static struct ibv_ah *ah;

static void pair(void)
{
	ud_pair(&x, &y, &ah);
}

static void pair_free(void)
{
	ud_pair_free(&x, &y, ah);
}

static uint32_t qpn(const struct side *s)
{
	return s->qp->qp_num;
}

static struct ibv_send_wr wr_of(struct ibv_sge *sge, uint32_t len)
{
	*sge = conf_sge(&x.b, UD_SRC, len);
	return ud_wr(1, IBV_WR_SEND, sge, 1, ah, qpn(&y));
}

/* Sent, as far as x can tell; y gets nothing of it, and then gets the next one. */
static void is_dropped(struct ibv_send_wr wr)
{
	struct ibv_wc wc;

	ud_recv(&y, 10, 200);
	OK(conf_post(x.qp, &wr));
	conf_wc_ok(x.cq, 1);
	ud_nothing(&y);
	ud_send(&x, 2, ah, qpn(&y), 123);
	conf_wc_ok(x.cq, 2);
	conf_wc_get(y.cq, 10, IBV_WC_SUCCESS, &wc);
	EQ(wc.byte_len, UD_GRH + 123);
	EQ(conf_qp_state(y.qp), IBV_QPS_RTS);
}

/* ---- Q_Keys ---------------------------------------------------------------------- */

static void wrong_qkey(void)
{
	static const uint32_t wrong[] = { 0, UD_QKEY + 1, UD_QKEY ^ 0x40000000 };
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	pair();
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		wr = wr_of(&sge, 100);
		wr.wr.ud.remote_qkey = wrong[i];
		is_dropped(wr);
	}
	EQ(ibv_modify_qp(y.qp, &(struct ibv_qp_attr){ .qkey = UD_QKEY + 1 }, IBV_QP_QKEY),
	   0);
	ud_recv(&y, 11, 200);
	wr.wr.ud.remote_qkey = UD_QKEY + 1;
	OK(conf_post(x.qp, &wr));
	conf_wc_ok(x.cq, 1);
	conf_wc_ok(y.cq, 11);
	pair_free();
}

/* Bit 31 set: the Q_Key of the sending QP goes out. */
static void qkey_of_the_sending_qp(void)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	pair();
	wr = wr_of(&sge, 100);
	wr.wr.ud.remote_qkey = 0x80000000;
	ud_recv(&y, 10, 200);
	OK(conf_post(x.qp, &wr));
	conf_wc_ok(x.cq, 1);
	conf_wc_ok(y.cq, 10);
	EQ(ibv_modify_qp(x.qp, &(struct ibv_qp_attr){ .qkey = 0x22222222 }, IBV_QP_QKEY),
	   0);
	wr.wr.ud.remote_qkey = 0x80000000 | UD_QKEY;
	is_dropped(wr);
	pair_free();
}

/* ---- nobody takes it ------------------------------------------------------------- */

static void no_receive(void)
{
	pair();
	for (int i = 0; i < 5; i++) {
		ud_send(&x, 1, ah, qpn(&y), 100);
		conf_wc_ok(x.cq, 1);
	}
	ud_nothing(&y);
	ud_arrives(&x, &y, ah, 100);
	conf_wc_none(y.cq, 0);
	pair_free();
}

static void no_such_qp(void)
{
	struct side gone;
	uint32_t number;

	pair();
	gone = side_with(1, (struct side_opt){ .type = IBV_QPT_UD });
	ud_up(&gone);
	ud_arrives(&x, &gone, ah, 10);
	number = qpn(&gone);
	side_free(&gone);
	for (int i = 0; i < 3; i++) {
		ud_send(&x, 1, ah, i ? number : 0xfffffe, 100);
		conf_wc_ok(x.cq, 1);
	}
	EQ(conf_qp_state(x.qp), IBV_QPS_RTS);
	ud_arrives(&x, &y, ah, 10);
	pair_free();
}

static void to_a_connected_qp(void)
{
	struct side rc;

	pair();
	rc = side(1);
	EQ(to_init(&rc), 0);
	EQ(to_rtr(&rc, qpn(&x), 0, &dev.gid), 0);
	OK(conf_recv(rc.qp, 20, &rc.b, 0, 1000));
	ud_send(&x, 1, ah, qpn(&rc), 100);
	conf_wc_ok(x.cq, 1);
	ud_nothing(&rc);
	EQ(conf_qp_state(rc.qp), IBV_QPS_RTR);
	side_free(&rc);
	ud_arrives(&x, &y, ah, 10);
	pair_free();
}

/* Nothing is received in INIT, nor in ERR. */
static void not_ready_to_receive(void)
{
	pair();
	EQ(to_state(&y, IBV_QPS_RESET), 0);
	EQ(ud_init(&y, UD_QKEY), 0);
	ud_recv(&y, 10, 200);
	ud_send(&x, 1, ah, qpn(&y), 100);
	conf_wc_ok(x.cq, 1);
	ud_nothing(&y);
	EQ(to_state(&y, IBV_QPS_ERR), 0);
	conf_wc_is(y.cq, 10, IBV_WC_WR_FLUSH_ERR);
	ud_send(&x, 1, ah, qpn(&y), 100);
	conf_wc_ok(x.cq, 1);
	ud_nothing(&y);
	pair_free();
}

/* ---- lengths --------------------------------------------------------------------- */

static void longer_than_the_mtu(void)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	pair();
	ud_recv(&y, 10, 3 * UD_MOST);
	wr = wr_of(&sge, ud_mtu() + 1);
	OK(conf_post(x.qp, &wr));
	conf_wc_is(x.cq, 1, IBV_WC_LOC_LEN_ERR);
	ud_nothing(&y);
	pair_free();
}

/* The payload, or the GRH already, does not fit. */
static void receive_too_small(void)
{
	static const uint32_t room[] = { UD_GRH + 99, UD_GRH, UD_GRH - 1, 1 };

	for (unsigned i = 0; i < sizeof(room) / sizeof(room[0]); i++) {
		pair();
		OK(conf_recv(y.qp, 10, &y.b, UD_DST, room[i]));
		OK(conf_recv(y.qp, 11, &y.b, UD_DST + 1000, 200));
		memset(y.b.p + UD_DST, 0xee, 500);
		ud_send(&x, 1, ah, qpn(&y), 100);
		conf_wc_ok(x.cq, 1);
		conf_wc_is(y.cq, 10, IBV_WC_LOC_LEN_ERR);
		conf_wc_is(y.cq, 11, IBV_WC_WR_FLUSH_ERR);
		EQ(conf_qp_state(y.qp), IBV_QPS_ERR);
		CHECK(conf_is_fill(y.b.p + UD_DST + room[i], 0xee, 500 - room[i]));
		pair_free();
	}
}

/* What really happens to memory, whatever the completions say. */
static void receive_too_small_writes_nothing_behind(void)
{
	pair();
	OK(conf_recv(y.qp, 10, &y.b, UD_DST, UD_GRH + 50));
	memset(y.b.p + UD_DST, 0xee, 500);
	ud_send(&x, 1, ah, qpn(&y), 100);
	conf_wc_ok(x.cq, 1);
	usleep(CONF_QUIET * 1000); /* it is dropped, or has come, by then */
	CHECK(conf_is_fill(y.b.p + UD_DST + UD_GRH + 50, 0xee, 450 - UD_GRH));
	EQ(to_state(&y, IBV_QPS_ERR), 0);
	pair_free();
}

/* ---- requests -------------------------------------------------------------------- */

static void opcodes_of_connections(void)
{
	static const int op[] = {
		IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_WRITE_WITH_IMM,
		IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_CMP_AND_SWP,
		IBV_WR_ATOMIC_FETCH_AND_ADD,
		IBV_WR_SEND_WITH_INV,
	};
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	pair();
	for (unsigned i = 0; i < sizeof(op) / sizeof(op[0]); i++) {
		wr = wr_of(&sge, 8);
		wr.opcode = op[i];
		EQ(conf_post(x.qp, &wr), EINVAL);
	}
	conf_wc_none(x.cq, 0);
	EQ(conf_qp_state(x.qp), IBV_QPS_RTS);
	ud_arrives(&x, &y, ah, 100);
	pair_free();
}

static void posting_by_state(void)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	pair();
	EQ(to_state(&x, IBV_QPS_RESET), 0);
	wr = wr_of(&sge, 100);
	EQ(conf_post(x.qp, &wr), EINVAL);
	EQ(ud_init(&x, UD_QKEY), 0);
	EQ(conf_post(x.qp, &wr), EINVAL);
	EQ(to_state(&x, IBV_QPS_RTR), 0);
	EQ(conf_post(x.qp, &wr), EINVAL);
	pair_free();
}

static void too_many_buffers(void)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge[33];

	pair();
	for (int i = 0; i < 33; i++)
		sge[i] = conf_sge(&x.b, 0, 1);
	wr = ud_wr(1, IBV_WR_SEND, sge, 33, ah, qpn(&y));
	CHECK(conf_post(x.qp, &wr) != 0);
	ud_arrives(&x, &y, ah, 100);
	pair_free();
}

/* A failed send stops the send queue and nothing else. */
static void fails(uint32_t lkey_of, int status)
{
	struct ibv_sge bad_sge, sge;
	struct ibv_send_wr wr, next;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };

	pair();
	ud_recv(&y, 10, 200);
	wr = wr_of(&bad_sge, 100);
	bad_sge.lkey = lkey_of;
	next = wr_of(&sge, 100);
	wr.next = &next;
	next.wr_id = 2;
	OK(conf_post(x.qp, &wr));
	conf_wc_is(x.cq, 1, status);
	conf_wc_is(x.cq, 2, IBV_WC_WR_FLUSH_ERR);
	EQ(conf_qp_state(x.qp), IBV_QPS_SQE);
	ud_nothing(&y);
	OK(conf_recv(x.qp, 20, &x.b, UD_DST, 200)); /* it still receives */
	ud_send(&y, 21, ah, qpn(&x), 100);
	conf_wc_ok(y.cq, 21);
	conf_wc_ok(x.cq, 20);
	ud_send(&x, 3, ah, qpn(&y), 100);
	conf_wc_is(x.cq, 3, IBV_WC_WR_FLUSH_ERR);
	EQ(ibv_modify_qp(x.qp, &attr, IBV_QP_STATE), 0);
	ud_send(&x, 4, ah, qpn(&y), 100);
	conf_wc_ok(x.cq, 4);
	conf_wc_ok(y.cq, 10);
	pair_free();
}

static void send_queue_error_and_recovery(void)
{
	fails(0xdeadbeef, IBV_WC_LOC_PROT_ERR);
}

static void receive_with_bad_lkey(void)
{
	struct ibv_sge sge;
	struct ibv_recv_wr wr = { .wr_id = 10, .sg_list = &sge, .num_sge = 1 }, *bad;

	pair();
	sge = conf_sge(&y.b, UD_DST, 200);
	sge.lkey ^= 0x5a00;
	OK(ibv_post_recv(y.qp, &wr, &bad));
	OK(conf_recv(y.qp, 11, &y.b, UD_DST, 200));
	ud_send(&x, 1, ah, qpn(&y), 100);
	conf_wc_ok(x.cq, 1);
	conf_wc_is(y.cq, 10, IBV_WC_LOC_PROT_ERR);
	conf_wc_is(y.cq, 11, IBV_WC_WR_FLUSH_ERR);
	EQ(conf_qp_state(y.qp), IBV_QPS_ERR);
	pair_free();
}

static void error_flushes(void)
{
	pair();
	for (int i = 0; i < 5; i++)
		OK(conf_recv(y.qp, 10 + i, &y.b, UD_DST, 200));
	EQ(to_state(&y, IBV_QPS_ERR), 0);
	for (int i = 0; i < 5; i++)
		conf_wc_is(y.cq, 10 + i, IBV_WC_WR_FLUSH_ERR);
	OK(conf_recv(y.qp, 20, &y.b, UD_DST, 200));
	conf_wc_is(y.cq, 20, IBV_WC_WR_FLUSH_ERR);
	ud_send(&y, 21, ah, qpn(&x), 10);
	conf_wc_is(y.cq, 21, IBV_WC_WR_FLUSH_ERR);
	pair_free();
}

/* ---- addresses ------------------------------------------------------------------- */

static void refused_address(struct ibv_ah_attr attr)
{
	NONE(ibv_create_ah(dev.pd, &attr), EINVAL);
}

static void no_grh(void)
{
	struct ibv_ah_attr attr;

	pair();
	attr = ud_attr(AF_INET);
	attr.is_global = 0;
	refused_address(attr);
	pair_free();
}

/* An index in the table where no GID is. */
static void empty_source_index(void)
{
	struct ibv_ah_attr attr;
	union ibv_gid gid;
	int i;

	pair();
	attr = ud_attr(AF_INET);
	for (i = 0; i < dev.port.gid_tbl_len && i < 255; i++)
		if (ibv_query_gid(dev.ctx, 1, i, &gid) || conf_is_fill(&gid, 0, 16))
			break;
	attr.grh.sgid_index = (uint8_t)i;
	errno = 0;
	CHECK(!ibv_create_ah(dev.pd, &attr));
	CHECK(errno == EINVAL || errno == ENODATA); /* the kernel's */
	pair_free();
}

static void bad_port(void)
{
	struct ibv_ah_attr attr;

	pair();
	attr = ud_attr(AF_INET);
	attr.port_num = 2;
	refused_address(attr);
	attr.port_num = 0;
	refused_address(attr);
	pair_free();
}

/* IPv4 to an IPv6 destination and back. */
static void source_of_another_family(void)
{
	struct ibv_ah_attr v4, v6;

	pair();
	v4 = ud_attr(AF_INET);
	v6 = ud_attr(AF_INET6);
	v4.grh.sgid_index = v6.grh.sgid_index;
	refused_address(v4);
	pair_free();
}

/* A handle belongs to a PD, and a QP may not send by that of another. */
static void address_handle_of_another_pd(void)
{
	struct ibv_ah_attr attr;
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_pd *pd;
	struct ibv_wc wc;
	struct ibv_ah *to;

	pair();
	MUST(pd = ibv_alloc_pd(dev.ctx));
	attr = ud_attr(AF_INET);
	MUST(to = ibv_create_ah(pd, &attr));
	ud_recv(&y, 10, 200);
	wr = wr_of(&sge, 100);
	wr.wr.ud.ah = to;
	OK(conf_post(x.qp, &wr));
	conf_wc(x.cq, &wc);
	CHECK(wc.status != IBV_WC_SUCCESS);
	ud_nothing(&y);
	OK(ibv_destroy_ah(to));
	OK(ibv_dealloc_pd(pd));
	pair_free();
}

static void pd_in_use(void)
{
	struct ibv_ah_attr attr;
	struct ibv_pd *pd;
	struct ibv_ah *to;

	pair();
	MUST(pd = ibv_alloc_pd(dev.ctx));
	attr = ud_attr(AF_INET);
	MUST(to = ibv_create_ah(pd, &attr));
	EQ(ibv_dealloc_pd(pd), EBUSY);
	OK(ibv_destroy_ah(to));
	OK(ibv_dealloc_pd(pd));
	pair_free();
}

static void many_address_handles(void)
{
	enum { N = 500 };
	struct ibv_ah *many[N];

	pair();
	for (int i = 0; i < N; i++)
		many[i] = ud_ah(ud_attr(AF_INET));
	for (int i = 0; i < N; i += 50)
		ud_arrives(&x, &y, many[i], 100);
	for (int i = 0; i < N; i++)
		OK(ibv_destroy_ah(many[i]));
	pair_free();
}

/* ---- attributes ------------------------------------------------------------------ */

static int modify(struct side *s, int state, int mask)
{
	struct ibv_qp_attr attr = {
		.qp_state = state,
		.port_num = 1,
		.qkey = UD_QKEY,
		.path_mtu = IBV_MTU_1024,
		.ah_attr = ud_attr(AF_INET),
	};

	return ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | mask);
}

static void attributes_of_connections(void)
{
	enum { INIT = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY };

	pair();
	EQ(to_state(&x, IBV_QPS_RESET), 0);
	EQ(modify(&x, IBV_QPS_INIT, INIT & ~IBV_QP_QKEY), EINVAL);
	EQ(modify(&x, IBV_QPS_INIT, INIT & ~IBV_QP_PORT), EINVAL);
	EQ(modify(&x, IBV_QPS_INIT, INIT | IBV_QP_ACCESS_FLAGS), EINVAL);
	EQ(modify(&x, IBV_QPS_INIT, INIT), 0);
	EQ(modify(&x, IBV_QPS_RTR, IBV_QP_AV), EINVAL);
	EQ(modify(&x, IBV_QPS_RTR, IBV_QP_DEST_QPN), EINVAL);
	EQ(modify(&x, IBV_QPS_RTR, IBV_QP_PATH_MTU), EINVAL);
	EQ(modify(&x, IBV_QPS_RTR, IBV_QP_QKEY), 0);
	EQ(modify(&x, IBV_QPS_RTS, 0), EINVAL);
	EQ(modify(&x, IBV_QPS_RTS, IBV_QP_SQ_PSN | IBV_QP_TIMEOUT), EINVAL);
	EQ(modify(&x, IBV_QPS_RTS, IBV_QP_SQ_PSN | IBV_QP_QKEY), 0);
	ud_arrives(&x, &y, ah, 10);
	pair_free();
}

static const struct conf_case cases[] = {
	CASE(wrong_qkey),
	CASE(qkey_of_the_sending_qp),
	CASE(no_receive),
	CASE(no_such_qp),
	CASE(to_a_connected_qp),
	CASE(not_ready_to_receive),
	CASE(longer_than_the_mtu),
	CASE(receive_too_small),
	CASE(receive_too_small_writes_nothing_behind),
	CASE(opcodes_of_connections),
	CASE(posting_by_state),
	CASE(too_many_buffers),
	CASE(send_queue_error_and_recovery),
	CASE(receive_with_bad_lkey),
	CASE(error_flushes),
	CASE(no_grh),
	CASE(empty_source_index),
	CASE(bad_port),
	CASE(source_of_another_family),
	CASE(address_handle_of_another_pd),
	CASE(pd_in_use),
	CASE(many_address_handles),
	CASE(attributes_of_connections),
};

CONF_MAIN(cases)
