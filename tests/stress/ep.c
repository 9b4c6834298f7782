/* SPDX-License-Identifier: BSD-2-Clause */
/* The life of an endpoint: one generation after the other.
 *
 *	IDLE -> CONNECT -> RUN -> DRAIN -> QUIET -> IDLE
 *
 * A generation that ends in peace may go from RUN to QUIET at once (the QP is
 * destroyed or reset with receives posted), and so does one whose QP is destroyed
 * in the middle of everything. The peer hears of a side's steps by phases
 * (shared.h). */
#include "stress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REACT_MS = 60 }; /* until a side does something about its peer's trouble */

const char *ep_state_str(enum ep_state s)
{
	static const char *const names[] = { "IDLE", "CONNECT", "RUN", "DRAIN", "QUIET" };

	return names[s];
}

struct sh_end *end_mine(const struct ep *e)
{
	return &sh->side[e->side->id].end[e->link];
}

struct sh_end *end_peer(const struct ep *e)
{
	return &sh->side[!e->side->id].end[e->link];
}

int peer_phase(const struct ep *e)
{
	uint64_t p = atomic_load(&end_peer(e)->phase);

	return p >> 8 == e->gen ? (int)(p & 0xff) : -1;
}

/* Or takes us for dead: it began the generation with a process before this one. */
bool peer_died(const struct ep *e)
{
	const struct sh_side *s = &sh->side[!e->side->id];

	return atomic_load(&s->down) || atomic_load(&s->life) != e->peer_life ||
	       (peer_phase(e) >= 0 && end_peer(e)->with != e->side->life);
}

bool ep_trouble(struct ep *e)
{
	return atomic_load(&e->closing) || atomic_load(&end_mine(e)->trouble) || peer_died(e) ||
	       (peer_phase(e) >= 0 && atomic_load(&end_peer(e)->trouble));
}

void ep_moved(struct ep *e)
{
	atomic_store(&e->stamp, now_ms());
}

static void gone_set(struct ep *e, uint64_t at)
{
	atomic_store(&e->gone[e->gen % GONE], at << 16 | (e->gen & 0xffff));
}

/* The poller may have slept through more than one generation. */
void ep_late(struct ep *e, uint32_t gen, uint64_t began, const char *what)
{
	uint64_t gone = atomic_load(&e->gone[gen % GONE]);

	if (gen != (gone & 0xffff))
		fail(e, "a %s completion of generation %u, which is not gone", what, gen);
	if (began >= gone >> 16)
		fail(e, "a %s completion of generation %u was polled after the end of its QP",
		     what, gen);
}

void ep_init(struct ep *e, struct side *s, unsigned link)
{
	size_t one = 3 * (size_t)sh->o.arena + 2 * CELL;
	uint8_t *mem = s->ep_mem + link * one;

	e->side = s;
	e->link = link;
	e->r.s = key_of(sh->o.seed, link, (uint64_t)s->id, 4711);
	e->tx = (struct arena){ .p = mem, .size = sh->o.arena, .key = s->ep_mr->lkey };
	e->rx = (struct arena){ .p = mem + sh->o.arena, .size = sh->o.arena,
				.key = s->ep_mr->lkey };
	e->win = mem + 2 * (size_t)sh->o.arena;
	MUST(e->rq.ahead = calloc(RQ_AHEAD, sizeof(struct op)));
	pthread_mutex_init(&e->life, NULL);
	pthread_mutex_init(&e->sq.lock, NULL);
	pthread_mutex_init(&e->rq.lock, NULL);
	pthread_mutex_init(&e->mail_lock, NULL);
	ep_moved(e);
}

static void phase_set(struct ep *e, enum phase p)
{
	static const char *const names[] = { "NEW", "READY", "RUN", "DONE", "QUIET", "DOWN" };

	trace(&e->trace, "generation %u: phase %s", e->gen, names[p]);
	atomic_store(&end_mine(e)->phase, phase_of(e->gen, p));
	ep_moved(e);
}

static enum phase phase_mine(struct ep *e)
{
	return (enum phase)(atomic_load(&end_mine(e)->phase) & 0xff);
}

static void state_set(struct ep *e, enum ep_state s)
{
	trace(&e->trace, "%s -> %s", ep_state_str(e->state), ep_state_str(s));
	e->state = s;
	ep_moved(e);
}

