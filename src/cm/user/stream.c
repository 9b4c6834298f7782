/* SPDX-License-Identifier: BSD-2-Clause */
/* From the opening of the stream to ESTABLISHED: the stream belongs to the
 * device then, and control messages go over it. */
#include "base/be.h"
#include "base/conf.h"
#include "base/log.h"
#include "cm/user/user.h"

#include <stdlib.h>
#include <string.h>

/* ---- upcalls: loop thread, no lock held ------------------------------------------- */

static void got_rtu(struct user_id *u) REQUIRES(u->lock)
{
	if (u->state != US_REP_SENT || user_step(u, ST_RTU))
		return; /* rdma_notify was first */
	user_timer_stop(u);
	user_post(u, RDMA_CM_EVENT_ESTABLISHED, 0);
}

static void got_rej(struct user_id *u, const uint8_t *data, size_t len)
	REQUIRES(u->lock)
{
	uint16_t reason = len >= 2 ? be16_get(data) : CM_REJ_CONSUMER;
	size_t priv = len > 2 ? len - 2 : 0;

	if (priv > CM_PRIV_REJ)
		priv = CM_PRIV_REJ;
	if (user_step(u, ST_REJECTED))
		return;
	log_info("the peer rejects the connection, reason %u", reason);
	user_timer_stop(u);
	user_post_rejected(u, reason, len > 2 ? data + 2 : NULL, priv);
	if (u->state == US_TIMEWAIT)
		user_enter_timewait(u);
	else
		user_stream_release(u);
}

static void up_control(void *user, enum stream_ctl type, const uint8_t *data, size_t len)
{
	struct user_id *u = user;

	lock_get(&u->lock);
	if (!u->dead && u->state != US_REMOVED) {
		switch (type) {
		case STREAM_CTL_RTU:
			got_rtu(u);
			break;
		case STREAM_CTL_DREQ:
			user_got_dreq(u);
			break;
		case STREAM_CTL_DREP:
			user_got_drep(u);
			break;
		case STREAM_CTL_REJ:
			got_rej(u, data, len);
			break;
		}
	}
	lock_put(&u->lock);
}

static void up_closed(void *user, int err)
{
	struct user_id *u = user;
	enum user_after after = AFTER_NONE;

	lock_get(&u->lock);
	if (!u->dead && u->state != US_REMOVED)
		after = user_link_closed(u, err);
	lock_put(&u->lock);
	user_after(u, after);
}

static void up_released(void *user)
{
	user_put(user);
}

const struct stream_user user_upcalls = {
	.delivered = user_link_asked,
	.reply = user_link_answer,
	.control = up_control,
	.closed = up_closed,
	.released = up_released,
};

/* ---- opening ------------------------------------------------------------------------ */

/* RFC 5044 section 7.1: the responder waits for the initiator's first FPDU. */
static enum stream_first who_speaks(const struct user_id *u)
{
	if (u->conn.extended)
		return STREAM_FIRST_ANY;
	if (u->listener)
		return u->conn.p2p ? STREAM_FIRST_WAIT : STREAM_FIRST_YIELD;
	return u->conn.p2p ? STREAM_FIRST_SEND : STREAM_FIRST_ANY;
}

void user_stream_param(struct user_id *u, struct stream_param *p)
{
	const struct user_conn *c = &u->conn;

	*p = (struct stream_param){
		.local_gid = c->local_gid,
		.remote_gid = c->remote_gid,
		.local_qpn = c->local_qpn,
		.remote_qpn = c->remote_qpn,
		.crc = c->crc,
		.extended = c->extended,
		.unreliable = u->qp_type == IBV_QPT_UC,
		.first = who_speaks(u),
	};
	log_debug("id %p: stream of %s peer, CRC %s", (void *)u, c->extended ? "our" : "a standard",
		  c->crc ? "on" : "off");
}

void user_stream_release(struct user_id *u)
{
	if (u->stream)
		cm_dev->stream_release(u->stream);
	u->stream = NULL;
}

void user_send_rej(struct user_id *u, uint16_t reason, const void *data, uint8_t len)
{
	uint8_t msg[2 + CM_PRIV_REJ];

	if (!u->stream || !u->conn.extended || len > CM_PRIV_REJ)
		return;
	be16_put(msg, reason);
	if (len)
		memcpy(msg + 2, data, len);
	cm_dev->stream_control(u->stream, STREAM_CTL_REJ, msg, 2u + len);
}

/* ---- passive: accept and reject ------------------------------------------------------ */

static void fail_accept(struct user_id *u) REQUIRES(u->lock)
{
	if (user_step(u, ST_REJECT))
		return;
	user_reject_request(u, CM_REJ_CONSUMER, NULL, 0);
}

