/* SPDX-License-Identifier: BSD-2-Clause */
/* Our libibverbs, as the user backend sees it. */
#ifndef ANYRDMA_CM_USER_DEV_H
#define ANYRDMA_CM_USER_DEV_H

#include "dev/interface.h"

/* Set by backend.c before cm_backend_user.init runs, never changed after. NULL
 * when the loaded libibverbs is not ours (the user backend is unused then). */
extern const struct anyrdma_interface *cm_dev;

#endif
