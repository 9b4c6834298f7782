/* SPDX-License-Identifier: BSD-2-Clause */
/* What the device itself knows of an object. Applications can write to the public struct;
 * the kernel finds an object by the context and the handle in it, and refuses what it does
 * not find. So verbs that go to the kernel on a NIC compare both with what is here
 * (src/verbs for the objects that a verb is called for, the device for those in
 * attributes), and the device itself uses these and not the public ones. Posting and
 * polling compare nothing. */
#ifndef ANYRDMA_DEV_OBJECT_H
#define ANYRDMA_DEV_OBJECT_H

#include <infiniband/verbs.h>
#include <stdbool.h>

struct dev_object {
	struct ibv_context *context;
	uint32_t handle;     /* unlike that of any other object of any kind */
	uint32_t generation; /* of the process when it was made: base/state.h */
};

void object_init(struct dev_object *o, struct ibv_context *context);

static inline bool object_is(const struct dev_object *o,
			     const struct ibv_context *context, uint32_t handle)
{
	return o->context == context && o->handle == handle;
}

#endif
