/* SPDX-License-Identifier: BSD-2-Clause */
/* The MPA stage of a connection, both sides: from the TCP socket to the whole
 * request or reply. The socket is ours and non-blocking, in the loop; it changes
 * its owner in user_stream_start() (stream.c), nowhere else.
 *
 * The one timer of an id, by state:
 *	TCP_CONNECTING	the SYN is not answered: UNREACHABLE
 *	AWAIT_REP	5 s (another host: 15 s) without even the key of a reply:
 *			held by another program, REJECTED 8; after the key, or
 *			when the port has an owner of ours on this host:
 *			UNREACHABLE at the end of the CM's retries
 *	AWAIT_REQ	10 s for a whole request
 *	REQ_RCVD	first: the application is slow, send the reply's key ahead;
 *			then, while above the backlog: offer it again
 *	REP_SENT	no RTU: UNREACHABLE
 *	DREQ_SENT	no DREP: DISCONNECTED -ETIMEDOUT
 *	TIMEWAIT	TIMEWAIT_EXIT
 *	LISTEN		accept again after a shortage
 *	lingering	the peer does not close after a reject */
#include "base/conf.h"
#include "base/log.h"
#include "cm/user/user.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/* What is to be done at the listener once the child's lock is dropped. */
enum after { AFTER_NONE, AFTER_OFFER, AFTER_FORGET, AFTER_LISTENER };

enum { REFUSALS = 8 };

static void conn_ready(struct loop_fd *lf, uint32_t revents);

static void do_after(struct user_id *u, enum after after)
{
	if (after == AFTER_OFFER)
		user_listener_offer(u->listener, u);
	else if (after == AFTER_FORGET)
		user_listener_forget(u->listener, u);
	else if (after == AFTER_LISTENER)
		user_listener_timeout(u);
}

static const char *peer_str(struct user_id *u, char buf[PORT_ADDR_STR])
{
	return sa_str((struct sockaddr *)&u->dst, buf);
}

static uint64_t retry_time_ms(void)
{
	const struct conf *c = conf_get();

	return (uint64_t)c->cm_retry_ms * (c->cm_retries + 1ull);
}

/* ---- the socket ---------------------------------------------------------------------- */

static void fd_done(struct loop_fd *lf)
{
	user_put(container_of(lf, struct user_id, lf));
}

int user_fd_watch(struct user_id *u, uint32_t events)
{
	int ret;

	if (u->watched)
		return cm_dev->loop_fd_mod(&u->lf, events);
	u->lf.fd = u->fd;
	u->lf.events = events;
	u->lf.ready = conn_ready;
	ret = cm_dev->loop_fd_add(&u->lf);
	if (!ret) {
		u->watched = true;
		user_get(u);
	}
	return ret;
}

/* Out of the loop; the caller owns the descriptor. A ready() on its way finds
 * u->fd < 0 under the lock and touches nothing. */
int user_fd_take(struct user_id *u)
{
	int fd = u->fd;

	u->fd = -1;
	if (u->watched)
		cm_dev->loop_fd_del(&u->lf, fd_done);
	u->watched = false;
	return fd;
}

void user_fd_close(struct user_id *u)
{
	int fd = user_fd_take(u);

	if (fd < 0)
		return;
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

static enum after linger(struct user_id *u)
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
		user_fd_close(u);
	}
	return AFTER_NONE;
}

/* A few hundred bytes into an empty socket buffer go whole or not at all; a peer
 * that made that impossible gets the end of the stream. */
static bool send_reject(struct user_id *u, int fd, uint16_t reason, const void *data,
			uint8_t len)
{
	uint8_t buf[MPA_OURS_MAX];
	struct mpa_cm_rej r = { .reason = reason, .priv = data, .priv_len = len };
	struct mpa_frame f = {
		.reply = true,
		.flags = MPA_F_REJECT,
		.rev = u->conn.mpa_rev ? u->conn.mpa_rev : MPA_REV,
		.pd = data,
		.pd_len = len,
	};
	int skip = u->key_sent ? MPA_KEY_LEN : 0, n;

	n = conf_get()->ports_identity ? mpa_plain_encode(buf, sizeof(buf), &f, 0, 0, 0) :
					 mpa_cm_rej_encode(buf, sizeof(buf), &r);
	return n > 0 && send(fd, buf + skip, (size_t)(n - skip),
			     MSG_NOSIGNAL | MSG_DONTWAIT) == n - skip;
}

