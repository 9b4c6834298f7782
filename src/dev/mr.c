/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory regions: the key table, which windows share (mw.c), and the only access
 * check of the device.
 *
 * Design notes.
 *
 * A key is 24 bits of slot index, scrambled by a bijection drawn per process,
 * and 8 bits of tag, drawn anew whenever the slot is given out. Slots are never
 * freed and are reused oldest first, so a stale key almost surely fails.
 *
 * A lookup does not lock. A slot is published by storing its key, last, and withdrawn by
 * storing 0, first. A user counts itself in before it compares the key:
 *
 *	user:  in_use++ ; key == mine ? go on : in_use--, fail
 *	dereg: key = 0  ; wait until in_use == 0
 *
 * Both are store-then-load on two words (Dekker), so all four are seq_cst:
 * either the user sees key 0 or the deregistration sees the count. Everything
 * else in the slot changes only while it is withdrawn and unused.
 *
 * The wait is bounded: users hold a key around a copy or one non-blocking system
 * call (dev.h). It sleeps on the counter's futex. Other processes of this host may
 * use regions too, by a table of their own (share.h). */
#include "base/guard.h"
#include "base/log.h"
#include "base/state.h"
#include "dev/mr_slot.h"
#include "dev/share.h"
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
	SLOTS = DEV_MAX_MR + DEV_MAX_MW,
	CHUNKS = SLOTS / CHUNK,
	KEY_MASK = 0xffffff,
	KEEP_FREE = 64, /* while there are fewer free slots, new ones are used */
};

static struct lock table_lock PROCESS_STATE = LOCK_INIT;
/* Written under table_lock. */
static _Atomic(struct mr_slot *) chunks[CHUNKS] PROCESS_STATE;
/* Under table_lock. */
static struct {
	uint32_t used;		   /* slots ever given out */
	uint32_t regions, windows; /* of these, given out now */
	struct mr_slot *free_head, **free_tail;
	uint32_t nfree;
} slots PROCESS_STATE = { .free_tail = &slots.free_head };
/* Fixed before the first slot. */
static struct {
	pthread_once_t once;
	uint32_t mul, inv, xor;
} keys PROCESS_STATE = { .once = PTHREAD_ONCE_INIT };

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
	keys.mul = (random32() | 1) & KEY_MASK;
	/* Newton's iteration: an odd number is its own inverse mod 8, and each
	 * step doubles the bits that are right: 3, 6, 12, 24. */
	keys.inv = keys.mul;
	for (int i = 0; i < 4; i++)
		keys.inv = keys.inv * (2 - keys.mul * keys.inv) & KEY_MASK;
	/* No slot has 24 bits of zeros: the key 0 is none, whatever the tag. */
	do
		keys.xor = random32() & KEY_MASK;
	while ((keys.xor * keys.inv & KEY_MASK) < SLOTS);
}

static void keys_init(void)
{
	key_init();
	share_init(keys.xor, keys.inv);
}

void mr_keys_init(void)
{
	pthread_once(&keys.once, keys_init);
}

static uint32_t key_make(uint32_t index, uint8_t tag)
{
	return (((index * keys.mul & KEY_MASK) ^ keys.xor) << 8) | tag;
}

uint32_t slot_key(const struct mr_slot *s)
{
	return key_make(s->index, s->tag);
}

uint32_t slot_key_base(const struct mr_slot *s)
{
	return key_make(s->index, 0);
}

struct mr_slot *slot_find(uint32_t key)
{
	uint32_t index = ((key >> 8) ^ keys.xor) * keys.inv & KEY_MASK;
	struct mr_slot *chunk;

	if (index >= SLOTS)
		return NULL;
	chunk = atomic_load_explicit(&chunks[index / CHUNK], memory_order_acquire);
	return chunk ? &chunk[index % CHUNK] : NULL;
}

static struct mr_slot *slot_fresh_locked(void)
{
	struct mr_slot *chunk;
	uint32_t i = slots.used;

