/* SPDX-License-Identifier: BSD-2-Clause */
/* Unreliable connections: which messages arrive, which are dropped without an error, and
 * what still works after a send has failed. No case waits to see that a message is
 * dropped: messages of a connection stay in order, so a later one that arrives proves
 * it. */
#include "side.h"

#include <sched.h>

enum {
	SRC = 0,	   /* regions of a side's buffer */
	DST = 300000,
	FLAG = 1000000,
};

static struct side x, y;
static volatile uint64_t flags_sent;

static void pair_of(struct side_opt ox, struct side_opt oy)
{
	ox.type = oy.type = IBV_QPT_UC;
	side_pair_with(&x, &y, ox, oy);
}

static void pair(void)
{
	pair_of((struct side_opt){ 0 }, (struct side_opt){ 0 });
}

static void put(struct side *from, uint64_t id, int opcode, uint32_t len)
{
	struct ibv_sge sge = conf_sge(&from->b, SRC, len);
	struct ibv_send_wr wr = conf_wr(id, opcode, &sge, 1);

	OK(conf_post(from->qp, &wr));
}

static void write_to(struct side *from, struct side *to, uint64_t id, int opcode, size_t off,
		     uint32_t len)
{
	struct ibv_sge sge = conf_sge(&from->b, SRC, len);
	struct ibv_send_wr wr = conf_rdma(id, opcode, &sge, 1, to->b.p + off, to->b.mr->rkey);

	wr.imm_data = htonl(0x1234abcd);
	OK(conf_post(from->qp, &wr));
}

/* Everything that `from` has sent before has been looked at by `to`. */
static void pass(struct side *from, struct side *to)
{
	uint64_t *there = (void *)(to->b.p + FLAG);
	struct ibv_sge sge = conf_sge(&from->b, FLAG + 8, 8);
	struct ibv_send_wr wr = conf_rdma(99, IBV_WR_RDMA_WRITE, &sge, 1, to->b.p + FLAG,
					  to->b.mr->rkey);
	uint64_t value = ++flags_sent;

	memcpy(from->b.p + FLAG + 8, &value, 8);
	OK(conf_post(from->qp, &wr));
	conf_wc_ok(from->cq, 99);
	WAIT_FOR(__atomic_load_n(there, __ATOMIC_ACQUIRE) == value);
}

/* A message arrives, in full, in the receive with this id. */
static void arrives(struct side *from, struct side *to, uint64_t recv_id, uint32_t len)
{
	static uint32_t seed;
	struct ibv_wc wc;

	conf_pattern(from->b.p + SRC, len, ++seed);
	put(from, 1, IBV_WR_SEND, len);
	conf_wc_ok(from->cq, 1);
	conf_wc_get(to->cq, recv_id, IBV_WC_SUCCESS, &wc);
	EQ(wc.byte_len, len);
	CHECK(conf_pattern_ok(to->b.p + DST, len, seed));
}

static void no_event(void)
{
	CHECK(!conf_readable(dev.ctx->async_fd));
}

/* ---- what works ---------------------------------------------------------------- */

static void sends_of_all_sizes(void)
{
	static const uint32_t sizes[] = { 0, 1, 7, 512, 4096, 65504, 65505, 200000, 300000 };

	pair();
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		OK(conf_recv(y.qp, 10, &y.b, DST, 300000));
		arrives(&x, &y, 10, sizes[i]);
		OK(conf_recv(x.qp, 11, &x.b, DST, 300000));
		arrives(&y, &x, 11, sizes[i]);
	}
	side_pair_free(&x, &y);
}

