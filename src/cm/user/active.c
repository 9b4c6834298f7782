/* SPDX-License-Identifier: BSD-2-Clause */
/* The active side until its stream is open: from rdma_connect to the reply. A wire
 * (wire.h) brings the messages. */
#include "base/conf.h"
#include "base/log.h"
#include "cm/user/user.h"

#include <stdlib.h>
#include <string.h>

enum { RETRIES = 8 };

static const char *peer_str(struct user_id *u, char buf[PORT_ADDR_STR])
{
	return sa_str((struct sockaddr *)&u->dst, buf);
}

/* The RDMA port can exist: it has a TCP port. */
static bool dst_valid(const struct user_id *u)
{
	uint16_t port = sa_port((const struct sockaddr *)&u->dst);

	return port && port_to_tcp(port, conf_get()->ports_identity) > 0;
}

void user_timer_give_up(struct user_id *u)
{
	uint64_t now = user_now();

	lock_assert_held(&u->lock);
	user_timer_set(u, u->give_up_at > now ? (u->give_up_at - now) / MSEC : 0);
}

/* ---- the end without a connection ------------------------------------------------ */

static void rejected(struct user_id *u, int reason, const void *priv, size_t len)
	REQUIRES(u->lock)
{
	user_step(u, ST_REJECTED);
	user_timer_stop(u);
	user_wire_close(u);
	user_post_rejected(u, reason, priv, len);
}

void user_unreachable(struct user_id *u, int err)
{
	char a[PORT_ADDR_STR];

	lock_assert_held(&u->lock);
	log_info("connection to %s: unreachable: %s", peer_str(u, a), strerror(err));
	user_step(u, ST_FAIL);
	user_timer_stop(u);
	user_wire_close(u);
	user_post(u, RDMA_CM_EVENT_UNREACHABLE, -err);
}

void user_foreign(struct user_id *u, const char *why)
{
	char a[PORT_ADDR_STR];
	int tcp = port_to_tcp(sa_port((struct sockaddr *)&u->dst),
			      conf_get()->ports_identity);

	lock_assert_held(&u->lock);
	log_warn("connection to %s: its TCP port %d is held by another program: %s",
		 peer_str(u, a), tcp, why);
	rejected(u, CM_REJ_NO_LISTENER, NULL, 0);
}

void user_retry_later(struct user_id *u, uint64_t ms)
{
	lock_assert_held(&u->lock);
	u->retry_pending = true;
	user_timer_set(u, ms);
}

/* A listener may be about to come: a server that makes a new one for each client
 * (perftest -R) is without one for a moment. The kernel's CM is so slow that no client
 * meets that moment there; here the client tries again for RETRIES times, 255 ms in
 * all, before it believes it. */
static bool retry(struct user_id *u) REQUIRES(u->lock)
{
	if (u->state != US_CONNECTING || u->retries == RETRIES || !dst_valid(u))
		return false;
	user_wire_close(u);
	user_retry_later(u, 1u << u->retries++);
	return true;
}

void user_connect_failed(struct user_id *u, int err)
{
	char a[PORT_ADDR_STR];

	lock_assert_held(&u->lock);
	if (err == ECONNREFUSED && retry(u))
		return;
	if (err != ECONNREFUSED && err != ECONNRESET && err != ENOTCONN && err != EPIPE) {
		user_unreachable(u, err);
		return;
	}
	/* One of ours had the request: it died with it. */
	log_info("connection to %s: %s", peer_str(u, a),
		 err == ECONNREFUSED ? "no listener on that port" :
				       "the peer closed it without an answer");
	rejected(u, u->req_acked ? CM_REJ_CONSUMER : CM_REJ_NO_LISTENER, NULL, 0);
}

/* ---- request and reply ----------------------------------------------------------- */

void user_req_sent(struct user_id *u, bool acked)
{
	uint64_t reply = conf_get()->cm_reply_ms * MSEC, now = user_now();

	lock_assert_held(&u->lock);
	u->req_acked = acked;
	u->sent_at = now;
	user_step(u, ST_REQ_SENT);
	if (!acked && now + reply < u->give_up_at)
		user_timer_set(u, reply / MSEC);
	else
		user_timer_give_up(u);
}

void user_req_acked(struct user_id *u)
{
	lock_assert_held(&u->lock);
	u->req_acked = true;
	user_timer_give_up(u);
}

static void open_stream(struct user_id *u, const void *priv, size_t len) REQUIRES(u->lock)
{
	int ret;

	user_timer_stop(u);
	ret = u->wire->ops->open(u);
	if (ret) {
		log_info("no stream for the connection: %s", strerror(-ret));
		user_step(u, ST_FAIL);
		user_post(u, RDMA_CM_EVENT_CONNECT_ERROR, ret);
		return;
	}
	user_step(u, ST_REP);
	user_post_response(u, priv, len);
	free(u->req);
	u->req = NULL;
}

