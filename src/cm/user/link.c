/* SPDX-License-Identifier: BSD-2-Clause */
/* A connection's messages over the memory that two processes of one host share, as
 * calls (dev/interface.h): no descriptor, no TCP. The request is preceded by the
 * address it is for, which TCP's socket would know:
 *
 *	0	struct sockaddr_in6, or struct sockaddr_in and zeros
 *	28	MPA request
 *
 * Where no listener is reached like this, the connection goes over TCP. */
#include "base/conf.h"
#include "base/log.h"
#include "cm/user/user.h"

#include <netinet/in.h>
#include <string.h>

enum {
	ADDR_LEN = sizeof(struct sockaddr_in6),
	BUSY_MS = 20, /* the listener has more requests than it can hold */
	NEWS_MS = 10,
};
_Static_assert(ADDR_LEN + (int)MPA_OURS_MAX <= (int)STREAM_REQUEST_MAX, "a request fits");

bool user_link_wanted(void)
{
	return conf_get()->transport != CONF_TRANSPORT_TCP && !conf_get()->ports_identity;
}

/* ---- active -------------------------------------------------------------------------- */

static void link_call(struct user_id *u)
{
	uint8_t req[STREAM_REQUEST_MAX] = { 0 };
	const struct sockaddr *dst = (struct sockaddr *)&u->dst;
	struct stream_names names;
	bool asked;

	lock_assert_held(&u->lock);
	memcpy(req, dst, sa_len(dst));
	memcpy(req + ADDR_LEN, u->nego->out, u->nego->out_len);
	port_names(u->ps, dst, &names);
	user_get(u);
	u->stream = cm_dev->stream_connect(&names, req, ADDR_LEN + u->nego->out_len,
					&user_upcalls, u, &asked);
	if (!u->stream) {
		int err = errno;

		user_put(u);
		user_failed(u, err);
	} else if (asked) {
		u->heard = true;
		user_called(u);
	}
}

static void up_asked(struct user_id *u) REQUIRES(u->lock)
{
	if (u->state != US_CONNECTING)
		return;
	u->heard = true;
	user_called(u);
}

void user_link_asked(void *user)
{
	struct user_id *u = user;

	lock_get(&u->lock);
	if (!u->dead)
		up_asked(u);
	lock_put(&u->lock);
}

void user_link_answer(void *user, const uint8_t *data, size_t len)
{
	struct user_id *u = user;
	struct mpa_frame f;

	lock_get(&u->lock);
	if (!u->dead) {
		up_asked(u);
		if (u->state != US_AWAIT_REP)
			; /* given up meanwhile */
		else if (mpa_decode(data, len, &f) == (int)len)
			user_answered(u, &f);
		else
			user_foreign(u, "its answer is no MPA reply");
	}
	lock_put(&u->lock);
}

/* Asks again: over TCP, or after a pause. */
static void call_again(struct user_id *u, int err) REQUIRES(u->lock)
{
	u->heard = false;
	if (u->state == US_AWAIT_REP)
		user_step(u, ST_RECALL);
	if (err == -EBUSY) {
		u->pausing = true;
		user_timer_set(u, BUSY_MS);
		return;
	}
	/* Who has died without the request may have a successor. */
	if (err == -ENOLINK)
		u->wire = &user_wire_tcp;
	u->wire->call(u);
}

enum user_after user_link_closed(struct user_id *u, int err)
{
	switch (u->state) {
	case US_CONNECTING:
	case US_AWAIT_REP:
		user_stream_release(u);
		if (err == -ENOLINK || err == -ESTALE || err == -EPIPE || err == -EBUSY)
			call_again(u, err);
		else
			user_failed(u, err ? -err : ENOTCONN);
		return AFTER_NONE;
	case US_REQ_RCVD:
		return user_hung_up(u, "the peer has gone");
	default:
		user_gone(u, err);
		return AFTER_NONE;
	}
}

