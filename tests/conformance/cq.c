/* SPDX-License-Identifier: BSD-2-Clause */
/* Completion queues: arming and completion channels, overrun, destruction; and the events
 * of shared receive queues. */
#include "conf.h"

static struct conf_pair c;
static struct conf_buf b;

/* c with memory, which both ends use. */
static void start(const struct conf_opt *opt)
{
	struct conf_opt o = opt ? *opt : (struct conf_opt){ 0 };

	o.abuf = &b;
	o.len = 65536;
	conf_pair_open(&c, &o);
}

static void send_flags(uint64_t wr_id, int flags)
{
	struct ibv_sge sge = conf_sge(&b, 0, 16);
	struct ibv_send_wr wr = conf_wr(wr_id, IBV_WR_SEND, &sge, 1);

	wr.send_flags |= flags;
	OK(conf_post(c.a->qp, &wr));
	conf_wc_ok(c.a->send_cq, wr_id);
}

static void recvs(unsigned n)
{
	while (n--)
		OK(conf_recv(c.p->qp, n, &b, 4096, 64));
}

static bool fires(struct ibv_comp_channel *cc, int ms)
{
	struct pollfd fd = { .fd = cc->fd, .events = POLLIN };

	return poll(&fd, 1, ms) == 1;
}

static void take(struct ibv_comp_channel *cc, struct ibv_cq *want, void *context)
{
	struct ibv_cq *cq;
	void *ctx;

	AT("ibv_get_cq_event");
	if (!fires(cc, conf_ms(CONF_WAIT)))
		FAIL("the completion channel stays silent");
	OK(ibv_get_cq_event(cc, &cq, &ctx));
	CHECK(cq == want && ctx == context);
	ibv_ack_cq_events(cq, 1);
}

static void not_armed_is_silent(void)
{
	start(NULL);
	recvs(2);
	send_flags(1, 0);
	CHECK(!fires(c.p->recv_cq_channel, 50));
	conf_pair_close(&c);
}

static void armed_fires_once(void)
{
	start(NULL);
	recvs(4);
	OK(ibv_req_notify_cq(c.p->recv_cq, 0));
	CHECK(!fires(c.p->recv_cq_channel, 20));
	send_flags(1, 0);
	take(c.p->recv_cq_channel, c.p->recv_cq, c.p);
	send_flags(2, 0);
	CHECK(!fires(c.p->recv_cq_channel, 50)); /* one event per arm */
	OK(ibv_req_notify_cq(c.p->recv_cq, 0));
	send_flags(3, 0);
	take(c.p->recv_cq_channel, c.p->recv_cq, c.p);
	conf_pair_close(&c);
}

/* What came unnoticed makes its event when the CQ is armed, as with adapters that compare the
 * consumer's index; the specification, and rxe, wait for the next completion. */
static void arming_tells_of_what_came(void)
{
	struct ibv_wc wc;

	start(NULL);
	if (!conf_user_device())
		SKIP("a device may look forward only");
	recvs(2);
	send_flags(1, 0);
	conf_settle();
	OK(ibv_req_notify_cq(c.p->recv_cq, 0));
	take(c.p->recv_cq_channel, c.p->recv_cq, c.p);
	conf_wc(c.p->recv_cq, &wc);
	OK(ibv_req_notify_cq(c.p->recv_cq, 0));
	CHECK(!fires(c.p->recv_cq_channel, 50));
	send_flags(2, 0);
	take(c.p->recv_cq_channel, c.p->recv_cq, c.p);
	conf_pair_close(&c);
}

/* For what had its event arming looks forward only: poll again after it, as every manual says. */
static void arming_ignores_what_is_there(void)
{
	struct ibv_wc wc;

	start(NULL);
	recvs(2);
	OK(ibv_req_notify_cq(c.p->recv_cq, 0));
	send_flags(1, 0);
	take(c.p->recv_cq_channel, c.p->recv_cq, c.p); /* now it is there */
	OK(ibv_req_notify_cq(c.p->recv_cq, 0));
	CHECK(!fires(c.p->recv_cq_channel, 50));
	conf_wc(c.p->recv_cq, &wc);
	send_flags(2, 0);
	take(c.p->recv_cq_channel, c.p->recv_cq, c.p);
	conf_pair_close(&c);
}

