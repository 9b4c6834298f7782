/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/log.h"
#include "base/rcvbuf.h"
#include "base/state.h"
#include "dev/gid.h"
#include "dev/qpn.h"
#include "udp/udp.h"

#include <errno.h>
#include <linux/filter.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

static struct {
	struct lock lock; /* guards everything here, and udp_port's users and ready; outside
			   * of the poll groups' locks */
	struct list ports;
} udp PROCESS_STATE = { LOCK_INIT, LIST_INIT(udp.ports) };

/* ---- sockets -------------------------------------------------------------------- */

/* While no QP is attached the kernel drops what comes, as a NIC does. */
static void deaf(int fd, bool on)
{
	struct sock_filter none = BPF_STMT(BPF_RET | BPF_K, 0);
	struct sock_fprog prog = { 1, &none };
	int zero = 0;

	if (on)
		setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof(prog));
	else
		setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &zero, sizeof(zero));
	if (on)
		udp_discard(fd);
}

static int options_set(struct udp_port *p)
{
	int on = 1, family = 0;
	socklen_t len = sizeof(family);

	if (getsockopt(p->s.fd, SOL_SOCKET, SO_DOMAIN, &family, &len))
		return -errno;
	p->v6 = family == AF_INET6;
	if (p->v6 ? setsockopt(p->s.fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof(on)) :
		    setsockopt(p->s.fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof(on)))
		return -errno;
	rcvbuf_set(p->s.fd, UDP_RECEIVE_BUFFER);
	return 0;
}

/* The ports' QPs may try again. With the poll group's lock. */
static bool unblock(struct udp_port *p)
{
	struct list all = LIST_INIT(all), *n;
	bool some = false;

	lock_get(&p->lock);
	while ((n = list_pop(&p->blocked)))
		list_add_tail(&all, n);
	poll_mod(&p->s.src, EPOLLIN); /* who waited may have been destroyed since */
	/* An end is freed by detach() alone, which takes it off its list with this lock. */
	while ((n = list_pop(&all))) {
		struct ud_qp *u = list_entry(n, struct udp_end, blocked)->u;

		lock_put(&p->lock);
		ud_unblocked(u);
		ud_put(u);
		some = true;
		lock_get(&p->lock);
	}
	lock_put(&p->lock);
	return some;
}

static bool progress(struct poll_source *src, bool by_thread)
{
	struct udp_port *p = container_of(src, struct udp_port, s.src);
	bool moved = udp_receive(&p->s);

	(void)by_thread;
	if (atomic_load_explicit(&src->events, memory_order_relaxed) & EPOLLOUT)
		moved |= unblock(p);
	return moved;
}

static struct udp_port *port_get_locked(uint32_t qpn)
{
	struct udp_port *p;
	int fd = qpn_udp(qpn);

	list_for_each(p, &udp.ports, link)
		if (p->s.port == qpn_port(qpn))
			return p;
	p = fd < 0 ? NULL : calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->s.fd = fd;
	p->s.port = qpn_port(qpn);
	p->s.src.fd = fd;
	p->s.src.progress = progress;
	lock_init(&p->lock);
	list_init(&p->blocked);
	list_add_tail(&udp.ports, &p->link);
	return p;
}

/* ---- the table -------------------------------------------------------------------- */

static int listen_for(struct dev_qp *qp)
{
	struct udp_port *p;
	int ret = 0;

	lock_get(&udp.lock);
	p = port_get_locked(qp->qp.qp_num);
	if (!p) {
		ret = -ENOMEM;
	} else if (!p->ready) {
		ret = options_set(p);
		if (!ret)
			deaf(p->s.fd, true);
		p->ready = !ret;
	}
	lock_put(&udp.lock);
	return ret;
}

static int watch(struct udp_port *p, struct dev_cq *cq)
{
	int ret;

	p->s.cq = cq;
	ret = poll_add(cq, &p->s.src);
	if (ret)
		return ret;
	ret = poll_mod(&p->s.src, EPOLLIN);
	if (ret)
		poll_del(&p->s.src);
	else
		deaf(p->s.fd, false);
	return ret;
}

static int attach(struct ud_qp *u)
{
	struct udp_end *e = calloc(1, sizeof(*e));
	int ret = -ENOMEM;

	if (!e)
		return ret;
	lock_get(&udp.lock);
	e->u = u;
	e->port = port_get_locked(ud_qpn(u));
	list_init(&e->blocked);
	if (e->port)
		ret = e->port->users ? 0 : watch(e->port, ud_cq(u));
	if (!ret)
		e->port->users++;
	lock_put(&udp.lock);
	if (ret)
		free(e);
	else
		*ud_priv(u, &udp_carrier) = e;
	return ret;
}

static void detach(struct ud_qp *u)
{
	struct udp_end *e = udp_end_of(u);
	struct udp_port *p = e->port;
	bool waited;

	lock_get(&udp.lock);
	if (!--p->users) {
		poll_del(&p->s.src);
		deaf(p->s.fd, true);
	}
	lock_put(&udp.lock);
	lock_get(&p->lock);
	waited = list_linked(&e->blocked);
	list_del(&e->blocked);
	lock_put(&p->lock);
	if (waited)
		ud_put(u);
	*ud_priv(u, &udp_carrier) = NULL;
	free(e);
}

static int reaches(struct ud_qp *u, const union ibv_gid *dgid, uint32_t qpn, void **peer)
{
	(void)u;
	(void)dgid;
	(void)qpn;
	*peer = NULL;
	return 1;
}

static void drop(void *peer)
{
	(void)peer;
}

const struct ud_carrier udp_carrier = {
	.name = "UDP",
	.listen = listen_for,
	.attach = attach,
	.detach = detach,
	.reaches = reaches,
	.drop = drop,
	.send = udp_send,
	.join = udp_join,
	.leave = udp_leave,
};
