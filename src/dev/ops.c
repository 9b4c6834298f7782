/* SPDX-License-Identifier: BSD-2-Clause */
/* The device's own table of verbs, and which table verbs call. */
#include "dev/ops.h"

#include "base/log.h"
#include "dev/mcast.h"
#include "dev/verbs.h"
#include "dev/xrc.h"

#include <errno.h>

/* ---- verbs whose function has another signature -------------------------- */

static int op_query_device(struct dev_ctx *ctx, struct ibv_device_attr *attr)
{
	query_device(ctx->device, attr);
	return 0;
}

static int op_query_device_ex(struct dev_ctx *ctx,
			      const struct ibv_query_device_ex_input *input,
			      struct ibv_device_attr_ex *attr, size_t size)
{
	return query_device_ex(ctx->device, input, attr, size);
}

static int op_query_rt_values(struct dev_ctx *ctx, struct ibv_values_ex *values)
{
	(void)ctx;
	return query_rt_values(values);
}

static int op_query_port(struct dev_ctx *ctx, uint8_t port, struct ibv_port_attr *attr,
			 size_t size)
{
	return query_port(ctx->device, port, attr, size);
}

static int op_query_gid(struct dev_ctx *ctx, uint32_t port, uint32_t index,
			union ibv_gid *gid)
{
	return query_gid(ctx->device, port, index, gid);
}

static int op_query_gid_ex(struct dev_ctx *ctx, uint32_t port, uint32_t index,
			   struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
	return query_gid_ex(ctx->device, port, index, entry, flags, size);
}

static ssize_t op_query_gid_table(struct dev_ctx *ctx, struct ibv_gid_entry *entries,
				  size_t max, uint32_t flags, size_t size)
{
	return query_gid_table(ctx->device, entries, max, flags, size);
}

static int op_query_gid_type(struct dev_ctx *ctx, uint32_t port, uint32_t index,
			     unsigned int *type)
{
	return query_gid_type(ctx->device, port, index, type);
}

static int op_query_pkey(struct dev_ctx *ctx, uint8_t port, int index, __be16 *pkey)
{
	(void)ctx;
	return query_pkey(port, index, pkey);
}

static int op_get_pkey_index(struct dev_ctx *ctx, uint8_t port, __be16 pkey, int *index)
{
	(void)ctx;
	return query_pkey_index(port, pkey, index);
}

static int op_dealloc_mw(struct dev_mw *mw)
{
	mw_dealloc(mw);
	return 0;
}

static int op_query_srq(struct dev_srq *srq, struct ibv_srq_attr *attr)
{
	srq_query(srq, attr);
	return 0;
}

/* What a handle of ibv_open_qp() stands for. */
static struct dev_qp *real(struct dev_qp *qp)
{
	return qp->real ? qp->real : qp;
}

static int op_modify_qp(struct dev_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	int ret = qp_modify(real(qp), attr, mask);

	if (!ret && qp->real && (mask & IBV_QP_STATE))
		qp->qp.state = attr->qp_state;
	return ret;
}

static int op_query_qp(struct dev_qp *qp, struct ibv_qp_attr *attr, int mask,
		       struct ibv_qp_init_attr *init)
{
	(void)mask; /* a hint: more than asked for may be filled in */
	qp_query(real(qp), attr, init);
	if (qp->real) {
		init->qp_context = qp->qp.qp_context;
		qp->qp.state = attr->qp_state;
	}
	return 0;
}

static int op_query_qp_data_in_order(struct dev_qp *qp, enum ibv_wr_opcode opcode,
				     uint32_t flags)
{
	(void)qp;
	(void)opcode;
	(void)flags;
	return 0; /* only the last 64 bytes are ordered after the rest */
}

static int op_query_ece(struct dev_qp *qp, struct ibv_ece *ece)
{
	(void)qp;
	ece_query(ece);
	return 0;
}

