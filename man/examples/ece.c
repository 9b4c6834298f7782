/* SPDX-License-Identifier: BSD-2-Clause */
/* Vendor options in the request of an id without a QP. */
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
	struct ibv_ece ece = { .vendor_id = 0x1234, .options = 0x5 };
	struct rdma_conn_param param = { .qp_num = 0x100 };
	struct rdma_cm_id *id;

	check(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP),
	      "rdma_create_id");
	check(rdma_resolve_addr(id, NULL, (struct sockaddr *)&dst, 2000),
	      "rdma_resolve_addr");
	check(rdma_resolve_route(id, 2000), "rdma_resolve_route");
	check(rdma_set_local_ece(id, &ece), "rdma_set_local_ece");
	if (rdma_connect(id, &param))
		printf("client: reason %d\n", id->event->status);
	rdma_destroy_id(id);
	return NULL;
}

int main(void)
{
	struct sockaddr_in any = { .sin_family = AF_INET };
	struct rdma_cm_id *listener, *id;
	struct ibv_ece ece;
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
	check(rdma_get_remote_ece(id, &ece), "rdma_get_remote_ece");
	printf("server: vendor 0x%x, options 0x%x\n", ece.vendor_id,
	       ece.options);
	check(rdma_reject_ece(id, NULL, 0), "rdma_reject_ece");

	rdma_destroy_id(id);
	pthread_join(thread, NULL);
	rdma_destroy_id(listener);
	return 0;
}
