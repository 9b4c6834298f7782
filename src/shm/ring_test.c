/* SPDX-License-Identifier: BSD-2-Clause */
#include "shm/ring.h"
#include "tests/t.h"

#include <pthread.h>
#include <string.h>

enum { KIND = 7, MOST = 7 * RING_LINE };

static struct ring_shared shared;
static struct ring_tx tx;
static struct ring_rx rx;

static void fresh(void)
{
	memset(&shared, 0, sizeof(shared));
	tx = (struct ring_tx){ .sh = &shared, .limit = RING_LINES };
	rx = (struct ring_rx){ .sh = &shared };
}

static uint8_t byte_of(uint32_t n, uint32_t i)
{
	return (uint8_t)(n * 31 + i);
}

/* Record n, composed or in place. */
static bool produce(uint32_t n, uint32_t bytes, bool composed)
{
	uint8_t rec[MOST], *p = composed ? rec : ring_reserve(&tx, bytes);

	if (!p)
		return false;
	for (uint32_t i = 4; i < (composed && bytes < RING_LINE ? RING_LINE : bytes); i++)
		p[i] = byte_of(n, i);
	if (composed)
		return ring_put(&tx, rec, bytes, KIND);
	ring_publish(&tx, bytes, KIND);
	return true;
}

/* 1: it is there and right; 0: nothing is there. */
static int consume(uint32_t n, uint32_t bytes)
{
	const volatile uint8_t *p;
	uint32_t got;
	uint8_t kind;

	p = ring_peek(&rx, &got, &kind);
	if (!p)
		return got ? -1 : 0;
	if (got != bytes || kind != KIND)
		return -1;
	for (uint32_t i = 4; i < bytes; i++)
		if (p[i] != byte_of(n, i))
			return -1;
	ring_consume(&rx, got);
	return 1;
}

static uint32_t size_of(uint32_t n)
{
	return 5 + n * 37 % (MOST - 4);
}

/* Every size at every place, several laps; then nothing is left. */
static void sizes_and_wraps(void)
{
	fresh();
	for (uint32_t n = 0; n < 40000; n++) {
		if (!produce(n, size_of(n), n % 3) || consume(n, size_of(n)) != 1) {
			CHECK_EQ(n, UINT32_MAX);
			return;
		}
	}
	CHECK_EQ(consume(0, 0), 0);
	CHECK(!ring_has(&rx) && ring_sane(&tx));
}

/* Nothing is overwritten, and there is room again once something was consumed. */
static void full(void)
{
	uint32_t in = 0, out = 0;

	fresh();
	while (produce(in, 100, true))
		in++;
	CHECK(in >= RING_LINES / 2 - 2 && in < RING_LINES);
	CHECK(!produce(in, 100, false));
	while (out < in && consume(out, 100) == 1)
		out++;
	CHECK_EQ(out, in);
	CHECK(produce(in, 100, true));
	CHECK_EQ(consume(in, 100), 1);
}

static void reserving_shows_nothing(void)
{
	fresh();
	CHECK(produce(0, 64, true));
	CHECK(ring_reserve(&tx, 200));
	CHECK_EQ(consume(0, 64), 1);
	CHECK(!ring_has(&rx));
	CHECK(produce(1, 64, true)); /* in its place */
	CHECK_EQ(consume(1, 64), 1);
}

static void nonsense(void)
{
	static const uint32_t words[] = { 1u << 24 | 3, 1u << 24 | (RING_RECORD_MAX + 1),
					  64, (uint32_t)RING_WRAP << 24 };
	uint32_t got;
	uint8_t kind;

	for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		fresh();
		memcpy(shared.line[0], &words[i], 4);
		CHECK(!ring_peek(&rx, &got, &kind));
		CHECK_EQ(got, UINT32_MAX);
	}
	fresh();
	shared.head = 1; /* more than was ever produced */
	tx.limit = 0;
	CHECK(!ring_reserve(&tx, 64));
	CHECK(!ring_sane(&tx));
}

enum { MANY = 200000 };

static void *producer(void *arg)
{
	(void)arg;
	for (uint32_t n = 0; n < MANY;)
		n += produce(n, size_of(n), n % 3);
	return NULL;
}

/* What shows is whole. */
static void two_threads(void)
{
	uint32_t n = 0;
	pthread_t th;
	int ret = 0;

	fresh();
	REQUIRE(pthread_create(&th, NULL, producer, NULL) == 0);
	while (n < MANY && ret >= 0) {
		ret = consume(n, size_of(n));
		n += ret > 0;
	}
	CHECK_EQ(n, MANY);
	if (n == MANY)
		pthread_join(th, NULL);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(sizes_and_wraps);
	T_RUN(full);
	T_RUN(reserving_shows_nothing);
	T_RUN(nonsense);
	T_RUN(two_threads);
	return t_done();
}
