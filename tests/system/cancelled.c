/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads that are cancelled (pthread_cancel()) while they use the library. Posting and
 * polling are no cancellation points, waiting for events is one. */
#include "conf.h"

static struct conf_pair c;
static struct conf_buf b;
static atomic_uint turns;

static void start(void)
{
#ifdef CONF_SANITIZER
	SKIP("the sanitizer's functions are cancellation points");
#endif
	conf_pair_open(&c, &(struct conf_opt){ .abuf = &b, .len = 1 << 20 });
}

static void serve(void)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(c.p->recv_cq, 1, &wc) == 1) {
		EQ(wc.status, IBV_WC_SUCCESS);
		OK(conf_recv(c.p->qp, 0, &b, 1 << 19, 4096));
	}
}

/* Posts and polls without an end. pthread_testcancel() is its only cancellation point. */
static void *busy(void *arg)
{
	struct ibv_sge sge = conf_sge(&b, 0, 1000);
	struct ibv_send_wr wr;
	struct ibv_wc wc;

	for (;;) {
		pthread_testcancel();
		wr = conf_wr(1, IBV_WR_SEND, &sge, 1);
		OK(conf_post(c.a->qp, &wr));
		while (!ibv_poll_cq(c.a->send_cq, 1, &wc))
			;
		EQ(wc.status, IBV_WC_SUCCESS);
		turns++;
	}
	return arg;
}

static void while_it_posts_and_polls(void)
{
	enum { TIMES = 20 };
	struct ibv_wc wc;
	pthread_t t;

	start();
	for (int i = 0; i < 8; i++)
		OK(conf_recv(c.p->qp, 0, &b, 1 << 19, 4096));
	for (int i = 0; i < TIMES; i++) {
		unsigned from = turns;

		t = conf_thread(busy, NULL);
		while (turns - from < 50 + 7 * (unsigned)i)
			serve();
		OK(-pthread_cancel(t));
		/* It may need an answer to get there. */
		WAIT_FOR((serve(), !pthread_tryjoin_np(t, NULL)));
		/* What it had posted, and had not polled. */
		while (ibv_poll_cq(c.a->send_cq, 1, &wc) == 1)
			EQ(wc.status, IBV_WC_SUCCESS);
	}
	conf_pair_close(&c);
}

static void *waits_for_a_completion(void *arg)
{
	struct ibv_cq *cq;
	void *context;

	turns++;
	ibv_get_cq_event(arg, &cq, &context);
	return NULL;
}

static void *waits_for_an_event(void *arg)
{
	struct rdma_cm_event *ev;

	turns++;
	rdma_get_cm_event(arg, &ev);
	return NULL;
}

static void while_it_waits(void *(*fn)(void *arg), void *arg)
{
	unsigned from = turns;
	pthread_t t = conf_thread(fn, arg);
	void *ret;

	WAIT_FOR(turns != from);
	OK(-pthread_cancel(t));
	WAIT_FOR(!pthread_tryjoin_np(t, &ret));
	CHECK(ret == PTHREAD_CANCELED);
}

static void while_it_waits_for_events(void)
{
	struct ibv_comp_channel *ch;

	start();
	MUST(ch = ibv_create_comp_channel(c.a->verbs));
	while_it_waits(waits_for_a_completion, ch);
	while_it_waits(waits_for_an_event, c.ach);
	OK(ibv_destroy_comp_channel(ch));
	conf_pair_close(&c);
}

static const struct conf_case cases[] = {
	CASE(while_it_posts_and_polls),
	CASE(while_it_waits_for_events),
};

CONF_MAIN(cases)
