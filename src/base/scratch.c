/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/scratch.h"

#include <sched.h>
#include <stdlib.h>

static void *slot_take(struct scratch *s)
{
	/* A thread finds the one that it used last, which is in its cache. */
	static _Thread_local unsigned hint __attribute__((tls_model("initial-exec")));

	for (unsigned n = 0; n < SCRATCH_SLOTS; n++) {
		unsigned i = (hint + n) % SCRATCH_SLOTS;

		if (atomic_load_explicit(&s->slot[i].used, memory_order_relaxed) ||
		    atomic_exchange_explicit(&s->slot[i].used, true, memory_order_acquire))
			continue;
		hint = i;
		return (char *)s->slots + i * s->size;
	}
	return NULL;
}

void *scratch_get(struct scratch *s)
{
	for (;;) {
		void *p = slot_take(s);

		if (!p)
			p = malloc(s->size);
		if (p)
			return p;
		sched_yield();
	}
}

void scratch_put(struct scratch *s, void *p)
{
	uintptr_t at = (uintptr_t)p - (uintptr_t)s->slots; /* large, where p is below */

	if (at < SCRATCH_SLOTS * s->size)
		atomic_store_explicit(&s->slot[at / s->size].used, false,
				      memory_order_release);
	else
		free(p);
}
