/* SPDX-License-Identifier: BSD-2-Clause */
/* The exported verbs on objects: each calls its member of the table (verbs/edge.h). */
#include "dev/verbs.h"
#include "verbs/edge.h"

#include <stdlib.h>
#include <unistd.h>

/* Macros of the header over functions of the same name. */
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

/* ---- devices ---------------------------------------------------------------- */

EXPORT struct ibv_device **ibv_get_device_list(int *num_devices)
{
	NO_CANCEL;
	const struct dev_ops *ops = dev_ops();
	struct ibv_device **list = NULL;
	int n = 0;

	if (num_devices)
		*num_devices = 0;
	if (edge_failed(ops ? ops->get_device_list(&list) : -ENODEV))
		return NULL;
	while (list[n])
		n++;
	if (num_devices)
		*num_devices = n;
	return list;
}

EXPORT void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

EXPORT __be64 ibv_get_device_guid(struct ibv_device *device)
{
	int number = device_number(device);

	return number < 0 ? 0 : device_guid((unsigned)number);
}

/* The index is the kernel's number of a device; ours have none. */
EXPORT int ibv_get_device_index(struct ibv_device *device)
{
	(void)device;
	return -1;
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	NO_CANCEL;
	const struct dev_ops *ops = dev_ops();
	struct dev_ctx *ctx = NULL;
	int ret = edge_check(ops, device);

	if (!ret)
		ret = ops->open_device(device, &ctx);
	if (edge_failed(ret))
		return NULL;
	inline_fill(&ctx->v);
	return &ctx->v.context;
}

EXPORT int ibv_close_device(struct ibv_context *context)
{
	NO_CANCEL;
	const struct dev_ops *ops = edge_ops(context);

	if (!ops)
		return 0;
	return edge_errno(context ? ops->close_device(to_ctx(context)) : -EINVAL);
}

EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	NO_CANCEL;
	const struct dev_ops *ops = edge_ops(context);
	int ret = edge_check(ops, context);

	if (!ret)
		ret = ops->get_async_event(to_ctx(context), event);
	else if (context && atomic_load(&to_ctx(context)->failed))
		ret = async_get_fatal(to_ctx(context), event);
	return edge_minus_one(ret);
}

/* The event is about an object of an earlier generation. */
static bool event_is_old(const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		return EDGE_OLD(event->element.cq);
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return EDGE_OLD(event->element.srq);
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return EDGE_OLD(event->element.qp);
	default:
		return false;
	}
}

EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	NO_CANCEL;
	const struct dev_ops *ops = event_is_old(event) ? NULL : dev_ops();

	if (ops)
		ops->ack_async_event(event);
}

/* ---- protection domains and memory -------------------------------------------- */

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	NO_CANCEL;
	const struct dev_ops *ops = edge_ops(context);
	struct dev_pd *pd = NULL;
	int ret = edge_check(ops, context);

	if (!ret)
		ret = ops->alloc_pd(to_ctx(context), &pd);
	return edge_failed(ret) ? NULL : &pd->pd;
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
	NO_CANCEL;
	const struct dev_ops *ops = EDGE_OPS(pd);
	int ret;

	if (!ops)
		return 0;
	ret = edge_destroy(pd, pd);
	return edge_errno(ret ? ret : ops->dealloc_pd(to_pd(pd)));
}

EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
				       uint64_t iova, unsigned int access)
{
	NO_CANCEL;
	const struct dev_ops *ops = EDGE_OPS(pd);
	struct dev_mr *mr = NULL;
	int ret = edge_object(ops, pd, pd);

	if (!ret)
		ret = ops->reg_mr(to_pd(pd), addr, length, iova, access, &mr);
	return edge_failed(ret) ? NULL : &mr->mr;
}

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	NO_CANCEL;

	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned)access);
}

EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length,
				      uint64_t iova, int access)
{
	NO_CANCEL;

	return ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned)access);
}

EXPORT int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr,
			size_t length, int access)
{
	NO_CANCEL;
	const struct dev_ops *ops = EDGE_OPS(mr);

	int ret = edge_check(ops, mr);

	/* Not looked at unless it is to be changed: pyverbs then passes what is none. */
	if (!(flags & IBV_REREG_MR_CHANGE_PD))
		pd = NULL;
	if (!ret)
		ret = edge_check_old(EDGE_OLD(pd));
	if (edge_failed(ret))
		return IBV_REREG_MR_ERR_INPUT;
	if (edge_failed(edge_destroy(mr, mr)))
		return IBV_REREG_MR_ERR_CMD;
	return ops->rereg_mr(to_mr(mr), flags, pd ? to_pd(pd) : NULL, addr, length,
			     (unsigned)access);
}

