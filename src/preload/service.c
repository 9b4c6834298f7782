/* SPDX-License-Identifier: BSD-2-Clause */
/* The thread that begins and ends moves. It sleeps while none is under way; what moved
 * connections carry never passes it. */
#include "preload/move.h"
#include "base/log.h"
#include "preload/closer.h"
#include "preload/conf.h"
#include "preload/ep.h"
#include "preload/hello.h"
#include "preload/real.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

static struct {
	pthread_mutex_t lock; /* posted, running, wake, ep */
	struct rail *posted;
	bool running;
	int wake, ep;
	struct rail *rails; /* the thread's own */
} service = { .lock = PTHREAD_MUTEX_INITIALIZER, .wake = -1, .ep = -1 };

void service_post(struct rail *r)
{
	uint64_t one = 1;

	pthread_mutex_lock(&service.lock);
	if (!r->posted) {
		atomic_fetch_add(&r->refs, 1);
		r->posted = true;
		r->next_posted = service.posted;
		service.posted = r;
		if (real.write(service.wake, &one, sizeof(one)) < 0)
			log_error("the service thread cannot be woken: %s",
				  strerror(errno));
	}
	pthread_mutex_unlock(&service.lock);
}

static void watch(struct rail *r, int fd)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = r };

	if (real.epoll_ctl(service.ep, EPOLL_CTL_ADD, fd, &ev))
		r->closing = true;
}

static void list_add(struct rail *r)
{
	r->listed = true;
	r->prev = NULL;
	r->next = service.rails;
	if (r->next)
		r->next->prev = r;
	service.rails = r;
	watch(r, r->passive ? r->listener : r->ctl);
}

static void list_del(struct rail *r)
{
	if (r->next)
		r->next->prev = r->prev;
	if (r->prev)
		r->prev->next = r->next;
	else
		service.rails = r->next;
	r->listed = false;
}

/* A child that forked meanwhile may have it, too: closing alone would leave it in the
 * instance. */
static void listener_close(struct rail *r)
{
	if (r->listener < 0)
		return;
	real.epoll_ctl(service.ep, EPOLL_CTL_DEL, r->listener, NULL);
	real.close(r->listener);
	r->listener = -1;
}

/* Nobody's any more: what the last who holds it leaves goes to the closer. */
static void rail_over(struct rail *r)
{
	struct conn *c = r->conn;

	listener_close(r);
	if (r->ctl >= 0)
		real.epoll_ctl(service.ep, EPOLL_CTL_DEL, r->ctl, NULL);
	pthread_mutex_lock(&c->lock);
	if (c->rail == r && r->step < RAIL_READY)
		c->rail = NULL;
	pthread_cond_broadcast(&c->turned);
	pthread_mutex_unlock(&c->lock);
	r->step = RAIL_OVER;
	if (r->listed)
		list_del(r);
	file_put(&c->file);
	rail_put(r);
}

void rail_put(struct rail *r)
{
	if (atomic_fetch_sub(&r->refs, 1) == 1)
		closer_take(r);
}

static void rail_ready(struct rail *r)
{
	struct conn *c = r->conn;

	pthread_mutex_lock(&c->lock);
	/* Before the instances hear of it. */
	atomic_store(&c->offer, true);
	if (c->rail == r && !c->pinned && ep_offer(c)) {
		c->head_got = 0;
		c->rx_count = c->tx_count = 0;
		r->step = RAIL_READY;
		atomic_store(&c->tx_may, r->agreed);
	} else {
		atomic_store(&c->offer, false);
		c->pinned = true;
		r->closing = true;
	}
	pthread_mutex_unlock(&c->lock);
	log_debug("a connection may move to an rsocket");
}

static void step_published(struct rail *r)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);
	int fd = real.accept4(r->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0)
		return;
	if (real.getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) ||
	    cred.uid != geteuid()) {
		real.close(fd);
		return;
	}
	listener_close(r);
	r->ctl = own_fd(fd);
	r->step = RAIL_ASKING;
	watch(r, r->ctl);
	rail_hear(r);
}

/* Both ends need librdmacm; the active one the listener, the passive one to connect. */
static void step_asking(struct rail *r)
{
	struct conn *c = r->conn;

	if (r->passive ? !r->port : r->ask_sent)
		return;
	if (!rs_load()) {
		c->pinned = true;
		r->closing = true;
	} else if (!r->passive) {
		r->ask_sent = true;
		if (!hello_ask(r))
			r->closing = true;
	} else if (hello_connect(r)) {
		r->step = RAIL_CONNECTING;
	} else {
		r->closing = true;
	}
}