	lock_assert_held(&table_lock);
	if (i >= SLOTS)
		return NULL;
	if (i == 0)
		mr_keys_init();
	if (i % CHUNK == 0) {
		chunk = calloc(CHUNK, sizeof(*chunk));
		if (!chunk)
			return NULL;
		for (uint32_t k = 0; k < CHUNK; k++)
			chunk[k].index = i + k;
		atomic_store_explicit(&chunks[i / CHUNK], chunk, memory_order_release);
	}
	slots.used++;
	return &atomic_load_explicit(&chunks[i / CHUNK], memory_order_relaxed)[i % CHUNK];
}

static bool is_window(const struct mr_slot *s)
{
	return s->kind == SLOT_MW1 || s->kind == SLOT_MW2;
}

static struct mr_slot *slot_take_locked(void)
{
	struct mr_slot *s = NULL;

	lock_assert_held(&table_lock);
	if (slots.nfree <= KEEP_FREE)
		s = slot_fresh_locked();
	if (!s && slots.free_head) {
		s = slots.free_head;
		slots.free_head = s->next_free;
		if (!slots.free_head)
			slots.free_tail = &slots.free_head;
		slots.nfree--;
	}
	return s;
}

struct mr_slot *slot_alloc(enum slot_kind kind)
{
	bool window = kind == SLOT_MW1 || kind == SLOT_MW2;
	uint32_t *count = window ? &slots.windows : &slots.regions;
	struct mr_slot *s = NULL;

	lock_get(&table_lock);
	if (*count < (uint32_t)(window ? DEV_MAX_MW : DEV_MAX_MR))
		s = slot_take_locked();
	if (s)
		++*count;
	lock_put(&table_lock);
	if (!s)
		return NULL;
	s->kind = (uint8_t)kind;
	slot_retag(s);
	return s;
}

/* Never the tag of last time. */
void slot_retag(struct mr_slot *s)
{
	s->tag = (uint8_t)(s->tag + 1 + random32() % 255);
}

void slot_free(struct mr_slot *s)
{
	s->pd = NULL;
	lock_get(&table_lock);
	--*(is_window(s) ? &slots.windows : &slots.regions);
	s->next_free = NULL;
	*slots.free_tail = s;
	slots.free_tail = &s->next_free;
	slots.nfree++;
	lock_put(&table_lock);
}

/* Publishes a region to other processes (dev/share.h). Not a window: windows are unbound
 * by work requests and by sends of the peer, which cannot wait for another process, as
 * that may be stopped. */
static void share_publish(const struct mr_slot *s)
{
	struct share_key k = {
		.key = slot_key(s),
		.access = (s->access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)) |
			  SHARE_REGION,
		.iova = s->iova,
		.len = s->len,
		.addr = (uintptr_t)s->addr,
		.pd = (uintptr_t)s->pd,
	};

	if (s->kind == SLOT_MR)
		share_key_publish(s->index, &k);
}

void slot_publish(struct mr_slot *s)
{
	atomic_store(&s->key, slot_key(s));
	share_publish(s);
}

void slot_close(struct mr_slot *s)
{
	atomic_store(&s->waiting, 1);
	atomic_store(&s->key, 0);
}

