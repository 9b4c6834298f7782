/* SPDX-License-Identifier: BSD-2-Clause */
/* What many QPs of a measurement share: a PD, a CQ, a page. */
#include "bench.h"

#include <errno.h>
#include <stdlib.h>

void pool_open(struct pool *p, struct ibv_context *verbs, int entries)
{
	struct ibv_device_attr a;

	if (p->pd)
		return;
	if (ibv_query_device(verbs, &a))
		die("ibv_query_device");
	p->pd = ibv_alloc_pd(verbs);
	p->cq = ibv_create_cq(verbs, entries < a.max_cqe ? entries : a.max_cqe, NULL, NULL, 0);
	p->buf = aligned_alloc(4096, 4096);
	if (!p->pd || !p->cq || !p->buf)
		die("PD, CQ and memory");
	p->mr = ibv_reg_mr(p->pd, p->buf, 4096, IBV_ACCESS_LOCAL_WRITE);
	if (!p->mr)
		die("ibv_reg_mr");
}

void pool_qp(struct pool *p, struct rdma_cm_id *id, unsigned recvs)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = IDLE_WRS, .max_recv_wr = IDLE_WRS,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.send_cq = p->cq, .recv_cq = p->cq,
		.qp_type = IBV_QPT_RC,
	};

	if (rdma_create_qp(id, p->pd, &attr))
		die("rdma_create_qp");
	while (recvs--)
		pool_recv(p, id->qp);
}

void pool_recv(struct pool *p, struct ibv_qp *qp)
{
	struct ibv_sge sge = { (uintptr_t)p->buf, PING, p->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	errno = ibv_post_recv(qp, &wr, &bad);
	if (errno)
		die("ibv_post_recv");
}
