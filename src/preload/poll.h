/* SPDX-License-Identifier: BSD-2-Clause */
/* poll() and select() over descriptors of which some may be moved connections. */
#ifndef ANYRDMA_PRELOAD_POLL_H
#define ANYRDMA_PRELOAD_POLL_H

#include <poll.h>
#include <signal.h>
#include <sys/select.h>
#include <time.h>

/* Count or -errno. */
int poll_wait(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
	      const sigset_t *mask);

int select_wait(int n, fd_set *r, fd_set *w, fd_set *x, const struct timespec *timeout,
		const sigset_t *mask);

#endif
