/* SPDX-License-Identifier: BSD-2-Clause */
/* The wire over a TCP connection of its own: to peers on other hosts, and to those that
 * share no memory with us. The socket is ours and non-blocking, in the loop, until a
 * stream takes it over in open() or accept(), nowhere else. */
#include "cm/user/wire_tcp.h"

#include "base/conf.h"
#include "base/log.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

static void tcp_ready(struct loop_fd *lf, uint32_t revents);

/* ---- the socket ------------------------------------------------------------------ */

static struct tcp_wire *to_tcp(const struct user_id *u)
{
	return container_of(u->wire, struct tcp_wire, head);
}

struct tcp_wire *tcp_wire_new(struct tcp_socket s)
{
	struct tcp_wire *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->head.ops = &user_wire_tcp;
	w->s = s;
	w->lf.fd = s.fd;
	w->lf.ready = tcp_ready;
	return w;
}

static void wire_free(struct tcp_wire *w)
{
	if (w->l)
		tcp_listener_put(w->l);
	free(w);
}

static void wire_done(struct loop_fd *lf)
{
	struct tcp_wire *w = container_of(lf, struct tcp_wire, lf);

	if (w->head.id)
		user_put(w->head.id);
	wire_free(w);
}

struct tcp_socket tcp_wire_end(struct tcp_wire *w)
{
	struct tcp_socket s = w->s;

	if (w->watched)
		cm_dev->loop_fd_del(&w->lf, wire_done);
	else
		wire_free(w);
	return s;
}

/* The id's wire ends. */
static struct tcp_socket wire_end(struct user_id *u) REQUIRES(u->lock)
{
	struct tcp_wire *w = to_tcp(u);

	u->wire = NULL;
	return tcp_wire_end(w);
}

int tcp_wire_watch(struct tcp_wire *w, uint32_t events)
{
	int ret;

	if (w->watched)
		return cm_dev->loop_fd_mod(&w->lf, events);
	w->lf.events = events;
	if (w->head.id)
		user_get(w->head.id);
	ret = cm_dev->loop_fd_add(&w->lf);
	w->watched = !ret;
	if (ret && w->head.id)
		user_put(w->head.id);
	return ret;
}

static void socket_options(const struct user_id *u, int fd)
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

int tcp_wire_read(struct tcp_wire *w, struct mpa_frame *f)
{
	ssize_t got;
	int ret;

	for (;;) {
		ret = mpa_decode(w->in, w->in_len, f);
		if (ret != -EAGAIN)
			return ret;
		got = recv(w->s.fd, w->in + w->in_len, mpa_want(w->in, w->in_len),
			   MSG_DONTWAIT);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return errno == EWOULDBLOCK ? -EAGAIN : -errno;
		if (!got)
			return -ENOTCONN;
		w->in_len += (size_t)got;
	}
}

static void tcp_close(struct user_id *u)
{
	lock_assert_held(&u->lock);
	tcp_socket_close(wire_end(u));
}

/* ---- the stream takes over ------------------------------------------------------- */

static int open_stream(struct user_id *u, int fd, const uint8_t *first, size_t len)
	REQUIRES(u->lock)
{
	struct stream_param p;

	user_stream_param(u, &p);
	user_get(u);
	u->stream = cm_dev->stream_open(fd, &p, first, len, &user_stream_upcalls, u);
	if (u->stream)
		return 0;
	user_put(u);
	return errno ? -errno : -ENOMEM;
}

static int tcp_open(struct user_id *u)
{
	struct tcp_socket s;
	int ret;

	lock_assert_held(&u->lock);
	s = wire_end(u);
	ret = open_stream(u, s.fd, NULL, 0);
	if (ret)
		cm_dev->fd_close(s.fd);
	return ret;
}

/* ---- active ---------------------------------------------------------------------- */

/* 0 when all is sent, -EAGAIN, or -errno. */
static int send_request(struct user_id *u) REQUIRES(u->lock)
{
	struct tcp_wire *w = to_tcp(u);
	ssize_t got;

	while (w->sent < u->req->len) {
		got = send(w->s.fd, u->req->frame + w->sent, u->req->len - w->sent,
			   MSG_NOSIGNAL | MSG_DONTWAIT);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return errno == EWOULDBLOCK ? -EAGAIN : -errno;
		w->sent += (size_t)got;
	}
	return 0;
}

