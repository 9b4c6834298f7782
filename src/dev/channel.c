/* SPDX-License-Identifier: BSD-2-Clause */
/* Completion channels. The event node is the CQ itself: it is on the channel's
 * queue once, however many of its events are pending, and goes to the tail again
 * when one was fetched and more are there. */
#include "base/log.h"
#include "dev/verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int channel_create(struct dev_ctx *ctx, struct dev_channel **out)
{
	struct dev_channel *ch = calloc(1, sizeof(*ch));
	int ret;

	if (!ch)
		return -ENOMEM;
	ret = evq_init(&ch->q);
	if (ret) {
		free(ch);
		return log_refuse(-ret, "ibv_create_comp_channel: no descriptor: %s",
				  strerror(-ret));
	}
	object_init(&ch->object, &ctx->v.context);
	ch->ch.context = ch->object.context;
	ch->ch.fd = ch->q.fd;
	ctx_get(ctx);
	*out = ch;
	return 0;
}

int channel_destroy(struct dev_channel *ch)
{
	int refs;

	lock_get(&ch->q.lock);
	refs = ch->ch.refcnt;
	lock_put(&ch->q.lock);
	if (refs)
		return log_refuse(EBUSY, "ibv_destroy_comp_channel: %d CQs still use it",
				  refs);
	evq_fini(&ch->q);
	ctx_put(to_ctx(ch->object.context));
	free(ch);
	return 0;
}

int channel_get_event(struct dev_channel *ch, struct dev_cq **out)
{
	struct list *node;
	struct dev_cq *cq;
	int ret = evq_get(&ch->q, &node);

	if (ret)
		return ret;
	cq = list_entry(node, struct dev_cq, ev_link);
	cq->ev_got++;
	if (--cq->ev_pending)
		evq_push_locked(&ch->q, &cq->ev_link);
	lock_put(&ch->q.lock);
	*out = cq;
	return 0;
}

void channel_fire(struct dev_cq *cq)
{
	struct dev_channel *ch;

	if (!cq->cq.channel)
		return;
	ch = to_channel(cq->cq.channel);
	lock_get(&ch->q.lock);
	if (!cq->ev_pending++)
		evq_push_locked(&ch->q, &cq->ev_link);
	lock_put(&ch->q.lock);
}

void channel_drain(struct dev_cq *cq)
{
	struct dev_channel *ch;
	uint32_t got;

	if (!cq->cq.channel)
		return;
	ch = to_channel(cq->cq.channel);
	lock_get(&ch->q.lock);
	if (cq->ev_pending) {
		list_del(&cq->ev_link);
		evq_forget_locked(&ch->q, 1);
		cq->ev_pending = 0;
	}
	got = cq->ev_got;
	lock_put(&ch->q.lock);
	ack_wait(&cq->cq.mutex, &cq->cq.cond, &cq->cq.comp_events_completed, got, "CQ");
}
