/* SPDX-License-Identifier: BSD-2-Clause */
/* Streams over links for QPs that the application has connected by GID and QP number
 * alone. The connecting side makes its stream first and sends LINK_OPEN with the slot.
 * The other side replies LINK_OPENED with its own slot once a QP of that number waits for
 * this peer, or LINK_REFUSED when none came in time: then the connecting side tries
 * again, as it does over TCP.
 *
 * Either QP may have been reset meanwhile, and may even wait again under the same
 * numbers, for a peer that will be reset, too. So each side gives the stream only to the
 * QP that waited when the stream was made (the serial of rc/match.h), and the accepting
 * side only when LINK_READY says that the connecting side's QP has it; else LINK_CLOSE
 * comes. Frames that follow LINK_READY are received after the QP has got the stream: an
 * unreliable QP loses none.
 *
 * match.lock guards all objects here. */
#include "shm/shm.h"

#include "base/conf.h"
#include "base/log.h"
#include "base/state.h"
#include "dev/gid.h"
#include "dev/qpn.h"
#include "rc/match.h"
#include "shm/link.h"
#include "shm/setup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	ARRIVAL_MS = 10000,
	ARRIVALS_MAX = 64,
	RETRY_MIN_MS = 10,
	RETRY_MAX_MS = 200,
};

struct shm_attempt {
	struct rc_attempt attempt;
	int refs; /* one each: owner, pending link_wait, stream, timer */
	bool cancelled;
	struct stream_key key;
	uint64_t serial;
	union ibv_gid local_gid;
	struct link_wait link_wait;
	struct loop_timer timer;
	unsigned pause_ms;
};

/* A LINK_OPEN for a QP that does not wait yet. */
struct shm_arrival {
	struct rc_arrival arrival;
	struct list node;
	int refs; /* one each: the list, the timer, the caller of find() */
	bool ended;
	struct link *l;
	struct rec_link m;
	struct loop_timer timer;
};

static struct list arrivals PROCESS_STATE = LIST_INIT(arrivals);
static unsigned narrivals PROCESS_STATE;

/* Makes a stream with a slot. The caller gets a reference: as soon as the stream has its
 * slot, the peer may end it. */
static struct stream *stream_new_on(struct link *l, const union ibv_gid *local,
				    const struct stream_key *k, uint64_t serial,
				    bool connector)
{
	struct stream_param p = {
		.local_gid = *local,
		.remote_gid = k->remote_gid,
		.local_qpn = k->local_qpn,
		.remote_qpn = k->remote_qpn,
		.extended = true,
		.unreliable = k->unreliable,
	};
	struct shm_stream *t = shm_new(&p);

	if (!t)
		return NULL;
	t->s.serial = serial;
	t->connector = connector;
	t->half_open = !connector;
	stream_get(&t->s);
	if (!link_slot_alloc(l, &t->s))
		return &t->s;
	stream_put(&t->s);
	shm_drop(&t->s);
	return NULL;
}

/* ---- attempts: the connecting side ----------------------------------------------- */

static void attempt_put(struct shm_attempt *at, int n)
{
	at->refs -= n;
	if (!at->refs)
		free(at);
}

static void attempt_find_link(struct shm_attempt *at)
{
	at->refs++;
	link_find_port(qpn_port(at->key.remote_qpn), &at->link_wait);
}

static void attempt_retry(struct shm_attempt *at)
{
	if (loop_timer_set(&at->timer, loop_now() + at->pause_ms * MSEC))
		at->refs++;
	at->pause_ms = at->pause_ms * 2 < RETRY_MAX_MS ? at->pause_ms * 2 : RETRY_MAX_MS;
}

static void attempt_timeout(struct loop_timer *t)
{
	struct shm_attempt *at = container_of(t, struct shm_attempt, timer);

	match_lock();
	if (!at->cancelled)
		attempt_find_link(at);
	attempt_put(at, 1);
	match_unlock();
}

static int attempt_open(struct shm_attempt *at, struct link *l)
{
	struct stream *s = stream_new_on(l, &at->local_gid, &at->key, at->serial, true);
	struct rec_link m = {
		.type = LINK_OPEN,
		.unreliable = at->key.unreliable,
		.src_qpn = at->key.local_qpn,
		.dst_qpn = at->key.remote_qpn,
		.src_gid = at->local_gid,
		.dst_gid = at->key.remote_gid,
	};

	if (!s)
		return -ENOMEM;
	stream_lock(s); /* a hostile peer may send OPENED before it gets OPEN */
	to_shm(s)->attempt = at;
	stream_unlock(s);
	at->refs++;
	m.from = to_shm(s)->slot;
	m.share_id = s->share_id;
	if (link_send(l, &m))
		shm_refused(s);
	stream_put(s);
	return 0;
}

