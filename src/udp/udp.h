/* SPDX-License-Identifier: BSD-2-Clause */
/* UDP as the carrier of datagrams: it reaches everybody, and carries groups.
 *
 * carrier.c sockets of QP numbers, and who watches them; packet.c the bytes; tx.c sending;
 * rx.c receiving; mcast.c sockets of groups. */
#ifndef ANYRDMA_UDP_UDP_H
#define ANYRDMA_UDP_UDP_H

#include "base/list.h"
#include "base/lock.h"
#include "dev/poll.h"
#include "ud/carrier.h"

#include <netinet/in.h>

extern const struct ud_carrier udp_carrier;

enum { UDP_RECEIVE_BUFFER = 32 << 20 }; /* asked for: base/rcvbuf.h */

/* A UDP socket that datagrams come from. */
struct udp_socket {
	int fd;
	bool group; /* of groups: datagrams to one QP do not come this way */
	uint16_t port;
	struct dev_cq *cq; /* whose pollers receive */
	struct poll_source src;
	union ibv_gid ours; /* where the last datagram was sent to; the poll group's lock */
};

/* The socket of a port of QP numbers: dev/qpn.h owns the descriptor. It is in the poll group
 * of the CQ that its numbers belong to while QPs are attached. Never freed. */
struct udp_port {
	struct udp_socket s;
	struct list link;
	unsigned users; /* QPs attached */
	bool v6;	/* a socket of both families; else IPv4 */
	bool ready;	/* its options are set */
	struct lock lock;    /* guards blocked; inside the QPs' tx_lock */
	struct list blocked; /* udp_end.blocked: they wait for room to send */
};

/* Of a QP: ud_priv(). */
struct udp_end {
	struct ud_qp *u;
	struct udp_port *port;
	struct list blocked; /* holds a reference to u */
};

static inline struct udp_end *udp_end_of(struct ud_qp *u)
{
	return *ud_priv(u, &udp_carrier);
}

/* ---- tx.c ---- */
int udp_send(struct ud_qp *u, void *peer, struct ud_out *out, unsigned n);

/* ---- rx.c ---- */

/* Receives a turn's worth. True if anything came. */
bool udp_receive(struct udp_socket *s);
/* Discards what has come; at most so much that a flood cannot hold the thread. */
void udp_discard(int fd);

/* As much memory for what has arrived as the host allows. */
void udp_buffer_set(int fd);

/* ---- mcast.c ---- */
int udp_join(struct ud_qp *u, const union ibv_gid *group);
void udp_leave(struct ud_qp *u, const union ibv_gid *group);
/* The address that a group has in packets of IPv4 or IPv6, as a GID. False: it is not the
 * group's own, and stands for it: the packet has the MGID, too. An IPv4 group has none in
 * IPv6: all zero. */
bool udp_group_address(const union ibv_gid *group, bool v6, union ibv_gid *out);

#endif
