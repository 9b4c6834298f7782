/* SPDX-License-Identifier: BSD-2-Clause */
/* Jobs: work that may take long, as it copies much data from or to memory of the
 * application. A page of that memory may have to come from a disk, from a FUSE server, or
 * from a thread of the application (userfaultfd). So a job runs without locks, and not in
 * the loop thread: a poller that waits for its result anyway runs it before its poll
 * returns, or a thread that is started for jobs and ends when there are none. Up to
 * JOB_THREADS jobs may run at the same time; the order of jobs is not kept. */
#ifndef ANYRDMA_BASE_JOB_H
#define ANYRDMA_BASE_JOB_H

#include "base/list.h"

#include <stdbool.h>

enum { JOB_THREADS = 8 };

/* An object that embeds it needs a reference count: a posted job holds one reference. */
struct job {
	void (*run)(struct job *j); /* without locks; may post the job again */
	struct list node; /* private to job.c */
};

void job_init(struct job *j, void (*run)(struct job *j));

/* Runs it soon. It must not be posted already. Any lock may be held. `cq` is the CQ
 * whose pollers wait for it anyway, or NULL: who polls another must not wait for it. */
void job_post(struct job *j, const void *cq);

/* Jobs for this CQ that this thread posts between begin and end are run by
 * job_run_collected(), in this thread, once. Not nested. */
void job_collect_begin(const void *cq);
void job_collect_end(void);
extern _Thread_local bool job_any_ __attribute__((tls_model("initial-exec"))); /* job.c's */
static inline bool job_collected(void)
{
	return __builtin_expect(job_any_, 0);
}
/* No lock is held. */
void job_run_collected(void);

#endif
