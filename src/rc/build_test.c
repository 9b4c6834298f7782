/* SPDX-License-Identifier: BSD-2-Clause */
/* What a stream sends: the frames of each work request, when they may leave, and their
 * order. */
#include "rc/end_test.h"

#include "base/be.h"

enum { MANY = 10000, FRAMES = 3 }; /* bytes of so many frames */

/* The stream is new: its first request is announced. */
static void past_resync(struct end *e)
{
	const struct fake_frame *f = hear_ctl(e, CTL_RESYNC, SQ_PSN);

	CHECK(f && f->f.ctl.msn0 == 1 && f->f.ctl.msn1 == 1);
}

static void fill(void)
{
	for (uint32_t i = 0; i < REGION; i++)
		mem[i] = (uint8_t)(i * 7 + (i >> 8));
}

/* ---- frames of a request ----------------------------------------------------------- */

static void the_first_request_is_announced(void)
{
	struct end *e = end_new((struct end_opt){ 0 });
	const struct fake_frame *f;

	CHECK(quiet(e)); /* not before there is one */
	post(e, IBV_WR_SEND, 1, 16);
	past_resync(e);
	f = hear(e, RC_SEND);
	CHECK(f && f->f.msn == 1 && !f->f.mo && f->f.last && f->f.ack_req);
	post(e, IBV_WR_SEND, 2, 16);
	f = hear(e, RC_SEND);
	CHECK(f && f->f.msn == 2);
	CHECK(quiet(e));
	end_free(e);
}

static void every_kind_of_send(void)
{
	static const struct {
		enum ibv_wr_opcode wr;
		unsigned flags;
		enum rc_op op;
	} row[] = {
		{ IBV_WR_SEND, 0, RC_SEND },
		{ IBV_WR_SEND, IBV_SEND_SOLICITED, RC_SEND_SE },
		{ IBV_WR_SEND_WITH_INV, 0, RC_SEND_INV },
		{ IBV_WR_SEND_WITH_INV, IBV_SEND_SOLICITED, RC_SEND_SE_INV },
	};
	struct end *e = end_new((struct end_opt){ 0 });

	post(e, IBV_WR_SEND, 0, 0);
	past_resync(e);
	CHECK(hear(e, RC_SEND));
	for (unsigned i = 0; i < 4; i++) {
		const struct fake_frame *f;

		post_flags(e, row[i].wr, i, 100, row[i].flags);
		f = hear(e, row[i].op);
		REQUIRE(f);
		CHECK(f->f.payload == 100 && f->f.msn == i + 2 && f->f.last);
		CHECK(!memcmp(f->data, mem, 100));
		CHECK_EQ(f->f.inv_stag,
			 row[i].wr == IBV_WR_SEND_WITH_INV ? REMOTE_KEY : 0);
	}
	end_free(e);
}

static void a_send_of_several_frames(void)
{
	struct end *e = end_new((struct end_opt){ 0 });

	post(e, IBV_WR_SEND, 1, MANY);
	past_resync(e);
	for (uint32_t i = 0; i < FRAMES; i++) {
		const struct fake_frame *f = hear(e, RC_SEND);
		uint32_t off = i * FAKE_PAYLOAD;
		bool last = i == FRAMES - 1;

		REQUIRE(f);
		CHECK(f->f.msn == 1 && f->f.mo == off && f->f.last == last);
		CHECK_EQ(f->f.ack_req, last);
		CHECK_EQ(f->f.payload, last ? MANY - off : FAKE_PAYLOAD);
		CHECK(!memcmp(f->data, mem + off, f->f.payload));
	}
	CHECK(quiet(e));
	end_free(e);
}

