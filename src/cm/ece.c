/* SPDX-License-Identifier: BSD-2-Clause */
/* Enhanced connection establishment: vendor options that both QPs agree on,
 * carried in request and reply. A provider that has none answers EOPNOTSUPP and
 * the vendor stays 0. */
#include "base/log.h"
#include "cm/backend.h"

#include <string.h>

static int query(struct ibv_qp *qp, struct ibv_ece *ece)
{
	int r;

	memset(ece, 0, sizeof(*ece));
	r = ibv_query_ece(qp, ece);
	if (r == EOPNOTSUPP) {
		memset(ece, 0, sizeof(*ece));
		return 0;
	}
	return -r;
}

static int set(struct ibv_qp *qp, const struct ibv_ece *want)
{
	struct ibv_ece ece = *want;
	int r;

	ece.comp_mask = 0;
	r = ibv_set_ece(qp, &ece);
	return r == EOPNOTSUPP ? 0 : -r;
}

int cm_ece_qp_made(struct cm_id *id, struct ibv_qp *qp)
{
	struct ibv_ece ece;
	int r;

	r = query(qp, &id->local_ece);
	if (r || !id->local_ece.vendor_id || !id->remote_ece.vendor_id)
		return r;
	ece = id->local_ece;
	ece.options = ece.vendor_id == id->remote_ece.vendor_id ?
		id->remote_ece.options : 0;
	return set(qp, &ece);
}

int cm_ece_qp_ready(struct cm_id *id, struct ibv_qp *qp)
{
	struct ibv_ece ece;
	int r;

	if (!id->local_ece.vendor_id || !id->remote_ece.vendor_id)
		return 0;
	r = query(qp, &ece);
	if (!r)
		id->local_ece.options = ece.options;
	return r;
}

int cm_ece_reply(struct cm_id *id)
{
	struct ibv_ece ece = id->remote_ece;

	if (!id->local_ece.vendor_id)
		return 0;
	if (!ece.vendor_id) {
		ece.vendor_id = id->local_ece.vendor_id;
		ece.options = 0;
	} else if (ece.vendor_id != id->local_ece.vendor_id) {
		return log_refuse(EINVAL, "id %p: the reply's ECE is of vendor 0x%x, "
					  "ours 0x%x",
				  (void *)id, ece.vendor_id,
				  id->local_ece.vendor_id);
	}
	return set(id->pub.qp, &ece);
}

int rdma_set_local_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	int r = cm_id_check(id);

	if (!r && (!ece || id->qp || !ece->vendor_id || ece->comp_mask))
		r = log_refuse(EINVAL, "id %p: local ECE needs an id without a QP, a "
				       "vendor, and comp_mask 0", (void *)id);
	if (r)
		return cm_ret(r);
	to_id(id)->local_ece.vendor_id = ece->vendor_id;
	to_id(id)->local_ece.options = ece->options;
	return 0;
}

int rdma_get_remote_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	int r = cm_id_check(id);

	if (!r && (!ece || id->qp))
		r = log_refuse(EINVAL, "id %p: remote ECE needs an id without a QP",
			       (void *)id);
	if (r)
		return cm_ret(r);
	ece->vendor_id = to_id(id)->remote_ece.vendor_id;
	ece->options = to_id(id)->remote_ece.options;
	ece->comp_mask = 0;
	return 0;
}
