/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests that fail: their status at the requester and at the responder, and which other
 * requests are flushed, in which order. */
#include "conf.h"

static struct conf_pair c;
static struct conf_buf a, p;

/* c, with memory of LEN bytes at each end: a and p. Most cases break the QPs, so they end
 * with conf_pair_free() and do not wait for the events of a clean end. */
enum { LEN = 65536 };

static void start_with(size_t len, const struct rdma_conn_param *accept)
{
	struct conf_opt opt = { .accept = accept, .abuf = &a, .pbuf = &p, .len = len };

	conf_pair_open(&c, &opt);
}

static void start(void)
{
	start_with(LEN, NULL);
}

static int post_write(uint64_t wr_id, struct ibv_sge *sge, const void *addr, uint32_t rkey)
{
	struct ibv_send_wr wr = conf_rdma(wr_id, IBV_WR_RDMA_WRITE, sge, 1, addr, rkey);

	return conf_post(c.a->qp, &wr);
}

static int post_send(uint64_t wr_id, size_t len)
{
	struct ibv_sge sge = conf_sge(&a, 0, len);
	struct ibv_send_wr wr = conf_wr(wr_id, IBV_WR_SEND, &sge, 1);

	return conf_post(c.a->qp, &wr);
}

/* Receiver not ready. */

static void late_receive_is_waited_for(void)
{
	start();
	conf_pattern(a.p, 5000, 1);
	OK(post_send(1, 5000));
	OK(post_send(2, 100));
	conf_wc_none(c.a->send_cq, 300);
	OK(conf_recv(c.p->qp, 3, &p, 0, 8192));
	OK(conf_recv(c.p->qp, 4, &p, 8192, 8192));
	conf_wc_ok(c.a->send_cq, 1);
	conf_wc_ok(c.a->send_cq, 2);
	conf_wc_ok(c.p->recv_cq, 3);
	conf_wc_ok(c.p->recv_cq, 4);
	CHECK(conf_pattern_ok(p.p, 5000, 1));
	conf_pair_close(&c);
}

/* What stands behind a waiting send waits as well, and is not done twice. */
static void work_behind_a_late_receive_keeps_its_order(void)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	start();
	*(uint64_t *)(p.p + 4096) = 7;
	OK(post_send(1, 64));
	sge = conf_sge(&a, 1024, 8);
	wr = conf_rdma(2, IBV_WR_ATOMIC_FETCH_AND_ADD, &sge, 1, p.p + 4096, p.mr->rkey);
	wr.wr.atomic.compare_add = 1;
	OK(conf_post(c.a->qp, &wr));
	sge = conf_sge(&a, 2048, 64);
	memset(a.p + 2048, 0x77, 64);
	OK(post_write(3, &sge, p.p + 8192, p.mr->rkey));
	conf_wc_none(c.a->send_cq, 300);
	EQ(*(volatile uint64_t *)(p.p + 4096), 7); /* not before the send */
	EQ(p.p[8192], 0);
	OK(conf_recv(c.p->qp, 4, &p, 0, 64));
	conf_wc_ok(c.a->send_cq, 1);
	conf_wc_ok(c.a->send_cq, 2);
	conf_wc_ok(c.a->send_cq, 3);
	EQ(*(volatile uint64_t *)(p.p + 4096), 8); /* once */
	EQ(*(uint64_t *)(a.p + 1024), 7);
	EQ(p.p[8192], 0x77);
	conf_wc_ok(c.p->recv_cq, 4);
	conf_pair_close(&c);
}

