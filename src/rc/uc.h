/* SPDX-License-Identifier: BSD-2-Clause */
/* What is different on an unreliable stream, for QPs of type UC. */
#ifndef ANYRDMA_RC_UC_H
#define ANYRDMA_RC_UC_H

#include "rc/stream.h"

/* Completes the work of a QP that nobody will hear, as a wire without a peer does;
 * what cannot be read locally fails all the same. */
void uc_vanish(struct dev_qp *qp);
/* The same, for a stream that is broken or stalled. */
void uc_gone(struct stream *s) REQUIRES(s->lock);
/* After an attempt to send: is the carrier stuck? */
void uc_sent(struct stream *s) REQUIRES(s->lock);
void uc_timer(struct stream *s, uint64_t now) REQUIRES(s->lock);
/* A message ends in the middle: the peer is told before the next one. */
void uc_cut(struct stream *s) REQUIRES(s->lock);
/* No receive is posted: true if the message waits for one a moment (rx.wait). */
bool uc_late(struct stream *s, int where) REQUIRES(s->lock);
/* The message that is being received is discarded to its end. */
void uc_drop(struct stream *s) REQUIRES(s->lock);
/* ... for this reason; the QP fails if st is an error of its own. */
void uc_refuse(struct stream *s, enum ibv_wc_status st, const char *why)
	REQUIRES(s->lock);
/* A frame has ended: a discarded message may end with it. */
void uc_frame_end(struct stream *s) REQUIRES(s->lock);

#endif
