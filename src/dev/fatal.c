/* SPDX-License-Identifier: BSD-2-Clause */
/* A device whose loop has lost its descriptors (loop_on_lost()). Contexts get
 * IBV_EVENT_DEVICE_FATAL, all objects become old, and the next to open the device begins a
 * generation, as a forked child does. */
#include "base/fdset.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/state.h"
#include "base/sys.h"
#include "dev/verbs.h"

#include <errno.h>

/* Threads that were in a call when the device failed have left it by then: posting and
 * polling do not say that they are there, and do not block. */
#define GRACE (100 * MSEC)
#define PATIENCE (2 * SEC)

enum { MAX_WATCHERS = 2 };

static struct {
	struct lock lock; /* leaf */
	struct cond cond;
	bool over GUARDED_BY(lock); /* fatal_run() has ended */
	uint64_t since;
	void (*watchers[MAX_WATCHERS])(void) GUARDED_BY(lock);
} fatal PROCESS_STATE = { .lock = LOCK_INIT };

/* One at a time begins a generation. Not part of what it renews; free in a forked child,
 * see fatal_child(). */
static struct lock renewing = LOCK_INIT; /* not state */

static void ctx_fail(struct dev_ctx *ctx, int unused)
{
	(void)unused;
	async_fatal(ctx);
	atomic_store(&ctx->failed, true);
}

static void fatal_run(void)
{
	void (*call[MAX_WATCHERS])(void);

	device_each_ctx(-1, ctx_fail, 0);
	lock_get(&fatal.lock);
	for (int i = 0; i < MAX_WATCHERS; i++)
		call[i] = fatal.watchers[i];
	lock_put(&fatal.lock);
	for (int i = 0; i < MAX_WATCHERS; i++)
		if (call[i])
			call[i]();
	state_end();
	lock_get(&fatal.lock);
	fatal.over = true;
	fatal.since = loop_now();
	cond_broadcast(&fatal.cond);
	lock_put(&fatal.lock);
}

void fatal_init(void)
{
	loop_on_lost(fatal_run);
}

void fatal_child(void)
{
	lock_init(&renewing);
}

void fatal_watch(void (*cb)(void))
{
	int i;

	lock_get(&fatal.lock);
	for (i = 0; i < MAX_WATCHERS && fatal.watchers[i] && fatal.watchers[i] != cb; i++)
		;
	if (i < MAX_WATCHERS)
		fatal.watchers[i] = cb;
	lock_put(&fatal.lock);
}

static bool wait_until_over(uint64_t until)
{
	struct timespec ts = { (time_t)(until / SEC), (long)(until % SEC) };
	bool over;

	lock_get(&fatal.lock);
	while (!fatal.over && !lock_timedwait(&fatal.lock, &fatal.cond, &ts))
		;
	over = fatal.over;
	lock_put(&fatal.lock);
	return over;
}

static int renew(void)
{
	uint64_t until = loop_now() + PATIENCE;
	bool all, idle = false, over = wait_until_over(until);

	while (over && (!(idle = loop_lost(&all)) || loop_now() < fatal.since + GRACE)) {
		if (loop_now() > until)
			break;
		sys_nanosleep(&(struct timespec){ .tv_nsec = MSEC }, NULL);
	}
	if (!over || !idle)
		return log_refuse(ENODEV, "the device has failed and cannot end: a thread is "
				  "in a call");
	if (all)
		fdset_forget_all();
	else
		fdset_child();
	state_renew();
	log_info("the device begins anew");
	return 0;
}

int fatal_renew(void)
{
	int ret = 0;

	lock_get(&renewing);
	if (!loop_check())
		ret = renew();
	lock_put(&renewing);
	return ret;
}
