/* SPDX-License-Identifier: BSD-2-Clause */
/* Work that the carrier carries out itself, and payload that the peer fetches. */
#include "rc/end_test.h"

enum { MUCH = 100 * 1024, MIB = 1 << 20 };

static const struct end_opt executes = { .executes = true },
			    fetches = { .fetches = true };

/* How often the carrier was asked. */
static unsigned runs(struct end *e)
{
	struct stream *s = e->p->s;
	unsigned n;

	stream_lock(s);
	n = e->p->runs;
	stream_unlock(s);
	return n;
}

/* Run i moved these bytes. */
static bool ran(struct end *e, unsigned i, uint32_t off, uint32_t len, bool locked)
{
	struct stream *s = e->p->s;
	struct fake_run r;

	stream_lock(s);
	r = e->p->run[i % FAKE_RUNS];
	stream_unlock(s);
	return CHECK_EQ(r.off, off) && CHECK_EQ(r.len, len) && CHECK_EQ(r.locked, locked);
}

/* What the carrier answers from now on. */
static void answers(struct end *e, bool likely, int ret)
{
	struct stream *s = e->p->s;

	stream_lock(s);
	e->p->likely = likely;
	e->p->run_ret = ret;
	stream_unlock(s);
}

static void past_resync(struct end *e)
{
	CHECK(hear_ctl(e, CTL_RESYNC, SQ_PSN));
}

/* A read is out as a frame. */
static void read_frame(struct end *e, uint64_t id)
{
	answers(e, false, -ENOTSUP);
	post(e, IBV_WR_RDMA_READ, id, 100);
	past_resync(e);
	CHECK(hear(e, RC_READ_REQ));
	answers(e, true, 0);
}

static void say_response(struct end *e, uint32_t idx, uint32_t len)
{
	struct rc_frame f = {
		.op = RC_READ_RESP, .last = true, .stag = idx, .payload = len
	};

	fake_say(e->p, &f, NULL);
}

/* ---- the tap ----------------------------------------------------------------------- */

static struct {
	unsigned n;
	struct rc_frame last;
	enum rc_way way;
} told;

static void tap_out(const struct stream *s, const struct rc_frame *f, enum rc_way way)
{
	(void)s;
	told.n++;
	told.last = *f;
	told.way = way;
}

static void tap_in(const struct stream *s, const struct rc_frame *f, enum rc_way way)
{
	(void)s, (void)f, (void)way;
}

static const struct rc_tap tap = { tap_out, tap_in };

/* ---- execution --------------------------------------------------------------------- */

static void no_frame_and_no_number(void)
{
	struct end *e = end_new(executes);
	const struct fake_frame *f;

	told.n = 0;
	rc_tap_set(&tap);
	post(e, IBV_WR_RDMA_WRITE, 0, 100);
	CHECK(completes(e, 0, IBV_WC_SUCCESS));
	CHECK_EQ(told.n, 1); /* as the frame that it stands for */
	CHECK(told.way == RC_EXECUTED && told.last.op == RC_WRITE &&
	      told.last.payload == 100);
	CHECK(told.last.stag == REMOTE_KEY && told.last.to == REMOTE_ADDR &&
	      told.last.last);
	post(e, IBV_WR_RDMA_READ, 1, 200);
	CHECK(completes(e, 1, IBV_WC_SUCCESS));
	CHECK_EQ(told.n, 2);
	CHECK(told.way == RC_EXECUTED && told.last.op == RC_READ_REQ);
	CHECK_EQ(told.last.read.size, 200);
	rc_tap_set(NULL);
	CHECK_EQ(runs(e), 2);
	ran(e, 0, 0, 100, true);
	ran(e, 1, 0, 200, true);
	CHECK(quiet(e));
	post(e, IBV_WR_SEND, 2, 16);
	past_resync(e); /* the first number */
	f = hear(e, RC_SEND);
	CHECK(f && f->f.msn == 1);
	say_ack(e, SQ_PSN);
	CHECK(completes(e, 2, IBV_WC_SUCCESS));
	CHECK_EQ(told.n, 2);
	end_free(e);
}

