/* SPDX-License-Identifier: BSD-2-Clause */
/* Endpoints: a synchronous id made from an rdma_addrinfo. */
#include "base/log.h"
#include "cm/backend.h"

#include <stdlib.h>
#include <string.h>

enum { RESOLVE_MS = 2000 };

static int make_passive(struct cm_id *id, const struct rdma_addrinfo *res,
			struct ibv_pd *pd, const struct ibv_qp_init_attr *attr)
{
	if (rdma_bind_addr(&id->pub, res->ai_src_addr))
		return -errno;
	if (pd)
		id->pub.pd = pd;
	if (!attr)
		return 0;
	id->ep_attr = malloc(sizeof(*attr));
	if (!id->ep_attr)
		return -ENOMEM;
	*id->ep_attr = *attr;
	id->ep_attr->qp_type = (enum ibv_qp_type)res->ai_qp_type;
	return 0;
}

static int make_route(struct cm_id *id, const struct rdma_addrinfo *res)
{
	NO_CANCEL; /* the second: nobody else knows the id */

	if (!res->ai_route_len)
		return rdma_resolve_route(&id->pub, RESOLVE_MS) ? -errno : 0;
	if (rdma_set_option(&id->pub, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH,
			    res->ai_route, res->ai_route_len))
		return -errno;
	return cm_sync_complete(id, CM_SYNC_ROUTE);
}

static int make_active(struct cm_id *id, const struct rdma_addrinfo *res,
		       struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	int r;

	if (rdma_resolve_addr(&id->pub, res->ai_src_addr, res->ai_dst_addr, RESOLVE_MS))
		return -errno;
	r = make_route(id, res);
	if (r)
		return r;
	if (res->ai_connect_len) {
		id->connect_blob = malloc(res->ai_connect_len);
		if (!id->connect_blob)
			return -ENOMEM;
		memcpy(id->connect_blob, res->ai_connect, res->ai_connect_len);
		id->connect_blob_len = res->ai_connect_len;
	}
	if (attr) {
		attr->qp_type = (enum ibv_qp_type)res->ai_qp_type;
		if (rdma_create_qp(&id->pub, pd, attr))
			return -errno;
	}
	return 0;
}

int rdma_create_ep(struct rdma_cm_id **id, struct rdma_addrinfo *res,
		   struct ibv_pd *pd, struct ibv_qp_init_attr *qp_init_attr)
{
	NO_CANCEL;
	struct cm_id *new;
	int r = 0;

	if (!cm_backend_get(&r))
		return cm_ret(r);
	if (!id || !res)
		return cm_ret(log_refuse(EINVAL, "no %s given",
					 id ? "address information" :
					      "place for the id"));
	r = cm_id_new(NULL, (enum rdma_port_space)res->ai_port_space,
		      (enum ibv_qp_type)res->ai_qp_type, NULL, NULL, &new);
	if (r)
		return cm_ret(r);
	r = res->ai_flags & RAI_PASSIVE ? make_passive(new, res, pd, qp_init_attr) :
					  make_active(new, res, pd, qp_init_attr);
	if (r) {
		rdma_destroy_ep(&new->pub);
		return cm_ret(r);
	}
	*id = &new->pub;
	return 0;
}

void rdma_destroy_ep(struct rdma_cm_id *id)
{
	NO_CANCEL;

	if (!id)
		return;
	rdma_destroy_qp(id);
	rdma_destroy_srq(id);
	rdma_destroy_id(id);
}
