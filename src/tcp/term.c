/* SPDX-License-Identifier: BSD-2-Clause */
#include "tcp/term.h"

#include "base/be.h"
#include "base/log.h"

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
	/* An FPDU begins with what is waiter: length, then the headers. */
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

/* DDP has no error of its own for rights: RFC 5040 section 7.1 has. */
enum term_code term_of_access(int err, bool tagged)
{
	switch (err) {
	case -ENOENT:
		return tagged ? TERM_DDP_STAG : TERM_RDMAP_STAG;
	case -EPERM:
		return tagged ? TERM_DDP_NOT_ASSOC : TERM_RDMAP_NOT_ASSOC;
	case -ERANGE:
		return tagged ? TERM_DDP_BOUNDS : TERM_RDMAP_BOUNDS;
	default:
		return TERM_RDMAP_RIGHTS;
	}
}

void term_send(struct stream *s, enum term_code code, const struct rc_frame *of)
{
	struct rc_frame h;

	if (s->terminated || s->state != STREAM_OPEN)
		return;
	s->terminated = true;
	log_info("stream %d: Terminate to the peer: layer %u, type %u, code 0x%02x", s->fd,
		 (unsigned)code >> 12 & 15, (unsigned)code >> 8 & 15, (unsigned)code & 0xff);
	tx_own_part(s);
	s->rx.drop = true;
	s->rx.resp_head = s->rx.resp_tail;
	term_encode(&h, code, of);
	tx_ctl(s, &h);
	stream_end(s);
}

void term_got(struct stream *s, const struct rc_frame *h)
{
	enum term_code code = term_decode(h);
	char why[100];
	uint32_t idx;

	snprintf(why, sizeof(why),
		 "the peer sent Terminate: layer %u, type %u, code 0x%02x",
		 (unsigned)code >> 12 & 15, (unsigned)code >> 8 & 15, (unsigned)code & 0xff);
	log_info("stream %d: %s", s->fd, why);
	s->terminated = true;
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
