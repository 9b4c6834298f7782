/* SPDX-License-Identifier: BSD-2-Clause */
#include "preload/poll.h"
#include "preload/conn.h"
#include "preload/ep.h"
#include "preload/move.h"
#include "preload/real.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* One call: the application's descriptors, and what is asked for them. */
struct call {
	struct pollfd *fds;
	nfds_t count;
	struct conn **conn; /* of each descriptor, held, or NULL */
	struct rail **rail; /* held, of those that have moved */
	struct pollfd *ask; /* a descriptor and, of moved connections, its rsocket */
	nfds_t *whose;	    /* index in fds of each */
	nfds_t asked;
	bool plain; /* counted at every connection: none has moved */
};

static void finish(struct call *k)
{
	for (nfds_t i = 0; i < k->count; i++) {
		if (k->conn[i])
			conn_put(k->conn[i]);
		if (k->rail[i])
			rail_put(k->rail[i]);
	}
	free(k->conn);
}

/* False: no memory. */
static bool begin(struct call *k, struct pollfd *fds, nfds_t count)
{
	size_t one = 2 * sizeof(void *) + 2 * (sizeof(*k->ask) + sizeof(*k->whose));

	memset(k, 0, sizeof(*k));
	k->fds = fds;
	k->count = count;
	k->conn = calloc(count + 1, one);
	if (!k->conn)
		return false;
	k->rail = (struct rail **)(k->conn + count);
	k->ask = (struct pollfd *)(k->rail + count);
	k->whose = (nfds_t *)(k->ask + 2 * count);
	for (nfds_t i = 0; i < count; i++) {
		k->conn[i] = conn_get(fds[i].fd);
		if (k->conn[i] && atomic_load(&k->conn[i]->offer))
			conn_agree(k->conn[i]);
		if (file_peek_kind(fds[i].fd) == FILE_EPOLL)
			ep_nest(fds[i].fd);
	}
	return true;
}

static void plain_end(struct call *k, nfds_t count)
{
	for (nfds_t i = 0; i < count; i++)
		if (k->conn[i])
			conn_plain_rx_end(k->conn[i]);
	k->plain = false;
}

/* Counts this thread at each connection. False when one has moved: then at none. */
static bool plain_begin(struct call *k)
{
	for (nfds_t i = 0; i < k->count; i++) {
		if (!k->conn[i])
			continue;
		if (atomic_load(&k->conn[i]->tx) != TX_TCP ||
		    !conn_plain_rx_begin(k->conn[i])) {
			plain_end(k, i);
			return false;
		}
	}
	k->plain = true;
	return true;
}

/* True when a connection is on its way back, and what to wait for is not known. */
static bool ask_all(struct call *k)
{
	bool held = false;

	k->asked = 0;
	for (nfds_t i = 0; i < k->count; i++) {
		struct conn *c = k->conn[i];
		short events = k->fds[i].events;

		if (k->rail[i])
			rail_put(k->rail[i]);
		k->rail[i] = NULL;
		if (c && (conn_reads_rs(c) || atomic_load(&c->tx) != TX_TCP))
			k->rail[i] = rail_get(c);
		if (k->rail[i]) {
			short wants = conn_rs_wants(c, events);

			held |= c->rx == RX_HELD || c->tx == TX_HELD;
			events = conn_tcp_wants(c, events);
			if (wants) {
				k->whose[k->asked] = i;
				k->ask[k->asked++] =
					(struct pollfd){ k->rail[i]->rs, wants, 0 };
			}
			/* TCP alone would say that it has hung up. */
			if (!events && wants)
				continue;
		}
		k->whose[k->asked] = i;
		k->ask[k->asked++] = (struct pollfd){ k->fds[i].fd, events, 0 };
	}
	return held;
}

/* Descriptors that are ready; *again: what was said was for us. */
static int answer(struct call *k, bool *again)
{
	int ready = 0;

	for (nfds_t i = 0; i < k->count; i++)
		k->fds[i].revents = 0;
	for (nfds_t j = 0; j < k->asked; j++) {
		struct pollfd *fd = &k->fds[k->whose[j]];
		struct rail *r = k->rail[k->whose[j]];
		short got = k->ask[j].revents;

		if (!got)
			continue;
		if (r && k->ask[j].fd == r->rs && k->ask[j].fd != fd->fd)
			got = conn_rs_ready(k->conn[k->whose[j]], got, again) &
			      fd->events;
		else if (r)
			got &= conn_tcp_wants(k->conn[k->whose[j]], 0x7fff);
		fd->revents |= got;
	}
	for (nfds_t i = 0; i < k->count; i++)
		ready += k->fds[i].revents != 0;
	*again |= !ready;
	return ready;
}

static int to_ms(const struct timespec *t)
{
	return t ? (int)(t->tv_sec * 1000 + (t->tv_nsec + 999999) / 1000000) : -1;
}

