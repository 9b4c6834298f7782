/* SPDX-License-Identifier: BSD-2-Clause */
/* Direct access: RDMA writes and reads that the initiator carries out on the target's
 * memory itself, without a message to the target. */
#include "far.h"
#include "watch.h"

#include <sys/mman.h>
#include <sys/uio.h>

enum { MIB = 1 << 20, BIG = 9 * MIB };

/* ---- targets that do nothing ------------------------------------------------------- */

static void target_checks(struct peer *me, void *arg)
{
	struct conf_buf big;
	uint32_t seed;

	(void)arg;
	far_open(1, 1);
	big = conf_buf(dev.pd, BIG, CONF_RW);
	board->addr[1] = (uintptr_t)big.p;
	board->rkey[1] = big.mr->rkey;
	far_meet();
	conf_pattern(far_side[0].b.p + MIB / 2, MIB / 2, 99);
	peer_say(me, 'r');
	while ((seed = peer_hear_u32(me))) {
		uint32_t off = peer_hear_u32(me), len = peer_hear_u32(me);
		const uint8_t *p = off == UINT32_MAX ? big.p : far_side[0].b.p + off;

		peer_say(me, conf_pattern_ok(p, len, seed) ? 'y' : 'n');
	}
	conf_buf_free(&big);
}

static void ask(struct peer *t, uint32_t seed, uint32_t off, uint32_t len)
{
	peer_go_on(t);
	peer_say_u32(t, seed);
	peer_say_u32(t, off);
	peer_say_u32(t, len);
	peer_hear(t, 'y');
	peer_stop(t);
}

static void written(struct peer *t, uint32_t off, uint32_t len)
{
	uint32_t seed = off + len;

	conf_pattern(far_side[0].b.p + off, len, seed);
	far_do(0, IBV_WR_RDMA_WRITE, off, len, IBV_WC_SUCCESS);
	ask(t, seed, off, len);
}

/* Not one of its threads runs. */
static void target_is_stopped(void)
{
	static const uint32_t lens[] = { 1,    8,     63,    64,    65,	   100,	  129,
					 4096, 10000, 24575, 24576, 70000, MIB / 2 - 61 };
	struct peer t = far_start(target_checks, NULL);

	far_open(0, 1);
	far_meet();
	peer_hear(&t, 'r');
	peer_stop(&t);
	for (unsigned i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		written(&t, 0, lens[i]);
		written(&t, 61, lens[i]); /* the end is in the middle of a line */
	}
	far_do(0, IBV_WR_RDMA_READ, MIB / 2, MIB / 2, IBV_WC_SUCCESS);
	CHECK(conf_pattern_ok(far_side[0].b.p + MIB / 2, MIB / 2, 99));
	peer_go_on(&t);
	peer_say_u32(&t, 0);
	peer_end(&t);
}

/* The first memory of all is registered when everything is connected. */
static void target_registers_late(struct peer *me, void *arg)
{
	struct ibv_mr *mr;
	uint8_t *p;

	(void)arg;
	far_open(1, 1);
	MUST(p = aligned_alloc(4096, MIB));
	MUST(mr = ibv_reg_mr(dev.pd, p, MIB, CONF_RW));
	board->addr[0] = (uintptr_t)p;
	board->rkey[0] = mr->rkey;
	peer_say(me, 'r');
	peer_hear(me, 'x');
	EQ(ibv_dereg_mr(mr), 0);
	free(p);
}

/* Once the target says that it is ready it is not needed for a write. */
static void written_without(void (*target)(struct peer *me, void *arg))
{
	struct peer t = far_start(target, NULL);

	far_open(0, 1);
	peer_hear(&t, 'r');
	peer_stop(&t);
	far_do(0, IBV_WR_RDMA_WRITE, 0, MIB, IBV_WC_SUCCESS);
	peer_go_on(&t);
	far_end(&t);
}

static void memory_comes_late(void)
{
	far_bare = true;
	written_without(target_registers_late);
}

/* A target that never sends need not be able to. Of the first request it hears
 * (COMM_EST). */
