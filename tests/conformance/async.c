/* SPDX-License-Identifier: BSD-2-Clause */
/* Asynchronous events of QPs, CQs and SRQs: each case causes an event once and checks
 * that it comes once, for the right object. Events of ports are in
 * tests/system/port.c. */
#include "side.h"

static struct side x, y;

static bool event_there(struct ibv_context *ctx, int ms)
{
	struct pollfd fd = { .fd = ctx->async_fd, .events = POLLIN };

	return poll(&fd, 1, ms) == 1;
}

/* The next event must be this one, of this object. */
static void expect(enum ibv_event_type type, const void *object)
{
	struct ibv_async_event ev;

	AT(ibv_event_type_str(type));
	if (!event_there(dev.ctx, conf_user_device() ? conf_ms(CONF_WAIT) : 500)) {
		if (!conf_user_device())
			SKIP("this device raises no such event");
		FAIL("no event, wanted %s", ibv_event_type_str(type));
	}
	OK(ibv_get_async_event(dev.ctx, &ev));
	EQ(ev.event_type, type);
	CHECK((const void *)ev.element.qp == object);
	ibv_ack_async_event(&ev);
}

static void silence_(int line)
{
	struct ibv_async_event ev;

	conf_at(__FILE__, line, "no event");
	if (!event_there(dev.ctx, 50))
		return;
	OK(ibv_get_async_event(dev.ctx, &ev));
	conf_fail(__FILE__, line, "an event too many: %s", ibv_event_type_str(ev.event_type));
}
#define silence() silence_(__LINE__)

static void post(uint64_t wr_id, int opcode, size_t roff, uint32_t len)
{
	struct ibv_sge sge = conf_sge(&x.b, 0, len);
	struct ibv_send_wr wr =
		conf_rdma(wr_id, opcode, &sge, 1, y.b.p + roff, y.b.mr->rkey);

	OK(conf_post(x.qp, &wr));
}

/* ---- communication established -------------------------------------------------- */

static void half_pair(void)
{
	open_device();
	x = side(1);
	y = side(2);
	EQ(to_init(&x), 0);
	EQ(to_init(&y), 0);
	EQ(to_rtr(&x, y.qp->qp_num, y.psn, &dev.gid), 0);
	EQ(to_rtr(&y, x.qp->qp_num, x.psn, &dev.gid), 0);
	EQ(to_rts(&x), 0);
}

static void established_by_a_send(void)
{
	half_pair();
	OK(conf_recv(y.qp, 9, &y.b, 0, 100));
	OK(conf_recv(y.qp, 9, &y.b, 0, 100));
	post(1, IBV_WR_SEND, 0, 10);
	expect(IBV_EVENT_COMM_EST, y.qp);
	conf_wc_ok(y.cq, 9);
	post(2, IBV_WR_SEND, 0, 10);
	conf_wc_ok(y.cq, 9);
	silence(); /* once */
	EQ(to_rts(&y), 0);
	side_pair_free(&x, &y);
}

static void established_by_a_write(void)
{
	half_pair();
	post(1, IBV_WR_RDMA_WRITE, 0, 10);
	expect(IBV_EVENT_COMM_EST, y.qp);
	conf_wc_ok(x.cq, 1);
	post(2, IBV_WR_RDMA_READ, 0, 10);
	conf_wc_ok(x.cq, 2);
	silence();
	side_pair_free(&x, &y);
}

static void ready_to_send_says_nothing(void)
{
	side_pair(&x, &y);
	post(1, IBV_WR_RDMA_WRITE, 0, 10);
	conf_wc_ok(x.cq, 1);
	exchange(&x, &y, 1);
	silence();
	side_pair_free(&x, &y);
}

/* ---- errors of the responder ------------------------------------------------------- */

static void access_error(void)
{
	side_pair(&x, &y);
	y.b.mr->rkey ^= 0x3300;
	post(1, IBV_WR_RDMA_WRITE, 0, 10);
	y.b.mr->rkey ^= 0x3300;
	conf_wc_is(x.cq, 1, IBV_WC_REM_ACCESS_ERR);
	expect(IBV_EVENT_QP_ACCESS_ERR, y.qp);
	silence();
	side_pair_free(&x, &y);
}

