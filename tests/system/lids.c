/* SPDX-License-Identifier: BSD-2-Clause */
/* Ports with the link layer InfiniBand (ANYRDMA_LINK=ib): what they are, and QPs that know
 * each other by LID, without a GRH. Most cases use 127.0.0.1, whose LID is 1. */
#include "lab.h"
#include "ud_side.h"

#include <sched.h>

enum { LID = 1, GRH_VERSION = 0x60, NEXT_HEADER = 0x1b };

/* The device under these settings. addr NULL: all addresses. */
static void infiniband(const char *addr)
{
	setenv("ANYRDMA_LINK", "ib", 1);
	if (addr)
		setenv("ANYRDMA_ADDR", addr, 1);
	if (!conf_user_device())
		SKIP("of the user-space device");
}

static void opened(void)
{
	infiniband("127.0.0.1");
	open_device();
}

static struct ibv_ah_attr by_lid(uint16_t lid)
{
	return (struct ibv_ah_attr){ .dlid = lid, .port_num = 1 };
}

static int rtr_by(struct side *s, uint32_t qpn, uint32_t psn, struct ibv_ah_attr ah)
{
	return conf_qp_modify(s->qp, (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_2048,
		.dest_qp_num = qpn,
		.rq_psn = psn,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
		.ah_attr = ah,
	});
}

/* ---- what it is ------------------------------------------------------------------ */

static void port_is_infiniband(void)
{
	struct ibv_gid_entry e;
	union ibv_gid gid;
	__be64 guid;
	__be16 pkey;

	opened();
	EQ(dev.port.link_layer, IBV_LINK_LAYER_INFINIBAND);
	EQ(dev.port.state, IBV_PORT_ACTIVE);
	EQ(dev.port.lid, LID);
	EQ(dev.port.lmc, 0);
	CHECK(dev.port.sm_lid > 0 && dev.port.sm_lid < 0xc000);
	EQ(dev.port.flags & IBV_QPF_GRH_REQUIRED, 0);
	EQ(dev.port.port_cap_flags & IBV_PORT_IP_BASED_GIDS, 0);
	CHECK(dev.port.active_mtu >= IBV_MTU_2048);
	OK(ibv_query_pkey(dev.ctx, 1, 0, &pkey));
	EQ(pkey, 0xffff);
	EQ(ibv_get_pkey_index(dev.ctx, 1, 0xffff), 0);
	/* The port's GID, and behind it the addresses. */
	OK(ibv_query_gid(dev.ctx, 1, 0, &gid));
	guid = ibv_get_device_guid(dev.ctx->device);
	CHECK(gid.raw[0] == 0xfe && gid.raw[1] == 0x80 && conf_is_fill(gid.raw + 2, 0, 6));
	CHECK(!memcmp(gid.raw + 8, &guid, sizeof(guid)));
	CHECK(dev.gid_index > 0);
	for (uint32_t i = 0; i < 2; i++) {
		OK(ibv_query_gid_ex(dev.ctx, 1, i, &e, 0));
		EQ(e.gid_type, IBV_GID_TYPE_IB);
		EQ(e.ndev_ifindex, 0);
	}
	close_device();
}

/* ---- connections ------------------------------------------------------------------- */

static void connect_by_lid(enum ibv_qp_type type, struct ibv_ah_attr ah)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr got;
	struct side x, y;

	x = side_with(100, (struct side_opt){ .type = type });
	y = side_with(200, (struct side_opt){ .type = type });
	OK(to_init(&x));
	OK(to_init(&y));
	OK(rtr_by(&x, y.qp->qp_num, y.psn, ah));
	OK(rtr_by(&y, x.qp->qp_num, x.psn, ah));
	OK(to_rts(&x));
	OK(to_rts(&y));
	if (type == IBV_QPT_RC) {
		exchange(&x, &y, 3);
	} else {
		OK(conf_recv(y.qp, 2, &y.b, 0, 100));
		OK(conf_send(x.qp, 1, &x.b, 0, 100));
		conf_wc_ok(x.cq, 1);
		conf_wc_ok(y.cq, 2);
	}
	/* It says what it was given. */
	OK(ibv_query_qp(x.qp, &got, IBV_QP_AV, &init));
	EQ(got.ah_attr.is_global, ah.is_global);
	EQ(got.ah_attr.dlid, ah.dlid);
	CHECK(!ah.is_global || !memcmp(&got.ah_attr.grh.dgid, &ah.grh.dgid, 16));
	side_free(&x);
	side_free(&y);
}

static void rc_and_uc_by_lid(void)
{
	opened();
	connect_by_lid(IBV_QPT_RC, by_lid(LID));
	connect_by_lid(IBV_QPT_UC, by_lid(LID));
	close_device();
}

