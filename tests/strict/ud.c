/* SPDX-License-Identifier: BSD-2-Clause */
/* Datagrams: what is refused, what fails, and what is dropped without a word. `a` sends,
 * `p` receives. That something was dropped shows by what comes behind it: it takes the
 * receive, as datagrams of one QP to another come in order on one host. */
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

/* ---- lengths ---------------------------------------------------------------------- */

/* A datagram is one packet: exactly the MTU of the port goes, a byte more fails, and the
 * other queue goes on. */
static void longer_than_the_mtu(void)
{
	uint32_t mtu, lens[3];
	struct ibv_sge sge[2];
	struct ibv_send_wr wr;

	dg_open(NULL);
	mtu = dg_mtu(&a);
	lens[0] = mtu + 1;
	lens[1] = 2 * mtu;
	lens[2] = ST_LEN - mtu;
	for (int i = 0; i < 3; i++) {
		OK(st_recv_buf(&p, 10, 0, mtu + DG_GRH));
		dg_send_ok(1, 0, mtu);
		dg_arrives(10, 0, 0, mtu);
		sge[0] = conf_sge(&a.b, 0, mtu);
		sge[1] = conf_sge(&a.b, mtu, lens[i] - mtu);
		wr = dg_wr(2, sge, 2);
		dg_fails(&wr, IBV_WC_LOC_LEN_ERR);
	}
	dg_close();
}

/* The receive is too small for GRH and payload. By the specification its completion says
 * so and the QP fails; adapters whose protocol is in software drop the datagram and keep the
 * receive. In no case is anything written behind it. */
static void receive_too_small(void)
{
	static const uint32_t sizes[] = { DG_GRH + 99, DG_GRH, DG_GRH - 1, 1 };
	struct ibv_wc wc;

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		dg_open(NULL);
		OK(st_recv_buf(&p, 1, 1000, sizes[i]));
		OK(st_recv_buf(&p, 2, 4096, 512));
		dg_send_ok(1, 0, 100);
		dg_send_ok(2, 200, 0);
		conf_wc(p.rcq, &wc);
		if (wc.status == IBV_WC_LOC_LEN_ERR) {
			EQ(wc.wr_id, 1);
			conf_wc_is(p.rcq, 2, IBV_WC_WR_FLUSH_ERR);
			EQ(conf_qp_state(p.qp), IBV_QPS_ERR);
		} else {
			EQ(wc.status, IBV_WC_SUCCESS);
			EQ(wc.byte_len, DG_GRH);
			EQ(wc.wr_id, sizes[i] >= DG_GRH ? 1 : 2);
			EQ(conf_qp_state(p.qp), IBV_QPS_RTS);
		}
		st_forget(&p.b, 1000, sizes[i], ST_SEED_P);
		st_forget(&p.b, 4096, DG_GRH, ST_SEED_P);
		st_untouched(&p.b, ST_SEED_P);
		dg_close();
	}
}

/* Exactly as much as needed; in as many pieces as there may be. */
static void receive_fits(void)
{
	struct ibv_sge sge[4];

	dg_open(NULL);
	OK(st_recv_buf(&p, 1, 1000, DG_GRH));
	dg_send_ok(1, 0, 0);
	dg_arrives(1, 1000, 0, 0);
	OK(st_recv_buf(&p, 2, 1000, DG_GRH + 100));
	dg_send_ok(2, 0, 100);
	dg_arrives(2, 1000, 0, 100);
	sge[0] = conf_sge(&p.b, 2000, 7);
	sge[1] = conf_sge(&p.b, 2007, DG_GRH - 7);
	sge[2] = conf_sge(&p.b, 2000 + DG_GRH, 1);
	sge[3] = conf_sge(&p.b, 2001 + DG_GRH, 199);
	OK(st_recv(&p, 3, sge, 4));
	dg_send_ok(3, 300, 200);
	dg_arrives(3, 2000, 300, 200);
	st_forget(&p.b, 1000, DG_GRH + 100, ST_SEED_P);
	st_forget(&p.b, 2000, DG_GRH + 200, ST_SEED_P);
	st_untouched(&p.b, ST_SEED_P);
	dg_close();
}

