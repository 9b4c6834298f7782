/* SPDX-License-Identifier: BSD-2-Clause */
/* A UD QP of the library, whose peer is the fuzzer's process: what it may be sent, and what
 * must hold of what it has received. Included once. */
#ifndef ANYRDMA_FUZZ_DGRAMS_H
#define ANYRDMA_FUZZ_DGRAMS_H

#include "input.h"
#include "must.h"
#include "shm/dgram_rec.h"

#include <infiniband/verbs.h>
#include <sched.h>
#include <string.h>

enum {
	DG_RECVS = 8,
	DG_ROOM = UD_GRH + UD_PAYLOAD_MAX,
	DG_QKEY = 0x11111111,
	DG_SENDS = 64,
	DG_GUARD = 64,
};

/* How a datagram is: the rest of a head follows from it. */
struct dgram_said {
	uint8_t kind, flags;
	uint8_t source;	     /* 0 to 63: index of a QP of the peer's port; else of another */
	uint8_t dest;	     /* 0 to 191: the QP; else nonsense */
	uint8_t wrong;	     /* 1 Q_Key, 2 source address, 4 destination address */
	uint8_t more;	     /* bytes of GIDs and number, from the input */
	uint16_t payload;
};

static struct {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_ah *ah;
	uint8_t mem[DG_RECVS][DG_ROOM + DG_GUARD];
	unsigned posted; /* sends that have not completed */
} dgrams;

static void dgrams_recv(unsigned i)
{
	struct ibv_sge sge = { (uintptr_t)dgrams.mem[i], DG_ROOM, dgrams.mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;

	memset(dgrams.mem[i], 0xee, sizeof(dgrams.mem[i]));
	MUST(!ibv_post_recv(dgrams.qp, &wr, &bad));
}

static void dgrams_open(struct ibv_pd *pd, const union ibv_gid *gid, uint8_t sgid_index)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_UD,
					 .cap = { DG_SENDS, DG_RECVS, 1, 1, 0 } };
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = DG_QKEY };
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1,
				  .grh = { .dgid = *gid, .sgid_index = sgid_index,
					   .hop_limit = 1 } };

	dgrams.cq = ibv_create_cq(pd->context, DG_SENDS + DG_RECVS, NULL, NULL, 0);
	init.send_cq = init.recv_cq = dgrams.cq;
	dgrams.qp = dgrams.cq ? ibv_create_qp(pd, &init) : NULL;
	dgrams.mr = ibv_reg_mr(pd, dgrams.mem, sizeof(dgrams.mem), IBV_ACCESS_LOCAL_WRITE);
	dgrams.ah = ibv_create_ah(pd, &to);
	MUST(dgrams.qp && dgrams.mr && dgrams.ah);
	MUST(!ibv_modify_qp(dgrams.qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						   IBV_QP_QKEY));
	a.qp_state = IBV_QPS_RTR;
	MUST(!ibv_modify_qp(dgrams.qp, &a, IBV_QP_STATE));
	a.qp_state = IBV_QPS_RTS;
	MUST(!ibv_modify_qp(dgrams.qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN));
	for (unsigned i = 0; i < DG_RECVS; i++)
		dgrams_recv(i);
}

static void dgrams_send(uint32_t qpn)
{
	struct ibv_sge sge = { (uintptr_t)dgrams.mem[0], DG_ROOM / 2, dgrams.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = DG_RECVS, .sg_list = &sge, .num_sge = 1,
				  .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
				  .wr.ud = { dgrams.ah, qpn, DG_QKEY } }, *bad;

	if (dgrams.posted == DG_SENDS)
		return;
	sge.length = 512;
	MUST(!ibv_post_send(dgrams.qp, &wr, &bad));
	dgrams.posted++;
}

/* Writes a record; its bytes. */
static uint32_t dgrams_record(struct input *in, uint8_t *rec, uint32_t peer_qpn,
			      const union ibv_gid *gid)
{
	struct rec_dgram *r = (void *)rec;
	struct dgram_said s;
	uint32_t a, n = sizeof(*r);

	input_get(in, &s, sizeof(s));
	memcpy(&a, gid->raw + 12, sizeof(a));
	*r = (struct rec_dgram){
		.kind = s.kind,
		.flags = s.flags,
		.hop_limit = 64,
		.src_qpn = s.source < 64 ? (peer_qpn & 0xffff00) | s.source :
					   s.source * 0x10101u,
		.dst_qpn = s.dest < 192 ? dgrams.qp->qp_num : s.dest * 0x1010101u,
		.qkey = s.wrong & 1 ? ~DG_QKEY : DG_QKEY,
		.sgid4 = s.wrong & 2 ? ~a : a,
		.dgid4 = s.wrong & 4 ? ~a : a,
	};
	input_get(in, rec + n, s.more);
	n += s.more;
	memset(rec + n, 0x5c, s.payload % 8192);
	return n + s.payload % 8192;
}

/* What was received has come from a port that leads to the peer. 0: from none. */
static void dgrams_reap(uint32_t peer_qpn)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(dgrams.cq, 1, &wc) == 1) {
		const uint8_t *mem = dgrams.mem[wc.wr_id % DG_RECVS];

		MUST(wc.status == IBV_WC_SUCCESS);
		if (wc.wr_id == DG_RECVS) {
			MUST(dgrams.posted-- > 0);
			continue;
		}
		MUST(wc.wr_id < DG_RECVS && wc.opcode == IBV_WC_RECV);
		MUST(peer_qpn && wc.src_qp >> 8 == peer_qpn >> 8);
		MUST(wc.byte_len >= UD_GRH && wc.byte_len <= DG_ROOM);
		for (uint32_t i = wc.byte_len; i < DG_ROOM + DG_GUARD; i++)
			MUST(mem[i] == 0xee);
		dgrams_recv((unsigned)wc.wr_id);
	}
}

/* The peer has ended: what was sent to it has left. */
static void dgrams_over(uint32_t peer_qpn)
{
	double end = now() + PATIENCE_S;

	do {
		dgrams_reap(peer_qpn);
		MUST(now() < end);
		sched_yield();
	} while (dgrams.posted);
}

#endif
