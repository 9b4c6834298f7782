/* SPDX-License-Identifier: BSD-2-Clause */
/* Streams over links for QPs known by GID and number alone. The connecting side makes
 * its stream first and names its slot in OPEN; the other answers OPENED with its own
 * once a QP of that number waits for this peer, or REFUSED when none came in time:
 * then the connector asks again, as it does over TCP.
 *
 * Either QP may have been reset meanwhile, and even wait again under the same numbers,
 * for a peer that is to be reset too. So each side gives the stream only to the QP that
 * waited when it was made (match's serial), and the accepting side only when READY says
 * that the connector's QP has it; else CLOSE comes. What is sent behind READY is received
 * by the QP, not before it: nothing of an unreliable one is lost.
 *
 * match.lock guards all objects here. */
#include "shm/shm.h"

#include "base/conf.h"
#include "base/log.h"
#include "dev/gid.h"
#include "dev/qpn.h"
#include "rc/match.h"
#include "shm/link.h"
#include "shm/setup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	KEPT_MS = 10000,
	KEPT_MAX = 64,
	RETRY_MIN_MS = 10,
	RETRY_MAX_MS = 200,
};

struct shm_attempt {
	struct rc_attempt attempt;
	int refs; /* owner; the question pending at meet.c; the stream; the timer */
	bool cancelled;
	struct stream_key key;
	uint64_t serial;
	union ibv_gid local_gid;
	struct link_wait link_wait;
	struct loop_timer timer;
	unsigned pause_ms;
};

/* An OPEN for a QP that does not wait yet. */
struct shm_arrival {
	struct rc_arrival arrival;
	struct list node;
	int refs; /* the list's, the timer's, find()'s */
	bool gone;
	struct link *l;
	struct rec_link m;
	struct loop_timer timer;
};

static struct list kept_opens = LIST_INIT(kept_opens);
static unsigned nkept;

/* With a reference of the caller's: as soon as it has its slot the peer may end it. */
static struct stream *stream_on(struct link *l, const union ibv_gid *local,
				const struct stream_key *k, uint64_t serial, bool asks)
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
	t->asks = asks;
	t->half = !asks;
	stream_get(&t->s);
	if (!link_slot_take(l, &t->s))
		return &t->s;
	stream_put(&t->s);
	shm_drop(&t->s);
	return NULL;
}

/* ---- outgoing ---------------------------------------------------------------------- */

static void out_put(struct shm_attempt *o, int n)
{
	o->refs -= n;
	if (!o->refs)
		free(o);
}

static void out_ask(struct shm_attempt *o)
{
	o->refs++;
	link_find_port(qpn_port(o->key.remote_qpn), &o->link_wait);
}

static void out_retry(struct shm_attempt *o)
{
	if (loop_timer_set(&o->timer, loop_now() + o->pause_ms * MSEC))
		o->refs++;
	o->pause_ms = o->pause_ms * 2 < RETRY_MAX_MS ? o->pause_ms * 2 : RETRY_MAX_MS;
}

static void out_again(struct loop_timer *t)
{
	struct shm_attempt *o = container_of(t, struct shm_attempt, timer);

	match_lock();
	if (!o->cancelled)
		out_ask(o);
	out_put(o, 1);
	match_unlock();
}

static int out_open(struct shm_attempt *o, struct link *l)
{
	struct stream *s = stream_on(l, &o->local_gid, &o->key, o->serial, true);
	struct rec_link m = {
		.type = LINK_OPEN,
		.unreliable = o->key.unreliable,
		.src_qpn = o->key.local_qpn,
		.dst_qpn = o->key.remote_qpn,
		.src_gid = o->local_gid,
		.dst_gid = o->key.remote_gid,
	};

	if (!s)
		return -ENOMEM;
	stream_lock(s); /* a peer may answer what it was not asked */
	to_shm(s)->attempt = o;
	stream_unlock(s);
	o->refs++;
	m.from = to_shm(s)->slot;
	m.share_id = s->share_id;
	if (link_send(l, &m))
		shm_refused(s);
	stream_put(s);
	return 0;
}