static void immediate_data(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct ibv_wc wc;

	pair();
	conf_pattern(x.b.p, 100000, 3);
	OK(conf_recv(y.qp, 10, &y.b, DST, 100000));
	OK(conf_recv(y.qp, 11, &y.b, DST, 0));
	sge = conf_sge(&x.b, SRC, 100000);
	wr = conf_wr(1, IBV_WR_SEND_WITH_IMM, &sge, 1);
	wr.imm_data = htonl(77);
	OK(conf_post(x.qp, &wr));
	conf_wc_ok(x.cq, 1);
	conf_wc_get(y.cq, 10, IBV_WC_SUCCESS, &wc);
	EQ(wc.opcode, IBV_WC_RECV);
	EQ(wc.byte_len, 100000);
	CHECK(wc.wc_flags & IBV_WC_WITH_IMM);
	EQ(ntohl(wc.imm_data), 77);
	CHECK(conf_pattern_ok(y.b.p + DST, 100000, 3));

	write_to(&x, &y, 2, IBV_WR_RDMA_WRITE_WITH_IMM, DST + 200000, 100000);
	conf_wc_get(x.cq, 2, IBV_WC_SUCCESS, &wc);
	EQ(wc.opcode, IBV_WC_RDMA_WRITE);
	conf_wc_get(y.cq, 11, IBV_WC_SUCCESS, &wc);
	EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	EQ(wc.byte_len, 100000);
	EQ(ntohl(wc.imm_data), 0x1234abcd);
	CHECK(conf_pattern_ok(y.b.p + DST + 200000, 100000, 3));
	side_pair_free(&x, &y);
}

/* What was written before a send is there when the send has been received. */
static void order_of_writes_and_sends(void)
{
	pair();
	for (int i = 0; i < 200; i++) {
		uint32_t len = 1 + (uint32_t)i * 997 % 100000;

		OK(conf_recv(y.qp, 10, &y.b, DST, 64));
		conf_pattern(x.b.p, len, i);
		memset(y.b.p + DST + 1000, 0xee, len);
		write_to(&x, &y, 1, IBV_WR_RDMA_WRITE, DST + 1000, len);
		put(&x, 2, IBV_WR_SEND, 8);
		conf_wc_ok(y.cq, 10);
		CHECK(conf_pattern_ok(y.b.p + DST + 1000, len, i));
		conf_wc_ok(x.cq, 1);
		conf_wc_ok(x.cq, 2);
	}
	side_pair_free(&x, &y);
}

static void inline_and_several_buffers(void)
{
	struct ibv_sge sge[3];
	struct ibv_send_wr wr;
	struct ibv_wc wc;

	pair_of((struct side_opt){ .sge = 3, .inline_data = 64 }, (struct side_opt){ 0 });
	conf_pattern(x.b.p, 90000, 4);
	for (int i = 0; i < 3; i++)
		sge[i] = conf_sge(&x.b, (size_t)i * 30000, 30000);
	OK(conf_recv(y.qp, 10, &y.b, DST, 90000));
	wr = conf_wr(1, IBV_WR_SEND, sge, 3);
	OK(conf_post(x.qp, &wr));
	conf_wc_get(y.cq, 10, IBV_WC_SUCCESS, &wc);
	EQ(wc.byte_len, 90000);
	CHECK(conf_pattern_ok(y.b.p + DST, 90000, 4));
	conf_wc_ok(x.cq, 1);

	OK(conf_recv(y.qp, 11, &y.b, DST, 64));
	sge[0] = conf_sge(&x.b, 0, 64);
	sge[0].lkey = 12345; /* is not looked at */
	wr = conf_wr(2, IBV_WR_SEND, sge, 1);
	wr.send_flags |= IBV_SEND_INLINE;
	OK(conf_post(x.qp, &wr));
	conf_wc_ok(x.cq, 2);
	conf_wc_ok(y.cq, 11);
	CHECK(conf_pattern_ok(y.b.p + DST, 64, 4));
	side_pair_free(&x, &y);
}

static void shared_receive_queue(void)
{
	pair_of((struct side_opt){ 0 }, (struct side_opt){ .srq = true });
	for (int i = 0; i < 5; i++) {
		OK(conf_srq_recv(y.srq, 20, &y.b, DST, 100000));
		arrives(&x, &y, 20, 50000);
	}
	side_pair_free(&x, &y);
}

