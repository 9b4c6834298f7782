/* SPDX-License-Identifier: BSD-2-Clause */
/* One side disconnects as soon as it may. What was done by then has completed: work that
 * the peer has acted on is never flushed, at neither end. Thousands of connections, as the
 * window is small; a round's number says what happens in it, at both ends. */
#include "lab.h"

enum {
	SLOT = 4096,
	WORDS = SLOT, /* of the server's memory: what the client reads and writes */
	LARGE = 1 << 20,
};

enum { GREETING = 1, RECV = 2, WORK = 16 };

/* What the client does when it has received the greeting. */
enum work {
	NOTHING, READ, WRITE, ATOMIC, SEND, WRITE_IMM, ALL, WORKS,
	SEEN_READ,    /* a read; the client looks at its memory, not for a completion */
	SEEN_ANSWER,  /* a send, which the server answers with a write: likewise */
};
/* Who disconnects, and when: the client when its work has completed; the server when it has
 * received the message. */
enum last { CLIENT_ENDS, SERVER_ENDS, LASTS };
/* How completions are waited for. */
enum wait { POLLING, SLEEPING, WAITS };

struct round {
	unsigned nr;
	enum work work;
	enum last last;
	enum wait server, client;
	uint32_t size;
};

struct party {
	struct rdma_event_channel *ch;
	struct rdma_cm_id *id, *next; /* next: of the request of the round after this one */
	struct ibv_comp_channel *cc;
	struct ibv_cq *cq;
	struct conf_buf buf; /* a slot for what is received, then the words */
	size_t words;
};

static struct round round_of(unsigned nr)
{
	static const uint32_t sizes[] = { 8, 64, 1000, SLOT };
	struct round r = { .nr = nr };

	r.work = (enum work)(nr % WORKS);
	nr /= WORKS;
	r.last = (enum last)(nr % LASTS);
	nr /= LASTS;
	r.server = (enum wait)(nr % WAITS);
	nr /= WAITS;
	r.client = (enum wait)(nr % WAITS);
	nr /= WAITS;
	r.size = sizes[nr % 4];
	if (r.work != SEND && r.work != WRITE_IMM && r.work != ALL)
		r.last = CLIENT_ENDS; /* the server is not told */
	return r;
}

/* ---- both ------------------------------------------------------------------------ */

static void party_qp(struct party *p)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .cap = CONF_CAP(16, 4, 1) };

	MUST(p->cc = ibv_create_comp_channel(p->id->verbs));
	MUST(p->cq = ibv_create_cq(p->id->verbs, 32, NULL, p->cc, 0));
	attr.send_cq = attr.recv_cq = p->cq;
	OK(rdma_create_qp(p->id, NULL, &attr));
	p->buf = conf_buf(p->id->pd, SLOT + p->words, CONF_RW);
	OK(conf_recv(p->id->qp, RECV, &p->buf, 0, SLOT));
}

static void party_free(struct party *p)
{
	rdma_destroy_qp(p->id);
	EQ(ibv_destroy_cq(p->cq), 0);
	EQ(ibv_destroy_comp_channel(p->cc), 0);
	conf_buf_free(&p->buf);
	OK(rdma_destroy_id(p->id));
}

