/* SPDX-License-Identifier: BSD-2-Clause */
/* The verbs that are inline functions of verbs.h: it calls them through pointers in a
 * context. A pointer that is NULL makes verbs.h answer EOPNOTSUPP, which is right for all
 * that this device does not have. */
#include "dev/dev.h"
#include "dev/xrc.h"
#include "verbs/edge.h"

/* ---- posting and polling ------------------------------------------------- */

static int inline_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	const struct dev_ops *ops = EDGE_OPS(cq);

	return ops ? ops->poll_cq(to_cq(cq), n, wc) : -ENODEV;
}

static int inline_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	const struct dev_ops *ops = EDGE_OPS(cq);

	return edge_errno(ops ? ops->req_notify_cq(to_cq(cq), solicited_only != 0) :
				-ENODEV);
}

static int inline_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
			    struct ibv_send_wr **bad)
{
	const struct dev_ops *ops = EDGE_OPS(qp);

	if (!ops) {
		*bad = wr;
		return edge_errno(-ENODEV);
	}
	return edge_errno(ops->post_send(to_qp(qp), wr, bad));
}

static int inline_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
			    struct ibv_recv_wr **bad)
{
	const struct dev_ops *ops = EDGE_OPS(qp);

	if (!ops) {
		*bad = wr;
		return edge_errno(-ENODEV);
	}
	return edge_errno(ops->post_recv(to_qp(qp), wr, bad));
}

static int inline_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
				struct ibv_recv_wr **bad)
{
	const struct dev_ops *ops = EDGE_OPS(srq);

	if (!ops) {
		*bad = wr;
		return edge_errno(-ENODEV);
	}
	return edge_errno(ops->post_srq_recv(to_srq(srq), wr, bad));
}

/* ---- what the device says of itself -------------------------------------- */

static int inline_query_port(struct ibv_context *context, uint8_t port,
			     struct ibv_port_attr *attr, size_t size)
{
	NO_CANCEL;
	const struct dev_ops *ops = edge_ops(context);

	return edge_errno(ops ? ops->query_port(to_ctx(context), port, attr, size) :
				-ENODEV);
}

static int inline_query_device_ex(struct ibv_context *context,
				  const struct ibv_query_device_ex_input *input,
				  struct ibv_device_attr_ex *attr, size_t size)
{
	NO_CANCEL;
	const struct dev_ops *ops = edge_ops(context);

	return edge_errno(ops ? ops->query_device_ex(to_ctx(context), input, attr, size) :
				-ENODEV);
}

static int inline_query_rt_values(struct ibv_context *context,
				  struct ibv_values_ex *values)
{
	NO_CANCEL;
	const struct dev_ops *ops = edge_ops(context);

	return edge_errno(ops ? ops->query_rt_values(to_ctx(context), values) : -ENODEV);
}

/* ---- domains ------------------------------------------------------------- */

static struct ibv_td *inline_alloc_td(struct ibv_context *context,
				      struct ibv_td_init_attr *attr)
{
	NO_CANCEL;
	const struct dev_ops *ops = edge_ops(context);
	struct dev_td *td = NULL;
	int ret = ops ? ops->alloc_td(to_ctx(context), attr, &td) : -ENODEV;

	return edge_failed(ret) ? NULL : &td->td;
}

static int inline_dealloc_td(struct ibv_td *td)
{
	NO_CANCEL;
	const struct dev_ops *ops = EDGE_OPS(td);
	int ret;

	if (!ops)
		return 0;
	ret = edge_destroy(td, td);
	return edge_errno(ret ? ret : ops->dealloc_td(to_td(td)));
}

static struct ibv_pd *inline_alloc_parent_domain(struct ibv_context *context,
						 struct ibv_parent_domain_init_attr *attr)
{
	NO_CANCEL;
	const struct dev_ops *ops = edge_ops(context);
	struct dev_pd *pd = NULL;
	int ret = ops ? 0 : -ENODEV;

	if (!ret)
		ret = edge_check_old(EDGE_OLD(attr->pd) || EDGE_OLD(attr->td));
	if (!ret)
		ret = ops->alloc_parent_domain(to_ctx(context), attr, &pd);
	return edge_failed(ret) ? NULL : &pd->pd;
}