static void await_rep_ready(struct user_id *u) REQUIRES(u->lock)
{
	struct tcp_wire *w = to_tcp(u);
	int sent = send_request(u), ret;
	struct mpa_frame f;

	if (sent && sent != -EAGAIN) {
		user_connect_failed(u, -sent);
		return;
	}
	ret = tcp_wire_read(w, &f);
	if (ret == -EAGAIN) {
		if (w->in_len >= MPA_KEY_LEN && !u->req_acked)
			user_req_acked(u);
		ret = tcp_wire_watch(w, EPOLLIN | (sent ? EPOLLOUT : 0));
		if (ret)
			user_unreachable(u, -ret);
	} else if (ret == -EPROTO) {
		user_foreign(u, "its answer is no MPA reply");
	} else if (ret < 0) {
		user_connect_failed(u, -ret);
	} else {
		user_got_reply(u, &f);
	}
}

static void connected(struct user_id *u) REQUIRES(u->lock)
{
	user_req_sent(u, false);
	await_rep_ready(u);
}

static void connecting_ready(struct user_id *u) REQUIRES(u->lock)
{
	int fd = to_tcp(u)->s.fd, err = 0;
	socklen_t len = sizeof(err);
	struct sockaddr_storage ss;
	socklen_t ss_len = sizeof(ss);

	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len))
		err = errno;
	if (err)
		user_connect_failed(u, err);
	else if (!getpeername(fd, (struct sockaddr *)&ss, &ss_len))
		connected(u);
	/* else woken too early */
}

/* A wire with a socket that is bound to the id's source; the port is chosen at connect,
 * per destination. */
static int wire_socket(struct user_id *u) REQUIRES(u->lock)
{
	struct sockaddr_storage from = user_addr_get(&u->src);
	struct tcp_socket s = { 0 };
	struct tcp_wire *w;
	int one = 1;

	s.fd = socket(from.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (s.fd < 0)
		return -errno;
	s.fd = cm_dev->fd_take(s.fd);
	w = tcp_wire_new(s);
	if (!w) {
		cm_dev->fd_close(s.fd);
		return -ENOMEM;
	}
	w->head.id = u;
	u->wire = &w->head;
	socket_options(u, s.fd);
	sa_set_port((struct sockaddr *)&from, 0);
	setsockopt(s.fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one));
	if (bind(s.fd, (struct sockaddr *)&from, sa_len((struct sockaddr *)&from)))
		return -errno;
	return 0;
}

static bool tcp_can_connect(const struct user_id *u)
{
	(void)u;
	return true;
}

static void tcp_connect(struct user_id *u)
{
	struct sockaddr_storage to = user_addr_get(&u->dst);
	int port = port_to_tcp(sa_port((struct sockaddr *)&u->dst), conf_get()->ports_identity);
	int ret;

	lock_assert_held(&u->lock);
	ret = wire_socket(u);
	if (ret) {
		user_connect_failed(u, -ret);
		return;
	}
	sa_set_port((struct sockaddr *)&to, (uint16_t)port);
	if (!connect(to_tcp(u)->s.fd, (struct sockaddr *)&to, sa_len((struct sockaddr *)&to))) {
		connected(u);
	} else if (errno != EINPROGRESS) {
		user_connect_failed(u, errno);
	} else {
		ret = tcp_wire_watch(to_tcp(u), EPOLLOUT);
		if (ret)
			user_unreachable(u, -ret);
	}
}

/* ---- passive --------------------------------------------------------------------- */

/* Loop thread, and `from` is pending no more. */
static int tcp_attach(struct user_id *child, void *from)
{
	struct tcp_wire *w = from;
	int ret = 0;

	lock_assert_held(&child->lock);
	w->head.id = child;
	if (w->watched)
		user_get(child);
	else
		ret = tcp_wire_watch(w, EPOLLIN);
	if (ret) {
		w->head.id = NULL;
		return ret;
	}
	/* Not the last reference: w was pending a moment ago, so the listener's descriptor
	 * is in the loop until this callback returns. */
	tcp_listener_put(w->l);
	w->l = NULL;
	child->wire = &w->head;
	socket_options(child, w->s.fd);
	return 0;
}

