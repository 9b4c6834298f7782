/* SPDX-License-Identifier: BSD-2-Clause */
/* What the devices are called: ANYRDMA_NAME. */
#ifndef ANYRDMA_DEV_NAMES_H
#define ANYRDMA_DEV_NAMES_H

#include <infiniband/verbs.h>

typedef char device_name[IBV_SYSFS_NAME_MAX];

/* The names of n devices. text: a comma list; the last item names all devices that are left,
 * and if these are several, it counts up from the number at its end, or from 0 where it has
 * none. NULL or "": anyrdma0 and so on. NULL; or why text is refused, and the names are those
 * without it. */
const char *names_make(const char *text, unsigned n, device_name *names);

#endif
