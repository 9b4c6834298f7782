/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory windows of QPs that were connected without the connection manager: the
 * ibv_wr_*() builders, QPs whose peer does not exist, and send queues in SQD and SQE. */
#include "side.h"

enum {
	REMOTE = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
	LEN = 4096,
};

static struct conf_buf r; /* the region */
static struct ibv_mw *mw;

static void start(void)
{
	open_device();
	mw = ibv_alloc_mw(dev.pd, IBV_MW_TYPE_2);
	if (!mw)
		SKIP("no memory windows of type 2: %s", strerror(errno));
	r = conf_buf(dev.pd, LEN, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
}

static void stop(void)
{
	OK(ibv_dealloc_mw(mw));
	conf_buf_free(&r);
	close_device();
}

static struct ibv_mw_bind_info range(size_t len)
{
	struct ibv_mw_bind_info i = { r.mr, (uintptr_t)r.p, len, REMOTE };

	return i;
}

static struct ibv_send_wr bind_wr(uint64_t wr_id, uint32_t rkey, size_t len)
{
	return conf_bind(wr_id, mw, rkey, range(len));
}

static int post_bind(struct side *s, uint64_t wr_id, uint32_t rkey, size_t len)
{
	struct ibv_send_wr wr = bind_wr(wr_id, rkey, len);
	int ret = conf_post(s->qp, &wr);

	mw->rkey = rkey; /* the application keeps the book */
	return ret;
}

static int post_inv(struct side *s, uint64_t wr_id, uint32_t rkey)
{
	struct ibv_send_wr wr = conf_inv(wr_id, IBV_WR_LOCAL_INV, rkey);

	return conf_post(s->qp, &wr);
}

/* In RTS, and nobody is there whom it is connected to. */
static struct side alone(void)
{
	struct side s = side(1);

	OK(to_init(&s));
	OK(to_rtr(&s, s.qp->qp_num ^ 0x80, 2, &dev.gid));
	OK(to_rts(&s));
	return s;
}

static void builders(void)
{
	struct side_opt o = { .send_ops = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV |
					  IBV_QP_EX_WITH_SEND |
					  IBV_QP_EX_WITH_SEND_WITH_INV };
	struct ibv_mw_bind_info info;
	struct side x, y;
	struct ibv_wc wc;
	uint32_t rkey;

	start();
	x = side_with(1, o);
	y = side_with(2, o);
	join(&x, &y);
	info = range(LEN);
	rkey = ibv_inc_rkey(mw->rkey);
	ibv_wr_start(x.qpx);
	x.qpx->wr_flags = IBV_SEND_SIGNALED;
	x.qpx->wr_id = 1;
	ibv_wr_bind_mw(x.qpx, mw, rkey, &info);
	x.qpx->wr_id = 2;
	ibv_wr_local_inv(x.qpx, rkey);
	OK(ibv_wr_complete(x.qpx));
	conf_wc_get(x.cq, 1, IBV_WC_SUCCESS, &wc);
	EQ(wc.opcode, IBV_WC_BIND_MW);
	conf_wc_get(x.cq, 2, IBV_WC_SUCCESS, &wc);
	EQ(wc.opcode, IBV_WC_LOCAL_INV);
	mw->rkey = rkey;
	rkey = ibv_inc_rkey(rkey);
	ibv_wr_start(x.qpx);
	x.qpx->wr_id = 3;
	ibv_wr_bind_mw(x.qpx, mw, rkey, &info);
	OK(ibv_wr_complete(x.qpx));
	conf_wc_ok(x.cq, 3);
	OK(conf_recv(x.qp, 4, NULL, 0, 0));
	ibv_wr_start(y.qpx);
	y.qpx->wr_flags = IBV_SEND_SIGNALED;
	y.qpx->wr_id = 5;
	ibv_wr_send_inv(y.qpx, rkey);
	OK(ibv_wr_complete(y.qpx));
	conf_wc_ok(y.cq, 5);
	conf_wc_get(x.cq, 4, IBV_WC_SUCCESS, &wc);
	if (conf_user_device())
		CHECK(wc.wc_flags & IBV_WC_WITH_INV && wc.invalidated_rkey == rkey);
	side_free(&x);
	side_free(&y);
	stop();
}

/* A bad bind spoils the whole chain of builders, as any bad request does. */
static void builder_refuses(void)
{
	struct side_opt o = { .send_ops = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND };
	struct ibv_mw_bind_info info;
	struct side x, y;

	start();
	if (!conf_user_device())
		SKIP("some libraries do not look");
	x = side_with(1, o);
	y = side_with(2, o);
	join(&x, &y);
	info = range(LEN);
	info.mw_access_flags = 1 << 30;
	ibv_wr_start(x.qpx);
	x.qpx->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_bind_mw(x.qpx, mw, ibv_inc_rkey(mw->rkey), &info);
	EQ(ibv_wr_complete(x.qpx), EINVAL);
	conf_wc_none(x.cq, 20);
	side_free(&x);
	side_free(&y);
	stop();
}

/* Binding is nothing that a peer has to know of. */
static void without_a_peer(void)
{
	struct side s;

	start();
	s = alone();
	for (int i = 0; i < 100; i++) {
		OK(post_bind(&s, 1, ibv_inc_rkey(mw->rkey), LEN));
		OK(post_inv(&s, 2, mw->rkey));
		conf_wc_ok(s.cq, 1);
		conf_wc_ok(s.cq, 2);
	}
	OK(post_inv(&s, 3, r.mr->rkey));
	conf_wc_is(s.cq, 3, IBV_WC_MW_BIND_ERR);
	conf_qp_wait(s.qp, IBV_QPS_ERR);
	side_free(&s);
	stop();
}

/* A request before it that is not answered does not hold up a bind, but its
 * completion. */
static void behind_a_send_without_a_peer(void)
{
	struct ibv_send_wr wr[2];
	struct side s;

	start();
	s = alone();
	wr[0] = conf_wr(1, IBV_WR_SEND, NULL, 0);
	wr[0].next = &wr[1];
	wr[1] = bind_wr(2, ibv_inc_rkey(mw->rkey), LEN);
	OK(conf_post(s.qp, wr));
	conf_wc_none(s.cq, 50);
	OK(to_state(&s, IBV_QPS_ERR));
	conf_wc_is(s.cq, 1, IBV_WC_WR_FLUSH_ERR);
	conf_wc_is(s.cq, 2, IBV_WC_WR_FLUSH_ERR);
	side_free(&s);
	stop();
}

/* In SQD nothing is begun, local work neither. */
static void held_in_sqd(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	struct side x, y;

	start();
	x = side(1);
	y = side(2);
	join(&x, &y);
	OK(to_state(&x, IBV_QPS_SQD));
	OK(post_bind(&x, 1, ibv_inc_rkey(mw->rkey), LEN));
	conf_wc_none(x.cq, 50);
	OK(ibv_modify_qp(x.qp, &attr, IBV_QP_STATE));
	conf_wc_ok(x.cq, 1);
	side_free(&x);
	side_free(&y);
	stop();
}

/* Numbers of requests: local work between them, thousands of times. */
static void between_requests(void)
{
	enum { ROUNDS = 2000 };
	struct ibv_send_wr wr[4];
	struct side x, y;
	uint32_t rkey;
	struct ibv_sge sge;

	start();
	x = side(0xfffffe); /* numbers wrap soon */
	y = side(5);
	join(&x, &y);
	rkey = mw->rkey;
	sge = conf_sge(&x.b, 0, 100);
	for (int i = 0; i < ROUNDS; i++) {
		rkey = ibv_inc_rkey(rkey);
		wr[0] = bind_wr(1, rkey, LEN);
		wr[1] = conf_rdma(2, i % 2 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, &sge, 1,
				  y.b.p, y.b.mr->rkey);
		wr[2] = conf_inv(3, IBV_WR_LOCAL_INV, rkey);
		wr[3] = conf_rdma(4, i % 3 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, &sge, 1,
				  y.b.p, y.b.mr->rkey);
		for (int k = 0; k < 3; k++) {
			wr[k].send_flags = i % 5 == k ? IBV_SEND_SIGNALED : 0;
			wr[k].next = &wr[k + 1];
		}
		OK(conf_post(x.qp, wr));
		mw->rkey = rkey;
		if (i % 5 < 3)
			conf_wc_ok(x.cq, i % 5 + 1);
		conf_wc_ok(x.cq, 4);
	}
	side_free(&x);
	side_free(&y);
	stop();
}

/* UC: a bind that fails stops the send queue alone. */
static void of_an_unreliable_connection(void)
{
	struct side_opt o = { .type = IBV_QPT_UC };
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct side x, y;

	start();
	x = side_with(1, o);
	y = side_with(2, o);
	join(&x, &y);
	OK(post_bind(&x, 1, ibv_inc_rkey(mw->rkey), LEN));
	conf_wc_ok(x.cq, 1);
	conf_pattern(y.b.p, 1000, 4);
	sge = conf_sge(&y.b, 0, 1000);
	wr = conf_rdma(2, IBV_WR_RDMA_WRITE, &sge, 1, r.p, mw->rkey);
	OK(conf_post(y.qp, &wr));
	conf_wc_ok(y.cq, 2);
	OK(conf_recv(x.qp, 3, NULL, 0, 0));
	wr = conf_inv(4, IBV_WR_SEND_WITH_INV, mw->rkey);
	OK(conf_post(y.qp, &wr));
	conf_wc_ok(y.cq, 4);
	conf_wc_ok(x.cq, 3);
	CHECK(conf_pattern_ok(r.p, 1000, 4)); /* it was before the send */
	OK(post_bind(&x, 5, ibv_inc_rkey(mw->rkey), LEN + 1));
	conf_wc_is(x.cq, 5, IBV_WC_MW_BIND_ERR);
	EQ(conf_qp_state(x.qp), IBV_QPS_SQE);
	side_free(&x);
	side_free(&y);
	stop();
}

static const struct conf_case cases[] = {
	CASE(builders),
	CASE(builder_refuses),
	CASE(without_a_peer),
	CASE(behind_a_send_without_a_peer),
	CASE(held_in_sqd),
	CASE(between_requests),
	CASE(of_an_unreliable_connection),
};
CONF_MAIN(cases)
