/* SPDX-License-Identifier: BSD-2-Clause */
/* The exported verbs that ask the device, and those about fork. */
#include "dev/dev.h"
#include "verbs/edge.h"

#undef ibv_query_port

/* The symbol writes what struct ibv_port_attr was when it was frozen: all before
 * port_cap_flags2. */
enum { OLD_PORT_ATTR = offsetof(struct ibv_port_attr, port_cap_flags2) };

EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	NO_CANCEL;
	const struct dev_ops *ops = edge_ops(context);
	int ret = edge_check(ops, context);

	return edge_errno(ret ? ret : ops->query_device(to_ctx(context), attr));
}

EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port_num,
			  struct _compat_ibv_port_attr *port_attr)
{
	NO_CANCEL;
	const struct dev_ops *ops = edge_ops(context);
	int ret = edge_check(ops, context);

	if (!ret)
		ret = ops->query_port(to_ctx(context), port_num,
				      (struct ibv_port_attr *)port_attr, OLD_PORT_ATTR);
	return edge_errno(ret);
}

EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port_num, int index,
			 union ibv_gid *gid)
{
	NO_CANCEL;
	const struct dev_ops *ops = edge_ops(context);
	int ret = edge_check(ops, context);

	if (!ret)
		ret = ops->query_gid(to_ctx(context), port_num, (uint32_t)index, gid);
	return edge_minus_one(ret);
}

EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port_num,
			     uint32_t gid_index, struct ibv_gid_entry *entry,
			     uint32_t flags, size_t entry_size)
{
	NO_CANCEL;
	const struct dev_ops *ops = edge_ops(context);
	int ret = edge_check(ops, context);

	if (!ret)
		ret = ops->query_gid_ex(to_ctx(context), port_num, gid_index, entry,
					flags, entry_size);
	return edge_errno(ret);
}

/* On failure this verb returns a negative errno. */
EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context,
				    struct ibv_gid_entry *entries, size_t max_entries,
				    uint32_t flags, size_t entry_size)
{
	NO_CANCEL;
	const struct dev_ops *ops = edge_ops(context);
	ssize_t ret = edge_check(ops, context);

	if (!ret)
		ret = ops->query_gid_table(to_ctx(context), entries, max_entries, flags,
					   entry_size);
	if (ret < 0)
		errno = (int)-ret;
	return ret;
}

EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port_num, int index,
			  __be16 *pkey)
{
	NO_CANCEL;
	const struct dev_ops *ops = edge_ops(context);
	int ret = edge_check(ops, context);

	if (!ret)
		ret = ops->query_pkey(to_ctx(context), port_num, index, pkey);
	return edge_minus_one(ret);
}

EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port_num, __be16 pkey)
{
	NO_CANCEL;
	const struct dev_ops *ops = edge_ops(context);
	int index = -1, ret = edge_check(ops, context);

	if (!ret)
		ret = ops->get_pkey_index(to_ctx(context), port_num, pkey, &index);
	return edge_failed(ret) ? -1 : index;
}

/* Not in a public header: programs of the distribution import it from the private
 * node. */
EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num,
			      unsigned int index, unsigned int *type);

EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num,
			      unsigned int index, unsigned int *type)
{
	NO_CANCEL;
	const struct dev_ops *ops = edge_ops(context);
	int ret = edge_check(ops, context);

	if (!ret)
		ret = ops->query_gid_type(to_ctx(context), port_num, index, type);
	return edge_minus_one(ret);
}

/* Registered memory is not pinned: a fork needs no preparation. */
EXPORT int ibv_fork_init(void)
{
	return 0;
}

EXPORT enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}
