/* SPDX-License-Identifier: BSD-2-Clause */
/* Streams to a standard iWARP peer, which this program plays. */
#include "tcp/stream_test.h"
#include "tcp/term.h"

static struct end *plain_new(enum stream_first first, bool crc)
{
	return end_of(64, (struct stream_param){ .first = first, .crc = crc });
}

/* The next frame of a plain stream: never ours alone, no reserved bit. */
static bool hear_plain(struct end *e, struct rc_frame *h)
{
	if (!hear(e, h))
		return false;
	CHECK(h->op != RC_CTL);
	CHECK(!h->ack_req);
	return true;
}

static void plain_sends_and_writes(void)
{
	struct end *e = plain_new(STREAM_FIRST_ANY, false);
	struct rc_frame h;
	struct ibv_wc wc;

	post(e, IBV_WR_SEND, 1, 100);
	post(e, IBV_WR_RDMA_WRITE, 2, 70000); /* two FPDUs */
	post(e, IBV_WR_SEND, 3, 0);
	for (uint64_t id = 1; id <= 3; id++) { /* the peer has said nothing */
		REQUIRE(poll_one(e, &wc));
		CHECK_EQ(wc.wr_id, id);
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
	}
	REQUIRE(hear_plain(e, &h));
	CHECK(h.op == RC_SEND && h.last && h.msn == 1 && h.mo == 0);
	REQUIRE(hear_plain(e, &h));
	CHECK(h.op == RC_WRITE && !h.last && h.stag == 0x77 && h.to == 0x1000);
	REQUIRE(hear_plain(e, &h));
	CHECK(h.op == RC_WRITE && h.last && h.to > 0x1000);
	REQUIRE(hear_plain(e, &h));
	CHECK(h.op == RC_SEND && h.msn == 2 && !h.payload);
	end_free(e);
}

/* More than the socket holds: finished only when TCP has all of it. */
static void plain_write_waits_for_tcp(void)
{
	struct end *e = plain_new(STREAM_FIRST_ANY, false);
	struct rc_frame h = { .last = false };
	struct ibv_wc wc;
	size_t got = 0;

	post(e, IBV_WR_RDMA_WRITE, 1, REGION);
	for (int i = 0; i < 1000; i++)
		CHECK_EQ(ibv_poll_cq(e->cq, 1, &wc), 0);
	while (!h.last && hear_plain(e, &h)) {
		got += h.payload;
		if (!h.last)
			ibv_poll_cq(e->cq, 0, &wc);
	}
	CHECK_EQ(got, REGION);
	REQUIRE(poll_one(e, &wc));
	CHECK_EQ(wc.status, IBV_WC_SUCCESS);
	end_free(e);
}

static void plain_receives(void)
{
	struct end *e = plain_new(STREAM_FIRST_ANY, false);
	struct rc_frame h = { .op = RC_SEND, .msn = 1, .payload = 64 };
	struct ibv_wc wc;

	post_recv_of(e, 200);
	post_recv_of(e, 200);
	say(e, &h);
	h.last = true;
	h.mo = 64;
	say(e, &h);
	h = (struct rc_frame){ .op = RC_WRITE, .last = true, .stag = mr->rkey,
				.to = (uintptr_t)mem + 512, .payload = 8 };
	memset(mem + 512, 0xff, 16);
	say(e, &h);
	h.stag = h.payload = 0; /* RFC 5040: of an empty write the key does not count */
	say(e, &h);
	h = (struct rc_frame){ .op = RC_SEND_SE, .last = true, .msn = 2 };
	say(e, &h);
	REQUIRE(poll_one(e, &wc));
	CHECK(wc.status == IBV_WC_SUCCESS && wc.byte_len == 128);
	REQUIRE(poll_one(e, &wc));
	CHECK(wc.status == IBV_WC_SUCCESS && wc.byte_len == 0);
	CHECK(!mem[519] && mem[520] == 0xff);
	say_read(e, 1, 300);
	REQUIRE(hear_plain(e, &h)); /* and nothing was sent before it */
	CHECK(h.op == RC_READ_RESP && h.last && h.payload == 300);
	CHECK_EQ(state_of(e), IBV_QPS_RTS);
	end_free(e);
}

