/* SPDX-License-Identifier: BSD-2-Clause */
/* Receive queues: which message comes next is known from the peer's plan, and so is
 * what it and the writes before it have put into memory. */
#include "stress.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLACK = 64 };

void rq_begin(struct ep *e)
{
	struct rq *q = &e->rq;

	plan_init(&q->plan, &sh->o, &e->c, !e->side->id);
	q->open = q->live = q->have_next = q->err = q->final = q->starved = false;
	q->head = q->tail = q->ahead_head = q->ahead_tail = 0;
	q->next = (struct op){ 0 }; /* a QP for datagrams does not walk: it takes any */
	q->stash.n = 0;
	e->rx.head = e->rx.tail = 0;
}

/* ---- posting ------------------------------------------------------------- */

/* Walks the peer's requests up to the next that takes a receive. */
static bool walk(struct ep *e)
{
	struct rq *q = &e->rq;

	while (!q->have_next) {
		struct op *op;

		if (q->ahead_tail - q->ahead_head >= RQ_AHEAD)
			return false;
		op = &q->ahead[q->ahead_tail++ % RQ_AHEAD];
		plan_next(&q->plan, op);
		q->next = *op;
		q->have_next = kind_info[op->kind].consumes;
	}
	return true;
}

/* The token that the peer took for its request seq, or -1. */
static int token_of(struct ep *e, uint32_t seq)
{
	uint64_t big = peer_phase(e) >= 0 ? atomic_load(&end_peer(e)->big) : 0;

	return big && big >> 8 == seq ? (int)(big & 0xff) - 1 : -1;
}

static const char *make_receive(struct ep *e, struct rq_rec *rec, struct rng *r)
{
	const struct op *op = &rec->op;
	/* What comes now is the final message, for which anything will do. */
	bool final = peer_phase(e) >= 0 && op->seq >= atomic_load(&end_peer(e)->last);
	bool send = op->kind != OP_WRITE_IMM && !final;
	uint32_t content = send ? op->len : 0, len = content + (uint32_t)rng_below(r, SLACK);
	unsigned n = (unsigned)rng_below(r, my_cfg(e)->recv_sge + 1);
	struct buf_plan plan = { .slot_key = e->side->slots_mr->lkey };
	int token;

	if (e->c.ud) { /* any message may be the next */
		len = UD_GRH + sh->o.datagram + (uint32_t)rng_below(r, SLACK);
		content = 0;
	}
	if (op->fault == F_SMALL)
		content = len = op->len - 1;
	n = len && !n ? 1 : n;
	if (send && op->big) {
		token = token_of(e, op->seq);
		if (token < 0)
			return "the peer's token";
		plan.slot = side_slot(e->side, token, true);
	}
	plan.len = len;
	plan.content = content;
	plan.n = n;
	plan.split = rng_next(r);
	if (!buf_make(&rec->b, &e->rx, &plan))
		return "room in the arena";
	return NULL;
}

static bool chain_add(struct ep *e, struct rng *r, struct ibv_recv_wr *wr, struct ibv_sge *sge)
{
	struct rq *q = &e->rq;
	struct rq_rec *rec = &q->rec[q->tail % RQ_RECS];

	q->waits = "a place in the receive queue";
	if (q->tail - q->head >= my_cfg(e)->max_recv_wr)
		return false;
	q->waits = "what was received to be checked";
	if (!e->c.ud && !walk(e))
		return false;
	q->starved |= q->next.fault == F_RNR;
	q->waits = "nothing: it starves its peer";
	if (q->starved)
		return false;
	rec->op = q->next;
	q->waits = make_receive(e, rec, r);
	if (q->waits)
		return false;
	*wr = (struct ibv_recv_wr){
		.wr_id = wr_id(WR_RECV, e->link, e->gen, q->tail),
		.sg_list = sge,
		.num_sge = buf_sges(&rec->b, sge),
	};
	if (rec->op.fault == F_RLKEY)
		for (int i = 0; i < wr->num_sge; i++)
			sge[i].lkey ^= 0x5a5a00;
	trace(&q->trace, "post receive %u in %u for request %u (%s, %u bytes)", q->tail,
	      rec->b.n, rec->op.seq, kind_info[rec->op.kind].name, rec->op.len);
	q->have_next = false;
	q->tail++;
	return true;
}

