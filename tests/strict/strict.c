/* SPDX-License-Identifier: BSD-2-Clause */
/* Two QPs and what both ends must show when a request is refused. */
#include "strict.h"

struct st_end a, p;

static int val(int v, int def)
{
	return v == ST_NONE ? 0 : v ? v : def;
}

static const struct st_opt defaults;

/* ---- memory --------------------------------------------------------------- */

struct conf_buf st_buf(struct ibv_pd *pd, size_t len, int access, uint32_t seed)
{
	struct conf_buf b = { .len = len };
	uint8_t *raw;

	CHECK(posix_memalign((void **)&raw, ST_GUARD, len + 2 * ST_GUARD) == 0);
	b.p = raw + ST_GUARD;
	st_fill(&b, seed);
	MUST(b.mr = ibv_reg_mr(pd, b.p, len, access));
	return b;
}

void st_buf_free(struct conf_buf *b)
{
	if (b->mr)
		EQ(ibv_dereg_mr(b->mr), 0);
	if (b->p)
		free(b->p - ST_GUARD);
	memset(b, 0, sizeof(*b));
}

void st_fill(struct conf_buf *b, uint32_t seed)
{
	conf_pattern(b->p - ST_GUARD, b->len + 2 * ST_GUARD, seed);
}

void st_forget(struct conf_buf *b, size_t off, size_t len, uint32_t seed)
{
	size_t all = b->len + 2 * ST_GUARD;
	uint8_t *fresh = malloc(all);

	MUST(fresh);
	conf_pattern(fresh, all, seed);
	memcpy(b->p + off, fresh + ST_GUARD + off, len);
	free(fresh);
}

void st_untouched_(const char *file, int line, const struct conf_buf *b, uint32_t seed)
{
	conf_at(file, line, "memory is as it was");
	if (!conf_pattern_ok(b->p - ST_GUARD, b->len + 2 * ST_GUARD, seed))
		conf_fail(file, line, "memory was changed by what was refused");
}

/* ---- ends ----------------------------------------------------------------- */

static union ibv_gid gid;
static int gid_index;
static struct ibv_port_attr port;

static void create(struct st_end *e, const struct st_opt *o, bool with_srq)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = o->sig_all,
		.cap = {
			.max_send_wr = val(o->send_wr, 16),
			.max_recv_wr = val(o->recv_wr, 16),
			.max_send_sge = val(o->sge, 4),
			.max_recv_sge = val(o->sge, 4),
			.max_inline_data = val(o->inl, 64),
		},
	};
	struct ibv_srq_init_attr sattr = {
		.attr = { .max_wr = val(o->srq_wr, 0), .max_sge = val(o->sge, 4) },
	};

	e->ctx = conf_open_device();
	MUST(e->pd = ibv_alloc_pd(e->ctx));
	gid_index = conf_gid(e->ctx, &port, &gid);
	MUST(e->scq = ibv_create_cq(e->ctx, val(o->cqe, 64), NULL, NULL, 0));
	MUST(e->rcq = ibv_create_cq(e->ctx, val(o->cqe, 64), NULL, NULL, 0));
	if (with_srq)
		MUST(e->srq = ibv_create_srq(o->srq_pd ? o->srq_pd() : e->pd, &sattr));
	attr.send_cq = e->scq;
	attr.recv_cq = e->rcq;
	attr.srq = e->srq;
	MUST(e->qp = ibv_create_qp(e->pd, &attr));
}

void st_create(const struct st_opt *o)
{
	o = o ? o : &defaults;
	memset(&a, 0, sizeof(a));
	memset(&p, 0, sizeof(p));
	create(&a, o, false);
	create(&p, o, o->srq_wr);
	a.b = st_buf(a.pd, ST_LEN, CONF_RW, ST_SEED_A);
	p.b = st_buf(p.pd, ST_LEN, CONF_RW, ST_SEED_P);
	a.psn = 0xfffff0; /* wraps soon */
	p.psn = 0x123456;
}

