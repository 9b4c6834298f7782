/* SPDX-License-Identifier: BSD-2-Clause */
/* Small sends: which requests the fast path sends and how its records look, which records
 * it receives, and that it leaves all else as it was. */
#include "shm/small.h"
#include "shm/pair_test.h"

/* ---- sending ---------------------------------------------------------------------- */

/* small_send() for what was posted to e. The pair is held. */
NO_TSA static bool send_small(struct end *e)
{
	struct dev_qp *qp = to_qp(e->qp);
	bool all;

	lock_get(&qp->lock);
	lock_get(&e->l->tx_lock);
	all = small_send(e->s);
	lock_put(&e->l->tx_lock);
	lock_put(&qp->lock);
	return all;
}

/* A request, and what becomes of it. */
struct request {
	const char *name;
	enum ibv_wr_opcode op; /* IBV_WR_RDMA_WRITE is 0: taken for a send */
	unsigned flags;
	uint32_t len, len2; /* of the SGEs; len2 NONE: there is one; len NONE: none */
	bool bad_key;
	bool small; /* the fast path sends it */
};
#define NONE UINT32_MAX

static void post(struct end *e, const struct request *r)
{
	struct ibv_sge sge[2] = { sge_of(mem, r->len), sge_of(mem + r->len, r->len2) };
	struct ibv_send_wr wr = { .wr_id = 7,
				  .sg_list = sge,
				  .opcode = r->op,
				  .num_sge = 2,
				  .send_flags = r->flags | IBV_SEND_SIGNALED },
			   *bad;

	wr.opcode = r->op ? r->op : IBV_WR_SEND;
	wr.num_sge = r->len == NONE ? 0 : r->len2 == NONE ? 1 : 2;
	sge[0].lkey ^= r->bad_key ? 0x100 : 0;
	CHECK(!ibv_post_send(e->qp, &wr, &bad));
}

static uint32_t length(const struct request *r)
{
	return (r->len == NONE ? 0 : r->len) + (r->len2 == NONE ? 0 : r->len2);
}

/* The record of a small send: the only one. */
static void check_record(struct pair *p, struct ring_rx *at, const struct request *r)
{
	const struct stream *s = p->a.s;
	uint32_t bytes = 0;
	const struct rec_stream *rec = record_next(at, &bytes);

	if (!CHECK(rec))
		return;
	CHECK_EQ(bytes, sizeof(*rec) + length(r));
	CHECK_EQ(rec->slot, to_shm(p->b.s)->slot);
	CHECK_EQ(rec->op, r->flags & IBV_SEND_SOLICITED ? RC_SEND_SE : RC_SEND);
	CHECK_EQ(rec->flags, REC_LAST | REC_ACK_REQ);
	CHECK(!rec->body && !rec->ack && !rec->stag && !rec->to);
	CHECK_EQ(rec->msn, s->tx.msn0 - 1);
	CHECK_EQ(rec->msn, p->b.s->rx.msn0);
	CHECK(!memcmp(rec + 1, mem, length(r)));
	CHECK(!record_next(at, &bytes));
}

/* Alone on a stream: sent whole by the fast path, or left to the others untouched. Either
 * way it arrives, or fails as it should. */
static void run(struct pair *p, const struct request *r)
{
	struct dev_sq *sq = &to_qp(p->a.qp)->sq;
	bool bad = r->bad_key && length(r);
	struct ring_rx at;
	struct rc_tx tx;
	uint32_t bytes;
	bool all;

	memset(recv_mem(), 0, SMALL_MAX * 4);
	post_recv_of(&p->b, 5, recv_mem(), SMALL_MAX * 4);
	pair_hold(p);
	at = records_of(&p->a);
	tx = p->a.s->tx;
	post(&p->a, r);
	all = send_small(&p->a);
	if (!CHECK_EQ(all, r->small))
		diag("%s, %u bytes", r->name, length(r));
	CHECK_EQ(sq->tail - sq->next, !all);
	if (all) {
		check_record(p, &at, r);
	} else {
		CHECK(!memcmp(&tx, &p->a.s->tx, sizeof(tx)));
		CHECK(!record_next(&at, &bytes));
	}
	pair_release(p);
	CHECK(completes(p, &p->a, 7, bad ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS));
	if (bad)
		return;
	CHECK(completes(p, &p->b, 5, IBV_WC_SUCCESS));
	CHECK(!memcmp(recv_mem(), mem, length(r)));
	CHECK_EQ(recv_mem()[length(r)], 0);
}

