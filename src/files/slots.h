/* SPDX-License-Identifier: BSD-2-Clause */
/* Which slot of the GID table each address was given. The tree keeps it, so that a process
 * that begins later has the same indices as those before it, and as the files. */
#ifndef ANYRDMA_FILES_SLOTS_H
#define ANYRDMA_FILES_SLOTS_H

#include "dev/dev.h"
#include "dev/gid.h"

/* How many slots have been given; 0: nothing is known. */
unsigned files_slots_read(int root, unsigned device, struct gid_slot slots[DEV_GIDS]);
/* Adds what is new at the end; with the tree's lock. 0 or -errno. */
int files_slots_write(int root, unsigned device, const struct gid_slot *slots, unsigned n);
void files_slots_forget(int root, unsigned device);

#endif
