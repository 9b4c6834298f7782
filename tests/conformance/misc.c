/* SPDX-License-Identifier: BSD-2-Clause */
/* Names of events, lists of devices, ECE, layouts of structs, and arguments that crash
 * the original library. */
#include "conf.h"

#include <stddef.h>

static void event_names(void)
{
	static const char *const name[] = {
		"ADDR_RESOLVED", "ADDR_ERROR", "ROUTE_RESOLVED", "ROUTE_ERROR",
		"CONNECT_REQUEST", "CONNECT_RESPONSE", "CONNECT_ERROR", "UNREACHABLE",
		"REJECTED", "ESTABLISHED", "DISCONNECTED", "DEVICE_REMOVAL",
		"MULTICAST_JOIN", "MULTICAST_ERROR", "ADDR_CHANGE", "TIMEWAIT_EXIT",
	};
	char want[64];

	for (int i = 0; i < 16; i++) {
		snprintf(want, sizeof(want), "RDMA_CM_EVENT_%s", name[i]);
		if (strcmp(rdma_event_str(i), want))
			FAIL("event %d is called %s", i, rdma_event_str(i));
	}
}

static void event_names_unknown(void)
{
	CHECK(!strcmp(rdma_event_str(18), "UNKNOWN EVENT"));
	CHECK(!strcmp(rdma_event_str(19), "UNKNOWN EVENT"));
	CHECK(!strcmp(rdma_event_str(1000), "UNKNOWN EVENT"));
	CHECK(!strcmp(rdma_event_str(-1), "UNKNOWN EVENT"));
}

static void event_names_new(void)
{
	conf_new("rdma_resolve_addrinfo");
	CHECK(!strcmp(rdma_event_str(16), "RDMA_CM_EVENT_ADDRINFO_RESOLVED"));
	CHECK(!strcmp(rdma_event_str(17), "RDMA_CM_EVENT_ADDRINFO_ERROR"));
}

static void devices(void)
{
	struct ibv_context **list, **again;
	struct ibv_device_attr attr;
	int n = -1;

	MUST(list = rdma_get_devices(&n));
	CHECK(n >= 1);
	for (int i = 0; i < n; i++)
		MUST(list[i]);
	CHECK(!list[n]);
	OK(ibv_query_device(list[0], &attr));
	MUST(again = rdma_get_devices(NULL));
	CHECK(again[0] == list[0]);
	rdma_free_devices(list);
	rdma_free_devices(again);
}

static void devices_free_null(void)
{
	if (conf_original())
		SKIP("crashes the original");
	rdma_free_devices(NULL);
}

static void device_is_roce(void)
{
	struct ibv_context **list;
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	union ibv_gid gid;
	__be16 pkey;

	MUST(list = rdma_get_devices(NULL));
	EQ(list[0]->device->node_type, IBV_NODE_CA);
	EQ(list[0]->device->transport_type, IBV_TRANSPORT_IB);
	OK(ibv_query_device(list[0], &attr));
	EQ(attr.phys_port_cnt, 1);
	CHECK(attr.max_qp > 0 && attr.max_cq > 0 && attr.max_mr > 0 && attr.max_pd > 0);
	CHECK(attr.max_qp_wr >= 1024 && attr.max_sge >= 4 && attr.max_cqe >= 1024);
	CHECK(attr.max_qp_rd_atom > 0 && attr.max_qp_init_rd_atom > 0);
	CHECK(attr.atomic_cap != IBV_ATOMIC_NONE);
	OK(ibv_query_port(list[0], 1, &port));
	EQ(port.state, IBV_PORT_ACTIVE);
	EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
	EQ(port.lid, 0);
	CHECK(port.gid_tbl_len >= 1 && port.pkey_tbl_len >= 1);
	CHECK(port.active_mtu >= IBV_MTU_256 && port.active_mtu <= port.max_mtu);
	OK(ibv_query_gid(list[0], 1, 0, &gid));
	OK(ibv_query_pkey(list[0], 1, 0, &pkey));
	EQ(ntohs(pkey), 0xffff);
	CHECK(ibv_query_port(list[0], 2, &port) != 0);
	CHECK(ibv_query_gid(list[0], 1, 1 << 20, &gid) != 0);
	rdma_free_devices(list);
}

