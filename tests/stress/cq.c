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

/* Any number of links may choose the same one. */
static int cqe_needed(void)
{
	return (int)(sh->o.links * 2 * (MAX_WR + 8) + MAX_SRQS * SRQ_SLOTS);
}

static void create(struct cq *q, int cqe, struct ibv_comp_channel *ch, bool extended)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = (uint32_t)cqe,
		.cq_context = q,
		.channel = ch,
		.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM |
			    IBV_WC_EX_WITH_SRC_QP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
	};

	if (extended) {
		MUST(q->ex = ibv_create_cq_ex(q->side->ctx, &attr));
		q->cq = ibv_cq_ex_to_cq(q->ex);
	} else {
		MUST(q->cq = ibv_create_cq(q->side->ctx, cqe, q, ch, 0));
	}
}

void cq_open(struct side *s)
{
	int cqe = cqe_needed();

	MUST(s->comp = ibv_create_comp_channel(s->ctx));
	OK(fcntl(s->comp->fd, F_SETFL, fcntl(s->comp->fd, F_GETFL) | O_NONBLOCK));
	for (unsigned i = 0; i < sh->o.cqs; i++) {
		struct cq *q = &s->cq[i];

		q->side = s;
		q->mode = mode_of(i);
		pthread_mutex_init(&q->lock, NULL);
		create(q, cqe, q->mode == CQ_EVENTS ? s->comp : NULL,
		       sh->o.ex && key_of(sh->o.seed, i, (uint64_t)s->id, 60) % 2);
	}
}

/* Under load, never below what may be in it. */
void cq_resize(struct cq *q, struct rng *r)
{
	int least = cqe_needed();

	OK(ibv_resize_cq(q->cq, least + (int)rng_below(r, (uint64_t)least)));
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
		if (srq >= srq_count(&sh->o))
			fail(NULL, "completion with wr_id %llx", (unsigned long long)wc->wr_id);
		srq_completed(&s->srq[srq], wc, began);
		break;
	default:
		fail(NULL, "completion with wr_id %llx", (unsigned long long)wc->wr_id);
	}
}

static void read_ex(struct cq *q, struct ibv_wc *wc)
{
	struct ibv_cq_ex *x = q->ex;
	uint64_t stamp = ibv_wc_read_completion_ts(x);

	*wc = (struct ibv_wc){ .wr_id = x->wr_id, .status = x->status,
			       .qp_num = ibv_wc_read_qp_num(x) };
	if (q->mode != CQ_RACY && stamp < q->stamp)
		fail(NULL, "a completion is older than the one before it");
	q->stamp = q->mode != CQ_RACY ? stamp : 0;
	if (x->status != IBV_WC_SUCCESS)
		return;
	wc->opcode = ibv_wc_read_opcode(x);
	wc->byte_len = ibv_wc_read_byte_len(x);
	wc->wc_flags = ibv_wc_read_wc_flags(x);
	wc->src_qp = ibv_wc_read_src_qp(x);
	if (wc->wc_flags & IBV_WC_WITH_INV)
		wc->invalidated_rkey = ibv_wc_read_invalidated_rkey(x);
	else if (wc->wc_flags & IBV_WC_WITH_IMM)
		wc->imm_data = ibv_wc_read_imm_data(x);
}

static int poll_ex(struct cq *q, int n, struct ibv_wc *wc)
{
	struct ibv_poll_cq_attr attr = { 0 };
	int got = 0, ret = ibv_start_poll(q->ex, &attr);

	if (ret == ENOENT)
		return 0;
	while (!ret) {
		read_ex(q, &wc[got++]);
		ret = got < n ? ibv_next_poll(q->ex) : ENOENT;
	}
	ibv_end_poll(q->ex);
	if (ret != ENOENT)
		fail(NULL, "ibv_start_poll or ibv_next_poll: %d", ret);
	return got;
}

/* Number of completions; *urgent if one of them wakes a solicited-only CQ, too. */
static int poll_once(struct cq *q, int n, bool *urgent)
{
	uint64_t began = atomic_load(&q->side->clock);
	struct ibv_wc wc[BATCH];
	int got = q->ex ? poll_ex(q, n, wc) : ibv_poll_cq(q->cq, n, wc);

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

/* ---- events -------------------------------------------------------------- */

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

	if (got > 0 && (!q->solicited || urgent) && !readable(q->side, (int)sh->o.stall * 500))
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

void stash_add(struct stash *st, struct ep *e, const struct ibv_wc *wc,
	       const uint32_t *head, void (*apply)(struct ep *e, const struct ibv_wc *wc))
{
	if (st->n == STASH)
		fail(e, "%u completions wait for that of number %u", st->n, *head);
	st->wc[st->n++] = *wc;
	for (unsigned i = 0; i < st->n;) {
		struct ibv_wc turn = st->wc[i];

		if ((uint32_t)turn.wr_id != *head) {
			i++;
			continue;
		}
		st->wc[i] = st->wc[--st->n];
		apply(e, &turn);
		i = 0;
	}
}
