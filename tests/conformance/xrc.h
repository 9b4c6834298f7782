/* SPDX-License-Identifier: BSD-2-Clause */
/* Fixture of the two programs about XRC: a domain xrcd, an SRQ in it (q) and a connection
 * to it (l), all in the device of side.h. Connections are made by GID and QP number.
 * Cases are skipped where the device has no XRC. Each call fails the case when it cannot
 * be done; those that return a pointer or an int return what the verb did. */
#ifndef ANYRDMA_TESTS_XRC_H
#define ANYRDMA_TESTS_XRC_H

#include "side.h"

/* An SRQ in a PD of its own, its CQ and 1 MiB of memory for its receives. */
struct queue {
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_srq *srq; /* NULL: the case has destroyed it */
	uint32_t number;
	struct conf_buf b;
};

/* A connection: a send QP, the receive QP it is connected to, and 1 MiB to send from. */
struct link {
	struct ibv_cq *cq;	 /* the send QP's */
	struct ibv_qp *ini, *tgt; /* tgt NULL: the case has destroyed it */
	struct conf_buf b;
};

static struct ibv_xrcd *xrcd;
static struct queue q;
static struct link l;

static inline struct ibv_xrcd *domain_of(int fd, int oflags)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = fd,
		.oflags = oflags,
	};

	return ibv_open_xrcd(dev.ctx, &attr);
}

/* ---- SRQs -------------------------------------------------------------------------- */

static inline struct queue queue_of(struct ibv_xrcd *domain, struct ibv_comp_channel *ch)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = 16, .max_sge = 2 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.xrcd = domain,
	};
	struct queue n;

	MUST(n.pd = attr.pd = ibv_alloc_pd(dev.ctx));
	MUST(n.cq = attr.cq = ibv_create_cq(dev.ctx, 64, NULL, ch, 0));
	MUST(n.srq = ibv_create_srq_ex(dev.ctx, &attr));
	OK(ibv_get_srq_num(n.srq, &n.number));
	n.b = conf_buf(n.pd, 1 << 20, CONF_RW);
	return n;
}

static inline struct queue queue(void)
{
	return queue_of(xrcd, NULL);
}

/* Gives back what is there. */
static inline void queue_free(struct queue *o)
{
	if (o->srq)
		OK(ibv_destroy_srq(o->srq));
	if (o->cq)
		OK(ibv_destroy_cq(o->cq));
	conf_buf_free(&o->b);
	if (o->pd)
		OK(ibv_dealloc_pd(o->pd));
	memset(o, 0, sizeof(*o));
}

static inline void queue_recv(struct queue *o, uint64_t wr_id, size_t off, size_t len)
{
	OK(conf_srq_recv(o->srq, wr_id, &o->b, off, len));
}

/* ---- connections ------------------------------------------------------------------- */

static inline struct ibv_qp *target(struct ibv_xrcd *domain)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
		.xrcd = domain,
	};

	return ibv_create_qp_ex(dev.ctx, &attr);
}

/* builders: it has the ibv_wr_*() of sends and writes. */
static inline struct ibv_qp *initiator(struct ibv_cq *cq, bool builders)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_XRC_SEND,
		.send_cq = cq,
		.cap = { .max_send_wr = 16, .max_send_sge = 2 },
		.comp_mask = IBV_QP_INIT_ATTR_PD |
			     (builders ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0),
		.pd = dev.pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE,
	};

	return ibv_create_qp_ex(dev.ctx, &attr);
}

static inline struct link linked_in(struct ibv_xrcd *domain, uint8_t rnr_retry,
				    bool builders)
{
	struct link n;

	MUST(n.cq = ibv_create_cq(dev.ctx, 64, NULL, NULL, 0));
	MUST(n.tgt = target(domain));
	MUST(n.ini = initiator(n.cq, builders));
	n.b = conf_buf(dev.pd, 1 << 20, CONF_RW);
	EQ(qp_to_init(n.tgt), 0);
	EQ(qp_to_init(n.ini), 0);
	EQ(qp_to_rtr(n.tgt, n.ini->qp_num, 0x1111, &dev.gid), 0);
	EQ(qp_to_rtr(n.ini, n.tgt->qp_num, 0x2222, &dev.gid), 0);
	EQ(qp_to_rts(n.tgt, 0x2222, 0), 0);
	EQ(qp_to_rts(n.ini, 0x1111, rnr_retry), 0);
	return n;
}

