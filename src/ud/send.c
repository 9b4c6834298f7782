/* SPDX-License-Identifier: BSD-2-Clause */
/* Sending: WQEs are taken in order, a batch at a time, and given to what carries them.
 *
 * A batch is used without qp->lock, between qp_copy_begin_locked() and its end: if the QP
 * fails meanwhile its work requests, with their address vectors and keys, are flushed when
 * the batch has left. */
#include "base/log.h"
#include "base/scratch.h"
#include "dev/complete.h"
#include "dev/gid.h"
#include "dev/sge.h"
#include "ud/tap.h"
#include "ud/ud.h"

#include <errno.h>
#include <string.h>

enum {
	BATCH = 16,
	TURN = 64, /* batches that one ud_run() sends: 1024 datagrams */
};

/* WQEs from `first` on that go to one peer of one carrier. */
struct batch {
	uint32_t first;
	unsigned n;
	struct ud_path *path;
	/* The WQE behind them cannot be sent: SUCCESS if there is none. */
	enum ibv_wc_status status;
	const char *why;
	struct ud_out out[BATCH];
	struct mr_slot *refs[BATCH][DEV_MAX_SGE];
	int maps[BATCH];
};
SCRATCH(batches, struct batch);

void ud_head_fill(struct ud_qp *u, const struct wqe *w, struct ud_head *h)
{
	const struct ibv_ah_attr *a = &w->av->attr;

	lock_assert_held(&u->tx_lock);
	*h = (struct ud_head){
		.kind = UD_DATA,
		.traffic_class = a->grh.traffic_class,
		.hop_limit = a->grh.hop_limit,
		.sl = a->sl & 15,
		.len = (uint16_t)w->length,
		.flow_label = a->grh.flow_label & 0xfffff,
		.psn = (u->sq_psn + u->psn++) & 0xffffff,
		.src_qpn = u->qpn,
		.dst_qpn = w->av->mcast ? UD_MCAST_QPN : w->remote_qpn,
		.qkey = w->remote_qkey,
		.sgid = w->av->sgid,
		.dgid = a->grh.dgid,
	};
	if (w->send_flags & IBV_SEND_SOLICITED)
		h->flags |= UD_SOLICITED;
	if (w->av->local)
		h->flags |= UD_NO_GRH;
	if (w->opcode == IBV_WR_SEND_WITH_IMM) {
		h->flags |= UD_IMM;
		h->imm = w->imm_or_rkey;
	}
}

static enum ibv_wc_status refuse(struct batch *b, enum ibv_wc_status status, const char *why)
{
	b->status = status;
	b->why = why;
	return status;
}

/* What InfiniBand 10.2.2.2, 11.6.2 and 10.6.2 ask of the WQE. */
static enum ibv_wc_status check(struct batch *b, const struct dev_qp *qp, const struct wqe *w,
				uint32_t mtu)
{
	if (!av_serves(w->av, qp))
		return refuse(b, IBV_WC_LOC_QP_OP_ERR,
			      "the address handle is of another PD");
	if (w->length > mtu)
		return refuse(b, IBV_WC_LOC_LEN_ERR,
			      "a datagram is longer than the port's active MTU");
	return IBV_WC_SUCCESS;
}

/* Adds the WQE to the batch. Not SUCCESS: it cannot be sent. */
static enum ibv_wc_status add(struct ud_qp *u, struct batch *b, struct wqe *w)
{
	struct ud_out *o = &b->out[b->n];
	struct sge_mem mem = { o->iov + 1, b->refs[b->n], DEV_MAX_SGE };
	struct sge_list list = wqe_sge_list(u->qp, w, MR_LOCAL_READ);
	int maps = 0;

	lock_assert_held(&u->tx_lock);
	o->first = 1;
	o->n = w->length ? 1 : 0;
	if (w->is_inline) {
		o->iov[1] = (struct iovec){ wqe_inline(w), w->length };
	} else {
		maps = sge_map(&list, 0, w->length, &mem);
		if (maps < 0)
			return refuse(b, IBV_WC_LOC_PROT_ERR,
				      "a key, address or length of the datagram is wrong");
		o->n = (unsigned)maps;
	}
	o->av = w->av;
	ud_head_fill(u, w, &o->head);
	b->maps[b->n++] = maps;
	return IBV_WC_SUCCESS;
}

/* The WQE goes where the batch goes. */
static bool same_way(const struct ud_path *a, const struct ud_path *b)
{
	return a == b || (a->by == b->by && a->peer == b->peer);
}

static void mark_send(struct ud_qp *u, const struct wqe *w);

