/* SPDX-License-Identifier: BSD-2-Clause */
/* Fetching events: what each type does to its id before the application sees it
 * (one row per type in `rows`), and the acknowledgement.
 *
 * Handlers run in the fetching thread under the charged id's apply lock and
 * return whether the event is to be delivered. */
#include "base/log.h"
#include "cm/backend.h"

static void turn_into(struct cm_event *ev, enum rdma_cm_event_type type, int status)
{
	ev->pub.event = type;
	ev->pub.status = status;
}

static bool on_addr_resolved(struct cm_id *id, struct cm_event *ev)
{
	int r = cm_id_refresh(id);

	if (!r && !id->pub.verbs)
		r = log_refuse(ENODEV, "id %p: the address belongs to no RDMA device",
			       (void *)id);
	if (r)
		turn_into(ev, RDMA_CM_EVENT_ADDR_ERROR, r);
	return true;
}

static bool on_route_resolved(struct cm_id *id, struct cm_event *ev)
{
	int r = cm_id_refresh_path(id);

	if (r)
		turn_into(ev, RDMA_CM_EVENT_ROUTE_ERROR, r);
	return true;
}

/* The child becomes an id here. When it cannot, nobody hears of the request but
 * the peer, who is rejected. */
static bool on_connect_request(struct cm_id *listener, struct cm_event *ev)
{
	struct cm_channel *ch = NULL;
	struct cm_id *child;
	int r;

	if (!listener->sync)
		ch = to_channel(listener->pub.channel);
	r = cm_id_new(ch, listener->pub.ps, listener->pub.qp_type,
		      listener->pub.context, ev->be_child, &child);
	if (r) {
		listener->be->child_drop(ev->be_child);
		goto fail;
	}
	ev->be_child = NULL;
	child->remote_ece = ev->ece;
	if (child->pub.qp_type != IBV_QPT_UD) {
		child->responder_resources = ev->pub.param.conn.responder_resources;
		child->initiator_depth = ev->pub.param.conn.initiator_depth;
	}
	r = cm_id_refresh(child);
	if (!r && !child->pub.verbs)
		r = -ENODEV;
	if (!r)
		r = cm_id_refresh_path(child);
	if (r) {
		cm_id_free(child);
		goto fail;
	}
	ev->pub.id = &child->pub;
	ev->pub.listen_id = &listener->pub;
	return true;

fail:
	log_error("a connection request to id %p is lost: errno %d", (void *)listener,
		  -r);
	return false;
}

static bool on_connect_response(struct cm_id *id, struct cm_event *ev)
{
	int r;

	id->remote_ece = ev->ece;
	if (!id->pub.qp)
		return true;
	r = cm_ece_reply(id);
	if (!r)
		r = cm_qp_rtr(id, RDMA_MAX_RESP_RES);
	if (!r)
		r = cm_qp_rts(id, RDMA_MAX_INIT_DEPTH);
	if (!r)
		r = id->be->establish(id);
	if (!r) {
		turn_into(ev, RDMA_CM_EVENT_ESTABLISHED, 0);
		return true;
	}
	log_info("id %p: the peer accepted, but we cannot go on: errno %d",
		 (void *)id, -r);
	id->connect_error = true;
	cm_qp_err(id);
	id->be->abandon(id);
	turn_into(ev, RDMA_CM_EVENT_CONNECT_ERROR, r);
	return true;
}

static bool on_rejected(struct cm_id *id, struct cm_event *ev)
{
	(void)ev;
	if (id->connect_error)
		return false;
	cm_qp_err(id); /* the id may have no QP, or one beyond help */
	return true;
}

static bool on_disconnected(struct cm_id *id, struct cm_event *ev)
{
	(void)ev;
	return !id->connect_error;
}

static bool on_multicast_join(struct cm_id *id, struct cm_event *ev)
{
	struct cm_mcast *mc = ev->mcast;
	int r;

	mc->mgid = ev->pub.param.ud.ah_attr.grh.dgid;
	mc->mlid = ev->pub.param.ud.ah_attr.dlid;
	ev->pub.param.ud.private_data = mc->context;
	if (!id->pub.qp || mc->left ||
	    mc->join_flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER)
		return true;
	r = ibv_attach_mcast(id->pub.qp, &mc->mgid, mc->mlid);
	if (r)
		turn_into(ev, RDMA_CM_EVENT_MULTICAST_ERROR, -r);
	else
		mc->attached = true;
	return true;
}

static bool on_multicast_error(struct cm_id *id, struct cm_event *ev)
{
	(void)id;
	ev->pub.param.ud.private_data = ev->mcast->context;
	return true;
}

static bool on_addrinfo_error(struct cm_id *id, struct cm_event *ev)
{
	(void)ev;
	lock_get(&id->lock);
	id->resolving = false;
	lock_put(&id->lock);
	return true;
}

/* A service that the backend looked up; names were resolved by us (INTERNAL). */
static bool on_addrinfo_resolved(struct cm_id *id, struct cm_event *ev)
{
	struct rdma_addrinfo *res;
	int r = -ENOENT;

	if (!id->be_gone && id->be->query_service)
		r = id->be->query_service(id, &res);
	if (r) {
		turn_into(ev, RDMA_CM_EVENT_ADDRINFO_ERROR, r);
		return on_addrinfo_error(id, ev);
	}
	lock_get(&id->lock);
	id->resolved = res;
	lock_put(&id->lock);
	return true;
}

