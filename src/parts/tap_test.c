/* SPDX-License-Identifier: BSD-2-Clause */
/* Frames at the tap (rc/tap.h) against what was posted, on the carrier that ANYRDMA_TRANSPORT
 * names: what one side sends the other receives, payloads add up, and what the carrier
 * carries out itself is told once, by the side that does it.
 *
 * Side 0 posts, side 1 receives; in one process, and then in two. */
#include "base/conf.h"
#include "dev/dev.h"
#include "rc/stream.h"
#include "rc/tap.h"
#include "tests/t.h"

#include <sys/mman.h>
#include <sys/wait.h>

enum {
	REGION = 4 << 20, /* of each side */
	AT = 2 << 20,	  /* where remote operations go */
	DEPTH = 128,
	PATIENCE_MS = 30000,
	MIB = 1 << 20,
};

/* ---- what is counted --------------------------------------------------------------- */

enum { OUT, IN };
enum {
	OPS = 16,
	FRAMES = 0,	     /* by opcode; all but those that were executed */
	LAST = FRAMES + OPS, /* the last ones of their messages */
	BYTES = LAST + OPS,  /* payload */
	CTL = BYTES + OPS,   /* control messages, by type */
	REFERENCES = CTL + CTL_USER + 1,
	EQUAL = REFERENCES + 1, /* what is before it is the same at both ends */
	EXECUTED = EQUAL,	/* by opcode */
	EXECUTED_BYTES = EXECUTED + OPS,
	COUNTS = EXECUTED_BYTES + OPS,
};

struct tally {
	unsigned long long c[2][2][COUNTS]; /* side, direction */
};

/* What the two sides, which may be processes, share. */
static struct shared {
	uint32_t qpn[2];
	union ibv_gid gid;
	uint32_t rkey[2];
	atomic_int ready; /* side 1 has come so far */
	_Atomic unsigned long long c[2][2][COUNTS];
	uint8_t mem[2][REGION];
} * sh;

static void count(int side, int dir, int what, unsigned long long n)
{
	atomic_fetch_add(&sh->c[side][dir][what], n);
}

static void note(const struct stream *s, const struct rc_frame *f, enum rc_way way,
		 int dir)
{
	int side = s->p.local_qpn == sh->qpn[1];
	uint32_t bytes = f->op == RC_READ_REQ ? f->read.size : f->payload;

	if (!side && s->p.local_qpn != sh->qpn[0])
		return; /* of a connection that has ended */
	if (way == RC_EXECUTED) {
		count(side, dir, EXECUTED + (int)f->op, 1);
		count(side, dir, EXECUTED_BYTES + (int)f->op, bytes);
		return;
	}
	if (f->op == RC_CTL)
		count(side, dir, CTL + (int)f->ctl.type, 1);
	if (way == RC_BY_REFERENCE)
		count(side, dir, REFERENCES, 1);
	if (f->last)
		count(side, dir, LAST + (int)f->op, 1);
	count(side, dir, BYTES + (int)f->op, f->payload);
	count(side, dir, FRAMES + (int)f->op, 1); /* at the end: who waits sees all */
}

static void on_out(const struct stream *s, const struct rc_frame *f, enum rc_way way)
{
	note(s, f, way, OUT);
}

static void on_in(const struct stream *s, const struct rc_frame *f, enum rc_way way)
{
	note(s, f, way, IN);
}

static const struct rc_tap listener = { on_out, on_in };

static struct tally tally(void)
{
	struct tally t;

	for (int side = 0; side < 2; side++)
		for (int dir = 0; dir < 2; dir++)
			for (int i = 0; i < COUNTS; i++)
				t.c[side][dir][i] = atomic_load(&sh->c[side][dir][i]);
	return t;
}

/* Another connection: the last frames of the one before need not have arrived. */
static void forget(void)
{
	for (int side = 0; side < 2; side++)
		for (int dir = 0; dir < 2; dir++)
			for (int i = 0; i < COUNTS; i++)
				atomic_store(&sh->c[side][dir][i], 0);
}

/* Every frame that has left has arrived. */
static bool balanced(void)
{
	struct tally t = tally();

	for (int i = 0; i < EQUAL; i++)
		if (t.c[0][OUT][i] != t.c[1][IN][i] || t.c[1][OUT][i] != t.c[0][IN][i])
			return false;
	return true;
}

