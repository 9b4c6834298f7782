/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/nl.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NL_BUF = 16384 };

/* Arrays grow by doubling; cap is the power of two at or above n. */
static void *grow(void *p, unsigned n, size_t size)
{
	if (n & (n - 1))
		return p;
	return realloc(p, (n ? n * 2 : 1) * size);
}

static void attrs_index(struct rtattr *rta, int len, struct rtattr **tb, int max)
{
	memset(tb, 0, sizeof(*tb) * (size_t)(max + 1));
	for (; RTA_OK(rta, len); rta = RTA_NEXT(rta, len))
		if ((rta->rta_type & NLA_TYPE_MASK) <= max)
			tb[rta->rta_type & NLA_TYPE_MASK] = rta;
}

static uint32_t attr_u32(const struct rtattr *rta, uint32_t none)
{
	uint32_t v = none;

	if (rta && RTA_PAYLOAD(rta) >= sizeof(v))
		memcpy(&v, RTA_DATA(rta), sizeof(v));
	return v;
}

static int on_addr(struct nl_host *h, struct nlmsghdr *n)
{
	struct ifaddrmsg *m = NLMSG_DATA(n);
	struct rtattr *tb[IFA_MAX + 1], *a;
	size_t want = m->ifa_family == AF_INET ? 4 : 16;
	struct nl_addr *out;
	void *p;

	if (m->ifa_family != AF_INET && m->ifa_family != AF_INET6)
		return 0;
	attrs_index(IFA_RTA(m), (int)IFA_PAYLOAD(n), tb, IFA_MAX);
	/* With a peer address IFA_ADDRESS is the peer's. */
	a = tb[IFA_LOCAL] ? tb[IFA_LOCAL] : tb[IFA_ADDRESS];
	if (!a || RTA_PAYLOAD(a) < want)
		return 0;
	p = grow(h->addrs, h->naddrs, sizeof(*h->addrs));
	if (!p)
		return -ENOMEM;
	h->addrs = p;
	out = &h->addrs[h->naddrs++];
	memset(out, 0, sizeof(*out));
	out->family = m->ifa_family;
	out->scope = m->ifa_scope;
	out->ifindex = m->ifa_index;
	out->flags = attr_u32(tb[IFA_FLAGS], m->ifa_flags);
	memcpy(out->addr, RTA_DATA(a), want);
	return 0;
}

static int on_link(struct nl_host *h, struct nlmsghdr *n)
{
	struct ifinfomsg *m = NLMSG_DATA(n);
	struct rtattr *tb[IFLA_MAX + 1];
	struct nl_link *out;
	void *p;

	attrs_index(IFLA_RTA(m), (int)IFLA_PAYLOAD(n), tb, IFLA_MAX);
	p = grow(h->links, h->nlinks, sizeof(*h->links));
	if (!p)
		return -ENOMEM;
	h->links = p;
	out = &h->links[h->nlinks++];
	memset(out, 0, sizeof(*out));
	out->ifindex = (uint32_t)m->ifi_index;
	out->flags = m->ifi_flags;
	out->mtu = attr_u32(tb[IFLA_MTU], 1500);
	if (tb[IFLA_IFNAME])
		strncpy(out->name, RTA_DATA(tb[IFLA_IFNAME]), sizeof(out->name) - 1);
	return 0;
}

/* Best default route so far: IPv4 before IPv6, then the least metric. */
struct best_route {
	uint32_t ifindex, metric;
	bool v4;
};

static void on_route(struct best_route *best, struct nlmsghdr *n)
{
	struct rtmsg *m = NLMSG_DATA(n);
	struct rtattr *tb[RTA_MAX + 1];
	uint32_t oif, metric;
	bool v4 = m->rtm_family == AF_INET;

	if (m->rtm_dst_len || m->rtm_type != RTN_UNICAST || m->rtm_table != RT_TABLE_MAIN)
		return;
	attrs_index(RTM_RTA(m), (int)RTM_PAYLOAD(n), tb, RTA_MAX);
	oif = attr_u32(tb[RTA_OIF], 0);
	if (!oif && tb[RTA_MULTIPATH] &&
	    RTA_PAYLOAD(tb[RTA_MULTIPATH]) >= sizeof(struct rtnexthop)) {
		struct rtnexthop nh;

		memcpy(&nh, RTA_DATA(tb[RTA_MULTIPATH]), sizeof(nh));
		oif = (uint32_t)nh.rtnh_ifindex;
	}
	metric = attr_u32(tb[RTA_PRIORITY], 0);
	if (!oif || (best->ifindex &&
		     (best->v4 > v4 || (best->v4 == v4 && best->metric <= metric))))
		return;
	*best = (struct best_route){ oif, metric, v4 };
}

