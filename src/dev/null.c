/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory for null regions. A null region has any length, and a transport needs one
 * pointer for a whole message. So there are two mappings of DEV_MAX_MSG bytes: one to
 * read from, which is the kernel's page of zeros, and one to write to, which maps the
 * same small file again and again. What is written there is never read. Both are made
 * with the first null region, and kept. */
#include "base/fdset.h"
#include "base/log.h"
#include "base/state.h"
#include "dev/verbs.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SINK = 2 << 20 }; /* bytes of the file: more of it costs memory, less mappings */

static struct lock null_lock PROCESS_STATE = LOCK_INIT; /* guards making them */
/* Fixed before the first null region has a key. */
static void *zeros PROCESS_STATE, *sink PROCESS_STATE;

static void *map_zeros(void)
{
	void *p = mmap(NULL, DEV_MAX_MSG, PROT_READ,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static int fill_sink(uint8_t *p, int fd)
{
	int ret = fdset_resize(fd, SINK);

	if (ret)
		return ret;
	for (size_t at = 0; at < DEV_MAX_MSG; at += SINK)
		if (mmap(p + at, SINK, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
			 0) == MAP_FAILED)
			return -errno;
	madvise(p, DEV_MAX_MSG, MADV_DONTDUMP); /* a core would have 2 GiB of it */
	return 0;
}

static void *map_sink(void)
{
	void *p = mmap(NULL, DEV_MAX_MSG, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int fd, ret;

	if (p == MAP_FAILED)
		return NULL;
	fd = memfd_create("anyrdma null region", MFD_CLOEXEC);
	ret = fd < 0 ? -errno : fill_sink(p, fd);
	if (fd >= 0)
		close(fd);
	if (!ret)
		return p;
	munmap(p, DEV_MAX_MSG);
	return NULL;
}

int mr_null_init(void)
{
	int ret = 0;

	lock_get(&null_lock);
	if (!zeros)
		zeros = map_zeros();
	if (!sink)
		sink = map_sink();
	if (!zeros || !sink)
		ret = log_refuse(ENOMEM, "ibv_alloc_null_mr: no address space for 2 x 2 "
					 "GiB of nothing");
	lock_put(&null_lock);
	return ret;
}

void *mr_null_memory(unsigned access)
{
	return access & IBV_ACCESS_LOCAL_WRITE ? sink : zeros;
}
