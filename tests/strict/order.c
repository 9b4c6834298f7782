/* SPDX-License-Identifier: BSD-2-Clause */
/* The order in which the responder carries out requests, and in which their bytes become
 * visible there. */
#include "strict.h"
#include "watch.h"

static const size_t sizes[] = { 1,    7,     8,	    64,	   65,	   512,	   513,
				4096, 8191,  8192,  12345, 65504,  65536,  65537,
				131072, 200001 };
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]), ROUNDS = 8 };

/* ---- messages --------------------------------------------------------------------- */

/* When the receive of a send completes, the write before it is there. */
static void send_after_write(void)
{
	st_open(NULL);
	for (int i = 0; i < SIZES * ROUNDS; i++) {
		size_t len = sizes[i % SIZES];
		struct ibv_sge sge = conf_sge(&a.b, 0, len);
		struct ibv_send_wr wr[2];

		conf_pattern(a.b.p, len, i);
		wr[0] = conf_rdma(1, IBV_WR_RDMA_WRITE, &sge, 1, p.b.p, p.b.mr->rkey);
		wr[1] = conf_wr(2, IBV_WR_SEND, NULL, 0);
		wr[0].next = &wr[1];
		OK(st_recv(&p, 3, NULL, 0));
		OK(conf_post(a.qp, wr));
		conf_wc_ok(p.rcq, 3);
		CHECK(conf_pattern_ok(p.b.p, len, i));
		conf_wc_ok(a.scq, 1);
		conf_wc_ok(a.scq, 2);
	}
	st_close();
}

/* The same with immediate data. */
static void immediate_after_its_data(void)
{
	struct ibv_wc wc;

	st_open(NULL);
	for (int i = 0; i < SIZES * ROUNDS; i++) {
		size_t len = sizes[i % SIZES];
		struct ibv_sge sge = conf_sge(&a.b, 0, len);
		struct ibv_send_wr wr = conf_rdma(1, IBV_WR_RDMA_WRITE_WITH_IMM, &sge, 1, p.b.p,
						  p.b.mr->rkey);

		wr.imm_data = htonl(i);
		conf_pattern(a.b.p, len, i);
		OK(st_recv(&p, 3, NULL, 0));
		OK(conf_post(a.qp, &wr));
		conf_wc_get(p.rcq, 3, IBV_WC_SUCCESS, &wc);
		EQ(ntohl(wc.imm_data), i);
		EQ(wc.byte_len, len);
		CHECK(conf_pattern_ok(p.b.p, len, i));
		conf_wc_ok(a.scq, 1);
	}
	st_close();
}

/* A read sees the write before it, an atomic too. */
static void read_after_write(void)
{
	st_open(NULL);
	for (int i = 0; i < SIZES * ROUNDS; i++) {
		size_t len = sizes[i % SIZES] > 100000 ? 100000 : sizes[i % SIZES];
		struct ibv_sge from = conf_sge(&a.b, 0, len), to = conf_sge(&a.b, 131072, len);
		struct ibv_send_wr wr[2];

		conf_pattern(a.b.p, len, i);
		wr[0] = conf_rdma(1, IBV_WR_RDMA_WRITE, &from, 1, p.b.p, p.b.mr->rkey);
		wr[1] = conf_rdma(2, IBV_WR_RDMA_READ, &to, 1, p.b.p, p.b.mr->rkey);
		wr[0].next = &wr[1];
		OK(conf_post(a.qp, wr));
		conf_wc_ok(a.scq, 1);
		conf_wc_ok(a.scq, 2);
		CHECK(conf_pattern_ok(a.b.p + 131072, len, i));
	}
	st_close();
}

