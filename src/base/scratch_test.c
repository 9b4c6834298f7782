/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/scratch.h"
#include "tests/t.h"

struct piece {
	uint8_t bytes[100]; /* no multiple of anything */
};
SCRATCH(pieces, struct piece);

enum { PIECES = 2 * SCRATCH_SLOTS };

static bool is_slot(const struct piece *p)
{
	return p >= pieces_slots_ && p < pieces_slots_ + SCRATCH_SLOTS;
}

/* Each has memory of its own, also those that find no slot. */
static void all_have_their_own(void)
{
	struct piece *p[PIECES];
	unsigned slots = 0;

	for (int round = 0; round < 3; round++) {
		for (unsigned i = 0; i < PIECES; i++) {
			p[i] = scratch_get(&pieces);
			memset(p[i], (int)i, sizeof(*p[i]));
			slots += is_slot(p[i]);
		}
		for (unsigned i = 0; i < PIECES; i++) {
			for (unsigned k = 0; k < sizeof(*p[i]); k++)
				CHECK_EQ(p[i]->bytes[k], i);
			scratch_put(&pieces, p[i]);
		}
	}
	CHECK_EQ(slots, 3 * SCRATCH_SLOTS);
}

/* A child of fork() has them all, whatever the parent's threads were doing. */
static void a_new_generation_has_all(void)
{
	struct piece *p[SCRATCH_SLOTS];

	for (unsigned i = 0; i < SCRATCH_SLOTS; i++)
		p[i] = scratch_get(&pieces);
	state_renew();
	for (unsigned i = 0; i < SCRATCH_SLOTS; i++)
		CHECK(is_slot(p[i]) && is_slot(p[i] = scratch_get(&pieces)));
	for (unsigned i = 0; i < SCRATCH_SLOTS; i++)
		scratch_put(&pieces, p[i]);
}

enum { THREADS = 12, ROUNDS = 20000 };

static void *user(void *arg)
{
	for (int i = 0; i < ROUNDS; i++) {
		struct piece *p = scratch_get(&pieces);

		memset(p, *(uint8_t *)arg, sizeof(*p));
		CHECK_EQ(p->bytes[0], *(uint8_t *)arg);
		CHECK_EQ(p->bytes[sizeof(*p) - 1], *(uint8_t *)arg);
		scratch_put(&pieces, p);
	}
	return NULL;
}

static void threads(void)
{
	pthread_t t[THREADS];
	uint8_t n[THREADS];

	for (uint8_t i = 0; i < THREADS; i++) {
		n[i] = i;
		pthread_create(&t[i], NULL, user, &n[i]);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(all_have_their_own);
	T_RUN(a_new_generation_has_all);
	T_RUN(threads);
	return t_done();
}
