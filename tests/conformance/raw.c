/* SPDX-License-Identifier: BSD-2-Clause */
/* RC QPs brought up without the connection manager: all they know of each other
 * is a GID, a QP number and two PSNs, as in perftest, NCCL, UCX. */
#include "side.h"

static void bring_up(void)
{
	struct side x, y;

	side_pair(&x, &y);
	CHECK(x.qp->qp_num != y.qp->qp_num);
	exchange(&x, &y, 1);
	exchange(&y, &x, 2);
	side_pair_free(&x, &y);
}

/* Starting PSNs at the end of their range wrap. */
static void sequence_numbers_wrap(void)
{
	struct side x, y;

	open_device();
	x = side(0xffffff);
	y = side(0xfffffe);
	join(&x, &y);
	for (int i = 0; i < 5; i++) {
		exchange(&x, &y, i);
		exchange(&y, &x, i + 7);
	}
	side_pair_free(&x, &y);
}

static void many_pairs(void)
{
	enum { N = 20 };
	struct side x[N], y[N];

	open_device();
	for (int i = 0; i < N; i++) {
		x[i] = side(i);
		y[i] = side(1000 + i);
	}
	for (int i = 0; i < N; i++)
		join(&x[i], &y[i]);
	for (int i = 0; i < N; i++)
		exchange(&x[i], &y[i], i);
	for (int i = 0; i < N; i++) {
		side_free(&x[i]);
		side_free(&y[i]);
	}
	close_device();
}

/* One side is ready long before the other: what it sends is retried. */
static void late_peer(void)
{
	struct side x, y;
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	open_device();
	x = side(1);
	y = side(2);
	EQ(to_init(&x), 0);
	EQ(to_rtr(&x, y.qp->qp_num, y.psn, &dev.gid), 0);
	EQ(to_rts(&x), 0);
	sge = conf_sge(&x.b, 0, 1000);
	conf_pattern(x.b.p, 1000, 5);
	wr = conf_wr(1, IBV_WR_SEND, &sge, 1);
	OK(conf_post(x.qp, &wr));
	usleep(100000); /* time is the point: tries that find nobody */
	EQ(to_init(&y), 0);
	OK(conf_recv(y.qp, 2, &y.b, 0, 1000));
	EQ(to_rtr(&y, x.qp->qp_num, x.psn, &dev.gid), 0);
	conf_wc_ok(y.cq, 2); /* receiving needs no RTS */
	conf_wc_ok(x.cq, 1);
	CHECK(conf_pattern_ok(y.b.p, 1000, 5));
	EQ(to_rts(&y), 0);
	exchange(&y, &x, 3);
	side_pair_free(&x, &y);
}

static void no_such_qp(void)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS, .timeout = 10, .retry_cnt = 1, .rnr_retry = 1,
		.max_rd_atomic = 1,
	};
	struct side x;

	side_alone(&x);
	EQ(to_init(&x), 0);
	EQ(to_rtr(&x, x.qp->qp_num ^ 0x15, 2, &dev.gid), 0);
	EQ(conf_qp_modify(x.qp, attr), 0);
	OK(conf_send(x.qp, 1, &x.b, 0, 10));
	OK(conf_send(x.qp, 2, &x.b, 0, 10));
	conf_wc_is(x.cq, 1, IBV_WC_RETRY_EXC_ERR);
	conf_wc_is(x.cq, 2, IBV_WC_WR_FLUSH_ERR);
	EQ(conf_qp_state(x.qp), IBV_QPS_ERR);
	side_alone_free(&x);
}

/* A QP that was reset can be connected again, to somebody else as well. */
static void again_after_reset(void)
{
	struct side x, y;

	open_device();
	x = side(1);
	y = side(2);
	for (int i = 0; i < 5; i++) {
		join(&x, &y);
		exchange(&x, &y, i);
		exchange(&y, &x, i + 3);
		OK(to_state(&x, IBV_QPS_RESET));
		OK(to_state(&y, IBV_QPS_RESET));
		x.psn += 100;
	}
	side_pair_free(&x, &y);
}

/* ... also if one of them had tried to reach the other, which was not there yet. */
static void again_after_a_try(void)
{
	struct side x, y, *early;

	open_device();
	x = side(1);
	y = side(2);
	early = x.qp->qp_num < y.qp->qp_num ? &x : &y;
	for (int i = 0; i < 100; i++) {
		EQ(to_init(&x), 0);
		EQ(to_init(&y), 0);
		EQ(to_rtr(early, (early == &x ? &y : &x)->qp->qp_num, 77, &dev.gid), 0);
		usleep(i * 20); /* somewhere on its way */
		OK(to_state(&x, IBV_QPS_RESET));
		OK(to_state(&y, IBV_QPS_RESET));
		join(&x, &y);
		exchange(&x, &y, i);
		OK(to_state(&x, IBV_QPS_RESET));
		OK(to_state(&y, IBV_QPS_RESET));
	}
	side_pair_free(&x, &y);
}

/* ... and the other is there first the next time: it does not take the old try for the
 * new one. */
static void again_after_a_try_the_other_first(void)
{
	struct side x, y, *early, *late;

	open_device();
	x = side(1);
	y = side(2);
	early = x.qp->qp_num < y.qp->qp_num ? &x : &y;
	late = early == &x ? &y : &x;
	for (int i = 0; i < 50; i++) {
		EQ(to_init(early), 0);
		EQ(to_init(late), 0);
		EQ(to_rtr(early, late->qp->qp_num, 77, &dev.gid), 0);
		usleep(i * 20); /* somewhere on its way */
		OK(to_state(early, IBV_QPS_RESET));
		EQ(to_init(early), 0);
		EQ(to_rtr(late, early->qp->qp_num, early->psn, &dev.gid), 0);
		EQ(to_rts(late), 0);
		usleep(i * 20); /* the same */
		EQ(to_rtr(early, late->qp->qp_num, late->psn, &dev.gid), 0);
		EQ(to_rts(early), 0);
		exchange(&x, &y, i);
		exchange(&y, &x, i);
		OK(to_state(&x, IBV_QPS_RESET));
		OK(to_state(&y, IBV_QPS_RESET));
	}
	side_pair_free(&x, &y);
}

