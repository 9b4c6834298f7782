/* SPDX-License-Identifier: BSD-2-Clause */
/* The exported ibv_* calls on objects: NULL checks, the conventions of the API
 * (pointer + errno, positive errno, -1), nothing else. In a forked child a call
 * answers ENODEV and a destroy succeeds without doing anything. */
#include "dev/verbs.h"
#include "base/log.h"
#include "verbs/export.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* Macros of the header over functions of the same name. */
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

static bool refused(int ret)
{
	if (ret)
		errno = -ret;
	return ret != 0;
}

/* For calls that return a pointer. */
static int guard(const void *arg)
{
	if (fork_dead())
		return -ENODEV;
	return arg ? 0 : log_refuse(EINVAL, "a verb was called with a NULL object");
}

/* ---- devices ---------------------------------------------------------------- */

EXPORT struct ibv_device **ibv_get_device_list(int *num_devices)
{
	struct ibv_device **list;

	if (num_devices)
		*num_devices = 0;
	if (fork_dead()) {
		errno = ENODEV;
		return NULL;
	}
	list = calloc(2, sizeof(*list));
	if (!list)
		return NULL;
	list[0] = device_the();
	if (num_devices)
		*num_devices = 1;
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
	(void)device;
	return device_guid();
}

/* The index is the kernel's number of a device; ours has none. */
EXPORT int ibv_get_device_index(struct ibv_device *device)
{
	(void)device;
	return -1;
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct dev_ctx *ctx = NULL;
	int ret = guard(device);

	if (!ret)
		ret = device_open(device, &ctx);
	return refused(ret) ? NULL : &ctx->v.context;
}

EXPORT int ibv_close_device(struct ibv_context *context)
{
	if (fork_dead())
		return 0;
	return context ? -device_close(to_ctx(context)) : EINVAL;
}

EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	int ret = guard(context);

	if (!ret)
		ret = async_get(to_ctx(context), event);
	return refused(ret) ? -1 : 0;
}

EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	if (!fork_dead())
		async_ack(event);
}

/* ---- protection domains and memory -------------------------------------------- */

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct dev_pd *pd = NULL;
	int ret = guard(context);

	if (!ret)
		ret = pd_alloc(to_ctx(context), &pd);
	return refused(ret) ? NULL : &pd->pd;
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
	if (fork_dead())
		return 0;
	return pd ? -pd_dealloc(to_pd(pd)) : EINVAL;
}

EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
				       uint64_t iova, unsigned int access)
{
	struct dev_mr *mr = NULL;
	int ret = guard(pd);

	if (!ret)
		ret = mr_reg(to_pd(pd), addr, length, iova, access, &mr);
	return refused(ret) ? NULL : &mr->mr;
}

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned)access);
}

EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length,
				      uint64_t iova, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned)access);
}

EXPORT int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr,
			size_t length, int access)
{
	if (refused(guard(mr)))
		return IBV_REREG_MR_ERR_INPUT;
	return mr_rereg(to_mr(mr), flags, pd ? to_pd(pd) : NULL, addr, length,
			(unsigned)access);
}

EXPORT int ibv_dereg_mr(struct ibv_mr *mr)
{
	if (fork_dead())
		return 0;
	return mr ? -mr_dereg(to_mr(mr)) : EINVAL;
}

/* ---- completion queues ---------------------------------------------------------- */

EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct dev_channel *ch = NULL;
	int ret = guard(context);

	if (!ret)
		ret = channel_create(to_ctx(context), &ch);
	return refused(ret) ? NULL : &ch->ch;
}

EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	if (!channel)
		return EINVAL;
	if (fork_dead()) {
		close(channel->fd); /* the child's own copy */
		return 0;
	}
	return -channel_destroy(container_of(channel, struct dev_channel, ch));
}

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe,
				    void *cq_context, struct ibv_comp_channel *channel,
				    int comp_vector)
{
	struct dev_channel *ch = NULL;
	struct dev_cq *cq = NULL;
	int ret = guard(context);

	if (channel)
		ch = container_of(channel, struct dev_channel, ch);
	if (!ret)
		ret = cq_create(to_ctx(context), cqe, cq_context, ch, comp_vector, &cq);
	return refused(ret) ? NULL : &cq->cq;
}

EXPORT int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	int ret = guard(cq);

	return ret ? -ret : -cq_resize(to_cq(cq), cqe);
}

EXPORT int ibv_destroy_cq(struct ibv_cq *cq)
{
	if (fork_dead())
		return 0;
	return cq ? -cq_destroy(to_cq(cq)) : EINVAL;
}

EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
			    void **cq_context)
{
	struct dev_cq *got = NULL;
	int ret = guard(channel);

	if (!ret)
		ret = channel_get_event(container_of(channel, struct dev_channel, ch),
					&got);
	if (refused(ret))
		return -1;
	*cq = &got->cq;
	*cq_context = got->cq.cq_context;
	return 0;
}

EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
	if (cq && nevents && !fork_dead())
		cq_ack_events(to_cq(cq), nevents);
}

/* ---- shared receive queues ------------------------------------------------------ */

EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct dev_srq *srq = NULL;
	int ret = guard(pd);

	if (!ret)
		ret = guard(attr);
	if (!ret)
		ret = srq_create(to_pd(pd), attr, &srq);
	return refused(ret) ? NULL : &srq->srq;
}

EXPORT int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	int ret = guard(srq);

	return ret ? -ret : -srq_modify(to_srq(srq), attr, mask);
}

EXPORT int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	int ret = guard(srq);

	if (!ret)
		srq_query(to_srq(srq), attr);
	return -ret;
}

EXPORT int ibv_destroy_srq(struct ibv_srq *srq)
{
	if (fork_dead())
		return 0;
	return srq ? -srq_destroy(to_srq(srq)) : EINVAL;
}

/* ---- queue pairs ---------------------------------------------------------------- */

EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct dev_qp *qp = NULL;
	int ret = guard(pd);

	if (!ret)
		ret = guard(attr);
	if (!ret)
		ret = qp_create(to_pd(pd), attr, &qp);
	return refused(ret) ? NULL : &qp->qp;
}

/* NULL: the QP was not made with send_ops_flags. */
EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	return qp && to_qp(qp)->is_ex ? &to_qp(qp)->ex : NULL;
}

/* What a handle of ibv_open_qp() stands for. */
static struct dev_qp *real(struct ibv_qp *qp)
{
	return to_qp(qp)->real ? to_qp(qp)->real : to_qp(qp);
}

EXPORT int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	int ret = guard(qp);

	if (!ret)
		ret = guard(attr);
	if (!ret)
		ret = qp_modify(real(qp), attr, mask);
	if (!ret && to_qp(qp)->real && (mask & IBV_QP_STATE))
		qp->state = attr->qp_state;
	return -ret;
}

EXPORT int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
			struct ibv_qp_init_attr *init)
{
	int ret = guard(qp);

	(void)mask; /* a hint: more than asked for may be filled in */
	if (ret)
		return -ret;
	qp_query(real(qp), attr, init);
	if (to_qp(qp)->real) {
		init->qp_context = qp->qp_context;
		qp->state = attr->qp_state;
	}
	return 0;
}

EXPORT int ibv_destroy_qp(struct ibv_qp *qp)
{
	if (fork_dead())
		return 0;
	return qp ? -qp_destroy(to_qp(qp)) : EINVAL;
}

EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op,
				      uint32_t flags)
{
	(void)qp;
	(void)op;
	(void)flags;
	return 0; /* only the last 64 bytes are ordered after the rest */
}

EXPORT int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	int ret = guard(qp);

	return ret ? -ret : -ece_set(to_qp(qp), ece);
}

EXPORT int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	int ret = guard(qp);

	if (!ret)
		ece_query(ece);
	return -ret;
}

EXPORT int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	(void)gid;
	(void)lid;
	return -log_refuse(EOPNOTSUPP, "ibv_attach_mcast: QP 0x%x: no multicast on RC",
			   qp ? qp->qp_num : 0);
}

EXPORT int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	(void)gid;
	(void)lid;
	return -log_refuse(EOPNOTSUPP, "ibv_detach_mcast: QP 0x%x: no multicast on RC",
			   qp ? qp->qp_num : 0);
}

/* ---- address handles ------------------------------------------------------------- */

EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct dev_ah *ah = NULL;
	int ret = guard(pd);

	if (!ret)
		ret = guard(attr);
	if (!ret)
		ret = ah_create(to_pd(pd), attr, &ah);
	return refused(ret) ? NULL : &ah->ah;
}

EXPORT int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port_num,
			       struct ibv_wc *wc, struct ibv_grh *grh,
			       struct ibv_ah_attr *ah_attr)
{
	int ret = guard(context);

	if (!ret)
		ret = ah_init_from_wc(port_num, wc, grh, ah_attr);
	return refused(ret) ? -1 : 0;
}

EXPORT struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc,
					    struct ibv_grh *grh, uint8_t port_num)
{
	struct ibv_ah_attr attr;

	if (refused(guard(pd)) ||
	    ibv_init_ah_from_wc(pd->context, port_num, wc, grh, &attr))
		return NULL;
	return ibv_create_ah(pd, &attr);
}

EXPORT int ibv_destroy_ah(struct ibv_ah *ah)
{
	if (fork_dead())
		return 0;
	if (!ah)
		return EINVAL;
	ah_destroy(container_of(ah, struct dev_ah, ah));
	return 0;
}
