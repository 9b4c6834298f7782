/* SPDX-License-Identifier: BSD-2-Clause */
/* Asynchronous events: one queue per context, one node per event. An object is not freed
 * before every event that names it was acknowledged: the events that were fetched are
 * counted in the object under the queue's lock, acknowledgements in the public struct
 * under its public mutex. */
#include "base/log.h"
#include "dev/verbs.h"
#include "dev/xrc.h"

#include <errno.h>
#include <stdlib.h>

struct async_node {
	struct list link;
	struct ibv_async_event ev;
	void *obj;     /* the public object, or NULL for port events */
	uint32_t *got; /* its counter of fetched events */
};

static void queue(struct dev_ctx *ctx, struct ibv_async_event ev, void *obj,
		  uint32_t *got)
{
	struct async_node *n = malloc(sizeof(*n));

	if (!n) {
		log_error("no memory for async event %d: it is lost", ev.event_type);
		return;
	}
	n->ev = ev;
	n->obj = obj;
	n->got = got;
	evq_push(&ctx->async, &n->link);
}

static void qp_event(struct dev_qp *qp, int type)
{
	struct ibv_async_event ev = { .element.qp = &qp->qp,
				      .event_type = (enum ibv_event_type)type };

	queue(to_ctx(qp->object.context), ev, &qp->qp, &qp->ev_got);
}

void async_qp(struct dev_qp *qp, enum ibv_event_type type)
{
	log_debug("QP 0x%x: async event %d", qp->qp.qp_num, type);
	if (qp->xrc)
		xrc_qp_each(qp, qp_event, (int)type);
	else
		qp_event(qp, (int)type);
}

void async_cq(struct dev_cq *cq, enum ibv_event_type type)
{
	struct ibv_async_event ev = { .element.cq = &cq->cq, .event_type = type };

	queue(to_ctx(cq->object.context), ev, &cq->cq, &cq->async_got);
}

void async_srq(struct dev_srq *srq, enum ibv_event_type type)
{
	struct ibv_async_event ev = { .element.srq = &srq->srq, .event_type = type };

	queue(to_ctx(srq->object.context), ev, &srq->srq, &srq->ev_got);
}

static void port_event(struct dev_ctx *ctx, int type)
{
	struct ibv_async_event ev = { .element.port_num = 1,
				      .event_type = (enum ibv_event_type)type };

	queue(ctx, ev, NULL, NULL);
}

void async_port(unsigned device, enum ibv_event_type type)
{
	device_each_ctx((int)device, port_event, (int)type);
}

int async_get(struct dev_ctx *ctx, struct ibv_async_event *ev)
{
	struct async_node *n;
	struct list *link;
	int ret = evq_get(&ctx->async, &link);

	if (ret)
		return ret;
	n = list_entry(link, struct async_node, link);
	*ev = n->ev;
	if (n->got)
		++*n->got;
	lock_put(&ctx->async.lock);
	free(n);
	return 0;
}

void async_fatal(struct dev_ctx *ctx)
{
	struct async_node *n = calloc(1, sizeof(*n));

	if (!n) {
		log_error("no memory for IBV_EVENT_DEVICE_FATAL: it is lost");
		return;
	}
	n->ev.event_type = IBV_EVENT_DEVICE_FATAL;
	evq_push_checked(&ctx->async, &n->link);
}

int async_get_fatal(struct dev_ctx *ctx, struct ibv_async_event *ev)
{
	struct list *link, *next;
	int ret = -ENODEV;

	/* In a forked child a thread of the parent may have it. */
	if (!lock_try(&ctx->async.lock))
		return -ENODEV;
	for (link = ctx->async.head.next; ret && link != &ctx->async.head; link = next) {
		struct async_node *n = list_entry(link, struct async_node, link);

		next = link->next;
		if (n->ev.event_type != IBV_EVENT_DEVICE_FATAL)
			continue; /* about objects that are old */
		list_del(link);
		*ev = n->ev;
		free(n);
		ret = 0;
	}
	lock_put(&ctx->async.lock);
	return ret;
}

static void ack(pthread_mutex_t *m, pthread_cond_t *c, uint32_t *done)
{
	pthread_mutex_lock(m);
	++*done;
	pthread_cond_broadcast(c);
	pthread_mutex_unlock(m);
}

void async_ack(const struct ibv_async_event *ev)
{
	struct ibv_qp *qp = ev->element.qp;
	struct ibv_cq *cq = ev->element.cq;
	struct ibv_srq *srq = ev->element.srq;

	switch (ev->event_type) {
	case IBV_EVENT_CQ_ERR:
		ack(&cq->mutex, &cq->cond, &cq->async_events_completed);
		return;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		ack(&qp->mutex, &qp->cond, &qp->events_completed);
		return;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		ack(&srq->mutex, &srq->cond, &srq->events_completed);
		return;
	default:
		return;
	}
}

void ack_wait(pthread_mutex_t *m, pthread_cond_t *c, const uint32_t *done, uint32_t want,
	      const char *what)
{
	struct timespec until;
	bool said = false;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 1;
	pthread_mutex_lock(m);
	while (*done != want) {
		if (said)
			pthread_cond_wait(c, m);
		else if (pthread_cond_timedwait(c, m, &until) == ETIMEDOUT) {
			said = true;
			log_warn("destroying a %s waits for %u events that were fetched "
				 "and not acknowledged",
				 what, want - *done);
		}
	}
	pthread_mutex_unlock(m);
}

/* Drops the events of obj that were not fetched; returns how many were. */
static uint32_t drop(struct dev_ctx *ctx, const void *obj, const uint32_t *got)
{
	struct async_node *n, *tmp;
	struct list gone;
	unsigned k = 0;
	uint32_t fetched;
	struct list *l;

	list_init(&gone);
	lock_get(&ctx->async.lock);
	list_for_each_safe (n, tmp, &ctx->async.head, link)
		if (n->obj == obj) {
			list_del(&n->link);
			list_add_tail(&gone, &n->link);
			k++;
		}
	evq_forget_locked(&ctx->async, k);
	fetched = *got;
	lock_put(&ctx->async.lock);
	while ((l = list_pop(&gone)))
		free(list_entry(l, struct async_node, link));
	return fetched;
}

void async_drain_qp(struct dev_qp *qp)
{
	uint32_t got = drop(to_ctx(qp->object.context), &qp->qp, &qp->ev_got);

	ack_wait(&qp->qp.mutex, &qp->qp.cond, &qp->qp.events_completed, got, "QP");
}

void async_drain_cq(struct dev_cq *cq)
{
	uint32_t got = drop(to_ctx(cq->object.context), &cq->cq, &cq->async_got);

	ack_wait(&cq->cq.mutex, &cq->cq.cond, &cq->cq.async_events_completed, got, "CQ");
}

void async_drain_srq(struct dev_srq *srq)
{
	uint32_t got = drop(to_ctx(srq->object.context), &srq->srq, &srq->ev_got);

	ack_wait(&srq->srq.mutex, &srq->srq.cond, &srq->srq.events_completed, got, "SRQ");
}

void async_fini(struct dev_ctx *ctx)
{
	struct list *l;

	lock_get(&ctx->async.lock);
	while ((l = list_pop(&ctx->async.head)))
		free(list_entry(l, struct async_node, link));
	lock_put(&ctx->async.lock);
}