bool rq_run(struct ep *e, struct rng *r)
{
	struct ibv_recv_wr wr[CHAIN], *bad = NULL;
	struct ibv_sge sge[CHAIN][MAX_PIECES];
	unsigned want = 1 + (unsigned)rng_below(r, CHAIN), n = 0;
	struct rq *q = &e->rq;
	int ret;

	if (pthread_mutex_trylock(&q->lock))
		return false;
	while (q->open && n < want && my_cfg(e)->srq < 0 &&
	       chain_add(e, r, &wr[n], sge[n]))
		n++;
	if (n) {
		for (unsigned i = 0; i + 1 < n; i++)
			wr[i].next = &wr[i + 1];
		ret = ibv_post_recv(e->qp, wr, &bad);
		if (ret)
			fail(e, "ibv_post_recv of %u from %u on: %d, bad_wr is number %d", n,
			     q->tail - n, ret, bad ? (int)(bad - wr) : -1);
		atomic_store(&end_mine(e)->recvs, q->tail);
		ep_moved(e);
	}
	pthread_mutex_unlock(&q->lock);
	return n > 0;
}

/* ---- what was written here ----------------------------------------------- */

static void verify_write(struct ep *e, const struct op *op)
{
	const uint8_t *p = e->win + op->at % sh->o.arena;
	int64_t bad;
	int token;

	if (!kind_info[op->kind].ring || op->fault)
		return;
	if (op->big) {
		token = token_of(e, op->seq);
		if (token < 0)
			fail(e, "the peer's request %u has no token", op->seq);
		p = side_slot(e->side, token, true);
	}
	bad = pattern_check_remote(op->key, 0, p, op->len);
	if (bad >= 0)
		fail(e, "the peer's request %u (%s of %u bytes): byte %lld is %02x", op->seq,
		     kind_info[op->kind].name, op->len, (long long)bad, p[bad]);
}

/* ---- completions --------------------------------------------------------- */

/* The message that must come now; what was written before it is checked. */
static void expect(struct ep *e, struct op *op)
{
	uint32_t last = atomic_load(&end_peer(e)->last);
	struct rq *q = &e->rq;

	for (;;) {
		bool stored = q->ahead_head != q->ahead_tail;
		uint32_t seq = stored ? q->ahead[q->ahead_head % RQ_AHEAD].seq : q->plan.seq;

		if (seq == last) {
			plan_final(&q->plan, seq, 0, op);
			return;
		}
		if (stored)
			*op = q->ahead[q->ahead_head++ % RQ_AHEAD];
		else
			plan_next(&q->plan, op);
		if (kind_info[op->kind].consumes)
			return;
		verify_write(e, op);
	}
}

