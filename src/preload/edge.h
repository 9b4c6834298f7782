/* SPDX-License-Identifier: BSD-2-Clause */
/* The exported calls: 0 or -errno inside, -1 and errno outside. */
#ifndef ANYRDMA_PRELOAD_EDGE_H
#define ANYRDMA_PRELOAD_EDGE_H

#include <errno.h>
#include <sys/types.h>

#define EXPORT __attribute__((visibility("default")))

static inline ssize_t edge(ssize_t n)
{
	if (n >= 0)
		return n;
	errno = (int)-n;
	return -1;
}

#endif
