/* SPDX-License-Identifier: BSD-2-Clause */
/* Send queues: what may be posted now, and what its completion must look like.
 *
 * The model: requests head to tail-1 are out. A successful completion is that of
 * the first signalled one; those before it have succeeded, too. The first error
 * is that of any with no signalled one before it; from then on each comes back, in
 * order, flushed. */
#include "stress.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

enum { CHAIN = 8, INLINE_MAX = 1024 };

static struct sq_rec *rec_at(struct sq *q, uint32_t seq)
{
	return &q->rec[seq % SQ_RECS];
}

void sq_begin(struct ep *e)
{
	struct sq *q = &e->sq;

	plan_init(&q->plan, &sh->o, &e->c, e->side->id);
	q->open = q->live = q->have_next = q->err = false;
	q->final = q->marker = q->fault_posted = false;
	q->head = q->tail = q->hold_head = q->hold_tail = 0;
	q->token = -1;
	q->stash.n = 0;
	e->tx.head = e->tx.tail = 0;
}

/* ---- may it be posted? --------------------------------------------------------- */

static void holds_release(struct ep *e)
{
	uint32_t verified = atomic_load(&end_peer(e)->verified);
	struct sq *q = &e->sq;

	while (q->hold_head != q->hold_tail) {
		const struct hold *h = &q->hold[q->hold_head % HOLDS];

		if (h->seq >= (h->read ? q->head : verified))
			return;
		q->hold_head++;
	}
}

static bool ring_has_room(struct ep *e, const struct op *op)
{
	struct sq *q = &e->sq;

	holds_release(e);
	if (q->hold_tail - q->hold_head >= HOLDS)
		return false;
	for (uint32_t i = q->hold_head; i != q->hold_tail; i++)
		if (plan_ring_end(op) > q->hold[i % HOLDS].at + sh->o.arena)
			return false;
	return true;
}

static void token_release(struct ep *e)
{
	struct sq *q = &e->sq;

	if (q->token < 0 || q->token_seq >= q->head)
		return;
	if (!q->token_reads && atomic_load(&end_peer(e)->verified) <= q->token_seq)
		return;
	q->token = -1;
	token_drop(e->link, e->side->id);
}

static bool token_ready(struct ep *e, const struct op *op)
{
	struct sq *q = &e->sq;

	if (q->token >= 0 && q->token_seq == op->seq)
		return true;
	token_release(e);
	if (q->token >= 0)
		return false;
	q->token = token_take(e->link, e->side->id);
	if (q->token < 0)
		return false;
	q->token_seq = op->seq;
	q->token_reads = kind_info[op->kind].reads;
	atomic_store(&end_mine(e)->big,
		     (uint64_t)op->seq << 8 | ((unsigned)q->token + 1u));
	return true;
}

/* NULL, or what it waits for. */
static const char *not_now(struct ep *e, const struct op *op)
{
	const struct kind_info *k = &kind_info[op->kind];
	struct sq *q = &e->sq;

	if (q->tail - q->head >= my_cfg(e)->max_send_wr)
		return "a place in the send queue";
	/* Before it asks for a receive: the peer posts none without. */
	if (op->big && !token_ready(e, op))
		return "a token for a large message";
	if (k->consumes && my_cfg(e)->credit && op->fault != F_RNR &&
	    e->c.s[!e->side->id].srq < 0 && atomic_load(&end_peer(e)->recvs) <= op->recv)
		return "a receive at the peer";
	if ((op->kind == OP_WRITE || op->kind == OP_WRITE_IMM) && !op->big &&
	    !ring_has_room(e, op))
		return "the peer to look at earlier writes";
	if (op->kind == OP_READ_BACK) {
		holds_release(e);
		if (q->hold_tail - q->hold_head >= HOLDS)
			return "earlier reads";
	}
	return NULL;
}

/* ---- posting ---------------------------------------------------------------------- */

struct chain {
	unsigned n;
	struct ibv_send_wr wr[CHAIN];
	struct ibv_sge sge[CHAIN][MAX_PIECES];
	uint8_t scratch[CHAIN][INLINE_MAX]; /* inline data */
};

static uint8_t *slot_for(struct ep *e, const struct op *op)
{
	return op->big ? side_slot(e->side, e->sq.token, false) : NULL;
}

