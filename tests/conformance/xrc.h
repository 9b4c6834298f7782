/* SPDX-License-Identifier: BSD-2-Clause */
/* What the two programs on XRC share: a device, SRQs, and connections brought up
 * by GID and QP number. Cases are skipped where the device has no XRC. */
#ifndef ANYRDMA_TESTS_XRC_H
#define ANYRDMA_TESTS_XRC_H

#include "conf.h"

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_port_attr port;
static union ibv_gid gid;
static int gid_index = -1;

static inline void find_gid(void)
{
	conf_sa addr = conf_addr(AF_INET, 0);
	struct sockaddr_in *in = (void *)&addr;
	union ibv_gid g;

	for (int i = 0; i < port.gid_tbl_len && gid_index < 0; i++)
		if (!ibv_query_gid(ctx, 1, i, &g) && g.raw[10] == 0xff &&
		    g.raw[11] == 0xff && !memcmp(g.raw + 12, &in->sin_addr, 4)) {
			gid_index = i;
			gid = g;
		}
	if (gid_index < 0)
		FAIL("no GID for the address");
}

static inline struct ibv_context *open_context(void)
{
	struct ibv_device **list;
	struct ibv_context *c;

	MUST(list = ibv_get_device_list(NULL));
	MUST(list[0]);
	MUST(c = ibv_open_device(list[0]));
	ibv_free_device_list(list);
	return c;
}

static inline void open_device(void)
{
	struct ibv_device_attr attr;

	ctx = open_context();
	OK(ibv_query_device(ctx, &attr));
	if (!(attr.device_cap_flags & IBV_DEVICE_XRC))
		SKIP("the device has no XRC");
	MUST(pd = ibv_alloc_pd(ctx));
	OK(ibv_query_port(ctx, 1, &port));
	find_gid();
	conf_nonblock(ctx->async_fd, true);
}

static inline void close_device(void)
{
	OK(ibv_dealloc_pd(pd));
	OK(ibv_close_device(ctx));
}

static inline struct ibv_xrcd *domain_of(int fd, int oflags)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = fd,
		.oflags = oflags,
	};

	return ibv_open_xrcd(ctx, &attr);
}

/* An SRQ with all that belongs to it. */
struct queue {
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	uint32_t number;
	struct conf_buf b;
};

static inline struct ibv_srq *srq_of(struct ibv_xrcd *xrcd, struct ibv_pd *of, struct ibv_cq *cq)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = 16, .max_sge = 2 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = of,
		.xrcd = xrcd,
		.cq = cq,
	};

	return ibv_create_srq_ex(ctx, &attr);
}

/* In a PD of its own. */
static inline struct queue queue(struct ibv_xrcd *xrcd, struct ibv_comp_channel *ch)
{
	struct queue q;

	MUST(q.pd = ibv_alloc_pd(ctx));
	MUST(q.cq = ibv_create_cq(ctx, 64, NULL, ch, 0));
	MUST(q.srq = srq_of(xrcd, q.pd, q.cq));
	OK(ibv_get_srq_num(q.srq, &q.number));
	q.b = conf_buf(q.pd, 1 << 20, CONF_RW);
	return q;
}

static inline void queue_free(struct queue *q)
{
	if (q->srq)
		OK(ibv_destroy_srq(q->srq));
	OK(ibv_destroy_cq(q->cq));
	conf_buf_free(&q->b);
	OK(ibv_dealloc_pd(q->pd));
}

static inline int queue_recv(struct queue *q, uint64_t wr_id, size_t off, size_t len)
{
	struct ibv_sge sge = conf_sge(&q->b, off, len);
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_srq_recv(q->srq, &wr, &bad);
}

/* A connection: a send QP and the receive QP it is connected to. */
struct link {
	struct ibv_cq *cq;
	struct ibv_qp *ini, *tgt;
	struct conf_buf b;
};

static inline struct ibv_qp *target(struct ibv_xrcd *xrcd)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
		.xrcd = xrcd,
	};

	return ibv_create_qp_ex(ctx, &attr);
}

static inline struct ibv_qp *initiator(struct ibv_cq *cq, bool ex)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_XRC_SEND,
		.send_cq = cq,
		.cap = { .max_send_wr = 16, .max_send_sge = 2 },
		.comp_mask = IBV_QP_INIT_ATTR_PD |
			     (ex ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0),
		.pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE,
	};

	return ibv_create_qp_ex(ctx, &attr);
}

static inline int to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = CONF_RW & ~IBV_ACCESS_LOCAL_WRITE,
	};

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			     IBV_QP_ACCESS_FLAGS);
}

