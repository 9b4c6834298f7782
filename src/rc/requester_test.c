/* SPDX-License-Identifier: BSD-2-Clause */
/* Our requests: what answers, refuses, repeats and ends them. */
#include "rc/end_test.h"

#include <sched.h>

enum { MANY = 10000 };

/* Posts n sends of which the frames are heard; ids from 0. */
static void send_some(struct end *e, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		post(e, IBV_WR_SEND, i, 16);
	while (!quiet(e))
		fake_hear(e->p, 0);
}

/* Repeats from this request on, with these message numbers. */
static void repeats(struct end *e, uint32_t number, uint32_t msn0, uint32_t msn1)
{
	const struct fake_frame *f = hear_ctl(e, CTL_RESYNC, number & 0xffffff);

	CHECK(f && f->f.ctl.msn0 == msn0 && f->f.ctl.msn1 == msn1);
}

static void recv_posted(struct end *e)
{
	fake_say_ctl(e->p, CTL_RECV_POSTED, 0, 0);
}

static void say_rnr(struct end *e, uint32_t number, uint8_t timer)
{
	struct rc_frame f = { .op = RC_CTL, .last = true };

	f.ctl.type = CTL_NAK;
	f.ctl.code = NAK_RNR;
	f.ctl.number = number;
	f.ctl.timer = timer;
	fake_say(e->p, &f, NULL);
}

static void say_response(struct end *e, uint32_t idx, uint64_t off, uint32_t len,
			 bool last)
{
	struct rc_frame f = {
		.op = RC_READ_RESP, .stag = idx, .to = off, .payload = len, .last = last
	};
	uint8_t data[FAKE_PAYLOAD];

	memset(data, 0x5a, sizeof(data));
	fake_say(e->p, &f, data);
}

static void say_atomic(struct end *e, uint32_t id, uint64_t value)
{
	struct rc_frame f = { .op = RC_ATOMIC_RESP, .last = true };

	f.atomic_resp.id = id;
	f.atomic_resp.value = value;
	fake_say(e->p, &f, NULL);
}

/* A read or atomic of 8 bytes whose answer may not be stored. */
static void post_without_sink(struct end *e, enum ibv_wr_opcode op, uint64_t id)
{
	struct ibv_sge sge = { (uintptr_t)mem, 8, mr->lkey ^ 0x5a00 };
	struct ibv_send_wr wr = {
		.wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = op
	}, *bad;

	if (op == IBV_WR_RDMA_READ) {
		wr.wr.rdma.rkey = REMOTE_KEY;
		wr.wr.rdma.remote_addr = REMOTE_ADDR;
	} else {
		wr.wr.atomic.rkey = REMOTE_KEY;
		wr.wr.atomic.remote_addr = REMOTE_ADDR;
	}
	CHECK_EQ(ibv_post_send(e->qp, &wr, &bad), 0);
}

/* ---- acknowledgements -------------------------------------------------------------- */

static void acknowledgements_are_cumulative(void)
{
	struct end *e = end_new((struct end_opt){ 0 });

	send_some(e, 5);
	say_ack(e, SQ_PSN + 2);
	for (uint64_t i = 0; i < 3; i++)
		CHECK(completes(e, i, IBV_WC_SUCCESS));
	CHECK(nothing(e));
	say_ack(e, SQ_PSN + 2);
	say_ack(e, SQ_PSN); /* old ones mean nothing */
	CHECK(nothing(e));
	say_ack(e, SQ_PSN + 4);
	CHECK(completes(e, 3, IBV_WC_SUCCESS) && completes(e, 4, IBV_WC_SUCCESS));
	CHECK_EQ(state_of(e), IBV_QPS_RTS);
	end_free(e);
}

