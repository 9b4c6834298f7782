/* SPDX-License-Identifier: BSD-2-Clause */
/* Exported verbs that this device does not have, each with its documented refusal:
 * sharing objects between processes needs handles of the kernel, dma-buf needs a device
 * that can access it, and an Ethernet address needs a port that has one. */
#include "verbs/edge.h"

static int refuse(const char *verb)
{
	const struct dev_ops *ops = dev_ops();

	return ops ? ops->unsupported(verb) : -ENODEV;
}

static void *refuse_ptr(const char *verb)
{
	errno = -refuse(verb);
	return NULL;
}

EXPORT struct ibv_context *ibv_import_device(int cmd_fd)
{
	(void)cmd_fd;
	return refuse_ptr("ibv_import_device");
}

EXPORT struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t pd_handle)
{
	(void)context;
	(void)pd_handle;
	return refuse_ptr("ibv_import_pd");
}

EXPORT void ibv_unimport_pd(struct ibv_pd *pd)
{
	(void)pd;
}

EXPORT struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t mr_handle)
{
	(void)pd;
	(void)mr_handle;
	return refuse_ptr("ibv_import_mr");
}

EXPORT void ibv_unimport_mr(struct ibv_mr *mr)
{
	(void)mr;
}

EXPORT struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t dm_handle)
{
	(void)context;
	(void)dm_handle;
	return refuse_ptr("ibv_import_dm");
}

EXPORT void ibv_unimport_dm(struct ibv_dm *dm)
{
	(void)dm;
}

EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
					uint64_t iova, int fd, int access)
{
	(void)pd;
	(void)offset;
	(void)length;
	(void)iova;
	(void)fd;
	(void)access;
	return refuse_ptr("ibv_reg_dmabuf_mr");
}

EXPORT int ibv_resolve_eth_l2_from_gid(struct ibv_context *context,
				       struct ibv_ah_attr *attr,
				       uint8_t eth_mac[ETHERNET_LL_SIZE], uint16_t *vid)
{
	(void)context;
	(void)attr;
	(void)eth_mac;
	(void)vid;
	errno = -refuse("ibv_resolve_eth_l2_from_gid");
	return -errno; /* negative, as the verb has it */
}
