/* SPDX-License-Identifier: BSD-2-Clause */
#include "preload/conn.h"
#include "base/log.h"
#include "preload/conf.h"
#include "preload/ep.h"
#include "preload/kept.h"
#include "preload/move.h"
#include "preload/pos.h"
#include "preload/real.h"
#include "preload/share.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct file *conn_file_new(void)
{
	return calloc(1, sizeof(struct conn));
}

void conn_file_reset(struct file *f)
{
	struct conn *c = conn_of(f);
	size_t from = sizeof(struct file);

	memset((char *)c + from, 0, sizeof(*c) - from);
	pthread_mutex_init(&c->tx_lock, NULL);
	pthread_mutex_init(&c->rx_lock, NULL);
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->turned, NULL);
}

void conn_file_end(struct file *f)
{
	share_leave(&conn_of(f)->share);
	kept_leave(conn_of(f)->kept);
	conn_of(f)->kept = NULL;
}

static int timeo_ms(int fd, int name)
{
	struct timeval tv = { 0 };
	socklen_t len = sizeof(tv);

	if (real.getsockopt(fd, SOL_SOCKET, name, &tv, &len))
		return 0;
	return (int)(tv.tv_sec * 1000 + (tv.tv_usec + 999) / 1000);
}

void conn_adopt(int fd, bool passive, bool nonblock)
{
	struct file *f = file_create(FILE_CONN, fd);
	struct conn *c = conn_of(f);

	if (!f)
		return;
	c->passive = passive;
	c->nonblock = nonblock;
	/* Linux lets accepted sockets inherit these. */
	c->rcvtimeo = timeo_ms(fd, SO_RCVTIMEO);
	c->sndtimeo = timeo_ms(fd, SO_SNDTIMEO);
	c->ask_at = passive ? (conf_after() + 1) / 2 : conf_after();
}

bool conn_plain_rx_begin(struct conn *c)
{
	atomic_fetch_add(&c->plain_rx, 1);
	if (!conn_reads_rs(c))
		return true;
	atomic_fetch_sub(&c->plain_rx, 1);
	return false;
}

void conn_plain_rx_end(struct conn *c)
{
	atomic_fetch_sub(&c->plain_rx, 1);
}

bool conn_plain_tx_begin(struct conn *c)
{
	atomic_fetch_add(&c->plain_tx, 1);
	if (!conn_writes_rs(c))
		return true;
	atomic_fetch_sub(&c->plain_tx, 1);
	return false;
}

void conn_plain_tx_end(struct conn *c)
{
	atomic_fetch_sub(&c->plain_tx, 1);
}

void conn_count(struct conn *c, int fd, ssize_t bytes)
{
	unsigned calls =
		atomic_fetch_add_explicit(&c->calls, 1, memory_order_relaxed) + 1;
	unsigned long sum = 0;

	if (bytes > 0)
		sum = atomic_fetch_add_explicit(&c->bytes, (unsigned long)bytes,
						memory_order_relaxed);
	if (calls < c->ask_at && sum < 65536ul * c->ask_at)
		return;
	if (!atomic_load_explicit(&c->pinned, memory_order_relaxed))
		move_consider(c, fd);
}

void conn_set_rx(struct conn *c, enum conn_rx rx)
{
	pthread_mutex_lock(&c->lock);
	atomic_store(&c->rx, rx);
	ep_follow(c);
	pthread_cond_broadcast(&c->turned);
	pthread_mutex_unlock(&c->lock);
}

void conn_set_tx(struct conn *c, enum conn_tx tx)
{
	pthread_mutex_lock(&c->lock);
	atomic_store(&c->tx, tx);
	ep_follow(c);
	pthread_cond_broadcast(&c->turned);
	pthread_mutex_unlock(&c->lock);
}

void conn_agree(struct conn *c)
{
	pthread_mutex_lock(&c->lock);
	if (atomic_load(&c->offer) && c->rail && c->rail->step == RAIL_READY &&
	    !c->pinned) {
		atomic_store(&c->rx, RX_BOTH);
		atomic_store(&c->offer, false);
		ep_follow(c);
		/* Those who wait for TCP alone looked at rx after they were counted. */
		if (atomic_load(&c->plain_rx) || !ep_idle(c)) {
			atomic_store(&c->rx, RX_TCP);
			atomic_store(&c->offer, true);
			ep_follow(c);
		} else {
			rail_say_consent(c->rail);
		}
	}
	pthread_mutex_unlock(&c->lock);
}

/* The rsocket has failed, or ended early: bytes may be lost, and both ends hear of it. */
static int conn_break(struct conn *c)
{
	int fd = file_any_fd(&c->file);

	log_info("descriptor %d: the RDMA half of the connection ended before its stream",
		 fd);
	if (c->rail)
		rail_say_end(c->rail, RAIL_OPEN);
	if (fd >= 0)
		real.shutdown(fd, SHUT_RDWR);
	return -ECONNRESET;
}

/* ---- reading ---- */

