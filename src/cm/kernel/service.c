/* SPDX-License-Identifier: BSD-2-Clause */
/* Services of an InfiniBand subnet: looked up by the kernel at the SA. */
#include "base/log.h"
#include "cm/kernel/kernel.h"
#include "cm/sockaddr_ib.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

enum { RECORDS = 8 };

int kernel_resolve_service(struct cm_id *id, const char *service)
{
	KERNEL_REQ(req, kernel_resolve_ib_service);
	size_t len = strlen(service);
	char *end;
	int r;

	req.p.id = to_kernel(id)->handle;
	req.p.service_id = strtoull(service, &end, 0);
	if (len && !*end) {
		req.p.flags = KERNEL_SERVICE_ID;
	} else {
		if (len >= sizeof(req.p.name))
			return log_refuse(EINVAL, "service name of %zu characters", len);
		req.p.service_id = 0;
		memcpy(req.p.name, service, len);
		req.p.flags = KERNEL_SERVICE_NAME;
	}
	r = kernel_command(kernel_fd(id), KERNEL_CMD_RESOLVE_IB_SERVICE, &req, 0);
	if (r == -EINVAL && !kernel_knows(kernel_fd(id), KERNEL_CMD_RESOLVE_IB_SERVICE,
					  &req.hdr, sizeof(req), &req.p.id))
		return log_refuse(EOPNOTSUPP, "this kernel does not look up services");
	return r;
}

/* Until the buffer holds all: the kernel tells how many there are. */
static int query(struct cm_id *id, struct kernel_query_service_resp **out)
{
	KERNEL_REQ(req, rdma_ucm_query);
	struct kernel_query_service_resp *resp;
	uint32_t room = RECORDS;
	size_t len;
	int r;

	for (;;) {
		len = sizeof(*resp) + room * sizeof(resp->recs[0]);
		if (len > UINT16_MAX)
			len = UINT16_MAX;
		room = (uint32_t)((len - sizeof(*resp)) / sizeof(resp->recs[0]));
		resp = calloc(1, len);
		if (!resp)
			return -ENOMEM;
		req.p.response = (uintptr_t)resp;
		req.p.id = to_kernel(id)->handle;
		req.p.option = KERNEL_QUERY_IB_SERVICE;
		r = kernel_command(kernel_fd(id), RDMA_USER_CM_CMD_QUERY, &req, len);
		if (!r && (resp->count <= room || len == UINT16_MAX)) {
			if (resp->count > room)
				resp->count = room;
			*out = resp;
			return 0;
		}
		room = resp->count;
		free(resp);
		if (r)
			return r;
	}
}

static struct cm_sockaddr_ib *sockaddr(const void *gid)
{
	struct cm_sockaddr_ib *sib = calloc(1, sizeof(*sib));

	if (sib) {
		sib->sib_family = AF_IB;
		memcpy(sib->sib_addr, gid, sizeof(sib->sib_addr));
	}
	return sib;
}

static struct rdma_addrinfo *entry(struct cm_id *id, const struct kernel_service_rec *rec)
{
	struct rdma_addrinfo *ai = calloc(1, sizeof(*ai));
	struct cm_sockaddr_ib *dst = sockaddr(rec->gid);
	struct cm_sockaddr_ib *src = sockaddr(&id->pub.route.addr.addr.ibaddr.sgid);

	if (!ai || !dst || !src) {
		free(ai);
		free(dst);
		free(src);
		return NULL;
	}
	dst->sib_pkey = rec->pkey;
	dst->sib_sid = rec->id;
	dst->sib_sid_mask = ~(__be64)0;
	src->sib_pkey = id->pub.route.addr.addr.ibaddr.pkey;
	ai->ai_flags = RAI_SA;
	ai->ai_family = AF_IB;
	ai->ai_port_space = RDMA_PS_IB;
	ai->ai_src_addr = (struct sockaddr *)src;
	ai->ai_dst_addr = (struct sockaddr *)dst;
	ai->ai_src_len = ai->ai_dst_len = sizeof(*dst);
	return ai;
}

int kernel_query_service(struct cm_id *id, struct rdma_addrinfo **res)
{
	struct kernel_query_service_resp *resp;
	struct rdma_addrinfo *ai;
	uint32_t i;
	int r;

	*res = NULL;
	r = query(id, &resp);
	if (r)
		return r;
	for (i = resp->count; i; i--) {
		ai = entry(id, &resp->recs[i - 1]);
		if (!ai) {
			r = -ENOMEM;
			break;
		}
		ai->ai_next = *res;
		*res = ai;
	}
	if (!r && !resp->count)
		r = log_refuse(ENOENT, "id %p: the subnet has no such service", (void *)id);
	free(resp);
	if (r) {
		rdma_freeaddrinfo(*res);
		*res = NULL;
	}
	return r;
}