static void atomic_after_write_and_read_after_atomic(void)
{
	st_open(NULL);
	for (uint64_t i = 0; i < 200; i++) {
		struct ibv_sge from = conf_sge(&a.b, 0, 8), old = conf_sge(&a.b, 8, 8),
			       now = conf_sge(&a.b, 16, 8);
		struct ibv_send_wr wr[3];
		uint64_t v;

		memcpy(a.b.p, &i, 8);
		wr[0] = conf_rdma(1, IBV_WR_RDMA_WRITE, &from, 1, p.b.p, p.b.mr->rkey);
		wr[1] = st_rdma(IBV_WR_ATOMIC_FETCH_AND_ADD, &old, 1, p.b.p, p.b.mr->rkey);
		wr[1].wr.atomic.compare_add = 1000;
		wr[2] = conf_rdma(3, IBV_WR_RDMA_READ, &now, 1, p.b.p, p.b.mr->rkey);
		wr[0].next = &wr[1];
		wr[1].next = &wr[2];
		OK(conf_post(a.qp, wr));
		for (int k = 1; k <= 3; k++)
			conf_wc_ok(a.scq, k);
		memcpy(&v, a.b.p + 8, 8);
		EQ(v, i);
		memcpy(&v, a.b.p + 16, 8);
		EQ(v, i + 1000);
	}
	st_close();
}

/* Of two writes to one place the later one stays. */
static void later_write_wins(void)
{
	st_open(NULL);
	for (int i = 0; i < SIZES * ROUNDS; i++) {
		size_t len = sizes[i % SIZES] > 60000 ? 60000 : sizes[i % SIZES];
		struct ibv_send_wr wr[4];
		struct ibv_sge sge[4];

		for (int k = 0; k < 4; k++) {
			conf_pattern(a.b.p + k * 65536, len, i + k);
			sge[k] = conf_sge(&a.b, k * 65536, len);
			wr[k] = conf_rdma(k, IBV_WR_RDMA_WRITE, &sge[k], 1, p.b.p,
					  p.b.mr->rkey);
			wr[k].next = k < 3 ? &wr[k + 1] : NULL;
		}
		OK(conf_post(a.qp, wr));
		for (int k = 0; k < 4; k++)
			conf_wc_ok(a.scq, k);
		CHECK(conf_pattern_ok(p.b.p, len, i + 3));
	}
	st_close();
}

/* Receives are used, and complete, in the order in which they were posted. */
static void receives_in_order(void)
{
	struct ibv_wc wc;

	st_open(NULL);
	for (int round = 0; round < 50; round++) {
		for (int i = 0; i < 8; i++)
			OK(st_recv_buf(&p, i, i * 32768, 32768));
		for (int i = 0; i < 8; i++) {
			size_t len = (round * 977 + i * 4001) % 32768;
			struct ibv_sge sge = conf_sge(&a.b, i * 32768, len);
			struct ibv_send_wr wr = conf_wr(len, IBV_WR_SEND, &sge, 1);

			conf_pattern(a.b.p + i * 32768, len, round + i);
			OK(conf_post(a.qp, &wr));
		}
		for (int i = 0; i < 8; i++) {
			size_t len = (round * 977 + i * 4001) % 32768;

			conf_wc_get(p.rcq, i, IBV_WC_SUCCESS, &wc);
			EQ(wc.byte_len, len);
			CHECK(conf_pattern_ok(p.b.p + i * 32768, len, round + i));
			conf_wc_ok(a.scq, len);
		}
	}
	st_close();
}

/* Completions of the send queue come in its order, whatever takes how long. */
static void completions_in_order(void)
{
	static const int ops[] = { IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
				   IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND };
	unsigned seed = 5;

	st_open(NULL);
	for (int round = 0; round < 50; round++) {
		struct ibv_send_wr wr[16];
		struct ibv_sge sge[16];

		for (int i = 0; i < 16; i++) {
			int op = ops[rand_r(&seed) % 4];

			sge[i] = conf_sge(&a.b, 0, st_is_atomic(op) ? 8 : rand_r(&seed) % 60000);
			wr[i] = st_rdma(op, &sge[i], 1, p.b.p, p.b.mr->rkey);
			wr[i].wr_id = i;
			wr[i].send_flags = i == 15 || rand_r(&seed) % 2 ? IBV_SEND_SIGNALED : 0;
			wr[i].next = i < 15 ? &wr[i + 1] : NULL;
			OK(st_recv_buf(&p, 1, 65536, 65536));
		}
		OK(conf_post(a.qp, wr));
		for (int i = 0; i < 16; i++)
			if (wr[i].send_flags)
				conf_wc_ok(a.scq, i);
		st_again(NULL);
	}
	st_close();
}

