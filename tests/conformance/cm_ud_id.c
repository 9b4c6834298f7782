/* SPDX-License-Identifier: BSD-2-Clause */
/* Ids of datagrams: numbers of QPs that they do not know, states, options, ports, channels. */
#include "cm_ud.h"

static void many_clients(void)
{
	enum { N = 40 };
	struct rdma_cm_id *a[N], *p[N];
	struct rdma_cm_event *ev;
	int established = 0;

	begin(AF_INET);
	OK(rdma_destroy_id(listener));
	listener = ud_id(lch, RDMA_PS_UDP);
	OK(rdma_listen(listener, N)); /* unbound: any address, a port of its own */
	CHECK(rdma_get_src_port(listener) != 0);
	for (int i = 0; i < N; i++) {
		a[i] = resolved_to(
			conf_addr(AF_INET, ntohs(rdma_get_src_port(listener))));
		OK(request(a[i], 0));
	}
	for (int i = 0; i < N; i++) {
		struct rdma_conn_param param = { .qp_num = 0x100 + i };

		p[i] = requested();
		CHECK(p[i]->verbs);
		OK(rdma_accept(p[i], &param));
	}
	while (established < N) {
		ev = conf_get(ach, NULL, RDMA_CM_EVENT_ESTABLISHED);
		for (int i = 0; i < N; i++)
			if (rdma_get_dst_port(p[i]) == rdma_get_src_port(ev->id))
				EQ(ev->param.ud.qp_num, 0x100 + i);
		OK(rdma_ack_cm_event(ev));
		established++;
	}
	for (int i = 0; i < N; i++) {
		conf_id_free(a[i]);
		conf_id_free(p[i]);
	}
	end();
}

/* QPs that the ids do not know; any number of 24 bits. */
static void external_qp_numbers(void)
{
	struct rdma_conn_param param = { .qp_num = 0x777777 };
	struct rdma_cm_event *ev;
	struct rdma_cm_id *a, *p;

	begin(AF_INET);
	a = resolved();
	OK(rdma_connect(a, NULL));
	p = requested();
	OK(rdma_accept(p, &param));
	ev = conf_get(ach, a, RDMA_CM_EVENT_ESTABLISHED);
	EQ(ev->param.ud.qp_num, 0x777777);
	EQ(ev->param.ud.qkey, PUBLIC_QKEY);
	OK(rdma_ack_cm_event(ev));
	conf_id_free(p);
	conf_id_free(a);
	end();
}

