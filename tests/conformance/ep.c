/* SPDX-License-Identifier: BSD-2-Clause */
/* Address information, endpoints, synchronous mode. */
#include "conf.h"

#include <netdb.h>

static char node[64], service[16];

/* Text of the device's address for rdma_getaddrinfo. */
static void set_node(uint16_t port)
{
	conf_sa addr = conf_addr(AF_INET, 0);

	inet_ntop(AF_INET, &((struct sockaddr_in *)&addr)->sin_addr, node, sizeof(node));
	snprintf(service, sizeof(service), "%u", port);
}

static struct rdma_addrinfo *info(int flags, uint16_t port)
{
	struct rdma_addrinfo hints = { .ai_flags = flags, .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *res = NULL;

	set_node(port);
	OK(rdma_getaddrinfo(node, service, &hints, &res));
	MUST(res);
	return res;
}

static struct ibv_qp_init_attr attrs(void)
{
	struct ibv_qp_init_attr attr = {
		.cap = CONF_CAP(4, 4, 1),
		.sq_sig_all = 1,
	};

	return attr;
}

/* rdma_getaddrinfo. */

static void info_active(void)
{
	struct rdma_addrinfo *res = info(0, 7471);
	conf_sa want = conf_addr(AF_INET, 7471);

	EQ(res->ai_flags, 0);
	EQ(res->ai_family, AF_INET);
	EQ(res->ai_qp_type, IBV_QPT_RC);
	EQ(res->ai_port_space, RDMA_PS_TCP);
	EQ(res->ai_dst_len, sizeof(struct sockaddr_in));
	CHECK(!memcmp(res->ai_dst_addr, &want, 8));
	EQ(res->ai_src_len, 0);
	CHECK(!res->ai_src_addr && !res->ai_next);
	rdma_freeaddrinfo(res);
}

static void info_passive(void)
{
	struct rdma_addrinfo *res = info(RAI_PASSIVE, 7471);
	conf_sa want = conf_addr(AF_INET, 7471);

	EQ(res->ai_flags, RAI_PASSIVE);
	EQ(res->ai_src_len, sizeof(struct sockaddr_in));
	CHECK(!memcmp(res->ai_src_addr, &want, 8));
	EQ(res->ai_dst_len, 0);
	CHECK(!res->ai_dst_addr);
	rdma_freeaddrinfo(res);
}

static void info_passive_without_node(void)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP,
				       .ai_family = AF_INET };
	struct rdma_addrinfo *res;
	struct sockaddr_in *in;

	OK(rdma_getaddrinfo(NULL, "7471", &hints, &res));
	in = (void *)res->ai_src_addr;
	EQ(in->sin_family, AF_INET);
	EQ(in->sin_addr.s_addr, 0);
	EQ(ntohs(in->sin_port), 7471);
	rdma_freeaddrinfo(res);
}

static void info_without_hints(void)
{
	struct rdma_addrinfo *res;

	set_node(7471);
	OK(rdma_getaddrinfo(node, service, NULL, &res));
	CHECK(res->ai_dst_addr && !res->ai_src_addr);
	EQ(res->ai_qp_type, IBV_QPT_RC);
	EQ(res->ai_port_space, RDMA_PS_TCP);
	rdma_freeaddrinfo(res);
}

static void info_of_datagrams(void)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_UDP, .ai_qp_type = IBV_QPT_UD };
	struct rdma_addrinfo *res;

	set_node(7471);
	OK(rdma_getaddrinfo(node, service, &hints, &res));
	EQ(res->ai_qp_type, IBV_QPT_UD);
	EQ(res->ai_port_space, RDMA_PS_UDP);
	rdma_freeaddrinfo(res);
}

static void info_keeps_the_source_of_hints(void)
{
	conf_sa src = conf_addr(AF_INET, 0);
	struct rdma_addrinfo hints = {
		.ai_port_space = RDMA_PS_TCP,
		.ai_src_addr = SA(src),
		.ai_src_len = sizeof(struct sockaddr_in),
	};
	struct rdma_addrinfo *res;

	set_node(7471);
	OK(rdma_getaddrinfo(node, service, &hints, &res));
	EQ(res->ai_src_len, sizeof(struct sockaddr_in));
	CHECK(!memcmp(res->ai_src_addr, &src, 8) && res->ai_src_addr != SA(src));
	CHECK(res->ai_dst_addr);
	rdma_freeaddrinfo(res);
}

