/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef ANYRDMA_STRESS_MEMORY_H
#define ANYRDMA_STRESS_MEMORY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct memory {
	unsigned limit; /* KiB; 0: do nothing */
	bool verbose;	/* also says it every 30 s */
	uint64_t next[2], said[2];
	uint64_t before[2], after[2]; /* KiB */
};

/* Samples the process of a side, at most once a second; ms of `of` have gone by. */
void memory_sample(struct memory *m, int side, pid_t pid, uint64_t ms, uint64_t of);
/* Says what it has seen. False: some process has grown by more than the limit. */
bool memory_good(const struct memory *m);

#endif
