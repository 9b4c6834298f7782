/* SPDX-License-Identifier: BSD-2-Clause */
/* Work requests for what the plan says, and the ways to post them. */
#include "stress.h"

#include <arpa/inet.h>
#include <string.h>

static void remote_of(struct ep *e, const struct op *op, uint64_t *addr, uint32_t *key)
{
	const struct sh_side *s = &sh->side[!e->side->id];
	const struct sh_end *p = end_peer(e);

	*addr = p->win;
	*key = p->win_key;
	switch (op->kind) {
	case OP_WRITE:
	case OP_WRITE_IMM:
	case OP_ATOMIC_WRITE:
		if (op->big) {
			*addr = s->slot[e->sq.token];
			*key = s->slot_key;
		} else {
			*addr += op->at % sh->o.arena;
		}
		break;
	case OP_READ_BACK:
		*addr += op->at % sh->o.arena;
		break;
	case OP_READ:
		*addr = s->fixed + op->at;
		*key = s->fixed_key;
		break;
	case OP_CELL_READ:
	case OP_CELL_WRITE:
		*addr += sh->o.arena;
		break;
	case OP_CAS:
		*addr += sh->o.arena + CELL;
		break;
	default:
		*addr = s->words + 8 * op->word;
		*key = s->words_key;
	}
}

static void remote_fault(struct ep *e, const struct op *op, uint64_t *addr, uint32_t *key)
{
	const struct sh_side *s = &sh->side[!e->side->id];
	const struct sh_end *p = end_peer(e);
	bool atomic = kind_info[op->kind].atomic;

	switch (op->fault) {
	case F_RKEY:
		*key ^= 0x5a5a00;
		break;
	case F_STALE:
		*key = atomic_load(&p->window_dead) ? atomic_load(&p->window_dead) :
		       p->stale_key		    ? p->stale_key :
						      *key ^ 0x5a5a00;
		break;
	case F_BEYOND:
		*addr = p->win + sh->o.arena + CELL + 64 - (atomic ? 0 : op->len - 1);
		*key = p->win_key;
		break;
	case F_BEFORE:
		*addr = p->win - (atomic ? 8 : 1);
		*key = p->win_key;
		break;
	case F_PD:
		*addr = s->alien;
		*key = s->alien_key;
		break;
	case F_RIGHTS:
		*addr = s->closed;
		*key = s->closed_key;
		break;
	case F_ALIGN:
		*addr += 4;
		break;
	default:
		break;
	}
}

static void local_fault(struct ep *e, const struct op *op, struct ibv_sge *sge, int n)
{
	int i = 0;

	while (i + 1 < n && !sge[i].length)
		i++;
	switch (op->fault) {
	case F_LKEY:
		sge[i].lkey ^= 0x5a5a00;
		break;
	case F_LBEYOND:
		sge[i].addr = (uintptr_t)e->side->ep_mem + e->side->ep_mem_len -
			      (sge[i].length - 1);
		sge[i].lkey = e->side->ep_mr->lkey;
		break;
	case F_LPD:
		sge[i].addr = (uintptr_t)e->side->alien;
		sge[i].lkey = e->side->alien_mr->lkey;
		break;
	default:
		break;
	}
}

static void atomic_fill(struct ep *e, struct sq_rec *rec, struct ibv_send_wr *wr)
{
	const struct op *op = &rec->op;
	struct sh_word *w = &sh->side[!e->side->id].word[op->word];

	wr->wr.atomic.remote_addr = wr->wr.rdma.remote_addr;
	wr->wr.atomic.rkey = wr->wr.rdma.rkey;
	wr->wr.atomic.compare_add = op->compare;
	wr->wr.atomic.swap = op->swap;
	if (op->kind == OP_FAA)
		wr->wr.atomic.compare_add = 1;
	if (op->kind == OP_CAS_SHARED) {
		rec->guess = e->sq.guess[op->word - FAA_WORDS];
		wr->wr.atomic.compare_add = rec->guess;
		wr->wr.atomic.swap = rec->guess + 1;
	}
	if (op->kind != OP_CAS && !op->fault)
		atomic_fetch_add(&w->posted, 1);
}

