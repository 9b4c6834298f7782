/* SPDX-License-Identifier: BSD-2-Clause */
#include "tcp/rdmap.h"

#include "base/be.h"

#include <errno.h>
#include <string.h>

enum { CTL_FIXED = 16, BODY_MAX = CTL_FIXED + RC_CTL_DATA };

/* One row an opcode: DDP model, and the size of the fixed body that follows the
 * DDP header (-1: the rest of the segment is payload). */
static const struct {
	const char *name;
	bool known, tagged;
	int body;
	uint32_t qn;
} op_info[16] = {
	[RC_WRITE] = { "write", true, true, -1, 0 },
	[RC_READ_REQ] = { "read request", true, false, 28, DDP_QN_READ },
	[RC_READ_RESP] = { "read response", true, true, -1, 0 },
	[RC_SEND] = { "send", true, false, -1, DDP_QN_SEND },
	[RC_SEND_INV] = { "send inv", true, false, -1, DDP_QN_SEND },
	[RC_SEND_SE] = { "send se", true, false, -1, DDP_QN_SEND },
	[RC_SEND_SE_INV] = { "send se inv", true, false, -1, DDP_QN_SEND },
	[RC_TERMINATE] = { "terminate", true, false, RDMAP_TERM_MIN, DDP_QN_TERM },
	[RC_IMM] = { "imm", true, false, 8, DDP_QN_SEND },
	[RC_IMM_SE] = { "imm se", true, false, 8, DDP_QN_SEND },
	[RC_ATOMIC_REQ] = { "atomic request", true, false, 52, DDP_QN_READ },
	[RC_ATOMIC_RESP] = { "atomic response", true, false, 12, DDP_QN_ATOMIC_RESP },
	[RC_CTL] = { "control", true, false, CTL_FIXED, DDP_QN_CTL },
};

static size_t body_encode(uint8_t *p, const struct rc_frame *h)
{
	switch (h->op) {
	case RC_READ_REQ:
		be32_put(p, h->read.sink_stag);
		be64_put(p + 4, h->read.sink_to);
		be32_put(p + 12, h->read.size);
		be32_put(p + 16, h->read.src_stag);
		be64_put(p + 20, h->read.src_to);
		return 28;
	case RC_ATOMIC_REQ:
		be32_put(p, h->atomic.opcode);
		be32_put(p + 4, h->atomic.id);
		be32_put(p + 8, h->atomic.stag);
		be64_put(p + 12, h->atomic.to);
		be64_put(p + 20, h->atomic.add_swap);
		be64_put(p + 28, UINT64_MAX);
		be64_put(p + 36, h->atomic.compare);
		be64_put(p + 44, UINT64_MAX);
		return 52;
	case RC_ATOMIC_RESP:
		be32_put(p, h->atomic_resp.id);
		be64_put(p + 4, h->atomic_resp.value);
		return 12;
	case RC_IMM:
	case RC_IMM_SE:
		be32_put(p, h->imm.imm);
		be32_put(p + 4, h->imm.kind);
		return 8;
	case RC_CTL:
		p[0] = (uint8_t)h->ctl.type;
		p[1] = h->ctl.code;
		p[2] = h->ctl.timer;
		p[3] = h->ctl.len;
		be32_put(p + 4, h->ctl.number);
		be32_put(p + 8, h->ctl.msn0);
		be32_put(p + 12, h->ctl.msn1);
		memcpy(p + CTL_FIXED, h->ctl.data, h->ctl.len);
		return (size_t)CTL_FIXED + h->ctl.len;
	case RC_TERMINATE:
		memcpy(p, h->term.data, h->term.len);
		return h->term.len;
	default:
		return 0;
	}
}

size_t rdmap_encode(uint8_t *buf, const struct rc_frame *h)
{
	bool tagged = op_info[h->op].tagged;
	size_t len = tagged ? DDP_TAGGED_HDR : DDP_UNTAGGED_HDR;

	buf[2] = (uint8_t)((tagged ? DDP_TAGGED : 0) | (h->last ? DDP_LAST : 0) |
			   (h->ack_req ? DDP_ACK_REQ : 0) | DDP_VERSION);
	buf[3] = (uint8_t)(RDMAP_VERSION | h->op);
	if (tagged) {
		be32_put(buf + 4, h->stag);
		be64_put(buf + 8, h->to);
	} else {
		be32_put(buf + 4, h->inv_stag);
		be32_put(buf + 8, op_info[h->op].qn);
		be32_put(buf + 12, h->msn);
		be32_put(buf + 16, h->mo);
		len += body_encode(buf + len, h);
	}
	be16_put(buf, (uint16_t)(len - 2 + h->payload));
	return len;
}

