/* SPDX-License-Identifier: BSD-2-Clause */
#include "shm/ring.h"

#include <stddef.h>

static uint32_t to_end(uint32_t pos)
{
	return RING_LINES - pos % RING_LINES;
}

/* Lines that a record takes at tail: itself, what is skipped before it, and the word
 * behind it that is cleared. */
static uint32_t demand(uint32_t tail, uint32_t lines)
{
	return lines + 1 + (lines > to_end(tail) ? to_end(tail) : 0);
}

static bool fits(const struct ring_tx *r, uint32_t need)
{
	return (int32_t)(r->limit - r->tail - need) >= 0;
}

bool ring_sane(const struct ring_tx *r)
{
	uint32_t head = atomic_load_explicit(&r->sh->head, memory_order_relaxed);

	return r->tail - head <= RING_LINES;
}

void *ring_reserve(struct ring_tx *r, uint32_t bytes)
{
	uint32_t lines = ring_lines(bytes), need = demand(r->tail, lines);

	if (!fits(r, need)) {
		/* Acquire: the consumer has read what we are about to overwrite. */
		uint32_t head = atomic_load_explicit(&r->sh->head, memory_order_acquire);

		if (r->tail - head > RING_LINES)
			return NULL;
		r->limit = head + RING_LINES;
		if (!fits(r, need))
			return NULL;
	}
	r->at = r->tail + (lines > to_end(r->tail) ? to_end(r->tail) : 0);
	return ring_line(r->sh, r->at);
}

void ring_publish(struct ring_tx *r, uint32_t bytes, uint8_t kind)
{
	uint32_t lines = ring_lines(bytes), at = r->at;
	uint32_t word = bytes | (uint32_t)kind << 24;

	atomic_store_explicit(ring_word(r->sh, at + lines), 0, memory_order_relaxed);
	atomic_store_explicit(ring_word(r->sh, at), word, memory_order_release);
	if (at != r->tail)
		atomic_store_explicit(ring_word(r->sh, r->tail), (uint32_t)RING_WRAP << 24,
				      memory_order_release);
	r->tail = at + lines;
}

static const void *nonsense(uint32_t *bytes)
{
	*bytes = UINT32_MAX;
	return NULL;
}

const void *ring_peek(struct ring_rx *r, uint32_t *bytes, uint8_t *kind)
{
	uint32_t word = atomic_load_explicit(ring_word(r->sh, r->head), memory_order_acquire);

	*bytes = 0;
	if (!word)
		return NULL;
	if (word >> 24 == RING_WRAP) {
		if (r->head % RING_LINES == 0)
			return nonsense(bytes);
		/* What stands at the beginning was stored before the mark. */
		r->head += to_end(r->head);
		word = atomic_load_explicit(ring_word(r->sh, r->head), memory_order_acquire);
		if (!word || word >> 24 == RING_WRAP)
			return nonsense(bytes);
	}
	*bytes = word & 0xffffff;
	*kind = (uint8_t)(word >> 24);
	if (*bytes < sizeof(word) || *bytes > RING_RECORD_MAX || !*kind ||
	    ring_lines(*bytes) > to_end(r->head))
		return nonsense(bytes);
	return ring_line(r->sh, r->head);
}
