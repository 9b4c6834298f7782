/* SPDX-License-Identifier: BSD-2-Clause */
/* The end of a connection: DREQ and DREP as control messages of the stream.
 *
 *	we disconnect:	ESTABLISHED -> DREQ_SENT -(DREP)-> TIMEWAIT -> CLOSED
 *	the peer does:	ESTABLISHED -> DREQ_RCVD -(rdma_disconnect: DREP)-> TIMEWAIT
 *	the peer dies:	as if it had sent DREQ; the DREP goes nowhere
 *
 * A plain iWARP connection has neither: TCP's close is both. */
#include "base/log.h"
#include "cm/user/user.h"

static void send_ctl(struct user_id *u, enum stream_ctl type) REQUIRES(u->lock)
{
	/* -EPIPE: the peer learns of the end from the stream itself. */
	if (u->stream && u->conn.extended)
		cm_dev->stream_control(u->stream, type, NULL, 0);
}

void user_enter_timewait(struct user_id *u)
{
	user_timer_set(u, user_timewait_ms(u));
}

void user_timewait_over(struct user_id *u)
{
	user_step(u, ST_TIMEWAIT_OVER);
	user_stream_release(u);
	user_post(u, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
}

void user_dreq_timeout(struct user_id *u)
{
	log_info("the peer did not answer our disconnect request");
	user_step(u, ST_TIMEOUT);
	user_post(u, RDMA_CM_EVENT_DISCONNECTED, -ETIMEDOUT);
	user_enter_timewait(u);
}

int user_disconnect(struct cm_id *id)
{
	struct user_id *u = to_user(id);
	uint64_t wait;
	enum user_state was;
	int ret;

	lock_get(&u->lock);
	was = u->state;
	ret = was == US_REMOVED ? -ENXIO : user_step(u, ST_DISCONNECT);
	if (ret) {
		log_info("disconnect is refused: the id is in state %s",
			 user_state_str(was));
	} else if (was == US_ESTABLISHED) {
		send_ctl(u, STREAM_CTL_DREQ);
		wait = 16 * user_timewait_ms(u);
		user_timer_set(u, wait < USER_DREQ_MS_MAX ? wait : USER_DREQ_MS_MAX);
		if (!u->conn.extended) {
			user_stream_release(u);
			user_gone(u, 0);
		}
	} else if (was == US_DREQ_RCVD) {
		send_ctl(u, STREAM_CTL_DREP);
		user_enter_timewait(u);
	}
	lock_put(&u->lock);
	return ret;
}

void user_got_dreq(struct user_id *u)
{
	enum user_state was = u->state;

	if (was == US_REP_RCVD) {
		u->early_dreq = true;
		return;
	}
	if (user_step(u, ST_DREQ))
		return;
	if (was == US_TIMEWAIT) {
		send_ctl(u, STREAM_CTL_DREP);
	} else if (was != US_DREQ_RCVD) {
		user_timer_stop(u);
		user_post(u, RDMA_CM_EVENT_DISCONNECTED, 0);
	}
}

void user_got_drep(struct user_id *u)
{
	enum user_state was = u->state;

	if (user_step(u, ST_DREP) || was == US_TIMEWAIT)
		return;
	/* In DREQ_RCVD both sides had asked; DISCONNECTED is already queued. */
	if (was == US_DREQ_SENT)
		user_post(u, RDMA_CM_EVENT_DISCONNECTED, 0);
	user_enter_timewait(u);
}

void user_gone(struct user_id *u, int err)
{
	enum user_state was = u->state;

	if (was == US_REP_RCVD && !u->conn.extended) {
		u->early_dreq = true; /* it is how iWARP disconnects */
		return;
	}
	if (was == US_REP_RCVD || was == US_REP_SENT) {
		/* A CM that ends in these states rejects. */
		log_info("the peer ended before the connection stood (%d)", err);
		user_step(u, ST_REJECTED);
		user_timer_stop(u);
		user_post_rejected(u, CM_REJ_CONSUMER, NULL, 0);
		if (u->state == US_TIMEWAIT)
			user_enter_timewait(u);
		return;
	}
	if (user_step(u, ST_GONE))
		return;
	if (was == US_ESTABLISHED) {
		if (u->conn.extended || err)
			log_info("the peer ended without disconnecting (%d)", err);
		user_post(u, RDMA_CM_EVENT_DISCONNECTED, 0);
	} else if (was == US_DREQ_SENT) {
		user_post(u, RDMA_CM_EVENT_DISCONNECTED, 0);
		user_enter_timewait(u);
	}
}

void user_tell_end(struct user_id *u)
{
	switch (u->state) {
	case US_REQ_RCVD:
		user_reject_request(u, CM_REJ_CONSUMER, NULL, 0);
		break;
	case US_REP_RCVD:
	case US_REP_SENT:
		user_send_rej(u, CM_REJ_CONSUMER, NULL, 0);
		break;
	case US_ESTABLISHED:
		send_ctl(u, STREAM_CTL_DREQ);
		break;
	case US_DREQ_RCVD:
		send_ctl(u, STREAM_CTL_DREP);
		break;
	default: /* nothing was sent, or the end of the socket says it */
		break;
	}
}
