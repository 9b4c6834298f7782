/* SPDX-License-Identifier: BSD-2-Clause */
/* Extended CQs: ibv_start_poll and the ibv_wc_read_* family, one completion at a
 * time over cq_poll(). The lock that one poller holds from start to end is not
 * the CQ's: the application may post meanwhile, and that may complete work. */
#include "base/log.h"
#include "dev/verbs.h"

#include <errno.h>

static struct dev_cq *ex_cq(struct ibv_cq_ex *ex)
{
	return container_of(ex, struct dev_cq, ex);
}

static int ex_next(struct dev_cq *cq)
{
	if (cq_poll(cq, 1, &cq->ex_wc) != 1)
		return ENOENT;
	cq->ex.wr_id = cq->ex_wc.wr_id;
	cq->ex.status = cq->ex_wc.status;
	return 0;
}

static int ex_start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	struct dev_cq *cq = ex_cq(ex);
	int ret;

	if (fork_dead())
		return ENODEV;
	if (attr && attr->comp_mask)
		return EINVAL;
	pthread_mutex_lock(&cq->ex_lock);
	ret = ex_next(cq);
	if (ret)
		pthread_mutex_unlock(&cq->ex_lock);
	return ret;
}

static int ex_next_poll(struct ibv_cq_ex *ex)
{
	return fork_dead() ? ENODEV : ex_next(ex_cq(ex));
}

static void ex_end_poll(struct ibv_cq_ex *ex)
{
	if (!fork_dead())
		pthread_mutex_unlock(&ex_cq(ex)->ex_lock);
}

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

static int ex_check(const struct ibv_cq_init_attr_ex *a)
{
	if (a->wc_flags & ~(uint64_t)IBV_WC_STANDARD_FLAGS)
		return log_refuse(EOPNOTSUPP,
				  "ibv_create_cq_ex: wc_flags 0x%llx are not "
				  "supported",
				  (unsigned long long)a->wc_flags &
					  ~(unsigned long long)IBV_WC_STANDARD_FLAGS);
	if (a->comp_mask & ~(uint32_t)IBV_CQ_INIT_ATTR_MASK_FLAGS)
		return log_refuse(EOPNOTSUPP,
				  "ibv_create_cq_ex: comp_mask 0x%x is not "
				  "supported",
				  a->comp_mask);
	if ((a->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) &&
	    (a->flags & ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED))
		return log_refuse(EOPNOTSUPP,
				  "ibv_create_cq_ex: flags 0x%x are not supported",
				  a->flags);
	if (a->cqe > DEV_MAX_CQE)
		return log_refuse(EINVAL, "ibv_create_cq_ex: %u entries, at most %d",
				  a->cqe, DEV_MAX_CQE);
	return 0;
}

int cq_create_ex(struct dev_ctx *ctx, const struct ibv_cq_init_attr_ex *a,
		 struct dev_cq **out)
{
	struct dev_channel *ch = NULL;
	struct dev_cq *cq = NULL;
	int ret = ex_check(a);

	if (ret)
		return ret;
	if (a->channel)
		ch = container_of(a->channel, struct dev_channel, ch);
	ret = cq_create(ctx, (int)a->cqe, a->cq_context, ch, (int)a->comp_vector, &cq);
	if (ret)
		return ret;
	cq->ex.start_poll = ex_start_poll;
	cq->ex.next_poll = ex_next_poll;
	cq->ex.end_poll = ex_end_poll;
	cq->ex.read_opcode = ex_opcode;
	cq->ex.read_vendor_err = ex_vendor_err;
	cq->ex.read_byte_len = ex_byte_len;
	cq->ex.read_imm_data = ex_imm_data;
	cq->ex.read_qp_num = ex_qp_num;
	cq->ex.read_src_qp = ex_src_qp;
	cq->ex.read_wc_flags = ex_wc_flags;
	cq->ex.read_slid = ex_slid;
	cq->ex.read_sl = ex_sl;
	cq->ex.read_dlid_path_bits = ex_dlid_path_bits;
	*out = cq;
	return 0;
}