/* The next completion, waited for in one of the ways. */
static void next_wc(struct party *p, enum wait how, struct ibv_wc *wc)
{
	struct pollfd fd = { .fd = p->cc->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *ctx;

	if (how == POLLING) {
		conf_wc(p->cq, wc);
		return;
	}
	for (;;) {
		EQ(ibv_req_notify_cq(p->cq, 0), 0);
		if (ibv_poll_cq(p->cq, 1, wc) == 1)
			return;
		if (poll(&fd, 1, conf_ms(CONF_WAIT)) != 1)
			FAIL("no completion");
		OK(ibv_get_cq_event(p->cc, &cq, &ctx));
		ibv_ack_cq_events(cq, 1);
	}
}

static void must_succeed(const struct ibv_wc *wc, const struct round *r, const char *who)
{
	if (wc->status)
		FAIL("round %u (work %d, last %d, server %d, client %d, %u bytes): work %u of "
		     "the %s completes with %s", r->nr, r->work, r->last, r->server,
		     r->client, r->size, (unsigned)wc->wr_id, who,
		     ibv_wc_status_str(wc->status));
}

/* Every completion until the bits of `missing` have come. */
static void complete(struct party *p, const struct round *r, enum wait how,
		     unsigned missing, const char *who)
{
	struct ibv_wc wc;

	while (missing) {
		next_wc(p, how, &wc);
		must_succeed(&wc, r, who);
		missing &= ~(unsigned)wc.wr_id;
	}
}

/* The QP is in ERR: what has not completed is flushed. */
static void complete_flushed(struct party *p, const struct round *r, unsigned missing,
			     const char *who)
{
	struct ibv_wc wc;

	while (missing) {
		conf_wc(p->cq, &wc);
		if (wc.wr_id != RECV)
			must_succeed(&wc, r, who);
		missing &= ~(unsigned)wc.wr_id;
	}
}

static void event(struct party *p, enum rdma_cm_event_type type)
{
	enum rdma_cm_event_type got;
	struct rdma_cm_event *ev;

	do {
		MUST(ev = conf_next(p->ch, conf_ms(CONF_WAIT)));
		got = ev->event;
		if (got == RDMA_CM_EVENT_CONNECT_REQUEST)
			p->next = ev->id;
		OK(rdma_ack_cm_event(ev));
	} while (got != type && (got == RDMA_CM_EVENT_TIMEWAIT_EXIT ||
				 got == RDMA_CM_EVENT_CONNECT_REQUEST));
	EQ(got, type);
}

/* ---- server ---------------------------------------------------------------------- */

/* A connection, over which the client is told where the words are. */
static void serve_begin(struct party *p)
{
	struct rdma_conn_param param = conf_param();

	if (!p->next)
		event(p, RDMA_CM_EVENT_CONNECT_REQUEST);
	p->id = p->next;
	p->next = NULL;
	party_qp(p);
	memset(p->buf.p + WORDS, 1, p->words);
	OK(rdma_accept(p->id, &param));
	event(p, RDMA_CM_EVENT_ESTABLISHED);
	memcpy(p->buf.p + SLOT - 16, &(uint64_t){ (uintptr_t)p->buf.p + WORDS }, 8);
	memcpy(p->buf.p + SLOT - 8, &p->buf.mr->rkey, 4);
	OK(conf_send(p->id->qp, GREETING, &p->buf, SLOT - 16, 16));
}

static void serve(struct party *p, const struct round *r)
{
	unsigned missing = GREETING;

	serve_begin(p);
	if (r->last == SERVER_ENDS) {
		complete(p, r, r->server, RECV, "server");
		missing = 0;
	} else {
		if (r->server == POLLING) {
			complete(p, r, POLLING, GREETING, "server");
			missing = 0;
		}
		event(p, RDMA_CM_EVENT_DISCONNECTED);
	}
	OK(rdma_disconnect(p->id));
	complete_flushed(p, r, missing, "server");
	if (r->last == SERVER_ENDS)
		event(p, RDMA_CM_EVENT_DISCONNECTED);
	party_free(p);
}

static void server(struct peer *me, void *arg)
{
	unsigned rounds = *(unsigned *)arg;
	struct rdma_cm_id *listener;
	struct party p = { .words = SLOT };

	p.ch = conf_channel();
	listener = conf_listen(p.ch, AF_INET, 8);
	peer_say_u32(me, ntohs(rdma_get_src_port(listener)));
	for (unsigned i = 0; i < rounds; i++) {
		struct round r = round_of(i);

		serve(&p, &r);
	}
	OK(rdma_destroy_id(listener));
	rdma_destroy_event_channel(p.ch);
}

/* ---- client ---------------------------------------------------------------------- */

static void post(struct party *p, const struct round *r, enum ibv_wr_opcode opcode,
		 unsigned wr_id)
{
	uint32_t len = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : r->size;
	struct ibv_sge sge = conf_sge(&p->buf, SLOT, len);
	struct ibv_send_wr wr = conf_wr(wr_id, opcode, &sge, 1);
	uint64_t addr;
	uint32_t rkey;

	memcpy(&addr, p->buf.p, 8);
	memcpy(&rkey, p->buf.p + 8, 4);
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = addr;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 1;
	} else if (opcode != IBV_WR_SEND) {
		wr.wr.rdma.remote_addr = addr;
		wr.wr.rdma.rkey = rkey;
	}
	OK(conf_post(p->id->qp, &wr));
}

