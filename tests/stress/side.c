/* SPDX-License-Identifier: BSD-2-Clause */
/* The objects and threads of a side. */
#include "stress.h"

#include <arpa/inet.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static void *pages(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		fail(NULL, "no memory: %zu bytes", len);
	return p;
}

uint8_t *side_slot(struct side *s, int token, bool receive)
{
	return s->slots + s->slot_len * (size_t)(2 * token + receive);
}

static void memory_open(struct side *s)
{
	const int local = IBV_ACCESS_LOCAL_WRITE;
	const int all = local | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			IBV_ACCESS_REMOTE_ATOMIC;
	size_t small = (sh->o.small + 2 * 4096) & ~4095ul;

	/* At the end is nobody's: an answer whose place goes beyond it (F_LBEYOND) may be
	 * stored as far as it has room. */
	s->ep_mem_len = sh->o.links * (3 * (size_t)sh->o.arena + 2 * CELL) + small;
	s->slot_len = (sh->o.max_size + 2 * 4096ul) & ~4095ul;
	s->slots_len = 2 * sh->o.tokens * s->slot_len;
	s->ep_mem = pages(s->ep_mem_len);
	s->slots = pages(s->slots_len);
	s->fixed = pages(sh->o.max_size);
	s->closed = pages(small);
	s->alien = pages(small);
	s->words = pages(4096);
	pattern_fill(key_of(sh->o.seed, 77, (uint64_t)s->id, 0), 0, s->fixed, sh->o.max_size);
	MUST(s->ep_mr = ibv_reg_mr(s->pd, s->ep_mem, s->ep_mem_len, local));
	MUST(s->slots_mr = ibv_reg_mr(s->pd, s->slots, s->slots_len,
				      local | IBV_ACCESS_REMOTE_WRITE));
	MUST(s->fixed_mr = ibv_reg_mr(s->pd, s->fixed, sh->o.max_size, IBV_ACCESS_REMOTE_READ));
	MUST(s->closed_mr = ibv_reg_mr(s->pd, s->closed, small, local));
	MUST(s->alien_mr = ibv_reg_mr(s->alien_pd, s->alien, small, all));
	MUST(s->words_mr = ibv_reg_mr(s->pd, s->words, 4096, local | IBV_ACCESS_REMOTE_ATOMIC));
}

static void memory_close(struct side *s)
{
	size_t small = (sh->o.small + 2 * 4096) & ~4095ul;

	/* Nobody but the owners may have touched these. */
	if (pattern_is(s->closed, 0, small) >= 0 || pattern_is(s->alien, 0, small) >= 0)
		fail(NULL, "memory without rights, or of another domain, was written to");
	OK(ibv_dereg_mr(s->ep_mr));
	OK(ibv_dereg_mr(s->slots_mr));
	OK(ibv_dereg_mr(s->fixed_mr));
	OK(ibv_dereg_mr(s->closed_mr));
	OK(ibv_dereg_mr(s->alien_mr));
	OK(ibv_dereg_mr(s->words_mr));
	munmap(s->ep_mem, s->ep_mem_len);
	munmap(s->slots, s->slots_len);
	munmap(s->fixed, sh->o.max_size);
	munmap(s->closed, small);
	munmap(s->alien, small);
	munmap((void *)s->words, 4096);
}

static void publish(struct side *s)
{
	struct sh_side *p = &sh->side[s->id];

	p->fixed = (uintptr_t)s->fixed;
	p->fixed_key = s->fixed_mr->rkey;
	p->words = (uintptr_t)s->words;
	p->words_key = s->words_mr->rkey;
	p->closed = (uintptr_t)s->closed;
	p->closed_key = s->closed_mr->rkey;
	p->alien = (uintptr_t)s->alien;
	p->alien_key = s->alien_mr->rkey;
	p->slot_key = s->slots_mr->rkey;
	for (unsigned i = 0; i < sh->o.tokens; i++)
		p->slot[i] = (uintptr_t)side_slot(s, (int)i, true);
}

static void find_gid(struct side *s)
{
	union ibv_gid g;
	struct in_addr in;

	OK(ibv_query_port(s->ctx, 1, &s->port));
	inet_pton(AF_INET, sh->o.addr, &in);
	s->gid_index = -1;
	for (int i = 0; i < s->port.gid_tbl_len; i++)
		if (!ibv_query_gid(s->ctx, 1, i, &g) && g.raw[10] == 0xff && g.raw[11] == 0xff &&
		    !memcmp(g.raw + 12, &in, 4)) {
			s->gid_index = i; /* the last: RoCE v2 */
			memcpy(sh->side[s->id].gid, &g, 16);
		}
	if (s->gid_index < 0)
		fail(NULL, "no GID for %s", sh->o.addr);
}

