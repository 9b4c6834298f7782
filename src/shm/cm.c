/* SPDX-License-Identifier: BSD-2-Clause */
/* Design notes. Each side has a stream in a slot of the link from the request on. Until
 * the reply the stream only stands for the connection (stream.connecting). CM_REQ and
 * CM_CANCEL are handled by the loop thread in the order in which they came, CM_REP by the
 * thread that receives it.
 *
 * A route remembers the link by which a name was reached: the next request to the name
 * needs no unix socket. A process that does not listen under the name any more replies
 * CM_NO_LISTENER, and the route is dropped.
 *
 * Locks: routes.lock and listeners.lock are innermost. */
#include "shm/cm.h"

#include "base/conf.h"
#include "base/log.h"
#include "base/state.h"
#include "dev/share.h"
#include "rc/tx.h"
#include "shm/link_rx.h"
#include "shm/setup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { ROUTES_MAX = 64 };

/* A request whose first name was `key` was sent over this link, to the listener
 * `name`. */
struct route {
	struct list node; /* routes.head, the latest first */
	struct link *l;	  /* counted */
	char key[STREAM_NAME_MAX + 1], name[STREAM_NAME_MAX + 1];
};

static struct {
	struct lock lock;
	struct list head;
	unsigned count;
} routes PROCESS_STATE = { .lock = LOCK_INIT, .head = LIST_INIT(routes.head) };

struct stream_listener {
	struct list node;
	atomic_int refs; /* the list, requests that are being delivered */
	const struct listener_user *ops;
	void *user;
	char name[STREAM_NAME_MAX + 1];
};

static struct {
	struct lock lock;
	struct list head;
} listeners PROCESS_STATE = { .lock = LOCK_INIT, .head = LIST_INIT(listeners.head) };

/* A request that has no link yet. */
struct cm_lookup {
	struct link_wait link_wait;
	struct stream *s; /* counted */
	struct stream_names names;
	unsigned at;	  /* index of the name that is tried */
	uint32_t len;
	uint8_t req[];
};

/* CM_REQ or CM_CANCEL, in link.cm_msgs. */
struct cm_msg {
	struct list node; /* first: link.c frees what is left in the list */
	struct rec_cm m;
	uint8_t data[];	  /* name, request */
};

/* ---- routes ---------------------------------------------------------------------- */

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

static void route_remove(struct route *r, struct list *removed)
{
	list_del(&r->node);
	routes.count--;
	list_add_tail(removed, &r->node);
}

static void routes_free(struct list *removed)
{
	struct list *n;

	while ((n = list_pop(removed))) {
		struct route *r = list_entry(n, struct route, node);

		link_put(r->l);
		free(r);
	}
}

static void route_put(const char *key, const char *name, struct link *l)
{
	struct route *r = calloc(1, sizeof(*r)), *old;
	struct list removed = LIST_INIT(removed);

	if (!r)
		return; /* the next request looks the name up again */
	strcpy(r->key, key);
	strcpy(r->name, name);
	r->l = l;
	link_get(l);
	lock_get(&routes.lock);
	old = route_find(key);
	if (!old && routes.count == ROUTES_MAX)
		old = list_entry(routes.head.prev, struct route, node);
	if (old)
		route_remove(old, &removed);
	list_add_head(&routes.head, &r->node);
	routes.count++;
	lock_put(&routes.lock);
	routes_free(&removed);
}

void shm_cm_routes_drop(struct link *l)
{
	struct list removed = LIST_INIT(removed);
	struct route *r, *tmp;

	lock_get(&routes.lock);
	list_for_each_safe(r, tmp, &routes.head, node)
		if (r->l == l)
			route_remove(r, &removed);
	lock_put(&routes.lock);
	routes_free(&removed);
}

/* ---- sending --------------------------------------------------------------------- */

