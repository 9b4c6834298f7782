/* SPDX-License-Identifier: BSD-2-Clause */
#include "plan.h"

#include <stdio.h>
#include <string.h>

#define WR(name) IBV_WR_##name
#define WC(name) IBV_WC_##name

const struct kind_info kind_info[OP_KINDS] = {
	[OP_SEND] = { "send", 20, WR(SEND), WC(SEND), .consumes = true, .uc = true },
	[OP_SEND_IMM] = { "send-imm", 10, WR(SEND_WITH_IMM), WC(SEND), .consumes = true,
			  .uc = true },
	[OP_WRITE] = { "write", 20, WR(RDMA_WRITE), WC(RDMA_WRITE), .remote = true,
		       .ring = true, .uc = true },
	[OP_WRITE_IMM] = { "write-imm", 12, WR(RDMA_WRITE_WITH_IMM), WC(RDMA_WRITE),
			   .consumes = true, .remote = true, .ring = true, .uc = true },
	[OP_ATOMIC_WRITE] = { "atomic-write", 4, WR(ATOMIC_WRITE), WC(ATOMIC_WRITE),
			      .remote = true, .ring = true },
	/* A plain send where there is nothing to invalidate. */
	[OP_SEND_INV] = { "send-inv", 6, WR(SEND), WC(SEND), .consumes = true, .uc = true },
	[OP_BIND] = { "bind", 6, WR(BIND_MW), WC(BIND_MW), .local = true, .uc = true },
	[OP_UNBIND] = { "unbind", 4, WR(LOCAL_INV), WC(LOCAL_INV), .local = true, .uc = true },
	[OP_READ] = { "read", 12, WR(RDMA_READ), WC(RDMA_READ), .remote = true, .reads = true },
	[OP_READ_BACK] = { "read-back", 8, WR(RDMA_READ), WC(RDMA_READ), .remote = true,
			   .reads = true },
	[OP_FAA] = { "fetch-add", 6, WR(ATOMIC_FETCH_AND_ADD), WC(FETCH_ADD), .remote = true,
		     .reads = true, .atomic = true },
	[OP_CAS] = { "cas", 5, WR(ATOMIC_CMP_AND_SWP), WC(COMP_SWAP), .remote = true,
		     .reads = true, .atomic = true },
	[OP_CAS_SHARED] = { "cas-shared", 3, WR(ATOMIC_CMP_AND_SWP), WC(COMP_SWAP),
			    .remote = true, .reads = true, .atomic = true },
	[OP_CELL_READ] = { "cell-read", 5, WR(RDMA_READ), WC(RDMA_READ), .remote = true,
			   .reads = true },
	[OP_CELL_WRITE] = { "cell-write", 5, WR(RDMA_WRITE), WC(RDMA_WRITE), .remote = true },
	[OP_FINAL] = { "final", 0, WR(SEND_WITH_IMM), WC(SEND), .consumes = true },
	[OP_MARKER] = { "marker", 0, WR(SEND), WC(SEND), .consumes = true },
};

const struct fault_info fault_info[FAULTS] = {
	[F_NONE] = { "none", IBV_WC_SUCCESS, -1 },
	[F_RKEY] = { "rkey", IBV_WC_REM_ACCESS_ERR, -1 },
	[F_STALE] = { "stale", IBV_WC_REM_ACCESS_ERR, -1 },
	[F_BEYOND] = { "beyond", IBV_WC_REM_ACCESS_ERR, -1 },
	[F_BEFORE] = { "before", IBV_WC_REM_ACCESS_ERR, -1 },
	[F_PD] = { "pd", IBV_WC_REM_ACCESS_ERR, -1 },
	[F_RIGHTS] = { "rights", IBV_WC_REM_ACCESS_ERR, -1 },
	[F_ALIGN] = { "align", IBV_WC_REM_INV_REQ_ERR, -1 },
	[F_LKEY] = { "lkey", IBV_WC_LOC_PROT_ERR, -1 },
	[F_LBEYOND] = { "lbeyond", IBV_WC_LOC_PROT_ERR, -1 },
	[F_LPD] = { "lpd", IBV_WC_LOC_PROT_ERR, -1 },
	[F_SMALL] = { "small", IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_LEN_ERR },
	[F_RLKEY] = { "rlkey", IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR },
	[F_RNR] = { "rnr", IBV_WC_RNR_RETRY_EXC_ERR, -1 },
	[F_LONG] = { "long", IBV_WC_LOC_LEN_ERR, -1 },
};

