/* SPDX-License-Identifier: BSD-2-Clause */
/* Large sends, which the receiver fetches from the sender's memory. The target
 * receives, unless a case says otherwise. */
#include "far.h"
#include "watch.h"

#include <sys/mman.h>

/* LEN: what is fetched at least. */
enum { KIB = 1 << 10, MIB = 1 << 20, BIG = 10 * MIB, LEN = 64 * KIB };

static struct conf_buf big;

static void open_both(int who, unsigned n)
{
	far_open(who, n);
	big = conf_buf(dev.pd, BIG, IBV_ACCESS_LOCAL_WRITE);
}

static void post_send(unsigned i, uint64_t wr_id, struct conf_buf *b, size_t len)
{
	OK(conf_send(far_side[i].qp, wr_id, b, 0, len));
}

static void received(unsigned i, uint64_t wr_id, uint32_t len, uint32_t seed)
{
	struct ibv_wc wc;

	conf_wc_get(far_side[i].cq, wr_id, IBV_WC_SUCCESS, &wc);
	EQ(wc.opcode, IBV_WC_RECV);
	EQ(wc.byte_len, len);
	CHECK(conf_pattern_ok(big.p, len, seed));
	CHECK(len == BIG || conf_is_fill(big.p + len, 0xee, BIG - len));
}

static void post_recv(unsigned i, uint64_t wr_id, size_t len)
{
	memset(big.p, 0xee, BIG);
	OK(conf_recv(far_side[i].qp, wr_id, &big, 0, len));
}

/* ---- what arrives ---------------------------------------------------------------------- */

static const uint32_t lens[] = {
	1,	 16 * KIB, 32 * KIB + 1,  LEN - 1,	 LEN,	      LEN + 1,
	MIB - 1, MIB,	   MIB + 1,	  MIB + LEN - 1, MIB + LEN,   2 * MIB,
	2 * MIB + 5, 5 * MIB + 70001, BIG - 7,
};
enum { LENS = sizeof(lens) / sizeof(lens[0]) };

static void target_of_sizes(struct peer *me, void *arg)
{
	(void)arg;
	open_both(1, 1);
	for (unsigned i = 0; i < 2 * LENS; i++) {
		post_recv(0, i, BIG);
		peer_say(me, 'p');
		received(0, i, lens[i % LENS], i);
	}
	peer_hear(me, 'x');
}

static void all_sizes(void)
{
	struct peer t = far_start(target_of_sizes, NULL);

	open_both(0, 1);
	for (unsigned i = 0; i < 2 * LENS; i++) {
		conf_pattern(big.p, lens[i % LENS], i);
		peer_hear(&t, 'p');
		post_send(0, i, &big, lens[i % LENS]);
		conf_wc_ok(far_side[0].cq, i);
	}
	far_end(&t);
}

/* Entries of both sides that end nowhere together, of several regions. */
static const uint32_t from[][4] = {
	{ 50001, 0, 17, 90000 }, { 1, 1, 1, 140000 }, { 50001, 50001, 50001, 3 },
	{ MIB - 1, 2, MIB + 7, 65536 }, { 3 * MIB, 1, 0, 1 }, { 4096, 8191, 50000, 4096 },
};
static const uint32_t to[][4] = {
	{ 1, 33333, 7, 1 }, { 99999, 2, 1, 1 }, { 0, 65537, 0, 5 }, { MIB, 1, 4095, 1 },
};
enum { FROM = sizeof(from) / sizeof(from[0]), TO = sizeof(to) / sizeof(to[0]) };

static uint32_t sum(const uint32_t *v)
{
	return v[0] + v[1] + v[2] + v[3];
}

static void target_of_lists(struct peer *me, void *arg)
{
	(void)arg;
	open_both(1, 1);
	for (unsigned i = 0; i < FROM * TO; i++) {
		const uint32_t *v = to[i % TO];
		uint32_t len = sum(from[i / TO]), at = 0;
		struct ibv_sge sge[4];
		struct ibv_recv_wr wr = { .wr_id = i, .sg_list = sge, .num_sge = 4 }, *bad;

		for (unsigned k = 0; k < 4; at += sge[k++].length)
			sge[k] = conf_sge(&big, at, k < 3 ? v[k] : BIG - at);
		memset(big.p, 0xee, BIG);
		EQ(ibv_post_recv(far_side[0].qp, &wr, &bad), 0);
		peer_say(me, 'p');
		received(0, i, len, i);
	}
	peer_hear(me, 'x');
}

