/* SPDX-License-Identifier: BSD-2-Clause */
/* ibv_create_qp_ex and the ibv_wr_*() builders. */
#include "side.h"

#include <sched.h>

enum {
	OPS = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
	      IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
	      IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
	      IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
	DEPTH = 16,
};

static struct side x, y;

static void pair(struct side_opt o)
{
	o.send_ops = o.send_ops ? o.send_ops : OPS;
	side_pair_with(&x, &y, o, (struct side_opt){ 0 });
}

/* What the next builder takes. */
static struct ibv_qp_ex *next(uint64_t wr_id)
{
	x.qpx->wr_id = wr_id;
	x.qpx->wr_flags = IBV_SEND_SIGNALED;
	return x.qpx;
}

static void sge(size_t off, uint32_t len)
{
	ibv_wr_set_sge(x.qpx, x.b.mr->lkey, (uintptr_t)x.b.p + off, len);
}

static uint64_t raddr(size_t off)
{
	return (uintptr_t)y.b.p + off;
}

static void put(uint64_t wr_id, size_t off, uint32_t len)
{
	ibv_wr_send(next(wr_id));
	sge(off, len);
}

static void every_operation(void)
{
	uint64_t *word, *old;
	struct ibv_wc wc;
	uint32_t rkey;

	pair((struct side_opt){ 0 });
	rkey = y.b.mr->rkey;
	word = (uint64_t *)(y.b.p + 65536);
	old = (uint64_t *)(x.b.p + 65536);
	*word = 5;
	conf_pattern(x.b.p, 1000, 1);
	for (int i = 0; i < 3; i++)
		OK(conf_recv(y.qp, 100 + i, &y.b, 1000 * i, 1000));
	ibv_wr_start(x.qpx);
	put(1, 0, 1000);
	ibv_wr_send_imm(next(2), htonl(22));
	sge(0, 900);
	ibv_wr_rdma_write(next(3), rkey, raddr(10000));
	sge(0, 1000);
	ibv_wr_rdma_write_imm(next(4), rkey, raddr(20000), htonl(44));
	sge(0, 800);
	ibv_wr_rdma_read(next(5), rkey, raddr(10000));
	sge(30000, 1000);
	ibv_wr_atomic_cmp_swp(next(6), rkey, raddr(65536), 5, 7);
	sge(65536, 8);
	ibv_wr_atomic_fetch_add(next(7), rkey, raddr(65536), 10);
	sge(65544, 8);
	OK(ibv_wr_complete(x.qpx));
	conf_wc_get(y.cq, 100, IBV_WC_SUCCESS, &wc);
	EQ(wc.byte_len, 1000);
	EQ(wc.wc_flags & IBV_WC_WITH_IMM, 0);
	conf_wc_get(y.cq, 101, IBV_WC_SUCCESS, &wc);
	EQ(wc.byte_len, 900);
	EQ(ntohl(wc.imm_data), 22);
	CHECK(wc.wc_flags & IBV_WC_WITH_IMM);
	conf_wc_get(y.cq, 102, IBV_WC_SUCCESS, &wc);
	EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	EQ(ntohl(wc.imm_data), 44);
	EQ(wc.byte_len, 800);
	for (int i = 1; i <= 7; i++) {
		static const int opcode[] = { IBV_WC_SEND, IBV_WC_SEND, IBV_WC_RDMA_WRITE,
					      IBV_WC_RDMA_WRITE, IBV_WC_RDMA_READ,
					      IBV_WC_COMP_SWAP, IBV_WC_FETCH_ADD };

		conf_wc_get(x.cq, i, IBV_WC_SUCCESS, &wc);
		EQ(wc.opcode, opcode[i - 1]);
	}
	CHECK(conf_pattern_ok(y.b.p, 1000, 1));
	CHECK(conf_pattern_ok(y.b.p + 10000, 1000, 1));
	CHECK(conf_pattern_ok(y.b.p + 20000, 800, 1));
	CHECK(conf_pattern_ok(x.b.p + 30000, 1000, 1));
	EQ(old[0], 5);
	EQ(old[1], 7);
	EQ(*word, 17);
	side_pair_free(&x, &y);
}

