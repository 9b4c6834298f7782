/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads that are cancelled (pthread_cancel()) while they use the library. Waiting for
 * events is a cancellation point, all else is none. */
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

/* ---- calls that make and end objects ----------------------------------------------- */

static const char *reached; /* the last call that came back */

#define STEP(what)                                                                          \
	do {                                                                                \
		what;                                                                       \
		reached = #what;                                                            \
	} while (0)

static void objects_of_verbs(void)
{
	struct ibv_qp_init_attr qa = { .qp_type = IBV_QPT_RC, .cap = { 8, 8, 1, 1, 0 } };
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_device **list;
	struct ibv_comp_channel *ch;
	struct ibv_context *ctx;
	struct ibv_port_attr port;
	union ibv_gid gid;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	static char memory[65536];

	STEP(MUST(list = ibv_get_device_list(NULL)));
	STEP(MUST(ctx = ibv_open_device(list[0])));
	STEP(ibv_free_device_list(list));
	STEP(OK(ibv_query_port(ctx, 1, &port)));
	STEP(OK(ibv_query_gid(ctx, 1, 0, &gid)));
	STEP(MUST(pd = ibv_alloc_pd(ctx)));
	STEP(MUST(mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE)));
	STEP(MUST(ch = ibv_create_comp_channel(ctx)));
	STEP(MUST(cq = ibv_create_cq(ctx, 16, NULL, ch, 0)));
	qa.send_cq = qa.recv_cq = cq;
	STEP(MUST(qp = ibv_create_qp(pd, &qa)));
	STEP(OK(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			      IBV_QP_ACCESS_FLAGS)));
	STEP(OK(ibv_destroy_qp(qp)));
	STEP(OK(ibv_destroy_cq(cq)));
	STEP(OK(ibv_destroy_comp_channel(ch)));
	STEP(OK(ibv_dereg_mr(mr)));
	STEP(OK(ibv_dealloc_pd(pd)));
	STEP(OK(ibv_close_device(ctx)));
}

static void objects_of_the_cm(void)
{
	struct ibv_qp_init_attr qa = { .qp_type = IBV_QPT_RC, .cap = { 8, 8, 1, 1, 0 } };
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *info;
	conf_sa addr = conf_addr(AF_INET, 0);
	struct rdma_event_channel *ch;
	struct rdma_cm_id *id, *ep;

	STEP(MUST(ch = rdma_create_event_channel()));
	STEP(OK(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP)));
	STEP(OK(rdma_bind_addr(id, SA(addr))));
	STEP(OK(rdma_listen(id, 4)));
	STEP(OK(rdma_destroy_id(id)));
	STEP(rdma_destroy_event_channel(ch));
	STEP(OK(rdma_getaddrinfo("127.0.0.1", "7471", &hints, &info)));
	STEP(OK(rdma_create_ep(&ep, info, NULL, &qa)));
	STEP(rdma_destroy_ep(ep));
	STEP(rdma_freeaddrinfo(info));
}

/* The cancellation waits from the beginning: the first cancellation point ends the
 * thread. */
static void *makes_objects(void *arg)
{
	void (*fn)(void) = *(void (**)(void))arg;

	OK(-pthread_cancel(pthread_self()));
	fn();
	reached = NULL;
	pthread_testcancel();
	return NULL;
}

static void while_it_makes_objects(void (*fn)(void))
{
	pthread_t t;
	void *ret;

#ifdef CONF_SANITIZER
	SKIP("the sanitizer's functions are cancellation points");
#endif
	for (int i = 0; i < 2; i++) { /* the first makes what the process needs */
		t = conf_thread(makes_objects, &fn);
		WAIT_FOR(!pthread_tryjoin_np(t, &ret));
		CHECK(ret == PTHREAD_CANCELED);
		if (reached)
			FAIL("the thread ended in the call after %s", reached);
	}
	start(); /* no lock is held */
	conf_pair_close(&c);
}

static void while_it_makes_objects_of_verbs(void)
{
	while_it_makes_objects(objects_of_verbs);
}

static void while_it_makes_objects_of_the_cm(void)
{
	while_it_makes_objects(objects_of_the_cm);
}

/* ---- waits of synchronous ids ------------------------------------------------------ */

static void *waits_for_a_request(void *arg)
{
	struct rdma_cm_id *id;

	turns++;
	rdma_get_request(arg, &id);
	return NULL;
}

static void while_it_waits_for_a_request(void)
{
	conf_sa addr = conf_addr(AF_INET, 0);
	struct rdma_cm_id *id;

#ifdef CONF_SANITIZER
	SKIP("the sanitizer's functions are cancellation points");
#endif
	OK(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	OK(rdma_bind_addr(id, SA(addr)));
	OK(rdma_listen(id, 4));
	while_it_waits(waits_for_a_request, id);
	OK(rdma_destroy_id(id));
}

static const struct conf_case cases[] = {
	CASE(while_it_posts_and_polls),
	CASE(while_it_waits_for_events),
	CASE(while_it_makes_objects_of_verbs),
	CASE(while_it_makes_objects_of_the_cm),
	CASE(while_it_waits_for_a_request),
};

CONF_MAIN(cases)
