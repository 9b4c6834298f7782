/* SPDX-License-Identifier: BSD-2-Clause */
/* As many objects as the device reports, all at once and one after the other. Destroyed
 * objects leave neither memory nor descriptors in use, and their numbers are not used
 * again at once. */
#include "../inuse.h"
#include "lab.h"
#include "side.h"

#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>

#ifdef CONF_SANITIZER
enum { CYCLES = 3000, MOST = 2000 };
#else
enum { CYCLES = 100000, MOST = 1 << 30 };
#endif

static struct ibv_cq *cq;
static uint8_t memory[8192];

/* ---- kinds ------------------------------------------------------------------------ */

struct kind {
	const char *name;
	void *(*make)(void);
	int (*destroy)(void *object);
	int (*promised)(const struct ibv_device_attr *a);
};

static void *make_context(void)
{
	return ibv_open_device(dev.ctx->device);
}

static int free_context(void *o)
{
	return ibv_close_device(o);
}

static void *make_pd(void)
{
	return ibv_alloc_pd(dev.ctx);
}

static int free_pd(void *o)
{
	return ibv_dealloc_pd(o);
}

static int max_pd(const struct ibv_device_attr *a)
{
	return a->max_pd - 1; /* the test has one */
}

static void *make_td(void)
{
	struct ibv_td_init_attr td = { 0 };

	return ibv_alloc_td(dev.ctx, &td);
}

static int free_td(void *o)
{
	return ibv_dealloc_td(o);
}

static void *make_parent(void)
{
	struct ibv_parent_domain_init_attr attr = { .pd = dev.pd };

	return ibv_alloc_parent_domain(dev.ctx, &attr);
}

static void *make_mr(void)
{
	return ibv_reg_mr(dev.pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
}

static int free_mr(void *o)
{
	return ibv_dereg_mr(o);
}

static int max_mr(const struct ibv_device_attr *a)
{
	return a->max_mr;
}

static void *make_channel(void)
{
	return ibv_create_comp_channel(dev.ctx);
}

static int free_channel(void *o)
{
	return ibv_destroy_comp_channel(o);
}

static void *make_cq(void)
{
	return ibv_create_cq(dev.ctx, 4, NULL, NULL, 0);
}

static void *make_cq_ex(void)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 4, .wc_flags = IBV_WC_STANDARD_FLAGS };

	return ibv_create_cq_ex(dev.ctx, &attr);
}

static int free_cq(void *o)
{
	return ibv_destroy_cq(o);
}

static int max_cq(const struct ibv_device_attr *a)
{
	return a->max_cq - 1;
}

static void *make_srq(void)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 2, .max_sge = 1 } };

	return ibv_create_srq(dev.pd, &attr);
}

static int free_srq(void *o)
{
	return ibv_destroy_srq(o);
}

static int max_srq(const struct ibv_device_attr *a)
{
	return a->max_srq;
}

static struct ibv_qp_init_attr_ex qp_attr(void)
{
	return (struct ibv_qp_init_attr_ex){
		.qp_type = IBV_QPT_RC,
		.send_cq = cq,
		.recv_cq = cq,
		.cap = CONF_CAP(1, 1, 1),
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = dev.pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};
}

static void *make_qp(void)
{
	struct ibv_qp_init_attr_ex attr = qp_attr();

	return ibv_create_qp(dev.pd, (struct ibv_qp_init_attr *)&attr);
}

static void *make_qp_ex(void)
{
	struct ibv_qp_init_attr_ex attr = qp_attr();

	return ibv_create_qp_ex(dev.ctx, &attr);
}

static int free_qp(void *o)
{
	return ibv_destroy_qp(o);
}

static int max_qp(const struct ibv_device_attr *a)
{
	return a->max_qp;
}

static void *make_ah(void)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1 };

	attr.grh = (struct ibv_global_route){ .dgid = dev.gid,
					      .sgid_index = (uint8_t)dev.gid_index };
	return ibv_create_ah(dev.pd, &attr);
}

static int free_ah(void *o)
{
	return ibv_destroy_ah(o);
}

static int max_ah(const struct ibv_device_attr *a)
{
	return a->max_ah;
}

static void *make_mw(void)
{
	return ibv_alloc_mw(dev.pd, IBV_MW_TYPE_2);
}

static int free_mw(void *o)
{
	return ibv_dealloc_mw(o);
}

static int max_mw(const struct ibv_device_attr *a)
{
	return a->max_mw;
}

static void *make_xrcd(void)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};

	return ibv_open_xrcd(dev.ctx, &attr);
}

static int free_xrcd(void *o)
{
	return ibv_close_xrcd(o);
}

