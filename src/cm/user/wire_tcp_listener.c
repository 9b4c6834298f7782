/* SPDX-License-Identifier: BSD-2-Clause */
/* The listening side of the TCP wire. The accept queue is drained at once. A connection
 * is a wire without an id (`pending`) until its request is whole; then the listener makes
 * a child, whose wire it becomes. The reserve descriptor is here too.
 *
 * accept() stops for a while (`paused`) when there are no descriptors, when the listener
 * has too many requests, or when too many connections are pending and all of them are
 * young. */
#include "cm/user/wire_tcp.h"

#include "base/conf.h"
#include "base/log.h"
#include "base/origin.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
	ACCEPTS_PER_TURN = 256,
	PAUSE_MS = 250,
	SPARED_MS = 500,      /* a pending connection may be displaced when it is older */
	REJ_NO_RESOURCES = 3, /* reject reason of the CM */
};

struct tcp_listener {
	struct user_wire_listener head; /* .id: counted until the struct is freed */
	atomic_int refs; /* one of each: tcp_unlisten(), the loop (lf), the armed timer,
			  * every pending wire */
	struct lock lock; /* guards all below. Order: before the lock of the id */
	struct loop_fd lf;
	bool stopped;
	bool paused;
	bool full;		 /* paused because too many are pending */
	uint64_t resume_at;	 /* ns, while paused */
	struct list pending;	 /* struct tcp_wire, oldest first, all in the loop when the
				  * lock is free */
	uint32_t pending_count;
	struct origins origins;	 /* where these come from */
	struct loop_timer timer; /* end of the pause, or the oldest pending is late */
	uint64_t timer_at;	 /* ns; 0: not armed */
};

/* ---- the reserve descriptor ------------------------------------------------------ */

/* One descriptor kept back, so that a process without any can still accept and reject
 * instead of leaving its peers in doubt. */
static struct {
	struct lock lock; /* leaf */
	int fd GUARDED_BY(lock); /* 0: none */
} reserve PROCESS_STATE = { .lock = LOCK_INIT };

static void reserve_refill(void)
{
	int fd;

	lock_get(&reserve.lock);
	if (reserve.fd <= 0) {
		fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
		reserve.fd = fd < 0 ? 0 : cm_dev->fd_take(fd);
	}
	lock_put(&reserve.lock);
}

static bool reserve_use(void)
{
	bool had;

	lock_get(&reserve.lock);
	had = reserve.fd > 0;
	if (had)
		cm_dev->fd_close(reserve.fd);
	reserve.fd = 0;
	lock_put(&reserve.lock);
	return had;
}

/* The socket itself, shut down, becomes the reserve: its number never goes back to a
 * process that is short of numbers and would use it. */
static bool reserve_return(int fd)
{
	bool kept;

	lock_get(&reserve.lock);
	kept = reserve.fd <= 0;
	if (kept) {
		shutdown(fd, SHUT_RDWR);
		reserve.fd = fd;
	}
	lock_put(&reserve.lock);
	return kept;
}

void tcp_socket_close(struct tcp_socket s)
{
	if (!s.reserve || !reserve_return(s.fd))
		cm_dev->fd_close(s.fd);
}

/* ---- the listener's life, pause and timer ---------------------------------------- */

void tcp_listener_put(struct tcp_listener *l)
{
	if (atomic_fetch_sub_explicit(&l->refs, 1, memory_order_acq_rel) != 1)
		return;
	lock_fini(&l->lock);
	user_put(l->head.id);
	free(l);
}

static void listener_get(struct tcp_listener *l)
{
	atomic_fetch_add_explicit(&l->refs, 1, memory_order_relaxed);
}

static void timer_by(struct tcp_listener *l, uint64_t when) REQUIRES(l->lock)
{
	if (l->timer_at && l->timer_at <= when)
		return;
	l->timer_at = when;
	listener_get(l);
	if (!cm_dev->loop_timer_set(&l->timer, when))
		tcp_listener_put(l);
}