static void sizes(void)
{
	static const struct request list[] = {
		{ "no SGE", .len = NONE, .len2 = NONE, .small = true },
		{ "one SGE", .len = 0, .len2 = NONE, .small = true },
		{ "one SGE", .len = 1, .len2 = NONE, .small = true },
		{ "one SGE", .len = 32, .len2 = NONE, .small = true },
		{ "one SGE", .len = 33, .len2 = NONE, .small = true },
		{ "one SGE", .len = SMALL_COMPOSED_MAX, .len2 = NONE, .small = true },
		{ "one SGE", .len = SMALL_COMPOSED_MAX + 1, .len2 = NONE, .small = true },
		{ "one SGE", .len = SMALL_MAX, .len2 = NONE, .small = true },
		{ "one SGE", .len = SMALL_MAX + 1, .len2 = NONE },
		{ "two SGEs", .len = 0, .len2 = 0, .small = true },
		{ "two SGEs", .len = 1, .len2 = 1 },
		{ "two SGEs", .len = 8, .len2 = 0 },
		{ "inline", .flags = IBV_SEND_INLINE, .len = 0, .len2 = NONE,
		  .small = true },
		{ "inline", .flags = IBV_SEND_INLINE, .len = SMALL_COMPOSED_MAX + 1,
		  .len2 = NONE, .small = true },
		{ "inline", .flags = IBV_SEND_INLINE, .len = DEV_MAX_INLINE, .len2 = NONE,
		  .small = true },
	};
	struct pair p;

	pair_open(&p, NULL);
	for (unsigned i = 0; i < sizeof(list) / sizeof(list[0]); i++)
		run(&p, &list[i]);
	pair_close(&p);
}

static void kinds_of_requests(void)
{
	static const struct request list[] = {
		{ "solicited", .flags = IBV_SEND_SOLICITED, .len = 9, .len2 = NONE,
		  .small = true },
		{ "fenced", .flags = IBV_SEND_FENCE, .len = 9, .len2 = NONE },
		{ "immediate", .op = IBV_WR_SEND_WITH_IMM, .len = 9, .len2 = NONE },
		{ "bad key, no bytes", .len = 0, .len2 = NONE, .bad_key = true,
		  .small = true },
		{ "bad key", .len = 9, .len2 = NONE, .bad_key = true },
	};
	struct pair p;

	pair_open(&p, NULL);
	for (unsigned i = 0; i < sizeof(list) / sizeof(list[0]); i++)
		run(&p, &list[i]);
	pair_close(&p);
}

/* An unreliable QP has other rules. */
static void only_reliable(void)
{
	struct pair_opt opt = { .type = IBV_QPT_UC };
	struct pair p;

	pair_open(&p, &opt);
	post_recv_of(&p.b, 5, recv_mem(), 64);
	pair_hold(&p);
	post_send_of(&p.a, 7, 8, IBV_SEND_SIGNALED);
	CHECK(!send_small(&p.a));
	pair_release(&p);
	CHECK(completes(&p, &p.a, 7, IBV_WC_SUCCESS));
	CHECK(completes(&p, &p.b, 5, IBV_WC_SUCCESS));
	pair_close(&p);
}

/* Those before the first one that is not small. */
static void part_of_a_chain(void)
{
	struct request small = { "small", .len = 9, .len2 = NONE };
	struct request fenced = { "fenced", .flags = IBV_SEND_FENCE, .len = 9,
				  .len2 = NONE };
	struct ring_rx at;
	uint32_t bytes;
	struct pair p;

	pair_open(&p, NULL);
	for (int i = 0; i < 4; i++)
		post_recv_of(&p.b, 5, recv_mem(), 64);
	pair_hold(&p);
	at = records_of(&p.a);
	post(&p.a, &small);
	post(&p.a, &small);
	post(&p.a, &fenced);
	post(&p.a, &small);
	CHECK(!send_small(&p.a));
	CHECK_EQ(to_qp(p.a.qp)->sq.tail - to_qp(p.a.qp)->sq.next, 2);
	CHECK(record_next(&at, &bytes));
	CHECK(record_next(&at, &bytes));
	CHECK(!record_next(&at, &bytes));
	pair_release(&p);
	for (int i = 0; i < 4; i++) {
		CHECK(completes(&p, &p.b, 5, IBV_WC_SUCCESS));
		CHECK(completes(&p, &p.a, 7, IBV_WC_SUCCESS));
	}
	pair_close(&p);
}

