/* SPDX-License-Identifier: BSD-2-Clause */
/* A ring of records in memory that two processes share. One process produces, the other
 * consumes. The ring makes no system call and has no lock: the caller makes sure that
 * each end has one user at a time. Nothing that the other process wrote is trusted.
 *
 * Positions count lines of 64 bytes, modulo 2^32. A record is contiguous and starts at
 * the beginning of a line with a word: its size in bytes and its kind. The word is never
 * 0 and is stored last. The consumer polls the word, so the line that tells it of a
 * record is also the first line of the record, and the producer publishes no index:
 *
 *	producer                               consumer
 *	fill the record                        acquire word; 0: there is no record
 *	word of the line after it = 0          copy what matters, use it
 *	release word                           release head
 *
 * The word after the record is cleared before the record is published; else the consumer
 * would read old payload as a word. A record that does not fit before the end of the ring
 * is placed at the beginning of the ring; a word of kind RING_WRAP stands in its place.
 *
 * doc/wire.md has the layout byte by byte. */
#ifndef ANYRDMA_SHM_RING_H
#define ANYRDMA_SHM_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
	RING_LINE = 64,
	RING_LINES = 4096, /* 256 KiB: fits the second-level cache of a core */
	/* Bytes of a record. Several records fit, so that producer and consumer copy at
	 * the same time. */
	RING_RECORD_MAX = 32 * 1024,
	RING_WRAP = 255, /* kind: the next record is at the beginning of the ring */
};
_Static_assert(RING_LINES * RING_LINE >= 4 * RING_RECORD_MAX, "several records fit");

/* What both processes map. */
struct ring_shared {
	/* Written by the consumer: lines before this position may be overwritten. */
	_Alignas(RING_LINE) _Atomic uint32_t head;
	/* Not 0: the consumer does not poll and must be woken after a record. The
	 * consumer sets it; the producer sets it to 0 when it wakes the consumer. */
	_Alignas(RING_LINE) _Atomic uint32_t consumer_sleeps;
	/* Not 0: the producer waits for room and must be woken when there is some. The
	 * producer sets it; the consumer sets it to 0 when it wakes the producer. */
	_Alignas(RING_LINE) _Atomic uint32_t producer_waits;
	_Alignas(RING_LINE) uint8_t line[RING_LINES][RING_LINE];
};
_Static_assert(offsetof(struct ring_shared, head) == 0 &&
	       offsetof(struct ring_shared, consumer_sleeps) == 64 &&
	       offsetof(struct ring_shared, producer_waits) == 128 &&
	       offsetof(struct ring_shared, line) == 192 &&
	       sizeof(struct ring_shared) == 192 + RING_LINES * RING_LINE, "doc/wire.md");

/* The producer's end. */
struct ring_tx {
	struct ring_shared *sh;
	uint32_t tail;	/* position of the next record */
	uint32_t at;	/* position of the reserved record: tail, or the next beginning */
	uint32_t limit; /* tail may grow up to here: head as last read + RING_LINES */
};

/* The consumer's end. */
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

/* Lines that a record needs at tail: its own, those that are skipped before it, and the
 * one after it whose word is cleared. */
static inline uint32_t ring_demand_(uint32_t tail, uint32_t lines)
{
	return lines + 1 + (lines > ring_to_end_(tail) ? ring_to_end_(tail) : 0);
}

static inline bool ring_fits_(const struct ring_tx *r, uint32_t need)
{
	return (int32_t)(r->limit - r->tail - need) >= 0;
}

/* Memory for a record of `bytes`, its word included; or NULL: there is no room now, or
 * the peer's head is out of range (ring_sane() tells). The consumer sees nothing before
 * ring_publish(). Another call, for another size too, replaces the reservation. */
static inline void *ring_reserve(struct ring_tx *r, uint32_t bytes)
{
	uint32_t lines = ring_lines(bytes), need = ring_demand_(r->tail, lines);

	if (!ring_fits_(r, need)) {
		/* Acquire: the consumer has read what will be overwritten. */
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

/* Publishes the record that was last reserved, in the reserved size or less. */
static inline void ring_publish(struct ring_tx *r, uint32_t bytes, uint8_t kind)
{
	uint32_t lines = ring_lines(bytes), at = r->at;
	uint32_t word = bytes | (uint32_t)kind << 24;

	atomic_store_explicit(ring_word(r->sh, at + lines), 0, memory_order_relaxed);
	atomic_store_explicit(ring_word(r->sh, at), word, memory_order_release);
	if (at != r->tail)
		atomic_store_explicit(ring_word(r->sh, r->tail),
				      (uint32_t)RING_WRAP << 24, memory_order_release);
	r->tail = at + lines;
}

/* Reserves, fills and publishes a record that the caller has composed in memory of at
 * least one line. The consumer polls the first line of the record all the time: each
 * separate store to it would have to fetch the line back from the consumer's cache. */
static inline bool ring_put(struct ring_tx *r, const void *rec, uint32_t bytes,
			    uint8_t kind)
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

/* The peer's head is a position that it can have reached. */
bool ring_sane(const struct ring_tx *r);

/* The next record; or NULL: there is none (*bytes is 0), or the peer has written a word
 * that no producer writes (*bytes is UINT32_MAX). The peer can change the record at any
 * time. It is volatile so that the compiler refuses to read it by anything but the two
 * functions below. */
const volatile void *ring_peek(struct ring_rx *r, uint32_t *bytes, uint8_t *kind);

/* Reads n bytes that mean something to this process, each byte once. What was read is
 * checked and used; the record is not looked at again. */
static inline void ring_read(void *to, const volatile void *from, size_t n)
{
	typedef uint64_t word __attribute__((may_alias, aligned(1)));
	const volatile uint8_t *f = from;
	uint8_t *t = to;

	for (; n >= sizeof(word); n -= sizeof(word)) {
		*(word *)t = *(const volatile word *)f;
		t += sizeof(word);
		f += sizeof(word);
	}
	while (n--)
		*t++ = *f++;
}

/* Bytes of the record from `at` on that mean nothing to this process: they are copied to
 * where they belong, and any value of them is right. */
static inline const void *ring_payload(const volatile void *rec, size_t at)
{
	return (const uint8_t *)(uintptr_t)rec + at;
}

/* Gives the lines of the record of `bytes` that ring_peek() gave back to the producer. */
static inline void ring_consume(struct ring_rx *r, uint32_t bytes)
{
	r->head += ring_lines(bytes);
	atomic_store_explicit(&r->sh->head, r->head, memory_order_release);
}

/* Is there a record? A hint: no check, no side effect. */
static inline bool ring_has(const struct ring_rx *r)
{
	return atomic_load_explicit(ring_word(r->sh, r->head), memory_order_acquire) != 0;
}

#endif
