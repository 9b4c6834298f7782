/* SPDX-License-Identifier: BSD-2-Clause */
/* Addresses: bind, resolve, and the queries. Kernels without AF_IB have commands
 * for IP addresses alone, and one query for everything. */
#include "base/log.h"
#include "cm/kernel/kernel.h"
#include "cm/sockaddr_ib.h"

#include <endian.h>
#include <netinet/in.h>
#include <string.h>

enum { PATHS = 6 };

/* Into the storage of one address; its size, or -EINVAL. */
static int put(void *to, const struct sockaddr *addr, bool any_family)
{
	int len = cm_addr_size(addr);

	if (len > 0 && addr->sa_family == AF_IB && !any_family)
		return log_refuse(EINVAL, "this kernel does not take AF_IB addresses");
	if (len > 0)
		memcpy(to, addr, (size_t)len);
	return len;
}

int kernel_raw_bind(int fd, uint32_t handle, const struct sockaddr *addr, bool any_family)
{
	KERNEL_REQ(req, rdma_ucm_bind);
	KERNEL_REQ(old, rdma_ucm_bind_ip);
	int len;

	if (any_family) {
		len = put(&req.p.addr, addr, true);
		if (len < 0)
			return len;
		req.p.id = handle;
		req.p.addr_size = (uint16_t)len;
		return kernel_command(fd, RDMA_USER_CM_CMD_BIND, &req, 0);
	}
	len = put(&old.p.addr, addr, false);
	if (len < 0)
		return len;
	old.p.id = handle;
	return kernel_command(fd, RDMA_USER_CM_CMD_BIND_IP, &old, 0);
}

int kernel_bind(struct cm_id *id, const struct sockaddr *addr)
{
	return kernel_raw_bind(kernel_fd(id), to_kernel(id)->handle, addr,
			       kernel_has_af_ib());
}

static int resolve_ip(int fd, uint32_t handle, const struct sockaddr *src,
		      const struct sockaddr *dst, int timeout_ms)
{
	KERNEL_REQ(req, rdma_ucm_resolve_ip);
	int r = put(&req.p.dst_addr, dst, false);

	if (r >= 0 && src)
		r = put(&req.p.src_addr, src, false);
	if (r < 0)
		return r;
	req.p.id = handle;
	req.p.timeout_ms = (uint32_t)timeout_ms;
	return kernel_command(fd, RDMA_USER_CM_CMD_RESOLVE_IP, &req, 0);
}

int kernel_raw_resolve(int fd, uint32_t handle, const struct sockaddr *src,
		       const struct sockaddr *dst, int timeout_ms)
{
	KERNEL_REQ(req, rdma_ucm_resolve_addr);
	int len;

	if (!kernel_has_af_ib())
		return resolve_ip(fd, handle, src, dst, timeout_ms);
	len = put(&req.p.dst_addr, dst, true);
	if (len < 0)
		return len;
	req.p.dst_size = (uint16_t)len;
	if (src) {
		len = put(&req.p.src_addr, src, true);
		if (len < 0)
			return len;
		req.p.src_size = (uint16_t)len;
	}
	req.p.id = handle;
	req.p.timeout_ms = (uint32_t)timeout_ms;
	return kernel_command(fd, RDMA_USER_CM_CMD_RESOLVE_ADDR, &req, 0);
}

int kernel_resolve_addr(struct cm_id *id, const struct sockaddr *src,
			const struct sockaddr *dst, int timeout_ms)
{
	return kernel_raw_resolve(kernel_fd(id), to_kernel(id)->handle, src, dst,
				  timeout_ms);
}

/* ---- queries ------------------------------------------------------------------ */

static int query(struct cm_id *id, uint32_t option, void *resp, size_t len)
{
	KERNEL_REQ(req, rdma_ucm_query);

	req.p.response = (uintptr_t)resp;
	req.p.id = to_kernel(id)->handle;
	req.p.option = option;
	return kernel_command(kernel_fd(id), RDMA_USER_CM_CMD_QUERY, &req, len);
}

static int query_route(struct cm_id *id, struct rdma_ucm_query_route_resp *resp)
{
	KERNEL_REQ(req, rdma_ucm_query);

	memset(resp, 0, sizeof(*resp));
	resp->ibdev_index = UINT32_MAX; /* an old kernel does not write it */
	req.p.response = (uintptr_t)resp;
	req.p.id = to_kernel(id)->handle;
	return kernel_command(kernel_fd(id), RDMA_USER_CM_CMD_QUERY_ROUTE, &req,
			   sizeof(*resp));
}

/* A device has a port; its GUID may be 0. */
static void set_device(struct cm_addrs *out, uint64_t guid, uint32_t index, uint8_t port)
{
	out->bound = guid || port;
	out->node_guid = guid;
	out->dev_index = index;
	out->port_num = port;
}

