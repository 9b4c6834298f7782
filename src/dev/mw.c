/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory windows, types 1 and 2B: remote keys to a part of a region.
 *
 * Design notes.
 *
 * A window has a slot of the key table (mr.c) while it exists. While it is bound, the
 * slot is filled like that of a region and its key is published; else the key is
 * withdrawn. So mr_get_remote() needs to know little of windows, and unbinding is like
 * deregistering.
 *
 * Binding and invalidating are work requests: post.c makes a WQE of them. It names window
 * and region by key, as either may be destroyed before the WQE is carried out. The
 * transport has them carried out in the order of the send queue (sq_run_local_locked()).
 * Errors that are found then are completions with MW_BIND_ERR ("memory management
 * operation error" in the specification). Only a request that is wrong for every window
 * of this type is refused when it is posted.
 *
 * Numbers such as o10-37.2.30 are clauses of the InfiniBand specification. */
#include "base/log.h"
#include "base/state.h"
#include "dev/mr_slot.h"
#include "dev/transport.h"
#include "dev/verbs.h"
#include "dev/wqe.h"

#include <errno.h>
#include <stdlib.h>

#define ACCESS_STORE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
#define ACCESS_WINDOW (ACCESS_STORE | IBV_ACCESS_REMOTE_READ)

/* Guards the slots of windows, except the words that users count and compare, and which
 * windows are bound to a region. It is held while unbind_locked() waits for users of a
 * window: those are threads of this process that copy, and do not need the lock. */
static struct lock bind_lock PROCESS_STATE = LOCK_INIT;

static void unbind_locked(struct mr_slot *s)
{
	lock_assert_held(&bind_lock);
	slot_withdraw(s);
	if (s->region)
		s->region->windows--;
	s->region = NULL;
}

int mw_region_withdraw(struct mr_slot *region)
{
	uint32_t n;

	if (!(region->access & IBV_ACCESS_MW_BIND)) {
		slot_withdraw(region);
		return 0;
	}
	lock_get(&bind_lock);
	n = region->windows;
	if (!n)
		slot_close(region); /* region_get() fails from here on */
	lock_put(&bind_lock);
	if (!n) {
		slot_withdraw(region);
		return 0;
	}
	return log_refuse(EBUSY, "the region with key 0x%x has %u windows bound to it",
			  slot_key(region), n);
}

/* ---- alloc, dealloc --------------------------------------------------------- */

int mw_alloc(struct dev_pd *pd, enum ibv_mw_type type, struct dev_mw **out)
{
	struct dev_mw *mw;

	if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2)
		return log_refuse(EINVAL, "ibv_alloc_mw: type %d, there are 1 and 2",
				  (int)type);
	mw = calloc(1, sizeof(*mw));
	if (!mw)
		return -ENOMEM;
	mw->slot = slot_alloc(type == IBV_MW_TYPE_1 ? SLOT_MW1 : SLOT_MW2);
	if (!mw->slot) {
		free(mw);
		return log_refuse(ENOMEM,
				  "ibv_alloc_mw: %d windows exist, no more are allowed",
				  DEV_MAX_MW);
	}
	lock_get(&bind_lock);
	mw->slot->pd = pd_root(pd);
	mw->slot->window = mw;
	lock_put(&bind_lock);
	object_init(&mw->object, pd->object.context);
	mw->mw.context = mw->object.context;
	mw->mw.pd = &pd->pd;
	mw->mw.rkey = slot_key(mw->slot);
	mw->mw.handle = mw->object.handle;
	mw->mw.type = type;
	atomic_fetch_add(&pd->refs, 1);
	*out = mw;
	return 0;
}

void mw_dealloc(struct dev_mw *mw)
{
	lock_get(&bind_lock);
	unbind_locked(mw->slot);
	mw->slot->window = NULL;
	lock_put(&bind_lock);
	slot_free(mw->slot);
	atomic_fetch_sub(&to_pd(mw->mw.pd)->refs, 1);
	free(mw);
}

/* ---- posting ---------------------------------------------------------------- */

/* Rights that regions have and windows have not: NICs ignore them. */
#define ACCESS_IGNORED \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND | IBV_ACCESS_ON_DEMAND | \
	 IBV_ACCESS_HUGETLB | (unsigned)IBV_ACCESS_OPTIONAL_RANGE)

