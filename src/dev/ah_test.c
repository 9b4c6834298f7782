/* SPDX-License-Identifier: BSD-2-Clause */
/* Address handles: what they resolve, and the way back from a completion. */
#include "tests/t.h"

#include "base/be.h"
#include "dev/fake_datagrams.h"

#include <netinet/in.h>

static struct rig r;
static struct ibv_ah_attr good; /* to the loopback address, from it */

static bool up(void)
{
	if (!rig_up(&r, (struct rig_opt){ .type = IBV_QPT_UD }))
		return false;
	good = rig_attr(IBV_QPS_RTR).ah_attr;
	return true;
}

static void group_of(union ibv_gid *gid, const char *v4)
{
	memset(gid, 0, sizeof(*gid));
	gid->raw[10] = gid->raw[11] = 0xff;
	memcpy(gid->raw + 12, v4, 4);
}

static void what_is_a_group(void)
{
	static const struct {
		uint8_t v4[4];
		bool group;
	} v4[] = {
		{ { 223, 255, 255, 255 }, false }, { { 224, 0, 0, 0 }, true },
		{ { 239, 255, 255, 255 }, true },  { { 240, 0, 0, 0 }, false },
		{ { 127, 0, 0, 1 }, false },
	};
	union ibv_gid g;

	for (unsigned i = 0; i < sizeof(v4) / sizeof(v4[0]); i++) {
		group_of(&g, (const char *)v4[i].v4);
		CHECK_EQ(gid_is_mcast(&g), v4[i].group);
		g.raw[0] = 0xff;
		CHECK(gid_is_mcast(&g));
		g.raw[0] = 0x20; /* not mapped any more */
		CHECK(!gid_is_mcast(&g));
	}
	memset(&g, 0, sizeof(g));
	CHECK(!gid_is_mcast(&g));
	g.raw[0] = 0xfe;
	CHECK(!gid_is_mcast(&g));
}

static void a_handle_has_resolved_its_source(void)
{
	struct ibv_pd *parent;
	struct gid_slot slot;
	struct ibv_ah *ah;
	struct dev_av *av;

	REQUIRE(up());
	good.grh.flow_label = 0xfffabcde;
	good.grh.traffic_class = 3;
	good.sl = 2;
	REQUIRE(gid_get(0, good.grh.sgid_index, &slot));
	ah = ibv_create_ah(r.pd, &good);
	REQUIRE(ah);
	av = to_ah(ah)->av;
	CHECK(!memcmp(&av->sgid, &slot.gid, sizeof(slot.gid)));
	CHECK_EQ(av->ifindex, slot.ifindex);
	CHECK(slot.ifindex != 0);
	CHECK(!av->mcast);
	CHECK_EQ(av->attr.grh.flow_label, 0xabcde);
	CHECK_EQ(av->attr.grh.traffic_class, 3);
	CHECK_EQ(av->attr.sl, 2);
	CHECK(av_serves(av, to_qp(r.qp)));
	CHECK_EQ(ibv_dealloc_pd(r.pd), EBUSY);
	CHECK_EQ(ibv_destroy_ah(ah), 0);

	parent = ibv_alloc_parent_domain(
		r.ctx, &(struct ibv_parent_domain_init_attr){ .pd = r.pd });
	REQUIRE(parent);
	ah = ibv_create_ah(parent, &good);
	REQUIRE(ah);
	CHECK(av_serves(to_ah(ah)->av, to_qp(r.qp)));
	CHECK_EQ(ibv_dealloc_pd(parent), EBUSY);
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	CHECK_EQ(ibv_dealloc_pd(parent), 0);
	rig_down(&r);
}

static void a_handle_of_another_pd_does_not_serve(void)
{
	struct ibv_pd *pd;
	struct ibv_ah *ah;

	REQUIRE(up());
	pd = ibv_alloc_pd(r.ctx);
	REQUIRE(pd);
	ah = ibv_create_ah(pd, &good);
	REQUIRE(ah);
	CHECK(!av_serves(to_ah(ah)->av, to_qp(r.qp)));
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	CHECK_EQ(ibv_dealloc_pd(pd), 0);
	rig_down(&r);
}

static void a_group_and_its_hops(void)
{
	struct ibv_ah *ah;

	REQUIRE(up());
	for (int hops = 0; hops < 8; hops += 7) {
		good.grh.hop_limit = (uint8_t)hops;
		ah = ibv_create_ah(r.pd, &good);
		REQUIRE(ah);
		CHECK_EQ(to_ah(ah)->av->attr.grh.hop_limit, hops ? hops : 64);
		CHECK_EQ(ibv_destroy_ah(ah), 0);
	}
	group_of(&good.grh.dgid, "\xe0\1\2\3");
	for (int hops = 0; hops < 8; hops += 7) {
		good.grh.hop_limit = (uint8_t)hops;
		ah = ibv_create_ah(r.pd, &good);
		REQUIRE(ah);
		CHECK(to_ah(ah)->av->mcast);
		CHECK_EQ(to_ah(ah)->av->attr.grh.hop_limit, hops ? hops : 1);
		CHECK_EQ(ibv_destroy_ah(ah), 0);
	}
	rig_down(&r);
}