static void target_in_rtr(struct peer *me, void *arg)
{
	struct ibv_async_event ev;

	(void)arg;
	far_open(1, 1);
	EQ(conf_qp_state(far_side[0].qp), IBV_QPS_RTR);
	OK(ibv_get_async_event(dev.ctx, &ev));
	EQ(ev.event_type, IBV_EVENT_COMM_EST);
	ibv_ack_async_event(&ev);
	peer_say(me, 'e');
	peer_hear(me, 'x');
	EQ(conf_readable(dev.ctx->async_fd), 0);
}

static void target_only_receives(void)
{
	struct peer t;

	far_rtr = true;
	t = far_start(target_in_rtr, NULL);
	far_open(0, 1);
	peer_hear(&t, 'e');
	peer_stop(&t);
	for (uint64_t i = 0; i < 16; i++)
		far_post(0, i % 3 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, i, 4096 * i, 4096);
	for (uint64_t i = 0; i < 16; i++)
		conf_wc_ok(far_side[0].cq, i);
	peer_go_on(&t);
	far_end(&t);
}

/* Several entries, inline data, and more than one turn. */
static void all_sorts_of_requests(void)
{
	struct peer t = far_start(target_checks, NULL);
	struct ibv_send_wr wr;
	struct ibv_sge sge[4];
	struct conf_buf big;

	far_open(0, 1);
	far_meet();
	peer_hear(&t, 'r');
	peer_stop(&t);
	conf_pattern(far_side[0].b.p, 1000, 5);
	for (size_t i = 0, at = 0; i < 4; at += sge[i++].length)
		sge[i] = conf_sge(&far_side[0].b, at, (size_t[]){ 1, 700, 290, 9 }[i]);
	wr = conf_rdma(1, IBV_WR_RDMA_WRITE, sge, 4, (void *)(uintptr_t)board->addr[0],
		       board->rkey[0]);
	OK(conf_post(far_side[0].qp, &wr));
	conf_wc_ok(far_side[0].cq, 1);
	ask(&t, 5, 0, 1000);
	big = conf_buf(dev.pd, BIG, CONF_RW);
	conf_pattern(big.p, BIG, 6);
	sge[0] = conf_sge(&big, 0, BIG);
	wr = conf_rdma(2, IBV_WR_RDMA_WRITE, sge, 1, (void *)(uintptr_t)board->addr[1],
		       board->rkey[1]);
	OK(conf_post(far_side[0].qp, &wr));
	conf_wc_ok(far_side[0].cq, 2);
	ask(&t, 6, UINT32_MAX, BIG);
	memset(big.p, 0, BIG);
	wr.opcode = IBV_WR_RDMA_READ;
	OK(conf_post(far_side[0].qp, &wr));
	conf_wc_ok(far_side[0].cq, 2);
	CHECK(conf_pattern_ok(big.p, BIG, 6));
	conf_buf_free(&big);
	peer_go_on(&t);
	peer_say_u32(&t, 0);
	peer_end(&t);
}

/* The data is there before the target has heard of it; the receive comes late. */
static void target_of_immediate(struct peer *me, void *arg)
{
	struct ibv_wc wc;

	(void)arg;
	far_open(1, 1);
	peer_say(me, 'r');
	for (unsigned i = 0; i < 3; i++) {
		peer_hear(me, 'p');
		OK(conf_recv(far_side[0].qp, i, &far_side[0].b, 0, 0));
		conf_wc_get(far_side[0].cq, i, IBV_WC_SUCCESS, &wc);
		EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
		EQ(wc.byte_len, MIB - i);
		EQ(ntohl(wc.imm_data), 1000 + i);
		CHECK(conf_pattern_ok(far_side[0].b.p, MIB - i, i));
		peer_say(me, 'y');
	}
}

