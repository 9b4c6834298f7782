/* SPDX-License-Identifier: BSD-2-Clause */
/* The calls that make, name and end sockets, and those about descriptors. */
#include "preload/conf.h"
#include "preload/conn.h"
#include "preload/edge.h"
#include "preload/ep.h"
#include "preload/move.h"
#include "preload/process.h"
#include "preload/real.h"

#include <linux/close_range.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>

EXPORT int socket(int domain, int type, int protocol)
{
	int fd;

	real_need();
	fd = real.socket(domain, type, protocol);
	if (fd >= 0 && conf_wants(domain, type, protocol) &&
	    !rs_calls(__builtin_return_address(0)))
		file_create(FILE_SOCKET, fd);
	return fd;
}

static bool is_nonblock(int fd)
{
	int flags = real.fcntl(fd, F_GETFL);

	return flags >= 0 && flags & O_NONBLOCK;
}

EXPORT int connect(int fd, const struct sockaddr *addr, socklen_t len)
{
	int n, saved;

	real_need();
	if (file_peek_kind(fd) != FILE_SOCKET || !addr ||
	    (addr->sa_family != AF_INET && addr->sa_family != AF_INET6))
		return real.connect(fd, addr, len);
	n = real.connect(fd, addr, len);
	saved = errno;
	if (n == 0 || saved == EINPROGRESS || saved == EINTR)
		conn_adopt(fd, false, is_nonblock(fd));
	errno = saved;
	return n;
}

static int accepted(int listener, int fd, int flags, const void *caller)
{
	if (fd >= 0 && file_peek_kind(listener) == FILE_SOCKET && !rs_calls(caller))
		conn_adopt(fd, true, flags & SOCK_NONBLOCK);
	return fd;
}

EXPORT int accept(int fd, struct sockaddr *addr, socklen_t *len)
{
	real_need();
	return accepted(fd, real.accept(fd, addr, len), 0, __builtin_return_address(0));
}

EXPORT int accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	real_need();
	return accepted(fd, real.accept4(fd, addr, len, flags), flags,
			__builtin_return_address(0));
}

EXPORT int shutdown(int fd, int how)
{
	struct conn *c;
	int n;

	real_need();
	c = conn_get(fd);
	if (!c)
		return real.shutdown(fd, how);
	n = conn_shutdown(c, fd, how);
	conn_put(c);
	return n;
}

/* ---- descriptors ---- */

/* Takes fd out of the table. */
static void forget(int fd)
{
	bool last = false;
	struct file *f = file_clear(fd, &last);

	if (!f)
		return;
	if (f->kind == FILE_CONN && last)
		conn_close(conn_of(f), fd);
	file_put(f);
}

EXPORT int close(int fd)
{
	real_need();
	if (file_peek_kind(fd) < 0 || process_is_vfork())
		return real.close(fd);
	forget(fd);
	return real.close(fd);
}

static int range_flags(unsigned first, unsigned last, int flags)
{
	if (real.close_range)
		return real.close_range(first, last, flags);
	return (int)syscall(SYS_close_range, first, last, flags);
}

EXPORT int close_range(unsigned first, unsigned last, int flags)
{
	real_need();
	if (!(flags & CLOSE_RANGE_CLOEXEC) && first <= last && !process_is_vfork())
		for (unsigned fd = first; fd <= last && fd < 1u << 20; fd++) {
			/* Whole pages of the table are empty. */
			if (file_peek_kind((int)fd) >= 0)
				forget((int)fd);
		}
	return range_flags(first, last, flags);
}

/* to names what from names. */
static int duplicated(int from, int to)
{
	struct file *f;

	if (to < 0 || process_is_vfork())
		return to;
	f = file_get(from);
	if (f) {
		file_set(to, f);
		file_put(f);
	}
	return to;
}

EXPORT int dup(int fd)
{
	real_need();
	return duplicated(fd, real.dup(fd));
}

/* What the child of vfork() puts elsewhere is for the program that it will be. */
static void pin_for_exec(int fd)
{
	struct conn *c = process_is_vfork() ? conn_get(fd) : NULL;

	if (!c)
		return;
	move_pin(c);
	conn_put(c);
}

EXPORT int dup2(int from, int to)
{
	real_need();
	pin_for_exec(from);
	if (from != to && file_peek_kind(to) >= 0 && real.fcntl(from, F_GETFD) >= 0 &&
	    !process_is_vfork())
		forget(to);
	return from == to ? real.dup2(from, to) : duplicated(from, real.dup2(from, to));
}