/* More than a little is moved without the QP's lock, and in turns. */
static void much_in_turns(void)
{
	struct end *e = end_new(executes);

	post(e, IBV_WR_RDMA_WRITE, 0, RC_EXECUTE_LOCKED);
	CHECK(completes(e, 0, IBV_WC_SUCCESS));
	ran(e, 0, 0, RC_EXECUTE_LOCKED, true);
	post(e, IBV_WR_RDMA_WRITE, 1, RC_EXECUTE_LOCKED + 1);
	CHECK(completes(e, 1, IBV_WC_SUCCESS));
	ran(e, 1, 0, RC_EXECUTE_LOCKED + 1, false);
	post(e, IBV_WR_RDMA_WRITE, 2, 3 * MIB + 5);
	CHECK(completes(e, 2, IBV_WC_SUCCESS));
	CHECK_EQ(runs(e), 6);
	for (uint32_t i = 0; i < 3; i++)
		ran(e, 2 + i, i * MIB, MIB, false);
	ran(e, 5, 3 * MIB, 5, false);
	CHECK(quiet(e));
	end_free(e);
}

/* ibv_modify_qp() has set the state, and waits for the stream's lock to flush. */
static void to_err(struct dev_qp *qp)
{
	lock_get(&qp->lock);
	qp->qp.state = IBV_QPS_ERR;
	lock_put(&qp->lock);
}

/* The QP leaves RTS while `len` bytes are moved; then it is flushed. */
static struct end *disturbed(uint32_t len)
{
	struct end *e = end_new(executes);
	struct stream *s = e->p->s;

	stream_lock(s);
	e->p->while_running = to_err;
	stream_unlock(s);
	post(e, IBV_WR_RDMA_READ, 0, len);
	CHECK_EQ(qp_to(e, IBV_QPS_ERR), 0);
	CHECK_EQ(runs(e), 1);
	return e;
}

/* Somebody may have seen the last byte: it is no longer work to be flushed. */
static void what_was_done_is_not_flushed(void)
{
	struct end *e = disturbed(RC_EXECUTE_LOCKED + 1);

	CHECK(completes(e, 0, IBV_WC_SUCCESS));
	end_free(e);
	e = disturbed(2 * MIB); /* a turn is half of it */
	CHECK(completes(e, 0, IBV_WC_WR_FLUSH_ERR));
	end_free(e);
}

/* A request of the peer, which wants to know that it was received. */
static void say_send(struct end *e)
{
	struct rc_frame f = { .op = RC_SEND, .last = true, .msn = 1, .payload = 10,
			      .ack_req = true };
	struct stream *s = e->p->s;

	post_recv(e, 9, 100);
	fake_say(e->p, &f, NULL);
	CHECK(completes(e, 9, IBV_WC_SUCCESS));
	stream_lock(s);
	CHECK(s->rx.ack_owed && s->rx.ack_asked);
	stream_unlock(s);
}

static bool ran_acked(struct end *e)
{
	struct stream *s = e->p->s;
	bool acked;

	stream_lock(s);
	acked = e->p->run[0].acked;
	stream_unlock(s);
	return acked;
}

/* What is moved may be the answer: the acknowledgement goes before it. */
static void an_acknowledgement_goes_first(void)
{
	struct end *e = end_new(executes);

	say_send(e);
	post(e, IBV_WR_RDMA_WRITE, 0, 100);
	CHECK(completes(e, 0, IBV_WC_SUCCESS));
	CHECK_EQ(runs(e), 1);
	CHECK(ran_acked(e));
	end_free(e);

	e = end_new(executes);
	say_send(e);
	e->p->no_room_for_ack = true;
	post(e, IBV_WR_RDMA_WRITE, 0, 100);
	CHECK(hear_ctl(e, CTL_ACK, RQ_PSN));
	past_resync(e);
	CHECK(hear(e, RC_WRITE));
	CHECK_EQ(runs(e), 0);
	end_free(e);
}

static void empty_ones_are_sent(void)
{
	struct end *e = end_new(executes);

	post(e, IBV_WR_RDMA_WRITE, 0, 0);
	past_resync(e);
	CHECK(hear(e, RC_WRITE));
	CHECK_EQ(runs(e), 0);
	end_free(e);
}

/* Much data waits until what was sent before it is answered, and asks for the answer. */
static void much_waits_for_answers(void)
{
	struct ibv_sge sge = { (uintptr_t)mem, MUCH, mr->lkey };
	struct ibv_send_wr wr[2] = { { .opcode = IBV_WR_SEND, .next = &wr[1] },
				     { .wr_id = 1,
				       .opcode = IBV_WR_RDMA_WRITE,
				       .sg_list = &sge,
				       .num_sge = 1,
				       .send_flags = IBV_SEND_SIGNALED } },
			   *bad;
	struct end *e =
		end_new((struct end_opt){ .executes = true, .unsignalled = true });
	const struct fake_frame *f;

	wr[1].wr.rdma.rkey = REMOTE_KEY;
	wr[1].wr.rdma.remote_addr = REMOTE_ADDR;
	fake_room(e->p, 2); /* for RESYNC and the send */
	CHECK_EQ(ibv_post_send(e->qp, wr, &bad), 0);
	past_resync(e);
	f = hear(e, RC_SEND);
	CHECK(f && f->f.ack_req); /* though nobody waits for its completion */
	fake_room(e->p, FAKE_ROOM);
	CHECK(quiet(e));
	CHECK_EQ(runs(e), 0);
	say_ack(e, SQ_PSN);
	CHECK(completes(e, 1, IBV_WC_SUCCESS));
	CHECK_EQ(runs(e), 1);
	CHECK(quiet(e));
	end_free(e);
}

