/* SPDX-License-Identifier: BSD-2-Clause */
/* The device in a forked child.
 *
 * The child has no loop thread, and any lock may be held for ever, by a thread that the
 * child does not have. So nothing is repaired: our descriptors are closed (else the child
 * keeps listeners and connections open), and the child begins with the state of a process
 * that has not used the device yet (base/state.h). Objects of the parent are old there:
 * src/verbs refuses calls on them. */
#include "base/fdset.h"
#include "base/loop.h"
#include "base/state.h"
#include "dev/verbs.h"

static void in_child(void)
{
	fdset_child();
	loop_child();
	fatal_child();
	state_renew();
}

static void install(void)
{
	pthread_atfork(NULL, NULL, in_child);
	fatal_init();
}

void fork_watch(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, install);
}
