/* SPDX-License-Identifier: BSD-2-Clause */
/* Streams over TCP for QPs that the application has connected by GID and QP number alone:
 * the side that asks connects to the other's rendezvous port, which the QP number holds
 * (dev/qpn.h), and sends HELLO (an MPA request, doc/wire.md). */
#ifndef ANYRDMA_TCP_RENDEZVOUS_H
#define ANYRDMA_TCP_RENDEZVOUS_H

#include "rc/carrier.h"

extern const struct rc_rendezvous tcp_rendezvous;

/* A connection to a rendezvous port was accepted. Loop thread, no lock; takes fd over. */
void tcp_rendezvous_accepted(int fd);

#endif
