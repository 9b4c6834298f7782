/* SPDX-License-Identifier: BSD-2-Clause */
/* Which processes have a socket that was open when one of them forked. A socket that another
 * process has, too, stays on TCP. In memory that parent and children share. */
#ifndef ANYRDMA_PRELOAD_SHARE_H
#define ANYRDMA_PRELOAD_SHARE_H

#include <stdbool.h>
#include <sys/types.h>

struct share;

/* Parent, before fork(): both will have it. */
void share_fork(struct share **s);
/* Afterwards: the child's id, or that there is none; either process, or both. */
void share_child_is(struct share *s, pid_t child);
void share_no_child(struct share *s);

/* This process has the socket no more. */
void share_leave(struct share **s);

/* No other process has it, as far as is known. */
bool share_sole(struct share **s);

#endif
