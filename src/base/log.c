/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/log.h"

#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

void log_write(enum log_level level, const char *fmt, ...)
{
	char line[1024];
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
	if (sys_write(log_fd, line, (size_t)n) < 0)
		n = 0; /* it cannot be reported anywhere */
	errno = err;
}
