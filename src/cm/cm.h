/* SPDX-License-Identifier: BSD-2-Clause */
/* Private objects of the connection manager. The public struct comes first in
 * each, so that applications and we hold the same pointer.
 *
 * Lock order, outer first:
 *	id->apply > backend's locks > id->post > channel's evq lock (two of them:
 *	lower address first) > id->lock (leaf: ack counters only).
 * Nothing application-visible runs under any of them. Backends see neither
 * `apply` nor `post`: they call the cm_event_* functions below under their own
 * locks and nothing else of the CM. */
#ifndef ANYRDMA_CM_CM_H
#define ANYRDMA_CM_CM_H

#include "base/cancel.h"
#include "base/evq.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/state.h"
#include "cm/api.h"

#include <stdbool.h>
#include <errno.h>
#include <stdint.h>

/* Limits of RoCE (behaviour.md section 3). Checked by the backend. */
enum {
	CM_PRIV_REQ = 56,
	CM_PRIV_REP = 196,
	CM_PRIV_REJ = 148,
};

/* Reject reasons on the wire and in REJECTED events. */
enum {
	CM_REJ_NO_QP = 1,
	CM_REJ_TIMEOUT = 4,
	CM_REJ_NO_LISTENER = 8, /* invalid service id */
	CM_REJ_STALE = 10,
	CM_REJ_CONSUMER = 28,
	CM_REJ_ECE = 35,
};

struct cm_backend;

struct cm_channel {
	struct rdma_event_channel pub;
	const struct cm_backend *be;
	struct evq q;	/* user backend: queued cm_events; q.fd == pub.fd. Its lock
			 * also guards cm_id.pub.channel and cm_id.delivered of its
			 * ids, and dead */
	bool dead;	/* destroyed by the application while ids were attached: the
			 * memory waits for them, events are dropped */
	void *be_priv;	/* kernel backend: wake.c */
	atomic_int ids; /* ids attached */
	uint32_t generation; /* in which it was made (base/state.h) */
};

struct cm_device;    /* one entry of the device table, cm/device.h */
struct addrinfo_job; /* a resolution under way, cm/addrinfo_async.c */

struct cm_id {
	struct rdma_cm_id pub;
	const struct cm_backend *be;
	void *be_id;		/* the backend's own object */
	bool sync;		/* owns its private channel, calls block */
	uint32_t generation;	/* as in cm_channel */
	struct cm_device *dev;	/* reference, or NULL while unbound */

	struct lock apply;	/* held while an event is applied to the id (event.c) and
				 * by what must not meet that: destroying the id, taking
				 * its QP away, starting what the event will answer */
	bool be_gone;		/* the backend's object is destroyed (apply) */

	struct lock post;	/* guards pub.channel against those who queue events */

	struct lock lock;	/* guards acked, fetched, holders, resolving, resolved */
	struct cond acks;
	uint32_t delivered;	/* events handed out, charged to this id (channel's q.lock) */
	uint32_t acked;
	uint32_t fetched;	/* numbers the holders: cm_event.nth */
	uint32_t moved_at;	/* fetched, at the last move to another channel */
	struct list holders;	/* cm_events fetched and not acknowledged */

	struct list mcasts;	/* struct cm_mcast */
	struct ibv_qp_init_attr *ep_attr; /* passive ep: for children */
	void *connect_blob;	/* ai_connect of an active ep, used once */
	size_t connect_blob_len;
	uint8_t responder_resources, initiator_depth; /* last asked for or received */
	bool connect_error;	/* we failed the connection: swallow REJECTED, DISCONNECTED */
	struct ibv_ece local_ece, remote_ece;
	bool resolving;		/* rdma_resolve_addrinfo is under way or unfetched */
	struct rdma_addrinfo *resolved;
	struct addrinfo_job *job;
};

static inline struct cm_id *to_id(struct rdma_cm_id *id)
{
	return container_of(id, struct cm_id, pub);
}

static inline struct cm_channel *to_channel(struct rdma_event_channel *ch)
{
	return container_of(ch, struct cm_channel, pub);
}

struct cm_mcast {
	struct list link; /* cm_id.mcasts */
	struct cm_id *id;
	struct sockaddr_storage addr;
	uint16_t join_flags;
	void *context;
	union ibv_gid mgid;
	uint16_t mlid;
	bool attached;	    /* the id's QP was attached to mgid */
	bool left;	    /* by the application: an event on its way attaches nothing */
	uint32_t delivered; /* events handed out (channel's q.lock) */
	uint32_t acked;	    /* id->lock */
	void *be_mc;
};

