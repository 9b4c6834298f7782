/* SPDX-License-Identifier: BSD-2-Clause */
/* The connection manager in this process: objects of the user backend.
 *
 * struct user_id stands behind every cm_id. It is counted. One reference is its
 * owner's: the cm_id; for a child before that the listener (while the child waits) or
 * its queued CONNECT_REQUEST. One belongs to each of: its wire while callbacks of the
 * wire may come, its pending timer, its stream until released(), and (to a listener)
 * each of its children and each of its wires.
 *
 * Lock order: a wire's lock of its listening side > listener's lock > child's lock >
 * device locks, channel's evq lock, and leaf locks (ids.c, resolve.c, wire_udp.c,
 * wire_udp_listener.c, wire_tcp_listener.c). Callbacks of the loop and of streams come
 * without locks. Events are posted under the id's lock and never after `dead` is set:
 * that is how id_destroy keeps its promise. */
#ifndef ANYRDMA_CM_USER_USER_H
#define ANYRDMA_CM_USER_USER_H

#include "base/list.h"
#include "base/lock.h"
#include "cm/backend.h"
#include "cm/user/dev.h"
#include "cm/user/port.h"
#include "cm/user/state.h"
#include "cm/user/wire.h"
#include "tcp/mpa.h"

#include <netinet/in.h>
#include <stdatomic.h>
#include <string.h>

enum {
	USER_BACKLOG_MAX = 1024, /* as net.rdma_ucm.max_backlog */
	USER_WAITING_MAX = 1024, /* requests above the backlog; then TCP's queue */
	USER_HALF_OPEN_MAX = 256, /* TCP connections of a listener without a whole request */
	USER_REQUEST_MS = 10000, /* how long such a one may take: the peer may be stopped
				  * for a while before its request leaves */
	USER_REPLY_REMOTE = 3,	 /* x ANYRDMA_CM_REPLY_MS for a silent remote peer */
	USER_LINGER_MS = 1000,	 /* reading to EOF after a reject, */
	USER_LINGER_MAX = 256,	 /* of so many; others are closed at once */
	USER_DREQ_MS_MAX = 10000,
	USER_LIFE_TIME = 16,	 /* packet life time of a RoCE path, 4.096 us * 2^n */
	USER_HOP_LIMIT = 64,
	USER_SPARES = 2,
};

/* Events that are still to come, whose memory an accepted request owns (event.c). */
enum user_spares {
	USER_EVENT_ONE,	   /* without private data */
	USER_EVENT_ANSWER, /* with private data */
	USER_EVENT_CONN,   /* of connect or accept: its answer; DISCONNECTED or REJECTED;
			    * TIMEWAIT_EXIT */
};

/* The request; freed when the stream is open. */
struct user_req {
	uint8_t frame[MPA_OURS_MAX]; /* active: as it is sent */
	size_t len;
	uint64_t sidr_id; /* UD: the number of the exchange */
	uint8_t priv_len; /* passive: the application's part of it */
	uint8_t priv[SIDR_PRIV_REQ];
};

/* What both sides agreed on, from the view of this side. */
struct user_conn {
	uint32_t local_qpn, remote_qpn;
	uint32_t local_psn, remote_psn; /* 24 bit */
	uint8_t responder_resources, initiator_depth; /* for this side's QP */
	bool reads;	   /* the peer may read: by its request or reply, not by accept */
	uint8_t retry, rnr_retry;
	uint8_t timeout;   /* of the path, from the request */
	uint8_t mtu;	   /* enum ibv_mtu, the smaller of both */
	bool srq, flow_control;		/* ours */
	bool peer_srq, peer_flow_control;
	bool crc;
	bool extended; /* the peer is one of ours */
	uint8_t mpa_rev; /* plain, passive: of the request, and so of the reply */
	uint8_t p2p;	 /* plain: MPA_RTR_*, how the initiator opens; 0 as it likes */
	struct ibv_ece ece, peer_ece;
	union ibv_gid remote_gid, local_gid;
};

/* The id's lock guards it. */
struct user_listener {
	uint32_t backlog;
	uint32_t unfetched;	/* CONNECT_REQUESTs queued and not fetched */
	uint32_t waiting_count;
	struct list waiting;	/* children above the backlog, oldest first */
	struct user_wire_listener *wire[USER_WIRES]; /* choose.c; NULL: not used */
};

