/* SPDX-License-Identifier: BSD-2-Clause */
#include "dev/route.h"

#include "base/conf.h"
#include "base/log.h"
#include "dev/gid.h"
#include "dev/lid.h"

#include <errno.h>
#include <string.h>

static bool is_zero(const union ibv_gid *gid)
{
	static const union ibv_gid zero;

	return !memcmp(gid, &zero, sizeof(zero));
}

/* By the GIDs of the GRH, which are addresses. */
static int by_gid(unsigned device, const struct ibv_ah_attr *a, struct dev_route *r)
{
	struct gid_slot source;

	if (!gid_get(device, a->grh.sgid_index, &source) || is_zero(&source.gid))
		return log_refuse(EINVAL, "address: source GID index %u is empty",
				  a->grh.sgid_index);
	if (is_zero(&a->grh.dgid))
		return log_refuse(EINVAL, "address: the destination GID is zero");
	/* As the kernel, which finds no way from one to the other. */
	if (!gid_is_mcast(&a->grh.dgid) &&
	    gid_is_v4(&a->grh.dgid) != gid_is_v4(&source.gid))
		return log_refuse(EINVAL,
				  "address: source GID index %u is an IPv%d address, the "
				  "destination is not",
				  a->grh.sgid_index, gid_is_v4(&source.gid) ? 4 : 6);
	r->sgid = source.gid;
	r->ifindex = source.ifindex;
	r->dgid = a->grh.dgid;
	return 0;
}

static int by_lid(unsigned device, const struct ibv_ah_attr *a, struct dev_route *r)
{
	struct gid_slot source;

	if (!lid_is_port(a->dlid))
		return log_refuse(EINVAL,
				  "address: destination LID %u is none of a port, and "
				  "there is no GRH that leads anywhere: has the peer "
				  "ANYRDMA_LINK=ib, too?",
				  a->dlid);
	if (!gid_of_lid(device, a->dlid, &source, &r->dgid))
		return log_refuse(EINVAL, "address: a LID, and the port itself has none");
	r->sgid = source.gid;
	r->ifindex = source.ifindex;
	return 0;
}

/* fe80::/64, the GID of a port. So are link-local addresses of IPv6: they have no LID. */
static bool is_port_gid(const union ibv_gid *gid)
{
	static const uint8_t prefix[8] = { 0xfe, 0x80 };

	return !memcmp(gid->raw, prefix, sizeof(prefix));
}

static int find_ib(unsigned device, const struct ibv_ah_attr *a, struct dev_route *r)
{
	r->local = !a->is_global;
	if (r->local && lid_is_group(a->dlid))
		return log_refuse(EINVAL,
				  "address: LID 0x%x is one of a group, which needs a GRH with "
				  "its MGID",
				  a->dlid);
	return r->local || (a->dlid && is_port_gid(&a->grh.dgid)) ? by_lid(device, a, r) :
								    by_gid(device, a, r);
}

int route_find(unsigned device, const struct ibv_ah_attr *a, struct dev_route *r)
{
	memset(r, 0, sizeof(*r));
	if (a->port_num != 1)
		return log_refuse(EINVAL, "address: port %u does not exist", a->port_num);
	if (a->sl > 15)
		return log_refuse(EINVAL, "address: service level %u, 15 is the last",
				  a->sl);
	if (conf_get()->link_ib)
		return find_ib(device, a, r);
	if (!a->is_global)
		return log_refuse(
			EINVAL,
			"address: no global route; on Ethernet every address needs one "
			"(is_global, grh.dgid, grh.sgid_index). ANYRDMA_LINK=ib makes a "
			"port that needs none");
	return by_gid(device, a, r);
}