static void attempt_linked(struct link_wait *m, struct link *l, int err)
{
	struct shm_attempt *at = container_of(m, struct shm_attempt, link_wait);

	match_lock();
	if (!at->cancelled && l && attempt_open(at, l))
		attempt_retry(at);
	if (!at->cancelled && !l && !match_failed_locked(&at->attempt, err)) {
		log_info("QP %06x: no shared memory with the process of QP %06x: %s",
			 at->key.local_qpn, at->key.remote_qpn, strerror(-err));
		attempt_retry(at);
	}
	attempt_put(at, 1);
	match_unlock();
	if (l)
		link_put(l);
}

/* LINK_OPENED or LINK_REFUSED has come, or will not come. Loop thread, no lock. */
static void open_run(struct loop_work *w)
{
	struct stream *s = &container_of(w, struct shm_stream, open_work)->s;
	struct shm_attempt *at = to_shm(s)->attempt;
	bool done = false;
	int err;

	stream_lock(s);
	err = to_shm(s)->open_err  ? to_shm(s)->open_err :
	      to_shm(s)->closed_in ? -EAGAIN :
				     0;
	stream_unlock(s);
	match_lock();
	to_shm(s)->attempt = NULL;
	if (!at->cancelled && err)
		attempt_retry(at);
	if (!at->cancelled && !err) {
		at->cancelled = true;
		match_found_locked(&at->attempt);
		done = true;
	}
	attempt_put(at, done ? 2 : 1); /* the owner's too */
	match_unlock();
	if (done)
		shm_start(s, false);
	else
		shm_end(s);
}

void shm_open_done(struct stream *s, int err)
{
	if (!to_shm(s)->attempt || to_shm(s)->open_done)
		return;
	to_shm(s)->open_done = true;
	to_shm(s)->open_err = err;
	to_shm(s)->open_work.run = open_run;
	loop_post(&to_shm(s)->open_work);
}

void shm_opened(struct stream *s, const struct rec_link *m)
{
	stream_lock(s);
	if (to_shm(s)->connector && !to_shm(s)->open_done) {
		to_shm(s)->peer_known = true;
		to_shm(s)->peer_slot = m->from;
		to_shm(s)->peer_share_id = m->share_id;
		shm_open_done(s, 0);
	}
	stream_unlock(s);
}

void shm_refused(struct stream *s)
{
	stream_lock(s);
	shm_open_done(s, -EAGAIN);
	stream_unlock(s);
}

static struct rc_attempt *shm_connect(struct dev_qp *qp, const struct stream_key *key,
				      uint64_t serial, bool pause)
{
	struct shm_attempt *at = calloc(1, sizeof(*at));

	if (!at)
		return NULL;
	at->attempt.via = &shm_rendezvous;
	at->refs = 1;
	at->key = *key;
	at->serial = serial;
	at->local_gid = qp->local_gid;
	at->pause_ms = RETRY_MIN_MS;
	at->timer.fire = attempt_timeout;
	at->link_wait.done = attempt_linked;
	if (pause)
		attempt_retry(at);
	else
		attempt_find_link(at);
	return &at->attempt;
}

static void shm_cancel(struct rc_attempt *a)
{
	struct shm_attempt *at = container_of(a, struct shm_attempt, attempt);

	at->cancelled = true;
	attempt_put(at, loop_timer_stop(&at->timer) ? 2 : 1);
}

/* ---- arrivals: the accepting side ------------------------------------------------ */

static void arrival_put(struct shm_arrival *ar, int n)
{
	ar->refs -= n;
	if (ar->refs)
		return;
	link_put(ar->l);
	free(ar);
}

static void arrival_end(struct shm_arrival *ar)
{
	if (ar->ended)
		return;
	ar->ended = true;
	list_del(&ar->node);
	narrivals--;
	arrival_put(ar, loop_timer_stop(&ar->timer) ? 2 : 1);
}

static void refuse(struct link *l, const struct rec_link *m)
{
	struct rec_link r = { .type = LINK_REFUSED, .slot = m->from };

	link_send(l, &r);
}

static void arrival_timeout(struct loop_timer *t)
{
	struct shm_arrival *ar = container_of(t, struct shm_arrival, timer);

	match_lock();
	if (!ar->ended) {
		refuse(ar->l, &ar->m);
		arrival_end(ar);
	}
	arrival_put(ar, 1);
	match_unlock();
}

static void key_of(const struct rec_link *m, struct stream_key *k)
{
	*k = (struct stream_key){ .local_qpn = m->dst_qpn,
				  .remote_qpn = m->src_qpn,
				  .remote_gid = m->src_gid,
				  .unreliable = m->unreliable };
}

