/* SPDX-License-Identifier: BSD-2-Clause */
/* Waiting for a connection, and its end. */
#include "preload/conn.h"
#include "preload/ep.h"
#include "preload/kept.h"
#include "preload/move.h"
#include "preload/real.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define READS (POLLIN | POLLRDNORM | POLLRDHUP | POLLPRI | POLLRDBAND)
#define WRITES (POLLOUT | POLLWRNORM | POLLWRBAND)

short conn_tcp_wants(struct conn *c, short events)
{
	enum conn_rx rx = atomic_load(&c->rx);

	if (rx == RX_RS || rx == RX_HELD)
		events &= (short)~READS;
	if (atomic_load(&c->tx) != TX_TCP)
		events &= (short)~WRITES;
	return events;
}

short conn_rs_wants(struct conn *c, short events)
{
	enum conn_rx rx = atomic_load(&c->rx);

	if (rx == RX_TCP || rx == RX_HELD || rx == RX_KEPT)
		events &= (short)~READS;
	if (atomic_load(&c->tx) != TX_RS)
		events &= (short)~WRITES;
	return events & (POLLIN | POLLRDNORM | POLLRDHUP | WRITES);
}

short conn_rs_ready(struct conn *c, short revents, bool *changed)
{
	const short ends = POLLERR | POLLHUP | POLLRDHUP;
	short ready = 0;
	char byte;
	ssize_t n;

	if (atomic_load(&c->rx) == RX_RS && (revents & POLLIN) && !(revents & ends))
		ready |= POLLIN | POLLRDNORM;
	else if (revents & (POLLIN | ends)) {
		pthread_mutex_lock(&c->rx_lock);
		if (c->rx == RX_BOTH && !conn_turn_locked(c, file_any_fd(&c->file)))
			*changed |= c->rx == RX_TCP;
		if (c->rx == RX_RS) {
			n = conn_read_rs_locked(c, &byte, 1, MSG_PEEK);
			if (n < 0 && n != -EAGAIN)
				c->error = (int)-n;
			if (n > 0 || (n == 0 && c->rx == RX_RS))
				ready |= POLLIN | POLLRDNORM;
			*changed |= c->rx != RX_RS;
		}
		pthread_mutex_unlock(&c->rx_lock);
	}
	if (atomic_load(&c->tx) == TX_RS && (revents & (POLLOUT | POLLERR | POLLHUP)))
		ready |= POLLOUT | POLLWRNORM;
	return ready;
}

/* Comes back to TCP: soon, by the service thread. */
static void wait_held(struct conn *c, short events, int ms)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += 50 * 1000000;
	if (ms >= 0 && ms < 50)
		until.tv_nsec -= (50 - ms) * 1000000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&c->lock);
	if ((events & POLLIN && c->rx == RX_HELD) ||
	    (events & POLLOUT && c->tx == TX_HELD))
		pthread_cond_timedwait(&c->turned, &c->lock, &until);
	pthread_mutex_unlock(&c->lock);
}

static void rail_put_cancelled(void *arg)
{
	rail_put(arg);
}

int conn_wait(struct conn *c, int fd, short events, int ms)
{
	struct pollfd pfd[2];
	struct rail *r;
	volatile nfds_t count = 0;
	int n;

	if ((events & POLLIN && c->rx == RX_HELD) ||
	    (events & POLLOUT && c->tx == TX_HELD)) {
		wait_held(c, events, ms);
		return 0;
	}
	r = rail_get(c);
	if (r && conn_rs_wants(c, events))
		pfd[count++] = (struct pollfd){ r->rs, conn_rs_wants(c, events), 0 };
	if (conn_tcp_wants(c, events))
		pfd[count++] = (struct pollfd){ fd, conn_tcp_wants(c, events), 0 };
	if (!r) {
		/* A move while this waits would go unseen: the peer's next byte would not. */
		if (events & POLLIN && c->rx != RX_KEPT && !conn_plain_rx_begin(c))
			return 0;
		n = real.poll(pfd, count, ms);
		if (events & POLLIN && c->rx != RX_KEPT)
			conn_plain_rx_end(c);
		return n < 0 ? -errno : n == 0 ? -EAGAIN : 0;
	}
	pthread_cleanup_push(rail_put_cancelled, r);
	n = rs_poll(pfd, count, ms);
	n = n < 0 ? -errno : n == 0 ? -EAGAIN : 0;
	pthread_cleanup_pop(1);
	return n;
}