static void send_queue_fires_as_well(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	start(NULL);
	sge = conf_sge(&b, 0, 16);
	wr = conf_rdma(1, IBV_WR_RDMA_WRITE, &sge, 1, b.p + 8192, b.mr->rkey);
	OK(ibv_req_notify_cq(c.a->send_cq, 0));
	OK(conf_post(c.a->qp, &wr));
	take(c.a->send_cq_channel, c.a->send_cq, c.a);
	conf_wc_ok(c.a->send_cq, 1);
	conf_pair_close(&c);
}

static void solicited_only(void)
{
	start(NULL);
	recvs(3);
	OK(ibv_req_notify_cq(c.p->recv_cq, 1));
	send_flags(1, 0);
	CHECK(!fires(c.p->recv_cq_channel, 50));
	send_flags(2, IBV_SEND_SOLICITED);
	take(c.p->recv_cq_channel, c.p->recv_cq, c.p);
	conf_pair_close(&c);
}

static void solicited_only_fires_for_errors(void)
{
	start(NULL);
	recvs(1);
	OK(ibv_req_notify_cq(c.p->recv_cq, 1));
	OK(rdma_disconnect(c.p)); /* flushes */
	take(c.p->recv_cq_channel, c.p->recv_cq, c.p);
	conf_expect(c.ach, c.a, RDMA_CM_EVENT_DISCONNECTED);
	OK(rdma_disconnect(c.a));
	conf_expect(c.lch, c.p, RDMA_CM_EVENT_DISCONNECTED);
	conf_pair_free(&c);
}

/* Asking for all after asking for solicited ones widens the request. */
static void arming_twice_widens(void)
{
	start(NULL);
	recvs(2);
	OK(ibv_req_notify_cq(c.p->recv_cq, 1));
	OK(ibv_req_notify_cq(c.p->recv_cq, 0));
	send_flags(1, 0);
	take(c.p->recv_cq_channel, c.p->recv_cq, c.p);
	conf_pair_close(&c);
}

static void arming_twice_does_not_narrow(void)
{
	start(NULL);
	recvs(2);
	OK(ibv_req_notify_cq(c.p->recv_cq, 0));
	OK(ibv_req_notify_cq(c.p->recv_cq, 1));
	send_flags(1, 0);
	take(c.p->recv_cq_channel, c.p->recv_cq, c.p);
	conf_pair_close(&c);
}

static void nonblocking_channel(void)
{
	struct ibv_cq *cq;
	void *ctx;

	start(NULL);
	conf_nonblock(c.p->recv_cq_channel->fd, true);
	ERR(ibv_get_cq_event(c.p->recv_cq_channel, &cq, &ctx), EAGAIN);
	conf_pair_close(&c);
}

/* The usual loop of event-driven programs, as fast as it goes. No wake-up may be
 * lost between arming and polling. */
struct loop {
	atomic_uint n, got;
};

static void *event_loop(void *arg)
{
	struct loop *l = arg;
	struct ibv_wc wc[8];
	struct ibv_cq *cq;
	void *ctx;
	int n;

	OK(ibv_req_notify_cq(c.p->recv_cq, 0));
	for (;;) {
		while ((n = ibv_poll_cq(c.p->recv_cq, 8, wc)) > 0)
			for (int i = 0; i < n; i++) {
				EQ(wc[i].status, 0);
				OK(conf_recv(c.p->qp, 0, &b, 4096, 64));
				l->got++;
			}
		if (l->got >= l->n)
			return NULL;
		OK(ibv_get_cq_event(c.p->recv_cq_channel, &cq, &ctx));
		ibv_ack_cq_events(cq, 1);
		OK(ibv_req_notify_cq(c.p->recv_cq, 0));
	}
}