static const struct kind kinds[] = {
	{ "context", make_context, free_context, NULL },
	{ "PD", make_pd, free_pd, max_pd },
	{ "thread domain", make_td, free_td, NULL },
	{ "parent domain", make_parent, free_pd, NULL },
	{ "MR", make_mr, free_mr, max_mr },
	{ "completion channel", make_channel, free_channel, NULL },
	{ "CQ", make_cq, free_cq, max_cq },
	{ "extended CQ", make_cq_ex, free_cq, NULL },
	{ "SRQ", make_srq, free_srq, max_srq },
	{ "QP", make_qp, free_qp, max_qp },
	{ "extended QP", make_qp_ex, free_qp, NULL },
	{ "AH", make_ah, free_ah, max_ah },
	{ "window", make_mw, free_mw, max_mw },
	{ "XRC domain", make_xrcd, free_xrcd, NULL },
};

enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

/* ---- what is in use ---------------------------------------------------------------- */

static size_t bytes(void)
{
	struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd;
}

static void open_all(void)
{
	open_device();
	MUST(cq = ibv_create_cq(dev.ctx, 16, NULL, NULL, 0));
}

static void close_all(void)
{
	OK(ibv_destroy_cq(cq));
	close_device();
}

/* ---- one after the other ------------------------------------------------------------ */

/* 16 live at a time, so that neither the first nor the last slot serves for all. */
static bool cycle(const struct kind *k, int n)
{
	void *live[16] = { NULL };

	for (int i = 0; i < n + 16; i++) {
		void **slot = &live[i % 16];

		AT(k->name);
		if (*slot && k->destroy(*slot))
			FAIL("%s: cannot be destroyed", k->name);
		*slot = NULL;
		if (i >= n)
			continue;
		errno = 0;
		*slot = k->make();
		if (!*slot && !i && errno == EOPNOTSUPP)
			return false;
		if (!*slot)
			FAIL("%s number %d: %s", k->name, i, strerror(errno));
	}
	return true;
}

static void nothing_is_left_over(void)
{
	open_all();
	for (int i = 0; i < KINDS; i++) {
		const struct kind *k = &kinds[i];
		int fds;
		size_t before, after;

		if (!cycle(k, 500)) { /* what is made once and kept */
			printf("# the device has no %s\n", k->name);
			continue;
		}
		conf_settle(); /* what is closed in the background is */
		fds = inuse_fds();
		before = bytes();
		cycle(k, CYCLES);
		conf_settle();
		after = bytes();
		EQ(inuse_fds(), fds);
#ifndef CONF_SANITIZER /* whose allocator does not count */
		if (after > before + 4096)
			FAIL("%s: %zu bytes more after %d", k->name, after - before, CYCLES);
#endif
		(void)before;
		(void)after;
	}
	close_all();
}

/* ---- all at once -------------------------------------------------------------------- */

/* n are there at once; if these are all, one more is refused. */
static void most(const struct kind *k, int n, bool all_of_them)
{
	void **all = calloc((size_t)n + 1, sizeof(*all));
	int i;

	MUST(all);
	for (i = 0; i < n; i++) {
		AT(k->name);
		all[i] = k->make();
		if (!all[i])
			FAIL("%s %d of %d: %s", k->name, i + 1, n, strerror(errno));
	}
	if (all_of_them) {
		errno = 0;
		CHECK(!k->make());
		EQ(errno, ENOMEM);
	}
	while (i--)
		if (k->destroy(all[i]))
			FAIL("%s: cannot be destroyed", k->name);
	free(all);
}

static void as_many_as_promised(void)
{
	struct ibv_device_attr a;

	open_all();
	OK(ibv_query_device(dev.ctx, &a));
	for (int i = 0; i < KINDS; i++) {
		int n = kinds[i].promised ? kinds[i].promised(&a) : 0;

		printf("# %s: %d\n", kinds[i].name, n);
		most(&kinds[i], n < MOST ? n : MOST, n && n <= MOST);
	}
	close_all();
}

/* One more than there can be is refused, and there is room again afterwards. */
static void more_than_promised(void)
{
	struct ibv_device_attr a;
	static struct ibv_pd *pds[1 << 17];
	int n = 0;

	open_all();
	OK(ibv_query_device(dev.ctx, &a));
	CHECK(a.max_pd < 1 << 17);
	while ((pds[n] = ibv_alloc_pd(dev.ctx)))
		n++;
	EQ(errno, ENOMEM);
	EQ(n, a.max_pd - 1);
	OK(ibv_dealloc_pd(pds[--n]));
	MUST(pds[n] = ibv_alloc_pd(dev.ctx));
	while (n >= 0)
		OK(ibv_dealloc_pd(pds[n--]));
	close_all();
}