static void say_imbalance(void)
{
	struct tally t = tally();

	for (int i = 0; i < EQUAL; i++)
		for (int side = 0; side < 2; side++)
			if (t.c[side][OUT][i] != t.c[!side][IN][i])
				diag("side %d, count %d: %llu out, %llu in", side, i,
				     t.c[side][OUT][i], t.c[!side][IN][i]);
}

static struct tally since(const struct tally *before)
{
	struct tally t;

	if (!CHECK(T_WAIT(balanced(), PATIENCE_MS)))
		say_imbalance();
	t = tally();
	for (int side = 0; side < 2; side++)
		for (int dir = 0; dir < 2; dir++)
			for (int i = 0; i < COUNTS; i++)
				t.c[side][dir][i] -= before->c[side][dir][i];
	return t;
}

/* ---- the sides --------------------------------------------------------------------- */

struct side {
	int n;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static bool on_shm; /* else TCP */
static bool one;    /* both sides are in this process */
static struct side side[2];

static bool side_open(struct side *s, int n, enum ibv_qp_type type)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	struct ibv_qp_init_attr init = { .qp_type = type,
					 .cap = { DEPTH, DEPTH, 1, 1, 64 } };
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	*s = (struct side){ .n = n };
	s->ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
	ibv_free_device_list(list);
	s->pd = s->ctx ? ibv_alloc_pd(s->ctx) : NULL;
	s->mr = s->pd ? ibv_reg_mr(s->pd, sh->mem[n], REGION, all) : NULL;
	s->cq = s->mr ? ibv_create_cq(s->ctx, 4 * DEPTH, NULL, NULL, 0) : NULL;
	init.send_cq = init.recv_cq = s->cq;
	s->qp = s->cq ? ibv_create_qp(s->pd, &init) : NULL;
	if (!CHECK(s->qp))
		return false;
	a.qp_access_flags = all & ~IBV_ACCESS_LOCAL_WRITE;
	sh->qpn[n] = s->qp->qp_num;
	sh->rkey[n] = s->mr->rkey;
	return CHECK_EQ(ibv_query_gid(s->ctx, 1, 0, &sh->gid), 0) &&
	       CHECK_EQ(ibv_modify_qp(s->qp, &a,
				      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					      IBV_QP_ACCESS_FLAGS),
			0);
}

static bool side_join(struct side *s)
{
	struct ibv_qp_attr r = { .qp_state = IBV_QPS_RTR,
				 .path_mtu = IBV_MTU_256,
				 .dest_qp_num = sh->qpn[!s->n],
				 .max_dest_rd_atomic = 4,
				 .min_rnr_timer = 12,
				 .ah_attr = {
					 .is_global = 1,
					 .port_num = 1,
					 .grh = { .dgid = sh->gid, .hop_limit = 1 } } };
	struct ibv_qp_attr w = { .qp_state = IBV_QPS_RTS,
				 .timeout = 14,
				 .retry_cnt = 7,
				 .rnr_retry = 7,
				 .max_rd_atomic = 4 };
	int to_rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		     IBV_QP_RQ_PSN;
	int to_rts = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (s->qp->qp_type == IBV_QPT_RC) {
		to_rtr |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		to_rts |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			  IBV_QP_MAX_QP_RD_ATOMIC;
	}
	return CHECK_EQ(ibv_modify_qp(s->qp, &r, to_rtr), 0) &&
	       CHECK_EQ(ibv_modify_qp(s->qp, &w, to_rts), 0);
}

static void side_close(struct side *s)
{
	if (!s->qp)
		return;
	CHECK_EQ(ibv_destroy_qp(s->qp), 0);
	CHECK_EQ(ibv_destroy_cq(s->cq), 0);
	CHECK_EQ(ibv_dereg_mr(s->mr), 0);
	CHECK_EQ(ibv_dealloc_pd(s->pd), 0);
	CHECK_EQ(ibv_close_device(s->ctx), 0);
}

static void post_recv(struct side *s)
{
	struct ibv_sge sge = { (uintptr_t)sh->mem[s->n], AT, s->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK_EQ(ibv_post_recv(s->qp, &wr, &bad), 0);
}

static void post(struct side *s, enum ibv_wr_opcode op, uint32_t len, unsigned flags)
{
	struct ibv_sge sge = { (uintptr_t)sh->mem[s->n], len, s->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = len > 0,
				  .opcode = op,
				  .send_flags = flags },
			   *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)sh->mem[!s->n] + AT;
	wr.wr.rdma.rkey = sh->rkey[!s->n];
	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD || op == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = (uintptr_t)sh->mem[!s->n] + AT;
		wr.wr.atomic.rkey = sh->rkey[!s->n];
	}
	CHECK_EQ(ibv_post_send(s->qp, &wr, &bad), 0);
}

