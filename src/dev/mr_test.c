/* SPDX-License-Identifier: BSD-2-Clause */
#include "dev/verbs.h"
#include "tests/t.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>

#define RW (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

static struct dev_ctx *ctx;
static struct dev_pd *pd, *other;

static int get(struct dev_pd *p, uint32_t key, uint64_t addr, uint64_t len,
	       unsigned access, void **ptr)
{
	struct mr_range r = { key, addr, len };
	struct mr_ref ref;
	int ret = mr_get(p, &r, access, &ref);

	if (ret)
		return ret;
	*ptr = ref.ptr;
	mr_put(ref.slot);
	return 0;
}

static void checks(void)
{
	char buf[256];
	uint64_t at = (uintptr_t)buf;
	struct dev_mr *mr;
	void *p = NULL;
	uint32_t key;

	REQUIRE(mr_reg(pd, buf, sizeof(buf), at, IBV_ACCESS_LOCAL_WRITE, &mr) == 0);
	key = mr->mr.lkey;
	CHECK(key && key == mr->mr.rkey);
	CHECK_EQ(get(pd, key, at + 10, 20, MR_LOCAL_READ, &p), 0);
	CHECK(p == buf + 10);
	CHECK_EQ(get(pd, key, at, 256, IBV_ACCESS_LOCAL_WRITE, &p), 0);
	CHECK_EQ(get(pd, key, at, 257, MR_LOCAL_READ, &p), -ERANGE);
	CHECK_EQ(get(pd, key, at + 256, 1, MR_LOCAL_READ, &p), -ERANGE);
	CHECK_EQ(get(pd, key, at - 1, 2, MR_LOCAL_READ, &p), -ERANGE);
	CHECK_EQ(get(pd, key, at + 8, UINT64_MAX, MR_LOCAL_READ, &p), -ERANGE);
	CHECK_EQ(get(pd, key, at + 256, 0, MR_LOCAL_READ, &p), 0);
	CHECK_EQ(get(pd, key, at + 257, 0, MR_LOCAL_READ, &p), -ERANGE);
	CHECK_EQ(get(pd, key, at, 8, IBV_ACCESS_REMOTE_READ, &p), -EACCES);
	CHECK_EQ(
		get(pd, key, at, 8, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &p),
		-EACCES);
	CHECK_EQ(get(other, key, at, 8, MR_LOCAL_READ, &p), -EPERM);
	CHECK_EQ(get(pd, key ^ 1, at, 8, MR_LOCAL_READ, &p), -ENOENT);
	CHECK_EQ(get(pd, key ^ 0x100, at, 0, MR_LOCAL_READ, &p), -ENOENT);
	CHECK_EQ(get(pd, 0, at, 0, MR_LOCAL_READ, &p), -ENOENT);
	CHECK_EQ(pd_dealloc(pd), -EBUSY);
	mr_dereg(mr);
	CHECK_EQ(get(pd, key, at, 8, MR_LOCAL_READ, &p), -ENOENT);
}

static void iova_and_zero_based(void)
{
	char *buf = aligned_alloc(4096, 8192);
	struct dev_mr *mr;
	void *p = NULL;

	REQUIRE(mr_reg(pd, buf + 16, 100, 0x7000010, IBV_ACCESS_LOCAL_WRITE, &mr) == 0);
	CHECK_EQ(get(pd, mr->mr.rkey, 0x7000010 + 5, 10, 0, &p), 0);
	CHECK(p == buf + 21);
	CHECK_EQ(get(pd, mr->mr.rkey, (uintptr_t)buf + 16, 10, 0, &p), -ERANGE);
	mr_dereg(mr);
	CHECK_EQ(mr_reg(pd, buf + 16, 100, 0x7000000, 0, &mr), -EINVAL);
	REQUIRE(mr_reg(pd, buf, 100, (uintptr_t)buf, IBV_ACCESS_ZERO_BASED, &mr) == 0);
	CHECK_EQ(get(pd, mr->mr.rkey, 99, 1, 0, &p), 0);
	CHECK(p == buf + 99);
	mr_dereg(mr);
	free(buf);
}

static int reg(void *addr, size_t len, unsigned access)
{
	struct dev_mr *mr;
	int ret = mr_reg(pd, addr, len, (uintptr_t)addr, access, &mr);

	if (!ret)
		mr_dereg(mr);
	return ret;
}

