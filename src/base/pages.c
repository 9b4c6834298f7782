/* SPDX-License-Identifier: BSD-2-Clause */
/* A question to the kernel costs about as much as copying 16 KiB. So it is asked about a
 * group of pages at once, and the answers are kept for a moment. */
#include "base/pages.h"

#include "base/conf.h"

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

enum { GROUP = 64, ANSWERS = 256, TICK_BITS = 20, TRUST = 99 };

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

static _Atomic unsigned known_shift;

/* Where nobody can have them come, it is no use to know which are missing. */
static unsigned find_shift(void)
{
	unsigned shift = (unsigned)__builtin_ctzl((unsigned long)sysconf(_SC_PAGESIZE));
	int before = errno;

	if (conf_get()->pages_trust || madvise(NULL, 0, MADV_POPULATE_READ))
		shift = TRUST;
	errno = before;
	atomic_store_explicit(&known_shift, shift, memory_order_relaxed);
	return shift;
}

/* Log2 of a page's size; or TRUST: the kernel is not asked. */
static inline unsigned page_shift(void)
{
	unsigned shift = atomic_load_explicit(&known_shift, memory_order_relaxed);

	return shift ? shift : find_shift();
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

static uint64_t key_of(uintptr_t group)
{
	return (uint64_t)group << TICK_BITS | (tick_now() & ((1u << TICK_BITS) - 1));
}

/* Pages from number `at` on that are before `end` and of one group: how many, and their
 * bits. */
static unsigned in_group(uintptr_t at, uintptr_t end, uint64_t *bits)
{
	unsigned n = GROUP - (unsigned)(at % GROUP);

	n = end - at < n ? (unsigned)(end - at) : n;
	*bits = UINT64_MAX >> (GROUP - n) << at % GROUP;
	return n;
}

bool pages_present(const void *p, size_t len)
{
	const unsigned shift = page_shift();
	uint64_t key, want, here;
	uintptr_t at, end;
	unsigned n;

	if (!len || shift == TRUST)
		return true;
	end = (((uintptr_t)p + len - 1) >> shift) + 1;
	for (at = (uintptr_t)p >> shift; at < end; at += n) {
		struct answer *a = &answers[at / GROUP % ANSWERS];

		n = in_group(at, end, &want);
		key = key_of(at / GROUP);
		here = atomic_load_explicit(&a->here, memory_order_relaxed);
		if (atomic_load_explicit(&a->key, memory_order_relaxed) != key ||
		    (here & want) != want)
			here = ask_group(at, n, want, key);
		if ((here & want) != want)
			return false;
	}
	return true;
}

/* Of memory of a device the kernel always says that it is not there. It is not awaited
 * again at once. */
void pages_populate(const void *p, size_t len, bool write)
{
	const unsigned shift = page_shift();
	uintptr_t at, end = (uintptr_t)p + len;
	int before = errno;
	uint64_t bits;
	unsigned n;

	if (!len || shift == TRUST)
		return;
	at = (uintptr_t)p >> shift;
	while (madvise((void *)(at << shift), end - (at << shift),
		       write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) &&
	       errno == EINTR)
		;
	errno = before;
	for (end = ((end - 1) >> shift) + 1; at < end; at += n) {
		struct answer *a = &answers[at / GROUP % ANSWERS];
		uint64_t key = key_of(at / GROUP), here;

		n = in_group(at, end, &bits);
		here = atomic_load_explicit(&a->here, memory_order_relaxed);
		if (atomic_exchange_explicit(&a->key, key, memory_order_relaxed) != key)
			here = 0;
		atomic_store_explicit(&a->here, here | bits, memory_order_relaxed);
	}
}