static struct ibv_xrcd *inline_open_xrcd(struct ibv_context *context,
					 struct ibv_xrcd_init_attr *attr)
{
	NO_CANCEL;
	const struct dev_ops *ops = edge_ops(context);
	struct dev_xrcd *xrcd = NULL;
	int ret = ops ? ops->open_xrcd(to_ctx(context), attr, &xrcd) : -ENODEV;

	return edge_failed(ret) ? NULL : &xrcd->xrcd;
}

static int inline_close_xrcd(struct ibv_xrcd *xrcd)
{
	NO_CANCEL;
	const struct dev_ops *ops = EDGE_OPS(xrcd);
	int ret;

	if (!ops)
		return 0;
	ret = edge_destroy(xrcd, xrcd);
	return edge_errno(ret ? ret : ops->close_xrcd(to_xrcd(xrcd)));
}

/* ---- memory -------------------------------------------------------------- */

static struct ibv_mr *inline_alloc_null_mr(struct ibv_pd *pd)
{
	NO_CANCEL;
	const struct dev_ops *ops = EDGE_OPS(pd);
	struct dev_mr *mr = NULL;
	int ret = edge_object(ops, pd, pd);

	if (!ret)
		ret = ops->alloc_null_mr(to_pd(pd), &mr);
	return edge_failed(ret) ? NULL : &mr->mr;
}

static int inline_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice,
			    uint32_t flags, struct ibv_sge *sges, uint32_t n)
{
	NO_CANCEL;
	const struct dev_ops *ops = EDGE_OPS(pd);
	int ret = edge_object(ops, pd, pd);

	return edge_errno(ret ? ret : ops->advise_mr(to_pd(pd), advice, flags, sges, n));
}

static struct ibv_mw *inline_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	NO_CANCEL;
	const struct dev_ops *ops = EDGE_OPS(pd);
	struct dev_mw *mw = NULL;
	int ret = edge_object(ops, pd, pd);

	if (!ret)
		ret = ops->alloc_mw(to_pd(pd), type, &mw);
	return edge_failed(ret) ? NULL : &mw->mw;
}

static int inline_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	NO_CANCEL;
	const struct dev_ops *ops = EDGE_OPS(qp);

	if (!ops || edge_check_old(EDGE_OLD(mw) || EDGE_OLD(bind->bind_info.mr)))
		return edge_errno(-ENODEV);
	return edge_errno(ops->bind_mw(to_qp(qp), to_mw(mw), bind));
}

static int inline_dealloc_mw(struct ibv_mw *mw)
{
	NO_CANCEL;
	const struct dev_ops *ops = EDGE_OPS(mw);
	int ret;

	if (!ops)
		return 0;
	ret = edge_destroy(mw, mw);
	return edge_errno(ret ? ret : ops->dealloc_mw(to_mw(mw)));
}

/* ---- queues -------------------------------------------------------------- */

static struct ibv_cq_ex *inline_create_cq_ex(struct ibv_context *context,
					     struct ibv_cq_init_attr_ex *attr)
{
	NO_CANCEL;
	const struct dev_ops *ops = edge_ops(context);
	struct dev_cq *cq = NULL;
	int ret = ops ? edge_check_old(EDGE_OLD(attr->channel)) : -ENODEV;

	if (!ret)
		ret = ops->create_cq_ex(to_ctx(context), attr, &cq);
	if (edge_failed(ret))
		return NULL;
	cq_ex_fill(&cq->ex, attr->wc_flags, ops->read);
	return &cq->ex;
}

static int inline_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr)
{
	NO_CANCEL;
	const struct dev_ops *ops = EDGE_OPS(cq);
	int ret = edge_object(ops, cq, cq);

	return edge_errno(ret ? ret : ops->modify_cq(to_cq(cq), attr));
}

/* Members that comp_mask does not name may be anything. */
static bool srq_attr_old(const struct ibv_srq_init_attr_ex *a)
{
	return ((a->comp_mask & IBV_SRQ_INIT_ATTR_PD) && EDGE_OLD(a->pd)) ||
	       ((a->comp_mask & IBV_SRQ_INIT_ATTR_XRCD) && EDGE_OLD(a->xrcd)) ||
	       ((a->comp_mask & IBV_SRQ_INIT_ATTR_CQ) && EDGE_OLD(a->cq));
}

