/* SPDX-License-Identifier: BSD-2-Clause */
/* QPs and their states; links without the connection manager. */
#include "stress.h"

#include <string.h>

void qp_attr_fill(struct ep *e, struct ibv_qp_init_attr *a)
{
	const struct side_cfg *c = my_cfg(e);
	struct side *s = e->side;

	*a = (struct ibv_qp_init_attr){
		.qp_context = e,
		.send_cq = s->cq[c->send_cq].cq,
		.recv_cq = s->cq[c->recv_cq].cq,
		.srq = c->srq >= 0 ? s->srq[c->srq].srq : NULL,
		.qp_type = e->c.ud ? IBV_QPT_UD : e->c.uc ? IBV_QPT_UC : IBV_QPT_RC,
		.sq_sig_all = c->sig_all,
		.cap = { .max_send_wr = c->max_send_wr,
			 .max_recv_wr = c->max_recv_wr,
			 .max_send_sge = c->send_sge,
			 .max_recv_sge = c->recv_sge,
			 .max_inline_data = c->max_inline },
	};
}

void qp_attr_ex_fill(struct ep *e, struct ibv_qp_init_attr_ex *x)
{
	struct ibv_qp_init_attr a;

	qp_attr_fill(e, &a);
	*x = (struct ibv_qp_init_attr_ex){
		.qp_context = a.qp_context,
		.send_cq = a.send_cq,
		.recv_cq = a.recv_cq,
		.srq = a.srq,
		.cap = a.cap,
		.qp_type = a.qp_type,
		.sq_sig_all = a.sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = e->side->pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
				  IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_WRITE |
				  IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_LOCAL_INV |
				  IBV_QP_EX_WITH_BIND_MW,
	};
	if (e->c.ud)
		x->send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
	if (!e->c.uc)
		x->send_ops_flags |= IBV_QP_EX_WITH_RDMA_READ |
				     IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
				     IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
				     IBV_QP_EX_WITH_ATOMIC_WRITE;
}

/* One to send, one to receive. */
static int xrc_create(struct ep *e)
{
	const struct side_cfg *c = my_cfg(e);
	struct side *s = e->side;
	struct ibv_qp_init_attr_ex out = {
		.qp_context = e,
		.qp_type = IBV_QPT_XRC_SEND,
		.send_cq = s->cq[c->send_cq].cq,
		.cap = { .max_send_wr = c->max_send_wr, .max_send_sge = c->send_sge,
			 .max_inline_data = c->max_inline },
		.sq_sig_all = c->sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = s->pd,
	};
	struct ibv_qp_init_attr_ex in = {
		.qp_context = e,
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
		.xrcd = s->xrcd,
	};

	e->qp = ibv_create_qp_ex(s->ctx, &out);
	if (!e->qp)
		return errno;
	e->rqp = ibv_create_qp_ex(s->ctx, &in);
	return e->rqp ? 0 : errno;
}

int raw_create(struct ep *e)
{
	struct ibv_qp_init_attr attr;
	struct ibv_qp_init_attr_ex ex;

	if (e->c.ud)
		ud_address_make(e);
	if (e->qp)
		return 0; /* kept */
	if (e->c.xrc)
		return xrc_create(e);
	if (my_cfg(e)->ex) {
		qp_attr_ex_fill(e, &ex);
		e->qp = ibv_create_qp_ex(e->side->ctx, &ex);
	} else {
		qp_attr_fill(e, &attr);
		e->qp = ibv_create_qp(e->side->pd, &attr);
	}
	return e->qp ? 0 : errno;
}

int qp_set_state(struct ibv_qp *qp, enum ibv_qp_state st)
{
	struct ibv_qp_attr attr = { .qp_state = st };

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

static int to_init(struct ep *e, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};

	if (e->c.ud) {
		attr.qkey = ud_qkey(e);
		return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
						IBV_QP_PORT | IBV_QP_QKEY);
	}
	if (qp->qp_type != IBV_QPT_UC)
		attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				     IBV_QP_ACCESS_FLAGS);
}

int raw_init(struct ep *e)
{
	int ret = to_init(e, e->qp);

	return ret || !e->rqp ? ret : to_init(e, e->rqp);
}

static int to_rtr(struct ep *e, struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = e->side->port.active_mtu,
		.dest_qp_num = peer,
		.rq_psn = end_peer(e)->psn,
		.max_dest_rd_atomic = (uint8_t)e->c.s[!e->side->id].rd_atomic,
		.min_rnr_timer = (uint8_t)e->c.rnr_timer,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .sgid_index = (uint8_t)e->side->gid_index,
				      .hop_limit = 64 } },
	};
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

	memcpy(&attr.ah_attr.grh.dgid, sh->side[!e->side->id].gid, 16);
	if (e->c.ud)
		return qp_set_state(qp, IBV_QPS_RTR);
	if (qp->qp_type != IBV_QPT_UC && qp->qp_type != IBV_QPT_XRC_SEND)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	return ibv_modify_qp(qp, &attr, mask);
}

static int to_rts(struct ep *e, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = my_cfg(e)->psn,
		.timeout = (uint8_t)e->c.timeout,
		.retry_cnt = (uint8_t)e->c.retry,
		.rnr_retry = (uint8_t)e->c.rnr_retry,
		.max_rd_atomic = (uint8_t)my_cfg(e)->rd_atomic,
	};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (e->c.ud)
		return ibv_modify_qp(qp, &attr, mask);
	if (qp->qp_type != IBV_QPT_UC)
		mask |= IBV_QP_TIMEOUT;
	if (qp->qp_type != IBV_QPT_UC && qp->qp_type != IBV_QPT_XRC_RECV)
		mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	return ibv_modify_qp(qp, &attr, mask);
}

int raw_connect(struct ep *e)
{
	int ret = to_rtr(e, e->qp, end_peer(e)->rqpn);

	if (!ret && e->rqp)
		ret = to_rtr(e, e->rqp, end_peer(e)->qpn);
	if (!ret && e->rqp)
		ret = to_rts(e, e->rqp);
	return ret ? ret : to_rts(e, e->qp);
}
