/* SPDX-License-Identifier: BSD-2-Clause */
/* UD QPs in the device: what is posted with an address, who holds the address how long,
 * the Q_Key. */
#include "tests/t.h"

#include "dev/fake_datagrams.h"

#include <linux/capability.h>
#include <sys/syscall.h>

static struct ibv_wc poll_one(struct ibv_cq *cq)
{
	struct ibv_wc wc = { .wr_id = UINT64_MAX };

	CHECK_EQ(ibv_poll_cq(cq, 1, &wc), 1);
	return wc;
}

static struct wqe *posted(struct rig *r, uint32_t idx)
{
	return sq_at(&to_qp(r->qp)->sq, idx);
}

/* ---- posting -------------------------------------------------------------------- */

static void what_a_datagram_has(void)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_context *other;
	struct ibv_device **list;
	struct ibv_ah *ah, *foreign;
	struct ibv_pd *pd;
	struct rig r;

#define POST(want, ...) \
	do { \
		wr = (struct ibv_send_wr){ .opcode = IBV_WR_SEND, \
					   .wr.ud = { ah, 0xff123456, 0x11 } }; \
		(void)0, ##__VA_ARGS__; \
		bad = NULL; \
		CHECK_EQ(ibv_post_send(r.qp, &wr, &bad), want); \
		CHECK(bad == (want ? &wr : NULL)); \
	} while (0)
	REQUIRE(ud_up(&r, (struct rig_opt){ .max_wr = 16 }));
	list = ibv_get_device_list(NULL);
	other = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(other);
	foreign = ud_ah(pd);
	ah = ud_ah(r.pd);
	REQUIRE(ah && foreign);
	for (int op = 0; op < 64; op++)
		if (op != IBV_WR_SEND && op != IBV_WR_SEND_WITH_IMM)
			POST(EINVAL, wr.opcode = (enum ibv_wr_opcode)op);
	POST(EINVAL, wr.wr.ud.ah = NULL);
	POST(EINVAL, wr.wr.ud.ah = foreign);
	POST(EINVAL, wr.num_sge = 3);
	CHECK_EQ(ud_holders(ah), 1);
	CHECK_EQ(ud_holders(foreign), 1);
	POST(0);
	POST(0, wr.opcode = IBV_WR_SEND_WITH_IMM, wr.imm_data = 5);
	CHECK_EQ(ud_holders(ah), 3);
	CHECK(posted(&r, 0)->av == to_ah(ah)->av);
	CHECK_EQ(posted(&r, 0)->remote_qpn, 0x123456);
	CHECK_EQ(posted(&r, 0)->remote_qkey, 0x11);
	CHECK_EQ(posted(&r, 1)->imm_or_rkey, 5);
	CHECK_EQ(ibv_destroy_ah(foreign), 0);
	CHECK_EQ(ibv_dealloc_pd(pd), 0);
	CHECK_EQ(ibv_close_device(other), 0);
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	rig_down(&r);
#undef POST
}

/* Bit 31 asks for the Q_Key that the QP has when the request is posted. */
static void the_qkey_of_the_qp(void)
{
	struct ibv_qp_attr a = { .qkey = 0x22 };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad;
	struct ibv_ah *ah;
	struct rig r;

	REQUIRE(ud_up(&r, (struct rig_opt){ 0 }));
	ah = ud_ah(r.pd);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qkey = 0x80000001;
	CHECK_EQ(ibv_post_send(r.qp, &wr, &bad), 0);
	CHECK_EQ(posted(&r, 0)->remote_qkey, rig_attr(IBV_QPS_INIT).qkey);
	CHECK_EQ(ibv_modify_qp(r.qp, &a, IBV_QP_QKEY), 0);
	CHECK_EQ(ibv_post_send(r.qp, &wr, &bad), 0);
	CHECK_EQ(posted(&r, 1)->remote_qkey, 0x22);
	wr.wr.ud.remote_qkey = 0x7fffffff;
	CHECK_EQ(ibv_post_send(r.qp, &wr, &bad), 0);
	CHECK_EQ(posted(&r, 2)->remote_qkey, 0x7fffffff);
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	rig_down(&r);
}

