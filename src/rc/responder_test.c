/* SPDX-License-Identifier: BSD-2-Clause */
/* The peer's requests: what is checked, what is answered and when, what is refused. */
#include "rc/ask_test.h"

#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZER 1
#else
#define SANITIZER 0
#endif

/* ---- numbers ----------------------------------------------------------------------- */

static void the_first_number_is_the_expected_one(void)
{
	struct end *e = end_new((struct end_opt){ .rq_psn = 0xffffff });

	post_recv(e, 1, 100);
	post_recv(e, 2, 100);
	say_resync(e, 0xffffff, 1, 1);
	say_send(e, 1, 10);
	CHECK(received(e, 1, IBV_WC_RECV, 10));
	fake_pass(e->p, true);
	CHECK(hear_ctl(e, CTL_ACK, 0xffffff));
	say_send(e, 2, 20);
	CHECK(received(e, 2, IBV_WC_RECV, 20));
	fake_pass(e->p, true);
	CHECK(hear_ctl(e, CTL_ACK, 0)); /* 24 bits */
	end_free(e);
}

/* On a wire where every packet is out of sequence nobody answers. */
static void another_first_number(void)
{
	struct end *e = end_new((struct end_opt){ 0 });

	post_recv(e, 1, 100);
	say_resync(e, RQ_PSN + 1, 1, 1);
	say_send(e, 1, 10);
	CHECK(hear_nak(e, NAK_NO_QP, RQ_PSN + 1));
	CHECK(nothing(e));
	CHECK_EQ(state_of(e), IBV_QPS_RTS);
	end_free(e);
}

static void message_numbers_that_do_not_follow(void)
{
	static const struct rc_frame row[] = {
		{ .op = RC_SEND, .last = true, .msn = 2 },
		{ .op = RC_SEND, .last = true, .msn = 1, .mo = 4 },
		{ .op = RC_READ_REQ, .last = true, .msn = 2 },
		{ .op = RC_ATOMIC_REQ, .last = true, .msn = 7 },
		{ .op = RC_IMM, .last = true, .msn = 3 },
	};

	for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		struct end *e = end_new((struct end_opt){ 0 });

		post_recv(e, 1, 100);
		say(e, row[i]);
		CHECK_EQ(stream_state(e), STREAM_BROKEN);
		CHECK(quiet(e));
		end_free(e);
	}
}

static void a_resync_that_was_not_asked_for(void)
{
	struct end *e = end_new((struct end_opt){ 0 });

	post_recv(e, 1, 100);
	say_send(e, 1, 10);
	CHECK(received(e, 1, IBV_WC_RECV, 10));
	say_resync(e, RQ_PSN + 1, 2, 1);
	CHECK_EQ(stream_state(e), STREAM_BROKEN);
	end_free(e);

	e = end_new((struct end_opt){ 0 });
	post_recv(e, 1, 100);
	say_send(e, 1, 10);
	say_send(e, 2, 10);	     /* not ready */
	say_resync(e, RQ_PSN, 2, 1); /* the one that was accepted */
	CHECK_EQ(stream_state(e), STREAM_BROKEN);
	end_free(e);
}

/* ---- when is acknowledged ---------------------------------------------------------- */

/* Says n empty sends, for which receives are posted. */
static void say_sends(struct end *e, uint32_t first, uint32_t n, bool ack_req)
{
	for (uint32_t i = 0; i < n; i++) {
		struct rc_frame f = send_of(first + i, 0);

		f.ack_req = ack_req && i + 1 == n;
		post_recv(e, first + i, 0);
		say(e, f);
		CHECK(received(e, first + i, IBV_WC_RECV, 0));
	}
}

static void the_thread_answers_at_once(void)
{
	struct end *e = end_new((struct end_opt){ 0 });
	struct rc_frame f = send_of(1, 0);

	post_recv(e, 1, 0);
	fake_queue(e->p, &f, NULL);
	fake_pass(e->p, true);
	CHECK(hear_ctl(e, CTL_ACK, RQ_PSN));
	CHECK(quiet(e));
	end_free(e);
}

