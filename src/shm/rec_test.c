/* SPDX-License-Identifier: BSD-2-Clause */
/* Records of streams: every frame there and back, and what a hostile peer may write. Each
 * record is in memory of exactly its size, so that a sanitizer sees reads behind it. */
#include "shm/rec.h"
#include "shm/ring.h"
#include "tests/t.h"

enum { SLOT = 0x01020304, ACK = 0xabcdef, BODY_MAX = 300, SOME = 40 };

/* One frame of each kind. h.payload: it may have one. */
static struct rc_frame frames[] = {
	{ .op = RC_WRITE, .payload = SOME, .stag = 0x11223344, .to = 0x8899aabbccddeeff,
	  .msn = 77 },
	{ .op = RC_READ_REQ, .msn = 5,
	  .read = { 0x01010101, 0x02020202, 0x03030303, 0x0404040404040404,
		    0x0505050505050505 } },
	{ .op = RC_READ_RESP, .payload = SOME, .stag = 0xffffffff, .to = UINT64_MAX },
	{ .op = RC_SEND, .payload = SOME, .msn = UINT32_MAX, .mo = UINT32_MAX },
	{ .op = RC_SEND_INV, .payload = SOME, .msn = 1, .mo = 2, .inv_stag = 0xfedcba98 },
	{ .op = RC_SEND_SE, .payload = SOME, .msn = 3, .mo = 4 },
	{ .op = RC_SEND_SE_INV, .payload = SOME, .msn = 5, .mo = 6, .inv_stag = 1 },
	{ .op = RC_IMM, .msn = 7, .imm = { 0xdeadbeef, IMM_ALONE } },
	{ .op = RC_IMM_SE, .msn = 8, .imm = { 0xbeefdead, IMM_PREFIX } },
	{ .op = RC_ATOMIC_REQ, .msn = 9,
	  .atomic = { RC_CMP_SWAP, 0x0a0a0a0a, 0x0b0b0b0b, 0x0c0c0c0c0c0c0c0c,
		      0x0d0d0d0d0d0d0d0d, 0x0e0e0e0e0e0e0e0e } },
	{ .op = RC_ATOMIC_RESP,
	  .msn = 10,
	  .atomic_resp = { 0x0f0f0f0f, 0x1010101010101010 } },
	{ .op = RC_CTL,
	  .ctl = { .type = CTL_NAK,
		   .code = NAK_RNR,
		   .timer = 31,
		   .number = 0xffffff,
		   .msn0 = 11,
		   .msn1 = 12 } },
	{ .op = RC_CTL,
	  .ctl = { .type = CTL_USER, .code = 2, .len = 1, .data = { 99 } } },
	{ .op = RC_CTL,
	  .ctl = { .type = CTL_USER,
		   .code = 255,
		   .len = RC_CTL_DATA,
		   .data = { 1, 2, 3, [RC_CTL_DATA - 1] = 200 } } },
};
enum { FRAMES = sizeof(frames) / sizeof(frames[0]) };

static bool is_tagged(const struct rc_frame *f)
{
	return f->op == RC_WRITE || f->op == RC_READ_RESP;
}

static uint32_t body_of(const struct rc_frame *f)
{
	return rec_head(f) - (uint32_t)sizeof(struct rec_stream);
}

/* The fields that the frame has. */
static bool is_equal(const struct rc_frame *a, const struct rc_frame *b)
{
	if (a->op != b->op || a->last != b->last || a->ack_req != b->ack_req ||
	    a->payload != b->payload || a->msn != b->msn)
		return false;
	if (is_tagged(a) ? a->stag != b->stag || a->to != b->to :
			   a->inv_stag != b->inv_stag || a->mo != b->mo)
		return false;
	return !memcmp(&a->read, &b->read, body_of(a));
}

/* A record of the frame in memory of its size, filled with 0xee before. */
static struct rec_stream *record(const struct rc_frame *f, uint32_t *bytes)
{
	struct rec_stream *r;

	*bytes = rec_head(f) + f->payload;
	r = malloc(*bytes);
	memset(r, 0xee, *bytes);
	rec_put(r, SLOT, f);
	return r;
}

/* As the link does. */
static int get(const struct rec_stream *rec, uint32_t bytes, struct rec_stream *r,
	       struct rc_frame *f)
{
	memset(r, 0, sizeof(*r));
	ring_read(r, rec, bytes < sizeof(*r) ? bytes : sizeof(*r));
	return rec_get(rec, bytes, r, f);
}