void user_reject_fd(struct user_id *u, int fd, uint16_t reason)
{
	send_reject(u, fd, reason, NULL, 0);
	shutdown(fd, SHUT_WR);
	cm_dev->fd_close(fd);
}

void user_reject_stream(struct user_id *u, uint16_t reason, const void *data, uint8_t len)
{
	user_unexpect(u);
	if (u->fd < 0)
		return;
	if (!send_reject(u, u->fd, reason, data, len) || shutdown(u->fd, SHUT_WR) ||
	    user_fd_watch(u, EPOLLIN)) {
		user_fd_close(u);
		user_timer_stop(u);
		return;
	}
	u->lingering = true;
	user_timer_set(u, USER_LINGER_MS);
}

void user_unexpect(struct user_id *u)
{
	if (u->expected)
		cm_dev->stream_unexpect(&u->conn.remote_gid, u->conn.remote_qpn);
	u->expected = false;
}

/* ---- active ------------------------------------------------------------------------- */

static void active_rejected(struct user_id *u, int reason, const void *priv, size_t len)
	REQUIRES(u->lock)
{
	user_step(u, ST_REJECTED);
	user_timer_stop(u);
	user_fd_close(u);
	user_post_rejected(u, reason, priv, len);
}

static void active_unreachable(struct user_id *u, int err) REQUIRES(u->lock)
{
	char a[PORT_ADDR_STR];

	log_info("connection to %s: unreachable: %s", peer_str(u, a), strerror(err));
	user_step(u, ST_FAIL);
	user_timer_stop(u);
	user_fd_close(u);
	user_post(u, RDMA_CM_EVENT_UNREACHABLE, -err);
}

/* A listener may be about to come: a server that makes a new one for each client
 * (perftest -R) is without one for a moment. The kernel's CM is so slow that nobody
 * meets that moment there; here the client asks again for REFUSALS times, 255 ms in
 * all, before it believes it. */
static bool refused_for_now(struct user_id *u) REQUIRES(u->lock)
{
	if (u->state != US_TCP_CONNECTING || u->fd < 0 || u->refusals == REFUSALS)
		return false;
	if (u->watched)
		cm_dev->loop_fd_mod(&u->lf, 0);
	u->pausing = true;
	user_timer_set(u, 1u << u->refusals++);
	return true;
}

/* The TCP connection did not come about, or ended before any answer. */
static void active_failed(struct user_id *u, int err) REQUIRES(u->lock)
{
	char a[PORT_ADDR_STR];

	if (err == ECONNREFUSED && refused_for_now(u))
		return;
	if (err != ECONNREFUSED && err != ECONNRESET && err != ENOTCONN && err != EPIPE) {
		active_unreachable(u, err);
		return;
	}
	/* Once the key had come one of ours held the request: it died with it. */
	log_info("connection to %s: %s", peer_str(u, a),
		 err == ECONNREFUSED ? "no listener on that port" :
				       "the peer closed it without an answer");
	active_rejected(u, u->key_seen ? CM_REJ_CONSUMER : CM_REJ_NO_LISTENER, NULL, 0);
}

static void active_foreign(struct user_id *u, const char *why) REQUIRES(u->lock)
{
	char a[PORT_ADDR_STR];
	int tcp = port_to_tcp(sa_port((struct sockaddr *)&u->dst),
			      conf_get()->ports_identity);

	log_warn("connection to %s: its TCP port %d is held by another program: %s",
		 peer_str(u, a), tcp, why);
	active_rejected(u, CM_REJ_NO_LISTENER, NULL, 0);
}

static enum after await_rep_ready(struct user_id *u);

static enum after tcp_up(struct user_id *u) REQUIRES(u->lock)
{
	uint64_t now = user_now(), left = u->final > now ? (u->final - now) / MSEC : 0;
	uint64_t reply = conf_get()->cm_reply_ms;

	u->born = now;
	user_step(u, ST_TCP_UP);
	user_timer_set(u, reply < left ? reply : left);
	return await_rep_ready(u);
}

static enum after tcp_connecting_ready(struct user_id *u)
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
	active_failed(u, err);
	return AFTER_NONE;
}

