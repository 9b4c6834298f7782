/* SPDX-License-Identifier: BSD-2-Clause */
/* The bytes of each command of the kernel backend. Sizes and offsets are the ABI's
 * numbers, not those of the structs that the code uses. */
#include "tests/t.h"

#include "cm/fake_test.h"
#include "cm/kernel/fake_test.h"
#include "cm/sockaddr_ib.h"

#include <endian.h>

/* ---- the bytes of the commands -------------------------------------------------- */

static void create_and_destroy(void)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *id;

	/* The probe: port space IB, a wildcard of the TCP service ids. */
	SIZES(CMD(CREATE_ID), 24, 4);
	CHECK_EQ(FK_U16(CMD(CREATE_ID), 16), 0x13F);
	SIZES(CMD(BIND), 136, 0);
	CHECK_EQ(FK_U16(CMD(BIND), 4), 48);
	CHECK_EQ(FK_U16(CMD(BIND), 8), 27);
	CHECK_EQ(be64toh(FK_U64(CMD(BIND), 8 + 24)), 0x01060000);
	CHECK_EQ(be64toh(FK_U64(CMD(BIND), 8 + 32)), 0xFFFFFFFFFFFF0000);
	CHECK_EQ(fk.alive, 0);

	REQUIRE_EQ(rdma_create_id(ch, &id, ch, RDMA_PS_UDP), 0);
	CHECK_EQ(FK_U64(CMD(CREATE_ID), 0), to_kernel(to_id(id))->uid);
	CHECK(FK_U64(CMD(CREATE_ID), 0) != 0);
	CHECK_EQ(FK_U16(CMD(CREATE_ID), 16), 0x111);
	CHECK_EQ(FK_U8(CMD(CREATE_ID), 18), IBV_QPT_UD);
	CHECK_EQ(fk.got[CMD(CREATE_ID)].fd, ch->fd);
	CHECK_EQ(rdma_destroy_id(id), 0);
	SIZES(CMD(DESTROY_ID), 16, 4);
	end(ch);
}

static void addresses(void)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *id = fake_id(ch, RDMA_PS_TCP);
	struct sockaddr_in6 src = { .sin6_family = AF_INET6, .sin6_port = htons(5) };

	SIZES(CMD(BIND), 136, 0);
	CHECK_EQ(FK_U32(CMD(BIND), 0), handle(id));
	CHECK_EQ(FK_U16(CMD(BIND), 4), 16);
	CHECK_EQ(FK_U16(CMD(BIND), 6), 0);
	CHECK_EQ(ntohs(FK_U16(CMD(BIND), 10)), 7471);
	/* What the two queries said. */
	SIZES(CMD(QUERY), 16, 280);
	CHECK_EQ(FK_U32(CMD(QUERY), 8), handle(id));
	CHECK_EQ(FK_U32(CMD(QUERY), 12), 2);
	CHECK_EQ(fk.got[CMD(QUERY)].count, 2);
	CHECK_EQ(ntohs(rdma_get_src_port(id)), 4711);
	CHECK_EQ(ntohs(rdma_get_dst_port(id)), 7471);
	CHECK(id->verbs && id->pd);
	CHECK_EQ(id->port_num, 1);
	CHECK_EQ(id->route.addr.addr.ibaddr.pkey, 0xFFFF);
	CHECK_EQ(id->route.addr.addr.ibaddr.sgid.raw[15], 0xA1);
	CHECK_EQ(id->route.addr.addr.ibaddr.dgid.raw[0], 0xB2);

	CHECK_EQ(rdma_resolve_addr(id, (struct sockaddr *)&src, fake_addr(), 2000), 0);
	SIZES(CMD(RESOLVE_ADDR), 272, 0);
	CHECK_EQ(FK_U32(CMD(RESOLVE_ADDR), 0), handle(id));
	CHECK_EQ(FK_U32(CMD(RESOLVE_ADDR), 4), 2000);
	CHECK_EQ(FK_U16(CMD(RESOLVE_ADDR), 8), 28);
	CHECK_EQ(FK_U16(CMD(RESOLVE_ADDR), 10), 16);
	CHECK_EQ(FK_U32(CMD(RESOLVE_ADDR), 12), 0);
	CHECK_EQ(ntohs(FK_U16(CMD(RESOLVE_ADDR), 16 + 2)), 5);
	CHECK_EQ(ntohs(FK_U16(CMD(RESOLVE_ADDR), 144 + 2)), 7471);
	CHECK_EQ(rdma_resolve_addr(id, NULL, fake_addr(), -1), 0);
	CHECK_EQ(FK_U16(CMD(RESOLVE_ADDR), 8), 0);
	CHECK_EQ(FK_U32(CMD(RESOLVE_ADDR), 4), 0xFFFFFFFF);

	CHECK_EQ(rdma_listen(id, 7), 0);
	SIZES(CMD(LISTEN), 8, 0);
	CHECK_EQ(FK_U32(CMD(LISTEN), 0), handle(id));
	CHECK_EQ(FK_U32(CMD(LISTEN), 4), 7);
	CHECK_EQ(fk.got[CMD(QUERY)].count, 3); /* the address alone */
	CHECK_EQ(FK_U32(CMD(QUERY), 12), 0);
	CHECK_EQ(rdma_destroy_id(id), 0);
	end(ch);
}

