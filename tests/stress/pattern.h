/* SPDX-License-Identifier: BSD-2-Clause */
/* Random numbers that a seed repeats, and contents that a key repeats: byte i of a
 * message is a function of its key and i, so that any piece can be made and
 * checked alone, by either side. */
#ifndef ANYRDMA_STRESS_PATTERN_H
#define ANYRDMA_STRESS_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rng {
	uint64_t s;
};

static inline uint64_t mix64(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

static inline uint64_t key_of(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
	return mix64(mix64(mix64(mix64(a + 1) ^ (b + 2)) ^ (c + 3)) ^ (d + 4));
}

static inline uint64_t rng_next(struct rng *r)
{
	return mix64(r->s += 0x9e3779b97f4a7c15ull);
}

/* 0 to n-1; n > 0. */
static inline uint64_t rng_below(struct rng *r, uint64_t n)
{
	return rng_next(r) % n;
}

static inline bool rng_chance(struct rng *r, unsigned percent)
{
	return rng_below(r, 100) < percent;
}

/* 0 to max, each order of magnitude as likely as the others. */
uint64_t rng_log(struct rng *r, uint64_t max);

/* Bytes [off, off+len) of the contents of key. */
void pattern_fill(uint64_t key, uint64_t off, uint8_t *p, size_t len);
/* The first byte that differs, or -1. */
int64_t pattern_check(uint64_t key, uint64_t off, const uint8_t *p, size_t len);
/* The same of memory that the peer may write to by itself, now or once it has gone back to
 * the arena. That we are done with it, and it may
 * be written over, the peer learns through the other process: an order TSan cannot see. */
int64_t pattern_check_remote(uint64_t key, uint64_t off, const uint8_t *p, size_t len);
/* The first byte that is not `byte`, or -1. */
int64_t pattern_is(const uint8_t *p, uint8_t byte, size_t len);
uint64_t pattern_hash(const uint8_t *p, size_t len);

#endif
