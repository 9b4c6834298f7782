/* SPDX-License-Identifier: BSD-2-Clause */
/* Posting, completing, flushing: the work queues from both of their ends. */
#include "tests/t.h"

#include "dev/fake_transport.h"

#include <sys/wait.h>

static int64_t poll_id(struct ibv_cq *cq, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	if (ibv_poll_cq(cq, 1, &wc) != 1)
		return -1;
	CHECK_EQ(wc.status, status);
	return (int64_t)wc.wr_id;
}

static void refused_states(void)
{
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	CHECK_EQ(rig_send(&r, 1, 0), EINVAL);
	CHECK_EQ(rig_recv(&r, 1), EINVAL);
	rig_to(&r, IBV_QPS_INIT, INIT_MASK);
	CHECK_EQ(rig_send(&r, 1, 0), EINVAL);
	CHECK_EQ(rig_recv(&r, 1), 0);
	rig_to(&r, IBV_QPS_RTR, RTR_MASK);
	CHECK_EQ(rig_send(&r, 1, 0), EINVAL);
	rig_to(&r, IBV_QPS_RTS, RTS_MASK);
	CHECK_EQ(rig_send(&r, 1, 0), 0);
	rig_down(&r);
}

static void send_checks(void)
{
	static char buf[256];
	struct ibv_sge sge[3] = { { (uintptr_t)buf, 8, 1 },
				  { (uintptr_t)buf, 8, 1 },
				  { (uintptr_t)buf, 8, 1 } };
	struct ibv_send_wr wr, *bad;
	struct rig r;

#define POST(want, ...) \
	do { \
		wr = (struct ibv_send_wr){ .opcode = IBV_WR_SEND, \
					   .sg_list = sge, \
					   .num_sge = 1 }; \
		(void)0, ##__VA_ARGS__; \
		bad = NULL; \
		CHECK_EQ(ibv_post_send(r.qp, &wr, &bad), want); \
		CHECK(bad == (want ? &wr : NULL)); \
	} while (0)
	REQUIRE(rig_up(&r, (struct rig_opt){ .max_wr = 16 }));
	rig_rts(&r);
	POST(EINVAL, wr.opcode = IBV_WR_TSO);
	POST(EINVAL, wr.opcode = IBV_WR_BIND_MW); /* no window */
	POST(EINVAL, wr.opcode = (enum ibv_wr_opcode)99);
	POST(EINVAL, wr.num_sge = 3);
	POST(EINVAL, wr.num_sge = -1);
	POST(EINVAL, wr.num_sge = 1, wr.sg_list = NULL);
	POST(EINVAL, wr.opcode = IBV_WR_RDMA_READ, wr.send_flags = IBV_SEND_INLINE);
	sge[0].length = 65;
	POST(EINVAL, wr.send_flags = IBV_SEND_INLINE);
	sge[0].length = 1u << 31;
	sge[1].length = 1;
	POST(EINVAL, wr.num_sge = 2);
	POST(0);
	sge[0].length = 8;
	POST(0, wr.opcode = IBV_WR_RDMA_READ);
	POST(0, wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD);
	POST(0, wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP, wr.num_sge = 2); /* fails later */
	POST(0, wr.opcode = IBV_WR_SEND_WITH_INV);
	POST(0, wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, wr.send_flags = IBV_SEND_INLINE);
	POST(0, wr.num_sge = 0);
	/* 1 for RTS and one for each call that posted something. */
	CHECK_EQ(fake.kick, 8);
	rig_down(&r);
#undef POST
}

static void reads_need_a_depth(void)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_READ }, *bad;
	struct ibv_qp_attr a;
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	rig_to(&r, IBV_QPS_INIT, INIT_MASK);
	rig_to(&r, IBV_QPS_RTR, RTR_MASK);
	a = rig_attr(IBV_QPS_RTS);
	a.max_rd_atomic = 0;
	CHECK_EQ(ibv_modify_qp(r.qp, &a, RTS_MASK), 0);
	CHECK_EQ(ibv_post_send(r.qp, &wr, &bad), EINVAL);
	rig_down(&r);
}