/* With a GRH, with the GIDs of ports or with addresses. */
static void rc_with_a_grh(void)
{
	struct ibv_ah_attr ah;

	opened();
	ah = by_lid(LID);
	ah.is_global = 1;
	ah.grh.hop_limit = 1;
	OK(ibv_query_gid(dev.ctx, 1, 0, &ah.grh.dgid));
	connect_by_lid(IBV_QPT_RC, ah);
	ah.grh.dgid = dev.gid;
	ah.grh.sgid_index = (uint8_t)dev.gid_index;
	connect_by_lid(IBV_QPT_RC, ah);
	close_device();
}

static void other_process(struct peer *me, void *arg)
{
	struct side s;
	uint32_t qpn;

	(void)arg;
	opened();
	s = side(300);
	OK(to_init(&s));
	OK(conf_recv(s.qp, 6, &s.b, 0, 4096));
	peer_say_u32(me, s.qp->qp_num);
	qpn = peer_hear_u32(me);
	OK(rtr_by(&s, qpn, 400, by_lid(LID)));
	OK(to_rts(&s));
	conf_wc_ok(s.cq, 6);
	side_free(&s);
	close_device();
}

static void rc_between_processes(void)
{
	struct peer p;
	struct side s;

	infiniband("127.0.0.1");
	p = peer_start(other_process, NULL);
	open_device();
	s = side(400);
	OK(to_init(&s));
	peer_say_u32(&p, s.qp->qp_num);
	OK(rtr_by(&s, peer_hear_u32(&p), 300, by_lid(LID)));
	OK(to_rts(&s));
	OK(conf_send(s.qp, 7, &s.b, 0, 4096));
	conf_wc_ok(s.cq, 7);
	peer_end(&p);
	side_free(&s);
	close_device();
}

/* ---- datagrams ------------------------------------------------------------------- */

static void datagrams_by_lid(void)
{
	struct ibv_ah_attr back;
	struct ibv_ah *ah, *reply;
	struct side x, y;
	struct ibv_wc wc;

	infiniband("127.0.0.1");
	ud_pair(&x, &y, &ah);
	OK(ibv_destroy_ah(ah));
	ah = ud_ah(by_lid(LID));
	conf_pattern(x.b.p + UD_SRC, 500, 7);
	ud_recv(&y, 1, 500);
	ud_send(&x, 2, ah, y.qp->qp_num, 500);
	conf_wc_ok(x.cq, 2);
	conf_wc_get(y.cq, 1, IBV_WC_SUCCESS, &wc);
	EQ(wc.wc_flags & IBV_WC_GRH, 0);
	EQ(wc.byte_len, UD_GRH + 500);
	EQ(wc.slid, LID);
	EQ(wc.dlid_path_bits, 0);
	EQ(wc.src_qp, x.qp->qp_num);
	CHECK(conf_pattern_ok(y.b.p + UD_DST + UD_GRH, 500, 7));
	/* The way back needs no GRH either. */
	memset(&back, 0xff, sizeof(back));
	OK(ibv_init_ah_from_wc(dev.ctx, 1, &wc, NULL, &back));
	EQ(back.is_global, 0);
	EQ(back.dlid, LID);
	MUST(reply = ibv_create_ah_from_wc(dev.pd, &wc, NULL, 1));
	ud_recv(&x, 3, 10);
	ud_send(&y, 4, reply, wc.src_qp, 10);
	conf_wc_ok(y.cq, 4);
	conf_wc_ok(x.cq, 3);
	OK(ibv_destroy_ah(reply));
	ud_pair_free(&x, &y, ah);
}

static void datagrams_with_a_grh(void)
{
	struct ibv_ah_attr back;
	struct ibv_ah *ah;
	struct side x, y;
	struct ibv_wc wc;
	uint8_t *grh;

	infiniband("127.0.0.1");
	ud_pair(&x, &y, &ah); /* by address */
	ud_recv(&y, 1, 64);
	ud_send(&x, 2, ah, y.qp->qp_num, 64);
	conf_wc_ok(x.cq, 2);
	conf_wc_get(y.cq, 1, IBV_WC_SUCCESS, &wc);
	EQ(wc.wc_flags & IBV_WC_GRH, IBV_WC_GRH);
	EQ(wc.slid, LID);
	grh = (uint8_t *)y.b.p + UD_DST;
	EQ(grh[0] & 0xf0, GRH_VERSION);
	EQ(grh[4] << 8 | grh[5], 12 + 8 + 64 + 4); /* BTH, DETH, payload, ICRC */
	EQ(grh[6], NEXT_HEADER);
	CHECK(!memcmp(grh + 8, dev.gid.raw, 16) && !memcmp(grh + 24, dev.gid.raw, 16));
	OK(ibv_init_ah_from_wc(dev.ctx, 1, &wc, (struct ibv_grh *)grh, &back));
	EQ(back.is_global, 1);
	EQ(back.dlid, LID);
	EQ(back.grh.sgid_index, dev.gid_index);
	CHECK(!memcmp(&back.grh.dgid, &dev.gid, 16));
	ud_pair_free(&x, &y, ah);
}

