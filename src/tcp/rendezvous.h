/* SPDX-License-Identifier: BSD-2-Clause */
/* Streams for QPs that were brought up by GID and QP number alone: the side with
 * the smaller (GID, QPN) connects to the other's rendezvous port and says HELLO
 * (an MPA request). Used by match.c only, under match.lock unless said otherwise. */
#ifndef ANYRDMA_IWARP_RENDEZVOUS_H
#define ANYRDMA_IWARP_RENDEZVOUS_H

#include "dev/dev.h"

struct stream_key {
	uint32_t local_qpn, remote_qpn;
	union ibv_gid remote_gid;
	bool unreliable; /* UC: never the peer of an RC QP */
};

/* Outgoing: tries until it succeeds or is cancelled. */
struct rdv_out;
struct rdv_out *rdv_connect(struct dev_qp *qp, const struct stream_key *key);
void rdv_cancel(struct rdv_out *out);

/* Incoming: loop thread, without the lock. fd is taken over. */
void rendezvous_incoming(int fd);
/* A QP waits under this key: if its HELLO came already, answer it. */
struct rdv_in;
struct rdv_in *rdv_find(const struct stream_key *key);
/* Without the lock: answers and makes the stream. */
void rdv_accept(struct rdv_in *in);

/* match.c, for rendezvous.c */
void match_lock(void);
void match_unlock(void);
bool match_waiting_locked(const struct stream_key *key);
/* The same, as a number that no other QP's or time's waiting has; 0: nobody waits. */
uint64_t match_serial_locked(const struct stream_key *key);
/* The attempt of this QP has ended in a stream: `out` is forgotten. */
void park_out_done_locked(struct rdv_out *out);
/* Nobody listens. True: the attempt was cancelled, another way is tried. */
bool park_tcp_refused_locked(struct rdv_out *out);

#endif
