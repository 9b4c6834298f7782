/* SPDX-License-Identifier: BSD-2-Clause */
/* What states mean for work: draining, errors of the send queue, posting; and what
 * ibv_query_qp says in each. */
#include "tests/t.h"

#include "dev/fake_transport.h"

enum { SIG = IBV_SEND_SIGNALED };

static int sqd(struct rig *r, bool notify)
{
	struct ibv_qp_attr a = rig_attr(IBV_QPS_SQD);

	a.en_sqd_async_notify = notify;
	return ibv_modify_qp(r->qp, &a, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY);
}

static struct ibv_qp_attr query(struct rig *r)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	memset(&a, 0xee, sizeof(a));
	CHECK_EQ(ibv_query_qp(r->qp, &a, IBV_QP_STATE, &init), 0);
	return a;
}

static bool completed(struct ibv_cq *cq, uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc = { .wr_id = ~id };

	return ibv_poll_cq(cq, 1, &wc) == 1 && wc.wr_id == id && wc.status == status;
}

static bool nothing(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	return ibv_poll_cq(cq, 1, &wc) == 0;
}

/* The transport has begun the WQE at sq.next. */
static void begin(struct rig *r)
{
	struct dev_qp *qp = to_qp(r->qp);

	lock_get(&qp->lock);
	sq_at(&qp->sq, qp->sq.next)->begun = 1;
	lock_put(&qp->lock);
}

/* While draining, only the ways out are open; drained, the queue takes new
 * attributes and goes on. */
static void draining_of(enum ibv_qp_type type)
{
	struct rig r;
	struct ibv_qp_attr a;

	REQUIRE(rig_up(&r, (struct rig_opt){ .type = type }));
	rig_rts(&r);
	CHECK_EQ(rig_send(&r, 1, SIG), 0);
	CHECK_EQ(rig_send(&r, 2, SIG), 0);
	begin(&r);
	CHECK_EQ(sqd(&r, true), 0);
	a = query(&r);
	CHECK_EQ(a.qp_state, IBV_QPS_SQD);
	CHECK_EQ(a.sq_draining, 1);
	CHECK_EQ(a.en_sqd_async_notify, 1);
	CHECK_EQ(rig_event(&r), -1);
	CHECK_EQ(rig_to(&r, IBV_QPS_RTS, IBV_QP_STATE), EINVAL);
	CHECK_EQ(rig_to(&r, IBV_QPS_SQD, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS), EINVAL);
	CHECK_EQ(rig_send(&r, 3, SIG), 0); /* is taken, waits */
	rig_finish(&r, 1);
	CHECK(completed(r.scq, 1, IBV_WC_SUCCESS));
	CHECK(nothing(r.scq));
	CHECK_EQ(rig_event(&r), IBV_EVENT_SQ_DRAINED);
	CHECK_EQ(rig_event(&r), -1);
	CHECK_EQ(query(&r).sq_draining, 0);
	CHECK(!qp_may_send_locked(to_qp(r.qp)));
	CHECK_EQ(rig_to(&r, IBV_QPS_SQD, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS), 0);
	CHECK_EQ(rig_event(&r), -1);
	fake.kick = 0;
	CHECK_EQ(rig_to(&r, IBV_QPS_RTS, IBV_QP_STATE), 0);
	CHECK_EQ(fake.kick, 1);
	CHECK(qp_may_send_locked(to_qp(r.qp)));
	rig_finish(&r, 2);
	CHECK(completed(r.scq, 2, IBV_WC_SUCCESS));
	CHECK(completed(r.scq, 3, IBV_WC_SUCCESS));
	rig_down(&r);
}

static void draining_rc(void)
{
	draining_of(IBV_QPT_RC);
}

static void draining_uc(void)
{
	draining_of(IBV_QPT_UC);
}

