/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/log.h"

#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

int log_level_ = -1;

static const char *const level_name[] = {
	[LOG_ERROR] = "error",
	[LOG_WARN] = "warn",
	[LOG_INFO] = "info",
	[LOG_DEBUG] = "debug",
};

static pthread_once_t log_once = PTHREAD_ONCE_INIT;
static int log_fd = STDERR_FILENO;

static int level_parse(const char *s, size_t len)
{
	for (int i = LOG_ERROR; i <= LOG_DEBUG; i++)
		if (strlen(level_name[i]) == len && !strncmp(s, level_name[i], len))
			return i;
	return -1;
}

/* The descriptor has a high number, as low ones are the application's. It survives fork,
 * so that refused calls of a child are logged, too. */
static int file_open(const char *path)
{
	int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
	int high;

	if (fd < 0)
		return -errno;
	high = fcntl(fd, F_DUPFD_CLOEXEC, 1024);
	if (high < 0)
		return fd;
	close(fd);
	return high;
}

static void log_setup(void)
{
	const char *env = secure_getenv("ANYRDMA_LOG");
	const char *file = env ? strchr(env, ':') : NULL;
	int level = LOG_ERROR, fd = 0;
	bool bad = false;

	if (env && *env) {
		level = level_parse(env, file ? (size_t)(file - env) : strlen(env));
		bad = level < 0;
		if (bad)
			level = LOG_ERROR;
		if (file && file[1]) {
			fd = file_open(file + 1);
			if (fd >= 0)
				log_fd = fd;
		}
	}
	__atomic_store_n(&log_level_, level, __ATOMIC_RELEASE);
	if (bad)
		log_write(LOG_ERROR, "ANYRDMA_LOG=%s: not one of error, warn, info, "
			  "debug; using error", env);
	if (fd < 0)
		log_write(LOG_ERROR, "ANYRDMA_LOG: cannot open %s: %s; using stderr",
			  file + 1, strerror(-fd));
}

bool log_wanted_init(enum log_level level)
{
	int err = errno;

	pthread_once(&log_once, log_setup);
	errno = err;
	return (int)level <= __atomic_load_n(&log_level_, __ATOMIC_RELAXED);
}

/* ---- writing without blocking ----
 *
 * Lines are written with locks held, and in the loop thread: a reader that does not read
 * must not stop the device. The descriptor may be the application's stderr, whose flags
 * are not ours to change. So a pipe or terminal is opened anew for each line, with
 * O_NONBLOCK; keeping it open would keep the pipe from ending when the application closes
 * its end. */

static _Atomic unsigned lines_lost; /* since the last one that was written */

/* Where it cannot be opened: may block if others fill the pipe at the same moment. */
static ssize_t write_if_ready(const char *line, size_t len)
{
	struct pollfd p = { .fd = log_fd, .events = POLLOUT };

	static const struct timespec now = { 0, 0 };

	if (sys_ppoll(&p, 1, &now, NULL) != 1 || !(p.revents & POLLOUT))
		return -1;
	return sys_write(log_fd, line, len);
}

static ssize_t write_reopened(const char *line, size_t len)
{
	char path[32];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", log_fd);
	fd = sys_open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return write_if_ready(line, len);
	n = sys_write(fd, line, len);
	sys_close(fd);
	return n;
}

static bool write_line(const char *line, size_t len)
{
	struct stat st;
	ssize_t n;

	if (fstat(log_fd, &st))
		return true; /* closed: nobody wants to read it */
	if (S_ISSOCK(st.st_mode))
		n = sys_send(log_fd, line, len, MSG_DONTWAIT | MSG_NOSIGNAL);
	else if (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode))
		n = write_reopened(line, len);
	else
		n = sys_write(log_fd, line, len);
	return n >= 0;
}

static bool say_lost(void)
{
	unsigned n = atomic_exchange(&lines_lost, 0);
	char line[128];
	int len;

	if (!n)
		return true;
	len = snprintf(line, sizeof(line),
		       "anyrdma[%d]: warn: %u lines of this log are lost: nobody read them\n",
		       (int)getpid(), n);
	if (write_line(line, (size_t)len))
		return true;
	atomic_fetch_add(&lines_lost, n);
	return false;
}

static void write_or_count(const char *line, size_t len)
{
	if (!say_lost() || !write_line(line, len))
		atomic_fetch_add(&lines_lost, 1);
}

void log_write(enum log_level level, const char *fmt, ...)
{
	char line[512]; /* on the stack of a coroutine that posts */
	int err = errno, n, room;
	va_list ap;

	n = snprintf(line, sizeof(line), "anyrdma[%d]: %s: ", (int)getpid(),
		     level_name[level]);
	room = (int)sizeof(line) - n - 1; /* one byte for the newline */
	errno = err;			  /* for %m */
	va_start(ap, fmt);
	int want = vsnprintf(line + n, (size_t)room, fmt, ap);
	va_end(ap);
	if (want >= room) {
		memcpy(line + sizeof(line) - 6, "...", 3);
		n = (int)sizeof(line) - 3;
	} else {
		n += want > 0 ? want : 0;
	}
	line[n++] = '\n';
	write_or_count(line, (size_t)n);
	errno = err;
}
