/* SPDX-License-Identifier: BSD-2-Clause */
/* Why no event is lost: a node is on the list before its token can be read, and
 * whoever takes a token either pops a node or finds the list empty. So at any
 * moment outside the lock
 *
 *	tokens in the fd + getters that hold one  >=  nodes on the list
 *
 * and each side changes by one at a time under the lock, but for the read. */
#include "base/evq.h"
#include "base/log.h"

#include <errno.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

int evq_init(struct evq *q)
{
	q->fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
	if (q->fd < 0)
		return -errno;
	lock_init(&q->lock);
	list_init(&q->head);
	return 0;
}

void evq_fini(struct evq *q)
{
	close(q->fd);
	q->fd = -1;
	lock_fini(&q->lock);
}

void evq_push_locked(struct evq *q, struct list *node)
{
	uint64_t one = 1;

	lock_assert_held(&q->lock);
	list_add_tail(&q->head, node);
	if (write(q->fd, &one, sizeof(one)) != sizeof(one))
		log_error("event descriptor %d was closed by the application: %m",
			  q->fd);
}

void evq_push(struct evq *q, struct list *node)
{
	lock_get(&q->lock);
	evq_push_locked(q, node);
	lock_put(&q->lock);
}

int evq_get(struct evq *q, struct list **node)
{
	uint64_t token;
	ssize_t n;

	for (;;) {
		n = read(q->fd, &token, sizeof(token));
		if (n != (ssize_t)sizeof(token))
			return n < 0 ? -errno : -EBADF;
		lock_get(&q->lock);
		*node = list_pop(&q->head);
		if (*node)
			return 0;
		lock_put(&q->lock);
	}
}

void evq_forget_locked(struct evq *q, unsigned k)
{
	uint64_t token;
	struct iovec iov = { &token, sizeof(token) };

	lock_assert_held(&q->lock);
	/* Offset -1: eventfds have none. RWF_NOWAIT: the fd may be blocking. */
	while (k-- && preadv2(q->fd, &iov, 1, -1, RWF_NOWAIT) == sizeof(token))
		;
}