void wr_fill(struct ep *e, struct sq_rec *rec, struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	const struct op *op = &rec->op;
	const struct kind_info *k = &kind_info[op->kind];
	uint64_t addr;
	uint32_t key;

	memset(wr, 0, sizeof(*wr));
	wr->wr_id = wr_id(WR_SEND, e->link, e->gen, op->seq);
	wr->sg_list = sge;
	wr->num_sge = buf_sges(&rec->b, sge);
	wr->opcode = k->wr;
	wr->send_flags = op->flags;
	wr->imm_data = htonl(op->imm);
	if (e->c.ud) {
		wr->wr.ud.ah = e->ah;
		wr->wr.ud.remote_qpn = end_peer(e)->rqpn;
		wr->wr.ud.remote_qkey = ud_qkey(e);
	}
	if (e->c.xrc)
		wr->qp_type.xrc.remote_srqn = sh->side[!e->side->id].xrc_srqn;
	if (my_cfg(e)->sig_all && op->seq % 2)
		wr->send_flags &= ~(unsigned)IBV_SEND_SIGNALED;
	if (k->local) {
		window_fill(e, rec, wr);
		return;
	}
	if (op->kind == OP_SEND_INV) {
		rec->inv_key = window_give_up(e, op);
		wr->opcode = rec->inv_key ? IBV_WR_SEND_WITH_INV : IBV_WR_SEND;
		wr->invalidate_rkey = rec->inv_key;
	}
	if (k->remote) {
		remote_of(e, op, &addr, &key);
		if (!op->big && (k->ring || op->kind == OP_READ_BACK) && !op->fault) {
			uint32_t window = window_use(e, op);

			key = window ? window : key;
		}
		remote_fault(e, op, &addr, &key);
		wr->wr.rdma.remote_addr = addr;
		wr->wr.rdma.rkey = key;
	}
	if (k->atomic)
		atomic_fill(e, rec, wr);
	local_fault(e, op, sge, wr->num_sge);
}

/* ---- posting ------------------------------------------------------------- */

static void build_op(struct ibv_qp_ex *x, const struct ibv_send_wr *wr)
{
	uint32_t key = wr->wr.rdma.rkey;
	uint64_t addr = wr->wr.rdma.remote_addr;

	switch (wr->opcode) {
	case IBV_WR_SEND: ibv_wr_send(x); break;
	case IBV_WR_SEND_WITH_IMM: ibv_wr_send_imm(x, wr->imm_data); break;
	case IBV_WR_SEND_WITH_INV: ibv_wr_send_inv(x, wr->invalidate_rkey); break;
	case IBV_WR_RDMA_WRITE: ibv_wr_rdma_write(x, key, addr); break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		ibv_wr_rdma_write_imm(x, key, addr, wr->imm_data);
		break;
	case IBV_WR_RDMA_READ: ibv_wr_rdma_read(x, key, addr); break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		ibv_wr_atomic_fetch_add(x, wr->wr.atomic.rkey, addr,
					wr->wr.atomic.compare_add);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		ibv_wr_atomic_cmp_swp(x, wr->wr.atomic.rkey, addr, wr->wr.atomic.compare_add,
				      wr->wr.atomic.swap);
		break;
	case IBV_WR_ATOMIC_WRITE:
		ibv_wr_atomic_write(x, key, addr, (void *)(uintptr_t)wr->sg_list[0].addr);
		break;
	case IBV_WR_LOCAL_INV: ibv_wr_local_inv(x, wr->invalidate_rkey); break;
	case IBV_WR_BIND_MW:
		ibv_wr_bind_mw(x, wr->bind_mw.mw, wr->bind_mw.rkey, &wr->bind_mw.bind_info);
		break;
	default: break;
	}
}