/* ---- keys ------------------------------------------------------------------------- */

static void bad_key_to_send(void)
{
	struct ibv_sge sge[2];
	struct ibv_send_wr wr;
	struct conf_buf other;

	dg_open(NULL);
	sge[0] = conf_sge(&a.b, 0, 64);
	sge[0].lkey ^= 0x5a5a00;
	wr = dg_wr(2, sge, 1);
	dg_fails(&wr, IBV_WC_LOC_PROT_ERR);
	sge[0] = conf_sge(&a.b, 0, 64);
	sge[1] = conf_sge(&a.b, ST_LEN - 8, 9); /* a byte behind the region */
	wr = dg_wr(2, sge, 2);
	dg_fails(&wr, IBV_WC_LOC_PROT_ERR);
	other = st_buf(p.pd, 4096, CONF_RW, 5); /* another PD, another context */
	sge[0] = conf_sge(&other, 0, 64);
	wr = dg_wr(2, sge, 1);
	dg_fails(&wr, IBV_WC_LOC_PROT_ERR);
	st_buf_free(&other);
	/* No bytes, no key. */
	sge[0] = conf_sge(&a.b, 0, 0);
	sge[0].lkey ^= 0x5a5a00;
	OK(st_recv_buf(&p, 1, 0, 512));
	wr = dg_wr(3, sge, 1);
	OK(conf_post(a.qp, &wr));
	conf_wc_ok(a.scq, 3);
	dg_arrives(1, 0, 0, 0);
	dg_close();
}

/* Receives are looked at when they are used: that one fails, the QP with it, and the rest is
 * flushed in order. Who sends hears nothing. */
static void bad_key_to_receive(void)
{
	struct ibv_sge sge;

	dg_open(NULL);
	OK(st_recv_buf(&p, 1, 0, 512));
	sge = conf_sge(&p.b, 1024, 512);
	sge.lkey ^= 0x5a5a00;
	OK(st_recv(&p, 2, &sge, 1));
	OK(st_recv_buf(&p, 3, 2048, 512));
	OK(st_recv_buf(&p, 4, 3072, 512));
	dg_send_ok(1, 0, 64);
	dg_arrives(1, 0, 0, 64);
	dg_send_ok(2, 0, 64);
	conf_wc_is(p.rcq, 2, conf_user_device() ? IBV_WC_LOC_PROT_ERR : IBV_WC_LOC_QP_OP_ERR);
	conf_wc_is(p.rcq, 3, IBV_WC_WR_FLUSH_ERR);
	conf_wc_is(p.rcq, 4, IBV_WC_WR_FLUSH_ERR);
	EQ(conf_qp_state(p.qp), IBV_QPS_ERR);
	dg_send_ok(3, 0, 64);
	EQ(conf_qp_state(a.qp), IBV_QPS_RTS);
	st_forget(&p.b, 0, DG_GRH + 64, ST_SEED_P);
	st_untouched(&p.b, ST_SEED_P);
	dg_close();
}

/* ---- receives --------------------------------------------------------------------- */

/* Without a receive datagrams are dropped, and nothing else. */
static void no_receive(void)
{
	dg_open(NULL);
	for (int i = 0; i < 100; i++)
		dg_send_ok(i, 0, 64);
	dg_settled();
	OK(st_recv_buf(&p, 1, 0, 512));
	dg_send_ok(1, 128, 64);
	dg_arrives(1, 0, 128, 64);
	conf_wc_none(p.rcq, ST_QUIET);
	st_event(&p, ST_NONE);
	dg_close();
}

static void shared_receive_queue_empty(void)
{
	dg_open(&(struct dg_opt){ .srq_wr = 8 });
	for (int i = 0; i < 20; i++)
		dg_send_ok(i, 0, 64);
	dg_settled();
	OK(st_recv_buf(&p, 1, 0, 512));
	dg_send_ok(1, 128, 64);
	dg_arrives(1, 0, 128, 64);
	conf_wc_none(p.rcq, ST_QUIET);
	dg_close();
}

