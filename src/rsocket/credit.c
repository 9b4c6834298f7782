/* SPDX-License-Identifier: BSD-2-Clause */
/* What the peer may send: so many messages, and bytes into the regions that it was told
 * of. Two are announced at a time; one that was read is announced again. Then it may be
 * another one: a region that was read fast is followed by a larger one, up to half of
 * SO_RCVBUF, one that was read slowly by the small one that every socket keeps. */
#include "rsocket/rs.h"

#include <errno.h>

enum { FAST_NS = 2000000, SLOW_NS = 1000000000, GROW = 4 };

static void region_free(struct region *r)
{
	if (!r->mr)
		return;
	ibv_dereg_mr(r->mr);
	free(r->buf);
	r->mr = NULL;
}

static void region_small(struct rs *rs, struct region *r)
{
	region_free(r);
	r->buf = rs->base + (size_t)(r - rs->rx.reg) * rs->base_len;
	r->len = rs->base_len;
}

static void region_grow(struct rs *rs, struct region *r, uint32_t len)
{
	uint8_t *buf = malloc(len);
	struct ibv_mr *mr;

	if (!buf)
		return;
	mr = ibv_reg_mr(rs->hub->pd, buf, len,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!mr) {
		free(buf);
		return;
	}
	region_free(r);
	*r = (struct region){ buf, len, mr };
}

/* Makes r as large as it is worth. */
static void region_fit(struct rs *rs, struct region *r)
{
	uint64_t now = now_ns(), took = now - rs->rx.announced_at;
	uint32_t most = rs->opts.rcvbuf / 2;

	if (rs->rx.announced_at && took < FAST_NS && r->len < most)
		region_grow(rs, r, r->len <= most / GROW ? r->len * GROW : most);
	else if (took > SLOW_NS && r->mr)
		region_small(rs, r);
	rs->rx.announced_at = now;
}

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

	region_fit(rs, r);
	s = (struct proto_sge){ (uintptr_t)r->buf, (r->mr ? r->mr : rs->mr)->rkey, r->len };
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

void credit_free(struct rs *rs)
{
	for (int i = 0; i < PROTO_SGES; i++)
		region_free(&rs->rx.reg[i]);
}
