/* SPDX-License-Identifier: BSD-2-Clause */
/* The verbs' state table (InfiniBand 1.5, 10.3.1 and table 97, as the Linux
 * kernel enforces it for every device) and the one setter.
 *
 *	RESET -> INIT -> RTR -> RTS <-> SQD
 *	  ^        \______\______\______/ \      SQE: an error of the send queue of
 *	  |                 v              v     UC or UD, left for RTS
 *	  +---- from every state ---- ERR (from all but RESET)
 *
 * A column per type of QP: what a transition must have and what it may have
 * besides. */
#include "base/log.h"
#include "dev/qpn.h"
#include "dev/share.h"
#include "dev/verbs.h"

#include <errno.h>

enum { STATES = IBV_QPS_ERR + 1 };

enum column { RC, UC, UD, XRC_SEND, XRC_RECV, COLUMNS };

enum { EVERY = (1 << COLUMNS) - 1, UNRELIABLE = 1 << UC | 1 << UD };

struct row {
	unsigned types; /* bits: columns that have the transition */
	int required[COLUMNS], optional[COLUMNS];
};

/* Names of the masks, so that a row fits its lines. */
enum {
	STATE = IBV_QP_STATE,
	CUR = IBV_QP_CUR_STATE,
	PKEY = IBV_QP_PKEY_INDEX,
	PORT = IBV_QP_PORT,
	QKEY = IBV_QP_QKEY,
	ACCESS = IBV_QP_ACCESS_FLAGS,
	AV = IBV_QP_AV,
	MTU = IBV_QP_PATH_MTU,
	DEST = IBV_QP_DEST_QPN,
	RQ_PSN = IBV_QP_RQ_PSN,
	SQ_PSN = IBV_QP_SQ_PSN,
	DEST_READS = IBV_QP_MAX_DEST_RD_ATOMIC,
	READS = IBV_QP_MAX_QP_RD_ATOMIC,
	RNR_TIMER = IBV_QP_MIN_RNR_TIMER,
	TIMEOUT = IBV_QP_TIMEOUT,
	RETRY = IBV_QP_RETRY_CNT,
	RNR_RETRY = IBV_QP_RNR_RETRY,
	ALT = IBV_QP_ALT_PATH,
	MIG = IBV_QP_PATH_MIG_STATE,
	NOTIFY = IBV_QP_EN_SQD_ASYNC_NOTIFY,

	PATH = AV | MTU | DEST | RQ_PSN,
	SOURCE = PKEY | PORT | ACCESS,
	MOVE = CUR | ALT | ACCESS | MIG, /* on the way to RTS, and there */
	WAITS = TIMEOUT | RETRY | RNR_RETRY | READS,
};

#define INTO_RTS \
	{ \
		[RC] = MOVE | RNR_TIMER, [UC] = MOVE, [UD] = CUR | QKEY, \
		[XRC_SEND] = MOVE, [XRC_RECV] = MOVE | RNR_TIMER \
	}
#define SOURCES \
	{ \
		[RC] = SOURCE, [UC] = SOURCE, [UD] = PKEY | PORT | QKEY, \
		[XRC_SEND] = SOURCE, [XRC_RECV] = SOURCE \
	}

static const struct row to_init = { EVERY, .required = SOURCES };
static const struct row in_init = { EVERY, .optional = SOURCES };
static const struct row to_rtr = {
	EVERY,
	.required = { [RC] = PATH | DEST_READS | RNR_TIMER,
		      [UC] = PATH,
		      [XRC_SEND] = PATH,
		      [XRC_RECV] = PATH | DEST_READS | RNR_TIMER },
	.optional = { [RC] = ALT | ACCESS | PKEY,
		      [UC] = ALT | ACCESS | PKEY,
		      [UD] = PKEY | QKEY,
		      [XRC_SEND] = ALT | ACCESS | PKEY,
		      [XRC_RECV] = ALT | ACCESS | PKEY },
};
static const struct row to_rts = {
	EVERY,
	.required = { [RC] = SQ_PSN | WAITS,
		      [UC] = SQ_PSN,
		      [UD] = SQ_PSN,
		      [XRC_SEND] = SQ_PSN | WAITS,
		      [XRC_RECV] = SQ_PSN | TIMEOUT },
	.optional = INTO_RTS,
};
static const struct row in_rts = { EVERY, .optional = INTO_RTS };
static const struct row to_sqd = {
	EVERY,
	.optional = { NOTIFY, NOTIFY, NOTIFY, NOTIFY, NOTIFY },
};
static const struct row in_sqd = {
	EVERY,
	.optional = { [RC] = PORT | AV | WAITS | DEST_READS | ALT | ACCESS | PKEY |
			     RNR_TIMER | MIG,
		      [UC] = AV | ALT | ACCESS | PKEY | MIG,
		      [UD] = PKEY | QKEY,
		      [XRC_SEND] = PORT | AV | WAITS | ALT | ACCESS | PKEY | MIG,
		      [XRC_RECV] = PORT | AV | TIMEOUT | DEST_READS | ALT | ACCESS | PKEY |
				   RNR_TIMER | MIG },
};
static const struct row from_sqe = {
	UNRELIABLE,
	.optional = { [UC] = CUR | ACCESS, [UD] = CUR | QKEY },
};
static const struct row bare = { .types = EVERY };
static const struct row bare_sqe = { .types = UNRELIABLE };

