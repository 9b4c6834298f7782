/* SPDX-License-Identifier: BSD-2-Clause */
/* The QP of an id: creation with what it lacks, and its moves. */
#include "cm/qp.h"
#include "base/log.h"
#include "cm/backend.h"
#include "cm/device.h"

#include <stddef.h>
#include <string.h>

/* rdma_create_qp lets the _ex struct stand for the plain one. */
_Static_assert(offsetof(struct ibv_qp_init_attr_ex, comp_mask) ==
	       offsetof(struct ibv_qp_init_attr, sq_sig_all) + sizeof(int),
	       "ibv_qp_init_attr is a prefix of ibv_qp_init_attr_ex");

static int modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	int r = ibv_modify_qp(qp, attr, mask);

	if (r)
		return log_refuse(r, "QP 0x%x cannot move to state %d: errno %d",
				  qp->qp_num, attr->qp_state, r);
	return 0;
}

static int move(struct cm_id *id, struct ibv_qp *qp, enum ibv_qp_state state,
		const uint8_t *rd_atomic)
{
	struct ibv_qp_attr attr;
	int mask = 0, r;

	memset(&attr, 0, sizeof(attr));
	attr.qp_state = state;
	r = id->be->init_qp_attr(id, &attr, &mask);
	if (r)
		return r;
	attr.qp_state = state;
	if (rd_atomic && state == IBV_QPS_RTR)
		attr.max_dest_rd_atomic = *rd_atomic;
	else if (rd_atomic)
		attr.max_rd_atomic = *rd_atomic;
	return modify(qp, &attr, mask); /* iWARP: RTS is the driver's, mask 0 */
}

