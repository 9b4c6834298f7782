/* SPDX-License-Identifier: BSD-2-Clause */
/* Work requests that are refused when they are posted: too many SGEs, too much inline
 * data, messages that are too long, wrong atomics, wrong states, full queues. A refused
 * request changes nothing: those before it in the chain are carried out, and the QP works
 * on. */
#include "strict.h"

#include <sys/mman.h>

static struct ibv_qp_cap granted(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	EQ(ibv_query_qp(qp, &attr, IBV_QP_CAP, &init), 0);
	return init.cap;
}

static int post_empty(struct ibv_qp *qp, uint64_t wr_id)
{
	struct ibv_send_wr wr = conf_wr(wr_id, IBV_WR_SEND, NULL, 0), *bad = NULL;
	int ret = ibv_post_send(qp, &wr, &bad);

	CHECK(!ret || bad == &wr);
	return ret;
}

static int recv_empty(struct ibv_qp *qp, uint64_t wr_id)
{
	struct ibv_recv_wr wr = { .wr_id = wr_id }, *bad = NULL;
	int ret = ibv_post_recv(qp, &wr, &bad);

	CHECK(!ret || bad == &wr);
	return ret;
}

/* A good send, wr, a good send: only the first is posted, and wr is named. */
static void check_not_posted(struct ibv_send_wr *wr, int err)
{
	struct ibv_send_wr first = conf_wr(1, IBV_WR_SEND, NULL, 0), *bad = NULL;
	struct ibv_send_wr last = conf_wr(3, IBV_WR_SEND, NULL, 0);

	OK(st_recv(&p, 101, NULL, 0));
	first.next = wr;
	wr->next = &last;
	EQ(ibv_post_send(a.qp, &first, &bad), err);
	CHECK(bad == wr);
	conf_wc_ok(a.scq, 1);
	conf_wc_ok(p.rcq, 101);
	conf_wc_none(a.scq, ST_QUIET);
	st_event(&a, ST_NONE);
	st_untouched(&p.b, ST_SEED_P);
	st_alive();
}

/* ---- scatter/gather lists ------------------------------------------------------- */

static void too_many_sges_to_send(void)
{
	static const int ops[] = { IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
				   IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ };
	struct ibv_sge sge[64];
	struct ibv_send_wr wr;
	uint32_t max;

	st_open(NULL);
	max = granted(a.qp).max_send_sge;
	CHECK(max >= 4 && max < 64);
	for (unsigned i = 0; i < 64; i++)
		sge[i] = conf_sge(&a.b, 8 * i, 8);
	for (unsigned i = 0; i < 5; i++) {
		wr = st_rdma(ops[i], sge, (int)max + 1, p.b.p, p.b.mr->rkey);
		check_not_posted(&wr, EINVAL);
	}
	wr = st_rdma(IBV_WR_RDMA_WRITE, sge, -1, p.b.p, p.b.mr->rkey);
	check_not_posted(&wr, EINVAL);
	wr = st_rdma(IBV_WR_RDMA_WRITE, sge, (int)max, p.b.p, p.b.mr->rkey);
	st_accepted(&wr); /* as many as were granted */
	st_close();
}

static void too_many_sges_to_receive(void)
{
	struct ibv_recv_wr wr[3], *bad = NULL;
	struct ibv_sge sge[64];
	uint32_t max;

	st_open(NULL);
	max = granted(p.qp).max_recv_sge;
	CHECK(max >= 4 && max < 64);
	for (unsigned i = 0; i < 64; i++)
		sge[i] = conf_sge(&p.b, 8 * i, 8);
	for (int i = 0; i < 3; i++)
		wr[i] = (struct ibv_recv_wr){ .wr_id = i, .sg_list = sge, .num_sge = (int)max,
					      .next = i < 2 ? &wr[i + 1] : NULL };
	wr[1].num_sge++;
	EQ(ibv_post_recv(p.qp, wr, &bad), EINVAL);
	CHECK(bad == &wr[1]);
	/* The one before it is there, the one behind it is not. */
	OK(st_recv(&p, 7, NULL, 0));
	OK(post_empty(a.qp, 8));
	OK(post_empty(a.qp, 9));
	conf_wc_ok(p.rcq, 0);
	conf_wc_ok(p.rcq, 7);
	st_close();
}

