/* SPDX-License-Identifier: BSD-2-Clause */
/* ibv_modify_qp: checks the state table, then the values, then carries out the
 * transition. */
#include "base/cap.h"
#include "base/log.h"
#include "dev/complete.h"
#include "dev/gid.h"
#include "dev/mcast.h"
#include "dev/qpn.h"
#include "dev/route.h"
#include "dev/share.h"
#include "dev/transport.h"
#include "dev/verbs.h"

#include <errno.h>
#include <linux/capability.h>
#include <string.h>

#define ACCESS_BITS (0xffu | (unsigned)IBV_ACCESS_OPTIONAL_RANGE)

/* Attributes that only have an upper bound. */
static int limits_check(const struct ibv_qp_attr *a, int mask)
{
	const struct {
		int bit;
		const char *name;
		uint32_t v, max;
	} limits[] = {
		{ IBV_QP_PKEY_INDEX, "pkey_index", a->pkey_index, 0 },
		{ IBV_QP_DEST_QPN, "dest_qp_num", a->dest_qp_num, 0xffffff },
		{ IBV_QP_MAX_DEST_RD_ATOMIC, "max_dest_rd_atomic", a->max_dest_rd_atomic,
		  DEV_MAX_RD_ATOM },
		{ IBV_QP_MAX_QP_RD_ATOMIC, "max_rd_atomic", a->max_rd_atomic,
		  DEV_MAX_RD_ATOM },
		{ IBV_QP_MIN_RNR_TIMER, "min_rnr_timer", a->min_rnr_timer, 31 },
		{ IBV_QP_TIMEOUT, "timeout", a->timeout, 31 },
		{ IBV_QP_RETRY_CNT, "retry_cnt", a->retry_cnt, 7 },
		{ IBV_QP_RNR_RETRY, "rnr_retry", a->rnr_retry, 7 },
	};

	for (unsigned i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
		if ((mask & limits[i].bit) && limits[i].v > limits[i].max)
			return log_refuse(EINVAL,
					  "ibv_modify_qp: %s is %u, at most %u is "
					  "allowed",
					  limits[i].name, limits[i].v, limits[i].max);
	return 0;
}

static int mtu_check(unsigned device, enum ibv_mtu mtu)
{
	enum ibv_mtu active = gid_active_mtu(device);

	if (mtu < IBV_MTU_256 || mtu > active)
		return log_refuse(EINVAL,
				  "ibv_modify_qp: path MTU %d, the port's active MTU "
				  "is %d (enum ibv_mtu)",
				  (int)mtu, (int)active);
	return 0;
}

/* Path migration is not promised (IBV_DEVICE_AUTO_PATH_MIG); the kernel refuses
 * alternate paths on every Ethernet port the same way. A QP without one has
 * migrated: saying so is no change. */
static int migration_check(const struct ibv_qp_attr *a, int mask)
{
	if ((mask & IBV_QP_ALT_PATH) ||
	    ((mask & IBV_QP_PATH_MIG_STATE) && a->path_mig_state != IBV_MIG_MIGRATED))
		return log_refuse(EINVAL, "ibv_modify_qp: there are no alternate paths");
	return 0;
}

/* A Q_Key with the high bit is sent only by QPs that have it themselves, and only the
 * privileged may give it to them. The kernel's errno, for every device. */
static int qkey_check(uint32_t qkey)
{
	if (qkey >> 31 && !cap_effective(CAP_NET_RAW))
		return log_refuse(EPERM,
				  "ibv_modify_qp: Q_Key 0x%x has the high bit: it needs "
				  "CAP_NET_RAW",
				  qkey);
	return 0;
}

static int values_check(unsigned device, const struct ibv_qp_attr *a, int mask)
{
	int ret = limits_check(a, mask);

	if (ret)
		return ret;
	if ((mask & IBV_QP_PORT) && a->port_num != 1)
		return log_refuse(EINVAL, "ibv_modify_qp: port %u does not exist",
				  a->port_num);
	if ((mask & IBV_QP_ACCESS_FLAGS) && (a->qp_access_flags & ~ACCESS_BITS))
		return log_refuse(EINVAL, "ibv_modify_qp: unknown access flags 0x%x",
				  a->qp_access_flags & ~ACCESS_BITS);
	if (mask & IBV_QP_QKEY)
		ret = qkey_check(a->qkey);
	if (!ret && (mask & IBV_QP_AV))
		ret = ah_check(device, &a->ah_attr);
	if (!ret && (mask & IBV_QP_PATH_MTU))
		ret = mtu_check(device, a->path_mtu);
	return ret ? ret : migration_check(a, mask);
}

/* Copies what the mask names. */
static void values_apply_locked(struct dev_qp *qp, const struct ibv_qp_attr *a, int mask)
{
	struct ibv_qp_attr *to = &qp->attr;

	lock_assert_held(&qp->lock);
#define COPY(bit, field) \
	do { \
		if (mask & (bit)) \
			to->field = a->field; \
	} while (0)
	COPY(IBV_QP_PKEY_INDEX, pkey_index);
	COPY(IBV_QP_PORT, port_num);
	COPY(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	COPY(IBV_QP_AV, ah_attr);
	COPY(IBV_QP_PATH_MTU, path_mtu);
	COPY(IBV_QP_DEST_QPN, dest_qp_num);
	COPY(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	COPY(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	COPY(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	COPY(IBV_QP_TIMEOUT, timeout);
	COPY(IBV_QP_RETRY_CNT, retry_cnt);
	COPY(IBV_QP_RNR_RETRY, rnr_retry);
	COPY(IBV_QP_QKEY, qkey);
	COPY(IBV_QP_PATH_MIG_STATE, path_mig_state);
#undef COPY
	/* Hardware keeps as many bits of these as the header's field has. */
	to->ah_attr.grh.flow_label &= 0xfffff;
	if (mask & IBV_QP_RQ_PSN)
		to->rq_psn = a->rq_psn & 0xffffff;
	if (mask & IBV_QP_SQ_PSN)
		to->sq_psn = a->sq_psn & 0xffffff;
	share_qp_update_locked(qp);
}

/* ---- transitions: called with modify_lock, without qp->lock ------------------ */

static int enter_init(struct dev_qp *qp)
{
	int ret = transport_choose(qp->qp.qp_type)->listen(qp);

	if (ret)
		log_info("ibv_modify_qp: QP 0x%x: its rendezvous port %u cannot listen: "
			 "%s",
			 qp->qp.qp_num, qpn_port(qp->qp.qp_num), strerror(-ret));
	return ret;
}

/* It may have gone since the attributes were checked. */
static int route_set_locked(struct dev_qp *qp)
{
	struct dev_route r;
	int ret = route_find(qp->device, &qp->attr.ah_attr, &r);

	lock_assert_held(&qp->lock);
	if (ret)
		return ret;
	qp->local_gid = r.sgid;
	qp->remote_gid = r.dgid;
	qp->local_ifindex = r.ifindex;
	return 0;
}

static int enter_rtr(struct dev_qp *qp) REQUIRES(qp->modify_lock);

static int enter_rtr(struct dev_qp *qp)
{
	const struct dev_transport *tr = transport_choose(qp->qp.qp_type);
	int ret = 0;

	lock_get(&qp->lock);
	if (qp_type_is_connected(qp->qp.qp_type))
		ret = route_set_locked(qp);
	qp->tr = tr;
	lock_put(&qp->lock);
	if (!ret)
		ret = tr->attach(qp);
	if (!ret) {
		ret = mcast_enter_locked(qp);
		if (!ret)
			return 0;
		tr->detach(qp);
	}
	lock_get(&qp->lock);
	qp->tr = NULL;
	if (qp->qp.state == IBV_QPS_RTR)
		qp_state_set_locked(qp, IBV_QPS_INIT);
	lock_put(&qp->lock);
	return log_refuse(-ret, "ibv_modify_qp: QP 0x%x: no transport: %s", qp->qp.qp_num,
			  strerror(-ret));
}

static void enter_rts(struct dev_qp *qp)
{
	qp->tr->kick(qp);
}

/* Each transition to SQD asks for the notification anew. */
static void enter_sqd_locked(struct dev_qp *qp, bool notify)
{
	lock_assert_held(&qp->lock);
	qp->attr.en_sqd_async_notify = notify;
	qp->sqd_upto = sq_begun(&qp->sq);
	qp->sqd_armed = notify;
	sq_drained_check_locked(qp);
}

/* Waits for accesses that other processes have begun, as the QP allowed until now. */
static void entry_settle(struct dev_qp *qp)
{
	uint64_t share_id;

	lock_get(&qp->lock);
	share_id = qp->share_id;
	lock_put(&qp->lock);
	share_qp_wait(share_id);
}

static void before_err(struct dev_qp *qp)
{
	const struct dev_transport *tr;

	lock_get(&qp->lock);
	tr = qp->tr;
	lock_put(&qp->lock);
	if (tr && tr->receive)
		tr->receive(qp);
}

static void enter_err(struct dev_qp *qp)
{
	const struct dev_transport *tr;

	lock_get(&qp->lock);
	tr = qp->tr;
	lock_put(&qp->lock);
	if (tr)
		tr->stop(qp);
	entry_settle(qp);
	lock_get(&qp->lock);
	if (qp->qp.state == IBV_QPS_ERR && !qp->flushed)
		qp_flush_locked(qp);
	lock_put(&qp->lock);
}

static void enter_reset(struct dev_qp *qp) REQUIRES(qp->modify_lock);

static void enter_reset(struct dev_qp *qp)
{
	const struct dev_transport *tr;

	lock_get(&qp->lock);
	tr = qp->tr;
	qp->tr = NULL;
	lock_put(&qp->lock);
	/* First: a thread that posts to the SRQ may be about to call the transport. In
	 * RESET the QP is not put on the list again. */
	if (qp->srq)
		srq_forget_qp(qp->srq, qp);
	if (tr) {
		mcast_leave_locked(qp, tr);
		tr->detach(qp);
	}
	if (qp->send_cq)
		cq_forget_qp(qp->send_cq, qp);
	if (qp->recv_cq && qp->recv_cq != qp->send_cq)
		cq_forget_qp(qp->recv_cq, qp);
	lock_get(&qp->lock);
	qp_clear_locked(qp);
	lock_put(&qp->lock);
}

static int enter(struct dev_qp *qp, enum ibv_qp_state from, enum ibv_qp_state to)
	REQUIRES(qp->modify_lock);

static int enter(struct dev_qp *qp, enum ibv_qp_state from, enum ibv_qp_state to)
{
	switch (to) {
	case IBV_QPS_RTR:
		return enter_rtr(qp);
	case IBV_QPS_RTS:
		if (from != to)
			enter_rts(qp);
		return 0;
	case IBV_QPS_ERR:
		enter_err(qp);
		return 0;
	case IBV_QPS_RESET:
		enter_reset(qp);
		return 0;
	default:
		return 0;
	}
}

/* ---- the call ----------------------------------------------------------------- */

static int masks_check(const struct dev_qp *qp, int mask, enum ibv_qp_state cur,
		       enum ibv_qp_state next)
{
	const char *type = qp_type_str(qp->qp.qp_type);
	uint32_t qpn = qp->qp.qp_num;
	int required, optional;

	if (qp_state_masks(qp->qp.qp_type, cur, next, &required, &optional))
		return log_refuse(EINVAL,
				  "ibv_modify_qp: QP 0x%x: %s -> %s is no transition of a "
				  "QP of type %s",
				  qpn, qp_state_str(cur), qp_state_str(next), type);
	if ((mask & required) != required)
		return log_refuse(EINVAL,
				  "ibv_modify_qp: QP 0x%x (%s): %s -> %s needs attributes "
				  "0x%x too",
				  qpn, type, qp_state_str(cur), qp_state_str(next),
				  required & ~mask);
	if (mask & ~(required | optional))
		return log_refuse(EINVAL,
				  "ibv_modify_qp: QP 0x%x (%s): %s -> %s does not take "
				  "attributes 0x%x",
				  qpn, type, qp_state_str(cur), qp_state_str(next),
				  mask & ~(required | optional));
	return 0;
}

/* InfiniBand 10.3.1.5: what was begun ends before anything else may happen. The path of
 * a connected QP is fixed here: a connection cannot move to other addresses. */
static int sqd_check(const struct dev_qp *qp, const struct ibv_qp_attr *a, int mask,
		     enum ibv_qp_state next)
{
	struct dev_route r;

	if (next == IBV_QPS_ERR || next == IBV_QPS_RESET)
		return 0;
	if (!sq_drained(qp))
		return log_refuse(EINVAL,
				  "ibv_modify_qp: QP 0x%x: the send queue has not drained "
				  "yet",
				  qp->qp.qp_num);
	if (!(mask & IBV_QP_AV))
		return 0;
	if (route_find(qp->device, &a->ah_attr, &r))
		return -EINVAL;
	if (memcmp(&r.sgid, &qp->local_gid, sizeof(r.sgid)) ||
	    memcmp(&r.dgid, &qp->remote_gid, sizeof(r.dgid)))
		return log_refuse(EOPNOTSUPP,
				  "ibv_modify_qp: QP 0x%x: a connection cannot move to "
				  "other addresses",
				  qp->qp.qp_num);
	return 0;
}

static int table_check(const struct dev_qp *qp, const struct ibv_qp_attr *a, int mask,
		       enum ibv_qp_state cur, enum ibv_qp_state next)
{
	int ret;

	if ((mask & IBV_QP_CUR_STATE) && a->cur_qp_state != cur)
		return log_refuse(EINVAL, "ibv_modify_qp: QP 0x%x is in %s, not in %s",
				  qp->qp.qp_num, qp_state_str(cur),
				  qp_state_str(a->cur_qp_state));
	ret = masks_check(qp, mask, cur, next);
	return ret || cur != IBV_QPS_SQD ? ret : sqd_check(qp, a, mask, next);
}

/* Sets attributes and state. *from is the state before. */
static int apply(struct dev_qp *qp, const struct ibv_qp_attr *a, int mask,
		 enum ibv_qp_state *from, enum ibv_qp_state *to)
{
	int ret;

	lock_get(&qp->lock);
	*from = qp->qp.state;
	*to = mask & IBV_QP_STATE ? a->qp_state : *from;
	ret = table_check(qp, a, mask, *from, *to);
	if (!ret) {
		values_apply_locked(qp, a, mask);
		if (*to != *from)
			qp_state_set_locked(qp, *to);
		if (*to == IBV_QPS_SQD && *from == IBV_QPS_RTS)
			enter_sqd_locked(qp, (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) &&
						     a->en_sqd_async_notify);
		else
			qp->sqd_armed = false;
	}
	lock_put(&qp->lock);
	return ret;
}

/* Of half a connection, attributes of the other half are ignored, as the kernel
 * does for every device: programs set them for both. */
static int mask_of_half(enum ibv_qp_type type, int mask)
{
	switch (type) {
	case IBV_QPT_XRC_SEND:
		return mask & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	case IBV_QPT_XRC_RECV:
		return mask & ~(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT |
				IBV_QP_RNR_RETRY);
	default:
		return mask;
	}
}

int qp_modify(struct dev_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	enum ibv_qp_state from, to;
	bool to_init;
	int ret;

	mask = mask_of_half(qp->qp.qp_type, mask);
	lock_get(&qp->modify_lock);
	lock_get(&qp->lock);
	from = qp->qp.state;
	to = mask & IBV_QP_STATE ? attr->qp_state : from;
	ret = table_check(qp, attr, mask, from, to);
	lock_put(&qp->lock);
	if (!ret)
		ret = values_check(qp->device, attr, mask);
	to_init = from == IBV_QPS_RESET && to == IBV_QPS_INIT;
	if (!ret && to_init)
		ret = enter_init(qp);
	if (!ret && to == IBV_QPS_ERR && from != to)
		before_err(qp);
	/* The state may have become ERR meanwhile: apply() checks the table again. */
	if (!ret)
		ret = apply(qp, attr, mask, &from, &to);
	if (!ret)
		ret = enter(qp, from, to);
	if (!ret && (mask & IBV_QP_ACCESS_FLAGS))
		entry_settle(qp);
	lock_put(&qp->modify_lock);
	return ret;
}
