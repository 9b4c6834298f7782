/* SPDX-License-Identifier: BSD-2-Clause */
/* Unreliable streams, seen from their peer: what is said and what is not, messages
 * that are cut off or find no receive, and a peer that takes nothing. */
#include "tcp/stream_test.h"

#include <fcntl.h>

static struct end *uc_new(int cqe)
{
	the_type = IBV_QPT_UC;
	return end_of(cqe, (struct stream_param){ .remote_qpn = REMOTE_QPN,
						  .extended = true,
						  .unreliable = true });
}

static struct rc_frame send_hdr(uint32_t msn, uint32_t mo, uint32_t len, bool last)
{
	return (struct rc_frame){ .op = RC_SEND, .msn = msn, .mo = mo, .payload = len,
				   .last = last };
}

static void say_send(struct end *e, uint32_t msn, uint32_t mo, uint32_t len, bool last)
{
	struct rc_frame h = send_hdr(msn, mo, len, last);

	say(e, &h);
}

static void say_write(struct end *e, uint32_t len, bool last)
{
	struct rc_frame h = { .op = RC_WRITE, .payload = len, .last = last };

	h.stag = mr->rkey;
	h.to = (uintptr_t)mem + REGION - 4096;
	say(e, &h);
}

static void say_imm(struct end *e, uint32_t msn)
{
	struct rc_frame h = { .op = RC_IMM, .last = true, .msn = msn };

	h.imm.imm = 5;
	h.imm.kind = IMM_PREFIX;
	say(e, &h);
}

static bool received(struct end *e, uint32_t len)
{
	struct ibv_wc wc = { .status = IBV_WC_GENERAL_ERR };

	return poll_one(e, &wc) && wc.status == IBV_WC_SUCCESS &&
	       (wc.opcode & IBV_WC_RECV) && wc.byte_len == len;
}

static bool sent(struct end *e, uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc = { .wr_id = ~id };

	return poll_one(e, &wc) && wc.wr_id == id && wc.status == status;
}

static bool nothing(struct end *e)
{
	struct ibv_wc wc;

	return !ibv_poll_cq(e->cq, 1, &wc);
}

/* Until the stream holds a message back that has no receive. */
static bool waits(struct end *e)
{
	double limit = now() + PATIENCE_S;
	bool is = false;

	while (!is && now() < limit) {
		stream_lock(e->s);
		is = e->s->rx.wait != WAIT_NONE;
		stream_unlock(e->s);
	}
	return is;
}

static int to_rts(struct end *e)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTS };

	return ibv_modify_qp(e->qp, &a, IBV_QP_STATE);
}

/* ---- cases ------------------------------------------------------------------------ */

static void nobody_acknowledges(void)
{
	struct end *e = uc_new(16);
	struct rc_frame h;

	for (uint32_t i = 1; i <= 3; i++) {
		post_recv_of(e, 4096);
		say_send(e, i, 0, 100, true);
		CHECK(received(e, 100));
	}
	say_write(e, 100, true);
	post(e, IBV_WR_SEND, 7, 100);
	CHECK(sent(e, 7, IBV_WC_SUCCESS)); /* no answer came, none will */
	REQUIRE(hear(e, &h));
	CHECK_EQ(h.op, RC_SEND);
	CHECK(!h.ack_req);
	say_ctl(e, CTL_ACK, 0, 12345);
	say_ctl(e, CTL_NAK, NAK_REM_ACCESS, SQ_PSN);
	say_ctl(e, CTL_RECV_POSTED, 0, 0);
	say_read(e, 1, 100);
	post_recv_of(e, 4096);
	say_send(e, 4, 0, 10, true);
	CHECK(received(e, 10));
	CHECK_EQ(state_of(e), IBV_QPS_RTS);
	post(e, IBV_WR_SEND, 8, 0);
	CHECK(sent(e, 8, IBV_WC_SUCCESS));
	REQUIRE(hear(e, &h));
	CHECK_EQ(h.op, RC_SEND); /* and the read was not answered */
	end_free(e);
}

