/* SPDX-License-Identifier: BSD-2-Clause */
/* Sending. What the host refuses (no route, a firewall, a message too long for the path) is
 * lost, as it would be lost on the way: it is no fault of the QP. */
#include "base/conf.h"
#include "base/crc32c.h"
#include "base/log.h"
#include "base/ports.h"
#include "base/scratch.h"
#include "base/sys.h"
#include "dev/gid.h"
#include "dev/qpn.h"
#include "dev/sge.h"
#include "ud/count.h"
#include "udp/packet.h"
#include "udp/udp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

enum {
	BATCH = 16,
	CONTROL = CMSG_SPACE(sizeof(struct in6_pktinfo)) + 2 * CMSG_SPACE(sizeof(int)),
	TTL = 64, /* what hosts use, and what a hop limit above it becomes */
};

struct packet {
	struct sockaddr_storage to;
	socklen_t to_len;
	uint8_t head[PACKET_HEAD_MAX], tail[PACKET_TAIL_MAX];
	_Alignas(struct cmsghdr) uint8_t control[CONTROL];
	size_t control_len;
};

/* Where a datagram goes, in which family and by which interface. */
struct way {
	union ibv_gid from, to;
	uint32_t ifindex; /* 0: any */
	uint16_t port;
	unsigned flags; /* enum packet_flag */
};

static bool is_loopback_v6(const union ibv_gid *gid)
{
	return !memcmp(gid->raw, &in6addr_loopback, 16);
}

/* An IPv6 group is an IPv4 one in packets that are from an IPv4 address, and on the loopback
 * interface, which has no IPv6 groups. */
static void group_way(struct way *w)
{
	struct sockaddr_in lo = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	union ibv_gid group = w->to;

	w->port = PORT_GROUPS;
	if (is_loopback_v6(&w->from) && !gid_is_v4(&group)) {
		w->flags |= PACKET_LO6;
		gid_from_addr((struct sockaddr *)&lo, &w->from);
	}
	if (gid_is_v4(&group) && !gid_is_v4(&w->from))
		return; /* there is no way: way_find() */
	if (!udp_group_address(&group, !gid_is_v4(&w->from), &w->to))
		w->flags |= PACKET_GROUP;
}

static uint32_t scope_of(const struct ud_out *o)
{
	struct gid_slot s;

	if (o->av)
		return o->av->ifindex;
	return gid_find(&o->head.sgid, &s) ? s.ifindex : 0;
}

static bool is_link_local(const union ibv_gid *gid)
{
	return IN6_IS_ADDR_LINKLOCAL((const struct in6_addr *)gid->raw);
}

/* 0 or -errno. */
static int way_find(const struct ud_out *o, struct way *w)
{
	const struct ud_head *h = &o->head;

	*w = (struct way){ .from = h->sgid,
			   .to = h->dgid,
			   .port = qpn_port(h->dst_qpn),
			   .ifindex = scope_of(o),
			   .flags = conf_get()->crc ? PACKET_CRC : 0 };
	if (h->dst_qpn == UD_MCAST_QPN)
		group_way(w);
	else if (!is_link_local(&w->to) && !is_link_local(&w->from))
		w->ifindex = 0;
	return gid_is_v4(&w->from) == gid_is_v4(&w->to) ? 0 : -EAFNOSUPPORT;
}

static void control_add(struct packet *p, int level, int type, const void *data, size_t len)
{
	struct cmsghdr *c = (void *)(p->control + p->control_len);

	memset(c, 0, CMSG_SPACE(len));
	c->cmsg_level = level;
	c->cmsg_type = type;
	c->cmsg_len = CMSG_LEN(len);
	memcpy(CMSG_DATA(c), data, len);
	p->control_len += CMSG_SPACE(len);
}

static void control_v4(struct packet *p, const struct way *w, const int *tos, const int *ttl)
{
	struct in_pktinfo from = { .ipi_ifindex = (int)w->ifindex };

	memcpy(&from.ipi_spec_dst, w->from.raw + 12, 4);
	control_add(p, IPPROTO_IP, IP_PKTINFO, &from, sizeof(from));
	if (tos)
		control_add(p, IPPROTO_IP, IP_TOS, tos, sizeof(*tos));
	if (ttl)
		control_add(p, IPPROTO_IP, IP_TTL, ttl, sizeof(*ttl));
}

static void control_v6(struct packet *p, const struct way *w, const int *tos, const int *ttl)
{
	struct in6_pktinfo from = { .ipi6_ifindex = w->ifindex };

	memcpy(&from.ipi6_addr, w->from.raw, 16);
	control_add(p, IPPROTO_IPV6, IPV6_PKTINFO, &from, sizeof(from));
	if (tos)
		control_add(p, IPPROTO_IPV6, IPV6_TCLASS, tos, sizeof(*tos));
	if (ttl)
		control_add(p, IPPROTO_IPV6, IPV6_HOPLIMIT, ttl, sizeof(*ttl));
}

/* A hop limit of 0 says nothing. To groups the host's default is 1. */
static void control_put(struct packet *p, const struct way *w, const struct ud_head *h)
{
	int tos = h->traffic_class, ttl = h->hop_limit < TTL ? h->hop_limit : TTL;
	bool given = ttl && (ttl < TTL || h->dst_qpn == UD_MCAST_QPN);

	p->control_len = 0;
	(gid_is_v4(&w->to) ? control_v4 : control_v6)(p, w, tos ? &tos : NULL,
						      given ? &ttl : NULL);
}

