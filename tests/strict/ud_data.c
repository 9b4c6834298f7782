/* SPDX-License-Identifier: BSD-2-Clause */
/* Datagrams: lengths, keys of memory, and what becomes of queues. `a` sends, `p` receives. */
#include "dgram.h"

/* ---- lengths ---------------------------------------------------------------------- */

/* A datagram is one packet: exactly the MTU of the port goes, a byte more fails, and the
 * other queue goes on. */
static void longer_than_the_mtu(void)
{
	uint32_t mtu, lens[3];
	struct ibv_sge sge[2];
	struct ibv_send_wr wr;

	dg_open(NULL);
	mtu = dg_mtu(&a);
	lens[0] = mtu + 1;
	lens[1] = 2 * mtu;
	lens[2] = ST_LEN - mtu;
	for (int i = 0; i < 3; i++) {
		OK(st_recv_buf(&p, 10, 0, mtu + DG_GRH));
		dg_send_ok(1, 0, mtu);
		dg_arrives(10, 0, 0, mtu);
		sge[0] = conf_sge(&a.b, 0, mtu);
		sge[1] = conf_sge(&a.b, mtu, lens[i] - mtu);
		wr = dg_wr(2, sge, 2);
		dg_fails(&wr, IBV_WC_LOC_LEN_ERR);
	}
	dg_close();
}

/* The receive is too small for GRH and payload: its completion says so, and the QP fails.
 * Nothing is written, behind it least of all. Adapters do so (mlx5: LOC_LEN_ERR), and rxe
 * (LOC_QP_OP_ERR); the specification would drop the datagram and keep a receive that is not
 * an SRQ's (9.9.3.1, class D). */
static void receive_too_small(void)
{
	static const uint32_t sizes[] = { DG_GRH + 99, DG_GRH, DG_GRH - 1, 1 };

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		dg_open(NULL);
		OK(st_recv_buf(&p, 1, 1000, sizes[i]));
		OK(st_recv_buf(&p, 2, 4096, 512));
		dg_send_ok(1, 0, 100);
		dg_send_ok(2, 200, 0);
		conf_wc_is(p.rcq, 1, conf_user_device() ? IBV_WC_LOC_LEN_ERR :
							  IBV_WC_LOC_QP_OP_ERR);
		conf_wc_is(p.rcq, 2, IBV_WC_WR_FLUSH_ERR);
		EQ(conf_qp_state(p.qp), IBV_QPS_ERR);
		st_forget(&p.b, 1000, sizes[i], ST_SEED_P);
		st_forget(&p.b, 4096, DG_GRH, ST_SEED_P);
		st_untouched(&p.b, ST_SEED_P);
		dg_close();
	}
}

/* The same of an SRQ, whose next receive is for other QPs. */
static void shared_receive_too_small(void)
{
	dg_open(&(struct dg_opt){ .srq_wr = 8 });
	OK(st_recv_buf(&p, 1, 1000, DG_GRH + 99));
	OK(st_recv_buf(&p, 2, 4096, 512));
	dg_send_ok(1, 0, 100);
	conf_wc_is(p.rcq, 1, conf_user_device() ? IBV_WC_LOC_LEN_ERR : IBV_WC_LOC_QP_OP_ERR);
	EQ(conf_qp_state(p.qp), IBV_QPS_ERR);
	st_event(&p, IBV_EVENT_QP_LAST_WQE_REACHED);
	dg_send_ok(2, 200, 0);
	dg_settled();
	conf_wc_none(p.rcq, 0);
	st_forget(&p.b, 1000, DG_GRH + 99, ST_SEED_P);
	st_untouched(&p.b, ST_SEED_P);
	dg_close();
}

/* Exactly as much as needed; in as many pieces as there may be. */
static void receive_fits(void)
{
	struct ibv_sge sge[4];

	dg_open(NULL);
	OK(st_recv_buf(&p, 1, 1000, DG_GRH));
	dg_send_ok(1, 0, 0);
	dg_arrives(1, 1000, 0, 0);
	OK(st_recv_buf(&p, 2, 1000, DG_GRH + 100));
	dg_send_ok(2, 0, 100);
	dg_arrives(2, 1000, 0, 100);
	sge[0] = conf_sge(&p.b, 2000, 7);
	sge[1] = conf_sge(&p.b, 2007, DG_GRH - 7);
	sge[2] = conf_sge(&p.b, 2000 + DG_GRH, 1);
	sge[3] = conf_sge(&p.b, 2001 + DG_GRH, 199);
	OK(st_recv(&p, 3, sge, 4));
	dg_send_ok(3, 300, 200);
	dg_arrives(3, 2000, 300, 200);
	st_forget(&p.b, 1000, DG_GRH + 100, ST_SEED_P);
	st_forget(&p.b, 2000, DG_GRH + 200, ST_SEED_P);
	st_untouched(&p.b, ST_SEED_P);
	dg_close();
}