static void what_a_wqe_holds(void)
{
	char text[40] = "the bytes are copied when it is posted";
	struct ibv_sge sge[2] = { { (uintptr_t)text, 10, 1 },
				  { (uintptr_t)text + 10, 20, 1 } };
	struct ibv_send_wr wr = { .wr_id = 5,
				  .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
				  .send_flags = IBV_SEND_INLINE | IBV_SEND_FENCE,
				  .sg_list = sge,
				  .num_sge = 2,
				  .imm_data = 0x11223344,
				  .wr.rdma = { .remote_addr = 0xabc, .rkey = 77 } };
	struct ibv_send_wr at = {
		.opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
		.sg_list = sge,
		.num_sge = 1,
		.wr.atomic = { .remote_addr = 8, .compare_add = 1, .swap = 2, .rkey = 3 }
	};
	struct ibv_send_wr *bad;
	struct wqe *w;
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ .sig_all = 1 }));
	rig_rts(&r);
	CHECK_EQ(ibv_post_send(r.qp, &wr, &bad), 0);
	memset(text, 'x', sizeof(text));
	w = sq_at(&to_qp(r.qp)->sq, 0);
	CHECK(w->is_inline && !w->num_sge && w->length == 30);
	CHECK(!memcmp(wqe_inline(w), "the bytes are copied when it i", 30));
	CHECK_EQ(w->send_flags, IBV_SEND_INLINE | IBV_SEND_FENCE | IBV_SEND_SIGNALED);
	CHECK(w->raddr == 0xabc && w->rkey == 77 && w->imm_or_rkey == 0x11223344);
	sge[0].length = 8;
	CHECK_EQ(ibv_post_send(r.qp, &at, &bad), 0);
	w = sq_at(&to_qp(r.qp)->sq, 1);
	CHECK(!w->is_inline && w->num_sge == 1 && w->sge[0].length == 8);
	CHECK(w->raddr == 8 && w->compare_add == 1 && w->swap == 2 && w->rkey == 3);
	rig_down(&r);
}

static void chain_up_to_the_bad_one(void)
{
	struct ibv_send_wr wr[3] = {
		{ .wr_id = 1, .opcode = IBV_WR_SEND, .next = &wr[1] },
		{ .wr_id = 2, .opcode = IBV_WR_TSO, .next = &wr[2] },
		{ .wr_id = 3, .opcode = IBV_WR_SEND }
	};
	struct ibv_recv_wr rw[2] = { { .wr_id = 1, .next = &rw[1] }, { .num_sge = 9 } };
	struct ibv_send_wr *bad = NULL;
	struct ibv_recv_wr *rbad = NULL;
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	rig_rts(&r);
	CHECK_EQ(ibv_post_send(r.qp, wr, &bad), EINVAL);
	CHECK(bad == &wr[1]);
	CHECK_EQ(to_qp(r.qp)->sq.tail, 1);
	CHECK_EQ(fake.kick, 2);
	wr[1].opcode = IBV_WR_SEND;
	CHECK_EQ(ibv_post_send(r.qp, wr, &bad), 0);
	CHECK_EQ(fake.kick, 3); /* one for the chain */
	CHECK_EQ(ibv_post_send(r.qp, wr, &bad), ENOMEM);
	CHECK(bad == &wr[0]);
	CHECK_EQ(ibv_post_recv(r.qp, rw, &rbad), EINVAL);
	CHECK(rbad == &rw[1]);
	CHECK_EQ(to_qp(r.qp)->rq.tail, 1);
	rig_down(&r);
}