/* The peer's QP failed in the middle of a message, and came back. */
static void cut_messages(void)
{
	struct end *e = uc_new(16);

	post_recv_of(e, 4096);
	say_send(e, 1, 0, 1000, false);
	say_ctl(e, CTL_RESYNC, 0, 0);
	say_send(e, 1, 0, 500, true);
	CHECK(received(e, 500));

	post_recv_of(e, 4096); /* an immediate without its write, then another write */
	say_imm(e, 2);
	say_write(e, 100, false);
	say_ctl(e, CTL_RESYNC, 0, 0);
	say_write(e, 64, true);
	say_imm(e, 3);
	say_write(e, 200, false);
	say_write(e, 100, true);
	CHECK(received(e, 300));
	CHECK(nothing(e));
	end_free(e);
}

/* A message that is discarded is so to its end, and not a byte further. */
static void discarded_messages(void)
{
	struct rc_frame bad = { .op = RC_WRITE, .stag = 0x123, .payload = 64 };
	struct end *e = uc_new(16);

	post_recv_of(e, 1000);
	say_send(e, 1, 0, 900, false);
	say_send(e, 1, 900, 101, false); /* one byte too long */
	say_send(e, 1, 1001, 4000, false);
	say_send(e, 1, 5001, 1, true);
	say_imm(e, 2);
	say(e, &bad);
	say(e, &bad);
	bad.last = true;
	say(e, &bad);
	say_send(e, 3, 0, 1000, true);
	CHECK(received(e, 1000));
	CHECK(nothing(e));
	CHECK_EQ(state_of(e), IBV_QPS_RTS);
	end_free(e);
}

/* Without a receive, messages are late; those behind them wait in order. */
static void late_receives(void)
{
	enum { N = 40 };
	struct end *e = uc_new(64);
	uint8_t all[64 * 1024];
	size_t n = 0;

	for (uint32_t i = 0; i < N; i++) {
		struct rc_frame h = send_hdr(i + 1, 0, 100 + i, true);

		n += frame_make(all + n, &h);
	}
	say_bytes(e, all, n); /* all at once: most of it will be read ahead */
	for (uint32_t i = 0; i < N; i++) {
		CHECK(waits(e));
		CHECK(nothing(e));
		post_recv_of(e, 4096);
		CHECK(received(e, 100 + i));
	}
	say_imm(e, 99);
	say_write(e, 300, true);
	CHECK(waits(e));
	post_recv_of(e, 0);
	CHECK(received(e, 300));
	CHECK(nothing(e));
	end_free(e);
}

/* The QP goes away while a message waits: what is behind it is the CM's. */
static void gone_while_late(void)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };
	double limit = now() + PATIENCE_S;
	struct end *e = uc_new(16);

	say_send(e, 1, 0, 100, true);
	CHECK(waits(e));
	say_send(e, 2, 0, 100, true);
	say_ctl(e, CTL_USER, STREAM_CTL_RTU, 0);
	CHECK(!ibv_modify_qp(e->qp, &a, IBV_QP_STATE));
	while (!atomic_load(&e->controls) && now() < limit)
		sched_yield();
	CHECK_EQ(e->controls, 1);
	end_free(e);
}

/* A peer that takes nothing: work completes all the same, and when it wakes up, it
 * finds the beginning of a message, that it was given up, and the next one. */
