/* SPDX-License-Identifier: BSD-2-Clause */
/* Datagrams, whatever carries them: what the files of this layer share.
 *
 * transport.c the table for the device, and the life of a ud_qp; table.c QPs by number;
 * send.c takes WQEs and gives datagrams away, post.c short ones at once; path.c which
 * carrier a destination is reached by; deliver.c what arrives; group.c who gets what is sent
 * to a group; count.c counters. */
#ifndef ANYRDMA_UD_UD_H
#define ANYRDMA_UD_UD_H

#include "base/list.h"
#include "base/lock.h"
#include "base/loop.h"
#include "dev/qpn.h"
#include "dev/traffic.h"
#include "ud/carrier.h"
#include "ud/count.h"

enum {
	UD_PATHS = 4096, /* kept by one QP; the one not used for longest goes */
	UD_PATH_BUCKETS = 64,
	UD_ANSWERS = 8, /* marks to be answered; more at once are not */
};

/* Where a path leads: an index of ud_carriers, or: */
enum { UD_BY_NONE = -1, UD_BY_LOCAL = -2 };

/* One process that a QP sends to: an address, and the port of the numbers of its QPs. */
struct ud_path {
	struct ud_path *next; /* of its bucket */
	struct list lru;
	union ibv_gid dgid;
	uint32_t ifindex; /* of a link-local dgid */
	uint16_t port;
	int by;
	void *peer;	/* of carrier `by` */
	uint32_t asked; /* ud_path_changes when the carriers were asked */
	/* A change of carriers was given up: not to be tried again before this (loop_now()),
	 * and how long it is put off the next time. */
	uint64_t not_before, put_off;
};

/* Why ud_run() is called. */
enum ud_todo {
	UD_TODO_SEND = 1,
	UD_TODO_UNBLOCK = 2, /* a carrier has room again */
	UD_TODO_TIMER = 4,   /* a mark was not answered in time */
	UD_TODO_ANSWER = 8,  /* marks are to be answered */
};

/* Carriers change: a mark was sent on `path`, and everything waits for its answer. The send
 * queue keeps its order, so there is at most one. */
struct ud_hold {
	struct ud_path *path; /* NULL: none */
	int to;
	void *peer; /* of carrier `to` */
	uint32_t token;
	unsigned tries;
	bool due; /* the timer has fired since */
};

/* A UD QP from RTR to RESET. It lives on as long as it has references; `gone` says that the
 * device does not know it any more. Who uses `qp` holds tx_lock or rx_lock and has looked. */
struct ud_qp {
	struct dev_qp *qp;
	struct traffic traffic; /* written with tx_lock and rx_lock, one for each way */
	uint32_t qpn;
	struct dev_cq *cq;
	atomic_int refs; /* the device, the table, groups, a timer, who works with it */
	bool gone;	 /* written with both locks */
	void *priv[UD_CARRIERS];
	struct ud_qp *next; /* table.c */

	struct lock tx_lock; /* guards all down to the next lock. Who fails to get it sets
			      * a bit of `todo`, which the holder looks at after unlocking */
	uint32_t psn; /* of the next datagram, less the QP's sq_psn */
	uint32_t sq_psn;
	uint32_t mtu, mtu_asked; /* post.c: bytes; ud_path_changes when it was asked */
	bool blocked; /* a carrier has no room */
	struct ud_path *buckets[UD_PATH_BUCKETS];
	struct list lru; /* paths, the one used last at the end */
	unsigned npaths;
	struct ud_path *last; /* the path used last, or NULL */
	struct ud_path group; /* any group: the last carrier, without a peer; and every
			       * destination when there is no memory for a path */
	struct ud_hold hold;
	struct loop_timer timer; /* of hold; holds a reference */
	struct loop_work more;	 /* the turn of ud_run() was over; holds a reference */
	uint8_t *bounce;	 /* UD_PAYLOAD_MAX, for datagrams to this process */

