/* SPDX-License-Identifier: BSD-2-Clause */
/* Completion queues that overrun, unsignalled requests, the order of completions, and
 * which request a completion with an error names. */
#include "strict.h"

static struct ibv_send_wr write_wr(uint64_t wr_id, struct ibv_sge *sge)
{
	return conf_rdma(wr_id, IBV_WR_RDMA_WRITE, sge, 1, p.b.p, p.b.mr->rkey);
}

static int post_write(uint64_t wr_id, int flags)
{
	struct ibv_sge sge = conf_sge(&a.b, 0, 8);
	struct ibv_send_wr wr = write_wr(wr_id, &sge);

	wr.send_flags = flags;
	return conf_post(a.qp, &wr);
}

/* ---- overrun ----------------------------------------------------------------------- */

/* The CQ of what `e` completes overruns: what was stored stays, in order; the CQ says
 * CQ_ERR once, each QP that lost a completion QP_FATAL and ERR. */
static void check_overrun(struct st_end *e, struct ibv_cq *cq, int room)
{
	struct ibv_async_event ev;
	struct pollfd fd = { .fd = e->ctx->async_fd, .events = POLLIN };
	bool cq_err = false, fatal = false;

	while (!cq_err || !fatal) {
		AT("waiting for CQ_ERR and QP_FATAL");
		CHECK(poll(&fd, 1, conf_ms(CONF_WAIT)) == 1);
		EQ(ibv_get_async_event(e->ctx, &ev), 0);
		if (ev.event_type == IBV_EVENT_CQ_ERR) {
			CHECK(ev.element.cq == cq && !cq_err);
			cq_err = true;
		} else if (ev.event_type == IBV_EVENT_QP_FATAL) {
			CHECK(ev.element.qp == e->qp && !fatal);
			fatal = true;
		} else {
			FAIL("event \"%s\"", ibv_event_type_str(ev.event_type));
		}
		ibv_ack_async_event(&ev);
	}
	conf_qp_wait(e->qp, IBV_QPS_ERR);
	for (int i = 0; i < room; i++)
		conf_wc_ok(cq, i);
	conf_wc_none(cq, ST_QUIET); /* the queue is over */
	st_event(e, ST_NONE);
}

/* Opens, and returns how many completions this CQ holds: fewer than can be posted, or the
 * case is skipped. */
static int open_small(const struct st_opt *opt, struct ibv_cq **cq)
{
	st_open(opt);
	if ((*cq)->cqe >= 58)
		SKIP("the smallest CQ has %d entries", (*cq)->cqe);
	return (*cq)->cqe;
}

static void send_completions_overrun(void)
{
	struct st_opt opt = { .send_wr = 60, .cqe = 6 };
	int room;

	room = open_small(&opt, &a.scq);
	for (int i = 0; i < room + 2; i++)
		if (post_write(i, IBV_SEND_SIGNALED))
			FAIL("posting %d", i);
	check_overrun(&a, a.scq, room);
	EQ(conf_qp_state(p.qp), IBV_QPS_RTS);
	st_event(&p, ST_NONE);
	st_close();
}

static void receive_completions_overrun(void)
{
	struct st_opt opt = { .recv_wr = 60, .cqe = 6 };
	struct ibv_send_wr wr = conf_wr(0, IBV_WR_SEND, NULL, 0);
	struct ibv_wc wc;
	int room;

	room = open_small(&opt, &p.rcq);
	for (int i = 0; i < room + 2; i++)
		OK(st_recv(&p, i, NULL, 0));
	for (int i = 0; i < room + 1; i++) {
		wr.wr_id = i;
		OK(conf_post(a.qp, &wr));
		do
			AT("polling the sender");
		while (!ibv_poll_cq(a.scq, 1, &wc) && conf_qp_state(p.qp) == IBV_QPS_RTS);
	}
	check_overrun(&p, p.rcq, room);
	st_close();
}

/* An overrun CQ is over for every QP that uses it, but only those that complete there
 * fail. */
static void overrun_of_a_shared_queue(void)
{
	struct st_opt opt = { .send_wr = 60, .cqe = 6 };
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .cap = CONF_CAP(8, 8, 1) };
	struct ibv_qp *other;
	int room;

	room = open_small(&opt, &a.scq);
	attr.send_cq = a.scq;
	attr.recv_cq = a.rcq;
	MUST(other = ibv_create_qp(a.pd, &attr));
	for (int i = 0; i < room + 1; i++)
		OK(post_write(i, IBV_SEND_SIGNALED));
	check_overrun(&a, a.scq, room);
	EQ(conf_qp_state(other), IBV_QPS_RESET);
	EQ(ibv_destroy_qp(other), 0);
	st_close();
}

