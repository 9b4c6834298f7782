/* SPDX-License-Identifier: BSD-2-Clause */
#include "tcp/golden_test.h"
#include "tcp/mpa.h"

static const uint8_t addr4[16] = { [10] = 0xff, [11] = 0xff, [12] = 10, 77, 0, 2 };

static struct mpa_cm_req req_example(void)
{
	struct mpa_cm_req r = {
		.ird = 16, .ord = 4, .ps = 0x106, .qp_type = 2,
		.srq = true, .flow_control = true, .retry = 7, .rnr_retry = 6,
		.timeout = 17, .mtu = 3, .qpn = 0x123456, .psn = 0xabcdef,
		.src_port = 50000, .dst_port = 7471,
		.ece_vendor = 0x1122, .ece_options = 0xdeadbeef,
		.priv = (const uint8_t *)"hello", .priv_len = 5,
	};

	memcpy(r.src_addr, addr4, 16);
	return r;
}

static void same_bytes(const char *name, const uint8_t *got, int len)
{
	uint8_t want[MPA_FRAME_MAX];
	size_t n = golden(name, want, sizeof(want));

	REQUIRE(n > 0);
	REQUIRE_EQ(len, n);
	CHECK(memcmp(got, want, n) == 0);
}

static void golden_frames(void)
{
	struct mpa_cm_req r = req_example(), r6 = {
		.crc = true, .ps = 0x106, .qp_type = 2, .ipv6 = true, .mtu = 5, .qpn = 2,
		.src_port = 1, .dst_port = 64511, .src_addr = { 0xfe, 0x80, [15] = 1 },
	};
	uint8_t buf[MPA_FRAME_MAX], priv[196];
	struct mpa_cm_rep rep = {
		.ird = 4, .ord = 16, .flow_control = true, .rnr_retry = 5, .mtu = 3,
		.qpn = 0x654321, .psn = 1, .ece_vendor = 0x1122, .ece_options = 1,
		.priv = priv, .priv_len = 196,
	};
	struct mpa_cm_rej rej = { 28, (const uint8_t *)"no", 2 };
	struct mpa_hello h = { .ird = 16, .ord = 4, .mtu = 4, .qp_type = 3, .src_qpn = 0xc00001,
			       .dst_qpn = 0xc00102, .rq_psn = 0x010203, .sq_psn = 0x040506 };
	struct mpa_hello_rep hr = { .status = MPA_HELLO_NOT_READY };

	for (unsigned i = 0; i < sizeof(priv); i++)
		priv[i] = (uint8_t)i;
	memcpy(h.src_gid, addr4, 16);
	h.src_gid[15] = 1;
	memcpy(h.dst_gid, addr4, 16);
	same_bytes("mpa_req", buf, mpa_cm_req_encode(buf, sizeof(buf), &r));
	same_bytes("mpa_req_ipv6", buf, mpa_cm_req_encode(buf, sizeof(buf), &r6));
	same_bytes("mpa_rep", buf, mpa_cm_rep_encode(buf, sizeof(buf), &rep));
	same_bytes("mpa_rej", buf, mpa_cm_rej_encode(buf, sizeof(buf), &rej));
	same_bytes("mpa_hello", buf, mpa_hello_encode(buf, sizeof(buf), &h));
	h.ask = true;
	h.qp_type = 2;
	same_bytes("mpa_ask", buf, mpa_hello_encode(buf, sizeof(buf), &h));
	same_bytes("mpa_hello_rep", buf, mpa_hello_rep_encode(buf, sizeof(buf), &hr));
}

