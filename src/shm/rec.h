/* SPDX-License-Identifier: BSD-2-Clause */
/* Records of a link's rings: frames of streams, messages of the link, messages of the CM.
 * Both processes run on one host: integers are in its byte order. doc/wire.md has the
 * layout byte by byte. */
#ifndef ANYRDMA_SHM_REC_H
#define ANYRDMA_SHM_REC_H

#include "rc/frame.h"

#include <infiniband/verbs.h>

#include <string.h>

/* Kinds of ring records. */
enum rec_kind {
	REC_STREAM = 1, /* struct rec_stream, its body, payload */
	REC_LINK = 2,	/* struct rec_link */
	REC_CM = 3,	/* struct rec_cm, name, data */
	REC_DGRAM = 4,	/* struct rec_dgram (dgram_rec.h), payload */
};

/* Flags of struct rec_stream. */
enum {
	REC_LAST = 1,	 /* last frame of its message */
	REC_ACK_REQ = 2, /* an acknowledgement is wanted */
	REC_ACK = 4,	 /* rec_stream.ack is valid */
	/* A Send whose payload stays in the sender's memory: the body is an array of
	 * struct rec_piece that names it, and no payload follows. */
	REC_PULL = 8,
};

/* A frame of a stream: the fields of struct rc_frame that it needs. 32 bytes, so that 32
 * bytes of payload fit the same cache line. */
struct rec_stream {
	uint32_t word; /* the ring's */
	uint32_t slot; /* the receiver's */
	uint8_t op;    /* enum rc_op */
	uint8_t flags; /* REC_* */
	uint16_t body; /* bytes between this struct and the payload */
	uint32_t ack;  /* REC_ACK: requests up to this number are acknowledged */
	uint32_t stag; /* tagged: STag; else the key to invalidate */
	uint32_t msn;  /* RC_WRITE: bytes of the message written directly before */
	uint64_t to;   /* tagged: offset; else offset of the payload in its message */
};
_Static_assert(offsetof(struct rec_stream, word) == 0 &&
	       offsetof(struct rec_stream, slot) == 4 &&
	       offsetof(struct rec_stream, op) == 8 &&
	       offsetof(struct rec_stream, flags) == 9 &&
	       offsetof(struct rec_stream, body) == 10 &&
	       offsetof(struct rec_stream, ack) == 12 &&
	       offsetof(struct rec_stream, stag) == 16 &&
	       offsetof(struct rec_stream, msn) == 20 &&
	       offsetof(struct rec_stream, to) == 24 && sizeof(struct rec_stream) == 32,
	       "doc/wire.md");

/* The body is the part of rc_frame's union that the opcode has, as it is in memory. */
#define REC_BODY_AT(member) \
	(offsetof(struct rc_frame, member) - offsetof(struct rc_frame, read))
_Static_assert(REC_BODY_AT(read.sink_stag) == 0 && REC_BODY_AT(read.size) == 4 &&
	       REC_BODY_AT(read.src_stag) == 8 && REC_BODY_AT(read.sink_to) == 16 &&
	       REC_BODY_AT(read.src_to) == 24, "doc/wire.md");
_Static_assert(REC_BODY_AT(atomic.opcode) == 0 && REC_BODY_AT(atomic.id) == 4 &&
	       REC_BODY_AT(atomic.stag) == 8 && REC_BODY_AT(atomic.to) == 16 &&
	       REC_BODY_AT(atomic.add_swap) == 24 && REC_BODY_AT(atomic.compare) == 32,
	       "doc/wire.md");
_Static_assert(REC_BODY_AT(atomic_resp.id) == 0 && REC_BODY_AT(atomic_resp.value) == 8 &&
	       REC_BODY_AT(imm.imm) == 0 && REC_BODY_AT(imm.kind) == 4, "doc/wire.md");
_Static_assert(REC_BODY_AT(ctl.type) == 0 && REC_BODY_AT(ctl.code) == 4 &&
	       REC_BODY_AT(ctl.timer) == 5 && REC_BODY_AT(ctl.len) == 6 &&
	       REC_BODY_AT(ctl.number) == 8 && REC_BODY_AT(ctl.msn0) == 12 &&
	       REC_BODY_AT(ctl.msn1) == 16 && REC_BODY_AT(ctl.data) == 20, "doc/wire.md");

/* A piece of the sender's memory. */
struct rec_piece {
	uint64_t addr;
	uint32_t key; /* of a memory region of the sender */
	uint32_t len; /* not 0 */
};
_Static_assert(offsetof(struct rec_piece, addr) == 0 &&
	       offsetof(struct rec_piece, key) == 8 &&
	       offsetof(struct rec_piece, len) == 12 && sizeof(struct rec_piece) == 16,
	       "doc/wire.md");

enum {
	REC_PIECES = 32,	    /* pieces of one record */
	REC_PULL_MAX = 1024 * 1024, /* bytes that they name together */
};

/* Messages of the link, which open and close streams (rendezvous.c, link_rx.c). */
enum link_type {
	LINK_OPEN = 1,	   /* a QP in RTR wants its peer: from, QPNs, GIDs, share_id */
	LINK_OPENED = 2,   /* reply: the peer's QP is there: slot, from, share_id */
	LINK_REFUSED = 3,  /* reply: it is not there yet, try again: slot */
	LINK_CLOSE = 4,	   /* nothing more comes for this slot: slot, err */
	LINK_READY = 5,	   /* the QP that sent OPEN has the stream: slot */
	LINK_ANNOUNCE = 6, /* the first request was carried out directly: slot */
	/* QPs of the port of src_qpn want to send datagrams to those of dst_qpn's */
	LINK_DGRAMS = 7,
	LINK_DGRAMS_ANSWER = 8, /* reply: the same QPNs; err 0: they may */
};

