/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls that came after RDMACM_1.3: events that the application writes itself, and
 * address information that is resolved asynchronously. They are looked up at run time. */
#include "conf.h"

typedef int (*write_fn)(struct rdma_cm_id *id, int event, int status, uint64_t arg);
typedef int (*resolve_fn)(struct rdma_cm_id *id, const char *node, const char *service,
			  const struct rdma_addrinfo *hints);
typedef int (*query_fn)(struct rdma_cm_id *id, struct rdma_addrinfo **info);

static write_fn write_event;
static resolve_fn resolve;
static query_fn query;
static struct rdma_event_channel *ch;
static struct rdma_cm_id *id;
static char node[64];

static void start(void)
{
	conf_sa addr = conf_addr(AF_INET, 0);

	write_event = conf_new("rdma_write_cm_event");
	resolve = conf_new("rdma_resolve_addrinfo");
	query = conf_new("rdma_query_addrinfo");
	inet_ntop(AF_INET, &((struct sockaddr_in *)&addr)->sin_addr, node, sizeof(node));
	ch = conf_channel();
	id = conf_id(ch);
}

static uint64_t arg_of(const struct rdma_cm_event *ev)
{
	uint64_t arg;

	memcpy(&arg, &ev->param, sizeof(arg));
	return arg;
}

static void user_event(void)
{
	struct rdma_cm_event *ev;

	start();
	OK(write_event(id, CONF_EVENT_USER, -5, 0x1122334455667788));
	ev = conf_get_status(ch, id, CONF_EVENT_USER, -5);
	CHECK(arg_of(ev) == 0x1122334455667788);
	OK(rdma_ack_cm_event(ev));
	conf_id_close(id);
}

static void user_events_in_order(void)
{
	struct rdma_cm_event *ev;

	start();
	for (int i = 0; i < 100; i++)
		OK(write_event(id, CONF_EVENT_USER, 0, i));
	for (int i = 0; i < 100; i++) {
		ev = conf_get(ch, id, CONF_EVENT_USER);
		EQ(arg_of(ev), i);
		OK(rdma_ack_cm_event(ev));
	}
	conf_id_close(id);
}

static void user_events_die_with_the_id(void)
{
	struct rdma_cm_id *other;

	start();
	other = conf_id(ch);
	for (int i = 0; i < 10; i++) {
		OK(write_event(id, CONF_EVENT_USER, 0, i));
		OK(write_event(other, CONF_EVENT_USER, 0, i));
	}
	OK(rdma_destroy_id(id));
	for (int i = 0; i < 10; i++)
		conf_expect(ch, other, CONF_EVENT_USER);
	CHECK(!conf_readable(ch->fd));
	conf_id_close(other);
}

static void user_events_migrate_in_order(void)
{
	struct rdma_event_channel *to = conf_channel();
	struct rdma_cm_event *ev;
	struct rdma_cm_id *other;

	start();
	other = conf_id(ch);
	for (int i = 0; i < 20; i++) {
		OK(write_event(id, CONF_EVENT_USER, 0, i));
		OK(write_event(other, CONF_EVENT_USER, 0, 100 + i));
	}
	OK(rdma_migrate_id(id, to));
	for (int i = 0; i < 20; i++) {
		ev = conf_get(to, id, CONF_EVENT_USER);
		EQ(arg_of(ev), i);
		OK(rdma_ack_cm_event(ev));
		ev = conf_get(ch, other, CONF_EVENT_USER);
		EQ(arg_of(ev), 100 + i);
		OK(rdma_ack_cm_event(ev));
	}
	CHECK(!conf_readable(ch->fd) && !conf_readable(to->fd));
	conf_id_close(other);
	conf_id_close(id);
}