static void a_little_does_not_wait_for_a_send(void)
{
	struct end *e = end_new(executes);

	post(e, IBV_WR_SEND, 0, 16);
	past_resync(e);
	CHECK(hear(e, RC_SEND));
	post(e, IBV_WR_RDMA_WRITE, 1, 100);
	CHECK(hear(e, RC_WRITE));
	CHECK_EQ(runs(e), 0);
	say_ack(e, SQ_PSN + 1);
	CHECK(completes(e, 0, IBV_WC_SUCCESS) && completes(e, 1, IBV_WC_SUCCESS));
	post(e, IBV_WR_RDMA_WRITE, 2, 100); /* now nothing is before it */
	CHECK(completes(e, 2, IBV_WC_SUCCESS));
	CHECK_EQ(runs(e), 1);
	end_free(e);
}

/* Nothing but such work keeps the carrier busy, which would go on for ever. */
static void a_little_waits_for_its_like(void)
{
	struct end *e = end_new(executes);

	read_frame(e, 0);
	CHECK_EQ(runs(e), 1);
	say_ack(e, SQ_PSN); /* accepted, not answered */
	post(e, IBV_WR_RDMA_WRITE, 1, 100);
	CHECK(quiet(e));
	CHECK_EQ(runs(e), 1);
	say_response(e, 0, 100);
	CHECK(completes(e, 0, IBV_WC_SUCCESS) && completes(e, 1, IBV_WC_SUCCESS));
	CHECK_EQ(runs(e), 2);
	CHECK(quiet(e));
	end_free(e);
}

static void what_will_not_succeed_does_not_wait(void)
{
	struct end *e = end_new(executes);

	post(e, IBV_WR_SEND, 0, 16);
	past_resync(e);
	CHECK(hear(e, RC_SEND));
	answers(e, false, 0);
	post(e, IBV_WR_RDMA_WRITE, 1, FAKE_PAYLOAD);
	CHECK(hear(e, RC_WRITE));
	CHECK_EQ(runs(e), 0);
	end_free(e);
}

static void what_fails_is_sent(void)
{
	struct end *e = end_new(executes);
	const struct fake_frame *f;

	answers(e, true, -EFAULT);
	post(e, IBV_WR_RDMA_WRITE, 0, 100);
	past_resync(e);
	f = hear(e, RC_WRITE);
	CHECK(f && f->f.payload == 100 && f->f.last && f->f.ack_req);
	CHECK_EQ(runs(e), 1);
	CHECK(nothing(e));
	answers(e, true, 0);
	say_ack(e, SQ_PSN);
	CHECK(completes(e, 0, IBV_WC_SUCCESS));
	CHECK_EQ(runs(e), 1); /* it was sent */
	post(e, IBV_WR_RDMA_READ, 1, 100);
	CHECK(completes(e, 1, IBV_WC_SUCCESS));
	CHECK_EQ(runs(e), 2);
	end_free(e);
}

static int run_first_turn(struct stream *s, const struct wqe *w, uint32_t off,
			  uint32_t len)
{
	(void)w, (void)len;
	to_fake(s)->runs++;
	return off ? to_fake(s)->run_ret : 0;
}

static const struct rc_executor half_executor = { fake_likely, run_first_turn };