static void registering_what_is_not_there(void)
{
	struct rdma_cm_id *id = conf_device_id();
	static const char constant[4096] __attribute__((aligned(4096))) = "x";
	int x;

	errno = 0;
	CHECK(!ibv_reg_mr(id->pd, (void *)4096, 4096, IBV_ACCESS_LOCAL_WRITE));
	EQ(errno, EFAULT);
	errno = 0;
	CHECK(!ibv_reg_mr(id->pd, (void *)constant, 4096, IBV_ACCESS_LOCAL_WRITE));
	CHECK(errno == EFAULT || errno == EACCES);
	errno = 0;
	CHECK(!ibv_reg_mr(id->pd, &x, sizeof(x), IBV_ACCESS_REMOTE_WRITE));
	EQ(errno, EINVAL); /* needs LOCAL_WRITE */
	conf_id_close(id);
}

static void ece_arguments(void)
{
	struct rdma_cm_id *id = conf_device_id();
	struct ibv_ece ece = { .vendor_id = 0x15b3, .options = 1 };

	ERR(rdma_set_local_ece(NULL, &ece), EINVAL);
	ERR(rdma_set_local_ece(id, NULL), EINVAL);
	ERR(rdma_get_remote_ece(NULL, &ece), EINVAL);
	ERR(rdma_get_remote_ece(id, NULL), EINVAL);
	ece.vendor_id = 0;
	ERR(rdma_set_local_ece(id, &ece), EINVAL);
	ece.vendor_id = 0x15b3;
	ece.comp_mask = 1;
	ERR(rdma_set_local_ece(id, &ece), EINVAL);
	ece.comp_mask = 0;
	OK(rdma_set_local_ece(id, &ece));
	conf_qp(id, 4);
	ERR(rdma_set_local_ece(id, &ece), EINVAL);
	ERR(rdma_get_remote_ece(id, &ece), EINVAL);
	conf_id_close(id);
}

/* Ids without QPs hand their ECE to each other. */
static void ece_is_exchanged(void)
{
	struct conf_opt bare = { .bare = true };
	struct conf_pair c;
	struct ibv_ece mine = { .vendor_id = 0x1234, .options = 0x5678 };
	struct ibv_ece reply = { .vendor_id = 0x1234, .options = 0x9abc }, got;
	struct rdma_conn_param param = conf_param();

	conf_pair_resolve(&c, &bare);
	OK(rdma_set_local_ece(c.a, &mine));
	param.qp_num = 0x77;
	OK(rdma_connect(c.a, &param));
	c.p = conf_request(c.lch);
	memset(&got, 0xff, sizeof(got));
	OK(rdma_get_remote_ece(c.p, &got));
	EQ(got.vendor_id, 0x1234);
	EQ(got.options, 0x5678);
	EQ(got.comp_mask, 0);
	OK(rdma_set_local_ece(c.p, &reply));
	param.qp_num = 0x78;
	OK(rdma_accept(c.p, &param));
	conf_expect(c.ach, c.a, RDMA_CM_EVENT_CONNECT_RESPONSE);
	OK(rdma_get_remote_ece(c.a, &got));
	EQ(got.vendor_id, 0x1234);
	EQ(got.options, 0x9abc);
	conf_pair_free(&c);
}

#define AT_OFFSET(type, member, off) EQ(offsetof(type, member), off)

