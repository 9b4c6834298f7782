/* SPDX-License-Identifier: BSD-2-Clause */
/* A question to the kernel costs about as much as copying 16 KiB. So it is asked about a
 * group of pages at once, and the answers are kept for a moment. */
#include "base/pages.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Of Linux 5.14; headers may be older. */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

enum { GROUP = 64, ANSWERS = 256, TICK_BITS = 20 };

/* Threads write them without a lock. Who reads an answer that is half of another one is
 * told something wrong about a page, which costs time and no data. */
static struct answer {
	_Atomic uint64_t key; /* number of the group, and the tick */
	_Atomic uint64_t here; /* a bit for each page */
} answers[ANSWERS];

static uint64_t tick_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	/* The clock stands still between two ticks. */
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static unsigned page_shift(void)
{
	static _Atomic unsigned known;
	unsigned shift = atomic_load_explicit(&known, memory_order_relaxed);

	if (!shift) {
		shift = (unsigned)__builtin_ctzl((unsigned long)sysconf(_SC_PAGESIZE));
		atomic_store_explicit(&known, shift, memory_order_relaxed);
	}
	return shift;
}

/* Bits of the pages from number `from` on, `n` of them, all of one group; false: not all of
 * them are mapped. */
static bool ask(uintptr_t from, unsigned n, uint64_t *here)
{
	const unsigned shift = page_shift();
	unsigned char vec[GROUP];

	if (mincore((void *)(from << shift), (size_t)n << shift, vec))
		return false;
	*here = 0;
	for (unsigned i = 0; i < n; i++)
		*here |= (uint64_t)(vec[i] & 1) << (from % GROUP + i);
	return true;
}

/* A group may reach beyond what is mapped. Then the pages in question, want, are asked for
 * alone: n from number `first` on. */
static uint64_t ask_group(uintptr_t first, unsigned n, uint64_t want, uint64_t key)
{
	uintptr_t group = first / GROUP;
	struct answer *a = &answers[group % ANSWERS];
	int before = errno;
	uint64_t here;

	if (!ask(group * GROUP, GROUP, &here)) {
		if (!ask(first, n, &here))
			here = want;
		if (atomic_load_explicit(&a->key, memory_order_relaxed) == key)
			here |= atomic_load_explicit(&a->here, memory_order_relaxed);
		errno = before;
	}
	atomic_store_explicit(&a->key, key, memory_order_relaxed);
	atomic_store_explicit(&a->here, here, memory_order_relaxed);
	return here;
}

bool pages_present(const void *p, size_t len)
{
	const unsigned shift = page_shift();
	uintptr_t at = (uintptr_t)p >> shift, end = (((uintptr_t)p + len - 1) >> shift) + 1;
	uint64_t tick;

	if (!len)
		return true;
	tick = tick_now() & ((1u << TICK_BITS) - 1);
	while (at < end) {
		uintptr_t group = at / GROUP;
		unsigned n = GROUP - (unsigned)(at % GROUP);
		struct answer *a = &answers[group % ANSWERS];
		uint64_t key = (uint64_t)group << TICK_BITS | tick, want, here;

		n = end - at < n ? (unsigned)(end - at) : n;
		want = UINT64_MAX >> (GROUP - n) << at % GROUP;
		here = atomic_load_explicit(&a->here, memory_order_relaxed);
		if (atomic_load_explicit(&a->key, memory_order_relaxed) != key ||
		    (here & want) != want)
			here = ask_group(at, n, want, key);
		if ((here & want) != want)
			return false;
		at += n;
	}
	return true;
}

void pages_populate(const void *p, size_t len, bool write)
{
	const unsigned shift = page_shift();
	uintptr_t from = (uintptr_t)p >> shift << shift, end = (uintptr_t)p + len;
	int before = errno;

	while (len && madvise((void *)from, end - from,
			      write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) &&
	       errno == EINTR)
		;
	errno = before;
}