static void to_itself(void)
{
	open_device();
	x = side_with(7, (struct side_opt){ .type = IBV_QPT_UC });
	EQ(to_init(&x), 0);
	EQ(to_rtr(&x, x.qp->qp_num, x.psn, &dev.gid), 0);
	EQ(to_rts(&x), 0);
	conf_pattern(x.b.p, 5000, 4);
	write_to(&x, &x, 1, IBV_WR_RDMA_WRITE, DST, 5000);
	conf_wc_ok(x.cq, 1);
	WAIT_FOR(conf_pattern_ok(x.b.p + DST, 5000, 4));
	side_free(&x);
	close_device();
}

static void again_after_reset(void)
{
	pair();
	for (int i = 0; i < 3; i++) {
		OK(conf_recv(y.qp, 10, &y.b, DST, 1000));
		arrives(&x, &y, 10, 1000);
		EQ(to_state(&x, IBV_QPS_RESET), 0);
		EQ(to_state(&y, IBV_QPS_RESET), 0);
		x.psn += 100;
		join(&x, &y);
	}
	side_pair_free(&x, &y);
}

static atomic_uint received;
static atomic_bool stop_polling;

static void *poller(void *arg)
{
	struct ibv_wc wc;

	(void)arg;
	while (!stop_polling)
		if (ibv_poll_cq(x.cq, 1, &wc) == 1)
			received += wc.status == IBV_WC_SUCCESS;
	return NULL;
}

/* ... though it is sent while the connection is being made and a thread polls
 * already. */
static void first_message_arrives(void)
{
	pthread_t t;

	pair();
	t = conf_thread(poller, NULL);
	for (unsigned i = 0; i < 300; i++) {
		EQ(to_state(&x, IBV_QPS_RESET), 0);
		EQ(to_state(&y, IBV_QPS_RESET), 0);
		EQ(to_init(&x), 0);
		EQ(to_init(&y), 0);
		OK(conf_recv(x.qp, 10, &x.b, DST, 1000));
		EQ(to_rtr(&y, x.qp->qp_num, x.psn, &dev.gid), 0);
		EQ(to_rtr(&x, y.qp->qp_num, y.psn, &dev.gid), 0);
		EQ(to_rts(&y), 0);
		put(&y, 1, IBV_WR_SEND, 100);
		WAIT_FOR(received == i + 1);
		EQ(to_rts(&x), 0);
	}
	stop_polling = true;
	conf_join(t);
	side_pair_free(&x, &y);
}

/* Many messages and few receives, reposted as they are used: the sender does not
 * wait, and yet an attentive receiver gets them all on this device. */
static void stream_of_messages(void)
{
	enum { N = 3000, LEN = 64 };
	struct ibv_wc wc[16];
	int sent = 0, completed = 0, got = 0;

	setenv("ANYRDMA_UC_LATE_MS", "10000", 1); /* however busy the machine is */
	pair();
	if (!conf_user_device())
		SKIP("hardware and rxe may lose some");
	for (int i = 0; i < 16; i++)
		OK(conf_recv(y.qp, 10, &y.b, DST, LEN));
	while (got < N || completed < N) {
		int n = ibv_poll_cq(x.cq, 16, wc);

		for (int i = 0; i < n; i++)
			EQ(wc[i].status, IBV_WC_SUCCESS);
		completed += n;
		if (sent < N && sent - completed < 16) {
			put(&x, (uint64_t)sent, IBV_WR_SEND, LEN);
			sent++;
		}
		n = ibv_poll_cq(y.cq, 16, wc);
		for (int i = 0; i < n; i++) {
			EQ(wc[i].status, IBV_WC_SUCCESS);
			OK(conf_recv(y.qp, 10, &y.b, DST, LEN));
		}
		got += n;
		if (!n)
			sched_yield();
	}
	side_pair_free(&x, &y);
}

/* ---- what is refused ------------------------------------------------------------ */

static void no_reads_no_atomics(void)
{
	static const int ops[] = { IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
				   IBV_WR_ATOMIC_FETCH_AND_ADD };
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	pair();
	for (int i = 0; i < 3; i++) {
		sge = conf_sge(&x.b, 0, 8);
		wr = conf_rdma(1, ops[i], &sge, 1, y.b.p, y.b.mr->rkey);
		EQ(conf_post(x.qp, &wr), EINVAL);
	}
	EQ(conf_qp_state(x.qp), IBV_QPS_RTS);
	OK(conf_recv(y.qp, 10, &y.b, DST, 1000));
	arrives(&x, &y, 10, 1000);
	side_pair_free(&x, &y);
}

