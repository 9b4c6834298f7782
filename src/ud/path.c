/* SPDX-License-Identifier: BSD-2-Clause */
/* Which carrier a destination is reached by.
 *
 * Each path asks the carriers once, and again when one says that answers have changed. A path
 * that is used for the first time takes the preferred carrier that reaches the peer. One that
 * is in use changes to a preferred carrier only when everything that it has sent by the old
 * one was received: datagrams of the two would overtake each other. So a mark is sent behind
 * them, and the send queue waits for the answer: for UD_MARK_TRIES * UD_MARK_MS at most. A peer
 * that has not answered then may stand still, with datagrams of the old carrier still before
 * it, so the path keeps that one, and the change is tried again later. To a carrier that is
 * not preferred a path changes at once: the old one carries nothing any more. */
#include "base/state.h"
#include "dev/gid.h"
#include "ud/ud.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#define PUT_OFF_FIRST (50 * MSEC)
#define PUT_OFF_LAST  (3200 * MSEC)

/* Grows with each ud_paths_changed(); never 0, which is that of a path that has not asked. */
_Atomic uint32_t ud_path_changes PROCESS_STATE = 1;
static _Atomic uint32_t tokens;

void ud_paths_changed(void)
{
	if (!(atomic_fetch_add(&ud_path_changes, 1) + 1))
		atomic_fetch_add(&ud_path_changes, 1);
}

static unsigned bucket_of(const union ibv_gid *gid, uint16_t port)
{
	uint32_t h = port * 2654435761u;

	for (unsigned i = 0; i < 16; i++)
		h = (h ^ gid->raw[i]) * 16777619u;
	return (h ^ h >> 15) % UD_PATH_BUCKETS;
}

static void peer_drop(int by, void *peer)
{
	if (by >= 0 && peer)
		ud_carriers[by]->drop(peer);
}

/* The path does not use its carrier any more. */
static void let_go(const struct ud_path *p)
{
	peer_drop(p->by, p->peer);
}

/* Nothing waits any more. */
static void hold_clear(struct ud_qp *u)
{
	lock_assert_held(&u->tx_lock);
	u->hold = (struct ud_hold){ .path = NULL };
	if (loop_timer_stop(&u->timer))
		ud_put(u); /* not the last: the caller has one */
}

/* Everything that went by the old carrier was received: the path changes over. */
static void hold_end(struct ud_qp *u)
{
	struct ud_hold *h = &u->hold;

	lock_assert_held(&u->tx_lock);
	let_go(h->path);
	h->path->by = h->to;
	h->path->peer = h->peer;
	h->path->put_off = 0;
	hold_clear(u);
}

/* The path stays with its carrier. */
static void hold_cancel(struct ud_qp *u)
{
	lock_assert_held(&u->tx_lock);
	peer_drop(u->hold.to, u->hold.peer);
	hold_clear(u);
}

/* The same, as nobody knows whether everything was received. */
static void hold_give_up(struct ud_qp *u)
{
	struct ud_path *p = u->hold.path;

	lock_assert_held(&u->tx_lock);
	p->put_off = p->put_off ? 2 * p->put_off : PUT_OFF_FIRST;
	if (p->put_off > PUT_OFF_LAST)
		p->put_off = PUT_OFF_LAST;
	p->not_before = loop_now() + p->put_off;
	p->asked = 0;
	hold_cancel(u);
}

static void forget(struct ud_qp *u, struct ud_path *p)
{
	struct ud_path **at = &u->buckets[bucket_of(&p->dgid, p->port)];

	lock_assert_held(&u->tx_lock);
	if (u->hold.path == p)
		hold_cancel(u);
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	list_del(&p->lru);
	u->npaths--;
	if (u->last == p)
		u->last = NULL;
	let_go(p);
	free(p);
}

void ud_paths_free(struct ud_qp *u)
{
	struct ud_path *p, *tmp;

	lock_assert_held(&u->tx_lock);
	list_for_each_safe(p, tmp, &u->lru, lru)
		forget(u, p);
}

static struct ud_path *path_new(struct ud_qp *u, const struct dev_av *av, uint16_t port)
{
	struct ud_path **at = &u->buckets[bucket_of(&av->attr.grh.dgid, port)];
	struct ud_path *p = calloc(1, sizeof(*p));

