/* SPDX-License-Identifier: BSD-2-Clause */
/* Sends, writes, reads and atomics between two connected RC QPs that succeed: contents,
 * completions and their order. */
#include "conf.h"
#include "watch.h"

static struct conf_pair c;
static struct conf_buf a, p; /* memory of the active and the passive side */

/* c with len bytes at each end, and with opt's family, wr and sge if it is given. */
static void start(size_t len, const struct conf_opt *opt)
{
	struct conf_opt o = opt ? *opt : (struct conf_opt){ 0 };

	o.depth = 4;
	o.abuf = &a;
	o.pbuf = &p;
	o.len = len;
	conf_pair_open(&c, &o);
}

static const size_t sizes[] = { 1, 7, 63, 64, 65, 1023, 1024, 1025, 4095, 4096, 8191,
				8192, 8193, 65535, 65536, 65537, 300001, 1 << 20 };
enum { SIZES = sizeof(sizes) / sizeof(*sizes), BIG = 1 << 20 };

static void send_one(size_t len, uint32_t seed)
{
	struct ibv_sge sge = conf_sge(&a, 0, len);
	struct ibv_send_wr wr = conf_wr(len, IBV_WR_SEND, &sge, 1);
	struct ibv_wc wc;

	conf_pattern(a.p, len, seed);
	memset(p.p, 0xee, len + 1);
	OK(conf_recv(c.p->qp, seed, &p, 0, p.len));
	OK(conf_post(c.a->qp, &wr));
	conf_wc_get(c.a->send_cq, len, IBV_WC_SUCCESS, &wc);
	EQ(wc.opcode, IBV_WC_SEND);
	EQ(wc.qp_num, c.a->qp->qp_num);
	conf_wc_get(c.p->recv_cq, seed, IBV_WC_SUCCESS, &wc);
	EQ(wc.opcode, IBV_WC_RECV);
	EQ(wc.byte_len, len);
	EQ(wc.qp_num, c.p->qp->qp_num);
	EQ(wc.wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV), 0);
	CHECK(conf_pattern_ok(p.p, len, seed));
	EQ(p.p[len], 0xee); /* not a byte more */
}

static void send_all_sizes(int family)
{
	struct conf_opt opt = { .family = family };

	start(BIG + 4096, &opt);
	for (unsigned i = 0; i < SIZES; i++)
		send_one(sizes[i], i + 1);
	conf_pair_close(&c);
}

static void send_of_many_sizes(void)
{
	send_all_sizes(AF_INET);
}

static void send_over_ipv6(void)
{
	send_all_sizes(AF_INET6);
}

static void write_one(size_t len, uint32_t seed)
{
	struct ibv_sge sge = conf_sge(&a, 3, len);
	struct ibv_send_wr wr = conf_rdma(seed, IBV_WR_RDMA_WRITE, &sge, 1, p.p + 5, p.mr->rkey);
	struct ibv_wc wc;

	conf_pattern(a.p + 3, len, seed);
	memset(p.p, 0xee, len + 10);
	OK(conf_post(c.a->qp, &wr));
	conf_wc_get(c.a->send_cq, seed, IBV_WC_SUCCESS, &wc);
	EQ(wc.opcode, IBV_WC_RDMA_WRITE);
	/* A completed write is placed. */
	CHECK(conf_pattern_ok(p.p + 5, len, seed));
	CHECK(p.p[4] == 0xee && p.p[5 + len] == 0xee);
}

static void write_of_many_sizes(void)
{
	start(BIG + 4096, NULL);
	for (unsigned i = 0; i < SIZES; i++)
		write_one(sizes[i], i + 1);
	conf_wc_none(c.p->recv_cq, 20); /* the target sees nothing */
	conf_pair_close(&c);
}

