/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory for the length of a call, where it is too much for the stack: programs post and poll
 * in coroutines that have a few KiB of it. A pool is static memory for so many threads, which
 * takes no memory before it is used. More threads at the same time allocate. */
#ifndef ANYRDMA_BASE_SCRATCH_H
#define ANYRDMA_BASE_SCRATCH_H

#include "base/state.h"

#include <stddef.h>

enum { SCRATCH_SLOTS = 8 };

struct scratch {
	void *slots;
	size_t size; /* of one */
	struct {
		_Alignas(64) _Atomic bool used;
	} slot[SCRATCH_SLOTS];
};

/* At file scope: the pool `name` of `type`. */
#define SCRATCH(name, type)                                              \
	static _Alignas(64) type name##_slots_[SCRATCH_SLOTS];           \
	static struct scratch name PROCESS_STATE = { .slots = name##_slots_, \
						     .size = sizeof(type) }

/* Memory of any content; never NULL. The caller blocks for nothing before it gives it back:
 * where there is no memory for one more thread, it waits for another one. */
void *scratch_get(struct scratch *s);
void scratch_put(struct scratch *s, void *p);

#endif
