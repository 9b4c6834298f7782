/* SPDX-License-Identifier: BSD-2-Clause */
/* Addresses of sockets. */
#include "rsocket/rs.h"

#include <errno.h>

static socklen_t sa_len(const struct sockaddr *a)
{
	switch (a->sa_family) {
	case AF_INET:
		return sizeof(struct sockaddr_in);
	case AF_INET6:
		return sizeof(struct sockaddr_in6);
	default:
		return sizeof(struct sockaddr_storage);
	}
}

void name_copy(const struct sockaddr *from, struct sockaddr *to, socklen_t *len)
{
	socklen_t n = sa_len(from);

	memcpy(to, from, *len < n ? *len : n);
	*len = n;
}

int rs_name(struct rs *rs, bool peer, struct sockaddr *addr, socklen_t *len)
{
	struct sockaddr_storage any = { .ss_family = (sa_family_t)rs->domain };
	struct sockaddr *from;

	if (!addr || !len)
		return -EFAULT;
	if ((int)*len < 0)
		return -EINVAL;
	if (peer && rs_state(rs) != RS_CONNECTED)
		return -ENOTCONN;
	from = peer ? rdma_get_peer_addr(rs->id) : rdma_get_local_addr(rs->id);
	if (!from->sa_family)
		from = (struct sockaddr *)&any;
	name_copy(from, addr, len);
	return 0;
}