static void request_comes_back(void)
{
	struct mpa_cm_req r = req_example(), got;
	uint8_t buf[MPA_FRAME_MAX];
	struct mpa_frame f;
	int n = mpa_cm_req_encode(buf, sizeof(buf), &r);

	REQUIRE_EQ(mpa_decode(buf, (size_t)n, &f), n);
	CHECK(!f.reply);
	CHECK_EQ(f.flags, MPA_F_ENHANCED | MPA_F_OURS_REQ);
	CHECK_EQ(mpa_kind(&f), MPA_KIND_REQ);
	REQUIRE_EQ(mpa_cm_req_decode(&f, &got), 0);
	CHECK_EQ(got.ird, 16);
	CHECK_EQ(got.ord, 4);
	CHECK_EQ(got.qpn, r.qpn);
	CHECK_EQ(got.psn, r.psn);
	CHECK_EQ(got.src_port, 50000);
	CHECK_EQ(got.dst_port, 7471);
	CHECK_EQ(got.retry, 7);
	CHECK_EQ(got.rnr_retry, 6);
	CHECK_EQ(got.timeout, 17);
	CHECK_EQ(got.mtu, 3);
	CHECK(got.srq && got.flow_control && !got.ipv6 && !got.crc);
	CHECK_EQ(got.ece_vendor, 0x1122);
	CHECK_EQ(got.ece_options, 0xdeadbeef);
	CHECK(memcmp(got.src_addr, addr4, 16) == 0);
	REQUIRE_EQ(got.priv_len, 5);
	CHECK(memcmp(got.priv, "hello", 5) == 0);
}

static void golden_decodes(void)
{
	uint8_t buf[MPA_FRAME_MAX];
	struct mpa_frame f;
	struct mpa_cm_rep rep;
	struct mpa_cm_rej rej;
	struct mpa_hello h;
	struct mpa_hello_rep hr;

	REQUIRE(mpa_decode(buf, golden("mpa_rep", buf, sizeof(buf)), &f) > 0);
	REQUIRE_EQ(mpa_cm_rep_decode(&f, &rep), 0);
	CHECK_EQ(rep.ird, 4);
	CHECK_EQ(rep.ord, 16);
	CHECK_EQ(rep.qpn, 0x654321);
	CHECK_EQ(rep.rnr_retry, 5);
	CHECK(rep.flow_control && !rep.srq);
	CHECK_EQ(rep.priv_len, 196);
	CHECK_EQ(rep.priv[195], 195);
	CHECK_EQ(mpa_cm_rej_decode(&f, &rej), -EPROTO);

	REQUIRE(mpa_decode(buf, golden("mpa_rej", buf, sizeof(buf)), &f) > 0);
	REQUIRE_EQ(mpa_cm_rej_decode(&f, &rej), 0);
	CHECK_EQ(rej.reason, 28);
	CHECK_EQ(rej.priv_len, 2);
	CHECK_EQ(mpa_cm_rep_decode(&f, &rep), -EPROTO);

	REQUIRE(mpa_decode(buf, golden("mpa_hello", buf, sizeof(buf)), &f) > 0);
	REQUIRE_EQ(mpa_hello_decode(&f, &h), 0);
	CHECK_EQ(h.src_qpn, 0xc00001);
	CHECK_EQ(h.dst_qpn, 0xc00102);
	CHECK_EQ(h.rq_psn, 0x010203);
	CHECK_EQ(h.sq_psn, 0x040506);
	CHECK_EQ(h.mtu, 4);
	CHECK_EQ(h.qp_type, 3);
	CHECK_EQ(h.dst_gid[15], 2);
	CHECK(!h.ask);
	buf[27] = 0; /* of peers that knew RC alone */
	REQUIRE_EQ(mpa_hello_decode(&f, &h), 0);
	CHECK_EQ(h.qp_type, 2);

	REQUIRE(mpa_decode(buf, golden("mpa_ask", buf, sizeof(buf)), &f) > 0);
	REQUIRE_EQ(mpa_hello_decode(&f, &h), 0);
	CHECK(h.ask);
	CHECK_EQ(h.dst_qpn, 0xc00102);
	CHECK_EQ(h.qp_type, 2);

	REQUIRE(mpa_decode(buf, golden("mpa_hello_rep", buf, sizeof(buf)), &f) > 0);
	REQUIRE_EQ(mpa_hello_rep_decode(&f, &hr), 0);
	CHECK_EQ(hr.status, MPA_HELLO_NOT_READY);
}

/* Each prefix asks for more, and mpa_want never asks for too much. */
static void truncation(void)
{
	static const char *const names[] = { "mpa_req", "mpa_req_ipv6", "mpa_rep",
					     "mpa_rej", "mpa_hello", "mpa_hello_rep",
					     "mpa_ask" };
	uint8_t buf[MPA_FRAME_MAX + 16];
	struct mpa_frame f;
	size_t n, have, want;

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		n = golden(names[i], buf, MPA_FRAME_MAX);
		REQUIRE(n > MPA_HDR_LEN);
		for (have = 0; have < n; have++) {
			uint8_t *exact = malloc(have ? have : 1);

			memcpy(exact, buf, have);
			CHECK_EQ(mpa_decode(exact, have, &f), -EAGAIN);
			want = mpa_want(exact, have);
			CHECK(want > 0 && have + want <= n);
			free(exact);
		}
		CHECK_EQ(mpa_want(buf, n), 0);
		CHECK_EQ(mpa_decode(buf, n, &f), n);
		CHECK_EQ(mpa_decode(buf, n + 16, &f), n);
	}
}

