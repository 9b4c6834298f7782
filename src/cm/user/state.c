/* SPDX-License-Identifier: BSD-2-Clause */
#include "cm/user/state.h"

#include "base/log.h"
#include "cm/user/user.h"

#include <errno.h>

/* Cells hold next state + 1, so that an absent cell (0) is a refusal. */
#define TO(s) ((int8_t)((s) + 1))
#define ANY_END [ST_REMOVAL] = TO(US_REMOVED), [ST_DESTROY] = TO(US_DEAD)

static const int8_t next[US_COUNT][ST_COUNT] = {
	[US_IDLE] = {
		[ST_BIND] = TO(US_BOUND),
		[ST_RESOLVE_ADDR] = TO(US_ADDR_QUERY),
		[ST_LISTEN] = TO(US_LISTEN),
		[ST_REQ] = TO(US_REQ_RCVD),
		[ST_DESTROY] = TO(US_DEAD),
	},
	[US_BOUND] = {
		[ST_RESOLVE_ADDR] = TO(US_ADDR_QUERY),
		[ST_LISTEN] = TO(US_LISTEN),
		ANY_END,
	},
	[US_ADDR_QUERY] = {
		[ST_ADDR_OK] = TO(US_ADDR_RESOLVED),
		[ST_ADDR_FAIL] = TO(US_BOUND),
		ANY_END,
	},
	[US_ADDR_RESOLVED] = {
		[ST_RESOLVE_ROUTE] = TO(US_ROUTE_QUERY),
		[ST_SET_PATH] = TO(US_ROUTE_RESOLVED),
		ANY_END,
	},
	[US_ROUTE_QUERY] = {
		[ST_ROUTE_OK] = TO(US_ROUTE_RESOLVED),
		[ST_ROUTE_FAIL] = TO(US_ADDR_RESOLVED),
		ANY_END,
	},
	[US_ROUTE_RESOLVED] = {
		[ST_CONNECT] = TO(US_CONNECTING),
		ANY_END,
	},
	[US_LISTEN] = {
		[ST_DISCONNECT] = TO(US_LISTEN),
		ANY_END,
	},
	/* rdma_disconnect before the connection stands is no error and sends
	 * nothing: the row keeps its state. */
	[US_CONNECTING] = {
		[ST_REQ_SENT] = TO(US_AWAIT_REP),
		[ST_REJECTED] = TO(US_CLOSED),
		[ST_FAIL] = TO(US_CLOSED),
		[ST_DISCONNECT] = TO(US_CONNECTING),
		ANY_END,
	},
	[US_AWAIT_REP] = {
		[ST_RETRY] = TO(US_CONNECTING),
		[ST_REP] = TO(US_REP_RCVD),
		[ST_ANSWER] = TO(US_DATAGRAM),
		[ST_REJECT] = TO(US_CLOSED),
		[ST_REJECTED] = TO(US_CLOSED),
		[ST_FAIL] = TO(US_CLOSED),
		[ST_DISCONNECT] = TO(US_AWAIT_REP),
		ANY_END,
	},
	/* A reject after the reply leaves a QP that may have been used: both
	 * sides go through TIMEWAIT. */
	[US_REP_RCVD] = {
		[ST_ESTABLISH] = TO(US_ESTABLISHED),
		[ST_REJECT] = TO(US_CLOSED),
		[ST_REJECTED] = TO(US_TIMEWAIT),
		[ST_FAIL] = TO(US_CLOSED),
		[ST_DISCONNECT] = TO(US_REP_RCVD),
		ANY_END,
	},
	[US_REQ_RCVD] = {
		[ST_ACCEPT] = TO(US_REP_SENT),
		[ST_ANSWER] = TO(US_DATAGRAM),
		[ST_REJECT] = TO(US_CLOSED),
		[ST_FAIL] = TO(US_CLOSED),
		[ST_DISCONNECT] = TO(US_REQ_RCVD),
		[ST_GONE] = TO(US_CLOSED),
		ANY_END,
	},
	[US_REP_SENT] = {
		[ST_RTU] = TO(US_ESTABLISHED),
		[ST_REJECT] = TO(US_TIMEWAIT),
		[ST_REJECTED] = TO(US_CLOSED),
		[ST_DISCONNECT] = TO(US_REP_SENT),
		[ST_DREQ] = TO(US_DREQ_RCVD),
		[ST_TIMEOUT] = TO(US_CLOSED),
		ANY_END,
	},
	[US_ESTABLISHED] = {
		[ST_REJECTED] = TO(US_TIMEWAIT),
		[ST_DISCONNECT] = TO(US_DREQ_SENT),
		[ST_DREQ] = TO(US_DREQ_RCVD),
		[ST_GONE] = TO(US_DREQ_RCVD),
		ANY_END,
	},
	[US_DREQ_SENT] = {
		[ST_DISCONNECT] = TO(US_DREQ_SENT),
		[ST_DREQ] = TO(US_DREQ_RCVD),
		[ST_DREP] = TO(US_TIMEWAIT),
		[ST_GONE] = TO(US_TIMEWAIT),
		[ST_TIMEOUT] = TO(US_TIMEWAIT),
		ANY_END,
	},
	[US_DREQ_RCVD] = {
		[ST_DISCONNECT] = TO(US_TIMEWAIT),
		[ST_DREQ] = TO(US_DREQ_RCVD),
		[ST_DREP] = TO(US_TIMEWAIT),
		[ST_GONE] = TO(US_DREQ_RCVD),
		ANY_END,
	},
	[US_TIMEWAIT] = {
		[ST_DISCONNECT] = TO(US_TIMEWAIT),
		[ST_DREQ] = TO(US_TIMEWAIT),
		[ST_DREP] = TO(US_TIMEWAIT),
		[ST_GONE] = TO(US_TIMEWAIT),
		[ST_TIMEWAIT_OVER] = TO(US_CLOSED),
		ANY_END,
	},
	[US_DATAGRAM] = {
		[ST_DISCONNECT] = TO(US_DATAGRAM),
		ANY_END,
	},
	[US_CLOSED] = {
		[ST_DISCONNECT] = TO(US_CLOSED),
		[ST_GONE] = TO(US_CLOSED),
		ANY_END,
	},
	[US_REMOVED] = {
		[ST_DESTROY] = TO(US_DEAD),
	},
};

