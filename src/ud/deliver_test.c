/* SPDX-License-Identifier: BSD-2-Clause */
/* What a receive gets, and what is dropped. Datagrams to QPs of this process, which need no
 * carrier, and such as a carrier brings. */
#include "tests/t.h"

#include "ud/fake_carrier.h"
#include "ud/tap.h"

#include <poll.h>

static uint64_t since[UD_COUNTERS];

static void count_from_here(void)
{
	for (unsigned i = 0; i < UD_COUNTERS; i++)
		since[i] = ud_counter_read((enum ud_counter)i);
}

static unsigned counted(enum ud_counter c)
{
	return (unsigned)(ud_counter_read(c) - since[c]);
}

static struct ud_head head_to(struct end *e, uint16_t len)
{
	return (struct ud_head){ .kind = UD_DATA,
				 .hop_limit = 7,
				 .traffic_class = 0xe4,
				 .flow_label = 0xabcde,
				 .len = len,
				 .src_qpn = 0xbeef01,
				 .dst_qpn = e->qp->qp_num,
				 .qkey = QKEY,
				 .sgid = gid_of("::ffff:203.0.113.9"),
				 .dgid = gid_of("::ffff:127.0.0.1") };
}

static void bring(struct end *e, const struct ud_head *h)
{
	ud_deliver(h, e->mem + END_MEM / 2, NULL);
}

static uint32_t sum_of(const uint8_t *ip)
{
	uint32_t s = 0;

	for (unsigned i = 0; i < 20; i += 2)
		s += (uint32_t)ip[i] << 8 | ip[i + 1];
	while (s >> 16)
		s = (s & 0xffff) + (s >> 16);
	return s;
}

static void within_the_process(void)
{
	struct end *a = end_up(), *b = end_up();
	struct ibv_ah *ah = ah_to(a, slot_of(false), gid_at(slot_of(false)));
	uint8_t *ip = b->mem + 1000 + 20;
	struct ibv_wc wc;

	CHECK_EQ(recv_at(b, 1000, 2000), 0);
	memset(b->mem + 1000, 0xee, 2000);
	CHECK_EQ(send_to(a, ah, b->qp->qp_num, 101), 0);
	CHECK(sent(a, 101, IBV_WC_SUCCESS));
	REQUIRE(poll_for(b->rcq, &wc));
	CHECK_EQ(wc.status, IBV_WC_SUCCESS);
	CHECK_EQ(wc.opcode, IBV_WC_RECV);
	CHECK_EQ(wc.byte_len, 141);
	CHECK_EQ(wc.src_qp, a->qp->qp_num);
	CHECK_EQ(wc.qp_num, b->qp->qp_num);
	CHECK_EQ(wc.wr_id, 1000);
	CHECK_EQ(wc.wc_flags, IBV_WC_GRH);
	CHECK_EQ(wc.sl, 8 | 2);
	CHECK(!memcmp(b->mem + 1040, a->mem + END_MEM / 2, 101));
	CHECK_EQ(b->mem[1040 + 101], 0xee);
	for (unsigned i = 0; i < 20; i++)
		CHECK_EQ(b->mem[1000 + i], 0);
	/* IPv4, 20 + 8 + 12 + 8 + 104 + 4 bytes, UDP, as sent. */
	CHECK_EQ(ip[0], 0x45);
	CHECK_EQ(ip[1], 0x28);
	CHECK_EQ(ip[2] << 8 | ip[3], 156);
	CHECK_EQ(ip[8], 33);
	CHECK_EQ(ip[9], 17);
	CHECK(!memcmp(ip + 12, "\x7f\0\0\1\x7f\0\0\1", 8));
	CHECK_EQ(sum_of(ip), 0xffff);
	CHECK_EQ(fake_count(&near) + fake_count(&far), 0);
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	end_free(a);
	end_free(b);
}

