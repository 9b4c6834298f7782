/* SPDX-License-Identifier: BSD-2-Clause */
/* Pulled sends: what is offered, which pieces name it, that the receiver fetches it, and
 * what happens when it cannot. */
#include "shm/pull.h"
#include "dev/share.h"
#include "rc/tap.h"
#include "rc/tx.h"
#include "shm/pair_test.h"

enum { BIG = 128 * 1024 };

/* ---- what is offered ------------------------------------------------------------- */

/* A work queue entry with up to three SGEs. */
union entry {
	struct wqe w;
	uint8_t space[sizeof(struct wqe) + 3 * sizeof(struct ibv_sge)];
};

static void entry_fill(union entry *e, unsigned n, const struct ibv_sge *sge)
{
	memset(e, 0, sizeof(*e));
	e->w.opcode = IBV_WR_SEND;
	e->w.num_sge = (uint8_t)n;
	for (unsigned i = 0; i < n; i++) {
		e->w.sge[i] = sge[i];
		e->w.length += sge[i].length;
	}
}

/* One SGE of these bytes. */
static bool offers_of(struct pair *p, uint32_t len)
{
	struct ibv_sge sge = sge_of(mem, len);
	union entry e;

	entry_fill(&e, 1, &sge);
	return pull_offers(p->a.s, &e.w);
}

static void offers(void)
{
	struct ibv_sge sge[3] = { sge_of(mem, PULL_PIECE_MIN),
				  sge_of(mem + BIG, PULL_PIECE_MIN) };
	struct ibv_mr *other = ibv_reg_mr(pd, mem, REGION, IBV_ACCESS_LOCAL_WRITE);
	union entry e;
	struct pair p;

	pair_open(&p, NULL);
	pair_hold(&p);
	CHECK(offers_of(&p, PULL_PIECE_MIN));
	CHECK(!offers_of(&p, PULL_PIECE_MIN - 1));
	CHECK(offers_of(&p, REGION));

	entry_fill(&e, 2, sge); /* the mean size counts */
	CHECK(pull_offers(p.a.s, &e.w));
	sge[1].length--;
	entry_fill(&e, 2, sge);
	CHECK(!pull_offers(p.a.s, &e.w));
	sge[0].length++;
	entry_fill(&e, 2, sge);
	CHECK(pull_offers(p.a.s, &e.w));
	e.w.is_inline = 1;
	CHECK(!pull_offers(p.a.s, &e.w));

	/* Each key must be published; that of an empty SGE is not used. */
	sge[0].length = BIG;
	sge[2] = (struct ibv_sge){ 0, 0, 0x1234 };
	entry_fill(&e, 3, sge);
	CHECK(pull_offers(p.a.s, &e.w));
	sge[1].lkey ^= 0x100;
	entry_fill(&e, 3, sge);
	CHECK(!pull_offers(p.a.s, &e.w));
	sge[1].lkey = other->lkey;
	entry_fill(&e, 3, sge);
	CHECK(pull_offers(p.a.s, &e.w));
	CHECK(!ibv_dereg_mr(other));
	CHECK(!pull_offers(p.a.s, &e.w));
	pair_release(&p);
	pair_close(&p);
}

/* The end of the segment that e writes as initiator. */
static struct direct_shared *initiator(const struct end *e)
{
	return &e->l->seg->direct[e->l->tx.sh == &e->l->seg->ring[0] ? 0 : 1];
}