static void out_met(struct link_wait *m, struct link *l, int err)
{
	struct shm_attempt *o = container_of(m, struct shm_attempt, link_wait);

	match_lock();
	if (!o->cancelled && l && out_open(o, l))
		out_retry(o);
	if (!o->cancelled && !l && !match_failed_locked(&o->attempt, err)) {
		log_info("QP %06x: no shared memory with the process of QP %06x: %s",
			 o->key.local_qpn, o->key.remote_qpn, strerror(-err));
		out_retry(o);
	}
	out_put(o, 1);
	match_unlock();
	if (l)
		link_put(l);
}

/* Loop thread, no locks. */
static void open_run(struct loop_work *w)
{
	struct stream *s = &container_of(w, struct shm_stream, open_work)->s;
	struct shm_attempt *o = to_shm(s)->attempt;
	bool done = false;
	int err;

	stream_lock(s);
	err = to_shm(s)->open_err ? to_shm(s)->open_err : to_shm(s)->closed_in ? -EAGAIN : 0;
	stream_unlock(s);
	match_lock();
	to_shm(s)->attempt = NULL;
	if (!o->cancelled && err)
		out_retry(o);
	if (!o->cancelled && !err) {
		o->cancelled = true;
		match_found_locked(&o->attempt);
		done = true;
	}
	out_put(o, done ? 2 : 1); /* the owner's too */
	match_unlock();
	if (done)
		shm_start(s, false);
	else
		shm_end(s);
}

void shm_open_over(struct stream *s, int err)
{
	if (!to_shm(s)->attempt || to_shm(s)->answered)
		return;
	to_shm(s)->answered = true;
	to_shm(s)->open_err = err;
	to_shm(s)->open_work.run = open_run;
	loop_post(&to_shm(s)->open_work);
}

void shm_opened(struct stream *s, const struct rec_link *m)
{
	stream_lock(s);
	if (to_shm(s)->asks && !to_shm(s)->answered) {
		to_shm(s)->known = true;
		to_shm(s)->peer = m->from;
		to_shm(s)->peer_share_id = m->share_id;
		shm_open_over(s, 0);
	}
	stream_unlock(s);
}

void shm_refused(struct stream *s)
{
	stream_lock(s);
	shm_open_over(s, -EAGAIN);
	stream_unlock(s);
}

static struct rc_attempt *shm_connect(struct dev_qp *qp, const struct stream_key *key,
				      uint64_t serial, bool pause)
{
	struct shm_attempt *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->attempt.via = &shm_rendezvous;
	o->refs = 1;
	o->key = *key;
	o->serial = serial;
	o->local_gid = qp->local_gid;
	o->pause_ms = RETRY_MIN_MS;
	o->timer.fire = out_again;
	o->link_wait.done = out_met;
	if (pause)
		out_retry(o);
	else
		out_ask(o);
	return &o->attempt;
}

static void shm_cancel(struct rc_attempt *a)
{
	struct shm_attempt *o = container_of(a, struct shm_attempt, attempt);

	o->cancelled = true;
	out_put(o, loop_timer_stop(&o->timer) ? 2 : 1);
}

/* ---- incoming ----------------------------------------------------------------------- */

static void in_put(struct shm_arrival *in, int n)
{
	in->refs -= n;
	if (in->refs)
		return;
	link_put(in->l);
	free(in);
}

static void in_end(struct shm_arrival *in)
{
	if (in->gone)
		return;
	in->gone = true;
	list_del(&in->node);
	nkept--;
	in_put(in, loop_timer_stop(&in->timer) ? 2 : 1);
}

static void refuse(struct link *l, const struct rec_link *m)
{
	struct rec_link r = { .type = LINK_REFUSED, .slot = m->from };

	link_send(l, &r);
}