/* The bits of its completions. */
static unsigned work(struct party *p, const struct round *r)
{
	static const enum ibv_wr_opcode opcodes[WORKS] = {
		[READ] = IBV_WR_RDMA_READ,
		[WRITE] = IBV_WR_RDMA_WRITE,
		[ATOMIC] = IBV_WR_ATOMIC_FETCH_AND_ADD,
		[SEND] = IBV_WR_SEND,
		[WRITE_IMM] = IBV_WR_RDMA_WRITE_WITH_IMM,
	};
	unsigned all = 0;

	if (r->work == NOTHING)
		return 0;
	if (r->work != ALL) {
		post(p, r, opcodes[r->work], WORK);
		return WORK;
	}
	for (enum work w = READ; w <= SEND; w++) {
		post(p, r, opcodes[w], WORK << w);
		all |= WORK << w;
	}
	return all;
}

static void visit_begin(struct party *p, const struct round *r, uint16_t port)
{
	struct rdma_conn_param param = conf_param();

	p->id = conf_route_resolved(p->ch, conf_addr(AF_INET, port));
	party_qp(p);
	OK(rdma_connect(p->id, &param));
	event(p, RDMA_CM_EVENT_ESTABLISHED);
	complete(p, r, r->client, RECV, "client");
}

static void visit(struct party *p, const struct round *r, uint16_t port)
{
	unsigned missing;

	visit_begin(p, r, port);
	missing = work(p, r);
	if (r->last == CLIENT_ENDS) {
		complete(p, r, r->client, missing, "client");
		missing = 0;
	} else {
		if (r->client == POLLING) {
			complete(p, r, POLLING, missing, "client");
			missing = 0;
		}
		event(p, RDMA_CM_EVENT_DISCONNECTED);
	}
	OK(rdma_disconnect(p->id));
	complete_flushed(p, r, missing, "client");
	if (r->last == CLIENT_ENDS)
		event(p, RDMA_CM_EVENT_DISCONNECTED);
	party_free(p);
}

enum { EACH = WORKS * LASTS * WAITS * WAITS * 4 }; /* rounds that differ */

static void what_was_done_has_completed(void)
{
	unsigned rounds = conf_rounds(4 * EACH, 150 * EACH);
	struct peer s = peer_start(server, &rounds);
	uint16_t port = (uint16_t)peer_hear_u32(&s);
	struct party p = { .words = SLOT };

	p.ch = conf_channel();
	for (unsigned i = 0; i < rounds; i++) {
		struct round r = round_of(i);

		visit(&p, &r, port);
	}
	rdma_destroy_event_channel(p.ch);
	peer_end(&s);
}

/* ---- seen in memory -------------------------------------------------------------- */

/* The last byte of a read or of the server's write has come: what was posted has been done,
 * and all of it is there. */
static void await_last_byte(struct party *p, uint32_t len)
{
	volatile uint8_t *last = p->buf.p + SLOT + len - 1;
	uint64_t end = conf_now() + conf_ms(CONF_WAIT) * 1000000ull;

	while (!*last)
		if (conf_now() > end)
			FAIL("nothing came");
}

static void serve_seen(struct party *p, const struct round *r)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	serve_begin(p);
	if (r->work == SEEN_ANSWER) {
		complete(p, r, r->server, RECV, "server");
		sge = conf_sge(&p->buf, WORDS, r->size);
		wr = conf_rdma(WORK, IBV_WR_RDMA_WRITE, &sge, 1, NULL, 0);
		memcpy(&wr.wr.rdma.remote_addr, p->buf.p, 8);
		memcpy(&wr.wr.rdma.rkey, p->buf.p + 8, 4);
		OK(conf_post(p->id->qp, &wr));
	}
	event(p, RDMA_CM_EVENT_DISCONNECTED);
	OK(rdma_disconnect(p->id));
	party_free(p);
}

