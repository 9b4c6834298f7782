/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/cancel.h"

#include <pthread.h>

static _Thread_local struct {
	int depth;  /* of NO_CANCEL */
	int before; /* the state that the outermost one has found */
} here;

int cancel_begin_(void)
{
	if (!here.depth++)
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &here.before);
	return 0;
}

void cancel_end_(const int *unused)
{
	(void)unused;
	if (!--here.depth)
		pthread_setcancelstate(here.before, NULL);
}

void cancel_wait_begin(void)
{
	if (here.depth == 1)
		pthread_setcancelstate(here.before, NULL);
}

void cancel_wait_end(void)
{
	if (here.depth == 1)
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
}
