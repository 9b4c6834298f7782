/* SPDX-License-Identifier: BSD-2-Clause */
/* Listening: ports, wildcards, families, the backlog. */
#include "conf.h"

static struct rdma_event_channel *lch, *ach;

static void start(void)
{
	lch = conf_channel();
	ach = conf_channel();
}

static void stop(struct rdma_cm_id *listener)
{
	conf_id_free(listener);
	rdma_destroy_event_channel(lch);
	rdma_destroy_event_channel(ach);
}

static struct rdma_cm_id *resolved(conf_sa dst)
{
	struct rdma_cm_id *id = conf_route_resolved(ach, dst);

	conf_qp(id, 2);
	return id;
}

static void request(struct rdma_cm_id *id)
{
	struct rdma_conn_param param = conf_param();

	OK(rdma_connect(id, &param));
}

/* An active id whose request is on the way. */
static struct rdma_cm_id *connecting(conf_sa dst)
{
	struct rdma_cm_id *id = resolved(dst);

	request(id);
	return id;
}

/* The request of this id is refused with this status; the end of the id. */
static void rejected(struct rdma_cm_id *id, int status)
{
	conf_expect_status(ach, id, RDMA_CM_EVENT_REJECTED, status);
	conf_id_free(id);
}

static void reject_all(unsigned n)
{
	struct rdma_cm_id *id;

	while (n--) {
		id = conf_request(lch);
		OK(rdma_reject(id, NULL, 0));
		OK(rdma_destroy_id(id));
	}
}

static void unbound_listener_gets_a_port(void)
{
	struct rdma_cm_id *l, *a;
	conf_sa dst;

	start();
	l = conf_id(lch);
	OK(rdma_listen(l, 4));
	CHECK(rdma_get_src_port(l) != 0);
	EQ(rdma_get_local_addr(l)->sa_family, AF_INET);
	EQ(l->route.addr.src_sin.sin_addr.s_addr, 0);
	CHECK(!l->verbs);
	dst = conf_addr(AF_INET, ntohs(rdma_get_src_port(l)));
	a = connecting(dst);
	reject_all(1);
	rejected(a, conf_rejected());
	stop(l);
}

static void check_wildcard_child(int family)
{
	conf_sa any = conf_any(family, 0), dst;
	struct rdma_cm_id *l, *a, *p;
	size_t off = family == AF_INET ? 4 : 8, len = family == AF_INET ? 4 : 16;

	dst = conf_addr(family, 0);
	start();
	l = conf_id(lch);
	OK(rdma_bind_addr(l, SA(any)));
	OK(rdma_listen(l, 4));
	dst = conf_listen_addr(l);
	a = connecting(dst);
	p = conf_request(lch);
	EQ(rdma_get_local_addr(p)->sa_family, family);
	EQ(rdma_get_peer_addr(p)->sa_family, family);
	CHECK(!memcmp((char *)rdma_get_local_addr(p) + off, (char *)&dst + off, len));
	CHECK(!memcmp((char *)rdma_get_peer_addr(p) + off, (char *)&dst + off, len));
	EQ(rdma_get_src_port(p), rdma_get_src_port(l));
	CHECK(rdma_get_dst_port(p) != 0);
	EQ(rdma_get_dst_port(p), rdma_get_src_port(a));
	OK(rdma_destroy_id(p));
	rejected(a, conf_rejected());
	stop(l);
}

static void wildcard_child_has_real_addresses(void)
{
	check_wildcard_child(AF_INET);
}

static void wildcard6_child_has_real_addresses(void)
{
	check_wildcard_child(AF_INET6);
}

static void wildcard6_serves_ipv4(void)
{
	conf_sa any = conf_any(AF_INET6, 0), dst;
	struct rdma_cm_id *l, *a;
	struct rdma_cm_event *ev;

	conf_addr(AF_INET6, 0);
	start();
	l = conf_id(lch);
	OK(rdma_bind_addr(l, SA(any)));
	OK(rdma_listen(l, 4));
	dst = conf_addr(AF_INET, ntohs(rdma_get_src_port(l)));
	a = connecting(dst);
	ev = conf_get(lch, NULL, RDMA_CM_EVENT_CONNECT_REQUEST);
	EQ(rdma_get_peer_addr(ev->id)->sa_family, AF_INET);
	OK(rdma_destroy_id(ev->id));
	OK(rdma_ack_cm_event(ev));
	rejected(a, conf_rejected());
	stop(l);
}

static void wildcard6_afonly_refuses_ipv4(void)
{
	conf_sa any = conf_any(AF_INET6, 0), dst;
	struct rdma_cm_event *ev;
	struct rdma_cm_id *l, *a;
	int one = 1;

	conf_addr(AF_INET6, 0);
	start();
	l = conf_id(lch);
	OK(rdma_set_option(l, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &one, sizeof(one)));
	OK(rdma_bind_addr(l, SA(any)));
	OK(rdma_listen(l, 4));
	dst = conf_addr(AF_INET, ntohs(rdma_get_src_port(l)));
	a = connecting(dst);
	/* 8: nobody listens; 28: somebody does, but not for this address. */
	MUST(ev = conf_next(ach, conf_ms(CONF_WAIT)));
	EQ(ev->event, RDMA_CM_EVENT_REJECTED);
	CHECK(ev->status == 8 || ev->status == conf_rejected());
	OK(rdma_ack_cm_event(ev));
	conf_quiet(lch, 50);
	conf_id_free(a);
	stop(l);
}

