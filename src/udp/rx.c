/* SPDX-License-Identifier: BSD-2-Clause */
/* Receiving. A turn is bounded: a flood costs the datagrams of its own socket, and leaves
 * the other sources of the CQ their turns. */
#include "base/scratch.h"
#include "base/sys.h"
#include "dev/gid.h"
#include "dev/qpn.h"
#include "ud/count.h"
#include "udp/packet.h"
#include "udp/udp.h"

#include <errno.h>
#include <string.h>

enum {
	BATCH = 16,
	TURN = 4, /* batches */
	DISCARD_MAX = 100000,
	CONTROL = 128,
};

struct staging {
	struct mmsghdr msg[BATCH];
	struct iovec iov[BATCH];
	struct sockaddr_storage from[BATCH];
	_Alignas(struct cmsghdr) uint8_t control[BATCH][CONTROL];
	uint8_t data[BATCH][PACKET_MAX + 1]; /* one byte more: longer ones are seen */
};
SCRATCH(stagings, struct staging);

static void staging_prepare(struct staging *s)
{
	for (unsigned i = 0; i < BATCH; i++) {
		s->iov[i] = (struct iovec){ s->data[i], sizeof(s->data[i]) };
		s->msg[i].msg_hdr = (struct msghdr){ .msg_name = &s->from[i],
						     .msg_namelen = sizeof(s->from[i]),
						     .msg_iov = &s->iov[i],
						     .msg_iovlen = 1,
						     .msg_control = s->control[i],
						     .msg_controllen = CONTROL };
	}
}

/* The address that a datagram was sent to. False: the kernel did not say. */
static bool destination(struct msghdr *m, union ibv_gid *gid)
{
	struct cmsghdr *c;

	for (c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
			struct in6_pktinfo i6;

			memcpy(&i6, CMSG_DATA(c), sizeof(i6));
			memcpy(gid->raw, &i6.ipi6_addr, 16);
			return true;
		}
		if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
			struct sockaddr_in a = { .sin_family = AF_INET };
			struct in_pktinfo i4;

			memcpy(&i4, CMSG_DATA(c), sizeof(i4));
			a.sin_addr = i4.ipi_addr;
			gid_from_addr((struct sockaddr *)&a, gid);
			return true;
		}
	}
	return false;
}

static uint16_t port_of(const struct sockaddr_storage *ss)
{
	/* At the same place in both families. */
	return ntohs(((const struct sockaddr_in *)(const void *)ss)->sin_port);
}

static bool is_loopback_v4(const union ibv_gid *gid)
{
	return gid_is_v4(gid) && gid->raw[12] == 127;
}

/* The kernel takes what is for the host; a device has the addresses of its GID table. One
 * that was removed from it may be taken for one for a while, if the host still has it. */
static bool is_ours(struct udp_socket *s, const union ibv_gid *to)
{
	struct sockaddr_storage ss;

	if (!memcmp(&s->ours, to, sizeof(*to)))
		return true;
	gid_to_addr(to, 0, 0, &ss);
	if (gid_of_addr(object_device(&s->cq->object), (struct sockaddr *)&ss) < 0)
		return false;
	s->ours = *to;
	return true;
}

/* Fills the GIDs. UD_RECEIVED if the datagram may be delivered, or why it is dropped. */
static enum ud_counter addresses(struct udp_socket *s, struct msghdr *m,
				 struct ud_head *h, unsigned flags)
{
	const struct sockaddr_storage *from = m->msg_name;
	union ibv_gid to;

	gid_from_addr((const struct sockaddr *)from, &h->sgid);
	if (!destination(m, &to))
		return UD_DROP_FORMAT;
	if (port_of(from) != qpn_port(h->src_qpn))
		return UD_DROP_SOURCE;
	if (flags & PACKET_LO6) {
		if (!is_loopback_v4(&h->sgid))
			return UD_DROP_SOURCE;
		memcpy(&h->sgid, &in6addr_loopback, 16);
	}
	if (s->group != (h->dst_qpn == UD_MCAST_QPN) ||
	    (!s->group && (flags & PACKET_GROUP || qpn_port(h->dst_qpn) != s->port)))
		return UD_DROP_FORMAT;
	if (!s->group && !is_ours(s, &to))
		return UD_DROP_ADDRESS;
	if (flags & PACKET_GROUP) {
		union ibv_gid want;

		if (udp_group_address(&h->dgid, !gid_is_v4(&to), &want) ||
		    memcmp(&want, &to, sizeof(to)))
			return UD_DROP_FORMAT;
		return UD_RECEIVED;
	}
	h->dgid = to;
	return UD_RECEIVED;
}

static void packet_in(struct udp_socket *s, struct mmsghdr *m)
{
	enum ud_counter what = UD_DROP_FORMAT;
	const uint8_t *payload = NULL;
	unsigned flags = 0;
	struct ud_head h;
	int ret = -EPROTO;

	if (!(m->msg_hdr.msg_flags & MSG_TRUNC))
		ret = packet_decode(m->msg_hdr.msg_iov->iov_base, m->msg_len, &h, &flags,
				    &payload);
	if (ret == -EBADMSG)
		what = UD_DROP_CRC;
	else if (!ret)
		what = addresses(s, &m->msg_hdr, &h, flags);
	if (what == UD_RECEIVED)
		ud_deliver(&h, payload, s->group ? s->cq : NULL);
	else
		ud_count(what);
}

bool udp_receive(struct udp_socket *s)
{
	struct staging *st = scratch_get(&stagings);
	bool moved = false;
	int n;

	for (int turn = 0; turn < TURN; turn++) {
		staging_prepare(st);
		n = sys_recvmmsg(s->fd, st->msg, BATCH, MSG_DONTWAIT);
		for (int i = 0; i < n; i++)
			packet_in(s, &st->msg[i]);
		moved |= n > 0;
		if (n < BATCH)
			break;
	}
	scratch_put(&stagings, st);
	return moved;
}

void udp_discard(int fd)
{
	char byte;

	for (int i = 0; i < DISCARD_MAX; i++)
		if (sys_recv(fd, &byte, 1, MSG_DONTWAIT) < 0 &&
		    (errno == EAGAIN || errno == EWOULDBLOCK))
			break;
}