static void slots_come_back_when_a_signalled_completion_is_polled(void)
{
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	rig_rts(&r);
	for (uint64_t i = 0; i < 3; i++)
		CHECK_EQ(rig_send(&r, i, 0), 0);
	CHECK_EQ(rig_send(&r, 3, IBV_SEND_SIGNALED), 0);
	CHECK_EQ(rig_send(&r, 4, 0), ENOMEM);
	rig_finish(&r, 3);
	CHECK_EQ(rig_send(&r, 4, 0), ENOMEM); /* done, but nothing was polled */
	CHECK_EQ(poll_id(r.scq, 0), -1);
	rig_finish(&r, 1);
	CHECK_EQ(rig_send(&r, 4, 0), ENOMEM); /* completed, not polled */
	CHECK_EQ(poll_id(r.scq, IBV_WC_SUCCESS), 3);
	for (uint64_t i = 4; i < 8; i++)
		CHECK_EQ(rig_send(&r, i, 0), 0);
	CHECK_EQ(rig_send(&r, 8, 0), ENOMEM);
	rig_down(&r);
}

static void retire_stops_at_the_first_unfinished(void)
{
	struct dev_qp *qp;
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ .sig_all = 1 }));
	rig_rts(&r);
	qp = to_qp(r.qp);
	for (uint64_t i = 0; i < 3; i++)
		rig_send(&r, i, 0);
	lock_get(&qp->lock);
	qp->sq.next = 3;
	sq_at(&qp->sq, 1)->finished = 1;
	sq_retire_locked(qp);
	lock_put(&qp->lock);
	CHECK_EQ(poll_id(r.scq, 0), -1);
	lock_get(&qp->lock);
	sq_at(&qp->sq, 0)->finished = 1;
	sq_retire_locked(qp);
	lock_put(&qp->lock);
	CHECK_EQ(poll_id(r.scq, IBV_WC_SUCCESS), 0);
	CHECK_EQ(poll_id(r.scq, IBV_WC_SUCCESS), 1);
	CHECK_EQ(poll_id(r.scq, 0), -1);
	rig_down(&r);
}

static void receives(void)
{
	struct ibv_wc done = { .opcode = IBV_WC_RECV, .byte_len = 12 }, wc;
	struct dev_qp *qp;
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	qp = to_qp(r.qp);
	CHECK_EQ(recv_take(qp, 0), -ENOENT);
	rig_to(&r, IBV_QPS_INIT, INIT_MASK);
	for (uint64_t i = 0; i < 4; i++)
		CHECK_EQ(rig_recv(&r, i), 0);
	CHECK_EQ(rig_recv(&r, 4), ENOMEM);
	rig_to(&r, IBV_QPS_RTR, RTR_MASK);
	CHECK_EQ(recv_take(qp, 0), 0);
	CHECK_EQ(qp->cur->wr_id, 0);
	CHECK_EQ(recv_take(qp, 0), 0); /* still the same one */
	CHECK_EQ(qp->cur->wr_id, 0);
	recv_done(qp, &done, false);
	CHECK_EQ(rig_event(&r), IBV_EVENT_COMM_EST);
	CHECK_EQ(rig_recv(&r, 4), ENOMEM); /* its slot is free when it is polled */
	CHECK_EQ(ibv_poll_cq(r.rcq, 1, &wc), 1);
	CHECK(wc.wr_id == 0 && wc.byte_len == 12 && wc.qp_num == r.qp->qp_num);
	CHECK_EQ(rig_recv(&r, 4), 0);
	for (uint64_t i = 1; i < 5; i++) {
		CHECK_EQ(recv_take(qp, 0), 0);
		recv_done(qp, &done, false);
		CHECK_EQ(poll_id(r.rcq, IBV_WC_SUCCESS), i);
	}
	CHECK_EQ(rig_event(&r), -1);
	CHECK_EQ(fake.recv_posted, 0);
	CHECK_EQ(recv_take(qp, 0), -ENOENT);
	rig_recv(&r, 9);
	CHECK_EQ(fake.recv_posted, 1);
	rig_recv(&r, 10);
	CHECK_EQ(fake.recv_posted, 1);
	rig_down(&r);
}

