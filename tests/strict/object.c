/* SPDX-License-Identifier: BSD-2-Clause */
/* An object that others use cannot be destroyed, and works on after the attempt. Memory
 * is not touched any more when its QP has ended. */
#include "strict.h"

static void pd_in_use(void)
{
	struct ibv_srq_init_attr sattr = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .cap = CONF_CAP(4, 4, 1) };
	struct ibv_ah_attr ah_attr;
	struct ibv_qp_attr qattr;
	struct ibv_pd *pd;
	struct ibv_ah *ah;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	struct ibv_qp *qp;
	struct ibv_srq *srq;

	st_open(NULL);
	MUST(pd = ibv_alloc_pd(a.ctx));
	MUST(mr = ibv_reg_mr(pd, a.b.p, 4096, CONF_RW));
	EQ(ibv_dealloc_pd(pd), EBUSY);
	EQ(ibv_dereg_mr(mr), 0);
	attr.send_cq = attr.recv_cq = a.scq;
	MUST(qp = ibv_create_qp(pd, &attr));
	EQ(ibv_dealloc_pd(pd), EBUSY);
	EQ(ibv_destroy_qp(qp), 0);
	MUST(srq = ibv_create_srq(pd, &sattr));
	EQ(ibv_dealloc_pd(pd), EBUSY);
	EQ(ibv_destroy_srq(srq), 0);
	conf_qp_query(a.qp, &qattr);
	ah_attr = qattr.ah_attr;
	MUST(ah = ibv_create_ah(pd, &ah_attr));
	EQ(ibv_dealloc_pd(pd), EBUSY);
	EQ(ibv_destroy_ah(ah), 0);
	mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	if (mw) {
		EQ(ibv_dealloc_pd(pd), EBUSY);
		EQ(ibv_dealloc_mw(mw), 0);
	}
	EQ(ibv_dealloc_pd(pd), 0);
	st_close();
}

static void cq_in_use(void)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .cap = CONF_CAP(4, 4, 1) };
	struct ibv_cq *cq[2];
	struct ibv_qp *qp;

	st_open(NULL);
	for (int i = 0; i < 2; i++) {
		MUST(cq[i] = ibv_create_cq(a.ctx, 8, NULL, NULL, 0));
	}
	attr.send_cq = cq[0];
	attr.recv_cq = cq[1];
	MUST(qp = ibv_create_qp(a.pd, &attr));
	EQ(ibv_destroy_cq(cq[0]), EBUSY);
	EQ(ibv_destroy_cq(cq[1]), EBUSY);
	EQ(ibv_destroy_qp(qp), 0);
	EQ(ibv_destroy_cq(cq[0]), 0);
	EQ(ibv_destroy_cq(cq[1]), 0);
	EQ(ibv_destroy_cq(a.scq), EBUSY);
	EQ(ibv_destroy_cq(p.rcq), EBUSY);
	st_alive();
	st_close();
}

static void srq_in_use(void)
{
	struct st_opt opt = { .srq_wr = 8 };

	st_open(&opt);
	OK(st_recv(&p, 1, NULL, 0));
	EQ(ibv_destroy_srq(p.srq), EBUSY);
	{
		struct ibv_send_wr wr = conf_wr(2, IBV_WR_SEND, NULL, 0);

		st_accepted(&wr);
	}
	conf_wc_ok(p.rcq, 1);
	st_close();
}

static void channel_in_use(void)
{
	struct ibv_comp_channel *ch;
	struct ibv_cq *cq;

	st_open(NULL);
	MUST(ch = ibv_create_comp_channel(a.ctx));
	MUST(cq = ibv_create_cq(a.ctx, 8, NULL, ch, 0));
	EQ(ibv_destroy_comp_channel(ch), EBUSY);
	EQ(ibv_req_notify_cq(cq, 0), 0);
	EQ(ibv_destroy_cq(cq), 0);
	EQ(ibv_destroy_comp_channel(ch), 0);
	st_close();
}

