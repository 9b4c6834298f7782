/* SPDX-License-Identifier: BSD-2-Clause */
/* The calls that wait for descriptors. */
#include "preload/edge.h"
#include "preload/ep.h"
#include "preload/poll.h"
#include "preload/real.h"

#include <string.h>

EXPORT int poll(struct pollfd *fds, nfds_t count, int ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000L };

	real_need();
	/* rpoll() asks for the TCP half of what we gave it. */
	if (rs_calls(__builtin_return_address(0)))
		return real.poll(fds, count, ms);
	return (int)edge(poll_wait(fds, count, ms < 0 ? NULL : &ts, NULL));
}

EXPORT int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
		 const sigset_t *mask)
{
	real_need();
	if (rs_calls(__builtin_return_address(0)))
		return real.ppoll(fds, count, timeout, mask);
	return (int)edge(poll_wait(fds, count, timeout, mask));
}

extern void __chk_fail(void) __attribute__((noreturn));
int __poll_chk(struct pollfd *fds, nfds_t count, int ms, size_t room);
int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
		const sigset_t *mask, size_t room);

EXPORT int __poll_chk(struct pollfd *fds, nfds_t count, int ms, size_t room)
{
	if (room / sizeof(*fds) < count)
		__chk_fail();
	return poll(fds, count, ms);
}

EXPORT int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
		       const sigset_t *mask, size_t room)
{
	if (room / sizeof(*fds) < count)
		__chk_fail();
	return ppoll(fds, count, timeout, mask);
}

/* Linux leaves in *tv what has not passed. */
EXPORT int select(int n, fd_set *r, fd_set *w, fd_set *x, struct timeval *tv)
{
	struct timespec ts, from, to;
	long left;
	int got;

	real_need();
	if (!tv)
		return (int)edge(select_wait(n, r, w, x, NULL, NULL));
	ts = (struct timespec){ tv->tv_sec + tv->tv_usec / 1000000,
				tv->tv_usec % 1000000 * 1000 };
	if (tv->tv_sec < 0 || tv->tv_usec < 0)
		return (int)edge(-EINVAL);
	clock_gettime(CLOCK_MONOTONIC, &from);
	got = select_wait(n, r, w, x, &ts, NULL);
	clock_gettime(CLOCK_MONOTONIC, &to);
	left = (ts.tv_sec - to.tv_sec + from.tv_sec) * 1000000 +
	       (ts.tv_nsec - to.tv_nsec + from.tv_nsec) / 1000;
	if (left < 0)
		left = 0;
	*tv = (struct timeval){ left / 1000000, left % 1000000 };
	return (int)edge(got);
}

EXPORT int pselect(int n, fd_set *r, fd_set *w, fd_set *x, const struct timespec *timeout,
		   const sigset_t *mask)
{
	real_need();
	return (int)edge(select_wait(n, r, w, x, timeout, mask));
}

EXPORT int epoll_create(int size)
{
	int fd;

	real_need();
	fd = real.epoll_create(size);
	if (fd >= 0 && !rs_calls(__builtin_return_address(0)))
		ep_adopt(fd);
	return fd;
}

EXPORT int epoll_create1(int flags)
{
	int fd;

	real_need();
	fd = real.epoll_create1(flags);
	if (fd >= 0 && !rs_calls(__builtin_return_address(0)))
		ep_adopt(fd);
	return fd;
}

EXPORT int epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
	real_need();
	if (file_peek_kind(fd) < 0 || rs_calls(__builtin_return_address(0)))
		return real.epoll_ctl(epfd, op, fd, event);
	return (int)edge(ep_ctl(epfd, op, fd, event));
}

static int wait_for(int epfd, struct epoll_event *events, int max,
		    const struct timespec *timeout, const sigset_t *mask)
{
	struct file *ep = file_get_kind(epfd, FILE_EPOLL);
	int n;

	if (!ep) {
		n = real.epoll_pwait(
			epfd, events, max,
			timeout ? (int)(timeout->tv_sec * 1000 +
					(timeout->tv_nsec + 999999) / 1000000) :
				  -1,
			mask);
		return n < 0 ? -errno : n;
	}
	n = ep_wait(ep, epfd, events, max, timeout, mask);
	file_put(ep);
	return n;
}

EXPORT int epoll_pwait(int epfd, struct epoll_event *events, int max, int ms,
		       const sigset_t *mask)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000L };

	real_need();
	return (int)edge(wait_for(epfd, events, max, ms < 0 ? NULL : &ts, mask));
}

EXPORT int epoll_wait(int epfd, struct epoll_event *events, int max, int ms)
{
	return epoll_pwait(epfd, events, max, ms, NULL);
}

EXPORT int epoll_pwait2(int epfd, struct epoll_event *events, int max,
			const struct timespec *timeout, const sigset_t *mask)
{
	real_need();
	if (!real.epoll_pwait2)
		return (int)edge(-ENOSYS);
	if (file_peek_kind(epfd) != FILE_EPOLL)
		return real.epoll_pwait2(epfd, events, max, timeout, mask);
	return (int)edge(wait_for(epfd, events, max, timeout, mask));
}
