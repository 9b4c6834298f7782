/* SPDX-License-Identifier: BSD-2-Clause */
/* Completion queues: a ring under one lock, filled by the loop thread and by
 * pollers of any thread at once. */
#include "base/log.h"
#include "base/state.h"
#include "dev/poll.h"
#include "dev/verbs.h"

#include <errno.h>
#include <stdlib.h>

static atomic_int count PROCESS_STATE;

static uint32_t pow2_above(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p <<= 1;
	return p;
}

static void channel_ref(struct ibv_comp_channel *ch, int by)
{
	struct dev_channel *c = to_channel(ch);

	lock_get(&c->q.lock);
	c->ch.refcnt += by;
	lock_put(&c->q.lock);
}

static int create_check(struct dev_ctx *ctx, int cqe, struct dev_channel *ch, int vector)
{
	if (cqe < 1 || cqe > DEV_MAX_CQE)
		return log_refuse(EINVAL,
				  "ibv_create_cq: %d entries, 1 to %d are allowed", cqe,
				  DEV_MAX_CQE);
	if (vector < 0 || vector >= ctx->v.context.num_comp_vectors)
		return log_refuse(EINVAL, "ibv_create_cq: completion vector %d of %d",
				  vector, ctx->v.context.num_comp_vectors);
	if (ch && (!channel_intact(&ch->ch) || ch->ch.context != &ctx->v.context))
		return log_refuse(EINVAL,
				  "ibv_create_cq: the channel is another context's");
	if (atomic_load(&count) >= DEV_MAX_CQ)
		return log_refuse(ENOMEM,
				  "ibv_create_cq: %d CQs exist, no more are allowed",
				  DEV_MAX_CQ);
	return 0;
}

int cq_create(struct dev_ctx *ctx, int cqe, void *context, struct dev_channel *ch,
	      int vector, struct dev_cq **out)
{
	struct dev_cq *cq;
	int ret = create_check(ctx, cqe, ch, vector);

	if (ret)
		return ret;
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return -ENOMEM;
	cq->answered = true;
	cq->mask = pow2_above((uint32_t)cqe) - 1;
	cq->limit = (uint32_t)cqe;
	cq->ring = calloc(cq->mask + 1, sizeof(*cq->ring));
	ret = cq->ring ? poll_cq_init(cq) : -ENOMEM;
	if (ret) {
		free(cq->ring);
		free(cq);
		return ret;
	}
	object_init(&cq->object, &ctx->v.context);
	cq->cq.context = cq->object.context;
	cq->cq.channel = ch ? &ch->ch : NULL;
	cq->cq.cq_context = context;
	cq->cq.handle = cq->object.handle;
	cq->cq.cqe = cqe;
	pthread_mutex_init(&cq->cq.mutex, NULL);
	pthread_cond_init(&cq->cq.cond, NULL);
	pthread_mutex_init(&cq->ex_lock, NULL);
	moderate_init(cq);
	lock_init(&cq->lock);
	list_init(&cq->ev_link);
	if (ch)
		channel_ref(&ch->ch, 1);
	ctx_get(ctx);
	atomic_fetch_add(&count, 1);
	*out = cq;
	return 0;
}

int cq_destroy(struct dev_cq *cq)
{
	int refs = atomic_load(&cq->refs);

	if (refs)
		return log_refuse(EBUSY,
				  "ibv_destroy_cq: %d queues still complete on CQ %u",
				  refs, cq->object.handle);
	poll_cq_fini(cq);
	moderate_fini(cq);
	channel_drain(cq);
	async_drain_cq(cq);
	if (cq->cq.channel)
		channel_ref(cq->cq.channel, -1);
	if (cq->parent)
		atomic_fetch_sub(&cq->parent->refs, 1);
	ctx_put(to_ctx(cq->object.context));
	atomic_fetch_sub(&count, 1);
	pthread_mutex_destroy(&cq->cq.mutex);
	pthread_cond_destroy(&cq->cq.cond);
	pthread_mutex_destroy(&cq->ex_lock);
	lock_fini(&cq->lock);
	free(cq->ring);
	free(cq);
	return 0;
}

