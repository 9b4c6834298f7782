/* SPDX-License-Identifier: BSD-2-Clause */
/* Send queues: what may be posted now, and what its completion must look like.
 *
 * The model: requests head to tail-1 are out. A successful completion is that of
 * the first signalled one; those before it have succeeded, too. The first error
 * is that of any with no signalled one before it; from then on each comes back, in
 * order, flushed. */
#include "stress.h"

#include <stdio.h>
#include <string.h>

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
	q->window_shut = q->window_used = 0;
	q->credit_at = 0;
	e->tx.head = e->tx.tail = 0;
}

/* ---- may it be posted? --------------------------------------------------- */

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
	    e->c.s[!e->side->id].srq < 0 && atomic_load(&end_peer(e)->recvs) <= op->recv &&
	    !(e->c.ud && ud_impatient(q)))
		return "a receive at the peer";
	if (e->c.uc && peer_phase(e) < PH_RUN)
		return "the peer, which would miss it";
	if (k->ring && !op->big && !ring_has_room(e, op))
		return "the peer to look at earlier writes";
	if (op->kind == OP_READ_BACK) {
		holds_release(e);
		if (q->hold_tail - q->hold_head >= HOLDS)
			return "earlier reads";
	}
	return NULL;
}

/* ---- posting ------------------------------------------------------------- */

static uint8_t *slot_for(struct ep *e, const struct op *op)
{
	return op->big ? side_slot(e->side, e->sq.token, false) : NULL;
}

static bool make_buffers(struct ep *e, struct sq_rec *rec, uint8_t *scratch)
{
	const struct op *op = &rec->op;
	struct buf_plan plan = {
		.slot = op->flags & IBV_SEND_INLINE ? scratch : slot_for(e, op),
		.slot_key = e->side->slots_mr->lkey,
		.len = op->len,
		.content = op->len,
		.n = op->pieces,
		.split = op->key,
	};

	if (!buf_make(&rec->b, &e->tx, &plan))
		return false;
	if (!kind_info[op->kind].reads)
		buf_fill(&rec->b, op->key, 0);
	return true;
}

static void hold_add(struct ep *e, const struct op *op)
{
	struct sq *q = &e->sq;

	if (op->big || (!kind_info[op->kind].ring && op->kind != OP_READ_BACK))
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
	rec->inv_key = 0;
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
	q->credit_at = 0;
	q->tail++;
	c->n++;
	atomic_fetch_add(&sh->bytes, rec->op.len);
	return true;
}

bool sq_run(struct ep *e, struct rng *r)
{
	unsigned want = 1 + (unsigned)rng_below(r, CHAIN), done = 0;
	struct sq *q = &e->sq;
	struct chain c;
	int ret;

	if (pthread_mutex_trylock(&q->lock))
		return false;
	c.n = 0;
	if (q->open) {
		token_release(e); /* others wait for it */
		window_tick(e);
	}
	while (q->open && c.n < want && chain_add(e, &c))
		;
	if (c.n) {
		atomic_store(&end_mine(e)->posted, q->tail);
		ret = wr_post(e, &c, r, &done);
		if (ret)
			fail(e, "posting %u from %u on: %d (%s) after %u", c.n, q->tail - c.n,
			     ret, strerror(ret), done);
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
	if (e->c.ud) {
		wr.wr.ud.ah = e->ah;
		wr.wr.ud.remote_qpn = 1;
	}
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

/* ---- completions --------------------------------------------------------- */

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
	else if (kind_info[op->kind].local)
		window_done(e, op);
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
	enum ibv_wc_opcode want;

	if (q->err)
		fail(e, "request %u succeeds after one before it has failed", op->seq);
	if (!(op->flags & IBV_SEND_SIGNALED))
		fail(e, "request %u was not signalled", op->seq);
	if (op->kind == OP_MARKER)
		fail(e, "a request posted in the error state succeeds");
	/* Type 1 windows are unbound by binding them to nothing. */
	want = op->kind == OP_UNBIND && my_cfg(e)->mw == 1 ? IBV_WC_BIND_MW : k->wc;
	if (wc->opcode != want)
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
	/* Who is unreliable does not notice that nobody is there. */
	bool gone = st == IBV_WC_WR_FLUSH_ERR || (st == IBV_WC_RETRY_EXC_ERR && !c->uc);
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

void sq_completed(struct ep *e, const struct ibv_wc *wc, uint64_t began)
{
	uint32_t gen = (uint32_t)(wc->wr_id >> 32) & 0xffff;
	struct sq *q = &e->sq;

	pthread_mutex_lock(&q->lock);
	if (!q->live || gen != (e->gen & 0xffff))
		ep_late(e, gen, began, "send");
	else if (e->side->cq[my_cfg(e)->send_cq].mode == CQ_RACY) /* all are signalled */
		stash_add(&q->stash, e, wc, &q->head, apply);
	else
		apply(e, wc);
	pthread_mutex_unlock(&q->lock);
}
