/* SPDX-License-Identifier: BSD-2-Clause */
/* Taking WQEs, and giving datagrams to carriers. */
#include "tests/t.h"

#include "ud/fake_carrier.h"

#define ELSEWHERE "::ffff:203.0.113.9"
enum { PEER = 0x4321 << 8 };

static struct end *a;
static struct ibv_ah *ah;

static void begin(void)
{
	fake_renew();
	a = end_up();
	ah = ah_to(a, slot_of(false), gid_of(ELSEWHERE));
}

static void over(void)
{
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	end_free(a);
	fake_over();
}

/* ---- by a carrier ------------------------------------------------------------------ */

static void what_a_carrier_gets(void)
{
	const struct ud_head *h = far.sent;
	struct ibv_send_wr wr, *bad;
	struct ibv_sge s;

	begin();
	wr = send_wr(a, &s, ah, PEER | 5, 100);
	wr.opcode = IBV_WR_SEND_WITH_IMM;
	wr.imm_data = 0x11223344;
	wr.send_flags |= IBV_SEND_SOLICITED;
	CHECK_EQ(ibv_post_send(a->qp, &wr, &bad), 0);
	CHECK(sent(a, 100, IBV_WC_SUCCESS));
	CHECK_EQ(send_to(a, ah, PEER | 6, 0), 0);
	CHECK(sent(a, 0, IBV_WC_SUCCESS));
	REQUIRE_EQ(far.n, 2);
	CHECK_EQ(near.n, 0);
	CHECK_EQ(far.asked, 1); /* one path */
	CHECK(far.flushes > 0);
	CHECK_EQ(h->kind, UD_DATA);
	CHECK_EQ(h->flags, UD_IMM | UD_SOLICITED);
	CHECK_EQ(h->traffic_class, 0x28);
	CHECK_EQ(h->hop_limit, 33);
	CHECK_EQ(h->flow_label, 0x12345);
	CHECK_EQ(h->sl, 3);
	CHECK_EQ(h->len, 100);
	CHECK_EQ(h->psn, 7); /* sq_psn */
	CHECK_EQ(h->src_qpn, a->qp->qp_num);
	CHECK_EQ(h->dst_qpn, PEER | 5);
	CHECK_EQ(h->qkey, QKEY);
	CHECK_EQ(h->imm, 0x11223344);
	CHECK(!memcmp(&h->dgid, gid_of(ELSEWHERE).raw, 16));
	CHECK(!memcmp(&h->sgid, gid_at(slot_of(false)).raw, 16));
	CHECK(!memcmp(far.payload[0], a->mem + END_MEM / 2, 16));
	CHECK_EQ(h[1].psn, 8);
	CHECK_EQ(h[1].flags, 0);
	over();
}

static void post_chain(unsigned n)
{
	struct ibv_send_wr wr[END_WRS], *bad;
	struct ibv_sge s[END_WRS];

	for (unsigned i = 0; i < n; i++) {
		wr[i] = send_wr(a, &s[i], ah, PEER, i + 1);
		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
	}
	CHECK_EQ(ibv_post_send(a->qp, wr, &bad), 0);
}

static void chains_leave_in_batches(void)
{
	begin();
	post_chain(40);
	REQUIRE_EQ(far.n, 40);
	CHECK(far.sends <= 3);
	for (unsigned i = 0; i < 40; i++) {
		CHECK_EQ(far.sent[i].len, i + 1);
		CHECK(sent(a, i + 1, IBV_WC_SUCCESS));
	}
	over();
}

static void no_room(void)
{
	begin();
	far.room = 3;
	post_chain(10);
	CHECK_EQ(far.n, 3);
	for (unsigned i = 0; i < 3; i++)
		CHECK(sent(a, i + 1, IBV_WC_SUCCESS));
	CHECK(nothing(a->scq));
	CHECK(far.waits == end_ud(a));
	far.sends = 0;
	CHECK_EQ(send_to(a, ah, PEER, 11), 0);
	CHECK_EQ(far.sends, 0); /* it is not asked until it says so */
	far.room = -1;
	ud_unblocked(far.waits);
	REQUIRE_EQ(far.n, 11);
	for (unsigned i = 3; i < 11; i++) {
		CHECK_EQ(far.sent[i].len, i + 1);
		CHECK(sent(a, i + 1, IBV_WC_SUCCESS));
	}
	over();
}

