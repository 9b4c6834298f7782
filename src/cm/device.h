/* SPDX-License-Identifier: BSD-2-Clause */
/* The device table: one entry per ibv_device. Its verbs context is opened when
 * the first id binds to it, or by rdma_get_devices, is shared by all, and stays
 * open until the device is gone and nobody refers to it. The default PD exists
 * while an id is bound to the device. */
#ifndef ANYRDMA_CM_DEVICE_H
#define ANYRDMA_CM_DEVICE_H

#include <infiniband/verbs.h>
#include <stdint.h>

struct cm_device {
	struct ibv_context *verbs;
	struct ibv_pd *pd;	   /* default PD */
	uint8_t max_initiator_depth;
	uint8_t max_responder_resources;
};

/* Reads the list of devices again. -ENODEV: there is none. */
int cm_device_sync(void);

/* The device with this node GUID and, where both sides have one, this index of
 * the kernel's (UINT32_MAX: none), opened, with its default PD; drop with
 * cm_device_put(). Neither of both: the first usable one. */
int cm_device_get(__be64 guid, uint32_t index, struct cm_device **out);
void cm_device_put(struct cm_device *dev);

/* The device's default XRC domain. */
int cm_device_xrcd(struct cm_device *dev, struct ibv_xrcd **out);

#endif
