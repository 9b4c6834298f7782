/* SPDX-License-Identifier: BSD-2-Clause */
#include "stress.h"

#include <string.h>

enum { GUARD_BYTE = 0xc3, JUNK = 0x5c };

static uint8_t *arena_take(struct arena *a, uint32_t bytes, uint64_t *end)
{
	uint64_t at, pos;

	if (a->head == a->tail)
		a->head = a->tail = 0;
	at = a->tail;
	pos = at % a->size;
	bytes = (bytes + 15) & ~15u;
	if (pos + bytes > a->size) {
		at += a->size - pos;
		pos = 0;
	}
	if (at + bytes - a->head > a->size)
		return NULL;
	a->tail = *end = at + bytes;
	return a->p + pos;
}

/* Bytes past `content` of the whole must be there again afterwards. */
static void junk_fill(const struct bufs *b, uint32_t content)
{
	for (unsigned i = 0; i < b->n; i++) {
		uint32_t keep = content < b->len[i] ? content : b->len[i];

		memset(b->p[i] + keep, JUNK, b->len[i] - keep);
		content -= keep;
	}
}

bool buf_make(struct bufs *b, struct arena *a, const struct buf_plan *plan)
{
	uint32_t need = plan->len + GUARD * (plan->n + 1);
	uint8_t *p = plan->slot;

	b->n = plan->n;
	b->in_arena = !p;
	b->skip = 0;
	b->key = p ? plan->slot_key : a->key;
	if (!p)
		p = arena_take(a, need, &b->end);
	if (!p)
		return false;
	plan_split(plan->split, plan->len, plan->n, b->len);
	memset(p, GUARD_BYTE, GUARD);
	p += GUARD;
	for (unsigned i = 0; i < b->n; i++) {
		b->p[i] = p;
		p += b->len[i];
		memset(p, GUARD_BYTE, GUARD);
		p += GUARD;
	}
	junk_fill(b, plan->content);
	return true;
}

void buf_free(struct bufs *b, struct arena *a)
{
	if (b->in_arena)
		a->head = b->end;
	b->in_arena = false;
}

void buf_fill(const struct bufs *b, uint64_t key, uint64_t off)
{
	for (unsigned i = 0; i < b->n; i++) {
		pattern_fill(key, off, b->p[i], b->len[i]);
		off += b->len[i];
	}
}

static void check_guard(struct ep *e, const struct bufs *b, unsigned i, const uint8_t *at,
			const char *what, const char *where)
{
	if (pattern_is(at, GUARD_BYTE, GUARD) >= 0)
		fail(e, "%s: memory %s piece %u of %u (%u bytes) was overwritten", what, where,
		     i, b->n, b->len[i]);
}

void buf_check(struct ep *e, const struct bufs *b, uint64_t key, uint64_t off, uint32_t len,
	       const char *what)
{
	uint32_t skip = b->skip;

	for (unsigned i = 0; i < b->n; i++) {
		uint32_t at = skip < b->len[i] ? skip : b->len[i], room = b->len[i] - at;
		uint32_t n = len < room ? len : room;
		int64_t bad = pattern_check_remote(key, off, b->p[i] + at, n);

		if (bad >= 0)
			fail(e, "%s: byte %lld of piece %u of %u (%u bytes) is %02x", what,
			     (long long)bad, i, b->n, b->len[i], b->p[i][at + bad]);
		skip -= at;
		bad = pattern_is(b->p[i] + at + n, JUNK, room - n);
		if (bad >= 0)
			fail(e, "%s: byte %lld of piece %u of %u (%u bytes) was overwritten, "
			     "which is behind the message",
			     what, (long long)bad + n, i, b->n, b->len[i]);
		check_guard(e, b, i, b->p[i] - GUARD, what, "before");
		check_guard(e, b, i, b->p[i] + b->len[i], what, "behind");
		off += n;
		len -= n;
	}
	if (len)
		fail(e, "%s: %u bytes more than the buffers have", what, len);
}

int buf_sges(const struct bufs *b, struct ibv_sge *sge)
{
	for (unsigned i = 0; i < b->n; i++)
		sge[i] = (struct ibv_sge){ (uintptr_t)b->p[i], b->len[i], b->key };
	return (int)b->n;
}
