/* SPDX-License-Identifier: BSD-2-Clause */
/* Sides (side.h) that exchange datagrams. Every datagram goes to the address under test: one
 * address handle serves all QPs of the device. */
#ifndef ANYRDMA_TESTS_UD_SIDE_H
#define ANYRDMA_TESTS_UD_SIDE_H

#include "side.h"

enum {
	UD_GRH = 40, /* what a receive has before the payload */
	UD_QKEY = 0x11111111,
	UD_MOST = 4096,
	/* Regions of a side's buffer. */
	UD_SRC = 0,
	UD_DST = 300000,
};

/* The address of this family under test, as a destination, from the GID that is its own;
 * IPv6 may skip the case. The device is open. */
struct ibv_ah_attr ud_attr(int family);
struct ibv_ah *ud_ah(struct ibv_ah_attr attr); /* of dev.pd */
uint32_t ud_mtu(void);

int ud_init(struct side *s, uint32_t qkey);
/* From RESET to RTS with UD_QKEY. */
void ud_up(struct side *s);

/* The device, two sides that are up, and *ah for both. x may be y. */
void ud_pair_with(struct side *x, struct side *y, struct ibv_ah **ah, struct side_opt ox,
		  struct side_opt oy);
void ud_pair(struct side *x, struct side *y, struct ibv_ah **ah);
void ud_pair_free(struct side *x, struct side *y, struct ibv_ah *ah);

/* A signalled request with UD_QKEY. */
struct ibv_send_wr ud_wr(uint64_t wr_id, int opcode, struct ibv_sge *sge, int n,
			 struct ibv_ah *ah, uint32_t qpn);
/* Posts a signalled send of len bytes at UD_SRC. */
void ud_send(struct side *from, uint64_t wr_id, struct ibv_ah *ah, uint32_t qpn,
	     uint32_t len);
/* Posts a receive at UD_DST that has room for len bytes behind the GRH. */
void ud_recv(struct side *to, uint64_t wr_id, uint32_t len);
/* One datagram of len bytes: posted, complete, and come as it was sent. Returns the receive's
 * completion. */
struct ibv_wc ud_arrives_(const char *file, int line, struct side *from, struct side *to,
			  struct ibv_ah *ah, uint32_t len);
#define ud_arrives(from, to, ah, len) ud_arrives_(__FILE__, __LINE__, from, to, ah, len)
/* Whatever was sent to it has come by now, or never will; nothing does complete. */
void ud_nothing_(const char *file, int line, struct side *to);
#define ud_nothing(to) ud_nothing_(__FILE__, __LINE__, to)

/* Another process, which runs fn(fd) with one end of a pair of sockets; returns the other
 * end. ud_other_end() fails the case when it has not ended well. */
int ud_other(void (*fn)(int fd));
void ud_other_end(int fd);
void ud_tell(int fd, const void *p, size_t len);
void ud_hear(int fd, void *p, size_t len);

#endif
