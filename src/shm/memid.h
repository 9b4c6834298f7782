/* SPDX-License-Identifier: BSD-2-Clause */
/* How the memory of a process is told from that of a program that runs under the same pid
 * later: the process has a page at an address of its own choice, the later program has
 * not.
 *
 * process_vm_readv() and process_vm_writev() name a process by its pid. They look the
 * memory up once in a call and stop at the first piece that is not mapped. So the first
 * piece of each call is in the page: in the memory of another program the call copies
 * nothing, whenever the exec happened. */
#ifndef ANYRDMA_SHM_MEMID_H
#define ANYRDMA_SHM_MEMID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct memid {
	uint64_t at;	/* address of the process's struct memid_page */
	uint64_t nonce; /* drawn by the process that accesses the memory */
};

struct memid_page {
	uint64_t nonce;
	/* First the word of the proof (grant.h). Then each write by pid stores to it,
	 * several processes at the same time. */
	uint64_t word;
};
_Static_assert(offsetof(struct memid_page, nonce) == 0 &&
	       offsetof(struct memid_page, word) == 8 && sizeof(struct memid_page) == 16,
	       "doc/wire.md");

/* A page at a random address, which is not inherited by fork; or NULL and errno. Its
 * address tells nothing about the addresses of other memory. */
struct memid_page *memid_page_new(uint64_t nonce);
void memid_page_free(struct memid_page *page);

/* Is the page in the memory behind this descriptor of a /proc/PID/mem? */
bool memid_in(const struct memid *id, int mem);
/* Is the page in the memory of this process, and may this process be accessed by pid? */
bool memid_of(const struct memid *id, pid_t pid);

enum { MEMID_PIECES = 64 };

/* A copy of `len` bytes between address `at` of the other process and the n pieces of
 * iov. */
struct memid_io {
	bool read; /* from the other process */
	const struct iovec *iov;
	int n; /* at most MEMID_PIECES */
	uint64_t at;
	size_t len;
};

/* Returns the number of bytes copied, or -errno. -ESTALE: the pid names another memory; a
 * read may have filled io->iov from it. */
ssize_t memid_copy(const struct memid *id, pid_t pid, const struct memid_io *io);

#endif