static const struct row *const rows[STATES][STATES] = {
	[IBV_QPS_RESET] = { [IBV_QPS_RESET] = &bare, [IBV_QPS_INIT] = &to_init },
	[IBV_QPS_INIT] = { [IBV_QPS_RESET] = &bare, [IBV_QPS_INIT] = &in_init,
			   [IBV_QPS_RTR] = &to_rtr, [IBV_QPS_ERR] = &bare },
	[IBV_QPS_RTR] = { [IBV_QPS_RESET] = &bare, [IBV_QPS_RTS] = &to_rts,
			  [IBV_QPS_ERR] = &bare },
	[IBV_QPS_RTS] = { [IBV_QPS_RESET] = &bare, [IBV_QPS_RTS] = &in_rts,
			  [IBV_QPS_SQD] = &to_sqd, [IBV_QPS_ERR] = &bare },
	[IBV_QPS_SQD] = { [IBV_QPS_RESET] = &bare, [IBV_QPS_RTS] = &in_rts,
			  [IBV_QPS_SQD] = &in_sqd, [IBV_QPS_ERR] = &bare },
	[IBV_QPS_SQE] = { [IBV_QPS_RESET] = &bare_sqe, [IBV_QPS_RTS] = &from_sqe,
			  [IBV_QPS_ERR] = &bare_sqe },
	[IBV_QPS_ERR] = { [IBV_QPS_RESET] = &bare, [IBV_QPS_ERR] = &bare },
};

static int column_of(enum ibv_qp_type type)
{
	switch (type) {
	case IBV_QPT_RC:
		return RC;
	case IBV_QPT_UC:
		return UC;
	case IBV_QPT_UD:
		return UD;
	case IBV_QPT_XRC_SEND:
		return XRC_SEND;
	case IBV_QPT_XRC_RECV:
		return XRC_RECV;
	default:
		return -1;
	}
}

int qp_state_masks(enum ibv_qp_type type, enum ibv_qp_state cur, enum ibv_qp_state next,
		   int *required, int *optional)
{
	int col = column_of(type);
	const struct row *r;

	if (col < 0 || (unsigned)cur >= STATES || (unsigned)next >= STATES)
		return -EINVAL;
	r = rows[cur][next];
	if (!r || !(r->types & 1u << col))
		return -EINVAL;
	*required = r->required[col];
	*optional = r->optional[col] | STATE;
	return 0;
}

int qp_state_check(enum ibv_qp_type type, enum ibv_qp_state cur, enum ibv_qp_state next,
		   int mask)
{
	int required, optional;

	if (qp_state_masks(type, cur, next, &required, &optional) ||
	    (mask & required) != required || (mask & ~(required | optional)))
		return -EINVAL;
	return 0;
}

const char *qp_state_str(enum ibv_qp_state s)
{
	static const char *const names[] = { "RESET", "INIT", "RTR", "RTS",
					     "SQD",   "SQE",  "ERR" };

	return (unsigned)s < sizeof(names) / sizeof(names[0]) ? names[s] : "unknown";
}

const char *qp_type_str(enum ibv_qp_type type)
{
	static const char *const names[] = { "RC", "UC", "UD", "XRC_SEND", "XRC_RECV" };
	int col = column_of(type);

	return col < 0 ? "unknown" : names[col];
}

void qp_state_set_locked(struct dev_qp *qp, enum ibv_qp_state s)
{
	lock_assert_held(&qp->lock);
	log_debug("QP 0x%x: %s -> %s", qp->qp.qp_num, qp_state_str(qp->qp.state),
		  qp_state_str(s));
	if ((s == IBV_QPS_ERR) != (qp->qp.state == IBV_QPS_ERR))
		qpn_set_error(qp->qp.qp_num, s == IBV_QPS_ERR);
	qp->qp.state = s;
	qp->attr.qp_state = qp->attr.cur_qp_state = s;
	if (s != IBV_QPS_ERR)
		qp->flushed = false;
	share_qp_update_locked(qp);
}
