/* SPDX-License-Identifier: BSD-2-Clause */
/* Design notes. Caller and callee have their stream, in a slot of the link, from the
 * call on; until the answer it only stands for the call (stream.calling). Requests are
 * handled by the loop thread, in the order they came; answers by whoever receives.
 *
 * Which process listens under a name is remembered with the link to it: the next call
 * needs no unix socket. A process that does not listen there any more says so.
 *
 * Locks: routes.lock and listeners.lock are leaves. */
#include "shm/cm.h"

#include "base/conf.h"
#include "base/log.h"
#include "dev/share.h"
#include "rc/tx.h"
#include "shm/link.h"
#include "shm/setup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { ROUTES_MAX = 64 };

/* Where a call by this first name went. */
struct route {
	struct list node;
	struct link *l; /* counted */
	char key[STREAM_NAME_MAX + 1], name[STREAM_NAME_MAX + 1];
};

static struct {
	struct lock lock;
	struct list head;
	unsigned count;
} routes = { .lock = LOCK_INIT, .head = LIST_INIT(routes.head) };

struct stream_listener {
	struct list node;
	atomic_int refs; /* the table's, those of calls being told */
	const struct listener_user *ops;
	void *user;
	char name[STREAM_NAME_MAX + 1];
};

static struct {
	struct lock lock;
	struct list head;
} listeners = { .lock = LOCK_INIT, .head = LIST_INIT(listeners.head) };

/* A caller that has no link yet. */
struct cm_out {
	struct link_wait link_wait;
	struct stream *s; /* counted */
	unsigned at;	  /* which name is being tried */
	struct stream_names names;
	uint32_t len;
	uint8_t req[];
};

/* ASK or HANGUP, for the loop thread. */
struct cm_in {
	struct list node; /* first: link.c frees these */
	struct rec_cm m;
	uint8_t data[];	  /* name, request */
};

/* ---- memory of earlier calls ----------------------------------------------------------- */

static struct route *route_find(const char *key)
{
	struct route *r;

	list_for_each(r, &routes.head, node)
		if (!strcmp(r->key, key))
			return r;
	return NULL;
}

static struct link *route_get(const char *key, char name[STREAM_NAME_MAX + 1])
{
	struct link *l = NULL;
	struct route *r;

	lock_get(&routes.lock);
	r = route_find(key);
	if (r) {
		l = r->l;
		link_get(l);
		memcpy(name, r->name, sizeof(r->name));
	}
	lock_put(&routes.lock);
	return l;
}

static void route_drop(struct route *r, struct list *gone)
{
	list_del(&r->node);
	routes.count--;
	list_add_tail(gone, &r->node);
}

static void routes_free(struct list *gone)
{
	struct list *n;

	while ((n = list_pop(gone))) {
		struct route *r = list_entry(n, struct route, node);

		link_put(r->l);
		free(r);
	}
}

static void route_put(const char *key, const char *name, struct link *l)
{
	struct route *r = calloc(1, sizeof(*r)), *old;
	struct list gone = LIST_INIT(gone);

	if (!r)
		return; /* asked again next time */
	strcpy(r->key, key);
	strcpy(r->name, name);
	r->l = l;
	link_get(l);
	lock_get(&routes.lock);
	old = route_find(key);
	if (!old && routes.count == ROUTES_MAX)
		old = list_entry(routes.head.prev, struct route, node);
	if (old)
		route_drop(old, &gone);
	list_add_head(&routes.head, &r->node);
	routes.count++;
	lock_put(&routes.lock);
	routes_free(&gone);
}

void shm_cm_forget(struct link *l)
{
	struct list gone = LIST_INIT(gone);
	struct route *r, *tmp;

	lock_get(&routes.lock);
	list_for_each_safe(r, tmp, &routes.head, node)
		if (r->l == l)
			route_drop(r, &gone);
	lock_put(&routes.lock);
	routes_free(&gone);
}

/* ---- messages ----------------------------------------------------------------------------- */

