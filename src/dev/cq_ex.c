/* SPDX-License-Identifier: BSD-2-Clause */
/* Extended CQs: ibv_start_poll and the ibv_wc_read_* family, one completion at a
 * time over cq_poll(). The lock that one poller holds from start to end is not
 * the CQ's: the application may post meanwhile, and that may complete work. */
#include "base/log.h"
#include "dev/poll.h"
#include "dev/verbs.h"

#include <errno.h>
#include <time.h>

static struct dev_cq *ex_cq(struct ibv_cq_ex *ex)
{
	return container_of(ex, struct dev_cq, ex);
}

uint64_t cq_clock(void)
{
	struct timespec ts;

	clock_gettime(DEV_CLOCK, &ts);
	return (uint64_t)ts.tv_sec * SEC + (uint64_t)ts.tv_nsec;
}

/* ---- the iterator ------------------------------------------------------------- */

static int ex_next(struct dev_cq *cq)
{
	if (!cq_next(cq, &cq->ex_wc, &cq->ex_stamp))
		return -ENOENT;
	cq->ex.wr_id = cq->ex_wc.wr_id;
	cq->ex.status = cq->ex_wc.status;
	return 0;
}

static void ex_unlock(struct dev_cq *cq)
{
	if (!cq->single)
		pthread_mutex_unlock(&cq->ex_lock);
}

int cq_start_poll(struct dev_cq *cq, const struct ibv_poll_cq_attr *attr)
{
	int ret;

	if (attr && attr->comp_mask)
		return -EINVAL;
	if (!cq->single)
		pthread_mutex_lock(&cq->ex_lock);
	if (cq_looks_empty(cq))
		poll_run(cq);
	ret = ex_next(cq);
	if (ret)
		ex_unlock(cq);
	return ret;
}

/* Reads from the ring alone, without progress: an application that reads a batch does not
 * want to wait for system calls. What comes into the ring meanwhile is part of the
 * batch, as on a NIC: -ENOENT says that the CQ is empty. */
int cq_next_poll(struct dev_cq *cq)
{
	return ex_next(cq);
}

void cq_end_poll(struct dev_cq *cq)
{
	ex_unlock(cq);
}

/* ---- the fields --------------------------------------------------------------- */

static enum ibv_wc_opcode ex_opcode(struct ibv_cq_ex *ex)
{
	return ex_cq(ex)->ex_wc.opcode;
}

static uint32_t ex_vendor_err(struct ibv_cq_ex *ex)
{
	return ex_cq(ex)->ex_wc.vendor_err;
}

static uint32_t ex_byte_len(struct ibv_cq_ex *ex)
{
	return ex_cq(ex)->ex_wc.byte_len;
}

static __be32 ex_imm_data(struct ibv_cq_ex *ex)
{
	return ex_cq(ex)->ex_wc.imm_data;
}

static uint32_t ex_qp_num(struct ibv_cq_ex *ex)
{
	return ex_cq(ex)->ex_wc.qp_num;
}

static uint32_t ex_src_qp(struct ibv_cq_ex *ex)
{
	return ex_cq(ex)->ex_wc.src_qp;
}

static unsigned int ex_wc_flags(struct ibv_cq_ex *ex)
{
	return ex_cq(ex)->ex_wc.wc_flags;
}

static uint32_t ex_slid(struct ibv_cq_ex *ex)
{
	return ex_cq(ex)->ex_wc.slid;
}

static uint8_t ex_sl(struct ibv_cq_ex *ex)
{
	return ex_cq(ex)->ex_wc.sl;
}

static uint8_t ex_dlid_path_bits(struct ibv_cq_ex *ex)
{
	return ex_cq(ex)->ex_wc.dlid_path_bits;
}

static uint64_t ex_completion_ts(struct ibv_cq_ex *ex)
{
	return ex_cq(ex)->ex_stamp;
}

