/* SPDX-License-Identifier: BSD-2-Clause */
/* Work requests that the carrier carries out itself (rc_carrier.executor): RDMA writes and
 * reads, and the data of large writes with immediate data. No frame is sent for them, and
 * they have no request number; they are carried out only when everything posted before has
 * been answered, and complete in their place (WQE_DIRECT). */
#ifndef ANYRDMA_RC_EXECUTE_H
#define ANYRDMA_RC_EXECUTE_H

#include "rc/stream.h"

enum {
	RC_EXECUTE_TURN = 1024 * 1024, /* bytes carried out before others get the stream's
					* lock */
	RC_EXECUTE_LOCKED = 32 * 1024, /* of one request: with qp->lock held */
	RC_EXECUTE_WAIT = 8192, /* a request of so many bytes waits until it can be executed */
};

/* The stream has got its QP. */
void execute_begin(struct stream *s) REQUIRES(s->lock);
/* Carries out what is at sq.next, if that is allowed, at most *left bytes, which it
 * counts down. True: it is done, and the next one may be. Called with qp->lock, which it may
 * let go meanwhile. */
bool execute_next_locked(struct stream *s, uint32_t *left) REQUIRES(s->lock);
/* The WQE at this index will wait for those before it to be answered. */
bool execute_drains_before(struct stream *s, uint32_t idx) REQUIRES(s->lock);

#endif
