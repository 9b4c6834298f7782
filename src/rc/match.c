/* SPDX-License-Identifier: BSD-2-Clause */
/* Design notes. A stream and a QP are joined under (local QPN, remote QPN, remote GID), in
 * either order: a QP that enters RTR looks for a stream that is unclaimed and becomes a
 * waiter if there is none; a stream that is started looks for a waiter and stays unclaimed
 * if there is none.
 *
 * Of two QPs that the application connects by GID and number, the one with the smaller
 * (GID, QPN) asks: a carrier makes an attempt for it, the carriers in turn until one finds
 * the peer. The other QP waits for an arrival. The CM's streams win: a QP whose peer's
 * connection request is known to the CM (match_expect) asks nobody.
 *
 * Work that waits for its stream has a time in which the peer must come. Whether it runs is
 * found out by a question, which both sides put after ASK_TICKS: a peer whose process is
 * there and does not answer is stopped, and is waited for; one whose process is not there
 * any more is not. */
#include "rc/match.h"

#include "base/conf.h"
#include "base/log.h"
#include "base/state.h"
#include "dev/share.h"
#include "rc/requester.h"
#include "rc/stream.h"
#include "rc/uc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 1024, ASK_TICKS = 2 };

/* A QP without its stream. */
struct waiter {
	struct list link; /* match.waiters[] while waiting */
	struct stream_key key;
	uint64_t serial;
	struct dev_qp *qp;
	struct rc_attempt *attempt; /* if it is this side that asks; or NULL */
	struct rc_question *question; /* or NULL */
	struct loop_timer timer; /* runs from the first work posted */
	bool has_work;
	/* Of RC_TICK_MS: in so many the peer could have come, and after so many it has not
	 * come in time; ... if its process has ended, or says that there is no such QP. */
	uint64_t ticks, patience, patience_gone, patience_no_qp;
	int refs; /* the table's, the timer's; match.lock */
};

struct expected {
	struct list link;
	union ibv_gid gid;
	uint32_t qpn;
	unsigned count;
};

static struct {
	struct lock lock;
	struct list unclaimed[BUCKETS], waiters[BUCKETS], expected[BUCKETS];
	uint64_t serial; /* of the last one that waits */
	bool ready;
} match PROCESS_STATE = { .lock = LOCK_INIT };

NO_TSA void match_lock(void)
{
	lock_get(&match.lock);
	if (match.ready)
		return;
	for (int i = 0; i < BUCKETS; i++) {
		list_init(&match.unclaimed[i]);
		list_init(&match.waiters[i]);
		list_init(&match.expected[i]);
	}
	match.ready = true;
}

NO_TSA void match_unlock(void)
{
	lock_put(&match.lock);
}

static unsigned bucket(uint32_t remote_qpn)
{
	return (remote_qpn * 2654435761u) >> 22;
}

static bool same(const struct stream_key *a, const struct stream_key *b)
{
	return a->local_qpn == b->local_qpn && a->remote_qpn == b->remote_qpn &&
	       a->unreliable == b->unreliable &&
	       !memcmp(&a->remote_gid, &b->remote_gid, sizeof(a->remote_gid));
}

static struct stream_key key_of(const struct stream *s)
{
	return (struct stream_key){ s->p.local_qpn, s->p.remote_qpn, s->p.remote_gid,
				    s->p.unreliable };
}

static struct waiter *waiter_find(const struct stream_key *k)
{
	struct waiter *w;

	list_for_each(w, &match.waiters[bucket(k->remote_qpn)], link)
		if (same(&w->key, k))
			return w;
	return NULL;
}

static struct waiter *waiter_of(struct dev_qp *qp)
{
	struct waiter *w;
	uint32_t qpn;

	lock_get(&qp->lock); /* another thread may be on the way to RTR */
	qpn = qp->attr.dest_qp_num;
	lock_put(&qp->lock);
	list_for_each(w, &match.waiters[bucket(qpn)], link)
		if (w->qp == qp)
			return w;
	return NULL;
}

static struct expected *expected_find(const union ibv_gid *gid, uint32_t qpn)
{
	struct expected *e;

