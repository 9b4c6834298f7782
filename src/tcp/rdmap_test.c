/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/crc32c.h"
#include "tcp/golden_test.h"
#include "tcp/rdmap.h"
#include "tcp/term.h"

#include <dirent.h>

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

/* ---- golden FPDUs ------------------------------------------------------------------ */

#define CTL(type_, ...) \
	{ \
		.op = RC_CTL, .last = true, .qn = DDP_QN_CTL, \
		.ctl = { .type = type_, __VA_ARGS__ } \
	}

static const struct {
	const char *name;
	struct rc_frame h;
	const char *payload;
} goldens[] = {
	{ "fpdu_write",
	  { .op = RC_WRITE, .last = true, .ack_req = true, .payload = 13, .stag = 0x11223344,
	    .to = 0x0102030405060708 },
	  "hello, world!" },
	{ "fpdu_write_announced",
	  { .op = RC_WRITE, .stag = 0x11223344, .to = 0x0102030405070000 },
	  "" },
	{ "fpdu_read_req",
	  { .op = RC_READ_REQ, .last = true, .qn = DDP_QN_READ, .msn = 7,
	    .read = { .sink_stag = 0x105, .size = 1u << 31, .src_stag = 0xcafe0001,
		      .src_to = UINT64_MAX - 3 } },
	  "" },
	{ "fpdu_read_resp",
	  { .op = RC_READ_RESP, .payload = 10, .stag = 0x105, .to = 65504 },
	  "\xa0\xa1\xa2\xa3\xa4\xa5\xa6\xa7\xa8\xa9" },
	{ "fpdu_send",
	  { .op = RC_SEND, .last = true, .ack_req = true, .payload = 4, .msn = 2 },
	  "ping" },
	{ "fpdu_send_part",
	  { .op = RC_SEND, .payload = 7, .msn = 3, .mo = 65504 },
	  "0123456" },
	{ "fpdu_send_inv",
	  { .op = RC_SEND_INV, .last = true, .payload = 1, .msn = 4, .inv_stag = 0xabcdef01 },
	  "a" },
	{ "fpdu_send_se", { .op = RC_SEND_SE, .last = true, .msn = 5 }, "" },
	{ "fpdu_send_se_inv",
	  { .op = RC_SEND_SE_INV, .last = true, .payload = 2, .msn = 6,
	    .inv_stag = 0xabcdef02 },
	  "bc" },
	{ "fpdu_imm",
	  { .op = RC_IMM, .last = true, .msn = 8,
	    .imm = { .imm = 0xdeadbeef, .kind = IMM_PREFIX } },
	  "" },
	{ "fpdu_imm_se",
	  { .op = RC_IMM_SE, .last = true, .msn = 9,
	    .imm = { .imm = 0xc0ffee, .kind = IMM_ALONE } },
	  "" },
	{ "fpdu_atomic_add",
	  { .op = RC_ATOMIC_REQ, .last = true, .qn = DDP_QN_READ, .msn = 10,
	    .atomic = { .opcode = RC_FETCH_ADD, .id = 0x4d, .stag = 0xabcdef01,
			.to = 1ull << 40, .add_swap = 0x1111222233334444 } },
	  "" },
	{ "fpdu_atomic_swap",
	  { .op = RC_ATOMIC_REQ, .last = true, .qn = DDP_QN_READ, .msn = 11,
	    .atomic = { .opcode = RC_CMP_SWAP, .id = 0x4e, .stag = 0xabcdef01,
			.to = (1ull << 40) + 8, .add_swap = 0x1111222233334444,
			.compare = 0x5555666677778888 } },
	  "" },
	{ "fpdu_atomic_write",
	  { .op = RC_ATOMIC_REQ, .last = true, .qn = DDP_QN_READ, .msn = 12,
	    .atomic = { .opcode = RC_ATOMIC_WRITE, .id = 0x4f, .stag = 0xabcdef01,
			.to = (1ull << 40) + 16, .add_swap = 0x0102030405060708 } },
	  "" },
	{ "fpdu_atomic_resp",
	  { .op = RC_ATOMIC_RESP, .last = true, .qn = DDP_QN_ATOMIC_RESP, .msn = 1,
	    .atomic_resp = { .id = 0x4d, .value = UINT64_MAX - 1 } },
	  "" },
	{ "fpdu_ctl_ack", CTL(CTL_ACK, .number = 0xabcdef), "" },
	{ "fpdu_ctl_nak", CTL(CTL_NAK, .code = NAK_RNR, .timer = 31, .number = 1), "" },
	{ "fpdu_ctl_resync", CTL(CTL_RESYNC, .number = 0xfffffe, .msn0 = 4, .msn1 = 5), "" },
	{ "fpdu_ctl_recv_posted", CTL(CTL_RECV_POSTED), "" },
	{ "fpdu_ctl_srq", CTL(CTL_SRQ, .number = 0x123456), "" },
	{ "fpdu_ctl_user", CTL(CTL_USER, .code = 4, .len = 4, .data = { 0, 28, 'n', 'o' }), "" },
};
enum { GOLDENS = sizeof(goldens) / sizeof(goldens[0]), FPDU_MAX = 512 };

