/* SPDX-License-Identifier: BSD-2-Clause */
/* The one device and its contexts. Contexts are independent of each other and
 * of device lists; the device itself is static. */
#include "base/be.h"
#include "base/fdset.h"
#include "base/log.h"
#include "base/state.h"
#include "dev/gid.h"
#include "dev/verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Provider libraries read their private struct behind struct ibv_device (8
 * bytes past its end in libmlx5, libmlx4 and libefa) before they have found out
 * that the device is not theirs: zeros must be there. */
struct device_block {
	struct ibv_device dev;
	uint8_t behind[1024];
};

/* dev_name: UCX accepts a device only if /dev/infiniband/<dev_name> is a character
 * device. With the usual name of the first NIC, what gives a NIC to a container also
 * works for us. */
static struct device_block the_device = {
	.dev = {
		.node_type = IBV_NODE_CA,
		.transport_type = IBV_TRANSPORT_IB,
		.name = "anyrdma0",
		.dev_name = "uverbs0",
		.dev_path = "/sys/class/infiniband_verbs/uverbs0",
		.ibdev_path = "/sys/class/infiniband/anyrdma0",
	},
};

static struct lock device_lock PROCESS_STATE = LOCK_INIT;
static struct list contexts PROCESS_STATE = LIST_INIT(contexts); /* device_lock */

struct ibv_device *device_the(void)
{
	return &the_device.dev;
}

/* FNV-1a over what names this host and network namespace. */
static uint64_t hash_bytes(uint64_t h, const void *data, size_t len)
{
	const uint8_t *p = data;

	while (len--)
		h = (h ^ *p++) * 0x100000001b3ull;
	return h;
}

static uint64_t hash_file(uint64_t h, const char *path)
{
	char buf[128];
	ssize_t n;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return h;
	n = read(fd, buf, sizeof(buf));
	close(fd);
	return n > 0 ? hash_bytes(h, buf, (size_t)n) : h;
}

static uint64_t the_guid;

static void guid_make(void)
{
	uint64_t h = 0xcbf29ce484222325ull;
	char host[256] = "";
	uint8_t raw[8];
	struct stat st;

	gethostname(host, sizeof(host) - 1);
	h = hash_bytes(h, host, strlen(host));
	h = hash_file(h, "/proc/sys/kernel/random/boot_id");
	if (!stat("/proc/self/ns/net", &st))
		h = hash_bytes(h, &st.st_ino, sizeof(st.st_ino));
	be64_put(raw, h);
	/* EUI-64, individual, locally administered: never zero. */
	raw[0] = (uint8_t)((raw[0] & 0xfc) | 0x02);
	memcpy(&the_guid, raw, sizeof(the_guid));
}

/* The same in every process of a host (or container) until it boots again, as a
 * NIC's would be; different in another network namespace, which is another
 * machine to its programs. */
uint64_t device_guid(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, guid_make);
	return the_guid;
}

int device_list(struct ibv_device ***out)
{
	struct ibv_device **list = calloc(2, sizeof(*list));

	if (!list)
		return -ENOMEM;
	list[0] = device_the();
	*out = list;
	return 0;
}

/* Without the functions that verbs.h calls: src/verbs sets them. */
static void ctx_fill(struct dev_ctx *ctx)
{
	struct ibv_context *c = &ctx->v.context;

	c->device = &the_device.dev;
	c->cmd_fd = -1;
	c->async_fd = ctx->async.fd;
	c->num_comp_vectors = 1;
	c->abi_compat = __VERBS_ABI_IS_EXTENDED;
	pthread_mutex_init(&c->mutex, NULL);
	ctx->v.sz = sizeof(ctx->v);
}

int device_open(struct ibv_device *dev, struct dev_ctx **out)
{
	struct dev_ctx *ctx;
	int ret;

	if (dev != &the_device.dev)
		return log_refuse(ENODEV, "ibv_open_device: %p is not a device of ours",
				  (void *)dev);
	fork_watch();
	ret = fatal_renew();
	if (ret)
		return ret;
	fdset_raise_limit();
	ctx = calloc(1, sizeof(*ctx));
	if (!ctx)
		return -ENOMEM;
	ret = evq_init(&ctx->async);
	if (ret) {
		free(ctx);
		return log_refuse(-ret, "ibv_open_device: no async event descriptor: %s",
				  strerror(-ret));
	}
	atomic_init(&ctx->refs, 1);
	ctx->generation = state_generation();
	ctx_fill(ctx);
	lock_get(&device_lock);
	list_add_tail(&contexts, &ctx->link);
	lock_put(&device_lock);
	gid_watch_start();
	*out = ctx;
	return 0;
}

void ctx_get(struct dev_ctx *ctx)
{
	atomic_fetch_add(&ctx->refs, 1);
}

void ctx_put(struct dev_ctx *ctx)
{
	if (atomic_fetch_sub(&ctx->refs, 1) != 1)
		return;
	lock_get(&device_lock);
	list_del(&ctx->link);
	lock_put(&device_lock);
	async_fini(ctx);
	evq_fini(&ctx->async);
	pthread_mutex_destroy(&ctx->v.context.mutex);
	free(ctx);
}

/* A context that still has objects can be closed; it is freed with the last of them. */
int device_close(struct dev_ctx *ctx)
{
	int left = atomic_load(&ctx->refs) - 1;

	if (left > 0)
		log_info("ibv_close_device: %d objects of the context still exist", left);
	ctx_put(ctx);
	return 0;
}

bool device_has_contexts(void)
{
	bool any;

	lock_get(&device_lock);
	any = !list_empty(&contexts);
	lock_put(&device_lock);
	return any;
}

void device_each_ctx(void (*fn)(struct dev_ctx *ctx, int arg), int arg)
{
	struct dev_ctx *ctx;

	lock_get(&device_lock);
	list_for_each (ctx, &contexts, link)
		fn(ctx, arg);
	lock_put(&device_lock);
}
