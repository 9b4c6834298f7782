/* SPDX-License-Identifier: BSD-2-Clause */
/* Groups of UD QPs: what may be attached, what stays, what the transport hears. */
#include "tests/t.h"

#include "dev/fake_datagrams.h"

static struct rig r;

static bool up(bool ready)
{
	memset(&fake_groups, 0, sizeof(fake_groups));
	if (!rig_up(&r, (struct rig_opt){ .type = IBV_QPT_UD }))
		return false;
	if (ready)
		ud_rts(&r);
	return true;
}

/* ff0e::N */
static union ibv_gid group(unsigned n)
{
	union ibv_gid g = { .raw = { 0xff, 0x0e } };

	g.raw[14] = (uint8_t)(n >> 8);
	g.raw[15] = (uint8_t)n;
	return g;
}

static int attach(unsigned n, uint16_t lid)
{
	union ibv_gid g = group(n);

	errno = 0;
	return ibv_attach_mcast(r.qp, &g, lid);
}

static int detach(unsigned n, uint16_t lid)
{
	union ibv_gid g = group(n);

	errno = 0;
	return ibv_detach_mcast(r.qp, &g, lid);
}

static void groups_alone(void)
{
	union ibv_gid unicast = { .raw = { 0xfe, 0x80, [15] = 1 } };
	union ibv_gid v4 = { .raw = { [10] = 0xff, 0xff, 239, 1, 2, 3 } };

	REQUIRE(up(true));
	CHECK_EQ(ibv_attach_mcast(r.qp, &unicast, 0), EINVAL);
	CHECK_EQ(errno, EINVAL);
	CHECK_EQ(ibv_attach_mcast(r.qp, &v4, 0), 0);
	CHECK(!memcmp(&fake_groups.last, &v4, sizeof(v4)));
	CHECK_EQ(ibv_detach_mcast(r.qp, &v4, 0), 0);
	v4.raw[12] = 10;
	CHECK_EQ(ibv_attach_mcast(r.qp, &v4, 0), EINVAL);
	CHECK_EQ(fake_groups.joins, 1);
	CHECK_EQ(fake_groups.joined, 0);
	rig_down(&r);
}

static void datagrams_alone(void)
{
	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	CHECK_EQ(attach(1, 0), EINVAL);
	CHECK_EQ(detach(1, 0), EINVAL);
	rig_down(&r);
}

static void attached_twice_is_attached_once(void)
{
	REQUIRE(up(true));
	CHECK_EQ(attach(1, 0), 0);
	CHECK_EQ(attach(1, 0), 0);
	CHECK_EQ(fake_groups.joins, 1);
	CHECK_EQ(detach(1, 0), 0);
	CHECK_EQ(fake_groups.leaves, 1);
	CHECK_EQ(detach(1, 0), EINVAL);
	CHECK_EQ(errno, EINVAL);
	CHECK_EQ(detach(2, 0), EINVAL);
	CHECK_EQ(fake_groups.leaves, 1);
	rig_down(&r);
}

/* It goes with the name of an attachment, and means nothing. */
static void the_lid(void)
{
	REQUIRE(up(true));
	CHECK_EQ(attach(1, 0xc001), 0);
	CHECK_EQ(attach(1, 0xc002), 0);
	CHECK_EQ(fake_groups.joins, 1);
	CHECK_EQ(detach(1, 0), EINVAL);
	CHECK_EQ(detach(1, 0xc001), 0);
	CHECK_EQ(fake_groups.joined, 1);
	/* What is left is replayed. */
	CHECK_EQ(rig_to(&r, IBV_QPS_RESET, IBV_QP_STATE), 0);
	CHECK_EQ(fake_groups.joined, 0);
	ud_rts(&r);
	CHECK_EQ(fake_groups.joined, 1);
	CHECK_EQ(detach(1, 0xc002), 0);
	CHECK_EQ(fake_groups.joined, 0);
	rig_down(&r);
}

static void groups_stay_over_all_states(void)
{
	REQUIRE(up(false));
	CHECK_EQ(attach(1, 0), 0); /* in RESET */
	CHECK_EQ(attach(2, 0), 0);
	CHECK_EQ(rig_to(&r, IBV_QPS_INIT, UD_INIT_MASK), 0);
	CHECK_EQ(fake_groups.joins, 0); /* the transport is not there yet */
	CHECK_EQ(rig_to(&r, IBV_QPS_RTR, IBV_QP_STATE), 0);
	CHECK_EQ(fake_groups.joined, 2);
	CHECK_EQ(attach(3, 0), 0);
	CHECK_EQ(fake_groups.joined, 3);
	CHECK_EQ(rig_to(&r, IBV_QPS_ERR, IBV_QP_STATE), 0);
	CHECK_EQ(fake_groups.leaves, 0);
	CHECK_EQ(rig_to(&r, IBV_QPS_RESET, IBV_QP_STATE), 0);
	CHECK_EQ(fake_groups.joined, 0);
	CHECK_EQ(fake_groups.leaves, 3);
	CHECK_EQ(detach(2, 0), 0); /* in RESET */
	CHECK_EQ(fake_groups.leaves, 3);
	ud_rts(&r);
	CHECK_EQ(fake_groups.joined, 2);
	CHECK_EQ(detach(1, 0), 0);
	CHECK_EQ(detach(3, 0), 0);
	CHECK_EQ(fake_groups.joined, 0);
	rig_down(&r);
}