static void data_of_immediate(void)
{
	struct peer t = far_start(target_of_immediate, NULL);
	uint8_t *copy = malloc(MIB);

	far_open(0, 1);
	far_need_process_vm(&t);
	peer_hear(&t, 'r');
	for (unsigned i = 0; i < 3; i++) {
		struct ibv_sge sge = conf_sge(&far_side[0].b, 0, MIB - i);
		struct iovec here = { copy, MIB - i };
		struct iovec there = { (void *)(uintptr_t)board->addr[0], MIB - i };
		struct ibv_send_wr wr = conf_rdma(7, IBV_WR_RDMA_WRITE_WITH_IMM, &sge, 1,
						  there.iov_base, board->rkey[0]);

		wr.imm_data = htonl(1000 + i);
		conf_pattern(far_side[0].b.p, MIB - i, i);
		peer_stop(&t);
		OK(conf_post(far_side[0].qp, &wr));
		WAIT_FOR(process_vm_readv(t.pid, &here, 1, &there, 1, 0) == MIB - i &&
			 conf_pattern_ok(copy, MIB - i, i));
		peer_go_on(&t);
		conf_wc_none(far_side[0].cq, 50); /* receiver not ready */
		peer_say(&t, 'p');
		conf_wc_ok(far_side[0].cq, 7);
		peer_hear(&t, 'y');
	}
	peer_end(&t);
	free(copy);
}

/* What was sent before and is not answered is not overtaken. */
static void target_sends_in_order(struct peer *me, void *arg)
{
	uint8_t *flag;

	(void)arg;
	far_open(1, 1);
	flag = far_side[0].b.p + 100;
	*flag = 0;
	peer_say(me, 'r');
	peer_hear(me, 'g');
	EQ(watch_byte(flag), 0); /* the receive is not posted yet: neither is there */
	OK(conf_recv(far_side[0].qp, 5, &far_side[0].b, 4096, 4096));
	conf_wc_ok(far_side[0].cq, 5);
	WAIT_FOR(watch_byte(flag) == 1);
	peer_hear(me, 'x');
}

static void no_overtaking(void)
{
	struct peer t = far_start(target_sends_in_order, NULL);

	far_open(0, 1);
	peer_hear(&t, 'r');
	OK(conf_send(far_side[0].qp, 1, &far_side[0].b, 0, 64));
	far_side[0].b.p[100] = 1;
	far_post(0, IBV_WR_RDMA_WRITE, 2, 100, 1);
	conf_wc_none(far_side[0].cq, CONF_QUIET);
	peer_say(&t, 'g');
	conf_wc_ok(far_side[0].cq, 1);
	conf_wc_ok(far_side[0].cq, 2);
	far_end(&t);
}

/* ---- the last byte ------------------------------------------------------------------- */

enum { ROUNDS = 1000 * 1000, LAST = 2048, LINE = 64 };

/* Spins on the last byte and never calls the library. Each round has another value,
 * so everything before it must have it too. */
static void target_spins(struct peer *me, void *arg)
{
	uint32_t shift = *(uint32_t *)arg;
	uint8_t seen[LAST / LINE];
	uint8_t *p;
	unsigned bad = 0;

	far_open(1, 1);
	p = far_side[0].b.p + shift;
	memset(p, 0, LAST);
	far_meet();
	for (unsigned r = 1; !atomic_load(&board->word[1]); r++) {
		uint8_t v = (uint8_t)(r % 251 + 1);

		while (watch_byte(p + LAST - 1) != v && !atomic_load(&board->word[1]))
			AT("spinning on the last byte");
		if (watch_byte(p + LAST - 1) != v)
			break;
		atomic_thread_fence(memory_order_acquire);
		for (unsigned i = LAST; i; i -= LINE) /* at once: what is late comes soon */
			seen[i / LINE - 1] = watch_byte(p + i - LINE);
		for (unsigned i = 0; i < LAST / LINE; i++)
			bad += seen[i] != v;
		atomic_store(&board->word[0], r);
	}
	EQ(bad, 0);
	peer_hear(me, 'x');
}

static void last_byte(uint32_t shift)
{
	struct peer t = far_start(target_spins, &shift);
	uint64_t end;

	far_open(0, 1);
	far_meet();
	end = conf_now() + conf_rounds(2, 4) * 1000000000ull;
	for (unsigned r = 1; r <= ROUNDS && conf_now() < end; r++) {
		memset(far_side[0].b.p + shift, (int)(r % 251 + 1), LAST);
		far_do(0, IBV_WR_RDMA_WRITE, shift, LAST, IBV_WC_SUCCESS);
		while (atomic_load(&board->word[0]) != r)
			AT("waiting for who spins");
	}
	atomic_store(&board->word[1], 1);
	far_end(&t);
}

