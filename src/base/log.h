/* SPDX-License-Identifier: BSD-2-Clause */
/* The log. ANYRDMA_LOG=error|warn|info|debug[:FILE]; default: error, stderr.
 * One line a message: "anyrdma[pid]: level: text". A line is written with one
 * write(2), which does not block: lines that a pipe or socket has no room for are lost,
 * and counted in the next one. The function that first knows a cause logs it; callers do not.
 *
 * error: something is wrong that the application did not cause (a bug of ours, or
 *	  the host does not give us what we need).
 * warn:  something will surprise the user, and no errno or event can tell it
 *	  (a destroy that waits for an unacknowledged event, a port held by
 *	  another program).
 * info:  why a call was refused or a completion failed, with the numbers.
 * debug: state changes. */
#ifndef ANYRDMA_BASE_LOG_H
#define ANYRDMA_BASE_LOG_H

#include <stdbool.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

extern int log_level_; /* -1 until the environment was read */

/* Reads the environment once; returns whether this level is wanted. */
bool log_wanted_init(enum log_level level);
void log_write(enum log_level level, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static inline bool log_wanted(enum log_level level)
{
	int have = __atomic_load_n(&log_level_, __ATOMIC_RELAXED);

	return have < 0 ? log_wanted_init(level) : (int)level <= have;
}

#define LOG_(level, ...) \
	do { \
		if (__builtin_expect(log_wanted(level), 0)) \
			log_write(level, __VA_ARGS__); \
	} while (0)

#define log_error(...) LOG_(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) LOG_(LOG_WARN, __VA_ARGS__)
#define log_info(...) LOG_(LOG_INFO, __VA_ARGS__)
#define log_debug(...) LOG_(LOG_DEBUG, __VA_ARGS__)

/* Logs at info why a call is refused and evaluates to -err. */
#define log_refuse(err, ...) (({ log_info(__VA_ARGS__); }), -(err))

#endif
