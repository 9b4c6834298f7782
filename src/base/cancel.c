/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/cancel.h"

_Thread_local struct cancel_state cancel_here_;

void cancel_wait_begin(void)
{
	if (cancel_here_.depth == 1)
		pthread_setcancelstate(cancel_here_.before, NULL);
}

void cancel_wait_end(void)
{
	if (cancel_here_.depth == 1)
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
}
