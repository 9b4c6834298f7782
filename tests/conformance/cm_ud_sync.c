/* SPDX-License-Identifier: BSD-2-Clause */
/* Datagrams and synchronous ids: rdma_create_ep() and rdma_get_request(). */
#include "conf.h"

#include <netdb.h>

static char node[64];

static struct rdma_addrinfo *info(int flags, uint16_t port)
{
	struct rdma_addrinfo hints = { .ai_flags = flags, .ai_port_space = RDMA_PS_UDP,
				       .ai_qp_type = IBV_QPT_UD };
	conf_sa addr = conf_addr(AF_INET, 0);
	struct rdma_addrinfo *res = NULL;
	char service[16];

	if (conf_iwarp())
		SKIP("iWARP has no datagrams");
	inet_ntop(AF_INET, &((struct sockaddr_in *)&addr)->sin_addr, node, sizeof(node));
	snprintf(service, sizeof(service), "%u", port);
	OK(rdma_getaddrinfo(node, service, &hints, &res));
	return res;
}

static struct ibv_qp_init_attr attrs(void)
{
	return (struct ibv_qp_init_attr){
		.cap = CONF_CAP(4, 4, 1),
		.qp_type = IBV_QPT_UD,
		.sq_sig_all = 1,
	};
}

static struct rdma_cm_id *server(struct ibv_qp_init_attr *attr)
{
	struct rdma_addrinfo *res = info(RAI_PASSIVE, 0);
	struct rdma_cm_id *l;

	OK(rdma_create_ep(&l, res, NULL, attr));
	OK(rdma_listen(l, 8));
	rdma_freeaddrinfo(res);
	EQ(l->qp_type, IBV_QPT_UD);
	EQ(l->ps, RDMA_PS_UDP);
	return l;
}

/* A client in a thread of its own, as its calls wait for the server. */
struct client {
	uint16_t port;
	const char *data;
	struct rdma_cm_id *id;
	int ret, err;
	atomic_bool done;
};

static void *client_run(void *arg)
{
	struct client *c = arg;
	struct rdma_conn_param param = { .private_data = c->data,
					 .private_data_len = strlen(c->data) };
	struct ibv_qp_init_attr attr = attrs();
	struct rdma_addrinfo *res = info(0, c->port);

	OK(rdma_create_ep(&c->id, res, NULL, &attr));
	rdma_freeaddrinfo(res);
	errno = 0;
	c->ret = rdma_connect(c->id, &param);
	c->err = errno;
	c->done = true;
	return NULL;
}

