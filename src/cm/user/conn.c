/* SPDX-License-Identifier: BSD-2-Clause */
/* What a connection does until its stream is open, both sides: from rdma_connect, or
 * the first sign of a peer, to the whole request or reply. A wire (wire.h) brings the
 * messages.
 *
 * The one timer of an id, by state:
 *	CONNECTING	nobody there to ask: UNREACHABLE; or a pause after a refusal
 *	AWAIT_REP	5 s (another host: 15 s) without even the key of a reply:
 *			held by another program, REJECTED 8; after the key, or
 *			when the port has an owner of ours on this host:
 *			UNREACHABLE at the end of the CM's retries
 *	AWAIT_REQ	10 s for a whole request
 *	REQ_RCVD	first: the application is slow, tell the peer (hold);
 *			then, while above the backlog: offer it again
 *	REP_SENT	no RTU: UNREACHABLE
 *	DREQ_SENT	no DREP: DISCONNECTED -ETIMEDOUT
 *	TIMEWAIT	TIMEWAIT_EXIT
 *	LISTEN		accept again after a shortage
 *	CLOSED, DEAD	the wire's, to end a reject that the peer does not take */
#include "base/conf.h"
#include "base/log.h"
#include "cm/user/user.h"

#include <stdlib.h>
#include <string.h>

enum { REFUSALS = 8 };

void user_after(struct user_id *u, enum user_after after)
{
	if (after == AFTER_OFFER)
		user_listener_offer(u->listener, u);
	else if (after == AFTER_FORGET)
		user_listener_forget(u->listener, u);
	else if (after == AFTER_LISTENER)
		user_listener_timeout(u);
}

static const char *peer_str(struct user_id *u, char buf[PORT_ADDR_STR])
{
	return sa_str((struct sockaddr *)&u->dst, buf);
}

static uint64_t retry_time_ms(void)
{
	const struct conf *c = conf_get();

	return (uint64_t)c->cm_retry_ms * (c->cm_retries + 1ull);
}

/* The timer for the rest of the time that the peer has. */
static void timer_final(struct user_id *u) REQUIRES(u->lock)
{
	uint64_t now = user_now();

	user_timer_set(u, u->final > now ? (u->final - now) / MSEC : 0);
}

void user_let_go(struct user_id *u)
{
	user_unexpect(u);
	user_stream_release(u);
	u->wire->close(u);
	if (!u->lingering)
		user_timer_stop(u);
}

void user_reject_request(struct user_id *u, uint16_t reason, const void *data, uint8_t len)
{
	uint8_t rej[MPA_OURS_MAX];
	int n = user_rej_build(u, reason, data, len, rej, sizeof(rej));

	user_unexpect(u);
	u->wire->reject(u, rej, n > 0 ? (size_t)n : 0);
}

void user_unexpect(struct user_id *u)
{
	if (u->expected)
		cm_dev->stream_unexpect(&u->conn.remote_gid, u->conn.remote_qpn);
	u->expected = false;
}

/* ---- active ------------------------------------------------------------------------- */

static void active_rejected(struct user_id *u, int reason, const void *priv, size_t len)
	REQUIRES(u->lock)
{
	user_step(u, ST_REJECTED);
	user_timer_stop(u);
	u->wire->close(u);
	user_post_rejected(u, reason, priv, len);
}

void user_unreachable(struct user_id *u, int err)
{
	char a[PORT_ADDR_STR];

	log_info("connection to %s: unreachable: %s", peer_str(u, a), strerror(err));
	user_step(u, ST_FAIL);
	user_timer_stop(u);
	u->wire->close(u);
	user_post(u, RDMA_CM_EVENT_UNREACHABLE, -err);
}

/* A listener may be about to come: a server that makes a new one for each client
 * (perftest -R) is without one for a moment. The kernel's CM is so slow that nobody
 * meets that moment there; here the client asks again for REFUSALS times, 255 ms in
 * all, before it believes it. */
static bool refused_for_now(struct user_id *u) REQUIRES(u->lock)
{
	if (u->state != US_CONNECTING || !u->callable || u->refusals == REFUSALS)
		return false;
	u->pausing = true;
	user_timer_set(u, 1u << u->refusals++);
	return true;
}

void user_failed(struct user_id *u, int err)
{
	char a[PORT_ADDR_STR];

	if (err == ECONNREFUSED && refused_for_now(u))
		return;
	if (err != ECONNREFUSED && err != ECONNRESET && err != ENOTCONN && err != EPIPE) {
		user_unreachable(u, err);
		return;
	}
	/* One of ours held the request: it died with it. */
	log_info("connection to %s: %s", peer_str(u, a),
		 err == ECONNREFUSED ? "no listener on that port" :
				       "the peer closed it without an answer");
	active_rejected(u, u->heard ? CM_REJ_CONSUMER : CM_REJ_NO_LISTENER, NULL, 0);
}