const char *const kill_name[KILLS] = {
	[K_ERR] = "err",
	[K_RESET] = "reset",
	[K_DESTROY] = "destroy",
	[K_DISCONNECT] = "disconnect",
	[K_DEREG] = "dereg",
};

/* ---- configuration ------------------------------------------------------- */

/* CQs 2 and 6 have events, 3 and 7 are polled by several threads at once. */
static void draw_side(struct side_cfg *s, const struct opts *o, struct rng *r)
{
	static const unsigned depths[] = { 2, 8, 16, 64, MAX_WR };

	s->send_cq = (unsigned)rng_below(r, o->cqs);
	s->recv_cq = (unsigned)rng_below(r, o->cqs);
	s->srq = o->srqs && rng_chance(r, 35) ? (int)rng_below(r, o->srqs) : -1;
	if (s->srq >= 0 && s->recv_cq % 4 == 3)
		s->recv_cq = (unsigned)rng_below(r, 3);
	s->max_send_wr = depths[rng_below(r, 5)];
	s->max_recv_wr = depths[rng_below(r, 5)];
	s->send_sge = 1 + (unsigned)rng_below(r, MAX_PIECES);
	s->recv_sge = 1 + (unsigned)rng_below(r, MAX_PIECES);
	s->max_inline = rng_chance(r, 30) ? 0 : (unsigned)rng_log(r, 512);
	/* Whose completions may come to us in any order must have one for all. */
	s->sig_all = s->send_cq % 4 == 3 || rng_chance(r, 10);
	s->ex = o->ex && rng_chance(r, 45);
	s->mw = rng_chance(r, 60) ? o->mw & (1u << rng_below(r, 2)) : 0;
	s->rd_atomic = 1 + (unsigned)rng_below(r, 16);
	s->psn = rng_chance(r, 30) ? 0xffffff - (uint32_t)rng_below(r, 20) :
				     (uint32_t)rng_below(r, 1 << 24);
	s->ops = 10 + (uint32_t)rng_log(r, 2000);
	s->credit = rng_chance(r, 60);
}

static bool fault_fits(const struct cfg *c, const struct opts *o, enum fault f)
{
	const struct side_cfg *to = &c->s[!c->end_side];

	if (f == F_NONE || o->skip_faults & 1u << f)
		return false;
	if (f == F_LONG)
		return c->ud;
	if (c->uc) /* the peer of an unreliable one does not say */
		return f == F_LKEY || f == F_LBEYOND || f == F_LPD;
	if (f == F_RLKEY || f == F_RNR)
		return to->srq < 0;
	if (f == F_ALIGN)
		return !(o->skip_kinds & 1u << OP_FAA);
	return true;
}

static bool kill_fits(const struct cfg *c, const struct opts *o, enum kill k)
{
	if (o->skip_kills & 1u << k)
		return false;
	switch (k) {
	case K_DISCONNECT:
		return c->cm;
	case K_RESET:
		return !c->cm && c->s[c->end_side].srq < 0;
	case K_DESTROY:
		/* What an SRQ gave to a QP that is gone is lost to the program. */
		return c->s[c->end_side].srq < 0;
	case K_DEREG:
		/* A region with a window stays; and lost writes are no error of UC. */
		return !c->uc && !c->s[c->end_side].mw;
	default:
		return true;
	}
}

static void draw_ending(struct cfg *c, const struct opts *o, struct rng *r)
{
	uint64_t what = rng_below(r, 100);
	unsigned tries = 50;

	c->end_side = (int)rng_below(r, 2);
	c->end_at = (uint32_t)rng_below(r, c->s[c->end_side].ops);
	c->ending = END_CLEAN;
	if (o->clean_only || what < 45)
		return;
	if (what < 75) {
		do
			c->fault = (enum fault)rng_below(r, FAULTS);
		while (!fault_fits(c, o, c->fault) && --tries);
		c->ending = tries ? END_FAULT : END_CLEAN;
		/* Some more come behind it. */
		c->s[c->end_side].ops = c->end_at + 1 + (uint32_t)rng_below(r, 8);
		if (c->fault == F_RNR) {
			c->rnr_retry = (unsigned)rng_below(r, 4);
			c->s[0].credit = c->s[1].credit = true;
			/* Who else sends to an SRQ is not known. */
			c->s[!c->end_side].srq = c->s[c->end_side].srq = -1;
		}
		return;
	}
	do
		c->kill = (enum kill)rng_below(r, KILLS);
	while (!kill_fits(c, o, c->kill) && --tries);
	c->ending = tries ? END_KILL : END_CLEAN;
}

