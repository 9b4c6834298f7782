/* SPDX-License-Identifier: BSD-2-Clause */
#include "dev/traffic.h"
#include "base/lock.h"
#include "base/state.h"
#include "dev/dev.h"

#include <string.h>

static struct lock traffic_lock PROCESS_STATE = LOCK_INIT; /* innermost */
/* Under traffic_lock. */
static struct list objects PROCESS_STATE = LIST_INIT(objects);
static uint64_t sums[DEV_DEVICES][TRAFFIC_KINDS] PROCESS_STATE;

_Atomic bool traffic_awaited_ PROCESS_STATE;
static void (*_Atomic next_cb)(void) PROCESS_STATE;

/* How many packets so many frames with so many bytes in all are at least. */
static uint64_t packets(uint64_t frames, uint64_t bytes, unsigned mtu)
{
	return frames + (bytes > frames && mtu ? (bytes - frames) / mtu : 0);
}

static void fold_locked(struct traffic *t)
{
	unsigned device = atomic_load_explicit(&t->device, memory_order_relaxed);
	unsigned mtu = atomic_load_explicit(&t->mtu, memory_order_relaxed);
	uint64_t *sum = sums[device < DEV_DEVICES ? device : 0], new[TRAFFIC_KINDS];

	lock_assert_held(&traffic_lock);
	for (unsigned i = 0; i < TRAFFIC_KINDS; i++) {
		uint64_t n = atomic_load_explicit(&t->n[i], memory_order_relaxed);

		new[i] = n - t->seen[i];
		t->seen[i] = n;
	}
	for (unsigned i = 0; i < TRAFFIC_KINDS; i += 2) {
		sum[i] += new[i];
		sum[i + 1] += packets(new[i + 1], new[i], mtu);
	}
}

static void sum_locked(unsigned device, uint64_t sum[TRAFFIC_KINDS])
{
	struct traffic *t;

	list_for_each (t, &objects, link)
		fold_locked(t);
	memcpy(sum, sums[device < DEV_DEVICES ? device : 0], sizeof(sums[0]));
}

void traffic_begin(struct traffic *t)
{
	lock_get(&traffic_lock);
	list_add_tail(&objects, &t->link);
	lock_put(&traffic_lock);
}

void traffic_end(struct traffic *t)
{
	lock_get(&traffic_lock);
	fold_locked(t);
	list_del(&t->link);
	lock_put(&traffic_lock);
}

void traffic_sum(unsigned device, uint64_t sum[TRAFFIC_KINDS])
{
	lock_get(&traffic_lock);
	sum_locked(device, sum);
	lock_put(&traffic_lock);
}

bool traffic_try_sum(unsigned device, uint64_t sum[TRAFFIC_KINDS])
{
	if (!lock_try(&traffic_lock))
		return false;
	sum_locked(device, sum);
	lock_put(&traffic_lock);
	return true;
}

void traffic_on_next(void (*cb)(void))
{
	atomic_store(&next_cb, cb);
	atomic_store(&traffic_awaited_, cb != NULL);
}

void traffic_tell(void)
{
	void (*cb)(void) = atomic_load(&next_cb);

	if (atomic_exchange(&traffic_awaited_, false) && cb)
		cb();
}
