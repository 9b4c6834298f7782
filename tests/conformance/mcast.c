/* SPDX-License-Identifier: BSD-2-Clause */
/* Multicast groups: joining and leaving them by the connection manager, and by verbs alone. */
#include "ud_side.h"

#ifndef ENOTSUPP
#define ENOTSUPP 524 /* the kernel's; not in errno.h */
#endif

enum { PUBLIC_QKEY = 0x01234567, GROUP_QPN = 0xffffff };

static struct rdma_event_channel *ch;

static conf_sa group(unsigned i)
{
	char text[32];

	snprintf(text, sizeof(text), "239.71.%u.%u", getpid() % 250, i);
	return conf_parse(text, 0);
}

static union ibv_gid gid_of(const conf_sa *sa)
{
	union ibv_gid gid = { .raw = { [10] = 0xff, 0xff } };

	memcpy(gid.raw + 12, &((const struct sockaddr_in *)sa)->sin_addr, 4);
	return gid;
}

static struct rdma_cm_id *unbound(int ps)
{
	struct rdma_cm_id *id;

	if (conf_iwarp())
		SKIP("iWARP has no datagrams");
	if (!ch)
		ch = conf_channel();
	OK(rdma_create_id(ch, &id, NULL, ps));
	return id;
}

static struct rdma_cm_id *bound(void)
{
	struct rdma_cm_id *id = unbound(RDMA_PS_UDP);
	conf_sa addr = conf_addr(AF_INET, 0);

	OK(rdma_bind_addr(id, SA(addr)));
	if (!id->verbs) { /* of a loopback address no device is known yet */
		addr = conf_addr(AF_INET, 7000);
		OK(rdma_resolve_addr(id, NULL, SA(addr), 2000));
		conf_expect(ch, id, RDMA_CM_EVENT_ADDR_RESOLVED);
	}
	MUST(id->verbs);
	return id;
}

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = { .cap = CONF_CAP(16, 16, 1),
					 .qp_type = IBV_QPT_UD };

	OK(rdma_create_qp(id, NULL, &attr));
}

static struct rdma_cm_id *with_qp(void)
{
	struct rdma_cm_id *id = bound();

	make_qp(id);
	return id;
}

static void end(struct rdma_cm_id *id)
{
	conf_id_free(id);
	conf_quiet(ch, 0);
	rdma_destroy_event_channel(ch);
}

static int join_as(struct rdma_cm_id *id, conf_sa g, uint32_t flags)
{
	struct rdma_cm_join_mc_attr_ex attr = {
		.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS |
			     RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
		.join_flags = flags,
		.addr = SA(g),
	};

	return rdma_join_multicast_ex(id, &attr, NULL);
}

static int join_group(struct rdma_cm_id *id, conf_sa g, void *context)
{
	return rdma_join_multicast(id, SA(g), context);
}

static void joined(struct rdma_cm_id *id, conf_sa g)
{
	OK(join_group(id, g, NULL));
	conf_expect(ch, id, RDMA_CM_EVENT_MULTICAST_JOIN);
}

static int leave(struct rdma_cm_id *id, conf_sa g)
{
	return rdma_leave_multicast(id, SA(g));
}

/* ---- joining and leaving --------------------------------------------------------- */