/* A socket of both families takes IPv4 addresses as IPv6 has them. */
static void to_put(struct packet *p, const struct way *w, bool v6)
{
	struct sockaddr_in6 *a = (void *)&p->to;

	p->to_len = gid_to_addr(&w->to, w->ifindex, w->port, &p->to);
	if (!v6 || p->to.ss_family == AF_INET6) {
		if (p->to.ss_family == AF_INET6 && w->port == PORT_GROUPS)
			a->sin6_scope_id = w->ifindex;
		return;
	}
	memset(a, 0, sizeof(*a));
	a->sin6_family = AF_INET6;
	a->sin6_port = htons(w->port);
	memcpy(&a->sin6_addr, w->to.raw, 16);
	p->to_len = sizeof(*a);
}

/* With a CRC the payload is sent from a copy: the application may be changing it. */
static int crc_put(struct packet *p, struct ud_out *o, uint8_t *copy, size_t tail)
{
	uint8_t *at = p->tail + tail - 8;
	uint32_t crc;

	if (take_iov(copy, &o->iov[o->first], (int)o->n))
		return -EFAULT;
	o->iov[o->first] = (struct iovec){ copy, o->head.len };
	o->n = o->head.len ? 1 : 0;
	crc = crc32c(CRC32C_INIT, o->iov[o->first - 1].iov_base,
		     o->iov[o->first - 1].iov_len);
	crc = crc32c(crc, copy, o->head.len);
	crc = crc32c(crc, p->tail, tail - 8);
	crc32c_put(at, crc32c(crc, at + 4, 4));
	return 0;
}

/* 0 or -errno: the datagram is lost, or (-EFAULT) cannot be read. */
static int packet_build(struct packet *p, struct ud_out *o, struct msghdr *m, bool v6,
			uint8_t *copy)
{
	struct iovec *head = &o->iov[o->first - 1];
	struct way w;
	size_t tail;
	int ret = way_find(o, &w);

	if (!ret && !v6 && !gid_is_v4(&w.to))
		ret = -EAFNOSUPPORT;
	if (ret)
		return ret;
	*head = (struct iovec){ p->head, packet_head_put(p->head, &o->head) };
	tail = packet_tail_put(p->tail, &o->head, w.flags);
	if (w.flags & PACKET_CRC)
		ret = crc_put(p, o, copy, tail);
	if (ret)
		return ret;
	o->iov[o->first + o->n] = (struct iovec){ p->tail, tail };
	to_put(p, &w, v6);
	control_put(p, &w, &o->head);
	*m = (struct msghdr){ .msg_name = &p->to,
			      .msg_namelen = p->to_len,
			      .msg_iov = head,
			      .msg_iovlen = o->n + 2,
			      .msg_control = p->control,
			      .msg_controllen = p->control_len };
	return 0;
}

/* Once for each errno. */
static void lost(const struct ud_out *o, int err)
{
	static _Atomic uint64_t told[4];
	uint64_t bit = 1ull << (err & 63);

	ud_count(UD_LOST_SEND);
	if (atomic_fetch_or(&told[err >> 6 & 3], bit) & bit)
		return;
	log_info("datagrams of QP 0x%x are lost: %s (said once)", o->head.src_qpn,
		 err == EAFNOSUPPORT ?
			 "source and destination GID are not both IPv4 or both IPv6" :
			 strerror(err));
}

/* There is no room: whoever polls, or the loop thread, says when there is. */
static void wait_for_room(struct udp_end *e)
{
	struct udp_port *p = e->port;

	lock_get(&p->lock);
	if (!list_linked(&e->blocked)) {
		ud_get(e->u);
		list_add_tail(&p->blocked, &e->blocked);
	}
	poll_mod(&p->s.src, EPOLLIN | EPOLLOUT);
	lock_put(&p->lock);
}

/* As sendmmsg(); one is cheaper alone. */
static int transmit(int fd, struct mmsghdr *m, unsigned n)
{
	int ret;

	do {
		ret = n == 1 ? (sys_sendmsg(fd, &m->msg_hdr, MSG_DONTWAIT) < 0 ? -1 : 1) :
			       sys_sendmmsg(fd, m, n, MSG_DONTWAIT);
	} while (ret < 0 && errno == EINTR);
	return ret < 0 ? -errno : ret;
}

/* What one system call sends. */
struct packets {
	struct packet p[BATCH];
	struct mmsghdr m[BATCH];
	uint8_t copy[UD_PAYLOAD_MAX]; /* with a CRC */
};
SCRATCH(packets, struct packets);

/* Sends the first of the datagrams. How many have left; or -errno: the first one cannot be
 * sent, or not now. */
static int send_some(const struct udp_port *port, struct ud_out *out, unsigned n)
{
	struct packets *s = scratch_get(&packets);
	unsigned k = 0;
	int err = 0, ret;

	n = n < BATCH ? n : BATCH;
	if (conf_get()->crc)
		n = 1; /* there is one copy */
	while (k < n && !err) {
		err = packet_build(&s->p[k], &out[k], &s->m[k].msg_hdr, port->v6, s->copy);
		k += !err;
	}
	ret = k ? transmit(port->s.fd, s->m, k) : err;
	scratch_put(&packets, s);
	return ret;
}

int udp_send(struct ud_qp *u, void *peer, struct ud_out *out, unsigned n)
{
	struct udp_end *e = udp_end_of(u);
	unsigned done = 0;

	(void)peer;
	while (done < n) {
		int ret = send_some(e->port, out + done, n - done);

		if (ret > 0) {
			done += (unsigned)ret;
			continue;
		}
		if (done && (ret == -EAGAIN || ret == -EFAULT))
			break;
		if (ret == -EAGAIN) {
			wait_for_room(e);
			return 0;
		}
		if (ret == -EFAULT)
			return ret;
		lost(&out[done++], -ret);
	}
	return (int)done;
}
