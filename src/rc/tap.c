/* SPDX-License-Identifier: BSD-2-Clause */
#include "rc/tap.h"

_Atomic(const struct rc_tap *) rc_tap_listener;

void rc_tap_set(const struct rc_tap *tap)
{
	atomic_store_explicit(&rc_tap_listener, tap, memory_order_release);
}

void rc_tap_ack(const struct stream *s, uint32_t number, bool out)
{
	struct rc_frame f = { .op = RC_CTL, .last = true };

	f.ctl.type = CTL_ACK;
	f.ctl.number = number;
	if (out)
		rc_frame_out(s, &f, RC_BY_FRAME);
	else
		rc_frame_in(s, &f, RC_BY_FRAME);
}
