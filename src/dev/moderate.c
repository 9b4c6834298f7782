/* SPDX-License-Identifier: BSD-2-Clause */
/* Moderation of completion events: an armed CQ makes its event only when `count`
 * completions have come since it was armed, or `period` microseconds after the
 * first of them. */
#include "dev/verbs.h"

static void elapsed(struct loop_timer *t)
{
	struct dev_cq *cq = container_of(t, struct dev_cq, mod.timer);

	lock_get(&cq->lock);
	/* Else the count was reached before. */
	if (cq->mod.pending) {
		cq->mod.pending = 0;
		cq_fire_locked(cq);
	}
	if (!--cq->mod.timers)
		cond_broadcast(&cq->mod.idle);
	lock_put(&cq->lock);
}

void moderate_init(struct dev_cq *cq)
{
	cond_init(&cq->mod.idle);
	cq->mod.timer.fire = elapsed;
}

void moderate_fini(struct dev_cq *cq)
{
	bool stopped = loop_timer_stop(&cq->mod.timer);

	lock_get(&cq->lock);
	cq->mod.timers -= stopped;
	while (cq->mod.timers)
		lock_wait(&cq->lock, &cq->mod.idle);
	lock_put(&cq->lock);
}

bool moderate_holds_locked(struct dev_cq *cq)
{
	struct cq_moderation *m = &cq->mod;

	lock_assert_held(&cq->lock);
	if (++m->pending >= m->count) {
		m->pending = 0;
		return false;
	}
	if (m->pending == 1 &&
	    loop_timer_set(&m->timer, loop_now() + m->period * 1000ull))
		m->timers++;
	return true;
}

int moderate_set(struct dev_cq *cq, uint32_t count, uint32_t period)
{
	struct cq_moderation *m = &cq->mod;

	lock_get(&cq->lock);
	/* A zero in either turns it off. */
	m->count = period ? count : 0;
	m->period = period;
	if (m->pending && m->pending >= m->count) {
		m->pending = 0;
		cq_fire_locked(cq);
	}
	lock_put(&cq->lock);
	return 0;
}