static void info_from_hints_alone(void)
{
	conf_sa dst = conf_addr(AF_INET, 7471);
	struct rdma_addrinfo hints = {
		.ai_family = AF_INET,
		.ai_port_space = RDMA_PS_TCP,
		.ai_qp_type = IBV_QPT_RC,
		.ai_dst_addr = SA(dst),
		.ai_dst_len = sizeof(struct sockaddr_in),
	};
	struct rdma_addrinfo *res;

	OK(rdma_getaddrinfo(NULL, NULL, &hints, &res));
	EQ(res->ai_family, AF_INET);
	EQ(res->ai_qp_type, IBV_QPT_RC);
	EQ(res->ai_dst_len, sizeof(struct sockaddr_in));
	CHECK(!memcmp(res->ai_dst_addr, &dst, 8) && res->ai_dst_addr != SA(dst));
	rdma_freeaddrinfo(res);
}

static void info_of_nothing(void)
{
	struct rdma_addrinfo *res;

	ERR(rdma_getaddrinfo(NULL, NULL, NULL, &res), EINVAL);
}

static void info_of_a_bad_number(void)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_NUMERICHOST,
				       .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *res = NULL;

	EQ(rdma_getaddrinfo("no-number", "1", &hints, &res), EAI_NONAME);
}

static void free_null_info(void)
{
	rdma_freeaddrinfo(NULL);
}

/* Endpoints. */

static void passive_ep(void)
{
	struct rdma_addrinfo *res = info(RAI_PASSIVE, 0);
	struct ibv_qp_init_attr attr = attrs(), before = attr;
	struct rdma_cm_id *id = NULL;

	OK(rdma_create_ep(&id, res, NULL, &attr));
	CHECK(!memcmp(&attr, &before, sizeof(attr))); /* not the caller's to change */
	CHECK(id && id->channel && !id->qp && !id->context);
	EQ(id->ps, RDMA_PS_TCP);
	EQ(id->qp_type, IBV_QPT_RC);
	CHECK(rdma_get_src_port(id) != 0);
	OK(rdma_listen(id, 2));
	rdma_destroy_ep(id);
	rdma_freeaddrinfo(res);
}

static void active_ep(void)
{
	struct rdma_addrinfo *res = info(0, 7471);
	struct ibv_qp_init_attr attr = attrs();
	struct rdma_cm_id *id = NULL;

	OK(rdma_create_ep(&id, res, NULL, &attr));
	CHECK(id->verbs && id->pd && id->qp && id->send_cq && id->recv_cq);
	EQ(id->route.num_paths, conf_iwarp() ? 0 : 1);
	EQ(attr.qp_type, IBV_QPT_RC);
	CHECK(attr.cap.max_send_wr >= 4);
	QP_STATE(id->qp, IBV_QPS_INIT);
	rdma_destroy_ep(id);
	rdma_freeaddrinfo(res);
}

static void active_ep_without_qp(void)
{
	struct rdma_addrinfo *res = info(0, 7471);
	struct rdma_cm_id *id = NULL;

	OK(rdma_create_ep(&id, res, NULL, NULL));
	CHECK(id->verbs && !id->qp);
	EQ(id->route.num_paths, conf_iwarp() ? 0 : 1);
	rdma_destroy_ep(id);
	rdma_freeaddrinfo(res);
}

static void ep_with_foreign_address(void)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *res;
	struct rdma_cm_id *id = (void *)&hints;

	OK(rdma_getaddrinfo("192.0.2.1", "7471", &hints, &res));
	ERR(rdma_create_ep(&id, res, NULL, NULL), EADDRNOTAVAIL);
	CHECK(id == (void *)&hints); /* untouched */
	rdma_freeaddrinfo(res);
}

static void ep_of_null(void)
{
	struct rdma_cm_id *id;

	if (conf_original())
		SKIP("crashes the original");
	ERR(rdma_create_ep(&id, NULL, NULL, NULL), EINVAL);
}

static void destroy_ep_of_an_ordinary_id(void)
{
	struct rdma_event_channel *ch = conf_channel();
	struct rdma_cm_id *id = conf_addr_resolved(ch, conf_addr(AF_INET, 7000));

	conf_qp(id, 4);
	rdma_destroy_ep(id);
	rdma_destroy_event_channel(ch);
}

static void request_of_an_asynchronous_listener(void)
{
	struct rdma_event_channel *ch = conf_channel();
	struct rdma_cm_id *l = conf_listen(ch, AF_INET, 2), *id;

	ERR(rdma_get_request(l, &id), EINVAL);
	conf_id_close(l);
}

/* The active side of the synchronous cases runs in a thread. */
struct client {
	uint16_t port;
	int ret, err;
	struct rdma_cm_id *id;
	const char *data;
	atomic_int done;
};

