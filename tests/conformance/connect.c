/* SPDX-License-Identifier: BSD-2-Clause */
/* Connecting with a QP of the library: events and their fields, private data,
 * rejects, depths, states of the QP, wrong calls. */
#include "conf.h"

static uint8_t data[256];

static void fill_data(void)
{
	conf_pattern(data, sizeof(data), 7);
}

/* What the request event says. */
static void request_event_fields(void)
{
	struct rdma_conn_param param = {
		.private_data = data,
		.private_data_len = 20,
		.responder_resources = 3,
		.initiator_depth = 2,
		.flow_control = 1,
		.retry_count = 5,
		.rnr_retry_count = 6,
		.srq = 1, /* ignored: there is a QP */
		.qp_num = 0x123456,
	};
	struct rdma_conn_param *got;
	struct rdma_cm_event *ev;
	struct conf_pair c;

	fill_data();
	conf_pair_resolve(&c, NULL);
	OK(rdma_connect(c.a, &param));
	ev = conf_get(c.lch, NULL, RDMA_CM_EVENT_CONNECT_REQUEST);
	got = &ev->param.conn;
	conf_private(got, data, 20, 56);
	EQ(got->responder_resources, 2); /* the peer's initiator depth */
	EQ(got->initiator_depth, 3);
	EQ(got->flow_control, 1);
	EQ(got->retry_count, 5);
	EQ(got->rnr_retry_count, 6);
	EQ(got->srq, 0);
	EQ(got->qp_num, c.a->qp->qp_num);
	c.p = ev->id;
	OK(rdma_ack_cm_event(ev));
	conf_pair_free(&c);
}

static void request_retries_are_clamped(void)
{
	struct rdma_conn_param param = { .retry_count = 15, .rnr_retry_count = 200 };
	struct rdma_cm_event *ev;
	struct conf_pair c;

	conf_pair_resolve(&c, NULL);
	OK(rdma_connect(c.a, &param));
	ev = conf_get(c.lch, NULL, RDMA_CM_EVENT_CONNECT_REQUEST);
	EQ(ev->param.conn.retry_count, 7);
	EQ(ev->param.conn.rnr_retry_count, 7);
	c.p = ev->id;
	OK(rdma_ack_cm_event(ev));
	conf_pair_free(&c);
}

/* Everything that connect(NULL) means. */
static void connect_without_param(void)
{
	struct ibv_device_attr dev;
	struct rdma_conn_param *got;
	struct rdma_cm_event *ev;
	struct conf_pair c;

	conf_pair_resolve(&c, NULL);
	OK(ibv_query_device(c.a->verbs, &dev));
	OK(rdma_connect(c.a, NULL));
	ev = conf_get(c.lch, NULL, RDMA_CM_EVENT_CONNECT_REQUEST);
	got = &ev->param.conn;
	conf_private(got, NULL, 0, 56);
	EQ(got->responder_resources, (uint8_t)dev.max_qp_init_rd_atom);
	EQ(got->initiator_depth, (uint8_t)dev.max_qp_rd_atom);
	EQ(got->retry_count, 7);
	EQ(got->rnr_retry_count, 7);
	EQ(got->flow_control, 0);
	c.p = ev->id;
	OK(rdma_ack_cm_event(ev));
	conf_pair_free(&c);
}

