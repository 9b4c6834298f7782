/* SPDX-License-Identifier: BSD-2-Clause */
/* calloc(1, size) of objects that come and go often: glibc's calloc() passes by what the
 * thread has just freed, its malloc() does not. */
#ifndef ANYRDMA_BASE_ZALLOC_H
#define ANYRDMA_BASE_ZALLOC_H

#include <stdlib.h>
#include <string.h>

static inline void *zalloc(size_t size)
{
	/* The compiler would make a calloc() of malloc() and memset(). */
	void *p = malloc(size);

	__asm__("" : "+r"(p));
	return p ? memset(p, 0, size) : NULL;
}

#endif
