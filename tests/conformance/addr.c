/* SPDX-License-Identifier: BSD-2-Clause */
/* Binding, address and route resolution. */
#include "conf.h"

#include <grp.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/un.h>

static struct rdma_event_channel *ch;

static struct rdma_cm_id *new_id(void)
{
	if (!ch)
		ch = conf_channel();
	return conf_id(ch);
}

static void end(struct rdma_cm_id *a, struct rdma_cm_id *b)
{
	conf_id_free(b);
	conf_id_close(a);
}

static void check_unattached(struct rdma_cm_id *id)
{
	CHECK(!id->verbs && !id->pd);
	EQ(id->port_num, 0);
}

/* Bind. */

static void bind_null_address(void)
{
	struct rdma_cm_id *id = new_id();

	ERR(rdma_bind_addr(id, NULL), EINVAL);
	end(id, NULL);
}

static void bind_unknown_family(void)
{
	struct rdma_cm_id *id = new_id();
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	conf_sa none = { 0 };

	ERR(rdma_bind_addr(id, (struct sockaddr *)&un), EINVAL);
	ERR(rdma_bind_addr(id, SA(none)), EINVAL);
	end(id, NULL);
}

static void check_bound_nowhere(const char *text, int family)
{
	struct rdma_cm_id *id = new_id();
	conf_sa addr = conf_parse(text, 0);

	OK(rdma_bind_addr(id, SA(addr)));
	check_unattached(id);
	CHECK(rdma_get_src_port(id) != 0);
	EQ(rdma_get_local_addr(id)->sa_family, family);
	end(id, NULL);
}

static void bind_wildcard_attaches_no_device(void)
{
	check_bound_nowhere("0.0.0.0", AF_INET);
}

static void bind_loopback_attaches_no_device(void)
{
	check_bound_nowhere("127.0.0.1", AF_INET);
}

static void bind_loopback_net_attaches_no_device(void)
{
	check_bound_nowhere("127.7.7.7", AF_INET);
}

static void bind_wildcard6_attaches_no_device(void)
{
	conf_addr(AF_INET6, 0); /* skips without IPv6 */
	check_bound_nowhere("::", AF_INET6);
}

static void bind_loopback6_attaches_no_device(void)
{
	conf_addr(AF_INET6, 0);
	check_bound_nowhere("::1", AF_INET6);
}

static void bind_device_address_attaches(void)
{
	struct rdma_cm_id *id = new_id();
	conf_sa addr = conf_dev_addr(0);
	struct sockaddr_in *in = (void *)&addr;
	union ibv_gid *gid = &id->route.addr.addr.ibaddr.sgid;

	OK(rdma_bind_addr(id, SA(addr)));
	CHECK(id->verbs && id->pd);
	CHECK(id->pd->context == id->verbs);
	EQ(id->port_num, 1);
	CHECK(!memcmp(&id->route.addr.src_sin.sin_addr, &in->sin_addr, 4));
	CHECK(gid->raw[10] == 0xff && gid->raw[11] == 0xff);
	CHECK(!memcmp(gid->raw + 12, &in->sin_addr, 4));
	end(id, NULL);
}

/* Ethernet interfaces have no partition of their own. */
static void pkey_of_the_address_is_zero(void)
{
	struct rdma_cm_id *id;

	ch = conf_channel();
	id = conf_addr_resolved(ch, conf_addr(AF_INET, 7000));
	EQ(id->route.addr.addr.ibaddr.pkey, 0);
	end(id, NULL);
}

static void bind_port_zero_chooses(void)
{
	struct rdma_cm_id *a = new_id(), *b = new_id();
	conf_sa addr = conf_addr(AF_INET, 0);

	OK(rdma_bind_addr(a, SA(addr)));
	OK(rdma_bind_addr(b, SA(addr)));
	CHECK(ntohs(rdma_get_src_port(a)) >= 1024);
	CHECK(ntohs(rdma_get_src_port(b)) >= 1024);
	CHECK(rdma_get_src_port(a) != rdma_get_src_port(b));
	EQ(conf_sa_port(rdma_get_local_addr(a)), ntohs(rdma_get_src_port(a)));
	end(a, b);
}

