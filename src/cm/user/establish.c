/* SPDX-License-Identifier: BSD-2-Clause */
/* From the opening of the stream to ESTABLISHED: the stream belongs to the device then,
 * and control messages go over it. */
#include "base/be.h"
#include "base/log.h"
#include "cm/user/user.h"

#include <string.h>

/* ---- control messages ------------------------------------------------------------ */

void user_got_rtu(struct user_id *u)
{
	lock_assert_held(&u->lock);
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

void user_stream_control(struct user_id *u, enum stream_ctl type, const uint8_t *data,
			 size_t len)
{
	lock_get(&u->lock);
	if (!u->dead && u->state != US_REMOVED) {
		switch (type) {
		case STREAM_CTL_RTU:
			user_got_rtu(u);
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

void user_stream_closed(struct user_id *u, int err)
{
	lock_get(&u->lock);
	if (!u->dead && u->state != US_REMOVED)
		user_gone(u, err);
	lock_put(&u->lock);
}

static void up_control(void *user, enum stream_ctl type, const uint8_t *data, size_t len)
{
	user_stream_control(user, type, data, len);
}

static void up_closed(void *user, int err)
{
	user_stream_closed(user, err);
}

static void up_released(void *user)
{
	user_put(user);
}

const struct stream_user user_stream_upcalls = {
	.control = up_control,
	.closed = up_closed,
	.released = up_released,
};

/* ---- the stream ------------------------------------------------------------------ */

/* RFC 5044 section 7.1: the responder waits for the initiator's first FPDU. */
static enum stream_first first_sender(const struct user_id *u)
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
		.first = first_sender(u),
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

/* ---- passive: after the reply ---------------------------------------------------- */

void user_rep_sent_timeout(struct user_id *u)
{
	char a[PORT_ADDR_STR];

	lock_assert_held(&u->lock);
	log_info("connection from %s: the peer did not confirm our reply",
		 sa_str((struct sockaddr *)&u->dst, a));
	user_send_rej(u, CM_REJ_TIMEOUT, NULL, 0);
	user_step(u, ST_TIMEOUT);
	user_stream_release(u);
	user_post(u, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
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
		user_got_rtu(u);
		ret = 0;
	}
	if (ret)
		log_info("notify of event %d is refused: the id is in state %s", event,
			 user_state_str(u->state));
	lock_put(&u->lock);
	return ret;
}

/* ---- active: after the reply ----------------------------------------------------- */

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