int cq_resize(struct dev_cq *cq, int cqe)
{
	uint32_t mask, n, tail;
	struct cqe *ring;

	if (cqe < 1 || cqe > DEV_MAX_CQE)
		return log_refuse(EINVAL,
				  "ibv_resize_cq: %d entries, 1 to %d are allowed", cqe,
				  DEV_MAX_CQE);
	mask = pow2_above((uint32_t)cqe) - 1;
	ring = calloc(mask + 1, sizeof(*ring));
	if (!ring)
		return -ENOMEM;
	lock_get(&cq->lock);
	tail = atomic_load_explicit(&cq->tail, memory_order_relaxed);
	n = tail - cq->head;
	if (n > (uint32_t)cqe) {
		lock_put(&cq->lock);
		free(ring);
		return log_refuse(EINVAL,
				  "ibv_resize_cq: %u completions do not fit into %d", n,
				  cqe);
	}
	for (uint32_t i = cq->head; i != tail; i++)
		ring[i & mask] = cq->ring[i & cq->mask];
	free(cq->ring);
	cq->ring = ring;
	cq->mask = mask;
	cq->limit = (uint32_t)cqe;
	cq->cq.cqe = cqe;
	lock_put(&cq->lock);
	return 0;
}

/* ---- filling --------------------------------------------------------------- */

void cq_fire_locked(struct dev_cq *cq)
{
	lock_assert_held(&cq->lock);
	cq->armed = CQ_IDLE;
	cq->told = atomic_load_explicit(&cq->tail, memory_order_relaxed);
	atomic_store_explicit(&cq->answered, false, memory_order_relaxed);
	channel_fire(cq);
}

static void fire_if_armed_locked(struct dev_cq *cq, bool solicited)
{
	lock_assert_held(&cq->lock);
	if (cq->armed == CQ_IDLE || (cq->armed == CQ_ARMED_SOLICITED && !solicited))
		return;
	if (cq->mod.count > 1 && moderate_holds_locked(cq))
		return;
	cq_fire_locked(cq);
}

/* The slot of the work request is free again. The QP and the SRQ exist: each removes its
 * completions from the CQ, under the CQ's lock, before it is freed. */
static void give_back_locked(const struct cqe *e)
{
	switch (e->frees) {
	case CQE_FREES_SQ:
		atomic_store_explicit(&e->qp->sq.free, e->sq_upto, memory_order_release);
		break;
	case CQE_FREES_RQ:
		atomic_fetch_sub_explicit(&e->qp->rq.outstanding, 1,
					  memory_order_release);
		break;
	case CQE_FREES_SRQ:
		atomic_fetch_sub_explicit(&e->srq->rq.outstanding, 1,
					  memory_order_release);
		break;
	case CQE_FREES_NONE:
		break;
	}
}

/* IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN: the oldest completion is lost, its work
 * request counts as polled. */
static void lose_oldest_locked(struct dev_cq *cq)
{
	give_back_locked(&cq->ring[cq->head++ & cq->mask]);
	atomic_store_explicit(&cq->head_seen, cq->head, memory_order_relaxed);
}

static void store_locked(struct dev_cq *cq, const struct cqe *e)
{
	uint32_t tail = atomic_load_explicit(&cq->tail, memory_order_relaxed);
	struct cqe *to = &cq->ring[tail & cq->mask];

	*to = *e;
	if (cq->stamped)
		to->stamp = cq_clock();
	/* Pairs with the acquire in cq_looks_empty(). */
	atomic_store_explicit(&cq->tail, tail + 1, memory_order_release);
}

int cq_push(struct dev_cq *cq, const struct cqe *e, bool solicited)
{
	uint32_t tail;
	bool first = false, full;

	lock_get(&cq->lock);
	tail = atomic_load_explicit(&cq->tail, memory_order_relaxed);
	full = cq->overrun || tail - cq->head >= cq->limit;
	if (full && cq->ignore_overrun) {
		lose_oldest_locked(cq);
		full = false;
	}
	if (full) {
		first = !cq->overrun;
		cq->overrun = true;
	} else {
		solicited |= e->wc.status != IBV_WC_SUCCESS;
		store_locked(cq, e);
		if (solicited)
			cq->solicited = tail + 1;
		if (!cq->answered)
			cq->told = tail + 1;
		fire_if_armed_locked(cq, solicited);
	}
	lock_put(&cq->lock);
	if (!full)
		return 0;
	if (first) {
		log_info("CQ %u overruns: %u completions wait to be polled",
			 cq->object.handle, cq->limit);
		async_cq(cq, IBV_EVENT_CQ_ERR);
	}
	if (e->qp && e->qp->qp.state != IBV_QPS_ERR)
		async_qp(e->qp, IBV_EVENT_QP_FATAL);
	return -EOVERFLOW;
}

/* ---- emptying -------------------------------------------------------------- */

/* The program polls: its last event has told it of what came until now, and of nothing later.
 * With the lock, so that a completion either is seen by this poll or counts as later. */
static void answer(struct dev_cq *cq)
{
	lock_get(&cq->lock);
	atomic_store_explicit(&cq->answered, true, memory_order_relaxed);
	lock_put(&cq->lock);
}