static void what_cannot_be_sent_is_lost(void)
{
	uint64_t lost = ud_counter_read(UD_LOST_SEND);

	begin();
	far.fail = -ENETUNREACH;
	post_chain(4);
	for (unsigned i = 0; i < 4; i++)
		CHECK(sent(a, i + 1, IBV_WC_SUCCESS));
	CHECK_EQ(far.n, 3); /* the first alone */
	CHECK_EQ(ud_counter_read(UD_LOST_SEND) - lost, 1);
	over();
}

static void a_carrier_that_finds_the_payload_unmapped(void)
{
	begin();
	far.fail = -EFAULT;
	post_chain(2);
	CHECK(sent(a, 1, IBV_WC_LOC_PROT_ERR));
	CHECK(sent(a, 2, IBV_WC_WR_FLUSH_ERR));
	CHECK_EQ(state_of(a), IBV_QPS_SQE);
	over();
}

/* ---- what is refused ------------------------------------------------------------------ */

/* Two good ones before it are sent, one behind it is flushed. */
static void refused(void (*spoil)(struct ibv_send_wr *wr, void *arg), void *arg,
		    enum ibv_wc_status status)
{
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS };
	struct ibv_send_wr wr[4], *bad;
	struct ibv_sge s[4];

	for (unsigned i = 0; i < 4; i++) {
		wr[i] = send_wr(a, &s[i], ah, PEER, 8);
		wr[i].wr_id = i;
		wr[i].next = i < 3 ? &wr[i + 1] : NULL;
	}
	spoil(&wr[2], arg);
	far.n = 0;
	CHECK_EQ(ibv_post_send(a->qp, wr, &bad), 0);
	CHECK_EQ(far.n, 2);
	CHECK(sent(a, 0, IBV_WC_SUCCESS));
	CHECK(sent(a, 1, IBV_WC_SUCCESS));
	CHECK(sent(a, 2, status));
	CHECK(sent(a, 3, IBV_WC_WR_FLUSH_ERR));
	CHECK_EQ(state_of(a), IBV_QPS_SQE);
	/* SQE: it receives, and goes on when the application says so. */
	CHECK_EQ(ibv_modify_qp(a->qp, &rts, IBV_QP_STATE), 0);
	CHECK_EQ(send_to(a, ah, PEER, 5), 0);
	CHECK(sent(a, 5, IBV_WC_SUCCESS));
}

static void spoil_key(struct ibv_send_wr *wr, void *arg)
{
	(void)arg;
	wr->sg_list->lkey += 0x1000;
}

static void spoil_bounds(struct ibv_send_wr *wr, void *arg)
{
	(void)arg;
	wr->sg_list->addr += END_MEM;
}

static void spoil_length(struct ibv_send_wr *wr, void *arg)
{
	wr->sg_list->length = *(uint32_t *)arg;
}

static void spoil_ah(struct ibv_send_wr *wr, void *arg)
{
	wr->wr.ud.ah = arg;
}

static void what_is_refused(void)
{
	uint32_t mtu = (128u << gid_active_mtu(0)) + 1;
	struct ibv_pd *pd = ibv_alloc_pd(ctx());
	struct ibv_ah *foreign;
	struct end of = { .pd = pd };

	begin();
	foreign = ah_to(&of, slot_of(false), gid_of(ELSEWHERE));
	refused(spoil_key, NULL, IBV_WC_LOC_PROT_ERR);
	refused(spoil_bounds, NULL, IBV_WC_LOC_PROT_ERR);
	refused(spoil_length, &mtu, IBV_WC_LOC_LEN_ERR);
	refused(spoil_ah, foreign, IBV_WC_LOC_QP_OP_ERR);
	CHECK_EQ(ibv_destroy_ah(foreign), 0);
	CHECK_EQ(ibv_dealloc_pd(pd), 0);
	CHECK_EQ(send_to(a, ah, PEER, mtu - 1), 0);
	CHECK(sent(a, mtu - 1, IBV_WC_SUCCESS));
	over();
}

