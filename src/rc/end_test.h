/* SPDX-License-Identifier: BSD-2-Clause */
/* A real QP on a stream of the fake carrier, whose peer is the test program. */
#ifndef ANYRDMA_RC_END_TEST_H
#define ANYRDMA_RC_END_TEST_H

#include "tests/t.h"

#include "rc/fake_carrier.h"

#include <fcntl.h>

enum {
	REGION = 4 << 20,
	SQ_PSN = 0x100,
	RQ_PSN = 0x200,
	REMOTE_QPN = 0x4321,
	REMOTE_KEY = 0x77,
	REMOTE_ADDR = 0x10000,
};

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static uint8_t *mem;
static struct ibv_mr *mr;
static union ibv_gid local_gid, remote_gid;

struct end {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct fake_peer *p;
};

/* What differs from a usual end. */
struct end_opt {
	enum ibv_qp_type type; /* 0: RC */
	uint32_t max_wr;       /* of the send queue; 0: 64 */
	bool unsignalled;      /* work completes only if it asks for it */
	bool by_number;	       /* the application connects it, not the CM */
	bool plain, no_user;
	uint32_t dest_qpn; /* 0: REMOTE_QPN */
	uint32_t sq_psn, rq_psn;
	int access;	   /* qp_access_flags; 0: all, -1: none */
	uint8_t rnr_retry; /* 0: 7; 255: 0 */
	bool never;	   /* timeout 0 */
	uint8_t reads;	   /* max_rd_atomic and max_dest_rd_atomic; 0: 4 */
	bool executes, fetches;
	unsigned patience;
};

static T_UNUSED bool device_open(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
	ibv_free_device_list(list);
	pd = ctx ? ibv_alloc_pd(ctx) : NULL;
	mem = calloc(1, REGION);
	if (!pd || !mem || ibv_query_gid(ctx, 1, 0, &local_gid))
		return false;
	mr = ibv_reg_mr(pd, mem, REGION,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
				IBV_ACCESS_MW_BIND);
	remote_gid = local_gid;
	remote_gid.raw[15] ^= 0x55;
	fcntl(ctx->async_fd, F_SETFL, O_NONBLOCK);
	return mr != NULL;
}

/* The last case: every object on the PD has been destroyed. */
static T_UNUSED void nothing_is_left(void)
{
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	CHECK_EQ(ibv_dealloc_pd(pd), 0);
	CHECK_EQ(ibv_close_device(ctx), 0);
	free(mem);
}

/* ---- the QP ------------------------------------------------------------------------ */

static T_UNUSED bool qp_init(struct end *e, const struct end_opt *o)
{
	const int all = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			IBV_ACCESS_REMOTE_ATOMIC;
	struct ibv_qp_init_attr init = { .qp_type = o->type ? o->type : IBV_QPT_RC,
					 .cap = { o->max_wr ? o->max_wr : 64, 128, 2, 2,
						  64 },
					 .sq_sig_all = !o->unsignalled };
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	a.qp_access_flags = (unsigned)(o->access > 0 ? o->access :
				       o->access < 0 ? 0 :
						       all);
	e->cq = ibv_create_cq(ctx, 512, NULL, NULL, 0);
	init.send_cq = init.recv_cq = e->cq;
	if (init.qp_type == IBV_QPT_XRC_SEND)
		init.recv_cq = NULL, init.cap.max_recv_wr = init.cap.max_recv_sge = 0;
	e->qp = ibv_create_qp(pd, &init);
	if (!CHECK(e->qp))
		return false;
	to_qp(e->qp)->made_by_cm = !o->by_number;
	return CHECK_EQ(ibv_modify_qp(e->qp, &a,
				      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					      IBV_QP_ACCESS_FLAGS),
			0);
}

static T_UNUSED int qp_rtr_to(struct end *e, const struct end_opt *o,
			      const union ibv_gid *gid)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_256,
		.dest_qp_num = o->dest_qpn ? o->dest_qpn : REMOTE_QPN,
		.rq_psn = o->rq_psn ? o->rq_psn : RQ_PSN,
		.max_dest_rd_atomic = o->reads ? o->reads : 4,
		.min_rnr_timer = 13,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .dgid = *gid, .hop_limit = 1 } },
	};
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		   IBV_QP_RQ_PSN;

	if (o->type != IBV_QPT_UC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	return ibv_modify_qp(e->qp, &a, mask);
}

