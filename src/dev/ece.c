/* SPDX-License-Identifier: BSD-2-Clause */
/* Enhanced connection establishment. The device has a vendor id and no options: it
 * accepts none of those that are asked for. librdmacm exchanges both between the peers
 * (cm/ece.c). */
#include "base/log.h"
#include "dev/verbs.h"

#include <errno.h>

void ece_query(struct ibv_ece *ece)
{
	*ece = (struct ibv_ece){ .vendor_id = DEV_VENDOR_ID };
}

int ece_set(struct dev_qp *qp, struct ibv_ece *ece)
{
	enum ibv_qp_state state;

	if (!ece->vendor_id)
		return log_refuse(EOPNOTSUPP, "ibv_set_ece: no vendor is named");
	if (ece->comp_mask || ece->vendor_id != DEV_VENDOR_ID)
		return log_refuse(EINVAL,
				  "ibv_set_ece: options of vendor 0x%x (comp_mask 0x%x), "
				  "this device is of vendor 0x%x",
				  ece->vendor_id, ece->comp_mask, DEV_VENDOR_ID);
	lock_get(&qp->lock);
	state = qp->qp.state;
	lock_put(&qp->lock);
	if (state != IBV_QPS_RESET && state != IBV_QPS_INIT)
		return log_refuse(EINVAL, "ibv_set_ece: QP 0x%x is in %s, too late",
				  qp->qp.qp_num, qp_state_str(state));
	ece->options = 0;
	return 0;
}