static ssize_t tcp_recv(int fd, const struct iovec *iov, int count, int flags)
{
	struct msghdr msg = { .msg_iov = (struct iovec *)iov,
			      .msg_iovlen = (size_t)count };
	ssize_t n = real.recvmsg(fd, &msg, flags | MSG_DONTWAIT);

	return n < 0 ? -errno : n;
}

bool conn_turn_locked(struct conn *c, int fd)
{
	uint64_t start = 0, pos;
	ssize_t n;

	while (c->head_got < sizeof(c->head)) {
		n = rs.rrecv(c->rail->rs, c->head + c->head_got,
			     sizeof(c->head) - c->head_got, MSG_DONTWAIT);
		if (n > 0) {
			c->head_got += (unsigned)n;
			continue;
		}
		/* The peer goes back before it has come. */
		if (n == 0 || errno != EAGAIN)
			conn_set_rx(c, RX_TCP);
		return false;
	}
	for (unsigned i = 0; i < 8; i++)
		start |= (uint64_t)c->head[i] << 8 * i;
	if (pos_read(fd, &pos) || pos < start)
		return false;
	conn_set_rx(c, RX_RS);
	return true;
}

ssize_t conn_read_rs_locked(struct conn *c, void *buf, size_t len, int flags)
{
	ssize_t n = rs.rrecv(c->rail->rs, buf, len, (flags & MSG_PEEK) | MSG_DONTWAIT);
	uint64_t end;

	if (n > 0) {
		if (!(flags & MSG_PEEK))
			c->rx_count += (uint64_t)n;
		return n;
	}
	if (n < 0 && errno == EAGAIN)
		return -EAGAIN;
	if (len == 0 || atomic_load(&c->shut_rd))
		return 0;
	rail_hear(c->rail);
	end = atomic_load(&c->rail->peer_end);
	conn_set_rx(c, RX_TCP);
	return end == c->rx_count ? 0 : conn_break(c);
}

static ssize_t rs_recv(struct conn *c, const struct iovec *iov, int count, int flags)
{
	ssize_t sum = 0, n;

	for (int i = 0; i < count; i++) {
		size_t done = 0;

		if (!iov[i].iov_len)
			continue;
		n = conn_read_rs_locked(c, (char *)iov[i].iov_base + done, iov[i].iov_len,
					flags);
		if (n <= 0)
			return sum ? sum : n;
		sum += n;
		if ((size_t)n < iov[i].iov_len || (flags & MSG_PEEK))
			break;
	}
	return sum;
}

static ssize_t recv_kept(struct conn *c, int fd, const struct iovec *iov, int count,
			 int flags)
{
	ssize_t n = tcp_recv(fd, iov, count, flags & ~MSG_WAITALL), kept;

	if (n > 0 || n == -EAGAIN || n == -EINTR)
		return n;
	kept = kept_read(c->kept, iov, count, flags);
	return kept ? kept : n;
}

static ssize_t recv_locked(struct conn *c, int fd, const struct iovec *iov, int count,
			   int flags)
{
	ssize_t n;
	int err = atomic_exchange(&c->error, 0);

	if (err)
		return -err;
	switch (atomic_load(&c->rx)) {
	case RX_HELD:
		return -EAGAIN;
	case RX_KEPT:
		return recv_kept(c, fd, iov, count, flags);
	case RX_RS:
		n = rs_recv(c, iov, count, flags);
		if (n || c->rx == RX_RS)
			return n;
		break;
	case RX_BOTH:
		n = tcp_recv(fd, iov, count, flags & ~MSG_WAITALL);
		if (n > 0 || (n < 0 && n != -EAGAIN))
			return n;
		if (conn_turn_locked(c, fd)) {
			n = rs_recv(c, iov, count, flags);
			if (n || c->rx == RX_RS)
				return n;
		} else if (n == 0 && c->rx == RX_BOTH) {
			/* FIN, and bytes of the rsocket that come before it. */
			rail_hear(c->rail);
			if (c->rail->peer_end < RAIL_UNSWITCHED && !c->rail->peer_gone)
				return -EAGAIN;
			return 0;
		}
		break;
	case RX_TCP:
		break;
	}
	return tcp_recv(fd, iov, count, flags & ~MSG_WAITALL);
}

/* Whether a call that a signal interrupted goes on: not known which signal it was, so only
 * when every handler asks for that. */
static bool restarts(int timeo)
{
	struct sigaction sa;

	for (int sig = 1; !timeo && sig < 32; sig++)
		if (!sigaction(sig, NULL, &sa) && sa.sa_handler != SIG_DFL &&
		    sa.sa_handler != SIG_IGN && !(sa.sa_flags & SA_RESTART))
			return false;
	return !timeo;
}

/* What is left of the pieces after `skip` bytes. */
static int iov_rest(struct iovec *to, const struct iovec *from, int count, size_t skip)
{
	int n = 0;

	for (int i = 0; i < count; i++) {
		if (skip >= from[i].iov_len) {
			skip -= from[i].iov_len;
			continue;
		}
		to[n].iov_base = (char *)from[i].iov_base + skip;
		to[n++].iov_len = from[i].iov_len - skip;
		skip = 0;
	}
	return n;
}

