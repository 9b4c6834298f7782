/* SPDX-License-Identifier: BSD-2-Clause */
/* Datagrams: Q_Keys, states, addresses, and what may be posted. `a` sends, `p` receives. That
 * something was dropped shows by what comes behind it: it takes the receive, as datagrams of
 * one QP to another come in order on one host. */
#include "dgram.h"

/* ---- Q_Keys ---------------------------------------------------------------------- */

/* Only the receiver knows; and it goes on. */
static void wrong_qkey(void)
{
	static const uint32_t wrong[] = { 0, 1, DG_QKEY + 1, DG_QKEY ^ 0x40000000, 0x7fffffff };

	dg_open(NULL);
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct ibv_sge sge = conf_sge(&a.b, 0, 64);
		struct ibv_send_wr wr = dg_wr(1, &sge, 1);

		OK(st_recv_buf(&p, 10 + i, 1024, 512));
		wr.wr.ud.remote_qkey = wrong[i];
		OK(conf_post(a.qp, &wr));
		conf_wc_ok(a.scq, 1);
		dg_send_ok(2, 4096, 100);
		dg_arrives(10 + i, 1024, 4096, 100);
	}
	conf_wc_none(p.rcq, ST_QUIET);
	st_event(&p, ST_NONE);
	dg_close();
}

/* With bit 31 set the key of the QP that sends is used: no application may name a
 * privileged one. */
static void qkey_of_the_sender(void)
{
	dg_open(NULL); /* both have the same */
	OK(st_recv_buf(&p, 1, 0, 512));
	dg_qkey(0x80000000);
	dg_send_ok(5, 0, 64);
	dg_arrives(1, 0, 0, 64);
	dg_qkey(0xffffffff);
	OK(st_recv_buf(&p, 2, 0, 512));
	dg_send_ok(6, 64, 64);
	dg_arrives(2, 0, 64, 64);
	dg_close();

	dg_open(&(struct dg_opt){ .sender_qkey = 0x22222222 });
	OK(st_recv_buf(&p, 1, 0, 512));
	dg_qkey(0x80000000 | DG_QKEY);
	dg_send_ok(5, 0, 64);
	dg_qkey(DG_QKEY);
	dg_send_ok(6, 128, 64);
	dg_arrives(1, 0, 128, 64);
	conf_wc_none(p.rcq, ST_QUIET);
	dg_close();
}

static int set_qkey(struct ibv_qp *qp, int state, uint32_t qkey)
{
	struct ibv_qp_attr attr = { .qp_state = state, .qkey = qkey };

	return ibv_modify_qp(qp, &attr, (state >= 0 ? IBV_QP_STATE : 0) | IBV_QP_QKEY);
}

/* A receiver's key can be changed in RTS, and the old one is worth nothing then. */
static void qkey_changed(void)
{
	struct ibv_qp_attr attr;

	dg_open(NULL);
	OK(st_recv_buf(&p, 1, 0, 512));
	EQ(set_qkey(p.qp, IBV_QPS_RTS, 0x33333333), 0);
	conf_qp_query(p.qp, &attr);
	EQ(attr.qkey, 0x33333333);
	dg_send_ok(1, 0, 64);
	dg_qkey(0x33333333);
	dg_send_ok(2, 64, 32);
	dg_arrives(1, 0, 64, 32);
	dg_close();
}

/* Which states allow it: INIT, RTR and RTS take a key, RESET and ERR none. */
static void qkey_in_each_state(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	dg_open(NULL);
	EQ(conf_qp_to(p.qp, IBV_QPS_ERR), 0);
	EQ(set_qkey(p.qp, IBV_QPS_ERR, 5), EINVAL);
	EQ(conf_qp_to(p.qp, IBV_QPS_RESET), 0);
	EQ(set_qkey(p.qp, IBV_QPS_RESET, 5), EINVAL);
	EQ(set_qkey(p.qp, -1, 5), EINVAL);
	/* INIT needs one; and has no use for rights. */
	EQ(ibv_modify_qp(p.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT), EINVAL);
	EQ(ibv_modify_qp(p.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			 IBV_QP_QKEY | IBV_QP_ACCESS_FLAGS), EINVAL);
	EQ(conf_qp_state(p.qp), IBV_QPS_RESET);
	dg_init(&p, 1);
	EQ(set_qkey(p.qp, IBV_QPS_INIT, 2), 0);
	EQ(set_qkey(p.qp, IBV_QPS_RTR, 3), 0);
	OK(st_recv_buf(&p, 1, 0, 512));
	dg_qkey(2);
	dg_send_ok(1, 0, 64);
	dg_qkey(3);
	dg_send_ok(2, 64, 64);
	dg_arrives(1, 0, 64, 64);
	dg_close();
}

