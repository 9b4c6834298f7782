/* SPDX-License-Identifier: BSD-2-Clause */
/* The server ends the connection; the client sees its receive
 * flushed. */
#include <arpa/inet.h>
#include <err.h>
#include <pthread.h>
#include <stdio.h>
#include <rdma/rdma_verbs.h>

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
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	struct ibv_wc wc;
	char buf[64];

	check(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP),
	      "rdma_create_id");
	check(rdma_resolve_addr(id, NULL, (struct sockaddr *)&dst, 2000),
	      "rdma_resolve_addr");
	check(rdma_resolve_route(id, 2000), "rdma_resolve_route");
	check(rdma_create_qp(id, NULL, &attr), "rdma_create_qp");
	mr = rdma_reg_msgs(id, buf, sizeof(buf));
	if (!mr)
		err(1, "rdma_reg_msgs");
	check(rdma_post_recv(id, NULL, buf, sizeof(buf), mr),
	      "rdma_post_recv");
	check(rdma_connect(id, NULL), "rdma_connect");

	check(rdma_get_cm_event(id->channel, &event),
	      "rdma_get_cm_event");
	printf("client: %s\n", rdma_event_str(event->event));
	rdma_ack_cm_event(event);
	check(rdma_disconnect(id), "rdma_disconnect"); /* flushes */
	if (rdma_get_recv_comp(id, &wc) == 1)
		printf("client: %s\n", ibv_wc_status_str(wc.status));

	rdma_dereg_mr(mr);
	rdma_destroy_qp(id);
	rdma_destroy_id(id);
	return NULL;
}

int main(void)
{
	struct sockaddr_in any = { .sin_family = AF_INET };
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
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
	check(rdma_create_qp(id, NULL, &attr), "rdma_create_qp");
	check(rdma_accept(id, NULL), "rdma_accept");
	check(rdma_disconnect(id), "rdma_disconnect"); /* blocks */
	printf("server: %s\n", rdma_event_str(id->event->event));

	rdma_destroy_qp(id);
	rdma_destroy_id(id);
	pthread_join(thread, NULL);
	rdma_destroy_id(listener);
	return 0;
}
