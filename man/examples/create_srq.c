/* SPDX-License-Identifier: BSD-2-Clause */
/* An id whose QP receives from a shared queue. */
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <rdma/rdma_verbs.h>

int main(void)
{
	struct sockaddr_in dst = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		.sin_port = htons(7471),
	};
	struct ibv_srq_init_attr srq_attr = {
		.attr = { .max_wr = 64, .max_sge = 1 },
	};
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 64,
			 .max_send_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	static char buf[1024];
	struct ibv_recv_wr wr = { .wr_id = 1 }, *bad;
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	int ret;

	if (rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP))
		err(1, "rdma_create_id");
	if (rdma_resolve_addr(id, NULL, (struct sockaddr *)&dst, 2000))
		err(1, "rdma_resolve_addr");

	if (rdma_create_srq(id, NULL, &srq_attr))
		err(1, "rdma_create_srq");
	if (rdma_create_qp(id, NULL, &attr))
		err(1, "rdma_create_qp");
	if (id->qp->srq == id->srq)
		printf("the QP uses the SRQ\n");

	mr = rdma_reg_msgs(id, buf, sizeof(buf));
	if (!mr)
		err(1, "rdma_reg_msgs");
	if (!rdma_post_recv(id, NULL, buf, sizeof(buf), mr))
		printf("a receive in the SRQ\n"); /* not in the QP */
	ret = ibv_post_recv(id->qp, &wr, &bad);
	printf("ibv_post_recv: %s\n", strerror(ret));

	rdma_destroy_qp(id);
	rdma_destroy_srq(id);
	rdma_dereg_mr(mr);
	rdma_destroy_id(id);
	return 0;
}