static void nothing_before_complete(void)
{
	pair((struct side_opt){ 0 });
	for (int i = 0; i < 5; i++)
		OK(conf_recv(y.qp, 100 + i, &y.b, 100 * i, 100));
	ibv_wr_start(x.qpx);
	for (int i = 0; i < 5; i++) {
		conf_pattern(x.b.p + 100 * i, 100, i);
		put(i, 100 * i, 100);
	}
	conf_wc_none(y.cq, CONF_QUIET); /* polling in the region is allowed, too */
	conf_wc_none(x.cq, 1);
	OK(ibv_wr_complete(x.qpx));
	for (int i = 0; i < 5; i++) {
		conf_wc_ok(x.cq, i);
		conf_wc_ok(y.cq, 100 + i);
		CHECK(conf_pattern_ok(y.b.p + 100 * i, 100, i));
	}
	ibv_wr_start(x.qpx);
	OK(ibv_wr_complete(x.qpx)); /* an empty region */
	side_pair_free(&x, &y);
}

static void abort_discards(void)
{
	pair((struct side_opt){ 0 });
	OK(conf_recv(y.qp, 100, &y.b, 0, 100));
	for (int i = 0; i < 3; i++) {
		ibv_wr_start(x.qpx);
		for (int k = 0; k < DEPTH; k++)
			put(k, 0, 100);
		ibv_wr_abort(x.qpx);
	}
	conf_wc_none(y.cq, CONF_QUIET);
	ibv_wr_start(x.qpx);
	put(7, 0, 50);
	OK(ibv_wr_complete(x.qpx));
	conf_wc_ok(x.cq, 7);
	conf_wc_ok(y.cq, 100);
	conf_wc_none(x.cq, 1);
	side_pair_free(&x, &y);
}

/* One request is wrong: none of the region is posted, the QP is as before. */
static void an_error_posts_nothing(void)
{
	struct ibv_sge two[40];

	pair((struct side_opt){ .inline_data = 16 });
	for (int i = 0; i < 40; i++)
		two[i] = conf_sge(&x.b, i, 1);
	OK(conf_recv(y.qp, 100, &y.b, 0, 100));
	ibv_wr_start(x.qpx);
	put(1, 0, 100);
	ibv_wr_send(next(2));
	ibv_wr_set_sge_list(x.qpx, 40, two);
	put(3, 0, 100);
	CHECK(ibv_wr_complete(x.qpx) != 0);
	conf_wc_none(y.cq, CONF_QUIET);
	conf_wc_none(x.cq, 1);
	EQ(conf_qp_state(x.qp), IBV_QPS_RTS);
	ibv_wr_start(x.qpx); /* the error does not stick */
	put(4, 0, 100);
	OK(ibv_wr_complete(x.qpx));
	conf_wc_ok(x.cq, 4);
	conf_wc_ok(y.cq, 100);
	side_pair_free(&x, &y);
}

static void inline_data(void)
{
	char text[] = "0123456789abcdefghij";
	struct ibv_data_buf bufs[3] = { { text, 4 }, { text + 10, 6 }, { text + 2, 3 } };

	pair((struct side_opt){ .inline_data = 64 });
	OK(conf_recv(y.qp, 100, &y.b, 0, 100));
	OK(conf_recv(y.qp, 101, &y.b, 200, 100));
	ibv_wr_start(x.qpx);
	ibv_wr_send(next(1));
	ibv_wr_set_inline_data(x.qpx, text, 20);
	ibv_wr_send(next(2));
	ibv_wr_set_inline_data_list(x.qpx, 3, bufs);
	ibv_wr_rdma_write(next(3), y.b.mr->rkey, raddr(400));
	ibv_wr_set_inline_data(x.qpx, text, 10);
	memset(text, 'x', sizeof(text)); /* the bytes were copied by the setter */
	OK(ibv_wr_complete(x.qpx));
	for (int i = 1; i <= 3; i++)
		conf_wc_ok(x.cq, i);
	conf_wc_ok(y.cq, 100);
	conf_wc_ok(y.cq, 101);
	CHECK(!memcmp(y.b.p, "0123456789abcdefghij", 20));
	CHECK(!memcmp(y.b.p + 200, "0123abcdef234", 13));
	CHECK(!memcmp(y.b.p + 400, "0123456789", 10));
	side_pair_free(&x, &y);
}