/* ---- fences ------------------------------------------------------------------------- */

/* A fenced write of what a read fetches: it must not leave before the read is done. */
static void fenced_write(void)
{
	st_open(NULL);
	for (int i = 0; i < SIZES * ROUNDS; i++) {
		size_t len = sizes[i % SIZES] > 100000 ? 100000 : sizes[i % SIZES];
		struct ibv_sge sge = conf_sge(&a.b, 0, len);
		struct ibv_send_wr wr[2];

		conf_pattern(p.b.p, len, i);
		wr[0] = conf_rdma(1, IBV_WR_RDMA_READ, &sge, 1, p.b.p, p.b.mr->rkey);
		wr[1] = conf_rdma(2, IBV_WR_RDMA_WRITE, &sge, 1, p.b.p + 131072, p.b.mr->rkey);
		wr[1].send_flags |= IBV_SEND_FENCE;
		wr[0].next = &wr[1];
		OK(conf_post(a.qp, wr));
		conf_wc_ok(a.scq, 1);
		conf_wc_ok(a.scq, 2);
		CHECK(conf_pattern_ok(p.b.p + 131072, len, i));
	}
	st_close();
}

/* ... and a fenced send of an atomic's result. */
static void fenced_send(void)
{
	st_open(NULL);
	for (int i = 0; i < 200; i++) {
		struct ibv_sge sge = conf_sge(&a.b, 0, 8);
		struct ibv_send_wr wr[2];
		uint64_t before, got;

		memcpy(&before, p.b.p, 8);
		OK(st_recv_buf(&p, 3, 4096, 8));
		wr[0] = st_rdma(IBV_WR_ATOMIC_FETCH_AND_ADD, &sge, 1, p.b.p, p.b.mr->rkey);
		wr[0].wr_id = 1;
		wr[1] = conf_wr(2, IBV_WR_SEND, &sge, 1);
		wr[1].send_flags |= IBV_SEND_FENCE;
		wr[0].next = &wr[1];
		OK(conf_post(a.qp, wr));
		conf_wc_ok(p.rcq, 3);
		memcpy(&got, p.b.p + 4096, 8);
		EQ(got, before);
		conf_wc_ok(a.scq, 1);
		conf_wc_ok(a.scq, 2);
	}
	st_close();
}

/* A read behind a fenced write sees it, and its fence does not let it pass. */
static void write_behind_a_read_of_the_same_place(void)
{
	st_open(NULL);
	for (int i = 0; i < 100; i++) {
		struct ibv_sge to = conf_sge(&a.b, 0, 60000), from = conf_sge(&a.b, 65536, 60000);
		struct ibv_send_wr wr[2];

		conf_pattern(p.b.p, 60000, i);
		conf_pattern(a.b.p + 65536, 60000, i + 500);
		wr[0] = conf_rdma(1, IBV_WR_RDMA_READ, &to, 1, p.b.p, p.b.mr->rkey);
		wr[1] = conf_rdma(2, IBV_WR_RDMA_WRITE, &from, 1, p.b.p, p.b.mr->rkey);
		wr[1].send_flags |= IBV_SEND_FENCE;
		wr[0].next = &wr[1];
		OK(conf_post(a.qp, wr));
		conf_wc_ok(a.scq, 1);
		CHECK(conf_pattern_ok(a.b.p, 60000, i)); /* what was there before */
		conf_wc_ok(a.scq, 2);
		CHECK(conf_pattern_ok(p.b.p, 60000, i + 500));
	}
	st_close();
}

/* ---- the last byte ------------------------------------------------------------------- */

