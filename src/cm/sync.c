/* SPDX-License-Identifier: BSD-2-Clause */
/* Synchronous ids: a call waits for the event that completes it. What arrives in
 * the meantime and completes something else goes back to the queue, in order, so
 * that a later call or rdma_get_cm_event finds it. */
#include "base/log.h"
#include "cm/backend.h"

#include <stdlib.h>

#define BIT(type) (1u << RDMA_CM_EVENT_##type)

/* As the backend posts them, before they are applied. DEVICE_REMOVAL completes
 * everything: nothing else will come. */
static const uint32_t completes[] = {
	[CM_SYNC_ADDR] = BIT(ADDR_RESOLVED) | BIT(ADDR_ERROR),
	[CM_SYNC_ROUTE] = BIT(ROUTE_RESOLVED) | BIT(ROUTE_ERROR),
	/* ADDR_ERROR: a UD connect whose Q_Key clashes. */
	[CM_SYNC_CONNECT] = BIT(CONNECT_RESPONSE) | BIT(CONNECT_ERROR) |
			    BIT(UNREACHABLE) | BIT(REJECTED) | BIT(ESTABLISHED) |
			    BIT(DISCONNECTED) | BIT(ADDR_ERROR),
	[CM_SYNC_ACCEPT] = BIT(ESTABLISHED) | BIT(CONNECT_ERROR) | BIT(UNREACHABLE) |
			   BIT(REJECTED) | BIT(DISCONNECTED),
	/* TIMEWAIT_EXIT: DISCONNECTED was fetched by an earlier call. */
	[CM_SYNC_DISCONNECT] = BIT(DISCONNECTED) | BIT(TIMEWAIT_EXIT) |
			       BIT(UNREACHABLE) | BIT(REJECTED) | BIT(CONNECT_ERROR),
	[CM_SYNC_JOIN] = BIT(MULTICAST_JOIN) | BIT(MULTICAST_ERROR),
	[CM_SYNC_ADDRINFO] = BIT(ADDRINFO_RESOLVED) | BIT(ADDRINFO_ERROR) |
			     BIT(INTERNAL),
};

void cm_sync_clear(struct cm_id *id)
{
	struct rdma_cm_event *ev = id->pub.event;

	id->pub.event = NULL;
	if (ev)
		cm_event_ack(container_of(ev, struct cm_event, pub));
}

static int result_of(enum cm_sync_op op, const struct rdma_cm_event *ev)
{
	switch (ev->event) {
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		return -ENODEV;
	case RDMA_CM_EVENT_REJECTED:
		return -ECONNREFUSED;
	case RDMA_CM_EVENT_UNREACHABLE:
		if (ev->status > 0) /* UD: the peer answered, with a refusal */
			return -ECONNREFUSED;
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		if (op != CM_SYNC_DISCONNECT)
			return -ECONNRESET;
		break;
	default:
		break;
	}
	return -abs(ev->status);
}

/* Events that were fetched while others were waited for. */
struct kept {
	struct cm_id *id;
	struct list events;
};

static void put_back(void *arg)
{
	struct kept *k = arg;
	struct cm_channel *ch = to_channel(k->id->pub.channel);

	if (list_empty(&k->events))
		return;
	cm_event_unget(ch, &k->events);
	if (k->id->be->event_unget)
		k->id->be->event_unget(ch);
}

static int wait_for(struct cm_id *id, enum cm_sync_op op, struct kept *kept)
{
	struct cm_channel *ch = to_channel(id->pub.channel);
	struct cm_event *ev;
	int r;

	for (;;) {
		r = id->be->event_get(ch, &ev);
		if (r)
			return r;
		if (!((completes[op] | BIT(DEVICE_REMOVAL)) >> ev->pub.event & 1)) {
			log_debug("id %p: %s is kept for later", (void *)id,
				  rdma_event_str(ev->pub.event));
			cm_event_unhold(ev);
			list_add_tail(&kept->events, &ev->link);
			continue;
		}
		if (cm_event_apply(ev)) {
			id->pub.event = &ev->pub;
			return result_of(op, &ev->pub);
		}
	}
}

int cm_sync_complete(struct cm_id *id, enum cm_sync_op op)
{
	struct kept kept = { .id = id };
	int r;

	if (!id->sync)
		return 0;
	cm_sync_clear(id);
	list_init(&kept.events);
	pthread_cleanup_push(put_back, &kept); /* the thread may be cancelled here */
	r = wait_for(id, op, &kept);
	pthread_cleanup_pop(1);
	return r;
}
