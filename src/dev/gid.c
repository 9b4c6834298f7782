/* SPDX-License-Identifier: BSD-2-Clause */
#include "dev/gid.h"
#include "base/conf.h"
#include "base/fdset.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/nl.h"
#include "base/state.h"
#include "dev/dev.h"
#include "dev/gid_table.h"
#include "dev/lid.h"
#include "dev/verbs.h"

#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

enum {
	MAX_WATCHERS = 8,
	AGAIN_MS = 100,
};

static struct lock gid_lock PROCESS_STATE = LOCK_INIT;
/* Under gid_lock. */
static struct gid_table *tables[DEV_DEVICES] PROCESS_STATE; /* NULL: not read yet */
static struct gid_deal deal PROCESS_STATE;
/* What a port with the link layer InfiniBand is known by. */
static struct port {
	uint16_t lid;	     /* 0: none */
	struct gid_slot at;  /* the address that it follows from */
} ports[DEV_DEVICES] PROCESS_STATE;
static bool loaded PROCESS_STATE;
static bool watching PROCESS_STATE;
static void (*watchers[MAX_WATCHERS])(void) PROCESS_STATE;

static bool is_hole(const union ibv_gid *gid)
{
	static const union ibv_gid zero;

	return !memcmp(gid, &zero, sizeof(zero));
}

/* The table of a device; an empty one where it could not be read. */
static const struct gid_table *table_of(unsigned device)
{
	static const struct gid_table empty = { .active_mtu = IBV_MTU_1024 };

	return device < DEV_DEVICES && tables[device] ? tables[device] : &empty;
}

static int merge_locked(unsigned device, const struct nl_host *h)
{
	const struct gid_share share = { .addr = conf_get()->addr,
					 .deal = &deal,
					 .device = device,
					 .devices = conf_get()->devices };

	if (!tables[device]) {
		tables[device] = calloc(1, sizeof(*tables[device]));
		if (tables[device] && gid_given_before)
			tables[device]->count =
				gid_given_before(device, tables[device]->given);
	}
	return tables[device] ? gid_table_merge(tables[device], h, &share) : -ENOMEM;
}

/* The first IPv4 address, loopback last; the one that it was, as long as that is as good. */
static const struct gid_slot *address_of_port(const struct gid_table *t, const struct port *p)
{
	const struct gid_slot *first = NULL;

	for (unsigned i = t->count; i-- > 0;) {
		const struct gid_slot *s = &t->slot[i];

		if (!gid_is_v4(&s->gid))
			continue;
		if (s->loopback && first && !first->loopback)
			continue;
		if (p->lid && !s->loopback && !memcmp(&s->gid, &p->at.gid, sizeof(s->gid)))
			return s;
		first = s;
	}
	return first;
}

/* Another port of the process has this LID with another address. */
static bool lid_is_taken(unsigned device, uint16_t lid, const union ibv_gid *gid)
{
	for (unsigned i = 0; i < device; i++)
		if (ports[i].lid == lid && memcmp(&ports[i].at.gid, gid, sizeof(*gid)))
			return true;
	return false;
}

/* True: it is another one. */
static bool lid_update_locked(unsigned device)
{
	struct port *p = &ports[device], old = *p;
	const struct gid_slot *s = address_of_port(table_of(device), p);
	const uint8_t *v4 = s ? s->gid.raw + 12 : NULL;

	*p = (struct port){ 0 };
	if (s) {
		p->at = *s;
		p->lid = lid_of_gid(&s->gid);
		if (p->lid && lid_is_taken(device, p->lid, &s->gid))
			p->lid = 0;
	}
	if (memcmp(&p->at.gid, &old.at.gid, sizeof(old.at.gid)) && s && !p->lid)
		log_error("ANYRDMA_LINK=ib: device %u gets no LID: its address is "
			  "%u.%u.%u.%u, whose low 16 bits %s; ANYRDMA_ADDR can name another "
			  "one, and 127.0.0.1 will do on one host",
			  device, v4[0], v4[1], v4[2], v4[3],
			  lid_of_gid(&s->gid) ? "another device's other address has, too" :
						"are not from 1 to 0xbfff");
	return p->lid != old.lid;
}

