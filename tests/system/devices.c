/* SPDX-License-Identifier: BSD-2-Clause */
/* Several devices (ANYRDMA_DEVICES), what they are called (ANYRDMA_NAME), and which of the
 * addresses each has. In a network namespace of its own where interfaces matter. */
#include "lab.h"
#include "ud_side.h"

#include <sched.h>

enum { MOST = 8 };

static struct ibv_context *open_nth(int n)
{
	struct ibv_device **list;
	struct ibv_context *ctx;
	int have = 0;

	MUST(list = ibv_get_device_list(&have));
	CHECK(n < have);
	ctx = ibv_open_device(list[n]);
	MUST(ctx);
	ibv_free_device_list(list);
	return ctx;
}

static void settings(const char *devices, const char *addr, const char *name)
{
	setenv("ANYRDMA_DEVICES", devices, 1);
	if (addr)
		setenv("ANYRDMA_ADDR", addr, 1);
	if (name)
		setenv("ANYRDMA_NAME", name, 1);
	else if (!conf_user_device())
		SKIP("of the user-space device");
}

/* Index of the GID of an IPv4 address at a device, or -1. */
static int index_of(struct ibv_context *ctx, const char *text)
{
	union ibv_gid want = { .raw = { [10] = 0xff, [11] = 0xff } }, gid;

	EQ(inet_pton(AF_INET, text, want.raw + 12), 1);
	for (int i = 0; !ibv_query_gid(ctx, 1, i, &gid); i++)
		if (!memcmp(&gid, &want, sizeof(gid)))
			return i;
	return -1;
}

static union ibv_gid gid_at(struct ibv_context *ctx, int index)
{
	union ibv_gid gid;

	CHECK(index >= 0);
	OK(ibv_query_gid(ctx, 1, index, &gid));
	return gid;
}

/* ---- identity ------------------------------------------------------------------ */

static void are_listed(void)
{
	struct ibv_device **list;
	struct ibv_device_attr a;
	char want[64];
	int n = 0;

	settings("8", NULL, NULL);
	MUST(list = ibv_get_device_list(&n));
	EQ(n, MOST);
	CHECK(!list[n]);
	for (int i = 0; i < n; i++) {
		struct ibv_context *ctx;

		snprintf(want, sizeof(want), "anyrdma%d", i);
		CHECK(!strcmp(ibv_get_device_name(list[i]), want));
		snprintf(want, sizeof(want), "uverbs%d", i);
		CHECK(!strcmp(list[i]->dev_name, want));
		for (int k = 0; k < i; k++)
			CHECK(ibv_get_device_guid(list[i]) != ibv_get_device_guid(list[k]));
		MUST(ctx = ibv_open_device(list[i]));
		CHECK(ctx->device == list[i]);
		OK(ibv_query_device(ctx, &a));
		CHECK(a.node_guid == ibv_get_device_guid(list[i]));
		OK(ibv_close_device(ctx));
	}
	ibv_free_device_list(list);
}

static void names_are_given(void)
{
	struct ibv_device **list;
	int n = 0;

	settings("3", NULL, "rail,mlx5_4");
	MUST(list = ibv_get_device_list(&n));
	EQ(n, 3);
	CHECK(!strcmp(ibv_get_device_name(list[0]), "rail"));
	CHECK(!strcmp(ibv_get_device_name(list[1]), "mlx5_4"));
	CHECK(!strcmp(ibv_get_device_name(list[2]), "mlx5_5"));
	CHECK(!strcmp(list[2]->ibdev_path, "/sys/class/infiniband/mlx5_5"));
	CHECK(!strcmp(list[2]->dev_name, "uverbs2"));
	ibv_free_device_list(list);
}

/* ---- objects --------------------------------------------------------------------- */

