/* SPDX-License-Identifier: BSD-2-Clause */
/* A channel that is polled: nothing waits inside the library. */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <rdma/rdma_cma.h>

int main(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_event *event;
	int flags;

	if (!channel)
		err(1, "rdma_create_event_channel");
	flags = fcntl(channel->fd, F_GETFL);
	if (flags < 0 ||
	    fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK))
		err(1, "fcntl");

	if (rdma_get_cm_event(channel, &event) && errno == EAGAIN)
		printf("no event yet\n");

	rdma_destroy_event_channel(channel);
	return 0;
}
