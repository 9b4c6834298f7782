/* SPDX-License-Identifier: BSD-2-Clause */
/* The names of IBVERBS_1.0 that IBVERBS_1.1 has again with other structs. Only
 * binaries linked before 2007 bind to them. They find no device, so no object of
 * that ABI exists and the rest can only refuse.
 *
 * The aliases are made by the assembler, which gcc and clang both pass on; this
 * file goes into the shared library only, and not through LTO. */
#include "base/log.h"
#include "verbs/export.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#define OLD_(type, name, node, ...) \
	EXPORT type name##_old(__VA_ARGS__); \
	__asm__(".symver " #name "_old, " #name "@" node); \
	EXPORT __attribute__((used)) type name##_old(__VA_ARGS__)
#define OLD(type, name, ...) OLD_(type, name, "IBVERBS_1.0", __VA_ARGS__)

static int refuse(const char *name)
{
	errno = ENOSYS;
	return -log_refuse(ENOSYS, "%s at IBVERBS_1.0: that ABI is not implemented",
			   name);
}

#define OLD_PTR(name) \
	OLD(void *, name, void) \
	{ \
		refuse(#name); \
		return NULL; \
	}
#define OLD_ERRNO(name) \
	OLD(int, name, void) \
	{ \
		return refuse(#name); \
	}
#define OLD_MINUS_1(name) \
	OLD(int, name, void) \
	{ \
		refuse(#name); \
		return -1; \
	}
#define OLD_VOID(name) \
	OLD(void, name, void) \
	{ \
		refuse(#name); \
	}

OLD(void *, ibv_get_device_list, int *num)
{
	if (num)
		*num = 0;
	refuse("ibv_get_device_list");
	return NULL;
}

OLD(uint64_t, ibv_get_device_guid, void)
{
	refuse("ibv_get_device_guid");
	return 0;
}

OLD_(void, ibv_register_driver, "IBVERBS_1.1", void)
{
	refuse("ibv_register_driver");
}

OLD_VOID(ibv_ack_async_event)
OLD_VOID(ibv_ack_cq_events)
OLD_PTR(ibv_alloc_pd)
OLD_ERRNO(ibv_attach_mcast)
OLD_ERRNO(ibv_close_device)
OLD_PTR(ibv_create_ah)
OLD_PTR(ibv_create_cq)
OLD_PTR(ibv_create_qp)
OLD_PTR(ibv_create_srq)
OLD_ERRNO(ibv_dealloc_pd)
OLD_ERRNO(ibv_dereg_mr)
OLD_ERRNO(ibv_destroy_ah)
OLD_ERRNO(ibv_destroy_cq)
OLD_ERRNO(ibv_destroy_qp)
OLD_ERRNO(ibv_destroy_srq)
OLD_ERRNO(ibv_detach_mcast)
OLD_VOID(ibv_free_device_list)
OLD_MINUS_1(ibv_get_async_event)
OLD_MINUS_1(ibv_get_cq_event)
OLD_PTR(ibv_get_device_name)
OLD_ERRNO(ibv_modify_qp)
OLD_ERRNO(ibv_modify_srq)
OLD_PTR(ibv_open_device)
OLD_ERRNO(ibv_query_device)
OLD_MINUS_1(ibv_query_gid)
OLD_MINUS_1(ibv_query_pkey)
OLD_ERRNO(ibv_query_port)
OLD_ERRNO(ibv_query_qp)
OLD_ERRNO(ibv_query_srq)
OLD_PTR(ibv_reg_mr)
OLD_ERRNO(ibv_resize_cq)