static void error_flushes_in_order(void)
{
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	rig_rts(&r);
	for (uint64_t i = 0; i < 3; i++) {
		rig_send(&r, i, i == 0 ? IBV_SEND_SIGNALED : 0);
		rig_recv(&r, 100 + i);
	}
	rig_finish(&r, 1);
	CHECK_EQ(rig_to(&r, IBV_QPS_ERR, IBV_QP_STATE), 0);
	CHECK_EQ(fake.stop, 1);
	CHECK_EQ(rig_send(&r, 3, 0), 0);
	CHECK_EQ(rig_recv(&r, 103), 0);
	CHECK_EQ(poll_id(r.scq, IBV_WC_SUCCESS), 0);
	for (uint64_t i = 1; i < 4; i++)
		CHECK_EQ(poll_id(r.scq, IBV_WC_WR_FLUSH_ERR), i);
	for (uint64_t i = 100; i < 104; i++)
		CHECK_EQ(poll_id(r.rcq, IBV_WC_WR_FLUSH_ERR), i);
	CHECK_EQ(poll_id(r.scq, 0), -1);
	CHECK_EQ(poll_id(r.rcq, 0), -1);
	rig_down(&r);
}

static void a_failed_send(void)
{
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	rig_rts(&r);
	for (uint64_t i = 0; i < 4; i++)
		rig_send(&r, i, i == 1 ? IBV_SEND_SIGNALED : 0);
	rig_recv(&r, 100);
	qp_fail_send(to_qp(r.qp), 2, IBV_WC_REM_ACCESS_ERR, "test");
	CHECK_EQ(r.qp->state, IBV_QPS_ERR);
	CHECK_EQ(poll_id(r.scq, IBV_WC_SUCCESS), 1);
	CHECK_EQ(poll_id(r.scq, IBV_WC_REM_ACCESS_ERR), 2);
	CHECK_EQ(poll_id(r.scq, IBV_WC_WR_FLUSH_ERR), 3);
	CHECK_EQ(poll_id(r.rcq, IBV_WC_WR_FLUSH_ERR), 100);
	qp_fail_send(to_qp(r.qp), 2, IBV_WC_FATAL_ERR, "again");
	qp_fail_recv(to_qp(r.qp), IBV_WC_FATAL_ERR, IBV_EVENT_QP_FATAL, "again");
	CHECK_EQ(poll_id(r.scq, 0), -1);
	CHECK_EQ(rig_event(&r), -1);
	rig_down(&r);
	/* One was acknowledged behind the read that fails. */
	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	rig_rts(&r);
	for (uint64_t i = 0; i < 4; i++)
		rig_send(&r, i, i == 1 ? IBV_SEND_SIGNALED : 0);
	for (uint32_t i = 1; i < 3; i++)
		sq_at(&to_qp(r.qp)->sq, i)->finished = 1;
	qp_fail_send(to_qp(r.qp), 0, IBV_WC_LOC_PROT_ERR, "test");
	CHECK_EQ(poll_id(r.scq, IBV_WC_LOC_PROT_ERR), 0);
	for (uint64_t i = 1; i < 4; i++)
		CHECK_EQ(poll_id(r.scq, IBV_WC_WR_FLUSH_ERR), i);
	rig_down(&r);
	/* With nothing in the queue there is no work request to blame. */
	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	rig_rts(&r);
	qp_fail_send(to_qp(r.qp), 0, IBV_WC_RETRY_EXC_ERR, "test");
	CHECK_EQ(rig_event(&r), IBV_EVENT_QP_FATAL);
	CHECK_EQ(r.qp->state, IBV_QPS_ERR);
	rig_down(&r);
}

static void a_failed_receive(void)
{
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	rig_rts(&r);
	rig_recv(&r, 1);
	rig_recv(&r, 2);
	CHECK_EQ(recv_take(to_qp(r.qp), 0), 0);
	qp_fail_recv(to_qp(r.qp), IBV_WC_LOC_LEN_ERR, IBV_EVENT_QP_REQ_ERR, "test");
	CHECK_EQ(poll_id(r.rcq, IBV_WC_LOC_LEN_ERR), 1);
	CHECK_EQ(poll_id(r.rcq, IBV_WC_WR_FLUSH_ERR), 2);
	CHECK_EQ(rig_event(&r), IBV_EVENT_QP_REQ_ERR);
	CHECK_EQ(rig_event(&r), -1);
	rig_down(&r);
}