/* Both ends in one QP: legal, and used by self tests. */
static void loop_to_itself(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct side x;

	open_device();
	x = side(7);
	EQ(to_init(&x), 0);
	EQ(to_rtr(&x, x.qp->qp_num, x.psn, &dev.gid), 0);
	EQ(to_rts(&x), 0);
	conf_pattern(x.b.p, 5000, 4);
	sge = conf_sge(&x.b, 0, 5000);
	wr = conf_rdma(1, IBV_WR_RDMA_WRITE, &sge, 1, x.b.p + 8192, x.b.mr->rkey);
	OK(conf_post(x.qp, &wr));
	conf_wc_ok(x.cq, 1);
	CHECK(conf_pattern_ok(x.b.p + 8192, 5000, 4));
	side_free(&x);
	close_device();
}

/* Whoever has received something small and owes nothing but its acknowledgement posts work
 * of another kind: it is not left behind. */
static void work_after_a_small_receive(void)
{
	static const int ops[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND,
				   IBV_WR_SEND_WITH_IMM, IBV_WR_ATOMIC_FETCH_AND_ADD };
	struct ibv_sge sx, sy;
	struct ibv_send_wr wr;
	struct side x, y;

	side_pair(&x, &y);
	sx = conf_sge(&x.b, 0, 64);
	sy = conf_sge(&y.b, 0, 8);
	for (unsigned i = 0; i < 20; i++) {
		int op = ops[i % 5];

		OK(conf_recv(y.qp, 1, &y.b, 4096, 64));
		wr = conf_wr(2, IBV_WR_SEND, &sx, 1);
		OK(conf_post(x.qp, &wr));
		conf_wc_ok(y.cq, 1);
		conf_wc_ok(x.cq, 2);
		conf_settle();
		if (op == IBV_WR_SEND || op == IBV_WR_SEND_WITH_IMM) {
			OK(conf_recv(x.qp, 3, &x.b, 4096, 64));
			wr = conf_wr(4, op, &sy, 1);
		} else {
			wr = conf_rdma(4, op, &sy, 1, x.b.p + 8192, x.b.mr->rkey);
		}
		OK(conf_post(y.qp, &wr));
		conf_wc_ok(y.cq, 4);
		if (op == IBV_WR_SEND || op == IBV_WR_SEND_WITH_IMM)
			conf_wc_ok(x.cq, 3);
	}
	side_pair_free(&x, &y);
}

static void wrong_transitions(void)
{
	struct side x;

	side_alone(&x);
	EQ(to_rtr(&x, 5, 5, &dev.gid), EINVAL); /* from RESET */
	EQ(to_rts(&x), EINVAL);
	EQ(to_init(&x), 0);
	EQ(to_rts(&x), EINVAL);
	EQ(to_init(&x), 0); /* INIT to INIT is legal */
	EQ(to_state(&x, IBV_QPS_RTR), EINVAL); /* attributes are missing */
	EQ(conf_qp_state(x.qp), IBV_QPS_INIT);
	side_alone_free(&x);
}

static void bad_attributes(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 2 };
	struct side x;

	side_alone(&x);
	EQ(conf_qp_modify(x.qp, attr), EINVAL); /* no port 2 */
	EQ(to_init(&x), 0);
	dev.gid_index = dev.port.gid_tbl_len + 5;
	CHECK(to_rtr(&x, 5, 5, &dev.gid) != 0); /* no such GID */
	EQ(conf_qp_state(x.qp), IBV_QPS_INIT);
	side_alone_free(&x);
}

static void bad_partition_index(void)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .pkey_index = 9999,
	};
	struct side x;

	side_alone(&x);
	EQ(conf_qp_modify(x.qp, attr), EINVAL);
	side_alone_free(&x);
}

static void query_tells_what_was_set(void)
{
	struct ibv_qp_attr attr;
	struct side x, y;

	open_device();
	x = side(0x123456);
	y = side(0x654321);
	join(&x, &y);
	conf_qp_query(x.qp, &attr);
	EQ(attr.qp_state, IBV_QPS_RTS);
	EQ(attr.dest_qp_num, y.qp->qp_num);
	EQ(attr.rq_psn, 0x654321);
	EQ(attr.timeout, 14);
	EQ(attr.retry_cnt, 7);
	EQ(attr.rnr_retry, 7);
	EQ(attr.min_rnr_timer, 12);
	EQ(attr.path_mtu, dev.port.active_mtu);
	EQ(attr.max_rd_atomic, 4);
	EQ(attr.max_dest_rd_atomic, 4);
	EQ(attr.port_num, 1);
	CHECK(!memcmp(&attr.ah_attr.grh.dgid, &dev.gid, 16));
	side_pair_free(&x, &y);
}

static const struct conf_case cases[] = {
	CASE(bring_up),
	CASE(sequence_numbers_wrap),
	CASE(many_pairs),
	CASE(late_peer),
	CASE(no_such_qp),
	CASE(again_after_a_try),
	CASE(again_after_a_try_the_other_first),
	CASE(again_after_reset),
	CASE(loop_to_itself),
	CASE(work_after_a_small_receive),
	CASE(wrong_transitions),
	CASE(bad_attributes),
	CASE(bad_partition_index),
	CASE(query_tells_what_was_set),
};

CONF_MAIN(cases)