static void inline_data_too_long(void)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	static char big[1 << 16];

	pair((struct side_opt){ .inline_data = 32 });
	OK(ibv_query_qp(x.qp, &attr, IBV_QP_CAP, &init));
	CHECK(init.cap.max_inline_data >= 32);
	OK(conf_recv(y.qp, 100, &y.b, 0, 1 << 16));
	ibv_wr_start(x.qpx);
	ibv_wr_send(next(1));
	ibv_wr_set_inline_data(x.qpx, big, init.cap.max_inline_data + 1);
	CHECK(ibv_wr_complete(x.qpx) != 0);
	conf_wc_none(y.cq, CONF_QUIET);
	ibv_wr_start(x.qpx);
	ibv_wr_send(next(2));
	ibv_wr_set_inline_data(x.qpx, big, init.cap.max_inline_data);
	OK(ibv_wr_complete(x.qpx));
	conf_wc_ok(x.cq, 2);
	conf_wc_ok(y.cq, 100);
	side_pair_free(&x, &y);
}

static void lists_and_empty_messages(void)
{
	struct ibv_sge list[3];
	struct ibv_wc wc;

	pair((struct side_opt){ .sge = 3 });
	conf_pattern(x.b.p, 300, 3);
	for (int i = 0; i < 3; i++)
		list[i] = conf_sge(&x.b, 100 * i, 100);
	OK(conf_recv(y.qp, 100, &y.b, 0, 300));
	OK(conf_recv(y.qp, 101, &y.b, 300, 300));
	ibv_wr_start(x.qpx);
	ibv_wr_send(next(1));
	ibv_wr_set_sge_list(x.qpx, 3, list);
	memset(list, 0, sizeof(list)); /* the list was copied */
	ibv_wr_send(next(2));
	ibv_wr_set_sge_list(x.qpx, 0, NULL);
	OK(ibv_wr_complete(x.qpx));
	conf_wc_ok(x.cq, 1);
	conf_wc_ok(x.cq, 2);
	conf_wc_get(y.cq, 100, IBV_WC_SUCCESS, &wc);
	EQ(wc.byte_len, 300);
	conf_wc_get(y.cq, 101, IBV_WC_SUCCESS, &wc);
	EQ(wc.byte_len, 0);
	CHECK(conf_pattern_ok(y.b.p, 300, 3));
	side_pair_free(&x, &y);
}

/* wr_id and wr_flags are those at the call of the builder. */
static void flags_are_taken_by_each(void)
{
	pair((struct side_opt){ 0 });
	for (int i = 0; i < 3; i++)
		OK(conf_recv(y.qp, 100 + i, &y.b, 0, 100));
	ibv_wr_start(x.qpx);
	next(1)->wr_flags = 0;
	ibv_wr_send(x.qpx);
	sge(0, 10);
	put(2, 0, 10);
	next(3)->wr_flags = 0;
	ibv_wr_send(x.qpx);
	sge(0, 10);
	next(4);
	OK(ibv_wr_complete(x.qpx));
	for (int i = 0; i < 3; i++)
		conf_wc_ok(y.cq, 100 + i);
	conf_wc_ok(x.cq, 2);
	conf_wc_none(x.cq, CONF_QUIET);
	side_pair_free(&x, &y);
}