/* The next completion is a success. */
static bool done(struct side *s)
{
	struct ibv_wc wc;

	return CHECK(T_WAIT(ibv_poll_cq(s->cq, 1, &wc) == 1, PATIENCE_MS)) &&
	       CHECK_EQ(wc.status, IBV_WC_SUCCESS);
}

static bool needs_receive(enum ibv_wr_opcode op)
{
	return op == IBV_WR_SEND || op == IBV_WR_SEND_WITH_IMM ||
	       op == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* Carries out one request of side 0, with nothing else under way. What was counted. */
static struct tally one_request(enum ibv_wr_opcode op, uint32_t len)
{
	struct tally before = tally();

	if (one && needs_receive(op))
		post_recv(&side[1]);
	post(&side[0], op, len, IBV_SEND_SIGNALED);
	done(&side[0]);
	if (one && needs_receive(op))
		done(&side[1]);
	return since(&before);
}

/* ---- what is expected -------------------------------------------------------------- */

/* Frames of so much payload; the payload of a frame is at most: */
static unsigned frames_of(uint32_t len)
{
	const uint32_t max = on_shm ? 16 * 1024 : 65504;

	return len ? (len + max - 1) / max : 1;
}

/* The same of a send whose payload, or most of it, the peer fetches. */
static unsigned references_of(uint32_t len)
{
	return len < RC_REFERENCE_MIN  ? 0 :
	       len <= RC_REFERENCE_MAX ? 1 :
					 1 + references_of(len - RC_REFERENCE_MAX);
}

/* Side 0 heard exactly one acknowledgement, or none. */
static void acknowledged(const struct tally *t, unsigned n)
{
	CHECK_EQ(t->c[0][IN][CTL + CTL_ACK], n);
	CHECK_EQ(t->c[0][OUT][CTL + CTL_ACK], 0);
	CHECK_EQ(t->c[0][IN][CTL + CTL_NAK], 0);
}

static const uint32_t sizes[] = { 0,	 1,	     64,	  100,	  4096,	 4097,
				  8191,	 8192,	     16384,	  16385,  65504, 65505,
				  65536, 100 * 1024, 1000 * 1000, 1 << 20 };
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static void check_send(const struct tally *t, uint32_t len)
{
	const unsigned long long *out = t->c[0][OUT];
	unsigned n = references_of(len);

	CHECK_EQ(out[BYTES + RC_SEND], len);
	CHECK_EQ(out[LAST + RC_SEND], 1);
	if (out[REFERENCES]) {
		CHECK_EQ(out[REFERENCES], n);
		CHECK_EQ(out[FRAMES + RC_SEND], n); /* no size leaves a rest */
	} else {
		CHECK_EQ(out[FRAMES + RC_SEND], frames_of(len));
	}
	acknowledged(t, 1);
}

static void sends(void)
{
	unsigned references = 0;

	for (int i = 0; i < SIZES; i++) {
		struct tally t = one_request(IBV_WR_SEND, sizes[i]);

		check_send(&t, sizes[i]);
		references += t.c[0][OUT][REFERENCES] > 0;
	}
	if (!on_shm)
		CHECK_EQ(references, 0);
	else if (one)
		CHECK_EQ(references, 4); /* all from RC_REFERENCE_MIN on */
}

/* A write or read: either executed, of which side 1 hears nothing, or in frames. */
static bool check_one_sided(const struct tally *t, enum rc_op op, uint32_t len)
{
	const unsigned long long *out = t->c[0][OUT];
	enum rc_op data = op == RC_READ_REQ ? RC_READ_RESP : RC_WRITE;
	bool executed = out[EXECUTED + op];

	CHECK_EQ(t->c[1][IN][EXECUTED + op], 0);
	CHECK_EQ(t->c[1][OUT][EXECUTED + op], 0);
	if (executed) {
		CHECK_EQ(out[EXECUTED + op], 1);
		CHECK_EQ(out[EXECUTED_BYTES + op], len);
		CHECK_EQ(out[FRAMES + op], 0);
		CHECK_EQ(t->c[0][IN][FRAMES + data], 0);
		acknowledged(t, 0);
		return true;
	}
	if (op == RC_READ_REQ) {
		CHECK_EQ(out[FRAMES + op], 1);
		CHECK_EQ(t->c[0][IN][BYTES + data], len);
		CHECK_EQ(t->c[0][IN][FRAMES + data], frames_of(len));
		CHECK_EQ(t->c[0][IN][LAST + data], 1);
	} else { /* several are announced by an empty one */
		CHECK_EQ(out[BYTES + op], len);
		CHECK_EQ(out[FRAMES + op], frames_of(len) + (frames_of(len) > 1));
		CHECK_EQ(out[LAST + op], 1);
	}
	acknowledged(t, 1);
	return false;
}

/* Direct access may take a moment to be granted: until then there are frames. */
static bool directly(void)
{
	struct tally t = one_request(IBV_WR_RDMA_WRITE, 100);

	return check_one_sided(&t, RC_WRITE, 100);
}

static void one_sided(enum ibv_wr_opcode wr, enum rc_op op)
{
	bool direct = on_shm &&
		      (one ? CHECK(T_WAIT(directly(), PATIENCE_MS)) : directly());

	for (int i = 0; i < SIZES; i++) {
		struct tally t = one_request(wr, sizes[i]);
		bool executed = check_one_sided(&t, op, sizes[i]);

		if (!on_shm || !sizes[i])
			CHECK(!executed); /* an empty one is always sent */
		else if (direct)
			CHECK(executed);
	}
}

static void writes(void)
{
	one_sided(IBV_WR_RDMA_WRITE, RC_WRITE);
	if (one)
		CHECK(!memcmp(sh->mem[0], sh->mem[1] + AT, MIB));
}

static void reads(void)
{
	one_sided(IBV_WR_RDMA_READ, RC_READ_REQ);
}

static void immediates(void)
{
	for (int i = 0; i < SIZES; i++) {
		struct tally t = one_request(IBV_WR_SEND_WITH_IMM, sizes[i]);
		const unsigned long long *out = t.c[0][OUT];

		check_send(&t, sizes[i]);
		CHECK_EQ(out[FRAMES + RC_IMM], 1);

		t = one_request(IBV_WR_RDMA_WRITE_WITH_IMM, sizes[i]);
		CHECK_EQ(out[FRAMES + RC_IMM], 1);
		acknowledged(&t, 1);
		if (out[EXECUTED +
			RC_WRITE]) { /* the data; an empty write has the rest */
			CHECK(on_shm && sizes[i] >= 8192);
			CHECK_EQ(out[EXECUTED_BYTES + RC_WRITE], sizes[i]);
			CHECK_EQ(out[BYTES + RC_WRITE], 0);
			CHECK_EQ(out[FRAMES + RC_WRITE], 1);
		} else {
			CHECK_EQ(out[BYTES + RC_WRITE], sizes[i]);
		}
		CHECK_EQ(out[LAST + RC_WRITE], 1);
	}
}

static void atomics(void)
{
	static const enum ibv_wr_opcode op[] = { IBV_WR_ATOMIC_FETCH_AND_ADD,
						 IBV_WR_ATOMIC_CMP_AND_SWP,
						 IBV_WR_ATOMIC_WRITE };

	for (int i = 0; i < 3; i++) { /* by the target, on every carrier */
		struct tally t = one_request(op[i], 8);

		CHECK_EQ(t.c[0][OUT][FRAMES + RC_ATOMIC_REQ], 1);
		CHECK_EQ(t.c[0][IN][FRAMES + RC_ATOMIC_RESP], 1);
		acknowledged(&t, 1);
	}
}

/* Everything at once: sums alone are known. */
static void a_chain_of_everything(void)
{
	enum { ROUNDS = 20, LEN = 5000 };
	struct tally before = tally(), t;
	const unsigned long long *out = t.c[0][OUT], *in = t.c[0][IN];

	for (int i = 0; i < ROUNDS; i++) {
		unsigned last = i == ROUNDS - 1 ? IBV_SEND_SIGNALED : 0;

		if (one)
			post_recv(&side[1]);
		post(&side[0], IBV_WR_SEND, LEN, 0);
		post(&side[0], IBV_WR_RDMA_WRITE, LEN, 0);
		post(&side[0], IBV_WR_RDMA_READ, LEN, 0);
		post(&side[0], IBV_WR_ATOMIC_FETCH_AND_ADD, 8, last);
	}
	done(&side[0]);
	for (int i = 0; i < ROUNDS && one; i++)
		done(&side[1]);
	t = since(&before);
	CHECK_EQ(out[BYTES + RC_SEND], ROUNDS * LEN);
	CHECK_EQ(out[LAST + RC_SEND], ROUNDS);
	CHECK_EQ(out[LAST + RC_WRITE] + out[EXECUTED + RC_WRITE], ROUNDS);
	CHECK_EQ(out[BYTES + RC_WRITE] + out[EXECUTED_BYTES + RC_WRITE], ROUNDS * LEN);
	CHECK_EQ(out[FRAMES + RC_READ_REQ] + out[EXECUTED + RC_READ_REQ], ROUNDS);
	CHECK_EQ(in[BYTES + RC_READ_RESP] + out[EXECUTED_BYTES + RC_READ_REQ],
		 ROUNDS * LEN);
	CHECK_EQ(out[FRAMES + RC_ATOMIC_REQ], ROUNDS);
	CHECK_EQ(in[FRAMES + RC_ATOMIC_RESP], ROUNDS);
	CHECK(in[CTL + CTL_ACK] >= 1);
}

/* Takes completions until there have been so many receives and sends on this side. */
static bool have_done(struct side *s, unsigned *got, unsigned recvs, unsigned sent)
{
	struct ibv_wc wc;

	while (got[0] < recvs || got[1] < sent) {
		if (!CHECK(T_WAIT(ibv_poll_cq(s->cq, 1, &wc) == 1, PATIENCE_MS)) ||
		    !CHECK_EQ(wc.status, IBV_WC_SUCCESS))
			return false;
		got[wc.opcode != IBV_WC_RECV]++;
	}
	return true;
}

/* Both sides send: acknowledgements travel with what is sent anyway. */
static void back_and_forth(void)
{
	enum { ROUNDS = 500 };
	struct tally before = tally(), t;
	unsigned got[2][2] = { { 0 } };
	unsigned long long bytes = 0;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint32_t len = 1 + i * 37 % 6000;

		bytes += len;
		for (int n = 0; n < 2; n++) {
			post_recv(&side[!n]);
			post(&side[n], IBV_WR_SEND, len, IBV_SEND_SIGNALED);
			REQUIRE(have_done(&side[!n], got[!n], i + 1, 0));
		}
	}
	for (int n = 0; n < 2; n++)
		REQUIRE(have_done(&side[n], got[n], ROUNDS, ROUNDS));
	t = since(&before);
	for (int n = 0; n < 2; n++) {
		CHECK_EQ(t.c[n][OUT][LAST + RC_SEND], ROUNDS);
		CHECK_EQ(t.c[n][OUT][BYTES + RC_SEND], bytes);
		CHECK(t.c[n][IN][CTL + CTL_ACK] >= 1);
		CHECK(t.c[n][IN][CTL + CTL_ACK] <= ROUNDS);
	}
}

