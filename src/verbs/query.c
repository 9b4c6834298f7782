/* SPDX-License-Identifier: BSD-2-Clause */
/* The exported calls that only ask, and those about fork. */
#include "base/log.h"
#include "dev/gid.h"
#include "dev/verbs.h"
#include "verbs/export.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#undef ibv_query_port

/* The symbol writes what struct ibv_port_attr was when it was frozen: all before
 * port_cap_flags2. */
enum { OLD_PORT_ATTR = offsetof(struct ibv_port_attr, port_cap_flags2) };

static int fail(int ret)
{
	if (!ret)
		return 0;
	errno = -ret;
	return -1;
}

EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	(void)context;
	if (fork_dead())
		return ENODEV;
	query_device(attr);
	return 0;
}

EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port_num,
			  struct _compat_ibv_port_attr *port_attr)
{
	(void)context;
	if (fork_dead())
		return ENODEV;
	return -query_port(port_num, (struct ibv_port_attr *)port_attr, OLD_PORT_ATTR);
}

EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port_num, int index,
			 union ibv_gid *gid)
{
	(void)context;
	if (fork_dead())
		return fail(-ENODEV);
	return fail(query_gid(port_num, (uint32_t)index, gid));
}

EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port_num,
			     uint32_t gid_index, struct ibv_gid_entry *entry,
			     uint32_t flags, size_t entry_size)
{
	struct ibv_gid_entry e;
	int ret;

	(void)context;
	if (fork_dead())
		return ENODEV;
	if (flags || entry_size < sizeof(e))
		return -log_refuse(EINVAL,
				   "ibv_query_gid_ex: flags 0x%x, entries of %zu "
				   "bytes",
				   flags, entry_size);
	ret = query_gid_entry(port_num, gid_index, &e);
	if (ret)
		return -ret;
	memset(entry, 0, entry_size);
	memcpy(entry, &e, sizeof(e));
	return 0;
}

EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context,
				    struct ibv_gid_entry *entries, size_t max_entries,
				    uint32_t flags, size_t entry_size)
{
	uint8_t *out = (uint8_t *)entries;
	struct ibv_gid_entry e;
	size_t n = 0;

	(void)context;
	if (fork_dead())
		return -ENODEV;
	if (flags || entry_size < sizeof(e))
		return log_refuse(EINVAL,
				  "ibv_query_gid_table: flags 0x%x, entries of %zu "
				  "bytes",
				  flags, entry_size);
	for (uint32_t i = 0; i < gid_count(); i++) {
		if (query_gid_entry(1, i, &e))
			continue;
		if (n == max_entries)
			return log_refuse(EINVAL,
					  "ibv_query_gid_table: more than %zu entries",
					  max_entries);
		memset(out + n * entry_size, 0, entry_size);
		memcpy(out + n++ * entry_size, &e, sizeof(e));
	}
	return (ssize_t)n;
}

EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port_num, int index,
			  __be16 *pkey)
{
	uint16_t host;
	int ret;

	(void)context;
	ret = fork_dead() ? -ENODEV : query_pkey(port_num, index, &host);
	if (!ret)
		*pkey = htons(host);
	return fail(ret);
}

EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port_num, __be16 pkey)
{
	__be16 have;

	if (ibv_query_pkey(context, port_num, 0, &have))
		return -1;
	return have == pkey ? 0 : fail(-EINVAL);
}

/* Not enum ibv_gid_type: 0 is IB or RoCE v1, 1 is RoCE v2. Programs of the
 * distribution import it from the private node. */
EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num,
			      unsigned int index, unsigned int *type);

EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num,
			      unsigned int index, unsigned int *type)
{
	union ibv_gid gid;
	int ret;

	(void)context;
	ret = fork_dead() ? -ENODEV : query_gid(port_num, index, &gid);
	if (!ret)
		*type = 1;
	return fail(ret);
}

/* Registered memory is plain memory of the process: a fork needs no care. */
EXPORT int ibv_fork_init(void)
{
	return 0;
}

EXPORT enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}