static void states_of_the_sender(void)
{
	struct ibv_qp_attr at = { .qp_state = IBV_QPS_SQD };

	begin();
	CHECK_EQ(ibv_modify_qp(a->qp, &at, IBV_QP_STATE), 0);
	CHECK_EQ(send_to(a, ah, PEER, 5), 0);
	CHECK_EQ(far.n, 0);
	CHECK(nothing(a->scq));
	at.qp_state = IBV_QPS_RTS;
	CHECK_EQ(ibv_modify_qp(a->qp, &at, IBV_QP_STATE), 0);
	CHECK(sent(a, 5, IBV_WC_SUCCESS));
	CHECK_EQ(far.n, 1);
	over();
}

/* ---- paths ------------------------------------------------------------------------------ */

static void a_preferred_carrier_from_the_beginning(void)
{
	begin();
	near.reaches = PEER >> 8;
	CHECK_EQ(send_to(a, ah, PEER, 5), 0);
	CHECK_EQ(send_to(a, ah, PEER + 0x100, 6), 0);
	CHECK_EQ(near.n, 1);
	CHECK_EQ(far.n, 1);
	CHECK_EQ(near.peer.refs, 1);
	CHECK_EQ(far.peer.refs, 1);
	over();
}

static void answer(void)
{
	struct ud_head h = { .kind = UD_MARKED,
			     .src_qpn = PEER,
			     .dst_qpn = a->qp->qp_num,
			     .token = far.sent[far.n - 1].token };

	ud_deliver(&h, NULL, NULL);
}

static void a_better_carrier(void)
{
	begin();
	CHECK_EQ(send_to(a, ah, PEER, 1), 0);
	CHECK_EQ(far.n, 1);
	near.reaches = PEER >> 8;
	ud_paths_changed();
	CHECK_EQ(send_to(a, ah, PEER, 2), 0);
	CHECK_EQ(send_to(a, ah, PEER, 3), 0);
	CHECK_EQ(far.sent[1].kind, UD_MARK);
	CHECK_EQ(far.sent[1].dst_qpn, PEER);
	CHECK_EQ(far.sent[1].len, 0);
	answer();
	CHECK(T_WAIT(fake_count(&near) == 2, PATIENCE_MS));
	CHECK_EQ(near.sent[0].len, 2);
	CHECK_EQ(near.sent[1].len, 3);
	CHECK(fake_count(&far) >= 2 && fake_count(&far) <= 1 + UD_MARK_TRIES);
	for (unsigned i = 1; i < fake_count(&far); i++)
		CHECK_EQ(far.sent[i].kind, UD_MARK);
	for (unsigned i = 1; i < 4; i++)
		CHECK(sent(a, i, IBV_WC_SUCCESS));
	over();
}

/* The peer stands still, with what went the old way before it: what follows goes there, too.
 * Later it answers. */
static void a_mark_is_not_answered(void)
{
	uint32_t n = 3;

	begin();
	CHECK_EQ(send_to(a, ah, PEER, 1), 0);
	near.reaches = PEER >> 8;
	ud_paths_changed();
	CHECK_EQ(send_to(a, ah, PEER, 2), 0);
	ud_paths_changed(); /* no reason to change over either */
	CHECK_EQ(send_to(a, ah, PEER, 3), 0);
	CHECK(T_WAIT(fake_count(&far) == 3 + UD_MARK_TRIES, PATIENCE_MS));
	CHECK_EQ(near.n, 0);
	CHECK_EQ(near.peer.refs, 0);
	CHECK_EQ(far.sent[1 + UD_MARK_TRIES].len, 2);
	CHECK_EQ(far.sent[2 + UD_MARK_TRIES].len, 3);
	while (n < 1000 && far.sent[far.n - 1].kind != UD_MARK) {
		CHECK_EQ(send_to(a, ah, PEER, ++n), 0);
		usleep(1000);
	}
	answer();
	CHECK(T_WAIT(fake_count(&near) == 1, PATIENCE_MS));
	CHECK_EQ(near.sent[0].len, n);
	over();
}

