/* SPDX-License-Identifier: BSD-2-Clause */
/* RDMA writes and reads that stand in the middle, as a page of the application's memory does
 * not come: nothing else of the process waits for it. */
#include "late.h"
#include "meanwhile.h"

enum { MIB = 1 << 20, BIG = 4 * MIB, HUGE = 64 * MIB, MESSAGE = 9 };

static struct conf_buf big;
static struct late late;
static struct third third;
static struct taker taker;
static struct peer target;

/* In frames, through the ring or over TCP, instead of by direct access. What comes behind a
 * frame on the same QP comes after it. */
static bool framed;

static void by_ring(void)
{
	framed = true;
	setenv("ANYRDMA_DIRECT", "off", 1);
}

static void by_tcp(void)
{
	framed = true;
	far_transport = "tcp";
}

/* ---- the target ------------------------------------------------------------------------ */

/* A byte-wise look at what the library's threads have placed is a race to TSan, which knows nothing
 * of the message over the pipe, and reports of millions of bytes take minutes. */
static char written(size_t len)
{
	conf_qp_state(far_side[0].qp);
	return conf_pattern_ok(big.p, len, 7) ? 'y' : 'n';
}

/* Pair 2 of the board names its memory. */
static void serve_until_end(struct peer *me)
{
	char c;

	while ((c = meanwhile_serve(me, &far_side[1])) != 'x') {
		switch (c) {
		case 's': /* a message on the QP whose peer is in the middle of something */
			OK(conf_send(far_side[0].qp, 1, &far_side[0].b, 0, 100));
			conf_wc_ok(far_side[0].cq, 1);
			break;
		case 'v': /* what was written */
			peer_say(me, written(peer_hear_u32(me)));
			break;
		case 'i':
			for (unsigned i = 0; i < 2; i++)
				OK(conf_recv(far_side[0].qp, 10 + i, &far_side[0].b, 0, 0));
			break;
		case 'I':
			for (unsigned i = 0; i < 2; i++)
				conf_wc_ok(far_side[0].cq, 10 + i);
			break;
		case 'l':
			late_take(&late, big.p + peer_hear_u32(me));
			peer_say(me, 'l');
			break;
		case 'w':
			late_wanted(&late);
			peer_say(me, 'w');
			break;
		case 'g':
			late_give(&late);
			break;
		default:
			FAIL("no such command: '%c'", c);
		}
	}
}

static void target_serves(struct peer *me, void *arg)
{
	size_t len = *(size_t *)arg;

	far_open(1, 2);
	big = conf_buf(dev.pd, len, CONF_RW);
	conf_pattern(big.p, len, 5);
	board->addr[2] = (uintptr_t)big.p;
	board->rkey[2] = big.mr->rkey;
	conf_qp_state(far_side[0].qp); /* TSan: what is placed comes after the pattern */
	far_meet();
	serve_until_end(me);
}

/* ---- the case --------------------------------------------------------------------------- */

static void begin(size_t len, bool sleeps)
{
	late_need();
	third_start(&third);
	target = far_start(target_serves, &len);
	far_opt.channel = sleeps;
	far_open(0, 2);
	far_meet();
	third_join(&third);
	big = conf_buf(dev.pd, len, CONF_RW);
	conf_pattern(big.p, len, 7);
}

static void end(void)
{
	third_end(&third);
	far_end(&target);
}

static int opcode;
static unsigned nposts;
static atomic_bool posted;

/* The first `len` bytes of big. */
static void post_big(uint64_t wr_id, size_t len)
{
	struct ibv_sge sge = conf_sge(&big, 0, len);
	struct ibv_send_wr wr = conf_rdma(wr_id, opcode, &sge, 1,
					  (void *)(uintptr_t)board->addr[2], board->rkey[2]);

	OK(conf_post(far_side[0].qp, &wr));
}

static void *post(void *arg)
{
	(void)arg;
	for (unsigned i = 0; i < nposts; i++)
		post_big(i, big.len);
	atomic_store(&posted, true);
	return NULL;
}

static pthread_t post_some(int op, unsigned n)
{
	opcode = op;
	if (op == IBV_WR_RDMA_WRITE_WITH_IMM)
		peer_say(&target, 'i');
	nposts = n;
	return conf_thread(post, NULL);
}