static void registration(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *m = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	REQUIRE(m != MAP_FAILED);
	CHECK_EQ(reg(m, 4 * page, RW), 0);
	CHECK_EQ(reg(m, 10, RW | IBV_ACCESS_RELAXED_ORDERING | 1u << 29), 0);
	CHECK_EQ(reg(m, 10, IBV_ACCESS_REMOTE_WRITE), -EINVAL);
	CHECK_EQ(reg(m, 10, IBV_ACCESS_REMOTE_ATOMIC), -EINVAL);
	CHECK_EQ(reg(m, 10, IBV_ACCESS_REMOTE_READ), 0);
	CHECK_EQ(reg(m, 10, IBV_ACCESS_ON_DEMAND), 0);
	CHECK_EQ(reg(m, 10, 1u << 15), -EINVAL);
	CHECK_EQ(reg(m, 0, RW), -EINVAL);
	CHECK_EQ(reg(m + 1, 0, RW), 0);
	CHECK_EQ(reg(m, SIZE_MAX, 0), -EINVAL);
	CHECK_EQ(reg(NULL, 10, 0), -EFAULT);
	mprotect(m + page, page, PROT_READ);
	CHECK_EQ(reg(m, 4 * page, 0), 0);
	CHECK_EQ(reg(m, page, RW), 0);
	CHECK_EQ(reg(m + page - 1, 2, RW), -EFAULT);
	CHECK_EQ(reg(m + 2 * page, page, RW), 0);
	mprotect(m + page, page, PROT_NONE);
	CHECK_EQ(reg(m + page, 1, 0), -EFAULT);
	munmap(m + page, page);
	CHECK_EQ(reg(m, 2 * page, 0), -EFAULT);
	CHECK_EQ(reg(m, page + 1, 0), -EFAULT);
	CHECK_EQ(reg(m, page, RW), 0);
	CHECK_EQ(reg((void *)"a string constant", 4, RW), -EFAULT);
	CHECK_EQ(reg((void *)"a string constant", 4, 0), 0);
	munmap(m, 4 * page);
}

/* Every way of looking at the address space agrees; without /proc the protection
 * stays unseen. */