/* ---- begin --------------------------------------------------------------- */

static void model_begin(struct ep *e, uint32_t gen)
{
	pthread_mutex_lock(&e->sq.lock);
	pthread_mutex_lock(&e->rq.lock);
	pthread_mutex_lock(&e->mail_lock);
	e->gen = gen;
	cfg_draw(&e->c, &sh->o, e->link, gen);
	sq_begin(e);
	rq_begin(e);
	e->mail = (struct mail){ .error = -1 };
	pthread_mutex_unlock(&e->mail_lock);
	pthread_mutex_unlock(&e->rq.lock);
	pthread_mutex_unlock(&e->sq.lock);
}

static void ring_open(struct ep *e)
{
	struct sh_end *m = end_mine(e);

	memset(e->win + sh->o.arena, 0, CELL + 64);
	e->win_mr = ibv_reg_mr(e->side->pd, e->win, sh->o.arena + CELL + 64,
			       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
				       (my_cfg(e)->mw ? IBV_ACCESS_MW_BIND : 0));
	MUST(e->win_mr);
	m->win = (uintptr_t)e->win;
	m->win_key = e->win_mr->rkey;
	m->stale_key = e->stale_key;
	m->with = e->peer_life;
	e->stale_key = e->win_mr->rkey;
}

static void begin(struct ep *e, uint32_t gen)
{
	struct sh_end *m = end_mine(e);
	char text[300];

	model_begin(e, gen);
	if (e->qp && !e->c.kept) { /* kept in vain */
		OK(ibv_destroy_qp(e->qp));
		e->qp = NULL;
	}
	atomic_store(&e->used, e->c.kept);
	e->disconnected = e->dirty = e->paused = false;
	e->cm_step = CM_BEGIN;
	e->react_at = e->win_hash = 0;
	atomic_store(&e->closing, false);
	atomic_store(&e->err_seen, false);
	atomic_store(&e->last_wqe, 0);
	atomic_store(&e->heard, 0);
	atomic_store(&m->posted, 0);
	atomic_store(&m->acked, 0);
	atomic_store(&m->last, NOT_YET);
	atomic_store(&m->big, 0);
	atomic_store(&m->recvs, 0);
	atomic_store(&m->received, 0);
	atomic_store(&m->verified, 0);
	atomic_store(&m->trouble, TR_NONE);
	ring_open(e);
	window_open(e);
	cfg_print(text, sizeof(text), &e->c, e->side->id);
	trace(&e->trace, "generation %u: %s", gen, text);
	phase_set(e, PH_NEW);
	state_set(e, EP_CONNECT);
}

/* Side 0 begins a generation when both are down in the one before, side 1 when
 * side 0 has begun it. */
static bool step_idle(struct ep *e)
{
	/* Before all else: of a process that comes and goes meanwhile we hear then. */
	uint32_t life = atomic_load(&sh->side[!e->side->id].life);
	uint64_t p = atomic_load(&end_peer(e)->phase);

	if (atomic_load(&sh->side[!e->side->id].down)) {
		ep_moved(e);
		return false;
	}
	if (e->side->id == 0) {
		if ((p & 0xff) != PH_DOWN || p >> 8 < e->gen)
			return false;
		/* It began one with a process of ours that was killed meanwhile. */
		if (p >> 8 > e->gen)
			e->gen = (uint32_t)(p >> 8);
	}
	/* No QP of the last generation uses the memory of a large message. */
	if ((p & 0xff) == PH_DOWN || p >> 8 > e->gen)
		token_drop(e->link, e->side->id);
	if (e->side->id == 0 ? atomic_load(&sh->stop) != 0 : p >> 8 <= e->gen) {
		ep_moved(e);
		return false;
	}
	e->peer_life = life;
	begin(e, e->side->id == 0 ? e->gen + 1 : (uint32_t)(p >> 8));
	atomic_fetch_add(&sh->gens, 1);
	return true;
}

/* ---- end ----------------------------------------------------------------- */

static void posting(struct ep *e, bool send, bool recv)
{
	pthread_mutex_lock(&e->sq.lock);
	e->sq.open = send;
	e->sq.live |= send;
	pthread_mutex_unlock(&e->sq.lock);
	pthread_mutex_lock(&e->rq.lock);
	e->rq.open = recv;
	e->rq.live |= recv;
	pthread_mutex_unlock(&e->rq.lock);
}

