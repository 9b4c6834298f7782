/* SPDX-License-Identifier: BSD-2-Clause */
/* The contract of transports: which QP gets which, and that a transport without
 * connections needs the mandatory members alone. */
#include "tests/t.h"

#include "dev/fake_datagrams.h"

static struct ibv_qp *create(struct rig *r, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr a = { .qp_type = type,
				      .cap = { 4, 4, 1, 1, 0 },
				      .send_cq = r->scq,
				      .recv_cq = r->rcq,
				      .srq = r->srq };

	return ibv_create_qp(r->pd, &a);
}

static void a_type_without_a_transport_cannot_be_created(void)
{
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	CHECK_NULL(create(&r, IBV_QPT_RAW_PACKET), EOPNOTSUPP);
	CHECK_NULL(create(&r, IBV_QPT_DRIVER), EOPNOTSUPP);
	CHECK_NULL(create(&r, (enum ibv_qp_type)7), EINVAL);
	rig_down(&r);
}

static void a_qp_without_connection(void)
{
	static const union ibv_gid zero;
	struct dev_qp *qp;
	struct rig r;

	REQUIRE(ud_up(&r, (struct rig_opt){ 0 }));
	qp = to_qp(r.qp);
	CHECK(qp->tr == &fake_datagrams);
	CHECK_EQ(fake.listen, 1);
	CHECK_EQ(fake.attach, 1);
	CHECK_EQ(fake.kick, 1);
	CHECK(!memcmp(&qp->local_gid, &zero, sizeof(zero)));
	CHECK_EQ(rig_to(&r, IBV_QPS_ERR, IBV_QP_STATE), 0);
	CHECK_EQ(fake.stop, 1);
	CHECK_EQ(rig_to(&r, IBV_QPS_RESET, IBV_QP_STATE), 0);
	CHECK_EQ(fake.detach, 1);
	CHECK(!qp->tr);
	rig_down(&r);
	CHECK_EQ(fake.detach, 1);
}

static void a_datagram_completes_with_its_source(void)
{
	struct ibv_wc in = { .status = IBV_WC_SUCCESS,
			     .opcode = IBV_WC_RECV,
			     .byte_len = 48,
			     .wc_flags = IBV_WC_GRH,
			     .src_qp = 0x77 },
		      wc;
	struct rig r;

	REQUIRE(ud_up(&r, (struct rig_opt){ 0 }));
	CHECK_EQ(rig_recv(&r, 9), 0);
	CHECK_EQ(recv_take(to_qp(r.qp), 0), 0);
	recv_done(to_qp(r.qp), &in, false);
	REQUIRE_EQ(ibv_poll_cq(r.rcq, 1, &wc), 1);
	CHECK_EQ(wc.wr_id, 9);
	CHECK_EQ(wc.src_qp, 0x77);
	CHECK_EQ(wc.wc_flags, IBV_WC_GRH);
	rig_down(&r);
}

static void nobody_is_told_of_a_receive(void)
{
	struct rig r;

	REQUIRE(ud_up(&r, (struct rig_opt){ 0 }));
	CHECK_EQ(recv_take(to_qp(r.qp), 0), -ENOENT);
	CHECK(!to_qp(r.qp)->recv_awaited);
	CHECK_EQ(rig_recv(&r, 1), 0);
	CHECK_EQ(recv_take(to_qp(r.qp), 0), 0);
	rig_down(&r);
}

/* Both find the SRQ empty. The one receive is for the QP that was told to wait. */
static void a_receive_of_an_srq_goes_to_who_waits(void)
{
	struct ibv_qp_attr a = rig_attr(IBV_QPS_INIT);
	struct ibv_qp *rc;
	struct rig r;

	REQUIRE(ud_up(&r, (struct rig_opt){ .srq = true }));
	rc = create(&r, IBV_QPT_RC);
	REQUIRE(rc);
	CHECK_EQ(ibv_modify_qp(rc, &a, INIT_MASK), 0);
	a.qp_state = IBV_QPS_RTR;
	CHECK_EQ(ibv_modify_qp(rc, &a, RTR_MASK), 0);
	CHECK_EQ(recv_take(to_qp(r.qp), 0), -ENOENT);
	CHECK_EQ(recv_take(to_qp(rc), 0), -ENOENT);
	CHECK_EQ(rig_recv(&r, 1), 0);
	CHECK_EQ(fake.recv_posted, 1);
	CHECK_EQ(ibv_destroy_qp(rc), 0);
	rig_down(&r);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(a_type_without_a_transport_cannot_be_created);
	T_RUN(a_qp_without_connection);
	T_RUN(a_datagram_completes_with_its_source);
	T_RUN(nobody_is_told_of_a_receive);
	T_RUN(a_receive_of_an_srq_goes_to_who_waits);
	return t_done();
}
