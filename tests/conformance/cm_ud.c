/* SPDX-License-Identifier: BSD-2-Clause */
/* The connection manager and datagrams: an exchange in which the client learns the server's
 * address, QP number and Q_Key. The server has an id for each client, and hears nothing more
 * of it: no connection is made. */
#include "cm_ud.h"

/* ---- the exchange ---------------------------------------------------------------- */

static void qp_is_ready_at_once(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct rdma_cm_id *id;

	begin(AF_INET);
	id = resolved();
	EQ(id->qp_type, IBV_QPT_UD);
	make_qp(id);
	OK(ibv_query_qp(id->qp, &attr, IBV_QP_STATE | IBV_QP_QKEY | IBV_QP_PORT |
				       IBV_QP_PKEY_INDEX | IBV_QP_SQ_PSN, &init));
	EQ(attr.qp_state, IBV_QPS_RTS);
	EQ(attr.qkey, PUBLIC_QKEY);
	EQ(attr.port_num, id->port_num);
	EQ(attr.pkey_index, 0);
	EQ(attr.sq_psn, 0);
	EQ(init.qp_type, IBV_QPT_UD);
	conf_id_free(id);
	end();
}

/* Before the address is resolved there is no device, and so no QP. */
static void qp_in_each_state(void)
{
	struct ibv_qp_init_attr attr = { .cap = CONF_CAP(4, 4, 1),
					 .qp_type = IBV_QPT_UD };
	struct rdma_cm_id *id;

	begin(AF_INET);
	id = ud_id(ach, RDMA_PS_UDP);
	if (!conf_original())
		ERR(rdma_create_qp(id, NULL, &attr), EINVAL);
	conf_id_free(id);
	if (listener->verbs) { /* an id that is bound has one, but of loopback */
		make_qp(listener);
		EQ(conf_qp_state(listener->qp), IBV_QPS_RTS);
		rdma_destroy_qp(listener);
	}
	id = resolved();
	make_qp(id);
	ERR(rdma_create_qp(id, NULL, &attr), EINVAL); /* one at a time */
	rdma_destroy_qp(id);
	attr.qp_type = IBV_QPT_RC; /* what the id is decides how it is set up */
	CHECK(rdma_create_qp(id, NULL, &attr) == -1);
	CHECK(!id->qp);
	conf_id_free(id);
	end();
}

static void request_event(int family)
{
	struct rdma_cm_event *ev;
	struct rdma_cm_id *a, *p;
	conf_sa addr;

	begin(family);
	listener->context = &data;
	a = resolved();
	make_qp(a);
	OK(request(a, 100));
	ev = conf_get(lch, NULL, RDMA_CM_EVENT_CONNECT_REQUEST);
	p = ev->id;
	CHECK(ev->listen_id == listener && p != listener);
	is_padded(&ev->param.ud, 100, REQUEST_MOST);
	EQ(ev->param.ud.qp_num, 0);
	EQ(ev->param.ud.qkey, 0);
	CONF_MSG_ZERO(&ev->param.ud.ah_attr, sizeof(ev->param.ud.ah_attr));
	OK(rdma_ack_cm_event(ev));
	CHECK(p->verbs && p->verbs == a->verbs && p->pd && !p->qp);
	CHECK(p->context == &data && p->channel == lch);
	EQ(p->ps, RDMA_PS_UDP);
	EQ(p->qp_type, IBV_QPT_UD);
	EQ(p->port_num, 1);
	EQ(rdma_get_src_port(p), rdma_get_src_port(listener));
	EQ(rdma_get_dst_port(p), rdma_get_src_port(a));
	addr = conf_addr(family, 0);
	EQ(rdma_get_local_addr(p)->sa_family, family);
	EQ(rdma_get_peer_addr(p)->sa_family, family);
	if (family == AF_INET)
		EQ(p->route.addr.dst_sin.sin_addr.s_addr,
		   ((struct sockaddr_in *)&addr)->sin_addr.s_addr);
	else
		CHECK(!memcmp(&p->route.addr.dst_sin6.sin6_addr,
			      &((struct sockaddr_in6 *)&addr)->sin6_addr, 16));
	OK(rdma_destroy_id(p));
	unreachable(a, REFUSED, 0);
	conf_id_free(a);
	end();
}

static void request_event_fields(void)
{
	request_event(AF_INET);
}

static void request_event_fields_ipv6(void)
{
	request_event(AF_INET6);
}

