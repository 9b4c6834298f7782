/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads of our own: detached, with a small stack, and with all signals blocked but
 * SIGSEGV and SIGBUS, so that the application's handlers do not run in them. */
#ifndef ANYRDMA_BASE_THREAD_H
#define ANYRDMA_BASE_THREAD_H

/* Runs fn(arg) in a new thread of this name (at most 15 characters). 0 or -errno. */
int thread_start(const char *name, void *(*fn)(void *arg), void *arg);

#endif
