/* SPDX-License-Identifier: BSD-2-Clause */
/* The table for the device: datagrams, whatever carries them; and the life of a ud_qp. */
#include "dev/gid.h"
#include "ud/ud.h"

#include <errno.h>
#include <stdlib.h>

void ud_get(struct ud_qp *u)
{
	atomic_fetch_add_explicit(&u->refs, 1, memory_order_relaxed);
}

void ud_put(struct ud_qp *u)
{
	if (atomic_fetch_sub(&u->refs, 1) != 1)
		return;
	lock_fini(&u->tx_lock);
	lock_fini(&u->rx_lock);
	traffic_end(&u->traffic);
	lock_fini(&u->answers_lock);
	free(u->bounce);
	free(u);
}

void **ud_priv(struct ud_qp *u, const struct ud_carrier *c)
{
	unsigned i = 0;

	while (ud_carriers[i] != c)
		i++;
	return &u->priv[i];
}

uint32_t ud_qpn(const struct ud_qp *u)
{
	return u->qpn;
}

struct dev_cq *ud_cq(const struct ud_qp *u)
{
	return u->cq;
}

/* With a reference: another thread may reset the QP meanwhile. */
static struct ud_qp *ud_of(struct dev_qp *qp)
{
	struct ud_qp *u;

	lock_get(&qp->lock);
	u = qp->tr_priv;
	if (u)
		ud_get(u);
	lock_put(&qp->lock);
	return u;
}

static struct ud_qp *ud_new(struct dev_qp *qp)
{
	struct ud_qp *u = calloc(1, sizeof(*u));

	if (!u)
		return NULL;
	u->bounce = malloc(UD_PAYLOAD_MAX);
	if (!u->bounce) {
		free(u);
		return NULL;
	}
	u->qp = qp;
	u->qpn = qp->qp.qp_num;
	u->cq = qp->poll_cq;
	atomic_init(&u->refs, 1);
	lock_init(&u->tx_lock);
	lock_init(&u->rx_lock);
	lock_init(&u->answers_lock);
	list_init(&u->lru);
	u->timer.fire = ud_timer_fire;
	u->answer.run = ud_answer_run;
	u->more.run = ud_more_run;
	u->group.by = ud_last_carrier();
	atomic_init(&u->traffic.device, qp->device);
	traffic_begin(&u->traffic);
	return u;
}

static int listen_for(struct dev_qp *qp)
{
	for (int i = 0; ud_carriers[i]; i++) {
		int ret = ud_carriers[i]->listen(qp);

		if (ret)
			return ret;
	}
	return 0;
}

/* The first n carriers forget the QP, and so does everybody else. */
static void forget(struct ud_qp *u, int n)
{
	ud_table_del(u);
	lock_get(&u->tx_lock);
	lock_get(&u->rx_lock);
	u->gone = true;
	ud_paths_free(u);
	lock_put(&u->rx_lock);
	lock_put(&u->tx_lock);
	while (n-- > 0)
		ud_carriers[n]->detach(u);
	ud_put(u);
}

static int attach(struct dev_qp *qp)
{
	struct ud_qp *u = ud_new(qp);
	int i, ret = 0;

	if (!u)
		return -ENOMEM;
	gid_watch(ud_paths_changed);
	for (i = 0; !ret && ud_carriers[i]; i++)
		ret = ud_carriers[i]->attach(u);
	if (ret) {
		forget(u, i - 1);
		return ret;
	}
	/* Only now: what comes may have to be answered, by a carrier that knows the QP. */
	lock_get(&qp->lock);
	qp->tr_priv = u;
	lock_put(&qp->lock);
	ud_table_add(u);
	return 0;
}

/* Whoever uses the QP's work requests holds one of the locks. */
static void stop(struct dev_qp *qp)
{
	struct ud_qp *u = ud_of(qp);

	if (!u)
		return;
	lock_get(&u->tx_lock);
	lock_put(&u->tx_lock);
	lock_get(&u->rx_lock);
	lock_put(&u->rx_lock);
	ud_put(u);
}

static void detach(struct dev_qp *qp)
{
	struct ud_qp *u;

	lock_get(&qp->lock);
	u = qp->tr_priv;
	qp->tr_priv = NULL;
	lock_put(&qp->lock);
	if (u)
		forget(u, ud_last_carrier() + 1);
}

static void kick(struct dev_qp *qp)
{
	struct ud_qp *u = ud_of(qp);

	if (!u)
		return;
	ud_run(u, UD_TODO_SEND);
	ud_put(u);
}

static int mcast_attach(struct dev_qp *qp, const union ibv_gid *group)
{
	const struct ud_carrier *c = ud_carriers[ud_last_carrier()];
	struct ud_qp *u = ud_of(qp);
	int ret;

	if (!u)
		return -EINVAL;
	ret = ud_group_join(u, group);
	if (!ret) {
		ret = c->join(u, group);
		if (ret)
			ud_group_leave(u, group);
	}
	ud_put(u);
	return ret == -EALREADY ? 0 : ret;
}

static void mcast_detach(struct dev_qp *qp, const union ibv_gid *group)
{
	const struct ud_carrier *c = ud_carriers[ud_last_carrier()];
	struct ud_qp *u = ud_of(qp);

	if (!u)
		return;
	if (!ud_group_leave(u, group))
		c->leave(u, group);
	ud_put(u);
}

const struct dev_transport ud_transport = {
	.name = "ud",
	.listen = listen_for,
	.attach = attach,
	.kick = kick,
	.post_locked = ud_post_locked,
	.stop = stop,
	.detach = detach,
	.mcast_attach = mcast_attach,
	.mcast_detach = mcast_detach,
};
