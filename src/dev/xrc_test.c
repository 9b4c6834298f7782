/* SPDX-License-Identifier: BSD-2-Clause */
/* XRC receive QPs and their SRQs, from the transport's side. */
#include "tests/t.h"

#include "dev/fake_transport.h"
#include "dev/poll.h"
#include "dev/xrc.h"

/* A domain with two SRQs and two targets in RTR. */
struct xrig {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq[2];
	struct ibv_xrcd *xrcd;
	struct ibv_srq *srq[2];
	uint32_t number[2];
	struct ibv_qp *qp[2];
};

static struct ibv_srq *make_srq(struct xrig *r, struct ibv_cq *cq)
{
	struct ibv_srq_init_attr_ex a = {
		.attr = { .max_wr = 4, .max_sge = 2 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = r->pd,
		.xrcd = r->xrcd,
		.cq = cq,
	};

	return ibv_create_srq_ex(r->ctx, &a);
}

static int to(struct ibv_qp *qp, enum ibv_qp_state s, int mask)
{
	struct ibv_qp_attr a = rig_attr(s);

	return ibv_modify_qp(qp, &a, mask);
}

static struct ibv_qp *make_qp(struct xrig *r)
{
	struct ibv_qp_init_attr_ex a = {
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
		.xrcd = r->xrcd,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(r->ctx, &a);

	CHECK(qp != NULL);
	CHECK_EQ(to(qp, IBV_QPS_INIT, INIT_MASK), 0);
	CHECK_EQ(to(qp, IBV_QPS_RTR, RTR_MASK), 0);
	return qp;
}

static bool up(struct xrig *r, int cqe)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_xrcd_init_attr a = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};

	memset(&fake, 0, sizeof(fake));
	memset(r, 0, sizeof(*r));
	r->ctx = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	r->pd = ibv_alloc_pd(r->ctx);
	r->xrcd = ibv_open_xrcd(r->ctx, &a);
	if (!r->ctx || !r->pd || !r->xrcd)
		return false;
	for (int i = 0; i < 2; i++) {
		r->cq[i] = ibv_create_cq(r->ctx, cqe, NULL, NULL, 0);
		r->srq[i] = make_srq(r, r->cq[i]);
		if (!r->srq[i] || ibv_get_srq_num(r->srq[i], &r->number[i]))
			return false;
		r->qp[i] = make_qp(r);
	}
	return true;
}

static void down(struct xrig *r)
{
	for (int i = 0; i < 2; i++) {
		if (r->qp[i])
			CHECK_EQ(ibv_destroy_qp(r->qp[i]), 0);
		if (r->srq[i])
			CHECK_EQ(ibv_destroy_srq(r->srq[i]), 0);
		CHECK_EQ(ibv_destroy_cq(r->cq[i]), 0);
	}
	CHECK_EQ(ibv_close_xrcd(r->xrcd), 0);
	CHECK_EQ(ibv_dealloc_pd(r->pd), 0);
	CHECK_EQ(ibv_close_device(r->ctx), 0);
}

static int post(struct ibv_srq *srq, uint64_t id)
{
	struct ibv_recv_wr wr = { .wr_id = id }, *bad = NULL;

	return ibv_post_srq_recv(srq, &wr, &bad);
}

static int64_t polled(struct ibv_cq *cq, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	if (ibv_poll_cq(cq, 1, &wc) != 1)
		return -1;
	CHECK_EQ(wc.status, status);
	return (int64_t)wc.wr_id;
}

static int next_event(struct xrig *r)
{
	struct ibv_async_event ev;

	fcntl(r->ctx->async_fd, F_SETFL, O_NONBLOCK);
	if (ibv_get_async_event(r->ctx, &ev))
		return -1;
	ibv_ack_async_event(&ev);
	return (int)ev.event_type;
}

static const struct ibv_wc good = { .status = IBV_WC_SUCCESS, .opcode = IBV_WC_RECV };

