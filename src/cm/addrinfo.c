/* SPDX-License-Identifier: BSD-2-Clause */
/* rdma_getaddrinfo: names and numbers to the addresses an endpoint needs, by
 * getaddrinfo(3). The local ibacm daemon, which would add routes of InfiniBand
 * subnets, is not asked: rdma_resolve_route finds them. */
#include "base/log.h"
#include "cm/backend.h"
#include "cm/sockaddr_ib.h"

#include <endian.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

static int socktype_of(int qp_type)
{
	switch (qp_type) {
	case IBV_QPT_RC:
	case IBV_QPT_UC:
	case IBV_QPT_XRC_SEND:
	case IBV_QPT_XRC_RECV:
		return SOCK_STREAM;
	case IBV_QPT_UD:
		return SOCK_DGRAM;
	}
	return 0;
}

static int protocol_of(int ps, int socktype)
{
	switch (ps) {
	case RDMA_PS_TCP:
		return IPPROTO_TCP;
	case RDMA_PS_IPOIB:
	case RDMA_PS_UDP:
		return IPPROTO_UDP;
	case RDMA_PS_IB:
		return socktype == SOCK_STREAM ? IPPROTO_TCP :
		       socktype == SOCK_DGRAM ? IPPROTO_UDP : 0;
	}
	return 0;
}

/* node is the text of a GID, not of an IPv6 address. */
static bool wants_gid(const struct rdma_addrinfo *hints)
{
	return hints && hints->ai_family == AF_IB && (hints->ai_flags & RAI_FAMILY) &&
	       (hints->ai_flags & RAI_NUMERICHOST);
}

static void to_hints(const struct rdma_addrinfo *in, struct addrinfo *out)
{
	memset(out, 0, sizeof(*out));
	if (in->ai_flags & RAI_PASSIVE)
		out->ai_flags |= AI_PASSIVE;
	if (in->ai_flags & RAI_NUMERICHOST)
		out->ai_flags |= AI_NUMERICHOST;
	if (wants_gid(in))
		out->ai_family = AF_INET6;
	else if (in->ai_family != AF_IB)
		out->ai_family = in->ai_family;
	out->ai_socktype = socktype_of(in->ai_qp_type);
	out->ai_protocol = protocol_of(in->ai_port_space, out->ai_socktype);
}

static int copy_bytes(void **out, const void *in, size_t len)
{
	*out = malloc(len);
	if (!*out)
		return -ENOMEM;
	memcpy(*out, in, len);
	return 0;
}

static int copy_name(char **out, const char *in)
{
	*out = in ? strdup(in) : NULL;
	return in && !*out ? -ENOMEM : 0;
}

/* sid and its mask name a port space, a port, or both (RDMA_IB_IP_*). */
static int gid_sockaddr(const struct rdma_addrinfo *rai, const struct sockaddr_in6 *in,
			struct sockaddr **out)
{
	struct cm_sockaddr_ib sib;
	uint64_t mask = 0, port = be16toh(in->sin6_port);

	memset(&sib, 0, sizeof(sib));
	sib.sib_family = AF_IB;
	sib.sib_pkey = htobe16(0xFFFF);
	sib.sib_flowinfo = in->sin6_flowinfo;
	memcpy(sib.sib_addr, &in->sin6_addr, sizeof(sib.sib_addr));
	if (rai->ai_port_space)
		mask |= RDMA_IB_IP_PS_MASK;
	if (port)
		mask |= RDMA_IB_IP_PORT_MASK;
	sib.sib_sid = htobe64(((uint64_t)rai->ai_port_space << 16) + port);
	sib.sib_sid_mask = htobe64(mask);
	sib.sib_scope_id = in->sin6_scope_id;
	return copy_bytes((void **)out, &sib, sizeof(sib));
}