static void routes(void)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *id;

	fk.paths = 9; /* more than there is room for */
	id = routed(ch, RDMA_PS_TCP);
	SIZES(CMD(RESOLVE_ROUTE), 8, 0);
	CHECK_EQ(FK_U32(CMD(RESOLVE_ROUTE), 0), handle(id));
	CHECK_EQ(FK_U32(CMD(RESOLVE_ROUTE), 4), 3000);
	SIZES(CMD(QUERY), 16, 8 + 6 * 72);
	CHECK_EQ(FK_U32(CMD(QUERY), 12), 1);
	CHECK_EQ(id->route.num_paths, 6);
	CHECK_EQ(id->route.path_rec[5].dgid.raw[3], 0x11);
	CHECK_EQ(rdma_destroy_id(id), 0);
	end(ch);
}

static void check_param(int cmd, size_t off, const struct rdma_conn_param *p)
{
	CHECK_EQ(FK_U32(cmd, off), p->qp_num);
	CHECK_EQ(FK_U32(cmd, off + 4), 0);
	CHECK_EQ(memcmp(fk.got[cmd].payload + off + 8, "hello", 6), 0);
	CHECK_EQ(FK_U8(cmd, off + 264), 5);
	CHECK_EQ(FK_U8(cmd, off + 265), 1); /* srq */
	CHECK_EQ(FK_U8(cmd, off + 266), p->responder_resources);
	CHECK_EQ(FK_U8(cmd, off + 267), p->initiator_depth);
	CHECK_EQ(FK_U8(cmd, off + 268), 1);
	CHECK_EQ(FK_U8(cmd, off + 269), 5);
	CHECK_EQ(FK_U8(cmd, off + 270), 6);
	CHECK_EQ(FK_U8(cmd, off + 271), 1); /* valid */
}

static const struct rdma_conn_param param = {
	.private_data = "hello", .private_data_len = 5, .responder_resources = 3,
	.initiator_depth = 4, .flow_control = 1, .retry_count = 5, .rnr_retry_count = 6,
	.srq = 1, .qp_num = 0x123456,
};

