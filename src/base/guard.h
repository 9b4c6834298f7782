/* SPDX-License-Identifier: BSD-2-Clause */
/* Touching memory that the application may have unmapped. Hardware pins what is
 * registered; we do not, and a program that frees a buffer before it deregisters
 * it, which costs nothing there, must not be killed by our copy of some bytes.
 *
 * guard_install() sets a handler for SIGSEGV and SIGBUS, but only where the
 * disposition is the default one: whoever has a handler of his own (a run-time
 * system, a sanitizer) keeps it, and whoever installs one later has it too; faults
 * are then as if there were no guard. The handler knows faults of guarded code by
 * thread and address. To all others happens what would have happened without it:
 * the default action, with the context of the fault. */
#ifndef ANYRDMA_BASE_GUARD_H
#define ANYRDMA_BASE_GUARD_H

#include <stdbool.h>
#include <stddef.h>

/* Once per process; does nothing with ANYRDMA_GUARD=off. */
void guard_install(void);

/* Calls fn(arg), which may fault in [mem, mem + len) and holds no lock while it
 * touches that. False: it has, and did not return. */
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
