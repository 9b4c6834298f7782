/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections whose QP is not the id's: conn_param.qp_num, rdma_init_qp_attr,
 * CONNECT_RESPONSE, rdma_establish; and rdma_notify. */
#include "conf.h"

struct ext {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static struct ext ext_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = CONF_CAP(8, 8, 1),
	};
	struct ext e;

	MUST(e.cq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0));
	attr.send_cq = attr.recv_cq = e.cq;
	MUST(e.qp = ibv_create_qp(id->pd, &attr));
	return e;
}

static void ext_free(struct ext *e)
{
	OK(ibv_destroy_qp(e->qp));
	OK(ibv_destroy_cq(e->cq));
}

static void ext_move(struct rdma_cm_id *id, struct ext *e, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask, ret;

	OK(rdma_init_qp_attr(id, &attr, &mask));
	CHECK(mask & IBV_QP_STATE);
	attr.qp_state = state;
	ret = ibv_modify_qp(e->qp, &attr, mask);
	if (ret)
		FAIL("ibv_modify_qp to state %d: %s", state, strerror(ret));
}

static void ext_move_to_rts(struct rdma_cm_id *id, struct ext *e)
{
	ext_move(id, e, IBV_QPS_INIT);
	ext_move(id, e, IBV_QPS_RTR);
	ext_move(id, e, IBV_QPS_RTS);
}

/* Numbers that are no QP's, above those that kernel drivers give, and of this process
 * alone: a kernel takes a second request from one number for a stale one. */
static uint32_t nobodys(unsigned i)
{
	return 0x800000 + (uint32_t)getpid() % 0x40000 * 8 + i;
}

static const struct conf_opt bare = { .bare = true };

/* A pair of ids without QPs, up to the acknowledged request, which has this number and
 * flag. */
static void request(struct conf_pair *c, uint32_t qp_num, uint8_t srq)
{
	struct rdma_conn_param param = conf_param();
	struct rdma_cm_event *ev;

	conf_pair_resolve(c, &bare);
	param.qp_num = qp_num;
	param.srq = srq;
	OK(rdma_connect(c->a, &param));
	ev = conf_get(c->lch, NULL, RDMA_CM_EVENT_CONNECT_REQUEST);
	EQ(ev->param.conn.qp_num, qp_num & 0xffffff);
	EQ(ev->param.conn.srq, srq);
	c->p = ev->id;
	OK(rdma_ack_cm_event(ev));
}

static void check_data(struct ext *from, struct ext *to, struct ibv_pd *pd)
{
	struct conf_buf b = conf_buf(pd, 8192, CONF_RW);
	struct ibv_sge sge = conf_sge(&b, 0, 1000);
	struct ibv_send_wr wr = conf_wr(1, IBV_WR_SEND, &sge, 1);
	struct ibv_wc wc;

	conf_pattern(b.p, 1000, 9);
	OK(conf_recv(to->qp, 2, &b, 4096, 1000));
	OK(conf_post(from->qp, &wr));
	conf_wc_ok(from->cq, 1);
	conf_wc_get(to->cq, 2, IBV_WC_SUCCESS, &wc);
	EQ(wc.byte_len, 1000);
	CHECK(conf_pattern_ok(b.p + 4096, 1000, 9));
	conf_buf_free(&b);
}

