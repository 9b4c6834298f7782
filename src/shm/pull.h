/* SPDX-License-Identifier: BSD-2-Clause */
/* Large sends. Their payload is not copied into the ring: the record names the sender's
 * memory (REC_PULL), and the receiver, once it has a receive, copies the payload from
 * there to its place. A payload that cannot be fetched is refused with NAK_COPY; then the
 * sender repeats the request with the payload in the ring. */
#ifndef ANYRDMA_SHM_PULL_H
#define ANYRDMA_SHM_PULL_H

#include "shm/rec.h"

struct stream;
struct wqe;

enum {
	PULL_ROOM = REC_PIECES * sizeof(struct rec_piece), /* bytes of all pieces */
	/* Mean size of a piece. Fetching one costs two system calls: below this, two
	 * copies are faster. */
	PULL_PIECE_MIN = 32 * 1024,
};

/* rc_carrier.by_reference */
bool pull_offers(struct stream *s, const struct wqe *w);
/* Adds the pieces that name `len` bytes from offset `off` of the WQE to a record that
 * rec_put() has written. Returns the bytes of the pieces. */
uint32_t pull_put(void *rec, const struct wqe *w, uint32_t off, uint32_t len);
/* Receives a record of REC_PULL that rec_get() has accepted; if rx.fetching is set then,
 * its payload is fetched by a job, which calls shm_fetched() at its end. -errno breaks the
 * stream. s->lock and the link's rx_lock are held. */
int pull_receive(struct stream *s, const volatile void *rec, const struct rec_stream *r);

#endif
