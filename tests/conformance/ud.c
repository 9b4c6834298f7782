/* SPDX-License-Identifier: BSD-2-Clause */
/* Datagrams that arrive: payloads, completions, builders, states. */
#include "ud_side.h"

static struct side x, y;
static struct ibv_ah *ah;

static void pair(void)
{
	ud_pair(&x, &y, &ah);
}

static void pair_of(struct side_opt ox, struct side_opt oy)
{
	ud_pair_with(&x, &y, &ah, ox, oy);
}

static void pair_free(void)
{
	ud_pair_free(&x, &y, ah);
}

static void post(struct side *from, struct ibv_send_wr wr)
{
	OK(conf_post(from->qp, &wr));
}

static uint32_t qpn(const struct side *s)
{
	return s->qp->qp_num;
}

/* ---- payloads -------------------------------------------------------------------- */

static void sizes(struct ibv_ah *to)
{
	uint32_t size[] = { 0, 1, 2, 3, 7, 64, 188, 512, 1000, ud_mtu() - 1, ud_mtu() };

	for (unsigned i = 0; i < sizeof(size) / sizeof(size[0]); i++) {
		ud_arrives(&x, &y, to, size[i]);
		ud_arrives(&y, &x, to, size[i]);
	}
}

static void sends_of_all_sizes(void)
{
	pair();
	sizes(ah);
	pair_free();
}

static void sends_of_all_sizes_ipv6(void)
{
	struct ibv_ah *to;

	pair();
	to = ud_ah(ud_attr(AF_INET6));
	sizes(to);
	OK(ibv_destroy_ah(to));
	pair_free();
}

static void no_buffer_at_all(void)
{
	struct ibv_wc wc;

	pair();
	ud_recv(&y, 10, 0);
	post(&x, ud_wr(1, IBV_WR_SEND, NULL, 0, ah, qpn(&y)));
	conf_wc_ok(x.cq, 1);
	conf_wc_get(y.cq, 10, IBV_WC_SUCCESS, &wc);
	EQ(wc.byte_len, UD_GRH);
	pair_free();
}

