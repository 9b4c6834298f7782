/* SPDX-License-Identifier: BSD-2-Clause */
/* A connection's messages over a TCP connection of its own: to peers on other hosts,
 * and to those that share no memory with us. The socket is ours and non-blocking, in
 * the loop, until a stream takes it over in open() or accept(), nowhere else. */
#include "base/conf.h"
#include "base/log.h"
#include "cm/user/user.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

static atomic_uint lingerers; /* ids that are `lingering` */

static void tcp_ready(struct loop_fd *lf, uint32_t revents);

/* ---- the socket ---------------------------------------------------------------------- */

static void fd_done(struct loop_fd *lf)
{
	user_put(container_of(lf, struct user_id, lf));
}

static int fd_watch(struct user_id *u, uint32_t events) REQUIRES(u->lock)
{
	int ret;

	if (u->watched)
		return cm_dev->loop_fd_mod(&u->lf, events);
	u->lf.fd = u->fd;
	u->lf.events = events;
	u->lf.ready = tcp_ready;
	ret = cm_dev->loop_fd_add(&u->lf);
	if (!ret) {
		u->watched = true;
		user_get(u);
	}
	return ret;
}

/* Out of the loop; the caller owns the descriptor. A ready() on its way finds
 * u->fd < 0 under the lock and touches nothing. */
static int fd_take(struct user_id *u) REQUIRES(u->lock)
{
	int fd = u->fd;

	u->fd = -1;
	if (u->watched)
		cm_dev->loop_fd_del(&u->lf, fd_done);
	u->watched = false;
	return fd;
}

static void fd_close(struct user_id *u) REQUIRES(u->lock)
{
	int fd = fd_take(u);

	if (fd < 0)
		return;
	if (u->lingering)
		atomic_fetch_sub(&lingerers, 1);
	u->lingering = false;
	if (!u->refused || !user_reserve_give(fd))
		cm_dev->fd_close(fd);
}

/* 0 when all is sent, -EAGAIN, or -errno. */
static int flush(struct user_id *u)
{
	struct user_nego *n = u->nego;
	ssize_t got;

	while (n->out_off < n->out_len) {
		got = send(u->fd, n->out + n->out_off, n->out_len - n->out_off,
			   MSG_NOSIGNAL | MSG_DONTWAIT);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return errno == EWOULDBLOCK ? -EAGAIN : -errno;
		n->out_off += (size_t)got;
	}
	return 0;
}

/* Reads no byte past the frame: what follows a reply belongs to the stream.
 * Length of the frame, -EAGAIN, -EPROTO, -ENOTCONN for the end, -errno. */
static int read_frame(struct user_id *u, struct mpa_frame *f)
{
	struct user_nego *n = u->nego;
	ssize_t got;
	int ret;

	for (;;) {
		ret = mpa_decode(n->in, n->in_len, f);
		if (ret != -EAGAIN)
			return ret;
		got = recv(u->fd, n->in + n->in_len, mpa_want(n->in, n->in_len),
			   MSG_DONTWAIT);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return errno == EWOULDBLOCK ? -EAGAIN : -errno;
		if (!got)
			return -ENOTCONN;
		n->in_len += (size_t)got;
	}
}

static enum user_after linger(struct user_id *u)
{
	char scrap[4096];
	ssize_t got;
	int turns = 16; /* a peer that goes on talking must not keep the thread */

	lock_assert_held(&u->lock);
	do
		got = recv(u->fd, scrap, sizeof(scrap), MSG_DONTWAIT);
	while (--turns && (got > 0 || (got < 0 && errno == EINTR)));
	if (got > 0)
		return AFTER_NONE;
	if (!got || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
		user_timer_stop(u);
		fd_close(u);
	}
	return AFTER_NONE;
}

/* A few hundred bytes into an empty socket buffer go whole or not at all; a peer
 * that made that impossible gets the end of the stream. */
static bool send_frame(struct user_id *u, int fd, const uint8_t *frame, size_t len)
{
	size_t skip = u->key_sent ? MPA_KEY_LEN : 0;

	return len > skip && send(fd, frame + skip, len - skip, MSG_NOSIGNAL | MSG_DONTWAIT) ==
				     (ssize_t)(len - skip);
}

static void tcp_reject(struct user_id *u, const uint8_t *rej, size_t len)
{
	lock_assert_held(&u->lock);
	if (u->fd < 0)
		return;
	/* The request has been read: closing resets only what should not have come. */
	if (!send_frame(u, u->fd, rej, len) || shutdown(u->fd, SHUT_WR) ||
	    atomic_load(&lingerers) >= USER_LINGER_MAX || fd_watch(u, EPOLLIN)) {
		fd_close(u);
		user_timer_stop(u);
		return;
	}
	u->lingering = true;
	atomic_fetch_add(&lingerers, 1);
	user_timer_set(u, USER_LINGER_MS);
}

