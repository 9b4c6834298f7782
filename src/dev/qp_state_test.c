/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/t.h"

#include "dev/fake_transport.h"

enum { S = IBV_QPS_ERR + 1 };
#define ALL_BITS 21 /* attributes of the verbs that have names, IBV_QP_STATE first */

/* Row: from; column: to. x: legal. In the order of enum ibv_qp_state. */
static const char *const legal[S] = {
	/*          R I R R S S E */
	/* RESET */ "xx.....",
	/* INIT  */ "xxx...x",
	/* RTR   */ "x..x..x",
	/* RTS   */ "x..xx.x",
	/* SQD   */ "x..xx.x",
	/* SQE   */ ".......",
	/* ERR   */ "x.....x",
};

static int required(int from, int to)
{
	if (from == IBV_QPS_RESET && to == IBV_QPS_INIT)
		return INIT_MASK;
	if (from == IBV_QPS_INIT && to == IBV_QPS_RTR)
		return RTR_MASK;
	if (from == IBV_QPS_RTR && to == IBV_QPS_RTS)
		return RTS_MASK;
	return IBV_QP_STATE;
}

/* A line per legal transition that takes more than it must have. */
static int optional(int from, int to)
{
	int rts = IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS |
		  IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE;

	if (from == IBV_QPS_INIT && to == IBV_QPS_INIT)
		return IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	if (from == IBV_QPS_INIT && to == IBV_QPS_RTR)
		return IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX;
	if (to == IBV_QPS_RTS)
		return rts;
	if (from == IBV_QPS_RTS && to == IBV_QPS_SQD)
		return IBV_QP_EN_SQD_ASYNC_NOTIFY;
	if (from == IBV_QPS_SQD && to == IBV_QPS_SQD)
		return (rts & ~IBV_QP_CUR_STATE) | IBV_QP_PORT | IBV_QP_AV |
		       IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		       IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC |
		       IBV_QP_PKEY_INDEX;
	return 0;
}

static void every_pair(void)
{
	for (int from = 0; from < S; from++)
		for (int to = 0; to < S; to++) {
			int want = legal[from][to] == 'x' ? 0 : -EINVAL;

			CHECK_EQ(qp_state_check(from, to, required(from, to)), want);
		}
	CHECK_EQ(qp_state_check(IBV_QPS_RESET, IBV_QPS_UNKNOWN, IBV_QP_STATE), -EINVAL);
	CHECK_EQ(qp_state_check(IBV_QPS_RESET, (enum ibv_qp_state) - 1, 0), -EINVAL);
}

static void every_attribute_of_every_transition(void)
{
	for (int from = 0; from < S; from++)
		for (int to = 0; to < S; to++) {
			int req = required(from, to), opt = optional(from, to);

			if (legal[from][to] != 'x')
				continue;
			for (int b = 1; b < ALL_BITS; b++) {
				int bit = 1 << b;
				int want = (req & bit) || (opt & bit) ? 0 : -EINVAL;

				CHECK_EQ(qp_state_check(from, to, req | bit), want);
				if (req & bit)
					CHECK_EQ(qp_state_check(from, to, req & ~bit),
						 -EINVAL);
			}
		}
}

static void walk_and_query(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	CHECK_EQ(r.qp->state, IBV_QPS_RESET);
	CHECK_EQ(rig_to(&r, IBV_QPS_RTS, RTS_MASK), EINVAL);
	CHECK_EQ(rig_to(&r, IBV_QPS_ERR, IBV_QP_STATE), EINVAL);
	rig_rts(&r);
	CHECK_EQ(fake.listen, 1);
	CHECK_EQ(fake.attach, 1);
	CHECK_EQ(fake.kick, 1);
	CHECK_EQ(ibv_query_qp(r.qp, &a, 0, &init), 0);
	CHECK_EQ(a.qp_state, IBV_QPS_RTS);
	CHECK_EQ(a.dest_qp_num, 0x1234);
	CHECK_EQ(a.timeout, 14);
	CHECK_EQ(a.cap.max_send_wr, 4);
	CHECK_EQ(a.cap.max_send_sge, 2);
	CHECK(a.cap.max_inline_data >= 64);
	CHECK(init.send_cq == r.scq && init.recv_cq == r.rcq);
	CHECK_EQ(rig_to(&r, IBV_QPS_RTR, RTR_MASK), EINVAL);
	CHECK_EQ(r.qp->state, IBV_QPS_RTS);
	CHECK_EQ(rig_to(&r, IBV_QPS_ERR, IBV_QP_STATE), 0);
	CHECK_EQ(fake.stop, 1);
	CHECK_EQ(r.qp->state, IBV_QPS_ERR);
	CHECK_EQ(rig_to(&r, IBV_QPS_RESET, IBV_QP_STATE), 0);
	CHECK_EQ(fake.detach, 1);
	ibv_query_qp(r.qp, &a, 0, &init);
	CHECK_EQ(a.dest_qp_num, 0);
	rig_rts(&r);
	CHECK_EQ(fake.attach, 2);
	rig_down(&r);
	CHECK_EQ(fake.detach, 2);
}

static void refused_attach_stays_in_init(void)
{
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	CHECK_EQ(rig_to(&r, IBV_QPS_INIT, INIT_MASK), 0);
	fake.attach_ret = -EMFILE;
	CHECK_EQ(rig_to(&r, IBV_QPS_RTR, RTR_MASK), EMFILE);
	CHECK_EQ(r.qp->state, IBV_QPS_INIT);
	CHECK(to_qp(r.qp)->tr == NULL);
	fake.attach_ret = 0;
	CHECK_EQ(rig_to(&r, IBV_QPS_RTR, RTR_MASK), 0);
	rig_down(&r);
}

