/* SPDX-License-Identifier: BSD-2-Clause */
/* The connection manager in this process: objects of the user backend.
 *
 * struct user_id stands behind every cm_id. It is counted: one reference is its
 * owner's (the cm_id; before that, for a child, whoever holds it: the
 * listener's lists or a queued CONNECT_REQUEST), one belongs to each of: its
 * descriptor in the loop, its pending timer, its queued work, its stream until
 * released(), and (to a listener) each of its children.
 *
 * Lock order: listener's lock > child's lock > device locks, channel's evq lock,
 * and the leaf locks of ids.c and listen.c. Callbacks of the loop and of streams
 * come without locks. Events are posted under the id's lock and never after
 * `dead` is set: that is how id_destroy keeps its promise. */
#ifndef ANYRDMA_CM_USER_USER_H
#define ANYRDMA_CM_USER_USER_H

#include "base/origin.h"
#include "base/list.h"
#include "base/lock.h"
#include "cm/backend.h"
#include "cm/user/dev.h"
#include "cm/user/port.h"
#include "cm/user/state.h"
#include "cm/user/wire.h"
#include "tcp/mpa.h"

#include <stdatomic.h>

enum {
	USER_BACKLOG_MAX = 1024, /* as net.rdma_ucm.max_backlog */
	USER_HALF_OPEN_MAX = 256, /* streams of a listener without a whole request */
	USER_WAITING_MAX = 1024, /* whole requests above the backlog; then TCP's queue */
	USER_REQUEST_MS = 10000, /* how long such a stream may take: the peer may be
				  * stopped for a while before its request leaves */
	USER_REPLY_REMOTE = 3,	 /* x ANYRDMA_CM_REPLY_MS for a silent remote peer */
	USER_LINGER_MS = 1000,	 /* reading to EOF after a reject, */
	USER_LINGER_MAX = 256,	 /* of so many; others are closed at once */
	USER_DREQ_MS_MAX = 10000,
	USER_LIFE_TIME = 16,	 /* packet life time of a RoCE path, 4.096 us * 2^n */
	USER_HOP_LIMIT = 64,
};

/* Bytes of the MPA exchange; freed when the stream is open. */
struct user_nego {
	uint8_t in[MPA_FRAME_MAX];
	size_t in_len;
	uint8_t out[MPA_OURS_MAX];
	size_t out_len, out_off;
	uint8_t priv_len; /* passive: the application's part of the request */
	uint8_t priv[CM_PRIV_REQ];
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

struct user_listener {
	struct user_id *owner;
	struct loop_fd lf;
	bool watched;
	uint32_t backlog;
	uint32_t undelivered;	/* CONNECT_REQUESTs queued and not fetched */
	uint32_t half_count, waiting_count;
	struct list half;	/* children without a whole request, oldest first */
	struct origins origins;	/* where these come from */
	struct list waiting;	/* children with one, above the backlog */
	bool paused;		/* out of descriptors, crowded, or too many wait */
	struct stream_listener *calls; /* link.c; or NULL */
	bool crowded;		/* too many half-open streams, all of them young */
};

struct user_id {
	struct lock lock; /* guards all below unless said otherwise */
	atomic_int refs;
	struct list all_link; /* ids.c */
	enum user_state state; /* state.c */
	bool dead;	  /* destroyed: no event any more */
	struct cm_id *cm; /* NULL: child not accepted yet, or dead */
	enum rdma_port_space ps;
	enum ibv_qp_type qp_type;

	struct sockaddr_storage src, dst; /* RDMA addresses and ports */
	bool bound;	/* a device is attached */
	struct user_port port;
	bool reuse, timeout_set;
	int afonly;	/* -1: default of the family */
	uint8_t tos, timeout;
	uint8_t life_time; /* packet life time of the path */
	bool path_set;
	struct ibv_path_data path; /* RDMA_OPTION_IB_PATH */

	struct loop_timer timer; /* one; meaning by state, see conn.c */
	uint64_t deadline;	 /* ns; timer fires before it are stale */

	const struct user_wire *wire; /* never NULL */
	/* of the wire tcp.c */
	int fd;			/* socket of the MPA exchange, or -1 */
	struct loop_fd lf;	/* watches fd */
	bool watched;
	bool key_sent;		/* passive: the reply's key was sent ahead */
	bool refused;		/* passive, reserve descriptor: to be rejected */

	bool lingering;		/* a reject is on its way; the timer is the wire's */
	struct user_nego *nego;
	struct user_conn conn;
	struct stream *stream;
	bool expected;		/* stream_expect() called */
	bool callable;		/* active: the destination can be asked */
	bool heard;		/* active: one of ours has the request */
	bool pausing;		/* active: refused, will ask again */
	uint8_t refusals;
	bool early_dreq;	/* active: DREQ came before our RTU */
	uint64_t final;		/* active: UNREACHABLE at this time (ns) */

