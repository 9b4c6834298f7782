/* SPDX-License-Identifier: BSD-2-Clause */
/* Binding and invalidating windows by work requests: binds that are refused, their order
 * among other requests, and which QP may invalidate which key. */
#include "window.h"

/* Binds that cannot be. */

/* A bind of a range that info() gives, of a region with these rights, is refused: of a
 * type 2 window, and of a type 1 window if both. */
static void refused(int region, struct ibv_mw_bind_info (*info)(void), bool both)
{
	start_with(region, IBV_MW_TYPE_2);
	bind_refused(post_bind2(mw, 1, ibv_inc_rkey(mw->rkey), info()));
	stop();
	if (!both)
		return;
	start_with(region, IBV_MW_TYPE_1);
	bind_refused(post_bind1(mw, 1, info()));
	stop();
}

static struct ibv_mw_bind_info some(void)
{
	return range(0, 64, REMOTE);
}

static struct ibv_mw_bind_info beyond(void)
{
	return range(LEN - 10, 11, REMOTE);
}

static struct ibv_mw_bind_info before(void)
{
	struct ibv_mw_bind_info i = range(0, 64, REMOTE);

	i.addr--;
	return i;
}

static struct ibv_mw_bind_info wrapping(void)
{
	return range(64, UINT64_MAX - 32, REMOTE);
}

static struct ibv_mw_bind_info nothing(void)
{
	return range(0, 0, REMOTE);
}

static void region_without_bind_right(void)
{
	refused(CONF_RW, some, true);
}

static void writable_window_of_a_read_only_region(void)
{
	refused(IBV_ACCESS_MW_BIND | IBV_ACCESS_REMOTE_READ, some, true);
}

static void beyond_the_region(void)
{
	refused(LOCAL, beyond, true);
	refused(LOCAL, before, true);
	refused(LOCAL, wrapping, true);
}

static void no_bytes_for_type2(void)
{
	refused(LOCAL, nothing, false);
}

/* Memory in another PD than the QP's. */
static struct ibv_pd *other_pd;
static struct conf_buf other;

static struct ibv_mw_bind_info start_other(int type)
{
	start(type);
	MUST(other_pd = ibv_alloc_pd(c.p->verbs));
	other = conf_buf(other_pd, 4096, LOCAL);
	return (struct ibv_mw_bind_info){ other.mr, (uintptr_t)other.p, 64, REMOTE };
}

static void stop_other(void)
{
	window_free();
	conf_buf_free(&other);
	OK(ibv_dealloc_pd(other_pd));
	stop();
}

static void region_of_another_pd(void)
{
	struct ibv_mw_bind_info info = start_other(IBV_MW_TYPE_1);

	EQ(post_bind1(mw, 1, info), EPERM); /* said by the header */
	window_free();
	mw = window(IBV_MW_TYPE_2);
	bind_refused(post_bind2(mw, 1, ibv_inc_rkey(mw->rkey), info));
	stop_other();
}

static void window_of_another_pd(void)
{
	struct ibv_mw_bind_info info = start_other(0);

	MUST(mw = ibv_alloc_mw(other_pd, IBV_MW_TYPE_2));
	EQ(ibv_dealloc_pd(other_pd), EBUSY);
	bind_refused(post_bind2(mw, 1, ibv_inc_rkey(mw->rkey), info));
	stop_other();
}

/* What is posted behind a bind that fails is flushed. */
static void failed_bind_flushes(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr[3];

	start(IBV_MW_TYPE_2);
	OK(conf_recv(c.a->qp, 10, &a, 0, 64));
	OK(conf_recv(c.a->qp, 11, &a, 0, 64));
	sge = conf_sge(&p, 0, 64);
	wr[0] = conf_wr(1, IBV_WR_SEND, &sge, 1);
	wr[0].next = &wr[1];
	wr[1] = conf_bind(2, mw, ibv_inc_rkey(mw->rkey), range(0, 0, REMOTE));
	wr[1].send_flags = 0; /* an error is reported all the same */
	wr[1].next = &wr[2];
	wr[2] = conf_wr(3, IBV_WR_SEND, &sge, 1);
	OK(conf_post(c.p->qp, wr));
	conf_wc_ok(c.p->send_cq, 1);
	conf_wc_is(c.p->send_cq, 2, IBV_WC_MW_BIND_ERR);
	conf_wc_is(c.p->send_cq, 3, IBV_WC_WR_FLUSH_ERR);
	conf_wc_ok(c.a->recv_cq, 10);
	conf_wc_none(c.a->recv_cq, 50);
	stop();
}

/* Order. */

/* The usual way: bind and tell the peer the key, in one go; the peer uses it, and
 * its answer invalidates it. */
