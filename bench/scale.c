/* SPDX-License-Identifier: BSD-2-Clause */
/* How costs grow with what is idle: an event on a channel that many ids share, a
 * message on one connection whose CQ serves many. Between measurements the number
 * grows, so each is measured `rounds` times before the next. */
#include "bench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { EVENTS = 2000, PINGS = 20000, UNDER_WAY = 16 };

static const uint32_t id_steps[] = { 10, 1000, 100000 };
static const uint32_t qp_steps[] = { 1, 100, 10000 };
enum { STEPS = 3 };

struct scale {
	struct side *s;
	struct rdma_event_channel *ch;
	struct rdma_cm_id *listener;
	struct rdma_cm_id **id;
	struct pool pool;
	uint16_t port;
	uint32_t up;
};

static bool step_wanted(struct side *s, const char *what, uint32_t n, char kind[16])
{
	snprintf(kind, 16, "%s %u", what, n);
	return kind_wanted(s, kind);
}

/* ---- ids of one channel -------------------------------------------------------------- */

/* An id comes, has an event and goes: microseconds. */
static double event_cycle(struct scale *c)
{
	double t = now_s();

	for (int i = 0; i < EVENTS; i++) {
		struct rdma_cm_id *id = cm_start(c->ch, c->s->o->addr, 1);

		if (cm_expect(c->ch, RDMA_CM_EVENT_ADDR_RESOLVED) != id ||
		    rdma_destroy_id(id))
			die("event of an id");
	}
	return (now_s() - t) / EVENTS * 1e6;
}

static void ids_run(struct scale *c)
{
	struct rdma_cm_id **idle = calloc(id_steps[STEPS - 1], sizeof(*idle));
	uint32_t have = 0;
	char kind[16];

	if (!idle)
		die("memory");
	for (int k = 0; k < STEPS; k++) {
		if (!step_wanted(c->s, "ids", id_steps[k], kind))
			continue;
		for (; have < id_steps[k]; have++)
			if (rdma_create_id(c->ch, &idle[have], NULL, RDMA_PS_TCP))
				die("rdma_create_id");
		event_cycle(c);
		for (uint32_t r = 0; r < c->s->o->rounds; r++)
			side_emit(c->s, "event", kind, 0, r, event_cycle(c));
	}
	while (have)
		rdma_destroy_id(idle[--have]);
	free(idle);
}

/* ---- QPs of one CQ ------------------------------------------------------------------- */

static void make_qp(struct scale *c, struct rdma_cm_id *id)
{
	pool_open(&c->pool, id->verbs, 4 * (int)qp_steps[STEPS - 1]);
	pool_qp(&c->pool, id, 1);
}

static void accept_upto(struct scale *c, uint32_t n)
{
	struct rdma_conn_param p;
	struct rdma_cm_id *id;
	uint32_t begun = c->up;

	cm_param(&p, false);
	while (c->up < n) {
		switch (cm_next(c->ch, &id)) {
		case RDMA_CM_EVENT_CONNECT_REQUEST:
			make_qp(c, id);
			if (rdma_accept(id, &p))
				die("rdma_accept");
			c->id[begun++] = id;
			break;
		case RDMA_CM_EVENT_ESTABLISHED:
			c->up++;
			break;
		default:
			errno = EPROTO;
			die("event at the server");
		}
	}
}

static void connect_upto(struct scale *c, uint32_t n)
{
	struct rdma_conn_param p;

	cm_param(&p, true);
	for (; c->up < n; c->up++) {
		struct rdma_cm_id *id = cm_start(c->ch, c->s->o->addr, c->port);

		cm_expect(c->ch, RDMA_CM_EVENT_ADDR_RESOLVED);
		if (rdma_resolve_route(id, 2000))
			die("rdma_resolve_route");
		cm_expect(c->ch, RDMA_CM_EVENT_ROUTE_RESOLVED);
		make_qp(c, id);
		if (rdma_connect(id, &p))
			die("rdma_connect");
		cm_expect(c->ch, RDMA_CM_EVENT_ESTABLISHED);
		c->id[c->up] = id;
	}
}

static void wait_message(struct scale *c)
{
	struct ibv_wc wc;

	do {
		while (!ibv_poll_cq(c->pool.cq, 1, &wc))
			;
		if (wc.status != IBV_WC_SUCCESS)
			die("completion");
	} while (wc.opcode != IBV_WC_RECV);
}

static void post_send(struct scale *c, struct ibv_qp *qp)
{
	struct ibv_sge sge = { (uintptr_t)c->pool.buf, PING, c->pool.mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	errno = ibv_post_send(qp, &wr, &bad);
	if (errno)
		die("ibv_post_send");
}

/* To and fro on one connection: microseconds for each of the two completions that
 * a side has in a round trip. */
static double ping_pong(struct scale *c)
{
	struct ibv_qp *qp = c->id[c->up / 2]->qp;
	double t = now_s();

	for (int i = 0; i < PINGS; i++) {
		if (!c->s->server)
			post_send(c, qp);
		wait_message(c);
		pool_recv(&c->pool, qp);
		if (c->s->server)
			post_send(c, qp);
	}
	return (now_s() - t) / (2.0 * PINGS) * 1e6;
}

static void qps_run(struct scale *c)
{
	char kind[16];

	for (int k = 0; k < STEPS; k++) {
		if (!step_wanted(c->s, "qps", qp_steps[k], kind))
			continue;
		if (c->s->server)
			accept_upto(c, qp_steps[k]);
		else
			connect_upto(c, qp_steps[k]);
		ctl_meet(c->s);
		for (uint32_t r = 0; r <= c->s->o->rounds; r++) {
			double us = ping_pong(c);

			if (!c->s->server && r)
				side_emit(c->s, "completion", kind, 0, r - 1, us);
		}
		ctl_meet(c->s);
	}
	for (uint32_t i = 0; i < c->up; i++) {
		rdma_destroy_qp(c->id[i]);
		if (rdma_destroy_id(c->id[i]))
			die("rdma_destroy_id");
	}
}

void scale_run(struct side *s)
{
	struct scale c = { .s = s };

	c.id = calloc(qp_steps[STEPS - 1], sizeof(*c.id));
	c.ch = cm_channel();
	if (!c.id)
		die("memory");
	if (s->server) {
		c.listener = cm_listen(c.ch, s->o->addr, &c.port);
		ctl_put(s, &c.port, sizeof(c.port));
	} else {
		ctl_get(s, &c.port, sizeof(c.port));
		ids_run(&c);
	}
	qps_run(&c);
	ctl_meet(s);
	if (c.pool.pd && (ibv_dereg_mr(c.pool.mr) || ibv_destroy_cq(c.pool.cq) ||
			  ibv_dealloc_pd(c.pool.pd)))
		die("destroying MR, CQ, PD");
	if (c.listener && rdma_destroy_id(c.listener))
		die("rdma_destroy_id");
	rdma_destroy_event_channel(c.ch);
	free(c.pool.buf);
	free(c.id);
}