/* Numbers have 24 bits, are never 0, and no two SRQs have the same. */
static void numbers(void)
{
	enum { N = 300 };
	struct ibv_srq *srq[N];
	uint32_t n[N];
	struct xrig r;
	unsigned same = 0;

	REQUIRE(up(&r, 8));
	for (int i = 0; i < N; i++) {
		REQUIRE((srq[i] = make_srq(&r, r.cq[0])));
		CHECK_EQ(ibv_get_srq_num(srq[i], &n[i]), 0);
		CHECK(n[i] && n[i] < 1 << 24);
		for (int k = 0; k < i; k++)
			same += n[i] == n[k];
	}
	CHECK_EQ(same, 0);
	for (int i = 0; i < N; i++)
		CHECK_EQ(ibv_destroy_srq(srq[i]), 0);
	down(&r);
}

static void takes_from_the_named_one(void)
{
	struct dev_qp *qp;
	struct xrig r;
	struct ibv_wc wc;

	REQUIRE(up(&r, 8));
	qp = to_qp(r.qp[0]);
	CHECK_EQ(recv_take(qp, r.number[0] ^ 0x123456), -EINVAL);
	CHECK(!recv_pd(qp, r.number[0] ^ 0x123456));
	CHECK(recv_pd(qp, r.number[0]) == to_pd(r.pd));
	CHECK_EQ(post(r.srq[0], 10), 0);
	CHECK_EQ(post(r.srq[1], 11), 0);
	CHECK_EQ(recv_take(qp, r.number[1]), 0);
	CHECK_EQ(qp->cur->wr_id, 11);
	recv_done(qp, &good, false);
	CHECK_EQ(recv_take(qp, r.number[0]), 0);
	recv_done(qp, &good, false);
	REQUIRE(ibv_poll_cq(r.cq[1], 1, &wc) == 1);
	CHECK_EQ(wc.wr_id, 11);
	CHECK_EQ(wc.qp_num, r.qp[0]->qp_num);
	CHECK_EQ(polled(r.cq[0], IBV_WC_SUCCESS), 10);
	CHECK_EQ(next_event(&r), IBV_EVENT_COMM_EST);
	down(&r);
}

/* Who waits is told once, and only at the SRQ it waits at. */
static void waits_at_one(void)
{
	struct dev_qp *qp;
	struct xrig r;

	REQUIRE(up(&r, 8));
	qp = to_qp(r.qp[0]);
	CHECK_EQ(recv_take(qp, r.number[0]), -ENOENT);
	CHECK_EQ(recv_take(qp, r.number[1]), -ENOENT);
	CHECK_EQ(recv_take(to_qp(r.qp[1]), r.number[1]), -ENOENT);
	CHECK_EQ(post(r.srq[0], 1), 0);
	CHECK_EQ(fake.recv_posted, 0);
	CHECK_EQ(post(r.srq[1], 2), 0);
	CHECK_EQ(fake.recv_posted, 1);
	CHECK_EQ(recv_take(qp, r.number[1]), 0);
	CHECK_EQ(post(r.srq[1], 3), 0);
	CHECK_EQ(fake.recv_posted, 2);
	CHECK_EQ(post(r.srq[1], 4), 0);
	CHECK_EQ(fake.recv_posted, 2);
	down(&r);
}

/* A receive that was taken and not filled goes back to the SRQ's account. */
static void reset_in_a_message(void)
{
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	struct xrig r;

	REQUIRE(up(&r, 8));
	for (int i = 0; i < 4; i++)
		CHECK_EQ(post(r.srq[0], (uint64_t)i), 0);
	CHECK_EQ(recv_take(to_qp(r.qp[0]), r.number[0]), 0);
	CHECK_EQ(post(r.srq[0], 9), ENOMEM);
	CHECK_EQ(ibv_modify_qp(r.qp[0], &reset, IBV_QP_STATE), 0);
	CHECK_EQ(post(r.srq[0], 9), 0);
	CHECK_EQ(post(r.srq[0], 9), ENOMEM);
	down(&r);
}