static int take_result(struct rdma_addrinfo *rai, const struct addrinfo *ai,
		       const struct rdma_addrinfo *hints)
{
	bool passive = hints && (hints->ai_flags & RAI_PASSIVE);
	struct sockaddr **addr = passive ? &rai->ai_src_addr : &rai->ai_dst_addr;
	char **name = passive ? &rai->ai_src_canonname : &rai->ai_dst_canonname;
	socklen_t len = ai->ai_addrlen;
	int r;

	rai->ai_flags = passive ? RAI_PASSIVE : 0;
	rai->ai_family = ai->ai_family;
	rai->ai_qp_type = hints && hints->ai_qp_type ? hints->ai_qp_type :
			  ai->ai_socktype == SOCK_DGRAM ? IBV_QPT_UD : IBV_QPT_RC;
	rai->ai_port_space = hints && hints->ai_port_space ? hints->ai_port_space :
			     ai->ai_protocol == IPPROTO_UDP ? RDMA_PS_UDP : RDMA_PS_TCP;
	if (wants_gid(hints)) {
		rai->ai_family = AF_IB;
		len = sizeof(struct cm_sockaddr_ib);
		r = gid_sockaddr(rai, (const struct sockaddr_in6 *)ai->ai_addr, addr);
	} else {
		r = copy_bytes((void **)addr, ai->ai_addr, len);
	}
	if (r)
		return r;
	*(passive ? &rai->ai_src_len : &rai->ai_dst_len) = len;
	return copy_name(name, ai->ai_canonname);
}

static int errno_of_eai(int eai)
{
	switch (eai) {
	case EAI_SYSTEM:
		return errno ? errno : EIO;
	case EAI_AGAIN:
		return EAGAIN;
	case EAI_MEMORY:
		return ENOMEM;
	case EAI_FAMILY:
	case EAI_SOCKTYPE:
		return EAFNOSUPPORT;
	case EAI_NONAME:
		return ENOENT;
	case EAI_FAIL:
		return EIO;
	}
	return EINVAL;
}

static int from_names(struct rdma_addrinfo *rai, const char *node, const char *service,
		      const struct rdma_addrinfo *hints, int *eai)
{
	struct addrinfo ai_hints, *ai = NULL;
	int r;

	if (hints)
		to_hints(hints, &ai_hints);
	*eai = getaddrinfo(node, service, hints ? &ai_hints : NULL, &ai);
	if (*eai)
		return log_refuse(errno_of_eai(*eai), "node %s, service %s: %s",
				  node ? node : "(none)", service ? service : "(none)",
				  gai_strerror(*eai));
	r = take_result(rai, ai, hints);
	freeaddrinfo(ai);
	return r;
}

static int from_hints(struct rdma_addrinfo *rai, const struct rdma_addrinfo *hints)
{
	int r;

	rai->ai_flags = hints->ai_flags;
	rai->ai_family = hints->ai_family;
	rai->ai_qp_type = hints->ai_qp_type;
	rai->ai_port_space = hints->ai_port_space;
	if (!hints->ai_dst_len)
		return 0;
	r = copy_bytes((void **)&rai->ai_dst_addr, hints->ai_dst_addr,
		       hints->ai_dst_len);
	if (!r)
		rai->ai_dst_len = hints->ai_dst_len;
	return r;
}

/* Asks the subnet administrator through one port: an id bound to its first GID. */
static int ask_port(struct ibv_context *verbs, uint8_t port, const char *service,
		    struct rdma_addrinfo **res)
{
	struct rdma_addrinfo sa = { .ai_flags = RAI_SA };
	struct cm_sockaddr_ib sib = {
		.sib_family = AF_IB,
		.sib_pkey = htobe16(0xFFFF),
		.sib_sid = htobe64((uint64_t)RDMA_PS_IB << 16),
		.sib_sid_mask = htobe64(RDMA_IB_IP_PS_MASK),
	};
	struct rdma_cm_id *id;
	union ibv_gid gid;
	int r;