static void too_many_sges_to_an_srq(void)
{
	struct st_opt opt = { .srq_wr = 8 };
	struct ibv_srq_attr attr;
	struct ibv_sge sge[64];

	st_open(&opt);
	EQ(ibv_query_srq(p.srq, &attr), 0);
	CHECK(attr.max_sge >= 4 && attr.max_sge < 64);
	for (unsigned i = 0; i < 64; i++)
		sge[i] = conf_sge(&p.b, 8 * i, 8);
	EQ(st_recv(&p, 1, sge, (int)attr.max_sge + 1), EINVAL);
	EQ(st_recv(&p, 1, sge, (int)attr.max_sge), 0);
	st_close();
}

/* ---- inline ---------------------------------------------------------------------- */

static void too_much_inline_data(void)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge[2];
	uint32_t max;

	st_open(NULL);
	max = granted(a.qp).max_inline_data;
	CHECK(max >= 64);
	sge[0] = conf_sge(&a.b, 0, max);
	sge[1] = conf_sge(&a.b, max, 1);
	wr = st_rdma(IBV_WR_RDMA_WRITE, sge, 2, p.b.p, p.b.mr->rkey);
	wr.send_flags |= IBV_SEND_INLINE;
	check_not_posted(&wr, EINVAL);
	sge[0].length++;
	wr.num_sge = 1;
	check_not_posted(&wr, EINVAL);
	sge[0].length = max;
	wr.next = NULL;
	st_accepted(&wr);
	st_close();
}

/* Answers cannot go into a work request. */
static void inline_read(void)
{
	static const int ops[] = { IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
				   IBV_WR_ATOMIC_CMP_AND_SWP };
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	st_open(NULL);
	for (int i = 0; i < 3; i++) {
		sge = conf_sge(&a.b, 0, 8);
		wr = st_rdma(ops[i], &sge, 1, p.b.p, p.b.mr->rkey);
		wr.send_flags |= IBV_SEND_INLINE;
		check_not_posted(&wr, EINVAL);
	}
	st_close();
}

/* ---- messages --------------------------------------------------------------------- */

enum { PIECE = 1 << 26 };
static const size_t longest = 1ul << 31;

