/* SPDX-License-Identifier: BSD-2-Clause */
/* What registering and deregistering memory cost against its size. The memory is
 * touched before. The rival is mlock with munlock, the least that a device which
 * pins pays; where the limit on locked memory forbids it there is none. */
#include "bench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MAX_CALLS = 1000 };

#define MIN_SIZE (4ul << 10)
#define MAX_SIZE (1ul << 30)

struct reg {
	struct side *s;
	struct rc rc;
	uint8_t *mem;
	size_t size;
	bool can_lock;
};

struct cost {
	double in, out;		/* seconds a call */
};

static double available(void)
{
	FILE *f = fopen("/proc/meminfo", "r");
	char line[256];
	double kb = 0;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "MemAvailable: %lf", &kb) == 1)
			break;
	if (f)
		fclose(f);
	return kb * 1024;
}

static struct cost register_it(struct reg *g, unsigned calls)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
		     IBV_ACCESS_REMOTE_READ;
	struct cost c = { 0, 0 };

	for (unsigned i = 0; i < calls; i++) {
		double t = now_s(), u;
		struct ibv_mr *mr = ibv_reg_mr(g->rc.pd, g->mem, g->size, access);

		u = now_s();
		if (!mr)
			die("ibv_reg_mr");
		c.in += u - t;
		u = now_s();
		if (ibv_dereg_mr(mr))
			die("ibv_dereg_mr");
		c.out += now_s() - u;
	}
	return (struct cost){ c.in / calls, c.out / calls };
}

static struct cost lock_it(struct reg *g, unsigned calls)
{
	struct cost c = { 0, 0 };

	for (unsigned i = 0; i < calls; i++) {
		double t = now_s(), u;

		if (mlock(g->mem, g->size)) {
			if (errno != ENOMEM && errno != EPERM)
				die("mlock");
			g->can_lock = false;
			break;
		}
		u = now_s();
		c.in += u - t;
		if (munlock(g->mem, g->size))
			die("munlock");
		c.out += now_s() - u;
	}
	return (struct cost){ c.in / calls, c.out / calls };
}

static unsigned calls_of(double one, unsigned slot_ms)
{
	double n = slot_ms * 1e-3 / 4 / one;

	return n < 1 ? 1 : n > MAX_CALLS ? MAX_CALLS : (unsigned)n;
}

static void emit(struct reg *g, unsigned round, const struct cost *ours,
		 const struct cost *lock)
{
	uint32_t size = (uint32_t)g->size;
	double mib = (double)g->size / (1 << 20);

	side_emit(g->s, "register", "mr", size, round, ours->in * 1e9);
	side_emit(g->s, "deregister", "mr", size, round, ours->out * 1e9);
	side_emit(g->s, "register per MiB", "mr", size, round, ours->in * 1e9 / mib);
	if (!g->can_lock)
		return;
	side_emit(g->s, "register", "mlock", size, round, lock->in * 1e9);
	side_emit(g->s, "deregister", "mlock", size, round, lock->out * 1e9);
	side_emit(g->s, "register per MiB", "mlock", size, round, lock->in * 1e9 / mib);
}

static void one_size(struct reg *g)
{
	struct cost ours, lock;
	unsigned n, m = 1;

	g->mem = mmap(NULL, g->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		      -1, 0);
	if (g->mem == MAP_FAILED)
		die("mmap");
	memset(g->mem, 1, g->size);
	g->can_lock = true;
	ours = register_it(g, 3);
	n = calls_of(ours.in + ours.out, g->s->o->slot_ms);
	lock = lock_it(g, 1);
	if (g->can_lock)
		m = calls_of(lock.in + lock.out, g->s->o->slot_ms);
	for (unsigned r = 0; r < g->s->o->rounds; r++) {
		if (r % 2 == 0)
			ours = register_it(g, n);
		if (g->can_lock)
			lock = lock_it(g, m);
		if (r % 2 == 1)
			ours = register_it(g, n);
		emit(g, r, &ours, &lock);
	}
	munmap(g->mem, g->size);
}

void reg_run(struct side *s)
{
	struct reg g = { .s = s };

	rc_open(&g.rc, s);
	for (g.size = MIN_SIZE; !s->server && g.size <= MAX_SIZE; g.size *= 4) {
		/* 4 KiB to 1 GiB is nine steps of four. */
		if (s->o->size && s->o->size != g.size)
			continue;
		if (available() < 2.0 * (double)g.size) {
			fprintf(stderr, "bench: too little memory to register %zu MiB\n",
				g.size >> 20);
			break;
		}
		one_size(&g);
	}
	rc_close(&g.rc, s);
}
