/* SPDX-License-Identifier: BSD-2-Clause */
/* Two connected QPs of this process. Their streams are at the two ends of the link within
 * the process. A test can stop everything (pair_hold()), call functions of src/shm with
 * the locks that they need, and look at the records that they write. */
#ifndef ANYRDMA_SHM_PAIR_TEST_H
#define ANYRDMA_SHM_PAIR_TEST_H

#include "dev/poll.h"
#include "dev/verbs.h"
#include "rc/stream.h"
#include "shm/link.h"
#include "tests/t.h"

enum {
	REGION = 4 * 1024 * 1024, /* one half is sent, one received into */
	PATIENCE_MS = 20000,
	PAIR_PSN = 0x100, /* of the first request of either side */
};

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static uint8_t *mem;

struct end {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct stream *s;
	struct link *l;
};

struct pair {
	struct end a, b;
};

struct pair_opt {
	enum ibv_qp_type type; /* 0: RC */
	struct ibv_srq *srq;   /* of b, or NULL */
	uint32_t max_wr;       /* 0: 32 */
};

static T_UNUSED uint8_t *recv_mem(void)
{
	return mem + REGION / 2;
}

static T_UNUSED bool pair_device_open(void)
{
	struct ibv_device **list;

	setenv("ANYRDMA_TRANSPORT", "shm", 1);
	list = ibv_get_device_list(NULL);
	ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
	ibv_free_device_list(list);
	pd = ctx ? ibv_alloc_pd(ctx) : NULL;
	mem = calloc(1, REGION);
	mr = pd && mem ? ibv_reg_mr(pd, mem, REGION, IBV_ACCESS_LOCAL_WRITE) : NULL;
	for (int i = 0; mr && i < REGION / 2; i++)
		mem[i] = (uint8_t)(i * 31 + (i >> 8) * 7 + 1);
	return mr;
}

static T_UNUSED void pair_device_close(void)
{
	CHECK(!ibv_dereg_mr(mr));
	CHECK(!ibv_dealloc_pd(pd));
	CHECK(!ibv_close_device(ctx));
	free(mem);
}

/* ---- connecting -------------------------------------------------------------------- */

static T_UNUSED int loopback_gid(union ibv_gid *gid)
{
	for (int i = 0; i < DEV_GIDS; i++)
		if (!ibv_query_gid(ctx, 1, i, gid) && gid->raw[10] == 0xff &&
		    gid->raw[12] == 127)
			return i;
	return -1;
}

static T_UNUSED void end_open(struct end *e, const struct pair_opt *opt,
			      struct ibv_srq *srq)
{
	uint32_t max_wr = opt->max_wr ? opt->max_wr : 32;
	struct ibv_qp_init_attr init = {
		.qp_type = opt->type ? opt->type : IBV_QPT_RC, .srq = srq,
		.cap = { max_wr, max_wr, 3, 3, DEV_MAX_INLINE },
	};
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	e->cq = ibv_create_cq(ctx, 128, NULL, NULL, 0);
	init.send_cq = init.recv_cq = e->cq;
	e->qp = ibv_create_qp(pd, &init);
	if (!e->cq || !e->qp ||
	    ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					     IBV_QP_ACCESS_FLAGS))
		abort();
}

static T_UNUSED void end_connect(struct end *e, uint32_t peer)
{
	bool rc = e->qp->qp_type == IBV_QPT_RC;
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer,
		.rq_psn = PAIR_PSN, .sq_psn = PAIR_PSN, .max_dest_rd_atomic = 1,
		.max_rd_atomic = 1, .min_rnr_timer = 1, .timeout = 14, .retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh.hop_limit = 1 },
	};
	int rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		  IBV_QP_RQ_PSN;
	int rts = IBV_QP_STATE | IBV_QP_SQ_PSN;

	a.ah_attr.grh.sgid_index = (uint8_t)loopback_gid(&a.ah_attr.grh.dgid);
	if (rc) {
		rtr |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		rts |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		       IBV_QP_MAX_QP_RD_ATOMIC;
	}
	if (ibv_modify_qp(e->qp, &a, rtr))
		abort();
	a.qp_state = IBV_QPS_RTS;
	if (ibv_modify_qp(e->qp, &a, rts))
		abort();
}

/* ---- work ------------------------------------------------------------------------ */

static T_UNUSED struct ibv_sge sge_of(const uint8_t *at, uint32_t len)
{
	return (struct ibv_sge){ (uintptr_t)at, len, mr->lkey };
}

static T_UNUSED void post_recv_of(struct end *e, uint64_t id, uint8_t *at, uint32_t len)
{
	struct ibv_sge sge = sge_of(at, len);
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK(!ibv_post_recv(e->qp, &wr, &bad));
}

/* A send of one SGE. */
static T_UNUSED void post_send_of(struct end *e, uint64_t id, uint32_t len,
				  unsigned flags)
{
	struct ibv_sge sge = sge_of(mem, len);
	struct ibv_send_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1,
				  .opcode = IBV_WR_SEND, .send_flags = flags }, *bad;

	CHECK(!ibv_post_send(e->qp, &wr, &bad));
}

/* Polls both ends, as applications do, until this one has a completion. */
static T_UNUSED bool completion(struct pair *p, struct end *e, struct ibv_wc *wc)
{
	struct end *other = e == &p->a ? &p->b : &p->a;
	uint64_t end = loop_now() + (uint64_t)t_scaled(PATIENCE_MS) * MSEC;
	int n;

	do {
		n = ibv_poll_cq(e->cq, 1, wc);
		if (cq_looks_empty(to_cq(other->cq)))
			poll_run(to_cq(other->cq)); /* takes nothing */
	} while (!n && loop_now() < end);
	return n == 1;
}