static void error_in_a_message(void)
{
	struct ibv_qp_attr err = { .qp_state = IBV_QPS_ERR };
	struct xrig r;

	REQUIRE(up(&r, 8));
	CHECK_EQ(post(r.srq[0], 5), 0);
	CHECK_EQ(recv_take(to_qp(r.qp[0]), r.number[0]), 0);
	CHECK_EQ(ibv_modify_qp(r.qp[0], &err, IBV_QP_STATE), 0);
	CHECK_EQ(polled(r.cq[0], IBV_WC_WR_FLUSH_ERR), 5);
	CHECK_EQ(next_event(&r), IBV_EVENT_QP_LAST_WQE_REACHED);
	CHECK_EQ(recv_take(to_qp(r.qp[0]), r.number[0]), -ENOENT);
	down(&r);
}

/* The SRQ goes: a message in the middle fails, who waits waits no longer, and its
 * completions are gone. */
static void srq_goes(void)
{
	struct dev_qp *qp;
	struct xrig r;

	REQUIRE(up(&r, 8));
	qp = to_qp(r.qp[0]);
	CHECK_EQ(post(r.srq[0], 5), 0);
	CHECK_EQ(post(r.srq[0], 6), 0);
	CHECK_EQ(recv_take(qp, r.number[0]), 0);
	recv_done(qp, &good, false);
	CHECK_EQ(recv_take(qp, r.number[0]), 0);
	CHECK_EQ(recv_take(to_qp(r.qp[1]), r.number[0]), -ENOENT);
	CHECK_EQ(ibv_destroy_srq(r.srq[0]), 0);
	r.srq[0] = NULL;
	CHECK_EQ(fake.recv_lost, 1);
	CHECK_EQ(r.qp[0]->state, IBV_QPS_ERR);
	CHECK_EQ(r.qp[1]->state, IBV_QPS_RTR);
	CHECK_EQ(polled(r.cq[0], IBV_WC_SUCCESS), -1);
	CHECK_EQ(recv_take(to_qp(r.qp[1]), r.number[0]), -EINVAL);
	down(&r);
}

static void overrun(void)
{
	struct dev_qp *qp;
	struct xrig r;
	int fatal = 0, ev;

	REQUIRE(up(&r, 1));
	qp = to_qp(r.qp[0]);
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(post(r.srq[0], (uint64_t)i), 0);
		CHECK_EQ(recv_take(qp, r.number[0]), 0);
		recv_done(qp, &good, false);
	}
	CHECK_EQ(r.qp[0]->state, IBV_QPS_ERR);
	while ((ev = next_event(&r)) >= 0)
		fatal += ev == IBV_EVENT_QP_FATAL;
	CHECK_EQ(fatal, 1);
	down(&r);
}

/* ---- races ------------------------------------------------------------------- */

struct looked {
	struct poll_source src;
	int times;
};

static bool looked_progress(struct poll_source *s, bool by_thread)
{
	(void)by_thread;
	container_of(s, struct looked, src)->times++;
	return false;
}

static void looked_lease(struct poll_source *s, bool leased)
{
	(void)s;
	(void)leased;
}

/* The answer to a message comes to a receive QP, the acknowledgement of it to a send QP:
 * the poller who waits for one of them progresses both. */