static void sig_all(void)
{
	pair((struct side_opt){ .sig_all = true });
	OK(conf_recv(y.qp, 100, &y.b, 0, 100));
	ibv_wr_start(x.qpx);
	next(1)->wr_flags = 0;
	ibv_wr_send(x.qpx);
	sge(0, 10);
	OK(ibv_wr_complete(x.qpx));
	conf_wc_ok(x.cq, 1);
	conf_wc_ok(y.cq, 100);
	side_pair_free(&x, &y);
}

static void more_than_the_queue_holds(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	unsigned depth;

	pair((struct side_opt){ 0 });
	OK(ibv_query_qp(x.qp, &attr, IBV_QP_CAP, &init));
	depth = init.cap.max_send_wr;
	ibv_wr_start(x.qpx);
	for (unsigned i = 0; i <= depth + 64; i++) {
		ibv_wr_rdma_write(next(i), y.b.mr->rkey, raddr(0));
		sge(0, 8);
	}
	CHECK(ibv_wr_complete(x.qpx) != 0);
	conf_wc_none(x.cq, CONF_QUIET);
	for (int round = 0; round < 5; round++) { /* and to the brim it is filled */
		ibv_wr_start(x.qpx);
		for (unsigned i = 0; i < DEPTH; i++) {
			ibv_wr_rdma_write(next(i), y.b.mr->rkey, raddr(0));
			sge(0, 8);
		}
		OK(ibv_wr_complete(x.qpx));
		for (unsigned i = 0; i < DEPTH; i++)
			conf_wc_ok(x.cq, i);
	}
	side_pair_free(&x, &y);
}

static void mixed_with_post_send(void)
{
	struct ibv_send_wr wr;
	struct ibv_sge s;

	pair((struct side_opt){ 0 });
	for (int i = 0; i < 12; i++) {
		conf_pattern(x.b.p, 200, i);
		OK(conf_recv(y.qp, 100 + i, &y.b, 0, 200));
		if (i & 1) {
			s = conf_sge(&x.b, 0, 200);
			wr = conf_wr(i, IBV_WR_SEND, &s, 1);
			OK(conf_post(x.qp, &wr));
		} else {
			ibv_wr_start(x.qpx);
			put(i, 0, 200);
			OK(ibv_wr_complete(x.qpx));
		}
		conf_wc_ok(x.cq, i);
		conf_wc_ok(y.cq, 100 + i);
		CHECK(conf_pattern_ok(y.b.p, 200, i));
	}
	side_pair_free(&x, &y);
}

static void in_error_it_flushes(void)
{
	pair((struct side_opt){ 0 });
	EQ(to_state(&x, IBV_QPS_ERR), 0);
	ibv_wr_start(x.qpx);
	put(1, 0, 10);
	next(2)->wr_flags = 0;
	ibv_wr_send(x.qpx);
	sge(0, 10);
	OK(ibv_wr_complete(x.qpx));
	conf_wc_is(x.cq, 1, IBV_WC_WR_FLUSH_ERR);
	conf_wc_is(x.cq, 2, IBV_WC_WR_FLUSH_ERR);
	side_pair_free(&x, &y);
}

static void wrong_states(void)
{
	if (!conf_user_device())
		SKIP("the kernel's rxe does not look at the state here");
	open_device();
	x = side_with(1, (struct side_opt){ .send_ops = OPS });
	for (int i = 0; i < 3; i++) {
		ibv_wr_start(x.qpx);
		put(1, 0, 10);
		EQ(ibv_wr_complete(x.qpx), EINVAL);
		if (i == 0)
			EQ(to_init(&x), 0);
		else if (i == 1)
			EQ(to_rtr(&x, x.qp->qp_num, x.psn, &dev.gid), 0);
	}
	EQ(to_rts(&x), 0);
	OK(conf_recv(x.qp, 100, &x.b, 100, 10));
	ibv_wr_start(x.qpx);
	put(1, 0, 10);
	OK(ibv_wr_complete(x.qpx));
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc;

		conf_wc(x.cq, &wc);
		EQ(wc.status, IBV_WC_SUCCESS);
	}
	side_free(&x);
	close_device();
}