static void tcp_close(struct user_id *u)
{
	lock_assert_held(&u->lock);
	if (!u->lingering)
		fd_close(u);
}

static void tcp_expire(struct user_id *u)
{
	lock_assert_held(&u->lock);
	fd_close(u);
}

/* ---- the stream takes over ------------------------------------------------------------ */

static int open_stream(struct user_id *u, int fd, const uint8_t *first, size_t len)
	REQUIRES(u->lock)
{
	struct stream_param p;

	user_stream_param(u, &p);
	user_get(u);
	u->stream = cm_dev->stream_open(fd, &p, first, len, &user_upcalls, u);
	if (u->stream)
		return 0;
	user_put(u);
	return errno ? -errno : -ENOMEM;
}

static int tcp_open(struct user_id *u)
{
	int fd, ret;

	lock_assert_held(&u->lock);
	fd = fd_take(u);
	ret = open_stream(u, fd, NULL, 0);
	if (ret)
		cm_dev->fd_close(fd);
	return ret;
}

static int tcp_accept(struct user_id *u, const uint8_t *rep, size_t len)
{
	size_t skip = u->key_sent ? MPA_KEY_LEN : 0;
	uint8_t rej[MPA_OURS_MAX];
	int fd, ret, n;

	lock_assert_held(&u->lock);
	fd = fd_take(u);
	ret = open_stream(u, fd, rep + skip, len - skip);
	if (!ret)
		return 0;
	n = user_rej_build(u, CM_REJ_CONSUMER, NULL, 0, rej, sizeof(rej));
	if (n > 0)
		send_frame(u, fd, rej, (size_t)n);
	/* Nothing unread is in the socket: closing it resets nothing. */
	shutdown(fd, SHUT_WR);
	cm_dev->fd_close(fd);
	return ret;
}

static int tcp_hold(struct user_id *u)
{
	uint8_t key[MPA_KEY_LEN];

	lock_assert_held(&u->lock);
	/* Linux siw takes half a reply for a broken one. */
	if (u->key_sent || u->fd < 0 || !u->conn.extended)
		return 0;
	mpa_reply_key(key);
	if (send(u->fd, key, sizeof(key), MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof(key))
		return -EPIPE;
	u->key_sent = true;
	return 0;
}

/* ---- active ------------------------------------------------------------------------- */

static enum user_after await_rep_ready(struct user_id *u)
{
	struct mpa_frame f;
	int sent = flush(u), ret;

	lock_assert_held(&u->lock);
	if (sent && sent != -EAGAIN) {
		user_failed(u, -sent);
		return AFTER_NONE;
	}
	ret = read_frame(u, &f);
	if (ret == -EAGAIN) {
		if (u->nego->in_len >= MPA_KEY_LEN && !u->heard)
			user_heard(u);
		ret = fd_watch(u, EPOLLIN | (sent ? EPOLLOUT : 0));
		if (ret)
			user_unreachable(u, -ret);
	} else if (ret == -EPROTO) {
		user_foreign(u, "its answer is no MPA reply");
	} else if (ret < 0) {
		user_failed(u, -ret);
	} else {
		user_answered(u, &f);
	}
	return AFTER_NONE;
}

static enum user_after tcp_up(struct user_id *u) REQUIRES(u->lock)
{
	user_called(u);
	return await_rep_ready(u);
}

static enum user_after connecting_ready(struct user_id *u)
{
	socklen_t len = sizeof(int);
	int err = 0;
	struct sockaddr_storage ss;
	socklen_t ss_len = sizeof(ss);

	lock_assert_held(&u->lock);
	if (getsockopt(u->fd, SOL_SOCKET, SO_ERROR, &err, &len))
		err = errno;
	if (!err && getpeername(u->fd, (struct sockaddr *)&ss, &ss_len))
		return AFTER_NONE; /* woken too early */
	if (!err)
		return tcp_up(u);
	if (err == ECONNREFUSED && u->watched)
		cm_dev->loop_fd_mod(&u->lf, 0); /* it may be asked again */
	user_failed(u, err);
	return AFTER_NONE;
}

static void socket_options(struct user_id *u, int fd)
{
	const struct conf *c = conf_get();
	int one = 1, tos = u->tos;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (c->sndbuf)
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &c->sndbuf, sizeof(c->sndbuf));
	if (c->rcvbuf)
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &c->rcvbuf, sizeof(c->rcvbuf));
	if (tos && u->src.ss_family == AF_INET)
		setsockopt(fd, IPPROTO_IP, IP_TOS, &tos, sizeof(tos));
	else if (tos)
		setsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &tos, sizeof(tos));
}