/* ---- keys ------------------------------------------------------------------------- */

static void bad_key_to_send(void)
{
	struct ibv_sge sge[2];
	struct ibv_send_wr wr;
	struct conf_buf other;

	dg_open(NULL);
	sge[0] = conf_sge(&a.b, 0, 64);
	sge[0].lkey ^= 0x5a5a00;
	wr = dg_wr(2, sge, 1);
	dg_fails(&wr, IBV_WC_LOC_PROT_ERR);
	sge[0] = conf_sge(&a.b, 0, 64);
	sge[1] = conf_sge(&a.b, ST_LEN - 8, 9); /* a byte behind the region */
	wr = dg_wr(2, sge, 2);
	dg_fails(&wr, IBV_WC_LOC_PROT_ERR);
	other = st_buf(p.pd, 4096, CONF_RW, 5); /* another PD, another context */
	sge[0] = conf_sge(&other, 0, 64);
	wr = dg_wr(2, sge, 1);
	dg_fails(&wr, IBV_WC_LOC_PROT_ERR);
	st_buf_free(&other);
	/* No bytes, no key. */
	sge[0] = conf_sge(&a.b, 0, 0);
	sge[0].lkey ^= 0x5a5a00;
	OK(st_recv_buf(&p, 1, 0, 512));
	wr = dg_wr(3, sge, 1);
	OK(conf_post(a.qp, &wr));
	conf_wc_ok(a.scq, 3);
	dg_arrives(1, 0, 0, 0);
	dg_close();
}

/* Receives are looked at when they are used: that one fails, the QP with it, and the rest is
 * flushed in order. Who sends hears nothing. */
static void bad_key_to_receive(void)
{
	struct ibv_sge sge;

	dg_open(NULL);
	OK(st_recv_buf(&p, 1, 0, 512));
	sge = conf_sge(&p.b, 1024, 512);
	sge.lkey ^= 0x5a5a00;
	OK(st_recv(&p, 2, &sge, 1));
	OK(st_recv_buf(&p, 3, 2048, 512));
	OK(st_recv_buf(&p, 4, 3072, 512));
	dg_send_ok(1, 0, 64);
	dg_arrives(1, 0, 0, 64);
	dg_send_ok(2, 0, 64);
	conf_wc_is(p.rcq, 2, conf_user_device() ? IBV_WC_LOC_PROT_ERR : IBV_WC_LOC_QP_OP_ERR);
	conf_wc_is(p.rcq, 3, IBV_WC_WR_FLUSH_ERR);
	conf_wc_is(p.rcq, 4, IBV_WC_WR_FLUSH_ERR);
	EQ(conf_qp_state(p.qp), IBV_QPS_ERR);
	dg_send_ok(3, 0, 64);
	EQ(conf_qp_state(a.qp), IBV_QPS_RTS);
	st_forget(&p.b, 0, DG_GRH + 64, ST_SEED_P);
	st_untouched(&p.b, ST_SEED_P);
	dg_close();
}

/* ---- receives --------------------------------------------------------------------- */

/* Without a receive datagrams are dropped, and nothing else. */
static void no_receive(void)
{
	dg_open(NULL);
	for (int i = 0; i < 100; i++)
		dg_send_ok(i, 0, 64);
	dg_settled();
	OK(st_recv_buf(&p, 1, 0, 512));
	dg_send_ok(1, 128, 64);
	dg_arrives(1, 0, 128, 64);
	conf_wc_none(p.rcq, ST_QUIET);
	st_event(&p, ST_NONE);
	dg_close();
}

static void shared_receive_queue_empty(void)
{
	dg_open(&(struct dg_opt){ .srq_wr = 8 });
	for (int i = 0; i < 20; i++)
		dg_send_ok(i, 0, 64);
	dg_settled();
	OK(st_recv_buf(&p, 1, 0, 512));
	dg_send_ok(1, 128, 64);
	dg_arrives(1, 0, 128, 64);
	conf_wc_none(p.rcq, ST_QUIET);
	dg_close();
}

