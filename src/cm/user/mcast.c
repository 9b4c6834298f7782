/* SPDX-License-Identifier: BSD-2-Clause */
/* Multicast groups of an id. On Ethernet nobody has to be asked: a group is its address,
 * and the host joins it when a QP is attached (the device's part). So a join is an event
 * that names the group. */
#include "base/be.h"
#include "base/conf.h"
#include "base/log.h"
#include "cm/sockaddr_ib.h"
#include "cm/user/user.h"

#include <netinet/in.h>
#include <stddef.h>
#include <string.h>

enum { QPN_MCAST = 0xffffff };

_Static_assert(offsetof(struct cm_sockaddr_ib, sib_addr) ==
	       offsetof(struct sockaddr_in6, sin6_addr),
	       "IPv6 addresses and GIDs are at the same place");

/* The GID of the group; false: the zero address, which asks a subnet manager for a
 * new group. */
static bool group_gid(const struct sockaddr_storage *ss, union ibv_gid *gid)
{
	const struct sockaddr_in *in4 = (const struct sockaddr_in *)ss;

	if (ss->ss_family == AF_INET) {
		cm_dev->gid_from_addr((const struct sockaddr *)ss, gid);
		return ntohl(in4->sin_addr.s_addr) >> 24; /* 0.0.0.0/8 is no address */
	}
	memcpy(gid, &((const struct sockaddr_in6 *)ss)->sin6_addr, sizeof(*gid));
	return !IN6_IS_ADDR_UNSPECIFIED((const struct in6_addr *)gid->raw);
}

/* On InfiniBand: the MGID that IPoIB has for the address (RFC 4391 section 4), with the
 * signature of the CM in RDMA_PS_UDP, as the kernel's. What is one already stays. */
static void ipoib_gid(const struct sockaddr_storage *ss, enum rdma_port_space ps,
		      union ibv_gid *gid)
{
	enum { V4_SIGNATURE = 0x401b, V6_SIGNATURE = 0x601b, SIGNATURE = 2, PKEY = 4, V6_LOW = 6 };
	union ibv_gid from = *gid;
	bool v4 = ss->ss_family == AF_INET;

	if (!v4 && (ss->ss_family != AF_INET6 ||
		    ((from.raw[1] & 0xf0) == 0x10 && from.raw[2] == 0xa0 && from.raw[3] == 0x1b)))
		return;
	memset(gid, 0, sizeof(*gid));
	gid->raw[0] = 0xff;
	gid->raw[1] = 0x12; /* transient, of the link */
	be16_put(gid->raw + SIGNATURE, v4 ? V4_SIGNATURE : V6_SIGNATURE);
	if (ps == RDMA_PS_UDP)
		gid->raw[SIGNATURE + 1] = 0x01;
	be16_put(gid->raw + PKEY, 0xffff);
	if (v4) {
		memcpy(gid->raw + 12, from.raw + 12, 4);
		gid->raw[12] &= 0x0f;
	} else {
		memcpy(gid->raw + V6_LOW, from.raw + V6_LOW, 16 - V6_LOW);
	}
}

static int join_check(struct user_id *u) REQUIRES(u->lock)
{
	if (u->state == US_REMOVED)
		return -ENXIO;
	if (u->state != US_BOUND && u->state != US_ADDR_RESOLVED)
		return log_refuse(EINVAL, "join is refused: the id is in state %s",
				  user_state_str(u->state));
	if (!user_is_ud(u))
		return log_refuse(EINVAL, "join is refused: the id's QP type is %d, not UD",
				  (int)u->qp_type);
	if (!u->bound)
		return log_refuse(EINVAL, "join is refused: the id has no device");
	return 0;
}

static int join_locked(struct user_id *u, struct cm_mcast *mc) REQUIRES(u->lock)
{
	struct ibv_ah_attr ah;
	union ibv_gid mgid;
	int ret = join_check(u);

	if (ret)
		return ret;
	if (!group_gid(&mc->addr, &mgid))
		return log_refuse(EINVAL, "join: the zero address is no group");
	if (conf_get()->link_ib)
		ipoib_gid(&mc->addr, u->ps, &mgid);
	ret = user_ah_attr(u, &mgid, &ah);
	if (!ret)
		ret = user_event_reserve(u, USER_EVENT_ONE);
	if (ret)
		return ret;
	/* As for QPs of the id, should it have none yet. */
	if (!u->qkey)
		u->qkey = RDMA_UDP_QKEY;
	user_post_join(u, mc, &ah, QPN_MCAST);
	return 0;
}

int user_join(struct cm_id *id, struct cm_mcast *mc)
{
	struct user_id *u = to_user(id);
	int ret;

	lock_get(&u->lock);
	ret = join_locked(u, mc);
	lock_put(&u->lock);
	return ret;
}

/* An event that was not fetched is gone with the membership. */
int user_leave(struct cm_id *id, struct cm_mcast *mc, uint32_t *delivered)
{
	(void)id;
	cm_event_purge_mcast(mc);
	*delivered = cm_event_delivered_mcast(mc);
	return 0;
}