/* A socket bound to the id's source; the port is chosen at connect, per
 * destination. */
static int tcp_socket(struct user_id *u) REQUIRES(u->lock)
{
	struct sockaddr_storage from = u->src;
	int one = 1, fd;

	fd = socket(from.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	u->fd = cm_dev->fd_take(fd);
	socket_options(u, u->fd);
	sa_set_port((struct sockaddr *)&from, 0);
	setsockopt(u->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one));
	return bind(u->fd, (struct sockaddr *)&from, sa_len((struct sockaddr *)&from)) ?
		       -errno :
		       0;
}

/* Also for the second time, after a refusal: Linux takes the same socket again. */
static void tcp_connect(struct user_id *u) REQUIRES(u->lock)
{
	struct sockaddr_storage to = u->dst;
	int port = port_to_tcp(sa_port((struct sockaddr *)&u->dst), conf_get()->ports_identity);
	uint64_t now = user_now();
	int ret;

	sa_set_port((struct sockaddr *)&to, (uint16_t)port);
	ret = connect(u->fd, (struct sockaddr *)&to, sa_len((struct sockaddr *)&to));
	if (ret && errno == ECONNABORTED && u->refusals) /* ends the attempt before */
		ret = connect(u->fd, (struct sockaddr *)&to, sa_len((struct sockaddr *)&to));
	if (!ret) {
		tcp_up(u);
		return;
	}
	if (errno != EINPROGRESS) {
		user_failed(u, errno);
		return;
	}
	user_timer_set(u, u->final > now ? (u->final - now) / MSEC : 0);
	ret = fd_watch(u, EPOLLOUT);
	if (ret)
		user_unreachable(u, -ret);
}

static void tcp_call(struct user_id *u)
{
	int ret = 0;

	lock_assert_held(&u->lock);
	if (u->fd < 0)
		ret = tcp_socket(u);
	if (ret)
		user_failed(u, -ret);
	else
		tcp_connect(u);
}

/* ---- passive -------------------------------------------------------------------------- */

static enum user_after await_req_ready(struct user_id *u)
{
	struct mpa_frame f;
	int ret = read_frame(u, &f);
	enum user_after after = AFTER_NONE;

	lock_assert_held(&u->lock);
	if (ret < 0 && ret != -EAGAIN)
		return user_dropped(u, ret == -EPROTO ? "what it sent is no MPA request" :
							"it ended before its request");
	if (ret >= 0)
		after = user_requested(u, &f);
	if (after != AFTER_FORGET && fd_watch(u, EPOLLIN))
		return user_dropped(u, "its socket cannot be watched");
	return after;
}

/* The peer has nothing to say until our reply: the end of the stream, an error,
 * or a breach of the protocol. */
static enum user_after req_rcvd_ready(struct user_id *u)
{
	char byte;
	ssize_t got = recv(u->fd, &byte, 1, MSG_DONTWAIT);

	lock_assert_held(&u->lock);
	if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return AFTER_NONE;
	return user_hung_up(u, got > 0 ? "bytes came" : "the peer has gone");
}

void user_child_start(struct user_id *u)
{
	enum user_after after = AFTER_NONE;

	lock_get(&u->lock);
	if (!u->dead) {
		socket_options(u, u->fd);
		user_timer_set(u, USER_REQUEST_MS);
		after = await_req_ready(u);
	}
	lock_put(&u->lock);
	user_after(u, after);
}

/* ---- dispatch -------------------------------------------------------------------------- */

static enum user_after tcp_look(struct user_id *u)
{
	lock_assert_held(&u->lock);
	if (u->fd < 0)
		return AFTER_NONE;
	if (u->lingering)
		return linger(u);
	switch (u->state) {
	case US_CONNECTING:
		return u->pausing ? AFTER_NONE : connecting_ready(u);
	case US_AWAIT_REP:
		return await_rep_ready(u);
	case US_AWAIT_REQ:
		return await_req_ready(u);
	case US_REQ_RCVD:
		return req_rcvd_ready(u);
	default:
		return AFTER_NONE;
	}
}

static void tcp_ready(struct loop_fd *lf, uint32_t revents)
{
	struct user_id *u = container_of(lf, struct user_id, lf);
	enum user_after after;

	(void)revents; /* errors show in the next call on the socket */
	lock_get(&u->lock);
	after = tcp_look(u);
	lock_put(&u->lock);
	user_after(u, after);
}

const struct user_wire user_wire_tcp = {
	.call = tcp_call,
	.open = tcp_open,
	.accept = tcp_accept,
	.reject = tcp_reject,
	.hold = tcp_hold,
	.close = tcp_close,
	.expire = tcp_expire,
	.look = tcp_look,
};
