/* SPDX-License-Identifier: BSD-2-Clause */
#include "side.h"

struct side_device dev;

void open_device(void)
{
	dev.ctx = conf_open_device();
	MUST(dev.pd = ibv_alloc_pd(dev.ctx));
	if (conf_iwarp())
		SKIP("iWARP brings up QPs with the connection manager alone");
	dev.gid_index = conf_gid(dev.ctx, &dev.port, &dev.gid);
}

void close_device(void)
{
	OK(ibv_dealloc_pd(dev.pd));
	OK(ibv_close_device(dev.ctx));
}

static void make_cq(struct side *s, const struct side_opt *o)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = o->cqe ? o->cqe : 4 * o->wr,
		.channel = s->ch,
		.cq_context = s->ch,
		.wc_flags = o->wc_flags,
	};

	if (!o->wc_flags) {
		MUST(s->cq = ibv_create_cq(dev.ctx, (int)attr.cqe, s->ch, s->ch, 0));
		return;
	}
	s->cqx = ibv_create_cq_ex(dev.ctx, &attr);
	if (!s->cqx && (errno == EOPNOTSUPP || errno == ENOSYS))
		SKIP("no extended CQ with these fields");
	MUST(s->cqx);
	s->cq = ibv_cq_ex_to_cq(s->cqx);
}

static void make_qp(struct side *s, const struct side_opt *o, struct ibv_pd *pd)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = o->type,
		.send_cq = s->cq,
		.recv_cq = s->cq,
		.srq = s->srq,
		.sq_sig_all = o->sig_all,
		.cap = { o->wr, o->wr, o->sge, o->recv_sge ? o->recv_sge : 1, o->inline_data },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = o->send_ops,
	};

	if (!o->send_ops) {
		MUST(s->qp = ibv_create_qp(pd, (struct ibv_qp_init_attr *)&attr));
		return;
	}
	s->qp = ibv_create_qp_ex(dev.ctx, &attr);
	if (!s->qp && (errno == EOPNOTSUPP || errno == ENOSYS))
		SKIP("no extended QP with these operations");
	MUST(s->qp);
	MUST(s->qpx = ibv_qp_to_qp_ex(s->qp));
}

struct side side_with(uint32_t psn, struct side_opt o)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 16, .max_sge = 1 } };
	struct ibv_pd *pd = o.pd ? o.pd : dev.pd;
	struct side s = { .psn = psn };

	o.type = o.type ? o.type : IBV_QPT_RC;
	o.wr = o.wr ? o.wr : 16;
	o.sge = o.sge ? o.sge : 1;
	if (o.channel)
		MUST(s.ch = ibv_create_comp_channel(dev.ctx));
	if (o.srq)
		MUST(s.srq = ibv_create_srq(pd, &srq));
	make_cq(&s, &o);
	make_qp(&s, &o, pd);
	if (!o.bare)
		s.b = conf_buf(pd, 1 << 20, CONF_RW);
	return s;
}

struct side side(uint32_t psn)
{
	return side_with(psn, (struct side_opt){ 0 });
}

void side_free(struct side *s)
{
	OK(ibv_destroy_qp(s->qp));
	OK(ibv_destroy_cq(s->cq));
	if (s->srq)
		OK(ibv_destroy_srq(s->srq));
	if (s->ch)
		OK(ibv_destroy_comp_channel(s->ch));
	if (s->b.mr)
		conf_buf_free(&s->b);
}

int to_state(struct side *s, enum ibv_qp_state state)
{
	return conf_qp_to(s->qp, state);
}

int qp_to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = CONF_RW & ~IBV_ACCESS_LOCAL_WRITE,
	};

	if (qp->qp_type == IBV_QPT_UC)
		attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	return conf_qp_modify(qp, attr);
}

int qp_to_rtr(struct ibv_qp *qp, uint32_t qpn, uint32_t psn, const union ibv_gid *dgid)
{
	return conf_qp_modify(qp, (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = dev.port.active_mtu,
		.dest_qp_num = qpn,
		.rq_psn = psn,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
		.ah_attr = {
			.is_global = 1,
			.port_num = 1,
			.grh = { .dgid = *dgid, .sgid_index = dev.gid_index,
				 .hop_limit = 64 },
		},
	});
}

int qp_to_rts(struct ibv_qp *qp, uint32_t psn, uint8_t rnr_retry)
{
	return conf_qp_modify(qp, (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.sq_psn = psn,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = rnr_retry,
		.max_rd_atomic = 4,
	});
}

int to_init(struct side *s)
{
	return qp_to_init(s->qp);
}

int to_rtr(struct side *s, uint32_t qpn, uint32_t psn, const union ibv_gid *dgid)
{
	return qp_to_rtr(s->qp, qpn, psn, dgid);
}

int to_rts(struct side *s)
{
	return qp_to_rts(s->qp, s->psn, 7);
}

void join(struct side *x, struct side *y)
{
	EQ(to_init(x), 0);
	EQ(to_init(y), 0);
	EQ(to_rtr(x, y->qp->qp_num, y->psn, &dev.gid), 0);
	EQ(to_rtr(y, x->qp->qp_num, x->psn, &dev.gid), 0);
	EQ(to_rts(x), 0);
	EQ(to_rts(y), 0);
}

void side_alone(struct side *s)
{
	open_device();
	*s = side(1);
}

void side_alone_free(struct side *s)
{
	side_free(s);
	close_device();
}

void side_pair_with(struct side *x, struct side *y, struct side_opt ox,
		    struct side_opt oy)
{
	open_device();
	*x = side_with(0x111111, ox);
	*y = side_with(0x222222, oy);
	join(x, y);
}

void side_pair(struct side *x, struct side *y)
{
	side_pair_with(x, y, (struct side_opt){ 0 }, (struct side_opt){ 0 });
}

void side_pair_free(struct side *x, struct side *y)
{
	side_free(x);
	side_free(y);
	close_device();
}

void rarely_not_ready(struct side *s)
{
	struct ibv_qp_attr attr = { .min_rnr_timer = 31 }; /* 491.52 ms */

	EQ(ibv_modify_qp(s->qp, &attr, IBV_QP_MIN_RNR_TIMER), 0);
}

void exchange(struct side *x, struct side *y, uint32_t seed)
{
	struct ibv_sge sge = conf_sge(&x->b, 0, 100000);
	struct ibv_send_wr wr = conf_wr(1, IBV_WR_SEND, &sge, 1);
	struct ibv_wc wc;

	conf_pattern(x->b.p, 100000, seed);
	OK(conf_recv(y->qp, 2, &y->b, 200000, 100000));
	OK(conf_post(x->qp, &wr));
	conf_wc_ok(x->cq, 1);
	conf_wc_get(y->cq, 2, IBV_WC_SUCCESS, &wc);
	EQ(wc.byte_len, 100000);
	CHECK(conf_pattern_ok(y->b.p + 200000, 100000, seed));
	wr = conf_rdma(3, IBV_WR_RDMA_WRITE, &sge, 1, y->b.p + 400000, y->b.mr->rkey);
	OK(conf_post(x->qp, &wr));
	conf_wc_ok(x->cq, 3);
	CHECK(conf_pattern_ok(y->b.p + 400000, 100000, seed));
	sge = conf_sge(&x->b, 600000, 100000);
	wr = conf_rdma(4, IBV_WR_RDMA_READ, &sge, 1, y->b.p + 400000, y->b.mr->rkey);
	OK(conf_post(x->qp, &wr));
	conf_wc_ok(x->cq, 4);
	CHECK(conf_pattern_ok(x->b.p + 600000, 100000, seed));
}
