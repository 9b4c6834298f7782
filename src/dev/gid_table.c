/* SPDX-License-Identifier: BSD-2-Clause */
#include "dev/gid_table.h"
#include "base/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

/* What a datagram needs of the interface's MTU beside its payload (doc/wire.md): IPv6 40,
 * UDP 8, BTH 12, DETH 8, ImmDt 4, CRC 4, trailer 4. Over IPv4 the group's GID may take 16
 * of the 20 bytes that its header is shorter. */
enum { DATAGRAM_OVERHEAD = 80 };

/* Order of the classes in the table. */
enum rank { RANK_V4_DEFAULT, RANK_V4, RANK_V6, RANK_LINK_LOCAL, RANK_LOOPBACK };

struct candidate {
	struct gid_slot s;
	enum rank rank;
	bool v6;
	bool running;
	unsigned order; /* position in the kernel's answer */
};

static const struct nl_link *link_of(const struct nl_host *h, uint32_t ifindex)
{
	for (unsigned i = 0; i < h->nlinks; i++)
		if (h->links[i].ifindex == ifindex)
			return &h->links[i];
	return NULL;
}

static void addr_to_gid(const struct nl_addr *a, union ibv_gid *gid)
{
	memset(gid, 0, sizeof(*gid));
	if (a->family == AF_INET6) {
		memcpy(gid->raw, a->addr, 16);
		return;
	}
	gid->raw[10] = gid->raw[11] = 0xff;
	memcpy(gid->raw + 12, a->addr, 4);
}

static enum rank rank_of(const struct nl_host *h, const struct nl_addr *a)
{
	bool v4 = a->family == AF_INET;

	if (v4 ? a->addr[0] == 127 : IN6_IS_ADDR_LOOPBACK((struct in6_addr *)a->addr))
		return RANK_LOOPBACK;
	if (v4 ? a->addr[0] == 169 && a->addr[1] == 254 :
		 IN6_IS_ADDR_LINKLOCAL((struct in6_addr *)a->addr))
		return RANK_LINK_LOCAL;
	if (!v4)
		return RANK_V6;
	return a->ifindex == h->default_ifindex ? RANK_V4_DEFAULT : RANK_V4;
}

/* Is this address, or its interface's name, an item of the list? It ends as gid_list()
 * says. */
static bool listed(const char *only, const struct nl_addr *a, const char *ifname)
{
	char text[INET6_ADDRSTRLEN] = "";
	size_t len;

	if (!only || !*only || *only == ';')
		return true;
	inet_ntop(a->family, a->addr, text, sizeof(text));
	for (; *only && *only != ';'; only += len + (only[len] == ',')) {
		struct in6_addr v6;
		char item[64];

		len = strcspn(only, ",;");
		if (len >= sizeof(item))
			continue;
		memcpy(item, only, len);
		item[len] = 0;
		if (!strcmp(item, text) || !strcmp(item, ifname))
			return true;
		/* 2001:DB8::0:1 and 2001:db8::1 are the same address. */
		if (a->family == AF_INET6 && inet_pton(AF_INET6, item, &v6) == 1 &&
		    !memcmp(&v6, a->addr, 16))
			return true;
	}
	return false;
}

const char *gid_list(const char *addr, unsigned device)
{
	unsigned lists = 1;

	for (const char *p = addr; p && *p; p++)
		lists += *p == ';';
	for (unsigned i = device % lists; i; i--)
		addr = strchr(addr, ';') + 1;
	return addr;
}

/* The device has this interface. */
static bool dealt(const struct gid_share *share, uint32_t ifindex)
{
	const struct gid_deal *d = share->deal;

	if (!d || d->all)
		return true;
	for (unsigned i = 0; i < d->n; i++)
		if (d->ifindex[i] == ifindex)
			return i % share->devices == share->device;
	return false;
}

static bool usable(const struct nl_host *h, const struct nl_addr *a,
		   const struct gid_share *share)
{
	const struct nl_link *l = link_of(h, a->ifindex);

	if (!l || !(l->flags & IFF_UP))
		return false;
	if (a->flags & IFA_F_DADFAILED)
		return false;
	if ((a->flags & IFA_F_TENTATIVE) && !(a->flags & IFA_F_OPTIMISTIC))
		return false;
	return listed(gid_list(share->addr, share->device), a, l->name) &&
	       (l->flags & IFF_LOOPBACK || dealt(share, a->ifindex));
}

static bool same(const struct gid_slot *a, const struct gid_slot *b)
{
	if (memcmp(&a->gid, &b->gid, sizeof(a->gid)))
		return false;
	/* fe80::1 may exist on many interfaces; other addresses are one. */
	return a->ifindex == b->ifindex ||
	       !IN6_IS_ADDR_LINKLOCAL((const struct in6_addr *)a->gid.raw);
}

static int by_rank(const void *pa, const void *pb)
{
	const struct candidate *a = pa, *b = pb;

	if (a->rank != b->rank)
		return a->rank < b->rank ? -1 : 1;
	if (a->v6 != b->v6)
		return a->v6 ? 1 : -1;
	if (a->s.ifindex != b->s.ifindex)
		return a->s.ifindex < b->s.ifindex ? -1 : 1;
	return a->order < b->order ? -1 : 1;
}