/* Private data cut at every length under a matching length field. */
static void short_headers(void)
{
	uint8_t buf[MPA_FRAME_MAX];
	struct mpa_frame f;
	struct mpa_cm_req r;
	struct mpa_hello h;
	unsigned n;

	REQUIRE(golden("mpa_req", buf, sizeof(buf)) > 0);
	for (n = 4; n < 4 + 52; n++) {
		buf[19] = (uint8_t)n;
		REQUIRE(mpa_decode(buf, 20 + n, &f) > 0);
		CHECK_EQ(mpa_cm_req_decode(&f, &r), -EPROTO);
	}
	buf[18] = 0;
	buf[19] = 4 + 52 + 57; /* one byte more than a request may carry */
	REQUIRE(mpa_decode(buf, sizeof(buf), &f) > 0);
	CHECK_EQ(mpa_cm_req_decode(&f, &r), -EPROTO);
	REQUIRE(golden("mpa_hello", buf, sizeof(buf)) > 0);
	for (n = 4; n < 4 + 48; n++) {
		buf[19] = (uint8_t)n;
		REQUIRE(mpa_decode(buf, 20 + n, &f) > 0);
		CHECK_EQ(mpa_hello_decode(&f, &h), -EPROTO);
	}
}

static void bad_frames(void)
{
	uint8_t good[MPA_FRAME_MAX], buf[MPA_FRAME_MAX];
	struct mpa_frame f;
	size_t n = golden("mpa_req", good, sizeof(good)), i;

	REQUIRE(n > 0);
	for (i = 0; i < MPA_KEY_LEN; i++) {
		memcpy(buf, good, n);
		buf[i] ^= 0x80;
		CHECK_EQ(mpa_decode(buf, i + 1, &f), -EPROTO);
	}
	memcpy(buf, good, n);
	buf[18] = 2; /* 512 + */
	CHECK_EQ(mpa_decode(buf, 20, &f), -EPROTO);
	CHECK_EQ(mpa_want(buf, 20), 0);
	memcpy(buf, good, n);
	buf[17] = 0;
	CHECK_EQ(mpa_decode(buf, n, &f), -EPROTO);
	buf[17] = 3;
	CHECK_EQ(mpa_decode(buf, n, &f), -EPROTO);
	buf[17] = 1; /* enhanced needs revision 2 */
	CHECK_EQ(mpa_decode(buf, n, &f), -EPROTO);
	memcpy(buf, good, n);
	buf[18] = buf[19] = 0; /* and its two words */
	CHECK_EQ(mpa_decode(buf, n, &f), -EPROTO);
}

static int kind_after(const char *name, size_t at, uint8_t value)
{
	uint8_t buf[MPA_FRAME_MAX];
	struct mpa_frame f;
	size_t n = golden(name, buf, sizeof(buf));

	buf[at] = value;
	return n && mpa_decode(buf, n, &f) > 0 ? mpa_kind(&f) : -EIO;
}

static void whose_header(void)
{
	/* an echo of the request's flags, as siw makes it, is not ours */
	CHECK_EQ(kind_after("mpa_rep", 16, 0x14), -ENOMSG);
	CHECK_EQ(kind_after("mpa_rep", 16, 0x16), -ENOMSG);
	CHECK_EQ(kind_after("mpa_rep", 16, 0x12), MPA_KIND_REP);
	CHECK_EQ(kind_after("mpa_req", 16, 0x10), -ENOMSG);
	CHECK_EQ(kind_after("mpa_req", 16, 0x16), -ENOMSG);
	CHECK_EQ(kind_after("mpa_req", 24, 2), -EPROTONOSUPPORT);
	CHECK_EQ(kind_after("mpa_req", 25, MPA_KIND_REP), -EPROTO);
	CHECK_EQ(kind_after("mpa_req", 25, 0), -EPROTO);
	CHECK_EQ(kind_after("mpa_req", 25, 200), -EPROTO);
	CHECK_EQ(kind_after("mpa_rej", 16, 0x12), -EPROTO); /* R missing */
	CHECK_EQ(kind_after("mpa_rep", 16, 0x32), -EPROTO); /* R too much */
}

