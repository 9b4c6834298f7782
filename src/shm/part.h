/* SPDX-License-Identifier: BSD-2-Clause */
/* The part of a stream that shared memory needs; see shm/link.h. */
#ifndef ANYRDMA_SHM_PART_H
#define ANYRDMA_SHM_PART_H

#include "base/list.h"
#include "base/loop.h"

#include <stdbool.h>
#include <stdint.h>

struct link;
struct link_member;
struct shm_out;

/* What a stream needs to live on a link. */
struct shm_part {
	struct link *l;	    /* NULL: the stream is not of this medium */
	struct link_member *member;
	uint32_t slot;	    /* ours */
	uint32_t peer;	    /* the peer's; valid once opened */
	bool opened;
	bool closed_in;	    /* the peer has closed */
	bool closed_out;    /* we have */
	bool asked;	    /* an ack was asked for before this pass */
	bool moved;	    /* something came in this pass */
	struct list owing;  /* link.owing (rx_lock) */
	struct list blocked; /* link.blocked (tx_lock) */
	struct shm_out *out;   /* open.c: who waits for it to be opened */
	int open_err;	       /* open.c: what came back */
	struct loop_work open_work, end_work;
};

#endif