static int cm_send(struct link *l, struct rec_cm *m, const char *name, const void *data)
{
	uint8_t buf[sizeof(*m) + STREAM_NAME_MAX + STREAM_REQUEST_MAX];

	memcpy(buf, m, sizeof(*m));
	if (m->name_len)
		memcpy(buf + sizeof(*m), name, m->name_len);
	if (m->len)
		memcpy(buf + sizeof(*m) + m->name_len, data, m->len);
	return link_send_record(l, buf, (uint32_t)sizeof(*m) + m->name_len + m->len, REC_CM);
}

static int say_no(struct link *l, uint32_t to, enum cm_status status, const void *data,
		  size_t len)
{
	struct rec_cm m = { .type = CM_REP, .status = (uint8_t)status, .slot = to,
			      .len = (uint32_t)len };

	return cm_send(l, &m, NULL, data);
}

static int say_accepted(struct stream *s, const void *rep, size_t len)
{
	struct rec_cm m = { .type = CM_REP, .status = CM_ACCEPTED,
			      .slot = to_shm(s)->peer, .from = to_shm(s)->slot,
			      .share_id = s->share_id, .len = (uint32_t)len };

	return cm_send(to_shm(s)->l, &m, NULL, rep);
}

static void say_close(struct link *l, uint32_t slot)
{
	struct rec_link m = { .type = LINK_CLOSE, .slot = slot };

	link_send(l, &m);
}

void shm_cm_cancel(struct stream *s)
{
	struct shm_stream *p = to_shm(s);
	struct rec_cm m = { .type = CM_CANCEL, .from = p->slot };

	lock_assert_held(&s->lock);
	if (p->cm == SHM_CM_REQ_SENT)
		cm_send(p->l, &m, NULL, NULL);
	else
		p->closed_in = true; /* the peer does not know our slot */
	if (p->cm == SHM_CM_REQ_RCVD)
		say_no(p->l, p->peer, CM_GONE, NULL, 0);
}

int shm_cm_lost(struct stream *s)
{
	struct shm_stream *p = to_shm(s);

	return p->cm == SHM_CM_REQ_SENT && p->req_put && link_consumed(p->l, p->req_end) ?
		       0 :
		       -EPIPE;
}

/* ---- caller --------------------------------------------------------------------------------- */

static struct stream *stream_of_cm(enum shm_cm cm)
{
	struct stream_param p = { .extended = true };
	struct shm_stream *t = shm_new(&p);

	if (!t)
		return NULL;
	t->s.connecting = true;
	t->cm = cm;
	return &t->s;
}

/* Sends the request over l. Nobody else gives the stream a link meanwhile; its user may
 * let go of it at any time, then the slot goes with it. */
static int ask(struct stream *s, struct link *l, const char *name, const void *req,
	       uint32_t len)
{
	struct rec_cm m = { .type = CM_REQ, .name_len = (uint8_t)strlen(name),
			      .len = len };
	int ret = link_slot_take(l, s);

	if (ret)
		return ret;
	stream_lock(s);
	if (s->state == STREAM_OPEN) {
		to_shm(s)->cm = SHM_CM_REQ_SENT;
		m.from = to_shm(s)->slot;
		m.share_id = s->share_id;
		ret = cm_send(l, &m, name, req);
		to_shm(s)->req_put = link_sent(l, &to_shm(s)->req_end);
	}
	if (ret)
		stream_broken(s, ret, "no memory for the request");
	stream_unlock(s);
	return 0;
}

static void out_free(struct cm_out *o)
{
	stream_put(o->s);
	free(o);
}

static void out_failed(struct cm_out *o, int err)
{
	struct stream *s = o->s;

	log_info("no link to a listener named %s: %s", o->names.name[0], strerror(-err));
	stream_lock(s);
	stream_broken(s, -ENOLINK, "there is no shared memory with its peer");
	stream_unlock(s);
	out_free(o);
}

/* Who has the name is not whom we look for: nobody listens, or another user does, or lets
 * nobody in. The one with the next name may be. */
static bool somebody_else(int err)
{
	return err == -ECONNREFUSED || err == -EPERM || err == -EAGAIN;
}