static int query_addr_ip(struct cm_id *id, struct cm_addrs *out)
{
	struct rdma_ucm_query_route_resp resp;
	int r = query_route(id, &resp);

	if (r)
		return r;
	memcpy(&out->src, &resp.src_addr, sizeof(resp.src_addr));
	memcpy(&out->dst, &resp.dst_addr, sizeof(resp.dst_addr));
	set_device(out, resp.node_guid, resp.ibdev_index, resp.port_num);
	/* The first entry has these even when there is no route. */
	memcpy(&out->sgid, resp.ib_route[0].sgid, sizeof(out->sgid));
	memcpy(&out->dgid, resp.ib_route[0].dgid, sizeof(out->dgid));
	out->pkey = resp.ib_route[0].pkey;
	return 0;
}

int kernel_query_addr(struct cm_id *id, struct cm_addrs *out)
{
	struct rdma_ucm_query_addr_resp resp;
	int r;

	if (!kernel_has_af_ib())
		return query_addr_ip(id, out);
	memset(&resp, 0, sizeof(resp));
	resp.ibdev_index = UINT32_MAX;
	r = query(id, RDMA_USER_CM_QUERY_ADDR, &resp, sizeof(resp));
	if (r)
		return r;
	if (resp.src_size && resp.src_size <= sizeof(out->src))
		memcpy(&out->src, &resp.src_addr, resp.src_size);
	if (resp.dst_size && resp.dst_size <= sizeof(out->dst))
		memcpy(&out->dst, &resp.dst_addr, resp.dst_size);
	set_device(out, resp.node_guid, resp.ibdev_index, resp.port_num);
	out->pkey = resp.pkey;
	return 0;
}

static void take_gid(const void *addr, union ibv_gid *gid)
{
	struct cm_sockaddr_ib sib;

	memcpy(&sib, addr, sizeof(sib));
	memcpy(gid, sib.sib_addr, sizeof(*gid));
}

int kernel_query_gid(struct cm_id *id, struct cm_addrs *out)
{
	struct rdma_ucm_query_addr_resp resp;
	int r;

	if (!kernel_has_af_ib())
		return 0; /* known already */
	memset(&resp, 0, sizeof(resp));
	r = query(id, RDMA_USER_CM_QUERY_GID, &resp, sizeof(resp));
	if (r)
		return r;
	take_gid(&resp.src_addr, &out->sgid);
	take_gid(&resp.dst_addr, &out->dgid);
	return 0;
}

/* The SA's own form of a path record, which the newer query answers in. */
static void pack_path(const struct ib_user_path_rec *in, struct ibv_path_data *out)
{
	struct ibv_path_record *p = &out->path;

	memset(out, 0, sizeof(*out));
	out->flags = in->preference;
	memcpy(&p->dgid, in->dgid, sizeof(p->dgid));
	memcpy(&p->sgid, in->sgid, sizeof(p->sgid));
	p->dlid = in->dlid;
	p->slid = in->slid;
	p->flowlabel_hoplimit = htobe32(be32toh(in->flow_label) << 8 | in->hop_limit);
	p->tclass = in->traffic_class;
	p->reversible_numpath = (uint8_t)(!!in->reversible << 7 | (in->numb_path & 0x7F));
	p->pkey = in->pkey;
	p->qosclass_sl = htobe16(in->sl & 0xF);
	p->mtu = (uint8_t)(in->mtu_selector << 6 | (in->mtu & 0x3F));
	p->rate = (uint8_t)(in->rate_selector << 6 | (in->rate & 0x3F));
	p->packetlifetime = (uint8_t)(in->packet_life_time_selector << 6 |
				      (in->packet_life_time & 0x3F));
	p->preference = in->preference;
}

static int query_path_ip(struct cm_id *id, struct ibv_path_data *path, int max)
{
	struct rdma_ucm_query_route_resp resp;
	int i, r = query_route(id, &resp);

	if (r)
		return r;
	for (i = 0; i < max && i < 2 && (uint32_t)i < resp.num_paths; i++)
		pack_path(&resp.ib_route[i], &path[i]);
	return i;
}

int kernel_query_path(struct cm_id *id, struct ibv_path_data *path, int max)
{
	struct { /* rdma_ucm_query_path_resp with its array */
		uint32_t num_paths, reserved;
		struct ibv_path_data data[PATHS];
	} resp;
	int i, r;

	_Static_assert(sizeof(struct ibv_path_data) == sizeof(struct ib_path_rec_data),
		       "ABI");
	if (!kernel_has_af_ib())
		return query_path_ip(id, path, max);
	memset(&resp, 0, sizeof(resp));
	r = query(id, RDMA_USER_CM_QUERY_PATH, &resp, sizeof(resp));
	if (r)
		return r;
	/* The kernel's count may be above what it had room to copy. */
	for (i = 0; i < max && i < PATHS && (uint32_t)i < resp.num_paths; i++)
		path[i] = resp.data[i];
	return i;
}