/* *changed: a bit for each device of whose table a slot has; *relid: that has another LID. 0
 * or -errno: a table stays as it is. */
static int load_locked(unsigned *changed, unsigned *relid)
{
	struct nl_host h;
	int ret = nl_host_read(&h);

	*changed = *relid = 0;
	if (!ret) {
		gid_deal(&deal, &h, conf_get()->addr, conf_get()->devices);
		for (unsigned i = 0; i < conf_get()->devices && ret >= 0; i++) {
			ret = merge_locked(i, &h);
			*changed |= (unsigned)(ret > 0) << i;
			if (conf_get()->link_ib)
				*relid |= (unsigned)lid_update_locked(i) << i;
		}
		nl_host_free(&h);
	}
	if (ret < 0)
		log_error("cannot read the host's addresses (netlink): %s",
			  strerror(-ret));
	else
		loaded = true;
	return ret < 0 ? ret : 0;
}

/* Locks, and reads the host on first use. */
static void table_get(void) ACQUIRE(gid_lock)
{
	unsigned changed, relid;

	lock_get(&gid_lock);
	if (!loaded)
		load_locked(&changed, &relid);
}

/* The index of the first address: on InfiniBand it is behind the GID of the port. */
static unsigned first_index(void)
{
	return conf_get()->link_ib ? 1 : 0;
}

bool gid_get(unsigned device, unsigned i, struct gid_slot *out)
{
	unsigned first = first_index();

	if (i >= DEV_GIDS)
		return false;
	table_get();
	if (i >= first)
		*out = table_of(device)->slot[i - first];
	else if (device < DEV_DEVICES && ports[device].lid)
		*out = ports[device].at;
	else
		memset(out, 0, sizeof(*out));
	lock_put(&gid_lock);
	return true;
}

bool gid_shown(unsigned device, unsigned i, union ibv_gid *out)
{
	const uint64_t guid = device_guid(device);
	struct gid_slot s;

	if (!gid_get(device, i, &s))
		return false;
	*out = s.gid;
	if (i < first_index()) {
		out->global.subnet_prefix = htobe64(0xfe80ull << 48);
		out->global.interface_id = guid;
	}
	return true;
}

uint16_t gid_lid(unsigned device)
{
	uint16_t lid;

	table_get();
	lid = device < DEV_DEVICES ? ports[device].lid : 0;
	lock_put(&gid_lock);
	return lid;
}

bool gid_of_lid(unsigned device, uint16_t lid, struct gid_slot *from, union ibv_gid *to)
{
	bool ours = false, has;

	table_get();
	*from = ports[device].at;
	has = ports[device].lid != 0;
	for (unsigned i = 0; i < DEV_DEVICES && !ours; i++) {
		ours = ports[i].lid == lid;
		if (ours)
			*to = ports[i].at.gid;
	}
	lock_put(&gid_lock);
	if (has && !ours)
		lid_to_gid(&from->gid, lid, to);
	return has;
}

unsigned gid_count(unsigned device)
{
	unsigned n;

	table_get();
	n = table_of(device)->count + first_index();
	lock_put(&gid_lock);
	return n;
}

unsigned gid_given(unsigned device, struct gid_slot *given)
{
	const struct gid_table *t;
	unsigned n;

	table_get();
	t = table_of(device);
	n = t->count;
	memcpy(given, t->given, n * sizeof(*given));
	lock_put(&gid_lock);
	return n;
}

enum ibv_mtu gid_active_mtu(unsigned device)
{
	enum ibv_mtu m;

	table_get();
	m = table_of(device)->active_mtu;
	lock_put(&gid_lock);
	/* Every InfiniBand port has that, and programs rely on it; IP cuts it where it has to. */
	return conf_get()->link_ib && m < IBV_MTU_2048 ? IBV_MTU_2048 : m;
}