/* The other side may still be busy with a process of ours that was killed. */
static void join(struct side *s)
{
	uint64_t end = now_ms() + 1000ull * sh->o.stall;

	s->life = atomic_load(&sh->side[s->id].life);
	for (unsigned i = 0; s->life > 1 && i < sh->o.links; i++) {
		struct sh_end *p = &sh->side[!s->id].end[i];
		uint64_t phase;

		while (phase = atomic_load(&p->phase), (phase & 0xff) != PH_DOWN) {
			if (now_ms() > end)
				fail(&s->ep[i], "the peer does not give up generation %llu",
				     (unsigned long long)(phase >> 8));
			nap_us(1000);
		}
		s->ep[i].gen = (uint32_t)(phase >> 8);
		token_drop(i, s->id);
		atomic_store(&sh->side[s->id].end[i].phase, phase);
	}
	for (unsigned i = 0; s->life > 1 && i < WORDS; i++)
		word_clear(&sh->side[s->id].word[i]);
	if (s->life == 1)
		for (unsigned i = 0; i < sh->o.links; i++)
			atomic_store(&sh->side[s->id].end[i].phase, phase_of(0, PH_DOWN));
	atomic_store(&sh->side[s->id].down, 0);
}

/* ---- threads ------------------------------------------------------------- */

struct worker {
	struct side *s;
	unsigned n;
};

static void *work(void *arg)
{
	struct worker *w = arg;
	struct side *s = w->s;
	struct rng r = { key_of(sh->o.seed, 1000 + w->n, (uint64_t)s->id, s->life) };
	unsigned idle = 0;

	free(w);
	while (!atomic_load(&s->quit)) {
		struct ep *e = &s->ep[rng_below(&r, sh->o.links)];
		bool busy = sq_run(e, &r);

		busy |= rq_run(e, &r);
		busy |= cq_run(&s->cq[rng_below(&r, sh->o.cqs)], &r);
		busy |= ep_step(e);
		if (srq_count(&sh->o))
			busy |= srq_run(&s->srq[rng_below(&r, srq_count(&sh->o))], &r);
		if (rng_below(&r, 500) == 0)
			atom_local(s, &r);
		if (rng_below(&r, 5000) == 0)
			cq_resize(&s->cq[rng_below(&r, sh->o.cqs)], &r);
		idle = busy ? 0 : idle + 1;
		if (idle > 4 * sh->o.links)
			nap_us(50);
	}
	return NULL;
}

static void threads_start(struct side *s)
{
	MUST(s->workers = calloc(sh->o.threads, sizeof(*s->workers)));
	OK(pthread_create(&s->events, NULL, cq_events, s));
	OK(pthread_create(&s->async_thread, NULL, async_events, s));
	watch_start(s);
	for (unsigned i = 0; i < sh->o.threads; i++) {
		struct worker *w = malloc(sizeof(*w));

		MUST(w);
		*w = (struct worker){ s, i };
		OK(pthread_create(&s->workers[i], NULL, work, w));
	}
}

static void threads_stop(struct side *s)
{
	atomic_store(&s->quit, true);
	for (unsigned i = 0; i < sh->o.threads; i++)
		OK(pthread_join(s->workers[i], NULL));
	OK(pthread_join(s->events, NULL));
	OK(pthread_join(s->async_thread, NULL));
	OK(pthread_join(s->cm_thread, NULL));
	OK(pthread_join(s->watch_thread, NULL));
	free(s->workers);
}

/* ---- life ---------------------------------------------------------------- */

static void side_open(struct side *s, int id)
{
	s->id = id;
	cm_open(s);
	MUST(s->pd = ibv_alloc_pd(s->ctx));
	MUST(s->alien_pd = ibv_alloc_pd(s->ctx));
	find_gid(s);
	memory_open(s);
	cq_open(s);
	srq_open(s);
	publish(s);
	MUST(s->ep = calloc(sh->o.links, sizeof(*s->ep)));
	for (unsigned i = 0; i < sh->o.links; i++)
		ep_init(&s->ep[i], s, i);
	cm_start(s);
}

/* QPs that were kept for a generation that did not come. */
static void side_close(struct side *s)
{
	for (unsigned i = 0; i < sh->o.links; i++) {
		if (s->ep[i].qp)
			OK(ibv_destroy_qp(s->ep[i].qp));
		free(s->ep[i].rq.ahead);
	}
	srq_close(s);
	cq_close(s);
	memory_close(s);
	OK(ibv_dealloc_pd(s->alien_pd));
	OK(ibv_dealloc_pd(s->pd));
	cm_close(s);
	free(s->ep);
}

static bool over(struct side *s)
{
	for (unsigned i = 0; i < sh->o.links; i++)
		if (!ep_over(&s->ep[i]))
			return false;
	return true;
}

void side_run(int id)
{
	struct side *s = calloc(1, sizeof(*s));

	MUST(s);
	side_open(s, id);
	join(s);
	threads_start(s);
	while (!over(s))
		nap_us(1000);
	if (id == 0)
		atomic_store(&sh->over, 1);
	atomic_store(&sh->side[id].quiet, 1);
	while (!atomic_load(&sh->side[!id].quiet))
		nap_us(1000);
	threads_stop(s);
	atom_check(s);
	side_close(s);
	free(s);
}