static void last_byte_comes_last(void)
{
	last_byte(0);
}

static void last_byte_of_a_line(void)
{
	last_byte(37);
}

/* ---- taking back ------------------------------------------------------------------------ */

enum { HAMMER = 16, LEN = 48 * 1024 };

/* Nothing changes any more. */
static void watch(uint8_t *p, size_t len)
{
	uint64_t end;

	memset(p, 0, len);
	end = conf_now() + 3 * 1000 * 1000;
	while (conf_now() < end)
		for (size_t i = 0; i < len; i += 64)
			if (watch_byte(p + i))
				FAIL("byte %zu was written after it was taken back", i);
}

enum how { DEREG, ERR_STATE, NO_RIGHT, DESTROY, INVALIDATE, HOWS };

static void take_back(struct side *s, enum how how, struct ibv_mr *mr)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };

	switch (how) {
	case DEREG:
		EQ(ibv_dereg_mr(mr), 0);
		return;
	case ERR_STATE:
		EQ(to_state(s, IBV_QPS_ERR), 0);
		break;
	case NO_RIGHT:
		EQ(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS), 0);
		break;
	case DESTROY:
		OK(ibv_destroy_qp(s->qp));
		break;
	default:
		EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
				IBV_ACCESS_LOCAL_WRITE),
		   0);
	}
	watch(mr->addr, LEN); /* while it is registered: the QP alone forbids it */
	EQ(ibv_dereg_mr(mr), 0);
}

static void target_takes_back(struct peer *me, void *arg)
{
	enum how how = *(enum how *)arg;
	struct ibv_mr *mr[HAMMER];
	uint8_t *p;

	(void)me;
	far_open(1, HAMMER);
	for (unsigned i = 0; i < HAMMER; i++) {
		p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(p != MAP_FAILED);
		MUST(mr[i] = ibv_reg_mr(dev.pd, p, LEN, CONF_RW));
		board->addr[i] = (uintptr_t)p;
		board->rkey[i] = mr[i]->rkey;
	}
	far_meet();
	for (unsigned i = 0; i < HAMMER; i++) {
		p = (uint8_t *)(uintptr_t)board->addr[i];
		WAIT_FOR(atomic_load(&board->word[0]) == i + 1 &&
			 watch_byte(p + LEN - 1) &&
			 atomic_load(&board->word[2]) >= 2 * (i + 1));
		take_back(&far_side[i], how, mr[i]);
		if (how == DEREG)
			watch(p, LEN);
		atomic_store(&board->word[1], i + 1);
	}
	peer_hear(me, 'x');
}

static int wanted(enum how how)
{
	return how == ERR_STATE || how == DESTROY ? IBV_WC_RETRY_EXC_ERR :
	       how == NO_RIGHT			  ? IBV_WC_REM_INV_REQ_ERR :
						    IBV_WC_REM_ACCESS_ERR;
}

static void hammered(enum how how)
{
	struct peer t = far_start(target_takes_back, &how);
	unsigned done = 0;
	struct ibv_wc wc;

	far_open(0, HAMMER);
	far_meet();
	for (unsigned i = 0; i < HAMMER; i++) {
		size_t len = i % 2 ? LEN : 2000; /* by pid, by descriptor */

		memset(far_side[i].b.p, 1, LEN);
		far_do(i, IBV_WR_RDMA_WRITE, 0, LEN, IBV_WC_SUCCESS);
		atomic_store(&board->word[0], i + 1);
		do {
			far_post(i, IBV_WR_RDMA_WRITE, 7, 0, len);
			conf_wc(far_side[i].cq, &wc);
			done += !wc.status;
			atomic_store(&board->word[2], done);
		} while (!wc.status);
		EQ(wc.status, wanted(how));
		WAIT_FOR(atomic_load(&board->word[1]) == i + 1);
	}
	CHECK(done > HAMMER);
	far_end(&t);
}

static void deregistered_while_written(void)
{
	hammered(DEREG);
}