struct rec_link {
	uint32_t word;	    /* the ring's */
	uint8_t type;	    /* enum link_type */
	uint8_t unreliable; /* LINK_OPEN: of a UC QP */
	uint8_t pad[2];
	uint32_t slot;	    /* the receiver's */
	uint32_t from;	    /* the sender's slot */
	int32_t err;	    /* LINK_CLOSE, LINK_DGRAMS_ANSWER: 0, or -errno */
	uint32_t src_qpn, dst_qpn;
	uint32_t pad2;
	uint64_t share_id;  /* LINK_OPEN, LINK_OPENED: of the sender's QP, or 0 */
	union ibv_gid src_gid, dst_gid;
};
_Static_assert(offsetof(struct rec_link, word) == 0 &&
	       offsetof(struct rec_link, type) == 4 &&
	       offsetof(struct rec_link, unreliable) == 5 &&
	       offsetof(struct rec_link, slot) == 8 &&
	       offsetof(struct rec_link, from) == 12 &&
	       offsetof(struct rec_link, err) == 16 &&
	       offsetof(struct rec_link, src_qpn) == 20 &&
	       offsetof(struct rec_link, dst_qpn) == 24 &&
	       offsetof(struct rec_link, share_id) == 32 &&
	       offsetof(struct rec_link, src_gid) == 40 &&
	       offsetof(struct rec_link, dst_gid) == 56 && sizeof(struct rec_link) == 72,
	       "doc/wire.md");

/* Messages of the CM (cm.c). The slot that the active side has named in CM_REQ is free
 * after a CM_REP that does not accept, or after LINK_CLOSE. CM_CANCEL is answered with
 * LINK_CLOSE, unless CM_REP was sent before it came. */
enum cm_type {
	CM_REQ = 1,    /* from, name of the listener, request, share_id */
	CM_REP = 2,    /* slot, status; accepted: from, reply, share_id; rejected: data */
	CM_CANCEL = 3, /* from: the active side does not wait any more */
};

/* Result of a CM_REQ. */
enum cm_status {
	CM_ACCEPTED,
	CM_REJECTED,	/* by the application */
	CM_NO_LISTENER, /* nothing listens under this name */
	CM_BUSY,	/* try again later */
	CM_GONE,	/* the passive side has ended without a decision */
};

struct rec_cm {
	uint32_t word;	   /* the ring's */
	uint8_t type;	   /* enum cm_type */
	uint8_t status;	   /* enum cm_status */
	uint8_t name_len;  /* bytes of the name behind this struct, */
	uint8_t pad;
	uint32_t slot;	   /* the receiver's */
	uint32_t from;	   /* the sender's slot */
	uint32_t len;	   /* ... and of the data behind the name */
	uint32_t pad2;
	uint64_t share_id; /* CM_REQ, CM_REP that accepts: of the sender's QP, or 0 */
};
_Static_assert(offsetof(struct rec_cm, word) == 0 && offsetof(struct rec_cm, type) == 4 &&
	       offsetof(struct rec_cm, status) == 5 &&
	       offsetof(struct rec_cm, name_len) == 6 &&
	       offsetof(struct rec_cm, slot) == 8 &&
	       offsetof(struct rec_cm, from) == 12 &&
	       offsetof(struct rec_cm, len) == 16 &&
	       offsetof(struct rec_cm, share_id) == 24 && sizeof(struct rec_cm) == 32,
	       "doc/wire.md");

/* Bytes of the frame's record before its payload, at most REC_HEAD_MAX. */
enum { REC_HEAD_MAX = sizeof(struct rec_stream) + 32 + RC_CTL_DATA };
uint32_t rec_head(const struct rc_frame *h);

/* Writes the record of a frame, except for the word and the payload. */
void rec_put(void *at, uint32_t slot, const struct rc_frame *h);

/* These two read back what rec_put() has written. If the peer has changed it, it changes
 * what it is sent, and nothing here.
 *
 * Adds an acknowledgement to a record that rec_put() has written. */
static inline void rec_put_ack(void *at, uint32_t number)
{
	struct rec_stream *r = at;

	r->flags |= REC_ACK;
	r->ack = number;
}

/* Makes it a record of REC_PULL with n pieces behind it. */
static inline void rec_put_pull(void *at, unsigned n)
{
	struct rec_stream *r = at;

	r->flags |= REC_PULL;
	r->body = (uint16_t)(n * sizeof(struct rec_piece));
}

/* Records that have come. The peer can change them at any time: the first struct of a
 * record is read once, in link_rx.c, and given to all that need it as *r; the functions
 * below read the rest of it, each byte once.
 *
 * ring_read() of the first struct, for the most frequent records: four loads. `at` is the
 * beginning of a line. */
static inline void rec_read(struct rec_stream *r, const volatile void *at)
{
	const volatile uint64_t *from = at;
	const uint64_t word[] = { from[0], from[1], from[2], from[3] };

	_Static_assert(sizeof(word) == sizeof(*r), "all of it");
	memcpy(r, word, sizeof(*r));
}

/* The frame of a record of `bytes`. Returns the bytes before the payload, or -EPROTO. On
 * success all fields of *h are set that the frame has, and h->payload is the rest of the
 * record (REC_PULL: 0). */
int rec_get(const volatile void *at, uint32_t bytes, const struct rec_stream *r,
	    struct rc_frame *h);
/* The pieces of a record of REC_PULL that rec_get() has accepted. Returns their number, at
 * most REC_PIECES, and adds their lengths to h->payload. -EPROTO: a piece is empty, or the
 * sum is more than REC_PULL_MAX. */
int rec_get_pieces(const volatile void *at, const struct rec_stream *r,
		   struct rec_piece *p, struct rc_frame *h);

#endif
