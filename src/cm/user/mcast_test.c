/* SPDX-License-Identifier: BSD-2-Clause */
/* Multicast of the user backend: who may join what, and what the event says. */
#include "tests/t.h"

#include "cm/sockaddr_ib.h"
#include "cm/user/pair_test.h"

/* 127.0.0.1 is "any device" to bind: an id gets its device by resolving. */
static struct cm_id *ud_resolved(struct cm_channel *ch)
{
	struct cm_id *id = id_new_ps(ch, NULL, RDMA_PS_UDP, IBV_QPT_UD);
	struct sockaddr_in a = loop_addr(7000);

	CHECK_EQ(be->resolve_addr(id, NULL, (struct sockaddr *)&a, 1000), 0);
	want(ch, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	return id;
}

static void set_group(struct cm_mcast *mc, struct cm_id *id, const void *addr, size_t len)
{
	memset(mc, 0, sizeof(*mc));
	mc->id = id;
	memcpy(&mc->addr, addr, len);
}

static void set_group4(struct cm_mcast *mc, struct cm_id *id, const char *text)
{
	struct sockaddr_in a = { .sin_family = AF_INET };

	inet_pton(AF_INET, text, &a.sin_addr);
	set_group(mc, id, &a, sizeof(a));
}

static bool event_names(struct cm_channel *ch, struct cm_mcast *mc, const char *gid)
{
	struct cm_event *ev = want_for(ch, RDMA_CM_EVENT_MULTICAST_JOIN, 0, 5000);
	struct in6_addr want_gid;
	const struct rdma_ud_param *ud;

	if (!ev)
		return false;
	ud = &ev->pub.param.ud;
	inet_pton(AF_INET6, gid, &want_gid);
	CHECK(ev->mcast == mc);
	CHECK(memcmp(&ud->ah_attr.grh.dgid, &want_gid, 16) == 0);
	CHECK(ud->ah_attr.is_global && ud->ah_attr.port_num == 1);
	CHECK_EQ(ud->ah_attr.grh.sgid_index, 3);
	CHECK_EQ(ud->ah_attr.grh.hop_limit, 64);
	CHECK_EQ(ud->ah_attr.dlid, 0);
	CHECK_EQ(ud->qp_num, 0xffffff);
	CHECK_EQ(ud->qkey, 0x01234567);
	CHECK_EQ(ud->private_data_len, 0);
	cm_event_free(ev);
	return true;
}

static void groups(void)
{
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 };
	struct cm_sockaddr_ib ib = { .sib_family = AF_IB };
	struct cm_channel *ch = ch_new();
	struct cm_id *id = ud_resolved(ch);
	struct cm_mcast mc;
	uint32_t n = 9;

	set_group4(&mc, id, "239.1.2.3");
	CHECK_EQ(be->join(id, &mc), 0);
	CHECK(event_names(ch, &mc, "::ffff:239.1.2.3"));
	CHECK_EQ(be->leave(id, &mc, &n), 0);
	CHECK_EQ(n, 1);
	inet_pton(AF_INET6, "ff15::1:2", &in6.sin6_addr);
	set_group(&mc, id, &in6, sizeof(in6));
	CHECK_EQ(be->join(id, &mc), 0);
	CHECK(event_names(ch, &mc, "ff15::1:2"));
	inet_pton(AF_INET6, "ff0e::ffff:e001:203", ib.sib_addr);
	set_group(&mc, id, &ib, sizeof(ib));
	CHECK_EQ(be->join(id, &mc), 0);
	CHECK(event_names(ch, &mc, "ff0e::ffff:e001:203"));
	id_free(id);
	cm_channel_free(ch);
}

static void refusals(void)
{
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 };
	struct cm_sockaddr_ib ib = { .sib_family = AF_IB };
	struct cm_channel *ch = ch_new();
	struct sockaddr_in a = loop_addr(0);
	struct cm_id *id = id_new_ps(ch, NULL, RDMA_PS_UDP, IBV_QPT_UD), *rc;
	struct cm_mcast mc;

	set_group4(&mc, id, "239.1.2.3");
	CHECK_EQ(be->join(id, &mc), -EINVAL); /* idle */
	CHECK_EQ(be->bind(id, (struct sockaddr *)&a), 0);
	CHECK_EQ(be->join(id, &mc), -EINVAL); /* no device */
	id_free(id);

	rc = routed(ch, 7000);
	CHECK_EQ(be->join(rc, &mc), -EINVAL);
	id_free(rc);

	id = ud_resolved(ch);
	set_group4(&mc, id, "0.0.0.0");
	CHECK_EQ(be->join(id, &mc), -EINVAL);
	set_group4(&mc, id, "0.1.2.3");
	CHECK_EQ(be->join(id, &mc), -EINVAL);
	set_group(&mc, id, &in6, sizeof(in6));
	CHECK_EQ(be->join(id, &mc), -EINVAL);
	set_group(&mc, id, &ib, sizeof(ib));
	CHECK_EQ(be->join(id, &mc), -EINVAL);
	CHECK(silent(ch));
	/* The route is one step too far. */
	CHECK_EQ(be->resolve_route(id, 1000), 0);
	want(ch, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	set_group4(&mc, id, "239.1.2.3");
	CHECK_EQ(be->join(id, &mc), -EINVAL);
	id_free(id);
	cm_channel_free(ch);
}

/* What was not fetched is gone with the group; other groups' events stay. */
static void left_before_the_event(void)
{
	struct cm_channel *ch = ch_new();
	struct cm_id *id = ud_resolved(ch);
	struct cm_mcast a, b;
	uint32_t n = 9;

	set_group4(&a, id, "239.1.2.3");
	set_group4(&b, id, "239.1.2.4");
	CHECK_EQ(be->join(id, &a), 0);
	CHECK_EQ(be->join(id, &b), 0);
	CHECK_EQ(be->leave(id, &a, &n), 0);
	CHECK_EQ(n, 0);
	CHECK(event_names(ch, &b, "::ffff:239.1.2.4"));
	CHECK(silent(ch));
	CHECK_EQ(be->join(id, &a), 0);
	id_free(id);
	CHECK(silent(ch)); /* the end of the id leaves all */
	cm_channel_free(ch);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	cm_dev = &device;
	if (be->init())
		return 1;
	T_RUN(groups);
	T_RUN(refusals);
	T_RUN(left_before_the_event);
	T_RUN(nothing_left);
	return t_done();
}
