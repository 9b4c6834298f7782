/* SPDX-License-Identifier: BSD-2-Clause */
/* DDP/RDMAP headers: whatever the bytes, decoding uses no byte beyond those
 * given, decides the same however many follow, and what it accepts survives
 * encoding. */
#include "tcp/rdmap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool cond)
{
	if (!cond)
		abort();
}

/* A copy of exactly n bytes: a sanitizer sees a byte too many. */
static int decode_alone(const uint8_t *data, size_t n, struct rc_frame *h)
{
	uint8_t *p = malloc(n ? n : 1);
	int ret;

	must(p);
	if (n)
		memcpy(p, data, n);
	memset(h, 0, sizeof(*h));
	ret = rdmap_decode(p, n, h);
	free(p);
	return ret;
}

/* Of a Terminate the first RC_TERM_DATA bytes are kept. */
static bool is_cut(const struct rc_frame *h)
{
	return h->op == RC_TERMINATE && h->term.len == RC_TERM_DATA;
}

static void round_trip(const struct rc_frame *h, int len)
{
	uint8_t one[RDMAP_HDR_MAX], two[RDMAP_HDR_MAX];
	struct rc_frame again;
	size_t n;

	memset(&again, 0, sizeof(again));
	n = rdmap_encode(one, h);
	must(n == (size_t)len || (n < (size_t)len && is_cut(h)));
	must(rdmap_decode(one, n, &again) == (int)n);
	must(again.payload == h->payload);
	must(rdmap_encode(two, &again) == n);
	must(!memcmp(one, two, n));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t max = size < RDMAP_HDR_MAX + 8 ? size : RDMAP_HDR_MAX + 8;
	struct rc_frame h;
	int last = -EAGAIN;

	for (size_t n = 0; n <= max; n++) {
		int ret = decode_alone(data, n, &h);

		must(last == -EAGAIN || ret == last);
		must(ret == -EAGAIN || ret == -EPROTO || (ret > 0 && (size_t)ret <= n));
		last = ret;
	}
	if (last > 0)
		round_trip(&h, last);
	must(last != -EAGAIN || max < RDMAP_HDR_MAX);
	return 0;
}