static void fields_out_of_range(void)
{
	static const struct {
		size_t at;
		uint8_t value;
	} bad[] = { { 24 + 6, 8 }, { 24 + 7, 8 }, { 24 + 8, 32 }, { 24 + 9, 0 }, { 24 + 9, 6 } };
	uint8_t buf[MPA_FRAME_MAX];
	struct mpa_frame f;
	struct mpa_cm_req r;
	size_t n;

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		n = golden("mpa_req", buf, sizeof(buf));
		buf[bad[i].at] = bad[i].value;
		REQUIRE(mpa_decode(buf, n, &f) > 0);
		CHECK_EQ(mpa_cm_req_decode(&f, &r), -EPROTO);
	}
	r = req_example();
	r.qpn = 1 << 24;
	CHECK_EQ(mpa_cm_req_encode(buf, sizeof(buf), &r), -EINVAL);
	r = req_example();
	r.priv_len = 57;
	CHECK_EQ(mpa_cm_req_encode(buf, sizeof(buf), &r), -EINVAL);
	r = req_example();
	for (n = 0; n < 20 + 4 + 52 + 5; n++)
		CHECK_EQ(mpa_cm_req_encode(buf, n, &r), -ENOSPC);
	CHECK_EQ(mpa_cm_req_encode(buf, n, &r), n);
}

static void plain_frames(void)
{
	uint8_t buf[MPA_FRAME_MAX];
	struct mpa_frame f = { .reply = true, .flags = MPA_F_CRC, .rev = 2,
			       .pd = (const uint8_t *)"abc", .pd_len = 3 }, got;
	uint16_t ird, ord;
	int n = mpa_plain_encode(buf, sizeof(buf), &f, 7, 9, 0);

	REQUIRE_EQ(n, 27);
	REQUIRE_EQ(mpa_decode(buf, 27, &got), 27);
	CHECK_EQ(got.flags, MPA_F_CRC | MPA_F_ENHANCED);
	REQUIRE_EQ(mpa_depths(&got, &ird, &ord), 0);
	CHECK_EQ(ird, 7);
	CHECK_EQ(ord, 9);
	CHECK(memcmp(got.pd + 4, "abc", 3) == 0);
	buf[20] |= 0xc0; /* control bits A and B are not depth */
	CHECK_EQ(mpa_depths(&got, &ird, &ord), 0);
	CHECK_EQ(ird, 7);
	CHECK_EQ(mpa_kind(&got), -ENOMSG);
	CHECK_EQ(mpa_p2p(&got), MPA_P2P | MPA_RTR_SEND);
	REQUIRE_EQ(mpa_plain_encode(buf, sizeof(buf), &f, 7, 9, MPA_P2P | MPA_RTR_WRITE), 27);
	CHECK(buf[20] == 0x80 && buf[21] == 7 && buf[22] == 0x80 && buf[23] == 9);
	REQUIRE_EQ(mpa_decode(buf, 27, &got), 27);
	CHECK_EQ(mpa_p2p(&got), MPA_P2P | MPA_RTR_WRITE);
	f.rev = 1; /* RFC 5044: neither depths nor modes */
	REQUIRE_EQ(mpa_plain_encode(buf, sizeof(buf), &f, 7, 9, MPA_P2P), 23);
	REQUIRE_EQ(mpa_decode(buf, 23, &got), 23);
	CHECK(got.rev == 1 && got.flags == MPA_F_CRC && !mpa_p2p(&got));
	CHECK_EQ(mpa_depths(&got, &ird, &ord), -EPROTO);
	f.rev = 2;
	f.pd_len = MPA_PD_MAX - 3;
	CHECK_EQ(mpa_plain_encode(buf, sizeof(buf), &f, 0, 0, 0), -EINVAL);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(golden_frames);
	T_RUN(request_comes_back);
	T_RUN(golden_decodes);
	T_RUN(truncation);
	T_RUN(short_headers);
	T_RUN(bad_frames);
	T_RUN(whose_header);
	T_RUN(fields_out_of_range);
	T_RUN(plain_frames);
	return t_done();
}