/* What is made on one device is of no use to the other. */
static void objects_do_not_mix(void)
{
	struct ibv_context *c[2];
	struct ibv_pd *pd[2];
	struct ibv_cq *cq[2];
	struct ibv_xrcd_init_attr x = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
	};
	struct ibv_qp_init_attr a = { .qp_type = IBV_QPT_RC,
				      .cap = CONF_CAP(1, 1, 1) };
	struct ibv_xrcd *xrcd[2];
	struct ibv_comp_channel *ch;
	char file[] = "/tmp/anyrdma-devices-XXXXXX";

	settings("2", NULL, NULL);
	for (int i = 0; i < 2; i++) {
		c[i] = open_nth(i);
		MUST(pd[i] = ibv_alloc_pd(c[i]));
		MUST(cq[i] = ibv_create_cq(c[i], 4, NULL, NULL, 0));
	}
	for (int i = 0; i < 4; i++) {
		a.send_cq = cq[i & 1];
		a.recv_cq = cq[i >> 1];
		if (i) {
			NONE(ibv_create_qp(pd[0], &a), EINVAL);
		} else {
			struct ibv_qp *qp = ibv_create_qp(pd[0], &a);

			MUST(qp);
			OK(ibv_destroy_qp(qp));
		}
	}
	MUST(ch = ibv_create_comp_channel(c[1]));
	NONE(ibv_create_cq(c[0], 4, NULL, ch, 0), EINVAL);
	OK(ibv_destroy_comp_channel(ch));
	/* A file's XRC domain is one of the device. */
	x.fd = mkstemp(file);
	x.oflags = O_CREAT | O_EXCL;
	CHECK(x.fd >= 0 && !unlink(file));
	for (int i = 0; i < 2; i++)
		MUST(xrcd[i] = ibv_open_xrcd(c[i], &x));
	NONE(ibv_open_xrcd(c[1], &x), EINVAL);
	for (int i = 0; i < 2; i++) {
		OK(ibv_close_xrcd(xrcd[i]));
		OK(ibv_destroy_cq(cq[i]));
		OK(ibv_dealloc_pd(pd[i]));
		OK(ibv_close_device(c[i]));
	}
}

/* ---- data ------------------------------------------------------------------------ */

/* A plain side of device n, with the globals of side.h as they were left by it. */
static struct side side_on(int n, struct side_device *d, enum ibv_qp_type type)
{
	struct side s;

	dev = *d = (struct side_device){ .ctx = open_nth(n) };
	MUST(d->pd = ibv_alloc_pd(d->ctx));
	d->gid_index = conf_gid(d->ctx, &d->port, &d->gid);
	dev = *d;
	s = side_with(100 + (uint32_t)n, (struct side_opt){ .type = type });
	OK(type == IBV_QPT_UD ? ud_init(&s, UD_QKEY) : to_init(&s));
	return s;
}

static void side_off(struct side *s, struct side_device *d)
{
	side_free(s);
	OK(ibv_dealloc_pd(d->pd));
	OK(ibv_close_device(d->ctx));
}

/* Both devices have 127.0.0.1, and it leads to the QP with that number. */
static void one_qp_on_each(void)
{
	struct side_device d[2];
	struct side s[2];

	settings("2", NULL, NULL);
	for (int i = 0; i < 2; i++)
		s[i] = side_on(i, &d[i], IBV_QPT_RC);
	CHECK(s[0].qp->qp_num != s[1].qp->qp_num);
	CHECK(!memcmp(&d[0].gid, &d[1].gid, sizeof(d[0].gid)));
	for (int i = 0; i < 2; i++) {
		dev = d[i];
		OK(to_rtr(&s[i], s[!i].qp->qp_num, s[!i].psn, &d[!i].gid));
		OK(to_rts(&s[i]));
	}
	exchange(&s[0], &s[1], 1);
	exchange(&s[1], &s[0], 2);
	/* A key of the other device's memory is none of this one's. */
	{
		struct ibv_sge sge = { .addr = (uintptr_t)s[1].b.p,
				       .length = 8,
				       .lkey = s[1].b.mr->lkey };
		struct ibv_send_wr wr = { .wr_id = 9,
					  .sg_list = &sge,
					  .num_sge = 1,
					  .opcode = IBV_WR_SEND,
					  .send_flags = IBV_SEND_SIGNALED },
				   *bad;

		OK(ibv_post_send(s[0].qp, &wr, &bad));
		conf_wc_is(s[0].cq, 9, IBV_WC_LOC_PROT_ERR);
	}
	for (int i = 0; i < 2; i++)
		side_off(&s[i], &d[i]);
}