/* A poller waits a pass for a reply that could carry the answer. */
static void an_answer_that_was_asked_for(void)
{
	struct end *e = end_new((struct end_opt){ 0 });

	say_sends(e, 1, 3, true);
	CHECK(quiet(e));
	fake_pass(e->p, false);
	CHECK(hear_ctl(e, CTL_ACK, RQ_PSN + 2)); /* all of them */
	CHECK(quiet(e));
	say_sends(e, 4, 1, true);
	post(e, IBV_WR_SEND, 9, 16); /* the reply */
	CHECK(hear_ctl(e, CTL_ACK, RQ_PSN + 3));
	CHECK(hear_ctl(e, CTL_RESYNC, SQ_PSN));
	CHECK(hear(e, RC_SEND));
	fake_pass(e->p, false);
	CHECK(quiet(e)); /* once */
	say_sends(e, 5, 1, true);
	say_sends(e, 6, 1, false); /* more comes: a pass is a pass */
	CHECK(hear_ctl(e, CTL_ACK, RQ_PSN + 5));
	end_free(e);
}

static void an_answer_that_nobody_asked_for(void)
{
	struct end *e = end_new((struct end_opt){ 0 });
	int passes = 0;

	say_sends(e, 1, 2, false);
	for (; quiet(e) && passes < 100; passes++)
		fake_pass(e->p, false);
	CHECK(passes > 8 && passes < 32); /* idle for some */
	CHECK(hear_ctl(e, CTL_ACK, RQ_PSN + 1));
	end_free(e);
}

static void many_messages_are_answered(void)
{
	struct end *e = end_new((struct end_opt){ 0 });

	say_sends(e, 1, RC_ACK_MSGS - 1, false);
	CHECK(quiet(e));
	say_sends(e, RC_ACK_MSGS, 1, false);
	CHECK(hear_ctl(e, CTL_ACK, RQ_PSN + RC_ACK_MSGS - 1));
	say_sends(e, RC_ACK_MSGS + 1, RC_ACK_MSGS - 1, false); /* counted anew */
	CHECK(quiet(e));
	end_free(e);
}

static void many_bytes_are_answered(void)
{
	struct end *e = end_new((struct end_opt){ 0 });

	for (uint32_t i = 0; i < 3; i++)
		say(e, write_of(AT, RC_ACK_BYTES / 4));
	CHECK(quiet(e));
	say(e, write_of(AT, RC_ACK_BYTES / 4));
	CHECK(hear_ctl(e, CTL_ACK, RQ_PSN + 3));
	end_free(e);
}

/* ---- receiver not ready ------------------------------------------------------------ */

static void no_receive(void)
{
	struct end *e = end_new((struct end_opt){ 0 });
	const struct fake_frame *f;

	memset(mem + AT, 0, 16);
	post_recv(e, 1, 100);
	say_send(e, 1, 10);
	CHECK(received(e, 1, IBV_WC_RECV, 10));
	say_send(e, 2, 10);
	CHECK(hear_ctl(e, CTL_ACK, RQ_PSN)); /* what was accepted */
	f = hear_ctl(e, CTL_NAK, RQ_PSN + 1);
	CHECK(f && f->f.ctl.code == NAK_RNR && f->f.ctl.timer == 13);
	say(e, add_of(1, AT)); /* was on its way: nothing happens to it */
	say(e, write_of(AT, 8));
	say_send(e, 3, 10);
	CHECK(quiet(e));
	CHECK_EQ(mem[AT], 0);
	fake_say_ctl(e->p, CTL_USER, STREAM_CTL_DREQ, 0); /* control is not discarded */
	CHECK(fake_tells(e->p, "c"));
	post_recv(e, 2, 100);
	CHECK(hear_ctl(e, CTL_RECV_POSTED, 0));
	post_recv(e, 3, 100);
	CHECK(quiet(e)); /* once */
	say_resync(e, RQ_PSN + 1, 4, 1);
	say_send(e, 4, 10);
	CHECK(received(e, 2, IBV_WC_RECV, 10));
	say(e, add_of(1, AT));
	CHECK_EQ(mem[AT], 1); /* never twice */
	CHECK(hear_ctl(e, CTL_ACK, RQ_PSN + 2));
	CHECK(hear(e, RC_ATOMIC_RESP));
	end_free(e);
}

