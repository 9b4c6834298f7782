/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/job.h"

#include "base/lock.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/state.h"
#include "base/thread.h"

#include <errno.h>
#include <string.h>

#define IDLE_SECONDS 1 /* a thread that gets no job for so long ends */

static struct {
	struct lock lock;
	struct cond posted;
	struct list queue; /* struct job, nqueue of them */
	unsigned nqueue;
	unsigned threads, idle; /* idle: of these, those that wait for a job */
} jobs PROCESS_STATE = { .lock = LOCK_INIT, .queue = LIST_INIT(jobs.queue) };

/* A poller's own jobs. */
static _Thread_local struct {
	const void *cq;	  /* NULL: does not collect */
	struct list list; /* valid if job_any_ */
} here __attribute__((tls_model("initial-exec")));
_Thread_local bool job_any_ __attribute__((tls_model("initial-exec")));

void job_init(struct job *j, void (*run)(struct job *j))
{
	j->run = run;
	list_init(&j->node);
}

static bool wait_for_job(void) REQUIRES(jobs.lock)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += IDLE_SECONDS;
	while (list_empty(&jobs.queue))
		if (lock_timedwait(&jobs.lock, &jobs.posted, &until) == -ETIMEDOUT)
			break;
	return !list_empty(&jobs.queue);
}

/* The state may be renewed (base/state.h) while this thread waits or runs a job. Then the
 * counts and the queue are those of other threads. */
static void *job_thread(void *arg)
{
	const uint32_t generation = (uint32_t)(uintptr_t)arg;
	struct job *j;

	lock_get(&jobs.lock);
	while (wait_for_job() && !state_is_old(generation)) {
		j = list_entry(list_pop(&jobs.queue), struct job, node);
		jobs.nqueue--;
		jobs.idle--;
		lock_put(&jobs.lock);
		j->run(j);
		lock_get(&jobs.lock);
		if (!state_is_old(generation))
			jobs.idle++;
	}
	if (!state_is_old(generation)) {
		jobs.idle--;
		jobs.threads--;
	}
	lock_put(&jobs.lock);
	return NULL;
}

/* A job waits for a thread, and there may be one more. */
static bool thread_wanted(void) REQUIRES(jobs.lock)
{
	return jobs.idle < jobs.nqueue && jobs.threads < JOB_THREADS;
}

/* A new thread counts as idle from the beginning. */
static int thread_add(void) REQUIRES(jobs.lock)
{
	int ret = thread_start("anyrdma-copy", job_thread,
			       (void *)(uintptr_t)state_generation());

	if (!ret) {
		jobs.threads++;
		jobs.idle++;
	} else if (!jobs.threads) {
		log_warn("no thread for copies can be started (%s): the loop thread makes "
			 "them, and others wait for it",
			 strerror(-ret));
	}
	return ret;
}

/* Starts threads for what is queued. */
static void start_run(struct loop_work *w)
{
	struct job *j;

	(void)w;
	lock_get(&jobs.lock);
	while (thread_wanted() && !thread_add())
		;
	while (!jobs.threads && !list_empty(&jobs.queue)) {
		j = list_entry(list_pop(&jobs.queue), struct job, node);
		jobs.nqueue--;
		lock_put(&jobs.lock);
		j->run(j);
		lock_get(&jobs.lock);
	}
	lock_put(&jobs.lock);
}

/* By the loop thread: a call that posts may have less stack than starting a thread
 * needs. */
static struct loop_work start PROCESS_STATE = { .run = start_run };

void job_post(struct job *j, const void *cq)
{
	bool wanted;

	if (cq && here.cq == cq) {
		if (!job_any_)
			list_init(&here.list);
		job_any_ = true;
		list_add_tail(&here.list, &j->node);
		return;
	}
	lock_get(&jobs.lock);
	list_add_tail(&jobs.queue, &j->node);
	jobs.nqueue++;
	wanted = thread_wanted();
	lock_put(&jobs.lock);
	cond_broadcast(&jobs.posted);
	if (wanted)
		loop_post(&start);
}

void job_collect_begin(const void *cq)
{
	here.cq = cq;
}

void job_collect_end(void)
{
	here.cq = NULL;
}

void job_run_collected(void)
{
	struct list *n;

	job_any_ = false;
	while ((n = list_pop(&here.list))) {
		struct job *j = list_entry(n, struct job, node);

		j->run(j);
	}
}