EXPORT int ibv_dereg_mr(struct ibv_mr *mr)
{
	NO_CANCEL;
	const struct dev_ops *ops = EDGE_OPS(mr);
	int ret;

	if (!ops)
		return 0;
	ret = edge_destroy(mr, mr);
	return edge_errno(ret ? ret : ops->dereg_mr(to_mr(mr)));
}

/* ---- completion queues ---------------------------------------------------------- */

EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	NO_CANCEL;
	const struct dev_ops *ops = edge_ops(context);
	struct dev_channel *ch = NULL;
	int ret = edge_check(ops, context);

	if (!ret)
		ret = ops->create_comp_channel(to_ctx(context), &ch);
	return edge_failed(ret) ? NULL : &ch->ch;
}

EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	NO_CANCEL;
	const struct dev_ops *ops = EDGE_OPS(channel);
	int ret;

	if (!channel)
		return edge_errno(-EINVAL);
	if (!ops) {
		/* The child's own copy. After a failure the number may be another's. */
		if (!atomic_load(&to_ctx(channel->context)->failed))
			close(channel->fd);
		return 0;
	}
	ret = edge_destroy(channel, channel);
	return edge_errno(ret ? ret : ops->destroy_comp_channel(to_channel(channel)));
}

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe,
				    void *cq_context, struct ibv_comp_channel *channel,
				    int comp_vector)
{
	NO_CANCEL;
	const struct dev_ops *ops = edge_ops(context);
	struct dev_channel *ch = NULL;
	struct dev_cq *cq = NULL;
	int ret = edge_check(ops, context);

	if (channel)
		ch = to_channel(channel);
	if (!ret)
		ret = edge_check_old(EDGE_OLD(channel));
	if (!ret)
		ret = ops->create_cq(to_ctx(context), cqe, cq_context, ch, comp_vector,
				     &cq);
	return edge_failed(ret) ? NULL : &cq->cq;
}

EXPORT int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	NO_CANCEL;
	const struct dev_ops *ops = EDGE_OPS(cq);
	int ret = edge_object(ops, cq, cq);

	return edge_errno(ret ? ret : ops->resize_cq(to_cq(cq), cqe));
}

EXPORT int ibv_destroy_cq(struct ibv_cq *cq)
{
	NO_CANCEL;
	const struct dev_ops *ops = EDGE_OPS(cq);
	int ret;

	if (!ops)
		return 0;
	ret = edge_destroy(cq, cq);
	return edge_errno(ret ? ret : ops->destroy_cq(to_cq(cq)));
}

EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
			    void **cq_context)
{
	NO_CANCEL;
	const struct dev_ops *ops = EDGE_OPS(channel);
	struct dev_cq *got = NULL;
	int ret = edge_check(ops, channel);

	if (!ret)
		ret = ops->get_cq_event(to_channel(channel), &got);
	if (edge_failed(ret))
		return -1;
	*cq = &got->cq;
	*cq_context = got->cq.cq_context;
	return 0;
}

EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
	const struct dev_ops *ops = EDGE_OPS(cq);

	if (ops && cq && nevents)
		ops->ack_cq_events(to_cq(cq), nevents);
}

/* ---- shared receive queues ------------------------------------------------------ */

EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	NO_CANCEL;
	const struct dev_ops *ops = EDGE_OPS(pd);
	struct dev_srq *srq = NULL;
	int ret = edge_object(ops, pd, pd);

	if (!ret)
		ret = edge_check(ops, attr);
	if (!ret)
		ret = ops->create_srq(to_pd(pd), attr, &srq);
	return edge_failed(ret) ? NULL : &srq->srq;
}

EXPORT int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	NO_CANCEL;
	const struct dev_ops *ops = EDGE_OPS(srq);
	int ret = edge_object(ops, srq, srq);

	return edge_errno(ret ? ret : ops->modify_srq(to_srq(srq), attr, mask));
}

EXPORT int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	NO_CANCEL;
	const struct dev_ops *ops = EDGE_OPS(srq);
	int ret = edge_object(ops, srq, srq);

	return edge_errno(ret ? ret : ops->query_srq(to_srq(srq), attr));
}

EXPORT int ibv_destroy_srq(struct ibv_srq *srq)
{
	NO_CANCEL;
	const struct dev_ops *ops = EDGE_OPS(srq);
	int ret;

	if (!ops)
		return 0;
	ret = edge_destroy(srq, srq);
	return edge_errno(ret ? ret : ops->destroy_srq(to_srq(srq)));
}

/* ---- queue pairs ---------------------------------------------------------------- */

EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	NO_CANCEL;
	const struct dev_ops *ops = EDGE_OPS(pd);
	struct dev_qp *qp = NULL;
	int ret = edge_object(ops, pd, pd);

	if (!ret)
		ret = edge_check(ops, attr);
	if (!ret)
		ret = edge_check_old(EDGE_OLD(attr->send_cq) || EDGE_OLD(attr->recv_cq) ||
				     EDGE_OLD(attr->srq));
	if (!ret)
		ret = ops->create_qp(to_pd(pd), attr, &qp);
	return edge_failed(ret) ? NULL : &qp->qp;
}

/* NULL: the QP was not made with send_ops_flags. */
EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	return qp && to_qp(qp)->is_ex ? &to_qp(qp)->ex : NULL;
}

EXPORT int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	NO_CANCEL;
	const struct dev_ops *ops = EDGE_OPS(qp);
	int ret = edge_object(ops, qp, qp);

	if (!ret)
		ret = edge_check(ops, attr);
	return edge_errno(ret ? ret : ops->modify_qp(to_qp(qp), attr, mask));
}

EXPORT int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
			struct ibv_qp_init_attr *init)
{
	NO_CANCEL;
	const struct dev_ops *ops = EDGE_OPS(qp);
	int ret = edge_object(ops, qp, qp);

	return edge_errno(ret ? ret : ops->query_qp(to_qp(qp), attr, mask, init));
}

EXPORT int ibv_destroy_qp(struct ibv_qp *qp)
{
	NO_CANCEL;
	const struct dev_ops *ops = EDGE_OPS(qp);
	int ret;

	if (!ops)
		return 0;
	ret = edge_destroy(qp, qp);
	return edge_errno(ret ? ret : ops->destroy_qp(to_qp(qp)));
}

EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op,
				      uint32_t flags)
{
	const struct dev_ops *ops = EDGE_OPS(qp);

	return edge_check(ops, qp) ? 0 :
				     ops->query_qp_data_in_order(to_qp(qp), op, flags);
}

EXPORT int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	NO_CANCEL;
	const struct dev_ops *ops = EDGE_OPS(qp);
	int ret = edge_object(ops, qp, qp);

	return edge_errno(ret ? ret : ops->set_ece(to_qp(qp), ece));
}

EXPORT int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	NO_CANCEL;
	const struct dev_ops *ops = EDGE_OPS(qp);
	int ret = edge_object(ops, qp, qp);

	return edge_errno(ret ? ret : ops->query_ece(to_qp(qp), ece));
}

EXPORT int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	NO_CANCEL;
	const struct dev_ops *ops = EDGE_OPS(qp);
	int ret = edge_object(ops, qp, qp);

	return edge_errno(ret ? ret : ops->attach_mcast(to_qp(qp), gid, lid));
}

EXPORT int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	NO_CANCEL;
	const struct dev_ops *ops = EDGE_OPS(qp);
	int ret = edge_object(ops, qp, qp);

	return edge_errno(ret ? ret : ops->detach_mcast(to_qp(qp), gid, lid));
}

/* ---- address handles ------------------------------------------------------------- */

EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	NO_CANCEL;
	const struct dev_ops *ops = EDGE_OPS(pd);
	struct dev_ah *ah = NULL;
	int ret = edge_object(ops, pd, pd);

	if (!ret)
		ret = edge_check(ops, attr);
	if (!ret)
		ret = ops->create_ah(to_pd(pd), attr, &ah);
	return edge_failed(ret) ? NULL : &ah->ah;
}

EXPORT int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port_num,
			       struct ibv_wc *wc, struct ibv_grh *grh,
			       struct ibv_ah_attr *ah_attr)
{
	NO_CANCEL;
	const struct dev_ops *ops = edge_ops(context);
	int ret = edge_check(ops, context);

	if (!ret)
		ret = ops->init_ah_from_wc(to_ctx(context), port_num, wc, grh, ah_attr);
	return edge_minus_one(ret);
}

EXPORT struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc,
					    struct ibv_grh *grh, uint8_t port_num)
{
	NO_CANCEL;
	const struct dev_ops *ops = EDGE_OPS(pd);
	struct dev_ah *ah = NULL;
	int ret = edge_object(ops, pd, pd);

	if (!ret)
		ret = ops->create_ah_from_wc(to_pd(pd), wc, grh, port_num, &ah);
	return edge_failed(ret) ? NULL : &ah->ah;
}

EXPORT int ibv_destroy_ah(struct ibv_ah *ah)
{
	NO_CANCEL;
	const struct dev_ops *ops = EDGE_OPS(ah);
	int ret;

	if (!ops)
		return 0;
	ret = edge_destroy(ah, ah);
	return edge_errno(ret ? ret : ops->destroy_ah(to_ah(ah)));
}