static bool on_internal(struct cm_id *id, struct cm_event *ev)
{
	if (!ev->pub.status) {
		turn_into(ev, RDMA_CM_EVENT_ADDRINFO_RESOLVED, 0);
		return true;
	}
	turn_into(ev, RDMA_CM_EVENT_ADDRINFO_ERROR, ev->pub.status);
	return on_addrinfo_error(id, ev);
}

/* success_only: an event that comes with an error is delivered as it is. str:
 * rdma_event_str's answer (the two of NULL are unknown to it by design). */
static const struct row {
	const char *str;
	bool (*apply)(struct cm_id *id, struct cm_event *ev);
	bool success_only;
} rows[] = {
#define NAMED(type) [type] = { #type, NULL, false }
#define ROW(type, ...) [type] = { #type, __VA_ARGS__ }
	ROW(RDMA_CM_EVENT_ADDR_RESOLVED, on_addr_resolved, true),
	NAMED(RDMA_CM_EVENT_ADDR_ERROR),
	ROW(RDMA_CM_EVENT_ROUTE_RESOLVED, on_route_resolved, true),
	NAMED(RDMA_CM_EVENT_ROUTE_ERROR),
	ROW(RDMA_CM_EVENT_CONNECT_REQUEST, on_connect_request, false),
	ROW(RDMA_CM_EVENT_CONNECT_RESPONSE, on_connect_response, true),
	NAMED(RDMA_CM_EVENT_CONNECT_ERROR),
	NAMED(RDMA_CM_EVENT_UNREACHABLE),
	ROW(RDMA_CM_EVENT_REJECTED, on_rejected, false),
	NAMED(RDMA_CM_EVENT_ESTABLISHED),
	ROW(RDMA_CM_EVENT_DISCONNECTED, on_disconnected, false),
	NAMED(RDMA_CM_EVENT_DEVICE_REMOVAL),
	ROW(RDMA_CM_EVENT_MULTICAST_JOIN, on_multicast_join, true),
	ROW(RDMA_CM_EVENT_MULTICAST_ERROR, on_multicast_error, false),
	NAMED(RDMA_CM_EVENT_ADDR_CHANGE),
	NAMED(RDMA_CM_EVENT_TIMEWAIT_EXIT),
	ROW(RDMA_CM_EVENT_ADDRINFO_RESOLVED, on_addrinfo_resolved, true),
	ROW(RDMA_CM_EVENT_ADDRINFO_ERROR, on_addrinfo_error, false),
	[RDMA_CM_EVENT_USER] = { NULL, NULL, false },
	[RDMA_CM_EVENT_INTERNAL] = { NULL, on_internal, false },
#undef ROW
#undef NAMED
};

enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

const char *rdma_event_str(enum rdma_cm_event_type event)
{
	if ((unsigned)event < ROWS && rows[event].str)
		return rows[event].str;
	return "UNKNOWN EVENT";
}

static bool apply(struct cm_id *id, struct cm_event *ev)
{
	const struct row *row = &rows[ev->pub.event];

	if (!row->apply || (row->success_only && ev->pub.status))
		return true;
	return row->apply(id, ev);
}

/* Its id was destroyed between the fetch and now: as if the event had still been
 * queued then. */
static bool overtaken(struct cm_id *id, struct cm_event *ev)
{
	if (!id->be_gone)
		return false;
	if (ev->be_child)
		id->be->child_drop(ev->be_child);
	return true;
}

bool cm_event_apply(struct cm_event *ev)
{
	struct cm_id *id = ev->charge;
	bool deliver;

	if ((unsigned)ev->pub.event >= ROWS)
		return true;
	lock_get(&id->apply);
	deliver = !overtaken(id, ev) && apply(id, ev);
	lock_put(&id->apply);
	if (!deliver)
		cm_event_ack(ev);
	return deliver;
}

int rdma_get_cm_event(struct rdma_event_channel *channel,
		      struct rdma_cm_event **event)
{
	NO_CANCEL;
	struct cm_channel *ch;
	struct cm_event *ev;
	int r;

	if (!channel || !event)
		return cm_ret(log_refuse(EINVAL, "no %s given",
					 channel ? "place for the event" :
						   "event channel"));
	ch = to_channel(channel);
	if (state_is_old(ch->generation))
		return cm_ret(log_refuse(ENODEV,
					 "event channel %p is old: the parent's, or of a "
					 "failed device",
					 (void *)ch));
	do {
		r = ch->be->event_get(ch, &ev);
		if (r)
			return cm_ret(r);
	} while (!cm_event_apply(ev));
	*event = &ev->pub;
	return 0;
}

/* Without NO_CANCEL: nothing in it is a cancellation point. */
int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	struct cm_event *ev;

	if (!event)
		return cm_ret(log_refuse(EINVAL, "no event given"));
	ev = container_of(event, struct cm_event, pub);
	if (state_is_old(ev->generation))
		cm_event_free(ev); /* the id may be gone, and nobody waits */
	else
		cm_event_ack(ev);
	return 0;
}

int rdma_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type event,
			int status, uint64_t arg)
{
	NO_CANCEL;
	struct cm_event *ev;
	int r = cm_id_check(id);

	if (r)
		return cm_ret(r);
	if (event != RDMA_CM_EVENT_USER)
		return cm_ret(log_refuse(EINVAL, "only RDMA_CM_EVENT_USER can be "
						 "written, not event %d", event));
	ev = cm_event_new(to_id(id), event, status);
	if (!ev)
		return cm_ret(-ENOMEM);
	ev->pub.param.arg = arg;
	return cm_ret(to_id(id)->be->write_event(to_id(id), ev));
}
