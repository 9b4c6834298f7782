/* SPDX-License-Identifier: BSD-2-Clause */
/* The dispatch tables of a context: verbs.h jumps through them inline. A slot
 * that is NULL makes the inline answer EOPNOTSUPP, which is what we want for all
 * we do not have; the header calls a few without looking, and those are named
 * here even though nothing can reach them. */
#include "dev/verbs.h"
#include "dev/xrc.h"

#include <errno.h>

static int op_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	return fork_dead() ? -1 : cq_poll(to_cq(cq), n, wc);
}

static int op_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	return fork_dead() ? ENODEV : -cq_req_notify(to_cq(cq), solicited_only != 0);
}

static int op_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
			struct ibv_send_wr **bad)
{
	if (fork_dead()) {
		*bad = wr;
		return ENODEV;
	}
	return -post_send(to_qp(qp), wr, bad);
}

static int op_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
			struct ibv_recv_wr **bad)
{
	if (fork_dead()) {
		*bad = wr;
		return ENODEV;
	}
	return -post_recv(to_qp(qp), wr, bad);
}

static int op_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
			    struct ibv_recv_wr **bad)
{
	if (fork_dead()) {
		*bad = wr;
		return ENODEV;
	}
	return -srq_post(to_srq(srq), wr, bad);
}

static int op_query_port(struct ibv_context *context, uint8_t port,
			 struct ibv_port_attr *attr, size_t size)
{
	(void)context;
	return fork_dead() ? ENODEV : -query_port(port, attr, size);
}

static int op_query_device_ex(struct ibv_context *context,
			      const struct ibv_query_device_ex_input *input,
			      struct ibv_device_attr_ex *attr, size_t size)
{
	(void)context;
	return fork_dead() ? ENODEV : -query_device_ex(input, attr, size);
}

/* For calls that return a pointer. */
static bool refused(int ret)
{
	if (ret)
		errno = -ret;
	return ret != 0;
}

static struct ibv_cq_ex *op_create_cq_ex(struct ibv_context *context,
					 struct ibv_cq_init_attr_ex *attr)
{
	struct dev_cq *cq = NULL;
	int ret = fork_dead() ? -ENODEV : cq_create_ex(to_ctx(context), attr, &cq);

	return refused(ret) ? NULL : &cq->ex;
}

static struct ibv_qp *op_create_qp_ex(struct ibv_context *context,
				      struct ibv_qp_init_attr_ex *attr)
{
	struct dev_qp *qp = NULL;
	int ret = fork_dead() ? -ENODEV : qp_create_ex(to_ctx(context), attr, &qp);

	return refused(ret) ? NULL : &qp->qp;
}

static int op_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr)
{
	return fork_dead() ? ENODEV : -cq_modify(to_cq(cq), attr);
}

static struct ibv_td *op_alloc_td(struct ibv_context *context,
				  struct ibv_td_init_attr *attr)
{
	struct dev_td *td = NULL;
	int ret = fork_dead() ? -ENODEV : td_alloc(to_ctx(context), attr, &td);

	return refused(ret) ? NULL : &td->td;
}

static int op_dealloc_td(struct ibv_td *td)
{
	return fork_dead() ? 0 : -td_dealloc(container_of(td, struct dev_td, td));
}

static struct ibv_pd *op_alloc_parent_domain(struct ibv_context *context,
					     struct ibv_parent_domain_init_attr *attr)
{
	struct dev_pd *pd = NULL;
	int ret = fork_dead() ? -ENODEV : pd_alloc_parent(to_ctx(context), attr, &pd);

	return refused(ret) ? NULL : &pd->pd;
}

static int op_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values)
{
	(void)context;
	return fork_dead() ? ENODEV : -query_rt_values(values);
}

static struct ibv_mw *op_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct dev_mw *mw = NULL;
	int ret = fork_dead() ? -ENODEV : mw_alloc(to_pd(pd), type, &mw);

	return refused(ret) ? NULL : &mw->mw;
}

static int op_dealloc_mw(struct ibv_mw *mw)
{
	if (!fork_dead())
		mw_dealloc(to_mw(mw));
	return 0;
}

static int op_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	return fork_dead() ? ENODEV : -mw_bind(to_qp(qp), to_mw(mw), bind);
}

static struct ibv_mr *op_alloc_null_mr(struct ibv_pd *pd)
{
	struct dev_mr *mr = NULL;
	int ret = fork_dead() ? -ENODEV : mr_alloc_null(to_pd(pd), &mr);

	return refused(ret) ? NULL : &mr->mr;
}

static int op_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice,
			uint32_t flags, struct ibv_sge *sges, uint32_t n)
{
	return fork_dead() ? ENODEV : -mr_advise(to_pd(pd), advice, flags, sges, n);
}

/* ---- XRC ----------------------------------------------------------------------- */

static struct ibv_xrcd *op_open_xrcd(struct ibv_context *context,
				     struct ibv_xrcd_init_attr *attr)
{
	struct dev_xrcd *x = NULL;
	int ret = fork_dead() ? -ENODEV : xrcd_open(to_ctx(context), attr, &x);

	return refused(ret) ? NULL : &x->xrcd;
}

static int op_close_xrcd(struct ibv_xrcd *xrcd)
{
	return fork_dead() ? 0 : -xrcd_close(to_xrcd(xrcd));
}

static struct ibv_srq *op_create_srq_ex(struct ibv_context *context,
					struct ibv_srq_init_attr_ex *attr)
{
	struct dev_srq *srq = NULL;
	int ret = fork_dead() ? -ENODEV : srq_create_ex(to_ctx(context), attr, &srq);

	return refused(ret) ? NULL : &srq->srq;
}

static int op_get_srq_num(struct ibv_srq *srq, uint32_t *number)
{
	return fork_dead() ? ENODEV : -srq_number(to_srq(srq), number);
}

static struct ibv_qp *op_open_qp(struct ibv_context *context,
				 struct ibv_qp_open_attr *attr)
{
	struct dev_qp *qp = NULL;
	int ret = fork_dead() ? -ENODEV : xrc_qp_open(to_ctx(context), attr, &qp);

	return refused(ret) ? NULL : &qp->qp;
}

void ops_fill(struct verbs_context *v)
{
	struct ibv_context_ops *ops = &v->context.ops;

	ops->poll_cq = op_poll_cq;
	ops->req_notify_cq = op_req_notify_cq;
	ops->post_send = op_post_send;
	ops->post_recv = op_post_recv;
	ops->post_srq_recv = op_post_srq_recv;
	ops->alloc_mw = op_alloc_mw;
	ops->bind_mw = op_bind_mw;
	ops->dealloc_mw = op_dealloc_mw;
	v->query_port = op_query_port;
	v->query_device_ex = op_query_device_ex;
	v->create_cq_ex = op_create_cq_ex;
	v->create_qp_ex = op_create_qp_ex;
	v->modify_cq = op_modify_cq;
	v->alloc_td = op_alloc_td;
	v->dealloc_td = op_dealloc_td;
	v->alloc_parent_domain = op_alloc_parent_domain;
	v->query_rt_values = op_query_rt_values;
	v->alloc_null_mr = op_alloc_null_mr;
	v->advise_mr = op_advise_mr;
	v->create_srq_ex = op_create_srq_ex;
	v->get_srq_num = op_get_srq_num;
	v->open_xrcd = op_open_xrcd;
	v->close_xrcd = op_close_xrcd;
	v->open_qp = op_open_qp;
}