static int left(const struct timespec *until)
{
	struct timespec now;
	long ms;

	if (!until)
		return -1;
	clock_gettime(CLOCK_MONOTONIC, &now);
	ms = (until->tv_sec - now.tv_sec) * 1000 +
	     (until->tv_nsec - now.tv_nsec + 999999) / 1000000;
	return ms < 0 ? 0 : (int)ms;
}

static bool deliverable(const sigset_t *mask)
{
	sigset_t waiting;

	if (sigpending(&waiting))
		return false;
	for (int sig = 1; sig < _NSIG; sig++)
		if (sigismember(&waiting, sig) == 1 && sigismember(mask, sig) == 0)
			return true;
	return false;
}

static int wait_moved(struct call *k, const struct timespec *timeout)
{
	struct timespec until;
	int n, ms;

	if (timeout) {
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_sec += timeout->tv_sec;
		until.tv_nsec += timeout->tv_nsec;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
	}
	for (;;) {
		bool again = false, held = ask_all(k);

		ms = left(timeout ? &until : NULL);
		/* The service thread brings it back soon; it may need a look meanwhile. */
		n = rs.rpoll(k->ask, k->asked, held && (ms < 0 || ms > 2) ? 2 : ms);
		if (n < 0)
			return -errno;
		n = answer(k, &again);
		if (n || (timeout && !left(&until)))
			return n;
	}
}

/* The kernel's answer where no connection has moved; what has, appears as TCP's. */
int poll_wait(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
	      const sigset_t *mask)
{
	bool any = false;
	struct call k;
	sigset_t old;
	int n;

	for (nfds_t i = 0; fds && i < count && !any; i++)
		any = file_peek_kind(fds[i].fd) >= FILE_CONN;
	if (!any || !begin(&k, fds, count)) {
		n = mask ? real.ppoll(fds, count, timeout, mask) :
			   real.poll(fds, count, to_ms(timeout));
		return n < 0 ? -errno : n;
	}
	if (plain_begin(&k)) {
		n = mask || (timeout && timeout->tv_nsec % 1000000) ?
			    real.ppoll(fds, count, timeout, mask) :
			    real.poll(fds, count, to_ms(timeout));
		n = n < 0 ? -errno : n;
		plain_end(&k, count);
	} else if (mask && deliverable(mask)) {
		n = real.ppoll(NULL, 0, timeout, mask);
		n = n < 0 ? -errno : n;
	} else {
		if (mask)
			pthread_sigmask(SIG_SETMASK, mask, &old);
		n = wait_moved(&k, timeout);
		if (mask)
			pthread_sigmask(SIG_SETMASK, &old, NULL);
	}
	finish(&k);
	return n;
}

/* ---- select ---- */

static bool in(const fd_set *set, int fd)
{
	return set && FD_ISSET(fd, set);
}

static int select_poll(int n, fd_set *r, fd_set *w, fd_set *x,
		       const struct timespec *timeout, const sigset_t *mask)
{
	struct pollfd *fds = calloc((size_t)n + 1, sizeof(*fds));
	const short reads = POLLIN | POLLRDNORM | POLLHUP | POLLERR;
	const short writes = POLLOUT | POLLWRNORM | POLLERR;
	nfds_t count = 0;
	int got, bits = 0;

	if (!fds)
		return -ENOMEM;
	for (int fd = 0; fd < n; fd++) {
		short events =
			(short)((in(r, fd) ? POLLIN : 0) | (in(w, fd) ? POLLOUT : 0) |
				(in(x, fd) ? POLLPRI : 0));

		if (events)
			fds[count++] = (struct pollfd){ fd, events, 0 };
	}
	got = poll_wait(fds, count, timeout, mask);
	for (nfds_t i = 0; got >= 0 && i < count; i++)
		if (fds[i].revents & POLLNVAL)
			got = -EBADF;
	for (nfds_t i = 0; got >= 0 && i < count; i++) {
		int fd = fds[i].fd;

#define KEEP(set, mask_) \
	do { \
		if (in(set, fd) && !(fds[i].revents & (mask_))) \
			FD_CLR(fd, set); \
		bits += in(set, fd); \
	} while (0)
		KEEP(r, reads);
		KEEP(w, writes);
		KEEP(x, POLLPRI);
#undef KEEP
	}
	free(fds);
	return got < 0 ? got : bits;
}

int select_wait(int n, fd_set *r, fd_set *w, fd_set *x, const struct timespec *timeout,
		const sigset_t *mask)
{
	struct timespec copy = timeout ? *timeout : (struct timespec){ 0 };
	bool any = false;
	int got;

	for (int fd = 0; fd < n && n <= FD_SETSIZE && !any; fd++)
		any = (in(r, fd) || in(w, fd) || in(x, fd)) &&
		      file_peek_kind(fd) >= FILE_CONN;
	if (any)
		return select_poll(n, r, w, x, timeout, mask);
	got = real.pselect(n, r, w, x, timeout ? &copy : NULL, mask);
	return got < 0 ? -errno : got;
}