/* A write in several frames is announced by an empty one at its end. */
static void a_write_of_several_frames(void)
{
	struct end *e = end_new((struct end_opt){ 0 });
	const struct fake_frame *f;

	post(e, IBV_WR_RDMA_WRITE, 1, FAKE_PAYLOAD);
	past_resync(e);
	f = hear(e, RC_WRITE);
	CHECK(f && f->f.last && f->f.payload == FAKE_PAYLOAD && f->f.to == REMOTE_ADDR);
	post(e, IBV_WR_RDMA_WRITE, 2, MANY);
	f = hear(e, RC_WRITE);
	CHECK(f && !f->f.payload && !f->f.last && !f->f.ack_req && !f->f.msn);
	CHECK(f && f->f.to == REMOTE_ADDR + MANY && f->f.stag == REMOTE_KEY);
	for (uint32_t i = 0; i < FRAMES; i++) {
		f = hear(e, RC_WRITE);
		REQUIRE(f);
		CHECK_EQ(f->f.to, REMOTE_ADDR + i * FAKE_PAYLOAD);
		CHECK(f->f.stag == REMOTE_KEY && f->f.last == (i == FRAMES - 1));
		CHECK(!memcmp(f->data, mem + i * FAKE_PAYLOAD, f->f.payload));
	}
	post(e, IBV_WR_RDMA_WRITE, 3, 0);
	f = hear(e, RC_WRITE);
	CHECK(f && !f->f.payload && f->f.last);
	end_free(e);
}

static void a_plain_write_is_not_announced(void)
{
	struct end *e = end_new((struct end_opt){ .plain = true });

	post(e, IBV_WR_RDMA_WRITE, 1, MANY);
	for (uint32_t i = 0; i < FRAMES; i++) {
		const struct fake_frame *f = hear(e, RC_WRITE);

		CHECK(f && f->f.payload && !f->f.ack_req);
	}
	CHECK(quiet(e));
	CHECK(completes(e, 1, IBV_WC_SUCCESS)); /* the carrier has it */
	end_free(e);
}

static void immediates_go_ahead(void)
{
	struct end *e = end_new((struct end_opt){ 0 });
	const struct fake_frame *f;

	post(e, IBV_WR_SEND_WITH_IMM, 1, 10);
	past_resync(e);
	f = hear(e, RC_IMM);
	CHECK(f && f->f.msn == 1 && f->f.imm.imm == 0xcafe0001 &&
	      f->f.imm.kind == IMM_PREFIX);
	CHECK(f && !f->f.ack_req);
	f = hear(e, RC_SEND);
	CHECK(f && f->f.msn == 2 && f->f.payload == 10 && f->f.ack_req);
	post_flags(e, IBV_WR_RDMA_WRITE_WITH_IMM, 2, 10, IBV_SEND_SOLICITED);
	f = hear(e, RC_IMM_SE);
	CHECK(f && f->f.msn == 3 && f->f.imm.imm == 0xcafe0002);
	f = hear(e, RC_WRITE);
	CHECK(f && f->f.payload == 10 && f->f.last);
	post(e, IBV_WR_RDMA_WRITE_WITH_IMM, 3, MANY);
	CHECK(hear(e, RC_IMM));
	f = hear(e, RC_WRITE);
	CHECK(f && !f->f.payload && !f->f.last); /* the announcement */
	for (int i = 0; i < FRAMES; i++)
		CHECK(hear(e, RC_WRITE));
	say_ack(e, SQ_PSN + 2); /* each is one request */
	for (uint64_t i = 1; i <= 3; i++)
		CHECK(completes(e, i, IBV_WC_SUCCESS));
	end_free(e);
}