static int cm_send(struct link *l, struct rec_cm *m, const char *name, const void *data)
{
	uint8_t buf[sizeof(*m) + STREAM_NAME_MAX + STREAM_REQUEST_MAX];

	memcpy(buf, m, sizeof(*m));
	if (m->name_len)
		memcpy(buf + sizeof(*m), name, m->name_len);
	if (m->len)
		memcpy(buf + sizeof(*m) + m->name_len, data, m->len);
	return link_send_record(l, buf, (uint32_t)sizeof(*m) + m->name_len + m->len,
				REC_CM);
}

static int refusal_send(struct link *l, uint32_t to, enum cm_status status,
			const void *data, size_t len)
{
	struct rec_cm m = { .type = CM_REP, .status = (uint8_t)status, .slot = to,
			      .len = (uint32_t)len };

	return cm_send(l, &m, NULL, data);
}

static int acceptance_send(struct stream *s, const void *rep, size_t len)
{
	struct rec_cm m = { .type = CM_REP, .status = CM_ACCEPTED,
			      .slot = to_shm(s)->peer_slot, .from = to_shm(s)->slot,
			      .share_id = s->share_id, .len = (uint32_t)len };

	return cm_send(to_shm(s)->l, &m, NULL, rep);
}

static void close_send(struct link *l, uint32_t slot)
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
		refusal_send(p->l, p->peer_slot, CM_GONE, NULL, 0);
}

int shm_cm_lost(struct stream *s)
{
	struct shm_stream *p = to_shm(s);

	bool received = p->cm == SHM_CM_REQ_SENT && p->req_in_ring &&
			link_consumed(p->l, p->req_end);

	return received ? 0 : -EPIPE;
}

/* ---- active side ----------------------------------------------------------------- */

static struct stream *cm_stream_new(enum shm_cm cm)
{
	struct stream_param p = { .extended = true };
	struct shm_stream *t = shm_new(&p);

	if (!t)
		return NULL;
	t->s.connecting = true;
	t->cm = cm;
	return &t->s;
}

/* Gives the stream a slot on l and sends the request. The user may release the stream at
 * any time; then the slot is freed with it. */
static int request_send(struct stream *s, struct link *l, const char *name,
			const void *req, uint32_t len)
{
	struct rec_cm m = { .type = CM_REQ, .name_len = (uint8_t)strlen(name),
			      .len = len };
	int ret = link_slot_alloc(l, s);

	if (ret)
		return ret;
	stream_lock(s);
	if (s->state == STREAM_OPEN) {
		to_shm(s)->cm = SHM_CM_REQ_SENT;
		m.from = to_shm(s)->slot;
		m.share_id = s->share_id;
		ret = cm_send(l, &m, name, req);
		to_shm(s)->req_in_ring = link_tx_position(l, &to_shm(s)->req_end);
	}
	if (ret)
		stream_broken(s, ret, "no memory for the request");
	stream_unlock(s);
	return 0;
}

static void lookup_free(struct cm_lookup *lk)
{
	stream_put(lk->s);
	free(lk);
}

static void lookup_failed(struct cm_lookup *lk, int err)
{
	struct stream *s = lk->s;

	log_info("no link to a listener named %s: %s", lk->names.name[0], strerror(-err));
	stream_lock(s);
	stream_broken(s, -ENOLINK, "there is no shared memory with its peer");
	stream_unlock(s);
	lookup_free(lk);
}

/* The listener is not under this name: nobody listens there, or another user does, or the
 * process makes no link. It may be under the next name. */
static bool try_next_name(int err)
{
	return err == -ECONNREFUSED || err == -EPERM || err == -EAGAIN;
}