static void every_frame_returns(void)
{
	for (unsigned i = 0; i < FRAMES; i++)
		for (unsigned flags = 0; flags < 8; flags++) {
			struct rc_frame f = frames[i], got;
			struct rec_stream *rec, r;
			uint32_t bytes;

			memset(&got, 0x55, sizeof(got));
			f.last = flags & 1;
			f.ack_req = flags & 2;
			rec = record(&f, &bytes);
			if (flags & 4)
				rec_put_ack(rec, ACK);
			CHECK_EQ(rec->word, 0xeeeeeeee); /* the ring's */
			CHECK(rec_head(&f) <= REC_HEAD_MAX);
			CHECK_EQ(get(rec, bytes, &r, &got), (int)rec_head(&f));
			CHECK(is_equal(&f, &got));
			CHECK_EQ(r.slot, SLOT);
			CHECK_EQ(!!(r.flags & REC_ACK), !!(flags & 4));
			CHECK(!(flags & 4) || r.ack == ACK);
			CHECK(!(r.flags & REC_PULL));
			for (uint32_t k = rec_head(&f); k < bytes; k++)
				CHECK_EQ(((uint8_t *)rec)[k], 0xee); /* payload */
			free(rec);
		}
}

/* Every record that is shorter than the frame's. Payload may end anywhere: then the frame
 * is a shorter one. */
static void every_length(void)
{
	for (unsigned i = 0; i < FRAMES; i++) {
		struct rc_frame f = frames[i], got;
		uint32_t bytes, head = rec_head(&f);
		struct rec_stream *rec = record(&f, &bytes), r;

		for (uint32_t n = 0; n <= bytes; n++) {
			uint8_t *part = malloc(n ? n : 1);

			memcpy(part, rec, n);
			CHECK_EQ(get((void *)part, n, &r, &got),
				 n < head ? -EPROTO : (int)head);
			if (n >= head)
				CHECK_EQ(got.payload, n - head);
			free(part);
		}
		free(rec);
	}
}

/* Bytes behind a frame that has no payload. */
static void payload_of_the_wrong_frames(void)
{
	for (unsigned i = 0; i < FRAMES; i++) {
		struct rc_frame f = frames[i], got;
		bool may = f.payload;
		struct rec_stream *rec, r;
		uint32_t bytes;

		f.payload = 1;
		rec = record(&f, &bytes);
		CHECK_EQ(get(rec, bytes, &r, &got),
			 may ? (int)rec_head(&f) : -EPROTO);
		free(rec);
	}
}

/* Only one body is right: the frame's own, and a control message's with its length. */
static void every_size_of_a_body(void)
{
	for (unsigned i = 0; i < FRAMES; i++)
		for (uint32_t body = 0; body <= BODY_MAX; body++) {
			struct rc_frame f = frames[i], got;
			uint32_t bytes = (uint32_t)sizeof(struct rec_stream) + body;
			uint8_t full[sizeof(struct rec_stream) + BODY_MAX] = { 0 };
			struct rec_stream r, *rec = malloc(bytes);

			rec_put(full, SLOT, &f);
			((struct rec_stream *)full)->body = (uint16_t)body;
			memcpy(rec, full, bytes);
			CHECK_EQ(get(rec, bytes, &r, &got),
				 body == body_of(&f) ? (int)bytes : -EPROTO);
			free(rec);
		}
}

/* A body that reaches behind the record. */
static void bodies_behind_the_end(void)
{
	struct rec_stream *rec = calloc(1, sizeof(*rec)), r;
	struct rc_frame got;

	for (unsigned op = 0; op < 256; op++)
		for (uint32_t body = 1; body < 65536; body = body * 2 + 1) {
			rec->op = (uint8_t)op;
			rec->body = (uint16_t)body;
			CHECK_EQ(get(rec, sizeof(*rec), &r, &got), -EPROTO);
		}
	free(rec);
}

static bool is_op(unsigned op)
{
	for (unsigned i = 0; i < FRAMES; i++)
		if (frames[i].op == op)
			return true;
	return false;
}

/* Those that no frame has are refused: RC_TERMINATE is a byte stream's. */
static void every_opcode(void)
{
	for (unsigned op = 0; op < 256; op++) {
		struct rec_stream r, *rec;
		struct rc_frame f = { .op = RC_SEND }, got;
		uint32_t bytes;

		for (unsigned i = 0; i < FRAMES; i++)
			if (frames[i].op == op)
				f = frames[i];
		rec = record(&f, &bytes);
		rec->op = (uint8_t)op;
		CHECK_EQ(get(rec, bytes, &r, &got),
			 is_op(op) ? (int)rec_head(&f) : -EPROTO);
		free(rec);
	}
}

/* Bits that no version has yet are ignored. */
static void other_flags(void)
{
	struct rc_frame got, f = frames[3];
	uint32_t bytes;
	struct rec_stream *rec = record(&f, &bytes), r;

	for (unsigned flag = REC_PULL << 1; flag < 256; flag <<= 1) {
		rec->flags = (uint8_t)flag;
		CHECK_EQ(get(rec, bytes, &r, &got), (int)rec_head(&f));
		CHECK(is_equal(&f, &got));
	}
	free(rec);
}

