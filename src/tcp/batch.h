/* SPDX-License-Identifier: BSD-2-Clause */
/* A batch: the FPDUs of one sendmsg().
 *
 * rc_build() fills it; nothing of the stream changes until sendmsg() has said how much it
 * took. Then the cursor after the last FPDU of which at least a byte left becomes the state,
 * and the rest of that FPDU, if any, is kept as tcp_stream.part, to be finished before
 * anything else. So nothing is ever taken back, and user memory is referenced only during the
 * call. */
#ifndef ANYRDMA_TCP_BATCH_H
#define ANYRDMA_TCP_BATCH_H

#include "tcp/tcp.h"

enum {
	BATCH_FRAMES = 40,
	BATCH_IOV = 192,
	BATCH_BUF = 24 * 1024,
	/* What a frame may need of it, without CRC and with it. */
	FRAME_BUF = RDMAP_HDR_MAX + DEV_MAX_INLINE + RDMAP_TRAILER_MAX,
	FRAME_BUF_CRC = RDMAP_HDR_MAX + TCP_CRC_PAYLOAD_MAX + RDMAP_TRAILER_MAX,
};
_Static_assert((int)TCP_CRC_PAYLOAD_MAX >= (int)DEV_MAX_INLINE &&
	       (int)DEV_MAX_INLINE >= (int)TCP_COPY_MAX, "FRAME_BUF is enough");

struct batch_frame {
	size_t end; /* of this FPDU within the batch */
	struct rc_cursor after;
	uint32_t head, head_len;       /* in buf: header (and copied payload, trailer) */
	uint32_t trailer, trailer_len; /* in buf; 0 when in the head */
	struct rc_payload payload;     /* what was not copied: */
	uint32_t payload_len;
	uint32_t bytes; /* of payload, copied or not */
};

struct batch {
	struct rc_build b;
	struct iovec iov[BATCH_IOV];
	struct mr_slot *refs[BATCH_IOV];
	struct batch_frame frame[BATCH_FRAMES];
	uint8_t buf[BATCH_BUF];
	size_t bytes;
	unsigned niov, nrefs, used;
};

/* To be filled, and given back by batch_put(): base/scratch.h. */
struct batch *batch_get(void);
void batch_put(struct batch *b);

/* Fills the batch with what may be sent now. Called with the stream's lock and, if it has a
 * QP, qp->lock. b->refs are the caller's to put after sending. */
void batch_build(struct stream *s, struct batch *b);

/* n bytes of the batch have left: makes the state true and keeps the rest of a
 * cut FPDU. Same locks. 0 or -ENOMEM. */
int batch_commit(struct stream *s, struct batch *b, size_t n);

#endif
