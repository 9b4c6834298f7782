/* SPDX-License-Identifier: BSD-2-Clause */
/* Which stream belongs to which QP. The only place that joins and separates them.
 *
 * match.lock serialises attach and detach, and guards the attempts and arrivals of the
 * carriers (rc/carrier.h). It is outside of all locks of dev/dev.h and of the streams'. */
#ifndef ANYRDMA_RC_MATCH_H
#define ANYRDMA_RC_MATCH_H

#include "rc/carrier.h"

/* ---- for the device: dev_transport ---- */

int match_attach(struct dev_qp *qp);
void match_detach(struct dev_qp *qp);
void match_kick(struct dev_qp *qp); /* work was posted, and there is no stream yet */

/* ---- for streams ---- */

/* Gives the stream to the QP that waits for it. If none does, a stream with a serial is
 * left alone, and any other waits for its QP. */
void match_offer(struct stream *s);
/* It waits no longer. */
void match_withdraw(struct stream *s);

/* ---- for the CM: dev/interface.h, stream_expect ---- */

void match_expect(const union ibv_gid *gid, uint32_t qpn);
void match_unexpect(const union ibv_gid *gid, uint32_t qpn);

/* ---- for the carriers' rendezvous ---- */

void match_lock(void);
void match_unlock(void);
/* A QP waits under this key, for a stream that the CM will not bring. */
bool match_waiting_locked(const struct stream_key *key);
/* The same, as a number that names this wait of this QP alone; 0: no QP waits. */
uint64_t match_serial_locked(const struct stream_key *key);
/* The attempt has ended in a stream: its QP forgets it. */
void match_found_locked(struct rc_attempt *a);
/* The peer cannot be found in this way. True: another carrier tries, and the attempt was
 * cancelled. False: it is the only way, and to be tried again. */
bool match_failed_locked(struct rc_attempt *a, int err);

#endif
