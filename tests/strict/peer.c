/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests whose result depends on the responder: how many reads it serves at once,
 * whether it has posted receives, whether it exists. */
#include "strict.h"

#include <signal.h>
#include <sys/wait.h>

/* ---- reads under way -------------------------------------------------------------- */

/* n reads of `len` bytes in one chain. */
static void post_reads(int n, size_t len)
{
	struct ibv_send_wr wr[16];
	struct ibv_sge sge[16];

	for (int i = 0; i < n; i++) {
		sge[i] = conf_sge(&a.b, 0, len);
		wr[i] = conf_rdma(i, IBV_WR_RDMA_READ, &sge[i], 1, p.b.p, p.b.mr->rkey);
		wr[i].next = i < n - 1 ? &wr[i + 1] : NULL;
	}
	OK(conf_post(a.qp, wr));
}

/* More than the QP may have under way wait their turn. */
static void more_reads_than_the_depth(void)
{
	for (int depth = 1; depth <= 4; depth++) {
		struct st_opt opt = { .ord = depth, .ird = depth };

		st_open(&opt);
		for (int round = 0; round < 4; round++) {
			post_reads(16, round % 2 ? 16 : 100000);
			for (int i = 0; i < 16; i++)
				conf_wc_ok(a.scq, i);
		}
		st_alive();
		st_close();
	}
}

static void more_atomics_than_the_depth(void)
{
	struct st_opt opt = { .ord = 1, .ird = 1 };
	struct ibv_send_wr wr[16];
	struct ibv_sge sge[16];
	uint64_t was, now;

	st_open(&opt);
	memcpy(&was, p.b.p, 8);
	for (int i = 0; i < 16; i++) {
		sge[i] = conf_sge(&a.b, 8 * i, 8);
		wr[i] = st_rdma(IBV_WR_ATOMIC_FETCH_AND_ADD, &sge[i], 1, p.b.p, p.b.mr->rkey);
		wr[i].wr.atomic.compare_add = 1;
		wr[i].wr_id = i;
		wr[i].next = i < 15 ? &wr[i + 1] : NULL;
	}
	OK(conf_post(a.qp, wr));
	for (int i = 0; i < 16; i++)
		conf_wc_ok(a.scq, i);
	for (int i = 0; i < 16; i++) {
		memcpy(&now, a.b.p + 8 * i, 8);
		EQ(now, was + i);
	}
	st_close();
}

/* A requester that has more under way than the responder keeps. How many are served
 * before that depends on the responder's speed; the first that finds no room is an
 * invalid request. */
static void more_reads_than_the_peer_keeps(void)
{
	struct st_opt opt = { .ord = 16, .ird = 1 };
	struct ibv_wc wc;
	int i;

	if (!conf_user_device())
		SKIP("how fast the responder answers decides");
	st_open(&opt);
	post_reads(16, ST_LEN);
	for (i = 0; i < 16; i++) {
		conf_wc(a.scq, &wc);
		EQ(wc.wr_id, i);
		if (wc.status)
			break;
	}
	CHECK(i > 0 && i < 16);
	EQ(wc.status, IBV_WC_REM_INV_REQ_ERR);
	for (i++; i < 16; i++)
		conf_wc_is(a.scq, i, IBV_WC_WR_FLUSH_ERR);
	st_event(&p, IBV_EVENT_QP_REQ_ERR);
	conf_qp_wait(p.qp, IBV_QPS_ERR);
	st_close();
}