/* ---- what is lost ---------------------------------------------------------------- */

static void no_receive(void)
{
	pair();
	for (int i = 0; i < 5; i++) {
		put(&x, 2, IBV_WR_SEND, 100000);
		conf_wc_ok(x.cq, 2);
	}
	pass(&x, &y);
	OK(conf_recv(y.qp, 10, &y.b, DST, 1000));
	arrives(&x, &y, 10, 1000);
	conf_wc_none(y.cq, 0);
	EQ(conf_qp_state(x.qp), IBV_QPS_RTS);
	EQ(conf_qp_state(y.qp), IBV_QPS_RTS);
	no_event();
	side_pair_free(&x, &y);
}

static void write_with_immediate_without_receive(void)
{
	pair();
	write_to(&x, &y, 2, IBV_WR_RDMA_WRITE_WITH_IMM, DST, 100);
	conf_wc_ok(x.cq, 2);
	pass(&x, &y);
	OK(conf_recv(y.qp, 10, &y.b, DST, 1000));
	arrives(&x, &y, 10, 1000);
	conf_wc_none(y.cq, 0);
	side_pair_free(&x, &y);
}

static void too_long_for_the_receive(void)
{
	pair();
	OK(conf_recv(y.qp, 10, &y.b, DST, 1000));
	OK(conf_recv(y.qp, 11, &y.b, DST, 200000));
	put(&x, 2, IBV_WR_SEND, 1001);
	put(&x, 3, IBV_WR_SEND, 200000);
	conf_wc_ok(x.cq, 2);
	conf_wc_ok(x.cq, 3);
	pass(&x, &y);
	conf_wc_none(y.cq, 0);
	arrives(&x, &y, 10, 1000); /* its receive is still there */
	arrives(&x, &y, 11, 200000);
	EQ(conf_qp_state(y.qp), IBV_QPS_RTS);
	no_event();
	side_pair_free(&x, &y);
}

/* A receive that was taken from an SRQ cannot go back. */
static void too_long_for_a_shared_receive(void)
{
	pair_of((struct side_opt){ 0 }, (struct side_opt){ .srq = true });
	OK(conf_srq_recv(y.srq, 20, &y.b, DST, 1000));
	put(&x, 2, IBV_WR_SEND, 1001);
	conf_wc_ok(x.cq, 2);
	conf_wc_is(y.cq, 20, IBV_WC_LOC_LEN_ERR);
	conf_qp_wait(y.qp, IBV_QPS_ERR);
	EQ(conf_qp_state(x.qp), IBV_QPS_RTS);
	side_pair_free(&x, &y);
}

static void bad_write(uint64_t addr, uint32_t rkey, uint32_t len)
{
	struct ibv_sge sge = conf_sge(&x.b, SRC, len);
	struct ibv_send_wr wr = conf_rdma(2, IBV_WR_RDMA_WRITE, &sge, 1,
					  (void *)(uintptr_t)addr, rkey);

	OK(conf_post(x.qp, &wr));
	conf_wc_ok(x.cq, 2);
	wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	OK(conf_post(x.qp, &wr));
	conf_wc_ok(x.cq, 2);
}