static void read_one(size_t len, uint32_t seed)
{
	struct ibv_sge sge = conf_sge(&a, 5, len);
	struct ibv_send_wr wr = conf_rdma(seed, IBV_WR_RDMA_READ, &sge, 1, p.p + 3, p.mr->rkey);
	struct ibv_wc wc;

	conf_pattern(p.p + 3, len, seed);
	memset(a.p, 0xee, len + 10);
	OK(conf_post(c.a->qp, &wr));
	conf_wc_get(c.a->send_cq, seed, IBV_WC_SUCCESS, &wc);
	EQ(wc.opcode, IBV_WC_RDMA_READ);
	EQ(wc.byte_len, len);
	CHECK(conf_pattern_ok(a.p + 5, len, seed));
	CHECK(a.p[4] == 0xee && a.p[5 + len] == 0xee);
}

static void read_of_many_sizes(void)
{
	start(BIG + 4096, NULL);
	for (unsigned i = 0; i < SIZES; i++)
		read_one(sizes[i], i + 1);
	conf_pair_close(&c);
}

static void both_directions_serve(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	start(65536, NULL);
	conf_pattern(p.p, 4096, 8);
	sge = conf_sge(&p, 0, 4096);
	wr = conf_rdma(1, IBV_WR_RDMA_WRITE, &sge, 1, a.p + 8192, a.mr->rkey);
	OK(conf_post(c.p->qp, &wr));
	conf_wc_ok(c.p->send_cq, 1);
	CHECK(conf_pattern_ok(a.p + 8192, 4096, 8));
	sge = conf_sge(&p, 16384, 4096);
	wr = conf_rdma(2, IBV_WR_RDMA_READ, &sge, 1, a.p + 8192, a.mr->rkey);
	OK(conf_post(c.p->qp, &wr));
	conf_wc_ok(c.p->send_cq, 2);
	CHECK(conf_pattern_ok(p.p + 16384, 4096, 8));
	conf_pair_close(&c);
}

static void zero_length(void)
{
	struct ibv_send_wr wr;
	struct ibv_wc wc;

	start(4096, NULL);
	OK(conf_recv(c.p->qp, 1, NULL, 0, 0));
	wr = conf_wr(2, IBV_WR_SEND, NULL, 0);
	OK(conf_post(c.a->qp, &wr));
	conf_wc_ok(c.a->send_cq, 2);
	conf_wc_get(c.p->recv_cq, 1, IBV_WC_SUCCESS, &wc);
	EQ(wc.byte_len, 0);
	wr = conf_rdma(3, IBV_WR_RDMA_WRITE, NULL, 0, p.p, p.mr->rkey);
	OK(conf_post(c.a->qp, &wr));
	conf_wc_ok(c.a->send_cq, 3);
	wr = conf_rdma(4, IBV_WR_RDMA_READ, NULL, 0, p.p, p.mr->rkey);
	OK(conf_post(c.a->qp, &wr));
	conf_wc_ok(c.a->send_cq, 4);
	OK(conf_recv(c.p->qp, 5, NULL, 0, 0));
	wr = conf_rdma(6, IBV_WR_RDMA_WRITE_WITH_IMM, NULL, 0, p.p, p.mr->rkey);
	wr.imm_data = htonl(0x11223344);
	OK(conf_post(c.a->qp, &wr));
	conf_wc_ok(c.a->send_cq, 6);
	conf_wc_get(c.p->recv_cq, 5, IBV_WC_SUCCESS, &wc);
	EQ(ntohl(wc.imm_data), 0x11223344);
	EQ(wc.byte_len, 0);
	conf_pair_close(&c);
}

static void send_with_immediate(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct ibv_wc wc;

	start(65536, NULL);
	for (unsigned i = 0; i < 3; i++) {
		size_t len = (size_t[]){ 0, 100, 20000 }[i];

		conf_pattern(a.p, len, i);
		sge = conf_sge(&a, 0, len);
		wr = conf_wr(2, IBV_WR_SEND_WITH_IMM, &sge, len ? 1 : 0);
		wr.imm_data = htonl(0xcafe0000 + i);
		OK(conf_recv(c.p->qp, 1, &p, 0, 65536));
		OK(conf_post(c.a->qp, &wr));
		conf_wc_ok(c.a->send_cq, 2);
		conf_wc_get(c.p->recv_cq, 1, IBV_WC_SUCCESS, &wc);
		EQ(wc.opcode, IBV_WC_RECV);
		CHECK(wc.wc_flags & IBV_WC_WITH_IMM);
		EQ(ntohl(wc.imm_data), 0xcafe0000 + i);
		EQ(wc.byte_len, len);
		CHECK(conf_pattern_ok(p.p, len, i));
	}
	conf_pair_close(&c);
}