static void draining_can_be_given_up(void)
{
	static const enum ibv_qp_state out[] = { IBV_QPS_ERR, IBV_QPS_RESET };
	struct rig r;

	for (int i = 0; i < 2; i++) {
		REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
		rig_rts(&r);
		CHECK_EQ(rig_send(&r, 1, SIG), 0);
		begin(&r);
		CHECK_EQ(sqd(&r, true), 0);
		CHECK_EQ(rig_to(&r, out[i], IBV_QP_STATE), 0);
		CHECK_EQ(rig_event(&r), -1); /* it has not drained */
		if (out[i] == IBV_QPS_ERR)
			CHECK(completed(r.scq, 1, IBV_WC_WR_FLUSH_ERR));
		CHECK(nothing(r.scq));
		rig_down(&r);
	}
}

/* The notification belongs to one transition, not to the QP. */
static void notification_is_asked_for_each_time(void)
{
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	rig_rts(&r);
	CHECK_EQ(sqd(&r, true), 0);
	CHECK_EQ(rig_event(&r), IBV_EVENT_SQ_DRAINED); /* it was idle */
	CHECK_EQ(rig_to(&r, IBV_QPS_RTS, IBV_QP_STATE), 0);
	CHECK_EQ(rig_to(&r, IBV_QPS_SQD, IBV_QP_STATE), 0);
	CHECK_EQ(rig_event(&r), -1);
	CHECK_EQ(query(&r).en_sqd_async_notify, 0);
	CHECK_EQ(rig_to(&r, IBV_QPS_RTS, IBV_QP_STATE), 0);
	CHECK_EQ(sqd(&r, false), 0);
	CHECK_EQ(rig_event(&r), -1);
	rig_down(&r);
}

/* Paths: the same may be set again with other details, another may not. */
static void address_in_sqd(void)
{
	struct ibv_qp_attr a;
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ .type = IBV_QPT_UC }));
	rig_rts(&r);
	CHECK_EQ(sqd(&r, false), 0);
	a = rig_attr(IBV_QPS_SQD);
	a.ah_attr.grh.traffic_class = 32;
	a.ah_attr.grh.hop_limit = 9;
	a.ah_attr.sl = 3;
	CHECK_EQ(ibv_modify_qp(r.qp, &a, IBV_QP_AV), 0);
	CHECK_EQ(query(&r).ah_attr.grh.traffic_class, 32);
	CHECK_EQ(query(&r).ah_attr.grh.hop_limit, 9);
	CHECK_EQ(query(&r).ah_attr.sl, 3);
	a.ah_attr.grh.dgid.raw[15] ^= 1;
	CHECK_EQ(ibv_modify_qp(r.qp, &a, IBV_QP_AV), EOPNOTSUPP);
	a = rig_attr(IBV_QPS_SQD);
	a.ah_attr.is_global = 0;
	CHECK_EQ(ibv_modify_qp(r.qp, &a, IBV_QP_AV), EINVAL);
	CHECK_EQ(query(&r).ah_attr.sl, 3);
	rig_down(&r);
}

