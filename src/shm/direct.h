/* SPDX-License-Identifier: BSD-2-Clause */
/* Direct access: the initiator carries out RDMA writes and reads by itself in the memory
 * of the target, which takes no part. grant.c decides whether a side of a link may do
 * so. */
#ifndef ANYRDMA_SHM_DIRECT_H
#define ANYRDMA_SHM_DIRECT_H

#include "shm/memid.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct direct;
struct rc_executor;
struct link;
struct stream;
struct wqe;

enum { DIRECT_USERS = 32 }; /* accesses of one link at the same time; more use the ring */

/* In the segment, for each direction. The initiator writes all but `closed`. doc/wire.md
 * has the layout byte by byte. */
struct direct_shared {
	_Alignas(64) _Atomic uint32_t words_used; /* user[] from here on was never used */
	_Atomic uint32_t works; /* the initiator has access, and can fetch payloads */
	/* Written by the target: accesses must not begin any more. */
	_Alignas(64) _Atomic uint32_t closed;
	/* The words of dev/share.h: each names what is accessed now; 0: nothing. */
	struct {
		_Alignas(64) _Atomic uint64_t word;
	} user[DIRECT_USERS];
};
_Static_assert(offsetof(struct direct_shared, words_used) == 0 &&
	       offsetof(struct direct_shared, works) == 4 &&
	       offsetof(struct direct_shared, closed) == 64 &&
	       offsetof(struct direct_shared, user[0].word) == 128 &&
	       offsetof(struct direct_shared, user[1].word) == 192 &&
	       sizeof(struct direct_shared) == 128 + DIRECT_USERS * 64, "doc/wire.md");

/* Makes link.direct of a link that is not started (side 0: the connector). Neither side
 * has access yet. */
void direct_create(struct link *l, int side);
/* The same if both ends of the link are in this process. Both have access. */
void direct_create_self(struct link *l, int side);

/* Why the peer has our table of keys. */
enum direct_keys {
	DIRECT_KEYS_NONE,	/* it does not have it */
	DIRECT_KEYS_BY_SETTING, /* ANYRDMA_DIRECT=on */
	DIRECT_KEYS_PROVED,	/* it has proved that it can access our memory */
};

/* The functions from here to direct_free() allow d NULL.
 *
 * For grant.c, loop thread. */
void direct_set_keys(struct direct *d, enum direct_keys keys);
/* For grant.c, loop thread, once: this process has the peer's table of keys, whose
 * descriptor stays the caller's, and a descriptor of its memory, which d owns from now
 * on. */
void direct_start(struct direct *d, int keys, int memory, const struct memid *memid);
/* Neither side may begin an access any more. l->rx_lock is held. */
void direct_break(struct direct *d);
void direct_free(struct direct *d);

extern const struct rc_executor direct_executor;

/* Payloads of the peer may be fetched. s->lock is held. */
bool direct_fetches(struct stream *s);
/* Fetches part of the payload of a send of the peer: `len` bytes at `addr` of its region
 * `key`, into iov, at most DEV_MAX_SGE pieces. direct_fetches() was true. No lock is held.
 * 0; or -errno: the peer has to send them. */
int direct_fetch(struct stream *s, uint32_t key, uint64_t addr, uint32_t len,
		 const struct iovec *iov, int n);
/* The peer says that it can fetch payloads from this process. */
bool direct_peer_fetches(struct stream *s);

#endif
