/* SPDX-License-Identifier: BSD-2-Clause */
#include "stress.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

static uint32_t slot_len(void)
{
	return sh->o.srq_buf + GUARD * (MAX_PIECES + 2);
}

static void open_xrc(struct side *s, struct srq *q)
{
	struct ibv_xrcd_init_attr domain = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_srq_init_attr_ex attr = {
		.srq_context = q,
		.attr = { .max_wr = SRQ_SLOTS, .max_sge = MAX_PIECES },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = s->pd,
		.cq = s->cq[0].cq,
	};

	MUST(s->xrcd = ibv_open_xrcd(s->ctx, &domain));
	attr.xrcd = s->xrcd;
	MUST(q->srq = ibv_create_srq_ex(s->ctx, &attr));
	OK(ibv_get_srq_num(q->srq, &sh->side[s->id].xrc_srqn));
}

static void open_one(struct side *s, struct srq *q)
{
	struct ibv_srq_init_attr attr = {
		.srq_context = q,
		.attr = { .max_wr = SRQ_SLOTS, .max_sge = MAX_PIECES },
	};
	size_t len = (size_t)slot_len() * SRQ_SLOTS;

	q->side = s;
	pthread_mutex_init(&q->lock, NULL);
	if (q == &s->srq[sh->o.srqs])
		open_xrc(s, q);
	else
		MUST(q->srq = ibv_create_srq(s->pd, &attr));
	MUST(q->mem = malloc(len));
	MUST(q->mr = ibv_reg_mr(s->pd, q->mem, len, IBV_ACCESS_LOCAL_WRITE));
	for (unsigned i = 0; i < SRQ_SLOTS; i++)
		q->free[q->nfree++] = (uint16_t)i;
}

void srq_open(struct side *s)
{
	for (unsigned i = 0; i < srq_count(&sh->o); i++)
		open_one(s, &s->srq[i]);
}

void srq_close(struct side *s)
{
	for (unsigned i = 0; i < srq_count(&sh->o); i++) {
		OK(ibv_destroy_srq(s->srq[i].srq));
		OK(ibv_dereg_mr(s->srq[i].mr));
		free(s->srq[i].mem);
	}
	if (s->xrcd)
		OK(ibv_close_xrcd(s->xrcd));
}

static void arm_limit(struct srq *q, struct rng *r)
{
	struct ibv_srq_attr attr = { .srq_limit = 1 + (uint32_t)rng_below(r, 16) };

	q->armed++;
	OK(ibv_modify_srq(q->srq, &attr, IBV_SRQ_LIMIT));
}

/* Sometimes many are posted, sometimes a few, sometimes none: peers wait then. */
bool srq_run(struct srq *q, struct rng *r)
{
	struct ibv_recv_wr wr[8], *bad;
	struct ibv_sge sge[8][MAX_PIECES];
	struct buf_plan plan = { .slot_key = q->mr->lkey, .len = sh->o.srq_buf };
	unsigned n = 0, want = (unsigned)rng_log(r, 15), slot;
	int ret;

	if (pthread_mutex_trylock(&q->lock))
		return false;
	for (; n < 8 && n < want && q->nfree; n++) {
		slot = q->free[--q->nfree];
		q->posted[slot] = true;
		plan.slot = q->mem + (size_t)slot * slot_len();
		plan.n = 1 + (unsigned)rng_below(r, MAX_PIECES);
		plan.split = rng_next(r);
		buf_make(&q->buf[slot], NULL, &plan);
		wr[n] = (struct ibv_recv_wr){
			.wr_id = (uint64_t)WR_SRQ << 60 |
				 (uint64_t)(q - q->side->srq) << 24 | slot,
			.sg_list = sge[n],
			.num_sge = buf_sges(&q->buf[slot], sge[n]),
		};
		if (n)
			wr[n - 1].next = &wr[n];
	}
	if (n) {
		ret = ibv_post_srq_recv(q->srq, wr, &bad);
		if (ret)
			fail(NULL, "ibv_post_srq_recv of %u with %u free: %d", n, q->nfree, ret);
	}
	if (rng_below(r, 200) == 0)
		arm_limit(q, r);
	pthread_mutex_unlock(&q->lock);
	return n > 0;
}

static struct ep *ep_of(struct side *s, uint32_t qpn)
{
	for (unsigned i = 0; i < sh->o.links; i++)
		if (atomic_load(&s->ep[i].rqpn) == qpn)
			return &s->ep[i];
	return NULL;
}

void srq_completed(struct srq *q, const struct ibv_wc *wc, uint64_t began)
{
	unsigned slot = (unsigned)(wc->wr_id & 0xffffff);
	struct ep *e = ep_of(q->side, wc->qp_num);
	struct bufs b;

	(void)began; /* a QP with an SRQ goes when all of its completions were seen */
	if (!e)
		fail(NULL, "a completion of an SRQ for QP %06x, which is gone", wc->qp_num);
	pthread_mutex_lock(&q->lock);
	if (slot >= SRQ_SLOTS || !q->posted[slot])
		fail(e, "receive %u of an SRQ completes, but is not posted", slot);
	b = q->buf[slot];
	pthread_mutex_unlock(&q->lock);
	rq_srq_completed(e, wc, &b);
	pthread_mutex_lock(&q->lock);
	q->posted[slot] = false;
	q->free[q->nfree++] = (uint16_t)slot;
	pthread_mutex_unlock(&q->lock);
}
