/* SPDX-License-Identifier: BSD-2-Clause */
/* A QP with completion queues of the library's. */
#include <arpa/inet.h>
#include <err.h>
#include <stdio.h>
#include <rdma/rdma_cma.h>

int main(void)
{
	struct sockaddr_in dst = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		.sin_port = htons(7471),
	};
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 16, .max_recv_wr = 32,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct rdma_cm_id *id;

	if (rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP))
		err(1, "rdma_create_id");
	if (rdma_resolve_addr(id, NULL, (struct sockaddr *)&dst, 2000))
		err(1, "rdma_resolve_addr");

	if (rdma_create_qp(id, NULL, &attr))
		err(1, "rdma_create_qp");
	printf("%s, %s, %s\n",
	       attr.cap.max_recv_wr >= 32 ? "room for 32 receives" : "-",
	       id->send_cq != id->recv_cq ? "two CQs" : "one CQ",
	       id->qp->pd == id->pd ? "the id's PD" : "another PD");

	rdma_destroy_qp(id);
	rdma_destroy_id(id);
	return 0;
}