/* In ERR what is left is flushed in order; a QP of an SRQ says that it takes no more. */
static void receives_flushed(void)
{
	dg_open(NULL);
	for (int i = 0; i < 12; i++)
		OK(st_recv_buf(&p, i, 0, 512));
	dg_send_ok(1, 0, 8);
	dg_arrives(0, 0, 0, 8);
	EQ(conf_qp_to(p.qp, IBV_QPS_ERR), 0);
	for (int i = 1; i < 12; i++)
		conf_wc_is(p.rcq, i, IBV_WC_WR_FLUSH_ERR);
	conf_wc_none(p.rcq, ST_QUIET);
	dg_close();

	dg_open(&(struct dg_opt){ .srq_wr = 8 });
	OK(st_recv_buf(&p, 1, 0, 512));
	EQ(conf_qp_to(p.qp, IBV_QPS_ERR), 0);
	st_event(&p, IBV_EVENT_QP_LAST_WQE_REACHED);
	conf_wc_none(p.rcq, ST_QUIET);
	dg_close();
}

/* ---- send queues -------------------------------------------------------------------- */

/* Those behind a failed one are flushed in order, also what is posted in SQE; receiving
 * goes on; RTS makes it good again. */
static void sends_flushed(void)
{
	struct ibv_send_wr wr[8], *bad;
	struct ibv_sge sge = { 0 }, good;

	dg_open(NULL);
	OK(st_recv_buf(&p, 1, 0, 512));
	good = conf_sge(&a.b, 0, 32);
	sge = good;
	sge.lkey ^= 0x5a5a00;
	for (int i = 0; i < 8; i++) {
		wr[i] = dg_wr(i, i == 1 ? &sge : &good, 1);
		wr[i].next = i < 7 ? &wr[i + 1] : NULL;
		wr[i].send_flags = i % 2 ? 0 : IBV_SEND_SIGNALED;
	}
	OK(ibv_post_send(a.qp, wr, &bad));
	conf_wc_ok(a.scq, 0);
	conf_wc_is(a.scq, 1, IBV_WC_LOC_PROT_ERR);
	for (int i = 2; i < 8; i++)
		conf_wc_is(a.scq, i, IBV_WC_WR_FLUSH_ERR);
	dg_arrives(1, 0, 0, 32);
	EQ(conf_qp_state(a.qp), IBV_QPS_SQE);
	wr[0].next = NULL;
	OK(conf_post(a.qp, wr));
	conf_wc_is(a.scq, 0, IBV_WC_WR_FLUSH_ERR);
	OK(st_recv_buf(&a, 50, 8192, 512));
	dg_back(51, 0, 16);
	conf_wc_ok(a.rcq, 50);
	EQ(conf_qp_to(a.qp, IBV_QPS_RTS), 0);
	conf_wc_none(p.rcq, ST_QUIET);
	dg_works();
	dg_close();
}

/* So many as were granted fit. A place comes back when a later signalled completion is
 * polled. */
static void unsignalled_places(void)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	uint32_t max;

	dg_open(&(struct dg_opt){ .send_wr = 5 });
	max = dg_granted(a.qp).max_send_wr;
	CHECK(max >= 5 && max < 64);
	sge = conf_sge(&a.b, 0, 16);
	for (int round = 0; round < 3; round++) {
		wr = dg_wr(1, &sge, 1);
		wr.send_flags = 0;
		for (unsigned i = 0; i + 1 < max; i++)
			OK(conf_post(a.qp, &wr));
		wr = dg_wr(2, &sge, 1);
		OK(conf_post(a.qp, &wr));
		if (conf_user_device()) /* rxe gives places back as soon as it has sent */
			EQ(conf_post(a.qp, &wr), ENOMEM);
		conf_wc_ok(a.scq, 2);
	}
	wr = dg_wr(3, &sge, 1);
	wr.send_flags = 0;
	for (unsigned i = 0; i < max; i++)
		OK(conf_post(a.qp, &wr));
	if (conf_user_device()) /* nothing that could ever be polled */
		EQ(conf_post(a.qp, &wr), ENOMEM);
	conf_wc_none(a.scq, ST_QUIET);
	dg_close();
}