static inline struct link linked(void)
{
	return linked_in(xrcd, 7, false);
}

/* Gives back what is there. */
static inline void link_free(struct link *o)
{
	if (o->ini)
		OK(ibv_destroy_qp(o->ini));
	if (o->tgt)
		OK(ibv_destroy_qp(o->tgt));
	if (o->cq)
		OK(ibv_destroy_cq(o->cq));
	conf_buf_free(&o->b);
	memset(o, 0, sizeof(*o));
}

/* Posts a request for the SRQ of this number, from the first n bytes of the connection's
 * buffer; to the start of the buffer of `to`, if the operation needs memory. */
static inline void post(struct link *o, uint32_t srqn, uint64_t wr_id, int opcode,
			size_t n, struct queue *to)
{
	struct ibv_sge sge = conf_sge(&o->b, 0, n);
	struct ibv_send_wr wr = conf_wr(wr_id, opcode, &sge, 1);

	if (to)
		wr = conf_rdma(wr_id, opcode, &sge, 1, to->b.p, to->b.mr->rkey);
	wr.imm_data = htonl(0xabcd);
	wr.qp_type.xrc.remote_srqn = srqn;
	OK(conf_post(o->ini, &wr));
}

static inline void post_send(struct link *o, const struct queue *to, uint64_t wr_id,
			     size_t n)
{
	post(o, to->number, wr_id, IBV_WR_SEND, n, NULL);
}

/* A send of n bytes arrives, whole and from this connection. */
static inline void arrives(struct link *from, struct queue *to, uint32_t seed, size_t n)
{
	struct ibv_wc wc;

	conf_pattern(from->b.p, n, seed);
	queue_recv(to, seed, 4096, n);
	post_send(from, to, 1, n);
	conf_wc_ok(from->cq, 1);
	conf_wc_get(to->cq, seed, IBV_WC_SUCCESS, &wc);
	EQ(wc.opcode, IBV_WC_RECV);
	EQ(wc.byte_len, n);
	EQ(wc.qp_num, from->tgt->qp_num);
	CHECK(conf_pattern_ok(to->b.p + 4096, n, seed));
}

/* A request for an SRQ that is not there: the sender hears "invalid request", the
 * receiving QP fails and says so. */
static inline void refused(struct ibv_xrcd *domain, uint32_t srqn, int opcode,
			   struct queue *to)
{
	struct link o = linked_in(domain, 7, false);

	post(&o, srqn, 1, opcode, 8, to);
	conf_wc_is(o.cq, 1, IBV_WC_REM_INV_REQ_ERR);
	conf_async(dev.ctx, IBV_EVENT_QP_ACCESS_ERR, o.tgt);
	conf_qp_wait(o.tgt, IBV_QPS_ERR);
	EQ(conf_qp_state(o.ini), IBV_QPS_ERR);
	link_free(&o);
}

/* ---- start and stop ---------------------------------------------------------------- */

/* The device alone. */
static inline void start_device(void)
{
	struct ibv_device_attr attr;

	open_device();
	OK(ibv_query_device(dev.ctx, &attr));
	if (!(attr.device_cap_flags & IBV_DEVICE_XRC))
		SKIP("the device has no XRC");
}

/* The device and the domain of this file; -1: a domain without a file. */
static inline void start_domain(int fd)
{
	start_device();
	MUST(xrcd = domain_of(fd, O_CREAT));
}

/* Everything. */
static inline void start(void)
{
	start_domain(-1);
	q = queue();
	l = linked();
}

/* The end of each of the three; what the case has freed itself is passed over. */
static inline void stop(void)
{
	link_free(&l);
	queue_free(&q);
	if (xrcd)
		OK(ibv_close_xrcd(xrcd));
	xrcd = NULL;
	close_device();
}

#endif
