/* SPDX-License-Identifier: BSD-2-Clause */
/* FPDU, DDP and RDMAP headers: numbers and the pure codec.
 *
 * An FPDU (RFC 5044 section 4.1, no markers): be16 ULPDU length, ULPDU, pad to a
 * multiple of four, CRC32C. The ULPDU is a DDP segment (RFC 5041 section 4) that
 * carries an RDMAP message (RFC 5040 section 4, RFC 7306).
 *
 *	tagged:   len(2) ddp(1) rdmap(1) stag(4) offset(8)              = 16
 *	untagged: len(2) ddp(1) rdmap(1) rsvd(4) qn(4) msn(4) mo(4)     = 20
 */
#ifndef ANYRDMA_IWARP_RDMAP_H
#define ANYRDMA_IWARP_RDMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum rc_op { /* RFC 5040 figure 3, RFC 7306 section 4 */
	RC_WRITE = 0,
	RC_READ_REQ = 1,
	RC_READ_RESP = 2,
	RC_SEND = 3,
	RC_SEND_INV = 4,
	RC_SEND_SE = 5,
	RC_SEND_SE_INV = 6,
	RC_TERMINATE = 7,
	RC_IMM = 8,
	RC_IMM_SE = 9,
	RC_ATOMIC_REQ = 10,
	RC_ATOMIC_RESP = 11,
	RC_CTL = 15, /* reserved by the RFC; ours, only between agreed peers */
};

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

enum { /* RFC 7306 section 5.2.1 */
	RC_FETCH_ADD = 0,
	RC_CMP_SWAP = 2,
	RC_ATOMIC_WRITE = 15, /* ours: add_swap is stored, as 8 bytes in wire order */
};

/* Our control messages (body of RC_CTL). */
enum ctl_type {
	CTL_ACK = 1,	     /* number: everything up to it is done */
	CTL_NAK = 2,	     /* number: the request refused; code, timer */
	CTL_RESYNC = 3,	     /* number: repeats from here; msn of queues 0 and 1 */
	CTL_RECV_POSTED = 4, /* an RNR wait may end */
	CTL_SRQ = 5,	     /* number: SRQ of the requests that follow (XRC) */
	CTL_USER = 16,	     /* code: enum stream_ctl; data for the CM */
};

enum nak_code {
	NAK_RNR = 0,
	NAK_NOT_READY = 1, /* no QP has claimed the stream, or it is not in RTR yet */
	NAK_NO_QP = 2,	   /* the QP is gone or in ERR */
	NAK_INV_REQ = 3,
	NAK_REM_ACCESS = 4,
	NAK_REM_OP = 5,
	NAK_COPY = 6, /* shared memory: the payload could not be fetched, send it */
};

/* Why an immediate message: body is be32 immediate, be32 kind. */
enum imm_kind {
	IMM_ALONE = 0,	/* RFC 7306: a message of its own */
	IMM_PREFIX = 1, /* ours: belongs to the Send or Write that follows */
};

enum {
	DDP_TAGGED_HDR = 16,
	DDP_UNTAGGED_HDR = 20,
	RC_CTL_DATA = 200,
	/* Terminate: control word, segment length, DDP header, RDMAP header of a
	 * read request (RFC 5040 section 4.8). Longer ones are cut. */
	RDMAP_TERM_MIN = 4,
	RC_TERM_DATA = 4 + DDP_UNTAGGED_HDR + 28,
	RDMAP_HDR_MAX = DDP_UNTAGGED_HDR + 16 + RC_CTL_DATA,
	RDMAP_TRAILER_MAX = 3 + 4,
	FPDU_PAYLOAD_MAX = 65504, /* multiple of 32; header and it fit 16 bits */
};

struct rc_frame {
	enum rc_op op;
	bool last, ack_req;
	uint32_t payload; /* bytes that follow the header */
	/* tagged */
	uint32_t stag;
	uint64_t to;
	/* untagged */
	uint32_t inv_stag, qn, msn, mo;
	union {
		struct { /* RC_READ_REQ, RFC 5040 section 4.4 */
			uint32_t sink_stag, size, src_stag;
			uint64_t sink_to, src_to;
		} read;
		struct { /* RC_ATOMIC_REQ; masks are all ones */
			uint32_t opcode, id, stag;
			uint64_t to, add_swap, compare;
		} atomic;
		struct { /* RC_ATOMIC_RESP */
			uint32_t id;
			uint64_t value;
		} atomic_resp;
		struct {
			uint32_t imm, kind;
		} imm;
		struct {
			enum ctl_type type;
			uint8_t code, timer, len;
			uint32_t number, msn0, msn1;
			uint8_t data[RC_CTL_DATA];
		} ctl;
		struct { /* RC_TERMINATE; term.h reads and writes the bytes */
			uint8_t len;
			uint8_t data[RC_TERM_DATA];
		} term;
	};
};

/* For a header without a part of the union: that is most of its size. */
static inline void rc_frame_clear(struct rc_frame *h)
{
	memset(h, 0, offsetof(struct rc_frame, read));
}

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

const char *rc_op_str(enum rc_op op);

#endif