/* ---- who holds the address --------------------------------------------------------- */

static void a_sent_datagram_lets_go(void)
{
	struct ibv_ah *ah, *gone;
	struct rig r;

	REQUIRE(ud_up(&r, (struct rig_opt){ 0 }));
	ah = ud_ah(r.pd);
	gone = ud_ah(r.pd);
	CHECK_EQ(ud_send(&r, ah, 1, IBV_SEND_SIGNALED), 0);
	CHECK_EQ(ud_send(&r, gone, 2, 0), 0);
	CHECK_EQ(ibv_destroy_ah(gone), 0); /* with work under way, as on NICs */
	CHECK_EQ(ud_send(&r, ah, 3, IBV_SEND_SIGNALED), 0);
	CHECK_EQ(ud_holders(ah), 3);
	rig_finish(&r, 1);
	CHECK_EQ(ud_holders(ah), 2);
	CHECK_EQ(posted(&r, 1)->av->attr.port_num, 1); /* still there */
	rig_finish(&r, 2);
	CHECK_EQ(ud_holders(ah), 1);
	CHECK_EQ(poll_one(r.scq).wr_id, 1);
	CHECK_EQ(poll_one(r.scq).wr_id, 3);
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	rig_down(&r);
}

static void a_flush_lets_go(void)
{
	struct ibv_ah *ah;
	struct rig r;

	REQUIRE(ud_up(&r, (struct rig_opt){ 0 }));
	ah = ud_ah(r.pd);
	CHECK_EQ(ud_send(&r, ah, 1, 0), 0);
	CHECK_EQ(ud_send(&r, ah, 2, 0), 0);
	CHECK_EQ(rig_to(&r, IBV_QPS_ERR, IBV_QP_STATE), 0);
	CHECK_EQ(ud_holders(ah), 1);
	CHECK_EQ(ud_send(&r, ah, 3, 0), 0); /* flushed at once */
	CHECK_EQ(ud_holders(ah), 1);
	for (uint64_t id = 1; id <= 3; id++) {
		struct ibv_wc wc = poll_one(r.scq);

		CHECK_EQ(wc.wr_id, id);
		CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
	}
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	rig_down(&r);
}

/* A QP in SQE receives, and comes back to RTS. */
static void a_send_error_lets_go(void)
{
	struct ibv_ah *ah;
	struct rig r;

	REQUIRE(ud_up(&r, (struct rig_opt){ 0 }));
	ah = ud_ah(r.pd);
	CHECK_EQ(ud_send(&r, ah, 1, 0), 0);
	CHECK_EQ(ud_send(&r, ah, 2, 0), 0);
	qp_fail_send(to_qp(r.qp), 0, IBV_WC_LOC_LEN_ERR, "longer than the MTU");
	CHECK_EQ(ud_holders(ah), 1);
	CHECK_EQ(r.qp->state, IBV_QPS_SQE);
	CHECK_EQ(poll_one(r.scq).status, IBV_WC_LOC_LEN_ERR);
	CHECK_EQ(poll_one(r.scq).status, IBV_WC_WR_FLUSH_ERR);
	CHECK_EQ(ud_send(&r, ah, 3, 0), 0);
	CHECK_EQ(poll_one(r.scq).status, IBV_WC_WR_FLUSH_ERR);
	CHECK_EQ(ud_holders(ah), 1);
	CHECK_EQ(rig_recv(&r, 9), 0);
	CHECK_EQ(recv_take(to_qp(r.qp), 0), 0);
	fake.kick = 0;
	CHECK_EQ(rig_to(&r, IBV_QPS_RTS, IBV_QP_STATE), 0);
	CHECK_EQ(ud_send(&r, ah, 4, IBV_SEND_SIGNALED), 0);
	CHECK_EQ(fake.kick, 2);
	rig_finish(&r, 1);
	CHECK_EQ(poll_one(r.scq).wr_id, 4);
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	rig_down(&r);
}

