/* SPDX-License-Identifier: BSD-2-Clause */
/* What connections and UD QPs have moved, for the counters of the port. Each counts for
 * itself, with plain stores under a lock that it holds anyway; who wants the sums adds up. */
#ifndef ANYRDMA_DEV_TRAFFIC_H
#define ANYRDMA_DEV_TRAFFIC_H

#include "base/list.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum traffic_kind {
	TRAFFIC_XMIT_BYTES, /* payload alone */
	TRAFFIC_XMIT_FRAMES,
	TRAFFIC_RCV_BYTES,
	TRAFFIC_RCV_FRAMES,
	TRAFFIC_KINDS,
};
/* Of a sum: a frame is longer than a packet of the path's MTU. */
#define TRAFFIC_XMIT_PACKETS TRAFFIC_XMIT_FRAMES
#define TRAFFIC_RCV_PACKETS TRAFFIC_RCV_FRAMES

enum traffic_way { TRAFFIC_XMIT = TRAFFIC_XMIT_BYTES, TRAFFIC_RCV = TRAFFIC_RCV_BYTES };

struct traffic {
	struct list link; /* traffic.c's lock; that guards `seen`, too */
	uint64_t seen[TRAFFIC_KINDS];
	_Atomic unsigned device;
	_Atomic unsigned mtu; /* bytes */
	/* Each way is written under one lock of the owner. */
	_Atomic uint64_t n[TRAFFIC_KINDS];
};

/* The object begins (it is zeroed), and ends: what it has counted stays in the sums. */
void traffic_begin(struct traffic *t);
void traffic_end(struct traffic *t);

/* The sums of a device in this process. */
void traffic_sum(unsigned device, uint64_t sum[TRAFFIC_KINDS]);
/* The same for a process that ends: false if another thread is adding up. */
bool traffic_try_sum(unsigned device, uint64_t sum[TRAFFIC_KINDS]);

/* cb runs once, as soon as something is counted, with locks of the counting thread: it may
 * set a timer of the loop. NULL: nobody waits. */
void traffic_on_next(void (*cb)(void));

extern _Atomic bool traffic_awaited_; /* traffic.c's */
void traffic_tell(void);

static inline void traffic_add(struct traffic *t, unsigned kind, uint64_t n)
{
	atomic_store_explicit(&t->n[kind],
			      atomic_load_explicit(&t->n[kind], memory_order_relaxed) + n,
			      memory_order_relaxed);
}

/* The lock of this way is held. */
static inline void traffic_count(struct traffic *t, enum traffic_way way, uint64_t bytes,
				 uint64_t frames)
{
	traffic_add(t, way, bytes);
	traffic_add(t, way + 1, frames);
	if (__builtin_expect(
		    atomic_load_explicit(&traffic_awaited_, memory_order_relaxed), 0))
		traffic_tell();
}

#endif
