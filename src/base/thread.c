/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/thread.h"

#include <pthread.h>
#include <signal.h>

#define STACK_SIZE (1u << 20)

int thread_start(const char *name, void *(*fn)(void *arg), void *arg)
{
	sigset_t all, old;
	pthread_attr_t attr;
	pthread_t thread;
	int err;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK_SIZE);
	/* A fault whose signal is blocked kills the process, in spite of guard.h. */
	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&thread, &attr, fn, arg);
	if (!err)
		pthread_setname_np(thread, name);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return -err;
}
