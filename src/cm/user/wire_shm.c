/* SPDX-License-Identifier: BSD-2-Clause */
/* The wire over the memory that two processes of one host share: no descriptor, no TCP.
 * dev/interface.h carries the messages, and has a stream from the request on. The
 * request is preceded by the address it is for, which a TCP socket would know:
 *
 *	0	struct sockaddr_in6, or struct sockaddr_in and zeros
 *	28	MPA request */
#include "base/conf.h"
#include "base/log.h"
#include "cm/user/user.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

enum {
	ADDR_LEN = sizeof(struct sockaddr_in6),
	NEWS_MS = 10,
};
_Static_assert(ADDR_LEN + (int)MPA_OURS_MAX <= (int)STREAM_REQUEST_MAX, "a request fits");

/* The user of the stream, for as long as the stream has one: it outlives the wire. */
struct shm_wire {
	struct user_wire head; /* .id: counted until released() */
	struct stream *stream; /* the id's lock; not ours any more once the wire has ended */
};

struct shm_listener {
	struct user_wire_listener head; /* .id: counted until released() */
	struct stream_listener *requests;
};

extern const struct user_wire_ops user_wire_shm;

static bool shm_used(void)
{
	return conf_get()->transport != CONF_TRANSPORT_TCP && !conf_get()->ports_identity;
}

static struct shm_wire *to_shm(struct user_wire *w)
{
	return container_of(w, struct shm_wire, head);
}

/* The wire, as the user of a stream. The stream's reference on the id begins. */
static struct shm_wire *wire_new(struct user_id *u)
{
	struct shm_wire *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->head.ops = &user_wire_shm;
	w->head.id = u;
	user_get(u);
	return w;
}

static void wire_free(struct shm_wire *w)
{
	user_put(w->head.id);
	free(w);
}

/* The wire ends; the caller has the stream. */
static struct stream *wire_end(struct user_id *u) REQUIRES(u->lock)
{
	struct stream *s = to_shm(u->wire)->stream;

	u->wire = NULL;
	return s;
}

static void shm_close(struct user_id *u)
{
	lock_assert_held(&u->lock);
	cm_dev->stream_release(wire_end(u));
}

/* ---- upcalls of the stream: loop thread, no lock held ---------------------------- */

static void up_request_sent(void *user)
{
	struct shm_wire *w = user;
	struct user_id *u = w->head.id;

	lock_get(&u->lock);
	if (u->wire == &w->head && u->state == US_CONNECTING)
		user_req_sent(u, true);
	lock_put(&u->lock);
}

static void up_reply(void *user, const uint8_t *data, size_t len)
{
	struct shm_wire *w = user;
	struct user_id *u = w->head.id;
	struct mpa_frame f;

	lock_get(&u->lock);
	if (u->wire == &w->head) {
		if (u->state == US_CONNECTING)
			user_req_sent(u, true);
		if (mpa_decode(data, len, &f) == (int)len)
			user_got_reply(u, &f);
		else
			user_foreign(u, "its answer is no MPA reply");
	}
	lock_put(&u->lock);
}

static void up_control(void *user, enum stream_ctl type, const uint8_t *data, size_t len)
{
	struct shm_wire *w = user;

	user_stream_control(w->head.id, type, data, len);
}

/* Before the stream was open. */
static enum user_todo closed_early(struct user_id *u, int err) REQUIRES(u->lock)
{
	if (u->state == US_REQ_RCVD)
		return user_request_cancelled(u, "the peer has gone");
	switch (err) {
	case -ENOLINK:
		user_wire_failed(u, WIRE_NO_LISTENER);
		break;
	case -ESTALE:
	case -EPIPE: /* who has ended without the request may have a successor */
		user_wire_failed(u, WIRE_PEER_ENDED);
		break;
	case -EBUSY:
		user_wire_failed(u, WIRE_BUSY);
		break;
	default:
		user_connect_failed(u, err ? -err : ENOTCONN);
		break;
	}
	return TODO_NOTHING;
}

static void up_closed(void *user, int err)
{
	struct shm_wire *w = user;
	struct user_id *u = w->head.id;
	enum user_todo todo = TODO_NOTHING;
	bool early;

	lock_get(&u->lock);
	early = u->wire == &w->head;
	if (early)
		todo = closed_early(u, err);
	lock_put(&u->lock);
	if (early)
		user_listener_do(u, todo);
	else
		user_stream_closed(u, err);
}

static void up_released(void *user)
{
	wire_free(user);
}

static const struct stream_user upcalls = {
	.delivered = up_request_sent,
	.reply = up_reply,
	.control = up_control,
	.closed = up_closed,
	.released = up_released,
};

/* ---- active ---------------------------------------------------------------------- */

static bool shm_can_connect(const struct user_id *u)
{
	return shm_used() && cm_dev->gid_device((const struct sockaddr *)&u->dst) >= 0;
}

