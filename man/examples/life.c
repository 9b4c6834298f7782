/* SPDX-License-Identifier: BSD-2-Clause */
/* Both sides of a connection on one event channel. */
#include <arpa/inet.h>
#include <err.h>
#include <stdio.h>
#include <string.h>
#include <rdma/rdma_cma.h>

static void check(int ret, const char *call)
{
	if (ret)
		err(1, "%s", call);
}

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	check(rdma_create_qp(id, NULL, &attr), "rdma_create_qp");
}

/* The answer to an event. Returns 1 when the id is over. */
static int handle(struct rdma_cm_event *event)
{
	struct rdma_cm_id *id = event->id;

	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		make_qp(id);
		check(rdma_resolve_route(id, 2000), "rdma_resolve_route");
		return 0;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		check(rdma_connect(id, NULL), "rdma_connect");
		return 0;
	case RDMA_CM_EVENT_CONNECT_REQUEST: /* id is new */
		make_qp(id);
		check(rdma_accept(id, NULL), "rdma_accept");
		return 0;
	case RDMA_CM_EVENT_ESTABLISHED: /* on each side */
		if (!strcmp(id->context, "server"))
			check(rdma_disconnect(id), "rdma_disconnect");
		return 0;
	case RDMA_CM_EVENT_DISCONNECTED: /* on each side */
		check(rdma_disconnect(id), "rdma_disconnect");
		return 0;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		return 1;
	default:
		errx(1, "%s, status %d", rdma_event_str(event->event),
		     event->status);
	}
}

int main(void)
{
	struct sockaddr_in addr = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	struct rdma_cm_id *listener, *client, *server = NULL;
	struct rdma_event_channel *channel;
	struct rdma_cm_event *event;
	int over = 0;

	channel = rdma_create_event_channel();
	if (!channel)
		err(1, "rdma_create_event_channel");

	check(rdma_create_id(channel, &listener, "server", RDMA_PS_TCP),
	      "rdma_create_id");
	check(rdma_bind_addr(listener, (struct sockaddr *)&addr),
	      "rdma_bind_addr");
	check(rdma_listen(listener, 8), "rdma_listen");

	addr.sin_port = rdma_get_src_port(listener);
	check(rdma_create_id(channel, &client, "client", RDMA_PS_TCP),
	      "rdma_create_id");
	check(rdma_resolve_addr(client, NULL,
				(struct sockaddr *)&addr, 2000),
	      "rdma_resolve_addr");

	while (over < 2) {
		check(rdma_get_cm_event(channel, &event),
		      "rdma_get_cm_event");
		printf("%s: %s\n", (char *)event->id->context,
		       rdma_event_str(event->event));
		if (event->listen_id)
			server = event->id;
		over += handle(event);
		check(rdma_ack_cm_event(event), "rdma_ack_cm_event");
	}

	rdma_destroy_qp(server);
	check(rdma_destroy_id(server), "rdma_destroy_id");
	rdma_destroy_qp(client);
	check(rdma_destroy_id(client), "rdma_destroy_id");
	check(rdma_destroy_id(listener), "rdma_destroy_id");
	rdma_destroy_event_channel(channel);
	return 0;
}