static void established_event_fields(void)
{
	struct rdma_conn_param param = {
		.private_data = data,
		.private_data_len = 33,
		.responder_resources = 1,
		.initiator_depth = 2,
		.flow_control = 1,
		.retry_count = 3,
		.rnr_retry_count = 4,
	};
	struct rdma_conn_param connect = { .responder_resources = 4, .initiator_depth = 4 };
	struct conf_opt opt = { .connect = &connect };
	struct rdma_conn_param *got;
	struct rdma_cm_event *ev;
	struct conf_pair c;

	fill_data();
	conf_pair_request(&c, &opt);
	OK(rdma_accept(c.p, &param));
	ev = conf_get(c.ach, c.a, RDMA_CM_EVENT_ESTABLISHED);
	got = &ev->param.conn;
	conf_private(got, data, 33, 196);
	EQ(got->responder_resources, 2);
	EQ(got->initiator_depth, 1);
	EQ(got->flow_control, 1);
	EQ(got->retry_count, 0);
	EQ(got->rnr_retry_count, 4);
	EQ(got->srq, 0);
	EQ(got->qp_num, c.p->qp->qp_num);
	OK(rdma_ack_cm_event(ev));
	ev = conf_get(c.lch, c.p, RDMA_CM_EVENT_ESTABLISHED);
	got = &ev->param.conn;
	CHECK(!got->private_data && !got->private_data_len);
	CHECK(!got->responder_resources && !got->initiator_depth && !got->qp_num);
	CHECK(!got->flow_control && !got->retry_count && !got->rnr_retry_count);
	OK(rdma_ack_cm_event(ev));
	conf_pair_close(&c);
}

static void established_over_ipv6(void)
{
	struct conf_opt opt = { .family = AF_INET6 };
	struct conf_pair c;

	conf_pair_open(&c, &opt);
	EQ(rdma_get_peer_addr(c.p)->sa_family, AF_INET6);
	conf_pair_close(&c);
}

static void check_request_data(unsigned len)
{
	struct rdma_conn_param param = conf_param();
	struct rdma_cm_event *ev;
	struct conf_pair c;

	param.private_data = data;
	param.private_data_len = len;
	conf_pair_resolve(&c, NULL);
	OK(rdma_connect(c.a, &param));
	ev = conf_get(c.lch, NULL, RDMA_CM_EVENT_CONNECT_REQUEST);
	conf_private(&ev->param.conn, data, len, 56);
	c.p = ev->id;
	OK(rdma_ack_cm_event(ev));
	conf_pair_free(&c);
}

static void private_data_of_connect(void)
{
	fill_data();
	check_request_data(0);
	check_request_data(1);
	check_request_data(55);
	check_request_data(56);
}

static void private_data_of_connect_too_long(void)
{
	struct rdma_conn_param param = conf_param();
	struct conf_pair c;

	conf_pair_resolve(&c, NULL);
	param.private_data = data;
	param.private_data_len = 57;
	ERR(rdma_connect(c.a, &param), EINVAL);
	param.private_data_len = 255;
	ERR(rdma_connect(c.a, &param), EINVAL);
	param.private_data_len = 56;
	OK(rdma_connect(c.a, &param)); /* a refused call may be repeated */
	c.p = conf_request(c.lch);
	conf_pair_free(&c);
}

static void check_reply_data(unsigned len)
{
	struct rdma_conn_param param = conf_param();
	struct rdma_cm_event *ev;
	struct conf_pair c;

	conf_pair_request(&c, NULL);
	param.private_data = data;
	param.private_data_len = len;
	OK(rdma_accept(c.p, &param));
	ev = conf_get(c.ach, c.a, RDMA_CM_EVENT_ESTABLISHED);
	conf_private(&ev->param.conn, data, len, 196);
	OK(rdma_ack_cm_event(ev));
	conf_expect(c.lch, c.p, RDMA_CM_EVENT_ESTABLISHED);
	conf_pair_close(&c);
}

static void private_data_of_accept(void)
{
	fill_data();
	check_reply_data(0);
	check_reply_data(1);
	check_reply_data(196);
}

static void private_data_of_accept_too_long(void)
{
	struct rdma_conn_param param = conf_param();
	struct rdma_cm_event *ev;
	struct conf_pair c;

	conf_pair_request(&c, NULL);
	param.private_data = data;
	param.private_data_len = 197;
	ERR(rdma_accept(c.p, &param), EINVAL);
	MUST(ev = conf_next(c.ach, conf_ms(CONF_WAIT))); /* a failed accept rejects */
	EQ(ev->event, RDMA_CM_EVENT_REJECTED);
	EQ(ev->status, conf_rejected());
	OK(rdma_ack_cm_event(ev));
	QP_STATE(c.p->qp, IBV_QPS_ERR);
	conf_pair_free(&c);
}

