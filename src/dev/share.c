/* SPDX-License-Identifier: BSD-2-Clause */
/* Design notes. The whole table is mapped at once. The file grows as keys are registered,
 * and mprotect() makes the rows accessible that it has. The order is necessary: after
 * F_SEAL_FUTURE_WRITE no process, its owner included, can map the file for writing.
 * Shrinking is sealed, too, as both sides read the table without checking the size of the
 * file. Others learn by fstat() that it has grown (shm/keys.c). */
#include "dev/share.h"

#include "base/conf.h"
#include "base/fdset.h"
#include "base/log.h"
#include "base/state.h"
#include "dev/mr_slot.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#define SEALS (F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL)

enum { FIRST_KEYS = 1024 };
_Static_assert(SHARE_KEYS % FIRST_KEYS == 0 &&
		       ((SHARE_KEYS / FIRST_KEYS) & (SHARE_KEYS / FIRST_KEYS - 1)) == 0,
	       "doubling ends at the end of the table");

static struct {
	struct lock lock; /* guards growing and free QP entries; innermost */
	struct share_table *t; /* fixed by share_init() */
	int fd;
	_Atomic uint32_t keys; /* rows of key[] that the file has; all accessible here */
	uint32_t *free_entry;   /* stack */
	uint32_t nfree;
	uint32_t entries;	 /* QP entries that were ever used */
	_Atomic(void (*)(uint64_t value, uint64_t mask)) wait;
} share PROCESS_STATE = { .lock = LOCK_INIT, .fd = -1 };

static size_t size_for(uint32_t keys)
{
	return offsetof(struct share_table, key) +
	       (size_t)keys * sizeof(struct share_key);
}

static int resize(int fd, uint32_t keys)
{
	return fdset_resize(fd, size_for(keys));
}

