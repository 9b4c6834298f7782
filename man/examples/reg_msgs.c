/* SPDX-License-Identifier: BSD-2-Clause */
/* What each kind of region is for, and what is refused. */
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
	static char messages[4096], answers[4096], results[4096];
	struct ibv_mr *msgs, *readable, *writable;
	struct rdma_cm_id *id;

	if (rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP))
		err(1, "rdma_create_id");
	if (rdma_resolve_addr(id, NULL, (struct sockaddr *)&dst, 2000))
		err(1, "rdma_resolve_addr"); /* the id has a PD now */

	msgs = rdma_reg_msgs(id, messages, sizeof(messages));
	readable = rdma_reg_read(id, answers, sizeof(answers));
	writable = rdma_reg_write(id, results, sizeof(results));
	if (!msgs || !readable || !writable)
		err(1, "rdma_reg_*");
	printf("three regions\n");

	if (!rdma_reg_msgs(id, "read-only text", 15))
		printf("read-only memory: %s\n", strerror(errno));

	rdma_dereg_mr(writable);
	rdma_dereg_mr(readable);
	rdma_dereg_mr(msgs);
	rdma_destroy_id(id);
	return 0;
}
