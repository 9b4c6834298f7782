/* SPDX-License-Identifier: BSD-2-Clause */
/* Accesses that begin one byte before or end one byte behind a region, at the requester
 * and at the responder; ranges at the end of the address space; requests of no bytes;
 * receives that are too small. */
#include "strict.h"

/* Small, copied, placed directly, more than one frame of any transport. */
static const size_t sizes[] = { 1, 2, 63, 4096, 20000, 65536, 100000, 200000 };
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static const int ops[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ };
enum { OPS = sizeof(ops) / sizeof(ops[0]) };

static uint8_t *end(const struct st_end *e)
{
	return e->b.p + ST_LEN;
}

/* Every size and operation at `addr`, or before it when `back`. 0: one byte before the
 * region, or one behind it. */
static void check_remote(uintptr_t addr, bool back)
{
	st_open(NULL);
	for (int i = 0; i < SIZES; i++)
		for (int k = 0; k < OPS; k++) {
			struct ibv_sge sge = conf_sge(&a.b, 0, sizes[i]);
			uintptr_t at = addr ? addr :
				       back ? (uintptr_t)end(&p) + 1 :
					      (uintptr_t)p.b.p - 1;
			struct ibv_send_wr wr;

			if (back)
				at -= sizes[i];
			wr = st_rdma(ops[k], &sge, 1, (void *)at, p.b.mr->rkey);
			st_refused(&wr, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
			st_again(NULL);
		}
	st_close();
}

static void one_byte_before_the_remote_region(void)
{
	check_remote(0, false);
}

static void one_byte_behind_the_remote_region(void)
{
	check_remote(0, true);
}

static void remote_address_zero(void)
{
	check_remote(1, false);
}

/* [2^64 - n + 1, 1): the sum of address and length is small again. */
static void remote_range_wraps(void)
{
	check_remote(1, true);
}

static void remote_range_ends_with_the_address_space(void)
{
	check_remote(UINTPTR_MAX, true);
}

/* ... with a region that begins at I/O address 0. */
static void remote_range_wraps_into_a_zero_based_region(void)
{
	struct ibv_send_wr wr;
	struct conf_buf z;
	struct ibv_sge sge;

	st_open(NULL);
	z = st_buf(p.pd, 65536, CONF_RW, 5);
	EQ(ibv_dereg_mr(z.mr), 0);
	z.mr = ibv_reg_mr(p.pd, z.p, 65536, CONF_RW | IBV_ACCESS_ZERO_BASED);
	if (!z.mr)
		SKIP("no zero-based regions: %s", strerror(errno));
	for (int i = 0; i < SIZES; i++) {
		sge = conf_sge(&a.b, 0, sizes[i]);
		/* All but its first byte lies in the region, after the wrap. */
		wr = st_rdma(IBV_WR_RDMA_WRITE, &sge, 1, (void *)(uintptr_t)-1, z.mr->rkey);
		st_refused(&wr, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
		st_untouched(&z, 5);
		st_again(NULL);
	}
	sge = conf_sge(&a.b, 0, 64);
	wr = st_rdma(IBV_WR_RDMA_WRITE, &sge, 1, NULL, z.mr->rkey);
	st_accepted(&wr);
	st_again(NULL);
	wr = st_rdma(IBV_WR_RDMA_WRITE, &sge, 1, z.p, z.mr->rkey); /* no longer an address */
	st_refused(&wr, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
	st_buf_free(&z);
	st_close();
}

/* An atomic's word is aligned, so it is wholly inside or wholly outside. */
static void atomic_outside_the_region(void)
{
	static const int atomics[] = { IBV_WR_ATOMIC_FETCH_AND_ADD,
				       IBV_WR_ATOMIC_CMP_AND_SWP };

	st_open(NULL);
	for (int i = 0; i < 4; i++) {
		struct ibv_sge sge = conf_sge(&a.b, 0, 8);
		struct ibv_send_wr wr = st_rdma(atomics[i / 2], &sge, 1,
						i % 2 ? end(&p) : p.b.p - 8,
						p.b.mr->rkey);

		st_refused(&wr, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
		st_again(NULL);
	}
	st_close();
}

/* A region that ends inside the word. */
static void atomic_across_the_end_of_the_region(void)
{
	struct conf_buf b;
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	st_open(NULL);
	b = st_buf(p.pd, 4100, CONF_RW, 5);
	sge = conf_sge(&a.b, 0, 8);
	wr = st_rdma(IBV_WR_ATOMIC_FETCH_AND_ADD, &sge, 1, b.p + 4096, b.mr->rkey);
	st_refused(&wr, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
	st_untouched(&b, 5);
	st_buf_free(&b);
	st_close();
}

/* The first and the last byte, and all of it, are the region's. */
static void whole_remote_region(void)
{
	st_open(NULL);
	for (int k = 0; k < OPS; k++) {
		static const struct {
			size_t off, len;
		} r[] = { { 0, 1 }, { ST_LEN - 1, 1 }, { 0, ST_LEN }, { 1, ST_LEN - 1 },
			  { 0, ST_LEN - 1 } };

		for (unsigned i = 0; i < sizeof(r) / sizeof(r[0]); i++) {
			struct ibv_sge sge = conf_sge(&a.b, r[i].off, r[i].len);
			struct ibv_send_wr wr = st_rdma(ops[k], &sge, 1, p.b.p + r[i].off,
							p.b.mr->rkey);

			OK(st_recv(&p, 1, NULL, 0));
			st_accepted(&wr);
			st_again(NULL);
		}
	}
	st_close();
}

/* ---- local ------------------------------------------------------------------- */

/* The bad range as the only SGE and as the last of three. */
static void check_local(bool behind)
{
	static const int local_ops[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ };

	st_open(NULL);
	for (int i = 0; i < SIZES; i++)
		for (int k = 0; k < 6; k++) {
			struct ibv_sge sge[3] = { conf_sge(&a.b, 0, 8), conf_sge(&a.b, 8, 4096),
						  conf_sge(&a.b, 0, sizes[i]) };
			struct ibv_send_wr wr = st_rdma(local_ops[k / 2], k % 2 ? sge : sge + 2,
							k % 2 ? 3 : 1, p.b.p, p.b.mr->rkey);

			sge[2].addr = behind ? (uintptr_t)end(&a) + 1 - sizes[i] :
					       (uintptr_t)a.b.p - 1;
			if (wr.opcode != IBV_WR_RDMA_READ) {
				st_refused_here(&wr, IBV_WC_LOC_PROT_ERR);
			} else {
				st_sink_refused(&wr);
				/* In the region a part of the answer may be stored. */
				st_forget(&a.b, 0, behind ? a.b.len : k % 2 ? 8 + 4096 : 0,
					  ST_SEED_A);
				st_untouched(&a.b, ST_SEED_A);
			}
			st_again(NULL);
		}
	st_close();
}

static void one_byte_before_the_local_region(void)
{
	check_local(false);
}

static void one_byte_behind_the_local_region(void)
{
	check_local(true);
}

static void local_range_wraps(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	st_open(NULL);
	for (int i = 1; i < SIZES; i++) {
		sge = conf_sge(&a.b, 0, sizes[i]);
		sge.addr = (uintptr_t)-1;
		wr = st_rdma(IBV_WR_SEND, &sge, 1, NULL, 0);
		st_refused_here(&wr, IBV_WC_LOC_PROT_ERR);
		st_again(NULL);
	}
	st_close();
}

/* Where a receive leaves its region, the message that gets there fails. Bytes before
 * that may have been placed; none outside of the region. */
static void receive_beyond_the_region(void)
{
	st_open(NULL);
	for (int i = 0; i < SIZES; i++)
		for (int k = 0; k < 2; k++) {
			struct ibv_sge sge = conf_sge(&p.b, 0, sizes[i]);

			sge.addr = k ? (uintptr_t)end(&p) + 1 - sizes[i] : (uintptr_t)p.b.p - 1;
			st_recv_refused(&sge, 1, sizes[i], IBV_WC_LOC_PROT_ERR,
					IBV_WC_REM_OP_ERR);
			/* The guards, by way of a copy of what may have changed. */
			conf_pattern(a.b.p - ST_GUARD, ST_LEN + 2 * ST_GUARD, ST_SEED_P);
			memcpy(p.b.p, a.b.p, ST_LEN);
			st_untouched(&p.b, ST_SEED_P);
			st_event(&p, ST_NONE);
			st_again(NULL);
		}
	st_close();
}

/* ---- no bytes ---------------------------------------------------------------- */

/* The key of a request of no bytes is not looked at (InfiniBand C9-88): rsockets send
 * such writes with key 0. */
static void empty_request_with_a_bad_rkey(void)
{
	static const uint32_t twist[] = { 0, 0x5a5a00, 1 };
	struct ibv_send_wr wr;

	st_open(NULL);
	for (unsigned i = 0; i < 3; i++)
		for (int k = 0; k < OPS; k++) {
			OK(st_recv(&p, 1, NULL, 0));
			wr = st_rdma(ops[k], NULL, 0, i ? NULL : end(&p) + 1,
				     p.b.mr->rkey ^ twist[i]);
			st_accepted(&wr);
			if (ops[k] != IBV_WR_RDMA_WRITE_WITH_IMM)
				continue;
			conf_wc_ok(p.rcq, 1);
		}
	wr = st_rdma(IBV_WR_RDMA_WRITE, NULL, 0, NULL, 0);
	st_accepted(&wr);
	EQ(conf_qp_state(p.qp), IBV_QPS_RTS);
	st_untouched(&a.b, ST_SEED_A);
	st_untouched(&p.b, ST_SEED_P);
	st_close();
}

/* An SGE of no bytes names no memory. */
static void empty_sge_with_a_bad_lkey(void)
{
	struct ibv_sge sge[3], from;
	struct ibv_send_wr wr;
	struct ibv_wc wc;

	st_open(NULL);
	sge[0] = conf_sge(&a.b, 0, 0);
	sge[0].lkey = 0;
	for (int k = 0; k < OPS; k++) {
		OK(st_recv(&p, 1, NULL, 0));
		wr = st_rdma(ops[k], sge, 1, p.b.p, p.b.mr->rkey);
		st_accepted(&wr);
	}
	conf_wc_ok(p.rcq, 1);
	/* Between others, on both sides. */
	sge[0] = conf_sge(&p.b, 0, 16);
	sge[1] = (struct ibv_sge){ .addr = 1, .length = 0, .lkey = 0xdeadbeef };
	sge[2] = conf_sge(&p.b, 64, 16);
	EQ(st_recv(&p, 7, sge, 3), 0); /* behind the empty ones that reads left */
	from = conf_sge(&a.b, 0, 32);
	wr = st_rdma(IBV_WR_SEND, NULL, 0, NULL, 0);
	for (int k = 0; k < 2; k++) { /* the receives that a write and a read left */
		st_accepted(&wr);
		conf_wc_ok(p.rcq, 1);
	}
	wr = st_rdma(IBV_WR_SEND, &from, 1, NULL, 0);
	st_accepted(&wr);
	conf_wc_get(p.rcq, 7, IBV_WC_SUCCESS, &wc);
	EQ(wc.byte_len, 32);
	for (int i = 0; i < 16; i++) {
		EQ(p.b.p[i], a.b.p[i]);
		EQ(p.b.p[64 + i], a.b.p[16 + i]);
	}
	st_close();
}

/* ---- receive too small --------------------------------------------------------- */

/* n SGEs of `have` bytes in all for a message of have + 1. */
static void check_too_small(size_t have, int n)
{
	struct ibv_sge sge[4];
	size_t off = 0;

	for (int i = 0; i < n; i++) {
		size_t part = i == n - 1 ? have - off : have / n;

		sge[i] = conf_sge(&p.b, off, part);
		off += part;
	}
	st_recv_refused(sge, n, have + 1, IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR);
	st_event(&p, ST_NONE); /* the completion says it */
	/* Not a byte behind the receive's buffers. */
	conf_pattern(a.b.p - ST_GUARD, ST_LEN + 2 * ST_GUARD, ST_SEED_P);
	memcpy(p.b.p, a.b.p, have);
	st_untouched(&p.b, ST_SEED_P);
	st_again(NULL);
}

static void receive_one_byte_too_small(void)
{
	st_open(NULL);
	for (int i = 0; i < SIZES; i++) {
		check_too_small(sizes[i], 1);
		if (sizes[i] >= 4)
			check_too_small(sizes[i], 4);
	}
	st_close();
}

static void receive_without_memory(void)
{
	st_open(NULL);
	st_recv_refused(NULL, 0, 1, IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR);
	st_untouched(&p.b, ST_SEED_P);
	st_close();
}

static void receive_from_an_srq_too_small(void)
{
	struct st_opt opt = { .srq_wr = 8 };
	struct ibv_sge sge;

	st_open(&opt);
	sge = conf_sge(&p.b, 0, 99);
	st_recv_refused(&sge, 1, 100, IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR);
	st_event(&p, IBV_EVENT_QP_LAST_WQE_REACHED);
	st_close();
}

/* What fits exactly fits; nothing behind the message changes. */
static void receive_fits(void)
{
	struct ibv_sge from;
	struct ibv_send_wr wr;
	struct ibv_wc wc;

	st_open(NULL);
	for (int i = 0; i < SIZES; i++) {
		OK(st_recv_buf(&p, 1, 0, sizes[i]));
		OK(st_recv_buf(&p, 3, 0, ST_LEN));
		from = conf_sge(&a.b, 0, sizes[i]);
		wr = conf_wr(2, IBV_WR_SEND, &from, 1);
		st_accepted(&wr);
		st_accepted(&wr);
		conf_wc_get(p.rcq, 1, IBV_WC_SUCCESS, &wc);
		EQ(wc.byte_len, sizes[i]);
		conf_wc_get(p.rcq, 3, IBV_WC_SUCCESS, &wc);
		EQ(wc.byte_len, sizes[i]);
		conf_pattern(a.b.p - ST_GUARD, ST_LEN + 2 * ST_GUARD, ST_SEED_P);
		memcpy(p.b.p, a.b.p, sizes[i]);
		st_untouched(&p.b, ST_SEED_P);
		st_again(NULL);
	}
	st_close();
}

/* A region with an I/O address of its own is known by that alone. */
static void region_with_its_own_address(void)
{
	const uint64_t iova = 0x7000000000000000;
	struct ibv_send_wr wr;
	struct conf_buf b;
	struct ibv_sge sge;

	st_open(NULL);
	b = st_buf(p.pd, 65536, CONF_RW, 5);
	EQ(ibv_dereg_mr(b.mr), 0);
	b.mr = ibv_reg_mr_iova(p.pd, b.p, 65536, iova, CONF_RW);
	if (!b.mr)
		SKIP("no I/O addresses: %s", strerror(errno));
	sge = conf_sge(&a.b, 0, 64);
	for (int i = 0; i < 3; i++) {
		uint64_t at = i == 0 ? (uintptr_t)b.p : i == 1 ? iova - 1 : iova + 65536 - 63;

		wr = st_rdma(IBV_WR_RDMA_WRITE, &sge, 1, (void *)(uintptr_t)at, b.mr->rkey);
		st_refused(&wr, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
		st_untouched(&b, 5);
		st_again(NULL);
	}
	wr = st_rdma(IBV_WR_RDMA_WRITE, &sge, 1, (void *)(uintptr_t)(iova + 65536 - 64),
		     b.mr->rkey);
	st_accepted(&wr);
	for (int i = 0; i < 64; i++)
		EQ(b.p[65536 - 64 + i], a.b.p[i]);
	st_buf_free(&b);
	st_close();
}

static const struct conf_case cases[] = {
	CASE(one_byte_before_the_remote_region),
	CASE(one_byte_behind_the_remote_region),
	CASE(remote_address_zero),
	CASE(remote_range_wraps),
	CASE(remote_range_ends_with_the_address_space),
	CASE(remote_range_wraps_into_a_zero_based_region),
	CASE(atomic_outside_the_region),
	CASE(atomic_across_the_end_of_the_region),
	CASE(whole_remote_region),
	CASE(one_byte_before_the_local_region),
	CASE(one_byte_behind_the_local_region),
	CASE(local_range_wraps),
	CASE(receive_beyond_the_region),
	CASE(empty_request_with_a_bad_rkey),
	CASE(empty_sge_with_a_bad_lkey),
	CASE(receive_one_byte_too_small),
	CASE(receive_without_memory),
	CASE(receive_from_an_srq_too_small),
	CASE(receive_fits),
	CASE(region_with_its_own_address),
};

CONF_MAIN(cases)
