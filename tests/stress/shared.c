/* SPDX-License-Identifier: BSD-2-Clause */
#include "shared.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct shared *sh;

struct shared *shared_map(int fd)
{
	void *p = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return p == MAP_FAILED ? NULL : p;
}

struct shared *shared_make(int *fd)
{
	*fd = memfd_create("stress", 0);
	if (*fd < 0 || ftruncate(*fd, sizeof(*sh)))
		return NULL;
	return shared_map(*fd);
}

int token_take(unsigned link, int dir)
{
	for (unsigned i = 0; i < sh->o.tokens; i++) {
		uint32_t none = 0;

		if (atomic_compare_exchange_strong(&sh->token[i], &none,
						   (link << 1 | (unsigned)dir) + 1))
			return (int)i;
	}
	return -1;
}

void token_drop(unsigned link, int dir)
{
	for (unsigned i = 0; i < sh->o.tokens; i++) {
		uint32_t mine = (link << 1 | (unsigned)dir) + 1;

		atomic_compare_exchange_strong(&sh->token[i], &mine, 0);
	}
}

bool word_seen(struct sh_word *w, uint64_t v)
{
	uint64_t bit = 1ull << (v % 64);

	if (v >= BITMAP) {
		atomic_fetch_add(&sh->uncounted, 1);
		return true;
	}
	return !(atomic_fetch_or(&w->seen[v / 64], bit) & bit);
}

void word_clear(struct sh_word *w)
{
	atomic_store(&w->posted, 0);
	atomic_store(&w->acked, 0);
	for (unsigned i = 0; i < BITMAP / 64; i++)
		if (atomic_load_explicit(&w->seen[i], memory_order_relaxed))
			atomic_store(&w->seen[i], 0);
}
