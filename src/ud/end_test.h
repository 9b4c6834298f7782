/* SPDX-License-Identifier: BSD-2-Clause */
/* For unit tests: UD QPs made by the exported calls. Include it, after tests/t.h, in one file
 * of a test program. The QPs are at a loopback address of the GID table. */
#ifndef ANYRDMA_UD_END_TEST_H
#define ANYRDMA_UD_END_TEST_H

#include "base/state.h"
#include "dev/gid.h"
#include "dev/qpn.h"
#include "ud/ud.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/mman.h>

enum { QKEY = 0x1234567, END_MEM = 1 << 16, PATIENCE_MS = 10000, END_WRS = 64 };

struct end {
	struct ibv_pd *pd;
	struct ibv_comp_channel *ch; /* of rcq */
	struct ibv_cq *scq, *rcq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *mem; /* END_MEM: receives in the lower half, sends in the upper one */
};

static struct ibv_context *the_ctx;

static T_UNUSED struct ibv_context *ctx(void)
{
	struct ibv_device **list;

	if (!the_ctx) {
		list = ibv_get_device_list(NULL);
		the_ctx = ibv_open_device(list[0]);
		ibv_free_device_list(list);
	}
	return the_ctx;
}

static void ctx_close(void)
{
	CHECK_EQ(ibv_close_device(the_ctx), 0);
	the_ctx = NULL;
}

/* Slot of 127.0.0.1 or ::1; -1: there is none. */
static int slot_of(bool v6)
{
	struct gid_slot s;

	for (unsigned i = 0; i < gid_count(0); i++)
		if (gid_get(0, i, &s) && s.loopback && gid_is_v4(&s.gid) == !v6)
			return (int)i;
	return -1;
}

static T_UNUSED union ibv_gid gid_at(int slot)
{
	struct gid_slot s;

	gid_get(0, (unsigned)slot, &s);
	return s.gid;
}

static T_UNUSED union ibv_gid gid_of(const char *text)
{
	union ibv_gid g;

	CHECK_EQ(inet_pton(AF_INET6, text, &g), 1);
	return g;
}

static int end_state(struct end *e, enum ibv_qp_state s)
{
	struct ibv_qp_attr a = { .qp_state = s, .port_num = 1, .qkey = QKEY, .sq_psn = 7 };
	int mask = IBV_QP_STATE;

	if (s == IBV_QPS_INIT)
		mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
	if (s == IBV_QPS_RTS)
		mask |= IBV_QP_SQ_PSN;
	return ibv_modify_qp(e->qp, &a, mask);
}

static T_UNUSED void end_rts(struct end *e)
{
	CHECK_EQ(end_state(e, IBV_QPS_INIT), 0);
	CHECK_EQ(end_state(e, IBV_QPS_RTR), 0);
	CHECK_EQ(end_state(e, IBV_QPS_RTS), 0);
}

/* In RESET. */
static T_UNUSED struct end *end_new(bool srq)
{
	struct ibv_srq_init_attr sa = { .attr = { .max_wr = END_WRS, .max_sge = 2 } };
	struct ibv_qp_init_attr a = { .cap = { .max_send_wr = END_WRS,
					       .max_recv_wr = END_WRS,
					       .max_send_sge = 4,
					       .max_recv_sge = 4,
					       .max_inline_data = 256 },
				      .qp_type = IBV_QPT_UD };
	struct end *e = calloc(1, sizeof(*e));

	e->pd = ibv_alloc_pd(ctx());
	e->scq = a.send_cq = ibv_create_cq(ctx(), 256, NULL, NULL, 0);
	e->ch = ibv_create_comp_channel(ctx());
	e->rcq = a.recv_cq = ibv_create_cq(ctx(), 256, NULL, e->ch, 0);
	if (srq)
		e->srq = a.srq = ibv_create_srq(e->pd, &sa);
	e->qp = ibv_create_qp(e->pd, &a);
	e->mem = mmap(NULL, END_MEM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		      0);
	e->mr = ibv_reg_mr(e->pd, e->mem, END_MEM, IBV_ACCESS_LOCAL_WRITE);
	CHECK(e->pd && e->scq && e->rcq && e->qp && e->mr);
	for (unsigned i = 0; i < END_MEM; i++)
		e->mem[i] = (uint8_t)(i * 7 + i / 256);
	return e;
}