void slot_withdraw(struct mr_slot *s)
{
	uint32_t n;

	slot_close(s);
	share_key_withdraw(s->index);
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

/* ---- the check -------------------------------------------------------------- */

/* The rules that depend on what the key names. A local key names a region; a null region
 * has no remote key; a type 2 window is for the QP through which it was bound (2B: and
 * its PD). */
static int kind_check(const struct mr_slot *s, const struct dev_pd *pd,
		      const struct dev_qp *remote)
{
	if (remote ? s->kind == SLOT_NULL : is_window(s))
		return -ENOENT;
	if (s->pd != pd || (s->kind == SLOT_MW2 && s->qp_id != remote->id))
		return -EPERM;
	return 0;
}

/* Not inlined, so that check() has fewer registers to save. */
__attribute__((noinline)) static int refuse(struct mr_slot *s, int err)
{
	mr_put(s);
	return err;
}

static inline int check(struct dev_pd *pd, const struct dev_qp *remote,
			const struct mr_range *r, unsigned access, struct mr_ref *ref)
{
	struct mr_slot *s = slot_find(r->key);
	uint64_t off;
	int ret;

	if (!s)
		return -ENOENT;
	atomic_fetch_add(&s->in_use, 1);
	if (atomic_load(&s->key) != r->key)
		return refuse(s, -ENOENT);
	ret = kind_check(s, pd, remote);
	if (ret)
		return refuse(s, ret);
	if ((s->access & access) != access)
		return refuse(s, -EACCES);
	off = r->addr - s->iova;
	if (r->addr < s->iova || off > s->len || r->len > s->len - off ||
	    (s->kind == SLOT_NULL && r->len > DEV_MAX_MSG))
		return refuse(s, -ERANGE);
	ref->ptr = s->kind == SLOT_NULL ? mr_null_memory(access) : s->addr + off;
	ref->slot = s;
	return 0;
}

int mr_get(struct dev_pd *pd, const struct mr_range *r, unsigned access,
	   struct mr_ref *ref)
{
	return check(pd, NULL, r, access, ref);
}

int mr_get_remote(struct dev_pd *pd, const struct dev_qp *qp, const struct mr_range *r,
		  unsigned access, struct mr_ref *ref)
{
	return check(pd, qp, r, access, ref);
}

/* ---- registration --------------------------------------------------------- */

#define ACCESS_REMOTE_STORE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
#define ACCESS_KNOWN \
	(IBV_ACCESS_LOCAL_WRITE | ACCESS_REMOTE_STORE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB | \
	 IBV_ACCESS_ON_DEMAND | (unsigned)IBV_ACCESS_OPTIONAL_RANGE)

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
	if (access & IBV_ACCESS_ON_DEMAND)
		return 0;
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

static struct dev_mr *mr_new(struct dev_pd *pd, enum slot_kind kind)
{
	struct dev_mr *mr = calloc(1, sizeof(*mr));

	if (!mr)
		return NULL;
	guard_install();
	mr->slot = slot_alloc(kind);
	if (!mr->slot) {
		free(mr);
		log_info("registering memory: no key is free (%d regions)", DEV_MAX_MR);
		return NULL;
	}
	object_init(&mr->object, pd->object.context);
	mr->mr.context = mr->object.context;
	mr->mr.pd = &pd->pd;
	mr->mr.handle = mr->object.handle;
	mr->mr.lkey = slot_key(mr->slot);
	atomic_fetch_add(&pd->refs, 1);
	return mr;
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
	mr = mr_new(pd, SLOT_MR);
	if (!mr)
		return -ENOMEM;
	mr->mr.addr = addr;
	mr->mr.length = len;
	mr->mr.rkey = mr->mr.lkey;
	mr->iova = access & IBV_ACCESS_ZERO_BASED ? 0 : iova;
	mr->access = access;
	slot_fill(mr->slot, mr);
	slot_publish(mr->slot);
	*out = mr;
	return 0;
}

int mr_alloc_null(struct dev_pd *pd, struct dev_mr **out)
{
	struct dev_mr *mr;
	int ret = mr_null_init();

	if (ret)
		return ret;
	mr = mr_new(pd, SLOT_NULL);
	if (!mr)
		return -ENOMEM;
	mr->mr.length = SIZE_MAX;
	mr->access = IBV_ACCESS_LOCAL_WRITE;
	slot_fill(mr->slot, mr);
	slot_publish(mr->slot);
	*out = mr;
	return 0;
}

int mr_dereg(struct dev_mr *mr)
{
	int ret = mw_region_withdraw(mr->slot);

	if (ret)
		return ret;
	slot_free(mr->slot);
	atomic_fetch_sub(&to_pd(mr->mr.pd)->refs, 1);
	free(mr);
	return 0;
}

/* What the distribution's library checks without the kernel: the region stays as it
 * was. */
static int rereg_input_check(const struct dev_mr *mr, int flags, void *addr, size_t len,
			     unsigned access)
{
	if (mr->slot->kind != SLOT_MR)
		return log_refuse(EINVAL, "ibv_rereg_mr: of a null region");
	if (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED)
		return log_refuse(EINVAL, "ibv_rereg_mr: flags 0x%x", flags);
	if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) && (!addr || !len))
		return log_refuse(EINVAL, "ibv_rereg_mr: the new range is empty");
	if (access && !(flags & IBV_REREG_MR_CHANGE_ACCESS))
		return log_refuse(EINVAL,
				  "ibv_rereg_mr: access 0x%x without CHANGE_ACCESS",
				  access);
	return 0;
}

