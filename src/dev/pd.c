/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/log.h"
#include "dev/verbs.h"

#include <errno.h>
#include <stdlib.h>

static atomic_int count;

int pd_alloc(struct dev_ctx *ctx, struct dev_pd **out)
{
	static atomic_uint handle;
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
	pd->pd.context = &ctx->v.context;
	pd->pd.handle = atomic_fetch_add(&handle, 1);
	ctx_get(ctx);
	*out = pd;
	return 0;
}

int pd_dealloc(struct dev_pd *pd)
{
	int refs = atomic_load(&pd->refs);

	if (refs)
		return log_refuse(EBUSY,
				  "ibv_dealloc_pd: %d regions, QPs, SRQs or address "
				  "handles still use PD %u",
				  refs, pd->pd.handle);
	ctx_put(to_ctx(pd->pd.context));
	atomic_fetch_sub(&count, 1);
	free(pd);
	return 0;
}
