/* SPDX-License-Identifier: BSD-2-Clause */
/* The table that a process publishes to other processes of its user, so that they can
 * carry out RDMA writes and reads in its memory, and fetch the payload of its sends, by
 * themselves. It has the memory regions and windows (rows of keys, published by mr.c),
 * and which accesses each QP allows (QP entries). The table is in a file of its own,
 * which others map read-only. shm/direct.c carries out the accesses.
 *
 * A user of the table stores key and QP entry into a word of its own before it reads the
 * table, and clears the word after the access:
 *
 *	user:   word = key, QP entry ; key there, entry open ? access ; word = 0
 *	owner:  key = 0, or entry closed ; wait until no word names it
 *
 * Both sides store, then load (Dekker): all four are seq_cst. A user that finds the key
 * or the entry closed clears its word at once, so new users do not prolong the owner's
 * wait. */
#ifndef ANYRDMA_DEV_SHARE_H
#define ANYRDMA_DEV_SHARE_H

#include "dev/dev.h"

#include <stddef.h>

enum {
	SHARE_VERSION = 3,
	SHARE_QPS = 65536,
	SHARE_KEYS = DEV_MAX_MR + DEV_MAX_MW,
	SHARE_KEY_MASK = 0xffffff,
};
_Static_assert((int)SHARE_QPS >= (int)DEV_MAX_QP, "a QP entry for each QP");

/* Rights in a QP entry. */
enum {
	SHARE_WRITE = 1,    /* RDMA writes */
	SHARE_READ = 2,	    /* RDMA reads */
	SHARE_ANNOUNCE = 4, /* the QP has to learn of the first request: LINK_ANNOUNCE */
	/* The payload of the QP's own sends may be fetched. The right ends before the
	 * application learns that a send has failed. */
	SHARE_SEND = 8,
};

/* In share_key.access, beside IBV_ACCESS_*: the key is that of a region, which the
 * owner's own sends may name. */
#define SHARE_REGION (1u << 31)

/* All fields but `key` change only while key is 0 and no word names it. */
struct share_key {
	_Atomic uint32_t key; /* 0: withdrawn */
	uint32_t access;      /* IBV_ACCESS_REMOTE_*, SHARE_REGION */
	uint64_t iova, len, addr;
	uint64_t pd;	/* identifies the PD */
	uint64_t pad[3];
};
_Static_assert(offsetof(struct share_key, key) == 0 &&
	       offsetof(struct share_key, access) == 4 &&
	       offsetof(struct share_key, iova) == 8 &&
	       offsetof(struct share_key, len) == 16 &&
	       offsetof(struct share_key, addr) == 24 &&
	       offsetof(struct share_key, pd) == 32 && sizeof(struct share_key) == 64,
	       "doc/wire.md");

/* An entry of a QP that has a stream. */
struct share_qp {
	_Atomic uint64_t word; /* generation << 32 | rights; 0 rights: closed */
	uint32_t psn;	       /* number of the first request to the QP */
	_Atomic uint32_t reads; /* max_dest_rd_atomic */
	uint64_t pd, pad;
};
_Static_assert(offsetof(struct share_qp, word) == 0 &&
	       offsetof(struct share_qp, psn) == 8 &&
	       offsetof(struct share_qp, reads) == 12 &&
	       offsetof(struct share_qp, pd) == 16 && sizeof(struct share_qp) == 32,
	       "doc/wire.md");

/* The file. It grows: the last rows of key[] may be missing. */
struct share_table {
	uint32_t version;
	uint32_t key_xor, key_inv; /* share_key_index() */
	uint32_t pad[13];
	struct share_qp qp[SHARE_QPS];
	struct share_key key[SHARE_KEYS];
};
_Static_assert(offsetof(struct share_table, version) == 0 &&
	       offsetof(struct share_table, key_xor) == 4 &&
	       offsetof(struct share_table, key_inv) == 8 &&
	       offsetof(struct share_table, qp) == 64 &&
	       offsetof(struct share_table, key) == 2097216, "doc/wire.md");

/* The row of a key; may be larger than SHARE_KEYS. */
static inline uint32_t share_key_index(const struct share_table *t, uint32_t key)
{
	/* Another process may write the table while it is read here. */
	uint32_t xor = __atomic_load_n(&t->key_xor, __ATOMIC_RELAXED);
	uint32_t inv = __atomic_load_n(&t->key_inv, __ATOMIC_RELAXED);

	return ((key >> 8) ^ xor) * inv & SHARE_KEY_MASK;
}

/* Maps the whole table, none of it accessible: pages behind the end of the file must not
 * be, as programs that read all mappings (valgrind, mlockall) would fail on them. Not
 * inherited by fork. */
int share_map(int fd, struct share_table **t);
/* Makes the QP entries and so many rows of key[] accessible, which the file must have.
 * Several threads may call it at once; rows that are accessible stay so. */
int share_open(const struct share_table *t, uint32_t keys, int prot);
void share_unmap(const struct share_table *t);

/* A share_id names a QP entry and its owner: generation << 32 | index + 1. 0: none. */
static inline uint32_t share_qp_index(uint64_t share_id)
{
	return (uint32_t)share_id - 1;
}

/* Makes the table, unless settings forbid it. Once, before the first key. */
void share_init(uint32_t key_xor, uint32_t key_inv);
/* The descriptor of its file, for others to map; or -1. Stays open. */
int share_fd(void);
const struct share_table *share_table(void); /* or NULL */

/* Publishes k->key in this row. Does nothing without a table. */
void share_key_publish(uint32_t index, const struct share_key *k);
/* The file has this row. */
bool share_has_key(uint32_t index);
/* The key is published, and is that of a region. A hint: it may be withdrawn at any
 * time. */
bool share_has_region(uint32_t key);
/* Withdraws the key of this row. Waits for accesses that other processes have begun. */
void share_key_withdraw(uint32_t index);

/* A closed QP entry, or 0. */
uint64_t share_qp_new(void);
void share_qp_free(uint64_t share_id);
/* The entry becomes the QP's. share_id 0: nothing happens. */
void share_qp_bind_locked(struct dev_qp *qp, uint64_t share_id) REQUIRES(qp->lock);
void share_qp_unbind_locked(struct dev_qp *qp) REQUIRES(qp->lock);
/* The QP's state or rights have changed: updates its entry. */
void share_qp_update_locked(struct dev_qp *qp) REQUIRES(qp->lock);
/* The QP is about to fail: closes its entry. */
void share_qp_close_locked(struct dev_qp *qp) REQUIRES(qp->lock);
/* Waits for accesses that began before the entry was closed or lost rights. The caller
 * holds no lock that the loop thread needs. */
void share_qp_wait(uint64_t share_id);

/* Sets the function that waits until no word equals `value` in the bits of `mask`. A word
 * has the key in its upper half, the index of the QP entry + 1 in its lower half. */
void share_set_wait(void (*wait)(uint64_t value, uint64_t mask));

#endif