/* Takes WQEs into the batch; max: so many may be sent. */
static void collect(struct ud_qp *u, struct batch *b, unsigned max)
{
	uint32_t mtu = 128u << gid_active_mtu(u->qp->device);

	lock_assert_held(&u->tx_lock);
	while (b->n < max) {
		struct wqe *w = sq_at(&u->qp->sq, b->first + b->n);
		struct ud_path *p;
		enum ud_ready ready;

		if (check(b, u->qp, w, mtu))
			return;
		p = ud_path_get(u, w->av, w->remote_qpn);
		ready = ud_path_ready(u, p, w->remote_qpn);
		if (ready != UD_READY) {
			if (ready == UD_MARK_DUE && !b->n)
				mark_send(u, w);
			return;
		}
		if (b->n && !same_way(p, b->path))
			return;
		b->path = p;
		if (add(u, b, w))
			return;
	}
}

/* ---- marks -------------------------------------------------------------------- */

void ud_answer_run(struct loop_work *w)
{
	struct ud_qp *u = container_of(w, struct ud_qp, answer);

	ud_run(u, UD_TODO_ANSWER | UD_TODO_SEND);
	ud_put(u);
}

void ud_timer_fire(struct loop_timer *t)
{
	struct ud_qp *u = container_of(t, struct ud_qp, timer);

	ud_run(u, UD_TODO_TIMER);
	ud_put(u);
}

/* Sends a mark behind everything that went by the old carrier. A carrier that does not take
 * it, or loses it, is asked again by the timer. */
static void mark_send(struct ud_qp *u, const struct wqe *w)
{
	struct ud_hold *h = &u->hold;
	struct ud_out o = { .first = 1, .av = w->av };

	lock_assert_held(&u->tx_lock);
	ud_head_fill(u, w, &o.head);
	o.head.kind = UD_MARK;
	o.head.flags = 0;
	o.head.len = 0;
	o.head.token = h->token;
	h->tries++;
	h->due = false;
	ud_carriers[h->path->by]->send(u, h->path->peer, &o, 1);
	if (ud_carriers[h->path->by]->flush)
		ud_carriers[h->path->by]->flush(u);
	ud_get(u);
	if (!loop_timer_set(&u->timer, loop_now() + UD_MARK_MS * MSEC))
		ud_put(u);
}

/* Answers marks. They go by the last carrier, as it reaches everybody. */
static void answers_send(struct ud_qp *u)
{
	const struct ud_carrier *c = ud_carriers[ud_last_carrier()];
	struct ud_head in[UD_ANSWERS];
	unsigned n;

	lock_assert_held(&u->tx_lock);
	lock_get(&u->answers_lock);
	n = u->nanswers;
	u->nanswers = 0;
	memcpy(in, u->answers, n * sizeof(in[0]));
	lock_put(&u->answers_lock);
	for (unsigned i = 0; i < n; i++) {
		struct ud_out o = { .first = 1 };
		void *peer = NULL;

		o.head = (struct ud_head){ .kind = UD_MARKED,
					   .hop_limit = 64,
					   .src_qpn = u->qpn,
					   .dst_qpn = in[i].src_qpn,
					   .token = in[i].token,
					   .sgid = in[i].dgid,
					   .dgid = in[i].sgid };
		if (c->reaches(u, &o.head.dgid, o.head.dst_qpn, &peer) != 1)
			continue;
		c->send(u, peer, &o, 1);
		if (peer)
			c->drop(peer);
	}
	if (n && c->flush)
		c->flush(u);
}

/* ---- giving away ----------------------------------------------------------------- */

/* To QPs of this process. As a carrier's send(). */
static int send_local(struct ud_qp *u, struct batch *b)
{
	lock_assert_held(&u->tx_lock);
	for (unsigned i = 0; i < b->n; i++) {
		struct ud_out *o = &b->out[i];

		if (take_iov(u->bounce, &o->iov[o->first], (int)o->n))
			return i ? (int)i : -EFAULT;
		ud_deliver(&o->head, u->bounce, NULL);
	}
	return (int)b->n;
}

/* As many as are taken; *again: the rest is to be offered at once. */
static unsigned give(struct ud_qp *u, struct batch *b, bool *again)
{
	const struct ud_path *p = b->path;
	int by = p == &u->group ? ud_last_carrier() : p->by, ret;
	const struct ud_carrier *c = by >= 0 ? ud_carriers[by] : NULL;

	lock_assert_held(&u->tx_lock);
	for (unsigned i = 0; i < b->n; i++)
		ud_tap_out(&b->out[i].head, c ? c->name : "local");
	ret = c		      ? c->send(u, p->peer, b->out, b->n) :
	      by == UD_BY_LOCAL ? send_local(u, b) :
				-ENETUNREACH;
	*again = true;
	if (ret == -EFAULT) {
		refuse(b, IBV_WC_LOC_PROT_ERR, "the application has unmapped a datagram");
		b->n = 0;
		return 0;
	}
	if (ret == -EPIPE && by != ud_last_carrier()) {
		ud_path_lost(u, b->path);
		return 0;
	}
	if (ret < 0)
		ud_count(UD_LOST_SEND);
	else if (!ret)
		u->blocked = true;
	for (int i = 0; i < ret; i++) {
		ud_count(UD_SENT);
		traffic_count(&u->traffic, TRAFFIC_XMIT, b->out[i].head.len, 1);
	}
	*again = ret != 0;
	return ret < 0 ? 1 : (unsigned)ret;
}