/* The receive is needed at the end of a write: the immediate comes again with it. */
static void no_receive_for_an_immediate(void)
{
	struct end *e = end_new((struct end_opt){ 0 });

	say_imm(e, 1);
	say(e, write_of(AT, 100));
	CHECK(hear_nak(e, NAK_RNR, RQ_PSN));
	post_recv(e, 1, 0);
	CHECK(hear_ctl(e, CTL_RECV_POSTED, 0));
	say_resync(e, RQ_PSN, 2, 1);
	say_imm(e, 2);
	say(e, write_of(AT, 100));
	CHECK(received(e, 1, IBV_WC_RECV_RDMA_WITH_IMM, 100));
	end_free(e);
}

/* Everything before a refused request is answered first. */
static void responses_leave_before_a_refusal(void)
{
	struct end *e = end_new((struct end_opt){ 0 });

	fake_room(e->p, 0);
	say(e, read_of(1, 100));
	say_send(e, 1, 10);
	CHECK(quiet(e));
	fake_room(e->p, FAKE_ROOM);
	CHECK(hear_ctl(e, CTL_ACK, RQ_PSN));
	CHECK(hear(e, RC_READ_RESP));
	CHECK(hear_nak(e, NAK_RNR, RQ_PSN + 1));
	end_free(e);
}

/* ---- no QP ------------------------------------------------------------------------- */

static void no_qp_yet(void)
{
	const struct end_opt o = { 0 };
	struct end *e = calloc(1, sizeof(*e));

	REQUIRE(e && qp_init(e, &o));
	e->p = peer_new(e, &o);
	CHECK_EQ(stream_start(e->p->s), 0);
	say_resync(e, RQ_PSN, 1, 1);
	say_send(e, 1, 10);
	CHECK(hear_nak(e, NAK_NOT_READY, 0));
	say_send(e, 2, 10);
	CHECK(quiet(e));
	post_recv(e, 1, 100);
	CHECK(!qp_rtr(e, &o));
	CHECK(hear_ctl(e, CTL_RECV_POSTED, 0));
	say_resync(e, RQ_PSN, 3, 1);
	say_send(e, 3, 10);
	CHECK(received(e, 1, IBV_WC_RECV, 10));
	CHECK_EQ(next_event(), IBV_EVENT_COMM_EST);
	end_free(e);
}

static void no_qp_any_more(void)
{
	struct end *e = end_new((struct end_opt){ 0 });

	CHECK_EQ(qp_to(e, IBV_QPS_ERR), 0);
	say_send(e, 1, 10);
	CHECK(hear_nak(e, NAK_NO_QP, RQ_PSN));
	end_free(e);

	e = end_new((struct end_opt){ 0 });
	CHECK_EQ(ibv_destroy_qp(e->qp), 0);
	e->qp = NULL;
	say(e, write_of(AT, 8));
	CHECK(hear_nak(e, NAK_NO_QP, RQ_PSN));
	end_free(e);
}

/* It goes while it owes answers: they will never come. */
static void a_qp_that_owes_answers_goes(void)
{
	struct end *e = end_new((struct end_opt){ 0 });

	say(e, write_of(AT, 8));
	fake_room(e->p, 0);
	say(e, read_of(1, 100));
	say(e, read_of(2, 100));
	CHECK_EQ(ibv_destroy_qp(e->qp), 0);
	e->qp = NULL;
	fake_room(e->p, FAKE_ROOM);
	CHECK(hear_ctl(e, CTL_ACK, RQ_PSN + 2));   /* they were accepted */
	CHECK(hear_nak(e, NAK_NO_QP, RQ_PSN + 1)); /* and are lost */
	CHECK(quiet(e));
	end_free(e);
}

/* ---- refusals ---------------------------------------------------------------------- */

static void operations_that_are_not_served(void)
{
	const struct end_opt none = { .access = -1 };

	refused(end_new(none), write_of(AT, 8), NAK_INV_REQ, IBV_EVENT_QP_REQ_ERR);
	refused(end_new(none), write_of(AT, 0), NAK_INV_REQ, IBV_EVENT_QP_REQ_ERR);
	refused(end_new(none), read_of(1, 8), NAK_INV_REQ, IBV_EVENT_QP_REQ_ERR);
	refused(end_new(none), add_of(1, AT), NAK_INV_REQ, IBV_EVENT_QP_REQ_ERR);
}