static void connecting(void)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *id = routed(ch, RDMA_PS_TCP);
	struct rdma_conn_param p = param;
	struct ibv_ece ece = { .vendor_id = 0x77, .options = 0x88 };
	struct rdma_ucm_event_resp rep = {
		.event = EV(CONNECT_RESPONSE),
		.param.conn = { .qp_num = 0x555, .responder_resources = 1,
				.initiator_depth = 2, .private_data = "pong",
				.private_data_len = 196, .rnr_retry_count = 3, .srq = 1 },
		.ece = { 0x77, 0x99 },
	};
	struct rdma_cm_event *ev;

	CHECK_EQ(rdma_set_local_ece(id, &ece), 0);
	CHECK_EQ(rdma_connect(id, &p), 0);
	SIZES(CMD(CONNECT), 288, 0);
	check_param(CMD(CONNECT), 0, &param);
	CHECK_EQ(FK_U32(CMD(CONNECT), 272), handle(id));
	CHECK_EQ(FK_U32(CMD(CONNECT), 280), 0x77);
	CHECK_EQ(FK_U32(CMD(CONNECT), 284), 0x88);

	fk_post(handle(id), &rep);
	ev = fetch(ch, EV(CONNECT_RESPONSE));
	REQUIRE(ev);
	CHECK_EQ(ev->param.conn.qp_num, 0x555);
	CHECK_EQ(ev->param.conn.private_data_len, 196);
	CHECK_STR(ev->param.conn.private_data, "pong");
	CHECK_EQ(ev->param.conn.responder_resources, 1);
	CHECK_EQ(ev->param.conn.initiator_depth, 2);
	CHECK_EQ(ev->param.conn.rnr_retry_count, 3);
	CHECK_EQ(ev->param.conn.srq, 1);
	rdma_ack_cm_event(ev);
	CHECK_EQ(rdma_get_remote_ece(id, &ece), 0);
	CHECK_EQ(ece.options, 0x99);

	CHECK_EQ(rdma_establish(id), 0); /* all zero but the id */
	SIZES(CMD(ACCEPT), 296, 0);
	CHECK_EQ(FK_U64(CMD(ACCEPT), 0), 0);
	CHECK_EQ(FK_U32(CMD(ACCEPT), 280), handle(id));
	CHECK_EQ(FK_U8(CMD(ACCEPT), 8 + 271), 0);

	CHECK_EQ(rdma_notify(id, IBV_EVENT_COMM_EST), 0);
	SIZES(CMD(NOTIFY), 8, 0);
	CHECK_EQ(FK_U32(CMD(NOTIFY), 0), handle(id));
	CHECK_EQ(FK_U32(CMD(NOTIFY), 4), IBV_EVENT_COMM_EST);
	CHECK_EQ(rdma_disconnect(id), 0);
	SIZES(CMD(DISCONNECT), 4, 0);
	CHECK_EQ(FK_U32(CMD(DISCONNECT), 0), handle(id));
	CHECK_EQ(rdma_destroy_id(id), 0);
	end(ch);
}

static void accepting(void)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *lis = fake_id(ch, RDMA_PS_TCP), *child;
	struct rdma_conn_param p = param;
	struct rdma_ucm_event_resp req = {
		.param.conn = { .qp_num = 9, .responder_resources = 7, .private_data = "ping",
				.initiator_depth = 8, .private_data_len = 56 },
	};
	struct rdma_cm_event *ev;
	uint32_t kid;

	CHECK_EQ(rdma_listen(lis, 0), 0);
	kid = fk_request(handle(lis), &req);
	ev = fetch(ch, EV(CONNECT_REQUEST));
	REQUIRE(ev);
	child = ev->id;
	CHECK(ev->listen_id == lis && child != lis);
	CHECK_EQ(handle(child), kid);
	CHECK_EQ(fk.got[CMD(MIGRATE_ID)].count, 0);
	CHECK_EQ(ev->param.conn.private_data_len, 56);
	CHECK_EQ(ev->param.conn.responder_resources, 7);
	CHECK(child->verbs && child->route.num_paths == 1);
	rdma_ack_cm_event(ev);

	CHECK_EQ(rdma_accept(child, &p), 0);
	SIZES(CMD(ACCEPT), 296, 0);
	check_param(CMD(ACCEPT), 8, &param);
	CHECK(FK_U64(CMD(ACCEPT), 0) && FK_U64(CMD(ACCEPT), 0) == to_kernel(to_id(child))->uid);
	CHECK_EQ(FK_U32(CMD(ACCEPT), 280), kid);
	fk_event(kid, EV(ESTABLISHED), 0);
	ev = fetch(ch, EV(ESTABLISHED));
	REQUIRE(ev);
	CHECK(ev->id == child && !ev->param.conn.private_data);
	rdma_ack_cm_event(ev);
	CHECK_EQ(rdma_destroy_id(child), 0);
	CHECK_EQ(rdma_destroy_id(lis), 0);
	end(ch);
}