static void request_error(void)
{
	side_pair(&x, &y);
	post(1, IBV_WR_ATOMIC_FETCH_AND_ADD, 4, 8);
	conf_wc_is(x.cq, 1, IBV_WC_REM_INV_REQ_ERR);
	expect(IBV_EVENT_QP_REQ_ERR, y.qp);
	silence();
	side_pair_free(&x, &y);
}

/* ---- overrun ---------------------------------------------------------------------- */

static void overrun(void)
{
	unsigned room;

	side_pair_with(&x, &y, (struct side_opt){ .wr = 64, .cqe = 4 },
		       (struct side_opt){ 0 });
	room = (unsigned)x.cq->cqe;
	if (room >= 60)
		SKIP("the smallest CQ has %u entries", room);
	for (unsigned i = 0; i <= room; i++)
		post(i, IBV_WR_RDMA_WRITE, 0, 8);
	expect(IBV_EVENT_CQ_ERR, x.cq);
	expect(IBV_EVENT_QP_FATAL, x.qp);
	silence();
	for (unsigned i = 0; i < room; i++)
		conf_wc_ok(x.cq, i);
	side_pair_free(&x, &y);
}

/* The QP breaks with nothing to report it on: no completion tells, the event does. */
static void fatal_without_work(void)
{
	struct ibv_qp_attr a;

	if (!conf_user_device())
		SKIP("no other device can be brought to it");
	side_pair_with(&x, &y, (struct side_opt){ 0 },
		       (struct side_opt){ .wr = 64, .cqe = 4 });
	/* y's receive CQ overruns. */
	for (int i = 0; i < 6; i++)
		OK(conf_recv(y.qp, (uint64_t)i, &y.b, 0, 8));
	for (int i = 0; i < 6; i++)
		post((uint64_t)i, IBV_WR_SEND, 0, 8);
	expect(IBV_EVENT_CQ_ERR, y.cq);
	expect(IBV_EVENT_QP_FATAL, y.qp);
	conf_qp_query(y.qp, &a);
	EQ(a.qp_state, IBV_QPS_ERR);
	side_pair_free(&x, &y);
}

/* ---- draining --------------------------------------------------------------------- */

static void drain(bool notify)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD,
				    .en_sqd_async_notify = notify };
	int r = ibv_modify_qp(x.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY);

	if (r && !conf_user_device())
		SKIP("no SQD");
	EQ(r, 0);
}

static void drained(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };

	side_pair(&x, &y);
	exchange(&x, &y, 1); /* the connection is there: what is posted is begun at once */
	rarely_not_ready(&y);
	drain(true); /* nothing is under way */
	expect(IBV_EVENT_SQ_DRAINED, x.qp);
	silence();
	OK(ibv_modify_qp(x.qp, &attr, IBV_QP_STATE));
	post(1, IBV_WR_SEND, 0, 10); /* waits for a receive */
	usleep(20000); /* time is the point: it is tried, not only posted */
	conf_settle(); /* ... by a thread that may have had no time */
	drain(true);
	silence();
	post(2, IBV_WR_SEND, 0, 10); /* posted in SQD: stays */
	OK(conf_recv(y.qp, 9, &y.b, 0, 100));
	OK(conf_recv(y.qp, 9, &y.b, 0, 100));
	expect(IBV_EVENT_SQ_DRAINED, x.qp);
	conf_wc_ok(x.cq, 1);
	conf_wc_none(x.cq, CONF_QUIET);
	OK(ibv_modify_qp(x.qp, &attr, IBV_QP_STATE));
	conf_wc_ok(x.cq, 2);
	drain(false);
	silence(); /* not asked for */
	side_pair_free(&x, &y);
}

/* ---- shared receive queues -------------------------------------------------------- */

static void srq_post(int n)
{
	while (n--)
		OK(conf_srq_recv(y.srq, 9, &y.b, 0, 64));
}

