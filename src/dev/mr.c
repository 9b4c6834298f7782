/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory regions: the key table and the only access check of the device.
 *
 * Design notes.
 *
 * A key is 24 bits of slot index, scrambled by a bijection drawn per process,
 * and 8 bits of tag, drawn anew whenever the slot is given out. Slots are never
 * freed and are reused oldest first, so a stale key almost surely fails.
 *
 * Looking up takes no lock. A slot is published by storing its key, last, and
 * withdrawn by storing 0, first. A user counts itself in before it looks:
 *
 *	user:  in_use++ ; key == mine ? go on : in_use--, fail
 *	dereg: key = 0  ; wait until in_use == 0
 *
 * Both are store-then-load on two words (Dekker), so all four are seq_cst:
 * either the user sees key 0 or the deregistration sees the count. Everything
 * else in the slot changes only while it is withdrawn and unused.
 *
 * The wait is bounded: users hold a key around a copy or one non-blocking system
 * call (dev.h). It sleeps on the counter's futex. */
#include "base/log.h"
#include "dev/verbs.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	CHUNK = 1024,
	CHUNKS = DEV_MAX_MR / CHUNK,
	KEY_MASK = 0xffffff,
	KEEP_FREE = 64, /* so many free slots rest before the oldest is reused */
};

struct mr_slot {
	_Atomic uint32_t key; /* 0: withdrawn */
	_Atomic uint32_t in_use;
	_Atomic uint32_t waiting; /* a deregistration sleeps on in_use */
	uint32_t index;
	uint8_t tag;
	unsigned access;
	struct dev_pd *pd;
	uint64_t iova, len;
	uint8_t *addr;
	struct mr_slot *next_free; /* table_lock */
};

static struct lock table_lock = LOCK_INIT;
static _Atomic(struct mr_slot *) chunks[CHUNKS]; /* written under table_lock */
static uint32_t used;				 /* table_lock: slots ever given out */
static struct mr_slot *free_head, **free_tail = &free_head; /* table_lock */
static uint32_t nfree;					    /* table_lock */
static uint32_t key_mul, key_inv, key_xor; /* fixed before the first slot */

static uint32_t random32(void)
{
	uint32_t v;

	if (getrandom(&v, sizeof(v), GRND_NONBLOCK) != sizeof(v)) {
		struct timespec ts;

		/* Early boot or no entropy device: unequal, if not unguessable. */
		clock_gettime(CLOCK_MONOTONIC, &ts);
		v = (uint32_t)ts.tv_nsec * 2654435761u ^ (uint32_t)(uintptr_t)&v;
	}
	return v;
}

static void key_init(void)
{
	key_mul = (random32() | 1) & KEY_MASK;
	key_xor = random32() & KEY_MASK;
	/* Newton's iteration: an odd number is its own inverse mod 8, and each
	 * step doubles the bits that are right: 3, 6, 12, 24. */
	key_inv = key_mul;
	for (int i = 0; i < 4; i++)
		key_inv = key_inv * (2 - key_mul * key_inv) & KEY_MASK;
}

static uint32_t key_make(uint32_t index, uint8_t tag)
{
	return (((index * key_mul & KEY_MASK) ^ key_xor) << 8) | tag;
}

static struct mr_slot *slot_find(uint32_t key)
{
	uint32_t index = ((key >> 8) ^ key_xor) * key_inv & KEY_MASK;
	struct mr_slot *chunk;

	if (index >= DEV_MAX_MR)
		return NULL;
	chunk = atomic_load_explicit(&chunks[index / CHUNK], memory_order_acquire);
	return chunk ? &chunk[index % CHUNK] : NULL;
}

static struct mr_slot *slot_fresh_locked(void)
{
	struct mr_slot *chunk;
	uint32_t i = used;

	lock_assert_held(&table_lock);
	if (i >= DEV_MAX_MR)
		return NULL;
	if (i == 0)
		key_init();
	if (i % CHUNK == 0) {
		chunk = calloc(CHUNK, sizeof(*chunk));
		if (!chunk)
			return NULL;
		for (uint32_t k = 0; k < CHUNK; k++)
			chunk[k].index = i + k;
		atomic_store_explicit(&chunks[i / CHUNK], chunk, memory_order_release);
	}
	used++;
	return &atomic_load_explicit(&chunks[i / CHUNK], memory_order_relaxed)[i % CHUNK];
}