static void check_data(void)
{
	if (opcode == IBV_WR_RDMA_READ) {
		CHECK(conf_pattern_ok(big.p, big.len, 5));
		return;
	}
	if (opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		peer_say(&target, 'I');
	peer_say(&target, 'v');
	peer_say_u32(&target, (uint32_t)big.len);
	peer_hear(&target, 'y');
}

/* All others, and the other direction of the same QP if nothing that stands comes from
 * there, nor an acknowledgement. */
static void others_work(bool same)
{
	if (same) {
		peer_say(&target, 's');
		taker_has(&taker, 1);
		taker_is(&taker, 0, MESSAGE, IBV_WC_SUCCESS);
	}
	meanwhile_works(&target, &far_side[1]);
	third_works(&third);
}

static void one_stands(int op, size_t at, bool sleeps)
{
	bool same = !framed || op != IBV_WR_RDMA_READ;
	pthread_t poster;

	begin(BIG, sleeps);
	late_take(&late, big.p + at);
	if (same)
		OK(conf_recv(far_side[0].qp, MESSAGE, &far_side[0].b, 0, 100));
	taker_start(&taker, &far_side[0], sleeps, same + 2);
	poster = post_some(op, 2);
	late_wanted(&late);
	others_work(same);
	EQ(atomic_load(&taker.n), same);
	late_give(&late);
	conf_join(poster);
	taker_end(&taker);
	taker_is(&taker, same, 0, IBV_WC_SUCCESS);
	taker_is(&taker, same + 1, 1, IBV_WC_SUCCESS);
	check_data();
	end();
}

static void write_stands(void)
{
	one_stands(IBV_WR_RDMA_WRITE, 2 * MIB, false);
}

static void write_stands_asleep(void)
{
	one_stands(IBV_WR_RDMA_WRITE, 2 * MIB, true);
}

/* In the call that posts it. */
static void write_stands_at_once(void)
{
	one_stands(IBV_WR_RDMA_WRITE, 0, false);
}

static void write_stands_at_its_end(void)
{
	one_stands(IBV_WR_RDMA_WRITE, BIG - LATE_PAGE, false);
}

static void immediate_stands(void)
{
	one_stands(IBV_WR_RDMA_WRITE_WITH_IMM, 2 * MIB, false);
}

static void read_stands(void)
{
	one_stands(IBV_WR_RDMA_READ, 2 * MIB, false);
}

static void read_stands_asleep(void)
{
	one_stands(IBV_WR_RDMA_READ, 2 * MIB, true);
}

static void read_stands_at_once(void)
{
	one_stands(IBV_WR_RDMA_READ, 0, true);
}

static void by_descriptor(void)
{
	setenv("ANYRDMA_DIRECT", "mem", 1);
	one_stands(IBV_WR_RDMA_WRITE, 2 * MIB, true);
}

/* It is the target's memory that does not come. */
static void target_page(int op)
{
	bool same = !framed || op == IBV_WR_RDMA_READ;
	pthread_t poster;

	begin(BIG, false);
	if (same)
		OK(conf_recv(far_side[0].qp, MESSAGE, &far_side[0].b, 0, 100));
	taker_start(&taker, &far_side[0], false, same + 1);
	peer_say(&target, 'l');
	peer_say_u32(&target, 2 * MIB);
	peer_hear(&target, 'l');
	poster = post_some(op, 1);
	peer_say(&target, 'w');
	peer_hear(&target, 'w');
	others_work(same);
	EQ(atomic_load(&taker.n), same);
	peer_say(&target, 'g');
	conf_join(poster);
	taker_end(&taker);
	taker_is(&taker, same, 0, IBV_WC_SUCCESS);
	check_data();
	end();
}

static void write_stands_at_the_target(void)
{
	target_page(IBV_WR_RDMA_WRITE);
}

static void read_stands_at_the_target(void)
{
	target_page(IBV_WR_RDMA_READ);
}

#define FRAMED(name, what)                                                       \
	static void ring_##name(void)                                            \
	{                                                                        \
		by_ring();                                                       \
		what;                                                            \
	}                                                                        \
	static void tcp_##name(void)                                             \
	{                                                                        \
		by_tcp();                                                        \
		what;                                                            \
	}

FRAMED(write, one_stands(IBV_WR_RDMA_WRITE, 2 * MIB, false))
FRAMED(write_asleep, one_stands(IBV_WR_RDMA_WRITE, 2 * MIB, true))
FRAMED(write_at_once, one_stands(IBV_WR_RDMA_WRITE, 0, false))
FRAMED(write_at_its_end, one_stands(IBV_WR_RDMA_WRITE, BIG - LATE_PAGE, true))
FRAMED(immediate, one_stands(IBV_WR_RDMA_WRITE_WITH_IMM, 2 * MIB, false))
FRAMED(read, one_stands(IBV_WR_RDMA_READ, 2 * MIB, false))
FRAMED(read_asleep, one_stands(IBV_WR_RDMA_READ, 2 * MIB, true))
FRAMED(read_at_once, one_stands(IBV_WR_RDMA_READ, 0, true))
FRAMED(write_at_the_target, target_page(IBV_WR_RDMA_WRITE))
FRAMED(read_at_the_target, target_page(IBV_WR_RDMA_READ))

/* Both QPs are of one process. */
static void within_the_process(void)
{
	struct side x, y;
	struct conf_buf to;
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	begin(BIG, false);
	x = side(1);
	y = side(2);
	join(&x, &y);
	exchange(&x, &y, 3);
	to = conf_buf(dev.pd, BIG, CONF_RW);
	sge = conf_sge(&big, 0, BIG);
	wr = conf_rdma(1, IBV_WR_RDMA_WRITE, &sge, 1, to.p, to.mr->rkey);
	late_take(&late, big.p + 2 * MIB);
	OK(conf_post(x.qp, &wr));
	late_wanted(&late);
	meanwhile_works(&target, &far_side[1]);
	third_works(&third);
	EQ(ibv_poll_cq(x.cq, 1, &(struct ibv_wc){ 0 }), 0);
	late_give(&late);
	conf_wc_ok(x.cq, 1);
	CHECK(conf_pattern_ok(to.p, BIG, 7));
	side_free(&x);
	side_free(&y);
	conf_buf_free(&to);
	end();
}

/* ---- posting ------------------------------------------------------------------------------ */

/* A post does not copy all of it before it returns: else it would wait for the page. */
static void huge_is_posted(int op)
{
	pthread_t poster;

	begin(HUGE, true);
	late_take(&late, big.p + 8 * MIB);
	taker_start(&taker, &far_side[0], true, 1);
	poster = post_some(op, 1);
	WAIT_FOR(atomic_load(&posted));
	conf_join(poster);
	late_wanted(&late); /* it goes on though nobody polls */
	late_give(&late);
	taker_end(&taker);
	taker_is(&taker, 0, 0, IBV_WC_SUCCESS);
	check_data();
	end();
}

static void huge_write_is_posted(void)
{
	huge_is_posted(IBV_WR_RDMA_WRITE);
}

static void huge_read_is_posted(void)
{
	huge_is_posted(IBV_WR_RDMA_READ);
}

/* ---- more than there are threads for copies ------------------------------------------------ */

enum { MANY = 12, PIECE = 2 * MIB };

static void target_has_many(struct peer *me, void *arg)
{
	(void)arg;
	far_open(1, MANY);
	big = conf_buf(dev.pd, (size_t)MANY * PIECE, CONF_RW);
	board->addr[MANY] = (uintptr_t)big.p;
	board->rkey[MANY] = big.mr->rkey;
	far_meet();
	EQ(meanwhile_serve(me, &far_side[0]), 'x');
	CHECK(conf_pattern_ok(big.p, big.len, 7));
}

static void post_piece(unsigned i)
{
	struct ibv_sge sge = conf_sge(&big, (size_t)i * PIECE, PIECE);
	struct ibv_send_wr wr =
		conf_rdma(i, IBV_WR_RDMA_WRITE, &sge, 1,
			  (void *)(uintptr_t)(board->addr[MANY] + (size_t)i * PIECE),
			  board->rkey[MANY]);

	OK(conf_post(far_side[i].qp, &wr));
}

/* Those that get no thread wait, as nobody can tell them from others that would not stand.
 * What needs no thread goes on. */
static void many_stand(void)
{
	static struct late lates[MANY];

	late_need();
	third_start(&third);
	target = far_start(target_has_many, NULL);
	far_open(0, MANY);
	far_meet();
	third_join(&third);
	big = conf_buf(dev.pd, (size_t)MANY * PIECE, CONF_RW);
	conf_pattern(big.p, big.len, 7);
	for (unsigned i = 1; i < MANY; i++) {
		late_take(&lates[i], big.p + (size_t)i * PIECE + MIB + LATE_PAGE);
		post_piece(i);
	}
	meanwhile_message(&target, &far_side[0]);
	meanwhile_message(&third.peer, &third.s);
	for (unsigned i = 1; i < MANY; i++)
		late_give(&lates[i]);
	for (unsigned i = 1; i < MANY; i++)
		conf_wc_ok(far_side[i].cq, i);
	post_piece(0);
	conf_wc_ok(far_side[0].cq, 0);
	end();
}

/* ---- before the peer is there --------------------------------------------------------------- */

enum { EARLY = 12 };

static void target_comes_late(struct peer *me, void *arg)
{
	struct far_other o;
	struct side s;

	(void)arg;
	far_open(1, 1); /* what both need for direct access is there */
	big = conf_buf(dev.pd, BIG, CONF_RW);
	s = side(2);
	EQ(to_init(&s), 0);
	peer_say_u32(me, s.qp->qp_num);
	peer_say_u32(me, s.psn);
	remote_say(me, &big);
	o = far_hear(me);
	EQ(meanwhile_serve(me, &far_side[0]), 'r');
	EQ(to_rtr(&s, o.qpn, o.psn, &dev.gid), 0);
	EQ(to_rts(&s), 0);
	EQ(meanwhile_serve(me, &far_side[0]), 'x');
	CHECK(conf_pattern_ok(big.p, BIG, 7));
	side_free(&s);
}

/* Much was posted when the QP gets its connection. */
static void posted_before_the_peer(void)
{
	struct far_other o;
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct side s;

	late_need();
	third_start(&third);
	target = far_start(target_comes_late, NULL);
	far_open(0, 1);
	third_join(&third);
	big = conf_buf(dev.pd, BIG, CONF_RW);
	conf_pattern(big.p, BIG, 7);
	late_take(&late, big.p);
	o = far_hear(&target);
	s = side(1);
	EQ(to_init(&s), 0);
	far_tell(&target, &s);
	EQ(to_rtr(&s, o.qpn, o.psn, &dev.gid), 0);
	EQ(to_rts(&s), 0);
	for (unsigned i = 0; i < EARLY; i++) {
		/* The first is sent as a message if the target's QP has not heard of the
		 * connection yet. It has when the first is answered. */
		sge = i ? conf_sge(&big, 0, BIG) : conf_sge(&s.b, 0, 100);
		wr = remote_rdma(&o.mem, i, i ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, &sge);
		wr.send_flags |= i == 1 ? IBV_SEND_FENCE : 0;
		OK(conf_post(s.qp, &wr));
	}
	meanwhile_works(&target, &far_side[0]);
	peer_say(&target, 'r');
	late_wanted(&late);
	meanwhile_works(&target, &far_side[0]);
	third_works(&third);
	conf_wc_ok(s.cq, 0);
	EQ(ibv_poll_cq(s.cq, 1, &(struct ibv_wc){ 0 }), 0);
	late_give(&late);
	for (unsigned i = 1; i < EARLY; i++)
		conf_wc_ok(s.cq, i);
	side_free(&s);
	end();
}

static const struct conf_case cases[] = {
	CASE(write_stands),
	CASE(write_stands_asleep),
	CASE(write_stands_at_once),
	CASE(write_stands_at_its_end),
	CASE(immediate_stands),
	CASE(read_stands),
	CASE(read_stands_asleep),
	CASE(read_stands_at_once),
	CASE(by_descriptor),
	CASE(write_stands_at_the_target),
	CASE(read_stands_at_the_target),
	CASE(within_the_process),
	CASE(huge_write_is_posted),
	CASE(huge_read_is_posted),
	CASE(many_stand),
	CASE(posted_before_the_peer),
	CASE(ring_write),
	CASE(ring_write_asleep),
	CASE(ring_write_at_once),
	CASE(ring_write_at_its_end),
	CASE(ring_immediate),
	CASE(ring_read),
	CASE(ring_read_asleep),
	CASE(ring_read_at_once),
	CASE(ring_write_at_the_target),
	CASE(ring_read_at_the_target),
	CASE(tcp_write),
	CASE(tcp_write_asleep),
	CASE(tcp_write_at_once),
	CASE(tcp_write_at_its_end),
	CASE(tcp_immediate),
	CASE(tcp_read),
	CASE(tcp_read_asleep),
	CASE(tcp_read_at_once),
	CASE(tcp_write_at_the_target),
	CASE(tcp_read_at_the_target),
};

CONF_MAIN(cases)
