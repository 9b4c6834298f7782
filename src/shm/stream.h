/* SPDX-License-Identifier: BSD-2-Clause */
/* The part of a stream that shared memory needs; see shm/link.h. */
#ifndef ANYRDMA_SHM_PART_H
#define ANYRDMA_SHM_PART_H

#include "base/list.h"
#include "base/loop.h"

#include <stdbool.h>
#include <stdint.h>

struct link;
struct link_cq;
struct shm_out;

/* How far a call is. */
enum shm_cm {
	SHM_CM_NONE,	  /* the stream is none, or open */
	SHM_CM_LOOKUP, /* caller: no link yet */
	SHM_CM_REQ_SENT,	  /* caller: waits for the answer */
	SHM_CM_REQ_RCVD, /* callee: has to answer */
};

/* What a stream needs to live on a link. */
struct shm_part {
	struct link *l;	    /* NULL: the stream is not of this carrier */
	struct link_cq *member;
	uint32_t slot;	    /* ours */
	uint32_t peer;	    /* the peer's; valid once known */
	uint64_t share_id;	    /* of our side, dev/share.h; 0: none */
	uint64_t peer_share_id; /* as the peer says; valid once known */
	uint64_t serial;    /* of the wait that it is for: match_serial_locked(); or 0 */
	enum shm_cm call;
	bool ask_put;	    /* caller: the request is in the ring, */
	uint32_t ask_end;   /* which has this position behind it */
	bool cached;	    /* call.c: led here by the memory of an earlier call */
	bool asks;	    /* ours is the side that sends OPEN and READY */
	bool answered;	    /* it has been answered */
	bool half;	    /* OPENED was sent, READY has not come (rx_lock) */
	bool known;	    /* there is a slot of the peer's to close */
	bool started;	    /* both sides want it */
	bool opened;	    /* what we send is for the peer's QP */
	bool announced;	    /* the peer's QP has heard of us, or will: LINK_ANNOUNCE */
	bool closed_in;	    /* the peer has closed */
	bool closed_out;    /* we have */
	bool over;	    /* the peer will have closed when what waits is taken, with: */
	int over_err;
	bool starved;	    /* something was not sent for want of room */
	bool asked;	    /* an ack was asked for before this pass */
	bool moved;	    /* something came in this pass */
	bool fresh;	    /* in this pass a poller took sends alone (rx_lock) */
	struct list owing;  /* link.owing (rx_lock) */
	struct list blocked; /* link.blocked (tx_lock) */
	/* Unreliable, while rx.wait: the record of the frame that waits to begin, or
	 * NULL, and those behind it. */
	struct shm_kept *held;
	struct list kept;
	size_t kept_bytes;
	struct shm_out *out;   /* open.c: who waits for it to be opened */
	int open_err;	       /* open.c: what came back */
	struct loop_work open_work, end_work;
};

#endif