static T_UNUSED int qp_rtr(struct end *e, const struct end_opt *o)
{
	return qp_rtr_to(e, o, &remote_gid);
}

static T_UNUSED int qp_rts(struct end *e, const struct end_opt *o)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = o->sq_psn ? o->sq_psn : SQ_PSN,
		.timeout = o->never ? 0 : 1,
		.retry_cnt = 7,
		.rnr_retry = o->rnr_retry == 255 ? 0 :
			     o->rnr_retry	 ? o->rnr_retry :
						   7,
		.max_rd_atomic = o->reads ? o->reads : 4,
	};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (o->type != IBV_QPT_UC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	return ibv_modify_qp(e->qp, &a, mask);
}

static T_UNUSED int qp_to(struct end *e, enum ibv_qp_state state)
{
	struct ibv_qp_attr a = { .qp_state = state };

	return ibv_modify_qp(e->qp, &a, IBV_QP_STATE);
}

static T_UNUSED enum ibv_qp_state state_of(struct end *e)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_UNKNOWN };

	CHECK_EQ(ibv_query_qp(e->qp, &a, IBV_QP_STATE, &init), 0);
	return a.qp_state;
}

/* The next asynchronous event, without waiting; -1: none. */
static T_UNUSED int next_event(void)
{
	struct ibv_async_event ev;

	if (ibv_get_async_event(ctx, &ev))
		return -1;
	ibv_ack_async_event(&ev);
	return (int)ev.event_type;
}

/* ---- both -------------------------------------------------------------------------- */

static T_UNUSED struct stream_param param_of(const struct end *e, const struct end_opt *o)
{
	return (struct stream_param){ .local_gid = local_gid,
				      .remote_gid = remote_gid,
				      .local_qpn = e->qp->qp_num,
				      .remote_qpn = o->dest_qpn ? o->dest_qpn :
								  REMOTE_QPN,
				      .extended = !o->plain,
				      .unreliable = o->type == IBV_QPT_UC };
}

static T_UNUSED struct fake_peer *peer_new(const struct end *e, const struct end_opt *o)
{
	struct stream_param param = param_of(e, o);
	struct fake_peer *p = fake_new(&param, !o->no_user);

	p->carrier.executor = o->executes ? &fake_executor : NULL;
	p->carrier.by_reference = o->fetches ? fake_fetches : NULL;
	p->likely = p->fetches = true;
	if (o->patience)
		p->carrier.patience = o->patience;
	return p;
}

/* A QP in RTS, and its stream. */
static T_UNUSED struct end *end_new(struct end_opt o)
{
	struct end *e = calloc(1, sizeof(*e));

	if (!e)
		abort();
	if (!qp_init(e, &o))
		return e;
	e->p = peer_new(e, &o);
	CHECK_EQ(stream_start(e->p->s), 0);
	CHECK_EQ(qp_rtr(e, &o), 0);
	CHECK_EQ(qp_rts(e, &o), 0);
	return e;
}

static T_UNUSED enum stream_state stream_state(struct end *e)
{
	struct stream *s = e->p->s;
	enum stream_state st;

	stream_lock(s);
	st = s->state;
	stream_unlock(s);
	return st;
}

/* The user goes, the peer ends, and the stream does if no QP has it. */
static T_UNUSED void peer_end(struct fake_peer *p)
{
	struct stream *s = p->s;
	bool user;

	if (atomic_load(&p->freed)) {
		fake_free(p);
		return;
	}
	stream_get(s);
	stream_lock(s);
	p->ended = true;
	p->room = FAKE_ROOM;
	atomic_store(&p->heard, atomic_load(&p->sent));
	if (s->state == STREAM_OPEN || s->state == STREAM_CLOSING)
		tx_run(s);
	user = !s->user_gone;
	stream_unlock(s);
	if (user)
		stream_release(s);
	fake_pass(p, true);
	stream_put(s);
	fake_free(p);
}

