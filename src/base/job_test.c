/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/job.h"

#include "tests/t.h"

#include <dirent.h>
#include <stdatomic.h>

/* A job that waits until it may end. */
struct work {
	struct job job;
	atomic_int begun, ran;
	atomic_bool held;
	_Atomic pthread_t by;
};

static void work_run(struct job *j)
{
	struct work *w = container_of(j, struct work, job);

	atomic_store(&w->by, pthread_self());
	atomic_fetch_add(&w->begun, 1);
	while (atomic_load(&w->held))
		nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
	atomic_fetch_add(&w->ran, 1);
}

static void work_init(struct work *w, bool held)
{
	memset(w, 0, sizeof(*w));
	job_init(&w->job, work_run);
	atomic_store(&w->held, held);
}

#define RAN(w, n) CHECK(T_WAIT(atomic_load(&(w)->ran) == (n), 5000))
#define BEGUN(w) CHECK(T_WAIT(atomic_load(&(w)->begun), 5000))
#define BY_ME(w) pthread_equal(atomic_load(&(w)->by), pthread_self())

static void runs_in_another_thread(void)
{
	struct work w;

	work_init(&w, false);
	for (int i = 1; i <= 100; i++) {
		job_post(&w.job, NULL);
		RAN(&w, i);
		CHECK(!BY_ME(&w));
	}
}

/* Jobs that stand hold neither who posts others nor, as long as there are threads, those. */
static void many_stand(void)
{
	struct work w[2 * JOB_THREADS];

	for (int i = 0; i < 2 * JOB_THREADS; i++) {
		work_init(&w[i], true);
		job_post(&w[i].job, NULL);
	}
	for (int i = 0; i < JOB_THREADS; i++)
		BEGUN(&w[i]);
	for (int i = JOB_THREADS; i < 2 * JOB_THREADS; i++)
		CHECK_EQ(atomic_load(&w[i].begun), 0);
	atomic_store(&w[3].held, false); /* its thread takes the next one */
	RAN(&w[3], 1);
	BEGUN(&w[JOB_THREADS]);
	CHECK_EQ(atomic_load(&w[0].ran), 0);
	for (int i = 0; i < 2 * JOB_THREADS; i++)
		atomic_store(&w[i].held, false);
	for (int i = 0; i < 2 * JOB_THREADS; i++)
		RAN(&w[i], 1);
}

static void one_stands(void)
{
	struct work a, b;

	work_init(&a, true);
	work_init(&b, false);
	job_post(&a.job, NULL);
	BEGUN(&a);
	for (int i = 1; i <= 1000; i++) {
		job_post(&b.job, NULL);
		RAN(&b, i);
	}
	CHECK_EQ(atomic_load(&a.ran), 0);
	atomic_store(&a.held, false);
	RAN(&a, 1);
}

/* A poller runs the jobs of its own CQ, when it has let go its locks. */
static void collected(void)
{
	struct work mine[3], others, none;
	int cq, other_cq;

	work_init(&others, false);
	work_init(&none, false);
	CHECK(!job_collected());
	job_collect_begin(&cq);
	for (int i = 0; i < 3; i++) {
		work_init(&mine[i], false);
		job_post(&mine[i].job, &cq);
	}
	job_post(&others.job, &other_cq);
	job_post(&none.job, NULL);
	RAN(&others, 1);
	RAN(&none, 1);
	job_collect_end();
	CHECK(job_collected());
	CHECK(!BY_ME(&others) && !BY_ME(&none));
	for (int i = 0; i < 3; i++)
		CHECK_EQ(atomic_load(&mine[i].begun), 0);
	job_run_collected();
	CHECK(!job_collected());
	for (int i = 0; i < 3; i++)
		CHECK(atomic_load(&mine[i].ran) == 1 && BY_ME(&mine[i]));
	job_post(&mine[0].job, &cq); /* nobody collects any more */
	RAN(&mine[0], 2);
	CHECK(!BY_ME(&mine[0]));
}

struct twice {
	struct job job;
	atomic_int ran;
	_Atomic pthread_t by;
};

static void twice_run(struct job *j)
{
	struct twice *t = container_of(j, struct twice, job);

	atomic_store(&t->by, pthread_self());
	if (atomic_fetch_add(&t->ran, 1) == 0)
		job_post(j, t);
}

/* A poll returns though there is always more to do. */
static void posted_again(void)
{
	struct twice t = { 0 };

	job_init(&t.job, twice_run);
	job_collect_begin(&t);
	job_post(&t.job, &t);
	job_collect_end();
	job_run_collected();
	RAN(&t, 2);
	CHECK(!BY_ME(&t));
}

static atomic_int total;

static void count_run(struct job *j)
{
	(void)j;
	atomic_fetch_add(&total, 1);
}

enum { POSTERS = 4, EACH = 2000 };

static void *post_many(void *arg)
{
	struct job *jobs = arg;

	for (int i = 0; i < EACH; i++) {
		job_init(&jobs[i], count_run);
		job_post(&jobs[i], NULL);
	}
	return NULL;
}

static void many_post(void)
{
	static struct job jobs[POSTERS][EACH];
	pthread_t t[POSTERS];

	for (int i = 0; i < POSTERS; i++)
		REQUIRE(!pthread_create(&t[i], NULL, post_many, jobs[i]));
	for (int i = 0; i < POSTERS; i++)
		CHECK(!pthread_join(t[i], NULL));
	CHECK(T_WAIT(atomic_load(&total) == POSTERS * EACH, 20000));
}

/* Those for jobs; the loop thread stays. A thread that ends while its name is read is not
 * counted. */
static int threads(void)
{
	DIR *tasks = opendir("/proc/self/task");
	const struct dirent *d;
	char path[300], name[32];
	int n = 0;

	while (tasks && (d = readdir(tasks))) {
		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", d->d_name);
		FILE *f = fopen(path, "re");

		if (f && fgets(name, sizeof(name), f) && !strcmp(name, "anyrdma-copy\n"))
			n++;
		if (f)
			fclose(f);
	}
	if (!tasks)
		return -1;
	closedir(tasks);
	return n;
}

/* They are not there for ever; and the next job gets one again. */
static void idle_threads_end(void)
{
	struct work w;

	work_init(&w, true);
	job_post(&w.job, NULL);
	BEGUN(&w);
	CHECK(threads() >= 1);
	atomic_store(&w.held, false);
	CHECK(T_WAIT(threads() == 0, 10000));
	job_post(&w.job, NULL);
	RAN(&w, 2);
	CHECK(!BY_ME(&w));
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(runs_in_another_thread);
	T_RUN(many_stand);
	T_RUN(one_stands);
	T_RUN(collected);
	T_RUN(posted_again);
	T_RUN(many_post);
	T_RUN(idle_threads_end);
	return t_done();
}
