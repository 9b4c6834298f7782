/* SPDX-License-Identifier: BSD-2-Clause */
/* From one convention to the other. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <rdma/rdma_verbs.h>

int main(void)
{
	/* A verb returns an errno; a function of rdma_cm does not. */
	if (rdma_seterrno(ENOMEM) == -1)
		printf("%s\n", strerror(errno));
	if (rdma_seterrno(0) == 0)
		printf("success\n");
	return 0;
}
