/* SPDX-License-Identifier: BSD-2-Clause */
#include "shm/ring.h"

enum { PREFETCH = 3 }; /* lines */

bool ring_sane(const struct ring_tx *r)
{
	uint32_t head = atomic_load_explicit(&r->sh->head, memory_order_relaxed);

	return r->tail - head <= RING_LINES;
}

static const volatile void *invalid(uint32_t *bytes)
{
	*bytes = UINT32_MAX;
	return NULL;
}

const volatile void *ring_peek(struct ring_rx *r, uint32_t *bytes, uint8_t *kind)
{
	uint32_t word =
		atomic_load_explicit(ring_word(r->sh, r->head), memory_order_acquire);

	*bytes = 0;
	if (!word)
		return NULL;
	if (word >> 24 == RING_WRAP) {
		if (r->head % RING_LINES == 0)
			return invalid(bytes);
		/* The record at the beginning was stored before the word of kind
		 * RING_WRAP. */
		r->head += ring_to_end_(r->head);
		word = atomic_load_explicit(ring_word(r->sh, r->head),
					    memory_order_acquire);
		if (!word || word >> 24 == RING_WRAP)
			return invalid(bytes);
	}
	*bytes = word & 0xffffff;
	*kind = (uint8_t)(word >> 24);
	if (*bytes < sizeof(word) || *bytes > RING_RECORD_MAX || !*kind ||
	    ring_lines(*bytes) > ring_to_end_(r->head))
		return invalid(bytes);
	/* Loads the rest of a small record, and the line that is polled next, while the
	 * first line is read. (Not in a function of its own: compilers drop calls of a
	 * function that only prefetches.) */
	for (uint32_t i = 1; i <= ring_lines(*bytes) && i <= PREFETCH; i++)
		__builtin_prefetch(ring_line(r->sh, r->head + i));
	return ring_line(r->sh, r->head);
}
