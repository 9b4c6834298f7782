/* SPDX-License-Identifier: BSD-2-Clause */
/* A ring of records in memory that two processes share: one produces, one
 * consumes. Pure memory: no system call, no lock (each end has one user at a time,
 * which is the owner's business), and nothing the other process wrote is believed.
 *
 * Positions count lines of 64 bytes, mod 2^32. A record is contiguous and begins a
 * line with its word: its size in bytes and its kind, never 0, stored last. So the
 * consumer watches the very line that carries the news, and no index travels for a
 * record:
 *
 *	producer                               consumer
 *	fill the record                        acquire word; 0: nothing there
 *	word of the line after it = 0          copy what matters, use it
 *	release word                           release head
 *
 * The word behind is cleared before the record shows, else old payload would be
 * taken for a word. A record that does not fit before the end of the ring leaves a
 * RING_WRAP there and stands at the beginning. */
#ifndef ANYRDMA_SHM_RING_H
#define ANYRDMA_SHM_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
	RING_LINE = 64,
	RING_LINES = 4096,	    /* 256 KiB: stays in a core's second-level cache */
	RING_RECORD_MAX = 32 * 1024, /* bytes; several fit, so both ends work at once */
	RING_WRAP = 255,	    /* kind: go on at the beginning */
};
_Static_assert(RING_LINES * RING_LINE >= 4 * RING_RECORD_MAX, "records overlap in time");

/* What both processes map. Each line has one writer. */
struct ring_shared {
	/* consumer: everything before it may be overwritten */
	_Alignas(RING_LINE) _Atomic uint32_t head;
	/* consumer: not 0 while it does not look; set to 0 by who wakes it */
	_Alignas(RING_LINE) _Atomic uint32_t doze;
	/* producer: not 0 while it waits for room; set to 0 by who tells it */
	_Alignas(RING_LINE) _Atomic uint32_t full;
	_Alignas(RING_LINE) uint8_t line[RING_LINES][RING_LINE];
};

struct ring_tx {
	struct ring_shared *sh;
	uint32_t tail;	/* next record */
	uint32_t at;	/* where the reserved one stands: tail, or behind the wrap */
	uint32_t limit; /* tail may grow up to here; head as last seen + RING_LINES */
};

struct ring_rx {
	struct ring_shared *sh;
	uint32_t head;
};

static inline uint32_t ring_lines(uint32_t bytes)
{
	return (bytes + RING_LINE - 1) / RING_LINE;
}

static inline void *ring_line(struct ring_shared *sh, uint32_t pos)
{
	return sh->line[pos % RING_LINES];
}

static inline _Atomic uint32_t *ring_word(struct ring_shared *sh, uint32_t pos)
{
	return (_Atomic uint32_t *)ring_line(sh, pos);
}

static inline uint32_t ring_to_end_(uint32_t pos)
{
	return RING_LINES - pos % RING_LINES;
}

/* Lines that a record takes at tail: itself, what is skipped before it, and the word
 * behind it that is cleared. */
static inline uint32_t ring_demand_(uint32_t tail, uint32_t lines)
{
	return lines + 1 + (lines > ring_to_end_(tail) ? ring_to_end_(tail) : 0);
}

static inline bool ring_fits_(const struct ring_tx *r, uint32_t need)
{
	return (int32_t)(r->limit - r->tail - need) >= 0;
}

/* Memory for a record of `bytes` (4 of them for its word), or NULL: no room now, or
 * the peer's head is nonsense (ring_sane() tells). Nothing shows before
 * ring_publish(); asking again, for other sizes too, is free. */
static inline void *ring_reserve(struct ring_tx *r, uint32_t bytes)
{
	uint32_t lines = ring_lines(bytes), need = ring_demand_(r->tail, lines);

	if (!ring_fits_(r, need)) {
		/* Acquire: the consumer has read what we are about to overwrite. */
		uint32_t head = atomic_load_explicit(&r->sh->head, memory_order_acquire);

		if (r->tail - head > RING_LINES)
			return NULL;
		r->limit = head + RING_LINES;
		if (!ring_fits_(r, need))
			return NULL;
	}
	r->at = r->tail + (lines > ring_to_end_(r->tail) ? ring_to_end_(r->tail) : 0);
	return ring_line(r->sh, r->at);
}

/* The record last reserved, in its whole size or less, shows. */
static inline void ring_publish(struct ring_tx *r, uint32_t bytes, uint8_t kind)
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

/* Reserves, fills and publishes a record that was composed elsewhere, where it has a
 * line at least. The consumer looks at its first line all the time: writing that in steps,
 * the line is taken away in between and has to come back for each. */
static inline bool ring_put(struct ring_tx *r, const void *rec, uint32_t bytes, uint8_t kind)
{
	enum { WORD = sizeof(uint32_t) };
	const uint8_t *from = rec;
	uint8_t *to = ring_reserve(r, bytes);

	if (!to)
		return false;
	if (bytes > RING_LINE)
		memcpy(to + RING_LINE, from + RING_LINE, bytes - RING_LINE);
	memcpy(to + WORD, from + WORD, RING_LINE - WORD);
	ring_publish(r, bytes, kind);
	return true;
}

bool ring_sane(const struct ring_tx *r);

/* The next record, or NULL: none is there, or the peer wrote nonsense (then *bytes
 * is UINT32_MAX). The memory stays the peer's to scribble on: copy, then check. */
const void *ring_peek(struct ring_rx *r, uint32_t *bytes, uint8_t *kind);
/* Done with the record of `bytes` that ring_peek() gave. */
static inline void ring_consume(struct ring_rx *r, uint32_t bytes)
{
	r->head += ring_lines(bytes);
	atomic_store_explicit(&r->sh->head, r->head, memory_order_release);
}

/* A hint without side effects: is there something to peek? */
static inline bool ring_has(const struct ring_rx *r)
{
	return atomic_load_explicit(ring_word(r->sh, r->head), memory_order_acquire) != 0;
}

#endif
