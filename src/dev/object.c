/* SPDX-License-Identifier: BSD-2-Clause */
#include "dev/object.h"

#include "base/state.h"

#include <stdatomic.h>

void object_init(struct dev_object *o, struct ibv_context *context)
{
	static atomic_uint handles;

	o->context = context;
	o->handle = atomic_fetch_add(&handles, 1);
	o->generation = state_generation();
}