	list_for_each(e, &match.expected[bucket(qpn)], link)
		if (e->qpn == qpn && !memcmp(&e->gid, gid, sizeof(*gid)))
			return e;
	return NULL;
}

static struct stream *unclaimed_find(const struct stream_key *k)
{
	struct stream *s;

	list_for_each(s, &match.unclaimed[bucket(k->remote_qpn)], unclaimed) {
		struct stream_key key = key_of(s);

		if (same(k, &key))
			return s;
	}
	return NULL;
}

bool match_waiting_locked(const struct stream_key *key)
{
	return waiter_find(key) && !expected_find(&key->remote_gid, key->remote_qpn);
}

uint64_t match_serial_locked(const struct stream_key *key)
{
	return match_waiting_locked(key) ? waiter_find(key)->serial : 0;
}

void match_expect(const union ibv_gid *gid, uint32_t qpn)
{
	struct expected *e;

	match_lock();
	e = expected_find(gid, qpn);
	if (e) {
		e->count++;
	} else if ((e = calloc(1, sizeof(*e)))) {
		*e = (struct expected){ .gid = *gid, .qpn = qpn, .count = 1 };
		list_add_tail(&match.expected[bucket(qpn)], &e->link);
	}
	match_unlock();
}

void match_unexpect(const union ibv_gid *gid, uint32_t qpn)
{
	struct expected *e;

	match_lock();
	e = expected_find(gid, qpn);
	if (e && !--e->count) {
		list_del(&e->link);
		free(e);
	}
	match_unlock();
}

static void waiter_put(struct waiter *w)
{
	if (!--w->refs)
		free(w);
}

/* It has its stream, or goes away. */
static void waiter_end(struct waiter *w)
{
	list_del(&w->link);
	w->qp = NULL;
	if (w->attempt)
		w->attempt->via->cancel(w->attempt);
	w->attempt = NULL;
	if (w->question)
		w->question->via->forget(w->question);
	w->question = NULL;
	if (loop_timer_stop(&w->timer))
		w->refs--;
	waiter_put(w);
}

static struct waiter *waiter_by(const struct rc_attempt *a)
{
	struct waiter *w;

	for (int i = 0; i < BUCKETS; i++)
		list_for_each(w, &match.waiters[i], link)
			if (w->attempt == a)
				return w;
	return NULL;
}

void match_found_locked(struct rc_attempt *a)
{
	struct waiter *w = waiter_by(a);

	if (w)
		w->attempt = NULL;
}

/* The next carrier behind `via`, in a circle, that reaches the peer; or NULL. *wrapped: all
 * behind it have been tried before. */
static const struct rc_rendezvous *next_way(const struct waiter *w,
					    const struct rc_rendezvous *via, bool *wrapped)
{
	const struct rc_rendezvous *const *r = rc_rendezvous;

	while (*r != via)
		r++;
	*wrapped = false;
	for (;;) {
		if (!*++r) {
			r = rc_rendezvous;
			*wrapped = true;
		}
		if (*r == via)
			return NULL;
		if ((*r)->reaches(w->qp, &w->key))
			return *r;
	}
}

bool match_failed_locked(struct rc_attempt *a, int err)
{
	struct waiter *w = waiter_by(a);
	const struct rc_rendezvous *next;
	bool wrapped;

	if (!w)
		return false;
	next = next_way(w, a->via, &wrapped);
	if (!next)
		return false;
	log_info("QP %06x: QP %06x is not reached by %s (%s); next by %s", w->key.local_qpn,
		 w->key.remote_qpn, a->via->name, strerror(-err), next->name);
	a->via->cancel(a);
	w->attempt = next->connect(w->qp, &w->key, w->serial, wrapped);
	return true;
}

static void fail_oldest(struct dev_qp *qp, enum ibv_wc_status status, const char *why)
{
	uint32_t idx;

	lock_get(&qp->lock);
	idx = qp->sq.done;
	lock_put(&qp->lock);
	qp_fail_send(qp, idx, status, why);
}

/* The CM does not bring the stream: the QP's process can be asked, and found. */
static bool by_number(const struct dev_qp *qp, const struct stream_key *key)
{
	return !qp->made_by_cm && !expected_find(&key->remote_gid, key->remote_qpn);
}