/* Descriptors are what connected QPs need: max_qp says how many there are for. */
static void as_many_connected(void)
{
	struct rlimit was, rl = { .rlim_cur = 4096, .rlim_max = 4096 };
	struct ibv_device_attr a;
	struct side *all;
	int n;

#ifdef CONF_SANITIZER
	rl.rlim_cur = rl.rlim_max = 2700;
#endif
	OK(getrlimit(RLIMIT_NOFILE, &was));
	if (was.rlim_max < rl.rlim_max)
		SKIP("the hard limit is %lu", (unsigned long)was.rlim_max);
	OK(setrlimit(RLIMIT_NOFILE, &rl));
	open_all();
	OK(ibv_query_device(dev.ctx, &a));
	CHECK(a.max_qp > 1000);
	most(&(struct kind){ "QP", make_qp, free_qp, NULL }, a.max_qp, true);
	n = a.max_qp & ~1;
	MUST(all = calloc((size_t)n, sizeof(*all)));
	for (int i = 0; i < n; i++) {
		MUST(all[i].qp = make_qp());
		all[i].psn = (uint32_t)i;
	}
	for (int i = 0; i < n; i += 2)
		join(&all[i], &all[i + 1]);
	for (int i = 0; i < n; i++) {
		struct ibv_send_wr wr = conf_rdma((uint64_t)i, IBV_WR_RDMA_WRITE, NULL, 0, NULL, 0);

		OK(conf_post(all[i].qp, &wr));
		conf_wc_ok(cq, (uint64_t)i);
	}
	printf("# %d QPs, %d descriptors\n", n, inuse_fds());
	for (int i = 0; i < n; i++)
		OK(ibv_destroy_qp(all[i].qp));
	free(all);
	close_all();
}

/* ---- numbers -------------------------------------------------------------------------- */

static void qp_numbers_rest(void)
{
	enum { LAST = 100 };
	uint32_t last[LAST] = { 0 };

	open_all();
	for (int i = 0; i < 5000; i++) {
		struct ibv_qp *qp;

		MUST(qp = make_qp());
		CHECK(qp->qp_num > 1 && qp->qp_num < 0xffffff);
		for (int k = 0; k < LAST; k++)
			CHECK(last[k] != qp->qp_num);
		last[i % LAST] = qp->qp_num;
		OK(ibv_destroy_qp(qp));
	}
	close_all();
}

static void keys_rest(void)
{
	enum { LAST = 60 };
	uint32_t last[LAST] = { 0 };

	open_all();
	for (int i = 0; i < 5000; i++) {
		struct ibv_mr *mr;

		MUST(mr = make_mr());
		for (int k = 0; k < LAST; k++)
			CHECK(last[k] != mr->rkey);
		last[i % LAST] = mr->rkey;
		OK(ibv_dereg_mr(mr));
	}
	close_all();
}

/* A QP with the number of another that is gone is not taken for it. */
static void a_number_again(void)
{
	struct side x, y, z;
	uint32_t old;

	open_all();
	x = side(1);
	y = side(2);
	join(&x, &y);
	exchange(&x, &y, 1);
	old = y.qp->qp_num;
	side_free(&y);
	for (;;) {
		z = side(3);
		if (z.qp->qp_num == old)
			break;
		side_free(&z);
	}
	/* x still names the number; z is connected to somebody else. */
	y = side(4);
	join(&y, &z);
	exchange(&y, &z, 2);
	{
		struct ibv_sge sge = conf_sge(&x.b, 0, 100);
		struct ibv_send_wr wr = conf_wr(5, IBV_WR_SEND, &sge, 1);

		OK(conf_recv(z.qp, 6, &z.b, 0, 100));
		OK(conf_post(x.qp, &wr));
		conf_wc_is(x.cq, 5, IBV_WC_RETRY_EXC_ERR);
		conf_wc_none(z.cq, CONF_QUIET);
		EQ(conf_qp_state(z.qp), IBV_QPS_RTS);
	}
	side_free(&x);
	side_free(&y);
	side_free(&z);
	close_all();
}

/* A forked child may have as many as any process, whatever the parent has. */
static void those_of_a_parent(void)
{
	struct ibv_device_attr a;
	int status, n = 0;
	void **ah;
	pid_t pid;

	if (!conf_user_device())
		SKIP("undefined elsewhere");
#ifdef CONF_TSAN
	SKIP("TSan ends a child that starts threads");
#endif
	open_device();
	OK(ibv_query_device(dev.ctx, &a));
	MUST(ah = calloc((size_t)a.max_ah, sizeof(*ah)));
	while (n < a.max_ah) {
		MUST(ah[n] = make_ah());
		n++;
	}
	CHECK(!make_ah());
	fflush(NULL);
	pid = fork();
	if (!pid) {
		memset(&dev, 0, sizeof(dev)); /* the parent's */
		open_device();
		MUST(make_ah());
		_exit(0);
	}
	EQ(waitpid(pid, &status, 0), pid);
	EQ(status, 0);
	while (n)
		OK(free_ah(ah[--n]));
	free(ah);
	close_device();
}

static const struct conf_case cases[] = {
	LONG_CASE(nothing_is_left_over, 120),
	LONG_CASE(as_many_as_promised, 120),
	CASE(more_than_promised),
	LONG_CASE(as_many_connected, 120),
	CASE(qp_numbers_rest),
	CASE(keys_rest),
	CASE(a_number_again),
	CASE(those_of_a_parent),
};

CONF_MAIN(cases)
