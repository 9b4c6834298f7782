/* SPDX-License-Identifier: BSD-2-Clause */
/* The seam under the connection manager: what carries out its requests.
 * `kernel`: /dev/infiniband/rdma_cm. `user`: the CM in this process, over our
 * libibverbs. A process has one, chosen once (backend.c): the first of cm_backends
 * whose probe says yes.
 *
 * Contract for all members:
 *  - Never blocks, except event_get (as the channel's fd says).
 *    Synchronous mode is built in cm/sync.c on events.
 *  - Called with no lock of the CM held but id->apply, which a backend never
 *    meets. The backend locks for itself. The
 *    application guarantees what the API guarantees: no two calls on one id at
 *    once, except destroy against events in flight.
 *  - Returns 0 or -errno for *immediate* refusal only (behaviour.md sections 2
 *    and 4 name the errnos); the function that knows the reason logs it at
 *    info. Each accepted request produces exactly one terminal event.
 *  - Argument pointers are valid during the call only.
 *  - Events are posted with cm_event_post() (user) or come out of event_get
 *    (kernel); a backend never calls up.
 *  - id_destroy returns only when no further event can name the id. */
#ifndef ANYRDMA_CM_BACKEND_H
#define ANYRDMA_CM_BACKEND_H

#include "cm/cm.h"

/* Everything a query can tell of an id's two ends. */
struct cm_addrs {
	struct sockaddr_storage src, dst; /* ss_family 0: unknown */
	bool bound;		/* a device is attached; the rest is valid then */
	uint64_t node_guid;	/* network order; names the device */
	uint32_t dev_index;	/* so does this (kernel backend), unless it is UINT32_MAX */
	uint8_t port_num;
	uint16_t pkey;		/* network order */
	union ibv_gid sgid, dgid;
};

/* rdma_connect and rdma_accept after defaults and checks of cm/connect.c. */
struct cm_conn_param {
	uint32_t qp_num;
	uint8_t srq;
	uint8_t responder_resources, initiator_depth;
	uint8_t flow_control, retry_count, rnr_retry_count;
	uint8_t private_data_len; /* limits are the backend's to check */
	uint8_t private_data[256];
	struct ibv_ece ece;
};

struct cm_backend {
	const char *name;

	/* Whether this backend serves this process: 1; 0, the next one is asked; or
	 * -errno, no backend serves it. Once per process, before init. */
	int (*probe)(void);
	/* Once per process, before anything else; may be retried after failure.
	 * -ENODEV no device, -EPERM ABI mismatch, errno of the device node. */
	int (*init)(void);
	/* Before something is made that belongs to no other object: if the device has
	 * failed, begins anew. 0 or -errno. May be NULL. */
	int (*renew)(void);
	/* A channel's descriptor was found closed. May be NULL. Any locks are held. */
	void (*suspect)(void);

	/* Gives ch->pub.fd. The user backend uses ch->q (evq); the kernel's fd
	 * knows nothing of that queue, whose own fd then stays -1. channel_close
	 * frees what open made; pub.fd and q.fd may be -1 by then. */
	int (*channel_open)(struct cm_channel *ch);
	void (*channel_close)(struct cm_channel *ch);

	/* Next event of the channel, not yet applied (cm/event.c does that), and
	 * counted as delivered to its cm_event.charge. Blocks as the fd says. */
	int (*event_get)(struct cm_channel *ch, struct cm_event **ev);
	/* Fetched events went back to ch->q (cm_event_unget). May be NULL. */
	void (*event_unget)(struct cm_channel *ch);

	/* id->pub.ps, pub.qp_type, channel are set. id->be is the backend's. */
	int (*id_create)(struct cm_id *id);
	/* id->be_id is the be_child of a CONNECT_REQUEST, and id's channel may be
	 * another one than the listener's. On failure the object is still a child
	 * (child_drop). May be NULL. */
	int (*id_adopt)(struct cm_id *id);
	/* Cancels what is outstanding, tells the peer (behaviour.md 2.2), drops
	 * undelivered events. *delivered: events of this id handed out so far. */
	int (*id_destroy)(struct cm_id *id, uint32_t *delivered);
	/* Moves the id and its undelivered events, in order, to another channel. */
	int (*id_migrate)(struct cm_id *id, struct cm_channel *to, uint32_t *delivered);
	/* id_destroy's counterpart for a child that never became an id (no memory
	 * at its CONNECT_REQUEST): rejects and frees cm_event.be_child. */
	void (*child_drop)(void *be_child);

