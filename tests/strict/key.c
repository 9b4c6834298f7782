/* SPDX-License-Identifier: BSD-2-Clause */
/* Keys that do not exist, and keys of regions that were deregistered or registered
 * anew. */
#include "strict.h"

static void wrong_rkeys(void)
{
	/* No key; another place in the table; the right place, used before. */
	static const uint32_t twist[] = { 0x5a5a00, 0x01, 0x80, 0x80000000 };

	st_open(NULL);
	st_all_refused(p.b.p, 0);
	for (unsigned i = 0; i < sizeof(twist) / sizeof(twist[0]); i++) {
		struct ibv_sge sge = conf_sge(&a.b, 0, 64);
		struct ibv_send_wr wr = st_rdma(IBV_WR_RDMA_WRITE, &sge, 1, p.b.p,
						p.b.mr->rkey ^ twist[i]);

		st_again(NULL);
		st_refused(&wr, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
	}
	st_close();
}

static void wrong_lkeys(void)
{
	static const uint32_t twist[] = { 0x5a5a00, 0x01, 0x80, 0x80000000 };
	struct ibv_sge sge;

	st_open(NULL);
	sge = conf_sge(&a.b, 0, 8);
	sge.lkey = 0;
	st_all_sends_refused(sge);
	st_again(NULL);
	st_all_answers_refused(sge);
	for (unsigned i = 0; i < sizeof(twist) / sizeof(twist[0]); i++) {
		struct ibv_send_wr wr = st_rdma(IBV_WR_SEND, &sge, 1, NULL, 0);

		sge.lkey = a.b.mr->lkey ^ twist[i];
		st_again(NULL);
		st_refused_here(&wr, IBV_WC_LOC_PROT_ERR);
	}
	st_again(NULL);
	sge = conf_sge(&p.b, 0, 64);
	sge.lkey ^= 1;
	st_recv_refused(&sge, 1, 8, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
	st_untouched(&p.b, ST_SEED_P);
	st_close();
}

/* A bad key behind a good one: nothing of a message leaves, and of an answer no more than
 * the first entry is stored. */
static void second_sge_with_a_bad_key(void)
{
	static const size_t first[] = { 1, 64, 4096, 100000, 200000 };
	struct ibv_sge sge[2];
	struct ibv_send_wr wr;

	st_open(NULL);
	for (unsigned i = 0; i < sizeof(first) / sizeof(first[0]); i++) {
		sge[0] = conf_sge(&a.b, 0, first[i]);
		sge[1] = conf_sge(&a.b, first[i], 8);
		sge[1].lkey ^= 1;
		wr = st_rdma(IBV_WR_RDMA_WRITE, sge, 2, p.b.p, p.b.mr->rkey);
		st_refused_here(&wr, IBV_WC_LOC_PROT_ERR);
		st_again(NULL);
		wr = st_rdma(IBV_WR_RDMA_READ, sge, 2, p.b.p, p.b.mr->rkey);
		st_sink_refused(&wr);
		st_forget(&a.b, 0, first[i], ST_SEED_A);
		st_untouched(&a.b, ST_SEED_A);
		st_again(NULL);
	}
	st_close();
}

/* Data that travels in the work request needs no key, and may be reused at once. */
static void inline_data_needs_no_key(void)
{
	struct ibv_send_wr wr;
	uint8_t bytes[64];
	struct ibv_sge sge = { (uintptr_t)bytes, sizeof(bytes), 0xdeadbeef };

	st_open(NULL);
	memset(bytes, 0x77, sizeof(bytes));
	wr = st_rdma(IBV_WR_RDMA_WRITE, &sge, 1, p.b.p, p.b.mr->rkey);
	wr.send_flags |= IBV_SEND_INLINE;
	OK(conf_post(a.qp, &wr));
	memset(bytes, 0x11, sizeof(bytes));
	conf_wc_ok(a.scq, 2);
	CHECK(conf_is_fill(p.b.p, 0x77, 64));
	st_close();
}

static void deregistered_remote_region(void)
{
	struct conf_buf b;
	struct ibv_mr gone;

	st_open(NULL);
	b = st_buf(p.pd, 8192, CONF_RW, 5);
	gone = *b.mr;
	EQ(ibv_dereg_mr(b.mr), 0);
	b.mr = NULL;
	st_all_refused(b.p, gone.rkey);
	st_untouched(&b, 5);
	/* The same memory registered again has another key. */
	MUST(b.mr = ibv_reg_mr(p.pd, b.p, 8192, CONF_RW));
	CHECK(b.mr->rkey != gone.rkey);
	st_again(NULL);
	st_all_refused(b.p, gone.rkey);
	st_untouched(&b, 5);
	st_buf_free(&b);
	st_close();
}

/* Where an answer goes is looked at when it comes, and none comes: the responder decides. */
static void wrong_lkey_and_wrong_rkey(void)
{
	static const int ops[] = { IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
				   IBV_WR_ATOMIC_CMP_AND_SWP };

	st_open(NULL);
	for (unsigned i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		struct ibv_sge sge = conf_sge(&a.b, 0, 8);
		struct ibv_send_wr wr =
			st_rdma(ops[i], &sge, 1, p.b.p, p.b.mr->rkey ^ 0x5a5a00);

		sge.lkey ^= 1;
		st_refused(&wr, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
		st_again(NULL);
	}
	st_close();
}

static void deregistered_local_region(void)
{
	struct conf_buf b;
	struct ibv_sge sge;

	st_open(NULL);
	b = st_buf(a.pd, 8192, CONF_RW, 5);
	sge = conf_sge(&b, 0, 8);
	EQ(ibv_dereg_mr(b.mr), 0);
	b.mr = NULL;
	st_all_sends_refused(sge);
	st_again(NULL);
	st_all_answers_refused(sge);
	st_untouched(&b, 5);
	st_buf_free(&b);
	st_close();
}

/* A receive is posted, then its memory is deregistered. */
static void region_of_a_posted_receive_deregistered(void)
{
	struct ibv_sge sge, from;
	struct ibv_send_wr wr;
	struct conf_buf b;

	st_open(NULL);
	b = st_buf(p.pd, 8192, CONF_RW, 5);
	sge = conf_sge(&b, 0, 64);
	OK(st_recv(&p, 1, &sge, 1));
	EQ(ibv_dereg_mr(b.mr), 0);
	b.mr = NULL;
	from = conf_sge(&a.b, 0, 64);
	wr = conf_wr(2, IBV_WR_SEND, &from, 1);
	OK(conf_post(a.qp, &wr));
	conf_wc_is(p.rcq, 1, IBV_WC_LOC_PROT_ERR);
	conf_wc_is(a.scq, 2, IBV_WC_REM_OP_ERR);
	st_untouched(&b, 5);
	st_buf_free(&b);
	st_close();
}

/* The region b, registered anew. The key stays while it names the same memory; else the
 * old one is worth nothing. */
static void check_rereg(int flags, int access, bool works)
{
	bool moves = flags & IBV_REREG_MR_CHANGE_TRANSLATION;
	struct conf_buf b, moved;
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_pd *pd;
	uint32_t old;

	st_open(NULL);
	MUST(pd = ibv_alloc_pd(p.ctx));
	b = st_buf(p.pd, 8192, CONF_RW, 5);
	moved = st_buf(p.pd, 8192, CONF_RW, 6);
	EQ(ibv_dereg_mr(moved.mr), 0);
	moved.mr = NULL;
	old = b.mr->rkey;
	EQ(ibv_rereg_mr(b.mr, flags, pd, moved.p, 8192, access), 0);
	CHECK((b.mr->rkey == old) == !moves);
	sge = conf_sge(&a.b, 0, 64);
	if (moves) {
		wr = st_rdma(IBV_WR_RDMA_WRITE, &sge, 1, b.p, old);
		st_refused(&wr, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
		st_untouched(&b, 5);
		st_again(NULL);
	}
	wr = st_rdma(IBV_WR_RDMA_WRITE, &sge, 1, moved.p, old);
	st_refused(&wr, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
	st_untouched(&moved, 6);
	st_again(NULL);
	wr = st_rdma(IBV_WR_RDMA_WRITE, &sge, 1, moves ? moved.p : b.p, b.mr->rkey);
	if (works) {
		st_accepted(&wr);
	} else {
		st_refused(&wr, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
		st_untouched(&b, 5);
	}
	st_buf_free(&b);
	st_buf_free(&moved);
	EQ(ibv_dealloc_pd(pd), 0);
	st_close();
}

static void reregistered_elsewhere(void)
{
	check_rereg(IBV_REREG_MR_CHANGE_TRANSLATION, 0, true);
}

static void reregistered_with_other_rights(void)
{
	check_rereg(IBV_REREG_MR_CHANGE_ACCESS,
		    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, false);
}

static void reregistered_with_the_same_rights(void)
{
	check_rereg(IBV_REREG_MR_CHANGE_ACCESS, CONF_RW, true);
}

static void reregistered_in_another_pd(void)
{
	check_rereg(IBV_REREG_MR_CHANGE_PD, 0, false);
}

/* A refused re-registration leaves the region as it was. */
static void refused_reregistration(void)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	uint32_t old;

	st_open(NULL);
	old = p.b.mr->rkey;
	CHECK(ibv_rereg_mr(p.b.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			   IBV_ACCESS_REMOTE_WRITE) != 0);
	EQ(p.b.mr->rkey, old);
	sge = conf_sge(&a.b, 0, 64);
	wr = st_rdma(IBV_WR_RDMA_WRITE, &sge, 1, p.b.p, old);
	st_accepted(&wr);
	st_close();
}

/* b is deregistered, and has other bytes from then on, while a's requests first..n-1 are
 * under way. They succeed up to one that fails with `status`, and those behind it are
 * flushed. Returns how many have succeeded. */
static int dereg_under_way(struct conf_buf *b, int first, int n, int status)
{
	int good = first;
	bool failed = false;

	EQ(ibv_dereg_mr(b->mr), 0);
	b->mr = NULL;
	st_fill(b, 9);
	for (int i = first; i < n; i++) {
		struct ibv_wc wc;

		conf_wc(a.scq, &wc);
		EQ(wc.wr_id, i);
		if (!failed && (int)wc.status == status)
			failed = true;
		else
			EQ(wc.status, failed ? IBV_WC_WR_FLUSH_ERR : IBV_WC_SUCCESS);
		good += !wc.status;
	}
	return good;
}

/* Some bytes of what was moved are those that b had before. */
static void has_old_bytes(const uint8_t *moved, struct conf_buf *b)
{
	st_fill(b, 5);
	for (size_t k = 0; k < b->len; k += 61)
		EQ(moved[k], b->p[k]);
}

/* When ibv_dereg_mr() has returned, the memory is the application's: writes that
 * are under way have ended, and none comes later. */
static void nothing_is_written_after_dereg(void)
{
	struct st_opt opt = { .send_wr = 8 };

	st_open(&opt);
	for (int round = 0; round < 20; round++) {
		struct conf_buf b = st_buf(p.pd, 65536, CONF_RW, 5);
		struct ibv_sge sge = conf_sge(&a.b, 0, 65536);
		struct ibv_send_wr wr = st_rdma(IBV_WR_RDMA_WRITE, &sge, 1, b.p, b.mr->rkey);

		for (int i = 0; i < 8; i++) {
			wr.wr_id = i;
			OK(conf_post(a.qp, &wr));
		}
		for (int i = 0; i < round % 4; i++)
			conf_wc_ok(a.scq, i);
		dereg_under_way(&b, round % 4, 8, IBV_WC_REM_ACCESS_ERR);
		st_untouched(&b, 9);
		st_buf_free(&b);
		st_again(&opt);
	}
	st_close();
}

/* ... and nothing is read: an answer has what was there before, or does not come. */
static void nothing_is_read_after_dereg(void)
{
	struct st_opt opt = { .ord = 8, .ird = 8 };

	st_open(&opt);
	for (int round = 0; round < 20; round++) {
		struct conf_buf b = st_buf(p.pd, 32768, CONF_RW, 5);
		struct ibv_send_wr wr[8];
		struct ibv_sge sge[8];
		int good;

		for (int i = 0; i < 8; i++) {
			sge[i] = conf_sge(&a.b, i * 32768, 32768);
			wr[i] = conf_rdma(i, IBV_WR_RDMA_READ, &sge[i], 1, b.p, b.mr->rkey);
			wr[i].next = i < 7 ? &wr[i + 1] : NULL;
		}
		OK(conf_post(a.qp, wr));
		for (int i = 0; i < round % 4; i++)
			conf_wc_ok(a.scq, i);
		good = dereg_under_way(&b, round % 4, 8, IBV_WC_REM_ACCESS_ERR);
		for (int i = 0; i < good; i++)
			has_old_bytes(a.b.p + i * 32768, &b);
		st_buf_free(&b);
		st_again(&opt);
	}
	st_close();
}

/* The sender's own memory: what succeeds has the bytes of before. */
static void nothing_is_sent_after_dereg(void)
{
	st_open(NULL);
	for (int round = 0; round < 20; round++) {
		struct conf_buf b = st_buf(a.pd, 65536, CONF_RW, 5);
		struct ibv_sge sge = conf_sge(&b, 0, 65536);
		struct ibv_send_wr wr[4];
		int good;

		for (int i = 0; i < 4; i++) {
			wr[i] = conf_rdma(i, IBV_WR_RDMA_WRITE, &sge, 1, p.b.p + i * 65536,
					  p.b.mr->rkey);
			wr[i].next = i < 3 ? &wr[i + 1] : NULL;
		}
		OK(conf_post(a.qp, wr));
		good = dereg_under_way(&b, 0, 4, IBV_WC_LOC_PROT_ERR);
		for (int i = 0; i < good; i++)
			has_old_bytes(p.b.p + i * 65536, &b);
		st_buf_free(&b);
		st_again(NULL);
	}
	st_close();
}

static const struct conf_case cases[] = {
	CASE(wrong_rkeys),
	CASE(wrong_lkeys),
	CASE(second_sge_with_a_bad_key),
	CASE(inline_data_needs_no_key),
	CASE(deregistered_remote_region),
	CASE(wrong_lkey_and_wrong_rkey),
	CASE(deregistered_local_region),
	CASE(region_of_a_posted_receive_deregistered),
	CASE(reregistered_elsewhere),
	CASE(reregistered_with_other_rights),
	CASE(reregistered_with_the_same_rights),
	CASE(reregistered_in_another_pd),
	CASE(refused_reregistration),
	CASE(nothing_is_written_after_dereg),
	CASE(nothing_is_read_after_dereg),
	CASE(nothing_is_sent_after_dereg),
};

CONF_MAIN(cases)
