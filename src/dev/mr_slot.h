/* SPDX-License-Identifier: BSD-2-Clause */
/* The key table, as regions (mr.c, which owns it) and windows (mw.c) see it;
 * private to those two and share.c. The design notes of mr.c say who may touch what when. */
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

/* How keys are made is decided, and whom they are shared with (dev/share.h). Before
 * the first key, or when a peer may want to know. */
void mr_keys_init(void);
/* The key that the slot has, or will have when it is published. */
uint32_t slot_key(const struct mr_slot *s);
/* NULL: no key ever looked like this. What is found may be withdrawn, or have
 * another tag. */
struct mr_slot *slot_find(uint32_t key);
/* With a tag that it did not have last time; NULL when all of its sort are used. */
struct mr_slot *slot_alloc(enum slot_kind kind);
void slot_free(struct mr_slot *s);
/* Draws another tag; the slot is withdrawn. */
void slot_retag(struct mr_slot *s);
void slot_publish(struct mr_slot *s);
/* Nobody finds the slot any more; slot_withdraw() is to follow. */
void slot_close(struct mr_slot *s);
/* After this nobody uses the slot's memory, and nobody will. Waits for those who
 * do: of a region, other processes too, which may be stopped; one caller at a time. */
void slot_withdraw(struct mr_slot *s);

/* mw.c: takes the region out of use for good (dereg) or for a change (rereg):
 * withdrawn on success; -EBUSY while windows are bound to it. */
int mw_region_withdraw(struct mr_slot *region);

#endif