/* Something has to be sent before, or there is no room. */
static void not_now(void)
{
	struct pair p;
	struct ring_tx *tx;
	uint32_t head;

	pair_open(&p, NULL);
	tx = &p.a.l->tx;
	post_recv_of(&p.b, 5, recv_mem(), 64);
	pair_hold(&p);
	post_send_of(&p.a, 7, 8, IBV_SEND_SIGNALED);

	atomic_store(&p.a.l->tx_waiting, true);
	CHECK(!send_small(&p.a));
	atomic_store(&p.a.l->tx_waiting, false);

	p.a.s->tx.resync = true;
	CHECK(!send_small(&p.a));
	p.a.s->tx.resync = false;

	p.a.s->tx.hold = HOLD_RNR;
	CHECK(!send_small(&p.a));
	p.a.s->tx.hold = HOLD_NONE;

	p.a.s->rx.nak = true;
	CHECK(!send_small(&p.a));
	p.a.s->rx.nak = false;

	/* The consumer is a whole ring behind. */
	head = atomic_load(&tx->sh->head);
	tx->limit = tx->tail;
	atomic_store(&tx->sh->head, tx->tail - RING_LINES);
	CHECK(!send_small(&p.a));
	atomic_store(&tx->sh->head, head);

	CHECK(send_small(&p.a));
	pair_release(&p);
	CHECK(completes(&p, &p.a, 7, IBV_WC_SUCCESS));
	CHECK(completes(&p, &p.b, 5, IBV_WC_SUCCESS));
	pair_close(&p);
}

/* ---- acknowledgements -------------------------------------------------------------- */

/* Posts n sends, of which the k-th is signalled; the flags of their records. */
static void flags_of_chain(struct pair *p, int n, int k, uint8_t *flags)
{
	struct ring_rx at = records_of(&p->a);
	const struct rec_stream *rec;
	uint32_t bytes;

	for (int i = 0; i < n; i++)
		post_send_of(&p->a, 7, 8, i == k ? IBV_SEND_SIGNALED : 0);
	CHECK(send_small(&p->a));
	for (int i = 0; i < n; i++) {
		rec = record_next(&at, &bytes);
		flags[i] = rec ? rec->flags : 0;
	}
}

/* Asked for by the last request after a signalled one, and by every eighth from the half
 * of the queue on. */
static void wanted_acknowledgements(void)
{
	enum { WRS = 16, REST = WRS - 5 };
	struct pair_opt opt = { .max_wr = WRS };
	uint8_t flags[WRS];
	struct pair p;

	pair_open(&p, &opt);
	REQUIRE_EQ(to_qp(p.a.qp)->sq.max_wr, WRS);
	for (int i = 0; i < WRS; i++)
		post_recv_of(&p.b, 5, recv_mem(), 64);
	pair_hold(&p);
	flags_of_chain(&p, 1, NONE, flags);
	CHECK_EQ(flags[0], REC_LAST);
	flags_of_chain(&p, 3, 0, flags);
	CHECK_EQ(flags[0], REC_LAST);
	CHECK_EQ(flags[1], REC_LAST);
	CHECK_EQ(flags[2], REC_LAST | REC_ACK_REQ);
	flags_of_chain(&p, 1, NONE, flags);
	CHECK_EQ(flags[0], REC_LAST);
	flags_of_chain(&p, REST, NONE, flags);
	for (int i = 0; i < REST; i++) { /* five are out already */
		bool want = i == 2 || i == REST - 1;

		CHECK_EQ(flags[i], REC_LAST | (want ? REC_ACK_REQ : 0));
	}
	pair_release(&p);
	CHECK(completes(&p, &p.a, 7, IBV_WC_SUCCESS));
	for (int i = 0; i < WRS; i++)
		CHECK(completes(&p, &p.b, 5, IBV_WC_SUCCESS));
	pair_close(&p);
}