int conn_readable(struct conn *c, int fd)
{
	const size_t most = 1 << 20;
	int queued = 0;
	ssize_t n = 0;
	char *buf;

	pthread_mutex_lock(&c->rx_lock);
	if (c->rx == RX_TCP || c->rx == RX_BOTH)
		real.ioctl(fd, FIONREAD, &queued);
	if (c->rx == RX_BOTH && !queued)
		conn_turn_locked(c, fd);
	if (c->rx == RX_RS) {
		buf = malloc(most);
		n = buf ? conn_read_rs_locked(c, buf, most, MSG_PEEK) : 0;
		free(buf);
	}
	if (c->rx == RX_KEPT && !real.ioctl(fd, FIONREAD, &queued))
		queued += (int)kept_len(c->kept);
	pthread_mutex_unlock(&c->rx_lock);
	return n > 0 ? (int)n : queued;
}

/* This direction has no more bytes: the rsocket ends, and TCP is next. */
static void end_writing(struct conn *c)
{
	struct rail *r = rail_get(c);

	pthread_mutex_lock(&c->tx_lock);
	if (c->tx == TX_RS) {
		rail_say_fin(c->rail, c->tx_count);
		rs.rshutdown(c->rail->rs, SHUT_WR);
		conn_set_tx(c, TX_TCP);
	} else if (r && r->step == RAIL_READY) {
		rail_say_fin(r, RAIL_UNSWITCHED);
	}
	c->tx_may = false;
	pthread_mutex_unlock(&c->tx_lock);
	if (r)
		rail_put(r);
}

int conn_shutdown(struct conn *c, int fd, int how)
{
	struct rail *r;

	for (int i = 0; i < 40 && c->tx == TX_HELD; i++)
		wait_held(c, POLLOUT, 50);
	if (how == SHUT_WR || how == SHUT_RDWR) {
		c->shut_wr = true;
		end_writing(c);
	}
	if (how == SHUT_RD || how == SHUT_RDWR) {
		c->shut_rd = true;
		r = rail_get(c);
		if (r && conn_reads_rs(c))
			rs.rshutdown(r->rs, SHUT_RD);
		if (r)
			rail_put(r);
	}
	return real.shutdown(fd, how);
}

void conn_close(struct conn *c, int fd)
{
	struct linger linger = { 0 };
	socklen_t len = sizeof(linger);
	struct rail *r;
	bool abort;

	abort = !real.getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &len) &&
		linger.l_onoff && !linger.l_linger;
	for (int i = 0; i < 40 && c->tx == TX_HELD; i++)
		wait_held(c, POLLOUT, 50);
	pthread_mutex_lock(&c->tx_lock);
	pthread_mutex_lock(&c->rx_lock);
	pthread_mutex_lock(&c->lock);
	ep_forget(c, fd);
	r = c->rail;
	if (r && r->step == RAIL_READY && !abort)
		rail_say_fin(r, c->tx == TX_RS ? c->tx_count : RAIL_UNSWITCHED);
	if (r)
		rail_leave(r);
	c->rail = NULL;
	c->tx = TX_TCP;
	c->rx = RX_TCP;
	c->offer = c->tx_may = false;
	pthread_mutex_unlock(&c->lock);
	pthread_mutex_unlock(&c->rx_lock);
	pthread_mutex_unlock(&c->tx_lock);
}