static void reset_and_destroy_let_go(void)
{
	struct ibv_ah *ah;
	struct rig r;

	REQUIRE(ud_up(&r, (struct rig_opt){ 0 }));
	ah = ud_ah(r.pd);
	CHECK_EQ(ud_send(&r, ah, 1, 0), 0);
	CHECK_EQ(ud_send(&r, ah, 2, 0), 0);
	CHECK_EQ(rig_to(&r, IBV_QPS_RESET, IBV_QP_STATE), 0);
	CHECK_EQ(ud_holders(ah), 1);
	ud_rts(&r);
	CHECK_EQ(ud_send(&r, ah, 1, 0), 0);
	CHECK_EQ(ibv_destroy_qp(r.qp), 0);
	CHECK_EQ(ud_holders(ah), 1);
	r.qp = NULL;
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	rig_down(&r);
}

/* The slot of a refused request may be that of one under way. */
static void a_full_queue_keeps_what_it_has(void)
{
	struct ibv_ah *ah;
	struct rig r;

	REQUIRE(ud_up(&r, (struct rig_opt){ .max_wr = 4 }));
	ah = ud_ah(r.pd);
	for (uint64_t id = 0; id < 4; id++)
		CHECK_EQ(ud_send(&r, ah, id, 0), 0);
	CHECK_EQ(ud_send(&r, ah, 4, 0), ENOMEM);
	CHECK_EQ(ud_holders(ah), 5);
	CHECK(posted(&r, 0)->av == to_ah(ah)->av);
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	rig_down(&r);
}

/* The same fields of other QPs' entries are numbers. */
static void an_atomic_has_no_address(void)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				  .send_flags = IBV_SEND_SIGNALED,
				  .wr.atomic = { .compare_add = 0x4141414141414141 } },
			   *bad;
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	rig_rts(&r);
	CHECK_EQ(ibv_post_send(r.qp, &wr, &bad), 0);
	CHECK_EQ(ibv_post_send(r.qp, &wr, &bad), 0);
	rig_finish(&r, 1);
	CHECK_EQ(poll_one(r.scq).status, IBV_WC_SUCCESS);
	rig_down(&r);
}

/* ---- builders ---------------------------------------------------------------------- */

static struct ibv_qp_ex *ex_up(struct rig *r, enum ibv_qp_type type, uint64_t ops)
{
	struct ibv_qp_init_attr_ex a = {
		.qp_type = type,
		.cap = { 4, 4, 2, 2, 64 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = ops,
	};

