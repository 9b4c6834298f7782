/* SPDX-License-Identifier: BSD-2-Clause */
/* The 40 bytes before a datagram: the header that it came with, and the address to answer to
 * that is made from it. */
#include "ud_side.h"

static struct side x, y;
static struct ibv_ah *ah;

static void pair(void)
{
	ud_pair(&x, &y, &ah);
}

static void pair_free(void)
{
	ud_pair_free(&x, &y, ah);
}

static uint32_t qpn(const struct side *s)
{
	return s->qp->qp_num;
}

/* ---- as it was sent --------------------------------------------------------------- */

static struct ibv_ah_attr marked(int family)
{
	struct ibv_ah_attr attr = ud_attr(family);

	attr.grh.hop_limit = 23;
	attr.grh.traffic_class = 0x68;
	attr.grh.flow_label = 0xabcde;
	return attr;
}

/* A datagram of 61 bytes with these attributes; returns what y has of it. */
static uint8_t *grh_of(struct ibv_ah_attr attr, struct ibv_wc *wc)
{
	struct ibv_ah *to = ud_ah(attr);

	*wc = ud_arrives(&x, &y, to, 61);
	OK(ibv_destroy_ah(to));
	return y.b.p + UD_DST;
}

static unsigned get16(const uint8_t *p)
{
	return (unsigned)p[0] << 8 | p[1];
}

static void grh_of_ipv4(void)
{
	struct ibv_ah_attr attr;
	const uint8_t *grh;
	struct ibv_wc wc;

	pair();
	attr = marked(AF_INET);
	grh = grh_of(attr, &wc);
	CONF_MSG_ZERO(grh, 20);
	EQ(grh[20], 0x45);
	EQ(grh[21], 0x68);
	/* IP, UDP, BTH and DETH, the payload in words of four bytes, the CRC */
	EQ(get16(grh + 22), 20 + 8 + 12 + 8 + 64 + 4);
	EQ(grh[29], IPPROTO_UDP);
	CHECK(!memcmp(grh + 32, attr.grh.dgid.raw + 12, 4));
	CHECK(!memcmp(grh + 36, attr.grh.dgid.raw + 12, 4));
	pair_free();
}

static void grh_of_ipv6(void)
{
	struct ibv_ah_attr attr;
	const uint8_t *grh;
	struct ibv_wc wc;

	pair();
	attr = marked(AF_INET6);
	grh = grh_of(attr, &wc);
	EQ(grh[0], 0x66);
	EQ(grh[1] & 0xf0, 0x80);
	EQ(get16(grh + 4), 8 + 12 + 8 + 64 + 4);
	EQ(grh[6], IPPROTO_UDP);
	CHECK(!memcmp(grh + 8, &attr.grh.dgid, 16));
	CHECK(!memcmp(grh + 24, &attr.grh.dgid, 16));
	pair_free();
}

static void hop_limit(void)
{
	struct ibv_wc wc;

	pair();
	EQ(grh_of(marked(AF_INET), &wc)[28], 23);
	EQ(grh_of(marked(AF_INET6), &wc)[7], 23);
	pair_free();
}

static void flow_label(void)
{
	const uint8_t *grh;
	struct ibv_wc wc;

	pair();
	grh = grh_of(marked(AF_INET6), &wc);
	EQ(grh[1] & 0xf, 0xa);
	EQ(get16(grh + 2), 0xbcde);
	pair_free();
}

/* ---- addresses from it ------------------------------------------------------------ */

static int init(struct ibv_wc *wc, uint8_t *grh, struct ibv_ah_attr *attr)
{
	memset(attr, 0, sizeof(*attr));
	return ibv_init_ah_from_wc(dev.ctx, 1, wc, (struct ibv_grh *)grh, attr);
}

