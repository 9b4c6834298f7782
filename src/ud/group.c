/* SPDX-License-Identifier: BSD-2-Clause */
/* Groups, and their members in this process. The members of a group are an array that is
 * never changed: who joins or leaves makes a new one, and who delivers to one holds a
 * reference to it. */
#include "base/state.h"
#include "dev/gid.h"
#include "ud/ud.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 64 };

struct members {
	atomic_int refs;
	unsigned n;
	struct ud_qp *u[]; /* with references */
};

struct group {
	struct group *next;
	union ibv_gid gid;
	struct members *m; /* never empty */
};

static struct {
	struct lock lock; /* guards everything here; inside a carrier's locks */
	struct group *bucket[BUCKETS];
} groups PROCESS_STATE = { .lock = LOCK_INIT };

static struct group **find_locked(const union ibv_gid *gid)
{
	uint32_t h = 0;
	struct group **at;

	for (unsigned i = 0; i < 16; i++)
		h = h * 31 + gid->raw[i];
	at = &groups.bucket[h % BUCKETS];
	while (*at && memcmp(&(*at)->gid, gid, sizeof(*gid)))
		at = &(*at)->next;
	return at;
}

static void members_put(struct members *m)
{
	if (!m || atomic_fetch_sub(&m->refs, 1) != 1)
		return;
	for (unsigned i = 0; i < m->n; i++)
		ud_put(m->u[i]);
	free(m);
}

/* Those of `old` without `out`, and `in`; either may be NULL. NULL: no memory. */
static struct members *members_new(const struct members *old, struct ud_qp *in,
				   const struct ud_qp *out)
{
	unsigned n = old ? old->n : 0;
	struct members *m = calloc(1, sizeof(*m) + (n + 1) * sizeof(m->u[0]));

	if (!m)
		return NULL;
	atomic_init(&m->refs, 1);
	for (unsigned i = 0; i < n; i++)
		if (old->u[i] != out)
			m->u[m->n++] = old->u[i];
	if (in)
		m->u[m->n++] = in;
	for (unsigned i = 0; i < m->n; i++)
		ud_get(m->u[i]);
	return m;
}

static bool is_member(const struct members *m, const struct ud_qp *u)
{
	for (unsigned i = 0; i < m->n; i++)
		if (m->u[i] == u)
			return true;
	return false;
}

int ud_group_join(struct ud_qp *u, const union ibv_gid *gid)
{
	struct members *m, *old = NULL;
	struct group *g, **at;
	int ret = -ENOMEM;

	lock_get(&groups.lock);
	at = find_locked(gid);
	g = *at;
	if (g && is_member(g->m, u)) {
		lock_put(&groups.lock);
		return -EALREADY;
	}
	m = members_new(g ? g->m : NULL, u, NULL);
	if (m && !g) {
		g = calloc(1, sizeof(*g));
		if (g)
			g->gid = *gid;
		*at = g;
	}
	if (m && g) {
		old = g->m;
		g->m = m;
		m = NULL;
		ret = 0;
	}
	lock_put(&groups.lock);
	members_put(old);
	members_put(m);
	return ret;
}

int ud_group_leave(struct ud_qp *u, const union ibv_gid *gid)
{
	struct members *m, *old;
	struct group *g, **at;

	lock_get(&groups.lock);
	at = find_locked(gid);
	g = *at;
	if (!g || !is_member(g->m, u)) {
		lock_put(&groups.lock);
		return -ENOENT;
	}
	old = g->m;
	m = members_new(old, NULL, u);
	if (!m) { /* it is a member until it is gone: ud_deliver_to() sees that */
		lock_put(&groups.lock);
		return 0;
	}
	if (m->n) {
		g->m = m;
		m = NULL;
	} else {
		*at = g->next;
		free(g);
	}
	lock_put(&groups.lock);
	members_put(m);
	members_put(old);
	return 0;
}

/* A NIC does not give the sending QP its own datagram. */
static bool is_sender(const struct ud_qp *u, const struct ud_head *h)
{
	return u->qpn == h->src_qpn && gid_is_ours(&h->sgid, 0);
}

void ud_group_deliver(const struct ud_head *h, const void *payload, const struct dev_cq *only)
{
	struct members *m = NULL;
	struct group *g;

	lock_get(&groups.lock);
	g = *find_locked(&h->dgid);
	if (g) {
		m = g->m;
		atomic_fetch_add(&m->refs, 1);
	}
	lock_put(&groups.lock);
	if (!m)
		ud_count(UD_DROP_NO_QP);
	for (unsigned i = 0; m && i < m->n; i++)
		if (m->u[i]->cq == only && !is_sender(m->u[i], h))
			ud_deliver_to(m->u[i], h, payload);
	members_put(m);
}