static void overrun_breaks_the_qp(void)
{
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ .cqe = 2, .sig_all = 1 }));
	rig_rts(&r);
	for (uint64_t i = 0; i < 4; i++)
		rig_send(&r, i, 0);
	rig_finish(&r, 3);
	CHECK_EQ(r.qp->state, IBV_QPS_ERR);
	CHECK_EQ(rig_event(&r), IBV_EVENT_CQ_ERR);
	CHECK_EQ(rig_event(&r), IBV_EVENT_QP_FATAL);
	CHECK_EQ(rig_event(&r), -1);
	CHECK_EQ(poll_id(r.scq, IBV_WC_SUCCESS), 0);
	CHECK_EQ(poll_id(r.scq, IBV_WC_SUCCESS), 1);
	CHECK_EQ(poll_id(r.scq, 0), -1);
	rig_down(&r);
}

static void reset_forgets_everything(void)
{
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ .sig_all = 1 }));
	rig_rts(&r);
	for (uint64_t i = 0; i < 4; i++) {
		rig_send(&r, i, 0);
		rig_recv(&r, i);
	}
	rig_finish(&r, 2);
	CHECK_EQ(rig_to(&r, IBV_QPS_RESET, IBV_QP_STATE), 0);
	CHECK_EQ(poll_id(r.scq, 0), -1);
	rig_rts(&r);
	for (uint64_t i = 0; i < 4; i++) {
		CHECK_EQ(rig_send(&r, i, 0), 0);
		CHECK_EQ(rig_recv(&r, i), 0);
	}
	rig_down(&r);
}