static void numbers_have_24_bits(void)
{
	struct end *e = end_new((struct end_opt){ .sq_psn = 0xfffffe });

	send_some(e, 4);
	say_ack(e, 0xffffff);
	CHECK(completes(e, 0, IBV_WC_SUCCESS) && completes(e, 1, IBV_WC_SUCCESS));
	CHECK(nothing(e));
	say_rnr(e, 1, 0); /* the request after the first that has number 0 */
	CHECK(completes(e, 2, IBV_WC_SUCCESS));
	recv_posted(e);
	repeats(e, 1, 5, 1);
	CHECK(hear(e, RC_SEND));
	say_ack(e, 1);
	CHECK(completes(e, 3, IBV_WC_SUCCESS));
	end_free(e);
}

static void an_answer_to_what_was_not_sent(void)
{
	static const enum ctl_type type[] = { CTL_ACK, CTL_NAK };

	for (int i = 0; i < 2; i++) {
		struct end *e = end_new((struct end_opt){ 0 });

		send_some(e, 2);
		fake_say_ctl(e->p, type[i], NAK_RNR, SQ_PSN + (i ? 3 : 2));
		CHECK(completes(e, 0, IBV_WC_RETRY_EXC_ERR));
		CHECK(completes(e, 1, IBV_WC_WR_FLUSH_ERR));
		end_free(e);
	}
}

/* A bind needs no peer and has no number; its completion keeps its place. */
static void local_work_has_no_number(void)
{
	struct end *e = end_new((struct end_opt){ 0 });
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct ibv_send_wr wr = { .wr_id = 1, .opcode = IBV_WR_BIND_MW }, *bad;

	REQUIRE(mw);
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){ mr, (uintptr_t)mem, 4096,
							  IBV_ACCESS_REMOTE_WRITE };
	post(e, IBV_WR_SEND, 0, 16);
	CHECK_EQ(ibv_post_send(e->qp, &wr, &bad), 0);
	post(e, IBV_WR_SEND, 2, 16);
	repeats(e, SQ_PSN, 1, 1);
	CHECK(hear(e, RC_SEND) && hear(e, RC_SEND));
	CHECK(nothing(e));
	say_ack(e, SQ_PSN);
	CHECK(completes(e, 0, IBV_WC_SUCCESS) && completes(e, 1, IBV_WC_SUCCESS));
	CHECK(nothing(e));
	say_rnr(e, SQ_PSN + 1, 0);
	recv_posted(e);
	repeats(e, SQ_PSN + 1, 3, 1);
	CHECK(hear(e, RC_SEND));
	say_ack(e, SQ_PSN + 1);
	CHECK(completes(e, 2, IBV_WC_SUCCESS));
	CHECK_EQ(ibv_dealloc_mw(mw), 0);
	end_free(e);
}

static void answers_after_a_failure_mean_nothing(void)
{
	struct end *e = end_new((struct end_opt){ 0 });

	send_some(e, 2);
	CHECK_EQ(qp_to(e, IBV_QPS_ERR), 0);
	CHECK(completes(e, 0, IBV_WC_WR_FLUSH_ERR) &&
	      completes(e, 1, IBV_WC_WR_FLUSH_ERR));
	say_ack(e, SQ_PSN + 1);
	say_ack(e, SQ_PSN + 100);
	say_nak(e, NAK_RNR, SQ_PSN);
	recv_posted(e);
	CHECK(quiet(e) && nothing(e));
	CHECK_EQ(stream_state(e), STREAM_OPEN);
	end_free(e);
}

/* ---- receiver not ready ------------------------------------------------------------ */

static void a_receiver_that_is_not_ready(void)
{
	struct end *e = end_new((struct end_opt){ 0 });

	send_some(e, 3);
	say_rnr(e, SQ_PSN + 1, 0);		/* 655 ms */
	CHECK(completes(e, 0, IBV_WC_SUCCESS)); /* all before it was accepted */
	post(e, IBV_WR_SEND, 3, 16);
	CHECK(quiet(e));
	recv_posted(e);
	repeats(e, SQ_PSN + 1, 4, 1); /* message numbers go on */
	for (uint32_t i = 0; i < 3; i++) {
		const struct fake_frame *f = hear(e, RC_SEND);

		CHECK(f && f->f.msn == 4 + i);
	}
	CHECK(quiet(e));
	end_free(e);
}

