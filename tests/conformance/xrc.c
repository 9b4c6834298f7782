/* SPDX-License-Identifier: BSD-2-Clause */
/* Extended reliable connections: which SRQ a request arrives at, what happens when that
 * has no receive, and which errors both ends report. */
#include "xrc.h"

/* ---- data -------------------------------------------------------------------------- */

static void every_operation(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct ibv_wc wc;
	uint64_t *word;

	start();
	arrives(&l, &q, 2, 100000);
	arrives(&l, &q, 3, 0);

	queue_recv(&q, 4, 4096, 100);
	post(&l, q.number, 1, IBV_WR_SEND_WITH_IMM, 100, NULL);
	conf_wc_ok(l.cq, 1);
	conf_wc_get(q.cq, 4, IBV_WC_SUCCESS, &wc);
	EQ(ntohl(wc.imm_data), 0xabcd);

	conf_pattern(l.b.p, 300000, 5);
	post(&l, q.number, 1, IBV_WR_RDMA_WRITE, 300000, &q);
	conf_wc_ok(l.cq, 1);
	CHECK(conf_pattern_ok(q.b.p, 300000, 5));

	queue_recv(&q, 6, 4096, 0);
	post(&l, q.number, 1, IBV_WR_RDMA_WRITE_WITH_IMM, 10, &q);
	conf_wc_ok(l.cq, 1);
	conf_wc_get(q.cq, 6, IBV_WC_SUCCESS, &wc);
	EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);

	memset(l.b.p, 0, 300000);
	post(&l, q.number, 1, IBV_WR_RDMA_READ, 300000, &q);
	conf_wc_ok(l.cq, 1);
	CHECK(!memcmp(l.b.p, q.b.p, 300000));

	word = (uint64_t *)q.b.p;
	*word = 40;
	sge = conf_sge(&l.b, 0, 8);
	wr = conf_rdma(1, IBV_WR_ATOMIC_FETCH_AND_ADD, &sge, 1, word, q.b.mr->rkey);
	wr.wr.atomic.compare_add = 2;
	wr.qp_type.xrc.remote_srqn = q.number;
	OK(conf_post(l.ini, &wr));
	conf_wc_ok(l.cq, 1);
	EQ(*word, 42);
	EQ(*(uint64_t *)l.b.p, 40);
	stop();
}

/* One connection serves several SRQs, each with a CQ of its own. */
static void one_link_many_queues(void)
{
	enum { N = 4 };
	struct queue many[N];

	start_domain(-1);
	for (int i = 0; i < N; i++)
		many[i] = queue();
	CHECK(many[0].number != many[1].number);
	l = linked();
	for (int i = 0; i < 40; i++)
		arrives(&l, &many[i * 7 % N], i, 1000 + i * 1000);
	for (int i = 0; i < N; i++) /* and all under way at once */
		queue_recv(&many[i], i, 0, 200000);
	for (int i = 0; i < N; i++)
		post_send(&l, &many[i], i, 200000);
	for (int i = 0; i < N; i++) {
		conf_wc_ok(l.cq, i);
		conf_wc_ok(many[i].cq, i);
	}
	for (int i = 0; i < N; i++)
		queue_free(&many[i]);
	stop();
}

/* Several connections end in one SRQ: the completion tells which it was. */
static void many_links_one_queue(void)
{
	enum { N = 5 };
	struct link many[N];

	start();
	for (int i = 0; i < N; i++)
		many[i] = linked();
	for (int i = 0; i < 3 * N; i++)
		arrives(&many[i % N], &q, i, 5000);
	for (int i = 0; i < N; i++)
		link_free(&many[i]);
	stop();
}