static void rejecting(void)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *lis = fake_id(ch, RDMA_PS_TCP), *child;
	struct rdma_ucm_event_resp req = { .event = 0 };
	struct rdma_cm_event *ev;

	fk_request(handle(lis), &req);
	ev = fetch(ch, EV(CONNECT_REQUEST));
	REQUIRE(ev);
	child = ev->id;
	rdma_ack_cm_event(ev);
	CHECK_EQ(rdma_reject(child, "no", 2), 0);
	SIZES(CMD(REJECT), 264, 0);
	CHECK_EQ(FK_U32(CMD(REJECT), 0), handle(child));
	CHECK_EQ(FK_U8(CMD(REJECT), 4), 2);
	CHECK_EQ(FK_U8(CMD(REJECT), 5), 0);
	CHECK_EQ(memcmp(fk.got[CMD(REJECT)].payload + 8, "no", 3), 0);
	CHECK_EQ(rdma_reject_ece(child, NULL, 0), 0);
	CHECK_EQ(FK_U8(CMD(REJECT), 5), 35);
	CHECK_EQ(rdma_destroy_id(child), 0);
	CHECK_EQ(rdma_destroy_id(lis), 0);
	end(ch);
}

static void qp_attributes(void)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *id = fake_id(ch, RDMA_PS_TCP);
	struct ibv_qp_attr attr;
	int mask = 0;

	memset(&fk.attr, 0xEE, sizeof(fk.attr));
	fk.attr.qp_attr_mask = IBV_QP_STATE | IBV_QP_AV | 0xE00000;
	fk.attr.path_mtu = 3;
	fk.attr.rq_psn = 0x123;
	fk.attr.sq_psn = 0x321;
	fk.attr.dest_qp_num = 0x777;
	fk.attr.ah_attr.grh.dgid[15] = 9;
	fk.attr.ah_attr.grh.sgid_index = 5;
	fk.attr.ah_attr.dlid = 0x1122;
	fk.attr.ah_attr.port_num = 2;
	fk.attr.alt_ah_attr.sl = 4;
	fk.attr.pkey_index = 6;
	fk.attr.max_rd_atomic = 7;
	fk.attr.max_dest_rd_atomic = 8;
	fk.attr.timeout = 14;
	fk.attr.retry_cnt = 5;
	fk.attr.rnr_retry = 6;
	fk.attr.min_rnr_timer = 12;
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTR;
	CHECK_EQ(rdma_init_qp_attr(id, &attr, &mask), 0);
	SIZES(CMD(INIT_QP_ATTR), 16, 144);
	CHECK_EQ(FK_U32(CMD(INIT_QP_ATTR), 8), handle(id));
	CHECK_EQ(FK_U32(CMD(INIT_QP_ATTR), 12), IBV_QPS_RTR);
	CHECK_EQ(mask, IBV_QP_STATE | IBV_QP_AV); /* fake0 is no Ethernet */
	CHECK_EQ(attr.qp_state, IBV_QPS_RTR);
	CHECK_EQ(attr.path_mtu, 3);
	CHECK_EQ(attr.rq_psn, 0x123);
	CHECK_EQ(attr.sq_psn, 0x321);
	CHECK_EQ(attr.dest_qp_num, 0x777);
	CHECK_EQ(attr.ah_attr.grh.dgid.raw[15], 9);
	CHECK_EQ(attr.ah_attr.grh.sgid_index, 5);
	CHECK_EQ(attr.ah_attr.dlid, 0x1122);
	CHECK_EQ(attr.ah_attr.port_num, 2);
	CHECK_EQ(attr.alt_ah_attr.sl, 4);
	CHECK_EQ(attr.pkey_index, 6);
	CHECK_EQ(attr.max_rd_atomic, 7);
	CHECK_EQ(attr.max_dest_rd_atomic, 8);
	CHECK_EQ(attr.timeout, 14);
	CHECK_EQ(attr.retry_cnt, 5);
	CHECK_EQ(attr.rnr_retry, 6);
	CHECK_EQ(attr.min_rnr_timer, 12);
	CHECK_EQ(rdma_destroy_id(id), 0);
	end(ch);
}