static void made_by_cm_does_not_listen(void)
{
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	to_qp(r.qp)->made_by_cm = true;
	CHECK_EQ(rig_to(&r, IBV_QPS_INIT, INIT_MASK), 0);
	CHECK_EQ(fake.listen, 0);
	rig_down(&r);
}

/* Each wrong value alone is refused and leaves the state as it was. */
static void values(void)
{
	struct rig r;
	struct ibv_qp_attr a;

#define REFUSED(to, mask, field, value) \
	do { \
		enum ibv_qp_state was = r.qp->state; \
		a = rig_attr(to); \
		a.field = value; \
		CHECK_EQ(ibv_modify_qp(r.qp, &a, mask), EINVAL); \
		CHECK_EQ(r.qp->state, was); \
	} while (0)
	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	REFUSED(IBV_QPS_INIT, INIT_MASK, port_num, 0);
	REFUSED(IBV_QPS_INIT, INIT_MASK, port_num, 2);
	REFUSED(IBV_QPS_INIT, INIT_MASK, pkey_index, 1);
	REFUSED(IBV_QPS_INIT, INIT_MASK, qp_access_flags, 0x10000);
	CHECK_EQ(rig_to(&r, IBV_QPS_INIT, INIT_MASK), 0);
	REFUSED(IBV_QPS_RTR, RTR_MASK, ah_attr.is_global, 0);
	REFUSED(IBV_QPS_RTR, RTR_MASK, ah_attr.port_num, 3);
	REFUSED(IBV_QPS_RTR, RTR_MASK, ah_attr.grh.sgid_index, 255);
	REFUSED(IBV_QPS_RTR, RTR_MASK, path_mtu, 0);
	REFUSED(IBV_QPS_RTR, RTR_MASK, path_mtu, gid_active_mtu() + 1);
	REFUSED(IBV_QPS_RTR, RTR_MASK, dest_qp_num, 0x1000000);
	REFUSED(IBV_QPS_RTR, RTR_MASK, max_dest_rd_atomic, DEV_MAX_RD_ATOM + 1);
	REFUSED(IBV_QPS_RTR, RTR_MASK, min_rnr_timer, 32);
	CHECK_EQ(rig_to(&r, IBV_QPS_RTR, RTR_MASK), 0);
	REFUSED(IBV_QPS_RTS, RTS_MASK, timeout, 32);
	REFUSED(IBV_QPS_RTS, RTS_MASK, retry_cnt, 8);
	REFUSED(IBV_QPS_RTS, RTS_MASK, rnr_retry, 8);
	REFUSED(IBV_QPS_RTS, RTS_MASK, max_rd_atomic, DEV_MAX_RD_ATOM + 1);
	REFUSED(IBV_QPS_RTS, RTS_MASK | IBV_QP_CUR_STATE, cur_qp_state, IBV_QPS_INIT);
	a = rig_attr(IBV_QPS_RTS);
	CHECK_EQ(ibv_modify_qp(r.qp, &a, RTS_MASK | IBV_QP_ALT_PATH), EOPNOTSUPP);
	a.cur_qp_state = IBV_QPS_RTR;
	CHECK_EQ(ibv_modify_qp(r.qp, &a, RTS_MASK | IBV_QP_CUR_STATE), 0);
	rig_down(&r);
#undef REFUSED
}

static struct ibv_qp *make(struct rig *r, struct ibv_qp_init_attr a)
{
	a.send_cq = a.send_cq ? a.send_cq : r->scq;
	a.recv_cq = a.recv_cq ? a.recv_cq : r->rcq;
	errno = 0;
	return ibv_create_qp(r->pd, &a);
}

static void creation(void)
{
	struct ibv_qp_init_attr no_cq = { .qp_type = IBV_QPT_RC };
	struct rig r;

#define REFUSED(err, ...) \
	do { \
		CHECK(!make(&r, (struct ibv_qp_init_attr){ __VA_ARGS__ })); \
		CHECK_EQ(errno, err); \
	} while (0)
	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	REFUSED(EOPNOTSUPP, .qp_type = IBV_QPT_UD);
	REFUSED(EOPNOTSUPP, .qp_type = IBV_QPT_UC);
	REFUSED(EOPNOTSUPP, .qp_type = IBV_QPT_XRC_SEND);
	REFUSED(EINVAL, .qp_type = (enum ibv_qp_type)77);
	REFUSED(EINVAL, .qp_type = IBV_QPT_RC, .cap.max_send_wr = DEV_MAX_QP_WR + 1);
	REFUSED(EINVAL, .qp_type = IBV_QPT_RC, .cap.max_recv_wr = DEV_MAX_QP_WR + 1);
	REFUSED(EINVAL, .qp_type = IBV_QPT_RC, .cap.max_send_sge = DEV_MAX_SGE + 1);
	REFUSED(EINVAL, .qp_type = IBV_QPT_RC, .cap.max_recv_sge = DEV_MAX_SGE + 1);
	REFUSED(EINVAL, .qp_type = IBV_QPT_RC, .cap.max_inline_data = DEV_MAX_INLINE + 1);
	CHECK(!ibv_create_qp(r.pd, &no_cq) && errno == EINVAL);
	CHECK_EQ(ibv_destroy_cq(r.scq), EBUSY);
	CHECK_EQ(ibv_destroy_comp_channel(r.ch), EBUSY);
	CHECK_EQ(ibv_dealloc_pd(r.pd), EBUSY);
	rig_down(&r);
#undef REFUSED
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(every_pair);
	T_RUN(every_attribute_of_every_transition);
	T_RUN(walk_and_query);
	T_RUN(refused_attach_stays_in_init);
	T_RUN(made_by_cm_does_not_listen);
	T_RUN(values);
	T_RUN(creation);
	return t_done();
}
