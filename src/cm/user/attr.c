/* SPDX-License-Identifier: BSD-2-Clause */
/* rdma_init_qp_attr: attributes of a QP's moves, as the kernel's CM gives them. */
#include "base/conf.h"
#include "base/log.h"
#include "cm/user/user.h"

#include <string.h>

/* 4.096 us * 2^n: of the QP of this id. */
uint8_t user_ack_timeout(const struct user_id *u)
{
	if (u->timeout_set)
		return u->timeout;
	return u->conn.timeout ? u->conn.timeout : (uint8_t)(u->life_time + 1);
}

uint64_t user_timewait_ms(const struct user_id *u)
{
	uint8_t t = user_ack_timeout(u);

	/* 0 means for ever to a QP; for a wait it means the longest. */
	if (!t || t > 21)
		return USER_DREQ_MS_MAX;
	return ((4096ull << t) + MSEC - 1) / MSEC;
}

/* A request was sent or received: the kernel's id has an IB CM id. */
static bool exchanged(const struct user_id *u)
{
	return u->state >= US_CONNECTING && u->state != US_REMOVED;
}

/* RTR and RTS: the peer's half is known. */
static bool peer_known(const struct user_id *u)
{
	switch (u->state) {
	case US_REP_RCVD:
	case US_REQ_RCVD:
	case US_REP_SENT:
	case US_ESTABLISHED:
		return true;
	default:
		return false;
	}
}

static void attr_init(struct user_id *u, struct ibv_qp_attr *a, int *mask)
{
	a->pkey_index = 0;
	a->port_num = 1;
	*mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	if (user_is_ud(u)) {
		/* Also in RDMA_PS_IPOIB, whose Q_Key a subnet manager would tell. */
		a->qkey = u->qkey = RDMA_UDP_QKEY;
		*mask |= IBV_QP_QKEY;
		return;
	}
	a->qp_access_flags = 0;
	*mask |= IBV_QP_ACCESS_FLAGS;
	if (!exchanged(u))
		return;
	a->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	if (u->conn.reads)
		a->qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
}

int user_ah_attr(struct user_id *u, const union ibv_gid *dgid, struct ibv_ah_attr *a)
{
	int sgid = cm_dev->gid_of_addr(u->device, (const struct sockaddr *)&u->src);

	if (sgid < 0)
		return log_refuse(-sgid, "the id's source address has left the GID table");
	memset(a, 0, sizeof(*a));
	a->is_global = 1;
	a->port_num = 1;
	/* The GIDs are addresses, which say where it goes; a LID may be without one. */
	if (conf_get()->link_ib)
		a->dlid = cm_dev->lid_of_gid(dgid);
	a->grh.dgid = *dgid;
	a->grh.sgid_index = (uint8_t)sgid;
	a->grh.hop_limit = USER_HOP_LIMIT;
	a->grh.traffic_class = u->tos;
	return 0;
}

static int attr_rtr(struct user_id *u, struct ibv_qp_attr *a, int *mask)
	REQUIRES(u->lock)
{
	const struct user_conn *c = &u->conn;
	int ret = user_ah_attr(u, &c->remote_gid, &a->ah_attr);

	if (ret)
		return ret;
	a->path_mtu = (enum ibv_mtu)c->mtu;
	a->dest_qp_num = c->remote_qpn;
	a->rq_psn = c->local_psn;
	*mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		IBV_QP_RQ_PSN;
	if (u->qp_type == IBV_QPT_RC || u->qp_type == IBV_QPT_XRC_RECV) {
		a->max_dest_rd_atomic = c->responder_resources;
		a->min_rnr_timer = 0;
		*mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	}
	return 0;
}

static void attr_rts(const struct user_id *u, struct ibv_qp_attr *a, int *mask)
{
	const struct user_conn *c = &u->conn;

	a->sq_psn = c->remote_psn;
	*mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (u->qp_type == IBV_QPT_RC || u->qp_type == IBV_QPT_XRC_SEND) {
		a->retry_cnt = c->retry;
		a->rnr_retry = c->rnr_retry;
		a->max_rd_atomic = c->initiator_depth;
		*mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	}
	if (u->qp_type != IBV_QPT_UC) {
		a->timeout = user_ack_timeout(u);
		*mask |= IBV_QP_TIMEOUT;
	}
}

static int attr_locked(struct user_id *u, struct ibv_qp_attr *a, int *mask)
	REQUIRES(u->lock)
{
	if (u->state == US_REMOVED)
		return -ENXIO;
	if (!u->bound)
		return log_refuse(EINVAL, "init_qp_attr: the id has no device");
	/* The kernel has nothing else for UD, whatever state is asked for. */
	if (a->qp_state == IBV_QPS_INIT ||
	    (user_is_ud(u) && a->qp_state <= IBV_QPS_ERR)) {
		attr_init(u, a, mask);
		return 0;
	}
	if ((a->qp_state != IBV_QPS_RTR && a->qp_state != IBV_QPS_RTS) ||
	    !peer_known(u))
		return log_refuse(EINVAL, "init_qp_attr: no attributes for QP state %d "
				  "while the id is in state %s", a->qp_state,
				  user_state_str(u->state));
	if (a->qp_state == IBV_QPS_RTR)
		return attr_rtr(u, a, mask);
	attr_rts(u, a, mask);
	return 0;
}

int user_init_qp_attr(struct cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	struct user_id *u = to_user(id);
	int ret;

	lock_get(&u->lock);
	ret = attr_locked(u, attr, mask);
	lock_put(&u->lock);
	return ret;
}
