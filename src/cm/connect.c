/* SPDX-License-Identifier: BSD-2-Clause */
/* connect, accept, reject, establish, disconnect, notify. */
#include "base/log.h"
#include "cm/backend.h"
#include "cm/device.h"
#include "cm/qp.h"

#include <stdlib.h>
#include <string.h>

enum { RETRY_MAX = 7 }; /* three bits on the wire; 7 means "for ever" for RNR */

static uint8_t min_u8(uint8_t a, uint8_t b)
{
	return a < b ? a : b;
}

/* Only ids of RDMA_PS_TCP are held to the device's limits. */
static int check_param(const struct cm_id *id, const struct rdma_conn_param *p)
{
	const struct cm_device *dev = id->dev;

	if (id->pub.ps != RDMA_PS_TCP)
		return 0;
	if (!p)
		return id->pub.qp ? 0 :
		       log_refuse(EINVAL, "id %p has no QP and no parameters name one",
				  (const void *)id);
	if (p->responder_resources != RDMA_MAX_RESP_RES &&
	    p->responder_resources > dev->max_responder_resources)
		return log_refuse(EINVAL, "responder_resources %u: the device has %u",
				  p->responder_resources,
				  dev->max_responder_resources);
	if (p->initiator_depth != RDMA_MAX_INIT_DEPTH &&
	    p->initiator_depth > dev->max_initiator_depth)
		return log_refuse(EINVAL, "initiator_depth %u: the device has %u",
				  p->initiator_depth, dev->max_initiator_depth);
	return 0;
}

/* Everything but depths and ECE. */
static int fill_param(struct cm_id *id, const struct rdma_conn_param *p,
		      struct cm_conn_param *out)
{
	size_t user = p && p->private_data ? p->private_data_len : 0;
	size_t blob = id->connect_blob ? id->connect_blob_len : 0;

	memset(out, 0, sizeof(*out));
	if (user + blob > UINT8_MAX)
		return log_refuse(EINVAL, "private data of %zu bytes and an address "
					  "header of %zu exceed 255",
				  user, blob);
	if (blob)
		memcpy(out->private_data, id->connect_blob, blob);
	if (user)
		memcpy(out->private_data + blob, p->private_data, user);
	out->private_data_len = (uint8_t)(user + blob);

	out->flow_control = p ? p->flow_control : 0;
	out->retry_count = p ? min_u8(p->retry_count, RETRY_MAX) : RETRY_MAX;
	out->rnr_retry_count = p ? min_u8(p->rnr_retry_count, RETRY_MAX) : RETRY_MAX;
	if (id->pub.qp) {
		out->qp_num = id->pub.qp->qp_num;
		out->srq = id->pub.qp->srq != NULL;
	} else if (p) {
		out->qp_num = p->qp_num & 0xFFFFFF;
		out->srq = p->srq != 0;
	}
	out->responder_resources = id->responder_resources;
	out->initiator_depth = id->initiator_depth;
	return 0;
}

static int need_device(const struct cm_id *id, const char *call)
{
	if (id->pub.verbs && id->dev)
		return 0;
	return log_refuse(EINVAL, "id %p: %s needs a device; resolve an address or "
				  "accept a request first",
			  (const void *)id, call);
}

static int start_connect(struct cm_id *id, const struct rdma_conn_param *p)
{
	struct cm_conn_param cp;
	int r;

	r = need_device(id, "rdma_connect");
	if (!r)
		r = check_param(id, p);
	if (r)
		return r;
	id->initiator_depth = p && p->initiator_depth != RDMA_MAX_INIT_DEPTH ?
		p->initiator_depth : id->dev->max_initiator_depth;
	id->responder_resources = p && p->responder_resources != RDMA_MAX_RESP_RES ?
		p->responder_resources : id->dev->max_responder_resources;
	r = fill_param(id, p, &cp);
	if (r)
		return r;
	cp.ece = id->local_ece;
	r = id->be->connect(id, &cp);
	if (r)
		return r;
	free(id->connect_blob);
	id->connect_blob = NULL;
	id->connect_blob_len = 0;
	return 0;
}

static int connect_id(struct cm_id *id, const struct rdma_conn_param *p)
{
	int r;

	lock_get(&id->apply);
	r = start_connect(id, p);
	lock_put(&id->apply);
	return r ? r : cm_sync_complete(id, CM_SYNC_CONNECT);
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *conn_param)
{
	NO_CANCEL;
	int r = cm_id_check(id);

	return cm_ret(r ? r : connect_id(to_id(id), conn_param));
}

