/* SPDX-License-Identifier: BSD-2-Clause */
#include "shm/dgram_rec.h"

#include <errno.h>
#include <string.h>

enum { QPN_BITS = 24, FLOW_BITS = 20 };

/* ::ffff:0:0/96 */
static const uint8_t v4_prefix[12] = { [10] = 0xff, [11] = 0xff };

static bool is_v4(const union ibv_gid *gid)
{
	return !memcmp(gid->raw, v4_prefix, sizeof(v4_prefix));
}

static uint32_t v4_of(const union ibv_gid *gid)
{
	uint32_t a;

	memcpy(&a, gid->raw + sizeof(v4_prefix), sizeof(a));
	return a;
}

static void v4_gid(union ibv_gid *gid, uint32_t a)
{
	memcpy(gid->raw, v4_prefix, sizeof(v4_prefix));
	memcpy(gid->raw + sizeof(v4_prefix), &a, sizeof(a));
}

uint32_t rec_dgram_put(void *at, const struct ud_head *h, const union ibv_gid *sgid,
		       const union ibv_gid *dgid)
{
	bool v4 = is_v4(sgid) && is_v4(dgid);
	bool number = h->kind != UD_DATA || (h->flags & UD_IMM);
	struct rec_dgram *r = at;
	uint8_t *end = (uint8_t *)(r + 1);

	r->kind = h->kind;
	r->flags = (uint8_t)((h->flags & UD_SOLICITED ? REC_DGRAM_SOLICITED : 0) |
			     (number ? REC_DGRAM_IMM : 0) | (v4 ? 0 : REC_DGRAM_GIDS) |
			     (h->flags & UD_NO_GRH ? REC_DGRAM_LOCAL : 0) |
			     h->sl << 4);
	r->traffic_class = h->traffic_class;
	r->hop_limit = h->hop_limit;
	r->src_qpn = h->src_qpn;
	r->dst_qpn = h->dst_qpn;
	r->qkey = h->qkey;
	r->flow_label = h->flow_label;
	r->sgid4 = v4 ? v4_of(sgid) : 0;
	r->dgid4 = v4 ? v4_of(dgid) : 0;
	if (!v4) {
		memcpy(end, sgid, sizeof(*sgid));
		memcpy(end + sizeof(*sgid), dgid, sizeof(*dgid));
		end += sizeof(struct rec_dgram_gids);
	}
	if (number) {
		struct rec_dgram_number n = { h->kind == UD_DATA ? h->imm : h->token, 0 };

		memcpy(end, &n, sizeof(n));
		end += sizeof(n);
	}
	return (uint32_t)(end - (uint8_t *)at);
}

/* The first struct, read with four loads. `at` is the beginning of a line. */
static void head_read(struct rec_dgram *r, const volatile void *at)
{
	const volatile uint64_t *from = at;
	const uint64_t word[] = { from[0], from[1], from[2], from[3] };

	_Static_assert(sizeof(word) == sizeof(*r), "all of it");
	memcpy(r, word, sizeof(*r));
}

static bool fields_valid(const struct rec_dgram *r)
{
	bool number = r->flags & REC_DGRAM_IMM;

	return r->kind <= UD_MARKED && (r->kind == UD_DATA || number) &&
	       !(r->src_qpn >> QPN_BITS) &&
	       !(r->dst_qpn >> QPN_BITS) && r->dst_qpn != UD_MCAST_QPN &&
	       !(r->flow_label >> FLOW_BITS);
}

int rec_dgram_get(const volatile void *at, uint32_t bytes, struct ud_head *h)
{
	const volatile uint8_t *from = at;
	uint32_t head = sizeof(struct rec_dgram);
	struct rec_dgram_number n = { 0, 0 };
	struct rec_dgram_gids g;
	struct rec_dgram r;

	head_read(&r, at);
	if (!fields_valid(&r))
		return -EPROTO;
	if (!(r.flags & REC_DGRAM_GIDS)) {
		v4_gid(&h->sgid, r.sgid4);
		v4_gid(&h->dgid, r.dgid4);
	} else if (bytes < head + sizeof(g)) {
		return -EPROTO;
	} else {
		ring_read(&g, from + head, sizeof(g));
		h->sgid = g.sgid;
		h->dgid = g.dgid;
		head += (uint32_t)sizeof(g);
	}
	if (r.flags & REC_DGRAM_IMM) {
		if (bytes < head + sizeof(n))
			return -EPROTO;
		ring_read(&n, from + head, sizeof(n));
		head += (uint32_t)sizeof(n);
	}
	if (bytes - head > (r.kind == UD_DATA ? UD_PAYLOAD_MAX : 0))
		return -EPROTO;
	h->kind = r.kind;
	h->flags = (uint8_t)((r.flags & REC_DGRAM_SOLICITED ? UD_SOLICITED : 0) |
			     (r.kind == UD_DATA && r.flags & REC_DGRAM_IMM ? UD_IMM : 0) |
			     (r.flags & REC_DGRAM_LOCAL ? UD_NO_GRH : 0));
	h->traffic_class = r.traffic_class;
	h->hop_limit = r.hop_limit;
	h->sl = r.flags >> 4;
	h->len = (uint16_t)(bytes - head);
	h->flow_label = r.flow_label;
	h->src_qpn = r.src_qpn;
	h->dst_qpn = r.dst_qpn;
	h->qkey = r.qkey;
	h->imm = h->token = n.number;
	return (int)head;
}
