/* SPDX-License-Identifier: BSD-2-Clause */
/* Receiving: what becomes of a frame, and where its payload goes.
 *
 * A carrier puts the header into rx.h and *begins* the frame: that decides where payload
 * goes, after all checks; nothing else happens. Then it brings the payload, in pieces. Then
 * it *ends* the frame: only that has effects. */
#ifndef ANYRDMA_RC_RX_H
#define ANYRDMA_RC_RX_H

#include "dev/sge.h"
#include "rc/stream.h"
#include "rc/tap.h"

/* The frame whose header is in rx.h begins. -errno breaks the stream. rx.wait may be set
 * then: it waits for a receive, and rx_resume() goes on. */
int rx_frame_begin(struct stream *s) REQUIRES(s->lock);
/* The frame that waited for a receive (rx.wait), once more: its beginning or its end. */
int rx_resume(struct stream *s) REQUIRES(s->lock);
/* All of its payload was brought, in this way. -errno breaks the stream. */
int rx_frame_end(struct stream *s, enum rc_way way) REQUIRES(s->lock);

/* The next n bytes of payload are at p. 0; or -EINPROGRESS: pages that they go to are not
 * there (rx.paging), and nothing was done: once more when rc_carrier.go_on is called. */
int rx_copy(struct stream *s, const uint8_t *p, uint32_t n) REQUIRES(s->lock);
/* The payload of a send is fetched without locks, as that may take long. begin: false if it
 * has no place, and the frame ends without it; else rx.fetching is set, and until the end
 * nothing else of this stream is received. QP and receive stay. rx_fetch(): n bytes, from
 * offset `off` of the frame on, are brought by fetch(arg, s, where they go), in one thread,
 * WITHOUT s->lock; what it returned, or -errno if the memory is not to be had. end: n bytes
 * were placed; rx_frame_end() or a NAK follows. */
typedef int rx_fetch_fn(const void *arg, struct stream *s, const struct iovec *iov, int n);
bool rx_fetch_begin(struct stream *s) REQUIRES(s->lock);
int rx_fetch(struct stream *s, uint32_t off, uint32_t n, rx_fetch_fn *fetch,
	     const void *arg);
void rx_fetch_end(struct stream *s, uint32_t n) REQUIRES(s->lock);
/* Where the next n bytes go, for a carrier that reads them there itself and then says
 * rx_placed(). The number of iovecs; 0: nowhere, they are discarded; -errno: the memory is
 * not to be had any more, rx_unplaceable() says so. */
int rx_map(struct stream *s, uint32_t n, struct sge_mem *mem) REQUIRES(s->lock);
void rx_placed(struct stream *s, uint32_t n) REQUIRES(s->lock);
void rx_unplaceable(struct stream *s, int err) REQUIRES(s->lock);

#endif