/* An address of IPv4 or IPv6, in the place that it needs. */
union user_addr {
	sa_family_t ss_family;
	struct sockaddr sa;
	struct sockaddr_in in4;
	struct sockaddr_in6 in6;
};

/* Of an address of those families alone. */
static inline void user_addr_set(union user_addr *to, const struct sockaddr_storage *from)
{
	memcpy(to, from, sizeof(*to));
}

static inline struct sockaddr_storage user_addr_get(const union user_addr *from)
{
	struct sockaddr_storage to = { 0 };

	memcpy(&to, from, sizeof(*from));
	return to;
}

struct user_id {
	struct lock lock; /* guards all below unless said otherwise */
	atomic_int refs;
	struct list all_link; /* ids.c */
	enum user_state state; /* state.c */
	bool dead;	  /* destroyed: no event any more */
	uint8_t timeout;
	uint8_t life_time; /* packet life time of the path */
	uint8_t repeats;   /* UD: how often the request was repeated */
	struct cm_id *cm; /* NULL: child not accepted yet, or dead */
	enum rdma_port_space ps;
	enum ibv_qp_type qp_type;

	union user_addr src, dst; /* RDMA addresses and ports */
	bool bound;	/* a device is attached */
	unsigned device; /* which; 0 if none is */
	bool reuse, timeout_set;
	uint8_t tos;
	struct user_port port;
	int afonly;	/* -1: default of the family */
	struct ibv_path_data *path; /* RDMA_OPTION_IB_PATH; or NULL */

	/* Memory for events (enum user_spares). */
	struct cm_event *answer, *spare[USER_SPARES];

	struct loop_timer timer; /* one; meaning by state, see timer.c */
	uint64_t deadline;	 /* ns; timer fires before it are stale */

	struct user_wire *wire;	/* until the stream is open, owned by the wire; or NULL */
	struct user_req *req;	/* until the stream is open */
	struct user_conn conn;
	struct stream *stream;	/* open; or NULL */
	bool early_dreq;	/* active: DREQ came before our RTU */

	/* active, until the reply */
	bool req_acked;		/* one of ours is known to have the request */
	bool retry_pending;	/* the timer is for the next attempt */
	uint8_t retries;
	uint32_t waits;		/* child: timeouts before its event was delivered */
	uint64_t sent_at;	/* ns: the request */
	uint64_t give_up_at;	/* ns: UNREACHABLE */

	/* child of a listener */
	struct user_id *listener; /* counted, never changes */
	struct list child_link;	  /* listener->lis waiting; the listener's lock */
	bool lost;		  /* child_link is that of deliver_waiting()'s caller, who
				   * destroys the child (listener's lock) */
	bool fetched;		  /* its event was fetched or dropped (listener's lock) */
	bool delivered;		  /* its event is queued or was fetched */
	bool expected;		  /* stream_expect() called */

	uint32_t qkey;	/* UD: what the id's QP was given; 0: nothing yet */
	struct user_listener *lis; /* from LISTEN on */
};

/* ids.c: life */
struct user_id *user_new(enum rdma_port_space ps, enum ibv_qp_type qp_type);
void user_get(struct user_id *u);
void user_put(struct user_id *u);
/* The connection ends for the id: stream, wire and timer go. */
void user_release(struct user_id *u) REQUIRES(u->lock);
/* Ends the id for its owner: tells the peer, frees ports, drops the owner's
 * reference. No event names it after return. No lock held but a listener's. */
void user_destroy(struct user_id *u);
/* References to all live ids: *out is malloced, returns how many or -ENOMEM. */
int user_all(struct user_id ***out);
uint64_t user_now(void); /* CLOCK_MONOTONIC, ns */

/* timer.c: arms, or moves, or stops. */
void user_timer_set(struct user_id *u, uint64_t ms) REQUIRES(u->lock);
void user_timer_stop(struct user_id *u) REQUIRES(u->lock);
void user_timer_fire(struct loop_timer *t);

/* event.c: memory for events to be posted; before a request of the application's, or of
 * a peer's, is accepted. 0 or -ENOMEM. */
