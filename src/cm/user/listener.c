/* SPDX-License-Identifier: BSD-2-Clause */
/* Listeners. A wire (wire.h) brings whole requests; each becomes a child, which is
 *	waiting -> delivered (its CONNECT_REQUEST is queued) -> fetched
 * and is owned by the list of those that wait, then by the event, then by the cm_id.
 * The backlog bounds the queued events alone. Requests of datagrams above it are refused
 * at once, as the kernel's CM does. */
#include "base/conf.h"
#include "base/log.h"
#include "cm/user/user.h"

#include <netinet/in.h>
#include <stdlib.h>

/* ---- from request to event ------------------------------------------------------- */

/* Queues the child's CONNECT_REQUEST. False: it cannot be delivered. */
static bool deliver(struct user_id *lis, struct user_id *child) REQUIRES(lis->lock)
{
	struct cm_event *ev = NULL;

	lock_get(&child->lock);
	if (child->state == US_REQ_RCVD)
		ev = user_request_event(lis, child);
	if (ev) {
		child->delivered = true;
		child->expected = !user_is_ud(child);
		if (child->expected)
			cm_dev->stream_expect(&child->conn.remote_gid,
					      child->conn.remote_qpn);
	}
	lock_put(&child->lock);
	if (!ev || !user_event_post(ev))
		return false;
	lis->lis->unfetched++;
	return true;
}

/* Fills the backlog from the children that wait. Those that cannot be delivered come
 * out on `lost`, for destroy_all() without the lock. */
static void deliver_waiting(struct user_id *lis, struct list *lost) REQUIRES(lis->lock)
{
	struct user_listener *l = lis->lis;
	struct user_id *child;

	while (!list_empty(&l->waiting) && l->unfetched < l->backlog) {
		child = list_entry(l->waiting.next, struct user_id, child_link);
		list_del(&child->child_link);
		l->waiting_count--;
		if (!deliver(lis, child)) {
			child->lost = true;
			list_add_tail(lost, &child->child_link);
		}
	}
}

static void destroy_all(struct list *lost)
{
	struct list *n;

	while ((n = list_pop(lost)))
		user_destroy(list_entry(n, struct user_id, child_link));
}

static struct user_id *child_new(struct user_id *lis, const struct user_incoming *in)
	REQUIRES(lis->lock)
{
	struct user_id *u = user_new(lis->ps, lis->qp_type);
	struct sockaddr_storage src, dst;
	int ret;

	if (!u)
		return NULL;
	u->req = calloc(1, sizeof(*u->req));
	lock_get(&u->lock);
	ret = user_event_reserve(u, USER_EVENT_ANSWER);
	lock_put(&u->lock);
	if (!u->req || ret) {
		user_destroy(u);
		return NULL;
	}
	user_step(u, ST_REQ);
	u->tos = lis->tos;
	u->timeout = lis->timeout;
	u->timeout_set = lis->timeout_set;
	src = in->src;
	dst = in->dst;
	sa_unmap(&src); /* an IPv4 connection to a dual-stack listener */
	sa_unmap(&dst);
	user_addr_set(&u->src, &src);
	user_addr_set(&u->dst, &dst);
	sa_set_port((struct sockaddr *)&u->src, lis->port.num);
	u->listener = lis;
	user_get(lis);
	return u;
}

/* What the request says. False: the child has ended. */
static bool child_parse(struct user_id *u, const struct user_incoming *in) REQUIRES(u->lock)
{
	char a[PORT_ADDR_STR];
	uint16_t reason = 0;
	int ret = 0;

	user_device_set(u);
	if (in->sidr)
		user_sidr_req_parse(u, in->sidr);
	else
		ret = user_req_parse(u, in->frame, &reason);
	if (!ret)
		reason = in->reject;
	if (!ret && !reason) {
		u->bound = true;
		user_timer_set(u, conf_get()->cm_reply_ms / 5);
		return true;
	}
	if (reason) {
		log_info("request from %s is rejected, reason %u",
			 sa_str((struct sockaddr *)&u->dst, a), reason);
		user_step(u, ST_REJECT);
		user_reject_request(u, reason, NULL, 0);
	} else {
		user_request_dropped(u, "its MPA request is not one of ours");
	}
	return false;
}

static int room_locked(const struct user_id *lis) REQUIRES(lis->lock)
{
	if (lis->state != US_LISTEN)
		return -ENOENT;
	if (user_is_ud(lis)) /* none of datagrams waits */
		return lis->lis->unfetched >= lis->lis->backlog ? -EBUSY : 0;
	return lis->lis->waiting_count >= USER_WAITING_MAX ? -EBUSY : 0;
}

int user_listener_room(struct user_id *lis)
{
	int ret;

	lock_get(&lis->lock);
	ret = room_locked(lis);
	lock_put(&lis->lock);
	return ret;
}