/* b receives the next record of a, by the fast path alone. */
NO_TSA static bool receive_small(struct pair *p)
{
	uint32_t bytes;
	uint8_t kind;
	const volatile void *rec = ring_peek(&p->b.l->rx, &bytes, &kind);
	struct rec_stream r;
	bool all = false;

	if (rec) {
		ring_read(&r, rec, sizeof(r));
		all = small_receive(p->b.s, &r, rec, bytes);
	}

	if (all)
		ring_consume(&p->b.l->rx, bytes);
	return all;
}

/* What b sends next tells a that its request was received. */
static void carried_acknowledgement(void)
{
	const struct rec_stream *rec;
	struct ring_rx at;
	uint32_t bytes;
	struct pair p;

	pair_open(&p, NULL);
	post_recv_of(&p.a, 5, recv_mem() + 64, 64);
	post_recv_of(&p.b, 6, recv_mem(), 64);
	pair_hold(&p);
	post_send_of(&p.a, 7, 8, IBV_SEND_SIGNALED);
	CHECK(send_small(&p.a));
	CHECK(receive_small(&p));
	CHECK(p.b.s->rx.ack_owed);
	at = records_of(&p.b);
	post_send_of(&p.b, 8, 8, IBV_SEND_SIGNALED);
	CHECK(send_small(&p.b));
	CHECK(!p.b.s->rx.ack_owed);
	rec = record_next(&at, &bytes);
	REQUIRE(rec);
	CHECK_EQ(rec->flags, REC_LAST | REC_ACK_REQ | REC_ACK);
	CHECK_EQ(rec->ack, PAIR_PSN + 1); /* pair_open() has sent the first */
	pair_release(&p);
	CHECK(completes(&p, &p.a, 7, IBV_WC_SUCCESS));
	CHECK(completes(&p, &p.a, 5, IBV_WC_SUCCESS));
	CHECK(completes(&p, &p.b, 6, IBV_WC_SUCCESS));
	CHECK(completes(&p, &p.b, 8, IBV_WC_SUCCESS));
	pair_close(&p);
}

/* a has sent, b has received and has nothing else to send. Held. */
static void owe_acknowledgement(struct pair *p)
{
	post_recv_of(&p->b, 6, recv_mem(), 64);
	pair_hold(p);
	post_send_of(&p->a, 7, 8, IBV_SEND_SIGNALED);
	CHECK(send_small(&p->a));
	CHECK(receive_small(p));
	CHECK(p->b.s->tx.ack_only);
}

NO_TSA static bool ack_small(struct pair *p)
{
	return small_ack(p->b.s);
}

static void acknowledgement_alone(void)
{
	struct rec_stream r;
	struct rc_frame f;
	struct ring_rx at;
	uint32_t bytes = 0;
	const void *rec;
	struct pair p;

	pair_open(&p, NULL);
	owe_acknowledgement(&p);
	at = records_of(&p.b);
	atomic_store(&p.b.l->tx_waiting, true);
	CHECK(!ack_small(&p));
	atomic_store(&p.b.l->tx_waiting, false);
	to_shm(p.b.s)->opened = false;
	CHECK(!ack_small(&p));
	to_shm(p.b.s)->opened = true;
	to_shm(p.b.s)->closed_out = true;
	CHECK(!ack_small(&p));
	to_shm(p.b.s)->closed_out = false;
	CHECK(p.b.s->rx.ack_owed);
	CHECK(!record_next(&at, &bytes));

	CHECK(ack_small(&p));
	CHECK(!p.b.s->rx.ack_owed);
	rec = record_next(&at, &bytes);
	REQUIRE(rec);
	ring_read(&r, rec, sizeof(r));
	CHECK_EQ(rec_get(rec, bytes, &r, &f), (int)bytes);
	CHECK_EQ(f.op, RC_CTL);
	CHECK_EQ(f.ctl.type, CTL_ACK);
	CHECK_EQ(f.ctl.number, PAIR_PSN + 1);
	pair_release(&p);
	CHECK(completes(&p, &p.a, 7, IBV_WC_SUCCESS));
	CHECK(completes(&p, &p.b, 6, IBV_WC_SUCCESS));
	pair_close(&p);
}

