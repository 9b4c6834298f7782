/* SPDX-License-Identifier: BSD-2-Clause */
#include "rsocket/dproto.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#define TAG 0x55555555u

enum { UDP4 = 16, UDP6 = 28, UD4 = 8, UD6 = 24 };

static void u32_put(uint8_t *to, uint32_t v)
{
	v = htonl(v);
	memcpy(to, &v, sizeof(v));
}

static uint32_t u32_get(const uint8_t *from)
{
	uint32_t v;

	memcpy(&v, from, sizeof(v));
	return ntohl(v);
}

/* tag, version, operation, length, 0, QP number, address. */
size_t dproto_udp_put(uint8_t out[DPROTO_UDP_MAX], const struct dproto_udp *h)
{
	const struct sockaddr_in *s4 = (const void *)&h->src;
	const struct sockaddr_in6 *s6 = (const void *)&h->src;
	int six = h->src.ss_family == AF_INET6;

	u32_put(out, TAG);
	out[4] = six ? 6 : 4;
	out[5] = (uint8_t)h->op;
	out[6] = six ? UDP6 : UDP4;
	out[7] = 0;
	u32_put(out + 8, h->qpn & 0xffffff);
	if (six)
		memcpy(out + 12, &s6->sin6_addr, 16);
	else
		memcpy(out + 12, &s4->sin_addr, 4);
	return six ? UDP6 : UDP4;
}

int dproto_udp_get(const uint8_t *in, size_t len, struct dproto_udp *h)
{
	struct sockaddr_in *s4 = (void *)&h->src;
	struct sockaddr_in6 *s6 = (void *)&h->src;

	if (len < UDP4 || u32_get(in) != TAG || (in[5] != DPROTO_DATA && in[5] != DPROTO_CTRL))
		return -EPROTO;
	memset(&h->src, 0, sizeof(h->src));
	h->op = (enum dproto_op)in[5];
	h->qpn = u32_get(in + 8) & 0xffffff;
	if (in[4] == 4 && in[6] == UDP4) {
		s4->sin_family = AF_INET;
		memcpy(&s4->sin_addr, in + 12, 4);
		return UDP4;
	}
	if (in[4] == 6 && in[6] == UDP6 && len >= UDP6) {
		s6->sin6_family = AF_INET6;
		memcpy(&s6->sin6_addr, in + 12, 16);
		return UDP6;
	}
	return -EPROTO;
}

/* version, length, port, and the address; of IPv6 behind the flow. */
size_t dproto_ud_put(uint8_t out[DPROTO_UD_MAX], const struct sockaddr_storage *src)
{
	const struct sockaddr_in *s4 = (const void *)src;
	const struct sockaddr_in6 *s6 = (const void *)src;
	int six = src->ss_family == AF_INET6;

	out[0] = six ? 6 : 4;
	out[1] = six ? UD6 : UD4;
	memcpy(out + 2, six ? &s6->sin6_port : &s4->sin_port, 2);
	if (!six) {
		memcpy(out + 4, &s4->sin_addr, 4);
		return UD4;
	}
	memcpy(out + 4, &s6->sin6_flowinfo, 4);
	memcpy(out + 8, &s6->sin6_addr, 16);
	return UD6;
}

int dproto_ud_get(const uint8_t *in, size_t len, struct sockaddr_storage *src)
{
	struct sockaddr_in *s4 = (void *)src;
	struct sockaddr_in6 *s6 = (void *)src;

	if (len < UD4)
		return -EPROTO;
	memset(src, 0, sizeof(*src));
	if (in[0] == 4 && in[1] == UD4) {
		s4->sin_family = AF_INET;
		memcpy(&s4->sin_port, in + 2, 2);
		memcpy(&s4->sin_addr, in + 4, 4);
		return UD4;
	}
	if (in[0] == 6 && in[1] == UD6 && len >= UD6) {
		s6->sin6_family = AF_INET6;
		memcpy(&s6->sin6_port, in + 2, 2);
		memcpy(&s6->sin6_flowinfo, in + 4, 4);
		memcpy(&s6->sin6_addr, in + 8, 16);
		return UD6;
	}
	return -EPROTO;
}
