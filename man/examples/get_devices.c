/* SPDX-License-Identifier: BSD-2-Clause */
/* The devices that ids can be bound to, opened. */
#include <err.h>
#include <stdio.h>
#include <rdma/rdma_cma.h>

int main(void)
{
	struct ibv_context **list;
	struct ibv_device_attr attr;
	int i, n;

	list = rdma_get_devices(&n);
	if (!list)
		err(1, "rdma_get_devices");
	for (i = 0; i < n; i++)
		if (!ibv_query_device(list[i], &attr) && attr.max_qp > 0)
			printf("%s\n", ibv_get_device_name(list[i]->device));
	rdma_free_devices(list);
	return 0;
}