static void check_event(struct rdma_cm_id *id, conf_sa g, void *context)
{
	struct rdma_cm_event *ev = conf_get(ch, id, RDMA_CM_EVENT_MULTICAST_JOIN);
	struct ibv_ah_attr attr = ev->param.ud.ah_attr;
	union ibv_gid want = gid_of(&g), gid;
	struct ibv_ah *ah;

	CHECK(ev->param.ud.private_data == context);
	EQ(ev->param.ud.private_data_len, 0);
	EQ(ev->param.ud.qp_num, GROUP_QPN);
	EQ(ev->param.ud.qkey, PUBLIC_QKEY);
	OK(rdma_ack_cm_event(ev));
	CHECK(!memcmp(&attr.grh.dgid, &want, 16));
	EQ(attr.is_global, 1);
	EQ(attr.port_num, id->port_num);
	EQ(attr.dlid, 0);
	EQ(attr.sl, 0);
	EQ(attr.static_rate, 0);
	EQ(attr.grh.traffic_class, 0);
	EQ(attr.grh.flow_label, 0);
	CHECK(attr.grh.hop_limit > 0);
	OK(ibv_query_gid(id->verbs, id->port_num, attr.grh.sgid_index, &gid));
	CHECK(!memcmp(&gid, &id->route.addr.addr.ibaddr.sgid, 16));
	MUST(ah = ibv_create_ah(id->pd, &attr));
	OK(ibv_destroy_ah(ah));
}

static void join_event_fields(void)
{
	struct rdma_cm_id *id = with_qp();
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	OK(join_group(id, group(1), &ch));
	check_event(id, group(1), &ch);
	OK(ibv_query_qp(id->qp, &attr, IBV_QP_QKEY | IBV_QP_STATE, &init));
	EQ(attr.qkey, PUBLIC_QKEY);
	EQ(attr.qp_state, IBV_QPS_RTS);
	OK(leave(id, group(1)));
	end(id);
}

/* mckey's way: bound, then resolved to the group. */
static void join_when_resolved_to_the_group(void)
{
	struct rdma_cm_id *id = unbound(RDMA_PS_UDP);
	conf_sa addr = conf_addr(AF_INET, 0), g = group(2);
	union ibv_gid want = gid_of(&g);

	OK(rdma_bind_addr(id, SA(addr)));
	OK(rdma_resolve_addr(id, SA(addr), SA(g), 2000));
	conf_expect(ch, id, RDMA_CM_EVENT_ADDR_RESOLVED);
	MUST(id->verbs);
	CHECK(!memcmp(&id->route.addr.addr.ibaddr.dgid, &want, 16));
	EQ(id->route.addr.dst_sin.sin_addr.s_addr,
	   ((struct sockaddr_in *)&g)->sin_addr.s_addr);
	make_qp(id);
	OK(join_group(id, g, NULL));
	check_event(id, g, NULL);
	OK(leave(id, g));
	end(id);
}

static void join_without_a_qp(void)
{
	struct rdma_cm_id *id = bound();

	OK(join_group(id, group(3), id));
	check_event(id, group(3), id);
	make_qp(id);
	OK(leave(id, group(3)));
	end(id);
}

static void join_flags(void)
{
	struct rdma_cm_id *id = with_qp();

	for (uint32_t flags = 0; flags < RDMA_MC_JOIN_FLAG_RESERVED; flags++) {
		OK(join_as(id, group(4), flags));
		check_event(id, group(4), NULL);
		OK(leave(id, group(4)));
	}
	end(id);
}

static void attributes_that_are_refused(void)
{
	struct rdma_cm_id *id = with_qp();
	conf_sa g = group(5), bad = { .ss_family = AF_UNIX };
	struct rdma_cm_join_mc_attr_ex attr = { .comp_mask = 4, .addr = SA(g) };

	ERR(rdma_join_multicast_ex(id, &attr, NULL), ENOTSUP);
	attr.comp_mask = RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
	ERR(rdma_join_multicast_ex(id, &attr, NULL), EINVAL);
	attr.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS;
	ERR(rdma_join_multicast_ex(id, &attr, NULL), EINVAL);
	ERR(join_as(id, g, RDMA_MC_JOIN_FLAG_RESERVED), EINVAL);
	ERR(join_group(id, bad, NULL), EINVAL);
	ERR(rdma_join_multicast(id, NULL, NULL), EINVAL);
	ERR(join_group(id, conf_any(AF_INET, 0), NULL), EINVAL);
	ERR(leave(id, bad), EINVAL);
	end(id);
}