/* The second turn fails: all of it is sent, from its beginning. */
static void what_fails_in_the_middle_is_sent(void)
{
	const struct end_opt o = { 0 };
	struct end *e = calloc(1, sizeof(*e));
	const struct fake_frame *f;

	REQUIRE(e && qp_init(e, &o));
	e->p = peer_new(e, &o);
	e->p->carrier.executor = &half_executor;
	e->p->run_ret = -EFAULT;
	CHECK_EQ(stream_start(e->p->s), 0);
	CHECK(!qp_rtr(e, &o) && !qp_rts(e, &o));
	post(e, IBV_WR_RDMA_WRITE, 0, MIB + FAKE_PAYLOAD);
	past_resync(e);
	CHECK_EQ(runs(e), 2); /* the second in a job */
	f = hear(e, RC_WRITE);
	CHECK(f && !f->f.payload && f->f.to == REMOTE_ADDR + MIB + FAKE_PAYLOAD);
	for (uint32_t i = 0; i <= MIB / FAKE_PAYLOAD; i++) {
		f = hear(e, RC_WRITE);
		REQUIRE(f);
		CHECK(f->f.payload == FAKE_PAYLOAD &&
		      f->f.to == REMOTE_ADDR + i * FAKE_PAYLOAD);
	}
	CHECK(f->f.last);
	say_ack(e, SQ_PSN);
	CHECK(completes(e, 0, IBV_WC_SUCCESS));
	end_free(e);
}

/* Of a large write with immediate data the data is placed; the rest is sent, and says how
 * much is there. */
static void a_write_with_immediate_data(void)
{
	struct end *e = end_new(executes);
	const struct fake_frame *f;

	told.n = 0;
	rc_tap_set(&tap);
	post(e, IBV_WR_RDMA_WRITE_WITH_IMM, 0, MUCH);
	rc_tap_set(NULL);
	CHECK_EQ(told.n, 4); /* the data, and the three below */
	ran(e, 0, 0, MUCH, false);
	past_resync(e);
	f = hear(e, RC_IMM);
	CHECK(f && f->f.imm.imm == 0xcafe0000 && f->f.msn == 1);
	f = hear(e, RC_WRITE);
	CHECK(f && !f->f.payload && f->f.last && f->f.msn == MUCH && f->f.ack_req);
	CHECK(f && f->f.to == REMOTE_ADDR + MUCH && f->f.stag == REMOTE_KEY);
	CHECK(nothing(e));
	say_nak(e, NAK_RNR, SQ_PSN); /* no receive for it */
	fake_say_ctl(e->p, CTL_RECV_POSTED, 0, 0);
	CHECK(hear_ctl(e, CTL_RESYNC, SQ_PSN));
	CHECK_EQ(runs(e), 2); /* all of it again */
	CHECK(hear(e, RC_IMM));
	f = hear(e, RC_WRITE);
	CHECK(f && f->f.msn == MUCH);
	say_ack(e, SQ_PSN);
	CHECK(completes(e, 0, IBV_WC_SUCCESS));

	post(e, IBV_WR_RDMA_WRITE_WITH_IMM, 1, 100); /* a little is sent with it */
	CHECK(hear(e, RC_IMM));
	f = hear(e, RC_WRITE);
	CHECK(f && f->f.payload == 100 && !f->f.msn);
	CHECK_EQ(runs(e), 2);
	end_free(e);
}

static void not_on_unreliable_streams(void)
{
	struct end *e = end_new((struct end_opt){ .executes = true, .type = IBV_QPT_UC });

	post(e, IBV_WR_RDMA_WRITE, 0, 100);
	CHECK(hear(e, RC_WRITE));
	CHECK_EQ(runs(e), 0);
	end_free(e);
}

/* ---- by reference ------------------------------------------------------------------ */

/* A frame of a send that the peer is to fetch, or not. */
static void hear_part(struct end *e, enum rc_way way, uint32_t off, uint32_t len,
		      bool last)
{
	const struct fake_frame *f = hear(e, RC_SEND);

	REQUIRE(f);
	CHECK_EQ(f->way, way);
	CHECK(f->f.mo == off && f->f.payload == len && f->f.last == last);
}

/* All of a send in frames that have the payload. */
static void hear_copied(struct end *e, uint32_t len)
{
	for (uint32_t off = 0; off < len; off += FAKE_PAYLOAD) {
		uint32_t n = len - off < FAKE_PAYLOAD ? len - off : FAKE_PAYLOAD;

		hear_part(e, RC_BY_FRAME, off, n, off + n == len);
	}
}

