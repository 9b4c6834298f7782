/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

struct rdma_event_channel *cm_channel(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();

	if (!ch)
		die("rdma_create_event_channel");
	return ch;
}

struct rdma_cm_id *cm_listen(struct rdma_event_channel *ch, const char *addr,
			     uint16_t *port)
{
	struct sockaddr_storage ss;
	struct rdma_cm_id *id;

	addr_make(&ss, addr, 0);
	if (rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(id, (struct sockaddr *)&ss) || rdma_listen(id, 1024))
		die("rdma_listen");
	*port = ntohs(rdma_get_src_port(id));
	return id;
}

struct rdma_cm_id *cm_start(struct rdma_event_channel *ch, const char *addr,
			    uint16_t port)
{
	struct sockaddr_storage ss;
	struct rdma_cm_id *id;

	addr_make(&ss, addr, port);
	if (rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) ||
	    rdma_resolve_addr(id, NULL, (struct sockaddr *)&ss, 2000))
		die("rdma_resolve_addr");
	return id;
}

/* TIMEWAIT_EXIT of ids about to go is of no interest to a measurement. */
enum rdma_cm_event_type cm_next(struct rdma_event_channel *ch,
				struct rdma_cm_id **id)
{
	struct rdma_cm_event *ev;
	enum rdma_cm_event_type type;
	int status;

	do {
		if (rdma_get_cm_event(ch, &ev))
			die("rdma_get_cm_event");
		type = ev->event;
		status = ev->status;
		*id = ev->id;
		if (rdma_ack_cm_event(ev))
			die("rdma_ack_cm_event");
	} while (type == RDMA_CM_EVENT_TIMEWAIT_EXIT);
	if (status) {
		errno = status < 0 ? -status : EPROTO;
		die(rdma_event_str(type));
	}
	return type;
}

struct rdma_cm_id *cm_expect(struct rdma_event_channel *ch,
			     enum rdma_cm_event_type type)
{
	struct rdma_cm_id *id;
	enum rdma_cm_event_type got = cm_next(ch, &id);

	if (got != type) {
		fprintf(stderr, "bench: %s instead of %s\n", rdma_event_str(got),
			rdma_event_str(type));
		errno = EPROTO;
		die("event");
	}
	return id;
}

void cm_param(struct rdma_conn_param *p, bool active)
{
	memset(p, 0, sizeof(*p));
	p->responder_resources = 16;
	p->initiator_depth = 16;
	p->rnr_retry_count = 7;
	if (active)
		p->retry_count = 7;
}