static void options(void)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *id = fake_id(ch, RDMA_PS_TCP);
	uint8_t tos = 8;

	CHECK_EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &tos, 1), 0);
	SIZES(CMD(SET_OPTION), 24, 0);
	CHECK_EQ(FK_U64(CMD(SET_OPTION), 0), (uintptr_t)&tos);
	CHECK_EQ(FK_U32(CMD(SET_OPTION), 8), handle(id));
	CHECK_EQ(FK_U32(CMD(SET_OPTION), 12), 0);
	CHECK_EQ(FK_U32(CMD(SET_OPTION), 16), 3);
	CHECK_EQ(FK_U32(CMD(SET_OPTION), 20), 1);
	CHECK_EQ(rdma_destroy_id(id), 0);
	end(ch);
}

static void multicast(void)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *id = fake_id(ch, RDMA_PS_UDP);
	struct rdma_ucm_event_resp joined = {
		.event = EV(MULTICAST_JOIN),
		.param.ud = { .qp_num = 0xFFFFFF, .qkey = 0x11111111,
			      .ah_attr = { .grh.dgid = { 0xFF, 0x12 }, .dlid = 0xC001 } },
	};
	struct rdma_cm_event *ev;
	uint32_t mc;
	int context;

	CHECK_EQ(rdma_join_multicast(id, fake_addr(), &context), 0);
	SIZES(CMD(JOIN_MCAST), 152, 4);
	mc = (uint32_t)fk.got[CMD(JOIN_MCAST)].count; /* found below */
	CHECK_EQ(FK_U32(CMD(JOIN_MCAST), 16), handle(id));
	CHECK_EQ(FK_U16(CMD(JOIN_MCAST), 20), 16);
	CHECK_EQ(FK_U16(CMD(JOIN_MCAST), 22), 0);
	CHECK_EQ(ntohs(FK_U16(CMD(JOIN_MCAST), 26)), 7471);
	CHECK(FK_U64(CMD(JOIN_MCAST), 8) != to_kernel(to_id(id))->uid);
	for (mc = 0; mc < FK_IDS && !fk.ids[mc].mc; mc++)
		;
	fk_post(mc, &joined);
	ev = fetch(ch, EV(MULTICAST_JOIN));
	REQUIRE(ev);
	CHECK(ev->id == id && ev->param.ud.private_data == &context);
	CHECK_EQ(ev->param.ud.qp_num, 0xFFFFFF);
	CHECK_EQ(ev->param.ud.qkey, 0x11111111);
	CHECK_EQ(ev->param.ud.ah_attr.dlid, 0xC001);
	CHECK_EQ(ev->param.ud.ah_attr.grh.dgid.raw[1], 0x12);
	rdma_ack_cm_event(ev);
	CHECK_EQ(rdma_leave_multicast(id, fake_addr()), 0);
	SIZES(CMD(LEAVE_MCAST), 16, 4);
	CHECK_EQ(FK_U32(CMD(LEAVE_MCAST), 8), mc);
	/* A group that is still joined goes with its id. */
	CHECK_EQ(rdma_join_multicast(id, fake_addr(), &context), 0);
	CHECK_EQ(rdma_destroy_id(id), 0);
	end(ch);
}

static void leave_that_fails(void)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *id = fake_id(ch, RDMA_PS_UDP);
	uint32_t mc;

	CHECK_EQ(rdma_join_multicast(id, fake_addr(), NULL), 0);
	for (mc = 0; mc < FK_IDS && !fk.ids[mc].mc; mc++)
		;
	fk.fail[CMD(LEAVE_MCAST)] = EINTR;
	CHECK_ERRNO(rdma_leave_multicast(id, fake_addr()), EINTR);
	/* Its events still find it. */
	fk_event(mc, EV(MULTICAST_ERROR), -EIO);
	fetch_ack(ch, EV(MULTICAST_ERROR));
	fk.fail[CMD(JOIN_MCAST)] = EINVAL;
	CHECK_ERRNO(rdma_join_multicast(id, fake_addr(), NULL), EINVAL);
	CHECK_EQ(rdma_destroy_id(id), 0);
	end(ch);
}

