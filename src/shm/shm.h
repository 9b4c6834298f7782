/* SPDX-License-Identifier: BSD-2-Clause */
/* What shared memory offers to the code that joins QPs and streams (match.c). */
#ifndef ANYRDMA_SHM_SHM_H
#define ANYRDMA_SHM_SHM_H

#include "base/list.h"
#include "base/loop.h"
#include "dev/dev.h"
#include "tcp/rendezvous.h"

struct link;
struct stream;

extern const struct carrier shm_carrier;

/* The QP's process can be found by others of this host under its rendezvous port
 * (idempotent). 0 or -errno. */
int shm_listen(uint32_t qpn);

/* The peer may be a process of this host: its address is one of ours, and nobody
 * forbids shared memory. */
bool shm_is_near(const union ibv_gid *gid);

/* Outgoing, under match.lock: looks for the process of key's remote QP and asks it for
 * a stream, again and again, until it succeeds, is cancelled, or shm_failed. NULL: no
 * memory. pause: others have just been tried in vain. */
struct shm_out *shm_connect(struct dev_qp *qp, const struct stream_key *key,
			    uint64_t serial, bool pause);
void shm_cancel(struct shm_out *out);
void shm_retry_locked(struct shm_out *out); /* after a pause */

/* Incoming: the peer of this key has asked already. Under match.lock; with a reference
 * for shm_accept(), which is called without. */
struct shm_in;
struct shm_in *shm_find(const struct stream_key *key);
void shm_accept(struct shm_in *in);

/* stream.c: stream_start(); a stream that a QP has, or `waiter` by the CM, is something of the
 * peer that the application has accepted. */
int shm_start(struct stream *s, bool waiter);

/* open.c, for stream.c: the link ended before the stream was opened. */
void shm_open_over(struct stream *s, int err);

/* match.c, for open.c; under match.lock */
void park_shm_done_locked(struct shm_out *out);
/* There is no process to share memory with: TCP is tried, unless it is forbidden. */
void park_shm_failed_locked(struct shm_out *out, int err);

/* meet.c: one who asks for a link. done() runs in the loop thread, without locks,
 * with a counted link to the process of this rendezvous port, or NULL and -errno. */
struct link_wait {
	void (*done)(struct link_wait *m, struct link *l, int err);
	/* private to meet.c */
	struct list node;
	struct loop_work work;
	struct link *link;
	int err;
};
void link_find_port(uint16_t port, struct link_wait *m);
/* host.c: others find this process under the port (for good). */
int link_listen_port(uint16_t port);
/* The same by abstract unix name, of a socket that its owner has bound and keeps.
 * -ECONNREFUSED: nobody listens under it. */
void link_find_name(const char *name, struct link_wait *m);
int link_listen_fd(int fd, const char *name); /* host.c */
void link_unlisten(const char *name);
/* The link is dead: nobody gets it any more. */
void link_forget(struct link *l);

#endif
