/* SPDX-License-Identifier: BSD-2-Clause */
#include "dev/gid_table.h"
#include "dev/gid.h"
#include "tests/t.h"

#include <arpa/inet.h>
#include <linux/if_addr.h>
#include <net/if.h>

static struct nl_addr addrs[300];
static struct nl_link links[8];
static struct nl_host host;
static struct gid_table table;

static void reset(void)
{
	memset(&table, 0, sizeof(table));
	memset(&host, 0, sizeof(host));
	host.addrs = addrs;
	host.links = links;
}

/* The one device's table. */
static int merge(const char *addr)
{
	return gid_table_merge(&table, &host,
			       &(struct gid_share){ .addr = addr, .devices = 1 });
}

static void add_link(uint32_t ifindex, const char *name, uint32_t flags, uint32_t mtu)
{
	struct nl_link *l = &links[host.nlinks++];

	*l = (struct nl_link){ .ifindex = ifindex, .flags = flags, .mtu = mtu };
	strcpy(l->name, name);
}

static void add_addr(const char *text, uint32_t ifindex)
{
	struct nl_addr *a = &addrs[host.naddrs++];

	memset(a, 0, sizeof(*a));
	a->ifindex = ifindex;
	a->family = strchr(text, ':') ? AF_INET6 : AF_INET;
	CHECK_EQ(inet_pton(a->family, text, a->addr), 1);
}

/* eth0 without, eth1 with the default route; loopback first, as the kernel has it */
static void typical(void)
{
	reset();
	add_link(1, "lo", IFF_UP | IFF_RUNNING | IFF_LOOPBACK, 65536);
	add_link(2, "eth0", IFF_UP | IFF_RUNNING, 1500);
	add_link(3, "eth1", IFF_UP | IFF_RUNNING, 9000);
	add_addr("127.0.0.1", 1);
	add_addr("::1", 1);
	add_addr("fe80::2", 2);
	add_addr("2001:db8::2", 2);
	add_addr("192.0.2.2", 2);
	add_addr("169.254.7.7", 2);
	add_addr("198.51.100.3", 3);
	add_addr("fe80::2", 3);
	host.default_ifindex = 3;
}

/* The slot's address as text; "" for a hole. */
static const char *at(unsigned i)
{
	static char text[INET6_ADDRSTRLEN];
	static const union ibv_gid zero;
	const union ibv_gid *g = &table.slot[i].gid;

	if (!memcmp(g, &zero, sizeof(zero)))
		return "";
	if (gid_is_v4(g))
		return inet_ntop(AF_INET, g->raw + 12, text, sizeof(text));
	return inet_ntop(AF_INET6, g->raw, text, sizeof(text));
}

#define CHECK_AT(i, text) CHECK(!strcmp(at(i), text))

static void order_of_classes(void)
{
	typical();
	CHECK(merge(NULL));
	CHECK_EQ(table.count, 8);
	CHECK_AT(0, "198.51.100.3");
	CHECK_AT(1, "192.0.2.2");
	CHECK_AT(2, "2001:db8::2");
	CHECK_AT(3, "169.254.7.7");
	CHECK_AT(4, "fe80::2");
	CHECK_EQ(table.slot[4].ifindex, 2);
	CHECK_AT(5, "fe80::2");
	CHECK_EQ(table.slot[5].ifindex, 3);
	CHECK_AT(6, "127.0.0.1");
	CHECK_AT(7, "::1");
	CHECK(table.slot[6].loopback && table.slot[7].loopback &&
	      !table.slot[0].loopback);
	CHECK(table.port_active);
	CHECK(!merge(NULL));
}

static void vanished_addresses_leave_holes(void)
{
	typical();
	merge(NULL);
	/* 192.0.2.2 goes, a new address comes: no slot moves. */
	inet_pton(AF_INET, "192.0.2.9", addrs[4].addr);
	CHECK(merge(NULL));
	CHECK_AT(1, "");
	CHECK_AT(2, "2001:db8::2");
	CHECK_AT(8, "192.0.2.9");
	CHECK_EQ(table.count, 9);
	/* Back again: its own slot. */
	inet_pton(AF_INET, "192.0.2.2", addrs[4].addr);
	CHECK(merge(NULL));
	CHECK_AT(1, "192.0.2.2");
	CHECK_AT(8, "");
	CHECK_EQ(table.count, 9);
}

