/* SPDX-License-Identifier: BSD-2-Clause */
/* A server that reads a version from the request and answers with
 * one. */
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
	struct rdma_conn_param param = {
		.private_data = "version 3", .private_data_len = 10,
		.responder_resources = 1, .initiator_depth = 16,
	};
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	const struct rdma_conn_param *got;
	struct rdma_cm_id *id;

	check(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP),
	      "rdma_create_id");
	check(rdma_resolve_addr(id, NULL, (struct sockaddr *)&dst, 2000),
	      "rdma_resolve_addr");
	check(rdma_resolve_route(id, 2000), "rdma_resolve_route");
	check(rdma_create_qp(id, NULL, &attr), "rdma_create_qp");
	check(rdma_connect(id, &param), "rdma_connect");
	got = &id->event->param.conn;
	printf("client: %s, %u reads at once\n",
	       (const char *)got->private_data, got->initiator_depth);
	rdma_disconnect(id);
	rdma_destroy_qp(id);
	rdma_destroy_id(id);
	return NULL;
}

int main(void)
{
	struct sockaddr_in any = { .sin_family = AF_INET };
	struct rdma_conn_param param = {
		.private_data = "version 2", .private_data_len = 10,
		.responder_resources = 4, /* fewer than asked for */
		.initiator_depth = RDMA_MAX_INIT_DEPTH, /* as asked for */
		.rnr_retry_count = 7,
	};
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	const struct rdma_conn_param *asked;
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
	asked = &id->event->param.conn;
	printf("server: %s, %u reads at once\n",
	       (const char *)asked->private_data,
	       asked->responder_resources);
	check(rdma_create_qp(id, NULL, &attr), "rdma_create_qp");
	check(rdma_accept(id, &param), "rdma_accept");

	rdma_disconnect(id);
	rdma_destroy_qp(id);
	rdma_destroy_id(id);
	pthread_join(thread, NULL);
	rdma_destroy_id(listener);
	return 0;
}