static void write_with_immediate(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct ibv_wc wc;

	start(65536, NULL);
	memset(p.p, 0xee, 65536);
	conf_pattern(a.p, 30000, 4);
	sge = conf_sge(&a, 0, 30000);
	wr = conf_rdma(2, IBV_WR_RDMA_WRITE_WITH_IMM, &sge, 1, p.p + 1000, p.mr->rkey);
	wr.imm_data = htonl(0xdeadbeef);
	OK(conf_recv(c.p->qp, 1, &p, 60000, 100));
	OK(conf_post(c.a->qp, &wr));
	conf_wc_get(c.a->send_cq, 2, IBV_WC_SUCCESS, &wc);
	EQ(wc.opcode, IBV_WC_RDMA_WRITE);
	conf_wc_get(c.p->recv_cq, 1, IBV_WC_SUCCESS, &wc);
	EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	CHECK(wc.wc_flags & IBV_WC_WITH_IMM);
	EQ(ntohl(wc.imm_data), 0xdeadbeef);
	EQ(wc.byte_len, 30000);
	CHECK(conf_pattern_ok(p.p + 1000, 30000, 4));
	CHECK(conf_is_fill(p.p + 60000, 0xee, 100)); /* the receive's buffer is not used */
	conf_pair_close(&c);
}

/* Inline data may be overwritten as soon as the post returns. */
static void inline_data(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	start(4096, NULL);
	for (int i = 0; i < 8; i++)
		OK(conf_recv(c.p->qp, i, &p, i * 64, 64));
	for (int i = 0; i < 8; i++) {
		uint8_t stack[64];

		memset(stack, i + 1, sizeof(stack));
		sge = (struct ibv_sge){ .addr = (uintptr_t)stack, .length = 64, .lkey = 0xbad };
		wr = conf_wr(i, IBV_WR_SEND, &sge, 1);
		wr.send_flags |= IBV_SEND_INLINE;
		OK(conf_post(c.a->qp, &wr));
		memset(stack, 0xff, sizeof(stack));
	}
	for (int i = 0; i < 8; i++) {
		conf_wc_ok(c.a->send_cq, i);
		conf_wc_ok(c.p->recv_cq, i);
		CHECK(conf_is_fill(p.p + i * 64, i + 1, 64));
	}
	conf_pair_close(&c);
}

static void inline_beyond_the_limit(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	start(1 << 20, NULL);
	OK(ibv_query_qp(c.a->qp, &attr, IBV_QP_CAP, &init));
	CHECK(init.cap.max_inline_data >= 64 && init.cap.max_inline_data < 1 << 20);
	sge = conf_sge(&a, 0, init.cap.max_inline_data + 1);
	wr = conf_wr(1, IBV_WR_SEND, &sge, 1);
	wr.send_flags |= IBV_SEND_INLINE;
	CHECK(conf_post(c.a->qp, &wr) != 0);
	conf_wc_none(c.a->send_cq, 20);
	conf_pair_close(&c);
}

