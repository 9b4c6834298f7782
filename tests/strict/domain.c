/* SPDX-License-Identifier: BSD-2-Clause */
/* Protection domains of regions, SRQs, windows and address handles. */
#include "strict.h"

/* Memory of an end in another PD than its QP's. */
static struct conf_buf other;
static struct ibv_pd *other_pd;

static void open_other(const struct st_end *e)
{
	MUST(other_pd = ibv_alloc_pd(e->ctx));
	other = st_buf(other_pd, 8192, CONF_RW, 5);
}

/* Nothing has changed there. */
static void close_other(void)
{
	st_untouched(&other, 5);
	st_buf_free(&other);
	EQ(ibv_dealloc_pd(other_pd), 0);
}

static void remote_region_of_another_pd(void)
{
	st_open(NULL);
	open_other(&p);
	st_all_refused(other.p, other.mr->rkey);
	close_other();
	st_close();
}

/* PDs of two contexts are never the same. */
static void remote_region_of_another_context(void)
{
	st_open(NULL);
	other = st_buf(a.pd, 8192, CONF_RW, 5); /* the requester's own */
	st_all_refused(other.p, other.mr->rkey);
	st_untouched(&other, 5);
	st_buf_free(&other);
	st_close();
}

static void local_region_of_another_pd(void)
{
	st_open(NULL);
	open_other(&a);
	st_all_sends_refused(conf_sge(&other, 0, 8));
	st_again(NULL);
	st_all_answers_refused(conf_sge(&other, 0, 8));
	close_other();
	st_close();
}

static void receive_into_another_pd(void)
{
	struct ibv_sge sge;

	st_open(NULL);
	open_other(&p);
	sge = conf_sge(&other, 0, 8192);
	st_recv_refused(&sge, 1, 4096, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
	st_untouched(&p.b, ST_SEED_P);
	st_event(&p, ST_NONE); /* the completion says it */
	close_other();
	st_close();
}

/* p receives from an SRQ in the other PD, which has the other memory, too. */
static struct ibv_pd *make_other_pd(void)
{
	MUST(other_pd = ibv_alloc_pd(p.ctx));
	return other_pd;
}

static void open_srq(void)
{
	struct st_opt opt = { .srq_wr = 8, .srq_pd = make_other_pd };

	st_open(&opt);
	other = st_buf(other_pd, 8192, CONF_RW, 5);
}

static void close_srq(void)
{
	EQ(ibv_destroy_qp(p.qp), 0);
	EQ(ibv_destroy_srq(p.srq), 0);
	p.qp = NULL;
	p.srq = NULL;
	st_buf_free(&other);
	EQ(ibv_dealloc_pd(other_pd), 0);
	st_close();
}

/* A receive of an SRQ is checked against the SRQ's PD, not the QP's. */
static void srq_of_another_pd(void)
{
	struct ibv_sge sge, from;
	struct ibv_send_wr wr;

	open_srq();
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
	close_srq();
}

/* The other way: the QP's remote rights are still the QP's PD's. */
static void write_to_the_pd_of_the_srq(void)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	open_srq();
	sge = conf_sge(&a.b, 0, 64);
	wr = st_rdma(IBV_WR_RDMA_WRITE, &sge, 1, other.p, other.mr->rkey);
	OK(conf_post(a.qp, &wr));
	conf_wc_is(a.scq, 2, IBV_WC_REM_ACCESS_ERR);
	st_event(&p, IBV_EVENT_QP_ACCESS_ERR);
	st_untouched(&other, 5);
	close_srq();
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
		.mr = b.mr,
		.addr = (uintptr_t)b.p,
		.length = 4096,
		.mw_access_flags = IBV_ACCESS_REMOTE_WRITE,
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
	struct st_end saved;
	struct conf_buf b;
	struct ibv_mw *mw;
	struct ibv_pd *pd;

	st_open(NULL);
	b = st_buf(p.pd, 8192, CONF_RW | IBV_ACCESS_MW_BIND, 5);
	mw = bound_window(p.pd, b.mr, IBV_ACCESS_REMOTE_WRITE);
	/* p's QP is replaced by one of another PD. */
	saved = p;
	MUST(pd = ibv_alloc_pd(p.ctx));
	attr.send_cq = p.scq;
	attr.recv_cq = p.rcq;
	MUST(p.qp = ibv_create_qp(pd, &attr));
	EQ(conf_qp_to(a.qp, IBV_QPS_RESET), 0);
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

static const struct conf_case cases[] = {
	CASE(remote_region_of_another_pd),
	CASE(remote_region_of_another_context),
	CASE(local_region_of_another_pd),
	CASE(receive_into_another_pd),
	CASE(srq_of_another_pd),
	CASE(write_to_the_pd_of_the_srq),
	CASE(window_of_another_pd),
	CASE(window_through_a_qp_of_another_pd),
};

CONF_MAIN(cases)
