/* SPDX-License-Identifier: BSD-2-Clause */
/* ibv_create_cq_ex(): polling with ibv_start_poll() and ibv_next_poll(), the fields of a
 * completion, timestamps. Moderation and resizing, which every CQ has, are here, too. */
#include "side.h"

#include <time.h>

enum {
	STANDARD = IBV_WC_STANDARD_FLAGS,
	STAMP = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
	WALL = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
};

static struct side x, y;

static void pair(struct side_opt o)
{
	side_pair_with(&x, &y, o, o);
}

static void post(uint64_t wr_id, int opcode, uint32_t len, uint32_t imm)
{
	struct ibv_sge sge = conf_sge(&x.b, 0, len);
	struct ibv_send_wr wr =
		conf_rdma(wr_id, opcode, &sge, 1, y.b.p + 65536, y.b.mr->rkey);

	wr.imm_data = htonl(imm);
	OK(conf_post(x.qp, &wr));
}

static int start(struct side *s)
{
	struct ibv_poll_cq_attr attr = { 0 };

	return ibv_start_poll(s->cqx, &attr);
}

/* Starts a batch; its first completion must come. */
static void begin(struct side *s)
{
	uint64_t end = conf_now() + conf_ms(CONF_WAIT) * 1000000ull;
	int r;

	AT("ibv_start_poll");
	while ((r = start(s)) == ENOENT)
		if (conf_now() > end)
			FAIL("no completion");
	EQ(r, 0);
}

static void fields_of_a_receive(void)
{
	pair((struct side_opt){ .wc_flags = STANDARD });
	for (int i = 0; i < 3; i++)
		OK(conf_recv(y.qp, 100 + i, &y.b, 0, 2000));
	post(1, IBV_WR_SEND, 1234, 0);
	post(2, IBV_WR_SEND_WITH_IMM, 10, 0xabcdef);
	post(3, IBV_WR_RDMA_WRITE_WITH_IMM, 600, 77);
	for (int i = 0; i < 3; i++) {
		begin(&y);
		EQ(y.cqx->wr_id, 100 + i);
		EQ(y.cqx->status, IBV_WC_SUCCESS);
		EQ(ibv_wc_read_opcode(y.cqx),
		   i < 2 ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM);
		EQ(ibv_wc_read_byte_len(y.cqx), i == 0 ? 1234 : i == 1 ? 10 : 600);
		EQ(ibv_wc_read_qp_num(y.cqx), y.qp->qp_num);
		EQ(!!(ibv_wc_read_wc_flags(y.cqx) & IBV_WC_WITH_IMM), i > 0);
		if (i)
			EQ(ntohl(ibv_wc_read_imm_data(y.cqx)), i == 1 ? 0xabcdef : 77);
		/* Of a datagram, or of another link layer: read, not judged. */
		ibv_wc_read_src_qp(y.cqx);
		ibv_wc_read_slid(y.cqx);
		ibv_wc_read_sl(y.cqx);
		ibv_wc_read_dlid_path_bits(y.cqx);
		ibv_wc_read_vendor_err(y.cqx);
		ibv_end_poll(y.cqx);
	}
	side_pair_free(&x, &y);
}

static void fields_of_a_send(void)
{
	static const struct {
		int wr, wc;
	} op[] = { { IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE },
		   { IBV_WR_RDMA_READ, IBV_WC_RDMA_READ },
		   { IBV_WR_SEND, IBV_WC_SEND } };

	pair((struct side_opt){ .wc_flags = STANDARD });
	OK(conf_recv(y.qp, 100, &y.b, 0, 2000));
	for (int i = 0; i < 3; i++) {
		post(i, op[i].wr, 500, 0);
		begin(&x);
		EQ(x.cqx->wr_id, i);
		EQ(x.cqx->status, IBV_WC_SUCCESS);
		EQ(ibv_wc_read_opcode(x.cqx), op[i].wc);
		EQ(ibv_wc_read_qp_num(x.cqx), x.qp->qp_num);
		ibv_end_poll(x.cqx);
	}
	side_pair_free(&x, &y);
}