static void other_process(struct peer *me, void *arg)
{
	struct side_device d;
	struct side s;
	struct ibv_recv_wr rr = { .wr_id = 6, .num_sge = 1 }, *bad;
	uint32_t qpn, psn;

	(void)arg;
	s = side_on(0, &d, IBV_QPT_RC);
	rr.sg_list = &(struct ibv_sge){ (uintptr_t)s.b.p, 16, s.b.mr->lkey };
	OK(ibv_post_recv(s.qp, &rr, &bad));
	peer_say_u32(me, s.qp->qp_num);
	peer_say_u32(me, s.psn);
	qpn = peer_hear_u32(me);
	psn = peer_hear_u32(me);
	OK(to_rtr(&s, qpn, psn, &d.gid));
	OK(to_rts(&s));
	conf_wc_ok(s.cq, 6);
	side_off(&s, &d);
}

/* Device 1 here, device 0 of another process. */
static void between_processes(void)
{
	struct side_device d;
	struct side s;
	struct peer p;
	uint32_t qpn, psn;
	struct ibv_sge sge;
	struct ibv_send_wr wr, *bad;

	settings("2", NULL, NULL);
	p = peer_start(other_process, NULL);
	s = side_on(1, &d, IBV_QPT_RC);
	qpn = peer_hear_u32(&p);
	psn = peer_hear_u32(&p);
	peer_say_u32(&p, s.qp->qp_num);
	peer_say_u32(&p, s.psn);
	OK(to_rtr(&s, qpn, psn, &d.gid));
	OK(to_rts(&s));
	sge = (struct ibv_sge){ (uintptr_t)s.b.p, 16, s.b.mr->lkey };
	wr = (struct ibv_send_wr){ .wr_id = 5,
				   .opcode = IBV_WR_SEND,
				   .sg_list = &sge,
				   .num_sge = 1,
				   .send_flags = IBV_SEND_SIGNALED };
	OK(ibv_post_send(s.qp, &wr, &bad));
	conf_wc_ok(s.cq, 5);
	peer_end(&p);
	side_off(&s, &d);
}

/* ---- addresses ------------------------------------------------------------------ */

static void run(const char *cmd)
{
	if (system(cmd))
		SKIP("\"%s\" fails here", cmd);
}

/* lo, and interfaces d0 to dn-1 with 10.9.i.1. */
static void own_net(int n)
{
	char cmd[300];

	if (unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET))
		SKIP("no network namespaces: %s", strerror(errno));
	run("ip link set lo up");
	for (int i = 0; i < n; i++) {
		snprintf(cmd, sizeof(cmd),
			 "ip link add d%d type veth peer name p%d && ip addr add 10.9.%d.1/24 dev "
			 "d%d && ip link set d%d up && ip link set p%d up",
			 i, i, i, i, i, i);
		run(cmd);
	}
	/* An interface runs a moment after its peer is up. */
	for (int i = 0; i < n; i++) {
		snprintf(cmd, sizeof(cmd), "ip link show dev d%d up | grep -q 'state UP'", i);
		WAIT_FOR(!system(cmd));
	}
}

static void interfaces_are_dealt(void)
{
	struct ibv_context *c[2];

	settings("2", NULL, NULL);
	own_net(3);
	run("ip route add default dev d1");
	for (int i = 0; i < 2; i++)
		c[i] = open_nth(i);
	EQ(index_of(c[0], "10.9.1.1"), 0);
	EQ(index_of(c[1], "10.9.0.1"), 0);
	CHECK(index_of(c[0], "10.9.2.1") > 0);
	EQ(index_of(c[0], "10.9.0.1"), -1);
	EQ(index_of(c[1], "10.9.1.1"), -1);
	EQ(index_of(c[1], "10.9.2.1"), -1);
	for (int i = 0; i < 2; i++) {
		CHECK(index_of(c[i], "127.0.0.1") > 0);
		OK(ibv_close_device(c[i]));
	}
}