static void bind_then_send(void)
{
	struct ibv_send_wr wr[2];
	struct ibv_sge sge;
	struct ibv_wc wc;
	uint32_t rkey;

	start(IBV_MW_TYPE_2);
	rkey = mw->rkey;
	for (int i = 0; i < 100; i++) {
		rkey = ibv_inc_rkey(rkey);
		OK(conf_recv(c.a->qp, 10, NULL, 0, 0));
		OK(conf_recv(c.p->qp, 11, NULL, 0, 0));
		wr[0] = conf_bind(1, mw, rkey, range(i, 64, REMOTE));
		wr[0].send_flags = 0;
		wr[0].next = &wr[1];
		wr[1] = conf_wr(2, IBV_WR_SEND_WITH_IMM, NULL, 0);
		wr[1].imm_data = htonl(rkey);
		OK(conf_post(c.p->qp, wr));
		mw->rkey = rkey; /* the application keeps the book */
		conf_wc_get(c.a->recv_cq, 10, IBV_WC_SUCCESS, &wc);
		EQ(ntohl(wc.imm_data), rkey);
		conf_pattern(a.p, 64, i);
		sge = conf_sge(&a, 0, 64);
		wr[0] = conf_rdma(3, IBV_WR_RDMA_WRITE, &sge, 1, p.p + i, rkey);
		wr[0].next = &wr[1];
		wr[1] = conf_inv(4, IBV_WR_SEND_WITH_INV, rkey);
		OK(conf_post(c.a->qp, wr));
		conf_wc_ok(c.a->send_cq, 3);
		conf_wc_ok(c.a->send_cq, 4);
		conf_wc_ok(c.p->send_cq, 2);
		conf_wc_ok(c.p->recv_cq, 11);
		CHECK(conf_pattern_ok(p.p + i, 64, i));
	}
	write_refused(0, 64, rkey);
	stop();
}

/* Completions come in the order of posting, also when a request before is repeated
 * because its receiver was not ready. */
static void binds_behind_a_late_receive(void)
{
	enum { N = 12 };
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_wc wc;

	start(IBV_MW_TYPE_2);
	sge = conf_sge(&p, 0, 64);
	for (int i = 0; i < N; i += 3) {
		uint32_t rkey = ibv_inc_rkey(mw->rkey);

		wr = conf_wr(i, IBV_WR_SEND, &sge, 1);
		OK(conf_post(c.p->qp, &wr));
		OK(post_bind2(mw, i + 1, rkey, range(0, 64, REMOTE)));
		OK(post_inv(c.p->qp, i + 2, rkey));
		mw->rkey = rkey;
	}
	conf_wc_none(c.p->send_cq, 100);
	for (int i = 0; i < N / 3; i++) {
		OK(conf_recv(c.a->qp, 100 + i, &a, 0, 64));
		conf_wc_ok(c.a->recv_cq, 100 + i);
		for (int k = 3 * i; k < 3 * i + 3; k++)
			conf_wc_get(c.p->send_cq, k, IBV_WC_SUCCESS, &wc);
	}
	conf_pair_disconnect(&c);
	stop();
}

/* An unsignalled send is acknowledged in time for a bind behind it. */
static void bind_behind_unsignalled_sends(void)
{
	struct ibv_send_wr wr;
	struct ibv_wc wc;

	start(IBV_MW_TYPE_1);
	for (int i = 0; i < 20; i++) {
		OK(conf_recv(c.a->qp, 10, NULL, 0, 0));
		wr = conf_wr(1, IBV_WR_SEND, NULL, 0);
		wr.send_flags = 0;
		OK(conf_post(c.p->qp, &wr));
		OK(post_bind1(mw, 2, range(0, 64, REMOTE)));
		conf_wc_ok(c.a->recv_cq, 10);
		conf_wc_get(c.p->send_cq, 2, IBV_WC_SUCCESS, &wc);
		EQ(wc.opcode, IBV_WC_BIND_MW);
	}
	conf_pair_disconnect(&c);
	stop();
}

/* A fenced invalidate waits for the reads before it. */
static void fenced_invalidate(void)
{
	struct ibv_send_wr wr[2];
	struct ibv_sge sge;
	uint32_t rkey;

	start(IBV_MW_TYPE_2);
	rkey = bound2(mw, range(0, 64, REMOTE));
	sge = conf_sge(&p, 0, LEN);
	conf_pattern(a.p, LEN, 3);
	wr[0] = conf_rdma(1, IBV_WR_RDMA_READ, &sge, 1, a.p, a.mr->rkey);
	wr[0].next = &wr[1];
	wr[1] = conf_inv(2, IBV_WR_LOCAL_INV, rkey);
	wr[1].send_flags |= IBV_SEND_FENCE;
	OK(conf_post(c.p->qp, wr));
	conf_wc_ok(c.p->send_cq, 1);
	conf_wc_ok(c.p->send_cq, 2);
	CHECK(conf_pattern_ok(p.p, LEN, 3));
	stop();
}