static void bind_fixed_port(void)
{
	struct rdma_cm_id *id = new_id();
	conf_sa addr = conf_addr(AF_INET, conf_port(1));

	OK(rdma_bind_addr(id, SA(addr)));
	EQ(ntohs(rdma_get_src_port(id)), conf_port(1));
	EQ(rdma_get_dst_port(id), 0);
	end(id, NULL);
}

static void bind_twice(void)
{
	struct rdma_cm_id *id = new_id();
	conf_sa a = conf_addr(AF_INET, conf_port(2)), b = conf_addr(AF_INET, conf_port(3));

	OK(rdma_bind_addr(id, SA(a)));
	ERR(rdma_bind_addr(id, SA(b)), EINVAL);
	EQ(ntohs(rdma_get_src_port(id)), conf_port(2));
	end(id, NULL);
}

static void bind_after_failure(void)
{
	struct rdma_cm_id *id = new_id();
	conf_sa bad = conf_parse("192.0.2.1", 0), good = conf_addr(AF_INET, 0);

	ERR(rdma_bind_addr(id, SA(bad)), EADDRNOTAVAIL);
	OK(rdma_bind_addr(id, SA(good)));
	end(id, NULL);
}

static void bind_foreign_address(void)
{
	struct rdma_cm_id *id = new_id();
	conf_sa addr = conf_parse("192.0.2.1", conf_port(4));

	ERR(rdma_bind_addr(id, SA(addr)), EADDRNOTAVAIL);
	check_unattached(id);
	end(id, NULL);
}

static void bind_foreign_address6(void)
{
	struct rdma_cm_id *id = new_id();
	conf_sa addr = conf_parse("2001:db8::1", conf_port(5));

	conf_addr(AF_INET6, 0);
	ERR(rdma_bind_addr(id, SA(addr)), EADDRNOTAVAIL);
	end(id, NULL);
}

/* One id is bound to the first address; another cannot be bound to the second then. */
static void check_second_bind(conf_sa first, conf_sa second, int error)
{
	struct rdma_cm_id *a = new_id(), *b = new_id();

	OK(rdma_bind_addr(a, SA(first)));
	ERR(rdma_bind_addr(b, SA(second)), error);
	end(a, b);
}

static void bind_same_address_and_port(void)
{
	conf_sa addr = conf_dev_addr(conf_port(6));

	check_second_bind(addr, addr, EADDRINUSE);
}

/* Loopback is a wildcard to the port table: it is on every device. */
static void bind_same_loopback_and_port(void)
{
	conf_sa addr = conf_parse("127.0.0.1", conf_port(18));

	check_second_bind(addr, addr, EADDRNOTAVAIL);
}

static void bind_same_wildcard_and_port(void)
{
	conf_sa any = conf_any(AF_INET, conf_port(7));

	check_second_bind(any, any, EADDRNOTAVAIL);
}

static void bind_specific_when_wildcard_is_held(void)
{
	check_second_bind(conf_any(AF_INET, conf_port(8)),
			  conf_addr(AF_INET, conf_port(8)), EADDRNOTAVAIL);
}

static void bind_wildcard_when_specific_is_held(void)
{
	check_second_bind(conf_addr(AF_INET, conf_port(9)),
			  conf_any(AF_INET, conf_port(9)), EADDRNOTAVAIL);
}

/* Without AFONLY an IPv6 wildcard covers IPv4. */
static void bind_wildcard6_covers_wildcard4(void)
{
	FILE *f = fopen("/proc/sys/net/ipv6/bindv6only", "r");
	int only = 0;

	conf_addr(AF_INET6, 0);
	if (f && fscanf(f, "%d", &only) == 1 && only)
		SKIP("net.ipv6.bindv6only is 1");
	if (f)
		fclose(f);
	check_second_bind(conf_any(AF_INET6, conf_port(10)),
			  conf_any(AF_INET, conf_port(10)), EADDRNOTAVAIL);
}