/* Receives come from the one SRQ of the domain, whose CQ is the first. */
static void draw_xrc(struct side_cfg *s, const struct opts *o)
{
	s->srq = (int)o->srqs;
	s->recv_cq = 0;
	s->ex = false;
	s->mw = 0;
}

/* What an SRQ gave to a QP that is reset while datagrams come is lost to the program. The end
 * of a pause would take a QP from SQE to RTS, before anybody has seen the fault. */
static void draw_ud(struct cfg *c)
{
	c->pauses &= c->ending != END_FAULT;
	for (int i = 0; i < 2; i++) {
		c->s[i].mw = 0;
		if (c->s[i].srq >= 0)
			c->quick = c->keep_qp = false;
	}
}

static void draw(struct cfg *c, const struct opts *o, unsigned link, uint32_t gen)
{
	struct rng r = { key_of(o->seed, link, gen, 100) };

	memset(c, 0, sizeof(*c));
	c->link = link;
	c->gen = gen;
	c->cm = o->cm && (!o->raw || rng_chance(&r, 35));
	c->cm &= o->rc || o->uc || o->xrc; /* datagrams have no connection */
	c->ud = o->ud && !c->cm && (!(o->rc || o->uc || o->xrc) || rng_chance(&r, 25));
	c->uc = c->ud || (o->uc && (!o->rc || rng_chance(&r, 20)) && !c->cm);
	c->xrc = o->xrc && !c->cm && !c->uc && (!o->rc || rng_chance(&r, 20));
	c->pauses = o->pauses && !c->cm && (!c->uc || c->ud) && !c->xrc && rng_chance(&r, 15);
	c->active = (int)rng_below(&r, 2);
	draw_side(&c->s[0], o, &r);
	draw_side(&c->s[1], o, &r);
	if (c->cm) /* the CM negotiates one number */
		c->s[1].rd_atomic = c->s[0].rd_atomic;
	for (int i = 0; c->uc && !c->ud && i < 2; i++) {
		/* What finds no receive is lost. */
		c->s[i].credit = true;
		c->s[i].srq = -1;
	}
	for (int i = 0; c->xrc && i < 2; i++)
		draw_xrc(&c->s[i], o);
	c->rnr_timer = 1 + (unsigned)rng_below(&r, 12);
	c->rnr_retry = 7;
	c->timeout = 10 + (unsigned)rng_below(&r, 4);
	c->retry = (unsigned)rng_below(&r, 8);
	draw_ending(c, o, &r);
	/* At most one generation more, so that who was kept is easily known. */
	c->keep_qp = !c->cm && !c->xrc && gen % 2 == 1 && rng_chance(&r, 50);
	c->quick = rng_chance(&r, 30);
	if (c->ud)
		draw_ud(c);
}

void cfg_draw(struct cfg *c, const struct opts *o, unsigned link, uint32_t gen)
{
	struct cfg before;

	draw(c, o, link, gen);
	if (gen <= 1)
		return;
	draw(&before, o, link, gen - 1);
	if (!before.keep_qp || c->cm)
		return;
	/* The same QP, so the same queues. */
	c->kept = true;
	c->uc = before.uc;
	c->ud = before.ud;
	c->xrc = false;
	/* SQ_DRAINED of a pause before may come late. */
	c->pauses &= (!c->uc || c->ud) && !before.pauses;
	for (int i = 0; i < 2; i++) {
		struct side_cfg *s = &c->s[i], *b = &before.s[i];

		b->psn = s->psn;
		b->ops = s->ops;
		b->credit = s->credit || (c->uc && !c->ud);
		b->mw = s->mw;
		b->rd_atomic = s->rd_atomic;
		*s = *b;
	}
	if (c->ud)
		draw_ud(c);
	if (c->ending == END_FAULT && !fault_fits(c, o, c->fault))
		c->ending = END_CLEAN;
	if (c->ending == END_KILL && !kill_fits(c, o, c->kill))
		c->ending = END_CLEAN;
	if (c->ending == END_CLEAN)
		c->rnr_retry = 7;
}

