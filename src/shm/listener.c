/* SPDX-License-Identifier: BSD-2-Clause */
/* The unix sockets on which this process listens for others that want a link. */
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
	TURN = 64, /* connections accepted before others get a turn */
	BACKLOG = 1024,
	SHORTAGE_MS = 250, /* pause when there are no descriptors */
};

/* A listening socket. */
struct link_listener {
	struct list node; /* setups.listeners */
	struct link_name name;
	int refs;    /* one of lf, one of the timer */
	bool closed; /* link_unlisten() was called: its owner may close the descriptor */
	struct loop_fd lf;
	struct loop_timer timer; /* there were no descriptors: accepts again */
};

struct link_listener *link_listener_find(const struct link_name *name)
{
	struct link_listener *ls;

	list_for_each(ls, &setups.listeners, node)
		if (link_name_equal(&ls->name, name))
			return ls;
	return NULL;
}

/* Accepts one connection. 0 or -errno. */
static int listener_accept(struct link_listener *ls)
{
	int fd;

	lock_assert_held(&setups.lock);
	if (ls->closed)
		return -EAGAIN;
	if (fdpass_full())
		return -ENFILE;
	fd = accept4(ls->lf.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0)
		return -errno;
	fd = fdset_take(fd);
	if (!greeting_same_user(fd) || !setup_new(fd, false, &ls->name))
		fdpass_close(fd);
	return 0;
}

static void listener_ready(struct loop_fd *lf, uint32_t revents)
{
	struct link_listener *ls = container_of(lf, struct link_listener, lf);
	int ret = 0;

	(void)revents;
	setups_lock();
	for (int i = 0; i < TURN && (!ret || ret == -EINTR); i++)
		ret = listener_accept(ls);
	if (ret == -EMFILE || ret == -ENFILE) {
		log_warn("no descriptor for a link: %s", strerror(-ret));
		loop_fd_mod(&ls->lf, 0);
		if (loop_timer_set(&ls->timer, loop_now() + SHORTAGE_MS * MSEC))
			ls->refs++;
	}
	setups_unlock();
}

static void listener_put(struct link_listener *ls)
{
	lock_assert_held(&setups.lock);
	if (!--ls->refs)
		free(ls);
}

static void listener_resume(struct loop_timer *t)
{
	struct link_listener *ls = container_of(t, struct link_listener, timer);

	setups_lock();
	if (!ls->closed)
		loop_fd_mod(&ls->lf, EPOLLIN);
	listener_put(ls);
	setups_unlock();
}

static void listener_removed(struct loop_fd *lf)
{
	setups_lock();
	listener_put(container_of(lf, struct link_listener, lf));
	setups_unlock();
}

static int listener_new(int fd, const struct link_name *name)
{
	struct link_listener *ls = calloc(1, sizeof(*ls));
	int ret;

	lock_assert_held(&setups.lock);
	if (!ls)
		return -ENOMEM;
	ls->refs = 1;
	ls->name = *name;
	ls->timer.fire = listener_resume;
	ls->lf = (struct loop_fd){ .fd = fd, .events = EPOLLIN, .ready = listener_ready };
	ret = listen(fd, BACKLOG) ? -errno : loop_fd_add(&ls->lf);
	if (ret)
		free(ls);
	else
		list_add_tail(&setups.listeners, &ls->node);
	return ret;
}

/* Listens under the name of a rendezvous port, until the process ends. */
static int listener_port(const struct link_name *name)
{
	struct sockaddr_un un;
	socklen_t len = link_name_address(name, &un);
	int fd = fdset_take(
		socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
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
	struct link_listener *ls;

	snprintf(name.text, sizeof(name.text), "%s", text);
	setups_lock();
	ls = link_listener_find(&name);
	if (ls) {
		ls->closed = true;
		list_del(&ls->node);
		if (loop_timer_stop(&ls->timer))
			listener_put(ls);
		loop_fd_del(&ls->lf, listener_removed);
	}
	setups_unlock();
}
