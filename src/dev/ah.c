/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/be.h"
#include "base/log.h"
#include "base/state.h"
#include "dev/gid.h"
#include "dev/verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static atomic_int count PROCESS_STATE;

int ah_check(const struct ibv_ah_attr *a)
{
	static const union ibv_gid zero;
	struct gid_slot s;

	if (a->port_num != 1)
		return log_refuse(EINVAL, "address: port %u does not exist", a->port_num);
	if (a->sl > 15)
		return log_refuse(EINVAL, "address: service level %u, 15 is the last",
				  a->sl);
	if (!a->is_global)
		return log_refuse(
			EINVAL,
			"address: no global route; on Ethernet every "
			"address needs one (is_global, grh.dgid, grh.sgid_index)");
	if (!gid_get(a->grh.sgid_index, &s) || !memcmp(&s.gid, &zero, sizeof(zero)))
		return log_refuse(EINVAL, "address: source GID index %u is empty",
				  a->grh.sgid_index);
	if (!memcmp(&a->grh.dgid, &zero, sizeof(zero)))
		return log_refuse(EINVAL, "address: the destination GID is zero");
	return 0;
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
	struct dev_ah *ah;
	int ret = ah_check(attr);

	if (!ret)
		ret = count_add();
	if (ret)
		return ret;
	ah = calloc(1, sizeof(*ah));
	if (!ah) {
		atomic_fetch_sub(&count, 1);
		return -ENOMEM;
	}
	object_init(&ah->object, pd->object.context);
	ah->ah.context = ah->object.context;
	ah->ah.pd = &pd->pd;
	ah->ah.handle = ah->object.handle;
	ah->attr = *attr;
	atomic_fetch_add(&pd->refs, 1);
	*out = ah;
	return 0;
}

int ah_create_from_wc(struct dev_pd *pd, const struct ibv_wc *wc,
		      const struct ibv_grh *grh, uint8_t port, struct dev_ah **out)
{
	struct ibv_ah_attr attr;
	int ret = ah_init_from_wc(port, wc, grh, &attr);

	return ret ? ret : ah_create(pd, &attr, out);
}

void ah_destroy(struct dev_ah *ah)
{
	atomic_fetch_sub(&to_pd(ah->ah.pd)->refs, 1);
	atomic_fetch_sub(&count, 1);
	free(ah);
}

/* RoCE v2 (Annex A17.4.5.2): for IPv4 the 40-byte area has the IPv4 header in
 * its last 20 bytes; for IPv6 it is the IPv6 header, which has a GRH's layout. */
int ah_init_from_wc(uint8_t port, const struct ibv_wc *wc, const struct ibv_grh *grh,
		    struct ibv_ah_attr *attr)
{
	const uint8_t *raw = (const uint8_t *)grh;
	struct ibv_ah_attr a = {
		.port_num = port, .sl = wc->sl, .is_global = 1, .grh.hop_limit = 255
	};
	union ibv_gid dst;
	uint32_t word;
	int index;

	if (port != 1 || !(wc->wc_flags & IBV_WC_GRH) || !grh)
		return log_refuse(EINVAL,
				  "ibv_init_ah_from_wc: port %u, completion %s "
				  "global route",
				  port, wc->wc_flags & IBV_WC_GRH ? "with" : "without");
	word = be32_get(raw);
	if (word >> 28 == 6) {
		memcpy(&dst, raw + 24, 16);
		memcpy(&a.grh.dgid, raw + 8, 16);
		a.grh.traffic_class = (uint8_t)(word >> 20);
		a.grh.flow_label = word & 0xfffff;
	} else if (raw[20] >> 4 == 4) {
		memset(&dst, 0, sizeof(dst));
		dst.raw[10] = dst.raw[11] = 0xff;
		a.grh.dgid = dst;
		memcpy(a.grh.dgid.raw + 12, raw + 32, 4);
		memcpy(dst.raw + 12, raw + 36, 4);
		a.grh.traffic_class = raw[21];
	} else {
		return log_refuse(EINVAL, "ibv_init_ah_from_wc: neither an IPv4 nor an "
					  "IPv6 header");
	}
	index = gid_index(&dst, 0);
	if (index < 0)
		return log_refuse(EINVAL,
				  "ibv_init_ah_from_wc: the destination is none of "
				  "our GIDs");
	a.grh.sgid_index = (uint8_t)index;
	*attr = a;
	return 0;
}
