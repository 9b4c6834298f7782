/* SPDX-License-Identifier: BSD-2-Clause */
/* ibv_create_qp_ex and the ibv_wr_*() builders.
 *
 * A builder fills the entry behind those that are posted. It is not used until
 * ibv_wr_complete() moves the tail over all new entries at once. The lock that is held
 * from start to complete is not qp->lock: the application may poll meanwhile. It excludes
 * builders of other threads and, on these QPs, ibv_post_send. The first error is
 * remembered; ibv_wr_complete() returns it and posts nothing. */
#include "base/log.h"
#include "dev/transport.h"
#include "dev/verbs.h"
#include "dev/wqe.h"
#include "dev/xrc.h"

#include <errno.h>

static struct dev_qp *to_dev(struct ibv_qp_ex *ex)
{
	return container_of(ex, struct dev_qp, ex);
}

static void note(struct dev_qp *qp, int ret)
{
	if (ret && !qp->build.err)
		qp->build.err = -ret;
}

/* ---- start, complete, abort ------------------------------------------------- */

bool qp_ex_enter(struct dev_qp *qp)
{
	return !pthread_mutex_lock(&qp->build.lock);
}

void qp_ex_leave(struct dev_qp *qp)
{
	pthread_mutex_unlock(&qp->build.lock);
}

void qp_wr_start(struct dev_qp *qp)
{
	struct qp_build *b = &qp->build;

	if (!qp_ex_enter(qp)) {
		note(qp, log_refuse(EINVAL, "ibv_wr_start: QP 0x%x: again, without "
					    "ibv_wr_complete or ibv_wr_abort before",
				    qp->qp.qp_num));
		return;
	}
	b->open = true;
	b->has_data = false;
	b->err = 0;
	b->n = 0;
	lock_get(&qp->lock);
	b->first = qp->sq.tail;
	lock_put(&qp->lock);
}

/* What was built is not posted. */
static void drop_built(struct dev_qp *qp)
{
	struct qp_build *b = &qp->build;

	for (uint32_t i = 0; i < b->n; i++)
		wqe_release(qp, sq_at(&qp->sq, b->first + i));
	b->n = 0;
}

static int post_built_locked(struct dev_qp *qp)
{
	struct qp_build *b = &qp->build;
	int ret;

	lock_assert_held(&qp->lock);
	ret = b->err ? -b->err : post_state_locked(qp);
	if (!ret && qp->sq.tail != b->first)
		ret = log_refuse(EINVAL,
				 "ibv_wr_complete: QP 0x%x was reset since ibv_wr_start",
				 qp->qp.qp_num);
	for (uint32_t i = 0; !ret && i < b->n; i++)
		ret = wqe_check_locked(qp, sq_at(&qp->sq, b->first + i));
	if (!ret)
		qp->sq.tail += b->n;
	return ret;
}

int qp_wr_complete(struct dev_qp *qp)
{
	const struct dev_transport *tr = NULL;
	int ret;

	if (!qp->build.open)
		return log_refuse(EINVAL,
				  "ibv_wr_complete: QP 0x%x: no ibv_wr_start before",
				  qp->qp.qp_num);
	lock_get(&qp->lock);
	ret = post_built_locked(qp);
	if (!ret)
		tr = post_submit_locked(qp);
	lock_put(&qp->lock);
	if (ret)
		drop_built(qp);
	qp->build.open = false;
	qp_ex_leave(qp);
	if (tr)
		tr->kick(qp);
	return ret;
}

void qp_wr_abort(struct dev_qp *qp)
{
	if (!qp->build.open)
		return;
	drop_built(qp);
	qp->build.open = false;
	qp_ex_leave(qp);
}

/* ---- requests --------------------------------------------------------------- */

static int begin(struct dev_qp *qp, unsigned opcode, struct wqe *w)
{
	const struct wqe_rule *rule = wqe_rule(qp->qp.qp_type, opcode);
	int ret = wqe_room(qp, qp->build.first + qp->build.n);

	if (!ret)
		ret = wqe_begin(qp, w, qp->ex.wr_id, opcode,
				qp->ex.wr_flags & ~(unsigned)IBV_SEND_INLINE);
	if (!ret && !(rule->send_op & qp->send_ops))
		ret = log_refuse(EINVAL,
				 "ibv_wr_*: QP 0x%x was not created with the operation "
				 "0x%x in its send_ops_flags 0x%llx",
				 qp->qp.qp_num, rule->send_op,
				 (unsigned long long)qp->send_ops);
	return ret;
}

/* The entry of a new request, or NULL after an error. */
static struct wqe *build(struct ibv_qp_ex *ex, unsigned opcode)
{
	struct dev_qp *qp = to_dev(ex);
	struct qp_build *b = &qp->build;
	struct wqe *w;
	int ret;

	if (!b->open || b->err)
		return NULL;
	w = sq_at(&qp->sq, b->first + b->n);
	ret = begin(qp, opcode, w);
	note(qp, ret);
	if (ret)
		return NULL;
	b->n++;
	b->has_data = false;
	return w;
}

