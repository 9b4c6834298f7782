/* SPDX-License-Identifier: BSD-2-Clause */
/* A large send is not copied into the ring: the frame names the sender's memory, and
 * the receiver fetches it, once a receive is there, straight to its place. All else of
 * the frame is as ever. What cannot be fetched is refused (NAK_COPY) and sent. */
#ifndef ANYRDMA_SHM_PULL_H
#define ANYRDMA_SHM_PULL_H

#include "shm/rec.h"

struct stream;
struct wqe;

/* Bytes of a record behind its head, at most. */
enum { PULL_ROOM = REC_PIECES * sizeof(struct rec_piece) };

/* rc_carrier.by_reference */
bool pull_offers(struct stream *s, const struct wqe *w);
/* Names len bytes from off on of the WQE in a record that rec_put() has written. Bytes
 * that this takes. */
uint32_t pull_put(void *rec, const struct wqe *w, uint32_t off, uint32_t len);
/* A frame that rec_get() has read, from its beginning to its end. -errno breaks the
 * stream. With s->lock and the link's rx_lock. */
int pull_take(struct stream *s, const void *rec, const struct rec_stream *r);

#endif