static void rnr_retry_zero_fails_at_once(void)
{
	struct rdma_conn_param acc = conf_param();

	acc.rnr_retry_count = 0; /* the initiator's QP takes it from the reply */
	start_with(LEN, &acc);
	OK(post_send(1, 64));
	OK(post_send(2, 64));
	conf_wc_is(c.a->send_cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	conf_wc_is(c.a->send_cq, 2, IBV_WC_WR_FLUSH_ERR);
	QP_STATE(c.a->qp, IBV_QPS_ERR);
	conf_pair_free(&c);
}

static void rnr_retry_one_fails_later(void)
{
	struct rdma_conn_param acc = conf_param();
	uint64_t begin;

	acc.rnr_retry_count = 1;
	start_with(LEN, &acc);
	begin = conf_now();
	OK(post_send(1, 64));
	conf_wc_is(c.a->send_cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	/* min_rnr_timer 0 means 655.36 ms */
	CHECK(conf_now() - begin > 500000000);
	conf_pair_free(&c);
}

static void immediate_needs_a_receive_as_well(void)
{
	struct rdma_conn_param acc = conf_param();
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	acc.rnr_retry_count = 0;
	start_with(LEN, &acc);
	sge = conf_sge(&a, 0, 64);
	wr = conf_rdma(1, IBV_WR_RDMA_WRITE_WITH_IMM, &sge, 1, p.p, p.mr->rkey);
	OK(conf_post(c.a->qp, &wr));
	conf_wc_is(c.a->send_cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	conf_pair_free(&c);
}

/* Length. */

static void receive_too_small(void)
{
	start();
	OK(conf_recv(c.p->qp, 1, &p, 0, 99));
	OK(conf_recv(c.p->qp, 2, &p, 100, 4096));
	OK(post_send(3, 100));
	conf_wc_is(c.a->send_cq, 3, IBV_WC_REM_INV_REQ_ERR);
	conf_wc_is(c.p->recv_cq, 1, IBV_WC_LOC_LEN_ERR);
	conf_wc_is(c.p->recv_cq, 2, IBV_WC_WR_FLUSH_ERR);
	QP_STATE(c.a->qp, IBV_QPS_ERR);
	conf_qp_wait(c.p->qp, IBV_QPS_ERR);
	EQ(p.p[99], 0); /* nothing beyond the receive's buffer */
	conf_pair_free(&c);
}

static void large_receive_too_small(void)
{
	start();
	OK(conf_recv(c.p->qp, 1, &p, 0, 30000));
	OK(post_send(3, 60000));
	conf_wc_is(c.a->send_cq, 3, IBV_WC_REM_INV_REQ_ERR);
	conf_wc_is(c.p->recv_cq, 1, IBV_WC_LOC_LEN_ERR);
	CONF_MSG_ZERO(p.p + 30000, 10000);
	conf_pair_free(&c);
}

static void receive_without_buffer_too_small(void)
{
	start();
	OK(conf_recv(c.p->qp, 1, NULL, 0, 0));
	OK(post_send(3, 1));
	conf_wc_is(c.a->send_cq, 3, IBV_WC_REM_INV_REQ_ERR);
	conf_wc_is(c.p->recv_cq, 1, IBV_WC_LOC_LEN_ERR);
	conf_pair_free(&c);
}

/* Remote access. */

static void check_remote_refused(int opcode, size_t len, const void *addr, uint32_t rkey)
{
	struct ibv_sge sge = conf_sge(&a, 0, len);
	struct ibv_send_wr wr = conf_rdma(1, opcode, &sge, 1, addr, rkey);

	OK(conf_post(c.a->qp, &wr));
	OK(post_send(2, 8)); /* flushed behind it */
	conf_wc_is(c.a->send_cq, 1, IBV_WC_REM_ACCESS_ERR);
	conf_wc_is(c.a->send_cq, 2, IBV_WC_WR_FLUSH_ERR);
	QP_STATE(c.a->qp, IBV_QPS_ERR);
}

static void write_with_bad_key(void)
{
	start();
	check_remote_refused(IBV_WR_RDMA_WRITE, 64, p.p, p.mr->rkey ^ 0x5a5a00);
	CONF_MSG_ZERO(p.p, 64);
	conf_pair_free(&c);
}

static void read_with_bad_key(void)
{
	start();
	memset(a.p, 0x33, 64);
	check_remote_refused(IBV_WR_RDMA_READ, 64, p.p, p.mr->rkey ^ 0x5a5a00);
	CHECK(conf_is_fill(a.p, 0x33, 64));
	conf_pair_free(&c);
}

static void write_beyond_the_region(void)
{
	start();
	memset(a.p, 0x44, 128);
	check_remote_refused(IBV_WR_RDMA_WRITE, 128, p.p + LEN - 127, p.mr->rkey);
	conf_pair_free(&c);
}

static void write_before_the_region(void)
{
	start();
	check_remote_refused(IBV_WR_RDMA_WRITE, 128, p.p - 1, p.mr->rkey);
	conf_pair_free(&c);
}

static void read_beyond_the_region(void)
{
	start();
	check_remote_refused(IBV_WR_RDMA_READ, 128, p.p + LEN - 127, p.mr->rkey);
	conf_pair_free(&c);
}

static void large_write_beyond_the_region(void)
{
	start();
	check_remote_refused(IBV_WR_RDMA_WRITE, 60000, p.p + 10000, p.mr->rkey);
	conf_pair_free(&c);
}

static void write_around_the_end_of_addresses(void)
{
	start();
	check_remote_refused(IBV_WR_RDMA_WRITE, 128, (void *)(uintptr_t)-64, p.mr->rkey);
	conf_pair_free(&c);
}

static void check_access(int access, int opcode)
{
	start();
	conf_buf_free(&p);
	p = conf_buf(c.p->pd, LEN, access);
	check_remote_refused(opcode, 8, p.p, p.mr->rkey);
	conf_pair_free(&c);
}

static void write_without_right(void)
{
	check_access(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, IBV_WR_RDMA_WRITE);
}

static void read_without_right(void)
{
	check_access(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, IBV_WR_RDMA_READ);
}

static void atomic_without_right(void)
{
	check_access(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
		     IBV_WR_ATOMIC_FETCH_AND_ADD);
}

static void write_into_another_pd(void)
{
	struct ibv_pd *pd;

	start();
	MUST(pd = ibv_alloc_pd(c.p->verbs));
	conf_buf_free(&p);
	p = conf_buf(pd, LEN, CONF_RW);
	check_remote_refused(IBV_WR_RDMA_WRITE, 64, p.p, p.mr->rkey);
	CONF_MSG_ZERO(p.p, 64);
	conf_pair_free(&c);
	OK(ibv_dealloc_pd(pd));
}

static void write_to_deregistered_memory(void)
{
	uint32_t rkey;

	start();
	rkey = p.mr->rkey;
	OK(ibv_dereg_mr(p.mr));
	p.mr = NULL;
	check_remote_refused(IBV_WR_RDMA_WRITE, 64, p.p, rkey);
	CONF_MSG_ZERO(p.p, 64);
	conf_pair_free(&c);
}

static void unaligned_atomic(void)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	uint64_t left;

	start();
	sge = conf_sge(&a, 0, 8);
	wr = conf_rdma(1, IBV_WR_ATOMIC_FETCH_AND_ADD, &sge, 1, p.p + 4, p.mr->rkey);
	wr.wr.atomic.compare_add = 1;
	OK(conf_post(c.a->qp, &wr));
	conf_wc_is(c.a->send_cq, 1, IBV_WC_REM_INV_REQ_ERR);
	memcpy(&left, p.p + 4, sizeof(left));
	EQ(left, 0);
	conf_pair_free(&c);
}

/* The responder of a refused request ends up in ERR too. */
static void responder_goes_to_err(void)
{
	start();
	OK(conf_recv(c.p->qp, 9, &p, 0, 64));
	check_remote_refused(IBV_WR_RDMA_WRITE, 64, p.p, p.mr->rkey ^ 0x5a5a00);
	conf_qp_wait(c.p->qp, IBV_QPS_ERR);
	conf_wc_is(c.p->recv_cq, 9, IBV_WC_WR_FLUSH_ERR);
	conf_pair_free(&c);
}

/* ... when it has answered what came before, so that its application may destroy
 * it at once. */
static void responder_answers_first(void)
{
	enum { MUCH = 32 << 20 };
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	start_with(MUCH, NULL);
	conf_pattern(p.p, MUCH, 3);
	sge = conf_sge(&a, 0, MUCH);
	wr = conf_rdma(1, IBV_WR_RDMA_READ, &sge, 1, p.p, p.mr->rkey);
	OK(conf_post(c.a->qp, &wr));
	sge = conf_sge(&a, 0, 8);
	OK(post_write(2, &sge, p.p, p.mr->rkey ^ 0x5a5a00));
	conf_qp_wait(c.p->qp, IBV_QPS_ERR);
	rdma_destroy_qp(c.p);
	conf_wc_ok(c.a->send_cq, 1);
	conf_wc_is(c.a->send_cq, 2, IBV_WC_REM_ACCESS_ERR);
	CHECK(conf_pattern_ok(a.p, MUCH, 3));
	conf_pair_free(&c);
}

/* ... and in the middle of a read of its own. */
static void responder_fails_while_it_reads(void)
{
	enum { MUCH = 16 << 20 };
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_wc wc;

	for (int i = 0; i < 10; i++) {
		start_with(2 * MUCH, NULL);
		sge = conf_sge(&p, MUCH, MUCH);
		wr = conf_rdma(3, IBV_WR_RDMA_READ, &sge, 1, a.p + MUCH, a.mr->rkey);
		OK(conf_post(c.p->qp, &wr));
		sge = conf_sge(&a, 0, MUCH / 4);
		wr = conf_rdma(1, IBV_WR_RDMA_READ, &sge, 1, p.p, p.mr->rkey);
		OK(conf_post(c.a->qp, &wr));
		sge = conf_sge(&a, 0, 8);
		OK(post_write(2, &sge, p.p, p.mr->rkey ^ 0x5a5a00));
		conf_wc_ok(c.a->send_cq, 1);
		conf_wc_is(c.a->send_cq, 2, IBV_WC_REM_ACCESS_ERR);
		conf_wc(c.p->send_cq, &wc);
		EQ(wc.wr_id, 3);
		CHECK(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_WR_FLUSH_ERR);
		conf_pair_free(&c);
	}
}

/* ... and its application hears of it. */
static void responder_gets_an_async_event(void)
{
	start();
	check_remote_refused(IBV_WR_RDMA_WRITE, 64, p.p, p.mr->rkey ^ 0x5a5a00);
	conf_async(c.p->verbs, IBV_EVENT_QP_ACCESS_ERR, c.p->qp);
	conf_pair_free(&c);
}

/* Local errors. */

static void check_local_refused(struct ibv_sge sge, int opcode)
{
	struct ibv_send_wr wr = conf_rdma(1, opcode, &sge, 1, p.p, p.mr->rkey);

	OK(conf_recv(c.p->qp, 8, &p, 0, LEN));
	OK(conf_post(c.a->qp, &wr));
	conf_wc_is(c.a->send_cq, 1, IBV_WC_LOC_PROT_ERR);
	QP_STATE(c.a->qp, IBV_QPS_ERR);
	conf_wc_none(c.p->recv_cq, 50);
	conf_pair_free(&c);
}

static void send_with_bad_lkey(void)
{
	struct ibv_sge sge;

	start();
	sge = conf_sge(&a, 0, 64);
	sge.lkey ^= 0x5a5a00;
	check_local_refused(sge, IBV_WR_SEND);
}

static void send_from_beyond_the_region(void)
{
	struct ibv_sge sge;

	start();
	sge = conf_sge(&a, LEN - 32, 64);
	check_local_refused(sge, IBV_WR_SEND);
}

static void write_from_beyond_the_region(void)
{
	struct ibv_sge sge;

	start();
	sge = conf_sge(&a, LEN - 32, 64);
	check_local_refused(sge, IBV_WR_RDMA_WRITE);
}

static void send_from_another_pd(void)
{
	struct ibv_pd *pd;
	struct conf_buf b;
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	start();
	MUST(pd = ibv_alloc_pd(c.a->verbs));
	b = conf_buf(pd, 4096, CONF_RW);
	sge = conf_sge(&b, 0, 64);
	wr = conf_wr(1, IBV_WR_SEND, &sge, 1);
	OK(conf_recv(c.p->qp, 8, &p, 0, 64));
	OK(conf_post(c.a->qp, &wr));
	conf_wc_is(c.a->send_cq, 1, IBV_WC_LOC_PROT_ERR);
	conf_buf_free(&b);
	OK(ibv_dealloc_pd(pd));
	conf_pair_free(&c);
}

static void read_into_read_only_region(void)
{
	struct conf_buf b;
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	start();
	b = conf_buf(c.a->pd, 4096, 0);
	sge = conf_sge(&b, 0, 64);
	memset(p.p, 0x12, 64);
	wr = conf_rdma(1, IBV_WR_RDMA_READ, &sge, 1, p.p, p.mr->rkey);
	OK(conf_post(c.a->qp, &wr));
	conf_wc_is(c.a->send_cq, 1, IBV_WC_LOC_PROT_ERR);
	CONF_MSG_ZERO(b.p, 64);
	conf_buf_free(&b);
	conf_pair_free(&c);
}

static void receive_with_bad_lkey(void)
{
	struct ibv_sge sge;
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 }, *bad;

	start();
	sge = conf_sge(&p, 0, 64);
	sge.lkey ^= 0x5a5a00;
	OK(ibv_post_recv(c.p->qp, &wr, &bad));
	OK(post_send(2, 64));
	conf_wc_is(c.p->recv_cq, 1, IBV_WC_LOC_PROT_ERR);
	conf_wc_is(c.a->send_cq, 2, IBV_WC_REM_OP_ERR);
	CONF_MSG_ZERO(p.p, 64);
	conf_pair_free(&c);
}

/* Only windows can be invalidated from afar; a region stays as it is. The send has arrived
 * when this is found out: the receive fails, and nobody answers the next request. */
static void invalidating_a_region(void)
{
	struct ibv_send_wr wr;
	struct ibv_wc wc;

	start();
	OK(conf_recv(c.p->qp, 1, &p, 0, 64));
	OK(conf_recv(c.p->qp, 3, &p, 0, 64));
	wr = conf_inv(2, IBV_WR_SEND_WITH_INV, p.mr->rkey);
	OK(conf_post(c.a->qp, &wr));
	conf_wc_ok(c.a->send_cq, 2);
	conf_wc(c.p->recv_cq, &wc);
	CHECK(wc.wr_id == 1 && wc.status != IBV_WC_SUCCESS);
	conf_wc_is(c.p->recv_cq, 3, IBV_WC_WR_FLUSH_ERR);
	OK(post_send(4, 64));
	conf_wc_is(c.a->send_cq, 4, IBV_WC_RETRY_EXC_ERR);
	conf_pair_free(&c);
}

/* Flush. */

static void flush_keeps_the_order(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	start();
	for (int i = 0; i < 6; i++)
		OK(conf_recv(c.a->qp, 100 + i, &a, 0, 64));
	sge = conf_sge(&a, 0, 64);
	OK(post_write(1, &sge, p.p, p.mr->rkey)); /* good */
	OK(post_write(2, &sge, p.p, p.mr->rkey ^ 0x5a5a00)); /* bad */
	for (int i = 3; i < 9; i++) {
		wr = conf_rdma(i, i % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, &sge, 1, p.p,
			       p.mr->rkey);
		wr.send_flags = i == 4 ? 0 : IBV_SEND_SIGNALED;
		OK(conf_post(c.a->qp, &wr));
	}
	conf_wc_ok(c.a->send_cq, 1);
	conf_wc_is(c.a->send_cq, 2, IBV_WC_REM_ACCESS_ERR);
	for (int i = 3; i < 9; i++) /* unsignalled ones as well */
		conf_wc_is(c.a->send_cq, i, IBV_WC_WR_FLUSH_ERR);
	for (int i = 0; i < 6; i++)
		conf_wc_is(c.a->recv_cq, 100 + i, IBV_WC_WR_FLUSH_ERR);
	conf_wc_none(c.a->send_cq, 20);
	conf_pair_free(&c);
}

/* A failing request is reported though it was not signalled. */
static void unsignalled_failure_is_reported(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	start();
	sge = conf_sge(&a, 0, 64);
	wr = conf_rdma(1, IBV_WR_RDMA_WRITE, &sge, 1, p.p, p.mr->rkey ^ 0x5a5a00);
	wr.send_flags = 0;
	OK(conf_post(c.a->qp, &wr));
	conf_wc_is(c.a->send_cq, 1, IBV_WC_REM_ACCESS_ERR);
	conf_pair_free(&c);
}

static void modify_to_err_flushes(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	start();
	for (int i = 0; i < 4; i++)
		OK(conf_recv(c.a->qp, 10 + i, &a, 0, 64));
	for (int i = 0; i < 4; i++)
		OK(post_send(i, 64)); /* no receive there: they wait */
	OK(ibv_modify_qp(c.a->qp, &attr, IBV_QP_STATE));
	for (int i = 0; i < 4; i++)
		conf_wc_is(c.a->send_cq, i, IBV_WC_WR_FLUSH_ERR);
	for (int i = 0; i < 4; i++)
		conf_wc_is(c.a->recv_cq, 10 + i, IBV_WC_WR_FLUSH_ERR);
	conf_pair_free(&c);
}

static void short_timeout(struct rdma_cm_id *id, bool active)
{
	uint8_t timeout = 12;

	(void)active;
	OK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1));
}

