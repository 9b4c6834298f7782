/* SPDX-License-Identifier: BSD-2-Clause */
/* The attributes of the device. What they promise is kept, and what is zero is refused
 * where it would be used. */
#include "base/conf.h"
#include "base/log.h"
#include "base/state.h"
#include "dev/gid.h"
#include "dev/lid.h"
#include "dev/verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#ifndef ANYRDMA_VERSION /* the build defines it */
#define ANYRDMA_VERSION "0"
#endif

/* IBV_DEVICE_ATOMIC_WRITE of later headers. */
#define CAP_ATOMIC_WRITE (1ull << 40)

enum { VENDOR_PART = 1, HW_VER = 1 };

static atomic_int promised PROCESS_STATE; /* see query_promised_qp() */

static int max_qp(void)
{
	struct rlimit rl = { .rlim_cur = 1024 };
	rlim_t keep = 1024 + 256; /* the application's, and for CQs and channels */

	getrlimit(RLIMIT_NOFILE, &rl);
	if (rl.rlim_cur >= DEV_MAX_QP * 2)
		return DEV_MAX_QP;
	/* Two for each 256 QPs: their rendezvous port. Half of all are left to others. */
	if (conf_get()->transport == CONF_TRANSPORT_SHM)
		return rl.rlim_cur >= DEV_MAX_QP / 64 ? DEV_MAX_QP :
							(int)rl.rlim_cur / 4 * 256;
	if (rl.rlim_cur < 2 * keep)
		return (int)rl.rlim_cur / 2;
	/* One each, and the rendezvous ports. */
	return (int)((rl.rlim_cur - keep) / 64 * 63);
}

int query_max_qp(void)
{
	int max = max_qp();

	atomic_store_explicit(&promised, max, memory_order_relaxed);
	return max;
}

int query_promised_qp(void)
{
	return atomic_load_explicit(&promised, memory_order_relaxed);
}

void query_device(unsigned device, struct ibv_device_attr *a)
{
	memset(a, 0, sizeof(*a));
	strcpy(a->fw_ver, ANYRDMA_VERSION);
	a->node_guid = a->sys_image_guid = device_guid(device);
	a->max_mr_size = UINT64_MAX;
	a->page_size_cap = 0xfffffffffffff000ull;
	a->vendor_id = DEV_VENDOR_ID;
	a->vendor_part_id = VENDOR_PART;
	a->hw_ver = HW_VER;
	a->max_qp = query_max_qp();
	a->max_qp_wr = DEV_MAX_QP_WR;
	a->device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD |
			      IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SYS_IMAGE_GUID |
			      IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SRQ_RESIZE |
			      IBV_DEVICE_MEM_WINDOW |
			      IBV_DEVICE_MEM_WINDOW_TYPE_2B |
			      IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_XRC;
	a->max_sge = a->max_sge_rd = DEV_MAX_SGE;
	a->max_cq = DEV_MAX_CQ;
	a->max_cqe = DEV_MAX_CQE;
	a->max_mr = DEV_MAX_MR;
	a->max_mw = DEV_MAX_MW;
	a->max_pd = DEV_MAX_PD;
	a->max_qp_rd_atom = a->max_qp_init_rd_atom = DEV_MAX_RD_ATOM;
	a->max_res_rd_atom = DEV_MAX_RD_ATOM * a->max_qp;
	/* They are atomic towards the CPU, too (IBV_ATOMIC_GLOB), but adapters promise no more than
	 * this, and UCX uses the atomics of such a device alone. */
	a->atomic_cap = IBV_ATOMIC_HCA;
	a->max_ah = DEV_MAX_AH;
	a->max_srq = DEV_MAX_SRQ;
	a->max_srq_wr = DEV_MAX_SRQ_WR;
	a->max_srq_sge = DEV_MAX_SGE;
	a->max_mcast_grp = DEV_MAX_GROUPS;
	a->max_mcast_qp_attach = DEV_MAX_GROUP_QPS;
	a->max_total_mcast_qp_attach = DEV_MAX_GROUPS * DEV_MAX_GROUP_QPS;
	a->max_pkeys = 1;
	a->local_ca_ack_delay = 15; /* 4.096 us * 2^15: 134 ms, a busy process */
	a->phys_port_cnt = 1;
}

