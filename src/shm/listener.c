/* SPDX-License-Identifier: BSD-2-Clause */
/* The names under which others find this process, and who knocks there. */
#include "shm/setup.h"

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
struct link_listener {
	struct list node;
	struct link_name name;
	int refs;  /* the descriptor's, the timer's */
	bool gone; /* the descriptor, not ours, may be closed */
	struct loop_fd lf;
	struct loop_timer timer; /* out of descriptors: listens again */
};

struct link_listener *link_listener_find(const struct link_name *name)
{
	struct link_listener *h;

	list_for_each(h, &setups.listeners, node)
		if (link_name_equal(&h->name, name))
			return h;
	return NULL;
}

/* The next visitor, or -errno. */
static int listener_accept(struct link_listener *h)
{
	int fd;

	lock_assert_held(&setups.lock);
	if (h->gone)
		return -EAGAIN;
	if (fdpass_full())
		return -ENFILE;
	fd = accept4(h->lf.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0)
		return -errno;
	fd = fdset_take(fd);
	if (!greeting_same_user(fd) || !setup_new(fd, false, &h->name))
		fdpass_close(fd);
	return 0;
}

static void listener_ready(struct loop_fd *lf, uint32_t revents)
{
	struct link_listener *h = container_of(lf, struct link_listener, lf);
	int ret = 0;

	(void)revents;
	setups_lock();
	for (int i = 0; i < TURN && (!ret || ret == -EINTR); i++)
		ret = listener_accept(h);
	if (ret == -EMFILE || ret == -ENFILE) {
		log_warn("no descriptor for a link: %s", strerror(-ret));
		loop_fd_mod(&h->lf, 0);
		if (loop_timer_set(&h->timer, loop_now() + SHORTAGE_MS * MSEC))
			h->refs++;
	}
	setups_unlock();
}

static void listener_put(struct link_listener *h)
{
	lock_assert_held(&setups.lock);
	if (!--h->refs)
		free(h);
}

static void listener_again(struct loop_timer *t)
{
	struct link_listener *h = container_of(t, struct link_listener, timer);

	setups_lock();
	if (!h->gone)
		loop_fd_mod(&h->lf, EPOLLIN);
	listener_put(h);
	setups_unlock();
}

static void listener_forgotten(struct loop_fd *lf)
{
	setups_lock();
	listener_put(container_of(lf, struct link_listener, lf));
	setups_unlock();
}

static int listener_new(int fd, const struct link_name *name)
{
	struct link_listener *h = calloc(1, sizeof(*h));
	int ret;

	lock_assert_held(&setups.lock);
	if (!h)
		return -ENOMEM;
	h->refs = 1;
	h->name = *name;
	h->timer.fire = listener_again;
	h->lf = (struct loop_fd){ .fd = fd, .events = EPOLLIN, .ready = listener_ready };
	ret = listen(fd, BACKLOG) ? -errno : loop_fd_add(&h->lf);
	if (ret)
		free(h);
	else
		list_add_tail(&setups.listeners, &h->node);
	return ret;
}

/* A rendezvous port of ours: for good. */
static int listener_port(const struct link_name *name)
{
	struct sockaddr_un un;
	socklen_t len = link_name_address(name, &un);
	int fd = fdset_take(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	int ret = fd < 0 || bind(fd, (struct sockaddr *)&un, len) ? -errno : 0;

	if (!ret)
		ret = listener_new(fd, name);
	if (ret) {
		log_info("no unix socket %s, TCP alone: %s", name->text, strerror(-ret));
		if (fd >= 0)
			fdset_close(fd);
	}
	return ret;
}

int link_listen_port(uint16_t port)
{
	struct link_name name;
	int ret = 0;

	link_name_of_port(port, &name);
	setups_lock();
	if (!link_listener_find(&name))
		ret = listener_port(&name);
	setups_unlock();
	return ret;
}

int link_listen_fd(int fd, const char *text)
{
	struct link_name name;
	int ret;

	snprintf(name.text, sizeof(name.text), "%s", text);
	setups_lock();
	ret = listener_new(fd, &name);
	setups_unlock();
	return ret;
}

void link_unlisten(const char *text)
{
	struct link_name name;
	struct link_listener *h;

	snprintf(name.text, sizeof(name.text), "%s", text);
	setups_lock();
	h = link_listener_find(&name);
	if (h) {
		h->gone = true;
		list_del(&h->node);
		if (loop_timer_stop(&h->timer))
			listener_put(h);
		loop_fd_del(&h->lf, listener_forgotten);
	}
	setups_unlock();
}