static void stalled_peer(void)
{
	struct rc_frame h = { .op = RC_CTL };
	struct end *e = uc_new(64);
	struct ibv_wc wc;
	bool cut = false;

	for (uint64_t i = 0; i < 8; i++)
		post(e, IBV_WR_SEND, i, REGION);
	for (uint64_t i = 0; i < 8; i++) {
		REQUIRE(poll_one(e, &wc));
		CHECK(wc.wr_id == i && wc.status == IBV_WC_SUCCESS);
	}
	CHECK_EQ(state_of(e), IBV_QPS_RTS);
	post(e, IBV_WR_SEND, 9, 10); /* does not wait again */
	CHECK(sent(e, 9, IBV_WC_SUCCESS));
	while (!cut && hear(e, &h)) { /* until the frame that was begun is finished */
		CHECK_EQ(h.op, RC_SEND);
		stream_lock(e->s);
		cut = !e->s->tx.cut;
		stream_unlock(e->s);
	}
	post(e, IBV_WR_SEND, 10, 77);
	CHECK(sent(e, 10, IBV_WC_SUCCESS));
	while (hear(e, &h) && h.op == RC_SEND)
		CHECK(!h.last);
	CHECK_EQ(h.op, RC_CTL);
	CHECK_EQ(h.ctl.type, CTL_RESYNC);
	REQUIRE(hear(e, &h));
	CHECK_EQ(h.op, RC_SEND);
	CHECK(h.last && h.payload == 77 && !h.mo);
	end_free(e);
}

/* Memory that goes away under a message: the peer is told that it ends here. */
static void memory_gone_under_a_message(void)
{
	struct rc_frame h;
	struct end *e = uc_new(16);

	post(e, IBV_WR_SEND, 1, REGION); /* does not fit the socket */
	CHECK(nothing(e));
	CHECK(!ibv_dereg_mr(mr));
	REQUIRE(hear(e, &h));
	CHECK(sent(e, 1, IBV_WC_LOC_PROT_ERR));
	CHECK_EQ(state_of(e), IBV_QPS_SQE);
	region_open();
	CHECK_EQ(to_rts(e), 0);
	post(e, IBV_WR_SEND, 2, 33);
	CHECK(sent(e, 2, IBV_WC_SUCCESS));
	while (hear(e, &h) && h.op == RC_SEND)
		CHECK(!h.last);
	CHECK_EQ(h.op, RC_CTL);
	CHECK_EQ(h.ctl.type, CTL_RESYNC);
	REQUIRE(hear(e, &h));
	CHECK(h.op == RC_SEND && h.last && h.payload == 33);
	end_free(e);
}

/* SQD drains though the peer takes nothing. */
static void draining_into_a_stalled_peer(void)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
	struct end *e = uc_new(16);
	struct ibv_async_event ev;

	post(e, IBV_WR_SEND, 1, REGION);
	post(e, IBV_WR_SEND, 2, 10);
	CHECK(!ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
	REQUIRE(!ibv_get_async_event(ctx, &ev));
	CHECK_EQ(ev.event_type, IBV_EVENT_SQ_DRAINED);
	ibv_ack_async_event(&ev);
	CHECK(sent(e, 1, IBV_WC_SUCCESS));
	CHECK(nothing(e));
	CHECK_EQ(to_rts(e), 0);
	CHECK(sent(e, 2, IBV_WC_SUCCESS));
	end_free(e);
}

/* The peer closes: what is posted from then on vanishes. */
static void closed_peer(void)
{
	struct end *e = uc_new(64);

	post(e, IBV_WR_SEND, 1, REGION);
	close(e->peer);
	e->peer = open("/dev/null", O_RDONLY);
	CHECK(sent(e, 1, IBV_WC_SUCCESS));
	for (uint64_t i = 2; i < 20; i++) {
		post(e, IBV_WR_SEND, i, 1000);
		CHECK(sent(e, i, IBV_WC_SUCCESS));
	}
	CHECK_EQ(state_of(e), IBV_QPS_RTS);
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
	T_RUN(nobody_acknowledges);
	T_RUN(cut_messages);
	T_RUN(discarded_messages);
	T_RUN(late_receives);
	T_RUN(gone_while_late);
	T_RUN(stalled_peer);
	T_RUN(memory_gone_under_a_message);
	T_RUN(draining_into_a_stalled_peer);
	T_RUN(closed_peer);
	return t_done();
}
