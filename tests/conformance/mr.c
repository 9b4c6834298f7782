/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory regions: which memory can be registered with which rights, the address that a
 * region has for its users, and what ibv_rereg_mr() changes. */
#include "conf.h"

#include <sys/mman.h>

static struct conf_pair c;
static struct conf_buf a, p;
enum { LEN = 65536 };

static void start(void)
{
	struct conf_opt opt = { .depth = 4, .abuf = &a, .pbuf = &p, .len = LEN };

	conf_pair_open(&c, &opt);
}

static void rdma_by_a(int op, uint64_t raddr, size_t len, uint32_t rkey, int status)
{
	struct ibv_sge sge = conf_sge(&a, 0, len);
	struct ibv_send_wr wr = conf_rdma(1, op, &sge, 1, (void *)(uintptr_t)raddr, rkey);

	OK(conf_post(c.a->qp, &wr));
	conf_wc_is(c.a->send_cq, 1, status);
}

static void write_ok(uint64_t raddr, const uint8_t *at, size_t len, uint32_t rkey)
{
	conf_pattern(a.p, len, rkey);
	rdma_by_a(IBV_WR_RDMA_WRITE, raddr, len, rkey, IBV_WC_SUCCESS);
	CHECK(conf_pattern_ok(at, len, rkey));
}

/* Registering alone; no connection is needed. */

static struct ibv_pd *pd;
static uint8_t *mem; /* 16 pages */
enum { PAGE = 4096, PAGES = 16 };