/* A region under a bound window stays; the window goes on. */
static void region_under_a_window(void)
{
	struct ibv_mw_bind bind = { .wr_id = 50, .send_flags = IBV_SEND_SIGNALED };
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct conf_buf b;
	struct ibv_mw *mw;

	st_open(NULL);
	b = st_buf(p.pd, 8192, CONF_RW | IBV_ACCESS_MW_BIND, 5);
	mw = ibv_alloc_mw(p.pd, IBV_MW_TYPE_1);
	if (!mw)
		SKIP("no memory windows: %s", strerror(errno));
	bind.bind_info = (struct ibv_mw_bind_info){
		.mr = b.mr, .addr = (uintptr_t)b.p, .length = 4096,
		.mw_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	EQ(ibv_bind_mw(p.qp, mw, &bind), 0);
	conf_wc_ok(p.scq, 50);
	EQ(ibv_dereg_mr(b.mr), EBUSY);
	sge = conf_sge(&a.b, 0, 64);
	wr = st_rdma(IBV_WR_RDMA_WRITE, &sge, 1, b.p, mw->rkey);
	st_accepted(&wr);
	EQ(ibv_dealloc_mw(mw), 0);
	st_buf_free(&b);
	st_close();
}

/* A QP may be destroyed in any state, with work posted. */
static void qp_with_work_posted(void)
{
	for (int state = 0; state < 5; state++) {
		st_create(NULL);
		if (state > 0) {
			st_init(&a, NULL);
			OK(st_recv(&a, 1, NULL, 0));
			st_init(&p, NULL);
		}
		if (state > 1) {
			st_rtr(&a, &p, NULL);
			st_rtr(&p, &a, NULL);
		}
		if (state > 2) {
			struct ibv_sge sge = conf_sge(&a.b, 0, 100000);
			struct ibv_send_wr wr = conf_rdma(1, IBV_WR_RDMA_WRITE, &sge, 1, p.b.p,
							  p.b.mr->rkey);

			st_rts(&a, NULL);
			for (int i = 0; i < 10; i++)
				OK(conf_post(a.qp, &wr));
		}
		if (state > 3)
			EQ(conf_qp_to(a.qp, IBV_QPS_ERR), 0);
		st_close();
	}
}

/* Closing a device lets go of the context only; destroying what is left works. */
static void context_with_objects(void)
{
	struct ibv_context *ctx;

	if (!conf_user_device())
		SKIP("the original frees the context, the kernel the objects");
	st_open(NULL);
	ctx = a.ctx;
	EQ(ibv_close_device(ctx), 0);
	st_alive();
	EQ(ibv_destroy_qp(a.qp), 0);
	EQ(ibv_destroy_cq(a.scq), 0);
	EQ(ibv_destroy_cq(a.rcq), 0);
	st_buf_free(&a.b);
	EQ(ibv_dealloc_pd(a.pd), 0);
	_exit(0);
}

/* a has eight requests of this kind under way when the application of `e` puts e's QP
 * into ERR (0) or RESET (1), or destroys it (2): e's memory is left alone from then
 * on. */
static void check_untouched_after(int opcode, struct st_end *e, int how, bool begun)
{
	struct st_opt opt = { .timeout = 8, .retry = 1 };
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	st_open(e == &p ? &opt : NULL);
	sge = conf_sge(&a.b, 0, ST_LEN);
	wr = conf_rdma(1, opcode, &sge, 1, p.b.p, p.b.mr->rkey);
	for (int i = 0; i < 8; i++)
		OK(conf_post(a.qp, &wr));
	if (begun)
		conf_wc_ok(a.scq, 1);
	if (how < 2)
		EQ(conf_qp_to(e->qp, how ? IBV_QPS_RESET : IBV_QPS_ERR), 0);
	else
		EQ(ibv_destroy_qp(e->qp), 0);
	e->qp = how < 2 ? e->qp : NULL;
	st_fill(&e->b, 77);
	conf_wc_none(p.rcq, ST_QUIET);
	st_untouched(&e->b, 77);
	st_close();
}

static void check_untouched(int opcode, struct st_end *e)
{
	for (int how = 0; how < 3; how++)
		for (int round = 0; round < 4; round++)
			check_untouched_after(opcode, e, how, round > 0);
}

/* The responder's memory, by writes that are still coming. */
static void nothing_is_written_after_the_end(void)
{
	check_untouched(IBV_WR_RDMA_WRITE, &p);
}

/* The requester's, by answers. */
static void nothing_is_answered_after_the_end(void)
{
	check_untouched(IBV_WR_RDMA_READ, &a);
}

static const struct conf_case cases[] = {
	CASE(pd_in_use),
	CASE(cq_in_use),
	CASE(srq_in_use),
	CASE(channel_in_use),
	CASE(region_under_a_window),
	CASE(qp_with_work_posted),
	CASE(context_with_objects),
	CASE(nothing_is_written_after_the_end),
	CASE(nothing_is_answered_after_the_end),
};

CONF_MAIN(cases)
