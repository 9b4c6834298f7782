/* SPDX-License-Identifier: BSD-2-Clause */
/* Keys, protection domains and rights: of regions, QPs, SRQs, windows and address
 * handles, on both sides. */
#include "strict.h"

#define LOCAL IBV_ACCESS_LOCAL_WRITE
#define WRITE IBV_ACCESS_REMOTE_WRITE
#define READ IBV_ACCESS_REMOTE_READ
#define ATOMIC IBV_ACCESS_REMOTE_ATOMIC

static const int remote_ops[] = {
	IBV_WR_RDMA_WRITE,	     IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ,
	IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP,
};
enum { REMOTE_OPS = sizeof(remote_ops) / sizeof(remote_ops[0]) };

static int right_of(int opcode)
{
	return opcode == IBV_WR_RDMA_READ ? READ : st_is_atomic(opcode) ? ATOMIC : WRITE;
}

/* Every remote operation on 8 bytes at addr is refused. */
static void all_refused(const void *addr, uint32_t rkey)
{
	for (int i = 0; i < REMOTE_OPS; i++) {
		struct ibv_sge sge = conf_sge(&a.b, 4096, 8);
		struct ibv_send_wr wr = st_rdma(remote_ops[i], &sge, 1, addr, rkey);

		if (i)
			st_again(NULL);
		st_refused(&wr, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
	}
}

/* Every use of a local SGE that only reads memory is refused. */
static void all_sends_refused(struct ibv_sge sge)
{
	static const int ops[] = { IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
				   IBV_WR_RDMA_WRITE_WITH_IMM };

	for (unsigned i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		struct ibv_send_wr wr = st_rdma(ops[i], &sge, 1, p.b.p, p.b.mr->rkey);

		if (i)
			st_again(NULL);
		st_refused_here(&wr, IBV_WC_LOC_PROT_ERR);
	}
}

/* ... and that writes it. The responder's word must not change, though the
 * requester finds out by itself. */
static void all_answers_refused(struct ibv_sge sge)
{
	static const int ops[] = { IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
				   IBV_WR_ATOMIC_CMP_AND_SWP };

	for (unsigned i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		struct ibv_send_wr wr = st_rdma(ops[i], &sge, 1, p.b.p, p.b.mr->rkey);

		if (i)
			st_again(NULL);
		st_refused_here(&wr, IBV_WC_LOC_PROT_ERR);
	}
}

/* ---- protection domains ------------------------------------------------------ */

static void remote_region_of_another_pd(void)
{
	struct conf_buf other;
	struct ibv_pd *pd;

	st_open(NULL);
	MUST(pd = ibv_alloc_pd(p.ctx));
	other = st_buf(pd, 8192, CONF_RW, 5);
	all_refused(other.p, other.mr->rkey);
	st_untouched(&other, 5);
	st_buf_free(&other);
	EQ(ibv_dealloc_pd(pd), 0);
	st_close();
}

/* PDs of two contexts are never the same. */
static void remote_region_of_another_context(void)
{
	struct conf_buf other;

	st_open(NULL);
	other = st_buf(a.pd, 8192, CONF_RW, 5); /* the requester's own */
	all_refused(other.p, other.mr->rkey);
	st_untouched(&other, 5);
	st_buf_free(&other);
	st_close();
}

static void local_region_of_another_pd(void)
{
	struct conf_buf other;
	struct ibv_pd *pd;

	st_open(NULL);
	MUST(pd = ibv_alloc_pd(a.ctx));
	other = st_buf(pd, 8192, CONF_RW, 5);
	all_sends_refused(conf_sge(&other, 0, 8));
	st_again(NULL);
	all_answers_refused(conf_sge(&other, 0, 8));
	st_untouched(&other, 5);
	st_buf_free(&other);
	EQ(ibv_dealloc_pd(pd), 0);
	st_close();
}

static void receive_into_another_pd(void)
{
	struct conf_buf other;
	struct ibv_sge sge;
	struct ibv_pd *pd;

	st_open(NULL);
	MUST(pd = ibv_alloc_pd(p.ctx));
	other = st_buf(pd, 8192, CONF_RW, 5);
	sge = conf_sge(&other, 0, 8192);
	st_recv_refused(&sge, 1, 4096, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
	st_untouched(&other, 5);
	st_untouched(&p.b, ST_SEED_P);
	st_event(&p, ST_NONE); /* the completion says it */
	st_buf_free(&other);
	EQ(ibv_dealloc_pd(pd), 0);
	st_close();
}

static struct ibv_pd *srq_pd;

static struct ibv_pd *make_srq_pd(void)
{
	MUST(srq_pd = ibv_alloc_pd(p.ctx));
	return srq_pd;
}

/* A receive of an SRQ is checked against the SRQ's PD, not the QP's. */
static void srq_of_another_pd(void)
{
	struct st_opt opt = { .srq_wr = 8, .srq_pd = make_srq_pd };
	struct ibv_sge sge, from;
	struct conf_buf other;
	struct ibv_send_wr wr;

	st_open(&opt);
	other = st_buf(srq_pd, 8192, CONF_RW, 5);
	sge = conf_sge(&other, 0, 8192);
	OK(st_recv(&p, 1, &sge, 1));
	from = conf_sge(&a.b, 0, 100);
	wr = conf_wr(2, IBV_WR_SEND, &from, 1);
	st_accepted(&wr);
	conf_wc_ok(p.rcq, 1);
	CHECK(conf_pattern_ok(a.b.p - ST_GUARD, ST_GUARD, ST_SEED_A));
	for (int i = 0; i < 100; i++)
		EQ(other.p[i], a.b.p[i]);
	sge = conf_sge(&p.b, 0, 8192); /* the QP's PD */
	OK(st_recv(&p, 102, &sge, 1));
	OK(conf_post(a.qp, &wr));
	conf_wc_is(p.rcq, 102, IBV_WC_LOC_PROT_ERR);
	conf_wc_is(a.scq, 2, IBV_WC_REM_OP_ERR);
	conf_qp_wait(p.qp, IBV_QPS_ERR);
	st_untouched(&p.b, ST_SEED_P);
	EQ(ibv_destroy_qp(p.qp), 0);
	EQ(ibv_destroy_srq(p.srq), 0);
	p.qp = NULL;
	p.srq = NULL;
	st_buf_free(&other);
	EQ(ibv_dealloc_pd(srq_pd), 0);
	st_close();
}

/* The other way: the QP's remote rights are still the QP's PD's. */
static void write_to_the_pd_of_the_srq(void)
{
	struct st_opt opt = { .srq_wr = 8, .srq_pd = make_srq_pd };
	struct conf_buf other;
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	st_open(&opt);
	other = st_buf(srq_pd, 8192, CONF_RW, 5);
	sge = conf_sge(&a.b, 0, 64);
	wr = st_rdma(IBV_WR_RDMA_WRITE, &sge, 1, other.p, other.mr->rkey);
	OK(conf_post(a.qp, &wr));
	conf_wc_is(a.scq, 2, IBV_WC_REM_ACCESS_ERR);
	st_event(&p, IBV_EVENT_QP_ACCESS_ERR);
	st_untouched(&other, 5);
	EQ(ibv_destroy_qp(p.qp), 0);
	EQ(ibv_destroy_srq(p.srq), 0);
	p.qp = NULL;
	p.srq = NULL;
	st_buf_free(&other);
	EQ(ibv_dealloc_pd(srq_pd), 0);
	st_close();
}

static struct ibv_mw *bound_window(struct ibv_pd *pd, struct ibv_mr *mr, int rights)
{
	struct ibv_mw_bind bind = {
		.wr_id = 50,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = { .mr = mr, .addr = (uintptr_t)mr->addr, .length = 4096,
			       .mw_access_flags = rights },
	};
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);

	if (!mw)
		SKIP("no memory windows: %s", strerror(errno));
	EQ(ibv_bind_mw(p.qp, mw, &bind), 0);
	conf_wc_ok(p.scq, 50);
	return mw;
}

/* A window of another PD than the region's cannot be bound to it. */
static void window_of_another_pd(void)
{
	struct ibv_mw_bind bind = { .wr_id = 50, .send_flags = IBV_SEND_SIGNALED };
	struct conf_buf b;
	struct ibv_pd *pd;
	struct ibv_mw *mw;
	struct ibv_wc wc;
	int ret;

	st_open(NULL);
	MUST(pd = ibv_alloc_pd(p.ctx));
	b = st_buf(p.pd, 8192, CONF_RW | IBV_ACCESS_MW_BIND, 5);
	mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	if (!mw)
		SKIP("no memory windows: %s", strerror(errno));
	bind.bind_info = (struct ibv_mw_bind_info){
		.mr = b.mr, .addr = (uintptr_t)b.p, .length = 4096, .mw_access_flags = WRITE,
	};
	ret = ibv_bind_mw(p.qp, mw, &bind);
	if (!ret) { /* posted: then it fails there */
		conf_wc(p.scq, &wc);
		EQ(wc.wr_id, 50);
		if (wc.status != IBV_WC_MW_BIND_ERR && wc.status != IBV_WC_LOC_QP_OP_ERR)
			FAIL("bound across PDs: %s", ibv_wc_status_str(wc.status));
	} else if (ret != EINVAL && ret != EPERM) {
		FAIL("ibv_bind_mw: %s", strerror(ret));
	}
	EQ(ibv_dealloc_mw(mw), 0);
	st_buf_free(&b);
	EQ(ibv_dealloc_pd(pd), 0);
	st_close();
}

/* A window's key used through a QP of another PD. */
static void window_through_a_qp_of_another_pd(void)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .cap = CONF_CAP(4, 4, 1) };
	struct st_end other = { 0 }, saved;
	struct conf_buf b;
	struct ibv_mw *mw;
	struct ibv_pd *pd;

	st_open(NULL);
	b = st_buf(p.pd, 8192, CONF_RW | IBV_ACCESS_MW_BIND, 5);
	mw = bound_window(p.pd, b.mr, WRITE | READ | ATOMIC);
	/* p's QP is replaced by one of another PD. */
	saved = p;
	MUST(pd = ibv_alloc_pd(p.ctx));
	other = p;
	attr.send_cq = p.scq;
	attr.recv_cq = p.rcq;
	MUST(other.qp = ibv_create_qp(pd, &attr));
	p = other;
	EQ(st_modify(a.qp, IBV_QPS_RESET), 0);
	st_init(&a, NULL);
	st_init(&p, NULL);
	st_rtr(&a, &p, NULL);
	st_rtr(&p, &a, NULL);
	st_rts(&a, NULL);
	st_rts(&p, NULL);
	{
		struct ibv_sge sge = conf_sge(&a.b, 0, 8);
		struct ibv_send_wr wr = st_rdma(IBV_WR_RDMA_WRITE, &sge, 1, b.p, mw->rkey);

		OK(conf_post(a.qp, &wr));
		conf_wc_is(a.scq, 2, IBV_WC_REM_ACCESS_ERR);
		st_event(&p, IBV_EVENT_QP_ACCESS_ERR);
	}
	st_untouched(&b, 5);
	EQ(ibv_destroy_qp(p.qp), 0);
	EQ(ibv_dealloc_pd(pd), 0);
	p = saved;
	EQ(ibv_dealloc_mw(mw), 0);
	st_buf_free(&b);
	st_close();
}

