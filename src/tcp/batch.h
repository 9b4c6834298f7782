/* SPDX-License-Identifier: BSD-2-Clause */
/* A batch: the FPDUs of one sendmsg().
 *
 * FPDUs are built against a *cursor*, a copy of the send state; nothing is
 * changed until sendmsg() has said how much it took. Then the cursor after the
 * last FPDU of which at least a byte left becomes the state, and the rest of
 * that FPDU, if any, is kept as tx.part, to be finished before anything else. So
 * nothing is ever taken back, and user memory is referenced only during the
 * call. */
#ifndef ANYRDMA_IWARP_BATCH_H
#define ANYRDMA_IWARP_BATCH_H

#include "rc/stream.h"

enum {
	BATCH_FRAMES = 40,
	BATCH_IOV = 192,
	BATCH_BUF = 12 * 1024,
	FRAME_BUF = RDMAP_HDR_MAX + DEV_MAX_INLINE + RDMAP_TRAILER_MAX,
};

struct cursor {
	uint32_t idx, off;
	bool imm_sent, probe_sent;
	uint32_t rd_out;
	uint32_t msn0, msn1, msn3, srqn;
	bool sig_since_req, resp_turn, resync, nak, ack, go_on;
	uint32_t resp, resp_done;
	unsigned ctl; /* messages of tx.ctl consumed */
};

struct frame {
	size_t end; /* of this FPDU within the batch */
	struct cursor after;
	uint32_t head, head_len;       /* in buf: header (and copied payload, trailer) */
	uint32_t trailer, trailer_len; /* in buf; 0 when in the head */
	int kind;		       /* tx_part.kind of a payload not copied */
	uint32_t payload, idx, off, key;
	struct dev_pd *pd; /* of a response */
	uint64_t addr;
	bool pull; /* emit(): the payload is named, not sent */
};

struct batch {
	struct iovec iov[BATCH_IOV];
	struct mr_slot *refs[BATCH_IOV];
	struct frame frame[BATCH_FRAMES];
	uint8_t buf[BATCH_BUF];
	size_t bytes;
	unsigned niov, nrefs, nframes, used;
	int fail; /* ibv_wc_status of the WQE at the cursor, 0 none, -errno of a response */

	/* A carrier that takes whole frames at once has these instead of all of the
	 * above but bytes, nframes and fail. emit() sends the frame, or keeps the
	 * number of a CTL_ACK for the next; 0, or -errno of batch_gather(). */
	int (*emit)(struct batch *b, struct stream *s, const struct rc_frame *h,
		    struct frame *f, const struct cursor *c);
	bool (*no_room)(struct stream *s);
	struct cursor after; /* the last frame sent */
	bool ack;
	uint32_t ack_number;
};

/* Fills an empty batch with what may be sent now. Called with the stream's lock
 * and, if it has a QP, qp->lock. b->refs are the caller's to put after sending. */
void batch_build(struct stream *s, struct batch *b);

/* Copies the frame's payload of n bytes. 0, or -errno of mr_get(). */
int batch_gather(struct dev_qp *qp, const struct frame *f, uint8_t *to, uint32_t n);

/* Makes the state true. Same locks. */
void cursor_store(struct stream *s, const struct cursor *c);

/* n bytes of the batch have left: makes the state true and keeps the rest of a
 * cut FPDU. Same locks. 0 or -ENOMEM. */
int batch_commit(struct stream *s, struct batch *b, size_t n);

#endif