static void the_wait_ends_by_itself(void)
{
	struct end *e = end_new((struct end_opt){ 0 });

	send_some(e, 1);
	say_rnr(e, SQ_PSN, 1); /* 10 us */
	repeats(e, SQ_PSN, 2, 1);
	CHECK(hear(e, RC_SEND));
	end_free(e);
}

/* One RNR NAK for the first request that is not answered, and its repeat. */
static void not_ready_once(struct end *e, uint32_t number)
{
	say_rnr(e, number, 0);
	recv_posted(e);
	CHECK(hear_ctl(e, CTL_RESYNC, number));
	CHECK(hear(e, RC_SEND));
	CHECK(quiet(e));
}

static void rnr_retries_are_counted(void)
{
	struct end *e = end_new((struct end_opt){ .rnr_retry = 255 }); /* none */

	send_some(e, 2);
	say_rnr(e, SQ_PSN, 0);
	CHECK(completes(e, 0, IBV_WC_RNR_RETRY_EXC_ERR));
	CHECK(completes(e, 1, IBV_WC_WR_FLUSH_ERR));
	end_free(e);

	e = end_new((struct end_opt){ .rnr_retry = 2 });
	send_some(e, 1);
	not_ready_once(e, SQ_PSN);
	not_ready_once(e, SQ_PSN);
	say_rnr(e, SQ_PSN, 0);
	CHECK(completes(e, 0, IBV_WC_RNR_RETRY_EXC_ERR));
	end_free(e);

	e = end_new((struct end_opt){ .rnr_retry = 2 });
	for (uint32_t i = 0; i < 3; i++) { /* progress forgets them */
		send_some(e, 1);
		not_ready_once(e, SQ_PSN + i);
		not_ready_once(e, SQ_PSN + i);
		say_ack(e, SQ_PSN + i);
		CHECK(completes(e, 0, IBV_WC_SUCCESS));
	}
	end_free(e);

	e = end_new((struct end_opt){ .rnr_retry = 7 }); /* for ever */
	send_some(e, 1);
	for (int i = 0; i < 300; i++)
		not_ready_once(e, SQ_PSN);
	CHECK_EQ(state_of(e), IBV_QPS_RTS);
	end_free(e);
}

/* ---- no QP there ------------------------------------------------------------------- */

static void a_qp_that_is_not_there_yet(void)
{
	struct end *e = end_new((struct end_opt){ 0 });
	struct stream *s = e->p->s;

	send_some(e, 2);
	say_nak(e, NAK_NOT_READY, 0x777); /* it knows no number */
	CHECK(quiet(e));
	recv_posted(e);
	repeats(e, SQ_PSN, 3, 1);
	CHECK(hear(e, RC_SEND) && hear(e, RC_SEND));
	stream_lock(s); /* it has been so for longer than a host may be silent */
	s->tx.not_ready_at -= 2 * SEC;
	stream_unlock(s);
	say_nak(e, NAK_NOT_READY, 0);
	CHECK(completes(e, 0, IBV_WC_RETRY_EXC_ERR));
	CHECK(completes(e, 1, IBV_WC_WR_FLUSH_ERR));
	end_free(e);
}

static void a_qp_that_is_gone(void)
{
	struct end *e = end_new((struct end_opt){ 0 }),
		   *never = end_new((struct end_opt){ .never = true });

	send_some(e, 2);
	say_nak(e, NAK_NO_QP, SQ_PSN + 1);
	CHECK(completes(e, 0, IBV_WC_SUCCESS));
	CHECK(completes(e, 1, IBV_WC_RETRY_EXC_ERR));
	CHECK(quiet(e));

	send_some(never, 1);
	say_nak(never, NAK_NO_QP, SQ_PSN);
	recv_posted(never); /* nothing to go on with */
	CHECK(quiet(never) && nothing(never));
	/* It was an answer: that no packet is ever late does not matter. */
	CHECK(completes(never, 0, IBV_WC_RETRY_EXC_ERR));
	end_free(e);
	end_free(never);
}

