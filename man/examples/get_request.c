/* SPDX-License-Identifier: BSD-2-Clause */
/* A server without the event loop: one request after the other. */
#include <arpa/inet.h>
#include <err.h>
#include <pthread.h>
#include <stdio.h>
#include <rdma/rdma_cma.h>

static void check(int ret, const char *call)
{
	if (ret)
		err(1, "%s", call);
}

static void *client(void *port)
{
	struct sockaddr_in dst = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		.sin_port = *(__be16 *)port,
	};
	struct rdma_conn_param param = { .qp_num = 1 };
	struct rdma_cm_id *id;

	check(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP),
	      "rdma_create_id");
	check(rdma_resolve_addr(id, NULL, (struct sockaddr *)&dst, 2000),
	      "rdma_resolve_addr");
	check(rdma_resolve_route(id, 2000), "rdma_resolve_route");
	if (rdma_connect(id, &param)) /* ECONNREFUSED */
		printf("client: %s\n", rdma_event_str(id->event->event));
	rdma_destroy_id(id);
	return NULL;
}

int main(void)
{
	struct sockaddr_in any = { .sin_family = AF_INET };
	struct rdma_cm_id *listener, *id;
	char text[INET_ADDRSTRLEN];
	pthread_t thread;
	__be16 port;

	check(rdma_create_id(NULL, &listener, NULL, RDMA_PS_TCP),
	      "rdma_create_id");
	check(rdma_bind_addr(listener, (struct sockaddr *)&any),
	      "rdma_bind_addr");
	check(rdma_listen(listener, 1), "rdma_listen");
	port = rdma_get_src_port(listener);
	pthread_create(&thread, NULL, client, &port);

	check(rdma_get_request(listener, &id), "rdma_get_request");
	inet_ntop(AF_INET, &id->route.addr.dst_sin.sin_addr, text,
		  sizeof(text));
	printf("server: a request from %s\n", text);

	/* Neither accepted nor rejected: this rejects. */
	rdma_destroy_id(id);
	pthread_join(thread, NULL);
	rdma_destroy_id(listener);
	return 0;
}