static void plain_reads(void)
{
	struct end *e = plain_new(STREAM_FIRST_ANY, false);
	struct rc_frame h, r = { .op = RC_READ_RESP, .last = true };
	struct ibv_wc wc;

	post(e, IBV_WR_RDMA_READ, 1, 256);
	post(e, IBV_WR_SEND, 2, 10);
	REQUIRE(hear_plain(e, &h));
	CHECK(h.op == RC_READ_REQ && h.read.size == 256 && h.read.src_stag == 0x77);
	r.stag = h.read.sink_stag;
	r.to = h.read.sink_to;
	r.payload = 256;
	REQUIRE(hear_plain(e, &h));
	CHECK_EQ(h.op, RC_SEND);
	CHECK_EQ(ibv_poll_cq(e->cq, 1, &wc), 0); /* in order: behind the read */
	say(e, &r);
	for (uint64_t id = 1; id <= 2; id++) {
		REQUIRE(poll_one(e, &wc));
		CHECK(wc.wr_id == id && wc.status == IBV_WC_SUCCESS);
	}
	end_free(e);
}

/* The next frame is Terminate, then comes the end. */
static void terminated_with(struct end *e, enum term_code code, enum rc_op of)
{
	struct rc_frame h;
	const uint8_t *p = h.term.data;
	bool tagged = of == RC_WRITE;

	REQUIRE(hear_plain(e, &h));
	REQUIRE_EQ(h.op, RC_TERMINATE);
	CHECK(h.last && h.msn == 1 && h.qn == DDP_QN_TERM);
	CHECK_EQ(term_decode(&h), code);
	CHECK_EQ(h.term.len, 4 + (tagged ? DDP_TAGGED_HDR :
				  of == RC_READ_REQ ? DDP_UNTAGGED_HDR + 28 :
							 DDP_UNTAGGED_HDR));
	CHECK_EQ(p[2], of == RC_READ_REQ ? 0xe0 : 0xc0);
	CHECK_EQ(p[7] & 15, of);
	CHECK(!hear(e, &h)); /* the end, by itself: the QP is still there */
	CHECK_EQ(state_of(e), IBV_QPS_ERR);
}

static void plain_refusals(void)
{
	struct rc_frame write = { .op = RC_WRITE, .last = true, .payload = 8 };
	struct rc_frame send = { .op = RC_SEND, .last = true, .msn = 1, .payload = 300 };
	struct rc_frame read = { .op = RC_READ_REQ, .last = true, .msn = 1 };
	struct ibv_wc wc;
	struct end *e = plain_new(STREAM_FIRST_ANY, false);

	write.stag = mr->rkey ^ 0x5a00;
	say(e, &write);
	terminated_with(e, TERM_DDP_STAG, RC_WRITE);
	end_free(e);

	e = plain_new(STREAM_FIRST_ANY, false);
	write.stag = mr->rkey;
	write.to = (uintptr_t)mem + REGION;
	say(e, &write);
	terminated_with(e, TERM_DDP_BOUNDS, RC_WRITE);
	end_free(e);

	e = plain_new(STREAM_FIRST_ANY, false);
	read.read.size = 16;
	read.read.src_stag = mr->rkey ^ 0x5a00;
	say(e, &read);
	terminated_with(e, TERM_RDMAP_STAG, RC_READ_REQ);
	end_free(e);

	e = plain_new(STREAM_FIRST_ANY, false);
	say(e, &send);
	terminated_with(e, TERM_DDP_NO_BUFFER, RC_SEND);
	end_free(e);

	e = plain_new(STREAM_FIRST_ANY, false);
	post_recv_of(e, 100);
	say(e, &send);
	terminated_with(e, TERM_DDP_TOO_LONG, RC_SEND);
	REQUIRE(poll_one(e, &wc));
	CHECK_EQ(wc.status, IBV_WC_LOC_LEN_ERR);
	end_free(e);
}

