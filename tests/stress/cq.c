/* SPDX-License-Identifier: BSD-2-Clause */
#include "stress.h"

#include <fcntl.h>
#include <poll.h>

enum { BATCH = 16 };

/* 0 and 1 are polled, 2 has events, 3 is polled by several threads at once; and so
 * on. */
static enum cq_mode mode_of(unsigned i)
{
	return i % 4 == 2 ? CQ_EVENTS : i % 4 == 3 ? CQ_RACY : CQ_POLLED;
}

void cq_open(struct side *s)
{
	/* Any number of links may choose the same one. */
	int cqe = (int)(sh->o.links * 2 * (MAX_WR + 8) + MAX_SRQS * SRQ_SLOTS);

	MUST(s->comp = ibv_create_comp_channel(s->ctx));
	OK(fcntl(s->comp->fd, F_SETFL, fcntl(s->comp->fd, F_GETFL) | O_NONBLOCK));
	for (unsigned i = 0; i < sh->o.cqs; i++) {
		struct cq *q = &s->cq[i];

		q->side = s;
		q->mode = mode_of(i);
		pthread_mutex_init(&q->lock, NULL);
		q->cq = ibv_create_cq(s->ctx, cqe, q, q->mode == CQ_EVENTS ? s->comp : NULL, 0);
		MUST(q->cq);
	}
}

void cq_close(struct side *s)
{
	for (unsigned i = 0; i < sh->o.cqs; i++)
		OK(ibv_destroy_cq(s->cq[i].cq));
	OK(ibv_destroy_comp_channel(s->comp));
}

static void dispatch(struct cq *q, const struct ibv_wc *wc, uint64_t began)
{
	struct side *s = q->side;
	unsigned link = (unsigned)(wc->wr_id >> 48) & 0xfff, srq;

	switch (wc->wr_id >> 60) {
	case WR_SEND:
	case WR_RECV:
		if (link >= sh->o.links)
			fail(NULL, "completion with wr_id %llx", (unsigned long long)wc->wr_id);
		if (wc->wr_id >> 60 == WR_SEND)
			sq_completed(&s->ep[link], wc, began);
		else
			rq_completed(&s->ep[link], wc, began);
		break;
	case WR_SRQ:
		srq = (unsigned)(wc->wr_id >> 24) & 0xff;
		if (srq >= sh->o.srqs)
			fail(NULL, "completion with wr_id %llx", (unsigned long long)wc->wr_id);
		srq_completed(&s->srq[srq], wc, began);
		break;
	default:
		fail(NULL, "completion with wr_id %llx", (unsigned long long)wc->wr_id);
	}
}

/* Number of completions; *asked says that for a solicited-only CQ, too. */
static int poll_once(struct cq *q, int n, bool *urgent)
{
	uint64_t began = atomic_load(&q->side->clock);
	struct ibv_wc wc[BATCH];
	int got = ibv_poll_cq(q->cq, n, wc);

	if (got < 0 || got > n)
		fail(NULL, "ibv_poll_cq for %d: %d", n, got);
	for (int i = 0; i < got; i++) {
		dispatch(q, &wc[i], began);
		*urgent |= wc[i].status != IBV_WC_SUCCESS;
	}
	if (got < n)
		atomic_store(&q->empty_at, began);
	return got;
}

bool cq_run(struct cq *q, struct rng *r)
{
	int n = 1 + (int)rng_below(r, BATCH), got;
	bool urgent = false;

	if (q->mode == CQ_EVENTS)
		return false;
	if (q->mode == CQ_RACY)
		return poll_once(q, n, &urgent) > 0;
	if (pthread_mutex_trylock(&q->lock))
		return false;
	got = poll_once(q, n, &urgent);
	pthread_mutex_unlock(&q->lock);
	return got > 0;
}

/* ---- events ------------------------------------------------------------------------- */

static bool readable(struct side *s, int ms)
{
	struct pollfd fd = { .fd = s->comp->fd, .events = POLLIN };

	return poll(&fd, 1, ms) > 0;
}

static void arm_and_drain(struct cq *q, struct rng *r)
{
	bool urgent = false;

	q->solicited = rng_chance(r, 30);
	OK(ibv_req_notify_cq(q->cq, q->solicited));
	while (poll_once(q, 1 + (int)rng_below(r, BATCH), &urgent) > 0)
		;
}

/* Nothing was heard of an armed CQ: then there must be nothing in it, or the event
 * is there by now. */
static void check_missed(struct cq *q)
{
	bool urgent = false;
	int got = poll_once(q, BATCH, &urgent);

	if (got > 0 && (!q->solicited || urgent) && !readable(q->side, 2000))
		fail(NULL, "%d completions came into an armed CQ without an event%s", got,
		     q->solicited ? " (one with an error)" : "");
}

void *cq_events(void *arg)
{
	struct side *s = arg;
	struct rng r = { key_of(sh->o.seed, 31, (uint64_t)s->id, s->life) };
	struct ibv_cq *cq;
	struct cq *q;
	void *ctx;

	for (unsigned i = 0; i < sh->o.cqs; i++)
		if (s->cq[i].mode == CQ_EVENTS)
			arm_and_drain(&s->cq[i], &r);
	while (!atomic_load(&s->quit)) {
		if (!readable(s, 20)) {
			for (unsigned i = 0; i < sh->o.cqs; i++)
				if (s->cq[i].mode == CQ_EVENTS)
					check_missed(&s->cq[i]);
			continue;
		}
		if (ibv_get_cq_event(s->comp, &cq, &ctx)) {
			if (errno != EAGAIN)
				fail(NULL, "ibv_get_cq_event: errno %d", errno);
			continue;
		}
		q = ctx;
		if (q->cq != cq || q->mode != CQ_EVENTS)
			fail(NULL, "a completion event of another CQ");
		ibv_ack_cq_events(cq, 1);
		arm_and_drain(q, &r);
	}
	return NULL;
}