static void open_pd(void)
{
	MUST(pd = ibv_alloc_pd(conf_open_device()));
	/* Where nobody else maps anything: a hole must stay one. */
	mem = mmap((void *)0x50000000, PAGES * PAGE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	CHECK(mem != MAP_FAILED);
}

static void close_pd(void)
{
	struct ibv_context *ctx = pd->context;

	OK(ibv_dealloc_pd(pd));
	OK(ibv_close_device(ctx));
	munmap(mem, PAGES * PAGE);
}

/* 0 or the errno. */
static int reg(void *addr, size_t len, unsigned access)
{
	struct ibv_mr *mr;

	errno = 0;
	mr = ibv_reg_mr(pd, addr, len, access);
	if (!mr)
		return errno;
	CHECK(mr->addr == addr && mr->length == len && mr->pd == pd);
	CHECK(mr->lkey && mr->context == pd->context);
	OK(ibv_dereg_mr(mr));
	return 0;
}

static void rights(void)
{
	open_pd();
	for (unsigned access = 0; access < 64; access++) {
		bool store = access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
		int ret;

		if (access & IBV_ACCESS_ZERO_BASED)
			continue; /* not every device has it */
		ret = reg(mem, PAGE, access);
		if (store && !(access & IBV_ACCESS_LOCAL_WRITE))
			EQ(ret, EINVAL);
		else
			EQ(ret, 0);
	}
	close_pd();
}

static void flags(void)
{
	open_pd();
	EQ(reg(mem, PAGE, CONF_RW | IBV_ACCESS_HUGETLB), 0);
	EQ(reg(mem, PAGE, CONF_RW | IBV_ACCESS_RELAXED_ORDERING), 0);
	/* Of the optional range a device may ignore what it does not know... */
	EQ(reg(mem, PAGE, CONF_RW | IBV_ACCESS_OPTIONAL_RANGE), 0);
	/* ... and nothing else. */
	EQ(reg(mem, PAGE, CONF_RW | 1u << 15), EINVAL);
	EQ(reg(mem, PAGE, CONF_RW | 1u << 31), EINVAL);
	close_pd();
}

static void on_demand_only_if_announced(void)
{
	struct ibv_device_attr_ex attr;
	int ret;

	open_pd();
	OK(ibv_query_device_ex(pd->context, NULL, &attr));
	ret = reg(mem, PAGE, CONF_RW | IBV_ACCESS_ON_DEMAND);
	if (attr.odp_caps.general_caps & IBV_ODP_SUPPORT)
		EQ(ret, 0);
	else
		CHECK(ret == EINVAL || ret == EOPNOTSUPP);
	close_pd();
}

/* SKIPs where the device has none. */
static void open_on_demand(void)
{
	struct ibv_device_attr_ex attr;

	open_pd();
	OK(ibv_query_device_ex(pd->context, NULL, &attr));
	if (!(attr.odp_caps.general_caps & IBV_ODP_SUPPORT))
		SKIP("no on-demand paging");
}

static void on_demand_needs_no_memory_yet(void)
{
	const unsigned access = CONF_RW | IBV_ACCESS_ON_DEMAND;

	open_on_demand();
	OK(munmap(mem + 4 * PAGE, PAGE));
	EQ(reg(mem, PAGES * PAGE, access), 0);
	EQ(reg(mem + 4 * PAGE, 1, access), 0);
	EQ(reg(mem, SIZE_MAX, access), EINVAL);
	EQ(reg(mem, PAGES * PAGE, CONF_RW), EFAULT);
	close_pd();
}

/* Memory that comes, goes and comes again while it is registered. */
static void on_demand_follows_the_mappings(void)
{
	struct ibv_mr *mr;
	uint8_t *at;

	open_on_demand();
	at = mem + 4 * PAGE;
	OK(munmap(mem, PAGES * PAGE));
	start();
	MUST(mr = ibv_reg_mr(c.p->pd, mem, PAGES * PAGE, CONF_RW | IBV_ACCESS_ON_DEMAND));
	for (int i = 0; i < 3; i++) {
		MUST(mmap(at, 8 * PAGE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
		write_ok((uintptr_t)at, at, 8 * PAGE, mr->rkey);
		memset(at, 0x11 * i, PAGE);
		rdma_by_a(IBV_WR_RDMA_READ, (uintptr_t)at, PAGE, mr->rkey, IBV_WC_SUCCESS);
		CHECK(a.p[0] == 0x11 * i && a.p[PAGE - 1] == 0x11 * i);
		OK(munmap(at, 8 * PAGE));
	}
	OK(ibv_dereg_mr(mr));
	conf_pair_free(&c);
	close_pd();
}

/* The whole address space is one region: the key is good for any memory. */
static void implicit_on_demand(void)
{
	struct ibv_device_attr_ex attr;
	struct ibv_mr *mr;

	open_on_demand();
	OK(ibv_query_device_ex(pd->context, NULL, &attr));
	if (!(attr.odp_caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT))
		SKIP("no implicit on-demand paging");
	start();
	MUST(mr = ibv_reg_mr(c.p->pd, NULL, SIZE_MAX, CONF_RW | IBV_ACCESS_ON_DEMAND));
	write_ok((uintptr_t)mem, mem, PAGES * PAGE, mr->rkey);
	write_ok((uintptr_t)p.p, p.p, LEN, mr->rkey);
	OK(ibv_dereg_mr(mr));
	conf_pair_free(&c);
	close_pd();
}

static void memory_must_be_there(void)
{
	open_pd();
	EQ(reg(NULL, PAGE, 0), EFAULT);
	OK(munmap(mem + 4 * PAGE, PAGE));
	EQ(reg(mem, 4 * PAGE, CONF_RW), 0);
	EQ(reg(mem + 5 * PAGE, 4 * PAGE, CONF_RW), 0);
	EQ(reg(mem + 4 * PAGE, 1, 0), EFAULT);
	EQ(reg(mem, 4 * PAGE + 1, 0), EFAULT); /* one byte */
	EQ(reg(mem + 5 * PAGE - 1, 2, 0), EFAULT);
	EQ(reg(mem, PAGES * PAGE, 0), EFAULT);
	close_pd();
}

static void memory_must_be_writable(void)
{
	open_pd();
	mem[2 * PAGE] = 1;
	OK(mprotect(mem + 2 * PAGE, PAGE, PROT_READ));
	EQ(reg(mem + 2 * PAGE, PAGE, IBV_ACCESS_LOCAL_WRITE), EFAULT);
	EQ(reg(mem, 4 * PAGE, CONF_RW), EFAULT);
	EQ(reg(mem + 2 * PAGE, PAGE, IBV_ACCESS_REMOTE_READ), 0);
	EQ(reg(mem, 2 * PAGE, CONF_RW), 0);
	close_pd();
}

static void lengths(void)
{
	open_pd();
	EQ(reg(mem, 0, CONF_RW), EINVAL);
	EQ(reg(mem, SIZE_MAX, 0), EINVAL);
	EQ(reg(mem + 1, SIZE_MAX - 10, 0), EINVAL);
	EQ(reg(mem + 5, 1, CONF_RW), 0);
	EQ(reg(mem, PAGES * PAGE, CONF_RW), 0);
	close_pd();
}

/* The same memory in several regions, whose keys differ. */
static void regions_overlap(void)
{
	enum { N = 100 };
	struct ibv_mr *mr[N];

	open_pd();
	for (int i = 0; i < N; i++) {
		MUST(mr[i] = ibv_reg_mr(pd, mem + i, PAGE, CONF_RW));
		for (int k = 0; k < i; k++)
			CHECK(mr[k]->lkey != mr[i]->lkey && mr[k]->rkey != mr[i]->rkey);
	}
	EQ(ibv_dealloc_pd(pd), EBUSY);
	for (int i = 0; i < N; i++)
		OK(ibv_dereg_mr(mr[i]));
	close_pd();
}

static void iova_is_the_remote_address(void)
{
	const uint64_t iova = 0x10000000;
	struct ibv_mr *mr;

	start();
	mr = ibv_reg_mr_iova(c.p->pd, p.p, 8192, iova, CONF_RW);
	if (!mr && errno == EOPNOTSUPP)
		SKIP("no I/O addresses");
	CHECK(mr && mr->addr == p.p);
	write_ok(iova, p.p, 100, mr->rkey);
	write_ok(iova + 8191, p.p + 8191, 1, mr->rkey);
	rdma_by_a(IBV_WR_RDMA_WRITE, (uintptr_t)p.p, 100, mr->rkey, IBV_WC_REM_ACCESS_ERR);
	OK(ibv_dereg_mr(mr));
	conf_pair_free(&c);
}

/* ... and the local one. */
static void iova_is_the_local_address(void)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_mr *mr;

	start();
	mr = ibv_reg_mr_iova(c.a->pd, a.p, 8192, 0x10000000, CONF_RW);
	if (!mr && errno == EOPNOTSUPP)
		SKIP("no I/O addresses");
	CHECK(mr);
	conf_pattern(a.p, 8192, 5);
	sge = (struct ibv_sge){ 0x10000000 + 100, 200, mr->lkey };
	wr = conf_rdma(1, IBV_WR_RDMA_WRITE, &sge, 1, p.p, p.mr->rkey);
	OK(conf_post(c.a->qp, &wr));
	conf_wc_ok(c.a->send_cq, 1);
	CHECK(!memcmp(p.p, a.p + 100, 200));
	OK(ibv_dereg_mr(mr));
	conf_pair_free(&c);
}

static void zero_based(void)
{
	struct ibv_mr *mr;

	start();
	mr = ibv_reg_mr(c.p->pd, p.p + 100, 5000, CONF_RW | IBV_ACCESS_ZERO_BASED);
	if (!mr)
		SKIP("no zero based regions: %s", strerror(errno));
	if (!conf_user_device())
		SKIP("not every device takes the flag as the address");
	write_ok(0, p.p + 100, 5000, mr->rkey);
	rdma_by_a(IBV_WR_RDMA_WRITE, 4999, 2, mr->rkey, IBV_WC_REM_ACCESS_ERR);
	OK(ibv_dereg_mr(mr));
	conf_pair_free(&c);
}

static void relaxed_ordering_works(void)
{
	struct ibv_mr *mr;

	start();
	MUST(mr = ibv_reg_mr(c.p->pd, p.p, LEN, CONF_RW | IBV_ACCESS_RELAXED_ORDERING));
	write_ok((uintptr_t)p.p, p.p, LEN, mr->rkey);
	OK(ibv_dereg_mr(mr));
	conf_pair_free(&c);
}

/* Reregistering. */

static void need_rereg(void)
{
	if (ibv_rereg_mr(p.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, CONF_RW) &&
	    errno == EOPNOTSUPP)
		SKIP("regions cannot be registered anew");
}

static void rereg_bad_input(void)
{
	uint32_t key;

	start();
	need_rereg();
	key = p.mr->rkey;
	EQ(ibv_rereg_mr(p.mr, 1 << 3, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	EQ(errno, EINVAL);
	EQ(ibv_rereg_mr(p.mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 10, 0),
	   IBV_REREG_MR_ERR_INPUT);
	EQ(ibv_rereg_mr(p.mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, p.p, 0, 0),
	   IBV_REREG_MR_ERR_INPUT);
	EQ(ibv_rereg_mr(p.mr, IBV_REREG_MR_CHANGE_PD, c.p->pd, NULL, 0, CONF_RW),
	   IBV_REREG_MR_ERR_INPUT); /* access without its flag */
	EQ(p.mr->rkey, key); /* the region is as it was */
	write_ok((uintptr_t)p.p, p.p, 100, key);
	conf_pair_free(&c);
}

static void rereg_of_what_cannot_be(void)
{
	start();
	need_rereg();
	EQ(ibv_rereg_mr(p.mr, 0, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_CMD);
	EQ(errno, EINVAL);
	EQ(ibv_rereg_mr(p.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			IBV_ACCESS_REMOTE_WRITE),
	   IBV_REREG_MR_ERR_CMD);
	EQ(errno, EINVAL);
	EQ(ibv_rereg_mr(p.mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, (void *)4096, 10, 0),
	   IBV_REREG_MR_ERR_CMD);
	EQ(errno, EFAULT);
	conf_pair_free(&c);
}

/* A PD that is not to be changed is not looked at. */
static void rereg_with_any_pd(void)
{
	static uint64_t junk[64] = { [0 ... 63] = UINT64_MAX };

	start();
	need_rereg();
	OK(ibv_rereg_mr(p.mr, IBV_REREG_MR_CHANGE_ACCESS, (struct ibv_pd *)(void *)junk, NULL, 0,
			IBV_ACCESS_REMOTE_READ));
	CHECK(p.mr->pd == c.p->pd);
	conf_pair_free(&c);
}

static void rereg_of_the_range(void)
{
	uint8_t *old, *mem2;

	start();
	need_rereg();
	CHECK(posix_memalign((void **)&mem2, 4096, 8192) == 0);
	memset(mem2, 0, 8192);
	old = p.p;
	OK(ibv_rereg_mr(p.mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, mem2, 8192, 0));
	CHECK(p.mr->addr == mem2 && p.mr->length == 8192 && p.mr->pd == c.p->pd);
	write_ok((uintptr_t)mem2, mem2, 8192, p.mr->rkey);
	rdma_by_a(IBV_WR_RDMA_WRITE, (uintptr_t)old, 64, p.mr->rkey, IBV_WC_REM_ACCESS_ERR);
	conf_pair_free(&c);
	free(mem2);
}

/* Keys are an output of the call: for other memory they are new, and those of before are
 * worth nothing. */
static void rereg_gives_new_keys(void)
{
	uint8_t *mem2;
	uint32_t key;

	start();
	need_rereg();
	if (!conf_user_device())
		SKIP("a device may keep them");
	CHECK(posix_memalign((void **)&mem2, 4096, 8192) == 0);
	key = p.mr->rkey;
	OK(ibv_rereg_mr(p.mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, mem2, 8192, 0));
	CHECK(p.mr->rkey != key && p.mr->lkey == p.mr->rkey);
	write_ok((uintptr_t)mem2, mem2, 64, p.mr->rkey);
	rdma_by_a(IBV_WR_RDMA_WRITE, (uintptr_t)mem2, 64, key, IBV_WC_REM_ACCESS_ERR);
	conf_pair_free(&c);
	free(mem2);
}

/* Other rights for the same memory: peers go on with the key that they know. */
static void rereg_of_rights_keeps_the_keys(void)
{
	uint32_t key;

	start();
	need_rereg();
	key = p.mr->rkey;
	write_ok((uintptr_t)p.p, p.p, 64, key);
	OK(ibv_rereg_mr(p.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			CONF_RW | IBV_ACCESS_REMOTE_ATOMIC));
	EQ(p.mr->rkey, key);
	write_ok((uintptr_t)p.p, p.p, 64, key);
	OK(ibv_rereg_mr(p.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			IBV_ACCESS_REMOTE_READ));
	EQ(p.mr->rkey, key);
	rdma_by_a(IBV_WR_RDMA_READ, (uintptr_t)p.p, 64, key, IBV_WC_SUCCESS);
	rdma_by_a(IBV_WR_RDMA_WRITE, (uintptr_t)p.p, 64, key, IBV_WC_REM_ACCESS_ERR);
	conf_pair_free(&c);
}

static void rereg_of_rights(void)
{
	start();
	need_rereg();
	OK(ibv_rereg_mr(p.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			IBV_ACCESS_REMOTE_READ));
	CHECK(p.mr->addr == p.p && p.mr->length == LEN);
	rdma_by_a(IBV_WR_RDMA_READ, (uintptr_t)p.p, 64, p.mr->rkey, IBV_WC_SUCCESS);
	rdma_by_a(IBV_WR_RDMA_WRITE, (uintptr_t)p.p, 64, p.mr->rkey,
		  IBV_WC_REM_ACCESS_ERR);
	conf_pair_free(&c);
}

static void rereg_of_the_pd(void)
{
	struct ibv_pd *other;

	start();
	need_rereg();
	MUST(other = ibv_alloc_pd(c.p->verbs));
	OK(ibv_rereg_mr(p.mr, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0));
	CHECK(p.mr->pd == other);
	EQ(ibv_dealloc_pd(other), EBUSY);
	rdma_by_a(IBV_WR_RDMA_WRITE, (uintptr_t)p.p, 64, p.mr->rkey,
		  IBV_WC_REM_ACCESS_ERR);
	conf_pair_free(&c);
	OK(ibv_dealloc_pd(other));
}

static void rereg_of_all(void)
{
	struct ibv_pd *other;
	uint8_t *mem2;

	start();
	need_rereg();
	MUST(other = ibv_alloc_pd(c.p->verbs));
	CHECK(posix_memalign((void **)&mem2, 4096, 8192) == 0);
	OK(ibv_rereg_mr(p.mr,
			IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD |
				IBV_REREG_MR_CHANGE_ACCESS,
			other, mem2, 8192, 0));
	OK(ibv_rereg_mr(p.mr,
			IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD |
				IBV_REREG_MR_CHANGE_ACCESS,
			c.p->pd, mem2 + 4096, 4096, CONF_RW));
	OK(ibv_dealloc_pd(other));
	write_ok((uintptr_t)mem2 + 4096, mem2 + 4096, 4096, p.mr->rkey);
	conf_pair_free(&c);
	free(mem2);
}

static void rereg_with_a_window(void)
{
	struct ibv_mw_bind bind = { .wr_id = 7, .send_flags = IBV_SEND_SIGNALED };
	struct ibv_mw *mw;

	start();
	need_rereg();
	mw = ibv_alloc_mw(c.p->pd, IBV_MW_TYPE_1);
	if (!mw)
		SKIP("no windows");
	OK(ibv_rereg_mr(p.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			CONF_RW | IBV_ACCESS_MW_BIND));
	bind.bind_info = (struct ibv_mw_bind_info){ p.mr, (uintptr_t)p.p, 64,
						    IBV_ACCESS_REMOTE_WRITE };
	OK(ibv_bind_mw(c.p->qp, mw, &bind));
	conf_wc_ok(c.p->send_cq, 7);
	if (conf_user_device()) {
		CHECK(ibv_rereg_mr(p.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0) != 0);
		EQ(errno, EBUSY);
		write_ok((uintptr_t)p.p, p.p, 64, mw->rkey);
	}
	OK(ibv_dealloc_mw(mw));
	OK(ibv_rereg_mr(p.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, CONF_RW));
	conf_pair_free(&c);
}

/* Null regions. */

static struct ibv_mr *null_of(struct ibv_pd *of)
{
	struct ibv_mr *mr = ibv_alloc_null_mr(of);

	if (!mr)
		SKIP("no null regions: %s", strerror(errno));
	CHECK(mr->pd == of && mr->length == SIZE_MAX);
	return mr;
}

/* What is read from it is zero, wherever and however much. */
static void null_region_is_zero(void)
{
	static const size_t len[] = { 1, 64, 4096, 20000, LEN };
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_mr *mr;

	start();
	mr = null_of(c.a->pd);
	for (unsigned i = 0; i < sizeof(len) / sizeof(*len); i++) {
		memset(p.p, 0xee, LEN);
		sge = (struct ibv_sge){ i * 0x123456789ull, len[i], mr->lkey };
		wr = conf_rdma(1, IBV_WR_RDMA_WRITE, &sge, 1, p.p, p.mr->rkey);
		OK(conf_post(c.a->qp, &wr));
		conf_wc_ok(c.a->send_cq, 1);
		CONF_MSG_ZERO(p.p, len[i]);
		CHECK(conf_is_fill(p.p + len[i], 0xee, LEN - len[i]));
	}
	OK(ibv_dereg_mr(mr));
	conf_pair_free(&c);
}

/* What is written to it is gone, and the rest of the list is filled as ever. */
static void null_region_swallows(void)
{
	struct conf_opt opt = { .sge = 3, .abuf = &a, .pbuf = &p, .len = LEN };
	struct ibv_recv_wr rwr = { .wr_id = 2, .num_sge = 3 }, *bad;
	struct ibv_sge sge, in[3];
	struct ibv_send_wr wr;
	struct ibv_mr *mr;

	conf_pair_open(&c, &opt);
	mr = null_of(c.p->pd);
	for (size_t skip = 10; skip < 50000; skip += 24000) {
		conf_pattern(a.p, LEN, skip);
		in[0] = conf_sge(&p, 0, 100);
		in[1] = (struct ibv_sge){ 0, skip, mr->lkey };
		in[2] = conf_sge(&p, 100, 10000);
		rwr.sg_list = in;
		OK(ibv_post_recv(c.p->qp, &rwr, &bad));
		OK(conf_send(c.a->qp, 1, &a, 0, 100 + skip + 10000));
		conf_wc_ok(c.a->send_cq, 1);
		conf_wc_ok(c.p->recv_cq, 2);
		CHECK(!memcmp(p.p, a.p, 100));
		CHECK(!memcmp(p.p + 100, a.p + 100 + skip, 10000));
	}
	/* ... and does not come back. */
	sge = (struct ibv_sge){ 0, 50000, mr->lkey };
	wr = conf_rdma(3, IBV_WR_RDMA_WRITE, &sge, 1, a.p, a.mr->rkey);
	OK(conf_post(c.p->qp, &wr));
	conf_wc_ok(c.p->send_cq, 3);
	CONF_MSG_ZERO(a.p, 50000);
	OK(ibv_dereg_mr(mr));
	conf_pair_free(&c);
}

static void null_region_takes_a_read(void)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_mr *mr;

	start();
	mr = null_of(c.a->pd);
	sge = (struct ibv_sge){ 4711, LEN, mr->lkey };
	wr = conf_rdma(1, IBV_WR_RDMA_READ, &sge, 1, p.p, p.mr->rkey);
	OK(conf_post(c.a->qp, &wr));
	conf_wc_ok(c.a->send_cq, 1);
	OK(ibv_dereg_mr(mr));
	conf_pair_free(&c);
}

/* Only the local key is one. */
static void null_region_is_local(void)
{
	struct ibv_mr *mr;

	start();
	mr = null_of(c.p->pd);
	rdma_by_a(IBV_WR_RDMA_READ, 0, 64, mr->lkey, IBV_WC_REM_ACCESS_ERR);
	EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0),
	   IBV_REREG_MR_ERR_INPUT);
	OK(ibv_dereg_mr(mr));
	conf_pair_free(&c);
}

/* What is not offered. */

static void advice_only_if_announced(void)
{
	struct ibv_device_attr_ex attr;
	struct ibv_sge sge;
	struct ibv_mr *mr;
	int ret;

	open_pd();
	OK(ibv_query_device_ex(pd->context, NULL, &attr));
	MUST(mr = ibv_reg_mr(pd, mem, PAGE, CONF_RW));
	sge = (struct ibv_sge){ (uintptr_t)mem, PAGE, mr->lkey };
	ret = ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH,
			    &sge, 1);
	if (!(attr.odp_caps.general_caps & IBV_ODP_SUPPORT))
		EQ(ret, EOPNOTSUPP);
	else
		EQ(ret, ENOENT); /* it is no on-demand region */
	OK(ibv_dereg_mr(mr));
	close_pd();
}

static int advise(struct ibv_pd *of, int advice, uint32_t flags, struct ibv_sge sge)
{
	return ibv_advise_mr(of, (enum ibv_advise_mr_advice)advice, flags, &sge, 1);
}

static void advice(void)
{
	enum { READ = IBV_ADVISE_MR_ADVICE_PREFETCH,
	       WRITE = IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
	       NO_FAULT = IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT };
	const uint64_t at = 0x50000000;
	struct ibv_mr *mr, *only_read;
	struct ibv_pd *other;
	unsigned char in;

	open_on_demand();
	MUST(other = ibv_alloc_pd(pd->context));
	MUST(mr = ibv_reg_mr(pd, mem, PAGES * PAGE, CONF_RW | IBV_ACCESS_ON_DEMAND));
	MUST(only_read = ibv_reg_mr(pd, mem, PAGE, IBV_ACCESS_ON_DEMAND));
	EQ(advise(pd, READ, 0, (struct ibv_sge){ at, PAGE, mr->lkey }), 0);
	EQ(advise(pd, NO_FAULT, 0, (struct ibv_sge){ at, PAGE, mr->lkey }), 0);
	EQ(advise(pd, WRITE, IBV_ADVISE_MR_FLAG_FLUSH,
		  (struct ibv_sge){ at + 2 * PAGE, PAGE, mr->lkey }), 0);
	OK(mincore(mem + 2 * PAGE, PAGE, &in));
	CHECK(in & 1);
	EQ(advise(pd, READ, 0, (struct ibv_sge){ at, PAGE, only_read->lkey }), 0);
	EQ(advise(pd, WRITE, 0, (struct ibv_sge){ at, PAGE, only_read->lkey }), EPERM);
	EQ(advise(other, READ, 0, (struct ibv_sge){ at, PAGE, mr->lkey }), EPERM);
	EQ(advise(pd, READ, 0, (struct ibv_sge){ at, PAGE, mr->lkey + 1 }), ENOENT);
	EQ(advise(pd, READ, 0, (struct ibv_sge){ at + 1, PAGES * PAGE, mr->lkey }), EFAULT);
	OK(munmap(mem + 4 * PAGE, PAGE));
	EQ(advise(pd, READ, 0, (struct ibv_sge){ at, PAGES * PAGE, mr->lkey }), EFAULT);
	EQ(advise(pd, READ, 1u << 7, (struct ibv_sge){ at, PAGE, mr->lkey }), EINVAL);
	CHECK(advise(pd, 77, 0, (struct ibv_sge){ at, PAGE, mr->lkey }) != 0);
	EQ(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, NULL, 0), EINVAL);
	OK(ibv_dereg_mr(mr));
	OK(ibv_dereg_mr(only_read));
	OK(ibv_dealloc_pd(other));
	close_pd();
}