/* A new key: never the tag of last time, and never the key 0. */
static void slot_retag(struct mr_slot *s)
{
	do
		s->tag = (uint8_t)(s->tag + 1 + random32() % 255);
	while (!key_make(s->index, s->tag));
}

static struct mr_slot *slot_alloc(void)
{
	struct mr_slot *s = NULL;

	lock_get(&table_lock);
	if (nfree <= KEEP_FREE)
		s = slot_fresh_locked();
	if (!s && free_head) {
		s = free_head;
		free_head = s->next_free;
		if (!free_head)
			free_tail = &free_head;
		nfree--;
	}
	lock_put(&table_lock);
	if (!s)
		return NULL;
	slot_retag(s);
	return s;
}

static void slot_free(struct mr_slot *s)
{
	s->pd = NULL;
	lock_get(&table_lock);
	s->next_free = NULL;
	*free_tail = s;
	free_tail = &s->next_free;
	nfree++;
	lock_put(&table_lock);
}

static void slot_publish(struct mr_slot *s)
{
	atomic_store(&s->key, key_make(s->index, s->tag));
}

/* After this nobody uses the slot's memory, and nobody will. */
static void slot_withdraw(struct mr_slot *s)
{
	uint32_t n;

	atomic_store(&s->waiting, 1);
	atomic_store(&s->key, 0);
	while ((n = atomic_load(&s->in_use)))
		syscall(SYS_futex, &s->in_use, FUTEX_WAIT_PRIVATE, n, NULL, NULL, 0);
	atomic_store(&s->waiting, 0);
}

void mr_put(struct mr_slot *s)
{
	if (atomic_fetch_sub(&s->in_use, 1) == 1 && atomic_load(&s->waiting))
		syscall(SYS_futex, &s->in_use, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL,
			0);
}

int mr_get(struct dev_pd *pd, uint32_t key, uint64_t addr, uint64_t len, unsigned access,
	   struct mr_slot **ref, void **ptr)
{
	struct mr_slot *s = key ? slot_find(key) : NULL;
	int ret;

	if (!s)
		return -ENOENT;
	atomic_fetch_add(&s->in_use, 1);
	if (atomic_load(&s->key) != key)
		ret = -ENOENT;
	else if (s->pd != pd)
		ret = -EPERM;
	else if ((s->access & access) != access)
		ret = -EACCES;
	else if (addr < s->iova || addr - s->iova > s->len ||
		 len > s->len - (addr - s->iova))
		ret = -ERANGE;
	else
		ret = 0;
	if (ret) {
		mr_put(s);
		return ret;
	}
	*ref = s;
	*ptr = s->addr + (addr - s->iova);
	return 0;
}

int mr_invalidate(struct dev_pd *pd, uint32_t key)
{
	/* There are no memory windows yet, and a region cannot be invalidated. */
	return log_refuse(EINVAL, "invalidating key 0x%x on PD %u: no type 2 window", key,
			  pd->pd.handle);
}

/* ---- registration --------------------------------------------------------- */

#define ACCESS_REMOTE_STORE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
#define ACCESS_KNOWN \
	(IBV_ACCESS_LOCAL_WRITE | ACCESS_REMOTE_STORE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB | \
	 (unsigned)IBV_ACCESS_OPTIONAL_RANGE)

static int access_check(unsigned access)
{
	if (access & ~ACCESS_KNOWN)
		return log_refuse(EINVAL,
				  "registering memory: access flags 0x%x are not "
				  "supported",
				  access & ~ACCESS_KNOWN);
	if ((access & ACCESS_REMOTE_STORE) && !(access & IBV_ACCESS_LOCAL_WRITE))
		return log_refuse(EINVAL,
				  "registering memory: remote write or atomic "
				  "needs local write too (access 0x%x)",
				  access);
	return 0;
}

/* The kernel's rules: at least one page is named, no wrap, and the I/O address
 * has the same place in its page as the memory. */
static int range_check(uintptr_t addr, size_t len, uint64_t iova, unsigned access)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

	if (!len && !(addr & (page - 1)))
		return log_refuse(EINVAL, "registering memory: no bytes at %p",
				  (void *)addr);
	if (addr + len < addr || iova + len < iova)
		return log_refuse(EINVAL, "registering memory: %zu bytes at %p wrap", len,
				  (void *)addr);
	if (!(access & IBV_ACCESS_ZERO_BASED) && ((addr ^ iova) & (page - 1)))
		return log_refuse(EINVAL,
				  "registering memory: I/O address 0x%llx and %p "
				  "differ within the page",
				  (unsigned long long)iova, (void *)addr);
	return maps_check(addr, len,
			  access & (IBV_ACCESS_LOCAL_WRITE | ACCESS_REMOTE_STORE));
}

