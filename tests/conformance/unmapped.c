/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory that is unmapped while it is registered. Hardware has pinned its pages and is
 * not affected. The user-space device fails the request with the status of the side whose
 * memory it was, and the process survives. */
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

static void mapped_free(struct conf_buf *b)
{
	OK(ibv_dereg_mr(b->mr));
	munmap(b->p, LEN);
}

/* Leaves a hole in the address space that no later mapping fills. */
static void unmap(struct conf_buf *b)
{
	CHECK(mmap(b->p, LEN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	      b->p);
}

static void start(void)
{
	struct conf_opt opt = { .depth = 4 };

	if (!conf_user_device())
		SKIP("the device pins memory");
#ifdef CONF_SANITIZER
	SKIP("the sanitizer has the signal");
#endif
	conf_pair_open(&c, &opt);
	a = mapped(c.a->pd);
	p = mapped(c.p->pd);
}

static void stop(void)
{
	rdma_destroy_qp(c.a);
	rdma_destroy_qp(c.p);
	mapped_free(&a);
	mapped_free(&p);
	conf_pair_free(&c);
}

static void post(int op, size_t len)
{
	struct ibv_sge sge = conf_sge(&a, 0, len);
	struct ibv_send_wr wr = conf_rdma(1, op, &sge, 1, p.p, p.mr->rkey);

	OK(conf_post(c.a->qp, &wr));
}

/* A request of each size, after the memory of one side was unmapped: it fails with
 * `status`. A send has a receive of p's, which fails with `rstatus` unless that is 0. */
static void fails(int op, struct conf_buf *without, int status, int rstatus)
{
	for (unsigned i = 0; i < SIZES; i++) {
		start();
		if (op == IBV_WR_SEND)
			OK(conf_recv(c.p->qp, 2, &p, 0, LEN));
		unmap(without);
		post(op, sizes[i]);
		conf_wc_is(c.a->send_cq, 1, status);
		if (rstatus)
			conf_wc_is(c.p->recv_cq, 2, rstatus);
		else if (op == IBV_WR_SEND)
			conf_wc_none(c.p->recv_cq, 20);
		else if (without == &p)
			conf_qp_wait(c.p->qp, IBV_QPS_ERR);
		stop();
	}
}

static void write_to(void)
{
	fails(IBV_WR_RDMA_WRITE, &p, IBV_WC_REM_OP_ERR, 0);
}

static void read_from(void)
{
	fails(IBV_WR_RDMA_READ, &p, IBV_WC_REM_OP_ERR, 0);
}

static void read_into(void)
{
	fails(IBV_WR_RDMA_READ, &a, IBV_WC_LOC_PROT_ERR, 0);
}

static void send_from(void)
{
	fails(IBV_WR_SEND, &a, IBV_WC_LOC_PROT_ERR, 0);
}

static void receive_into(void)
{
	fails(IBV_WR_SEND, &p, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR);
}

static void atomic_on(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	for (int mine = 0; mine < 2; mine++) {
		start();
		unmap(mine ? &a : &p);
		sge = conf_sge(&a, 0, 8);
		wr = conf_rdma(1, IBV_WR_ATOMIC_FETCH_AND_ADD, &sge, 1, p.p, p.mr->rkey);
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
	mapped_free(&b);
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
	mapped_free(&b);
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
