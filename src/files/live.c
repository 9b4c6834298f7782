/* SPDX-License-Identifier: BSD-2-Clause */
/* A process that has the device open keeps the files that `anyrdma run` has made true: port
 * and GIDs when the host's addresses change, counters while something moves. It finds them
 * by their place, and only if they are of its device and settings. What fails here
 * fails silently but for the log: the files are for others. */
#include "base/fdset.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/state.h"
#include "dev/gid.h"
#include "dev/verbs.h"
#include "files/count.h"
#include "files/slots.h"
#include "files/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum { COUNT_MS = 100, LEAVE_MS = 50 };

static void fire(struct loop_timer *t);

static struct {
	struct lock lock; /* guards all but the timer */
	bool begun;
	int root; /* of the tree; -1: there is none */
	int use;  /* has a shared lock: the tree is not removed */
	bool stale; /* port and GIDs are to be written */
	struct files_counted counted;
	struct loop_timer timer;
} live PROCESS_STATE = { .lock = LOCK_INIT, .root = -1, .use = -1, .timer.fire = fire };

static void soon(void)
{
	loop_timer_set(&live.timer, loop_now() + COUNT_MS * MSEC);
}

/* The lock of the tree, which a stopped process may hold: nobody waits for it. */
static int lock_tree(void)
{
	int fd = openat(live.root, FILES_STATE "/lock", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB)) {
		close(fd);
		return -1;
	}
	return fd;
}

static void update_locked(void)
{
	unsigned n;
	struct files_device *d = files_model_read(&n);
	int ret = d ? files_tree_update(live.root, d, n) : -ENOMEM;

	lock_assert_held(&live.lock);
	if (ret)
		log_info("the files of the device cannot be written: %s", strerror(-ret));
	live.stale = false;
	free(d);
}

/* True if something was new. */
static bool count_locked(bool leaving)
{
	bool any = false;

	lock_assert_held(&live.lock);
	for (unsigned i = 0; i < device_count(); i++) {
		int port = files_tree_port(live.root, device_get(i)->name);

		if (port < 0)
			continue;
		any |= files_count_add(&live.counted, i, port, leaving);
		close(port);
	}
	return any;
}

/* What is due. False: the tree is locked, or something moves: again, soon. */
static bool work_locked(void)
{
	int fd = lock_tree();
	bool any;

	if (fd < 0)
		return false;
	if (live.stale)
		update_locked();
	any = count_locked(false);
	close(fd);
	return !any;
}

static void fire(struct loop_timer *t)
{
	bool quiet;

	(void)t;
	lock_get(&live.lock);
	quiet = work_locked();
	if (quiet) {
		traffic_on_next(soon);
		/* Counted between the two. */
		quiet = !files_count_news(&live.counted, device_count());
	}
	lock_put(&live.lock);
	if (!quiet)
		soon();
}

static void changed(void)
{
	bool again;

	lock_get(&live.lock);
	live.stale = true;
	again = !work_locked();
	lock_put(&live.lock);
	if (again)
		soon();
}

static bool find_locked(void)
{
	char stamp[512];

	lock_assert_held(&live.lock);
	files_model_stamp(files_model_uverbs(0), stamp, sizeof(stamp));
	live.root = fdset_take(files_tree_open(stamp));
	if (live.root < 0)
		return false;
	live.use = fdset_take(
		openat(live.root, FILES_STATE "/use", O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
	if (live.use >= 0)
		flock(live.use, LOCK_SH | LOCK_NB);
	return true;
}

/* See dev/gid.h, whose lock is held. */
unsigned gid_given_before(unsigned device, struct gid_slot *given)
{
	char stamp[512];
	unsigned n = 0;
	int root;

	files_model_stamp(files_model_uverbs(0), stamp, sizeof(stamp));
	root = files_tree_open(stamp);
	if (root >= 0) {
		n = files_slots_read(root, device, given);
		close(root);
	}
	return n;
}

/* See dev/verbs.h. */
void device_opened(void)
{
	bool first;

	lock_get(&live.lock);
	first = !live.begun && find_locked();
	live.begun = true;
	lock_put(&live.lock);
	if (!first)
		return;
	traffic_on_next(soon);
	gid_watch(changed);
	changed();
}

/* Two that end at once meet at the tree's lock, which is held for a moment. */
static int lock_tree_at_exit(void)
{
	const struct timespec ms = { .tv_nsec = 1000000 };
	int fd = lock_tree();

	for (int i = 0; fd < 0 && i < LEAVE_MS; i++) {
		nanosleep(&ms, NULL);
		fd = lock_tree();
	}
	return fd;
}

/* What was counted since the timer fired last. exit() may have been called anywhere: no lock
 * of this process is waited for, and the tree's not for long. */
static void __attribute__((destructor)) leave(void)
{
	int fd;

	if (!live.begun || live.root < 0 || !lock_try(&live.lock))
		return;
	fd = lock_tree_at_exit();
	if (fd >= 0) {
		count_locked(true);
		close(fd);
	}
	lock_put(&live.lock);
}