static void all_is_signalled(void)
{
	struct ibv_send_wr wr;

	dg_open(&(struct dg_opt){ .sig_all = true });
	for (int i = 0; i < 10; i++) {
		wr = dg_wr(i, NULL, 0);
		wr.send_flags = 0;
		OK(conf_post(a.qp, &wr));
		conf_wc_ok(a.scq, i);
	}
	dg_close();
}

static void too_much_inline_data(void)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	uint32_t max;

	dg_open(NULL);
	max = dg_granted(a.qp).max_inline_data;
	CHECK(max >= 64);
	sge = conf_sge(&a.b, 0, max + 1);
	wr = dg_wr(1, &sge, 1);
	wr.send_flags |= IBV_SEND_INLINE;
	EQ(conf_post(a.qp, &wr), EINVAL);
	OK(st_recv_buf(&p, 1, 0, 8192));
	sge.length = max;
	sge.lkey = 0; /* not looked at */
	OK(conf_post(a.qp, &wr));
	memset(a.b.p, 0, max); /* free at once */
	conf_wc_ok(a.scq, 1);
	conf_wc_ok(p.rcq, 1);
	st_forget(&a.b, 0, max, ST_SEED_A);
	CHECK(!memcmp(p.b.p + DG_GRH, a.b.p, max));
	dg_close();
}

/* ---- the end ----------------------------------------------------------------------- */

/* With receives posted and datagrams on their way: afterwards memory is left alone. */
static void destroyed_with_receives(void)
{
	for (int round = 0; round < 20; round++) {
		dg_open(NULL);
		for (int i = 0; i < 12; i++)
			OK(st_recv_buf(&p, i, 1024 * i, 1024));
		for (int i = 0; i < 6; i++)
			OK(dg_send(i, 0, 64));
		EQ(ibv_destroy_qp(p.qp), 0);
		p.qp = NULL;
		st_fill(&p.b, ST_SEED_P);
		for (int i = 6; i < 12; i++)
			OK(dg_send(i, 0, 64));
		for (int i = 0; i < 12; i++)
			conf_wc_ok(a.scq, i);
		dg_settled();
		st_untouched(&p.b, ST_SEED_P);
		dg_close();
	}
}

/* With sends that wait: nothing leaves any more, nothing completes. */
static void destroyed_with_sends(void)
{
	struct ibv_qp_attr sqd = { .qp_state = IBV_QPS_SQD };

	dg_open(NULL);
	OK(st_recv_buf(&p, 1, 0, 512));
	EQ(ibv_modify_qp(a.qp, &sqd, IBV_QP_STATE), 0);
	for (int i = 0; i < 8; i++)
		OK(dg_send(i, 0, 64));
	EQ(ibv_destroy_qp(a.qp), 0);
	a.qp = NULL;
	conf_wc_none(a.scq, ST_QUIET);
	conf_wc_none(p.rcq, ST_QUIET);
	dg_close();
}

/* RESET forgets both queues. */
static void reset_forgets(void)
{
	struct ibv_qp_attr sqd = { .qp_state = IBV_QPS_SQD };

	dg_open(NULL);
	OK(st_recv_buf(&a, 1, 0, 512));
	EQ(ibv_modify_qp(a.qp, &sqd, IBV_QP_STATE), 0);
	OK(dg_send(2, 0, 64));
	EQ(conf_qp_to(a.qp, IBV_QPS_RESET), 0);
	dg_init(&a, DG_QKEY);
	EQ(conf_qp_to(a.qp, IBV_QPS_RTR), 0);
	dg_rts(&a);
	dg_works();
	dg_back(3, 0, 8);
	conf_wc_none(a.scq, ST_QUIET);
	conf_wc_none(a.rcq, 0);
	dg_close();
}

static const struct conf_case cases[] = {
	CASE(longer_than_the_mtu),
	CASE(receive_too_small),
	CASE(shared_receive_too_small),
	CASE(receive_fits),
	CASE(bad_key_to_send),
	CASE(bad_key_to_receive),
	CASE(no_receive),
	CASE(shared_receive_queue_empty),
	CASE(receives_flushed),
	CASE(sends_flushed),
	CASE(unsignalled_places),
	CASE(all_is_signalled),
	CASE(too_much_inline_data),
	CASE(destroyed_with_receives),
	CASE(destroyed_with_sends),
	CASE(reset_forgets),
};

CONF_MAIN(cases)