static void got_reply(struct user_id *u, const struct mpa_frame *f) REQUIRES(u->lock)
{
	const uint8_t *priv = NULL;
	uint8_t len = 0;
	uint16_t reason = 0;
	char a[PORT_ADDR_STR];
	int ret;

	switch (user_rep_parse(u, f, &priv, &len, &reason)) {
	case USER_ANSWER_FOREIGN:
		active_foreign(u, "it answered something else");
		return;
	case USER_ANSWER_REJ:
		log_info("connection to %s: rejected, reason %u", peer_str(u, a), reason);
		active_rejected(u, reason, priv, len);
		return;
	case USER_ANSWER_REP:
		break;
	}
	user_timer_stop(u);
	ret = user_stream_start(u, NULL, 0);
	if (ret) {
		user_step(u, ST_FAIL);
		user_post(u, RDMA_CM_EVENT_CONNECT_ERROR, ret);
		return;
	}
	user_step(u, ST_REP);
	user_post_response(u, priv, len);
	free(u->nego);
	u->nego = NULL;
}

static enum after await_rep_ready(struct user_id *u)
{
	struct mpa_frame f;
	uint64_t now;
	int sent = flush(u), ret;

	lock_assert_held(&u->lock);
	if (sent && sent != -EAGAIN) {
		active_failed(u, -sent);
		return AFTER_NONE;
	}
	ret = read_frame(u, &f);
	if (ret == -EAGAIN) {
		if (u->nego->in_len >= MPA_KEY_LEN && !u->key_seen) {
			u->key_seen = true;
			now = user_now();
			user_timer_set(u, u->final > now ? (u->final - now) / MSEC : 0);
		}
		ret = user_fd_watch(u, EPOLLIN | (sent ? EPOLLOUT : 0));
		if (ret)
			active_unreachable(u, -ret);
	} else if (ret == -EPROTO) {
		active_foreign(u, "its answer is no MPA reply");
	} else if (ret < 0) {
		active_failed(u, -ret);
	} else {
		got_reply(u, &f);
	}
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
		active_failed(u, errno);
		return;
	}
	user_timer_set(u, u->final > now ? (u->final - now) / MSEC : 0);
	ret = user_fd_watch(u, EPOLLOUT);
	if (ret)
		active_unreachable(u, -ret);
}

static void active_start(struct user_id *u) REQUIRES(u->lock)
{
	uint16_t port = sa_port((struct sockaddr *)&u->dst);
	int ret = -ECONNREFUSED;

	u->final = user_now() + retry_time_ms() * MSEC;
	if (port && port_to_tcp(port, conf_get()->ports_identity) > 0)
		ret = tcp_socket(u);
	if (ret)
		active_failed(u, -ret);
	else
		tcp_connect(u);
}

static int connect_check(struct user_id *u, const struct cm_conn_param *p)
	REQUIRES(u->lock)
{
	if (u->state == US_REMOVED)
		return -ENXIO;
	if (user_state_next(u->state, ST_CONNECT) < 0)
		return log_refuse(EINVAL, "connect is refused: the id is in state %s",
				  user_state_str(u->state));
	if (u->qp_type == IBV_QPT_UD || u->ps == RDMA_PS_UDP || u->ps == RDMA_PS_IPOIB)
		return log_refuse(EOPNOTSUPP, "connect: datagram port spaces come later");
	if (u->qp_type != IBV_QPT_RC && conf_get()->ports_identity)
		return log_refuse(EOPNOTSUPP, "connect: iWARP has no QPs of type %d",
				  (int)u->qp_type);
	if (p->private_data_len > CM_PRIV_REQ)
		return log_refuse(EINVAL, "connect: %u bytes of private data, at most %d fit",
				  p->private_data_len, CM_PRIV_REQ);
	return 0;
}

int user_connect(struct cm_id *id, const struct cm_conn_param *p)
{
	struct user_id *u = to_user(id);
	int ret;

	lock_get(&u->lock);
	ret = connect_check(u, p);
	if (!ret && !u->nego) {
		u->nego = calloc(1, sizeof(*u->nego));
		if (!u->nego)
			ret = -ENOMEM;
	}
	if (!ret)
		ret = user_req_build(u, p);
	if (!ret) {
		port_drop_tcp(&u->port);
		user_step(u, ST_CONNECT);
		active_start(u);
	}
	lock_put(&u->lock);
	return ret;
}