/* 2 GiB and a piece, which is the same 64 MiB seen many times over. */
static uint8_t *large_memory(uint32_t seed)
{
	int fd = memfd_create("strict", 0);
	uint8_t *m;

	CHECK(fd >= 0 && ftruncate(fd, PIECE) == 0);
	m = mmap(NULL, longest + PIECE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(m != MAP_FAILED);
	for (size_t at = 0; at <= longest; at += PIECE)
		CHECK(mmap(m + at, PIECE, PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, 0) != MAP_FAILED);
	close(fd);
	conf_pattern(m, PIECE, seed);
	return m;
}

/* 2^31 bytes are one message; one more is none. */
static void message_of_2_to_the_31(void)
{
	struct ibv_port_attr port;
	struct ibv_mr *from, *to;
	struct ibv_send_wr wr;
	struct ibv_sge sge[2];
	uint8_t *m, *n;
	struct ibv_wc wc;

#ifdef CONF_SANITIZER
	SKIP("sanitizers are too slow for 2 GiB");
#endif
	st_open(NULL);
	EQ(ibv_query_port(p.ctx, 1, &port), 0);
	CHECK(port.max_msg_sz >= longest || !conf_user_device());
	if (port.max_msg_sz < longest)
		SKIP("the device has messages of up to %u bytes", port.max_msg_sz);
	m = large_memory(1);
	n = large_memory(2);
	MUST(from = ibv_reg_mr(a.pd, m, longest + PIECE, CONF_RW));
	MUST(to = ibv_reg_mr(p.pd, n, longest + PIECE, CONF_RW));
	sge[0] = (struct ibv_sge){ (uintptr_t)m, 1u << 31, from->lkey };
	sge[1] = (struct ibv_sge){ (uintptr_t)m + longest, 1, from->lkey };
	wr = st_rdma(IBV_WR_RDMA_WRITE, sge, 2, n, to->rkey);
	check_not_posted(&wr, EINVAL);
	wr = st_rdma(IBV_WR_RDMA_READ, sge, 2, n, to->rkey);
	check_not_posted(&wr, EINVAL);
	CHECK(conf_pattern_ok(n, PIECE, 2));
	wr = st_rdma(IBV_WR_RDMA_WRITE, sge, 1, p.b.p, p.b.mr->rkey);
	st_refused(&wr, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
	st_again(NULL);
	sge[1] = (struct ibv_sge){ (uintptr_t)n, 1u << 31, to->lkey };
	OK(st_recv(&p, 7, &sge[1], 1));
	wr = conf_wr(2, IBV_WR_SEND, sge, 1);
	OK(conf_post(a.qp, &wr));
	while (!ibv_poll_cq(p.rcq, 1, &wc))
		AT("receiving 2 GiB");
	CHECK(wc.wr_id == 7 && wc.status == IBV_WC_SUCCESS);
	EQ(wc.byte_len, 1u << 31);
	conf_wc_ok(a.scq, 2);
	CHECK(conf_pattern_ok(n, PIECE, 1));
	EQ(ibv_dereg_mr(from), 0);
	EQ(ibv_dereg_mr(to), 0);
	munmap(m, longest + PIECE);
	munmap(n, longest + PIECE);
	st_close();
}

/* ---- atomics ----------------------------------------------------------------------- */

/* It can be posted, and fails before it leaves. */
static void atomic_with_a_wrong_length(void)
{
	static const uint32_t lengths[] = { 0, 1, 4, 7, 9, 16 };
	static const int ops[] = { IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP };
	struct ibv_send_wr wr;
	struct ibv_sge sge[2];

	st_open(NULL);
	for (unsigned k = 0; k < 2; k++) {
		for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
			sge[0] = conf_sge(&a.b, 0, lengths[i]);
			wr = st_rdma(ops[k], sge, 1, p.b.p, p.b.mr->rkey);
			st_refused_here(&wr, IBV_WC_LOC_LEN_ERR);
			st_again(NULL);
		}
		wr = st_rdma(ops[k], NULL, 0, p.b.p, p.b.mr->rkey);
		st_refused_here(&wr, IBV_WC_LOC_LEN_ERR);
		st_again(NULL);
		sge[0] = conf_sge(&a.b, 0, 4);
		sge[1] = conf_sge(&a.b, 4, 4);
		wr = st_rdma(ops[k], sge, 2, p.b.p, p.b.mr->rkey);
		st_refused_here(&wr, IBV_WC_LOC_LEN_ERR);
		st_again(NULL);
	}
	st_close();
}

static void unaligned_atomic(void)
{
	static const int ops[] = { IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP };

	st_open(NULL);
	for (int k = 0; k < 2; k++)
		for (int off = 1; off < 8; off++) {
			struct ibv_sge sge = conf_sge(&a.b, 0, 8);
			struct ibv_send_wr wr =
				st_rdma(ops[k], &sge, 1, p.b.p + off, p.b.mr->rkey);

			st_refused(&wr, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
			st_again(NULL);
		}
	st_close();
}

/* The local word of an atomic may lie anywhere. */
static void result_of_an_atomic_unaligned(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	uint64_t was;

	st_open(NULL);
	memcpy(&was, p.b.p, 8);
	sge = conf_sge(&a.b, 13, 8);
	wr = st_rdma(IBV_WR_ATOMIC_FETCH_AND_ADD, &sge, 1, p.b.p, p.b.mr->rkey);
	st_accepted(&wr);
	for (int i = 0; i < 8; i++)
		EQ(a.b.p[13 + i], ((uint8_t *)&was)[i]);
	st_close();
}

static void unknown_opcode(void)
{
	struct ibv_send_wr wr;

	st_open(NULL);
	wr = st_rdma(IBV_WR_TSO, NULL, 0, NULL, 0);
	check_not_posted(&wr, EINVAL);
	wr = st_rdma(1000, NULL, 0, NULL, 0);
	check_not_posted(&wr, EINVAL);
	st_close();
}

/* ---- states ----------------------------------------------------------------------- */

/* Sends: from RTS on. Receives: from INIT on, and they are there when it matters. */
static void posting_before_the_connection(void)
{
	st_create(NULL);
	EQ(post_empty(a.qp, 1), EINVAL);
	EQ(recv_empty(a.qp, 2), EINVAL);
	EQ(recv_empty(p.qp, 2), EINVAL);
	st_init(&a, NULL);
	st_init(&p, NULL);
	EQ(post_empty(a.qp, 1), EINVAL);
	EQ(recv_empty(p.qp, 3), 0);
	st_rtr(&a, &p, NULL);
	st_rtr(&p, &a, NULL);
	EQ(post_empty(a.qp, 1), EINVAL);
	EQ(recv_empty(p.qp, 4), 0);
	st_rts(&a, NULL);
	EQ(post_empty(a.qp, 5), 0);
	EQ(post_empty(a.qp, 6), 0);
	conf_wc_ok(a.scq, 5);
	conf_wc_ok(a.scq, 6);
	conf_wc_ok(p.rcq, 3);
	conf_wc_ok(p.rcq, 4);
	conf_wc_none(a.scq, ST_QUIET); /* nothing of what was refused */
	EQ(conf_qp_state(p.qp), IBV_QPS_RTR);
	st_event(&p, IBV_EVENT_COMM_EST);
	st_close();
}

static void posting_after_a_failure(void)
{
	st_open(NULL);
	EQ(conf_qp_to(a.qp, IBV_QPS_ERR), 0);
	for (int i = 1; i < 5; i++) {
		EQ(post_empty(a.qp, i), 0);
		EQ(recv_empty(a.qp, 10 + i), 0);
	}
	for (int i = 1; i < 5; i++) {
		conf_wc_is(a.scq, i, IBV_WC_WR_FLUSH_ERR);
		conf_wc_is(a.rcq, 10 + i, IBV_WC_WR_FLUSH_ERR);
	}
	EQ(conf_qp_to(a.qp, IBV_QPS_RESET), 0);
	EQ(post_empty(a.qp, 1), EINVAL);
	EQ(recv_empty(a.qp, 1), EINVAL);
	conf_wc_none(a.scq, ST_QUIET);
	st_close();
}

/* In SQD what is posted waits; what was begun is finished. */
static void posting_to_a_drained_queue(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };

	st_open(NULL);
	for (int i = 0; i < 4; i++)
		EQ(recv_empty(p.qp, 100 + i), 0);
	EQ(post_empty(a.qp, 1), 0);
	conf_wc_ok(a.scq, 1);
	EQ(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	st_event(&a, IBV_EVENT_SQ_DRAINED);
	EQ(post_empty(a.qp, 2), 0);
	EQ(post_empty(a.qp, 3), 0);
	conf_wc_none(a.scq, ST_QUIET);
	conf_wc_ok(p.rcq, 100);
	conf_wc_none(p.rcq, 0);
	EQ(recv_empty(a.qp, 50), 0); /* receiving goes on */
	EQ(post_empty(p.qp, 51), 0);
	conf_wc_ok(p.scq, 51);
	conf_wc_ok(a.rcq, 50);
	EQ(conf_qp_to(a.qp, IBV_QPS_RTS), 0);
	conf_wc_ok(a.scq, 2);
	conf_wc_ok(a.scq, 3);
	conf_wc_ok(p.rcq, 101);
	conf_wc_ok(p.rcq, 102);
	st_close();
}

/* RESET forgets what was posted, without a completion. */
static void reset_forgets(void)
{
	st_open(NULL);
	for (int i = 0; i < 4; i++) {
		EQ(recv_empty(a.qp, i), 0);
		EQ(post_empty(a.qp, i), 0); /* nobody receives them */
	}
	EQ(conf_qp_to(a.qp, IBV_QPS_RESET), 0);
	conf_wc_none(a.scq, ST_QUIET);
	conf_wc_none(a.rcq, 0);
	st_again(NULL);
	st_alive();
	st_close();
}

/* ---- full queues ------------------------------------------------------------------ */

/* So many sends as were granted fit while none can complete, and not one more. */
static void send_queue_full(void)
{
	struct st_opt opt = { .send_wr = 5 };
	struct ibv_send_wr wr[4], *bad = NULL;
	unsigned max, n;

	st_open(&opt);
	max = granted(a.qp).max_send_wr;
	CHECK(max >= 5 && max < 60);
	for (n = 0; n < max - 1; n++)
		EQ(post_empty(a.qp, n), 0);
	for (int i = 0; i < 4; i++) {
		wr[i] = conf_wr(n + i, IBV_WR_SEND, NULL, 0);
		wr[i].next = i < 3 ? &wr[i + 1] : NULL;
	}
	EQ(ibv_post_send(a.qp, wr, &bad), ENOMEM);
	CHECK(bad == &wr[1]);
	EQ(post_empty(a.qp, 99), ENOMEM);
	for (unsigned i = 0; i < max; i++) {
		EQ(recv_empty(p.qp, i), 0);
		conf_wc_ok(a.scq, i);
		conf_wc_ok(p.rcq, i);
		EQ(post_empty(a.qp, max + i), 0); /* polled: there is room again */
		EQ(post_empty(a.qp, 99), ENOMEM);
	}
	EQ(conf_qp_to(a.qp, IBV_QPS_ERR), 0);
	for (unsigned i = 0; i < max; i++)
		conf_wc_is(a.scq, max + i, IBV_WC_WR_FLUSH_ERR);
	conf_wc_none(a.scq, ST_QUIET); /* nothing of what found no room */
	st_close();
}

/* The same of p's receives: max of them. */
static void check_receives_full(unsigned max)
{
	struct ibv_recv_wr wr[4], *bad = NULL;
	unsigned n;

	CHECK(max >= 5 && max < 60);
	for (n = 0; n < max - 1; n++)
		EQ(st_recv(&p, n, NULL, 0), 0);
	for (int i = 0; i < 4; i++)
		wr[i] = (struct ibv_recv_wr){ .wr_id = n + i,
					      .next = i < 3 ? &wr[i + 1] : NULL };
	EQ(p.srq ? ibv_post_srq_recv(p.srq, wr, &bad) : ibv_post_recv(p.qp, wr, &bad),
	   ENOMEM);
	CHECK(bad == &wr[1]);
	for (unsigned i = 0; i < max; i++) {
		EQ(post_empty(a.qp, 7), 0);
		conf_wc_ok(a.scq, 7);
		conf_wc_ok(p.rcq, i);
		EQ(st_recv(&p, max + i, NULL, 0), 0);
		EQ(st_recv(&p, 99, NULL, 0), ENOMEM);
	}
}

static void receive_queue_full(void)
{
	struct st_opt opt = { .recv_wr = 5 };

	st_open(&opt);
	check_receives_full(granted(p.qp).max_recv_wr);
	st_close();
}

static void shared_receive_queue_full(void)
{
	struct st_opt opt = { .srq_wr = 5 };
	struct ibv_srq_attr attr;

	st_open(&opt);
	EQ(ibv_query_srq(p.srq, &attr), 0);
	check_receives_full(attr.max_wr);
	st_close();
}

/* A QP with an SRQ has no receive queue of its own. */
static void receive_to_a_qp_with_an_srq(void)
{
	struct st_opt opt = { .srq_wr = 5 };

	st_open(&opt);
	EQ(recv_empty(p.qp, 1), EINVAL);
	EQ(granted(p.qp).max_recv_wr, 0);
	st_close();
}

/* At least what was asked for is granted, and what is granted can be used. */
static void limits_are_kept(void)
{
	for (int n = 1; n <= 64; n = n * 3 + 1) {
		struct st_opt opt = { .send_wr = n, .recv_wr = n, .sge = n > 16 ? 16 : n,
				      .inl = n, .cqe = 3 * n };
		struct ibv_qp_cap cap;

		st_open(&opt);
		cap = granted(p.qp);
		CHECK(cap.max_send_wr >= (unsigned)n && cap.max_recv_wr >= (unsigned)n);
		CHECK(cap.max_send_sge >= (unsigned)opt.sge &&
		      cap.max_recv_sge >= (unsigned)opt.sge);
		CHECK(cap.max_inline_data >= (unsigned)n);
		CHECK(p.rcq->cqe >= 3 * n);
		for (int i = 0; i < n; i++) {
			EQ(recv_empty(p.qp, i), 0);
			EQ(post_empty(a.qp, i), 0);
		}
		for (int i = 0; i < n; i++) {
			conf_wc_ok(a.scq, i);
			conf_wc_ok(p.rcq, i);
		}
		st_close();
	}
}

/* One more than the device says is refused. */
static void beyond_the_device(void)
{
	struct ibv_device_attr dev;
	struct ibv_srq_init_attr srq = { 0 };
	struct ibv_qp_init_attr attr;
	const struct ibv_qp_cap fits = { 1, 1, 1, 1, 0 };

	st_open(NULL);
	EQ(ibv_query_device(a.ctx, &dev), 0);
	for (int i = 0; i < 4; i++) {
		attr = (struct ibv_qp_init_attr){ .send_cq = a.scq, .recv_cq = a.rcq, .cap = fits,
						  .qp_type = IBV_QPT_RC };
		if (i == 0)
			attr.cap.max_send_wr = dev.max_qp_wr + 1;
		else if (i == 1)
			attr.cap.max_recv_wr = dev.max_qp_wr + 1;
		else if (i == 2)
			attr.cap.max_send_sge = dev.max_sge + 1;
		else
			attr.cap.max_recv_sge = dev.max_sge + 1;
		errno = 0;
		CHECK(!ibv_create_qp(a.pd, &attr));
		CHECK(errno == EINVAL || errno == ENOMEM);
	}
	errno = 0;
	CHECK(!ibv_create_cq(a.ctx, dev.max_cqe + 1, NULL, NULL, 0) && errno == EINVAL);
	errno = 0;
	CHECK(!ibv_create_cq(a.ctx, 0, NULL, NULL, 0) && errno == EINVAL);
	srq.attr = (struct ibv_srq_attr){ .max_wr = dev.max_srq_wr + 1, .max_sge = 1 };
	errno = 0;
	CHECK(!ibv_create_srq(a.pd, &srq) && errno == EINVAL);
	srq.attr = (struct ibv_srq_attr){ .max_wr = 1, .max_sge = dev.max_srq_sge + 1 };
	errno = 0;
	CHECK(!ibv_create_srq(a.pd, &srq) && errno == EINVAL);
	st_close();
}

static const struct conf_case cases[] = {
	CASE(too_many_sges_to_send),
	CASE(too_many_sges_to_receive),
	CASE(too_many_sges_to_an_srq),
	CASE(too_much_inline_data),
	CASE(inline_read),
	LONG_CASE(message_of_2_to_the_31, 120),
	CASE(atomic_with_a_wrong_length),
	CASE(unaligned_atomic),
	CASE(result_of_an_atomic_unaligned),
	CASE(unknown_opcode),
	CASE(posting_before_the_connection),
	CASE(posting_after_a_failure),
	CASE(posting_to_a_drained_queue),
	CASE(reset_forgets),
	CASE(send_queue_full),
	CASE(receive_queue_full),
	CASE(shared_receive_queue_full),
	CASE(receive_to_a_qp_with_an_srq),
	CASE(limits_are_kept),
	CASE(beyond_the_device),
};

CONF_MAIN(cases)