static void immediate_data(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct ibv_wc wc;

	pair();
	conf_pattern(x.b.p, 100, 3);
	sge = conf_sge(&x.b, UD_SRC, 100);
	wr = ud_wr(1, IBV_WR_SEND_WITH_IMM, &sge, 1, ah, qpn(&y));
	wr.imm_data = htonl(0x1234abcd);
	for (int with_payload = 1; with_payload >= 0; with_payload--) {
		ud_recv(&y, 10, 100);
		wr.num_sge = with_payload;
		post(&x, wr);
		conf_wc_ok(x.cq, 1);
		conf_wc_get(y.cq, 10, IBV_WC_SUCCESS, &wc);
		EQ(wc.opcode, IBV_WC_RECV);
		EQ(wc.byte_len, UD_GRH + (with_payload ? 100 : 0));
		EQ(wc.wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
		EQ(ntohl(wc.imm_data), 0x1234abcd);
		if (with_payload)
			CHECK(conf_pattern_ok(y.b.p + UD_DST + UD_GRH, 100, 3));
	}
	pair_free();
}

static void inline_data(void)
{
	struct ibv_sge sge[2];
	struct ibv_send_wr wr;

	pair_of((struct side_opt){ .sge = 2, .inline_data = 64 }, (struct side_opt){ 0 });
	conf_pattern(x.b.p, 64, 4);
	ud_recv(&y, 10, 64);
	for (int i = 0; i < 2; i++) {
		sge[i] = conf_sge(&x.b, 32 * (size_t)i, 32);
		sge[i].lkey = 12345; /* is not looked at */
	}
	wr = ud_wr(1, IBV_WR_SEND, sge, 2, ah, qpn(&y));
	wr.send_flags |= IBV_SEND_INLINE;
	post(&x, wr);
	memset(x.b.p, 0, 64); /* it is copied */
	conf_wc_ok(x.cq, 1);
	conf_wc_ok(y.cq, 10);
	CHECK(conf_pattern_ok(y.b.p + UD_DST + UD_GRH, 64, 4));
	pair_free();
}

/* From several pieces to several pieces, which cut the GRH and the payload anywhere. */
static void gather_and_scatter(void)
{
	static const uint32_t cut[3] = { 13, 40, 200 };
	struct ibv_recv_wr rwr = { .wr_id = 10, .num_sge = 3 }, *bad;
	struct ibv_sge from[3], to[3];
	size_t off = UD_DST;

	pair_of((struct side_opt){ .sge = 3 }, (struct side_opt){ .recv_sge = 3 });
	conf_pattern(x.b.p, 200, 5);
	for (int i = 0; i < 3; i++) {
		from[i] = conf_sge(&x.b, i == 2 ? 90 : 45 * (size_t)i, i == 2 ? 110 : 45);
		to[i] = conf_sge(&y.b, off, cut[i]);
		off += cut[i] + 1000;
	}
	rwr.sg_list = to;
	OK(ibv_post_recv(y.qp, &rwr, &bad));
	post(&x, ud_wr(1, IBV_WR_SEND, from, 3, ah, qpn(&y)));
	conf_wc_ok(x.cq, 1);
	conf_wc_ok(y.cq, 10);
	/* 13 + 27 of the GRH; 13 bytes behind it, then the rest. */
	memcpy(y.b.p, y.b.p + UD_DST + 13 + 1000 + 27, 13);
	memcpy(y.b.p + 13, y.b.p + UD_DST + 13 + 1000 + 40 + 1000, 187);
	CHECK(conf_pattern_ok(y.b.p, 200, 5));
	CONF_MSG_ZERO(y.b.p + UD_DST + 13, 1000);
	CONF_MSG_ZERO(y.b.p + UD_DST + 13 + 1000 + 40 + 1000 + 187, 13);
	pair_free();
}

static void order(void)
{
	enum { N = 400, AT_ONCE = 16 };
	struct ibv_sge sge;
	struct ibv_wc wc;
	uint32_t got;

	pair();
	for (uint32_t first = 0; first < N; first += AT_ONCE) {
		for (uint32_t i = 0; i < AT_ONCE; i++)
			OK(conf_recv(y.qp, i, &y.b, UD_DST + 100 * i, 100));
		for (uint32_t i = 0; i < AT_ONCE; i++) {
			uint32_t n = first + i;

			memcpy(x.b.p + 4 * i, &n, 4);
			sge = conf_sge(&x.b, 4 * i, 4);
			post(&x, ud_wr(i, IBV_WR_SEND, &sge, 1, ah, qpn(&y)));
		}
		for (uint32_t i = 0; i < AT_ONCE; i++) {
			conf_wc_ok(x.cq, i);
			conf_wc_get(y.cq, i, IBV_WC_SUCCESS, &wc);
			EQ(wc.byte_len, UD_GRH + 4);
			memcpy(&got, y.b.p + UD_DST + 100 * i + UD_GRH, 4);
			EQ(got, first + i);
		}
	}
	pair_free();
}

static void unsignalled(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	pair();
	for (int i = 0; i < 100; i++) {
		sge = conf_sge(&x.b, UD_SRC, 50);
		wr = ud_wr(i, IBV_WR_SEND, &sge, 1, ah, qpn(&y));
		if (i % 10 != 9)
			wr.send_flags = 0;
		post(&x, wr);
		if (i % 10 == 9)
			conf_wc_ok(x.cq, i);
	}
	conf_wc_none(x.cq, 0);
	pair_free();
}

static void to_itself(void)
{
	ud_pair(&x, &x, &ah);
	ud_arrives(&x, &x, ah, 1000);
	ud_arrives(&x, &x, ah, 0);
	ud_pair_free(&x, &x, ah);
}

static void shared_receive_queue(void)
{
	pair_of((struct side_opt){ 0 }, (struct side_opt){ .srq = true });
	for (int i = 0; i < 5; i++)
		ud_arrives(&x, &y, ah, 500);
	pair_free();
}

/* One QP hears many, whom it tells apart by their numbers. */
static void many_senders(void)
{
	enum { N = 8 };
	struct side s[N];
	struct ibv_wc wc;

	pair();
	for (int i = 0; i < N; i++) {
		s[i] = side_with(1, (struct side_opt){ .type = IBV_QPT_UD });
		ud_up(&s[i]);
	}
	for (int i = 0; i < 3 * N; i++)
		ud_arrives(&s[i % N], &y, ah, 100);
	for (int i = 0; i < N; i++) {
		ud_recv(&y, 10, 100);
		ud_send(&s[i], 1, ah, qpn(&y), 100);
		conf_wc_ok(s[i].cq, 1);
		conf_wc_get(y.cq, 10, IBV_WC_SUCCESS, &wc);
		EQ(wc.src_qp, s[i].qp->qp_num);
		side_free(&s[i]);
	}
	pair_free();
}

/* ---- completions ----------------------------------------------------------------- */

/* Without a VLAN there is none: adapters have 0 there, or the kind of packet (mlx5). */
static bool sl_is_known(unsigned sl)
{
	return sl == 0 || sl == (8 | 2);
}

static void fields_of_completions(void)
{
	struct ibv_wc wc;

	pair();
	ud_recv(&y, 10, 100);
	ud_send(&x, 1, ah, qpn(&y), 60);
	memset(&wc, 0xa5, sizeof(wc));
	conf_wc_get(x.cq, 1, IBV_WC_SUCCESS, &wc);
	EQ(wc.opcode, IBV_WC_SEND);
	EQ(wc.qp_num, qpn(&x));
	memset(&wc, 0xa5, sizeof(wc));
	conf_wc_get(y.cq, 10, IBV_WC_SUCCESS, &wc);
	EQ(wc.opcode, IBV_WC_RECV);
	EQ(wc.qp_num, qpn(&y));
	EQ(wc.src_qp, qpn(&x));
	EQ(wc.byte_len, UD_GRH + 60);
	EQ(wc.wc_flags, IBV_WC_GRH);
	EQ(wc.pkey_index, 0);
	EQ(wc.slid, 0);
	EQ(sl_is_known(wc.sl), true);
	EQ(wc.dlid_path_bits, 0);
	pair_free();
}

static void start(struct side *s)
{
	struct ibv_poll_cq_attr attr = { 0 };
	uint64_t end = conf_now() + conf_ms(CONF_WAIT) * 1000000ull;
	int r;

	AT("ibv_start_poll");
	while ((r = ibv_start_poll(s->cqx, &attr)) == ENOENT)
		if (conf_now() > end)
			FAIL("no completion");
	EQ(r, 0);
}

static void readers_of_extended_completions(void)
{
	struct side_opt o = { .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	pair_of(o, o);
	sge = conf_sge(&x.b, UD_SRC, 60);
	wr = ud_wr(1, IBV_WR_SEND_WITH_IMM, &sge, 1, ah, qpn(&y));
	wr.imm_data = htonl(77);
	ud_recv(&y, 10, 100);
	post(&x, wr);
	start(&x);
	EQ(x.cqx->wr_id, 1);
	EQ(x.cqx->status, IBV_WC_SUCCESS);
	EQ(ibv_wc_read_opcode(x.cqx), IBV_WC_SEND);
	EQ(ibv_wc_read_qp_num(x.cqx), qpn(&x));
	ibv_end_poll(x.cqx);
	start(&y);
	EQ(y.cqx->wr_id, 10);
	EQ(y.cqx->status, IBV_WC_SUCCESS);
	EQ(ibv_wc_read_opcode(y.cqx), IBV_WC_RECV);
	EQ(ibv_wc_read_qp_num(y.cqx), qpn(&y));
	EQ(ibv_wc_read_src_qp(y.cqx), qpn(&x));
	EQ(ibv_wc_read_byte_len(y.cqx), UD_GRH + 60);
	EQ(ibv_wc_read_wc_flags(y.cqx), IBV_WC_GRH | IBV_WC_WITH_IMM);
	EQ(ntohl(ibv_wc_read_imm_data(y.cqx)), 77);
	EQ(ibv_wc_read_slid(y.cqx), 0);
	EQ(sl_is_known(ibv_wc_read_sl(y.cqx)), true);
	EQ(ibv_wc_read_dlid_path_bits(y.cqx), 0);
	ibv_end_poll(y.cqx);
	pair_free();
}

static void solicited_events(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct pollfd fd;
	struct ibv_cq *cq;
	void *context;

	pair_of((struct side_opt){ 0 }, (struct side_opt){ .channel = true });
	fd = (struct pollfd){ .fd = y.ch->fd, .events = POLLIN };
	sge = conf_sge(&x.b, UD_SRC, 50);
	OK(ibv_req_notify_cq(y.cq, 1));
	ud_arrives(&x, &y, ah, 50);
	EQ(poll(&fd, 1, conf_ms(CONF_QUIET)), 0);
	for (int imm = 0; imm < 2; imm++) {
		wr = ud_wr(1, imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, &sge, 1, ah,
			   qpn(&y));
		wr.send_flags |= IBV_SEND_SOLICITED;
		ud_recv(&y, 10, 50);
		post(&x, wr);
		EQ(poll(&fd, 1, conf_ms(CONF_WAIT)), 1);
		OK(ibv_get_cq_event(y.ch, &cq, &context));
		CHECK(cq == y.cq);
		ibv_ack_cq_events(cq, 1);
		conf_wc_ok(x.cq, 1);
		conf_wc_ok(y.cq, 10);
		OK(ibv_req_notify_cq(y.cq, 1));
	}
	pair_free();
}

/* ---- builders -------------------------------------------------------------------- */

static void builders(void)
{
	struct ibv_wc wc;
	struct ibv_sge sge[2];

	pair_of((struct side_opt){ .sge = 2, .inline_data = 64,
				   .send_ops = IBV_QP_EX_WITH_SEND |
					       IBV_QP_EX_WITH_SEND_WITH_IMM },
		(struct side_opt){ 0 });
	conf_pattern(x.b.p, 500, 6);
	for (int i = 0; i < 2; i++) {
		sge[i] = conf_sge(&x.b, 250 * (size_t)i, 250);
		OK(conf_recv(y.qp, 10 + i, &y.b, UD_DST + 1000 * (size_t)i, 1000));
	}
	ibv_wr_start(x.qpx);
	x.qpx->wr_id = 1;
	x.qpx->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(x.qpx);
	ibv_wr_set_ud_addr(x.qpx, ah, qpn(&y), UD_QKEY);
	ibv_wr_set_sge_list(x.qpx, 2, sge);
	x.qpx->wr_id = 2;
	ibv_wr_send_imm(x.qpx, htonl(88));
	ibv_wr_set_sge(x.qpx, x.b.mr->lkey, (uintptr_t)x.b.p + 10, 20);
	ibv_wr_set_ud_addr(x.qpx, ah, qpn(&y), UD_QKEY); /* in either order */
	OK(ibv_wr_complete(x.qpx));
	conf_wc_ok(x.cq, 1);
	conf_wc_ok(x.cq, 2);
	conf_wc_get(y.cq, 10, IBV_WC_SUCCESS, &wc);
	EQ(wc.byte_len, UD_GRH + 500);
	CHECK(conf_pattern_ok(y.b.p + UD_DST + UD_GRH, 500, 6));
	conf_wc_get(y.cq, 11, IBV_WC_SUCCESS, &wc);
	EQ(wc.byte_len, UD_GRH + 20);
	EQ(ntohl(wc.imm_data), 88);
	CHECK(!memcmp(y.b.p + UD_DST + 1000 + UD_GRH, x.b.p + 10, 20));
	pair_free();
}

static void builders_with_inline_data(void)
{
	struct ibv_data_buf buf[2];

	pair_of((struct side_opt){ .inline_data = 64, .send_ops = IBV_QP_EX_WITH_SEND },
		(struct side_opt){ 0 });
	conf_pattern(x.b.p, 64, 7);
	for (int i = 0; i < 2; i++)
		buf[i] = (struct ibv_data_buf){ x.b.p + 32 * i, 32 };
	ud_recv(&y, 10, 64);
	ud_recv(&y, 11, 64);
	ibv_wr_start(x.qpx);
	x.qpx->wr_id = 1;
	x.qpx->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(x.qpx);
	ibv_wr_set_ud_addr(x.qpx, ah, qpn(&y), UD_QKEY);
	ibv_wr_set_inline_data(x.qpx, x.b.p, 64);
	OK(ibv_wr_complete(x.qpx));
	conf_wc_ok(x.cq, 1);
	conf_wc_ok(y.cq, 10);
	CHECK(conf_pattern_ok(y.b.p + UD_DST + UD_GRH, 64, 7));
	memset(y.b.p + UD_DST, 0, 200);
	ibv_wr_start(x.qpx);
	x.qpx->wr_id = 2;
	ibv_wr_send(x.qpx);
	ibv_wr_set_ud_addr(x.qpx, ah, qpn(&y), UD_QKEY);
	ibv_wr_set_inline_data_list(x.qpx, 2, buf);
	OK(ibv_wr_complete(x.qpx));
	conf_wc_ok(x.cq, 2);
	conf_wc_ok(y.cq, 11);
	CHECK(conf_pattern_ok(y.b.p + UD_DST + UD_GRH, 64, 7));
	pair_free();
}

/* ---- two processes --------------------------------------------------------------- */

enum { ROUNDS = 50 };

/* A send and a receive complete, in either order; returns the receive's completion. */
static struct ibv_wc both(struct side *s)
{
	struct ibv_wc wc[2];
	int r;

	conf_wc(s->cq, &wc[0]);
	conf_wc(s->cq, &wc[1]);
	EQ(wc[0].status, IBV_WC_SUCCESS);
	EQ(wc[1].status, IBV_WC_SUCCESS);
	r = wc[0].opcode == IBV_WC_RECV ? 0 : 1;
	EQ(wc[r].wr_id, 10);
	EQ(wc[!r].wr_id, 1);
	return wc[r];
}

/* Answers each datagram by the address of its completion. */
static void answering_process(int fd)
{
	struct ibv_wc wc;
	struct ibv_ah *back = NULL;
	uint32_t number;

	open_device();
	y = side_with(1, (struct side_opt){ .type = IBV_QPT_UD });
	ud_up(&y);
	ud_recv(&y, 10, 1000);
	number = qpn(&y);
	ud_tell(fd, &number, 4);
	conf_wc_get(y.cq, 10, IBV_WC_SUCCESS, &wc);
	for (int i = 0; i < ROUNDS; i++) {
		if (!back)
			MUST(back = ibv_create_ah_from_wc(dev.pd, &wc,
				(struct ibv_grh *)(y.b.p + UD_DST), 1));
		memcpy(y.b.p, y.b.p + UD_DST + UD_GRH, wc.byte_len - UD_GRH);
		ud_recv(&y, 10, 1000);
		ud_send(&y, 1, back, wc.src_qp, wc.byte_len - UD_GRH);
		if (i < ROUNDS - 1)
			wc = both(&y);
		else
			conf_wc_ok(y.cq, 1);
	}
	ud_hear(fd, &number, 4);
	OK(ibv_destroy_ah(back));
	side_free(&y);
	close_device();
}

static void processes(int family)
{
	struct ibv_wc wc;
	uint32_t number;
	int fd;

	conf_addr(family, 0); /* or skip */
	fd = ud_other(answering_process);
	open_device();
	x = side_with(1, (struct side_opt){ .type = IBV_QPT_UD });
	ud_up(&x);
	ah = ud_ah(ud_attr(family));
	ud_hear(fd, &number, 4);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint32_t len = i * 997 % 1000;

		conf_pattern(x.b.p, len, i);
		ud_recv(&x, 10, len);
		ud_send(&x, 1, ah, number, len);
		wc = both(&x);
		EQ(wc.src_qp, number);
		EQ(wc.byte_len, UD_GRH + len);
		CHECK(conf_pattern_ok(x.b.p + UD_DST + UD_GRH, len, i));
	}
	ud_tell(fd, &number, 4);
	ud_other_end(fd);
	OK(ibv_destroy_ah(ah));
	side_free(&x);
	close_device();
}

static void two_processes(void)
{
	processes(AF_INET);
}

static void two_processes_ipv6(void)
{
	processes(AF_INET6);
}

/* ---- states and attributes ------------------------------------------------------- */

static void queried(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	const int mask = IBV_QP_STATE | IBV_QP_QKEY | IBV_QP_PORT | IBV_QP_SQ_PSN |
			 IBV_QP_PKEY_INDEX | IBV_QP_CAP;

	pair();
	EQ(ibv_query_qp(x.qp, &attr, mask, &init), 0);
	EQ(attr.qp_state, IBV_QPS_RTS);
	EQ(attr.qkey, UD_QKEY);
	EQ(attr.port_num, 1);
	EQ(attr.pkey_index, 0);
	EQ(init.qp_type, IBV_QPT_UD);
	CHECK(init.send_cq == x.cq && init.recv_cq == x.cq && !init.srq);
	CHECK(attr.cap.max_send_wr >= 16 && attr.cap.max_recv_wr >= 16);
	attr.qkey = 0x22222222;
	EQ(ibv_modify_qp(x.qp, &attr, IBV_QP_QKEY), 0);
	EQ(ibv_query_qp(x.qp, &attr, IBV_QP_QKEY, &init), 0);
	EQ(attr.qkey, 0x22222222);
	pair_free();
}

static void again_after_reset(void)
{
	pair();
	for (int i = 0; i < 3; i++) {
		ud_arrives(&x, &y, ah, 300);
		ud_recv(&y, 33, 300); /* is forgotten */
		EQ(to_state(&x, IBV_QPS_RESET), 0);
		EQ(to_state(&y, IBV_QPS_RESET), 0);
		ud_up(&x);
		ud_up(&y);
	}
	ud_arrives(&x, &y, ah, 300);
	conf_wc_none(y.cq, 0);
	pair_free();
}

/* A receive may be posted as soon as INIT, and gets what comes from RTR on. */
static void received_in_rtr(void)
{
	pair();
	EQ(to_state(&y, IBV_QPS_RESET), 0);
	EQ(ud_init(&y, UD_QKEY), 0);
	OK(conf_recv(y.qp, 70, &y.b, UD_DST, 500));
	EQ(to_state(&y, IBV_QPS_RTR), 0);
	ud_send(&x, 1, ah, qpn(&y), 100);
	conf_wc_ok(x.cq, 1);
	conf_wc_ok(y.cq, 70);
	pair_free();
}

/* What was posted goes although its address handle is destroyed at once. */
static void address_handle_destroyed_at_once(void)
{
	struct ibv_ah *to;
	struct ibv_wc wc;

	pair();
	for (int i = 0; i < 50; i++) {
		to = ud_ah(ud_attr(AF_INET));
		ud_recv(&y, 10, 700);
		ud_send(&x, 1, to, qpn(&y), 700);
		OK(ibv_destroy_ah(to));
		conf_wc_ok(x.cq, 1);
		conf_wc_get(y.cq, 10, IBV_WC_SUCCESS, &wc);
		EQ(wc.byte_len, UD_GRH + 700);
	}
	pair_free();
}

static const struct conf_case cases[] = {
	CASE(sends_of_all_sizes),
	CASE(sends_of_all_sizes_ipv6),
	CASE(no_buffer_at_all),
	CASE(immediate_data),
	CASE(inline_data),
	CASE(gather_and_scatter),
	CASE(order),
	CASE(unsignalled),
	CASE(to_itself),
	CASE(shared_receive_queue),
	CASE(many_senders),
	CASE(fields_of_completions),
	CASE(readers_of_extended_completions),
	CASE(solicited_events),
	CASE(builders),
	CASE(builders_with_inline_data),
	CASE(two_processes),
	CASE(two_processes_ipv6),
	CASE(queried),
	CASE(again_after_reset),
	CASE(received_in_rtr),
	CASE(address_handle_destroyed_at_once),
};

CONF_MAIN(cases)