/* ---- passive -------------------------------------------------------------------------- */

static enum after passive_failed(struct user_id *u, const char *why) REQUIRES(u->lock)
{
	char a[PORT_ADDR_STR];

	log_info("connection from %s is dropped: %s", peer_str(u, a), why);
	user_step(u, ST_FAIL);
	user_unexpect(u);
	user_timer_stop(u);
	user_fd_close(u);
	return AFTER_FORGET;
}

static enum after got_request(struct user_id *u, const struct mpa_frame *f)
	REQUIRES(u->lock)
{
	uint16_t reason;
	char a[PORT_ADDR_STR];
	uint64_t ahead = conf_get()->cm_reply_ms / 5;

	if (user_req_parse(u, f, &reason)) {
		if (!reason)
			return passive_failed(u, "its MPA request is not one of ours");
		log_info("request from %s is rejected, reason %u", peer_str(u, a), reason);
		user_step(u, ST_REJECT);
		user_reject_stream(u, reason, NULL, 0);
		return AFTER_FORGET;
	}
	user_step(u, ST_REQ);
	u->bound = true;
	user_timer_set(u, ahead);
	if (user_fd_watch(u, EPOLLIN))
		return passive_failed(u, "its socket cannot be watched");
	return AFTER_OFFER;
}

static enum after await_req_ready(struct user_id *u)
{
	struct mpa_frame f;
	int ret = read_frame(u, &f);

	lock_assert_held(&u->lock);
	if (ret >= 0)
		return got_request(u, &f);
	if (ret == -EAGAIN)
		return user_fd_watch(u, EPOLLIN) ?
			       passive_failed(u, "its socket cannot be watched") :
			       AFTER_NONE;
	return passive_failed(u, ret == -EPROTO ? "what it sent is no MPA request" :
						  "it ended before its request");
}

/* The peer has nothing to say until our reply: the end of the stream, an error,
 * or a breach of the protocol. */
static enum after req_rcvd_ready(struct user_id *u)
{
	char byte, a[PORT_ADDR_STR];
	ssize_t got = recv(u->fd, &byte, 1, MSG_DONTWAIT);

	lock_assert_held(&u->lock);
	if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return AFTER_NONE;
	log_info("connection from %s: %s before it was accepted", peer_str(u, a),
		 got > 0 ? "bytes came" : "the peer has gone");
	user_step(u, ST_GONE);
	user_unexpect(u);
	user_timer_stop(u);
	user_fd_close(u);
	return AFTER_FORGET;
}

void user_child_start(struct user_id *u)
{
	enum after after = AFTER_NONE;

	lock_get(&u->lock);
	if (!u->dead) {
		socket_options(u, u->fd);
		user_timer_set(u, USER_REQUEST_MS);
		after = await_req_ready(u);
	}
	lock_put(&u->lock);
	do_after(u, after);
}

/* ---- dispatch -------------------------------------------------------------------------- */

static enum after tcp_connecting_timeout(struct user_id *u)
{
	lock_assert_held(&u->lock);
	if (u->pausing) {
		u->pausing = false;
		tcp_connect(u);
	} else {
		active_unreachable(u, ETIMEDOUT);
	}
	return AFTER_NONE;
}

/* Until when (ns) a peer that has said nothing may still be one of ours that does
 * not run: stopped, or swapped out. On this host its name tells; on another one
 * time alone can. */
static uint64_t silence_ends(struct user_id *u) REQUIRES(u->lock)
{
	const struct sockaddr *dst = (struct sockaddr *)&u->dst;
	uint64_t reply = conf_get()->cm_reply_ms * MSEC;

	if (u->key_seen)
		return u->final;
	if (conf_get()->ports_identity || cm_dev->gid_of_addr(dst) < 0)
		return u->born + USER_REPLY_REMOTE * reply;
	return port_owned(u->ps, dst, sa_port(dst)) ? u->final : u->born + reply;
}

static enum after await_rep_timeout(struct user_id *u)
{
	uint64_t now = user_now(), until;

	lock_assert_held(&u->lock);
	until = silence_ends(u);
	if (until > u->final)
		until = u->final;
	if (now < until)
		user_timer_set(u, (until - now) / MSEC + 1);
	else if (now >= u->final || conf_get()->ports_identity)
		active_unreachable(u, ETIMEDOUT);
	else
		active_foreign(u, "it does not answer");
	return AFTER_NONE;
}