static void by_the_builders(void)
{
	struct ibv_qp_ex *x;

	start_domain(-1);
	q = queue();
	l = linked_in(xrcd, 7, true);
	MUST(x = ibv_qp_to_qp_ex(l.ini));
	queue_recv(&q, 9, 4096, 1000);
	conf_pattern(l.b.p, 1000, 1);
	ibv_wr_start(x);
	x->wr_id = 1;
	x->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(x);
	ibv_wr_set_xrc_srqn(x, q.number);
	ibv_wr_set_sge(x, l.b.mr->lkey, (uintptr_t)l.b.p, 1000);
	x->wr_id = 2;
	ibv_wr_rdma_write(x, q.b.mr->rkey, (uintptr_t)q.b.p);
	ibv_wr_set_xrc_srqn(x, q.number);
	ibv_wr_set_sge(x, l.b.mr->lkey, (uintptr_t)l.b.p, 1000);
	OK(ibv_wr_complete(x));
	conf_wc_ok(l.cq, 1);
	conf_wc_ok(l.cq, 2);
	conf_wc_ok(q.cq, 9);
	CHECK(conf_pattern_ok(q.b.p, 1000, 1) && conf_pattern_ok(q.b.p + 4096, 1000, 1));
	stop();
}

/* Sleeping on the SRQ's CQ; and on it alone. */
static void completion_events(void)
{
	struct ibv_comp_channel *ch;
	struct ibv_cq *cq;
	void *cq_ctx;

	start_domain(-1);
	MUST(ch = ibv_create_comp_channel(dev.ctx));
	conf_nonblock(ch->fd, true);
	q = queue_of(xrcd, ch);
	l = linked();
	for (int i = 0; i < 10; i++) {
		queue_recv(&q, i, 0, 100);
		OK(ibv_req_notify_cq(q.cq, 0));
		post_send(&l, &q, 1, 100);
		WAIT_FOR(conf_readable(ch->fd));
		OK(ibv_get_cq_event(ch, &cq, &cq_ctx));
		CHECK(cq == q.cq);
		ibv_ack_cq_events(cq, 1);
		conf_wc_ok(q.cq, i);
		conf_wc_ok(l.cq, 1);
	}
	queue_free(&q);
	OK(ibv_destroy_comp_channel(ch));
	stop();
}

/* ---- the queue runs empty --------------------------------------------------------- */

static void receiver_not_ready(void)
{
	struct queue other;
	struct link m;

	start();
	other = queue();
	m = linked();
	post_send(&l, &q, 1, 10);
	post_send(&m, &q, 2, 10);
	post_send(&l, &other, 3, 10);
	queue_recv(&other, 30, 0, 100);
	conf_wc_none(l.cq, CONF_QUIET);
	conf_wc_none(other.cq, 0); /* the order of a QP holds over SRQs */
	queue_recv(&q, 10, 0, 100);
	queue_recv(&q, 10, 0, 100);
	conf_wc_ok(q.cq, 10);
	conf_wc_ok(q.cq, 10);
	conf_wc_ok(other.cq, 30);
	conf_wc_ok(l.cq, 1);
	conf_wc_ok(l.cq, 3);
	conf_wc_ok(m.cq, 2);
	link_free(&m);
	queue_free(&other);
	stop();
}