void st_init(struct st_end *e, const struct st_opt *o)
{
	int all = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = e == &p && o ? val(o->access, all) : all,
	};

	EQ(conf_qp_modify(e->qp, attr), 0);
}

void st_rtr(struct st_end *e, const struct st_end *peer, const struct st_opt *o)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = port.active_mtu,
		.dest_qp_num = peer->qp->qp_num,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = val(o ? o->ird : 0, 4),
		.min_rnr_timer = val(o ? o->rnr_timer : 0, 12),
		.ah_attr = {
			.is_global = 1,
			.port_num = 1,
			.grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 64 },
		},
	};

	EQ(conf_qp_modify(e->qp, attr), 0);
}

void st_rts(struct st_end *e, const struct st_opt *o)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = e->psn,
		.timeout = val(o ? o->timeout : 0, 14),
		.retry_cnt = val(o ? o->retry : 0, 7),
		.rnr_retry = val(o ? o->rnr_retry : 0, 7),
		.max_rd_atomic = val(o ? o->ord : 0, 4),
	};

	EQ(conf_qp_modify(e->qp, attr), 0);
}

static void join(const struct st_opt *o)
{
	st_init(&a, o);
	st_init(&p, o);
	st_rtr(&a, &p, o);
	st_rtr(&p, &a, o);
	st_rts(&a, o);
	st_rts(&p, o);
}

void st_open(const struct st_opt *o)
{
	st_create(o);
	join(o);
}

/* What a QP in RESET leaves in its CQs differs between devices. */
static void drain(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(cq, 1, &wc) > 0)
		;
}

void st_again(const struct st_opt *o)
{
	EQ(conf_qp_to(a.qp, IBV_QPS_RESET), 0);
	EQ(conf_qp_to(p.qp, IBV_QPS_RESET), 0);
	drain(a.scq);
	drain(a.rcq);
	drain(p.scq);
	drain(p.rcq);
	st_fill(&a.b, ST_SEED_A);
	st_fill(&p.b, ST_SEED_P);
	join(o);
}

static void destroy(struct st_end *e)
{
	if (e->qp)
		EQ(ibv_destroy_qp(e->qp), 0);
	if (e->srq)
		EQ(ibv_destroy_srq(e->srq), 0);
	EQ(ibv_destroy_cq(e->scq), 0);
	EQ(ibv_destroy_cq(e->rcq), 0);
	st_buf_free(&e->b);
	EQ(ibv_dealloc_pd(e->pd), 0);
	EQ(ibv_close_device(e->ctx), 0);
}

void st_close(void)
{
	destroy(&a);
	destroy(&p);
}

/* ---- events ---------------------------------------------------------------- */

static bool next_event(struct st_end *e, int ms, struct ibv_async_event *ev)
{
	struct pollfd fd = { .fd = e->ctx->async_fd, .events = POLLIN };

	if (poll(&fd, 1, ms) != 1)
		return false;
	EQ(ibv_get_async_event(e->ctx, ev), 0);
	ibv_ack_async_event(ev);
	return true;
}

void st_event_(const char *file, int line, struct st_end *e, int type, void *object)
{
	int wanted = conf_env("STRICT_EVENTS", 1);
	int ms = type == ST_NONE || !wanted ? ST_QUIET : conf_ms(CONF_WAIT);
	struct ibv_async_event ev;

	conf_at(file, line, "waiting for an asynchronous event");
	do {
		if (!next_event(e, ms, &ev)) {
			if (type != ST_NONE && wanted)
				conf_fail(file, line, "no event %s", ibv_event_type_str(type));
			return;
		}
	} while (ev.event_type == IBV_EVENT_COMM_EST && type != IBV_EVENT_COMM_EST);
	if ((int)ev.event_type != type)
		conf_fail(file, line, "event \"%s\", wanted \"%s\"",
			  ibv_event_type_str(ev.event_type),
			  type == ST_NONE ? "none" : ibv_event_type_str(type));
	if ((void *)ev.element.qp != object)
		conf_fail(file, line, "event \"%s\" is for another object",
			  ibv_event_type_str(type));
}