/* Nothing is known of the path back: a datagram is answered by its own header. */
static void child_has_no_path(void)
{
	struct rdma_cm_id *a, *p;

	begin(AF_INET);
	a = connecting();
	EQ(a->route.num_paths, 1);
	p = requested();
	EQ(p->route.num_paths, 0);
	conf_id_free(p);
	unreachable(a, REFUSED, 0);
	conf_id_free(a);
	end();
}

static void established_event(int family)
{
	struct ibv_ah_attr attr;
	struct rdma_cm_event *ev;
	struct rdma_cm_id *a, *p;
	union ibv_gid gid;
	struct ibv_ah *ah;

	begin(family);
	a = resolved();
	make_qp(a);
	OK(request(a, 0));
	p = requested();
	make_qp(p);
	OK(answer(p, 77));
	ev = conf_get(ach, a, RDMA_CM_EVENT_ESTABLISHED);
	is_padded(&ev->param.ud, 77, ANSWER_MOST);
	EQ(ev->param.ud.qp_num, p->qp->qp_num);
	EQ(ev->param.ud.qkey, PUBLIC_QKEY);
	attr = ev->param.ud.ah_attr;
	OK(rdma_ack_cm_event(ev));
	EQ(attr.is_global, 1);
	EQ(attr.port_num, a->port_num);
	EQ(attr.dlid, 0);
	EQ(attr.sl, 0);
	EQ(attr.static_rate, 0);
	EQ(attr.src_path_bits, 0);
	EQ(attr.grh.traffic_class, 0);
	CHECK(attr.grh.hop_limit > 1);
	CHECK(attr.grh.flow_label < 1 << 20);
	CHECK(!memcmp(&attr.grh.dgid, &a->route.addr.addr.ibaddr.dgid, 16));
	OK(ibv_query_gid(a->verbs, a->port_num, attr.grh.sgid_index, &gid));
	CHECK(!memcmp(&gid, &a->route.addr.addr.ibaddr.sgid, 16));
	MUST(ah = ibv_create_ah(a->pd, &attr));
	OK(ibv_destroy_ah(ah));
	conf_quiet(lch, CONF_QUIET); /* the server hears nothing */
	conf_id_free(p);
	conf_id_free(a);
	end();
}

static void established_event_fields(void)
{
	established_event(AF_INET);
}

static void established_event_fields_ipv6(void)
{
	established_event(AF_INET6);
}

/* Both sides send by what the exchange and the first datagram have told them, with the
 * calls of rdma_verbs.h. */
static void data_of(int family)
{
	struct ibv_ah_attr attr;
	struct conf_buf ab, pb;
	struct rdma_cm_event *ev;
	struct rdma_cm_id *a, *p;
	struct ibv_ah *there, *back;
	uint32_t qpn;
	struct ibv_wc wc;

	begin(family);
	a = resolved();
	make_qp(a);
	OK(request(a, 0));
	p = requested();
	make_qp(p);
	ab = conf_buf(a->pd, 4096, CONF_RW);
	pb = conf_buf(p->pd, 4096, CONF_RW);
	OK(rdma_post_recv(p, &pb, pb.p, 1000, pb.mr));
	OK(rdma_post_recv(a, &ab, ab.p + 2048, 1000, ab.mr));
	OK(answer(p, 0));
	ev = conf_get(ach, a, RDMA_CM_EVENT_ESTABLISHED);
	attr = ev->param.ud.ah_attr;
	qpn = ev->param.ud.qp_num;
	OK(rdma_ack_cm_event(ev));
	MUST(there = ibv_create_ah(a->pd, &attr));
	conf_pattern(ab.p, 500, 1);
	OK(rdma_post_ud_send(a, &ab, ab.p, 500, ab.mr, IBV_SEND_SIGNALED, there, qpn));
	EQ(rdma_get_send_comp(a, &wc), 1);
	EQ(wc.status, IBV_WC_SUCCESS);
	EQ(rdma_get_recv_comp(p, &wc), 1);
	EQ(wc.status, IBV_WC_SUCCESS);
	EQ(wc.byte_len, GRH + 500);
	EQ(wc.src_qp, a->qp->qp_num);
	CHECK(conf_pattern_ok(pb.p + GRH, 500, 1));
	MUST(back = ibv_create_ah_from_wc(p->pd, &wc, (struct ibv_grh *)pb.p,
					  p->port_num));
	conf_pattern(pb.p, 700, 2);
	OK(rdma_post_ud_send(p, &pb, pb.p, 700, pb.mr, IBV_SEND_SIGNALED, back,
			     wc.src_qp));
	EQ(rdma_get_send_comp(p, &wc), 1);
	EQ(rdma_get_recv_comp(a, &wc), 1);
	EQ(wc.byte_len, GRH + 700);
	CHECK(conf_pattern_ok(ab.p + 2048 + GRH, 700, 2));
	OK(ibv_destroy_ah(there));
	OK(ibv_destroy_ah(back));
	rdma_destroy_qp(a);
	rdma_destroy_qp(p);
	conf_buf_free(&ab);
	conf_buf_free(&pb);
	conf_id_free(p);
	conf_id_free(a);
	end();
}

