/* SPDX-License-Identifier: BSD-2-Clause */
/* The kernel knows its objects by context and handle: a verb that is given an object whose
 * handle or context was overwritten is refused, wherever the object stands, and changes
 * nothing. With both as they were, the object works as before. */
#include "side.h"

#include <fcntl.h>

static bool is_refusal(int err)
{
	return err == ENOENT || err == EINVAL;
}

/* The errno is returned, and in errno. */
#define REFUSED(call) \
	do { \
		int ret_; \
		errno = 0; \
		ret_ = (call); \
		if (!is_refusal(ret_) || errno != ret_) \
			FAIL("%s is %d, errno %d", #call, ret_, errno); \
	} while (0)
#define REFUSED_PTR(call) \
	do { \
		errno = 0; \
		if (call) \
			FAIL("%s was not refused", #call); \
		if (!is_refusal(errno)) \
			FAIL("%s: errno %d", #call, errno); \
	} while (0)

enum { GARBLED = 0x5eadbeef };

/* Runs a statement while a handle has another value. */
#define GARBLE(field, statement) \
	do { \
		(field) ^= GARBLED; \
		statement; \
		(field) ^= GARBLED; \
	} while (0)

static struct {
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char buf[4096];
} o;

static struct ibv_qp_init_attr qp_attr(void)
{
	return (struct ibv_qp_init_attr){
		.send_cq = o.cq,
		.recv_cq = o.cq,
		.srq = o.srq,
		.qp_type = IBV_QPT_RC,
		.cap = CONF_CAP(4, 4, 1),
	};
}

static struct ibv_srq_init_attr srq_attr(void)
{
	return (struct ibv_srq_init_attr){ .attr = { .max_wr = 4, .max_sge = 1 } };
}

static struct ibv_ah_attr ah_attr(void)
{
	return (struct ibv_ah_attr){
		.is_global = 1,
		.port_num = 1,
		.grh = { .dgid = dev.gid,
			 .sgid_index = (uint8_t)dev.gid_index,
			 .hop_limit = 64 },
	};
}

static void objects_up(void)
{
	struct ibv_srq_init_attr sa = srq_attr();
	struct ibv_qp_init_attr qa;

	open_device();
	MUST(o.pd = ibv_alloc_pd(dev.ctx));
	MUST(o.cq = ibv_create_cq(dev.ctx, 16, NULL, NULL, 0));
	MUST(o.srq = ibv_create_srq(o.pd, &sa));
	qa = qp_attr();
	MUST(o.qp = ibv_create_qp(o.pd, &qa));
	MUST(o.mr = ibv_reg_mr(o.pd, o.buf, sizeof(o.buf), CONF_RW));
}

/* Nothing was destroyed, and nothing more than these objects uses another. */
static void objects_down(void)
{
	EQ(ibv_dereg_mr(o.mr), 0);
	EQ(ibv_destroy_qp(o.qp), 0);
	EQ(ibv_destroy_srq(o.srq), 0);
	EQ(ibv_destroy_cq(o.cq), 0);
	EQ(ibv_dealloc_pd(o.pd), 0);
	close_device();
}

/* ---- handles ----------------------------------------------------------------- */

static void destroying(void)
{
	objects_up();
	GARBLE(o.mr->handle, EQ(ibv_dereg_mr(o.mr), ENOENT));
	EQ(errno, ENOENT);
	GARBLE(o.qp->handle, EQ(ibv_destroy_qp(o.qp), ENOENT));
	GARBLE(o.srq->handle, EQ(ibv_destroy_srq(o.srq), ENOENT));
	GARBLE(o.cq->handle, EQ(ibv_destroy_cq(o.cq), ENOENT));
	GARBLE(o.pd->handle, EQ(ibv_dealloc_pd(o.pd), ENOENT));
	objects_down();
}

static void destroying_rarer_objects(void)
{
	struct ibv_ah_attr aa;
	struct ibv_cq_init_attr_ex ca = { .cqe = 4, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_cq_ex *cqx;
	struct ibv_ah *ah;
	struct ibv_mw *mw;

	objects_up();
	aa = ah_attr();
	MUST(ah = ibv_create_ah(o.pd, &aa));
	GARBLE(ah->handle, EQ(ibv_destroy_ah(ah), ENOENT));
	EQ(ibv_destroy_ah(ah), 0);
	mw = ibv_alloc_mw(o.pd, IBV_MW_TYPE_1);
	if (mw) {
		GARBLE(mw->handle, EQ(ibv_dealloc_mw(mw), ENOENT));
		EQ(ibv_dealloc_mw(mw), 0);
	}
	cqx = ibv_create_cq_ex(dev.ctx, &ca);
	if (cqx) {
		GARBLE(cqx->handle, EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cqx)), ENOENT));
		EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cqx)), 0);
	}
	objects_down();
}