/* The full flow of rping -q: both sides move their QPs themselves. */
static void both_sides_external(void)
{
	struct conf_pair c;
	struct rdma_conn_param param = conf_param();
	struct rdma_conn_param con = conf_param();
	struct rdma_cm_event *ev;
	struct ext a, p;

	conf_pair_resolve(&c, &bare);
	a = ext_qp(c.a);
	ext_move(c.a, &a, IBV_QPS_INIT);
	con.qp_num = a.qp->qp_num;
	OK(rdma_connect(c.a, &con));
	c.p = conf_request(c.lch);
	p = ext_qp(c.p);
	ext_move_to_rts(c.p, &p);
	param.qp_num = p.qp->qp_num;
	param.private_data = "reply";
	param.private_data_len = 5;
	OK(rdma_accept(c.p, &param));
	ev = conf_get(c.ach, c.a, RDMA_CM_EVENT_CONNECT_RESPONSE);
	EQ(ev->param.conn.qp_num, p.qp->qp_num);
	EQ(ev->param.conn.private_data_len, 196);
	CHECK(!memcmp(ev->param.conn.private_data, "reply", 6));
	OK(rdma_ack_cm_event(ev));
	ext_move_to_rts(c.a, &a);
	conf_quiet(c.lch, 100); /* not before rdma_establish */
	OK(rdma_establish(c.a));
	conf_expect(c.lch, c.p, RDMA_CM_EVENT_ESTABLISHED);
	conf_quiet(c.ach, 50); /* no event on this side */
	check_data(&a, &p, c.a->pd);
	check_data(&p, &a, c.a->pd);
	conf_pair_disconnect(&c);
	EQ(conf_qp_state(a.qp), IBV_QPS_RTS); /* not the library's QP */
	ext_free(&a);
	ext_free(&p);
	conf_pair_free(&c);
}

/* One side with the library's QP, the other without. */
static void passive_side_external(void)
{
	struct conf_pair c;
	struct rdma_conn_param param = conf_param();
	struct ext p;

	conf_pair_resolve(&c, NULL);
	OK(rdma_connect(c.a, &param));
	c.p = conf_request(c.lch);
	p = ext_qp(c.p);
	ext_move_to_rts(c.p, &p);
	param.qp_num = p.qp->qp_num;
	OK(rdma_accept(c.p, &param));
	conf_expect(c.ach, c.a, RDMA_CM_EVENT_ESTABLISHED);
	conf_expect(c.lch, c.p, RDMA_CM_EVENT_ESTABLISHED);
	check_data(&(struct ext){ c.a->send_cq, c.a->qp }, &p, c.a->pd);
	conf_pair_disconnect(&c);
	ext_free(&p);
	conf_pair_free(&c);
}

/* The request names a QP that is connected to itself: this needs no stream of the CM. */
static void requester_connected_to_itself(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	struct rdma_conn_param param = conf_param();
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct conf_pair c;
	struct conf_buf b;
	struct ibv_wc wc;
	struct ext e;
	int mask;

	if (conf_iwarp())
		SKIP("QPs need the connection manager (iWARP)");
	conf_pair_resolve(&c, &bare);
	e = ext_qp(c.a);
	ext_move(c.a, &e, IBV_QPS_INIT);
	param.qp_num = e.qp->qp_num;
	OK(rdma_connect(c.a, &param));
	c.p = conf_request(c.lch);
	OK(rdma_init_qp_attr(c.p, &attr, &mask));
	EQ(attr.dest_qp_num, e.qp->qp_num);
	attr.rq_psn = 7;
	EQ(ibv_modify_qp(e.qp, &attr, mask), 0);
	attr.qp_state = IBV_QPS_RTS;
	OK(rdma_init_qp_attr(c.p, &attr, &mask));
	attr.sq_psn = 7;
	EQ(ibv_modify_qp(e.qp, &attr, mask), 0);
	b = conf_buf(c.a->pd, 8192, CONF_RW);
	sge = conf_sge(&b, 0, 1000);
	wr = conf_wr(1, IBV_WR_SEND, &sge, 1);
	conf_pattern(b.p, 1000, 9);
	OK(conf_recv(e.qp, 2, &b, 4096, 1000));
	OK(conf_post(e.qp, &wr));
	for (int i = 0; i < 2; i++) { /* in either order */
		conf_wc(e.cq, &wc);
		EQ(wc.status, IBV_WC_SUCCESS);
	}
	CHECK(conf_pattern_ok(b.p + 4096, 1000, 9));
	ext_free(&e);
	conf_buf_free(&b);
	conf_pair_free(&c);
}

