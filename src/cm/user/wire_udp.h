/* SPDX-License-Identifier: BSD-2-Clause */
/* The wire of datagram ids: its two sides. */
#ifndef ANYRDMA_CM_USER_WIRE_UDP_H
#define ANYRDMA_CM_USER_WIRE_UDP_H

#include "cm/user/udp_io.h"
#include "cm/user/user.h"

extern const struct user_wire_ops user_wire_udp;

/* An ICMP error (errno err > 0) quotes a request that a socket of the active side has sent
 * (udp_io_error()). */
void udp_icmp_error(const struct udp_io_packet *p, int err);

/* wire_udp_listener.c: the passive side's members of user_wire_ops. */
int udp_attach(struct user_id *child, void *from);
int udp_ack_request(struct user_id *u);
int udp_accept(struct user_id *u, const uint8_t *rep, size_t len);
void udp_reject(struct user_id *u, const uint8_t *rej, size_t len);
void udp_close_passive(struct user_id *u);
int udp_listen(struct user_id *u, struct user_wire_listener **out);
void udp_unlisten(struct user_wire_listener *l);

#endif
