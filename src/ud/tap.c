/* SPDX-License-Identifier: BSD-2-Clause */
#include "ud/tap.h"

_Atomic(const struct ud_tap *) ud_tap_listener;

void ud_tap_set(const struct ud_tap *tap)
{
	atomic_store_explicit(&ud_tap_listener, tap, memory_order_release);
}
