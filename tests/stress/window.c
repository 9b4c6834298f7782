/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory windows: an endpoint opens one over its ring for the peer, which uses its key
 * instead of the region's, until it invalidates the window (type 2) or says that
 * it is done with it and the owner unbinds it. */
#include "stress.h"

#include <string.h>

void window_open(struct ep *e)
{
	unsigned type = my_cfg(e)->mw;

	atomic_store(&e->mw_state, MW_CLOSED);
	e->mw_version = e->mw_key = 0;
	atomic_store(&end_mine(e)->window, 0);
	atomic_store(&end_mine(e)->window_dead, 0);
	atomic_store(&end_mine(e)->window_left, 0);
	if (!type)
		return;
	e->mw = ibv_alloc_mw(e->side->pd, type == 1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
	if (!e->mw)
		fail(e, "ibv_alloc_mw: errno %d", errno);
	e->mw_key = e->mw->rkey;
}

void window_close(struct ep *e)
{
	if (e->mw)
		OK(ibv_dealloc_mw(e->mw));
	e->mw = NULL;
}

/* ---- the owner ----------------------------------------------------------- */

static bool left_by_peer(struct ep *e)
{
	return peer_phase(e) >= 0 && atomic_load(&end_peer(e)->window_left) == e->mw_version;
}

/* May it be bound, or unbound, now? */
static bool begin_change(struct ep *e, enum kind kind)
{
	int closed = MW_CLOSED, open = MW_OPEN;

	if (kind == OP_BIND && atomic_compare_exchange_strong(&e->mw_state, &closed, MW_BINDING))
		return true;
	/* Type 1 is bound anew without being unbound. */
	if (kind == OP_BIND && my_cfg(e)->mw == 2)
		return false;
	if (!left_by_peer(e) ||
	    !atomic_compare_exchange_strong(&e->mw_state, &open,
					    kind == OP_BIND ? MW_BINDING : MW_CLOSING))
		return false;
	atomic_store(&end_mine(e)->window, 0);
	return true;
}

/* A write of nothing, which disturbs nobody. */
static void make_harmless(struct ep *e, struct sq_rec *rec, struct ibv_send_wr *wr)
{
	rec->op.kind = OP_CELL_WRITE;
	wr->opcode = IBV_WR_RDMA_WRITE;
	wr->wr.rdma.remote_addr = end_peer(e)->win;
	wr->wr.rdma.rkey = end_peer(e)->win_key;
}

void window_fill(struct ep *e, struct sq_rec *rec, struct ibv_send_wr *wr)
{
	unsigned type = my_cfg(e)->mw;

	if (!begin_change(e, rec->op.kind)) {
		make_harmless(e, rec, wr);
		return;
	}
	if (rec->op.kind == OP_UNBIND && type == 2) {
		wr->opcode = IBV_WR_LOCAL_INV;
		wr->invalidate_rkey = e->mw_key;
		return;
	}
	wr->opcode = IBV_WR_BIND_MW;
	memset(&wr->bind_mw, 0, sizeof(wr->bind_mw));
	if (rec->op.kind == OP_BIND)
		wr->bind_mw.bind_info = (struct ibv_mw_bind_info){
			.mr = e->win_mr,
			.addr = (uintptr_t)e->win,
			.length = sh->o.arena,
			.mw_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
		};
	if (type == 1)
		return;
	e->mw_key = ibv_inc_rkey(e->mw_key);
	wr->bind_mw.mw = e->mw;
	wr->bind_mw.rkey = e->mw_key;
}

void window_done(struct ep *e, const struct op *op)
{
	if (op->kind == OP_UNBIND) {
		atomic_store(&end_mine(e)->window_dead, e->mw_key);
		atomic_store(&e->mw_state, MW_CLOSED);
		return;
	}
	if (my_cfg(e)->mw == 2)
		e->mw->rkey = e->mw_key;
	e->mw_version++;
	atomic_store(&e->mw_state, MW_OPEN);
	atomic_store(&end_mine(e)->window, (uint64_t)e->mw_version << 32 | e->mw_key);
}

void window_taken(struct ep *e, uint32_t key)
{
	uint64_t window = atomic_load(&end_mine(e)->window);
	int open = MW_OPEN;

	if (!window || (uint32_t)window != key)
		fail(e, "the peer has invalidated key %08x, the window has %08x", key,
		     (uint32_t)window);
	atomic_store(&end_mine(e)->window, 0);
	atomic_store(&end_mine(e)->window_dead, key);
	if (!atomic_compare_exchange_strong(&e->mw_state, &open, MW_CLOSED))
		fail(e, "the peer has invalidated a window in state %d", open);
}

/* ---- the user ------------------------------------------------------------ */

/* version << 32 | key of a window that we may use. */
static uint64_t usable(struct ep *e)
{
	uint64_t w = peer_phase(e) >= 0 ? atomic_load(&end_peer(e)->window) : 0;

	return w >> 32 > e->sq.window_shut ? w : 0;
}

uint32_t window_use(struct ep *e, const struct op *op)
{
	uint64_t w = usable(e);

	if (w)
		e->sq.window_used = op->seq + 1;
	return (uint32_t)w;
}

uint32_t window_give_up(struct ep *e, const struct op *op)
{
	uint64_t w = usable(e);

	if (!w || op->fault)
		return 0;
	e->sq.window_shut = (uint32_t)(w >> 32);
	if (e->c.s[!e->side->id].mw == 1 || op->key & 1)
		return 0;
	e->sq.window_used = UINT32_MAX; /* its owner will know without being told */
	return (uint32_t)w;
}

void window_tick(struct ep *e)
{
	struct sq *q = &e->sq;
	/* A write of an unreliable QP is over when it has left. */
	uint32_t over = e->c.uc && peer_phase(e) >= 0 ? atomic_load(&end_peer(e)->verified) :
							 q->head;

	if (q->window_shut && q->window_used <= over)
		atomic_store(&end_mine(e)->window_left, q->window_shut);
}
