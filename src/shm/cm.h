/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections of the CM over a link. The active side knows the unix name of a listener.
 * It gets a link to the process that listens under the name and sends its request there.
 * The reply opens the stream or refuses it. dev/interface.h has the contract of the
 * functions that librdmacm calls, rec.h the messages. */
#ifndef ANYRDMA_SHM_CM_H
#define ANYRDMA_SHM_CM_H

#include "dev/interface.h"
#include "shm/rec.h"

struct link;

/* ---- for anyrdma_interface ---- */

struct stream_listener *stream_listen(int fd, const char *name,
				      const struct listener_user *ops, void *user);
void stream_unlisten(struct stream_listener *ln);
struct stream *stream_connect(const struct stream_names *names, const void *req,
			      size_t len, const struct stream_user *ops, void *user,
			      bool *sent);
int stream_opened(struct stream *s, const struct stream_param *p);
int stream_accept(struct stream *s, const struct stream_param *p, const void *rep,
		  size_t len);
void stream_reject(struct stream *s, const void *rej, size_t len);

/* ---- for the link ---- */

/* link_kind.receive of REC_CM. */
int shm_cm_receive(struct link *l, const volatile void *rec, uint32_t bytes,
		   bool by_thread);
/* Handles a turn of link.cm_msgs. Loop thread, no lock. */
void shm_cm_run(struct link *l);
/* The link is dead: no request goes there any more. */
void shm_cm_routes_drop(struct link *l);

/* ---- for carrier.c ---- */

/* The link of a stream that is not open yet is dead. -EPIPE: the request may be sent to
 * another process; 0: the process that has ended had received it. */
int shm_cm_lost(struct stream *s);
/* This side gives up a stream that is not open yet: tells the peer. */
void shm_cm_cancel(struct stream *s);

#endif
