/* SPDX-License-Identifier: BSD-2-Clause */
/* Addresses: bind, resolution, and what queries answer. */
#include "base/conf.h"
#include "base/log.h"
#include "cm/user/user.h"

#include <arpa/inet.h>
#include <endian.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

static struct sockaddr *sa(struct sockaddr_storage *ss)
{
	return (struct sockaddr *)ss;
}

static int check_family(const struct sockaddr *addr)
{
	const struct sockaddr_in6 *a = (const void *)addr;

	if (!sa_len(addr))
		return log_refuse(EAFNOSUPPORT, "address family %d is neither IPv4 nor IPv6",
				  addr->sa_family);
	if (addr->sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&a->sin6_addr) &&
	    !a->sin6_scope_id)
		return log_refuse(EINVAL, "a link-local address needs a scope id");
	return 0;
}

/* -EADDRNOTAVAIL: not an address of this host; -ENODEV: one, but not in the
 * device's GID table. */
static int check_local(const struct sockaddr *addr)
{
	struct sockaddr_storage ss = { 0 };
	char text[PORT_ADDR_STR];
	int fd, ret = 0;

	if (cm_dev->gid_device(addr) >= 0)
		return 0;
	fd = socket(addr->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	memcpy(&ss, addr, sa_len(addr));
	sa_set_port(sa(&ss), 0);
	if (bind(fd, sa(&ss), sa_len(addr)))
		ret = -errno;
	close(fd);
	if (ret)
		return log_refuse(-ret, "%s is not an address of this host: %s",
				  sa_str(addr, text), strerror(-ret));
	return log_refuse(ENODEV, "%s is not in a device's GID table",
			  sa_str(addr, text));
}

void user_device_set(struct user_id *u)
{
	int device = cm_dev->gid_device((const struct sockaddr *)&u->src);

	if (device >= 0)
		u->device = (unsigned)device;
}

/* ---- bind ------------------------------------------------------------------------ */

int user_bind_locked(struct user_id *u, const struct sockaddr *addr)
{
	bool any = sa_any(addr) || sa_loopback(addr);
	int ret;

	if (!any) {
		ret = check_local(addr);
		if (ret)
			return ret;
	}
	ret = port_bind(u->ps, addr, user_afonly(u, addr->sa_family), u->reuse, &u->port);
	if (ret)
		return ret;
	memset(&u->src, 0, sizeof(u->src));
	memcpy(&u->src, addr, sa_len(addr));
	sa_set_port(&u->src.sa, u->port.num);
	u->bound = !any;
	user_device_set(u);
	return 0;
}

int user_bind(struct cm_id *id, const struct sockaddr *addr)
{
	struct user_id *u = to_user(id);
	int ret = check_family(addr);

	if (ret)
		return ret;
	lock_get(&u->lock);
	if (user_state_next(u->state, ST_BIND) < 0) {
		ret = u->state == US_REMOVED ? -ENXIO : -EINVAL;
		log_info("bind is refused: the id is in state %s", user_state_str(u->state));
	} else {
		ret = user_bind_locked(u, addr);
		if (!ret)
			user_step(u, ST_BIND);
	}
	lock_put(&u->lock);
	return ret;
}

/* ---- resolution ------------------------------------------------------------------ */

/* The wildcard as a destination means this host. */
static void to_loopback(struct sockaddr_storage *ss)
{
	if (!sa_any(sa(ss)))
		return;
	if (ss->ss_family == AF_INET)
		((struct sockaddr_in *)ss)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	else
		((struct sockaddr_in6 *)ss)->sin6_addr = in6addr_loopback;
}

/* Asks the routing table which source address leads to dst; want, if specific,
 * must be it. A connected UDP socket sends nothing. */
static int route_source(const struct sockaddr_storage *dst, const struct sockaddr *want,
			struct sockaddr_storage *src)
{
	struct sockaddr_storage to = *dst, from = { 0 };
	socklen_t len = sizeof(*src);
	char a[PORT_ADDR_STR];
	int fd, ret = 0;

	fd = socket(dst->ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (want && !sa_any(want)) {
		memcpy(&from, want, sa_len(want));
		sa_set_port(sa(&from), 0);
		if (bind(fd, sa(&from), sa_len(want)))
			ret = -errno;
	}
	sa_set_port(sa(&to), 9); /* any but 0 */
	if (!ret && connect(fd, sa(&to), sa_len(sa(&to))))
		ret = -errno;
	memset(src, 0, sizeof(*src));
	if (!ret && getsockname(fd, sa(src), &len))
		ret = -errno;
	close(fd);
	if (ret)
		return log_refuse(-ret, "no way to %s: %s",
				  sa_str((const struct sockaddr *)dst, a), strerror(-ret));
	sa_set_port(sa(src), 0);
	return 0;
}

/* What the routing table said about addresses of this host, until one of them changes:
 * connections to them are made by the thousand. */
static struct {
	struct lock lock; /* leaf */
	unsigned generation, next;
	bool watched;
	struct local_route {
		struct sockaddr_storage dst, src;
	} v[8];
} local_routes PROCESS_STATE = { .lock = LOCK_INIT };

static void local_route_forget(void)
{
	lock_get(&local_routes.lock);
	local_routes.generation++;
	memset(local_routes.v, 0, sizeof(local_routes.v));
	lock_put(&local_routes.lock);
}

static bool local_route_find(const struct sockaddr_storage *dst, struct sockaddr_storage *src,
			     unsigned *generation)
{
	bool watch, found = false;

	lock_get(&local_routes.lock);
	watch = !local_routes.watched;
	local_routes.watched = true;
	*generation = local_routes.generation;
	for (unsigned i = 0; i < 8 && !found; i++) {
		found = !memcmp(&local_routes.v[i].dst, dst, sizeof(*dst));
		if (found)
			*src = local_routes.v[i].src;
	}
	lock_put(&local_routes.lock);
	if (watch)
		cm_dev->gid_watch(local_route_forget);
	return found;
}

static void local_route_store(const struct sockaddr_storage *dst,
			      const struct sockaddr_storage *src, unsigned generation)
{
	lock_get(&local_routes.lock);
	if (generation == local_routes.generation)
		local_routes.v[local_routes.next++ % 8] = (struct local_route){ *dst, *src };
	lock_put(&local_routes.lock);
}

static int source_for(const struct sockaddr_storage *dst, const struct sockaddr *want,
		      struct sockaddr_storage *src)
{
	struct sockaddr_storage to = *dst;
	unsigned generation;
	int ret;

	if ((want && !sa_any(want)) || cm_dev->gid_device((const struct sockaddr *)dst) < 0)
		return route_source(dst, want, src);
	sa_set_port(sa(&to), 0);
	if (local_route_find(&to, src, &generation))
		return 0;
	ret = route_source(dst, want, src);
	if (!ret)
		local_route_store(&to, src, generation);
	return ret;
}

static int resolve_locked(struct user_id *u, const struct sockaddr *src,
			  const struct sockaddr *dst) REQUIRES(u->lock)
{
	bool owns = u->port.name_fd >= 0;
	struct sockaddr_storage to = { 0 }, from;
	const struct sockaddr *want = owns ? &u->src.sa : src;
	char text[PORT_ADDR_STR];
	int ret;

	/* Loopback means "any device" in a bind, so the route decides; but no route leads from
	 * there to a group, and who names it means the members on this host. */
	if (owns && sa_loopback(want) && !sa_group(dst))
		want = NULL;
	if (want && want->sa_family != dst->sa_family)
		return log_refuse(EINVAL, "source family %d, destination family %d",
				  want->sa_family, dst->sa_family);
	memcpy(&to, dst, sa_len(dst));
	to_loopback(&to);
	ret = source_for(&to, want, &from);
	if (ret)
		return ret;
	if (cm_dev->gid_device(sa(&from)) < 0)
		return log_refuse(ENODEV, "source %s is not in a device's GID table",
				  sa_str(sa(&from), text));
	if (owns)
		sa_set_port(sa(&from), u->port.num);
	else if (src && sa_port(src))
		sa_set_port(sa(&from), sa_port(src));
	else
		sa_set_port(sa(&from), port_number());
	user_addr_set(&u->src, &from);
	user_addr_set(&u->dst, &to);
	return 0;
}

int user_resolve_addr(struct cm_id *id, const struct sockaddr *src,
		      const struct sockaddr *dst, int timeout_ms)
{
	struct user_id *u = to_user(id);
	int ret = check_family(dst);

	(void)timeout_ms; /* bounds neighbour discovery: ours is TCP's, at connect */
	if (!ret && src)
		ret = check_family(src);
	if (ret)
		return ret;
	lock_get(&u->lock);
	if (user_state_next(u->state, ST_RESOLVE_ADDR) < 0) {
		ret = u->state == US_REMOVED ? -ENXIO : -EINVAL;
		log_info("resolve_addr is refused: the id is in state %s",
			 user_state_str(u->state));
	} else if (src && u->port.name_fd < 0 && sa_port(src)) {
		/* A source port asked for is one to own. */
		ret = user_bind_locked(u, src);
		if (!ret)
			user_step(u, ST_BIND);
	}
	if (!ret)
		ret = resolve_locked(u, src, dst);
	if (!ret)
		ret = user_event_reserve(u, USER_EVENT_ONE);
	if (!ret) { /* nothing to wait for: the event is there when the call returns */
		user_step(u, ST_RESOLVE_ADDR);
		user_step(u, ST_ADDR_OK);
		u->bound = true;
		user_device_set(u);
		user_post(u, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	}
	lock_put(&u->lock);
	return ret;
}

int user_resolve_route(struct cm_id *id, int timeout_ms)
{
	struct user_id *u = to_user(id);
	int ret;

	if (timeout_ms <= 0)
		return log_refuse(EINVAL, "resolve_route needs a timeout, not %d ms",
				  timeout_ms);
	lock_get(&u->lock);
	ret = u->state == US_REMOVED ? -ENXIO : user_event_reserve(u, USER_EVENT_ONE);
	if (!ret)
		ret = user_step(u, ST_RESOLVE_ROUTE);
	if (!ret) {
		if (u->timeout_set)
			u->life_time = u->timeout ? u->timeout - 1 : USER_LIFE_TIME;
		user_step(u, ST_ROUTE_OK);
		user_post(u, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	} else {
		log_info("resolve_route is refused: the id is in state %s",
			 user_state_str(u->state));
	}
	lock_put(&u->lock);
	return ret;
}

/* ---- queries --------------------------------------------------------------------- */

int user_query_addr(struct cm_id *id, struct cm_addrs *out)
{
	struct user_id *u = to_user(id);

	memset(out, 0, sizeof(*out));
	out->dev_index = UINT32_MAX; /* the GUID names it */
	lock_get(&u->lock);
	memcpy(&out->src, &u->src, sizeof(u->src));
	memcpy(&out->dst, &u->dst, sizeof(u->dst));
	out->bound = u->bound;
	if (u->bound) {
		out->node_guid = cm_dev->device_guid(u->device);
		out->port_num = 1;
		/* An Ethernet interface has none: the original says 0. */
		out->pkey = conf_get()->link_ib ? 0xffff : 0;
		cm_dev->gid_from_addr(&u->src.sa, &out->sgid);
		if (u->dst.ss_family)
			cm_dev->gid_from_addr(&u->dst.sa, &out->dgid);
	}
	lock_put(&u->lock);
	return 0;
}

static void path_make(struct user_id *u, struct ibv_path_data *d) REQUIRES(u->lock)
{
	struct ibv_path_record *p = &d->path;
	enum { EXACTLY = 2 << 6 }; /* selector of MTU, rate, life time */

	memset(d, 0, sizeof(*d));
	d->flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;
	p->service_id = htobe64((uint64_t)u->ps << 16 | sa_port(&u->dst.sa));
	cm_dev->gid_from_addr(&u->dst.sa, &p->dgid);
	cm_dev->gid_from_addr(&u->src.sa, &p->sgid);
	if (conf_get()->link_ib) {
		p->dlid = htobe16(cm_dev->lid_of_gid(&p->dgid));
		p->slid = htobe16(cm_dev->lid_of_gid(&p->sgid));
	}
	p->flowlabel_hoplimit = htobe32(USER_HOP_LIMIT);
	p->tclass = u->tos;
	p->reversible_numpath = 0x80 | 1;
	p->pkey = htobe16(0xffff);
	p->mtu = (uint8_t)(EXACTLY | (u->conn.mtu ? u->conn.mtu : cm_dev->active_mtu(u->device)));
	p->rate = EXACTLY | IBV_RATE_10_GBPS;
	p->packetlifetime = (uint8_t)(EXACTLY | u->life_time);
}

int user_query_path(struct cm_id *id, struct ibv_path_data *path, int max)
{
	struct user_id *u = to_user(id);
	int ret = 1;

	lock_get(&u->lock);
	if (!u->bound || u->state < US_ROUTE_RESOLVED || u->state == US_LISTEN ||
	    (user_is_ud(u) && u->listener)) /* a request of datagrams has no path */
		ret = 0;
	else if (max > 0 && u->path)
		*path = *u->path;
	else if (max > 0)
		path_make(u, path);
	lock_put(&u->lock);
	return ret;
}