/* ---- work ------------------------------------------------------------------ */

int st_recv(struct st_end *e, uint64_t wr_id, struct ibv_sge *sge, int n)
{
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = sge, .num_sge = n }, *bad;

	return e->srq ? ibv_post_srq_recv(e->srq, &wr, &bad) :
			ibv_post_recv(e->qp, &wr, &bad);
}

int st_recv_buf(struct st_end *e, uint64_t wr_id, size_t off, size_t len)
{
	struct ibv_sge sge = conf_sge(&e->b, off, len);

	return st_recv(e, wr_id, &sge, 1);
}

bool st_is_atomic(int opcode)
{
	return opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
}

struct ibv_send_wr st_rdma(int opcode, struct ibv_sge *sge, int n, const void *raddr,
			   uint32_t rkey)
{
	struct ibv_send_wr wr = conf_wr(2, opcode, sge, n);

	if (opcode != IBV_WR_SEND && opcode != IBV_WR_SEND_WITH_IMM)
		wr = conf_rdma(2, opcode, sge, n, raddr, rkey);
	if (st_is_atomic(opcode))
		wr.wr.atomic.compare_add = 0x0101010101010101;
	if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP) /* what is there: it would swap */
		memcpy(&wr.wr.atomic.compare_add, p.b.p, 8);
	return wr;
}

static void is_(const char *file, int line, struct ibv_cq *cq, uint64_t wr_id, int status)
{
	conf_wc_is_(file, line, cq, wr_id, status, NULL);
}

static void flushed_(const char *file, int line, struct ibv_cq *cq, int from, int to)
{
	for (int i = from; i <= to; i++)
		is_(file, line, cq, i, IBV_WC_WR_FLUSH_ERR);
}

/* The chain of st_refused(), up to what a's completions say. */
static void chain(const char *file, int line, struct ibv_send_wr *wr, int status)
{
	struct ibv_sge sge = conf_sge(&a.b, 0, 64);
	struct ibv_send_wr first = conf_wr(1, IBV_WR_SEND, NULL, 0), last[3], *bad = NULL;
	int ret;

	for (int i = 0; i < 3; i++) {
		OK(st_recv_buf(&p, 101 + i, 1024, 1024));
		OK(st_recv_buf(&a, 201 + i, 2048, 1024));
	}
	last[0] = conf_rdma(3, IBV_WR_RDMA_WRITE, &sge, 1, p.b.p, p.b.mr->rkey);
	last[1] = conf_rdma(4, IBV_WR_RDMA_READ, &sge, 1, p.b.p, p.b.mr->rkey);
	last[2] = conf_wr(5, IBV_WR_SEND, &sge, 1);
	last[2].send_flags = 0;
	first.next = wr;
	wr->next = &last[0];
	last[0].next = &last[1];
	last[1].next = &last[2];
	wr->wr_id = 2;
	conf_at(file, line, "posting");
	ret = ibv_post_send(a.qp, &first, &bad);
	if (ret)
		conf_fail(file, line, "ibv_post_send: %s, at wr %d", strerror(ret),
			  bad ? (int)bad->wr_id : -1);
	is_(file, line, a.scq, 1, IBV_WC_SUCCESS);
	is_(file, line, a.scq, 2, status);
	flushed_(file, line, a.scq, 3, 5);
	flushed_(file, line, a.rcq, 201, 203);
	conf_wc_none_(file, line, a.scq, 5);
	conf_wc_none_(file, line, a.rcq, 0);
	conf_qp_wait_(file, line, a.qp, IBV_QPS_ERR);
	is_(file, line, p.rcq, 101, IBV_WC_SUCCESS);
}