/* The library finds out when it attaches the QP. The entry is there until it is left. */
static void address_of_a_host(void)
{
	struct rdma_cm_id *id = with_qp();
	conf_sa host = conf_addr(AF_INET, 0);
	struct rdma_cm_event *ev;

	OK(join_group(id, host, &ch));
	MUST(ev = conf_next(ch, conf_ms(CONF_WAIT)));
	EQ(ev->event, RDMA_CM_EVENT_MULTICAST_ERROR);
	CHECK(ev->status < 0);
	CHECK(ev->param.ud.private_data == &ch);
	OK(rdma_ack_cm_event(ev));
	OK(leave(id, host));
	ERR(leave(id, host), EADDRNOTAVAIL);
	end(id);
}

static void ipv6_group(void)
{
	conf_sa g = conf_parse("ff05::71", 0), addr = conf_addr(AF_INET6, 0);
	struct rdma_cm_id *id = unbound(RDMA_PS_UDP);

	OK(rdma_bind_addr(id, SA(addr)));
	if (!id->verbs) {
		addr = conf_addr(AF_INET6, 7000);
		OK(rdma_resolve_addr(id, NULL, SA(addr), 2000));
		conf_expect(ch, id, RDMA_CM_EVENT_ADDR_RESOLVED);
	}
	make_qp(id);
	OK(join_group(id, g, NULL));
	conf_expect(ch, id, RDMA_CM_EVENT_MULTICAST_JOIN);
	OK(leave(id, g));
	end(id);
}

static void wrong_states(void)
{
	struct rdma_cm_id *id = unbound(RDMA_PS_UDP), *tcp = unbound(RDMA_PS_TCP);
	conf_sa addr = conf_addr(AF_INET, 0);

	ERR(join_group(id, group(6), NULL), EINVAL);
	OK(rdma_bind_addr(tcp, SA(addr)));
	ERR(join_group(tcp, group(6), NULL), EINVAL);
	conf_id_free(tcp);
	OK(rdma_bind_addr(id, SA(addr)));
	OK(rdma_listen(id, 1));
	ERR(join_group(id, group(6), NULL), EINVAL);
	conf_id_free(id);
	id = unbound(RDMA_PS_UDP);
	addr = conf_addr(AF_INET, 7000);
	OK(rdma_resolve_addr(id, NULL, SA(addr), 2000));
	conf_expect(ch, id, RDMA_CM_EVENT_ADDR_RESOLVED);
	OK(rdma_resolve_route(id, 2000));
	conf_expect(ch, id, RDMA_CM_EVENT_ROUTE_RESOLVED);
	ERR(join_group(id, group(6), NULL), EINVAL);
	end(id);
}

/* The same group again is another entry. */
static void joined_twice(void)
{
	struct rdma_cm_id *id = with_qp();

	joined(id, group(7));
	joined(id, group(7));
	OK(leave(id, group(7)));
	OK(leave(id, group(7)));
	ERR(leave(id, group(7)), EADDRNOTAVAIL);
	joined(id, group(7));
	OK(leave(id, group(7)));
	end(id);
}

static void leaving_what_was_not_joined(void)
{
	struct rdma_cm_id *id = with_qp();
	conf_sa other;

	ERR(leave(id, group(8)), EADDRNOTAVAIL);
	joined(id, group(8));
	ERR(leave(id, group(9)), EADDRNOTAVAIL);
	other = group(8);
	((struct sockaddr_in *)&other)->sin_port =
		htons(1); /* the whole address counts */
	ERR(leave(id, other), EADDRNOTAVAIL);
	OK(leave(id, group(8)));
	end(id);
}

static void left_before_its_event(void)
{
	struct rdma_cm_id *id = with_qp();

	for (int i = 0; i < 10; i++) {
		OK(join_group(id, group(10), NULL));
		if (i % 2)
			WAIT_FOR(conf_readable(ch->fd));
		OK(leave(id, group(10)));
		conf_quiet(ch, i ? 0 : CONF_QUIET);
	}
	end(id);
}

