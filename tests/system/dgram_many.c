/* SPDX-License-Identifier: BSD-2-Clause */
/* Many of everything: address handles, UD QPs of a process, peers of a QP. */
#include "../inuse.h"
#include "numbered.h"

#include <sched.h>
#include <sys/resource.h>

enum { HANDLES = 10000, QPS = 1000, RECVS = 4 };

/* ---- address handles ------------------------------------------------------------------ */

/* Each with attributes of its own, which the datagrams that it was used for show. */
static void ten_thousand_address_handles(void)
{
	static struct ibv_ah *ah[HANDLES];
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1 };
	struct ibv_port_attr port;
	struct numbered n;
	uint32_t seq = 0;

	num_open(&n, 16);
	attr.grh.sgid_index = (uint8_t)conf_gid(n.ctx, &port, &attr.grh.dgid);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < HANDLES; i++) {
			attr.grh.hop_limit = (uint8_t)(1 + i % 250);
			attr.grh.traffic_class = (uint8_t)(i / 250 * 4);
			MUST(ah[i] = ibv_create_ah(n.pd, &attr));
		}
		for (int i = 0; i < HANDLES; i += 1 + i % 13) {
			uint8_t *grh = n.b.p + (seq % 16) * (NUM_GRH + NUM_MAX);

			num_send_to(&n, ah[i], n.qp->qp_num, 0, seq++);
			num_await(&n);
			EQ(grh[28], 1 + i % 250); /* time to live */
			EQ(grh[21], (uint8_t)(i / 250 * 4)); /* type of service */
		}
		for (int i = 0; i < HANDLES; i++)
			OK(ibv_destroy_ah(ah[i]));
	}
	EQ(n.got, seq);
	num_free(&n);
}

/* ---- QPs -------------------------------------------------------------------------------- */

static struct ibv_qp *qp[QPS];
static struct ibv_cq *cq[QPS];

/* So many descriptors may be open; a receive CQ has a port of its own. */
static void need_descriptors(unsigned count)
{
	struct rlimit r;

	OK(getrlimit(RLIMIT_NOFILE, &r));
	if (r.rlim_max < count)
		SKIP("at most %llu descriptors", (unsigned long long)r.rlim_max);
}

static struct conf_buf memory;
static struct ibv_ah *ah;

static void qps_open(struct numbered *n, bool own)
{
	num_open_device(n, RECVS);
	memory = conf_buf(n->pd, (size_t)QPS * 128, IBV_ACCESS_LOCAL_WRITE);
	ah = num_ah(n, NULL);
	for (unsigned i = 0; i < QPS; i++) {
		if (own || !i)
			MUST(cq[i] = ibv_create_cq(n->ctx, own ? 16 : 4 * QPS, NULL, NULL, 0));
		qp[i] = num_qp(n, cq[own ? i : 0], cq[own ? i : 0]);
		OK(conf_recv(qp[i], QPS + i, &memory, (size_t)i * 128, 128));
	}
}

/* What QP i posts to QP `to`: nothing but a number. */
static void post_to(unsigned i, unsigned to)
{
	struct ibv_send_wr wr = conf_wr(i, IBV_WR_SEND_WITH_IMM, NULL, 0);

	wr.imm_data = i;
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qp[to]->qp_num;
	wr.wr.ud.remote_qkey = NUM_QKEY;
	OK(conf_post(qp[i], &wr));
}

/* Takes a completion of the CQ: of a send, or the receive of what the QP before it sent. */
static bool take(struct ibv_cq *from, unsigned *sent, unsigned *got)
{
	struct ibv_wc wc;
	int ret = ibv_poll_cq(from, 1, &wc);

	CHECK(ret >= 0);
	if (!ret)
		return false;
	EQ(wc.status, IBV_WC_SUCCESS);
	if (wc.wr_id < QPS) {
		++*sent;
		return true;
	}
	++*got;
	EQ(wc.qp_num, qp[wc.wr_id - QPS]->qp_num);
	EQ(wc.imm_data, (wc.wr_id - 1) % QPS);
	EQ(wc.src_qp, qp[wc.imm_data]->qp_num);
	return true;
}

static void qps_close(struct numbered *n, bool own)
{
	for (unsigned i = 0; i < QPS; i++)
		OK(ibv_destroy_qp(qp[i]));
	for (unsigned i = 0; i < (own ? QPS : 1); i++)
		OK(ibv_destroy_cq(cq[i]));
	OK(ibv_destroy_ah(ah));
	conf_buf_free(&memory);
	num_free(n);
}