/* If there is no memory for it, the next tick tries again. */
static void waiter_ask(struct waiter *w)
{
	const struct rc_rendezvous *const *r = rc_rendezvous;

	while (*r && !(*r)->ask)
		r++;
	if (*r && !w->key.unreliable && by_number(w->qp, &w->key))
		w->question = (*r)->ask(w->qp, &w->key);
}

/* One more tick without the peer. Why the work has waited long enough; NULL: it has not. */
static const char *waiter_over(struct waiter *w)
{
	enum rc_peer peer;

	if (!w->question && w->ticks >= ASK_TICKS)
		waiter_ask(w);
	peer = w->question ? w->question->peer : RC_PEER_UNKNOWN;
	if (peer != RC_PEER_SILENT || conf_get()->strict_timeout)
		w->ticks++;
	if (peer == RC_PEER_GONE && w->ticks >= w->patience_gone)
		return "the process of the peer's QP has ended";
	if (peer == RC_PEER_NO_QP && w->ticks >= w->patience_no_qp)
		return "the peer's QP is gone or in the error state";
	return w->ticks < w->patience ? NULL : "no connection to the peer's QP could be made";
}

static void waiter_tick(struct loop_timer *t)
{
	struct waiter *w = container_of(t, struct waiter, timer);
	const char *why = NULL;

	match_lock();
	if (w->qp)
		why = waiter_over(w);
	if (why && w->key.unreliable)
		uc_vanish(w->qp);
	else if (why)
		fail_oldest(w->qp, IBV_WC_RETRY_EXC_ERR, why);
	if (w->qp && !why)
		loop_timer_set(&w->timer, loop_now() + RC_TICK_MS * MSEC);
	else
		waiter_put(w);
	match_unlock();
}

static void waiter_patience(struct waiter *w, uint64_t budget)
{
	const uint64_t tick = RC_TICK_MS * MSEC;
	uint64_t lost = req_lost_budget(budget, false);

	/* A QP in the error state may be reset and come: two seconds, too. */
	w->patience_no_qp = (lost < 2 * SEC ? 2 * SEC : lost) / tick;
	w->patience_gone = req_lost_budget(budget, true) / tick;
	w->patience = (budget < 2 * SEC ? 2 * SEC : budget) / tick;
	if (w->key.unreliable)
		w->patience = UC_TICKS;
}

/* Work waits for its stream. */
static void waiter_work(struct waiter *w)
{
	uint64_t budget;

	lock_get(&w->qp->lock); /* another thread may be on the way to RTS */
	budget = req_budget(w->qp);
	lock_put(&w->qp->lock);
	if (w->key.unreliable && w->has_work && w->ticks >= w->patience)
		uc_vanish(w->qp);
	if (w->has_work)
		return;
	w->has_work = true;
	waiter_patience(w, budget);
	w->refs++;
	loop_timer_set(&w->timer, loop_now() + RC_TICK_MS * MSEC);
}

void match_kick(struct dev_qp *qp)
{
	enum ibv_wc_status status = IBV_WC_SUCCESS;
	struct waiter *w;
	uint32_t next;
	bool work;

	lock_get(&qp->lock);
	if (!qp->tr_priv)
		status = sq_run_local_locked(qp, false);
	next = qp->sq.next;
	work = next != qp->sq.tail;
	lock_put(&qp->lock);
	if (status)
		qp_fail_send(qp, next, status, "bind or local invalidate without a peer");
	if (!work || status)
		return; /* the QP has just entered RTS, or needs no peer */
	match_lock();
	w = waiter_of(qp);
	if (w)
		waiter_work(w);
	match_unlock();
}

/* The side with the smaller (GID, QPN) connects. */
static bool we_connect(const struct dev_qp *qp, const struct stream_key *k)
{
	int c = memcmp(&qp->local_gid, &k->remote_gid, sizeof(k->remote_gid));

	return c < 0 || (!c && k->local_qpn < k->remote_qpn);
}

/* Asks for a stream by itself: not when the CM brings one. */
static bool asks(const struct dev_qp *qp, const struct stream_key *key)
{
	return by_number(qp, key) && we_connect(qp, key);
}