static void check_message(struct ep *e, const struct ibv_wc *wc, const struct op *op,
			  const struct bufs *b)
{
	bool imm = op->kind != OP_SEND && op->kind != OP_SEND_INV;
	bool write = op->kind == OP_WRITE_IMM;
	const unsigned flags = IBV_WC_WITH_IMM | IBV_WC_WITH_INV;
	struct bufs body = *b;
	bool inv = op->kind == OP_SEND_INV && wc->wc_flags & IBV_WC_WITH_INV;
	char what[100];

	snprintf(what, sizeof(what), "the peer's request %u (%s, %u bytes)", op->seq,
		 kind_info[op->kind].name, op->len);
	if (op->seq >= atomic_load(&end_peer(e)->posted))
		fail(e, "%s was received, but %u were posted", what,
		     atomic_load(&end_peer(e)->posted));
	if (op->fault)
		fail(e, "%s was received with fault %s", what, fault_info[op->fault].name);
	if (wc->opcode != (write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV))
		fail(e, "%s: opcode %d in the completion", what, (int)wc->opcode);
	if ((wc->wc_flags & flags) != (imm ? IBV_WC_WITH_IMM : inv ? IBV_WC_WITH_INV : 0u))
		fail(e, "%s: flags %x in the completion", what, wc->wc_flags);
	if (imm && wc->imm_data != htonl(op->imm))
		fail(e, "%s: immediate %08x, not %08x", what, ntohl(wc->imm_data), op->imm);
	body.skip = e->c.ud ? UD_GRH : 0;
	if (wc->byte_len != op->len + body.skip)
		fail(e, "%s: byte_len %u", what, wc->byte_len);
	if (op->kind != OP_FINAL) /* the receive was made for something else */
		buf_check(e, &body, op->key, 0, write ? 0 : op->len, what);
	verify_write(e, op);
	if (inv)
		window_taken(e, wc->invalidated_rkey);
}

static void received(struct ep *e, const struct ibv_wc *wc, const struct bufs *b)
{
	struct rq *q = &e->rq;
	struct op op;

	if (q->err)
		fail(e, "a receive succeeds after one before it has failed");
	if (peer_phase(e) < 0 && !peer_died(e))
		fail(e, "a message came before the peer was there");
	if (q->final)
		fail(e, "a message after the last");
	if (e->c.ud) {
		ud_expect(e, &op, wc, b);
		ud_check_origin(e, wc, b);
	} else {
		expect(e, &op);
	}
	trace(&q->trace, "received request %u (%s)", op.seq, kind_info[op.kind].name);
	check_message(e, wc, &op, b);
	q->final = op.kind == OP_FINAL;
	atomic_fetch_add(&end_mine(e)->received, 1);
	atomic_store(&end_mine(e)->verified, op.seq + 1);
}

/* May a write of the peer meet memory that it may not use? */
static bool may_be_refused(struct ep *e)
{
	const struct cfg *c = &e->c;
	bool fault = c->ending == END_FAULT && c->end_side != e->side->id &&
		     fault_info[c->fault].requester == IBV_WC_REM_ACCESS_ERR;

	return fault ? atomic_load(&end_peer(e)->trouble) :
		       c->ending == END_KILL && c->kill == K_DEREG && ep_trouble(e);
}

/* May the receive for op fail like this? op: NULL for an SRQ's. */
static bool error_fits(struct ep *e, const struct op *op, enum ibv_wc_status st)
{
	const struct cfg *c = &e->c;
	int planned = -1;

	if (c->ending == END_FAULT && c->end_side != e->side->id &&
	    (!op || op->seq == c->end_at))
		planned = fault_info[c->fault].responder;
	if ((int)st == planned)
		return atomic_load(&end_peer(e)->trouble);
	if (st == IBV_WC_LOC_ACCESS_ERR && !c->uc && (!op || op->kind == OP_WRITE_IMM))
		return may_be_refused(e);
	return st == IBV_WC_WR_FLUSH_ERR && ep_trouble(e);
}

static void failed(struct ep *e, const struct op *op, const struct ibv_wc *wc)
{
	struct rq *q = &e->rq;

	if (q->err ? wc->status != IBV_WC_WR_FLUSH_ERR : !error_fits(e, op, wc->status))
		fail(e, "receive %llx: %s%s", (unsigned long long)wc->wr_id,
		     ibv_wc_status_str(wc->status),
		     q->err ? " after one before it has failed" : "");
	q->err = true;
	atomic_store(&e->err_seen, true);
}