static void scatter_and_gather(void)
{
	struct conf_opt opt = { .sge = 4 };
	struct ibv_recv_wr rwr = { .wr_id = 1 }, *bad;
	struct ibv_sge s[4], r[4];
	struct ibv_send_wr wr;
	struct ibv_wc wc;

	start(65536, &opt);
	conf_pattern(a.p, 15001, 5);
	s[0] = conf_sge(&a, 0, 5000);
	s[1] = conf_sge(&a, 5000, 1);
	memmove(a.p + 20000, a.p + 5001, 10000);
	s[2] = conf_sge(&a, 20000, 4000);
	s[3] = conf_sge(&a, 24000, 6000);
	r[0] = conf_sge(&p, 40000, 1);
	r[1] = conf_sge(&p, 0, 9000);
	r[2] = conf_sge(&p, 10000, 3000);
	r[3] = conf_sge(&p, 20000, 20000);
	rwr.sg_list = r;
	rwr.num_sge = 4;
	OK(ibv_post_recv(c.p->qp, &rwr, &bad));
	wr = conf_wr(2, IBV_WR_SEND, s, 4);
	OK(conf_post(c.a->qp, &wr));
	conf_wc_ok(c.a->send_cq, 2);
	conf_wc_get(c.p->recv_cq, 1, IBV_WC_SUCCESS, &wc);
	EQ(wc.byte_len, 15001);
	memmove(p.p + 50000, p.p + 40000, 1);
	memmove(p.p + 50001, p.p, 9000);
	memmove(p.p + 59001, p.p + 10000, 3000);
	memmove(p.p + 62001, p.p + 20000, 3000);
	CHECK(conf_pattern_ok(p.p + 50000, 15001, 5));
	conf_pair_close(&c);
}

static void gather_a_write_scatter_a_read(void)
{
	struct conf_opt opt = { .sge = 3 };
	struct ibv_sge s[3];
	struct ibv_send_wr wr;

	start(65536, &opt);
	conf_pattern(a.p, 12000, 6);
	for (int i = 0; i < 3; i++)
		s[i] = conf_sge(&a, i * 4000, 4000);
	wr = conf_rdma(1, IBV_WR_RDMA_WRITE, s, 3, p.p + 7, p.mr->rkey);
	OK(conf_post(c.a->qp, &wr));
	conf_wc_ok(c.a->send_cq, 1);
	CHECK(conf_pattern_ok(p.p + 7, 12000, 6));
	s[0] = conf_sge(&a, 20000, 11);
	s[1] = conf_sge(&a, 20011, 9000);
	s[2] = conf_sge(&a, 29011, 2989);
	wr = conf_rdma(2, IBV_WR_RDMA_READ, s, 3, p.p + 7, p.mr->rkey);
	OK(conf_post(c.a->qp, &wr));
	conf_wc_ok(c.a->send_cq, 2);
	CHECK(conf_pattern_ok(a.p + 20000, 12000, 6));
	conf_pair_close(&c);
}

static void atomics(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct ibv_wc wc;
	volatile uint64_t *word;
	uint64_t *old;

	start(4096, NULL);
	word = (void *)(p.p + 64);
	old = (void *)a.p;
	sge = conf_sge(&a, 0, 8);
	*word = 40;
	for (int i = 0; i < 2; i++) {
		wr = conf_rdma(i, IBV_WR_ATOMIC_FETCH_AND_ADD, &sge, 1, p.p + 64,
			       p.mr->rkey);
		wr.wr.atomic.compare_add = 2;
		OK(conf_post(c.a->qp, &wr));
		conf_wc_get(c.a->send_cq, i, IBV_WC_SUCCESS, &wc);
		EQ(wc.opcode, IBV_WC_FETCH_ADD);
		EQ(*old, 40 + 2 * i);
	}
	EQ(*word, 44);
	for (int i = 0; i < 2; i++) {
		wr = conf_rdma(i, IBV_WR_ATOMIC_CMP_AND_SWP, &sge, 1, p.p + 64,
			       p.mr->rkey);
		wr.wr.atomic.compare_add = i ? 1234 : 44; /* the second must not swap */
		wr.wr.atomic.swap = i ? 5 : 0xfedcba9876543210;
		OK(conf_post(c.a->qp, &wr));
		conf_wc_get(c.a->send_cq, i, IBV_WC_SUCCESS, &wc);
		EQ(wc.opcode, IBV_WC_COMP_SWAP);
		EQ(*old, i ? 0xfedcba9876543210 : 44);
	}
	CHECK(*word == 0xfedcba9876543210);
	conf_pair_close(&c);
}

