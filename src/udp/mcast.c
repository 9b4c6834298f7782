/* SPDX-License-Identifier: BSD-2-Clause */
/* Groups. Every receive CQ with members has sockets of its own, on the one port of groups,
 * which every process shares by SO_REUSEADDR: the kernel gives each of them a copy. A group
 * is joined on every interface that has an address in the GID table of the CQ's device, loopback
 * included.
 *
 * An IPv6 group is joined as such on interfaces with IPv6 addresses, and as an IPv4 group
 * that stands for it on those with IPv4 addresses: from an IPv4 GID, and on the loopback
 * interface, it is sent as that one (tx.c). A datagram goes one way, so nobody gets two.
 *
 * Linux allows 20 memberships (net.ipv4.igmp_max_memberships) of an IPv4 socket: then another
 * socket is opened. Which socket an IPv4 group's datagram of an interface is for, the kernel
 * decides by group and interface; for IPv6 by group alone, so a group must be on one. Two groups
 * may have one address: packets to it have the MGID. */
#include "base/crc32c.h"
#include "base/fdset.h"
#include "base/log.h"
#include "base/ports.h"
#include "base/rcvbuf.h"
#include "base/state.h"
#include "dev/gid.h"
#include "udp/udp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

enum { IPV6_MULTICAST_ALL_ = 29 };

struct group_socket {
	struct udp_socket s;
	struct list link; /* cq_groups.sockets */
	bool v6;
	unsigned members;
};

struct membership {
	uint32_t ifindex;
	struct group_socket *on;
};

struct group {
	struct list link; /* cq_groups.groups */
	union ibv_gid gid;
	unsigned users; /* QPs */
	unsigned n;
	struct membership *m;
};

struct cq_groups {
	struct list link;
	struct dev_cq *cq;
	struct list groups, sockets;
};

static struct {
	struct lock lock; /* guards everything here; outside of the poll groups' locks */
	struct list cqs;
} mcast PROCESS_STATE = { LOCK_INIT, LIST_INIT(mcast.cqs) };

bool udp_group_address(const union ibv_gid *group, bool v6, union ibv_gid *out)
{
	uint32_t low = htonl(239u << 24 | (crc32c(CRC32C_INIT, group->raw, 16) & 0xffffff));
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = low };

	memset(out, 0, sizeof(*out));
	if (v6 == gid_is_v4(group)) {
		if (!v6) /* RFC 2365: of this site */
			gid_from_addr((struct sockaddr *)&a, out);
		return false;
	}
	*out = *group;
	if (!v6 || (group->raw[1] & 15) > 1)
		return true;
	/* RFC 4291 section 2.7: of this interface, or reserved. As one of this link it leaves
	 * the host; InfiniBand's scopes do not hinder that. */
	out->raw[1] = 0x12;
	return false;
}

/* ---- sockets -------------------------------------------------------------------- */

static bool progress(struct poll_source *src, bool by_thread)
{
	(void)by_thread;
	return udp_receive(container_of(src, struct udp_socket, src));
}

static int socket_bind(int fd, bool v6)
{
	struct sockaddr_in6 a6 = { .sin6_family = AF_INET6, .sin6_port = htons(PORT_GROUPS) };
	struct sockaddr_in a4 = { .sin_family = AF_INET, .sin_port = htons(PORT_GROUPS) };
	int on = 1, off = 0;

	rcvbuf_set(fd, UDP_RECEIVE_BUFFER);
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)))
		return -errno;
	if (v6) {
		if (setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) ||
		    setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof(on)) ||
		    setsockopt(fd, IPPROTO_IPV6, IPV6_MULTICAST_ALL_, &off, sizeof(off)) ||
		    bind(fd, (struct sockaddr *)&a6, sizeof(a6)))
			return -errno;
	} else if (setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof(on)) ||
		   setsockopt(fd, IPPROTO_IP, IP_MULTICAST_ALL, &off, sizeof(off)) ||
		   bind(fd, (struct sockaddr *)&a4, sizeof(a4))) {
		return -errno;
	}
	return 0;
}

