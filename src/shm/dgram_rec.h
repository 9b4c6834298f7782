/* SPDX-License-Identifier: BSD-2-Clause */
/* The record of a datagram. doc/wire.md has the layout byte by byte. */
#ifndef ANYRDMA_SHM_DGRAM_REC_H
#define ANYRDMA_SHM_DGRAM_REC_H

#include "shm/ring.h"
#include "ud/carrier.h"

/* Flags of struct rec_dgram. */
enum {
	REC_DGRAM_SOLICITED = 1,
	REC_DGRAM_IMM = 2,   /* struct rec_dgram_number follows: immediate data */
	REC_DGRAM_GIDS = 4,  /* struct rec_dgram_gids follows, before the number */
	REC_DGRAM_LOCAL = 8, /* UD_NO_GRH */
};

/* The header: 32 bytes where both addresses are of IPv4, so that 32 bytes of payload fit
 * the same cache line. The payload is the rest of the record. */
struct rec_dgram {
	uint32_t word; /* the ring's */
	uint8_t kind;  /* enum ud_kind */
	uint8_t flags; /* REC_DGRAM_*; service level << 4 */
	uint8_t traffic_class;
	uint8_t hop_limit;
	uint32_t src_qpn, dst_qpn;
	uint32_t qkey;
	uint32_t flow_label;
	/* The last four bytes of the GIDs ::ffff:a.b.c.d, as they are there; 0 with
	 * REC_DGRAM_GIDS. */
	uint32_t sgid4, dgid4;
};
_Static_assert(offsetof(struct rec_dgram, word) == 0 &&
	       offsetof(struct rec_dgram, kind) == 4 &&
	       offsetof(struct rec_dgram, flags) == 5 &&
	       offsetof(struct rec_dgram, traffic_class) == 6 &&
	       offsetof(struct rec_dgram, hop_limit) == 7 &&
	       offsetof(struct rec_dgram, src_qpn) == 8 &&
	       offsetof(struct rec_dgram, dst_qpn) == 12 &&
	       offsetof(struct rec_dgram, qkey) == 16 &&
	       offsetof(struct rec_dgram, flow_label) == 20 &&
	       offsetof(struct rec_dgram, sgid4) == 24 &&
	       offsetof(struct rec_dgram, dgid4) == 28 && sizeof(struct rec_dgram) == 32,
	       "doc/wire.md");

struct rec_dgram_gids {
	union ibv_gid sgid, dgid;
};
_Static_assert(offsetof(struct rec_dgram_gids, dgid) == 16 &&
	       sizeof(struct rec_dgram_gids) == 32, "doc/wire.md");

struct rec_dgram_number {
	uint32_t number; /* immediate data, in network order; of a mark: its token */
	uint32_t pad;
};
_Static_assert(sizeof(struct rec_dgram_number) == 8, "doc/wire.md");

enum {
	REC_DGRAM_HEAD_MAX = sizeof(struct rec_dgram) + sizeof(struct rec_dgram_gids) +
			     sizeof(struct rec_dgram_number),
};

/* Writes everything before the payload but the ring's word, and returns its bytes. */
uint32_t rec_dgram_put(void *at, const struct ud_head *h, const union ibv_gid *sgid,
		       const union ibv_gid *dgid);

/* Reads the header of a record of `bytes`, at least sizeof(struct rec_dgram), each byte
 * once. Returns the bytes before the payload; h->len is the rest. -EPROTO: no sender
 * writes such a record. */
int rec_dgram_get(const volatile void *at, uint32_t bytes, struct ud_head *h);

#endif