/* Exactly full is not too full. */
static void full_completion_queue(void)
{
	struct st_opt opt = { .send_wr = 60, .cqe = 6 };
	int room;

	room = open_small(&opt, &a.scq);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < room; i++)
			OK(post_write(i, IBV_SEND_SIGNALED));
		st_event(&a, ST_NONE);
		EQ(conf_qp_state(a.qp), IBV_QPS_RTS);
		for (int i = 0; i < room; i++)
			conf_wc_ok(a.scq, i);
	}
	st_close();
}

/* ---- unsignalled work --------------------------------------------------------------- */

/* Unsignalled requests hold their places until a later signalled one was polled. */
static void unsignalled_work_is_reclaimed(void)
{
	struct st_opt opt = { .send_wr = 8 };
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_wc wc;
	int max;

	st_open(&opt);
	EQ(ibv_query_qp(a.qp, &attr, IBV_QP_CAP, &init), 0);
	max = (int)init.cap.max_send_wr;
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < max - 1; i++)
			OK(post_write(i, 0));
		OK(post_write(100 + round, IBV_SEND_SIGNALED));
		EQ(post_write(99, IBV_SEND_SIGNALED), ENOMEM);
		/* One completion, of the signalled one, gives all places back. */
		conf_wc_ok(a.scq, 100 + round);
		EQ(ibv_poll_cq(a.scq, 1, &wc), 0);
	}
	st_close();
}

/* A queue of nothing but unsignalled work is full for good. */
static void nothing_but_unsignalled_work(void)
{
	struct st_opt opt = { .send_wr = 8 };
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int max;

	st_open(&opt);
	EQ(ibv_query_qp(a.qp, &attr, IBV_QP_CAP, &init), 0);
	max = (int)init.cap.max_send_wr;
	memset(a.b.p, 0x5c, 8);
	for (int i = 0; i < max; i++)
		OK(post_write(i, 0));
	/* They are carried out, and nothing says so. */
	WAIT_FOR(conf_is_fill(p.b.p, 0x5c, 8));
	conf_wc_none(a.scq, ST_QUIET);
	EQ(post_write(99, IBV_SEND_SIGNALED), ENOMEM);
	st_close();
}

static void all_work_is_signalled(void)
{
	struct st_opt opt = { .sig_all = true };

	st_open(&opt);
	for (int i = 0; i < 4; i++)
		OK(post_write(i, 0));
	for (int i = 0; i < 4; i++)
		conf_wc_ok(a.scq, i);
	st_close();
}

/* ---- order and names ------------------------------------------------------------------ */

/* Requests of all kinds, the k-th of which is bad: those before it succeed, it has its
 * status, all behind it are flushed. */
static void check_kth(int k, int n)
{
	static const int kinds[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND,
				     IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_WRITE_WITH_IMM };
	struct ibv_send_wr wr[16];
	struct ibv_sge sge[16];

	for (int i = 0; i < n; i++) {
		int op = kinds[(i + k) % 5];

		OK(st_recv_buf(&p, 100 + i, 65536, 65536));
		OK(st_recv_buf(&a, 200 + i, 65536, 64));
		sge[i] = conf_sge(&a.b, 0, st_is_atomic(op) ? 8 : i % 3 ? 64 : 40000);
		wr[i] = st_rdma(op, &sge[i], 1, p.b.p, p.b.mr->rkey);
		if (i == k)
			wr[i] = st_rdma(IBV_WR_RDMA_WRITE, &sge[i], 1, p.b.p,
					p.b.mr->rkey ^ 0x5a5a00);
		wr[i].wr_id = i;
		wr[i].send_flags = i == k || i % 2 ? IBV_SEND_SIGNALED : 0;
		wr[i].next = i < n - 1 ? &wr[i + 1] : NULL;
	}
	OK(conf_post(a.qp, wr));
	for (int i = 0; i < k; i++)
		if (i % 2)
			conf_wc_ok(a.scq, i);
	conf_wc_is(a.scq, k, IBV_WC_REM_ACCESS_ERR);
	for (int i = k + 1; i < n; i++)
		conf_wc_is(a.scq, i, IBV_WC_WR_FLUSH_ERR);
	conf_wc_none(a.scq, 2);
	for (int i = 0; i < n; i++)
		conf_wc_is(a.rcq, 200 + i, IBV_WC_WR_FLUSH_ERR);
	/* The responder's receives: used ones first, then flushed ones. */
	conf_qp_wait(p.qp, IBV_QPS_ERR);
	for (int i = 0, used = 0; i < n; i++) {
		if (i < k && (wr[i].opcode == IBV_WR_SEND ||
			      wr[i].opcode == IBV_WR_RDMA_WRITE_WITH_IMM))
			conf_wc_ok(p.rcq, 100 + used++);
		if (i == n - 1)
			for (int r = used; r < n; r++)
				conf_wc_is(p.rcq, 100 + r, IBV_WC_WR_FLUSH_ERR);
	}
	conf_wc_none(p.rcq, 2);
	st_again(NULL);
}