static void status_of_a_failure(void)
{
	pair((struct side_opt){ .wc_flags = STANDARD });
	y.b.mr->rkey ^= 0x5a00; /* posted with a wrong key */
	post(1, IBV_WR_RDMA_WRITE, 100, 0);
	post(2, IBV_WR_RDMA_WRITE, 100, 0);
	y.b.mr->rkey ^= 0x5a00;
	begin(&x);
	EQ(x.cqx->wr_id, 1);
	EQ(x.cqx->status, IBV_WC_REM_ACCESS_ERR);
	EQ(ibv_wc_read_qp_num(x.cqx), x.qp->qp_num);
	ibv_end_poll(x.cqx);
	begin(&x);
	EQ(x.cqx->wr_id, 2);
	EQ(x.cqx->status, IBV_WC_WR_FLUSH_ERR);
	ibv_end_poll(x.cqx);
	side_pair_free(&x, &y);
}

static void batches(void)
{
	pair((struct side_opt){ .wc_flags = STANDARD });
	EQ(start(&x), ENOENT); /* no ibv_end_poll after that */
	EQ(start(&x), ENOENT);
	for (int round = 0; round < 20; round++) {
		int n = 0;

		for (int i = 0; i < 12; i++)
			post(i, IBV_WR_RDMA_WRITE, 100, 0);
		while (n < 12) {
			begin(&x);
			do {
				EQ(x.cqx->wr_id, n++);
				EQ(x.cqx->status, IBV_WC_SUCCESS);
			} while (n % 5 && !ibv_next_poll(x.cqx));
			ibv_end_poll(x.cqx); /* what is left is for the next batch */
		}
		EQ(start(&x), ENOENT);
	}
	/* The end of a batch is told by ENOENT, and it still is to be ended. */
	post(1, IBV_WR_RDMA_WRITE, 100, 0);
	begin(&x);
	EQ(ibv_next_poll(x.cqx), ENOENT);
	ibv_end_poll(x.cqx);
	EQ(start(&x), ENOENT);
	side_pair_free(&x, &y);
}

/* ENOENT says that the CQ is empty, not that a batch is over. */
static void what_comes_during_a_batch_belongs_to_it(void)
{
	pair((struct side_opt){ .wc_flags = STANDARD });
	post(1, IBV_WR_RDMA_WRITE, 100, 0);
	begin(&x);
	for (int i = 2; i < 8; i++) {
		int ret;

		EQ(ibv_next_poll(x.cqx), ENOENT);
		post(i, IBV_WR_RDMA_WRITE, 100, 0);
		WAIT_FOR((ret = ibv_next_poll(x.cqx)) != ENOENT);
		EQ(ret, 0);
		EQ(x.cqx->wr_id, i);
		EQ(x.cqx->status, IBV_WC_SUCCESS);
	}
	EQ(ibv_next_poll(x.cqx), ENOENT);
	ibv_end_poll(x.cqx);
	EQ(start(&x), ENOENT);
	side_pair_free(&x, &y);
}

/* Posting in the middle of a batch, and polling by the old call between two. */
static void batches_and_the_rest(void)
{
	pair((struct side_opt){ .wc_flags = STANDARD });
	post(1, IBV_WR_RDMA_WRITE, 100, 0);
	begin(&x);
	for (int i = 2; i < 10; i++)
		post(i, IBV_WR_RDMA_WRITE, 100, 0);
	EQ(x.cqx->wr_id, 1);
	EQ(ibv_wc_read_opcode(x.cqx), IBV_WC_RDMA_WRITE);
	ibv_end_poll(x.cqx);
	for (int i = 2; i < 10; i += 2) {
		conf_wc_ok(x.cq, i);
		begin(&x);
		EQ(x.cqx->wr_id, i + 1);
		ibv_end_poll(x.cqx);
	}
	side_pair_free(&x, &y);
}

/* ---- two pollers ---------------------------------------------------------------- */

