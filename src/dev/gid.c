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

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>

enum {
	MAX_WATCHERS = 8,
	AGAIN_MS = 100,
};

static struct lock gid_lock PROCESS_STATE = LOCK_INIT;
/* Under gid_lock. */
static struct gid_table table PROCESS_STATE;
static bool loaded PROCESS_STATE;
static bool watching PROCESS_STATE;
static void (*watchers[MAX_WATCHERS])(void) PROCESS_STATE;

static bool is_hole(const union ibv_gid *gid)
{
	static const union ibv_gid zero;

	return !memcmp(gid, &zero, sizeof(zero));
}

/* 1: a slot changed; 0; or -errno, and the table stays as it is. */
static int load_locked(void)
{
	struct nl_host h;
	int ret = nl_host_read(&h);

	if (!ret) {
		ret = gid_table_merge(&table, &h, conf_get()->addr);
		nl_host_free(&h);
	}
	if (ret < 0)
		log_error("cannot read the host's addresses (netlink): %s",
			  strerror(-ret));
	else
		loaded = true;
	return ret;
}

/* Locks, and reads the host on first use. */
static void table_get(void) ACQUIRE(gid_lock)
{
	lock_get(&gid_lock);
	if (!loaded)
		load_locked();
}

bool gid_get(unsigned i, struct gid_slot *out)
{
	if (i >= DEV_GIDS)
		return false;
	table_get();
	*out = table.slot[i];
	lock_put(&gid_lock);
	return true;
}

unsigned gid_count(void)
{
	unsigned n;

	table_get();
	n = table.count;
	lock_put(&gid_lock);
	return n;
}

enum ibv_mtu gid_active_mtu(void)
{
	enum ibv_mtu m;

	table_get();
	m = loaded ? table.active_mtu : IBV_MTU_1024;
	lock_put(&gid_lock);
	return m;
}

bool gid_port_active(void)
{
	bool active;

	table_get();
	active = table.port_active;
	lock_put(&gid_lock);
	return active;
}

int gid_index(const union ibv_gid *gid, uint32_t ifindex)
{
	int found = -ENODEV;

	if (is_hole(gid))
		return -ENODEV;
	table_get();
	for (unsigned i = 0; i < table.count && found < 0; i++)
		if (!memcmp(&table.slot[i].gid, gid, sizeof(*gid)) &&
		    (!ifindex || table.slot[i].ifindex == ifindex))
			found = (int)i;
	lock_put(&gid_lock);
	return found;
}

/* First IPv4 slot in 127.0.0.0/8, for 127.0.0.5 and its like. */
static int loopback_v4(void)
{
	int found = -ENODEV;

	table_get();
	for (unsigned i = 0; i < table.count && found < 0; i++)
		if (table.slot[i].loopback && gid_is_v4(&table.slot[i].gid))
			found = (int)i;
	lock_put(&gid_lock);
	return found;
}

int gid_of_addr(const struct sockaddr *sa)
{
	union ibv_gid gid;
	uint32_t scope = 0;
	int i;

	if (sa->sa_family != AF_INET && sa->sa_family != AF_INET6)
		return -ENODEV;
	gid_from_addr(sa, &gid);
	if (sa->sa_family == AF_INET6 &&
	    IN6_IS_ADDR_LINKLOCAL((struct in6_addr *)gid.raw))
		scope = ((const struct sockaddr_in6 *)sa)->sin6_scope_id;
	i = gid_index(&gid, scope);
	if (i < 0 && gid_is_v4(&gid) && gid.raw[12] == 127)
		i = loopback_v4();
	return i;
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

void gid_refresh(void)
{
	void (*call[MAX_WATCHERS])(void);
	bool was_loaded, was_active, active;
	int ret;

	lock_get(&gid_lock);
	was_loaded = loaded;
	was_active = table.port_active;
	ret = load_locked();
	active = table.port_active;
	memcpy(call, watchers, sizeof(call));
	lock_put(&gid_lock);
	if (ret == -ENOMEM)
		loop_timer_set(&again, loop_now() + AGAIN_MS * MSEC);
	if (!was_loaded)
		return;
	if (active != was_active)
		async_port(active ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
	if (ret <= 0)
		return;
	log_debug("the GID table changed");
	async_port(IBV_EVENT_GID_CHANGE);
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