static void wr_send(struct ibv_qp_ex *ex)
{
	build(ex, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm)
{
	struct wqe *w = build(ex, IBV_WR_SEND_WITH_IMM);

	if (w)
		w->imm_or_rkey = imm;
}

static void wr_send_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	struct wqe *w = build(ex, IBV_WR_SEND_WITH_INV);

	if (w)
		w->imm_or_rkey = rkey;
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t raddr)
{
	struct wqe *w = build(ex, IBV_WR_RDMA_WRITE);

	if (w)
		wqe_set_remote(w, rkey, raddr);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t raddr,
			      __be32 imm)
{
	struct wqe *w = build(ex, IBV_WR_RDMA_WRITE_WITH_IMM);

	if (!w)
		return;
	wqe_set_remote(w, rkey, raddr);
	w->imm_or_rkey = imm;
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t raddr)
{
	struct wqe *w = build(ex, IBV_WR_RDMA_READ);

	if (w)
		wqe_set_remote(w, rkey, raddr);
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t raddr,
			      uint64_t compare, uint64_t swap)
{
	struct wqe *w = build(ex, IBV_WR_ATOMIC_CMP_AND_SWP);

	if (w)
		wqe_set_atomic(w, rkey, raddr, compare, swap);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t raddr,
				uint64_t add)
{
	struct wqe *w = build(ex, IBV_WR_ATOMIC_FETCH_AND_ADD);

	if (w)
		wqe_set_atomic(w, rkey, raddr, add, 0);
}

/* The bytes are part of the request: no data setter follows. */
static void wr_atomic_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t raddr,
			    const void *word)
{
	struct wqe *w = build(ex, IBV_WR_ATOMIC_WRITE);

	if (!w)
		return;
	wqe_set_remote(w, rkey, raddr);
	wqe_set_word(w, word);
	to_dev(ex)->build.has_data = true;
}

static void wr_local_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	struct wqe *w = build(ex, IBV_WR_LOCAL_INV);

	if (w)
		w->imm_or_rkey = rkey;
}

static void wr_bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey,
		       const struct ibv_mw_bind_info *info)
{
	struct wqe *w = build(ex, IBV_WR_BIND_MW);

	if (w)
		note(to_dev(ex), mw_wqe_fill(w, IBV_MW_TYPE_2, mw, rkey, info));
}

/* ---- requests that no QP has: build() refuses them --------------------------- */

static void wr_send_tso(struct ibv_qp_ex *ex, void *hdr, uint16_t hdr_sz, uint16_t mss)
{
	(void)hdr;
	(void)hdr_sz;
	(void)mss;
	build(ex, IBV_WR_TSO);
}

/* ---- setters ---------------------------------------------------------------- */

/* The request that a setter is for, or NULL. */
static struct wqe *current(struct dev_qp *qp)
{
	struct qp_build *b = &qp->build;

	if (!b->open || b->err)
		return NULL;
	if (b->n)
		return sq_at(&qp->sq, b->first + b->n - 1);
	note(qp, log_refuse(EINVAL, "ibv_wr_set_*: QP 0x%x: no request was begun",
			    qp->qp.qp_num));
	return NULL;
}

static struct wqe *current_data(struct dev_qp *qp)
{
	struct wqe *w = current(qp);

	if (w && qp->build.has_data) {
		note(qp, log_refuse(EINVAL,
				    "ibv_wr_set_*: QP 0x%x: the request has its data "
				    "already",
				    qp->qp.qp_num));
		return NULL;
	}
	qp->build.has_data = true;
	return w;
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_sge *sges)
{
	struct dev_qp *qp = to_dev(ex);
	struct wqe *w = current_data(qp);

	if (w)
		note(qp, wqe_set_sges(qp, w, n, sges));
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr,
		       uint32_t length)
{
	struct ibv_sge sge = { .addr = addr, .length = length, .lkey = lkey };

	wr_set_sge_list(ex, 1, &sge);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t n,
				    const struct ibv_data_buf *bufs)
{
	struct dev_qp *qp = to_dev(ex);
	struct wqe *w = current_data(qp);

	if (w)
		note(qp, wqe_set_inline(qp, w, n, bufs));
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	struct ibv_data_buf buf = { .addr = addr, .length = length };

	wr_set_inline_data_list(ex, 1, &buf);
}

static void wr_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t remote_qpn,
			   uint32_t remote_qkey)
{
	struct dev_qp *qp = to_dev(ex);
	struct wqe *w = current(qp);

	if (!w)
		return;
	if (qp->qp.qp_type == IBV_QPT_UD)
		note(qp, wqe_set_address(qp, w, ah, remote_qpn, remote_qkey));
	else
		note(qp, log_refuse(EINVAL,
				    "ibv_wr_set_ud_addr: QP 0x%x is connected, not UD",
				    qp->qp.qp_num));
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *ex, uint32_t srqn)
{
	struct dev_qp *qp = to_dev(ex);
	struct wqe *w = current(qp);

	if (!w)
		return;
	w->srqn = srqn & 0xffffff;
	if (qp->qp.qp_type != IBV_QPT_XRC_SEND)
		note(qp, log_refuse(EINVAL,
				    "ibv_wr_set_xrc_srqn: QP 0x%x is no XRC send QP",
				    qp->qp.qp_num));
}