enum { POLLERS = 3, MESSAGES = 600 };
static atomic_uint seen[MESSAGES], total;

static void *poller(void *arg)
{
	struct side *s = arg;

	while (atomic_load(&total) < MESSAGES) {
		if (start(s))
			continue;
		do {
			uint64_t id = s->cqx->wr_id;

			/* Nobody else moves the iterator meanwhile. */
			for (int i = 0; i < 20; i++)
				if (ibv_wc_read_byte_len(s->cqx) != id % 1000 ||
				    s->cqx->status)
					abort();
			atomic_fetch_add(&seen[id], 1);
			atomic_fetch_add(&total, 1);
		} while (!ibv_next_poll(s->cqx));
		ibv_end_poll(s->cqx);
	}
	return NULL;
}

static void pollers_do_not_mix(void)
{
	pthread_t t[POLLERS];
	struct side_opt o = { .wc_flags = STANDARD, .wr = MESSAGES };

	side_pair_with(&x, &y, (struct side_opt){ 0 }, o);
	for (int i = 0; i < MESSAGES; i++)
		OK(conf_recv(y.qp, i, &y.b, 0, 1000));
	for (int i = 0; i < POLLERS; i++)
		t[i] = conf_thread(poller, &y);
	for (int i = 0; i < MESSAGES; i++) {
		OK(conf_send(x.qp, i, &x.b, 0, i % 1000));
		conf_wc_ok(x.cq, i);
	}
	for (int i = 0; i < POLLERS; i++)
		conf_join(t[i]);
	for (int i = 0; i < MESSAGES; i++)
		EQ(atomic_load(&seen[i]), 1);
	side_pair_free(&x, &y);
}

static void events(void)
{
	struct ibv_cq *cq;
	void *ctx;

	pair((struct side_opt){ .wc_flags = STANDARD, .channel = true });
	OK(ibv_req_notify_cq(x.cq, 0));
	post(1, IBV_WR_RDMA_WRITE, 100, 0);
	WAIT_FOR(conf_readable(x.ch->fd));
	OK(ibv_get_cq_event(x.ch, &cq, &ctx));
	CHECK(cq == x.cq && ctx == x.ch);
	ibv_ack_cq_events(cq, 1);
	begin(&x);
	EQ(x.cqx->wr_id, 1);
	ibv_end_poll(x.cqx);
	side_pair_free(&x, &y);
}

/* ---- stamps ---------------------------------------------------------------------- */

static uint64_t raw_clock(void)
{
	struct ibv_values_ex v = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };

	OK(ibv_query_rt_values_ex(dev.ctx, &v));
	CHECK(v.comp_mask & IBV_VALUES_MASK_RAW_CLOCK);
	return (uint64_t)v.raw_clock.tv_sec * 1000000000u + (uint64_t)v.raw_clock.tv_nsec;
}

static void stamps(void)
{
	struct ibv_device_attr_ex attr;
	uint64_t before, ts, last = 0;

	pair((struct side_opt){ .wc_flags = STANDARD | STAMP });
	OK(ibv_query_device_ex(dev.ctx, NULL, &attr));
	CHECK(attr.completion_timestamp_mask);
	CHECK(attr.hca_core_clock);
	for (int i = 0; i < 10; i++) {
		before = raw_clock();
		post(i, IBV_WR_RDMA_WRITE, 100, 0);
		begin(&x);
		ts = ibv_wc_read_completion_ts(x.cqx);
		ibv_end_poll(x.cqx);
		CHECK(ts >= before && ts <= raw_clock());
		CHECK(ts >= last);
		last = ts;
	}
	/* It is the time of the completion, not of the poll. */
	OK(conf_recv(y.qp, 100, &y.b, 0, 100));
	post(20, IBV_WR_SEND, 10, 0);
	begin(&x); /* acknowledged: the receive has completed */
	before = raw_clock();
	ibv_end_poll(x.cqx);
	usleep(20000); /* time is the point: the poll is later */
	begin(&y);
	CHECK(ibv_wc_read_completion_ts(y.cqx) <= before);
	ibv_end_poll(y.cqx);
	side_pair_free(&x, &y);
}