static void other_types_are_refused(void)
{
	start();
	ERR(write_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, 0), EINVAL);
	ERR(write_event(id, 19, 0, 0), EINVAL);
	ERR(write_event(id, 1000, 0, 0), EINVAL);
	ERR(write_event(NULL, CONF_EVENT_USER, 0, 0), EINVAL);
	CHECK(!conf_readable(ch->fd));
	conf_id_close(id);
}

static void addrinfo_resolved(void)
{
	struct rdma_addrinfo hints = { .ai_flags = CONF_RAI_DNS, .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *info = NULL;

	start();
	OK(resolve(id, node, "7471", &hints));
	conf_expect(ch, id, CONF_EVENT_ADDRINFO_RESOLVED);
	OK(query(id, &info));
	MUST(info);
	EQ(conf_sa_port(info->ai_dst_addr), 7471);
	rdma_freeaddrinfo(info);
	ERR(query(id, &info), ENOENT); /* handed over once */
	OK(resolve(id, node, "7472", &hints)); /* and again */
	conf_expect(ch, id, CONF_EVENT_ADDRINFO_RESOLVED);
	OK(query(id, &info));
	EQ(conf_sa_port(info->ai_dst_addr), 7472);
	rdma_freeaddrinfo(info);
	conf_id_close(id);
}

static void addrinfo_unfetched_dies_with_the_id(void)
{
	struct rdma_addrinfo hints = { .ai_flags = CONF_RAI_DNS, .ai_port_space = RDMA_PS_TCP };

	start();
	OK(resolve(id, node, "7471", &hints));
	conf_expect(ch, id, CONF_EVENT_ADDRINFO_RESOLVED);
	conf_id_close(id); /* a leak checker sees to the rest */
}

static void addrinfo_busy(void)
{
	struct rdma_addrinfo hints = { .ai_flags = CONF_RAI_DNS, .ai_port_space = RDMA_PS_TCP };

	start();
	OK(resolve(id, node, "7471", &hints));
	ERR(resolve(id, node, "7471", &hints), EBUSY);
	conf_expect(ch, id, CONF_EVENT_ADDRINFO_RESOLVED);
	ERR(resolve(id, node, "7471", &hints), EBUSY); /* until it was fetched */
	conf_id_close(id);
}

static void addrinfo_synchronous(void)
{
	struct rdma_addrinfo hints = { .ai_flags = CONF_RAI_DNS, .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *info;
	struct rdma_cm_id *sync;

	start();
	OK(rdma_create_id(NULL, &sync, NULL, RDMA_PS_TCP));
	OK(resolve(sync, node, "7471", &hints));
	MUST(sync->event);
	EQ(sync->event->event, CONF_EVENT_ADDRINFO_RESOLVED);
	OK(query(sync, &info));
	rdma_freeaddrinfo(info);
	OK(rdma_destroy_id(sync));
	conf_id_close(id);
}

static void addrinfo_bad_arguments(void)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *info;

	start();
	ERR(resolve(NULL, node, "1", &hints), EINVAL);
	ERR(query(NULL, &info), EINVAL);
	ERR(query(id, NULL), EINVAL);
	ERR(query(id, &info), ENOENT);
	hints.ai_flags = CONF_RAI_DNS | CONF_RAI_SA;
	ERR(resolve(id, NULL, "1", &hints), ENOTSUP);
	hints.ai_flags = CONF_RAI_SA;
	ERR(resolve(id, node, "1", &hints), ENOTSUP);
	ERR(resolve(id, NULL, NULL, &hints), EINVAL);
	conf_id_close(id);
}

static const struct conf_case cases[] = {
	CASE(user_event),
	CASE(user_events_in_order),
	CASE(user_events_die_with_the_id),
	CASE(user_events_migrate_in_order),
	CASE(other_types_are_refused),
	CASE(addrinfo_resolved),
	CASE(addrinfo_unfetched_dies_with_the_id),
	CASE(addrinfo_busy),
	CASE(addrinfo_synchronous),
	CASE(addrinfo_bad_arguments),
};

CONF_MAIN(cases)
