/* SPDX-License-Identifier: BSD-2-Clause */
/* The counters of a port. The text of a counter's file is the sum of what all processes
 * have added: each adds what is new in it, with the tree's lock. */
#ifndef ANYRDMA_FILES_COUNT_H
#define ANYRDMA_FILES_COUNT_H

#include "dev/dev.h"
#include "dev/traffic.h"
#include "ud/count.h"

/* What this process has added already. */
struct files_counted {
	uint64_t traffic[DEV_DEVICES][TRAFFIC_KINDS];
	uint64_t ud[UD_COUNTERS];
};

/* Makes the files that are not there, in the port's folder: 0 or -errno. */
int files_count_make(int port);
/* Adds what is new of device number `device`, the first of which has the counters of
 * datagrams. port: its folder. True if there was something. `leaving`: waits for no lock. */
bool files_count_add(struct files_counted *c, unsigned device, int port, bool leaving);
/* Is there something new? */
bool files_count_news(const struct files_counted *c, unsigned devices);

#endif
