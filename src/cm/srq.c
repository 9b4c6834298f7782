/* SPDX-License-Identifier: BSD-2-Clause */
/* The shared receive queue of an id. */
#include "base/log.h"
#include "cm/backend.h"
#include "cm/device.h"
#include "cm/qp.h"

#include <stddef.h>
#include <string.h>

/* XRC shared receive queues have a domain and a CQ; ours where none is given. */
static int fill_xrc(struct cm_id *id, struct ibv_srq_init_attr_ex *attr, bool *made)
{
	int r;

	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD) || !attr->xrcd) {
		r = cm_device_xrcd(id->dev, &attr->xrcd);
		if (r)
			return r;
		attr->comp_mask |= IBV_SRQ_INIT_ATTR_XRCD;
	}
	if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ) && attr->cq)
		return 0;
	if (!id->pub.recv_cq) {
		r = cm_qp_make_cq(id, (int)attr->attr.max_wr,
				  &id->pub.recv_cq_channel, &id->pub.recv_cq);
		if (r)
			return r;
		*made = true;
	}
	attr->cq = id->pub.recv_cq;
	attr->comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
	return 0;
}

static int create_srq(struct cm_id *id, struct ibv_srq_init_attr_ex *attr)
{
	bool made = false;
	struct ibv_srq *srq;
	int r = 0;

	if (!id->pub.verbs || !id->dev)
		return log_refuse(EINVAL, "id %p: an SRQ needs a device; resolve an "
					  "address or accept a request first",
				  (void *)id);
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE))
		return log_refuse(EINVAL, "id %p: the SRQ's type is not given",
				  (void *)id);
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd) {
		attr->pd = id->pub.pd;
		attr->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
	}
	if (attr->srq_type == IBV_SRQT_XRC)
		r = fill_xrc(id, attr, &made);
	if (r)
		return r;
	srq = ibv_create_srq_ex(id->pub.verbs, attr);
	if (!srq) {
		r = errno ? -errno : -EINVAL;
		if (made)
			cm_qp_free_cqs(id);
		return r;
	}
	id->pub.srq = srq;
	if (!id->pub.pd)
		id->pub.pd = srq->pd;
	return 0;
}

int rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr)
{
	NO_CANCEL;
	int r = cm_id_check(id);

	if (!r && !attr)
		r = log_refuse(EINVAL, "no SRQ attributes given");
	return cm_ret(r ? r : create_srq(to_id(id), attr));
}

int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd,
		    struct ibv_srq_init_attr *attr)
{
	NO_CANCEL;
	struct ibv_srq_init_attr_ex ex;
	int r;

	if (!id || !attr)
		return cm_ret(log_refuse(EINVAL, "no %s given",
					 id ? "SRQ attributes" : "id"));
	memset(&ex, 0, sizeof(ex));
	ex.srq_context = attr->srq_context;
	ex.attr = attr->attr;
	ex.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
	ex.srq_type = id->qp_type == IBV_QPT_XRC_RECV ? IBV_SRQT_XRC : IBV_SRQT_BASIC;
	ex.pd = pd;
	r = rdma_create_srq_ex(id, &ex);
	if (!r) {
		attr->srq_context = ex.srq_context;
		attr->attr = ex.attr;
	}
	return r;
}

void rdma_destroy_srq(struct rdma_cm_id *id)
{
	NO_CANCEL;

	if (!id || !id->srq)
		return;
	ibv_destroy_srq(id->srq);
	id->srq = NULL;
	cm_qp_free_cqs(to_id(id));
}
