/* SPDX-License-Identifier: BSD-2-Clause */
/* INIT_QP_ATTR, and the kernel's forms of attributes. */
#include "base/log.h"
#include "cm/kernel/kernel.h"

#include <endian.h>
#include <string.h>

/* Some kernels ask for source and VLAN addresses, which user space cannot set. */
enum { MASK_L2 = 0xE00000 };

void kernel_ah_attr(const struct ib_uverbs_ah_attr *in, struct ibv_ah_attr *out)
{
	memset(out, 0, sizeof(*out));
	memcpy(&out->grh.dgid, in->grh.dgid, sizeof(out->grh.dgid));
	out->grh.flow_label = in->grh.flow_label;
	out->grh.sgid_index = in->grh.sgid_index;
	out->grh.hop_limit = in->grh.hop_limit;
	out->grh.traffic_class = in->grh.traffic_class;
	out->dlid = in->dlid;
	out->sl = in->sl;
	out->src_path_bits = in->src_path_bits;
	out->static_rate = in->static_rate;
	out->is_global = in->is_global;
	out->port_num = in->port_num;
}

static void unpack(const struct ib_uverbs_qp_attr *in, struct ibv_qp_attr *out)
{
	out->cur_qp_state = in->cur_qp_state;
	out->path_mtu = in->path_mtu;
	out->path_mig_state = in->path_mig_state;
	out->qkey = in->qkey;
	out->rq_psn = in->rq_psn;
	out->sq_psn = in->sq_psn;
	out->dest_qp_num = in->dest_qp_num;
	out->qp_access_flags = in->qp_access_flags;
	out->cap.max_send_wr = in->max_send_wr;
	out->cap.max_recv_wr = in->max_recv_wr;
	out->cap.max_send_sge = in->max_send_sge;
	out->cap.max_recv_sge = in->max_recv_sge;
	out->cap.max_inline_data = in->max_inline_data;
	kernel_ah_attr(&in->ah_attr, &out->ah_attr);
	kernel_ah_attr(&in->alt_ah_attr, &out->alt_ah_attr);
	out->pkey_index = in->pkey_index;
	out->alt_pkey_index = in->alt_pkey_index;
	out->en_sqd_async_notify = in->en_sqd_async_notify;
	out->sq_draining = in->sq_draining;
	out->max_rd_atomic = in->max_rd_atomic;
	out->max_dest_rd_atomic = in->max_dest_rd_atomic;
	out->min_rnr_timer = in->min_rnr_timer;
	out->port_num = in->port_num;
	out->timeout = in->timeout;
	out->retry_cnt = in->retry_cnt;
	out->rnr_retry = in->rnr_retry;
	out->alt_port_num = in->alt_port_num;
	out->alt_timeout = in->alt_timeout;
}

static bool on_ethernet(struct cm_id *id)
{
	struct ibv_port_attr port;

	memset(&port, 0, sizeof(port));
	return !ibv_query_port(id->pub.verbs, id->pub.port_num, &port) &&
	       port.link_layer == IBV_LINK_LAYER_ETHERNET;
}

/* Version 3 of the ABI does not know INIT for a QP without a connection. */
static int init_version3(struct cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	struct ibv_device_attr dev;
	__be16 pkey, want = id->pub.route.addr.addr.ibaddr.pkey;
	int i;

	if (ibv_query_device(id->pub.verbs, &dev))
		return -ENODEV;
	for (i = 0; i < dev.max_pkeys; i++)
		if (!ibv_query_pkey(id->pub.verbs, id->pub.port_num, i, &pkey) &&
		    (pkey == want || !want))
			break;
	if (i == dev.max_pkeys)
		return log_refuse(EINVAL, "id %p: partition key 0x%x is not in the table",
				  (void *)id, be16toh(want));
	attr->pkey_index = (uint16_t)i;
	attr->port_num = id->pub.port_num;
	*mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	if (id->pub.qp_type == IBV_QPT_UD) {
		attr->qkey = RDMA_UDP_QKEY;
		*mask |= IBV_QP_QKEY;
	} else {
		attr->qp_access_flags = 0;
		*mask |= IBV_QP_ACCESS_FLAGS;
	}
	return 0;
}

int kernel_init_qp_attr(struct cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	KERNEL_REQ(req, rdma_ucm_init_qp_attr);
	struct ib_uverbs_qp_attr resp;
	int r;

	if (kernel_abi() == 3 && attr->qp_state == IBV_QPS_INIT)
		return init_version3(id, attr, mask);
	memset(&resp, 0, sizeof(resp));
	req.p.response = (uintptr_t)&resp;
	req.p.id = to_kernel(id)->handle;
	req.p.qp_state = attr->qp_state;
	r = kernel_command(kernel_fd(id), RDMA_USER_CM_CMD_INIT_QP_ATTR, &req, sizeof(resp));
	if (r)
		return r;
	unpack(&resp, attr);
	*mask = (int)resp.qp_attr_mask;
	if ((*mask & MASK_L2) && !on_ethernet(id))
		*mask &= ~MASK_L2;
	return 0;
}
