/* SPDX-License-Identifier: BSD-2-Clause */
/* Multicast groups of an id. An entry lives until the group is left and its
 * events are acknowledged, or until the id is destroyed. */
#include "base/log.h"
#include "cm/backend.h"

#include <stdlib.h>
#include <string.h>

static int join(struct cm_id *id, const struct sockaddr *addr, uint16_t flags,
		void *context)
{
	struct cm_mcast *mc;
	int len, r;

	len = cm_addr_size(addr);
	if (len < 0)
		return len;
	mc = calloc(1, sizeof(*mc));
	if (!mc)
		return -ENOMEM;
	mc->id = id;
	mc->join_flags = flags;
	mc->context = context;
	memcpy(&mc->addr, addr, (size_t)len);
	/* On the list first: the answer may be fetched before join returns. */
	lock_get(&id->lock);
	list_add_tail(&id->mcasts, &mc->link);
	lock_put(&id->lock);
	r = id->be->join(id, mc);
	if (r) {
		lock_get(&id->lock);
		list_del(&mc->link);
		lock_put(&id->lock);
		free(mc);
		return r;
	}
	return cm_sync_complete(id, CM_SYNC_JOIN);
}

int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr, void *context)
{
	NO_CANCEL;
	int r = cm_id_check(id);

	return cm_ret(r ? r : join(to_id(id), addr, RDMA_MC_JOIN_FLAG_FULLMEMBER,
				   context));
}

int rdma_join_multicast_ex(struct rdma_cm_id *id,
			   struct rdma_cm_join_mc_attr_ex *mc_join_attr, void *context)
{
	NO_CANCEL;
	int r = cm_id_check(id);

	if (!r && !mc_join_attr)
		r = log_refuse(EINVAL, "no join attributes given");
	if (r)
		return cm_ret(r);
	if (mc_join_attr->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED)
		return cm_ret(log_refuse(ENOTSUP, "join: comp_mask 0x%x is unknown",
					 mc_join_attr->comp_mask));
	if (!(mc_join_attr->comp_mask & RDMA_CM_JOIN_MC_ATTR_ADDRESS))
		return cm_ret(log_refuse(EINVAL, "join without an address"));
	if (!(mc_join_attr->comp_mask & RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS) ||
	    mc_join_attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED)
		return cm_ret(log_refuse(EINVAL, "join without valid flags"));
	return cm_ret(join(to_id(id), mc_join_attr->addr,
			   (uint16_t)mc_join_attr->join_flags, context));
}

static struct cm_mcast *find(struct cm_id *id, const struct sockaddr *addr, size_t len)
{
	struct cm_mcast *mc, *found = NULL;

	lock_get(&id->lock);
	list_for_each(mc, &id->mcasts, link) {
		if (!memcmp(&mc->addr, addr, len)) {
			found = mc;
			break;
		}
	}
	if (found)
		list_del(&found->link);
	lock_put(&id->lock);
	return found;
}

/* The QP is attached to the group by another entry, too. */
static bool attached_twice(struct cm_id *id, const struct cm_mcast *mc)
{
	const struct cm_mcast *other;
	bool twice = false;

	lock_get(&id->lock);
	list_for_each(other, &id->mcasts, link)
		twice |= other->attached &&
			 !memcmp(&other->mgid, &mc->mgid, sizeof(mc->mgid));
	lock_put(&id->lock);
	return twice;
}

void cm_mcast_detached(struct cm_id *id)
{
	struct cm_mcast *mc;

	lock_get(&id->lock);
	list_for_each(mc, &id->mcasts, link)
		mc->attached = false;
	lock_put(&id->lock);
}

static int leave(struct cm_id *id, const struct sockaddr *addr)
{
	uint32_t delivered = 0;
	struct cm_mcast *mc;
	int len, r;

	len = cm_addr_size(addr);
	if (len < 0)
		return len;
	mc = find(id, addr, (size_t)len);
	if (!mc)
		return log_refuse(EADDRNOTAVAIL, "id %p has not joined this group",
				  (void *)id);
	lock_get(&id->apply);
	if (id->pub.qp && mc->attached && !attached_twice(id, mc))
		ibv_detach_mcast(id->pub.qp, &mc->mgid, mc->mlid);
	mc->attached = false;
	mc->left = true;
	r = id->be->leave(id, mc, &delivered);
	lock_put(&id->apply);
	if (r) {
		/* Events may still name it: it lives as long as the id. */
		mc->left = false;
		lock_get(&id->lock);
		list_add_tail(&id->mcasts, &mc->link);
		lock_put(&id->lock);
		return r;
	}
	if (id->sync && id->pub.event &&
	    container_of(id->pub.event, struct cm_event, pub)->mcast == mc)
		cm_sync_clear(id);
	cm_mcast_wait_acks(mc, delivered, "rdma_leave_multicast");
	free(mc);
	return 0;
}

int rdma_leave_multicast(struct rdma_cm_id *id, struct sockaddr *addr)
{
	NO_CANCEL;
	int r = cm_id_check(id);

	return cm_ret(r ? r : leave(to_id(id), addr));
}
