/* SPDX-License-Identifier: BSD-2-Clause */
/* QPs without the connection manager: what becomes of work when the peer's process is
 * stopped or killed before the two have met, or has no such QP. Both ways round, as the QP
 * with the smaller number looks for the other. */
#include "lab.h"
#include "side.h"

/* ibv_qp_attr.timeout */
enum {
	SHORT = 14, /* half a second with seven retries */
	LONG = 24,  /* nine minutes: longer than a case waits for a completion */
	NEVER = 0,
};

/* Seconds: time is the point, this is longer than a silent peer is waited for. */
enum { PAUSE = 3 };

static struct side s;

/* A QP whose number is in the range. Those of a process share their upper bits, 256 at a
 * time: others take up those that do not fit. */
static struct side numbered(uint32_t psn, uint32_t low, uint32_t high)
{
	static struct ibv_qp *others[256 * 40];
	struct ibv_qp_init_attr a = { .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 } };
	struct side x;
	unsigned n = 0;

	a.send_cq = a.recv_cq = ibv_create_cq(dev.ctx, 1, NULL, NULL, 0);
	CHECK(a.send_cq);
	for (x = side(psn); x.qp->qp_num < low || x.qp->qp_num > high; x = side(psn)) {
		side_free(&x);
		if (n == sizeof(others) / sizeof(others[0]))
			FAIL("no number from %06x to %06x", low, high);
		for (unsigned i = 0; i < 256; i++)
			CHECK(others[n++] = ibv_create_qp(dev.pd, &a));
	}
	while (n)
		OK(ibv_destroy_qp(others[--n]));
	OK(ibv_destroy_cq(a.send_cq));
	return x;
}

/* In the middle half of the ports there are: some are smaller, and some are larger. */
static struct side numbered_in_the_middle(uint32_t psn)
{
	FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "r");
	unsigned low, high, quarter;

	CHECK(f && fscanf(f, "%u %u", &low, &high) == 2);
	fclose(f);
	quarter = (high - low) / 4;
	return numbered(psn, (low + quarter) << 8, (high - quarter) << 8);
}

/* The other process: its QP in RESET, or from 'i' on in INIT, until it is told what to do. */
static void peer_main(struct peer *me, void *arg)
{
	struct side p;
	uint32_t qpn;

	(void)arg;
	open_device();
	p = numbered_in_the_middle(1000);
	peer_say_u32(me, p.qp->qp_num);
	qpn = peer_hear_u32(me);
	for (;;) {
		char c = (char)peer_hear_u32(me);

		if (c == 'i') {
			EQ(to_init(&p), 0);
			OK(conf_recv(p.qp, 7, &p.b, 4096, 4096));
		} else if (c == 'e') {
			EQ(to_state(&p, IBV_QPS_ERR), 0);
		} else if (c == 'd') {
			side_free(&p);
			p.qp = NULL;
		} else if (c == 'j') {
			EQ(to_rtr(&p, qpn, 0, &dev.gid), 0);
			EQ(to_rts(&p), 0);
			conf_wc_ok(p.cq, 7);
		} else {
			break;
		}
		peer_say(me, c);
	}
	if (p.qp)
		side_free(&p);
}

static void tell(struct peer *p, char c)
{
	peer_say_u32(p, (uint32_t)c);
	peer_hear(p, c);
}

/* The peer is there, its QP in RESET; ours, too. */
static struct peer begin(bool smaller, uint32_t *qpn)
{
	struct peer p = peer_start(peer_main, NULL);

	*qpn = peer_hear_u32(&p);
	open_device();
	s = numbered(0, smaller ? 0 : *qpn, smaller ? *qpn : 0xffffff);
	peer_say_u32(&p, s.qp->qp_num);
	return p;
}

/* Ours goes to RTS, and has work. */
static void work(uint32_t qpn, uint8_t timeout)
{
	EQ(to_init(&s), 0);
	EQ(to_rtr(&s, qpn, 1000, &dev.gid), 0);
	EQ(conf_qp_modify(s.qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
						      .timeout = timeout,
						      .retry_cnt = 7,
						      .rnr_retry = 7,
						      .max_rd_atomic = 4 }),
	   0);
	OK(conf_send(s.qp, 8, &s.b, 0, 64));
}

/* The work ends. It may take seconds, of which a busy machine makes many. */
static void fails(uint64_t wr_id)
{
	struct ibv_wc wc;

	WAIT_TILL(ibv_poll_cq(s.cq, 1, &wc) == 1, 3 * CONF_WAIT, "%s", "no completion");
	EQ(wc.wr_id, wr_id);
	EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
}

static void end(struct peer *p, bool alive)
{
	if (alive) {
		peer_say_u32(p, 'q');
		peer_end(p);
	}
	side_free(&s);
	close_device();
}