static void memory_that_may_not_be_used(void)
{
	const struct end_opt o = { 0 };
	struct rc_frame f = write_of(AT, 8);

	f.stag ^= 0x5a00;
	refused(end_new(o), f, NAK_REM_ACCESS, IBV_EVENT_QP_ACCESS_ERR);
	refused(end_new(o), write_of(REGION - 4, 8), NAK_REM_ACCESS,
		IBV_EVENT_QP_ACCESS_ERR);
	refused(end_new(o), add_of(1, REGION), NAK_REM_ACCESS, IBV_EVENT_QP_ACCESS_ERR);
	refused(end_new(o), read_of(1, REGION), NAK_REM_ACCESS, IBV_EVENT_QP_ACCESS_ERR);
	refused(end_new(o), add_of(1, AT + 4), NAK_INV_REQ, IBV_EVENT_QP_REQ_ERR);
	f = read_of(1, 8);
	f.read.size = (1u << 31) + 1;
	refused(end_new(o), f, NAK_INV_REQ, IBV_EVENT_QP_REQ_ERR);
}

static void empty_requests_have_any_key(void)
{
	struct end *e = end_new((struct end_opt){ 0 });
	struct rc_frame w = write_of(AT, 0), r = read_of(1, 0);
	const struct fake_frame *f;

	w.stag = r.read.src_stag = 12345;
	say(e, w);
	say(e, r);
	CHECK(hear_ctl(e, CTL_ACK, RQ_PSN + 1));
	f = hear(e, RC_READ_RESP);
	CHECK(f && f->f.last && !f->f.payload && f->f.stag == 0x901);
	end_free(e);
}

static void more_reads_than_were_agreed(void)
{
	struct end *e = end_new((struct end_opt){ .reads = 2 });

	fake_room(e->p, 0);
	say(e, read_of(1, 8));
	say(e, add_of(2, AT));
	say(e, read_of(3, 8));
	CHECK_EQ(state_of(e), IBV_QPS_RTS); /* answers are owed: later */
	fake_room(e->p, FAKE_ROOM);
	CHECK(hear_ctl(e, CTL_ACK, RQ_PSN + 1));
	CHECK(hear(e, RC_READ_RESP) && hear(e, RC_ATOMIC_RESP));
	CHECK(hear_nak(e, NAK_INV_REQ, RQ_PSN + 2));
	CHECK_EQ(state_of(e), IBV_QPS_ERR);
	CHECK_EQ(next_event(), IBV_EVENT_QP_REQ_ERR);
	end_free(e);
}

static void a_send_that_is_too_long(void)
{
	struct end *e = end_new((struct end_opt){ 0 });
	struct rc_frame f = send_of(1, 60);

	post_recv(e, 1, 100);
	post_recv(e, 2, 100);
	f.last = false;
	say(e, f);
	f.mo = 60;
	f.payload = 41;
	say(e, f);
	CHECK(hear_nak(e, NAK_INV_REQ, RQ_PSN));
	CHECK(completes(e, 1, IBV_WC_LOC_LEN_ERR));
	CHECK(completes(e, 2, IBV_WC_WR_FLUSH_ERR));
	end_free(e);
}

