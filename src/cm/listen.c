/* SPDX-License-Identifier: BSD-2-Clause */
/* Listeners and the requests to synchronous ones. */
#include "base/log.h"
#include "cm/backend.h"

#include <stdlib.h>

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	NO_CANCEL;
	int r = cm_id_check(id);

	if (!r)
		r = to_id(id)->be->listen(to_id(id), backlog);
	if (!r)
		r = cm_id_refresh_addr(to_id(id)); /* the port is known now */
	return cm_ret(r);
}

/* The next event of a listener; it stays in listen->event when it is no request. */
static int next_request(struct cm_id *listen, struct cm_event **out)
{
	struct cm_channel *ch = to_channel(listen->pub.channel);
	struct cm_event *ev;
	int r;

	cm_sync_clear(listen);
	do {
		r = listen->be->event_get(ch, &ev);
		if (r)
			return r;
	} while (!cm_event_apply(ev));

	if (ev->pub.event == RDMA_CM_EVENT_REJECTED)
		r = -ECONNREFUSED;
	else if (ev->pub.status)
		r = -abs(ev->pub.status);
	else if (ev->pub.event != RDMA_CM_EVENT_CONNECT_REQUEST)
		r = log_refuse(EINVAL, "id %p: %s instead of a connection request",
			       (void *)listen, rdma_event_str(ev->pub.event));
	if (r)
		listen->pub.event = &ev->pub;
	else
		*out = ev;
	return r;
}

static int get_request(struct cm_id *listen, struct rdma_cm_id **id)
{
	struct ibv_qp_init_attr attr;
	struct rdma_cm_id *child;
	struct cm_event *ev;
	int r;

	if (!listen->sync)
		return log_refuse(EINVAL, "id %p: rdma_get_request needs a synchronous "
					  "id; this one is on an event channel",
				  (void *)listen);
	r = next_request(listen, &ev);
	if (r)
		return r;
	child = ev->pub.id;
	if (listen->ep_attr) {
		attr = *listen->ep_attr;
		if (rdma_create_qp(child, listen->pub.pd, &attr)) {
			r = -errno;
			goto reject;
		}
	}
	child->event = &ev->pub;
	*id = child;
	return 0;

reject:
	cm_event_ack(ev);
	to_id(child)->be->reject(to_id(child), CM_REJ_CONSUMER, NULL, 0);
	cm_id_free(to_id(child));
	return r;
}

int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **id)
{
	NO_CANCEL;
	int r = cm_id_check(listen);

	if (!r && !id)
		r = log_refuse(EINVAL, "no place for the id given");
	return cm_ret(r ? r : get_request(to_id(listen), id));
}
