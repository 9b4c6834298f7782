/* SPDX-License-Identifier: BSD-2-Clause */
/* Where an address vector leads: from one address of a host to another, or to a group,
 * whatever names them to the application. On Ethernet these are GIDs. On InfiniBand a LID
 * is enough; a GRH with the GIDs of ports, which begin with fe80::, goes where its LID leads,
 * as on hardware; and a GRH with GIDs that are addresses goes there (librdmacm's do). */
#ifndef ANYRDMA_DEV_ROUTE_H
#define ANYRDMA_DEV_ROUTE_H

#include <infiniband/verbs.h>
#include <stdbool.h>

struct dev_route {
	union ibv_gid sgid, dgid;
	uint32_t ifindex; /* of sgid: the scope of link-local addresses */
	bool local;	  /* without a GRH */
};

/* -EINVAL: an attribute cannot be, or leads nowhere; the log says which. */
int route_find(unsigned device, const struct ibv_ah_attr *a, struct dev_route *r);

#endif
