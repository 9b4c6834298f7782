/* SPDX-License-Identifier: BSD-2-Clause */
/* Datagrams that leave while they are posted, and those that do not. */
#include "tests/t.h"

#include "ud/fake_carrier.h"

#define ELSEWHERE "::ffff:203.0.113.9"
enum { PEER = 0x4321 << 8, OTHER = 0x4322 << 8 };

static struct end *a;
static struct ibv_ah *ah;

/* The first datagram has gone to the peer: the path is known. The next ones are posted. */
static void begin(void)
{
	fake_renew();
	near.reaches = qpn_port(PEER);
	a = end_up();
	ah = ah_to(a, slot_of(false), gid_of(ELSEWHERE));
	CHECK_EQ(send_to(a, ah, PEER, 1), 0);
	CHECK(sent(a, 1, IBV_WC_SUCCESS));
	REQUIRE_EQ(near.n, 1);
	REQUIRE_EQ(near.sends, 1);
	near.n = 0;
	near.sends = 0;
	near.posts = -1;
}

static void over(void)
{
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	end_free(a);
	fake_over();
}

static void what_a_carrier_gets(void)
{
	const struct ud_head *h = near.sent;
	uint64_t count = ud_counter_read(UD_SENT);
	struct ibv_send_wr wr, *bad;
	struct ibv_sge s;

	begin();
	wr = send_wr(a, &s, ah, PEER | 5, 100);
	wr.opcode = IBV_WR_SEND_WITH_IMM;
	wr.imm_data = 0x11223344;
	wr.send_flags |= IBV_SEND_SOLICITED;
	CHECK_EQ(ibv_post_send(a->qp, &wr, &bad), 0);
	wr = send_wr(a, &s, ah, PEER | 6, 200);
	wr.send_flags |= IBV_SEND_INLINE;
	CHECK_EQ(ibv_post_send(a->qp, &wr, &bad), 0);
	CHECK_EQ(send_to(a, ah, PEER | 7, 0), 0);
	REQUIRE_EQ(near.n, 3);
	CHECK_EQ(near.sends, 0);
	CHECK(sent(a, 100, IBV_WC_SUCCESS));
	CHECK(sent(a, 200, IBV_WC_SUCCESS));
	CHECK(sent(a, 0, IBV_WC_SUCCESS));
	CHECK_EQ(h->kind, UD_DATA);
	CHECK_EQ(h->flags, UD_IMM | UD_SOLICITED);
	CHECK_EQ(h->imm, 0x11223344);
	CHECK_EQ(h->len, 100);
	CHECK_EQ(h->src_qpn, a->qp->qp_num);
	CHECK_EQ(h->qkey, QKEY);
	CHECK(!memcmp(near.payload[0], a->mem + END_MEM / 2, 16));
	CHECK(!memcmp(near.payload[1], a->mem + END_MEM / 2, 16));
	for (unsigned i = 0; i < 3; i++) {
		CHECK_EQ(h[i].psn, 8 + i);
		CHECK_EQ(h[i].dst_qpn, PEER | (5 + i));
	}
	CHECK_EQ(ud_counter_read(UD_SENT), count + 4);
	over();
}

/* What the carrier does not take leaves by send(), in order, and with the numbers that come
 * next. */
static void the_rest_of_a_chain(void)
{
	enum { N = 10 };
	struct ibv_send_wr wr[N], *bad;
	struct ibv_sge s[N];

	begin();
	for (unsigned i = 0; i < N; i++) {
		wr[i] = send_wr(a, &s[i], ah, PEER, i + 1);
		wr[i].next = i + 1 < N ? &wr[i + 1] : NULL;
	}
	near.posts = 3;
	CHECK_EQ(ibv_post_send(a->qp, wr, &bad), 0);
	REQUIRE_EQ(near.n, N);
	CHECK_EQ(near.sends, 1);
	for (unsigned i = 0; i < N; i++) {
		CHECK_EQ(near.sent[i].len, i + 1);
		CHECK_EQ(near.sent[i].psn, 8 + i);
		CHECK(sent(a, i + 1, IBV_WC_SUCCESS));
	}
	over();
}