static void reads_and_atomics(void)
{
	struct end *e = end_new((struct end_opt){ 0 });
	const struct fake_frame *f;

	mem[0] = 0x11;
	post(e, IBV_WR_RDMA_READ, 1, MANY);
	past_resync(e);
	f = hear(e, RC_READ_REQ);
	REQUIRE(f);
	CHECK(f->f.msn == 1 && f->f.read.size == MANY && f->f.last && !f->f.payload);
	CHECK(f->f.read.src_stag == REMOTE_KEY && f->f.read.src_to == REMOTE_ADDR);
	post(e, IBV_WR_ATOMIC_FETCH_AND_ADD, 2, 8);
	f = hear(e, RC_ATOMIC_REQ);
	REQUIRE(f);
	CHECK(f->f.msn == 2 && f->f.atomic.opcode == RC_FETCH_ADD &&
	      f->f.atomic.add_swap == 3);
	CHECK(f->f.atomic.stag == REMOTE_KEY && f->f.atomic.to == REMOTE_ADDR);
	post(e, IBV_WR_ATOMIC_CMP_AND_SWP, 3, 8);
	f = hear(e, RC_ATOMIC_REQ);
	REQUIRE(f);
	CHECK(f->f.atomic.opcode == RC_CMP_SWAP && f->f.atomic.compare == 3);
	CHECK_EQ(f->f.atomic.add_swap, 4);
	post(e, IBV_WR_ATOMIC_WRITE, 4, 8);
	f = hear(e, RC_ATOMIC_REQ);
	REQUIRE(f);
	CHECK_EQ(f->f.atomic.opcode, RC_ATOMIC_WRITE);
	CHECK_EQ(f->f.atomic.add_swap, be64_get(mem)); /* bytes, as they are in memory */
	CHECK_EQ(f->f.msn, 4);
	end_free(e);
}

static void inline_data(void)
{
	uint8_t text[] = "inline";
	struct ibv_sge sge = { (uintptr_t)text, sizeof(text), 0 };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND },
			   *bad;
	struct end *e = end_new((struct end_opt){ 0 });
	const struct fake_frame *f;

	fake_room(e->p, 0);
	wr.send_flags = IBV_SEND_INLINE;
	CHECK_EQ(ibv_post_send(e->qp, &wr, &bad), 0);
	memset(text, 0, sizeof(text)); /* the application's again */
	fake_room(e->p, FAKE_ROOM);
	past_resync(e);
	f = hear(e, RC_SEND);
	CHECK(f && f->f.payload == 7 && !memcmp(f->data, "inline", 7));
	end_free(e);
}

/* Two pieces of memory: the payload of a frame may come from both. */
static void scattered_data(void)
{
	struct ibv_sge sge[2] = { { (uintptr_t)mem + 5, 3000, mr->lkey },
				  { (uintptr_t)mem + 9000, 3000, mr->lkey } };
	struct ibv_send_wr wr = { .sg_list = sge, .num_sge = 2, .opcode = IBV_WR_SEND },
			   *bad;
	struct end *e = end_new((struct end_opt){ 0 });
	const struct fake_frame *f;

	CHECK_EQ(ibv_post_send(e->qp, &wr, &bad), 0);
	past_resync(e);
	f = hear(e, RC_SEND);
	REQUIRE(f && f->f.payload == FAKE_PAYLOAD);
	CHECK(!memcmp(f->data, mem + 5, 3000));
	CHECK(!memcmp(f->data + 3000, mem + 9000, FAKE_PAYLOAD - 3000));
	f = hear(e, RC_SEND);
	REQUIRE(f && f->f.payload == 6000 - FAKE_PAYLOAD && f->f.last);
	CHECK(!memcmp(f->data, mem + 9000 + FAKE_PAYLOAD - 3000, f->f.payload));
	end_free(e);
}

/* ---- who asks for an answer -------------------------------------------------------- */

/* Posts a chain; bit i of `signals`: request i wants a completion. The frames that asked, as
 * bits. */
static unsigned asked(struct end *e, int n, unsigned signals)
{
	struct ibv_send_wr wr[32] = { 0 }, *bad;
	const struct fake_frame *f;
	unsigned bits = 0;

	for (int i = 0; i < n; i++) {
		wr[i].opcode = IBV_WR_SEND;
		wr[i].send_flags = signals & 1u << i ? IBV_SEND_SIGNALED : 0;
		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
	}
	CHECK_EQ(ibv_post_send(e->qp, wr, &bad), 0);
	for (int i = 0; i < n; i++) {
		do
			f = fake_hear(e->p, FAKE_PATIENCE_MS);
		while (f && f->f.op == RC_CTL);
		if (f && f->f.ack_req)
			bits |= 1u << i;
	}
	return bits;
}