static void migrating(void)
{
	struct rdma_event_channel *ch = channel(), *to = rdma_create_event_channel();
	struct rdma_cm_id *id = fake_id(ch, RDMA_PS_TCP);
	struct rdma_cm_event *ev;

	fk_event(handle(id), EV(ADDR_CHANGE), 0);
	CHECK_EQ(rdma_migrate_id(id, to), 0);
	SIZES(CMD(MIGRATE_ID), 16, 4);
	CHECK_EQ(fk.got[CMD(MIGRATE_ID)].fd, to->fd);
	CHECK_EQ(FK_U32(CMD(MIGRATE_ID), 8), handle(id));
	CHECK_EQ(FK_U32(CMD(MIGRATE_ID), 12), ch->fd);
	CHECK(id->channel == to && !fake_readable(ch) && fake_readable(to));
	ev = fetch(to, EV(ADDR_CHANGE));
	REQUIRE(ev);
	CHECK(ev->id == id);
	rdma_ack_cm_event(ev);
	fk.fail[CMD(MIGRATE_ID)] = ENXIO;
	CHECK_ERRNO(rdma_migrate_id(id, ch), ENXIO);
	CHECK(id->channel == to);
	CHECK_EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(to);
	end(ch);
}

static void services(void)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *id = fake_id(ch, RDMA_PS_IB);
	struct rdma_addrinfo hints = { .ai_flags = RAI_SA }, *res, *ai;
	const struct cm_sockaddr_ib *sib;
	int n = 0;

	fk.services = 11; /* more than the first answer has room for */
	CHECK_EQ(rdma_resolve_addrinfo(id, NULL, "0x1122334455", &hints), 0);
	SIZES(KERNEL_CMD_RESOLVE_IB_SERVICE, 88, 0);
	CHECK_EQ(FK_U32(KERNEL_CMD_RESOLVE_IB_SERVICE, 0), handle(id));
	CHECK_EQ(FK_U64(KERNEL_CMD_RESOLVE_IB_SERVICE, 8), 0x1122334455);
	CHECK_EQ(FK_U32(KERNEL_CMD_RESOLVE_IB_SERVICE, 80), 1);
	fk_event(handle(id), EV(ADDRINFO_RESOLVED), 0);
	fetch_ack(ch, EV(ADDRINFO_RESOLVED));
	CHECK_EQ(FK_U32(CMD(QUERY), 12), 3);
	REQUIRE_EQ(rdma_query_addrinfo(id, &res), 0);
	for (ai = res; ai; ai = ai->ai_next)
		n++;
	CHECK_EQ(n, 11);
	sib = (const struct cm_sockaddr_ib *)res->ai_dst_addr;
	CHECK_EQ(res->ai_dst_len, 48);
	CHECK_EQ(sib->sib_sid, 0x2222222222222222);
	CHECK_EQ(sib->sib_addr[7], 0x22);
	CHECK_EQ(((struct cm_sockaddr_ib *)res->ai_src_addr)->sib_addr[7], 0xA1);
	rdma_freeaddrinfo(res);

	CHECK_EQ(rdma_resolve_addrinfo(id, NULL, "storage", &hints), 0);
	CHECK_EQ(FK_U32(KERNEL_CMD_RESOLVE_IB_SERVICE, 80), 2);
	CHECK_EQ(memcmp(fk.got[KERNEL_CMD_RESOLVE_IB_SERVICE].payload + 16, "storage", 8), 0);
	fk.fail[CMD(QUERY)] = ENODATA;
	fk_event(handle(id), EV(ADDRINFO_RESOLVED), 0);
	fetch_ack(ch, EV(ADDRINFO_ERROR));

	/* EINVAL of a kernel that knows the command stays EINVAL. */
	fk.service_error = EINVAL;
	CHECK_ERRNO(rdma_resolve_addrinfo(id, NULL, "1", &hints), EINVAL);
	fk.newest = 23;
	CHECK_ERRNO(rdma_resolve_addrinfo(id, NULL, "1", &hints), EOPNOTSUPP);
	CHECK_EQ(rdma_destroy_id(id), 0);
	end(ch);
}