EXPORT int dup3(int from, int to, int flags)
{
	real_need();
	pin_for_exec(from);
	if (from != to && file_peek_kind(to) >= 0 && real.fcntl(from, F_GETFD) >= 0 &&
	    !process_is_vfork())
		forget(to);
	return duplicated(from, real.dup3(from, to, flags));
}

static int fcntl_any(int fd, int cmd, void *arg)
{
	struct conn *c;
	int n;

	if (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC)
		return duplicated(fd, real.fcntl(fd, cmd, arg));
	n = real.fcntl(fd, cmd, arg);
	c = n < 0 || (cmd != F_SETFL && cmd != F_SETOWN && cmd != F_SETOWN_EX) ?
		    NULL :
		    conn_get(fd);
	if (!c)
		return n;
	if (cmd == F_SETFL)
		c->nonblock = (long)arg & O_NONBLOCK;
	/* SIGIO is the kernel's. */
	if (cmd != F_SETFL || (long)arg & O_ASYNC)
		move_pin(c);
	conn_put(c);
	return n;
}

EXPORT int fcntl(int fd, int cmd, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, cmd);
	arg = va_arg(ap, void *);
	va_end(ap);
	real_need();
	return fcntl_any(fd, cmd, arg);
}

EXPORT int fcntl64(int fd, int cmd, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, cmd);
	arg = va_arg(ap, void *);
	va_end(ap);
	real_need();
	return fcntl_any(fd, cmd, arg);
}

EXPORT int ioctl(int fd, unsigned long request, ...)
{
	struct conn *c;
	va_list ap;
	void *arg;
	int n;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	real_need();
	c = conn_get(fd);
	if (!c)
		return real.ioctl(fd, request, arg);
	if (request == FIONREAD && conn_reads_rs(c) && arg) {
		*(int *)arg = conn_readable(c, fd);
		conn_put(c);
		return 0;
	}
	n = real.ioctl(fd, request, arg);
	if (n == 0 && request == FIONBIO)
		c->nonblock = *(int *)arg != 0;
	if (request == FIOASYNC || request == FIOSETOWN || request == SIOCATMARK)
		move_pin(c);
	conn_put(c);
	return n;
}

/* ---- options ---- */

/* What only the kernel can do. */
static bool is_kernels(int level, int name)
{
	if (level == SOL_SOCKET)
		return name == SO_ZEROCOPY || name == SO_TIMESTAMPING ||
		       name == SO_TIMESTAMP || name == SO_TIMESTAMPNS ||
		       name == SO_OOBINLINE || name == SO_ATTACH_BPF;
	return level == IPPROTO_TCP && (name == TCP_ULP || name == TCP_REPAIR ||
					name == TCP_ZEROCOPY_RECEIVE || name == TCP_INQ);
}

static int milliseconds(const void *value, socklen_t len)
{
	const struct timeval *tv = value;

	if (len < sizeof(*tv))
		return 0;
	return (int)(tv->tv_sec * 1000 + (tv->tv_usec + 999) / 1000);
}

EXPORT int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	struct conn *c;
	int n;

	real_need();
	n = real.setsockopt(fd, level, name, value, len);
	c = n ? NULL : conn_get(fd);
	if (!c)
		return n;
	if (level == SOL_SOCKET && name == SO_RCVTIMEO)
		c->rcvtimeo = milliseconds(value, len);
	else if (level == SOL_SOCKET && name == SO_SNDTIMEO)
		c->sndtimeo = milliseconds(value, len);
	else if (is_kernels(level, name))
		move_pin(c);
	conn_put(c);
	return n;
}

EXPORT int getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
	struct conn *c;
	int err;

	real_need();
	c = level == SOL_SOCKET && name == SO_ERROR ? conn_get(fd) : NULL;
	err = c ? atomic_exchange(&c->error, 0) : 0;
	if (c)
		conn_put(c);
	if (err && value && len && *len >= sizeof(err)) {
		*(int *)value = err;
		*len = sizeof(err);
		return 0;
	}
	return real.getsockopt(fd, level, name, value, len);
}

/* For tests, and for who wants to know: bit 0: what is read comes by an rsocket, bit 1: what
 * is written goes by one. -1: no connection that could move. */
int anyrdma_sockets_moved(int fd);

EXPORT int anyrdma_sockets_moved(int fd)
{
	struct conn *c;
	int bits;

	real_need();
	c = conn_get(fd);
	if (!c)
		return -1;
	bits = (atomic_load(&c->rx) == RX_RS) | (atomic_load(&c->tx) == TX_RS) << 1;
	conn_put(c);
	return bits;
}