int query_device_ex(unsigned device, const struct ibv_query_device_ex_input *input,
		    struct ibv_device_attr_ex *attr, size_t size)
{
	struct ibv_device_attr_ex a;

	if (input && input->comp_mask)
		return log_refuse(EINVAL, "ibv_query_device_ex: unknown input mask 0x%x",
				  input->comp_mask);
	if (size < sizeof(a.orig_attr) + sizeof(a.comp_mask))
		return log_refuse(EINVAL, "ibv_query_device_ex: size %zu is too small",
				  size);
	memset(&a, 0, sizeof(a));
	query_device(device, &a.orig_attr);
	/* Everything else is zero: not offered. */
	a.completion_timestamp_mask = UINT64_MAX;
	a.hca_core_clock = 1000000; /* kHz: a tick is a nanosecond */
	a.device_cap_flags_ex = a.orig_attr.device_cap_flags | CAP_ATOMIC_WRITE;
	odp_caps(&a);
	a.cq_mod_caps.max_cq_count = UINT16_MAX;
	a.cq_mod_caps.max_cq_period = UINT16_MAX;
	a.phys_port_cnt_ex = 1;
	memset(attr, 0, size);
	memcpy(attr, &a, size < sizeof(a) ? size : sizeof(a));
	return 0;
}

/* As other providers do: the whole value of the clock is in tv_nsec. */
int query_rt_values(struct ibv_values_ex *values)
{
	if (values->comp_mask & ~(uint32_t)IBV_VALUES_MASK_RAW_CLOCK)
		return log_refuse(EINVAL,
				  "ibv_query_rt_values_ex: comp_mask 0x%x is unknown",
				  values->comp_mask);
	if (values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK)
		values->raw_clock = (struct timespec){ .tv_nsec = (long)cq_clock() };
	return 0;
}

static int port_check(uint32_t port, const char *call)
{
	if (port != 1)
		return log_refuse(EINVAL, "%s: port %u does not exist, only 1 does", call,
				  port);
	return 0;
}

/* Without a LID it is as one to which no subnet manager has come yet. */
static void port_ib(unsigned device, struct ibv_port_attr *a)
{
	a->link_layer = IBV_LINK_LAYER_INFINIBAND;
	a->lid = gid_lid(device);
	if (a->lid)
		a->sm_lid = LID_SM;
	else if (a->state == IBV_PORT_ACTIVE)
		a->state = IBV_PORT_INIT;
	a->subnet_timeout = 18; /* as OpenSM sets it: about a second */
}

int query_port(unsigned device, uint8_t port, struct ibv_port_attr *attr, size_t size)
{
	struct ibv_port_attr a;
	bool active;
	int ret = port_check(port, "ibv_query_port");

	if (ret)
		return ret;
	active = gid_port_active(device);
	memset(&a, 0, sizeof(a));
	a.state = active ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
	a.max_mtu = IBV_MTU_4096;
	a.active_mtu = gid_active_mtu(device);
	a.gid_tbl_len = DEV_GIDS;
	a.port_cap_flags = IBV_PORT_CM_SUP;
	a.max_msg_sz = DEV_MAX_MSG;
	a.pkey_tbl_len = 1;
	a.max_vl_num = 1;
	a.active_width = 2; /* 4x */
	a.active_speed = 4; /* 10 Gb/s a lane: the order of a loopback TCP stream */
	a.phys_state = active ? 5 : 3; /* LinkUp, Disabled */
	if (conf_get()->link_ib) {
		port_ib(device, &a);
	} else {
		a.port_cap_flags |= IBV_PORT_IP_BASED_GIDS;
		a.link_layer = IBV_LINK_LAYER_ETHERNET;
		a.flags = IBV_QPF_GRH_REQUIRED;
	}
	memset(attr, 0, size);
	memcpy(attr, &a, size < sizeof(a) ? size : sizeof(a));
	return 0;
}

