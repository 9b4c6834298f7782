/* SPDX-License-Identifier: BSD-2-Clause */
#include "rsocket/proto.h"

#include <errno.h>
#include <string.h>

enum { FLAG_BIG_ENDIAN = 1, FLAG_IOMAP = 2 };

static void be_put(uint8_t *to, uint64_t v, unsigned bytes)
{
	while (bytes--) {
		to[bytes] = (uint8_t)v;
		v >>= 8;
	}
}

static uint64_t be_get(const uint8_t *from, unsigned bytes)
{
	uint64_t v = 0;

	while (bytes--)
		v = v << 8 | *from++;
	return v;
}

uint8_t proto_iomaps_scale(uint32_t n)
{
	if (n <= 128)
		return (uint8_t)n;
	if (n > PROTO_IOMAP_MAX)
		n = PROTO_IOMAP_MAX;
	return (uint8_t)(0x80 | n >> 8);
}

uint32_t proto_iomaps(uint8_t scaled)
{
	return scaled <= 128 ? scaled : (uint32_t)(scaled & 0x7f) << 8;
}

void proto_conn_put(uint8_t out[PROTO_CONN_LEN], const struct proto_conn *c)
{
	memset(out, 0, PROTO_CONN_LEN);
	out[0] = PROTO_VERSION;
	out[1] = (uint8_t)(FLAG_IOMAP | (c->big_endian ? FLAG_BIG_ENDIAN : 0));
	be_put(out + 2, c->credits, 2);
	out[7] = proto_iomaps_scale(c->iomaps);
	be_put(out + 8, c->sgl.addr, 8);
	be_put(out + 16, c->sgl.key, 4);
	be_put(out + 20, c->sgl.length, 4);
	be_put(out + 24, c->data.addr, 8);
	be_put(out + 32, c->data.key, 4);
	be_put(out + 36, c->data.length, 4);
}

int proto_conn_get(const uint8_t *in, size_t len, struct proto_conn *c)
{
	struct proto_conn got;

	if (len < PROTO_CONN_LEN)
		return -EPROTO;
	if (in[0] != PROTO_VERSION)
		return -EPROTONOSUPPORT;
	got = (struct proto_conn){
		.big_endian = in[1] & FLAG_BIG_ENDIAN,
		.credits = (uint16_t)be_get(in + 2, 2),
		.iomaps = in[1] & FLAG_IOMAP ? proto_iomaps(in[7]) : 0,
		.sgl = { be_get(in + 8, 8), (uint32_t)be_get(in + 16, 4),
			 (uint32_t)be_get(in + 20, 4) },
		.data = { be_get(in + 24, 8), (uint32_t)be_get(in + 32, 4),
			  (uint32_t)be_get(in + 36, 4) },
	};
	if (!got.credits || !got.sgl.length || got.data.length > PROTO_VALUE_MAX)
		return -EPROTO;
	*c = got;
	return 0;
}

static void word_put(uint8_t *to, uint64_t v, unsigned bytes, bool swap)
{
	uint64_t v64 = swap ? __builtin_bswap64(v) : v;
	uint32_t v32 = swap ? __builtin_bswap32((uint32_t)v) : (uint32_t)v;

	if (bytes == 8)
		memcpy(to, &v64, 8);
	else
		memcpy(to, &v32, 4);
}

void proto_sge_put(uint8_t out[PROTO_SGE_LEN], const struct proto_sge *s, bool swap)
{
	word_put(out, s->addr, 8, swap);
	word_put(out + 8, s->key, 4, swap);
	word_put(out + 12, s->length, 4, swap);
}

void proto_iomap_put(uint8_t out[PROTO_IOMAP_LEN], uint64_t offset,
		     const struct proto_sge *s, bool swap)
{
	word_put(out, offset, 8, swap);
	proto_sge_put(out + 8, s, swap);
}

struct proto_sge proto_sge_get(const uint8_t in[PROTO_SGE_LEN])
{
	struct proto_sge s;

	memcpy(&s.addr, in, 8);
	memcpy(&s.key, in + 8, 4);
	memcpy(&s.length, in + 12, 4);
	return s;
}

uint64_t proto_iomap_get(const uint8_t in[PROTO_IOMAP_LEN], struct proto_sge *s)
{
	uint64_t offset;

	memcpy(&offset, in, 8);
	*s = proto_sge_get(in + 8);
	return offset;
}