void st_refused_(const char *file, int line, struct ibv_send_wr *wr, int status, int event)
{
	bool by_receive = wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM &&
			  event == IBV_EVENT_QP_ACCESS_ERR;

	chain(file, line, wr, status);
	if (by_receive)
		is_(file, line, p.rcq, 102, IBV_WC_LOC_ACCESS_ERR);
	st_event_(file, line, &p, by_receive ? ST_NONE : event, p.qp);
	conf_qp_wait_(file, line, p.qp, IBV_QPS_ERR);
	if (!p.srq)
		flushed_(file, line, p.rcq, by_receive ? 103 : 102, 103);
	conf_wc_none_(file, line, p.rcq, 5);
	st_untouched_(file, line, &a.b, ST_SEED_A);
	st_untouched_(file, line, &p.b, ST_SEED_P);
}

void st_refused_here_(const char *file, int line, struct ibv_send_wr *wr, int status)
{
	chain(file, line, wr, status);
	conf_wc_none_(file, line, p.rcq, ST_QUIET);
	st_event_(file, line, &p, ST_NONE, NULL);
	if (conf_qp_state(p.qp) != IBV_QPS_RTS)
		conf_fail(file, line, "the peer's QP is in state %d", conf_qp_state(p.qp));
	st_untouched_(file, line, &a.b, ST_SEED_A);
	st_untouched_(file, line, &p.b, ST_SEED_P);
}

