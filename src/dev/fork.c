/* SPDX-License-Identifier: BSD-2-Clause */
/* What a forked child finds of the device.
 *
 * The child has no progress thread, and every lock may be held for ever by a
 * thread that is not there. So nothing is repaired: our descriptors are closed
 * (else a child keeps listeners and connections alive), and from then on every
 * call asks fork_dead() before it takes a lock. A process that forks before it
 * opens the device is not concerned: the handler is installed by the open. */
#include "base/fdset.h"
#include "base/loop.h"
#include "dev/verbs.h"

atomic_bool fork_dead_;

static void in_child(void)
{
	atomic_store(&fork_dead_, true);
	loop_child();
	fdset_child();
}

static void install(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

void fork_watch(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, install);
}