static void build_data(struct ibv_qp_ex *x, const struct ibv_send_wr *wr)
{
	const struct ibv_sge *sge = wr->sg_list;
	struct ibv_data_buf buf[MAX_PIECES];
	size_t n = (size_t)wr->num_sge;

	if (wr->opcode == IBV_WR_ATOMIC_WRITE || wr->opcode == IBV_WR_LOCAL_INV ||
	    wr->opcode == IBV_WR_BIND_MW)
		return;
	if (!(wr->send_flags & IBV_SEND_INLINE)) {
		if (n == 1)
			ibv_wr_set_sge(x, sge->lkey, sge->addr, sge->length);
		else
			ibv_wr_set_sge_list(x, n, sge);
		return;
	}
	if (n == 1) {
		ibv_wr_set_inline_data(x, (void *)(uintptr_t)sge->addr, sge->length);
		return;
	}
	for (size_t i = 0; i < n; i++)
		buf[i] = (struct ibv_data_buf){ (void *)(uintptr_t)sge[i].addr, sge[i].length };
	ibv_wr_set_inline_data_list(x, n, buf);
}

static void build(struct ibv_qp_ex *x, const struct ibv_send_wr *wr, uint64_t id)
{
	x->wr_id = id;
	x->wr_flags = wr->send_flags & ~(unsigned)IBV_SEND_INLINE;
	build_op(x, wr);
	if (x->qp_base.qp_type == IBV_QPT_UD)
		ibv_wr_set_ud_addr(x, wr->wr.ud.ah, wr->wr.ud.remote_qpn,
				   wr->wr.ud.remote_qkey);
	build_data(x, wr);
}

static int post_built(struct ep *e, const struct ibv_send_wr *wr, unsigned n, struct rng *r)
{
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(e->qp);

	if (rng_chance(r, 10)) { /* nothing of this may come back */
		ibv_wr_start(x);
		for (unsigned i = 0; i < n; i++)
			build(x, &wr[i], 0xdead);
		ibv_wr_abort(x);
	}
	ibv_wr_start(x);
	for (unsigned i = 0; i < n; i++)
		build(x, &wr[i], wr[i].wr_id);
	return ibv_wr_complete(x);
}

static int post_listed(struct ep *e, struct ibv_send_wr *wr, unsigned n, unsigned *done)
{
	struct ibv_send_wr *bad = NULL;
	int ret;

	for (unsigned i = 0; i < n; i++)
		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
	ret = ibv_post_send(e->qp, wr, &bad);
	if (ret && bad)
		*done += (unsigned)(bad - wr);
	return ret;
}

/* Windows of type 1 have a call of their own. */
static int post_bind(struct ep *e, const struct ibv_send_wr *wr)
{
	struct ibv_mw_bind b = {
		.wr_id = wr->wr_id,
		.send_flags = wr->send_flags,
		.bind_info = wr->bind_mw.bind_info,
	};
	int ret = ibv_bind_mw(e->qp, e->mw, &b);

	e->mw_key = e->mw->rkey;
	return ret;
}

int wr_post(struct ep *e, struct chain *c, struct rng *r, unsigned *done)
{
	bool built = my_cfg(e)->ex && rng_chance(r, 60);
	int ret = 0;

	for (unsigned i = 0, k; i < c->n && !ret; i = k) {
		bool bind = my_cfg(e)->mw == 1 && c->wr[i].opcode == IBV_WR_BIND_MW;

		for (k = i + 1; !bind && k < c->n; k++)
			if (my_cfg(e)->mw == 1 && c->wr[k].opcode == IBV_WR_BIND_MW)
				break;
		*done = i;
		ret = bind ? post_bind(e, &c->wr[i]) :
		      built ? post_built(e, &c->wr[i], k - i, r) :
			      post_listed(e, &c->wr[i], k - i, done);
	}
	if (e->c.ud && rng_chance(r, 10)) /* what was posted does not need it any more */
		ud_address_renew(e);
	return ret;
}
