/* SPDX-License-Identifier: BSD-2-Clause */
/* FPDU, DDP and RDMAP headers: numbers and the pure codec of struct rc_frame.
 *
 * An FPDU (RFC 5044 section 4.1, no markers): be16 ULPDU length, ULPDU, pad to a
 * multiple of four, CRC32C. The ULPDU is a DDP segment (RFC 5041 section 4) that
 * carries an RDMAP message (RFC 5040 section 4, RFC 7306).
 *
 *	tagged:   len(2) ddp(1) rdmap(1) stag(4) offset(8)              = 16
 *	untagged: len(2) ddp(1) rdmap(1) rsvd(4) qn(4) msn(4) mo(4)     = 20
 */
#ifndef ANYRDMA_TCP_RDMAP_H
#define ANYRDMA_TCP_RDMAP_H

#include "rc/frame.h"

enum { /* DDP queue numbers: RFC 5040 section 4.1, RFC 7306 section 5 */
	DDP_QN_SEND = 0,
	DDP_QN_READ = 1,
	DDP_QN_TERM = 2,
	DDP_QN_ATOMIC_RESP = 3,
	DDP_QN_CTL = 4, /* ours */
};

enum {
	DDP_TAGGED = 0x80,
	DDP_LAST = 0x40,
	DDP_ACK_REQ = 0x20, /* reserved by the RFC; ours: answer at once */
	DDP_VERSION = 0x01,
	DDP_VERSION_MASK = 0x03,
	RDMAP_VERSION = 0x40,
	RDMAP_VERSION_MASK = 0xc0,
};

enum {
	DDP_TAGGED_HDR = 16,
	DDP_UNTAGGED_HDR = 20,
	/* Terminate: control word, segment length, DDP header, RDMAP header of a
	 * read request (RFC 5040 section 4.8). Longer ones are cut. */
	RDMAP_TERM_MIN = 4,
	RDMAP_HDR_MAX = DDP_UNTAGGED_HDR + 16 + RC_CTL_DATA,
	RDMAP_TRAILER_MAX = 3 + 4,
	FPDU_PAYLOAD_MAX = 65504, /* multiple of 32; header and it fit 16 bits */
};

_Static_assert((int)RC_TERM_DATA == RDMAP_TERM_MIN + DDP_UNTAGGED_HDR + 28,
	       "a Terminate about a read request fits");

/* Writes the header (body of fixed-size messages included) to buf, of at least
 * RDMAP_HDR_MAX bytes; returns its length. h->payload <= FPDU_PAYLOAD_MAX. */
size_t rdmap_encode(uint8_t *buf, const struct rc_frame *h);

/* Reads one header. Returns its length, -EAGAIN when `have` is too short, or
 * -EPROTO. Every field of *out that the message has is set. */
int rdmap_decode(const uint8_t *buf, size_t have, struct rc_frame *out);

/* Pad and CRC bytes after a header of hdr_len and this payload. */
static inline uint32_t rdmap_trailer(size_t hdr_len, uint32_t payload)
{
	return (uint32_t)(-(hdr_len + payload) & 3) + 4;
}

#endif
