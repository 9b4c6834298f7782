/* SPDX-License-Identifier: BSD-2-Clause */
/* Both kinds of result: to listen with, and to connect with. */
#include <arpa/inet.h>
#include <err.h>
#include <netdb.h>
#include <stdio.h>
#include <rdma/rdma_cma.h>

static void show(int flags, const char *node)
{
	struct rdma_addrinfo hints = {
		.ai_flags = flags | RAI_NUMERICHOST,
		.ai_family = AF_INET,
		.ai_port_space = RDMA_PS_TCP,
	};
	struct rdma_addrinfo *res;
	struct sockaddr_in *addr;
	char text[INET_ADDRSTRLEN];
	int ret;

	ret = rdma_getaddrinfo(node, "7471", &hints, &res);
	if (ret == -1)
		err(1, "rdma_getaddrinfo"); /* errno */
	if (ret)
		errx(1, "%s", gai_strerror(ret));
	addr = (void *)(flags & RAI_PASSIVE ? res->ai_src_addr :
					      res->ai_dst_addr);
	inet_ntop(AF_INET, &addr->sin_addr, text, sizeof(text));
	printf("%s %s:%u, %s\n",
	       flags & RAI_PASSIVE ? "listen on" : "connect to", text,
	       ntohs(addr->sin_port),
	       res->ai_qp_type == IBV_QPT_RC ? "RC" : "another type");
	rdma_freeaddrinfo(res);
}

int main(void)
{
	show(RAI_PASSIVE, NULL);
	show(0, "127.0.0.1");
	return 0;
}
