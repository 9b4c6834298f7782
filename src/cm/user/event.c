/* SPDX-License-Identifier: BSD-2-Clause */
/* Events of the user backend: what they carry (behaviour of a RoCE CM: private
 * data padded to the message's maximum, depths in the receiver's view). */
#include "base/log.h"
#include "cm/user/user.h"

int user_event_reserve(struct user_id *u, enum user_spares n)
{
	unsigned i, plain = n == USER_EVENT_ONE ? 1 : n == USER_EVENT_ANSWER ? 0 : 2;
	bool fine = true;

	lock_assert_held(&u->lock);
	if (n != USER_EVENT_ONE && !u->answer)
		fine = (u->answer = cm_event_alloc(CM_EVENT_PRIV));
	for (i = 0; fine && i < plain; i++)
		if (!u->spare[i])
			fine = (u->spare[i] = cm_event_alloc(0));
	return fine ? 0 : log_refuse(ENOMEM, "no memory for the event that follows");
}

void user_event_unreserve(struct user_id *u)
{
	cm_event_free(u->answer);
	for (unsigned i = 0; i < USER_SPARES; i++)
		cm_event_free(u->spare[i]);
}

static struct cm_event *spare_take(struct user_id *u) REQUIRES(u->lock)
{
	struct cm_event **from = &u->answer, *ev;

	for (unsigned i = 0; !*from && i < USER_SPARES; i++)
		from = &u->spare[i];
	ev = *from;
	*from = NULL;
	return ev;
}

/* The first event of a connection has the memory for private data. A later one that
 * brings some, too, may be without it when memory is short.
 * What nobody asked for (DEVICE_REMOVAL, ADDR_CHANGE) has no memory of its own. */
static struct cm_event *event_new(struct user_id *u, enum rdma_cm_event_type type,
				  int status, uint16_t room) REQUIRES(u->lock)
{
	struct cm_event *ev = NULL;

	if (u->dead || !u->cm)
		return NULL;
	if (room && !u->answer)
		ev = cm_event_alloc(room);
	if (!ev)
		ev = spare_take(u);
	if (!ev)
		ev = cm_event_alloc(room);
	if (ev)
		cm_event_set(ev, u->cm, type, status);
	else
		log_error("%s of id %p is lost: no memory", rdma_event_str(type),
			  (void *)u->cm);
	return ev;
}

static void flush_run(struct loop_work *w)
{
	(void)w;
	evq_flush();
}

static struct loop_work flush PROCESS_STATE = { .run = flush_run };

/* The thread has more to do, under locks that the application will want when it wakes
 * up, perhaps on the same core: it is woken at the end of the round. */
bool user_event_post(struct cm_event *ev)
{
	bool posted;

	if (!cm_dev->loop_here())
		return cm_event_post(ev);
	posted = cm_event_post_later(ev);
	cm_dev->loop_post(&flush);
	return posted;
}

void user_post(struct user_id *u, enum rdma_cm_event_type type, int status)
{
	struct cm_event *ev = event_new(u, type, status, 0);

	if (ev)
		user_event_post(ev);
}

void user_post_rejected(struct user_id *u, int reason, const void *priv, size_t len)
{
	struct cm_event *ev = event_new(u, RDMA_CM_EVENT_REJECTED, reason,
					len ? CM_EVENT_PRIV : 0);

	if (!ev)
		return;
	cm_event_private(ev, priv, len, CM_PRIV_REJ);
	user_event_post(ev);
}

void user_post_response(struct user_id *u, const void *priv, size_t len)
{
	struct cm_event *ev =
		event_new(u, (enum rdma_cm_event_type)CM_EVENT_CONNECT_RESPONSE, 0,
			  CM_EVENT_PRIV);
	const struct user_conn *c = &u->conn;

	if (!ev)
		return;
	cm_event_private(ev, priv, len, CM_PRIV_REP);
	ev->pub.param.conn.responder_resources = c->responder_resources;
	ev->pub.param.conn.initiator_depth = c->initiator_depth;
	ev->pub.param.conn.flow_control = c->peer_flow_control;
	ev->pub.param.conn.rnr_retry_count = c->rnr_retry;
	ev->pub.param.conn.srq = c->peer_srq;
	ev->pub.param.conn.qp_num = c->remote_qpn;
	ev->ece = c->peer_ece;
	user_event_post(ev);
}

void user_post_ud(struct user_id *u, enum rdma_cm_event_type type, int status,
		  const struct sidr_rep *r, const struct ibv_ah_attr *ah)
{
	struct cm_event *ev = event_new(u, type, status, CM_EVENT_PRIV);

	if (!ev)
		return;
	cm_event_private(ev, r ? r->priv : NULL, r ? SIDR_PRIV_REP : 0, SIDR_PRIV_REP);
	if (r && ah) {
		ev->pub.param.ud.ah_attr = *ah;
		ev->pub.param.ud.qp_num = r->qpn;
		ev->pub.param.ud.qkey = r->qkey;
	}
	user_event_post(ev);
}

void user_post_join(struct user_id *u, struct cm_mcast *mc, const struct ibv_ah_attr *ah,
		    uint32_t qpn)
{
	struct cm_event *ev = event_new(u, RDMA_CM_EVENT_MULTICAST_JOIN, 0, 0);

	if (!ev)
		return;
	ev->mcast = mc;
	ev->pub.param.ud.ah_attr = *ah;
	ev->pub.param.ud.qp_num = qpn;
	ev->pub.param.ud.qkey = u->qkey;
	user_event_post(ev);
}

/* Without the peer's QP: nobody knows it before the reply. */
static void request_param_ud(struct cm_event *ev, struct user_id *child)
{
	cm_event_private(ev, child->req->priv, child->req->priv_len, SIDR_PRIV_REQ);
}

static void request_param(struct cm_event *ev, struct user_id *child)
{
	const struct user_conn *c = &child->conn;

	cm_event_private(ev, child->req->priv, child->req->priv_len, CM_PRIV_REQ);
	ev->pub.param.conn.responder_resources = c->responder_resources;
	ev->pub.param.conn.initiator_depth = c->initiator_depth;
	ev->pub.param.conn.flow_control = c->peer_flow_control;
	ev->pub.param.conn.retry_count = c->retry;
	ev->pub.param.conn.rnr_retry_count = c->rnr_retry;
	ev->pub.param.conn.srq = c->peer_srq;
	ev->pub.param.conn.qp_num = c->remote_qpn;
}

struct cm_event *user_request_event(struct user_id *lis, struct user_id *child)
{
	struct cm_event *ev;

	if (lis->dead || !lis->cm)
		return NULL;
	ev = spare_take(child);
	if (!ev)
		return NULL;
	cm_event_set(ev, lis->cm, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	if (user_is_ud(child))
		request_param_ud(ev, child);
	else
		request_param(ev, child);
	ev->ece = child->conn.peer_ece;
	ev->be_child = child;
	return ev;
}

int user_event_get(struct cm_channel *ch, struct cm_event **ev)
{
	int ret = cm_event_dequeue(ch, ev);

	if (!ret && (*ev)->be_child)
		user_listener_fetched((*ev)->be_child);
	return ret;
}

static void drop(struct cm_event *ev)
{
	if (ev->be_child)
		user_destroy(ev->be_child);
}

void user_event_purge(struct cm_id *id)
{
	cm_event_purge(id, drop);
}
