/* SPDX-License-Identifier: BSD-2-Clause */
/* The rdma_ucm ABI: the kernel's header, and what newer kernels added to it. */
#ifndef ANYRDMA_CM_KERNEL_ABI_H
#define ANYRDMA_CM_KERNEL_ABI_H

/* These the application's header has as well, with the same values. */
#define RDMA_PS_IPOIB UCM_PS_IPOIB
#define RDMA_PS_IB UCM_PS_IB
#define RDMA_PS_TCP UCM_PS_TCP
#define RDMA_PS_UDP UCM_PS_UDP
#define RDMA_MC_JOIN_FLAG_FULLMEMBER UCM_MC_JOIN_FLAG_FULLMEMBER
#define RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER UCM_MC_JOIN_FLAG_SENDONLY_FULLMEMBER
#define RDMA_MC_JOIN_FLAG_RESERVED UCM_MC_JOIN_FLAG_RESERVED
#define RDMA_OPTION_ID UCM_OPTION_ID
#define RDMA_OPTION_IB UCM_OPTION_IB
#define RDMA_OPTION_ID_TOS UCM_OPTION_ID_TOS
#define RDMA_OPTION_ID_REUSEADDR UCM_OPTION_ID_REUSEADDR
#define RDMA_OPTION_ID_AFONLY UCM_OPTION_ID_AFONLY
#define RDMA_OPTION_ID_ACK_TIMEOUT UCM_OPTION_ID_ACK_TIMEOUT
#define RDMA_OPTION_IB_PATH UCM_OPTION_IB_PATH
#include <rdma/rdma_user_cm.h>
#undef RDMA_PS_IPOIB
#undef RDMA_PS_IB
#undef RDMA_PS_TCP
#undef RDMA_PS_UDP
#undef RDMA_MC_JOIN_FLAG_FULLMEMBER
#undef RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER
#undef RDMA_MC_JOIN_FLAG_RESERVED
#undef RDMA_OPTION_ID
#undef RDMA_OPTION_IB
#undef RDMA_OPTION_ID_TOS
#undef RDMA_OPTION_ID_REUSEADDR
#undef RDMA_OPTION_ID_AFONLY
#undef RDMA_OPTION_ID_ACK_TIMEOUT
#undef RDMA_OPTION_IB_PATH

enum {
	KERNEL_ABI_MIN = 3,
	KERNEL_ABI_MAX = 4,
};

/* Under names of their own: a newer linux-libc-dev has the official ones. */
enum {
	KERNEL_CMD_RESOLVE_IB_SERVICE = 23,
	KERNEL_CMD_WRITE_CM_EVENT = 24,
	KERNEL_QUERY_IB_SERVICE = 3,
	KERNEL_SERVICE_ID = 1,
	KERNEL_SERVICE_NAME = 2,
	KERNEL_SERVICE_NAME_SIZE = 64,
};

struct kernel_resolve_ib_service {
	__u32 id;
	__u32 reserved0;
	__aligned_u64 service_id;
	__u8 name[KERNEL_SERVICE_NAME_SIZE];
	__u32 flags;
	__u32 reserved1;
};

struct kernel_write_cm_event {
	__u32 id;
	__u32 reserved;
	__u32 event;
	__u32 status;
	union {
		struct rdma_ucm_conn_param conn;
		struct rdma_ucm_ud_param ud;
		__u32 arg[2]; /* one u64 */
	} param;
};

struct kernel_service_rec {
	__be64 id;
	__u8 gid[16];
	__be16 pkey;
	__u8 reserved[2];
	__be32 lease;
	__u8 key[16];
	__u8 name[KERNEL_SERVICE_NAME_SIZE];
	__u8 data[64];
};

struct kernel_query_service_resp {
	__u32 count;
	__u32 reserved;
	struct kernel_service_rec recs[];
};

_Static_assert(sizeof(struct kernel_resolve_ib_service) == 88, "ABI");
_Static_assert(sizeof(struct kernel_write_cm_event) == 320, "ABI");
_Static_assert(sizeof(struct kernel_service_rec) == 176, "ABI");
_Static_assert(sizeof(struct rdma_ucm_event_resp) == 336, "ABI");
_Static_assert(sizeof(struct rdma_ucm_query_addr_resp) == 280, "ABI");
_Static_assert(sizeof(struct rdma_ucm_query_route_resp) == 208, "ABI");

#endif
