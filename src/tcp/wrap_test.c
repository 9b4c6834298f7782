/* SPDX-License-Identifier: BSD-2-Clause */
/* Indices of work requests and numbers of requests go round. Posting 2^31 requests takes
 * minutes: a QP is made older instead, by what they would have left behind. */
#include "dev/dev.h"
#include "tcp/tcp.h"
#include "tests/t.h"

#include <sched.h>

enum { LEN = 1 << 20, DEPTH = 64, PATIENCE_S = 30, HALF = 1 << 19, MIXED = 2000 };

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static uint8_t *mem;

struct side {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};
static struct side a, b; /* a asks, b answers */

static bool device_open(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
	ibv_free_device_list(list);
	pd = ctx ? ibv_alloc_pd(ctx) : NULL;
	mem = calloc(1, LEN);
	mr = pd && mem ? ibv_reg_mr(pd, mem, LEN,
				    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
					    IBV_ACCESS_REMOTE_READ |
					    IBV_ACCESS_REMOTE_ATOMIC) :
			 NULL;
	return mr;
}

static void side_open(struct side *s)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .cap = { DEPTH, 2 * DEPTH, 1, 1, 0 } };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
						       IBV_ACCESS_REMOTE_READ |
						       IBV_ACCESS_REMOTE_ATOMIC };

	s->cq = ibv_create_cq(ctx, 4 * DEPTH, NULL, NULL, 0);
	init.send_cq = init.recv_cq = s->cq;
	s->qp = ibv_create_qp(pd, &init);
	REQUIRE(s->qp);
	CHECK(!ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						   IBV_QP_ACCESS_FLAGS));
}

static void side_join(struct side *s, const struct side *to)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR,
				    .path_mtu = IBV_MTU_1024,
				    .dest_qp_num = to->qp->qp_num,
				    .max_dest_rd_atomic = 4,
				    .min_rnr_timer = 12,
				    .ah_attr = { .is_global = 1,
						 .port_num = 1,
						 .grh.hop_limit = 1 } };

	CHECK(!ibv_query_gid(ctx, 1, 0, &attr.ah_attr.grh.dgid));
	CHECK(!ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
						   IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
						   IBV_QP_MAX_DEST_RD_ATOMIC |
						   IBV_QP_MIN_RNR_TIMER));
}

static void side_start(struct side *s)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS,
				    .timeout = 14,
				    .retry_cnt = 7,
				    .rnr_retry = 7,
				    .max_rd_atomic = 4 };

	CHECK(!ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
						   IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						   IBV_QP_MAX_QP_RD_ATOMIC));
}

static void side_close(struct side *s)
{
	CHECK(!ibv_destroy_qp(s->qp));
	CHECK(!ibv_destroy_cq(s->cq));
}

static void post(enum ibv_wr_opcode op, uint32_t len)
{
	bool atomic = op == IBV_WR_ATOMIC_FETCH_AND_ADD;
	struct ibv_sge sge = { (uintptr_t)mem, atomic ? 8 : len, mr->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge,
					.num_sge = 1,
					.opcode = op,
					.send_flags = IBV_SEND_SIGNALED };

	if (atomic) {
		wr.wr.atomic.remote_addr = (uintptr_t)mem + HALF;
		wr.wr.atomic.rkey = mr->rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)mem + HALF;
		wr.wr.rdma.rkey = mr->rkey;
	}
	CHECK(!ibv_post_send(a.qp, &wr, &bad));
}

static void post_recv(void)
{
	struct ibv_sge sge = { (uintptr_t)mem + HALF, 4096, mr->lkey };
	struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };

	CHECK(!ibv_post_recv(b.qp, &wr, &bad));
}

/* The next completion is a success. */
static bool done(struct side *s)
{
	struct ibv_wc wc;

	if (!CHECK(T_WAIT(ibv_poll_cq(s->cq, 1, &wc) == 1, PATIENCE_S * 1000)))
		return false;
	return CHECK_EQ(wc.status, IBV_WC_SUCCESS);
}

/* b has found no receive for what came. */
static bool was_refused(void)
{
	struct dev_qp *qp = to_qp(b.qp);
	bool told;

	lock_get(&qp->lock);
	told = qp->recv_awaited;
	lock_put(&qp->lock);
	return told;
}

static void send_one(void)
{
	post_recv();
	post(IBV_WR_SEND, 16);
	CHECK(done(&a) && done(&b));
}

