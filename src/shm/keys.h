/* SPDX-License-Identifier: BSD-2-Clause */
/* The table (dev/share.h) of another process, mapped read-only from a file that grows.
 * Its contents are not trusted. Reading them is safe: rows that are accessible here are
 * in the file, and the file cannot shrink. */
#ifndef ANYRDMA_SHM_KEYS_H
#define ANYRDMA_SHM_KEYS_H

#include "dev/share.h"

struct keys {
	const struct share_table *t; /* its QP entries are accessible; NULL: no table */
	_Atomic uint32_t rows;	     /* rows of t->key that are accessible; only grows */
	int fd;
};

/* Maps the table in the file, whose descriptor stays the caller's. -errno: it is none. */
int keys_open(struct keys *k, int fd);
/* Does nothing without a table (t NULL, fd -1). */
void keys_close(struct keys *k);

/* The file may have grown: makes all its rows accessible. Does it have this row? */
bool keys_more(struct keys *k, uint32_t row);

/* The row of the key, whether the row has the key or not; or NULL: the file has no such
 * row. Any thread, no lock. */
static inline const struct share_key *keys_row(struct keys *k, uint32_t key)
{
	uint32_t i = share_key_index(k->t, key);

	/* Acquire pairs with keys_more(): the row is read after it became accessible. */
	if (i >= atomic_load_explicit(&k->rows, memory_order_acquire) && !keys_more(k, i))
		return NULL;
	return &k->t->key[i];
}

#endif
