/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/log.h"
#include "cm/backend.h"

int rdma_set_option(struct rdma_cm_id *id, int level, int optname, void *optval,
		    size_t optlen)
{
	NO_CANCEL;
	int r = cm_id_check(id);

	if (!r && !optval && optlen)
		r = log_refuse(EFAULT, "id %p: option %d/%d without a value",
			       (void *)id, level, optname);
	if (!r)
		r = to_id(id)->be->set_option(to_id(id), level, optname, optval,
					      optlen);
	return cm_ret(r);
}
