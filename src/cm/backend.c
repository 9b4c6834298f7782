/* SPDX-License-Identifier: BSD-2-Clause */
/* Which backend this process has. A forked child begins anew (base/state.h): what it has
 * from its parent can be freed only, and it makes its own. */
#include "cm/backend.h"
#include "cm/device.h"

static struct lock init_lock PROCESS_STATE = LOCK_INIT;
/* The same in a forked child, which has the libraries of its parent. */
static const struct cm_backend *chosen GUARDED_BY(init_lock);
/* chosen, once its init succeeded: the fast path without the lock. */
static _Atomic(const struct cm_backend *) ready PROCESS_STATE;

static atomic_bool failed PROCESS_STATE;
static _Atomic uint32_t failed_generation;
/* One at a time renews the state. */
static struct lock renewing = LOCK_INIT; /* not state */

static void in_child(void)
{
	lock_init(&renewing);
	state_renew();
}

static void watch_fork(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

void cm_backend_failed(void)
{
	atomic_store(&failed_generation, state_generation());
	atomic_store(&failed, true);
	state_end();
}

bool cm_backend_has_failed(uint32_t generation)
{
	return generation == atomic_load(&failed_generation);
}

/* The backend that is ready and has not failed, or NULL. */
static const struct cm_backend *still_ready(int *err)
{
	const struct cm_backend *be = atomic_load_explicit(&ready, memory_order_acquire);
	int r;

	if (!be || !be->renew)
		return be;
	r = be->renew();
	if (!r && !atomic_load(&failed))
		return be;
	*err = r;
	lock_get(&renewing);
	if (!r && atomic_load(&failed))
		state_renew();
	lock_put(&renewing);
	return NULL;
}

static int choose(const struct cm_backend **out)
{
	const struct cm_backend *const *be;
	int r = 0;

	for (be = cm_backends; *be; be++) {
		r = (*be)->probe();
		if (r)
			break;
	}
	if (r > 0)
		*out = *be;
	return r > 0 ? 0 : r < 0 ? r : -ENODEV;
}

const struct cm_backend *cm_backend_get(int *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	const struct cm_backend *be;
	int r = 0;

	be = still_ready(&r);
	if (be)
		return be;
	if (r) {
		*err = r;
		return NULL;
	}
	pthread_once(&once, watch_fork);

	lock_get(&init_lock);
	if (!chosen)
		r = choose(&chosen);
	if (!r)
		r = chosen->init();
	if (!r)
		r = cm_device_sync();
	if (!r) {
		be = chosen;
		atomic_store_explicit(&ready, be, memory_order_release);
	}
	lock_put(&init_lock);
	if (r)
		*err = r;
	return be;
}

void cm_backend_use(const struct cm_backend *be)
{
	lock_get(&init_lock);
	chosen = be;
	atomic_store(&ready, NULL);
	lock_put(&init_lock);
}
