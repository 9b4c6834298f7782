/* SPDX-License-Identifier: BSD-2-Clause */
/* The one timer of an id, by state:
 *	CONNECTING	no peer was found: UNREACHABLE; or it is time for a retry
 *	AWAIT_REP	5 s (another host: 15 s) without even the key of a reply:
 *			held by another program, REJECTED 8; after the key, or
 *			when the port has an owner of ours on this host:
 *			UNREACHABLE at the end of the CM's retries
 *			UD: the request is repeated, until the same end
 *	REQ_RCVD	first: the application is slow, acknowledge the request;
 *			then, while above the backlog: try to deliver it again
 *	REP_SENT	no RTU: UNREACHABLE
 *	DREQ_SENT	no DREP: DISCONNECTED -ETIMEDOUT
 *	TIMEWAIT	TIMEWAIT_EXIT */
#include "cm/user/user.h"

enum { NEWS_MS = 10 };

void user_timer_set(struct user_id *u, uint64_t ms)
{
	u->deadline = user_now() + ms * MSEC;
	if (cm_dev->loop_timer_set(&u->timer, u->deadline))
		user_get(u);
}

void user_timer_stop(struct user_id *u)
{
	u->deadline = UINT64_MAX;
	if (cm_dev->loop_timer_stop(&u->timer))
		user_put(u);
}

static enum user_todo timed_out(struct user_id *u) REQUIRES(u->lock)
{
	switch (u->state) {
	case US_CONNECTING:
		user_connecting_timeout(u);
		break;
	case US_AWAIT_REP:
		user_await_rep_timeout(u);
		break;
	case US_REQ_RCVD:
		return user_request_timeout(u);
	case US_REP_SENT:
		user_rep_sent_timeout(u);
		break;
	case US_DREQ_SENT:
		user_dreq_timeout(u);
		break;
	case US_TIMEWAIT:
		user_timewait_over(u);
		break;
	default:
		break;
	}
	return TODO_NOTHING;
}

/* When this process itself did not run for a while (stopped, suspended), a message may
 * have come in time that the loop has not reached yet: it counts. */
static enum user_todo poll_first(struct user_id *u) REQUIRES(u->lock)
{
	if (u->wire)
		return u->wire->ops->poll(u);
	if (u->stream && cm_dev->stream_has_news(u->stream))
		user_timer_set(u, NEWS_MS);
	return TODO_NOTHING;
}

void user_timer_fire(struct loop_timer *t)
{
	struct user_id *u = container_of(t, struct user_id, timer);
	enum user_todo todo = TODO_NOTHING;
	enum user_state was;

	lock_get(&u->lock);
	/* Else it was stopped or moved while it was about to fire. */
	if (user_now() >= u->deadline) {
		was = u->state;
		todo = poll_first(u);
		if (u->state == was && user_now() >= u->deadline)
			todo = timed_out(u);
	}
	lock_put(&u->lock);
	user_listener_do(u, todo);
	user_put(u);
}