/* What a program can do wrong; other devices crash or corrupt. */
static void misuse(void)
{
	struct ibv_send_wr wr;
	struct ibv_sge s;

	if (!conf_user_device())
		SKIP("undefined elsewhere");
	pair((struct side_opt){ .send_ops = IBV_QP_EX_WITH_SEND });
	s = conf_sge(&x.b, 0, 10);
	wr = conf_wr(9, IBV_WR_SEND, &s, 1);
	EQ(ibv_wr_complete(x.qpx), EINVAL); /* no start */
	ibv_wr_abort(x.qpx);
	put(1, 0, 10);
	EQ(ibv_wr_complete(x.qpx), EINVAL);

	ibv_wr_start(x.qpx); /* an operation that was not asked for */
	ibv_wr_rdma_write(next(1), y.b.mr->rkey, raddr(0));
	sge(0, 10);
	EQ(ibv_wr_complete(x.qpx), EINVAL);
	ibv_wr_start(x.qpx); /* a setter without a request */
	sge(0, 10);
	EQ(ibv_wr_complete(x.qpx), EINVAL);
	ibv_wr_start(x.qpx); /* data twice */
	put(1, 0, 10);
	sge(0, 10);
	EQ(ibv_wr_complete(x.qpx), EINVAL);
	ibv_wr_start(x.qpx); /* setters of other QP types */
	put(1, 0, 10);
	ibv_wr_set_xrc_srqn(x.qpx, 1);
	EQ(ibv_wr_complete(x.qpx), EINVAL);
	ibv_wr_start(x.qpx);
	put(1, 0, 10);
	ibv_wr_set_ud_addr(x.qpx, NULL, 1, 1);
	EQ(ibv_wr_complete(x.qpx), EINVAL);
	ibv_wr_start(x.qpx); /* start twice */
	ibv_wr_start(x.qpx);
	put(1, 0, 10);
	EQ(ibv_wr_complete(x.qpx), EINVAL);
	ibv_wr_start(x.qpx); /* the other interface inside the region */
	EQ(conf_post(x.qp, &wr), EINVAL);
	ibv_wr_abort(x.qpx);
	ibv_wr_start(x.qpx); /* the QP is reset inside the region */
	put(1, 0, 10);
	EQ(to_state(&x, IBV_QPS_RESET), 0);
	EQ(ibv_wr_complete(x.qpx), EINVAL);
	conf_wc_none(y.cq, CONF_QUIET);
	side_pair_free(&x, &y);
}

static void data_of_the_wrong_size(void)
{
	pair((struct side_opt){ .sge = 2, .inline_data = 64 });
	ibv_wr_start(x.qpx);
	ibv_wr_rdma_read(next(1), y.b.mr->rkey, raddr(0));
	ibv_wr_set_inline_data(x.qpx, x.b.p, 8);
	if (conf_user_device())
		EQ(ibv_wr_complete(x.qpx), EINVAL);
	else
		ibv_wr_abort(x.qpx);
	if (conf_user_device()) {
		ibv_wr_start(x.qpx);
		ibv_wr_atomic_fetch_add(next(1), y.b.mr->rkey, raddr(0), 1);
		sge(0, 4);
		OK(ibv_wr_complete(x.qpx));
		conf_wc_is(x.cq, 1, IBV_WC_LOC_LEN_ERR);
	}
	side_pair_free(&x, &y);
}

static struct ibv_qp_init_attr_ex attr_ex(struct side *s)
{
	return (struct ibv_qp_init_attr_ex){
		.qp_type = IBV_QPT_RC,
		.send_cq = s->cq,
		.recv_cq = s->cq,
		.cap = CONF_CAP(4, 4, 1),
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = dev.pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};
}