static void nobody_listens(void)
{
	struct tally before = tally(), t;

	rc_tap_set(NULL);
	one_request(IBV_WR_SEND, 100);
	one_request(IBV_WR_RDMA_WRITE, 100000);
	one_request(IBV_WR_RDMA_READ, 100000);
	t = since(&before);
	rc_tap_set(&listener);
	for (int n = 0; n < 2; n++)
		for (int i = 0; i < COUNTS; i++)
			CHECK(!t.c[n][OUT][i] && !t.c[n][IN][i]);
	t = one_request(IBV_WR_SEND, 100);
	check_send(&t, 100);
}

/* ---- in one process ---------------------------------------------------------------- */

static void connects(void)
{
	struct tally before, t;

	one = true;
	forget();
	before = tally();
	REQUIRE(side_open(&side[0], 0, IBV_QPT_RC) && side_open(&side[1], 1, IBV_QPT_RC));
	REQUIRE(side_join(&side[0]) && side_join(&side[1]));
	post_recv(&side[1]);
	post(&side[0], IBV_WR_SEND, 1, IBV_SEND_SIGNALED);
	CHECK(done(&side[0]) && done(&side[1]));
	t = since(&before);
	CHECK_EQ(t.c[0][OUT][CTL + CTL_RESYNC], 1); /* the first request is announced */
	CHECK_EQ(t.c[1][OUT][CTL + CTL_RESYNC], 0);
	CHECK_EQ(t.c[0][OUT][LAST + RC_SEND], 1);
}