static void another_destination(void)
{
	begin();
	CHECK_EQ(send_to(a, ah, OTHER, 10), 0);
	CHECK(sent(a, 10, IBV_WC_SUCCESS));
	CHECK_EQ(near.n, 0);
	CHECK_EQ(far.n, 1);
	over();
}

static void paths_have_changed(void)
{
	begin();
	near.reaches = 0;
	ud_paths_changed();
	CHECK_EQ(send_to(a, ah, PEER, 10), 0);
	CHECK(sent(a, 10, IBV_WC_SUCCESS));
	CHECK_EQ(near.n, 0);
	CHECK_EQ(far.n, 1);
	over();
}

static void several_pieces(void)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge s[2];

	begin();
	wr = send_wr(a, s, ah, PEER, 8);
	s[1] = s[0];
	wr.num_sge = 2;
	CHECK_EQ(ibv_post_send(a->qp, &wr, &bad), 0);
	CHECK(sent(a, 8, IBV_WC_SUCCESS));
	CHECK_EQ(near.n, 1);
	CHECK_EQ(near.sends, 1);
	CHECK_EQ(near.sent[0].len, 16);
	over();
}

/* It waits until there is room, and does not overtake what waits. */
static void while_there_is_no_room(void)
{
	begin();
	near.posts = 0;
	near.room = 0;
	CHECK_EQ(send_to(a, ah, PEER, 10), 0);
	near.posts = -1;
	CHECK_EQ(send_to(a, ah, PEER, 11), 0);
	CHECK_EQ(near.n, 0);
	CHECK(nothing(a->scq));
	near.room = -1;
	ud_unblocked(near.waits);
	REQUIRE_EQ(near.n, 2);
	CHECK_EQ(near.sent[0].len, 10);
	CHECK_EQ(near.sent[1].len, 11);
	CHECK(sent(a, 10, IBV_WC_SUCCESS));
	CHECK(sent(a, 11, IBV_WC_SUCCESS));
	over();
}

static void wrong(const struct ibv_send_wr *good, enum ibv_wc_status status)
{
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS };
	struct ibv_send_wr wr = *good, *bad;

	CHECK_EQ(ibv_post_send(a->qp, &wr, &bad), 0);
	CHECK(sent(a, wr.wr_id, status));
	CHECK_EQ(near.n, 0);
	CHECK_EQ(state_of(a), IBV_QPS_SQE);
	CHECK_EQ(ibv_modify_qp(a->qp, &rts, IBV_QP_STATE), 0);
}

static void what_cannot_be_sent(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(ctx());
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1 };
	struct ibv_send_wr wr;
	struct ibv_sge s;

	begin();
	attr.grh.dgid = gid_of(ELSEWHERE);
	attr.grh.sgid_index = (uint8_t)slot_of(false);
	wr = send_wr(a, &s, ah, PEER, 64);
	s.lkey++;
	wrong(&wr, IBV_WC_LOC_PROT_ERR);
	wr = send_wr(a, &s, ah, PEER, 8192);
	wrong(&wr, IBV_WC_LOC_LEN_ERR);
	wr = send_wr(a, &s, ibv_create_ah(pd, &attr), PEER, 64);
	REQUIRE(wr.wr.ud.ah);
	wrong(&wr, IBV_WC_LOC_QP_OP_ERR);
	CHECK_EQ(ibv_destroy_ah(wr.wr.ud.ah), 0);
	CHECK_EQ(ibv_dealloc_pd(pd), 0);
	over();
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	ctx();
	T_RUN(what_a_carrier_gets);
	T_RUN(the_rest_of_a_chain);
	T_RUN(another_destination);
	T_RUN(paths_have_changed);
	T_RUN(several_pieces);
	T_RUN(while_there_is_no_room);
	T_RUN(what_cannot_be_sent);
	ctx_close();
	return t_done();
}