/* The peer's QP is gone: nobody says so, the retries end. */
static void peer_destroyed_its_qp(void)
{
	struct rdma_conn_param con = conf_param();
	struct conf_opt opt = { .connect = &con, .prepare = short_timeout,
				.abuf = &a, .len = LEN };

	con.retry_count = 1;
	conf_pair_open(&c, &opt);
	rdma_destroy_qp(c.p);
	OK(post_send(1, 64));
	OK(post_send(2, 64));
	conf_wc_is(c.a->send_cq, 1, IBV_WC_RETRY_EXC_ERR);
	conf_wc_is(c.a->send_cq, 2, IBV_WC_WR_FLUSH_ERR);
	conf_quiet(c.ach, 50); /* no event of the connection */
	conf_pair_free(&c);
}

/* Another connection of the process does not suffer. */
static void failure_stays_in_its_connection(void)
{
	struct conf_buf b;
	struct conf_opt opt = { .abuf = &b, .len = 4096 };
	struct conf_pair other;
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	start();
	conf_pair_open(&other, &opt);
	check_remote_refused(IBV_WR_RDMA_WRITE, 64, p.p, p.mr->rkey ^ 0x5a5a00);
	sge = conf_sge(&b, 0, 64);
	wr = conf_rdma(5, IBV_WR_RDMA_WRITE, &sge, 1, p.p, p.mr->rkey);
	OK(conf_post(other.a->qp, &wr));
	conf_wc_ok(other.a->send_cq, 5);
	QP_STATE(other.p->qp, IBV_QPS_RTS);
	conf_pair_close(&other);
	conf_pair_free(&c);
}