/* The QP is gone, or reset: from here on no completion of it may be polled. */
static void models_end(struct ep *e)
{
	gone_set(e, atomic_fetch_add(&e->side->clock, 1) + 1);
	pthread_mutex_lock(&e->sq.lock);
	e->sq.live = false;
	pthread_mutex_unlock(&e->sq.lock);
	pthread_mutex_lock(&e->rq.lock);
	e->rq.live = false;
	pthread_mutex_unlock(&e->rq.lock);
}

static void qp_close(struct ep *e)
{
	bool keep = e->qp && e->c.keep_qp && !e->c.cm;

	posting(e, false, false);
	gone_set(e, UINT64_MAX);
	atomic_store(&e->used, true);
	if (e->c.cm) {
		cm_destroy(e);
	} else if (keep) {
		OK(qp_set_state(e->qp, IBV_QPS_RESET));
		trace(&e->trace, "reset");
	} else if (e->qp) {
		OK(ibv_destroy_qp(e->qp));
		e->qp = NULL;
		if (e->rqp)
			OK(ibv_destroy_qp(e->rqp));
		e->rqp = NULL;
		trace(&e->trace, "destroyed");
	}
	models_end(e);
	ud_address_free(e);
	if (!keep) {
		atomic_store(&e->qpn, 0);
		atomic_store(&e->rqpn, 0);
	}
	if (e->dirty)
		e->win_hash = pattern_hash(e->tx.p, 3 * (size_t)sh->o.arena);
	phase_set(e, PH_QUIET);
	state_set(e, EP_QUIET);
}

static enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	OK(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	return attr.qp_state;
}

/* Whether a QP goes on that has, rightly, not heard of the error. */
static bool goes_on(struct ep *e, enum ibv_qp_state st)
{
	if (e->rqp) /* XRC: of two QPs the other one has */
		return st == IBV_QPS_RTS && state_of(e->rqp) == IBV_QPS_ERR;
	/* InfiniBand 10.3.1.6: the other queue of an unreliable QP goes on. */
	return e->c.uc && st == IBV_QPS_SQE;
}

static void enter_drain(struct ep *e)
{
	enum ibv_qp_state st;

	if (!e->qp) {
		qp_close(e);
		return;
	}
	posting(e, false, false);
	st = state_of(e->qp);
	if (goes_on(e, st)) {
		atomic_store(&e->closing, true);
		OK(qp_set_state(e->qp, IBV_QPS_ERR));
		st = IBV_QPS_ERR;
	}
	if (st != IBV_QPS_ERR)
		fail(e, "an error was seen, but the QP is in state %d", (int)st);
	if (e->rqp) { /* which hears nothing of that, and takes nothing any more then */
		OK(qp_set_state(e->rqp, IBV_QPS_ERR));
		atomic_store(&e->last_wqe, atomic_fetch_add(&e->side->clock, 1) + 1);
	}
	state_set(e, EP_DRAIN);
}

/* We end it: by the CM or by ourselves. */
static void give_up(struct ep *e, bool disconnect)
{
	atomic_store(&e->closing, true);
	if (disconnect && e->c.cm && e->id && !e->disconnected) {
		int ret = rdma_disconnect(e->id);

		trace(&e->trace, "rdma_disconnect: %d", ret);
		e->disconnected = true;
	}
	if (e->qp)
		OK(qp_set_state(e->qp, IBV_QPS_ERR));
	enter_drain(e);
}

static bool drained(struct ep *e)
{
	const struct cq *q = &e->side->cq[my_cfg(e)->recv_cq];
	uint64_t at = atomic_load(&e->last_wqe);
	bool sq, rq, marker;

	pthread_mutex_lock(&e->sq.lock);
	marker = e->sq.marker;
	sq = e->sq.head == e->sq.tail;
	pthread_mutex_unlock(&e->sq.lock);
	if (!marker) {
		sq_mark(e);
		return false;
	}
	pthread_mutex_lock(&e->rq.lock);
	rq = e->rq.head == e->rq.tail;
	pthread_mutex_unlock(&e->rq.lock);
	if (my_cfg(e)->srq >= 0)
		rq = at && atomic_load(&q->empty_at) >= at;
	return sq && rq;
}

