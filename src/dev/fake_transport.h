/* SPDX-License-Identifier: BSD-2-Clause */
/* For unit tests: a transport of connected QPs that only counts its calls, and a device
 * with one QP on it. Include it, after tests/t.h, in one file of a test program: it
 * defines transport_choose(). */
#ifndef ANYRDMA_DEV_FAKE_TRANSPORT_H
#define ANYRDMA_DEV_FAKE_TRANSPORT_H

#include "dev/gid.h"
#include "dev/transport.h"
#include "dev/verbs.h"

#include <fcntl.h>
#include <sched.h>

static struct {
	int listen, attach, kick, recv_posted, recv_lost, stop, detach;
	int attach_ret;
} fake;

static int fake_listen(struct dev_qp *qp)
{
	(void)qp;
	fake.listen++;
	return 0;
}

static int fake_attach(struct dev_qp *qp)
{
	(void)qp;
	fake.attach++;
	return fake.attach_ret;
}

static void fake_kick(struct dev_qp *qp)
{
	(void)qp;
	fake.kick++;
}

/* The QP that recv_posted() is busy with; it stays there while held. */
static _Atomic(struct dev_qp *) fake_busy;
static atomic_bool fake_hold;

static void fake_recv_posted(struct dev_qp *qp)
{
	atomic_store(&fake_busy, qp);
	fake.recv_posted++;
	do
		sched_yield();
	while (atomic_load(&fake_hold));
	atomic_store(&fake_busy, NULL);
}

/* What the transport does: the QP fails, and the receive with it. */
static void fake_recv_lost(struct dev_qp *qp)
{
	fake.recv_lost++;
	qp_fail_recv(qp, IBV_WC_WR_FLUSH_ERR, -1, "its SRQ goes away");
}

static void fake_stop(struct dev_qp *qp)
{
	(void)qp;
	fake.stop++;
}

static void fake_detach(struct dev_qp *qp)
{
	(void)qp;
	fake.detach++;
}

static const struct dev_transport fake_transport = {
	.name = "fake",
	.listen = fake_listen,
	.attach = fake_attach,
	.kick = fake_kick,
	.recv_posted = fake_recv_posted,
	.recv_lost = fake_recv_lost,
	.stop = fake_stop,
	.detach = fake_detach,
};

/* The transport of UD QPs: fake_datagrams.h. */
#ifndef FAKE_DATAGRAMS
#define FAKE_DATAGRAMS NULL
#endif

const struct dev_transport *transport_choose(enum ibv_qp_type type)
{
	if (type == IBV_QPT_UD)
		return FAKE_DATAGRAMS;
	return qp_type_is_connected(type) ? &fake_transport : NULL;
}

struct rig {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *ch;
	struct ibv_cq *scq, *rcq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
};

struct rig_opt {
	int cqe, max_wr, sig_all;
	bool srq;
	enum ibv_qp_type type; /* 0: RC */
};

/* A context, PD, channel, two CQs and a QP in RESET; false and a failed check if
 * anything is refused. */
static T_UNUSED bool rig_up(struct rig *r, struct rig_opt o)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_srq_init_attr sa = { .attr = { .max_wr = 4, .max_sge = 2 } };
	struct ibv_qp_init_attr a = {
		.cap = { .max_send_wr = o.max_wr ? (uint32_t)o.max_wr : 4,
			 .max_recv_wr = 4,
			 .max_send_sge = 2,
			 .max_recv_sge = 2,
			 .max_inline_data = 64 },
		.qp_type = o.type ? o.type : IBV_QPT_RC,
		.sq_sig_all = o.sig_all,
	};

	memset(&fake, 0, sizeof(fake));
	memset(r, 0, sizeof(*r));
	r->ctx = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	r->pd = ibv_alloc_pd(r->ctx);
	r->ch = ibv_create_comp_channel(r->ctx);
	r->scq = ibv_create_cq(r->ctx, o.cqe ? o.cqe : 16, NULL, r->ch, 0);
	r->rcq = ibv_create_cq(r->ctx, o.cqe ? o.cqe : 16, NULL, r->ch, 0);
	if (o.srq)
		r->srq = ibv_create_srq(r->pd, &sa);
	a.send_cq = r->scq;
	a.recv_cq = r->rcq;
	a.srq = r->srq;
	r->qp = ibv_create_qp(r->pd, &a);
	CHECK(r->ctx && r->pd && r->ch && r->scq && r->rcq && r->qp);
	return r->qp != NULL;
}

