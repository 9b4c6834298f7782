/* SPDX-License-Identifier: BSD-2-Clause */
/* The one point that every datagram passes: out() before it is given to a carrier, or to a
 * QP of this process; in() when it is decided what becomes of it. A tracer, a capture or a
 * checker listens here.
 *
 * Nobody listens: one load and a predicted branch. */
#ifndef ANYRDMA_UD_TAP_H
#define ANYRDMA_UD_TAP_H

#include "ud/carrier.h"
#include "ud/count.h"

#include <stdatomic.h>

/* Both are called with locks of the QP: they must not block and must not call back. */
struct ud_tap {
	/* carrier: its name, or "local". */
	void (*out)(const struct ud_head *h, const char *carrier);
	/* qpn: the QP that it is for; UD_RECEIVED, or why it is dropped. */
	void (*in)(const struct ud_head *h, uint32_t qpn, enum ud_counter what);
};

extern _Atomic(const struct ud_tap *) ud_tap_listener;

/* One listener for the process, which must stay valid for ever after; NULL: none. */
void ud_tap_set(const struct ud_tap *tap);

static inline void ud_tap_out(const struct ud_head *h, const char *carrier)
{
	const struct ud_tap *tap = atomic_load_explicit(&ud_tap_listener, memory_order_acquire);

	if (__builtin_expect(tap != NULL, 0))
		tap->out(h, carrier);
}

static inline void ud_tap_in(const struct ud_head *h, uint32_t qpn, enum ud_counter what)
{
	const struct ud_tap *tap = atomic_load_explicit(&ud_tap_listener, memory_order_acquire);

	if (__builtin_expect(tap != NULL, 0))
		tap->in(h, qpn, what);
}

#endif