/* Whatever state is asked for: there is one set of attributes, before and after. */
static void attributes_for_external_qps(void)
{
	static const enum ibv_qp_state state[] = { IBV_QPS_INIT, IBV_QPS_RTR,
						   IBV_QPS_RTS };
	struct ibv_qp_attr attr;
	struct rdma_cm_id *a, *p;
	int mask;

	begin(AF_INET);
	a = resolved();
	for (int after = 0; after < 2; after++) {
		for (int i = 0; i < 3; i++) {
			memset(&attr, 0, sizeof(attr));
			attr.qp_state = state[i];
			mask = 0;
			OK(rdma_init_qp_attr(a, &attr, &mask));
			EQ(mask,
			   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
			EQ(attr.qkey, PUBLIC_QKEY);
			EQ(attr.port_num, 1);
			EQ(attr.pkey_index, 0);
		}
		if (after)
			break;
		OK(request(a, 0));
		p = requested();
		OK(answer(p, 0));
		conf_expect(ach, a, RDMA_CM_EVENT_ESTABLISHED);
	}
	conf_id_free(p);
	conf_id_free(a);
	end();
}

static void wrong_states(void)
{
	struct rdma_cm_id *a, *p;

	begin(AF_INET);
	a = ud_id(ach, RDMA_PS_UDP);
	ERR(request(a, 0), EINVAL);
	ERR(rdma_reject(a, NULL, 0), EINVAL);
	conf_id_free(a);
	ERR(request(listener, 0), EINVAL);
	a = connecting();
	ERR(request(a, 0), EINVAL);
	p = requested();
	ERR(request(p, 0), EINVAL);
	make_qp(p);
	OK(answer(p, 0));
	conf_expect(ach, a, RDMA_CM_EVENT_ESTABLISHED);
	ERR(answer(p, 0), EINVAL);
	ERR(rdma_reject(p, NULL, 0), EINVAL);
	ERR(request(a, 0), EINVAL);
	ERR(rdma_establish(a), EINVAL);
	ERR(rdma_notify(a, IBV_EVENT_COMM_EST), EINVAL);
	conf_id_free(p);
	conf_id_free(a);
	end();
}

/* Nothing is connected: the QP goes to ERR, and nobody hears of it. */
static void disconnect(void)
{
	struct rdma_cm_id *a, *p;

	begin(AF_INET);
	a = connecting();
	p = requested();
	make_qp(p);
	OK(answer(p, 0));
	conf_expect(ach, a, RDMA_CM_EVENT_ESTABLISHED);
	OK(rdma_disconnect(a));
	EQ(conf_qp_state(a->qp), IBV_QPS_ERR);
	EQ(conf_qp_state(p->qp), IBV_QPS_RTS);
	OK(rdma_disconnect(p));
	EQ(conf_qp_state(p->qp), IBV_QPS_ERR);
	OK(rdma_disconnect(a));
	conf_quiet(ach, CONF_QUIET);
	conf_quiet(lch, 0);
	conf_id_free(p);
	conf_quiet(ach, CONF_QUIET);
	conf_id_free(a);
	end();
}

static void options(void)
{
	struct rdma_cm_id *a, *p;
	uint8_t tos = 0x68;
	struct ibv_ah_attr attr;
	struct rdma_cm_event *ev;

	begin(AF_INET);
	a = ud_id(ach, RDMA_PS_UDP);
	OK(rdma_set_option(a, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1));
	ERR(rdma_set_option(a, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &tos, 1),
	    EINVAL);
	OK(rdma_resolve_addr(a, NULL, SA((conf_sa[]){ conf_listen_addr(listener) }[0]),
			     2000));
	conf_expect(ach, a, RDMA_CM_EVENT_ADDR_RESOLVED);
	OK(rdma_resolve_route(a, 2000));
	conf_expect(ach, a, RDMA_CM_EVENT_ROUTE_RESOLVED);
	EQ(a->route.path_rec->traffic_class, 0x68);
	OK(request(a, 0));
	p = requested();
	OK(answer(p, 0));
	ev = conf_get(ach, a, RDMA_CM_EVENT_ESTABLISHED);
	attr = ev->param.ud.ah_attr;
	OK(rdma_ack_cm_event(ev));
	EQ(attr.grh.traffic_class, 0x68);
	conf_id_free(p);
	conf_id_free(a);
	end();
}

static void ports_are_of_their_own(void)
{
	conf_sa addr = conf_dev_addr(conf_port(60));
	struct rdma_event_channel *ch = conf_channel();
	struct rdma_cm_id *a = ud_id(ch, RDMA_PS_UDP), *b = ud_id(ch, RDMA_PS_UDP);
	struct rdma_cm_id *tcp = conf_id(ch);

	OK(rdma_bind_addr(a, SA(addr)));
	ERR(rdma_bind_addr(b, SA(addr)), EADDRINUSE);
	OK(rdma_bind_addr(tcp, SA(addr)));
	conf_id_free(a);
	OK(rdma_bind_addr(b, SA(addr)));
	conf_id_free(b);
	conf_id_free(tcp);
	rdma_destroy_event_channel(ch);
}

static void migrated(void)
{
	struct rdma_event_channel *ch;
	struct rdma_cm_id *a, *p;

	begin(AF_INET);
	ch = conf_channel();
	a = resolved();
	make_qp(a);
	OK(rdma_migrate_id(a, ch));
	OK(request(a, 0));
	p = requested();
	OK(rdma_migrate_id(p, ch));
	make_qp(p);
	OK(answer(p, 0));
	conf_expect(ch, a, RDMA_CM_EVENT_ESTABLISHED);
	OK(rdma_migrate_id(a, ach));
	conf_quiet(lch, 0);
	conf_id_free(p);
	conf_id_free(a);
	rdma_destroy_event_channel(ch);
	end();
}

/* Events that wait go along. */
static void migrated_with_its_event(void)
{
	struct rdma_event_channel *ch;
	struct rdma_cm_id *a, *p;

	begin(AF_INET);
	ch = conf_channel();
	a = connecting();
	p = requested();
	OK(rdma_reject(p, data, 5));
	WAIT_FOR(conf_readable(ach->fd));
	OK(rdma_migrate_id(a, ch));
	conf_quiet(ach, 0);
	conf_expect_status(ch, a, RDMA_CM_EVENT_UNREACHABLE, REFUSED);
	conf_id_free(p);
	conf_id_free(a);
	rdma_destroy_event_channel(ch);
	end();
}

/* ---- RDMA_PS_IPOIB --------------------------------------------------------------- */

/* The kernel has it on InfiniBand alone: there, no address of an Ethernet device will do. */
static void refused_on_ethernet(struct rdma_event_channel *c)
{
	conf_sa dst = conf_addr(AF_INET, conf_port(61));
	struct rdma_cm_id *id = ud_id(c, RDMA_PS_IPOIB);

	for (int i = 0; i < 2; i++) {
		OK(rdma_resolve_addr(id, NULL, SA(dst), 2000));
		conf_expect_status(c, id, RDMA_CM_EVENT_ADDR_ERROR, -EINVAL);
	}
	CHECK(!id->verbs);
	OK(rdma_listen(id, 1)); /* on no device */
	SKIP("the kernel has no RDMA_PS_IPOIB on Ethernet");
}

static void ipoib(void)
{
	conf_sa addr = conf_addr(AF_INET, 0), dst;
	struct rdma_cm_event *ev;
	struct rdma_cm_id *a, *p;

	begin(AF_INET);
	OK(rdma_destroy_id(listener));
	listener = ud_id(lch, RDMA_PS_IPOIB);
	if (rdma_bind_addr(listener, SA(addr)) && errno == EINVAL && !conf_user_device())
		refused_on_ethernet(ach);
	OK(rdma_listen(listener, 2));
	dst = conf_listen_addr(listener);
	a = ud_id(ach, RDMA_PS_UDP); /* has other ports */
	OK(rdma_resolve_addr(a, NULL, SA(dst), 2000));
	conf_expect(ach, a, RDMA_CM_EVENT_ADDR_RESOLVED);
	OK(rdma_resolve_route(a, 2000));
	conf_expect(ach, a, RDMA_CM_EVENT_ROUTE_RESOLVED);
	OK(request(a, 0));
	unreachable(a, NO_LISTENER, 0);
	conf_id_free(a);
	a = ud_id(ach, RDMA_PS_IPOIB);
	OK(rdma_resolve_addr(a, NULL, SA(dst), 2000));
	conf_expect(ach, a, RDMA_CM_EVENT_ADDR_RESOLVED);
	OK(rdma_resolve_route(a, 2000));
	conf_expect(ach, a, RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_qp(a);
	EQ(conf_qp_state(a->qp), IBV_QPS_RTS);
	OK(request(a, REQUEST_MOST));
	p = requested();
	EQ(p->ps, RDMA_PS_IPOIB);
	make_qp(p);
	OK(answer(p, ANSWER_MOST));
	ev = conf_get(ach, a, RDMA_CM_EVENT_ESTABLISHED);
	EQ(ev->param.ud.qp_num, p->qp->qp_num);
	CHECK(ev->param.ud.qkey != 0);
	OK(rdma_ack_cm_event(ev));
	conf_id_free(p);
	conf_id_free(a);
	end();
}

static const struct conf_case cases[] = {
	CASE(many_clients),
	CASE(external_qp_numbers),
	CASE(attributes_for_external_qps),
	CASE(wrong_states),
	CASE(disconnect),
	CASE(options),
	CASE(ports_are_of_their_own),
	CASE(migrated),
	CASE(migrated_with_its_event),
	CASE(ipoib),
};

CONF_MAIN(cases)
