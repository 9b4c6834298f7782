/* SPDX-License-Identifier: BSD-2-Clause */
#include "preload/ep.h"
#include "preload/conn.h"
#include "preload/move.h"
#include "preload/real.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* One registration of a connection. */
struct reg {
	struct ep *ep;
	struct conn *conn;
	int fd;			 /* as the application knows it */
	struct epoll_event want; /* what it asked for */
	bool spent;		 /* one-shot, and has fired */
	bool in_rs;		 /* the rsockets' instance has it */
	int rs;			 /* under this descriptor */
	uint32_t kernel, shadow; /* the events that each instance has */
	unsigned index;		 /* in regs */
	struct reg *next_of_conn;
	struct reg *next, *prev; /* of the instance */
	unsigned round, at;	 /* where in the output of which wait it is */
};

struct ep {
	struct file file;
	int fd;	    /* own duplicate: its number is any */
	int shadow; /* repoll instance, or -1 */
	struct reg *regs;
	atomic_uint moved;  /* registrations in the rsockets' instance */
	atomic_uint offers; /* registrations whose connections may move */
	atomic_int plain;   /* threads that wait for the kernel's instance alone */
	atomic_bool nested;
	unsigned round;
};

#define ep_of(f) ((struct ep *)(f))

/* data of registrations of connections in the kernel's instances: this and the index. Not a
 * pointer that user space may have, nor a descriptor. */
#define TAG 0xa7c35d1900000000ull

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* all registrations */
static struct reg **regs;				 /* by index */
static unsigned regs_room, regs_free;

struct file *ep_file_new(void)
{
	return calloc(1, sizeof(struct ep));
}

void ep_file_reset(struct file *f)
{
	struct ep *ep = ep_of(f);

	memset((char *)ep + sizeof(struct file), 0, sizeof(*ep) - sizeof(struct file));
	ep->shadow = -1;
	ep->fd = -1;
}

void ep_adopt(int fd)
{
	struct file *f = file_create(FILE_EPOLL, fd);

	if (f)
		ep_of(f)->fd = fd;
}

/* ---- registrations: lock is held ---- */

static struct reg *reg_find(struct ep *ep, const struct conn *c, int fd)
{
	struct reg *g = c->regs;

	while (g && (g->ep != ep || g->fd != fd))
		g = g->next_of_conn;
	return g;
}

static bool index_take(struct reg *g)
{
	unsigned room = regs_room ? regs_room * 2 : 64;
	struct reg **more;

	while (regs_free < regs_room && regs[regs_free])
		regs_free++;
	if (regs_free == regs_room) {
		more = realloc(regs, room * sizeof(*more));
		if (!more)
			return false;
		memset(more + regs_room, 0, (room - regs_room) * sizeof(*more));
		regs = more;
		regs_room = room;
	}
	regs[regs_free] = g;
	g->index = regs_free;
	return true;
}

static struct reg *reg_add(struct ep *ep, struct conn *c, int fd)
{
	struct reg *g = calloc(1, sizeof(*g));

	if (!g || !index_take(g)) {
		free(g);
		return NULL;
	}
	g->ep = ep;
	g->conn = c;
	g->fd = fd;
	g->next_of_conn = c->regs;
	c->regs = g;
	g->next = ep->regs;
	if (g->next)
		g->next->prev = g;
	ep->regs = g;
	return g;
}

static void shadow_set(struct reg *g, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.u64 = TAG | g->index };
	struct ep *ep = g->ep;

	if (g->in_rs && !events) {
		rs.repoll_ctl(ep->shadow, EPOLL_CTL_DEL, g->rs, NULL);
		g->in_rs = false;
		atomic_fetch_sub(&ep->moved, 1);
	} else if (g->in_rs && events != g->shadow) {
		rs.repoll_ctl(ep->shadow, EPOLL_CTL_MOD, g->rs, &ev);
	} else if (!g->in_rs && events && ep->shadow >= 0) {
		g->rs = g->conn->rail->rs;
		if (rs.repoll_ctl(ep->shadow, EPOLL_CTL_ADD, g->rs, &ev) == 0) {
			g->in_rs = true;
			atomic_fetch_add(&ep->moved, 1);
		}
	}
	g->shadow = events;
}

