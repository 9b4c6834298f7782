/* SPDX-License-Identifier: BSD-2-Clause */
/* A port has one owner. */
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <rdma/rdma_cma.h>

int main(void)
{
	struct sockaddr_in any = { .sin_family = AF_INET };
	struct rdma_cm_id *first, *second;

	if (rdma_create_id(NULL, &first, NULL, RDMA_PS_TCP) ||
	    rdma_create_id(NULL, &second, NULL, RDMA_PS_TCP))
		err(1, "rdma_create_id");

	if (rdma_bind_addr(first, (struct sockaddr *)&any)) /* port 0 */
		err(1, "rdma_bind_addr");
	any.sin_port = rdma_get_src_port(first);
	if (any.sin_port)
		printf("a port was chosen\n");

	if (rdma_bind_addr(second, (struct sockaddr *)&any))
		printf("second: %s\n", strerror(errno));

	rdma_destroy_id(second);
	rdma_destroy_id(first);
	return 0;
}
