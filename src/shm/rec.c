/* SPDX-License-Identifier: BSD-2-Clause */
#include "shm/rec.h"

#include "shm/ring.h"

#include <errno.h>
#include <string.h>

/* Bytes of the member of rc_frame's union that the frame uses, without the data of a
 * control message. */
static uint32_t body_fixed(enum rc_op op)
{
	const struct rc_frame *h = NULL;

	switch (op) {
	case RC_READ_REQ:
		return sizeof(h->read);
	case RC_ATOMIC_REQ:
		return sizeof(h->atomic);
	case RC_ATOMIC_RESP:
		return sizeof(h->atomic_resp);
	case RC_IMM:
	case RC_IMM_SE:
		return sizeof(h->imm);
	case RC_CTL:
		return sizeof(h->ctl) - sizeof(h->ctl.data);
	default:
		return 0;
	}
}

static uint32_t body_len(const struct rc_frame *h)
{
	return body_fixed(h->op) + (h->op == RC_CTL ? h->ctl.len : 0u);
}

uint32_t rec_head(const struct rc_frame *h)
{
	return (uint32_t)sizeof(struct rec_stream) + body_len(h);
}

static bool tagged(enum rc_op op)
{
	return op == RC_WRITE || op == RC_READ_RESP;
}

void rec_put(void *at, uint32_t slot, const struct rc_frame *h)
{
	struct rec_stream *r = at;
	uint32_t body = body_len(h);

	r->slot = slot;
	r->op = (uint8_t)h->op;
	r->flags = (uint8_t)((h->last ? REC_LAST : 0) | (h->ack_req ? REC_ACK_REQ : 0));
	r->body = (uint16_t)body;
	r->stag = tagged(h->op) ? h->stag : h->inv_stag;
	r->msn = h->msn;
	r->to = tagged(h->op) ? h->to : h->mo;
	if (body)
		memcpy(r + 1, &h->read, body);
}

/* The body has a fixed size, except for the data of a control message. */
static int body_get(const volatile uint8_t *from, uint32_t n, struct rc_frame *h)
{
	uint32_t fixed = body_fixed(h->op);

	if (n < fixed || n - fixed > (h->op == RC_CTL ? RC_CTL_DATA : 0))
		return -EPROTO;
	ring_read(&h->read, from, n);
	return h->op == RC_CTL && h->ctl.len != n - fixed ? -EPROTO : 0;
}

static bool is_send(enum rc_op op)
{
	return op == RC_SEND || op == RC_SEND_INV || op == RC_SEND_SE ||
	       op == RC_SEND_SE_INV;
}

static bool pull_fits(const struct rec_stream *r, const struct rc_frame *h)
{
	return is_send(h->op) && !h->payload && r->body &&
	       r->body % sizeof(struct rec_piece) == 0 &&
	       r->body / sizeof(struct rec_piece) <= REC_PIECES;
}

int rec_get_pieces(const volatile void *at, const struct rec_stream *r,
		   struct rec_piece *p, struct rc_frame *h)
{
	int n = (int)(r->body / sizeof(*p));

	ring_read(p, (const volatile uint8_t *)at + sizeof(*r), r->body);
	for (int i = 0; i < n; i++) {
		if (!p[i].len || p[i].len > REC_PULL_MAX - h->payload)
			return -EPROTO;
		h->payload += p[i].len;
	}
	return n;
}

int rec_get(const volatile void *at, uint32_t bytes, const struct rec_stream *r,
	    struct rc_frame *h)
{
	uint32_t head;

	if (bytes < sizeof(*r))
		return -EPROTO;
	head = (uint32_t)sizeof(*r) + r->body;
	if ((r->op > RC_ATOMIC_RESP && r->op != RC_CTL) || r->op == RC_TERMINATE ||
	    head > bytes)
		return -EPROTO;
	h->op = (enum rc_op)r->op;
	h->last = r->flags & REC_LAST;
	h->ack_req = r->flags & REC_ACK_REQ;
	h->payload = bytes - head;
	h->stag = h->inv_stag = r->stag;
	h->msn = r->msn;
	h->to = r->to;
	h->mo = (uint32_t)r->to;
	if (r->flags & REC_PULL)
		return pull_fits(r, h) ? (int)head : -EPROTO;
	if (body_get((const volatile uint8_t *)at + sizeof(*r), r->body, h))
		return -EPROTO;
	return h->payload && !tagged(h->op) && !is_send(h->op) ? -EPROTO : (int)head;
}
