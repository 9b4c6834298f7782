/* SPDX-License-Identifier: BSD-2-Clause */
/* Payload whose pages are not in memory: who holds the stream's lock does not touch it, but
 * leaves it to a job, which has the pages come without any lock. Meanwhile nothing behind it
 * is sent, or received, of the same stream in the same direction. The job changes no data, so
 * it needs neither QP nor WQE; it keeps the keys in use, as a copy would. */
#ifndef ANYRDMA_RC_PAGES_H
#define ANYRDMA_RC_PAGES_H

#include "dev/sge.h"
#include "rc/build.h"

enum { RC_PAGES_MIN = 4096 }; /* of a message of so much at most nobody asks */

/* The frame being received, or to be sent, is much, or of a message that is. */
static inline bool rx_wants_pages(const struct stream *s)
{
	const struct rc_rx *rx = &s->rx;

	return rx->h.payload > RC_PAGES_MIN || !rx->h.last || rx->msg_off || rx->write_len;
}

static inline bool tx_wants_pages(const struct rc_payload *p, uint32_t len)
{
	return len > RC_PAGES_MIN || p->off;
}

/* The next `len` bytes of payload of the frame being received go to the k entries of mem.
 * True: not all of that is there. Then the job has the keys of mem now, rx.paging is set,
 * and rc_carrier.go_on will be called. */
bool rx_lacks_pages(struct stream *s, uint32_t len, const struct sge_mem *mem, int k)
	REQUIRES(s->lock);
/* The same for the first `len` bytes of a frame's payload that is to be sent: tx_run() will be
 * called. With qp->lock. */
bool tx_lacks_pages(struct stream *s, const struct rc_payload *p, uint32_t len,
		    const struct sge_mem *mem, int k) REQUIRES(s->lock);

int tx_copy_much(struct stream *s, const struct rc_payload *p, uint8_t *to, uint32_t n)
	REQUIRES(s->lock);

/* payload_copy(); or -EINPROGRESS: tx_lacks_pages(). */
static inline int tx_copy(struct stream *s, const struct rc_payload *p, uint8_t *to, uint32_t n)
	REQUIRES(s->lock)
{
	return tx_wants_pages(p, n) ? tx_copy_much(s, p, to, n) : payload_copy(s->qp, p, to, n);
}

#endif