static void all_lists(void)
{
	struct peer t = far_start(target_of_lists, NULL);
	struct ibv_mr *mr[2];

	open_both(0, 1);
	for (unsigned k = 0; k < 2; k++)
		MUST(mr[k] = ibv_reg_mr(dev.pd, big.p, BIG, k ? 0 : CONF_RW));
	for (unsigned i = 0; i < FROM * TO; i++) {
		const uint32_t *v = from[i / TO];
		struct ibv_sge sge[4];
		struct ibv_send_wr wr = conf_wr(i, IBV_WR_SEND, sge, 4);
		uint32_t at = 0;

		conf_pattern(big.p, sum(v), i);
		for (unsigned k = 0; k < 4; at += v[k++]) {
			sge[k] = conf_sge(&big, at, v[k]);
			sge[k].lkey = k % 3 == 2 ? sge[k].lkey : mr[k % 3]->lkey;
		}
		peer_hear(&t, 'p');
		OK(conf_post(far_side[0].qp, &wr));
		conf_wc_ok(far_side[0].cq, i);
	}
	EQ(ibv_dereg_mr(mr[0]), 0);
	EQ(ibv_dereg_mr(mr[1]), 0);
	far_end(&t);
}

/* Immediate data, a key to invalidate, and small ones in between: all in order. */
static void target_of_kinds(struct peer *me, void *arg)
{
	struct far_window w;
	struct ibv_wc wc;

	(void)arg;
	open_both(1, 1);
	w = far_window_bind();
	for (unsigned i = 0; i < 4; i++)
		OK(conf_recv(far_side[0].qp, i, &big, (size_t)i * 2 * MIB, 2 * MIB));
	peer_say(me, 'r');
	for (unsigned i = 0; i < 4; i++) {
		conf_wc_get(far_side[0].cq, i, IBV_WC_SUCCESS, &wc);
		EQ(wc.byte_len, i % 2 ? 100 : MIB + LEN);
		CHECK(conf_pattern_ok(big.p + (size_t)i * 2 * MIB, wc.byte_len, 7));
		EQ(!!(wc.wc_flags & IBV_WC_WITH_IMM), i == 0);
		EQ(!!(wc.wc_flags & IBV_WC_WITH_INV), i == 2);
		if (i == 0)
			EQ(ntohl(wc.imm_data), 0x1234);
		if (i == 2)
			EQ(wc.invalidated_rkey, board->rkey[0]);
	}
	peer_hear(me, 'x');
	far_window_free(&w);
}

static void all_kinds(void)
{
	static const int op[] = { IBV_WR_SEND_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_INV,
				  IBV_WR_SEND };
	struct peer t = far_start(target_of_kinds, NULL);

	open_both(0, 1);
	peer_hear(&t, 'r');
	conf_pattern(big.p, 2 * MIB, 7);
	for (unsigned i = 0; i < 4; i++) {
		struct ibv_sge sge = conf_sge(&big, 0, i % 2 ? 100 : MIB + LEN);
		struct ibv_send_wr wr = conf_wr(i, op[i], &sge, 1);

		if (i == 0)
			wr.imm_data = htonl(0x1234);
		if (i == 2)
			wr.invalidate_rkey = board->rkey[0];
		OK(conf_post(far_side[0].qp, &wr));
	}
	for (unsigned i = 0; i < 4; i++)
		conf_wc_ok(far_side[0].cq, i);
	far_do(0, IBV_WR_RDMA_WRITE, 0, 8, IBV_WC_REM_ACCESS_ERR);
	far_end(&t);
}

/* ---- which way ------------------------------------------------------------------------- */

enum way { BY_PID, FILTERED, FILTERED_LATER };

static void target_of_two(struct peer *me, void *arg)
{
	enum way way = *(enum way *)arg;

	if (way == FILTERED)
		far_forbid_process_vm(EPERM);
	open_both(1, 1);
	if (way == FILTERED_LATER)
		far_forbid_process_vm(ENOSYS);
	for (unsigned i = 0; i < 2; i++) {
		post_recv(0, i, BIG);
		peer_say(me, 'r');
		received(0, i, LEN, peer_hear_u32(me));
	}
	peer_hear(me, 'x');
}