	if (!rig_up(r, (struct rig_opt){ 0 }))
		return NULL;
	CHECK_EQ(ibv_destroy_qp(r->qp), 0);
	a.pd = r->pd;
	a.send_cq = r->scq;
	a.recv_cq = r->rcq;
	r->qp = ibv_create_qp_ex(r->ctx, &a);
	if (!r->qp)
		return NULL;
	if (type == IBV_QPT_UD)
		ud_rts(r);
	else
		rig_rts(r);
	return ibv_qp_to_qp_ex(r->qp);
}

#define SENDS ((uint64_t)IBV_QP_EX_WITH_SEND | (uint64_t)IBV_QP_EX_WITH_SEND_WITH_IMM)

static void the_builders_of_a_datagram(void)
{
	static const uint64_t not_ud[] = {
		IBV_QP_EX_WITH_RDMA_WRITE,
		IBV_QP_EX_WITH_RDMA_READ,
		IBV_QP_EX_WITH_SEND_WITH_INV,
		IBV_QP_EX_WITH_LOCAL_INV,
		IBV_QP_EX_WITH_BIND_MW,
		IBV_QP_EX_WITH_TSO,
		IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP,
	};
	char text[] = "text";
	struct ibv_qp_ex *ex;
	struct ibv_ah *ah;
	struct rig r;

	for (unsigned i = 0; i < sizeof(not_ud) / sizeof(not_ud[0]); i++) {
		CHECK(!ex_up(&r, IBV_QPT_UD, SENDS | not_ud[i]));
		CHECK_EQ(errno, EOPNOTSUPP);
		rig_down(&r);
	}
	ex = ex_up(&r, IBV_QPT_UD, SENDS);
	REQUIRE(ex);
	ah = ud_ah(r.pd);
	ibv_wr_start(ex);
	ex->wr_id = 1;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(ex);
	ibv_wr_set_ud_addr(ex, ah, 0x77, 0x11);
	ibv_wr_set_inline_data(ex, text, 4);
	ibv_wr_send_imm(ex, 6);
	ibv_wr_set_inline_data(ex, text, 4); /* either order */
	ibv_wr_set_ud_addr(ex, ah, 0x78, 0xffffffff);
	CHECK_EQ(ud_holders(ah), 3);
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	CHECK_EQ(ibv_wr_complete(ex), 0);
	CHECK_EQ(posted(&r, 0)->remote_qpn, 0x77);
	CHECK_EQ(posted(&r, 0)->remote_qkey, 0x11);
	CHECK_EQ(posted(&r, 1)->remote_qpn, 0x78);
	CHECK_EQ(posted(&r, 1)->remote_qkey, rig_attr(IBV_QPS_INIT).qkey);
	CHECK_EQ(posted(&r, 1)->imm_or_rkey, 6);
	rig_finish(&r, 2);
	CHECK_EQ(poll_one(r.scq).wr_id, 1);
	rig_down(&r);
}

static void what_was_built_and_not_posted_lets_go(void)
{
	struct ibv_qp_ex *ex;
	struct ibv_ah *ah, *last;
	struct rig r;

	ex = ex_up(&r, IBV_QPT_UD, SENDS);
	REQUIRE(ex);
	ah = ud_ah(r.pd);
	last = ud_ah(r.pd);
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	ibv_wr_set_ud_addr(ex, ah, 0x77, 0x11);
	ibv_wr_set_ud_addr(ex, last, 0x77, 0x11); /* instead */
	CHECK_EQ(ud_holders(ah), 1);
	CHECK_EQ(ud_holders(last), 2);
	ibv_wr_abort(ex);
	CHECK_EQ(ud_holders(last), 1);

	ibv_wr_start(ex);
	ibv_wr_send(ex);
	ibv_wr_set_ud_addr(ex, ah, 0x77, 0x11);
	ibv_wr_send(ex); /* without address */
	CHECK_EQ(ibv_wr_complete(ex), EINVAL);
	CHECK_EQ(ud_holders(ah), 1);

	ibv_wr_start(ex);
	ibv_wr_send(ex);
	ibv_wr_set_ud_addr(ex, NULL, 0x77, 0x11);
	CHECK_EQ(ibv_wr_complete(ex), EINVAL);

	ibv_wr_start(ex);
	ibv_wr_send(ex);
	ibv_wr_set_ud_addr(ex, ah, 0x77, 0x11);
	CHECK_EQ(rig_to(&r, IBV_QPS_RESET, IBV_QP_STATE), 0);
	CHECK_EQ(ibv_wr_complete(ex), EINVAL);
	CHECK_EQ(ud_holders(ah), 1);

	ud_rts(&r);
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	ibv_wr_set_ud_addr(ex, ah, 0x77, 0x11);
	CHECK_EQ(ibv_destroy_qp(r.qp), 0);
	CHECK_EQ(ud_holders(ah), 1);
	r.qp = NULL;
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	CHECK_EQ(ibv_destroy_ah(last), 0);
	rig_down(&r);
}

static void a_connection_takes_no_address(void)
{
	struct ibv_qp_ex *ex;
	struct ibv_ah *ah;
	struct rig r;

	ex = ex_up(&r, IBV_QPT_RC, SENDS);
	REQUIRE(ex);
	ah = ud_ah(r.pd);
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	ibv_wr_set_ud_addr(ex, ah, 0x77, 0x11);
	CHECK_EQ(ibv_wr_complete(ex), EINVAL);
	CHECK_EQ(ud_holders(ah), 1);
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	rig_down(&r);
}

/* ---- attributes --------------------------------------------------------------------- */

static void the_qkey_is_an_attribute(void)
{
	struct ibv_qp_attr a = { .qkey = 0x33 }, q;
	struct ibv_qp_init_attr init;
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ .type = IBV_QPT_UD }));
	CHECK_EQ(rig_to(&r, IBV_QPS_INIT, UD_INIT_MASK), 0);
	CHECK_EQ(ibv_query_qp(r.qp, &q, IBV_QP_QKEY, &init), 0);
	CHECK_EQ(q.qkey, rig_attr(IBV_QPS_INIT).qkey);
	CHECK_EQ(init.qp_type, IBV_QPT_UD);
	CHECK_EQ(ibv_modify_qp(r.qp, &a, IBV_QP_QKEY), 0);
	CHECK_EQ(ibv_query_qp(r.qp, &q, IBV_QP_QKEY, &init), 0);
	CHECK_EQ(q.qkey, 0x33);
	/* Not of UD: no path, no peer, no access. */
	CHECK_EQ(rig_to(&r, IBV_QPS_RTR, IBV_QP_STATE | IBV_QP_PATH_MTU), EINVAL);
	CHECK_EQ(rig_to(&r, IBV_QPS_RTR, IBV_QP_STATE | IBV_QP_AV), EINVAL);
	CHECK_EQ(rig_to(&r, IBV_QPS_RTR, IBV_QP_STATE | IBV_QP_DEST_QPN), EINVAL);
	CHECK_EQ(rig_to(&r, IBV_QPS_INIT, UD_INIT_MASK | IBV_QP_ACCESS_FLAGS), EINVAL);
	CHECK_EQ(rig_to(&r, IBV_QPS_RTR, IBV_QP_STATE), 0);
	CHECK_EQ(rig_to(&r, IBV_QPS_RTS, IBV_QP_STATE), EINVAL); /* needs a PSN */
	rig_down(&r);
}

