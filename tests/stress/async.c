/* SPDX-License-Identifier: BSD-2-Clause */
#include "stress.h"

#include <fcntl.h>
#include <poll.h>

/* A QP that is kept may still get events of the generation that has ended. */
static void on_qp(struct ep *e, enum ibv_event_type type)
{
	bool srq, trouble;

	pthread_mutex_lock(&e->sq.lock);
	srq = my_cfg(e)->srq >= 0;
	trouble = ep_trouble(e) || atomic_load(&e->used);
	pthread_mutex_unlock(&e->sq.lock);
	switch (type) {
	case IBV_EVENT_COMM_EST:
		break;
	case IBV_EVENT_SQ_DRAINED:
		atomic_store(&e->sq_idle, true);
		break;
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		if (!srq)
			fail(e, "LAST_WQE_REACHED, but the QP has no SRQ");
		atomic_store(&e->last_wqe, atomic_fetch_add(&e->side->clock, 1) + 1);
		break;
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_QP_REQ_ERR:
		if (!trouble)
			fail(e, "async event %s", ibv_event_type_str(type));
		break;
	default:
		fail(e, "async event %s", ibv_event_type_str(type));
	}
}

static void on_srq(struct srq *q)
{
	pthread_mutex_lock(&q->lock);
	if (++q->events > q->armed)
		fail(NULL, "%u SRQ_LIMIT_REACHED, but the limit was set %u times", q->events,
		     q->armed);
	pthread_mutex_unlock(&q->lock);
}

/* In one process both sides may have the same context: the event says whose it is. */
void *async_events(void *arg)
{
	struct side *s = arg;
	struct pollfd fd = { .fd = s->ctx->async_fd, .events = POLLIN };
	struct ibv_async_event ev;

	OK(fcntl(fd.fd, F_SETFL, fcntl(fd.fd, F_GETFL) | O_NONBLOCK));
	while (!atomic_load(&s->quit)) {
		if (poll(&fd, 1, 50) <= 0 || ibv_get_async_event(s->ctx, &ev))
			continue;
		switch (ev.event_type) {
		case IBV_EVENT_SRQ_LIMIT_REACHED:
			on_srq(ev.element.srq->srq_context);
			break;
		case IBV_EVENT_GID_CHANGE:
		case IBV_EVENT_PORT_ACTIVE:
		case IBV_EVENT_PORT_ERR:
			break;
		case IBV_EVENT_CQ_ERR:
		case IBV_EVENT_DEVICE_FATAL:
			fail(NULL, "async event %s", ibv_event_type_str(ev.event_type));
		default:
			on_qp(ev.element.qp->qp_context, ev.event_type);
		}
		ibv_ack_async_event(&ev);
	}
	return NULL;
}