static void writes_that_are_not_allowed(void)
{
	struct conf_buf ro, gone;
	uint64_t at;

	pair();
	at = (uintptr_t)y.b.p;
	ro = conf_buf(dev.pd, 4096, IBV_ACCESS_LOCAL_WRITE);
	gone = conf_buf(dev.pd, 4096, CONF_RW);
	OK(ibv_dereg_mr(gone.mr));
	memset(x.b.p, 0x55, 200000);
	memset(y.b.p, 0, FLAG);
	OK(conf_recv(y.qp, 10, &y.b, DST, 1000));
	bad_write(at, y.b.mr->rkey ^ 0x5a5a00, 100);
	bad_write(at - 1, y.b.mr->rkey, 100);
	bad_write(at + y.b.len - 99, y.b.mr->rkey, 100);
	bad_write(at + y.b.len - 199999, y.b.mr->rkey, 200000);
	bad_write((uintptr_t)ro.p, ro.mr->rkey, 100);
	pass(&x, &y);
	CHECK(conf_is_fill(y.b.p, 0, DST));
	CHECK(conf_is_fill(y.b.p + FLAG + 8, 0, y.b.len - FLAG - 8));
	CHECK(conf_is_fill(ro.p, 0, 4096));
	conf_wc_none(y.cq, 0);
	EQ(conf_qp_state(x.qp), IBV_QPS_RTS);
	EQ(conf_qp_state(y.qp), IBV_QPS_RTS);
	no_event();
	arrives(&x, &y, 10, 1000);
	free(gone.p);
	conf_buf_free(&ro);
	side_pair_free(&x, &y);
}

static void qp_that_allows_no_writes(void)
{
	struct ibv_qp_attr attr = { .qp_access_flags = 0 };

	pair();
	OK(ibv_modify_qp(y.qp, &attr, IBV_QP_ACCESS_FLAGS));
	memset(x.b.p, 0x55, 100);
	memset(y.b.p + DST, 0, 1000);
	OK(conf_recv(y.qp, 10, &y.b, DST + 5000, 1000));
	write_to(&x, &y, 2, IBV_WR_RDMA_WRITE, DST, 100);
	write_to(&x, &y, 3, IBV_WR_RDMA_WRITE_WITH_IMM, DST, 100);
	put(&x, 4, IBV_WR_SEND, 100);
	for (int i = 2; i <= 4; i++)
		conf_wc_ok(x.cq, i);
	conf_wc_ok(y.cq, 10);
	CHECK(conf_is_fill(y.b.p + DST, 0, 1000));
	EQ(conf_qp_state(y.qp), IBV_QPS_RTS);
	no_event();
	side_pair_free(&x, &y);
}

static void peer_that_is_gone(void)
{
	pair();
	OK(conf_recv(y.qp, 10, &y.b, DST, 1000));
	arrives(&x, &y, 10, 1000);
	EQ(to_state(&y, IBV_QPS_ERR), 0);
	for (int i = 0; i < 40; i++) {
		put(&x, 2, IBV_WR_SEND, 100000);
		conf_wc_ok(x.cq, 2);
	}
	OK(ibv_destroy_qp(y.qp));
	for (int i = 0; i < 40; i++) {
		put(&x, 3, i & 1 ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM, 100000);
		conf_wc_ok(x.cq, 3);
	}
	EQ(conf_qp_state(x.qp), IBV_QPS_RTS);
	no_event();
	OK(ibv_destroy_cq(y.cq));
	conf_buf_free(&y.b);
	side_free(&x);
	close_device();
}

static void peer_that_never_was(void)
{
	open_device();
	x = side_with(1, (struct side_opt){ .type = IBV_QPT_UC });
	EQ(to_init(&x), 0);
	EQ(to_rtr(&x, x.qp->qp_num ^ 0x15, 2, &dev.gid), 0);
	EQ(to_rts(&x), 0);
	for (int i = 0; i < 40; i++) {
		put(&x, 2, IBV_WR_SEND, 1000);
		conf_wc_ok(x.cq, 2);
	}
	EQ(conf_qp_state(x.qp), IBV_QPS_RTS);
	side_free(&x);
	close_device();
}

