/* SPDX-License-Identifier: BSD-2-Clause */
#include "udp/packet.h"

#include "base/crc32c.h"

#include <errno.h>
#include <string.h>

enum {
	BTH = 12,
	DETH = 8,
	WORD = 4, /* ImmDt, token, CRC, trailer */
	GROUP = 16,
};

/* InfiniBand 9.2.1, table 38; those of manufacturers begin at 0xc0. */
enum opcode {
	OP_UD_SEND = 0x64,
	OP_UD_SEND_IMM = 0x65,
	OP_MARK = 0xc0,
	OP_MARKED = 0xc1,
};

static void put24(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 16);
	p[1] = (uint8_t)(v >> 8);
	p[2] = (uint8_t)v;
}

static void put32(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 24);
	put24(p + 1, v);
}

static uint32_t get24(const uint8_t *p)
{
	return (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];
}

static uint32_t get32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | get24(p + 1);
}

static uint8_t opcode_of(const struct ud_head *h)
{
	if (h->kind != UD_DATA)
		return h->kind == UD_MARK ? OP_MARK : OP_MARKED;
	return h->flags & UD_IMM ? OP_UD_SEND_IMM : OP_UD_SEND;
}

size_t packet_head_put(uint8_t out[PACKET_HEAD_MAX], const struct ud_head *h)
{
	out[0] = opcode_of(h);
	out[1] = (uint8_t)(h->flags & UD_SOLICITED ? 0x80 : 0);
	out[2] = out[3] = 0xff;
	out[4] = h->traffic_class;
	put24(out + 5, h->dst_qpn);
	put32(out + 8, h->psn & 0xffffff);
	put32(out + BTH, h->qkey);
	out[BTH + 4] = h->hop_limit;
	put24(out + BTH + 5, h->src_qpn);
	if (h->kind != UD_DATA)
		put32(out + BTH + DETH, h->token);
	else if (h->flags & UD_IMM)
		memcpy(out + BTH + DETH, &h->imm, WORD);
	else
		return BTH + DETH;
	return BTH + DETH + WORD;
}

size_t packet_tail_put(uint8_t out[PACKET_TAIL_MAX], const struct ud_head *h, unsigned flags)
{
	size_t n = 0;

	if (flags & PACKET_GROUP) {
		memcpy(out, &h->dgid, GROUP);
		n += GROUP;
	}
	if (flags & PACKET_CRC)
		n += WORD;
	if (h->flags & UD_NO_GRH)
		flags |= PACKET_LOCAL;
	out[n] = (uint8_t)(PACKET_VERSION << 4 | flags);
	out[n + 1] = (uint8_t)((h->sl & 15) << 4 | (h->flow_label >> 16 & 15));
	out[n + 2] = (uint8_t)(h->flow_label >> 8);
	out[n + 3] = (uint8_t)h->flow_label;
	return n + WORD;
}

/* Kind, flags and the word behind DETH. How long the head is, or 0: no opcode of ours. */
static size_t opcode_decode(const uint8_t *p, struct ud_head *h)
{
	const uint8_t *word = p + BTH + DETH;

	switch (p[0]) {
	case OP_UD_SEND:
		h->kind = UD_DATA;
		return BTH + DETH;
	case OP_UD_SEND_IMM:
		h->kind = UD_DATA;
		h->flags = UD_IMM;
		memcpy(&h->imm, word, WORD);
		return BTH + DETH + WORD;
	case OP_MARK:
	case OP_MARKED:
		h->kind = p[0] == OP_MARK ? UD_MARK : UD_MARKED;
		h->token = get32(word);
		return BTH + DETH + WORD;
	default:
		return 0;
	}
}

/* The last bytes: how many, or 0: they are not ours. */
static size_t tail_decode(const uint8_t *p, size_t len, struct ud_head *h, unsigned *flags)
{
	const uint8_t *t = p + len - WORD;
	size_t n = WORD;

	*flags = t[0] & 15;
	if (t[0] >> 4 != PACKET_VERSION)
		return 0;
	/* A group is never without a GRH. */
	if (*flags & PACKET_LOCAL && *flags & PACKET_GROUP)
		return 0;
	if (*flags & PACKET_LO6 && !(*flags & PACKET_GROUP))
		return 0;
	n += (*flags & PACKET_CRC ? WORD : 0) + (*flags & PACKET_GROUP ? GROUP : 0);
	if (n > len)
		return 0;
	h->sl = t[1] >> 4;
	h->flow_label = get24(t + 1) & 0xfffff;
	if (*flags & PACKET_GROUP)
		memcpy(&h->dgid, p + len - n, GROUP);
	return n;
}

/* Over everything but itself. */
static int crc_check(const uint8_t *p, size_t len)
{
	uint32_t crc = crc32c(CRC32C_INIT, p, len - 2 * WORD);
	uint8_t want[WORD];

	crc32c_put(want, crc32c(crc, p + len - WORD, WORD));
	return memcmp(want, p + len - 2 * WORD, WORD) ? -EBADMSG : 0;
}

int packet_decode(const uint8_t *p, size_t len, struct ud_head *h, unsigned *flags,
		  const uint8_t **payload)
{
	size_t head, tail;

	memset(h, 0, sizeof(*h));
	/* Only a plain send has no word behind DETH. */
	if (len < BTH + DETH + WORD || (p[0] != OP_UD_SEND && len < BTH + DETH + 2 * WORD))
		return -EPROTO;
	head = opcode_decode(p, h);
	if (!head)
		return -EPROTO;
	/* Pad count and header version are 0, and so are the reserved bits; the P_Key is the
	 * one that there is. */
	if (p[1] & 0x7f || (p[2] | 0x80) != 0xff || p[3] != 0xff || p[8])
		return -EPROTO;
	tail = tail_decode(p + head, len - head, h, flags);
	if (!tail || len - head - tail > UD_PAYLOAD_MAX ||
	    (h->kind != UD_DATA && len != head + tail))
		return -EPROTO;
	if (p[1] & 0x80)
		h->flags |= UD_SOLICITED;
	if (*flags & PACKET_LOCAL)
		h->flags |= UD_NO_GRH;
	h->traffic_class = p[4];
	h->dst_qpn = get24(p + 5);
	h->psn = get24(p + 9);
	h->qkey = get32(p + BTH);
	h->hop_limit = p[BTH + 4];
	h->src_qpn = get24(p + BTH + 5);
	h->len = (uint16_t)(len - head - tail);
	*payload = p + head;
	return *flags & PACKET_CRC ? crc_check(p, len) : 0;
}