static inline int to_rtr(struct ibv_qp *qp, uint32_t qpn, uint32_t psn)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = port.active_mtu,
		.dest_qp_num = qpn,
		.rq_psn = psn,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
		.ah_attr = {
			.is_global = 1,
			.port_num = 1,
			.grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 64 },
		},
	};
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		   IBV_QP_RQ_PSN;

	if (qp->qp_type != IBV_QPT_XRC_SEND)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	return ibv_modify_qp(qp, &attr, mask);
}

static inline int to_rts(struct ibv_qp *qp, uint32_t psn, uint8_t rnr_retry)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = psn,
		.timeout = 10,
		.retry_cnt = 3,
		.rnr_retry = rnr_retry,
		.max_rd_atomic = 4,
	};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT;

	if (qp->qp_type != IBV_QPT_XRC_RECV)
		mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	return ibv_modify_qp(qp, &attr, mask);
}

static inline void join(struct link *l, uint8_t rnr_retry)
{
	EQ(to_init(l->tgt), 0);
	EQ(to_init(l->ini), 0);
	EQ(to_rtr(l->tgt, l->ini->qp_num, 0x1111), 0);
	EQ(to_rtr(l->ini, l->tgt->qp_num, 0x2222), 0);
	EQ(to_rts(l->tgt, 0x2222, 0), 0);
	EQ(to_rts(l->ini, 0x1111, rnr_retry), 0);
}

static inline struct link linked(struct ibv_xrcd *xrcd, uint8_t rnr_retry, bool ex)
{
	struct link l;

	MUST(l.cq = ibv_create_cq(ctx, 64, NULL, NULL, 0));
	MUST(l.tgt = target(xrcd));
	MUST(l.ini = initiator(l.cq, ex));
	l.b = conf_buf(pd, 1 << 20, CONF_RW);
	join(&l, rnr_retry);
	return l;
}

static inline void link_free(struct link *l)
{
	OK(ibv_destroy_qp(l->ini));
	if (l->tgt)
		OK(ibv_destroy_qp(l->tgt));
	OK(ibv_destroy_cq(l->cq));
	conf_buf_free(&l->b);
}

/* Posts the first n bytes of the link's buffer. */
static inline void post(struct link *l, uint32_t srqn, uint64_t wr_id, int opcode, size_t n,
		 struct queue *to)
{
	struct ibv_sge sge = conf_sge(&l->b, 0, n);
	struct ibv_send_wr wr = conf_wr(wr_id, opcode, &sge, 1);

	if (to)
		wr = conf_rdma(wr_id, opcode, &sge, 1, to->b.p, to->b.mr->rkey);
	wr.imm_data = htonl(0xabcd);
	wr.qp_type.xrc.remote_srqn = srqn;
	OK(conf_post(l->ini, &wr));
}

static inline void exchange(struct link *l, struct queue *q, uint32_t seed, size_t n)
{
	struct ibv_wc wc;

	conf_pattern(l->b.p, n, seed);
	OK(queue_recv(q, seed, 4096, n));
	post(l, q->number, 1, IBV_WR_SEND, n, NULL);
	conf_wc_ok(l->cq, 1);
	conf_wc_get(q->cq, seed, IBV_WC_SUCCESS, &wc);
	EQ(wc.opcode, IBV_WC_RECV);
	EQ(wc.byte_len, n);
	EQ(wc.qp_num, l->tgt->qp_num);
	CHECK(conf_pattern_ok(q->b.p + 4096, n, seed));
}

/* The next async event of this kind must come, for this QP (NULL: any). */
static inline void event(struct ibv_context *c, enum ibv_event_type type, const void *of)
{
	struct ibv_async_event ev;

	for (;;) {
		WAIT_FOR(conf_readable(c->async_fd));
		OK(ibv_get_async_event(c, &ev));
		ibv_ack_async_event(&ev);
		if (ev.event_type == type)
			break;
	}
	CHECK(!of || ev.element.qp == of);
}

/* A request for an SRQ that is not there: the sender hears "invalid request", the
 * receiving QP fails and says so. */
static inline void refused(struct ibv_xrcd *xrcd, uint32_t srqn, int opcode, struct queue *to)
{
	struct link l = linked(xrcd, 7, false);

	post(&l, srqn, 1, opcode, 8, to);
	conf_wc_is(l.cq, 1, IBV_WC_REM_INV_REQ_ERR);
	event(ctx, IBV_EVENT_QP_ACCESS_ERR, l.tgt);
	conf_qp_wait(l.tgt, IBV_QPS_ERR);
	EQ(conf_qp_state(l.ini), IBV_QPS_ERR);
	link_free(&l);
}

#endif
