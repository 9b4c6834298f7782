/* SPDX-License-Identifier: BSD-2-Clause */
/* The one point that every frame passes, on every carrier: rc_frame_out() when it will be
 * sent for certain, rc_frame_in() when it has arrived whole. A tracer, a capture or a
 * checker listens here. Small sends, acknowledgements that travel in another
 * frame's record, and work requests that the carrier has carried out itself are told as the
 * frames that they stand for; of the last, the target's process hears nothing. Over shared
 * memory the peer may receive a frame before rc_frame_out() has told of it.
 *
 * Nobody listens: one load and a predicted branch. */
#ifndef ANYRDMA_RC_TAP_H
#define ANYRDMA_RC_TAP_H

#include "rc/frame.h"

#include <stdatomic.h>

struct stream;

enum rc_way {
	RC_BY_FRAME,	 /* payload is in the frame */
	RC_BY_REFERENCE, /* the peer fetches the payload */
	RC_EXECUTED,	 /* no frame: the carrier has carried out the request */
};

/* Both are called with the stream's lock, perhaps with qp->lock and locks of the carrier:
 * they must not block and must not call back. */
struct rc_tap {
	void (*out)(const struct stream *s, const struct rc_frame *f, enum rc_way way);
	void (*in)(const struct stream *s, const struct rc_frame *f, enum rc_way way);
};

extern _Atomic(const struct rc_tap *) rc_tap_listener;

/* One listener for the process, which must stay valid for ever after; NULL: none. */
void rc_tap_set(const struct rc_tap *tap);

/* Somebody listens: for a carrier that would have to make the frame for it. */
static inline bool rc_tapped(void)
{
	return __builtin_expect(
		atomic_load_explicit(&rc_tap_listener, memory_order_relaxed) != NULL, 0);
}

static inline void rc_frame_out(const struct stream *s, const struct rc_frame *f,
				enum rc_way way)
{
	const struct rc_tap *tap = atomic_load_explicit(&rc_tap_listener, memory_order_acquire);

	if (__builtin_expect(tap != NULL, 0))
		tap->out(s, f, way);
}

void rc_tap_ack(const struct stream *s, uint32_t number, bool out);

/* An acknowledgement that travels in the record of another frame, before that frame. */
static inline void rc_ack_out(const struct stream *s, uint32_t number)
{
	if (rc_tapped())
		rc_tap_ack(s, number, true);
}

static inline void rc_ack_in(const struct stream *s, uint32_t number)
{
	if (rc_tapped())
		rc_tap_ack(s, number, false);
}

static inline void rc_frame_in(const struct stream *s, const struct rc_frame *f,
			       enum rc_way way)
{
	const struct rc_tap *tap = atomic_load_explicit(&rc_tap_listener, memory_order_acquire);

	if (__builtin_expect(tap != NULL, 0))
		tap->in(s, f, way);
}

#endif