static void twice(void)
{
	struct rdma_cm_id *l;

	start();
	l = conf_listen(lch, AF_INET, 4);
	ERR(rdma_listen(l, 4), EINVAL);
	stop(l);
}

static void after_resolution(void)
{
	struct rdma_cm_id *id;

	start();
	id = conf_addr_resolved(ach, conf_addr(AF_INET, 7000));
	ERR(rdma_listen(id, 4), EINVAL);
	OK(rdma_destroy_id(id));
	stop(NULL);
}

/* The listener still works. */
static void reject_one(conf_sa addr, struct rdma_cm_id *l)
{
	struct rdma_cm_id *a;

	((struct sockaddr_in *)&addr)->sin_port = rdma_get_src_port(l);
	a = connecting(addr);
	reject_all(1);
	rejected(a, conf_rejected());
}

static void listener_cannot_do_anything_else(void)
{
	struct rdma_conn_param param = conf_param();
	conf_sa dst = conf_addr(AF_INET, 7000), other = conf_addr(AF_INET, 0);
	struct rdma_cm_id *l;
	conf_sa dev = conf_dev_addr(0);

	start();
	l = conf_id(lch); /* with a device, or the original would crash */
	OK(rdma_bind_addr(l, SA(dev)));
	OK(rdma_listen(l, 1));
	ERR(rdma_resolve_addr(l, NULL, SA(dst), 1000), EINVAL);
	ERR(rdma_bind_addr(l, SA(other)), EINVAL);
	ERR(rdma_resolve_route(l, 1000), EINVAL);
	ERR(rdma_connect(l, &param), EINVAL);
	ERR(rdma_accept(l, &param), EINVAL);
	ERR(rdma_reject(l, NULL, 0), EINVAL);
	rdma_disconnect(l); /* 0 or EINVAL, and the listener stays one */
	reject_one(dev, l);
	stop(l);
}

static void backlog_out_of_range_is_the_maximum(void)
{
	static const int backlog[] = { 0, -1, 1 << 20 };
	struct rdma_cm_id *l, *a;

	for (unsigned i = 0; i < 3; i++) {
		start();
		l = conf_listen(lch, AF_INET, backlog[i]);
		a = connecting(conf_listen_addr(l));
		reject_all(1);
		rejected(a, conf_rejected());
		stop(l);
	}
}

static void no_listener_rejects_with_8(void)
{
	struct rdma_cm_event *ev;
	struct rdma_cm_id *a;

	start();
	a = connecting(conf_addr(AF_INET, conf_port(30)));
	ev = conf_get_status(ach, a, RDMA_CM_EVENT_REJECTED, 8);
	EQ(ev->param.conn.private_data_len, 148);
	CONF_MSG_ZERO(ev->param.conn.private_data, 148);
	OK(rdma_ack_cm_event(ev));
	EQ(conf_qp_state(a->qp), IBV_QPS_ERR);
	conf_id_free(a);
	stop(NULL);
}

static void bound_without_listen_rejects_with_8(void)
{
	conf_sa addr = conf_addr(AF_INET, 0);
	struct rdma_cm_id *l, *a;

	start();
	l = conf_id(lch);
	OK(rdma_bind_addr(l, SA(addr)));
	a = connecting(conf_listen_addr(l));
	rejected(a, 8);
	stop(l);
}

static void destroyed_listener_rejects_with_8(void)
{
	struct rdma_cm_id *l, *a;
	conf_sa dst;

	start();
	l = conf_listen(lch, AF_INET, 4);
	dst = conf_listen_addr(l);
	OK(rdma_destroy_id(l));
	a = connecting(dst);
	rejected(a, 8);
	stop(NULL);
}

/* Requests nobody fetched are refused when their listener goes. */
static void destroyed_listener_rejects_waiting_requests(void)
{
	struct rdma_cm_id *l, *a, *b;
	struct rdma_cm_event *ev;

	start();
	l = conf_listen(lch, AF_INET, 4);
	a = connecting(conf_listen_addr(l));
	b = connecting(conf_listen_addr(l));
	WAIT_FOR(conf_readable(lch->fd));
	OK(rdma_destroy_id(l));
	for (int i = 0; i < 2; i++) {
		MUST(ev = conf_next(ach, conf_ms(CONF_WAIT)));
		EQ(ev->event, RDMA_CM_EVENT_REJECTED);
		if (ev->status != conf_rejected() && ev->status != 8)
			FAIL("status %d", ev->status);
		OK(rdma_ack_cm_event(ev));
	}
	CHECK(!conf_readable(lch->fd));
	conf_id_free(a);
	conf_id_free(b);
	stop(NULL);
}