static bool step_drain(struct ep *e)
{
	if (!drained(e))
		return false;
	if (e->c.cm && e->id && !e->disconnected && rng_chance(&e->r, 50)) {
		rdma_disconnect(e->id);
		e->disconnected = true;
	}
	qp_close(e);
	return true;
}

static bool step_quiet(struct ep *e)
{
	bool died = peer_died(e);

	if (!died && peer_phase(e) < PH_QUIET)
		return false;
	if (e->win_hash && !died) {
		const uint8_t *p = e->dirty ? e->tx.p : e->win;
		size_t len = (e->dirty ? 3 : 1) * (size_t)sh->o.arena;

		if (pattern_hash(p, len) != e->win_hash)
			fail(e, "memory has changed after the %s",
			     e->dirty ? "end of the QP" : "deregistration");
	}
	pthread_mutex_lock(&e->rq.lock);
	if (!died)
		rq_verify_end(e);
	pthread_mutex_unlock(&e->rq.lock);
	window_close(e);
	if (e->win_mr)
		OK(ibv_dereg_mr(e->win_mr));
	e->win_mr = NULL;
	phase_set(e, PH_DOWN);
	state_set(e, EP_IDLE);
	return true;
}

/* ---- run ----------------------------------------------------------------- */

static bool patience_is_over(struct ep *e)
{
	if (!e->react_at)
		e->react_at = now_ms() + rng_below(&e->r, REACT_MS);
	return now_ms() >= e->react_at;
}

static void run(struct ep *e)
{
	posting(e, true, true);
	phase_set(e, PH_RUN);
	state_set(e, EP_RUN);
}

static bool step_connect(struct ep *e)
{
	bool gone = peer_died(e) || (peer_phase(e) >= 0 &&
				     atomic_load(&end_peer(e)->trouble) == TR_SEEN);

	if (gone && patience_is_over(e)) {
		if (!e->c.cm && phase_mine(e) == PH_NEW)
			qp_close(e); /* none yet, or one that was kept: in RESET */
		else
			give_up(e, false);
		return true;
	}
	if (e->c.cm) {
		if (phase_mine(e) == PH_NEW)
			phase_set(e, PH_READY);
		if (!cm_step(e))
			return false;
		run(e);
		return true;
	}
	if (phase_mine(e) == PH_NEW) {
		OK(raw_create(e));
		OK(raw_init(e));
		atomic_store(&e->qpn, e->qp->qp_num);
		atomic_store(&e->rqpn, (e->rqp ? e->rqp : e->qp)->qp_num);
		posting(e, false, true);
		rq_run(e, &e->r);
		end_mine(e)->qpn = e->qp->qp_num;
		end_mine(e)->rqpn = atomic_load(&e->rqpn);
		end_mine(e)->psn = my_cfg(e)->psn;
		phase_set(e, PH_READY);
		return true;
	}
	if (peer_phase(e) < PH_READY)
		return false;
	if (raw_connect(e)) {
		/* What came meanwhile may have ended it. */
		if (!ep_trouble(e))
			fail(e, "the QP cannot be connected");
		give_up(e, false);
		return true;
	}
	run(e);
	return true;
}

static void do_kill(struct ep *e)
{
	struct sh_end *m = end_mine(e);

	trace(&e->trace, "kill: %s", kill_name[e->c.kill]);
	atomic_fetch_add(&sh->kills, 1);
	atomic_store(&m->trouble, TR_SOON);
	switch (e->c.kill) {
	case K_RESET:
		e->dirty = true;
		posting(e, false, false);
		gone_set(e, UINT64_MAX);
		OK(qp_set_state(e->qp, IBV_QPS_RESET));
		models_end(e);
		atomic_store(&m->trouble, TR_SEEN);
		qp_close(e);
		return;
	case K_DESTROY:
		e->dirty = true;
		qp_close(e);
		break;
	case K_DEREG:
		OK(ibv_dereg_mr(e->win_mr));
		e->win_mr = NULL;
		e->win_hash = pattern_hash(e->win, sh->o.arena);
		break;
	default:
		give_up(e, e->c.kill == K_DISCONNECT);
	}
	atomic_store(&m->trouble, TR_SEEN);
}

