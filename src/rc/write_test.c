/* SPDX-License-Identifier: BSD-2-Clause */
/* The peer's writes, in one frame and in several, and how long a message may be. */
#include "rc/ask_test.h"

#include <sys/mman.h>

/* An empty segment tells where a write ends: it is refused before a byte is placed. */
static void an_announced_write_that_is_too_long(void)
{
	struct end *e = end_new((struct end_opt){ 0 });
	struct rc_frame probe = write_of(REGION, 0), part = write_of(REGION - 100, 100);

	memset(mem + REGION - 100, 7, 100);
	probe.last = part.last = false;
	say(e, probe); /* ends where the region does */
	say(e, part);
	CHECK(quiet(e));
	CHECK_EQ(mem[REGION - 1], 0);
	end_free(e);

	e = end_new((struct end_opt){ 0 });
	memset(mem + REGION - 100, 7, 100);
	probe.to++;
	say(e, probe);
	say(e, part);
	CHECK(hear_nak(e, NAK_REM_ACCESS, RQ_PSN));
	CHECK_EQ(mem[REGION - 1], 7);
	end_free(e);
}

static void segments_of_a_write_follow_each_other(void)
{
	struct rc_frame a = write_of(AT, 100), b = write_of(AT + 100, 100);
	struct end *e = end_new((struct end_opt){ 0 });

	a.last = false;
	post_recv(e, 1, 0);
	say_imm(e, 1);
	say(e, a);
	say(e, b);
	CHECK(received(e, 1, IBV_WC_RECV_RDMA_WITH_IMM, 200));
	end_free(e);

	b.to++;
	e = end_new((struct end_opt){ 0 });
	say(e, a);
	say(e, b);
	CHECK(hear_nak(e, NAK_INV_REQ, RQ_PSN));
	end_free(e);
}

static void immediates(void)
{
	struct end *e = end_new((struct end_opt){ 0 });
	struct ibv_wc wc = { 0 };

	post_recv(e, 1, 100);
	say_imm(e, 1);
	CHECK(nothing(e));
	say_send(e, 2, 10);
	CHECK_EQ(ibv_poll_cq(e->cq, 1, &wc), 1);
	CHECK(wc.opcode == IBV_WC_RECV && wc.byte_len == 10);
	CHECK((wc.wc_flags & IBV_WC_WITH_IMM) && wc.imm_data == htobe32(0x1234));
	fake_pass(e->p, true);
	CHECK(hear_ctl(e, CTL_ACK, RQ_PSN)); /* one request */
	say_imm(e, 3);
	say_imm(e, 4); /* without what it belongs to */
	CHECK_EQ(stream_state(e), STREAM_BROKEN);
	end_free(e);
}

/* The receive says so, if there is one; else there is an event as for any other write. */
static void a_refused_write_with_immediate(void)
{
	struct rc_frame f = write_of(AT, 8);
	struct end *e = end_new((struct end_opt){ 0 });

	f.stag ^= 0x5a00;
	post_recv(e, 1, 0);
	post_recv(e, 2, 0);
	say_imm(e, 1);
	say(e, f);
	CHECK(hear_nak(e, NAK_REM_ACCESS, RQ_PSN));
	CHECK(completes(e, 1, IBV_WC_LOC_ACCESS_ERR));
	CHECK(completes(e, 2, IBV_WC_WR_FLUSH_ERR));
	CHECK_EQ(next_event(), -1);
	end_free(e);

	e = end_new((struct end_opt){ 0 });
	say_imm(e, 1);
	say(e, f);
	CHECK(hear_nak(e, NAK_REM_ACCESS, RQ_PSN));
	CHECK_EQ(next_event(), IBV_EVENT_QP_ACCESS_ERR);
	end_free(e);

	e = end_new((struct end_opt){ .type = IBV_QPT_UC });
	post_recv(e, 1, 0);
	say_imm(e, 1);
	say(e, f); /* discarded; the receive serves the next one */
	say_imm(e, 2);
	say(e, write_of(AT, 8));
	CHECK(received(e, 1, IBV_WC_RECV_RDMA_WITH_IMM, 8));
	end_free(e);
}

/* The peer has placed the data of a write itself: what it says is checked all the same. */
static void data_that_is_in_its_place(void)
{
	struct rc_frame f = write_of(AT + MANY, 0), part = write_of(AT, 100);
	struct end *e = end_new((struct end_opt){ 0 });

	f.msn = MANY;
	post_recv(e, 1, 0);
	say_imm(e, 1);
	say(e, f);
	CHECK(received(e, 1, IBV_WC_RECV_RDMA_WITH_IMM, MANY));
	end_free(e);

	f = write_of(MANY - 1, 0); /* begins before the region */
	f.msn = MANY;
	refused(end_new((struct end_opt){ 0 }), f, NAK_REM_ACCESS,
		IBV_EVENT_QP_ACCESS_ERR);

	e = end_new((struct end_opt){ 0 });
	part.last = false;
	say(e, part); /* either all of it or nothing */
	f = write_of(AT + 100, 0);
	f.msn = 50;
	say(e, f);
	CHECK_EQ(stream_state(e), STREAM_BROKEN);
	end_free(e);
}