static void pause_accept(struct tcp_listener *l, bool full) REQUIRES(l->lock)
{
	l->paused = true;
	l->full = full;
	l->resume_at = user_now() + PAUSE_MS * MSEC;
	cm_dev->loop_fd_mod(&l->lf, 0);
	timer_by(l, l->resume_at);
}

static void resume_accept(struct tcp_listener *l) REQUIRES(l->lock)
{
	l->paused = l->full = false;
	cm_dev->loop_fd_mod(&l->lf, EPOLLIN);
}

/* ---- pending connections --------------------------------------------------------- */

static struct tcp_wire *pending_new(struct tcp_listener *l, struct tcp_socket s,
				    const struct sockaddr_storage *peer) REQUIRES(l->lock)
{
	struct tcp_wire *w = tcp_wire_new(s);

	if (!w)
		return NULL;
	w->l = l;
	listener_get(l);
	w->peer = *peer;
	w->origin = origin_of((const struct sockaddr *)peer);
	w->since = user_now();
	list_add_tail(&l->pending, &w->pending);
	l->origins.from[w->origin]++;
	l->pending_count++;
	return w;
}

static void pending_leave(struct tcp_listener *l, struct tcp_wire *w) REQUIRES(l->lock)
{
	list_del(&w->pending);
	l->origins.from[w->origin]--;
	l->pending_count--;
	if (l->full && l->pending_count <= USER_HALF_OPEN_MAX / 2)
		resume_accept(l);
}

static void drop(struct tcp_wire *w, const char *why)
{
	char a[PORT_ADDR_STR];

	log_info("connection from %s is dropped: %s",
		 sa_str((struct sockaddr *)&w->peer, a), why);
	tcp_socket_close(tcp_wire_end(w));
}

/* The request is whole, the wire pending no more. No lock held. */
static void hand_over(struct tcp_listener *l, struct tcp_wire *w, const struct mpa_frame *f)
{
	struct user_incoming in = {
		.wire = &user_wire_tcp,
		.from = w,
		.dst = w->peer,
		.frame = f,
		.reject = w->s.reserve ? REJ_NO_RESOURCES : 0,
	};
	socklen_t len = sizeof(in.src);
	int ret;

	getsockname(w->s.fd, (struct sockaddr *)&in.src, &len);
	ret = user_listener_request(l->head.id, &in);
	if (ret == -ENOENT || ret == -ENOMEM)
		tcp_socket_close(tcp_wire_end(w));
	else if (ret)
		drop(w, "its socket cannot be watched");
}

/* Reads what has come, in the loop thread. The wire stays pending if the request is not
 * whole; else it ends or becomes a child's, and the lock is released for a moment.
 * late: it must not stay. */
static void pending_read(struct tcp_listener *l, struct tcp_wire *w, bool late)
	REQUIRES(l->lock)
{
	const char *why = NULL;
	struct mpa_frame f;
	int ret = tcp_wire_read(w, &f);

	if (ret == -EAGAIN && late)
		why = "no whole request in time";
	else if (ret == -EAGAIN && !w->watched && tcp_wire_watch(w, EPOLLIN))
		why = "its socket cannot be watched";
	else if (ret == -EAGAIN)
		return;
	else if (ret == -EPROTO)
		why = "what it sent is no MPA request";
	else if (ret < 0)
		why = "it ended before its request";
	pending_leave(l, w);
	lock_put(&l->lock);
	if (why)
		drop(w, why);
	else
		hand_over(l, w, &f);
	lock_get(&l->lock);
}

void tcp_pending_ready(struct tcp_wire *w)
{
	struct tcp_listener *l = w->l;

	lock_get(&l->lock);
	if (list_linked(&w->pending))
		pending_read(l, w, false);
	lock_put(&l->lock);
}

/* ---- accept ---------------------------------------------------------------------- */

