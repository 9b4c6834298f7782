/* SPDX-License-Identifier: BSD-2-Clause */
/* What the peer may send: so many messages, and bytes into the regions that it was told
 * of. There are two, half of SO_RCVBUF each; one that was read is announced again. */
#include "rsocket/rs.h"

#include <errno.h>

/* With this message the peer is told of a region. */
static int announce(struct rs *rs, uint32_t imm)
{
	struct rs_rx *rx = &rs->rx;
	struct region *r = &rx->reg[(rx->first + rx->announced) % PROTO_SGES];
	uint8_t entry[PROTO_SGE_LEN];
	struct ibv_sge sge = { .addr = (uintptr_t)entry, .length = sizeof(entry) };
	struct ibv_send_wr w = {
		.sg_list = &sge,
		.num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
		.wr.rdma = { .remote_addr = rs->peer_sgl.addr + rx->sge * PROTO_SGE_LEN,
			     .rkey = rs->peer_sgl.key },
	};
	struct proto_sge s;
	int ret;

	s = (struct proto_sge){ (uintptr_t)r->buf, rs->mr->rkey, r->len };
	proto_sge_put(entry, &s, rs->swap);
	atomic_fetch_add(&rs->tx.ctrl, 1);
	ret = post_message(rs, post_wr_id(rs, WR_CTRL, 0), imm, &w);
	if (ret) {
		atomic_fetch_sub(&rs->tx.ctrl, 1);
		return ret;
	}
	rx->announced++;
	rx->sge = (rx->sge + 1) % rs->peer_sgl.length;
	return 0;
}

static void give_locked(struct rs *rs)
{
	struct rs_rx *rx = &rs->rx;
	uint32_t head = atomic_load_explicit(&rx->head_seen, memory_order_relaxed);
	uint32_t read = head - rx->granted_at;
	int ret = 0;

	rx->due = false;
	if (rs_ended(rs) & (RS_GONE | RS_CLOSED))
		return;
	while (!ret && (rx->announced < PROTO_SGES || read >= rs->rq / 2)) {
		uint32_t imm = proto_imm(PROTO_CREDIT, (head + rs->rq) & 0xffff);

		/* The last one is for rshutdown(). */
		if (atomic_load(&rs->tx.ctrl) >= CTRL_MAX - 1) {
			rx->due = true;
			return;
		}
		if (read)
			post_receives(rs, read);
		rx->granted_at = head;
		read = 0;
		ret = rx->announced < PROTO_SGES ? announce(rs, imm) : post_ctrl(rs, imm);
	}
}

void credit_give(struct rs *rs)
{
	pthread_mutex_lock(&rs->credit_lock);
	give_locked(rs);
	pthread_mutex_unlock(&rs->credit_lock);
}

void credit_region_read(struct rs *rs)
{
	pthread_mutex_lock(&rs->credit_lock);
	rs->rx.first = (rs->rx.first + 1) % PROTO_SGES;
	rs->rx.announced--;
	rs->rx.off = 0;
	pthread_mutex_unlock(&rs->credit_lock);
}
