/* SPDX-License-Identifier: BSD-2-Clause */
/* Work requests. A message is an RDMA write with immediate data; iWARP has none, there
 * it is a write and a send of the four bytes, in the sender's byte order. */
#include "rsocket/rs.h"

#include <errno.h>

static int post_iwarp(struct rs *rs, uint64_t wr_id, uint32_t imm, struct ibv_send_wr *w)
{
	struct ibv_sge sge = { .addr = (uintptr_t)&imm, .length = sizeof(imm) };
	struct ibv_send_wr s = {
		.wr_id = wr_id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_INLINE | (w->send_flags & IBV_SEND_SIGNALED),
	}, *bad;

	w->opcode = IBV_WR_RDMA_WRITE;
	w->wr_id = post_wr_id(rs, WR_LOCAL, 0);
	w->send_flags &= ~(unsigned)IBV_SEND_SIGNALED;
	w->next = &s;
	return -ibv_post_send(rs->qp, w->num_sge ? w : &s, &bad);
}

int post_message(struct rs *rs, uint64_t wr_id, uint32_t imm, struct ibv_send_wr *w)
{
	struct ibv_send_wr *bad;

	if (rs->hub->iwarp)
		return post_iwarp(rs, wr_id, imm, w);
	w->wr_id = wr_id;
	w->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	w->imm_data = htobe32(imm);
	return -ibv_post_send(rs->qp, w, &bad);
}

int post_ctrl(struct rs *rs, uint32_t imm)
{
	struct ibv_send_wr w = {
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = rs->peer_sgl.addr, .rkey = rs->peer_sgl.key },
	};
	int ret;

	if (atomic_fetch_add(&rs->tx.ctrl, 1) >= CTRL_MAX) {
		atomic_fetch_sub(&rs->tx.ctrl, 1);
		return -EAGAIN;
	}
	ret = post_message(rs, post_wr_id(rs, WR_CTRL, 0), imm, &w);
	if (ret)
		atomic_fetch_sub(&rs->tx.ctrl, 1);
	return ret;
}

int post_probe(struct rs *rs)
{
	struct ibv_send_wr w = {
		.wr_id = post_wr_id(rs, WR_CTRL, 0),
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = rs->peer_sgl.addr, .rkey = rs->peer_sgl.key },
	}, *bad;
	int ret;

	if (atomic_fetch_add(&rs->tx.ctrl, 1) >= CTRL_MAX) {
		atomic_fetch_sub(&rs->tx.ctrl, 1);
		return -EAGAIN;
	}
	ret = ibv_post_send(rs->qp, &w, &bad);
	if (ret)
		atomic_fetch_sub(&rs->tx.ctrl, 1);
	return -ret;
}

enum { RECV_CHAIN = 32 };

static int post_chain(struct rs *rs, uint32_t n)
{
	struct ibv_recv_wr w[RECV_CHAIN], *bad;
	struct ibv_sge sge[RECV_CHAIN];
	uint32_t total = rs->rq + RECV_EXTRA, at;

	for (uint32_t i = 0; i < n; i++) {
		at = (rs->rx.posted + i) % total;
		sge[i] = (struct ibv_sge){ (uintptr_t)&rs->imm[at], sizeof(*rs->imm),
					   rs->mr->lkey };
		w[i] = (struct ibv_recv_wr){
			.wr_id = post_wr_id(rs, WR_RECV, at),
			.next = i + 1 < n ? &w[i + 1] : NULL,
			.sg_list = rs->hub->iwarp ? &sge[i] : NULL,
			.num_sge = rs->hub->iwarp ? 1 : 0,
		};
	}
	rs->rx.posted += n;
	return -ibv_post_recv(rs->qp, w, &bad);
}

int post_receives(struct rs *rs, uint32_t n)
{
	uint32_t now;
	int ret;

	for (; n; n -= now) {
		now = n < RECV_CHAIN ? n : RECV_CHAIN;
		ret = post_chain(rs, now);
		if (ret)
			return ret;
	}
	return 0;
}