/* Programs spin on the last byte of a write; all before it must be there. */
static void watch(size_t off, size_t len, unsigned rounds, uint64_t end)
{
	struct ibv_sge sge = conf_sge(&a.b, 0, len);
	struct ibv_send_wr wr = conf_rdma(1, IBV_WR_RDMA_WRITE, &sge, 1, p.b.p + off,
					  p.b.mr->rkey);

	watch_start(p.b.p + off, len, rounds);
	for (unsigned n = 1; n <= rounds && (n <= 2 || conf_now() < end); n++) {
		memset(a.b.p, watch_value(n), len);
		OK(conf_post(a.qp, &wr));
		conf_wc_ok(a.scq, 1);
		watch_wait(n);
	}
	EQ(watch_end(), 0);
}

static void check_last_byte(const size_t *len, int n, unsigned bytes)
{
	static const size_t offs[] = { 0, 1, 60, 4093 };
	uint64_t end; /* from then on two rounds each: others want the processors */

	st_open(NULL);
	end = conf_now() + conf_ms(30000) * 1000000ull;
	for (int i = 0; i < n; i++)
		for (unsigned k = 0; k < sizeof(offs) / sizeof(offs[0]); k++) {
			unsigned rounds = bytes / (unsigned)len[i];

			if (rounds > 500)
				rounds = 500;
			if (conf_ms(1) > 1)
				rounds = rounds / 50 + 2;
			watch(offs[k], len[i], rounds, end);
		}
	st_close();
}

static void last_byte_of_small_writes(void)
{
	static const size_t len[] = { 2, 3, 8, 9, 16, 63, 64, 65, 100, 512, 513, 2048 };

	check_last_byte(len, 12, 1 << 20);
}

static void last_byte_of_large_writes(void)
{
	static const size_t len[] = { 4096, 8191, 8192, 8193, 16384, 65504, 65536, 100000,
				      200000 };

	check_last_byte(len, 9, 16 << 20);
}

/* A flag behind the data, as a write of its own. */
static void flag_after_data(void)
{
	unsigned rounds = conf_ms(1) > 1 ? 50 : 1500;

	st_open(NULL);
	for (unsigned i = 1; i <= rounds; i++) {
		size_t len = sizes[i % SIZES];
		struct ibv_sge sge[2];
		struct ibv_send_wr wr[2];
		uint8_t *flag = p.b.p + ST_LEN - 1;

		sge[0] = conf_sge(&a.b, 0, len);
		sge[1] = conf_sge(&a.b, ST_LEN - 1, 1);
		conf_pattern(a.b.p, len, i);
		watch_set(a.b.p + ST_LEN - 1, watch_value(i));
		wr[0] = conf_rdma(1, IBV_WR_RDMA_WRITE, &sge[0], 1, p.b.p, p.b.mr->rkey);
		wr[1] = conf_rdma(2, IBV_WR_RDMA_WRITE, &sge[1], 1, flag, p.b.mr->rkey);
		wr[0].send_flags = wr[1].send_flags = i % 8 ? 0 : IBV_SEND_SIGNALED;
		wr[0].next = &wr[1];
		OK(conf_post(a.qp, wr));
		/* Nobody polls: the device works alone. */
		WAIT_FOR(watch_byte(flag) == watch_value(i));
		CHECK(conf_pattern_ok(p.b.p, len, i));
		if (i % 8 == 0) {
			conf_wc_ok(a.scq, 1);
			conf_wc_ok(a.scq, 2);
		}
	}
	st_close();
}

static const struct conf_case cases[] = {
	CASE(send_after_write),
	CASE(immediate_after_its_data),
	CASE(read_after_write),
	CASE(atomic_after_write_and_read_after_atomic),
	CASE(later_write_wins),
	CASE(receives_in_order),
	CASE(completions_in_order),
	CASE(fenced_write),
	CASE(fenced_send),
	CASE(write_behind_a_read_of_the_same_place),
	LONG_CASE(last_byte_of_small_writes, 60),
	LONG_CASE(last_byte_of_large_writes, 60),
	CASE(flag_after_data),
};

CONF_MAIN(cases)
