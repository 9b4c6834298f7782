/* SPDX-License-Identifier: BSD-2-Clause */
/* Accesses to memory that the application may have unmapped. Hardware pins registered
 * memory; we do not. A program that frees a buffer before it deregisters it does no harm
 * on hardware, and must not be killed here by a copy of ours.
 *
 * guard_install() sets a handler for SIGSEGV and SIGBUS, but only if the disposition is
 * the default one. A program that has its own handler (a run-time system, a sanitizer)
 * keeps it, and one that installs a handler later replaces ours; faults are then handled
 * as if there were no guard. Our handler recognises faults of guarded code by thread and
 * address. All other faults have the default action, with their own context. */
#ifndef ANYRDMA_BASE_GUARD_H
#define ANYRDMA_BASE_GUARD_H

#include <stdbool.h>
#include <stddef.h>

/* Once per process; does nothing with ANYRDMA_GUARD=off. */
void guard_install(void);

/* Calls fn(arg), which may fault in [mem, mem + len) and holds no lock when it accesses
 * that. False: it has faulted, and did not return. */
bool guard_call(const void *mem, size_t len, void (*fn)(void *arg), void *arg);

/* The same for two ranges. */
struct guard_range {
	const void *mem;
	size_t len;
};
bool guard_call_two(const struct guard_range r[2], void (*fn)(void *arg), void *arg);

/* memcpy of which one side, mem, is to be guarded. */
bool guard_copy_from(void *dst, const void *mem, size_t len);

#endif