/* A read that it had accepted is lost with it, though the sends behind were answered. */
static void a_qp_that_is_gone_owes_a_read(void)
{
	struct end *e = end_new((struct end_opt){ 0 });

	post(e, IBV_WR_RDMA_READ, 0, 16);
	post(e, IBV_WR_SEND, 1, 16);
	say_ack(e, SQ_PSN + 1);
	CHECK(nothing(e));
	say_nak(e, NAK_NO_QP, SQ_PSN);
	CHECK(completes(e, 0, IBV_WC_RETRY_EXC_ERR));
	CHECK(completes(e, 1, IBV_WC_WR_FLUSH_ERR));
	end_free(e);
}

/* ---- refusals ---------------------------------------------------------------------- */

static void refusals(void)
{
	static const struct {
		enum nak_code code;
		enum ibv_wc_status status;
	} row[] = {
		{ NAK_INV_REQ, IBV_WC_REM_INV_REQ_ERR },
		{ NAK_REM_ACCESS, IBV_WC_REM_ACCESS_ERR },
		{ NAK_REM_OP, IBV_WC_REM_OP_ERR },
		{ NAK_COPY, IBV_WC_REM_OP_ERR }, /* of what was sent */
		{ 99, IBV_WC_REM_OP_ERR },
	};

	for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		struct end *e = end_new((struct end_opt){ 0 });

		send_some(e, 3);
		say_nak(e, row[i].code, SQ_PSN + 1);
		CHECK(completes(e, 0, IBV_WC_SUCCESS));
		CHECK(completes(e, 1, row[i].status));
		CHECK(completes(e, 2, IBV_WC_WR_FLUSH_ERR));
		CHECK(quiet(e) && nothing(e));
		CHECK_EQ(state_of(e), IBV_QPS_ERR);
		end_free(e);
	}
}

/* Of a request that was begun and has no number behind it yet. */
static void half_sent_and_refused(void)
{
	struct end *e = end_new((struct end_opt){ 0 });

	fake_room(e->p, 3); /* RESYNC, announcement, one of three */
	post(e, IBV_WR_RDMA_WRITE, 0, MANY);
	say_nak(e, NAK_REM_ACCESS, SQ_PSN);
	CHECK(completes(e, 0, IBV_WC_REM_ACCESS_ERR));
	CHECK_EQ(e->p->owned, 1); /* the memory is the application's again */
	end_free(e);
}

static void half_sent_and_repeated(void)
{
	struct end *e = end_new((struct end_opt){ 0 });
	const struct fake_frame *f;

	fake_room(e->p, 3); /* RESYNC, immediate, one frame */
	post(e, IBV_WR_SEND_WITH_IMM, 0, MANY);
	say_rnr(e, SQ_PSN, 0);
	fake_room(e->p, FAKE_ROOM);
	repeats(e, SQ_PSN, 1, 1);
	CHECK(hear(e, RC_IMM) && hear(e, RC_SEND));
	CHECK(quiet(e)); /* the rest stops here */
	recv_posted(e);
	repeats(e, SQ_PSN, 2, 1); /* a message that was not ended has used no number */
	f = hear(e, RC_IMM);
	CHECK(f && f->f.msn == 2);
	f = hear(e, RC_SEND);
	CHECK(f && f->f.msn == 3 && !f->f.mo); /* from its beginning */
	CHECK(hear(e, RC_SEND) && hear(e, RC_SEND));
	CHECK(quiet(e));
	end_free(e);
}

static void an_answered_request_is_not_refused(void)
{
	struct end *e = end_new((struct end_opt){ 0 });

	send_some(e, 2);
	say_ack(e, SQ_PSN);
	CHECK(completes(e, 0, IBV_WC_SUCCESS));
	say_nak(e, NAK_RNR, SQ_PSN);
	CHECK(completes(e, 1, IBV_WC_RETRY_EXC_ERR));
	end_free(e);
}

