/* SPDX-License-Identifier: BSD-2-Clause */
#include "dev/wqe.h"
#include "base/log.h"
#include "dev/verbs.h"

#include <errno.h>
#include <string.h>

/* InfiniBand 1.5, table 38 (operations of a service), as the manual of ibv_wr_*()
 * has it. */
#define RC (1u << IBV_QPT_RC | 1u << IBV_QPT_XRC_SEND)
#define RC_UC (RC | 1u << IBV_QPT_UC)
#define ALL (RC_UC | 1u << IBV_QPT_UD)
#define DATA (WQE_HAS_DATA | WQE_HAS_INLINE)

const struct wqe_rule wqe_rules[WQE_RULES] = {
	[IBV_WR_RDMA_WRITE] = { RC_UC, DATA | WQE_HAS_REMOTE, IBV_QP_EX_WITH_RDMA_WRITE },
	[IBV_WR_RDMA_WRITE_WITH_IMM] = { RC_UC, DATA | WQE_HAS_REMOTE,
					 IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM },
	[IBV_WR_SEND] = { ALL, DATA, IBV_QP_EX_WITH_SEND },
	[IBV_WR_SEND_WITH_IMM] = { ALL, DATA, IBV_QP_EX_WITH_SEND_WITH_IMM },
	[IBV_WR_RDMA_READ] = { RC, WQE_HAS_DATA | WQE_HAS_REMOTE | WQE_HAS_RESPONSE,
			       IBV_QP_EX_WITH_RDMA_READ },
	[IBV_WR_ATOMIC_CMP_AND_SWP] = { RC,
					WQE_HAS_DATA | WQE_HAS_ATOMIC | WQE_HAS_RESPONSE,
					IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP },
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = { RC,
					  WQE_HAS_DATA | WQE_HAS_ATOMIC |
						  WQE_HAS_RESPONSE,
					  IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD },
	[IBV_WR_ATOMIC_WRITE] = { RC,
				  WQE_HAS_DATA | WQE_HAS_REMOTE | WQE_HAS_RESPONSE |
					  WQE_HAS_WORD,
				  IBV_QP_EX_WITH_ATOMIC_WRITE },
	[IBV_WR_LOCAL_INV] = { RC_UC, 0, IBV_QP_EX_WITH_LOCAL_INV },
	[IBV_WR_BIND_MW] = { RC_UC, WQE_HAS_WINDOW, IBV_QP_EX_WITH_BIND_MW },
	[IBV_WR_SEND_WITH_INV] = { RC_UC, DATA, IBV_QP_EX_WITH_SEND_WITH_INV },
};


uint64_t wqe_send_ops(enum ibv_qp_type type)
{
	uint64_t ops = 0;

	for (unsigned i = 0; i < WQE_RULES; i++)
		if (wqe_rule(type, i))
			ops |= wqe_rules[i].send_op;
	return ops;
}

int wqe_room(const struct dev_qp *qp, uint32_t idx)
{
	const struct dev_sq *sq = &qp->sq;

	if (idx - atomic_load_explicit(&sq->free, memory_order_acquire) < sq->max_wr)
		return 0;
	return log_refuse(ENOMEM,
			  "posting to QP 0x%x: the send queue of %u is full (unsignalled "
			  "work counts until a later signalled completion is polled)",
			  qp->qp.qp_num, sq->max_wr);
}

int wqe_begin(const struct dev_qp *qp, struct wqe *w, uint64_t wr_id, unsigned opcode,
	      unsigned flags)
{
	if (!wqe_rule(qp->qp.qp_type, opcode))
		return log_refuse(EINVAL,
				  "posting to QP 0x%x: opcode %u (enum ibv_wr_opcode) is "
				  "not one of a QP of type %s",
				  qp->qp.qp_num, opcode, qp_type_str(qp->qp.qp_type));
	memset(w, 0, sizeof(*w));
	w->wr_id = wr_id;
	w->send_flags = flags | (qp->sq.sig_all ? IBV_SEND_SIGNALED : 0);
	w->opcode = (uint8_t)opcode;
	return 0;
}

void wqe_set_word(struct wqe *w, const void *word)
{
	memcpy(&w->swap, word, sizeof(w->swap));
	w->length = sizeof(w->swap);
	w->is_inline = 1;
}

static int data_check(const struct dev_qp *qp, const struct wqe *w, size_t n,
		      const void *list)
{
	if (!(wqe_rule(qp->qp.qp_type, w->opcode)->has & WQE_HAS_DATA))
		return log_refuse(EINVAL, "posting to QP 0x%x: opcode %d has no data",
				  qp->qp.qp_num, w->opcode);
	if (n && !list)
		return log_refuse(EINVAL, "posting to QP 0x%x: no list for %zu buffers",
				  qp->qp.qp_num, n);
	return 0;
}