/* A page that the application has unmapped though it is registered. */
static void memory_that_is_not_there(void)
{
	const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_REMOTE_READ;
	struct rc_frame w = write_of(0, 8), a = add_of(1, 0), r = read_of(1, 8);
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct ibv_recv_wr wr = { .wr_id = 1, .num_sge = 1 }, *bad;
	struct ibv_sge sge = { .length = 100 };
	struct ibv_mr *gone;
	struct end *e;
	void *at;

	SKIP_IF(SANITIZER, "the sanitizer has the signal");
	at = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	gone = ibv_reg_mr(pd, at, page, all);
	REQUIRE(gone && !munmap(at, page));
	sge.lkey = gone->lkey;
	sge.addr = (uintptr_t)at;
	wr.sg_list = &sge;
	w.stag = a.atomic.stag = r.read.src_stag = gone->rkey;
	w.to = a.atomic.to = r.read.src_to = (uintptr_t)at;
	refused(end_new((struct end_opt){ 0 }), w, NAK_REM_OP, IBV_EVENT_QP_FATAL);
	refused(end_new((struct end_opt){ 0 }), a, NAK_REM_OP, IBV_EVENT_QP_FATAL);
	e = end_new((struct end_opt){ 0 });
	say(e, r); /* accepted, then not to be answered */
	CHECK(hear_ctl(e, CTL_ACK, RQ_PSN));
	CHECK(hear_nak(e, NAK_REM_OP, RQ_PSN));
	CHECK_EQ(next_event(), IBV_EVENT_QP_FATAL);
	end_free(e);
	e = end_new((struct end_opt){ 0 });
	CHECK_EQ(ibv_post_recv(e->qp, &wr, &bad), 0);
	say_send(e, 1, 8);
	CHECK(hear_nak(e, NAK_REM_OP, RQ_PSN));
	CHECK(completes(e, 1, IBV_WC_LOC_PROT_ERR));
	end_free(e);
	CHECK_EQ(ibv_dereg_mr(gone), 0);
}

static void a_key_that_cannot_be_invalidated(void)
{
	struct end *e = end_new((struct end_opt){ 0 });
	struct rc_frame f = send_of(1, 10);

	f.op = RC_SEND_INV;
	f.inv_stag = mr->rkey; /* a region is no window */
	post_recv(e, 1, 100);
	post_recv(e, 2, 100);
	say(e, f);
	CHECK(hear_ctl(e, CTL_ACK, RQ_PSN)); /* the send is not refused, */
	CHECK(hear_nak(e, NAK_NO_QP, RQ_PSN + 1)); /* what follows will not be heard */
	CHECK(completes(e, 1, IBV_WC_LOC_PROT_ERR));
	CHECK(completes(e, 2, IBV_WC_WR_FLUSH_ERR));
	CHECK_EQ(state_of(e), IBV_QPS_ERR);
	CHECK_EQ(next_event(), -1);
	end_free(e);
}

/* ---- responses --------------------------------------------------------------------- */

static void reads_are_answered_in_pieces(void)
{
	struct end *e = end_new((struct end_opt){ 0 });

	for (uint32_t i = 0; i < MANY; i++)
		mem[AT + i] = (uint8_t)(i * 3);
	say(e, read_of(1, MANY));
	CHECK(hear_ctl(e, CTL_ACK, RQ_PSN));
	for (uint32_t off = 0; off < MANY; off += FAKE_PAYLOAD) {
		const struct fake_frame *f = hear(e, RC_READ_RESP);

		REQUIRE(f);
		CHECK(f->f.stag == 0x901 && f->f.to == off);
		CHECK(!memcmp(f->data, mem + AT + off, f->f.payload));
		CHECK_EQ(f->f.last, off + f->f.payload == MANY);
	}
	CHECK(quiet(e));
	end_free(e);
}

static void atomics_run(void)
{
	struct end *e = end_new((struct end_opt){ 0 });
	uint64_t *word = (uint64_t *)(void *)(mem + AT);
	struct rc_frame swap = add_of(2, AT), store = add_of(4, AT), bad = add_of(5, AT);
	const struct fake_frame *f;

	*word = 40;
	say(e, add_of(1, AT));
	CHECK(hear_ctl(e, CTL_ACK, RQ_PSN));
	f = hear(e, RC_ATOMIC_RESP);
	CHECK(f && f->f.atomic_resp.id == 0x801 && f->f.atomic_resp.value == 40 &&
	      f->f.msn == 1);
	CHECK_EQ(*word, 41);
	swap.atomic.opcode = RC_CMP_SWAP;
	swap.atomic.compare = 40;
	swap.atomic.add_swap = 99;
	say(e, swap);
	CHECK(hear(e, RC_CTL));
	f = hear(e, RC_ATOMIC_RESP);
	CHECK(f && f->f.atomic_resp.value == 41);
	CHECK_EQ(*word, 41);
	swap.msn = 3;
	swap.atomic.compare = 41;
	say(e, swap);
	CHECK(hear(e, RC_CTL) && hear(e, RC_ATOMIC_RESP));
	CHECK_EQ(*word, 99);
	store.atomic.opcode = RC_ATOMIC_WRITE;
	store.atomic.add_swap = 0x0102030405060708;
	say(e, store);
	CHECK(hear(e, RC_CTL) && hear(e, RC_ATOMIC_RESP));
	CHECK(!memcmp(word, "\1\2\3\4\5\6\7\10", 8)); /* bytes in the order of the wire */
	bad.atomic.opcode = 7;
	say(e, bad);
	CHECK_EQ(stream_state(e), STREAM_BROKEN);
	end_free(e);
}