static void limit_of_a_shared_queue(void)
{
	struct ibv_srq_attr attr = { .srq_limit = 3 };

	side_pair_with(&x, &y, (struct side_opt){ 0 }, (struct side_opt){ .srq = true });
	srq_post(5);
	OK(ibv_modify_srq(y.srq, &attr, IBV_SRQ_LIMIT));
	for (int i = 0; i < 2; i++) {
		post(1, IBV_WR_SEND, 0, 10);
		conf_wc_ok(y.cq, 9);
	}
	silence(); /* three are left: not below */
	post(1, IBV_WR_SEND, 0, 10);
	expect(IBV_EVENT_SRQ_LIMIT_REACHED, y.srq);
	post(1, IBV_WR_SEND, 0, 10);
	silence(); /* disarmed */
	OK(ibv_query_srq(y.srq, &attr));
	EQ(attr.srq_limit, 0);
	side_pair_free(&x, &y);
}

/* The receives stay, in their order, when the queue becomes larger or smaller; no smaller
 * than what is in it. */
static void size_of_a_shared_queue(void)
{
	struct ibv_srq_attr attr;
	struct ibv_device_attr d;
	uint32_t was;

	side_pair_with(&x, &y, (struct side_opt){ .wr = 64 },
		       (struct side_opt){ .srq = true, .cqe = 256 });
	if (!conf_user_device())
		SKIP("others may grant more than they are asked for");
	OK(ibv_query_device(dev.ctx, &d));
	CHECK(d.device_cap_flags & IBV_DEVICE_SRQ_RESIZE);
	OK(ibv_query_srq(y.srq, &attr));
	was = attr.max_wr;
	for (uint32_t i = 0; i < was; i++) /* not from the first place of the ring on */
		OK(conf_srq_recv(y.srq, i, &y.b, 0, 64));
	for (uint32_t i = 0; i < 3; i++) {
		post(1, IBV_WR_SEND, 0, 10);
		conf_wc_ok(x.cq, 1);
		conf_wc_ok(y.cq, i);
		OK(conf_srq_recv(y.srq, was + i, &y.b, 0, 64));
	}
	EQ(conf_srq_recv(y.srq, 0, &y.b, 0, 64), ENOMEM);
	attr.max_wr = was - 1;
	EQ(ibv_modify_srq(y.srq, &attr, IBV_SRQ_MAX_WR), EINVAL);
	attr.max_wr = 0;
	EQ(ibv_modify_srq(y.srq, &attr, IBV_SRQ_MAX_WR), EINVAL);
	attr.max_wr = (uint32_t)d.max_srq_wr + 1;
	EQ(ibv_modify_srq(y.srq, &attr, IBV_SRQ_MAX_WR), EINVAL);
	attr = (struct ibv_srq_attr){ .max_wr = 4 * was, .srq_limit = 4 * was + 1 };
	EQ(ibv_modify_srq(y.srq, &attr, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT), EINVAL);
	EQ(conf_srq_recv(y.srq, 0, &y.b, 0, 64), ENOMEM); /* all or nothing */
	attr.srq_limit = was + 1;
	OK(ibv_modify_srq(y.srq, &attr, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT));
	OK(ibv_query_srq(y.srq, &attr));
	CHECK(attr.max_wr >= 4 * was && attr.srq_limit == was + 1);
	for (uint32_t i = was + 3; i < 4 * was + 3; i++)
		OK(conf_srq_recv(y.srq, i, &y.b, 0, 64));
	for (uint32_t i = 3; i < 3 * was; i++) {
		post(1, IBV_WR_SEND, 0, 10);
		conf_wc_ok(x.cq, 1);
		conf_wc_ok(y.cq, i);
	}
	side_pair_free(&x, &y);
}

static void a_shared_queue_becomes_smaller(void)
{
	struct ibv_srq_attr attr = { .max_wr = 3 };
	struct ibv_device_attr d;

	side_pair_with(&x, &y, (struct side_opt){ 0 }, (struct side_opt){ .srq = true });
	if (!conf_user_device())
		SKIP("others may grant more than they are asked for");
	OK(ibv_query_device(dev.ctx, &d));
	CHECK(d.device_cap_flags & IBV_DEVICE_SRQ_RESIZE);
	srq_post(4);
	post(1, IBV_WR_SEND, 0, 10);
	conf_wc_ok(x.cq, 1);
	EQ(ibv_modify_srq(y.srq, &attr, IBV_SRQ_MAX_WR), EINVAL); /* one is not polled */
	conf_wc_ok(y.cq, 9);
	OK(ibv_modify_srq(y.srq, &attr, IBV_SRQ_MAX_WR));
	EQ(conf_srq_recv(y.srq, 8, &y.b, 0, 64), ENOMEM);
	for (int i = 0; i < 3; i++) {
		post(1, IBV_WR_SEND, 0, 10);
		conf_wc_ok(y.cq, 9);
		OK(conf_srq_recv(y.srq, 9, &y.b, 0, 64));
	}
	side_pair_free(&x, &y);
}