static void many_groups(void)
{
	enum { N = 60 };
	struct rdma_cm_id *id = with_qp();

	for (unsigned i = 0; i < N; i++)
		OK(join_group(id, group(100 + i), NULL));
	for (unsigned i = 0; i < N; i++)
		conf_expect(ch, id, RDMA_CM_EVENT_MULTICAST_JOIN);
	for (unsigned i = 0; i < N; i += 2)
		OK(leave(id, group(100 + i)));
	rdma_destroy_qp(id);
	end(id); /* leaves the others */
}

static struct rdma_cm_id *leaver;
static atomic_bool left;

static void *leave_group(void *arg)
{
	(void)arg;
	OK(leave(leaver, group(11)));
	left = true;
	return NULL;
}

static void leaving_waits_for_acknowledgement(void)
{
	struct rdma_cm_event *ev;
	pthread_t t;

	leaver = with_qp();
	OK(join_group(leaver, group(11), NULL));
	ev = conf_get(ch, leaver, RDMA_CM_EVENT_MULTICAST_JOIN);
	t = conf_thread(leave_group, NULL);
	conf_blocked(t);
	CHECK(!left);
	OK(rdma_ack_cm_event(ev));
	conf_join(t);
	end(leaver);
}

static void *destroy_id(void *arg)
{
	OK(rdma_destroy_id(arg));
	left = true;
	return NULL;
}

static void destroying_waits_for_acknowledgement(void)
{
	struct rdma_cm_event *ev;
	struct rdma_cm_id *id;
	pthread_t t;

	id = with_qp();
	OK(join_group(id, group(12), NULL));
	ev = conf_get(ch, id, RDMA_CM_EVENT_MULTICAST_JOIN);
	rdma_destroy_qp(id);
	t = conf_thread(destroy_id, id);
	conf_blocked(t);
	CHECK(!left);
	OK(rdma_ack_cm_event(ev));
	conf_join(t);
	rdma_destroy_event_channel(ch);
}

static void synchronous(void)
{
	conf_sa addr = conf_addr(AF_INET, 7000), g = group(13);
	struct rdma_cm_id *id;

	if (conf_iwarp())
		SKIP("iWARP has no datagrams");
	OK(rdma_create_id(NULL, &id, NULL, RDMA_PS_UDP));
	OK(rdma_resolve_addr(id, NULL, SA(addr), 2000));
	make_qp(id);
	OK(rdma_join_multicast(id, SA(g), &addr));
	MUST(id->event);
	EQ(id->event->event, RDMA_CM_EVENT_MULTICAST_JOIN);
	EQ(id->event->param.ud.qp_num, GROUP_QPN);
	CHECK(id->event->param.ud.private_data == &addr);
	OK(rdma_ack_cm_event(id->event));
	id->event = NULL;
	OK(rdma_leave_multicast(id, SA(g)));
	conf_id_free(id);
}

static void migrated(void)
{
	struct rdma_cm_id *id = with_qp();
	struct rdma_event_channel *other = conf_channel();

	joined(id, group(14));
	OK(join_group(id, group(15), NULL));
	WAIT_FOR(conf_readable(ch->fd));
	OK(rdma_migrate_id(id, other));
	conf_expect(other, id, RDMA_CM_EVENT_MULTICAST_JOIN);
	OK(leave(id, group(14)));
	OK(leave(id, group(15)));
	end(id);
	rdma_destroy_event_channel(other);
}

/* ---- verbs alone ----------------------------------------------------------------- */

static struct side x, y;
static struct ibv_ah *ah;