static void layouts(void)
{
	EQ(sizeof(struct rdma_ib_addr), 40);
	EQ(sizeof(struct rdma_addr), 296);
	EQ(sizeof(struct rdma_route), 312);
	EQ(sizeof(struct rdma_event_channel), 4);
	EQ(sizeof(struct rdma_cm_id), 416);
	EQ(sizeof(struct rdma_conn_param), 24);
	EQ(sizeof(struct rdma_ud_param), 56);
	EQ(sizeof(struct rdma_cm_event), 80);
	EQ(sizeof(struct rdma_addrinfo), 96);
	EQ(sizeof(struct rdma_cm_join_mc_attr_ex), 16);
	AT_OFFSET(struct rdma_cm_id, route, 32);
	AT_OFFSET(struct rdma_cm_id, ps, 344);
	AT_OFFSET(struct rdma_cm_id, port_num, 348);
	AT_OFFSET(struct rdma_cm_id, event, 352);
	AT_OFFSET(struct rdma_cm_id, send_cq_channel, 360);
	AT_OFFSET(struct rdma_cm_id, recv_cq, 384);
	AT_OFFSET(struct rdma_cm_id, srq, 392);
	AT_OFFSET(struct rdma_cm_id, pd, 400);
	AT_OFFSET(struct rdma_cm_id, qp_type, 408);
	AT_OFFSET(struct rdma_conn_param, rnr_retry_count, 13);
	AT_OFFSET(struct rdma_conn_param, qp_num, 16);
	AT_OFFSET(struct rdma_cm_event, param, 24);
	AT_OFFSET(struct rdma_addrinfo, ai_next, 88);
}

/* Every function that takes an id, with none. */
static void null_ids(void)
{
	struct rdma_conn_param param = conf_param();
	conf_sa addr = conf_any(AF_INET, 0);
	struct ibv_qp_attr attr = { 0 };
	struct rdma_cm_id *child;
	int mask;

	if (conf_original())
		SKIP("crashes the original");
	ERR(rdma_bind_addr(NULL, SA(addr)), EINVAL);
	ERR(rdma_resolve_addr(NULL, NULL, SA(addr), 1), EINVAL);
	ERR(rdma_resolve_route(NULL, 1), EINVAL);
	ERR(rdma_listen(NULL, 1), EINVAL);
	ERR(rdma_connect(NULL, &param), EINVAL);
	ERR(rdma_accept(NULL, &param), EINVAL);
	ERR(rdma_reject(NULL, NULL, 0), EINVAL);
	ERR(rdma_establish(NULL), EINVAL);
	ERR(rdma_disconnect(NULL), EINVAL);
	ERR(rdma_notify(NULL, IBV_EVENT_COMM_EST), EINVAL);
	ERR(rdma_init_qp_attr(NULL, &attr, &mask), EINVAL);
	ERR(rdma_get_request(NULL, &child), EINVAL);
	ERR(rdma_destroy_id(NULL), EINVAL);
	EQ(rdma_get_src_port(NULL), 0);
	EQ(rdma_get_dst_port(NULL), 0);
	rdma_destroy_qp(NULL);
	rdma_destroy_srq(NULL);
	rdma_destroy_ep(NULL);
}

/* Private data with a length but no pointer: taken as none. */
static void length_without_private_data(void)
{
	struct rdma_conn_param param = conf_param();
	struct rdma_cm_event *ev;
	struct conf_pair c;

	conf_pair_resolve(&c, NULL);
	param.private_data_len = 20;
	OK(rdma_connect(c.a, &param));
	ev = conf_get(c.lch, NULL, RDMA_CM_EVENT_CONNECT_REQUEST);
	conf_private(&ev->param.conn, NULL, 0, 56);
	c.p = ev->id;
	OK(rdma_ack_cm_event(ev));
	conf_pair_free(&c);
}

static void ports_of_an_unknown_family(void)
{
	struct rdma_event_channel *ch = conf_channel();
	struct rdma_cm_id *id = conf_id(ch);

	id->route.addr.src_addr.sa_family = AF_UNIX;
	EQ(rdma_get_src_port(id), 0);
	id->route.addr.src_addr.sa_family = 0;
	conf_id_close(id);
}

static const struct conf_case cases[] = {
	CASE(event_names),
	CASE(event_names_unknown),
	CASE(event_names_new),
	CASE(devices),
	CASE(devices_free_null),
	CASE(device_is_roce),
	CASE(registering_what_is_not_there),
	CASE(ece_arguments),
	CASE(ece_is_exchanged),
	CASE(layouts),
	CASE(null_ids),
	CASE(length_without_private_data),
	CASE(ports_of_an_unknown_family),
};

CONF_MAIN(cases)
