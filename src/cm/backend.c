/* SPDX-License-Identifier: BSD-2-Clause */
/* Which backend this process has, and what a fork means for its objects. */
#include "cm/backend.h"
#include "base/log.h"
#include "cm/device.h"
#include "cm/user/dev.h"

#include <dlfcn.h>

const struct anyrdma_interface *cm_dev;
int cm_generation;

static struct lock init_lock = LOCK_INIT;
static const struct cm_backend *chosen GUARDED_BY(init_lock);
/* chosen, once its init succeeded: the fast path without the lock. */
static _Atomic(const struct cm_backend *) ready;

static void fork_child(void)
{
	cm_generation++;
	atomic_store(&ready, NULL);
	lock_init(&init_lock);
	cm_device_fork_child();
}

static void watch_fork(void)
{
	pthread_atfork(NULL, NULL, fork_child);
}

/* The libibverbs that this library is linked to is loaded already; only that one
 * counts, hence RTLD_NOLOAD and not a search. */
static int choose(const struct cm_backend **out)
{
	const struct anyrdma_interface *(*get)(void);
	void *lib = dlopen("libibverbs.so.1", RTLD_NOLOAD | RTLD_LAZY);

	get = NULL;
	if (lib)
		*(void **)&get = dlvsym(lib, "anyrdma_interface", "ANYRDMA_1");
	if (!get) {
		log_debug("libibverbs is the distribution's: kernel backend");
		*out = &cm_backend_kernel;
		return 0;
	}
	const struct anyrdma_interface *dev = get();

	if (dev->number != ANYRDMA_INTERFACE || dev->size != sizeof(*dev)) {
		log_error("librdmacm and libibverbs are of different builds: "
			  "interface %u of %u bytes wanted, %u of %u found",
			  ANYRDMA_INTERFACE, (unsigned)sizeof(*dev), dev->number,
			  dev->size);
		return -ENODEV;
	}
	cm_dev = dev;
	*out = &cm_backend_user;
	return 0;
}

const struct cm_backend *cm_backend_get(int *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	const struct cm_backend *be;
	int r = 0;

	be = atomic_load_explicit(&ready, memory_order_acquire);
	if (be)
		return be;
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
