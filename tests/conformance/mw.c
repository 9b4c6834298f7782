/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory windows of both types: access through them, its limits and rights, and which
 * objects cannot be destroyed while a window is bound. */
#include "window.h"

static void limits_are_told(void)
{
	struct ibv_device_attr attr;

	start(0);
	OK(ibv_query_device(c.p->verbs, &attr));
	CHECK(attr.max_mw > 0);
	CHECK(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW);
	CHECK(attr.device_cap_flags &
	      (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B));
	stop();
}

/* Type 1. */

static void type1(void)
{
	uint32_t old;

	start(IBV_MW_TYPE_1);
	old = mw->rkey;
	bound1(mw, range(4096, 8192, REMOTE));
	CHECK(mw->rkey != old && mw->rkey >> 8 == old >> 8);
	write_ok(4096, 8192, mw->rkey);
	write_ok(12287, 1, mw->rkey);
	read_ok(5000, 3000, mw->rkey);
	write_refused(4095, 2, mw->rkey);
	stop();
}

static void type1_moves(void)
{
	uint32_t old;

	start(IBV_MW_TYPE_1);
	for (int i = 0; i < 300; i++) { /* more than there are tags */
		old = mw->rkey;
		bound1(mw, range(i * 64, 64, REMOTE));
		write_ok(i * 64, 64, mw->rkey);
	}
	CHECK(mw->rkey != old);
	write_refused(299 * 64, 64, old);
	stop();
}

static void type1_is_unbound_by_no_bytes(void)
{
	struct ibv_mw_bind_info none = { 0 };

	start(IBV_MW_TYPE_1);
	bound1(mw, range(0, 4096, REMOTE));
	write_ok(0, 64, mw->rkey);
	bound1(mw, conf_user_device() ? none : range(0, 0, REMOTE)); /* rxe's crashes */
	conf_buf_free(&p); /* nothing holds the region any more */
	p = conf_buf(c.p->pd, LEN, LOCAL);
	write_refused(0, 64, mw->rkey);
	stop();
}

/* Any QP of the PD may be used through a type 1 window. */
static void type1_serves_every_qp(void)
{
	struct conf_pair d;

	start(IBV_MW_TYPE_1);
	conf_pair_open(&d, NULL);
	CHECK(d.p->pd == c.p->pd);
	bound1(mw, range(0, 4096, REMOTE));
	write_ok(0, 64, mw->rkey);
	access_by(d.a, IBV_WR_RDMA_WRITE, at(64), 64, mw->rkey, IBV_WC_SUCCESS);
	conf_pair_close(&d);
	stop();
}

/* Type 2. */

static void type2(void)
{
	uint32_t rkey;

	start(IBV_MW_TYPE_2);
	rkey = bound2(mw, range(100, 5000, REMOTE));
	write_ok(100, 5000, rkey);
	read_ok(200, 64, rkey);
	invalidated(rkey);
	write_refused(100, 64, rkey);
	stop();
}

static void type2_again_and_again(void)
{
	uint32_t rkey;

	start(IBV_MW_TYPE_2);
	for (int i = 0; i < 300; i++) {
		rkey = bound2(mw, range(i * 64, 64, REMOTE));
		write_ok(i * 64, 64, rkey);
		invalidated(rkey);
		mw->rkey = rkey; /* the application keeps the book */
	}
	stop();
}

static void type2_serves_its_qp(void)
{
	struct conf_pair d;
	uint32_t rkey;

	start(IBV_MW_TYPE_2);
	conf_pair_open(&d, NULL);
	CHECK(d.p->pd == c.p->pd);
	rkey = bound2(mw, range(0, 4096, REMOTE));
	access_by(d.a, IBV_WR_RDMA_WRITE, at(64), 64, rkey, IBV_WC_REM_ACCESS_ERR);
	write_ok(0, 64, rkey);
	conf_pair_free(&d);
	stop();
}

static void type2_is_bound_once(void)
{
	uint32_t rkey;

	start(IBV_MW_TYPE_2);
	rkey = bound2(mw, range(0, 4096, REMOTE));
	bind_refused(post_bind2(mw, 1, ibv_inc_rkey(rkey), range(0, 64, REMOTE)));
	stop();
}

