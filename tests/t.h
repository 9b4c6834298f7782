/* SPDX-License-Identifier: BSD-2-Clause */
/* Test programs that speak TAP. Two ways to write one, which may be mixed:
 *
 *	static void refuses_null(void)		// a case: many checks, one result
 *	{
 *		REQUIRE(fd >= 0);		// failing ends the case
 *		CHECK(call(NULL) == -1);	// failing is noted, the case goes on
 *		CHECK_ERRNO(call(NULL), EINVAL);	// returns -1 with this errno
 *		CHECK_EQ(got, 5);		// prints both numbers
 *		SKIP_IF(!have_ipv6(), "no IPv6 here");
 *	}
 *
 *	int main(int argc, char **argv)
 *	{
 *		t_init(argc, argv);		// "PROGRAM part-of-a-name" runs some cases
 *		T_RUN(refuses_null);
 *		ok(1 + 1 == 2, "sum of %d and %d", 1, 1);	// a one-line case
 *		return t_done();		// prints the plan
 *	}
 *
 * skip_all("why") ends the program as skipped: exit status 77 and TAP's empty
 * plan. A program that runs longer than T_TIMEOUT seconds (environment, default
 * 120; scaled by T_SCALE) is ended by SIGALRM and names the case it was in. Cases that
 * cannot run where the program runs (an emulator) are named in T_SKIP, a line
 * "name: reason" each.
 * CHECK and ok may be used from threads; REQUIRE and SKIP_IF return from the
 * function they stand in. A forked child must leave with _exit(). */
#ifndef ANYRDMA_TESTS_T_H
#define ANYRDMA_TESTS_T_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define T_UNUSED __attribute__((unused))
#define T_FMT(a, b) __attribute__((unused, format(printf, a, b)))

static struct {
	pthread_mutex_t lock;	/* guards all below and the order of lines */
	int count, failed;	/* results printed so far */
	int bad;		/* failed checks of the running case */
	char skip[200];		/* reason, when the running case is skipped */
	char name[200];		/* the running case */
	const char *only;
} t_ T_UNUSED = { .lock = PTHREAD_MUTEX_INITIALIZER };

static T_UNUSED void t_alarm(int sig)
{
	static const char msg[] = "\nBail out! timeout in: ";

	(void)sig;
	if (write(1, msg, sizeof(msg) - 1) < 0 ||
	    write(1, t_.name, strlen(t_.name)) < 0 || write(1, "\n", 1) < 0)
		_exit(99);
	/* A core or a sanitizer's stack shows where it hangs. */
	abort();
}

/* Seconds or a count times T_SCALE (set by slow builds: sanitizers, valgrind). */
static T_UNUSED unsigned t_scaled(unsigned n)
{
	const char *s = getenv("T_SCALE");

	return s && atoi(s) > 0 ? n * (unsigned)atoi(s) : n;
}

/* How often: `few` times, or `many` in a long run (T_LONG is set: make test-long). */
static T_UNUSED unsigned t_rounds(unsigned few, unsigned many)
{
	return getenv("T_LONG") ? many : few;
}

static T_UNUSED void t_init(int argc, char **argv)
{
	const char *s = getenv("T_TIMEOUT");

	setvbuf(stdout, NULL, _IOLBF, 0);
	t_.only = argc > 1 ? argv[1] : NULL;
	signal(SIGALRM, t_alarm);
	alarm(t_scaled(s && atoi(s) > 0 ? (unsigned)atoi(s) : 120));
}

static T_FMT(1, 2) void diag(const char *fmt, ...)
{
	char text[1000];
	va_list ap;
	char *line, *rest = text;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	while ((line = strsep(&rest, "\n")))
		printf("# %s\n", line);
}

static T_UNUSED bool t_result(bool good, const char *name, const char *why)
{
	pthread_mutex_lock(&t_.lock);
	t_.count++;
	t_.failed += !good;
	printf("%sok %d - %s%s%s\n", good ? "" : "not ", t_.count, name,
	       why ? " # SKIP " : "", why ? why : "");
	fflush(stdout);
	pthread_mutex_unlock(&t_.lock);
	return good;
}

/* One case in one line. Evaluates to the condition. */
#define ok(cond, ...) t_ok(!!(cond), #cond, __FILE__, __LINE__, __VA_ARGS__)

static T_FMT(5, 6) bool t_ok(bool good, const char *expr, const char *file,
			     int line, const char *fmt, ...)
{
	int err = errno;
	char name[200];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(name, sizeof(name), fmt, ap);
	va_end(ap);
	if (!good)
		diag("%s:%d: %s (errno %d: %s)", file, line, expr, err,
		     strerror(err));
	errno = err;
	return t_result(good, name, NULL);
}