/* The loop thread has received and b has only to acknowledge; b posts before or after. */
NO_TSA static void posts_beside_the_acknowledgement(bool before)
{
	struct pair p;

	pair_open(&p, NULL);
	post_recv_of(&p.a, 5, recv_mem() + 64, 64);
	owe_acknowledgement(&p);
	if (before)
		post_send_of(&p.b, 8, 8, IBV_SEND_SIGNALED);
	stream_after(p.b.s, true, false, false);
	CHECK(!p.b.s->rx.ack_owed);
	if (!before)
		post_send_of(&p.b, 8, 8, IBV_SEND_SIGNALED);
	pair_release(&p); /* b's post has left a kick */
	CHECK(completes(&p, &p.b, 6, IBV_WC_SUCCESS));
	CHECK(completes(&p, &p.b, 8, IBV_WC_SUCCESS));
	CHECK(completes(&p, &p.a, 7, IBV_WC_SUCCESS));
	CHECK(completes(&p, &p.a, 5, IBV_WC_SUCCESS));
	pair_close(&p);
}

static void posted_before_the_acknowledgement(void)
{
	posts_beside_the_acknowledgement(true);
}

static void posted_after_the_acknowledgement(void)
{
	posts_beside_the_acknowledgement(false);
}

/* ---- receiving -------------------------------------------------------------------- */

/* b's state that small_receive() could change. */
struct snapshot {
	struct rc_tx tx;
	struct rc_rx rx;
	uint32_t rq_head, cq_tail;
	uint8_t mem[SMALL_MAX + 64];
};

static void snapshot(struct pair *p, struct snapshot *s)
{
	struct dev_qp *qp = to_qp(p->b.qp);

	memset(s, 0, sizeof(*s));
	s->tx = p->b.s->tx;
	s->rx = p->b.s->rx;
	s->rq_head = qp->srq ? qp->srq->rq.head : qp->rq.head;
	s->cq_tail = atomic_load(&qp->recv_cq->tail);
	memcpy(s->mem, recv_mem(), sizeof(s->mem));
}

/* The record is refused, and nothing has happened. */
NO_TSA static void refuses(struct pair *p, const void *rec, uint32_t bytes,
			   const char *what)
{
	static struct snapshot before, after;

	snapshot(p, &before);
	if (!CHECK(!small_receive(p->b.s, rec, rec, bytes)))
		diag("%s", what);
	snapshot(p, &after);
	if (!CHECK(!memcmp(&before, &after, sizeof(before))))
		diag("%s", what);
}

/* A send of `len` bytes of a is in the ring, and in *rec. Held. */
static uint32_t sent_record(struct pair *p, uint32_t len, struct rec_stream *rec)
{
	struct ring_rx at;
	uint32_t bytes = 0;
	const void *from;

	pair_hold(p);
	at = records_of(&p->a);
	post_send_of(&p->a, 7, len, IBV_SEND_SIGNALED);
	CHECK(send_small(&p->a));
	from = record_next(&at, &bytes);
	if (CHECK(from))
		memcpy(rec, from, bytes);
	return bytes;
}

static union {
	struct rec_stream r;
	uint8_t bytes[RING_RECORD_MAX];
} rec;

static void received_and_completed(void)
{
	static const uint32_t len[] = { 1, 32, SMALL_COMPOSED_MAX, SMALL_COMPOSED_MAX + 1,
					SMALL_MAX };
	struct ibv_wc wc = { 0 };
	struct pair p;

	pair_open(&p, NULL);
	for (unsigned i = 0; i < sizeof(len) / sizeof(len[0]); i++) {
		memset(recv_mem(), 0xee, SMALL_MAX + 1);
		post_recv_of(&p.b, 6 + i, recv_mem(), SMALL_MAX);
		sent_record(&p, len[i], &rec.r);
		CHECK(receive_small(&p));
		CHECK(!memcmp(recv_mem(), mem, len[i]));
		CHECK_EQ(recv_mem()[len[i]], 0xee);
		CHECK_EQ(p.b.s->rx.ack_bytes, len[i]);
		CHECK(p.b.s->rx.ack_asked); /* the request was signalled */
		CHECK_EQ(p.b.s->rx.expected, PAIR_PSN + 2 + i);
		CHECK(ack_small(&p));
		pair_release(&p);
		CHECK(completes(&p, &p.a, 7, IBV_WC_SUCCESS));
		REQUIRE(completion(&p, &p.b, &wc));
		CHECK_EQ(wc.wr_id, 6 + i);
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		CHECK_EQ(wc.opcode, IBV_WC_RECV);
		CHECK_EQ(wc.byte_len, len[i]);
		CHECK_EQ(wc.qp_num, p.b.qp->qp_num);
		CHECK_EQ(wc.wc_flags, 0);
	}
	pair_close(&p);
}

