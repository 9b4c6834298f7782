/* SPDX-License-Identifier: BSD-2-Clause */
/* What a process knows, apart from the objects of its application: the loop, the tables
 * of keys, streams and links, who listens. Each variable of it is marked PROCESS_STATE,
 * which puts it into one section. So all of it is one object, and state_renew() makes it
 * what it was when the library was loaded: no lock is held, every list is empty.
 *
 * A generation is the time from one state_renew() to the next. A forked child begins one
 * (dev/fork.c, cm/backend.c): it has no thread of ours, and any lock may have been held
 * at the fork. Objects of an earlier generation are never used again: calls on them are
 * refused, or, if they end an object, succeed. A process whose loop has lost its
 * descriptors begins one, too (dev/fatal.c). The memory of old objects is not freed, as state of
 * that generation may be in it; no lock in it may be waited for.
 *
 * Not marked: what is the same in every generation (settings, the log, tables computed
 * once), counters that only make names distinct, and the set of our descriptors
 * (fdset.h). Every library has its own state and generation. */
#ifndef ANYRDMA_BASE_STATE_H
#define ANYRDMA_BASE_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* On the definition of a variable, before its initializer. */
#define PROCESS_STATE __attribute__((section("anyrdma_state")))

/* Objects of this generation are old from now on, though the state is as it was: a
 * state_renew() is due. */
void state_end(void);

/* The state as it is in the code, and a new generation. Nothing of the library may run
 * meanwhile. Takes no lock, allocates nothing. */
void state_renew(void);

extern _Atomic uint32_t state_generation_; /* state.c's */

/* The present generation: to be kept in objects that are made. */
static inline uint32_t state_generation(void)
{
	return atomic_load_explicit(&state_generation_, memory_order_relaxed);
}

/* The object that keeps this generation belongs to an earlier one. */
static inline bool state_is_old(uint32_t generation)
{
	return generation != state_generation();
}

#endif
