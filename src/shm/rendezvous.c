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
#include "dev/share.h"
#include "rc/stream.h"
#include "shm/link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	PARKED_MS = 10000,
	PARKED_MAX = 64,
	RETRY_MIN_MS = 10,
	RETRY_MAX_MS = 200,
};

struct shm_out {
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
struct shm_in {
	struct list node;
	int refs; /* the list's, the timer's, shm_find()'s */
	bool gone;
	struct link *l;
	struct rec_link m;
	struct loop_timer timer;
};

static struct list parked = LIST_INIT(parked);
static unsigned nparked;

bool shm_is_near(const union ibv_gid *gid)
{
	return conf_get()->transport != CONF_TRANSPORT_TCP && gid_index(gid, 0) >= 0;
}

int shm_listen(uint32_t qpn)
{
	if (conf_get()->transport == CONF_TRANSPORT_TCP)
		return 0;
	return link_listen_port(qpn_port(qpn));
}

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
	struct stream *s = stream_new(&shm_carrier, &p);

	if (!s)
		return NULL;
	s->shm.serial = serial;
	s->shm.asks = asks;
	s->shm.half = !asks;
	s->shm.end_work.run = shm_end_run;
	s->shm.share_id = share_qp_new();
	stream_get(s);
	if (!link_slot_take(l, s))
		return s;
	share_qp_free(s->shm.share_id);
	stream_put(s);
	stream_put(s);
	return NULL;
}

/* ---- outgoing ---------------------------------------------------------------------- */

static void out_put(struct shm_out *o, int n)
{
	o->refs -= n;
	if (!o->refs)
		free(o);
}

static void out_ask(struct shm_out *o)
{
	o->refs++;
	link_find_port(qpn_port(o->key.remote_qpn), &o->link_wait);
}

void shm_retry_locked(struct shm_out *o)
{
	if (loop_timer_set(&o->timer, loop_now() + o->pause_ms * MSEC))
		o->refs++;
	o->pause_ms = o->pause_ms * 2 < RETRY_MAX_MS ? o->pause_ms * 2 : RETRY_MAX_MS;
}

static void out_again(struct loop_timer *t)
{
	struct shm_out *o = container_of(t, struct shm_out, timer);

	match_lock();
	if (!o->cancelled)
		out_ask(o);
	out_put(o, 1);
	match_unlock();
}

static int out_open(struct shm_out *o, struct link *l)
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
	s->shm.out = o;
	stream_unlock(s);
	o->refs++;
	m.from = s->shm.slot;
	m.share_id = s->shm.share_id;
	if (link_send(l, &m))
		shm_refused(s);
	stream_put(s);
	return 0;
}

static void out_met(struct link_wait *m, struct link *l, int err)
{
	struct shm_out *o = container_of(m, struct shm_out, link_wait);

	match_lock();
	if (!o->cancelled && l && out_open(o, l))
		shm_retry_locked(o);
	if (!o->cancelled && !l)
		park_shm_failed_locked(o, err);
	out_put(o, 1);
	match_unlock();
	if (l)
		link_put(l);
}