static void no_wake_up_is_lost(void)
{
	struct conf_opt opt = { .wr = 64 };
	struct loop l = { .n = conf_original() || conf_ms(1) > 1 ? 500 : 5000 };
	unsigned seed = 1;
	uint64_t end;
	pthread_t t;

	start(&opt);
	recvs(64);
	t = conf_thread(event_loop, &l);
	end = conf_now() + conf_ms(15000) * 1000000ull;
	for (unsigned i = 0; i < l.n; i++) {
		if (conf_now() > end)
			l.n = i + 1; /* a busy machine: this one is the last */
		send_flags(i, 0);
		if (i % 16 == 0)
			usleep(rand_r(&seed) % 200); /* now it is awake, now asleep */
	}
	conf_join(t);
	EQ(l.got, l.n);
	conf_pair_close(&c);
}

/* Sleeps until a receive has completed, whose CQ is armed, and arms it again. */
static void sleep_for_receive(struct rdma_cm_id *id)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(id->recv_cq, 1, &wc))) {
		take(id->recv_cq_channel, id->recv_cq, id);
		OK(ibv_req_notify_cq(id->recv_cq, 0));
	}
	EQ(n, 1);
	EQ(wc.status, 0);
}

/* One message to and fro, many times: each side sleeps until the other's has come, and
 * answers it at once. */
static void *echo(void *arg)
{
	const unsigned rounds = *(unsigned *)arg;

	for (unsigned i = 0; i < rounds; i++) {
		struct ibv_sge sge = conf_sge(&b, 1024, 64);
		struct ibv_send_wr wr = conf_wr(i, IBV_WR_SEND, &sge, 1);

		sleep_for_receive(c.p);
		OK(conf_recv(c.p->qp, 0, &b, 4096, 64));
		wr.send_flags &= ~(unsigned)IBV_SEND_SIGNALED;
		if (i % 8 == 7)
			wr.send_flags |= IBV_SEND_SIGNALED;
		OK(conf_post(c.p->qp, &wr));
		if (i % 8 == 7)
			conf_wc_ok(c.p->send_cq, i);
	}
	return NULL;
}

static void sleepers_answer_each_other(void)
{
	struct conf_opt opt = { .wr = 64 };
	unsigned rounds = conf_original() || conf_ms(1) > 1 ? 400 : 4000;
	pthread_t t;

	start(&opt);
	recvs(8);
	OK(conf_recv(c.a->qp, 0, &b, 8192, 64));
	OK(ibv_req_notify_cq(c.p->recv_cq, 0));
	OK(ibv_req_notify_cq(c.a->recv_cq, 0));
	t = conf_thread(echo, &rounds);
	for (unsigned i = 0; i < rounds; i++) {
		send_flags(i, 0);
		sleep_for_receive(c.a);
		OK(conf_recv(c.a->qp, 0, &b, 8192, 64));
	}
	conf_join(t);
	conf_pair_close(&c);
}

struct destroyer {
	struct ibv_cq *cq;
	atomic_int done;
};

static void *destroy_cq(void *arg)
{
	struct destroyer *d = arg;

	OK(ibv_destroy_cq(d->cq));
	d->done = 1;
	return NULL;
}

static void destroy_waits_for_acknowledged_events(void)
{
	struct ibv_comp_channel *cc;
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = CONF_CAP(4, 4, 1),
	};
	struct conf_opt opt = { .pattr = &attr };
	struct rdma_cm_id *id = conf_device_id();
	struct destroyer d = { 0 };
	struct ibv_cq *cq;
	pthread_t t;
	void *ctx;

	MUST(cc = ibv_create_comp_channel(id->verbs));
	MUST(d.cq = ibv_create_cq(id->verbs, 16, NULL, cc, 0));
	attr.send_cq = attr.recv_cq = d.cq;
	start(&opt);
	OK(ibv_req_notify_cq(d.cq, 0));
	OK(conf_recv(c.p->qp, 1, &b, 0, 64));
	send_flags(1, 0);
	OK(ibv_get_cq_event(cc, &cq, &ctx));
	conf_pair_disconnect(&c);
	rdma_destroy_qp(c.p);
	t = conf_thread(destroy_cq, &d);
	conf_blocked(t);
	EQ(d.done, 0);
	ibv_ack_cq_events(cq, 1);
	conf_join(t);
	OK(ibv_destroy_comp_channel(cc));
	conf_pair_free(&c);
	conf_id_close(id);
}