/* What is in the memory when the receiver gets to it arrives, not what was there when it
 * was posted: nobody has copied it before. If it is not fetched, it is the other way
 * round, as it fits the ring. */
static void which(enum way way, bool fetched)
{
	struct peer t = far_start(target_of_two, &way);

	open_both(0, 1);
	for (unsigned i = 0; i < 2; i++) {
		peer_hear(&t, 'r');
		conf_pattern(big.p, LEN, 10 + i);
		peer_stop(&t);
		post_send(0, i, &big, LEN);
		conf_settle(); /* the library's thread may have been asked to copy it */
		conf_pattern(big.p, LEN, 20 + i);
		peer_go_on(&t);
		conf_wc_ok(far_side[0].cq, i);
		peer_say_u32(&t, (fetched ? 20 : 10) + i);
	}
	far_end(&t);
}

static void fetched(void)
{
	which(BY_PID, true);
}

static void fetched_by_descriptor(void)
{
	setenv("ANYRDMA_DIRECT", "mem", 1);
	which(BY_PID, true);
}

static void fetched_without_process_vm(void)
{
	which(FILTERED, true);
}

static void process_vm_forbidden_later(void)
{
	which(FILTERED_LATER, true);
}

static void switched_off(void)
{
	setenv("ANYRDMA_DIRECT", "off", 1);
	which(BY_PID, false);
}

/* ---- receives -------------------------------------------------------------------------- */

static void target_is_late(struct peer *me, void *arg)
{
	(void)arg;
	open_both(1, 1);
	for (unsigned i = 0; i < 3; i++) {
		peer_hear(me, 'p');
		post_recv(0, i, BIG);
		received(0, i, 2 * MIB + i, i);
		peer_say(me, 'y');
	}
}

static void receive_comes_late(void)
{
	struct peer t = far_start(target_is_late, NULL);

	open_both(0, 1);
	for (unsigned i = 0; i < 3; i++) {
		conf_pattern(big.p, 2 * MIB + i, i);
		post_send(0, i, &big, 2 * MIB + i);
		conf_wc_none(far_side[0].cq, 50);
		peer_say(&t, 'p');
		conf_wc_ok(far_side[0].cq, i);
		peer_hear(&t, 'y');
	}
	peer_end(&t);
}

static const struct {
	uint32_t has, gets;
} small[] = { { 50000, LEN }, { LEN - 1, LEN }, { MIB + 5, 2 * MIB }, { 10, MIB } };
enum { SMALL = sizeof(small) / sizeof(small[0]) };

static void target_is_small(struct peer *me, void *arg)
{
	(void)arg;
	open_both(1, SMALL);
	memset(big.p, 0xee, BIG);
	for (unsigned i = 0; i < SMALL; i++)
		OK(conf_recv(far_side[i].qp, i, &big, 0, small[i].has));
	peer_say(me, 'r');
	for (unsigned i = 0; i < SMALL; i++)
		conf_wc_is(far_side[i].cq, i, IBV_WC_LOC_LEN_ERR);
	CHECK(conf_is_fill(big.p + MIB + 5, 0xee, BIG - MIB - 5));
	peer_hear(me, 'x');
}

static void receive_is_small(void)
{
	struct peer t = far_start(target_is_small, NULL);

	open_both(0, SMALL);
	peer_hear(&t, 'r');
	for (unsigned i = 0; i < SMALL; i++) {
		post_send(i, i, &big, small[i].gets);
		conf_wc_is(far_side[i].cq, i, IBV_WC_REM_INV_REQ_ERR);
	}
	far_end(&t);
}