static void receiver_never_ready(void)
{
	start_domain(-1);
	q = queue();
	l = linked_in(xrcd, 0, false);
	post_send(&l, &q, 1, 10);
	post_send(&l, &q, 2, 10);
	conf_wc_is(l.cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	conf_wc_is(l.cq, 2, IBV_WC_WR_FLUSH_ERR);
	EQ(conf_qp_state(l.ini), IBV_QPS_ERR);
	EQ(conf_qp_state(l.tgt), IBV_QPS_RTS);
	stop();
}

static void limit_of_a_queue(void)
{
	struct ibv_srq_attr attr = { .srq_limit = 2 };

	start();
	for (int i = 0; i < 3; i++)
		queue_recv(&q, i, 0, 100);
	EQ(ibv_modify_srq(q.srq, &attr, IBV_SRQ_LIMIT), 0);
	post_send(&l, &q, 1, 10);
	conf_wc_ok(q.cq, 0);
	CHECK(!conf_readable(dev.ctx->async_fd));
	post_send(&l, &q, 2, 10);
	conf_async(dev.ctx, IBV_EVENT_SRQ_LIMIT_REACHED, q.srq);
	EQ(ibv_query_srq(q.srq, &attr), 0);
	EQ(attr.srq_limit, 0);
	EQ(attr.max_wr, 16);
	stop();
}

/* ---- errors ----------------------------------------------------------------------- */

static void no_such_queue(void)
{
	struct ibv_xrcd *second;
	struct queue far;

	start();
	MUST(second = domain_of(-1, O_CREAT));
	far = queue_of(second, NULL);
	queue_recv(&q, 1, 0, 100);
	queue_recv(&far, 1, 0, 100);
	refused(xrcd, q.number ^ 0x5a5a5a, IBV_WR_SEND, NULL);
	refused(xrcd, far.number, IBV_WR_SEND, NULL); /* of another domain */
	refused(xrcd, far.number, IBV_WR_RDMA_WRITE, &far);
	refused(xrcd, far.number, IBV_WR_RDMA_READ, &far);
	refused(second, q.number, IBV_WR_RDMA_WRITE_WITH_IMM, &q);
	conf_wc_none(q.cq, 0);
	conf_wc_none(far.cq, 0);
	queue_free(&far);
	OK(ibv_close_xrcd(second));
	stop();
}

/* The PD that counts is the named SRQ's: for its receives and for remote access. */
static void protection(void)
{
	struct queue other;

	start();
	other = queue();
	post(&l, q.number, 1, IBV_WR_RDMA_WRITE, 8, &q);
	conf_wc_ok(l.cq, 1);
	post(&l, other.number, 2, IBV_WR_RDMA_WRITE, 8, &other);
	conf_wc_ok(l.cq, 2);
	post(&l, other.number, 3, IBV_WR_RDMA_WRITE, 8, &q);
	conf_wc_is(l.cq, 3, IBV_WC_REM_ACCESS_ERR);
	conf_async(dev.ctx, IBV_EVENT_QP_ACCESS_ERR, l.tgt);
	link_free(&l);

	l = linked();
	post(&l, q.number, 1, IBV_WR_RDMA_READ, 8, &other);
	conf_wc_is(l.cq, 1, IBV_WC_REM_ACCESS_ERR);
	link_free(&l);

	l = linked();
	OK(conf_srq_recv(q.srq, 5, &other.b, 0, 100));
	post_send(&l, &q, 1, 10);
	conf_wc_is(l.cq, 1, IBV_WC_REM_OP_ERR);
	conf_wc_is(q.cq, 5, IBV_WC_LOC_PROT_ERR);
	conf_qp_wait(l.tgt, IBV_QPS_ERR);
	queue_free(&other);
	stop();
}

static void receive_too_small(void)
{
	struct link m;

	start();
	m = linked();
	queue_recv(&q, 5, 0, 99);
	post_send(&l, &q, 1, 100);
	conf_wc_is(l.cq, 1, IBV_WC_REM_INV_REQ_ERR);
	conf_wc_is(q.cq, 5, IBV_WC_LOC_LEN_ERR);
	conf_qp_wait(l.tgt, IBV_QPS_ERR);
	arrives(&m, &q, 6, 1000); /* the SRQ and the other connection are well */
	link_free(&m);
	stop();
}

/* An XRC receive QP never answers an RC QP that is connected to it. */
static void other_service(void)
{
	struct side rc;

	start_domain(-1);
	q = queue();
	queue_recv(&q, 5, 0, 100);
	rc = side(1);
	MUST(l.tgt = target(xrcd));
	EQ(to_init(&rc), 0);
	EQ(qp_to_init(l.tgt), 0);
	EQ(qp_to_rtr(l.tgt, rc.qp->qp_num, 1, &dev.gid), 0);
	EQ(to_rtr(&rc, l.tgt->qp_num, 2, &dev.gid), 0);
	EQ(to_rts(&rc), 0);
	OK(conf_send(rc.qp, 1, &rc.b, 0, 10));
	conf_wc_is(rc.cq, 1, IBV_WC_RETRY_EXC_ERR);
	conf_wc_none(q.cq, 0);
	EQ(conf_qp_state(l.tgt), IBV_QPS_RTR);
	side_free(&rc);
	stop();
}

/* ---- load ------------------------------------------------------------------------- */

enum { SENDERS = 4, MESSAGES = 300, QUEUES = 2, DEPTH = 16 };

struct load {
	struct link l;
	struct queue *q;
	int id;
};

static void *sender(void *arg)
{
	struct load *w = arg;
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_wc wc;

	for (int i = 0; i < MESSAGES; i++) {
		sge = conf_sge(&w->l.b, 0, 64 + (size_t)i % 7 * 1000);
		conf_pattern(w->l.b.p, sge.length, w->id * MESSAGES + i);
		wr = conf_wr(i, IBV_WR_SEND_WITH_IMM, &sge, 1);
		wr.imm_data = htonl(w->id * MESSAGES + i);
		wr.qp_type.xrc.remote_srqn = w->q[(i + w->id) % QUEUES].number;
		OK(conf_post(w->l.ini, &wr));
		do
			EQ(ibv_poll_cq(w->l.cq, 1, &wc) < 0, 0);
		while (wc.wr_id != (uint64_t)i || wc.qp_num != w->l.ini->qp_num);
		EQ(wc.status, IBV_WC_SUCCESS);
	}
	return NULL;
}

/* Many connections to few SRQs, whose receives run out again and again. */
static void load(void)
{
	struct load w[SENDERS];
	struct queue to[QUEUES];
	pthread_t t[SENDERS];
	static bool seen[SENDERS * MESSAGES];
	int got = 0;

	start_domain(-1);
	for (int i = 0; i < QUEUES; i++) {
		to[i] = queue();
		for (int k = 0; k < DEPTH; k++)
			queue_recv(&to[i], k, (size_t)k * 8192, 8192);
	}
	for (int i = 0; i < SENDERS; i++) {
		w[i] = (struct load){ linked(), to, i };
		t[i] = conf_thread(sender, &w[i]);
	}
	for (uint64_t end = conf_now() + conf_ms(60000) * 1000000ull;
	     got < SENDERS * MESSAGES;) {
		CHECK(conf_now() < end);
		for (int i = 0; i < QUEUES; i++) {
			struct ibv_wc wc;
			uint32_t n;

			if (ibv_poll_cq(to[i].cq, 1, &wc) < 1)
				continue;
			EQ(wc.status, IBV_WC_SUCCESS);
			n = ntohl(wc.imm_data);
			CHECK(n < SENDERS * MESSAGES && !seen[n]);
			seen[n] = true;
			EQ(wc.qp_num, w[n / MESSAGES].l.tgt->qp_num);
			CHECK(conf_pattern_ok(to[i].b.p + wc.wr_id * 8192, wc.byte_len,
					      n));
			queue_recv(&to[i], wc.wr_id, wc.wr_id * 8192, 8192);
			got++;
		}
	}
	for (int i = 0; i < SENDERS; i++) {
		conf_join(t[i]);
		link_free(&w[i].l);
	}
	for (int i = 0; i < QUEUES; i++)
		queue_free(&to[i]);
	stop();
}

static const struct conf_case cases[] = {
	CASE(every_operation),
	CASE(one_link_many_queues),
	CASE(many_links_one_queue),
	CASE(by_the_builders),
	CASE(completion_events),
	CASE(receiver_not_ready),
	CASE(receiver_never_ready),
	CASE(limit_of_a_queue),
	CASE(no_such_queue),
	CASE(protection),
	CASE(receive_too_small),
	CASE(other_service),
	LONG_CASE(load, 90),
};

CONF_MAIN(cases)
