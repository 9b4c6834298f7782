/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls: connections of the CM over a link. A caller that has the unix name of a
 * listener asks for a link to the process behind it and sends its request there; the
 * answer opens the stream or is a refusal. dev/interface.h has the contract, rec.h the
 * messages. */
#ifndef ANYRDMA_SHM_CALL_H
#define ANYRDMA_SHM_CALL_H

#include "dev/interface.h"
#include "shm/rec.h"

struct link;

/* anyrdma_interface */
struct stream_listener *stream_listen(int fd, const char *name, const struct listener_user *ops,
				  void *user);
void stream_unlisten(struct stream_listener *cl);
struct stream *stream_connect(const struct stream_names *names, const void *req, size_t len,
			   const struct stream_user *ops, void *user, bool *asked);
int stream_opened(struct stream *s, const struct stream_param *p);
int stream_accept(struct stream *s, const struct stream_param *p, const void *rep,
		  size_t len);
void stream_reject(struct stream *s, const void *rej, size_t len);

/* link_rx.c: a record of the peer's, under rx_lock. 0 or -EPROTO. */
int shm_cm_receive(struct link *l, const void *rec, uint32_t bytes);
/* What it left for the loop thread; no lock held. */
void shm_cm_requests(struct link *l);
/* The link is dead: no caller is led to it any more. */
void shm_cm_forget(struct link *l);
/* stream.c: the link of a call is dead. -EPIPE: another process may take the call; 0:
 * the one that is gone had taken it. */
int shm_cm_lost(struct stream *s);
/* stream.c: the caller or callee goes away before the stream was open. */
void shm_cm_cancel(struct stream *s);

#endif
