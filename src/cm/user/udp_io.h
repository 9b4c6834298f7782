/* SPDX-License-Identifier: BSD-2-Clause */
/* UDP sockets that know which address of this host a datagram was sent to, and choose
 * the one it is sent from. IPv4 addresses are AF_INET here, whatever the socket is. */
#ifndef ANYRDMA_CM_USER_UDP_IO_H
#define ANYRDMA_CM_USER_UDP_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum { UDP_IO_MAX = 512 }; /* longer datagrams are cut to this */

struct udp_io_packet {
	struct sockaddr_storage from;
	struct sockaddr_storage to; /* without a port; errors: not there */
	size_t len;
	uint8_t data[UDP_IO_MAX];
};

/* A non-blocking socket, not bound; family AF_INET, or AF_INET6 that takes IPv6 alone if
 * v6only. Or -errno. */
int udp_io_socket(int family, bool v6only);
/* Asks for the addresses; errors: also for ICMP errors (udp_io_error()). 0 or -errno. */
int udp_io_prepare(int fd, int family, bool errors);

/* The next datagram. 0, -EAGAIN; others: there may be more. */
int udp_io_recv(int fd, struct udp_io_packet *p);
/* family: of the socket. 0 or -errno. */
int udp_io_send(int fd, int family, const struct sockaddr *from, const struct sockaddr *to,
		const void *data, size_t len);
/* The next ICMP error: its errno (> 0), where the datagram went to (from), and as much of
 * it as was quoted (data). 0: none. */
int udp_io_error(int fd, struct udp_io_packet *p);

#endif
