/* SPDX-License-Identifier: BSD-2-Clause */
/* MPA frames and our header in them: decoding uses no byte beyond those given,
 * decides the same however many follow, never asks for bytes past the frame,
 * and what a decoder accepts survives encoding. */
#include "tcp/mpa.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool cond)
{
	if (!cond)
		abort();
}

/* Encodes what was decoded, decodes that, encodes again: equal bytes. */
#define ROUND_TRIP(type)                                                        \
	static void round_trip_##type(const struct mpa_frame *f)                \
	{                                                                       \
		uint8_t one[MPA_OURS_MAX], two[MPA_OURS_MAX];                   \
		struct mpa_##type m, again;                                     \
		struct mpa_frame g;                                             \
		int len;                                                        \
		if (mpa_##type##_decode(f, &m))                                 \
			return;                                                 \
		len = mpa_##type##_encode(one, sizeof(one), &m);                \
		must(len > 0 && len <= MPA_OURS_MAX);                           \
		must(mpa_decode(one, (size_t)len, &g) == len);                  \
		must(mpa_kind(&g) == mpa_kind(f));                              \
		must(!mpa_##type##_decode(&g, &again));                         \
		must(mpa_##type##_encode(two, sizeof(two), &again) == len);     \
		must(!memcmp(one, two, (size_t)len));                           \
		must(mpa_##type##_encode(one, (size_t)len - 1, &m) == -ENOSPC); \
	}

ROUND_TRIP(cm_req)
ROUND_TRIP(cm_rep)
ROUND_TRIP(cm_rej)
ROUND_TRIP(hello)
ROUND_TRIP(hello_rep)

static void frame(const struct mpa_frame *f, const uint8_t *data, int len)
{
	uint8_t buf[MPA_FRAME_MAX];
	uint16_t ird, ord;
	int kind = mpa_kind(f);

	must(f->pd_len <= MPA_PD_MAX && len == MPA_HDR_LEN + f->pd_len);
	must(mpa_encode(buf, sizeof(buf), f) == len);
	must(!memcmp(buf, data, (size_t)len));
	if (!mpa_depths(f, &ird, &ord))
		must(ird <= 0x3fff && ord <= 0x3fff);
	must(kind > 0 || kind == -ENOMSG || kind == -EPROTO || kind == -EPROTONOSUPPORT);
	round_trip_cm_req(f);
	round_trip_cm_rep(f);
	round_trip_cm_rej(f);
	round_trip_hello(f);
	round_trip_hello_rep(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t max = size < MPA_FRAME_MAX + 4 ? size : MPA_FRAME_MAX + 4;
	int last = -EAGAIN;

	for (size_t n = 0; n <= max; n++) {
		uint8_t *p = malloc(n ? n : 1);
		struct mpa_frame f;
		size_t want;
		int ret;

		must(p);
		if (n)
			memcpy(p, data, n);
		ret = mpa_decode(p, n, &f);
		want = mpa_want(p, n);
		must(last == -EAGAIN || ret == last);
		must(ret == -EAGAIN || ret == -EPROTO || (ret > 0 && (size_t)ret <= n));
		must(n + want <= MPA_FRAME_MAX || want == 0);
		if (ret == -EAGAIN)
			must(want > 0);
		if (ret > 0) {
			must(want == 0);
			if (last == -EAGAIN) {
				must((size_t)ret == n);
				frame(&f, p, ret);
			}
		}
		last = ret;
		free(p);
	}
	must(last != -EAGAIN || max < MPA_FRAME_MAX);
	return 0;
}