/* rdma_getaddrinfo asks through every InfiniBand port. */
static void services_by_getaddrinfo(void)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_SA }, *res = NULL;

	fk_reset();
	CHECK_ERRNO(rdma_getaddrinfo(NULL, "storage", &hints, &res), ENOENT);
	fv.infiniband = true;
	fk.service_answers = true;
	REQUIRE_EQ(rdma_getaddrinfo(NULL, "storage", &hints, &res), 0);
	CHECK_EQ(FK_U16(CMD(CREATE_ID), 16), 0x13F);
	CHECK_EQ(FK_U8(CMD(BIND), 8 + 8), 0xF0); /* the port's GID */
	CHECK_EQ(be64toh(FK_U64(CMD(BIND), 8 + 24)), 0x013F0000);
	CHECK_EQ(FK_U32(KERNEL_CMD_RESOLVE_IB_SERVICE, 80), 2);
	CHECK(res && res->ai_family == AF_IB && !res->ai_next);
	rdma_freeaddrinfo(res);
	fk.service_error = EIO;
	CHECK_ERRNO(rdma_getaddrinfo(NULL, "storage", &hints, &res), EIO);
	fv.infiniband = false;
	CHECK_EQ(fk.alive, 0);
}

static void user_events(void)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *id = fake_id(ch, RDMA_PS_TCP);
	struct rdma_ucm_event_resp user = { .event = EV(USER), .status = 5 };
	uint64_t arg = 0x1122334455667788;
	struct rdma_cm_event *ev;

	CHECK_EQ(rdma_write_cm_event(id, EV(USER), 5, arg), 0);
	SIZES(KERNEL_CMD_WRITE_CM_EVENT, 320, 0);
	CHECK_EQ(FK_U32(KERNEL_CMD_WRITE_CM_EVENT, 0), handle(id));
	CHECK_EQ(FK_U32(KERNEL_CMD_WRITE_CM_EVENT, 8), EV(USER));
	CHECK_EQ(FK_U32(KERNEL_CMD_WRITE_CM_EVENT, 12), 5);
	CHECK_EQ(FK_U64(KERNEL_CMD_WRITE_CM_EVENT, 16), arg);
	memcpy(&user.param, &arg, sizeof(arg));
	fk_post(handle(id), &user);
	ev = fetch(ch, EV(USER));
	REQUIRE(ev);
	CHECK_EQ(ev->status, 5);
	CHECK_EQ(ev->param.arg, arg);
	rdma_ack_cm_event(ev);
	SIZES(CMD(GET_EVENT), 8, 336);
	fk.fail[KERNEL_CMD_WRITE_CM_EVENT] = ENXIO;
	CHECK_ERRNO(rdma_write_cm_event(id, EV(USER), 5, arg), ENXIO);
	CHECK_EQ(rdma_destroy_id(id), 0);
	end(ch);
}

/* ---- kernels without AF_IB, of version 3 ------------------------------------------ */

