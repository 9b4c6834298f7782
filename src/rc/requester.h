/* SPDX-License-Identifier: BSD-2-Clause */
/* Our requests: what answers them, what repeats them, what ends them. */
#ifndef ANYRDMA_RC_REQUESTER_H
#define ANYRDMA_RC_REQUESTER_H

#include "rc/stream.h"

/* The number of the n-th request of the QP. */
static inline uint32_t req_number(const struct stream *s, uint32_t n)
{
	return (s->qp->attr.sq_psn + n) & 0xffffff;
}
void req_begin(struct stream *s) REQUIRES(s->lock); /* attached */
void req_sent(struct stream *s) REQUIRES(s->lock); /* a request has left */
/* A stream without acknowledgements: the carrier has taken all of what was sent. With
 * qp->lock. */
void req_carried_locked(struct stream *s) REQUIRES(s->lock);
/* Carries out the local work at sq.next. True: it has failed, and req_hold_over()
 * is due when qp->lock, with which it is called, is not held any more. */
bool req_local_locked(struct stream *s) REQUIRES(s->lock);
void req_ack(struct stream *s, uint32_t number) REQUIRES(s->lock);
/* With qp->lock; nothing is held. False: there is something wrong with it, or nothing
 * to be done. */
bool req_ack_locked(struct stream *s, uint32_t number) REQUIRES(s->lock);
void req_nak(struct stream *s, const struct rc_frame *h) REQUIRES(s->lock);
void req_recv_posted(struct stream *s) REQUIRES(s->lock);
void req_hold_over(struct stream *s) REQUIRES(s->lock);
/* Response frames: checks the header, then the end. -EPROTO breaks the stream. */
int req_read_begin(struct stream *s, const struct rc_frame *h) REQUIRES(s->lock);
void req_read_end(struct stream *s) REQUIRES(s->lock);
int req_atomic_resp(struct stream *s, const struct rc_frame *h) REQUIRES(s->lock);
struct wqe *req_oldest_read(struct stream *s, uint32_t *idx);
void req_timer(struct stream *s, uint64_t now) REQUIRES(s->lock);
void req_fail(struct stream *s, uint32_t idx, enum ibv_wc_status st,
	      const char *why) REQUIRES(s->lock);
/* The oldest WQE that is not complete fails; nothing happens if there is none. */
void req_fail_oldest(struct stream *s, enum ibv_wc_status st, const char *why)
	REQUIRES(s->lock);
/* The connection is over. Work that is there, or comes, fails as it does on a
 * wire where nobody answers: when the QP's retries have run out, but after a
 * second at the latest. A peer that is done destroys its QPs while we may still
 * be sending; nobody who stops in time hears of it, as on hardware. */
void req_peer_gone(struct stream *s) REQUIRES(s->lock);
uint64_t req_budget(const struct dev_qp *qp); /* ns; UINT64_MAX: never */
/* What the peer's process has answered ends the work, whatever the timeout is. Of
 * req_budget(), the part that the work still has: all of it, but a second where it is
 * endless. ended: the process or the connection is not there any more: a second at most. */
uint64_t req_lost_budget(uint64_t budget, bool ended);

#endif