/* The receiver's own memory is gone. */
static void target_without_memory(struct peer *me, void *arg)
{
	struct conf_buf gone;

	(void)arg;
	open_both(1, 2);
	gone = conf_buf(dev.pd, MIB, IBV_ACCESS_LOCAL_WRITE);
	OK(conf_recv(far_side[0].qp, 0, &gone, 0, MIB));
	EQ(ibv_dereg_mr(gone.mr), 0);
	gone.mr = ibv_reg_mr(dev.pd, gone.p, MIB, IBV_ACCESS_LOCAL_WRITE);
	OK(conf_recv(far_side[1].qp, 1, &gone, 0, MIB));
	munmap(gone.p, MIB);
	peer_say(me, 'r');
	conf_wc_is(far_side[0].cq, 0, IBV_WC_LOC_PROT_ERR);
	conf_wc_is(far_side[1].cq, 1, IBV_WC_LOC_PROT_ERR);
	peer_hear(me, 'x');
}

static void receive_has_no_memory(void)
{
	struct peer t;

#ifdef CONF_SANITIZER
	SKIP("a sanitizer has the handler that would see the fault");
#endif
	t = far_start(target_without_memory, NULL);
	open_both(0, 2);
	peer_hear(&t, 'r');
	for (unsigned i = 0; i < 2; i++) {
		post_send(i, i, &big, LEN);
		conf_wc_is(far_side[i].cq, i, IBV_WC_REM_OP_ERR);
	}
	far_end(&t);
}

/* ---- the source goes -------------------------------------------------------------------- */

static void target_gets_nothing(struct peer *me, void *arg)
{
	(void)arg;
	open_both(1, 2);
	post_recv(0, 1, BIG);
	peer_say(me, 'r');
	peer_hear(me, 'n');
	conf_wc_none(far_side[0].cq, CONF_QUIET);
	CHECK(conf_is_fill(big.p, 0xee, BIG));
	post_recv(1, 2, BIG);
	peer_say(me, 'p');
	received(1, 2, LEN, 6);
	peer_hear(me, 'x');
}

/* Before the receiver gets to it; `take` must not wait for a process that does not run. */
static void source_goes(void (*take)(struct conf_buf *b), bool for_good)
{
	struct peer t = far_start(target_gets_nothing, NULL);
	struct conf_buf b;

	open_both(0, 2);
	b.len = MIB;
	b.p = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(b.p != MAP_FAILED);
	MUST(b.mr = ibv_reg_mr(dev.pd, b.p, MIB, 0));
	peer_hear(&t, 'r');
	peer_stop(&t);
	post_send(0, 1, &b, LEN);
	take(&b);
	peer_go_on(&t);
	conf_wc_is(far_side[0].cq, 1, IBV_WC_LOC_PROT_ERR);
	peer_say(&t, 'n');
	peer_hear(&t, 'p');
	conf_pattern(big.p, LEN, 6);
	post_send(1, 2, &big, LEN); /* others go on */
	conf_wc_ok(far_side[1].cq, 2);
	if (!for_good)
		EQ(ibv_dereg_mr(b.mr), 0);
	far_end(&t);
}

static void deregister(struct conf_buf *b)
{
	EQ(ibv_dereg_mr(b->mr), 0);
}

static void reregister(struct conf_buf *b)
{
	EQ(ibv_rereg_mr(b->mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, b->p, MIB, 0), 0);
}

static void unmap(struct conf_buf *b)
{
	OK(munmap(b->p, MIB));
}

static void deregistered(void)
{
	source_goes(deregister, true);
}

static void reregistered(void)
{
	source_goes(reregister, false);
}

static void unmapped(void)
{
#ifdef CONF_SANITIZER
	SKIP("a sanitizer has the handler that would see the fault");
#endif
	source_goes(unmap, false);
}

static void target_receives_all(struct peer *me, void *arg)
{
	struct ibv_wc wc;

	(void)arg;
	open_both(1, 1);
	for (unsigned i = 0; i < 4; i++)
		OK(conf_recv(far_side[0].qp, i, &big, 0, BIG));
	peer_say(me, 'r');
	for (unsigned i = 0;; i++) {
		conf_wc_get(far_side[0].cq, i, IBV_WC_SUCCESS, &wc);
		atomic_fetch_add(&board->word[0], 1);
		OK(conf_recv(far_side[0].qp, i + 4, &big, 0, BIG));
	}
}