static void reg_del(struct reg *g)
{
	struct reg **at = &g->conn->regs;

	if (g->in_rs)
		shadow_set(g, 0);
	while (*at != g)
		at = &(*at)->next_of_conn;
	*at = g->next_of_conn;
	if (g->next)
		g->next->prev = g->prev;
	if (g->prev)
		g->prev->next = g->next;
	else
		g->ep->regs = g->next;
	regs[g->index] = NULL;
	if (g->index < regs_free)
		regs_free = g->index;
	free(g);
}

/* The instance of rsockets, which watches the kernel's as one of its descriptors. */
static bool shadow_make(struct ep *ep)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = 0 };

	if (ep->shadow >= 0)
		return true;
	ep->shadow = rs.repoll_create(EPOLL_CLOEXEC);
	if (ep->shadow < 0)
		return false;
	if (rs.repoll_ctl(ep->shadow, EPOLL_CTL_ADD, ep->fd, &ev) == 0)
		return true;
	rs.rclose(ep->shadow);
	ep->shadow = -1;
	return false;
}

static const uint32_t flags = EPOLLET | EPOLLONESHOT | EPOLLWAKEUP | EPOLLEXCLUSIVE;

/* EPOLL* of readiness are the POLL* of the same names. */
static uint32_t kernel_events(const struct reg *g)
{
	uint32_t want = g->want.events & ~flags;

	if (g->spent)
		return 0;
	return (uint32_t)(unsigned short)conn_tcp_wants(g->conn, (short)want) |
	       (g->want.events & flags);
}

static uint32_t shadow_events(const struct reg *g)
{
	uint32_t events = g->want.events & ~flags;

	events = (uint32_t)(unsigned short)conn_rs_wants(g->conn, (short)events);
	if (g->spent || !g->conn->rail || !events)
		return 0;
	return events | (g->want.events & (EPOLLET | EPOLLONESHOT));
}

static int kernel_set(struct reg *g, int op)
{
	struct epoll_event ev = { .events = kernel_events(g),
				  .data.u64 = TAG | g->index };
	int n;

	/* Once exclusive a registration cannot be changed: only made anew. */
	if (op == EPOLL_CTL_MOD && g->want.events & EPOLLEXCLUSIVE) {
		real.epoll_ctl(g->ep->fd, EPOLL_CTL_DEL, g->fd, &ev);
		op = EPOLL_CTL_ADD;
	}
	n = real.epoll_ctl(g->ep->fd, op, g->fd, &ev);
	if (n == 0)
		g->kernel = ev.events;
	return n ? -errno : 0;
}

static void reg_follow(struct reg *g)
{
	uint32_t shadow = shadow_events(g);

	if (shadow)
		shadow_make(g->ep);
	shadow_set(g, shadow);
	if (kernel_events(g) != g->kernel)
		kernel_set(g, EPOLL_CTL_MOD);
}

/* ---- for conn.c ---- */

void ep_follow(struct conn *c)
{
	pthread_mutex_lock(&lock);
	for (struct reg *g = c->regs; g; g = g->next_of_conn)
		reg_follow(g);
	pthread_mutex_unlock(&lock);
}

void ep_offer(struct conn *c)
{
	pthread_mutex_lock(&lock);
	for (struct reg *g = c->regs; g; g = g->next_of_conn)
		atomic_fetch_add(&g->ep->offers, 1);
	pthread_mutex_unlock(&lock);
}

bool ep_idle(struct conn *c)
{
	bool idle = true;

	pthread_mutex_lock(&lock);
	for (struct reg *g = c->regs; g; g = g->next_of_conn)
		idle = idle && !atomic_load(&g->ep->plain) && !g->ep->nested &&
		       (g->in_rs || !shadow_events(g));
	pthread_mutex_unlock(&lock);
	return idle;
}

void ep_forget(struct conn *c)
{
	pthread_mutex_lock(&lock);
	while (c->regs)
		reg_del(c->regs);
	pthread_mutex_unlock(&lock);
}

