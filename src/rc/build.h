/* SPDX-License-Identifier: BSD-2-Clause */
/* What a stream sends next, as frames. rc_build() walks through what may be sent and gives
 * each frame to the carrier, against a *cursor*: a copy of the send state. The state itself
 * does not change until the carrier stores a cursor (rc_cursor_store()): that of the last
 * frame of which it has sent at least a byte. */
#ifndef ANYRDMA_RC_BUILD_H
#define ANYRDMA_RC_BUILD_H

#include "dev/sge.h"
#include "rc/stream.h"

/* The state behind a frame. */
struct rc_cursor {
	uint32_t idx, off; /* SQ index of the WQE to be sent, and how much of it was */
	bool imm_sent, probe_sent;
	uint32_t rd_out;
	uint32_t msn0, msn1, msn3, srqn;
	bool sig_since_req, resp_turn, resync, nak, ack, recv_posted;
	uint32_t resp, resp_done;
	unsigned ctl; /* messages of tx.ctl consumed */
};

/* Where the payload of a frame is. Its length is frame.payload. */
struct rc_payload {
	enum { PAYLOAD_NONE, PAYLOAD_WQE, PAYLOAD_RESPONSE } kind;
	bool by_reference; /* the peer is to fetch it: rc_carrier.by_reference */
	uint32_t idx, off; /* SQ index, or that of the response; offset in the message */
	uint32_t key;	   /* PAYLOAD_RESPONSE, as the next two */
	struct dev_pd *pd;
	uint64_t addr;
};

/* A carrier embeds it in what it collects frames in. */
struct rc_build {
	/* Takes a frame; `after` is the state behind it. 0; or -errno of payload_map() or
	 * tx_copy(): it was not taken, and nothing has changed; after -EINPROGRESS the build
	 * goes on with what needs no pages. A frame without payload is always taken where
	 * full() was false. */
	int (*add)(struct rc_build *b, struct stream *s, const struct rc_frame *f,
		   const struct rc_payload *p, const struct rc_cursor *after);
	/* No further frame can be taken. */
	bool (*full)(struct rc_build *b, struct stream *s);
	unsigned nframes; /* counted by add() */
	/* Why the build has ended, if not 0: enum ibv_wc_status of the WQE at the cursor,
	 * or -errno of the oldest response. For tx_build_failed(). */
	int fail;
};

/* Gives what may be sent now. Called with the stream's lock and, if it has a QP, qp->lock. */
void rc_build(struct stream *s, struct rc_build *b);

/* Makes the cursor the state. Same locks. */
void rc_cursor_store(struct stream *s, const struct rc_cursor *c);

/* Maps `len` bytes of the payload, from `off` on, to memory. The number of iovecs, or -errno
 * of sge_map() or sge_map_remote(). Not for inline data. */
int payload_map(struct dev_qp *qp, const struct rc_payload *p, uint32_t off, uint32_t len,
		struct sge_mem *mem);
/* Copies the first n bytes. 0, or -errno: as payload_map(), or -EFAULT. Carriers call
 * tx_copy(), which looks for the pages first. */
int payload_copy(struct dev_qp *qp, const struct rc_payload *p, uint8_t *to, uint32_t n);

#endif
