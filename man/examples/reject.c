/* SPDX-License-Identifier: BSD-2-Clause */
/* A server that is full, and says so. */
#include <arpa/inet.h>
#include <err.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
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
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct rdma_cm_id *id;

	check(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP),
	      "rdma_create_id");
	check(rdma_resolve_addr(id, NULL, (struct sockaddr *)&dst, 2000),
	      "rdma_resolve_addr");
	check(rdma_resolve_route(id, 2000), "rdma_resolve_route");
	check(rdma_create_qp(id, NULL, &attr), "rdma_create_qp");
	if (!rdma_connect(id, NULL))
		errx(1, "connected");
	if (id->event->event == RDMA_CM_EVENT_REJECTED &&
	    id->event->status == 28) /* by the server's program */
		printf("client: rejected: %s\n",
		       (const char *)id->event->param.conn.private_data);
	rdma_destroy_qp(id);
	rdma_destroy_id(id);
	return NULL;
}

int main(void)
{
	static const char why[] = "try again later";
	struct sockaddr_in any = { .sin_family = AF_INET };
	struct rdma_cm_id *listener, *id;
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
	check(rdma_reject(id, why, sizeof(why)), "rdma_reject");
	rdma_destroy_id(id); /* still the application's to do */

	pthread_join(thread, NULL);
	rdma_destroy_id(listener);
	return 0;
}