/* Peers can repeat it as they like: the log need not. */
static void say_exhausted(const struct user_id *lis)
{
	static _Atomic uint64_t said;
	uint64_t now = user_now(), last = atomic_load(&said);

	if ((last && now - last < SEC) || !atomic_compare_exchange_strong(&said, &last, now))
		return;
	log_error("out of descriptors: connections to RDMA port %u are rejected",
		  lis->port.num);
}

static bool queue_empty(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) <= 0;
}

/* 0 and *s, or -errno; s->reserve says in either case whether the reserve was used. */
static int accept_socket(struct tcp_listener *l, struct tcp_socket *s,
			 struct sockaddr_storage *peer) REQUIRES(l->lock)
{
	socklen_t len;
	int err;

	s->reserve = false;
	for (;;) {
		len = sizeof(*peer);
		memset(peer, 0, sizeof(*peer));
		s->fd = accept4(l->lf.fd, (struct sockaddr *)peer, &len,
				SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (s->fd >= 0)
			return 0;
		err = errno;
		switch (err) {
		case EMFILE:
		case ENFILE:
			/* Linux says so without looking whether anybody waits. */
			if (queue_empty(l->lf.fd))
				return -EAGAIN;
			if (s->reserve || !reserve_use())
				return -err;
			s->reserve = true;
			say_exhausted(l->head.id);
			continue;
		case ECONNABORTED:
		case EINTR:
		case EPROTO:
			continue;
		default:
			return -err;
		}
	}
}

/* The oldest pending wire of the origin with the most of them. */
static struct tcp_wire *oldest_of_most(struct tcp_listener *l) REQUIRES(l->lock)
{
	uint32_t most = origin_most(&l->origins);
	struct tcp_wire *w;

	list_for_each(w, &l->pending, pending)
		if (l->origins.from[w->origin] == most)
			return w;
	return NULL;
}

static void displace(struct tcp_listener *l, struct tcp_wire *w) REQUIRES(l->lock)
{
	log_info("RDMA port %u: a silent stream makes room for another",
		 l->head.id->port.num);
	pending_leave(l, w);
	tcp_socket_close(tcp_wire_end(w));
}

/* Accepts one connection. False: enough for now. The lock may be released for a
 * moment. */
static bool accept_one(struct tcp_listener *l) REQUIRES(l->lock)
{
	struct tcp_wire *old = NULL, *w;
	struct sockaddr_storage peer;
	struct tcp_socket s;
	int ret = user_listener_room(l->head.id);

	if (ret) {
		if (ret == -EBUSY)
			pause_accept(l, false);
		return false;
	}
	if (l->pending_count >= USER_HALF_OPEN_MAX)
		old = oldest_of_most(l);
	if (old && user_now() - old->since < SPARED_MS * MSEC) {
		pause_accept(l, true);
		return false;
	}
	ret = accept_socket(l, &s, &peer);
	if (ret) {
		if (s.reserve)
			reserve_refill();
		if (ret != -EAGAIN)
			pause_accept(l, false);
		return false;
	}
	s.fd = cm_dev->fd_take(s.fd);
	sa_unmap(&peer);
	w = pending_new(l, s, &peer);
	if (!w) {
		cm_dev->fd_close(s.fd);
		return false;
	}
	if (old)
		displace(l, old);
	timer_by(l, w->since + USER_REQUEST_MS * MSEC);
	pending_read(l, w, false);
	return true;
}

static void accept_all(struct tcp_listener *l) REQUIRES(l->lock)
{
	for (int n = 0; n < ACCEPTS_PER_TURN; n++)
		if (l->stopped || l->paused || !accept_one(l))
			break;
}

static void listener_ready(struct loop_fd *lf, uint32_t revents)
{
	struct tcp_listener *l = container_of(lf, struct tcp_listener, lf);

	(void)revents;
	lock_get(&l->lock);
	accept_all(l);
	lock_put(&l->lock);
}

/* When this process itself did not run for a while (stopped, suspended), a request may
 * have come in time that the loop has not reached yet: it counts. */
static void listener_timeout(struct loop_timer *t)
{
	struct tcp_listener *l = container_of(t, struct tcp_listener, timer);
	uint64_t now = user_now();
	struct tcp_wire *w;

	lock_get(&l->lock);
	l->timer_at = 0;
	while (!list_empty(&l->pending)) {
		w = list_entry(l->pending.next, struct tcp_wire, pending);
		if (now < w->since + USER_REQUEST_MS * MSEC) {
			timer_by(l, w->since + USER_REQUEST_MS * MSEC);
			break;
		}
		pending_read(l, w, true);
	}
	if (l->paused && !l->stopped && now >= l->resume_at) {
		reserve_refill();
		resume_accept(l);
		accept_all(l);
	} else if (l->paused && !l->stopped) {
		timer_by(l, l->resume_at);
	}
	lock_put(&l->lock);
	tcp_listener_put(l);
}

/* ---- listen ---------------------------------------------------------------------- */

static void listener_done(struct loop_fd *lf)
{
	cm_dev->fd_close(lf->fd);
	tcp_listener_put(container_of(lf, struct tcp_listener, lf));
}

static int listener_socket(struct user_id *u) REQUIRES(u->lock)
{
	const struct conf *c = conf_get();
	const struct sockaddr *src = (struct sockaddr *)&u->src;
	char a[PORT_ADDR_STR];
	int fd = u->port.tcp_fd, ret = 0;

	u->port.tcp_fd = -1;
	if (fd < 0)
		fd = port_tcp_bound(src, user_afonly(u, src->sa_family), u->port.num);
	if (fd < 0)
		ret = fd;
	if (!ret && c->sndbuf)
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &c->sndbuf, sizeof(c->sndbuf));
	if (!ret && c->rcvbuf)
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &c->rcvbuf, sizeof(c->rcvbuf));
	if (!ret && listen(fd, SOMAXCONN)) {
		ret = -errno;
		cm_dev->fd_close(fd);
	}
	if (ret)
		return log_refuse(-ret, "cannot listen on %s: its TCP port %d: %s",
				  sa_str(src, a),
				  port_to_tcp(u->port.num, c->ports_identity),
				  strerror(-ret));
	return fd;
}