static void last_of_a_shared_queue(void)
{
	side_pair_with(&x, &y, (struct side_opt){ 0 }, (struct side_opt){ .srq = true });
	srq_post(2);
	EQ(to_state(&y, IBV_QPS_ERR), 0);
	expect(IBV_EVENT_QP_LAST_WQE_REACHED, y.qp);
	silence();
	side_pair_free(&x, &y);
}

/* ---- fetching and acknowledging ------------------------------------------------- */

static void cause(void)
{
	y.b.mr->rkey ^= 0x3300;
	post(1, IBV_WR_RDMA_WRITE, 0, 10);
	y.b.mr->rkey ^= 0x3300;
	conf_wc_is(x.cq, 1, IBV_WC_REM_ACCESS_ERR);
	if (!event_there(dev.ctx, conf_user_device() ? conf_ms(CONF_WAIT) : 500))
		SKIP("this device raises no such event");
}

/* An event that nobody fetched goes with its object. */
static void unfetched_events_go(void)
{
	side_pair(&x, &y);
	cause();
	side_free(&y);
	silence();
	side_free(&x);
	close_device();
}

static atomic_bool destroyed;

static void *destroyer(void *arg)
{
	if (ibv_destroy_qp(arg))
		abort();
	atomic_store(&destroyed, true);
	return NULL;
}

/* One that was fetched holds its object until it is acknowledged. */
static void fetched_events_hold(void)
{
	struct ibv_async_event ev;
	pthread_t t;

	side_pair(&x, &y);
	cause();
	OK(ibv_get_async_event(dev.ctx, &ev));
	CHECK(ev.element.qp == y.qp);
	t = conf_thread(destroyer, y.qp);
	conf_blocked(t);
	CHECK(!atomic_load(&destroyed));
	ibv_ack_async_event(&ev);
	conf_join(t);
	CHECK(atomic_load(&destroyed));
	OK(ibv_destroy_cq(y.cq));
	conf_buf_free(&y.b);
	side_free(&x);
	close_device();
}

static void nonblocking(void)
{
	struct ibv_async_event ev;

	side_pair(&x, &y);
	conf_nonblock(dev.ctx->async_fd, true);
	ERR(ibv_get_async_event(dev.ctx, &ev), EAGAIN);
	cause();
	OK(ibv_get_async_event(dev.ctx, &ev));
	ibv_ack_async_event(&ev);
	ERR(ibv_get_async_event(dev.ctx, &ev), EAGAIN);
	side_pair_free(&x, &y);
}

/* An event is told on the context of its object alone. */
static void another_context(void)
{
	struct ibv_context *other;

	side_pair(&x, &y);
	MUST(other = ibv_open_device(dev.ctx->device));
	cause();
	CHECK(!event_there(other, 50));
	expect(IBV_EVENT_QP_ACCESS_ERR, y.qp);
	OK(ibv_close_device(other));
	side_pair_free(&x, &y);
}

static const struct conf_case cases[] = {
	CASE(established_by_a_send),
	CASE(established_by_a_write),
	CASE(ready_to_send_says_nothing),
	CASE(access_error),
	CASE(request_error),
	CASE(overrun),
	CASE(fatal_without_work),
	CASE(drained),
	CASE(limit_of_a_shared_queue),
	CASE(size_of_a_shared_queue),
	CASE(a_shared_queue_becomes_smaller),
	CASE(last_of_a_shared_queue),
	CASE(unfetched_events_go),
	CASE(fetched_events_hold),
	CASE(nonblocking),
	CASE(another_context),
};

CONF_MAIN(cases)
