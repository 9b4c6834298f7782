/* SPDX-License-Identifier: BSD-2-Clause */
/* Scatter/gather lists and the memory that they name; copies that keep the order in which
 * a watcher may see bytes. */
#ifndef ANYRDMA_DEV_SGE_H
#define ANYRDMA_DEV_SGE_H

#include "dev/dev.h"

#include <sys/uio.h>

/* A list, the PD of its keys, and the access that is wanted (as for mr_get()). */
struct sge_list {
	struct dev_pd *pd;
	const struct ibv_sge *sge;
	unsigned n, access;
};

/* The caller's arrays for mapped memory, of max entries each: refs[i] holds the key of
 * iov[i] in use. */
struct sge_mem {
	struct iovec *iov;
	struct mr_slot **refs;
	unsigned max;
};

static inline struct sge_list wqe_sge_list(const struct dev_qp *qp, const struct wqe *w,
					   unsigned access)
{
	return (struct sge_list){ qp->pd, w->sge, w->num_sge, access };
}

/* Maps [off, off+len) of the list to memory. Returns the number of iovecs, or -errno of
 * mr_get(), or -E2BIG when mem->max is too small for the whole range (never with
 * mem->max >= list->n). The caller ends the use with sge_unmap(). */
int sge_map(const struct sge_list *list, uint32_t off, uint32_t len, struct sge_mem *mem);
/* Maps a range of memory that the peer of qp may read or write to one iovec. Returns 1,
 * or -errno of mr_get_remote(). */
int sge_map_remote(struct dev_pd *pd, const struct dev_qp *qp, const struct mr_range *r,
		   unsigned access, struct sge_mem *mem);
void sge_unmap(struct mr_slot **refs, int n);
/* Is all of the list accessible now? Key and address of an empty entry mean
 * nothing. 0 or -errno of mr_get(). */
int sge_check(const struct sge_list *list);
/* Copies into memory that a peer's CPU or an application may be watching: the
 * last aligned word is stored last, in one piece (doc/architecture.md). 0, or
 * -EFAULT: the application has unmapped it. */
int place_bytes(void *dst, const void *src, size_t len);
/* Where src may be unmapped, too. */
int place_bytes_from(void *dst, const void *src, size_t len);
/* The same to all of a list; and from one, without the order. */
int place_iov(const struct iovec *iov, int n, const void *src);
int take_iov(void *dst, const struct iovec *iov, int n);

#endif
