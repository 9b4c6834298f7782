/* SPDX-License-Identifier: BSD-2-Clause */
/* Two ids on one channel, whose events a poll() loop takes. */
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <rdma/rdma_cma.h>

/* Everything that is there; returns how much that was. */
static int take_all(struct rdma_event_channel *channel)
{
	struct rdma_cm_event *event;
	int n = 0;

	while (!rdma_get_cm_event(channel, &event)) {
		printf("%s: %s, status %d\n", (char *)event->id->context,
		       rdma_event_str(event->event), event->status);
		rdma_ack_cm_event(event);
		n++;
	}
	if (errno != EAGAIN && errno != EINTR)
		err(1, "rdma_get_cm_event");
	return n;
}

int main(void)
{
	struct sockaddr_in addr = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		.sin_port = htons(7471),
	};
	const char *name[2] = { "first", "second" };
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id[2];
	struct pollfd pfd;
	int i, seen = 0;

	channel = rdma_create_event_channel();
	if (!channel)
		err(1, "rdma_create_event_channel");
	fcntl(channel->fd, F_SETFL,
	      fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
	for (i = 0; i < 2; i++) {
		if (rdma_create_id(channel, &id[i], (void *)name[i],
				   RDMA_PS_TCP))
			err(1, "rdma_create_id");
		if (rdma_resolve_addr(id[i], NULL,
				      (struct sockaddr *)&addr, 2000))
			err(1, "rdma_resolve_addr");
	}

	pfd = (struct pollfd){ .fd = channel->fd, .events = POLLIN };
	while (seen < 2) {
		if (poll(&pfd, 1, -1) < 0 && errno != EINTR)
			err(1, "poll");
		seen += take_all(channel);
	}
	for (i = 0; i < 2; i++)
		rdma_destroy_id(id[i]);
	rdma_destroy_event_channel(channel);
	return 0;
}