/* A read is accepted, and then found not to be answerable. */
static void an_accepted_read_is_refused(void)
{
	struct end *e = end_new((struct end_opt){ 0 });

	post(e, IBV_WR_SEND, 0, 16);
	post(e, IBV_WR_RDMA_READ, 1, 16);
	post(e, IBV_WR_SEND, 2, 16);
	say_ack(e, SQ_PSN + 2);
	CHECK(completes(e, 0, IBV_WC_SUCCESS));
	CHECK(nothing(e));
	say_nak(e, NAK_REM_ACCESS, SQ_PSN + 1);
	CHECK(completes(e, 1, IBV_WC_REM_ACCESS_ERR));
	CHECK(completes(e, 2, IBV_WC_WR_FLUSH_ERR));
	end_free(e);
}

/* ---- reads and atomics ------------------------------------------------------------- */

static void a_read_in_several_frames(void)
{
	struct end *e = end_new((struct end_opt){ 0 });

	memset(mem, 0, MANY + 1);
	post(e, IBV_WR_SEND, 0, 16);
	post(e, IBV_WR_RDMA_READ, 1, MANY);
	say_response(e, 1, 0, FAKE_PAYLOAD, false);
	CHECK(completes(e, 0, IBV_WC_SUCCESS)); /* answers what was before it */
	say_response(e, 1, FAKE_PAYLOAD, FAKE_PAYLOAD, false);
	CHECK(nothing(e));
	say_response(e, 1, 2 * FAKE_PAYLOAD, MANY - 2 * FAKE_PAYLOAD, true);
	CHECK(completes(e, 1, IBV_WC_SUCCESS));
	CHECK(mem[0] == 0x5a && mem[MANY - 1] == 0x5a && mem[MANY] == 0);
	end_free(e);
}

static void responses_that_do_not_fit(void)
{
	static const struct {
		uint32_t idx, off, len;
	} row[] = {
		{ 1, 0, 100 }, /* another read */
		{ 0, 1, 100 }, /* another place */
		{ 0, 0, 101 }, /* too long */
		{ 0, 0, 99 },  /* ends early */
	};

	for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		struct end *e = end_new((struct end_opt){ 0 });

		post(e, IBV_WR_RDMA_READ, 7, 100);
		say_response(e, row[i].idx, row[i].off, row[i].len, true);
		CHECK_EQ(stream_state(e), STREAM_BROKEN);
		CHECK(completes(e, 7, IBV_WC_RETRY_EXC_ERR));
		CHECK(fake_tells(e->p, "x"));
		CHECK_EQ(e->p->closed_err, -EPROTO);
		end_free(e);
	}
}

static void atomics_are_answered(void)
{
	struct end *e = end_new((struct end_opt){ 0 });
	uint64_t got;

	post(e, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8);
	post(e, IBV_WR_ATOMIC_WRITE, 1, 8);
	say_atomic(e, 0, 0x1122334455667788);
	CHECK(completes(e, 0, IBV_WC_SUCCESS));
	memcpy(&got, mem, 8);
	CHECK_EQ(got, 0x1122334455667788);
	say_atomic(e, 1, 99);
	CHECK(completes(e, 1, IBV_WC_SUCCESS));
	CHECK(!memcmp(mem, &got, 8)); /* an atomic write has no result */
	post(e, IBV_WR_ATOMIC_FETCH_AND_ADD, 2, 8);
	say_atomic(e, 77, 1);
	CHECK_EQ(stream_state(e), STREAM_BROKEN);
	end_free(e);
}

static void a_response_that_nobody_waits_for(void)
{
	struct end *e = end_new((struct end_opt){ 0 });

	say_response(e, 0, 0, 100, true);
	say_atomic(e, 0, 1);
	CHECK_EQ(stream_state(e), STREAM_OPEN);
	post(e, IBV_WR_RDMA_READ, 1, 100);
	CHECK_EQ(qp_to(e, IBV_QPS_ERR), 0);
	CHECK(completes(e, 1, IBV_WC_WR_FLUSH_ERR));
	memset(mem, 0, 100);
	say_response(e, 0, 0, 100, true); /* it was on its way */
	CHECK_EQ(mem[0], 0);
	CHECK_EQ(stream_state(e), STREAM_OPEN);
	end_free(e);
}

