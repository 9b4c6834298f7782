/* SPDX-License-Identifier: BSD-2-Clause */
/* The bytes of a datagram in a UDP packet: RoCE v2's headers (InfiniBand 9.2, 9.3; annex
 * A17), the payload, and a trailer of our own where RoCE has its ICRC. doc/wire.md has them
 * one by one. GIDs are the packet's addresses. */
#ifndef ANYRDMA_UDP_PACKET_H
#define ANYRDMA_UDP_PACKET_H

#include "ud/carrier.h"

enum {
	PACKET_HEAD_MAX = 12 + 8 + 4, /* BTH, DETH, ImmDt */
	PACKET_TAIL_MAX = 16 + 4 + 4, /* group, CRC, trailer */
	PACKET_MAX = PACKET_HEAD_MAX + UD_PAYLOAD_MAX + PACKET_TAIL_MAX,
	PACKET_VERSION = 1,
};

/* What the trailer says beside version and fields. */
enum packet_flag {
	PACKET_CRC = 1,
	PACKET_GROUP = 2, /* the MGID is in the packet, whose address only stands for it */
	PACKET_LO6 = 4,	  /* the source GID is ::1, though the packet is from 127.0.0.1 */
	PACKET_LOCAL = 8, /* UD_NO_GRH */
};

/* Both return how many bytes they have written. */
size_t packet_head_put(uint8_t out[PACKET_HEAD_MAX], const struct ud_head *h);
/* Without the CRC: with PACKET_CRC, packet_crc() of everything else is to be stored in the
 * four bytes before the last four. */
size_t packet_tail_put(uint8_t out[PACKET_TAIL_MAX], const struct ud_head *h, unsigned flags);

/* Fills h, apart from the GIDs, of which dgid is set only with PACKET_GROUP. *payload is in
 * the packet and has h->len bytes. 0, -EPROTO: not a packet of ours, or -EBADMSG: its CRC is
 * wrong. */
int packet_decode(const uint8_t *p, size_t len, struct ud_head *h, unsigned *flags,
		  const uint8_t **payload);

#endif