/* Attaching twice is as once. */
static void attach_and_detach(void)
{
	conf_sa g = group(20), h = group(21);
	union ibv_gid gid = gid_of(&g), other = gid_of(&h);

	ud_pair(&x, &y, &ah);
	EQ(ibv_attach_mcast(y.qp, &gid, 0), 0);
	EQ(ibv_attach_mcast(y.qp, &gid, 0), 0);
	EQ(ibv_attach_mcast(x.qp, &gid, 0), 0);
	EQ(ibv_detach_mcast(y.qp, &other, 0), EINVAL);
	EQ(ibv_detach_mcast(y.qp, &gid, 0), 0);
	EQ(ibv_detach_mcast(y.qp, &gid, 0), EINVAL);
	EQ(ibv_detach_mcast(x.qp, &gid, 0), 0);
	EQ(ibv_attach_mcast(x.qp, &gid, 0), 0);
	EQ(ibv_destroy_qp(x.qp), EBUSY);
	EQ(ibv_detach_mcast(x.qp, &gid, 0), 0);
	ud_pair_free(&x, &y, ah);
}

static void attach_is_refused(void)
{
	conf_sa g = group(22);
	union ibv_gid gid = gid_of(&g), host;
	struct side rc;

	ud_pair(&x, &y, &ah);
	host = dev.gid;
	rc = side(1);
	EQ(ibv_attach_mcast(rc.qp, &gid, 0), EINVAL);
	EQ(ibv_attach_mcast(x.qp, &host, 0), EINVAL);
	EQ(ibv_detach_mcast(x.qp, &host, 0), EINVAL);
	EQ(ibv_detach_mcast(rc.qp, &gid, 0), EINVAL);
	side_free(&rc);
	ud_pair_free(&x, &y, ah);
}

/* A QP may be attached from the beginning, and stays so. */
static void attach_in_each_state(void)
{
	conf_sa g = group(23);
	union ibv_gid gid = gid_of(&g);

	ud_pair(&x, &y, &ah);
	EQ(to_state(&x, IBV_QPS_RESET), 0);
	EQ(ibv_attach_mcast(x.qp, &gid, 0), 0);
	ud_up(&x);
	EQ(to_state(&x, IBV_QPS_ERR), 0);
	EQ(ibv_detach_mcast(x.qp, &gid, 0), 0);
	EQ(ibv_attach_mcast(x.qp, &gid, 0), 0);
	EQ(to_state(&x, IBV_QPS_RESET), 0);
	EQ(ibv_detach_mcast(x.qp, &gid, 0), 0);
	ud_pair_free(&x, &y, ah);
}

static void more_groups_than_one_socket_takes(void)
{
	enum { N = 45 };
	union ibv_gid gid[N];

	ud_pair(&x, &y, &ah);
	for (unsigned i = 0; i < N; i++) {
		conf_sa g = group(30 + i);

		gid[i] = gid_of(&g);
		EQ(ibv_attach_mcast(x.qp, &gid[i], 0), 0);
		EQ(ibv_attach_mcast(y.qp, &gid[i], 0), 0);
	}
	for (unsigned i = 0; i < N; i++) {
		EQ(ibv_detach_mcast(x.qp, &gid[i], 0), 0);
		EQ(ibv_detach_mcast(y.qp, &gid[i], 0), 0);
	}
	ud_pair_free(&x, &y, ah);
}

static const struct conf_case cases[] = {
	CASE(join_event_fields),
	CASE(join_when_resolved_to_the_group),
	CASE(join_without_a_qp),
	CASE(join_flags),
	CASE(attributes_that_are_refused),
	CASE(address_of_a_host),
	CASE(ipv6_group),
	CASE(wrong_states),
	CASE(joined_twice),
	CASE(leaving_what_was_not_joined),
	CASE(left_before_its_event),
	CASE(many_groups),
	CASE(leaving_waits_for_acknowledgement),
	CASE(destroying_waits_for_acknowledgement),
	CASE(synchronous),
	CASE(migrated),
	CASE(attach_and_detach),
	CASE(attach_is_refused),
	CASE(attach_in_each_state),
	CASE(more_groups_than_one_socket_takes),
};

CONF_MAIN(cases)