/* What is behind a refused request was discarded and is sent again; what was answered is
 * not. */
static void answered_reads_are_not_repeated(void)
{
	struct end *e = end_new((struct end_opt){ .reads = 2 });
	const struct fake_frame *f;

	post(e, IBV_WR_RDMA_READ, 0, 16);
	post(e, IBV_WR_SEND, 1, 16);
	post(e, IBV_WR_RDMA_READ, 2, 16);
	repeats(e, SQ_PSN, 1, 1);
	CHECK(hear(e, RC_READ_REQ) && hear(e, RC_SEND) && hear(e, RC_READ_REQ));
	say_response(e, 0, 0, 16, true);
	CHECK(completes(e, 0, IBV_WC_SUCCESS));
	say_rnr(e, SQ_PSN + 1, 0);
	recv_posted(e);
	repeats(e, SQ_PSN + 1, 2, 3);
	CHECK(hear(e, RC_SEND));
	f = hear(e, RC_READ_REQ);
	CHECK(f && f->f.read.sink_stag == 2 && f->f.msn == 3);
	post(e, IBV_WR_RDMA_READ, 3, 16);
	CHECK(hear(e, RC_READ_REQ)); /* two are out, not three */
	post(e, IBV_WR_RDMA_READ, 4, 16);
	CHECK(quiet(e));
	say_response(e, 2, 0, 16, true);
	CHECK(completes(e, 1, IBV_WC_SUCCESS) && completes(e, 2, IBV_WC_SUCCESS));
	CHECK(hear(e, RC_READ_REQ));
	end_free(e);
}

/* A response was half there when the QP failed: it has no place any more. */
static void a_read_fails_while_it_is_answered(void)
{
	struct end *e = end_new((struct end_opt){ 0 });

	post(e, IBV_WR_RDMA_READ, 0, MANY);
	say_response(e, 0, 0, FAKE_PAYLOAD, false);
	CHECK_EQ(qp_to(e, IBV_QPS_ERR), 0);
	memset(mem, 0, MANY);
	say_response(e, 0, FAKE_PAYLOAD, FAKE_PAYLOAD, false);
	CHECK_EQ(mem[FAKE_PAYLOAD], 0);
	CHECK_EQ(stream_state(e), STREAM_OPEN);
	end_free(e);
}

/* ---- time -------------------------------------------------------------------------- */

/* Time is the point: two seconds, the shortest in which a host may be silent. */
static void a_host_that_is_silent(void)
{
	struct end *dead = end_new((struct end_opt){ 0 }),
		   *busy = end_new((struct end_opt){ 0 }),
		   *idle = end_new((struct end_opt){ 0 });
	uint64_t from = loop_now();

	atomic_store(&dead->p->silent, true);
	atomic_store(&idle->p->silent, true);
	send_some(dead, 2);
	send_some(busy, 1);
	send_some(idle, 1);
	say_ack(idle, SQ_PSN);
	CHECK(completes(idle, 0, IBV_WC_SUCCESS));
	CHECK(completes(dead, 0, IBV_WC_RETRY_EXC_ERR));
	CHECK(completes(dead, 1, IBV_WC_WR_FLUSH_ERR));
	CHECK(loop_now() - from >= 2 * SEC);
	CHECK(nothing(busy)); /* its host answers, if its process does not */
	CHECK_EQ(state_of(busy), IBV_QPS_RTS);
	CHECK_EQ(state_of(idle), IBV_QPS_RTS); /* nothing is waited for */
	end_free(dead);
	end_free(busy);
	end_free(idle);
}

/* An unreliable peer that takes nothing: work goes for nothing, but not while it takes
 * anything. Time is the point: two ticks of patience. */
