/* SPDX-License-Identifier: BSD-2-Clause */
#include "dev/sge.h"

#include "base/guard.h"

#include <errno.h>
#include <string.h>

int sge_map(const struct sge_list *list, uint32_t off, uint32_t len, struct sge_mem *mem)
{
	unsigned k = 0;

	for (unsigned i = 0; i < list->n && len; i++) {
		const struct ibv_sge *sge = &list->sge[i];
		struct mr_range r = { .key = sge->lkey };
		struct mr_ref ref;
		int ret;

		if (off >= sge->length) {
			off -= sge->length;
			continue;
		}
		r.addr = sge->addr + off;
		r.len = sge->length - off;
		if (r.len > len)
			r.len = len;
		ret = k == mem->max ? -E2BIG : mr_get(list->pd, &r, list->access, &ref);
		if (ret) {
			sge_unmap(mem->refs, (int)k);
			return ret;
		}
		mem->refs[k] = ref.slot;
		mem->iov[k++] = (struct iovec){ ref.ptr, r.len };
		len -= (uint32_t)r.len;
		off = 0;
	}
	if (len) {
		sge_unmap(mem->refs, (int)k);
		return -ERANGE;
	}
	return (int)k;
}

int sge_map_remote(struct dev_pd *pd, const struct dev_qp *qp, const struct mr_range *r,
		   unsigned access, struct sge_mem *mem)
{
	struct mr_ref ref;
	int ret = mr_get_remote(pd, qp, r, access, &ref);

	if (ret)
		return ret;
	mem->refs[0] = ref.slot;
	mem->iov[0] = (struct iovec){ ref.ptr, r->len };
	return 1;
}

int sge_check(const struct sge_list *list)
{
	for (unsigned i = 0; i < list->n; i++) {
		const struct ibv_sge *sge = &list->sge[i];
		struct mr_range r = { sge->lkey, sge->addr, sge->length };
		struct mr_ref ref;
		int ret;

		if (!r.len)
			continue;
		ret = mr_get(list->pd, &r, list->access, &ref);
		if (ret)
			return ret;
		mr_put(ref.slot);
	}
	return 0;
}

void sge_unmap(struct mr_slot **refs, int n)
{
	while (n-- > 0)
		mr_put(refs[n]);
}

/* Stores the last bytes: in one piece when they are an aligned word. */
static void store_tail(uint8_t *dst, const uint8_t *src, size_t len)
{
	uint64_t v8;
	uint32_t v4;
	uint16_t v2;

	atomic_thread_fence(memory_order_release);
	switch (len) {
	case 8:
		memcpy(&v8, src, 8);
		__atomic_store_n((uint64_t *)(void *)dst, v8, __ATOMIC_RELEASE);
		break;
	case 4:
		memcpy(&v4, src, 4);
		__atomic_store_n((uint32_t *)(void *)dst, v4, __ATOMIC_RELEASE);
		break;
	case 2:
		memcpy(&v2, src, 2);
		__atomic_store_n((uint16_t *)(void *)dst, v2, __ATOMIC_RELEASE);
		break;
	default:
		for (size_t i = 0; i < len; i++)
			__atomic_store_n(dst + i, src[i], __ATOMIC_RELEASE);
	}
}

struct placement {
	uint8_t *dst;
	const uint8_t *src;
	size_t len;
};

static void place(void *arg)
{
	const struct placement *p = arg;
	const uint8_t *s = p->src;
	uint8_t *d = p->dst, *end = d + p->len, *tail;

	tail = (uint8_t *)((uintptr_t)(end - 1) & ~(uintptr_t)7);
	if (tail < d)
		tail = d;
	/* A word is only stored in one piece where it is naturally aligned. */
	if (tail == d && (uintptr_t)d % (size_t)(end - tail))
		tail = end - 1;
	memcpy(d, s, (size_t)(tail - d));
	store_tail(tail, s + (tail - d), (size_t)(end - tail));
}

int place_bytes(void *dst, const void *src, size_t len)
{
	struct placement p = { dst, src, len };

	return !len || guard_call(dst, len, place, &p) ? 0 : -EFAULT;
}

int place_bytes_from(void *dst, const void *src, size_t len)
{
	const struct guard_range r[2] = { { dst, len }, { src, len } };
	struct placement p = { dst, src, len };

	return !len || guard_call_two(r, place, &p) ? 0 : -EFAULT;
}

int place_iov(const struct iovec *iov, int n, const void *src)
{
	const uint8_t *from = src;

	for (int i = 0; i < n; i++) {
		int ret = place_bytes(iov[i].iov_base, from, iov[i].iov_len);

		if (ret)
			return ret;
		from += iov[i].iov_len;
	}
	return 0;
}

int take_iov(void *dst, const struct iovec *iov, int n)
{
	uint8_t *to = dst;

	for (int i = 0; i < n; i++) {
		if (!guard_copy_from(to, iov[i].iov_base, iov[i].iov_len))
			return -EFAULT;
		to += iov[i].iov_len;
	}
	return 0;
}
