/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/be.h"
#include "base/conf.h"
#include "base/log.h"
#include "base/state.h"
#include "dev/av.h"
#include "dev/gid.h"
#include "dev/route.h"
#include "dev/verbs.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

static atomic_int count PROCESS_STATE;

int ah_check(unsigned device, const struct ibv_ah_attr *a)
{
	struct dev_route route;

	return route_find(device, a, &route);
}

/* Counts one more, unless there are as many as the device has. */
static int count_add(void)
{
	if (atomic_fetch_add(&count, 1) < DEV_MAX_AH)
		return 0;
	atomic_fetch_sub(&count, 1);
	return log_refuse(ENOMEM,
			  "ibv_create_ah: %d address handles exist, no more are allowed",
			  DEV_MAX_AH);
}

int ah_create(struct dev_pd *pd, const struct ibv_ah_attr *attr, struct dev_ah **out)
{
	struct dev_route route;
	struct dev_ah *ah;
	int ret = route_find(object_device(&pd->object), attr, &route);

	if (!ret)
		ret = count_add();
	if (ret)
		return ret;
	ah = calloc(1, sizeof(*ah));
	if (ah)
		ah->av = av_new(attr, &route, pd_root(pd));
	if (!ah || !ah->av) {
		free(ah);
		atomic_fetch_sub(&count, 1);
		return -ENOMEM;
	}
	object_init(&ah->object, pd->object.context);
	ah->ah.context = ah->object.context;
	ah->ah.pd = &pd->pd;
	ah->ah.handle = ah->object.handle;
	ah->pd = pd;
	atomic_fetch_add(&pd->refs, 1);
	*out = ah;
	return 0;
}

int ah_create_from_wc(struct dev_pd *pd, const struct ibv_wc *wc,
		      const struct ibv_grh *grh, uint8_t port, struct dev_ah **out)
{
	struct ibv_ah_attr attr;
	int ret = ah_init_from_wc(object_device(&pd->object), port, wc, grh, &attr);

	return ret ? ret : ah_create(pd, &attr, out);
}

void ah_destroy(struct dev_ah *ah)
{
	atomic_fetch_sub(&ah->pd->refs, 1);
	atomic_fetch_sub(&count, 1);
	av_put(ah->av);
	free(ah);
}

/* ---- the way back from a completion ------------------------------------------ */

/* The 40 bytes before a datagram have an IPv4 header in their last 20, or they are an IPv6
 * header, which has a GRH's layout (RoCE v2, A17.4.5.2). */
enum { V4_AT = 20, V4_LEN = 20 };
/* On InfiniBand they are a GRH (8.3). */
enum { NEXT_HEADER_IB = 0x1b };

static bool sum_is_right(const uint8_t *v4)
{
	uint32_t sum = 0;

	for (int i = 0; i < V4_LEN; i += 2)
		sum += be16_get(v4 + i);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16) == 0xffff;
}

/* 4, 6, or 0: neither. The first 20 bytes mean nothing before an IPv4 header: if they look
 * like IPv6, its length and checksum decide. */
static int header_version(const uint8_t *raw)
{
	const uint8_t *v4 = raw + V4_AT;

	if (conf_get()->link_ib)
		return raw[0] >> 4 == 6 ? 6 : 0;
	if (raw[0] >> 4 != 6)
		return v4[0] >> 4 == 4 ? 4 : 0;
	return v4[0] == 0x45 && sum_is_right(v4) ? 4 : 6;
}

static void v4_gid(const uint8_t *addr, union ibv_gid *gid)
{
	memset(gid, 0, sizeof(*gid));
	gid->raw[10] = gid->raw[11] = 0xff;
	memcpy(gid->raw + 12, addr, 4);
}

static void from_v4(const uint8_t *v4, struct ibv_global_route *route, union ibv_gid *to)
{
	route->traffic_class = v4[1];
	route->hop_limit = v4[8];
	v4_gid(v4 + 12, &route->dgid);
	v4_gid(v4 + 16, to);
}

static int from_v6(const uint8_t *raw, struct ibv_global_route *route, union ibv_gid *to)
{
	const uint8_t next = conf_get()->link_ib ? NEXT_HEADER_IB : IPPROTO_UDP;

	if (raw[6] != next)
		return log_refuse(EPROTONOSUPPORT,
				  "ibv_init_ah_from_wc: next header %u, not %u", raw[6],
				  next);
	route->traffic_class = (uint8_t)(be32_get(raw) >> 20);
	route->hop_limit = raw[7];
	memcpy(&route->dgid, raw + 8, 16);
	memcpy(to, raw + 24, 16);
	return 0;
}

/* Our GID that a datagram was sent to. To a group it is none of ours, and the header does
 * not say which the datagram came in by: refused, as by the distribution's library. */
static int source_index(unsigned device, const union ibv_gid *to)
{
	struct sockaddr_storage ss;
	int index;

	if (gid_is_mcast(to))
		return log_refuse(EINVAL,
				  "ibv_init_ah_from_wc: the datagram was sent to a "
				  "group, which has no GID index");
	gid_to_addr(to, 0, 0, &ss);
	index = gid_of_addr(device, (struct sockaddr *)&ss);
	return index >= 0 ? index :
			    log_refuse(EINVAL, "ibv_init_ah_from_wc: the destination is "
					       "none of the device's GIDs");
}

int ah_init_from_wc(unsigned device, uint8_t port, const struct ibv_wc *wc,
		    const struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
	const uint8_t *raw = (const uint8_t *)grh;
	struct ibv_ah_attr a = { .dlid = (uint16_t)wc->slid,
				 .sl = wc->sl,
				 .src_path_bits = wc->dlid_path_bits,
				 .port_num = port };
	union ibv_gid to;
	int ret = 0, version;

	if (!(wc->wc_flags & IBV_WC_GRH)) {
		*attr = a; /* by LID; ah_create() refuses it on Ethernet */
		return 0;
	}
	if (port != 1 || !grh)
		return log_refuse(EINVAL, "ibv_init_ah_from_wc: port %u%s", port,
				  grh ? "" : ", and no GRH");
	version = header_version(raw);
	a.is_global = 1;
	a.grh.flow_label = be32_get(raw) & 0xfffff;
	if (version == 4)
		from_v4(raw + V4_AT, &a.grh, &to);
	else if (version == 6)
		ret = from_v6(raw, &a.grh, &to);
	else
		ret = log_refuse(EPROTONOSUPPORT,
				 "ibv_init_ah_from_wc: neither an IPv4 nor "
				 "an IPv6 header");
	if (!ret)
		ret = source_index(device, &to);
	if (ret < 0)
		return ret;
	a.grh.sgid_index = (uint8_t)ret;
	*attr = a;
	return 0;
}
