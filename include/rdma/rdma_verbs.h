/* SPDX-License-Identifier: BSD-2-Clause */
/* Verbs by rdma_cm_id: short forms that take PD, QP, SRQ and CQs from the id.
 * They return 0 or -1 with errno set, but for what is said otherwise. */
#ifndef RDMA_VERBS_H
#define RDMA_VERBS_H

#include <assert.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <errno.h>

#ifdef __cplusplus
extern "C" {
#endif

/* From the verbs' convention (0 or an errno value) to the CM's. */
static inline int rdma_seterrno(int ret)
{
	if (!ret)
		return 0;
	errno = ret;
	return -1;
}

/* ---- shared receive queues ------------------------------------------------ */

int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd,
		    struct ibv_srq_init_attr *attr);
int rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr);
void rdma_destroy_srq(struct rdma_cm_id *id);

/* ---- memory --------------------------------------------------------------- */

/* For sends and receives. */
static inline struct ibv_mr *rdma_reg_msgs(struct rdma_cm_id *id, void *addr,
					   size_t length)
{
	return ibv_reg_mr(id->pd, addr, length, IBV_ACCESS_LOCAL_WRITE);
}

/* For reads by the peer. */
static inline struct ibv_mr *rdma_reg_read(struct rdma_cm_id *id, void *addr,
					   size_t length)
{
	return ibv_reg_mr(id->pd, addr, length,
			  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
}

/* For writes by the peer. */
static inline struct ibv_mr *rdma_reg_write(struct rdma_cm_id *id, void *addr,
					    size_t length)
{
	return ibv_reg_mr(id->pd, addr, length,
			  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
}

static inline int rdma_dereg_mr(struct ibv_mr *mr)
{
	return rdma_seterrno(ibv_dereg_mr(mr));
}

/* ---- posting: scatter/gather lists ----------------------------------------- */

/* To the id's SRQ when it has one. */
static inline int rdma_post_recvv(struct rdma_cm_id *id, void *context,
				  struct ibv_sge *sgl, int nsge)
{
	struct ibv_recv_wr wr, *bad;
	int ret;

	wr.wr_id = (uintptr_t)context;
	wr.next = NULL;
	wr.sg_list = sgl;
	wr.num_sge = nsge;
	ret = id->srq ? ibv_post_srq_recv(id->srq, &wr, &bad) :
			ibv_post_recv(id->qp, &wr, &bad);
	return rdma_seterrno(ret);
}

static inline int rdma_post_sendv(struct rdma_cm_id *id, void *context,
				  struct ibv_sge *sgl, int nsge, int flags)
{
	struct ibv_send_wr wr, *bad;

	wr.opcode = IBV_WR_SEND;
	wr.send_flags = flags;
	wr.wr_id = (uintptr_t)context;
	wr.next = NULL;
	wr.sg_list = sgl;
	wr.num_sge = nsge;
	return rdma_seterrno(ibv_post_send(id->qp, &wr, &bad));
}

static inline int rdma_post_readv(struct rdma_cm_id *id, void *context,
				  struct ibv_sge *sgl, int nsge, int flags,
				  uint64_t remote_addr, uint32_t rkey)
{
	struct ibv_send_wr wr, *bad;

	wr.opcode = IBV_WR_RDMA_READ;
	wr.send_flags = flags;
	wr.wr.rdma.remote_addr = remote_addr;
	wr.wr.rdma.rkey = rkey;
	wr.wr_id = (uintptr_t)context;
	wr.next = NULL;
	wr.sg_list = sgl;
	wr.num_sge = nsge;
	return rdma_seterrno(ibv_post_send(id->qp, &wr, &bad));
}

static inline int rdma_post_writev(struct rdma_cm_id *id, void *context,
				   struct ibv_sge *sgl, int nsge, int flags,
				   uint64_t remote_addr, uint32_t rkey)
{
	struct ibv_send_wr wr, *bad;

	wr.opcode = IBV_WR_RDMA_WRITE;
	wr.send_flags = flags;
	wr.wr.rdma.remote_addr = remote_addr;
	wr.wr.rdma.rkey = rkey;
	wr.wr_id = (uintptr_t)context;
	wr.next = NULL;
	wr.sg_list = sgl;
	wr.num_sge = nsge;
	return rdma_seterrno(ibv_post_send(id->qp, &wr, &bad));
}

/* ---- posting: one buffer ---------------------------------------------------- */

/* The buffer must lie in mr. */
static inline int rdma_post_recv(struct rdma_cm_id *id, void *context, void *addr,
				 size_t length, struct ibv_mr *mr)
{
	struct ibv_sge sge;

	assert((uint8_t *)addr >= (uint8_t *)mr->addr &&
	       (uint8_t *)addr + length <= (uint8_t *)mr->addr + mr->length);
	sge.lkey = mr->lkey;
	sge.length = (uint32_t)length;
	sge.addr = (uint64_t)(uintptr_t)addr;
	return rdma_post_recvv(id, context, &sge, 1);
}

/* mr may be NULL with IBV_SEND_INLINE; the same for writes and UD. */
static inline int rdma_post_send(struct rdma_cm_id *id, void *context, void *addr,
				 size_t length, struct ibv_mr *mr, int flags)
{
	struct ibv_sge sge;

	sge.lkey = mr ? mr->lkey : 0;
	sge.length = (uint32_t)length;
	sge.addr = (uint64_t)(uintptr_t)addr;
	return rdma_post_sendv(id, context, &sge, 1, flags);
}

static inline int rdma_post_read(struct rdma_cm_id *id, void *context, void *addr,
				 size_t length, struct ibv_mr *mr, int flags,
				 uint64_t remote_addr, uint32_t rkey)
{
	struct ibv_sge sge;

	sge.lkey = mr->lkey;
	sge.length = (uint32_t)length;
	sge.addr = (uint64_t)(uintptr_t)addr;
	return rdma_post_readv(id, context, &sge, 1, flags, remote_addr, rkey);
}

static inline int rdma_post_write(struct rdma_cm_id *id, void *context, void *addr,
				  size_t length, struct ibv_mr *mr, int flags,
				  uint64_t remote_addr, uint32_t rkey)
{
	struct ibv_sge sge;

	sge.lkey = mr ? mr->lkey : 0;
	sge.length = (uint32_t)length;
	sge.addr = (uint64_t)(uintptr_t)addr;
	return rdma_post_writev(id, context, &sge, 1, flags, remote_addr, rkey);
}

/* The Q_Key is that of RDMA_PS_UDP. */
static inline int rdma_post_ud_send(struct rdma_cm_id *id, void *context,
				    void *addr, size_t length, struct ibv_mr *mr,
				    int flags, struct ibv_ah *ah,
				    uint32_t remote_qpn)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	sge.lkey = mr ? mr->lkey : 0;
	sge.length = (uint32_t)length;
	sge.addr = (uint64_t)(uintptr_t)addr;

	wr.opcode = IBV_WR_SEND;
	wr.send_flags = flags;
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = remote_qpn;
	wr.wr.ud.remote_qkey = RDMA_UDP_QKEY;
	wr.wr_id = (uintptr_t)context;
	wr.next = NULL;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	return rdma_seterrno(ibv_post_send(id->qp, &wr, &bad));
}

/* ---- completions ------------------------------------------------------------ */

/* These two wait for one completion on the CQ that the library created for the
 * id. They return 1 (look at wc->status) or -1, never 0. */

static inline int rdma_get_send_comp(struct rdma_cm_id *id, struct ibv_wc *wc)
{
	struct ibv_cq *cq;
	void *context;
	int n, ret;

	while (!(n = ibv_poll_cq(id->send_cq, 1, wc))) {
		ret = ibv_req_notify_cq(id->send_cq, 0);
		if (ret)
			return rdma_seterrno(ret);
		/* What came before the arming fires no event. */
		n = ibv_poll_cq(id->send_cq, 1, wc);
		if (n)
			break;
		ret = ibv_get_cq_event(id->send_cq_channel, &cq, &context);
		if (ret)
			return ret;
		assert(cq == id->send_cq && context == id);
		ibv_ack_cq_events(id->send_cq, 1);
	}
	return n < 0 ? rdma_seterrno(-n) : n;
}

static inline int rdma_get_recv_comp(struct rdma_cm_id *id, struct ibv_wc *wc)
{
	struct ibv_cq *cq;
	void *context;
	int n, ret;

	while (!(n = ibv_poll_cq(id->recv_cq, 1, wc))) {
		ret = ibv_req_notify_cq(id->recv_cq, 0);
		if (ret)
			return rdma_seterrno(ret);
		n = ibv_poll_cq(id->recv_cq, 1, wc);
		if (n)
			break;
		ret = ibv_get_cq_event(id->recv_cq_channel, &cq, &context);
		if (ret)
			return ret;
		assert(cq == id->recv_cq && context == id);
		ibv_ack_cq_events(id->recv_cq, 1);
	}
	return n < 0 ? rdma_seterrno(-n) : n;
}

#ifdef __cplusplus
}
#endif

#endif
