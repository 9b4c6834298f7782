/* SPDX-License-Identifier: BSD-2-Clause */
#include "shm/rec.h"

#include <errno.h>
#include <string.h>

/* The part of rdmap_hdr's union that the message has, without a control message's
 * data. */
static uint32_t body_fixed(enum rdmap_op op)
{
	const struct rdmap_hdr *h = NULL;

	switch (op) {
	case RDMAP_READ_REQ:
		return sizeof(h->read);
	case RDMAP_ATOMIC_REQ:
		return sizeof(h->atomic);
	case RDMAP_ATOMIC_RESP:
		return sizeof(h->atomic_resp);
	case RDMAP_IMM:
	case RDMAP_IMM_SE:
		return sizeof(h->imm);
	case RDMAP_CTL:
		return sizeof(h->ctl) - sizeof(h->ctl.data);
	default:
		return 0;
	}
}

static uint32_t body_len(const struct rdmap_hdr *h)
{
	return body_fixed(h->op) + (h->op == RDMAP_CTL ? h->ctl.len : 0u);
}

uint32_t rec_head(const struct rdmap_hdr *h)
{
	return (uint32_t)sizeof(struct rec_stream) + body_len(h);
}

static bool tagged(enum rdmap_op op)
{
	return op == RDMAP_WRITE || op == RDMAP_READ_RESP;
}

void rec_put(void *at, uint32_t slot, const struct rdmap_hdr *h)
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

/* The message's own part: of a fixed size, but for the data of a control message. */
static int body_get(const uint8_t *from, uint32_t n, struct rdmap_hdr *h)
{
	uint32_t fixed = body_fixed(h->op);

	if (n < fixed || n - fixed > (h->op == RDMAP_CTL ? RDMAP_CTL_DATA : 0))
		return -EPROTO;
	if (n)
		memcpy(&h->read, from, n);
	return h->op == RDMAP_CTL && h->ctl.len != n - fixed ? -EPROTO : 0;
}

static bool is_send(enum rdmap_op op)
{
	return op == RDMAP_SEND || op == RDMAP_SEND_INV || op == RDMAP_SEND_SE ||
	       op == RDMAP_SEND_SE_INV;
}

static bool pull_fits(const struct rec_stream *r, const struct rdmap_hdr *h)
{
	return is_send(h->op) && !h->payload && r->body &&
	       r->body % sizeof(struct rec_piece) == 0 &&
	       r->body / sizeof(struct rec_piece) <= REC_PIECES;
}

int rec_get_pieces(const void *at, const struct rec_stream *r, struct rec_piece *p,
		   struct rdmap_hdr *h)
{
	int n = (int)(r->body / sizeof(*p));

	memcpy(p, (const uint8_t *)at + sizeof(*r), r->body);
	for (int i = 0; i < n; i++) {
		if (!p[i].len || p[i].len > REC_PULL_MAX - h->payload)
			return -EPROTO;
		h->payload += p[i].len;
	}
	return n;
}

int rec_get(const void *at, uint32_t bytes, struct rec_stream *r, struct rdmap_hdr *h)
{
	uint32_t head;

	if (bytes < sizeof(*r))
		return -EPROTO;
	memcpy(r, at, sizeof(*r));
	head = (uint32_t)sizeof(*r) + r->body;
	if ((r->op > RDMAP_ATOMIC_RESP && r->op != RDMAP_CTL) || r->op == RDMAP_TERMINATE ||
	    head > bytes)
		return -EPROTO;
	h->op = (enum rdmap_op)r->op;
	h->last = r->flags & REC_LAST;
	h->ack_req = r->flags & REC_ACK_REQ;
	h->payload = bytes - head;
	h->stag = h->inv_stag = r->stag;
	h->msn = r->msn;
	h->to = r->to;
	h->mo = (uint32_t)r->to;
	if (r->flags & REC_PULL)
		return pull_fits(r, h) ? (int)head : -EPROTO;
	if (body_get((const uint8_t *)at + sizeof(*r), r->body, h))
		return -EPROTO;
	return h->payload && !tagged(h->op) && !is_send(h->op) ? -EPROTO : (int)head;
}