/* Of one number space: the handle of another kind of object is no handle of this one. */
static void handles_of_other_objects(void)
{
	uint32_t pd, cq, qp;

	objects_up();
	pd = o.pd->handle;
	cq = o.cq->handle;
	qp = o.qp->handle;
	o.qp->handle = cq;
	REFUSED(ibv_destroy_qp(o.qp));
	o.qp->handle = qp;
	o.pd->handle = qp;
	REFUSED(ibv_dealloc_pd(o.pd));
	REFUSED_PTR(ibv_reg_mr(o.pd, o.buf, 1, 0));
	o.pd->handle = cq;
	REFUSED(ibv_dealloc_pd(o.pd));
	o.pd->handle = pd;
	o.cq->handle = pd;
	REFUSED(ibv_destroy_cq(o.cq));
	o.cq->handle = cq;
	objects_down();
}

static void making_on_a_pd(void)
{
	struct ibv_qp_init_attr qa;
	struct ibv_srq_init_attr sa = srq_attr();
	struct ibv_ah_attr aa;

	objects_up();
	qa = qp_attr();
	aa = ah_attr();
	GARBLE(o.pd->handle, REFUSED_PTR(ibv_reg_mr(o.pd, o.buf, 1, 0)));
	GARBLE(o.pd->handle, REFUSED_PTR(ibv_create_qp(o.pd, &qa)));
	GARBLE(o.pd->handle, REFUSED_PTR(ibv_create_srq(o.pd, &sa)));
	GARBLE(o.pd->handle, REFUSED_PTR(ibv_create_ah(o.pd, &aa)));
	GARBLE(o.pd->handle, REFUSED_PTR(ibv_alloc_mw(o.pd, IBV_MW_TYPE_1)));
	objects_down();
}

static void making_by_extended_calls(void)
{
	struct ibv_parent_domain_init_attr pa = { 0 };
	struct ibv_cq_init_attr_ex ca = { .cqe = 4,
					  .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD };
	struct ibv_srq_init_attr_ex sa = { .attr = { .max_wr = 4, .max_sge = 1 },
					   .comp_mask = IBV_SRQ_INIT_ATTR_PD };
	struct ibv_qp_init_attr_ex qa = { .qp_type = IBV_QPT_RC,
					  .cap = CONF_CAP(4, 4, 1),
					  .comp_mask = IBV_QP_INIT_ATTR_PD };

	objects_up();
	pa.pd = sa.pd = qa.pd = o.pd;
	qa.send_cq = qa.recv_cq = o.cq;
	GARBLE(o.pd->handle, REFUSED_PTR(ibv_create_srq_ex(dev.ctx, &sa)));
	GARBLE(o.pd->handle, REFUSED_PTR(ibv_create_qp_ex(dev.ctx, &qa)));
	ca.parent_domain = ibv_alloc_parent_domain(dev.ctx, &pa);
	if (!ca.parent_domain) {
		objects_down();
		SKIP("no parent domains");
	}
	GARBLE(o.pd->handle, REFUSED_PTR(ibv_alloc_parent_domain(dev.ctx, &pa)));
	GARBLE(ca.parent_domain->handle, REFUSED_PTR(ibv_create_cq_ex(dev.ctx, &ca)));
	GARBLE(ca.parent_domain->handle, REFUSED(ibv_dealloc_pd(ca.parent_domain)));
	GARBLE(o.pd->handle, REFUSED_PTR(ibv_alloc_null_mr(o.pd)));
	EQ(ibv_dealloc_pd(ca.parent_domain), 0);
	objects_down();
}

static void qps_of_other_parts(void)
{
	struct ibv_qp_init_attr qa;
	struct ibv_cq *other;

	objects_up();
	MUST(other = ibv_create_cq(dev.ctx, 16, NULL, NULL, 0));
	qa = qp_attr();
	qa.send_cq = other;
	GARBLE(other->handle, REFUSED_PTR(ibv_create_qp(o.pd, &qa)));
	qa = qp_attr();
	qa.recv_cq = other;
	GARBLE(other->handle, REFUSED_PTR(ibv_create_qp(o.pd, &qa)));
	qa = qp_attr();
	GARBLE(o.srq->handle, REFUSED_PTR(ibv_create_qp(o.pd, &qa)));
	EQ(ibv_destroy_cq(other), 0);
	objects_down();
}

static void using(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_qp_init_attr init;
	struct ibv_srq_attr sa = { .srq_limit = 1 };
	union ibv_gid gid = { .raw = { 0xff, 0x0e } };
	struct ibv_sge sge = { 0 };

	objects_up();
	sge = (struct ibv_sge){ (uintptr_t)o.buf, 8, o.mr->lkey };
	GARBLE(o.qp->handle, REFUSED(ibv_modify_qp(o.qp, &attr, IBV_QP_STATE)));
	GARBLE(o.qp->handle, REFUSED(ibv_query_qp(o.qp, &attr, IBV_QP_STATE, &init)));
	GARBLE(o.qp->handle, REFUSED(ibv_attach_mcast(o.qp, &gid, 0)));
	GARBLE(o.qp->handle, REFUSED(ibv_detach_mcast(o.qp, &gid, 0)));
	GARBLE(o.srq->handle, REFUSED(ibv_modify_srq(o.srq, &sa, IBV_SRQ_LIMIT)));
	GARBLE(o.srq->handle, REFUSED(ibv_query_srq(o.srq, &sa)));
	GARBLE(o.cq->handle, REFUSED(ibv_resize_cq(o.cq, 32)));
	EQ(o.cq->cqe < 32, 1);
	if (ibv_advise_mr(o.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1) != EOPNOTSUPP)
		GARBLE(o.pd->handle,
		       REFUSED(ibv_advise_mr(o.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge,
					     1)));
	EQ(ibv_query_qp(o.qp, &attr, IBV_QP_STATE, &init), 0);
	EQ(attr.qp_state, IBV_QPS_RESET);
	EQ(ibv_query_srq(o.srq, &sa), 0);
	EQ(sa.srq_limit, 0);
	objects_down();
}