static void an_unreliable_peer_that_takes_nothing(void)
{
	struct end *e = end_new((struct end_opt){ .type = IBV_QPT_UC, .patience = 2 });
	uint64_t until = loop_now() + 5 * RC_TICK_MS * MSEC;
	const struct fake_frame *f;

	atomic_store(&e->p->consuming, true);
	fake_room(e->p, 1);
	post(e, IBV_WR_SEND, 0, MANY);
	while (nothing(e) && loop_now() < until)
		sched_yield();
	CHECK(loop_now() >= until);
	atomic_store(&e->p->consuming, false);
	CHECK(completes(e, 0, IBV_WC_SUCCESS));
	post(e, IBV_WR_SEND, 1, 16);
	CHECK(completes(e, 1, IBV_WC_SUCCESS)); /* does not wait again */
	CHECK(hear(e, RC_SEND));
	CHECK(quiet(e));
	fake_room(e->p, FAKE_ROOM);
	post(e, IBV_WR_SEND, 2, 33);
	CHECK(hear_ctl(e, CTL_RESYNC, SQ_PSN)); /* the message that was cut is given up */
	f = hear(e, RC_SEND);
	CHECK(f && f->f.payload == 33 && f->f.last);
	CHECK(completes(e, 2, IBV_WC_SUCCESS));
	end_free(e);
}

static void run_reads(void)
{
	T_RUN(a_read_in_several_frames);
	T_RUN(responses_that_do_not_fit);
	T_RUN(atomics_are_answered);
	T_RUN(a_response_that_nobody_waits_for);
	T_RUN(answered_reads_are_not_repeated);
	T_RUN(a_read_fails_while_it_is_answered);
}

/* Where an answer goes is looked at when it comes: the request leaves, and if the
 * responder refuses it that is what the completion says. */
static void answers_without_a_place(void)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_RDMA_READ,
						  IBV_WR_ATOMIC_FETCH_AND_ADD,
						  IBV_WR_ATOMIC_CMP_AND_SWP };

	for (int i = 0; i < 6; i++) {
		struct end *e = end_new((struct end_opt){ 0 });
		enum ibv_wr_opcode op = ops[i / 2];
		bool read = op == IBV_WR_RDMA_READ, refused = i % 2;

		memset(mem, 7, 8);
		post_without_sink(e, op, 1);
		CHECK(hear_ctl(e, CTL_RESYNC, SQ_PSN));
		CHECK(hear(e, read ? RC_READ_REQ : RC_ATOMIC_REQ));
		if (refused)
			say_nak(e, NAK_REM_ACCESS, SQ_PSN);
		else if (read)
			say_response(e, 0, 0, 8, true);
		else
			say_atomic(e, 0, 5);
		CHECK(completes(e, 1,
				refused ? IBV_WC_REM_ACCESS_ERR : IBV_WC_LOC_PROT_ERR));
		CHECK_EQ(mem[0], 7);
		CHECK_EQ(state_of(e), IBV_QPS_ERR);
		end_free(e);
	}
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	if (!device_open()) {
		ok(false, "device");
		return t_done();
	}
	T_RUN(acknowledgements_are_cumulative);
	T_RUN(numbers_have_24_bits);
	T_RUN(an_answer_to_what_was_not_sent);
	T_RUN(local_work_has_no_number);
	T_RUN(answers_after_a_failure_mean_nothing);
	T_RUN(a_receiver_that_is_not_ready);
	T_RUN(the_wait_ends_by_itself);
	T_RUN(rnr_retries_are_counted);
	T_RUN(a_qp_that_is_not_there_yet);
	T_RUN(a_qp_that_is_gone);
	T_RUN(a_qp_that_is_gone_owes_a_read);
	T_RUN(refusals);
	T_RUN(half_sent_and_refused);
	T_RUN(half_sent_and_repeated);
	T_RUN(an_answered_request_is_not_refused);
	T_RUN(an_accepted_read_is_refused);
	run_reads();
	T_RUN(a_host_that_is_silent);
	T_RUN(an_unreliable_peer_that_takes_nothing);
	T_RUN(answers_without_a_place);
	T_RUN(nothing_is_left);
	return t_done();
}