static void sq_drains(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;
	struct dev_qp *qp;
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ .sig_all = 1 }));
	rig_rts(&r);
	qp = to_qp(r.qp);
	for (uint64_t i = 0; i < 3; i++)
		rig_send(&r, i, 0);
	lock_get(&qp->lock);
	qp->sq.next = 1; /* the first was sent, of the second some bytes */
	sq_at(&qp->sq, 1)->begun = 1;
	lock_put(&qp->lock);
	a = rig_attr(IBV_QPS_SQD);
	a.en_sqd_async_notify = 1;
	CHECK_EQ(ibv_modify_qp(r.qp, &a, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	ibv_query_qp(r.qp, &a, 0, &init);
	CHECK(a.sq_draining);
	lock_get(&qp->lock);
	CHECK(qp_may_send_locked(qp));
	qp->sq.next = 2;
	CHECK(!qp_may_send_locked(qp));
	sq_at(&qp->sq, 0)->finished = 1;
	sq_retire_locked(qp);
	lock_put(&qp->lock);
	CHECK_EQ(rig_event(&r), -1);
	lock_get(&qp->lock);
	sq_at(&qp->sq, 1)->finished = 1;
	sq_retire_locked(qp);
	lock_put(&qp->lock);
	CHECK_EQ(rig_event(&r), IBV_EVENT_SQ_DRAINED);
	ibv_query_qp(r.qp, &a, 0, &init);
	CHECK(!a.sq_draining);
	fake.kick = 0;
	CHECK_EQ(rig_send(&r, 3, 0), 0);
	CHECK_EQ(fake.kick, 0);
	CHECK_EQ(rig_to(&r, IBV_QPS_RTS, IBV_QP_STATE), 0);
	CHECK_EQ(fake.kick, 1);
	CHECK_EQ(rig_event(&r), -1);
	rig_down(&r);
}

static void shared_receive_queue(void)
{
	struct ibv_wc done = { .opcode = IBV_WC_RECV };
	struct ibv_srq_attr sa = { .srq_limit = 2 };
	struct ibv_recv_wr wr = { 0 }, *bad;
	struct dev_qp *qp;
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ .srq = true }));
	rig_rts(&r);
	qp = to_qp(r.qp);
	CHECK_EQ(ibv_post_recv(r.qp, &wr, &bad), EINVAL);
	CHECK_EQ(recv_take(qp, 0), -ENOENT);
	CHECK_EQ(rig_recv(&r, 1), 0);
	CHECK_EQ(fake.recv_posted, 1);
	for (uint64_t i = 2; i < 5; i++)
		CHECK_EQ(rig_recv(&r, i), 0);
	CHECK_EQ(fake.recv_posted, 1);
	CHECK_EQ(rig_recv(&r, 5), ENOMEM);
	CHECK_EQ(ibv_modify_srq(r.srq, &sa, IBV_SRQ_LIMIT), 0);
	for (uint64_t i = 1; i < 4; i++) {
		CHECK_EQ(recv_take(qp, 0), 0);
		CHECK_EQ(rig_event(&r), i == 3 ? IBV_EVENT_SRQ_LIMIT_REACHED : -1);
		recv_done(qp, &done, false);
		CHECK_EQ(poll_id(r.rcq, IBV_WC_SUCCESS), i);
	}
	CHECK_EQ(ibv_query_srq(r.srq, &sa), 0);
	CHECK(sa.srq_limit == 0 && sa.max_wr == 4 && sa.max_sge == 2);
	sa.srq_limit = 5;
	CHECK_EQ(ibv_modify_srq(r.srq, &sa, IBV_SRQ_LIMIT), EINVAL);
	/* The receive in work is flushed, the shared queue is not. */
	CHECK_EQ(rig_recv(&r, 6), 0);
	CHECK_EQ(recv_take(qp, 0), 0);
	CHECK_EQ(rig_to(&r, IBV_QPS_ERR, IBV_QP_STATE), 0);
	CHECK_EQ(poll_id(r.rcq, IBV_WC_WR_FLUSH_ERR), 4);
	CHECK_EQ(poll_id(r.rcq, 0), -1);
	CHECK_EQ(rig_event(&r), IBV_EVENT_QP_LAST_WQE_REACHED);
	CHECK_EQ(rig_event(&r), -1);
	CHECK_EQ(ibv_destroy_srq(r.srq), EBUSY);
	/* Slots of a destroyed QP's completions come back. */
	rig_to(&r, IBV_QPS_RESET, IBV_QP_STATE);
	rig_rts(&r);
	CHECK_EQ(recv_take(qp, 0), 0);
	recv_done(qp, &done, false);
	CHECK_EQ(ibv_destroy_qp(r.qp), 0);
	r.qp = NULL;
	for (uint64_t i = 0; i < 4; i++)
		CHECK_EQ(rig_recv(&r, i), 0);
	CHECK_EQ(rig_recv(&r, 5), ENOMEM);
	rig_down(&r);
}

/* A post has woken a waiting QP and is not yet done with it: its destruction
 * waits. */
static atomic_bool destroyed;

static void *post_once(void *arg)
{
	CHECK_EQ(rig_recv(arg, 1), 0);
	return NULL;
}

static void *destroy_once(void *arg)
{
	struct rig *r = arg;

	CHECK_EQ(ibv_destroy_qp(r->qp), 0);
	atomic_store(&destroyed, true);
	return NULL;
}

static void destroy_waits_for_an_srq_post(void)
{
	pthread_t poster, destroyer;
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ .srq = true }));
	rig_rts(&r);
	CHECK_EQ(recv_take(to_qp(r.qp), 0), -ENOENT);
	atomic_store(&fake_hold, true);
	pthread_create(&poster, NULL, post_once, &r);
	while (atomic_load(&fake_busy) != to_qp(r.qp))
		sched_yield();
	pthread_create(&destroyer, NULL, destroy_once, &r);
	for (int i = 0; i < 2000; i++) {
		CHECK(!atomic_load(&destroyed));
		sched_yield();
	}
	atomic_store(&fake_hold, false);
	pthread_join(poster, NULL);
	pthread_join(destroyer, NULL);
	CHECK(atomic_load(&destroyed));
	r.qp = NULL;
	rig_down(&r);
}

