/* SPDX-License-Identifier: BSD-2-Clause */
/* The golden frames of tests/wire/: bytes in hexadecimal, made from doc/wire.md and not by
 * the code that is tested. Lines with # are for readers. */
#ifndef ANYRDMA_TCP_GOLDEN_TEST_H
#define ANYRDMA_TCP_GOLDEN_TEST_H

#include "tests/t.h"

/* The bytes of tests/wire/NAME.hex, at most cap. How many; 0: there is no such file. */
static size_t golden(const char *name, uint8_t *buf, size_t cap)
{
	const char *src = getenv("SOURCE");
	char path[500], line[300], *p, *end;
	size_t n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/tests/wire/%s.hex", src ? src : ".", name);
	f = fopen(path, "r");
	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f)) {
		if (line[0] == '#')
			continue;
		for (p = line; n < cap; p = end) {
			unsigned long v = strtoul(p, &end, 16);

			if (end == p)
				break;
			buf[n++] = (uint8_t)v;
		}
	}
	fclose(f);
	return n;
}

#endif
