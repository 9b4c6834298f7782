/* SPDX-License-Identifier: BSD-2-Clause */
/* Protection domains, and what extends them: thread and parent domains. */
#include "base/log.h"
#include "base/state.h"
#include "dev/verbs.h"

#include <errno.h>
#include <stdlib.h>

static atomic_int count PROCESS_STATE; /* PDs and parent domains */

int pd_alloc(struct dev_ctx *ctx, struct dev_pd **out)
{
	struct dev_pd *pd;

	if (atomic_fetch_add(&count, 1) >= DEV_MAX_PD) {
		atomic_fetch_sub(&count, 1);
		return log_refuse(ENOMEM,
				  "ibv_alloc_pd: %d PDs exist, no more are allowed",
				  DEV_MAX_PD);
	}
	pd = calloc(1, sizeof(*pd));
	if (!pd) {
		atomic_fetch_sub(&count, 1);
		return -ENOMEM;
	}
	object_init(&pd->object, &ctx->v.context);
	pd->pd.context = pd->object.context;
	pd->pd.handle = pd->object.handle;
	ctx_get(ctx);
	*out = pd;
	return 0;
}

int pd_dealloc(struct dev_pd *pd)
{
	int refs = atomic_load(&pd->refs);

	if (refs)
		return log_refuse(EBUSY,
				  "ibv_dealloc_pd: %d regions, windows, QPs, SRQs, address "
				  "handles or parent domains still use PD %u",
				  refs, pd->object.handle);
	if (pd->of)
		atomic_fetch_sub(&pd->of->refs, 1);
	if (pd->td)
		atomic_fetch_sub(&pd->td->refs, 1);
	ctx_put(to_ctx(pd->object.context));
	atomic_fetch_sub(&count, 1);
	free(pd);
	return 0;
}

static int parent_check(const struct dev_ctx *ctx,
			const struct ibv_parent_domain_init_attr *a)
{
	if (a->comp_mask & ~(uint32_t)IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)
		return log_refuse(EOPNOTSUPP,
				  "ibv_alloc_parent_domain: comp_mask 0x%x is not "
				  "supported (the device takes no allocators)",
				  a->comp_mask);
	if (!a->pd || !pd_intact(a->pd) || a->pd->context != &ctx->v.context ||
	    to_pd(a->pd)->of)
		return log_refuse(EINVAL,
				  "ibv_alloc_parent_domain: no PD of this context");
	if (a->td && (!td_intact(a->td) || a->td->context != &ctx->v.context))
		return log_refuse(EINVAL, "ibv_alloc_parent_domain: the thread domain is "
					  "another context's");
	return 0;
}

int pd_alloc_parent(struct dev_ctx *ctx, const struct ibv_parent_domain_init_attr *attr,
		    struct dev_pd **out)
{
	int ret = parent_check(ctx, attr);

	if (!ret)
		ret = pd_alloc(ctx, out);
	if (ret)
		return ret;
	(*out)->of = to_pd(attr->pd);
	(*out)->object.handle = (*out)->pd.handle = attr->pd->handle;
	atomic_fetch_add(&(*out)->of->refs, 1);
	if (attr->td) {
		(*out)->td = to_td(attr->td);
		atomic_fetch_add(&(*out)->td->refs, 1);
	}
	return 0;
}

int td_alloc(struct dev_ctx *ctx, const struct ibv_td_init_attr *attr,
	     struct dev_td **out)
{
	struct dev_td *td;

	if (attr->comp_mask)
		return log_refuse(EINVAL, "ibv_alloc_td: comp_mask 0x%x is not supported",
				  attr->comp_mask);
	td = calloc(1, sizeof(*td));
	if (!td)
		return -ENOMEM;
	object_init(&td->object, &ctx->v.context);
	td->td.context = td->object.context;
	ctx_get(ctx);
	*out = td;
	return 0;
}

int td_dealloc(struct dev_td *td)
{
	int refs = atomic_load(&td->refs);

	if (refs)
		return log_refuse(EBUSY, "ibv_dealloc_td: %d parent domains still use it",
				  refs);
	ctx_put(to_ctx(td->object.context));
	free(td);
	return 0;
}
