/* SPDX-License-Identifier: BSD-2-Clause */
/* pthread_cancel() of a thread that is in a call. A thread that ended inside the call
 * would take the locks that it holds with it, and the objects that only it knows. So calls
 * that make, change or end objects are no cancellation points: a function that an
 * application calls begins with NO_CANCEL. Posting and polling make no system call that is
 * one (base/sys.h). Calls that wait for an event can be cancelled while they wait. */
#ifndef ANYRDMA_BASE_CANCEL_H
#define ANYRDMA_BASE_CANCEL_H

#include <pthread.h>

/* To the end of the block that this stands in, as a declaration, the thread cannot be
 * cancelled. May be nested. */
#define NO_CANCEL \
	__attribute__((cleanup(cancel_end_), unused)) int no_cancel_ = cancel_begin_()

extern _Thread_local struct cancel_state {
	int depth;  /* of NO_CANCEL */
	int before; /* the state that the outermost one has found */
} cancel_here_ __attribute__((tls_model("initial-exec"))); /* cancel.c's */

static inline int cancel_begin_(void)
{
	if (!cancel_here_.depth++)
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_here_.before);
	return 0;
}

static inline void cancel_end_(const int *unused)
{
	(void)unused;
	if (!--cancel_here_.depth)
		pthread_setcancelstate(cancel_here_.before, NULL);
}

/* Between these two the thread can be cancelled, if it could be before its one NO_CANCEL.
 * Within two, it cannot: the caller of the inner function has something to lose. Holds no
 * lock; what would be lost has a pthread_cleanup_push(). */
void cancel_wait_begin(void);
void cancel_wait_end(void);

#endif