	lock_assert_held(&u->tx_lock);
	if (!p)
		return &u->group; /* the last carrier, which reaches everybody */
	if (u->npaths == UD_PATHS)
		forget(u, list_entry(u->lru.next, struct ud_path, lru));
	p->dgid = av->attr.grh.dgid;
	p->ifindex = av->ifindex;
	p->port = port;
	p->by = UD_BY_NONE;
	p->next = *at;
	*at = p;
	list_add_tail(&u->lru, &p->lru);
	u->npaths++;
	return p;
}

struct ud_path *ud_path_get(struct ud_qp *u, const struct dev_av *av, uint32_t qpn)
{
	uint16_t port = qpn_port(qpn);
	struct ud_path *p = u->last;

	lock_assert_held(&u->tx_lock);
	if (av->mcast)
		return &u->group;
	if (p && ud_path_is_of(p, av, port))
		return p;
	p = u->buckets[bucket_of(&av->attr.grh.dgid, port)];
	while (p && !ud_path_is_of(p, av, port))
		p = p->next;
	if (p) {
		list_del(&p->lru);
		list_add_tail(&u->lru, &p->lru);
	} else {
		p = path_new(u, av, port);
	}
	u->last = p == &u->group ? NULL : p;
	return p;
}

/* A QP of this process: at an address of the table, or any other of 127.0.0.0/8. */
static bool is_local(const struct ud_path *p)
{
	return qpn_port_ours(p->port) && gid_is_ours(&p->dgid, p->ifindex);
}

/* The preferred carrier that reaches the peer, and the peer. */
static int choose(struct ud_qp *u, const struct ud_path *p, uint32_t qpn, void **peer)
{
	*peer = NULL;
	if (is_local(p))
		return UD_BY_LOCAL;
	for (int i = 0; ud_carriers[i]; i++)
		if (ud_carriers[i]->reaches(u, &p->dgid, qpn, peer) == 1)
			return i;
	return UD_BY_NONE;
}

static void hold_begin(struct ud_qp *u, struct ud_path *p, int to, void *peer)
{
	struct ud_hold *h = &u->hold;

	lock_assert_held(&u->tx_lock);
	if (h->path) { /* the send queue was flushed meanwhile */
		h->path->asked = 0;
		hold_cancel(u);
	}
	h->path = p;
	h->to = to;
	h->peer = peer;
	h->token = atomic_fetch_add_explicit(&tokens, 1, memory_order_relaxed) + 1;
	h->due = true;
}

static void ask(struct ud_qp *u, struct ud_path *p, uint32_t qpn)
{
	struct ud_hold *h = &u->hold;
	void *peer;
	int by;

	lock_assert_held(&u->tx_lock);
	p->not_before = 0;
	p->asked = atomic_load(&ud_path_changes);
	by = choose(u, p, qpn, &peer);
	if (h->path == p && h->to == by) { /* it waits on */
		peer_drop(by, h->peer);
		h->peer = peer;
		return;
	}
	if (h->path == p)
		hold_cancel(u);
	if (p->by > by && by >= 0) {
		hold_begin(u, p, by, peer);
		return;
	}
	let_go(p);
	p->by = by;
	p->peer = peer;
}

/* Answers have changed, or a change was given up a while ago. */
static bool may_ask(const struct ud_path *p)
{
	if (p->asked == ud_path_changes_now())
		return false;
	return !p->not_before || loop_now() >= p->not_before;
}

enum ud_ready ud_path_ready(struct ud_qp *u, struct ud_path *p, uint32_t qpn)
{
	struct ud_hold *h = &u->hold;

	lock_assert_held(&u->tx_lock);
	if (p == &u->group)
		return UD_READY;
	if (may_ask(p))
		ask(u, p, qpn);
	if (h->path != p)
		return UD_READY;
	if (atomic_load(&u->marked) == h->token) {
		hold_end(u);
		return UD_READY;
	}
	if (h->due && h->tries == UD_MARK_TRIES) {
		hold_give_up(u);
		return UD_READY;
	}
	return h->due ? UD_MARK_DUE : UD_WAIT;
}

void ud_path_lost(struct ud_qp *u, struct ud_path *p)
{
	lock_assert_held(&u->tx_lock);
	if (p != &u->group) {
		p->asked = 0;
		p->not_before = 0;
	}
}