int tcp_listen(struct user_id *u, struct user_wire_listener **out)
{
	struct tcp_listener *l = calloc(1, sizeof(*l));
	int fd, ret;

	lock_assert_held(&u->lock);
	if (!l)
		return -ENOMEM;
	reserve_refill();
	fd = listener_socket(u);
	if (fd < 0) {
		free(l);
		return fd;
	}
	l->head.ops = &user_wire_tcp;
	l->head.id = u;
	user_get(u);
	atomic_init(&l->refs, 2);
	lock_init(&l->lock);
	list_init(&l->pending);
	l->timer.fire = listener_timeout;
	l->lf = (struct loop_fd){ .fd = fd, .events = EPOLLIN, .ready = listener_ready };
	ret = cm_dev->loop_fd_add(&l->lf);
	if (ret) {
		cm_dev->fd_close(fd);
		atomic_init(&l->refs, 1);
		tcp_listener_put(l);
		return ret;
	}
	*out = &l->head;
	return 0;
}

void tcp_unlisten(struct user_wire_listener *head)
{
	struct tcp_listener *l = container_of(head, struct tcp_listener, head);
	struct tcp_wire *w, *tmp;

	lock_get(&l->lock);
	l->stopped = true;
	l->full = false;
	list_for_each_safe(w, tmp, &l->pending, pending) {
		pending_leave(l, w);
		tcp_socket_close(tcp_wire_end(w));
	}
	/* At once, and for copies in forked children too: the port is free when the
	 * caller returns, the queue is reset. */
	shutdown(l->lf.fd, SHUT_RDWR);
	cm_dev->loop_fd_del(&l->lf, listener_done);
	if (cm_dev->loop_timer_stop(&l->timer))
		tcp_listener_put(l); /* not the last: the caller's is left */
	lock_put(&l->lock);
	tcp_listener_put(l);
}