/* An address handle of another PD: refused at once, or "local QP operation
 * error"; nothing leaves. */
static void address_handle_of_another_pd(void)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_UD, .cap = CONF_CAP(4, 4, 1) };
	struct ibv_qp_attr to = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 7 };
	struct ibv_ah_attr ah_attr = { .is_global = 1, .port_num = 1 };
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_pd *pd;
	struct ibv_ah *ah;
	struct ibv_qp *qp;
	struct ibv_wc wc;
	int ret;

	st_open(NULL);
	attr.send_cq = a.scq;
	attr.recv_cq = a.rcq;
	qp = ibv_create_qp(a.pd, &attr);
	if (!qp)
		SKIP("no UD: %s", strerror(errno));
	EQ(ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			 IBV_QP_QKEY), 0);
	EQ(st_modify(qp, IBV_QPS_RTR), 0);
	to = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .sq_psn = 1 };
	EQ(ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
	conf_qp_query(a.qp, &to);
	ah_attr = to.ah_attr;
	MUST(pd = ibv_alloc_pd(a.ctx));
	MUST(ah = ibv_create_ah(pd, &ah_attr));
	sge = conf_sge(&a.b, 0, 8);
	wr = conf_wr(2, IBV_WR_SEND, &sge, 1);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qp->qp_num;
	wr.wr.ud.remote_qkey = 7;
	ret = conf_post(qp, &wr);
	if (!ret) {
		conf_wc(a.scq, &wc);
		EQ(wc.wr_id, 2);
		EQ(wc.status, IBV_WC_LOC_QP_OP_ERR);
	} else {
		EQ(ret, EINVAL);
	}
	conf_wc_none(a.rcq, ST_QUIET);
	EQ(ibv_destroy_ah(ah), 0);
	EQ(ibv_destroy_qp(qp), 0);
	EQ(ibv_dealloc_pd(pd), 0);
	st_close();
}