/* Of the key that is asked for the low 8 bits count. */
static void type2_key_of_another(void)
{
	struct ibv_mw *other;
	uint32_t rkey, wanted;

	start(IBV_MW_TYPE_2);
	other = window(IBV_MW_TYPE_2);
	wanted = ibv_inc_rkey(other->rkey);
	rkey = (mw->rkey & ~0xffu) | (wanted & 0xff);
	OK(post_bind2(mw, 1, wanted, range(0, 64, REMOTE)));
	conf_wc_ok(c.p->send_cq, 1);
	if (conf_user_device())
		EQ(mw->rkey, rkey);
	write_ok(0, 64, rkey);
	invalidated(rkey);
	OK(post_bind2(other, 1, rkey, range(64, 64, REMOTE)));
	conf_wc_ok(c.p->send_cq, 1);
	write_ok(64, 64, wanted);
	write_refused(0, 64, rkey);
	OK(ibv_dealloc_mw(other));
	stop();
}

/* Rights of regions mean nothing for a window; a local key it is not. */
static void rights_that_windows_have_not(void)
{
	uint32_t rkey;

	start(IBV_MW_TYPE_1);
	bound1(mw, range(0, 64, REMOTE | IBV_ACCESS_LOCAL_WRITE));
	write_ok(0, 64, mw->rkey);
	window_free();
	mw = window(IBV_MW_TYPE_2);
	rkey = bound2(mw, range(0, 64, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_LOCAL_WRITE));
	read_ok(0, 64, rkey);
	write_refused(0, 64, rkey);
	stop();
}

static void type2_zero_based(void)
{
	uint32_t rkey;

	start(IBV_MW_TYPE_2);
	rkey = bound2(mw, range(4096, 1000, REMOTE | IBV_ACCESS_ZERO_BASED));
	conf_pattern(a.p, 1000, 7);
	access_by(c.a, IBV_WR_RDMA_WRITE, 0, 1000, rkey, IBV_WC_SUCCESS);
	CHECK(conf_pattern_ok(p.p + 4096, 1000, 7));
	access_by(c.a, IBV_WR_RDMA_READ, 990, 10, rkey, IBV_WC_SUCCESS);
	CHECK(!memcmp(a.p, p.p + 4096 + 990, 10));
	access_by(c.a, IBV_WR_RDMA_WRITE, 999, 2, rkey, IBV_WC_REM_ACCESS_ERR);
	stop();
}

static void each_type_has_its_way(void)
{
	struct ibv_mw *two;
	struct ibv_mw_bind b = { .wr_id = 1 };

	start(IBV_MW_TYPE_1);
	two = window(IBV_MW_TYPE_2);
	b.bind_info = range(0, 64, REMOTE);
	EQ(ibv_bind_mw(c.p->qp, two, &b), EINVAL);
	b.bind_info.mw_access_flags |= IBV_ACCESS_ZERO_BASED; /* for type 2 alone */
	EQ(ibv_bind_mw(c.p->qp, mw, &b), EINVAL);
	if (conf_user_device()) {
		EQ(post_bind2(mw, 1, ibv_inc_rkey(mw->rkey), range(0, 64, REMOTE)),
		   EINVAL);
		EQ(post_bind2(two, 1, ibv_inc_rkey(two->rkey),
			      range(0, 64, REMOTE | 1 << 30)),
		   EINVAL);
	}
	conf_wc_none(c.p->send_cq, 20);
	OK(ibv_dealloc_mw(two));
	stop();
}

/* Rights. */

static void window_has_rights_of_its_own(void)
{
	struct ibv_mw *w;
	uint32_t rk, wk;

	start(IBV_MW_TYPE_2);
	w = window(IBV_MW_TYPE_2);
	rk = bound2(mw, range(0, 4096, IBV_ACCESS_REMOTE_READ));
	wk = bound2(w, range(0, 4096, IBV_ACCESS_REMOTE_WRITE));
	read_ok(0, 64, rk);
	write_ok(0, 64, wk);
	write_refused(0, 64, rk);
	OK(ibv_dealloc_mw(w));
	stop();
}

/* The region may have rights that the window does not pass on. */
static void region_does_not_lend_rights(void)
{
	uint32_t rkey;

	start_with(CONF_RW | IBV_ACCESS_MW_BIND, IBV_MW_TYPE_2);
	rkey = bound2(mw, range(0, 4096, IBV_ACCESS_REMOTE_WRITE));
	access_by(c.a, IBV_WR_RDMA_READ, at(0), 64, rkey, IBV_WC_REM_ACCESS_ERR);
	stop();
}

static void atomics_through_a_window(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	start(IBV_MW_TYPE_1);
	bound1(mw, range(64, 8, IBV_ACCESS_REMOTE_ATOMIC));
	sge = conf_sge(&a, 0, 8);
	wr = conf_rdma(1, IBV_WR_ATOMIC_FETCH_AND_ADD, &sge, 1, p.p + 64, mw->rkey);
	wr.wr.atomic.compare_add = 5;
	OK(conf_post(c.a->qp, &wr));
	conf_wc_ok(c.a->send_cq, 1);
	EQ(*(uint64_t *)(void *)(p.p + 64), 5);
	write_refused(64, 8, mw->rkey);
	stop();
}

