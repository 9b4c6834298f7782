/* SPDX-License-Identifier: BSD-2-Clause */
/* What this process lets others of its user know, so that they can carry out RDMA
 * writes and reads, and fetch what it sends them, by themselves: which regions there
 * are (mr.c publishes keys), and which QPs serve what (QP entries). One table in a file of its
 * own, which others map read-only. The access itself is not the table's business
 * (shm/direct.c).
 *
 * Users of the table announce themselves in words of their own, which name key and
 * QP entry, before they look, and take the words back when they are done:
 *
 *	user:   word = key, QP entry ; key there, QP entry open ? access ; word = 0
 *	owner:  key = 0, or QP entry closed ; wait until no word names it
 *
 * Store, then load, on both sides (Dekker): all four are seq_cst. As a user whose
 * look fails takes its word back at once, others who come do not prolong the wait. */
#ifndef ANYRDMA_DEV_SHARE_H
#define ANYRDMA_DEV_SHARE_H

#include "dev/dev.h"

enum {
	SHARE_VERSION = 3,
	SHARE_QPS = 65536,
	SHARE_KEYS = DEV_MAX_MR + DEV_MAX_MW,
	SHARE_KEY_MASK = 0xffffff,
};
_Static_assert((int)SHARE_QPS >= (int)DEV_MAX_QP, "a QP entry for each QP");

/* Rights of a QP entry; and who is first has to say so. SEND: the QP's own sends may be
 * fetched. That right goes before the application hears that a send is not any more. */
enum { SHARE_WRITE = 1, SHARE_READ = 2, SHARE_ANNOUNCE = 4, SHARE_SEND = 8 };

/* In share_key.access, beside rights of IBV_ACCESS_*: a region, which the owner's own
 * sends may name; of no use to a remote key. */
#define SHARE_REGION (1u << 31)

/* Fields but the key change only while it is withdrawn and no word names it. */
struct share_key {
	_Atomic uint32_t key; /* 0: withdrawn */
	uint32_t access;      /* IBV_ACCESS_REMOTE_*, SHARE_REGION */
	uint64_t iova, len, addr;
	uint64_t pd;	/* a number of the PD */
	uint64_t pad[3];
};
_Static_assert(sizeof(struct share_key) == 64, "one line");

/* A QP's, from the time it has a stream. */
struct share_qp {
	_Atomic uint64_t word; /* generation << 32 | rights; 0 rights: closed */
	uint32_t psn;	       /* of the first request that it takes */
	_Atomic uint32_t reads; /* max_dest_rd_atomic */
	uint64_t pd, pad;
};
_Static_assert(sizeof(struct share_qp) == 32, "half a line");

/* The file; it grows, by keys. */
struct share_table {
	uint32_t version;
	uint32_t key_xor, key_inv; /* key to index: mr.c */
	uint32_t pad[13];
	struct share_qp qp[SHARE_QPS];
	struct share_key key[SHARE_KEYS];
};

/* May be beyond all keys. */
static inline uint32_t share_key_index(const struct share_table *t, uint32_t key)
{
	return ((key >> 8) ^ t->key_xor) * t->key_inv & SHARE_KEY_MASK;
}

/* Address space for all of the table in fd, none of it accessible: a page behind the
 * end of the file must not be, or whoever walks through what is mapped (valgrind,
 * mlockall) stumbles over every one. Not inherited by fork. */
int share_map(int fd, struct share_table **t);
/* Makes the QP entries and so many keys accessible, which the file must have. Calls may
 * overlap: nothing is closed if `keys` is less than before. */
int share_open(const struct share_table *t, uint32_t keys, int prot);
void share_unmap(const struct share_table *t);

/* Names a QP entry and who has it: generation << 32 | index + 1. 0: none. */
static inline uint32_t share_qp_index(uint64_t share_id)
{
	return (uint32_t)share_id - 1;
}

/* Makes the table, unless settings forbid it. Once, before the first key. */
void share_init(uint32_t key_xor, uint32_t key_inv);
/* Its file, for others to map, or -1. Stays the table's. */
int share_fd(void);
const struct share_table *share_table(void); /* or NULL */

/* The key with this index is there; k->key says it. Nothing happens without a table. */
void share_key_publish(uint32_t index, const struct share_key *k);
/* The file reaches as far as the key with this index. */
bool share_has_key(uint32_t index);
/* Others find the key, and that it is a region's. A hint: it may go at any time. */
bool share_has_region(uint32_t key);
/* After this no other process uses it. Waits for those who do. */
void share_key_withdraw(uint32_t index);

/* A closed QP entry, or 0. */
uint64_t share_qp_new(void);
void share_qp_free(uint64_t share_id);
/* It becomes the QP's; none does if there is none (0). */
void share_qp_bind_locked(struct dev_qp *qp, uint64_t share_id) REQUIRES(qp->lock);
void share_qp_unbind_locked(struct dev_qp *qp) REQUIRES(qp->lock);
/* The QP's state or rights have changed: the QP entry opens or closes. */
void share_qp_update_locked(struct dev_qp *qp) REQUIRES(qp->lock);
/* It is about to fail. */
void share_qp_close_locked(struct dev_qp *qp) REQUIRES(qp->lock);
/* Waits for those who came before it was closed, or had less rights. Without locks
 * that the progress thread needs. */
void share_qp_wait(uint64_t share_id);

/* Who knows the words: waits until none of them is `value` in the bits of `mask`. Key
 * in the upper half, QP entry index + 1 in the lower. Set once. */
void share_set_wait(void (*wait)(uint64_t value, uint64_t mask));

#endif