static void visit_seen(struct party *p, const struct round *r, uint16_t port)
{
	visit_begin(p, r, port);
	if (r->work == SEEN_READ) {
		post(p, r, IBV_WR_RDMA_READ, WORK);
	} else {
		memcpy(p->buf.p + 16, &(uint64_t){ (uintptr_t)p->buf.p + SLOT }, 8);
		memcpy(p->buf.p + 24, &p->buf.mr->rkey, 4);
		OK(conf_send(p->id->qp, WORK, &p->buf, 16, 16));
	}
	await_last_byte(p, r->size);
	OK(rdma_disconnect(p->id));
	complete_flushed(p, r, WORK, "client");
	event(p, RDMA_CM_EVENT_DISCONNECTED);
	party_free(p);
}

static struct round seen_round(enum work w, unsigned nr)
{
	static const uint32_t sizes[] = { 8, 4096, 65536, LARGE };
	struct round r = { .nr = nr, .work = w };

	r.server = (enum wait)(nr % WAITS);
	r.client = (enum wait)(nr / 2 % WAITS);
	r.size = sizes[nr / 4 % 4];
	return r;
}

struct show {
	enum work work;
	unsigned rounds;
};

static void server_seen(struct peer *me, void *arg)
{
	struct show *what = arg;
	struct rdma_cm_id *listener;
	struct party p = { .words = LARGE };

	p.ch = conf_channel();
	listener = conf_listen(p.ch, AF_INET, 8);
	peer_say_u32(me, ntohs(rdma_get_src_port(listener)));
	for (unsigned i = 0; i < what->rounds; i++) {
		struct round r = seen_round(what->work, i);

		serve_seen(&p, &r);
	}
	OK(rdma_destroy_id(listener));
	rdma_destroy_event_channel(p.ch);
}

static void seen(enum work w)
{
	struct show what = { w, conf_rounds(96, 20000) };
	struct peer s = peer_start(server_seen, &what);
	uint16_t port = (uint16_t)peer_hear_u32(&s);
	struct party p = { .words = LARGE };

	p.ch = conf_channel();
	for (unsigned i = 0; i < what.rounds; i++) {
		struct round r = seen_round(w, i);

		visit_seen(&p, &r, port);
	}
	rdma_destroy_event_channel(p.ch);
	peer_end(&s);
}

static void a_read_that_was_seen(void)
{
	seen(SEEN_READ);
}

static void a_send_whose_answer_was_seen(void)
{
	seen(SEEN_ANSWER);
}

/* ---- many processes -------------------------------------------------------------- */

struct visitor {
	uint16_t port;
	struct round r;
};

static void visitor(struct peer *me, void *arg)
{
	struct visitor *v = arg;
	struct party p = { .words = SLOT };

	(void)me;
	p.ch = conf_channel();
	visit(&p, &v->r, v->port);
	rdma_destroy_event_channel(p.ch);
}

/* A process for each round: what two processes set up between them is under way. */
static void by_clients_that_come_and_go(void)
{
	unsigned rounds = conf_rounds(EACH, 20 * EACH);
	struct peer s = peer_start(server, &rounds), c;
	struct visitor v;

	v.port = (uint16_t)peer_hear_u32(&s);
	for (unsigned i = 0; i < rounds; i++) {
		v.r = round_of(i);
		c = peer_start(visitor, &v);
		peer_end(&c);
		close(c.in);
		close(c.out);
	}
	peer_end(&s);
}

static const struct conf_case cases[] = {
	LONG_CASE(what_was_done_has_completed, 200),
	LONG_CASE(by_clients_that_come_and_go, 200),
	LONG_CASE(a_read_that_was_seen, 200),
	LONG_CASE(a_send_whose_answer_was_seen, 200),
};

CONF_MAIN(cases)