static void out_met(struct link_wait *m, struct link *l, int err)
{
	struct cm_out *o = container_of(m, struct cm_out, link_wait);
	struct stream *s = o->s;
	const char *name = o->names.name[o->at];
	bool over;

	stream_lock(s);
	over = s->state != STREAM_OPEN;
	stream_unlock(s);
	if (!over && l)
		err = ask(s, l, name, o->req, o->len);
	if (!over && l && !err) {
		route_put(o->names.name[0], name, l);
		stream_lock(s);
		s->up_delivered = true;
		stream_up_post(s);
		stream_unlock(s);
		over = true;
	}
	if (l)
		link_put(l);
	if (over) {
		out_free(o);
	} else if (!somebody_else(err) || ++o->at == STREAM_NAMES || !o->names.name[o->at][0]) {
		out_failed(o, err);
	} else {
		link_find_name(o->names.name[o->at], &o->link_wait);
	}
}

static int look_up(struct stream *s, const struct stream_names *names, const void *req,
		   uint32_t len)
{
	struct cm_out *o = malloc(sizeof(*o) + len);

	if (!o)
		return -ENOMEM;
	o->link_wait.done = out_met;
	o->s = s;
	o->at = 0;
	o->names = *names;
	o->len = len;
	memcpy(o->req, req, len);
	stream_get(s);
	link_find_name(o->names.name[0], &o->link_wait);
	return 0;
}

struct stream *stream_connect(const struct stream_names *names, const void *req, size_t len,
			   const struct stream_user *ops, void *user, bool *asked)
{
	struct stream *s = len <= STREAM_REQUEST_MAX ? stream_of_cm(SHM_CM_LOOKUP) : NULL;
	char name[STREAM_NAME_MAX + 1];
	struct link *l;
	int ret = -EPIPE;

	*asked = false;
	if (!s) {
		errno = len <= STREAM_REQUEST_MAX ? ENOMEM : EINVAL;
		return NULL;
	}
	s->ops = ops;
	s->user = user;
	s->user_gone = false;
	l = route_get(names->name[0], name);
	if (l) {
		to_shm(s)->cached = true;
		ret = ask(s, l, name, req, (uint32_t)len);
		link_put(l);
	}
	*asked = !ret;
	if (ret) {
		to_shm(s)->cached = false;
		ret = look_up(s, names, req, (uint32_t)len);
	}
	if (!ret)
		return s;
	shm_drop(s);
	errno = -ret;
	return NULL;
}

/* It was accepted: the peer's slot is known, frames may follow. */
static void answer_accepted(struct stream *s, const struct rec_cm *m)
{
	lock_assert_held(&s->lock);
	to_shm(s)->peer = m->from;
	to_shm(s)->peer_share_id = m->share_id;
	to_shm(s)->known = to_shm(s)->started = to_shm(s)->opened = true;
	to_shm(s)->cm = SHM_CM_NONE;
}

static void answer_refused(struct stream *s, enum cm_status status)
{
	int err = status == CM_BUSY	      ? -EBUSY :
		  status != CM_NO_LISTENER  ? 0 :
		  to_shm(s)->cached		      ? -ESTALE :
						-ENOLINK;

	lock_assert_held(&s->lock);
	if (err == -ESTALE)
		shm_cm_forget(to_shm(s)->l);
	stream_broken(s, err, "the call is not taken");
}

static void take_answer(struct stream *s, const struct rec_cm *m, const uint8_t *data)
{
	struct stream_reply *a;

	stream_lock(s);
	if (to_shm(s)->cm != SHM_CM_REQ_SENT)
		goto out; /* twice */
	if (m->status != CM_ACCEPTED)
		to_shm(s)->closed_in = to_shm(s)->closed_out = true; /* the slot is ours again */
	if (s->state != STREAM_OPEN) { /* we have hung up */
		if (m->status == CM_ACCEPTED)
			say_close(to_shm(s)->l, m->from);
		goto out;
	}
	if (m->status == CM_ACCEPTED)
		answer_accepted(s, m);
	if (m->status > CM_REJECTED) {
		answer_refused(s, (enum cm_status)m->status);
		goto out;
	}
	a = malloc(sizeof(*a) + m->len);
	if (!a) {
		stream_broken(s, -ENOMEM, "no memory for an answer");
		goto out;
	}
	a->len = m->len;
	memcpy(a->data, data, m->len);
	s->reply = a;
	stream_up_post(s);
out:
	stream_unlock(s);
}

