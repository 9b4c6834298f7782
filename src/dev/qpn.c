/* SPDX-License-Identifier: BSD-2-Clause */
#include "dev/qpn.h"

#include "base/fdset.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/state.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PER_PORT = 256, TRIES = 64, BACKLOG = 1024, PER_ROUND = 64 };

struct qpn_port {
	struct list link;
	uint16_t port;
	const void *owner; /* of all numbers in use */
	int tcp, udp;
	bool listening;
	void (*incoming)(int fd);
	struct loop_fd lf;
	uint32_t numbers;
	uint32_t head, tail; /* free indices, oldest first: ring of PER_PORT */
	uint8_t free[PER_PORT];
	uint64_t answers[PER_PORT / 64]; /* bit of an index: its QP is there, not in ERR */
};

static struct {
	struct lock lock; /* guards everything here */
	struct list ports;
} qpns PROCESS_STATE = { LOCK_INIT, LIST_INIT(qpns.ports) };

/* A socket on [::] that takes IPv4 too, or on 0.0.0.0 where there is no IPv6.
 * port 0: any. The descriptor, or -errno. */
static int bind_any(int type, uint16_t port)
{
	struct sockaddr_in6 a6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	struct sockaddr_in a4 = { .sin_family = AF_INET, .sin_port = htons(port) };
	int off = 0, ret, fd;

	fd = fdset_take(socket(AF_INET6, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (fd >= 0) {
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
		if (!bind(fd, (struct sockaddr *)&a6, sizeof(a6)))
			return fd;
		ret = -errno;
		fdset_close(fd);
		if (ret != -EADDRNOTAVAIL)
			return ret;
	} else if (errno != EAFNOSUPPORT) {
		return -errno;
	}
	fd = fdset_take(socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (fd < 0)
		return -errno;
	if (!bind(fd, (struct sockaddr *)&a4, sizeof(a4)))
		return fd;
	ret = -errno;
	fdset_close(fd);
	return ret;
}

static uint16_t port_of(int fd)
{
	struct sockaddr_in6 a; /* the port is at the same place in both families */
	socklen_t len = sizeof(a);

	return getsockname(fd, (struct sockaddr *)&a, &len) ? 0 : ntohs(a.sin6_port);
}

static int port_new(struct qpn_port **out)
{
	struct qpn_port *p = calloc(1, sizeof(*p));
	int ret = -EADDRINUSE;

	if (!p)
		return -ENOMEM;
	p->tcp = p->udp = -1;
	for (int i = 0; i < TRIES && p->udp < 0; i++) {
		p->tcp = bind_any(SOCK_STREAM, 0);
		if (p->tcp < 0) {
			ret = p->tcp;
			break;
		}
		p->port = port_of(p->tcp);
		p->udp = bind_any(SOCK_DGRAM, p->port);
		if (p->udp < 0) {
			ret = p->udp;
			fdset_close(p->tcp);
			if (ret != -EADDRINUSE)
				break;
		}
	}
	if (p->udp < 0) {
		log_error("no rendezvous port for QP numbers: %s", strerror(-ret));
		free(p);
		return ret;
	}
	for (unsigned i = 0; i < PER_PORT; i++)
		p->free[i] = (uint8_t)i;
	p->numbers = p->port == 0xffff ? PER_PORT - 1 : PER_PORT; /* never 0xFFFFFF */
	p->tail = p->numbers;
	list_add_head(&qpns.ports, &p->link);
	*out = p;
	return 0;
}

static void answers_set(struct qpn_port *p, uint32_t qpn, bool on)
{
	uint8_t i = (uint8_t)qpn;
	uint64_t bit = 1ull << i % 64;

	p->answers[i / 64] = on ? p->answers[i / 64] | bit : p->answers[i / 64] & ~bit;
}

/* A port that has a number for this owner: one of its own, or one that nobody uses. */
static struct qpn_port *port_with_free(const void *owner)
{
	struct qpn_port *p, *unused = NULL;

	list_for_each(p, &qpns.ports, link) {
		if (p->owner == owner && p->head != p->tail)
			return p;
		if (p->tail - p->head == p->numbers)
			unused = p;
	}
	return unused;
}

int qpn_get(const void *owner, uint32_t *qpn)
{
	struct qpn_port *p;
	int ret = 0;

	lock_get(&qpns.lock);
	p = port_with_free(owner);
	if (!p)
		ret = port_new(&p);
	if (ret)
		goto out;
	p->owner = owner;
	*qpn = (uint32_t)p->port << 8 | p->free[p->head++ % PER_PORT];
	answers_set(p, *qpn, true);
out:
	lock_put(&qpns.lock);
	return ret;
}

static struct qpn_port *port_find(uint32_t qpn)
{
	struct qpn_port *p;

	list_for_each(p, &qpns.ports, link)
		if (p->port == qpn_port(qpn))
			return p;
	return NULL;
}

void qpn_put(uint32_t qpn)
{
	struct qpn_port *p;

	lock_get(&qpns.lock);
	p = port_find(qpn);
	if (p) {
		p->free[p->tail++ % PER_PORT] = (uint8_t)qpn;
		answers_set(p, qpn, false);
	}
	lock_put(&qpns.lock);
}

void qpn_set_error(uint32_t qpn, bool error)
{
	struct qpn_port *p;

	lock_get(&qpns.lock);
	p = port_find(qpn);
	if (p)
		answers_set(p, qpn, !error);
	lock_put(&qpns.lock);
}

bool qpn_answers(uint32_t qpn)
{
	struct qpn_port *p;
	bool on;

	lock_get(&qpns.lock);
	p = port_find(qpn);
	on = p && p->answers[(uint8_t)qpn / 64] >> (uint8_t)qpn % 64 & 1;
	lock_put(&qpns.lock);
	return on;
}

int qpn_udp(uint32_t qpn)
{
	struct qpn_port *p;
	int fd;

	lock_get(&qpns.lock);
	p = port_find(qpn);
	fd = p ? p->udp : -1;
	lock_put(&qpns.lock);
	return fd;
}

bool qpn_port_ours(uint16_t port)
{
	return qpn_udp((uint32_t)port << 8) >= 0;
}

/* Without a free descriptor the accept queue must be emptied all the same, or the loop
 * would spin. A descriptor is kept in reserve: it is closed, the connection is accepted
 * with its number, and closed. */
/* Opened with the first listener; then the loop thread's. */
static int reserve PROCESS_STATE = -1;

static void reserve_open(void)
{
	if (reserve < 0)
		reserve = fdset_take(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

static void accept_and_drop(int tcp)
{
	int fd;

	fdset_close(reserve);
	reserve = -1;
	fd = accept4(tcp, NULL, NULL, SOCK_CLOEXEC);
	if (fd >= 0) {
		log_warn("no descriptor left: a connection to a QP was refused");
		close(fd);
	}
	reserve_open();
}

static void lf_ready(struct loop_fd *lf, uint32_t revents)
{
	struct qpn_port *p = container_of(lf, struct qpn_port, lf);

	(void)revents;
	for (int i = 0; i < PER_ROUND; i++) {
		int fd = accept4(lf->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			p->incoming(fdset_take(fd));
			continue;
		}
		if (errno == EMFILE || errno == ENFILE) {
			accept_and_drop(lf->fd);
			return;
		}
		if (errno != EINTR && errno != ECONNABORTED)
			return;
	}
}

static bool any_listens(void)
{
	struct qpn_port *p;

	list_for_each(p, &qpns.ports, link)
		if (p->listening)
			return true;
	return false;
}

int qpn_listen(uint32_t qpn, void (*incoming)(int fd))
{
	struct qpn_port *p;
	int ret = 0;

	lock_get(&qpns.lock);
	p = port_find(qpn);
	if (p && !p->listening) {
		p->lf = (struct loop_fd){ .fd = p->tcp, .events = EPOLLIN, .ready = lf_ready };
		p->incoming = incoming;
		if (!any_listens())
			reserve_open(); /* the loop thread does not use it yet */
		if (listen(p->tcp, BACKLOG))
			ret = -errno;
		else
			ret = loop_fd_add(&p->lf);
		p->listening = !ret;
	}
	lock_put(&qpns.lock);
	return ret;
}
