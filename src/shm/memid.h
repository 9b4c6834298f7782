/* SPDX-License-Identifier: BSD-2-Clause */
/* A page by which memory is known: one program has it, at a place of its own choice,
 * and what runs under its pid later has not.
 *
 * process_vm_readv() and process_vm_writev() go by pid, but look up the memory once in
 * a call and stop at the first piece that is not there. So each call passes through
 * the gate first: of another program it moves nothing, whenever the exec came. */
#ifndef ANYRDMA_SHM_GATE_H
#define ANYRDMA_SHM_GATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

struct memid {
	uint64_t at;	/* address of its struct memid_page */
	uint64_t nonce; /* drawn by who accesses the memory, not by who has it */
};

struct memid_page {
	uint64_t nonce;
	uint64_t word; /* grant.h: first the proof; then written by all who pass, at once */
};

/* A page at a place that cannot be guessed, which a child does not inherit; or NULL and
 * errno. Its address tells nothing of where other memory is. */
struct memid_page *memid_page_new(uint64_t nonce);
void memid_page_free(struct memid_page *page);

/* Is it there, in the memory of a /proc/PID/mem? */
bool memid_in(const struct memid *g, int mem);
/* Is it there, in the memory of a process that we may access by its pid? */
bool memid_of(const struct memid *g, pid_t pid);

enum { MEMID_PIECES = 64 };

/* A copy of len bytes between `at` in the other process and the n pieces of iov. */
struct gate_io {
	bool read; /* from the other process */
	const struct iovec *iov;
	int n; /* at most MEMID_PIECES */
	uint64_t at;
	size_t len;
};

/* Returns the number of bytes copied, or -errno; -ESTALE: the pid has another memory.
 * What was read from that is in io->iov then. */
ssize_t memid_copy(const struct memid *g, pid_t pid, const struct gate_io *io);

#endif