/* WQEs that may be sent now, at most BATCH. They are held from here on, if there are any. */
static unsigned begin(struct ud_qp *u, uint32_t *first)
{
	struct dev_qp *qp = u->qp;
	struct dev_sq *sq = &qp->sq;
	unsigned n = 0;

	lock_assert_held(&u->tx_lock);
	lock_get(&qp->lock);
	*first = sq->next;
	u->sq_psn = qp->attr.sq_psn;
	while (n < BATCH && *first + n != sq->tail && qp_may_begin_locked(qp, *first + n))
		n++;
	if (n)
		qp_copy_begin_locked(qp);
	lock_put(&qp->lock);
	return n;
}

/* The first `taken` WQEs have left. In ERR all are flushed: what was carried out behind a
 * failure, too. */
static void end(struct ud_qp *u, uint32_t first, unsigned taken)
{
	struct dev_qp *qp = u->qp;
	struct dev_sq *sq = &qp->sq;

	lock_assert_held(&u->tx_lock);
	lock_get(&qp->lock);
	if (taken && (qp->qp.state == IBV_QPS_RTS || qp->qp.state == IBV_QPS_SQD)) {
		for (unsigned i = 0; i < taken; i++)
			sq_at(sq, first + i)->finished = 1;
		sq->next = first + taken;
		sq_retire_locked(qp);
	}
	qp_copy_end_locked(qp);
	lock_put(&qp->lock);
}

/* Sends a batch. False: there is no more, or not now. */
static bool batch_fill_and_send(struct ud_qp *u, struct batch *b, uint32_t first,
				unsigned max)
{
	unsigned taken = 0, n;
	bool again = false;

	lock_assert_held(&u->tx_lock);
	b->first = first;
	b->n = 0;
	b->status = IBV_WC_SUCCESS;
	b->path = NULL;
	collect(u, b, max);
	n = b->n;
	if (n)
		taken = give(u, b, &again);
	for (unsigned i = 0; i < n; i++)
		sge_unmap(b->refs[i], b->maps[i]);
	end(u, first, taken);
	if (b->status && taken == b->n) {
		qp_fail_send(u->qp, first + taken, b->status, b->why);
		return false;
	}
	return n ? again : false;
}

static bool batch_send(struct ud_qp *u)
{
	struct batch *b;
	uint32_t first;
	unsigned max;
	bool again;

	lock_assert_held(&u->tx_lock);
	max = begin(u, &first);
	if (!max)
		return false;
	b = scratch_get(&batches);
	again = batch_fill_and_send(u, b, first, max);
	scratch_put(&batches, b);
	return again;
}

static void flush(struct ud_qp *u)
{
	for (int i = 0; ud_carriers[i]; i++)
		if (ud_carriers[i]->flush && *ud_priv(u, ud_carriers[i]))
			ud_carriers[i]->flush(u);
}

/* *turn: batches that may still be sent. */
static void run_locked(struct ud_qp *u, unsigned why, unsigned *turn)
{
	lock_assert_held(&u->tx_lock);
	--*turn;
	if (u->gone)
		return;
	if (why & UD_TODO_UNBLOCK)
		u->blocked = false;
	if (why & UD_TODO_TIMER)
		u->hold.due = u->hold.path != NULL;
	if (why & UD_TODO_ANSWER)
		answers_send(u);
	while (*turn && !u->blocked && batch_send(u))
		--*turn;
	flush(u);
}

/* Others may post as fast as this thread sends: after its turn the loop thread goes on, a
 * turn at a time. */
void ud_run(struct ud_qp *u, unsigned why)
{
	unsigned turn = TURN;

	atomic_fetch_or(&u->todo, why);
	while (turn && atomic_load(&u->todo) && lock_try(&u->tx_lock)) {
		run_locked(u, atomic_exchange(&u->todo, 0), &turn);
		lock_put(&u->tx_lock);
	}
	if (turn)
		return;
	ud_get(u);
	if (!loop_post(&u->more))
		ud_put(u);
}

void ud_more_run(struct loop_work *w)
{
	struct ud_qp *u = container_of(w, struct ud_qp, more);

	ud_run(u, UD_TODO_SEND);
	ud_put(u);
}

void ud_unblocked(struct ud_qp *u)
{
	ud_run(u, UD_TODO_UNBLOCK);
}
