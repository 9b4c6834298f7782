/* SPDX-License-Identifier: BSD-2-Clause */
/* Why no event is lost and no token stays. A getter between its read and the lock
 * is in flight. Whenever the lock is free,
 *
 *	tokens in the fd + getters in flight == nodes on the list + debt
 *
 * where debt counts the tokens that a remover did not get, because getters were
 * in flight with them. A getter that finds the list empty pays one. One that pops
 * a node, though its token was that of a removed one, leaves the node's own token
 * behind: so it takes tokens while there is debt. The last getter in flight
 * leaves as many tokens as nodes, and no debt. */
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
	q->debt = 0;
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
	if (q->fd < 0)
		return;
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

/* Offset -1: eventfds have none. RWF_NOWAIT: the fd may be blocking. */
static bool take_token(struct evq *q)
{
	uint64_t token;
	struct iovec iov = { &token, sizeof(token) };

	return preadv2(q->fd, &iov, 1, -1, RWF_NOWAIT) == (ssize_t)sizeof(token);
}

static void pay_debt_locked(struct evq *q) REQUIRES(q->lock)
{
	while (q->debt && take_token(q))
		q->debt--;
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
		if (*node) {
			pay_debt_locked(q);
			return 0;
		}
		if (q->debt)
			q->debt--;
		lock_put(&q->lock);
	}
}

void evq_forget_locked(struct evq *q, unsigned k)
{
	lock_assert_held(&q->lock);
	if (q->fd < 0)
		return;
	q->debt += k;
	pay_debt_locked(q);
}
