/* SPDX-License-Identifier: BSD-2-Clause */
/* The C library's functions that this library stands in front of, and rdma/rsocket.h, which is
 * loaded when the first connection is about to move: a process that moves none pays nothing. */
#ifndef ANYRDMA_PRELOAD_REAL_H
#define ANYRDMA_PRELOAD_REAL_H

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <rdma/rsocket.h>

#define REAL_NAMES(X) \
	X(accept) \
	X(accept4) X(bind) X(close) X(connect) X(daemon) X(dup) X(dup2) X(dup3) X( \
		epoll_create) X(epoll_create1) X(epoll_ctl) X(epoll_pwait) X(execve) \
		X(execvpe) X(fcntl) X(fdopen) X(fexecve) X(fork) X(forkpty) X( \
			getsockopt) X(ioctl) X(listen) X(poll) X(posix_spawn) \
			X(posix_spawnp) X(ppoll) X(pread) X(pselect) X(read) X(readv) X( \
				recv) X(recvfrom) X(recvmmsg) X(recvmsg) X(select) \
				X(send) X(sendfile) X(sendmmsg) X(sendmsg) X(sendto) \
					X(setsockopt) X(shutdown) X(socket) X(splice) \
						X(tee) X(write) X(writev) X(_exit) \
							X(quick_exit) X(syscall)

/* Not in every C library that we run on: NULL, and the kernel is asked. */
#define REAL_NEWER(X) X(close_range) X(epoll_pwait2)

#define RS_NAMES(X) \
	X(rsocket) \
	X(rbind) X(rlisten) X(raccept) X(rconnect) X(rshutdown) X(rclose) X(rrecv) \
		X(rsend) X(rsendmsg) X(rpoll) X(rgetsockname) X(rsetsockopt) X(rgetsockopt) \
			X(rfcntl) X(repoll_create) X(repoll_ctl) X(repoll_wait)

struct real {
	bool ready;
#define X(name) __typeof__(&name) name;
	REAL_NAMES(X)
	REAL_NEWER(X)
#undef X
};

struct rs {
#define X(name) __typeof__(&name) name;
	RS_NAMES(X)
#undef X
};

extern struct real real;
extern struct rs rs;

void real_load(void);

/* Constructors of other libraries may come before ours. */
static inline void real_need(void)
{
	if (__builtin_expect(!real.ready, 0))
		real_load();
}

/* True when rs is usable. May load librdmacm: not with a lock held. */
bool rs_load(void);

/* This thread is in a call of rs that asks the kernel about descriptors of ours. */
extern __thread int rs_depth;

static inline int rs_poll(struct pollfd *fds, nfds_t count, int ms)
{
	int n;

	rs_depth++;
	n = rs.rpoll(fds, count, ms);
	rs_depth--;
	return n;
}

static inline int rs_epoll_ctl(int ep, int op, int fd, struct epoll_event *event)
{
	int n;

	rs_depth++;
	n = rs.repoll_ctl(ep, op, fd, event);
	rs_depth--;
	return n;
}

static inline int rs_epoll_wait(int ep, struct epoll_event *events, int max, int ms)
{
	int n;

	rs_depth++;
	n = rs.repoll_wait(ep, events, max, ms);
	rs_depth--;
	return n;
}

/* Whether `caller` is an instruction of librdmacm or libibverbs: their sockets are theirs. */
bool rs_calls(const void *caller);

#endif