/* UCX connects with a number that is no QP of anybody. */
static void dummy_qp_numbers(void)
{
	struct conf_pair c;
	struct rdma_conn_param param = conf_param();
	struct rdma_cm_event *ev;

	request(&c, nobodys(0), 0);
	param.qp_num = nobodys(1);
	OK(rdma_accept(c.p, &param));
	ev = conf_get(c.ach, c.a, RDMA_CM_EVENT_CONNECT_RESPONSE);
	EQ(ev->param.conn.qp_num, nobodys(1));
	OK(rdma_ack_cm_event(ev));
	OK(rdma_establish(c.a));
	conf_expect(c.lch, c.p, RDMA_CM_EVENT_ESTABLISHED);
	conf_pair_close(&c);
}

static void qp_number_has_24_bits(void)
{
	struct conf_pair c;

	request(&c, 0x12000000 | nobodys(0), 0);
	conf_pair_free(&c);
}

static void srq_flag_is_passed_on(void)
{
	struct conf_pair c;

	request(&c, nobodys(0), 1);
	conf_pair_free(&c);
}

static void establish_with_qp(void)
{
	struct conf_pair c;

	conf_pair_open(&c, NULL);
	ERR(rdma_establish(c.a), EINVAL);
	conf_pair_close(&c);
}

static void establish_before_response(void)
{
	struct conf_pair c;

	if (conf_original())
		SKIP("the kernel rejects its own request, and destroying the id hangs");
	request(&c, nobodys(0), 0);
	ERR(rdma_establish(c.a), EINVAL);
	conf_pair_free(&c);
}

static void establish_idle(void)
{
	struct rdma_cm_id *id = conf_device_id();

	ERR(rdma_establish(id), EINVAL);
	conf_id_close(id);
}

/* The initiator may still say no to the reply. */
static void initiator_rejects_the_reply(void)
{
	struct conf_pair c;
	struct rdma_conn_param param = conf_param();
	struct rdma_cm_event *ev;

	request(&c, nobodys(0), 0);
	param.qp_num = 0x456;
	OK(rdma_accept(c.p, &param));
	conf_expect(c.ach, c.a, RDMA_CM_EVENT_CONNECT_RESPONSE);
	OK(rdma_reject(c.a, "no", 2));
	ev = conf_get_status(c.lch, c.p, RDMA_CM_EVENT_REJECTED, conf_rejected());
	EQ(ev->param.conn.private_data_len, 148);
	CHECK(!memcmp(ev->param.conn.private_data, "no", 3));
	OK(rdma_ack_cm_event(ev));
	conf_pair_free(&c);
}

static void initiator_destroyed_after_response(void)
{
	struct conf_pair c;
	struct rdma_conn_param param = conf_param();

	request(&c, nobodys(0), 0);
	param.qp_num = 0x456;
	OK(rdma_accept(c.p, &param));
	conf_expect(c.ach, c.a, RDMA_CM_EVENT_CONNECT_RESPONSE);
	OK(rdma_destroy_id(c.a));
	c.a = NULL;
	conf_expect_status(c.lch, c.p, RDMA_CM_EVENT_REJECTED, conf_rejected());
	conf_pair_free(&c);
}

/* rdma_init_qp_attr. */