static void refuse(struct ibv_qp_init_attr_ex *a, int err)
{
	struct ibv_qp *qp;

	errno = 0;
	qp = ibv_create_qp_ex(dev.ctx, a);
	CHECK(!qp);
	if (conf_user_device())
		EQ(errno, err);
	else
		CHECK(errno);
}

static void creation_refused(void)
{
	struct ibv_qp_init_attr_ex a;
	struct ibv_qp *qp;

	pair((struct side_opt){ 0 });
	a = attr_ex(&x);
	a.send_ops_flags |= IBV_QP_EX_WITH_TSO; /* not on a connected QP */
	refuse(&a, EOPNOTSUPP);
	a.send_ops_flags = 1ull << 60;
	refuse(&a, EOPNOTSUPP);
	a = attr_ex(&x);
	a.comp_mask |= IBV_QP_INIT_ATTR_IND_TABLE;
	refuse(&a, EOPNOTSUPP);
	a = attr_ex(&x);
	a.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
	a.create_flags = IBV_QP_CREATE_SCATTER_FCS;
	refuse(&a, EOPNOTSUPP);
	a = attr_ex(&x);
	a.qp_type = IBV_QPT_DRIVER;
	refuse(&a, EOPNOTSUPP);
	a.qp_type = (enum ibv_qp_type)77;
	refuse(&a, EOPNOTSUPP);
	a = attr_ex(&x);
	a.cap.max_send_wr = 1 << 30;
	refuse(&a, EINVAL);
	if (conf_user_device()) {
		a = attr_ex(&x);
		a.comp_mask = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		refuse(&a, EINVAL);
	}
	a = attr_ex(&x);
	MUST(qp = ibv_create_qp_ex(dev.ctx, &a));
	CHECK(a.cap.max_send_wr >= 4);
	CHECK(a.cap.max_recv_wr >= 4);
	OK(ibv_destroy_qp(qp));
	side_pair_free(&x, &y);
}

static void plain_qps_have_no_builders(void)
{
	struct ibv_qp_init_attr_ex a;
	struct ibv_qp *qp;

	pair((struct side_opt){ 0 });
	CHECK(ibv_qp_to_qp_ex(x.qp) == x.qpx);
	CHECK(&x.qpx->qp_base == x.qp);
	CHECK(!ibv_qp_to_qp_ex(y.qp));
	a = attr_ex(&x);
	a.comp_mask = IBV_QP_INIT_ATTR_PD;
	MUST(qp = ibv_create_qp_ex(dev.ctx, &a));
	CHECK(!ibv_qp_to_qp_ex(qp));
	OK(ibv_destroy_qp(qp));
	side_pair_free(&x, &y);
}

/* ---- atomic write -------------------------------------------------------------- */

static const struct side_opt with_atomic_write = {
	.send_ops = IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_RDMA_WRITE,
};

static void atomic_write(void)
{
	struct ibv_send_wr wr;
	struct ibv_sge s;
	struct ibv_wc wc;
	uint8_t word[8] = "ABCDEFGH";

	pair(with_atomic_write);
	ibv_wr_start(x.qpx);
	ibv_wr_atomic_write(next(1), y.b.mr->rkey, raddr(64), word);
	memset(word, 0, 8); /* copied */
	OK(ibv_wr_complete(x.qpx));
	conf_wc_get(x.cq, 1, IBV_WC_SUCCESS, &wc);
	EQ(wc.opcode, IBV_WC_ATOMIC_WRITE);
	CHECK(!memcmp(y.b.p + 64, "ABCDEFGH", 8));
	CHECK(conf_is_fill(y.b.p, 0, 64) && conf_is_fill(y.b.p + 72, 0, 64));
	/* By the old call the bytes come out of memory. */
	memcpy(x.b.p, "abcdefgh", 8);
	s = conf_sge(&x.b, 0, 8);
	wr = conf_rdma(2, IBV_WR_ATOMIC_WRITE, &s, 1, y.b.p + 72, y.b.mr->rkey);
	OK(conf_post(x.qp, &wr));
	conf_wc_get(x.cq, 2, IBV_WC_SUCCESS, &wc);
	EQ(wc.opcode, IBV_WC_ATOMIC_WRITE);
	CHECK(!memcmp(y.b.p + 64, "ABCDEFGHabcdefgh", 16));
	s.length = 4;
	CHECK(conf_post(x.qp, &wr) != 0);
	side_pair_free(&x, &y);
}

