/* SPDX-License-Identifier: BSD-2-Clause */
/* Addresses are resolved in blocking calls; the rest has events. */
#include <arpa/inet.h>
#include <err.h>
#include <stdio.h>
#include <rdma/rdma_cma.h>

int main(void)
{
	struct sockaddr_in addr = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		.sin_port = htons(7471),
	};
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	if (!channel || rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP))
		err(1, "rdma_create_id");
	if (rdma_resolve_addr(id, NULL, (struct sockaddr *)&addr, 2000))
		err(1, "rdma_resolve_addr");
	printf("blocking: %s\n", rdma_event_str(id->event->event));

	if (rdma_migrate_id(id, channel))
		err(1, "rdma_migrate_id");

	if (rdma_resolve_route(id, 2000)) /* returns at once now */
		err(1, "rdma_resolve_route");
	if (rdma_get_cm_event(channel, &event))
		err(1, "rdma_get_cm_event");
	printf("event: %s\n", rdma_event_str(event->event));
	rdma_ack_cm_event(event);

	rdma_destroy_id(id);
	rdma_destroy_event_channel(channel);
	return 0;
}
