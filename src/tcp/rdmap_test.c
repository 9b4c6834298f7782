/* SPDX-License-Identifier: BSD-2-Clause */
#include "tcp/crc32c.h"
#include "tcp/rdmap.h"
#include "tests/t.h"

static struct rc_frame make(enum rc_op op)
{
	struct rc_frame h = { .op = op, .last = true, .ack_req = op & 1 };

	switch (op) {
	case RC_WRITE:
	case RC_READ_RESP:
		h.stag = 0x11223344;
		h.to = 0x0102030405060708ull;
		h.payload = 1000;
		break;
	case RC_READ_REQ:
		h.msn = 7;
		h.read.sink_stag = 5;
		h.read.sink_to = 9;
		h.read.size = 0x80000000u;
		h.read.src_stag = 0xcafe0001;
		h.read.src_to = UINT64_MAX - 3;
		break;
	case RC_ATOMIC_REQ:
		h.msn = 8;
		h.atomic.opcode = RC_CMP_SWAP;
		h.atomic.id = 77;
		h.atomic.stag = 0xabcdef01;
		h.atomic.to = 1ull << 40;
		h.atomic.add_swap = 0x1111222233334444ull;
		h.atomic.compare = 0x5555666677778888ull;
		break;
	case RC_ATOMIC_RESP:
		h.msn = 1;
		h.atomic_resp.id = 77;
		h.atomic_resp.value = UINT64_MAX;
		break;
	case RC_IMM:
	case RC_IMM_SE:
		h.msn = 3;
		h.imm.imm = 0xdeadbeef;
		h.imm.kind = IMM_PREFIX;
		break;
	case RC_CTL:
		h.ctl.type = CTL_NAK;
		h.ctl.code = NAK_REM_OP;
		h.ctl.timer = 31;
		h.ctl.number = 0xabcdef;
		h.ctl.msn0 = 4;
		h.ctl.msn1 = 5;
		h.ctl.len = 3;
		memcpy(h.ctl.data, "abc", 3);
		break;
	case RC_TERMINATE:
		h.msn = 1;
		h.term.len = 24;
		memset(h.term.data, 0x5c, h.term.len);
		break;
	default:
		h.msn = 2;
		h.mo = 65504;
		h.inv_stag = 0x99;
		h.payload = FPDU_PAYLOAD_MAX;
	}
	return h;
}

static void every_message_survives_a_round_trip(void)
{
	for (int op = 0; op < 16; op++) {
		struct rc_frame h, got;
		uint8_t buf[RDMAP_HDR_MAX], again[RDMAP_HDR_MAX];
		size_t len;

		if (op > RC_ATOMIC_RESP && op != RC_CTL)
			continue;
		h = make(op);
		len = rdmap_encode(buf, &h);
		memset(&got, 0xa5, sizeof(got));
		CHECK_EQ(rdmap_decode(buf, len, &got), (int)len);
		CHECK_EQ(got.op, op);
		CHECK_EQ(got.payload, h.payload);
		CHECK_EQ(got.ack_req, h.ack_req);
		CHECK_EQ(rdmap_encode(again, &got), len);
		CHECK(!memcmp(buf, again, len));
	}
}

static void a_truncated_header_asks_for_more(void)
{
	for (int op = 0; op < 16; op++) {
		struct rc_frame h, got;
		uint8_t buf[RDMAP_HDR_MAX];
		size_t len;

		if (op > RC_ATOMIC_RESP && op != RC_CTL)
			continue;
		h = make(op);
		len = rdmap_encode(buf, &h);
		for (size_t n = 0; n < len; n++) {
			uint8_t *tight = malloc(n ? n : 1); /* so that a read beyond is seen */

			memcpy(tight, buf, n);
			CHECK_EQ(rdmap_decode(tight, n, &got), -EAGAIN);
			free(tight);
		}
	}
}

static void refused(const char *what, size_t at, uint8_t value)
{
	struct rc_frame h = make(RC_SEND), got;
	uint8_t buf[RDMAP_HDR_MAX];
	size_t len = rdmap_encode(buf, &h);

	buf[at] = value;
	ok(rdmap_decode(buf, len, &got) == -EPROTO, "refuses %s", what);
}

static void lengths_are_checked(void)
{
	struct rc_frame h = make(RC_READ_REQ), got;
	uint8_t buf[RDMAP_HDR_MAX];
	size_t len = rdmap_encode(buf, &h);

	buf[1]--;
	CHECK_EQ(rdmap_decode(buf, len, &got), -EPROTO);
	h = make(RC_CTL);
	len = rdmap_encode(buf, &h);
	buf[20 + 3] = 4; /* says more data than the segment has */
	CHECK_EQ(rdmap_decode(buf, len, &got), -EPROTO);
	h = make(RC_WRITE);
	rdmap_encode(buf, &h);
	buf[0] = buf[1] = 0;
	CHECK_EQ(rdmap_decode(buf, sizeof(buf), &got), -EPROTO);
}

static void trailers_fill_up_to_four(void)
{
	for (uint32_t n = 0; n < 64; n++) {
		CHECK_EQ((16 + n + rdmap_trailer(16, n)) % 4, 0);
		CHECK(rdmap_trailer(20, n) >= 4 && rdmap_trailer(20, n) <= 7);
	}
}

/* RFC 3720 appendix B.4 */
static void crc_vectors(void)
{
	uint8_t buf[32], out[4];

	memset(buf, 0, sizeof(buf));
	crc32c_put(out, crc32c(CRC32C_INIT, buf, 32));
	CHECK(!memcmp(out, "\xaa\x36\x91\x8a", 4));
	memset(buf, 0xff, sizeof(buf));
	crc32c_put(out, crc32c(CRC32C_INIT, buf, 32));
	CHECK(!memcmp(out, "\x43\xab\xa8\x62", 4));
	for (int i = 0; i < 32; i++)
		buf[i] = (uint8_t)i;
	crc32c_put(out, crc32c(CRC32C_INIT, buf, 32));
	CHECK(!memcmp(out, "\x4e\x79\xdd\x46", 4));
	crc32c_put(out, crc32c(crc32c(CRC32C_INIT, buf, 5), buf + 5, 27));
	CHECK(!memcmp(out, "\x4e\x79\xdd\x46", 4));
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(every_message_survives_a_round_trip);
	T_RUN(a_truncated_header_asks_for_more);
	refused("another DDP version", 2, DDP_LAST | 2);
	refused("another RDMAP version", 3, 0x80 | RC_SEND);
	refused("a tagged send", 2, DDP_TAGGED | DDP_VERSION);
	refused("an unknown opcode", 3, RDMAP_VERSION | 12);
	refused("a wrong queue number", 11, 9);
	T_RUN(lengths_are_checked);
	T_RUN(trailers_fill_up_to_four);
	T_RUN(crc_vectors);
	return t_done();
}
