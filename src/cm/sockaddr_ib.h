/* SPDX-License-Identifier: BSD-2-Clause */
/* AF_IB addresses, as the kernel's rdma_cm and applications lay them out. */
#ifndef ANYRDMA_CM_SOCKADDR_IB_H
#define ANYRDMA_CM_SOCKADDR_IB_H

#include <linux/types.h>
#include <stdint.h>

#ifndef AF_IB
#define AF_IB 27
#endif

struct cm_sockaddr_ib {
	uint16_t sib_family;
	__be16 sib_pkey;
	__be32 sib_flowinfo;
	uint8_t sib_addr[16];
	__be64 sib_sid; /* port space << 16 | port, for IP-like services */
	__be64 sib_sid_mask;
	uint64_t sib_scope_id;
};

_Static_assert(sizeof(struct cm_sockaddr_ib) == 48, "ABI");

#endif