int user_event_reserve(struct user_id *u, enum user_spares n) REQUIRES(u->lock);
void user_event_unreserve(struct user_id *u);
/* Posting. The id's lock is held; silently nothing when dead. */
void user_post(struct user_id *u, enum rdma_cm_event_type type, int status)
	REQUIRES(u->lock);
void user_post_rejected(struct user_id *u, int reason, const void *priv, size_t len)
	REQUIRES(u->lock);
void user_post_response(struct user_id *u, const void *priv, size_t len)
	REQUIRES(u->lock);
bool user_event_post(struct cm_event *ev); /* as cm_event_post() */
/* Of the child's memory. NULL: the listener is dead. */
/* r: what the peer answered, or NULL. ah: NULL without a QP. */
void user_post_ud(struct user_id *u, enum rdma_cm_event_type type, int status,
		  const struct sidr_rep *r, const struct ibv_ah_attr *ah) REQUIRES(u->lock);
/* MULTICAST_JOIN of mc. */
void user_post_join(struct user_id *u, struct cm_mcast *mc, const struct ibv_ah_attr *ah,
		    uint32_t qpn) REQUIRES(u->lock);
struct cm_event *user_request_event(struct user_id *lis, struct user_id *child)
	REQUIRES(lis->lock) REQUIRES(child->lock);
int user_event_get(struct cm_channel *ch, struct cm_event **ev);
void user_event_purge(struct cm_id *id);

/* resolve.c */
int user_bind(struct cm_id *id, const struct sockaddr *addr);
int user_resolve_addr(struct cm_id *id, const struct sockaddr *src,
		      const struct sockaddr *dst, int timeout_ms);
int user_resolve_route(struct cm_id *id, int timeout_ms);
int user_query_addr(struct cm_id *id, struct cm_addrs *out);
int user_query_path(struct cm_id *id, struct ibv_path_data *path, int max);
/* The device of the id's source address: the first that has it. If none has it any more,
 * the id keeps the one that it had. */
void user_device_set(struct user_id *u) REQUIRES(u->lock);
int user_bind_locked(struct user_id *u, const struct sockaddr *addr) REQUIRES(u->lock);

/* option.c */
int user_set_option(struct cm_id *id, int level, int name, const void *val, size_t len);
bool user_afonly(const struct user_id *u, int family);

/* attr.c */
/* The way to dgid from the id's address. 0 or -errno. */
int user_ah_attr(struct user_id *u, const union ibv_gid *dgid, struct ibv_ah_attr *a)
	REQUIRES(u->lock);
int user_init_qp_attr(struct cm_id *id, struct ibv_qp_attr *attr, int *mask);
uint8_t user_ack_timeout(const struct user_id *u);
uint64_t user_timewait_ms(const struct user_id *u);

/* listener.c; the rest of it is in wire.h */
int user_listen(struct cm_id *id, int backlog);
/* The child's CONNECT_REQUEST was fetched; again is harmless. No lock held. */
void user_listener_fetched(struct user_id *child);
/* The state has left LISTEN: ends the wires and the children that wait. No lock held. */
void user_listener_stop(struct user_id *lis);

/* active.c; the rest of it is in wire.h */
int user_connect(struct cm_id *id, const struct cm_conn_param *p);
/* Arms the timer for the end of all attempts. */
void user_timer_give_up(struct user_id *u) REQUIRES(u->lock);
/* In state CONNECTING, without a wire: tries all wires again after this time. */
void user_retry_later(struct user_id *u, uint64_t ms) REQUIRES(u->lock);
void user_connecting_timeout(struct user_id *u) REQUIRES(u->lock);
void user_await_rep_timeout(struct user_id *u) REQUIRES(u->lock);

/* accept.c */
int user_accept_prepare(struct cm_id *id, const struct cm_conn_param *p);
int user_accept(struct cm_id *id, const struct cm_conn_param *p);
int user_reject(struct cm_id *id, uint8_t reason, const void *data, uint8_t len);
/* Rejects the request; the wire ends. The caller has set the state. */
void user_reject_request(struct user_id *u, uint16_t reason, const void *data, uint8_t len)
	REQUIRES(u->lock);
