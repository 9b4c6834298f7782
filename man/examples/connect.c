/* SPDX-License-Identifier: BSD-2-Clause */
/* Asks a port that somebody owns and nobody listens on, and says
 * why that failed. */
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

static void report(const struct rdma_cm_event *event)
{
	const char *name = rdma_event_str(event->event);

	switch (event->event) {
	case RDMA_CM_EVENT_ESTABLISHED:
		printf("connected\n");
		break;
	case RDMA_CM_EVENT_REJECTED: /* a reason, not an errno */
		printf("%s: reason %d\n", name, event->status);
		break;
	default:
		printf("%s: %s\n", name, strerror(-event->status));
	}
}

int main(void)
{
	struct sockaddr_in dst = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct rdma_conn_param param = {
		.private_data = "version 1",
		.private_data_len = 9,
		.responder_resources = RDMA_MAX_RESP_RES,
		.initiator_depth = RDMA_MAX_INIT_DEPTH,
		.retry_count = 7,
		.rnr_retry_count = 7, /* for ever */
	};
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_event *event;
	struct rdma_cm_id *owner, *id;

	check(rdma_create_id(NULL, &owner, NULL, RDMA_PS_TCP),
	      "rdma_create_id");
	check(rdma_bind_addr(owner, (struct sockaddr *)&dst),
	      "rdma_bind_addr");
	dst.sin_port = rdma_get_src_port(owner);

	/* Blocking until here, with events from here on. */
	check(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP),
	      "rdma_create_id");
	check(rdma_resolve_addr(id, NULL, (struct sockaddr *)&dst, 2000),
	      "rdma_resolve_addr");
	check(rdma_resolve_route(id, 2000), "rdma_resolve_route");
	check(rdma_create_qp(id, NULL, &attr), "rdma_create_qp");
	if (!channel)
		err(1, "rdma_create_event_channel");
	check(rdma_migrate_id(id, channel), "rdma_migrate_id");

	check(rdma_connect(id, &param), "rdma_connect");
	check(rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
	report(event);
	rdma_ack_cm_event(event);

	rdma_destroy_qp(id);
	rdma_destroy_id(id);
	rdma_destroy_id(owner);
	rdma_destroy_event_channel(channel);
	return 0;
}
