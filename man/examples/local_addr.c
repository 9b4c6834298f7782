/* SPDX-License-Identifier: BSD-2-Clause */
/* What an id knows of its two ends. */
#include <arpa/inet.h>
#include <err.h>
#include <stdio.h>
#include <rdma/rdma_cma.h>

static void check(int ret, const char *call)
{
	if (ret)
		err(1, "%s", call);
}

static void show(const char *what, struct sockaddr *addr)
{
	char text[INET6_ADDRSTRLEN];

	if (addr->sa_family == AF_INET)
		inet_ntop(AF_INET, &((struct sockaddr_in *)addr)->sin_addr,
			  text, sizeof(text));
	else
		inet_ntop(AF_INET6,
			  &((struct sockaddr_in6 *)addr)->sin6_addr,
			  text, sizeof(text));
	printf("%s: %s\n", what, text);
}

int main(void)
{
	struct sockaddr_in dst = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		.sin_port = htons(7471),
	};
	struct rdma_cm_id *id;

	check(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP),
	      "rdma_create_id");
	printf("before: port %u\n", ntohs(rdma_get_src_port(id)));
	check(rdma_resolve_addr(id, NULL, (struct sockaddr *)&dst, 2000),
	      "rdma_resolve_addr");
	show("local", rdma_get_local_addr(id));
	show("peer", rdma_get_peer_addr(id));
	printf("peer's port: %u\n", ntohs(rdma_get_dst_port(id)));
	rdma_destroy_id(id);
	return 0;
}