	struct user_id *listener; /* child: counted, never changes */
	struct list child_link;	  /* listener->lis half or waiting; listener's lock */
	uint8_t origin;		  /* child: of crowd.h */
	uint64_t born;		  /* ns; child: accepted; active: request sent */
	bool waiting;		  /* has been on the waiting list (listener's lock) */
	bool lost;		  /* child_link is pump()'s caller's, who ends it (likewise) */
	bool offered;		  /* its CONNECT_REQUEST is queued or was fetched */
	bool taken;		  /* it was fetched or dropped (listener's lock) */
	uint32_t offers;	  /* re-offers made */
	struct user_listener *lis; /* from LISTEN on */
};

/* ids.c: life */
struct user_id *user_new(enum rdma_port_space ps, enum ibv_qp_type qp_type);
void user_get(struct user_id *u);
void user_put(struct user_id *u);
/* Ends the id for its owner: tells the peer, frees ports, drops the owner's
 * reference. No event names it after return. */
void user_kill(struct user_id *u);
/* References to all live ids: *out is malloced, returns how many or -ENOMEM. */
int user_all(struct user_id ***out);
uint64_t user_now(void); /* CLOCK_MONOTONIC, ns */

/* Timer: arms, or moves, or stops. */
void user_timer_set(struct user_id *u, uint64_t ms) REQUIRES(u->lock);
void user_timer_stop(struct user_id *u) REQUIRES(u->lock);

/* event.c: posting. The id's lock is held; silently nothing when dead. */
void user_post(struct user_id *u, enum rdma_cm_event_type type, int status)
	REQUIRES(u->lock);
void user_post_rejected(struct user_id *u, int reason, const void *priv, size_t len)
	REQUIRES(u->lock);
void user_post_response(struct user_id *u, const void *priv, size_t len)
	REQUIRES(u->lock);
bool user_event_post(struct cm_event *ev); /* as cm_event_post() */
struct cm_event *user_request_event(struct user_id *lis, struct user_id *child)
	REQUIRES(lis->lock);
int user_event_get(struct cm_channel *ch, struct cm_event **ev);
void user_event_purge(struct cm_id *id);

/* resolve.c */
int user_bind(struct cm_id *id, const struct sockaddr *addr);
int user_resolve_addr(struct cm_id *id, const struct sockaddr *src,
		      const struct sockaddr *dst, int timeout_ms);
int user_resolve_route(struct cm_id *id, int timeout_ms);
int user_query_addr(struct cm_id *id, struct cm_addrs *out);
int user_query_path(struct cm_id *id, struct ibv_path_data *path, int max);
int user_bind_locked(struct user_id *u, const struct sockaddr *addr) REQUIRES(u->lock);

/* option.c */
int user_set_option(struct cm_id *id, int level, int name, const void *val, size_t len);
bool user_afonly(const struct user_id *u, int family);

/* attr.c */
int user_init_qp_attr(struct cm_id *id, struct ibv_qp_attr *attr, int *mask);
uint8_t user_ack_timeout(const struct user_id *u);
uint64_t user_timewait_ms(const struct user_id *u);

/* listen.c */
int user_listen(struct cm_id *id, int backlog);
/* The child's request is whole, or is offered again. No lock held. */
void user_listener_offer(struct user_id *lis, struct user_id *child);
/* The child ended before its request was delivered. No lock held. */
void user_listener_forget(struct user_id *lis, struct user_id *child);
/* The child's CONNECT_REQUEST was fetched; again is harmless. No lock held. */
void user_listener_taken(struct user_id *child);
void user_listener_stop(struct user_id *lis);
/* A child for a request that came over a link to this address: 0 and one with a
 * reference for the caller, -EBUSY, -ENOENT, -ENOMEM. No lock held. */
int user_listener_call(struct user_id *lis, const struct sockaddr_storage *to,
		       struct user_id **child);
void user_listener_timeout(struct user_id *lis);
/* Some descriptor was closed: take the reserve back, let listeners go on. */
void user_reserve_refill(void);
/* A connection made with the reserve ends: true if fd is the reserve again. */
bool user_reserve_give(int fd);

/* conn.c */
int user_connect(struct cm_id *id, const struct cm_conn_param *p);
/* What a wire's news, or time, ask for at the listener. No lock held. */
void user_after(struct user_id *u, enum user_after after);
/* Answers a request with a reject; the wire ends. */
void user_reject_request(struct user_id *u, uint16_t reason, const void *data, uint8_t len)
	REQUIRES(u->lock);
/* The end for the id: stream, wire and timer go, but for a reject on its way. */
void user_let_go(struct user_id *u) REQUIRES(u->lock);
void user_timer_fire(struct loop_timer *t);
void user_unexpect(struct user_id *u) REQUIRES(u->lock);

/* conn.c: what a wire tells. */
/* Active: the request has left; an answer may be heard at once. */
void user_called(struct user_id *u) REQUIRES(u->lock);
/* Active: one of ours has the request (u->heard is set), its answer may take long. */
void user_heard(struct user_id *u) REQUIRES(u->lock);
/* Active: the answer. */
void user_answered(struct user_id *u, const struct mpa_frame *f) REQUIRES(u->lock);
/* Active: nobody there (ECONNREFUSED), the end without an answer (ECONNRESET,
 * ENOTCONN, EPIPE), or no way to the peer (any other). */
void user_failed(struct user_id *u, int err) REQUIRES(u->lock);
void user_unreachable(struct user_id *u, int err) REQUIRES(u->lock);
/* Active: what listens is none of ours. */
void user_foreign(struct user_id *u, const char *why) REQUIRES(u->lock);

/* Passive: the whole request. AFTER_OFFER: it waits for the application now. */
enum user_after user_requested(struct user_id *u, const struct mpa_frame *f)
	REQUIRES(u->lock);
/* Passive: it will not become a connection. */
enum user_after user_dropped(struct user_id *u, const char *why) REQUIRES(u->lock);
/* Passive: the peer ended before it was answered. */
enum user_after user_hung_up(struct user_id *u, const char *why) REQUIRES(u->lock);

/* tcp.c: a child with an accepted socket. The caller has a reference. No lock held. */
void user_child_start(struct user_id *child);

/* link.c */
bool user_link_wanted(void);
void user_link_listen(struct user_id *u) REQUIRES(u->lock);
/* Upcalls of a call's stream; closed: while it may still be one. */
void user_link_asked(void *user);
void user_link_answer(void *user, const uint8_t *data, size_t len);
enum user_after user_link_closed(struct user_id *u, int err) REQUIRES(u->lock);

/* handshake.c: parameters <-> MPA frames; no I/O, no state */
int user_req_build(struct user_id *u, const struct cm_conn_param *p);
int user_rep_build(struct user_id *u, const struct cm_conn_param *p, uint8_t *buf,
		   size_t cap);
int user_rej_build(struct user_id *u, uint16_t reason, const void *data, uint8_t priv_len,
		   uint8_t *buf, size_t cap);
int user_req_parse(struct user_id *child, const struct mpa_frame *f, uint16_t *reason);
enum user_answer { USER_ANSWER_REP, USER_ANSWER_REJ, USER_ANSWER_FOREIGN };
enum user_answer user_rep_parse(struct user_id *u, const struct mpa_frame *f,
				const uint8_t **priv, uint8_t *priv_len,
				uint16_t *reason);

/* stream.c: from the opening of the stream on */
extern const struct stream_user user_upcalls;
void user_stream_param(struct user_id *u, struct stream_param *p) REQUIRES(u->lock);
void user_stream_release(struct user_id *u) REQUIRES(u->lock);
int user_accept_prepare(struct cm_id *id, const struct cm_conn_param *p);
int user_accept(struct cm_id *id, const struct cm_conn_param *p);
int user_reject(struct cm_id *id, uint8_t reason, const void *data, uint8_t len);
int user_establish(struct cm_id *id);
int user_abandon(struct cm_id *id);
int user_notify(struct cm_id *id, enum ibv_event_type event);
void user_send_rej(struct user_id *u, uint16_t reason, const void *data, uint8_t len)
	REQUIRES(u->lock);

/* teardown.c */
int user_disconnect(struct cm_id *id);
void user_got_dreq(struct user_id *u) REQUIRES(u->lock);
void user_got_drep(struct user_id *u) REQUIRES(u->lock);
void user_gone(struct user_id *u, int err) REQUIRES(u->lock);
void user_say_goodbye(struct user_id *u) REQUIRES(u->lock);
void user_enter_timewait(struct user_id *u) REQUIRES(u->lock);
void user_dreq_timeout(struct user_id *u) REQUIRES(u->lock);
void user_timewait_over(struct user_id *u) REQUIRES(u->lock);

/* hook.c: DEVICE_REMOVAL and ADDR_CHANGE for tests, only with ANYRDMA_TEST=1 */
int user_hook_init(void);
void user_remove_device(void);
void user_change_addr(void);

static inline struct user_id *to_user(struct cm_id *id)
{
	return id->be_id;
}

#endif