/* InfiniBand 10.3.1.6: the send queue stops, the receive queue does not notice. */
static void send_queue_error(void)
{
	struct ibv_wc ok = { .status = IBV_WC_SUCCESS, .opcode = IBV_WC_RECV };
	struct dev_qp *qp;
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ .type = IBV_QPT_UC }));
	qp = to_qp(r.qp);
	rig_rts(&r);
	CHECK_EQ(rig_recv(&r, 10), 0);
	CHECK_EQ(rig_recv(&r, 11), 0);
	for (int i = 1; i <= 3; i++)
		CHECK_EQ(rig_send(&r, i, i == 3 ? 0 : SIG), 0);
	qp_fail_send(qp, qp->sq.done + 1, IBV_WC_LOC_PROT_ERR, "test");
	CHECK_EQ(query(&r).qp_state, IBV_QPS_SQE);
	CHECK_EQ(fake.stop, 0);
	CHECK(completed(r.scq, 1, IBV_WC_SUCCESS));
	CHECK(completed(r.scq, 2, IBV_WC_LOC_PROT_ERR));
	CHECK(completed(r.scq, 3, IBV_WC_WR_FLUSH_ERR)); /* though it was not signalled */
	CHECK(nothing(r.scq) && nothing(r.rcq));
	fake.kick = 0;
	CHECK_EQ(rig_send(&r, 4, SIG), 0);
	CHECK(completed(r.scq, 4, IBV_WC_WR_FLUSH_ERR));
	CHECK_EQ(fake.kick, 0);
	CHECK_EQ(recv_take(qp, 0), 0);
	recv_done(qp, &ok, false);
	CHECK(completed(r.rcq, 10, IBV_WC_SUCCESS));
	CHECK_EQ(rig_event(&r), -1);
	qp_fail_send(qp, qp->sq.done, IBV_WC_LOC_PROT_ERR, "a second error means nothing");
	CHECK_EQ(query(&r).qp_state, IBV_QPS_SQE);
	CHECK_EQ(rig_event(&r), -1);

	CHECK_EQ(rig_to(&r, IBV_QPS_RTS, IBV_QP_STATE), 0);
	CHECK_EQ(rig_send(&r, 5, SIG), 0);
	CHECK(fake.kick >= 1);
	rig_finish(&r, 1);
	CHECK(completed(r.scq, 5, IBV_WC_SUCCESS));
	CHECK_EQ(recv_take(qp, 0), 0);
	recv_done(qp, &ok, false);
	CHECK(completed(r.rcq, 11, IBV_WC_SUCCESS));
	rig_down(&r);
}

/* Errors of the receive queue, and a CQ that overruns, end both queues. */
static void worse_errors(void)
{
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ .type = IBV_QPT_UC }));
	rig_rts(&r);
	CHECK_EQ(rig_recv(&r, 10), 0);
	CHECK_EQ(recv_take(to_qp(r.qp), 0), 0);
	CHECK_EQ(rig_send(&r, 1, SIG), 0);
	qp_fail_recv(to_qp(r.qp), IBV_WC_LOC_PROT_ERR, -1, "test");
	CHECK_EQ(query(&r).qp_state, IBV_QPS_ERR);
	CHECK(completed(r.rcq, 10, IBV_WC_LOC_PROT_ERR));
	CHECK(completed(r.scq, 1, IBV_WC_WR_FLUSH_ERR));
	rig_down(&r);

	REQUIRE(rig_up(&r, (struct rig_opt){ .type = IBV_QPT_UC, .cqe = 1, .max_wr = 4 }));
	rig_rts(&r);
	for (int i = 1; i <= 2; i++)
		CHECK_EQ(rig_send(&r, i, SIG), 0);
	qp_fail_send(to_qp(r.qp), to_qp(r.qp)->sq.done + 1, IBV_WC_LOC_PROT_ERR, "test");
	CHECK_EQ(query(&r).qp_state, IBV_QPS_ERR);
	CHECK_EQ(rig_event(&r), IBV_EVENT_CQ_ERR);
	CHECK_EQ(rig_event(&r), IBV_EVENT_QP_FATAL);
	rig_down(&r);
}