/* The peer must be able to fetch, and this process must let it. */
static void offers_to_whom(void)
{
	struct pair_opt uc = { .type = IBV_QPT_UC };
	uint64_t id;
	struct pair p;

	pair_open(&p, NULL);
	pair_hold(&p);
	CHECK(offers_of(&p, BIG));
	atomic_store(&initiator(&p.b)->works, 0);
	CHECK(!offers_of(&p, BIG));
	atomic_store(&initiator(&p.b)->works, 1);
	direct_set_keys(p.a.l->direct, DIRECT_KEYS_NONE);
	CHECK(!offers_of(&p, BIG));
	direct_set_keys(p.a.l->direct, DIRECT_KEYS_BY_SETTING);
	CHECK(offers_of(&p, BIG));
	direct_set_keys(p.a.l->direct, DIRECT_KEYS_PROVED);
	id = p.a.s->share_id;
	p.a.s->share_id = 0; /* no entry in the table speaks for the QP */
	CHECK(!offers_of(&p, BIG));
	p.a.s->share_id = id;
	CHECK(offers_of(&p, BIG));
	pair_release(&p);
	pair_close(&p);

	pair_open(&p, &uc);
	pair_hold(&p);
	CHECK(!offers_of(&p, BIG));
	pair_release(&p);
	pair_close(&p);
}

/* ---- pieces ---------------------------------------------------------------------- */

/* Where byte `off` of the message is, and the key. */
static uint64_t byte_at(const struct wqe *w, uint32_t off, uint32_t *key)
{
	unsigned i = 0;

	while (off >= w->sge[i].length)
		off -= w->sge[i++].length;
	*key = w->sge[i].lkey;
	return w->sge[i].addr + off;
}

/* The pieces name these bytes, in order, and none is empty. */
static void check_pieces(const struct wqe *w, uint32_t off, uint32_t len)
{
	struct {
		struct rec_stream r;
		struct rec_piece p[REC_PIECES];
	} rec = { .r = { .flags = REC_LAST } };
	uint32_t bytes = pull_put(&rec, w, off, len), key, done = 0, sum = 0;

	CHECK_EQ(rec.r.flags, REC_LAST | REC_PULL);
	CHECK_EQ(rec.r.body, bytes);
	CHECK_EQ(bytes % sizeof(rec.p[0]), 0);
	for (uint32_t i = 0; i < bytes / sizeof(rec.p[0]); i++) {
		CHECK(rec.p[i].len > 0);
		sum += rec.p[i].len;
		for (uint32_t k = 0; k < rec.p[i].len && done < len; k++, done++)
			CHECK(byte_at(w, off + done, &key) == rec.p[i].addr + k &&
			      key == rec.p[i].key);
	}
	CHECK_EQ(sum, len);
}

static void pieces(void)
{
	struct ibv_sge sge[3] = { { 0x1000, 5, 0x111 }, { 0x9000, 0, 0x222 },
				  { 0x5000, 7, 0x333 } };
	union entry e;

	entry_fill(&e, 3, sge);
	for (uint32_t off = 0; off < e.w.length; off++)
		for (uint32_t len = 1; len <= e.w.length - off; len++)
			check_pieces(&e.w, off, len);
	entry_fill(&e, 1, sge);
	for (uint32_t off = 0; off < e.w.length; off++)
		for (uint32_t len = 1; len <= e.w.length - off; len++)
			check_pieces(&e.w, off, len);
}

/* ---- fetching -------------------------------------------------------------------- */

/* What a stream has sent and received since tap_reset(). */
static struct {
	_Atomic(const struct stream *) s;
	atomic_int references, frames; /* sends, by way */
	atomic_int naks;	       /* NAK_COPY that came */
} seen;

static bool is_send(const struct rc_frame *f)
{
	return f->op == RC_SEND || f->op == RC_SEND_SE;
}

static void tap_out(const struct stream *s, const struct rc_frame *f, enum rc_way way)
{
	if (s == atomic_load(&seen.s) && is_send(f))
		atomic_fetch_add(way == RC_BY_REFERENCE ? &seen.references : &seen.frames,
				 1);
}

static void tap_in(const struct stream *s, const struct rc_frame *f, enum rc_way way)
{
	(void)way;
	if (s == atomic_load(&seen.s) && f->op == RC_CTL && f->ctl.type == CTL_NAK &&
	    f->ctl.code == NAK_COPY)
		atomic_fetch_add(&seen.naks, 1);
}