/* One skipped case. */
static T_FMT(2, 3) void skip(const char *name, const char *fmt, ...)
{
	char why[200];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	t_result(true, name, why);
}

static T_FMT(1, 2) __attribute__((noreturn)) void skip_all(const char *fmt, ...)
{
	va_list ap;

	printf("1..0 # SKIP ");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout);
	_exit(77);
}

static T_UNUSED bool t_check(bool good, const char *expr, const char *file,
			     int line)
{
	int err = errno;

	if (!good) {
		pthread_mutex_lock(&t_.lock);
		t_.bad++;
		diag("%s:%d: %s (errno %d: %s)", file, line, expr, err,
		     strerror(err));
		pthread_mutex_unlock(&t_.lock);
		errno = err;
	}
	return good;
}

static T_UNUSED bool t_check_eq(long long a, long long b, const char *expr,
				const char *file, int line)
{
	char text[300];

	if (a == b)
		return true;
	snprintf(text, sizeof(text), "%s: %lld (%#llx) against %lld (%#llx)", expr,
		 a, (unsigned long long)a, b, (unsigned long long)b);
	return t_check(false, text, file, line);
}

#define CHECK(cond) t_check(!!(cond), #cond, __FILE__, __LINE__)
#define CHECK_EQ(a, b) \
	t_check_eq((long long)(a), (long long)(b), #a " == " #b, __FILE__, __LINE__)
#define CHECK_STR(a, b) \
	t_check(strcmp((a), (b)) == 0, #a " equals " #b, __FILE__, __LINE__)
/* expr returns -1 and sets this errno. */
#define CHECK_ERRNO(expr, err) \
	(errno = 0, t_check_eq((expr), -1, #expr " == -1", __FILE__, __LINE__) && \
	 t_check_eq(errno, (err), "errno of " #expr " == " #err, __FILE__, __LINE__))
/* expr returns NULL and sets this errno. */
#define CHECK_NULL(expr, err) \
	(errno = 0, t_check((expr) == NULL, #expr " == NULL", __FILE__, __LINE__) && \
	 t_check_eq(errno, (err), "errno of " #expr " == " #err, __FILE__, __LINE__))
#define REQUIRE(cond) do { if (!CHECK(cond)) return; } while (0)
#define REQUIRE_EQ(a, b) do { if (!CHECK_EQ(a, b)) return; } while (0)
#define SKIP_IF(cond, ...) \
	do { \
		if (cond) { \
			snprintf(t_.skip, sizeof(t_.skip), __VA_ARGS__); \
			return; \
		} \
	} while (0)

#define T_RUN(fn) t_run(fn, #fn)

/* Why this case is not to be run: T_SKIP has a line "name: reason" for it. */
static T_UNUSED const char *t_excuse(const char *name)
{
	const char *line = getenv("T_SKIP");
	size_t n = strlen(name);

	for (; line; line = (line = strchr(line, '\n')) ? line + 1 : NULL)
		if (!strncmp(line, name, n) && !strncmp(line + n, ": ", 2))
			return line + n + 2;
	return NULL;
}

static T_UNUSED void t_run(void (*fn)(void), const char *name)
{
	const char *why = t_excuse(name);

	if (t_.only && !strstr(name, t_.only))
		return;
	if (why) {
		skip(name, "%.*s", (int)strcspn(why, "\n"), why);
		return;
	}
	snprintf(t_.name, sizeof(t_.name), "%s", name);
	t_.skip[0] = 0;
	t_.bad = 0;
	fn();
	t_result(t_.bad == 0, name, t_.bad == 0 && t_.skip[0] ? t_.skip : NULL);
}

static T_UNUSED int t_done(void)
{
	alarm(0);
	printf("1..%d\n", t_.count);
	fflush(stdout);
	return t_.failed ? 1 : 0;
}

static T_UNUSED uint64_t t_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* The end of the last page that n bytes need. */
static inline off_t t_page_up(off_t n)
{
	const off_t page = sysconf(_SC_PAGESIZE);

	return (n + page - 1) / page * page;
}

/* Waits for a condition, at most ms milliseconds (scaled); evaluates to it. */
#define T_WAIT(cond, ms) \
	({ \
		uint64_t t_end_ = t_now_ms() + t_scaled(ms); \
		bool t_met_; \
		while (!(t_met_ = !!(cond)) && t_now_ms() < t_end_) \
			nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL); \
		t_met_; \
	})

#endif