/* ibv_destroy_qp(3); the kernel says EBUSY. */
static void an_attached_qp_is_busy(void)
{
	REQUIRE(up(true));
	CHECK_EQ(attach(1, 0), 0);
	CHECK_EQ(ibv_destroy_qp(r.qp), EBUSY);
	CHECK_EQ(fake_groups.joined, 1);
	CHECK_EQ(fake.detach, 0);
	CHECK_EQ(detach(1, 0), 0);
	rig_down(&r);
}

static void a_join_that_fails(void)
{
	REQUIRE(up(true));
	fake_groups.join_fails_at = 1;
	CHECK_EQ(attach(0xffff, 0), ENOBUFS); /* counts as none: see the last case */
	CHECK_EQ(detach(0xffff, 0), EINVAL);
	CHECK_EQ(attach(1, 0), 0);
	CHECK_EQ(detach(1, 0), 0);
	rig_down(&r);
}

/* The transition is refused, and nothing of it remains. */
static void a_join_that_fails_on_the_way_to_rtr(void)
{
	REQUIRE(up(false));
	for (unsigned n = 1; n <= 3; n++)
		CHECK_EQ(attach(n, 0), 0);
	CHECK_EQ(rig_to(&r, IBV_QPS_INIT, UD_INIT_MASK), 0);
	fake_groups.join_fails_at = 3;
	CHECK_EQ(rig_to(&r, IBV_QPS_RTR, IBV_QP_STATE), ENOBUFS);
	CHECK_EQ(r.qp->state, IBV_QPS_INIT);
	CHECK_EQ(fake_groups.joined, 0);
	CHECK_EQ(fake.detach, 1);
	CHECK(!to_qp(r.qp)->tr);
	CHECK_EQ(rig_to(&r, IBV_QPS_RTR, IBV_QP_STATE), 0);
	CHECK_EQ(fake_groups.joined, 3);
	for (unsigned n = 1; n <= 3; n++)
		CHECK_EQ(detach(n, 0), 0);
	rig_down(&r);
}

/* What a process has is counted by group, not by QP. */
static void as_many_groups_as_promised(void)
{
	struct ibv_qp_init_attr a = { .qp_type = IBV_QPT_UD, .cap = { 1, 1, 1, 1, 0 } };
	union ibv_gid g = group(0);
	struct ibv_device_attr da;
	struct ibv_qp *second;

	REQUIRE(up(true));
	CHECK_EQ(ibv_query_device(r.ctx, &da), 0);
	a.send_cq = r.scq;
	a.recv_cq = r.rcq;
	second = ibv_create_qp(r.pd, &a);
	REQUIRE(second);
	for (unsigned n = 0; n < (unsigned)da.max_mcast_grp; n++)
		REQUIRE_EQ(attach(n, 0), 0);
	CHECK_EQ(attach((unsigned)da.max_mcast_grp, 0), ENOMEM);
	CHECK_EQ(ibv_attach_mcast(second, &g, 0), 0);
	CHECK_EQ(detach(0, 0), 0);
	CHECK_EQ(attach((unsigned)da.max_mcast_grp, 0), ENOMEM);
	CHECK_EQ(ibv_detach_mcast(second, &g, 0), 0);
	CHECK_EQ(attach((unsigned)da.max_mcast_grp, 0), 0);
	for (unsigned n = 1; n <= (unsigned)da.max_mcast_grp; n++)
		REQUIRE_EQ(detach(n, 0), 0);
	CHECK_EQ(fake_groups.joined, 0);
	CHECK_EQ(ibv_destroy_qp(second), 0);
	rig_down(&r);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(groups_alone);
	T_RUN(datagrams_alone);
	T_RUN(attached_twice_is_attached_once);
	T_RUN(the_lid);
	T_RUN(groups_stay_over_all_states);
	T_RUN(an_attached_qp_is_busy);
	T_RUN(a_join_that_fails);
	T_RUN(a_join_that_fails_on_the_way_to_rtr);
	T_RUN(as_many_groups_as_promised);
	return t_done();
}