void ep_file_end(struct file *f)
{
	struct ep *ep = ep_of(f);

	pthread_mutex_lock(&lock);
	while (ep->regs)
		reg_del(ep->regs);
	pthread_mutex_unlock(&lock);
	if (ep->shadow >= 0)
		rs.rclose(ep->shadow);
	ep->shadow = -1;
}

/* ---- epoll_ctl ---- */

/* *blind: the instance cannot watch the rsocket. */
static int ctl_conn(struct ep *ep, struct conn *c, int op, int fd,
		    struct epoll_event *event, bool *blind)
{
	struct reg *g;
	int err = 0;

	pthread_mutex_lock(&c->lock);
	pthread_mutex_lock(&lock);
	g = reg_find(ep, c, fd);
	if (op == EPOLL_CTL_DEL) {
		err = real.epoll_ctl(ep->fd, op, fd, event) ? -errno : 0;
		if (g)
			reg_del(g);
	} else if (op == EPOLL_CTL_ADD) {
		if (g)
			err = -EEXIST;
		else if (!(g = reg_add(ep, c, fd)))
			err = -ENOMEM;
		else {
			g->want = *event;
			err = kernel_set(g, op);
			if (err)
				reg_del(g);
			else
				reg_follow(g);
		}
	} else if (!g) {
		err = -ENOENT;
	} else if ((g->want.events | event->events) & EPOLLEXCLUSIVE) {
		err = -EINVAL;
	} else {
		g->want = *event;
		g->spent = false;
		err = kernel_set(g, op);
		if (g->in_rs)
			g->shadow = 0; /* arms an edge again, as the kernel does */
		reg_follow(g);
	}
	if (!err && op == EPOLL_CTL_ADD && c->offer)
		atomic_fetch_add(&ep->offers, 1);
	*blind = !err && op != EPOLL_CTL_DEL && (ep->nested || !g->in_rs) &&
		 shadow_events(g);
	pthread_mutex_unlock(&lock);
	pthread_mutex_unlock(&c->lock);
	return err;
}

int ep_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
	struct file *f = file_get_kind(epfd, FILE_EPOLL);
	struct conn *c = conn_get(fd);
	bool blind = false;
	int err;

	if (c && f && (event || op == EPOLL_CTL_DEL) && op >= EPOLL_CTL_ADD &&
	    op <= EPOLL_CTL_MOD) {
		ep_of(f)->fd = epfd;
		err = ctl_conn(ep_of(f), c, op, fd, event, &blind);
		if (blind)
			move_pin(c);
	} else {
		/* An instance that we know nothing of would miss what comes. */
		if (c)
			move_pin(c);
		if (op == EPOLL_CTL_ADD && file_peek_kind(fd) == FILE_EPOLL)
			ep_nest(fd);
		err = real.epoll_ctl(epfd, op, fd, event) ? -errno : 0;
	}
	if (c)
		conn_put(c);
	if (f)
		file_put(f);
	return err;
}

void ep_nest(int epfd)
{
	struct file *f = file_get_kind(epfd, FILE_EPOLL);
	struct conn *c;

	if (!f)
		return;
	if (!atomic_exchange(&ep_of(f)->nested, true) || ep_of(f)->moved) {
		do {
			c = NULL;
			pthread_mutex_lock(&lock);
			for (struct reg *g = ep_of(f)->regs; g && !c; g = g->next)
				if (g->in_rs)
					c = g->conn;
			if (c)
				file_hold(&c->file);
			pthread_mutex_unlock(&lock);
			if (c) {
				move_pin(c);
				conn_put(c);
			}
		} while (c && ep_of(f)->moved);
	}
	file_put(f);
}

/* ---- epoll_wait ---- */

