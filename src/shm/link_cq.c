/* SPDX-License-Identifier: BSD-2-Clause */
/* The CQs of a link: in the poll group of each the link is one of the sources. */
#include "shm/link_rx.h"

#include <errno.h>
#include <stdlib.h>

static bool member_progress(struct poll_source *src, bool by_thread)
{
	struct link_cq *m = container_of(src, struct link_cq, src);
	bool moved = link_run(m->l, by_thread);

	src->again = atomic_load_explicit(&m->l->owes, memory_order_relaxed);
	return moved;
}

static bool member_quiet(struct poll_source *src)
{
	return link_looks_idle(container_of(src, struct link_cq, src)->l);
}

static void member_lease(struct poll_source *src, bool leased)
{
	struct link_cq *m = container_of(src, struct link_cq, src);

	lock_get(&m->l->rx_lock);
	if (m->leased != leased) {
		m->leased = leased;
		m->l->leases += leased ? 1u : -1u;
	}
	link_reconsider(m->l);
	lock_put(&m->l->rx_lock);
}

static struct list *cq_bucket(struct link *l, const struct dev_cq *cq)
{
	/* The lowest bits of what malloc gives are always the same. */
	return &l->by_cq[((uintptr_t)cq >> 4) * 2654435761u >> 8 & (LINK_CQ_BUCKETS - 1)];
}

static struct link_cq *member_find(struct link *l, struct dev_cq *cq)
{
	struct link_cq *m;

	list_for_each(m, cq_bucket(l, cq), by_cq)
		if (m->cq == cq)
			return m;
	return NULL;
}

/* match.lock serialises joining and leaving. */
int link_cq_join(struct link *l, struct dev_cq *cq, struct link_cq **out)
{
	struct link_cq *m;
	int ret;

	lock_get(&l->rx_lock);
	m = member_find(l, cq);
	if (m)
		m->streams++;
	lock_put(&l->rx_lock);
	*out = m;
	if (m)
		return 0;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->l = l;
	m->cq = cq;
	m->streams = 1;
	m->src.fd = -1;
	m->src.progress = member_progress;
	m->src.quiet = member_quiet;
	m->src.lease = member_lease;
	ret = poll_add(cq, &m->src);
	if (ret) {
		free(m);
		return ret;
	}
	link_get(l);
	lock_get(&l->rx_lock);
	list_add_head(&l->members, &m->node);
	list_add_head(cq_bucket(l, cq), &m->by_cq);
	link_reconsider(l);
	lock_put(&l->rx_lock);
	*out = m;
	return 0;
}

void link_cq_leave(struct link_cq *m)
{
	struct link *l = m->l;
	bool last;

	lock_get(&l->rx_lock);
	last = !--m->streams;
	if (last) {
		list_del(&m->node);
		list_del(&m->by_cq);
	}
	lock_put(&l->rx_lock);
	if (!last)
		return;
	poll_del(&m->src); /* pollers may have leased it up to here */
	lock_get(&l->rx_lock);
	if (m->leased)
		l->leases--;
	link_reconsider(l);
	/* A poller of this CQ alone knew that others' streams are to be looked at again. */
	if (!l->dead && !list_empty(&l->owing))
		link_wake_self(l);
	lock_put(&l->rx_lock);
	free(m);
	link_put(l);
}