static void *sends_on(void *arg)
{
	struct ibv_sge sge = conf_sge(&far_side[0].b, 0, MIB);
	struct ibv_send_wr wr = conf_wr(1, IBV_WR_SEND, &sge, 1);
	struct ibv_wc wc;

	(void)arg;
	do {
		OK(conf_post(far_side[0].qp, &wr));
		conf_wc(far_side[0].cq, &wc);
	} while (wc.status == IBV_WC_SUCCESS);
	EQ(wc.status, IBV_WC_LOC_PROT_ERR);
	return NULL;
}

/* A receiver that is stopped in the middle of a copy, perhaps. */
static void receiver_is_stopped(void)
{
	struct peer t = far_start(target_receives_all, NULL);
	pthread_t sender, thread;

	open_both(0, 1);
	peer_hear(&t, 'r');
	sender = conf_thread(sends_on, NULL);
	WAIT_FOR(atomic_load(&board->word[0]) > 10);
	peer_stop(&t);
	thread = far_dereg(far_side[0].b.mr);
	WAIT_FOR(far_dereg_stands());
	peer_go_on(&t);
	conf_join(thread);
	conf_join(sender);
	peer_kill(&t);
}

/* ---- the sender goes --------------------------------------------------------------------- */

enum { HAMMER = 24, RECVS = 4 };

/* Of one QP: takes a completion, if there is one; true if it was a receive's success. */
static bool took_one(unsigned i, unsigned *out)
{
	struct ibv_wc wc;

	if (ibv_poll_cq(far_side[i].cq, 1, &wc) != 1)
		return false;
	--*out;
	if (wc.status != IBV_WC_SUCCESS || wc.wr_id >= RECVS)
		return false;
	EQ(wc.byte_len, MIB + LEN);
	CHECK(conf_is_fill(big.p + wc.wr_id * 2 * MIB, 0x11, MIB + LEN));
	atomic_fetch_add(&board->word[15], 1);
	return true;
}

/* A request that its peer's QP does not survive. */
static void post_bad(unsigned i)
{
	struct ibv_sge sge = conf_sge(&far_side[i].b, 0, 8);
	struct ibv_send_wr wr = conf_rdma(RECVS, IBV_WR_RDMA_WRITE, &sge, 1, NULL, 1);

	OK(conf_post(far_side[i].qp, &wr));
}

/* Whatever is received is whole, and what was sent. */
static void target_checks_all(struct peer *me, void *arg)
{
	bool bad = *(bool *)arg;

	open_both(1, HAMMER);
	for (unsigned i = 0; i < HAMMER; i++) {
		bool first = true;
		unsigned out = RECVS;

		for (unsigned k = 0; k < RECVS; k++)
			OK(conf_recv(far_side[i].qp, k, &big, k * 2 * MIB, 2 * MIB));
		peer_say(me, 'r');
		while (!atomic_load(&board->word[i % 15])) {
			if (!took_one(i, &out) || !bad || !first)
				continue;
			post_bad(i);
			out++;
			first = false;
		}
		atomic_store(&board->word[i % 15], 0);
		EQ(to_state(&far_side[i], IBV_QPS_ERR), 0);
		WAIT_FOR(took_one(i, &out) || !out);
		while (out)
			took_one(i, &out);
	}
	peer_hear(me, 'x');
}

/* From the end, as who copies comes from the beginning. */
static void overwrite(void)
{
	for (size_t at = 2 * MIB; at; at -= LEN)
		memset(big.p + at - LEN, 0x22, LEN);
}

/* An application may do with the memory what it likes once it has heard that its sends
 * are over; the receiver may be in the middle of a copy. */
static void sends_end(bool by_peer)
{
	struct peer t = far_start(target_checks_all, &by_peer);
	struct ibv_wc wc;
	uint64_t n;

	open_both(0, HAMMER);
	for (unsigned i = 0; i < HAMMER; i++) {
		peer_hear(&t, 'r');
		memset(big.p, 0x11, 2 * MIB);
		n = atomic_load(&board->word[15]);
		for (unsigned k = 0; k < RECVS; k++)
			post_send(i, k, &big, MIB + LEN);
		if (!by_peer) {
			WAIT_FOR(atomic_load(&board->word[15]) > n);
			EQ(to_state(&far_side[i], IBV_QPS_ERR), 0);
			overwrite();
		}
		for (unsigned k = 0; k < RECVS; k++) {
			conf_wc(far_side[i].cq, &wc);
			if (wc.status)
				overwrite();
		}
		atomic_store(&board->word[i % 15], 1);
	}
	far_end(&t);
}