static void one_interface_is_everybodys(void)
{
	struct ibv_context *c[3];

	settings("3", NULL, NULL);
	own_net(2);
	for (int i = 0; i < 3; i++) {
		c[i] = open_nth(i);
		CHECK(index_of(c[i], "10.9.0.1") >= 0);
		CHECK(index_of(c[i], "10.9.1.1") >= 0);
		CHECK(index_of(c[i], "127.0.0.1") > 0);
	}
	for (int i = 0; i < 3; i++)
		OK(ibv_close_device(c[i]));
}

static void lists_are_obeyed(void)
{
	struct ibv_context *c[3];

	settings("3", "d1,127.0.0.1;10.9.0.1", NULL);
	own_net(3);
	for (int i = 0; i < 3; i++)
		c[i] = open_nth(i);
	EQ(index_of(c[0], "10.9.1.1"), 0);
	CHECK(index_of(c[0], "127.0.0.1") > 0);
	EQ(index_of(c[0], "10.9.0.1"), -1);
	EQ(index_of(c[1], "10.9.0.1"), 0);
	EQ(index_of(c[1], "127.0.0.1"), -1);
	EQ(index_of(c[2], "10.9.1.1"), 0); /* the lists again */
	for (int i = 0; i < 3; i++)
		OK(ibv_close_device(c[i]));
}

/* Only the device whose table has changed tells of it. */
static void changes_are_of_one_device(void)
{
	struct ibv_async_event ev;
	struct ibv_context *c[2];

	settings("2", NULL, NULL);
	own_net(2);
	for (int i = 0; i < 2; i++)
		c[i] = open_nth(i);
	EQ(index_of(c[1], "10.9.1.1"), 0);
	run("ip addr del 10.9.1.1/24 dev d1");
	for (;;) {
		OK(ibv_get_async_event(c[1], &ev));
		ibv_ack_async_event(&ev);
		if (ev.event_type == IBV_EVENT_GID_CHANGE && index_of(c[1], "10.9.1.1") < 0)
			break;
	}
	run("ip addr add 10.9.0.9/24 dev d0");
	for (;;) {
		OK(ibv_get_async_event(c[0], &ev));
		ibv_ack_async_event(&ev);
		if (ev.event_type == IBV_EVENT_GID_CHANGE && index_of(c[0], "10.9.0.9") >= 0)
			break;
	}
	EQ(index_of(c[1], "10.9.0.9"), -1);
	for (int i = 0; i < 2; i++)
		OK(ibv_close_device(c[i]));
}

/* ---- the connection manager --------------------------------------------------------- */

static void addresses_name_devices(void)
{
	struct rdma_event_channel *ch[2];
	struct rdma_cm_id *lis, *id, *child, *far;
	struct ibv_context **list;
	conf_sa any;
	int n = 0;

	settings("2", NULL, NULL);
	own_net(2);
	MUST(list = rdma_get_devices(&n));
	EQ(n, 2);
	CHECK(!strcmp(ibv_get_device_name(list[0]->device), "anyrdma0"));
	CHECK(!strcmp(ibv_get_device_name(list[1]->device), "anyrdma1"));
	for (int i = 0; i < 2; i++)
		ch[i] = conf_channel();
	/* A listener on all devices: its child is of the one that was addressed. */
	lis = conf_id(ch[0]);
	any = conf_any(AF_INET, 0);
	OK(rdma_bind_addr(lis, SA(any)));
	OK(rdma_listen(lis, 4));
	CHECK(!lis->verbs);
	id = conf_route_resolved(ch[1], conf_parse("10.9.1.1", ntohs(rdma_get_src_port(lis))));
	CHECK(id->verbs == list[1]);
	CHECK(id->pd->context == list[1]);
	conf_qp(id, 4);
	CHECK(id->qp->context == list[1]);
	{
		struct rdma_conn_param p = conf_param();

		OK(rdma_connect(id, &p));
		child = conf_request(ch[0]);
		CHECK(child->verbs == list[1]);
		conf_qp(child, 4);
		OK(rdma_accept(child, &p));
	}
	conf_expect(ch[1], id, RDMA_CM_EVENT_ESTABLISHED);
	conf_expect(ch[0], child, RDMA_CM_EVENT_ESTABLISHED);
	/* A loopback address is of the first device. */
	far = conf_addr_resolved(ch[1], conf_parse("127.0.0.1", 9));
	CHECK(far->verbs == list[0]);
	conf_id_free(far);
	conf_id_free(id);
	conf_id_free(child);
	conf_id_free(lis);
	for (int i = 0; i < 2; i++)
		rdma_destroy_event_channel(ch[i]);
	rdma_free_devices(list);
}

