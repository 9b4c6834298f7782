/* SPDX-License-Identifier: BSD-2-Clause */
/* The key table, as regions (mr.c, which owns it) and windows (mw.c) see it;
 * private to those two and share.c. The design notes of mr.c say when which field may be
 * changed. */
#ifndef ANYRDMA_DEV_MR_SLOT_H
#define ANYRDMA_DEV_MR_SLOT_H

#include "dev/dev.h"

/* What a key names. */
enum slot_kind {
	SLOT_MR,
	SLOT_NULL, /* a null region: a local key for any address, no memory behind it */
	SLOT_MW1,
	SLOT_MW2,
};

struct mr_slot {
	_Atomic uint32_t key; /* 0: withdrawn (a window: not bound) */
	_Atomic uint32_t in_use;
	_Atomic uint32_t waiting; /* a withdrawal sleeps on in_use */
	uint32_t index;		  /* never changes */
	uint8_t tag;
	uint8_t kind; /* enum slot_kind; fixed while given out */
	unsigned access;
	struct dev_pd *pd;
	uint64_t iova, len;
	uint8_t *addr;
	uint64_t qp_id;		   /* SLOT_MW2: dev_qp.id it was bound through */
	uint32_t windows;	   /* SLOT_MR: bound to it (mw.c's lock) */
	struct dev_mw *window;	   /* SLOT_MW*: while it exists (mw.c's lock) */
	struct mr_slot *region;	   /* SLOT_MW*: while it is bound (mw.c's lock) */
	struct mr_slot *next_free; /* the table's lock */
};

/* Draws how keys are made, and makes the table for other processes (dev/share.h).
 * Idempotent. Called before the first key, and before a peer gets the table. */
void mr_keys_init(void);
/* The key that the slot has, or will have when it is published. */
uint32_t slot_key(const struct mr_slot *s);
/* The same with a tag of 0: the slot is found by it at any time. */
uint32_t slot_key_base(const struct mr_slot *s);
/* The slot of a key; it may be withdrawn, or have another tag. NULL: no slot has had such
 * a key. */
struct mr_slot *slot_find(uint32_t key);
/* A slot with another tag than it had before; NULL: as many regions, or windows, exist as
 * are allowed. */
struct mr_slot *slot_alloc(enum slot_kind kind);
void slot_free(struct mr_slot *s);
/* Draws another tag; the slot is withdrawn. */
void slot_retag(struct mr_slot *s);
void slot_publish(struct mr_slot *s);
/* Lookups do not find the slot any more. slot_withdraw() has to follow. */
void slot_close(struct mr_slot *s);
/* After return the slot's memory is not used any more. Waits for threads that use it; for
 * a region also for other processes, which may be stopped. One caller at a time. */
void slot_withdraw(struct mr_slot *s);

/* mw.c: withdraws the slot of a region, to free it (dereg) or to change it (rereg).
 * -EBUSY while windows are bound to it. */
int mw_region_withdraw(struct mr_slot *region);

#endif
