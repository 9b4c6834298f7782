/* SPDX-License-Identifier: BSD-2-Clause */
/* Pages of the application's memory that may be slow to come: from a disk, from a FUSE
 * server, or from a thread of the application (userfaultfd). Who holds a lock that others
 * need, or is the loop thread, asks first whether they are there. */
#ifndef ANYRDMA_BASE_PAGES_H
#define ANYRDMA_BASE_PAGES_H

#include <stdbool.h>
#include <stddef.h>

/* Are all of them in memory? An answer of the kernel is believed for the rest of a tick of
 * its clock, 1 to 10 ms. Also true for what the kernel knows nothing about, such as memory
 * that is not mapped: who touches it finds out. */
bool pages_present(const void *p, size_t len);
/* Has them come, as if each were read, or written; changes nothing in them. May take long.
 * Where that fails, as on kernels before Linux 5.14, it does nothing. */
void pages_populate(const void *p, size_t len, bool write);

#endif
