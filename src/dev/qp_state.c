/* SPDX-License-Identifier: BSD-2-Clause */
/* The verbs' state table of a reliable connection (InfiniBand 1.5, 10.3.1 and
 * table 97, as the Linux drivers enforce it) and the one setter.
 *
 *	RESET -> INIT -> RTR -> RTS <-> SQD
 *	  ^        \______\______\______/ \
 *	  |                 v              v
 *	  +---- from every state ---- ERR (from all but RESET)
 */
#include "base/log.h"
#include "dev/verbs.h"

#include <errno.h>

enum { STATES = IBV_QPS_ERR + 1 };

struct row {
	bool ok;
	int required, optional;
};

#define ALWAYS (IBV_QP_STATE)
#define RTS_OPTIONAL \
	(IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | \
	 IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE)

static const struct row rows[STATES][STATES] = {
	[IBV_QPS_RESET] = {
		[IBV_QPS_RESET] = { .ok = true },
		[IBV_QPS_INIT] = { true, IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				   IBV_QP_ACCESS_FLAGS, 0 },
	},
	[IBV_QPS_INIT] = {
		[IBV_QPS_RESET] = { .ok = true },
		[IBV_QPS_ERR] = { .ok = true },
		[IBV_QPS_INIT] = { true, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				   IBV_QP_ACCESS_FLAGS },
		[IBV_QPS_RTR] = { true, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				  IBV_QP_MIN_RNR_TIMER,
				  IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS |
				  IBV_QP_PKEY_INDEX },
	},
	[IBV_QPS_RTR] = {
		[IBV_QPS_RESET] = { .ok = true },
		[IBV_QPS_ERR] = { .ok = true },
		[IBV_QPS_RTS] = { true, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				  IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				  IBV_QP_MAX_QP_RD_ATOMIC, RTS_OPTIONAL },
	},
	[IBV_QPS_RTS] = {
		[IBV_QPS_RESET] = { .ok = true },
		[IBV_QPS_ERR] = { .ok = true },
		[IBV_QPS_RTS] = { true, 0, RTS_OPTIONAL },
		[IBV_QPS_SQD] = { true, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY },
	},
	[IBV_QPS_SQD] = {
		[IBV_QPS_RESET] = { .ok = true },
		[IBV_QPS_ERR] = { .ok = true },
		[IBV_QPS_RTS] = { true, 0, RTS_OPTIONAL },
		[IBV_QPS_SQD] = { true, 0, IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT |
				  IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				  IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC |
				  IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS |
				  IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER |
				  IBV_QP_PATH_MIG_STATE },
	},
	/* A reliable connection never gets to SQE. */
	[IBV_QPS_ERR] = {
		[IBV_QPS_RESET] = { .ok = true },
		[IBV_QPS_ERR] = { .ok = true },
	},
};

int qp_state_check(enum ibv_qp_state cur, enum ibv_qp_state next, int mask)
{
	const struct row *r;

	if ((unsigned)cur >= STATES || (unsigned)next >= STATES)
		return -EINVAL;
	r = &rows[cur][next];
	if (!r->ok || (mask & r->required) != r->required ||
	    (mask & ~(r->required | r->optional | ALWAYS)))
		return -EINVAL;
	return 0;
}

const char *qp_state_str(enum ibv_qp_state s)
{
	static const char *const names[] = { "RESET", "INIT", "RTR", "RTS",
					     "SQD",   "SQE",  "ERR" };

	return (unsigned)s < sizeof(names) / sizeof(names[0]) ? names[s] : "unknown";
}

void qp_state_set_locked(struct dev_qp *qp, enum ibv_qp_state s)
{
	lock_assert_held(&qp->lock);
	log_debug("QP 0x%x: %s -> %s", qp->qp.qp_num, qp_state_str(qp->qp.state),
		  qp_state_str(s));
	qp->qp.state = s;
	qp->attr.qp_state = qp->attr.cur_qp_state = s;
	if (s != IBV_QPS_ERR)
		qp->flushed = false;
}
