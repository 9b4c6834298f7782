/* SPDX-License-Identifier: BSD-2-Clause */
/* The device in a forked child.
 *
 * The child has no loop thread, and any lock may be held for ever, by a thread that the
 * child does not have. So nothing is repaired: our descriptors are closed (else the child
 * keeps listeners and connections open), and the table of verbs is removed (dev_ops()),
 * so that src/verbs refuses every call. This is not done in a process that forks before
 * it opens the device: opening it installs the handler. */
#include "base/fdset.h"
#include "base/job.h"
#include "base/loop.h"
#include "dev/verbs.h"

static void in_child(void)
{
	atomic_store(&dev_ops_current, NULL);
	loop_child();
	job_child();
	fdset_child();
}

static void install(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

bool fork_dead(void)
{
	return !dev_ops();
}

void fork_watch(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, install);
}