/* ---- pieces ----------------------------------------------------------------------- */

/* A record of REC_PULL with n pieces, all alike, and `more` bytes behind them. */
static struct rec_stream *pull_record(unsigned n, uint32_t len, uint32_t more,
				      uint32_t *bytes)
{
	struct rc_frame f = { .op = RC_SEND, .last = true, .msn = 5, .mo = 6 };
	struct rec_stream *rec;

	*bytes = (uint32_t)(sizeof(*rec) + n * sizeof(struct rec_piece)) + more;
	rec = calloc(1, *bytes);
	rec_put(rec, SLOT, &f);
	rec_put_pull(rec, n);
	for (unsigned i = 0; i < n; i++)
		((struct rec_piece *)(rec + 1))[i] =
			(struct rec_piece){ 0x1000000000ull + i, 0x77 + i, len };
	return rec;
}

static void pieces_return(void)
{
	for (unsigned n = 1; n <= REC_PIECES; n++) {
		struct rec_piece p[REC_PIECES];
		struct rc_frame got;
		uint32_t bytes;
		struct rec_stream *rec = pull_record(n, 1000 + n, 0, &bytes), r;

		CHECK_EQ(get(rec, bytes, &r, &got), (int)bytes);
		CHECK(r.flags & REC_PULL);
		CHECK(got.last && got.op == RC_SEND && got.msn == 5 && got.mo == 6);
		CHECK_EQ(got.payload, 0);
		CHECK_EQ(rec_get_pieces(rec, &r, p, &got), (int)n);
		CHECK_EQ(got.payload, n * (1000 + n));
		for (unsigned i = 0; i < n; i++)
			CHECK(p[i].addr == 0x1000000000ull + i && p[i].key == 0x77 + i &&
			      p[i].len == 1000 + n);
		free(rec);
	}
}

static int get_pull(const struct rec_stream *rec, uint32_t bytes)
{
	struct rec_piece p[REC_PIECES];
	struct rec_stream r;
	struct rc_frame got;
	int ret = get(rec, bytes, &r, &got);

	return ret < 0 ? ret : rec_get_pieces(rec, &r, p, &got);
}

static void check_pull(unsigned n, uint32_t len, uint32_t more, int want)
{
	uint32_t bytes;
	struct rec_stream *rec = pull_record(n, len, more, &bytes);

	CHECK_EQ(get_pull(rec, bytes), want);
	free(rec);
}

static void numbers_and_sizes_of_pieces(void)
{
	check_pull(0, 0, 0, -EPROTO);
	check_pull(REC_PIECES + 1, 1, 0, -EPROTO);
	check_pull(1, 1, 1, -EPROTO); /* payload, too */
	check_pull(1, 1, sizeof(struct rec_piece), -EPROTO);
	check_pull(1, 0, 0, -EPROTO);
	check_pull(1, 1, 0, 1);
	check_pull(1, REC_PULL_MAX, 0, 1);
	check_pull(1, REC_PULL_MAX + 1, 0, -EPROTO);
	check_pull(2, REC_PULL_MAX / 2, 0, 2);
	check_pull(2, REC_PULL_MAX / 2 + 1, 0, -EPROTO);
	check_pull(1, UINT32_MAX, 0, -EPROTO);
	check_pull(2, 0x80000000, 0, -EPROTO); /* their sum is 0 */
	check_pull(REC_PIECES, REC_PULL_MAX / REC_PIECES, 0, REC_PIECES);
	check_pull(REC_PIECES, UINT32_MAX, 0, -EPROTO);
}

/* One that is empty among others. */
static void an_empty_piece(void)
{
	for (unsigned i = 0; i < 3; i++) {
		uint32_t bytes;
		struct rec_stream *rec = pull_record(3, 100, 0, &bytes);

		((struct rec_piece *)(rec + 1))[i].len = 0;
		CHECK_EQ(get_pull(rec, bytes), -EPROTO);
		free(rec);
	}
}

/* Parts of a piece, and pieces behind the end of the record. */
static void every_size_of_pieces(void)
{
	uint32_t bytes;
	struct rec_stream *rec = pull_record(REC_PIECES, 1, 0, &bytes);

	for (uint32_t body = 0; body <= bytes - sizeof(*rec); body++) {
		struct rec_stream *part = malloc(sizeof(*part) + body);
		bool whole = body && body % sizeof(struct rec_piece) == 0;

		memcpy(part, rec, sizeof(*part) + body);
		part->body = (uint16_t)body;
		CHECK_EQ(get_pull(part, (uint32_t)sizeof(*part) + body),
			 whole ? (int)(body / sizeof(struct rec_piece)) : -EPROTO);
		part->body = (uint16_t)(body + sizeof(struct rec_piece));
		CHECK_EQ(get_pull(part, (uint32_t)sizeof(*part) + body), -EPROTO);
		free(part);
	}
	free(rec);
}

