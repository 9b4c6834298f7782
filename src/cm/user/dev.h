/* SPDX-License-Identifier: BSD-2-Clause */
/* Our libibverbs, as the user backend sees it. */
#ifndef ANYRDMA_CM_USER_DEV_H
#define ANYRDMA_CM_USER_DEV_H

#include "dev/interface.h"

/* Set by user_dev_probe(), before any other function of the backend runs, and never
 * changed after. */
extern const struct anyrdma_interface *cm_dev;

/* cm_backend.probe: 1 when the loaded libibverbs is ours, 0 when it is the
 * distribution's, -ENODEV when it is ours of another build. */
int user_dev_probe(void);

#endif