	struct lock rx_lock; /* one datagram at a time is delivered; guards ours */
	union ibv_gid ours;  /* deliver.c: an address of its device */

	_Atomic unsigned todo;	 /* enum ud_todo */
	_Atomic uint32_t marked; /* token of the last answer */
	struct lock answers_lock; /* innermost */
	struct ud_head answers[UD_ANSWERS]; /* marks that came */
	unsigned nanswers;
	struct loop_work answer; /* holds a reference */
};

/* ---- table.c ---- */
void ud_table_add(struct ud_qp *u);
void ud_table_del(struct ud_qp *u);
/* With a reference; NULL: none. */
struct ud_qp *ud_table_get(uint32_t qpn);

/* ---- path.c: with tx_lock ---- */

/* ud_paths_changed() counts; a path keeps the number when it asks. */
extern _Atomic uint32_t ud_path_changes;

static inline uint32_t ud_path_changes_now(void)
{
	return atomic_load_explicit(&ud_path_changes, memory_order_acquire);
}

static inline bool ud_path_is_of(const struct ud_path *p, const struct dev_av *av,
				 uint16_t port)
{
	const union ibv_gid *g = &av->attr.grh.dgid;

	return p->port == port && p->ifindex == av->ifindex &&
	       p->dgid.global.subnet_prefix == g->global.subnet_prefix &&
	       p->dgid.global.interface_id == g->global.interface_id;
}

/* The path of a WQE's destination. */
struct ud_path *ud_path_get(struct ud_qp *u, const struct dev_av *av, uint32_t qpn)
	REQUIRES(u->tx_lock);
enum ud_ready {
	UD_READY, /* p->by is where the path leads */
	UD_WAIT,  /* carriers change: not now */
	UD_MARK_DUE, /* ... and a mark is to be sent by carrier p->by: ud_hold.token */
};
enum ud_ready ud_path_ready(struct ud_qp *u, struct ud_path *p, uint32_t qpn)
	REQUIRES(u->tx_lock);
/* Carrier p->by has answered -EPIPE. */
void ud_path_lost(struct ud_qp *u, struct ud_path *p) REQUIRES(u->tx_lock);
void ud_paths_free(struct ud_qp *u) REQUIRES(u->tx_lock);

/* ---- send.c ---- */

/* The head of the WQE's datagram; counts u->psn. */
void ud_head_fill(struct ud_qp *u, const struct wqe *w, struct ud_head *h)
	REQUIRES(u->tx_lock);

/* Does what `why` (enum ud_todo) asks for, or leaves it to the thread that has tx_lock, or
 * to the loop thread. */
void ud_run(struct ud_qp *u, unsigned why);
/* ud_qp.timer, ud_qp.answer, ud_qp.more */
void ud_timer_fire(struct loop_timer *t);
void ud_answer_run(struct loop_work *w);
void ud_more_run(struct loop_work *w);

/* ---- post.c ---- */

/* dev_transport.post_locked */
bool ud_post_locked(struct dev_qp *qp);

/* ---- deliver.c ---- */

/* To one QP; counts what it drops. As ud_deliver(). */
bool ud_deliver_to(struct ud_qp *u, const struct ud_head *h, const void *payload);

/* ---- group.c ---- */
/* 0, -EALREADY: it is a member, or -ENOMEM. */
int ud_group_join(struct ud_qp *u, const union ibv_gid *gid);
/* -ENOENT: it is no member. */
int ud_group_leave(struct ud_qp *u, const union ibv_gid *gid);
void ud_group_deliver(const struct ud_head *h, const void *payload,
		      const struct dev_cq *only);

/* Index of the last carrier, which carries groups, and answers to marks. -1: there is none. */
static inline int ud_last_carrier(void)
{
	int i = 0;

	while (ud_carriers[i])
		i++;
	return i - 1;
}

#endif