/* ---- states ----------------------------------------------------------------------- */

/* What connected QPs must be given and datagrams have no use for is refused. */
static void attributes_of_connections(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_256 };

	dg_open(NULL);
	EQ(conf_qp_to(p.qp, IBV_QPS_RESET), 0);
	dg_init(&p, DG_QKEY);
	EQ(ibv_modify_qp(p.qp, &attr, IBV_QP_STATE | IBV_QP_PATH_MTU), EINVAL);
	EQ(ibv_modify_qp(p.qp, &attr, IBV_QP_STATE | IBV_QP_DEST_QPN), EINVAL);
	EQ(ibv_modify_qp(p.qp, &attr, IBV_QP_STATE | IBV_QP_AV), EINVAL);
	EQ(ibv_modify_qp(p.qp, &attr, IBV_QP_STATE | IBV_QP_RQ_PSN), EINVAL);
	EQ(ibv_modify_qp(p.qp, &attr, IBV_QP_STATE), 0);
	attr.qp_state = IBV_QPS_RTS;
	EQ(ibv_modify_qp(p.qp, &attr, IBV_QP_STATE), EINVAL); /* a packet number is wanted */
	EQ(ibv_modify_qp(p.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT), EINVAL);
	EQ(ibv_modify_qp(p.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
	dg_works();
	dg_close();
}

/* Sends from RTS on; receives from INIT on, and they are there when it matters. What comes
 * before RTR is dropped. */
static void posting_in_each_state(void)
{
	struct ibv_send_wr wr;

	dg_open(NULL);
	EQ(conf_qp_to(p.qp, IBV_QPS_RESET), 0);
	wr = dg_wr(1, NULL, 0);
	wr.wr.ud.ah = dg_to_a;
	EQ(conf_post(p.qp, &wr), EINVAL);
	EQ(st_recv_buf(&p, 1, 0, 512), EINVAL);
	dg_send_ok(1, 0, 64);
	dg_init(&p, DG_QKEY);
	EQ(conf_post(p.qp, &wr), EINVAL);
	EQ(st_recv_buf(&p, 2, 0, 512), 0);
	dg_send_ok(2, 0, 64);
	EQ(conf_qp_to(p.qp, IBV_QPS_RTR), 0);
	EQ(conf_post(p.qp, &wr), EINVAL);
	dg_send_ok(3, 64, 64);
	dg_arrives(2, 0, 64, 64);
	dg_rts(&p);
	dg_works();
	conf_wc_none(p.rcq, ST_QUIET);
	EQ(conf_qp_to(p.qp, IBV_QPS_ERR), 0);
	dg_send_ok(4, 0, 64); /* who sends hears nothing of it */
	EQ(conf_post(p.qp, &wr), 0);
	conf_wc_is(p.scq, 1, IBV_WC_WR_FLUSH_ERR);
	EQ(st_recv_buf(&p, 5, 0, 512), 0);
	conf_wc_is(p.rcq, 5, IBV_WC_WR_FLUSH_ERR);
	conf_wc_none(p.rcq, ST_QUIET);
	dg_close();
}

/* ---- posting ---------------------------------------------------------------------- */

/* Sends are all that a datagram can be. */
static void opcodes_of_connections(void)
{
	static const int ops[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
				   IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
				   IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND_WITH_INV,
				   IBV_WR_BIND_MW, IBV_WR_ATOMIC_WRITE, 1000 };
	struct ibv_sge sge;

	dg_open(NULL);
	sge = conf_sge(&a.b, 0, 8);
	for (unsigned i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		struct ibv_send_wr first = dg_wr(1, &sge, 1), wr = dg_wr(2, &sge, 1), *bad = NULL;

		OK(st_recv_buf(&p, 10 + i, 0, 512));
		wr.opcode = ops[i];
		first.next = &wr;
		CHECK(ibv_post_send(a.qp, &first, &bad) != 0);
		CHECK(bad == &wr);
		conf_wc_ok(a.scq, 1); /* what stood before it was posted */
		dg_arrives(10 + i, 0, 0, 8);
	}
	conf_wc_none(a.scq, ST_QUIET);
	EQ(conf_qp_state(a.qp), IBV_QPS_RTS);
	dg_works();
	dg_close();
}

/* The same by builders: the QP is not made. */
static void builders_of_connections(void)
{
	static const uint64_t ops[] = { IBV_QP_EX_WITH_RDMA_WRITE, IBV_QP_EX_WITH_RDMA_READ,
					IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
					IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP,
					IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
					IBV_QP_EX_WITH_SEND_WITH_INV, IBV_QP_EX_WITH_BIND_MW };
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_UD,
		.cap = CONF_CAP(4, 4, 1),
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
	};
	struct ibv_qp *qp;

	dg_open(NULL);
	attr.pd = a.pd;
	attr.send_cq = a.scq;
	attr.recv_cq = a.rcq;
	attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
	qp = ibv_create_qp_ex(a.ctx, &attr);
	if (!qp)
		SKIP("no ibv_wr_*: %s", strerror(errno));
	EQ(ibv_destroy_qp(qp), 0);
	for (unsigned i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		attr.send_ops_flags = IBV_QP_EX_WITH_SEND | ops[i];
		errno = 0;
		CHECK(!ibv_create_qp_ex(a.ctx, &attr));
		CHECK(errno == EOPNOTSUPP || errno == EINVAL);
	}
	dg_close();
}

