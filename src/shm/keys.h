/* SPDX-License-Identifier: BSD-2-Clause */
/* The table (dev/share.h) of another process, as its peers see it: read-only, of a
 * file that grows. What the owner says there is not to be trusted, but can be read
 * without fear: what is open here the file has, and it cannot shrink. */
#ifndef ANYRDMA_SHM_KEYS_H
#define ANYRDMA_SHM_KEYS_H

#include "dev/share.h"

struct keys {
	const struct share_table *t; /* QP entries are always open to read; NULL: none */
	_Atomic uint32_t rows;	     /* of t->key, open to read; grows alone */
	int fd;
};

/* Takes a table by its file, which stays the caller's. -errno: it is none. */
int keys_take(struct keys *k, int fd);
/* Nothing happens without a table (t NULL, fd -1). */
void keys_drop(struct keys *k);

/* The file may have grown: opens what there is now. Does it have the row? */
bool keys_more(struct keys *k, uint32_t row);

/* The key's row, whether the key is there or not, or NULL: the file does not reach
 * there. Any thread, without locks. */
static inline const struct share_key *keys_row(struct keys *k, uint32_t key)
{
	uint32_t i = share_key_index(k->t, key);

	/* Pairs with keys_more(): the row is looked at after it was opened. */
	if (i >= atomic_load_explicit(&k->rows, memory_order_acquire) && !keys_more(k, i))
		return NULL;
	return &k->t->key[i];
}

#endif
