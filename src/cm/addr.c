/* SPDX-License-Identifier: BSD-2-Clause */
/* Addresses of ids: checks, the public fields, ports. */
#include "base/log.h"
#include "cm/backend.h"
#include "cm/device.h"
#include "cm/sockaddr_ib.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PATHS = 6 };

int cm_addr_size(const struct sockaddr *addr)
{
	if (!addr)
		return log_refuse(EINVAL, "no address given");
	switch (addr->sa_family) {
	case AF_INET:
		return sizeof(struct sockaddr_in);
	case AF_INET6:
		return sizeof(struct sockaddr_in6);
	case AF_IB:
		return sizeof(struct cm_sockaddr_ib);
	}
	return log_refuse(EINVAL, "address family %d is none of AF_INET, AF_INET6, AF_IB",
			  addr->sa_family);
}

static int attach_device(struct cm_id *id, const struct cm_addrs *a)
{
	int r;

	if (id->dev)
		return 0;
	r = cm_device_get(a->node_guid, a->dev_index, &id->dev);
	if (r)
		return r;
	id->pub.verbs = id->dev->verbs;
	id->pub.port_num = a->port_num;
	id->pub.route.addr.addr.ibaddr.pkey = a->pkey;
	if (!id->pub.pd)
		id->pub.pd = id->dev->pd;
	return 0;
}

static int refresh_gids(struct cm_id *id, struct cm_addrs *a)
{
	struct rdma_addr *pub = &id->pub.route.addr;
	int r = id->be->query_gid ? id->be->query_gid(id, a) : 0;

	if (r)
		return r;
	pub->addr.ibaddr.sgid = a->sgid;
	pub->addr.ibaddr.dgid = a->dgid;
	return 0;
}

static int refresh(struct cm_id *id, bool gids)
{
	struct rdma_addr *pub = &id->pub.route.addr;
	struct cm_addrs a;
	int r;

	memset(&a, 0, sizeof(a));
	a.dev_index = UINT32_MAX;
	r = id->be->query_addr(id, &a);
	if (r)
		return r;
	if (a.bound) {
		r = attach_device(id, &a);
		if (r)
			return r;
	}
	if (a.src.ss_family)
		pub->src_storage = a.src;
	if (a.dst.ss_family)
		pub->dst_storage = a.dst;
	if (gids && a.bound &&
	    id->pub.verbs->device->transport_type == IBV_TRANSPORT_IB)
		return refresh_gids(id, &a);
	return 0;
}

int cm_id_refresh(struct cm_id *id)
{
	return refresh(id, true);
}

int cm_id_refresh_addr(struct cm_id *id)
{
	return refresh(id, false);
}

static void path_to_public(const struct ibv_path_data *in, struct ibv_sa_path_rec *out)
{
	const struct ibv_path_record *p = &in->path;

	memset(out, 0, sizeof(*out));
	out->dgid = p->dgid;
	out->sgid = p->sgid;
	out->dlid = p->dlid;
	out->slid = p->slid;
	out->flow_label = htobe32(be32toh(p->flowlabel_hoplimit) >> 8);
	out->hop_limit = (uint8_t)be32toh(p->flowlabel_hoplimit);
	out->traffic_class = p->tclass;
	out->reversible = p->reversible_numpath >> 7;
	out->numb_path = 1;
	out->pkey = p->pkey;
	out->sl = be16toh(p->qosclass_sl) & 0xF;
	out->mtu_selector = 2; /* exactly */
	out->mtu = p->mtu & 0x1F;
	out->rate_selector = 2;
	out->rate = p->rate & 0x1F;
	out->packet_life_time_selector = 2;
	out->packet_life_time = p->packetlifetime & 0x1F;
	out->preference = (uint8_t)in->flags;
}

int cm_id_refresh_path(struct cm_id *id)
{
	struct ibv_path_data data[MAX_PATHS];
	struct ibv_sa_path_rec *rec = NULL;
	int i, n;

	if (!id->pub.verbs ||
	    id->pub.verbs->device->transport_type != IBV_TRANSPORT_IB)
		return 0;
	memset(data, 0, sizeof(data));
	n = id->be->query_path(id, data, MAX_PATHS);
	if (n < 0)
		return n;
	if (n > MAX_PATHS)
		n = MAX_PATHS;
	if (n) {
		rec = calloc(n, sizeof(*rec));
		if (!rec)
			return -ENOMEM;
	}
	for (i = 0; i < n; i++)
		path_to_public(&data[i], &rec[i]);
	free(id->pub.route.path_rec);
	id->pub.route.path_rec = rec;
	id->pub.route.num_paths = n;
	return 0;
}

static __be16 port_of(const struct sockaddr_storage *ss)
{
	switch (ss->ss_family) {
	case AF_INET:
		return ((const struct sockaddr_in *)ss)->sin_port;
	case AF_INET6:
		return ((const struct sockaddr_in6 *)ss)->sin6_port;
	case AF_IB:
		return htobe16((uint16_t)be64toh(
			((const struct cm_sockaddr_ib *)ss)->sib_sid));
	}
	return 0;
}

__be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	return id ? port_of(&id->route.addr.src_storage) : 0;
}

__be16 rdma_get_dst_port(struct rdma_cm_id *id)
{
	return id ? port_of(&id->route.addr.dst_storage) : 0;
}