/* p's first word, after the atomic, and as it was. */
static void atomic_happened(const char *file, int line, const struct ibv_send_wr *wr)
{
	uint64_t was, is, wanted = wr->wr.atomic.swap;

	memcpy(&is, p.b.p, 8);
	st_fill(&p.b, ST_SEED_P);
	memcpy(&was, p.b.p, 8);
	if (wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		wanted = was + wr->wr.atomic.compare_add;
	if (is != wanted)
		conf_fail(file, line, "the atomic has not happened");
}

void st_sink_refused_(const char *file, int line, struct ibv_send_wr *wr)
{
	struct ibv_send_wr first = conf_wr(1, IBV_WR_SEND, NULL, 0);

	OK(st_recv_buf(&p, 101, 1024, 1024));
	for (int i = 0; i < 3; i++)
		OK(st_recv_buf(&a, 201 + i, 2048, 1024));
	first.next = wr;
	wr->next = NULL;
	wr->wr_id = 2;
	conf_at(file, line, "posting");
	OK(conf_post(a.qp, &first));
	is_(file, line, a.scq, 1, IBV_WC_SUCCESS);
	is_(file, line, a.scq, 2, IBV_WC_LOC_PROT_ERR);
	flushed_(file, line, a.rcq, 201, 203);
	conf_wc_none_(file, line, a.scq, 5);
	conf_qp_wait_(file, line, a.qp, IBV_QPS_ERR);
	is_(file, line, p.rcq, 101, IBV_WC_SUCCESS);
	conf_wc_none_(file, line, p.rcq, ST_QUIET);
	st_event_(file, line, &p, ST_NONE, NULL);
	if (conf_qp_state(p.qp) != IBV_QPS_RTS)
		conf_fail(file, line, "the peer's QP is in state %d", conf_qp_state(p.qp));
	if (st_is_atomic(wr->opcode))
		atomic_happened(file, line, wr);
	st_untouched_(file, line, &p.b, ST_SEED_P);
}

void st_accepted_(const char *file, int line, struct ibv_send_wr *wr)
{
	int ret;

	wr->wr_id = 2;
	conf_at(file, line, "posting");
	ret = conf_post(a.qp, wr);
	if (ret)
		conf_fail(file, line, "ibv_post_send: %s", strerror(ret));
	is_(file, line, a.scq, 2, IBV_WC_SUCCESS);
}

void st_recv_refused_(const char *file, int line, const struct st_misfit *m)
{
	struct ibv_sge all = conf_sge(&a.b, 0, m->len);
	struct ibv_send_wr wr[3];

	OK(st_recv_buf(&p, 101, 0, 64));
	OK(st_recv(&p, 102, m->sge, m->n));
	OK(st_recv_buf(&p, 103, 0, 64));
	wr[0] = conf_wr(1, IBV_WR_SEND, NULL, 0);
	wr[1] = conf_wr(2, IBV_WR_SEND, &all, 1);
	wr[2] = conf_wr(3, IBV_WR_SEND, &all, 1);
	wr[0].next = &wr[1];
	wr[1].next = &wr[2];
	conf_at(file, line, "posting");
	OK(conf_post(a.qp, wr));
	is_(file, line, p.rcq, 101, IBV_WC_SUCCESS);
	is_(file, line, p.rcq, 102, m->rstatus);
	if (!p.srq)
		is_(file, line, p.rcq, 103, IBV_WC_WR_FLUSH_ERR);
	is_(file, line, a.scq, 1, IBV_WC_SUCCESS);
	is_(file, line, a.scq, 2, m->sstatus);
	is_(file, line, a.scq, 3, IBV_WC_WR_FLUSH_ERR);
	conf_qp_wait_(file, line, a.qp, IBV_QPS_ERR);
	conf_qp_wait_(file, line, p.qp, IBV_QPS_ERR);
	conf_wc_none_(file, line, p.rcq, 5);
}

void st_alive_(const char *file, int line)
{
	struct ibv_send_wr wr = conf_wr(900, IBV_WR_SEND, NULL, 0);

	OK(st_recv(&p, 901, NULL, 0));
	OK(conf_post(a.qp, &wr));
	is_(file, line, a.scq, 900, IBV_WC_SUCCESS);
	is_(file, line, p.rcq, 901, IBV_WC_SUCCESS);
	OK(st_recv(&a, 903, NULL, 0));
	wr = conf_wr(904, IBV_WR_SEND, NULL, 0);
	OK(conf_post(p.qp, &wr));
	is_(file, line, p.scq, 904, IBV_WC_SUCCESS);
	is_(file, line, a.rcq, 903, IBV_WC_SUCCESS);
	conf_wc_none_(file, line, a.scq, 5);
	conf_wc_none_(file, line, p.scq, 0);
	if (conf_qp_state(a.qp) != IBV_QPS_RTS || conf_qp_state(p.qp) != IBV_QPS_RTS)
		conf_fail(file, line, "a QP is not in RTS");
}

/* ---- every operation -------------------------------------------------------- */

const int st_remote_ops[ST_REMOTE_OPS] = {
	IBV_WR_RDMA_WRITE,	     IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ,
	IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP,
};

void st_all_refused(const void *addr, uint32_t rkey)
{
	for (int i = 0; i < ST_REMOTE_OPS; i++) {
		struct ibv_sge sge = conf_sge(&a.b, 4096, 8);
		struct ibv_send_wr wr = st_rdma(st_remote_ops[i], &sge, 1, addr, rkey);

		if (i)
			st_again(NULL);
		st_refused(&wr, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
	}
}

void st_all_sends_refused(struct ibv_sge sge)
{
	static const int ops[] = { IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
				   IBV_WR_RDMA_WRITE_WITH_IMM };

	for (unsigned i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		struct ibv_send_wr wr = st_rdma(ops[i], &sge, 1, p.b.p, p.b.mr->rkey);

		if (i)
			st_again(NULL);
		st_refused_here(&wr, IBV_WC_LOC_PROT_ERR);
	}
}

void st_all_answers_refused(struct ibv_sge sge)
{
	static const int ops[] = { IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
				   IBV_WR_ATOMIC_CMP_AND_SWP };

	for (unsigned i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		struct ibv_send_wr wr = st_rdma(ops[i], &sge, 1, p.b.p, p.b.mr->rkey);

		if (i)
			st_again(NULL);
		st_sink_refused(&wr);
		st_untouched(&a.b, ST_SEED_A);
	}
}