/* ---- stopped --------------------------------------------------------------------- */

static void stopped(bool smaller)
{
	uint32_t qpn;
	struct peer p = begin(smaller, &qpn);

	tell(&p, 'i');
	peer_stop(&p);
	work(qpn, SHORT);
	conf_wc_none(s.cq, PAUSE * 1000);
	peer_go_on(&p);
	tell(&p, 'j');
	conf_wc_ok(s.cq, 8);
	end(&p, true);
}

static void stopped_before_it_answers(void)
{
	stopped(true);
}

static void stopped_before_it_connects(void)
{
	stopped(false);
}

/* ---- killed ---------------------------------------------------------------------- */

static void killed(bool smaller, uint8_t timeout, bool while_waited_for)
{
	uint32_t qpn;
	struct peer p = begin(smaller, &qpn);

	tell(&p, 'i');
	if (while_waited_for) {
		peer_stop(&p);
		work(qpn, timeout);
		conf_wc_none(s.cq, 1000);
		peer_kill(&p);
	} else {
		peer_kill(&p);
		work(qpn, timeout);
	}
	fails(8);
	end(&p, false);
}

static void killed_before_it_answers(void)
{
	killed(true, LONG, false);
}

static void killed_before_it_connects(void)
{
	killed(false, LONG, false);
}

static void killed_while_it_is_waited_for(void)
{
	killed(true, LONG, true);
}

static void killed_and_waited_for_without_end(void)
{
	killed(false, NEVER, false);
}

/* ---- alive ----------------------------------------------------------------------- */

/* Its port does not listen yet, and is its own all the same. */
static void late(bool smaller, uint8_t timeout)
{
	uint32_t qpn;
	struct peer p = begin(smaller, &qpn);

	work(qpn, timeout);
	conf_wc_none(s.cq, PAUSE * 1000);
	tell(&p, 'i');
	conf_wc_none(s.cq, 1000);
	tell(&p, 'j');
	conf_wc_ok(s.cq, 8);
	end(&p, true);
}

static void late_to_connect(void)
{
	late(false, LONG);
}

static void late_and_waited_for_without_end(void)
{
	late(true, NEVER);
}

static void without_qp(bool smaller, char how, uint8_t timeout)
{
	uint32_t qpn;
	struct peer p = begin(smaller, &qpn);

	tell(&p, 'i');
	tell(&p, how);
	work(qpn, timeout);
	fails(8);
	end(&p, true);
}

static void qp_that_answers_is_destroyed(void)
{
	without_qp(true, 'd', NEVER);
}

static void qp_that_connects_is_destroyed(void)
{
	without_qp(false, 'd', NEVER);
}

static void qp_that_answers_is_in_the_error_state(void)
{
	without_qp(true, 'e', NEVER);
}

static void qp_that_connects_is_in_the_error_state(void)
{
	without_qp(false, 'e', SHORT);
}

/* ---- met ------------------------------------------------------------------------- */

/* What the peer's process has answered ends the work, whatever the timeout is. */
static void met(char how, enum ibv_wr_opcode op)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	uint32_t qpn;
	struct peer p = begin(true, &qpn);

	tell(&p, 'i');
	work(qpn, NEVER);
	tell(&p, 'j');
	conf_wc_ok(s.cq, 8);
	tell(&p, how);
	sge = conf_sge(&s.b, 0, 64);
	wr = conf_wr(9, op, &sge, 1);
	OK(conf_post(s.qp, &wr));
	fails(9);
	end(&p, true);
}

static void read_from_a_qp_that_was_destroyed(void)
{
	met('d', IBV_WR_RDMA_READ);
}

static void read_from_a_qp_in_the_error_state(void)
{
	met('e', IBV_WR_RDMA_READ);
}

static void send_to_a_qp_that_was_destroyed(void)
{
	met('d', IBV_WR_SEND);
}

static void send_to_a_qp_in_the_error_state(void)
{
	met('e', IBV_WR_SEND);
}

static const struct conf_case cases[] = {
	CASE(stopped_before_it_answers),
	CASE(stopped_before_it_connects),
	CASE(killed_before_it_answers),
	CASE(killed_before_it_connects),
	CASE(killed_while_it_is_waited_for),
	CASE(killed_and_waited_for_without_end),
	CASE(late_to_connect),
	CASE(late_and_waited_for_without_end),
	CASE(qp_that_answers_is_destroyed),
	CASE(qp_that_connects_is_destroyed),
	CASE(qp_that_answers_is_in_the_error_state),
	CASE(qp_that_connects_is_in_the_error_state),
	CASE(read_from_a_qp_that_was_destroyed),
	CASE(read_from_a_qp_in_the_error_state),
	CASE(send_to_a_qp_that_was_destroyed),
	CASE(send_to_a_qp_in_the_error_state),
};

CONF_MAIN(cases)