static void failure_names_the_request(void)
{
	st_open(NULL);
	for (int k = 0; k < 12; k++)
		check_kth(k, 12);
	st_close();
}

/* Two bad requests: the first is named. */
static void first_failure_counts(void)
{
	struct ibv_send_wr wr[3];
	struct ibv_sge sge;

	st_open(NULL);
	sge = conf_sge(&a.b, 0, 8);
	for (int i = 0; i < 3; i++) {
		wr[i] = write_wr(i, &sge);
		wr[i].wr.rdma.rkey ^= i ? 0x5a5a00 : 0;
		wr[i].next = i < 2 ? &wr[i + 1] : NULL;
	}
	OK(conf_post(a.qp, wr));
	conf_wc_ok(a.scq, 0);
	conf_wc_is(a.scq, 1, IBV_WC_REM_ACCESS_ERR);
	conf_wc_is(a.scq, 2, IBV_WC_WR_FLUSH_ERR);
	st_close();
}

/* A remote failure before a local one, and the other way round. */
static void remote_and_local_failure(void)
{
	st_open(NULL);
	for (int local_first = 0; local_first < 2; local_first++) {
		struct ibv_sge good = conf_sge(&a.b, 0, 8), bad = good;
		struct ibv_send_wr wr[3];

		bad.lkey ^= 1;
		wr[0] = write_wr(0, local_first ? &bad : &good);
		wr[1] = write_wr(1, local_first ? &good : &bad);
		wr[2] = write_wr(2, &good);
		wr[local_first].wr.rdma.rkey ^= 0x5a5a00;
		wr[0].next = &wr[1];
		wr[1].next = &wr[2];
		OK(conf_post(a.qp, wr));
		conf_wc_is(a.scq, 0,
			   local_first ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_ACCESS_ERR);
		conf_wc_is(a.scq, 1, IBV_WC_WR_FLUSH_ERR);
		conf_wc_is(a.scq, 2, IBV_WC_WR_FLUSH_ERR);
		conf_wc_none(a.scq, 5);
		st_again(NULL);
	}
	st_close();
}

/* Behind a failure nothing succeeds, though the peer may have done it: the memory of a
 * read is deregistered while the answer is on its way, a write behind it is done long
 * since. */
static void no_success_behind_a_failure(void)
{
	int failed = 0;

	st_open(NULL);
	for (int round = 0; round < 40; round++) {
		struct conf_buf b = st_buf(a.pd, 200000, CONF_RW, 5);
		struct ibv_sge to = conf_sge(&b, 0, 200000), from = conf_sge(&a.b, 0, 8);
		struct ibv_send_wr wr[2];
		struct ibv_wc wc[2];

		wr[0] = conf_rdma(1, IBV_WR_RDMA_READ, &to, 1, p.b.p, p.b.mr->rkey);
		wr[1] = write_wr(2, &from);
		wr[0].next = &wr[1];
		OK(conf_post(a.qp, wr));
		for (int i = 0; i < round % 8; i++)
			CHECK(ibv_poll_cq(p.rcq, 1, wc) == 0); /* the peer works */
		EQ(ibv_dereg_mr(b.mr), 0);
		b.mr = NULL;
		conf_wc(a.scq, &wc[0]);
		conf_wc(a.scq, &wc[1]);
		EQ(wc[0].wr_id, 1);
		EQ(wc[1].wr_id, 2);
		if (wc[0].status) {
			EQ(wc[0].status, IBV_WC_LOC_PROT_ERR);
			EQ(wc[1].status, IBV_WC_WR_FLUSH_ERR);
			failed++;
		} else {
			EQ(wc[1].status, IBV_WC_SUCCESS);
		}
		st_buf_free(&b);
		st_again(NULL);
	}
	printf("# %d of 40 reads failed\n", failed);
	st_close();
}