static int accept_check(struct user_id *u, const struct cm_conn_param *p)
	REQUIRES(u->lock)
{
	if (u->state == US_REMOVED)
		return -ENXIO;
	if (u->state == US_CLOSED)
		return log_refuse(EINVAL, "accept is refused: the peer has gone, or the "
				  "request was rejected");
	if (u->state != US_REQ_RCVD)
		return log_refuse(EINVAL, "accept is refused: the id is in state %s",
				  user_state_str(u->state));
	if (p->private_data_len > CM_PRIV_REP) {
		fail_accept(u);
		return log_refuse(EINVAL, "accept: %u bytes of private data, at most %d fit",
				  p->private_data_len, CM_PRIV_REP);
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
	ret = u->wire->accept(u, rep, (size_t)len);
	user_unexpect(u);
	if (!ret)
		return 0;
	user_step(u, ST_REJECT);
	return log_refuse(-ret, "no stream for the connection: %s", strerror(-ret));
}

int user_accept(struct cm_id *id, const struct cm_conn_param *p)
{
	struct user_id *u = to_user(id);
	const struct conf *c = conf_get();
	int ret;

	lock_get(&u->lock);
	ret = accept_check(u, p);
	if (!ret) {
		accept_store(u, p);
		ret = accept_send(u, p);
	}
	if (!ret) {
		free(u->nego);
		u->nego = NULL;
		u->cm = id; /* events from here on */
		user_step(u, ST_ACCEPT);
		user_timer_set(u, (uint64_t)c->cm_retry_ms * (c->cm_retries + 1ull));
		/* iWARP has none. With p2p the first FPDU is one, for a QP to take. */
		if (!u->conn.extended && (!u->conn.p2p || !u->conn.local_qpn))
			got_rtu(u);
	}
	lock_put(&u->lock);
	return ret;
}

int user_reject(struct cm_id *id, uint8_t reason, const void *data, uint8_t len)
{
	struct user_id *u = to_user(id);
	enum user_state was;
	int ret;

	if (!reason)
		reason = CM_REJ_CONSUMER;
	if (reason != CM_REJ_CONSUMER && reason != CM_REJ_ECE)
		return log_refuse(EINVAL, "reject reason %u is neither %d nor %d", reason,
				  CM_REJ_CONSUMER, CM_REJ_ECE);
	if (len > CM_PRIV_REJ)
		return log_refuse(EINVAL, "reject: %u bytes of private data, at most %d fit",
				  len, CM_PRIV_REJ);
	lock_get(&u->lock);
	was = u->state;
	ret = was == US_REMOVED ? -ENXIO : user_step(u, ST_REJECT);
	if (ret) {
		log_info("reject is refused: the id is in state %s", user_state_str(was));
	} else if (was == US_REQ_RCVD) {
		user_timer_stop(u);
		user_reject_request(u, reason, data, len);
	} else if (was == US_AWAIT_REP) {
		user_timer_stop(u);
		u->wire->close(u);
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

int user_notify(struct cm_id *id, enum ibv_event_type event)
{
	struct user_id *u = to_user(id);
	int ret = -EINVAL;

	lock_get(&u->lock);
	if (u->state == US_REMOVED) {
		ret = -ENXIO;
	} else if (event == IBV_EVENT_COMM_EST && u->state == US_ESTABLISHED) {
		ret = -EISCONN;
	} else if (event == IBV_EVENT_COMM_EST && u->state == US_REP_SENT) {
		got_rtu(u);
		ret = 0;
	}
	if (ret)
		log_info("notify of event %d is refused: the id is in state %s", event,
			 user_state_str(u->state));
	lock_put(&u->lock);
	return ret;
}

/* ---- active: after the response ------------------------------------------------------- */

int user_establish(struct cm_id *id)
{
	struct user_id *u = to_user(id);
	int ret;

	lock_get(&u->lock);
	if (u->state == US_REMOVED)
		ret = -ENXIO;
	else if (u->state != US_REP_RCVD)
		ret = log_refuse(EINVAL, "establish is refused: the id is in state %s",
				 user_state_str(u->state));
	else
		ret = u->conn.extended ?
			      cm_dev->stream_control(u->stream, STREAM_CTL_RTU, NULL, 0) :
			      0;
	if (!ret) {
		user_step(u, ST_ESTABLISH);
		if (u->early_dreq)
			user_got_dreq(u);
	}
	lock_put(&u->lock);
	return ret;
}

int user_abandon(struct cm_id *id)
{
	struct user_id *u = to_user(id);

	lock_get(&u->lock);
	if (u->state == US_REP_RCVD) {
		user_send_rej(u, CM_REJ_CONSUMER, NULL, 0);
		user_step(u, ST_REJECT);
		user_stream_release(u);
	}
	lock_put(&u->lock);
	return 0;
}