/* Row: state; what a post says. */
static void posting_by_state_of(enum ibv_qp_type type)
{
	bool uc = type == IBV_QPT_UC;
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ .type = type }));
	CHECK_EQ(rig_send(&r, 1, SIG), EINVAL); /* RESET */
	CHECK_EQ(rig_recv(&r, 1), EINVAL);
	CHECK_EQ(rig_to(&r, IBV_QPS_INIT, INIT_MASK), 0);
	CHECK_EQ(rig_send(&r, 2, SIG), EINVAL);
	CHECK_EQ(rig_recv(&r, 12), 0);
	CHECK_EQ(rig_to(&r, IBV_QPS_RTR, uc ? UC_RTR_MASK : RTR_MASK), 0);
	CHECK_EQ(rig_send(&r, 3, SIG), EINVAL);
	CHECK_EQ(rig_recv(&r, 13), 0);
	CHECK_EQ(rig_to(&r, IBV_QPS_RTS, uc ? UC_RTS_MASK : RTS_MASK), 0);
	fake.kick = 0;
	CHECK_EQ(rig_send(&r, 4, SIG), 0);
	CHECK_EQ(fake.kick, 1);
	rig_finish(&r, 1);
	CHECK(completed(r.scq, 4, IBV_WC_SUCCESS));
	CHECK_EQ(sqd(&r, false), 0);
	CHECK_EQ(rig_send(&r, 5, SIG), 0);
	CHECK_EQ(rig_recv(&r, 14), 0);
	CHECK_EQ(fake.kick, 1);
	CHECK(nothing(r.scq) && nothing(r.rcq));
	CHECK_EQ(rig_to(&r, IBV_QPS_ERR, IBV_QP_STATE), 0);
	CHECK(completed(r.scq, 5, IBV_WC_WR_FLUSH_ERR));
	for (int i = 12; i <= 14; i++)
		CHECK(completed(r.rcq, i, IBV_WC_WR_FLUSH_ERR));
	CHECK_EQ(rig_send(&r, 6, 0), 0);
	CHECK_EQ(rig_recv(&r, 16), 0);
	CHECK(completed(r.scq, 6, IBV_WC_WR_FLUSH_ERR));
	CHECK(completed(r.rcq, 16, IBV_WC_WR_FLUSH_ERR));
	rig_down(&r);
}

static void posting_by_state_rc(void)
{
	posting_by_state_of(IBV_QPT_RC);
}

static void posting_by_state_uc(void)
{
	posting_by_state_of(IBV_QPT_UC);
}

static int post_op(struct rig *r, enum ibv_wr_opcode op)
{
	static uint64_t word;
	struct ibv_sge sge = { (uintptr_t)&word, 8, 1 };
	struct ibv_send_wr wr = { .opcode = op, .sg_list = &sge, .num_sge = 1 }, *bad = NULL;
	int ret = ibv_post_send(r->qp, &wr, &bad);

	CHECK(ret ? bad == &wr : !bad);
	return ret;
}

/* The table of ibv_post_send(3). */
static void opcodes_of_uc(void)
{
	static const enum ibv_wr_opcode has[] = { IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
						  IBV_WR_SEND_WITH_INV, IBV_WR_RDMA_WRITE,
						  IBV_WR_RDMA_WRITE_WITH_IMM };
	static const enum ibv_wr_opcode not[] = { IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
						  IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_TSO,
						  IBV_WR_DRIVER1, (enum ibv_wr_opcode)99 };
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ .type = IBV_QPT_UC, .max_wr = 8 }));
	rig_rts(&r);
	for (unsigned i = 0; i < sizeof(has) / sizeof(has[0]); i++)
		CHECK_EQ(post_op(&r, has[i]), 0);
	for (unsigned i = 0; i < sizeof(not) / sizeof(not[0]); i++)
		CHECK_EQ(post_op(&r, not[i]), EINVAL);
	CHECK_EQ(query(&r).qp_state, IBV_QPS_RTS);
	rig_down(&r);
}

