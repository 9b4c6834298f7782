/* SPDX-License-Identifier: BSD-2-Clause */
/* A synchronous id: both resolutions block. */
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
	struct rdma_cm_id *id;

	if (rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP))
		err(1, "rdma_create_id");
	if (rdma_resolve_addr(id, NULL, (struct sockaddr *)&dst, 2000))
		err(1, "rdma_resolve_addr");
	if (rdma_resolve_route(id, 2000))
		err(1, "rdma_resolve_route");
	printf("paths: %d\n", id->route.num_paths);
	rdma_destroy_id(id);
	return 0;
}
