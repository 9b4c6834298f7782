/* SPDX-License-Identifier: BSD-2-Clause */
/* Which stream belongs to which QP: the one place that joins them.
 *
 * Design notes. A stream and a QP meet under (local QPN, remote QPN, remote
 * GID), in either order: a QP that enters RTR looks for a parked stream and
 * waits if there is none; a stream that is opened looks for a waiting QP and is
 * parked if there is none. The CM's streams win over rendezvous: a QP whose
 * peer's connection request is known to the CM (match_expect) does not ask the
 * rendezvous port.
 *
 * match.lock serialises attach and detach; it is outside of all locks of dev.h. */
#include "rc/stream.h"

#include "base/conf.h"
#include "base/log.h"
#include "dev/share.h"
#include "tcp/rendezvous.h"
#include "shm/shm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 1024 };

/* A QP without its stream. */
struct waiter {
	struct list link; /* match.waiter[] while waiting */
	struct stream_key key;
	uint64_t serial;
	struct dev_qp *qp;
	struct rdv_out *out; /* one of them, if it is us who connect */
	struct shm_out *shm;
	struct loop_timer timer; /* runs from the first work posted */
	bool has_work;
	uint64_t ticks, patience; /* of RC_TICK_MS: after so many nobody came in time */
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
	struct list streams[BUCKETS], waiter[BUCKETS], expected[BUCKETS];
	uint64_t serial; /* of the last one that waits */
	bool ready;
} match = { .lock = LOCK_INIT };