/* The backlog counts requests that nobody fetched. One too many gets no answer
 * and comes again later, when there is room. */
static void backlog_overflow_is_retried(void)
{
	enum { N = 4 };
	struct rdma_cm_id *l, *a[N];
	struct rdma_cm_event *ev;

	setenv("ANYRDMA_CM_RETRY_MS", "300", 1);
	start();
	l = conf_listen(lch, AF_INET, 1);
	for (int i = 0; i < N; i++)
		a[i] = connecting(conf_listen_addr(l));
	WAIT_FOR(conf_readable(lch->fd));
	conf_quiet(ach, CONF_QUIET); /* nobody is refused */
	for (int i = 0; i < N; i++) {
		AT("waiting for a request that was dropped once");
		MUST(ev = conf_next(lch, conf_ms(12000)));
		EQ(ev->event, RDMA_CM_EVENT_CONNECT_REQUEST);
		OK(rdma_reject(ev->id, NULL, 0));
		OK(rdma_destroy_id(ev->id));
		OK(rdma_ack_cm_event(ev));
	}
	for (int i = 0; i < N; i++)
		conf_expect_status(ach, NULL, RDMA_CM_EVENT_REJECTED, conf_rejected());
	for (int i = 0; i < N; i++)
		conf_id_free(a[i]);
	stop(l);
}

static void many_requests_at_once(void)
{
	enum { N = 32 };
	struct rdma_cm_id *l, *a[N];

	start();
	l = conf_listen(lch, AF_INET, N);
	for (int i = 0; i < N; i++)
		a[i] = connecting(conf_listen_addr(l));
	reject_all(N);
	for (int i = 0; i < N; i++)
		conf_expect_status(ach, NULL, RDMA_CM_EVENT_REJECTED, conf_rejected());
	for (int i = 0; i < N; i++)
		conf_id_free(a[i]);
	stop(l);
}

static void listeners_do_not_mix(void)
{
	struct rdma_event_channel *other = conf_channel();
	struct rdma_cm_id *l, *m, *a, *b;
	struct rdma_cm_event *ev;

	start();
	l = conf_listen(lch, AF_INET, 4);
	m = conf_listen(other, AF_INET, 4);
	a = connecting(conf_listen_addr(m));
	ev = conf_get(other, NULL, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(ev->listen_id == m);
	OK(rdma_destroy_id(ev->id));
	OK(rdma_ack_cm_event(ev));
	conf_expect_status(ach, a, RDMA_CM_EVENT_REJECTED, conf_rejected());
	CHECK(!conf_readable(lch->fd));
	b = connecting(conf_listen_addr(l));
	reject_all(1);
	conf_id_free(a);
	conf_id_free(b);
	conf_id_close(m);
	stop(l);
}

/* Nobody fetches requests: who found the backlog full hears that in the end. The
 * one that is queued may give up as well, but not earlier. */
static void unanswered_request_is_unreachable(void)
{
	struct rdma_cm_id *l, *a, *b, *who;
	struct rdma_cm_event *ev;

	setenv("ANYRDMA_CM_RETRY_MS", "100", 1);
	setenv("ANYRDMA_CM_RETRIES", "5", 1);
	start();
	l = conf_listen(lch, AF_INET, 1);
	a = resolved(conf_listen_addr(l));
	b = resolved(conf_listen_addr(l)); /* before a's request can give up */
	request(a);
	WAIT_FOR(conf_readable(lch->fd));
	request(b);
	do {
		AT("waiting for UNREACHABLE");
		MUST(ev = conf_next(ach, conf_user_device() ? conf_ms(CONF_WAIT) : 150000));
		EQ(ev->event, RDMA_CM_EVENT_UNREACHABLE);
		EQ(ev->status, -ETIMEDOUT);
		who = ev->id;
		OK(rdma_ack_cm_event(ev));
	} while (who != b);
	conf_id_free(a);
	conf_id_free(b);
	stop(l);
}

static const struct conf_case cases[] = {
	CASE(unbound_listener_gets_a_port),
	CASE(wildcard_child_has_real_addresses),
	CASE(wildcard6_child_has_real_addresses),
	CASE(wildcard6_serves_ipv4),
	CASE(wildcard6_afonly_refuses_ipv4),
	CASE(twice),
	CASE(after_resolution),
	CASE(listener_cannot_do_anything_else),
	CASE(backlog_out_of_range_is_the_maximum),
	CASE(no_listener_rejects_with_8),
	CASE(bound_without_listen_rejects_with_8),
	CASE(destroyed_listener_rejects_with_8),
	CASE(destroyed_listener_rejects_waiting_requests),
	LONG_CASE(backlog_overflow_is_retried, 60),
	CASE(many_requests_at_once),
	CASE(listeners_do_not_mix),
	LONG_CASE(unanswered_request_is_unreachable, 80),
};

CONF_MAIN(cases)