static void lookup_linked(struct link_wait *m, struct link *l, int err)
{
	struct cm_lookup *lk = container_of(m, struct cm_lookup, link_wait);
	struct stream *s = lk->s;
	const char *name = lk->names.name[lk->at];
	bool over;

	stream_lock(s);
	over = s->state != STREAM_OPEN;
	stream_unlock(s);
	if (!over && l)
		err = request_send(s, l, name, lk->req, lk->len);
	if (!over && l && !err) {
		route_put(lk->names.name[0], name, l);
		stream_lock(s);
		s->up_delivered = true;
		stream_up_post(s);
		stream_unlock(s);
		over = true;
	}
	if (l)
		link_put(l);
	if (over) {
		lookup_free(lk);
	} else if (!try_next_name(err) || ++lk->at == STREAM_NAMES ||
		   !lk->names.name[lk->at][0]) {
		lookup_failed(lk, err);
	} else {
		link_find_name(lk->names.name[lk->at], &lk->link_wait);
	}
}

static int lookup_start(struct stream *s, const struct stream_names *names,
			const void *req, uint32_t len)
{
	struct cm_lookup *lk = malloc(sizeof(*lk) + len);

	if (!lk)
		return -ENOMEM;
	lk->link_wait.done = lookup_linked;
	lk->s = s;
	lk->at = 0;
	lk->names = *names;
	lk->len = len;
	memcpy(lk->req, req, len);
	stream_get(s);
	link_find_name(lk->names.name[0], &lk->link_wait);
	return 0;
}

struct stream *stream_connect(const struct stream_names *names, const void *req,
			      size_t len, const struct stream_user *ops, void *user,
			      bool *sent)
{
	struct stream *s = len <= STREAM_REQUEST_MAX ? cm_stream_new(SHM_CM_LOOKUP) :
						       NULL;
	char name[STREAM_NAME_MAX + 1];
	struct link *l;
	int ret = -EPIPE;

	*sent = false;
	if (!s) {
		errno = len <= STREAM_REQUEST_MAX ? ENOMEM : EINVAL;
		return NULL;
	}
	s->ops = ops;
	s->user = user;
	s->user_gone = false;
	l = route_get(names->name[0], name);
	if (l) {
		to_shm(s)->by_route = true;
		ret = request_send(s, l, name, req, (uint32_t)len);
		link_put(l);
	}
	*sent = !ret;
	if (ret) {
		to_shm(s)->by_route = false;
		ret = lookup_start(s, names, req, (uint32_t)len);
	}
	if (!ret)
		return s;
	shm_drop(s);
	errno = -ret;
	return NULL;
}

/* The peer's slot is known, and frames may follow. */
static void reply_accepted(struct stream *s, const struct rec_cm *m)
{
	lock_assert_held(&s->lock);
	to_shm(s)->peer_slot = m->from;
	to_shm(s)->peer_share_id = m->share_id;
	to_shm(s)->peer_known = to_shm(s)->started = to_shm(s)->opened = true;
	to_shm(s)->cm = SHM_CM_NONE;
}

static void reply_refused(struct stream *s, enum cm_status status)
{
	int err = status == CM_BUSY	   ? -EBUSY :
		  status != CM_NO_LISTENER ? 0 :
		  to_shm(s)->by_route	   ? -ESTALE :
					     -ENOLINK;

	lock_assert_held(&s->lock);
	if (err == -ESTALE)
		shm_cm_routes_drop(to_shm(s)->l);
	stream_broken(s, err, "the request was refused");
}

static void reply_handle(struct stream *s, const struct rec_cm *m,
			 const volatile uint8_t *data)
{
	struct stream_reply *a;

	stream_lock(s);
	if (to_shm(s)->cm != SHM_CM_REQ_SENT)
		goto out; /* a second reply */
	if (m->status != CM_ACCEPTED) /* no LINK_CLOSE follows */
		to_shm(s)->closed_in = to_shm(s)->closed_out = true;
	if (s->state != STREAM_OPEN) { /* CM_CANCEL was sent */
		if (m->status == CM_ACCEPTED)
			close_send(to_shm(s)->l, m->from);
		goto out;
	}
	if (m->status == CM_ACCEPTED)
		reply_accepted(s, m);
	if (m->status > CM_REJECTED) {
		reply_refused(s, (enum cm_status)m->status);
		goto out;
	}
	a = malloc(sizeof(*a) + m->len);
	if (!a) {
		stream_broken(s, -ENOMEM, "no memory for the reply");
		goto out;
	}
	a->len = m->len;
	ring_read(a->data, data, m->len);
	s->reply = a;
	stream_up_post(s);
out:
	stream_unlock(s);
}

