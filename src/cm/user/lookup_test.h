/* SPDX-License-Identifier: BSD-2-Clause */
/* UD ids of the backend, and what is asked and answered in lookup_test.c. */
#ifndef ANYRDMA_CM_USER_LOOKUP_TEST_H
#define ANYRDMA_CM_USER_LOOKUP_TEST_H

#include "cm/user/pair_test.h"

enum { NOBODY = 20061 };

static const struct cm_conn_param ask = {
	.qp_num = 0x77, .private_data_len = 3, .private_data = "abc",
};
static const struct cm_conn_param give = {
	.qp_num = 0x4321, .private_data_len = 4, .private_data = "defg",
};

static struct cm_id *ud_new(struct cm_channel *ch, void *be_id)
{
	return id_new_ps(ch, be_id, RDMA_PS_UDP, IBV_QPT_UD);
}

static struct cm_id *ud_listener(struct cm_channel *ch, const struct sockaddr *a, int backlog)
{
	struct cm_id *id = ud_new(ch, NULL);

	CHECK_EQ(be->bind(id, a), 0);
	CHECK_EQ(be->listen(id, backlog), 0);
	return id;
}

static struct cm_id *ud_routed(struct cm_channel *ch, const struct sockaddr *a)
{
	struct cm_id *id = ud_new(ch, NULL);

	CHECK_EQ(be->resolve_addr(id, NULL, a, 1000), 0);
	want(ch, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	CHECK_EQ(be->resolve_route(id, 1000), 0);
	want(ch, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	return id;
}

static struct cm_id *ud_routed4(struct cm_channel *ch, uint16_t port)
{
	struct sockaddr_in a = loop_addr(port);

	return ud_routed(ch, (struct sockaddr *)&a);
}

/* The next event is a request; the child, which is to be freed. */
static struct cm_id *child_of(struct cm_channel *ch)
{
	struct cm_event *ev = want_for(ch, RDMA_CM_EVENT_CONNECT_REQUEST, 0, 20000);
	struct cm_id *child;

	if (!ev)
		return NULL;
	child = ud_new(ch, ev->be_child);
	cm_event_free(ev);
	return child;
}

static bool ud_request(struct pair *p)
{
	struct sockaddr_in a = loop_addr(0);
	struct cm_event *ev;

	memset(p, 0, sizeof(*p));
	p->cs = ch_new();
	p->cc = ch_new();
	p->lis = ud_listener(p->cs, (struct sockaddr *)&a, 10);
	p->id = ud_routed4(p->cc, src_port(p->lis));
	CHECK_EQ(be->connect(p->id, &ask), 0);
	ev = want_for(p->cs, RDMA_CM_EVENT_CONNECT_REQUEST, 0, 5000);
	if (!ev)
		return false;
	CHECK_EQ(ev->pub.param.ud.private_data_len, 180);
	CHECK(memcmp(ev->pub.param.ud.private_data, "abc\0", 4) == 0);
	CHECK_EQ(ev->pub.param.ud.qp_num, 0);
	CHECK_EQ(ev->pub.param.ud.qkey, 0);
	CHECK(!ev->pub.param.ud.ah_attr.is_global);
	p->child = ud_new(p->cs, ev->be_child);
	cm_event_free(ev);
	return true;
}

/* The peer's refusal, with private data that starts like this. */
static bool refused_with(struct cm_channel *ch, int status, const char *priv)
{
	struct cm_event *ev = want_for(ch, RDMA_CM_EVENT_UNREACHABLE, status, 20000);

	if (!ev)
		return false;
	CHECK_EQ(ev->pub.param.ud.private_data_len, 136);
	CHECK(memcmp(ev->pub.param.ud.private_data, priv, strlen(priv) + 1) == 0);
	cm_event_free(ev);
	return true;
}

static bool got_established(struct cm_channel *ch)
{
	struct cm_event *ev = want_for(ch, RDMA_CM_EVENT_ESTABLISHED, 0, 20000);
	const struct rdma_ud_param *ud;

	if (!ev)
		return false;
	ud = &ev->pub.param.ud;
	CHECK_EQ(ud->private_data_len, 136);
	CHECK(memcmp(ud->private_data, "defg\0", 5) == 0);
	CHECK_EQ(ud->qp_num, 0x4321);
	CHECK_EQ(ud->qkey, 0x01234567);
	CHECK(ud->ah_attr.is_global && ud->ah_attr.port_num == 1);
	CHECK_EQ(ud->ah_attr.grh.sgid_index, 3);
	CHECK_EQ(ud->ah_attr.grh.hop_limit, 64);
	cm_event_free(ev);
	return true;
}

#endif
