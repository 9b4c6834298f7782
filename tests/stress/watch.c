/* SPDX-License-Identifier: BSD-2-Clause */
/* Failing loudly: what went wrong, with which seed, and what the endpoints of the
 * link did last. And the watchdog, so that nothing hangs. */
#include "stress.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct side *sides[2]; /* of this process */
static pthread_mutex_t failing = PTHREAD_MUTEX_INITIALIZER;

uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

void nap_us(unsigned us)
{
	nanosleep(&(struct timespec){ .tv_nsec = us * 1000l }, NULL);
}

void trace(struct trace *t, const char *fmt, ...)
{
	char *line = t->line[t->n++ % TRACES];
	int n = snprintf(line, TRACE_LEN, "%llu ", (unsigned long long)now_ms() % 1000000);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line + n, (size_t)(TRACE_LEN - n), fmt, ap);
	va_end(ap);
}

static void trace_print(const struct trace *t, const char *name)
{
	unsigned n = t->n < TRACES ? t->n : TRACES;

	fprintf(stderr, "#   last of the %s:\n", name);
	for (unsigned i = t->n - n; i != t->n; i++)
		fprintf(stderr, "#     %s\n", t->line[i % TRACES]);
}

static void end_print(const struct sh_end *m, const char *who)
{
	uint64_t p = atomic_load(&m->phase);

	fprintf(stderr,
		"#   %s: generation %llu phase %u qpn %06x, posted %u acked %u last %d big %llx, "
		"recvs %u received %u verified %u, trouble %u\n",
		who, (unsigned long long)(p >> 8), (unsigned)(p & 0xff), m->qpn,
		atomic_load(&m->posted), atomic_load(&m->acked), (int)atomic_load(&m->last),
		(unsigned long long)atomic_load(&m->big), atomic_load(&m->recvs),
		atomic_load(&m->received), atomic_load(&m->verified), atomic_load(&m->trouble));
}

/* Nothing is locked: who fails may hold the locks, and nobody else may answer. */
static void ep_print(struct ep *e)
{
	char text[300];
	struct sq *q = &e->sq;

	cfg_print(text, sizeof(text), &e->c, e->side->id);
	fprintf(stderr, "# side %d link %u generation %u QP %06x %s (qp state %d)\n",
		e->side->id, e->link, e->gen, atomic_load(&e->qpn), ep_state_str(e->state),
		e->qp ? (int)e->qp->state : -1);
	fprintf(stderr, "#   %s\n", text);
	fprintf(stderr, "#   sq: %u to %u%s%s%s token %d stash %u; waits for %s\n", q->head,
		q->tail, q->err ? " err" : "", q->final ? " final" : "",
		q->marker ? " marker" : "", q->token, q->stash.n, q->waits ? q->waits : "-");
	for (uint32_t i = q->head; i != q->tail && i - q->head < 16; i++) {
		const struct op *op = &q->rec[i % SQ_RECS].op;

		fprintf(stderr, "#     %u %s len %u flags %x\n", op->seq,
			kind_info[op->kind].name, op->len, op->flags);
	}
	fprintf(stderr, "#   rq: %u to %u%s%s stash %u, %u ahead; waits for %s\n", e->rq.head,
		e->rq.tail, e->rq.err ? " err" : "", e->rq.final ? " final" : "", e->rq.stash.n,
		e->rq.ahead_tail - e->rq.ahead_head, e->rq.waits ? e->rq.waits : "-");
	end_print(end_mine(e), "told");
	end_print(end_peer(e), "peer told");
	trace_print(&e->trace, "life");
	trace_print(&q->trace, "send queue");
	trace_print(&e->rq.trace, "receive queue");
}

static void link_print(unsigned link)
{
	for (int i = 0; i < 2; i++)
		if (sides[i] && sides[i]->ep && link < sh->o.links)
			ep_print(&sides[i]->ep[link]);
}

/* One of the sides is about to be killed, and the other one knows that already:
 * what comes of it is no failure. */
static void wait_if_killed(void)
{
	for (int i = 0; i < 2; i++)
		while (sides[i] && atomic_load(&sh->side[i].down))
			nap_us(1000);
}

void fail(struct ep *e, const char *fmt, ...)
{
	char text[500];
	va_list ap;

	wait_if_killed();
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	pthread_mutex_lock(&failing); /* for good */
	atomic_store(&sh->failed, e ? e->link + 1 : MAX_LINKS + 1);
	fprintf(stderr, "# FAILED (seed %llu, pid %d): %s%s\n", (unsigned long long)sh->o.seed,
		(int)getpid(), e ? "" : "no link: ", text);
	if (e) {
		link_print(e->link);
		if (!sides[e->side->id])
			ep_print(e);
	}
	fflush(NULL);
	if (getenv("STRESS_ABORT"))
		abort();
	_exit(1);
}

/* ---- watchdog ------------------------------------------------------------ */

static void *watch(void *arg)
{
	struct side *s = arg;

	while (!atomic_load(&s->quit)) {
		uint64_t now = now_ms();
		uint32_t failed = atomic_load(&sh->failed);

		if (failed) {
			/* The other process has: our end of it is of interest. */
			if (pthread_mutex_trylock(&failing))
				return NULL;
			link_print(failed - 1);
			fflush(NULL);
			_exit(1);
		}
		for (unsigned i = 0; i < sh->o.links; i++)
			if (now > atomic_load(&s->ep[i].stamp) + 1000ull * sh->o.stall)
				fail(&s->ep[i], "nothing has moved for %u s", sh->o.stall);
		nap_us(200000);
	}
	return NULL;
}

void watch_start(struct side *s)
{
	sides[s->id] = s;
	OK(pthread_create(&s->watch_thread, NULL, watch, s));
}
