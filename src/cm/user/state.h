/* SPDX-License-Identifier: BSD-2-Clause */
/* States of an id of the user backend: those of the kernel's CM
 * (reference: what a call may do in which state), with CONNECT and DISCONNECT
 * spelled out as the messages of a connection. */
#ifndef ANYRDMA_CM_USER_STATE_H
#define ANYRDMA_CM_USER_STATE_H

#include <stdint.h>

enum user_state {
	US_IDLE,	   /* created */
	US_BOUND,	   /* has a source address, or resolving failed */
	US_ADDR_QUERY,	   /* ADDR_RESOLVED or ADDR_ERROR will follow */
	US_ADDR_RESOLVED,  /* source, destination and device are known */
	US_ROUTE_QUERY,	   /* ROUTE_RESOLVED or ROUTE_ERROR will follow */
	US_ROUTE_RESOLVED, /* may connect */
	US_LISTEN,	   /* listens on all wires */
	US_CONNECTING,	   /* active: looks for the peer; has a wire, or waits for a retry */
	US_AWAIT_REP,	   /* active: request sent; has a wire */
	US_REP_RCVD,	   /* active: stream open, CONNECT_RESPONSE queued, no RTU yet */
	US_REQ_RCVD,	   /* passive: the application (or the backlog) decides; has a wire */
	US_REP_SENT,	   /* passive: stream open, reply sent, RTU awaited */
	US_ESTABLISHED,
	US_DREQ_SENT,	   /* we disconnect; DREP awaited */
	US_DREQ_RCVD,	   /* the peer disconnected or died; our DREP is owed */
	US_DATAGRAM,	   /* UD: the reply was received, or sent; there is no connection */
	US_TIMEWAIT,	   /* both know; TIMEWAIT_EXIT follows */
	US_CLOSED,	   /* rejected, unreachable, failed or over; never again usable */
	US_REMOVED,	   /* DEVICE_REMOVAL was queued: only destroy works */
	US_DEAD,	   /* destroyed */
	US_COUNT,
};

enum user_step {
	ST_BIND,	  /* rdma_bind_addr */
	ST_RESOLVE_ADDR,  /* rdma_resolve_addr */
	ST_ADDR_OK,
	ST_ADDR_FAIL,
	ST_RESOLVE_ROUTE, /* rdma_resolve_route */
	ST_ROUTE_OK,
	ST_ROUTE_FAIL,
	ST_SET_PATH,	  /* RDMA_OPTION_IB_PATH */
	ST_LISTEN,	  /* rdma_listen */
	ST_CONNECT,	  /* rdma_connect */
	ST_REQ_SENT,	  /* the peer is there, the request sent */
	ST_RETRY,	  /* no listener got the request: another attempt follows */
	ST_REP,		  /* MPA reply received and accepted */
	ST_REQ,		  /* MPA request received: the id is made for it */
	ST_ACCEPT,	  /* rdma_accept: reply on its way */
	ST_ANSWER,	  /* UD: the reply, received or sent by rdma_accept */
	ST_ESTABLISH,	  /* rdma_establish, or the response was fetched: RTU sent */
	ST_RTU,		  /* RTU received, or rdma_notify(COMM_EST) */
	ST_REJECT,	  /* we reject */
	ST_REJECTED,	  /* the peer rejects (message, or the stream ended) */
	ST_FAIL,	  /* no answer, bad answer, out of resources */
	ST_DISCONNECT,	  /* rdma_disconnect */
	ST_DREQ,	  /* received */
	ST_DREP,	  /* received */
	ST_GONE,	  /* the stream ended without DREQ */
	ST_TIMEOUT,	  /* RTU or DREP did not come */
	ST_TIMEWAIT_OVER,
	ST_REMOVAL,	  /* the device goes away */
	ST_DESTROY,
	ST_COUNT,
};

struct user_id;

/* The only writer of user_id.state. 0 and the new state (perhaps the same), or
 * -EINVAL and no change. Logs the change at debug. The id's lock is held, or
 * nobody else knows the id. */
int user_step(struct user_id *u, enum user_step step);

/* The table: next state, or -1. */
int user_state_next(enum user_state from, enum user_step step);
const char *user_state_str(enum user_state s);
const char *user_step_str(enum user_step s);

#endif