static bool make_buffers(struct ep *e, struct sq_rec *rec, uint8_t *scratch)
{
	const struct op *op = &rec->op;
	uint8_t *slot = op->flags & IBV_SEND_INLINE ? scratch : slot_for(e, op);
	uint64_t split = op->key;

	if (!buf_make(&rec->b, &e->tx, slot, e->side->slots_mr->lkey, op->len, op->len,
		      op->pieces, split))
		return false;
	if (!kind_info[op->kind].reads)
		buf_fill(&rec->b, op->key, 0);
	return true;
}

static void remote_of(struct ep *e, const struct op *op, uint64_t *addr, uint32_t *key)
{
	const struct sh_side *s = &sh->side[!e->side->id];
	const struct sh_end *p = end_peer(e);

	*addr = p->win;
	*key = p->win_key;
	switch (op->kind) {
	case OP_WRITE:
	case OP_WRITE_IMM:
		if (op->big) {
			*addr = s->slot[e->sq.token];
			*key = s->slot_key;
		} else {
			*addr += op->at % sh->o.arena;
		}
		break;
	case OP_READ_BACK:
		*addr += op->at % sh->o.arena;
		break;
	case OP_READ:
		*addr = s->fixed + op->at;
		*key = s->fixed_key;
		break;
	case OP_CELL_READ:
	case OP_CELL_WRITE:
		*addr += sh->o.arena;
		break;
	case OP_CAS:
		*addr += sh->o.arena + CELL;
		break;
	default:
		*addr = s->words + 8 * op->word;
		*key = s->words_key;
	}
}

static void remote_fault(struct ep *e, const struct op *op, uint64_t *addr, uint32_t *key)
{
	const struct sh_side *s = &sh->side[!e->side->id];
	const struct sh_end *p = end_peer(e);
	bool atomic = kind_info[op->kind].atomic;

	switch (op->fault) {
	case F_RKEY:
		*key ^= 0x5a5a00;
		break;
	case F_STALE:
		*key = p->stale_key ? p->stale_key : *key ^ 0x5a5a00;
		break;
	case F_BEYOND:
		*addr = p->win + sh->o.arena + CELL + 64 - (atomic ? 0 : op->len - 1);
		*key = p->win_key;
		break;
	case F_BEFORE:
		*addr = p->win - (atomic ? 8 : 1);
		*key = p->win_key;
		break;
	case F_PD:
		*addr = s->alien;
		*key = s->alien_key;
		break;
	case F_RIGHTS:
		*addr = s->closed;
		*key = s->closed_key;
		break;
	case F_ALIGN:
		*addr += 4;
		break;
	default:
		break;
	}
}

static void local_fault(struct ep *e, const struct op *op, struct ibv_sge *sge, int n)
{
	int i = 0;

	while (i + 1 < n && !sge[i].length)
		i++;
	switch (op->fault) {
	case F_LKEY:
		sge[i].lkey ^= 0x5a5a00;
		break;
	case F_LBEYOND:
		sge[i].addr = (uintptr_t)e->side->ep_mem + e->side->ep_mem_len -
			      (sge[i].length - 1);
		sge[i].lkey = e->side->ep_mr->lkey;
		break;
	case F_LPD:
		sge[i].addr = (uintptr_t)e->side->alien;
		sge[i].lkey = e->side->alien_mr->lkey;
		break;
	default:
		break;
	}
}

static void atomic_fill(struct ep *e, struct sq_rec *rec, struct ibv_send_wr *wr)
{
	const struct op *op = &rec->op;
	struct sh_word *w = &sh->side[!e->side->id].word[op->word];

	wr->wr.atomic.remote_addr = wr->wr.rdma.remote_addr;
	wr->wr.atomic.rkey = wr->wr.rdma.rkey;
	wr->wr.atomic.compare_add = op->compare;
	wr->wr.atomic.swap = op->swap;
	if (op->kind == OP_FAA)
		wr->wr.atomic.compare_add = 1;
	if (op->kind == OP_CAS_SHARED) {
		rec->guess = e->sq.guess[op->word - FAA_WORDS];
		wr->wr.atomic.compare_add = rec->guess;
		wr->wr.atomic.swap = rec->guess + 1;
	}
	if (op->kind != OP_CAS && !op->fault)
		atomic_fetch_add(&w->posted, 1);
}

