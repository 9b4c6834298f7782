/* SPDX-License-Identifier: BSD-2-Clause */
#include "shm/memid.h"

#include "base/loop.h"
#include "base/sys.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

static uint64_t random_word(void)
{
	uint64_t v;

	return getrandom(&v, sizeof(v), GRND_NONBLOCK) == sizeof(v) ? v : loop_now();
}

/* The address is drawn here, within 64 TiB: address space layout randomization may be
 * switched off, and then a program that is started again would have its page at the same
 * address. The kernel chooses another one if this is not free. */
struct memid_page *memid_page_new(uint64_t nonce)
{
	uint64_t hint = (random_word() & ((1ull << 46) - 1) & ~0xffffull) | 1ull << 33;
	size_t size = (size_t)sysconf(_SC_PAGESIZE);
	struct memid_page *p = mmap((void *)(uintptr_t)hint, size, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	madvise(p, size, MADV_DONTFORK); /* a child may get this pid one day */
	p->nonce = nonce;
	return p;
}

void memid_page_free(struct memid_page *page)
{
	if (page)
		munmap(page, (size_t)sysconf(_SC_PAGESIZE));
}

bool memid_in(const struct memid *id, int mem)
{
	uint64_t is;

	return sys_pread(mem, &is, sizeof(is), (off_t)id->at) == sizeof(is) &&
	       is == id->nonce;
}

bool memid_of(const struct memid *id, pid_t pid)
{
	uint64_t is = 0;
	struct iovec here = { &is, sizeof(is) };
	struct iovec there = { (void *)(uintptr_t)id->at, sizeof(is) };

	return process_vm_readv(pid, &here, 1, &there, 1, 0) == sizeof(is) &&
	       is == id->nonce;
}

ssize_t memid_copy(const struct memid *id, pid_t pid, const struct memid_io *io)
{
	unsigned long n = (unsigned long)io->n + 1;
	uint64_t word = 0;
	struct iovec here[MEMID_PIECES + 1] = { { &word, sizeof(word) } };
	struct iovec there[2] = {
		{ (void *)(uintptr_t)(id->at +
				      (io->read ? 0 : offsetof(struct memid_page, word))),
		  sizeof(word) },
		{ (void *)(uintptr_t)io->at, io->len },
	};
	ssize_t ret;

	if (io->n > MEMID_PIECES)
		return -EINVAL;
	memcpy(here + 1, io->iov, (size_t)io->n * sizeof(*io->iov));
	ret = io->read ? process_vm_readv(pid, here, n, there, 2, 0) :
			 process_vm_writev(pid, here, n, there, 2, 0);
	if (ret < 0)
		return errno == EFAULT ? -ESTALE : -errno;
	if (ret < (ssize_t)sizeof(word) || (io->read && word != id->nonce))
		return -ESTALE;
	return ret > (ssize_t)sizeof(word) ? ret - (ssize_t)sizeof(word) : -EFAULT;
}