static void the_grh_of_ipv6(void)
{
	struct end *a = end_up();
	struct ibv_ah *ah;
	uint8_t *g = a->mem;
	struct ibv_wc wc;

	if (slot_of(true) < 0) {
		end_free(a);
		SKIP_IF(true, "no ::1 here");
	}
	ah = ah_to(a, slot_of(true), gid_at(slot_of(true)));
	CHECK_EQ(recv_at(a, 0, 100), 0);
	CHECK_EQ(send_to(a, ah, a->qp->qp_num, 3), 0); /* to itself */
	REQUIRE(poll_for(a->rcq, &wc));
	CHECK_EQ(wc.byte_len, 43);
	CHECK_EQ(wc.sl, 8 | 1);
	/* Version 6, traffic class 0x28, flow label 0x12345; 8 + 12 + 8 + 4 + 4 bytes. */
	CHECK(!memcmp(g, "\x62\x81\x23\x45\0\x24\x11\x21", 8));
	CHECK(!memcmp(g + 8, gid_at(slot_of(true)).raw, 16));
	CHECK(!memcmp(g + 24, gid_at(slot_of(true)).raw, 16));
	CHECK(sent(a, 3, IBV_WC_SUCCESS));
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	end_free(a);
}

static void immediate_data(void)
{
	struct end *a = end_up();
	struct ibv_ah *ah = ah_to(a, slot_of(false), gid_at(slot_of(false)));
	struct ibv_send_wr wr, *bad;
	struct ibv_sge s;
	struct ibv_wc wc;

	CHECK_EQ(recv_at(a, 0, 40), 0);
	wr = send_wr(a, &s, ah, a->qp->qp_num, 0);
	wr.opcode = IBV_WR_SEND_WITH_IMM;
	wr.imm_data = htonl(0xdeadbeef);
	wr.num_sge = 0;
	CHECK_EQ(ibv_post_send(a->qp, &wr, &bad), 0);
	REQUIRE(poll_for(a->rcq, &wc));
	CHECK_EQ(wc.wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
	CHECK_EQ(wc.imm_data, htonl(0xdeadbeef));
	CHECK_EQ(wc.byte_len, 40);
	CHECK_EQ(a->mem[22] << 8 | a->mem[23], 20 + 8 + 12 + 8 + 4 + 4);
	CHECK(sent(a, 0, IBV_WC_SUCCESS));
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	end_free(a);
}

static bool fired(struct end *e)
{
	struct pollfd p = { .fd = e->ch->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *ctx;

	if (poll(&p, 1, 0) != 1)
		return false;
	CHECK_EQ(ibv_get_cq_event(e->ch, &cq, &ctx), 0);
	ibv_ack_cq_events(cq, 1);
	return true;
}

static void solicited_events(void)
{
	struct end *a = end_up();
	struct ud_head h = head_to(a, 10);

	CHECK_EQ(recv_at(a, 0, 100), 0);
	CHECK_EQ(recv_at(a, 0, 100), 0);
	CHECK_EQ(ibv_req_notify_cq(a->rcq, 1), 0);
	bring(a, &h);
	CHECK(!fired(a));
	h.flags = UD_SOLICITED;
	bring(a, &h);
	CHECK(fired(a));
	end_free(a);
}

static void pieces(void)
{
	struct end *a = end_up();
	struct ibv_sge s[4] = { { (uintptr_t)a->mem, 13, a->mr->lkey },
				{ (uintptr_t)a->mem + 100, 30, a->mr->lkey },
				{ (uintptr_t)a->mem + 200, 0, 0 },
				{ (uintptr_t)a->mem + 300, 4000, a->mr->lkey } };
	struct ibv_recv_wr wr = { .sg_list = s, .num_sge = 4 }, *bad;
	struct ud_head h = head_to(a, 500);
	struct ibv_wc wc;

	CHECK_EQ(ibv_post_recv(a->qp, &wr, &bad), 0);
	bring(a, &h);
	REQUIRE(poll_for(a->rcq, &wc));
	CHECK_EQ(wc.byte_len, 540);
	CHECK_EQ(a->mem[100 + 7], 0x45); /* byte 20 of the 40 */
	CHECK(!memcmp(a->mem + 100 + 27, a->mem + END_MEM / 2, 3));
	CHECK(!memcmp(a->mem + 300, a->mem + END_MEM / 2 + 3, 497));
	end_free(a);
}

static void what_is_dropped(void)
{
	struct end *a = end_up();
	struct ud_head h = head_to(a, 100);
	struct ibv_wc wc;

	count_from_here();
	bring(a, &h);
	CHECK_EQ(counted(UD_DROP_NO_RECV), 1);
	CHECK_EQ(recv_at(a, 0, 140), 0);
	h.qkey++;
	bring(a, &h);
	CHECK_EQ(counted(UD_DROP_QKEY), 1);
	h.qkey--;
	h.dst_qpn ^= 1;
	bring(a, &h);
	CHECK_EQ(counted(UD_DROP_NO_QP), 1);
	h.dst_qpn ^= 1;
	CHECK(nothing(a->rcq));
	CHECK_EQ(state_of(a), IBV_QPS_RTS);
	bring(a, &h);
	CHECK_EQ(counted(UD_RECEIVED), 1);
	REQUIRE(poll_for(a->rcq, &wc));
	CHECK_EQ(wc.status, IBV_WC_SUCCESS);
	CHECK_EQ(wc.byte_len, 140);
	CHECK_EQ(end_state(a, IBV_QPS_ERR), 0);
	bring(a, &h);
	CHECK_EQ(counted(UD_DROP_STATE), 1);
	end_free(a);
}

static void states(void)
{
	struct end *a = end_new(false);
	struct ud_head h = head_to(a, 10);
	struct ibv_wc wc;

	count_from_here();
	CHECK_EQ(end_state(a, IBV_QPS_INIT), 0);
	CHECK_EQ(recv_at(a, 0, 100), 0);
	CHECK_EQ(recv_at(a, 100, 100), 0);
	bring(a, &h);
	CHECK_EQ(counted(UD_DROP_NO_QP), 1);
	CHECK_EQ(end_state(a, IBV_QPS_RTR), 0);
	bring(a, &h);
	REQUIRE(poll_for(a->rcq, &wc));
	CHECK_EQ(wc.status, IBV_WC_SUCCESS);
	CHECK_EQ(end_state(a, IBV_QPS_RESET), 0);
	bring(a, &h);
	CHECK_EQ(counted(UD_DROP_NO_QP), 2);
	end_rts(a);
	CHECK_EQ(recv_at(a, 0, 100), 0);
	bring(a, &h);
	CHECK(poll_for(a->rcq, &wc));
	end_free(a);
}

/* A byte longer than the receive: that one fails, and the QP with it. */
static void too_long(bool srq)
{
	struct end *a = end_new(srq);
	struct ud_head h = head_to(a, 100);
	struct ibv_wc wc;

	end_rts(a);
	count_from_here();
	bring(a, &h);
	CHECK_EQ(counted(UD_DROP_NO_RECV), 1);
	CHECK_EQ(recv_at(a, 0, 139), 0);
	CHECK_EQ(recv_at(a, 1000, 140), 0);
	memset(a->mem, 0xee, 2000);
	bring(a, &h);
	CHECK_EQ(counted(UD_DROP_LENGTH), 1);
	REQUIRE(poll_for(a->rcq, &wc));
	CHECK_EQ(wc.status, IBV_WC_LOC_LEN_ERR);
	CHECK_EQ(wc.wr_id, 0);
	CHECK_EQ(state_of(a), IBV_QPS_ERR);
	for (unsigned i = 0; i < 2000; i++)
		CHECK_EQ(a->mem[i], 0xee);
	bring(a, &h);
	CHECK_EQ(counted(UD_DROP_STATE), 1);
	if (srq) { /* its next receive is for another QP */
		CHECK(nothing(a->rcq));
	} else {
		REQUIRE(poll_for(a->rcq, &wc));
		CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
		CHECK_EQ(wc.wr_id, 1000);
	}
	end_free(a);
}

static void too_long_for_its_receive(void)
{
	too_long(false);
}

static void too_long_for_an_srq(void)
{
	too_long(true);
}

static void a_receive_that_cannot_be_written(void)
{
	struct end *a = end_up();
	struct ibv_sge s = { (uintptr_t)a->mem, 100, a->mr->lkey + 0x1000 };
	struct ibv_recv_wr wr = { .wr_id = 5, .sg_list = &s, .num_sge = 1 }, *bad;
	struct ud_head h = head_to(a, 10);
	struct ibv_wc wc;

	CHECK_EQ(ibv_post_recv(a->qp, &wr, &bad), 0);
	CHECK_EQ(recv_at(a, 0, 100), 0);
	bring(a, &h);
	REQUIRE(poll_for(a->rcq, &wc));
	CHECK_EQ(wc.wr_id, 5);
	CHECK_EQ(wc.status, IBV_WC_LOC_PROT_ERR);
	REQUIRE(poll_for(a->rcq, &wc));
	CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
	CHECK_EQ(state_of(a), IBV_QPS_ERR);
	end_free(a);
}

/* Sanitizers have handlers of their own for faults: base/guard.h does nothing then. */
static bool guarded(void)
{
	struct sigaction sa;

	return !getenv("SANITIZE") && !sigaction(SIGSEGV, NULL, &sa) &&
	       sa.sa_handler != SIG_DFL;
}

static void unmapped_memory(void)
{
	struct end *a, *b;
	struct ibv_wc wc;
	struct ibv_ah *ah;

	SKIP_IF(!guarded(), "a sanitizer handles faults here");
	a = end_up();
	b = end_up();
	ah = ah_to(a, slot_of(false), gid_at(slot_of(false)));
	mprotect(a->mem + END_MEM / 2, END_MEM / 2, PROT_NONE);
	CHECK_EQ(recv_at(b, 0, 4096), 0);
	CHECK_EQ(send_to(a, ah, b->qp->qp_num, 50), 0);
	CHECK(sent(a, 50, IBV_WC_LOC_PROT_ERR));
	CHECK_EQ(state_of(a), IBV_QPS_SQE);
	CHECK(nothing(b->rcq));
	mprotect(a->mem + END_MEM / 2, END_MEM / 2, PROT_READ);
	mprotect(b->mem, END_MEM / 2, PROT_NONE);
	CHECK_EQ(end_state(a, IBV_QPS_RESET), 0);
	end_rts(a);
	CHECK_EQ(send_to(a, ah, b->qp->qp_num, 50), 0);
	CHECK(sent(a, 50, IBV_WC_SUCCESS));
	CHECK(poll_for(b->rcq, &wc));
	CHECK_EQ(wc.status, IBV_WC_LOC_PROT_ERR);
	CHECK_EQ(state_of(b), IBV_QPS_ERR);
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	end_free(a);
	end_free(b);
}

/* ---- groups --------------------------------------------------------------------- */

static void groups(void)
{
	union ibv_gid g = gid_of("ff12::77"), other = gid_of("ff12::78");
	struct end *a = end_up(), *b = end_up(), *c = end_up();
	struct ud_head h = head_to(a, 10);
	struct ibv_wc wc;

	h.dst_qpn = UD_MCAST_QPN;
	h.dgid = g;
	h.src_qpn = a->qp->qp_num;
	h.sgid = gid_at(slot_of(false));
	CHECK_EQ(ibv_attach_mcast(a->qp, &g, 0), 0);
	CHECK_EQ(ibv_attach_mcast(b->qp, &g, 0), 0);
	CHECK_EQ(ibv_attach_mcast(c->qp, &other, 0), 0);
	CHECK_EQ(far.joined, 3);
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(recv_at(a, 0, 100), 0);
		CHECK_EQ(recv_at(b, 0, 100), 0);
		CHECK_EQ(recv_at(c, 0, 100), 0);
	}
	/* The copy of b's CQ is for b; a has sent it. */
	ud_deliver(&h, a->mem + END_MEM / 2, to_cq(b->rcq));
	ud_deliver(&h, a->mem + END_MEM / 2, to_cq(a->rcq));
	ud_deliver(&h, a->mem + END_MEM / 2, to_cq(c->rcq));
	CHECK(poll_for(b->rcq, &wc));
	CHECK(nothing(b->rcq));
	CHECK(nothing(a->rcq));
	CHECK(nothing(c->rcq));
	/* Another host's QP of the same number is not a. */
	h.sgid = gid_of("::ffff:203.0.113.9");
	ud_deliver(&h, a->mem + END_MEM / 2, to_cq(a->rcq));
	CHECK(poll_for(a->rcq, &wc));
	/* Marks are for a QP each. */
	count_from_here();
	for (h.kind = UD_MARK; h.kind <= UD_MARKED; h.kind++)
		ud_deliver(&h, a->mem + END_MEM / 2, to_cq(b->rcq));
	h.kind = UD_DATA;
	CHECK_EQ(counted(UD_DROP_FORMAT), 2);
	CHECK(nothing(b->rcq));
	CHECK_EQ(ibv_detach_mcast(b->qp, &g, 0), 0);
	ud_deliver(&h, a->mem + END_MEM / 2, to_cq(b->rcq));
	CHECK(nothing(b->rcq));
	CHECK_EQ(ibv_detach_mcast(a->qp, &g, 0), 0);
	CHECK_EQ(ibv_detach_mcast(c->qp, &other, 0), 0);
	CHECK_EQ(far.joined, 0);
	end_free(a);
	end_free(b);
	end_free(c);
}

/* ---- the tap ---------------------------------------------------------------------- */

static _Atomic unsigned tap_out, tap_in, tap_dropped;

static void on_out(const struct ud_head *h, const char *carrier)
{
	tap_out += h->len == 60 && !strcmp(carrier, "local");
}

static void on_in(const struct ud_head *h, uint32_t qpn, enum ud_counter what)
{
	(void)qpn;
	tap_in += h->len == 60 && what == UD_RECEIVED;
	tap_dropped += h->len == 60 && what == UD_DROP_NO_RECV;
}

static void tapped(void)
{
	static const struct ud_tap tap = { on_out, on_in };
	struct end *a = end_up();
	struct ibv_ah *ah = ah_to(a, slot_of(false), gid_at(slot_of(false)));

	ud_tap_set(&tap);
	CHECK_EQ(recv_at(a, 0, 100), 0);
	CHECK_EQ(send_to(a, ah, a->qp->qp_num, 60), 0);
	CHECK_EQ(send_to(a, ah, a->qp->qp_num, 60), 0);
	ud_tap_set(NULL);
	CHECK_EQ(tap_out, 2);
	CHECK_EQ(tap_in, 1);
	CHECK_EQ(tap_dropped, 1);
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	end_free(a);
}

static void counters_have_names(void)
{
	for (unsigned i = 0; i < UD_COUNTERS; i++)
		CHECK(ud_counter_name((enum ud_counter)i) != NULL);
	CHECK(ud_counter_name(UD_COUNTERS) == NULL);
	CHECK_EQ(ud_counter_read(UD_COUNTERS), 0);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	fake_renew();
	ctx();
	T_RUN(within_the_process);
	T_RUN(the_grh_of_ipv6);
	T_RUN(immediate_data);
	T_RUN(solicited_events);
	T_RUN(pieces);
	T_RUN(what_is_dropped);
	T_RUN(states);
	T_RUN(too_long_for_its_receive);
	T_RUN(too_long_for_an_srq);
	T_RUN(a_receive_that_cannot_be_written);
	T_RUN(unmapped_memory);
	T_RUN(groups);
	T_RUN(tapped);
	T_RUN(counters_have_names);
	fake_over();
	ctx_close();
	return t_done();
}
