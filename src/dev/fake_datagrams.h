/* SPDX-License-Identifier: BSD-2-Clause */
/* For unit tests: a transport of UD QPs beside the one of fake_transport.h, which it
 * includes, and a UD QP that is ready. */
#ifndef ANYRDMA_DEV_FAKE_DATAGRAMS_H
#define ANYRDMA_DEV_FAKE_DATAGRAMS_H

#include "dev/transport.h"

static const struct dev_transport fake_datagrams;
#define FAKE_DATAGRAMS (&fake_datagrams)
#include "dev/av.h"
#include "dev/fake_transport.h"

/* Groups that the transport has joined, and not left, for whatever QP; and how often it was
 * called. With join_fails_at n, the n-th join from now on fails. */
static struct {
	int joined, joins, leaves, join_fails_at;
	union ibv_gid last;
} fake_groups;

static int fake_mcast_attach(struct dev_qp *qp, const union ibv_gid *group)
{
	CHECK(qp->tr == &fake_datagrams);
	fake_groups.joins++;
	if (fake_groups.join_fails_at && !--fake_groups.join_fails_at)
		return -ENOBUFS;
	fake_groups.joined++;
	fake_groups.last = *group;
	return 0;
}

static void fake_mcast_detach(struct dev_qp *qp, const union ibv_gid *group)
{
	(void)qp;
	fake_groups.joined--;
	fake_groups.leaves++;
	fake_groups.last = *group;
}

static const struct dev_transport fake_datagrams = {
	.name = "fake datagrams",
	.listen = fake_listen,
	.attach = fake_attach,
	.stop = fake_stop,
	.detach = fake_detach,
	.kick = fake_kick,
	.mcast_attach = fake_mcast_attach,
	.mcast_detach = fake_mcast_detach,
};

#define UD_INIT_MASK (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY)
#define UD_RTS_MASK (IBV_QP_STATE | IBV_QP_SQ_PSN)

/* From RESET. */
static T_UNUSED void ud_rts(struct rig *r)
{
	CHECK_EQ(rig_to(r, IBV_QPS_INIT, UD_INIT_MASK), 0);
	CHECK_EQ(rig_to(r, IBV_QPS_RTR, IBV_QP_STATE), 0);
	CHECK_EQ(rig_to(r, IBV_QPS_RTS, UD_RTS_MASK), 0);
}

/* A UD QP in RTS. */
static T_UNUSED bool ud_up(struct rig *r, struct rig_opt o)
{
	o.type = IBV_QPT_UD;
	if (!rig_up(r, o))
		return false;
	ud_rts(r);
	return true;
}

/* To the loopback address, from it. */
static T_UNUSED struct ibv_ah *ud_ah(struct ibv_pd *pd)
{
	struct ibv_ah_attr a = rig_attr(IBV_QPS_RTR).ah_attr;

	return ibv_create_ah(pd, &a);
}

static T_UNUSED int ud_send(struct rig *r, struct ibv_ah *ah, uint64_t id, unsigned flags)
{
	struct ibv_send_wr wr = { .wr_id = id,
				  .opcode = IBV_WR_SEND,
				  .send_flags = flags,
				  .wr.ud = { ah, 0x77, 0x11 } };
	struct ibv_send_wr *bad = NULL;

	return ibv_post_send(r->qp, &wr, &bad);
}

static T_UNUSED int ud_holders(struct ibv_ah *ah)
{
	return atomic_load(&to_ah(ah)->av->refs);
}

#endif