/* Atomics of two connections on one word do not lose anything. */
static void atomics_from_two_sides(void)
{
	enum { N = 200 };
	struct ibv_sge sa, sp;
	struct ibv_send_wr wa, wp;
	volatile uint64_t *word;

	start(4096, NULL);
	word = (void *)(p.p + 128);
	sa = conf_sge(&a, 0, 8);
	sp = conf_sge(&p, 0, 8);
	wa = conf_rdma(1, IBV_WR_ATOMIC_FETCH_AND_ADD, &sa, 1, p.p + 128, p.mr->rkey);
	wp = conf_rdma(1, IBV_WR_ATOMIC_FETCH_AND_ADD, &sp, 1, p.p + 128, p.mr->rkey);
	wa.wr.atomic.compare_add = 1;
	wp.wr.atomic.compare_add = 1000;
	for (int i = 0; i < N; i++) {
		OK(conf_post(c.a->qp, &wa));
		OK(conf_post(c.p->qp, &wp)); /* p's memory is as good a target for p's peer */
		conf_wc_ok(c.a->send_cq, 1);
		conf_wc_ok(c.p->send_cq, 1);
	}
	EQ(*word, N * 1001);
	conf_pair_close(&c);
}

static void large(void)
{
	size_t len = (size_t)conf_env("CONF_LARGE", 64) << 20;
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	start(len, NULL);
	conf_pattern(a.p, len, 11);
	sge = conf_sge(&a, 0, len);
	wr = conf_rdma(1, IBV_WR_RDMA_WRITE, &sge, 1, p.p, p.mr->rkey);
	OK(conf_post(c.a->qp, &wr));
	AT("waiting for a large write");
	conf_wc_ok(c.a->send_cq, 1);
	CHECK(!memcmp(a.p, p.p, len));
	memset(a.p, 0, len);
	wr = conf_rdma(2, IBV_WR_RDMA_READ, &sge, 1, p.p, p.mr->rkey);
	OK(conf_post(c.a->qp, &wr));
	conf_wc_ok(c.a->send_cq, 2);
	CHECK(!memcmp(a.p, p.p, len));
	memset(p.p, 0, len);
	OK(conf_recv(c.p->qp, 4, &p, 0, len));
	wr = conf_wr(3, IBV_WR_SEND, &sge, 1);
	OK(conf_post(c.a->qp, &wr));
	conf_wc_ok(c.a->send_cq, 3);
	conf_wc_ok(c.p->recv_cq, 4);
	CHECK(!memcmp(a.p, p.p, len));
	conf_pair_close(&c);
}

static void completions_come_in_order(void)
{
	enum { N = 200 };
	struct conf_opt opt = { .wr = N };
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct ibv_wc wc;

	start(65536, &opt);
	for (int i = 0; i < N; i++)
		OK(conf_recv(c.p->qp, 1000 + i, &p, i * 16, 16));
	for (int i = 0; i < N; i++) {
		sge = conf_sge(&a, 0, i % 17);
		if (i % 5 == 3) /* a read in between */
			wr = conf_rdma(i, IBV_WR_RDMA_READ, &sge, 1, p.p + 40000, p.mr->rkey);
		else
			wr = conf_wr(i, IBV_WR_SEND, &sge, 1);
		OK(conf_post(c.a->qp, &wr));
	}
	for (int i = 0; i < N; i++)
		conf_wc_ok(c.a->send_cq, i);
	for (int i = 0, n = 0; i < N; i++) {
		if (i % 5 == 3)
			continue;
		conf_wc_get(c.p->recv_cq, 1000 + n++, IBV_WC_SUCCESS, &wc);
		EQ(wc.byte_len, i % 17);
	}
	conf_pair_close(&c);
}