static void wr_fill(struct ep *e, struct sq_rec *rec, struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	const struct op *op = &rec->op;
	const struct kind_info *k = &kind_info[op->kind];
	uint64_t addr;
	uint32_t key;

	memset(wr, 0, sizeof(*wr));
	wr->wr_id = wr_id(WR_SEND, e->link, e->gen, op->seq);
	wr->sg_list = sge;
	wr->num_sge = buf_sges(&rec->b, sge);
	wr->opcode = k->wr;
	wr->send_flags = op->flags;
	wr->imm_data = htonl(op->imm);
	if (my_cfg(e)->sig_all && op->seq % 2)
		wr->send_flags &= ~(unsigned)IBV_SEND_SIGNALED;
	if (k->remote) {
		remote_of(e, op, &addr, &key);
		remote_fault(e, op, &addr, &key);
		wr->wr.rdma.remote_addr = addr;
		wr->wr.rdma.rkey = key;
	}
	if (k->atomic)
		atomic_fill(e, rec, wr);
	local_fault(e, op, sge, wr->num_sge);
}

static void hold_add(struct ep *e, const struct op *op)
{
	struct sq *q = &e->sq;

	if (op->big || (op->kind != OP_WRITE && op->kind != OP_WRITE_IMM &&
			op->kind != OP_READ_BACK))
		return;
	q->hold[q->hold_tail++ % HOLDS] = (struct hold){
		.at = op->at, .seq = op->seq, .read = op->kind == OP_READ_BACK,
	};
}

static void draw_next(struct ep *e)
{
	struct sq *q = &e->sq;
	bool stop = atomic_load(&sh->stop) && e->c.ending != END_FAULT;

	if (q->have_next && !(stop && !q->final))
		return;
	/* What was drawn and not posted is not part of the sequence after all. */
	if (e->c.ending != END_FAULT || e->c.end_side != e->side->id) {
		uint32_t seq = q->have_next ? q->next.seq : q->plan.seq;
		uint32_t recv = q->have_next ? q->next.recv : q->plan.recv;

		if (stop || seq >= my_cfg(e)->ops) {
			plan_final(&q->plan, seq, recv, &q->next);
			q->final = q->have_next = true;
			atomic_store(&end_mine(e)->last, seq);
			return;
		}
	}
	plan_next(&q->plan, &q->next);
	q->have_next = true;
}

static bool all_posted(struct ep *e)
{
	struct sq *q = &e->sq;

	return (q->final && !q->have_next) ||
	       (e->c.ending == END_FAULT && e->c.end_side == e->side->id &&
		q->tail >= my_cfg(e)->ops);
}

/* Adds the next request to the chain. */
static bool chain_add(struct ep *e, struct chain *c)
{
	struct sq *q = &e->sq;
	struct sq_rec *rec;

	if (all_posted(e)) {
		q->waits = "nothing: all is posted";
		return false;
	}
	draw_next(e);
	q->waits = not_now(e, &q->next);
	if (q->waits)
		return false;
	rec = rec_at(q, q->tail);
	rec->op = q->next;
	if (!make_buffers(e, rec, c->scratch[c->n])) {
		q->waits = "room in the arena";
		return false;
	}
	if (rec->op.fault) {
		atomic_store(&end_mine(e)->trouble, TR_SOON);
		q->fault_posted = true;
		atomic_fetch_add(&sh->faults, 1);
	}
	wr_fill(e, rec, &c->wr[c->n], c->sge[c->n]);
	hold_add(e, &rec->op);
	trace(&q->trace, "post %u %s%s%s len %u flags %x pieces %u at %llx", rec->op.seq,
	      kind_info[rec->op.kind].name, rec->op.fault ? " fault " : "",
	      rec->op.fault ? fault_info[rec->op.fault].name : "", rec->op.len, rec->op.flags,
	      rec->b.n, (unsigned long long)c->wr[c->n].wr.rdma.remote_addr);
	q->have_next = false;
	q->tail++;
	c->n++;
	atomic_fetch_add(&sh->bytes, rec->op.len);
	return true;
}

bool sq_run(struct ep *e, struct rng *r)
{
	struct ibv_send_wr *bad = NULL;
	unsigned want = 1 + (unsigned)rng_below(r, CHAIN);
	struct sq *q = &e->sq;
	struct chain c;
	int ret;

	if (pthread_mutex_trylock(&q->lock))
		return false;
	c.n = 0;
	if (q->open)
		token_release(e); /* others wait for it */
	while (q->open && c.n < want && chain_add(e, &c))
		;
	if (c.n) {
		for (unsigned i = 0; i + 1 < c.n; i++)
			c.wr[i].next = &c.wr[i + 1];
		atomic_store(&end_mine(e)->posted, q->tail);
		ret = ibv_post_send(e->qp, c.wr, &bad);
		if (ret)
			fail(e, "ibv_post_send of %u from %u on: %d, bad_wr is number %d", c.n,
			     q->tail - c.n, ret, bad ? (int)(bad - c.wr) : -1);
		memset(c.scratch, 0xdd, sizeof(c.scratch)); /* inline data is ours again */
		atomic_fetch_add(&sh->ops, c.n);
		ep_moved(e);
	}
	pthread_mutex_unlock(&q->lock);
	return c.n > 0;
}