void cfg_print(char *to, size_t len, const struct cfg *c, int side)
{
	const struct side_cfg *s = &c->s[side];
	char end[80] = "clean";

	if (c->ending == END_FAULT)
		snprintf(end, sizeof(end), "fault %s in request %u of side %d",
			 fault_info[c->fault].name, c->end_at, c->end_side);
	if (c->ending == END_KILL)
		snprintf(end, sizeof(end), "kill %s at request %u of side %d",
			 kill_name[c->kill], c->end_at, c->end_side);
	snprintf(to, len,
		 "%s%s %s, cq %u/%u srq %d wr %u/%u sge %u/%u inline %u%s%s mw %u rd %u psn "
		 "%06x, ops %u, rnr %u/%u timeout %u/%u%s%s%s%s, end: %s",
		 c->ud ? "UD" : c->uc ? "UC" : c->xrc ? "XRC" : "RC", s->ex ? "ex" : "",
		 !c->cm ? "raw" : c->active == side ? "cm active" : "cm passive", s->send_cq,
		 s->recv_cq, s->srq, s->max_send_wr, s->max_recv_wr, s->send_sge, s->recv_sge,
		 s->max_inline, s->sig_all ? " sig_all" : "", s->credit ? " credit" : "",
		 s->mw, s->rd_atomic, s->psn, s->ops, c->rnr_timer, c->rnr_retry, c->timeout,
		 c->retry, c->kept ? " kept" : "", c->keep_qp ? " keep" : "",
		 c->quick ? " quick" : "", c->pauses ? " pauses" : "", end);
}

void plan_show(const struct opts *o, unsigned link, uint32_t gen)
{
	struct plan p;
	struct cfg c;
	struct op op;
	char text[400];

	cfg_draw(&c, o, link, gen);
	for (int dir = 0; dir < 2; dir++) {
		cfg_print(text, sizeof(text), &c, dir);
		printf("link %u generation %u side %d: %s\n", link, gen, dir, text);
		plan_init(&p, o, &c, dir);
		for (uint32_t i = 0; i < c.s[dir].ops; i++) {
			plan_next(&p, &op);
			printf("  %u %s%s%s len %u flags %x pieces %u at %llx recv %u imm %08x\n",
			       op.seq, kind_info[op.kind].name, op.fault ? " fault " : "",
			       op.fault ? fault_info[op.fault].name : "", op.len, op.flags,
			       op.pieces, (unsigned long long)op.at, op.recv, op.imm);
		}
	}
}

/* ---- requests ------------------------------------------------------------ */

void plan_init(struct plan *p, const struct opts *o, const struct cfg *c, int dir)
{
	memset(p, 0, sizeof(*p));
	p->o = o;
	p->c = c;
	p->dir = dir;
	p->r.s = key_of(o->seed, c->link, c->gen, (uint64_t)dir);
	p->credit = o->max_size;
}

static unsigned weight(const struct plan *p, int k)
{
	const struct side_cfg *me = &p->c->s[p->dir], *peer = &p->c->s[!p->dir];

	if (p->o->skip_kinds & 1u << k || (p->c->uc && !kind_info[k].uc))
		return 0;
	if (p->c->ud && k != OP_SEND && k != OP_SEND_IMM)
		return 0;
	if ((kind_info[k].local && !me->mw) || (k == OP_SEND_INV && !peer->mw))
		return 0;
	return kind_info[k].weight;
}

static enum kind draw_kind(struct plan *p)
{
	unsigned total = 0;
	uint64_t at;

	for (int k = 0; k < OP_RANDOM; k++)
		total += weight(p, k);
	at = rng_below(&p->r, total);
	for (int k = 0; k < OP_RANDOM; k++) {
		unsigned w = weight(p, k);

		if (at < w)
			return (enum kind)k;
		at -= w;
	}
	return OP_SEND;
}

/* The peer looks at what was written when a receive of its completes: there must
 * be one from time to time. */
static bool receive_is_due(const struct plan *p)
{
	return p->since_recv >= 12 || p->ring_since_recv > p->o->arena / 4;
}

static uint32_t draw_len(struct plan *p)
{
	uint64_t what = rng_below(&p->r, 1000), len;

	if (what < 750)
		len = rng_log(&p->r, 4096);
	else if (what < 985)
		len = rng_log(&p->r, p->o->small);
	else if (what < 999)
		len = rng_log(&p->r, 4u << 20);
	else
		len = rng_log(&p->r, p->o->max_size);
	if (len > p->o->max_size)
		len = p->o->max_size;
	p->credit += p->o->budget;
	while (len > p->credit)
		len /= 2;
	p->credit -= len;
	return (uint32_t)len;
}

