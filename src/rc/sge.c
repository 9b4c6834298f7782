/* SPDX-License-Identifier: BSD-2-Clause */
#include "rc/stream.h"

#include "base/guard.h"

#include <errno.h>
#include <string.h>

int sge_map(struct dev_pd *pd, const struct ibv_sge *sge, unsigned n, uint32_t off,
	    uint32_t len, unsigned access, struct iovec *iov, struct mr_slot **refs,
	    unsigned max)
{
	unsigned k = 0;

	for (unsigned i = 0; i < n && len; i++) {
		uint32_t part;
		void *ptr;
		int ret;

		if (off >= sge[i].length) {
			off -= sge[i].length;
			continue;
		}
		part = sge[i].length - off;
		if (part > len)
			part = len;
		ret = k == max ? -E2BIG :
				 mr_get(pd, sge[i].lkey, sge[i].addr + off, part, access,
					&refs[k], &ptr);
		if (ret) {
			sge_unmap(refs, (int)k);
			return ret;
		}
		iov[k].iov_base = ptr;
		iov[k++].iov_len = part;
		len -= part;
		off = 0;
	}
	if (len) {
		sge_unmap(refs, (int)k);
		return -ERANGE;
	}
	return (int)k;
}

int sge_check(struct dev_pd *pd, const struct ibv_sge *sge, unsigned n, unsigned access)
{
	struct mr_slot *ref;
	void *ptr;
	int ret;

	for (unsigned i = 0; i < n; i++) {
		if (!sge[i].length)
			continue;
		ret = mr_get(pd, sge[i].lkey, sge[i].addr, sge[i].length, access, &ref,
			     &ptr);
		if (ret)
			return ret;
		mr_put(ref);
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
