/* SPDX-License-Identifier: BSD-2-Clause */
/* The ibv_wr_*() verbs: verbs.h calls them through pointers in an extended QP. In a
 * forked child nothing can be built, as no wr_start comes to the device. */
#include "dev/dev.h"
#include "verbs/edge.h"

static struct dev_qp *ex_qp(struct ibv_qp_ex *qp)
{
	return container_of(qp, struct dev_qp, ex);
}

static void ex_wr_start(struct ibv_qp_ex *qp)
{
	const struct dev_ops *ops = EDGE_OPS(&qp->qp_base);

	if (ops)
		ops->wr_start(ex_qp(qp));
}

static int ex_wr_complete(struct ibv_qp_ex *qp)
{
	const struct dev_ops *ops = EDGE_OPS(&qp->qp_base);

	return edge_errno(ops ? ops->wr_complete(ex_qp(qp)) : -ENODEV);
}

static void ex_wr_abort(struct ibv_qp_ex *qp)
{
	const struct dev_ops *ops = EDGE_OPS(&qp->qp_base);

	if (ops)
		ops->wr_abort(ex_qp(qp));
}

void qp_ex_fill(struct ibv_qp_ex *qp, const struct dev_build_ops *build)
{
	qp->wr_start = ex_wr_start;
	qp->wr_complete = ex_wr_complete;
	qp->wr_abort = ex_wr_abort;
	qp->wr_send = build->wr_send;
	qp->wr_send_imm = build->wr_send_imm;
	qp->wr_send_inv = build->wr_send_inv;
	qp->wr_send_tso = build->wr_send_tso;
	qp->wr_rdma_write = build->wr_rdma_write;
	qp->wr_rdma_write_imm = build->wr_rdma_write_imm;
	qp->wr_rdma_read = build->wr_rdma_read;
	qp->wr_atomic_cmp_swp = build->wr_atomic_cmp_swp;
	qp->wr_atomic_fetch_add = build->wr_atomic_fetch_add;
	qp->wr_atomic_write = build->wr_atomic_write;
	qp->wr_bind_mw = build->wr_bind_mw;
	qp->wr_local_inv = build->wr_local_inv;
	qp->wr_set_sge = build->wr_set_sge;
	qp->wr_set_sge_list = build->wr_set_sge_list;
	qp->wr_set_inline_data = build->wr_set_inline_data;
	qp->wr_set_inline_data_list = build->wr_set_inline_data_list;
	qp->wr_set_ud_addr = build->wr_set_ud_addr;
	qp->wr_set_xrc_srqn = build->wr_set_xrc_srqn;
}