static void check_reject(unsigned len)
{
	struct rdma_cm_event *ev;
	struct conf_pair c;

	conf_pair_request(&c, NULL);
	OK(rdma_reject(c.p, len ? data : NULL, len));
	ev = conf_get_status(c.ach, c.a, RDMA_CM_EVENT_REJECTED, conf_rejected());
	conf_private(&ev->param.conn, data, len, 148);
	OK(rdma_ack_cm_event(ev));
	QP_STATE(c.a->qp, IBV_QPS_ERR);
	conf_quiet(c.lch, 50);
	conf_pair_free(&c);
}

static void private_data_of_reject(void)
{
	fill_data();
	check_reject(0);
	check_reject(1);
	check_reject(148);
}

static void private_data_of_reject_too_long(void)
{
	struct conf_pair c;

	conf_pair_request(&c, NULL);
	ERR(rdma_reject(c.p, data, 149), EINVAL);
	conf_quiet(c.ach, 100); /* nothing was sent */
	OK(rdma_reject(c.p, data, 148));
	conf_expect_status(c.ach, c.a, RDMA_CM_EVENT_REJECTED, conf_rejected());
	conf_pair_free(&c);
}

static void reject_for_ece_is_35(void)
{
	struct rdma_cm_event *ev;
	struct conf_pair c;

	fill_data();
	conf_pair_request(&c, NULL);
	OK(rdma_reject_ece(c.p, data, 9));
	ev = conf_get_status(c.ach, c.a, RDMA_CM_EVENT_REJECTED, 35);
	EQ(ev->param.conn.private_data_len, 148);
	CHECK(!memcmp(ev->param.conn.private_data, data, 9));
	OK(rdma_ack_cm_event(ev));
	conf_pair_free(&c);
}

static void rejected_id_cannot_connect_again(void)
{
	struct rdma_conn_param param = conf_param();
	struct conf_pair c;

	conf_pair_request(&c, NULL);
	OK(rdma_reject(c.p, NULL, 0));
	conf_expect_status(c.ach, c.a, RDMA_CM_EVENT_REJECTED, conf_rejected());
	ERR(rdma_connect(c.a, &param), EINVAL);
	conf_pair_free(&c);
}

/* The QP at each moment. */

static void qp_states_on_the_way(void)
{
	struct rdma_conn_param param = conf_param();
	struct conf_pair c;

	conf_pair_request(&c, NULL);
	EQ(conf_qp_state(c.a->qp), IBV_QPS_INIT);
	EQ(conf_qp_state(c.p->qp), IBV_QPS_INIT);
	OK(rdma_accept(c.p, &param));
	EQ(conf_qp_state(c.p->qp), IBV_QPS_RTS);
	WAIT_FOR(conf_readable(c.ach->fd));
	EQ(conf_qp_state(c.a->qp), IBV_QPS_INIT); /* until its event is fetched */
	conf_quiet(c.lch, CONF_QUIET); /* ... no RTU, so nothing here */
	conf_expect(c.ach, c.a, RDMA_CM_EVENT_ESTABLISHED);
	EQ(conf_qp_state(c.a->qp), IBV_QPS_RTS);
	conf_expect(c.lch, c.p, RDMA_CM_EVENT_ESTABLISHED);
	conf_pair_close(&c);
}