static void flushed_while_fetched(void)
{
	sends_end(false);
}

static void failed_while_fetched(void)
{
	sends_end(true);
}

enum { HUGE = 64 * MIB };

static void sends_for_ever(struct peer *me, void *arg)
{
	struct conf_buf b;

	(void)me;
	(void)arg;
	far_open(0, 1);
	b = conf_buf(dev.pd, HUGE, IBV_ACCESS_LOCAL_WRITE);
	memset(b.p, 0x11, HUGE);
	for (;;) {
		post_send(0, 1, &b, HUGE);
		conf_wc_ok(far_side[0].cq, 1);
	}
}

static void sender_is_killed(void)
{
	struct peer t = far_start(sends_for_ever, NULL);
	struct conf_buf b;
	struct ibv_wc wc;

	far_open(1, 1);
	b = conf_buf(dev.pd, HUGE, IBV_ACCESS_LOCAL_WRITE);
	for (unsigned i = 0; i < 2; i++) {
		memset(b.p, 0, HUGE);
		OK(conf_recv(far_side[0].qp, i, &b, 0, HUGE));
		conf_wc_get(far_side[0].cq, i, IBV_WC_SUCCESS, &wc);
		EQ(wc.byte_len, HUGE);
		CHECK(conf_is_fill(b.p, 0x11, HUGE));
	}
	memset(b.p, 0, HUGE);
	OK(conf_recv(far_side[0].qp, 2, &b, 0, HUGE));
	WAIT_FOR(watch_byte(b.p + 3 * MIB));
	peer_kill(&t);
	conf_settle();
	if (ibv_poll_cq(far_side[0].cq, 1, &wc) == 1) { /* the copy was faster: it is whole */
		EQ(wc.wr_id, 2);
		EQ(wc.status, IBV_WC_SUCCESS);
		CHECK(conf_is_fill(b.p, 0x11, HUGE));
	} else {
		conf_wc_none(far_side[0].cq, CONF_QUIET);
		EQ(to_state(&far_side[0], IBV_QPS_ERR), 0);
		conf_wc_is(far_side[0].cq, 2, IBV_WC_WR_FLUSH_ERR);
	}
	conf_buf_free(&b);
	side_free(&far_side[0]);
}

/* ---- nothing more is allowed than was ------------------------------------------------------- */

static void target_with_local_memory(struct peer *me, void *arg)
{
	(void)arg;
	open_both(1, 2);
	for (unsigned i = 0; i < 2; i++) {
		board->addr[i] = (uintptr_t)big.p;
		board->rkey[i] = big.mr->lkey;
	}
	memset(big.p, 0xee, BIG);
	peer_say(me, 'r');
	peer_hear(me, 'x');
	CHECK(conf_is_fill(big.p, 0xee, BIG));
}

/* A region that others find in the table is not theirs to read. */
static void no_remote_rights(void)
{
	struct peer t = far_start(target_with_local_memory, NULL);

	open_both(0, 2);
	peer_hear(&t, 'r');
	far_do(0, IBV_WR_RDMA_READ, 0, LEN, IBV_WC_REM_ACCESS_ERR);
	far_do(1, IBV_WR_RDMA_WRITE, 0, LEN, IBV_WC_REM_ACCESS_ERR);
	far_end(&t);
}

static const struct conf_case cases[] = {
	LONG_CASE(all_sizes, 60),
	LONG_CASE(all_lists, 60),
	CASE(all_kinds),
	CASE(fetched),
	CASE(fetched_by_descriptor),
	CASE(fetched_without_process_vm),
	CASE(process_vm_forbidden_later),
	CASE(switched_off),
	CASE(receive_comes_late),
	CASE(receive_is_small),
	CASE(receive_has_no_memory),
	CASE(deregistered),
	CASE(reregistered),
	CASE(unmapped),
	CASE(receiver_is_stopped),
	LONG_CASE(flushed_while_fetched, 60),
	LONG_CASE(failed_while_fetched, 60),
	LONG_CASE(sender_is_killed, 60),
	CASE(no_remote_rights),
};

CONF_MAIN(cases)
