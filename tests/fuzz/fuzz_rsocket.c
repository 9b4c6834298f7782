/* SPDX-License-Identifier: BSD-2-Clause */
/* What a peer of an rsocket sends: private data, headers of datagrams. Decoding uses no
 * byte beyond those given, and what a decoder accepts survives encoding. */
#include "rsocket/dproto.h"
#include "rsocket/proto.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool cond)
{
	if (!cond)
		abort();
}

/* In memory of just this size: a sanitizer sees what reads beyond. */
static uint8_t *exact(const uint8_t *data, size_t size)
{
	uint8_t *p = malloc(size ? size : 1);

	if (!p)
		abort();
	memcpy(p, data, size);
	return p;
}

static void conn(const uint8_t *in, size_t n)
{
	uint8_t one[PROTO_CONN_LEN], two[PROTO_CONN_LEN];
	struct proto_conn c, again;

	if (proto_conn_get(in, n, &c))
		return;
	must(n >= PROTO_CONN_LEN && c.credits && c.sgl.length);
	must(c.data.length <= PROTO_VALUE_MAX && c.iomaps <= PROTO_IOMAP_MAX);
	proto_conn_put(one, &c);
	must(!proto_conn_get(one, sizeof(one), &again));
	proto_conn_put(two, &again);
	must(!memcmp(one, two, sizeof(one)));
}

static void headers(const uint8_t *in, size_t n)
{
	uint8_t udp[DPROTO_UDP_MAX], ud[DPROTO_UD_MAX];
	struct sockaddr_storage src;
	struct dproto_udp h;
	int len = dproto_udp_get(in, n, &h);

	if (len > 0) {
		must((size_t)len <= n && h.qpn <= 0xffffff);
		must(dproto_udp_put(udp, &h) == (size_t)len);
		must(!memcmp(udp + 12, in + 12, (size_t)len - 12));
	}
	len = dproto_ud_get(in, n, &src);
	if (len > 0) {
		must((size_t)len <= n);
		must(dproto_ud_put(ud, &src) == (size_t)len);
		must(!memcmp(ud, in, (size_t)len));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *in = exact(data, size);

	conn(in, size);
	headers(in, size);
	free(in);
	return 0;
}