static void peer_keeps_no_reads(void)
{
	static const int ops[] = { IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
				   IBV_WR_ATOMIC_CMP_AND_SWP };
	struct st_opt opt = { .ird = ST_NONE };

	st_open(&opt);
	for (int i = 0; i < 3; i++) {
		struct ibv_sge sge = conf_sge(&a.b, 0, 8);
		struct ibv_send_wr wr = st_rdma(ops[i], &sge, 1, p.b.p, p.b.mr->rkey);

		st_refused(&wr, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
		st_again(&opt);
	}
	st_close();
}

/* A QP that may have no reads under way cannot be asked for one: said at once, or the
 * work would wait for good. */
static void no_reads_under_way(void)
{
	static const int ops[] = { IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
				   IBV_WR_ATOMIC_CMP_AND_SWP };
	struct st_opt opt = { .ord = ST_NONE };

	st_open(&opt);
	for (int i = 0; i < 3; i++) {
		struct ibv_sge sge = conf_sge(&a.b, 0, 8);
		struct ibv_send_wr wr = st_rdma(ops[i], &sge, 1, p.b.p, p.b.mr->rkey);

		EQ(conf_post(a.qp, &wr), EINVAL);
	}
	st_untouched(&p.b, ST_SEED_P);
	st_alive();
	st_close();
}

/* ---- receiver not ready ----------------------------------------------------------- */

static int post_send(uint64_t wr_id, size_t len)
{
	struct ibv_sge sge = conf_sge(&a.b, 0, len);
	struct ibv_send_wr wr = conf_wr(wr_id, IBV_WR_SEND, &sge, len ? 1 : 0);

	return conf_post(a.qp, &wr);
}

/* rnr_retry n: the first attempt and n repeats, each after the receiver's timer. */
static void check_rnr(int retries)
{
	/* Timer 20: 10.24 ms. */
	struct st_opt opt = { .rnr_retry = retries ? retries : ST_NONE, .rnr_timer = 20 };
	uint64_t begin, took;

	st_open(&opt);
	begin = conf_now();
	OK(post_send(1, 64));
	OK(post_send(2, 64));
	conf_wc_is(a.scq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	took = conf_now() - begin;
	conf_wc_is(a.scq, 2, IBV_WC_WR_FLUSH_ERR);
	if (took < retries * 10240000ull)
		FAIL("failed after %llu us", (unsigned long long)took / 1000);
	conf_qp_wait(a.qp, IBV_QPS_ERR);
	EQ(conf_qp_state(p.qp), IBV_QPS_RTS); /* nothing happened here */
	st_event(&p, ST_NONE);
	OK(st_recv_buf(&p, 3, 0, 64));
	conf_wc_none(p.rcq, ST_QUIET);
	st_untouched(&p.b, ST_SEED_P);
	st_close();
}

static void rnr_retries_run_out(void)
{
	check_rnr(0);
	check_rnr(1);
	check_rnr(3);
	check_rnr(6);
}

/* 7 means for ever: far more timers than any count. */
static void rnr_retries_for_ever(void)
{
	struct st_opt opt = { .rnr_retry = 7, .rnr_timer = 1 }; /* 10 us */

	st_open(&opt);
	OK(post_send(1, 64));
	OK(post_send(2, 0));
	conf_wc_none(a.scq, 200);
	EQ(conf_qp_state(a.qp), IBV_QPS_RTS);
	OK(st_recv_buf(&p, 101, 0, 64));
	OK(st_recv_buf(&p, 102, 0, 64));
	conf_wc_ok(a.scq, 1);
	conf_wc_ok(a.scq, 2);
	conf_wc_ok(p.rcq, 101);
	conf_wc_ok(p.rcq, 102);
	st_alive();
	st_close();
}

/* The count begins anew when a message got through. */
static void rnr_count_begins_anew(void)
{
	/* 655.36 ms: a busy machine may keep us from posting the receive for a while. */
	struct st_opt opt = { .rnr_retry = 2, .rnr_timer = ST_NONE };

	st_open(&opt);
	for (int i = 0; i < 5; i++) {
		OK(post_send(i, 64));
		conf_wc_none(a.scq, 20); /* refused once or twice */
		OK(st_recv_buf(&p, 100 + i, 0, 64));
		conf_wc_ok(a.scq, i);
		conf_wc_ok(p.rcq, 100 + i);
	}
	st_close();
}

/* Immediate data needs a receive, plain writes do not; both in order. */
static void immediate_without_a_receive(void)
{
	struct st_opt opt = { .rnr_retry = ST_NONE };
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	st_open(&opt);
	sge = conf_sge(&a.b, 0, 64);
	wr = st_rdma(IBV_WR_RDMA_WRITE, &sge, 1, p.b.p, p.b.mr->rkey);
	st_accepted(&wr);
	wr = st_rdma(IBV_WR_RDMA_WRITE_WITH_IMM, &sge, 1, p.b.p, p.b.mr->rkey);
	OK(conf_post(a.qp, &wr));
	conf_wc_is(a.scq, 2, IBV_WC_RNR_RETRY_EXC_ERR);
	EQ(conf_qp_state(p.qp), IBV_QPS_RTS);
	st_close();
}

/* An empty SRQ stops the QPs that need it, not the others; nothing fails. */
static void shared_receive_queue_empty(void)
{
	struct st_opt opt = { .srq_wr = 8, .rnr_timer = 1 };
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	st_open(&opt);
	sge = conf_sge(&p.b, 0, 64);
	OK(post_send(1, 64));
	conf_wc_none(a.scq, ST_QUIET);
	wr = conf_rdma(2, IBV_WR_RDMA_WRITE, &sge, 1, a.b.p + 4096, a.b.mr->rkey);
	OK(conf_post(p.qp, &wr)); /* the other direction */
	conf_wc_ok(p.scq, 2);
	OK(st_recv_buf(&p, 101, 0, 64));
	conf_wc_ok(a.scq, 1);
	conf_wc_ok(p.rcq, 101);
	st_close();
}

/* ---- nobody there ----------------------------------------------------------------- */

/* timeout 10: 4.2 ms, twice */
static const struct st_opt impatient = { .timeout = 10, .retry = 1 };

/* a's requests of every kind find nobody. */
static void check_nobody(void)
{
	struct ibv_sge sge = conf_sge(&a.b, 0, 8);
	struct ibv_send_wr wr[3];

	wr[0] = st_rdma(IBV_WR_RDMA_WRITE, &sge, 1, p.b.p, p.b.mr->rkey);
	wr[1] = st_rdma(IBV_WR_RDMA_READ, &sge, 1, p.b.p, p.b.mr->rkey);
	wr[2] = conf_wr(3, IBV_WR_SEND, &sge, 1);
	for (int i = 0; i < 3; i++) {
		wr[i].wr_id = i + 1;
		wr[i].next = i < 2 ? &wr[i + 1] : NULL;
	}
	OK(st_recv_buf(&a, 4, 0, 64));
	OK(conf_post(a.qp, wr));
	conf_wc_is(a.scq, 1, IBV_WC_RETRY_EXC_ERR);
	conf_wc_is(a.scq, 2, IBV_WC_WR_FLUSH_ERR);
	conf_wc_is(a.scq, 3, IBV_WC_WR_FLUSH_ERR);
	conf_wc_is(a.rcq, 4, IBV_WC_WR_FLUSH_ERR);
	EQ(conf_qp_state(a.qp), IBV_QPS_ERR);
	st_untouched(&p.b, ST_SEED_P);
	st_untouched(&a.b, ST_SEED_A);
}

static void peer_is_destroyed(void)
{
	st_open(&impatient);
	EQ(ibv_destroy_qp(p.qp), 0);
	p.qp = NULL;
	check_nobody();
	st_close();
}

/* A QP in ERR or RESET drops what comes. */
static void peer_is_in_the_error_state(void)
{
	st_open(&impatient);
	EQ(conf_qp_to(p.qp, IBV_QPS_ERR), 0);
	check_nobody();
	st_event(&p, ST_NONE);
	st_close();
}

static void peer_is_reset(void)
{
	st_open(&impatient);
	EQ(conf_qp_to(p.qp, IBV_QPS_RESET), 0);
	check_nobody();
	EQ(conf_qp_state(p.qp), IBV_QPS_RESET);
	st_close();
}

/* A QP that never came beyond INIT has no business with us. */
static void peer_stays_in_init(void)
{
	st_create(NULL);
	st_init(&a, &impatient);
	st_init(&p, &impatient);
	OK(st_recv_buf(&p, 7, 0, 64));
	st_rtr(&a, &p, &impatient);
	st_rts(&a, &impatient);
	check_nobody();
	EQ(conf_qp_state(p.qp), IBV_QPS_INIT);
	conf_wc_none(p.rcq, ST_QUIET);
	st_close();
}

/* The peer ends up in another connection's QP number. */
static void peer_belongs_to_somebody_else(void)
{
	struct st_end third;

	st_create(NULL);
	third = a;
	third.qp = p.qp; /* p is connected to itself */
	st_init(&a, &impatient);
	st_init(&p, &impatient);
	st_rtr(&p, &third, &impatient);
	st_rts(&p, &impatient);
	st_rtr(&a, &p, &impatient);
	st_rts(&a, &impatient);
	OK(st_recv_buf(&p, 7, 0, 64));
	check_nobody();
	conf_wc_none(p.rcq, ST_QUIET);
	st_close();
}

/* ---- a peer that dies ------------------------------------------------------------- */

/* The peer is a process of its own: `p` there, killed in the middle. What both need to
 * know of each other goes through pipes. */
struct hello {
	uint32_t qpn, psn;
	uint64_t addr;
	uint32_t rkey;
};

static void child(int in, int out)
{
	struct ibv_qp fake = { 0 };
	struct st_end peer = { .qp = &fake };
	struct hello h;

	st_create(&impatient);
	h = (struct hello){ p.qp->qp_num, p.psn, (uintptr_t)p.b.p, p.b.mr->rkey };
	CHECK(write(out, &h, sizeof(h)) == sizeof(h));
	CHECK(read(in, &h, sizeof(h)) == sizeof(h));
	fake.qp_num = h.qpn;
	peer.psn = h.psn;
	st_init(&p, &impatient);
	st_rtr(&p, &peer, &impatient);
	st_rts(&p, &impatient);
	OK(st_recv_buf(&p, 1, 0, 64));
	CHECK(write(out, &h, sizeof(h)) == sizeof(h));
	for (;;)
		pause();
}

static void peer_is_killed(void)
{
	struct ibv_qp fake = { 0 };
	struct st_end peer = { .qp = &fake };
	int to[2], from[2];
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct hello h;
	pid_t pid;

	CHECK(!pipe(to) && !pipe(from));
	pid = fork();
	if (!pid) {
		child(to[0], from[1]);
		_exit(0);
	}
	st_create(&impatient);
	CHECK(read(from[0], &h, sizeof(h)) == sizeof(h));
	fake.qp_num = h.qpn;
	peer.psn = h.psn;
	wr = st_rdma(IBV_WR_RDMA_WRITE, &sge, 1, (void *)(uintptr_t)h.addr, h.rkey);
	h = (struct hello){ .qpn = a.qp->qp_num, .psn = a.psn };
	CHECK(write(to[1], &h, sizeof(h)) == sizeof(h));
	st_init(&a, &impatient);
	st_rtr(&a, &peer, &impatient);
	st_rts(&a, &impatient);
	CHECK(read(from[0], &h, sizeof(h)) == sizeof(h));
	sge = conf_sge(&a.b, 0, 8);
	st_accepted(&wr);
	OK(kill(pid, SIGKILL));
	CHECK(waitpid(pid, NULL, 0) == pid);
	for (int i = 0; i < 3; i++) {
		wr.wr_id = i;
		OK(conf_post(a.qp, &wr));
	}
	conf_wc_is(a.scq, 0, IBV_WC_RETRY_EXC_ERR);
	conf_wc_is(a.scq, 1, IBV_WC_WR_FLUSH_ERR);
	conf_wc_is(a.scq, 2, IBV_WC_WR_FLUSH_ERR);
	EQ(conf_qp_state(a.qp), IBV_QPS_ERR);
	st_close();
}

/* Numbers that do not agree: the peer asks for what never comes. */
static void packet_numbers_differ(void)
{
	st_create(NULL);
	st_init(&a, &impatient);
	st_init(&p, &impatient);
	st_rtr(&a, &p, &impatient);
	a.psn -= 1000; /* p expects what a does not begin with */
	st_rtr(&p, &a, &impatient);
	a.psn += 1000;
	st_rts(&a, &impatient);
	st_rts(&p, &impatient);
	OK(st_recv_buf(&p, 7, 0, 64));
	check_nobody();
	conf_wc_none(p.rcq, ST_QUIET);
	st_close();
}

/* A connection of the CM whose passive QP was named, but never moved beyond INIT. */
static void peer_of_a_connection_stays_in_init(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = CONF_CAP(8, 8, 1) };
	struct rdma_conn_param param = conf_param();
	struct conf_pair c;
	uint8_t timeout = 10;
	struct ibv_send_wr wr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;

	conf_pair_resolve(&c, NULL);
	OK(rdma_set_option(c.a, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1));
	param.retry_count = 1;
	OK(rdma_connect(c.a, &param));
	c.p = conf_request(c.lch);
	MUST(cq = ibv_create_cq(c.p->verbs, 16, NULL, NULL, 0));
	init.send_cq = init.recv_cq = cq;
	MUST(qp = ibv_create_qp(c.p->pd, &init));
	EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			 IBV_QP_ACCESS_FLAGS), 0);
	param.qp_num = qp->qp_num;
	OK(rdma_accept(c.p, &param));
	conf_expect(c.ach, c.a, RDMA_CM_EVENT_ESTABLISHED);
	wr = conf_wr(1, IBV_WR_SEND, NULL, 0);
	OK(conf_post(c.a->qp, &wr));
	wr.wr_id = 2;
	OK(conf_post(c.a->qp, &wr));
	conf_wc_is(c.a->send_cq, 1, IBV_WC_RETRY_EXC_ERR);
	conf_wc_is(c.a->send_cq, 2, IBV_WC_WR_FLUSH_ERR);
	EQ(ibv_destroy_qp(qp), 0);
	EQ(ibv_destroy_cq(cq), 0);
	conf_pair_free(&c);
}

static const struct conf_case cases[] = {
	CASE(more_reads_than_the_depth),
	CASE(more_atomics_than_the_depth),
	CASE(more_reads_than_the_peer_keeps),
	CASE(peer_keeps_no_reads),
	CASE(no_reads_under_way),
	CASE(rnr_retries_run_out),
	CASE(rnr_retries_for_ever),
	CASE(rnr_count_begins_anew),
	CASE(immediate_without_a_receive),
	CASE(shared_receive_queue_empty),
	CASE(peer_is_destroyed),
	CASE(peer_is_in_the_error_state),
	CASE(peer_is_reset),
	CASE(peer_stays_in_init),
	CASE(peer_belongs_to_somebody_else),
	CASE(peer_is_killed),
	CASE(packet_numbers_differ),
	CASE(peer_of_a_connection_stays_in_init),
};

CONF_MAIN(cases)
