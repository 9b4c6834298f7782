/* SPDX-License-Identifier: BSD-2-Clause */
/* The passive side: from the request to rdma_accept or rdma_reject. */
#include "base/conf.h"
#include "base/log.h"
#include "cm/user/user.h"

#include <stdlib.h>
#include <string.h>

static const char *peer_str(struct user_id *u, char buf[PORT_ADDR_STR])
{
	return sa_str((struct sockaddr *)&u->dst, buf);
}

void user_unexpect(struct user_id *u)
{
	lock_assert_held(&u->lock);
	if (u->expected)
		cm_dev->stream_unexpect(&u->conn.remote_gid, u->conn.remote_qpn);
	u->expected = false;
}

/* ---- the end without a connection ------------------------------------------------ */

static enum user_todo request_end(struct user_id *u, enum user_step step) REQUIRES(u->lock)
{
	user_step(u, step);
	user_unexpect(u);
	user_timer_stop(u);
	user_wire_close(u);
	return TODO_DROP;
}

enum user_todo user_request_dropped(struct user_id *u, const char *why)
{
	char a[PORT_ADDR_STR];

	lock_assert_held(&u->lock);
	log_info("connection from %s is dropped: %s", peer_str(u, a), why);
	return request_end(u, ST_FAIL);
}

enum user_todo user_request_cancelled(struct user_id *u, const char *why)
{
	char a[PORT_ADDR_STR];

	lock_assert_held(&u->lock);
	log_info("connection from %s: %s before it was accepted", peer_str(u, a), why);
	return request_end(u, ST_GONE);
}

void user_reject_request(struct user_id *u, uint16_t reason, const void *data, uint8_t len)
{
	uint8_t rej[MPA_OURS_MAX];
	int n = SIDR_REP_LEN;

	lock_assert_held(&u->lock);
	if (user_is_ud(u))
		user_sidr_rej_build(u, reason, data, len, rej);
	else
		n = user_rej_build(u, reason, data, len, rej, sizeof(rej));
	user_unexpect(u);
	user_timer_stop(u);
	if (u->wire)
		u->wire->ops->reject(u, rej, n > 0 ? (size_t)n : 0);
}

enum user_todo user_request_timeout(struct user_id *u)
{
	const struct conf *c = conf_get();

	lock_assert_held(&u->lock);
	if (u->wire->ops->ack_request(u))
		return user_request_dropped(u, "its socket takes no bytes");
	if (u->delivered)
		return TODO_NOTHING;
	if (++u->waits > c->cm_retries + 1)
		return user_request_dropped(u, "the listener's backlog stayed full");
	user_timer_set(u, c->cm_retry_ms);
	return TODO_DELIVER;
}

/* ---- rdma_accept, rdma_reject ---------------------------------------------------- */

static void fail_accept(struct user_id *u) REQUIRES(u->lock)
{
	if (user_step(u, ST_REJECT))
		return;
	user_reject_request(u, CM_REJ_CONSUMER, NULL, 0);
}

static int accept_check(struct user_id *u, const struct cm_conn_param *p)
	REQUIRES(u->lock)
{
	int max = user_is_ud(u) ? SIDR_PRIV_REP : CM_PRIV_REP;

	if (u->state == US_REMOVED)
		return -ENXIO;
	if (u->state == US_CLOSED)
		return log_refuse(EINVAL, "accept is refused: the peer has gone, or the "
				  "request was rejected");
	if (u->state != US_REQ_RCVD)
		return log_refuse(EINVAL, "accept is refused: the id is in state %s",
				  user_state_str(u->state));
	if (p->private_data_len > max) {
		fail_accept(u);
		return log_refuse(EINVAL, "accept: %u bytes of private data, at most %d fit",
				  p->private_data_len, max);
	}
	return 0;
}

static void accept_store(struct user_id *u, const struct cm_conn_param *p)
	REQUIRES(u->lock)
{
	struct user_conn *c = &u->conn;

	c->local_qpn = p->qp_num & 0xffffff;
	c->responder_resources = p->responder_resources;
	c->initiator_depth = p->initiator_depth;
	c->srq = p->srq;
	c->flow_control = p->flow_control;
	c->ece = p->ece;
}

