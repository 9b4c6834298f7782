/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections whose frames carry a CRC (over TCP). It is that of the bytes that travel:
 * memory may change, or be unmapped, while it is read or written for a peer. */
#include "side.h"

#include <sys/mman.h>

enum { LEN = 200000 };

static struct side x, y;
static atomic_bool stop;

static void rdma(int op, size_t len, int status)
{
	struct ibv_sge sge = conf_sge(&x.b, 0, len);
	struct ibv_send_wr wr = conf_rdma(1, op, &sge, 1, y.b.p, y.b.mr->rkey);

	OK(conf_post(x.qp, &wr));
	conf_wc_is(x.cq, 1, status);
}

static void data(void)
{
	static const size_t sizes[] = { 1, 3, 64, 512, 513, 1024, 4096, 8191, 8192, 8193,
					16384, 65504, 65505, LEN, 1 << 20 };

	side_pair(&x, &y);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		size_t len = sizes[i];

		memset(y.b.p, 0, 1 << 20);
		conf_pattern(x.b.p, len, i);
		rdma(IBV_WR_RDMA_WRITE, len, IBV_WC_SUCCESS);
		CHECK(conf_pattern_ok(y.b.p, len, i));
		memset(x.b.p, 0, 1 << 20);
		rdma(IBV_WR_RDMA_READ, len, IBV_WC_SUCCESS);
		CHECK(conf_pattern_ok(x.b.p, len, i));
		memset(y.b.p, 0, 1 << 20);
		OK(conf_recv(y.qp, 2, &y.b, 0, 1 << 20));
		OK(conf_send(x.qp, 1, &x.b, 0, len));
		conf_wc_ok(x.cq, 1);
		conf_wc_ok(y.cq, 2);
		CHECK(conf_pattern_ok(y.b.p, len, i));
	}
	for (unsigned i = 0; i < 50; i++)
		exchange(&x, &y, i);
	side_pair_free(&x, &y);
}

__attribute__((no_sanitize("thread"))) static void *changes(void *arg)
{
	volatile uint8_t *p = arg;

	while (!atomic_load(&stop))
		for (size_t i = 0; i < LEN; i += 64)
			p[i]++;
	return NULL;
}

static void while_it_changes(int op)
{
	pthread_t t;

	side_pair(&x, &y);
	t = conf_thread(changes, y.b.p);
	for (int i = 0; i < 1000; i++)
		rdma(op, LEN, IBV_WC_SUCCESS);
	atomic_store(&stop, true);
	conf_join(t);
	side_pair_free(&x, &y);
}

static void memory_that_changes_is_read(void)
{
	while_it_changes(IBV_WR_RDMA_READ);
}

static void memory_that_changes_is_written(void)
{
	while_it_changes(IBV_WR_RDMA_WRITE);
}

/* Another thread takes the pages away for a moment, and so does free() of a program that
 * thinks that they are pinned. */
static void *comes_and_goes(void *arg)
{
	while (!atomic_load(&stop)) {
		OK(mprotect(arg, 1 << 20, PROT_NONE));
		OK(mprotect(arg, 1 << 20, PROT_READ | PROT_WRITE));
	}
	return NULL;
}

static void while_it_comes_and_goes(int op)
{
	uint8_t *p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr;
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct ibv_wc wc;
	pthread_t t;

	if (!conf_user_device())
		SKIP("the device pins memory");
#ifdef CONF_SANITIZER
	SKIP("the sanitizer has the signal");
#endif
	CHECK(p != MAP_FAILED);
	for (unsigned i = 0; i < conf_rounds(60, 1000); i++) {
		side_pair(&x, &y);
		MUST(mr = ibv_reg_mr(dev.pd, p, 1 << 20, CONF_RW));
		atomic_store(&stop, false);
		t = conf_thread(comes_and_goes, p);
		sge = conf_sge(&x.b, 0, LEN);
		wr = conf_rdma(1, op, &sge, 1, p, mr->rkey);
		for (int k = 0; k < 50; k++) {
			OK(conf_post(x.qp, &wr));
			conf_wc(x.cq, &wc);
			if (wc.status == IBV_WC_REM_OP_ERR)
				break;
			EQ(wc.status, IBV_WC_SUCCESS);
		}
		atomic_store(&stop, true);
		conf_join(t);
		OK(ibv_dereg_mr(mr));
		side_pair_free(&x, &y);
	}
	munmap(p, 1 << 20);
}

static void memory_goes_while_it_is_read(void)
{
	while_it_comes_and_goes(IBV_WR_RDMA_READ);
}

static void memory_goes_while_it_is_written(void)
{
	while_it_comes_and_goes(IBV_WR_RDMA_WRITE);
}

static const struct conf_case cases[] = {
	CASE(data),
	CASE(memory_that_changes_is_read),
	CASE(memory_that_changes_is_written),
	CASE(memory_goes_while_it_is_read),
	CASE(memory_goes_while_it_is_written),
};

int main(int argc, char **argv)
{
	setenv("ANYRDMA_CRC", "on", 1);
	return conf_main(argc, argv, cases, sizeof(cases) / sizeof(*cases));
}