/* Moves up to n completions to wc. stamp: of the last one, or NULL. */
static int pop(struct dev_cq *cq, int n, struct ibv_wc *wc, uint64_t *stamp)
{
	uint32_t tail;
	int got = 0;

	if (!atomic_load_explicit(&cq->answered, memory_order_relaxed))
		answer(cq);
	if (cq_looks_empty(cq))
		return 0;
	lock_get(&cq->lock);
	tail = atomic_load_explicit(&cq->tail, memory_order_relaxed);
	while (got < n && cq->head != tail) {
		const struct cqe *e = &cq->ring[cq->head & cq->mask];

		wc[got++] = e->wc;
		if (stamp)
			*stamp = e->stamp;
		give_back_locked(e);
		cq->head++;
	}
	atomic_store_explicit(&cq->head_seen, cq->head, memory_order_relaxed);
	lock_put(&cq->lock);
	return got;
}

int cq_poll(struct dev_cq *cq, int n, struct ibv_wc *wc)
{
	int got;

	if (n <= 0)
		return 0;
	got = pop(cq, n, wc, NULL);
	if (got)
		return got;
	poll_run(cq);
	return pop(cq, n, wc, NULL);
}

bool cq_next(struct dev_cq *cq, struct ibv_wc *wc, uint64_t *stamp)
{
	return pop(cq, 1, wc, stamp);
}

/* Removes the completions of qp, or of srq; the other one is NULL. */
static void forget(struct dev_cq *cq, const struct dev_qp *qp, const struct dev_srq *srq)
{
	uint32_t tail, to, told, solicited;

	lock_get(&cq->lock);
	tail = atomic_load_explicit(&cq->tail, memory_order_relaxed);
	to = cq->head;
	told = solicited = to;
	for (uint32_t i = cq->head; i != tail; i++) {
		struct cqe *e = &cq->ring[i & cq->mask];

		if (qp ? e->qp == qp : e->srq == srq)
			give_back_locked(e);
		else
			cq->ring[to++ & cq->mask] = *e;
		if (i + 1 == cq->told)
			told = to;
		if (i + 1 == cq->solicited)
			solicited = to;
	}
	cq->told = told;
	cq->solicited = solicited;
	atomic_store_explicit(&cq->tail, to, memory_order_release);
	lock_put(&cq->lock);
}

void cq_forget_qp(struct dev_cq *cq, struct dev_qp *qp)
{
	forget(cq, qp, NULL);
}

void cq_forget_srq(struct dev_cq *cq, struct dev_srq *srq)
{
	forget(cq, NULL, srq);
}

/* ---- events ---------------------------------------------------------------- */

/* How far behind head an index is, of told and solicited; 0: what it was of is polled. */
static uint32_t behind_head(const struct dev_cq *cq, uint32_t index, uint32_t n)
{
	return index - cq->head <= n ? index - cq->head : 0;
}

/* Completions that the CQ is armed for wait to be polled, and no event was made for them. */
static bool untold_locked(struct dev_cq *cq)
{
	uint32_t n = atomic_load_explicit(&cq->tail, memory_order_relaxed) - cq->head;
	uint32_t upto = cq->armed == CQ_ARMED_ANY ? n : behind_head(cq, cq->solicited, n);

	lock_assert_held(&cq->lock);
	return upto > behind_head(cq, cq->told, n);
}

/* A completion that came between the program's last poll and this call makes its event now:
 * adapters compare the consumer's index, which comes with the arming, with their own (the
 * drivers mlx4_en and mlx5e arm and do not poll again), and programs count on it (UCX's
 * wake-up). By the specification (11.4.2.2) only a later one would. What an event told of, or
 * what came before the poll that answers it, makes no other: a program that arms before it
 * polls would be woken for nothing. */
void cq_arm(struct dev_cq *cq, bool solicited_only)
{
	lock_get(&cq->lock);
	if (!solicited_only)
		cq->armed = CQ_ARMED_ANY;
	else if (cq->armed == CQ_IDLE)
		cq->armed = CQ_ARMED_SOLICITED;
	if (untold_locked(cq))
		fire_if_armed_locked(cq, true);
	lock_put(&cq->lock);
}

int cq_req_notify(struct dev_cq *cq, bool solicited_only)
{
	poll_arm(cq, solicited_only);
	return 0;
}

void cq_ack_events(struct dev_cq *cq, unsigned n)
{
	pthread_mutex_lock(&cq->cq.mutex);
	cq->cq.comp_events_completed += n;
	pthread_cond_broadcast(&cq->cq.cond);
	pthread_mutex_unlock(&cq->cq.mutex);
}
