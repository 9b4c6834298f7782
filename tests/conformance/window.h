/* SPDX-License-Identifier: BSD-2-Clause */
/* Fixture of the cases about memory windows: a connected pair c. Its passive side owns
 * the memory p and the window mw, which it binds to parts of p; its active side accesses
 * p through the window from its own memory a. Every call fails the case when it cannot be
 * done, except those that return an int: that is the verb's result. Included by one file
 * of a program. */
#ifndef ANYRDMA_TESTS_WINDOW_H
#define ANYRDMA_TESTS_WINDOW_H

#include "conf.h"

#define WINDOW_UNUSED __attribute__((unused))

static struct conf_pair c;
static struct conf_buf a, p;
static struct ibv_mw *mw; /* NULL: the case has none, or has deallocated it */

enum {
	LEN = 65536,
	LOCAL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, /* no remote right of its own */
	REMOTE = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
};

/* Skips the case where the device has no windows of this type. */
static WINDOW_UNUSED void need(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct ibv_mw *w = ibv_alloc_mw(pd, type);

	if (!w)
		SKIP("no memory windows of type %d: %s", type, strerror(errno));
	EQ(w->type, type);
	CHECK(w->pd == pd && w->context == pd->context);
	OK(ibv_dealloc_mw(w));
}

static WINDOW_UNUSED struct ibv_mw *window(enum ibv_mw_type type)
{
	struct ibv_mw *w;

	MUST(w = ibv_alloc_mw(c.p->pd, type));
	return w;
}

/* p is registered with these rights; type 0: no window yet. */
static WINDOW_UNUSED void start_with(int access, int type)
{
	struct conf_opt opt = { .depth = 4, .abuf = &a, .pbuf = &p, .len = LEN,
				.paccess = access };

	conf_pair_open(&c, &opt);
	need(c.p->pd, IBV_MW_TYPE_1);
	need(c.p->pd, IBV_MW_TYPE_2);
	mw = type ? window(type) : NULL;
}

static WINDOW_UNUSED void start(int type)
{
	start_with(LOCAL, type);
}

static WINDOW_UNUSED void window_free(void)
{
	if (mw)
		OK(ibv_dealloc_mw(mw));
	mw = NULL;
}

/* Whatever state the QPs are in. */
static WINDOW_UNUSED void stop(void)
{
	window_free();
	conf_pair_free(&c);
}

static WINDOW_UNUSED struct ibv_mw_bind_info range(size_t off, size_t len, int access)
{
	struct ibv_mw_bind_info i = {
		.mr = p.mr,
		.addr = (uintptr_t)p.p + off,
		.length = len,
		.mw_access_flags = access,
	};

	return i;
}

static WINDOW_UNUSED int post_bind1(struct ibv_mw *one, uint64_t wr_id,
				    struct ibv_mw_bind_info info)
{
	struct ibv_mw_bind b = {
		.wr_id = wr_id,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = info,
	};

	return ibv_bind_mw(c.p->qp, one, &b);
}

static WINDOW_UNUSED int post_bind2(struct ibv_mw *two, uint64_t wr_id, uint32_t rkey,
				    struct ibv_mw_bind_info info)
{
	struct ibv_send_wr wr = conf_bind(wr_id, two, rkey, info);

	return conf_post(c.p->qp, &wr);
}

/* Binds a type 2 window and returns its key. What two->rkey is then differs between
 * libraries. */
static WINDOW_UNUSED uint32_t bound2(struct ibv_mw *two, struct ibv_mw_bind_info info)
{
	uint32_t rkey = ibv_inc_rkey(two->rkey);
	struct ibv_wc wc;

	OK(post_bind2(two, 900, rkey, info));
	conf_wc_get(c.p->send_cq, 900, IBV_WC_SUCCESS, &wc);
	EQ(wc.opcode, IBV_WC_BIND_MW);
	return rkey;
}

/* Binds a type 1 window: its key is one->rkey. */
static WINDOW_UNUSED void bound1(struct ibv_mw *one, struct ibv_mw_bind_info info)
{
	struct ibv_wc wc;

	OK(post_bind1(one, 901, info));
	conf_wc_get(c.p->send_cq, 901, IBV_WC_SUCCESS, &wc);
	EQ(wc.opcode, IBV_WC_BIND_MW);
}

static WINDOW_UNUSED int post_inv(struct ibv_qp *qp, uint64_t wr_id, uint32_t rkey)
{
	struct ibv_send_wr wr = conf_inv(wr_id, IBV_WR_LOCAL_INV, rkey);

	return conf_post(qp, &wr);
}

static WINDOW_UNUSED void invalidated(uint32_t rkey)
{
	struct ibv_wc wc;

	OK(post_inv(c.p->qp, 902, rkey));
	conf_wc_get(c.p->send_cq, 902, IBV_WC_SUCCESS, &wc);
	EQ(wc.opcode, IBV_WC_LOCAL_INV);
}

static WINDOW_UNUSED void access_by(struct rdma_cm_id *id, int op, uint64_t raddr, size_t len,
				    uint32_t rkey, int status)
{
	struct ibv_sge sge = conf_sge(&a, 0, len);
	struct ibv_send_wr wr = conf_rdma(903, op, &sge, 1, (void *)(uintptr_t)raddr, rkey);

	OK(conf_post(id->qp, &wr));
	conf_wc_is(id->send_cq, 903, status);
}

static WINDOW_UNUSED uint64_t at(size_t off)
{
	return (uintptr_t)p.p + off;
}

static WINDOW_UNUSED void write_ok(size_t off, size_t len, uint32_t rkey)
{
	conf_pattern(a.p, len, off + 1);
	access_by(c.a, IBV_WR_RDMA_WRITE, at(off), len, rkey, IBV_WC_SUCCESS);
	CHECK(conf_pattern_ok(p.p + off, len, off + 1));
}

static WINDOW_UNUSED void read_ok(size_t off, size_t len, uint32_t rkey)
{
	conf_pattern(p.p + off, len, off + 2);
	access_by(c.a, IBV_WR_RDMA_READ, at(off), len, rkey, IBV_WC_SUCCESS);
	CHECK(conf_pattern_ok(a.p, len, off + 2));
}

static WINDOW_UNUSED void write_refused(size_t off, size_t len, uint32_t rkey)
{
	access_by(c.a, IBV_WR_RDMA_WRITE, at(off), len, rkey, IBV_WC_REM_ACCESS_ERR);
	conf_qp_wait(c.a->qp, IBV_QPS_ERR);
}

/* A bind of c.p's QP with wr_id 1, whose post returned ret, is refused. Devices whose
 * library checks a bind refuse to post what others complete with an error; the
 * specification has the latter. */
static WINDOW_UNUSED void bind_refused(int ret)
{
	if (ret) {
		CHECK(!conf_user_device() && (ret == EINVAL || ret == EPERM));
		return;
	}
	conf_wc_is(c.p->send_cq, 1, IBV_WC_MW_BIND_ERR);
	conf_qp_wait(c.p->qp, IBV_QPS_ERR);
}

#endif