static void old_commands(void)
{
	struct rdma_event_channel *ch;
	struct sockaddr_in6 sin6 = { .sin6_family = AF_INET6, .sin6_port = htons(5) };
	struct cm_sockaddr_ib sib = { .sib_family = AF_IB };
	struct rdma_cm_id *id, *ud;

	fk_reset();
	fk.no_af_ib = true;
	fk.index = UINT32_MAX;
	fk.paths = 1;
	ch = rdma_create_event_channel();
	REQUIRE(ch);
	id = fake_id(ch, RDMA_PS_TCP);
	SIZES(CMD(BIND_IP), 40, 0);
	CHECK_EQ(ntohs(FK_U16(CMD(BIND_IP), 10)), 7471);
	CHECK_EQ(FK_U32(CMD(BIND_IP), 36), handle(id));
	SIZES(CMD(QUERY_ROUTE), 16, 208);
	CHECK_EQ(FK_U32(CMD(QUERY_ROUTE), 8), handle(id));
	CHECK_EQ(ntohs(rdma_get_src_port(id)), 4711);
	CHECK_EQ(id->route.addr.addr.ibaddr.dgid.raw[0], 0xB2);
	CHECK(id->verbs);
	CHECK_ERRNO(rdma_bind_addr(id, (struct sockaddr *)&sib), EINVAL);

	CHECK_EQ(rdma_resolve_addr(id, (struct sockaddr *)&sin6, fake_addr(), 9), 0);
	SIZES(CMD(RESOLVE_IP), 64, 0);
	CHECK_EQ(ntohs(FK_U16(CMD(RESOLVE_IP), 2)), 5);
	CHECK_EQ(ntohs(FK_U16(CMD(RESOLVE_IP), 30)), 7471);
	CHECK_EQ(FK_U32(CMD(RESOLVE_IP), 56), handle(id));
	CHECK_EQ(FK_U32(CMD(RESOLVE_IP), 60), 9);
	fk_event(handle(id), EV(ROUTE_RESOLVED), 0);
	fetch_ack(ch, EV(ROUTE_RESOLVED));
	REQUIRE_EQ(id->route.num_paths, 1);
	CHECK_EQ(id->route.path_rec[0].sgid.raw[0], 0xA1);
	CHECK_EQ(ntohl(id->route.path_rec[0].flow_label), 0x12345);
	CHECK_EQ(id->route.path_rec[0].hop_limit, 64);
	CHECK_EQ(id->route.path_rec[0].mtu, IBV_MTU_1024);
	CHECK_EQ(fk.got[CMD(QUERY)].count, 0);
	CHECK_EQ(rdma_destroy_id(id), 0);

	ud = fake_id(ch, RDMA_PS_UDP);
	CHECK_EQ(rdma_join_multicast(ud, (struct sockaddr *)&sin6, NULL), 0);
	SIZES(CMD(JOIN_IP_MCAST), 48, 4);
	CHECK(FK_U64(CMD(JOIN_IP_MCAST), 8) != 0);
	CHECK_EQ(ntohs(FK_U16(CMD(JOIN_IP_MCAST), 18)), 5);
	CHECK_EQ(FK_U32(CMD(JOIN_IP_MCAST), 44), handle(ud));
	CHECK_EQ(rdma_destroy_id(ud), 0);
	end(ch);
}

static void version_3_makes_its_own_init(void)
{
	struct rdma_event_channel *ch;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	struct rdma_cm_id *id;
	int mask = 0;

	fk_reset();
	fk.version = 3;
	ch = rdma_create_event_channel();
	REQUIRE(ch);
	id = fake_id(ch, RDMA_PS_UDP);
	CHECK_EQ(rdma_init_qp_attr(id, &attr, &mask), 0);
	CHECK_EQ(fk.got[CMD(INIT_QP_ATTR)].count, 0);
	CHECK_EQ(mask, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
	CHECK_EQ(attr.pkey_index, 3);
	CHECK_EQ(attr.qkey, 0x01234567);
	CHECK_EQ(rdma_destroy_id(id), 0);
	end(ch);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(create_and_destroy);
	T_RUN(addresses);
	T_RUN(routes);
	T_RUN(connecting);
	T_RUN(accepting);
	T_RUN(rejecting);
	T_RUN(qp_attributes);
	T_RUN(options);
	T_RUN(multicast);
	T_RUN(leave_that_fails);
	T_RUN(migrating);
	T_RUN(services);
	T_RUN(services_by_getaddrinfo);
	T_RUN(user_events);
	T_RUN(old_commands);
	T_RUN(version_3_makes_its_own_init);
	return fake_done();
}