/* A chain of work requests in one call; only the last is signalled. */
static void chain_with_one_completion(void)
{
	enum { N = 12 };
	struct ibv_send_wr wr[N];
	struct ibv_sge sge;

	start(65536, NULL);
	sge = conf_sge(&a, 0, 1000);
	conf_pattern(a.p, 1000, 2);
	for (int i = 0; i < N; i++) {
		wr[i] = conf_rdma(i, IBV_WR_RDMA_WRITE, &sge, 1, p.p + i * 1000, p.mr->rkey);
		wr[i].next = i < N - 1 ? &wr[i + 1] : NULL;
		wr[i].send_flags = i < N - 1 ? 0 : IBV_SEND_SIGNALED;
	}
	OK(conf_post(c.a->qp, wr));
	conf_wc_ok(c.a->send_cq, N - 1);
	conf_wc_none(c.a->send_cq, 20);
	for (int i = 0; i < N; i++)
		CHECK(conf_pattern_ok(p.p + i * 1000, 1000, 2));
	conf_pair_close(&c);
}

static void chain_with_a_bad_request(void)
{
	struct ibv_send_wr wr[3], *bad = NULL;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_sge sge[256];

	start(4096, NULL);
	OK(ibv_query_qp(c.a->qp, &attr, IBV_QP_CAP, &init));
	CHECK(init.cap.max_send_sge < 256);
	for (int i = 0; i < 256; i++)
		sge[i] = conf_sge(&a, 0, 1);
	for (int i = 0; i < 3; i++) {
		wr[i] = conf_rdma(i, IBV_WR_RDMA_WRITE, sge, 1, p.p, p.mr->rkey);
		wr[i].next = i < 2 ? &wr[i + 1] : NULL;
	}
	wr[1].num_sge = init.cap.max_send_sge + 1;
	CHECK(ibv_post_send(c.a->qp, wr, &bad) != 0);
	CHECK(bad == &wr[1]);
	conf_wc_ok(c.a->send_cq, 0); /* what stands before it was posted */
	conf_wc_none(c.a->send_cq, 20);
	conf_pair_close(&c);
}

static void queues_have_an_end(void)
{
	struct conf_opt opt = { .wr = 4 };
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	unsigned n = 0;
	int ret = 0;

	start(4096, &opt);
	OK(ibv_query_qp(c.p->qp, &attr, IBV_QP_CAP, &init));
	while (n <= init.cap.max_recv_wr && !(ret = conf_recv(c.p->qp, n, &p, 0, 64)))
		n++;
	EQ(n, init.cap.max_recv_wr);
	EQ(ret, ENOMEM);
	conf_pair_close(&c);
}

/* An unsignalled request gives its slot back only when a later completion of the
 * queue is polled: a program that never signals must fail here as on hardware. */
static void unsignalled_slots_need_a_polled_completion(void)
{
	struct conf_opt opt = { .wr = 4 };
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_cq *cq;
	unsigned max;
	void *ctx;

	if (!conf_user_device())
		SKIP("rxe frees slots on acknowledgement");
	start(4096, &opt);
	OK(ibv_query_qp(c.a->qp, &attr, IBV_QP_CAP, &init));
	max = init.cap.max_send_wr;
	sge = conf_sge(&a, 0, 8);
	wr = conf_rdma(1, IBV_WR_RDMA_WRITE, &sge, 1, p.p, p.mr->rkey);
	OK(ibv_req_notify_cq(c.a->send_cq, 0));
	for (unsigned i = 0; i < max; i++) {
		wr.wr_id = i;
		wr.send_flags = i == max - 1 ? IBV_SEND_SIGNALED : 0;
		OK(conf_post(c.a->qp, &wr));
	}
	WAIT_FOR(conf_readable(c.a->send_cq_channel->fd)); /* all done, nothing polled */
	OK(ibv_get_cq_event(c.a->send_cq_channel, &cq, &ctx));
	ibv_ack_cq_events(cq, 1);
	EQ(conf_post(c.a->qp, &wr), ENOMEM);
	conf_wc_ok(c.a->send_cq, max - 1);
	for (unsigned i = 0; i < max; i++)
		OK(conf_post(c.a->qp, &wr));
	conf_pair_close(&c);
}

