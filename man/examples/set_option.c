/* SPDX-License-Identifier: BSD-2-Clause */
/* Options before a connection is made. */
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <rdma/rdma_cma.h>

int main(void)
{
	uint8_t tos = 0x20;
	uint8_t timeout = 16; /* 4.096 us * 2^16, about 0.27 s */
	int on = 1;
	struct rdma_cm_id *id;

	if (rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP))
		err(1, "rdma_create_id");
	if (rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS,
			    &tos, sizeof(tos)))
		err(1, "TOS");
	if (rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR,
			    &on, sizeof(on)))
		err(1, "REUSEADDR");
	if (rdma_set_option(id, RDMA_OPTION_ID,
			    RDMA_OPTION_ID_ACK_TIMEOUT,
			    &timeout, sizeof(timeout)))
		err(1, "ACK_TIMEOUT");

	/* TOS is one byte, not an int. */
	if (rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS,
			    &on, sizeof(on)))
		printf("TOS of 4 bytes: %s\n", strerror(errno));
	rdma_destroy_id(id);
	return 0;
}
