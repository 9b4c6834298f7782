/* SPDX-License-Identifier: BSD-2-Clause */
/* Direct access: RDMA writes and reads carried out by the initiator alone, in the
 * memory of the target, which hears nothing of them. Which side of a link may do so to the
 * other is grant.c's business. */
#ifndef ANYRDMA_SHM_DIRECT_H
#define ANYRDMA_SHM_DIRECT_H

#include "shm/memid.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

struct direct;
struct rc_executor;
struct link;
struct stream;
struct wqe;

enum { DIRECT_USERS = 32 }; /* at the same time, of one link; more use the ring */

/* Words that name what is being accessed (dev/share.h), written by the initiator, a
 * line for each. */
struct direct_shared {
	/* initiator: words that were ever used; it has access, and may be asked to fetch */
	_Alignas(64) _Atomic uint32_t high;
	_Atomic uint32_t works;
	/* target: nothing is allowed any more */
	_Alignas(64) _Atomic uint32_t closed;
	struct {
		_Alignas(64) _Atomic uint64_t word;
	} user[DIRECT_USERS];
};

/* For the link's maker (side 0: the connector). Nobody has access yet. */
void direct_join(struct link *l, int side);
/* Does the peer have our keys? */
enum direct_given {
	DIRECT_NOT_GIVEN,
	DIRECT_ASKED,  /* as the user has asked for, ANYRDMA_DIRECT=on */
	DIRECT_PROVED, /* it has proved that it can access our memory */
};
/* grant.c, loop thread. d NULL is allowed. */
void direct_given(struct direct *d, enum direct_given given);
/* grant.c, loop thread, once: we have the peer's table in keys, which stays the caller's, and its
 * memory, which is taken over. NULL is allowed. */
void direct_start(struct direct *d, int keys, int memory, const struct memid *memid);
/* Both ends are in this process. */
void direct_join_self(struct link *l, int side);
/* No access by either side any more; with l->rx_lock. NULL is allowed. */
void direct_break(struct direct *d);
void direct_free(struct direct *d);

extern const struct rc_executor direct_executor;

/* Of a send of the peer's: fetches len bytes at addr of its region `key` into iov, at
 * most DEV_MAX_SGE pieces. 0, or -errno: it has to send them. */
int direct_fetch(struct stream *s, uint32_t key, uint64_t addr, uint32_t len,
		 const struct iovec *iov, int n);
/* Can the peer do so with ours, as it says? */
bool direct_fetches(struct stream *s);

#endif
