/* SPDX-License-Identifier: BSD-2-Clause */
/* ibv_start_poll() and the ibv_wc_read_*() verbs: verbs.h calls them through pointers in
 * an extended CQ. */
#include "dev/dev.h"
#include "verbs/edge.h"

static struct dev_cq *ex_cq(struct ibv_cq_ex *cq)
{
	return container_of(cq, struct dev_cq, ex);
}

static int ex_start_poll(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr)
{
	const struct dev_ops *ops = EDGE_OPS(&ex_cq(cq)->cq);

	return ops ? -ops->start_poll(ex_cq(cq), attr) : ENODEV;
}

static int ex_next_poll(struct ibv_cq_ex *cq)
{
	const struct dev_ops *ops = EDGE_OPS(&ex_cq(cq)->cq);

	return ops ? -ops->next_poll(ex_cq(cq)) : ENODEV;
}

static void ex_end_poll(struct ibv_cq_ex *cq)
{
	const struct dev_ops *ops = EDGE_OPS(&ex_cq(cq)->cq);

	if (ops)
		ops->end_poll(ex_cq(cq));
}

/* Fields that the CQ was not made with. A NIC's provider has NULL there, and the program
 * crashes; here there is a line in the log. */
static void absent(void)
{
	static atomic_flag logged = ATOMIC_FLAG_INIT;

	if (!atomic_flag_test_and_set(&logged))
		log_error("ibv_wc_read_*: the field is not in the wc_flags that the CQ "
			  "was created with");
}

static uint64_t absent_u64(struct ibv_cq_ex *cq)
{
	(void)cq;
	absent();
	return 0;
}

static uint32_t absent_u32(struct ibv_cq_ex *cq)
{
	(void)cq;
	absent();
	return 0;
}

static uint16_t absent_u16(struct ibv_cq_ex *cq)
{
	(void)cq;
	absent();
	return 0;
}

static uint8_t absent_u8(struct ibv_cq_ex *cq)
{
	(void)cq;
	absent();
	return 0;
}

static void absent_tm_info(struct ibv_cq_ex *cq, struct ibv_wc_tm_info *info)
{
	(void)cq;
	absent();
	*info = (struct ibv_wc_tm_info){ 0 };
}

void cq_ex_fill(struct ibv_cq_ex *cq, uint64_t wc_flags, const struct dev_read_ops *read)
{
#define FIELD(flag, name, none) \
	cq->read_##name = wc_flags & IBV_WC_EX_WITH_##flag ? read->read_##name : none
	cq->start_poll = ex_start_poll;
	cq->next_poll = ex_next_poll;
	cq->end_poll = ex_end_poll;
	cq->read_opcode = read->read_opcode;
	cq->read_vendor_err = read->read_vendor_err;
	cq->read_wc_flags = read->read_wc_flags;
	FIELD(BYTE_LEN, byte_len, absent_u32);
	FIELD(IMM, imm_data, absent_u32);
	FIELD(QP_NUM, qp_num, absent_u32);
	FIELD(SRC_QP, src_qp, absent_u32);
	FIELD(SLID, slid, absent_u32);
	FIELD(SL, sl, absent_u8);
	FIELD(DLID_PATH_BITS, dlid_path_bits, absent_u8);
	FIELD(COMPLETION_TIMESTAMP, completion_ts, absent_u64);
	FIELD(COMPLETION_TIMESTAMP_WALLCLOCK, completion_wallclock_ns, absent_u64);
	cq->read_cvlan = absent_u16;
	cq->read_flow_tag = absent_u32;
	cq->read_tm_info = absent_tm_info;
#undef FIELD
}
