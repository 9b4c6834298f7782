/* SPDX-License-Identifier: BSD-2-Clause */
/* bind, resolve_addr, resolve_route: from addresses to a device and a route. */
#include "base/log.h"
#include "cm/backend.h"

#include <string.h>

static int bind_addr(struct cm_id *id, const struct sockaddr *addr)
{
	int r = cm_addr_size(addr);

	if (r < 0)
		return r;
	r = id->be->bind(id, addr);
	if (r)
		return r;
	return cm_id_refresh(id);
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	NO_CANCEL;
	int r = cm_id_check(id);

	return cm_ret(r ? r : bind_addr(to_id(id), addr));
}

static int resolve_addr(struct cm_id *id, const struct sockaddr *src,
			const struct sockaddr *dst, int timeout_ms)
{
	int len, r;

	len = cm_addr_size(dst);
	if (len < 0)
		return len;
	r = src ? cm_addr_size(src) : 0;
	if (r < 0)
		return r;
	/* The answer may be fetched before we are back from the backend. */
	lock_get(&id->apply);
	r = id->be->resolve_addr(id, src, dst, timeout_ms);
	if (!r)
		memcpy(&id->pub.route.addr.dst_storage, dst, (size_t)len);
	lock_put(&id->apply);
	return r ? r : cm_sync_complete(id, CM_SYNC_ADDR);
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src_addr,
		      struct sockaddr *dst_addr, int timeout_ms)
{
	NO_CANCEL;
	int r = cm_id_check(id);

	return cm_ret(r ? r : resolve_addr(to_id(id), src_addr, dst_addr, timeout_ms));
}

static int resolve_route(struct cm_id *id, int timeout_ms)
{
	int r;

	if (!id->pub.verbs)
		return log_refuse(EINVAL, "id %p: resolve_route before its address is "
					  "resolved", (void *)id);
	if (!timeout_ms)
		return log_refuse(EINVAL, "id %p: resolve_route with timeout 0",
				  (void *)id);
	r = id->be->resolve_route(id, timeout_ms);
	return r ? r : cm_sync_complete(id, CM_SYNC_ROUTE);
}

int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	NO_CANCEL;
	int r = cm_id_check(id);

	return cm_ret(r ? r : resolve_route(to_id(id), timeout_ms));
}
