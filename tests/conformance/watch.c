/* SPDX-License-Identifier: BSD-2-Clause */
#include "watch.h"

#include "conf.h"

#include <sched.h>

static struct {
	const uint8_t *p;
	size_t len;
	unsigned rounds;
	pthread_t thread;
	atomic_uint seen, bad;
	atomic_bool stop;
} spin;

__attribute__((no_sanitize("thread"))) uint8_t watch_byte(const void *p)
{
	return *(const volatile uint8_t *)p;
}

__attribute__((no_sanitize("thread"))) void watch_set(void *p, uint8_t v)
{
	*(volatile uint8_t *)p = v;
}

uint8_t watch_value(unsigned n)
{
	return n % 250 + 1;
}

static bool came(uint8_t want)
{
	/* Yields now and then: there may be fewer processors than spinners. */
	for (unsigned i = 1; watch_byte(spin.p + spin.len - 1) != want; i++) {
		if (i % 1024)
			continue;
		if (spin.stop)
			return false;
		sched_yield();
	}
	return true;
}

static bool whole(uint8_t want)
{
	for (size_t i = 0; i < spin.len; i++)
		if (watch_byte(spin.p + i) != want)
			return false;
	return true;
}

static void *spinner(void *arg)
{
	for (unsigned n = 1; n <= spin.rounds && came(watch_value(n)); n++) {
		spin.bad += !whole(watch_value(n));
		spin.seen = n;
	}
	return arg;
}

void watch_start(void *p, size_t len, unsigned rounds)
{
	spin.p = p;
	spin.len = len;
	spin.rounds = rounds;
	spin.seen = spin.bad = 0;
	spin.stop = false;
	watch_set((uint8_t *)p + len - 1, 0);
	spin.thread = conf_thread(spinner, NULL);
}

void watch_wait(unsigned n)
{
	while (spin.seen < n)
		sched_yield();
}

unsigned watch_end(void)
{
	spin.stop = true;
	conf_join(spin.thread);
	return spin.bad;
}