static void reregistered_while_written(void)
{
	hammered(INVALIDATE);
}

static void error_state_while_written(void)
{
	hammered(ERR_STATE);
}

static void right_taken_while_written(void)
{
	hammered(NO_RIGHT);
}

static void destroyed_while_written(void)
{
	hammered(DESTROY);
}

/* A process that is stopped in the middle of an access, perhaps, holds up who takes
 * memory back, but not for ever. */
static void target_of_a_stopped(struct peer *me, void *arg)
{
	(void)me;
	(void)arg;
	far_open(0, 1);
	for (;;) {
		far_post(0, IBV_WR_RDMA_WRITE, 7, 0, MIB);
		conf_wc_ok(far_side[0].cq, 7);
		atomic_fetch_add(&board->word[0], 1);
	}
}

static void check_stopped_initiator(bool goes_on)
{
	struct peer t = far_start(target_of_a_stopped, NULL);
	pthread_t thread;

	far_open(1, 1);
	WAIT_FOR(atomic_load(&board->word[0]) > 10);
	peer_stop(&t);
	thread = far_dereg(far_side[0].b.mr);
	WAIT_FOR(far_dereg_stands());
	if (goes_on)
		peer_go_on(&t);
	else
		peer_kill(&t);
	conf_join(thread);
	if (goes_on)
		peer_kill(&t);
}

static void initiator_is_stopped(void)
{
	check_stopped_initiator(true);
}

static void initiator_is_killed(void)
{
	check_stopped_initiator(false);
}

/* ---- keys ------------------------------------------------------------------------------- */

enum { MANY = 120 * 1000 };

static void target_with_many_keys(struct peer *me, void *arg)
{
	struct ibv_mr *mr = NULL;

	(void)arg;
	far_open(1, 1);
	for (unsigned i = 0; i < MANY; i++)
		MUST(mr = ibv_reg_mr(dev.pd, far_side[0].b.p, MIB, CONF_RW));
	board->rkey[0] = mr->rkey;
	peer_say(me, 'r');
	peer_hear(me, 'x');
}

static void many_keys(void)
{
#ifdef CONF_SANITIZER
	SKIP("sanitizers are too slow for so many");
#endif
	written_without(target_with_many_keys);
}

/* What the table does not allow gets its status from the target. */
static void target_refuses(struct peer *me, void *arg)
{
	static const int access[] = { IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ,
				      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, CONF_RW,
				      CONF_RW };
	struct ibv_pd *other;
	struct ibv_mr *mr[4];

	(void)arg;
	far_open(1, 4);
	MUST(other = ibv_alloc_pd(dev.ctx));
	for (unsigned i = 0; i < 4; i++) {
		MUST(mr[i] = ibv_reg_mr(i == 2 ? other : dev.pd, far_side[i].b.p,
					i == 3 ? 4096 : MIB, access[i]));
		board->rkey[i] = mr[i]->rkey;
	}
	peer_say(me, 'r');
	peer_hear(me, 'x');
	for (unsigned i = 0; i < 4; i++)
		EQ(ibv_dereg_mr(mr[i]), 0);
	EQ(ibv_dealloc_pd(other), 0);
}

static void refused_as_ever(void)
{
	struct peer t = far_start(target_refuses, NULL);

	far_open(0, 4);
	peer_hear(&t, 'r');
	far_do(0, IBV_WR_RDMA_READ, 0, MIB, IBV_WC_SUCCESS);
	far_do(0, IBV_WR_RDMA_WRITE, 0, 64, IBV_WC_REM_ACCESS_ERR);
	far_do(1, IBV_WR_RDMA_WRITE, 0, MIB, IBV_WC_SUCCESS);
	far_do(1, IBV_WR_RDMA_READ, 0, 64, IBV_WC_REM_ACCESS_ERR);
	far_do(2, IBV_WR_RDMA_WRITE, 0, 64, IBV_WC_REM_ACCESS_ERR);
	far_do(3, IBV_WR_RDMA_WRITE, 4000, 96, IBV_WC_SUCCESS);
	far_do(3, IBV_WR_RDMA_WRITE, 4000, 97, IBV_WC_REM_ACCESS_ERR);
	far_end(&t);
}

