/* SPDX-License-Identifier: BSD-2-Clause */
/* The active side. rconnect() begins; each step is taken by the service thread when its
 * event comes. */
#include "rsocket/rs.h"

#include <errno.h>

enum { TIMEOUT_MS = 1000, TRIES = 6 };

int rs_bind(struct rs *rs, const struct sockaddr *addr, socklen_t len)
{
	if (!addr || len < sizeof(sa_family_t))
		return -EINVAL;
	if (addr->sa_family == AF_INET6 ? len < sizeof(struct sockaddr_in6) :
					  len < sizeof(struct sockaddr_in))
		return -EINVAL;
	if (addr->sa_family != rs->domain)
		return -EAFNOSUPPORT;
	if (rs_state(rs) != RS_NEW)
		return -EINVAL;
	return rdma_bind_addr(rs->id, (struct sockaddr *)addr) ? -errno : 0;
}

static void connect_failed(struct rs *rs, int err)
{
	atomic_store(&rs->err, err ? err : ECONNREFUSED);
	rs_set_state(rs, RS_FAILED);
}

static int resolve(struct rs *rs)
{
	return rdma_resolve_addr(rs->id, NULL, (struct sockaddr *)&rs->peer,
				 TIMEOUT_MS << rs->tries) ? -errno : 0;
}

static int route(struct rs *rs)
{
	if (rs->opts.nroute)
		return rdma_set_option(rs->id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH,
				       rs->opts.route, rs->opts.nroute) ? -errno : 0;
	return rdma_resolve_route(rs->id, TIMEOUT_MS << rs->tries) ? -errno : 0;
}

static bool connect_over(struct rs *rs)
{
	return rs_state(rs) != RS_CONNECTING || (rs_ended(rs) & RS_CLOSED);
}

static int connect_wait(struct rs *rs)
{
	int ret;

	if (obj_nonblock(&rs->obj, 0))
		return connect_over(rs) && rs_state(rs) == RS_CONNECTED ? 0 :
									  -EINPROGRESS;
	ret = rs_wait(rs, connect_over,
		      rs->opts.sndtimeo ? now_ns() + rs->opts.sndtimeo : UINT64_MAX);
	if (ret)
		return ret == -ETIMEDOUT ? -EINPROGRESS : ret;
	if (rs_ended(rs) & RS_CLOSED)
		return -EBADF;
	if (rs_state(rs) == RS_CONNECTED)
		return 0;
	ret = atomic_exchange(&rs->err, 0);
	return -(ret ? ret : ECONNREFUSED);
}

static int connect_state(struct rs *rs)
{
	switch (rs_state(rs)) {
	case RS_NEW:
		return 0;
	case RS_CONNECTING:
		return -EALREADY;
	case RS_FAILED:
		return -ENOTCONN;
	default:
		return -EISCONN;
	}
}

int rs_connect(struct rs *rs, const struct sockaddr *addr, socklen_t len)
{
	int ret;

	if (!addr || len < sizeof(struct sockaddr_in) || len > sizeof(rs->peer))
		return -EINVAL;
	if (addr->sa_family == AF_INET6 && len < sizeof(struct sockaddr_in6))
		return -EINVAL;
	if (addr->sa_family != rs->domain)
		return -EAFNOSUPPORT;
	pthread_mutex_lock(&rs->lock);
	ret = connect_state(rs);
	if (!ret) {
		memcpy(&rs->peer, addr, len);
		rs_set_state(rs, RS_CONNECTING);
		ret = resolve(rs);
		if (ret)
			connect_failed(rs, -ret);
	}
	pthread_mutex_unlock(&rs->lock);
	return ret ? ret : connect_wait(rs);
}

/* ---- steps, in the service thread ------------------------------------------------------ */

static int ask(struct rs *rs)
{
	uint8_t data[PROTO_IB_HEADER + PROTO_CONN_LEN] = { 0 };
	size_t head = rs->domain == AF_IB ? PROTO_IB_HEADER : 0;
	struct rdma_conn_param p = {
		.private_data = data,
		.private_data_len = (uint8_t)(head + PROTO_CONN_LEN),
		.flow_control = 1,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};
	int ret = rs_prepare(rs);

	if (ret)
		return ret;
	if (rs->hub->iwarp)
		p.initiator_depth = 1;
	rs_describe(rs, data + head);
	return rdma_connect(rs->id, &p) ? -errno : 0;
}

/* REJECTED has a reason of the CM's, all others -errno. */
static int event_errno(enum rdma_cm_event_type type, int status)
{
	if (type == RDMA_CM_EVENT_REJECTED)
		return ECONNREFUSED;
	if (status < 0)
		return -status;
	return type == RDMA_CM_EVENT_UNREACHABLE ? ETIMEDOUT : EHOSTUNREACH;
}

static int established(struct rs *rs, const struct proto_conn *peer, int peer_err)
{
	if (rs->passive) {
		credit_give(rs);
		return 0;
	}
	if (rs_state(rs) != RS_CONNECTING)
		return 0;
	if (peer_err)
		return peer_err == -EPROTONOSUPPORT ? -ENOTSUP : peer_err;
	rs_take_peer(rs, peer);
	rs_set_state(rs, RS_CONNECTED);
	credit_give(rs);
	service_keepalive(rs);
	return 0;
}

/* The connection has ended; what came before that is still to be read. */
static void disconnected(struct rs *rs)
{
	if (rs_state(rs) == RS_CONNECTING) {
		connect_failed(rs, ECONNRESET);
		return;
	}
	if (rs->shard)
		shard_run(rs->shard, true);
	rs_end(rs, RS_PEER_SHUT | RS_GONE, 0);
}

static void error_event(struct rs *rs, enum rdma_cm_event_type type, int status)
{
	bool address = type == RDMA_CM_EVENT_ADDR_ERROR || type == RDMA_CM_EVENT_ROUTE_ERROR;

	if (rs_state(rs) != RS_CONNECTING) {
		rs_end(rs, RS_PEER_SHUT | RS_GONE | RS_BROKEN, ECONNRESET);
		return;
	}
	if (address && status == -ETIMEDOUT && rs->tries < TRIES) {
		rs->tries++;
		if (!(type == RDMA_CM_EVENT_ADDR_ERROR ? resolve(rs) : route(rs)))
			return;
	}
	connect_failed(rs, event_errno(type, status));
}

void connect_event(struct rs *rs, enum rdma_cm_event_type type, int status,
		   const struct proto_conn *peer, int peer_err)
{
	int ret = 0;

	switch (type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		ret = route(rs);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		ret = ask(rs);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		ret = established(rs, peer, peer_err);
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
		error_event(rs, type, status);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		disconnected(rs);
		break;
	default:
		break;
	}
	if (ret && rs_state(rs) == RS_CONNECTING)
		connect_failed(rs, -ret);
}