static int ask(struct waiter *w)
{
	for (const struct rc_rendezvous *const *r = rc_rendezvous; *r; r++)
		if ((*r)->reaches(w->qp, &w->key)) {
			w->attempt = (*r)->connect(w->qp, &w->key, w->serial, false);
			return w->attempt ? 0 : -ENOMEM;
		}
	return 0; /* nobody will come: its work fails in time */
}

/* A peer that has asked already. */
static struct rc_arrival *arrival_find(const struct dev_qp *qp, const struct stream_key *key)
{
	struct rc_arrival *in = NULL;

	for (const struct rc_rendezvous *const *r = rc_rendezvous; *r && !in; r++)
		in = (*r)->find(qp, key);
	return in;
}

static int wait_for_stream(struct dev_qp *qp, const struct stream_key *key)
{
	struct waiter *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	w->key = *key;
	w->serial = ++match.serial;
	w->qp = qp;
	w->refs = 1;
	w->timer.fire = waiter_tick;
	list_add_tail(&match.waiters[bucket(key->remote_qpn)], &w->link);
	if (asks(qp, key) && ask(w)) {
		waiter_end(w);
		return -ENOMEM;
	}
	return 0;
}

int match_attach(struct dev_qp *qp)
{
	struct stream_key key = {
		.local_qpn = qp->qp.qp_num,
		.remote_qpn = qp->attr.dest_qp_num,
		.remote_gid = qp->remote_gid,
		.unreliable = qp->qp.qp_type == IBV_QPT_UC,
	};
	struct rc_arrival *in = NULL;
	struct stream *s;
	int ret;

	match_lock();
	s = unclaimed_find(&key);
	if (s) {
		stream_get(s);
		ret = stream_attach(s, qp);
		if (!ret)
			list_del(&s->unclaimed);
	} else {
		ret = wait_for_stream(qp, &key);
		/* What the CM expects of a QP is never that QP itself. */
		if (!ret && (match_waiting_locked(&key) || stream_key_is_self(&key, qp)))
			in = arrival_find(qp, &key);
	}
	match_unlock();
	if (s) {
		stream_kick(s);
		stream_put(s);
	}
	if (in)
		ret = in->via->accept(in);
	if (in && ret)
		match_detach(qp);
	return ret;
}

/* Waits for those who are in our memory, and for our own copies: not under match.lock,
 * which the thread needs. */
static void accesses_end(struct dev_qp *qp)
{
	struct stream *s;

	lock_get(&qp->lock);
	s = qp->tr_priv;
	if (s)
		stream_get(s);
	share_qp_unbind_locked(qp);
	lock_put(&qp->lock);
	if (!s)
		return;
	share_qp_wait(s->share_id);
	stream_quiesce(s);
	stream_put(s);
}

void match_detach(struct dev_qp *qp)
{
	struct stream *s;
	struct waiter *w;

	accesses_end(qp);
	match_lock();
	w = waiter_of(qp);
	if (w)
		waiter_end(w);
	s = qp->tr_priv;
	if (s) {
		stream_get(s);
		stream_detach(s, qp);
	}
	match_unlock();
	if (!s)
		return;
	stream_detached(s);
	stream_put(s);
}

static void attach_locked(struct stream *s, struct waiter *w)
{
	struct dev_qp *qp = w->qp;

	waiter_end(w);
	if (stream_attach(s, qp))
		fail_oldest(qp, IBV_WC_LOC_QP_OP_ERR,
			    "no descriptor for polling the connection");
}

void match_offer(struct stream *s)
{
	struct stream_key key = key_of(s);
	struct waiter *w;

	match_lock();
	w = waiter_find(&key);
	if (s->serial) {
		/* Made for a QP that waited; what may wait there now is another wait,
		 * for which the peer's end was not made. */
		if (w && w->serial == s->serial)
			attach_locked(s, w);
	} else if (w) {
		attach_locked(s, w);
	} else {
		list_add_tail(&match.unclaimed[bucket(s->p.remote_qpn)], &s->unclaimed);
	}
	match_unlock();
}

void match_withdraw(struct stream *s)
{
	match_lock();
	list_del(&s->unclaimed);
	match_unlock();
}