bool gid_port_active(unsigned device)
{
	bool active;

	table_get();
	active = table_of(device)->port_active;
	lock_put(&gid_lock);
	return active;
}

static int find_gid(const struct gid_table *t, const union ibv_gid *gid, uint32_t ifindex)
{
	if (is_hole(gid))
		return -ENODEV;
	for (unsigned i = 0; i < t->count; i++)
		if (!memcmp(&t->slot[i].gid, gid, sizeof(*gid)) &&
		    (!ifindex || t->slot[i].ifindex == ifindex))
			return (int)i;
	return -ENODEV;
}

int gid_index(unsigned device, const union ibv_gid *gid, uint32_t ifindex)
{
	int found;

	table_get();
	found = find_gid(table_of(device), gid, ifindex);
	lock_put(&gid_lock);
	return found < 0 ? found : found + (int)first_index();
}

bool gid_find(const union ibv_gid *gid, struct gid_slot *out)
{
	int found = -ENODEV;

	table_get();
	for (unsigned d = 0; d < DEV_DEVICES && tables[d] && found < 0; d++) {
		found = find_gid(tables[d], gid, 0);
		if (found >= 0)
			*out = tables[d]->slot[found];
	}
	lock_put(&gid_lock);
	return found >= 0;
}

/* First IPv4 slot in 127.0.0.0/8, for 127.0.0.5 and its like. */
static int loopback_v4(const struct gid_table *t)
{
	for (unsigned i = 0; i < t->count; i++)
		if (t->slot[i].loopback && gid_is_v4(&t->slot[i].gid))
			return (int)i;
	return -ENODEV;
}

static int find_addr(const struct gid_table *t, const struct sockaddr *sa)
{
	union ibv_gid gid;
	uint32_t scope = 0;
	int i;

	if (sa->sa_family != AF_INET && sa->sa_family != AF_INET6)
		return -ENODEV;
	gid_from_addr(sa, &gid);
	if (sa->sa_family == AF_INET6 &&
	    IN6_IS_ADDR_LINKLOCAL((struct in6_addr *)gid.raw))
		scope = ((const struct sockaddr_in6 *)(const void *)sa)->sin6_scope_id;
	i = find_gid(t, &gid, scope);
	if (i < 0 && gid_is_v4(&gid) && gid.raw[12] == 127)
		i = loopback_v4(t);
	return i;
}

int gid_of_addr(unsigned device, const struct sockaddr *sa)
{
	int found;

	table_get();
	found = find_addr(table_of(device), sa);
	lock_put(&gid_lock);
	return found < 0 ? found : found + (int)first_index();
}

int gid_device(const struct sockaddr *sa)
{
	int found = -ENODEV;

	table_get();
	for (unsigned d = 0; d < DEV_DEVICES && tables[d] && found < 0; d++)
		if (find_addr(tables[d], sa) >= 0)
			found = (int)d;
	lock_put(&gid_lock);
	return found;
}

bool gid_is_ours(const union ibv_gid *gid, uint32_t ifindex)
{
	struct sockaddr_storage ss;

	gid_to_addr(gid, ifindex, 0, &ss);
	return gid_device((struct sockaddr *)&ss) >= 0;
}

bool gid_is_v4(const union ibv_gid *gid)
{
	return IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)gid->raw);
}

bool gid_is_mcast(const union ibv_gid *gid)
{
	return gid->raw[0] == 0xff || (gid_is_v4(gid) && gid->raw[12] >> 4 == 0xe);
}

void gid_from_addr(const struct sockaddr *sa, union ibv_gid *gid)
{
	memset(gid, 0, sizeof(*gid));
	if (sa->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)sa;

		gid->raw[10] = gid->raw[11] = 0xff;
		memcpy(gid->raw + 12, &in->sin_addr, 4);
	} else if (sa->sa_family == AF_INET6) {
		memcpy(gid->raw,
		       &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr, 16);
	}
}