static void interface_down_and_tentative_do_not_count(void)
{
	typical();
	links[1].flags = 0;
	addrs[7].flags = IFA_F_TENTATIVE;
	merge(NULL);
	CHECK_EQ(table.count, 3);
	CHECK_AT(0, "198.51.100.3");
	CHECK_AT(1, "127.0.0.1");
	addrs[7].flags = IFA_F_TENTATIVE | IFA_F_OPTIMISTIC;
	CHECK(merge(NULL));
	CHECK_AT(3, "fe80::2");
}

static void list_restricts(void)
{
	typical();
	merge("::1,192.0.2.2");
	CHECK_EQ(table.count, 2);
	CHECK_AT(0, "192.0.2.2");
	CHECK_AT(1, "::1");
	typical();
	merge("eth1");
	CHECK_EQ(table.count, 2);
	CHECK_AT(0, "198.51.100.3");
	CHECK_AT(1, "fe80::2");
	typical();
	merge("2001:DB8:0::2");
	CHECK_EQ(table.count, 1);
	typical();
	merge("203.0.113.1");
	CHECK_EQ(table.count, 0);
	CHECK(!table.port_active);
}

static void more_addresses_than_slots(void)
{
	char text[32];

	reset();
	add_link(1, "lo", IFF_UP | IFF_LOOPBACK, 65536);
	add_link(2, "eth0", IFF_UP, 1500);
	for (int i = 0; i < 260; i++) {
		snprintf(text, sizeof(text), "10.0.%d.%d", i / 200, i % 200 + 1);
		add_addr(text, 2);
	}
	merge(NULL);
	CHECK_EQ(table.count, DEV_GIDS);
	CHECK_AT(255, "10.0.1.56");
	CHECK(!table.port_active);
	/* With all slots given out, holes are used again. */
	host.naddrs = 256;
	inet_pton(AF_INET, "10.9.9.9", addrs[7].addr);
	CHECK(merge(NULL));
	CHECK_AT(7, "10.9.9.9");
}

static struct gid_table several[4];

/* The tables of n devices; *deal is kept from one reading to the next. */
static void merge_all(struct gid_deal *deal, const char *addr, unsigned n)
{
	gid_deal(deal, &host, addr, n);
	for (unsigned i = 0; i < n; i++)
		gid_table_merge(&several[i], &host,
				&(struct gid_share){ addr, deal, i, n });
}

static void of_several(unsigned device)
{
	table = several[device];
}

static void interfaces_are_dealt(void)
{
	struct gid_deal deal = { 0 };

	typical();
	memset(several, 0, sizeof(several));
	merge_all(&deal, NULL, 2);
	CHECK(!deal.all);
	of_several(0); /* the default route's */
	CHECK_EQ(table.count, 4);
	CHECK_AT(0, "198.51.100.3");
	CHECK_AT(1, "fe80::2");
	CHECK_AT(2, "127.0.0.1");
	of_several(1);
	CHECK_AT(0, "192.0.2.2");
	CHECK_AT(1, "2001:db8::2");
	CHECK_AT(2, "169.254.7.7");
	CHECK_AT(4, "127.0.0.1");
	CHECK_EQ(table.count, 6);
	/* A third interface comes: the others stay where they are. */
	add_link(4, "eth2", IFF_UP | IFF_RUNNING, 1500);
	add_addr("203.0.113.4", 4);
	host.default_ifindex = 4;
	merge_all(&deal, NULL, 2);
	of_several(0);
	CHECK_AT(0, "198.51.100.3");
	CHECK_AT(4, "203.0.113.4");
	of_several(1);
	CHECK_EQ(table.count, 6);
}

static void too_few_interfaces(void)
{
	struct gid_deal deal = { 0 };

	typical();
	links[1].flags = IFF_UP; /* up, and no carrier */
	memset(several, 0, sizeof(several));
	merge_all(&deal, NULL, 2);
	CHECK(deal.all);
	for (unsigned i = 0; i < 2; i++) {
		of_several(i);
		CHECK_EQ(table.count, 8);
		CHECK_AT(0, "198.51.100.3");
	}
	/* It stays so. */
	links[1].flags = IFF_UP | IFF_RUNNING;
	merge_all(&deal, NULL, 2);
	CHECK(deal.all);
}

static void idle_interfaces_come_last(void)
{
	struct gid_deal deal = { 0 };

	typical();
	add_link(4, "eth2", IFF_UP | IFF_RUNNING, 1500);
	add_addr("203.0.113.4", 4);
	links[1].flags = IFF_UP;
	memset(several, 0, sizeof(several));
	merge_all(&deal, NULL, 2);
	CHECK(!deal.all);
	of_several(1);
	CHECK_AT(0, "203.0.113.4");
	of_several(0);
	CHECK_AT(0, "198.51.100.3");
	CHECK_AT(1, "192.0.2.2");
}