/* RC and UC do not talk to each other. */
static void peer_of_another_type(void)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS, .timeout = 10, .retry_cnt = 1, .rnr_retry = 1,
	};

	open_device();
	x = side_with(1, (struct side_opt){ .type = IBV_QPT_UC });
	y = side_with(2, (struct side_opt){ .type = IBV_QPT_RC });
	EQ(to_init(&x), 0);
	EQ(to_init(&y), 0);
	EQ(to_rtr(&x, y.qp->qp_num, y.psn, &dev.gid), 0);
	EQ(to_rtr(&y, x.qp->qp_num, x.psn, &dev.gid), 0);
	EQ(to_rts(&x), 0);
	EQ(ibv_modify_qp(y.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
			 IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC), 0);
	OK(conf_recv(x.qp, 10, &x.b, DST, 1000));
	OK(conf_recv(y.qp, 11, &y.b, DST, 1000));
	put(&x, 1, IBV_WR_SEND, 100);
	conf_wc_ok(x.cq, 1);
	put(&y, 2, IBV_WR_SEND, 100);
	conf_wc_is(y.cq, 2, IBV_WC_RETRY_EXC_ERR);
	conf_wc_is(y.cq, 11, IBV_WC_WR_FLUSH_ERR);
	conf_wc_none(x.cq, 0);
	EQ(conf_qp_state(x.qp), IBV_QPS_RTS);
	side_pair_free(&x, &y);
}

/* ---- errors of our own ------------------------------------------------------------ */

/* Back in working order, as if nothing had been. */
static void recovers(void)
{
	EQ(to_state(&x, IBV_QPS_RTS), 0);
	OK(conf_recv(y.qp, 11, &y.b, DST, 300000));
	arrives(&x, &y, 11, 300000);
	no_event();
}

static void send_queue_error(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	pair();
	OK(conf_recv(x.qp, 20, &x.b, DST, 1000));
	OK(conf_recv(y.qp, 10, &y.b, DST, 1000));
	sge = conf_sge(&x.b, 0, 100);
	sge.lkey ^= 0x5a5a00;
	put(&x, 2, IBV_WR_SEND, 100);
	wr = conf_wr(3, IBV_WR_SEND, &sge, 1);
	OK(conf_post(x.qp, &wr));
	conf_wc_ok(x.cq, 2);
	conf_wc_is(x.cq, 3, IBV_WC_LOC_PROT_ERR);
	conf_wc_ok(y.cq, 10);
	conf_qp_wait(x.qp, IBV_QPS_SQE);
	put(&x, 4, IBV_WR_SEND, 100);
	conf_wc_is(x.cq, 4, IBV_WC_WR_FLUSH_ERR);
	arrives(&y, &x, 20, 1000); /* receiving goes on */
	EQ(conf_qp_state(x.qp), IBV_QPS_SQE);
	recovers();
	EQ(conf_qp_state(x.qp), IBV_QPS_RTS);
	side_pair_free(&x, &y);
}

/* Work behind the bad one is flushed, work before it is not touched. */
static void chain_with_a_bad_one(void)
{
	struct ibv_sge sge[5];
	struct ibv_send_wr wr[5], *bad;

	pair();
	for (int i = 0; i < 5; i++) {
		OK(conf_recv(y.qp, 10, &y.b, DST, 1000));
		sge[i] = conf_sge(&x.b, 0, 1000);
		wr[i] = conf_wr(1 + i, IBV_WR_SEND, &sge[i], 1);
		wr[i].next = i < 4 ? &wr[i + 1] : NULL;
	}
	sge[2].addr += x.b.len; /* out of bounds */
	EQ(ibv_post_send(x.qp, wr, &bad), 0);
	conf_wc_ok(x.cq, 1);
	conf_wc_ok(x.cq, 2);
	conf_wc_is(x.cq, 3, IBV_WC_LOC_PROT_ERR);
	conf_wc_is(x.cq, 4, IBV_WC_WR_FLUSH_ERR);
	conf_wc_is(x.cq, 5, IBV_WC_WR_FLUSH_ERR);
	conf_wc_ok(y.cq, 10);
	conf_wc_ok(y.cq, 10);
	EQ(conf_qp_state(x.qp), IBV_QPS_SQE);
	EQ(to_state(&x, IBV_QPS_RTS), 0);
	arrives(&x, &y, 10, 1000);
	for (int i = 0; i < 50; i++) { /* the queue's indices still fit */
		OK(conf_recv(y.qp, 10, &y.b, DST, 1000));
		put(&x, 5, IBV_WR_SEND, 100);
		conf_wc_ok(x.cq, 5);
		conf_wc_ok(y.cq, 10);
	}
	side_pair_free(&x, &y);
}