/* An answer to another mark is none. */
static void a_wrong_answer(void)
{
	struct ud_head h = { .kind = UD_MARKED };

	begin();
	CHECK_EQ(send_to(a, ah, PEER, 1), 0);
	near.reaches = PEER >> 8;
	ud_paths_changed();
	CHECK_EQ(send_to(a, ah, PEER, 2), 0);
	h.dst_qpn = a->qp->qp_num;
	h.token = far.sent[1].token + 1;
	ud_deliver(&h, NULL, NULL);
	CHECK(T_WAIT(fake_count(&far) == 2 + UD_MARK_TRIES, PATIENCE_MS));
	CHECK_EQ(near.n, 0);
	over();
}

/* Carriers say that something has changed while a mark waits for its answer: nothing
 * overtakes what the mark is behind. */
static void a_change_while_a_mark_waits(void)
{
	begin();
	CHECK_EQ(send_to(a, ah, PEER, 1), 0);
	near.reaches = PEER >> 8;
	ud_paths_changed();
	CHECK_EQ(send_to(a, ah, PEER, 2), 0);
	CHECK_EQ(far.sent[1].kind, UD_MARK);
	ud_paths_changed();
	CHECK_EQ(send_to(a, ah, PEER, 3), 0);
	/* Nobody answers: both go as before. */
	CHECK(T_WAIT(fake_count(&far) == 3 + UD_MARK_TRIES, PATIENCE_MS));
	CHECK_EQ(fake_count(&near), 0);
	for (unsigned i = 1; i < 4; i++)
		CHECK(sent(a, i, IBV_WC_SUCCESS));
	over();
}

/* ... and that the new one is none any more. */
static void a_change_back_while_a_mark_waits(void)
{
	begin();
	CHECK_EQ(send_to(a, ah, PEER, 1), 0);
	near.reaches = PEER >> 8;
	ud_paths_changed();
	CHECK_EQ(send_to(a, ah, PEER, 2), 0);
	near.reaches = 0;
	ud_paths_changed();
	CHECK_EQ(send_to(a, ah, PEER, 3), 0);
	CHECK(sent(a, 1, IBV_WC_SUCCESS));
	CHECK(sent(a, 2, IBV_WC_SUCCESS));
	CHECK(sent(a, 3, IBV_WC_SUCCESS));
	CHECK_EQ(fake_count(&near), 0);
	CHECK_EQ(near.peer.refs, 0);
	CHECK_EQ(far.sent[far.n - 1].len, 3);
	over();
}

static void a_carrier_that_is_gone(void)
{
	begin();
	near.reaches = PEER >> 8;
	CHECK_EQ(send_to(a, ah, PEER, 1), 0);
	near.reaches = 0;
	near.fail = -EPIPE;
	CHECK_EQ(send_to(a, ah, PEER, 2), 0);
	CHECK_EQ(near.n, 1);
	CHECK_EQ(far.n, 1);
	CHECK_EQ(far.sent[0].len, 2);
	CHECK_EQ(near.peer.refs, 0);
	over();
}

static void flushed_while_carriers_change(void)
{
	begin();
	CHECK_EQ(send_to(a, ah, PEER, 1), 0);
	near.reaches = PEER >> 8;
	ud_paths_changed();
	CHECK_EQ(send_to(a, ah, PEER, 2), 0);
	CHECK_EQ(end_state(a, IBV_QPS_ERR), 0);
	CHECK(sent(a, 1, IBV_WC_SUCCESS));
	CHECK(sent(a, 2, IBV_WC_WR_FLUSH_ERR));
	CHECK_EQ(end_state(a, IBV_QPS_RESET), 0);
	end_rts(a);
	CHECK_EQ(send_to(a, ah, PEER, 3), 0);
	CHECK_EQ(near.n, 1);
	CHECK(sent(a, 3, IBV_WC_SUCCESS));
	over();
}

static void many_peers(void)
{
	begin();
	for (uint32_t i = 1; i <= UD_PATHS + 500; i++) {
		CHECK_EQ(send_to(a, ah, i << 8, 1), 0);
		CHECK(sent(a, 1, IBV_WC_SUCCESS));
	}
	CHECK_EQ(end_ud(a)->npaths, UD_PATHS);
	CHECK_EQ(far.peer.refs, UD_PATHS);
	far.asked = 0;
	CHECK_EQ(send_to(a, ah, (UD_PATHS + 500) << 8, 1), 0);
	CHECK_EQ(far.asked, 0); /* the last are kept */
	over();
}

/* ---- what others ask for ------------------------------------------------------------------- */

