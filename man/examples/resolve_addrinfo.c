/* SPDX-License-Identifier: BSD-2-Clause */
/* A name is resolved while the program waits for events. */
#include <err.h>
#include <stdio.h>
#include <string.h>
#include <rdma/rdma_cma.h>

int main(void)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP };
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_addrinfo *res;
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	if (!channel || rdma_create_id(channel, &id, NULL, RDMA_PS_TCP))
		err(1, "rdma_create_id");
	if (rdma_resolve_addrinfo(id, "127.0.0.1", "7471", &hints))
		err(1, "rdma_resolve_addrinfo");

	if (rdma_get_cm_event(channel, &event))
		err(1, "rdma_get_cm_event");
	printf("%s\n", rdma_event_str(event->event));
	if (event->event != RDMA_CM_EVENT_ADDRINFO_RESOLVED)
		errx(1, "%s", strerror(-event->status));
	rdma_ack_cm_event(event);

	if (rdma_query_addrinfo(id, &res))
		err(1, "rdma_query_addrinfo");
	if (rdma_resolve_addr(id, NULL, res->ai_dst_addr, 2000))
		err(1, "rdma_resolve_addr");
	rdma_freeaddrinfo(res);

	rdma_destroy_id(id);
	rdma_destroy_event_channel(channel);
	return 0;
}