static uint32_t len_limit(const struct plan *p, enum kind k)
{
	bool srq = p->c->s[!p->dir].srq >= 0;

	if (p->c->ud)
		return p->o->datagram;
	switch (k) {
	case OP_SEND:
	case OP_SEND_IMM:
	case OP_SEND_INV:
		return srq ? p->o->srq_buf : p->o->max_size;
	case OP_CELL_WRITE:
		return CELL;
	case OP_BIND:
	case OP_UNBIND:
		return 0;
	default:
		return p->o->max_size;
	}
}

static void place_write(struct plan *p, struct op *op)
{
	uint64_t pos = p->ring % p->o->arena;

	if (op->big)
		return;
	if (pos + op->len + 16 > p->o->arena)
		p->ring += p->o->arena - pos;
	op->at = p->ring;
	p->ring_since_recv += (uint32_t)(plan_ring_end(op) - op->at);
	p->ring = plan_ring_end(op);
	p->recent[p->nrecent % RECENT].at = op->at;
	p->recent[p->nrecent % RECENT].key = op->key;
	p->recent[p->nrecent++ % RECENT].len = op->len;
}

static void place_read(struct plan *p, struct op *op)
{
	op->at = rng_below(&p->r, p->o->max_size - op->len + 1);
}

/* One of the last writes, if nothing planned since has overwritten it. */
static void place_read_back(struct plan *p, struct op *op)
{
	unsigned n = p->nrecent < RECENT ? p->nrecent : RECENT, i;

	if (n) {
		i = (unsigned)rng_below(&p->r, n);
		if (p->recent[i].at + p->o->arena >= p->ring) {
			op->at = p->recent[i].at;
			op->ref = p->recent[i].key;
			op->len = p->recent[i].len;
			op->big = false;
			return;
		}
	}
	op->kind = OP_READ;
	place_read(p, op);
}

static void place_cas(struct plan *p, struct op *op)
{
	bool hit = rng_chance(&p->r, 70);

	op->old = p->cas;
	op->compare = hit ? p->cas : ~p->cas;
	op->swap = rng_next(&p->r);
	if (hit)
		p->cas = op->swap;
}

static void place(struct plan *p, struct op *op)
{
	switch (op->kind) {
	case OP_WRITE:
	case OP_WRITE_IMM:
	case OP_ATOMIC_WRITE:
		place_write(p, op);
		break;
	case OP_READ:
		place_read(p, op);
		break;
	case OP_READ_BACK:
		place_read_back(p, op);
		break;
	case OP_CAS:
		place_cas(p, op);
		break;
	case OP_FAA:
		op->word = (unsigned)rng_below(&p->r, FAA_WORDS);
		break;
	case OP_CAS_SHARED:
		op->word = FAA_WORDS + (unsigned)rng_below(&p->r, CAS_WORDS);
		break;
	case OP_CELL_WRITE:
		p->cell_key = op->key;
		p->cell_len = op->len;
		break;
	case OP_CELL_READ:
		op->ref = p->cell_key;
		op->len = p->cell_len;
		break;
	default:
		break;
	}
}

static void draw_flags(struct plan *p, struct op *op)
{
	const struct side_cfg *s = &p->c->s[p->dir];
	const struct kind_info *k = &kind_info[op->kind];

	if (s->sig_all || op->big || rng_chance(&p->r, 40) ||
	    p->since_signal + 1 >= s->max_send_wr / 2 || op->fault)
		op->flags |= IBV_SEND_SIGNALED;
	/* The window must not go while a read through it is under way. */
	if (rng_chance(&p->r, 10) || op->kind == OP_CELL_WRITE || op->kind == OP_SEND_INV)
		op->flags |= IBV_SEND_FENCE;
	if (k->consumes && rng_chance(&p->r, 25))
		op->flags |= IBV_SEND_SOLICITED;
	if (k->local)
		return;
	if (k->atomic || op->kind == OP_ATOMIC_WRITE) {
		op->pieces = 1;
		return;
	}
	if (!k->reads && !op->big && op->len <= s->max_inline && rng_chance(&p->r, 60) &&
	    !op->fault)
		op->flags |= IBV_SEND_INLINE;
	op->pieces = (unsigned)rng_below(&p->r, s->send_sge + 1);
	if (op->len && !op->pieces)
		op->pieces = 1;
}

static void count(struct plan *p, const struct op *op)
{
	p->since_signal = op->flags & IBV_SEND_SIGNALED ? 0 : p->since_signal + 1;
	p->since_recv++;
	p->big_write |= op->big && kind_info[op->kind].ring;
	if (!kind_info[op->kind].consumes)
		return;
	p->big_write = false;
	p->recv++;
	p->since_recv = p->ring_since_recv = 0;
}

