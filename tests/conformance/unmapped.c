/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory that is unmapped while it is registered. Hardware has pinned it and goes
 * on; the user-space device fails the transfer, on the right side and with the
 * program alive. */
#include "conf.h"

#include <sys/mman.h>

static struct conf_pair c;
static struct conf_buf a, p; /* a: of the side that posts, p: of its peer */

enum { LEN = 1 << 20 };

/* Sizes on all ways that bytes take: copied, read ahead, straight. */
static const size_t sizes[] = { 1, 64, 512, 513, 4096, 8192, 60000, 300000 };
enum { SIZES = sizeof(sizes) / sizeof(*sizes) };

static struct conf_buf mapped(struct ibv_pd *pd)
{
	struct conf_buf b = { .len = LEN };

	b.p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(b.p != MAP_FAILED);
	MUST(b.mr = ibv_reg_mr(pd, b.p, LEN, CONF_RW));
	return b;
}

/* A hole that nobody else will fill. */
static void unmap(struct conf_buf *b)
{
	CHECK(mmap(b->p, LEN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	      b->p);
}

static void start(void)
{
	struct rdma_conn_param param = conf_param();
	struct conf_opt opt = { .connect = &param, .accept = &param };

	if (!conf_user_device())
		SKIP("the device pins memory");
#ifdef CONF_SANITIZER
	SKIP("the sanitizer has the signal");
#endif
	param.responder_resources = param.initiator_depth = 4;
	conf_pair_open(&c, &opt);
	a = mapped(c.a->pd);
	p = mapped(c.p->pd);
}

static void stop(void)
{
	rdma_destroy_qp(c.a);
	rdma_destroy_qp(c.p);
	OK(ibv_dereg_mr(a.mr));
	OK(ibv_dereg_mr(p.mr));
	munmap(a.p, LEN);
	munmap(p.p, LEN);
	conf_pair_free(&c);
}

static void post(int op, size_t len)
{
	struct ibv_sge sge = conf_sge(&a, 0, len);
	struct ibv_send_wr wr = conf_rdma(1, op, &sge, 1, p.p, p.mr->rkey);

	OK(conf_post(c.a->qp, &wr));
}

static void write_to(void)
{
	for (unsigned i = 0; i < SIZES; i++) {
		start();
		unmap(&p);
		post(IBV_WR_RDMA_WRITE, sizes[i]);
		conf_wc_is(c.a->send_cq, 1, IBV_WC_REM_OP_ERR);
		conf_qp_wait(c.p->qp, IBV_QPS_ERR);
		stop();
	}
}

static void read_from(void)
{
	for (unsigned i = 0; i < SIZES; i++) {
		start();
		unmap(&p);
		post(IBV_WR_RDMA_READ, sizes[i]);
		conf_wc_is(c.a->send_cq, 1, IBV_WC_REM_OP_ERR);
		conf_qp_wait(c.p->qp, IBV_QPS_ERR);
		stop();
	}
}

static void read_into(void)
{
	for (unsigned i = 0; i < SIZES; i++) {
		start();
		unmap(&a);
		post(IBV_WR_RDMA_READ, sizes[i]);
		conf_wc_is(c.a->send_cq, 1, IBV_WC_LOC_PROT_ERR);
		stop();
	}
}

static void send_from(void)
{
	for (unsigned i = 0; i < SIZES; i++) {
		start();
		OK(conf_recv(c.p->qp, 2, &p, 0, LEN));
		unmap(&a);
		post(IBV_WR_SEND, sizes[i]);
		conf_wc_is(c.a->send_cq, 1, IBV_WC_LOC_PROT_ERR);
		conf_wc_none(c.p->recv_cq, 20);
		stop();
	}
}

static void receive_into(void)
{
	for (unsigned i = 0; i < SIZES; i++) {
		start();
		OK(conf_recv(c.p->qp, 2, &p, 0, LEN));
		unmap(&p);
		post(IBV_WR_SEND, sizes[i]);
		conf_wc_is(c.a->send_cq, 1, IBV_WC_REM_OP_ERR);
		conf_wc_is(c.p->recv_cq, 2, IBV_WC_LOC_PROT_ERR);
		stop();
	}
}

static void atomic_on(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	for (int mine = 0; mine < 2; mine++) {
		start();
		unmap(mine ? &a : &p);
		sge = conf_sge(&a, 0, 8);
		wr = conf_wr(1, IBV_WR_ATOMIC_FETCH_AND_ADD, &sge, 1);
		wr.wr.atomic.remote_addr = (uintptr_t)p.p;
		wr.wr.atomic.rkey = p.mr->rkey;
		OK(conf_post(c.a->qp, &wr));
		conf_wc_is(c.a->send_cq, 1, mine ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_OP_ERR);
		stop();
	}
}

/* Good work before it is done and reported; what is behind it is flushed. */
static void in_the_middle_of_work(void)
{
	struct ibv_send_wr wr[6];
	struct ibv_sge sge[6];
	struct conf_buf b;

	start();
	b = mapped(c.a->pd);
	conf_pattern(b.p, LEN, 3);
	for (int i = 0; i < 6; i++) {
		sge[i] = conf_sge(i == 3 ? &a : &b, 0, 100000);
		wr[i] = conf_rdma(i, IBV_WR_RDMA_WRITE, &sge[i], 1, p.p + 100000 * i,
				  p.mr->rkey);
		wr[i].next = i < 5 ? &wr[i + 1] : NULL;
	}
	unmap(&a);
	OK(conf_post(c.a->qp, wr));
	for (int i = 0; i < 6; i++)
		conf_wc_is(c.a->send_cq, i, i < 3  ? IBV_WC_SUCCESS :
					    i == 3 ? IBV_WC_LOC_PROT_ERR :
						     IBV_WC_WR_FLUSH_ERR);
	CHECK(conf_pattern_ok(p.p + 200000, 100000, 3));
	CONF_MSG_ZERO(p.p + 400000, 100000);
	OK(ibv_dereg_mr(b.mr));
	munmap(b.p, LEN);
	stop();
}

/* Of a connection that has nothing to do with it nobody hears anything. */
static void another_connection_lives(void)
{
	struct conf_pair d;
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct conf_buf b;

	start();
	conf_pair_open(&d, NULL);
	b = mapped(d.p->pd);
	unmap(&p);
	post(IBV_WR_RDMA_WRITE, 64);
	conf_wc_is(c.a->send_cq, 1, IBV_WC_REM_OP_ERR);
	conf_pattern(a.p, 64, 9);
	sge = conf_sge(&a, 0, 64);
	wr = conf_rdma(2, IBV_WR_RDMA_WRITE, &sge, 1, b.p, b.mr->rkey);
	OK(conf_post(d.a->qp, &wr));
	conf_wc_ok(d.a->send_cq, 2);
	CHECK(conf_pattern_ok(b.p, 64, 9));
	conf_pair_close(&d);
	OK(ibv_dereg_mr(b.mr));
	munmap(b.p, LEN);
	stop();
}

static const struct conf_case cases[] = {
	CASE(write_to),
	CASE(read_from),
	CASE(read_into),
	CASE(send_from),
	CASE(receive_into),
	CASE(atomic_on),
	CASE(in_the_middle_of_work),
	CASE(another_connection_lives),
};
CONF_MAIN(cases)