NO_TSA void match_lock(void)
{
	lock_get(&match.lock);
	if (match.ready)
		return;
	for (int i = 0; i < BUCKETS; i++) {
		list_init(&match.streams[i]);
		list_init(&match.waiter[i]);
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

	list_for_each(w, &match.waiter[bucket(k->remote_qpn)], link)
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
	list_for_each(w, &match.waiter[bucket(qpn)], link)
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

	list_for_each(s, &match.streams[bucket(k->remote_qpn)], match) {
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
	if (w->out)
		rdv_cancel(w->out);
	if (w->shm)
		shm_cancel(w->shm);
	w->out = NULL;
	w->shm = NULL;
	if (loop_timer_stop(&w->timer))
		w->refs--;
	waiter_put(w);
}

static bool is_reached(const struct waiter *w);

static struct waiter *waiter_by(const struct rdv_out *out, const struct shm_out *shm)
{
	struct waiter *w;

	for (int i = 0; i < BUCKETS; i++)
		list_for_each(w, &match.waiter[i], link)
			if ((out && w->out == out) || (shm && w->shm == shm))
				return w;
	return NULL;
}

void park_out_done_locked(struct rdv_out *out)
{
	struct waiter *w = waiter_by(out, NULL);

	if (w)
		w->out = NULL;
}

void park_shm_done_locked(struct shm_out *shm)
{
	struct waiter *w = waiter_by(NULL, shm);

	if (w)
		w->shm = NULL;
}

void park_shm_failed_locked(struct shm_out *shm, int err)
{
	struct waiter *w = waiter_by(NULL, shm);

	if (!w)
		return;
	log_info("QP %06x: no shared memory with the process of QP %06x: %s",
		 w->key.local_qpn, w->key.remote_qpn, strerror(-err));
	if (conf_get()->transport == CONF_TRANSPORT_SHM) {
		shm_retry_locked(shm);
		return;
	}
	w->shm = NULL;
	shm_cancel(shm);
	w->out = rdv_connect(w->qp, &w->key);
}

bool park_tcp_refused_locked(struct rdv_out *out)
{
	struct waiter *w = waiter_by(out, NULL);

	if (!w || !is_reached(w))
		return false;
	w->out = NULL;
	w->shm = shm_connect(w->qp, &w->key, w->serial, true);
	rdv_cancel(out);
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

static void waiter_tick(struct loop_timer *t)
{
	struct waiter *w = container_of(t, struct waiter, timer);
	bool on;

	match_lock();
	on = w->qp && ++w->ticks < w->patience;
	if (on)
		loop_timer_set(&w->timer, loop_now() + RC_TICK_MS * MSEC);
	else if (w->qp && w->key.unreliable)
		uc_vanish(w->qp);
	else if (w->qp)
		fail_oldest(w->qp, IBV_WC_RETRY_EXC_ERR,
			    "no connection to the peer's QP could be made");
	if (!on)
		waiter_put(w);
	match_unlock();
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
	if (w->key.unreliable)
		budget = UC_TICKS * RC_TICK_MS * MSEC;
	else if (budget < 2 * SEC)
		budget = 2 * SEC;
	if (budget == UINT64_MAX)
		return;
	w->patience = budget / (RC_TICK_MS * MSEC);
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
	if (!qp->tr_conn)
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

static bool is_self(const struct dev_qp *qp, const struct stream_key *k)
{
	return k->local_qpn == k->remote_qpn &&
	       !memcmp(&qp->local_gid, &k->remote_gid, sizeof(k->remote_gid));
}

static int open_self(struct dev_qp *qp)
{
	struct stream_param p = {
		.local_gid = qp->local_gid,
		.remote_gid = qp->local_gid,
		.local_qpn = qp->qp.qp_num,
		.remote_qpn = qp->qp.qp_num,
		.extended = true,
		.unreliable = qp->qp.qp_type == IBV_QPT_UC,
	};
	int ret = stream_open_self(&p);

	if (ret)
		match_detach(qp);
	return ret;
}

/* Asks for a stream by itself: not when the CM brings one. */
static bool asks(const struct dev_qp *qp, const struct stream_key *key)
{
	return !qp->made_by_cm && !expected_find(&key->remote_gid, key->remote_qpn) &&
	       we_connect(qp, key);
}

static bool is_reached(const struct waiter *w)
{
	return shm_is_near(&w->key.remote_gid) && !is_self(w->qp, &w->key);
}

static int ask(struct waiter *w)
{
	if (is_reached(w))
		w->shm = shm_connect(w->qp, &w->key, w->serial, false);
	else
		w->out = rdv_connect(w->qp, &w->key);
	return w->out || w->shm ? 0 : -ENOMEM;
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
	list_add_tail(&match.waiter[bucket(key->remote_qpn)], &w->link);
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
		.remote_gid = qp->attr.ah_attr.grh.dgid,
		.unreliable = qp->qp.qp_type == IBV_QPT_UC,
	};
	struct rdv_in *in = NULL;
	struct shm_in *near = NULL;
	struct stream *s;
	int ret;

	match_lock();
	s = unclaimed_find(&key);
	if (s) {
		ret = stream_attach(s, qp);
		if (!ret)
			list_del(&s->match);
	} else {
		ret = wait_for_stream(qp, &key);
		if (!ret && match_waiting_locked(&key)) {
			near = shm_find(&key);
			in = near ? NULL : rdv_find(&key);
		}
	}
	match_unlock();
	if (near)
		shm_accept(near);
	else if (in)
		rdv_accept(in);
	else if (!ret && !s && is_self(qp, &key))
		ret = open_self(qp);
	return ret;
}

/* Waits for those who are in our memory: not under match.lock, which the thread needs. */
static void share_end(struct dev_qp *qp)
{
	struct stream *s;

	lock_get(&qp->lock);
	s = qp->tr_conn;
	if (s)
		stream_get(s);
	share_qp_unbind_locked(qp);
	lock_put(&qp->lock);
	if (!s)
		return;
	share_qp_wait(s->shm.share_id);
	stream_put(s);
}

void match_detach(struct dev_qp *qp)
{
	struct stream *s;
	struct waiter *w;

	share_end(qp);
	match_lock();
	w = waiter_of(qp);
	if (w)
		waiter_end(w);
	s = qp->tr_conn;
	if (s)
		stream_detach(s, qp);
	match_unlock();
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
	if (s->shm.serial) {
		/* Made for a QP that waited; what may wait there now is another story,
		 * for which the peer's end was not made. */
		if (w && w->serial == s->shm.serial)
			attach_locked(s, w);
	} else if (w) {
		attach_locked(s, w);
	} else {
		list_add_tail(&match.streams[bucket(s->p.remote_qpn)], &s->match);
	}
	match_unlock();
}

void match_withdraw(struct stream *s)
{
	match_lock();
	list_del(&s->match);
	match_unlock();
}
