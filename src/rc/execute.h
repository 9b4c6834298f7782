/* SPDX-License-Identifier: BSD-2-Clause */
/* Work requests that the carrier carries out itself (rc_carrier.executor): RDMA writes and
 * reads, and the data of large writes with immediate data. No frame is sent for them, and
 * they have no request number; they are carried out only when everything posted before has
 * been answered, and complete in their place (WQE_DIRECT). */
#ifndef ANYRDMA_RC_EXECUTE_H
#define ANYRDMA_RC_EXECUTE_H

#include "rc/stream.h"

enum {
	RC_EXECUTE_TURN = 1024 * 1024, /* bytes that one call of the application carries
					* out; jobs do the rest */
	RC_EXECUTE_LOCKED = 4096,      /* a request of so many bytes is carried out with
					* the stream's lock and qp->lock held */
	RC_EXECUTE_WAIT = 8192, /* a request of so many bytes waits until it can be executed */
};

/* The stream has got its QP. */
void execute_begin(struct stream *s) REQUIRES(s->lock);
/* Carries out the request at sq.next, if it is small and that is allowed. True: it is done,
 * and the next one may be. If it is large, sets tx.more: execute_turn() is to be called. *left
 * bounds how much is done by one caller, and is counted down. Called with qp->lock. */
bool execute_next_locked(struct stream *s, uint32_t *left) REQUIRES(s->lock);
/* Carries out large requests at sq.next, if that is allowed, *left bytes at most, which it
 * counts down. Lets go the stream's lock while it copies. Only one thread is in it. */
void execute_turn(struct stream *s, uint32_t *left) REQUIRES(s->lock);
/* The WQE at this index will wait for those before it to be answered. */
bool execute_drains_before(struct stream *s, uint32_t idx) REQUIRES(s->lock);

#endif