static int socket_new(struct cq_groups *c, bool v6, struct group_socket **out)
{
	struct group_socket *g = calloc(1, sizeof(*g));
	int ret;

	if (!g)
		return -ENOMEM;
	g->v6 = v6;
	g->s.group = true;
	g->s.port = PORT_GROUPS;
	g->s.cq = c->cq;
	g->s.src.progress = progress;
	g->s.fd = fdset_take(socket(v6 ? AF_INET6 : AF_INET,
				    SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	ret = g->s.fd < 0 ? -errno : socket_bind(g->s.fd, v6);
	g->s.src.fd = g->s.fd;
	if (!ret)
		ret = poll_add(c->cq, &g->s.src);
	if (ret)
		goto fail;
	ret = poll_mod(&g->s.src, EPOLLIN);
	if (ret) {
		poll_del(&g->s.src);
		goto fail;
	}
	list_add_tail(&c->sockets, &g->link);
	*out = g;
	return 0;
fail:
	if (g->s.fd >= 0)
		fdset_close(g->s.fd);
	free(g);
	return ret;
}

static void socket_free(struct group_socket *g)
{
	list_del(&g->link);
	poll_del(&g->s.src);
	fdset_close(g->s.fd);
	free(g);
}

/* ---- memberships ------------------------------------------------------------------ */

static int option_set(const struct group_socket *s, const struct group *g, uint32_t ifindex,
		      bool join)
{
	struct ip_mreqn m4 = { .imr_ifindex = (int)ifindex };
	struct ipv6_mreq m6 = { .ipv6mr_interface = ifindex };
	union ibv_gid a;
	int ret;

	udp_group_address(&g->gid, s->v6, &a);
	if (s->v6) {
		memcpy(&m6.ipv6mr_multiaddr, a.raw, 16);
		ret = setsockopt(s->s.fd, IPPROTO_IPV6,
				 join ? IPV6_ADD_MEMBERSHIP : IPV6_DROP_MEMBERSHIP, &m6,
				 sizeof(m6));
	} else {
		memcpy(&m4.imr_multiaddr, a.raw + 12, 4);
		ret = setsockopt(s->s.fd, IPPROTO_IP,
				 join ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP, &m4,
				 sizeof(m4));
	}
	/* Another group of the CQ may have the same address. */
	return ret && !(join && errno == EADDRINUSE) ? -errno : 0;
}

static bool same_address(const struct group *a, const struct group *b, bool v6)
{
	union ibv_gid x, y;

	udp_group_address(&a->gid, v6, &x);
	udp_group_address(&b->gid, v6, &y);
	return !memcmp(&x, &y, sizeof(x));
}

/* A membership of g. ifindex 0: on any interface. */
static struct membership *find(const struct group *g, bool v6, uint32_t ifindex)
{
	for (unsigned i = 0; i < g->n; i++)
		if (g->m[i].on->v6 == v6 && (!ifindex || g->m[i].ifindex == ifindex))
			return &g->m[i];
	return NULL;
}

/* One of another group of the CQ that has the same address. */
static struct membership *find_shared(const struct cq_groups *c, const struct group *g,
				      bool v6, uint32_t ifindex)
{
	struct membership *m;
	struct group *o;

	list_for_each(o, &c->groups, link) {
		m = o == g ? NULL : find(o, v6, ifindex);
		if (m && same_address(o, g, v6))
			return m;
	}
	return NULL;
}

static int add_on(struct group *g, struct group_socket *s, uint32_t ifindex)
{
	struct membership *m = realloc(g->m, (g->n + 1) * sizeof(*m));
	int ret;

	if (!m)
		return -ENOMEM;
	g->m = m;
	ret = option_set(s, g, ifindex, true);
	if (ret)
		return ret;
	m[g->n++] = (struct membership){ ifindex, s };
	s->members++;
	return 0;
}

/* On the socket that must have it, as two would get two copies of each datagram; else on any
 * that has room, or a new one. */
static int add(struct cq_groups *c, struct group *g, bool v6, uint32_t ifindex)
{
	struct membership *there = v6 ? find(g, v6, 0) : NULL;
	struct group_socket *s;
	int ret;

	if (!there)
		there = find_shared(c, g, v6, v6 ? 0 : ifindex);
	if (there)
		return add_on(g, there->on, ifindex);
	list_for_each(s, &c->sockets, link) {
		if (s->v6 != v6)
			continue;
		ret = add_on(g, s, ifindex);
		if (ret != -ENOBUFS && ret != -ENOMEM)
			return ret;
	}
	ret = socket_new(c, v6, &s);
	if (ret)
		return ret;
	ret = add_on(g, s, ifindex);
	if (ret)
		socket_free(s);
	return ret;
}

/* Joins on the interfaces that it has not joined on yet. 0: it is joined on some; -errno of
 * the first that failed. */
static int join_all(struct cq_groups *c, struct group *g)
{
	const unsigned device = object_device(&c->cq->object);
	struct gid_slot s;
	int ret, first = -ENODEV;

	for (unsigned i = 0; i < gid_count(device); i++) {
		bool v6;

		if (!gid_get(device, i, &s) || !s.ifindex)
			continue;
		v6 = !gid_is_v4(&s.gid);
		if ((v6 && (gid_is_v4(&g->gid) || s.loopback)) || find(g, v6, s.ifindex))
			continue;
		ret = add(c, g, v6, s.ifindex);
		if (ret && first == -ENODEV)
			first = ret;
		if (ret)
			log_info("a group cannot be joined on interface %u: %s", s.ifindex,
				 strerror(-ret));
	}
	return g->n ? 0 : first;
}

static void membership_drop(const struct cq_groups *c, struct group *g, unsigned i)
{
	struct membership m = g->m[i];

	g->m[i] = g->m[--g->n];
	if (--m.on->members == 0)
		socket_free(m.on);
	else if (!find_shared(c, g, m.on->v6, m.ifindex))
		option_set(m.on, g, m.ifindex, false);
}

static void group_free(struct cq_groups *c, struct group *g)
{
	while (g->n)
		membership_drop(c, g, g->n - 1);
	list_del(&g->link);
	free(g->m);
	free(g);
	if (list_empty(&c->groups)) {
		list_del(&c->link);
		free(c);
	}
}

static bool has_address(unsigned device, const struct membership *m)
{
	struct gid_slot s;

	for (unsigned i = 0; i < gid_count(device); i++)
		if (gid_get(device, i, &s) && s.ifindex == m->ifindex &&
		    gid_is_v4(&s.gid) == !m->on->v6)
			return true;
	return false;
}

/* Leaves the group where join_all() would not join it any more. */
static void leave_old(const struct cq_groups *c, struct group *g)
{
	for (unsigned i = g->n; i-- > 0;)
		if (!has_address(object_device(&c->cq->object), &g->m[i]))
			membership_drop(c, g, i);
}

static void interfaces_changed(void)
{
	struct cq_groups *c;
	struct group *g;

	lock_get(&mcast.lock);
	list_for_each(c, &mcast.cqs, link)
		list_for_each(g, &c->groups, link) {
			leave_old(c, g);
			join_all(c, g);
		}
	lock_put(&mcast.lock);
}

/* ---- the carrier's calls -------------------------------------------------------------- */

static struct cq_groups *cq_find(const struct dev_cq *cq)
{
	struct cq_groups *c;

	list_for_each(c, &mcast.cqs, link)
		if (c->cq == cq)
			return c;
	return NULL;
}

static struct group *group_find(const struct cq_groups *c, const union ibv_gid *gid)
{
	struct group *g;

	list_for_each(g, &c->groups, link)
		if (!memcmp(&g->gid, gid, sizeof(*gid)))
			return g;
	return NULL;
}

static struct cq_groups *cq_get(struct dev_cq *cq)
{
	struct cq_groups *c = cq_find(cq);

	if (c)
		return c;
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->cq = cq;
	list_init(&c->groups);
	list_init(&c->sockets);
	list_add_tail(&mcast.cqs, &c->link);
	return c;
}

static int group_join(struct dev_cq *cq, const union ibv_gid *gid)
{
	struct cq_groups *c = cq_get(cq);
	struct group *g = c ? group_find(c, gid) : NULL;
	int ret;

	if (g) {
		g->users++;
		return 0;
	}
	g = c ? calloc(1, sizeof(*g)) : NULL;
	if (!g) {
		if (c && list_empty(&c->groups)) {
			list_del(&c->link);
			free(c);
		}
		return -ENOMEM;
	}
	g->gid = *gid;
	g->users = 1;
	list_add_tail(&c->groups, &g->link);
	ret = join_all(c, g);
	if (ret)
		group_free(c, g);
	return ret;
}

int udp_join(struct ud_qp *u, const union ibv_gid *group)
{
	int ret;

	gid_watch(interfaces_changed);
	lock_get(&mcast.lock);
	ret = group_join(ud_cq(u), group);
	lock_put(&mcast.lock);
	if (ret)
		log_info("QP 0x%x cannot join a group: %s", ud_qpn(u), strerror(-ret));
	return ret;
}

void udp_leave(struct ud_qp *u, const union ibv_gid *group)
{
	struct cq_groups *c;
	struct group *g;

	lock_get(&mcast.lock);
	c = cq_find(ud_cq(u));
	g = c ? group_find(c, group) : NULL;
	if (g && !--g->users)
		group_free(c, g);
	lock_put(&mcast.lock);
}