static void destroy_in_use(void)
{
	start(NULL);
	EQ(ibv_destroy_cq(c.a->send_cq), EBUSY);
	EQ(ibv_destroy_comp_channel(c.a->send_cq_channel), EBUSY);
	EQ(ibv_dealloc_pd(c.a->pd), EBUSY);
	recvs(1);
	send_flags(1, 0); /* nothing was harmed */
	conf_pair_close(&c);
}

/* One CQ serves the queues of two connections and both directions. */
static void shared_by_all(void)
{
	struct rdma_cm_id *id = conf_device_id();
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = CONF_CAP(8, 8, 1),
	};
	struct conf_opt opt = { .aattr = &attr, .pattr = &attr };
	struct conf_pair q[2];
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_wc wc;
	struct ibv_cq *cq;
	unsigned sent = 0, received = 0, place = 0;

	MUST(cq = ibv_create_cq(id->verbs, 128, NULL, NULL, 0));
	attr.send_cq = attr.recv_cq = cq;
	for (int i = 0; i < 2; i++)
		conf_pair_open(&q[i], &opt);
	b = conf_buf(id->pd, 4096, CONF_RW);
	sge = conf_sge(&b, 0, 16);
	wr = conf_wr(1, IBV_WR_SEND, &sge, 1);
	for (int n = 0; n < 8; n++)
		for (int i = 0; i < 2; i++) {
			/* Two QPs may receive at the same time. */
			OK(conf_recv(q[i].p->qp, 2, &b, place += 64, 64));
			OK(conf_recv(q[i].a->qp, 2, &b, place += 64, 64));
			OK(conf_post(q[i].a->qp, &wr));
			OK(conf_post(q[i].p->qp, &wr));
		}
	while (sent + received < 64) {
		conf_wc(cq, &wc);
		EQ(wc.status, 0);
		*(wc.wr_id == 1 ? &sent : &received) += 1;
	}
	EQ(sent, 32);
	EQ(received, 32);
	conf_wc_none(cq, 20);
	for (int i = 0; i < 2; i++)
		conf_pair_close(&q[i]);
	conf_buf_free(&b);
	OK(ibv_destroy_cq(cq));
	conf_id_close(id);
}

/* More completions than the CQ holds: CQ_ERR, and nothing is overwritten. */
static void overrun(void)
{
	struct rdma_cm_id *id = conf_device_id();
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = CONF_CAP(64, 4, 1),
	};
	struct conf_opt opt = { .aattr = &attr };
	struct ibv_async_event ev;
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct pollfd fd;
	int room;

	MUST(attr.send_cq = ibv_create_cq(id->verbs, 4, NULL, NULL, 0));
	room = attr.send_cq->cqe;
	if (room >= 60)
		SKIP("the smallest CQ has %d entries", room);
	start(&opt);
	sge = conf_sge(&b, 0, 8);
	wr = conf_rdma(0, IBV_WR_RDMA_WRITE, &sge, 1, b.p + 4096, b.mr->rkey);
	for (int i = 0; i < room + 4; i++) {
		wr.wr_id = i;
		if (conf_post(c.a->qp, &wr)) /* in ERR already: fine too */
			break;
	}
	fd = (struct pollfd){ .fd = id->verbs->async_fd, .events = POLLIN };
	conf_async(id->verbs, IBV_EVENT_CQ_ERR, attr.send_cq);
	for (int i = 0; i < room; i++)
		conf_wc_ok(attr.send_cq, i);
	/* Take what else was said, or the destroys below would wait. */
	while (poll(&fd, 1, 100) == 1) {
		OK(ibv_get_async_event(id->verbs, &ev));
		ibv_ack_async_event(&ev);
	}
	conf_pair_free(&c);
	OK(ibv_destroy_cq(attr.send_cq));
	conf_id_close(id);
}