static void init_attr_before_connecting(void)
{
	struct rdma_cm_id *id = conf_device_id();
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	int mask = 0;

	OK(rdma_init_qp_attr(id, &attr, &mask));
	EQ(mask, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	EQ(attr.qp_access_flags, 0);
	EQ(attr.port_num, id->port_num);
	EQ(attr.pkey_index, 0);
	conf_id_close(id);
}

static void init_attr_unbound(void)
{
	struct rdma_event_channel *ch = conf_channel();
	struct rdma_cm_id *id = conf_id(ch);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	int mask;

	ERR(rdma_init_qp_attr(id, &attr, &mask), EINVAL);
	conf_id_close(id);
}

static void init_attr_of_a_child(void)
{
	struct conf_pair c;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	struct ibv_port_attr port;
	int mask;

	request(&c, nobodys(0), 0);
	OK(rdma_init_qp_attr(c.p, &attr, &mask));
	EQ(attr.qp_access_flags & 0xff, IBV_ACCESS_REMOTE_WRITE |
	   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTR;
	OK(rdma_init_qp_attr(c.p, &attr, &mask));
	EQ(mask, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
	   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	EQ(attr.dest_qp_num, nobodys(0));
	EQ(attr.ah_attr.is_global, 1);
	EQ(attr.ah_attr.port_num, 1);
	CHECK(!memcmp(&attr.ah_attr.grh.dgid, &c.p->route.addr.addr.ibaddr.dgid, 16));
	OK(ibv_query_port(c.p->verbs, 1, &port));
	EQ(attr.path_mtu, port.active_mtu);
	EQ(attr.min_rnr_timer, 0);
	CHECK(attr.rq_psn < 1 << 24);
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTS;
	OK(rdma_init_qp_attr(c.p, &attr, &mask));
	EQ(mask, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
	   IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT);
	EQ(attr.retry_cnt, 7);
	EQ(attr.rnr_retry, 7);
	CHECK(attr.timeout > 0);
	conf_pair_free(&c);
}

static void init_attr_while_waiting_for_the_reply(void)
{
	struct conf_pair c;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	int mask;

	request(&c, nobodys(0), 0);
	OK(rdma_init_qp_attr(c.a, &attr, &mask));
	EQ(attr.qp_access_flags & 0xff, IBV_ACCESS_REMOTE_WRITE |
	   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	attr.qp_state = IBV_QPS_RTR;
	ERR(rdma_init_qp_attr(c.a, &attr, &mask), EINVAL);
	attr.qp_state = IBV_QPS_SQD;
	ERR(rdma_init_qp_attr(c.a, &attr, &mask), EINVAL);
	conf_pair_free(&c);
}

/* rdma_notify. */

static void notify_communication_established(void)
{
	struct rdma_conn_param param = conf_param();
	struct conf_pair c;

	conf_pair_request(&c, NULL);
	OK(rdma_accept(c.p, &param));
	OK(rdma_notify(c.p, IBV_EVENT_COMM_EST)); /* no RTU was seen */
	conf_expect(c.lch, c.p, RDMA_CM_EVENT_ESTABLISHED);
	conf_expect(c.ach, c.a, RDMA_CM_EVENT_ESTABLISHED);
	conf_quiet(c.lch, 100); /* not twice */
	conf_pair_close(&c);
}

static void notify_when_established(void)
{
	struct conf_pair c;

	conf_pair_open(&c, NULL);
	ERR(rdma_notify(c.p, IBV_EVENT_COMM_EST), EISCONN);
	ERR(rdma_notify(c.a, IBV_EVENT_COMM_EST), EISCONN);
	conf_quiet(c.lch, 50);
	conf_pair_close(&c);
}

static void notify_in_wrong_states(void)
{
	struct rdma_event_channel *ch = conf_channel();
	struct rdma_cm_id *idle = conf_id(ch), *id;
	struct conf_pair c;

	ERR(rdma_notify(idle, IBV_EVENT_COMM_EST), EINVAL);
	id = conf_addr_resolved(ch, conf_addr(AF_INET, 7000));
	ERR(rdma_notify(id, IBV_EVENT_COMM_EST), EINVAL);
	OK(rdma_destroy_id(id));
	conf_id_close(idle);
	conf_pair_request(&c, NULL);
	ERR(rdma_notify(c.p, IBV_EVENT_COMM_EST), EINVAL);
	conf_pair_accept(&c);
	ERR(rdma_notify(c.p, IBV_EVENT_QP_FATAL), EINVAL);
	conf_pair_close(&c);
}

static const struct conf_case cases[] = {
	CASE(both_sides_external),
	CASE(passive_side_external),
	CASE(requester_connected_to_itself),
	CASE(dummy_qp_numbers),
	CASE(qp_number_has_24_bits),
	CASE(srq_flag_is_passed_on),
	CASE(establish_with_qp),
	CASE(establish_before_response),
	CASE(establish_idle),
	CASE(initiator_rejects_the_reply),
	CASE(initiator_destroyed_after_response),
	CASE(init_attr_before_connecting),
	CASE(init_attr_unbound),
	CASE(init_attr_of_a_child),
	CASE(init_attr_while_waiting_for_the_reply),
	CASE(notify_communication_established),
	CASE(notify_when_established),
	CASE(notify_in_wrong_states),
};

CONF_MAIN(cases)
