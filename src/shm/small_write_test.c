/* SPDX-License-Identifier: BSD-2-Clause */
/* Small writes with immediate data: records of the fast path, what it receives, and what
 * it leaves to be refused. */
#include "shm/small.h"
#include "shm/pair_test.h"

#include <arpa/inet.h>

/* small_send() for what was posted to e. The pair is held. */
NO_TSA static bool send_small(struct end *e)
{
	struct dev_qp *qp = to_qp(e->qp);
	bool all;

	lock_get(&qp->lock);
	lock_get(&e->l->tx_lock);
	all = small_send(e->s);
	lock_put(&e->l->tx_lock);
	lock_put(&qp->lock);
	return all;
}

static void allow_writes(struct end *e, bool allow)
{
	struct ibv_qp_attr a = { .qp_access_flags = allow ? IBV_ACCESS_REMOTE_WRITE : 0 };

	CHECK(!ibv_modify_qp(e->qp, &a, IBV_QP_ACCESS_FLAGS));
}

static void post_write(struct end *e, uint32_t len, uint32_t rkey)
{
	struct ibv_sge sge = sge_of(mem, len);
	struct ibv_send_wr wr = { .wr_id = 7,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
				  .send_flags = IBV_SEND_SIGNALED,
				  .imm_data = htonl(0xabcd0000 + len),
				  .wr.rdma = { (uintptr_t)recv_mem(), rkey } },
			   *bad;

	CHECK(!ibv_post_send(e->qp, &wr, &bad));
}

static void post_empty_recv(struct end *e)
{
	struct ibv_recv_wr wr = { .wr_id = 5 }, *bad;

	CHECK(!ibv_post_recv(e->qp, &wr, &bad));
}

/* The records are those of rc/build.c: immediate data, then the write. */
static void check_write_records(struct pair *p, struct ring_rx *at, uint32_t len,
				uint32_t rkey)
{
	uint32_t bytes = 0;
	const struct rec_stream *rec = record_next(at, &bytes);

	if (!CHECK(rec))
		return;
	CHECK_EQ(bytes, sizeof(*rec) + 8);
	CHECK_EQ(rec->op, RC_IMM);
	CHECK_EQ(rec->flags, REC_LAST);
	CHECK_EQ(rec->body, 8);
	CHECK_EQ(rec->msn, p->b.s->rx.msn0);
	CHECK_EQ(*(const uint32_t *)(rec + 1), 0xabcd0000 + len);
	CHECK_EQ(((const uint32_t *)(rec + 1))[1], IMM_PREFIX);
	rec = record_next(at, &bytes);
	if (!CHECK(rec))
		return;
	CHECK_EQ(bytes, sizeof(*rec) + len);
	CHECK_EQ(rec->op, RC_WRITE);
	CHECK_EQ(rec->flags, REC_LAST | REC_ACK_REQ);
	CHECK(!rec->body && !rec->msn);
	CHECK_EQ(rec->stag, rkey);
	CHECK(rec->to == (uintptr_t)recv_mem());
	CHECK(!memcmp(rec + 1, mem, len));
}

static void one_write(struct pair *p, uint32_t len, uint32_t rkey)
{
	struct ibv_wc wc = { 0 };
	struct ring_rx at;
	bool small;

	memset(recv_mem(), 0, SMALL_MAX);
	post_empty_recv(&p->b);
	pair_hold(p);
	at = records_of(&p->a);
	post_write(&p->a, len, rkey);
	small = send_small(&p->a);
	CHECK_EQ(small, len && len <= SMALL_COMPOSED_MAX);
	if (small)
		check_write_records(p, &at, len, rkey);
	pair_release(p);
	CHECK(completes(p, &p->a, 7, IBV_WC_SUCCESS));
	CHECK(completion(p, &p->b, &wc));
	CHECK_EQ(wc.wr_id, 5);
	CHECK_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	CHECK_EQ(wc.byte_len, len);
	CHECK_EQ(wc.wc_flags, IBV_WC_WITH_IMM);
	CHECK_EQ(ntohl(wc.imm_data), 0xabcd0000 + len);
	CHECK(!memcmp(recv_mem(), mem, len));
	CHECK_EQ(recv_mem()[len], 0);
}

static void writes(void)
{
	static const uint32_t len[] = { 1, 8, 32, 33, 64, SMALL_COMPOSED_MAX,
					SMALL_COMPOSED_MAX + 1, 0 };
	struct ibv_mr *w = ibv_reg_mr(mr->pd, recv_mem(), SMALL_MAX,
				      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct pair p;

	REQUIRE(w);
	pair_open(&p, NULL);
	allow_writes(&p.b, true);
	for (int round = 0; round < 200; round++) /* the ring goes round */
		for (unsigned i = 0; i < sizeof(len) / sizeof(len[0]); i++)
			one_write(&p, len[i], w->rkey);
	/* Nobody waits for it yet. */
	pair_hold(&p);
	post_write(&p.a, 9, w->rkey);
	CHECK(send_small(&p.a));
	pair_release(&p);
	post_empty_recv(&p.b);
	CHECK(completes(&p, &p.a, 7, IBV_WC_SUCCESS));
	CHECK(completes(&p, &p.b, 5, IBV_WC_SUCCESS));
	pair_close(&p);
	CHECK(!ibv_dereg_mr(w));
}

/* What may not be written is not, and both ends hear of it as without the fast path. */
static void refused_write(bool allow, uint32_t spoil, uint32_t len, enum ibv_wc_status status)
{
	struct ibv_mr *w = ibv_reg_mr(mr->pd, recv_mem(), 16,
				      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct pair p;

	REQUIRE(w);
	pair_open(&p, NULL);
	allow_writes(&p.b, allow);
	memset(recv_mem(), 0, SMALL_MAX);
	post_empty_recv(&p.b);
	pair_hold(&p);
	post_write(&p.a, len, w->rkey ^ spoil);
	CHECK(send_small(&p.a));
	pair_release(&p);
	CHECK(completes(&p, &p.a, 7, status));
	for (unsigned i = 0; i < 32; i++)
		CHECK_EQ(recv_mem()[i], 0);
	pair_close(&p);
	CHECK(!ibv_dereg_mr(w));
}

static void refused_writes(void)
{
	refused_write(false, 0, 8, IBV_WC_REM_INV_REQ_ERR);
	refused_write(true, 0x100, 8, IBV_WC_REM_ACCESS_ERR);
	refused_write(true, 0, 17, IBV_WC_REM_ACCESS_ERR);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	if (!pair_device_open())
		return 1;
	T_RUN(writes);
	T_RUN(refused_writes);
	pair_device_close();
	return t_done();
}