/* Reads that were asked for before a bad request are answered. */
static void answers_before_a_failure(void)
{
	st_open(NULL);
	for (int round = 0; round < 10; round++) {
		struct ibv_send_wr wr[4];
		struct ibv_sge sge[4];

		for (int i = 0; i < 4; i++) {
			sge[i] = conf_sge(&a.b, i * 65536, i == 3 ? 64 : 60000);
			wr[i] = conf_rdma(i, i == 3 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
					  &sge[i], 1, p.b.p, p.b.mr->rkey);
			wr[i].next = i < 3 ? &wr[i + 1] : NULL;
		}
		wr[3].wr.rdma.rkey ^= 0x5a5a00;
		OK(conf_post(a.qp, wr));
		for (int i = 0; i < 3; i++)
			conf_wc_ok(a.scq, i);
		conf_wc_is(a.scq, 3, IBV_WC_REM_ACCESS_ERR);
		for (int i = 0; i < 3; i++)
			for (int k = 0; k < 60000; k += 997)
				EQ(a.b.p[i * 65536 + k], p.b.p[k]);
		st_again(NULL);
	}
	st_close();
}

/* The requester of a failed exchange is a responder, too: its peer's work ends. */
static void both_directions_end(void)
{
	struct st_opt opt = { .timeout = 8, .retry = 1 };
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct ibv_wc wc;

	st_open(&opt);
	sge = conf_sge(&a.b, 0, 8);
	wr = write_wr(1, &sge);
	wr.wr.rdma.rkey ^= 0x5a5a00;
	OK(conf_post(a.qp, &wr));
	conf_wc_is(a.scq, 1, IBV_WC_REM_ACCESS_ERR);
	conf_qp_wait(p.qp, IBV_QPS_ERR);
	sge = conf_sge(&p.b, 0, 8);
	wr = conf_rdma(2, IBV_WR_RDMA_WRITE, &sge, 1, a.b.p, a.b.mr->rkey);
	OK(conf_post(p.qp, &wr));
	conf_wc(p.scq, &wc);
	CHECK(wc.wr_id == 2 && wc.status == IBV_WC_WR_FLUSH_ERR);
	st_untouched(&a.b, ST_SEED_A);
	st_close();
}

/* A QP that fails as responder takes its own requests with it. */
static void responder_flushes_its_own_requests(void)
{
	struct ibv_send_wr wr = conf_wr(0, IBV_WR_SEND, NULL, 0);
	struct ibv_sge sge;

	st_open(NULL);
	for (int i = 0; i < 6; i++) { /* a has no receives: they wait */
		wr.wr_id = i;
		wr.send_flags = i % 2 ? IBV_SEND_SIGNALED : 0;
		OK(conf_post(p.qp, &wr));
	}
	conf_wc_none(p.scq, ST_QUIET);
	sge = conf_sge(&a.b, 0, 8);
	wr = write_wr(1, &sge);
	wr.wr.rdma.rkey ^= 0x5a5a00;
	OK(conf_post(a.qp, &wr));
	conf_wc_is(a.scq, 1, IBV_WC_REM_ACCESS_ERR);
	for (int i = 0; i < 6; i++)
		conf_wc_is(p.scq, i, IBV_WC_WR_FLUSH_ERR);
	st_event(&p, IBV_EVENT_QP_ACCESS_ERR);
	st_close();
}

static const struct conf_case cases[] = {
	CASE(send_completions_overrun),
	CASE(receive_completions_overrun),
	CASE(overrun_of_a_shared_queue),
	CASE(full_completion_queue),
	CASE(unsignalled_work_is_reclaimed),
	CASE(nothing_but_unsignalled_work),
	CASE(all_work_is_signalled),
	CASE(failure_names_the_request),
	CASE(first_failure_counts),
	CASE(remote_and_local_failure),
	CASE(no_success_behind_a_failure),
	CASE(answers_before_a_failure),
	CASE(both_directions_end),
	CASE(responder_flushes_its_own_requests),
};

CONF_MAIN(cases)