static bool kill_is_due(struct ep *e)
{
	bool due;

	if (e->c.ending != END_KILL || e->c.end_side != e->side->id ||
	    atomic_load(&end_mine(e)->trouble))
		return false;
	pthread_mutex_lock(&e->sq.lock);
	due = e->sq.tail >= e->c.end_at && !e->sq.final;
	pthread_mutex_unlock(&e->sq.lock);
	return due;
}

/* The peer is gone or going, or we have seen to it. */
static bool all_is_lost(struct ep *e)
{
	bool waits_for_fault = e->c.ending == END_FAULT && e->c.end_side == e->side->id;
	bool left;

	pthread_mutex_lock(&e->mail_lock);
	left = e->mail.disconnected;
	pthread_mutex_unlock(&e->mail_lock);
	if (left && !ep_trouble(e) && peer_phase(e) < PH_DONE)
		fail(e, "DISCONNECTED, but the peer has not asked for it");
	if (peer_died(e))
		return true;
	if (waits_for_fault)
		return false;
	return (left && phase_mine(e) < PH_DONE) || atomic_load(&end_mine(e)->trouble) == TR_SEEN ||
	       atomic_load(&end_peer(e)->trouble) == TR_SEEN;
}

static bool in_peace(struct ep *e)
{
	bool sent, got;

	pthread_mutex_lock(&e->sq.lock);
	sent = e->sq.final && !e->sq.have_next && e->sq.head == e->sq.tail;
	pthread_mutex_unlock(&e->sq.lock);
	pthread_mutex_lock(&e->rq.lock);
	got = e->rq.final || (e->c.ud && ud_all_heard(e));
	pthread_mutex_unlock(&e->rq.lock);
	return sent && got;
}

/* To SQD, where what was begun is finished and new work waits, and back. */
static void step_pause(struct ep *e)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };

	if (e->paused && atomic_load(&e->sq_idle)) {
		if (qp_set_state(e->qp, IBV_QPS_RTS) && !ep_trouble(e))
			fail(e, "the QP does not leave SQD");
		e->paused = false;
		trace(&e->trace, "goes on");
		ep_moved(e);
	} else if (!e->paused && rng_chance(&e->r, 3)) {
		atomic_store(&e->sq_idle, false);
		e->paused = true;
		trace(&e->trace, "pauses");
		if (ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY) &&
		    !ep_trouble(e))
			fail(e, "the QP does not enter SQD");
	}
}

static bool step_run(struct ep *e)
{
	if (e->c.pauses && phase_mine(e) < PH_DONE)
		step_pause(e);
	if (kill_is_due(e)) {
		do_kill(e);
		return true;
	}
	if (atomic_load(&e->err_seen)) {
		enter_drain(e);
		return true;
	}
	if (all_is_lost(e) && patience_is_over(e)) {
		give_up(e, rng_chance(&e->r, 50));
		return true;
	}
	if (phase_mine(e) != PH_DONE) {
		if (!in_peace(e))
			return false;
		phase_set(e, PH_DONE);
	}
	if (peer_phase(e) < PH_DONE)
		return false;
	if (e->c.quick || e->c.keep_qp) {
		atomic_store(&e->closing, true);
		qp_close(e);
	} else {
		give_up(e, rng_chance(&e->r, 80));
	}
	return true;
}

bool ep_step(struct ep *e)
{
	bool moved = false;

	if (pthread_mutex_trylock(&e->life))
		return false;
	switch (e->state) {
	case EP_IDLE:
		moved = step_idle(e);
		break;
	case EP_CONNECT:
		moved = step_connect(e);
		break;
	case EP_RUN:
		moved = step_run(e);
		break;
	case EP_DRAIN:
		moved = step_drain(e);
		break;
	case EP_QUIET:
		moved = step_quiet(e);
		break;
	}
	pthread_mutex_unlock(&e->life);
	return moved;
}

bool ep_over(struct ep *e)
{
	bool over;

	pthread_mutex_lock(&e->life);
	over = e->state == EP_IDLE && (e->side->id == 0 ? atomic_load(&sh->stop) != 0 :
						 atomic_load(&sh->over) &&
							 atomic_load(&end_peer(e)->phase) ==
								 phase_of(e->gen, PH_DOWN));
	/* Side 0 stops where side 1 is, too. */
	if (over && e->side->id == 0)
		over = atomic_load(&end_peer(e)->phase) == phase_of(e->gen, PH_DOWN);
	pthread_mutex_unlock(&e->life);
	return over;
}