static T_UNUSED struct end *end_up(void)
{
	struct end *e = end_new(false);

	end_rts(e);
	return e;
}

static T_UNUSED void end_free(struct end *e)
{
	CHECK_EQ(ibv_destroy_qp(e->qp), 0);
	if (e->srq)
		CHECK_EQ(ibv_destroy_srq(e->srq), 0);
	CHECK_EQ(ibv_destroy_cq(e->scq), 0);
	CHECK_EQ(ibv_destroy_cq(e->rcq), 0);
	CHECK_EQ(ibv_destroy_comp_channel(e->ch), 0);
	CHECK_EQ(ibv_dereg_mr(e->mr), 0);
	CHECK_EQ(ibv_dealloc_pd(e->pd), 0);
	munmap(e->mem, END_MEM);
	free(e);
}

/* The transport's own of it. */
static T_UNUSED struct ud_qp *end_ud(struct end *e)
{
	return to_qp(e->qp)->tr_priv;
}

static T_UNUSED struct ibv_ah *ah_to(struct end *e, int slot, union ibv_gid dgid)
{
	struct ibv_ah_attr a = { .is_global = 1,
				 .port_num = 1,
				 .sl = 3,
				 .grh = { .dgid = dgid,
					  .sgid_index = (uint8_t)slot,
					  .flow_label = 0x12345,
					  .hop_limit = 33,
					  .traffic_class = 0x28 } };
	struct ibv_ah *ah = ibv_create_ah(e->pd, &a);

	CHECK(ah != NULL);
	return ah;
}

/* A receive of len bytes at this offset. */
static T_UNUSED int recv_at(struct end *e, uint32_t off, uint32_t len)
{
	struct ibv_sge s = { (uintptr_t)e->mem + off, len, e->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = off, .sg_list = &s, .num_sge = 1 }, *bad;

	return e->srq ? ibv_post_srq_recv(e->srq, &wr, &bad) :
			ibv_post_recv(e->qp, &wr, &bad);
}

/* Sends len bytes of the upper half, signalled. */
static struct ibv_send_wr send_wr(struct end *e, struct ibv_sge *s, struct ibv_ah *ah,
				  uint32_t qpn, uint32_t len)
{
	*s = (struct ibv_sge){ (uintptr_t)e->mem + END_MEM / 2, len, e->mr->lkey };
	return (struct ibv_send_wr){ .wr_id = len,
				     .sg_list = s,
				     .num_sge = 1,
				     .opcode = IBV_WR_SEND,
				     .send_flags = IBV_SEND_SIGNALED,
				     .wr.ud = { ah, qpn, QKEY } };
}

static T_UNUSED int send_to(struct end *e, struct ibv_ah *ah, uint32_t qpn, uint32_t len)
{
	struct ibv_sge s;
	struct ibv_send_wr wr = send_wr(e, &s, ah, qpn, len), *bad;

	return ibv_post_send(e->qp, &wr, &bad);
}

static T_UNUSED bool poll_for(struct ibv_cq *cq, struct ibv_wc *wc)
{
	int n = 0;

	return T_WAIT((n = ibv_poll_cq(cq, 1, wc)) != 0, PATIENCE_MS) && n == 1;
}

/* The next completion of the send queue has this id and status. */
static T_UNUSED bool sent(struct end *e, uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	return poll_for(e->scq, &wc) && CHECK_EQ(wc.wr_id, id) && CHECK_EQ(wc.status, status);
}

static T_UNUSED bool nothing(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	return !ibv_poll_cq(cq, 1, &wc);
}

static T_UNUSED enum ibv_qp_state state_of(struct end *e)
{
	struct ibv_qp_init_attr ia;
	struct ibv_qp_attr a;

	CHECK_EQ(ibv_query_qp(e->qp, &a, IBV_QP_STATE, &ia), 0);
	return a.qp_state;
}

#endif