static void marks_are_answered(void)
{
	struct ud_head h = { .kind = UD_MARK,
			     .src_qpn = PEER | 9,
			     .token = 0x12345678,
			     .sgid = gid_of(ELSEWHERE) };

	begin();
	h.dst_qpn = a->qp->qp_num;
	h.dgid = gid_at(slot_of(false));
	ud_deliver(&h, NULL, NULL);
	REQUIRE(T_WAIT(fake_count(&far) == 1, PATIENCE_MS));
	CHECK_EQ(far.sent[0].kind, UD_MARKED);
	CHECK_EQ(far.sent[0].token, 0x12345678);
	CHECK_EQ(far.sent[0].dst_qpn, PEER | 9);
	CHECK_EQ(far.sent[0].src_qpn, a->qp->qp_num);
	CHECK(!memcmp(&far.sent[0].sgid, &h.dgid, 16));
	CHECK(!memcmp(&far.sent[0].dgid, &h.sgid, 16));
	CHECK(T_WAIT(far.peer.refs == 0, PATIENCE_MS));
	over();
}

static void loop_ran(struct loop_work *w)
{
	atomic_store((atomic_bool *)(w + 1), true);
}

/* All that the loop thread had to do is done. */
static void loop_settle(void)
{
	static struct {
		struct loop_work w;
		atomic_bool ran;
	} it;

	it.w.run = loop_ran;
	atomic_store(&it.ran, false);
	loop_post(&it.w);
	CHECK(T_WAIT(atomic_load(&it.ran), PATIENCE_MS));
}

static void mark_for(struct ud_qp *u)
{
	struct ud_head h = { .kind = UD_MARK, .src_qpn = PEER, .dst_qpn = ud_qpn(u),
			     .sgid = gid_of(ELSEWHERE) };

	ud_deliver(&h, NULL, NULL);
	loop_settle();
}

/* A mark for a QP that the last carrier does not know yet, from a peer that has its number
 * from before. */
static void a_mark_too_early(void)
{
	struct end *e;

	begin();
	near_attached = mark_for;
	e = end_up();
	near_attached = NULL;
	CHECK_EQ(far.sends, 0);
	end_free(e);
	over();
}

static void to_a_group(void)
{
	union ibv_gid g = gid_of("ff12::99");
	struct ibv_ah *to;

	begin();
	to = ah_to(a, slot_of(false), g);
	near.reaches_all = true;
	CHECK_EQ(send_to(a, to, 0xffffff, 4), 0);
	CHECK_EQ(send_to(a, to, 0x123456, 5), 0); /* a group has one number */
	REQUIRE_EQ(far.n, 2);
	CHECK_EQ(far.sent[0].dst_qpn, UD_MCAST_QPN);
	CHECK_EQ(far.sent[1].dst_qpn, UD_MCAST_QPN);
	CHECK(!memcmp(&far.sent[0].dgid, &g, 16));
	CHECK_EQ(near.n, 0);
	CHECK_EQ(ibv_destroy_ah(to), 0);
	over();
}

/* ---- threads ------------------------------------------------------------------------------ */

enum { THREADS = 3, EACH = 2000 };

static struct end *target;

/* Posts until the queue has taken all of them. */
static void *poster(void *arg)
{
	struct ibv_ah *to = arg;
	int i = 0;

	while (i < EACH) {
		struct ibv_wc wc;

		if (!send_to(a, to, target->qp->qp_num, (uint32_t)i % 64))
			i++;
		else
			ibv_poll_cq(a->scq, 1, &wc);
	}
	return NULL;
}

static void *receiver(void *arg)
{
	struct ibv_wc wc;
	atomic_int *got = arg;

	while (*got < THREADS * EACH) {
		if (ibv_poll_cq(target->rcq, 1, &wc) != 1)
			continue;
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		recv_at(target, 0, 200);
		atomic_fetch_add(got, 1);
	}
	return NULL;
}

static void resend_lost(struct ibv_ah *to, atomic_int *got)
{
	struct ibv_wc wc;

	while (atomic_load(got) < THREADS * EACH) {
		ibv_poll_cq(a->scq, 1, &wc);
		send_to(a, to, target->qp->qp_num, 1);
	}
}

