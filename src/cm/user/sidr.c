/* SPDX-License-Identifier: BSD-2-Clause */
#include "cm/user/sidr.h"

#include "base/be.h"

#include <errno.h>
#include <string.h>

static const uint8_t magic[4] = { 'A', 'S', 'I', 'D' };

/* Offsets; wire.md has the picture. */
enum {
	H_VERSION = 4,
	H_KIND = 5,
	H_PS = 6,
	H_ID = 8,
	REQ_FLAGS = 16,
	REQ_SRC_PORT = 20,
	REQ_DST_PORT = 22,
	REQ_SRC = 24,
	REQ_DST = 40,
	REQ_PRIV = 56,
	REP_STATUS = 16,
	REP_QPN = 17,
	REP_QKEY = 20,
	REP_PRIV = 24,
};
enum { FLAG_IPV6 = 1 };
_Static_assert((int)REQ_PRIV + (int)SIDR_PRIV_REQ == (int)SIDR_REQ_LEN, "length of a request");
_Static_assert((int)REP_PRIV + (int)SIDR_PRIV_REP == (int)SIDR_REP_LEN, "length of a reply");

static size_t kind_len(uint8_t kind)
{
	switch (kind) {
	case SIDR_REQ:
		return SIDR_REQ_LEN;
	case SIDR_WAIT:
		return SIDR_WAIT_LEN;
	case SIDR_REP:
		return SIDR_REP_LEN;
	default:
		return 0;
	}
}

int sidr_kind(const uint8_t *buf, size_t len, uint64_t *id)
{
	if (len < SIDR_HEAD_LEN || memcmp(buf, magic, sizeof(magic)) != 0)
		return -EPROTO;
	if (buf[H_VERSION] != SIDR_VERSION) {
		/* Shorter than the refusal: it would amplify. */
		if (buf[H_KIND] != SIDR_REQ || len < SIDR_REP_LEN)
			return -EPROTO;
		*id = be64_get(buf + H_ID);
		return -EPROTONOSUPPORT;
	}
	if (len != kind_len(buf[H_KIND]))
		return -EPROTO;
	*id = be64_get(buf + H_ID);
	return buf[H_KIND];
}

bool sidr_quoted_id(const uint8_t *buf, size_t len, uint64_t *id)
{
	if (len < SIDR_HEAD_LEN || memcmp(buf, magic, sizeof(magic)) != 0 ||
	    buf[H_VERSION] != SIDR_VERSION || buf[H_KIND] != SIDR_REQ)
		return false;
	*id = be64_get(buf + H_ID);
	return true;
}

static bool is_mapped(const uint8_t addr[16])
{
	static const uint8_t prefix[12] = { [10] = 0xff, [11] = 0xff };

	return !memcmp(addr, prefix, sizeof(prefix));
}

int sidr_req_decode(const uint8_t *buf, size_t len, struct sidr_req *r)
{
	uint64_t id;

	if (sidr_kind(buf, len, &id) != SIDR_REQ)
		return -EPROTO;
	*r = (struct sidr_req){
		.id = id,
		.ps = be16_get(buf + H_PS),
		.ipv6 = buf[REQ_FLAGS] & FLAG_IPV6,
		.src_port = be16_get(buf + REQ_SRC_PORT),
		.dst_port = be16_get(buf + REQ_DST_PORT),
	};
	memcpy(r->src_addr, buf + REQ_SRC, 16);
	memcpy(r->dst_addr, buf + REQ_DST, 16);
	memcpy(r->priv, buf + REQ_PRIV, SIDR_PRIV_REQ);
	if (!r->dst_port || r->ipv6 == is_mapped(r->src_addr) ||
	    r->ipv6 == is_mapped(r->dst_addr))
		return -EPROTO;
	return 0;
}

int sidr_rep_decode(const uint8_t *buf, size_t len, struct sidr_rep *r)
{
	uint64_t id;

	if (sidr_kind(buf, len, &id) != SIDR_REP)
		return -EPROTO;
	*r = (struct sidr_rep){
		.id = id,
		.ps = be16_get(buf + H_PS),
		.status = buf[REP_STATUS],
		.qpn = be32_get(buf + REP_QPN - 1) & 0xffffff,
		.qkey = be32_get(buf + REP_QKEY),
	};
	memcpy(r->priv, buf + REP_PRIV, SIDR_PRIV_REP);
	return 0;
}

static void head(uint8_t *buf, enum sidr_kind kind, uint16_t ps, uint64_t id)
{
	memset(buf, 0, kind_len((uint8_t)kind));
	memcpy(buf, magic, sizeof(magic));
	buf[H_VERSION] = SIDR_VERSION;
	buf[H_KIND] = (uint8_t)kind;
	be16_put(buf + H_PS, ps);
	be64_put(buf + H_ID, id);
}

void sidr_req_encode(uint8_t buf[SIDR_REQ_LEN], const struct sidr_req *r)
{
	head(buf, SIDR_REQ, r->ps, r->id);
	buf[REQ_FLAGS] = r->ipv6 ? FLAG_IPV6 : 0;
	be16_put(buf + REQ_SRC_PORT, r->src_port);
	be16_put(buf + REQ_DST_PORT, r->dst_port);
	memcpy(buf + REQ_SRC, r->src_addr, 16);
	memcpy(buf + REQ_DST, r->dst_addr, 16);
	memcpy(buf + REQ_PRIV, r->priv, SIDR_PRIV_REQ);
}

void sidr_wait_encode(uint8_t buf[SIDR_WAIT_LEN], uint16_t ps, uint64_t id)
{
	head(buf, SIDR_WAIT, ps, id);
}

void sidr_rep_encode(uint8_t buf[SIDR_REP_LEN], const struct sidr_rep *r)
{
	head(buf, SIDR_REP, r->ps, r->id);
	be32_put(buf + REP_STATUS, r->qpn & 0xffffff); /* the status goes over its top byte */
	buf[REP_STATUS] = r->status;
	be32_put(buf + REP_QKEY, r->qkey);
	memcpy(buf + REP_PRIV, r->priv, SIDR_PRIV_REP);
}