const struct dev_build_ops qp_build_ops = {
	.wr_send = wr_send,
	.wr_send_imm = wr_send_imm,
	.wr_send_inv = wr_send_inv,
	.wr_send_tso = wr_send_tso,
	.wr_rdma_write = wr_rdma_write,
	.wr_rdma_write_imm = wr_rdma_write_imm,
	.wr_rdma_read = wr_rdma_read,
	.wr_atomic_cmp_swp = wr_atomic_cmp_swp,
	.wr_atomic_fetch_add = wr_atomic_fetch_add,
	.wr_atomic_write = wr_atomic_write,
	.wr_bind_mw = wr_bind_mw,
	.wr_local_inv = wr_local_inv,
	.wr_set_sge = wr_set_sge,
	.wr_set_sge_list = wr_set_sge_list,
	.wr_set_inline_data = wr_set_inline_data,
	.wr_set_inline_data_list = wr_set_inline_data_list,
	.wr_set_ud_addr = wr_set_ud_addr,
	.wr_set_xrc_srqn = wr_set_xrc_srqn,
};

/* ---- creation --------------------------------------------------------------- */

static void qp_ex_init(struct dev_qp *qp, uint64_t send_ops)
{
	pthread_mutexattr_t attr;

	qp->is_ex = true;
	qp->send_ops = send_ops;
	/* A thread that locks it twice gets an error and does not hang. */
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK);
	pthread_mutex_init(&qp->build.lock, &attr);
	pthread_mutexattr_destroy(&attr);
}

void qp_ex_fini(struct dev_qp *qp)
{
	qp_wr_abort(qp);
	pthread_mutex_destroy(&qp->build.lock);
}

/* Every QP has a PD; an XRC receive QP has an XRC domain instead. */
static int owner_check(const struct dev_ctx *ctx, const struct ibv_qp_init_attr_ex *a)
{
	if (a->qp_type == IBV_QPT_XRC_RECV) {
		if (!(a->comp_mask & IBV_QP_INIT_ATTR_XRCD) || !a->xrcd ||
		    !xrcd_intact(a->xrcd) || a->xrcd->context != &ctx->v.context)
			return log_refuse(EINVAL, "ibv_create_qp_ex: an XRC receive QP, "
						  "and no XRC domain of this context");
		return 0;
	}
	if (!(a->comp_mask & IBV_QP_INIT_ATTR_PD) || !a->pd || !pd_intact(a->pd) ||
	    a->pd->context != &ctx->v.context)
		return log_refuse(EINVAL, "ibv_create_qp_ex: no PD of this context");
	return 0;
}

static int ex_check(const struct dev_ctx *ctx, const struct ibv_qp_init_attr_ex *a)
{
	const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD |
			       IBV_QP_INIT_ATTR_CREATE_FLAGS |
			       IBV_QP_INIT_ATTR_MAX_TSO_HEADER |
			       IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;

	if (a->comp_mask & ~known)
		return log_refuse(EOPNOTSUPP,
				  "ibv_create_qp_ex: comp_mask 0x%x is not supported",
				  a->comp_mask & ~known);
	if ((a->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && a->create_flags)
		return log_refuse(EOPNOTSUPP,
				  "ibv_create_qp_ex: create_flags 0x%x are not supported",
				  a->create_flags);
	if ((a->comp_mask & IBV_QP_INIT_ATTR_MAX_TSO_HEADER) && a->max_tso_header)
		return log_refuse(EOPNOTSUPP,
				  "ibv_create_qp_ex: there is no segmentation offload");
	return owner_check(ctx, a);
}

int qp_create_ex(struct dev_ctx *ctx, struct ibv_qp_init_attr_ex *attr,
		 struct dev_qp **out)
{
	bool with_ops = attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	int ret = ex_check(ctx, attr);

	if (!ret && with_ops && (attr->send_ops_flags & ~wqe_send_ops(attr->qp_type)))
		ret = log_refuse(EOPNOTSUPP,
				 "ibv_create_qp_ex: send_ops_flags 0x%llx are not "
				 "operations of a QP of type %d",
				 (unsigned long long)(attr->send_ops_flags &
						      ~wqe_send_ops(attr->qp_type)),
				 (int)attr->qp_type);
	/* The old struct is the beginning of the new one. */
	if (!ret && attr->qp_type == IBV_QPT_XRC_RECV)
		ret = qp_create_xrc_recv(attr, out);
	else if (!ret)
		ret = qp_create(to_pd(attr->pd), (struct ibv_qp_init_attr *)attr, out);
	if (!ret && with_ops)
		qp_ex_init(*out, attr->send_ops_flags);
	return ret;
}