static int ctl_decode(const uint8_t *p, size_t len, struct rc_frame *h)
{
	h->ctl.type = p[0];
	h->ctl.code = p[1];
	h->ctl.timer = p[2];
	h->ctl.len = p[3];
	h->ctl.number = be32_get(p + 4) & 0xffffff;
	h->ctl.msn0 = be32_get(p + 8);
	h->ctl.msn1 = be32_get(p + 12);
	if (h->ctl.len > RC_CTL_DATA || len != (size_t)CTL_FIXED + h->ctl.len)
		return -EPROTO;
	memcpy(h->ctl.data, p + CTL_FIXED, h->ctl.len);
	return 0;
}

static int body_decode(const uint8_t *p, size_t len, struct rc_frame *h)
{
	switch (h->op) {
	case RC_READ_REQ:
		h->read.sink_stag = be32_get(p);
		h->read.sink_to = be64_get(p + 4);
		h->read.size = be32_get(p + 12);
		h->read.src_stag = be32_get(p + 16);
		h->read.src_to = be64_get(p + 20);
		return 0;
	case RC_ATOMIC_REQ:
		h->atomic.opcode = be32_get(p) & 0xf;
		h->atomic.id = be32_get(p + 4);
		h->atomic.stag = be32_get(p + 8);
		h->atomic.to = be64_get(p + 12);
		h->atomic.add_swap = be64_get(p + 20);
		h->atomic.compare = be64_get(p + 36);
		return 0;
	case RC_ATOMIC_RESP:
		h->atomic_resp.id = be32_get(p);
		h->atomic_resp.value = be64_get(p + 4);
		return 0;
	case RC_IMM:
	case RC_IMM_SE:
		h->imm.imm = be32_get(p);
		h->imm.kind = be32_get(p + 4);
		return 0;
	case RC_CTL:
		return ctl_decode(p, len, h);
	case RC_TERMINATE:
		h->term.len = (uint8_t)(len < RC_TERM_DATA ? len : RC_TERM_DATA);
		memcpy(h->term.data, p, h->term.len);
		return 0;
	default:
		return 0;
	}
}

static bool body_fits(enum rc_op op, size_t len)
{
	size_t fixed = (size_t)op_info[op].body;

	if (op == RC_CTL || op == RC_TERMINATE)
		return len >= fixed && len <= BODY_MAX;
	return len == fixed;
}

/* The DDP header proper; returns its length. */
static int ddp_decode(const uint8_t *buf, size_t have, struct rc_frame *h)
{
	if (op_info[h->op].tagged) {
		if (have < DDP_TAGGED_HDR)
			return -EAGAIN;
		h->stag = be32_get(buf + 4);
		h->to = be64_get(buf + 8);
		return DDP_TAGGED_HDR;
	}
	if (have < DDP_UNTAGGED_HDR)
		return -EAGAIN;
	h->inv_stag = be32_get(buf + 4);
	h->qn = be32_get(buf + 8);
	h->msn = be32_get(buf + 12);
	h->mo = be32_get(buf + 16);
	return h->qn == op_info[h->op].qn ? DDP_UNTAGGED_HDR : -EPROTO;
}

int rdmap_decode(const uint8_t *buf, size_t have, struct rc_frame *h)
{
	size_t total, body;
	int len, ret;

	if (have < 4)
		return -EAGAIN;
	total = (size_t)be16_get(buf) + 2;
	if ((buf[2] & DDP_VERSION_MASK) != DDP_VERSION ||
	    (buf[3] & RDMAP_VERSION_MASK) != RDMAP_VERSION)
		return -EPROTO;
	h->op = buf[3] & 0xf;
	h->last = buf[2] & DDP_LAST;
	h->ack_req = buf[2] & DDP_ACK_REQ;
	if (!op_info[h->op].known ||
	    op_info[h->op].tagged != !!(buf[2] & DDP_TAGGED))
		return -EPROTO;
	len = ddp_decode(buf, have, h);
	if (len < 0)
		return len;
	if (total < (size_t)len)
		return -EPROTO;
	body = total - (size_t)len;
	if (op_info[h->op].body < 0) {
		h->payload = (uint32_t)body;
		return len;
	}
	if (!body_fits(h->op, body))
		return -EPROTO;
	if (have < total)
		return -EAGAIN;
	h->payload = 0;
	ret = body_decode(buf + len, body, h);
	return ret ? ret : (int)total;
}