void user_foreign(struct user_id *u, const char *why)
{
	char a[PORT_ADDR_STR];
	int tcp = port_to_tcp(sa_port((struct sockaddr *)&u->dst),
			      conf_get()->ports_identity);

	log_warn("connection to %s: its TCP port %d is held by another program: %s",
		 peer_str(u, a), tcp, why);
	active_rejected(u, CM_REJ_NO_LISTENER, NULL, 0);
}

void user_called(struct user_id *u)
{
	uint64_t now = user_now(), left = u->final > now ? (u->final - now) / MSEC : 0;
	uint64_t reply = conf_get()->cm_reply_ms;

	u->born = now;
	user_step(u, ST_CALLED);
	user_timer_set(u, reply < left && !u->heard ? reply : left);
}

void user_heard(struct user_id *u)
{
	u->heard = true;
	timer_final(u);
}

void user_answered(struct user_id *u, const struct mpa_frame *f)
{
	const uint8_t *priv = NULL;
	uint8_t len = 0;
	uint16_t reason = 0;
	char a[PORT_ADDR_STR];
	int ret;

	switch (user_rep_parse(u, f, &priv, &len, &reason)) {
	case USER_ANSWER_FOREIGN:
		user_foreign(u, "it answered something else");
		return;
	case USER_ANSWER_REJ:
		log_info("connection to %s: rejected, reason %u", peer_str(u, a), reason);
		active_rejected(u, reason, priv, len);
		return;
	case USER_ANSWER_REP:
		break;
	}
	user_timer_stop(u);
	ret = u->wire->open(u);
	if (ret) {
		log_info("no stream for the connection: %s", strerror(-ret));
		user_step(u, ST_FAIL);
		user_post(u, RDMA_CM_EVENT_CONNECT_ERROR, ret);
		return;
	}
	user_step(u, ST_REP);
	user_post_response(u, priv, len);
	free(u->nego);
	u->nego = NULL;
}

/* The nearest way first; a wire that does not find its way hands over to the next. */
static void call(struct user_id *u) REQUIRES(u->lock)
{
	u->wire = user_link_wanted() && cm_dev->gid_of_addr((struct sockaddr *)&u->dst) >= 0 ?
			  &user_wire_link :
			  &user_wire_tcp;
	u->wire->call(u);
}

static void active_start(struct user_id *u) REQUIRES(u->lock)
{
	uint16_t port = sa_port((struct sockaddr *)&u->dst);

	u->final = user_now() + retry_time_ms() * MSEC;
	u->callable = port && port_to_tcp(port, conf_get()->ports_identity) > 0;
	timer_final(u);
	if (u->callable)
		call(u);
	else
		user_failed(u, ECONNREFUSED);
}

static int connect_check(struct user_id *u, const struct cm_conn_param *p)
	REQUIRES(u->lock)
{
	if (u->state == US_REMOVED)
		return -ENXIO;
	if (user_state_next(u->state, ST_CONNECT) < 0)
		return log_refuse(EINVAL, "connect is refused: the id is in state %s",
				  user_state_str(u->state));
	if (u->qp_type == IBV_QPT_UD || u->ps == RDMA_PS_UDP || u->ps == RDMA_PS_IPOIB)
		return log_refuse(EOPNOTSUPP, "connect: datagram port spaces come later");
	if (u->qp_type != IBV_QPT_RC && conf_get()->ports_identity)
		return log_refuse(EOPNOTSUPP, "connect: iWARP has no QPs of type %d",
				  (int)u->qp_type);
	if (p->private_data_len > CM_PRIV_REQ)
		return log_refuse(EINVAL, "connect: %u bytes of private data, at most %d fit",
				  p->private_data_len, CM_PRIV_REQ);
	return 0;
}

int user_connect(struct cm_id *id, const struct cm_conn_param *p)
{
	struct user_id *u = to_user(id);
	int ret;

	lock_get(&u->lock);
	ret = connect_check(u, p);
	if (!ret && !u->nego) {
		u->nego = calloc(1, sizeof(*u->nego));
		if (!u->nego)
			ret = -ENOMEM;
	}
	if (!ret)
		ret = user_req_build(u, p);
	if (!ret) {
		port_drop_tcp(&u->port);
		user_step(u, ST_CONNECT);
		active_start(u);
	}
	lock_put(&u->lock);
	return ret;
}

/* ---- passive -------------------------------------------------------------------------- */

enum user_after user_dropped(struct user_id *u, const char *why)
{
	char a[PORT_ADDR_STR];

	log_info("connection from %s is dropped: %s", peer_str(u, a), why);
	user_step(u, ST_FAIL);
	user_unexpect(u);
	user_timer_stop(u);
	u->wire->close(u);
	return AFTER_FORGET;
}

enum user_after user_requested(struct user_id *u, const struct mpa_frame *f)
{
	uint16_t reason;
	char a[PORT_ADDR_STR];

	if (user_req_parse(u, f, &reason)) {
		if (!reason)
			return user_dropped(u, "its MPA request is not one of ours");
		log_info("request from %s is rejected, reason %u", peer_str(u, a), reason);
		user_step(u, ST_REJECT);
		user_reject_request(u, reason, NULL, 0);
		return AFTER_FORGET;
	}
	user_step(u, ST_REQ);
	u->bound = true;
	user_timer_set(u, conf_get()->cm_reply_ms / 5);
	return AFTER_OFFER;
}

