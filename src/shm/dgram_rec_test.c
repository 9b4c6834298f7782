/* SPDX-License-Identifier: BSD-2-Clause */
/* Records of datagrams: there and back, and what a hostile peer may write. Each record is
 * in memory of exactly its size, so that a sanitizer sees reads behind it. */
#include "shm/dgram_rec.h"
#include "tests/t.h"

#include <arpa/inet.h>

static union ibv_gid gid(const char *text)
{
	union ibv_gid g;

	if (inet_pton(AF_INET6, text, g.raw) != 1)
		abort();
	return g;
}

static struct ud_head data(const char *sgid, const char *dgid, uint16_t len)
{
	return (struct ud_head){ .kind = UD_DATA, .traffic_class = 0xa1, .hop_limit = 0xb2,
				 .sl = 15, .len = len, .flow_label = 0xfffff,
				 .src_qpn = 0x123456, .dst_qpn = 0xfffffe,
				 .qkey = 0xdeadbeef, .sgid = gid(sgid), .dgid = gid(dgid) };
}

/* A record, filled with 0xee before. */
static uint8_t *record(const struct ud_head *h, uint32_t *head, uint32_t *bytes)
{
	uint8_t at[REC_DGRAM_HEAD_MAX] = { 0 };
	uint8_t *r;

	*head = rec_dgram_put(at, h, &h->sgid, &h->dgid);
	*bytes = *head + h->len;
	if (posix_memalign((void **)&r, RING_LINE, *bytes))
		abort();
	memset(r, 0xee, *bytes);
	memcpy(r, at, *head);
	return r;
}

static void returns(const struct ud_head *h, uint32_t want_head)
{
	struct ud_head got;
	uint32_t head, bytes;
	uint8_t *r = record(h, &head, &bytes);

	memset(&got, 0x55, sizeof(got));
	CHECK_EQ(head, want_head);
	CHECK_EQ(rec_dgram_get(r, bytes, &got), head);
	CHECK_EQ(got.kind, h->kind);
	CHECK_EQ(got.flags, h->flags);
	CHECK_EQ(got.traffic_class, h->traffic_class);
	CHECK_EQ(got.hop_limit, h->hop_limit);
	CHECK_EQ(got.sl, h->sl);
	CHECK_EQ(got.len, h->len);
	CHECK_EQ(got.flow_label, h->flow_label);
	CHECK_EQ(got.src_qpn, h->src_qpn);
	CHECK_EQ(got.dst_qpn, h->dst_qpn);
	CHECK_EQ(got.qkey, h->qkey);
	CHECK(!(h->flags & UD_IMM) || got.imm == h->imm);
	CHECK(h->kind == UD_DATA || got.token == h->token);
	CHECK(!memcmp(&got.sgid, &h->sgid, sizeof(got.sgid)));
	CHECK(!memcmp(&got.dgid, &h->dgid, sizeof(got.dgid)));
	free(r);
}

static void every_datagram_returns(void)
{
	static const struct {
		const char *s, *d;
		uint32_t head;
	} addresses[] = {
		{ "::ffff:127.0.0.1", "::ffff:10.1.2.3", 32 },
		{ "2001:db8::1", "2001:db8::2", 64 },
		{ "fe80::1", "::ffff:1.2.3.4", 64 },
		{ "::ffff:1.2.3.4", "::1", 64 },
	};
	static const uint16_t lens[] = { 0, 1, 64, UD_PAYLOAD_MAX };

	for (unsigned a = 0; a < 4; a++)
		for (unsigned i = 0; i < 4; i++) {
			struct ud_head h = data(addresses[a].s, addresses[a].d, lens[i]);

			returns(&h, addresses[a].head);
			h.flags = UD_SOLICITED;
			returns(&h, addresses[a].head);
			h.flags |= UD_IMM;
			h.imm = 0x01020304;
			returns(&h, addresses[a].head + 8);
			h.flags = UD_NO_GRH;
			returns(&h, addresses[a].head);
		}
}

static void marks_return(void)
{
	struct ud_head h = data("::ffff:127.0.0.1", "::1", 0);

	h.token = 0xfedcba98;
	for (h.kind = UD_MARK; h.kind <= UD_MARKED; h.kind++)
		returns(&h, 72);
}

/* Nothing is read behind the end of a record that is too short for its flags. */
static void every_length(void)
{
	struct ud_head h = data("::1", "::1", 0), got;
	uint32_t head, bytes;
	uint8_t *r, *cut;

	h.flags = UD_IMM;
	r = record(&h, &head, &bytes);
	for (uint32_t n = sizeof(struct rec_dgram); n <= head; n++) {
		if (posix_memalign((void **)&cut, RING_LINE, n))
			abort();
		memcpy(cut, r, n);
		CHECK_EQ(rec_dgram_get(cut, n, &got), n < head ? -EPROTO : (int)head);
		free(cut);
	}
	free(r);
}

/* A record whose field at this offset is changed is refused. */
static void refused(const struct ud_head *h, size_t at, size_t n, uint32_t value)
{
	struct ud_head got;
	uint32_t head, bytes;
	uint8_t *r = record(h, &head, &bytes);

	CHECK_EQ(rec_dgram_get(r, bytes, &got), head);
	memcpy(r + at, &value, n);
	if (!t_check(rec_dgram_get(r, bytes, &got) == -EPROTO, "refused", __FILE__, __LINE__))
		diag("offset %zu, value %x", at, value);
	free(r);
}

static void fields_out_of_range(void)
{
	struct ud_head h = data("::ffff:1.2.3.4", "::ffff:1.2.3.5", 16), mark = h;

	refused(&h, offsetof(struct rec_dgram, kind), 1, UD_MARKED + 1);
	refused(&h, offsetof(struct rec_dgram, kind), 1, 255);
	refused(&h, offsetof(struct rec_dgram, kind), 1, UD_MARK); /* no token, a payload */
	refused(&h, offsetof(struct rec_dgram, flags), 1, REC_DGRAM_GIDS);
	refused(&h, offsetof(struct rec_dgram, src_qpn), 4, 0x1000000);
	refused(&h, offsetof(struct rec_dgram, dst_qpn), 4, 0x1000000);
	refused(&h, offsetof(struct rec_dgram, dst_qpn), 4, UD_MCAST_QPN);
	refused(&h, offsetof(struct rec_dgram, flow_label), 4, 0x100000);
	mark.kind = UD_MARK;
	mark.len = 0;
	refused(&mark, offsetof(struct rec_dgram, flags), 1, 0);
}

static void payloads_that_are_too_long(void)
{
	struct ud_head h = data("::ffff:1.2.3.4", "::ffff:1.2.3.5", UD_PAYLOAD_MAX), got;
	uint32_t head, bytes;
	uint8_t *r = record(&h, &head, &bytes);
	struct ud_head mark = h;

	CHECK_EQ(rec_dgram_get(r, bytes + 1, &got), -EPROTO);
	CHECK_EQ(rec_dgram_get(r, RING_RECORD_MAX, &got), -EPROTO);
	free(r);
	mark.kind = UD_MARK;
	mark.len = 1;
	r = record(&mark, &head, &bytes);
	CHECK_EQ(rec_dgram_get(r, bytes, &got), -EPROTO);
	CHECK_EQ(rec_dgram_get(r, bytes - 1, &got), head);
	free(r);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(every_datagram_returns);
	T_RUN(marks_return);
	T_RUN(every_length);
	T_RUN(fields_out_of_range);
	T_RUN(payloads_that_are_too_long);
	return t_done();
}
