/* SPDX-License-Identifier: BSD-2-Clause */
#include "rsocket/rs.h"

#include <errno.h>

off_t rs_iomap(struct rs *rs, void *buf, size_t len, int prot, int flags, off_t offset)
{
	(void)rs, (void)buf, (void)len, (void)prot, (void)flags, (void)offset;
	return -ENOSYS;
}

int rs_iounmap(struct rs *rs, void *buf, size_t len)
{
	(void)rs, (void)buf, (void)len;
	return -ENOSYS;
}

ssize_t rs_iowrite(struct rs *rs, const void *buf, size_t n, off_t offset, int flags)
{
	(void)rs, (void)buf, (void)n, (void)offset, (void)flags;
	return -ENOSYS;
}

void iomap_free(struct rs *rs)
{
	(void)rs;
}

int iomap_announce(struct rs *rs)
{
	(void)rs;
	return 0;
}