void sq_mark(struct ep *e)
{
	struct sq *q = &e->sq;
	struct ibv_send_wr wr, *bad;
	struct sq_rec *rec;
	int ret;

	pthread_mutex_lock(&q->lock);
	rec = rec_at(q, q->tail);
	memset(rec, 0, sizeof(*rec));
	rec->op = (struct op){ .seq = q->tail, .kind = OP_MARKER, .flags = IBV_SEND_SIGNALED };
	wr = (struct ibv_send_wr){
		.wr_id = wr_id(WR_SEND, e->link, e->gen, q->tail),
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};
	q->marker = q->live = true;
	q->tail++;
	trace(&q->trace, "post %u marker", rec->op.seq);
	ret = ibv_post_send(e->qp, &wr, &bad);
	/* Full: then something signalled is still to come, and we ask again. */
	if (ret == ENOMEM && q->tail - q->head > my_cfg(e)->max_send_wr) {
		q->tail--;
		q->marker = false;
	} else if (ret) {
		fail(e, "ibv_post_send in the error state: %d", ret);
	}
	pthread_mutex_unlock(&q->lock);
}

/* ---- completions -------------------------------------------------------------------- */

static void atomic_done(struct ep *e, struct sq_rec *rec)
{
	const struct op *op = &rec->op;
	struct sh_word *w = &sh->side[!e->side->id].word[op->word];
	uint64_t old;

	memcpy(&old, rec->b.p[0], 8);
	if (op->kind == OP_CAS) {
		if (old != op->old)
			fail(e, "request %u: the word was %llx, and should have been %llx",
			     op->seq, (unsigned long long)old, (unsigned long long)op->old);
		return;
	}
	if (op->kind == OP_CAS_SHARED) {
		e->sq.guess[op->word - FAA_WORDS] = old == rec->guess ? old + 1 : old;
		if (old != rec->guess)
			return;
	}
	atomic_fetch_add(&w->acked, 1);
	if (!word_seen(w, old))
		fail(e, "request %u: %s of word %u got %llu, as another one did", op->seq,
		     kind_info[op->kind].name, op->word, (unsigned long long)old);
}

static void op_done(struct ep *e, struct sq_rec *rec)
{
	const struct op *op = &rec->op;
	uint64_t fixed = key_of(sh->o.seed, 77, (uint64_t)!e->side->id, 0);
	char what[80];

	snprintf(what, sizeof(what), "request %u (%s, %u bytes)", op->seq,
		 kind_info[op->kind].name, op->len);
	if (op->fault)
		fail(e, "%s succeeded with fault %s", what, fault_info[op->fault].name);
	if (kind_info[op->kind].atomic)
		atomic_done(e, rec);
	else if (op->kind == OP_READ)
		buf_check(e, &rec->b, fixed, op->at, op->len, what);
	else if (kind_info[op->kind].reads)
		buf_check(e, &rec->b, op->ref, 0, op->len, what);
	buf_free(&rec->b, &e->tx);
}

/* Requests up to seq (exclusive) have succeeded without saying so. */
static void done_before(struct ep *e, uint32_t seq)
{
	struct sq *q = &e->sq;

	for (; q->head != seq; q->head++) {
		struct sq_rec *rec = rec_at(q, q->head);

		if (rec->op.flags & IBV_SEND_SIGNALED)
			fail(e, "request %u completes before %u, which is signalled", seq,
			     q->head);
		op_done(e, rec);
	}
}