/* By the difference of the two clocks now, as drivers of NICs do it. */
static uint64_t ex_completion_wallclock_ns(struct ibv_cq_ex *ex)
{
	struct timespec now;
	uint64_t clock = cq_clock();

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * SEC + (uint64_t)now.tv_nsec -
	       (clock - ex_cq(ex)->ex_stamp);
}

const struct dev_read_ops cq_read_ops = {
	.read_opcode = ex_opcode,
	.read_vendor_err = ex_vendor_err,
	.read_byte_len = ex_byte_len,
	.read_imm_data = ex_imm_data,
	.read_qp_num = ex_qp_num,
	.read_src_qp = ex_src_qp,
	.read_wc_flags = ex_wc_flags,
	.read_slid = ex_slid,
	.read_sl = ex_sl,
	.read_dlid_path_bits = ex_dlid_path_bits,
	.read_completion_ts = ex_completion_ts,
	.read_completion_wallclock_ns = ex_completion_wallclock_ns,
};

/* ---- creation ------------------------------------------------------------------- */

#define STAMPS \
	((uint64_t)IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | \
	 (uint64_t)IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
#define KNOWN_WC ((uint64_t)IBV_WC_STANDARD_FLAGS | STAMPS)
#define KNOWN_FLAGS \
	((uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED | \
	 (uint32_t)IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN)

static int ex_check(const struct dev_ctx *ctx, const struct ibv_cq_init_attr_ex *a)
{
	const uint32_t known = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;

	if (a->wc_flags & ~KNOWN_WC)
		return log_refuse(EOPNOTSUPP,
				  "ibv_create_cq_ex: wc_flags 0x%llx are not supported",
				  (unsigned long long)(a->wc_flags & ~KNOWN_WC));
	if (a->comp_mask & ~known)
		return log_refuse(EOPNOTSUPP,
				  "ibv_create_cq_ex: comp_mask 0x%x is not supported",
				  a->comp_mask & ~known);
	if ((a->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) && (a->flags & ~KNOWN_FLAGS))
		return log_refuse(EOPNOTSUPP,
				  "ibv_create_cq_ex: flags 0x%x are not supported",
				  a->flags & ~KNOWN_FLAGS);
	if (a->cqe > DEV_MAX_CQE)
		return log_refuse(EINVAL, "ibv_create_cq_ex: %u entries, at most %d",
				  a->cqe, DEV_MAX_CQE);
	if ((a->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) &&
	    (!a->parent_domain || !pd_intact(a->parent_domain) ||
	     a->parent_domain->context != &ctx->v.context ||
	     !to_pd(a->parent_domain)->of))
		return log_refuse(EINVAL, "ibv_create_cq_ex: the domain given is no "
					  "parent domain of this context");
	return 0;
}

int cq_create_ex(struct dev_ctx *ctx, const struct ibv_cq_init_attr_ex *a,
		 struct dev_cq **out)
{
	uint32_t flags = a->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? a->flags : 0;
	struct dev_channel *ch = NULL;
	struct dev_cq *cq = NULL;
	int ret = ex_check(ctx, a);

	if (ret)
		return ret;
	if (a->channel)
		ch = container_of(a->channel, struct dev_channel, ch);
	ret = cq_create(ctx, (int)a->cqe, a->cq_context, ch, (int)a->comp_vector, &cq);
	if (ret)
		return ret;
	cq->single = flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
	cq->ignore_overrun = flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
	cq->stamped = a->wc_flags & STAMPS;
	if (a->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) {
		cq->parent = to_pd(a->parent_domain);
		atomic_fetch_add(&cq->parent->refs, 1);
	}
	*out = cq;
	return 0;
}

int cq_modify(struct dev_cq *cq, const struct ibv_modify_cq_attr *a)
{
	if (a->attr_mask & ~(uint32_t)IBV_CQ_ATTR_MODERATE)
		return log_refuse(EOPNOTSUPP,
				  "ibv_modify_cq: attr_mask 0x%x is not supported",
				  a->attr_mask);
	if (a->attr_mask & IBV_CQ_ATTR_MODERATE)
		return moderate_set(cq, a->moderate.cq_count, a->moderate.cq_period);
	return 0;
}
