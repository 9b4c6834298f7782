/* SPDX-License-Identifier: BSD-2-Clause */
/* The id gets its device when the event is fetched. */
#include <arpa/inet.h>
#include <err.h>
#include <stdio.h>
#include <string.h>
#include <rdma/rdma_cma.h>

int main(void)
{
	struct sockaddr_in dst = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		.sin_port = htons(7471),
	};
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	if (!channel || rdma_create_id(channel, &id, NULL, RDMA_PS_TCP))
		err(1, "rdma_create_id");
	if (rdma_resolve_addr(id, NULL, (struct sockaddr *)&dst, 2000))
		err(1, "rdma_resolve_addr");
	printf("before: %s device\n", id->verbs ? "a" : "no");

	if (rdma_get_cm_event(channel, &event))
		err(1, "rdma_get_cm_event");
	if (event->event == RDMA_CM_EVENT_ADDR_RESOLVED)
		printf("after: a device, port %d\n", id->port_num);
	else
		printf("%s: %s\n", rdma_event_str(event->event),
		       strerror(-event->status));
	rdma_ack_cm_event(event);

	rdma_destroy_id(id);
	rdma_destroy_event_channel(channel);
	return 0;
}
