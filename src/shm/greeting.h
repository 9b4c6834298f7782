/* SPDX-License-Identifier: BSD-2-Clause */
/* What two processes say on the socket that makes their link; see meet.c. */
#ifndef ANYRDMA_SHM_GREETING_H
#define ANYRDMA_SHM_GREETING_H

#include "shm/direct.h"
#include "shm/link.h"

enum { GREETING_MAGIC = 0x61726c6b, GREETING_VERSION = 2 };

enum greeting_status { GREETING_HELLO, GREETING_OK, GREETING_EXISTS, GREETING_NO };

struct greeting {
	uint32_t magic, version;
	uint32_t status; /* enum greeting_status */
	uint32_t size;	 /* of the segment: equal builds, equal sizes */
	struct link_id id;
	struct direct_offer direct; /* its descriptors follow the others */
};

#endif