static void exchange(void)
{
	struct ibv_qp_init_attr attr = attrs();
	struct rdma_cm_id *l = server(&attr), *p;
	struct client c = { .port = ntohs(rdma_get_src_port(l)), .data = "hello" };
	struct rdma_conn_param param = { .private_data = "welcome",
					 .private_data_len = 7 };
	pthread_t t = conf_thread(client_run, &c);
	char in[256] = "", out[64] = "over";
	struct ibv_mr *rmr, *smr;
	struct ibv_ah_attr to;
	struct ibv_ah *ah;
	struct ibv_wc wc;

	AT("rdma_get_request");
	OK(rdma_get_request(l, &p));
	MUST(p->event);
	EQ(p->event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
	EQ(p->event->param.ud.private_data_len, 180);
	CHECK(!memcmp(p->event->param.ud.private_data, "hello", 6));
	CHECK(p->channel != l->channel && p->qp && p->send_cq && p->recv_cq);
	EQ(conf_qp_state(p->qp), IBV_QPS_RTS);
	EQ(c.done, 0);
	MUST(rmr = rdma_reg_msgs(p, in, sizeof(in)));
	OK(rdma_post_recv(p, NULL, in, sizeof(in), rmr));
	OK(rdma_accept(p, &param)); /* waits for nothing */
	conf_join(t);
	EQ(c.ret, 0);
	EQ(c.id->event->event, RDMA_CM_EVENT_ESTABLISHED);
	EQ(c.id->event->param.ud.qp_num, p->qp->qp_num);
	CHECK(!memcmp(c.id->event->param.ud.private_data, "welcome", 8));
	to = c.id->event->param.ud.ah_attr;
	MUST(ah = ibv_create_ah(c.id->pd, &to));
	MUST(smr = rdma_reg_msgs(c.id, out, sizeof(out)));
	OK(rdma_post_ud_send(c.id, NULL, out, sizeof(out), smr, 0, ah, p->qp->qp_num));
	EQ(rdma_get_send_comp(c.id, &wc), 1);
	EQ(rdma_get_recv_comp(p, &wc), 1);
	CHECK(!strcmp(in + 40, "over"));
	OK(ibv_destroy_ah(ah));
	rdma_destroy_qp(p);
	rdma_destroy_qp(c.id);
	OK(rdma_dereg_mr(rmr));
	OK(rdma_dereg_mr(smr));
	rdma_destroy_ep(c.id);
	rdma_destroy_ep(p);
	rdma_destroy_ep(l);
}

/* rdma_accept() is done with the request: the listener need not wait for the child's end. */
static void accept_ends_the_request(void)
{
	struct ibv_qp_init_attr attr = attrs();
	struct rdma_cm_id *l, *p;
	struct client c = { .data = "" };
	pthread_t t;

	if (conf_original())
		SKIP("there, the listener waits for the child's event for ever");
	l = server(&attr);
	c.port = ntohs(rdma_get_src_port(l));
	t = conf_thread(client_run, &c);
	OK(rdma_get_request(l, &p));
	OK(rdma_accept(p, NULL));
	CHECK(!p->event);
	conf_join(t);
	rdma_destroy_ep(l);
	rdma_destroy_ep(p);
	rdma_destroy_ep(c.id);
}

static void rejected(void)
{
	struct ibv_qp_init_attr attr = attrs();
	struct rdma_cm_id *l = server(&attr), *p;
	struct client c = { .port = ntohs(rdma_get_src_port(l)), .data = "" };
	pthread_t t = conf_thread(client_run, &c);

	OK(rdma_get_request(l, &p));
	OK(rdma_reject(p, "go away", 7));
	rdma_destroy_ep(p);
	conf_join(t);
	EQ(c.ret, -1);
	EQ(c.err, ECONNREFUSED); /* as for connections */
	MUST(c.id->event); /* readable after the failure */
	EQ(c.id->event->event, RDMA_CM_EVENT_UNREACHABLE);
	EQ(c.id->event->status, 2);
	CHECK(!memcmp(c.id->event->param.ud.private_data, "go away", 8));
	rdma_destroy_ep(c.id);
	rdma_destroy_ep(l);
}

static void no_listener(void)
{
	struct client c = { .port = conf_port(70), .data = "" };

	client_run(&c);
	EQ(c.ret, -1);
	EQ(c.err, ECONNREFUSED);
	EQ(c.id->event->event, RDMA_CM_EVENT_UNREACHABLE);
	EQ(c.id->event->status, 1);
	rdma_destroy_ep(c.id);
}

static void nonblocking_connect(void)
{
	struct ibv_qp_init_attr attr = attrs(), lattr = attrs();
	struct rdma_conn_param param = { 0 };
	struct rdma_cm_id *l = server(&lattr), *p, *id;
	struct rdma_addrinfo *res = info(0, ntohs(rdma_get_src_port(l)));

	OK(rdma_create_ep(&id, res, NULL, &attr));
	rdma_freeaddrinfo(res);
	conf_nonblock(id->channel->fd, true);
	ERR(rdma_connect(id, &param), EAGAIN);
	OK(rdma_get_request(l, &p));
	conf_nonblock(p->channel->fd, true);
	OK(rdma_accept(p, &param));
	conf_expect(id->channel, id, RDMA_CM_EVENT_ESTABLISHED);
	rdma_destroy_ep(id);
	rdma_destroy_ep(p);
	rdma_destroy_ep(l);
}

/* A listener's id that has no attributes for QPs gives children without. */
static void request_without_a_qp(void)
{
	struct rdma_cm_id *l = server(NULL), *p;
	struct client c = { .port = ntohs(rdma_get_src_port(l)), .data = "" };
	pthread_t t = conf_thread(client_run, &c);
	struct rdma_conn_param param = { .qp_num = 0x123456 };

	OK(rdma_get_request(l, &p));
	CHECK(!p->qp);
	OK(rdma_accept(p, &param));
	conf_join(t);
	EQ(c.ret, 0);
	EQ(c.id->event->param.ud.qp_num, 0x123456);
	rdma_destroy_ep(p);
	rdma_destroy_ep(c.id);
	rdma_destroy_ep(l);
}

/* A synchronous id becomes one of a channel, as libfabric makes them. */
static void migrated(void)
{
	struct rdma_event_channel *ch = conf_channel();
	struct ibv_qp_init_attr attr = attrs(), lattr = attrs();
	struct rdma_cm_id *l = server(&lattr), *p, *id;
	struct rdma_addrinfo *res = info(0, ntohs(rdma_get_src_port(l)));

	OK(rdma_create_ep(&id, res, NULL, &attr));
	rdma_freeaddrinfo(res);
	OK(rdma_migrate_id(id, ch));
	OK(rdma_connect(id, NULL));
	OK(rdma_get_request(l, &p));
	OK(rdma_accept(p, NULL));
	conf_expect(ch, id, RDMA_CM_EVENT_ESTABLISHED);
	rdma_destroy_ep(id);
	rdma_destroy_ep(p);
	rdma_destroy_ep(l);
	rdma_destroy_event_channel(ch);
}

static const struct conf_case cases[] = {
	CASE(exchange),
	CASE(accept_ends_the_request),
	CASE(rejected),
	CASE(no_listener),
	CASE(nonblocking_connect),
	CASE(request_without_a_qp),
	CASE(migrated),
};

CONF_MAIN(cases)
