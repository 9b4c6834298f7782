/* SPDX-License-Identifier: BSD-2-Clause */
/* The set is a two-level bitmap that only grows and is changed by atomic
 * operations alone, so that a forked child can walk it whatever the parent's
 * other threads were doing. */
#include "base/fdset.h"
#include "base/conf.h"
#include "base/log.h"
#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define FIRST 1024	   /* FD_SETSIZE: numbers below are the application's */
#define PAGE_FDS 4096	   /* descriptors per page of the map */
#define PAGES 256	   /* 2^20 descriptors, the kernel's default fs.nr_open */

struct page {
	_Atomic uint64_t word[PAGE_FDS / 64];
};

static _Atomic(struct page *) pages[PAGES];

static void raise_limit(void)
{
	struct rlimit rl;

	if (conf_get()->nofile_keep || getrlimit(RLIMIT_NOFILE, &rl) ||
	    rl.rlim_cur >= rl.rlim_max)
		return;
	rl.rlim_cur = rl.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &rl))
		log_warn("cannot raise RLIMIT_NOFILE to its hard limit %llu: %m",
			 (unsigned long long)rl.rlim_max);
}

void fdset_raise_limit(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, raise_limit);
}

static struct page *page_of(int fd)
{
	unsigned i = (unsigned)fd / PAGE_FDS;
	struct page *p, *fresh;

	if (i >= PAGES)
		return NULL;
	p = atomic_load_explicit(&pages[i], memory_order_acquire);
	if (p)
		return p;
	fresh = calloc(1, sizeof(*fresh));
	if (!fresh)
		return NULL;
	if (atomic_compare_exchange_strong(&pages[i], &p, fresh))
		return fresh;
	free(fresh);
	return p;
}

static void remember(int fd)
{
	struct page *p = page_of(fd);

	if (!p) {
		log_warn("descriptor %d cannot be remembered: a forked child will "
			 "keep it open", fd);
		return;
	}
	atomic_fetch_or(&p->word[fd % PAGE_FDS / 64], 1ull << (fd % 64));
}

void fdset_forget(int fd)
{
	unsigned i = (unsigned)fd / PAGE_FDS;
	struct page *p = i < PAGES ? atomic_load(&pages[i]) : NULL;

	if (p)
		atomic_fetch_and(&p->word[fd % PAGE_FDS / 64], ~(1ull << (fd % 64)));
}

#if defined(__SANITIZE_THREAD__)
/* TSan learns from reads and writes of a descriptor what happens before what. It knows
 * descriptors made by dup3, not those made by F_DUPFD: without this, every exchange over
 * a socket looks like a race. */
static void tell_tsan(int fd, int high)
{
	dup3(fd, high, O_CLOEXEC);
}
#else
static inline void tell_tsan(int fd, int high)
{
	(void)fd;
	(void)high;
}
#endif

int fdset_take(int fd)
{
	int high = fd;

	if (fd < 0)
		return fd;
	fdset_raise_limit();
	if (fd < FIRST)
		high = fcntl(fd, F_DUPFD_CLOEXEC, FIRST);
	if (high >= 0 && high != fd) {
		tell_tsan(fd, high);
		sys_close(fd);
	} else {
		high = fd;
		fcntl(fd, F_SETFD, FD_CLOEXEC);
	}
	remember(high);
	return high;
}

int fdset_resize(int fd, uint64_t size)
{
	struct rlimit rl;

	if (!getrlimit(RLIMIT_FSIZE, &rl) && rl.rlim_cur < size)
		return -EFBIG;
	return ftruncate(fd, (off_t)size) ? -errno : 0;
}

void fdset_close(int fd)
{
	if (fd < 0)
		return;
	/* In this order: another thread may get the number as soon as it is closed. */
	fdset_forget(fd);
	sys_close(fd);
}

void fdset_forget_all(void)
{
	for (unsigned i = 0; i < PAGES; i++) {
		struct page *p = atomic_load(&pages[i]);

		for (unsigned w = 0; p && w < PAGE_FDS / 64; w++)
			atomic_store(&p->word[w], 0);
	}
}

void fdset_child(void)
{
	for (unsigned i = 0; i < PAGES; i++) {
		struct page *p = atomic_load(&pages[i]);

		for (unsigned w = 0; p && w < PAGE_FDS / 64; w++) {
			uint64_t bits = atomic_exchange(&p->word[w], 0);

			for (; bits; bits &= bits - 1)
				sys_close((int)(i * PAGE_FDS + w * 64 +
					    (unsigned)__builtin_ctzll(bits)));
		}
	}
}