static void atomic_write_in_pieces(void)
{
	struct ibv_sge s[3];
	struct ibv_send_wr wr;
	struct side_opt o = with_atomic_write;

	if (!conf_user_device())
		SKIP("one SGE is what others take");
	o.sge = 3;
	pair(o);
	memcpy(x.b.p, "abcdefghijkl", 12);
	s[0] = conf_sge(&x.b, 8, 3);
	s[1] = conf_sge(&x.b, 0, 0);
	s[2] = conf_sge(&x.b, 0, 5);
	wr = conf_rdma(1, IBV_WR_ATOMIC_WRITE, s, 3, y.b.p, y.b.mr->rkey);
	OK(conf_post(x.qp, &wr));
	conf_wc_ok(x.cq, 1);
	CHECK(!memcmp(y.b.p, "ijkabcde", 8));
	s[2].lkey ^= 0x1100;
	OK(conf_post(x.qp, &wr));
	conf_wc_is(x.cq, 1, IBV_WC_LOC_PROT_ERR);
	side_pair_free(&x, &y);
}

static void atomic_write_unaligned(void)
{
	pair(with_atomic_write);
	ibv_wr_start(x.qpx);
	ibv_wr_atomic_write(next(1), y.b.mr->rkey, raddr(4), "ABCDEFGH");
	OK(ibv_wr_complete(x.qpx));
	conf_wc_is(x.cq, 1, IBV_WC_REM_INV_REQ_ERR);
	CONF_MSG_ZERO(y.b.p, 32);
	side_pair_free(&x, &y);
}

/* The right to write is what it needs. */
static void atomic_write_rights(void)
{
	struct ibv_mr *no, *yes;

	pair(with_atomic_write);
	MUST(yes = ibv_reg_mr(dev.pd, y.b.p, 64,
			      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
	MUST(no = ibv_reg_mr(dev.pd, y.b.p, 64,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC |
				     IBV_ACCESS_REMOTE_READ));
	ibv_wr_start(x.qpx);
	ibv_wr_atomic_write(next(1), yes->rkey, raddr(0), "ABCDEFGH");
	ibv_wr_atomic_write(next(2), no->rkey, raddr(8), "ABCDEFGH");
	OK(ibv_wr_complete(x.qpx));
	conf_wc_ok(x.cq, 1);
	conf_wc_is(x.cq, 2, IBV_WC_REM_ACCESS_ERR);
	CHECK(!memcmp(y.b.p, "ABCDEFGH\0\0\0\0\0\0\0", 16));
	OK(ibv_dereg_mr(yes));
	OK(ibv_dereg_mr(no));
	side_pair_free(&x, &y);
}

/* What it is made for: the word says that all before it is there. */
static void atomic_write_is_a_flag(void)
{
	enum { LEN = 200000 };
	uint64_t *flag;

	pair(with_atomic_write);
	flag = (uint64_t *)(y.b.p + LEN);
	for (uint64_t i = 1; i <= 50; i++) {
		uint64_t end = conf_now() + conf_ms(CONF_WAIT) * 1000000ull;

		memset(x.b.p, (int)i, LEN);
		ibv_wr_start(x.qpx);
		ibv_wr_rdma_write(next(1), y.b.mr->rkey, raddr(0));
		sge(0, LEN);
		ibv_wr_atomic_write(next(2), y.b.mr->rkey, raddr(LEN), &i);
		OK(ibv_wr_complete(x.qpx));
		while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) != i)
			CHECK(conf_now() < end);
		CHECK(conf_is_fill(y.b.p, (int)i, LEN));
		conf_wc_ok(x.cq, 1);
		conf_wc_ok(x.cq, 2);
	}
	side_pair_free(&x, &y);
}

