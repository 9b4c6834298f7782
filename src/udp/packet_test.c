/* SPDX-License-Identifier: BSD-2-Clause */
/* The bytes of datagrams, against tests/wire/ud_*.hex. */
#include "tests/t.h"

#include "base/crc32c.h"
#include "dev/transport.h"
#include "tcp/golden_test.h"
#include "udp/packet.h"

static const struct row {
	const char *name;
	struct ud_head h;
	unsigned flags;
	const char *payload;
} rows[] = {
	{ "ud_send",
	  { .kind = UD_DATA,
	    .flags = UD_SOLICITED,
	    .traffic_class = 0x28,
	    .hop_limit = 33,
	    .sl = 3,
	    .len = 5,
	    .flow_label = 0xabcde,
	    .psn = 0x123456,
	    .src_qpn = 0xd4e5f6,
	    .dst_qpn = 0xa1b2c3,
	    .qkey = 0x11223344 },
	  0,
	  "ping!" },
	{ "ud_imm",
	  { .kind = UD_DATA,
	    .flags = UD_IMM,
	    .hop_limit = 64,
	    .psn = 7,
	    .src_qpn = 0xd4e5f6,
	    .dst_qpn = 0xa1b2c3,
	    .qkey = 0x01234567 },
	  PACKET_CRC,
	  "" },
	{ "ud_group",
	  { .kind = UD_DATA,
	    .hop_limit = 1,
	    .len = 4,
	    .psn = 1,
	    .src_qpn = 0xd4e5f6,
	    .dst_qpn = 0xffffff,
	    .qkey = 0x01234567,
	    .dgid.raw = { 0xff, 0x12, 0x40, 0x1b, [15] = 0x77 } },
	  PACKET_GROUP | PACKET_LO6,
	  "ping" },
	{ "ud_mark",
	  { .kind = UD_MARK,
	    .hop_limit = 64,
	    .psn = 9,
	    .src_qpn = 0xd4e5f6,
	    .dst_qpn = 0xa1b2c3,
	    .token = 0x01020304 },
	  0,
	  "" },
	{ "ud_marked",
	  { .kind = UD_MARKED,
	    .hop_limit = 64,
	    .psn = 9,
	    .src_qpn = 0xd4e5f6,
	    .dst_qpn = 0xa1b2c3,
	    .token = 0x01020304 },
	  0,
	  "" },
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };


static struct row row_of(unsigned i)
{
	struct row r = rows[i];

	if (r.h.flags & UD_IMM)
		memcpy(&r.h.imm, "\xde\xad\xbe\xef", 4);
	return r;
}

static size_t encode(const struct row *r, uint8_t *p)
{
	size_t n = packet_head_put(p, &r->h), tail;

	memcpy(p + n, r->payload, r->h.len);
	n += r->h.len;
	tail = packet_tail_put(p + n, &r->h, r->flags);
	if (r->flags & PACKET_CRC) {
		uint32_t crc = crc32c(CRC32C_INIT, p, n + tail - 8);

		crc32c_put(p + n + tail - 8, crc32c(crc, p + n + tail - 4, 4));
	}
	return n + tail;
}

static void golden_packets(void)
{
	for (unsigned i = 0; i < ROWS; i++) {
		uint8_t want[PACKET_MAX], have[PACKET_MAX];
		struct row r = row_of(i);
		size_t n = golden(r.name, want, sizeof(want));

		diag("%s", r.name);
		CHECK_EQ(encode(&r, have), n);
		CHECK(n && !memcmp(have, want, n));
	}
}

static void golden_decodes(void)
{
	for (unsigned i = 0; i < ROWS; i++) {
		uint8_t p[PACKET_MAX];
		struct row r = row_of(i);
		size_t n = golden(r.name, p, sizeof(p));
		const uint8_t *payload;
		struct ud_head h;
		unsigned flags;

		diag("%s", r.name);
		REQUIRE_EQ(packet_decode(p, n, &h, &flags, &payload), 0);
		CHECK_EQ(flags, r.flags);
		CHECK_EQ(h.kind, r.h.kind);
		CHECK_EQ(h.flags, r.h.flags);
		CHECK_EQ(h.traffic_class, r.h.traffic_class);
		CHECK_EQ(h.hop_limit, r.h.hop_limit);
		CHECK_EQ(h.sl, r.h.sl);
		CHECK_EQ(h.len, r.h.len);
		CHECK_EQ(h.flow_label, r.h.flow_label);
		CHECK_EQ(h.psn, r.h.psn);
		CHECK_EQ(h.src_qpn, r.h.src_qpn);
		CHECK_EQ(h.dst_qpn, r.h.dst_qpn);
		CHECK_EQ(h.qkey, r.h.qkey);
		CHECK_EQ(h.imm, r.h.imm);
		CHECK_EQ(h.token, r.h.token);
		CHECK(!memcmp(&h.dgid, &r.h.dgid, 16));
		CHECK(!memcmp(payload, r.payload, h.len));
	}
}