static int op_init_ah_from_wc(struct dev_ctx *ctx, uint8_t port, const struct ibv_wc *wc,
			      const struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
	return ah_init_from_wc(ctx->device, port, wc, grh, attr);
}

static int op_destroy_ah(struct dev_ah *ah)
{
	ah_destroy(ah);
	return 0;
}

static int op_unsupported(const char *verb)
{
	return log_refuse(EOPNOTSUPP, "%s is not supported", verb);
}

/* ---- the table ----------------------------------------------------------- */

const struct dev_ops dev_ops_device = {
	.get_device_list = device_list,
	.open_device = device_open,
	.close_device = device_close,
	.get_async_event = async_get,
	.ack_async_event = async_ack,

	.query_device = op_query_device,
	.query_device_ex = op_query_device_ex,
	.query_rt_values = op_query_rt_values,
	.query_port = op_query_port,
	.query_gid = op_query_gid,
	.query_gid_ex = op_query_gid_ex,
	.query_gid_table = op_query_gid_table,
	.query_gid_type = op_query_gid_type,
	.query_pkey = op_query_pkey,
	.get_pkey_index = op_get_pkey_index,

	.alloc_pd = pd_alloc,
	.alloc_parent_domain = pd_alloc_parent,
	.dealloc_pd = pd_dealloc,
	.alloc_td = td_alloc,
	.dealloc_td = td_dealloc,
	.open_xrcd = xrcd_open,
	.close_xrcd = xrcd_close,

	.reg_mr = mr_reg,
	.alloc_null_mr = mr_alloc_null,
	.rereg_mr = mr_rereg,
	.advise_mr = mr_advise,
	.dereg_mr = mr_dereg,
	.alloc_mw = mw_alloc,
	.bind_mw = mw_bind,
	.dealloc_mw = op_dealloc_mw,

	.create_comp_channel = channel_create,
	.destroy_comp_channel = channel_destroy,
	.create_cq = cq_create,
	.create_cq_ex = cq_create_ex,
	.modify_cq = cq_modify,
	.resize_cq = cq_resize,
	.destroy_cq = cq_destroy,
	.poll_cq = cq_poll,
	.req_notify_cq = cq_req_notify,
	.get_cq_event = channel_get_event,
	.ack_cq_events = cq_ack_events,
	.start_poll = cq_start_poll,
	.next_poll = cq_next_poll,
	.end_poll = cq_end_poll,
	.read = &cq_read_ops,

	.create_srq = srq_create,
	.create_srq_ex = srq_create_ex,
	.modify_srq = srq_modify,
	.query_srq = op_query_srq,
	.get_srq_num = srq_number,
	.post_srq_recv = srq_post,
	.destroy_srq = srq_destroy,

	.create_qp = qp_create,
	.create_qp_ex = qp_create_ex,
	.open_qp = xrc_qp_open,
	.modify_qp = op_modify_qp,
	.query_qp = op_query_qp,
	.query_qp_data_in_order = op_query_qp_data_in_order,
	.set_ece = ece_set,
	.query_ece = op_query_ece,
	.attach_mcast = mcast_attach,
	.detach_mcast = mcast_detach,
	.post_send = post_send,
	.post_recv = post_recv,
	.destroy_qp = qp_destroy,
	.wr_start = qp_wr_start,
	.wr_complete = qp_wr_complete,
	.wr_abort = qp_wr_abort,
	.build = &qp_build_ops,

	.create_ah = ah_create,
	.create_ah_from_wc = ah_create_from_wc,
	.init_ah_from_wc = op_init_ah_from_wc,
	.destroy_ah = op_destroy_ah,

	.unsupported = op_unsupported,
};

const struct dev_ops *_Atomic dev_ops_current = &dev_ops_device;

int dev_ops_put_in_front(const struct dev_ops *front)
{
	if (device_has_contexts())
		return -EBUSY;
	atomic_store_explicit(&dev_ops_current, front, memory_order_relaxed);
	return 0;
}