/* Loop thread, no locks. */
static void open_run(struct loop_work *w)
{
	struct stream *s = container_of(w, struct stream, shm.open_work);
	struct shm_out *o = s->shm.out;
	bool done = false;
	int err;

	stream_lock(s);
	err = s->shm.open_err ? s->shm.open_err : s->shm.closed_in ? -EAGAIN : 0;
	stream_unlock(s);
	match_lock();
	s->shm.out = NULL;
	if (!o->cancelled && err)
		shm_retry_locked(o);
	if (!o->cancelled && !err) {
		o->cancelled = true;
		park_shm_done_locked(o);
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
	if (!s->shm.out || s->shm.answered)
		return;
	s->shm.answered = true;
	s->shm.open_err = err;
	s->shm.open_work.run = open_run;
	loop_post(&s->shm.open_work);
}

void shm_opened(struct stream *s, const struct rec_link *m)
{
	stream_lock(s);
	if (s->shm.asks && !s->shm.answered) {
		s->shm.known = true;
		s->shm.peer = m->from;
		s->shm.peer_share_id = m->share_id;
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

struct shm_out *shm_connect(struct dev_qp *qp, const struct stream_key *key,
			    uint64_t serial, bool pause)
{
	struct shm_out *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->refs = 1;
	o->key = *key;
	o->serial = serial;
	o->local_gid = qp->local_gid;
	o->pause_ms = RETRY_MIN_MS;
	o->timer.fire = out_again;
	o->link_wait.done = out_met;
	if (pause)
		shm_retry_locked(o);
	else
		out_ask(o);
	return o;
}

void shm_cancel(struct shm_out *o)
{
	o->cancelled = true;
	out_put(o, loop_timer_stop(&o->timer) ? 2 : 1);
}

/* ---- incoming ----------------------------------------------------------------------- */

static void in_put(struct shm_in *in, int n)
{
	in->refs -= n;
	if (in->refs)
		return;
	link_put(in->l);
	free(in);
}

static void in_end(struct shm_in *in)
{
	if (in->gone)
		return;
	in->gone = true;
	list_del(&in->node);
	nparked--;
	in_put(in, loop_timer_stop(&in->timer) ? 2 : 1);
}

static void refuse(struct link *l, const struct rec_link *m)
{
	struct rec_link r = { .type = LINK_REFUSED, .slot = m->from };

	link_send(l, &r);
}

static void in_timeout(struct loop_timer *t)
{
	struct shm_in *in = container_of(t, struct shm_in, timer);

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
	s->shm.peer = m->from;
	s->shm.peer_share_id = m->share_id;
	s->shm.known = true;
	stream_unlock(s);
	r.from = s->shm.slot;
	r.share_id = s->shm.share_id;
	link_send(l, &r);
	stream_put(s);
}

void shm_ready(struct stream *s)
{
	stream_lock(s);
	s->shm.opened = true;
	stream_unlock(s);
	shm_start(s, false);
}

struct shm_in *shm_find(const struct stream_key *k)
{
	struct stream_key key;
	struct shm_in *in;

	list_for_each(in, &parked, node) {
		key_of(&in->m, &key);
		if (key.local_qpn != k->local_qpn || key.remote_qpn != k->remote_qpn ||
		    key.unreliable != k->unreliable ||
		    memcmp(&key.remote_gid, &k->remote_gid, sizeof(k->remote_gid)))
			continue;
		in->refs++;
		return in;
	}
	return NULL;
}

void shm_accept(struct shm_in *in)
{
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
}

/* The connector's QP has been reset and asks again. */
static void forget_older(struct link *l, const struct rec_link *m)
{
	struct shm_in *in, *tmp;

	list_for_each_safe(in, tmp, &parked, node) {
		if (in->l != l || in->m.src_qpn != m->src_qpn || in->m.dst_qpn != m->dst_qpn)
			continue;
		refuse(l, &in->m);
		in_end(in);
	}
}

static bool park_it(struct link *l, const struct rec_link *m)
{
	struct shm_in *in;

	forget_older(l, m);
	in = nparked < PARKED_MAX ? calloc(1, sizeof(*in)) : NULL;
	if (!in)
		return false;
	in->refs = 1;
	in->l = l;
	in->m = *m;
	in->timer.fire = in_timeout;
	link_get(l);
	list_add_tail(&parked, &in->node);
	nparked++;
	if (loop_timer_set(&in->timer, loop_now() + PARKED_MS * MSEC))
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
		kept = park_it(l, m);
	match_unlock();
	if (serial)
		accept_open(l, m, serial);
	else if (!kept)
		refuse(l, m);
}

void shm_open_link_gone(struct link *l)
{
	struct shm_in *in, *tmp;

	match_lock();
	list_for_each_safe(in, tmp, &parked, node)
		if (in->l == l)
			in_end(in);
	match_unlock();
}