static void *client_run(void *arg)
{
	struct client *c = arg;
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *res;
	struct ibv_qp_init_attr attr = attrs();
	struct rdma_conn_param param = conf_param();
	char text[16];

	snprintf(text, sizeof(text), "%u", c->port);
	OK(rdma_getaddrinfo(node, text, &hints, &res));
	OK(rdma_create_ep(&c->id, res, NULL, &attr));
	rdma_freeaddrinfo(res);
	param.private_data = c->data;
	param.private_data_len = c->data ? strlen(c->data) : 0;
	errno = 0;
	c->ret = rdma_connect(c->id, &param);
	c->err = errno;
	c->done = 1;
	return NULL;
}

static struct rdma_cm_id *server(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct rdma_addrinfo *res = info(RAI_PASSIVE, 0);
	struct rdma_cm_id *l;

	OK(rdma_create_ep(&l, res, pd, attr));
	OK(rdma_listen(l, 4));
	rdma_freeaddrinfo(res);
	return l;
}

static void *disconnect_run(void *arg)
{
	OK(rdma_disconnect(arg));
	return NULL;
}

static void synchronous_connection(void)
{
	struct ibv_qp_init_attr attr = attrs();
	struct rdma_conn_param param = conf_param();
	struct rdma_cm_id *l = server(NULL, &attr), *p;
	struct client c = { .port = ntohs(rdma_get_src_port(l)), .data = "hello" };
	pthread_t t = conf_thread(client_run, &c);
	struct ibv_wc wc;
	char in[64] = "", out[64] = "over";
	struct ibv_mr *rmr, *smr;

	AT("rdma_get_request");
	OK(rdma_get_request(l, &p));
	MUST(p->event);
	EQ(p->event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(p->event->listen_id == l && p->event->id == p);
	CHECK(!memcmp(p->event->param.conn.private_data, "hello", 6));
	CHECK(p->channel != l->channel && p->qp && p->send_cq && p->recv_cq);
	EQ(c.done, 0);
	MUST(rmr = rdma_reg_msgs(p, in, sizeof(in)));
	OK(rdma_post_recv(p, NULL, in, sizeof(in), rmr));
	param.private_data = "welcome";
	param.private_data_len = 7;
	OK(rdma_accept(p, &param));
	MUST(p->event);
	EQ(p->event->event, RDMA_CM_EVENT_ESTABLISHED);
	conf_join(t);
	EQ(c.ret, 0);
	EQ(c.id->event->event, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(!memcmp(c.id->event->param.conn.private_data, "welcome", 8));
	MUST(smr = rdma_reg_msgs(c.id, out, sizeof(out)));
	OK(rdma_post_send(c.id, NULL, out, sizeof(out), smr, 0));
	EQ(rdma_get_send_comp(c.id, &wc), 1);
	EQ(rdma_get_recv_comp(p, &wc), 1);
	CHECK(!strcmp(in, "over"));
	t = conf_thread(disconnect_run, c.id); /* both calls wait for the other side */
	OK(rdma_disconnect(p));
	EQ(p->event->event, RDMA_CM_EVENT_DISCONNECTED);
	conf_join(t);
	OK(rdma_dereg_mr(rmr));
	OK(rdma_dereg_mr(smr));
	rdma_destroy_ep(c.id);
	rdma_destroy_ep(p);
	rdma_destroy_ep(l);
}

static void synchronous_reject(void)
{
	struct ibv_qp_init_attr attr = attrs();
	struct rdma_cm_id *l = server(NULL, &attr), *p;
	struct client c = { .port = ntohs(rdma_get_src_port(l)) };
	pthread_t t = conf_thread(client_run, &c);

	OK(rdma_get_request(l, &p));
	OK(rdma_reject(p, "go away", 7));
	rdma_destroy_ep(p);
	conf_join(t);
	EQ(c.ret, -1);
	EQ(c.err, ECONNREFUSED);
	MUST(c.id->event); /* readable after the failure */
	EQ(c.id->event->event, RDMA_CM_EVENT_REJECTED);
	EQ(c.id->event->status, conf_rejected());
	CHECK(!memcmp(c.id->event->param.conn.private_data, "go away", 8));
	rdma_destroy_ep(c.id);
	rdma_destroy_ep(l);
}

static void synchronous_no_listener(void)
{
	struct client c = { .port = conf_port(50) };

	set_node(0);
	client_run(&c);
	EQ(c.ret, -1);
	EQ(c.err, ECONNREFUSED);
	EQ(c.id->event->status, 8);
	rdma_destroy_ep(c.id);
}

static void synchronous_connect_nonblocking(void)
{
	struct ibv_qp_init_attr attr = attrs(), lattr = attrs();
	struct rdma_conn_param param = conf_param();
	struct rdma_cm_id *l = server(NULL, &lattr), *p, *id;
	struct rdma_addrinfo *res = info(0, ntohs(rdma_get_src_port(l)));
	struct rdma_cm_event *ev;

	OK(rdma_create_ep(&id, res, NULL, &attr));
	rdma_freeaddrinfo(res);
	conf_nonblock(id->channel->fd, true);
	ERR(rdma_connect(id, &param), EAGAIN);
	OK(rdma_get_request(l, &p));
	conf_nonblock(p->channel->fd, true);
	ERR(rdma_accept(p, &param), EAGAIN); /* ESTABLISHED is still to come */
	ev = conf_get(id->channel, id, RDMA_CM_EVENT_ESTABLISHED);
	OK(rdma_ack_cm_event(ev));
	conf_expect(p->channel, p, RDMA_CM_EVENT_ESTABLISHED);
	rdma_destroy_ep(id);
	rdma_destroy_ep(p);
	rdma_destroy_ep(l);
}

static void request_makes_the_qp_on_the_eps_pd(void)
{
	struct rdma_cm_id *other = conf_device_id();
	struct ibv_qp_init_attr attr = attrs();
	struct ibv_pd *pd;
	struct rdma_cm_id *l, *p;
	struct client c = { 0 };
	pthread_t t;

	MUST(pd = ibv_alloc_pd(other->verbs));
	l = server(pd, &attr);
	CHECK(l->pd == pd);
	c.port = ntohs(rdma_get_src_port(l));
	t = conf_thread(client_run, &c);
	OK(rdma_get_request(l, &p));
	CHECK(p->qp && p->qp->pd == pd && p->pd == pd);
	OK(rdma_accept(p, NULL));
	conf_join(t);
	rdma_destroy_ep(c.id);
	rdma_destroy_ep(p);
	rdma_destroy_ep(l);
	conf_id_close(other);
	OK(ibv_dealloc_pd(pd));
}

static void requests_share_the_callers_cq(void)
{
	struct rdma_cm_id *other = conf_device_id();
	struct ibv_qp_init_attr attr = attrs();
	struct rdma_cm_id *l, *p[2];
	struct client c[2] = { { 0 } };
	struct ibv_cq *cq;
	pthread_t t;

	MUST(cq = ibv_create_cq(other->verbs, 64, NULL, NULL, 0));
	attr.send_cq = attr.recv_cq = cq;
	l = server(NULL, &attr);
	for (int i = 0; i < 2; i++) {
		c[i].port = ntohs(rdma_get_src_port(l));
		t = conf_thread(client_run, &c[i]);
		OK(rdma_get_request(l, &p[i]));
		CHECK(p[i]->qp->send_cq == cq && p[i]->qp->recv_cq == cq);
		CHECK(!p[i]->send_cq);
		OK(rdma_accept(p[i], NULL));
		conf_join(t);
	}
	for (int i = 0; i < 2; i++) {
		rdma_destroy_ep(c[i].id);
		rdma_destroy_ep(p[i]);
	}
	rdma_destroy_ep(l);
	OK(ibv_destroy_cq(cq));
	conf_id_close(other);
}

/* Resolve synchronously, then go on with events: libfabric and rpma do so. */
static void synchronous_then_asynchronous(void)
{
	struct conf_pair c = { .lch = conf_channel(), .ach = conf_channel() };
	struct rdma_conn_param param = conf_param();
	conf_sa dst;

	c.listener = conf_listen(c.lch, AF_INET, 4);
	dst = conf_listen_addr(c.listener);
	OK(rdma_create_id(NULL, &c.a, NULL, RDMA_PS_TCP));
	OK(rdma_resolve_addr(c.a, NULL, SA(dst), 2000));
	OK(rdma_resolve_route(c.a, 2000));
	OK(rdma_migrate_id(c.a, c.ach));
	conf_qp(c.a, 4);
	OK(rdma_connect(c.a, &param));
	c.p = conf_request(c.lch);
	conf_qp(c.p, 4);
	conf_pair_accept(&c);
	conf_pair_close(&c);
}

static const struct conf_case cases[] = {
	CASE(info_active),
	CASE(info_passive),
	CASE(info_passive_without_node),
	CASE(info_without_hints),
	CASE(info_of_datagrams),
	CASE(info_keeps_the_source_of_hints),
	CASE(info_from_hints_alone),
	CASE(info_of_nothing),
	CASE(info_of_a_bad_number),
	CASE(free_null_info),
	CASE(passive_ep),
	CASE(active_ep),
	CASE(active_ep_without_qp),
	CASE(ep_with_foreign_address),
	CASE(ep_of_null),
	CASE(destroy_ep_of_an_ordinary_id),
	CASE(request_of_an_asynchronous_listener),
	CASE(synchronous_connection),
	CASE(synchronous_reject),
	CASE(synchronous_no_listener),
	CASE(synchronous_connect_nonblocking),
	CASE(request_makes_the_qp_on_the_eps_pd),
	CASE(requests_share_the_callers_cq),
	CASE(synchronous_then_asynchronous),
};

CONF_MAIN(cases)
