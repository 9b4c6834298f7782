/* SPDX-License-Identifier: BSD-2-Clause */
/* Multicast groups. */
#include "base/log.h"
#include "cm/kernel/kernel.h"
#include "cm/sockaddr_ib.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

static int join_ip(struct cm_id *id, struct cm_mcast *mc, struct kernel_obj *o,
		   struct rdma_ucm_create_id_resp *resp)
{
	KERNEL_REQ(req, rdma_ucm_join_ip_mcast);

	if (mc->addr.ss_family == AF_IB)
		return log_refuse(EINVAL, "this kernel does not take AF_IB addresses");
	req.p.response = (uintptr_t)resp;
	req.p.uid = o->uid;
	req.p.id = to_kernel(id)->handle;
	memcpy(&req.p.addr, &mc->addr, sizeof(req.p.addr));
	return kernel_command(kernel_fd(id), RDMA_USER_CM_CMD_JOIN_IP_MCAST, &req,
			   sizeof(*resp));
}

static int join_any(struct cm_id *id, struct cm_mcast *mc, struct kernel_obj *o,
		    struct rdma_ucm_create_id_resp *resp)
{
	KERNEL_REQ(req, rdma_ucm_join_mcast);

	req.p.response = (uintptr_t)resp;
	req.p.uid = o->uid;
	req.p.id = to_kernel(id)->handle;
	req.p.addr_size = (uint16_t)cm_addr_size((struct sockaddr *)&mc->addr);
	req.p.join_flags = mc->join_flags;
	memcpy(&req.p.addr, &mc->addr, req.p.addr_size);
	return kernel_command(kernel_fd(id), RDMA_USER_CM_CMD_JOIN_MCAST, &req,
			   sizeof(*resp));
}

static void forget(struct cm_mcast *mc)
{
	struct kernel_obj *o = mc->be_mc;

	mc->be_mc = NULL;
	if (!o)
		return;
	kernel_obj_unregister(o);
	free(o);
}

int kernel_join(struct cm_id *id, struct cm_mcast *mc)
{
	struct rdma_ucm_create_id_resp resp = { 0 };
	struct kernel_obj *o = kernel_obj_new(NULL);
	int r;

	if (!o)
		return -ENOMEM;
	o->id = id;
	o->mc = mc;
	mc->be_mc = o;
	r = kernel_obj_register(o);
	if (!r)
		r = kernel_has_af_ib() ? join_any(id, mc, o, &resp) :
					 join_ip(id, mc, o, &resp);
	if (r)
		forget(mc);
	else
		o->handle = resp.id;
	return r;
}

int kernel_leave(struct cm_id *id, struct cm_mcast *mc, uint32_t *delivered)
{
	KERNEL_REQ(req, rdma_ucm_destroy_id);
	struct rdma_ucm_destroy_id_resp resp = { 0 };
	struct kernel_obj *o = mc->be_mc;
	int r;

	req.p.response = (uintptr_t)&resp;
	req.p.id = o->handle;
	r = kernel_command(kernel_fd(id), RDMA_USER_CM_CMD_LEAVE_MCAST, &req, sizeof(resp));
	if (r)
		return r;
	kernel_obj_settle(o, resp.events_reported);
	forget(mc);
	cm_event_purge_mcast(mc);
	kernel_wake_settle(to_channel(id->pub.channel));
	*delivered = cm_event_delivered_mcast(mc);
	return 0;
}

void kernel_mcast_forget(struct cm_id *id)
{
	struct cm_mcast *mc;

	/* Nobody else has the list any more. */
	list_for_each(mc, &id->mcasts, link)
		forget(mc);
}
