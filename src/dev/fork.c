/* SPDX-License-Identifier: BSD-2-Clause */
/* What a forked child finds of the device.
 *
 * The child has no progress thread, and every lock may be held for ever by a
 * thread that is not there. So nothing is repaired: our descriptors are closed
 * (else a child keeps listeners and connections alive), and there is no table of
 * verbs any more (dev_ops()), so that src/verbs refuses every call. A process that
 * forks before it opens the device is not concerned: the handler is installed by
 * the open. */
#include "base/fdset.h"
#include "base/loop.h"
#include "dev/verbs.h"

static void in_child(void)
{
	atomic_store(&dev_ops_current, NULL);
	loop_child();
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