static enum after await_req_timeout(struct user_id *u)
{
	lock_assert_held(&u->lock);
	return passive_failed(u, "no whole request in time");
}

static enum after req_rcvd_timeout(struct user_id *u)
{
	uint8_t key[MPA_KEY_LEN];

	lock_assert_held(&u->lock);
	/* Linux siw takes half a reply for a broken one. */
	if (!u->key_sent && u->fd >= 0 && u->conn.extended) {
		mpa_reply_key(key);
		if (send(u->fd, key, sizeof(key), MSG_NOSIGNAL | MSG_DONTWAIT) !=
		    (ssize_t)sizeof(key))
			return passive_failed(u, "its socket takes no bytes");
		u->key_sent = true;
	}
	if (u->offered)
		return AFTER_NONE;
	if (++u->offers > conf_get()->cm_retries + 1)
		return passive_failed(u, "the listener's backlog stayed full");
	user_timer_set(u, conf_get()->cm_retry_ms);
	return AFTER_OFFER;
}

static enum after rep_sent_timeout(struct user_id *u)
{
	char a[PORT_ADDR_STR];

	lock_assert_held(&u->lock);
	log_info("connection from %s: the peer did not confirm our reply", peer_str(u, a));
	user_send_rej(u, CM_REJ_TIMEOUT, NULL, 0);
	user_step(u, ST_TIMEOUT);
	user_stream_release(u);
	user_post(u, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
	return AFTER_NONE;
}

static enum after dreq_sent_timeout(struct user_id *u)
{
	lock_assert_held(&u->lock);
	user_dreq_timeout(u);
	return AFTER_NONE;
}

static enum after timewait_timeout(struct user_id *u)
{
	lock_assert_held(&u->lock);
	user_timewait_over(u);
	return AFTER_NONE;
}

static enum after listen_timeout(struct user_id *u)
{
	(void)u;
	return AFTER_LISTENER;
}

/* All run with the id's lock held. */
static const struct {
	enum after (*ready)(struct user_id *u);
	enum after (*timeout)(struct user_id *u);
} rows[US_COUNT] = {
	[US_LISTEN] = { NULL, listen_timeout },
	[US_TCP_CONNECTING] = { tcp_connecting_ready, tcp_connecting_timeout },
	[US_AWAIT_REP] = { await_rep_ready, await_rep_timeout },
	[US_AWAIT_REQ] = { await_req_ready, await_req_timeout },
	[US_REQ_RCVD] = { req_rcvd_ready, req_rcvd_timeout },
	[US_REP_SENT] = { NULL, rep_sent_timeout },
	[US_DREQ_SENT] = { NULL, dreq_sent_timeout },
	[US_TIMEWAIT] = { NULL, timewait_timeout },
};

static void conn_ready(struct loop_fd *lf, uint32_t revents)
{
	struct user_id *u = container_of(lf, struct user_id, lf);
	enum after after = AFTER_NONE;

	(void)revents; /* errors show in the next call on the socket */
	lock_get(&u->lock);
	if (u->fd >= 0 && u->lingering)
		after = linger(u);
	else if (u->fd >= 0 && rows[u->state].ready)
		after = rows[u->state].ready(u);
	lock_put(&u->lock);
	do_after(u, after);
}

/* When this process itself did not run for a while (stopped, suspended), an answer
 * may have come in time that the loop has not reached yet: it counts. */
static enum after timed_out(struct user_id *u) REQUIRES(u->lock)
{
	enum user_state was = u->state;
	enum after after = AFTER_NONE;

	if (u->fd >= 0 && rows[was].ready)
		after = rows[was].ready(u);
	if (u->state == was && user_now() >= u->deadline && rows[was].timeout)
		after = rows[was].timeout(u);
	return after;
}

void user_timer_fire(struct loop_timer *t)
{
	struct user_id *u = container_of(t, struct user_id, timer);
	enum after after = AFTER_NONE;

	lock_get(&u->lock);
	if (user_now() < u->deadline)
		; /* stopped or moved while it was about to fire */
	else if (u->lingering)
		user_fd_close(u);
	else
		after = timed_out(u);
	lock_put(&u->lock);
	do_after(u, after);
	user_put(u);
}