static void more_reads_than_the_depth(void)
{
	enum { N = 32 };
	struct conf_opt opt = { .wr = N };
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	start(1 << 20, &opt);
	conf_pattern(p.p, 1 << 20, 3);
	for (int i = 0; i < N; i++) {
		sge = conf_sge(&a, i * 20000, 20000);
		wr = conf_rdma(i, IBV_WR_RDMA_READ, &sge, 1, p.p + i * 20000, p.mr->rkey);
		OK(conf_post(c.a->qp, &wr));
	}
	for (int i = 0; i < N; i++)
		conf_wc_ok(c.a->send_cq, i);
	CHECK(conf_pattern_ok(a.p, N * 20000, 3));
	conf_pair_close(&c);
}

/* A fenced send goes out after the read before it has its data. */
static void fence(void)
{
	struct ibv_send_wr wr[2];
	struct ibv_sge sge;

	start(65536, NULL);
	for (int i = 0; i < 20; i++) {
		conf_pattern(p.p, 30000, i);
		memset(p.p + 32768, 0, 30000);
		sge = conf_sge(&a, 0, 30000);
		wr[0] = conf_rdma(1, IBV_WR_RDMA_READ, &sge, 1, p.p, p.mr->rkey);
		wr[1] = conf_rdma(2, IBV_WR_RDMA_WRITE, &sge, 1, p.p + 32768, p.mr->rkey);
		wr[1].send_flags |= IBV_SEND_FENCE;
		wr[0].next = &wr[1];
		OK(conf_post(c.a->qp, wr));
		conf_wc_ok(c.a->send_cq, 1);
		conf_wc_ok(c.a->send_cq, 2);
		CHECK(conf_pattern_ok(p.p + 32768, 30000, i));
	}
	conf_pair_close(&c);
}

static void send_with_invalidate(void)
{
	struct ibv_send_wr wr;
	struct ibv_mw *mw;
	struct ibv_sge sge;
	struct ibv_wc wc;
	uint32_t rkey;

	start(4096, NULL);
	mw = ibv_alloc_mw(c.p->pd, IBV_MW_TYPE_2);
	if (!mw)
		SKIP("no memory windows of type 2: %s", strerror(errno));
	conf_buf_free(&p);
	p = conf_buf(c.p->pd, 4096, CONF_RW | IBV_ACCESS_MW_BIND);
	rkey = ibv_inc_rkey(mw->rkey);
	wr = conf_bind(1, mw, rkey,
		       (struct ibv_mw_bind_info){ p.mr, (uintptr_t)p.p, 1024,
						  IBV_ACCESS_REMOTE_WRITE });
	OK(conf_post(c.p->qp, &wr));
	conf_wc_ok(c.p->send_cq, 1);
	sge = conf_sge(&a, 0, 16);
	wr = conf_rdma(2, IBV_WR_RDMA_WRITE, &sge, 1, p.p, rkey);
	OK(conf_post(c.a->qp, &wr));
	conf_wc_ok(c.a->send_cq, 2);
	OK(conf_recv(c.p->qp, 3, NULL, 0, 0));
	wr = conf_inv(4, IBV_WR_SEND_WITH_INV, rkey);
	OK(conf_post(c.a->qp, &wr));
	conf_wc_ok(c.a->send_cq, 4);
	conf_wc_get(c.p->recv_cq, 3, IBV_WC_SUCCESS, &wc);
	CHECK(wc.wc_flags & IBV_WC_WITH_INV);
	EQ(wc.invalidated_rkey, rkey);
	wr = conf_rdma(5, IBV_WR_RDMA_WRITE, &sge, 1, p.p, rkey);
	OK(conf_post(c.a->qp, &wr)); /* the key is gone */
	conf_wc_is(c.a->send_cq, 5, IBV_WC_REM_ACCESS_ERR);
	OK(ibv_dealloc_mw(mw));
	conf_pair_close(&c);
}

