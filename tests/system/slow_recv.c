/* SPDX-License-Identifier: BSD-2-Clause */
/* Large sends, whose payload the receiver fetches, into receives of which a page does not
 * come: nothing else of the receiver waits for it, and what was sent behind them on the same
 * QP comes after them. The case receives. */
#include "late.h"
#include "meanwhile.h"

enum { MIB = 1 << 20, LEN = 2 * MIB, BEHIND = 6, SMALL = 1000 };

static struct conf_buf big;
static struct late late;
static struct third third;
static struct taker taker;
static struct peer target;

/* ---- who sends -------------------------------------------------------------------------- */

/* On pair i: a large one from b, then small ones. What one pair sends may be read while
 * another one's is written. */
static void send_all(unsigned i, struct conf_buf *b)
{
	conf_pattern(b->p, LEN, i);
	OK(conf_send(far_side[i].qp, 100, b, 0, LEN));
	for (unsigned k = 0; k < BEHIND; k++) {
		conf_pattern(far_side[i].b.p + (size_t)k * SMALL, SMALL, k);
		OK(conf_send(far_side[i].qp, 101 + k, &far_side[i].b, (size_t)k * SMALL,
			     SMALL));
	}
}

static void sent_all(unsigned i)
{
	for (unsigned k = 0; k <= BEHIND; k++)
		conf_wc_ok(far_side[i].cq, 100 + k);
}

static void target_sends(struct peer *me, void *arg)
{
	struct conf_buf two;
	char c;

	(void)arg;
	far_open(1, 3);
	big = conf_buf(dev.pd, LEN, CONF_RW);
	two = conf_buf(dev.pd, LEN, CONF_RW);
	far_meet();
	while ((c = meanwhile_serve(me, &far_side[1])) != 'x') {
		switch (c) {
		case 'l':
			send_all(0, &big);
			break;
		case 'L':
			send_all(2, &two);
			break;
		case 'd':
			sent_all(0);
			peer_say(me, 'd');
			break;
		case 'D':
			sent_all(2);
			peer_say(me, 'd');
			break;
		default:
			FAIL("no such command: '%c'", c);
		}
	}
}

/* ---- the case --------------------------------------------------------------------------- */

static void begin(struct side_opt opt)
{
	late_need();
	third_start(&third);
	target = far_start(target_sends, NULL);
	far_opt = opt;
	far_open(0, 3);
	far_meet();
	third_join(&third);
	big = conf_buf(dev.pd, LEN, CONF_RW);
}

static void end(void)
{
	third_end(&third);
	far_end(&target);
}

static void post_one(struct side *s, uint64_t wr_id, struct conf_buf *b, size_t off, size_t len)
{
	if (s->srq)
		OK(conf_srq_recv(s->srq, wr_id, b, off, len));
	else
		OK(conf_recv(s->qp, wr_id, b, off, len));
}

static void post_receives(unsigned i)
{
	struct side *s = &far_side[i];

	memset(s->b.p, 0, BEHIND * SMALL);
	post_one(s, 0, &big, 0, LEN);
	for (unsigned k = 0; k < BEHIND; k++)
		post_one(s, 1 + k, &s->b, (size_t)k * SMALL, SMALL);
}

static void received(unsigned i)
{
	CHECK(conf_pattern_ok(big.p, LEN, i));
	for (unsigned k = 0; k < BEHIND; k++)
		CHECK(conf_pattern_ok(far_side[i].b.p + (size_t)k * SMALL, SMALL, k));
}

static void others_work(void)
{
	meanwhile_works(&target, &far_side[1]);
	third_works(&third);
}

static void stands(size_t at, struct side_opt opt)
{
	begin(opt);
	post_receives(0);
	late_take(&late, big.p + at);
	taker_start(&taker, &far_side[0], opt.channel, 1 + BEHIND);
	peer_say(&target, 'l');
	late_wanted(&late);
	others_work();
	EQ(atomic_load(&taker.n), 0);
	late_give(&late);
	taker_end(&taker);
	for (unsigned k = 0; k <= BEHIND; k++) {
		taker_is(&taker, k, k, IBV_WC_SUCCESS);
		EQ(taker.wc[k].byte_len, k ? SMALL : LEN);
	}
	received(0);
	peer_say(&target, 'd');
	peer_hear(&target, 'd');
	end();
}

static void polled(void)
{
	stands(MIB, (struct side_opt){ 0 });
}

static void asleep_on_a_channel(void)
{
	stands(MIB, (struct side_opt){ .channel = true });
}

static void first_page(void)
{
	stands(0, (struct side_opt){ .channel = true });
}

static void last_page(void)
{
	stands(LEN - LATE_PAGE, (struct side_opt){ 0 });
}

static void shared_receive_queue(void)
{
	stands(MIB, (struct side_opt){ .srq = true });
}

static void shared_receive_queue_asleep(void)
{
	stands(MIB, (struct side_opt){ .srq = true, .channel = true });
}

static void by_descriptor(void)
{
	setenv("ANYRDMA_DIRECT", "mem", 1);
	stands(MIB, (struct side_opt){ 0 });
}

/* A thread that polls the CQ of pair 1, to which nothing comes: it receives what comes for
 * other QPs. */