static void send_queue_error_without_a_peer(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	pair();
	OK(ibv_destroy_qp(y.qp));
	put(&x, 2, IBV_WR_SEND, 100);
	conf_wc_ok(x.cq, 2);
	sge = conf_sge(&x.b, 0, 100);
	sge.lkey ^= 0x5a5a00;
	wr = conf_wr(3, IBV_WR_SEND, &sge, 1);
	OK(conf_post(x.qp, &wr));
	conf_wc_is(x.cq, 3, IBV_WC_LOC_PROT_ERR);
	conf_qp_wait(x.qp, IBV_QPS_SQE);
	EQ(to_state(&x, IBV_QPS_RTS), 0);
	put(&x, 4, IBV_WR_SEND, 100);
	conf_wc_ok(x.cq, 4);
	OK(ibv_destroy_cq(y.cq));
	conf_buf_free(&y.b);
	side_free(&x);
	close_device();
}

/* Memory of our own that is not ours ends the receiver, and only it. */
static void receive_with_bad_lkey(void)
{
	struct ibv_sge sge;
	struct ibv_recv_wr wr, *bad;

	pair();
	sge = conf_sge(&y.b, DST, 1000);
	sge.lkey ^= 0x5a5a00;
	wr = (struct ibv_recv_wr){ .wr_id = 10, .sg_list = &sge, .num_sge = 1 };
	OK(ibv_post_recv(y.qp, &wr, &bad));
	OK(conf_recv(y.qp, 11, &y.b, DST, 1000));
	put(&x, 2, IBV_WR_SEND, 100);
	conf_wc_ok(x.cq, 2);
	conf_wc_is(y.cq, 10, IBV_WC_LOC_PROT_ERR);
	conf_wc_is(y.cq, 11, IBV_WC_WR_FLUSH_ERR);
	conf_qp_wait(y.qp, IBV_QPS_ERR);
	put(&x, 3, IBV_WR_SEND, 100);
	conf_wc_ok(x.cq, 3);
	EQ(conf_qp_state(x.qp), IBV_QPS_RTS);
	side_pair_free(&x, &y);
}

static void error_flushes(void)
{
	pair();
	OK(conf_recv(x.qp, 10, &x.b, DST, 1000));
	EQ(to_state(&x, IBV_QPS_ERR), 0);
	conf_wc_is(x.cq, 10, IBV_WC_WR_FLUSH_ERR);
	put(&x, 2, IBV_WR_SEND, 100);
	conf_wc_is(x.cq, 2, IBV_WC_WR_FLUSH_ERR);
	OK(conf_recv(x.qp, 11, &x.b, DST, 1000));
	conf_wc_is(x.cq, 11, IBV_WC_WR_FLUSH_ERR);
	side_pair_free(&x, &y);
}

/* ---- the connection manager ------------------------------------------------------- */

static char node[64], service[16];

static struct rdma_cm_id *endpoint(int flags, int ps, int qp_type)
{
	conf_sa addr = conf_addr(AF_INET, 0);
	struct rdma_addrinfo hints = { .ai_flags = flags, .ai_port_space = ps,
				       .ai_qp_type = qp_type }, *res;
	struct ibv_qp_init_attr attr = { .cap = CONF_CAP(4, 4, 1), .sq_sig_all = 1 };
	struct rdma_cm_id *id;

	inet_ntop(AF_INET, &((struct sockaddr_in *)&addr)->sin_addr, node, sizeof(node));
	snprintf(service, sizeof(service), "%u", conf_port(0));
	OK(rdma_getaddrinfo(node, service, &hints, &res));
	EQ(res->ai_qp_type, qp_type);
	OK(rdma_create_ep(&id, res, NULL, &attr));
	EQ(id->qp_type, qp_type);
	rdma_freeaddrinfo(res);
	return id;
}