static void an_answer_is_asked_for(void)
{
	struct end *e = end_new((struct end_opt){ .unsignalled = true });

	CHECK_EQ(asked(e, 5, 0), 0); /* nobody waits */
	CHECK_EQ(asked(e, 5, 1 << 4), 1 << 4);
	CHECK_EQ(asked(e, 5, 1 << 1), 1 << 4); /* once, at the end */
	CHECK_EQ(asked(e, 1, 0), 0);
	end_free(e);

	e = end_new((struct end_opt){ .unsignalled = true, .max_wr = 16 });
	CHECK_EQ(to_qp(e->qp)->sq.max_wr, 16);
	CHECK_EQ(asked(e, 16, 0), 1 << 7 | 1 << 15); /* half full, and full */
	say_ack(e, SQ_PSN + 15);
	end_free(e);
}

/* ---- what may not leave yet -------------------------------------------------------- */

static void say_read_response(struct end *e, uint32_t idx, uint32_t len)
{
	struct rc_frame f = {
		.op = RC_READ_RESP, .last = true, .stag = idx, .payload = len
	};

	fake_say(e->p, &f, NULL);
}

static void a_fence_waits_for_reads(void)
{
	struct end *e = end_new((struct end_opt){ 0 });

	post(e, IBV_WR_SEND, 0, 16);
	past_resync(e);
	CHECK(hear(e, RC_SEND));
	post_flags(e, IBV_WR_SEND, 1, 16, IBV_SEND_FENCE);
	CHECK(hear(e, RC_SEND)); /* not for sends */
	post(e, IBV_WR_RDMA_READ, 2, 16);
	CHECK(hear(e, RC_READ_REQ));
	post(e, IBV_WR_RDMA_WRITE, 3, 16);
	CHECK(hear(e, RC_WRITE));
	post_flags(e, IBV_WR_SEND, 4, 16, IBV_SEND_FENCE);
	post(e, IBV_WR_SEND, 5, 17);
	CHECK(quiet(e)); /* nor what is behind it */
	say_read_response(e, 2, 16);
	CHECK(hear(e, RC_SEND) && hear(e, RC_SEND));
	end_free(e);
}

static void reads_at_once_are_limited(void)
{
	struct end *e = end_new((struct end_opt){ .reads = 2 });
	const struct fake_frame *f;

	for (uint64_t i = 0; i < 4; i++)
		post(e, i == 1 ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_RDMA_READ, i, 16);
	post(e, IBV_WR_SEND, 4, 16);
	past_resync(e);
	CHECK(hear(e, RC_READ_REQ));
	CHECK(hear(e, RC_ATOMIC_REQ));
	CHECK(quiet(e));
	say_read_response(e, 0, 16);
	f = hear(e, RC_READ_REQ);
	CHECK(f && f->f.msn == 3);
	CHECK(quiet(e));
	end_free(e);
}

static void a_muted_stream_waits(void)
{
	struct end *e = end_new((struct end_opt){ .plain = true });
	struct stream *s = e->p->s;

	stream_lock(s);
	s->tx.muted = true;
	stream_unlock(s);
	post(e, IBV_WR_SEND, 1, 16);
	CHECK(quiet(e));
	stream_lock(s);
	s->tx.muted = false;
	tx_run(s);
	stream_unlock(s);
	CHECK(hear(e, RC_SEND));
	end_free(e);
}

/* ---- order ------------------------------------------------------------------------- */

static void say_read(struct end *e, uint32_t msn, uint32_t size)
{
	struct rc_frame f = { .op = RC_READ_REQ, .last = true, .msn = msn };

	f.read.size = size;
	f.read.src_stag = mr->rkey;
	f.read.src_to = (uintptr_t)mem;
	fake_say(e->p, &f, NULL);
}

/* Everything that can wait to be sent, while the carrier has no room. */
static struct end *loaded(void)
{
	struct rc_frame send = { .op = RC_SEND, .last = true, .msn = 1, .payload = 10 };
	struct end *e = end_new((struct end_opt){ 0 });

