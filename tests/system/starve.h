/* SPDX-License-Identifier: BSD-2-Clause */
/* An allocator that fails on demand: malloc() and its kin of the whole process, the
 * libraries' and the C library's own calls included. */
#ifndef ANYRDMA_TESTS_STARVE_H
#define ANYRDMA_TESTS_STARVE_H

#include <stdbool.h>

/* From now on the n-th allocation fails (1: the next one), and with `on` all that follow
 * it. 0: none fails, and none is counted. */
void starve(unsigned n, bool on);
/* Whether the n-th allocation came. */
bool starve_met(void);

#endif