/* The QP goes, and the stream with it. */
static T_UNUSED void end_free(struct end *e)
{
	if (e->qp)
		CHECK_EQ(ibv_destroy_qp(e->qp), 0);
	if (e->p)
		peer_end(e->p);
	CHECK_EQ(ibv_destroy_cq(e->cq), 0);
	free(e);
	while (next_event() >= 0)
		;
}

/* ---- work -------------------------------------------------------------------------- */

static T_UNUSED void post_flags(struct end *e, enum ibv_wr_opcode op, uint64_t id,
				uint32_t len, unsigned flags)
{
	bool atomic = op == IBV_WR_ATOMIC_FETCH_AND_ADD ||
		      op == IBV_WR_ATOMIC_CMP_AND_SWP;
	struct ibv_sge sge = { (uintptr_t)mem, atomic ? 8 : len, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = id,
				  .sg_list = &sge,
				  .num_sge = len || atomic,
				  .opcode = op,
				  .send_flags = flags },
			   *bad;

	wr.imm_data = htobe32(0xcafe0000u + (uint32_t)id);
	if (op == IBV_WR_SEND_WITH_INV)
		wr.invalidate_rkey = REMOTE_KEY;
	wr.wr.rdma.remote_addr = REMOTE_ADDR;
	wr.wr.rdma.rkey = REMOTE_KEY;
	if (atomic) {
		wr.wr.atomic.remote_addr = REMOTE_ADDR;
		wr.wr.atomic.rkey = REMOTE_KEY;
		wr.wr.atomic.compare_add = 3;
		wr.wr.atomic.swap = 4;
	}
	CHECK_EQ(ibv_post_send(e->qp, &wr, &bad), 0);
}

static T_UNUSED void post(struct end *e, enum ibv_wr_opcode op, uint64_t id, uint32_t len)
{
	post_flags(e, op, id, len, 0);
}

static T_UNUSED void post_recv(struct end *e, uint64_t id, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)mem, len, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = len > 0 },
			   *bad;

	CHECK_EQ(ibv_post_recv(e->qp, &wr, &bad), 0);
}

/* The next completion is of this request, with this status. */
static T_UNUSED bool completes(struct end *e, uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc = { 0 };

	if (!CHECK(T_WAIT(ibv_poll_cq(e->cq, 1, &wc) == 1, FAKE_PATIENCE_MS)))
		return false;
	return CHECK_EQ(wc.wr_id, id) && CHECK_EQ(wc.status, status);
}

/* There is no completion now. */
static T_UNUSED bool nothing(struct end *e)
{
	struct ibv_wc wc;

	return ibv_poll_cq(e->cq, 1, &wc) == 0;
}

/* ---- frames ------------------------------------------------------------------------ */

/* The next frame that the stream sends has this opcode; else NULL and a failed check. */
static T_UNUSED const struct fake_frame *hear(struct end *e, enum rc_op op)
{
	const struct fake_frame *f = fake_hear(e->p, FAKE_PATIENCE_MS);

	if (!CHECK(f))
		return NULL;
	if (f->f.op == op)
		return f;
	diag("%s instead of %s (control type %d)", rc_op_str(f->f.op), rc_op_str(op),
	     f->f.op == RC_CTL ? (int)f->f.ctl.type : -1);
	CHECK(f->f.op == op);
	return NULL;
}

/* ... is this control message. */
static T_UNUSED const struct fake_frame *hear_ctl(struct end *e, enum ctl_type type,
						  uint32_t number)
{
	const struct fake_frame *f = hear(e, RC_CTL);

	return f && CHECK_EQ(f->f.ctl.type, type) && CHECK_EQ(f->f.ctl.number, number) ?
		       f :
		       NULL;
}

static T_UNUSED bool quiet(struct end *e)
{
	return fake_quiet(e->p);
}

static T_UNUSED void say_ack(struct end *e, uint32_t number)
{
	fake_say_ctl(e->p, CTL_ACK, 0, number);
}

static T_UNUSED void say_nak(struct end *e, enum nak_code code, uint32_t number)
{
	fake_say_ctl(e->p, CTL_NAK, (uint8_t)code, number);
}

#endif
