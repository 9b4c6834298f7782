/* SPDX-License-Identifier: BSD-2-Clause */
/* The CQs of a link: the link is a source of the poll group of each of them. */
#include "shm/link_rx.h"

#include <errno.h>
#include <stdlib.h>

static bool cq_progress(struct poll_source *src, bool by_thread)
{
	struct link_cq *m = container_of(src, struct link_cq, src);
	bool moved = link_run(m->l, by_thread);

	src->again = atomic_load_explicit(&m->l->after_rx_due, memory_order_relaxed);
	return moved;
}

static bool cq_idle(struct poll_source *src)
{
	return link_seems_idle(container_of(src, struct link_cq, src)->l);
}

/* Whoever arms the CQ gives back its leases then: cq_lease(). */
static void cq_note_armed(struct link_cq *m)
{
	lock_assert_held(&m->l->rx_lock);
	if (m->cq->armed != CQ_IDLE && !list_linked(&m->armed))
		list_add_head(&m->l->armed, &m->armed);
}

static void cq_lease(struct poll_source *src, bool leased)
{
	struct link_cq *m = container_of(src, struct link_cq, src);

	lock_get(&m->l->rx_lock);
	if (m->leased != leased) {
		m->leased = leased;
		m->l->leases += leased ? 1u : -1u;
	}
	cq_note_armed(m);
	link_update_sleep(m->l);
	lock_put(&m->l->rx_lock);
}

static struct list *cq_bucket(struct link *l, const struct dev_cq *cq)
{
	/* The lowest bits of an address from malloc() are always the same. */
	return &l->cq_hash[((uintptr_t)cq >> 4) * 2654435761u >> 8 &
			   (LINK_CQ_BUCKETS - 1)];
}

static struct link_cq *cq_find(struct link *l, struct dev_cq *cq)
{
	struct link_cq *m;

	list_for_each(m, cq_bucket(l, cq), hash)
		if (m->cq == cq)
			return m;
	return NULL;
}

int link_cq_join(struct link *l, struct dev_cq *cq, struct link_cq **out)
{
	struct link_cq *m;
	int ret;

	lock_get(&l->rx_lock);
	m = cq_find(l, cq);
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
	m->src.progress = cq_progress;
	m->src.idle = cq_idle;
	m->src.lease = cq_lease;
	list_init(&m->armed);
	ret = poll_add(cq, &m->src);
	if (ret) {
		free(m);
		return ret;
	}
	link_get(l);
	lock_get(&l->rx_lock);
	cq_note_armed(m); /* before it had the link */
	list_add_head(cq_bucket(l, cq), &m->hash);
	link_update_sleep(l);
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
	if (last)
		list_del(&m->hash);
	lock_put(&l->rx_lock);
	if (!last)
		return;
	poll_del(&m->src); /* up to here pollers may lease it */
	lock_get(&l->rx_lock);
	if (m->leased)
		l->leases--;
	list_del(&m->armed);
	link_update_sleep(l);
	/* If shm_after_rx() is due, only pollers of this CQ may have known. */
	if (!l->dead && !list_empty(&l->after_rx))
		link_wake_thread(l);
	lock_put(&l->rx_lock);
	free(m);
	link_put(l);
}
