/* SPDX-License-Identifier: BSD-2-Clause */
/* The end of a connection: rdma_disconnect() and destroyed ids, the events of both sides,
 * and what becomes of posted work. */
#include "conf.h"

static void both_sides_get_disconnected(void)
{
	struct rdma_cm_event *ev;
	struct conf_pair c;

	conf_pair_open(&c, NULL);
	OK(rdma_disconnect(c.a));
	ev = conf_get(c.lch, c.p, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(!ev->param.conn.private_data && !ev->param.conn.private_data_len);
	OK(rdma_ack_cm_event(ev));
	OK(rdma_disconnect(c.p));
	ev = conf_get(c.ach, c.a, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(!ev->param.conn.private_data && !ev->param.conn.private_data_len);
	OK(rdma_ack_cm_event(ev));
	conf_pair_free(&c);
}

static void passive_side_may_begin(void)
{
	struct conf_pair c;

	conf_pair_open(&c, NULL);
	OK(rdma_disconnect(c.p));
	conf_expect(c.ach, c.a, RDMA_CM_EVENT_DISCONNECTED);
	OK(rdma_disconnect(c.a));
	conf_expect(c.lch, c.p, RDMA_CM_EVENT_DISCONNECTED);
	conf_pair_free(&c);
}

static void qp_of_the_caller_only_goes_to_err(void)
{
	struct conf_pair c;

	conf_pair_open(&c, NULL);
	OK(rdma_disconnect(c.a));
	QP_STATE(c.a->qp, IBV_QPS_ERR);
	conf_expect(c.lch, c.p, RDMA_CM_EVENT_DISCONNECTED);
	QP_STATE(c.p->qp, IBV_QPS_RTS);
	OK(rdma_disconnect(c.p));
	QP_STATE(c.p->qp, IBV_QPS_ERR);
	conf_expect(c.ach, c.a, RDMA_CM_EVENT_DISCONNECTED);
	conf_pair_free(&c);
}

static void check_flushed(struct ibv_cq *cq, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		conf_wc_is(cq, i, IBV_WC_WR_FLUSH_ERR);
	conf_wc_none(cq, 50);
}

static void receives_are_flushed_in_order(void)
{
	struct conf_buf buf;
	struct conf_pair c;

	conf_pair_open(&c, NULL);
	buf = conf_buf(c.a->pd, 4096, IBV_ACCESS_LOCAL_WRITE);
	for (int i = 0; i < 8; i++) {
		OK(conf_recv(c.a->qp, i, &buf, i * 64, 64));
		OK(conf_recv(c.p->qp, i, &buf, i * 64, 64));
	}
	OK(rdma_disconnect(c.a));
	check_flushed(c.a->recv_cq, 8);
	conf_expect(c.lch, c.p, RDMA_CM_EVENT_DISCONNECTED);
	conf_wc_none(c.p->recv_cq, 50); /* not touched before its own call */
	OK(rdma_disconnect(c.p));
	check_flushed(c.p->recv_cq, 8);
	conf_expect(c.ach, c.a, RDMA_CM_EVENT_DISCONNECTED);
	conf_buf_free(&buf);
	conf_pair_free(&c);
}

static void posting_after_disconnect_is_flushed(void)
{
	struct conf_buf buf;
	struct conf_pair c;

	conf_pair_open(&c, NULL);
	buf = conf_buf(c.a->pd, 4096, IBV_ACCESS_LOCAL_WRITE);
	OK(rdma_disconnect(c.a));
	OK(conf_send(c.a->qp, 77, &buf, 0, 64));
	OK(conf_recv(c.a->qp, 78, &buf, 0, 64));
	conf_wc_is(c.a->send_cq, 77, IBV_WC_WR_FLUSH_ERR);
	conf_wc_is(c.a->recv_cq, 78, IBV_WC_WR_FLUSH_ERR);
	conf_expect(c.lch, c.p, RDMA_CM_EVENT_DISCONNECTED);
	OK(rdma_disconnect(c.p));
	conf_expect(c.ach, c.a, RDMA_CM_EVENT_DISCONNECTED);
	conf_buf_free(&buf);
	conf_pair_free(&c);
}

static void timewait_exit_comes_to_both(void)
{
	struct conf_pair c;

	conf_pair_open(&c, NULL);
	conf_pair_disconnect(&c);
	conf_expect(c.ach, c.a, RDMA_CM_EVENT_TIMEWAIT_EXIT);
	conf_expect(c.lch, c.p, RDMA_CM_EVENT_TIMEWAIT_EXIT);
	conf_quiet(c.ach, 100);
	conf_quiet(c.lch, 100);
	conf_pair_free(&c);
}

static void repeated_disconnect_is_harmless(void)
{
	struct conf_pair c;

	conf_pair_open(&c, NULL);
	OK(rdma_disconnect(c.a));
	OK(rdma_disconnect(c.a));
	conf_expect(c.lch, c.p, RDMA_CM_EVENT_DISCONNECTED);
	OK(rdma_disconnect(c.p));
	OK(rdma_disconnect(c.p));
	conf_expect(c.ach, c.a, RDMA_CM_EVENT_DISCONNECTED);
	OK(rdma_disconnect(c.a));
	conf_expect(c.ach, c.a, RDMA_CM_EVENT_TIMEWAIT_EXIT); /* no second DISCONNECTED */
	conf_expect(c.lch, c.p, RDMA_CM_EVENT_TIMEWAIT_EXIT);
	OK(rdma_disconnect(c.a));
	conf_quiet(c.ach, 100);
	conf_pair_free(&c);
}

static void simultaneous_disconnect(void)
{
	struct conf_pair c;

	conf_pair_open(&c, NULL);
	OK(rdma_disconnect(c.a));
	OK(rdma_disconnect(c.p));
	conf_expect(c.ach, c.a, RDMA_CM_EVENT_DISCONNECTED);
	conf_expect(c.lch, c.p, RDMA_CM_EVENT_DISCONNECTED);
	OK(rdma_disconnect(c.a)); /* as ucmatose does */
	OK(rdma_disconnect(c.p));
	conf_pair_free(&c);
}

static void destroy_without_disconnect(void)
{
	struct conf_pair c;

	conf_pair_open(&c, NULL);
	conf_id_free(c.a);
	c.a = NULL;
	conf_expect(c.lch, c.p, RDMA_CM_EVENT_DISCONNECTED);
	OK(rdma_disconnect(c.p));
	conf_pair_free(&c);
}

static void passive_destroy_without_disconnect(void)
{
	struct conf_pair c;

	conf_pair_open(&c, NULL);
	conf_id_free(c.p);
	c.p = NULL;
	conf_expect(c.ach, c.a, RDMA_CM_EVENT_DISCONNECTED);
	conf_pair_free(&c);
}

/* Destroying the id answers the peer's disconnect as well. */
static void destroy_answers_disconnect(void)
{
	struct conf_pair c;

	conf_pair_open(&c, NULL);
	OK(rdma_disconnect(c.a));
	conf_expect(c.lch, c.p, RDMA_CM_EVENT_DISCONNECTED);
	conf_id_free(c.p);
	c.p = NULL;
	conf_expect(c.ach, c.a, RDMA_CM_EVENT_DISCONNECTED);
	conf_pair_free(&c);
}

static void disconnect_after_destroying_the_qp(void)
{
	struct conf_pair c;

	conf_pair_open(&c, NULL);
	rdma_destroy_qp(c.a);
	CHECK(!c.a->qp);
	conf_quiet(c.lch, CONF_QUIET); /* destroying a QP tells nobody */
	conf_pair_close(&c);
}

/* Disconnected before the passive side fetched ESTABLISHED: both come, in order. */
static void disconnect_right_after_established(void)
{
	struct rdma_conn_param param = conf_param();
	struct conf_pair c;

	conf_pair_request(&c, NULL);
	OK(rdma_accept(c.p, &param));
	conf_expect(c.ach, c.a, RDMA_CM_EVENT_ESTABLISHED);
	OK(rdma_disconnect(c.a));
	conf_expect(c.lch, c.p, RDMA_CM_EVENT_ESTABLISHED);
	conf_expect(c.lch, c.p, RDMA_CM_EVENT_DISCONNECTED);
	OK(rdma_disconnect(c.p));
	conf_expect(c.ach, c.a, RDMA_CM_EVENT_DISCONNECTED);
	conf_pair_free(&c);
}

static void disconnect_in_wrong_states(void)
{
	struct rdma_event_channel *ch = conf_channel();
	struct rdma_cm_id *idle = conf_id(ch), *id;

	ERR(rdma_disconnect(idle), EINVAL);
	id = conf_addr_resolved(ch, conf_addr(AF_INET, 7000));
	ERR(rdma_disconnect(id), EINVAL);
	OK(rdma_resolve_route(id, 1000));
	conf_expect(ch, id, RDMA_CM_EVENT_ROUTE_RESOLVED);
	ERR(rdma_disconnect(id), EINVAL);
	OK(rdma_destroy_id(id));
	conf_id_close(idle);
}

static void disconnect_while_connecting(void)
{
	struct conf_pair c;

	conf_pair_request(&c, NULL);
	OK(rdma_disconnect(c.a)); /* 0, and nothing is sent */
	QP_STATE(c.a->qp, IBV_QPS_ERR);
	conf_quiet(c.lch, 100);
	conf_pair_free(&c);
}

/* The peer got DISCONNECTED and never answers. */
static void unanswered_disconnect_times_out(void)
{
	struct conf_pair c;
	struct pollfd p;

	conf_pair_open(&c, NULL);
	OK(rdma_disconnect(c.a));
	conf_expect(c.lch, c.p, RDMA_CM_EVENT_DISCONNECTED);
	AT("waiting for the disconnect to time out");
	p = (struct pollfd){ .fd = c.ach->fd, .events = POLLIN };
	CHECK(poll(&p, 1, conf_user_device() ? conf_ms(30000) : 150000) == 1);
	conf_expect_status(c.ach, c.a, RDMA_CM_EVENT_DISCONNECTED, -ETIMEDOUT);
	conf_pair_free(&c);
}

/* Programs free the QP themselves and leave id->qp dangling, or set it NULL. */
static void qp_freed_by_verbs_before_destroy(void)
{
	struct conf_pair c;
	struct ibv_cq *cq[2];
	struct ibv_comp_channel *cc[2];

	conf_pair_open(&c, NULL);
	conf_pair_disconnect(&c);
	cq[0] = c.a->send_cq;
	cq[1] = c.a->recv_cq;
	cc[0] = c.a->send_cq_channel;
	cc[1] = c.a->recv_cq_channel;
	OK(ibv_destroy_qp(c.a->qp)); /* dangling from here on */
	for (int i = 0; i < 2; i++) {
		OK(ibv_destroy_cq(cq[i]));
		OK(ibv_destroy_comp_channel(cc[i]));
	}
	OK(rdma_destroy_id(c.a));
	c.a = NULL;
	conf_pair_free(&c);
}

static void synchronous_disconnect_blocks_for_the_event(void)
{
	struct conf_pair c;

	conf_pair_open(&c, NULL);
	OK(rdma_migrate_id(c.a, NULL));
	OK(rdma_disconnect(c.p));
	/* The answer is already queued when the peer was first. */
	WAIT_FOR(conf_readable(c.a->channel->fd));
	OK(rdma_disconnect(c.a));
	MUST(c.a->event);
	EQ(c.a->event->event, RDMA_CM_EVENT_DISCONNECTED);
	conf_expect(c.lch, c.p, RDMA_CM_EVENT_DISCONNECTED);
	conf_pair_free(&c);
}

/* Data sent right before the end arrives: disconnect does not overtake it. */
static void completed_sends_arrive_before_disconnect(void)
{
	struct conf_buf buf, in;
	struct conf_pair c;

	conf_pair_open(&c, NULL);
	buf = conf_buf(c.a->pd, 4096, IBV_ACCESS_LOCAL_WRITE);
	in = conf_buf(c.p->pd, 4096, IBV_ACCESS_LOCAL_WRITE);
	conf_pattern(buf.p, 4096, 3);
	OK(conf_recv(c.p->qp, 5, &in, 0, 4096));
	OK(conf_send(c.a->qp, 6, &buf, 0, 4096));
	conf_wc_ok(c.a->send_cq, 6);
	OK(rdma_disconnect(c.a));
	conf_wc_ok(c.p->recv_cq, 5);
	CHECK(conf_pattern_ok(in.p, 4096, 3));
	conf_expect(c.lch, c.p, RDMA_CM_EVENT_DISCONNECTED);
	OK(rdma_disconnect(c.p));
	conf_expect(c.ach, c.a, RDMA_CM_EVENT_DISCONNECTED);
	conf_buf_free(&buf);
	conf_buf_free(&in);
	conf_pair_free(&c);
}

static const struct conf_case cases[] = {
	CASE(both_sides_get_disconnected),
	CASE(passive_side_may_begin),
	CASE(qp_of_the_caller_only_goes_to_err),
	CASE(receives_are_flushed_in_order),
	CASE(posting_after_disconnect_is_flushed),
	CASE(timewait_exit_comes_to_both),
	CASE(repeated_disconnect_is_harmless),
	CASE(simultaneous_disconnect),
	CASE(destroy_without_disconnect),
	CASE(passive_destroy_without_disconnect),
	CASE(destroy_answers_disconnect),
	CASE(disconnect_after_destroying_the_qp),
	CASE(disconnect_right_after_established),
	CASE(disconnect_in_wrong_states),
	CASE(disconnect_while_connecting),
	LONG_CASE(unanswered_disconnect_times_out, 80),
	CASE(qp_freed_by_verbs_before_destroy),
	CASE(synchronous_disconnect_blocks_for_the_event),
	CASE(completed_sends_arrive_before_disconnect),
};

CONF_MAIN(cases)
