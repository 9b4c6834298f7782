/* SPDX-License-Identifier: BSD-2-Clause */
/* Packets of the exchange of UD ids: every byte, every length, every field. */
#include "tests/t.h"

#include "cm/user/sidr.h"

#include <errno.h>
#include <string.h>

static const struct sidr_req req = {
	.id = 0x0102030405060708,
	.ps = 0x0111,
	.src_addr = { [10] = 0xff, 0xff, 10, 0, 0, 1 },
	.dst_addr = { [10] = 0xff, 0xff, 10, 0, 0, 2 },
	.src_port = 0x1234,
	.dst_port = 0x5678,
	.priv = "hello",
};
static const struct sidr_rep rep = {
	.id = 0x0102030405060708,
	.ps = 0x0111,
	.status = SIDR_REJECTED,
	.qpn = 0xabcdef,
	.qkey = 0x01234567,
	.priv = "no",
};

static void request_bytes(void)
{
	static const uint8_t want[] = {
		'A', 'S', 'I', 'D', 1, 1, 0x01, 0x11, 1, 2, 3, 4, 5, 6, 7, 8,
		0, 0, 0, 0, 0x12, 0x34, 0x56, 0x78,
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1,
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2,
		'h', 'e', 'l', 'l', 'o', 0,
	};
	uint8_t buf[SIDR_REQ_LEN];
	struct sidr_req r;

	memset(buf, 0xee, sizeof(buf));
	sidr_req_encode(buf, &req);
	CHECK(memcmp(buf, want, sizeof(want)) == 0);
	for (size_t i = sizeof(want); i < sizeof(buf); i++)
		CHECK_EQ(buf[i], 0);
	CHECK_EQ(sizeof(buf), 236);
	REQUIRE_EQ(sidr_req_decode(buf, sizeof(buf), &r), 0);
	CHECK(memcmp(&r, &req, sizeof(r)) == 0);
}

static void reply_bytes(void)
{
	static const uint8_t want[] = {
		'A', 'S', 'I', 'D', 1, 3, 0x01, 0x11, 1, 2, 3, 4, 5, 6, 7, 8,
		2, 0xab, 0xcd, 0xef, 0x01, 0x23, 0x45, 0x67, 'n', 'o', 0,
	};
	uint8_t buf[SIDR_REP_LEN];
	struct sidr_rep r;

	memset(buf, 0xee, sizeof(buf));
	sidr_rep_encode(buf, &rep);
	CHECK(memcmp(buf, want, sizeof(want)) == 0);
	for (size_t i = sizeof(want); i < sizeof(buf); i++)
		CHECK_EQ(buf[i], 0);
	CHECK_EQ(sizeof(buf), 160);
	REQUIRE_EQ(sidr_rep_decode(buf, sizeof(buf), &r), 0);
	CHECK_EQ(r.id, rep.id);
	CHECK_EQ(r.status, rep.status);
	CHECK_EQ(r.qpn, rep.qpn);
	CHECK_EQ(r.qkey, rep.qkey);
	CHECK(memcmp(r.priv, rep.priv, sizeof(r.priv)) == 0);
}

static void wait_bytes(void)
{
	uint8_t buf[SIDR_WAIT_LEN];
	uint64_t id;

	sidr_wait_encode(buf, 2, 9);
	CHECK_EQ(sidr_kind(buf, sizeof(buf), &id), SIDR_WAIT);
	CHECK_EQ(id, 9);
	CHECK_EQ(buf[7], 2);
}

/* Each kind has one length. */
static void lengths(void)
{
	uint8_t buf[3][SIDR_MAX + 4] = { { 0 } };
	static const size_t len[] = { SIDR_REQ_LEN, SIDR_WAIT_LEN, SIDR_REP_LEN };
	struct sidr_req r;
	struct sidr_rep p;
	uint64_t id;

	sidr_req_encode(buf[0], &req);
	sidr_wait_encode(buf[1], 2, 9);
	sidr_rep_encode(buf[2], &rep);
	for (int k = 0; k < 3; k++)
		for (size_t n = 0; n <= sizeof(buf[k]); n++) {
			CHECK_EQ(sidr_kind(buf[k], n, &id), n == len[k] ? k + 1 : -EPROTO);
			CHECK_EQ(sidr_req_decode(buf[k], n, &r),
				 k == 0 && n == len[k] ? 0 : -EPROTO);
			CHECK_EQ(sidr_rep_decode(buf[k], n, &p),
				 k == 2 && n == len[k] ? 0 : -EPROTO);
			CHECK_EQ(sidr_quoted_id(buf[k], n, &id), k == 0 && n >= 16);
		}
}

static void other_versions(void)
{
	uint8_t buf[SIDR_MAX];
	uint64_t id = 0;

	sidr_req_encode(buf, &req);
	buf[4] = 2;
	CHECK_EQ(sidr_kind(buf, SIDR_REQ_LEN, &id), -EPROTONOSUPPORT);
	CHECK_EQ(id, req.id);
	CHECK_EQ(sidr_kind(buf, SIDR_REP_LEN, &id), -EPROTONOSUPPORT);
	/* A refusal would be longer than what it answers. */
	CHECK_EQ(sidr_kind(buf, SIDR_REP_LEN - 1, &id), -EPROTO);
	buf[5] = SIDR_REP;
	CHECK_EQ(sidr_kind(buf, SIDR_REQ_LEN, &id), -EPROTO);
	buf[4] = 1;
	for (int kind = 4; kind < 256; kind++) {
		buf[5] = (uint8_t)kind;
		CHECK_EQ(sidr_kind(buf, SIDR_REQ_LEN, &id), -EPROTO);
	}
	buf[5] = SIDR_REQ;
	for (int i = 0; i < 4; i++) {
		buf[i] ^= 1;
		CHECK_EQ(sidr_kind(buf, SIDR_REQ_LEN, &id), -EPROTO);
		buf[i] ^= 1;
	}
	CHECK_EQ(sidr_kind(buf, SIDR_REQ_LEN, &id), SIDR_REQ);
}

static void fields_out_of_range(void)
{
	uint8_t buf[SIDR_MAX];
	struct sidr_req r = req;

	r.dst_port = 0;
	sidr_req_encode(buf, &r);
	CHECK_EQ(sidr_req_decode(buf, SIDR_REQ_LEN, &r), -EPROTO);
	r = req;
	r.ipv6 = true;
	sidr_req_encode(buf, &r);
	CHECK_EQ(sidr_req_decode(buf, SIDR_REQ_LEN, &r), -EPROTO);
	r = req;
	r.dst_addr[10] = 0;
	sidr_req_encode(buf, &r);
	CHECK_EQ(sidr_req_decode(buf, SIDR_REQ_LEN, &r), -EPROTO);
	r = req;
	r.ipv6 = true;
	r.src_addr[0] = r.dst_addr[0] = 0xfe;
	sidr_req_encode(buf, &r);
	CHECK_EQ(sidr_req_decode(buf, SIDR_REQ_LEN, &r), 0);
	CHECK(r.ipv6);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(request_bytes);
	T_RUN(reply_bytes);
	T_RUN(wait_bytes);
	T_RUN(lengths);
	T_RUN(other_versions);
	T_RUN(fields_out_of_range);
	return t_done();
}
