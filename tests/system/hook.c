/* SPDX-License-Identifier: BSD-2-Clause */
/* Events that only a hook can cause here: DEVICE_REMOVAL and ADDR_CHANGE. */
#include "lab.h"

#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

static struct end e;

/* Must stand before the first use of the library. */
static void enable(void)
{
	setenv("ANYRDMA_TEST", "1", 1);
}

/* Asks this process's hook and waits for its answer. */
static void hook(const char *cmd)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX }, me = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0), n;
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char answer[16] = "";
	size_t base = offsetof(struct sockaddr_un, sun_path);

	if (!conf_user_device())
		SKIP("only the user-space device has the hook");
	OK(bind(fd, (struct sockaddr *)&me, sizeof(me.sun_family))); /* any name */
	n = snprintf(to.sun_path + 1, sizeof(to.sun_path) - 1, "anyrdma/test/%d", getpid());
	n = sendto(fd, cmd, strlen(cmd), 0, (struct sockaddr *)&to, base + 1 + n);
	EQ(n, strlen(cmd));
	CHECK(poll(&p, 1, conf_ms(CONF_WAIT)) == 1);
	CHECK(recv(fd, answer, sizeof(answer) - 1, 0) > 0);
	CHECK(!strcmp(answer, "ok"));
	close(fd);
}

static void check_dead(struct rdma_cm_id *id)
{
	struct rdma_conn_param param = conf_param();

	CHECK(rdma_connect(id, &param) == -1);
	CHECK(errno == ENXIO || errno == EIO || errno == ENODEV || errno == EINVAL);
	CHECK(rdma_resolve_route(id, 1000) == -1);
}

static void removal_reaches_every_bound_id(void)
{
	struct rdma_event_channel *ch;
	struct rdma_cm_id *idle, *addr, *route, *wild;
	conf_sa any = conf_any(AF_INET, 0);

	enable();
	ch = conf_channel();
	idle = conf_id(ch);
	addr = conf_addr_resolved(ch, conf_addr(AF_INET, 7000));
	route = conf_route_resolved(ch, conf_addr(AF_INET, 7000));
	wild = conf_id(ch);
	OK(rdma_bind_addr(wild, SA(any)));
	OK(rdma_listen(wild, 1));
	hook("removal");
	for (int i = 0; i < 2; i++) { /* in any order; not idle, not the wildcard */
		struct rdma_cm_event *ev = conf_next(ch, conf_ms(CONF_WAIT));

		MUST(ev);
		EQ(ev->event, RDMA_CM_EVENT_DEVICE_REMOVAL);
		EQ(ev->status, 0);
		CHECK(ev->id == addr || ev->id == route);
		OK(rdma_ack_cm_event(ev));
	}
	conf_quiet(ch, 100);
	check_dead(addr);
	check_dead(route);
	OK(rdma_destroy_id(addr));
	OK(rdma_destroy_id(route));
	OK(rdma_destroy_id(idle));
	conf_id_close(wild);
}

static void client(struct peer *me, void *arg)
{
	struct end c;

	(void)arg;
	end_join(&c, me);
	peer_say(me, 'e');
	conf_expect(c.ch, c.id, RDMA_CM_EVENT_DISCONNECTED);
	end_free(&c);
}

static void removal_disconnects_the_peer(void)
{
	struct peer p;

	enable();
	p = peer_start(client, NULL);
	end_serve(&e, &p);
	peer_hear(&p, 'e');
	hook("removal");
	conf_expect(e.ch, e.id, RDMA_CM_EVENT_DEVICE_REMOVAL);
	peer_end(&p);
	end_free(&e); /* destroying works */
}

static void rejected_client(struct peer *me, void *arg)
{
	struct rdma_cm_event *ev;
	struct end c;

	(void)arg;
	end_connect(&c, peer_hear_u32(me));
	MUST(ev = conf_next(c.ch, conf_ms(CONF_WAIT)));
	EQ(ev->event, RDMA_CM_EVENT_REJECTED);
	OK(rdma_ack_cm_event(ev));
	end_free(&c);
}

static void removal_rejects_waiting_requests(void)
{
	struct peer p;

	enable();
	p = peer_start(rejected_client, NULL);
	end_listen(&e, &p);
	end_request(&e);
	hook("removal");
	conf_quiet(e.ch, 50); /* a child has no events before accept */
	peer_end(&p);
	end_free(&e);
}

static void address_change(void)
{
	struct conf_pair c;

	enable();
	conf_pair_open(&c, NULL);
	hook("addr_change");
	conf_expect(c.ach, c.a, RDMA_CM_EVENT_ADDR_CHANGE);
	conf_expect(c.lch, c.p, RDMA_CM_EVENT_ADDR_CHANGE);
	conf_pair_close(&c); /* a hint only: the connection lives */
}

static const struct conf_case cases[] = {
	CASE(removal_reaches_every_bound_id),
	CASE(removal_disconnects_the_peer),
	CASE(removal_rejects_waiting_requests),
	CASE(address_change),
};

CONF_MAIN(cases)