/* ---- rights of regions ---------------------------------------------------------- */

/* A region with every right but one allows every operation but those. */
static void check_missing_right(int missing)
{
	st_open(NULL);
	for (int i = 0; i < REMOTE_OPS; i++) {
		struct conf_buf b = st_buf(p.pd, 8192, CONF_RW & ~missing, 5);
		struct ibv_sge sge = conf_sge(&a.b, 4096, 8);
		struct ibv_send_wr wr =
			st_rdma(remote_ops[i], &sge, 1, b.p, b.mr->rkey);

		if (right_of(remote_ops[i]) == missing) {
			st_refused(&wr, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
			st_untouched(&b, 5);
		} else {
			OK(st_recv(&p, 8, NULL, 0));
			st_accepted(&wr);
		}
		st_buf_free(&b);
		st_again(NULL);
	}
	st_close();
}

static void region_without_remote_write(void)
{
	check_missing_right(WRITE);
}

static void region_without_remote_read(void)
{
	check_missing_right(READ);
}

static void region_without_remote_atomic(void)
{
	check_missing_right(ATOMIC);
}

/* Without LOCAL_WRITE a region may be sent from and read from afar, and nothing
 * may be put into it. */
static void region_without_local_write(void)
{
	struct conf_buf ro, rop;
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	st_open(NULL);
	ro = st_buf(a.pd, 8192, 0, 5);
	rop = st_buf(p.pd, 8192, READ, 6);
	sge = conf_sge(&ro, 0, 8);
	OK(st_recv_buf(&p, 7, 0, 64));
	wr = st_rdma(IBV_WR_SEND, &sge, 1, NULL, 0);
	st_accepted(&wr);
	conf_wc_ok(p.rcq, 7);
	wr = st_rdma(IBV_WR_RDMA_WRITE, &sge, 1, p.b.p, p.b.mr->rkey);
	st_accepted(&wr);
	sge = conf_sge(&a.b, 0, 8);
	wr = st_rdma(IBV_WR_RDMA_READ, &sge, 1, rop.p, rop.mr->rkey);
	st_accepted(&wr);
	st_again(NULL);
	all_answers_refused(conf_sge(&ro, 0, 8));
	st_untouched(&ro, 5);
	st_again(NULL);
	sge = conf_sge(&rop, 0, 64);
	st_recv_refused(&sge, 1, 8, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
	st_untouched(&rop, 6);
	st_buf_free(&ro);
	st_buf_free(&rop);
	st_close();
}

/* A large answer is refused before its first byte as well. */
static void large_read_without_local_write(void)
{
	struct conf_buf ro;
	struct ibv_send_wr wr;
	struct ibv_sge sge[2];

	st_open(NULL);
	ro = st_buf(a.pd, 8192, 0, 5);
	sge[0] = conf_sge(&a.b, 0, 200000); /* this one is fine */
	sge[1] = conf_sge(&ro, 0, 8192);
	wr = st_rdma(IBV_WR_RDMA_READ, sge, 2, p.b.p, p.b.mr->rkey);
	st_refused_here(&wr, IBV_WC_LOC_PROT_ERR);
	st_untouched(&ro, 5);
	st_buf_free(&ro);
	st_close();
}

static void remote_store_needs_local_write(void)
{
	st_open(NULL);
	errno = 0;
	CHECK(!ibv_reg_mr(p.pd, p.b.p, 4096, WRITE) && errno == EINVAL);
	errno = 0;
	CHECK(!ibv_reg_mr(p.pd, p.b.p, 4096, ATOMIC) && errno == EINVAL);
	st_close();
}

/* ---- rights of QPs ---------------------------------------------------------------- */

/* Operations that the responder's QP does not serve are invalid requests, whatever
 * the key. */
static void check_qp_without(int missing)
{
	struct st_opt opt = { .access = (WRITE | READ | ATOMIC) & ~missing };

	st_open(&opt);
	for (int i = 0; i < REMOTE_OPS; i++) {
		struct ibv_sge sge = conf_sge(&a.b, 4096, 8);
		struct ibv_send_wr wr =
			st_rdma(remote_ops[i], &sge, 1, p.b.p, p.b.mr->rkey);

		if (right_of(remote_ops[i]) == missing) {
			st_refused(&wr, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
		} else {
			OK(st_recv(&p, 8, NULL, 0));
			st_accepted(&wr);
		}
		st_again(&opt);
	}
	st_close();
}

static void qp_without_remote_write(void)
{
	check_qp_without(WRITE);
}

static void qp_without_remote_read(void)
{
	check_qp_without(READ);
}

static void qp_without_remote_atomic(void)
{
	check_qp_without(ATOMIC);
}

/* ... of a large write not a byte is placed. */
static void large_write_to_a_qp_without_the_right(void)
{
	struct st_opt opt = { .access = READ };
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	st_open(&opt);
	sge = conf_sge(&a.b, 0, 200000);
	wr = st_rdma(IBV_WR_RDMA_WRITE, &sge, 1, p.b.p, p.b.mr->rkey);
	st_refused(&wr, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
	st_close();
}

static void empty_write_to_a_qp_without_the_right(void)
{
	struct st_opt opt = { .access = READ };
	struct ibv_send_wr wr;

	st_open(&opt);
	wr = st_rdma(IBV_WR_RDMA_WRITE, NULL, 0, p.b.p, p.b.mr->rkey);
	st_refused(&wr, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
	st_close();
}

static void rights_of_a_qp_can_be_taken_away(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .qp_access_flags = READ };
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	st_open(NULL);
	sge = conf_sge(&a.b, 0, 64);
	wr = st_rdma(IBV_WR_RDMA_WRITE, &sge, 1, p.b.p + 64, p.b.mr->rkey);
	st_accepted(&wr);
	EQ(ibv_modify_qp(p.qp, &attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS), 0);
	st_fill(&p.b, ST_SEED_P);
	st_refused(&wr, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
	st_close();
}

/* ---- keys ---------------------------------------------------------------------------- */

static void wrong_rkeys(void)
{
	/* No key; another place in the table; the right place, used before. */
	static const uint32_t twist[] = { 0x5a5a00, 0x01, 0x80, 0x80000000 };

	st_open(NULL);
	all_refused(p.b.p, 0);
	for (unsigned i = 0; i < sizeof(twist) / sizeof(twist[0]); i++) {
		struct ibv_sge sge = conf_sge(&a.b, 0, 64);
		struct ibv_send_wr wr = st_rdma(IBV_WR_RDMA_WRITE, &sge, 1, p.b.p,
						p.b.mr->rkey ^ twist[i]);

		st_again(NULL);
		st_refused(&wr, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
	}
	st_close();
}

static void wrong_lkeys(void)
{
	static const uint32_t twist[] = { 0x5a5a00, 0x01, 0x80, 0x80000000 };
	struct ibv_sge sge;

	st_open(NULL);
	sge = conf_sge(&a.b, 0, 8);
	sge.lkey = 0;
	all_sends_refused(sge);
	st_again(NULL);
	all_answers_refused(sge);
	for (unsigned i = 0; i < sizeof(twist) / sizeof(twist[0]); i++) {
		struct ibv_send_wr wr = st_rdma(IBV_WR_SEND, &sge, 1, NULL, 0);

		sge.lkey = a.b.mr->lkey ^ twist[i];
		st_again(NULL);
		st_refused_here(&wr, IBV_WC_LOC_PROT_ERR);
	}
	st_again(NULL);
	sge = conf_sge(&p.b, 0, 64);
	sge.lkey ^= 1;
	st_recv_refused(&sge, 1, 8, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
	st_untouched(&p.b, ST_SEED_P);
	st_close();
}

/* A bad key behind a good one: nothing of the message leaves. */
static void second_sge_with_a_bad_key(void)
{
	static const size_t first[] = { 1, 64, 4096, 100000, 200000 };
	struct ibv_sge sge[2];
	struct ibv_send_wr wr;

	st_open(NULL);
	for (unsigned i = 0; i < sizeof(first) / sizeof(first[0]); i++) {
		sge[0] = conf_sge(&a.b, 0, first[i]);
		sge[1] = conf_sge(&a.b, first[i], 8);
		sge[1].lkey ^= 1;
		wr = st_rdma(IBV_WR_RDMA_WRITE, sge, 2, p.b.p, p.b.mr->rkey);
		st_refused_here(&wr, IBV_WC_LOC_PROT_ERR);
		st_again(NULL);
		wr = st_rdma(IBV_WR_RDMA_READ, sge, 2, p.b.p, p.b.mr->rkey);
		st_refused_here(&wr, IBV_WC_LOC_PROT_ERR);
		st_again(NULL);
	}
	st_close();
}

/* Data that travels in the work request needs no key, and may be reused at once. */
static void inline_data_needs_no_key(void)
{
	struct ibv_send_wr wr;
	uint8_t bytes[64];
	struct ibv_sge sge = { (uintptr_t)bytes, sizeof(bytes), 0xdeadbeef };

	st_open(NULL);
	memset(bytes, 0x77, sizeof(bytes));
	wr = st_rdma(IBV_WR_RDMA_WRITE, &sge, 1, p.b.p, p.b.mr->rkey);
	wr.send_flags |= IBV_SEND_INLINE;
	OK(conf_post(a.qp, &wr));
	memset(bytes, 0x11, sizeof(bytes));
	conf_wc_ok(a.scq, 2);
	CHECK(conf_is_fill(p.b.p, 0x77, 64));
	st_close();
}

static void deregistered_remote_region(void)
{
	struct conf_buf b;
	struct ibv_mr gone;

	st_open(NULL);
	b = st_buf(p.pd, 8192, CONF_RW, 5);
	gone = *b.mr;
	EQ(ibv_dereg_mr(b.mr), 0);
	b.mr = NULL;
	all_refused(b.p, gone.rkey);
	st_untouched(&b, 5);
	/* The same memory registered again has another key. */
	MUST(b.mr = ibv_reg_mr(p.pd, b.p, 8192, CONF_RW));
	CHECK(b.mr->rkey != gone.rkey);
	st_again(NULL);
	all_refused(b.p, gone.rkey);
	st_untouched(&b, 5);
	st_buf_free(&b);
	st_close();
}

static void deregistered_local_region(void)
{
	struct conf_buf b;
	struct ibv_sge sge;

	st_open(NULL);
	b = st_buf(a.pd, 8192, CONF_RW, 5);
	sge = conf_sge(&b, 0, 8);
	EQ(ibv_dereg_mr(b.mr), 0);
	b.mr = NULL;
	all_sends_refused(sge);
	st_again(NULL);
	all_answers_refused(sge);
	st_untouched(&b, 5);
	st_buf_free(&b);
	st_close();
}

/* A receive is posted, then its memory is deregistered. */
static void region_of_a_posted_receive_deregistered(void)
{
	struct ibv_sge sge, from;
	struct ibv_send_wr wr;
	struct conf_buf b;

	st_open(NULL);
	b = st_buf(p.pd, 8192, CONF_RW, 5);
	sge = conf_sge(&b, 0, 64);
	OK(st_recv(&p, 1, &sge, 1));
	EQ(ibv_dereg_mr(b.mr), 0);
	b.mr = NULL;
	from = conf_sge(&a.b, 0, 64);
	wr = conf_wr(2, IBV_WR_SEND, &from, 1);
	OK(conf_post(a.qp, &wr));
	conf_wc_is(p.rcq, 1, IBV_WC_LOC_PROT_ERR);
	conf_wc_is(a.scq, 2, IBV_WC_REM_OP_ERR);
	st_untouched(&b, 5);
	st_buf_free(&b);
	st_close();
}

/* What each kind of re-registration takes away, and that the old key is dead. */
static void check_rereg(int flags, int access, bool new_key_works)
{
	struct conf_buf b, moved;
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_pd *pd;
	uint32_t old;

	st_open(NULL);
	MUST(pd = ibv_alloc_pd(p.ctx));
	b = st_buf(p.pd, 8192, CONF_RW, 5);
	moved = st_buf(p.pd, 8192, CONF_RW, 6);
	EQ(ibv_dereg_mr(moved.mr), 0);
	moved.mr = NULL;
	old = b.mr->rkey;
	EQ(ibv_rereg_mr(b.mr, flags, pd, moved.p, 8192, access), 0);
	sge = conf_sge(&a.b, 0, 64);
	wr = st_rdma(IBV_WR_RDMA_WRITE, &sge, 1, b.p, old);
	st_refused(&wr, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
	st_again(NULL);
	wr = st_rdma(IBV_WR_RDMA_WRITE, &sge, 1, moved.p, old);
	st_refused(&wr, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
	st_untouched(&b, 5);
	st_untouched(&moved, 6);
	st_again(NULL);
	wr = st_rdma(IBV_WR_RDMA_WRITE, &sge, 1,
		     flags & IBV_REREG_MR_CHANGE_TRANSLATION ? moved.p : b.p, b.mr->rkey);
	if (new_key_works) {
		st_accepted(&wr);
	} else {
		st_refused(&wr, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
		st_untouched(&b, 5);
	}
	st_buf_free(&b);
	st_buf_free(&moved);
	EQ(ibv_dealloc_pd(pd), 0);
	st_close();
}

static void reregistered_elsewhere(void)
{
	check_rereg(IBV_REREG_MR_CHANGE_TRANSLATION, 0, true);
}

static void reregistered_with_other_rights(void)
{
	check_rereg(IBV_REREG_MR_CHANGE_ACCESS, LOCAL | READ, false);
}

static void reregistered_with_the_same_rights(void)
{
	check_rereg(IBV_REREG_MR_CHANGE_ACCESS, CONF_RW, true);
}

static void reregistered_in_another_pd(void)
{
	check_rereg(IBV_REREG_MR_CHANGE_PD, 0, false);
}

/* A refused re-registration leaves the region as it was. */
static void refused_reregistration(void)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	uint32_t old;

	st_open(NULL);
	old = p.b.mr->rkey;
	CHECK(ibv_rereg_mr(p.b.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, WRITE) != 0);
	EQ(p.b.mr->rkey, old);
	sge = conf_sge(&a.b, 0, 64);
	wr = st_rdma(IBV_WR_RDMA_WRITE, &sge, 1, p.b.p, old);
	st_accepted(&wr);
	st_close();
}

/* When ibv_dereg_mr() has returned, the memory is the application's: writes that
 * are under way have ended, and none comes later. */
static void nothing_is_written_after_dereg(void)
{
	struct st_opt opt = { .send_wr = 8 };

	st_open(&opt);
	for (int round = 0; round < 20; round++) {
		struct conf_buf b = st_buf(p.pd, 65536, CONF_RW, 5);
		struct ibv_sge sge = conf_sge(&a.b, 0, 65536);
		struct ibv_send_wr wr = st_rdma(IBV_WR_RDMA_WRITE, &sge, 1, b.p, b.mr->rkey);
		struct ibv_wc wc;
		int failed = 0;

		memset(&wc, 0, sizeof(wc));
		for (int i = 0; i < 8; i++) {
			wr.wr_id = i;
			OK(conf_post(a.qp, &wr));
		}
		for (int i = 0; i < round % 4; i++)
			conf_wc_ok(a.scq, i);
		EQ(ibv_dereg_mr(b.mr), 0);
		b.mr = NULL;
		st_fill(&b, 9);
		for (int i = round % 4; i < 8; i++) {
			conf_wc(a.scq, &wc);
			EQ(wc.wr_id, i);
			if (wc.status == IBV_WC_REM_ACCESS_ERR)
				EQ(failed++, 0);
			else
				EQ(wc.status, failed ? IBV_WC_WR_FLUSH_ERR : IBV_WC_SUCCESS);
		}
		st_untouched(&b, 9);
		st_buf_free(&b);
		st_again(&opt);
	}
	st_close();
}

static const struct conf_case cases[] = {
	CASE(remote_region_of_another_pd),
	CASE(remote_region_of_another_context),
	CASE(local_region_of_another_pd),
	CASE(receive_into_another_pd),
	CASE(srq_of_another_pd),
	CASE(write_to_the_pd_of_the_srq),
	CASE(window_of_another_pd),
	CASE(window_through_a_qp_of_another_pd),
	CASE(address_handle_of_another_pd),
	CASE(region_without_remote_write),
	CASE(region_without_remote_read),
	CASE(region_without_remote_atomic),
	CASE(region_without_local_write),
	CASE(large_read_without_local_write),
	CASE(remote_store_needs_local_write),
	CASE(qp_without_remote_write),
	CASE(qp_without_remote_read),
	CASE(qp_without_remote_atomic),
	CASE(large_write_to_a_qp_without_the_right),
	CASE(empty_write_to_a_qp_without_the_right),
	CASE(rights_of_a_qp_can_be_taken_away),
	CASE(wrong_rkeys),
	CASE(wrong_lkeys),
	CASE(second_sge_with_a_bad_key),
	CASE(inline_data_needs_no_key),
	CASE(deregistered_remote_region),
	CASE(deregistered_local_region),
	CASE(region_of_a_posted_receive_deregistered),
	CASE(reregistered_elsewhere),
	CASE(reregistered_with_other_rights),
	CASE(reregistered_with_the_same_rights),
	CASE(reregistered_in_another_pd),
	CASE(refused_reregistration),
	CASE(nothing_is_written_after_dereg),
};

CONF_MAIN(cases)