static bool raw_set(bool on)
{
	struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct d[2];
	uint32_t bit = 1u << CAP_NET_RAW;

	if (syscall(SYS_capget, &h, d))
		return false;
	if (on && !(d[0].permitted & bit))
		return false;
	d[0].effective = on ? d[0].effective | bit : d[0].effective & ~bit;
	return !syscall(SYS_capset, &h, d);
}

static void a_controlled_qkey_is_for_the_privileged(void)
{
	struct ibv_qp_attr a = { .qkey = 0x80000033 }, q;
	struct ibv_qp_init_attr init;
	struct rig r;
	bool may;

	REQUIRE(ud_up(&r, (struct rig_opt){ 0 }));
	REQUIRE(raw_set(false));
	CHECK_EQ(ibv_modify_qp(r.qp, &a, IBV_QP_QKEY), EPERM);
	CHECK_EQ(ibv_query_qp(r.qp, &q, IBV_QP_QKEY, &init), 0);
	CHECK_EQ(q.qkey, rig_attr(IBV_QPS_INIT).qkey);
	may = raw_set(true);
	CHECK_EQ(ibv_modify_qp(r.qp, &a, IBV_QP_QKEY), may ? 0 : EPERM);
	rig_down(&r);
}

static void what_the_device_promises(void)
{
	struct ibv_device_attr a;
	struct rig r;

	REQUIRE(ud_up(&r, (struct rig_opt){ 0 }));
	CHECK_EQ(ibv_query_device(r.ctx, &a), 0);
	CHECK_EQ(a.max_ah, DEV_MAX_AH);
	CHECK_EQ(a.max_mcast_grp, DEV_MAX_GROUPS);
	CHECK_EQ(a.max_mcast_qp_attach, DEV_MAX_GROUP_QPS);
	CHECK(a.max_total_mcast_qp_attach >= a.max_mcast_qp_attach);
	rig_down(&r);
}

/* ---- receiving ------------------------------------------------------------------------ */

static void recv_one(struct rig *r, uint64_t id)
{
	struct ibv_wc in = { .status = IBV_WC_SUCCESS,
			     .opcode = IBV_WC_RECV,
			     .byte_len = 48,
			     .imm_data = 0x55,
			     .wc_flags = IBV_WC_GRH | IBV_WC_WITH_IMM,
			     .sl = 3,
			     .src_qp = 0x77 };

	CHECK_EQ(rig_recv(r, id), 0);
	CHECK_EQ(recv_take(to_qp(r->qp), 0), 0);
	recv_done(to_qp(r->qp), &in, false);
}