/* What a fault can be seen in. */
static enum kind fault_kind(struct plan *p, enum fault f)
{
	static const enum kind remote[] = { OP_WRITE, OP_WRITE_IMM, OP_READ, OP_FAA, OP_CAS };
	static const enum kind local[] = { OP_SEND, OP_SEND_IMM, OP_WRITE, OP_READ };
	static const enum kind consuming[] = { OP_SEND, OP_SEND_IMM, OP_WRITE_IMM };
	enum kind k;

	do {
		switch (f) {
		case F_ALIGN:
			return OP_FAA;
		case F_LKEY:
		case F_LBEYOND:
		case F_LPD:
		case F_LONG:
			k = local[rng_below(&p->r, p->c->ud ? 2 : p->c->uc ? 3 : 4)];
			break;
		case F_SMALL:
		case F_RLKEY:
			k = consuming[rng_below(&p->r, 2)];
			break;
		case F_RNR:
			k = consuming[rng_below(&p->r, 3)];
			break;
		default:
			k = remote[rng_below(&p->r, 5)];
		}
	} while (p->o->skip_kinds & 1u << k);
	return k;
}

static void draw_fault(struct plan *p, struct op *op)
{
	uint32_t limit = p->o->small;

	op->fault = p->c->fault;
	op->kind = fault_kind(p, op->fault);
	if (op->kind == OP_SEND || op->kind == OP_SEND_IMM)
		limit = len_limit(p, op->kind) < limit ? len_limit(p, op->kind) : limit;
	op->len = kind_info[op->kind].atomic ? 8 : 1 + (uint32_t)rng_log(&p->r, limit - 1);
	if (op->fault == F_LONG)
		op->len = MTU_MAX + 1 + (uint32_t)rng_below(&p->r, MTU_MAX);
	if (op->fault == F_SMALL && p->c->s[!p->dir].srq >= 0)
		op->len = p->o->srq_buf + 1;
}

void plan_next(struct plan *p, struct op *op)
{
	memset(op, 0, sizeof(*op));
	op->seq = p->seq++;
	op->recv = p->recv;
	op->key = key_of(p->o->seed ^ 0x55, (uint64_t)p->c->link << 32 | p->c->gen,
			 (uint64_t)p->dir, op->seq);
	op->kind = draw_kind(p);
	if (receive_is_due(p))
		op->kind = rng_chance(&p->r, 50) ? OP_SEND : OP_SEND_IMM;
	op->len = draw_len(p);
	if (op->len > len_limit(p, op->kind))
		op->len = len_limit(p, op->kind);
	if (p->c->ud && op->kind == OP_SEND && op->len < UD_TELLS)
		op->len = UD_TELLS;
	if (op->kind == OP_CELL_READ && !p->cell_key)
		op->kind = OP_CELL_WRITE, op->len &= CELL - 1;
	if (kind_info[op->kind].atomic || op->kind == OP_ATOMIC_WRITE)
		op->len = 8;
	if (p->c->ending == END_FAULT && p->dir == p->c->end_side && op->seq == p->c->end_at)
		draw_fault(p, op);
	/* A second large one would wait for the token of the first, and nobody look at
	 * that before something behind it takes a receive. */
	if (p->big_write && op->len > p->o->small)
		op->len = p->o->small;
	op->big = op->len > p->o->small;
	op->imm = (uint32_t)rng_next(&p->r);
	place(p, op);
	draw_flags(p, op);
	count(p, op);
}

void plan_final(const struct plan *p, uint32_t seq, uint32_t recv, struct op *op)
{
	memset(op, 0, sizeof(*op));
	op->seq = seq;
	op->recv = recv;
	op->kind = OP_FINAL;
	op->flags = IBV_SEND_SIGNALED;
	op->key = key_of(p->o->seed ^ 0xf1, (uint64_t)p->c->link << 32 | p->c->gen,
			 (uint64_t)p->dir, op->seq);
	op->imm = (uint32_t)op->key;
}

void plan_split(uint64_t key, uint32_t len, unsigned n, uint32_t *out)
{
	struct rng r = { key ^ 0x5917 };

	for (unsigned i = 0; i < n; i++) {
		out[i] = i + 1 == n ? len : (uint32_t)rng_below(&r, (uint64_t)len + 1);
		len -= out[i];
	}
}