enum user_after user_hung_up(struct user_id *u, const char *why)
{
	char a[PORT_ADDR_STR];

	log_info("connection from %s: %s before it was accepted", peer_str(u, a), why);
	user_step(u, ST_GONE);
	user_unexpect(u);
	user_timer_stop(u);
	u->wire->close(u);
	return AFTER_FORGET;
}

/* ---- time ------------------------------------------------------------------------------ */

static enum user_after connecting_timeout(struct user_id *u)
{
	lock_assert_held(&u->lock);
	if (u->pausing && user_now() < u->final) {
		u->pausing = false;
		timer_final(u);
		call(u);
	} else {
		user_unreachable(u, ETIMEDOUT);
	}
	return AFTER_NONE;
}

/* Until when (ns) a peer that has said nothing may still be one of ours that does
 * not run: stopped, or swapped out. On this host its name tells; on another one
 * time alone can. */
static uint64_t silence_ends(struct user_id *u) REQUIRES(u->lock)
{
	const struct sockaddr *dst = (struct sockaddr *)&u->dst;
	uint64_t reply = conf_get()->cm_reply_ms * MSEC;

	if (u->heard)
		return u->final;
	if (conf_get()->ports_identity || cm_dev->gid_of_addr(dst) < 0)
		return u->born + USER_REPLY_REMOTE * reply;
	return port_owned(u->ps, dst, sa_port(dst)) ? u->final : u->born + reply;
}

static enum user_after await_rep_timeout(struct user_id *u)
{
	uint64_t now = user_now(), until;

	lock_assert_held(&u->lock);
	until = silence_ends(u);
	if (until > u->final)
		until = u->final;
	if (now < until)
		user_timer_set(u, (until - now) / MSEC + 1);
	else if (now >= u->final || conf_get()->ports_identity)
		user_unreachable(u, ETIMEDOUT);
	else
		user_foreign(u, "it does not answer");
	return AFTER_NONE;
}

static enum user_after await_req_timeout(struct user_id *u)
{
	lock_assert_held(&u->lock);
	return user_dropped(u, "no whole request in time");
}

static enum user_after req_rcvd_timeout(struct user_id *u)
{
	lock_assert_held(&u->lock);
	if (u->wire->hold(u))
		return user_dropped(u, "its socket takes no bytes");
	if (u->offered)
		return AFTER_NONE;
	if (++u->offers > conf_get()->cm_retries + 1)
		return user_dropped(u, "the listener's backlog stayed full");
	user_timer_set(u, conf_get()->cm_retry_ms);
	return AFTER_OFFER;
}

static enum user_after rep_sent_timeout(struct user_id *u)
{
	char a[PORT_ADDR_STR];

	lock_assert_held(&u->lock);
	log_info("connection from %s: the peer did not confirm our reply", peer_str(u, a));
	user_send_rej(u, CM_REJ_TIMEOUT, NULL, 0);
	user_step(u, ST_TIMEOUT);
	user_stream_release(u);
	user_post(u, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
	return AFTER_NONE;
}

static enum user_after dreq_sent_timeout(struct user_id *u)
{
	lock_assert_held(&u->lock);
	user_dreq_timeout(u);
	return AFTER_NONE;
}

static enum user_after timewait_timeout(struct user_id *u)
{
	lock_assert_held(&u->lock);
	user_timewait_over(u);
	return AFTER_NONE;
}

static enum user_after listen_timeout(struct user_id *u)
{
	(void)u;
	return AFTER_LISTENER;
}

/* All run with the id's lock held. */
static enum user_after (*const timeouts[US_COUNT])(struct user_id *u) = {
	[US_LISTEN] = listen_timeout,
	[US_CONNECTING] = connecting_timeout,
	[US_AWAIT_REP] = await_rep_timeout,
	[US_AWAIT_REQ] = await_req_timeout,
	[US_REQ_RCVD] = req_rcvd_timeout,
	[US_REP_SENT] = rep_sent_timeout,
	[US_DREQ_SENT] = dreq_sent_timeout,
	[US_TIMEWAIT] = timewait_timeout,
};

/* When this process itself did not run for a while (stopped, suspended), an answer
 * may have come in time that the loop has not reached yet: it counts. */
static enum user_after timed_out(struct user_id *u) REQUIRES(u->lock)
{
	enum user_state was = u->state;
	enum user_after after = u->wire->look(u);

	if (u->state == was && user_now() >= u->deadline && timeouts[was])
		after = timeouts[was](u);
	return after;
}

void user_timer_fire(struct loop_timer *t)
{
	struct user_id *u = container_of(t, struct user_id, timer);
	enum user_after after = AFTER_NONE;

	lock_get(&u->lock);
	if (user_now() < u->deadline)
		; /* stopped or moved while it was about to fire */
	else if (u->lingering)
		u->wire->expire(u);
	else
		after = timed_out(u);
	lock_put(&u->lock);
	user_after(u, after);
	user_put(u);
}