static void flushed_with_its_qp(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	start(IBV_MW_TYPE_2);
	OK(ibv_modify_qp(c.p->qp, &attr, IBV_QP_STATE));
	OK(post_bind2(mw, 1, ibv_inc_rkey(mw->rkey), range(0, 64, REMOTE)));
	conf_wc_is(c.p->send_cq, 1, IBV_WC_WR_FLUSH_ERR);
	conf_buf_free(&p); /* it was not bound */
	stop();
}

/* Invalidating. */

static void inv_refused(uint32_t rkey)
{
	OK(post_inv(c.p->qp, 1, rkey));
	conf_wc_is(c.p->send_cq, 1, IBV_WC_MW_BIND_ERR);
	conf_qp_wait(c.p->qp, IBV_QPS_ERR);
}

static void local_invalidate_of_a_region(void)
{
	start(0);
	inv_refused(p.mr->rkey);
	stop();
}

static void local_invalidate_of_type1(void)
{
	start(IBV_MW_TYPE_1);
	bound1(mw, range(0, 64, REMOTE));
	inv_refused(mw->rkey);
	stop();
}

static void local_invalidate_twice(void)
{
	uint32_t rkey;

	start(IBV_MW_TYPE_2);
	if (!conf_user_device())
		SKIP("rxe of Linux 6.1 takes the kernel down");
	rkey = bound2(mw, range(0, 64, REMOTE));
	invalidated(rkey);
	inv_refused(rkey);
	stop();
}

static void local_invalidate_of_another_qps(void)
{
	struct conf_pair d;
	uint32_t rkey;

	start(IBV_MW_TYPE_2);
	conf_pair_open(&d, NULL);
	rkey = bound2(mw, range(0, 64, REMOTE));
	OK(post_inv(d.p->qp, 1, rkey));
	conf_wc_is(d.p->send_cq, 1, IBV_WC_MW_BIND_ERR);
	write_ok(0, 64, rkey); /* it is bound still */
	conf_pair_free(&d);
	stop();
}

/* A send with invalidate of a key that this QP cannot invalidate: the send succeeds, the
 * receive fails, and the window stays. */
static void remote_invalidate_refused(struct rdma_cm_id *from, struct rdma_cm_id *to,
				      uint32_t rkey)
{
	struct ibv_send_wr wr = conf_inv(2, IBV_WR_SEND_WITH_INV, rkey);
	struct ibv_wc wc;

	OK(conf_recv(to->qp, 1, NULL, 0, 0));
	OK(conf_post(from->qp, &wr));
	conf_wc_ok(from->send_cq, 2);
	conf_wc(to->recv_cq, &wc);
	CHECK(wc.wr_id == 1 && wc.status != IBV_WC_SUCCESS);
	conf_qp_wait(to->qp, IBV_QPS_ERR);
}

static void remote_invalidate_of_type1(void)
{
	struct conf_pair d;

	start(IBV_MW_TYPE_1);
	conf_pair_open(&d, NULL);
	bound1(mw, range(0, 64, REMOTE));
	remote_invalidate_refused(d.a, d.p, mw->rkey);
	write_ok(0, 64, mw->rkey);
	conf_pair_free(&d);
	stop();
}

static void remote_invalidate_of_another_qps(void)
{
	struct conf_pair d;
	uint32_t rkey;

	start(IBV_MW_TYPE_2);
	conf_pair_open(&d, NULL);
	rkey = bound2(mw, range(0, 64, REMOTE));
	remote_invalidate_refused(d.a, d.p, rkey);
	write_ok(0, 64, rkey);
	conf_pair_free(&d);
	stop();
}

static const struct conf_case cases[] = {
	CASE(region_without_bind_right),
	CASE(writable_window_of_a_read_only_region),
	CASE(beyond_the_region),
	CASE(no_bytes_for_type2),
	CASE(region_of_another_pd),
	CASE(window_of_another_pd),
	CASE(failed_bind_flushes),
	CASE(bind_then_send),
	CASE(binds_behind_a_late_receive),
	CASE(bind_behind_unsignalled_sends),
	CASE(fenced_invalidate),
	CASE(flushed_with_its_qp),
	CASE(local_invalidate_of_a_region),
	CASE(local_invalidate_of_type1),
	CASE(local_invalidate_twice),
	CASE(local_invalidate_of_another_qps),
	CASE(remote_invalidate_of_type1),
	CASE(remote_invalidate_of_another_qps),
};
CONF_MAIN(cases)
