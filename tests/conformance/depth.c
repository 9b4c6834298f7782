/* SPDX-License-Identifier: BSD-2-Clause */
/* Negotiation of read and atomic depths, checked on the QPs of both sides. */
#include "conf.h"

/* Depths: what each side's QP ends up with. Nobody takes a minimum. Powers of
 * two, because some devices round up to them. */

struct depths {
	int resp, init; /* responder_resources, initiator_depth; -1: NULL */
};

static void check_depths(struct depths con, struct depths acc)
{
	struct rdma_conn_param cp = conf_param(), ap = conf_param();
	struct conf_opt opt = {
		.connect = &cp,
		.accept = &ap,
		.connect_null = con.resp < 0,
		.accept_null = acc.resp < 0,
	};
	struct ibv_device_attr dev;
	struct ibv_qp_attr a, p;
	struct conf_pair c;
	int remote = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	int want_resp, want_init, creq_resp, creq_init, max_resp, max_init;

	cp.responder_resources = con.resp;
	cp.initiator_depth = con.init;
	ap.responder_resources = acc.resp;
	ap.initiator_depth = acc.init;
	conf_pair_open(&c, &opt);
	OK(ibv_query_device(c.a->verbs, &dev));
	max_resp = (uint8_t)dev.max_qp_rd_atom;
	max_init = (uint8_t)dev.max_qp_init_rd_atom;
	creq_resp = con.resp < 0 || con.resp == 0xff ? max_resp : con.resp;
	creq_init = con.init < 0 || con.init == 0xff ? max_init : con.init;
	want_resp = acc.resp < 0 || acc.resp == 0xff ? creq_init : acc.resp;
	want_init = acc.init < 0 || acc.init == 0xff ? creq_resp : acc.init;
	conf_qp_query(c.a->qp, &a);
	conf_qp_query(c.p->qp, &p);
	EQ(p.max_dest_rd_atomic, want_resp);
	EQ(p.max_rd_atomic, want_init);
	EQ(a.max_rd_atomic, want_resp);
	EQ(a.max_dest_rd_atomic, want_init);
	CHECK(a.qp_access_flags & IBV_ACCESS_REMOTE_WRITE);
	CHECK(p.qp_access_flags & IBV_ACCESS_REMOTE_WRITE);
	/* Access is given by what each side knows at its move to INIT: the
	 * passive one has the request, the active one the reply. */
	EQ(p.qp_access_flags & remote, creq_init ? remote : 0);
	EQ(a.qp_access_flags & remote, want_init ? remote : 0);
	conf_pair_close(&c);
}

static void null_null(void)
{
	check_depths((struct depths){ -1, -1 }, (struct depths){ -1, -1 });
}

static void max_null(void)
{
	check_depths((struct depths){ 0xff, 0xff }, (struct depths){ -1, -1 });
}

static void explicit_null(void)
{
	check_depths((struct depths){ 2, 4 }, (struct depths){ -1, -1 });
}

static void explicit_max(void)
{
	check_depths((struct depths){ 2, 4 }, (struct depths){ 0xff, 0xff });
}

static void null_zero(void)
{
	check_depths((struct depths){ -1, -1 }, (struct depths){ 0, 0 });
}

static void null_explicit(void)
{
	check_depths((struct depths){ -1, -1 }, (struct depths){ 2, 1 });
}

static void zero_null(void)
{
	check_depths((struct depths){ 0, 0 }, (struct depths){ -1, -1 });
}

static void accept_above_request(void)
{
	check_depths((struct depths){ 1, 1 }, (struct depths){ 4, 2 });
}

static void beyond_the_device(void)
{
	struct rdma_conn_param param = conf_param();
	struct ibv_device_attr dev;
	struct conf_pair c;

	conf_pair_request(&c, NULL);
	OK(ibv_query_device(c.a->verbs, &dev));
	if (dev.max_qp_rd_atom >= 254 || dev.max_qp_init_rd_atom >= 254)
		SKIP("the device's limit is above what the field can say");
	param.responder_resources = dev.max_qp_rd_atom + 1;
	ERR(rdma_accept(c.p, &param), EINVAL);
	param = conf_param();
	param.initiator_depth = dev.max_qp_init_rd_atom + 1;
	ERR(rdma_accept(c.p, &param), EINVAL);
	conf_pair_accept(&c); /* refused by the library: nothing was spoilt */
	conf_pair_close(&c);
}

static void beyond_the_device_connect(void)
{
	struct rdma_event_channel *ch = conf_channel();
	struct rdma_conn_param param = conf_param();
	struct ibv_device_attr dev;
	struct rdma_cm_id *id = conf_route_resolved(ch, conf_addr(AF_INET, 7000));

	conf_qp(id, 4);
	OK(ibv_query_device(id->verbs, &dev));
	if (dev.max_qp_rd_atom >= 254 || dev.max_qp_init_rd_atom >= 254)
		SKIP("the device's limit is above what the field can say");
	param.responder_resources = dev.max_qp_rd_atom + 1;
	ERR(rdma_connect(id, &param), EINVAL);
	param = conf_param();
	param.initiator_depth = dev.max_qp_init_rd_atom + 1;
	ERR(rdma_connect(id, &param), EINVAL);
	conf_id_close(id);
}

static const struct conf_case cases[] = {
	CASE(null_null),
	CASE(max_null),
	CASE(explicit_null),
	CASE(explicit_max),
	CASE(null_zero),
	CASE(null_explicit),
	CASE(zero_null),
	CASE(accept_above_request),
	CASE(beyond_the_device),
	CASE(beyond_the_device_connect),
};

CONF_MAIN(cases)