int user_accept_prepare(struct cm_id *id, const struct cm_conn_param *p)
{
	struct user_id *u = to_user(id);
	int ret;

	lock_get(&u->lock);
	ret = accept_check(u, p);
	if (!ret)
		accept_store(u, p);
	lock_put(&u->lock);
	return ret;
}

static int accept_send(struct user_id *u, const struct cm_conn_param *p)
	REQUIRES(u->lock)
{
	uint8_t rep[MPA_OURS_MAX];
	int len = user_rep_build(u, p, rep, sizeof(rep)), ret;

	if (len < 0) {
		fail_accept(u);
		return len;
	}
	user_timer_stop(u);
	ret = u->wire->ops->accept(u, rep, (size_t)len);
	user_unexpect(u);
	if (!ret)
		return 0;
	user_step(u, ST_REJECT);
	return log_refuse(-ret, "no stream for the connection: %s", strerror(-ret));
}

static int accept_connection(struct user_id *u, const struct cm_conn_param *p)
	REQUIRES(u->lock)
{
	const struct conf *c = conf_get();
	int ret = user_event_reserve(u, USER_EVENT_CONN);

	if (ret) {
		fail_accept(u);
		return ret;
	}
	accept_store(u, p);
	ret = accept_send(u, p);
	if (ret)
		return ret;
	user_step(u, ST_ACCEPT);
	user_timer_set(u, (uint64_t)c->cm_retry_ms * (c->cm_retries + 1ull));
	return 0;
}

/* Nothing follows: no event comes of it. */
static int accept_datagrams(struct user_id *u, const struct cm_conn_param *p)
	REQUIRES(u->lock)
{
	uint8_t rep[SIDR_REP_LEN];

	user_sidr_rep_build(u, p, rep);
	user_timer_stop(u);
	u->wire->ops->accept(u, rep, sizeof(rep));
	return user_step(u, ST_ANSWER);
}

int user_accept(struct cm_id *id, const struct cm_conn_param *p)
{
	struct user_id *u = to_user(id);
	int ret;

	lock_get(&u->lock);
	ret = accept_check(u, p);
	if (!ret)
		ret = user_is_ud(u) ? accept_datagrams(u, p) : accept_connection(u, p);
	if (!ret) {
		free(u->req);
		u->req = NULL;
		u->cm = id; /* events from here on */
		/* iWARP has none. With p2p the first FPDU is one, for a QP to receive. */
		if (u->state == US_REP_SENT && !u->conn.extended &&
		    (!u->conn.p2p || !u->conn.local_qpn))
			user_got_rtu(u);
	}
	lock_put(&u->lock);
	return ret;
}

int user_reject(struct cm_id *id, uint8_t reason, const void *data, uint8_t len)
{
	struct user_id *u = to_user(id);
	int max = user_is_ud(u) ? SIDR_PRIV_REP : CM_PRIV_REJ;
	enum user_state was;
	int ret;

	if (!reason)
		reason = CM_REJ_CONSUMER;
	if (reason != CM_REJ_CONSUMER && reason != CM_REJ_ECE)
		return log_refuse(EINVAL, "reject reason %u is neither %d nor %d", reason,
				  CM_REJ_CONSUMER, CM_REJ_ECE);
	if (len > max)
		return log_refuse(EINVAL, "reject: %u bytes of private data, at most %d fit",
				  len, max);
	lock_get(&u->lock);
	was = u->state;
	if (user_is_ud(u) && was == US_AWAIT_REP) /* only a request can be rejected */
		ret = -EINVAL;
	else
		ret = was == US_REMOVED ? -ENXIO : user_step(u, ST_REJECT);
	if (ret) {
		log_info("reject is refused: the id is in state %s", user_state_str(was));
	} else if (was == US_REQ_RCVD) {
		user_reject_request(u, reason, data, len);
	} else if (was == US_AWAIT_REP) {
		user_timer_stop(u);
		user_wire_close(u);
	} else {
		user_send_rej(u, reason, data, len);
		user_timer_stop(u);
		if (u->state == US_TIMEWAIT)
			user_enter_timewait(u);
		else
			user_stream_release(u);
	}
	lock_put(&u->lock);
	return ret;
}