/* ---- threads ------------------------------------------------------------------ */

enum { THREADS = 4, EACH = 300 };
static atomic_uint credits;

static void *poster(void *arg)
{
	uint64_t me = (uintptr_t)arg;

	for (uint64_t i = 0; i < EACH; i += 2) {
		unsigned n;

		do {
			sched_yield();
			n = atomic_load(&credits);
		} while (n < 2 || !atomic_compare_exchange_weak(&credits, &n, n - 2));
		ibv_wr_start(x.qpx);
		for (uint64_t k = i; k < i + 2; k++) {
			ibv_wr_rdma_write_imm(next(me << 32 | k), y.b.mr->rkey, raddr(0),
					      htonl((uint32_t)(me << 16 | k)));
			sge(0, 64);
		}
		if (ibv_wr_complete(x.qpx))
			abort();
	}
	return NULL;
}

static uint32_t seen[THREADS], last;

/* The n-th message: pairs stay together, in the order of their thread. */
static void arrived(unsigned n, uint32_t imm)
{
	EQ(imm & 0xffff, seen[imm >> 16]);
	seen[imm >> 16]++;
	if (n & 1)
		EQ(imm, last + 1);
	last = imm;
	OK(conf_recv(y.qp, 0, &y.b, 0, 0));
}

static void regions_of_threads(void)
{
	uint64_t end = 0; /* while nothing moves */
	unsigned sent = 0, n = 0, seen_at = UINT32_MAX;
	pthread_t t[THREADS];
	struct ibv_wc wc;

	pair((struct side_opt){ 0 });
	for (int i = 0; i < 16; i++)
		OK(conf_recv(y.qp, 0, &y.b, 0, 0));
	atomic_store(&credits, DEPTH);
	for (uintptr_t i = 0; i < THREADS; i++)
		t[i] = conf_thread(poster, (void *)i);
	while (n < THREADS * EACH || sent < THREADS * EACH) {
		if (n + sent != seen_at)
			end = conf_now() + conf_ms(CONF_WAIT) * 1000000ull;
		seen_at = n + sent;
		CHECK(conf_now() < end);
		if (ibv_poll_cq(y.cq, 1, &wc) == 1) {
			EQ(wc.status, IBV_WC_SUCCESS);
			arrived(n++, ntohl(wc.imm_data));
		}
		if (ibv_poll_cq(x.cq, 1, &wc) == 1) {
			EQ(wc.status, IBV_WC_SUCCESS);
			sent++;
			atomic_fetch_add(&credits, 1);
		}
	}
	for (int i = 0; i < THREADS; i++)
		conf_join(t[i]);
	side_pair_free(&x, &y);
}

static const struct conf_case cases[] = {
	CASE(every_operation),
	CASE(nothing_before_complete),
	CASE(abort_discards),
	CASE(an_error_posts_nothing),
	CASE(inline_data),
	CASE(inline_data_too_long),
	CASE(lists_and_empty_messages),
	CASE(flags_are_taken_by_each),
	CASE(sig_all),
	CASE(more_than_the_queue_holds),
	CASE(mixed_with_post_send),
	CASE(in_error_it_flushes),
	CASE(wrong_states),
	CASE(misuse),
	CASE(data_of_the_wrong_size),
	CASE(creation_refused),
	CASE(plain_qps_have_no_builders),
	CASE(atomic_write),
	CASE(atomic_write_in_pieces),
	CASE(atomic_write_unaligned),
	CASE(atomic_write_rights),
	CASE(atomic_write_is_a_flag),
	CASE(regions_of_threads),
};

CONF_MAIN(cases)
