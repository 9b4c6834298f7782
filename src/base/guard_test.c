/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/guard.h"
#include "tests/t.h"

#include <sys/mman.h>
#include <sys/wait.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZER 1
#endif
#endif
#ifndef SANITIZER
#define SANITIZER 0
#endif

static char *page; /* a page of memory, and none behind it */

static void store(void *arg)
{
	*(volatile char *)arg = 1;
}

static void faults_are_caught(void)
{
	char buf[8192];

	SKIP_IF(SANITIZER, "the sanitizer has the signal");
	memset(page, 7, 4096);
	for (int i = 0; i < 1000; i++) {
		CHECK(guard_copy_from(buf, page, 4096));
		CHECK(buf[4095] == 7);
		CHECK(!guard_copy_from(buf, page, 4097));
		CHECK(!guard_copy_from(buf, page + 4096, 1));
		CHECK(guard_call(page, 1, store, page));
		CHECK(!guard_call(page + 4096, 1, store, page + 4096));
	}
	mprotect(page, 4096, PROT_READ);
	CHECK(!guard_call(page, 1, store, page));
	CHECK(guard_copy_from(buf, page, 10));
	mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

/* A file that was cut: SIGBUS. */
static void bus_errors_are_caught(void)
{
	char buf[16];
	FILE *f = tmpfile();
	char *m;

	SKIP_IF(SANITIZER, "the sanitizer has the signal");
	REQUIRE(f && !ftruncate(fileno(f), 4096));
	m = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fileno(f), 0);
	REQUIRE(m != MAP_FAILED);
	CHECK(guard_copy_from(buf, m, 16));
	CHECK_EQ(ftruncate(fileno(f), 0), 0);
	CHECK(!guard_copy_from(buf, m, 16));
	munmap(m, 4096);
	fclose(f);
}

static void *in_thread(void *arg)
{
	char buf[64];

	for (int i = 0; i < 2000; i++)
		CHECK(guard_copy_from(buf, arg, 64) == (arg == page));
	return NULL;
}

static void threads_have_their_own(void)
{
	pthread_t t[4];

	SKIP_IF(SANITIZER, "the sanitizer has the signal");
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, in_thread, i % 2 ? page : page + 4096);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
}

/* ---- everybody else's faults --------------------------------------------------- */

static void stray(void *arg)
{
	(void)arg;
	*(volatile char *)(page + 4096) = 1;
}

static void seen(int sig)
{
	_exit(sig == SIGSEGV ? 42 : 43);
}

/* Status of a child that does what is numbered. */
static int child(int what)
{
	int status = 0;
	pid_t pid = fork();

	if (pid) {
		waitpid(pid, &status, 0);
		return status;
	}
	alarm(10);
	switch (what) {
	case 0: /* outside of any guard */
		stray(NULL);
		break;
	case 1: /* inside, but elsewhere */
		guard_call(page, 4096, stray, NULL);
		break;
	case 2: /* sent by somebody */
		raise(SIGSEGV);
		break;
	case 3: /* a handler that came later */
		signal(SIGSEGV, seen);
		guard_call(page + 4096, 1, store, page + 4096);
		break;
	case 4: /* the guard was over */
		guard_call(page, 1, store, page);
		stray(NULL);
		break;
	default:
		break;
	}
	_exit(0);
}

static void others_are_left_alone(void)
{
	int status;

	SKIP_IF(SANITIZER, "the sanitizer has the signal");
	for (int what = 0; what < 5; what++) {
		status = child(what);
		if (what == 3)
			CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
		else
			CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	}
	CHECK_EQ(child(5), 0);
}

/* Whoever has a handler before us keeps it. */
static void handlers_stay(void)
{
	struct sigaction sa;
	int status = 0;
	pid_t pid = fork();

	if (!pid) {
		signal(SIGSEGV, seen);
		guard_install();
		sigaction(SIGSEGV, NULL, &sa);
		_exit(sa.sa_handler == seen ? 0 : 1);
	}
	waitpid(pid, &status, 0);
	CHECK_EQ(status, 0);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return 1;
	mprotect(page + 4096, 4096, PROT_NONE);
	T_RUN(handlers_stay);
	guard_install();
	T_RUN(faults_are_caught);
	T_RUN(bus_errors_are_caught);
	T_RUN(threads_have_their_own);
	T_RUN(others_are_left_alone);
	return t_done();
}