static void slot_fill(struct mr_slot *s, const struct dev_mr *mr)
{
	s->access = mr->access;
	s->pd = pd_root(to_pd(mr->mr.pd));
	s->iova = mr->iova;
	s->len = mr->mr.length;
	s->addr = mr->mr.addr;
}

int mr_reg(struct dev_pd *pd, void *addr, size_t len, uint64_t iova, unsigned access,
	   struct dev_mr **out)
{
	struct dev_mr *mr;
	int ret = access_check(access);

	if (!ret)
		ret = range_check((uintptr_t)addr, len, iova, access);
	if (ret)
		return ret;
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return -ENOMEM;
	mr->slot = slot_alloc();
	if (!mr->slot) {
		free(mr);
		return log_refuse(ENOMEM,
				  "registering memory: no key is free (%d regions)",
				  DEV_MAX_MR);
	}
	mr->mr.context = pd->pd.context;
	mr->mr.pd = &pd->pd;
	mr->mr.addr = addr;
	mr->mr.length = len;
	mr->mr.handle = mr->slot->index;
	mr->mr.lkey = mr->mr.rkey = key_make(mr->slot->index, mr->slot->tag);
	mr->iova = access & IBV_ACCESS_ZERO_BASED ? 0 : iova;
	mr->access = access;
	atomic_fetch_add(&pd->refs, 1);
	slot_fill(mr->slot, mr);
	slot_publish(mr->slot);
	*out = mr;
	return 0;
}

void mr_dereg(struct dev_mr *mr)
{
	slot_withdraw(mr->slot);
	slot_free(mr->slot);
	atomic_fetch_sub(&to_pd(mr->mr.pd)->refs, 1);
	free(mr);
}

static int rereg_check(const struct dev_mr *mr, int flags, const struct dev_pd *pd,
		       void *addr, size_t len, unsigned access)
{
	int ret = 0;

	if (!flags || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED))
		return log_refuse(EINVAL, "ibv_rereg_mr: flags 0x%x", flags);
	if ((flags & IBV_REREG_MR_CHANGE_PD) && (!pd || pd->pd.context != mr->mr.context))
		return log_refuse(EINVAL,
				  "ibv_rereg_mr: the new PD is none of this context");
	if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) && (!addr || !len))
		return log_refuse(EINVAL, "ibv_rereg_mr: the new range is empty");
	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		ret = access_check(access);
	if (ret)
		return ret;
	return range_check((uintptr_t)addr, len, (uintptr_t)addr, access);
}

/* The old region stays as it was when the input is refused. Else it is, as the
 * InfiniBand specification has it, a deregistration followed by a registration: the
 * old key is dead. */
int mr_rereg(struct dev_mr *mr, int flags, struct dev_pd *pd, void *addr, size_t len,
	     unsigned access)
{
	bool moved = flags & IBV_REREG_MR_CHANGE_TRANSLATION;
	int ret;

	if (!(flags & IBV_REREG_MR_CHANGE_ACCESS))
		access = mr->access;
	if (!moved) {
		addr = mr->mr.addr;
		len = mr->mr.length;
	}
	ret = rereg_check(mr, flags, pd, addr, len, access);
	if (ret) {
		errno = -ret;
		return IBV_REREG_MR_ERR_INPUT;
	}
	slot_withdraw(mr->slot);
	if (flags & IBV_REREG_MR_CHANGE_PD) {
		atomic_fetch_sub(&to_pd(mr->mr.pd)->refs, 1);
		atomic_fetch_add(&pd->refs, 1);
		mr->mr.pd = &pd->pd;
	}
	if (moved) {
		mr->mr.addr = addr;
		mr->mr.length = len;
		mr->iova = access & IBV_ACCESS_ZERO_BASED ? 0 : (uintptr_t)addr;
	}
	mr->access = access;
	slot_retag(mr->slot);
	mr->mr.lkey = mr->mr.rkey = key_make(mr->slot->index, mr->slot->tag);
	slot_fill(mr->slot, mr);
	slot_publish(mr->slot);
	return 0;
}