/* The child is known to nobody but the wire's callbacks until it is on the list. */
int user_listener_request(struct user_id *lis, const struct user_incoming *in)
{
	struct list lost = LIST_INIT(lost);
	struct user_id *child = NULL;
	bool alive = false;
	int ret;

	lock_get(&lis->lock);
	ret = room_locked(lis) == -ENOENT ? -ENOENT : 0;
	if (!ret) {
		child = child_new(lis, in);
		ret = child ? 0 : -ENOMEM;
	}
	if (!ret) {
		lock_get(&child->lock);
		ret = in->wire->attach(child, in->from);
		alive = !ret && child_parse(child, in);
		lock_put(&child->lock);
	}
	if (alive) {
		list_add_tail(&lis->lis->waiting, &child->child_link);
		lis->lis->waiting_count++;
		deliver_waiting(lis, &lost);
	}
	lock_put(&lis->lock);
	if (child && !alive)
		user_destroy(child);
	destroy_all(&lost);
	return ret;
}

static void deliver_more(struct user_id *lis)
{
	struct list lost = LIST_INIT(lost);

	lock_get(&lis->lock);
	if (lis->state == US_LISTEN)
		deliver_waiting(lis, &lost);
	lock_put(&lis->lock);
	destroy_all(&lost);
}

/* Destroys the child if the listener still owns it; else its event, its cm_id or the end
 * of the listener does. */
static void drop(struct user_id *lis, struct user_id *child)
{
	bool waiting;

	lock_get(&lis->lock);
	waiting = lis->state == US_LISTEN && !child->lost && list_linked(&child->child_link);
	if (waiting) {
		list_del(&child->child_link);
		lis->lis->waiting_count--;
	}
	lock_put(&lis->lock);
	if (waiting)
		user_destroy(child);
}

void user_listener_do(struct user_id *child, enum user_todo todo)
{
	if (todo == TODO_DELIVER)
		deliver_more(child->listener);
	else if (todo == TODO_DROP)
		drop(child->listener, child);
}

void user_listener_fetched(struct user_id *child)
{
	struct user_id *lis = child->listener;
	struct list lost = LIST_INIT(lost);

	lock_get(&lis->lock);
	if (!child->fetched) {
		child->fetched = true;
		lis->lis->unfetched--;
		if (lis->state == US_LISTEN)
			deliver_waiting(lis, &lost);
	}
	lock_put(&lis->lock);
	destroy_all(&lost);
}

/* ---- rdma_listen ----------------------------------------------------------------- */

static int listener_start(struct user_id *u, int backlog) REQUIRES(u->lock)
{
	int ret;

	if (u->reuse) {
		ret = port_unique(u->ps, (struct sockaddr *)&u->src,
				  user_afonly(u, u->src.ss_family), &u->port);
		if (ret)
			return ret;
	}
	u->lis = calloc(1, sizeof(*u->lis));
	if (!u->lis)
		return -ENOMEM;
	u->lis->backlog = USER_BACKLOG_MAX;
	if (backlog > 0 && backlog < USER_BACKLOG_MAX)
		u->lis->backlog = (uint32_t)backlog;
	list_init(&u->lis->waiting);
	ret = user_wires_listen(u);
	if (ret) {
		free(u->lis);
		u->lis = NULL;
	}
	return ret;
}

static int listen_check(struct user_id *u) REQUIRES(u->lock)
{
	static const struct sockaddr_in any = { .sin_family = AF_INET };
	int ret = 0;

	if (u->state == US_REMOVED)
		return -ENXIO;
	if (user_state_next(u->state, ST_LISTEN) < 0)
		return log_refuse(EINVAL, "listen is refused: the id is in state %s",
				  user_state_str(u->state));
	if (u->qp_type != IBV_QPT_RC && conf_get()->ports_identity)
		return log_refuse(EOPNOTSUPP, "listen: iWARP has no QPs of type %d",
				  (int)u->qp_type);
	if (u->state == US_IDLE) {
		ret = user_bind_locked(u, (const struct sockaddr *)&any);
		if (!ret)
			user_step(u, ST_BIND);
	} else if (u->port.name_fd < 0) {
		ret = log_refuse(EINVAL, "listen: the id owns no port");
	}
	return ret;
}

int user_listen(struct cm_id *id, int backlog)
{
	struct user_id *u = to_user(id);
	int ret;

	lock_get(&u->lock);
	ret = listen_check(u);
	if (!ret)
		ret = listener_start(u, backlog);
	if (!ret)
		user_step(u, ST_LISTEN);
	lock_put(&u->lock);
	return ret;
}

void user_listener_stop(struct user_id *u)
{
	struct user_wire_listener *wire[USER_WIRES];
	struct user_listener *l = u->lis;
	struct list lost = LIST_INIT(lost);
	struct list *n;

	lock_get(&u->lock);
	while ((n = list_pop(&l->waiting)))
		list_add_tail(&lost, n);
	l->waiting_count = 0;
	for (unsigned i = 0; i < USER_WIRES; i++) {
		wire[i] = l->wire[i];
		l->wire[i] = NULL;
	}
	lock_put(&u->lock);
	user_wires_unlisten(wire);
	destroy_all(&lost);
}
