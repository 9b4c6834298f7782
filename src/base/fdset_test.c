/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/fdset.h"
#include "tests/t.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

static void moves_up(void)
{
	int low, fd;
	struct rlimit rl;

	fdset_raise_limit();
	getrlimit(RLIMIT_NOFILE, &rl);
	CHECK_EQ(rl.rlim_cur, rl.rlim_max);
	SKIP_IF(rl.rlim_max <= 1025, "hard limit of %d descriptors", (int)rl.rlim_max);
	low = open("/dev/null", O_RDONLY);
	REQUIRE(low >= 0 && low < 1024);
	fd = fdset_take(low);
	CHECK(fd >= 1024);
	CHECK(is_open(fd) && !is_open(low));
	CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
	fdset_close(fd);
	CHECK(!is_open(fd));
	CHECK_EQ(fdset_take(-1), -1);
	fdset_close(-1);
}

static void keeps_low_when_full(void)
{
	struct rlimit rl, small;
	int low, fd;

	fdset_raise_limit();
	getrlimit(RLIMIT_NOFILE, &rl);
	small = rl;
	small.rlim_cur = 1024;
	REQUIRE(setrlimit(RLIMIT_NOFILE, &small) == 0);
	low = open("/dev/null", O_RDONLY);
	fd = fdset_take(low);
	CHECK_EQ(fd, low);
	CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
	fdset_close(fd);
	CHECK(!is_open(fd));
	setrlimit(RLIMIT_NOFILE, &rl);
}

/* The child closes what was taken and not closed, and nothing else. */
static void child_closes(void)
{
	int fd[200], mine = open("/dev/null", O_RDONLY), high, status;
	struct rlimit rl;
	pid_t pid;

	getrlimit(RLIMIT_NOFILE, &rl);
	SKIP_IF(rl.rlim_max < 1400, "hard limit of %d descriptors", (int)rl.rlim_max);
	high = fcntl(mine, F_DUPFD, 1100);
	for (int i = 0; i < 200; i++)
		fd[i] = fdset_take(open("/dev/null", O_RDONLY));
	for (int i = 0; i < 200; i += 2)
		fdset_close(fd[i]);
	/* The application's, under a number that was ours. */
	CHECK_EQ(dup2(mine, fd[0]), fd[0]);
	pid = fork();
	if (!pid) {
		bool good = true;

		fdset_child();
		for (int i = 1; i < 200; i += 2)
			good = good && !is_open(fd[i]);
		_exit(good && is_open(mine) && is_open(high) && is_open(fd[0]) ?
		      0 : 1);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	for (int i = 1; i < 200; i += 2) {
		CHECK(is_open(fd[i]));
		fdset_close(fd[i]);
	}
	close(fd[0]);
	close(high);
	close(mine);
}

#define THREADS 4
#define ROUNDS 5000

static void *churn(void *arg)
{
	(void)arg;
	for (int i = 0; i < ROUNDS; i++) {
		int fd = fdset_take(open("/dev/null", O_RDONLY));

		if (!CHECK(fd >= 0))
			break;
		fdset_close(fd);
	}
	return NULL;
}

static void threads(void)
{
	pthread_t th[THREADS];
	int first;

	for (int i = 0; i < THREADS; i++)
		pthread_create(&th[i], NULL, churn, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_join(th[i], NULL);
	/* Nothing leaked: the first high number is free again. */
	first = fdset_take(open("/dev/null", O_RDONLY));
	CHECK(first <= 1024);
	fdset_close(first);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(moves_up);
	T_RUN(keeps_low_when_full);
	T_RUN(child_closes);
	T_RUN(threads);
	return t_done();
}
