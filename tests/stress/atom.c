/* SPDX-License-Identifier: BSD-2-Clause */
/* Words that several QPs change by atomics. Each value is returned as the old one of one
 * change only. In the end the word contains as many changes as were acknowledged; where
 * some were lost with their QP, between that and as many as were posted. */
#include "stress.h"

/* The owner's own changes: the device's are atomic to the processor, too. */
void atom_local(struct side *s, struct rng *r)
{
	unsigned i = (unsigned)rng_below(r, FAA_WORDS);
	struct sh_word *w = &sh->side[s->id].word[i];
	uint64_t old;

	atomic_fetch_add(&w->posted, 1);
	old = atomic_fetch_add(&s->words[i], 1);
	atomic_fetch_add(&w->acked, 1);
	if (!word_seen(w, old))
		fail(NULL, "word %u of side %d was %llu for the second time", i, s->id,
		     (unsigned long long)old);
}

void atom_check(struct side *s)
{
	/* A process that was killed may have counted in one place and not yet in the
	 * other, with each of its threads that poll. */
	uint64_t lost = atomic_load(&sh->deaths) * (sh->o.threads + 1);

	for (unsigned i = 0; i < WORDS; i++) {
		struct sh_word *w = &sh->side[s->id].word[i];
		uint64_t v = atomic_load(&s->words[i]), seen = 0, limit = v < BITMAP ? v : BITMAP;
		uint64_t acked = atomic_load(&w->acked);

		if (v < acked || v > atomic_load(&w->posted))
			fail(NULL, "word %u of side %d is %llu, %llu changes were acknowledged, "
			     "%llu posted",
			     i, s->id, (unsigned long long)v, (unsigned long long)acked,
			     (unsigned long long)atomic_load(&w->posted));
		for (uint64_t k = 0; k < BITMAP / 64; k++) {
			uint64_t bits = atomic_load_explicit(&w->seen[k], memory_order_relaxed);

			if (bits && k * 64 + 63 - (uint64_t)__builtin_clzll(bits) >= limit)
				fail(NULL, "word %u of side %d is %llu, but %llu was seen", i,
				     s->id, (unsigned long long)v,
				     (unsigned long long)(k * 64 + 63 -
							  (uint64_t)__builtin_clzll(bits)));
			seen += (uint64_t)__builtin_popcountll(bits);
		}
		if (v < BITMAP && (seen > acked || seen + lost < acked))
			fail(NULL, "word %u of side %d: %llu values were seen in %llu changes", i,
			     s->id, (unsigned long long)seen, (unsigned long long)acked);
	}
}
