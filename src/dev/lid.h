/* SPDX-License-Identifier: BSD-2-Clause */
/* LIDs of ports with the link layer InfiniBand (ANYRDMA_LINK=ib). An IPv4 address has as LID
 * its low 16 bits, where they are one of a port (InfiniBand 4.1.3): so a LID names a host of
 * the same /16, and nobody has to hand LIDs out. Pure functions. */
#ifndef ANYRDMA_DEV_LID_H
#define ANYRDMA_DEV_LID_H

#include <infiniband/verbs.h>
#include <stdbool.h>

enum {
	LID_SM = 1,	      /* what ports say; nobody answers there */
	LID_GROUP = 0xc000,   /* the first of a group */
	LID_PERMISSIVE = 0xffff,
};

static inline bool lid_is_port(uint32_t lid)
{
	return lid > 0 && lid < LID_GROUP;
}

static inline bool lid_is_group(uint32_t lid)
{
	return lid >= LID_GROUP && lid < LID_PERMISSIVE;
}

/* The LID of an address, or of a group, as a GID; 0: it has none. */
uint16_t lid_of_gid(const union ibv_gid *gid);

/* The address of a LID, as seen from `here`, an IPv4 address. From a loopback address there
 * are no others: one that nobody has. */
void lid_to_gid(const union ibv_gid *here, uint16_t lid, union ibv_gid *out);

#endif