static void attributes_by_state(void)
{
	struct ibv_qp_attr set = rig_attr(IBV_QPS_INIT), a;
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	a = query(&r);
	CHECK_EQ(a.qp_state, IBV_QPS_RESET);
	CHECK_EQ(a.cur_qp_state, IBV_QPS_RESET);
	CHECK_EQ(a.port_num, 0);
	CHECK_EQ(a.dest_qp_num, 0);
	CHECK_EQ(a.path_mig_state, IBV_MIG_MIGRATED);
	set.qp_access_flags = IBV_ACCESS_REMOTE_READ;
	CHECK_EQ(ibv_modify_qp(r.qp, &set, INIT_MASK), 0);
	a = query(&r);
	CHECK_EQ(a.qp_state, IBV_QPS_INIT);
	CHECK_EQ(a.qp_access_flags, IBV_ACCESS_REMOTE_READ);
	CHECK_EQ(a.port_num, 1);
	CHECK_EQ(a.path_mtu, 0); /* in the struct, not in the mask */
	set.qp_state = IBV_QPS_RTR;
	set.rq_psn = 0xff123456;
	set.ah_attr.grh.flow_label = 0xfff12345;
	CHECK_EQ(ibv_modify_qp(r.qp, &set, RTR_MASK), 0);
	a = query(&r);
	CHECK_EQ(a.rq_psn, 0x123456);
	CHECK_EQ(a.ah_attr.grh.flow_label, 0x12345);
	CHECK_EQ(a.path_mtu, IBV_MTU_256);
	CHECK_EQ(a.min_rnr_timer, 12);
	CHECK_EQ(a.max_dest_rd_atomic, 4);
	CHECK_EQ(a.max_rd_atomic, 0);
	set.qp_state = IBV_QPS_RTS;
	set.sq_psn = 0x1000007;
	CHECK_EQ(ibv_modify_qp(r.qp, &set, RTS_MASK), 0);
	a = query(&r);
	CHECK_EQ(a.sq_psn, 7);
	CHECK_EQ(a.max_rd_atomic, 4);
	CHECK_EQ(a.retry_cnt, 7);
	CHECK_EQ(a.sq_draining, 0);
	set.min_rnr_timer = 1;
	set.timeout = 3;
	CHECK_EQ(ibv_modify_qp(r.qp, &set, IBV_QP_MIN_RNR_TIMER), 0); /* no state given */
	a = query(&r);
	CHECK_EQ(a.qp_state, IBV_QPS_RTS);
	CHECK_EQ(a.min_rnr_timer, 1);
	CHECK_EQ(a.timeout, 14);
	CHECK_EQ(rig_to(&r, IBV_QPS_ERR, IBV_QP_STATE), 0);
	a = query(&r);
	CHECK_EQ(a.qp_state, IBV_QPS_ERR);
	CHECK_EQ(a.cur_qp_state, IBV_QPS_ERR);
	CHECK_EQ(a.dest_qp_num, 0x1234); /* still known */
	rig_down(&r);
}

static void what_the_qp_was_made_of(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ .type = IBV_QPT_UC, .sig_all = 1, .srq = true }));
	memset(&init, 0xee, sizeof(init));
	CHECK_EQ(ibv_query_qp(r.qp, &a, 0, &init), 0);
	CHECK(init.send_cq == r.scq && init.recv_cq == r.rcq && init.srq == r.srq);
	CHECK_EQ(init.qp_type, IBV_QPT_UC);
	CHECK_EQ(init.sq_sig_all, 1);
	CHECK(!init.qp_context);
	CHECK_EQ(init.cap.max_send_wr, 4);
	CHECK_EQ(init.cap.max_send_sge, 2);
	CHECK(init.cap.max_inline_data >= 64);
	CHECK_EQ(init.cap.max_recv_wr, 0);
	CHECK_EQ(init.cap.max_recv_sge, 0);
	CHECK(!memcmp(&init.cap, &a.cap, sizeof(a.cap)));
	rig_down(&r);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(draining_rc);
	T_RUN(draining_uc);
	T_RUN(draining_can_be_given_up);
	T_RUN(notification_is_asked_for_each_time);
	T_RUN(address_in_sqd);
	T_RUN(send_queue_error);
	T_RUN(worse_errors);
	T_RUN(posting_by_state_rc);
	T_RUN(posting_by_state_uc);
	T_RUN(opcodes_of_uc);
	T_RUN(attributes_by_state);
	T_RUN(what_the_qp_was_made_of);
	return t_done();
}
