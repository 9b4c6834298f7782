/* SPDX-License-Identifier: BSD-2-Clause */
#include "cm/user/udp_io.h"

#include "base/rcvbuf.h"
#include "cm/user/port.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>
#include <linux/errqueue.h>

enum { RCVBUF = 4 << 20 }; /* answers to thousands of requests come at once */

union control {
	struct cmsghdr align;
	char v4[CMSG_SPACE(sizeof(struct in_pktinfo))];
	char v6[CMSG_SPACE(sizeof(struct in6_pktinfo))];
	char err[CMSG_SPACE(sizeof(struct sock_extended_err) + sizeof(struct sockaddr_in6))];
	char all[256];
};

int udp_io_socket(int family, bool v6only)
{
	int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), only = v6only;

	if (fd < 0)
		return -errno;
	if (family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof(only));
	return fd;
}

int udp_io_prepare(int fd, int family, bool errors)
{
	int one = 1, ret;

	rcvbuf_set(fd, RCVBUF);
	if (family == AF_INET)
		ret = setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &one, sizeof(one));
	else
		ret = setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &one, sizeof(one));
	if (!ret && errors && family == AF_INET)
		ret = setsockopt(fd, IPPROTO_IP, IP_RECVERR, &one, sizeof(one));
	else if (!ret && errors)
		ret = setsockopt(fd, IPPROTO_IPV6, IPV6_RECVERR, &one, sizeof(one));
	return ret ? -errno : 0;
}

/* The address of this host in a control message. */
static void take_pktinfo(const struct cmsghdr *c, struct sockaddr_storage *to)
{
	struct sockaddr_in in4 = { .sin_family = AF_INET };
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 };
	struct in_pktinfo p4;
	struct in6_pktinfo p6;

	if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
		memcpy(&p4, CMSG_DATA(c), sizeof(p4));
		in4.sin_addr = p4.ipi_addr;
		memcpy(to, &in4, sizeof(in4));
	} else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
		memcpy(&p6, CMSG_DATA(c), sizeof(p6));
		in6.sin6_addr = p6.ipi6_addr;
		if (IN6_IS_ADDR_LINKLOCAL(&p6.ipi6_addr))
			in6.sin6_scope_id = p6.ipi6_ifindex;
		memcpy(to, &in6, sizeof(in6));
		sa_unmap(to);
	}
}

static int receive(int fd, struct udp_io_packet *p, union control *ctl, struct msghdr *msg,
		   int flags)
{
	struct iovec iov = { p->data, sizeof(p->data) };
	ssize_t got;

	memset(&p->from, 0, sizeof(p->from));
	memset(&p->to, 0, sizeof(p->to));
	*msg = (struct msghdr){
		.msg_name = &p->from,
		.msg_namelen = sizeof(p->from),
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = ctl,
		.msg_controllen = sizeof(*ctl),
	};
	got = recvmsg(fd, msg, MSG_DONTWAIT | flags);
	if (got < 0)
		return -errno;
	p->len = (size_t)got;
	sa_unmap(&p->from);
	return 0;
}

int udp_io_recv(int fd, struct udp_io_packet *p)
{
	union control ctl;
	struct cmsghdr *c;
	struct msghdr msg;
	int ret = receive(fd, p, &ctl, &msg, 0);

	if (ret)
		return ret;
	for (c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c))
		take_pktinfo(c, &p->to);
	return 0;
}

int udp_io_error(int fd, struct udp_io_packet *p)
{
	struct sock_extended_err e;
	union control ctl;
	struct cmsghdr *c;
	struct msghdr msg;
	int err = 0;

	while (!err) {
		if (receive(fd, p, &ctl, &msg, MSG_ERRQUEUE))
			return 0;
		for (c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
			if (!(c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_RECVERR) &&
			    !(c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_RECVERR))
				continue;
			memcpy(&e, CMSG_DATA(c), sizeof(e));
			err = (int)e.ee_errno;
		}
	}
	return err;
}

static void to_mapped(const struct sockaddr *sa, struct sockaddr_in6 *out)
{
	const struct sockaddr_in *in4 = (const void *)sa;

	*out = (struct sockaddr_in6){ .sin6_family = AF_INET6, .sin6_port = in4->sin_port };
	out->sin6_addr.s6_addr[10] = out->sin6_addr.s6_addr[11] = 0xff;
	memcpy(out->sin6_addr.s6_addr + 12, &in4->sin_addr, 4);
}

static size_t put_source4(union control *ctl, const struct sockaddr *from)
{
	struct in_pktinfo p4 = { .ipi_spec_dst = ((const struct sockaddr_in *)from)->sin_addr };
	struct cmsghdr *c = &ctl->align;

	c->cmsg_level = IPPROTO_IP;
	c->cmsg_type = IP_PKTINFO;
	c->cmsg_len = CMSG_LEN(sizeof(p4));
	memcpy(CMSG_DATA(c), &p4, sizeof(p4));
	return CMSG_SPACE(sizeof(p4));
}

static size_t put_source6(union control *ctl, const struct sockaddr_in6 *from)
{
	struct in6_pktinfo p6 = { .ipi6_addr = from->sin6_addr };
	struct cmsghdr *c = &ctl->align;

	if (IN6_IS_ADDR_LINKLOCAL(&from->sin6_addr))
		p6.ipi6_ifindex = from->sin6_scope_id;
	c->cmsg_level = IPPROTO_IPV6;
	c->cmsg_type = IPV6_PKTINFO;
	c->cmsg_len = CMSG_LEN(sizeof(p6));
	memcpy(CMSG_DATA(c), &p6, sizeof(p6));
	return CMSG_SPACE(sizeof(p6));
}

int udp_io_send(int fd, int family, const struct sockaddr *from, const struct sockaddr *to,
		const void *data, size_t len)
{
	struct iovec iov = { (void *)(uintptr_t)data, len };
	union control ctl = { .all = { 0 } };
	struct sockaddr_in6 from6, to6;
	struct sockaddr_storage name = { 0 };
	struct msghdr msg = {
		.msg_name = &name,
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &ctl,
	};

	memcpy(&name, to, sa_len(to));
	msg.msg_namelen = sa_len(to);
	if (family == AF_INET) {
		msg.msg_controllen = put_source4(&ctl, from);
	} else if (from->sa_family == AF_INET) {
		to_mapped(to, &to6);
		to_mapped(from, &from6);
		memcpy(&name, &to6, sizeof(to6));
		msg.msg_namelen = sizeof(to6);
		msg.msg_controllen = put_source6(&ctl, &from6);
	} else {
		msg.msg_controllen = put_source6(&ctl, (const struct sockaddr_in6 *)from);
	}
	return sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}