static int ud_ready(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	int r;

	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTR;
	r = modify(qp, &attr, IBV_QP_STATE);
	if (r)
		return r;
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = 0;
	return modify(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

int cm_qp_init(struct cm_id *id, struct ibv_qp *qp)
{
	int r = move(id, qp, IBV_QPS_INIT, NULL);

	if (!r && id->pub.qp_type == IBV_QPT_UD)
		r = ud_ready(qp);
	return r;
}

/* INIT again first: only now the connection says which access it grants. */
int cm_qp_rtr(struct cm_id *id, uint8_t resp_res)
{
	int r = move(id, id->pub.qp, IBV_QPS_INIT, NULL);

	return r ? r : move(id, id->pub.qp, IBV_QPS_RTR,
			    resp_res == RDMA_MAX_RESP_RES ? NULL : &resp_res);
}

int cm_qp_rts(struct cm_id *id, uint8_t init_depth)
{
	return move(id, id->pub.qp, IBV_QPS_RTS,
		    init_depth == RDMA_MAX_INIT_DEPTH ? NULL : &init_depth);
}

int cm_qp_err(struct cm_id *id)
{
	struct ibv_qp_attr attr;

	if (!id->pub.qp)
		return 0;
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_ERR;
	return modify(id->pub.qp, &attr, IBV_QP_STATE);
}

int cm_qp_disconnect(struct cm_id *id)
{
	struct ibv_qp_attr attr;

	switch (id->pub.verbs->device->transport_type) {
	case IBV_TRANSPORT_IB:
		return cm_qp_err(id);
	case IBV_TRANSPORT_IWARP:
		if (!id->pub.qp)
			return 0;
		memset(&attr, 0, sizeof(attr));
		attr.qp_state = IBV_QPS_SQD;
		return modify(id->pub.qp, &attr, IBV_QP_STATE);
	default:
		return log_refuse(EINVAL, "id %p: transport %d has no disconnect",
				  (void *)id,
				  id->pub.verbs->device->transport_type);
	}
}

/* ---- completion queues of the id ------------------------------------------ */

int cm_qp_make_cq(struct cm_id *id, int cqe, struct ibv_comp_channel **ch,
		  struct ibv_cq **cq)
{
	int r;

	*ch = ibv_create_comp_channel(id->pub.verbs);
	if (!*ch)
		return errno ? -errno : -ENOMEM;
	*cq = ibv_create_cq(id->pub.verbs, cqe, &id->pub, *ch, 0);
	if (*cq)
		return 0;
	r = errno ? -errno : -ENOMEM;
	ibv_destroy_comp_channel(*ch);
	*ch = NULL;
	return r;
}

void cm_qp_free_cqs(struct cm_id *id)
{
	if (id->pub.send_cq && id->pub.send_cq != id->pub.recv_cq)
		ibv_destroy_cq(id->pub.send_cq);
	if (id->pub.recv_cq)
		ibv_destroy_cq(id->pub.recv_cq);
	if (id->pub.send_cq_channel &&
	    id->pub.send_cq_channel != id->pub.recv_cq_channel)
		ibv_destroy_comp_channel(id->pub.send_cq_channel);
	if (id->pub.recv_cq_channel)
		ibv_destroy_comp_channel(id->pub.recv_cq_channel);
	id->pub.send_cq = id->pub.recv_cq = NULL;
	id->pub.send_cq_channel = id->pub.recv_cq_channel = NULL;
}

/* Which of the id's CQs this call made, for the way back. */
struct made {
	bool send, recv;
};

static void undo_cqs(struct cm_id *id, const struct made *made)
{
	if (made->send) {
		ibv_destroy_cq(id->pub.send_cq);
		ibv_destroy_comp_channel(id->pub.send_cq_channel);
		id->pub.send_cq = NULL;
		id->pub.send_cq_channel = NULL;
	}
	if (made->recv) {
		ibv_destroy_cq(id->pub.recv_cq);
		ibv_destroy_comp_channel(id->pub.recv_cq_channel);
		id->pub.recv_cq = NULL;
		id->pub.recv_cq_channel = NULL;
	}
}

static int fill_cqs(struct cm_id *id, struct ibv_qp_init_attr_ex *attr,
		    struct made *made)
{
	struct rdma_cm_id *pub = &id->pub;
	int r = 0;

	if (!attr->recv_cq && !pub->recv_cq && attr->cap.max_recv_wr) {
		r = cm_qp_make_cq(id, (int)attr->cap.max_recv_wr,
				  &pub->recv_cq_channel, &pub->recv_cq);
		made->recv = !r;
	}
	if (!r && !attr->send_cq && !pub->send_cq && attr->cap.max_send_wr) {
		r = cm_qp_make_cq(id, (int)attr->cap.max_send_wr,
				  &pub->send_cq_channel, &pub->send_cq);
		made->send = !r;
	}
	if (r) {
		undo_cqs(id, made);
		return r;
	}
	if (!attr->recv_cq)
		attr->recv_cq = pub->recv_cq;
	if (!attr->send_cq)
		attr->send_cq = pub->send_cq;
	return 0;
}

/* ---- creation -------------------------------------------------------------- */

static int fill_pd(struct cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd) {
		attr->comp_mask |= IBV_QP_INIT_ATTR_PD;
		attr->pd = id->pub.pd;
	} else if (attr->pd->context != id->pub.verbs) {
		return log_refuse(EINVAL, "id %p: the PD is of another verbs context "
					  "than the id", (void *)id);
	}
	return 0;
}

static int fill_attr(struct cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	int r;

	if (!id->pub.verbs || !id->dev)
		return log_refuse(EINVAL, "id %p: a QP needs a device; resolve an "
					  "address or accept a request first",
				  (void *)id);
	if (id->pub.qp)
		return log_refuse(EINVAL, "id %p has a QP already", (void *)id);
	r = fill_pd(id, attr);
	if (r)
		return r;
	if ((id->pub.recv_cq && attr->recv_cq && id->pub.recv_cq != attr->recv_cq) ||
	    (id->pub.send_cq && attr->send_cq && id->pub.send_cq != attr->send_cq))
		return log_refuse(EINVAL, "id %p has CQs of its own, others were given",
				  (void *)id);
	if (id->pub.qp_type == IBV_QPT_XRC_RECV &&
	    !(attr->comp_mask & IBV_QP_INIT_ATTR_XRCD)) {
		r = cm_device_xrcd(id->dev, &attr->xrcd);
		if (r)
			return r;
		attr->comp_mask |= IBV_QP_INIT_ATTR_XRCD;
	}
	return 0;
}

static int create_qp(struct cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	struct made made = { false, false };
	struct ibv_qp *qp;
	int r;

	r = fill_attr(id, attr);
	if (!r)
		r = fill_cqs(id, attr, &made);
	if (r)
		return r;
	if (!attr->srq)
		attr->srq = id->pub.srq;
	qp = ibv_create_qp_ex(id->pub.verbs, attr);
	if (!qp) {
		r = errno ? -errno : -EINVAL;
		goto undo;
	}
	/* Before INIT: a QP of ours takes no part in the raw bring-up. */
	id->be->qp_created(id, qp);
	r = cm_ece_qp_made(id, qp);
	if (!r)
		r = cm_qp_init(id, qp);
	if (!r)
		r = cm_ece_qp_ready(id, qp);
	if (r) {
		ibv_destroy_qp(qp);
		goto undo;
	}
	if (qp->pd) /* an XRC receive QP need not have one */
		id->pub.pd = qp->pd;
	id->pub.qp = qp;
	return 0;

undo:
	undo_cqs(id, &made);
	return r;
}

int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *qp_init_attr)
{
	NO_CANCEL;
	int r = cm_id_check(id);

	if (!r && !qp_init_attr)
		r = log_refuse(EINVAL, "no QP attributes given");
	if (r)
		return cm_ret(r);
	lock_get(&to_id(id)->apply);
	r = create_qp(to_id(id), qp_init_attr);
	lock_put(&to_id(id)->apply);
	return cm_ret(r);
}

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd,
		   struct ibv_qp_init_attr *qp_init_attr)
{
	NO_CANCEL;
	struct ibv_qp_init_attr_ex ex;
	int r;

