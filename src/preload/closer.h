/* SPDX-License-Identifier: BSD-2-Clause */
/* A thread that closes rsockets: that may take as long as the peer takes. */
#ifndef ANYRDMA_PRELOAD_CLOSER_H
#define ANYRDMA_PRELOAD_CLOSER_H

struct rail;

/* Nobody holds it any more. */
void closer_take(struct rail *r);

/* Until all have been closed, so many milliseconds at most. */
void closer_wait(int ms);

void closer_child(void);

#endif