static unsigned sum_of(const uint8_t *header)
{
	unsigned sum = 0;

	for (int i = 0; i < 20; i += 2)
		sum += get16(header + i);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

static void put_checksum(uint8_t *header)
{
	unsigned sum;

	memset(header + 10, 0, 2);
	sum = ~sum_of(header);
	header[10] = (uint8_t)(sum >> 8);
	header[11] = (uint8_t)sum;
}

static void checksum_of_ipv4(void)
{
	const uint8_t *grh;
	struct ibv_wc wc;

	pair();
	grh = grh_of(marked(AF_INET), &wc);
	EQ(sum_of(grh + 20), 0xffff);
	pair_free();
}

static void init_from_wc(int family)
{
	struct ibv_ah_attr attr, back;
	struct ibv_wc wc;
	uint8_t *grh;

	pair();
	attr = marked(family);
	grh = grh_of(attr, &wc);
	EQ(init(&wc, grh, &back), 0);
	EQ(back.is_global, 1);
	EQ(back.port_num, 1);
	EQ(back.dlid, 0);
	EQ(back.sl, wc.sl);
	CHECK(!memcmp(&back.grh.dgid, &attr.grh.dgid, 16));
	EQ(back.grh.sgid_index, attr.grh.sgid_index);
	EQ(back.grh.traffic_class, 0x68);
	EQ(back.grh.hop_limit, grh[family == AF_INET6 ? 7 : 28]);
	pair_free();
}

static void address_of_a_completion(void)
{
	init_from_wc(AF_INET);
}

static void address_of_a_completion_ipv6(void)
{
	init_from_wc(AF_INET6);
}

/* Headers as they may come from elsewhere; nothing was sent. */
static void addresses_of_headers(void)
{
	struct ibv_wc wc = { .wc_flags = IBV_WC_GRH, .src_qp = 5 };
	struct ibv_ah_attr attr, back = { 0 };
	uint8_t grh[UD_GRH] = { [20] = 0x45, 0x68, 0, 120, [28] = 23, IPPROTO_UDP };
	static const uint8_t v4[4] = { 198, 51, 100, 7 }, group[4] = { 239, 1, 2, 3 };

	pair();
	attr = ud_attr(AF_INET);
	memcpy(grh + 32, v4, 4);
	memcpy(grh + 36, attr.grh.dgid.raw + 12, 4);
	put_checksum(grh + 20);
	EQ(init(&wc, grh, &back), 0);
	EQ(back.is_global, 1);
	EQ(back.grh.sgid_index, attr.grh.sgid_index);
	EQ(back.grh.hop_limit, 23);
	EQ(back.grh.traffic_class, 0x68);
	EQ(back.grh.flow_label, 0);
	CHECK(!memcmp(back.grh.dgid.raw + 12, v4, 4));
	/* To a group: whose GID would that be? */
	memcpy(grh + 36, group, 4);
	put_checksum(grh + 20);
	EQ(init(&wc, grh, &back), -1);
	/* To an address that is not here. */
	memcpy(grh + 36, v4, 4);
	put_checksum(grh + 20);
	EQ(init(&wc, grh, &back), -1);
	/* Without a GRH there is no address on Ethernet. */
	memcpy(grh + 36, attr.grh.dgid.raw + 12, 4);
	put_checksum(grh + 20);
	wc.wc_flags = 0;
	EQ(init(&wc, grh, &back), 0);
	EQ(back.is_global, 0);
	pair_free();
}

static void addresses_of_headers_ipv6(void)
{
	struct ibv_wc wc = { .wc_flags = IBV_WC_GRH, .src_qp = 5 };
	struct ibv_ah_attr attr, back = { 0 };
	uint8_t grh[UD_GRH] = { 0x66, 0x8a,	  0xbc, 0xde, 0,    96,	     IPPROTO_UDP,
				23,   [8] = 0x20, 1,	0xd,  0xb8, [23] = 7 };

	pair();
	attr = ud_attr(AF_INET6);
	memcpy(grh + 24, &attr.grh.dgid, 16);
	EQ(init(&wc, grh, &back), 0);
	EQ(back.grh.sgid_index, attr.grh.sgid_index);
	EQ(back.grh.hop_limit, 23);
	EQ(back.grh.traffic_class, 0x68);
	EQ(back.grh.flow_label, 0xabcde);
	CHECK(!memcmp(&back.grh.dgid, grh + 8, 16));
	memset(grh + 24, 0, 16);
	grh[24] = 0xff;
	grh[25] = 5;
	grh[39] = 1;
	EQ(init(&wc, grh, &back), -1);
	pair_free();
}

static void answer_with(int family)
{
	struct ibv_ah *to, *back;
	struct ibv_grh *grh;
	struct ibv_wc wc;

	pair();
	to = ud_ah(ud_attr(family));
	for (int i = 0; i < 3; i++) {
		wc = ud_arrives(&x, &y, to, 100);
		grh = (struct ibv_grh *)(y.b.p + UD_DST);
		MUST(back = ibv_create_ah_from_wc(dev.pd, &wc, grh, 1));
		EQ(wc.src_qp, qpn(&x));
		ud_arrives(&y, &x, back, 200);
		OK(ibv_destroy_ah(back));
	}
	OK(ibv_destroy_ah(to));
	pair_free();
}

static void answer(void)
{
	answer_with(AF_INET);
}

static void answer_ipv6(void)
{
	answer_with(AF_INET6);
}

static const struct conf_case cases[] = {
	CASE(grh_of_ipv4),
	CASE(checksum_of_ipv4),
	CASE(grh_of_ipv6),
	CASE(hop_limit),
	CASE(flow_label),
	CASE(address_of_a_completion),
	CASE(address_of_a_completion_ipv6),
	CASE(addresses_of_headers),
	CASE(addresses_of_headers_ipv6),
	CASE(answer),
	CASE(answer_ipv6),
};

CONF_MAIN(cases)