static void shm_connect(struct user_id *u)
{
	uint8_t req[STREAM_REQUEST_MAX] = { 0 };
	const struct sockaddr *dst = (struct sockaddr *)&u->dst;
	struct shm_wire *w = wire_new(u);
	struct stream_names names;
	bool sent = false;
	int err = ENOMEM;

	lock_assert_held(&u->lock);
	if (w) {
		memcpy(req, dst, sa_len(dst));
		memcpy(req + ADDR_LEN, u->req->frame, u->req->len);
		port_names(u->ps, dst, &names);
		w->stream = cm_dev->stream_connect(&names, req, ADDR_LEN + u->req->len,
						   &upcalls, w, &sent);
		err = errno;
	}
	if (w && !w->stream) {
		wire_free(w);
		w = NULL;
	}
	if (!w) {
		user_connect_failed(u, err);
		return;
	}
	u->wire = &w->head;
	if (sent)
		user_req_sent(u, true);
}

static int shm_open_stream(struct user_id *u)
{
	struct stream_param p;
	struct stream *s;
	int ret;

	lock_assert_held(&u->lock);
	s = wire_end(u);
	user_stream_param(u, &p);
	ret = cm_dev->stream_opened(s, &p);
	if (ret)
		cm_dev->stream_release(s);
	else
		u->stream = s;
	return ret;
}

/* ---- passive --------------------------------------------------------------------- */

static int shm_attach(struct user_id *child, void *from)
{
	struct shm_wire *w = wire_new(child);

	lock_assert_held(&child->lock);
	if (!w)
		return -ENOMEM;
	w->stream = from;
	child->wire = &w->head;
	cm_dev->stream_adopt(w->stream, &upcalls, w);
	return 0;
}

/* The sender knows that its request is there: it is in our memory. */
static int shm_ack_request(struct user_id *u)
{
	(void)u;
	return 0;
}

static int shm_accept(struct user_id *u, const uint8_t *rep, size_t len)
{
	struct stream_param p;
	struct stream *s;
	int ret;

	lock_assert_held(&u->lock);
	s = wire_end(u);
	user_stream_param(u, &p);
	ret = cm_dev->stream_accept(s, &p, rep, len);
	if (ret)
		cm_dev->stream_release(s);
	else
		u->stream = s;
	return ret == -ECONNRESET ? -EINVAL : ret;
}

static void shm_reject(struct user_id *u, const uint8_t *rej, size_t len)
{
	lock_assert_held(&u->lock);
	cm_dev->stream_reject(wire_end(u), rej, len);
}

static enum user_todo shm_poll(struct user_id *u)
{
	lock_assert_held(&u->lock);
	if (cm_dev->stream_has_news(to_shm(u->wire)->stream))
		user_timer_set(u, NEWS_MS);
	return TODO_NOTHING;
}

/* ---- the listener's side --------------------------------------------------------- */

static bool request_addr(const uint8_t *req, struct sockaddr_storage *ss)
{
	struct sockaddr *sa = (struct sockaddr *)ss;

	memset(ss, 0, sizeof(*ss));
	memcpy(ss, req, ADDR_LEN);
	return sa_len(sa) && cm_dev->gid_device(sa) >= 0;
}

/* Loop thread, no lock held. */
static int up_incoming(void *user, struct stream *s, const uint8_t *req, size_t len)
{
	struct shm_listener *l = user;
	struct mpa_frame f;
	struct user_incoming in = { .wire = &user_wire_shm, .from = s, .frame = &f };
	int ret;

	if (len <= ADDR_LEN || !request_addr(req, &in.src) ||
	    mpa_decode(req + ADDR_LEN, len - ADDR_LEN, &f) != (int)len - ADDR_LEN)
		return -EPROTO;
	in.dst = in.src; /* the scope of both is one; the request has the rest */
	ret = user_listener_room(l->head.id);
	return ret ? ret : user_listener_request(l->head.id, &in);
}

/* Any thread: the last upcall. */
static void up_unlistened(void *user)
{
	struct shm_listener *l = user;

	user_put(l->head.id);
	free(l);
}

static const struct listener_user listener_upcalls = {
	.incoming = up_incoming,
	.released = up_unlistened,
};

static int shm_listen(struct user_id *u, struct user_wire_listener **out)
{
	struct shm_listener *l;
	int err = ENOMEM;

	lock_assert_held(&u->lock);
	*out = NULL;
	if (!shm_used())
		return 0;
	l = calloc(1, sizeof(*l));
	if (l) {
		l->head.ops = &user_wire_shm;
		l->head.id = u;
		user_get(u);
		l->requests = cm_dev->stream_listen(u->port.name_fd, u->port.name,
						    &listener_upcalls, l);
		err = errno;
	}
	if (l && l->requests) {
		*out = &l->head;
		return 0;
	}
	log_info("RDMA port %u: no requests over shared memory: %s", u->port.num,
		 strerror(err));
	if (l)
		up_unlistened(l);
	return -err;
}

static void shm_unlisten(struct user_wire_listener *l)
{
	cm_dev->stream_unlisten(container_of(l, struct shm_listener, head)->requests);
}

const struct user_wire_ops user_wire_shm = {
	.name = "shm",
	.can_connect = shm_can_connect,
	.connect = shm_connect,
	.open = shm_open_stream,
	.attach = shm_attach,
	.ack_request = shm_ack_request,
	.accept = shm_accept,
	.reject = shm_reject,
	.close = shm_close,
	.poll = shm_poll,
	.listen = shm_listen,
	.unlisten = shm_unlisten,
};