/* Event types that exist only between backend and event.c. */
enum {
	/* Reply received; event.c turns it into ESTABLISHED (QP of the id) or
	 * delivers it as CONNECT_RESPONSE. Same number as the public type. */
	CM_EVENT_CONNECT_RESPONSE = RDMA_CM_EVENT_CONNECT_RESPONSE,
};

struct cm_event {
	struct rdma_cm_event pub; /* param.*.private_data points to priv */
	struct list link;	  /* channel queue, then charge->holders */
	struct cm_id *charge;	  /* whose destroy waits for the ack: the listener
				   * for CONNECT_REQUEST, else pub.id */
	struct cm_mcast *mcast;
	void *be_child;		  /* CONNECT_REQUEST: backend's object for the child id */
	struct ibv_ece ece;	  /* remote's: CONNECT_REQUEST, CONNECT_RESPONSE */
	int tid;		  /* thread that fetched it, for the log */
	uint32_t nth;		  /* of charge's fetched events */
	uint32_t fetched_at;	  /* ms */
	uint32_t generation;	  /* as in cm_channel; set when fetched */
	uint16_t room;		  /* of priv */
	uint8_t priv[];
};

enum { CM_EVENT_PRIV = 256 }; /* room for any private data */

/* Memory for an event, zeroed, with room for private data: 0 for an event that has none,
 * as they wait with every connection. NULL: there is none. Whoever promises an event has
 * this from before the promise on. */
struct cm_event *cm_event_alloc(uint16_t room);
/* Makes such memory an event of this type for id (charge = id). */
void cm_event_set(struct cm_event *ev, struct cm_id *id, enum rdma_cm_event_type type,
		  int status);
/* Both. */
struct cm_event *cm_event_new(struct cm_id *id, enum rdma_cm_event_type type,
			      int status);
/* Copies len bytes (zero-padded to padded_len) as the event's private data: ud's
 * when the charged id is UD, else conn's. */
void cm_event_private(struct cm_event *ev, const void *data, size_t len,
		      size_t padded_len);
/* Queues ev on its charge's channel; ownership passes. False: the application
 * has destroyed that channel, ev is gone; its be_child is still the caller's. For
 * the user backend. */
bool cm_event_post(struct cm_event *ev);
/* The same; who waits for it is woken by the next evq_flush(). */
bool cm_event_post_later(struct cm_event *ev);
/* Drops every undelivered event charged to id, or naming it, calling drop(ev)
 * (may be NULL) before freeing each; drop runs with the caller's locks only.
 * For id_destroy of the user backend. */
void cm_event_purge(struct cm_id *id, void (*drop)(struct cm_event *ev));
/* The same for the events of one multicast entry. For leave. */
void cm_event_purge_mcast(struct cm_mcast *mc);
/* Events of id, or of the entry, handed out so far: what id_destroy, id_migrate
 * and leave of the user backend answer in *delivered. */
uint32_t cm_event_delivered(struct cm_id *id);
uint32_t cm_event_delivered_mcast(struct cm_mcast *mc);
/* Moves every undelivered event charged to id to another channel, in order, and
 * sets id->pub.channel, atomically against getters of both. For id_migrate. */
void cm_event_move(struct cm_id *id, struct cm_channel *to);
/* event_get of a backend whose events are on ch->q. */
int cm_event_dequeue(struct cm_channel *ch, struct cm_event **ev);
/* The same for a backend whose events come from elsewhere, where ch->q has only
 * what was put there by unget or post. Never blocks; false: nothing is queued. */
bool cm_event_dequeue_waiting(struct cm_channel *ch, struct cm_event **ev);
/* Books ev (charge, mcast) as delivered, and held by the calling thread until its
 * ack. cm_event_dequeue does it; an event that comes from elsewhere needs it. */
void cm_event_fetched(struct cm_event *ev);
void cm_event_free(struct cm_event *ev);

/* event.c. Applies a fetched event to its id. False: the event is none of the
 * application's business and is acknowledged and gone. */
bool cm_event_apply(struct cm_event *ev);
/* rdma_ack_cm_event's body. */
void cm_event_ack(struct cm_event *ev);
/* Takes a fetched event away from those that are waited for; it goes to unget. */
void cm_event_unhold(struct cm_event *ev);
/* Puts fetched, not yet applied events (linked by .link, in order) back at the
 * front of their channel, as if they had never been fetched. */