static void accept_open(struct link *l, const struct rec_link *m, uint64_t serial)
{
	struct rec_link r = { .type = LINK_OPENED, .slot = m->from };
	struct stream_key key;
	struct stream *s;

	key_of(m, &key);
	s = stream_new_on(l, &m->dst_gid, &key, serial, false);
	if (!s) {
		refuse(l, m);
		return;
	}
	stream_lock(s);
	to_shm(s)->peer_slot = m->from;
	to_shm(s)->peer_share_id = m->share_id;
	to_shm(s)->peer_known = true;
	stream_unlock(s);
	r.from = to_shm(s)->slot;
	r.share_id = s->share_id;
	link_send(l, &r);
	stream_put(s);
}

void shm_ready(struct stream *s)
{
	stream_lock(s);
	to_shm(s)->opened = true;
	stream_unlock(s);
	shm_start(s, false);
}

static struct rc_arrival *shm_find(const struct dev_qp *qp, const struct stream_key *k)
{
	struct stream_key key;
	struct shm_arrival *ar;

	if (stream_key_is_self(k, qp))
		return NULL; /* it sends no OPEN */
	list_for_each(ar, &arrivals, node) {
		key_of(&ar->m, &key);
		if (key.local_qpn != k->local_qpn || key.remote_qpn != k->remote_qpn ||
		    key.unreliable != k->unreliable ||
		    memcmp(&key.remote_gid, &k->remote_gid, sizeof(k->remote_gid)))
			continue;
		ar->refs++;
		return &ar->arrival;
	}
	return NULL;
}

static int shm_accept(struct rc_arrival *arrival)
{
	struct shm_arrival *ar = container_of(arrival, struct shm_arrival, arrival);
	struct stream_key key;
	uint64_t serial;

	key_of(&ar->m, &key);
	match_lock();
	serial = ar->ended ? 0 : match_serial_locked(&key);
	if (serial)
		arrival_end(ar);
	match_unlock();
	if (serial)
		accept_open(ar->l, &ar->m, serial);
	match_lock();
	arrival_put(ar, 1);
	match_unlock();
	return 0;
}

/* The connecting side's QP has been reset and has sent LINK_OPEN again. */
static void arrivals_supersede(struct link *l, const struct rec_link *m)
{
	struct shm_arrival *ar, *tmp;

	list_for_each_safe(ar, tmp, &arrivals, node) {
		if (ar->l != l || ar->m.src_qpn != m->src_qpn ||
		    ar->m.dst_qpn != m->dst_qpn)
			continue;
		refuse(l, &ar->m);
		arrival_end(ar);
	}
}

static bool arrival_new(struct link *l, const struct rec_link *m)
{
	struct shm_arrival *ar;

	arrivals_supersede(l, m);
	ar = narrivals < ARRIVALS_MAX ? calloc(1, sizeof(*ar)) : NULL;
	if (!ar)
		return false;
	ar->refs = 1;
	ar->arrival.via = &shm_rendezvous;
	ar->l = l;
	ar->m = *m;
	ar->timer.fire = arrival_timeout;
	link_get(l);
	list_add_tail(&arrivals, &ar->node);
	narrivals++;
	if (loop_timer_set(&ar->timer, loop_now() + ARRIVAL_MS * MSEC))
		ar->refs++;
	return true;
}

void shm_open_request(struct link *l, const struct rec_link *m)
{
	struct stream_key key;
	uint64_t serial;
	bool kept = true;

	key_of(m, &key);
	match_lock();
	serial = match_serial_locked(&key);
	if (!serial)
		kept = arrival_new(l, m);
	match_unlock();
	if (serial)
		accept_open(l, m, serial);
	else if (!kept)
		refuse(l, m);
}

void shm_open_link_gone(struct link *l)
{
	struct shm_arrival *ar, *tmp;

	match_lock();
	list_for_each_safe(ar, tmp, &arrivals, node)
		if (ar->l == l)
			arrival_end(ar);
	match_unlock();
}

/* ---- the table ------------------------------------------------------------------- */

/* If this fails, the QP is reached by TCP. */
static int shm_listen(struct dev_qp *qp)
{
	if (conf_get()->transport != CONF_TRANSPORT_TCP)
		link_listen_port(qpn_port(qp->qp.qp_num));
	return 0;
}

/* The peer's address is one of this host's. A QP that is connected to itself gets no
 * link. */
static bool shm_reaches(const struct dev_qp *qp, const struct stream_key *k)
{
	return conf_get()->transport != CONF_TRANSPORT_TCP && !stream_key_is_self(k, qp) &&
	       gid_is_ours(&k->remote_gid, 0);
}

const struct rc_rendezvous shm_rendezvous = {
	.name = "shared memory",
	.listen = shm_listen,
	.reaches = shm_reaches,
	.connect = shm_connect,
	.cancel = shm_cancel,
	.find = shm_find,
	.accept = shm_accept,
};