socklen_t gid_to_addr(const union ibv_gid *gid, uint32_t ifindex, uint16_t port,
		      struct sockaddr_storage *ss)
{
	memset(ss, 0, sizeof(*ss));
	if (gid_is_v4(gid)) {
		struct sockaddr_in *in = (void *)ss;

		in->sin_family = AF_INET;
		in->sin_port = htons(port);
		memcpy(&in->sin_addr, gid->raw + 12, 4);
		return sizeof(*in);
	}
	struct sockaddr_in6 *in6 = (void *)ss;

	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons(port);
	memcpy(&in6->sin6_addr, gid->raw, 16);
	if (IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr))
		in6->sin6_scope_id = ifindex;
	return sizeof(*in6);
}

static void again_fire(struct loop_timer *t)
{
	(void)t;
	gid_refresh();
}

/* The kernel tells of a change once: without memory it is looked at later. */
static struct loop_timer again PROCESS_STATE = { .fire = again_fire };

/* A bit for each device whose port is active. */
static unsigned active_locked(void)
{
	unsigned bits = 0;

	for (unsigned i = 0; i < DEV_DEVICES; i++)
		bits |= (unsigned)table_of(i)->port_active << i;
	return bits;
}

static void tell(unsigned device, bool was_active, bool active, bool changed)
{
	if (active != was_active)
		async_port(device, active ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
	if (!changed)
		return;
	log_debug("the GID table of device %u changed", device);
	async_port(device, IBV_EVENT_GID_CHANGE);
}

void gid_refresh(void)
{
	void (*call[MAX_WATCHERS])(void);
	unsigned changed, relid, was_active, active;
	bool was_loaded;
	int ret;

	lock_get(&gid_lock);
	was_loaded = loaded;
	was_active = active_locked();
	ret = load_locked(&changed, &relid);
	active = active_locked();
	memcpy(call, watchers, sizeof(call));
	lock_put(&gid_lock);
	if (ret == -ENOMEM)
		loop_timer_set(&again, loop_now() + AGAIN_MS * MSEC);
	if (!was_loaded)
		return;
	for (unsigned i = 0; i < DEV_DEVICES; i++)
		tell(i, was_active >> i & 1, active >> i & 1, changed >> i & 1);
	for (unsigned i = 0; i < DEV_DEVICES; i++)
		if (relid >> i & 1)
			async_port(i, IBV_EVENT_LID_CHANGE);
	if (!changed)
		return;
	for (unsigned i = 0; i < MAX_WATCHERS && call[i]; i++)
		call[i]();
}

/* ---- the watcher --------------------------------------------------------- */

static void watch_ready(struct loop_fd *lf, uint32_t revents)
{
	(void)revents;
	if (nl_watch_drain(lf->fd))
		gid_refresh();
}

static struct loop_fd watch_fd PROCESS_STATE = {
	.fd = -1,
	.events = EPOLLIN,
	.ready = watch_ready,
};

void gid_watch_start(void)
{
	int ret;

	table_get();
	if (watching) {
		lock_put(&gid_lock);
		return;
	}
	watching = true;
	lock_put(&gid_lock);
	watch_fd.fd = nl_watch_open();
	ret = watch_fd.fd < 0 ? watch_fd.fd : 0;
	if (!ret) {
		watch_fd.fd = fdset_take(watch_fd.fd);
		ret = loop_fd_add(&watch_fd);
		if (ret)
			fdset_close(watch_fd.fd);
	}
	if (ret) {
		log_warn("address changes will not be seen: %s", strerror(-ret));
		lock_get(&gid_lock);
		watching = false; /* who opens the device next tries again */
		lock_put(&gid_lock);
		return;
	}
	/* A change between the first reading and the watch. */
	gid_refresh();
}

void gid_watch(void (*cb)(void))
{
	unsigned i;

	gid_watch_start();
	lock_get(&gid_lock);
	for (i = 0; i < MAX_WATCHERS && watchers[i] && watchers[i] != cb; i++)
		;
	if (i < MAX_WATCHERS)
		watchers[i] = cb;
	else
		log_error("more than %d callbacks for address changes", MAX_WATCHERS);
	lock_put(&gid_lock);
}