static int access_check(enum ibv_mw_type type, const struct ibv_mw *mw, unsigned access)
{
	unsigned allowed = ACCESS_WINDOW;

	if (type == IBV_MW_TYPE_2) /* o10-36.2.2: not for type 1 */
		allowed |= IBV_ACCESS_ZERO_BASED;
	if (access & ~allowed & ~ACCESS_IGNORED)
		return log_refuse(EINVAL,
				  "binding window 0x%x: access 0x%x, a window of type %d "
				  "has 0x%x at most",
				  mw->rkey, access, (int)type, allowed);
	if (access & ~allowed)
		log_info("binding window 0x%x: access 0x%x is ignored: windows have remote "
			 "rights alone",
			 mw->rkey, access & ~allowed);
	return 0;
}

/* The key of the window with these low 8 bits. NICs take no others from a request, though
 * the specification wants it refused if they differ. */
static uint32_t new_key(const struct ibv_mw *mw, uint32_t base, uint32_t wanted)
{
	uint32_t key = base | (wanted & 0xff);

	if (key != wanted)
		log_info("binding window 0x%x: key 0x%x is none of this window's, it becomes "
			 "0x%x",
			 mw->rkey, wanted, key);
	return key;
}

int mw_wqe_fill(struct wqe *w, enum ibv_mw_type type, struct ibv_mw *mw, uint32_t rkey,
		const struct ibv_mw_bind_info *info)
{
	int ret;

	if (!mw || mw->type != type) /* o10-37.2.34, 35 */
		return log_refuse(EINVAL,
				  "binding a window: %s, ibv_bind_mw takes type 1 and a "
				  "work request type 2",
				  mw ? "wrong type" : "none is given");
	if (!info->mr && (info->addr || info->length))
		return log_refuse(EINVAL, "binding window 0x%x: a range, but no region",
				  mw->rkey);
	ret = access_check(type, mw, info->mw_access_flags);
	if (ret)
		return ret;
	w->imm_or_rkey = slot_key_base(to_mw(mw)->slot);
	w->rkey = mw->rkey = new_key(mw, w->imm_or_rkey, rkey);
	w->raddr = info->addr;
	w->bind_len = info->length;
	w->bind_lkey = info->mr ? info->mr->lkey : 0;
	w->bind_access = info->mw_access_flags & (ACCESS_WINDOW | IBV_ACCESS_ZERO_BASED);
	return 0;
}

static int post_locked(struct dev_qp *qp, struct dev_mw *mw,
		       const struct ibv_mw_bind *bind)
{
	uint32_t rkey = ibv_inc_rkey(mw->mw.rkey), tail = qp->sq.tail;
	struct wqe *w = sq_at(&qp->sq, tail);
	int ret;

	lock_assert_held(&qp->lock);
	ret = post_state_locked(qp);
	if (!ret)
		ret = wqe_room(qp, tail);
	if (!ret)
		ret = wqe_begin(qp, w, bind->wr_id, IBV_WR_BIND_MW, bind->send_flags);
	if (!ret)
		ret = mw_wqe_fill(w, IBV_MW_TYPE_1, &mw->mw, rkey, &bind->bind_info);
	if (!ret)
		qp->sq.tail++;
	return ret;
}

int mw_bind(struct dev_qp *qp, struct dev_mw *mw, const struct ibv_mw_bind *bind)
{
	const struct dev_transport *tr;
	int ret;

	if (qp->is_ex && !qp_ex_enter(qp))
		return log_refuse(EINVAL,
				  "ibv_bind_mw: QP 0x%x: between ibv_wr_start and "
				  "ibv_wr_complete of the same thread",
				  qp->qp.qp_num);
	lock_get(&qp->lock);
	ret = post_locked(qp, mw, bind);
	tr = post_submit_locked(qp);
	lock_put(&qp->lock);
	if (qp->is_ex)
		qp_ex_leave(qp);
	if (tr)
		tr->kick(qp);
	return ret;
}

/* ---- carrying out ----------------------------------------------------------- */