static void bind_wildcard6_afonly_beside_wildcard4(void)
{
	struct rdma_cm_id *a = new_id(), *b = new_id();
	conf_sa v6 = conf_any(AF_INET6, conf_port(11)), v4 = conf_any(AF_INET, conf_port(11));
	int one = 1;

	conf_addr(AF_INET6, 0);
	OK(rdma_set_option(a, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &one, sizeof(one)));
	OK(rdma_bind_addr(a, SA(v6)));
	OK(rdma_bind_addr(b, SA(v4)));
	end(a, b);
}

static void bind_same_port_in_other_port_space(void)
{
	struct rdma_cm_id *a = new_id(), *b;
	conf_sa addr = conf_addr(AF_INET, conf_port(12));

	OK(rdma_create_id(ch, &b, NULL, RDMA_PS_UDP));
	OK(rdma_bind_addr(a, SA(addr)));
	OK(rdma_bind_addr(b, SA(addr)));
	end(a, b);
}

static void bind_does_not_meet_tcp_ports(void)
{
	struct rdma_cm_id *id = new_id();
	conf_sa addr = conf_addr(AF_INET, conf_port(13));
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	OK(bind(fd, SA(addr), sizeof(struct sockaddr_in)));
	OK(listen(fd, 1));
	OK(rdma_bind_addr(id, SA(addr)));
	OK(rdma_listen(id, 1));
	close(fd);
	end(id, NULL);
}

static void reuseaddr(struct rdma_cm_id *id)
{
	int one = 1;

	OK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &one, sizeof(one)));
}

static void bind_reuseaddr_both(void)
{
	struct rdma_cm_id *a = new_id(), *b = new_id();
	conf_sa addr = conf_dev_addr(conf_port(14));

	reuseaddr(a);
	reuseaddr(b);
	OK(rdma_bind_addr(a, SA(addr)));
	OK(rdma_bind_addr(b, SA(addr)));
	ERR(rdma_listen(a, 1), EADDRINUSE); /* the port must be unique now */
	end(a, b);
}

static void bind_reuseaddr_one_only(void)
{
	struct rdma_cm_id *a = new_id(), *b = new_id();
	conf_sa addr = conf_dev_addr(conf_port(15));

	OK(rdma_bind_addr(a, SA(addr)));
	reuseaddr(b);
	ERR(rdma_bind_addr(b, SA(addr)), EADDRINUSE);
	end(a, b);
}

static void bind_reuseaddr_beside_listener(void)
{
	struct rdma_cm_id *a = new_id(), *b = new_id();
	conf_sa addr = conf_dev_addr(conf_port(16));

	reuseaddr(a);
	reuseaddr(b);
	OK(rdma_bind_addr(a, SA(addr)));
	OK(rdma_listen(a, 1));
	ERR(rdma_bind_addr(b, SA(addr)), EADDRINUSE);
	end(a, b);
}

static void bind_link_local_without_scope(void)
{
	struct rdma_cm_id *id = new_id();
	conf_sa addr = conf_parse("fe80::1", conf_port(17));

	conf_addr(AF_INET6, 0);
	ERR(rdma_bind_addr(id, SA(addr)), EINVAL);
	end(id, NULL);
}

static int first_open_port(void)
{
	FILE *f = fopen("/proc/sys/net/ipv4/ip_unprivileged_port_start", "r");
	int n = 1024;

	if (f && fscanf(f, "%d", &n) != 1)
		n = 1024;
	if (f)
		fclose(f);
	return n;
}