static void datagrams(void)
{
	data_of(AF_INET);
}

static void datagrams_ipv6(void)
{
	data_of(AF_INET6);
}

/* ---- private data ---------------------------------------------------------------- */

static void private_data_of_a_request(void)
{
	struct rdma_cm_event *ev;
	struct rdma_cm_id *a;

	begin(AF_INET);
	a = resolved();
	ERR(request(a, REQUEST_MOST + 1), EINVAL);
	OK(request(a, REQUEST_MOST)); /* the id is as it was */
	ev = conf_get(lch, NULL, RDMA_CM_EVENT_CONNECT_REQUEST);
	is_padded(&ev->param.ud, REQUEST_MOST, REQUEST_MOST);
	OK(rdma_destroy_id(ev->id));
	OK(rdma_ack_cm_event(ev));
	unreachable(a, REFUSED, 0);
	conf_id_free(a);
	end();
}

static void private_data_of_an_answer(void)
{
	struct rdma_cm_event *ev;
	struct rdma_cm_id *a, *p;

	begin(AF_INET);
	a = connecting();
	p = requested();
	make_qp(p);
	OK(answer(p, ANSWER_MOST));
	ev = conf_get(ach, a, RDMA_CM_EVENT_ESTABLISHED);
	is_padded(&ev->param.ud, ANSWER_MOST, ANSWER_MOST);
	OK(rdma_ack_cm_event(ev));
	conf_id_free(p);
	conf_id_free(a);
	end();
}

/* An answer that fails is the end of the request. */
static void too_much_private_data_in_an_answer(void)
{
	struct rdma_cm_id *a, *p;

	begin(AF_INET);
	a = connecting();
	p = requested();
	make_qp(p);
	ERR(answer(p, ANSWER_MOST + 1), EINVAL);
	unreachable(a, REFUSED, 0);
	ERR(answer(p, 0), EINVAL);
	conf_id_free(p);
	conf_id_free(a);
	end();
}

static void private_data_of_a_reject(void)
{
	struct rdma_cm_id *a, *p;

	begin(AF_INET);
	a = connecting();
	p = requested();
	ERR(rdma_reject(p, data, ANSWER_MOST + 1), EINVAL);
	OK(rdma_reject(p, data, ANSWER_MOST));
	unreachable(a, REFUSED, ANSWER_MOST);
	conf_id_free(p);
	conf_id_free(a);
	end();
}

/* ---- refusals -------------------------------------------------------------------- */

static void rejected(void)
{
	struct rdma_cm_id *a, *p;

	begin(AF_INET);
	for (int i = 0; i < 3; i++) {
		a = connecting();
		p = requested();
		OK(rdma_reject(p, data, 10));
		OK(rdma_destroy_id(p));
		unreachable(a, REFUSED, 10);
		EQ(conf_qp_state(a->qp), IBV_QPS_RTS); /* it needs no peer */
		ERR(request(a, 0), EINVAL);
		conf_id_free(a);
	}
	end();
}

static void no_listener(void)
{
	struct rdma_cm_id *a, *tcp;
	conf_sa dst;

	begin(AF_INET);
	dst = conf_listen_addr(listener);
	OK(rdma_destroy_id(listener));
	listener = NULL;
	a = resolved_to(dst);
	OK(request(a, 20));
	unreachable(a, NO_LISTENER, 0);
	conf_id_free(a);
	tcp = conf_id(lch); /* is another port of the same number */
	OK(rdma_bind_addr(tcp, SA(dst)));
	OK(rdma_listen(tcp, 1));
	a = resolved_to(dst);
	OK(request(a, 20));
	unreachable(a, NO_LISTENER, 0);
	conf_id_free(a);
	conf_id_free(tcp);
	end();
}

static void bound_without_listen(void)
{
	struct rdma_cm_id *a, *bound;
	conf_sa addr = conf_addr(AF_INET, 0);

	begin(AF_INET);
	bound = ud_id(lch, RDMA_PS_UDP);
	OK(rdma_bind_addr(bound, SA(addr)));
	a = resolved_to(conf_listen_addr(bound));
	OK(request(a, 0));
	unreachable(a, NO_LISTENER, 0);
	conf_id_free(a);
	conf_id_free(bound);
	end();
}

