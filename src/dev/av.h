/* SPDX-License-Identifier: BSD-2-Clause */
/* Address vectors: where a datagram goes. An address handle has one, and each WQE that was
 * posted with it holds it, too: the application may destroy the handle as soon as it has
 * posted, as on NICs, which copy the address. */
#ifndef ANYRDMA_DEV_AV_H
#define ANYRDMA_DEV_AV_H

#include "dev/dev.h"

struct dev_av {
	atomic_int refs; /* the handle, and WQEs */
	struct ibv_ah_attr attr; /* but grh.dgid is where the route leads */
	union ibv_gid sgid; /* of the route, as it was when the handle was made */
	uint32_t ifindex;   /* the scope of link-local addresses */
	bool local;	    /* InfiniBand: without a GRH */
	bool mcast;	    /* attr.grh.dgid is a group: ff00::/8, or an IPv4 group */
	const struct dev_pd *pd; /* pd_root() of the handle's; only to compare with */
};

/* The QP may send there. If not, the transport fails the WQE with LOC_QP_OP_ERR:
 * InfiniBand 10.2.2.2 leaves the choice between that and a refused post; rxe does it this
 * way, and some NICs do not check. */
static inline bool av_serves(const struct dev_av *av, const struct dev_qp *qp)
{
	return av->pd == qp->pd;
}

struct dev_route; /* route.h */

/* With one reference. route: that of attr. NULL: no memory. */
struct dev_av *av_new(const struct ibv_ah_attr *attr, const struct dev_route *route,
		      const struct dev_pd *pd);

static inline void av_get(struct dev_av *av)
{
	atomic_fetch_add_explicit(&av->refs, 1, memory_order_relaxed);
}

void av_put(struct dev_av *av);

#endif
