/* SPDX-License-Identifier: BSD-2-Clause */
/* Ids that move to another channel.
 *
 * The kernel moves an id's undelivered events with it. Those of a listener are
 * requests, and their children stay on the old descriptor: whoever fetches such a
 * request cannot use the child, and closing the old channel destroys it. So a
 * listener goes by way of a descriptor of its own, which nobody else reads: what
 * waits there is fetched, each child is moved, and the events wait on the new
 * channel's queue. Requests that come in just then have their children on that
 * descriptor, which lives as long as the listener. */
#include "base/log.h"
#include "cm/kernel/kernel.h"

#include <fcntl.h>
#include <string.h>

static int raw_migrate(int from, int to, uint32_t handle, uint32_t *reported)
{
	KERNEL_REQ(req, rdma_ucm_migrate_id);
	struct rdma_ucm_migrate_resp resp = { 0 };
	int r;

	req.p.response = (uintptr_t)&resp;
	req.p.id = handle;
	req.p.fd = (uint32_t)from;
	r = kernel_command(to, RDMA_USER_CM_CMD_MIGRATE_ID, &req, sizeof(resp));
	if (!r)
		*reported = resp.events_reported;
	return r;
}

/* A child of a synchronous listener gets a channel of its own; one whose listener
 * moved may have been left behind. No event can name it before it is accepted. */
int kernel_id_adopt(struct cm_id *id)
{
	struct kernel_obj *o = to_kernel(id);
	struct cm_channel *to = to_channel(id->pub.channel);
	bool here = o->ch == to;
	uint32_t reported;
	int i, r = here ? -EINVAL : raw_migrate(o->fd, to->pub.fd, o->handle, &reported);

	for (i = 0; kernel_not_there(r) && i < KERNEL_MOVES && o->moved_from[i] >= 0; i++)
		r = raw_migrate(o->moved_from[i], to->pub.fd, o->handle, &reported);
	if (r && !here)
		return r;
	o->id = id;
	o->ch = NULL;
	o->fd = -1;
	memset(o->moved_from, -1, sizeof(o->moved_from));
	return 0;
}

/* Takes what waits on the halfway descriptor; children were born on `born`. */
static void rescue(struct kernel_obj *o, int born, struct cm_channel *to,
		   struct list *events)
{
	struct kernel_obj *child;
	struct cm_event *ev;
	uint32_t reported;

	while (!kernel_event_fetch(o->halfway, to, &ev)) {
		cm_event_unhold(ev);
		list_add_tail(events, &ev->link);
		child = ev->be_child;
		if (child)
			raw_migrate(born, to->pub.fd, child->handle, &reported);
	}
}

static int open_halfway(struct kernel_obj *o)
{
	if (o->halfway < 0) {
		o->halfway = kernel_node_open();
		if (o->halfway < 0)
			return o->halfway;
		fcntl(o->halfway, F_SETFL, O_NONBLOCK);
	}
	return 0;
}

static int move_listener(struct kernel_obj *o, int from, struct cm_channel *to,
			 uint32_t *reported, struct list *events)
{
	int r = open_halfway(o);

	if (!r)
		r = raw_migrate(from, o->halfway, o->handle, reported);
	if (r)
		return r;
	kernel_obj_moved(o, from);
	rescue(o, from, to, events);
	r = raw_migrate(o->halfway, to->pub.fd, o->handle, reported);
	if (!r)
		kernel_obj_moved(o, o->halfway);
	else if (raw_migrate(o->halfway, from, o->handle, reported))
		log_error("listener %p is stuck between two channels", (void *)o->id);
	return r;
}

int kernel_id_migrate(struct cm_id *id, struct cm_channel *to, uint32_t *delivered)
{
	struct kernel_obj *o = to_kernel(id);
	struct cm_channel *from = to_channel(id->pub.channel);
	struct list events;
	uint32_t reported;
	int r;

	list_init(&events);
	if (o->listening && from != to)
		r = move_listener(o, from->pub.fd, to, &reported, &events);
	else
		r = raw_migrate(from->pub.fd, to->pub.fd, o->handle, &reported);
	if (!r) {
		if (from != to && !o->listening)
			kernel_obj_moved(o, from->pub.fd);
		kernel_obj_settle(o, reported);
		cm_event_move(id, to);
	}
	if (!list_empty(&events))
		cm_event_unget(r ? from : to, &events);
	kernel_wake_settle(from);
	kernel_wake_settle(to);
	if (!r)
		*delivered = cm_event_delivered(id);
	return r;
}
