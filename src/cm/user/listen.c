/* SPDX-License-Identifier: BSD-2-Clause */
/* Listeners. The accept queue is drained at once; children go through
 *	half (reading the request) -> waiting (whole) -> CONNECT_REQUEST queued
 * and are owned by the list they are on, then by the event, then by the id. The
 * backlog bounds the queued events alone. */
#include "base/conf.h"
#include "base/log.h"
#include "cm/user/user.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
	ACCEPTS_PER_TURN = 256,
	PAUSE_MS = 250,	    /* after a shortage */
	HALF_OPEN_AGE = 500, /* ms after which a half-open stream may be displaced */
};

/* One descriptor kept back, so that a process without any can still accept and
 * reject instead of leaving its peers in doubt. */
static struct {
	struct lock lock; /* leaf */
	int fd GUARDED_BY(lock); /* 0: not opened yet */
} reserve = { .lock = LOCK_INIT };

void user_reserve_refill(void)
{
	int fd;

	lock_get(&reserve.lock);
	if (reserve.fd <= 0) {
		fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
		reserve.fd = fd < 0 ? 0 : cm_dev->fd_take(fd);
	}
	lock_put(&reserve.lock);
}

/* The socket itself, shut down, becomes the reserve: its number never goes back to a
 * process that is short of numbers and would take it. */
bool user_reserve_give(int fd)
{
	bool taken;

	lock_get(&reserve.lock);
	taken = reserve.fd <= 0;
	if (taken) {
		shutdown(fd, SHUT_RDWR);
		reserve.fd = fd;
	}
	lock_put(&reserve.lock);
	return taken;
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

/* ---- children ------------------------------------------------------------------------- */

static struct user_id *child_new(struct user_id *lis) REQUIRES(lis->lock)
{
	struct user_id *u = user_new(lis->ps, lis->qp_type);

	if (!u)
		return NULL;
	u->nego = calloc(1, sizeof(*u->nego));
	if (!u->nego) {
		user_kill(u);
		return NULL;
	}
	u->state = US_AWAIT_REQ;
	u->tos = lis->tos;
	u->timeout = lis->timeout;
	u->timeout_set = lis->timeout_set;
	u->born = user_now();
	u->listener = lis;
	user_get(lis);
	return u;
}

/* Onto the half-open list, with a reference for the caller: from the unlock on the
 * listener's end may drop the list's. */
static void child_add(struct user_id *lis, struct user_id *child) REQUIRES(lis->lock)
{
	child->origin = origin_of((struct sockaddr *)&child->dst);
	list_add_tail(&lis->lis->half, &child->child_link);
	lis->lis->origins.from[child->origin]++;
	lis->lis->half_count++;
	user_get(child);
}

/* An IPv4 connection to a dual-stack listener is an IPv4 connection. */
static void unmap(struct sockaddr_storage *ss)
{
	struct sockaddr_in6 in6;
	struct sockaddr_in in4 = { .sin_family = AF_INET };

	if (ss->ss_family != AF_INET6)
		return;
	memcpy(&in6, ss, sizeof(in6));
	if (!IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr))
		return;
	memcpy(&in4.sin_addr, in6.sin6_addr.s6_addr + 12, 4);
	in4.sin_port = in6.sin6_port;
	memset(ss, 0, sizeof(*ss));
	memcpy(ss, &in4, sizeof(in4));
}

static void child_socket(struct user_id *u, int fd, bool refused)
{
	socklen_t len = sizeof(u->src);

	u->fd = fd;
	u->refused = refused;
	getsockname(fd, (struct sockaddr *)&u->src, &len);
	len = sizeof(u->dst);
	getpeername(fd, (struct sockaddr *)&u->dst, &len);
	unmap(&u->src);
	unmap(&u->dst);
	sa_set_port((struct sockaddr *)&u->src, u->listener->port.num);
}

int user_listener_call(struct user_id *lis, const struct sockaddr_storage *to,
		       struct user_id **child)
{
	struct user_id *u;
	int ret = 0;

