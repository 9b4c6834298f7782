/* SPDX-License-Identifier: BSD-2-Clause */
/* For fuzz targets: MUST() aborts when a condition does not hold. PATIENCE_S is how long
 * a target may wait for a condition. */
#ifndef ANYRDMA_FUZZ_MUST_H
#define ANYRDMA_FUZZ_MUST_H

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { PATIENCE_S = 20 };

#define MUST(cond) must(!!(cond), __FILE__, __LINE__, #cond)

static void must(bool good, const char *file, int line, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "%s:%d: not true: %s (errno %d)\n", file, line, what, errno);
	abort();
}

static inline double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

#endif