static const char *const state_names[US_COUNT] = {
	[US_IDLE] = "IDLE",
	[US_BOUND] = "BOUND",
	[US_ADDR_QUERY] = "ADDR_QUERY",
	[US_ADDR_RESOLVED] = "ADDR_RESOLVED",
	[US_ROUTE_QUERY] = "ROUTE_QUERY",
	[US_ROUTE_RESOLVED] = "ROUTE_RESOLVED",
	[US_LISTEN] = "LISTEN",
	[US_CONNECTING] = "CONNECTING",
	[US_AWAIT_REP] = "AWAIT_REP",
	[US_REP_RCVD] = "REP_RCVD",
	[US_REQ_RCVD] = "REQ_RCVD",
	[US_REP_SENT] = "REP_SENT",
	[US_ESTABLISHED] = "ESTABLISHED",
	[US_DREQ_SENT] = "DREQ_SENT",
	[US_DREQ_RCVD] = "DREQ_RCVD",
	[US_DATAGRAM] = "DATAGRAM",
	[US_TIMEWAIT] = "TIMEWAIT",
	[US_CLOSED] = "CLOSED",
	[US_REMOVED] = "REMOVED",
	[US_DEAD] = "DEAD",
};

static const char *const step_names[ST_COUNT] = {
	[ST_BIND] = "bind",
	[ST_RESOLVE_ADDR] = "resolve_addr",
	[ST_ADDR_OK] = "address resolved",
	[ST_ADDR_FAIL] = "address failed",
	[ST_RESOLVE_ROUTE] = "resolve_route",
	[ST_ROUTE_OK] = "route resolved",
	[ST_ROUTE_FAIL] = "route failed",
	[ST_SET_PATH] = "path set",
	[ST_LISTEN] = "listen",
	[ST_CONNECT] = "connect",
	[ST_REQ_SENT] = "request sent",
	[ST_RETRY] = "no listener",
	[ST_REP] = "reply received",
	[ST_REQ] = "request received",
	[ST_ACCEPT] = "accept",
	[ST_ANSWER] = "answer",
	[ST_ESTABLISH] = "establish",
	[ST_RTU] = "RTU received",
	[ST_REJECT] = "reject",
	[ST_REJECTED] = "rejected by peer",
	[ST_FAIL] = "failure",
	[ST_DISCONNECT] = "disconnect",
	[ST_DREQ] = "DREQ received",
	[ST_DREP] = "DREP received",
	[ST_GONE] = "peer gone",
	[ST_TIMEOUT] = "timeout",
	[ST_TIMEWAIT_OVER] = "timewait over",
	[ST_REMOVAL] = "device removal",
	[ST_DESTROY] = "destroy",
};

int user_state_next(enum user_state from, enum user_step step)
{
	if ((unsigned)from >= US_COUNT || (unsigned)step >= ST_COUNT)
		return -1;
	return next[from][step] - 1;
}

const char *user_state_str(enum user_state s)
{
	return (unsigned)s < US_COUNT ? state_names[s] : "?";
}

const char *user_step_str(enum user_step s)
{
	return (unsigned)s < ST_COUNT ? step_names[s] : "?";
}

int user_step(struct user_id *u, enum user_step step)
{
	int to = user_state_next(u->state, step);

	if (to < 0) {
		log_debug("id %p: %s does nothing in state %s", (void *)u,
			  user_step_str(step), user_state_str(u->state));
		return -EINVAL;
	}
	if (to != (int)u->state)
		log_debug("id %p: %s -> %s (%s)", (void *)u, user_state_str(u->state),
			  user_state_str((enum user_state)to), user_step_str(step));
	u->state = (enum user_state)to;
	return 0;
}