int share_map(int fd, struct share_table **t)
{
	void *p = mmap(NULL, sizeof(**t), PROT_NONE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		return -errno;
	madvise(p, sizeof(**t), MADV_DONTFORK);
	madvise(p, sizeof(**t), MADV_DONTDUMP);
	*t = p;
	return 0;
}

int share_open(const struct share_table *t, uint32_t keys, int prot)
{
	return mprotect((void *)(uintptr_t)t, size_for(keys), prot) ? -errno : 0;
}

void share_unmap(const struct share_table *t)
{
	munmap((void *)(uintptr_t)t, sizeof(*t));
}

static int table_new(int fd)
{
	struct share_table *t;
	int ret = resize(fd, FIRST_KEYS);

	if (!ret)
		ret = share_map(fd, &t);
	if (ret)
		return ret;
	ret = share_open(t, FIRST_KEYS, PROT_READ | PROT_WRITE);
	if (!ret && fcntl(fd, F_ADD_SEALS, SEALS))
		ret = -errno;
	if (ret)
		share_unmap(t);
	else
		share.t = t;
	return ret;
}

void share_init(uint32_t key_xor, uint32_t key_inv)
{
	int fd, ret;

	if (conf_get()->transport == CONF_TRANSPORT_TCP ||
	    conf_get()->direct == CONF_DIRECT_OFF)
		return;
	fd = fdset_take(memfd_create("anyrdma keys", MFD_CLOEXEC | MFD_ALLOW_SEALING));
	ret = fd < 0 ? -errno : table_new(fd);
	if (ret) {
		log_info("no table of keys for other processes, rings alone: %s",
			 strerror(-ret));
		fdset_close(fd);
		return;
	}
	share.fd = fd;
	share.t->version = SHARE_VERSION;
	share.t->key_xor = key_xor;
	share.t->key_inv = key_inv;
	atomic_store_explicit(&share.keys, FIRST_KEYS, memory_order_release);
}

int share_fd(void)
{
	mr_keys_init();
	return share.fd;
}

const struct share_table *share_table(void)
{
	mr_keys_init();
	return share.t;
}

void share_set_wait(void (*wait)(uint64_t value, uint64_t mask))
{
	atomic_store(&share.wait, wait);
}

static void wait_for(uint64_t value, uint64_t mask)
{
	void (*wait)(uint64_t, uint64_t) = atomic_load(&share.wait);

	if (wait)
		wait(value, mask);
}

/* ---- keys --------------------------------------------------------------------- */

static bool grow(uint32_t index)
{
	uint32_t n;
	int ret = 0;

	lock_get(&share.lock);
	n = atomic_load(&share.keys);
	while (n <= index)
		n *= 2;
	if (n != atomic_load(&share.keys)) {
		ret = resize(share.fd, n);
		if (!ret)
			ret = share_open(share.t, n, PROT_READ | PROT_WRITE);
	}
	if (!ret)
		atomic_store_explicit(&share.keys, n, memory_order_release);
	lock_put(&share.lock);
	if (ret)
		log_info("the table of keys cannot grow: %s", strerror(-ret));
	return !ret;
}

bool share_has_key(uint32_t index)
{
	return index < atomic_load_explicit(&share.keys, memory_order_acquire);
}

bool share_has_region(uint32_t key)
{
	const struct share_key *k;
	uint32_t i;

	if (!share.t)
		return false;
	i = share_key_index(share.t, key);
	if (!share_has_key(i))
		return false;
	k = &share.t->key[i];
	return atomic_load(&k->key) == key &&
	       (__atomic_load_n(&k->access, __ATOMIC_RELAXED) & SHARE_REGION);
}

void share_key_publish(uint32_t index, const struct share_key *k)
{
	struct share_key *to;

	if (!share.t)
		return;
	if (index >= atomic_load_explicit(&share.keys, memory_order_acquire) &&
	    !grow(index))
		return; /* others send frames instead */
	to = &share.t->key[index];
	__atomic_store_n(&to->access, k->access, __ATOMIC_RELAXED); /* share_has_region() */
	to->iova = k->iova;
	to->len = k->len;
	to->addr = k->addr;
	to->pd = k->pd;
	atomic_store(&to->key, atomic_load_explicit(&k->key, memory_order_relaxed));
}

void share_key_withdraw(uint32_t index)
{
	uint32_t key;

	if (!share.t || index >= atomic_load_explicit(&share.keys, memory_order_acquire))
		return;
	key = atomic_load_explicit(&share.t->key[index].key, memory_order_relaxed);
	if (!key)
		return;
	atomic_store(&share.t->key[index].key, 0);
	wait_for((uint64_t)key << 32, 0xffffffff00000000u);
}

/* ---- QP entries -------------------------------------------------------------------- */

static struct share_qp *qp_at(uint64_t share_id)
{
	return &share.t->qp[share_qp_index(share_id)];
}

static int32_t entry_alloc_locked(void)
{
	lock_assert_held(&share.lock);
	if (!share.free_entry)
		share.free_entry = malloc(SHARE_QPS * sizeof(*share.free_entry));
	if (!share.free_entry)
		return -1;
	if (share.nfree)
		return (int32_t)share.free_entry[--share.nfree];
	return share.entries < SHARE_QPS ? (int32_t)share.entries++ : -1;
}

uint64_t share_qp_new(void)
{
	uint64_t gen;
	int32_t i;

	if (!share_table())
		return 0;
	lock_get(&share.lock);
	i = entry_alloc_locked();
	lock_put(&share.lock);
	if (i < 0)
		return 0;
	gen = (atomic_load(&share.t->qp[i].word) >> 32) + 1;
	atomic_store(&share.t->qp[i].word, gen << 32);
	return gen << 32 | (uint32_t)(i + 1);
}

void share_qp_free(uint64_t share_id)
{
	if (!share_id)
		return;
	lock_get(&share.lock);
	share.free_entry[share.nfree++] = share_qp_index(share_id);
	lock_put(&share.lock);
}

/* What peers may do directly. In RTR the QP has to learn of the first request: that is an
 * event (IBV_EVENT_COMM_EST). */
static unsigned rights(const struct dev_qp *qp)
{
	unsigned flags = qp->attr.qp_access_flags, r = 0;

	if (qp->qp.qp_type != IBV_QPT_RC ||
	    (qp->qp.state != IBV_QPS_RTS && qp->qp.state != IBV_QPS_SQD &&
	     qp->qp.state != IBV_QPS_RTR))
		return 0;
	if (qp->qp.state == IBV_QPS_RTR && !qp->comm_est_sent)
		r |= SHARE_ANNOUNCE;
	if (flags & IBV_ACCESS_REMOTE_WRITE)
		r |= SHARE_WRITE;
	if (flags & IBV_ACCESS_REMOTE_READ)
		r |= SHARE_READ;
	if (qp->qp.state != IBV_QPS_RTR)
		r |= SHARE_SEND;
	return r;
}

void share_qp_update_locked(struct dev_qp *qp)
{
	lock_assert_held(&qp->lock);
	if (!qp->share_id)
		return;
	atomic_store(&qp_at(qp->share_id)->reads, qp->attr.max_dest_rd_atomic);
	atomic_store(&qp_at(qp->share_id)->word, (qp->share_id >> 32 << 32) | rights(qp));
}

void share_qp_close_locked(struct dev_qp *qp)
{
	lock_assert_held(&qp->lock);
	if (qp->share_id)
		atomic_store(&qp_at(qp->share_id)->word, qp->share_id >> 32 << 32);
}

void share_qp_bind_locked(struct dev_qp *qp, uint64_t share_id)
{
	struct share_qp *d;

	lock_assert_held(&qp->lock);
	if (!share_id)
		return;
	d = qp_at(share_id);
	d->psn = qp->attr.rq_psn;
	d->pd = (uintptr_t)qp->pd;
	qp->share_id = share_id;
	share_qp_update_locked(qp);
}

void share_qp_unbind_locked(struct dev_qp *qp)
{
	lock_assert_held(&qp->lock);
	share_qp_close_locked(qp);
	qp->share_id = 0;
}

void share_qp_wait(uint64_t share_id)
{
	if (share_id)
		wait_for(share_qp_index(share_id) + 1u, 0xffffffffu);
}