static void bind_privileged_port_without_right(void)
{
	struct rdma_cm_id *id;
	conf_sa addr = conf_addr(AF_INET, 777);

	if (first_open_port() <= 777)
		SKIP("net.ipv4.ip_unprivileged_port_start is low");
	if (geteuid() == 0) {
		OK(setgroups(0, NULL));
		OK(setresgid(65534, 65534, 65534));
		OK(setresuid(65534, 65534, 65534));
	}
	ch = rdma_create_event_channel();
	if (!ch)
		SKIP("an unprivileged user may not open a channel: %s", strerror(errno));
	id = conf_id(ch);
	ERR(rdma_bind_addr(id, SA(addr)), EACCES);
	end(id, NULL);
}

static void bind_privileged_port_as_root(void)
{
	/* Not the one of the same case on another transport, which runs at the same
	 * time. */
	uint16_t port = 700 + conf_port(0) / 200 % 300;
	conf_sa addr = conf_addr(AF_INET, port);
	struct rdma_cm_id *id;

	if (geteuid())
		SKIP("not root");
	id = new_id();
	OK(rdma_bind_addr(id, SA(addr)));
	EQ(ntohs(rdma_get_src_port(id)), port);
	end(id, NULL);
}

/* Resolve address. */

static void resolve_null_destination(void)
{
	struct rdma_cm_id *id = new_id();

	ERR(rdma_resolve_addr(id, NULL, NULL, 1000), EINVAL);
	end(id, NULL);
}

static void resolve_unknown_family(void)
{
	struct rdma_cm_id *id = new_id();
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	conf_sa dst = conf_addr(AF_INET, 7000);

	ERR(rdma_resolve_addr(id, NULL, (struct sockaddr *)&un, 1000), EINVAL);
	ERR(rdma_resolve_addr(id, (struct sockaddr *)&un, SA(dst), 1000), EINVAL);
	end(id, NULL);
}

static void resolve_families_differ(void)
{
	struct rdma_cm_id *id = new_id();
	conf_sa src = conf_addr(AF_INET, 0), dst = conf_addr(AF_INET6, 7000);

	ERR(rdma_resolve_addr(id, SA(src), SA(dst), 1000), EINVAL);
	end(id, NULL);
}

