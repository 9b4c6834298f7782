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
struct call_listener *call_listen(int fd, const char *name, const struct call_user *ops,
				  void *user);
void call_unlisten(struct call_listener *cl);
struct stream *stream_call(const struct call_names *names, const void *req, size_t len,
			   const struct stream_user *ops, void *user, bool *asked);
void stream_adopt(struct stream *s, const struct stream_user *ops, void *user);
int stream_answered(struct stream *s, const struct stream_param *p);
int stream_accept(struct stream *s, const struct stream_param *p, const void *rep,
		  size_t len);
void stream_reject(struct stream *s, const void *rej, size_t len);

/* link_rx.c: a record of the peer's, under rx_lock. 0 or -EPROTO. */
int call_receive(struct link *l, const void *rec, uint32_t bytes);
/* What it left for the loop thread; no lock held. */
void call_requests(struct link *l);
/* The link is dead: no caller is led to it any more. */
void call_forget(struct link *l);
/* stream.c: the link of a call is dead. -EPIPE: another process may take the call; 0:
 * the one that is gone had taken it. */
int call_lost(const struct stream *s);
/* stream.c: the caller or callee goes away before the stream was open. */
void call_end(struct stream *s);

#endif