static void one_poller_for_both_directions(void)
{
	struct looked at[2];
	struct ibv_qp *send;
	struct ibv_cq *cq;
	struct xrig r;

	REQUIRE(up(&r, 8));
	cq = ibv_create_cq(r.ctx, 8, NULL, NULL, 0);
	REQUIRE(cq);
	send = ibv_create_qp(r.pd, &(struct ibv_qp_init_attr){
					   .qp_type = IBV_QPT_XRC_SEND,
					   .send_cq = cq,
					   .cap = { .max_send_wr = 1 } });
	REQUIRE(send);
	for (int i = 0; i < 2; i++) {
		at[i] = (struct looked){ .src = { .fd = -1,
						  .progress = looked_progress,
						  .lease = looked_lease } };
		CHECK_EQ(poll_add(to_qp(i ? r.qp[0] : send)->poll_cq, &at[i].src), 0);
	}
	CHECK_EQ(polled(r.cq[0], IBV_WC_SUCCESS), -1);
	CHECK_EQ(at[0].times, 1);
	CHECK_EQ(at[1].times, 1);
	CHECK_EQ(polled(cq, IBV_WC_SUCCESS), -1);
	CHECK_EQ(at[0].times, 2);
	CHECK_EQ(at[1].times, 2);
	for (int i = 0; i < 2; i++)
		poll_del(&at[i].src);
	CHECK_EQ(ibv_destroy_qp(send), 0);
	CHECK_EQ(ibv_destroy_cq(cq), 0);
	down(&r);
}

static atomic_bool stop;

static void *poster(void *arg)
{
	struct xrig *r = arg;
	struct ibv_wc wc;

	while (!atomic_load(&stop)) {
		post(r->srq[0], 1);
		ibv_poll_cq(r->cq[0], 1, &wc);
	}
	return NULL;
}

/* QPs come and go, taking and waiting, while receives are posted. */
static void destroy_against_posts(void)
{
	struct xrig r;
	pthread_t t;

	REQUIRE(up(&r, 64));
	atomic_store(&stop, false);
	CHECK_EQ(pthread_create(&t, NULL, poster, &r), 0);
	for (int i = 0; i < 300; i++) {
		struct ibv_qp *qp = make_qp(&r);

		while (!recv_take(to_qp(qp), r.number[0]))
			if (i & 1)
				recv_done(to_qp(qp), &good, false);
			else
				break;
		CHECK_EQ(ibv_destroy_qp(qp), 0);
	}
	atomic_store(&stop, true);
	pthread_join(t, NULL);
	down(&r);
}

struct taker {
	struct xrig *r;
	_Atomic uint32_t number;
};

static void *take_and_reset(void *arg)
{
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	struct taker *k = arg;
	struct ibv_qp *qp = k->r->qp[1];

	while (!atomic_load(&stop)) {
		recv_take(to_qp(qp), atomic_load(&k->number));
		ibv_modify_qp(qp, &reset, IBV_QP_STATE);
		to(qp, IBV_QPS_INIT, INIT_MASK);
		to(qp, IBV_QPS_RTR, RTR_MASK);
	}
	return NULL;
}

/* SRQs come and go under a QP that is in the middle of a message, or is reset. */
static void srqs_against_targets(void)
{
	struct taker k = { 0 };
	struct xrig r;
	pthread_t t;

	REQUIRE(up(&r, 64));
	k.r = &r;
	atomic_store(&stop, false);
	CHECK_EQ(pthread_create(&t, NULL, take_and_reset, &k), 0);
	for (int i = 0; i < 500; i++) {
		struct ibv_srq *srq = make_srq(&r, r.cq[0]);
		uint32_t n;

		REQUIRE(srq && !ibv_get_srq_num(srq, &n));
		post(srq, 1);
		atomic_store(&k.number, n);
		sched_yield();
		CHECK_EQ(ibv_destroy_srq(srq), 0);
	}
	atomic_store(&stop, true);
	pthread_join(t, NULL);
	down(&r);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(numbers);
	T_RUN(takes_from_the_named_one);
	T_RUN(waits_at_one);
	T_RUN(reset_in_a_message);
	T_RUN(error_in_a_message);
	T_RUN(srq_goes);
	T_RUN(overrun);
	T_RUN(one_poller_for_both_directions);
	T_RUN(destroy_against_posts);
	T_RUN(srqs_against_targets);
	return t_done();
}
