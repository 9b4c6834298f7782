/* SPDX-License-Identifier: BSD-2-Clause */
/* Which CQs' pollers receive datagrams, from which links.
 *
 * All QPs of a port have one receive CQ (dev/qpn.h), and a link knows the ports of ours
 * for which datagrams come or go. A join is a link that a CQ has because of that. */
#include "shm/dgram.h"

#include "base/log.h"
#include "base/state.h"
#include "rc/match.h"
#include "shm/link.h"

#include <errno.h>
#include <stdlib.h>

/* The CQ of a port. */
struct port_cq {
	struct list node;
	uint16_t port;
	struct dev_cq *cq;
	unsigned qps; /* attached */
};

/* A port of ours that has datagrams on a link. */
struct port_link {
	struct list node;
	uint16_t port;
	struct link *l; /* counted */
	struct list joins;
};

struct join {
	struct list node; /* port_link.joins */
	const struct port_cq *c;
	struct link_cq *m;
};

/* match.lock guards these, as it serialises link_cq_join(). */
static struct list cqs PROCESS_STATE = LIST_INIT(cqs);
static struct list links PROCESS_STATE = LIST_INIT(links);

static int join(struct port_link *p, const struct port_cq *c)
{
	struct join *j = calloc(1, sizeof(*j));
	int ret;

	if (!j)
		return -ENOMEM;
	j->c = c;
	ret = link_cq_join(p->l, c->cq, &j->m);
	if (ret)
		free(j);
	else
		list_add_tail(&p->joins, &j->node);
	return ret;
}

/* Leaves the joins of this CQ; NULL: of all. */
static void leave(struct port_link *p, const struct port_cq *c)
{
	struct join *j, *tmp;

	list_for_each_safe(j, tmp, &p->joins, node) {
		if (c && j->c != c)
			continue;
		list_del(&j->node);
		link_cq_leave(j->m);
		free(j);
	}
}

static struct port_cq *cq_find(uint16_t port, const struct dev_cq *cq)
{
	struct port_cq *c;

	list_for_each(c, &cqs, node)
		if (c->port == port && c->cq == cq)
			return c;
	return NULL;
}

static void cq_end(struct port_cq *c)
{
	struct port_link *p;

	list_for_each(p, &links, node)
		if (p->port == c->port)
			leave(p, c);
	list_del(&c->node);
	free(c);
}

/* Without memory for a join the loop thread receives. */
static void cq_joined(const struct port_cq *c, struct port_link *p)
{
	int ret = join(p, c);

	if (ret)
		log_info("port %u: pollers do not receive datagrams from process %d: %d",
			 c->port, (int)p->l->peer_pid, ret);
}

int dgram_cq_attach(uint16_t port, struct dev_cq *cq)
{
	struct port_link *p;
	struct port_cq *c;

	match_lock();
	c = cq_find(port, cq);
	if (!c && (c = calloc(1, sizeof(*c)))) {
		c->port = port;
		c->cq = cq;
		list_add_tail(&cqs, &c->node);
		list_for_each(p, &links, node)
			if (p->port == port)
				cq_joined(c, p);
	}
	if (c)
		c->qps++;
	match_unlock();
	return c ? 0 : -ENOMEM;
}

void dgram_cq_detach(uint16_t port, struct dev_cq *cq)
{
	struct port_cq *c;

	match_lock();
	c = cq_find(port, cq);
	if (c && !--c->qps)
		cq_end(c);
	match_unlock();
}

static bool link_known(const struct link *l, uint16_t port)
{
	struct port_link *p;

	list_for_each(p, &links, node)
		if (p->l == l && p->port == port)
			return true;
	return false;
}

void dgram_cq_join(struct link *l, uint16_t port)
{
	struct port_link *p = NULL;
	struct port_cq *c;

	match_lock();
	if (!link_known(l, port) && (p = calloc(1, sizeof(*p)))) {
		p->port = port;
		p->l = l;
		link_get(l);
		list_init(&p->joins);
		list_add_tail(&links, &p->node);
		list_for_each(c, &cqs, node)
			if (c->port == port)
				cq_joined(c, p);
	}
	match_unlock();
}

void dgram_cq_link_gone(struct link *l)
{
	struct port_link *p, *tmp;

	match_lock();
	list_for_each_safe(p, tmp, &links, node) {
		if (p->l != l)
			continue;
		leave(p, NULL);
		list_del(&p->node);
		link_put(l);
		free(p);
	}
	match_unlock();
}