/* One byte out of the window at either end, and a range that wraps. */
static void bounds(void)
{
	static const struct {
		long off, len;
	} bad[] = { { -1, 1 }, { -1, 2 }, { 1000, 1 }, { 999, 2 }, { 0, 1001 } };
	uint32_t rkey;

	for (unsigned i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		start(IBV_MW_TYPE_2);
		rkey = bound2(mw, range(1000, 1000, REMOTE));
		write_ok(1999, 1, rkey);
		access_by(c.a, IBV_WR_RDMA_WRITE, at(1000 + bad[i].off), bad[i].len, rkey,
			  IBV_WC_REM_ACCESS_ERR);
		stop();
	}
}

/* A window's key is a remote key and nothing else. */
static void no_local_key(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	start(IBV_MW_TYPE_1);
	bound1(mw, range(0, 4096, REMOTE));
	OK(conf_recv(c.a->qp, 2, &a, 0, 64));
	sge = conf_sge(&p, 0, 64);
	sge.lkey = mw->rkey;
	wr = conf_wr(1, IBV_WR_SEND, &sge, 1);
	OK(conf_post(c.p->qp, &wr));
	conf_wc_is(c.p->send_cq, 1, IBV_WC_LOC_PROT_ERR);
	stop();
}

/* What keeps what. */

static void region_stays_while_windows_are_bound(void)
{
	struct ibv_mw *two;
	uint32_t rkey;

	start(IBV_MW_TYPE_1);
	two = window(IBV_MW_TYPE_2);
	bound1(mw, range(0, 64, REMOTE));
	rkey = bound2(two, range(64, 64, REMOTE));
	CHECK(ibv_dereg_mr(p.mr) != 0);
	write_ok(0, 64, mw->rkey); /* and nothing has changed */
	window_free();
	CHECK(ibv_dereg_mr(p.mr) != 0);
	write_ok(64, 64, rkey);
	invalidated(rkey);
	conf_buf_free(&p);
	OK(ibv_dealloc_mw(two));
	stop();
}

static void deallocating_unbinds(void)
{
	uint32_t rkey;

	start(IBV_MW_TYPE_1);
	bound1(mw, range(0, 64, REMOTE));
	rkey = mw->rkey;
	write_ok(0, 64, rkey);
	window_free();
	write_refused(0, 64, rkey);
	stop();
}

/* The QP of a type 2 window may go; the window is of no use then, but is given
 * back as ever. */
static void qp_goes_first(void)
{
	start(IBV_MW_TYPE_2);
	if (!conf_user_device())
		SKIP("crashes with rxe of Linux 6.1");
	bound2(mw, range(0, 64, REMOTE));
	rdma_destroy_qp(c.p);
	CHECK(ibv_dereg_mr(p.mr) != 0);
	window_free();
	conf_buf_free(&p);
	stop();
}

static void many_windows_of_one_region(void)
{
	enum { N = 512 };
	struct ibv_mw *w[N];

	start(0);
	for (int i = 0; i < N; i++) {
		w[i] = window(IBV_MW_TYPE_1);
		bound1(w[i], range(i * 100, 100, REMOTE));
	}
	for (int i = 0; i < N; i++)
		write_ok(i * 100, 100, w[i]->rkey);
	for (int i = 0; i < N; i++)
		OK(ibv_dealloc_mw(w[i]));
	conf_pair_disconnect(&c);
	stop();
}

static const struct conf_case cases[] = {
	CASE(limits_are_told),
	CASE(type1),
	CASE(type1_moves),
	CASE(type1_is_unbound_by_no_bytes),
	CASE(type1_serves_every_qp),
	CASE(type2),
	CASE(type2_again_and_again),
	CASE(type2_serves_its_qp),
	CASE(type2_is_bound_once),
	CASE(type2_key_of_another),
	CASE(rights_that_windows_have_not),
	CASE(type2_zero_based),
	CASE(each_type_has_its_way),
	CASE(window_has_rights_of_its_own),
	CASE(region_does_not_lend_rights),
	CASE(atomics_through_a_window),
	CASE(bounds),
	CASE(no_local_key),
	CASE(region_stays_while_windows_are_bound),
	CASE(deallocating_unbinds),
	CASE(qp_goes_first),
	CASE(many_windows_of_one_region),
};
CONF_MAIN(cases)