static void what_no_handle_can_be_made_of(void)
{
	struct ibv_ah_attr a;

#define REFUSED(...) \
	do { \
		a = good; \
		__VA_ARGS__; \
		CHECK_NULL(ibv_create_ah(r.pd, &a), EINVAL); \
	} while (0)
	REQUIRE(up());
	REFUSED(a.port_num = 0);
	REFUSED(a.port_num = 2);
	REFUSED(a.is_global = 0);
	REFUSED(a.sl = 16);
	REFUSED(a.grh.sgid_index = 255);
	REFUSED(memset(&a.grh.dgid, 0, sizeof(a.grh.dgid)));
	rig_down(&r);
#undef REFUSED
}

static void ten_thousand_handles(void)
{
	enum { MANY = 10000 };
	static struct ibv_ah *ah[MANY];

	REQUIRE(up());
	for (int i = 0; i < MANY; i++) {
		ah[i] = ibv_create_ah(r.pd, &good);
		REQUIRE(ah[i]);
	}
	for (int i = 0; i < MANY; i++)
		CHECK_EQ(ibv_destroy_ah(ah[i]), 0);
	rig_down(&r);
}

/* ---- from a completion --------------------------------------------------------- */

static uint8_t grh[40];
static struct ibv_wc wc;

static int init(struct ibv_ah_attr *a)
{
	errno = 0;
	return ibv_init_ah_from_wc(r.ctx, 1, &wc, (struct ibv_grh *)grh, a);
}

static void sum_set(uint8_t *v4)
{
	uint32_t sum = 0;

	be16_put(v4 + 10, 0);
	for (int i = 0; i < 20; i += 2)
		sum += be16_get(v4 + i);
	sum = (sum & 0xffff) + (sum >> 16);
	be16_put(v4 + 10, (uint16_t)~sum);
}

/* An IPv4 header from 10.1.2.3, as a receive has it. */
static void v4_make(const char *to)
{
	uint8_t *v4 = grh + 20;

	memset(grh, 0, sizeof(grh));
	v4[0] = 0x45;
	v4[1] = 0xb8;
	v4[8] = 61;
	v4[9] = IPPROTO_UDP;
	memcpy(v4 + 12, "\12\1\2\3", 4);
	memcpy(v4 + 16, to, 4);
	sum_set(v4);
	wc = (struct ibv_wc){ .wc_flags = IBV_WC_GRH, .sl = 3, .src_qp = 0x77 };
}

/* An IPv6 header from 2001:db8::1. */
static void v6_make(const union ibv_gid *to)
{
	memset(grh, 0, sizeof(grh));
	be32_put(grh, 6u << 28 | 0xb8u << 20 | 0x12345);
	grh[6] = IPPROTO_UDP;
	grh[7] = 62;
	memcpy(grh + 8, "\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\1", 16);
	memcpy(grh + 24, to, 16);
	wc = (struct ibv_wc){ .wc_flags = IBV_WC_GRH };
}

static void the_way_back_over_ipv4(void)
{
	union ibv_gid from;
	struct ibv_ah_attr a;
	struct ibv_ah *ah;

	REQUIRE(up());
	group_of(&from, "\12\1\2\3");
	v4_make("\177\0\0\1");
	CHECK_EQ(init(&a), 0);
	CHECK_EQ(a.is_global, 1);
	CHECK_EQ(a.port_num, 1);
	CHECK_EQ(a.sl, 3);
	CHECK_EQ(a.dlid, 0);
	CHECK_EQ(a.src_path_bits, 0);
	CHECK_EQ(a.grh.hop_limit, 61);
	CHECK_EQ(a.grh.traffic_class, 0xb8);
	CHECK_EQ(a.grh.flow_label, 0);
	CHECK(!memcmp(&a.grh.dgid, &from, sizeof(from)));
	CHECK_EQ(a.grh.sgid_index, good.grh.sgid_index);
	ah = ibv_create_ah_from_wc(r.pd, &wc, (struct ibv_grh *)grh, 1);
	REQUIRE(ah);
	CHECK(!memcmp(&to_ah(ah)->av->attr.grh.dgid, &from, sizeof(from)));
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	/* All of 127.0.0.0/8 is one slot. */
	v4_make("\177\0\0\5");
	CHECK_EQ(init(&a), 0);
	CHECK_EQ(a.grh.sgid_index, good.grh.sgid_index);
	rig_down(&r);
}