static void check_resolved(int family)
{
	struct rdma_cm_id *id = new_id();
	conf_sa dst = conf_addr(family, 7001);
	size_t len = family == AF_INET ? sizeof(struct sockaddr_in) :
					 sizeof(struct sockaddr_in6);
	struct rdma_cm_event *ev;

	OK(rdma_resolve_addr(id, NULL, SA(dst), 2000));
	CHECK(!memcmp(rdma_get_peer_addr(id), &dst, len)); /* already now */
	EQ(ntohs(rdma_get_dst_port(id)), 7001);
	WAIT_FOR(conf_readable(ch->fd));
	check_unattached(id); /* the device comes with the event */
	ev = conf_get(ch, id, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(id->verbs && id->pd && id->pd->context == id->verbs);
	EQ(id->port_num, 1);
	CHECK(!memcmp(rdma_get_peer_addr(id), &dst, len));
	EQ(rdma_get_local_addr(id)->sa_family, family);
	CHECK(!id->route.path_rec);
	OK(rdma_ack_cm_event(ev));
	end(id, NULL);
}

static void resolve_fills_the_id(void)
{
	check_resolved(AF_INET);
}

static void resolve_fills_the_id6(void)
{
	check_resolved(AF_INET6);
}

static void resolve_chooses_the_source(void)
{
	conf_sa dst = conf_addr(AF_INET, 7001);
	struct rdma_cm_id *id;
	union ibv_gid *gid;

	ch = conf_channel();
	id = conf_addr_resolved(ch, dst);
	/* To an address of its own a host talks from that address. */
	CHECK(!memcmp(&id->route.addr.src_sin.sin_addr,
		      &((struct sockaddr_in *)&dst)->sin_addr, 4));
	gid = &id->route.addr.addr.ibaddr.sgid;
	CHECK(!memcmp(gid->raw + 12, &((struct sockaddr_in *)&dst)->sin_addr, 4));
	CHECK(!memcmp(gid, &id->route.addr.addr.ibaddr.dgid, 16));
	end(id, NULL);
}

static void resolve_gives_a_source_port(void)
{
	struct rdma_cm_id *id;

	ch = conf_channel();
	id = conf_addr_resolved(ch, conf_addr(AF_INET, 7001));
	CHECK(rdma_get_src_port(id) != 0);
	end(id, NULL);
}

static void resolve_shares_device_and_pd(void)
{
	conf_sa dst = conf_addr(AF_INET, 7001);
	struct ibv_context **list;
	struct rdma_cm_id *a, *b;
	int n;

	ch = conf_channel();
	a = conf_addr_resolved(ch, dst);
	b = conf_addr_resolved(ch, dst);
	CHECK(a->verbs == b->verbs && a->pd == b->pd);
	MUST(list = rdma_get_devices(&n));
	CHECK(n >= 1 && !list[n]);
	CHECK(list[0] == a->verbs || n > 1);
	rdma_free_devices(list);
	end(a, b);
}

static void resolve_twice(void)
{
	struct rdma_cm_id *id = new_id();
	conf_sa dst = conf_addr(AF_INET, 7000);

	OK(rdma_resolve_addr(id, NULL, SA(dst), 2000));
	ERR(rdma_resolve_addr(id, NULL, SA(dst), 2000), EINVAL); /* under way */
	conf_expect(ch, id, RDMA_CM_EVENT_ADDR_RESOLVED);
	ERR(rdma_resolve_addr(id, NULL, SA(dst), 2000), EINVAL); /* done */
	conf_quiet(ch, 100);
	end(id, NULL);
}

static void resolve_with_source(void)
{
	struct rdma_cm_id *id = new_id();
	conf_sa src = conf_addr(AF_INET, conf_port(20)), dst = conf_addr(AF_INET, 7000);

	OK(rdma_resolve_addr(id, SA(src), SA(dst), 2000));
	conf_expect(ch, id, RDMA_CM_EVENT_ADDR_RESOLVED);
	EQ(ntohs(rdma_get_src_port(id)), conf_port(20));
	end(id, NULL);
}

static void resolve_with_foreign_source(void)
{
	struct rdma_cm_id *id = new_id();
	conf_sa src = conf_parse("192.0.2.1", 0), dst = conf_addr(AF_INET, 7000);

	ERR(rdma_resolve_addr(id, SA(src), SA(dst), 2000), EADDRNOTAVAIL);
	end(id, NULL);
}

static void resolve_bound_id_ignores_source(void)
{
	struct rdma_cm_id *id = new_id();
	conf_sa own = conf_addr(AF_INET, conf_port(21));
	conf_sa src = conf_addr(AF_INET, conf_port(22)), dst = conf_addr(AF_INET, 7000);

	OK(rdma_bind_addr(id, SA(own)));
	OK(rdma_resolve_addr(id, SA(src), SA(dst), 2000));
	conf_expect(ch, id, RDMA_CM_EVENT_ADDR_RESOLVED);
	EQ(ntohs(rdma_get_src_port(id)), conf_port(21));
	end(id, NULL);
}

static bool no_route(conf_sa dst, int *err)
{
	int fd = socket(dst.ss_family, SOCK_DGRAM, 0);
	int ret = fd < 0 ? 0 : connect(fd, SA(dst), sizeof(dst));

	*err = errno;
	if (fd >= 0)
		close(fd);
	return ret && (*err == ENETUNREACH || *err == EHOSTUNREACH);
}

/* A network namespace with nothing but loopback; before any use of the library. */
static bool alone(void)
{
	struct ifreq ifr = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	conf_sa addr = conf_addr(AF_INET, 0);
	int fd, ret;

	if (conf_original() || ((uint8_t *)&addr)[4] != 127 || unshare(CLONE_NEWNET))
		return false;
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	ret = ioctl(fd, SIOCSIFFLAGS, &ifr);
	close(fd);
	return !ret;
}

/* An address to which this host has no route, and what the kernel says of it. */
static conf_sa unroutable(int *err)
{
	conf_sa v4 = conf_parse("192.0.2.1", 7000), v6 = conf_parse("2001:db8::1", 7000);

	if (no_route(v4, err))
		return v4;
	if (no_route(v6, err))
		return v6;
	if (alone() && no_route(v4, err))
		return v4;
	SKIP("this host has a route to everywhere");
}

static void resolve_unroutable(void)
{
	int err;
	conf_sa dst = unroutable(&err);
	struct rdma_cm_id *id = new_id();

	ERR(rdma_resolve_addr(id, NULL, SA(dst), 1000), err);
	conf_quiet(ch, 100);
	end(id, NULL);
}

static void resolve_again_after_failure(void)
{
	int err;
	conf_sa bad = unroutable(&err), dst = conf_addr(AF_INET, 7000);
	struct rdma_cm_id *id = new_id();

	ERR(rdma_resolve_addr(id, NULL, SA(bad), 1000), err);
	if (bad.ss_family != dst.ss_family)
		dst = conf_addr(bad.ss_family, 7000);
	OK(rdma_resolve_addr(id, NULL, SA(dst), 2000));
	conf_expect(ch, id, RDMA_CM_EVENT_ADDR_RESOLVED);
	end(id, NULL);
}

static void resolve_synchronous(void)
{
	struct rdma_cm_id *id;
	conf_sa dst = conf_addr(AF_INET, 7000);

	OK(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	OK(rdma_resolve_addr(id, NULL, SA(dst), 2000));
	CHECK(id->event && id->verbs);
	EQ(id->event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
	OK(rdma_resolve_route(id, 2000));
	EQ(id->event->event, RDMA_CM_EVENT_ROUTE_RESOLVED);
	EQ(id->route.num_paths, conf_iwarp() ? 0 : 1);
	OK(rdma_destroy_id(id)); /* acknowledges id->event */
}

static void resolve_synchronous_nonblocking(void)
{
	struct rdma_cm_id *id;
	conf_sa dst = conf_addr(AF_INET, 7000);

	OK(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	conf_nonblock(id->channel->fd, true);
	if (rdma_resolve_addr(id, NULL, SA(dst), 2000)) {
		EQ(errno, EAGAIN); /* under way */
		conf_expect(id->channel, id, RDMA_CM_EVENT_ADDR_RESOLVED);
	}
	CHECK(id->verbs);
	OK(rdma_destroy_id(id));
}

/* Resolve route. */

static void route_before_address(void)
{
	struct rdma_cm_id *id;

	if (conf_original())
		SKIP("crashes the original");
	id = new_id();
	ERR(rdma_resolve_route(id, 1000), EINVAL);
	end(id, NULL);
}

static void route_when_only_bound(void)
{
	struct rdma_cm_id *id = new_id();
	conf_sa addr = conf_dev_addr(0);

	OK(rdma_bind_addr(id, SA(addr)));
	ERR(rdma_resolve_route(id, 1000), EINVAL);
	end(id, NULL);
}

static void route_timeout_zero(void)
{
	struct rdma_cm_id *id;

	ch = conf_channel();
	id = conf_addr_resolved(ch, conf_addr(AF_INET, 7000));
	ERR(rdma_resolve_route(id, 0), EINVAL);
	OK(rdma_resolve_route(id, 1000)); /* nothing was spoilt */
	conf_expect(ch, id, RDMA_CM_EVENT_ROUTE_RESOLVED);
	end(id, NULL);
}

static void route_twice(void)
{
	struct rdma_cm_id *id;

	ch = conf_channel();
	id = conf_addr_resolved(ch, conf_addr(AF_INET, 7000));
	OK(rdma_resolve_route(id, 1000));
	conf_expect(ch, id, RDMA_CM_EVENT_ROUTE_RESOLVED);
	ERR(rdma_resolve_route(id, 1000), EINVAL);
	end(id, NULL);
}

static void route_fills_the_path(void)
{
	struct rdma_cm_id *id;
	struct ibv_sa_path_rec *path;
	struct ibv_port_attr port;

	ch = conf_channel();
	id = conf_addr_resolved(ch, conf_addr(AF_INET, 7000));
	CHECK(!id->route.path_rec && !id->route.num_paths);
	OK(rdma_resolve_route(id, 1000));
	conf_expect(ch, id, RDMA_CM_EVENT_ROUTE_RESOLVED);
	EQ(id->route.num_paths, conf_iwarp() ? 0 : 1);
	MUST(path = id->route.path_rec);
	CHECK(!memcmp(&path->sgid, &id->route.addr.addr.ibaddr.sgid, 16));
	CHECK(!memcmp(&path->dgid, &id->route.addr.addr.ibaddr.dgid, 16));
	EQ(ntohs(path->pkey), 0xffff);
	EQ(path->numb_path, 1);
	EQ(path->mtu_selector, 2);
	EQ(path->rate_selector, 2);
	EQ(path->packet_life_time_selector, 2);
	OK(ibv_query_port(id->verbs, id->port_num, &port));
	EQ(path->mtu, port.active_mtu);
	CHECK(path->reversible);
	end(id, NULL);
}

static const struct conf_case cases[] = {
	CASE(bind_null_address),
	CASE(bind_unknown_family),
	CASE(bind_wildcard_attaches_no_device),
	CASE(bind_loopback_attaches_no_device),
	CASE(bind_loopback_net_attaches_no_device),
	CASE(bind_wildcard6_attaches_no_device),
	CASE(bind_loopback6_attaches_no_device),
	CASE(bind_device_address_attaches),
	CASE(pkey_of_the_address_is_zero),
	CASE(bind_port_zero_chooses),
	CASE(bind_fixed_port),
	CASE(bind_twice),
	CASE(bind_after_failure),
	CASE(bind_foreign_address),
	CASE(bind_foreign_address6),
	CASE(bind_same_address_and_port),
	CASE(bind_same_loopback_and_port),
	CASE(bind_same_wildcard_and_port),
	CASE(bind_specific_when_wildcard_is_held),
	CASE(bind_wildcard_when_specific_is_held),
	CASE(bind_wildcard6_covers_wildcard4),
	CASE(bind_wildcard6_afonly_beside_wildcard4),
	CASE(bind_same_port_in_other_port_space),
	CASE(bind_does_not_meet_tcp_ports),
	CASE(bind_reuseaddr_both),
	CASE(bind_reuseaddr_one_only),
	CASE(bind_reuseaddr_beside_listener),
	CASE(bind_link_local_without_scope),
	CASE(bind_privileged_port_without_right),
	CASE(bind_privileged_port_as_root),
	CASE(resolve_null_destination),
	CASE(resolve_unknown_family),
	CASE(resolve_families_differ),
	CASE(resolve_fills_the_id),
	CASE(resolve_fills_the_id6),
	CASE(resolve_chooses_the_source),
	CASE(resolve_gives_a_source_port),
	CASE(resolve_shares_device_and_pd),
	CASE(resolve_twice),
	CASE(resolve_with_source),
	CASE(resolve_with_foreign_source),
	CASE(resolve_bound_id_ignores_source),
	CASE(resolve_unroutable),
	CASE(resolve_again_after_failure),
	CASE(resolve_synchronous),
	CASE(resolve_synchronous_nonblocking),
	CASE(route_before_address),
	CASE(route_when_only_bound),
	CASE(route_timeout_zero),
	CASE(route_twice),
	CASE(route_fills_the_path),
};

CONF_MAIN(cases)