static unsigned collect(const struct nl_host *h, const struct gid_share *share,
			struct candidate *c)
{
	unsigned n = 0;

	for (unsigned i = 0; i < h->naddrs; i++) {
		const struct nl_addr *a = &h->addrs[i];
		struct candidate *e = &c[n];
		bool dup = false;

		if (!usable(h, a, share))
			continue;
		memset(e, 0, sizeof(*e));
		addr_to_gid(a, &e->s.gid);
		e->s.ifindex = a->ifindex;
		e->rank = rank_of(h, a);
		e->s.loopback = e->rank == RANK_LOOPBACK;
		e->v6 = a->family == AF_INET6;
		e->running = (link_of(h, a->ifindex)->flags & IFF_RUNNING) != 0;
		e->order = i;
		for (unsigned j = 0; j < n && !dup; j++)
			dup = same(&c[j].s, &e->s);
		n += !dup;
	}
	qsort(c, n, sizeof(*c), by_rank);
	return n;
}

static void deal_to(struct gid_deal *d, uint32_t ifindex)
{
	for (unsigned i = 0; i < d->n; i++)
		if (d->ifindex[i] == ifindex)
			return;
	if (d->n < DEV_GIDS)
		d->ifindex[d->n++] = ifindex;
}

void gid_deal(struct gid_deal *d, const struct nl_host *h, const char *addr,
	      unsigned devices)
{
	const struct gid_share all = { .addr = addr };
	struct candidate *c = calloc(h->naddrs + 1, sizeof(*c));
	unsigned n = c ? collect(h, &all, c) : 0;

	for (unsigned i = 0; i < n; i++)
		if (c[i].rank < RANK_LINK_LOCAL && c[i].running)
			deal_to(d, c[i].s.ifindex);
	if (c && !d->decided) {
		d->decided = true;
		d->all = devices == 1 || d->n < devices || (addr && strchr(addr, ';'));
	}
	for (unsigned i = 0; i < n; i++)
		if (!c[i].s.loopback)
			deal_to(d, c[i].s.ifindex);
	free(c);
}

/* The slot for a candidate: the one it had before, else one that was never used, else a
 * hole. -1: there is none. */
static int place(struct gid_table *t, const struct gid_slot *s)
{
	static const union ibv_gid zero;

	for (unsigned i = 0; i < t->count; i++)
		if (same(&t->given[i], s))
			return (int)i;
	if (t->count < DEV_GIDS)
		return (int)t->count++;
	for (unsigned i = 0; i < DEV_GIDS; i++)
		if (!memcmp(&t->slot[i].gid, &zero, sizeof(zero)))
			return (int)i;
	return -1;
}

/* Addresses that are gone leave holes, before new ones are placed. */
static bool punch(struct gid_table *t, const struct candidate *c, unsigned n)
{
	static const struct gid_slot hole;
	bool changed = false, there;

	for (unsigned i = 0; i < t->count; i++) {
		if (!memcmp(&t->slot[i].gid, &hole.gid, sizeof(hole.gid)))
			continue;
		there = false;
		for (unsigned j = 0; j < n && !there; j++)
			there = same(&c[j].s, &t->slot[i]);
		if (!there) {
			t->slot[i] = hole;
			changed = true;
		}
	}
	return changed;
}

int gid_table_merge(struct gid_table *t, const struct nl_host *h,
		    const struct gid_share *share)
{
	struct candidate *c = calloc(h->naddrs + 1, sizeof(*c));
	unsigned n, lost = 0;
	bool changed;

	if (!c)
		return -ENOMEM;
	n = collect(h, share, c);
	changed = punch(t, c, n);
	t->port_active = false;
	for (unsigned i = 0; i < n; i++) {
		int at = place(t, &c[i].s);

		if (at < 0) {
			lost++;
			continue;
		}
		t->port_active |= c[i].running || c[i].s.loopback;
		if (!same(&t->slot[at], &c[i].s))
			changed = true;
		t->slot[at] = t->given[at] = c[i].s;
	}
	if (lost)
		log_warn("%u addresses of this host have no place in the GID table of "
			 "%d (ANYRDMA_ADDR restricts it)",
			 lost, DEV_GIDS);
	t->active_mtu = gid_table_mtu(h);
	free(c);
	return changed;
}

enum ibv_mtu gid_table_mtu(const struct nl_host *h)
{
	uint32_t least = UINT32_MAX;
	enum ibv_mtu m = IBV_MTU_4096;

	for (unsigned i = 0; i < h->nlinks; i++) {
		const struct nl_link *l = &h->links[i];

		if ((l->flags & IFF_UP) && !(l->flags & IFF_LOOPBACK) && l->mtu < least)
			least = l->mtu;
	}
	while (m > IBV_MTU_256 && (128u << m) + DATAGRAM_OVERHEAD > least)
		m--;
	return m;
}