/* A QP of one device is not made on an id of another. */
static void ids_keep_to_their_device(void)
{
	struct rdma_event_channel *ch;
	struct ibv_context *other;
	struct ibv_qp_init_attr a = { .qp_type = IBV_QPT_RC, .cap = CONF_CAP(1, 1, 1) };
	struct rdma_cm_id *id;
	struct ibv_pd *pd;

	settings("2", NULL, NULL);
	own_net(2);
	ch = conf_channel();
	id = conf_addr_resolved(ch, conf_parse("10.9.0.1", 9));
	other = open_nth(1);
	MUST(pd = ibv_alloc_pd(other));
	ERR(rdma_create_qp(id, pd, &a), EINVAL);
	OK(rdma_create_qp(id, NULL, &a));
	conf_id_close(id);
	OK(ibv_dealloc_pd(pd));
	OK(ibv_close_device(other));
}

/* ---- datagrams ------------------------------------------------------------------- */

/* Sends from device 0 to the QP of device 1 at an address of device `to`. */
static void datagram_to(const char *address, bool arrives)
{
	struct ibv_ah_attr ah = { .is_global = 1, .port_num = 1 };
	struct ibv_send_wr wr = { .wr_id = 3,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	struct ibv_sge sge[2];
	struct ibv_recv_wr rr = { .wr_id = 4, .num_sge = 1 }, *bad_rr;
	struct side_device d[2];
	struct side s[2];
	struct ibv_wc wc;

	for (int i = 0; i < 2; i++) {
		s[i] = side_on(i, &d[i], IBV_QPT_UD);
		sge[i] = (struct ibv_sge){ (uintptr_t)s[i].b.p, i ? 100 : 60,
					   s[i].b.mr->lkey };
		OK(ibv_modify_qp(s[i].qp, &attr, IBV_QP_STATE));
		OK(to_rts(&s[i]));
	}
	rr.sg_list = &sge[1];
	wr.sg_list = &sge[0];
	OK(ibv_post_recv(s[1].qp, &rr, &bad_rr));
	ah.grh.sgid_index = (uint8_t)index_of(d[0].ctx, "10.9.0.1");
	ah.grh.dgid = gid_at(d[arrives].ctx, index_of(d[arrives].ctx, address));
	MUST(wr.wr.ud.ah = ibv_create_ah(d[0].pd, &ah));
	wr.wr.ud.remote_qpn = s[1].qp->qp_num;
	wr.wr.ud.remote_qkey = UD_QKEY;
	OK(ibv_post_send(s[0].qp, &wr, &bad));
	conf_wc_is(s[0].cq, 3, IBV_WC_SUCCESS);
	if (arrives) {
		conf_wc_is(s[1].cq, 4, IBV_WC_SUCCESS);
	} else {
		conf_settle();
		EQ(ibv_poll_cq(s[1].cq, 1, &wc), 0);
	}
	OK(ibv_destroy_ah(wr.wr.ud.ah));
	for (int i = 0; i < 2; i++)
		side_off(&s[i], &d[i]);
}

static void datagrams_to_the_right_device(void)
{
	settings("2", NULL, NULL);
	own_net(2);
	datagram_to("10.9.1.1", true);
}

static void datagrams_to_another_device(void)
{
	settings("2", NULL, NULL);
	own_net(2);
	datagram_to("10.9.0.1", false);
}

static const struct conf_case cases[] = {
	CASE(are_listed),
	CASE(names_are_given),
	CASE(objects_do_not_mix),
	CASE(one_qp_on_each),
	CASE(between_processes),
	CASE(interfaces_are_dealt),
	CASE(one_interface_is_everybodys),
	CASE(lists_are_obeyed),
	CASE(changes_are_of_one_device),
	CASE(addresses_name_devices),
	CASE(ids_keep_to_their_device),
	CASE(datagrams_to_the_right_device),
	CASE(datagrams_to_another_device),
};

CONF_MAIN(cases)