static void wall_clock(void)
{
	struct timespec a, b;
	uint64_t ts, slack = 1000000; /* two clocks are read one after the other */

	pair((struct side_opt){ .wc_flags = STANDARD | STAMP | WALL });
	for (int i = 0; i < 5; i++) {
		clock_gettime(CLOCK_REALTIME, &a);
		post(i, IBV_WR_RDMA_WRITE, 100, 0);
		begin(&x);
		ts = ibv_wc_read_completion_wallclock_ns(x.cqx);
		clock_gettime(CLOCK_REALTIME, &b);
		ibv_end_poll(x.cqx);
		CHECK(ts + slack >= a.tv_sec * 1000000000ull + a.tv_nsec);
		CHECK(ts <= b.tv_sec * 1000000000ull + b.tv_nsec + slack);
	}
	side_pair_free(&x, &y);
}

/* ---- creation ---------------------------------------------------------------------- */

static void refuse(struct ibv_cq_init_attr_ex a, int err)
{
	struct ibv_cq_ex *cq;

	errno = 0;
	cq = ibv_create_cq_ex(dev.ctx, &a);
	CHECK(!cq);
	if (conf_user_device())
		EQ(errno, err);
	else
		CHECK(errno);
}

static void creation(void)
{
	struct ibv_cq_init_attr_ex ok = { .cqe = 10, .wc_flags = STANDARD }, a;
	struct ibv_cq_ex *cq;

	open_device();
	cq = ibv_create_cq_ex(dev.ctx, &ok);
	if (!cq && errno == EOPNOTSUPP)
		SKIP("no extended CQs");
	MUST(cq);
	CHECK(cq->cqe >= 10);
	OK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	a = ok;
	a.wc_flags |= IBV_WC_EX_WITH_TM_INFO;
	refuse(a, EOPNOTSUPP);
	a = ok;
	a.wc_flags |= 1ull << 50;
	refuse(a, EOPNOTSUPP);
	a = ok;
	a.comp_mask = 1u << 20;
	refuse(a, EOPNOTSUPP);
	a = ok;
	a.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
	a.flags = 1u << 20;
	refuse(a, EOPNOTSUPP);
	a = ok;
	a.cqe = 1u << 30;
	refuse(a, EINVAL);
	a = ok;
	a.comp_vector = 100000;
	refuse(a, EINVAL);
	close_device();
}

static void single_threaded(void)
{
	struct ibv_cq_init_attr_ex a = { .cqe = 10,
					 .wc_flags = STANDARD,
					 .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
					 .flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED };
	struct ibv_cq_ex *cq;
	struct ibv_poll_cq_attr pa = { 0 };

	open_device();
	cq = ibv_create_cq_ex(dev.ctx, &a);
	if (!cq && errno == EOPNOTSUPP)
		SKIP("no single-threaded CQs");
	MUST(cq);
	EQ(ibv_start_poll(cq, &pa), ENOENT);
	EQ(ibv_start_poll(cq, &pa), ENOENT);
	OK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	close_device();
}

/* ---- resizing and moderation ------------------------------------------------------ */

static void resizing(void)
{
	pair((struct side_opt){ .wr = 64, .cqe = 8 });
	for (int i = 0; i < 6; i++)
		post(i, IBV_WR_RDMA_WRITE, 10, 0);
	conf_wc_ok(x.cq, 0);
	EQ(ibv_resize_cq(x.cq, 100), 0);
	CHECK(x.cq->cqe >= 100);
	for (int i = 6; i < 60; i++)
		post(i, IBV_WR_RDMA_WRITE, 10, 0);
	for (int i = 1; i < 60; i++)
		conf_wc_ok(x.cq, i);
	EQ(ibv_resize_cq(x.cq, 4), 0);
	EQ(ibv_resize_cq(x.cq, 1 << 30), EINVAL);
	EQ(ibv_resize_cq(x.cq, 0), EINVAL);
	for (int i = 0; i < 4; i++) {
		post(i, IBV_WR_RDMA_WRITE, 10, 0);
		conf_wc_ok(x.cq, i);
	}
	side_pair_free(&x, &y);
}

