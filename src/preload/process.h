/* SPDX-License-Identifier: BSD-2-Clause */
/* fork, exec, exit. */
#ifndef ANYRDMA_PRELOAD_PROCESS_H
#define ANYRDMA_PRELOAD_PROCESS_H

#include <stdbool.h>

/* This is the child of vfork(): descriptors of its own, memory of its parent. */
bool process_is_vfork(void);

#endif