static const struct conf_case cases[] = {
	CASE(late_receive_is_waited_for),
	CASE(work_behind_a_late_receive_keeps_its_order),
	CASE(rnr_retry_zero_fails_at_once),
	CASE(rnr_retry_one_fails_later),
	CASE(immediate_needs_a_receive_as_well),
	CASE(receive_too_small),
	CASE(large_receive_too_small),
	CASE(receive_without_buffer_too_small),
	CASE(write_with_bad_key),
	CASE(read_with_bad_key),
	CASE(write_beyond_the_region),
	CASE(write_before_the_region),
	CASE(read_beyond_the_region),
	CASE(large_write_beyond_the_region),
	CASE(write_around_the_end_of_addresses),
	CASE(write_without_right),
	CASE(read_without_right),
	CASE(atomic_without_right),
	CASE(write_into_another_pd),
	CASE(write_to_deregistered_memory),
	CASE(unaligned_atomic),
	CASE(responder_goes_to_err),
	CASE(responder_answers_first),
	CASE(responder_fails_while_it_reads),
	CASE(responder_gets_an_async_event),
	CASE(send_with_bad_lkey),
	CASE(send_from_beyond_the_region),
	CASE(write_from_beyond_the_region),
	CASE(send_from_another_pd),
	CASE(read_into_read_only_region),
	CASE(receive_with_bad_lkey),
	CASE(invalidating_a_region),
	CASE(flush_keeps_the_order),
	CASE(unsignalled_failure_is_reported),
	CASE(modify_to_err_flushes),
	CASE(peer_destroyed_its_qp),
	CASE(failure_stays_in_its_connection),
};

CONF_MAIN(cases)
