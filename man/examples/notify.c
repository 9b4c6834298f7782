/* SPDX-License-Identifier: BSD-2-Clause */
/* A connection is told of before the peer's last message does it. */
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
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

static struct rdma_cm_event *next(struct rdma_event_channel *channel)
{
	struct rdma_cm_event *event;

	check(rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
	return event;
}

int main(void)
{
	struct sockaddr_in addr = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	struct rdma_event_channel *ours = rdma_create_event_channel();
	struct rdma_event_channel *peers = rdma_create_event_channel();
	struct rdma_cm_id *listener, *id, *peer;
	struct rdma_cm_event *event;

	if (!ours || !peers)
		err(1, "rdma_create_event_channel");
	check(rdma_create_id(ours, &listener, NULL, RDMA_PS_TCP),
	      "rdma_create_id");
	check(rdma_bind_addr(listener, (struct sockaddr *)&addr),
	      "rdma_bind_addr");
	check(rdma_listen(listener, 1), "rdma_listen");
	addr.sin_port = rdma_get_src_port(listener);

	check(rdma_create_id(NULL, &peer, NULL, RDMA_PS_TCP),
	      "rdma_create_id");
	check(rdma_resolve_addr(peer, NULL,
				(struct sockaddr *)&addr, 2000),
	      "rdma_resolve_addr");
	check(rdma_resolve_route(peer, 2000), "rdma_resolve_route");
	make_qp(peer);
	check(rdma_migrate_id(peer, peers), "rdma_migrate_id");
	check(rdma_connect(peer, NULL), "rdma_connect");

	event = next(ours); /* CONNECT_REQUEST */
	id = event->id;
	rdma_ack_cm_event(event);
	make_qp(id);
	check(rdma_accept(id, NULL), "rdma_accept");

	/* The peer does not fetch its event, and so does not confirm.
	 * As if the QP had raised the asynchronous event: */
	check(rdma_notify(id, IBV_EVENT_COMM_EST), "rdma_notify");
	event = next(ours);
	printf("%s\n", rdma_event_str(event->event));
	rdma_ack_cm_event(event);
	if (rdma_notify(id, IBV_EVENT_COMM_EST))
		printf("again: %s\n", strerror(errno));

	rdma_destroy_qp(peer);
	rdma_destroy_id(peer);
	rdma_destroy_qp(id);
	rdma_destroy_id(id);
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(peers);
	rdma_destroy_event_channel(ours);
	return 0;
}