static int reply_receive(struct link *l, const struct rec_cm *m,
			 const volatile uint8_t *data)
{
	struct stream *s = link_slot_find(l, m->slot);

	lock_assert_held(&l->rx_lock);
	if (link_is_stream(s))
		reply_handle(s, m, data + m->name_len);
	else if (s && m->status == CM_ACCEPTED)
		close_send(l, m->from); /* the peer replies with LINK_CLOSE */
	else if (s)
		link_slot_closed(l, m->slot);
	return 0;
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

/* ---- passive side ---------------------------------------------------------------- */

static void listener_put(struct stream_listener *ln)
{
	if (atomic_fetch_sub_explicit(&ln->refs, 1, memory_order_acq_rel) != 1)
		return;
	ln->ops->released(ln->user);
	free(ln);
}

static struct stream_listener *listener_find(const uint8_t *name, size_t len)
{
	struct stream_listener *ln, *found = NULL;

	lock_get(&listeners.lock);
	list_for_each(ln, &listeners.head, node)
		if (strlen(ln->name) == len && !memcmp(ln->name, name, len)) {
			atomic_fetch_add_explicit(&ln->refs, 1, memory_order_relaxed);
			found = ln;
			break;
		}
	lock_put(&listeners.lock);
	return found;
}

struct stream_listener *stream_listen(int fd, const char *name,
				      const struct listener_user *ops, void *user)
{
	struct stream_listener *ln;
	int ret = -EOPNOTSUPP;

	if (conf_get()->transport == CONF_TRANSPORT_TCP ||
	    strlen(name) > STREAM_NAME_MAX) {
		errno = -ret;
		return NULL;
	}
	ln = calloc(1, sizeof(*ln));
	if (!ln)
		return NULL;
	atomic_init(&ln->refs, 1);
	ln->ops = ops;
	ln->user = user;
	strcpy(ln->name, name);
	lock_get(&listeners.lock);
	list_add_head(&listeners.head, &ln->node);
	lock_put(&listeners.lock);
	ret = link_listen_fd(fd, name);
	if (!ret)
		return ln;
	lock_get(&listeners.lock);
	list_del(&ln->node);
	lock_put(&listeners.lock);
	free(ln);
	errno = -ret;
	return NULL;
}

void stream_unlisten(struct stream_listener *ln)
{
	lock_get(&listeners.lock);
	list_del(&ln->node);
	lock_put(&listeners.lock);
	link_unlisten(ln->name);
	listener_put(ln);
}

static struct list *request_bucket(struct link *l, uint32_t from)
{
	return &l->requests[from % LINK_REQ_BUCKETS];
}

/* A reply is still to be sent. */
static bool request_waits(struct stream *s)
{
	bool waits;

	stream_lock(s);
	waits = to_shm(s)->cm == SHM_CM_REQ_RCVD && s->state == STREAM_OPEN &&
		!to_shm(s)->closed_out;
	stream_unlock(s);
	return waits;
}

/* The stream of the request from this slot of the peer that waits for its reply; or NULL.
 * Requests that do not wait any more are dropped on the way. So a bucket is walked over
 * few: those that wait have different slots (request_handle()), all below
 * LINK_SLOTS_MAX. The loop thread alone frees streams. */
static struct stream *request_find(struct link *l, uint32_t from)
{
	struct shm_stream *t, *tmp;
	struct stream *found = NULL;

	list_for_each_safe(t, tmp, request_bucket(l, from), request) {
		if (!request_waits(&t->s))
			list_del(&t->request);
		else if (t->peer_slot == from)
			found = &t->s;
	}
	return found;
}

/* Frees a stream that has no user. */
static void stream_discard(struct link *l, struct stream *s)
{
	list_del(&to_shm(s)->request);
	link_slot_free(l, to_shm(s)->slot, false);
	shm_drop(s);
	link_put(l);
}

/* A stream for the request; or NULL: no memory, no slot. */
static struct stream *request_stream(struct link *l, const struct cm_msg *msg)
{
	struct stream *s = cm_stream_new(SHM_CM_REQ_RCVD);

	if (!s)
		return NULL;
	to_shm(s)->peer_slot = msg->m.from;
	to_shm(s)->peer_share_id = msg->m.share_id;
	if (link_slot_alloc(l, s)) {
		shm_drop(s);
		return NULL;
	}
	list_add_tail(request_bucket(l, msg->m.from), &to_shm(s)->request);
	return s;
}

/* A slot is the stream's of one request, until that has its reply. */
static void second_request(struct link *l, uint32_t from)
{
	log_info("process %d: CM_REQ from slot %u, whose request waits already",
		 (int)l->peer_pid, from);
	lock_get(&l->rx_lock);
	l->bad = true;
	if (!l->dead)
		link_wake_thread(l);
	lock_put(&l->rx_lock);
}

static void request_handle(struct link *l, const struct cm_msg *msg)
{
	struct stream_listener *ln;
	struct stream *s;
	int ret;

	if (request_find(l, msg->m.from)) {
		second_request(l, msg->m.from);
		return;
	}
	ln = listener_find(msg->data, msg->m.name_len);
	s = ln ? request_stream(l, msg) : NULL;
	ret = ln ? -EBUSY : -ENOENT;
	if (s) {
		ret = ln->ops->incoming(ln->user, s, msg->data + msg->m.name_len,
					msg->m.len);
		if (ret)
			stream_discard(l, s);
	}
	if (ret)
		refusal_send(l, msg->m.from, ret == -EBUSY ? CM_BUSY : CM_NO_LISTENER,
			     NULL, 0);
	if (ln)
		listener_put(ln);
}

static void cancel_handle(struct link *l, const struct cm_msg *msg)
{
	struct stream *s = request_find(l, msg->m.from);

	if (!s)
		return; /* it has its reply */
	stream_lock(s);
	if (to_shm(s)->cm == SHM_CM_REQ_RCVD && s->state == STREAM_OPEN &&
	    !to_shm(s)->closed_out) {
		close_send(l, msg->m.from);
		to_shm(s)->closed_in = to_shm(s)->closed_out = true;
		stream_broken(s, 0, "the peer has cancelled its request");
	}
	stream_unlock(s);
}

/* Leaves a message to the loop thread. */
static int msg_queue(struct link *l, const struct rec_cm *m, const volatile uint8_t *data)
{
	size_t len = m->name_len + m->len;
	bool room = l->ncm_msgs < LINK_CM_REQS_MAX || m->type == CM_CANCEL;
	struct cm_msg *msg = room ? malloc(sizeof(*msg) + len) : NULL;

	lock_assert_held(&l->rx_lock);
	if (!msg) {
		if (m->type == CM_REQ)
			refusal_send(l, m->from, CM_BUSY, NULL, 0);
		return 0;
	}
	msg->m = *m;
	ring_read(msg->data, data, len);
	list_add_tail(&l->cm_msgs, &msg->node);
	l->ncm_msgs++;
	link_post_msgs(l);
	return l->ncm_msgs > LINK_CM_MSGS_MAX ? -EPROTO : 0;
}

/* ---- receiving ------------------------------------------------------------------- */

/* By enum cm_type. */
static const struct {
	const char *name;
	bool bare; /* neither name nor data may follow the struct */
	/* `data` is in the ring, behind m: ring_read(). rx_lock is held. 0 or -EPROTO. */
	int (*receive)(struct link *l, const struct rec_cm *m,
		       const volatile uint8_t *data);
	/* What msg_queue() has left to the loop thread. No lock. */
	void (*handle)(struct link *l, const struct cm_msg *msg);
} messages[] = {
	[CM_REQ] = { "REQ", false, msg_queue, request_handle },
	[CM_REP] = { "REP", false, reply_receive, NULL },
	[CM_CANCEL] = { "CANCEL", true, msg_queue, cancel_handle },
};

int shm_cm_receive(struct link *l, const volatile void *rec, uint32_t bytes,
		   bool by_thread)
{
	const volatile uint8_t *data = (const volatile uint8_t *)rec + sizeof(struct rec_cm);
	struct rec_cm m;

	(void)by_thread;
	lock_assert_held(&l->rx_lock);
	ring_read(&m, rec, sizeof(m));
	if (m.type >= sizeof(messages) / sizeof(messages[0]) || !messages[m.type].receive)
		return -EPROTO;
	if (m.from >= LINK_SLOTS_MAX) {
		log_info("CM_%s from slot %u, which cannot exist", messages[m.type].name,
			 m.from);
		return -EPROTO;
	}
	if (m.len > STREAM_REQUEST_MAX || m.name_len > STREAM_NAME_MAX ||
	    bytes != sizeof(m) + m.name_len + m.len ||
	    (messages[m.type].bare && bytes != sizeof(m))) {
		log_info("CM_%s has a wrong length", messages[m.type].name);
		return -EPROTO;
	}
	return messages[m.type].receive(l, &m, data);
}

void shm_cm_run(struct link *l)
{
	struct list *n;

	lock_get(&l->rx_lock);
	for (int i = 0; i < LINK_CM_TURN && !l->dead && (n = list_pop(&l->cm_msgs)); i++) {
		struct cm_msg *msg = list_entry(n, struct cm_msg, node);

		l->ncm_msgs--;
		lock_put(&l->rx_lock);
		messages[msg->m.type].handle(l, msg);
		free(msg);
		lock_get(&l->rx_lock);
	}
	if (!l->dead && !list_empty(&l->cm_msgs))
		link_post_msgs(l);
	lock_put(&l->rx_lock);
}

/* ---- replying -------------------------------------------------------------------- */

/* The stream gets its QP before the reply is sent: frames that the peer sends after the
 * reply find the QP. */
int stream_accept(struct stream *s, const struct stream_param *p, const void *rep,
		  size_t len)
{
	bool waiting;
	int ret;

	stream_lock(s);
	waiting = to_shm(s)->cm == SHM_CM_REQ_RCVD && s->state == STREAM_OPEN;
	if (waiting) {
		s->p = *p;
		s->connecting = false;
	}
	stream_unlock(s);
	if (!waiting)
		return -ECONNRESET;
	ret = shm_start(s, true);
	if (ret)
		return ret;
	stream_lock(s);
	if (s->state == STREAM_OPEN) {
		ret = acceptance_send(s, rep, len);
		to_shm(s)->cm = SHM_CM_NONE;
		to_shm(s)->peer_known = to_shm(s)->opened = true;
		tx_run(s);
	}
	stream_unlock(s);
	return ret;
}

void stream_reject(struct stream *s, const void *rej, size_t len)
{
	stream_lock(s);
	if (to_shm(s)->cm == SHM_CM_REQ_RCVD && s->state == STREAM_OPEN && len &&
	    !refusal_send(to_shm(s)->l, to_shm(s)->peer_slot, CM_REJECTED, rej, len))
		to_shm(s)->closed_in = to_shm(s)->closed_out = true;
	stream_unlock(s);
	stream_release(s);
}