static void groups(void)
{
	union ibv_gid mgid = { .raw = { 0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, [15] = 9 } };
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .dlid = 0xc123 };
	struct ibv_ah *ah;
	struct side x, y;
	struct ibv_wc wc;

	infiniband("127.0.0.1");
	ud_pair(&x, &y, &ah);
	OK(ibv_destroy_ah(ah));
	EQ(ibv_attach_mcast(y.qp, &mgid, 0), EINVAL);
	EQ(ibv_attach_mcast(y.qp, &mgid, 0xbfff), EINVAL);
	EQ(ibv_attach_mcast(y.qp, &mgid, 0xffff), EINVAL);
	OK(ibv_attach_mcast(y.qp, &mgid, 0xc123));
	attr.grh.dgid = mgid;
	ah = ud_ah(attr);
	ud_recv(&y, 1, 30);
	ud_send(&x, 2, ah, 0xffffff, 30);
	conf_wc_ok(x.cq, 2);
	conf_wc_get(y.cq, 1, IBV_WC_SUCCESS, &wc);
	EQ(wc.wc_flags & IBV_WC_GRH, IBV_WC_GRH);
	CHECK(!memcmp(y.b.p + UD_DST + 24, &mgid, 16));
	OK(ibv_detach_mcast(y.qp, &mgid, 0xc123));
	/* A group needs the GRH. */
	attr.is_global = 0;
	NONE(ibv_create_ah(dev.pd, &attr), EINVAL);
	ud_pair_free(&x, &y, ah);
}

/* ---- what cannot be ------------------------------------------------------------------ */

static void lids_of_no_port(void)
{
	static const uint16_t lids[] = { 0, 0xc000, 0xffff };
	struct side s;

	opened();
	s = side(1);
	OK(to_init(&s));
	for (unsigned i = 0; i < 3; i++) {
		struct ibv_ah_attr a = by_lid(lids[i]);

		NONE(ibv_create_ah(dev.pd, &a), EINVAL);
		EQ(rtr_by(&s, 5, 5, a), EINVAL);
	}
	side_free(&s);
	close_device();
}

/* Nobody has this LID: the work fails in time, as on a fabric. */
static void lid_of_nobody(void)
{
	struct side s;

	opened();
	s = side(1);
	OK(to_init(&s));
	OK(rtr_by(&s, s.qp->qp_num, s.psn, by_lid(77)));
	OK(conf_qp_modify(s.qp, (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
						      .sq_psn = s.psn,
						      .timeout = 10,
						      .retry_cnt = 1,
						      .max_rd_atomic = 1 }));
	OK(conf_send(s.qp, 1, &s.b, 0, 8));
	conf_wc_is(s.cq, 1, IBV_WC_RETRY_EXC_ERR);
	side_free(&s);
	close_device();
}

/* A process whose port is Ethernet. */
static void ethernet(struct peer *me, void *arg)
{
	struct ibv_ah_attr a = by_lid(LID);
	struct ibv_ah *ah;
	struct side x, y;

	(void)arg;
	setenv("ANYRDMA_LINK", "ethernet", 1);
	setenv("ANYRDMA_ADDR", "127.0.0.1", 1);
	ud_pair(&x, &y, &ah);
	EQ(dev.port.link_layer, IBV_LINK_LAYER_ETHERNET);
	EQ(dev.port.lid, 0);
	NONE(ibv_create_ah(dev.pd, &a), EINVAL);
	ud_recv(&x, 1, 100);
	peer_say_u32(me, x.qp->qp_num);
	peer_hear(me, 's');
	ud_nothing(&x);
	ud_pair_free(&x, &y, ah);
}

static void to_an_ethernet_port(void)
{
	struct ibv_ah *ah;
	struct side x, y;
	struct peer p;

	p = peer_start(ethernet, NULL);
	infiniband("127.0.0.1");
	ud_pair(&x, &y, &ah);
	OK(ibv_destroy_ah(ah));
	ah = ud_ah(by_lid(LID));
	ud_send(&x, 2, ah, peer_hear_u32(&p), 100);
	conf_wc_ok(x.cq, 2);
	peer_say(&p, 's');
	peer_end(&p);
	ud_pair_free(&x, &y, ah);
}

/* ---- which LID --------------------------------------------------------------------- */

static void run(const char *cmd)
{
	if (system(cmd))
		SKIP("\"%s\" fails here", cmd);
}