/* In ERR what is left is flushed in order; a QP of an SRQ says that it takes no more. */
static void receives_flushed(void)
{
	dg_open(NULL);
	for (int i = 0; i < 12; i++)
		OK(st_recv_buf(&p, i, 0, 512));
	dg_send_ok(1, 0, 8);
	dg_arrives(0, 0, 0, 8);
	EQ(conf_qp_to(p.qp, IBV_QPS_ERR), 0);
	for (int i = 1; i < 12; i++)
		conf_wc_is(p.rcq, i, IBV_WC_WR_FLUSH_ERR);
	conf_wc_none(p.rcq, ST_QUIET);
	dg_close();

	dg_open(&(struct dg_opt){ .srq_wr = 8 });
	OK(st_recv_buf(&p, 1, 0, 512));
	EQ(conf_qp_to(p.qp, IBV_QPS_ERR), 0);
	st_event(&p, IBV_EVENT_QP_LAST_WQE_REACHED);
	conf_wc_none(p.rcq, ST_QUIET);
	dg_close();
}

/* ---- send queues -------------------------------------------------------------------- */

/* Those behind a failed one are flushed in order, also what is posted in SQE; receiving
 * goes on; RTS makes it good again. */
static void sends_flushed(void)
{
	struct ibv_send_wr wr[8], *bad;
	struct ibv_sge sge = { 0 }, good;

	dg_open(NULL);
	OK(st_recv_buf(&p, 1, 0, 512));
	good = conf_sge(&a.b, 0, 32);
	sge = good;
	sge.lkey ^= 0x5a5a00;
	for (int i = 0; i < 8; i++) {
		wr[i] = dg_wr(i, i == 1 ? &sge : &good, 1);
		wr[i].next = i < 7 ? &wr[i + 1] : NULL;
		wr[i].send_flags = i % 2 ? 0 : IBV_SEND_SIGNALED;
	}
	OK(ibv_post_send(a.qp, wr, &bad));
	conf_wc_ok(a.scq, 0);
	conf_wc_is(a.scq, 1, IBV_WC_LOC_PROT_ERR);
	for (int i = 2; i < 8; i++)
		conf_wc_is(a.scq, i, IBV_WC_WR_FLUSH_ERR);
	dg_arrives(1, 0, 0, 32);
	EQ(conf_qp_state(a.qp), IBV_QPS_SQE);
	wr[0].next = NULL;
	OK(conf_post(a.qp, wr));
	conf_wc_is(a.scq, 0, IBV_WC_WR_FLUSH_ERR);
	OK(st_recv_buf(&a, 50, 8192, 512));
	dg_back(51, 0, 16);
	conf_wc_ok(a.rcq, 50);
	EQ(conf_qp_to(a.qp, IBV_QPS_RTS), 0);
	conf_wc_none(p.rcq, ST_QUIET);
	dg_works();
	dg_close();
}

/* So many as were granted fit. A place comes back when a later signalled completion is
 * polled. */
static void unsignalled_places(void)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	uint32_t max;

	dg_open(&(struct dg_opt){ .send_wr = 5 });
	max = dg_granted(a.qp).max_send_wr;
	CHECK(max >= 5 && max < 64);
	sge = conf_sge(&a.b, 0, 16);
	for (int round = 0; round < 3; round++) {
		wr = dg_wr(1, &sge, 1);
		wr.send_flags = 0;
		for (unsigned i = 0; i + 1 < max; i++)
			OK(conf_post(a.qp, &wr));
		wr = dg_wr(2, &sge, 1);
		OK(conf_post(a.qp, &wr));
		if (conf_user_device()) /* rxe gives places back as soon as it has sent */
			EQ(conf_post(a.qp, &wr), ENOMEM);
		conf_wc_ok(a.scq, 2);
	}
	wr = dg_wr(3, &sge, 1);
	wr.send_flags = 0;
	for (unsigned i = 0; i < max; i++)
		OK(conf_post(a.qp, &wr));
	if (conf_user_device()) /* nothing that could ever be polled */
		EQ(conf_post(a.qp, &wr), ENOMEM);
	conf_wc_none(a.scq, ST_QUIET);
	dg_close();
}

static void all_is_signalled(void)
{
	struct ibv_send_wr wr;

	dg_open(&(struct dg_opt){ .sig_all = true });
	for (int i = 0; i < 10; i++) {
		wr = dg_wr(i, NULL, 0);
		wr.send_flags = 0;
		OK(conf_post(a.qp, &wr));
		conf_wc_ok(a.scq, i);
	}
	dg_close();
}