/* Framing is lost: no header can be named. */
static void plain_nonsense(void)
{
	static const struct {
		struct rc_frame h;
		enum term_code code;
	} row[] = {
		{ { .op = RC_CTL, .last = true }, TERM_RDMAP_OPCODE },
		{ { .op = RC_IMM, .last = true, .msn = 1 }, TERM_RDMAP_OPCODE },
		{ { .op = RC_SEND, .last = true, .msn = 2 }, TERM_DDP_MSN },
		{ { .op = RC_SEND, .last = true, .msn = 1, .mo = 4 }, TERM_DDP_MO },
	};
	struct rc_frame h;

	for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		struct end *e = plain_new(STREAM_FIRST_ANY, false);

		post_recv_of(e, 100);
		say(e, &row[i].h);
		REQUIRE(hear_plain(e, &h));
		REQUIRE_EQ(h.op, RC_TERMINATE);
		CHECK_EQ(term_decode(&h), row[i].code);
		CHECK_EQ(h.term.len, RDMAP_TERM_MIN);
		CHECK(!hear(e, &h));
		CHECK_EQ(state_of(e), IBV_QPS_ERR);
		end_free(e);
	}
}

static void plain_wrong_crc(void)
{
	struct end *e = plain_new(STREAM_FIRST_ANY, true);
	struct rc_frame h = { .op = RC_SEND, .last = true, .msn = 1 };

	post_recv_of(e, 100);
	say(e, &h); /* its CRC is zero */
	REQUIRE(hear_plain(e, &h));
	REQUIRE_EQ(h.op, RC_TERMINATE);
	CHECK_EQ(term_decode(&h), TERM_MPA_CRC);
	end_free(e);
}

static void plain_terminate_comes(void)
{
	struct end *e = plain_new(STREAM_FIRST_ANY, false);
	double limit = now() + PATIENCE_S;
	struct rc_frame h;
	struct ibv_wc wc;

	post(e, IBV_WR_RDMA_READ, 1, 256);
	post_recv_of(e, 100);
	REQUIRE(hear_plain(e, &h));
	term_encode(&h, TERM_RDMAP_BOUNDS, &h);
	say(e, &h);
	REQUIRE(poll_one(e, &wc));
	CHECK(wc.wr_id == 1 && wc.status == IBV_WC_REM_ACCESS_ERR);
	REQUIRE(poll_one(e, &wc));
	CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
	CHECK(!hear(e, &h)); /* no answer but the end */
	shutdown(e->peer, SHUT_WR);
	while (!atomic_load(&e->closed) && now() < limit)
		sched_yield();
	CHECK_EQ(e->closed, 1);
	end_free(e);
}

static void plain_has_no_immediate_and_no_atomics(void)
{
	static const enum ibv_wr_opcode ops_refused[] = {
		IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM,
	};
	struct ibv_sge sge = { (uintptr_t)mem, 8, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 9, .sg_list = &sge, .num_sge = 1,
				  .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD }, *bad;
	struct rc_frame h;
	struct ibv_wc wc;
	struct end *e;

	for (int i = 0; i < 2; i++) {
		e = plain_new(STREAM_FIRST_ANY, false);
		post(e, IBV_WR_SEND, 1, 10);
		post(e, ops_refused[i], 2, 10);
		REQUIRE(poll_one(e, &wc));
		CHECK(wc.wr_id == 1 && wc.status == IBV_WC_SUCCESS);
		REQUIRE(poll_one(e, &wc));
		CHECK(wc.wr_id == 2 && wc.status == IBV_WC_LOC_QP_OP_ERR);
		REQUIRE(hear_plain(e, &h));
		CHECK_EQ(h.op, RC_SEND);
		CHECK(!hear(e, &h));
		end_free(e);
	}
	for (int i = 0; i < 2; i++) {
		e = plain_new(STREAM_FIRST_ANY, false);
		CHECK(!ibv_post_send(e->qp, &wr, &bad));
		REQUIRE(poll_one(e, &wc));
		CHECK(wc.wr_id == 9 && wc.status == IBV_WC_LOC_QP_OP_ERR);
		CHECK(!hear(e, &h));
		end_free(e);
		wr.opcode = IBV_WR_ATOMIC_WRITE;
	}
}

/* RFC 5044 section 7.1: the initiator speaks first, be it with nothing to say. */
static void plain_first_words(void)
{
	struct end *e = plain_new(STREAM_FIRST_SEND, false);
	double limit = now() + PATIENCE_S;
	struct rc_frame h;
	struct ibv_wc wc;

	REQUIRE(hear_plain(e, &h));
	CHECK(h.op == RC_WRITE && h.last && !h.payload);
	end_free(e);

	e = plain_new(STREAM_FIRST_WAIT, false);
	post(e, IBV_WR_SEND, 1, 10);
	for (int i = 0; i < 1000; i++)
		CHECK_EQ(ibv_poll_cq(e->cq, 1, &wc), 0);
	say(e, &h);
	REQUIRE(poll_one(e, &wc));
	CHECK(wc.wr_id == 1 && wc.status == IBV_WC_SUCCESS);
	while (!atomic_load(&e->controls) && now() < limit)
		sched_yield();
	CHECK_EQ(e->controls, 1); /* told as RTU */
	end_free(e);
}