static int link_open(struct user_id *u)
{
	struct stream_param p;
	int ret;

	lock_assert_held(&u->lock);
	user_wire_tcp.close(u); /* of an earlier attempt */
	user_stream_param(u, &p);
	ret = cm_dev->stream_opened(u->stream, &p);
	if (ret)
		user_stream_release(u);
	return ret;
}

/* ---- passive -------------------------------------------------------------------------- */

static int link_accept(struct user_id *u, const uint8_t *rep, size_t len)
{
	struct stream_param p;
	int ret;

	lock_assert_held(&u->lock);
	user_stream_param(u, &p);
	ret = cm_dev->stream_accept(u->stream, &p, rep, len);
	if (ret)
		user_stream_release(u);
	return ret == -ECONNRESET ? -EINVAL : ret;
}

static void link_reject(struct user_id *u, const uint8_t *rej, size_t len)
{
	lock_assert_held(&u->lock);
	if (u->stream)
		cm_dev->stream_reject(u->stream, rej, len);
	u->stream = NULL;
	user_timer_stop(u);
}

static int link_hold(struct user_id *u)
{
	(void)u; /* the link tells that we are there */
	return 0;
}

static void link_close(struct user_id *u)
{
	lock_assert_held(&u->lock);
	user_stream_release(u);
	user_wire_tcp.close(u);
}

static void link_expire(struct user_id *u)
{
	(void)u;
}

static enum user_after link_look(struct user_id *u)
{
	lock_assert_held(&u->lock);
	if (u->stream && cm_dev->stream_has_news(u->stream))
		user_timer_set(u, NEWS_MS);
	return AFTER_NONE;
}

const struct user_wire user_wire_link = {
	.call = link_call,
	.open = link_open,
	.accept = link_accept,
	.reject = link_reject,
	.hold = link_hold,
	.close = link_close,
	.expire = link_expire,
	.look = link_look,
};

/* ---- the listener's side ----------------------------------------------------------------- */

static bool request_addr(struct user_id *lis, const uint8_t *req, struct sockaddr_storage *ss)
{
	struct sockaddr *sa = (struct sockaddr *)ss;

	memset(ss, 0, sizeof(*ss));
	memcpy(ss, req, ADDR_LEN);
	if (!sa_len(sa) || cm_dev->gid_of_addr(sa) < 0)
		return false;
	sa_set_port(sa, lis->port.num);
	return true;
}

static int incoming(void *user, struct stream *s, const uint8_t *req, size_t len)
{
	struct user_id *lis = user, *u;
	enum user_after after = AFTER_NONE;
	struct sockaddr_storage to;
	struct mpa_frame f;
	int ret;

	if (len <= ADDR_LEN || !request_addr(lis, req, &to) ||
	    mpa_decode(req + ADDR_LEN, len - ADDR_LEN, &f) != (int)len - ADDR_LEN)
		return -EPROTO;
	ret = user_listener_call(lis, &to, &u);
	if (ret)
		return ret;
	lock_get(&u->lock);
	if (u->dead) {
		ret = -ENOENT;
	} else {
		u->stream = s;
		user_get(u);
		cm_dev->stream_adopt(s, &user_upcalls, u);
		after = user_requested(u, &f);
	}
	lock_put(&u->lock);
	user_after(u, after);
	user_put(u);
	return ret;
}

static void released(void *user)
{
	user_put(user);
}

static const struct listener_user callee = { .incoming = incoming, .released = released };

/* Without it the listener has TCP alone. */
void user_link_listen(struct user_id *u)
{
	if (!user_link_wanted())
		return;
	user_get(u);
	u->lis->calls = cm_dev->stream_listen(u->port.name_fd, u->port.name, &callee, u);
	if (u->lis->calls)
		return;
	log_info("RDMA port %u: no calls over shared memory: %s", u->port.num,
		 strerror(errno));
	user_put(u);
}