/* Connections that may move do, now that this thread is here to watch them. */
static void agree_all(struct ep *ep)
{
	enum { BATCH = 32 };
	struct conn *list[BATCH];
	bool refused = false;
	unsigned n;

	do {
		n = 0;
		pthread_mutex_lock(&lock);
		for (struct reg *g = ep->regs; g && n < BATCH && !ep->nested; g = g->next)
			if (atomic_load(&g->conn->offer)) {
				list[n++] = g->conn;
				file_hold(&g->conn->file);
			}
		atomic_store(&ep->offers, 0);
		pthread_mutex_unlock(&lock);
		for (unsigned i = 0; i < n; i++) {
			conn_agree(list[i]);
			/* Somebody else waits for it: later. */
			refused |= atomic_load(&list[i]->offer);
			conn_put(list[i]);
		}
	} while (n == BATCH && !refused);
}

struct out {
	struct epoll_event *events;
	int count, max;
	unsigned round;
};

static void out_put(struct out *out, struct reg *g, uint32_t ready)
{
	if (!ready)
		return;
	if (g->round == out->round && g->at < (unsigned)out->count) {
		out->events[g->at].events |= ready;
		return;
	}
	if (out->count == out->max)
		return;
	g->round = out->round;
	g->at = (unsigned)out->count;
	out->events[out->count].events = ready;
	out->events[out->count++].data = g->want.data;
	if (g->want.events & EPOLLONESHOT)
		g->spent = true;
}

/* In place: events of connections get the application's data, and lose what is not true of
 * a connection that has moved. lock is not held. */
static void out_kernel(struct out *out, int n)
{
	struct epoll_event *from = out->events + out->count;

	for (int i = 0; i < n; i++) {
		struct epoll_event ev = from[i];
		unsigned index = (unsigned)ev.data.u64;
		struct reg *g;

		if ((ev.data.u64 & ~0xffffffffull) != TAG) {
			out->events[out->count++] = ev;
			continue;
		}
		pthread_mutex_lock(&lock);
		g = index < regs_room ? regs[index] : NULL;
		if (g && g->in_rs)
			ev.events &=
				(uint32_t)(unsigned short)conn_tcp_wants(g->conn, 0x7fff);
		if (g && !g->spent) {
			out_put(out, g, ev.events);
			if (g->spent && g->in_rs)
				reg_follow(g);
		}
		pthread_mutex_unlock(&lock);
	}
}

/* What an rsocket reports. */
static void out_rs(struct out *out, const struct epoll_event *ev, bool *changed)
{
	unsigned index = (unsigned)ev->data.u64;
	struct conn *c = NULL;
	struct reg *g;
	short ready;

	pthread_mutex_lock(&lock);
	g = index < regs_room ? regs[index] : NULL;
	if (g && g->in_rs) {
		c = g->conn;
		file_hold(&c->file);
	}
	pthread_mutex_unlock(&lock);
	if (!c)
		return;
	ready = conn_rs_ready(c, (short)ev->events, changed);
	pthread_mutex_lock(&lock);
	if (index < regs_room && regs[index] == g && g->conn == c && !g->spent) {
		out_put(out, g, (uint32_t)(unsigned short)ready & g->want.events);
		if (g->spent)
			reg_follow(g);
	}
	pthread_mutex_unlock(&lock);
	conn_put(c);
}

static int wait_plain(struct ep *ep, int epfd, struct out *out,
		      const struct timespec *timeout, const sigset_t *mask)
{
	long ms = -1;
	int n;

	if (timeout && real.epoll_pwait2 && timeout->tv_nsec % 1000000) {
		n = real.epoll_pwait2(epfd, out->events, out->max, timeout, mask);
	} else {
		if (timeout)
			ms = timeout->tv_sec * 1000 + timeout->tv_nsec / 1000000;
		n = real.epoll_pwait(epfd, out->events, out->max, (int)ms, mask);
	}
	(void)ep;
	if (n < 0)
		return -errno;
	out_kernel(out, n);
	return out->count;
}

static long left_ms(const struct timespec *until)
{
	struct timespec now;
	long ms;

	if (!until)
		return -1;
	clock_gettime(CLOCK_MONOTONIC, &now);
	ms = (until->tv_sec - now.tv_sec) * 1000 +
	     (until->tv_nsec - now.tv_nsec + 999999) / 1000000;
	return ms < 0 ? 0 : ms;
}