static size_t iov_sum(const struct iovec *iov, int count)
{
	size_t sum = 0;

	for (int i = 0; i < count; i++)
		sum += iov[i].iov_len;
	return sum;
}

ssize_t conn_recv(struct conn *c, int fd, const struct iovec *iov, int count, int flags)
{
	struct iovec rest[count > 0 ? count : 1];
	bool waits = !c->nonblock && !(flags & MSG_DONTWAIT);
	bool all = (flags & MSG_WAITALL) && waits && !(flags & MSG_PEEK);
	size_t want = iov_sum(iov, count), got = 0;
	ssize_t n;

	while (want) {
		pthread_mutex_lock(&c->rx_lock);
		n = got ? recv_locked(c, fd, rest, iov_rest(rest, iov, count, got),
				      flags) :
			  recv_locked(c, fd, iov, count, flags);
		pthread_mutex_unlock(&c->rx_lock);
		if (n > 0)
			got += (size_t)n;
		if (n == 0 || (n > 0 && (!all || got == want)))
			break;
		if (n > 0)
			continue;
		if (n == -EAGAIN && atomic_load(&c->shut_rd))
			break;
		if (n == -EAGAIN && waits) {
			n = conn_wait(c, fd, POLLIN, c->rcvtimeo ? c->rcvtimeo : -1);
			if (n == 0 || (n == -EINTR && restarts(c->rcvtimeo)))
				continue;
		}
		return got ? (ssize_t)got : n;
	}
	return (ssize_t)got;
}

/* ---- writing ---- */

static ssize_t tcp_send(int fd, const struct iovec *iov, int count, int flags)
{
	struct msghdr msg = { .msg_iov = (struct iovec *)iov,
			      .msg_iovlen = (size_t)count };
	ssize_t n = real.sendmsg(fd, &msg, flags | MSG_DONTWAIT);

	return n < 0 ? -errno : n;
}

/* From the next byte on the stream is the rsocket's. */
static bool tx_turn_locked(struct conn *c, int fd)
{
	uint8_t head[8];
	uint64_t pos;

	atomic_store(&c->tx, TX_RS);
	/* Those who write to TCP looked at tx after they were counted. */
	if (!c->rail || atomic_load(&c->plain_tx) || c->shut_wr ||
	    pos_written(fd, c->passive, &pos))
		goto stay;
	for (unsigned i = 0; i < 8; i++)
		head[i] = (uint8_t)(pos >> 8 * i);
	if (rs.rsend(c->rail->rs, head, sizeof(head), MSG_DONTWAIT | MSG_NOSIGNAL) !=
	    sizeof(head))
		goto stay;
	atomic_store(&c->tx_may, false);
	c->tx_count = 0;
	conn_set_tx(c, TX_RS);
	return true;
stay:
	atomic_store(&c->tx, TX_TCP);
	return false;
}

static ssize_t rs_send(struct conn *c, const struct iovec *iov, int count)
{
	struct msghdr msg = { .msg_iov = (struct iovec *)iov,
			      .msg_iovlen = (size_t)count };
	ssize_t n = rs.rsendmsg(c->rail->rs, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (n < 0)
		return -errno;
	c->tx_count += (uint64_t)n;
	return n;
}

static ssize_t send_locked(struct conn *c, int fd, const struct iovec *iov, int count,
			   int flags)
{
	ssize_t n;

	if (c->tx == TX_HELD)
		return -EAGAIN;
	if (c->tx == TX_TCP && (!c->tx_may || !tx_turn_locked(c, fd)))
		return tcp_send(fd, iov, count, flags);
	n = rs_send(c, iov, count);
	if (n >= 0 || n == -EAGAIN || n == -EINTR)
		return n ? n : -EAGAIN;
	/* The peer has closed: what the kernel says then is what a program expects. */
	rail_hear(c->rail);
	conn_set_tx(c, TX_TCP);
	if (!c->rail->peer_gone && c->rail->peer_end == RAIL_OPEN)
		return conn_break(c);
	return tcp_send(fd, iov, count, flags);
}

ssize_t conn_send(struct conn *c, int fd, const struct iovec *iov, int count, int flags)
{
	struct iovec rest[count > 0 ? count : 1];
	bool waits = !c->nonblock && !(flags & MSG_DONTWAIT);
	size_t want = iov_sum(iov, count), done = 0;
	ssize_t n;

	while (done < want) {
		pthread_mutex_lock(&c->tx_lock);
		n = done ? send_locked(c, fd, rest, iov_rest(rest, iov, count, done),
				       flags) :
			   send_locked(c, fd, iov, count, flags);
		pthread_mutex_unlock(&c->tx_lock);
		if (n > 0) {
			done += (size_t)n;
			continue;
		}
		if (n == -EAGAIN && waits) {
			n = conn_wait(c, fd, POLLOUT, c->sndtimeo ? c->sndtimeo : -1);
			if (n == 0 || (n == -EINTR && restarts(c->sndtimeo)))
				continue;
		}
		return done ? (ssize_t)done : n;
	}
	return (ssize_t)done;
}