	int (*bind)(struct cm_id *id, const struct sockaddr *addr);
	int (*resolve_addr)(struct cm_id *id, const struct sockaddr *src,
			    const struct sockaddr *dst, int timeout_ms);
	int (*resolve_route)(struct cm_id *id, int timeout_ms);
	int (*listen)(struct cm_id *id, int backlog);

	int (*query_addr)(struct cm_id *id, struct cm_addrs *out);
	/* The GIDs of an id on a device of transport IB, where query_addr does not
	 * tell them; NULL where it does. */
	int (*query_gid)(struct cm_id *id, struct cm_addrs *out);
	/* Up to max paths; returns how many, or -errno. */
	int (*query_path)(struct cm_id *id, struct ibv_path_data *path, int max);

	int (*connect)(struct cm_id *id, const struct cm_conn_param *p);
	/* accept in two steps around the QP's moves to RTR and RTS: prepare
	 * makes init_qp_attr answer and the stream claimable for p->qp_num;
	 * accept sends the reply. A failure of either also rejects. */
	int (*accept_prepare)(struct cm_id *id, const struct cm_conn_param *p);
	int (*accept)(struct cm_id *id, const struct cm_conn_param *p);
	int (*reject)(struct cm_id *id, uint8_t reason, const void *data, uint8_t len);
	/* Sends the RTU (rdma_establish, and event.c after a CONNECT_RESPONSE). */
	int (*establish)(struct cm_id *id);
	/* The active side gives up after a response (RTR or RTS failed). */
	int (*abandon)(struct cm_id *id);
	int (*disconnect)(struct cm_id *id);
	int (*notify)(struct cm_id *id, enum ibv_event_type event);
	/* attr->qp_state is the input; fills attr and *mask (behaviour.md 4.3). */
	int (*init_qp_attr)(struct cm_id *id, struct ibv_qp_attr *attr, int *mask);
	int (*set_option)(struct cm_id *id, int level, int name, const void *val,
			  size_t len);
	int (*join)(struct cm_id *id, struct cm_mcast *mc);
	int (*leave)(struct cm_id *id, struct cm_mcast *mc, uint32_t *delivered);
	/* Queues an event, which is the backend's from here on, also when it fails: USER
	 * for the application, INTERNAL by addrinfo_async.c (from its own thread; applied
	 * as ADDRINFO_*). Needs no memory but the event's. */
	int (*write_event)(struct cm_id *id, struct cm_event *ev);
	/* RAI_SA service lookup: -EOPNOTSUPP on Ethernet. */
	int (*resolve_service)(struct cm_id *id, const char *service);
	/* Its result, after an ADDRINFO_RESOLVED that the backend itself made. May be
	 * NULL where resolve_service never succeeds. */
	int (*query_service)(struct cm_id *id, struct rdma_addrinfo **res);

	/* A QP was made by rdma_create_qp on this id. */
	void (*qp_created)(struct cm_id *id, struct ibv_qp *qp);
};

extern const struct cm_backend cm_backend_user, cm_backend_kernel;

/* The backends in order of preference, NULL at the end. backends.c defines it in
 * librdmacm; a unit test of the CM defines its own. */
extern const struct cm_backend *const cm_backends[];

/* The backend of this process, initialised; NULL with *err = -errno. */
const struct cm_backend *cm_backend_get(int *err);

/* For a backend: what it serves has failed, and its objects are old from now on. The next
 * cm_backend_get() begins anew. */
void cm_backend_failed(void);
/* An old object of this generation is old for that reason, not by a fork. */
bool cm_backend_has_failed(uint32_t generation);

/* Unit tests: this backend from now on. */
void cm_backend_use(const struct cm_backend *be);

#endif