static int wait_both(struct ep *ep, int epfd, struct out *out, int ms)
{
	enum { BATCH = 64 };
	struct epoll_event ev[BATCH];
	int max = out->max < BATCH ? out->max : BATCH;
	bool kernel = false, changed = false;
	int n = rs.repoll_wait(ep->shadow, ev, max, ms);

	if (n < 0)
		return -errno;
	for (int i = 0; i < n; i++) {
		if (ev[i].data.u64 == 0)
			kernel = true;
		else
			out_rs(out, &ev[i], &changed);
	}
	if ((kernel || changed) && out->count < out->max) {
		n = real.epoll_pwait(epfd, out->events + out->count,
				     out->max - out->count, 0, NULL);
		if (n > 0)
			out_kernel(out, n);
	}
	return out->count;
}

/* With a mask: a signal that waits and is let through ends the wait. One that comes
 * between the look and the wait is handled, and does not end it. */
static bool signal_waits(const sigset_t *mask)
{
	sigset_t waiting;

	if (sigpending(&waiting))
		return false;
	for (int sig = 1; sig < _NSIG; sig++)
		if (sigismember(&waiting, sig) == 1 && sigismember(mask, sig) == 0)
			return true;
	return false;
}

static int wait_moved(struct ep *ep, int epfd, struct out *out,
		      const struct timespec *timeout, const sigset_t *mask)
{
	struct timespec until;
	sigset_t old;
	int n;

	if (timeout) {
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_sec += timeout->tv_sec;
		until.tv_nsec += timeout->tv_nsec;
		if (until.tv_nsec >= 1000000000) {
			until.tv_sec++;
			until.tv_nsec -= 1000000000;
		}
	}
	if (mask && signal_waits(mask)) {
		n = real.ppoll(NULL, 0, timeout, mask);
		return n < 0 ? -errno : 0;
	}
	if (mask)
		pthread_sigmask(SIG_SETMASK, mask, &old);
	do {
		long ms = timeout ? left_ms(&until) : -1;

		n = wait_both(ep, epfd, out, (int)ms);
		/* What was said was ours: go on. All may have come back, too. */
		if (n == 0 && (ms == 0 || !ep->moved))
			break;
	} while (n == 0);
	if (mask)
		pthread_sigmask(SIG_SETMASK, &old, NULL);
	return n;
}

int ep_wait(struct file *f, int epfd, struct epoll_event *events, int max,
	    const struct timespec *timeout, const sigset_t *mask)
{
	struct ep *ep = ep_of(f);
	struct out out = { events, 0, max, 0 };
	int n;

	if (max <= 0)
		return -EINVAL;
	out.round = __atomic_add_fetch(&ep->round, 1, __ATOMIC_RELAXED);
	if (atomic_load(&ep->offers))
		agree_all(ep);
	for (;;) {
		atomic_fetch_add(&ep->plain, 1);
		if (!atomic_load(&ep->moved)) {
			n = wait_plain(ep, epfd, &out, timeout, mask);
			atomic_fetch_sub(&ep->plain, 1);
			/* An event that was only about a registration of before. */
			if (n || (timeout && !timeout->tv_sec && !timeout->tv_nsec) ||
			    n < 0)
				return n;
			if (timeout)
				return 0;
			continue;
		}
		atomic_fetch_sub(&ep->plain, 1);
		n = wait_moved(ep, epfd, &out, timeout, mask);
		if (n || timeout)
			return n;
	}
}

void ep_lock_all(void)
{
	pthread_mutex_lock(&lock);
}

void ep_unlock_all(void)
{
	pthread_mutex_unlock(&lock);
}

static void child_ep(struct file *f, void *arg)
{
	(void)arg;
	ep_of(f)->shadow = -1;
	ep_of(f)->moved = 0;
	ep_of(f)->offers = 0;
	ep_of(f)->plain = 0;
	for (struct reg *g = ep_of(f)->regs; g; g = g->next)
		g->in_rs = false;
}

void ep_child(void)
{
	pthread_mutex_init(&lock, NULL);
	file_each(FILE_EPOLL, child_ep, NULL);
}