static void qp_access_before_connecting(void)
{
	struct rdma_cm_id *id = conf_device_id();
	struct ibv_qp_attr attr;

	conf_qp(id, 4);
	conf_qp_query(id->qp, &attr);
	EQ(attr.qp_state, IBV_QPS_INIT);
	EQ(attr.qp_access_flags, 0);
	EQ(attr.port_num, id->port_num);
	EQ(attr.pkey_index, 0);
	conf_id_close(id);
}

static void qp_attributes_when_connected(void)
{
	struct rdma_conn_param con = conf_param(), acc = conf_param();
	struct conf_opt opt = { .connect = &con, .accept = &acc };
	struct ibv_port_attr port;
	struct ibv_qp_attr a, p;
	struct conf_pair c;

	con.retry_count = 5;
	con.rnr_retry_count = 3;
	acc.rnr_retry_count = 2;
	acc.retry_count = 1; /* never transmitted */
	conf_pair_open(&c, &opt);
	OK(ibv_query_port(c.a->verbs, 1, &port));
	conf_qp_query(c.a->qp, &a);
	conf_qp_query(c.p->qp, &p);
	EQ(a.dest_qp_num, c.p->qp->qp_num);
	EQ(p.dest_qp_num, c.a->qp->qp_num);
	EQ(a.path_mtu, port.active_mtu);
	EQ(p.path_mtu, port.active_mtu);
	EQ(a.retry_cnt, 5);
	EQ(p.retry_cnt, 5);
	EQ(a.rnr_retry, 2);
	EQ(p.rnr_retry, 3);
	EQ(a.min_rnr_timer, 0);
	EQ(p.min_rnr_timer, 0);
	CHECK(a.timeout > 0 && p.timeout > 0);
	CHECK(a.ah_attr.is_global && p.ah_attr.is_global);
	CHECK(!memcmp(&a.ah_attr.grh.dgid, &c.a->route.addr.addr.ibaddr.dgid, 16));
	conf_pair_close(&c);
}

static void psns_cross(void)
{
	struct ibv_qp_attr a, p;
	struct conf_pair c;

	conf_pair_open(&c, NULL);
	conf_qp_query(c.a->qp, &a);
	conf_qp_query(c.p->qp, &p);
	EQ(a.sq_psn, p.rq_psn);
	EQ(p.sq_psn, a.rq_psn);
	conf_pair_close(&c);
}

/* Wrong calls. */

static void connect_in_wrong_states(void)
{
	struct rdma_conn_param param = conf_param();
	struct rdma_cm_id *id = conf_device_id();

	ERR(rdma_connect(id, &param), EINVAL); /* no route yet */
	conf_qp(id, 4);
	ERR(rdma_connect(id, &param), EINVAL);
	conf_id_close(id);
}

static void connect_unbound(void)
{
	struct rdma_event_channel *ch;
	struct rdma_conn_param param = conf_param();
	struct rdma_cm_id *id;

	if (conf_original())
		SKIP("crashes the original");
	ch = conf_channel();
	id = conf_id(ch);
	ERR(rdma_connect(id, &param), EINVAL);
	conf_id_close(id);
}

static void connect_without_qp_and_param(void)
{
	struct rdma_event_channel *ch = conf_channel();
	struct rdma_cm_id *id = conf_route_resolved(ch, conf_addr(AF_INET, 7000));

	ERR(rdma_connect(id, NULL), EINVAL);
	conf_id_close(id);
}

static void connect_twice(void)
{
	struct rdma_conn_param param = conf_param();
	struct conf_pair c;

	conf_pair_request(&c, NULL);
	ERR(rdma_connect(c.a, &param), EINVAL);
	conf_pair_accept(&c);
	ERR(rdma_connect(c.a, &param), EINVAL);
	ERR(rdma_connect(c.p, &param), EINVAL);
	conf_quiet(c.lch, 50);
	conf_pair_close(&c);
}

static void accept_null_param_without_qp(void)
{
	struct conf_pair c;

	if (conf_original())
		SKIP("crashes the original");
	conf_pair_request(&c, NULL);
	rdma_destroy_qp(c.p);
	ERR(rdma_accept(c.p, NULL), EINVAL);
	conf_pair_free(&c);
}

