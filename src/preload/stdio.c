/* SPDX-License-Identifier: BSD-2-Clause */
/* Where the C library reads and writes a descriptor itself, past us: such connections stay
 * on TCP. */
#include "preload/conn.h"
#include "preload/edge.h"
#include "preload/move.h"
#include "preload/real.h"

#include <aio.h>
#include <stdarg.h>
#include <stdlib.h>

static void pin(int fd)
{
	struct conn *c;

	real_need();
	c = conn_get(fd);
	if (!c)
		return;
	move_pin(c);
	conn_put(c);
}

EXPORT FILE *fdopen(int fd, const char *mode)
{
	pin(fd);
	return real.fdopen(fd, mode);
}

static int print(int fd, const char *fmt, va_list ap)
{
	char *text;
	int len = vasprintf(&text, fmt, ap), done = 0;
	ssize_t n;

	if (len < 0)
		return -1;
	while (done < len) {
		n = write(fd, text + done, (size_t)(len - done));
		if (n < 0)
			break;
		done += (int)n;
	}
	free(text);
	return done < len ? -1 : len;
}

int __dprintf_chk(int fd, int flag, const char *fmt, ...);
int __vdprintf_chk(int fd, int flag, const char *fmt, va_list ap);

EXPORT int vdprintf(int fd, const char *fmt, va_list ap)
{
	return print(fd, fmt, ap);
}

EXPORT int __vdprintf_chk(int fd, int flag, const char *fmt, va_list ap)
{
	(void)flag;
	return print(fd, fmt, ap);
}

EXPORT int dprintf(int fd, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = print(fd, fmt, ap);
	va_end(ap);
	return n;
}

EXPORT int __dprintf_chk(int fd, int flag, const char *fmt, ...)
{
	va_list ap;
	int n;

	(void)flag;
	va_start(ap, fmt);
	n = print(fd, fmt, ap);
	va_end(ap);
	return n;
}