	fake_room(e->p, 0);
	for (uint64_t i = 0; i < 3; i++)
		post(e, IBV_WR_SEND, i, 10);
	say_read(e, 1, MANY);
	say_read(e, 2, 100);
	fake_say(e->p, &send, NULL); /* there is no receive */
	post_recv(e, 9, 100);
	CHECK_EQ(stream_control(e->p->s, STREAM_CTL_DREQ, NULL, 0), 0);
	CHECK(quiet(e));
	return e;
}

static void loaded_order(struct end *e)
{
	const struct fake_frame *f;

	/* DREQ does not overtake what was done before it. */
	CHECK(hear_ctl(e, CTL_ACK, RQ_PSN + 1));
	CHECK(hear_ctl(e, CTL_USER, 0));
	past_resync(e);
	CHECK(hear(e, RC_READ_RESP)); /* and by turns */
	CHECK(hear(e, RC_SEND));
	CHECK(hear(e, RC_READ_RESP));
	CHECK(hear(e, RC_SEND));
	f = hear(e, RC_READ_RESP);
	CHECK(f && f->f.last && f->f.to == 2 * FAKE_PAYLOAD);
	CHECK(hear(e, RC_SEND));
	f = hear(e, RC_READ_RESP); /* of the second read */
	CHECK(f && f->f.last && f->f.payload == 100);
	f = hear_ctl(e, CTL_NAK, RQ_PSN + 2); /* all before it is answered */
	CHECK(f && f->f.ctl.code == NAK_RNR && f->f.ctl.timer == 13);
	CHECK(hear_ctl(e, CTL_RECV_POSTED, 0));
	CHECK(quiet(e));
}

static void order_of_frames(void)
{
	struct end *e = loaded();

	fake_room(e->p, FAKE_ROOM);
	loaded_order(e);
	end_free(e);
}

/* The carrier has room for few frames at a time: nothing is lost, sent twice or moved. */
static void order_does_not_depend_on_room(void)
{
	for (uint32_t room = 1; room < 6; room++) {
		struct end *e = loaded();

		for (int i = 0; i < 16; i++)
			fake_room(e->p, room);
		loaded_order(e);
		end_free(e);
	}
}

static void a_response_does_not_wait_for_requests(void)
{
	struct end *e = end_new((struct end_opt){ 0 });

	post(e, IBV_WR_SEND, 1, 10);
	past_resync(e);
	CHECK(hear(e, RC_SEND));
	say_nak(e, NAK_RNR, SQ_PSN); /* timer 0: more than half a second */
	say_read(e, 1, 100);
	CHECK(hear_ctl(e, CTL_ACK, RQ_PSN));
	CHECK(hear(e, RC_READ_RESP));
	CHECK(quiet(e));
	end_free(e);
}

/* ---- local faults ------------------------------------------------------------------ */

static void post_two(struct end *e, uint64_t id, uint32_t key)
{
	struct ibv_sge sge[2] = { { (uintptr_t)mem, MANY, mr->lkey },
				  { (uintptr_t)mem, MANY, key } };
	struct ibv_send_wr wr = { .wr_id = id, .sg_list = sge, .num_sge = 2 }, *bad;

	wr.opcode = IBV_WR_SEND;
	CHECK_EQ(ibv_post_send(e->qp, &wr, &bad), 0);
}

/* Not a byte of it leaves; what was before it is answered first. */
static void memory_that_may_not_be_read(void)
{
	struct end *e = end_new((struct end_opt){ 0 });

	post(e, IBV_WR_SEND, 1, 16);
	past_resync(e);
	CHECK(hear(e, RC_SEND));
	post_two(e, 2, mr->lkey ^ 0x5a00);
	post(e, IBV_WR_SEND, 3, 16);
	CHECK(quiet(e));
	CHECK(nothing(e));
	say_ack(e, SQ_PSN);
	CHECK(completes(e, 1, IBV_WC_SUCCESS));
	CHECK(completes(e, 2, IBV_WC_LOC_PROT_ERR));
	CHECK(completes(e, 3, IBV_WC_WR_FLUSH_ERR));
	CHECK(quiet(e));
	end_free(e);
}

