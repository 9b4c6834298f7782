/* SPDX-License-Identifier: BSD-2-Clause */
#include "dev/av.h"
#include "dev/gid.h"
#include "dev/route.h"

#include <stdlib.h>

/* Where a program leaves the hop limit zero, as the kernel's drivers do. */
enum { HOPS_UNICAST = 64, HOPS_MCAST = 1 };

struct dev_av *av_new(const struct ibv_ah_attr *attr, const struct dev_route *route,
		      const struct dev_pd *pd)
{
	struct dev_av *av = calloc(1, sizeof(*av));

	if (!av)
		return NULL;
	atomic_init(&av->refs, 1);
	av->attr = *attr;
	av->attr.grh.dgid = route->dgid;
	av->attr.grh.flow_label &= 0xfffff; /* as many bits as the header has */
	av->sgid = route->sgid;
	av->ifindex = route->ifindex;
	av->local = route->local;
	av->mcast = gid_is_mcast(&route->dgid);
	if (!attr->grh.hop_limit)
		av->attr.grh.hop_limit = av->mcast ? HOPS_MCAST : HOPS_UNICAST;
	av->pd = pd;
	return av;
}

void av_put(struct dev_av *av)
{
	/* The last holder frees after all others have read it. */
	if (atomic_fetch_sub_explicit(&av->refs, 1, memory_order_acq_rel) == 1)
		free(av);
}