static void *server(void *arg)
{
	struct rdma_cm_id *listener = arg, *id;
	struct ibv_wc wc;
	struct ibv_mr *mr;
	char buf[64];

	OK(rdma_get_request(listener, &id));
	EQ(id->qp_type, IBV_QPT_UC);
	EQ(id->qp->qp_type, IBV_QPT_UC);
	MUST(mr = rdma_reg_msgs(id, buf, sizeof(buf)));
	OK(rdma_post_recv(id, NULL, buf, sizeof(buf), mr));
	OK(rdma_accept(id, NULL));
	EQ(rdma_get_recv_comp(id, &wc), 1);
	EQ(wc.status, IBV_WC_SUCCESS);
	OK(rdma_post_send(id, NULL, buf, wc.byte_len, mr, 0));
	EQ(rdma_get_send_comp(id, &wc), 1);
	EQ(wc.status, IBV_WC_SUCCESS);
	while (rdma_disconnect(id))
		;
	rdma_dereg_mr(mr);
	rdma_destroy_ep(id);
	return NULL;
}

static void connection_manager(void)
{
	struct rdma_cm_id *listener = endpoint(RAI_PASSIVE, RDMA_PS_IB, IBV_QPT_UC), *id;
	struct ibv_mr *mr;
	struct ibv_wc wc;
	pthread_t t;
	char buf[128] = "question";

	OK(rdma_listen(listener, 0));
	t = conf_thread(server, listener);
	id = endpoint(0, RDMA_PS_IB, IBV_QPT_UC);
	EQ(id->qp->qp_type, IBV_QPT_UC);
	MUST(mr = rdma_reg_msgs(id, buf, sizeof(buf)));
	OK(rdma_post_recv(id, NULL, buf + 64, 64, mr));
	OK(rdma_connect(id, NULL));
	EQ(conf_qp_state(id->qp), IBV_QPS_RTS);
	OK(rdma_post_send(id, NULL, buf, 9, mr, 0));
	EQ(rdma_get_send_comp(id, &wc), 1);
	EQ(wc.status, IBV_WC_SUCCESS);
	EQ(rdma_get_recv_comp(id, &wc), 1);
	EQ(wc.status, IBV_WC_SUCCESS);
	CHECK(!strcmp(buf + 64, "question"));
	OK(rdma_disconnect(id));
	EQ(conf_qp_state(id->qp), IBV_QPS_ERR);
	conf_join(t);
	rdma_dereg_mr(mr);
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
}

static void *reluctant_server(void *arg)
{
	struct rdma_cm_id *id;

	OK(rdma_get_request(arg, &id));
	ERR(rdma_accept(id, NULL), EINVAL);
	rdma_destroy_ep(id);
	return NULL;
}

/* In RDMA_PS_TCP a connection is RC's, whatever the id says: its attributes do not
 * fit a UC QP. */
static void connection_manager_tcp(void)
{
	struct rdma_cm_id *listener = endpoint(RAI_PASSIVE, RDMA_PS_TCP, IBV_QPT_UC), *id;
	pthread_t t;

	OK(rdma_listen(listener, 0));
	t = conf_thread(reluctant_server, listener);
	id = endpoint(0, RDMA_PS_TCP, IBV_QPT_UC);
	CHECK(rdma_connect(id, NULL) == -1);
	conf_join(t);
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
}

static const struct conf_case cases[] = {
	CASE(sends_of_all_sizes),
	CASE(immediate_data),
	CASE(order_of_writes_and_sends),
	CASE(inline_and_several_buffers),
	CASE(shared_receive_queue),
	CASE(to_itself),
	CASE(again_after_reset),
	CASE(first_message_arrives),
	CASE(stream_of_messages),
	CASE(no_reads_no_atomics),
	CASE(no_receive),
	CASE(write_with_immediate_without_receive),
	CASE(too_long_for_the_receive),
	CASE(too_long_for_a_shared_receive),
	CASE(writes_that_are_not_allowed),
	CASE(qp_that_allows_no_writes),
	CASE(peer_that_is_gone),
	CASE(peer_that_never_was),
	CASE(peer_of_another_type),
	CASE(send_queue_error),
	CASE(chain_with_a_bad_one),
	CASE(send_queue_error_without_a_peer),
	CASE(receive_with_bad_lkey),
	CASE(error_flushes),
	CASE(connection_manager),
	CASE(connection_manager_tcp),
};

CONF_MAIN(cases)