static void reject_when_established(void)
{
	struct conf_pair c;

	conf_pair_open(&c, NULL);
	ERR(rdma_reject(c.p, NULL, 0), EINVAL);
	ERR(rdma_reject(c.a, NULL, 0), EINVAL);
	conf_quiet(c.ach, 50); /* the connection lives */
	conf_quiet(c.lch, 50);
	conf_pair_close(&c);
}

static void accept_after_reject(void)
{
	struct rdma_conn_param param = conf_param();
	struct conf_pair c;

	conf_pair_request(&c, NULL);
	OK(rdma_reject(c.p, NULL, 0));
	ERR(rdma_accept(c.p, &param), EINVAL);
	conf_expect_status(c.ach, c.a, RDMA_CM_EVENT_REJECTED, conf_rejected());
	conf_pair_free(&c);
}

static void accept_idle(void)
{
	struct rdma_conn_param param = conf_param();
	struct rdma_cm_id *id = conf_device_id();

	ERR(rdma_accept(id, &param), EINVAL);
	ERR(rdma_reject(id, NULL, 0), EINVAL);
	ERR(rdma_establish(id), EINVAL);
	conf_id_close(id);
}

/* One end goes away on the way. */

static void active_destroyed_before_accept(void)
{
	struct rdma_conn_param param = conf_param();
	struct conf_pair c;

	conf_pair_request(&c, NULL);
	conf_id_free(c.a);
	c.a = NULL;
	conf_quiet(c.lch, CONF_QUIET); /* no events before accept */
	conf_settle(); /* the end was seen */
	ERR(rdma_accept(c.p, &param), EINVAL);
	conf_quiet(c.lch, 50);
	conf_pair_free(&c);
}

static void active_destroyed_before_its_event(void)
{
	struct rdma_conn_param param = conf_param();
	struct conf_pair c;

	conf_pair_request(&c, NULL);
	OK(rdma_accept(c.p, &param));
	WAIT_FOR(conf_readable(c.ach->fd));
	conf_id_free(c.a); /* drops the event */
	c.a = NULL;
	CHECK(!conf_readable(c.ach->fd));
	conf_expect_status(c.lch, c.p, RDMA_CM_EVENT_REJECTED, conf_rejected());
	EQ(conf_qp_state(c.p->qp), IBV_QPS_ERR);
	conf_pair_free(&c);
}

static void passive_destroyed_before_accept(void)
{
	struct conf_pair c;

	conf_pair_request(&c, NULL);
	conf_id_free(c.p);
	c.p = NULL;
	conf_expect_status(c.ach, c.a, RDMA_CM_EVENT_REJECTED, conf_rejected());
	conf_pair_free(&c);
}

/* Accepted, destroyed before the active side looked: it must hear of a failure,
 * and must not believe that it is connected for long. */
static void passive_destroyed_after_accept(void)
{
	struct rdma_conn_param param = conf_param();
	struct rdma_cm_event *ev;
	struct conf_pair c;

	conf_pair_request(&c, NULL);
	OK(rdma_accept(c.p, &param));
	WAIT_FOR(conf_readable(c.ach->fd));
	conf_id_free(c.p);
	c.p = NULL;
	conf_settle();
	MUST(ev = conf_next(c.ach, conf_ms(CONF_WAIT)));
	if (ev->event == RDMA_CM_EVENT_ESTABLISHED) {
		OK(rdma_ack_cm_event(ev));
		MUST(ev = conf_next(c.ach, conf_ms(CONF_WAIT)));
		EQ(ev->event, RDMA_CM_EVENT_DISCONNECTED);
	} else if (ev->event != RDMA_CM_EVENT_REJECTED) {
		EQ(ev->event, RDMA_CM_EVENT_CONNECT_ERROR);
	}
	OK(rdma_ack_cm_event(ev));
	conf_pair_free(&c);
}

