/* SPDX-License-Identifier: BSD-2-Clause */
/* errors ADDRESS DEVICE: what the kernel's errors become, one line each, for
 * comparing two libraries: run in the virtual machine on either. Ends with the
 * device removed under a live connection.
 * errors ADDRESS: what the first calls say, for kernels that answer none (no
 * module, or strace makes every write to it fail). */
#include <rdma/rdma_cma.h>

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct sockaddr_in addr = { .sin_family = AF_INET };

static void say(const char *what, int r)
{
	printf("%s: %s\n", what, r ? strerrorname_np(errno) : "ok");
	fflush(stdout);
}

static void fatal(const char *what)
{
	printf("%s: %s\n", what, strerror(errno));
	exit(1);
}

/* The next event within ten seconds (emulated machines are slow). */
static struct rdma_cm_event *next(struct rdma_event_channel *ch)
{
	struct pollfd p = { .fd = ch->fd, .events = POLLIN };
	struct rdma_cm_event *ev;

	if (poll(&p, 1, 10000) != 1 || rdma_get_cm_event(ch, &ev))
		return NULL;
	return ev;
}

static struct rdma_cm_id *expect(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *ev = next(ch);
	struct rdma_cm_id *id;

	if (!ev || ev->event != type) {
		printf("%s expected, %s came\n", rdma_event_str(type),
		       ev ? rdma_event_str(ev->event) : "nothing");
		exit(1);
	}
	id = ev->id;
	rdma_ack_cm_event(ev);
	return id;
}

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};

	if (rdma_create_qp(id, NULL, &attr))
		fatal("rdma_create_qp");
}

/* The credentials of the opener count. */
static void channels(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_event *ev;
	struct rdma_cm_id *id = NULL;
	int fd;

	if (!ch || rdma_create_id(ch, &id, NULL, RDMA_PS_TCP))
		fatal("id");
	if (seteuid(65534))
		fatal("seteuid");
	say("bind after seteuid", rdma_bind_addr(id, (struct sockaddr *)&addr));
	say("get_cm_event after seteuid", rdma_get_cm_event(ch, &ev));
	say("destroy after seteuid", rdma_destroy_id(id));
	/* Not even when it is the same user again; id and channel stay. */
	if (seteuid(0))
		fatal("seteuid");
	say("destroy after seteuid back", rdma_destroy_id(id));

	ch = rdma_create_event_channel();
	if (!ch || rdma_create_id(ch, &id, NULL, RDMA_PS_TCP))
		fatal("id");
	fd = dup(ch->fd);
	close(ch->fd);
	say("bind, descriptor closed", rdma_bind_addr(id, (struct sockaddr *)&addr));
	dup2(fd, ch->fd);
	close(fd);
	say("destroy, descriptor back", rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

static void connected(struct rdma_event_channel *ch, struct rdma_event_channel *sch,
		      struct rdma_cm_id **lis, struct rdma_cm_id **id, struct rdma_cm_id **child)
{
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	struct sockaddr_in to;

	if (rdma_create_id(sch, lis, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(*lis, (struct sockaddr *)&addr) || rdma_listen(*lis, 1) ||
	    rdma_create_id(ch, id, NULL, RDMA_PS_TCP))
		fatal("listener");
	to = addr;
	to.sin_port = rdma_get_src_port(*lis);
	if (rdma_resolve_addr(*id, NULL, (struct sockaddr *)&to, 2000))
		fatal("resolve_addr");
	expect(ch, RDMA_CM_EVENT_ADDR_RESOLVED);
	if (rdma_resolve_route(*id, 2000))
		fatal("resolve_route");
	expect(ch, RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_qp(*id);
	if (rdma_connect(*id, &param))
		fatal("connect");
	*child = expect(sch, RDMA_CM_EVENT_CONNECT_REQUEST);
	make_qp(*child);
	if (rdma_accept(*child, &param))
		fatal("accept");
	expect(ch, RDMA_CM_EVENT_ESTABLISHED);
	expect(sch, RDMA_CM_EVENT_ESTABLISHED);
}

/* Waits for as many removals. The kernel also destroys an id that it has told of
 * one, and if that comes before the peer's own removal, the peer is disconnected. */
static void removals(const char *who, struct rdma_event_channel *ch, unsigned want)
{
	struct rdma_cm_event *ev;
	unsigned n = 0;

	while (n < want && (ev = next(ch))) {
		if (ev->event == RDMA_CM_EVENT_DEVICE_REMOVAL)
			n++;
		else if (ev->event != RDMA_CM_EVENT_DISCONNECTED)
			printf("%s: %s\n", who, rdma_event_str(ev->event));
		rdma_ack_cm_event(ev);
	}
	printf("%s: %u RDMA_CM_EVENT_DEVICE_REMOVAL\n", who, n);
}

static void removal(const char *device)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_event_channel *sch = rdma_create_event_channel();
	struct rdma_cm_id *lis, *id, *child, *later;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	char cmd[100];
	int mask, i, r = 0;

	connected(ch, sch, &lis, &id, &child);
	/* It waits for us to close the device: not in our way. */
	snprintf(cmd, sizeof(cmd), "rdma link delete %s &", device);
	if (system(cmd))
		fatal(cmd);
	removals("client", ch, 1);
	removals("server", sch, 2);
	/* The kernel tears the id down after it has told of it. */
	for (i = 0; i < 500 && !(r = rdma_init_qp_attr(id, &attr, &mask)); i++)
		usleep(10000);
	say("init_qp_attr of a removed device", r);
	say("set_option of a removed device",
	    rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &mask, 1));
	if (rdma_create_id(ch, &later, NULL, RDMA_PS_TCP))
		fatal("id");
	say("bind to a removed device", rdma_bind_addr(later, (struct sockaddr *)&addr));
	say("destroy", rdma_destroy_id(later));
	rdma_destroy_qp(id);
	rdma_destroy_qp(child);
	say("destroy of the client", rdma_destroy_id(id));
	say("destroy of the child", rdma_destroy_id(child));
	say("destroy of the listener", rdma_destroy_id(lis));
	rdma_destroy_event_channel(ch);
	rdma_destroy_event_channel(sch);
}

static void first_calls(const char *text)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *res = NULL;
	struct rdma_event_channel *ch;
	struct ibv_context **list;
	struct rdma_cm_id *id;
	int n = -1;

	list = rdma_get_devices(&n);
	say("get_devices", !list);
	printf("devices: %d\n", n);
	if (list)
		rdma_free_devices(list);
	ch = rdma_create_event_channel();
	say("create_event_channel", !ch);
	if (ch)
		say("create_id", rdma_create_id(ch, &id, NULL, RDMA_PS_TCP));
	say("create_id without channel", rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	say("getaddrinfo", rdma_getaddrinfo(text, "7471", &hints, &res));
	if (res) {
		say("create_ep", rdma_create_ep(&id, res, NULL, NULL));
		rdma_freeaddrinfo(res);
	}
	if (ch)
		rdma_destroy_event_channel(ch);
}

int main(int argc, char **argv)
{
	if (argc == 2) {
		first_calls(argv[1]);
		return 0;
	}
	if (argc != 3 || inet_pton(AF_INET, argv[1], &addr.sin_addr) != 1) {
		printf("usage: errors ADDRESS [DEVICE]\n");
		return 1;
	}
	channels();
	removal(argv[2]);
	return 0;
}