static void large_sends_are_fetched(void)
{
	struct end *e = end_new(fetches);

	post(e, IBV_WR_SEND, 0, RC_REFERENCE_MIN);
	past_resync(e);
	hear_part(e, RC_BY_REFERENCE, 0, RC_REFERENCE_MIN, true);
	post(e, IBV_WR_SEND, 1, RC_REFERENCE_MIN - 1);
	hear_copied(e, RC_REFERENCE_MIN - 1);
	post(e, IBV_WR_SEND, 2, 2 * MIB + 5000); /* the rest is little */
	hear_part(e, RC_BY_REFERENCE, 0, MIB, false);
	hear_part(e, RC_BY_REFERENCE, MIB, MIB, false);
	hear_part(e, RC_BY_FRAME, 2 * MIB, FAKE_PAYLOAD, false);
	hear_part(e, RC_BY_FRAME, 2 * MIB + FAKE_PAYLOAD, 5000 - FAKE_PAYLOAD, true);
	CHECK(quiet(e));
	post(e, IBV_WR_RDMA_WRITE, 3, FAKE_PAYLOAD * 20); /* sends alone */
	for (int i = 0; i < 21; i++)
		CHECK(hear(e, RC_WRITE));
	say_ack(e, SQ_PSN + 3);
	for (uint64_t i = 0; i < 4; i++)
		CHECK(completes(e, i, IBV_WC_SUCCESS));
	end_free(e);
}

static void a_carrier_that_does_not(void)
{
	struct end *e = end_new(fetches), *uc;

	e->p->fetches = false;
	post(e, IBV_WR_SEND, 0, MUCH);
	past_resync(e);
	hear_copied(e, MUCH);
	end_free(e);
	uc = end_new((struct end_opt){ .fetches = true, .type = IBV_QPT_UC });
	post(uc, IBV_WR_SEND, 0, MUCH);
	hear_copied(uc, MUCH);
	end_free(uc);
}

/* What could not be fetched is sent; the next one is offered again. */
static void what_cannot_be_fetched_is_sent(void)
{
	struct end *e = end_new(fetches);

	post(e, IBV_WR_SEND, 0, MUCH);
	past_resync(e);
	hear_part(e, RC_BY_REFERENCE, 0, MUCH, true);
	say_nak(e, NAK_COPY, SQ_PSN);
	CHECK(hear_ctl(e, CTL_RESYNC, SQ_PSN)); /* at once */
	hear_copied(e, MUCH);
	post(e, IBV_WR_SEND, 1, MUCH);
	hear_part(e, RC_BY_REFERENCE, 0, MUCH, true);
	say_ack(e, SQ_PSN + 1);
	CHECK(completes(e, 0, IBV_WC_SUCCESS) && completes(e, 1, IBV_WC_SUCCESS));
	end_free(e);
}

/* One refusal more; true: the payload had been offered. */
static bool refused(struct end *e, uint32_t i)
{
	const struct fake_frame *f;
	bool offered;

	post(e, IBV_WR_SEND, i, MUCH);
	do
		f = fake_hear(e->p, FAKE_PATIENCE_MS);
	while (f && f->f.op == RC_CTL);
	offered = f && f->way == RC_BY_REFERENCE;
	if (offered)
		say_nak(e, NAK_COPY, SQ_PSN + i);
	while (!quiet(e))
		fake_hear(e->p, 0);
	say_ack(e, SQ_PSN + i);
	CHECK(completes(e, i, IBV_WC_SUCCESS));
	return offered;
}

static void a_peer_that_never_fetches(void)
{
	struct end *e = end_new(fetches);
	uint32_t i = 0;

	for (; i < RC_REFERENCE_REFUSALS - 1; i++)
		CHECK(refused(e, i));
	post(e, IBV_WR_SEND, i, MUCH); /* one is fetched: it is asked again as often */
	hear_part(e, RC_BY_REFERENCE, 0, MUCH, true);
	say_ack(e, SQ_PSN + i);
	CHECK(completes(e, i, IBV_WC_SUCCESS));
	for (int k = 0; k < RC_REFERENCE_REFUSALS; k++)
		CHECK(refused(e, ++i));
	CHECK(!refused(e, ++i));
	CHECK(!refused(e, ++i));
	end_free(e);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	if (!device_open()) {
		ok(false, "device");
		return t_done();
	}
	T_RUN(no_frame_and_no_number);
	T_RUN(much_in_turns);
	T_RUN(what_was_done_is_not_flushed);
	T_RUN(an_acknowledgement_goes_first);
	T_RUN(empty_ones_are_sent);
	T_RUN(much_waits_for_answers);
	T_RUN(a_little_does_not_wait_for_a_send);
	T_RUN(a_little_waits_for_its_like);
	T_RUN(what_will_not_succeed_does_not_wait);
	T_RUN(what_fails_is_sent);
	T_RUN(what_fails_in_the_middle_is_sent);
	T_RUN(a_write_with_immediate_data);
	T_RUN(not_on_unreliable_streams);
	T_RUN(large_sends_are_fetched);
	T_RUN(a_carrier_that_does_not);
	T_RUN(what_cannot_be_fetched_is_sent);
	T_RUN(a_peer_that_never_fetches);
	T_RUN(nothing_is_left);
	return t_done();
}
