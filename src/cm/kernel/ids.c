/* SPDX-License-Identifier: BSD-2-Clause */
/* The table from uids, which the kernel echoes in its events, to objects. A uid
 * is a slot and the slot's generation, so one that outlived its object, or was
 * never ours, finds nothing. */
#include "base/log.h"
#include "cm/kernel/kernel.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct slot {
	struct kernel_obj *obj; /* NULL: free */
	uint32_t generation;
	uint32_t next_free; /* index + 1; 0: none */
};

static struct lock table_lock PROCESS_STATE = LOCK_INIT;
static struct slot *slots GUARDED_BY(table_lock) PROCESS_STATE;
static uint32_t count GUARDED_BY(table_lock) PROCESS_STATE;
static uint32_t free_head GUARDED_BY(table_lock) PROCESS_STATE;
static struct cond came PROCESS_STATE;
static int waiting GUARDED_BY(table_lock) PROCESS_STATE;

struct kernel_obj *kernel_obj_new(struct cm_channel *ch)
{
	struct kernel_obj *o = calloc(1, sizeof(*o));

	if (!o) {
		log_error("no memory for an id of the kernel's");
		return NULL;
	}
	o->ch = ch;
	o->fd = ch ? ch->pub.fd : -1;
	o->halfway = -1;
	memset(o->moved_from, -1, sizeof(o->moved_from));
	return o;
}

static bool grow_locked(void) REQUIRES(table_lock)
{
	uint32_t n = count ? count * 2 : 64, i;
	struct slot *p = reallocarray(slots, n, sizeof(*p));

	if (!p)
		return false;
	for (i = count; i < n; i++)
		p[i] = (struct slot){ NULL, 0, i + 1 < n ? i + 2 : 0 };
	free_head = count + 1;
	slots = p;
	count = n;
	return true;
}

int kernel_obj_register(struct kernel_obj *o)
{
	struct slot *s;
	int r = 0;

	lock_get(&table_lock);
	if (!free_head && !grow_locked()) {
		r = -ENOMEM;
	} else {
		s = &slots[free_head - 1];
		o->uid = (uint64_t)s->generation << 32 | free_head;
		free_head = s->next_free;
		s->obj = o;
	}
	lock_put(&table_lock);
	return r;
}

void kernel_obj_unregister(struct kernel_obj *o)
{
	uint32_t i = (uint32_t)o->uid;
	struct slot *s;

	if (!o->uid)
		return;
	lock_get(&table_lock);
	s = &slots[i - 1];
	s->obj = NULL;
	s->generation++;
	s->next_free = free_head;
	free_head = i;
	o->uid = 0;
	lock_put(&table_lock);
}

static struct kernel_obj *find_locked(uint64_t uid, uint32_t handle) REQUIRES(table_lock)
{
	struct kernel_obj *o;
	uint32_t i = (uint32_t)uid;

	if (uid) {
		if (!i || i > count || slots[i - 1].generation != uid >> 32)
			return NULL;
		return slots[i - 1].obj;
	}
	for (i = 0; i < count; i++) {
		o = slots[i].obj;
		if (o && !o->mc && o->handle == handle)
			return o;
	}
	return NULL;
}

/* The kernel counts a group's event for the group and for its id. */
static void count_locked(struct kernel_obj *o) REQUIRES(table_lock)
{
	o->seen++;
	if (o->mc)
		to_kernel(o->id)->seen++;
	if (waiting)
		cond_broadcast(&came);
}

void kernel_obj_moved(struct kernel_obj *o, int from)
{
	lock_get(&table_lock);
	memmove(&o->moved_from[1], &o->moved_from[0],
		sizeof(o->moved_from) - sizeof(o->moved_from[0]));
	o->moved_from[0] = from;
	lock_put(&table_lock);
}

bool kernel_obj_event(uint64_t uid, uint32_t handle, struct cm_event *ev, bool fetched)
{
	struct kernel_obj *o, *child = ev->be_child;

	lock_get(&table_lock);
	o = find_locked(uid, handle);
	if (o) {
		/* Counted last, and all under the lock: who settles finds the event
		 * among those that must be acknowledged. */
		ev->charge = o->id;
		ev->mcast = o->mc;
		ev->pub.id = &o->id->pub;
		if (child)
			memcpy(child->moved_from, o->moved_from,
			       sizeof(child->moved_from));
		if (ev->pub.event == RDMA_CM_EVENT_CONNECT_RESPONSE)
			atomic_store(&o->responded, true);
		if (fetched)
			cm_event_fetched(ev);
		count_locked(o);
	}
	lock_put(&table_lock);
	return o != NULL;
}

void kernel_obj_settle(struct kernel_obj *o, uint32_t n)
{
	struct timespec until;

	lock_get(&table_lock);
	waiting++;
	while ((int32_t)(n - o->seen) > 0) {
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_sec++;
		if (lock_timedwait(&table_lock, &came, &until) == -ETIMEDOUT)
			log_warn("id %p waits for %u events that were fetched from the "
				 "kernel by a thread which does not go on",
				 (void *)o->id, n - o->seen);
	}
	waiting--;
	lock_put(&table_lock);
}
