/* SPDX-License-Identifier: BSD-2-Clause */
/* Rights of regions and of QPs, on both sides. */
#include "strict.h"

#define LOCAL IBV_ACCESS_LOCAL_WRITE
#define WRITE IBV_ACCESS_REMOTE_WRITE
#define READ IBV_ACCESS_REMOTE_READ
#define ATOMIC IBV_ACCESS_REMOTE_ATOMIC

static int right_of(int opcode)
{
	return opcode == IBV_WR_RDMA_READ ? READ : st_is_atomic(opcode) ? ATOMIC : WRITE;
}

/* ---- rights of regions ---------------------------------------------------------- */

/* A region with every right but one allows every operation but those. */
static void check_missing_right(int missing)
{
	st_open(NULL);
	for (int i = 0; i < ST_REMOTE_OPS; i++) {
		struct conf_buf b = st_buf(p.pd, 8192, CONF_RW & ~missing, 5);
		struct ibv_sge sge = conf_sge(&a.b, 4096, 8);
		struct ibv_send_wr wr =
			st_rdma(st_remote_ops[i], &sge, 1, b.p, b.mr->rkey);

		if (right_of(st_remote_ops[i]) == missing) {
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
	st_all_answers_refused(conf_sge(&ro, 0, 8));
	st_untouched(&ro, 5);
	st_again(NULL);
	sge = conf_sge(&rop, 0, 64);
	st_recv_refused(&sge, 1, 8, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
	st_untouched(&rop, 6);
	st_buf_free(&ro);
	st_buf_free(&rop);
	st_close();
}

/* Of a large answer the bytes before the bad entry may be stored, no others. */
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
	st_sink_refused(&wr);
	st_forget(&a.b, 0, 200000, ST_SEED_A);
	st_untouched(&a.b, ST_SEED_A);
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
	for (int i = 0; i < ST_REMOTE_OPS; i++) {
		struct ibv_sge sge = conf_sge(&a.b, 4096, 8);
		struct ibv_send_wr wr =
			st_rdma(st_remote_ops[i], &sge, 1, p.b.p, p.b.mr->rkey);

		if (right_of(st_remote_ops[i]) == missing) {
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

static const struct conf_case cases[] = {
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
};

CONF_MAIN(cases)
