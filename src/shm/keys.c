/* SPDX-License-Identifier: BSD-2-Clause */
#include "shm/keys.h"

#include "base/fdset.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define TABLE_SEALS (F_SEAL_SHRINK | F_SEAL_SEAL)

/* Number of whole rows in the file; or -errno. */
static int64_t rows_of(int fd)
{
	const off_t entries = offsetof(struct share_table, key);
	struct stat st;
	int64_t n;

	if (fstat(fd, &st))
		return -errno;
	if (st.st_size < entries)
		return -EINVAL;
	n = (st.st_size - entries) / (off_t)sizeof(struct share_key);
	return n < SHARE_KEYS ? n : SHARE_KEYS;
}

int keys_open(struct keys *k, int fd)
{
	int seals = fcntl(fd, F_GET_SEALS); /* -1: a file that cannot be sealed */
	struct share_table *t;
	int64_t rows;
	int ret;

	*k = (struct keys){ .fd = -1 };
	if (seals < 0 || (seals & TABLE_SEALS) != TABLE_SEALS)
		return -EINVAL;
	rows = rows_of(fd); /* fstat() is safe now: a file with seals is memory */
	if (rows < 0)
		return -EINVAL;
	ret = share_map(fd, &t);
	if (ret)
		return ret;
	k->t = t;
	ret = share_open(t, (uint32_t)rows, PROT_READ);
	if (!ret) {
		k->fd = fdset_take(fcntl(fd, F_DUPFD_CLOEXEC, 0));
		ret = k->fd < 0 ? -errno : 0;
	}
	if (ret)
		keys_close(k);
	else
		atomic_store_explicit(&k->rows, (uint32_t)rows, memory_order_release);
	return ret;
}

void keys_close(struct keys *k)
{
	if (k->t)
		share_unmap(k->t);
	fdset_close(k->fd);
	*k = (struct keys){ .fd = -1 };
}

/* Several threads may run this at once. A thread that saw a shorter file makes rows
 * accessible that are so already, and leaves the larger number. */
bool keys_more(struct keys *k, uint32_t row)
{
	uint32_t was = atomic_load_explicit(&k->rows, memory_order_relaxed);
	int64_t rows;

	if (row >= SHARE_KEYS)
		return false;
	rows = rows_of(k->fd);
	if (row >= rows || share_open(k->t, (uint32_t)rows, PROT_READ))
		return false;
	while (was < rows &&
	       !atomic_compare_exchange_weak_explicit(&k->rows, &was, (uint32_t)rows,
						      memory_order_release,
						      memory_order_relaxed))
		;
	return true;
}
