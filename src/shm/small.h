/* SPDX-License-Identifier: BSD-2-Clause */
/* The fast path of the common case: small sends of a reliable QP while the stream has
 * nothing else to send. It does what rc/build.c and rc/responder.c do, in a fifth of the
 * instructions. What it cannot handle it leaves to them, unchanged. */
#ifndef ANYRDMA_SHM_SMALL_H
#define ANYRDMA_SHM_SMALL_H

#include "shm/rec.h"
#include "shm/ring.h"

#include <stdbool.h>
#include <stdint.h>

struct stream;

enum {
	SMALL_MAX = 4096, /* bytes of payload: qp->lock is held while they are copied */
	/* Records of up to this payload are composed outside of the ring: ring_put(). */
	SMALL_COMPOSED_MAX = 7 * RING_LINE - sizeof(struct rec_stream),
};

/* Sends requests from sq.next on. True: all were sent. False: it has stopped at sq.next.
 * The locks of the stream and its QP, and the link's tx_lock, are held; the QP is in
 * RTS. */
bool small_send(struct stream *s);

/* Receives a record of `bytes`, whose head is *r. False: the record was
 * not received; at most the acknowledgement that it carries was processed. The stream's
 * lock is held; the stream is open. */
bool small_receive(struct stream *s, const struct rec_stream *r, const volatile void *rec,
		   uint32_t bytes);

/* rc_carrier.send_ack */
bool small_ack(struct stream *s);

#endif
