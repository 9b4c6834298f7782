/* SPDX-License-Identifier: BSD-2-Clause */
/* The requests of the peer: what is checked, what is answered, what is refused. */
#ifndef ANYRDMA_RC_RESPONDER_H
#define ANYRDMA_RC_RESPONDER_H

#include "rc/stream.h"

int resp_begin(struct stream *s) REQUIRES(s->lock); /* header of a request */
void resp_end(struct stream *s) REQUIRES(s->lock);  /* its payload is placed */
/* The peer says that it has placed the len bytes before the (empty) Write's offset
 * itself. They are checked as if they had come with it. 0 or -EPROTO. */
int resp_placed(struct stream *s, uint32_t len) REQUIRES(s->lock);
/* A whole request was carried out; rx.h.ack_req is its. */
void resp_accepted(struct stream *s) REQUIRES(s->lock);
/* What is owed has been acknowledged. */
void resp_acked(struct stream *s) REQUIRES(s->lock);
void resp_nak(struct stream *s, enum nak_code code) REQUIRES(s->lock);
void resp_fail(struct stream *s, enum nak_code code, enum ibv_wc_status st, int ev,
	       const char *why) REQUIRES(s->lock);
/* The same for lack of access to the memory that the request names. */
void resp_no_access(struct stream *s, const char *why) REQUIRES(s->lock);
/* Answers have left: a failure that waited for them happens now. */
void resp_settle(struct stream *s) REQUIRES(s->lock);
/* The QP goes away: answers still owed will never come. */
void resp_lost(struct stream *s) REQUIRES(s->lock);
/* The memory of the oldest response is gone: it and what follows are refused. err:
 * -EFAULT, it was unmapped; else what mr_get_remote() says. */
void resp_unreadable(struct stream *s, int err) REQUIRES(s->lock);
void resp_resync(struct stream *s, const struct rc_frame *h) REQUIRES(s->lock);
/* Our QP fails now, without an answer to the peer. Nothing happens without a QP. */
void resp_fail_now(struct stream *s, enum ibv_wc_status st, int ev, const char *why)
	REQUIRES(s->lock);

#endif