/* What found no receive is lost: it is made up for at the end. */
static void threads(void)
{
	pthread_t t[THREADS], r;
	struct ibv_ah *to;
	atomic_int got = 0;

	begin();
	target = end_up();
	to = ah_to(a, slot_of(false), gid_at(slot_of(false)));
	for (unsigned i = 0; i < END_WRS; i++)
		CHECK_EQ(recv_at(target, 0, 200), 0);
	pthread_create(&r, NULL, receiver, &got);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, poster, to);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	resend_lost(to, &got);
	pthread_join(r, NULL);
	CHECK_EQ(state_of(a), IBV_QPS_RTS);
	CHECK_EQ(ibv_destroy_ah(to), 0);
	end_free(target);
	over();
}

/* Another thread posts one more whenever one is about to leave: the thread that sends is not
 * kept for ever. */
enum { NO_END = 20000 };
static pthread_t first_thread;
static atomic_uint by_first, by_others;

static void post_one_more(void)
{
	struct ibv_wc wc;

	if (pthread_equal(pthread_self(), first_thread))
		by_first++;
	else
		by_others++;
	ibv_poll_cq(a->scq, 1, &wc);
	if (by_first + by_others < NO_END)
		CHECK_EQ(send_to(a, ah, PEER, 1), 0);
}

static void posting_comes_back(void)
{
	begin();
	first_thread = pthread_self();
	by_first = by_others = 0;
	far_sends = post_one_more;
	CHECK_EQ(send_to(a, ah, PEER, 1), 0);
	CHECK(by_first < NO_END / 2);
	CHECK(T_WAIT(by_first + by_others == NO_END, PATIENCE_MS));
	CHECK_EQ(end_state(a, IBV_QPS_ERR), 0); /* nobody sends any more */
	far_sends = NULL;
	over();
}

/* A QP is reset and used again while others send to it and a carrier brings things. */
static atomic_bool enough;

static void *bringer(void *arg)
{
	struct ud_head h = { .kind = UD_DATA, .len = 8, .qkey = QKEY, .src_qpn = PEER };
	static const uint8_t payload[8];

	(void)arg;
	h.dst_qpn = target->qp->qp_num;
	h.sgid = h.dgid = gid_of(ELSEWHERE);
	while (!atomic_load(&enough)) {
		h.kind = UD_DATA;
		ud_deliver(&h, payload, NULL);
		h.kind = UD_MARK;
		ud_deliver(&h, payload, NULL);
	}
	return NULL;
}

static void resets(void)
{
	struct ibv_wc wc;
	pthread_t t;

	begin();
	target = end_up();
	enough = false;
	pthread_create(&t, NULL, bringer, NULL);
	for (unsigned i = 0; i < t_rounds(200, 5000); i++) {
		recv_at(target, 0, 100);
		send_to(target, ah, PEER, 1);
		while (ibv_poll_cq(target->rcq, 1, &wc))
			;
		CHECK_EQ(end_state(target, IBV_QPS_RESET), 0);
		end_rts(target);
	}
	atomic_store(&enough, true);
	pthread_join(t, NULL);
	end_free(target);
	CHECK(T_WAIT(far.peer.refs == 0, PATIENCE_MS));
	over();
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	ctx();
	T_RUN(what_a_carrier_gets);
	T_RUN(chains_leave_in_batches);
	T_RUN(no_room);
	T_RUN(what_cannot_be_sent_is_lost);
	T_RUN(a_carrier_that_finds_the_payload_unmapped);
	T_RUN(what_is_refused);
	T_RUN(states_of_the_sender);
	T_RUN(a_preferred_carrier_from_the_beginning);
	T_RUN(a_better_carrier);
	T_RUN(a_mark_is_not_answered);
	T_RUN(a_wrong_answer);
	T_RUN(a_change_while_a_mark_waits);
	T_RUN(a_change_back_while_a_mark_waits);
	T_RUN(a_carrier_that_is_gone);
	T_RUN(flushed_while_carriers_change);
	T_RUN(many_peers);
	T_RUN(marks_are_answered);
	T_RUN(a_mark_too_early);
	T_RUN(to_a_group);
	T_RUN(threads);
	T_RUN(posting_comes_back);
	T_RUN(resets);
	ctx_close();
	return t_done();
}