static void apply(struct ep *e, const struct ibv_wc *wc)
{
	uint32_t n = (uint32_t)wc->wr_id;
	struct rq *q = &e->rq;
	struct rq_rec *rec = &q->rec[n % RQ_RECS];

	trace(&q->trace, "receive %u: %s", n, ibv_wc_status_str(wc->status));
	if (n != q->head || q->head == q->tail)
		fail(e, "completion of receive %u, but %u is the oldest of %u", n, q->head,
		     q->tail - q->head);
	if (wc->qp_num != atomic_load(&e->rqpn))
		fail(e, "completion of receive %u: QP number %06x, not %06x", n, wc->qp_num,
		     atomic_load(&e->rqpn));
	if (wc->status == IBV_WC_SUCCESS)
		received(e, wc, &rec->b);
	else
		failed(e, &rec->op, wc);
	buf_free(&rec->b, &e->rx);
	q->head++;
	ep_moved(e);
}

void rq_completed(struct ep *e, const struct ibv_wc *wc, uint64_t began)
{
	uint32_t gen = (uint32_t)(wc->wr_id >> 32) & 0xffff;
	struct rq *q = &e->rq;

	pthread_mutex_lock(&q->lock);
	if (!q->live || gen != (e->gen & 0xffff))
		ep_late(e, gen, began, "receive");
	else if (e->side->cq[my_cfg(e)->recv_cq].mode == CQ_RACY)
		stash_add(&q->stash, e, wc, &q->head, apply);
	else
		apply(e, wc);
	pthread_mutex_unlock(&q->lock);
}

void rq_srq_completed(struct ep *e, const struct ibv_wc *wc, const struct bufs *b)
{
	struct rq *q = &e->rq;

	pthread_mutex_lock(&q->lock);
	trace(&q->trace, "receive %llx of the SRQ: %s", (unsigned long long)wc->wr_id,
	      ibv_wc_status_str(wc->status));
	if (!q->live || my_cfg(e)->srq < 0)
		fail(e, "a completion of the SRQ, but the QP does not use it");
	if (wc->status == IBV_WC_SUCCESS)
		received(e, wc, b);
	else
		failed(e, NULL, wc);
	ep_moved(e);
	pthread_mutex_unlock(&q->lock);
}

/* ---- the end ------------------------------------------------------------- */

/* Writes that the peer was told are done, unless something posted later may have gone
 * over them. */
static void verify_acked(struct ep *e, const struct op *ops, unsigned n, uint32_t acked,
			 uint64_t ring)
{
	for (unsigned i = 0; i < n; i++)
		if (ops[i].seq < acked && (ops[i].big ? token_of(e, ops[i].seq) >= 0 :
							ops[i].at + sh->o.arena >= ring))
			verify_write(e, &ops[i]);
}

void rq_verify_end(struct ep *e)
{
	uint32_t acked = atomic_load(&end_peer(e)->acked);
	uint32_t last = atomic_load(&end_peer(e)->last);
	uint32_t end = atomic_load(&end_peer(e)->posted);
	struct rq *q = &e->rq;
	struct op *ops, op;
	uint64_t ring = 0;
	unsigned n = 0;

	end = end > last ? last : end;
	ops = malloc((end + 1) * sizeof(*ops));
	MUST(ops);
	for (;;) {
		bool stored = q->ahead_head != q->ahead_tail;
		uint32_t seq = stored ? q->ahead[q->ahead_head % RQ_AHEAD].seq : q->plan.seq;

		if (seq >= end)
			break;
		if (stored)
			op = q->ahead[q->ahead_head++ % RQ_AHEAD];
		else
			plan_next(&q->plan, &op);
		if (kind_info[op.kind].consumes && op.seq < acked && !e->dirty && !e->c.uc)
			fail(e, "the peer's request %u (%s) was acknowledged, but not received",
			     op.seq, kind_info[op.kind].name);
		if (kind_info[op.kind].ring && !op.big)
			ring = plan_ring_end(&op);
		ops[n++] = op;
	}
	if (acked > last && !q->final && !e->dirty && !e->c.uc)
		fail(e, "the peer's last request was acknowledged, but not received");
	if (!e->c.uc) /* of what it sends it knows nothing */
		verify_acked(e, ops, n, acked, ring);
	free(ops);
}