static void no_dmabuf(void)
{
	int fd = open("/dev/zero", O_RDWR | O_CLOEXEC);

	open_pd();
	errno = 0;
	CHECK(!ibv_reg_dmabuf_mr(pd, 0, PAGE, 0, fd, CONF_RW));
	CHECK(errno == EOPNOTSUPP || !conf_user_device());
	close(fd);
	close_pd();
}

static const struct conf_case cases[] = {
	CASE(rights),
	CASE(flags),
	CASE(on_demand_only_if_announced),
	CASE(on_demand_needs_no_memory_yet),
	CASE(on_demand_follows_the_mappings),
	CASE(implicit_on_demand),
	CASE(memory_must_be_there),
	CASE(memory_must_be_writable),
	CASE(lengths),
	CASE(regions_overlap),
	CASE(iova_is_the_remote_address),
	CASE(iova_is_the_local_address),
	CASE(zero_based),
	CASE(relaxed_ordering_works),
	CASE(rereg_bad_input),
	CASE(rereg_of_what_cannot_be),
	CASE(rereg_with_any_pd),
	CASE(rereg_of_the_range),
	CASE(rereg_gives_new_keys),
	CASE(rereg_of_rights_keeps_the_keys),
	CASE(rereg_of_rights),
	CASE(rereg_of_the_pd),
	CASE(rereg_of_all),
	CASE(rereg_with_a_window),
	CASE(null_region_is_zero),
	CASE(null_region_swallows),
	CASE(null_region_takes_a_read),
	CASE(null_region_is_local),
	CASE(advice_only_if_announced),
	CASE(advice),
	CASE(no_dmabuf),
};
CONF_MAIN(cases)