/* COMM_EST is about connections. */
static void the_first_datagram_is_no_event(void)
{
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ .type = IBV_QPT_UD }));
	CHECK_EQ(rig_to(&r, IBV_QPS_INIT, UD_INIT_MASK), 0);
	CHECK_EQ(rig_to(&r, IBV_QPS_RTR, IBV_QP_STATE), 0);
	recv_one(&r, 1);
	CHECK_EQ(poll_one(r.rcq).wr_id, 1);
	CHECK_EQ(rig_event(&r), -1);
	rig_down(&r);
}

static void a_shared_receive_queue(void)
{
	struct ibv_wc wc;
	struct rig r;

	REQUIRE(ud_up(&r, (struct rig_opt){ .srq = true }));
	for (uint64_t id = 0; id < 9; id++) { /* more than it holds: slots come back */
		recv_one(&r, id);
		wc = poll_one(r.rcq);
		CHECK_EQ(wc.wr_id, id);
		CHECK_EQ(wc.src_qp, 0x77);
		CHECK_EQ(wc.qp_num, r.qp->qp_num);
	}
	CHECK_EQ(rig_recv(&r, 9), 0);
	CHECK_EQ(rig_to(&r, IBV_QPS_ERR, IBV_QP_STATE), 0);
	CHECK_EQ(rig_event(&r), IBV_EVENT_QP_LAST_WQE_REACHED);
	rig_down(&r);
}

static void an_extended_cq_reads_the_source(void)
{
	struct ibv_cq_init_attr_ex ca = { .cqe = 8, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_qp_init_attr a = { .qp_type = IBV_QPT_UD, .cap = { 4, 4, 1, 1, 0 } };
	struct ibv_poll_cq_attr none = { 0 };
	struct ibv_cq_ex *ex;
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	CHECK_EQ(ibv_destroy_qp(r.qp), 0);
	ex = ibv_create_cq_ex(r.ctx, &ca);
	a.send_cq = a.recv_cq = ibv_cq_ex_to_cq(ex);
	r.qp = ibv_create_qp(r.pd, &a);
	REQUIRE(r.qp);
	ud_rts(&r);
	recv_one(&r, 4);
	REQUIRE_EQ(ibv_start_poll(ex, &none), 0);
	CHECK_EQ(ex->wr_id, 4);
	CHECK_EQ(ibv_wc_read_byte_len(ex), 48);
	CHECK_EQ(ibv_wc_read_imm_data(ex), 0x55);
	CHECK_EQ(ibv_wc_read_wc_flags(ex), IBV_WC_GRH | IBV_WC_WITH_IMM);
	CHECK_EQ(ibv_wc_read_src_qp(ex), 0x77);
	CHECK_EQ(ibv_wc_read_qp_num(ex), r.qp->qp_num);
	CHECK_EQ(ibv_wc_read_slid(ex), 0);
	CHECK_EQ(ibv_wc_read_sl(ex), 3);
	CHECK_EQ(ibv_wc_read_dlid_path_bits(ex), 0);
	ibv_end_poll(ex);
	CHECK_EQ(ibv_destroy_qp(r.qp), 0);
	r.qp = NULL;
	CHECK_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(ex)), 0);
	rig_down(&r);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(what_a_datagram_has);
	T_RUN(the_qkey_of_the_qp);
	T_RUN(a_sent_datagram_lets_go);
	T_RUN(a_flush_lets_go);
	T_RUN(a_send_error_lets_go);
	T_RUN(reset_and_destroy_let_go);
	T_RUN(a_full_queue_keeps_what_it_has);
	T_RUN(an_atomic_has_no_address);
	T_RUN(the_builders_of_a_datagram);
	T_RUN(what_was_built_and_not_posted_lets_go);
	T_RUN(a_connection_takes_no_address);
	T_RUN(the_qkey_is_an_attribute);
	T_RUN(a_controlled_qkey_is_for_the_privileged);
	T_RUN(what_the_device_promises);
	T_RUN(the_first_datagram_is_no_event);
	T_RUN(a_shared_receive_queue);
	T_RUN(an_extended_cq_reads_the_source);
	return t_done();
}