	lock_get(&lis->lock);
	if (lis->state != US_LISTEN)
		ret = -ENOENT;
	else if (lis->lis->waiting_count >= USER_WAITING_MAX)
		ret = -EBUSY;
	else if (!(u = child_new(lis)))
		ret = -ENOMEM;
	if (!ret) {
		u->wire = &user_wire_link;
		u->src = u->dst = *to; /* the scope of both is one */
		unmap(&u->src);
		unmap(&u->dst);
		child_add(lis, u);
		*child = u;
	}
	lock_put(&lis->lock);
	return ret;
}

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

static bool somebody_waits(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) > 0;
}

static int accept_fd(struct user_id *lis, bool *refused) REQUIRES(lis->lock)
{
	int fd, err;

	*refused = false;
	for (;;) {
		fd = accept4(lis->lis->lf.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0)
			return fd;
		err = errno;
		switch (err) {
		case EMFILE:
		case ENFILE:
			/* Linux says so without looking whether anybody waits. */
			if (!somebody_waits(lis->lis->lf.fd))
				return -EAGAIN;
			if (*refused || !reserve_use())
				return -err;
			*refused = true;
			say_exhausted(lis);
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

static void pause_locked(struct user_id *lis, bool crowded) REQUIRES(lis->lock)
{
	lis->lis->paused = true;
	lis->lis->crowded = crowded;
	cm_dev->loop_fd_mod(&lis->lis->lf, 0);
	user_timer_set(lis, PAUSE_MS);
}

static void resume_locked(struct user_id *lis) REQUIRES(lis->lock)
{
	lis->lis->paused = lis->lis->crowded = false;
	cm_dev->loop_fd_mod(&lis->lis->lf, EPOLLIN);
}

/* A child leaves the half-open list; a crowd that waited for that goes on. */
static void half_leave(struct user_id *lis, struct user_id *child) REQUIRES(lis->lock)
{
	struct user_listener *l = lis->lis;

	list_del(&child->child_link);
	l->origins.from[child->origin]--;
	l->half_count--;
	if (l->crowded && l->half_count <= USER_HALF_OPEN_MAX / 2)
		resume_locked(lis);
}

/* The oldest half-open child of those with the most of them. */
static struct user_id *greediest(struct user_id *lis) REQUIRES(lis->lock)
{
	struct user_listener *l = lis->lis;
	uint32_t most = origin_most(&l->origins);
	struct user_id *child;

	list_for_each(child, &l->half, child_link)
		if (l->origins.from[child->origin] == most)
			return child;
	return NULL;
}

/* Makes room for one more half-open child: *victim has to go for it. False: it is too
 * young for that. */
static bool make_room(struct user_id *lis, struct user_id **victim) REQUIRES(lis->lock)
{
	struct user_id *child;

	*victim = NULL;
	if (lis->lis->half_count < USER_HALF_OPEN_MAX)
		return true;
	child = greediest(lis);
	if (child && user_now() - child->born < HALF_OPEN_AGE * MSEC)
		return false;
	*victim = child;
	return true;
}

/* The next connection as a child on the half-open list, with a reference for the
 * caller; NULL: enough for now. *victim: a half-open child that had to go. */
static struct user_id *accept_one(struct user_id *lis, struct user_id **victim)
	REQUIRES(lis->lock)
{
	struct user_listener *l = lis->lis;
	struct user_id *child, *leaver;
	bool refused;
	int fd;

	*victim = NULL;
	if (l->waiting_count >= USER_WAITING_MAX) {
		pause_locked(lis, false);
		return NULL;
	}
	if (!make_room(lis, &leaver)) {
		pause_locked(lis, true);
		return NULL;
	}
	fd = accept_fd(lis, &refused);
	if (fd < 0) {
		if (refused)
			user_reserve_refill();
		if (fd != -EAGAIN)
			pause_locked(lis, false);
		return NULL;
	}
	fd = cm_dev->fd_take(fd);
	child = child_new(lis);
	if (!child) {
		cm_dev->fd_close(fd);
		return NULL;
	}
	child_socket(child, fd, refused);
	if (leaver)
		half_leave(lis, leaver);
	*victim = leaver;
	child_add(lis, child);
	return child;
}

static void accept_all(struct user_id *lis)
{
	struct user_id *child, *victim;
	int n;

	for (n = 0; n < ACCEPTS_PER_TURN; n++) {
		lock_get(&lis->lock);
		child = NULL;
		victim = NULL;
		if (lis->state == US_LISTEN && !lis->lis->paused)
			child = accept_one(lis, &victim);
		lock_put(&lis->lock);
		if (victim) {
			log_info("RDMA port %u: a silent stream makes room for another",
				 lis->port.num);
			user_kill(victim);
		}
		if (!child)
			return;
		user_child_start(child);
		user_put(child);
	}
}

static void listener_ready(struct loop_fd *lf, uint32_t revents)
{
	(void)revents;
	accept_all(container_of(lf, struct user_listener, lf)->owner);
}

void user_listener_timeout(struct user_id *lis)
{
	user_reserve_refill();
	lock_get(&lis->lock);
	if (lis->state == US_LISTEN && lis->lis->paused)
		resume_locked(lis);
	lock_put(&lis->lock);
	accept_all(lis);
}

/* ---- from request to event -------------------------------------------------------------- */

/* Queues the child's CONNECT_REQUEST. False: it has none to offer any more. */
static bool deliver(struct user_id *lis, struct user_id *child) REQUIRES(lis->lock)
{
	struct cm_event *ev = NULL;

	lock_get(&child->lock);
	if (child->state == US_REQ_RCVD)
		ev = user_request_event(lis, child);
	if (ev) {
		child->offered = true;
		child->expected = true;
		cm_dev->stream_expect(&child->conn.remote_gid, child->conn.remote_qpn);
	}
	lock_put(&child->lock);
	if (!ev)
		return false;
	if (!user_event_post(ev))
		return false;
	lis->lis->undelivered++;
	return true;
}

/* Fills the backlog from the waiting list. Children that cannot be delivered
 * come out on `lost`, for the caller to end without the lock. */
static void pump(struct user_id *lis, struct list *lost) REQUIRES(lis->lock)
{
	struct user_listener *l = lis->lis;
	struct user_id *child;

	while (!list_empty(&l->waiting) && l->undelivered < l->backlog) {
		child = list_entry(l->waiting.next, struct user_id, child_link);
		list_del(&child->child_link);
		l->waiting_count--;
		if (!deliver(lis, child)) {
			child->lost = true;
			list_add_tail(lost, &child->child_link);
		}
	}
}

static void kill_all(struct list *lost)
{
	struct list *n;

	while ((n = list_pop(lost)))
		user_kill(list_entry(n, struct user_id, child_link));
}

void user_listener_offer(struct user_id *lis, struct user_id *child)
{
	struct list lost = LIST_INIT(lost);

	lock_get(&lis->lock);
	/* Off every list: the listener's end, or a displacement, owns it now. */
	if (lis->state == US_LISTEN && !child->lost && list_linked(&child->child_link)) {
		if (!child->waiting) {
			half_leave(lis, child);
			child->waiting = true;
			list_add_tail(&lis->lis->waiting, &child->child_link);
			lis->lis->waiting_count++;
		}
		pump(lis, &lost);
	}
	lock_put(&lis->lock);
	kill_all(&lost);
}

void user_listener_forget(struct user_id *lis, struct user_id *child)
{
	bool mine;

	lock_get(&lis->lock);
	mine = lis->state == US_LISTEN && !child->lost && list_linked(&child->child_link);
	if (mine && child->waiting) {
		list_del(&child->child_link);
		lis->lis->waiting_count--;
	} else if (mine) {
		half_leave(lis, child);
	}
	lock_put(&lis->lock);
	if (mine)
		user_kill(child);
}

void user_listener_taken(struct user_id *child)
{
	struct user_id *lis = child->listener;
	struct list lost = LIST_INIT(lost);

	lock_get(&lis->lock);
	if (!child->taken) {
		child->taken = true;
		lis->lis->undelivered--;
		if (lis->state == US_LISTEN)
			pump(lis, &lost);
	}
	lock_put(&lis->lock);
	kill_all(&lost);
}

/* ---- rdma_listen -------------------------------------------------------------------------- */

static void listener_done(struct loop_fd *lf)
{
	struct user_listener *l = container_of(lf, struct user_listener, lf);

	cm_dev->fd_close(lf->fd);
	user_put(l->owner);
}

static int listener_socket(struct user_id *u, bool afonly) REQUIRES(u->lock)
{
	const struct conf *c = conf_get();
	char a[PORT_ADDR_STR];
	const struct sockaddr *src = (struct sockaddr *)&u->src;
	int fd = u->port.tcp_fd, ret = 0;

	u->port.tcp_fd = -1;
	if (fd < 0)
		fd = port_tcp_bound(src, afonly, u->port.num);
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

static int listener_start(struct user_id *u, int backlog) REQUIRES(u->lock)
{
	bool afonly = user_afonly(u, u->src.ss_family);
	struct user_listener *l;
	int fd, ret;

	if (u->reuse) {
		ret = port_unique(u->ps, (struct sockaddr *)&u->src, afonly, &u->port);
		if (ret)
			return ret;
	}
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	fd = listener_socket(u, afonly);
	if (fd < 0) {
		free(l);
		return fd;
	}
	l->owner = u;
	l->backlog = USER_BACKLOG_MAX;
	if (backlog > 0 && backlog < USER_BACKLOG_MAX)
		l->backlog = (uint32_t)backlog;
	list_init(&l->half);
	list_init(&l->waiting);
	l->lf = (struct loop_fd){ .fd = fd, .events = EPOLLIN, .ready = listener_ready };
	u->lis = l;
	ret = cm_dev->loop_fd_add(&l->lf);
	if (ret) {
		u->lis = NULL;
		cm_dev->fd_close(fd);
		free(l);
		return ret;
	}
	l->watched = true;
	user_get(u);
	user_link_listen(u);
	return 0;
}

static int listen_check(struct user_id *u) REQUIRES(u->lock)
{
	static const struct sockaddr_in any = { .sin_family = AF_INET };
	int ret = 0;

	if (u->state == US_REMOVED)
		return -ENXIO;
	if (user_state_next(u->state, ST_LISTEN) < 0)
		return log_refuse(EINVAL, "listen is refused: the id is in state %s",
				  user_state_str(u->state));
	if (u->qp_type == IBV_QPT_UD || u->ps == RDMA_PS_UDP || u->ps == RDMA_PS_IPOIB)
		return log_refuse(EOPNOTSUPP, "listen: datagram port spaces come later");
	if (u->qp_type != IBV_QPT_RC && conf_get()->ports_identity)
		return log_refuse(EOPNOTSUPP, "listen: iWARP has no QPs of type %d",
				  (int)u->qp_type);
	if (u->state == US_IDLE) {
		ret = user_bind_locked(u, (const struct sockaddr *)&any);
		if (!ret)
			user_step(u, ST_BIND);
	} else if (u->port.name_fd < 0) {
		ret = log_refuse(EINVAL, "listen: the id owns no port");
	}
	return ret;
}

int user_listen(struct cm_id *id, int backlog)
{
	struct user_id *u = to_user(id);
	int ret;

	user_reserve_refill();
	lock_get(&u->lock);
	ret = listen_check(u);
	if (!ret)
		ret = listener_start(u, backlog);
	if (!ret)
		user_step(u, ST_LISTEN);
	lock_put(&u->lock);
	return ret;
}

/* The state has left LISTEN: no new child comes. */
void user_listener_stop(struct user_id *u)
{
	struct user_listener *l = u->lis;
	struct list lost = LIST_INIT(lost);
	struct stream_listener *calls;
	struct list *n;
	bool watched;

	lock_get(&u->lock);
	while ((n = list_pop(&l->half)) || (n = list_pop(&l->waiting)))
		list_add_tail(&lost, n);
	l->half_count = l->waiting_count = 0;
	l->origins = (struct origins){ 0 };
	watched = l->watched;
	l->watched = false;
	calls = l->calls;
	l->calls = NULL;
	lock_put(&u->lock);
	if (calls)
		cm_dev->stream_unlisten(calls);
	if (watched) {
		/* At once, and for copies in forked children too: the port is
		 * free when the caller returns, the queue is reset. */
		shutdown(l->lf.fd, SHUT_RDWR);
		cm_dev->loop_fd_del(&l->lf, listener_done);
	}
	kill_all(&lost);
}