static void changing_a_region(void)
{
	struct ibv_pd *other;
	uint32_t key;
	int ret;

	objects_up();
	MUST(other = ibv_alloc_pd(dev.ctx));
	if (ibv_rereg_mr(o.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, CONF_RW)) {
		EQ(ibv_dealloc_pd(other), 0);
		objects_down();
		SKIP("no reregistration");
	}
	key = o.mr->lkey;
	errno = 0;
	GARBLE(o.mr->handle,
	       ret = ibv_rereg_mr(o.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0));
	EQ(ret != 0 && is_refusal(errno), 1);
	errno = 0;
	GARBLE(other->handle,
	       ret = ibv_rereg_mr(o.mr, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0));
	EQ(ret != 0 && is_refusal(errno), 1);
	EQ(o.mr->lkey, key);
	EQ(o.mr->pd == o.pd, 1);
	EQ(ibv_dealloc_pd(other), 0);
	objects_down();
}

/* ---- contexts ---------------------------------------------------------------- */

/* Runs a statement while an object says that it is of another context, which has no
 * objects. */
#define ELSEWHERE(object, statement) \
	do { \
		struct ibv_context *was_ = (object)->context; \
		(object)->context = elsewhere; \
		statement; \
		(object)->context = was_; \
	} while (0)

static void other_contexts(void)
{
	struct ibv_context *elsewhere;
	struct ibv_qp_init_attr qa;
	struct ibv_ah_attr aa;
	struct ibv_ah *ah;

	objects_up();
	MUST(elsewhere = ibv_open_device(dev.ctx->device));
	qa = qp_attr();
	aa = ah_attr();
	MUST(ah = ibv_create_ah(o.pd, &aa));
	ELSEWHERE(o.pd, REFUSED(ibv_dealloc_pd(o.pd)));
	ELSEWHERE(o.cq, REFUSED(ibv_destroy_cq(o.cq)));
	ELSEWHERE(o.srq, REFUSED(ibv_destroy_srq(o.srq)));
	ELSEWHERE(o.qp, REFUSED(ibv_destroy_qp(o.qp)));
	ELSEWHERE(o.mr, REFUSED(ibv_dereg_mr(o.mr)));
	ELSEWHERE(ah, REFUSED(ibv_destroy_ah(ah)));
	ELSEWHERE(o.pd, REFUSED_PTR(ibv_reg_mr(o.pd, o.buf, 1, 0)));
	ELSEWHERE(o.pd, REFUSED_PTR(ibv_create_qp(o.pd, &qa)));
	EQ(ibv_destroy_ah(ah), 0);
	EQ(ibv_close_device(elsewhere), 0);
	objects_down();
}

/* ---- XRC ----------------------------------------------------------------------- */

static void xrc(void)
{
	struct ibv_xrcd_init_attr xa = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_srq_init_attr_ex sa = {
		.attr = { .max_wr = 4, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
	};
	struct ibv_srq *srq;

	objects_up();
	sa.xrcd = ibv_open_xrcd(dev.ctx, &xa);
	if (!sa.xrcd) {
		objects_down();
		SKIP("no XRC");
	}
	sa.pd = o.pd;
	sa.cq = o.cq;
	GARBLE(o.pd->handle, REFUSED_PTR(ibv_create_srq_ex(dev.ctx, &sa)));
	GARBLE(o.cq->handle, REFUSED_PTR(ibv_create_srq_ex(dev.ctx, &sa)));
	MUST(srq = ibv_create_srq_ex(dev.ctx, &sa));
	GARBLE(srq->handle, REFUSED(ibv_destroy_srq(srq)));
	EQ(ibv_destroy_srq(srq), 0);
	EQ(ibv_close_xrcd(sa.xrcd), 0);
	objects_down();
}

static const struct conf_case cases[] = {
	CASE(destroying),
	CASE(destroying_rarer_objects),
	CASE(handles_of_other_objects),
	CASE(making_on_a_pd),
	CASE(making_by_extended_calls),
	CASE(qps_of_other_parts),
	CASE(using),
	CASE(changing_a_region),
	CASE(other_contexts),
	CASE(xrc),
};

CONF_MAIN(cases)
