/* SPDX-License-Identifier: BSD-2-Clause */
/* The codec of the stream protocol, against bytes written by hand. */
#include "rsocket/proto.h"

#include "../../tests/t.h"

static const uint8_t golden[PROTO_CONN_LEN] = {
	1, 2, 0x01, 0x80, 0, 0, 0, 5,
	0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22, 0x23, 0x24, 0, 0, 0, 2,
	0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38, 0x41, 0x42, 0x43, 0x44, 0, 1, 0, 0,
};

static void conn_put(void)
{
	const struct proto_conn c = {
		.credits = 0x180,
		.iomaps = 5,
		.sgl = { 0x1112131415161718, 0x21222324, 2 },
		.data = { 0x3132333435363738, 0x41424344, 0x10000 },
	};
	uint8_t out[PROTO_CONN_LEN];

	memset(out, 0xee, sizeof(out));
	proto_conn_put(out, &c);
	CHECK(!memcmp(out, golden, sizeof(out)));
}

static void conn_get(void)
{
	uint8_t in[PROTO_CONN_LEN + 4] = { 0 };
	struct proto_conn c = { .credits = 7 };

	memcpy(in, golden, sizeof(golden));
	for (size_t n = 0; n < PROTO_CONN_LEN; n++)
		CHECK_EQ(proto_conn_get(in, n, &c), -EPROTO);
	CHECK_EQ(c.credits, 7); /* written on success only */
	REQUIRE(!proto_conn_get(in, sizeof(in), &c));
	CHECK(!c.big_endian);
	CHECK_EQ(c.credits, 0x180);
	CHECK_EQ(c.iomaps, 5);
	CHECK(c.sgl.addr == 0x1112131415161718 && c.sgl.key == 0x21222324);
	CHECK_EQ(c.sgl.length, 2);
	CHECK(c.data.addr == 0x3132333435363738 && c.data.key == 0x41424344);
	CHECK_EQ(c.data.length, 0x10000);
	in[1] |= 1;
	REQUIRE(!proto_conn_get(in, sizeof(in), &c));
	CHECK(c.big_endian);
}

static void conn_refused(void)
{
	uint8_t in[PROTO_CONN_LEN];
	struct proto_conn c;

	memcpy(in, golden, sizeof(in));
	in[0] = 2;
	CHECK_EQ(proto_conn_get(in, sizeof(in), &c), -EPROTONOSUPPORT);
	memcpy(in, golden, sizeof(in));
	in[2] = in[3] = 0; /* nothing could ever be sent */
	CHECK_EQ(proto_conn_get(in, sizeof(in), &c), -EPROTO);
	memcpy(in, golden, sizeof(in));
	in[23] = 0; /* no entries: nothing could be announced */
	CHECK_EQ(proto_conn_get(in, sizeof(in), &c), -EPROTO);
	memcpy(in, golden, sizeof(in));
	in[36] = 0xff; /* longer than a message can name */
	CHECK_EQ(proto_conn_get(in, sizeof(in), &c), -EPROTO);
}

static void iomaps(void)
{
	CHECK_EQ(proto_iomaps(proto_iomaps_scale(0)), 0);
	CHECK_EQ(proto_iomaps(proto_iomaps_scale(128)), 128);
	CHECK_EQ(proto_iomaps_scale(256), 0x81);
	CHECK_EQ(proto_iomaps(proto_iomaps_scale(511)), 256);
	CHECK_EQ(proto_iomaps(proto_iomaps_scale(512)), 512);
	CHECK_EQ(proto_iomaps(proto_iomaps_scale(1 << 20)), PROTO_IOMAP_MAX);
}

static void imm(void)
{
	uint32_t m = proto_imm(PROTO_CREDIT, 0xabcd);

	CHECK_EQ(m, 0x8000abcd);
	CHECK_EQ(proto_imm_op(m), PROTO_CREDIT);
	CHECK_EQ(proto_imm_value(m), 0xabcd);
	CHECK_EQ(proto_imm(PROTO_CTRL, PROTO_SHUTDOWN), 0xe0000002);
	CHECK_EQ(proto_imm_value(proto_imm(PROTO_DATA, PROTO_VALUE_MAX)), PROTO_VALUE_MAX);
}

static void entries(void)
{
	const struct proto_sge s = { 0x0102030405060708, 0x11121314, 0x21222324 };
	uint8_t same[PROTO_SGE_LEN], other[PROTO_SGE_LEN], map[PROTO_IOMAP_LEN];
	struct proto_sge got;

	proto_sge_put(same, &s, false);
	proto_sge_put(other, &s, true);
	for (int i = 0; i < 8; i++)
		CHECK_EQ(same[i], other[7 - i]);
	for (int i = 0; i < 4; i++) {
		CHECK_EQ(same[8 + i], other[11 - i]);
		CHECK_EQ(same[12 + i], other[15 - i]);
	}
	got = proto_sge_get(same);
	CHECK(got.addr == s.addr && got.key == s.key && got.length == s.length);
	proto_iomap_put(map, 0x4142434445464748, &s, false);
	CHECK(proto_iomap_get(map, &got) == 0x4142434445464748);
	CHECK(got.addr == s.addr && got.key == s.key && got.length == s.length);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(conn_put);
	T_RUN(conn_get);
	T_RUN(conn_refused);
	T_RUN(iomaps);
	T_RUN(imm);
	T_RUN(entries);
	return t_done();
}