/* In a buffer of exactly its size, so that a sanitizer sees a byte too many. */
static int decode_alone(const uint8_t *p, size_t n, struct ud_head *h)
{
	uint8_t *copy = malloc(n ? n : 1);
	const uint8_t *payload;
	unsigned flags;
	int ret;

	memcpy(copy, p, n);
	ret = packet_decode(copy, n, h, &flags, &payload);
	if (!ret)
		CHECK(payload >= copy && payload + h->len <= copy + n);
	free(copy);
	return ret;
}

static void every_length(void)
{
	for (unsigned i = 0; i < ROWS; i++) {
		uint8_t p[PACKET_MAX];
		size_t n = golden(rows[i].name, p, sizeof(p));
		struct ud_head h;

		for (size_t k = 0; k < n; k++) {
			int ret = decode_alone(p, k, &h);

			CHECK(ret == -EPROTO || ret == -EBADMSG || (!ret && h.len < k));
			if (k < 24)
				CHECK_EQ(ret, -EPROTO);
		}
	}
}

static void the_longest(void)
{
	static uint8_t p[PACKET_MAX + 100];
	struct row r = row_of(0);
	size_t n = packet_head_put(p, &r.h);
	struct ud_head h;

	packet_tail_put(p + n + UD_PAYLOAD_MAX, &r.h, 0);
	CHECK_EQ(decode_alone(p, n + UD_PAYLOAD_MAX + 4, &h), 0);
	CHECK_EQ(h.len, UD_PAYLOAD_MAX);
	packet_tail_put(p + n + UD_PAYLOAD_MAX + 1, &r.h, 0);
	CHECK_EQ(decode_alone(p, n + UD_PAYLOAD_MAX + 5, &h), -EPROTO);
}

static void what_is_no_packet(void)
{
	static const struct {
		uint8_t at, value;
	} bad[] = {
		{ 0, 0x04 },  /* RC Send Only */
		{ 0, 0x66 },  /* nothing */
		{ 1, 0x81 },  /* a header version */
		{ 1, 0x90 },  /* pad bytes */
		{ 1, 0xc0 },  /* migration */
		{ 2, 0x12 },  /* another P_Key */
		{ 3, 0xfe },  /* ... */
		{ 8, 0x80 },  /* an acknowledgement is wanted */
		{ 25, 0x20 }, /* version 2 */
		{ 25, 0x1a }, /* a group without a GRH */
		{ 25, 0x12 }, /* no room for a group */
		{ 25, 0x14 }, /* from ::1, but not to a group */
	};

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		uint8_t p[PACKET_MAX];
		size_t n = golden("ud_send", p, sizeof(p));
		struct ud_head h;

		diag("byte %u: 0x%02x", bad[i].at, bad[i].value);
		REQUIRE_EQ(n, 29);
		p[bad[i].at] = bad[i].value;
		CHECK_EQ(decode_alone(p, n, &h), -EPROTO);
	}
}

/* As ud_send, by LID. */
static void without_a_grh(void)
{
	struct ud_head h = rows[0].h, got;
	uint8_t p[PACKET_HEAD_MAX + PACKET_TAIL_MAX];
	size_t n;

	h.flags |= UD_NO_GRH;
	h.len = 0;
	n = packet_head_put(p, &h);
	n += packet_tail_put(p + n, &h, 0);
	CHECK_EQ(p[n - 4], PACKET_VERSION << 4 | PACKET_LOCAL);
	CHECK_EQ(decode_alone(p, n, &got), 0);
	CHECK_EQ(got.flags, UD_SOLICITED | UD_NO_GRH);
}

static void a_wrong_crc(void)
{
	uint8_t p[PACKET_MAX];
	size_t n = golden("ud_imm", p, sizeof(p));
	struct ud_head h;

	REQUIRE(n > 8);
	for (size_t i = 4; i < n; i++) {
		if (i == 8 || i >= n - 4) /* reserved; the trailer says what is there */
			continue;
		p[i] ^= 0x40;
		CHECK_EQ(decode_alone(p, n, &h), -EBADMSG);
		p[i] ^= 0x40;
	}
	p[n - 1] ^= 1;
	CHECK_EQ(decode_alone(p, n, &h), -EBADMSG);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(golden_packets);
	T_RUN(golden_decodes);
	T_RUN(every_length);
	T_RUN(the_longest);
	T_RUN(what_is_no_packet);
	T_RUN(without_a_grh);
	T_RUN(a_wrong_crc);
	return t_done();
}
