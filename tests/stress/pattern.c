/* SPDX-License-Identifier: BSD-2-Clause */
#include "pattern.h"

#include <string.h>

uint64_t rng_log(struct rng *r, uint64_t max)
{
	unsigned bits = 0;
	uint64_t v;

	while (bits < 63 && max >> bits)
		bits++;
	v = rng_next(r) & ((1ull << rng_below(r, bits + 1)) - 1);
	return v > max ? max : v;
}

static uint64_t word(uint64_t key, uint64_t i)
{
	return mix64(key + i * 0x9e3779b97f4a7c15ull);
}

static uint8_t byte_at(uint64_t key, uint64_t i)
{
	return (uint8_t)(word(key, i >> 3) >> (8 * (i & 7)));
}

void pattern_fill(uint64_t key, uint64_t off, uint8_t *p, size_t len)
{
	for (; len && (off & 7); len--)
		*p++ = byte_at(key, off++);
	for (; len >= 8; len -= 8, p += 8, off += 8) {
		uint64_t w = word(key, off >> 3);

		memcpy(p, &w, 8);
	}
	for (; len; len--)
		*p++ = byte_at(key, off++);
}

static int64_t check_bytes(uint64_t key, uint64_t off, const uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (p[i] != byte_at(key, off + i))
			return (int64_t)i;
	return -1;
}

int64_t pattern_check(uint64_t key, uint64_t off, const uint8_t *p, size_t len)
{
	size_t at = off & 7 ? 8 - (off & 7) : 0;
	int64_t bad;

	at = at > len ? len : at;
	bad = check_bytes(key, off, p, at);
	for (; bad < 0 && len - at >= 8; at += 8) {
		uint64_t w = word(key, (off + at) >> 3), got;

		memcpy(&got, p + at, 8);
		if (got != w)
			return (int64_t)at + check_bytes(key, off + at, p + at, 8);
	}
	if (bad >= 0)
		return bad;
	bad = check_bytes(key, off + at, p + at, len - at);
	return bad < 0 ? bad : (int64_t)at + bad;
}

#ifdef __SANITIZE_THREAD__
__attribute__((no_sanitize("thread"))) static void copy_unseen(uint8_t *to, const uint8_t *from,
							       size_t n)
{
	const volatile uint8_t *v = from;

	for (size_t i = 0; i < n; i++)
		to[i] = v[i];
}

int64_t pattern_check_remote(uint64_t key, uint64_t off, const uint8_t *p, size_t len)
{
	uint8_t part[4096];
	size_t n;

	for (size_t at = 0; at < len; at += n) {
		int64_t bad;

		n = len - at < sizeof(part) ? len - at : sizeof(part);
		copy_unseen(part, p + at, n);
		bad = pattern_check(key, off + at, part, n);
		if (bad >= 0)
			return (int64_t)at + bad;
	}
	return -1;
}
#else
int64_t pattern_check_remote(uint64_t key, uint64_t off, const uint8_t *p, size_t len)
{
	return pattern_check(key, off, p, len);
}
#endif

__attribute__((no_sanitize("thread"))) int64_t pattern_is(const uint8_t *p, uint8_t byte,
							   size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (p[i] != byte)
			return (int64_t)i;
	return -1;
}

uint64_t pattern_hash(const uint8_t *p, size_t len)
{
	uint64_t h = len, w;

	for (; len >= 8; len -= 8, p += 8) {
		memcpy(&w, p, 8);
		h = mix64(h ^ w);
	}
	w = 0;
	if (len)
		memcpy(&w, p, len);
	return mix64(h ^ w);
}
