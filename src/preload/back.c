/* SPDX-License-Identifier: BSD-2-Clause */
/* A moved connection comes back to TCP. Both ends do the same: they end what they send by
 * the rsocket, hold back what they would send by TCP, and return to the sender what has come
 * and has not been read. Each end gives TCP what has been returned to it, and goes on. Who has
 * ended what it sends could not: its last bytes stay with the reader (kept.h).
 * Then the stream is the kernel's as if it had never moved. */
#include "preload/kept.h"
#include "preload/move.h"
#include "preload/real.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

static bool keep(struct rail *r)
{
	size_t need = r->kept_len + r->unread_len;
	uint8_t *more;

	if (need > r->kept_room) {
		more = realloc(r->kept, need * 2);
		if (!more)
			return false;
		r->kept = more;
		r->kept_room = need * 2;
	}
	memcpy(r->kept + r->kept_len, r->unread, r->unread_len);
	r->kept_len = need;
	return true;
}

/* What has been taken goes back to the peer, or stays when that has ended TCP. */
static bool put_unread(struct rail *r)
{
	if (!r->unread_len)
		return true;
	if (r->peer_fin || r->peer_gone) {
		if (!keep(r))
			return false;
	} else {
		if (ctl_send(r, CTL_LEFT, 0, r->unread, r->unread_len))
			return false;
		r->returned = true;
	}
	r->unread_len = 0;
	return true;
}

/* What the peer has sent and nobody has read. rx_lock is held. True: all of it has its place. */
static bool return_unread(struct rail *r)
{
	uint64_t end = atomic_load(&r->peer_end);
	int took;

	if (end == RAIL_OPEN && (!r->peer_gone || r->conn->rx != RX_HELD))
		return r->peer_gone;
	for (;;) {
		/* What the control socket has no room for waits here. */
		if (!put_unread(r))
			return false;
		if (end == RAIL_UNSWITCHED ||
		    (end != RAIL_OPEN && r->conn->rx_count >= end))
			break;
		if (r->conn->rx != RX_HELD)
			break;
		took = take_unread(r);
		if (!took)
			return false;
		if (took < 0) {
			if (r->conn->head_got == sizeof(r->conn->head))
				r->kept_error = ECONNRESET;
			break;
		}
	}
	return ctl_send(r, CTL_LEFT_ALL, 0, NULL, 0) == 0 || r->peer_gone;
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

/* What could not be returned is read after TCP's end. rx_lock is held. */
static bool set_kept(struct rail *r)
{
	struct conn *c = r->conn;

	/* It died with what had been returned to it. */
	if (r->returned && !r->left_all)
		r->kept_error = ECONNRESET;
	if (!r->kept_len && !r->kept_error)
		return false;
	c->kept = kept_create(r->kept, r->kept_len, r->kept_error);
	if (!c->kept)
		c->error = ENOMEM;
	return c->kept;
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
	conn_set_rx(c, set_kept(r) ? RX_KEPT : RX_TCP);
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