/* Fields of the record that the fast path does not know. */
static void other_records(void)
{
	struct rec_stream was;
	struct pair p;
	uint32_t n;

	pair_open(&p, NULL);
	post_recv_of(&p.b, 6, recv_mem(), 64);
	n = sent_record(&p, 8, &rec.r);
	was = rec.r;
	for (unsigned op = 0; op < 256; op++) {
		rec.r.op = (uint8_t)op;
		if (op != RC_SEND && op != RC_SEND_SE)
			refuses(&p, &rec, n, "another opcode");
	}
	rec.r = was;
	for (unsigned flags = 0; flags < 256; flags++) {
		rec.r.flags = (uint8_t)flags;
		if ((flags & ~(unsigned)(REC_ACK | REC_ACK_REQ)) != REC_LAST)
			refuses(&p, &rec, n, "other flags");
	}
	rec.r = was;
	rec.r.msn++;
	refuses(&p, &rec, n, "the next message");
	rec.r.msn -= 2;
	refuses(&p, &rec, n, "the message before");
	rec.r = was;
	rec.r.to = 1;
	refuses(&p, &rec, n, "not the beginning");
	rec.r = was;
	rec.r.body = 4;
	refuses(&p, &rec, n, "a body");
	rec.r = was;
	refuses(&p, &rec, sizeof(rec.r), "no payload");
	refuses(&p, &rec, sizeof(rec.r) + 65, "longer than the receive");
	CHECK(receive_small(&p));
	pair_release(&p);
	CHECK(completes(&p, &p.b, 6, IBV_WC_SUCCESS));
	pair_close(&p);
}

/* The receive has room for it. */
static void not_small(void)
{
	struct pair p;

	pair_open(&p, NULL);
	post_recv_of(&p.b, 6, recv_mem(), 2 * SMALL_MAX);
	sent_record(&p, 8, &rec.r);
	refuses(&p, &rec, sizeof(rec.r) + SMALL_MAX + 1, "not small");
	CHECK(receive_small(&p));
	pair_release(&p);
	CHECK(completes(&p, &p.b, 6, IBV_WC_SUCCESS));
	pair_close(&p);
}

