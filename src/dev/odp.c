/* SPDX-License-Identifier: BSD-2-Clause */
/* On-demand paging. Nothing is pinned here, so every region is paged on demand. Memory of
 * a region with IBV_ACCESS_ON_DEMAND need not be mapped when it is registered, and the
 * region may be the whole address space (mr.c). An access to memory that is not mapped
 * fails as for any other region. */
#include "base/log.h"
#include "dev/verbs.h"

#include <errno.h>
#include <string.h>

void odp_caps(struct ibv_device_attr_ex *a)
{
	const uint32_t uc = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV |
			    IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_SRQ_RECV;
	const uint32_t rc = uc | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC;

	a->odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
	a->odp_caps.per_transport_caps.rc_odp_caps = rc;
	a->odp_caps.per_transport_caps.uc_odp_caps = uc;
	a->xrc_odp_caps = rc;
}

/* The errors that ibv_advise_mr(3) lists. */
static int find(struct dev_pd *pd, const struct ibv_sge *sge, bool write,
		struct mr_ref *ref)
{
	struct mr_range r = { sge->lkey, sge->addr, sge->length };
	int ret = mr_get(pd, &r, IBV_ACCESS_ON_DEMAND, ref);

	if (ret == -EACCES)
		return log_refuse(ENOENT, "ibv_advise_mr: key 0x%x is not paged on demand",
				  sge->lkey);
	if (ret == -ERANGE)
		return log_refuse(EFAULT, "ibv_advise_mr: %u bytes at 0x%llx are not all "
					  "in the region",
				  sge->length, (unsigned long long)sge->addr);
	if (ret)
		return log_refuse(-ret, "ibv_advise_mr: key 0x%x: %s", sge->lkey,
				  strerror(-ret));
	mr_put(ref->slot);
	if (!write)
		return mr_get(pd, &r, MR_LOCAL_READ, ref);
	if (mr_get(pd, &r, IBV_ACCESS_LOCAL_WRITE, ref))
		return log_refuse(EPERM, "ibv_advise_mr: region 0x%x is read only",
				  sge->lkey);
	return 0;
}

/* FLUSH: the pages are there on return, which is always so here. */
int mr_advise(struct dev_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
	      const struct ibv_sge *sges, uint32_t n)
{
	bool write = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;

	if (advice != IBV_ADVISE_MR_ADVICE_PREFETCH && !write &&
	    advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
		return log_refuse(ENOTSUP, "ibv_advise_mr: advice %d is unknown",
				  (int)advice);
	if (flags & ~(uint32_t)IBV_ADVISE_MR_FLAG_FLUSH || !n)
		return log_refuse(EINVAL, "ibv_advise_mr: flags 0x%x, %u elements", flags,
				  n);
	pd = pd_root(pd);
	for (uint32_t i = 0; i < n; i++) {
		struct mr_ref ref;
		int ret = find(pd, &sges[i], write, &ref);

		if (ret)
			return ret;
		if (advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT && sges[i].length)
			ret = maps_populate((uintptr_t)ref.ptr, sges[i].length, write);
		mr_put(ref.slot);
		if (ret)
			return ret;
	}
	return 0;
}