static void target_with_a_window(struct peer *me, void *arg)
{
	struct ibv_send_wr wr;
	struct far_window w;

	(void)arg;
	far_open(1, 2);
	w = far_window_bind();
	board->rkey[1] = board->rkey[0];
	board->addr[1] = board->addr[0];
	peer_say(me, 'r');
	peer_hear(me, 'i');
	wr = conf_inv(9, IBV_WR_LOCAL_INV, board->rkey[0]);
	OK(conf_post(far_side[0].qp, &wr));
	conf_wc_ok(far_side[0].cq, 9);
	peer_say(me, 'i');
	peer_hear(me, 'x');
	far_window_free(&w);
}

static void windows(void)
{
	struct peer t = far_start(target_with_a_window, NULL);

	far_open(0, 2);
	peer_hear(&t, 'r');
	/* The target's thread places it: who invalidates a window cannot wait for us. */
	peer_stop(&t);
	far_post(0, IBV_WR_RDMA_WRITE, 1, 0, 4096);
	conf_wc_none(far_side[0].cq, CONF_QUIET);
	peer_go_on(&t);
	conf_wc_ok(far_side[0].cq, 1);
	far_do(1, IBV_WR_RDMA_WRITE, 0, 64, IBV_WC_REM_ACCESS_ERR); /* of another QP */
	peer_say(&t, 'i');
	peer_hear(&t, 'i');
	far_do(0, IBV_WR_RDMA_WRITE, 0, 64, IBV_WC_REM_ACCESS_ERR);
	far_end(&t);
}

/* Memory that one side has unmapped. */
static void target_unmaps(struct peer *me, void *arg)
{
	uint8_t *p = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr;

	(void)arg;
	far_open(1, 3);
	MUST(mr = ibv_reg_mr(dev.pd, p, MIB, CONF_RW));
	for (unsigned i = 0; i < 2; i++) {
		board->addr[i] = (uintptr_t)p;
		board->rkey[i] = mr->rkey;
	}
	munmap(p + MIB / 2, MIB / 2);
	peer_say(me, 'r');
	peer_hear(me, 'x');
}

static void unmapped(void)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_mr *mr;
	struct peer t;
	uint8_t *p;

#ifdef CONF_SANITIZER
	SKIP("a sanitizer has the handler that would see the fault");
#endif
	t = far_start(target_unmaps, NULL);
	far_open(0, 3);
	peer_hear(&t, 'r');
	far_do(0, IBV_WR_RDMA_WRITE, 0, MIB, IBV_WC_REM_OP_ERR);
	far_do(1, IBV_WR_RDMA_READ, 0, MIB, IBV_WC_REM_OP_ERR);
	p = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(mr = ibv_reg_mr(dev.pd, p, MIB, CONF_RW));
	munmap(p, MIB);
	sge = (struct ibv_sge){ (uintptr_t)p, 64, mr->lkey };
	wr = conf_rdma(3, IBV_WR_RDMA_WRITE, &sge, 1, (void *)(uintptr_t)board->addr[2],
		       board->rkey[2]);
	OK(conf_post(far_side[2].qp, &wr));
	conf_wc_is(far_side[2].cq, 3, IBV_WC_LOC_PROT_ERR);
	far_end(&t);
}

static const struct conf_case cases[] = {
	CASE(target_is_stopped),
	CASE(memory_comes_late),
	CASE(target_only_receives),
	CASE(all_sorts_of_requests),
	CASE(data_of_immediate),
	CASE(no_overtaking),
	LONG_CASE(last_byte_comes_last, 60),
	LONG_CASE(last_byte_of_a_line, 60),
	LONG_CASE(deregistered_while_written, 60),
	LONG_CASE(reregistered_while_written, 60),
	LONG_CASE(error_state_while_written, 60),
	LONG_CASE(right_taken_while_written, 60),
	LONG_CASE(destroyed_while_written, 60),
	CASE(initiator_is_stopped),
	CASE(initiator_is_killed),
	CASE(many_keys),
	CASE(refused_as_ever),
	CASE(windows),
	CASE(unmapped),
};

CONF_MAIN(cases)