static void success(struct ep *e, struct sq_rec *rec, const struct ibv_wc *wc)
{
	const struct op *op = &rec->op;
	const struct kind_info *k = &kind_info[op->kind];
	struct sq *q = &e->sq;

	if (q->err)
		fail(e, "request %u succeeds after one before it has failed", op->seq);
	if (!(op->flags & IBV_SEND_SIGNALED))
		fail(e, "request %u was not signalled", op->seq);
	if (op->kind == OP_MARKER)
		fail(e, "a request posted in the error state succeeds");
	if (wc->opcode != k->wc)
		fail(e, "request %u (%s): opcode %d in the completion", op->seq, k->name,
		     (int)wc->opcode);
	if (k->reads && wc->byte_len != op->len)
		fail(e, "request %u (%s): byte_len %u, not %u", op->seq, k->name, wc->byte_len,
		     op->len);
	done_before(e, op->seq);
	op_done(e, rec);
	q->head++;
	atomic_store(&end_mine(e)->acked, q->head);
}

static bool error_fits(struct ep *e, const struct op *op, enum ibv_wc_status st)
{
	const struct cfg *c = &e->c;
	bool gone = st == IBV_WC_WR_FLUSH_ERR || st == IBV_WC_RETRY_EXC_ERR;
	bool mine = c->ending == END_FAULT && c->end_side == e->side->id;

	if (peer_died(e) && gone)
		return true;
	if (op->fault)
		return st == fault_info[op->fault].requester;
	if (!ep_trouble(e) || (mine && op->seq <= c->end_at))
		return false;
	if (st == IBV_WC_REM_ACCESS_ERR)
		return c->ending == END_KILL && c->kill == K_DEREG &&
		       c->end_side != e->side->id && kind_info[op->kind].remote;
	return gone;
}

static void failure(struct ep *e, struct sq_rec *rec, const struct ibv_wc *wc)
{
	const struct op *op = &rec->op;
	struct sq *q = &e->sq;

	if (q->err) {
		if (op->seq != q->head)
			fail(e, "request %u is flushed before %u", op->seq, q->head);
		if (wc->status != IBV_WC_WR_FLUSH_ERR)
			fail(e, "request %u: %s after one before it has failed", op->seq,
			     ibv_wc_status_str(wc->status));
	} else {
		done_before(e, op->seq);
		atomic_store(&end_mine(e)->acked, q->head);
		if (!error_fits(e, op, wc->status))
			fail(e, "request %u (%s, fault %s): %s", op->seq,
			     kind_info[op->kind].name, fault_info[op->fault].name,
			     ibv_wc_status_str(wc->status));
		q->err = true;
		if (op->fault)
			atomic_store(&end_mine(e)->trouble, TR_SEEN);
	}
	buf_free(&rec->b, &e->tx);
	q->head++;
	atomic_store(&e->err_seen, true);
}

static void apply(struct ep *e, const struct ibv_wc *wc)
{
	uint32_t seq = (uint32_t)wc->wr_id;
	struct sq *q = &e->sq;
	struct sq_rec *rec = rec_at(q, seq);

	trace(&q->trace, "done %u: %s", seq, ibv_wc_status_str(wc->status));
	if (seq - q->head >= q->tail - q->head)
		fail(e, "completion of request %u, but %u to %u are out", seq, q->head,
		     q->tail - 1);
	if (wc->qp_num != atomic_load(&e->qpn))
		fail(e, "completion of request %u: QP number %06x, not %06x", seq, wc->qp_num,
		     atomic_load(&e->qpn));
	if (wc->status == IBV_WC_SUCCESS)
		success(e, rec, wc);
	else
		failure(e, rec, wc);
	ep_moved(e);
}

/* On a CQ that several threads poll, all are signalled: each has its turn. */
static void apply_in_turn(struct ep *e, const struct ibv_wc *wc)
{
	struct stash *st = &e->sq.stash;

	if (st->n == STASH)
		fail(e, "%u completions wait for that of request %u", st->n, e->sq.head);
	st->wc[st->n++] = *wc;
	for (unsigned i = 0; i < st->n;) {
		struct ibv_wc turn = st->wc[i];

		if ((uint32_t)turn.wr_id != e->sq.head) {
			i++;
			continue;
		}
		st->wc[i] = st->wc[--st->n];
		apply(e, &turn);
		i = 0;
	}
}

void sq_completed(struct ep *e, const struct ibv_wc *wc, uint64_t began)
{
	uint32_t gen = (uint32_t)(wc->wr_id >> 32) & 0xffff;
	struct sq *q = &e->sq;

	pthread_mutex_lock(&q->lock);
	if (!q->live || gen != (e->gen & 0xffff))
		ep_late(e, gen, began, "send");
	else if (e->side->cq[my_cfg(e)->send_cq].mode == CQ_RACY)
		apply_in_turn(e, wc);
	else
		apply(e, wc);
	pthread_mutex_unlock(&q->lock);
}