/* The peer has sent so much of a write, without the time that it takes. */
static void already_written(struct end *e, uint32_t len)
{
	struct stream *s = e->p->s;

	stream_lock(s);
	s->rx.write_len = len;
	stream_unlock(s);
}

/* No message is longer than 2^31 bytes (max_msg_sz), and so the count of its bytes does
 * not go round: byte_len would be wrong, and the segments unchecked. */
static void a_write_of_more_than_the_longest(void)
{
	struct rc_frame a = write_of(AT, 100), b = write_of(AT + 100, 100);
	struct end *e = end_new((struct end_opt){ 0 });

	a.last = false;
	post_recv(e, 1, 0);
	say_imm(e, 1);
	say(e, a);
	already_written(e, DEV_MAX_MSG - 100);
	say(e, b);
	CHECK(received(e, 1, IBV_WC_RECV_RDMA_WITH_IMM, DEV_MAX_MSG));
	end_free(e);

	e = end_new((struct end_opt){ 0 });
	memset(mem + AT + 100, 7, 100);
	say(e, a);
	already_written(e, DEV_MAX_MSG - 99);
	say(e, b);
	CHECK(hear_nak(e, NAK_INV_REQ, RQ_PSN));
	CHECK_EQ(next_event(), IBV_EVENT_QP_REQ_ERR);
	CHECK_EQ(mem[AT + 100], 7);
	end_free(e);

	e = end_new((struct end_opt){ .type = IBV_QPT_UC });
	say(e, a);
	already_written(e, DEV_MAX_MSG);
	memset(mem + AT + 100, 7, 100);
	say(e, b); /* discarded without a word */
	CHECK(quiet(e));
	CHECK_EQ(mem[AT + 100], 7);
	CHECK_EQ(state_of(e), IBV_QPS_RTS);
	end_free(e);
}

/* The same of a write whose data the peer says it has placed. */
static void more_than_the_longest_in_its_place(void)
{
	const size_t len = (size_t)DEV_MAX_MSG + 4096;
	void *at = mmap(NULL, len, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct ibv_mr *large;
	struct rc_frame f;
	struct end *e;

	REQUIRE(at != MAP_FAILED);
	large = ibv_reg_mr(pd, at, len,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_ON_DEMAND);
	REQUIRE(large);
	f = write_of(0, 0);
	f.stag = large->rkey;
	f.msn = DEV_MAX_MSG;
	f.to = (uintptr_t)at + f.msn;
	e = end_new((struct end_opt){ 0 });
	post_recv(e, 1, 0);
	say_imm(e, 1);
	say(e, f);
	CHECK(received(e, 1, IBV_WC_RECV_RDMA_WITH_IMM, DEV_MAX_MSG));
	end_free(e);
	f.msn++;
	f.to++;
	refused(end_new((struct end_opt){ 0 }), f, NAK_INV_REQ, IBV_EVENT_QP_REQ_ERR);
	CHECK_EQ(ibv_dereg_mr(large), 0);
	munmap(at, len);
}

/* A receive may have more room than the longest message. */
static void a_send_of_more_than_the_longest(void)
{
	const uint32_t half = DEV_MAX_MSG;
	struct ibv_sge sge[2] = { { (uintptr_t)mem, half, mr->lkey },
				  { (uintptr_t)mem, half - 1, mr->lkey } };
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = sge, .num_sge = 2 }, *bad;
	struct end *e = end_new((struct end_opt){ 0 });
	struct rc_frame f = send_of(1, 10);

	CHECK_EQ(ibv_post_recv(e->qp, &wr, &bad), 0);
	f.last = false;
	say(e, f);
	stream_lock(e->p->s);
	e->p->s->rx.msg_off = f.mo = DEV_MAX_MSG - 5;
	stream_unlock(e->p->s);
	say(e, f);
	CHECK(hear_nak(e, NAK_INV_REQ, RQ_PSN));
	CHECK(completes(e, 1, IBV_WC_LOC_LEN_ERR));
	end_free(e);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	if (!device_open()) {
		ok(false, "device");
		return t_done();
	}
	T_RUN(an_announced_write_that_is_too_long);
	T_RUN(segments_of_a_write_follow_each_other);
	T_RUN(immediates);
	T_RUN(a_refused_write_with_immediate);
	T_RUN(data_that_is_in_its_place);
	T_RUN(a_write_of_more_than_the_longest);
	T_RUN(more_than_the_longest_in_its_place);
	T_RUN(a_send_of_more_than_the_longest);
	T_RUN(nothing_is_left);
	return t_done();
}
