/* SPDX-License-Identifier: BSD-2-Clause */
/* One thread listens and takes requests; two clients connect. */
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
	check(rdma_connect(id, NULL), "rdma_connect");
	printf("client: connected\n");
	check(rdma_disconnect(id), "rdma_disconnect");
	rdma_destroy_qp(id);
	rdma_destroy_id(id);
	return NULL;
}

/* Returns 1 when a connection has ended. */
static int serve(struct rdma_cm_event *event)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	switch (event->event) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		check(rdma_create_qp(event->id, NULL, &attr),
		      "rdma_create_qp");
		check(rdma_accept(event->id, NULL), "rdma_accept");
		return 0;
	case RDMA_CM_EVENT_DISCONNECTED:
		printf("server: a client has left\n");
		rdma_disconnect(event->id);
		return 1;
	default:
		return 0;
	}
}

int main(void)
{
	struct sockaddr_in any = { .sin_family = AF_INET };
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener, *id;
	struct rdma_cm_event *event;
	pthread_t thread[2];
	__be16 port;
	int left = 2, over;

	if (!channel)
		err(1, "rdma_create_event_channel");
	check(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP),
	      "rdma_create_id");
	check(rdma_bind_addr(listener, (struct sockaddr *)&any),
	      "rdma_bind_addr");
	check(rdma_listen(listener, 16), "rdma_listen");
	port = rdma_get_src_port(listener);
	pthread_create(&thread[0], NULL, client, &port);
	pthread_create(&thread[1], NULL, client, &port);

	while (left) {
		check(rdma_get_cm_event(channel, &event),
		      "rdma_get_cm_event");
		over = serve(event);
		id = event->id;
		rdma_ack_cm_event(event); /* before its id is destroyed */
		if (over) {
			rdma_destroy_qp(id);
			rdma_destroy_id(id);
			left--;
		}
	}
	pthread_join(thread[0], NULL);
	pthread_join(thread[1], NULL);
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(channel);
	return 0;
}
