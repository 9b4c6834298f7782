/* SPDX-License-Identifier: BSD-2-Clause */
/* Answers to LINK_DGRAMS: may datagrams from QPs of this port come by this link? They may
 * if the port's name (setup.h) leads to the process at the other end, whose source QP
 * numbers are believed from then on. */
#include "shm/dgram.h"

#include "base/conf.h"
#include "base/log.h"
#include "dev/qpn.h"
#include "shm/link.h"
#include "shm/setup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A question. */
struct dgram_ask {
	struct list node; /* link_dgrams.asks; the first member: link.c frees the list */
	struct rec_link m;
	struct link *l; /* while `wait` is pending: counted */
	struct link_wait wait;
};
_Static_assert(offsetof(struct dgram_ask, node) == 0, "list_free()");

static void answer(struct link *l, const struct rec_link *m, int err)
{
	struct rec_link a = { .type = LINK_DGRAMS_ANSWER, .err = err,
			      .src_qpn = m->src_qpn, .dst_qpn = m->dst_qpn };

	if (err)
		log_info("datagrams of port %u of process %d do not come by shared "
			 "memory: %s",
			 qpn_port(m->src_qpn), (int)l->peer_pid, strerror(-err));
	link_send(l, &a);
}

void dgram_ask_queue(struct link *l, const struct rec_link *m)
{
	struct dgram_ask *a;

	lock_assert_held(&l->rx_lock);
	a = l->dgrams.nasks < DGRAM_ASKS_MAX ? calloc(1, sizeof(*a)) : NULL;
	if (!a) {
		answer(l, m, -EAGAIN);
		return;
	}
	a->m = *m;
	list_add_tail(&l->dgrams.asks, &a->node);
	l->dgrams.nasks++;
	link_post_msgs(l);
}

/* Both are links to one process: two that connect to each other at the same time have
 * two. */
static bool same_process(const struct link *a, const struct link *b)
{
	return a->peer_pid == b->peer_pid && (a->sock.fd < 0) == (b->sock.fd < 0) &&
	       !memcmp(&a->peer_id, &b->peer_id, sizeof(a->peer_id));
}

static int source_add(struct link *l, uint16_t port)
{
	int ret = 0;

	lock_get(&l->rx_lock);
	if (!l->dgrams.sources)
		l->dgrams.sources = calloc(DGRAM_PORTS / 8, 1);
	if (l->dead)
		ret = -EPIPE;
	else if (!l->dgrams.sources)
		ret = -ENOMEM;
	else
		l->dgrams.sources[port / 8] |= (uint8_t)(1u << port % 8);
	lock_put(&l->rx_lock);
	return ret;
}

/* `found`: the link to the process that has the name of the port. */
static void port_found(struct link_wait *w, struct link *found, int err)
{
	struct dgram_ask *a = container_of(w, struct dgram_ask, wait);
	uint16_t port = qpn_port(a->m.src_qpn);
	struct link *l = a->l;

	if (found && !same_process(found, l))
		err = -EPERM;
	if (!err)
		err = source_add(l, port);
	if (!err) {
		dgram_cq_join(l, qpn_port(a->m.dst_qpn));
		dgram_route_known(port);
	}
	answer(l, &a->m, err);
	free(a);
	l->dgrams.asking = false;
	if (found)
		link_put(found);
	dgram_asks_run(l);
	link_put(l);
}

/* One at a time for each peer: it costs a connection to whatever has the name. */
void dgram_asks_run(struct link *l)
{
	bool tcp = conf_get()->transport == CONF_TRANSPORT_TCP;
	struct list *n = NULL;
	struct dgram_ask *a;

	while (!l->dgrams.asking) {
		lock_get(&l->rx_lock);
		n = l->dead ? NULL : list_pop(&l->dgrams.asks);
		l->dgrams.nasks -= !!n;
		lock_put(&l->rx_lock);
		if (!n)
			return;
		a = list_entry(n, struct dgram_ask, node);
		if (tcp || !qpn_port_ours(qpn_port(a->m.dst_qpn))) {
			answer(l, &a->m, tcp ? -EOPNOTSUPP : -ENOENT);
			free(a);
			continue;
		}
		l->dgrams.asking = true;
		link_get(l);
		a->l = l;
		a->wait.done = port_found;
		link_find_port(qpn_port(a->m.src_qpn), &a->wait);
	}
}