/* ---- plain and unreliable streams -------------------------------------------------- */

static void a_plain_carrier_refuses(void)
{
	struct end *e = end_new((struct end_opt){ .plain = true });
	struct rc_frame f = write_of(REGION, 8);

	say(e, f);
	CHECK(quiet(e));
	CHECK_EQ(e->p->refusals, 1);
	CHECK(e->p->refused_code == NAK_REM_ACCESS &&
	      e->p->refused_reason == RC_REASON_BOUNDS);
	CHECK_EQ(state_of(e), IBV_QPS_ERR);
	end_free(e);

	e = end_new((struct end_opt){ .plain = true });
	say_send(e, 1, 10);
	CHECK_EQ(e->p->refusals, 1);
	CHECK(e->p->refused_code == NAK_RNR && e->p->refused_reason == RC_REASON_NONE);
	end_free(e);
}

/* A message of an unreliable stream waits a moment for its receive, at its beginning or at
 * its end, and those behind it with it. */
static void an_unreliable_message_waits(void)
{
	struct end *e = end_new((struct end_opt){ .type = IBV_QPT_UC });

	say_send(e, 1, 10);
	say_send(e, 2, 20);
	CHECK_EQ(e->p->in_head, 0);
	CHECK(nothing(e));
	post_recv(e, 1, 100);
	CHECK(received(e, 1, IBV_WC_RECV, 10));
	CHECK_EQ(e->p->in_head, 1);
	post_recv(e, 2, 100);
	CHECK(received(e, 2, IBV_WC_RECV, 20));
	say_imm(e, 3);
	say(e, write_of(AT, 30));
	CHECK(nothing(e));
	post_recv(e, 3, 0);
	CHECK(received(e, 3, IBV_WC_RECV_RDMA_WITH_IMM, 30));
	CHECK_EQ(e->p->in_head, 4);
	CHECK(quiet(e)); /* and nobody says a word */
	end_free(e);
}

int main(int argc, char **argv)
{
	setenv("ANYRDMA_UC_LATE_MS", "10000", 1); /* however busy the machine is */
	t_init(argc, argv);
	if (!device_open()) {
		ok(false, "device");
		return t_done();
	}
	T_RUN(the_first_number_is_the_expected_one);
	T_RUN(another_first_number);
	T_RUN(message_numbers_that_do_not_follow);
	T_RUN(a_resync_that_was_not_asked_for);
	T_RUN(the_thread_answers_at_once);
	T_RUN(an_answer_that_was_asked_for);
	T_RUN(an_answer_that_nobody_asked_for);
	T_RUN(many_messages_are_answered);
	T_RUN(many_bytes_are_answered);
	T_RUN(no_receive);
	T_RUN(no_receive_for_an_immediate);
	T_RUN(responses_leave_before_a_refusal);
	T_RUN(no_qp_yet);
	T_RUN(no_qp_any_more);
	T_RUN(a_qp_that_owes_answers_goes);
	T_RUN(operations_that_are_not_served);
	T_RUN(memory_that_may_not_be_used);
	T_RUN(empty_requests_have_any_key);
	T_RUN(more_reads_than_were_agreed);
	T_RUN(a_send_that_is_too_long);
	T_RUN(memory_that_is_not_there);
	T_RUN(a_key_that_cannot_be_invalidated);
	T_RUN(reads_are_answered_in_pieces);
	T_RUN(atomics_run);
	T_RUN(a_plain_carrier_refuses);
	T_RUN(an_unreliable_message_waits);
	T_RUN(nothing_is_left);
	return t_done();
}
