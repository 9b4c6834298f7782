/* SPDX-License-Identifier: BSD-2-Clause */
/* The passive side. The service thread accepts connections as they come, as a kernel does
 * before accept(2), so a client need not wait for raccept(). Up to the backlog wait; what
 * comes when so many do is refused. */
#include "rsocket/rs.h"

#include <errno.h>
#include <unistd.h>

enum { BACKLOG_MAX = 4096 };

int rs_listen(struct rs *rs, int backlog)
{
	int ret = 0;

	if (backlog < 0 || backlog > BACKLOG_MAX)
		backlog = BACKLOG_MAX;
	pthread_mutex_lock(&rs->lock);
	rs->backlog = backlog ? backlog : 1;
	if (rs_state(rs) == RS_NEW) {
		ret = rdma_listen(rs->id, rs->backlog) ? -errno : 0;
		if (!ret)
			rs_set_state(rs, RS_LISTENING);
	} else if (rs_state(rs) != RS_LISTENING) {
		ret = -EINVAL;
	}
	pthread_mutex_unlock(&rs->lock);
	return ret;
}

/* ---- in the service thread --------------------------------------------------------- */

static int answer(struct rs *rs, const struct rdma_conn_param *asked)
{
	uint8_t data[PROTO_CONN_LEN];
	struct rdma_conn_param p = {
		.private_data = data,
		.private_data_len = sizeof(data),
		.responder_resources = asked->responder_resources,
		.initiator_depth = asked->initiator_depth,
		.flow_control = asked->flow_control,
		.retry_count = asked->retry_count,
		.rnr_retry_count = asked->rnr_retry_count,
		.srq = asked->srq,
		.qp_num = asked->qp_num,
	};

	rs_describe(rs, data);
	return rdma_accept(rs->id, &p) ? -errno : 0;
}

static void queue(struct rs *l, struct rs *rs)
{
	pthread_mutex_lock(&l->lock);
	rs->next_ready = NULL;
	*l->ready_end = rs;
	l->ready_end = &rs->next_ready;
	l->nready++;
	pthread_mutex_unlock(&l->lock);
	watch_changed(&l->watch);
}

static bool has_room(struct rs *l)
{
	bool has;

	pthread_mutex_lock(&l->lock);
	has = l->nready <= l->backlog && !(rs_ended(l) & (RS_RD_SHUT | RS_CLOSED));
	pthread_mutex_unlock(&l->lock);
	return has;
}

void listen_request(struct rs *l, struct rdma_cm_id *id,
		    const struct rdma_conn_param *param, const struct proto_conn *peer,
		    int peer_err)
{
	struct rs *rs = NULL;
	int ret = peer_err;

	if (!ret && !has_room(l))
		ret = -ECONNREFUSED;
	if (!ret && !(rs = rs_create(l->domain)))
		ret = -ENOMEM;
	if (ret) {
		rdma_reject(id, NULL, 0);
		rdma_destroy_id(id);
		return;
	}
	rs->opts = l->opts;
	rs->opts.route = NULL;
	rs->opts.nroute = 0;
	rs->id = id;
	rs->passive = true;
	id->context = rs;
	ret = rs_prepare(rs);
	if (ret) {
		log_info("a connection is refused: %s", strerror(-ret));
		rdma_reject(id, NULL, 0);
		rs_destroy(rs);
		return;
	}
	rs_take_peer(rs, peer);
	rs_set_state(rs, RS_CONNECTED);
	ret = answer(rs, param);
	if (ret) {
		log_info("rdma_accept: %s", strerror(-ret));
		rs_destroy(rs);
		return;
	}
	service_keepalive(rs);
	queue(l, rs);
}

/* ---- raccept ------------------------------------------------------------------------ */

bool accept_ready(struct rs *l)
{
	return atomic_load(&l->nready) || (rs_ended(l) & (RS_RD_SHUT | RS_CLOSED));
}

static struct rs *pop(struct rs *l)
{
	struct rs *rs;

	pthread_mutex_lock(&l->lock);
	rs = l->ready;
	if (rs) {
		l->ready = rs->next_ready;
		if (!l->ready)
			l->ready_end = &l->ready;
		l->nready--;
	}
	pthread_mutex_unlock(&l->lock);
	return rs;
}

static void push_back(struct rs *l, struct rs *rs)
{
	pthread_mutex_lock(&l->lock);
	rs->next_ready = l->ready;
	if (!l->ready)
		l->ready_end = &rs->next_ready;
	l->ready = rs;
	l->nready++;
	pthread_mutex_unlock(&l->lock);
}

int rs_accept(struct rs *l, int flags, struct rs **out)
{
	uint64_t until = obj_nonblock(&l->obj, 0) ? 0 :
			 l->opts.rcvtimeo ? now_ns() + l->opts.rcvtimeo : UINT64_MAX;
	struct rs *rs;
	int ret;

	if (rs_state(l) != RS_LISTENING)
		return -EINVAL;
	while (!(rs = pop(l))) {
		if (rs_ended(l) & RS_CLOSED)
			return -EBADF;
		if (rs_ended(l) & RS_RD_SHUT)
			return -EINVAL;
		ret = rs_wait(l, accept_ready, until);
		if (ret)
			return ret == -ETIMEDOUT ? -EAGAIN : ret;
	}
	ret = rs_open(rs, flags);
	if (ret) {
		push_back(l, rs);
		return ret;
	}
	*out = rs;
	return 0;
}

void listen_end(struct rs *l)
{
	struct rs *rs;

	while ((rs = pop(l)))
		service_destroy(rs, false);
}
