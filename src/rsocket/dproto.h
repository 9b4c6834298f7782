/* SPDX-License-Identifier: BSD-2-Clause */
/* The two headers of datagrams: over UDP, until the other side's QP is known, and in front
 * of the payload of an unreliable datagram. Pure functions of bytes. */
#ifndef ANYRDMA_RSOCKET_DPROTO_H
#define ANYRDMA_RSOCKET_DPROTO_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum {
	DPROTO_QKEY = 0x01234567,
	DPROTO_MAX = 2048,	/* header and payload */
	DPROTO_UDP_MAX = 28,	/* header over UDP, */
	DPROTO_UD_MAX = 24,	/* ... of an unreliable datagram */
};

enum dproto_op { DPROTO_DATA = 0, DPROTO_CTRL = 7 };

struct dproto_udp {
	enum dproto_op op;
	uint32_t qpn;		/* the sender's; 0: it has none */
	struct sockaddr_storage src; /* address alone */
};

/* Bytes written. The family of src decides: AF_INET or AF_INET6. */
size_t dproto_udp_put(uint8_t out[DPROTO_UDP_MAX], const struct dproto_udp *h);
/* Bytes of the header, or -EPROTO. */
int dproto_udp_get(const uint8_t *in, size_t len, struct dproto_udp *h);

size_t dproto_ud_put(uint8_t out[DPROTO_UD_MAX], const struct sockaddr_storage *src);
int dproto_ud_get(const uint8_t *in, size_t len, struct sockaddr_storage *src);

#endif
