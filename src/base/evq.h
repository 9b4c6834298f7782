/* SPDX-License-Identifier: BSD-2-Clause */
/* A queue of events behind a real descriptor: the one mechanism under CM event channels,
 * completion channels and async fds.
 *
 * The fd is an eventfd with EFD_SEMAPHORE whose tokens are hints: every push adds one; a
 * getter reads one (so O_NONBLOCK, EINTR and SA_RESTART are read(2)'s own), locks and
 * pops; an empty queue means that another thread has removed the event, and the getter
 * reads again. A thread that removes k nodes reads up to k tokens back with
 * preadv2(RWF_NOWAIT) under the lock. It may get fewer: then a getter has read one
 * already and will try again, or pop the next node and read its token, too (evq.c).
 * Nothing is decided by poll(). */
#ifndef ANYRDMA_BASE_EVQ_H
#define ANYRDMA_BASE_EVQ_H

#include "base/list.h"
#include "base/lock.h"

#include <stdatomic.h>

struct evq {
	int fd;		  /* close-on-exec, application-visible (low number); -1: a
			   * plain list, whose owner wakes its readers another way */
	struct lock lock; /* guards head and its nodes; leaf, but for what the owner says */
	struct list head GUARDED_BY(lock);
	unsigned debt GUARDED_BY(lock); /* tokens that removed nodes left behind */
	unsigned owed GUARDED_BY(lock); /* tokens that evq_flush() will add */
	_Atomic unsigned paying; /* evq.c: threads with tokens that are no longer owed, and
				  * not in the fd yet; raised under the lock */
	struct list owing;  /* evq.c: on the list of queues with tokens owed */
	unsigned writers;   /* evq.c: threads that are adding tokens */
	atomic_bool lost;   /* a token could not be added: the fd was closed */
};

int evq_init(struct evq *q); /* 0 or -errno */
void evq_fini(struct evq *q); /* closes the fd; nodes are the owner's */

/* Adds node at the tail and one token. */
void evq_push(struct evq *q, struct list *node);
void evq_push_locked(struct evq *q, struct list *node) REQUIRES(q->lock);

/* The same, when the fd may have been closed, and its number be another file's: then
 * there is no token. */
void evq_push_checked(struct evq *q, struct list *node);

/* The same, but the token is added by the next evq_flush(), which the caller has to call.
 * For a caller that pushes many events, or holds locks that their getter needs: it wakes
 * the getter once, at the end. Nodes that evq_push() adds in between may be got first. */
void evq_push_later_locked(struct evq *q, struct list *node) REQUIRES(q->lock);
void evq_flush(void);
/* After return no evq_flush() writes to the fd that q had before. The caller has replaced
 * q->fd by -1, or knows that nothing is pushed any more. Called without locks. */
void evq_settle(struct evq *q);

/* Blocks as the fd's flags say. Returns 0 with q->lock HELD and *node popped
 * (so that the caller can account for it atomically with the removal), or
 * -errno (EAGAIN, EINTR, EBADF) with the lock not held. A cancellation point while it
 * waits, if the calling thread can be cancelled (base/cancel.h). */
int evq_get(struct evq *q, struct list **node) NO_TSA;

/* The caller has unlinked k nodes: reads their tokens back. */
void evq_forget_locked(struct evq *q, unsigned k) REQUIRES(q->lock);

#endif
