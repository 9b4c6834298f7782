/* SPDX-License-Identifier: BSD-2-Clause */
/* Wakes the thread that waits for events, and tells it to end. */
#include <err.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <rdma/rdma_cma.h>

enum { STOP = 1 };

static void *event_thread(void *arg)
{
	struct rdma_event_channel *channel = arg;
	struct rdma_cm_event *event;
	uint64_t what = 0;

	while (what != STOP) {
		if (rdma_get_cm_event(channel, &event))
			err(1, "rdma_get_cm_event");
		if (event->event == RDMA_CM_EVENT_USER)
			what = event->param.arg;
		rdma_ack_cm_event(event);
	}
	printf("told to stop\n");
	return NULL;
}

int main(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;
	pthread_t thread;

	if (!channel || rdma_create_id(channel, &id, NULL, RDMA_PS_TCP))
		err(1, "rdma_create_id");
	pthread_create(&thread, NULL, event_thread, channel);

	if (rdma_write_cm_event(id, RDMA_CM_EVENT_USER, 0, STOP))
		err(1, "rdma_write_cm_event");

	pthread_join(thread, NULL);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(channel);
	return 0;
}