/* The region as it will be. */
static int rereg_check(const struct dev_mr *mr, int flags, struct dev_pd *pd,
		       const struct dev_mr *to)
{
	int ret;

	if (!flags)
		return log_refuse(EINVAL, "ibv_rereg_mr: no flags, nothing to change");
	if ((flags & IBV_REREG_MR_CHANGE_PD) &&
	    (!pd || !pd_intact(&pd->pd) || pd->pd.context != mr->object.context))
		return log_refuse(EINVAL,
				  "ibv_rereg_mr: the new PD is none of this context");
	ret = access_check(to->access);
	if (ret)
		return ret;
	return range_check((uintptr_t)to->mr.addr, to->mr.length,
			   flags & IBV_REREG_MR_CHANGE_TRANSLATION ?
				   (uintptr_t)to->mr.addr :
				   mr->iova,
			   to->access | (mr->access & IBV_ACCESS_ZERO_BASED));
}

/* As on NICs the keys stay while the region names the same memory: peers that know them
 * go on, with the new rights. For other memory they are new, which a NIC may do, and the
 * use of the old ones must fail. */
static void rereg_apply(struct dev_mr *mr, const struct dev_mr *to, bool new_key)
{
	if (to->mr.pd != mr->mr.pd) {
		atomic_fetch_sub(&to_pd(mr->mr.pd)->refs, 1);
		atomic_fetch_add(&to_pd(to->mr.pd)->refs, 1);
	}
	mr->mr.pd = to->mr.pd;
	mr->mr.addr = to->mr.addr;
	mr->mr.length = to->mr.length;
	mr->iova = to->iova;
	mr->access = to->access;
	if (new_key)
		slot_retag(mr->slot);
	mr->mr.lkey = mr->mr.rkey = slot_key(mr->slot);
	slot_fill(mr->slot, mr);
	slot_publish(mr->slot);
}

int mr_rereg(struct dev_mr *mr, int flags, struct dev_pd *pd, void *addr, size_t len,
	     unsigned access)
{
	int ret = rereg_input_check(mr, flags, addr, len, access);
	struct dev_mr to = *mr;

	if (ret) {
		errno = -ret;
		return IBV_REREG_MR_ERR_INPUT;
	}
	if (flags & IBV_REREG_MR_CHANGE_PD && pd)
		to.mr.pd = &pd->pd;
	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		to.access = access;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		to.mr.addr = addr;
		to.mr.length = len;
		to.iova = to.access & IBV_ACCESS_ZERO_BASED ? 0 : (uintptr_t)addr;
	}
	ret = rereg_check(mr, flags, pd, &to);
	if (!ret)
		ret = mw_region_withdraw(mr->slot);
	if (ret) {
		errno = -ret;
		return IBV_REREG_MR_ERR_CMD;
	}
	rereg_apply(mr, &to, flags & IBV_REREG_MR_CHANGE_TRANSLATION);
	return 0;
}
