/* SPDX-License-Identifier: BSD-2-Clause */
/* rdma_destroy_id waits for the event that another thread holds. */
#include <arpa/inet.h>
#include <err.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
#include <rdma/rdma_cma.h>

static void *holder(void *arg)
{
	usleep(100000);
	printf("acknowledging\n");
	rdma_ack_cm_event(arg);
	return NULL;
}

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
	pthread_t thread;

	if (!channel || rdma_create_id(channel, &id, NULL, RDMA_PS_TCP))
		err(1, "rdma_create_id");
	if (rdma_resolve_addr(id, NULL, (struct sockaddr *)&addr, 2000))
		err(1, "rdma_resolve_addr");
	if (rdma_get_cm_event(channel, &event))
		err(1, "rdma_get_cm_event");
	pthread_create(&thread, NULL, holder, event);

	if (rdma_destroy_id(id))
		err(1, "rdma_destroy_id");
	printf("destroyed\n");

	pthread_join(thread, NULL);
	rdma_destroy_event_channel(channel);
	return 0;
}