static void only_sends_have_pieces(void)
{
	uint32_t bytes;
	struct rec_stream *rec = pull_record(2, 100, 0, &bytes);

	for (unsigned op = 0; op < 256; op++) {
		bool send = op >= RC_SEND && op <= RC_SEND_SE_INV;

		rec->op = (uint8_t)op;
		CHECK_EQ(get_pull(rec, bytes), send ? 2 : -EPROTO);
	}
	free(rec);
}

/* ---- while the peer writes --------------------------------------------------------- */

enum { CHANGING = 1024, TAKEN = 1000 };
static struct {
	_Alignas(64) uint8_t bytes[CHANGING]; /* a record */
	uint8_t behind[4096];		      /* read by whoever trusts a length */
} shared;
static atomic_bool stop;

/* Bytes that decide where something is, one after the other, as fast as they can be
 * written: opcode, flags, size of the body, length of a control message, of a piece. */
__attribute__((no_sanitize("thread"))) static void *change(void *arg)
{
	static const struct {
		uint8_t at, value[4];
	} places[] = {
		{ 8, { RC_CTL, RC_CTL, RC_SEND, RC_READ_REQ } },
		{ 9, { REC_LAST, REC_LAST | REC_ACK, REC_PULL, REC_LAST } },
		{ 10, { 20, 28, 32, 255 } },
		{ 32 + 6, { 0, 8, 12, 255 } },
		{ 32 + 12, { 0, 1, 16, 255 } },
		{ 32 + 15, { 0, 0, 0, 255 } },
	};
	volatile uint8_t *p = shared.bytes;
	uint32_t x = 1;

	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		unsigned i;

		x = x * 1664525u + 1013904223u;
		i = (x >> 20) % (sizeof(places) / sizeof(*places));
		p[places[i].at] = places[i].value[x >> 16 & 3];
	}
	return arg;
}

/* What was accepted fits together, and is within the record. */
static void check_taken(const struct rec_stream *r, const struct rc_frame *h, int head)
{
	struct rec_piece p[REC_PIECES];
	struct rc_frame f = *h;
	uint64_t sum = 0;
	int n;

	CHECK_EQ(head, (int)sizeof(*r) + r->body);
	CHECK_EQ(h->op, r->op);
	CHECK(h->payload == CHANGING - (uint32_t)head);
	if (h->op == RC_CTL)
		CHECK(h->ctl.len <= RC_CTL_DATA && rec_head(h) == (uint32_t)head);
	if (!(r->flags & REC_PULL))
		return;
	f.payload = 0;
	n = rec_get_pieces(shared.bytes, r, p, &f);
	for (int i = 0; i < n; i++)
		sum += p[i].len;
	CHECK(n < 0 || (n <= REC_PIECES && n == r->body / (int)sizeof(*p) &&
			sum == f.payload && sum <= REC_PULL_MAX));
}

__attribute__((no_sanitize("thread"))) static void a_record_that_changes(void)
{
	unsigned rounds = t_rounds(3000000, 100000000), taken = 0, n = 0;
	pthread_t t;

	memset(shared.bytes, 0, CHANGING);
	atomic_store(&stop, false);
	pthread_create(&t, NULL, change, NULL);
	for (; n < rounds || taken < TAKEN; n++) {
		uint32_t bytes = CHANGING;
		struct rec_stream r;
		struct rc_frame h;
		int head;

		ring_read(&r, shared.bytes, sizeof(r));
		if (r.flags & REC_PULL || r.op == RC_CTL) /* no payload follows the body */
			bytes = (uint32_t)sizeof(r) + r.body;
		head = bytes <= CHANGING ? rec_get(shared.bytes, bytes, &r, &h) : -1;
		if (head < 0)
			continue;
		taken += h.op == RC_CTL;
		h.payload += CHANGING - bytes;
		check_taken(&r, &h, head);
	}
	atomic_store(&stop, true);
	pthread_join(t, NULL);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(every_frame_returns);
	T_RUN(every_length);
	T_RUN(payload_of_the_wrong_frames);
	T_RUN(every_size_of_a_body);
	T_RUN(bodies_behind_the_end);
	T_RUN(every_opcode);
	T_RUN(other_flags);
	T_RUN(pieces_return);
	T_RUN(numbers_and_sizes_of_pieces);
	T_RUN(an_empty_piece);
	T_RUN(every_size_of_pieces);
	T_RUN(only_sends_have_pieces);
	T_RUN(a_record_that_changes);
	return t_done();
}