int wqe_set_sges(const struct dev_qp *qp, struct wqe *w, size_t n,
		 const struct ibv_sge *sges)
{
	uint64_t length = 0;
	int ret = data_check(qp, w, n, sges);

	if (ret)
		return ret;
	if (n > qp->sq.max_sge)
		return log_refuse(EINVAL, "posting to QP 0x%x: %zu SGEs, the QP has %u",
				  qp->qp.qp_num, n, qp->sq.max_sge);
	for (size_t i = 0; i < n; i++) {
		w->sge[i] = sges[i];
		length += sges[i].length;
	}
	if (length > DEV_MAX_MSG)
		return log_refuse(EINVAL,
				  "posting to QP 0x%x: message of %llu bytes, 2^31 are "
				  "allowed",
				  qp->qp.qp_num, (unsigned long long)length);
	w->num_sge = (uint8_t)n;
	w->length = (uint32_t)length;
	return 0;
}

/* Appends len bytes. */
static int inline_add(const struct dev_qp *qp, struct wqe *w, const void *from,
		      size_t len)
{
	if (len > qp->sq.max_inline - w->length)
		return log_refuse(EINVAL,
				  "posting to QP 0x%x: more than the %u inline bytes that "
				  "the QP takes",
				  qp->qp.qp_num, qp->sq.max_inline);
	if (len)
		memcpy(wqe_inline(w) + w->length, from, len);
	w->length += (uint32_t)len;
	return 0;
}

static int inline_begin(const struct dev_qp *qp, struct wqe *w, size_t n,
			const void *list)
{
	if (!(wqe_rule(qp->qp.qp_type, w->opcode)->has & WQE_HAS_INLINE))
		return log_refuse(EINVAL,
				  "posting to QP 0x%x: opcode %d cannot be inline",
				  qp->qp.qp_num, w->opcode);
	w->is_inline = 1;
	return data_check(qp, w, n, list);
}

int wqe_set_inline_sges(const struct dev_qp *qp, struct wqe *w, size_t n,
			const struct ibv_sge *sges)
{
	int ret = inline_begin(qp, w, n, sges);

	if (!ret && n > qp->sq.max_sge)
		ret = log_refuse(EINVAL, "posting to QP 0x%x: %zu SGEs, the QP has %u",
				 qp->qp.qp_num, n, qp->sq.max_sge);
	for (size_t i = 0; !ret && i < n; i++)
		ret = inline_add(qp, w, (void *)(uintptr_t)sges[i].addr, sges[i].length);
	return ret;
}

int wqe_set_inline(const struct dev_qp *qp, struct wqe *w, size_t n,
		   const struct ibv_data_buf *bufs)
{
	int ret = inline_begin(qp, w, n, bufs);

	for (size_t i = 0; !ret && i < n; i++)
		ret = inline_add(qp, w, bufs[i].addr, bufs[i].length);
	return ret;
}

int wqe_set_address(const struct dev_qp *qp, struct wqe *w, struct ibv_ah *ah,
		    uint32_t remote_qpn, uint32_t remote_qkey)
{
	if (!ah || !ah_intact(ah) || ah->context != qp->object.context)
		return log_refuse(EINVAL, "posting to QP 0x%x: %s", qp->qp.qp_num,
				  ah ? "the address handle is none of its context" :
				       "no address handle");
	wqe_release(qp, w);
	w->av = to_ah(ah)->av;
	av_get(w->av);
	w->remote_qpn = remote_qpn & 0xffffff;
	w->remote_qkey = remote_qkey;
	return 0;
}

/* InfiniBand 10.2.5: with the high bit a request asks for the Q_Key of its QP, which may
 * be one that only the privileged can set. */
static int address_check_locked(struct dev_qp *qp, struct wqe *w) REQUIRES(qp->lock);

static int address_check_locked(struct dev_qp *qp, struct wqe *w)
{
	if (!w->av)
		return log_refuse(EINVAL, "posting to QP 0x%x: a datagram without address",
				  qp->qp.qp_num);
	if (w->remote_qkey >> 31)
		w->remote_qkey = qp->attr.qkey;
	return 0;
}

int wqe_check_locked(struct dev_qp *qp, struct wqe *w)
{
	unsigned has = wqe_rule(qp->qp.qp_type, w->opcode)->has;

	lock_assert_held(&qp->lock);
	if (qp->qp.qp_type == IBV_QPT_UD)
		return address_check_locked(qp, w);
	if ((has & WQE_HAS_WORD) && w->length != 8)
		return log_refuse(EINVAL,
				  "posting to QP 0x%x: an atomic write of %u bytes, not 8",
				  qp->qp.qp_num, w->length);
	if ((has & WQE_HAS_RESPONSE) && !qp->attr.max_rd_atomic)
		return log_refuse(EINVAL,
				  "posting to QP 0x%x: a read or atomic, but "
				  "max_rd_atomic is 0",
				  qp->qp.qp_num);
	return 0;
}