static void extended_cq(void)
{
	struct rdma_cm_id *id = conf_device_id();
	struct ibv_cq_init_attr_ex cattr = {
		.cqe = 16,
		.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM,
	};
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = CONF_CAP(8, 8, 1),
	};
	struct conf_opt opt = { .pattr = &attr };
	struct ibv_poll_cq_attr pattr = { 0 };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(id->verbs, &cattr);
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	int ret;

	if (!cq)
		SKIP("no extended CQs: %s", strerror(errno));
	attr.send_cq = attr.recv_cq = ibv_cq_ex_to_cq(cq);
	start(&opt);
	EQ(ibv_start_poll(cq, &pattr), ENOENT);
	OK(conf_recv(c.p->qp, 5, &b, 4096, 64));
	sge = conf_sge(&b, 0, 33);
	wr = conf_wr(1, IBV_WR_SEND_WITH_IMM, &sge, 1);
	wr.imm_data = htonl(99);
	OK(conf_post(c.a->qp, &wr));
	conf_wc_ok(c.a->send_cq, 1);
	WAIT_FOR((ret = ibv_start_poll(cq, &pattr)) != ENOENT);
	EQ(ret, 0);
	EQ(cq->wr_id, 5);
	EQ(cq->status, IBV_WC_SUCCESS);
	EQ(ibv_wc_read_opcode(cq), IBV_WC_RECV);
	EQ(ibv_wc_read_byte_len(cq), 33);
	EQ(ntohl(ibv_wc_read_imm_data(cq)), 99);
	EQ(ibv_wc_read_qp_num(cq), c.p->qp->qp_num);
	EQ(ibv_next_poll(cq), ENOENT);
	ibv_end_poll(cq);
	conf_pair_close(&c);
	OK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	conf_id_close(id);
}

/* c whose passive QP receives from an SRQ, which has three receives. */
static struct rdma_cm_id *srq_id;
static struct ibv_srq *srq;
static struct pollfd async;

static void srq_start(void)
{
	struct ibv_srq_init_attr sattr = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = CONF_CAP(8, 8, 1),
	};
	struct conf_opt opt = { .pattr = &attr };

	srq_id = conf_device_id();
	MUST(srq = attr.srq = ibv_create_srq(srq_id->pd, &sattr));
	start(&opt);
	for (int i = 0; i < 3; i++)
		OK(conf_srq_recv(srq, 1, &b, 4096, 64));
	async = (struct pollfd){ .fd = srq_id->verbs->async_fd, .events = POLLIN };
}

static void srq_stop(void)
{
	conf_pair_free(&c);
	OK(ibv_destroy_srq(srq));
	conf_id_close(srq_id);
}

static void shared_receive_queue_limit(void)
{
	struct ibv_srq_attr limit = { .srq_limit = 2 };

	srq_start();
	OK(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT));
	send_flags(1, 0);
	conf_wc_ok(c.p->recv_cq, 1);
	EQ(poll(&async, 1, 50), 0); /* 2 left, the limit is 2: not below */
	send_flags(2, 0);
	conf_async(srq_id->verbs, IBV_EVENT_SRQ_LIMIT_REACHED, srq);
	send_flags(3, 0);
	EQ(poll(&async, 1, 50), 0); /* once */
	conf_pair_disconnect(&c);
	srq_stop();
}

/* A QP that goes to ERR says when it will take nothing more from its SRQ. */
static void last_receive_of_a_shared_queue(void)
{
	srq_start();
	conf_pair_disconnect(&c);
	conf_async(srq_id->verbs, IBV_EVENT_QP_LAST_WQE_REACHED, c.p->qp);
	conf_wc_none(c.p->recv_cq, 20); /* the SRQ's receives are not flushed */
	srq_stop();
}

static const struct conf_case cases[] = {
	CASE(not_armed_is_silent),
	CASE(armed_fires_once),
	CASE(arming_tells_of_what_came),
	CASE(arming_ignores_what_is_there),
	CASE(send_queue_fires_as_well),
	CASE(solicited_only),
	CASE(solicited_only_fires_for_errors),
	CASE(arming_twice_widens),
	CASE(arming_twice_does_not_narrow),
	CASE(nonblocking_channel),
	CASE(no_wake_up_is_lost),
	CASE(sleepers_answer_each_other),
	CASE(destroy_waits_for_acknowledged_events),
	CASE(destroy_in_use),
	CASE(shared_by_all),
	CASE(overrun),
	CASE(extended_cq),
	CASE(shared_receive_queue_limit),
	CASE(last_receive_of_a_shared_queue),
};

CONF_MAIN(cases)