int query_gid(unsigned device, uint32_t port, uint32_t index, union ibv_gid *gid)
{
	int ret = port_check(port, "ibv_query_gid");
	union ibv_gid shown;

	if (ret)
		return ret;
	if (!gid_shown(device, index, &shown))
		return log_refuse(EINVAL, "ibv_query_gid: index %u, the table has %d",
				  index, DEV_GIDS);
	*gid = shown;
	return 0;
}

static int gid_entry(unsigned device, uint32_t port, uint32_t index,
		     struct ibv_gid_entry *e)
{
	static const union ibv_gid zero;
	const bool ib = conf_get()->link_ib;
	union ibv_gid shown;
	struct gid_slot s;
	int ret = port_check(port, "ibv_query_gid_ex");

	if (ret)
		return ret;
	if (!gid_get(device, index, &s) || !gid_shown(device, index, &shown))
		return log_refuse(EINVAL, "ibv_query_gid_ex: index %u, the table has %d",
				  index, DEV_GIDS);
	if (!memcmp(&shown, &zero, sizeof(zero)))
		return -ENODATA;
	*e = (struct ibv_gid_entry){ .gid = shown,
				     .gid_index = index,
				     .port_num = port,
				     .gid_type = ib ? IBV_GID_TYPE_IB :
						      IBV_GID_TYPE_ROCE_V2,
				     .ndev_ifindex = ib ? 0 : s.ifindex };
	return 0;
}

int query_gid_ex(unsigned device, uint32_t port, uint32_t index,
		 struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
	struct ibv_gid_entry e;
	int ret;

	if (flags || size < sizeof(e))
		return log_refuse(EINVAL,
				  "ibv_query_gid_ex: flags 0x%x, entries of %zu bytes",
				  flags, size);
	ret = gid_entry(device, port, index, &e);
	if (ret)
		return ret;
	memset(entry, 0, size);
	memcpy(entry, &e, sizeof(e));
	return 0;
}

ssize_t query_gid_table(unsigned device, struct ibv_gid_entry *entries, size_t max,
			uint32_t flags, size_t size)
{
	uint8_t *out = (uint8_t *)entries;
	struct ibv_gid_entry e;
	size_t n = 0;

	if (flags || size < sizeof(e))
		return log_refuse(EINVAL,
				  "ibv_query_gid_table: flags 0x%x, entries of %zu bytes",
				  flags, size);
	for (uint32_t i = 0; i < gid_count(device); i++) {
		if (gid_entry(device, 1, i, &e))
			continue;
		if (n == max)
			return log_refuse(EINVAL,
					  "ibv_query_gid_table: more than %zu entries",
					  max);
		memset(out + n * size, 0, size);
		memcpy(out + n++ * size, &e, sizeof(e));
	}
	return (ssize_t)n;
}

int query_gid_type(unsigned device, uint32_t port, uint32_t index, unsigned int *type)
{
	union ibv_gid gid;
	int ret = query_gid(device, port, index, &gid);

	if (!ret)
		*type = conf_get()->link_ib ? 0 : 1;
	return ret;
}

int query_pkey(uint8_t port, int index, __be16 *pkey)
{
	int ret = port_check(port, "ibv_query_pkey");

	if (ret)
		return ret;
	if (index != 0)
		return log_refuse(EINVAL, "ibv_query_pkey: index %d, the table has 1",
				  index);
	*pkey = htons(0xffff);
	return 0;
}

int query_pkey_index(uint8_t port, __be16 pkey, int *index)
{
	__be16 have;
	int ret = query_pkey(port, 0, &have);

	if (ret)
		return ret;
	if (have != pkey)
		return -EINVAL;
	*index = 0;
	return 0;
}
