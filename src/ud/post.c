/* SPDX-License-Identifier: BSD-2-Clause */
/* The fast path of the common case: short datagrams of one piece, to a peer that a carrier
 * reaches without a system call. It does what send.c does, under the one hold of qp->lock
 * that posts the work requests. What it cannot handle it leaves to send.c, unchanged. */
#include "dev/gid.h"
#include "dev/sge.h"
#include "ud/tap.h"
#include "ud/ud.h"

/* The path of the WQE is the one used last, and nothing about it has changed. */
static const struct ud_path *same_path(const struct ud_qp *u, const struct wqe *w)
{
	const struct ud_path *p = u->last;

	return p && p->asked == ud_path_changes_now() && !w->av->mcast && p->by >= 0 &&
			       ud_path_is_of(p, w->av, qpn_port(w->remote_qpn)) ?
		       p :
		       NULL;
}

/* u->mtu, by the table of addresses, whose changes are those of paths, too. */
static uint32_t mtu(struct ud_qp *u)
{
	uint32_t now = ud_path_changes_now();

	if (u->mtu_asked != now) {
		u->mtu = 128u << gid_active_mtu(u->qp->device);
		u->mtu_asked = now;
	}
	return u->mtu;
}

/* One datagram. False: nothing has changed. */
static bool post_one(struct ud_qp *u, struct wqe *w)
{
	const struct ud_path *p = same_path(u, w);
	struct mr_ref from = { NULL, NULL };
	struct ud_out o;
	bool taken;

	lock_assert_held(&u->tx_lock);
	lock_assert_held(&u->qp->lock);
	if (!p || !ud_carriers[p->by]->post || w->length > mtu(u) ||
	    !av_serves(w->av, u->qp) || !(w->is_inline || w->num_sge == 1 || !w->length))
		return false;
	o.av = w->av;
	o.first = 1;
	o.n = w->length != 0;
	if (w->is_inline) {
		o.iov[1] = (struct iovec){ wqe_inline(w), w->length };
	} else if (w->length) {
		struct mr_range r = { w->sge[0].lkey, w->sge[0].addr, w->length };

		if (mr_get(u->qp->pd, &r, MR_LOCAL_READ, &from))
			return false; /* send.c says what is wrong */
		o.iov[1] = (struct iovec){ from.ptr, w->length };
	}
	ud_head_fill(u, w, &o.head);
	taken = ud_carriers[p->by]->post(u, p->peer, &o);
	if (from.slot)
		mr_put(from.slot);
	if (!taken) {
		u->psn--;
		return false;
	}
	traffic_count(&u->traffic, TRAFFIC_XMIT, w->length, 1);
	ud_tap_out(&o.head, ud_carriers[p->by]->name);
	return true;
}

/* tx_lock and qp->lock are held. True: all has been sent. */
static bool post_all(struct ud_qp *u)
{
	struct dev_sq *sq = &u->qp->sq;
	uint32_t first = sq->next;

	lock_assert_held(&u->tx_lock);
	lock_assert_held(&u->qp->lock);
	if (u->blocked || u->hold.path || atomic_load_explicit(&u->todo, memory_order_relaxed))
		return false;
	u->sq_psn = u->qp->attr.sq_psn;
	while (sq->next != sq->tail && post_one(u, sq_at(sq, sq->next))) {
		sq_at(sq, sq->next)->finished = 1;
		sq->next++;
	}
	if (sq->next == first)
		return false;
	ud_count_n(UD_SENT, sq->next - first);
	first = sq->next;
	sq_retire_locked(u->qp);
	return first == sq->tail;
}

/* Only tries tx_lock, as it comes before qp->lock. */
NO_TSA bool ud_post_locked(struct dev_qp *qp)
{
	struct ud_qp *u = qp->tr_priv;
	bool all;

	if (!u || !lock_try(&u->tx_lock))
		return false;
	all = post_all(u);
	lock_put(&u->tx_lock);
	/* Whoever did not get tx_lock meanwhile has left something to do: kick() does it. */
	return all && !atomic_load(&u->todo);
}
