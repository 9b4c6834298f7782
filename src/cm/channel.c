/* SPDX-License-Identifier: BSD-2-Clause */
/* Event channels: life, and what is left of one whose ids outlive it. */
#include "base/log.h"
#include "cm/backend.h"

#include <stdlib.h>
#include <unistd.h>

/* Programs (rping among them) destroy a channel while a thread of theirs handles an event
 * of it, and that thread then fetches the next one. With the original this fails with
 * EBADF. So the memory of a destroyed channel stays a channel without a descriptor, until
 * so many more were destroyed. */
enum { DESTROYED_KEPT = 64 };

static struct {
	struct lock lock; /* leaf */
	struct cm_channel *kept[DESTROYED_KEPT] GUARDED_BY(lock);
	unsigned next GUARDED_BY(lock);
} destroyed PROCESS_STATE = { .lock = LOCK_INIT };

static void keep_destroyed(struct cm_channel *ch)
{
	struct cm_channel *oldest;

	lock_init(&ch->q.lock); /* the backend has ended it */
	ch->pub.fd = ch->q.fd = -1;
	lock_get(&destroyed.lock);
	oldest = destroyed.kept[destroyed.next];
	destroyed.kept[destroyed.next] = ch;
	destroyed.next = (destroyed.next + 1) % DESTROYED_KEPT;
	lock_put(&destroyed.lock);
	free(oldest);
}

int cm_channel_new(const struct cm_backend *be, struct cm_channel **out)
{
	struct cm_channel *ch = calloc(1, sizeof(*ch));
	int r;

	if (!ch)
		return -ENOMEM;
	ch->be = be;
	ch->generation = state_generation();
	ch->q.fd = -1;
	/* A backend that does not use the queue has a valid, empty one. */
	lock_init(&ch->q.lock);
	list_init(&ch->q.head);
	list_init(&ch->q.owing);
	r = be->channel_open(ch);
	if (r) {
		free(ch);
		return r;
	}
	*out = ch;
	return 0;
}

/* Undelivered events of ids that are still attached: the application destroyed
 * their channel, which is the end of them, and of the children they announce. */
static void dequeue_all_locked(struct cm_channel *ch, struct list *out) REQUIRES(ch->q.lock)
{
	struct list *node;

	list_init(out);
	while ((node = list_pop(&ch->q.head)))
		list_add_tail(out, node);
}

static void drop(const struct cm_backend *be, struct list *events)
{
	struct list *node;

	while ((node = list_pop(events))) {
		struct cm_event *ev = list_entry(node, struct cm_event, link);

		if (ev->be_child)
			be->child_drop(ev->be_child);
		cm_event_free(ev);
	}
}

static void release(struct cm_channel *ch)
{
	struct list events;

	lock_get(&ch->q.lock);
	dequeue_all_locked(ch, &events);
	lock_put(&ch->q.lock);
	drop(ch->be, &events);
	ch->be->channel_close(ch);
	keep_destroyed(ch);
}

void cm_channel_free(struct cm_channel *ch)
{
	const struct cm_backend *be = ch->be;
	struct list events;
	int fd, ids;

	if (state_is_old(ch->generation)) {
		/* After a failure the number may be another file's. */
		if (!cm_backend_has_failed(ch->generation))
			close(ch->pub.fd);
		free(ch);
		return;
	}
	lock_get(&ch->q.lock);
	ids = atomic_load(&ch->ids);
	if (!ids) {
		lock_put(&ch->q.lock);
		release(ch);
		return;
	}
	log_warn("event channel %p destroyed with %d ids on it: their events are lost",
		 (void *)ch, ids);
	/* The number may be another file's soon: nobody may write to it. From the
	 * unlock on, the last id frees ch. */
	ch->dead = true;
	fd = ch->pub.fd;
	ch->pub.fd = ch->q.fd = -1;
	dequeue_all_locked(ch, &events);
	atomic_fetch_add(&ch->ids, 1); /* ours: ch stays for a moment */
	lock_put(&ch->q.lock);
	drop(be, &events);
	evq_settle(&ch->q);
	close(fd);
	cm_channel_detach(ch);
}

void cm_channel_attach(struct cm_channel *ch)
{
	atomic_fetch_add(&ch->ids, 1);
}

void cm_channel_detach(struct cm_channel *ch)
{
	bool last;

	lock_get(&ch->q.lock);
	last = atomic_fetch_sub(&ch->ids, 1) == 1 && ch->dead;
	lock_put(&ch->q.lock);
	if (last)
		release(ch);
}

struct rdma_event_channel *rdma_create_event_channel(void)
{
	NO_CANCEL;
	const struct cm_backend *be;
	struct cm_channel *ch;
	int r = 0;

	be = cm_backend_get(&r);
	if (be)
		r = cm_channel_new(be, &ch);
	if (r) {
		errno = -r;
		return NULL;
	}
	return &ch->pub;
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	NO_CANCEL;

	if (channel)
		cm_channel_free(to_channel(channel));
}
