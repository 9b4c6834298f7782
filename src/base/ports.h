/* SPDX-License-Identifier: BSD-2-Clause */
/* UDP ports that are the same in every process. */
#ifndef ANYRDMA_BASE_PORTS_H
#define ANYRDMA_BASE_PORTS_H

enum {
	/* Datagrams to groups (src/udp/mcast.c). The ports of RDMA_PS_UDP are mapped to
	 * f(p) = 1024 + (p + 10007) mod 64512, and this is f(0): no id is ever bound to port
	 * 0. It is below Linux's default range of ephemeral ports, from which the ports of QP
	 * numbers are taken. With ANYRDMA_PORTS=identity port 11031 must not be used. */
	PORT_GROUPS = 11031,
};

#endif