/* Each sends to the next one. */
static void thousand_qps(bool own)
{
	unsigned sent = 0, got = 0;
	struct numbered n;

	if (own)
		need_descriptors(4 * QPS);
	qps_open(&n, own);
	for (unsigned i = 0; i < QPS; i++)
		post_to(i, (i + 1) % QPS);
	for (unsigned i = 0; i < QPS && own; i++)
		WAIT_FOR((take(cq[i], &sent, &got), sent + got == 2 * (i + 1)));
	if (!own)
		WAIT_FOR((take(cq[0], &sent, &got), sent + got == 2 * QPS));
	EQ(sent, QPS);
	EQ(got, QPS);
	qps_close(&n, own);
}

static void thousand_qps_of_one_cq(void)
{
	thousand_qps(false);
}

static void thousand_qps_with_cqs_of_their_own(void)
{
	thousand_qps(true);
}

/* ---- peers ------------------------------------------------------------------------------- */

enum { FEW = 8 };

/* A thousand QPs in another process, with one CQ: what comes is sent back. */
static void thousand_peers(struct peer *me, void *arg)
{
	struct numbered n;
	struct ibv_wc wc;
	uint32_t to;

	(void)arg;
	qps_open(&n, false);
	for (unsigned i = 0; i < QPS; i++)
		peer_say_u32(me, qp[i]->qp_num);
	to = peer_hear_u32(me);
	for (unsigned left = 2 * QPS; left; left--) {
		struct ibv_send_wr wr = conf_wr(0, IBV_WR_SEND_WITH_IMM, NULL, 0);

		conf_wc(cq[0], &wc);
		EQ(wc.status, IBV_WC_SUCCESS);
		if (wc.wr_id < QPS)
			continue;
		wr.imm_data = wc.imm_data;
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = to;
		wr.wr.ud.remote_qkey = NUM_QKEY;
		EQ(wc.imm_data, wc.wr_id - QPS);
		OK(conf_post(qp[wc.wr_id - QPS], &wr));
	}
	peer_hear(me, 'q');
	qps_close(&n, false);
}

static void one_to_a_thousand(void)
{
	static uint32_t qpn[QPS];
	struct peer p = peer_start(thousand_peers, NULL);
	struct ibv_send_wr wr;
	struct numbered n;
	struct ibv_wc wc;

	num_open(&n, 64);
	for (unsigned i = 0; i < QPS; i++)
		qpn[i] = peer_hear_u32(&p);
	peer_say_u32(&p, n.qp->qp_num);
	for (unsigned i = 0, back = 0; back < QPS;) {
		if (i < QPS && i - back < FEW) {
			wr = conf_wr(i, IBV_WR_SEND_WITH_IMM, NULL, 0);
			wr.imm_data = i;
			wr.wr.ud.ah = n.ah;
			wr.wr.ud.remote_qpn = qpn[i++];
			wr.wr.ud.remote_qkey = NUM_QKEY;
			OK(conf_post(n.qp, &wr));
			conf_wc_ok(n.scq, wr.wr_id);
			continue;
		}
		conf_wc(n.rcq, &wc);
		EQ(wc.status, IBV_WC_SUCCESS);
		CHECK(wc.imm_data < QPS && wc.src_qp == qpn[wc.imm_data]);
		OK(conf_recv(n.qp, wc.wr_id, &n.b, wc.wr_id * (NUM_GRH + NUM_MAX),
			     NUM_GRH + NUM_MAX));
		back++;
	}
	peer_say(&p, 'q');
	peer_end(&p);
	num_free(&n);
}

/* Made and gone ten thousand times: nothing stays. */
static void made_and_gone(void)
{
	unsigned rounds = conf_rounds(2000, 20000);
	struct numbered n;
	int fds = 0;

	num_open(&n, 4);
	for (unsigned i = 0; i < rounds; i++) {
		struct ibv_qp *other = num_qp(&n, n.scq, n.rcq);

		num_send(&n, other->qp_num, 0, i);
		OK(ibv_destroy_qp(other));
		if (i == rounds / 10)
			fds = inuse_fds();
	}
	EQ(inuse_fds(), fds);
	num_send(&n, n.qp->qp_num, 0, rounds);
	num_await(&n);
	EQ(n.got, 1);
	num_free(&n);
}

static const struct conf_case cases[] = {
	CASE(ten_thousand_address_handles),
	LONG_CASE(thousand_qps_of_one_cq, 60),
	LONG_CASE(thousand_qps_with_cqs_of_their_own, 60),
	LONG_CASE(one_to_a_thousand, 60),
	CASE(made_and_gone),
};
CONF_MAIN(cases)
