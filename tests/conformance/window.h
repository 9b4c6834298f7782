/* SPDX-License-Identifier: BSD-2-Clause */
/* For the cases of memory windows: a connected pair whose passive side owns memory
 * and windows, and whose active side uses them. For one file of a program. */
#ifndef ANYRDMA_TESTS_WINDOW_H
#define ANYRDMA_TESTS_WINDOW_H

#include "conf.h"

#define WINDOW_UNUSED __attribute__((unused))

static struct conf_pair c;
static struct conf_buf a, p;

enum {
	LEN = 65536,
	LOCAL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, /* no remote right of its own */
	REMOTE = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
};

static WINDOW_UNUSED void need(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct ibv_mw *mw = ibv_alloc_mw(pd, type);

	if (!mw)
		SKIP("no memory windows of type %d: %s", type, strerror(errno));
	EQ(mw->type, type);
	CHECK(mw->pd == pd && mw->context == pd->context);
	OK(ibv_dealloc_mw(mw));
}

static WINDOW_UNUSED void start(int access)
{
	struct rdma_conn_param param = conf_param();
	struct conf_opt opt = { .connect = &param, .accept = &param };

	param.responder_resources = param.initiator_depth = 4;
	conf_pair_open(&c, &opt);
	need(c.p->pd, IBV_MW_TYPE_1);
	need(c.p->pd, IBV_MW_TYPE_2);
	a = conf_buf(c.a->pd, LEN, CONF_RW);
	p = conf_buf(c.p->pd, LEN, access);
}

/* Whatever state the QPs are in. */
static WINDOW_UNUSED void stop(void)
{
	rdma_destroy_qp(c.a);
	rdma_destroy_qp(c.p);
	if (a.mr)
		conf_buf_free(&a);
	if (p.mr)
		conf_buf_free(&p);
	conf_pair_free(&c);
}

static WINDOW_UNUSED struct ibv_mw *window(enum ibv_mw_type type)
{
	struct ibv_mw *mw;

	MUST(mw = ibv_alloc_mw(c.p->pd, type));
	return mw;
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

static WINDOW_UNUSED int post_bind1(struct ibv_mw *mw, uint64_t wr_id,
				    struct ibv_mw_bind_info info)
{
	struct ibv_mw_bind b = {
		.wr_id = wr_id,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = info,
	};

	return ibv_bind_mw(c.p->qp, mw, &b);
}

static WINDOW_UNUSED struct ibv_send_wr bind2(struct ibv_mw *mw, uint64_t wr_id, uint32_t rkey,
					      struct ibv_mw_bind_info info)
{
	struct ibv_send_wr wr = conf_wr(wr_id, IBV_WR_BIND_MW, NULL, 0);

	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = rkey;
	wr.bind_mw.bind_info = info;
	return wr;
}

static WINDOW_UNUSED int post_bind2(struct ibv_mw *mw, uint64_t wr_id, uint32_t rkey,
				    struct ibv_mw_bind_info info)
{
	struct ibv_send_wr wr = bind2(mw, wr_id, rkey, info);

	return conf_post(c.p->qp, &wr);
}

/* A bound type 2 window; its key. */
static WINDOW_UNUSED uint32_t bound2(struct ibv_mw *mw, struct ibv_mw_bind_info info)
{
	uint32_t rkey = ibv_inc_rkey(mw->rkey);
	struct ibv_wc wc;

	OK(post_bind2(mw, 900, rkey, info));
	conf_wc_get(c.p->send_cq, 900, IBV_WC_SUCCESS, &wc);
	EQ(wc.opcode, IBV_WC_BIND_MW);
	return rkey;
}

static WINDOW_UNUSED void bound1(struct ibv_mw *mw, struct ibv_mw_bind_info info)
{
	struct ibv_wc wc;

	OK(post_bind1(mw, 901, info));
	conf_wc_get(c.p->send_cq, 901, IBV_WC_SUCCESS, &wc);
	EQ(wc.opcode, IBV_WC_BIND_MW);
}

static WINDOW_UNUSED int post_inv(struct ibv_qp *qp, uint64_t wr_id, uint32_t rkey)
{
	struct ibv_send_wr wr = conf_wr(wr_id, IBV_WR_LOCAL_INV, NULL, 0);

	wr.invalidate_rkey = rkey;
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

/* Devices whose library checks a bind refuse to post what others complete with
 * an error; the specification has the latter. */
static WINDOW_UNUSED void bind_refused(int ret, struct ibv_qp *qp, struct ibv_cq *cq,
				       uint64_t wr_id)
{
	if (ret) {
		CHECK(!conf_user_device() && (ret == EINVAL || ret == EPERM));
		return;
	}
	conf_wc_is(cq, wr_id, IBV_WC_MW_BIND_ERR);
	conf_qp_wait(qp, IBV_QPS_ERR);
}

#endif
