/* SPDX-License-Identifier: BSD-2-Clause */
/* A moved connection comes back to TCP. Both ends do the same: they end what they send by
 * the rsocket, hold back what they would send by TCP, and return to the sender what has come
 * and has not been read. Each end gives TCP what has been returned to it, and goes on.
 * Then the stream is the kernel's as if it had never moved. */
#include "preload/move.h"
#include "preload/real.h"

#include <errno.h>
#include <stdlib.h>

/* By the thread that wants it, or the service thread when the peer does. */
void back_begin(struct rail *r)
{
	struct conn *c = r->conn;

	pthread_mutex_lock(&c->tx_lock);
	pthread_mutex_lock(&c->rx_lock);
	if (r->step == RAIL_READY && c->rail == r) {
		r->step = RAIL_BACK;
		c->offer = c->tx_may = false;
		ctl_send(r, CTL_BACK, 0, NULL, 0);
		rail_say_end(r, c->tx == TX_RS ? c->tx_count : RAIL_UNSWITCHED);
		if (c->tx == TX_RS) {
			rs.rshutdown(r->rs, SHUT_WR);
			conn_set_tx(c, TX_HELD);
		}
		if (c->rx != RX_TCP)
			conn_set_rx(c, RX_HELD);
	}
	pthread_mutex_unlock(&c->rx_lock);
	pthread_mutex_unlock(&c->tx_lock);
}

/* The next bytes that nobody has read, or of the head. 1: there are some in r->unread, 0: none
 * yet, -1: the rsocket has ended. */
static int take_unread(struct rail *r)
{
	struct conn *c = r->conn;
	size_t want = sizeof(c->head) - c->head_got;
	ssize_t n = want ? rs.rrecv(r->rs, c->head + c->head_got, want, MSG_DONTWAIT) :
			   rs.rrecv(r->rs, r->unread, sizeof(r->unread), MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n <= 0)
		return -1;
	if (want) {
		c->head_got += (unsigned)n;
		return take_unread(r);
	}
	r->unread_len = (size_t)n;
	c->rx_count += (uint64_t)n;
	return 1;
}

/* What the peer has sent and nobody has read goes back to it. rx_lock is held. True: all of
 * it has. */
static bool return_unread(struct rail *r)
{
	uint64_t end = atomic_load(&r->peer_end);
	int took;

	if (r->peer_gone)
		return true;
	if (end == RAIL_OPEN)
		return false;
	for (;;) {
		/* What the control socket has no room for waits here. */
		if (r->unread_len &&
		    ctl_send(r, CTL_LEFT, 0, r->unread, r->unread_len))
			return r->peer_gone;
		r->unread_len = 0;
		if (end == RAIL_UNSWITCHED || r->conn->rx_count >= end)
			break;
		took = take_unread(r);
		if (took <= 0)
			return took < 0;
	}
	return ctl_send(r, CTL_LEFT_ALL, 0, NULL, 0) == 0;
}

/* What the peer has returned. True: TCP has all of it. */
static bool repeat_returned(struct rail *r)
{
	int fd = file_any_fd(&r->conn->file);
	ssize_t n;

	pthread_mutex_lock(&r->ctl_lock);
	while (r->left_done < r->left_len && fd >= 0) {
		n = real.send(fd, r->left + r->left_done, r->left_len - r->left_done,
			      MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0)
			r->left_done = r->left_len; /* TCP has ended: so would it have */
		else
			r->left_done += (size_t)n;
	}
	n = r->left_done == r->left_len || fd < 0;
	pthread_mutex_unlock(&r->ctl_lock);
	return n;
}

/* The service thread, until the rail is over. */
void back_step(struct rail *r)
{
	struct conn *c = r->conn;

	if (!r->left_sent) {
		pthread_mutex_lock(&c->rx_lock);
		r->left_sent = return_unread(r);
		pthread_mutex_unlock(&c->rx_lock);
	}
	if (!r->left_sent || !repeat_returned(r) || (!r->left_all && !r->peer_gone))
		return;
	pthread_mutex_lock(&c->tx_lock);
	pthread_mutex_lock(&c->rx_lock);
	c->head_got = 0;
	c->rx_count = c->tx_count = 0;
	conn_set_tx(c, TX_TCP);
	conn_set_rx(c, RX_TCP);
	/* Last: who waits for this goes on. */
	pthread_mutex_lock(&c->lock);
	if (c->rail == r) {
		c->calls = 0;
		c->bytes = 0;
		c->ask_at = c->ask_at < 4096 ? 64 : 1u << 16;
		c->rail = NULL;
		pthread_cond_broadcast(&c->turned);
	}
	pthread_mutex_unlock(&c->lock);
	pthread_mutex_unlock(&c->rx_lock);
	pthread_mutex_unlock(&c->tx_lock);
	r->closing = true;
}