static struct {
	pthread_t thread;
	_Atomic uint64_t polls;
	atomic_bool end;
} spinner;

static void *spin(void *arg)
{
	struct ibv_wc wc;

	(void)arg;
	while (!atomic_load(&spinner.end)) {
		EQ(ibv_poll_cq(far_side[1].cq, 1, &wc), 0);
		atomic_fetch_add(&spinner.polls, 1);
	}
	return NULL;
}

/* So many polls have begun and ended from now on. */
static void spinner_spins(unsigned n)
{
	uint64_t from = atomic_load(&spinner.polls);

	WAIT_FOR(atomic_load(&spinner.polls) > from + n);
}

static void spinner_start(void)
{
	spinner.thread = conf_thread(spin, NULL);
	spinner_spins(10000);
}

static void spinner_end(void)
{
	atomic_store(&spinner.end, true);
	conf_join(spinner.thread);
}

/* A thread that has to do with another CQ does not wait for the page. */
static void another_is_polled(void)
{
	begin((struct side_opt){ 0 });
	post_receives(0);
	late_take(&late, big.p + MIB);
	spinner_start();
	peer_say(&target, 'l');
	late_wanted(&late);
	spinner_spins(1000);
	third_works(&third);
	late_give(&late);
	for (unsigned k = 0; k <= BEHIND; k++)
		conf_wc_ok(far_side[0].cq, k);
	received(0);
	spinner_end();
	end();
}

/* Two QPs receive much; the pages of the first do not come. */
static void second_goes_on(void)
{
	struct conf_buf two;

	begin((struct side_opt){ 0 });
	post_receives(0);
	late_take(&late, big.p + MIB);
	two = conf_buf(dev.pd, LEN, CONF_RW);
	post_one(&far_side[2], 0, &two, 0, LEN);
	for (unsigned k = 0; k < BEHIND; k++)
		post_one(&far_side[2], 1 + k, &far_side[2].b, (size_t)k * SMALL, SMALL);
	taker_start(&taker, &far_side[0], false, 1 + BEHIND);
	peer_say(&target, 'l');
	peer_say(&target, 'L');
	late_wanted(&late);
	for (unsigned k = 0; k <= BEHIND; k++)
		conf_wc_ok(far_side[2].cq, k);
	CHECK(conf_pattern_ok(two.p, LEN, 2));
	EQ(atomic_load(&taker.n), 0);
	late_give(&late);
	taker_end(&taker);
	received(0);
	conf_buf_free(&two);
	end();
}

/* There is no room for the completion when the copy ends. */
static void queue_is_full(void)
{
	unsigned n;

	begin((struct side_opt){ .cqe = 4 });
	n = (unsigned)far_side[0].cq->cqe;
	CHECK(n <= 16);
	OK(conf_recv(far_side[0].qp, 50, &big, 0, LEN));
	OK(conf_recv(far_side[0].qp, 51, &far_side[0].b, 0, SMALL));
	late_take(&late, big.p + MIB);
	peer_say(&target, 'l');
	late_wanted(&late);
	for (unsigned i = 0; i < n; i++)
		far_post(0, IBV_WR_RDMA_WRITE, i, 0, 8);
	others_work();
	late_give(&late);
	conf_async(dev.ctx, IBV_EVENT_CQ_ERR, far_side[0].cq);
	conf_qp_wait(far_side[0].qp, IBV_QPS_ERR);
	others_work();
	end();
}

/* Not fetched, but in frames: through the ring, over TCP. */
#define FRAMED(name, what)                                                       \
	static void ring_##name(void)                                            \
	{                                                                        \
		setenv("ANYRDMA_DIRECT", "off", 1);                              \
		what;                                                            \
	}                                                                        \
	static void tcp_##name(void)                                             \
	{                                                                        \
		far_transport = "tcp";                                           \
		what;                                                            \
	}

FRAMED(polled, polled())
FRAMED(asleep, asleep_on_a_channel())
FRAMED(first_page, first_page())
FRAMED(last_page, last_page())
FRAMED(shared_receive_queue, shared_receive_queue())
FRAMED(second_goes_on, second_goes_on())
FRAMED(queue_is_full, queue_is_full())

/* Who polls one CQ receives for the ring, and so for all. */
static void ring_another_is_polled(void)
{
	setenv("ANYRDMA_DIRECT", "off", 1);
	another_is_polled();
}

static const struct conf_case cases[] = {
	CASE(polled),
	CASE(asleep_on_a_channel),
	CASE(first_page),
	CASE(last_page),
	CASE(shared_receive_queue),
	CASE(shared_receive_queue_asleep),
	CASE(by_descriptor),
	CASE(another_is_polled),
	CASE(second_goes_on),
	CASE(queue_is_full),
	CASE(ring_polled),
	CASE(ring_asleep),
	CASE(ring_first_page),
	CASE(ring_last_page),
	CASE(ring_shared_receive_queue),
	CASE(ring_second_goes_on),
	CASE(ring_queue_is_full),
	CASE(ring_another_is_polled),
	CASE(tcp_polled),
	CASE(tcp_asleep),
	CASE(tcp_first_page),
	CASE(tcp_last_page),
	CASE(tcp_shared_receive_queue),
	CASE(tcp_second_goes_on),
	CASE(tcp_queue_is_full),
};

CONF_MAIN(cases)