/* Every operation with many sizes, both ways at once. */
static void mixed_traffic(void)
{
	enum { N = 64, ROUNDS = 20, SLOT = 16384 };
	struct conf_opt opt = { .wr = N };
	struct rdma_cm_id *id[2];
	struct conf_buf *own[2] = { &a, &p };
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	unsigned seed = 1;

	start(3 * N * SLOT, &opt);
	id[0] = c.a;
	id[1] = c.p;
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < N / 4; i++)
			for (int s = 0; s < 2; s++)
				OK(conf_recv(id[s]->qp, i, own[s], (N + i) * SLOT, SLOT));
		for (int i = 0; i < N / 4; i++)
			for (int s = 0; s < 2; s++) {
				size_t len = rand_r(&seed) % SLOT;

				conf_pattern(own[s]->p + i * SLOT, len, round + i + s);
				sge = conf_sge(own[s], i * SLOT, len);
				wr = conf_rdma(len, IBV_WR_RDMA_WRITE, &sge, 1,
					       own[!s]->p + (2 * N + i) * SLOT,
					       own[!s]->mr->rkey);
				OK(conf_post(id[s]->qp, &wr));
				wr = conf_wr(len, IBV_WR_SEND, &sge, 1);
				OK(conf_post(id[s]->qp, &wr));
			}
		for (int i = 0; i < N / 4; i++)
			for (int s = 0; s < 2; s++) {
				struct ibv_wc w, m, r;

				conf_wc(id[s]->send_cq, &w);
				conf_wc(id[s]->send_cq, &m);
				conf_wc_get(id[!s]->recv_cq, i, IBV_WC_SUCCESS, &r);
				EQ(w.status, 0);
				EQ(m.status, 0);
				EQ(r.byte_len, w.wr_id);
				CHECK(conf_pattern_ok(own[!s]->p + (2 * N + i) * SLOT,
						      r.byte_len, round + i + s));
				CHECK(conf_pattern_ok(own[!s]->p + (N + i) * SLOT,
						      r.byte_len, round + i + s));
			}
	}
	conf_pair_close(&c);
}

/* Programs spin on the last byte of a write: all before it must be there. */
static void last_byte_is_last(void)
{
	enum { LEN = 2048 };
	unsigned rounds = !conf_user_device() ? 100 : conf_ms(1) > 1 ? 500 : 20000;
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	uint64_t end;

	start(65536, NULL);
	watch_start(p.p, LEN, rounds);
	sge = conf_sge(&a, 0, LEN);
	wr = conf_rdma(1, IBV_WR_RDMA_WRITE, &sge, 1, p.p, p.mr->rkey);
	/* A round is a turn of both threads: fewer of them where others want the
	 * processors. */
	end = conf_now() + conf_ms(15000) * 1000000ull;
	for (unsigned n = 1; n <= rounds && conf_now() < end; n++) {
		memset(a.p, watch_value(n), LEN);
		OK(conf_post(c.a->qp, &wr));
		conf_wc_ok(c.a->send_cq, 1);
		watch_wait(n);
	}
	EQ(watch_end(), 0);
	conf_pair_close(&c);
}

static const struct conf_case cases[] = {
	CASE(send_of_many_sizes),
	CASE(send_over_ipv6),
	CASE(write_of_many_sizes),
	CASE(read_of_many_sizes),
	CASE(both_directions_serve),
	CASE(zero_length),
	CASE(send_with_immediate),
	CASE(write_with_immediate),
	CASE(inline_data),
	CASE(inline_beyond_the_limit),
	CASE(scatter_and_gather),
	CASE(gather_a_write_scatter_a_read),
	CASE(atomics),
	CASE(atomics_from_two_sides),
	LONG_CASE(large, 60),
	CASE(completions_come_in_order),
	CASE(chain_with_one_completion),
	CASE(chain_with_a_bad_request),
	CASE(queues_have_an_end),
	CASE(unsignalled_slots_need_a_polled_completion),
	CASE(more_reads_than_the_depth),
	CASE(fence),
	CASE(send_with_invalidate),
	CASE(mixed_traffic),
	LONG_CASE(last_byte_is_last, 40),
};

CONF_MAIN(cases)