/* States of the stream in which more is to be done. */
static void other_states(void)
{
	struct pair p;
	struct rc_rx *rx;
	uint32_t n;

	pair_open(&p, NULL);
	rx = &p.b.s->rx;
	post_recv_of(&p.b, 6, recv_mem(), 64);
	n = sent_record(&p, 8, &rec.r);
#define WITH(field, value, usual) \
	do { \
		field = value; \
		refuses(&p, &rec, n, #field); \
		field = usual; \
	} while (0)
	WITH(rx->begun, false, true);
	WITH(rx->drop, true, false);
	WITH(rx->imm_have, true, false);
	WITH(rx->msg_off, 1, 0);
	WITH(rx->srqn, 5, NO_SRQ);
	WITH(p.b.s->tx.hold, HOLD_RNR, HOLD_NONE);
	WITH(p.b.s->tx.muted, true, false);
	WITH(to_qp(p.b.qp)->cur_valid, true, false);
#undef WITH
	CHECK(receive_small(&p));
	pair_release(&p);
	CHECK(completes(&p, &p.b, 6, IBV_WC_SUCCESS));
	pair_close(&p);
}

static void post_recv_sges(struct end *e, struct ibv_sge *sge, int n)
{
	struct ibv_recv_wr wr = { .wr_id = 6, .sg_list = sge, .num_sge = n }, *bad;

	CHECK(!ibv_post_recv(e->qp, &wr, &bad));
}

/* Receives that the fast path does not fill. The record is received by the slow path. */
static void other_receives(void)
{
	struct ibv_sge two[2] = { sge_of(recv_mem(), 16), sge_of(recv_mem() + 16, 48) };
	struct pair p;
	uint32_t n;

	pair_open(&p, NULL);
	n = sent_record(&p, 8, &rec.r);
	refuses(&p, &rec, n, "no receive");
	post_recv_sges(&p.b, two, 2);
	refuses(&p, &rec, n, "two SGEs");
	pair_release(&p);
	CHECK(completes(&p, &p.b, 6, IBV_WC_SUCCESS));
	CHECK(completes(&p, &p.a, 7, IBV_WC_SUCCESS));
	CHECK(!memcmp(recv_mem(), mem, 8));
	two[0].length = 64;
	two[0].lkey ^= 0x100;
	post_recv_sges(&p.b, two, 1);
	n = sent_record(&p, 8, &rec.r);
	refuses(&p, &rec, n, "no such key");
	pair_release(&p);
	CHECK(completes(&p, &p.b, 6, IBV_WC_LOC_PROT_ERR));
	CHECK(completes(&p, &p.a, 7, IBV_WC_REM_OP_ERR));
	pair_close(&p);
}

static void receives_of_an_srq(void)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct pair_opt opt = { .srq = ibv_create_srq(pd, &attr) };
	struct ibv_sge sge = sge_of(recv_mem(), 64);
	struct ibv_recv_wr wr = { .wr_id = 6, .sg_list = &sge, .num_sge = 1 }, *bad;
	struct pair p;
	uint32_t n;

	REQUIRE(opt.srq);
	pair_open(&p, &opt);
	CHECK(!ibv_post_srq_recv(opt.srq, &wr, &bad));
	n = sent_record(&p, 8, &rec.r);
	refuses(&p, &rec, n, "an SRQ");
	pair_release(&p);
	CHECK(completes(&p, &p.b, 6, IBV_WC_SUCCESS));
	CHECK(completes(&p, &p.a, 7, IBV_WC_SUCCESS));
	pair_close(&p);
	CHECK(!ibv_destroy_srq(opt.srq));
}

/* Its acknowledgement counts though the record is not received; one of a request that was
 * never sent is left to the slow path. */
static void acknowledgement_of_a_refused_record(void)
{
	struct ibv_wc wc;
	struct pair p;
	uint32_t n;

	pair_open(&p, NULL);
	n = sent_record(&p, 8, &rec.r);
	post_send_of(&p.b, 8, 8, IBV_SEND_SIGNALED);
	CHECK(send_small(&p.b));
	rec.r.flags |= REC_ACK;
	rec.r.ack = PAIR_PSN + 2;
	refuses(&p, &rec, n, "an acknowledgement of what was not sent");
	rec.r.ack = PAIR_PSN + 1;
	CHECK(!small_receive(p.b.s, &rec.r, &rec, n)); /* there is no receive */
	CHECK_EQ(p.b.s->tx.acked, to_qp(p.b.qp)->sq.next);
	CHECK(cq_next(to_cq(p.b.cq), &wc, &(uint64_t){ 0 }));
	CHECK_EQ(wc.wr_id, 8);
	pair_release(&p);
	pair_close(&p);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	if (!pair_device_open())
		return 1;
	T_RUN(sizes);
	T_RUN(kinds_of_requests);
	T_RUN(only_reliable);
	T_RUN(part_of_a_chain);
	T_RUN(not_now);
	T_RUN(wanted_acknowledgements);
	T_RUN(carried_acknowledgement);
	T_RUN(acknowledgement_alone);
	T_RUN(posted_before_the_acknowledgement);
	T_RUN(posted_after_the_acknowledgement);
	T_RUN(received_and_completed);
	T_RUN(other_records);
	T_RUN(not_small);
	T_RUN(other_states);
	T_RUN(other_receives);
	T_RUN(receives_of_an_srq);
	T_RUN(acknowledgement_of_a_refused_record);
	pair_device_close();
	return t_done();
}