void cm_event_unget(struct cm_channel *ch, struct list *evs);

/* Channel without public checks. */
int cm_channel_new(const struct cm_backend *be, struct cm_channel **out);
void cm_channel_free(struct cm_channel *ch);
/* Ids hold their channel's memory. */
void cm_channel_attach(struct cm_channel *ch);
void cm_channel_detach(struct cm_channel *ch);

/* Id without public checks: used by rdma_create_id, create_ep and for children.
 * channel NULL: synchronous. be_id non-NULL adopts the backend's object
 * (a child) instead of calling id_create. */
int cm_id_new(struct cm_channel *channel, enum rdma_port_space ps,
	      enum ibv_qp_type qp_type, void *context, void *be_id,
	      struct cm_id **out);
int cm_id_free(struct cm_id *id); /* rdma_destroy_id's body */

/* Blocks until everything delivered to id was acknowledged: the count, and each
 * event that was fetched as one of the first `fetched`. Says in the log after a
 * second which event holds up `call` and which thread took it. */
void cm_id_wait_acks(struct cm_id *id, uint32_t delivered, uint32_t fetched,
		     const char *call);
/* The same for the events of a multicast entry. */
void cm_mcast_wait_acks(struct cm_mcast *mc, uint32_t delivered, const char *call);

/* Fills the public address fields from the backend; attaches the device and its
 * default PD when the backend says bound. 0 or -errno. */
int cm_id_refresh(struct cm_id *id);
/* The same without asking for GIDs. */
int cm_id_refresh_addr(struct cm_id *id);
/* Fills route.path_rec, num_paths from the backend. 0 or -errno. */
int cm_id_refresh_path(struct cm_id *id);

/* NULL, or an object of the parent process: -EINVAL, -ENODEV. */
int cm_id_check(const struct rdma_cm_id *id);

/* What a blocking call of a synchronous id waits for. */
enum cm_sync_op {
	CM_SYNC_ADDR,
	CM_SYNC_ROUTE,
	CM_SYNC_CONNECT,
	CM_SYNC_ACCEPT,
	CM_SYNC_DISCONNECT,
	CM_SYNC_JOIN,
	CM_SYNC_ADDRINFO,
};

/* cm/sync.c: when id is synchronous waits for an event that can answer op,
 * leaves it in pub.event and returns what it says (0 or -errno); other events
 * stay queued. Asynchronous id: 0 at once. */
int cm_sync_complete(struct cm_id *id, enum cm_sync_op op);
/* Acknowledges and clears pub.event. */
void cm_sync_clear(struct cm_id *id);

/* Bytes of a socket address that an id can use, or -EINVAL. */
int cm_addr_size(const struct sockaddr *addr);

/* cm/mcast.c: the id's QP is destroyed, and in no group any more. id->apply is held. */
void cm_mcast_detached(struct cm_id *id);

/* cm/qp.c: the QP's moves (0 or -errno). */
int cm_qp_init(struct cm_id *id, struct ibv_qp *qp);
int cm_qp_rtr(struct cm_id *id, uint8_t resp_res); /* 0xFF: as init_qp_attr says */
int cm_qp_rts(struct cm_id *id, uint8_t init_depth);
int cm_qp_err(struct cm_id *id);

/* cm/ece.c (behaviour.md 2.9), 0 or -errno. made: a QP was created on the id;
 * ready: that QP is in INIT; reply: the peer's answer arrived with remote_ece. */
int cm_ece_qp_made(struct cm_id *id, struct ibv_qp *qp);
int cm_ece_qp_ready(struct cm_id *id, struct ibv_qp *qp);
int cm_ece_reply(struct cm_id *id);

/* addrinfo.c: rdma_getaddrinfo without the public edge. 0, -errno, or an EAI_*
 * code in *eai (then -errno is the nearest errno). */
int cm_addrinfo_get(const char *node, const char *service,
		    const struct rdma_addrinfo *hints, struct rdma_addrinfo **res,
		    int *eai);
/* addrinfo_async.c: forgets a resolution under way. Before id_destroy. */
void cm_addrinfo_cancel(struct cm_id *id);

/* The public edge: 0/-errno inside -> 0/-1+errno outside. */
static inline int cm_ret(int r)
{
	if (r >= 0)
		return r;
	errno = -r;
	return -1;
}

#endif
