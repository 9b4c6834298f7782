/* SPDX-License-Identifier: BSD-2-Clause */
/* QP numbers. QPN = (rendezvous port << 8) | index: a GID and a QPN name a TCP
 * port where the QP's process can be reached, without daemon or registry.
 * A port is reserved (TCP and UDP bound, dual-stack, not listening) when its
 * first number is given out. */
#ifndef ANYRDMA_DEV_QPN_H
#define ANYRDMA_DEV_QPN_H

#include <stdbool.h>
#include <stdint.h>

/* A free number, indices reused oldest first; never 0, 1 or 0xFFFFFF. Numbers of different
 * owners have different ports: UD QPs have their receive CQ as owner, so that its pollers
 * receive from the ports' UDP sockets; connected QPs have NULL.
 * -errno: EMFILE, EADDRINUSE (no port free), ENOMEM. */
int qpn_get(const void *owner, uint32_t *qpn);
void qpn_put(uint32_t qpn);

/* What becomes of the QP of this number: one in the error state does not answer. */
void qpn_set_error(uint32_t qpn, bool error);
/* A QP of this process has the number, and is not in the error state. */
bool qpn_answers(uint32_t qpn);

/* The port of this number starts to listen (idempotent). Each connection is
 * handed to incoming() in the loop thread: a non-blocking descriptor that is
 * the callee's. */
int qpn_listen(uint32_t qpn, void (*incoming)(int fd));

/* The UDP socket of this number's port: bound, non-blocking, of both families where the host
 * has both. It stays open until the process ends. -1: the number is not one of ours. */
int qpn_udp(uint32_t qpn);
/* The port is one of this process. */
bool qpn_port_ours(uint16_t port);

static inline uint16_t qpn_port(uint32_t qpn)
{
	return (uint16_t)(qpn >> 8);
}

#endif