/* The QP is ready for the peer's first message before the reply leaves. */
static int accept_connected(struct cm_id *id, const struct cm_conn_param *cp)
{
	int r;

	r = id->be->accept_prepare(id, cp);
	if (r)
		goto fail;
	if (id->pub.qp) {
		r = cm_qp_rtr(id, cp->responder_resources);
		if (!r)
			r = cm_qp_rts(id, cp->initiator_depth);
		if (r)
			return r; /* not answered yet: the application may reject */
	}
	r = id->be->accept(id, cp);
	if (!r)
		return 0;
fail:
	cm_qp_err(id);
	return r;
}

static int start_accept(struct cm_id *id, const struct rdma_conn_param *p)
{
	struct cm_conn_param cp;
	int r;

	r = need_device(id, "rdma_accept");
	if (!r)
		r = check_param(id, p);
	if (!r && !p && !id->pub.qp)
		r = log_refuse(EINVAL, "id %p has no QP and no parameters name one",
			       (void *)id);
	if (r)
		return r;
	if (!p || p->initiator_depth == RDMA_MAX_INIT_DEPTH)
		id->initiator_depth = min_u8(id->initiator_depth,
					     id->dev->max_initiator_depth);
	else
		id->initiator_depth = p->initiator_depth;
	if (!p || p->responder_resources == RDMA_MAX_RESP_RES)
		id->responder_resources = min_u8(id->responder_resources,
						 id->dev->max_responder_resources);
	else
		id->responder_resources = p->responder_resources;
	r = fill_param(id, p, &cp);
	if (r)
		return r;
	cp.ece.vendor_id = id->remote_ece.vendor_id;
	cp.ece.options = id->local_ece.options;
	if (id->pub.qp_type == IBV_QPT_UD)
		return id->be->accept(id, &cp);
	return accept_connected(id, &cp);
}

static int accept_id(struct cm_id *id, const struct rdma_conn_param *p)
{
	int r;

	lock_get(&id->apply);
	r = start_accept(id, p);
	lock_put(&id->apply);
	if (r)
		return r;
	if (id->pub.qp_type != IBV_QPT_UD)
		return cm_sync_complete(id, CM_SYNC_ACCEPT);
	if (id->sync) /* no event will come; let the listener go */
		cm_sync_clear(id);
	return 0;
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *conn_param)
{
	NO_CANCEL;
	int r = cm_id_check(id);

	return cm_ret(r ? r : accept_id(to_id(id), conn_param));
}

static int reject(struct rdma_cm_id *pub, uint8_t reason, const void *data,
		  uint8_t len)
{
	int r = cm_id_check(pub);

	if (r)
		return cm_ret(r);
	return cm_ret(to_id(pub)->be->reject(to_id(pub), reason, data,
					     data ? len : 0));
}

int rdma_reject(struct rdma_cm_id *id, const void *private_data,
		uint8_t private_data_len)
{
	NO_CANCEL;

	return reject(id, CM_REJ_CONSUMER, private_data, private_data_len);
}

int rdma_reject_ece(struct rdma_cm_id *id, const void *private_data,
		    uint8_t private_data_len)
{
	NO_CANCEL;

	return reject(id, CM_REJ_ECE, private_data, private_data_len);
}

int rdma_establish(struct rdma_cm_id *id)
{
	NO_CANCEL;
	int r = cm_id_check(id);

	if (r)
		return cm_ret(r);
	if (id->qp)
		return cm_ret(log_refuse(EINVAL, "id %p has a QP of its own: it is "
						 "established when its event is fetched",
					 (void *)id));
	return cm_ret(to_id(id)->be->establish(to_id(id)));
}

int rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event)
{
	NO_CANCEL;
	int r = cm_id_check(id);

	if (!r)
		r = need_device(to_id(id), "rdma_notify");
	if (r || id->verbs->device->node_type != IBV_NODE_CA)
		return cm_ret(r);
	return cm_ret(to_id(id)->be->notify(to_id(id), event));
}

static int disconnect(struct cm_id *id)
{
	int r;

	r = need_device(id, "rdma_disconnect");
	if (r)
		return r;
	lock_get(&id->apply);
	r = cm_qp_disconnect(id);
	lock_put(&id->apply);
	if (!r)
		r = id->be->disconnect(id);
	if (r || id->pub.qp_type == IBV_QPT_UD) /* no event follows */
		return r;
	return cm_sync_complete(id, CM_SYNC_DISCONNECT);
}

int rdma_disconnect(struct rdma_cm_id *id)
{
	NO_CANCEL;
	int r = cm_id_check(id);

	return cm_ret(r ? r : disconnect(to_id(id)));
}