static void in_timeout(struct loop_timer *t)
{
	struct shm_arrival *in = container_of(t, struct shm_arrival, timer);

	match_lock();
	if (!in->gone) {
		refuse(in->l, &in->m);
		in_end(in);
	}
	in_put(in, 1);
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
	s = stream_on(l, &m->dst_gid, &key, serial, false);
	if (!s) {
		refuse(l, m);
		return;
	}
	stream_lock(s);
	to_shm(s)->peer = m->from;
	to_shm(s)->peer_share_id = m->share_id;
	to_shm(s)->known = true;
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
	struct shm_arrival *in;

	if (stream_key_is_self(k, qp))
		return NULL; /* it sends no OPEN */
	list_for_each(in, &kept_opens, node) {
		key_of(&in->m, &key);
		if (key.local_qpn != k->local_qpn || key.remote_qpn != k->remote_qpn ||
		    key.unreliable != k->unreliable ||
		    memcmp(&key.remote_gid, &k->remote_gid, sizeof(k->remote_gid)))
			continue;
		in->refs++;
		return &in->arrival;
	}
	return NULL;
}

static int shm_accept(struct rc_arrival *arrival)
{
	struct shm_arrival *in = container_of(arrival, struct shm_arrival, arrival);
	struct stream_key key;
	uint64_t serial;

	key_of(&in->m, &key);
	match_lock();
	serial = in->gone ? 0 : match_serial_locked(&key);
	if (serial)
		in_end(in);
	match_unlock();
	if (serial)
		accept_open(in->l, &in->m, serial);
	match_lock();
	in_put(in, 1);
	match_unlock();
	return 0;
}

/* The connector's QP has been reset and asks again. */
static void forget_older(struct link *l, const struct rec_link *m)
{
	struct shm_arrival *in, *tmp;

	list_for_each_safe(in, tmp, &kept_opens, node) {
		if (in->l != l || in->m.src_qpn != m->src_qpn || in->m.dst_qpn != m->dst_qpn)
			continue;
		refuse(l, &in->m);
		in_end(in);
	}
}

static bool keep_open(struct link *l, const struct rec_link *m)
{
	struct shm_arrival *in;

	forget_older(l, m);
	in = nkept < KEPT_MAX ? calloc(1, sizeof(*in)) : NULL;
	if (!in)
		return false;
	in->refs = 1;
	in->arrival.via = &shm_rendezvous;
	in->l = l;
	in->m = *m;
	in->timer.fire = in_timeout;
	link_get(l);
	list_add_tail(&kept_opens, &in->node);
	nkept++;
	if (loop_timer_set(&in->timer, loop_now() + KEPT_MS * MSEC))
		in->refs++;
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
		kept = keep_open(l, m);
	match_unlock();
	if (serial)
		accept_open(l, m, serial);
	else if (!kept)
		refuse(l, m);
}

void shm_open_link_gone(struct link *l)
{
	struct shm_arrival *in, *tmp;

	match_lock();
	list_for_each_safe(in, tmp, &kept_opens, node)
		if (in->l == l)
			in_end(in);
	match_unlock();
}

/* ---- the table ----------------------------------------------------------------------- */

/* What cannot be listened under here is reached by TCP. */
static int shm_listen(struct dev_qp *qp)
{
	if (conf_get()->transport != CONF_TRANSPORT_TCP)
		link_listen_port(qpn_port(qp->qp.qp_num));
	return 0;
}

/* The peer may be a process of this host: its address is one of ours. A QP that is
 * connected to itself needs no link. */
static bool shm_reaches(const struct dev_qp *qp, const struct stream_key *k)
{
	return conf_get()->transport != CONF_TRANSPORT_TCP && !stream_key_is_self(k, qp) &&
	       gid_index(&k->remote_gid, 0) >= 0;
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