static void too_much_inline_data(void)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	uint32_t max;

	dg_open(NULL);
	max = dg_granted(a.qp).max_inline_data;
	CHECK(max >= 64);
	sge = conf_sge(&a.b, 0, max + 1);
	wr = dg_wr(1, &sge, 1);
	wr.send_flags |= IBV_SEND_INLINE;
	EQ(conf_post(a.qp, &wr), EINVAL);
	OK(st_recv_buf(&p, 1, 0, 8192));
	sge.length = max;
	sge.lkey = 0; /* not looked at */
	OK(conf_post(a.qp, &wr));
	memset(a.b.p, 0, max); /* free at once */
	conf_wc_ok(a.scq, 1);
	conf_wc_ok(p.rcq, 1);
	st_forget(&a.b, 0, max, ST_SEED_A);
	CHECK(!memcmp(p.b.p + DG_GRH, a.b.p, max));
	dg_close();
}

/* ---- the end ----------------------------------------------------------------------- */

/* With receives posted and datagrams on their way: afterwards memory is left alone. */
static void destroyed_with_receives(void)
{
	for (int round = 0; round < 20; round++) {
		dg_open(NULL);
		for (int i = 0; i < 12; i++)
			OK(st_recv_buf(&p, i, 1024 * i, 1024));
		for (int i = 0; i < 6; i++)
			OK(dg_send(i, 0, 64));
		EQ(ibv_destroy_qp(p.qp), 0);
		p.qp = NULL;
		st_fill(&p.b, ST_SEED_P);
		for (int i = 6; i < 12; i++)
			OK(dg_send(i, 0, 64));
		for (int i = 0; i < 12; i++)
			conf_wc_ok(a.scq, i);
		dg_settled();
		st_untouched(&p.b, ST_SEED_P);
		dg_close();
	}
}

/* With sends that wait: nothing leaves any more, nothing completes. */
static void destroyed_with_sends(void)
{
	struct ibv_qp_attr sqd = { .qp_state = IBV_QPS_SQD };

	dg_open(NULL);
	OK(st_recv_buf(&p, 1, 0, 512));
	EQ(ibv_modify_qp(a.qp, &sqd, IBV_QP_STATE), 0);
	for (int i = 0; i < 8; i++)
		OK(dg_send(i, 0, 64));
	EQ(ibv_destroy_qp(a.qp), 0);
	a.qp = NULL;
	conf_wc_none(a.scq, ST_QUIET);
	conf_wc_none(p.rcq, ST_QUIET);
	dg_close();
}

/* RESET forgets both queues. */
static void reset_forgets(void)
{
	struct ibv_qp_attr sqd = { .qp_state = IBV_QPS_SQD };

	dg_open(NULL);
	OK(st_recv_buf(&a, 1, 0, 512));
	EQ(ibv_modify_qp(a.qp, &sqd, IBV_QP_STATE), 0);
	OK(dg_send(2, 0, 64));
	EQ(conf_qp_to(a.qp, IBV_QPS_RESET), 0);
	dg_init(&a, DG_QKEY);
	EQ(conf_qp_to(a.qp, IBV_QPS_RTR), 0);
	dg_rts(&a);
	dg_works();
	dg_back(3, 0, 8);
	conf_wc_none(a.scq, ST_QUIET);
	conf_wc_none(a.rcq, 0);
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
	CASE(longer_than_the_mtu),
	CASE(receive_too_small),
	CASE(receive_fits),
	CASE(bad_key_to_send),
	CASE(bad_key_to_receive),
	CASE(no_receive),
	CASE(shared_receive_queue_empty),
	CASE(receives_flushed),
	CASE(sends_flushed),
	CASE(unsignalled_places),
	CASE(all_is_signalled),
	CASE(too_much_inline_data),
	CASE(destroyed_with_receives),
	CASE(destroyed_with_sends),
	CASE(reset_forgets),
	CASE(nobody_there),
	CASE(to_itself),
	CASE(groups),
};

CONF_MAIN(cases)