/* NULL, or why the window cannot be bound to the region (NULL: to none). */
static const char *bind_refusal(const struct mr_slot *s, const struct mr_slot *mr,
				const struct dev_qp *qp, const struct wqe *w)
{
	if (s->pd != qp->pd) /* C10-72 */
		return "the window is of another PD than the QP";
	if (s->kind == SLOT_MW2) {
		if (s->region) /* o10-37.2.30 */
			return "the window is bound: type 2 has to be invalidated first";
		if (!w->bind_len) /* o10-37.2.40 */
			return "no bytes: type 2 is unbound by invalidating";
	}
	if (!w->bind_len)
		return NULL;
	if (!mr)
		return "no such region";
	if (mr->pd != qp->pd)
		return "the region is of another PD than the QP";
	if (mr->access & IBV_ACCESS_ZERO_BASED)
		return "the region is zero based";
	if (!(mr->access & IBV_ACCESS_MW_BIND)) /* C10-73 */
		return "the region was registered without IBV_ACCESS_MW_BIND";
	if ((w->bind_access & ACCESS_STORE) &&
	    !(mr->access & IBV_ACCESS_LOCAL_WRITE)) /* C10-74 */
		return "the region may not be written";
	if (w->raddr < mr->iova || w->raddr - mr->iova > mr->len ||
	    w->bind_len > mr->len - (w->raddr - mr->iova)) /* C10-75 */
		return "not within the region";
	return NULL;
}

static void bind_apply_locked(struct mr_slot *s, struct mr_slot *mr,
			      const struct dev_qp *qp, const struct wqe *w)
{
	lock_assert_held(&bind_lock);
	unbind_locked(s);
	s->tag = (uint8_t)w->rkey;
	if (!w->bind_len)
		return;
	s->access = w->bind_access & ACCESS_WINDOW;
	s->iova = w->bind_access & IBV_ACCESS_ZERO_BASED ? 0 : w->raddr;
	s->len = w->bind_len;
	s->addr = mr->addr + (w->raddr - mr->iova);
	s->qp_id = qp->id;
	s->region = mr;
	mr->windows++;
	slot_publish(s);
}

/* The slot of a window that exists, whatever the low 8 bits of the key. */
static struct mr_slot *window_find_locked(uint32_t key)
{
	struct mr_slot *s = slot_find(key);

	lock_assert_held(&bind_lock);
	return s && s->window ? s : NULL;
}

/* Held in use, as mr_get() does: mr_put(). */
static struct mr_slot *region_get(uint32_t lkey)
{
	struct mr_slot *s = slot_find(lkey);

	if (!s)
		return NULL;
	atomic_fetch_add(&s->in_use, 1);
	if (atomic_load(&s->key) == lkey && s->kind == SLOT_MR)
		return s;
	mr_put(s);
	return NULL;
}

static enum ibv_wc_status bind(struct dev_qp *qp, const struct wqe *w)
{
	const char *why = "the window is gone";
	struct mr_slot *s, *mr;

	lock_get(&bind_lock);
	s = window_find_locked(w->imm_or_rkey);
	mr = region_get(w->bind_lkey);
	if (s)
		why = bind_refusal(s, mr, qp, w);
	if (!why)
		bind_apply_locked(s, mr, qp, w);
	if (mr)
		mr_put(mr);
	lock_put(&bind_lock);
	if (!why)
		return IBV_WC_SUCCESS;
	log_info("QP 0x%x: binding window 0x%x to %llu bytes at %#llx of region 0x%x: %s",
		 qp->qp.qp_num, w->imm_or_rkey, (unsigned long long)w->bind_len,
		 (unsigned long long)w->raddr, w->bind_lkey, why);
	return IBV_WC_MW_BIND_ERR;
}

int mw_invalidate(const struct dev_qp *qp, uint32_t key)
{
	const char *why = NULL;
	struct mr_slot *s;

	lock_get(&bind_lock);
	s = window_find_locked(key);
	if (!s || s->kind != SLOT_MW2) /* o10-37.2.26 */
		why = "it names no window of type 2";
	else if (atomic_load(&s->key) != key)
		why = "the window is not bound, or has another key now";
	else if (s->pd != qp->pd || s->qp_id != qp->id)
		why = "the window is bound through another QP";
	else
		unbind_locked(s);
	lock_put(&bind_lock);
	if (!why)
		return 0;
	return log_refuse(EINVAL, "QP 0x%x: invalidating key 0x%x: %s", qp->qp.qp_num,
			  key, why);
}

enum ibv_wc_status mw_execute(struct dev_qp *qp, const struct wqe *w)
{
	if (w->opcode == IBV_WR_BIND_MW)
		return bind(qp, w);
	return mw_invalidate(qp, w->imm_or_rkey) ? IBV_WC_MW_BIND_ERR : IBV_WC_SUCCESS;
}
