/* SPDX-License-Identifier: BSD-2-Clause */
/* The names under which others find this process, and who knocks there. */
#include "shm/meet.h"

#include "base/fdset.h"
#include "base/log.h"
#include "shm/fdpass.h"
#include "shm/greeting.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
	TURN = 64, /* visitors let in before others get a turn */
	BACKLOG = 1024,
	SHORTAGE_MS = 250,
};

/* A name of ours. */
struct host {
	struct list node;
	struct meet_name name;
	int refs;  /* the descriptor's, the timer's */
	bool gone; /* the descriptor, not ours, may be closed */
	struct loop_fd lf;
	struct loop_timer timer; /* out of descriptors: listens again */
};

struct host *host_find(const struct meet_name *name)
{
	struct host *h;

	list_for_each(h, &meets.hosts, node)
		if (meet_same_name(&h->name, name))
			return h;
	return NULL;
}

/* The next visitor, or -errno. */
static int host_accept(struct host *h)
{
	int fd;

	lock_assert_held(&meets.lock);
	if (h->gone)
		return -EAGAIN;
	if (fdpass_full())
		return -ENFILE;
	fd = accept4(h->lf.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0)
		return -errno;
	fd = fdset_take(fd);
	if (!greeting_same_user(fd) || !guest_new(fd, false, &h->name))
		fdpass_close(fd);
	return 0;
}

static void host_ready(struct loop_fd *lf, uint32_t revents)
{
	struct host *h = container_of(lf, struct host, lf);
	int ret = 0;

	(void)revents;
	meets_lock();
	for (int i = 0; i < TURN && (!ret || ret == -EINTR); i++)
		ret = host_accept(h);
	if (ret == -EMFILE || ret == -ENFILE) {
		log_warn("no descriptor for a link: %s", strerror(-ret));
		loop_fd_mod(&h->lf, 0);
		if (loop_timer_set(&h->timer, loop_now() + SHORTAGE_MS * MSEC))
			h->refs++;
	}
	meets_unlock();
}

static void host_put(struct host *h)
{
	lock_assert_held(&meets.lock);
	if (!--h->refs)
		free(h);
}

static void host_again(struct loop_timer *t)
{
	struct host *h = container_of(t, struct host, timer);

	meets_lock();
	if (!h->gone)
		loop_fd_mod(&h->lf, EPOLLIN);
	host_put(h);
	meets_unlock();
}

static void host_forgotten(struct loop_fd *lf)
{
	meets_lock();
	host_put(container_of(lf, struct host, lf));
	meets_unlock();
}

static int host_new(int fd, const struct meet_name *name)
{
	struct host *h = calloc(1, sizeof(*h));
	int ret;

	lock_assert_held(&meets.lock);
	if (!h)
		return -ENOMEM;
	h->refs = 1;
	h->name = *name;
	h->timer.fire = host_again;
	h->lf = (struct loop_fd){ .fd = fd, .events = EPOLLIN, .ready = host_ready };
	ret = listen(fd, BACKLOG) ? -errno : loop_fd_add(&h->lf);
	if (ret)
		free(h);
	else
		list_add_tail(&meets.hosts, &h->node);
	return ret;
}

/* A rendezvous port of ours: for good. */
static int host_port(const struct meet_name *name)
{
	struct sockaddr_un un;
	socklen_t len = meet_address(name, &un);
	int fd = fdset_take(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	int ret = fd < 0 || bind(fd, (struct sockaddr *)&un, len) ? -errno : 0;

	if (!ret)
		ret = host_new(fd, name);
	if (ret) {
		log_info("no unix socket %s, TCP alone: %s", name->text, strerror(-ret));
		if (fd >= 0)
			fdset_close(fd);
	}
	return ret;
}

int meet_listen(uint16_t port)
{
	struct meet_name name;
	int ret = 0;

	meet_name_of(port, &name);
	meets_lock();
	if (!host_find(&name))
		ret = host_port(&name);
	meets_unlock();
	return ret;
}

int meet_host(int fd, const char *text)
{
	struct meet_name name;
	int ret;

	snprintf(name.text, sizeof(name.text), "%s", text);
	meets_lock();
	ret = host_new(fd, &name);
	meets_unlock();
	return ret;
}

void meet_unhost(const char *text)
{
	struct meet_name name;
	struct host *h;

	snprintf(name.text, sizeof(name.text), "%s", text);
	meets_lock();
	h = host_find(&name);
	if (h) {
		h->gone = true;
		list_del(&h->node);
		if (loop_timer_stop(&h->timer))
			host_put(h);
		loop_fd_del(&h->lf, host_forgotten);
	}
	meets_unlock();
}