/* The request will not become a connection, and the peer gets no reject. */
enum user_todo user_request_dropped(struct user_id *u, const char *why) REQUIRES(u->lock);
enum user_todo user_request_timeout(struct user_id *u) REQUIRES(u->lock);
void user_unexpect(struct user_id *u) REQUIRES(u->lock);

/* handshake.c: parameters <-> MPA frames; no I/O, no state */
int user_req_build(struct user_id *u, const struct cm_conn_param *p);
int user_rep_build(struct user_id *u, const struct cm_conn_param *p, uint8_t *buf,
		   size_t cap);
int user_rej_build(struct user_id *u, uint16_t reason, const void *data, uint8_t priv_len,
		   uint8_t *buf, size_t cap);
int user_req_parse(struct user_id *child, const struct mpa_frame *f, uint16_t *reason);
enum user_reply { USER_REPLY_REP, USER_REPLY_REJ, USER_REPLY_FOREIGN };
enum user_reply user_rep_parse(struct user_id *u, const struct mpa_frame *f,
			       const uint8_t **priv, uint8_t *priv_len, uint16_t *reason);

/* lookup.c: the exchange of UD ids; the rest of it is in wire.h */
void user_sidr_req_build(struct user_id *u, const struct cm_conn_param *p) REQUIRES(u->lock);
void user_sidr_rep_build(struct user_id *u, const struct cm_conn_param *p,
			 uint8_t buf[SIDR_REP_LEN]) REQUIRES(u->lock);
/* reason: as of user_rej_build(). */
void user_sidr_rej_build(struct user_id *u, uint16_t reason, const void *data, uint8_t len,
			 uint8_t buf[SIDR_REP_LEN]) REQUIRES(u->lock);
void user_sidr_req_parse(struct user_id *child, const struct sidr_req *r)
	REQUIRES(child->lock);
void user_sidr_timeout(struct user_id *u) REQUIRES(u->lock);

/* mcast.c */
int user_join(struct cm_id *id, struct cm_mcast *mc);
int user_leave(struct cm_id *id, struct cm_mcast *mc, uint32_t *delivered);

/* establish.c: from the opening of the stream on. Upcalls of the stream, in the loop
 * thread, no lock held; the table is for a stream whose user is the id. */
extern const struct stream_user user_stream_upcalls;
void user_stream_control(struct user_id *u, enum stream_ctl type, const uint8_t *data,
			 size_t len);
void user_stream_closed(struct user_id *u, int err);
/* What the stream of this id is opened with. */
void user_stream_param(struct user_id *u, struct stream_param *p) REQUIRES(u->lock);
void user_stream_release(struct user_id *u) REQUIRES(u->lock);
int user_establish(struct cm_id *id);
int user_abandon(struct cm_id *id);
int user_notify(struct cm_id *id, enum ibv_event_type event);
void user_send_rej(struct user_id *u, uint16_t reason, const void *data, uint8_t len)
	REQUIRES(u->lock);
void user_got_rtu(struct user_id *u) REQUIRES(u->lock);
void user_rep_sent_timeout(struct user_id *u) REQUIRES(u->lock);

/* teardown.c */
int user_disconnect(struct cm_id *id);
void user_got_dreq(struct user_id *u) REQUIRES(u->lock);
void user_got_drep(struct user_id *u) REQUIRES(u->lock);
void user_gone(struct user_id *u, int err) REQUIRES(u->lock);
/* Tells the peer that the id ends in its present state. */
void user_tell_end(struct user_id *u) REQUIRES(u->lock);
void user_enter_timewait(struct user_id *u) REQUIRES(u->lock);
void user_dreq_timeout(struct user_id *u) REQUIRES(u->lock);
void user_timewait_over(struct user_id *u) REQUIRES(u->lock);

/* hook.c: DEVICE_REMOVAL and ADDR_CHANGE for tests, only with ANYRDMA_TEST=1 */
int user_hook_init(void);
void user_remove_device(void);
void user_change_addr(void);

static inline bool user_is_ud(const struct user_id *u)
{
	return u->qp_type == IBV_QPT_UD;
}

static inline struct user_id *to_user(struct cm_id *id)
{
	return id->be_id;
}

#endif