/* siw as initiator asks for no peer-to-peer mode, and waits. */
static void plain_yields_for_a_moment(void)
{
	struct end *e = plain_new(STREAM_FIRST_YIELD, false);
	struct rc_frame h;
	struct ibv_wc wc;

	post(e, IBV_WR_SEND, 1, 10);
	CHECK_EQ(ibv_poll_cq(e->cq, 1, &wc), 0);
	REQUIRE(poll_one(e, &wc));
	CHECK(wc.wr_id == 1 && wc.status == IBV_WC_SUCCESS);
	REQUIRE(hear_plain(e, &h));
	CHECK_EQ(h.op, RC_SEND);
	CHECK_EQ(e->controls, 0);
	end_free(e);
}

/* The peer speaks, and even ends, before our QP is there. */
static void plain_early_words(void)
{
	struct end *e = calloc(1, sizeof(*e));
	struct stream_param p = { .first = STREAM_FIRST_ANY };
	struct rc_frame h = { .op = RC_SEND, .last = true, .msn = 1, .payload = 20 };
	double limit = now() + PATIENCE_S;
	struct ibv_wc wc;
	int fd[2];

	qp_init(e, 16, true);
	gid_of_loopback(&p.remote_gid, 77);
	p.local_qpn = e->qp->qp_num;
	REQUIRE(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd));
	e->peer = fd[0];
	e->s = tcp_open(fd[1], &p, NULL, 0, &ops, e);
	say(e, &h);
	shutdown(e->peer, SHUT_WR);
	while (!atomic_load(&e->closed) && now() < limit)
		sched_yield();
	CHECK_EQ(e->closed, 1);
	post_recv_of(e, 100);
	qp_rtr(e, gid_index(NULL), &p.remote_gid, 0);
	qp_rts(e);
	REQUIRE(poll_one(e, &wc));
	CHECK(wc.status == IBV_WC_SUCCESS && wc.byte_len == 20);
	end_free(e);
}

/* A QP in ERR has no connection in iWARP, whoever else holds the stream. */
static void plain_ends_with_its_qp(void)
{
	struct end *e = plain_new(STREAM_FIRST_ANY, false);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };
	double limit = now() + PATIENCE_S;
	struct rc_frame h;

	CHECK(!ibv_modify_qp(e->qp, &a, IBV_QP_STATE));
	CHECK(!hear(e, &h));
	/* The peer keeps its end open: a second is enough. */
	while (!atomic_load(&e->closed) && now() < limit)
		sched_yield();
	CHECK_EQ(e->closed, 1);
	end_free(e);
}

static void terminate_of_siw(void)
{
	struct rc_frame h = { .op = RC_TERMINATE };

	h.term.len = 24;
	memcpy(h.term.data, "\x21\x02\x03\0", 4); /* layer 1, type 2; M and D */
	CHECK_EQ(term_decode(&h), TERM_DDP_NO_BUFFER);
	CHECK_EQ(term_status(term_decode(&h)), IBV_WC_RNR_RETRY_EXC_ERR);
	memcpy(h.term.data, "\x12\x02\xc0\0", 4); /* as the RFC has it */
	CHECK_EQ(term_decode(&h), TERM_DDP_NO_BUFFER);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	if (!device_open()) {
		ok(false, "device");
		return t_done();
	}
	T_RUN(plain_sends_and_writes);
	T_RUN(plain_write_waits_for_tcp);
	T_RUN(plain_receives);
	T_RUN(plain_reads);
	T_RUN(plain_refusals);
	T_RUN(plain_nonsense);
	T_RUN(plain_wrong_crc);
	T_RUN(plain_terminate_comes);
	T_RUN(plain_has_no_immediate_and_no_atomics);
	T_RUN(plain_first_words);
	T_RUN(plain_yields_for_a_moment);
	T_RUN(plain_early_words);
	T_RUN(plain_ends_with_its_qp);
	T_RUN(terminate_of_siw);
	return t_done();
}