/* It does not leave; what was before it is answered first. */
static void an_atomic_of_another_size(void)
{
	struct end *e = end_new((struct end_opt){ 0 });
	struct ibv_sge sge = { (uintptr_t)mem, 4, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 2,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD },
			   *bad;

	post(e, IBV_WR_SEND, 1, 16);
	past_resync(e);
	CHECK(hear(e, RC_SEND));
	CHECK_EQ(ibv_post_send(e->qp, &wr, &bad), 0);
	CHECK(quiet(e));
	CHECK(nothing(e));
	say_ack(e, SQ_PSN);
	CHECK(completes(e, 1, IBV_WC_SUCCESS));
	CHECK(completes(e, 2, IBV_WC_LOC_LEN_ERR));
	CHECK(quiet(e));
	end_free(e);
}

static void iwarp_has_no_immediates(void)
{
	struct end *e = end_new((struct end_opt){ .plain = true });

	post(e, IBV_WR_SEND, 1, 16);
	post(e, IBV_WR_SEND_WITH_IMM, 2, 16);
	CHECK(hear(e, RC_SEND));
	CHECK(quiet(e));
	CHECK(completes(e, 1, IBV_WC_SUCCESS));
	CHECK(completes(e, 2, IBV_WC_LOC_QP_OP_ERR));
	end_free(e);
}

/* ---- XRC --------------------------------------------------------------------------- */

static void post_to_srq(struct end *e, uint32_t srqn)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad;

	wr.qp_type.xrc.remote_srqn = srqn;
	CHECK_EQ(ibv_post_send(e->qp, &wr, &bad), 0);
}

/* The peer is told which SRQ requests are for, when it changes. */
static void the_srq_is_named(void)
{
	struct end *e = end_new((struct end_opt){ .type = IBV_QPT_XRC_SEND });

	post_to_srq(e, 5);
	past_resync(e);
	CHECK(hear_ctl(e, CTL_SRQ, 5));
	CHECK(hear(e, RC_SEND));
	post_to_srq(e, 5);
	CHECK(hear(e, RC_SEND));
	post_to_srq(e, 6);
	CHECK(hear_ctl(e, CTL_SRQ, 6));
	CHECK(hear(e, RC_SEND));
	say_nak(e, NAK_RNR, SQ_PSN + 1);
	fake_say_ctl(e->p, CTL_RECV_POSTED, 0, 0);
	CHECK(hear_ctl(e, CTL_RESYNC, SQ_PSN + 1)); /* the same again */
	CHECK(hear_ctl(e, CTL_SRQ, 5));
	CHECK(hear(e, RC_SEND));
	CHECK(hear_ctl(e, CTL_SRQ, 6));
	CHECK(hear(e, RC_SEND));
	CHECK(quiet(e));
	end_free(e);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	if (!device_open()) {
		ok(false, "device");
		return t_done();
	}
	fill();
	T_RUN(the_first_request_is_announced);
	T_RUN(every_kind_of_send);
	T_RUN(a_send_of_several_frames);
	T_RUN(a_write_of_several_frames);
	T_RUN(a_plain_write_is_not_announced);
	T_RUN(immediates_go_ahead);
	T_RUN(reads_and_atomics);
	T_RUN(inline_data);
	T_RUN(scattered_data);
	T_RUN(an_answer_is_asked_for);
	T_RUN(a_fence_waits_for_reads);
	T_RUN(reads_at_once_are_limited);
	T_RUN(a_muted_stream_waits);
	T_RUN(order_of_frames);
	T_RUN(order_does_not_depend_on_room);
	T_RUN(a_response_does_not_wait_for_requests);
	T_RUN(memory_that_may_not_be_read);
	T_RUN(an_atomic_of_another_size);
	T_RUN(iwarp_has_no_immediates);
	T_RUN(the_srq_is_named);
	T_RUN(nothing_is_left);
	return t_done();
}
