/* SPDX-License-Identifier: BSD-2-Clause */
/* The devices and their contexts. Contexts are independent of each other and
 * of device lists; the devices themselves are static. */
#include "base/be.h"
#include "base/conf.h"
#include "base/fdset.h"
#include "base/log.h"
#include "base/state.h"
#include "dev/gid.h"
#include "dev/names.h"
#include "dev/verbs.h"

#include <dirent.h>
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

static struct {
	pthread_once_t once;
	unsigned n;
	struct device_block block[DEV_DEVICES];
	uint64_t guid[DEV_DEVICES];
} devices = { .once = PTHREAD_ONCE_INIT };

static struct lock device_lock PROCESS_STATE = LOCK_INIT;
static struct list contexts PROCESS_STATE = LIST_INIT(contexts); /* device_lock */

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

/* The same in every process of a host (or container) until it boots again, as a
 * NIC's would be; different in another network namespace, which is another
 * machine to its programs. */
static void guids_make(void)
{
	uint64_t h = 0xcbf29ce484222325ull;
	char host[256] = "";
	struct stat st;

	gethostname(host, sizeof(host) - 1);
	h = hash_bytes(h, host, strlen(host));
	h = hash_file(h, "/proc/sys/kernel/random/boot_id");
	if (!stat("/proc/self/ns/net", &st))
		h = hash_bytes(h, &st.st_ino, sizeof(st.st_ino));
	for (unsigned i = 0; i < DEV_DEVICES; i++) {
		uint8_t raw[8], number = (uint8_t)i;

		be64_put(raw, i ? hash_bytes(h, &number, 1) : h);
		/* EUI-64, individual, locally administered: never zero. */
		raw[0] = (uint8_t)((raw[0] & 0xfc) | 0x02);
		memcpy(&devices.guid[i], raw, sizeof(devices.guid[i]));
	}
}

static bool file_says(const char *path, const char *want)
{
	char text[32] = "";
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	if (read(fd, text, sizeof(text) - 1) < 0)
		text[0] = 0;
	close(fd);
	return !strcmp(text, want);
}

/* N of uverbsN: as `anyrdma run` shows it, which goes on counting after real devices; else
 * the number of the device. */
static unsigned uverbs_number(const char *name, unsigned i)
{
	char path[128];
	unsigned number = i;
	struct dirent *e;
	DIR *dir;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%.63s/hca_type", name);
	if (!file_says(path, "anyrdma\n"))
		return i;
	snprintf(path, sizeof(path), "/sys/class/infiniband/%.63s/device/infiniband_verbs",
		 name);
	dir = opendir(path);
	while (dir && (e = readdir(dir)))
		sscanf(e->d_name, "uverbs%u", &number);
	if (dir)
		closedir(dir);
	return number < 10000 ? number : i;
}

/* dev_name: UCX accepts a device only if /dev/infiniband/<dev_name> is a character
 * device. With the usual names of NICs, what gives these to a container also works for us. */
static void devices_make(void)
{
	const struct conf *conf = conf_get();
	device_name names[DEV_DEVICES];
	const char *why = names_make(conf->name, conf->devices, names);

	if (why)
		log_error("ANYRDMA_NAME=%s: %s; using %s", conf->name, why, names[0]);
	for (unsigned i = 0; i < conf->devices; i++) {
		struct ibv_device *d = &devices.block[i].dev;
		unsigned uverbs = uverbs_number(names[i], i);

		d->node_type = IBV_NODE_CA;
		d->transport_type = IBV_TRANSPORT_IB;
		strcpy(d->name, names[i]);
		snprintf(d->dev_name, sizeof(d->dev_name), "uverbs%u", uverbs);
		snprintf(d->dev_path, sizeof(d->dev_path),
			 "/sys/class/infiniband_verbs/uverbs%u", uverbs);
		strcpy(stpcpy(d->ibdev_path, "/sys/class/infiniband/"), names[i]);
	}
	guids_make();
	devices.n = conf->devices;
}

unsigned device_count(void)
{
	pthread_once(&devices.once, devices_make);
	return devices.n;
}

struct ibv_device *device_get(unsigned i)
{
	return i < device_count() ? &devices.block[i].dev : NULL;
}

int device_number(const struct ibv_device *dev)
{
	unsigned n = device_count();

	for (unsigned i = 0; i < n; i++)
		if (dev == &devices.block[i].dev)
			return (int)i;
	return -ENODEV;
}

uint64_t device_guid(unsigned i)
{
	return i < device_count() ? devices.guid[i] : 0;
}

int device_list(struct ibv_device ***out)
{
	unsigned n = device_count();
	struct ibv_device **list = calloc(n + 1, sizeof(*list));

	if (!list)
		return -ENOMEM;
	for (unsigned i = 0; i < n; i++)
		list[i] = device_get(i);
	*out = list;
	return 0;
}

/* Without the functions that verbs.h calls: src/verbs sets them. */
static void ctx_fill(struct dev_ctx *ctx)
{
	struct ibv_context *c = &ctx->v.context;

	c->device = device_get(ctx->device);
	c->cmd_fd = -1;
	c->async_fd = ctx->async.fd;
	c->num_comp_vectors = 1;
	c->abi_compat = __VERBS_ABI_IS_EXTENDED;
	pthread_mutex_init(&c->mutex, NULL);
	ctx->v.sz = sizeof(ctx->v);
}

int device_open(struct ibv_device *dev, struct dev_ctx **out)
{
	int ret, number = device_number(dev);
	struct dev_ctx *ctx;

	if (number < 0)
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
	ctx->device = (unsigned)number;
	ctx_fill(ctx);
	lock_get(&device_lock);
	list_add_tail(&contexts, &ctx->link);
	lock_put(&device_lock);
	gid_watch_start();
	if (device_opened)
		device_opened();
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

void device_each_ctx(int device, void (*fn)(struct dev_ctx *ctx, int arg), int arg)
{
	struct dev_ctx *ctx;

	lock_get(&device_lock);
	list_for_each (ctx, &contexts, link)
		if (device < 0 || ctx->device == (unsigned)device)
			fn(ctx, arg);
	lock_put(&device_lock);
}