/* The next completion is that of this work request. */
static T_UNUSED bool completes(struct pair *p, struct end *e, uint64_t id,
			       enum ibv_wc_status status)
{
	struct ibv_wc wc = { .wr_id = ~id };

	if (!completion(p, e, &wc))
		return false;
	if (wc.wr_id != id || wc.status != status)
		diag("completion of %llu: %s", (unsigned long long)wc.wr_id,
		     ibv_wc_status_str(wc.status));
	return wc.wr_id == id && wc.status == status;
}

/* ---- a pair ---------------------------------------------------------------------- */

/* Everything that was sent is received and acknowledged. */
NO_TSA static T_UNUSED bool end_is_quiet(struct end *e)
{
	struct dev_qp *qp = to_qp(e->qp);
	bool quiet;

	lock_get(&e->l->rx_lock);
	stream_lock(e->s);
	lock_get(&qp->lock);
	quiet = !ring_has(&e->l->rx) && list_empty(&e->l->after_rx) &&
		stream_settled(e->s) && !e->s->rx.ack_owed &&
		qp->sq.next == qp->sq.tail &&
		(qp->qp.qp_type != IBV_QPT_RC || e->s->tx.acked == qp->sq.next);
	lock_put(&qp->lock);
	stream_unlock(e->s);
	lock_put(&e->l->rx_lock);
	return quiet;
}

static T_UNUSED void pair_quiet(struct pair *p)
{
	CHECK(T_WAIT(end_is_quiet(&p->a) && end_is_quiet(&p->b), PATIENCE_MS));
}

static T_UNUSED void end_find_stream(struct end *e)
{
	struct dev_qp *qp = to_qp(e->qp);

	lock_get(&qp->lock);
	e->s = qp->tr_priv;
	lock_put(&qp->lock);
	e->l = to_shm(e->s)->l;
}

/* Each side has sent and received one message: all numbers are agreed upon. */
static T_UNUSED void pair_open(struct pair *p, const struct pair_opt *opt)
{
	struct pair_opt none = { 0 };
	struct ibv_sge sge = sge_of(recv_mem(), 64);
	struct ibv_recv_wr wr = { .wr_id = 2, .sg_list = &sge, .num_sge = 1 }, *bad;

	opt = opt ? opt : &none;
	end_open(&p->a, opt, NULL);
	end_open(&p->b, opt, opt->srq);
	end_connect(&p->a, p->b.qp->qp_num);
	end_connect(&p->b, p->a.qp->qp_num);
	post_recv_of(&p->a, 1, recv_mem(), 64);
	if (opt->srq)
		CHECK(!ibv_post_srq_recv(opt->srq, &wr, &bad));
	else
		CHECK(!ibv_post_recv(p->b.qp, &wr, &bad));
	post_send_of(&p->a, 3, 8, IBV_SEND_SIGNALED);
	CHECK(completes(p, &p->a, 3, IBV_WC_SUCCESS));
	CHECK(completes(p, &p->b, 2, IBV_WC_SUCCESS));
	post_send_of(&p->b, 4, 8, IBV_SEND_SIGNALED);
	CHECK(completes(p, &p->b, 4, IBV_WC_SUCCESS));
	CHECK(completes(p, &p->a, 1, IBV_WC_SUCCESS));
	end_find_stream(&p->a);
	end_find_stream(&p->b);
	pair_quiet(p);
}

static T_UNUSED void pair_close(struct pair *p)
{
	CHECK(!ibv_destroy_qp(p->a.qp));
	CHECK(!ibv_destroy_qp(p->b.qp));
	CHECK(!ibv_destroy_cq(p->a.cq));
	CHECK(!ibv_destroy_cq(p->b.cq));
}

/* ---- stopped --------------------------------------------------------------------- */

/* Nobody receives and nobody sends: what is posted stays in the queues. */
NO_TSA static T_UNUSED void pair_hold(struct pair *p)
{
	pair_quiet(p);
	lock_get(&p->a.l->rx_lock);
	lock_get(&p->b.l->rx_lock);
	lock_get(&p->a.s->lock);
	lock_get(&p->b.s->lock);
}

/* What was posted is sent, and what was sent is received. */
NO_TSA static T_UNUSED void pair_release(struct pair *p)
{
	lock_put(&p->b.l->rx_lock);
	lock_put(&p->a.l->rx_lock);
	stream_unlock(p->b.s);
	stream_unlock(p->a.s);
	link_wake_peer(p->a.l);
	link_wake_peer(p->b.l);
}

/* rc_carrier.send, while the pair is held. */
NO_TSA static T_UNUSED void end_send(struct end *e)
{
	shm_send(e->s);
}

/* Reads the records that e sends from now on; they stay in the ring. */
static T_UNUSED struct ring_rx records_of(const struct end *e)
{
	return (struct ring_rx){ .sh = e->l->tx.sh, .head = e->l->tx.tail };
}

/* The next record of a stream; NULL: there is none. */
static T_UNUSED const struct rec_stream *record_next(struct ring_rx *at, uint32_t *bytes)
{
	uint8_t kind;
	const volatile void *rec = ring_peek(at, bytes, &kind);

	if (!rec)
		return NULL;
	CHECK_EQ(kind, REC_STREAM);
	at->head += ring_lines(*bytes);
	return ring_payload(rec, 0); /* both ends are in this process */
}

#endif