static void rail_step(struct rail *r)
{
	if (r->step == RAIL_PUBLISHED && !r->closing)
		step_published(r);
	if (r->step == RAIL_ASKING && !r->closing)
		step_asking(r);
	if (r->step == RAIL_CONNECTING && !r->closing && !hello_connected(r))
		r->closing = true;
	if (r->step == RAIL_HELLO && r->ready && !r->closing)
		rail_ready(r);
	if (r->step == RAIL_READY && r->asked_back && !r->closing)
		back_begin(r);
	if (r->step == RAIL_BACK && !r->closing)
		back_step(r);
	if (r->peer_gone && r->step < RAIL_READY)
		r->closing = true;
	if (r->peer_gone && r->step == RAIL_READY)
		real.epoll_ctl(service.ep, EPOLL_CTL_DEL, r->ctl, NULL);
	if (r->closing)
		rail_over(r);
}

/* The active end has got the passive one's rsocket. */
void service_matched(const uint8_t token[16], int rsock)
{
	for (struct rail *r = service.rails; r; r = r->next) {
		if (r->passive || r->step != RAIL_ASKING || r->closing ||
		    memcmp(r->token, token, 16))
			continue;
		r->rs = rsock;
		if (ctl_send(r, CTL_READY, 0, NULL, 0))
			r->closing = true;
		else
			rail_ready(r);
		return;
	}
	rs.rclose(rsock);
}

static void take_posted(void)
{
	struct rail *list, *r;

	pthread_mutex_lock(&service.lock);
	list = service.posted;
	service.posted = NULL;
	for (r = list; r; r = r->next_posted) {
		r->posted = false;
		r->next_taken = r->next_posted;
	}
	pthread_mutex_unlock(&service.lock);
	while ((r = list)) {
		list = r->next_taken;
		if (!r->listed && r->step != RAIL_OVER)
			list_add(r);
		if (r->step != RAIL_OVER)
			rail_step(r);
		rail_put(r);
	}
}

static void run_events(void)
{
	struct epoll_event ev[64];
	int n = real.epoll_pwait(service.ep, ev, 64, 0, NULL);
	uint64_t count;

	for (int i = 0; i < n; i++) {
		struct rail *r = ev[i].data.ptr;

		if (!r) {
			if (real.read(service.wake, &count, sizeof(count)) < 0)
				continue;
		} else if (r->ctl >= 0) {
			rail_hear(r); /* posts it */
		} else {
			service_post(r);
		}
	}
	take_posted();
}

/* Descriptors to wait for: the epoll instance, rsockets that are being made, and a tick
 * while something comes back. */
static nfds_t gather(struct pollfd *pfd, nfds_t room, int *timeout)
{
	nfds_t n = 1;
	bool expected = false;

	*timeout = -1;
	pfd[0] = (struct pollfd){ service.ep, POLLIN, 0 };
	for (struct rail *r = service.rails; r; r = r->next)
		expected |= r->step == RAIL_ASKING && r->ask_sent;
	n += hello_gather(pfd + n, room - n, expected);
	for (struct rail *r = service.rails; r; r = r->next) {
		if (r->step == RAIL_BACK)
			*timeout = 1;
		if (r->step == RAIL_CONNECTING && n < room)
			pfd[n++] = (struct pollfd){ r->rs, POLLOUT, 0 };
	}
	return n;
}

static void *service_run(void *arg)
{
	enum { ROOM = 256 };
	struct pollfd pfd[ROOM];
	struct rail *r, *next;
	int timeout;
	nfds_t n;

	(void)arg;
	for (;;) {
		n = gather(pfd, ROOM, &timeout);
		if ((n > 1 ? rs_poll(pfd, n, timeout) : real.poll(pfd, n, timeout)) <
			    0 &&
		    errno != EINTR)
			log_error("the service thread cannot wait: %s", strerror(errno));
		run_events();
		hello_run();
		for (r = service.rails; r; r = next) {
			next = r->next;
			if (r->step == RAIL_BACK || r->step == RAIL_CONNECTING)
				rail_step(r);
		}
	}
	return NULL;
}

static bool start_locked(void)
{
	struct epoll_event ev = { .events = EPOLLIN };
	sigset_t all, old;
	pthread_t thread;
	int err;

	service.wake = own_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	service.ep = own_fd(real.epoll_create1(EPOLL_CLOEXEC));
	if (service.wake < 0 || service.ep < 0 ||
	    real.epoll_ctl(service.ep, EPOLL_CTL_ADD, service.wake, &ev))
		return false;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&thread, NULL, service_run, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err)
		return false;
	pthread_setname_np(thread, "anyrdma-sockets");
	pthread_detach(thread);
	return true;
}

bool service_start(void)
{
	bool running;

	pthread_mutex_lock(&service.lock);
	if (!service.running)
		service.running = start_locked();
	running = service.running;
	pthread_mutex_unlock(&service.lock);
	return running;
}

void service_child(void)
{
	pthread_mutex_init(&service.lock, NULL);
	if (service.wake >= 0)
		real.close(service.wake);
	if (service.ep >= 0)
		real.close(service.ep);
	service.wake = service.ep = -1;
	service.running = false;
	service.posted = service.rails = NULL;
	hello_child();
	closer_child();
}

void service_flush(void)
{
	if (service.running)
		closer_wait(1000);
}