	if (!id || !qp_init_attr)
		return cm_ret(log_refuse(EINVAL, "no %s given",
					 id ? "QP attributes" : "id"));
	memset(&ex, 0, sizeof(ex));
	memcpy(&ex, qp_init_attr, offsetof(struct ibv_qp_init_attr_ex, comp_mask));
	ex.comp_mask = IBV_QP_INIT_ATTR_PD;
	ex.pd = pd;
	r = rdma_create_qp_ex(id, &ex);
	if (!r)
		memcpy(qp_init_attr, &ex,
		       offsetof(struct ibv_qp_init_attr_ex, comp_mask));
	return r;
}

void rdma_destroy_qp(struct rdma_cm_id *id)
{
	NO_CANCEL;
	struct cm_id *p;
	struct ibv_qp *qp;

	if (!id)
		return;
	p = to_id(id);
	if (state_is_old(p->generation)) {
		qp = id->qp;
		id->qp = NULL;
	} else {
		/* A thread that is applying an event to the QP finishes first. */
		lock_get(&p->apply);
		qp = id->qp;
		id->qp = NULL;
		cm_mcast_detached(p);
		lock_put(&p->apply);
	}
	if (!qp)
		return;
	ibv_destroy_qp(qp);
	if (id->qp_type != IBV_QPT_XRC_RECV || !id->srq)
		cm_qp_free_cqs(p);
}

int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *qp_attr,
		      int *qp_attr_mask)
{
	NO_CANCEL;
	int r = cm_id_check(id);

	if (!r && (!qp_attr || !qp_attr_mask))
		r = log_refuse(EINVAL, "no place for attributes and mask given");
	if (!r && !id->verbs)
		r = log_refuse(EINVAL, "id %p has no device yet", (void *)id);
	if (!r)
		r = to_id(id)->be->init_qp_attr(to_id(id), qp_attr, qp_attr_mask);
	return cm_ret(r);
}