static void child_destroyed(void)
{
	struct rdma_cm_id *a;

	begin(AF_INET);
	a = connecting();
	OK(rdma_destroy_id(requested()));
	unreachable(a, REFUSED, 0);
	conf_id_free(a);
	end();
}

static void listener_destroyed_with_waiting_requests(void)
{
	struct rdma_cm_id *a[3];

	begin(AF_INET);
	for (int i = 0; i < 3; i++)
		a[i] = connecting();
	WAIT_FOR(conf_readable(lch->fd));
	usleep(CONF_QUIET * 1000); /* all three are there */
	OK(rdma_destroy_id(listener));
	listener = NULL;
	for (int i = 0; i < 3; i++)
		conf_expect_status(ach, NULL, RDMA_CM_EVENT_UNREACHABLE, REFUSED);
	for (int i = 0; i < 3; i++)
		conf_id_free(a[i]);
	end();
}

/* A child that was fetched lives on. */
static void listener_destroyed_before_the_answer(void)
{
	struct rdma_cm_id *a, *p;

	begin(AF_INET);
	a = connecting();
	p = requested();
	OK(rdma_destroy_id(listener));
	listener = NULL;
	make_qp(p);
	OK(answer(p, 0));
	conf_expect(ach, a, RDMA_CM_EVENT_ESTABLISHED);
	conf_id_free(p);
	conf_id_free(a);
	end();
}

static void client_gone_before_the_answer(void)
{
	struct rdma_cm_id *a, *p;

	begin(AF_INET);
	a = connecting();
	p = requested();
	conf_id_free(a);
	make_qp(p);
	OK(answer(p, 0)); /* nobody has told */
	conf_id_free(p);
	end();
}

static void unanswered(void)
{
	struct rdma_cm_id *a, *p;
	struct rdma_cm_event *ev;

	setenv("ANYRDMA_CM_RETRY_MS", "100", 1);
	setenv("ANYRDMA_CM_RETRIES", "5", 1);
	begin(AF_INET);
	a = connecting();
	p = requested();
	AT("waiting for UNREACHABLE");
	MUST(ev = conf_next(ach, conf_user_device() ? conf_ms(CONF_WAIT) : 150000));
	EQ(ev->event, RDMA_CM_EVENT_UNREACHABLE);
	EQ(ev->status, -ETIMEDOUT);
	OK(rdma_ack_cm_event(ev));
	conf_quiet(lch, 0); /* one request, however often it was repeated */
	conf_id_free(p);
	conf_id_free(a);
	end();
}

/* The backlog counts requests that nobody has fetched. One more is not put off, as that of a
 * connection is. */
static void backlog_overflow_is_refused(void)
{
	enum { N = 4 };
	conf_sa addr = conf_addr(AF_INET, 0);
	struct rdma_cm_id *a[N];

	begin(AF_INET);
	OK(rdma_destroy_id(listener));
	listener = ud_id(lch, RDMA_PS_UDP);
	OK(rdma_bind_addr(listener, SA(addr)));
	OK(rdma_listen(listener, 1));
	for (int i = 0; i < N; i++)
		a[i] = resolved();
	OK(request(a[0], 0));
	WAIT_FOR(conf_readable(lch->fd));
	for (int i = 1; i < N; i++) {
		OK(request(a[i], 0));
		unreachable(a[i], REFUSED, 0);
	}
	OK(rdma_destroy_id(requested()));
	unreachable(a[0], REFUSED, 0);
	conf_quiet(lch, 0);
	for (int i = 0; i < N; i++)
		conf_id_free(a[i]);
	end();
}

static const struct conf_case cases[] = {
	CASE(qp_is_ready_at_once),
	CASE(qp_in_each_state),
	CASE(request_event_fields),
	CASE(request_event_fields_ipv6),
	CASE(child_has_no_path),
	CASE(established_event_fields),
	CASE(established_event_fields_ipv6),
	CASE(datagrams),
	CASE(datagrams_ipv6),
	CASE(private_data_of_a_request),
	CASE(private_data_of_an_answer),
	CASE(too_much_private_data_in_an_answer),
	CASE(private_data_of_a_reject),
	CASE(rejected),
	CASE(no_listener),
	CASE(bound_without_listen),
	CASE(child_destroyed),
	CASE(listener_destroyed_with_waiting_requests),
	CASE(listener_destroyed_before_the_answer),
	CASE(client_gone_before_the_answer),
	LONG_CASE(unanswered, 80),
	CASE(backlog_overflow_is_refused),
};

CONF_MAIN(cases)
