/* SPDX-License-Identifier: BSD-2-Clause */
/* Addresses and interfaces that come and go: the events GID_CHANGE, PORT_ERR and
 * PORT_ACTIVE, and what the queries return afterwards. Each case has a network namespace
 * of its own, with lo alone. */
#include "lab.h"
#include "side.h"

#include <sched.h>
#include <sys/wait.h>

static struct ibv_context *other;

static void run(const char *cmd)
{
	int r = system(cmd);

	if (!WIFEXITED(r) || WEXITSTATUS(r))
		SKIP("%s does not work here", cmd);
}

static void network(void)
{
	if (unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET))
		SKIP("no network namespace: %s", strerror(errno));
	run("ip link set lo up");
	setenv("CONF_ADDR", "127.0.0.1", 1);
	open_device();
	if (!conf_user_device())
		SKIP("of the user-space device");
	MUST(other = ibv_open_device(dev.ctx->device));
}

static void done(void)
{
	OK(ibv_close_device(other));
	close_device();
}

/* Both contexts are told. Others may come in between. */
static void expect(enum ibv_event_type type)
{
	struct ibv_context *both[] = { dev.ctx, other };

	for (int i = 0; i < 2; i++) {
		struct pollfd fd = { .fd = both[i]->async_fd, .events = POLLIN };
		struct ibv_async_event ev;

		do {
			AT(ibv_event_type_str(type));
			if (poll(&fd, 1, conf_ms(CONF_WAIT)) != 1)
				FAIL("no event, wanted %s", ibv_event_type_str(type));
			OK(ibv_get_async_event(both[i], &ev));
			EQ(ev.element.port_num, 1);
			ibv_ack_async_event(&ev);
		} while (ev.event_type != type);
	}
}

static void silence(void)
{
	struct pollfd fd = { .fd = dev.ctx->async_fd, .events = POLLIN };

	while (poll(&fd, 1, 100) == 1) {
		struct ibv_async_event ev;

		OK(ibv_get_async_event(dev.ctx, &ev));
		ibv_ack_async_event(&ev);
	}
	fd.fd = other->async_fd;
	while (poll(&fd, 1, 0) == 1) {
		struct ibv_async_event ev;

		OK(ibv_get_async_event(other, &ev));
		ibv_ack_async_event(&ev);
	}
}

/* Slot of an IPv4 address, or -1. */
static int slot(const char *addr)
{
	union ibv_gid want = { .raw = { [10] = 0xff, [11] = 0xff } }, g;

	CHECK(inet_pton(AF_INET, addr, want.raw + 12) == 1);
	for (int i = 0; i < dev.port.gid_tbl_len; i++) {
		OK(ibv_query_gid(dev.ctx, 1, i, &g));
		if (!memcmp(&g, &want, 16))
			return i;
	}
	return -1;
}

static enum ibv_port_state state(void)
{
	struct ibv_port_attr a;

	OK(ibv_query_port(dev.ctx, 1, &a));
	return a.state;
}

static void addresses(void)
{
	struct ibv_gid_entry e;
	int lo, first, second;

	network();
	lo = slot("127.0.0.1");
	CHECK(lo >= 0);
	run("ip addr add 10.9.9.9/32 dev lo");
	expect(IBV_EVENT_GID_CHANGE);
	first = slot("10.9.9.9");
	CHECK(first >= 0);
	EQ(slot("127.0.0.1"), lo);
	run("ip addr add 10.9.9.10/32 dev lo");
	expect(IBV_EVENT_GID_CHANGE);
	second = slot("10.9.9.10");
	CHECK(second >= 0 && second != first);
	/* What goes leaves a hole; the others stay where they are. */
	run("ip addr del 10.9.9.9/32 dev lo");
	expect(IBV_EVENT_GID_CHANGE);
	EQ(slot("10.9.9.9"), -1);
	EQ(slot("10.9.9.10"), second);
	EQ(slot("127.0.0.1"), lo);
	EQ(ibv_query_gid_ex(dev.ctx, 1, (uint32_t)first, &e, 0), ENODATA);
	run("ip addr add 10.9.9.9/32 dev lo");
	expect(IBV_EVENT_GID_CHANGE);
	CHECK(slot("10.9.9.9") >= 0);
	EQ(state(), IBV_PORT_ACTIVE);
	done();
}

static void links(void)
{
	network();
	EQ(state(), IBV_PORT_ACTIVE);
	for (int i = 0; i < 3; i++) {
		run("ip link set lo down");
		expect(IBV_EVENT_PORT_ERR);
		EQ(state(), IBV_PORT_DOWN);
		silence();
		run("ip link set lo up");
		expect(IBV_EVENT_PORT_ACTIVE);
		EQ(state(), IBV_PORT_ACTIVE);
		silence();
	}
	done();
}

/* A connection over an address that stays does not notice. */
static void traffic_goes_on(void)
{
	struct side x, y;

	network();
	x = side(1);
	y = side(2);
	join(&x, &y);
	for (uint32_t i = 0; i < 5; i++) {
		exchange(&x, &y, i);
		run("ip addr add 10.9.9.9/32 dev lo");
		expect(IBV_EVENT_GID_CHANGE);
		exchange(&y, &x, i);
		run("ip addr del 10.9.9.9/32 dev lo");
		expect(IBV_EVENT_GID_CHANGE);
	}
	side_free(&x);
	side_free(&y);
	done();
}

static const struct conf_case cases[] = {
	CASE(addresses),
	CASE(links),
	CASE(traffic_goes_on),
};

CONF_MAIN(cases)