static void ways_of_looking(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	/* Far below what the kernel chooses by itself, else the hole is soon filled. */
	char *m = mmap((void *)0x20000000, 8 * page, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	uintptr_t at = (uintptr_t)m;

	REQUIRE(m != MAP_FAILED);
	mprotect(m + page, page, PROT_READ);
	mprotect(m + 2 * page, page, PROT_NONE);
	munmap(m + 4 * page, page);
	for (int way = MAPS_QUERY; way <= MAPS_MINCORE; way++) {
		const enum maps_way by = (enum maps_way)way;
		int rights = by == MAPS_MINCORE ? 0 : -EFAULT;

		CHECK_EQ(maps_check_by(by, at, page, true), 0);
		CHECK_EQ(maps_check_by(by, at, 2 * page, false), 0);
		CHECK_EQ(maps_check_by(by, at + page - 1, 2, true), rights);
		CHECK_EQ(maps_check_by(by, at + 2 * page - 1, 2, false), rights);
		CHECK_EQ(maps_check_by(by, at + 3 * page, page, true), 0);
		CHECK_EQ(maps_check_by(by, at + 3 * page, page + 1, false), -EFAULT);
		CHECK_EQ(maps_check_by(by, at + 4 * page, 1, false), -EFAULT);
		CHECK_EQ(maps_check_by(by, at + 5 * page - 1, 2, false), -EFAULT);
		CHECK_EQ(maps_check_by(by, at + 5 * page, 3 * page, true), 0);
	}
	munmap(m, 8 * page);
}

/* Costs by mapping, not by byte. A terabyte page by page would take minutes. */
static void huge(void)
{
	size_t len = 1ull << 40;
	void *m = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct timespec a, b;

	SKIP_IF(m == MAP_FAILED, "no terabyte of address space");
	clock_gettime(CLOCK_MONOTONIC, &a);
	CHECK_EQ(reg(m, len, RW), 0);
	clock_gettime(CLOCK_MONOTONIC, &b);
	CHECK((b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000 < 1000);
	munmap(m, len);
}

static void rereg(void)
{
	static char a[64], b[128];
	struct dev_mr *mr;
	void *p = NULL;
	uint64_t at = (uintptr_t)b;
	uint32_t key;

	REQUIRE(mr_reg(pd, a, 64, (uintptr_t)a, 0, &mr) == 0);
	key = mr->mr.lkey;
	CHECK_EQ(mr_rereg(mr, 8, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	CHECK_EQ(mr_rereg(mr, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, RW),
		 IBV_REREG_MR_ERR_INPUT);
	CHECK_EQ(mr_rereg(mr, 0, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_CMD);
	CHECK_EQ(mr_rereg(mr, IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0),
		 IBV_REREG_MR_ERR_CMD);
	CHECK_EQ(mr_rereg(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			  IBV_ACCESS_REMOTE_WRITE),
		 IBV_REREG_MR_ERR_CMD);
	CHECK_EQ(errno, EINVAL);
	CHECK_EQ(mr->mr.lkey, key); /* a refused one changes nothing */
	CHECK_EQ(get(pd, key, (uintptr_t)a, 64, 0, &p), 0);
	CHECK_EQ(mr_rereg(mr,
			  IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD |
				  IBV_REREG_MR_CHANGE_ACCESS,
			  other, b, 128, RW),
		 0);
	CHECK_EQ(get(other, mr->mr.lkey, at, 128, RW, &p), 0);
	CHECK(p == b && mr->mr.addr == b && mr->mr.length == 128 &&
	      mr->mr.pd == &other->pd);
	CHECK_EQ(get(pd, mr->mr.lkey, at, 1, 0, &p), -EPERM);
	CHECK(mr->mr.lkey != key);
	CHECK_EQ(get(other, key, at, 1, 0, &p), -ENOENT);
	mr_dereg(mr);
	CHECK_EQ(atomic_load(&pd->refs), 0);
	CHECK_EQ(atomic_load(&other->refs), 0);
}

/* Rights or PD alone: the key stays, and with it what peers know. */
static void rereg_keeps_the_key(void)
{
	static char a[64];
	struct dev_mr *mr;
	uint32_t key;
	void *p = NULL;

	REQUIRE(mr_reg(pd, a, 64, (uintptr_t)a, RW, &mr) == 0);
	key = mr->mr.lkey;
	CHECK_EQ(mr_rereg(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0), 0);
	CHECK(mr->mr.lkey == key && mr->mr.rkey == key);
	CHECK_EQ(get(pd, key, (uintptr_t)a, 64, 0, &p), 0);
	CHECK_EQ(get(pd, key, (uintptr_t)a, 64, RW, &p), -EACCES);
	CHECK_EQ(mr_rereg(mr, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0), 0);
	CHECK(mr->mr.lkey == key && mr->mr.rkey == key);
	CHECK_EQ(get(pd, key, (uintptr_t)a, 64, 0, &p), -EPERM);
	CHECK_EQ(get(other, key, (uintptr_t)a, 64, 0, &p), 0);
	mr_dereg(mr);
}

/* An I/O address stays when only rights change. */
static void rereg_keeps_the_address(void)
{
	char *buf = aligned_alloc(4096, 4096);
	struct dev_mr *mr;
	void *p = NULL;

	REQUIRE(mr_reg(pd, buf + 16, 100, 0x7000010, 0, &mr) == 0);
	CHECK_EQ(mr_rereg(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, RW), 0);
	CHECK_EQ(get(pd, mr->mr.lkey, 0x7000010, 100, RW, &p), 0);
	CHECK(p == buf + 16);
	CHECK_EQ(mr_rereg(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, buf, 50, 0), 0);
	CHECK_EQ(get(pd, mr->mr.lkey, (uintptr_t)buf, 50, RW, &p), 0);
	CHECK(p == buf);
	mr_dereg(mr);
	free(buf);
}

/* A local key for any address: zeros to read, somewhere to write, 2 GiB of both. */
static void null_region(void)
{
	struct dev_mr *mr;
	uint8_t *zeros, *sink;
	void *p = NULL;

	REQUIRE(mr_alloc_null(pd, &mr) == 0);
	CHECK(mr->mr.length == SIZE_MAX && mr->mr.lkey && !mr->mr.rkey);
	CHECK_EQ(get(pd, mr->mr.lkey, 0, DEV_MAX_MSG, MR_LOCAL_READ, &p), 0);
	zeros = p;
	CHECK_EQ(get(pd, mr->mr.lkey, UINT64_MAX - 10, 10, IBV_ACCESS_LOCAL_WRITE, &p),
		 0);
	sink = p;
	CHECK_EQ(get(pd, mr->mr.lkey, 5, DEV_MAX_MSG + 1ull, MR_LOCAL_READ, &p), -ERANGE);
	CHECK_EQ(get(other, mr->mr.lkey, 0, 10, MR_LOCAL_READ, &p), -EPERM);
	CHECK_EQ(get(pd, mr->mr.lkey, 0, 10, IBV_ACCESS_REMOTE_READ, &p), -EACCES);
	for (size_t at = 0; at < DEV_MAX_MSG; at += 1 << 20) {
		sink[at] = sink[at + (1 << 20) - 1] = 0xff;
		CHECK(!zeros[at] && !zeros[at + (1 << 20) - 1]);
	}
	CHECK_EQ(mr_rereg(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0),
		 IBV_REREG_MR_ERR_INPUT);
	CHECK_EQ(mr_dereg(mr), 0);
}

/* 3000 regions at once over three chunks: all keys differ and find their own. */
static void many(void)
{
	enum { N = 3000 };
	static char mem[N];
	static struct dev_mr *mr[N];
	uint32_t adjacent = 0;
	void *p = NULL;

	for (int i = 0; i < N; i++)
		REQUIRE(mr_reg(pd, &mem[i], 1, (uintptr_t)&mem[i], 0, &mr[i]) == 0);
	for (int i = 0; i < N; i++) {
		CHECK(!get(pd, mr[i]->mr.lkey, (uintptr_t)&mem[i], 1, 0, &p));
		CHECK(p == &mem[i]);
		if (i && (mr[i]->mr.lkey >> 8) - (mr[i - 1]->mr.lkey >> 8) == 1)
			adjacent++;
	}
	CHECK(adjacent < N / 10);
	for (int i = 0; i < N; i++)
		mr_dereg(mr[i]);
}

/* ---- deregistration against users ------------------------------------------- */

static _Atomic uint32_t race_key;
static _Atomic(char *) race_mem;
static atomic_bool race_stop;
static atomic_ulong race_hits;

/* Writes through whatever key is current; the memory is unmapped right after the
 * deregistration returns, so a check that came too late is a crash. */
static void *race_user(void *arg)
{
	struct mr_ref ref;

	(void)arg;
	while (!atomic_load(&race_stop)) {
		char *mem = atomic_load(&race_mem);
		struct mr_range r = { atomic_load(&race_key), (uintptr_t)mem, 4096 };

		if (mr_get(pd, &r, IBV_ACCESS_LOCAL_WRITE, &ref))
			continue;
		memset(ref.ptr, 1, 4096);
		mr_put(ref.slot);
		atomic_fetch_add(&race_hits, 1);
	}
	return NULL;
}

static void dereg_waits_for_users(void)
{
	pthread_t thread[3];
	unsigned rounds = 4000;

	for (int i = 0; i < 3; i++)
		pthread_create(&thread[i], NULL, race_user, NULL);
	for (unsigned i = 0; i < rounds || !atomic_load(&race_hits); i++) {
		char *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		struct dev_mr *mr;

		REQUIRE(m != MAP_FAILED);
		REQUIRE(mr_reg(pd, m, 4096, (uintptr_t)m, IBV_ACCESS_LOCAL_WRITE, &mr) ==
			0);
		atomic_store(&race_mem, m);
		atomic_store(&race_key, mr->mr.lkey);
		if (i % 8 == 0)
			sched_yield();
		mr_dereg(mr);
		munmap(m, 4096);
	}
	atomic_store(&race_stop, true);
	for (int i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
	CHECK(atomic_load(&race_hits) > 0);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	if (device_open(device_get(0), &ctx) || pd_alloc(ctx, &pd) ||
	    pd_alloc(ctx, &other))
		return 1;
	T_RUN(checks);
	T_RUN(iova_and_zero_based);
	T_RUN(registration);
	T_RUN(ways_of_looking);
	T_RUN(huge);
	T_RUN(rereg);
	T_RUN(rereg_keeps_the_key);
	T_RUN(rereg_keeps_the_address);
	T_RUN(null_region);
	T_RUN(many);
	T_RUN(dereg_waits_for_users);
	CHECK_EQ(pd_dealloc(pd), 0);
	CHECK_EQ(pd_dealloc(other), 0);
	device_close(ctx);
	return t_done();
}