/* Destroys in order; every call must succeed, so nothing is left over. */
static T_UNUSED void rig_down(struct rig *r)
{
	if (r->qp)
		CHECK_EQ(ibv_destroy_qp(r->qp), 0);
	if (r->srq)
		CHECK_EQ(ibv_destroy_srq(r->srq), 0);
	CHECK_EQ(ibv_destroy_cq(r->scq), 0);
	CHECK_EQ(ibv_destroy_cq(r->rcq), 0);
	CHECK_EQ(ibv_destroy_comp_channel(r->ch), 0);
	CHECK_EQ(ibv_dealloc_pd(r->pd), 0);
	CHECK_EQ(ibv_close_device(r->ctx), 0);
}

#define INIT_MASK (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define UC_RTR_MASK \
	(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
#define RTR_MASK (UC_RTR_MASK | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define UC_RTS_MASK (IBV_QP_STATE | IBV_QP_SQ_PSN)
#define RTS_MASK \
	(UC_RTS_MASK | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | \
	 IBV_QP_MAX_QP_RD_ATOMIC)

/* Good values for every attribute. */
static T_UNUSED struct ibv_qp_attr rig_attr(enum ibv_qp_state s)
{
	struct ibv_qp_attr a = {
		.qp_state = s,
		.port_num = 1,
		.qkey = 0x7,
		.path_mtu = IBV_MTU_256,
		.dest_qp_num = 0x1234,
		.max_dest_rd_atomic = 4,
		.max_rd_atomic = 4,
		.min_rnr_timer = 12,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = { .is_global = 1, .port_num = 1 },
	};
	struct gid_slot slot;

	for (unsigned i = 0; i < gid_count(0); i++)
		if (gid_get(0, i, &slot) && slot.loopback) {
			a.ah_attr.grh.sgid_index = (uint8_t)i;
			a.ah_attr.grh.dgid = slot.gid;
			break;
		}
	return a;
}

static T_UNUSED int rig_to(struct rig *r, enum ibv_qp_state s, int mask)
{
	struct ibv_qp_attr a = rig_attr(s);

	return ibv_modify_qp(r->qp, &a, mask);
}

static T_UNUSED void rig_rts(struct rig *r)
{
	bool uc = r->qp->qp_type == IBV_QPT_UC;

	CHECK_EQ(rig_to(r, IBV_QPS_INIT, INIT_MASK), 0);
	CHECK_EQ(rig_to(r, IBV_QPS_RTR, uc ? UC_RTR_MASK : RTR_MASK), 0);
	CHECK_EQ(rig_to(r, IBV_QPS_RTS, uc ? UC_RTS_MASK : RTS_MASK), 0);
}

/* What a transport does when the peer has acknowledged n more requests. */
static T_UNUSED void rig_finish(struct rig *r, int n)
{
	struct dev_qp *qp = to_qp(r->qp);

	lock_get(&qp->lock);
	for (; n--; qp->sq.next++)
		sq_at(&qp->sq, qp->sq.next)->finished = 1;
	sq_retire_locked(qp);
	lock_put(&qp->lock);
}

static T_UNUSED int rig_send(struct rig *r, uint64_t id, unsigned flags)
{
	struct ibv_send_wr wr = { .wr_id = id,
				  .opcode = IBV_WR_SEND,
				  .send_flags = flags };
	struct ibv_send_wr *bad = NULL;

	return ibv_post_send(r->qp, &wr, &bad);
}

static T_UNUSED int rig_recv(struct rig *r, uint64_t id)
{
	struct ibv_recv_wr wr = { .wr_id = id }, *bad = NULL;

	return r->srq ? ibv_post_srq_recv(r->srq, &wr, &bad) :
			ibv_post_recv(r->qp, &wr, &bad);
}

/* Next async event without waiting, acknowledged; -1 if there is none. */
static T_UNUSED int rig_event(struct rig *r)
{
	struct ibv_async_event ev;

	fcntl(r->ctx->async_fd, F_SETFL, O_NONBLOCK);
	if (ibv_get_async_event(r->ctx, &ev))
		return -1;
	ibv_ack_async_event(&ev);
	return (int)ev.event_type;
}

#endif
