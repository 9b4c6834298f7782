/* SPDX-License-Identifier: BSD-2-Clause */
/* Sending: when. What is sent, rc/build.h says; how, the carrier. */
#ifndef ANYRDMA_RC_TX_H
#define ANYRDMA_RC_TX_H

#include "rc/stream.h"

/* Sends what can be sent. */
void tx_run(struct stream *s) REQUIRES(s->lock);
/* The same, for a caller that knows of nothing new to send: if tx.ack_only is set, the
 * acknowledgement that is owed may be all that the carrier looks for. */
void tx_ack(struct stream *s) REQUIRES(s->lock);
/* Queues a frame without payload before all others. */
void tx_ctl(struct stream *s, const struct rc_frame *h) REQUIRES(s->lock);
/* Everything that must leave before the stream closes has left. */
bool tx_drained(const struct stream *s);
/* The memory of the QP's work requests must not be read any more. */
void tx_own_payload(struct stream *s) REQUIRES(s->lock);
/* rc_build.fail says that the WQE at sq.next, or the oldest response, cannot be sent. */
void tx_build_failed(struct stream *s, int fail) REQUIRES(s->lock);
/* Forgets what is queued. */
void tx_fini(struct stream *s);

#endif
