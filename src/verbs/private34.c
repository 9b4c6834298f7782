/* SPDX-License-Identifier: BSD-2-Clause */
/* The private node: what provider libraries import from libibverbs. Programs
 * that link them (perftest, libfabric, UCX) load only if every name is here. No provider
 * ever gets a device from us: after its constructor, which registers it, none of this is
 * called for an object of ours. ibv_query_gid_type, which programs call themselves, is in
 * verbs/query.c. */
#include "base/log.h"
#include "verbs/export.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct verbs_context;

#define REFUSE(name) \
	log_refuse(EOPNOTSUPP, "%s: there is no kernel device behind a context", name)

#define PRIVATE_ERRNO(name) \
	EXPORT int name(void); \
	EXPORT int name(void) \
	{ \
		return errno = -REFUSE(#name); \
	}
#define PRIVATE_PTR(name) \
	EXPORT void *name(void); \
	EXPORT void *name(void) \
	{ \
		errno = -REFUSE(#name); \
		return NULL; \
	}
#define PRIVATE_VOID(name) \
	EXPORT void name(void); \
	EXPORT void name(void) \
	{ \
		(void)REFUSE(#name); \
	}
#define PRIVATE_MINUS_1(name) \
	EXPORT int name(void); \
	EXPORT int name(void) \
	{ \
		errno = -REFUSE(#name); \
		return -1; \
	}

EXPORT extern bool verbs_allow_disassociate_destroy;
EXPORT bool verbs_allow_disassociate_destroy;

EXPORT void verbs_register_driver_34(const void *ops);
EXPORT void __verbs_log(struct verbs_context *ctx, uint32_t level, const char *fmt, ...);
EXPORT unsigned int __ioctl_final_num_attrs(unsigned int num_attrs, void *link);

/* Runs in constructors of provider libraries, before main. */
EXPORT void verbs_register_driver_34(const void *ops)
{
	(void)ops;
}

EXPORT void __verbs_log(struct verbs_context *ctx, uint32_t level, const char *fmt, ...)
{
	(void)ctx;
	(void)level;
	(void)fmt;
}

EXPORT unsigned int __ioctl_final_num_attrs(unsigned int num_attrs, void *link)
{
	(void)link;
	return num_attrs;
}

PRIVATE_PTR(_verbs_init_and_alloc_context)
PRIVATE_ERRNO(execute_ioctl)
PRIVATE_ERRNO(ibv_cmd_advise_mr)
PRIVATE_ERRNO(ibv_cmd_alloc_dm)
PRIVATE_ERRNO(ibv_cmd_alloc_mw)
PRIVATE_ERRNO(ibv_cmd_alloc_pd)
PRIVATE_ERRNO(ibv_cmd_attach_mcast)
PRIVATE_ERRNO(ibv_cmd_close_xrcd)
PRIVATE_ERRNO(ibv_cmd_create_ah)
PRIVATE_ERRNO(ibv_cmd_create_counters)
PRIVATE_ERRNO(ibv_cmd_create_cq)
PRIVATE_ERRNO(ibv_cmd_create_cq_ex)
PRIVATE_ERRNO(ibv_cmd_create_flow)
PRIVATE_ERRNO(ibv_cmd_create_flow_action_esp)
PRIVATE_ERRNO(ibv_cmd_create_qp)
PRIVATE_ERRNO(ibv_cmd_create_qp_ex)
PRIVATE_ERRNO(ibv_cmd_create_qp_ex2)
PRIVATE_ERRNO(ibv_cmd_create_rwq_ind_table)
PRIVATE_ERRNO(ibv_cmd_create_srq)
PRIVATE_ERRNO(ibv_cmd_create_srq_ex)
PRIVATE_ERRNO(ibv_cmd_create_wq)
PRIVATE_ERRNO(ibv_cmd_dealloc_mw)
PRIVATE_ERRNO(ibv_cmd_dealloc_pd)
PRIVATE_ERRNO(ibv_cmd_dereg_mr)
PRIVATE_ERRNO(ibv_cmd_destroy_ah)
PRIVATE_ERRNO(ibv_cmd_destroy_counters)
PRIVATE_ERRNO(ibv_cmd_destroy_cq)
PRIVATE_ERRNO(ibv_cmd_destroy_flow)
PRIVATE_ERRNO(ibv_cmd_destroy_flow_action)
PRIVATE_ERRNO(ibv_cmd_destroy_qp)
PRIVATE_ERRNO(ibv_cmd_destroy_rwq_ind_table)
PRIVATE_ERRNO(ibv_cmd_destroy_srq)
PRIVATE_ERRNO(ibv_cmd_destroy_wq)
PRIVATE_ERRNO(ibv_cmd_detach_mcast)
PRIVATE_ERRNO(ibv_cmd_free_dm)
PRIVATE_ERRNO(ibv_cmd_get_context)
PRIVATE_ERRNO(ibv_cmd_modify_cq)
PRIVATE_ERRNO(ibv_cmd_modify_flow_action_esp)
PRIVATE_ERRNO(ibv_cmd_modify_qp)
PRIVATE_ERRNO(ibv_cmd_modify_qp_ex)
PRIVATE_ERRNO(ibv_cmd_modify_srq)
PRIVATE_ERRNO(ibv_cmd_modify_wq)
PRIVATE_ERRNO(ibv_cmd_open_qp)
PRIVATE_ERRNO(ibv_cmd_open_xrcd)
PRIVATE_MINUS_1(ibv_cmd_poll_cq)
PRIVATE_ERRNO(ibv_cmd_post_recv)
PRIVATE_ERRNO(ibv_cmd_post_send)
PRIVATE_ERRNO(ibv_cmd_post_srq_recv)
PRIVATE_ERRNO(ibv_cmd_query_context)
PRIVATE_ERRNO(ibv_cmd_query_device_any)
PRIVATE_ERRNO(ibv_cmd_query_mr)
PRIVATE_ERRNO(ibv_cmd_query_port)
PRIVATE_ERRNO(ibv_cmd_query_qp)
PRIVATE_ERRNO(ibv_cmd_query_srq)
PRIVATE_ERRNO(ibv_cmd_read_counters)
PRIVATE_ERRNO(ibv_cmd_reg_dm_mr)
PRIVATE_ERRNO(ibv_cmd_reg_dmabuf_mr)
PRIVATE_ERRNO(ibv_cmd_reg_mr)
PRIVATE_ERRNO(ibv_cmd_req_notify_cq)
PRIVATE_ERRNO(ibv_cmd_rereg_mr)
PRIVATE_ERRNO(ibv_cmd_resize_cq)
PRIVATE_MINUS_1(ibv_read_ibdev_sysfs_file)
PRIVATE_VOID(verbs_init_cq)
PRIVATE_PTR(verbs_open_device)
PRIVATE_VOID(verbs_set_ops)
PRIVATE_VOID(verbs_uninit_context)