/* Every GID of the host is found again by its header. */
static void the_way_back_to_every_gid(void)
{
	static const union ibv_gid zero;
	struct gid_slot slot, found;
	struct ibv_ah_attr a;
	unsigned v6 = 0;

	REQUIRE(up());
	for (unsigned i = 0; i < gid_count(0); i++) {
		if (!gid_get(0, i, &slot) || !memcmp(&slot.gid, &zero, sizeof(zero)))
			continue;
		if (gid_is_v4(&slot.gid))
			v4_make((const char *)slot.gid.raw + 12);
		else
			v6_make(&slot.gid);
		v6 += !gid_is_v4(&slot.gid);
		REQUIRE_EQ(init(&a), 0);
		CHECK(gid_get(0, a.grh.sgid_index, &found));
		CHECK(!memcmp(&found.gid, &slot.gid, sizeof(zero)));
		if (gid_is_v4(&slot.gid))
			continue;
		CHECK_EQ(a.grh.flow_label, 0x12345);
		CHECK_EQ(a.grh.traffic_class, 0xb8);
		CHECK_EQ(a.grh.hop_limit, 62);
		CHECK(!memcmp(&a.grh.dgid, grh + 8, 16));
	}
	rig_down(&r);
	SKIP_IF(!v6, "no IPv6 here");
}

/* A group is no source, and nothing else says what the interface was. */
static void no_way_back_from_a_group(void)
{
	union ibv_gid g = { .raw = { 0xff, 2, [15] = 1 } };
	struct ibv_ah_attr a = { .dlid = 99 };

	REQUIRE(up());
	v4_make("\xe0\1\2\3");
	CHECK_EQ(init(&a), -1);
	CHECK_EQ(errno, EINVAL);
	v6_make(&g);
	CHECK_EQ(init(&a), -1);
	CHECK_EQ(errno, EINVAL);
	CHECK_NULL(ibv_create_ah_from_wc(r.pd, &wc, (struct ibv_grh *)grh, 1), EINVAL);
	CHECK_EQ(a.dlid, 99); /* untouched */
	rig_down(&r);
}

static void headers_that_are_none(void)
{
	struct ibv_ah_attr a;

	REQUIRE(up());
	v4_make("\12\1\2\4"); /* not ours */
	CHECK_EQ(init(&a), -1);
	CHECK_EQ(errno, EINVAL);
	v4_make("\177\0\0\1");
	grh[20] = 0x55;
	CHECK_EQ(init(&a), -1);
	CHECK_EQ(errno, EPROTONOSUPPORT);
	v6_make(&good.grh.dgid);
	grh[6] = IPPROTO_TCP;
	CHECK_EQ(init(&a), -1);
	CHECK_EQ(errno, EPROTONOSUPPORT);
	v4_make("\177\0\0\1");
	CHECK_EQ(ibv_init_ah_from_wc(r.ctx, 2, &wc, (struct ibv_grh *)grh, &a), -1);
	CHECK_EQ(errno, EINVAL);
	rig_down(&r);
}

/* The 20 bytes before an IPv4 header may be what the buffer held: the checksum decides. */
static void an_ipv4_header_after_anything(void)
{
	struct ibv_ah_attr a;

	REQUIRE(up());
	v4_make("\177\0\0\1");
	grh[0] = 0x60;
	CHECK_EQ(init(&a), 0);
	CHECK_EQ(a.grh.hop_limit, 61);
	grh[30] ^= 1; /* now it is an IPv6 header, to an address that is not ours */
	CHECK_EQ(init(&a), -1);
	rig_down(&r);
}

/* As by the original; on Ethernet no handle can be made of it. */
static void a_completion_without_a_route(void)
{
	struct ibv_ah_attr a;

	REQUIRE(up());
	v4_make("\177\0\0\1");
	wc.wc_flags = 0;
	CHECK_EQ(init(&a), 0);
	CHECK_EQ(a.is_global, 0);
	CHECK_EQ(a.sl, 3);
	CHECK_NULL(ibv_create_ah_from_wc(r.pd, &wc, (struct ibv_grh *)grh, 1), EINVAL);
	rig_down(&r);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(what_is_a_group);
	T_RUN(a_handle_has_resolved_its_source);
	T_RUN(a_handle_of_another_pd_does_not_serve);
	T_RUN(a_group_and_its_hops);
	T_RUN(what_no_handle_can_be_made_of);
	T_RUN(ten_thousand_handles);
	T_RUN(the_way_back_over_ipv4);
	T_RUN(the_way_back_to_every_gid);
	T_RUN(no_way_back_from_a_group);
	T_RUN(headers_that_are_none);
	T_RUN(an_ipv4_header_after_anything);
	T_RUN(a_completion_without_a_route);
	return t_done();
}