	if (ibv_query_gid(verbs, port, 0, &gid))
		return -ENODEV;
	memcpy(sib.sib_addr, &gid, sizeof(sib.sib_addr));
	if (rdma_create_id(NULL, &id, NULL, RDMA_PS_IB))
		return -errno;
	r = 0;
	if (rdma_bind_addr(id, (struct sockaddr *)&sib) ||
	    rdma_resolve_addrinfo(id, NULL, service, &sa) ||
	    rdma_query_addrinfo(id, res))
		r = -errno;
	rdma_destroy_id(id);
	return r;
}

/* Through each InfiniBand port, until one knows the service. */
static int ask_device(struct ibv_context *verbs, const char *service,
		      struct rdma_addrinfo **res)
{
	struct ibv_device_attr dev;
	struct ibv_port_attr attr;
	int port, r = -ENOENT;

	if (ibv_query_device(verbs, &dev))
		return r;
	for (port = 1; port <= dev.phys_port_cnt && r; port++) {
		if (ibv_query_port(verbs, (uint8_t)port, &attr) ||
		    attr.link_layer != IBV_LINK_LAYER_INFINIBAND ||
		    attr.state != IBV_PORT_ACTIVE)
			continue;
		r = ask_port(verbs, (uint8_t)port, service, res);
	}
	return r;
}

/* Service records are kept by the subnet administrator of an InfiniBand fabric:
 * only ports of that link layer can ask. */
static int from_sa(const char *node, const char *service,
		   const struct rdma_addrinfo *hints, struct rdma_addrinfo **res)
{
	struct ibv_context **list;
	int i, one, r = -ENOENT;

	if (node || (hints->ai_flags & RAI_DNS))
		return log_refuse(EOPNOTSUPP, "RAI_SA goes with a service alone");
	if (!service)
		return log_refuse(EINVAL, "RAI_SA needs a service");
	list = rdma_get_devices(NULL);
	if (!list)
		return -errno;
	for (i = 0; list[i] && r; i++) {
		one = ask_device(list[i], service, res);
		if (!one || r == -ENOENT)
			r = one;
	}
	rdma_free_devices(list);
	if (r)
		return log_refuse(-r, "service %s: no InfiniBand port knows it", service);
	return 0;
}

int cm_addrinfo_get(const char *node, const char *service,
		    const struct rdma_addrinfo *hints, struct rdma_addrinfo **res,
		    int *eai)
{
	struct rdma_addrinfo *rai;
	int r = 0;

	*eai = 0;
	if (!node && !service && !hints)
		return log_refuse(EINVAL, "neither node nor service nor hints given");
	if (!cm_backend_get(&r))
		return r;
	if (hints && (hints->ai_flags & RAI_SA))
		return from_sa(node, service, hints, res);
	rai = calloc(1, sizeof(*rai));
	if (!rai)
		return -ENOMEM;
	r = node || service ? from_names(rai, node, service, hints, eai) :
			      from_hints(rai, hints);
	if (!r && hints && hints->ai_src_len && !rai->ai_src_len) {
		r = copy_bytes((void **)&rai->ai_src_addr, hints->ai_src_addr,
			       hints->ai_src_len);
		rai->ai_src_len = r ? 0 : hints->ai_src_len;
	}
	if (r) {
		rdma_freeaddrinfo(rai);
		return r;
	}
	*res = rai;
	return 0;
}

int rdma_getaddrinfo(const char *node, const char *service,
		     const struct rdma_addrinfo *hints, struct rdma_addrinfo **res)
{
	NO_CANCEL;
	int eai, r;

	if (!res)
		return cm_ret(log_refuse(EINVAL, "no place for the result given"));
	r = cm_addrinfo_get(node, service, hints, res, &eai);
	cm_ret(r);
	return eai ? eai : r ? -1 : 0;
}

void rdma_freeaddrinfo(struct rdma_addrinfo *res)
{
	struct rdma_addrinfo *next;

	for (; res; res = next) {
		next = res->ai_next;
		free(res->ai_connect);
		free(res->ai_route);
		free(res->ai_src_canonname);
		free(res->ai_dst_canonname);
		free(res->ai_src_addr);
		free(res->ai_dst_addr);
		free(res);
	}
}