static void simultaneous_connects(void)
{
	struct rdma_conn_param param = conf_param();
	struct conf_pair x, y;

	conf_pair_resolve(&x, NULL);
	conf_pair_resolve(&y, NULL);
	OK(rdma_connect(x.a, &param));
	OK(rdma_connect(y.a, &param));
	x.p = conf_request(x.lch);
	y.p = conf_request(y.lch);
	conf_qp(x.p, 4);
	conf_qp(y.p, 4);
	conf_pair_accept(&x);
	conf_pair_accept(&y);
	conf_pair_close(&x);
	conf_pair_close(&y);
}

/* Acknowledging the request late, after accept; and calls inside the handler. */
static void accept_before_ack(void)
{
	struct rdma_conn_param param = conf_param();
	struct rdma_cm_event *ev;
	struct conf_pair c = { .lch = conf_channel(), .ach = conf_channel() };

	c.listener = conf_listen(c.lch, AF_INET, 4);
	c.a = conf_id(c.ach);
	conf_sa dst = conf_listen_addr(c.listener);
	OK(rdma_resolve_addr(c.a, NULL, SA(dst), 2000));
	ev = conf_get(c.ach, c.a, RDMA_CM_EVENT_ADDR_RESOLVED);
	conf_qp(c.a, 4);
	OK(rdma_resolve_route(c.a, 2000));
	OK(rdma_ack_cm_event(ev));
	ev = conf_get(c.ach, c.a, RDMA_CM_EVENT_ROUTE_RESOLVED);
	OK(rdma_connect(c.a, &param));
	OK(rdma_ack_cm_event(ev));
	ev = conf_get(c.lch, NULL, RDMA_CM_EVENT_CONNECT_REQUEST);
	c.p = ev->id;
	conf_qp(c.p, 4);
	OK(rdma_accept(c.p, &ev->param.conn)); /* as rsockets do */
	OK(rdma_ack_cm_event(ev));
	conf_expect(c.ach, c.a, RDMA_CM_EVENT_ESTABLISHED);
	conf_expect(c.lch, c.p, RDMA_CM_EVENT_ESTABLISHED);
	conf_pair_close(&c);
}

static void connection_storm(void)
{
	int n = conf_user_device() ? 100 : 30;
	struct conf_pair c;

	for (int i = 0; i < n; i++) {
		conf_pair_open(&c, NULL);
		conf_pair_close(&c);
	}
}

static const struct conf_case cases[] = {
	CASE(request_event_fields),
	CASE(request_retries_are_clamped),
	CASE(connect_without_param),
	CASE(established_event_fields),
	CASE(established_over_ipv6),
	CASE(private_data_of_connect),
	CASE(private_data_of_connect_too_long),
	CASE(private_data_of_accept),
	CASE(private_data_of_accept_too_long),
	CASE(private_data_of_reject),
	CASE(private_data_of_reject_too_long),
	CASE(reject_for_ece_is_35),
	CASE(rejected_id_cannot_connect_again),
	CASE(qp_states_on_the_way),
	CASE(qp_access_before_connecting),
	CASE(qp_attributes_when_connected),
	CASE(psns_cross),
	CASE(connect_in_wrong_states),
	CASE(connect_unbound),
	CASE(connect_without_qp_and_param),
	CASE(connect_twice),
	CASE(accept_null_param_without_qp),
	CASE(reject_when_established),
	CASE(accept_after_reject),
	CASE(accept_idle),
	CASE(active_destroyed_before_accept),
	CASE(active_destroyed_before_its_event),
	CASE(passive_destroyed_before_accept),
	CASE(passive_destroyed_after_accept),
	CASE(simultaneous_connects),
	CASE(accept_before_ack),
	LONG_CASE(connection_storm, 60),
};

CONF_MAIN(cases)
