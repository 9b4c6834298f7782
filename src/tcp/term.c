/* SPDX-License-Identifier: BSD-2-Clause */
#include "tcp/term.h"

#include "base/be.h"
#include "base/log.h"
#include "rc/requester.h"
#include "rc/responder.h"
#include "rc/tx.h"
#include "tcp/tcp.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { HAS_LENGTH = 0x80, HAS_DDP = 0x40, HAS_RDMAP = 0x20, HAS_ANY = 0xe0 };

void term_encode(struct rc_frame *h, enum term_code code, const struct rc_frame *of)
{
	uint8_t frame[RDMAP_HDR_MAX];
	size_t len;

	memset(h, 0, sizeof(*h));
	h->op = RC_TERMINATE;
	h->last = true;
	h->msn = 1; /* the only message of its queue */
	be16_put(h->term.data, (uint16_t)(code & 0xffff));
	h->term.len = RDMAP_TERM_MIN;
	if (!of)
		return;
	/* An FPDU begins with what is wanted: length, then the headers. */
	len = rdmap_encode(frame, of);
	h->term.data[2] = HAS_LENGTH | HAS_DDP;
	if (of->op == RC_READ_REQ)
		h->term.data[2] |= HAS_RDMAP;
	else if (frame[2] & DDP_TAGGED)
		len = DDP_TAGGED_HDR;
	else
		len = DDP_UNTAGGED_HDR;
	memcpy(h->term.data + RDMAP_TERM_MIN, frame, len);
	h->term.len = (uint8_t)(RDMAP_TERM_MIN + len);
}

/* Linux siw lays its bit fields out from the low end on little-endian machines:
 * layer and type have changed places, and M, D, R are bits 0 to 2. */
enum term_code term_decode(const struct rc_frame *h)
{
	const uint8_t *p = h->term.data;
	unsigned layer = p[0] >> 4, type = p[0] & 15;

	if (!(p[2] & HAS_ANY) && p[2] & 7) {
		layer = p[0] & 15;
		type = p[0] >> 4;
	}
	return (enum term_code)(TERM_SET | layer << 12 | type << 8 | p[1]);
}

enum ibv_wc_status term_status(enum term_code code)
{
	switch ((unsigned)code & 0xff00) {
	case 0x0100: /* RDMAP, remote protection */
	case 0x1100: /* DDP, tagged buffer */
		return IBV_WC_REM_ACCESS_ERR;
	case 0x1200: /* DDP, untagged buffer */
		return code == TERM_DDP_NO_BUFFER ? IBV_WC_RNR_RETRY_EXC_ERR :
						    IBV_WC_REM_INV_REQ_ERR;
	default:
		return IBV_WC_REM_OP_ERR;
	}
}

/* DDP has no error of its own for rights: RFC 5040 section 7.1 has. A Write is the only
 * tagged request. */
static enum term_code term_of_reason(enum rc_reason reason, bool tagged)
{
	switch (reason) {
	case RC_REASON_KEY:
		return tagged ? TERM_DDP_STAG : TERM_RDMAP_STAG;
	case RC_REASON_PD:
		return tagged ? TERM_DDP_NOT_ASSOC : TERM_RDMAP_NOT_ASSOC;
	case RC_REASON_BOUNDS:
		return tagged ? TERM_DDP_BOUNDS : TERM_RDMAP_BOUNDS;
	case RC_REASON_RIGHTS:
		return TERM_RDMAP_RIGHTS;
	case RC_REASON_INVALIDATE:
		return TERM_RDMAP_INVALIDATE;
	case RC_REASON_READS:
		return TERM_DDP_NO_BUFFER;
	case RC_REASON_MSN:
		return TERM_DDP_MSN;
	case RC_REASON_MO:
		return TERM_DDP_MO;
	case RC_REASON_OPCODE:
		return TERM_RDMAP_OPCODE;
	default:
		return TERM_RDMAP_STREAM;
	}
}

enum term_code term_of(enum rc_reason reason, enum nak_code code, const struct rc_frame *of)
{
	if (reason != RC_REASON_NONE)
		return term_of_reason(reason, of->op == RC_WRITE);
	switch (code) {
	case NAK_RNR:
		return TERM_DDP_NO_BUFFER;
	case NAK_INV_REQ:
		return TERM_DDP_TOO_LONG;
	case NAK_REM_ACCESS:
		return TERM_RDMAP_RIGHTS;
	default:
		return TERM_RDMAP_STREAM;
	}
}

void term_send(struct stream *s, enum term_code code, const struct rc_frame *of)
{
	struct rc_frame h;

	if (to_tcp(s)->terminated || s->state != STREAM_OPEN)
		return;
	to_tcp(s)->terminated = true;
	log_info("stream %u: Terminate to the peer: layer %u, type %u, code 0x%02x", s->id,
		 (unsigned)code >> 12 & 15, (unsigned)code >> 8 & 15, (unsigned)code & 0xff);
	tx_own_payload(s);
	s->rx.drop = true;
	s->rx.resp_head = s->rx.resp_tail;
	term_encode(&h, code, of);
	tx_ctl(s, &h);
	stream_end(s);
}

/* A QP that is gone or in ERR has ended the stream, or will, by itself. */
void term_refuse(struct stream *s, enum nak_code code)
{
	enum term_code term = term_of(s->rx.reason, code, &s->rx.h);

	lock_assert_held(&s->lock);
	if (code == NAK_NOT_READY || code == NAK_NO_QP)
		stream_end(s);
	else
		term_send(s, term, term == TERM_RDMAP_STREAM ? NULL : &s->rx.h);
}

void term_bad_frame(struct stream *s, int err)
{
	struct tcp_stream *t = to_tcp(s);
	enum term_code term = err == -EBADMSG ? TERM_MPA_CRC : TERM_RDMAP_OPCODE;

	if (s->rx.reason != RC_REASON_NONE)
		term = term_of_reason(s->rx.reason, s->rx.h.op == RC_WRITE);
	s->rx.drop = t->unframed = true;
	t->in_frame = false;
	s->rx.place = PLACE_SCRATCH;
	term_send(s, term, NULL);
	resp_fail_now(s, IBV_WC_LOC_QP_OP_ERR, IBV_EVENT_QP_FATAL,
		      "what the peer sent is no valid message");
}

void term_got(struct stream *s, const struct rc_frame *h)
{
	enum term_code code = term_decode(h);
	char why[100];
	uint32_t idx;

	snprintf(why, sizeof(why),
		 "the peer sent Terminate: layer %u, type %u, code 0x%02x",
		 (unsigned)code >> 12 & 15, (unsigned)code >> 8 & 15, (unsigned)code & 0xff);
	log_info("stream %u: %s", s->id, why);
	to_tcp(s)->terminated = true;
	s->rx.drop = true;
	s->rx.resp_head = s->rx.resp_tail;
	if (s->qp) {
		lock_get(&s->qp->lock);
		idx = s->qp->sq.done;
		lock_put(&s->qp->lock);
		req_fail(s, idx, term_status(code), why);
	}
	stream_end(s);
}