static void disconnects(void)
{
	side_close(&side[0]);
	side_close(&side[1]);
}

static void unreliable(void)
{
	struct tally before, t;

	REQUIRE(side_open(&side[0], 0, IBV_QPT_UC) && side_open(&side[1], 1, IBV_QPT_UC));
	forget();
	before = tally();
	REQUIRE(side_join(&side[0]) && side_join(&side[1]));
	for (int i = 0; i < SIZES; i++) {
		post_recv(&side[1]);
		post(&side[0], IBV_WR_RDMA_WRITE, sizes[i], 0);
		post(&side[0], IBV_WR_SEND, sizes[i], IBV_SEND_SIGNALED);
		CHECK(done(&side[0]) && done(&side[1]));
	}
	t = since(&before);
	CHECK_EQ(t.c[0][OUT][LAST + RC_SEND], SIZES);
	CHECK_EQ(t.c[0][OUT][LAST + RC_WRITE], SIZES);
	CHECK_EQ(t.c[0][OUT][BYTES + RC_SEND], t.c[0][OUT][BYTES + RC_WRITE]);
	for (int i = 0; i < EQUAL; i++)
		CHECK_EQ(t.c[0][IN][i], 0); /* nobody answers */
	side_close(&side[0]);
	side_close(&side[1]);
}

