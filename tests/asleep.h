/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether threads sleep, read from /proc. A test that needs another thread or process to
 * be blocked in a call waits until that shows here, not for a time in which it should
 * have got there. */
#ifndef ANYRDMA_TESTS_ASLEEP_H
#define ANYRDMA_TESTS_ASLEEP_H

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

/* How often the thread has gone to sleep, -1 when it does not sleep now, -2 when
 * there is no such thread (any more). */
static inline long asleep_count(pid_t pid, pid_t tid)
{
	char path[64], line[128], state = 0;
	long count = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/status", (int)pid, (int)tid);
	f = fopen(path, "re");
	if (!f)
		return -2;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "State: %c", &state) != 1)
			sscanf(line, "voluntary_ctxt_switches: %ld", &count);
	fclose(f);
	if (!state)
		return -2;
	return state == 'S' || state == 'D' ? count : -1;
}

static inline void asleep_look_again(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

/* The thread sleeps, and not only for a moment (a lock, a page): three looks in a row
 * find it asleep, maybe not in the same sleep, as some calls wait in steps. True as well
 * for a thread that has ended: it will not block any more. */
static inline bool asleep(pid_t pid, pid_t tid)
{
	for (int i = 0; i < 3; i++) {
		long count = asleep_count(pid, tid);

		if (count < 0)
			return count == -2;
		asleep_look_again();
	}
	return true;
}

/* The calling thread's numbers in /proc, which may be mounted for another pid
 * namespace. */
static inline void asleep_me(int *pid, int *tid)
{
	char text[64];
	ssize_t n = readlink("/proc/thread-self", text, sizeof(text) - 1);

	text[n > 0 ? n : 0] = 0;
	if (sscanf(text, "%d/task/%d", pid, tid) == 2)
		return;
	*pid = getpid();
	*tid = gettid();
}

/* How often all threads of this process but the caller have gone to sleep; -1: one
 * runs. */
static inline long asleep_others_count(void)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *e;
	long sum = 0;
	int pid, me;

	asleep_me(&pid, &me);
	while (dir && sum >= 0 && (e = readdir(dir))) {
		pid_t tid = (pid_t)atoi(e->d_name);
		long count = tid && tid != me ? asleep_count(pid, tid) : 0;

		sum = count == -1 ? -1 : sum + (count > 0 ? count : 0);
	}
	if (dir)
		closedir(dir);
	return sum;
}

/* Every other thread of this process sleeps: the progress thread has handled everything
 * that had come. */
static inline bool asleep_others(void)
{
	long sum = asleep_others_count();

	if (sum < 0)
		return false;
	asleep_look_again();
	return asleep_others_count() == sum;
}

#endif
