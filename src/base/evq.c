/* SPDX-License-Identifier: BSD-2-Clause */
/* Why no event is lost, and why no token is left over.
 *
 * A getter that has read its token and does not have the lock yet is in flight. Whenever
 * the lock is free,
 *
 *	tokens in the fd + tokens owed + getters in flight == nodes on the list + debt
 *
 * Tokens owed are those that evq_flush() has still to add. The debt counts tokens of
 * removed nodes that the remover could not read, as getters in flight had read them. (A
 * remover waits for tokens that evq_flush() is just adding.)
 *
 * A getter that finds the list empty had the token of a removed node: it lowers the debt.
 * A getter that pops a node while there is debt may also have had the token of a removed
 * node, and then the token of its own node is still in the fd: so it reads tokens until
 * the debt is 0 or there is none. The last getter in flight leaves as many tokens as
 * nodes, and no debt. */
#include "base/evq.h"
#include "base/cancel.h"
#include "base/log.h"
#include "base/state.h"
#include "base/sys.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static struct {
	struct lock lock; /* guards head and each queue's owing and writers; leaf */
	struct list head;
} owing PROCESS_STATE = { .lock = LOCK_INIT, .head = LIST_INIT(owing.head) };

int evq_init(struct evq *q)
{
	q->fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
	if (q->fd < 0)
		return -errno;
	lock_init(&q->lock);
	list_init(&q->head);
	q->debt = q->owed = q->writers = 0;
	atomic_init(&q->paying, 0);
	atomic_init(&q->lost, false);
	list_init(&q->owing);
	return 0;
}

/* Waits while another thread makes a system call that does not block. Sleeps, as that
 * thread may need this processor and have a lower priority. */
static void pause_for_writer(void)
{
	sys_nanosleep(&(struct timespec){ .tv_nsec = 10000 }, NULL);
}

void evq_settle(struct evq *q)
{
	lock_get(&owing.lock);
	list_del(&q->owing);
	while (q->writers) {
		lock_put(&owing.lock);
		pause_for_writer();
		lock_get(&owing.lock);
	}
	lock_put(&owing.lock);
}

void evq_fini(struct evq *q)
{
	evq_settle(q);
	close(q->fd);
	q->fd = -1;
	lock_fini(&q->lock);
}

static void add_tokens(struct evq *q, int fd, uint64_t n)
{
	if (sys_write(fd, &n, sizeof(n)) == sizeof(n))
		return;
	log_error("event descriptor %d was closed by the application: %m", fd);
	atomic_store_explicit(&q->lost, true, memory_order_relaxed);
}

void evq_push_locked(struct evq *q, struct list *node)
{
	lock_assert_held(&q->lock);
	list_add_tail(&q->head, node);
	if (q->fd >= 0)
		add_tokens(q, q->fd, 1);
}

void evq_push_later_locked(struct evq *q, struct list *node)
{
	lock_assert_held(&q->lock);
	list_add_tail(&q->head, node);
	if (q->fd < 0)
		return;
	q->owed++;
	lock_get(&owing.lock);
	if (!list_linked(&q->owing))
		list_add_tail(&owing.head, &q->owing);
	lock_put(&owing.lock);
}

static void flush_one(struct evq *q)
{
	unsigned n;
	int fd;

	lock_get(&q->lock);
	n = q->owed;
	q->owed = 0;
	fd = q->fd;
	atomic_fetch_add(&q->paying, 1);
	lock_put(&q->lock);
	/* Without the lock: the thread that this wakes needs it. */
	if (n && fd >= 0)
		add_tokens(q, fd, n);
	atomic_fetch_sub(&q->paying, 1);
}

void evq_flush(void)
{
	struct list *n;

	lock_get(&owing.lock);
	while ((n = list_pop(&owing.head))) {
		struct evq *q = list_entry(n, struct evq, owing);

		q->writers++;
		lock_put(&owing.lock);
		flush_one(q);
		lock_get(&owing.lock);
		q->writers--;
	}
	lock_put(&owing.lock);
}

void evq_push(struct evq *q, struct list *node)
{
	lock_get(&q->lock);
	evq_push_locked(q, node);
	lock_put(&q->lock);
}

static bool is_eventfd(int fd)
{
	static const char what[] = "anon_inode:[eventfd]";
	char path[32], text[sizeof(what)];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, text, sizeof(text));
	return n == sizeof(what) - 1 && !memcmp(text, what, sizeof(what) - 1);
}

void evq_push_checked(struct evq *q, struct list *node)
{
	lock_get(&q->lock);
	if (q->fd >= 0 && is_eventfd(q->fd))
		evq_push_locked(q, node);
	else
		list_add_tail(&q->head, node);
	lock_put(&q->lock);
}

/* Offset -1: eventfds have none. RWF_NOWAIT: the fd may be blocking. */
static bool take_token(struct evq *q)
{
	uint64_t token;
	struct iovec iov = { &token, sizeof(token) };

	return sys_preadv2(q->fd, &iov, 1, -1, RWF_NOWAIT) == (ssize_t)sizeof(token);
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
		cancel_wait_begin();
		n = read(q->fd, &token, sizeof(token));
		cancel_wait_end();
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
	unsigned unpaid = k < q->owed ? k : q->owed;

	lock_assert_held(&q->lock);
	if (q->fd < 0)
		return;
	q->owed -= unpaid;
	q->debt += k - unpaid;
	/* A token that is added after this would stay: no getter is in flight for it. */
	while (q->debt && atomic_load(&q->paying))
		pause_for_writer();
	pay_debt_locked(q);
}