static int tcp_ack_request(struct user_id *u)
{
	struct tcp_wire *w;
	uint8_t key[MPA_KEY_LEN];

	lock_assert_held(&u->lock);
	w = to_tcp(u);
	/* Linux siw takes half a reply for a broken one. */
	if (w->key_sent || !u->conn.extended)
		return 0;
	mpa_reply_key(key);
	if (send(w->s.fd, key, sizeof(key), MSG_NOSIGNAL | MSG_DONTWAIT) !=
	    (ssize_t)sizeof(key))
		return -EPIPE;
	w->key_sent = true;
	return 0;
}

/* The rest of a reply, all but `skip` bytes. A few hundred bytes into an empty socket
 * buffer go whole or not at all; a peer that made that impossible gets the end of the
 * stream. */
static bool send_frame(int fd, const uint8_t *frame, size_t len, size_t skip)
{
	return len > skip && send(fd, frame + skip, len - skip, MSG_NOSIGNAL | MSG_DONTWAIT) ==
				     (ssize_t)(len - skip);
}

static size_t reply_skip(const struct user_id *u)
{
	return to_tcp(u)->key_sent ? MPA_KEY_LEN : 0;
}

static int tcp_accept(struct user_id *u, const uint8_t *rep, size_t len)
{
	uint8_t rej[MPA_OURS_MAX];
	struct tcp_socket s;
	size_t skip;
	int ret, n;

	lock_assert_held(&u->lock);
	skip = reply_skip(u);
	s = wire_end(u);
	ret = open_stream(u, s.fd, rep + skip, len - skip);
	if (!ret)
		return 0;
	n = user_rej_build(u, CM_REJ_CONSUMER, NULL, 0, rej, sizeof(rej));
	if (n > 0)
		send_frame(s.fd, rej, (size_t)n, skip);
	/* Nothing unread is in the socket: closing it resets nothing. */
	shutdown(s.fd, SHUT_WR);
	cm_dev->fd_close(s.fd);
	return ret;
}

/* The request has been read: closing resets only what should not have come. */
static void tcp_reject(struct user_id *u, const uint8_t *rej, size_t len)
{
	struct tcp_socket s;
	size_t skip;

	lock_assert_held(&u->lock);
	skip = reply_skip(u);
	s = wire_end(u);
	if (!send_frame(s.fd, rej, len, skip) || shutdown(s.fd, SHUT_WR) || !tcp_linger(s))
		tcp_socket_close(s);
}

/* The peer has nothing to send until our reply: what comes is the end of the stream, an
 * error, or a breach of the protocol. */
static enum user_todo req_rcvd_ready(struct user_id *u) REQUIRES(u->lock)
{
	char byte;
	ssize_t got = recv(to_tcp(u)->s.fd, &byte, 1, MSG_DONTWAIT);

	if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return TODO_NOTHING;
	return user_request_cancelled(u, got > 0 ? "bytes came" : "the peer has gone");
}

/* ---- dispatch -------------------------------------------------------------------- */

static enum user_todo tcp_poll(struct user_id *u)
{
	lock_assert_held(&u->lock);
	if (u->state == US_CONNECTING)
		connecting_ready(u);
	else if (u->state == US_AWAIT_REP)
		await_rep_ready(u);
	else if (u->state == US_REQ_RCVD)
		return req_rcvd_ready(u);
	return TODO_NOTHING;
}

static void tcp_ready(struct loop_fd *lf, uint32_t revents)
{
	struct tcp_wire *w = container_of(lf, struct tcp_wire, lf);
	struct user_id *u = w->head.id;
	enum user_todo todo = TODO_NOTHING;

	(void)revents; /* errors show in the next call on the socket */
	if (!u) {
		tcp_pending_ready(w);
		return;
	}
	lock_get(&u->lock);
	if (u->wire == &w->head)
		todo = tcp_poll(u);
	lock_put(&u->lock);
	user_listener_do(u, todo);
}

const struct user_wire_ops user_wire_tcp = {
	.name = "tcp",
	.can_connect = tcp_can_connect,
	.connect = tcp_connect,
	.open = tcp_open,
	.attach = tcp_attach,
	.ack_request = tcp_ack_request,
	.accept = tcp_accept,
	.reject = tcp_reject,
	.close = tcp_close,
	.poll = tcp_poll,
	.listen = tcp_listen,
	.unlisten = tcp_unlisten,
};
