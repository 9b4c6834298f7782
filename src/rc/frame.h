/* SPDX-License-Identifier: BSD-2-Clause */
/* A frame of a connection, as a struct: what one side tells the other in one piece. The
 * protocol (rc) makes and reads these; a carrier turns them into bytes (tcp/rdmap.h) or
 * into records of a ring (shm/rec.h). Messages and numbers are those of iWARP (RFC 5040,
 * RFC 7306), and a control message of our own. */
#ifndef ANYRDMA_RC_FRAME_H
#define ANYRDMA_RC_FRAME_H

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
	RC_CTL = 15, /* reserved by the RFC; ours, between peers with the extension */
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
	RC_CTL_DATA = 200, /* bytes of a message of the CM */
	RC_TERM_DATA = 52, /* bytes of a Terminate; longer ones are cut (tcp/rdmap.h) */
};

/* Why a request of the peer's is refused, in more detail than a NAK code: for carriers that
 * have a message for it (rc_carrier.refuse). */
enum rc_reason {
	RC_REASON_NONE, /* the NAK code says it all */
	RC_REASON_KEY,
	RC_REASON_PD,
	RC_REASON_BOUNDS,
	RC_REASON_RIGHTS,
	RC_REASON_INVALIDATE, /* the key cannot be invalidated */
	RC_REASON_READS,      /* more reads than max_dest_rd_atomic */
	RC_REASON_MSN,	      /* a message sequence number that was not to come */
	RC_REASON_MO,	      /* a message offset that was not to come */
	RC_REASON_OPCODE,
	RC_REASON_STREAM,     /* the stream cannot go on; no request is at fault */
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

/* For a frame without a part of the union: that is most of its size. */
static inline void rc_frame_clear(struct rc_frame *h)
{
	memset(h, 0, offsetof(struct rc_frame, read));
}

const char *rc_op_str(enum rc_op op);

#endif
