/* SPDX-License-Identifier: BSD-2-Clause */
/* Descriptors of rsockets. A slot counts the calls that use its object, so that rclose()
 * may come while other threads are in calls: the last of them ends the object. The
 * descriptor is closed then and not before, so its number is not given to another socket
 * meanwhile. Not PROCESS_STATE: after a fork the child still has the descriptors. */
#include "rsocket/rs.h"

#include <errno.h>
#include <unistd.h>

enum { BLOCK = 1024, BLOCKS = 1024 };

struct slot {
	struct obj *_Atomic o;
	_Atomic uint32_t users;
	struct obj *_Atomic removed; /* its end is due when users is 0 */
	void (*_Atomic finish)(struct obj *o); /* the next one's comes after close() */
};

static struct slot *_Atomic blocks[BLOCKS];

static struct slot *slot_of(int fd)
{
	struct slot *b;

	if (fd < 0 || fd >= BLOCK * BLOCKS)
		return NULL;
	b = atomic_load_explicit(&blocks[fd / BLOCK], memory_order_acquire);
	return b ? &b[fd % BLOCK] : NULL;
}

static struct slot *slot_make(int fd)
{
	struct slot *b, *none = NULL;

	if (fd < 0 || fd >= BLOCK * BLOCKS)
		return NULL;
	if (!atomic_load(&blocks[fd / BLOCK])) {
		b = calloc(BLOCK, sizeof(*b));
		if (!b)
			return NULL;
		if (!atomic_compare_exchange_strong(&blocks[fd / BLOCK], &none, b))
			free(b);
	}
	return slot_of(fd);
}

int table_add(struct obj *o)
{
	struct slot *s = slot_make(o->fd);

	if (!s)
		return -EMFILE;
	/* A child of fork may have closed the descriptor by close(2). */
	atomic_store(&s->removed, NULL);
	if (atomic_load(&s->o))
		atomic_store(&s->users, 0);
	atomic_store(&s->o, o);
	return 0;
}

static void leave(struct slot *s)
{
	void (*finish)(struct obj *o);
	struct obj *o;

	if (atomic_fetch_sub(&s->users, 1) != 1)
		return;
	if (!atomic_load_explicit(&s->removed, memory_order_relaxed))
		return;
	o = atomic_exchange(&s->removed, NULL);
	if (!o)
		return;
	/* From here on the slot may be another object's. */
	finish = s->finish;
	close(o->fd);
	finish(o);
}

struct obj *table_get(int fd)
{
	struct slot *s = slot_of(fd);
	struct obj *o;

	if (!s || !atomic_load_explicit(&s->o, memory_order_relaxed))
		return NULL;
	atomic_fetch_add(&s->users, 1);
	o = atomic_load(&s->o);
	if (!o)
		leave(s);
	return o;
}

void table_put(struct obj *o)
{
	leave(slot_of(o->fd));
}

bool table_remove(struct obj *o, void (*finish)(struct obj *o))
{
	struct slot *s = slot_of(o->fd);

	if (!atomic_compare_exchange_strong(&s->o, &(struct obj *){ o }, NULL))
		return false;
	/* Users that a fork has left behind would never leave. */
	if (obj_is_dead(o))
		atomic_store(&s->users, 1);
	s->finish = finish;
	atomic_store(&s->removed, o);
	return true;
}