static void own_net(void)
{
	if (unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET))
		SKIP("no network namespaces: %s", strerror(errno));
	run("ip link set lo up && ip link add d0 type veth peer name p0 && "
	    "ip link set d0 up && ip link set p0 up");
}

static struct ibv_port_attr port_of(struct ibv_context *ctx)
{
	struct ibv_port_attr a;

	OK(ibv_query_port(ctx, 1, &a));
	return a;
}

static void follows_from_the_address(void)
{
	struct ibv_async_event ev;
	struct ibv_context *ctx;

	own_net();
	run("ip addr add 10.9.3.200/24 dev d0");
	infiniband(NULL);
	ctx = conf_open_device();
	EQ(port_of(ctx).lid, 3 << 8 | 200);
	/* Another address does not change it; the loss of this one does. */
	run("ip addr add 10.9.4.4/24 dev d0");
	run("ip addr del 10.9.3.200/24 dev d0");
	for (;;) {
		OK(ibv_get_async_event(ctx, &ev));
		ibv_ack_async_event(&ev);
		if (ev.event_type == IBV_EVENT_LID_CHANGE && port_of(ctx).lid == (4 << 8 | 4))
			break;
	}
	OK(ibv_close_device(ctx));
}

/* The low 16 bits are none of a port: it waits for a LID for ever. */
static void addresses_without_a_lid(void)
{
	struct ibv_ah_attr a = by_lid(5);
	struct ibv_context *ctx;
	struct ibv_pd *pd;

	own_net();
	printf("# errors are expected\n");
	run("ip addr add 192.168.200.5/24 dev d0");
	infiniband(NULL);
	ctx = conf_open_device();
	EQ(port_of(ctx).lid, 0);
	EQ(port_of(ctx).state, IBV_PORT_INIT);
	MUST(pd = ibv_alloc_pd(ctx));
	NONE(ibv_create_ah(pd, &a), EINVAL);
	OK(ibv_dealloc_pd(pd));
	OK(ibv_close_device(ctx));
}

static void two_devices(const char *first, const char *second, uint16_t lid[2])
{
	struct ibv_device **list;
	char cmd[200];

	own_net();
	run("ip link add d1 type veth peer name p1 && ip link set d1 up && ip link set p1 up");
	snprintf(cmd, sizeof(cmd), "ip addr add %s/24 dev d0 && ip addr add %s/24 dev d1",
		 first, second);
	run(cmd);
	setenv("ANYRDMA_DEVICES", "2", 1);
	infiniband("d0;d1");
	MUST(list = ibv_get_device_list(NULL));
	for (int i = 0; i < 2; i++) {
		struct ibv_context *ctx = ibv_open_device(list[i]);

		MUST(ctx);
		lid[i] = port_of(ctx).lid;
		OK(ibv_close_device(ctx));
	}
	ibv_free_device_list(list);
}

static void one_for_each_device(void)
{
	uint16_t lid[2];

	two_devices("10.1.0.5", "10.1.1.5", lid);
	EQ(lid[0], 5);
	EQ(lid[1], 0x105);
}

static void addresses_that_clash(void)
{
	uint16_t lid[2];

	printf("# errors are expected\n");
	two_devices("10.1.0.5", "10.2.0.5", lid);
	EQ(lid[0], 5);
	EQ(lid[1], 0);
}

/* ---- the connection manager ----------------------------------------------------------- */

static void with_the_cm(void)
{
	struct conf_pair c;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	infiniband("127.0.0.1");
	conf_pair_open(&c, NULL);
	EQ(c.a->route.num_paths, 1);
	EQ(ntohs(c.a->route.path_rec->dlid), LID);
	EQ(ntohs(c.a->route.path_rec->slid), LID);
	EQ(c.a->route.path_rec->pkey, 0xffff);
	EQ(c.a->route.addr.addr.ibaddr.pkey, 0xffff);
	OK(ibv_query_qp(c.a->qp, &attr, IBV_QP_AV, &init));
	EQ(attr.ah_attr.dlid, LID);
	conf_pair_free(&c);
}

static const struct conf_case cases[] = {
	CASE(port_is_infiniband),
	CASE(rc_and_uc_by_lid),
	CASE(rc_with_a_grh),
	CASE(rc_between_processes),
	CASE(datagrams_by_lid),
	CASE(datagrams_with_a_grh),
	CASE(groups),
	CASE(lids_of_no_port),
	CASE(lid_of_nobody),
	CASE(to_an_ethernet_port),
	CASE(follows_from_the_address),
	CASE(addresses_without_a_lid),
	CASE(one_for_each_device),
	CASE(addresses_that_clash),
	CASE(with_the_cm),
};

CONF_MAIN(cases)
