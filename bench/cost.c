/* SPDX-License-Identifier: BSD-2-Clause */
/* What a call costs in instructions. This program counts nothing itself: bench/cost.sh
 * runs it below callgrind, which collects inside the functions counted_* alone, and divides
 * by the calls that are reported here. Each makes one call of the API, counted_nothing
 * none: what that takes is subtracted from the others. */
#include "bench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Under its own name, however the compiler would like to improve it. */
#if defined(__clang__)
#define COUNTED __attribute__((noinline, used))
#else
#define COUNTED __attribute__((noipa, used))
#endif

enum { TAKE = 4096, EMPTY = 512, HITS = 64, SENDS = 64, CHAIN = 16, CHAINS = 4 };

struct cost {
	struct side *s;
	struct rc rc;
	struct ibv_cq *bare;	/* of no QP */
};

int counted_nothing(struct ibv_cq *cq, struct ibv_wc *wc);
int counted_poll_bare(struct ibv_cq *cq, struct ibv_wc *wc);
int counted_poll_empty(struct ibv_cq *cq, struct ibv_wc *wc);
int counted_poll_hit(struct ibv_cq *cq, struct ibv_wc *wc);
int counted_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr);
int counted_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr);
int counted_post_send16(struct ibv_qp *qp, struct ibv_send_wr *wr);

COUNTED int counted_nothing(struct ibv_cq *cq, struct ibv_wc *wc)
{
	return cq && wc;
}

COUNTED int counted_poll_bare(struct ibv_cq *cq, struct ibv_wc *wc)
{
	return ibv_poll_cq(cq, 1, wc);
}

COUNTED int counted_poll_empty(struct ibv_cq *cq, struct ibv_wc *wc)
{
	return ibv_poll_cq(cq, 1, wc);
}

COUNTED int counted_poll_hit(struct ibv_cq *cq, struct ibv_wc *wc)
{
	return ibv_poll_cq(cq, 1, wc);
}

COUNTED int counted_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr)
{
	struct ibv_recv_wr *bad;

	return ibv_post_recv(qp, wr, &bad);
}

COUNTED int counted_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	return ibv_post_send(qp, wr, &bad);
}

COUNTED int counted_post_send16(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	return ibv_post_send(qp, wr, &bad);
}

static void expect(int got, int want, const char *what)
{
	if (got == want)
		return;
	errno = 0;
	die(what);
}

static struct ibv_send_wr send_wr(struct ibv_sge *sge, struct rc *rc)
{
	*sge = (struct ibv_sge){ (uintptr_t)rc->buf + MAX_MSG, PING, rc->mr->lkey };
	return (struct ibv_send_wr){
		.wr_id = 1, .sg_list = sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};
}

static void poll_nothing(struct cost *c)
{
	struct ibv_wc wc;

	/* The first of them also take the streams over from the thread. */
	for (int i = 0; i < TAKE; i++) {
		expect(ibv_poll_cq(c->bare, 1, &wc), 0, "a completion out of nothing");
		expect(ibv_poll_cq(c->rc.cq, 1, &wc), 0, "a completion out of nothing");
	}
	for (int i = 0; i < EMPTY; i++) {
		counted_nothing(c->bare, &wc);
		expect(counted_poll_bare(c->bare, &wc), 0, "a completion out of nothing");
	}
	for (int i = 0; i < EMPTY; i++)
		expect(counted_poll_empty(c->rc.cq, &wc), 0, "a completion out of nothing");
}

/* The last message is solicited, the one event comes for it: all are in the CQ then. */
static void poll_hits(struct cost *c)
{
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *context;

	errno = ibv_req_notify_cq(c->rc.cq, 1);
	if (errno)
		die("ibv_req_notify_cq");
	ctl_meet(c->s);
	if (ibv_get_cq_event(c->rc.events, &cq, &context))
		die("ibv_get_cq_event");
	ibv_ack_cq_events(cq, 1);
	for (int i = 0; i < HITS; i++) {
		expect(counted_poll_hit(c->rc.cq, &wc), 1, "no completion though all have come");
		expect(wc.status, IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
	}
}

static void serve(struct cost *c)
{
	uint64_t end = c->rc.received + SENDS + CHAINS * CHAIN;
	struct ibv_sge sge;
	struct ibv_send_wr wr = send_wr(&sge, &c->rc), *bad;

	ctl_meet(c->s);
	for (int i = 0; i < HITS; i++) {
		if (i + 1 == HITS)
			wr.send_flags |= IBV_SEND_SOLICITED;
		errno = ibv_post_send(c->rc.id->qp, &wr, &bad);
		if (errno)
			die("ibv_post_send");
		c->rc.posted++;
	}
	rc_drain(&c->rc);
	while (c->rc.received < end)
		rc_poll(&c->rc);
	rc_refill(&c->rc);
}

static void post_recvs(struct cost *c)
{
	struct ibv_sge sge = { (uintptr_t)c->rc.buf, MAX_MSG, c->rc.mr->lkey };

	for (int i = 0; i < HITS; i++) {
		struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 };

		expect(counted_post_recv(c->rc.id->qp, &wr), 0, "ibv_post_recv");
	}
}

/* One after the other: the send queue is empty and the stream is this thread's, as long
 * as it polls. */
static void post_sends(struct cost *c)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr[CHAIN], one = send_wr(&sge, &c->rc);

	for (int i = 0; i < CHAIN; i++) {
		wr[i] = one;
		wr[i].next = i + 1 < CHAIN ? &wr[i + 1] : NULL;
	}
	for (int i = 0; i < SENDS; i++) {
		expect(counted_post_send(c->rc.id->qp, &one), 0, "ibv_post_send");
		c->rc.posted++;
		rc_drain(&c->rc);
	}
	for (int i = 0; i < CHAINS; i++) {
		expect(counted_post_send16(c->rc.id->qp, wr), 0, "ibv_post_send");
		c->rc.posted += CHAIN;
		rc_drain(&c->rc);
	}
}

static void warm_up(struct cost *c)
{
	for (int i = 0; i < 2; i++) {
		if (c->s->server == (i == 0))
			rc_stream_rx(&c->rc, SENDS);
		else
			rc_stream_tx(&c->rc, IBV_WR_SEND, PING, SENDS);
		ctl_meet(c->s);
	}
}

void cost_run(struct side *s)
{
	struct cost c = { .s = s };

	rc_open_events(&c.rc, s);
	c.bare = ibv_create_cq(c.rc.id->verbs, 16, NULL, NULL, 0);
	if (!c.bare)
		die("ibv_create_cq");
	warm_up(&c);
	for (unsigned r = 0; r < s->o->rounds; r++) {
		ctl_meet(s);
		if (s->server) {
			serve(&c);
			continue;
		}
		poll_hits(&c);
		post_recvs(&c);
		poll_nothing(&c);
		post_sends(&c);
	}
	if (ibv_destroy_cq(c.bare))
		die("ibv_destroy_cq");
	rc_close(&c.rc, s);
}
