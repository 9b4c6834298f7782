/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/crc32c.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#define POLY 0x82f63b78u /* 0x1edc6f41 reflected */

static uint32_t table[256];
#if defined(__x86_64__)
static bool have_instruction;
#endif
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void init(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t c = i;

		for (int k = 0; k < 8; k++)
			c = c & 1 ? c >> 1 ^ POLY : c >> 1;
		table[i] = c;
	}
#if defined(__x86_64__)
	have_instruction = __builtin_cpu_supports("sse4.2");
#endif
}

static uint32_t crc_table(uint32_t crc, const uint8_t *p, size_t len)
{
	while (len--)
		crc = crc >> 8 ^ table[(crc ^ *p++) & 0xff];
	return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2")))
static uint32_t crc_instruction(uint32_t crc, const uint8_t *p, size_t len)
{
	uint64_t c = crc, v;

	for (; len >= 8; p += 8, len -= 8) {
		memcpy(&v, p, 8);
		c = __builtin_ia32_crc32di(c, v);
	}
	for (; len; len--)
		c = __builtin_ia32_crc32qi((uint32_t)c, *p++);
	return (uint32_t)c;
}
#endif

uint32_t crc32c(uint32_t crc, const void *data, size_t len)
{
	pthread_once(&once, init);
#if defined(__x86_64__)
	if (have_instruction)
		return crc_instruction(crc, data, len);
#endif
	return crc_table(crc, data, len);
}

void crc32c_put(uint8_t out[4], uint32_t crc)
{
	crc = ~crc;
	for (int i = 0; i < 4; i++)
		out[i] = (uint8_t)(crc >> (8 * i));
}