/* ---- in two ------------------------------------------------------------------------ */

static pid_t child;
static int go[2]; /* side 1 waits here for the next step */

static bool next_step(void)
{
	char c;

	return read(go[0], &c, 1) == 1;
}

/* Side 1, in a process of its own. */
static void __attribute__((noreturn)) passive(void)
{
	close(go[1]);
	if (!next_step())
		_exit(0); /* the cases are not run */
	rc_tap_set(&listener);
	if (!side_open(&side[1], 1, IBV_QPT_RC))
		_exit(1);
	for (int i = 0; i < DEPTH; i++)
		post_recv(&side[1]);
	atomic_store(&sh->ready, 1);
	if (!next_step() || !side_join(&side[1]))
		_exit(1);
	atomic_store(&sh->ready, 2);
	next_step(); /* the thread does the rest */
	side_close(&side[1]);
	_exit(t_.bad != 0);
}

static void step(int ready)
{
	CHECK_EQ(write(go[1], "", 1), 1);
	CHECK(T_WAIT(atomic_load(&sh->ready) == ready, PATIENCE_MS));
}

static void connects_two_processes(void)
{
	one = false;
	step(1);
	REQUIRE(side_open(&side[0], 0, IBV_QPT_RC));
	forget();
	step(2);
	REQUIRE(side_join(&side[0]));
}

static void disconnects_two_processes(void)
{
	int status = -1;

	close(go[1]);
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(status, 0);
	side_close(&side[0]);
}

/* The same cases, under names of their own. */
static void sends_to_a_process(void)
{
	sends();
}

static void writes_to_a_process(void)
{
	writes();
}

static void reads_from_a_process(void)
{
	reads();
}

static void immediates_to_a_process(void)
{
	immediates();
}

static void atomics_in_a_process(void)
{
	atomics();
}

static void a_chain_to_a_process(void)
{
	a_chain_of_everything();
}

int main(int argc, char **argv)
{
	setenv("ANYRDMA_TRANSPORT", "tcp", 0);
	t_init(argc, argv);
	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		  -1, 0);
	if (sh == MAP_FAILED || pipe(go))
		return 1;
	for (uint32_t i = 0; i < AT; i++)
		sh->mem[0][i] = (uint8_t)(i * 31 + (i >> 9));
	child = fork(); /* before anything of the library runs */
	if (!child)
		passive();
	close(go[0]);
	on_shm = conf_get()->transport == CONF_TRANSPORT_SHM;
	rc_tap_set(&listener);
	T_RUN(connects);
	T_RUN(sends);
	T_RUN(writes);
	T_RUN(reads);
	T_RUN(immediates);
	T_RUN(atomics);
	T_RUN(a_chain_of_everything);
	T_RUN(back_and_forth);
	T_RUN(nobody_listens);
	T_RUN(disconnects);
	T_RUN(unreliable);
	T_RUN(connects_two_processes);
	T_RUN(sends_to_a_process);
	T_RUN(writes_to_a_process);
	T_RUN(reads_from_a_process);
	T_RUN(immediates_to_a_process);
	T_RUN(atomics_in_a_process);
	T_RUN(a_chain_to_a_process);
	T_RUN(disconnects_two_processes);
	return t_done();
}
