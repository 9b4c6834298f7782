/* SPDX-License-Identifier: BSD-2-Clause */
/* For fuzz targets that play the peer of a real QP: the device, three regions with guards
 * around them, the states of the QP and its work requests, and checks of what must hold
 * whatever the peer does. Included by one file of a program. */
#ifndef ANYRDMA_FUZZ_VICTIM_H
#define ANYRDMA_FUZZ_VICTIM_H

#include "dev/dev.h"
#include "must.h"

#include <string.h>

#undef ibv_reg_mr_iova

enum {
	REGION = 1 << 16,
	GUARD = 4096,
	BASE = 0x10000, /* where a region is for its peer */
	SEND_ID = 0x100, /* in wr_id: a send's */
	RECVS = 6,
};

static struct {
	struct ibv_context *ctx;
	struct ibv_pd *pd, *other_pd;
	struct ibv_cq *cq;
	uint8_t *mem; /* GUARD, region, GUARD, region, GUARD, region, GUARD */
	struct ibv_mr *mr[3]; /* open to all, without remote rights, of another PD */
} dev;

/* A QP, and how many of its WRs were posted and have completed. */
struct work {
	struct ibv_qp *qp;
	struct ibv_srq *srq; /* where its receives are, or NULL */
	unsigned sends, recvs, sends_done, recvs_done;
};

/* ---- once ----------------------------------------------------------- */

static uint8_t *region(int i)
{
	return dev.mem + GUARD + (size_t)i * (REGION + GUARD);
}

static void device_open(void)
{
	unsigned all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
		       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	struct ibv_device **list = ibv_get_device_list(NULL);
	size_t bytes = 3 * REGION + 4 * GUARD;

	MUST(list && list[0]);
	dev.ctx = ibv_open_device(list[0]);
	MUST(dev.ctx);
	ibv_free_device_list(list);
	dev.pd = ibv_alloc_pd(dev.ctx);
	dev.other_pd = ibv_alloc_pd(dev.ctx);
	dev.cq = ibv_create_cq(dev.ctx, 64, NULL, NULL, 0);
	dev.mem = aligned_alloc(GUARD, bytes);
	MUST(dev.pd && dev.other_pd && dev.cq && dev.mem);
	memset(dev.mem, 0xee, bytes);
	dev.mr[0] = ibv_reg_mr_iova(dev.pd, region(0), REGION, BASE, (int)all);
	dev.mr[1] = ibv_reg_mr_iova(dev.pd, region(1), REGION, BASE, IBV_ACCESS_LOCAL_WRITE);
	dev.mr[2] = ibv_reg_mr_iova(dev.other_pd, region(2), REGION, BASE, (int)all);
	MUST(dev.mr[0] && dev.mr[1] && dev.mr[2]);
}

static bool untouched(const uint8_t *p, size_t n)
{
	return p[0] == 0xee && !memcmp(p, p + 1, n - 1);
}

static void check_guards(void)
{
	/* No remote right, another PD: nobody may write there either. */
	MUST(untouched(dev.mem, GUARD));
	MUST(untouched(region(0) + REGION, 3 * GUARD + 2 * REGION));
}

/* ---- states ---------------------------------------------------------- */

static void qp_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1,
				 .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };

	if (qp->qp_type != IBV_QPT_UC)
		a.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	MUST(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					    IBV_QP_ACCESS_FLAGS));
}

/* To RTS: with the peer, the addresses, sq_psn, rq_psn, timeout and retry_cnt of `to`. */
static void qp_connect(struct ibv_qp *qp, const struct ibv_qp_attr *to)
{
	struct ibv_qp_attr a = *to;
	bool rc = qp->qp_type != IBV_QPT_UC;

	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = IBV_MTU_1024;
	a.max_dest_rd_atomic = a.max_rd_atomic = 4;
	a.min_rnr_timer = a.rnr_retry = 1;
	a.ah_attr.is_global = a.ah_attr.port_num = a.ah_attr.grh.hop_limit = 1;
	MUST(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					    IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					    (rc ? IBV_QP_MAX_DEST_RD_ATOMIC |
							  IBV_QP_MIN_RNR_TIMER : 0)));
	a.qp_state = IBV_QPS_RTS;
	MUST(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN |
					    (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
							  IBV_QP_RNR_RETRY |
							  IBV_QP_MAX_QP_RD_ATOMIC : 0)));
}

static void qp_err(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };

	MUST(!ibv_modify_qp(qp, &a, IBV_QP_STATE));
}

/* ---- work ------------------------------------------------------------ */

static void work_recvs(struct work *w, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct ibv_sge sge[2] = {
			{ BASE + 1000 * i, 500, dev.mr[0]->lkey },
			{ BASE + 30000, i % 2 ? 30000 : 10, dev.mr[0]->lkey },
		};
		struct ibv_recv_wr wr = { .wr_id = i, .sg_list = sge, .num_sge = 2 }, *bad;

		MUST(!(w->srq ? ibv_post_srq_recv(w->srq, &wr, &bad) :
				ibv_post_recv(w->qp, &wr, &bad)));
		w->recvs++;
	}
}

/* A request to somewhere at the peer; false: refused. */
static bool work_send(struct work *w, enum ibv_wr_opcode op, uint32_t len)
{
	uint64_t at = len < REGION - 4096 ? BASE + 4096 : BASE;
	struct ibv_sge sge = { at, len, dev.mr[0]->lkey };
	struct ibv_send_wr wr = { .wr_id = SEND_ID + w->sends, .sg_list = &sge, .num_sge = 1,
				  .opcode = op, .send_flags = IBV_SEND_SIGNALED }, *bad;

	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = 0x1000;
		wr.wr.atomic.rkey = 0x77;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = 0x1000;
		wr.wr.rdma.rkey = 0x77;
	}
	if (ibv_post_send(w->qp, &wr, &bad))
		return false;
	w->sends++;
	return true;
}

/* Each completes once and in order. */
static void work_reap(struct work *w)
{
	struct ibv_wc wc[4];
	int n;

	do {
		n = ibv_poll_cq(dev.cq, 4, wc);
		MUST(n >= 0);
		for (int i = 0; i < n; i++) {
			bool recv = !(wc[i].wr_id & SEND_ID);
			unsigned *done = recv ? &w->recvs_done : &w->sends_done;

			MUST(wc[i].qp_num == w->qp->qp_num);
			MUST((wc[i].wr_id & ~(uint64_t)SEND_ID) == *done);
			++*done;
			if (wc[i].status != IBV_WC_SUCCESS)
				continue;
			MUST(!!(wc[i].opcode & IBV_WC_RECV) == recv);
			MUST(wc[i].opcode != IBV_WC_RECV || wc[i].byte_len <= 30500);
		}
	} while (n > 0);
}

#endif