/* Its address handle belongs to another PD: refused, or it fails; nothing leaves. */
static void address_handle_of_another_pd(void)
{
	struct ibv_ah_attr attr;
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_pd *pd;
	struct ibv_ah *ah;
	int ret;

	dg_open(NULL);
	attr = dg_ah_attr(&a);
	MUST(pd = ibv_alloc_pd(a.ctx));
	MUST(ah = ibv_create_ah(pd, &attr));
	OK(st_recv_buf(&p, 10, 0, 512));
	sge = conf_sge(&a.b, 0, 8);
	wr = dg_wr(2, &sge, 1);
	wr.wr.ud.ah = ah;
	ret = conf_post(a.qp, &wr);
	if (!ret) {
		conf_wc_is(a.scq, 2, IBV_WC_LOC_QP_OP_ERR);
		EQ(conf_qp_state(a.qp), IBV_QPS_SQE);
		EQ(conf_qp_to(a.qp, IBV_QPS_RTS), 0);
	} else {
		EQ(ret, EINVAL);
	}
	dg_send_ok(3, 64, 64);
	dg_arrives(10, 0, 64, 64);
	conf_wc_none(p.rcq, ST_QUIET);
	EQ(ibv_destroy_ah(ah), 0);
	EQ(ibv_dealloc_pd(pd), 0);
	dg_close();
}

/* A PD that has address handles stays. */
static void pd_of_an_address_handle(void)
{
	struct ibv_ah_attr attr;
	struct ibv_pd *pd;
	struct ibv_ah *ah;

	dg_open(NULL);
	attr = dg_ah_attr(&a);
	MUST(pd = ibv_alloc_pd(a.ctx));
	MUST(ah = ibv_create_ah(pd, &attr));
	EQ(ibv_dealloc_pd(pd), EBUSY);
	EQ(ibv_destroy_ah(ah), 0);
	EQ(ibv_dealloc_pd(pd), 0);
	dg_close();
}

/* The handle may go when the request is posted, even where nothing moves yet. */
static void address_handle_destroyed(void)
{
	struct ibv_qp_attr sqd = { .qp_state = IBV_QPS_SQD };
	struct ibv_ah_attr attr;
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_ah *ah;

	dg_open(NULL);
	attr = dg_ah_attr(&a);
	MUST(ah = ibv_create_ah(a.pd, &attr));
	OK(st_recv_buf(&p, 10, 0, 512));
	EQ(ibv_modify_qp(a.qp, &sqd, IBV_QP_STATE), 0);
	sge = conf_sge(&a.b, 0, 100);
	wr = dg_wr(2, &sge, 1);
	wr.wr.ud.ah = ah;
	OK(conf_post(a.qp, &wr));
	EQ(ibv_destroy_ah(ah), 0);
	conf_wc_none(a.scq, ST_QUIET);
	EQ(conf_qp_to(a.qp, IBV_QPS_RTS), 0);
	conf_wc_ok(a.scq, 2);
	dg_arrives(10, 0, 0, 100);
	dg_close();
}

/* On Ethernet an address has a GRH. */
static void address_without_grh(void)
{
	struct ibv_ah_attr attr;

	dg_open(NULL);
	attr = dg_ah_attr(&a);
	attr.is_global = 0;
	attr.dlid = 1;
	NONE(ibv_create_ah(a.pd, &attr), EINVAL);
	dg_close();
}

static void bad_source_of_an_address(void)
{
	struct ibv_port_attr port;
	struct ibv_ah_attr attr;
	union ibv_gid gid, zero = { 0 };
	int empty = -1;

	dg_open(NULL);
	EQ(ibv_query_port(a.ctx, 1, &port), 0);
	for (int i = 0; i < port.gid_tbl_len && empty < 0; i++)
		if (ibv_query_gid(a.ctx, 1, i, &gid) || !memcmp(&gid, &zero, sizeof(gid)))
			empty = i;
	CHECK(empty > 0);
	attr = dg_ah_attr(&a);
	attr.grh.sgid_index = (uint8_t)empty;
	errno = 0;
	CHECK(!ibv_create_ah(a.pd, &attr));
	CHECK(errno == EINVAL || errno == ENODATA);
	attr = dg_ah_attr(&a);
	attr.port_num = 0;
	NONE(ibv_create_ah(a.pd, &attr), EINVAL);
	attr.port_num = 2;
	NONE(ibv_create_ah(a.pd, &attr), EINVAL);
	dg_close();
}

