/* SPDX-License-Identifier: BSD-2-Clause */
/* The bytes that a fuzz target was given, taken from the front. Behind their end there
 * are zeros: a target need not check whether its input is long enough. */
#ifndef ANYRDMA_FUZZ_INPUT_H
#define ANYRDMA_FUZZ_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct input {
	const uint8_t *at, *end;
};

static inline bool input_over(const struct input *in)
{
	return in->at == in->end;
}

static inline void input_get(struct input *in, void *to, size_t n)
{
	size_t have = (size_t)(in->end - in->at), k = n < have ? n : have;

	memset(to, 0, n);
	if (k)
		memcpy(to, in->at, k);
	in->at += k;
}

static inline uint8_t input_u8(struct input *in)
{
	uint8_t v;

	input_get(in, &v, sizeof(v));
	return v;
}

static inline uint32_t input_u32(struct input *in)
{
	uint32_t v;

	input_get(in, &v, sizeof(v));
	return v;
}

#endif