static int on_message(struct nl_host *h, struct best_route *best, struct nlmsghdr *n)
{
	switch (n->nlmsg_type) {
	case RTM_NEWADDR:
		return on_addr(h, n);
	case RTM_NEWLINK:
		return on_link(h, n);
	case RTM_NEWROUTE:
		on_route(best, n);
		return 0;
	default:
		return 0;
	}
}

/* Reads one dump to its end. */
static int dump_read(int fd, uint32_t seq, struct nl_host *h, struct best_route *best)
{
	char buf[NL_BUF] __attribute__((aligned(NLMSG_ALIGNTO)));
	struct nlmsghdr *n;
	ssize_t got;
	int len, ret;

	for (;;) {
		got = recv(fd, buf, sizeof(buf), 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got ? -errno : -EPIPE;
		len = (int)got;
		for (n = (struct nlmsghdr *)buf; NLMSG_OK(n, (unsigned)len);
		     n = NLMSG_NEXT(n, len)) {
			if (n->nlmsg_seq != seq)
				continue;
			if (n->nlmsg_type == NLMSG_DONE)
				return 0;
			if (n->nlmsg_type == NLMSG_ERROR) {
				ret = ((struct nlmsgerr *)NLMSG_DATA(n))->error;
				return ret ? ret : -EIO;
			}
			ret = on_message(h, best, n);
			if (ret)
				return ret;
		}
	}
}

static int dump(int fd, uint16_t type, uint32_t seq, struct nl_host *h,
		struct best_route *best)
{
	struct {
		struct nlmsghdr n;
		union {
			struct ifinfomsg link;
			struct ifaddrmsg addr;
			struct rtmsg route;
		};
	} req = { .n = { .nlmsg_len = sizeof(req),
			 .nlmsg_type = type,
			 .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP,
			 .nlmsg_seq = seq } };
	struct sockaddr_nl to = { .nl_family = AF_NETLINK };

	if (sendto(fd, &req, sizeof(req), 0, (struct sockaddr *)&to, sizeof(to)) < 0)
		return -errno;
	return dump_read(fd, seq, h, best);
}

int nl_host_read(struct nl_host *h)
{
	struct best_route best = { 0 };
	int fd, ret;

	memset(h, 0, sizeof(*h));
	fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	if (fd < 0)
		return -errno;
	ret = dump(fd, RTM_GETLINK, 1, h, &best);
	if (!ret)
		ret = dump(fd, RTM_GETADDR, 2, h, &best);
	/* Some sandboxes do not show routes: this is not an error. */
	if (!ret && !dump(fd, RTM_GETROUTE, 3, h, &best))
		h->default_ifindex = best.ifindex;
	close(fd);
	if (ret)
		nl_host_free(h);
	return ret;
}

void nl_host_free(struct nl_host *h)
{
	free(h->addrs);
	free(h->links);
	memset(h, 0, sizeof(*h));
}

int nl_watch_open(void)
{
	struct sockaddr_nl sa = { .nl_family = AF_NETLINK,
				  .nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR |
					       RTMGRP_IPV6_IFADDR };
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK,
			NETLINK_ROUTE);
	int err;

	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0) {
		err = -errno;
		close(fd);
		return err;
	}
	return fd;
}

bool nl_watch_drain(int fd)
{
	char buf[4096];
	bool any = false;
	ssize_t got;

	for (;;) {
		got = recv(fd, buf, sizeof(buf), MSG_DONTWAIT | MSG_TRUNC);
		if (got > 0) {
			any = true;
		} else if (got < 0 && errno == ENOBUFS) {
			any = true; /* messages were lost: something changed */
		} else if (!(got < 0 && errno == EINTR)) {
			return any;
		}
	}
}