static void pair_open(void)
{
	side_open(&a);
	side_open(&b);
	side_join(&a, &b);
	side_join(&b, &a);
	side_start(&a);
	side_start(&b);
	send_one();
}

static void pair_close(void)
{
	side_close(&a);
	side_close(&b);
}

/* a has sent n messages since, all answered and polled. */
static void age(uint32_t n)
{
	struct dev_qp *qp = to_qp(a.qp);
	struct stream *s = qp->tr_priv, *peer = to_qp(b.qp)->tr_priv;

	stream_lock(peer);
	peer->rx.expected = (peer->rx.expected + n) & 0xffffff;
	stream_unlock(peer);
	stream_lock(s);
	lock_get(&qp->lock);
	atomic_fetch_add(&qp->sq.free, n);
	qp->sq.done += n;
	qp->sq.next += n;
	qp->sq.tail += n;
	s->tx.acked += n;
	s->tx.acked_nr += n;
	lock_put(&qp->lock);
	stream_unlock(s);
}

/* ---- cases ------------------------------------------------------------------------ */

static void read_after_many_sends(void)
{
	pair_open();
	age(1u << 31);
	send_one();
	post(IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
	CHECK(done(&a));
	post(IBV_WR_RDMA_READ, 1000);
	CHECK(done(&a));
	pair_close();
}

/* What looks for a read that a refusal may have passed must not look at all indices. */
static void refused_after_many_sends(void)
{
	double used;

	pair_open();
	age(1u << 31);
	used = (double)clock();
	post(IBV_WR_SEND, 16);
	CHECK(T_WAIT(was_refused(), PATIENCE_S * 1000));
	post_recv();
	CHECK(done(&a) && done(&b));
	used = ((double)clock() - used) / CLOCKS_PER_SEC;
	diag("%.3f s of processor", used);
	/* No measurement: 2^31 steps are seconds, a few are nothing. */
	CHECK(used < t_scaled(1) / 2.0);
	pair_close();
}

static void drains_after_many_sends(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD };
	struct ibv_qp_init_attr init;

	pair_open();
	post(IBV_WR_SEND, 16); /* steps back once */
	CHECK(T_WAIT(was_refused(), PATIENCE_S * 1000));
	post_recv();
	CHECK(done(&a) && done(&b));
	age(1u << 31);
	send_one();
	CHECK(!ibv_modify_qp(a.qp, &attr, IBV_QP_STATE));
	CHECK(!ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init));
	CHECK_EQ(attr.sq_draining, 0);
	attr.qp_state = IBV_QPS_RTS;
	CHECK_EQ(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), 0);
	send_one();
	pair_close();
}

/* Across the place, deep queues of everything. */
static void mixed(uint32_t before)
{
	static const enum ibv_wr_opcode ops[] = {
		IBV_WR_SEND,	  IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE_WITH_IMM,
	};
	unsigned posted = 0, received = 0, ready = 0, polled = 0;
	struct ibv_wc wc;

	pair_open();
	age(before - to_qp(a.qp)->sq.tail);
	while (polled < MIXED) {
		for (; posted < MIXED && posted - polled < DEPTH; posted++)
			post(ops[posted % 5], posted % 7 ? 1 + posted % 600 : 4096);
		for (; ready - received < DEPTH && posted % 3; ready++)
			post_recv();
		while (ibv_poll_cq(b.cq, 1, &wc) == 1) {
			REQUIRE(wc.status == IBV_WC_SUCCESS);
			received++;
		}
		if (!ibv_poll_cq(a.cq, 1, &wc)) {
			sched_yield();
			continue;
		}
		if (wc.status)
			diag("%u: %s", polled, ibv_wc_status_str(wc.status));
		REQUIRE(wc.status == IBV_WC_SUCCESS);
		polled++;
	}
	CHECK_EQ(to_qp(a.qp)->sq.tail, before + MIXED);
	pair_close();
}

static void across_half(void)
{
	mixed((1u << 31) - MIXED / 2);
}

static void across_the_end(void)
{
	mixed(0u - MIXED / 2);
}

static void across_the_last_number(void)
{
	mixed((1u << 24) - MIXED / 2);
}

int main(int argc, char **argv)
{
	setenv("ANYRDMA_TRANSPORT", "tcp", 1);
	t_init(argc, argv);
	if (!device_open())
		skip_all("no device");
	T_RUN(read_after_many_sends);
	T_RUN(refused_after_many_sends);
	T_RUN(drains_after_many_sends);
	T_RUN(across_half);
	T_RUN(across_the_end);
	T_RUN(across_the_last_number);
	return t_done();
}