static bool qp_attr_old(const struct ibv_qp_init_attr_ex *a)
{
	return ((a->comp_mask & IBV_QP_INIT_ATTR_PD) && EDGE_OLD(a->pd)) ||
	       ((a->comp_mask & IBV_QP_INIT_ATTR_XRCD) && EDGE_OLD(a->xrcd)) ||
	       (a->qp_type != IBV_QPT_XRC_RECV &&
		(EDGE_OLD(a->send_cq) || EDGE_OLD(a->recv_cq) || EDGE_OLD(a->srq)));
}

static struct ibv_srq *inline_create_srq_ex(struct ibv_context *context,
					    struct ibv_srq_init_attr_ex *attr)
{
	NO_CANCEL;
	const struct dev_ops *ops = edge_ops(context);
	struct dev_srq *srq = NULL;
	int ret = ops ? edge_check_old(srq_attr_old(attr)) : -ENODEV;

	if (!ret)
		ret = ops->create_srq_ex(to_ctx(context), attr, &srq);
	return edge_failed(ret) ? NULL : &srq->srq;
}

static int inline_get_srq_num(struct ibv_srq *srq, uint32_t *number)
{
	NO_CANCEL;
	const struct dev_ops *ops = EDGE_OPS(srq);

	return edge_errno(ops ? ops->get_srq_num(to_srq(srq), number) : -ENODEV);
}

static struct ibv_qp *inline_create_qp_ex(struct ibv_context *context,
					  struct ibv_qp_init_attr_ex *attr)
{
	NO_CANCEL;
	const struct dev_ops *ops = edge_ops(context);
	struct dev_qp *qp = NULL;
	int ret = ops ? edge_check_old(qp_attr_old(attr)) : -ENODEV;

	if (!ret)
		ret = ops->create_qp_ex(to_ctx(context), attr, &qp);
	if (edge_failed(ret))
		return NULL;
	if (qp->is_ex)
		qp_ex_fill(&qp->ex, ops->build);
	return &qp->qp;
}

static struct ibv_qp *inline_open_qp(struct ibv_context *context,
				     struct ibv_qp_open_attr *attr)
{
	NO_CANCEL;
	const struct dev_ops *ops = edge_ops(context);
	struct dev_qp *qp = NULL;
	int ret = ops ? edge_check_old((attr->comp_mask & IBV_QP_OPEN_ATTR_XRCD) &&
				       EDGE_OLD(attr->xrcd)) : -ENODEV;

	if (!ret)
		ret = ops->open_qp(to_ctx(context), attr, &qp);
	return edge_failed(ret) ? NULL : &qp->qp;
}

void inline_fill(struct verbs_context *v)
{
	struct ibv_context_ops *ops = &v->context.ops;

	ops->poll_cq = inline_poll_cq;
	ops->req_notify_cq = inline_req_notify_cq;
	ops->post_send = inline_post_send;
	ops->post_recv = inline_post_recv;
	ops->post_srq_recv = inline_post_srq_recv;
	ops->alloc_mw = inline_alloc_mw;
	ops->bind_mw = inline_bind_mw;
	ops->dealloc_mw = inline_dealloc_mw;
	v->query_port = inline_query_port;
	v->query_device_ex = inline_query_device_ex;
	v->query_rt_values = inline_query_rt_values;
	v->alloc_td = inline_alloc_td;
	v->dealloc_td = inline_dealloc_td;
	v->alloc_parent_domain = inline_alloc_parent_domain;
	v->open_xrcd = inline_open_xrcd;
	v->close_xrcd = inline_close_xrcd;
	v->alloc_null_mr = inline_alloc_null_mr;
	v->advise_mr = inline_advise_mr;
	v->create_cq_ex = inline_create_cq_ex;
	v->modify_cq = inline_modify_cq;
	v->create_srq_ex = inline_create_srq_ex;
	v->get_srq_num = inline_get_srq_num;
	v->create_qp_ex = inline_create_qp_ex;
	v->open_qp = inline_open_qp;
}