/* The frame may be in memory of the wire, which ends before the event is posted. */
void user_got_reply(struct user_id *u, const struct mpa_frame *f)
{
	uint8_t priv[UINT8_MAX], len = 0;
	const uint8_t *data = NULL;
	enum user_reply reply;
	uint16_t reason = 0;
	char a[PORT_ADDR_STR];

	lock_assert_held(&u->lock);
	reply = user_rep_parse(u, f, &data, &len, &reason);
	if (len)
		memcpy(priv, data, len);
	switch (reply) {
	case USER_REPLY_FOREIGN:
		user_foreign(u, "it answered something else");
		break;
	case USER_REPLY_REJ:
		log_info("connection to %s: rejected, reason %u", peer_str(u, a), reason);
		rejected(u, reason, priv, len);
		break;
	case USER_REPLY_REP:
		open_stream(u, priv, len);
		break;
	}
}

/* ---- rdma_connect ---------------------------------------------------------------- */

static int connect_check(struct user_id *u, const struct cm_conn_param *p)
	REQUIRES(u->lock)
{
	int max = user_is_ud(u) ? SIDR_PRIV_REQ : CM_PRIV_REQ;

	if (u->state == US_REMOVED)
		return -ENXIO;
	if (user_state_next(u->state, ST_CONNECT) < 0)
		return log_refuse(EINVAL, "connect is refused: the id is in state %s",
				  user_state_str(u->state));
	if (u->qp_type != IBV_QPT_RC && conf_get()->ports_identity)
		return log_refuse(EOPNOTSUPP, "connect: iWARP has no QPs of type %d",
				  (int)u->qp_type);
	if (p->private_data_len > max)
		return log_refuse(EINVAL, "connect: %u bytes of private data, at most %d fit",
				  p->private_data_len, max);
	return 0;
}

static void start(struct user_id *u) REQUIRES(u->lock)
{
	const struct conf *c = conf_get();

	u->give_up_at = user_now() + c->cm_retry_ms * (c->cm_retries + 1ull) * MSEC;
	if (dst_valid(u))
		user_wire_connect(u);
	else if (user_is_ud(u))
		user_sidr_refused(u);
	else
		user_connect_failed(u, ECONNREFUSED);
}

int user_connect(struct cm_id *id, const struct cm_conn_param *p)
{
	struct user_id *u = to_user(id);
	int ret;

	lock_get(&u->lock);
	ret = connect_check(u, p);
	if (!ret)
		ret = user_event_reserve(u, USER_EVENT_CONN);
	if (!ret && !u->req) {
		u->req = calloc(1, sizeof(*u->req));
		if (!u->req)
			ret = -ENOMEM;
	}
	if (!ret && user_is_ud(u))
		user_sidr_req_build(u, p);
	else if (!ret)
		ret = user_req_build(u, p);
	if (!ret) {
		port_close_tcp(&u->port);
		user_step(u, ST_CONNECT);
		start(u);
	}
	lock_put(&u->lock);
	return ret;
}

/* ---- time ------------------------------------------------------------------------ */

void user_connecting_timeout(struct user_id *u)
{
	lock_assert_held(&u->lock);
	if (u->retry_pending && user_now() < u->give_up_at) {
		u->retry_pending = false;
		user_wire_connect(u);
	} else {
		user_unreachable(u, ETIMEDOUT);
	}
}

/* Until when (ns) a peer that has sent nothing may still be one of ours that does not
 * run: stopped, or swapped out. On this host its name tells; on another one time alone
 * can. */
static uint64_t silence_ends(struct user_id *u) REQUIRES(u->lock)
{
	const struct sockaddr *dst = (struct sockaddr *)&u->dst;
	uint64_t reply = conf_get()->cm_reply_ms * MSEC;

	if (u->req_acked)
		return u->give_up_at;
	if (conf_get()->ports_identity || cm_dev->gid_device(dst) < 0)
		return u->sent_at + USER_REPLY_REMOTE * reply;
	return port_owned(u->ps, dst, sa_port(dst)) ? u->give_up_at : u->sent_at + reply;
}

void user_await_rep_timeout(struct user_id *u)
{
	uint64_t now = user_now(), until;

	lock_assert_held(&u->lock);
	if (user_is_ud(u)) {
		user_sidr_timeout(u);
		return;
	}
	until = silence_ends(u);
	if (until > u->give_up_at)
		until = u->give_up_at;
	if (now < until)
		user_timer_set(u, (until - now) / MSEC + 1);
	else if (now >= u->give_up_at || conf_get()->ports_identity)
		user_unreachable(u, ETIMEDOUT);
	else
		user_foreign(u, "it does not answer");
}