static void lists_by_device(void)
{
	static const char addr[] = "eth0;198.51.100.3,::1";
	struct gid_deal deal = { 0 };

	CHECK(!gid_list(NULL, 3));
	CHECK(!strcmp(gid_list("a;b", 1), "b"));
	CHECK(!strcmp(gid_list("a;b", 3), "b"));
	CHECK(!strcmp(gid_list("a;b", 2), "a;b"));
	CHECK(!strcmp(gid_list("a;", 1), ""));
	typical();
	memset(several, 0, sizeof(several));
	merge_all(&deal, addr, 3);
	of_several(0);
	CHECK_EQ(table.count, 4);
	CHECK_AT(0, "192.0.2.2");
	of_several(1);
	CHECK_EQ(table.count, 2);
	CHECK_AT(0, "198.51.100.3");
	CHECK_AT(1, "::1");
	of_several(2);
	CHECK_EQ(table.count, 4);
	/* One list restricts all, and its interfaces are dealt. */
	memset(several, 0, sizeof(several));
	memset(&deal, 0, sizeof(deal));
	merge_all(&deal, "eth0,198.51.100.3", 2);
	of_several(0);
	CHECK_EQ(table.count, 1);
	CHECK_AT(0, "198.51.100.3");
	of_several(1);
	CHECK_EQ(table.count, 4);
	/* An empty list: all. */
	memset(several, 0, sizeof(several));
	memset(&deal, 0, sizeof(deal));
	merge_all(&deal, ";eth1", 2);
	of_several(0);
	CHECK_EQ(table.count, 8);
}

static enum ibv_mtu mtu_of(uint32_t a, uint32_t b)
{
	reset();
	add_link(1, "lo", IFF_UP | IFF_LOOPBACK, 65536);
	if (a)
		add_link(2, "eth0", IFF_UP, a);
	if (b)
		add_link(3, "eth1", IFF_UP, b);
	add_link(4, "down", 0, 600);
	return gid_table_mtu(&host);
}

static void active_mtu(void)
{
	CHECK_EQ(mtu_of(0, 0), IBV_MTU_4096);
	CHECK_EQ(mtu_of(9000, 0), IBV_MTU_4096);
	CHECK_EQ(mtu_of(9000, 1500), IBV_MTU_1024);
	CHECK_EQ(mtu_of(1024 + 80, 0), IBV_MTU_1024);
	CHECK_EQ(mtu_of(1024 + 79, 0), IBV_MTU_512);
	CHECK_EQ(mtu_of(4096 + 79, 0), IBV_MTU_2048);
	CHECK_EQ(mtu_of(68, 0), IBV_MTU_256);
}

static void of_this_host(void)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	struct sockaddr_storage ss;
	struct gid_slot s;
	int i;

	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	i = gid_of_addr(0, (struct sockaddr *)&in);
	SKIP_IF(i < 0, "no 127.0.0.1 here");
	REQUIRE(gid_get(0, (unsigned)i, &s));
	CHECK(s.loopback && gid_is_v4(&s.gid));
	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 4);
	CHECK_EQ(gid_of_addr(0, (struct sockaddr *)&in), i);
	in.sin_addr.s_addr = htonl(0xc6336401 + 0x80); /* 198.51.100.129 */
	CHECK_EQ(gid_of_addr(0, (struct sockaddr *)&in), -ENODEV);
	CHECK_EQ(gid_index(0, &s.gid, s.ifindex + 1000), -ENODEV);
	CHECK_EQ(gid_to_addr(&s.gid, 0, 77, &ss), sizeof(in));
	CHECK_EQ(((struct sockaddr_in *)&ss)->sin_port, htons(77));
	CHECK(!gid_get(0, DEV_GIDS, &s));
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(order_of_classes);
	T_RUN(vanished_addresses_leave_holes);
	T_RUN(interface_down_and_tentative_do_not_count);
	T_RUN(list_restricts);
	T_RUN(more_addresses_than_slots);
	T_RUN(interfaces_are_dealt);
	T_RUN(too_few_interfaces);
	T_RUN(idle_interfaces_come_last);
	T_RUN(lists_by_device);
	T_RUN(active_mtu);
	T_RUN(of_this_host);
	return t_done();
}