/* All of an FPDU; its length. */
static size_t fpdu_make(uint8_t *buf, const struct rc_frame *h, const char *payload, bool crc)
{
	size_t n = rdmap_encode(buf, h);
	uint32_t trailer = rdmap_trailer(n, h->payload);

	memcpy(buf + n, payload, h->payload);
	n += h->payload;
	memset(buf + n, 0, trailer);
	n += trailer;
	if (crc)
		crc32c_put(buf + n - 4, crc32c(CRC32C_INIT, buf, n - 4));
	return n;
}

static bool encodes(const uint8_t *want, size_t n, const struct rc_frame *h,
		    const char *payload, bool crc)
{
	uint8_t got[FPDU_MAX];

	return CHECK_EQ(fpdu_make(got, h, payload, crc), n) && CHECK(!memcmp(got, want, n));
}

static bool decodes(const uint8_t *fpdu, size_t n, const struct rc_frame *h)
{
	struct rc_frame got;
	int len;

	memset(&got, 0, sizeof(got)); /* what the message does not have */
	len = rdmap_decode(fpdu, n, &got);
	return CHECK(len > 0) &&
	       CHECK_EQ((uint32_t)len + h->payload + rdmap_trailer((size_t)len, h->payload),
			n) &&
	       CHECK(!memcmp(&got, h, sizeof(got)));
}

/* With its CRC, and without one. */
static void same_as(const char *name, const struct rc_frame *h, const char *payload)
{
	uint8_t fpdu[FPDU_MAX];
	size_t n = golden(name, fpdu, sizeof(fpdu));
	bool good;

	REQUIRE(n > 4 && n < sizeof(fpdu));
	good = encodes(fpdu, n, h, payload, true) && decodes(fpdu, n, h);
	memset(fpdu + n - 4, 0, 4);
	good = good && encodes(fpdu, n, h, payload, false) && decodes(fpdu, n, h);
	if (!good)
		diag("%s", name);
}

static void golden_fpdus(void)
{
	for (int i = 0; i < GOLDENS; i++)
		same_as(goldens[i].name, &goldens[i].h, goldens[i].payload);
}

static void golden_terminate(void)
{
	struct rc_frame of = goldens[0].h, h;

	of.ack_req = false; /* there is none on a plain stream */
	memset(&h, 0, sizeof(h));
	term_encode(&h, TERM_DDP_STAG, &of);
	h.qn = DDP_QN_TERM;
	same_as("fpdu_terminate", &h, "");
	CHECK_EQ(term_decode(&h), TERM_DDP_STAG);
}

/* Every opcode and every control message has one, and no file is forgotten. */
static void goldens_are_complete(void)
{
	const char *src = getenv("SOURCE");
	unsigned ops = 1u << RC_TERMINATE, types = 0;
	int files = 0;
	char path[500];
	struct dirent *e;
	DIR *d;

	for (int i = 0; i < GOLDENS; i++) {
		ops |= 1u << goldens[i].h.op;
		if (goldens[i].h.op == RC_CTL)
			types |= 1u << goldens[i].h.ctl.type;
	}
	for (int op = 0; op < 16; op++)
		CHECK_EQ(ops >> op & 1, strcmp(rc_op_str(op), "unknown") != 0);
	CHECK_EQ(types, 1u << CTL_ACK | 1u << CTL_NAK | 1u << CTL_RESYNC |
				1u << CTL_RECV_POSTED | 1u << CTL_SRQ | 1u << CTL_USER);
	snprintf(path, sizeof(path), "%s/tests/wire", src ? src : ".");
	d = opendir(path);
	REQUIRE(d);
	while ((e = readdir(d)))
		files += !strncmp(e->d_name, "fpdu_", 5);
	closedir(d);
	CHECK_EQ(files, GOLDENS + 1);
}

/* The CRC is that of the whole FPDU: no bit of it may change. */
static void a_changed_bit_is_seen(void)
{
	uint8_t buf[FPDU_MAX], crc[4];
	size_t n = golden("fpdu_write", buf, sizeof(buf));

	REQUIRE(n > 4);
	for (size_t i = 0; i < (n - 4) * 8; i++) {
		buf[i / 8] ^= (uint8_t)(1u << i % 8);
		crc32c_put(crc, crc32c(CRC32C_INIT, buf, n - 4));
		CHECK(memcmp(crc, buf + n - 4, 4) != 0);
		buf[i / 8] ^= (uint8_t)(1u << i % 8);
	}
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
	T_RUN(golden_fpdus);
	T_RUN(golden_terminate);
	T_RUN(goldens_are_complete);
	T_RUN(a_changed_bit_is_seen);
	return t_done();
}