/* More are waiting than would fit: refused, and nothing is lost. */
static void shrinking_too_far(void)
{
	struct ibv_cq *cq;
	void *ctx;

	if (!conf_user_device())
		SKIP("the size of a kernel CQ is rounded up");
	pair((struct side_opt){ .wr = 16, .cqe = 16, .channel = true });
	for (int i = 0; i < 11; i++) { /* one event for each: then it waits in the CQ */
		OK(ibv_req_notify_cq(x.cq, 0));
		post(i, IBV_WR_RDMA_WRITE, 10, 0);
		WAIT_FOR(conf_readable(x.ch->fd));
		OK(ibv_get_cq_event(x.ch, &cq, &ctx));
		ibv_ack_cq_events(cq, 1);
	}
	conf_wc_ok(x.cq, 0);
	EQ(ibv_resize_cq(x.cq, 5), EINVAL);
	EQ(x.cq->cqe, 16);
	for (int i = 1; i < 11; i++)
		conf_wc_ok(x.cq, i);
	side_pair_free(&x, &y);
}

static void moderated(void)
{
	struct ibv_modify_cq_attr attr = { .attr_mask = IBV_CQ_ATTR_MODERATE,
					   .moderate = { .cq_count = 4, .cq_period = 60000 } };
	struct ibv_device_attr_ex dx;
	uint64_t t0;
	struct ibv_cq *cq;
	void *ctx;
	int r;

	pair((struct side_opt){ .channel = true });
	OK(ibv_query_device_ex(dev.ctx, NULL, &dx));
	r = ibv_modify_cq(x.cq, &attr);
	if (r == EOPNOTSUPP || r == ENOSYS) {
		EQ(dx.cq_mod_caps.max_cq_count, 0);
		SKIP("no moderation");
	}
	EQ(r, 0);
	CHECK(dx.cq_mod_caps.max_cq_count >= 4 && dx.cq_mod_caps.max_cq_period >= 60000);
	OK(ibv_req_notify_cq(x.cq, 0));
	t0 = conf_now();
	for (int i = 0; i < 3; i++)
		post(i, IBV_WR_RDMA_WRITE, 10, 0);
	for (int i = 0; i < 3; i++)
		conf_wc_ok(x.cq, i);
	if (conf_readable(x.ch->fd)) /* held back, or all that took the period */
		CHECK(conf_now() - t0 >= 60000000);
	WAIT_FOR(conf_readable(x.ch->fd));
	CHECK(conf_now() - t0 >= 60000000); /* the period */
	OK(ibv_get_cq_event(x.ch, &cq, &ctx));
	ibv_ack_cq_events(cq, 1);
	attr.moderate.cq_period = 65535;
	EQ(ibv_modify_cq(x.cq, &attr), 0);
	OK(ibv_req_notify_cq(x.cq, 0));
	for (int i = 0; i < 4; i++)
		post(i, IBV_WR_RDMA_WRITE, 10, 0);
	WAIT_FOR(conf_readable(x.ch->fd)); /* the count */
	OK(ibv_get_cq_event(x.ch, &cq, &ctx));
	ibv_ack_cq_events(cq, 1);
	side_pair_free(&x, &y);
}

static const struct conf_case cases[] = {
	CASE(fields_of_a_receive),
	CASE(fields_of_a_send),
	CASE(status_of_a_failure),
	CASE(batches),
	CASE(batches_and_the_rest),
	CASE(what_comes_during_a_batch_belongs_to_it),
	CASE(pollers_do_not_mix),
	CASE(events),
	CASE(stamps),
	CASE(wall_clock),
	CASE(creation),
	CASE(single_threaded),
	CASE(resizing),
	CASE(shrinking_too_far),
	CASE(moderated),
};

CONF_MAIN(cases)