static void receive_answer(struct link *l, const struct rec_cm *m, const uint8_t *data)
{
	struct stream *s = m->slot < l->slots ? l->slot[m->slot] : NULL;

	lock_assert_held(&l->rx_lock);
	if (s && s != LINK_TOMB) {
		take_answer(s, m, data);
	} else if (s && m->status == CM_ACCEPTED) {
		say_close(l, m->from); /* LINK_CLOSE will come for the slot */
	} else if (s) {
		l->slot[m->slot] = NULL;
		l->vacant[l->nvacant++] = m->slot;
	}
}

int stream_opened(struct stream *s, const struct stream_param *p)
{
	bool opened;

	stream_lock(s);
	opened = to_shm(s)->opened && s->connecting;
	if (opened) {
		s->p = *p;
		s->connecting = false;
	}
	stream_unlock(s);
	if (!opened)
		return -ECONNRESET;
	return shm_start(s, true);
}

/* ---- callee --------------------------------------------------------------------------------- */

static void listener_put(struct stream_listener *cl)
{
	if (atomic_fetch_sub_explicit(&cl->refs, 1, memory_order_acq_rel) != 1)
		return;
	cl->ops->released(cl->user);
	free(cl);
}

static struct stream_listener *listener_find(const uint8_t *name, size_t len)
{
	struct stream_listener *cl, *found = NULL;

	lock_get(&listeners.lock);
	list_for_each(cl, &listeners.head, node)
		if (strlen(cl->name) == len && !memcmp(cl->name, name, len)) {
			atomic_fetch_add_explicit(&cl->refs, 1, memory_order_relaxed);
			found = cl;
			break;
		}
	lock_put(&listeners.lock);
	return found;
}

struct stream_listener *stream_listen(int fd, const char *name, const struct listener_user *ops,
				  void *user)
{
	struct stream_listener *cl;
	int ret = -EOPNOTSUPP;

	if (conf_get()->transport == CONF_TRANSPORT_TCP || strlen(name) > STREAM_NAME_MAX) {
		errno = -ret;
		return NULL;
	}
	cl = calloc(1, sizeof(*cl));
	if (!cl)
		return NULL;
	atomic_init(&cl->refs, 1);
	cl->ops = ops;
	cl->user = user;
	strcpy(cl->name, name);
	lock_get(&listeners.lock);
	list_add_head(&listeners.head, &cl->node);
	lock_put(&listeners.lock);
	ret = link_listen_fd(fd, name);
	if (!ret)
		return cl;
	lock_get(&listeners.lock);
	list_del(&cl->node);
	lock_put(&listeners.lock);
	free(cl);
	errno = -ret;
	return NULL;
}

void stream_unlisten(struct stream_listener *cl)
{
	lock_get(&listeners.lock);
	list_del(&cl->node);
	lock_put(&listeners.lock);
	link_unlisten(cl->name);
	listener_put(cl);
}

/* Nobody has it: it was never adopted. */
static void discard(struct link *l, struct stream *s)
{
	link_slot_drop(l, to_shm(s)->slot, false);
	shm_drop(s);
	link_put(l);
}

static void request_ask(struct link *l, const struct cm_in *in)
{
	struct stream_listener *cl = listener_find(in->data, in->m.name_len);
	struct stream *s = cl ? stream_of_cm(SHM_CM_REQ_RCVD) : NULL;
	int ret = cl ? -EBUSY : -ENOENT;

	if (s) {
		to_shm(s)->peer = in->m.from;
		to_shm(s)->peer_share_id = in->m.share_id;
		if (link_slot_take(l, s)) {
			shm_drop(s);
			s = NULL;
		}
	}
	if (s) {
		ret = cl->ops->incoming(cl->user, s, in->data + in->m.name_len, in->m.len);
		if (ret)
			discard(l, s);
	}
	if (ret)
		say_no(l, in->m.from, ret == -EBUSY ? CM_BUSY : CM_NO_LISTENER, NULL, 0);
	if (cl)
		listener_put(cl);
}