/* The same without a script, for the sanitizers. */
static atomic_bool posting;

static void *post_for_ever(void *arg)
{
	struct rig *r = arg;

	while (atomic_load(&posting))
		rig_recv(r, 1);
	return NULL;
}

static void destroy_against_srq_posts(void)
{
	struct ibv_qp_init_attr a = { .qp_type = IBV_QPT_RC };
	struct ibv_wc done = { .opcode = IBV_WC_RECV };
	struct rig r, one;
	pthread_t thread;

	REQUIRE(rig_up(&r, (struct rig_opt){ .srq = true }));
	atomic_store(&posting, true);
	pthread_create(&thread, NULL, post_for_ever, &r);
	a.send_cq = r.scq;
	a.recv_cq = r.rcq;
	a.srq = r.srq;
	for (int i = 0; i < 300; i++) {
		one = r;
		one.qp = ibv_create_qp(r.pd, &a);
		REQUIRE(one.qp);
		rig_rts(&one);
		/* Empty the queue until this QP has to wait. */
		while (!recv_take(to_qp(one.qp), 0)) {
			recv_done(to_qp(one.qp), &done, false);
			poll_id(r.rcq, IBV_WC_SUCCESS);
		}
		CHECK_EQ(ibv_destroy_qp(one.qp), 0);
		CHECK(atomic_load(&fake_busy) != to_qp(one.qp));
	}
	atomic_store(&posting, false);
	pthread_join(thread, NULL);
	rig_down(&r);
}

/* ---- what a forked child finds ------------------------------------------------ */

static int child(struct rig *r)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad = NULL;
	struct ibv_device_attr da;
	struct ibv_wc wc;
	int n = -1;

	if (!ibv_get_device_list(&n) || n != 1)
		return 1;
	if (ibv_alloc_pd(r->ctx) || errno != ENODEV)
		return 2;
	if (ibv_query_device(r->ctx, &da) != ENODEV)
		return 3;
	if (ibv_post_send(r->qp, &wr, &bad) != ENODEV || bad != &wr)
		return 4;
	if (ibv_poll_cq(r->scq, 1, &wc) > 0)
		return 5;
	if (rig_to(r, IBV_QPS_ERR, IBV_QP_STATE) != ENODEV)
		return 6;
	if (ibv_destroy_qp(r->qp) || ibv_destroy_cq(r->scq) || ibv_dealloc_pd(r->pd) ||
	    ibv_destroy_comp_channel(r->ch) || ibv_close_device(r->ctx))
		return 7;
	return 0;
}

static void fork_kills_objects_in_the_child_only(void)
{
	struct rig r;
	int status = -1;
	pid_t pid;

	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	rig_rts(&r);
	pid = fork();
	REQUIRE(pid >= 0);
	if (!pid)
		_exit(child(&r));
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	CHECK_EQ(rig_send(&r, 1, IBV_SEND_SIGNALED), 0);
	rig_finish(&r, 1);
	CHECK_EQ(poll_id(r.scq, IBV_WC_SUCCESS), 1);
	rig_down(&r);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(refused_states);
	T_RUN(send_checks);
	T_RUN(reads_need_a_depth);
	T_RUN(what_a_wqe_holds);
	T_RUN(chain_up_to_the_bad_one);
	T_RUN(slots_come_back_when_a_signalled_completion_is_polled);
	T_RUN(retire_stops_at_the_first_unfinished);
	T_RUN(receives);
	T_RUN(error_flushes_in_order);
	T_RUN(a_failed_send);
	T_RUN(a_failed_receive);
	T_RUN(overrun_breaks_the_qp);
	T_RUN(reset_forgets_everything);
	T_RUN(sq_drains);
	T_RUN(shared_receive_queue);
	T_RUN(destroy_waits_for_an_srq_post);
	T_RUN(destroy_against_srq_posts);
	T_RUN(fork_kills_objects_in_the_child_only);
	return t_done();
}
