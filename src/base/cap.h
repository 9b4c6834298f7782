/* SPDX-License-Identifier: BSD-2-Clause */
/* What the process may do. */
#ifndef ANYRDMA_BASE_CAP_H
#define ANYRDMA_BASE_CAP_H

#include <stdbool.h>

/* The calling thread has the capability (CAP_*, below 32) in effect. */
bool cap_effective(unsigned cap);

#endif