static void tap_reset(const struct stream *s)
{
	static const struct rc_tap tap = { tap_out, tap_in };

	atomic_store(&seen.s, s);
	atomic_store(&seen.references, 0);
	atomic_store(&seen.frames, 0);
	atomic_store(&seen.naks, 0);
	rc_tap_set(&tap);
}

/* A send of a, from n SGEs to two SGEs of b; both complete. */
static void send_big(struct pair *p, struct ibv_sge *from, int n, uint32_t len)
{
	struct ibv_sge to[2] = { sge_of(recv_mem() + 3, 1000),
				 sge_of(recv_mem() + 2000, len) };
	struct ibv_recv_wr rr = { .wr_id = 6, .sg_list = to, .num_sge = 2 }, *rbad;
	struct ibv_send_wr wr = { .wr_id = 7,
				  .sg_list = from,
				  .num_sge = n,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	struct ibv_wc wc = { 0 };

	memset(recv_mem(), 0, len + 2001);
	tap_reset(p->a.s);
	CHECK(!ibv_post_recv(p->b.qp, &rr, &rbad));
	CHECK(!ibv_post_send(p->a.qp, &wr, &bad));
	CHECK(completes(p, &p->a, 7, IBV_WC_SUCCESS));
	CHECK(completion(p, &p->b, &wc));
	CHECK(wc.wr_id == 6 && wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV);
	CHECK_EQ(wc.byte_len, len);
	CHECK(!recv_mem()[2] && !recv_mem()[1003] && !recv_mem()[1000 + len]);
}

static bool arrived(const uint8_t *what, uint32_t at, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		if (recv_mem()[at + i < 1000 ? at + i + 3 : at + i + 1000] != what[i])
			return false;
	return true;
}

static void send_one(struct pair *p, uint32_t len)
{
	struct ibv_sge sge = sge_of(mem + 1, len);

	send_big(p, &sge, 1, len);
	CHECK(arrived(mem + 1, 0, len));
}

static void fetched(void)
{
	struct ibv_sge sge[3] = { sge_of(mem + 5, BIG - 1), sge_of(mem + 2 * BIG, 1),
				  sge_of(mem + 3 * BIG + 7, BIG) };
	struct pair p;

	pair_open(&p, NULL);
	send_one(&p, RC_REFERENCE_MIN - 1);
	CHECK_EQ(atomic_load(&seen.references), 0);
	send_one(&p, RC_REFERENCE_MIN);
	CHECK(atomic_load(&seen.references) == 1 && !atomic_load(&seen.frames));
	send_one(&p, RC_REFERENCE_MAX);
	CHECK(atomic_load(&seen.references) == 1 && !atomic_load(&seen.frames));
	send_one(&p, RC_REFERENCE_MAX + RC_REFERENCE_MIN);
	CHECK(atomic_load(&seen.references) == 2 && !atomic_load(&seen.frames));
	send_one(&p, RC_REFERENCE_MAX + 1); /* the last byte is too small for it */
	CHECK(atomic_load(&seen.references) == 1 && atomic_load(&seen.frames) == 1);
	send_big(&p, sge, 3, 2 * BIG);
	CHECK(atomic_load(&seen.references) == 1 && !atomic_load(&seen.frames));
	CHECK(arrived(mem + 5, 0, BIG - 1));
	CHECK(arrived(mem + 2 * BIG, BIG - 1, 1));
	CHECK(arrived(mem + 3 * BIG + 7, BIG, BIG));
	CHECK_EQ(atomic_load(&seen.naks), 0);
	pair_close(&p);
}

/* Longer than the receive: no byte is fetched. */
static void too_long(void)
{
	struct pair p;

	pair_open(&p, NULL);
	memset(recv_mem(), 0, BIG);
	post_recv_of(&p.b, 6, recv_mem(), BIG - 1);
	post_send_of(&p.a, 7, BIG, IBV_SEND_SIGNALED);
	CHECK(completes(&p, &p.b, 6, IBV_WC_LOC_LEN_ERR));
	CHECK(completes(&p, &p.a, 7, IBV_WC_REM_INV_REQ_ERR));
	CHECK(!recv_mem()[0] && !memcmp(recv_mem(), recv_mem() + 1, BIG - 2));
	pair_close(&p);
}

/* ---- what cannot be fetched ------------------------------------------------------ */

/* One send that b cannot fetch. Is it offered? */
static bool refused_once(struct pair *p)
{
	int n;

	send_one(p, BIG);
	n = atomic_load(&seen.references);
	CHECK(n == 0 || n == 1);
	CHECK_EQ(atomic_load(&seen.naks), n); /* each offer is refused once */
	CHECK(atomic_load(&seen.frames) > 1);
	return n;
}

static void refused_and_sent(void)
{
	struct pair p;

	pair_open(&p, NULL);
	atomic_store(&initiator(&p.b)->closed, 1);
	for (int i = 0; i < RC_REFERENCE_REFUSALS; i++)
		CHECK(refused_once(&p));
	CHECK(!refused_once(&p)); /* not offered any more */
	atomic_store(&initiator(&p.b)->closed, 0);
	CHECK(!refused_once(&p));
	pair_close(&p);
}

/* The refusals that count are in a row. */
static void fetched_in_between(void)
{
	struct pair p;

	pair_open(&p, NULL);
	atomic_store(&initiator(&p.b)->closed, 1);
	for (int i = 0; i < RC_REFERENCE_REFUSALS - 1; i++)
		CHECK(refused_once(&p));
	atomic_store(&initiator(&p.b)->closed, 0);
	send_one(&p, BIG);
	CHECK(atomic_load(&seen.references) == 1 && !atomic_load(&seen.naks));
	atomic_store(&initiator(&p.b)->closed, 1);
	for (int i = 0; i < RC_REFERENCE_REFUSALS; i++)
		CHECK(refused_once(&p));
	CHECK(!refused_once(&p));
	atomic_store(&initiator(&p.b)->closed, 0);
	pair_close(&p);
}

/* The record is in the ring when its region is deregistered: b cannot fetch, and a finds
 * out why. */
static void region_is_gone(void)
{
	struct ibv_mr *other = ibv_reg_mr(pd, mem, BIG, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge sge = { (uintptr_t)mem, BIG, other->lkey };
	struct ibv_send_wr wr = { .wr_id = 7,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	struct pair p;

	pair_open(&p, NULL);
	post_recv_of(&p.b, 6, recv_mem(), BIG);
	pair_hold(&p);
	tap_reset(p.a.s);
	CHECK(!ibv_post_send(p.a.qp, &wr, &bad));
	end_send(&p.a);
	CHECK_EQ(atomic_load(&seen.references), 1);
	CHECK(!ibv_dereg_mr(other));
	memset(recv_mem(), 0, BIG);
	pair_release(&p);
	CHECK(completes(&p, &p.a, 7, IBV_WC_LOC_PROT_ERR));
	CHECK_EQ(atomic_load(&seen.naks), 1);
	CHECK_EQ(atomic_load(&seen.frames), 0);
	CHECK(!recv_mem()[0] && !memcmp(recv_mem(), recv_mem() + 1, BIG - 1));
	pair_close(&p);
}

/* ---- by hand --------------------------------------------------------------------- */

/* e receives a record; the links are held, the streams are not. */
NO_TSA static void receive(struct end *e, const void *rec, uint32_t bytes)
{
	CHECK_EQ(shm_receive(e->s, rec, rec, bytes, true), 0);
	shm_after_rx(e->s, true);
}

static void receive_nak(struct end *e, uint32_t number)
{
	struct rc_frame f = { .op = RC_CTL, .last = true };
	uint8_t rec[REC_HEAD_MAX];

	f.ctl.type = CTL_NAK;
	f.ctl.code = NAK_COPY;
	f.ctl.number = number;
	rec_put(rec, 0, &f);
	receive(e, rec, rec_head(&f));
}

NO_TSA static void release_streams(struct pair *p)
{
	stream_unlock(p->b.s);
	stream_unlock(p->a.s);
}

NO_TSA static void release_links(struct pair *p)
{
	lock_put(&p->b.l->rx_lock);
	lock_put(&p->a.l->rx_lock);
}

/* Flags of all records of streams that were written, together; and their number. */
static unsigned flags_of(struct ring_rx *at, unsigned *n)
{
	const struct rec_stream *rec;
	unsigned flags = 0;
	uint32_t bytes;

	for (*n = 0; (rec = record_next(at, &bytes)); ++*n)
		flags |= rec->flags;
	return flags;
}

/* b refuses once by right: the payload is sent. To refuse that is an error. */
static void never_twice(void)
{
	struct ring_rx at;
	struct ibv_wc wc = { 0 };
	struct pair p;
	unsigned n;

	pair_open(&p, NULL);
	pair_hold(&p);
	at = records_of(&p.a);
	post_send_of(&p.a, 7, BIG, IBV_SEND_SIGNALED);
	end_send(&p.a);
	CHECK(flags_of(&at, &n) & REC_PULL);
	CHECK_EQ(n, 1);
	release_streams(&p);
	receive_nak(&p.a, PAIR_PSN + 1);
	CHECK(!(flags_of(&at, &n) & REC_PULL));
	CHECK(n > BIG / RING_RECORD_MAX);
	CHECK(!cq_next(to_cq(p.a.cq), &wc, &(uint64_t){ 0 }));
	receive_nak(&p.a, PAIR_PSN + 1);
	CHECK(cq_next(to_cq(p.a.cq), &wc, &(uint64_t){ 0 }));
	CHECK_EQ(wc.wr_id, 7);
	CHECK_EQ(wc.status, IBV_WC_REM_OP_ERR);
	release_links(&p);
	pair_close(&p);
}

/* A record of REC_PULL with one piece of so many bytes breaks b's stream. */
static void breaks(enum ibv_qp_type type, uint32_t len)
{
	struct {
		struct rec_stream r;
		struct rec_piece p;
	} rec = { .p = { (uintptr_t)mem, mr->lkey, len } };
	struct pair_opt opt = { .type = type };
	struct rc_frame f = { .op = RC_SEND, .last = true };
	struct pair p;

	pair_open(&p, &opt);
	post_recv_of(&p.b, 6, recv_mem(), BIG);
	pair_hold(&p);
	f.msn = p.b.s->rx.msn0;
	rec_put(&rec, 0, &f);
	rec_put_pull(&rec, 1);
	release_streams(&p);
	stream_get(p.b.s); /* the QP leaves a stream that is broken */
	receive(&p.b, &rec, sizeof(rec));
	stream_lock(p.b.s);
	CHECK(p.b.s->state != STREAM_OPEN);
	stream_unlock(p.b.s);
	stream_put(p.b.s);
	release_links(&p);
	pair_close(&p);
}

static void invalid_records(void)
{
	breaks(IBV_QPT_RC, 0);
	breaks(IBV_QPT_RC, REC_PULL_MAX + 1);
	breaks(IBV_QPT_UC, BIG);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	if (!pair_device_open())
		return 1;
	T_RUN(offers);
	T_RUN(offers_to_whom);
	T_RUN(pieces);
	T_RUN(fetched);
	T_RUN(too_long);
	T_RUN(refused_and_sent);
	T_RUN(fetched_in_between);
	T_RUN(region_is_gone);
	T_RUN(never_twice);
	T_RUN(invalid_records);
	pair_device_close();
	return t_done();
}
