/* SPDX-License-Identifier: BSD-2-Clause */
/* Records of a link's rings: messages of streams, and messages of the link itself.
 * Both processes run on this host, so integers are in its byte order. */
#ifndef ANYRDMA_SHM_REC_H
#define ANYRDMA_SHM_REC_H

#include "rc/frame.h"

#include <infiniband/verbs.h>

/* Kinds of ring records. */
enum rec_kind {
	REC_STREAM = 1, /* struct rec_stream, its body, payload */
	REC_LINK = 2,	/* struct rec_link */
	REC_CM = 3,	/* struct rec_cm, name, data */
};

/* REC_PULL: a Send whose payload stays with the sender: the body is an array of struct
 * rec_piece that says where, and nothing follows it. */
enum { REC_LAST = 1, REC_ACK_REQ = 2, REC_ACK = 4, REC_PULL = 8 };

/* A message of a stream: struct rc_frame, what of it is used. 32 bytes, so that 32
 * bytes of payload still share its cache line. */
struct rec_stream {
	uint32_t word; /* the ring's */
	uint32_t slot; /* of the receiver */
	uint8_t op;    /* enum rc_op */
	uint8_t flags; /* REC_* */
	uint16_t body; /* bytes between this and the payload */
	uint32_t ack;  /* REC_ACK: everything up to this number is done */
	uint32_t stag; /* tagged: STag; else the key to invalidate */
	uint32_t msn;  /* RC_WRITE: bytes that are in their place already */
	uint64_t to;   /* tagged: offset; else the message's offset */
};
_Static_assert(sizeof(struct rec_stream) == 32, "half a line");

struct rec_piece {
	uint64_t addr;
	uint32_t key; /* of a region of the sender's */
	uint32_t len; /* not 0 */
};
_Static_assert(sizeof(struct rec_piece) == 16, "no holes");

enum {
	REC_PIECES = 32,
	REC_PULL_MAX = 1024 * 1024, /* bytes of one record's pieces */
};

enum link_type {
	LINK_OPEN = 1,	  /* a QP looks for its peer: from slot, key */
	LINK_OPENED = 2,  /* ... found: slot, from */
	LINK_REFUSED = 3, /* ... not ready, try again: slot */
	LINK_CLOSE = 4,	  /* nothing more comes for this slot; err */
	LINK_READY = 5,	  /* the QP still wants what was OPENED: its stream begins */
	LINK_ANNOUNCE = 6,	  /* a request was carried out directly, the first one: slot */
};

struct rec_link {
	uint32_t word;
	uint8_t type;	/* enum link_type */
	uint8_t unreliable; /* LINK_OPEN: of a UC QP */
	uint8_t pad[2];
	uint32_t slot;	/* of the receiver */
	uint32_t from;	/* of the sender */
	int32_t err;	/* LINK_CLOSE: 0, or -errno */
	uint32_t src_qpn, dst_qpn;
	uint64_t share_id; /* LINK_OPEN, LINK_OPENED: of the sender's QP, or 0 */
	union ibv_gid src_gid, dst_gid;
};

/* Messages of calls (call.c). Every slot that a caller has named in ASK is freed by one
 * of: an ANSWER that does not accept, LINK_CLOSE. Who hangs up gets LINK_CLOSE too,
 * unless the answer was on its way. */
enum cm_type {
	CM_REQ = 1,	 /* from, name of the listener, request */
	CM_REP = 2, /* slot, status; accepted: from, reply; rejected: data */
	CM_CANCEL = 3, /* from: the caller does not wait any more */
};
enum cm_status {
	CM_ACCEPTED,
	CM_REJECTED,
	CM_NO_LISTENER,
	CM_BUSY,
	CM_GONE, /* the callee ends without a word */
};

struct rec_cm {
	uint32_t word;
	uint8_t type;	  /* enum cm_type */
	uint8_t status;	  /* enum cm_status */
	uint8_t name_len;
	uint8_t pad;
	uint32_t slot;	  /* of the receiver */
	uint32_t from;	  /* of the sender */
	uint32_t len;	  /* of the data */
	uint64_t share_id;	  /* ASK, ANSWER that accepts: of the sender's QP, or 0 */
};

/* Bytes of h's record before its payload, at most REC_HEAD_MAX. */
enum { REC_HEAD_MAX = sizeof(struct rec_stream) + 32 + RC_CTL_DATA };
uint32_t rec_head(const struct rc_frame *h);

/* Writes everything but the word and the payload. */
void rec_put(void *at, uint32_t slot, const struct rc_frame *h);

/* Adds the acknowledgement to a record that rec_put() has written. */
static inline void rec_put_ack(void *at, uint32_t number)
{
	struct rec_stream *r = at;

	r->flags |= REC_ACK;
	r->ack = number;
}

/* Makes it one of REC_PULL, with n pieces behind it. */
static inline void rec_put_pull(void *at, unsigned n)
{
	struct rec_stream *r = at;

	r->flags |= REC_PULL;
	r->body = (uint16_t)(n * sizeof(struct rec_piece));
}

/* Reads a record of `bytes` that the peer may still be changing: each byte is read
 * once. Bytes before the payload, or -EPROTO. Every field of *h that the message has
 * is set, and h->payload fits the record; of a REC_PULL it is 0. */
int rec_get(const void *at, uint32_t bytes, struct rec_stream *r, struct rc_frame *h);
/* The pieces of a REC_PULL that rec_get() has read: their number, at most REC_PIECES,
 * and h->payload becomes their sum. -EPROTO: empty, or more than REC_PULL_MAX. */
int rec_get_pieces(const void *at, const struct rec_stream *r, struct rec_piece *p,
		   struct rc_frame *h);

#endif
