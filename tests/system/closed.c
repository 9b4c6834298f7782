/* SPDX-License-Identifier: BSD-2-Clause */
/* A program that closes descriptors that are not its own, as daemons do by closefrom(3):
 * the device fails, says so, and can be opened again. */
#include "conf.h"
#include "side.h"

#include <fcntl.h>
#include <unistd.h>

static struct conf_pair c;
static struct conf_buf b;

/* Of devices that have failed. Their memory is not freed: leak checkers find it here. */
static struct ibv_mr *old_mr[8];
static unsigned n_old;

static void start(void)
{
	conf_pair_open(&c, &(struct conf_opt){ .abuf = &b, .len = 65536 });
}

static void works(void)
{
	struct ibv_sge sge = conf_sge(&b, 0, 1000);
	struct ibv_send_wr wr = conf_wr(3, IBV_WR_SEND, &sge, 1);

	OK(conf_recv(c.p->qp, 2, &b, 16384, 1000));
	OK(conf_post(c.a->qp, &wr));
	conf_wc_ok(c.a->send_cq, 3);
	conf_wc_ok(c.p->recv_cq, 2);
}

/* The device loses its descriptors. */
static void lose(void)
{
	old_mr[n_old++ % 8] = b.mr;
	closefrom(3);
}

static bool has_failed(void)
{
	struct ibv_device_attr attr;

	return ibv_query_device(c.a->verbs, &attr) == ENODEV;
}

/* More than the call that posts carries out by itself. */
static void works_in_another_thread(void)
{
	static uint8_t mem[2][4 << 20];
	const size_t len = sizeof(mem[0]);
	struct ibv_mr *from, *to;
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	MUST(from = ibv_reg_mr(c.a->pd, mem[0], len, CONF_RW));
	MUST(to = ibv_reg_mr(c.p->pd, mem[1], len, CONF_RW));
	sge = (struct ibv_sge){ (uintptr_t)mem[0], (uint32_t)len, from->lkey };
	wr = conf_rdma(4, IBV_WR_RDMA_WRITE, &sge, 1, mem[1], to->rkey);
	OK(conf_post(c.a->qp, &wr));
	conf_wc_ok(c.a->send_cq, 4);
	OK(ibv_dereg_mr(from));
	OK(ibv_dereg_mr(to));
}

static void works_anew(void)
{
	memset(&c, 0, sizeof(c));
	memset(&b, 0, sizeof(b));
	start();
	works();
	conf_pair_close(&c);
}

static void expect_errors(void)
{
	if (!conf_user_device())
		SKIP("of the user-space device");
	printf("# errors are expected\n");
}

/* The objects of the device that has failed. */
static void is_over(const struct conf_pair *old, struct ibv_mr *mr)
{
	struct ibv_sge sge = { .addr = (uintptr_t)mr->addr, .length = 8, .lkey = mr->lkey };
	struct ibv_send_wr wr = conf_wr(1, IBV_WR_SEND, &sge, 1);
	struct ibv_async_event ev;
	struct rdma_cm_event *event;
	struct ibv_wc wc;

	EQ(conf_post(old->a->qp, &wr), ENODEV);
	EQ(ibv_poll_cq(old->a->send_cq, 1, &wc), -ENODEV);
	CHECK(!ibv_alloc_pd(old->a->verbs) && errno == ENODEV);
	CHECK(rdma_disconnect(old->a) == -1 && errno == ENODEV);
	CHECK(rdma_get_cm_event(old->ach, &event) == -1 && errno == ENODEV);
	OK(ibv_get_async_event(old->a->verbs, &ev));
	EQ(ev.event_type, IBV_EVENT_DEVICE_FATAL);
	ibv_ack_async_event(&ev);
	CHECK(ibv_get_async_event(old->a->verbs, &ev) == -1 && errno == ENODEV);
}

static void frees_what_is_over(struct conf_pair *old, struct ibv_mr *mr)
{
	int mine = dup(2), n;

	/* Numbers that were the library's are the program's now. */
	for (n = 0; n < 64; n++)
		CHECK(fcntl(mine, F_DUPFD, 3) >= 0);
	OK(ibv_dereg_mr(mr));
	rdma_destroy_qp(old->a);
	rdma_destroy_qp(old->p);
	OK(rdma_destroy_id(old->a));
	OK(rdma_destroy_id(old->p));
	OK(rdma_destroy_id(old->listener));
	rdma_destroy_event_channel(old->ach);
	rdma_destroy_event_channel(old->lch);
	for (n = mine; n < mine + 64; n++)
		CHECK(fcntl(n, F_GETFD) >= 0);
}

/* The next call is on an object: it notices, if it needs the loop. */
static void noticed_by_a_call(void)
{
	struct ibv_mr *mr;
	struct rdma_cm_id *id;
	struct conf_pair old;

	expect_errors();
	start();
	works();
	lose();
	/* Without its answer: it fails by now or will. */
	if (!rdma_create_id(c.ach, &id, NULL, RDMA_PS_TCP)) {
		conf_sa to = conf_addr(AF_INET, 7471);

		rdma_resolve_addr(id, NULL, SA(to), 1000);
	}
	WAIT_FOR(has_failed());
	old = c;
	mr = b.mr;
	is_over(&old, mr);
	works_anew();
	frees_what_is_over(&old, mr);
	works_anew();
}

/* Nobody has noticed when the device is opened again: by the CM, by verbs. */
static void noticed_by_the_cm(void)
{
	struct ibv_mr *mr;
	struct conf_pair old;

	expect_errors();
	start();
	works();
	lose();
	old = c;
	mr = b.mr;
	works_anew();
	is_over(&old, mr);
	frees_what_is_over(&old, mr);
	works_anew();
}

static void noticed_by_opening(void)
{
	static struct side x, y;
	struct conf_pair old;
	struct ibv_mr *mr;

	expect_errors();
	start();
	works();
	lose();
	old = c;
	mr = b.mr;
	side_pair(&x, &y);
	side_pair_free(&x, &y);
	is_over(&old, mr);
	works_anew();
}

/* Nobody calls, but a timer of the thread runs: that of somebody who polls. */
static void noticed_by_the_thread(void)
{
	struct ibv_wc wc;

	expect_errors();
	start();
	works();
	for (int i = 0; i < 2000; i++)
		EQ(ibv_poll_cq(c.p->recv_cq, 1, &wc), 0);
	lose();
	WAIT_FOR(has_failed());
	works_anew();
}

/* Again and again. */
static void many_times(void)
{
	expect_errors();
	for (int i = 0; i < 5; i++) {
		start();
		works();
		lose();
	}
	works_anew();
}

/* Threads for copies wait for their next job meanwhile, and end some time after. */
static void with_threads_for_copies(void)
{
	expect_errors();
	for (int i = 0; i < 3; i++) {
		memset(&c, 0, sizeof(c));
		memset(&b, 0, sizeof(b));
		start();
		works_in_another_thread();
		closefrom(3);
	}
	memset(&c, 0, sizeof(c));
	memset(&b, 0, sizeof(b));
	start();
	works_in_another_thread();
	sleep(2); /* those of before have ended */
	works_in_another_thread();
	conf_pair_close(&c);
}

static const struct conf_case cases[] = {
	CASE(noticed_by_a_call),
	CASE(noticed_by_the_cm),
	CASE(noticed_by_opening),
	CASE(noticed_by_the_thread),
	CASE(many_times),
	CASE(with_threads_for_copies),
};

CONF_MAIN(cases)
