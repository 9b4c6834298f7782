/* SPDX-License-Identifier: BSD-2-Clause */
/* System calls to be made with locks held. The C library's functions of these names are
 * cancellation points (pthreads(7)). ibv_post_send() and ibv_poll_cq() are not, and do not
 * pay for NO_CANCEL (base/cancel.h): a thread
 * that is cancelled in one of them must not end inside a system call, with our locks
 * held. syscall() is no cancellation point.
 *
 * The library's functions are used in two cases: under sanitizers, which know these alone
 * and learn from them what happens before what; and where a word has 32 bits, as the
 * kernel's types of offsets and times differ there.
 *
 * Results and errno are those of the function of the same name. */
#ifndef ANYRDMA_BASE_SYS_H
#define ANYRDMA_BASE_SYS_H

#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || __SIZEOF_LONG__ != 8
#define SYS_BY_LIBRARY_ 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SYS_BY_LIBRARY_ 1
#endif
#endif

#ifdef SYS_BY_LIBRARY_
#define sys_open open
#define sys_read read
#define sys_write write
#define sys_close close
#define sys_send send
#define sys_sendmsg sendmsg
#define sys_recv recv
#define sys_recvmsg recvmsg
#define sys_sendmmsg sendmmsg
#define sys_recvmmsg(fd, m, n, flags) recvmmsg(fd, m, n, flags, NULL)
#define sys_pread pread
#define sys_pwrite pwrite
#define sys_preadv preadv
#define sys_pwritev pwritev
#define sys_preadv2 preadv2
#define sys_ppoll ppoll
#define sys_epoll_wait epoll_wait
#define sys_nanosleep nanosleep
#else
/* Of a file that exists. */
static inline int sys_open(const char *path, int flags)
{
	return (int)syscall(SYS_openat, AT_FDCWD, path, flags);
}

static inline ssize_t sys_read(int fd, void *p, size_t n)
{
	return syscall(SYS_read, fd, p, n);
}

static inline ssize_t sys_write(int fd, const void *p, size_t n)
{
	return syscall(SYS_write, fd, p, n);
}

static inline int sys_close(int fd)
{
	return (int)syscall(SYS_close, fd);
}

static inline ssize_t sys_send(int fd, const void *p, size_t n, int flags)
{
	return syscall(SYS_sendto, fd, p, n, flags, NULL, 0);
}

static inline ssize_t sys_sendmsg(int fd, const struct msghdr *m, int flags)
{
	return syscall(SYS_sendmsg, fd, m, flags);
}

static inline ssize_t sys_recv(int fd, void *p, size_t n, int flags)
{
	return syscall(SYS_recvfrom, fd, p, n, flags, NULL, NULL);
}

static inline ssize_t sys_recvmsg(int fd, struct msghdr *m, int flags)
{
	return syscall(SYS_recvmsg, fd, m, flags);
}

static inline int sys_sendmmsg(int fd, struct mmsghdr *m, unsigned n, int flags)
{
	return (int)syscall(SYS_sendmmsg, fd, m, n, flags);
}

/* Without a timeout: for MSG_DONTWAIT. */
static inline int sys_recvmmsg(int fd, struct mmsghdr *m, unsigned n, int flags)
{
	return (int)syscall(SYS_recvmmsg, fd, m, n, flags, NULL);
}

static inline ssize_t sys_pread(int fd, void *p, size_t n, off_t at)
{
	return syscall(SYS_pread64, fd, p, n, at);
}

static inline ssize_t sys_pwrite(int fd, const void *p, size_t n, off_t at)
{
	return syscall(SYS_pwrite64, fd, p, n, at);
}

/* The last argument is the upper half of the offset, where a word has 32 bits. */
static inline ssize_t sys_preadv(int fd, const struct iovec *iov, int n, off_t at)
{
	return syscall(SYS_preadv, fd, iov, n, at, 0);
}

static inline ssize_t sys_pwritev(int fd, const struct iovec *iov, int n, off_t at)
{
	return syscall(SYS_pwritev, fd, iov, n, at, 0);
}

static inline ssize_t sys_preadv2(int fd, const struct iovec *iov, int n, off_t at, int flags)
{
	return syscall(SYS_preadv2, fd, iov, n, at, 0, flags);
}

/* The kernel writes the time that is left into *timeout. */
static inline int sys_ppoll(struct pollfd *p, nfds_t n, const struct timespec *timeout,
			    const sigset_t *none)
{
	struct timespec left, *t = NULL;

	if (timeout) {
		left = *timeout;
		t = &left;
	}
	return (int)syscall(SYS_ppoll, p, n, t, none, 0);
}

static inline int sys_epoll_wait(int fd, struct epoll_event *ev, int n, int ms)
{
	return (int)syscall(SYS_epoll_pwait, fd, ev, n, ms, NULL, 0);
}

static inline int sys_nanosleep(const struct timespec *t, struct timespec *left)
{
	return (int)syscall(SYS_nanosleep, t, left);
}
#endif

#endif