static bool hung_up(struct stream *s, uint32_t from)
{
	bool it;

	stream_lock(s);
	it = to_shm(s)->cm == SHM_CM_REQ_RCVD && to_shm(s)->peer == from &&
	     s->state == STREAM_OPEN;
	if (it) {
		say_close(to_shm(s)->l, from);
		to_shm(s)->closed_in = to_shm(s)->closed_out = true;
		stream_broken(s, 0, "the caller has hung up");
	}
	stream_unlock(s);
	return it;
}

static void request_hangup(struct link *l, uint32_t from)
{
	bool found = false;

	lock_get(&l->rx_lock);
	for (uint32_t i = 0; i < l->slots && !found; i++)
		if (l->slot[i] && l->slot[i] != LINK_TOMB && to_shm(l->slot[i])->peer == from)
			found = hung_up(l->slot[i], from);
	lock_put(&l->rx_lock);
}

void shm_cm_requests(struct link *l)
{
	struct list *n;

	lock_get(&l->rx_lock);
	while (!l->dead && (n = list_pop(&l->calls))) {
		struct cm_in *in = list_entry(n, struct cm_in, node);

		l->ncm--;
		lock_put(&l->rx_lock);
		if (in->m.type == CM_REQ)
			request_ask(l, in);
		else
			request_hangup(l, in->m.from);
		free(in);
		lock_get(&l->rx_lock);
	}
	lock_put(&l->rx_lock);
}

static int request_queue(struct link *l, const struct rec_cm *m, const uint8_t *data)
{
	size_t len = m->name_len + m->len;
	bool room = l->ncm < LINK_CM_MAX || m->type == CM_CANCEL;
	struct cm_in *in = room ? malloc(sizeof(*in) + len) : NULL;

	lock_assert_held(&l->rx_lock);
	if (!in) {
		if (m->type == CM_REQ)
			say_no(l, m->from, CM_BUSY, NULL, 0);
		return 0;
	}
	in->m = *m;
	if (len)
		memcpy(in->data, data, len);
	list_add_tail(&l->calls, &in->node);
	l->ncm++;
	link_post(l);
	return l->ncm > LINK_CANCELS_MAX ? -EPROTO : 0;
}

int shm_cm_receive(struct link *l, const void *rec, uint32_t bytes)
{
	const uint8_t *data = (const uint8_t *)rec + sizeof(struct rec_cm);
	struct rec_cm m;

	lock_assert_held(&l->rx_lock);
	if (bytes < sizeof(m))
		return -EPROTO;
	memcpy(&m, rec, sizeof(m));
	if (m.len > STREAM_REQUEST_MAX || m.name_len > STREAM_NAME_MAX ||
	    bytes != sizeof(m) + m.name_len + m.len)
		return -EPROTO;
	if (m.type == CM_CANCEL && bytes != sizeof(m))
		return -EPROTO;
	switch (m.type) {
	case CM_REQ:
	case CM_CANCEL:
		return request_queue(l, &m, data);
	case CM_REP:
		receive_answer(l, &m, data + m.name_len);
		return 0;
	default:
		return -EPROTO;
	}
}

/* The stream gets its QP first: what the caller sends upon our answer finds it. */
int stream_accept(struct stream *s, const struct stream_param *p, const void *rep,
		  size_t len)
{
	bool rings;
	int ret;

	stream_lock(s);
	rings = to_shm(s)->cm == SHM_CM_REQ_RCVD && s->state == STREAM_OPEN;
	if (rings) {
		s->p = *p;
		s->connecting = false;
	}
	stream_unlock(s);
	if (!rings)
		return -ECONNRESET;
	ret = shm_start(s, true);
	if (ret)
		return ret;
	stream_lock(s);
	if (s->state == STREAM_OPEN) {
		ret = say_accepted(s, rep, len);
		to_shm(s)->cm = SHM_CM_NONE;
		to_shm(s)->known = to_shm(s)->opened = true;
		tx_run(s);
	}
	stream_unlock(s);
	return ret;
}

void stream_reject(struct stream *s, const void *rej, size_t len)
{
	stream_lock(s);
	if (to_shm(s)->cm == SHM_CM_REQ_RCVD && s->state == STREAM_OPEN && len &&
	    !say_no(to_shm(s)->l, to_shm(s)->peer, CM_REJECTED, rej, len))
		to_shm(s)->closed_in = to_shm(s)->closed_out = true;
	stream_unlock(s);
	stream_release(s);
}