static void no_address_at_all(void)
{
	struct ibv_send_wr wr;

	if (!conf_user_device())
		SKIP("providers take the address without a look");
	dg_open(NULL);
	wr = dg_wr(1, NULL, 0);
	wr.wr.ud.ah = NULL;
	EQ(conf_post(a.qp, &wr), EINVAL);
	dg_works();
	dg_close();
}

/* ---- who is addressed -------------------------------------------------------------- */

/* Nobody has that number, or somebody who takes no datagrams: sent all the same. */
static void nobody_there(void)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .cap = CONF_CAP(4, 4, 1) };
	uint32_t numbers[4] = { 1, 0, 0xfffffe, 0 };
	struct ibv_send_wr wr;
	struct ibv_qp *rc;

	dg_open(NULL);
	attr.send_cq = p.scq;
	attr.recv_cq = p.rcq;
	MUST(rc = ibv_create_qp(p.pd, &attr));
	numbers[1] = p.qp->qp_num ^ 0x40; /* of the same process, maybe */
	numbers[3] = rc->qp_num;
	OK(st_recv_buf(&p, 1, 0, 512));
	for (int i = 0; i < 4; i++) {
		wr = dg_wr(i, NULL, 0);
		wr.wr.ud.remote_qpn = numbers[i];
		OK(conf_post(a.qp, &wr));
		conf_wc_ok(a.scq, i);
	}
	dg_send_ok(9, 64, 64);
	dg_arrives(1, 0, 64, 64);
	conf_wc_none(p.rcq, ST_QUIET);
	EQ(ibv_destroy_qp(rc), 0);
	dg_close();
}

static void to_itself(void)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	dg_open(NULL);
	OK(st_recv_buf(&a, 1, 4096, 512));
	sge = conf_sge(&a.b, 0, 64);
	wr = dg_wr(2, &sge, 1);
	wr.wr.ud.remote_qpn = a.qp->qp_num;
	OK(conf_post(a.qp, &wr));
	conf_wc_ok(a.scq, 2);
	conf_wc_ok(a.rcq, 1);
	CHECK(!memcmp(a.b.p + 4096 + DG_GRH, a.b.p, 64));
	dg_close();
}

/* ---- groups ------------------------------------------------------------------------- */

/* What ibv_attach_mcast() refuses, and that a QP of a group stays. */
static void groups(void)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .cap = CONF_CAP(4, 4, 1) };
	union ibv_gid group, none;
	struct ibv_qp *rc;

	dg_open(NULL);
	attr.send_cq = p.scq;
	attr.recv_cq = p.rcq;
	MUST(rc = ibv_create_qp(p.pd, &attr));
	memset(&group, 0, sizeof(group));
	group.raw[10] = group.raw[11] = 0xff;
	memcpy(group.raw + 12, (uint8_t[]){ 239, 7, 7, 7 }, 4);
	none = group;
	none.raw[12] = 127;
	EQ(ibv_attach_mcast(rc, &group, 0), EINVAL);
	if (conf_user_device())
		EQ(ibv_attach_mcast(p.qp, &none, 0), EINVAL);
	EQ(ibv_attach_mcast(p.qp, &group, 0), 0);
	EQ(ibv_attach_mcast(p.qp, &group, 0), 0);
	EQ(ibv_destroy_qp(p.qp), EBUSY);
	EQ(ibv_detach_mcast(p.qp, &group, 0), 0);
	EQ(ibv_detach_mcast(p.qp, &group, 0), EINVAL);
	EQ(ibv_destroy_qp(rc), 0);
	dg_works();
	dg_close();
}

static const struct conf_case cases[] = {
	CASE(wrong_qkey),
	CASE(qkey_of_the_sender),
	CASE(qkey_changed),
	CASE(qkey_in_each_state),
	CASE(attributes_of_connections),
	CASE(posting_in_each_state),
	CASE(opcodes_of_connections),
	CASE(builders_of_connections),
	CASE(address_handle_of_another_pd),
	CASE(pd_of_an_address_handle),
	CASE(address_handle_destroyed),
	CASE(address_without_grh),
	CASE(bad_source_of_an_address),
	CASE(no_address_at_all),
	CASE(nobody_there),
	CASE(to_itself),
	CASE(groups),
};

CONF_MAIN(cases)
